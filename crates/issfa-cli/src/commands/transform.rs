//! `issfa transform`: new observations under a fitted model.

use super::with_precision;
use crate::Outcome;
use crate::options::Common;
use clap::{Args, ValueEnum};
use issfa::data::read::expand_inputs;
use issfa::data::write::NpyWriter;
use issfa::linalg::Real;
use issfa::run_folder::{Output, Run, check_output, prepare_output};
use issfa::transform::{CenterNew, Fitted};
use std::path::PathBuf;

/// Weights, activations and denoised versions of new observations
#[derive(Args)]
#[command(after_help = "Example:\n  issfa transform run sim/heldout.npy --out new")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// New data, as for fit
    #[arg(required = true)]
    new: Vec<PathBuf>,
    /// The folder to make: weights.npy, activation.npy, reconstruction.npy
    #[arg(long)]
    out: PathBuf,
    /// Leave these features (ids of features.tsv) out of the reconstruction
    #[arg(long, value_name = "ID,ID...", value_delimiter = ',')]
    drop: Vec<u64>,
    /// Centre new rows by the training means or by their own
    #[arg(long, value_enum, default_value = "train")]
    center_new: CenterName,
}

#[derive(Clone, Copy, ValueEnum)]
enum CenterName {
    Train,
    Own,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let run = Run::open(&options.run)?;
    with_precision!(run.checked.settings.precision, transform(&run, &options, common))
}

fn transform<R: Real>(run: &Run, options: &Options, common: &Common) -> Outcome {
    let fitted = Fitted::open(run)?;
    let observations = fitted.open_rows(&expand_inputs(&options.new)?)?;
    check_output(&options.out, Output::Transform, common.overwrite)?;
    prepare_output(&options.out, Output::Transform)?;
    let (n_rows, k) = (observations.n_rows(), fitted.ids.len());
    let shape: Vec<usize> = std::iter::once(n_rows).chain(fitted.structure.grid().iter().copied()).collect();
    let mut weights = NpyWriter::create(&options.out.join("weights.npy"), &[n_rows, k])?;
    let mut activation = NpyWriter::create(&options.out.join("activation.npy"), &[n_rows, k])?;
    let mut reconstruction = NpyWriter::create(&options.out.join("reconstruction.npy"), &shape)?;
    let center = match options.center_new {
        CenterName::Train => CenterNew::Train,
        CenterName::Own => CenterNew::Own,
    };
    fitted.transform::<R>(&observations, center, &options.drop, &mut |batch| {
        weights.write_values(&batch.weights)?;
        activation.write_values(&batch.activation)?;
        reconstruction.write_values(&batch.reconstruction)
    })?;
    weights.finish()?;
    activation.finish()?;
    reconstruction.finish()?;
    common.say(&format!(
        "{n_rows} rows, {k} features, mean over {} draws: weights.npy, activation.npy, reconstruction.npy in {}",
        fitted.draws.len(),
        options.out.display()
    ));
    Ok(())
}
