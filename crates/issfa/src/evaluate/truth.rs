//! Measures against a simulation's truth.

use super::coverage::{Truth, coverage};
use crate::compiled::Sampled;
use crate::data::read::npy::{read_npy_f32, read_npy_f64};
use crate::data::{Mask, Observations, Preprocessing, Rows};
use crate::error::{Error, Result};
use crate::model::State;
use crate::new_rows::FeaturesAre;
use crate::new_rows::transform::NewRowSettings;
use crate::numeric::eigen::symmetric_eigen;
use crate::run::settings::Precision;
use crate::simulation::Simulation;
use crate::spectral::SpectralData;
use crate::structure::{Direction, Shelf, Spectrum, Structure};
use crate::summary::Fitted;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

const PCA_DIMENSION: usize = 33;
/// A true feature with at least this absolute cosine counts as found.
pub const FOUND: f64 = 0.7;

/// The figures of `issfa evaluate --truth`.
#[derive(Clone, Debug, Serialize)]
pub struct TruthReport {
    /// Mean over cells of (reconstruction - noise-free truth)^2 of the held-out rows.
    pub heldout_error: f64,
    /// What held-out rows took the features for.
    pub features_of_new_rows: FeaturesAre,
    /// The same of an uncentred PCA with 33 components, over ours.
    pub pca33_error_ratio: f64,
    /// Sum over true features of the least squared distance to a found one (unit norm, sign free).
    pub feature_recovery_error: f64,
    /// The same for the features of the last kept draw.
    pub final_sample_recovery_error: f64,
    /// The same for the posterior mean given the true weights.
    pub oracle_feature_recovery_error: f64,
    /// Of each true feature with the found one nearest to it, the mean absolute cosine.
    pub mean_cosine: f64,
    /// The least of these cosines.
    pub min_cosine: f64,
    /// True features with a cosine of at least 0.7.
    pub n_found: usize,
    /// True features.
    pub n_true: usize,
    /// Persistent features of the run.
    pub n_persistent: usize,
    /// Features in a kept sweep, on average.
    pub n_features_mean: f64,
    /// Excess kurtosis of all entries of W on unit-norm shared features, mean over kept draws.
    pub weight_kurtosis: f64,
    /// The same of the true weights.
    pub truth_weight_kurtosis: f64,
    /// Shares of numbers whose 90% interval, from at least 19 kept draws, holds the truth.
    pub feature_coverage: Option<f64>,
    /// The same of noise-free training rows.
    pub training_coverage: Option<f64>,
    /// The same of noise-free held-out rows.
    pub heldout_coverage: Option<f64>,
}

/// Compares a fit with the simulation it was made from.
pub fn evaluate(fitted: &Fitted, simulation_folder: &Path) -> Result<TruthReport> {
    fitted.draws()?;
    match fitted.settings().precision {
        Precision::F32 => compare::<f32>(fitted, simulation_folder),
        Precision::F64 => compare::<f64>(fitted, simulation_folder),
    }
}

fn compare<R: Sampled>(fitted: &Fitted, simulation_folder: &Path) -> Result<TruthReport> {
    let simulation = Simulation::read(simulation_folder)?;
    let (structure, spectrum) = simulation.check(&Shelf::of(simulation_folder, &simulation.graphs))?;
    let (_, truth) = read_npy_f32(&simulation_folder.join("truth_features.npy"))?;
    let n_sites = structure.n_sites();
    if fitted.structure.n_sites() != n_sites {
        return Err(Error::SitesDiffer {
            path: simulation_folder.join("truth_features.npy"),
            found: n_sites,
            expected: fitted.structure.n_sites(),
            because: format!("the run {} has that many", fitted.name().display()),
        });
    }
    let mask = &fitted.mask;
    let truth: Vec<Vec<f32>> = truth.chunks_exact(n_sites).map(|image| mask.gather(image)).collect();
    let structure = Arc::new(structure);
    let everything = Mask::full(n_sites);
    let training = raw_rows::<R>(&simulation_folder.join("observations.npy"), &structure, &everything)?;
    let oracle = oracle_features(&simulation, &training, &structure, &spectrum, simulation_folder)?;
    let oracle: Vec<Vec<f32>> = oracle.iter().map(|image| mask.gather(image)).collect();
    let cosines: Vec<f64> = truth.iter().map(|feature| best_cosine(feature, &fitted.found().features.means)).collect();
    let heldout_error = heldout_error(fitted, simulation_folder)?;
    let (n_features_mean, weight_kurtosis) = (mean_features(fitted), mean_kurtosis::<R>(fitted)?);
    let (_, true_weights) = read_npy_f64(&simulation_folder.join("truth_weights.npy"))?;
    let final_sample = final_sample::<R>(fitted)?;
    let under_mask = |name: &str| -> Result<Vec<f32>> {
        let (_, values) = read_npy_f32(&simulation_folder.join(name))?;
        Ok(values.chunks_exact(n_sites).flat_map(|row| mask.gather(row)).collect())
    };
    let (heldout, clean) = (under_mask("heldout.npy")?, under_mask("truth_heldout.npy")?);
    let known = Truth { features: &truth, weights: &true_weights, heldout: (&heldout, &clean) };
    let covered = coverage::<R>(fitted, &known)?;
    let cosines_with =
        |images: &[Vec<f32>]| truth.iter().map(|feature| best_cosine(feature, images)).collect::<Vec<_>>();
    Ok(TruthReport {
        heldout_error,
        features_of_new_rows: fitted.features_are(None),
        pca33_error_ratio: pca_error::<R>(mask, &structure, simulation_folder)? / heldout_error,
        feature_recovery_error: recovery_error(&cosines),
        final_sample_recovery_error: recovery_error(&cosines_with(&final_sample)),
        oracle_feature_recovery_error: recovery_error(&cosines_with(&oracle)),
        mean_cosine: cosines.iter().sum::<f64>() / cosines.len() as f64,
        min_cosine: cosines.iter().copied().fold(f64::INFINITY, f64::min),
        n_found: cosines.iter().filter(|cosine| **cosine >= FOUND).count(),
        n_true: truth.len(),
        n_persistent: fitted.ids().len(),
        n_features_mean,
        weight_kurtosis,
        truth_weight_kurtosis: kurtosis_with_zeros(true_weights.iter().copied(), true_weights.len() as f64),
        feature_coverage: covered.features,
        training_coverage: covered.training,
        heldout_coverage: covered.heldout,
    })
}

