//! All features, jointly, given the loadings, the noise and theta \[M2\].

use super::{Info, Turn};
use crate::linalg::{Real, symmetric_eigen};
use crate::model::{Model, State};
use crate::spectral::{FeatureConditional, Projections, draw_features};

/// Draws every feature at every mode in one pass over the data, which leaves fresh projections behind.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections, turn: &Turn) -> Info {
    let rotation = symmetric_eigen(&state.loadings.gram(), state.n_features());
    let precisions = model.spectrum.precisions(&state.theta());
    let conditional = FeatureConditional {
        rotation: &rotation,
        noise_variance: state.noise_variance,
        precisions: &precisions,
        streams: &turn.streams,
    };
    *projections = draw_features(
        &model.data,
        &model.row_norms,
        &state.loadings,
        &conditional,
        &mut state.features,
        model.comm.as_ref(),
    );
    Info::default()
}
