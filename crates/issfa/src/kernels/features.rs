//! All features given the loadings, the noise and theta \[M2\]: jointly, or one after the other.

use super::{Info, Turn};
use crate::comm::told_by_rank_0;
use crate::model::{Model, State};
use crate::numeric::linalg::{Eigen, Real, symmetric_eigen};
use crate::rng::Purpose;
use crate::spectral::{FeatureConditional, FeatureSpectra, Outside, Projections, Scan, Window, WindowConditional};
use crate::spectral::{draw_features, feature_means};
use rand::seq::SliceRandom;

/// Draws every feature at every mode in one pass over the data, which leaves fresh projections behind.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let rotation = rotation(model, state);
    match &model.window {
        None => draw(model, state, projections, turn, Scan::Joint(&rotation)),
        Some(window) => draw_in_window(model, window, state, projections, turn, &rotation),
    }
}

/// The basis that diagonalises `W'W`.
fn rotation<R: Real>(model: &Model<R>, state: &State<R>) -> Eigen {
    let n = state.n_features();
    let numbers = told_by_rank_0(model.comm.as_ref(), || {
        let eigen = symmetric_eigen(&state.loadings.gram(), n);
        [eigen.values, eigen.vectors].concat()
    });
    Eigen { values: numbers[..n].to_vec(), vectors: numbers[n..].to_vec() }
}

/// Drawing what was not observed and the features in turn costs 2K transforms and leaves the law alone, but a smooth mode
/// that lies outside needs about `lambda / (sigma^2 h)` turns to forget where it was. So every few sweeps, and in the first,
/// the features are drawn without them: some 50 to 100 times as many transforms.
fn outside<R>(model: &Model<R>, sweep: u64) -> Outside {
    let every = model.joint_every.max(1);
    if sweep % every == 1 % every { Outside::Jointly } else { Outside::InTurn(WINDOW_ROUNDS) }
}

const WINDOW_ROUNDS: u32 = 1;

fn draw_in_window<R: Real>(
    model: &Model<R>,
    window: &Window,
    state: &mut State<R>,
    projections: &mut Projections<R>,
    turn: &Turn,
    rotation: &Eigen,
) -> Info {
    let precisions = model.spectrum.precisions(&state.theta());
    let conditional = WindowConditional {
        rotation,
        noise_variance: state.noise_variance,
        precisions: &precisions,
        streams: &turn.streams,
        outside: outside(model, turn.streams.sweep),
    };
    *projections = window.draw_features(
        &model.data,
        &model.row_norms,
        &state.loadings,
        &conditional,
        &mut state.features,
        model.comm.as_ref(),
    );
    Info::default()
}

/// The same law reached feature by feature, as samplers of this kind usually do: it mixes worse, and is here to show that.
pub fn update_one_by_one<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections<R>,
    turn: &Turn,
) -> Info {
    assert!(model.window.is_none(), "one by one is for complete data");
    let gram = state.loadings.gram();
    // Storage order tells ages, so the order of the scan is drawn anew, and is the same for all modes.
    let mut order: Vec<usize> = (0..state.n_features()).collect();
    order.shuffle(&mut turn.streams.stream(Purpose::FeatureOrder, 0, 0));
    draw(model, state, projections, turn, Scan::OneByOne { gram: &gram, order: &order })
}

/// The mean of the features given everything else in the state.
pub fn conditional_means<R: Real>(model: &Model<R>, state: &State<R>) -> FeatureSpectra<R> {
    let rotation = rotation(model, state);
    let precisions = model.spectrum.precisions(&state.theta());
    let (data, loadings, noise) = (&model.data, &state.loadings, state.noise_variance);
    match &model.window {
        None => feature_means(data, loadings, &rotation, noise, &precisions),
        Some(window) => window.feature_means(data, loadings, &rotation, noise, &precisions, model.comm.as_ref()),
    }
}

fn draw<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections<R>,
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
