//! The strength alpha of the Indian buffet process \[M8\].

use super::{Info, Turn};
use crate::model::{GammaPrior, Model, State, ibp, simulate};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;

/// Gamma: shape `e + K`, rate `f + H_T(beta)`.
pub fn conditional(prior: GammaPrior, n_features: usize, n_rows: usize, repulsion: f64) -> GammaPrior {
    GammaPrior {
        shape: prior.shape + n_features as f64,
        rate: prior.rate + ibp::expected_features_per_strength(n_rows, repulsion),
    }
}

/// Draws it from its conditional.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn) -> Info {
    let given =
        conditional(model.priors.ibp_strength, state.n_features(), state.loadings.n_rows(), state.ibp_repulsion);
    let mut stream = turn.streams.stream(Purpose::IbpStrength, 0, 0);
    state.ibp_strength = simulate::gamma(given.shape, given.rate, &mut stream);
    Info::default()
}
