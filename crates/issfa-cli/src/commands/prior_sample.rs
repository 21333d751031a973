//! `issfa prior-sample`: what features look like under a structure and theta.

use crate::Outcome;
use crate::options::{Common, Prior, PriorOptions};
use clap::Args;
use issfa::data::write::write_npy_f32;
use issfa::lab::rng::{Purpose, Streams};
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::structure::{Shelf, Spectrum, expression};
use issfa::{report, simulation};
use std::path::PathBuf;

/// Draw features from the prior: see what a structure and theta mean before fitting
#[derive(Args)]
#[command(
    after_help = "Example:\n  issfa prior-sample --structure \"path(64) x path(64)\" --theta 1,100 --count 8 --out prior"
)]
pub struct Options {
    /// With sizes, such as "path(64) x path(64)", or with --grid
    #[arg(long)]
    structure: Option<String>,
    #[command(flatten)]
    prior: PriorOptions,
    /// How many features (theta by default: 1 for a ridge, 100 for a roughness)
    #[arg(long, default_value_t = 8)]
    count: usize,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder to make: samples.npy and a figure
    #[arg(long)]
    out: PathBuf,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let tell = |text: &str| common.say(text);
    let shelf = Shelf::beside(&options.out, &tell);
    let Prior { structure, spectrum, theta } = options.prior.build(
        options.structure.as_deref(),
        &shelf,
        options.count.saturating_add(8),
        Spectrum::example_theta,
    )?;
    let inputs = options.structure.as_deref().map_or(Vec::new(), expression::files);
    let mut held = Held::for_new(&options.out, Output::PriorSamples, common.overwrite, &inputs)?;
    let place = held.begin()?;
    let stream_of = |k| Streams::once(options.seed).stream(Purpose::Prior, 1, k);
    let images = simulation::prior_features(&structure, &spectrum, &theta, options.count, stream_of);
    let shape: Vec<usize> = std::iter::once(images.len()).chain(structure.grid().iter().copied()).collect();
    let flat: Vec<f32> = images.iter().flatten().map(|&x| x as f32).collect();
    write_npy_f32(&place.join("samples.npy"), &shape, &flat)?;
    let shown = theta.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    let title = format!("{}, curve {}, theta = {shown}", structure.expression(), options.prior.curve);
    report::write_prior_samples(&place, &images, structure.grid(), &title)?;
    held.publish()?;
    common.say(&format!(
        "{} samples: samples.npy, prior_samples.svg and .png in {}",
        images.len(),
        options.out.display()
    ));
    Ok(())
}
