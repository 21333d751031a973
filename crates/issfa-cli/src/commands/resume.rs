//! `issfa resume`: go on with a run that stopped, or make it longer.

use super::fit::{RankOptions, early_signals, require, run_session};
use crate::Outcome;
use crate::options::{Common, named};
use crate::ranks::Job;
use crate::signals::Signals;
use clap::Args;
use issfa::data::read::expand_inputs;
use issfa::fit::{Session, hold};
use issfa::run::checkpoint;
use issfa::run::folder::Run;
use issfa::run::held::Held;
use issfa::run::settings::{MOST_SWEEPS, parse_duration};
use issfa::run::until::Until;
use issfa::{Error, Result};
use std::path::PathBuf;

/// Go on with a run that was stopped, with the same bits as one never stopped; or extend it
#[derive(Args)]
#[command(
    after_help = "Examples:\n  issfa resume run\n  issfa resume run --sweeps +500\n  issfa resume run --until settled --time-budget 2h\n  issfa resume run data.npy"
)]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// The data again, where the run was fitted to an array in memory (.npy), or its files have moved
    input: Vec<PathBuf>,
    /// The new number of sweeps; +500 adds to the old one
    #[arg(long, allow_hyphen_values = true)]
    sweeps: Option<String>,
    /// sweeps, or settled: go on until R-hat is at most 1.05 with 100 independent draws (of the number of features, noise, theta,
    /// likelihood, and of whether the largest features are there)
    #[arg(long, value_parser = named::<Until>(&["sweeps", "settled"]))]
    until: Option<Until>,
    /// Stop again after this time: 90s, 5m, 2h
    #[arg(long, value_name = "TIME")]
    time_budget: Option<String>,
    #[command(flatten)]
    ranks: RankOptions,
}

pub fn run(options: Options, job: &Job, common: &Common) -> Outcome {
    let held = hold(job.comm.as_ref(), &options.run, false, || Held::of_run(&options.run))?;
    let mut run = Run::open(&options.run)?;
    if !checkpoint::exists(&options.run) {
        require(&options.run, "run folder with a checkpoint", "checkpoint/state.safetensors")?;
    }
    let sweeps = options.sweeps.as_deref().map(|text| new_sweeps(text, &run)).transpose()?;
    // So many more are so many more, whether chains have settled or not.
    let adds = options.sweeps.as_deref().is_some_and(|text| text.starts_with('+'));
    run.checked = run.checked.extended(sweeps, options.until.or(adds.then_some(Until::Sweeps)));
    let settings = &mut run.checked.settings;
    settings.time_budget = options.time_budget.clone();
    run.checked.time_budget =
        options.time_budget.as_deref().map(|text| parse_duration("time-budget", text)).transpose()?;
    let ranks = options.ranks.divide(job, run.checked.settings.chains)?;
    let early = early_signals(&ranks);
    let watch = early.as_ref().map(Signals::watch);
    let rows = match &options.input[..] {
        [] => None,
        files => Some(run.rows_from(&expand_inputs(files)?)?),
    };
    let session = Session::resume(held, &run, rows, |request| {
        request.ranks = ranks;
        request.watch = watch;
    });
    run_session(session, early, &run.folder, common).map(|_| ())
}

fn new_sweeps(text: &str, run: &Run) -> Result<u64> {
    let (planned, folder) = (run.checked.window.sweeps, run.folder.display());
    let wrong = |problem: String| Error::setting("sweeps", text, problem);
    let (number, base) = match text.strip_prefix('+') {
        Some(number) => (number, planned),
        None => (text, 0),
    };
    let number =
        number.trim().parse::<u64>().map_err(|_| wrong("write a number, or +500 to add to those planned".into()))?;
    let sweeps = base.saturating_add(number);
    if sweeps > MOST_SWEEPS {
        return Err(wrong(format!("at most {MOST_SWEEPS} in all")));
    }
    if sweeps >= planned {
        return Ok(sweeps);
    }
    let done: u64 = checkpoint::open(&run.folder)?.number("sweep")?;
    let more = planned + number;
    let go_on = match done < planned {
        true => format!("; issfa resume {folder} goes on to {planned}"),
        false => String::new(),
    };
    Err(wrong(format!(
        "is the number of sweeps in all, but {done} of {planned} are done, and a run cannot be made shorter; for {number} more \
         type issfa resume {folder} --sweeps +{number} ({more} in all){go_on}"
    )))
}