/// The features of the last kept draw as unit images.
fn final_sample<R: Sampled>(fitted: &Fitted) -> Result<Vec<Vec<f32>>> {
    let state = {
        let draws = fitted.draws()?;
        draws.read::<R>(draws.len() - 1)?.state
    };
    let images = R::images(&state.features, &fitted.shown());
    Ok(images.into_iter().map(|image| image.values).collect())
}

/// The cosine between a feature and an image of unit norm.
pub fn cosine(feature: &[f32], image: &[f32]) -> f64 {
    let norm = feature.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    image.iter().zip(feature).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / norm
}

/// The best absolute cosine of a feature among unit images.
pub fn best_cosine(feature: &[f32], images: &[Vec<f32>]) -> f64 {
    images.iter().map(|image| cosine(feature, image).abs()).fold(0.0, f64::max)
}

/// Sum of squared distances between unit vectors of these cosines.
fn recovery_error(cosines: &[f64]) -> f64 {
    cosines.iter().map(|cosine| 2.0 - 2.0 * cosine.min(1.0)).sum()
}

/// Rows of a file as they are: spectra, or by site under a mask.
fn raw_rows<R: Sampled>(path: &Path, structure: &Arc<Structure>, mask: &Mask) -> Result<SpectralData<R>> {
    let mut observations = Observations::open(&[path.to_path_buf()])?;
    observations.set_mask(mask.clone());
    Ok(R::all_rows(&observations, structure, &Preprocessing::nothing(), None)?.data)
}

fn heldout_error(fitted: &Fitted, folder: &Path) -> Result<f64> {
    let observations = fitted.open_rows(&Rows::open(&[folder.join("heldout.npy")])?, &NewRowSettings::plain())?;
    let (_, truth) = read_npy_f32(&folder.join("truth_heldout.npy"))?;
    let n_sites = observations.n_sites();
    let mut sum = 0.0;
    fitted.transform_batches(&observations, &NewRowSettings::plain(), &mut |batch| {
        let truth = &truth[batch.first_row * n_sites..];
        let cells = batch.reconstruction.iter().zip(truth).filter(|(x, _)| !x.is_nan());
        sum += cells.map(|(x, t)| f64::from(x - t).powi(2)).sum::<f64>();
        Ok(())
    })?;
    Ok(sum / (observations.n_rows() * observations.n_columns()) as f64)
}

fn pca_error<R: Sampled>(mask: &Mask, structure: &Arc<Structure>, folder: &Path) -> Result<f64> {
    let rows = |name: &str| raw_rows::<R>(&folder.join(name), structure, mask);
    let (heldout, truth) = (rows("heldout.npy")?, rows("truth_heldout.npy")?);
    let components = R::components(&rows("observations.npy")?, PCA_DIMENSION);
    let d = components.spectra.n_features();
    let (noisy, clean) = (R::scores(&components, &heldout), R::scores(&components, &truth));
    // With orthonormal components the error is what the truth has outside them plus the error of the scores.
    let outside: f64 = (0..truth.n_rows()).map(|row| truth.row(row).iter().map(|x| x * x).sum::<f64>()).sum::<f64>()
        - clean.iter().map(|x| x * x).sum::<f64>();
    let inside: f64 = noisy.iter().zip(&clean).map(|(a, b)| (a - b).powi(2)).sum();
    debug_assert_eq!(noisy.len(), d * truth.n_rows());
    Ok((outside + inside) / (truth.n_rows() * truth.n_modes()) as f64)
}

