//! All features given the loadings, the noise and theta \[M2\]: jointly, or one after the other.

use super::{Info, Turn};
use crate::linalg::{Real, symmetric_eigen};
use crate::model::{Model, State};
use crate::rng::Purpose;
use crate::spectral::{FeatureConditional, FeatureSpectra, Projections, Scan, draw_features, feature_means};
use rand::seq::SliceRandom;

/// Draws every feature at every mode in one pass over the data, which leaves fresh projections behind.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections, turn: &Turn) -> Info {
    let rotation = symmetric_eigen(&state.loadings.gram(), state.n_features());
    draw(model, state, projections, turn, Scan::Joint(&rotation))
}

/// The same law reached feature by feature, as samplers of this kind usually do: it mixes worse, and is here to show that.
pub fn update_one_by_one<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections,
    turn: &Turn,
) -> Info {
    let gram = state.loadings.gram();
    // Storage order tells ages, so the order of the scan is drawn anew, and is the same for all modes.
    let mut order: Vec<usize> = (0..state.n_features()).collect();
    order.shuffle(&mut turn.streams.stream(Purpose::FeatureOrder, 0, 0));
    draw(model, state, projections, turn, Scan::OneByOne { gram: &gram, order: &order })
}

/// The mean of the features given everything else in the state.
pub fn conditional_means<R: Real>(model: &Model<R>, state: &State<R>) -> FeatureSpectra<R> {
    let rotation = symmetric_eigen(&state.loadings.gram(), state.n_features());
    let precisions = model.spectrum.precisions(&state.theta());
    feature_means(&model.data, &state.loadings, &rotation, state.noise_variance, &precisions)
}

fn draw<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections,
    turn: &Turn,
    scan: Scan,
) -> Info {
    let precisions = model.spectrum.precisions(&state.theta());
    let conditional = FeatureConditional {
        scan,
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
