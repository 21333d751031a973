//! `issfa report`: (re)make the figures of a run.

use super::with_precision;
use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::report::{add_evidence, write_truth_figures};
use issfa::run_folder::Run;
use std::path::PathBuf;

/// (Re)make the figures of a run
#[derive(Args)]
#[command(after_help = "Example:\n  issfa report run --truth sim")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// Also compare with this simulation's truth
    #[arg(long, value_name = "SIM")]
    truth: Option<PathBuf>,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let run = Run::open(&options.run)?;
    // The other figures do not need the data.
    if let Err(problem) = with_precision!(run.checked.settings.precision, add_evidence(&run)) {
        err!("warning: no figure of eigenvalues: {problem}");
    }
    issfa::report::write_figures(&run)?;
    if let Some(simulation) = &options.truth {
        with_precision!(run.checked.settings.precision, write_truth_figures(&run, simulation))?;
    }
    common.say(&format!("figures in {}", run.folder.join("figures").display()));
    Ok(())
}
