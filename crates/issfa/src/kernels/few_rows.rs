//! Features that few rows use: other rows join or leave them, the feature itself integrated out \[M20\].
//!
//! A feature that a handful of rows share has learnt their noise. Given the feature, a row that leaves loses what was learnt
//! there, and hardly ever does; given the rows alone, it costs little. Which rows may join is not left to chance: half of those
//! that use the feature stay, and the rows that look most like what they have in common are asked, whether they use it or not.

use super::unique_features::{ln_evidence, offers};
use super::{Info, Phase, Turn};
use crate::model::{Loadings, Model, NormalPrior, State, ibp, simulate};
use crate::numeric::lanes::{Tileful, filled_up};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream};
use crate::spectral::{FeatureSpectra, Projections, TILE, sum_over_tiles};
use pulp::{Simd, WithSimd};
use rand::RngExt;
use rand::seq::SliceRandom;

/// Features that more rows use are left alone.
pub const MOST_ROWS: usize = 12;

/// Rows that are asked about each feature.
const ASKED: usize = 32;

/// Weights that a row may choose from.
const SHOWN: usize = 4;

/// A row that uses a feature, by its place among those that are looked at, and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Use {
    place: usize,
    weight: f64,
}

/// Asks rows about features that few rows use. Not while a start is looked for, when there are many of them.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let mut info = Info::default();
    if turn.phase == Phase::BurnIn || !model.domain.is_whole() {
        return info;
    }
    let precisions = model.spectrum.precisions(&state.theta());
    let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
    let mut choices = choose(model, state, &precisions, turn);
    // Where features are stored tells of who uses them: an order by it would favour some states.
    choices.shuffle(&mut turn.streams.stream(Purpose::FewRows, 2, 0));
    for choice in choices {
        let mut looked_at = LookedAt::new(model, state, &choice);
        let changed = looked_at.ask(model, state, &variances, &choice, turn);
        info.proposed += choice.asked.len() as u32;
        info.accepted += changed;
        if changed > 0 {
            looked_at.put(state, &precisions, choice.feature, turn);
        }
    }
    if info.accepted > 0 {
        projections.features_changed();
    }
    info
}

/// A feature, the rows that stay with it, and those that are asked.
struct Choice {
    feature: usize,
    staying: Vec<(usize, f64)>,
    asked: Vec<usize>,
}

/// For features that few rows use: each of these stays or is free with a probability of a half; rows are asked in the order of
/// their likeness to those that stay. All of it depends on nothing that may change: not on the features that few rows use,
/// nor on who else uses them.
fn choose<R: Real>(model: &Model<R>, state: &State<R>, precisions: &[f64], turn: &Turn) -> Vec<Choice> {
    let counts = state.loadings.counts();
    let mut choices: Vec<Choice> = Vec::new();
    let mut place = vec![None; counts.len()];
    for feature in (0..counts.len()).filter(|feature| counts[*feature] <= MOST_ROWS) {
        place[feature] = Some(choices.len());
        choices.push(Choice { feature, staying: Vec::new(), asked: Vec::new() });
    }
    let mut stream = turn.streams.stream(Purpose::FewRows, 0, 0);
    for (row, entries) in state.loadings.rows().iter().enumerate() {
        for entry in entries {
            if let Some(place) = place[entry.feature].filter(|_| stream.random::<bool>()) {
                choices[place].staying.push((row, entry.weight));
            }
        }
    }
    choices.retain(|choice| !choice.staying.is_empty());
    if choices.is_empty() {
        return choices;
    }
    let likenesses = likenesses(model, state, precisions, &choices);
    for (at, choice) in choices.iter_mut().enumerate() {
        let stays = |row: &usize| choice.staying.iter().any(|(other, _)| other == row);
        let mut rows: Vec<usize> = (0..state.loadings.n_rows()).filter(|row| !stays(row)).collect();
        rows.sort_by(|a, b| likenesses[*b][at].total_cmp(&likenesses[*a][at]).then(a.cmp(b)));
        rows.truncate(ASKED);
        choice.asked = rows;
    }
    choices
}

