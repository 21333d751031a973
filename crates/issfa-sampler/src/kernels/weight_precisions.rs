//! The precision nu_k of each feature's weights around their mean, over its active rows \[M11\].

use super::{Info, Turn, weight_moments};
use crate::model::{GammaPrior, Model, State, simulate};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;

/// Gamma: shape `e + n/2`, rate `f + sum (a - tau)^2 / 2`.
pub fn conditional(prior: GammaPrior, n_active: f64, squares: f64) -> GammaPrior {
    GammaPrior { shape: prior.shape + 0.5 * n_active, rate: prior.rate + 0.5 * squares }
}

/// Draws them from their conditionals.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn) -> Info {
    let mut stream = turn.streams.stream(Purpose::WeightPrecisions, 0, 0);
    for (feature, moments) in
        weight_moments(model, state, &turn.streams, Purpose::WeightPrecisions).into_iter().enumerate()
    {
        let given = conditional(model.priors.weight_precision, moments.n_active, moments.squares);
        state.weight_precisions[feature] = simulate::gamma(given.shape, given.rate, &mut stream);
    }
    Info::default()
}
