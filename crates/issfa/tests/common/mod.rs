//! What the integration tests share: small models with informative priors, comparisons, and dense slow twins.
#![allow(dead_code)] // Each test file uses some of these.

use issfa::lab::model::{
    Entry, GammaPrior, InverseGammaPrior, Loadings, Model, NormalPrior, Priors, State, WeightMeanPrior, simulate,
};
use issfa::lab::numeric::linalg::{Real, cholesky};
use issfa::lab::rng::{Purpose, Stream, Streams};
use issfa::lab::spectral::FeatureSpectra;
use issfa::structure::{Curve, Spectrum, Structure, expression};
use rand::RngExt;
use std::f64::consts::PI;

pub const NORMAL_MEAN: WeightMeanPrior = WeightMeanPrior::Normal(NormalPrior { mean: 0.5, precision: 2.0 });

/// A stream for what a test draws itself.
pub fn stream(seed: u64, index: u64) -> Stream {
    Streams::once(seed).stream(Purpose::Simulation, 7, index)
}

pub fn structure(text: &str) -> Structure {
    expression::build(Some(text), None).expect("the test's structure is valid")
}

pub fn spectrum(structure_text: &str, curve: &str) -> Spectrum {
    Spectrum::new(&structure(structure_text), &Curve::parse(curve).expect("the test's curve is valid"))
}

/// The informative priors of the invariance test.
pub fn priors(n_parameters: usize, weight_mean: WeightMeanPrior) -> Priors {
    let ln_theta = |p| NormalPrior { mean: if p % 2 == 0 { 0.2 } else { -0.3 }, precision: 8.0 };
    Priors {
        noise: InverseGammaPrior { shape: 6.0, scale: 5.0 },
        ibp_strength: GammaPrior { shape: 3.0, rate: 2.0 },
        ibp_repulsion: GammaPrior { shape: 4.0, rate: 4.0 },
        weight_precision: GammaPrior { shape: 6.0, rate: 4.0 },
        weight_mean,
        weight_tails: None,
        ln_theta: (0..n_parameters).map(ln_theta).collect(),
    }
}

/// A state from the prior with data drawn given it.
pub fn draw_case(n_rows: usize, spectrum: &Spectrum, priors: &Priors, seed: u64) -> (Model<f64>, State<f64>) {
    let mut stream = stream(seed, 0);
    let state = simulate::prior_state(n_rows, spectrum, priors, &mut stream);
    let data = simulate::data_given_state(&state, &mut stream);
    (Model::new(data, spectrum.clone(), priors.clone()), state)
}

/// Asserts that two numbers agree to `tolerance`, relative to `size`.
#[track_caller]
pub fn assert_close(found: f64, expected: f64, tolerance: f64, size: f64, what: &str) {
    let error = (found - expected).abs();
    assert!(
        error <= tolerance * size,
        "{what}: found {found}, expected {expected}, error {error:.2e}, size {size:.2e}"
    );
}

/// Loadings where each row uses each feature with probability one half.
pub fn random_loadings(n_rows: usize, n_features: usize, stream: &mut Stream) -> Loadings {
    let mut row = |_| {
        let active = (0..n_features).filter(|_| stream.random::<bool>()).collect::<Vec<_>>();
        active.into_iter().map(|feature| Entry { feature, weight: simulate::normal(stream) }).collect()
    };
    let rows = (0..n_rows).map(&mut row).collect();
    Loadings::from_rows(rows, n_features)
}

pub fn normals(n: usize, stream: &mut Stream) -> Vec<f64> {
    (0..n).map(|_| simulate::normal(stream)).collect()
}

/// `W` as a dense matrix, row-major.
pub fn dense_loadings(loadings: &Loadings) -> Vec<f64> {
    let k = loadings.n_features();
    let mut dense = vec![0.0; loadings.n_rows() * k];
    for (row, entries) in loadings.rows().iter().enumerate() {
        entries.iter().for_each(|entry| dense[row * k + entry.feature] = entry.weight);
    }
    dense
}

/// All features as full spectra.
pub fn spectra<R: Real>(features: &FeatureSpectra<R>) -> Vec<Vec<f64>> {
    (0..features.n_features()).map(|k| features.feature(k)).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// `ln N(x; mean, covariance)` with a dense covariance (row-major).
pub fn ln_normal_dense(x: &[f64], mean: &[f64], covariance: &[f64]) -> f64 {
    let n = x.len();
    let lower = cholesky(covariance, n).expect("a covariance is positive definite");
    let mut scaled: Vec<f64> = x.iter().zip(mean).map(|(x, m)| x - m).collect();
    let mut ln_determinant = 0.0;
    for i in 0..n {
        let explained: f64 = (0..i).map(|j| lower[i * n + j] * scaled[j]).sum();
        scaled[i] = (scaled[i] - explained) / lower[i * n + i];
        ln_determinant += 2.0 * lower[i * n + i].ln();
    }
    -0.5 * (n as f64 * (2.0 * PI).ln() + ln_determinant + dot(&scaled, &scaled))
}

/// The inverse of a symmetric positive definite matrix, by Gauss-Jordan elimination.
pub fn inverse(matrix: &[f64], n: usize) -> Vec<f64> {
    let mut left = matrix.to_vec();
    let mut right: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
    for pivot in 0..n {
        let scale = 1.0 / left[pivot * n + pivot];
        for j in 0..n {
            left[pivot * n + j] *= scale;
            right[pivot * n + j] *= scale;
        }
        for i in (0..n).filter(|&i| i != pivot) {
            let factor = left[i * n + pivot];
            for j in 0..n {
                left[i * n + j] -= factor * left[pivot * n + j];
                right[i * n + j] -= factor * right[pivot * n + j];
            }
        }
    }
    right
}

/// Matrix (n x n, row-major) times vector.
pub fn apply(matrix: &[f64], vector: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(vector.len().max(1)).map(|row| dot(row, vector)).collect()
}

/// The conditional of all features at one mode, densely: mean and covariance of `K` numbers.
pub fn dense_feature_conditional(
    loadings: &Loadings,
    data_at_mode: &[f64],
    noise_variance: f64,
    precision: f64,
) -> (Vec<f64>, Vec<f64>) {
    let k = loadings.n_features();
    let dense = dense_loadings(loadings);
    let column = |feature: usize| -> Vec<f64> { dense.iter().skip(feature).step_by(k).copied().collect() };
    let mut matrix = vec![0.0; k * k];
    for a in 0..k {
        for b in 0..k {
            let ridge = if a == b { precision } else { 0.0 };
            matrix[a * k + b] = dot(&column(a), &column(b)) / noise_variance + ridge;
        }
    }
    let covariance = inverse(&matrix, k);
    let pull: Vec<f64> = (0..k).map(|a| dot(&column(a), data_at_mode) / noise_variance).collect();
    (apply(&covariance, &pull), covariance)
}

/// The standard error of the mean of a correlated series, from `n_batches` batch means.
pub fn mean_and_error(series: &[f64], n_batches: usize) -> (f64, f64) {
    let length = series.len() / n_batches;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let batches: Vec<f64> = series.chunks_exact(length).take(n_batches).map(mean).collect();
    let centre = mean(&batches);
    let variance = batches.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (n_batches - 1) as f64;
    (centre, (variance / n_batches as f64).sqrt())
}
