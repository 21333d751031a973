//! `issfa match`: features against given maps.

use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::lab::numeric::files::write_atomically;
use issfa::summary::Fitted;
use issfa::summary::templates::{best_matches, table};
use std::path::PathBuf;

/// For each feature, the most alike of given maps: Pearson's r and the cosine
#[derive(Args)]
#[command(name = "match", after_help = "Example:\n  issfa match run networks.nii.gz")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// The maps, on the grid of the data: volumes of an image in the same place, or an array of maps x grid
    templates: PathBuf,
    /// Write the table here instead of printing it
    #[arg(long, value_name = "FILE.tsv")]
    out: Option<PathBuf>,
    /// As JSON
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let fitted = Fitted::open(&options.run)?;
    fitted.check_kept()?;
    options.out.as_deref().map_or(Ok(()), |path| common.check_new_file(path))?;
    let matches = best_matches(&fitted, &options.templates)?;
    match &options.out {
        Some(path) => {
            write_atomically(path, table(&matches).as_bytes())?;
            common.say(&format!("{} features: {}", matches.len(), path.display()));
        }
        None if options.json => out!("{}", serde_json::to_string_pretty(&matches).expect("matches are JSON")),
        None => out!("{}", table(&matches).trim_end()),
    }
    Ok(())
}
