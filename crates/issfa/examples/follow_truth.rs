//! Follows a fit of a simulation sweep by sweep and compares each state with the truth; prints a CSV.
//!
//! `follow_truth SIM SETTINGS.toml COSINE`, with the names of `issfa fit`'s options in the TOML file. A true feature counts
//! as found where some feature of the state has at least this absolute cosine with it; one draw is noisier than a
//! posterior mean, so the bar is lower than for those. With `burn-in = 0` nothing but the posterior's own moves is at work.

use issfa::data::{Centering, Rows};
use issfa::fit::{Prepared, Request};
use issfa::lab::chain::Chain;
use issfa::lab::compiled::Sampled;
use issfa::lab::kernels::features::conditional_means;
use issfa::lab::numeric::linalg::{View, multiply};
use issfa::lab::spectral::FeatureSpectra;
use issfa::new_rows::{Effort, Known, all_of, infer};
use issfa::run::settings::{Precision, Settings};
use issfa::simulation::Simulation;
use issfa::structure::{Direction, Structure};
use std::path::Path;
use std::time::Instant;

fn main() -> issfa::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [simulation, settings, bar] = &arguments[..] else {
        eprintln!("usage: follow_truth SIM SETTINGS.toml COSINE");
        std::process::exit(2);
    };
    let (simulation, bar) = (Path::new(simulation), bar.parse().expect("COSINE is a number"));
    let mut settings = Settings::read(Path::new(settings))?;
    settings.input = vec![simulation.join("observations.npy")];
    settings.heldout = Some(simulation.join("heldout.npy"));
    settings.grid = Some(Simulation::read(simulation)?.grid);
    // Noise is white by construction, and held-out errors are those of whole rows.
    settings.noise = "white".into();
    settings.center = Some(Centering::None);
    match settings.precision {
        Precision::F32 => follow::<f32>(simulation, settings, bar),
        Precision::F64 => follow::<f64>(simulation, settings, bar),
    }
}

fn follow<R: Sampled>(folder: &Path, settings: Settings, bar: f64) -> issfa::Result<()> {
    let prepared = Prepared::<R>::load(Request::new(Rows::open(&settings.input)?, settings.check()?))?;
    let about = &prepared.about;
    let truth = spectra_of(&folder.join("truth_features.npy"), &about.structure)?;
    let clean = spectra_of(&folder.join("truth_heldout.npy"), &about.structure)?;
    let heldout = prepared.heldout.as_ref().expect("held-out rows were asked for");
    let schedule = about.schedule(1);
    let mut chain = Chain::new(prepared.initial_state(1)?, 0);
    let mut seconds = 0.0;
    println!("sweep,seconds,n_features,n_found,recovery_error,heldout_error");
    while chain.sweep < schedule.sweeps {
        let start = Instant::now();
        chain.step(&prepared.model, &schedule)?;
        seconds += start.elapsed().as_secs_f64();
        let cosines = best_cosines(&truth, &chain.state.features);
        let means = conditional_means(&prepared.model, &chain.state);
        let known = Known { state: &chain.state, tails: None, means: &means, scatter: None, left_out: &[] };
        let (rows, _) = infer(heldout, &known, Effort::BRIEF, &schedule.streams(chain.sweep), &all_of(heldout));
        let weights: Vec<f64> = rows.iter().flat_map(|row| row.weights.iter().copied()).collect();
        let error = heldout_error(&clean, &weights, &means, about.preprocessing.factor);
        println!(
            "{},{seconds:.4},{},{},{:.6},{error:.8}",
            chain.sweep,
            chain.state.n_features(),
            cosines.iter().filter(|x| **x >= bar).count(),
            cosines.iter().map(|x| 2.0 - 2.0 * x.min(1.0)).sum::<f64>()
        );
    }
    Ok(())
}

/// Images of a file as spectra, which keep inner products and norms.
fn spectra_of(path: &Path, structure: &Structure) -> issfa::Result<Vec<Vec<f64>>> {
    let (_, values) = issfa::data::read::npy::read_npy_f64(path)?;
    let mut scratch = Vec::new();
    let mut one = |image: &[f64]| {
        let mut image = image.to_vec();
        structure.apply(Direction::ToSpectrum, &mut image, &mut scratch);
        image
    };
    Ok(values.chunks_exact(structure.n_sites()).map(&mut one).collect())
}

fn rows_of<R: Sampled>(features: &FeatureSpectra<R>) -> Vec<f64> {
    (0..features.n_features()).flat_map(|k| features.feature(k)).collect()
}

fn best_cosines<R: Sampled>(truth: &[Vec<f64>], features: &FeatureSpectra<R>) -> Vec<f64> {
    let (k, n, flat) = (features.n_features(), features.tiles().n_modes, rows_of(features));
    let norms: Vec<f64> =
        features.squared_norms(&issfa::comm::Solo).iter().map(|x| x.sqrt().max(f64::MIN_POSITIVE)).collect();
    let all: Vec<f64> = truth.concat();
    let mut products = vec![0.0; truth.len() * k];
    multiply(&mut products, View::new(&all, truth.len(), n), View::new(&flat, k, n).t());
    let best = |at: usize| (0..k).map(|j| products[at * k + j].abs() / norms[j]).fold(0.0, f64::max);
    (0..truth.len()).map(best).collect()
}

/// The mean squared error of `W S`, in the user's units.
fn heldout_error<R: Sampled>(clean: &[Vec<f64>], weights: &[f64], features: &FeatureSpectra<R>, unit: f64) -> f64 {
    let (k, n, flat) = (features.n_features(), features.tiles().n_modes, rows_of(features));
    let mut explained = vec![0.0; clean.len() * n];
    multiply(&mut explained, View::new(weights, clean.len(), k), View::new(&flat, k, n));
    let squares = clean.iter().flatten().zip(&explained).map(|(x, y)| (x - unit * y).powi(2)).sum::<f64>();
    squares / (clean.len() * n) as f64
}
