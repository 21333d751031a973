//! `issfa resume`: go on with a run that stopped, or make it longer.

use super::fit::{RankOptions, announce, conclude, require};
use super::with_precision;
use crate::Outcome;
use crate::options::Common;
use crate::progress::Progress;
use crate::ranks::Job;
use crate::signals::Signals;
use clap::Args;
use issfa::fit::{Prepared, Ranks};
use issfa::numeric::linalg::Real;
use issfa::run::folder::Run;
use issfa::run::settings::parse_duration;
use issfa::{Error, Result};
use std::path::PathBuf;

/// Go on with a run that was stopped, with the same bits as one never stopped; or extend it
#[derive(Args)]
#[command(after_help = "Examples:\n  issfa resume run\n  issfa resume run --sweeps +500")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// The new number of sweeps; +500 adds to the old one
    #[arg(long, allow_hyphen_values = true)]
    sweeps: Option<String>,
    /// Stop again after this time: 90s, 5m, 2h
    #[arg(long, value_name = "TIME")]
    time_budget: Option<String>,
    #[command(flatten)]
    ranks: RankOptions,
}

pub fn run(options: Options, job: &Job, common: &Common) -> Outcome {
    let mut run = Run::open(&options.run)?;
    require(&options.run, "run folder with a checkpoint", "checkpoint/state.safetensors")?;
    run.check_inputs()?;
    let settings = &mut run.checked.settings;
    if let Some(text) = &options.sweeps {
        settings.sweeps = new_sweeps(text, settings.sweeps)?;
    }
    settings.time_budget = options.time_budget.clone();
    run.checked.time_budget =
        options.time_budget.as_deref().map(|text| parse_duration("time-budget", text)).transpose()?;
    let ranks = options.ranks.divide(job, run.checked.settings.chains)?;
    with_precision!(run.checked.settings.precision, go_on(run, ranks, common))
}

fn new_sweeps(text: &str, old: u64) -> Result<u64> {
    let wrong = |problem: &str| Error::setting("sweeps", text, problem);
    let (number, base) = match text.strip_prefix('+') {
        Some(number) => (number, old),
        None => (text, 0),
    };
    let sweeps = base + number.trim().parse::<u64>().map_err(|_| wrong("write a number, or +500 to add"))?;
    if sweeps < old { Err(wrong("a run cannot be made shorter")) } else { Ok(sweeps) }
}

fn go_on<R: Real>(run: Run, ranks: Ranks, common: &Common) -> Outcome {
    let folder = run.folder.clone();
    let prepared = Prepared::<R>::load_again(run, ranks)?;
    announce(&prepared, &folder, common);
    let signals = Signals::listen();
    let mut progress = Progress::new(common, signals.clone());
    let ending = issfa::fit::resume(&prepared, &folder, &mut progress);
    progress.finish();
    conclude(ending?, &folder, &signals, prepared.is_first_of_all(), common)
}
