//! `issfa transform`: new observations under a fitted model.

use crate::Outcome;
use crate::options::{Common, NewRowOptions};
use clap::Args;
use issfa::Result;
use issfa::data::write::{NpyWriter, write_npy_f32};
use issfa::new_rows::FeaturesAre;
use issfa::new_rows::transform::CenterNew;
use issfa::run::folder::{ACTIVATION, Output, RECONSTRUCTION, WEIGHTS};
use issfa::run::held::Held;
use issfa::summary::export::{self, RunImages};
use issfa::summary::{Fitted, labels};
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
    let fitted = Fitted::open(&options.run)?;
    let (rows, mut how) = options.how.rows(&options.new, &fitted)?;
    how.drop = options.drop.clone();
    let observations = fitted.open_rows(&rows, &how)?;
    if observations.space().is_some() && how.center == CenterNew::Train {
        common.say(
            "centred by the training means; for images of another run or subject --center-new own is usually better",
        );
    }
    fitted.check_ids(&options.drop)?;
    let inputs = options.how.files(&options.new)?;
    let mut held = Held::for_new(&options.out, Output::Transform, common.overwrite, &inputs)?;
    let place = held.begin()?;
    let (n_rows, ids) = (observations.n_rows(), fitted.ids());
    let k = ids.len();
    let shape: Vec<usize> = std::iter::once(n_rows).chain(fitted.structure().grid().iter().copied()).collect();
    let mut reconstruction = NpyWriter::create(&place.join(RECONSTRUCTION), &shape)?;
    let runs = observations.runs();
    let mut images = observations.space().map(|space| RunImages::new(&place, space, &runs));
    let (mut weights, mut activation, mut n_at_means) = (Vec::new(), Vec::new(), 0);
    fitted.transform_batches(&observations, &how, &mut |batch| {
        weights.extend_from_slice(&batch.weights);
        activation.extend_from_slice(&batch.activation);
        n_at_means += batch.n_at_means;
        if let Some(images) = &mut images {
            let rows = batch.reconstruction.chunks_exact(fitted.structure().n_sites());
            rows.into_iter().try_for_each(|row| -> Result<()> { images.push(row, fitted.mask()) })?;
        }
        reconstruction.write_values(&batch.reconstruction)
    })?;
    reconstruction.finish()?;
    write_npy_f32(&place.join(WEIGHTS), &[n_rows, k], &weights)?;
    write_npy_f32(&place.join(ACTIVATION), &[n_rows, k], &activation)?;
    labels::write_weights(&observations, &ids, &weights, &place)?;
    let mut files = "weights.npy, activation.npy, reconstruction.npy".to_string();
    if observations.space().is_some() {
        export::write_courses(&ids, &weights, &activation, &runs, &place)?;
        files += ", and reconstruction_*.nii.gz, weights_*.tsv, activation_*.tsv for each run";
    }
    held.publish()?;
    common.say(&format!(
        "{n_rows} rows, {k} features, mean over {} draws: {files} in {}",
        fitted.n_draws(),
        options.out.display()
    ));
    say_what_features_are(&fitted, n_at_means, n_rows, common);
    Ok(())
}

/// After a fit to few rows: what new rows took the features for, and why.
fn say_what_features_are(fitted: &Fitted, n_at_means: usize, n_rows: usize, common: &Common) {
    if !fitted.has_few_rows() {
        return;
    }
    let n_training = fitted.record().n_rows;
    let because = match fitted.features_are(None) {
        FeaturesAre::AtTheirMeans if fitted.mask().is_full() => "the fit had missing cells",
        FeaturesAre::AtTheirMeans => "the fit has a mask",
        FeaturesAre::IntegratedOut if n_at_means > 0 => "they have missing cells",
        FeaturesAre::IntegratedOut => {
            common.say(&format!("features are integrated out: {n_training} training rows leave them uncertain"));
            return;
        }
    };
    common.say(&format!(
        "{n_at_means} of {n_rows} rows take the features at their means, since {because}; \
         {n_training} training rows leave features uncertain, and these rows' errors are larger for it"
    ));
}
