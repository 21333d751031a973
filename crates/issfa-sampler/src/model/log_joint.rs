//! The log joint density of everything, term by term and slowly: what every kernel is tested against.

use super::{GammaPrior, Model, NormalPrior, State, WeightMeanPrior, ibp, simulate};
use crate::numeric::linalg::Real;
use statrs::function::gamma::ln_gamma;
use std::f64::consts::PI;

/// `ln p(Y, Z, A, S, sigma^2, tau, nu, xi, alpha, beta)` \[M1\].
///
/// Z counts as a set of columns: no factor for their order. `alpha`, `beta`, `nu` and `sigma^2` are densities in
/// themselves, theta in xi = ln theta.
pub fn ln_joint<R: Real>(model: &Model<R>, state: &State<R>) -> f64 {
    let priors = &model.priors;
    let mut total =
        ln_likelihood(model, state) + ln_features(model, state) + ln_activations(state) + ln_weights(model, state);
    total += ln_gamma_density(state.ibp_strength, priors.ibp_strength);
    total += ln_gamma_density(state.ibp_repulsion, priors.ibp_repulsion);
    let noise = GammaPrior { shape: priors.noise.shape, rate: priors.noise.scale };
    total += ln_gamma_density(1.0 / state.noise_variance, noise) - 2.0 * state.noise_variance.ln();
    total += state.weight_precisions.iter().map(|&nu| ln_gamma_density(nu, priors.weight_precision)).sum::<f64>();
    if let WeightMeanPrior::Normal(prior) = priors.weight_mean {
        total += state.weight_means.iter().map(|&tau| ln_normal_density(tau, prior)).sum::<f64>();
    }
    total + state.ln_theta.iter().zip(&priors.ln_theta).map(|(&xi, &prior)| ln_normal_density(xi, prior)).sum::<f64>()
}

/// `ln p(Y | W, S, sigma^2)`.
pub fn ln_likelihood<R: Real>(model: &Model<R>, state: &State<R>) -> f64 {
    let noise = NormalPrior { mean: 0.0, precision: 1.0 / state.noise_variance };
    let row = |t: usize| {
        let mean = simulate::noiseless_row(state, t);
        let observed = model.data.row(t);
        let mean = model.domain.at_columns(mean);
        let seen = (0..observed.len()).filter(|&column| model.domain.is_seen(t, column));
        seen.map(|column| ln_normal_density(observed[column] - mean[column], noise)).sum::<f64>()
    };
    (0..model.data.n_rows()).map(row).sum()
}

/// `ln p(S | theta)`.
pub fn ln_features<R: Real>(model: &Model<R>, state: &State<R>) -> f64 {
    let precisions = model.spectrum.precisions(&state.theta());
    let one = |k: usize| {
        let feature = state.features.feature(k);
        let density = |(x, &h): (&f64, &f64)| ln_normal_density(*x, NormalPrior { mean: 0.0, precision: h });
        feature.iter().zip(&precisions).map(density).sum::<f64>()
    };
    (0..state.n_features()).map(one).sum()
}

/// `ln p(Z | alpha, beta)`.
pub fn ln_activations<R>(state: &State<R>) -> f64 {
    let (strength, repulsion, n) = (state.ibp_strength, state.ibp_repulsion, state.loadings.n_rows());
    let column = |&count: &usize| (strength * repulsion).ln() + ibp::ln_column_weight(count, n, repulsion);
    let columns: f64 = state.loadings.counts().iter().map(column).sum();
    columns - strength * ibp::expected_features_per_strength(n, repulsion)
}

/// `ln p(A | Z, tau, nu)` over active entries.
pub fn ln_weights<R>(model: &Model<R>, state: &State<R>) -> f64 {
    let entry = |e: &super::Entry| {
        let prior = NormalPrior { mean: state.weight_means[e.feature], precision: state.weight_precisions[e.feature] };
        match model.priors.weight_tails {
            None => ln_normal_density(e.weight, prior),
            Some(tails) => ln_student_density(e.weight, prior, tails),
        }
    };
    state.loadings.rows().iter().flatten().map(entry).sum()
}

/// The normal log density.
pub fn ln_normal_density(x: f64, prior: NormalPrior) -> f64 {
    0.5 * (prior.precision / (2.0 * PI)).ln() - 0.5 * prior.precision * (x - prior.mean).powi(2)
}

/// The log density of a Student variable with `tails` degrees of freedom; the precision is one over its squared scale.
pub fn ln_student_density(x: f64, prior: NormalPrior, tails: f64) -> f64 {
    let half = 0.5 * (tails + 1.0);
    ln_gamma(half) - ln_gamma(0.5 * tails) + 0.5 * (prior.precision / (tails * PI)).ln()
        - half * (prior.precision * (x - prior.mean).powi(2) / tails).ln_1p()
}

/// The gamma log density (shape, rate).
pub fn ln_gamma_density(x: f64, prior: GammaPrior) -> f64 {
    prior.shape * prior.rate.ln() - ln_gamma(prior.shape) + (prior.shape - 1.0) * x.ln() - prior.rate * x
}