/// For every row and choice: the inner product of what features that many rows use leave of the row with the mean of the
/// feature given the rows that stay, without its sign.
fn likenesses<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    precisions: &[f64],
    choices: &[Choice],
) -> Vec<Vec<f64>> {
    let counts = state.loadings.counts();
    let (tiles, noise) = (state.features.tiles(), state.noise_variance);
    let mut means = FeatureSpectra::none(tiles);
    means.grow(choices.len());
    let fill = |sum: &mut Vec<f64>, (tile, places): (usize, &mut [R])| {
        let (features, modes) = (state.features.tile(tile), tiles.modes(tile));
        for (choice, mean) in choices.iter().zip(places.chunks_exact_mut(modes.len())) {
            sum.clear();
            sum.resize(modes.len(), 0.0);
            for &(row, weight) in &choice.staying {
                let values = model.data.tile_row(tile, row);
                sum.iter_mut().zip(values).for_each(|(sum, y)| *sum += weight * y.to_f64());
                for entry in state.loadings.row(row).iter().filter(|entry| counts[entry.feature] > MOST_ROWS) {
                    let spectrum = &features[entry.feature * modes.len()..][..modes.len()];
                    let factor = weight * entry.weight;
                    sum.iter_mut().zip(spectrum).for_each(|(sum, s)| *sum -= factor * s.to_f64());
                }
            }
            let energy: f64 = choice.staying.iter().map(|(_, weight)| weight * weight).sum();
            let shrunk = sum.iter().zip(&precisions[modes.clone()]).map(|(sum, h)| sum / (noise * h + energy));
            mean.iter_mut().zip(shrunk).for_each(|(to, mean)| *to = R::from_f64(mean));
        }
    };
    share(means.tiles_mut(), Vec::new, fill);
    let n = choices.len();
    let with_features = sum_over_tiles(tiles, counts.len() * n, model.comm.as_ref(), |tile, modes, slots| {
        let (features, means) = (state.features.tile(tile), means.tile(tile));
        for (feature, slots) in features.chunks_exact(modes.len()).zip(slots.chunks_exact_mut(n)) {
            for (mean, slot) in means.chunks_exact(modes.len()).zip(slots) {
                *slot = feature.iter().zip(mean).map(|(a, b)| a.to_f64() * b.to_f64()).sum();
            }
        }
    });
    let nothing = Loadings::from_rows(vec![Vec::new(); state.loadings.n_rows()], n);
    let with_data = model.pass(&nothing).project(&mut means);
    let of_row = |(row, entries): (usize, &Vec<_>)| {
        let mut likeness = with_data.row(row).to_vec();
        for entry in entries.iter().filter(|entry: &&crate::model::Entry| counts[entry.feature] > MOST_ROWS) {
            let explained = &with_features[entry.feature * n..][..n];
            likeness.iter_mut().zip(explained).for_each(|(x, e)| *x -= entry.weight * e);
        }
        likeness.iter_mut().for_each(|x| *x = x.abs());
        likeness
    };
    state.loadings.rows().iter().enumerate().map(of_row).collect()
}

/// `ln` of what the prior of the activations and the choice of those that stay say for one more row, where `n` use a feature.
pub fn ln_joining(n: usize, n_rows: usize, ibp_repulsion: f64) -> f64 {
    let prior = ibp::ln_column_weight(n + 1, n_rows, ibp_repulsion) - ibp::ln_column_weight(n, n_rows, ibp_repulsion);
    // One more that was not among those that stay, which it would have been half of the times.
    prior - std::f64::consts::LN_2
}

/// What a feature gains over noise at the modes of one tile, integrated out: rows with these weights and residuals use it.
#[inline(always)]
pub fn ln_gain<'a, R: Real>(
    uses: impl Iterator<Item = (f64, &'a [R])>,
    variances: &Tileful,
    noise_variance: f64,
) -> f64 {
    let (mut sum, energy) = weighted_sum(uses);
    if energy == 0.0 {
        return 0.0;
    }
    // Rows with weights w tell as much as one with the weight |w|, whose residual is this.
    let scale = 1.0 / energy.sqrt();
    sum.iter_mut().for_each(|x| *x *= scale);
    ln_evidence(&sum, energy, variances, noise_variance)
}

