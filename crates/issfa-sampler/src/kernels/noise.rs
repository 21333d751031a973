//! The noise variance given the residual \[M3\].

use super::{Info, Turn, refresh};
use crate::model::{InverseGammaPrior, Model, State, simulate};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;
use crate::spectral::Projections;

/// Inverse gamma: shape `a + N/2`, scale `b + |Y - W S|^2 / 2`, N the number of cells.
pub fn conditional(prior: InverseGammaPrior, n_cells: f64, squared_residual: f64) -> InverseGammaPrior {
    InverseGammaPrior { shape: prior.shape + 0.5 * n_cells, scale: prior.scale + 0.5 * squared_residual }
}

/// Draws it from its conditional.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    if !projections.residual_is_fresh() {
        refresh(model, state, projections);
    }
    let given = conditional(model.priors.noise, model.n_cells(), projections.squared_residual());
    let mut stream = turn.streams.stream(Purpose::Noise, 0, 0);
    state.noise_variance = simulate::inverse_gamma(given.shape, given.scale, &mut stream);
    Info::default()
}
