//! `issfa summary`: what a run found, how well it mixed, and what to do.

use crate::{Outcome, words};
use clap::Args;
use issfa::summary::Fitted;
use std::path::PathBuf;

/// The posterior in numbers, mixing, costs, and a verdict in words
#[derive(Args)]
#[command(after_help = "Example:\n  issfa summary run")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: Options) -> Outcome {
    let fitted = Fitted::open(&options.run)?;
    let mut overview = fitted.summary();
    overview.verdict.iter_mut().for_each(|line| *line = words::text(line));
    if options.json {
        out!("{}", serde_json::to_string_pretty(&overview).expect("an overview is JSON"));
    } else {
        out!("{}", overview.to_string().trim_end());
    }
    Ok(())
}
