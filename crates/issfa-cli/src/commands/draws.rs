//! `issfa draws`: kept draws of the features, at the sites.

use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::data::grid::show_grid;
use issfa::data::write::NpyWriter;
use issfa::summary::Fitted;
use std::path::PathBuf;

/// Kept draws of the features at the sites, as one array: draws x features x grid
#[derive(Args)]
#[command(
    after_help = "Example:\n  issfa draws run --out draws.npy\n  python -c 'import numpy; print(numpy.nanstd(numpy.load(\"draws.npy\"), axis=0))'"
)]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// The array to write: float32, features in the order of features.tsv, each of unit norm with the sign of features.npy;
    /// NaN where a draw does not have the feature, and outside of a mask
    #[arg(long, value_name = "FILE.npy")]
    out: PathBuf,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let fitted = Fitted::open(&options.run)?;
    common.check_new_file(&options.out)?;
    let (n_draws, k, grid) = (fitted.n_draws(), fitted.ids().len(), fitted.structure().grid());
    let shape: Vec<usize> = [n_draws, k].into_iter().chain(grid.iter().copied()).collect();
    let mut writer = NpyWriter::create(&options.out, &shape)?;
    fitted.for_each_draw(&mut |images| writer.write_values(images))?;
    writer.finish()?;
    common.say(&format!("{n_draws} draws of {k} features on {} in {}", show_grid(grid), options.out.display()));
    Ok(())
}
