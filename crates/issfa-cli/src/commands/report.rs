//! `issfa report`: (re)make the figures of a run.

use crate::options::Common;
use crate::{Outcome, words};
use clap::Args;
use issfa::report::brain::{Which, write_brain_figures};
use issfa::report::{add_evidence, forget_damaged_evidence, write_truth_figures};
use issfa::run::folder::FIGURES;
use issfa::run::held::Held;
use issfa::summary::Fitted;
use issfa::{Error, Result};
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
    /// The anatomical image under the figures of features (default: that of the fit, or the mean of the data)
    #[arg(long, value_name = "FILE")]
    background: Option<PathBuf>,
    /// Which features of brain images get a figure of their own: all, or ids of features.tsv (default: the first and the
    /// last of the ranking by correlation between runs); figures of other features are taken away
    #[arg(long, value_name = "all|ID,ID...")]
    features: Option<String>,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let _held = Held::of_run(&options.run)?;
    // What the data say again need not be believed.
    forget_damaged_evidence(&options.run)?;
    let mut fitted = Fitted::open(&options.run)?;
    let folder = options.run.join(FIGURES);
    // The other figures do not need the data.
    if let Err(problem) = add_evidence(&mut fitted, None) {
        common.warn(&format!("no figure of eigenvalues: {}", words::error(&problem)));
    }
    issfa::report::write_figures(&fitted, &folder)?;
    let of_the_fit = fitted.settings().background.as_deref();
    if let Some(path) = of_the_fit.filter(|path| options.background.is_none() && !path.is_file()) {
        let path = path.display();
        common
            .warn(&format!("the fit's background {path} is not there any more; the mean of the data takes its place"));
    }
    let background = options.background.as_deref().or(of_the_fit.filter(|path| path.is_file()));
    for warning in write_brain_figures(&fitted, &which(options.features.as_deref())?, background, &folder)? {
        common.warn(&warning);
    }
    if let Some(simulation) = &options.truth {
        write_truth_figures(&fitted, simulation, &folder)?;
    }
    common.say(&format!("figures in {}", folder.display()));
    Ok(())
}

fn which(text: Option<&str>) -> Result<Which> {
    let id = |part: &str| {
        let wrong = || Error::setting("features", part, "write all, or ids of features.tsv joined by commas");
        part.trim().parse::<u64>().map_err(|_| wrong())
    };
    match text {
        None => Ok(Which::Ends),
        Some("all") => Ok(Which::All),
        Some(text) => Ok(Which::These(text.split(',').map(id).collect::<Result<_>>()?)),
    }
}
