//! All features given the loadings, the noise and theta \[M2\]: jointly, or one after the other.

use super::{Info, Turn};
use crate::comm::told_by_rank_0;
use crate::model::{Model, State};
use crate::numeric::linalg::{Eigen, Real, symmetric_eigen};
use crate::rng::Purpose;
use crate::spectral::{FeatureConditional, FeatureDraw, FeatureSpectra, OneByOne, Outside, Projections};
use rand::seq::SliceRandom;

/// Rounds of [`Outside::InTurn`] in one sweep.
const ROUNDS_IN_TURN: u32 = 1;

/// Draws every feature at every mode in one pass over the data, which leaves fresh projections behind.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let (rotation, precisions) = (rotation(model, state), model.spectrum.precisions(&state.theta()));
    let noise_variance = state.noise_variance;
    let conditional = FeatureConditional { rotation: &rotation, noise_variance, precisions: &precisions };
    let outside = outside(model, turn.streams.sweep);
    let draw = FeatureDraw { conditional, streams: &turn.streams, outside };
    *projections = model.domain.draw(&model.pass(&state.loadings), &draw, &mut state.features);
    Info::default()
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
    if sweep % every == 1 % every { Outside::Jointly } else { Outside::InTurn(ROUNDS_IN_TURN) }
}

/// The same law reached feature by feature, as samplers of this kind usually do: it mixes worse, and is here to show that.
pub fn update_one_by_one<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections<R>,
    turn: &Turn,
) -> Info {
    let (gram, precisions) = (state.loadings.gram(), model.spectrum.precisions(&state.theta()));
    // Storage order tells ages, so the order of the scan is drawn anew, and is the same for all modes.
    let mut order: Vec<usize> = (0..state.n_features()).collect();
    order.shuffle(&mut turn.streams.stream(Purpose::FeatureOrder, 0, 0));
    let noise_variance = state.noise_variance;
    let conditional = OneByOne { gram: &gram, order: &order, noise_variance, precisions: &precisions };
    let pass = model.pass(&state.loadings);
    *projections = model.domain.draw_one_by_one(&pass, &conditional, &turn.streams, &mut state.features);
    Info::default()
}

/// The mean of the features given everything else in the state.
pub fn conditional_means<R: Real>(model: &Model<R>, state: &State<R>) -> FeatureSpectra<R> {
    let (rotation, precisions) = (rotation(model, state), model.spectrum.precisions(&state.theta()));
    let noise_variance = state.noise_variance;
    let conditional = FeatureConditional { rotation: &rotation, noise_variance, precisions: &precisions };
    model.domain.means(&model.pass(&state.loadings), &conditional)
}