/// `sum_t w_t r_t` at the modes of one tile, and `sum_t w_t^2`.
#[inline(always)]
fn weighted_sum<'a, R: Real>(uses: impl Iterator<Item = (f64, &'a [R])>) -> (Tileful, f64) {
    let (mut sum, mut energy) = ([0.0; TILE], 0.0);
    for (weight, residual) in uses {
        energy += weight * weight;
        sum.iter_mut().zip(residual).for_each(|(sum, r)| *sum += weight * r.to_f64());
    }
    (sum, energy)
}

/// The rows that use a feature and those that may, with what the other features leave of them.
struct LookedAt<R> {
    rows: Vec<usize>,
    uses: Vec<Use>,
    /// For each tile that is here: rows x width.
    residuals: Vec<Vec<R>>,
}

impl<R: Real> LookedAt<R> {
    fn new(model: &Model<R>, state: &State<R>, choice: &Choice) -> LookedAt<R> {
        // Those that are asked come first.
        let mut rows = choice.asked.clone();
        let mut uses = Vec::new();
        for (row, entries) in state.loadings.rows().iter().enumerate() {
            if let Ok(at) = entries.binary_search_by_key(&choice.feature, |entry| entry.feature) {
                let place = rows.iter().position(|known| *known == row).unwrap_or(rows.len());
                if place == rows.len() {
                    rows.push(row);
                }
                uses.push(Use { place, weight: entries[at].weight });
            }
        }
        let residuals = residuals(model, state, choice.feature, &rows);
        LookedAt { rows, uses, residuals }
    }

    /// Asks one row after the other; how many changed.
    fn ask(&mut self, model: &Model<R>, state: &State<R>, variances: &[f64], choice: &Choice, turn: &Turn) -> u32 {
        let (n_rows, beta) = (state.loadings.n_rows(), state.ibp_repulsion);
        let feature = choice.feature;
        let prior = NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] };
        let mut stream = turn.streams.stream(Purpose::FewRows, 1, state.feature_ids[feature]);
        let mut changed = 0;
        for place in 0..choice.asked.len() {
            let mut shown = [(); SHOWN].map(|()| weight(model, prior, &mut stream));
            let now = self.uses.iter().position(|known| known.place == place);
            let others: Vec<Use> = self.uses.iter().copied().filter(|known| known.place != place).collect();
            if let Some(now) = now {
                shown[0] = self.uses[now].weight;
            } else if others.len() == MOST_ROWS {
                continue;
            }
            let gains = self.gains(model, state, &others, place, &shown, variances);
            let ln_prior = ln_joining(others.len(), n_rows, beta) - (SHOWN as f64).ln();
            let taken = offers::draw(ln_prior, &gains, &mut stream);
            if taken != now.map(|_| 0) {
                changed += 1;
                self.uses = others;
                self.uses.extend(taken.map(|at| Use { place, weight: shown[at] }));
            }
        }
        changed
    }

    /// What the feature gains if one more row uses it, for each of the weights that the row may have.
    fn gains(
        &self,
        model: &Model<R>,
        state: &State<R>,
        others: &[Use],
        place: usize,
        shown: &[f64; SHOWN],
        variances: &[f64],
    ) -> Vec<f64> {
        let (tiles, arch, noise_variance) = (state.features.tiles(), pulp::Arch::new(), state.noise_variance);
        let first = tiles.owned().start;
        sum_over_tiles(tiles, SHOWN, model.comm.as_ref(), |tile, modes, slots| {
            let (residuals, variances) = (&self.residuals[tile - first][..], &variances[modes]);
            arch.dispatch(GainsAt { others, place, shown, residuals, variances, noise_variance, slots });
        })
    }

    /// Draws the feature given the rows that use it, and gives them their weights.
    fn put(&self, state: &mut State<R>, precisions: &[f64], feature: usize, turn: &Turn) {
        let (tiles, noise, id) = (state.features.tiles(), state.noise_variance, state.feature_ids[feature]);
        let places = state.features.tiles_mut().zip(&self.residuals);
        share(
            places,
            || (),
            |_, ((tile, values), residuals)| {
                let modes = tiles.modes(tile);
                let width = modes.len();
                let index = id * tiles.len() as u64 + tile as u64;
                let mut stream = turn.streams.stream(Purpose::FewRowsFeature, 0, index);
                let (sum, energy) = weighted_sum(uses_at(&self.uses, residuals, width));
                for (v, h) in precisions[modes].iter().enumerate() {
                    let precision = h + energy / noise;
                    let value = sum[v] / noise / precision + simulate::normal(&mut stream) / precision.sqrt();
                    values[feature * width + v] = R::from_f64(value);
                }
            },
        );
        self.rows.iter().for_each(|&row| state.loadings.set(row, feature, None));
        self.uses.iter().for_each(|known| state.loadings.set(self.rows[known.place], feature, Some(known.weight)));
    }
}

