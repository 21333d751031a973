//! Draws from the model: a state from the prior, and data given a state.

use super::{Entry, Loadings, Priors, State, WeightMeanPrior, ibp};
use crate::numeric::linalg::Real;
use crate::rng::Stream;
use crate::spectral::{FeatureSpectra, SpectralData};
use crate::structure::Spectrum;
use rand_distr::{Distribution, Gamma, StandardNormal};

/// A standard normal number.
pub fn normal(stream: &mut impl rand::Rng) -> f64 {
    StandardNormal.sample(stream)
}

/// White noise, of so many cells.
pub fn white(n_cells: usize, sd: f64, stream: &mut Stream) -> Vec<f64> {
    (0..n_cells).map(|_| sd * normal(stream)).collect()
}

/// A gamma draw with shape and rate; NaN where these have left the range of numbers, for the chain to report.
pub fn gamma(shape: f64, rate: f64, stream: &mut impl rand::Rng) -> f64 {
    Gamma::new(shape, 1.0 / rate).map_or(f64::NAN, |gamma| gamma.sample(stream))
}

/// An inverse-gamma draw with shape and scale.
pub fn inverse_gamma(shape: f64, scale: f64, stream: &mut impl rand::Rng) -> f64 {
    1.0 / gamma(shape, scale, stream)
}

/// The mean weight of a new feature.
pub fn weight_mean(prior: &WeightMeanPrior, stream: &mut impl rand::Rng) -> f64 {
    match prior {
        WeightMeanPrior::Normal(p) => p.mean + normal(stream) / p.precision.sqrt(),
        WeightMeanPrior::Fixed(value) => *value,
    }
}

/// By how much the precision of one active weight differs from that of its feature's: 1 for normal weights.
pub fn local_precision(tails: Option<f64>, stream: &mut impl rand::Rng) -> f64 {
    tails.map_or(1.0, |freedom| gamma(0.5 * freedom, 0.5 * freedom, stream))
}

/// A feature spectrum from the prior: independent normals with precisions `h_v`.
pub fn feature_spectrum(precisions: &[f64], stream: &mut impl rand::Rng) -> Vec<f64> {
    precisions.iter().map(|h| normal(stream) / h.sqrt()).collect()
}

/// A whole state from the prior; features are stored by first appearance.
pub fn prior_state<R: Real>(
    n_rows: usize,
    spectrum: &Spectrum,
    priors: &Priors,
    stream: &mut impl rand::Rng,
) -> State<R> {
    let mut state = State::empty(n_rows, spectrum.n_modes(), spectrum.n_parameters());
    state.noise_variance = inverse_gamma(priors.noise.shape, priors.noise.scale, stream);
    state.ibp_strength = gamma(priors.ibp_strength.shape, priors.ibp_strength.rate, stream);
    state.ibp_repulsion = gamma(priors.ibp_repulsion.shape, priors.ibp_repulsion.rate, stream);
    state.ln_theta = priors.ln_theta.iter().map(|p| p.mean + normal(stream) / p.precision.sqrt()).collect();
    let (rows, k) = ibp::draw_activations(n_rows, state.ibp_strength, state.ibp_repulsion, stream);
    for _ in 0..k {
        let id = state.new_id();
        state.feature_ids.push(id);
        state.weight_means.push(weight_mean(&priors.weight_mean, stream));
        state.weight_precisions.push(gamma(priors.weight_precision.shape, priors.weight_precision.rate, stream));
    }
    let mut weigh = |&feature: &usize| {
        let local = local_precision(priors.weight_tails, stream);
        let sd = (state.weight_precisions[feature] * local).sqrt().recip();
        Entry { feature, weight: state.weight_means[feature] + sd * normal(stream) }
    };
    let rows = rows.iter().map(|row| row.iter().map(&mut weigh).collect()).collect();
    state.loadings = Loadings::from_rows(rows, k);
    let precisions = spectrum.precisions(&state.theta());
    let spectra: Vec<Vec<f64>> = (0..k).map(|_| feature_spectrum(&precisions, stream)).collect();
    state.features = FeatureSpectra::from_rows(spectrum.n_modes(), spectra.iter().map(Vec::as_slice));
    state
}

/// `W S` of one row, in the spectral domain.
pub fn noiseless_row<R: Real>(state: &State<R>, row: usize) -> Vec<f64> {
    let mut sum = vec![0.0; state.features.tiles().n_modes];
    for entry in state.loadings.row(row) {
        let feature = state.features.feature(entry.feature);
        sum.iter_mut().zip(feature).for_each(|(x, s)| *x += entry.weight * s);
    }
    sum
}

/// Data given a state, in the spectral domain.
pub fn data_given_state<R: Real>(state: &State<R>, stream: &mut impl rand::Rng) -> SpectralData<R> {
    let sd = state.noise_variance.sqrt();
    let mut noisy = |row| noiseless_row(state, row).iter().map(|x| x + sd * normal(stream)).collect();
    let rows: Vec<Vec<f64>> = (0..state.loadings.n_rows()).map(&mut noisy).collect();
    SpectralData::from_rows(&rows)
}