/// The posterior mean of the features for known weights, noise and theta, as unit images.
///
/// True features were normalised, so the prior precision of mode v is `h_v sum_u 1/h_u`.
fn oracle_features<R: Sampled>(
    simulation: &Simulation,
    training: &SpectralData<R>,
    structure: &Structure,
    spectrum: &Spectrum,
    folder: &Path,
) -> Result<Vec<Vec<f32>>> {
    let (shape, weights) = read_npy_f64(&folder.join("truth_weights.npy"))?;
    let (n_rows, k) = (shape[0], shape[1]);
    let mut gram = vec![0.0; k * k];
    for row in weights.chunks_exact(k) {
        (0..k * k).for_each(|at| gram[at] += row[at / k] * row[at % k]);
    }
    let eigen = symmetric_eigen(&gram, k);
    // Rotated statistics P'W'Y come from rotated weights.
    let rotated: Vec<Vec<(usize, f64)>> = (0..k)
        .map(|i| {
            let along = |t: usize| (0..k).map(|j| weights[t * k + j] * eigen.vectors[j * k + i]).sum::<f64>();
            (0..n_rows).map(|t| (t, along(t))).collect()
        })
        .collect();
    let statistics = R::weighted(training, &rotated);
    let h = spectrum.precisions(&simulation.theta);
    let total: f64 = h.iter().map(|h| 1.0 / h).sum();
    let noise = simulation.noise.max(1e-300);
    let means: Vec<Vec<f64>> = (0..k)
        .map(|i| {
            let values = statistics.feature(i).into_iter().zip(&h);
            values.map(|(b, h)| b / noise / (eigen.values[i].max(0.0) / noise + h * total)).collect()
        })
        .collect();
    let mut scratch = Vec::new();
    let mut unrotate = |j: usize| {
        let mut feature = vec![0.0; h.len()];
        for i in 0..k {
            let weight = eigen.vectors[j * k + i];
            feature.iter_mut().zip(&means[i]).for_each(|(x, m)| *x += weight * m);
        }
        structure.apply(Direction::ToSites, &mut feature, &mut scratch);
        let norm = feature.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-300);
        feature.iter().map(|x| (x / norm) as f32).collect()
    };
    Ok((0..k).map(&mut unrotate).collect())
}

fn mean_features(fitted: &Fitted) -> f64 {
    let (burn_in, thin) = (fitted.checked.window.burn_in, fitted.checked.thin);
    let rows = fitted.traces().into_iter().flatten();
    let kept: Vec<f64> = rows
        .filter(|row| row.sweep > burn_in && (row.sweep - burn_in).is_multiple_of(thin))
        .map(|row| row.n_features as f64)
        .collect();
    kept.iter().sum::<f64>() / kept.len() as f64
}

fn mean_kurtosis<R: Sampled>(fitted: &Fitted) -> Result<f64> {
    let draws = fitted.draws()?;
    let mut sum = 0.0;
    for at in 0..draws.len() {
        sum += draw_kurtosis(&draws.read::<R>(at)?.state, fitted);
    }
    Ok(sum / draws.len() as f64)
}

fn draw_kurtosis<R: Sampled>(state: &State<R>, fitted: &Fitted) -> f64 {
    let norms: Vec<f64> = R::images(&state.features, &fitted.shown()).iter().map(|image| image.norm).collect();
    let counts = state.loadings.counts();
    let rows = state.loadings.rows().iter().enumerate();
    let entries = rows.flat_map(|(row, entries)| {
        let level = fitted.row_level(row);
        entries.iter().filter(|entry| counts[entry.feature] > 1).map(move |entry| (level, entry))
    });
    let n = (state.loadings.n_rows() * state.loadings.n_shared()) as f64;
    kurtosis_with_zeros(entries.map(|(level, entry)| level * entry.weight * norms[entry.feature]), n)
}

/// Excess kurtosis of `n` numbers of which only the non-zero ones need be given.
fn kurtosis_with_zeros(values: impl Iterator<Item = f64>, n: f64) -> f64 {
    let mut sums = [0.0; 4];
    for x in values {
        (0..4).for_each(|power| sums[power] += x.powi(power as i32 + 1));
    }
    let [m1, m2, m3, m4] = sums.map(|sum| sum / n);
    let variance = m2 - m1 * m1;
    let fourth = m4 - 4.0 * m1 * m3 + 6.0 * m1 * m1 * m2 - 3.0 * m1.powi(4);
    if variance > 0.0 { fourth / (variance * variance) - 3.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::features::excess_kurtosis;

    #[test]
    fn sparse_kurtosis_equals_the_dense_one() {
        let values = [0.0, 0.0, 3.0, -1.5, 0.0, 0.2, 0.0, 0.0];
        let sparse = kurtosis_with_zeros(values.iter().copied().filter(|x| *x != 0.0), 8.0);
        assert!((sparse - excess_kurtosis(values.into_iter())).abs() < 1e-12);
    }

    #[test]
    fn cosines_ignore_sign_and_scale() {
        let images = vec![vec![0.6, 0.8], vec![-1.0, 0.0]];
        assert!((best_cosine(&[2.0, 0.0], &images) - 1.0).abs() < 1e-7);
        assert_eq!(best_cosine(&[2.0, 0.0], &[]), 0.0);
        assert!((recovery_error(&[1.0, 0.5]) - 1.0).abs() < 1e-12);
    }
}