/// A weight from the prior.
fn weight<R>(model: &Model<R>, prior: NormalPrior, stream: &mut Stream) -> f64 {
    let local = simulate::local_precision(model.priors.weight_tails, stream);
    prior.mean + simulate::normal(stream) / (prior.precision * local).sqrt()
}

/// Weights and residuals of the rows that use a feature, at one tile.
#[inline(always)]
fn uses_at<'a, R>(uses: &'a [Use], residuals: &'a [R], width: usize) -> impl Iterator<Item = (f64, &'a [R])> {
    uses.iter().map(move |known| (known.weight, &residuals[known.place * width..][..width]))
}

/// The gains' shares of one tile.
struct GainsAt<'a, R> {
    others: &'a [Use],
    place: usize,
    shown: &'a [f64; SHOWN],
    residuals: &'a [R],
    variances: &'a [f64],
    noise_variance: f64,
    slots: &'a mut [f64],
}

impl<R: Real> WithSimd for GainsAt<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Modes that are not there have no variance and no residual, and add nothing.
        let GainsAt { others, place, residuals, noise_variance, .. } = self;
        let (width, variances) = (self.variances.len(), filled_up(self.variances, 0.0));
        let without = ln_gain(uses_at(others, residuals, width), &variances, noise_variance);
        for (&weight, slot) in self.shown.iter().zip(self.slots) {
            let one = [Use { place, weight }];
            let uses = uses_at(others, residuals, width).chain(uses_at(&one, residuals, width));
            *slot = ln_gain(uses, &variances, noise_variance) - without;
        }
    }
}

/// What all features but one leave of some rows, for each tile that is here: rows x width.
fn residuals<R: Real>(model: &Model<R>, state: &State<R>, feature: usize, rows: &[usize]) -> Vec<Vec<R>> {
    let tiles = state.features.tiles();
    let mut residuals: Vec<(usize, Vec<R>)> = tiles.owned().map(|tile| (tile, Vec::new())).collect();
    let fill = |residual: &mut Vec<f64>, (tile, residuals): &mut (usize, Vec<R>)| {
        let (features, width) = (state.features.tile(*tile), tiles.width(*tile));
        for &row in rows {
            residual.clear();
            residual.extend(model.data.tile_row(*tile, row).iter().map(|y| y.to_f64()));
            for entry in state.loadings.row(row).iter().filter(|entry| entry.feature != feature) {
                let spectrum = &features[entry.feature * width..(entry.feature + 1) * width];
                residual.iter_mut().zip(spectrum).for_each(|(r, s)| *r -= entry.weight * s.to_f64());
            }
            residuals.extend(residual.iter().map(|r| R::from_f64(*r)));
        }
    };
    share(residuals.iter_mut(), Vec::new, fill);
    residuals.into_iter().map(|(_, values)| values).collect()
}
