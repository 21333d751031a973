//! `issfa transform`: new observations under a fitted model.

use super::with_precision;
use crate::Outcome;
use crate::options::{Common, NewRowOptions};
use clap::Args;
use issfa::Result;
use issfa::data::write::{NpyWriter, write_npy_f32};
use issfa::new_rows::transform::{CenterNew, Fitted};
use issfa::numeric::linalg::Real;
use issfa::run::folder::{Output, Run, check_output, prepare_output};
use issfa::summary::export::{self, RunImages};
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
    /// The folder to make: weights.npy, activation.npy, reconstruction.npy; for NIfTI also an image and tables a run
    #[arg(long)]
    out: PathBuf,
    /// Leave these features (ids of features.tsv) out of the reconstruction
    #[arg(long, value_name = "ID,ID...", value_delimiter = ',')]
    drop: Vec<u64>,
    #[command(flatten)]
    how: NewRowOptions,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let run = Run::open(&options.run)?;
    with_precision!(run.checked.settings.precision, transform(&run, &options, common))
}

fn transform<R: Real>(run: &Run, options: &Options, common: &Common) -> Outcome {
    let fitted = Fitted::open(run)?;
    let (new, center) = options.how.rows(&options.new)?;
    let observations = fitted.open_rows(&new)?;
    if observations.space().is_some() && center == CenterNew::Train {
        common.say(
            "centred by the training means; for images of another run or subject --center-new own is usually better",
        );
    }
    check_output(&options.out, Output::Transform, common.overwrite)?;
    fitted.check_ids(&options.drop)?;
    prepare_output(&options.out, Output::Transform)?;
    let (n_rows, k) = (observations.n_rows(), fitted.ids.len());
    let shape: Vec<usize> = std::iter::once(n_rows).chain(fitted.structure.grid().iter().copied()).collect();
    let mut reconstruction = NpyWriter::create(&options.out.join("reconstruction.npy"), &shape)?;
    let runs = observations.runs();
    let mut images = observations.space().map(|space| RunImages::new(&options.out, space, &runs));
    let (mut weights, mut activation) = (Vec::new(), Vec::new());
    fitted.transform::<R>(&observations, center, &options.drop, &mut |batch| {
        weights.extend_from_slice(&batch.weights);
        activation.extend_from_slice(&batch.activation);
        if let Some(images) = &mut images {
            let rows = batch.reconstruction.chunks_exact(fitted.structure.n_sites());
            rows.into_iter().try_for_each(|row| -> Result<()> { images.push(row, &fitted.mask) })?;
        }
        reconstruction.write_values(&batch.reconstruction)
    })?;
    reconstruction.finish()?;
    write_npy_f32(&options.out.join("weights.npy"), &[n_rows, k], &weights)?;
    write_npy_f32(&options.out.join("activation.npy"), &[n_rows, k], &activation)?;
    let mut files = "weights.npy, activation.npy, reconstruction.npy".to_string();
    if observations.space().is_some() {
        export::write_courses(&fitted.ids, &weights, &activation, &runs, &options.out)?;
        files += ", and reconstruction_*.nii.gz, weights_*.tsv, activation_*.tsv for each run";
    }
    common.say(&format!(
        "{n_rows} rows, {k} features, mean over {} draws: {files} in {}",
        fitted.draws.len(),
        options.out.display()
    ));
    Ok(())
}
