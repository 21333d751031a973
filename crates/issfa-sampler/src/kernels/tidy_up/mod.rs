//! Burn-in only: puts right what early births leave behind and Gibbs updates mend slowly.
//!
//! Mixtures are pulled apart (`untangle`) and copies are joined (`join_twins`). Both are a better start, not draws: the
//! kernel does nothing after burn-in, so the posterior does not know of it.

mod join_twins;
mod untangle;

use super::{Info, Phase, Turn, refresh};
use crate::model::{Model, State};
use crate::numeric::linalg::Real;
use crate::spectral::Projections;

/// One look at all suspicious pairs; a feature takes part in one change at most.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    if turn.phase != Phase::BurnIn || state.n_features() < 2 {
        return Info::default();
    }
    if !projections.features_are_fresh() {
        refresh(model, state, projections);
    }
    let mut touched = vec![false; state.n_features()];
    let mut info = untangle::run(model, state, projections, &mut touched);
    let joined = join_twins::run(model, state, projections, &touched, turn.streams.sweep);
    info.proposed += joined.proposed;
    info.accepted += joined.accepted;
    if info.accepted > 0 {
        projections.features_changed();
    }
    info
}

/// Pairs in the given order, none sharing a feature with an earlier one or with those `taken`.
fn disjoint(pairs: impl Iterator<Item = [usize; 2]>, taken: &[bool], most: usize) -> Vec<[usize; 2]> {
    let mut taken = taken.to_vec();
    let mut chosen = Vec::new();
    for [j, l] in pairs {
        if !taken[j] && !taken[l] && chosen.len() < most {
            taken[j] = true;
            taken[l] = true;
            chosen.push([j, l]);
        }
    }
    chosen
}
