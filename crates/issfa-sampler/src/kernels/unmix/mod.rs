//! Burn-in only: turns all features at once to those of their span that rows use most sparsely \[M21\].
//!
//! Strong signals are found as mixtures of many features each: the span is right from early on, but rows use features by the
//! dozen, and whatever changes features one by one or in pairs finds no way out. The whole span at once has one, with no look
//! at the data. The features that follow are drawn given their new weights in the same sweep. It is a better start, not a draw.

mod span;
mod sparsest;

use super::{Info, Phase, Turn};
use crate::comm::told_by_rank_0;
use crate::model::{Entry, Model, State, WeightMeanPrior};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{Domain, Projections};
use span::{Span, Turned};

/// Rows for each feature, at least: with fewer, directions look sparse whatever they are.
const ROWS_PER_FEATURE: usize = 4;
/// A direction is strong where its energy is this many times the most that noise alone puts into one.
const STRONG: f64 = 4.0;
/// The share of all energy that strong directions must have.
const STRONG_SHARE: f64 = 0.8;
/// Rows that are a piece of work.
const ROW_CHUNK: usize = 256;

/// Every other sweep up to 32, and from then on eight times until there are twice as many.
fn acts_in(sweep: u64) -> bool {
    sweep > 1 && sweep.is_multiple_of((1 << sweep.ilog2() >> 3).max(2))
}

/// Turns all features where their signals are strong and rows use far fewer of them after.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let (k, n_rows) = (state.n_features(), state.loadings.n_rows());
    if turn.phase != Phase::BurnIn || !acts_in(turn.streams.sweep) || k < 2 || n_rows < ROWS_PER_FEATURE * k {
        return Info::default();
    }
    let found = found(model, state);
    if let Some(turned) = &found {
        apply(model, state, turned);
        projections.features_changed();
    }
    Info { proposed: 1, accepted: u32::from(found.is_some()), ..Info::default() }
}

/// What the features become, on every rank; nothing where signals are not strong or features as they are do as well.
fn found<R: Real>(model: &Model<R>, state: &State<R>) -> Option<Turned> {
    let (k, sharing, comm) = (state.n_features(), model.data.sharing(), model.comm.as_ref());
    let gram = match &model.domain {
        Domain::Modes => state.features.gram(comm),
        Domain::Cells(window) => window.at_columns(&state.features, comm).gram(comm),
    };
    let span = state.loadings.gram_on_rank_0(sharing).map(|weights| Span::new(&weights, gram, k));
    let is_strong = told_by_rank_0(comm, || {
        let energies = span.as_ref().expect("rank 0 has it").energies();
        vec![f64::from(u8::from(are_strong(&energies, most_of_noise(model, state))))]
    });
    if is_strong == [0.0] {
        return None;
    }
    let loadings = state.loadings.gathered(sharing);
    let numbers = told_by_rank_0(comm, || {
        let (span, loadings) = (span.expect("rank 0 has it"), loadings.expect("rank 0 has them"));
        span.sparser(&loadings, state.noise_variance).map_or_else(Vec::new, |turned| turned.to_numbers())
    });
    Turned::from_numbers(&numbers, k)
}

/// The most energy that a direction of noise alone has: that of its first principal component.
fn most_of_noise<R: Real>(model: &Model<R>, state: &State<R>) -> f64 {
    let [rows, columns] = [model.data.n_rows(), model.data.n_modes()].map(|n| (n as f64).sqrt());
    state.noise_variance * (rows + columns).powi(2)
}

/// Whether directions stand far out of the noise, but for those that have little of the energy.
fn are_strong(energies: &[f64], most_of_noise: f64) -> bool {
    let strong: f64 = energies.iter().filter(|energy| **energy > STRONG * most_of_noise).sum();
    strong > STRONG_SHARE * energies.iter().sum::<f64>()
}

/// Turns features and weights; small weights are left out, and features that no row uses.
fn apply<R: Real>(model: &Model<R>, state: &mut State<R>, turned: &Turned) {
    let k = state.n_features();
    state.features.turn(&turned.features);
    state.loadings.edit_rows(model.data.sharing(), |rows| {
        let work = |weights: &mut Vec<f64>, rows: &mut [Vec<Entry>]| {
            weights.resize(k, 0.0);
            for row in rows {
                turned.weights_of(row, weights);
                *row = turned.kept(weights).collect();
            }
        };
        share(rows.chunks_mut(ROW_CHUNK), Vec::new, work);
    });
    if matches!(model.priors.weight_mean, WeightMeanPrior::Normal(_)) {
        state.weight_means.fill(0.0);
    }
    // Of weights between all of one size and normal ones, whose large ones are three times as large as most.
    state.weight_precisions.fill(2.0 / turned.large.powi(2));
    let unused: Vec<usize> = (0..k).filter(|&feature| state.loadings.counts()[feature] == 0).collect();
    state.remove_features(&unused);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Loadings, Priors};
    use crate::rng::Streams;
    use crate::spectral::SpectralData;
    use crate::structure::{Curve, Spectrum, expression};

    const ROWS: usize = 240;
    const MODES: usize = 60;
    const FEATURES: usize = 6;

    fn true_feature(k: usize) -> Vec<f64> {
        (0..MODES).map(|v| ((v * (k + 1)) as f64 * 0.37 + k as f64).sin()).collect()
    }

    /// Rows use one feature, or two.
    fn true_weights(row: usize) -> Vec<f64> {
        let is_used = |k: usize| row % FEATURES == k || (row.is_multiple_of(5) && (row / 5 + row / 30) % FEATURES == k);
        (0..FEATURES).map(|k| if is_used(k) { 1.5 + ((row * 3 + k) as f64 * 0.7).sin() } else { 0.0 }).collect()
    }

    /// A mirror: what it mixes it takes apart.
    fn mirror(j: usize, k: usize) -> f64 {
        let along = |k: usize| (1.0 + k as f64) / 91_f64.sqrt();
        f64::from(u8::from(j == k)) - 2.0 * along(j) * along(k)
    }

    /// A state that explains the rows, by mixtures of the features or by the features themselves.
    fn model_and_state(is_mixed: bool, noise_variance: f64) -> (Model<f64>, State<f64>) {
        let mix = |x: &[f64]| -> Vec<f64> {
            (0..FEATURES).map(|k| (0..FEATURES).map(|j| x[j] * mirror(j, k)).sum()).collect()
        };
        let features: Vec<Vec<f64>> = (0..FEATURES).map(true_feature).collect();
        let at_mode = |v: usize| -> Vec<f64> { features.iter().map(|feature| feature[v]).collect() };
        let row = |row: usize| -> Vec<f64> {
            (0..MODES).map(|v| true_weights(row).iter().zip(at_mode(v)).map(|(w, s)| w * s).sum()).collect()
        };
        let rows: Vec<Vec<f64>> = (0..ROWS).map(row).collect();
        let structure = expression::build(Some("path(60)"), None).unwrap();
        let model = Model::new(
            SpectralData::from_rows(&rows),
            Spectrum::new(&structure, &Curve::default()),
            Priors::default_for(2),
        );
        let mut state = State::empty(ROWS, MODES, 2);
        let mixed: Vec<Vec<f64>> = (0..MODES).map(|v| if is_mixed { mix(&at_mode(v)) } else { at_mode(v) }).collect();
        for k in 0..FEATURES {
            state.features.push(&mixed.iter().map(|at_mode| at_mode[k]).collect::<Vec<_>>());
            let id = state.new_id();
            state.feature_ids.push(id);
            state.weight_means.push(0.5);
            state.weight_precisions.push(1.0);
        }
        let entries = |row: usize| {
            let weights = if is_mixed { mix(&true_weights(row)) } else { true_weights(row) };
            let used = weights.into_iter().enumerate().filter(|(_, weight)| *weight != 0.0);
            used.map(|(feature, weight)| Entry { feature, weight }).collect()
        };
        state.loadings = Loadings::from_rows((0..ROWS).map(entries).collect(), FEATURES);
        state.noise_variance = noise_variance;
        (model, state)
    }

    fn updated(model: &Model<f64>, state: &mut State<f64>, sweep: u64, phase: Phase) -> Info {
        let turn = Turn { streams: Streams { seed: 1, chain: 1, sweep }, phase };
        update(model, state, &mut Projections::default(), &turn)
    }

    fn cosine(a: &[f64], b: &[f64]) -> f64 {
        let product = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(x, y)| x * y).sum() };
        product(a, b) / (product(a, a) * product(b, b)).sqrt()
    }

    #[test]
    fn mixtures_of_strong_features_come_apart() {
        let (model, mut state) = model_and_state(true, 0.01);
        assert!(state.loadings.n_active() > 3 * ROWS, "rows use mixtures by the dozen");
        assert_eq!(updated(&model, &mut state, 2, Phase::BurnIn).accepted, 1);
        for truth in (0..FEATURES).map(true_feature) {
            let likeness = |k: usize| cosine(&state.features.feature(k), &truth).abs();
            assert!((0..state.n_features()).any(|k| likeness(k) > 0.9999));
        }
        let n_uses = |row: usize| true_weights(row).iter().filter(|weight| **weight != 0.0).count();
        assert_eq!(state.loadings.n_active(), (0..ROWS).map(n_uses).sum::<usize>());
        // What is explained stays what it was, and nothing is left to do.
        for row in 0..ROWS {
            let explained = |v: usize| -> f64 {
                let parts = state.loadings.row(row).iter();
                parts.map(|entry| entry.weight * state.features.feature(entry.feature)[v]).sum()
            };
            assert!((explained(7) - model.data.row(row)[7]).abs() < 1e-3, "row {row}");
        }
        assert_eq!(updated(&model, &mut state, 4, Phase::BurnIn), Info { proposed: 1, ..Info::default() });
    }

    #[test]
    fn features_that_are_apart_and_weak_signals_are_left_alone() {
        for (is_mixed, noise_variance) in [(false, 0.01), (true, 5.0)] {
            let (model, mut state) = model_and_state(is_mixed, noise_variance);
            let before = state.clone();
            let info = updated(&model, &mut state, 2, Phase::BurnIn);
            assert_eq!((info, &state), (Info { proposed: 1, ..Info::default() }, &before));
        }
    }

    #[test]
    fn it_acts_in_some_sweeps_of_burn_in() {
        for (sweep, phase) in [(1, Phase::BurnIn), (3, Phase::BurnIn), (2, Phase::Settling), (2, Phase::Sampling)] {
            let (model, mut state) = model_and_state(true, 0.01);
            assert_eq!(updated(&model, &mut state, sweep, phase), Info::default());
        }
        let sweeps: Vec<u64> = (0..=72).filter(|sweep| acts_in(*sweep)).collect();
        assert_eq!(sweeps[..16], (1..=16).map(|half| 2 * half).collect::<Vec<_>>());
        assert_eq!(sweeps[16..], [36, 40, 44, 48, 52, 56, 60, 64, 72]);
        // The rounds of a coarse sweep but the first.
        assert!((1..=20).all(|sweep| !acts_in((1 << 44) + sweep) && !acts_in((2 << 44) + sweep)));
    }

    #[test]
    fn few_rows_say_nothing() {
        let (model, mut state) = model_and_state(true, 0.01);
        let loadings = std::mem::replace(&mut state.loadings, Loadings::empty(0));
        state.loadings = Loadings::from_rows(loadings.rows()[..20].to_vec(), FEATURES);
        assert_eq!(updated(&model, &mut state, 2, Phase::BurnIn), Info::default());
    }
}
