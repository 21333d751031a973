//! Features that few rows use: other rows join or leave them, the feature itself integrated out \[M20\].
//!
//! A feature that a handful of rows share has learnt their noise. Given the feature, a row that leaves loses what was learnt
//! there, and hardly ever does; given the rows alone, it costs little. Which rows may join is not left to chance: of those that
//! use the feature about half stay, and the rows that look most like what they have in common are asked, users or not.

mod likeness;

use super::images::Images;
use super::unique_features::{ln_evidence, offers};
use super::{Info, Phase, Turn};
use crate::comm::{Comm, part_of};
use crate::model::{Model, NormalPrior, State, ibp, simulate};
use crate::numeric::lanes::{Tileful, filled_up};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream};
use crate::spectral::{Projections, SpectralData, TILE, Tiles, sum_over_tiles};
use pulp::{Simd, WithSimd};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::ops::Range;

/// Features that more rows use are left alone.
pub const MOST_ROWS: usize = 24;

/// One of so many rows is asked about each feature, but at least these.
const ONE_OF: usize = 16;
const FEWEST_ASKED: usize = 4;

/// More rows than these are not asked about a feature; fewer still where cells that were not observed are drawn first.
pub const MOST_ASKED: usize = 32;
const MOST_ASKED_UNOBSERVED: usize = 8;

/// Weights that a row may choose from.
pub const SHOWN: usize = 4;

/// About this share of the operations of a sweep's product with the features goes into them, unless that is too few features.
const SHARE: f64 = 0.15;
const FEWEST: f64 = 1.0;

/// What a row that is asked costs a mode, in operations: whole, and where cells that were not observed are drawn first.
const COST: f64 = 100.0;
const COST_UNOBSERVED: f64 = 500.0;

/// The share of whole rows that likeness is judged by, about.
pub const SHARE_LOOKED_AT: f64 = 0.25;

/// A row that uses a feature, by its place among those that are looked at, and its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Use {
    place: usize,
    weight: f64,
}

/// A feature, the rows that use it and their weights, those of them that stay with it, and those that are asked: wherever they
/// are.
struct Choice {
    feature: usize,
    users: Vec<(usize, f64)>,
    staying: Vec<(usize, f64)>,
    asked: Vec<usize>,
}

/// Asks rows about features that few rows use. Not while a start is looked for, when there are many of them.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let mut info = Info::default();
    if turn.phase == Phase::BurnIn {
        return info;
    }
    let mut choices = choose(model, state, turn);
    if choices.is_empty() {
        return info;
    }
    let precisions = model.spectrum.precisions(&state.theta());
    let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
    let mut images = Images::of(model, state, projections);
    likeness::ask_the_like(model, state, images.as_ref(), &precisions, &mut choices);
    // Where features are stored tells of who uses them: taken in that order, some states would be favoured.
    choices.shuffle(&mut turn.streams.stream(Purpose::FewRows, 1, 0));
    for choice in choices {
        let mut looked_at = LookedAt::new(model, state, images.as_ref(), &choice, turn);
        let changed = looked_at.ask(model, state, &variances, &choice, turn);
        info.proposed += choice.asked.len() as u32;
        info.accepted += changed;
        if changed > 0 {
            looked_at.put(state, &precisions, choice.feature, turn);
            images.iter_mut().for_each(|images| images.replace(state, choice.feature));
        }
    }
    if info.accepted > 0 {
        projections.features_changed();
        images.iter().for_each(|images| projections.keep_columns(images.columns().clone()));
    }
    info
}

/// How many rows are asked about a feature at most.
pub fn asked(n_rows: usize, is_whole: bool) -> usize {
    (n_rows / ONE_OF).clamp(FEWEST_ASKED, if is_whole { MOST_ASKED } else { MOST_ASKED_UNOBSERVED })
}

/// The share of the time that goes into finding out who looks like them, of whole rows; the rest goes into asking.
pub fn share_of_looking(n_rows: usize) -> f64 {
    let looking = SHARE_LOOKED_AT * 2.0 * n_rows as f64;
    looking / (looking + COST * asked(n_rows, true) as f64)
}

/// The share of all features that so few rows use, about, by the prior: a feature that m of T rows use is as frequent as 1/m.
pub fn share_of_features(n_rows: usize) -> f64 {
    let harmonic = |n: usize| (1..=n).map(|m| 1.0 / m as f64).sum::<f64>();
    harmonic(MOST_ROWS.min(n_rows)) / harmonic(n_rows)
}

/// How many features are looked at in a sweep at most, on average. Where cells were not observed the product is over a part of the
/// sites, but rows that are asked take all modes.
pub fn expected(n_rows: usize, n_features: usize, part_seen: Option<f64>) -> f64 {
    let product = 2.0 * n_rows as f64 * part_seen.unwrap_or(1.0);
    let (looking, asking) = if part_seen.is_none() { (SHARE_LOOKED_AT, COST) } else { (1.0, COST_UNOBSERVED) };
    let cost = looking * product + asking * asked(n_rows, part_seen.is_none()) as f64;
    (SHARE * product * n_features as f64 / cost).max(FEWEST)
}

/// Some of the features that few rows use, with those that stay: each with a probability of a half. Which features they are
/// depends on nothing that may change here; nobody is asked yet.
fn choose<R: Real>(model: &Model<R>, state: &State<R>, turn: &Turn) -> Vec<Choice> {
    let counts = state.loadings.counts();
    let few: Vec<usize> = (0..counts.len()).filter(|feature| counts[*feature] <= MOST_ROWS).collect();
    let expected = expected(state.loadings.n_rows(), counts.len(), offers::part_seen(model));
    let share = expected / few.len() as f64;
    let mut stream = turn.streams.stream(Purpose::FewRows, 0, 0);
    let mut place = vec![None; counts.len()];
    let mut choices = Vec::new();
    for feature in few.into_iter().filter(|_| stream.random::<f64>() < share) {
        place[feature] = Some(choices.len());
        choices.push(Choice { feature, users: Vec::new(), staying: Vec::new(), asked: Vec::new() });
    }
    let here = state
        .loadings
        .entries()
        .filter_map(|(row, entry)| place[entry.feature].map(|place| [row as f64, place as f64, entry.weight]));
    for &[row, place, weight] in model.data.sharing().from_lines(here.flatten().collect()).as_chunks::<3>().0 {
        let (choice, user) = (&mut choices[place as usize], (row as usize, weight));
        choice.users.push(user);
        choice.staying.extend(stream.random::<bool>().then_some(user));
    }
    choices.retain(|choice| !choice.staying.is_empty());
    choices
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

/// The rows that are asked, then others that use the feature, with what the other features leave of them.
struct LookedAt<R> {
    rows: Vec<usize>,
    uses: Vec<Use>,
    /// For each tile that is here: rows x width.
    residuals: Vec<Vec<R>>,
}

impl<R: Real> LookedAt<R> {
    fn new(model: &Model<R>, state: &State<R>, images: Option<&Images<R>>, choice: &Choice, turn: &Turn) -> Self {
        let (mut rows, mut uses) = (choice.asked.clone(), Vec::new());
        for &(row, weight) in &choice.users {
            let place = rows.iter().position(|known| *known == row).unwrap_or(rows.len());
            if place == rows.len() {
                rows.push(row);
            }
            uses.push(Use { place, weight });
        }
        let id = state.feature_ids[choice.feature];
        let stream_of = |row: usize| {
            let index = id * state.loadings.n_rows() as u64 + row as u64;
            turn.streams.stream(Purpose::FewRowsMissing, 0, index)
        };
        let completed = images.map(|images| images.complete(model, state, &rows, stream_of));
        let residuals = residuals(model, state, choice.feature, &rows, completed.as_ref());
        LookedAt { rows, uses, residuals }
    }

    /// Asks one row after the other; how many changed.
    fn ask(&mut self, model: &Model<R>, state: &State<R>, variances: &[f64], choice: &Choice, turn: &Turn) -> u32 {
        let (n_rows, feature) = (state.loadings.n_rows(), choice.feature);
        let prior = NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] };
        let mut stream = turn.streams.stream(Purpose::FewRows, 2, state.feature_ids[feature]);
        let mut shown: Vec<[f64; SHOWN]> = Vec::with_capacity(choice.asked.len());
        shown.resize_with(choice.asked.len(), || [(); SHOWN].map(|()| weight(model, prior, &mut stream)));
        for known in &self.uses {
            shown.get_mut(known.place).into_iter().for_each(|shown| shown[0] = known.weight);
        }
        let (mut changed, mut first) = (0, 0);
        // All that are left are judged at once, and again after a change, which is rare.
        while first < shown.len() {
            let gains = self.gains(model, state, first..shown.len(), &shown, variances);
            let judged = first;
            first = shown.len();
            for (place, gains) in (judged..).zip(gains.chunks(SHOWN)) {
                let now = self.uses.iter().any(|known| known.place == place);
                let n_others = self.uses.len() - usize::from(now);
                let ln_prior = ln_joining(n_others, n_rows, state.ibp_repulsion) - (SHOWN as f64).ln();
                let taken = offers::draw(ln_prior, gains, &mut stream).filter(|_| n_others < MOST_ROWS);
                if taken != now.then_some(0) {
                    self.uses.retain(|known| known.place != place);
                    self.uses.extend(taken.map(|at| Use { place, weight: shown[place][at] }));
                    (changed, first) = (changed + 1, place + 1);
                    break;
                }
            }
        }
        changed
    }

    /// What the feature gains by each of these rows, for each of the weights that the row may have.
    fn gains(
        &self,
        model: &Model<R>,
        state: &State<R>,
        asked: Range<usize>,
        shown: &[[f64; SHOWN]],
        variances: &[f64],
    ) -> Vec<f64> {
        let (tiles, arch, noise_variance) = (state.features.tiles(), pulp::Arch::new(), state.noise_variance);
        let (first, uses, sharing) = (tiles.owned().start, &self.uses[..], model.data.sharing());
        let gains = |asked: Range<usize>, tiles: Tiles, comm: &dyn Comm| {
            sum_over_tiles(tiles, asked.len() * SHOWN, comm, |tile, modes, slots| {
                let (residuals, variances) = (&self.residuals[tile - first][..], &variances[modes]);
                let asked = asked.clone();
                arch.dispatch(GainsAt { uses, asked, shown, residuals, variances, noise_variance, slots });
            })
        };
        if !sharing.layout().cuts_rows() {
            return gains(asked, tiles, model.comm.as_ref());
        }
        // Every rank of a column has all residuals at its tiles: each line judges some of the rows.
        let [n_lines, _] = sharing.layout().shape();
        let of_line = sharing.layout().line().map_or(0..0, |line| part_of(asked.len(), line, n_lines));
        let of_line = asked.start + of_line.start..asked.start + of_line.end;
        sharing.from_lines(gains(of_line, tiles.each_once(), sharing.same_rows()))
    }

    /// Draws the feature given the rows that use it, and gives them their weights.
    fn put(&self, state: &mut State<R>, precisions: &[f64], feature: usize, turn: &Turn) {
        let (tiles, noise, id) = (state.features.tiles(), state.noise_variance, state.feature_ids[feature]);
        let draw = |_: &mut (), ((tile, values), residuals): ((usize, &mut [R]), &Vec<R>)| {
            let modes = tiles.modes(tile);
            let width = modes.len();
            let index = id * tiles.len() as u64 + tile as u64;
            let mut stream = turn.streams.stream(Purpose::FewRowsFeature, 0, index);
            let (sum, energy) = weighted_sum(uses_at(self.uses.iter().copied(), residuals, width));
            for (v, h) in precisions[modes].iter().enumerate() {
                let precision = h + energy / noise;
                let value = sum[v] / noise / precision + simulate::normal(&mut stream) / precision.sqrt();
                values[feature * width + v] = R::from_f64(value);
            }
        };
        share(state.features.tiles_mut().zip(&self.residuals), || (), draw);
        let users: Vec<(usize, f64)> = self.uses.iter().map(|known| (self.rows[known.place], known.weight)).collect();
        state.loadings.set_users(feature, &self.rows, &users);
    }
}

/// A weight from the prior.
fn weight<R>(model: &Model<R>, prior: NormalPrior, stream: &mut Stream) -> f64 {
    let local = simulate::local_precision(model.priors.weight_tails, stream);
    prior.mean + simulate::normal(stream) / (prior.precision * local).sqrt()
}

/// Weights and residuals of the rows that use a feature, at one tile.
#[inline(always)]
fn uses_at<R>(uses: impl Iterator<Item = Use>, residuals: &[R], width: usize) -> impl Iterator<Item = (f64, &[R])> {
    uses.map(move |known| (known.weight, &residuals[known.place * width..][..width]))
}

/// The gains' shares of one tile.
struct GainsAt<'a, R> {
    uses: &'a [Use],
    asked: Range<usize>,
    shown: &'a [[f64; SHOWN]],
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
        let GainsAt { uses, asked, residuals, noise_variance, .. } = self;
        let (width, variances) = (self.variances.len(), filled_up(self.variances, 0.0));
        for (place, slots) in asked.zip(self.slots.chunks_exact_mut(SHOWN)) {
            let others = || uses.iter().copied().filter(|known| known.place != place);
            let without = ln_gain(uses_at(others(), residuals, width), &variances, noise_variance);
            for (&weight, slot) in self.shown[place].iter().zip(slots) {
                let uses = uses_at(others().chain([Use { place, weight }]), residuals, width);
                *slot = ln_gain(uses, &variances, noise_variance) - without;
            }
        }
    }
}

/// What all features but one leave of some rows, for each tile that is here: rows x width. `completed` has what all of them
/// leave, where not all cells were observed.
fn residuals<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    feature: usize,
    rows: &[usize],
    completed: Option<&SpectralData<R>>,
) -> Vec<Vec<R>> {
    let (tiles, here) = (state.features.tiles(), model.data.rows_here());
    let mut residuals: Vec<(usize, Vec<R>)> = tiles.owned().map(|tile| (tile, Vec::new())).collect();
    let fill = |residual: &mut Vec<f64>, (tile, residuals): &mut (usize, Vec<R>)| {
        let (features, width) = (state.features.tile(*tile), tiles.width(*tile));
        if completed.is_none() {
            model.data.look_ahead(*tile, rows);
        }
        for (place, &row) in rows.iter().enumerate().filter(|(_, row)| here.contains(row)) {
            let values = completed.map_or_else(|| model.data.tile_row(*tile, row), |rows| rows.tile_row(*tile, place));
            residual.clear();
            residual.extend(values.iter().map(|y| y.to_f64()));
            for entry in state.loadings.row(row) {
                // Others are taken out of data, the one is put back into residuals.
                let factor = match (entry.feature == feature, completed.is_some()) {
                    (false, false) => -entry.weight,
                    (true, true) => entry.weight,
                    _ => continue,
                };
                let spectrum = &features[entry.feature * width..(entry.feature + 1) * width];
                residual.iter_mut().zip(spectrum).for_each(|(r, s)| *r += factor * s.to_f64());
            }
            residuals.extend(residual.iter().map(|r| R::from_f64(*r)));
        }
    };
    share(residuals.iter_mut(), Vec::new, fill);
    let residuals = residuals.into_iter().map(|(_, values)| values).collect();
    if model.data.layout().cuts_rows() { of_column(model, rows, residuals) } else { residuals }
}

/// The residuals of all of these rows at the tiles that are here, from what each rank of the column has of them.
fn of_column<R: Real>(model: &Model<R>, rows: &[usize], own: Vec<Vec<R>>) -> Vec<Vec<R>> {
    let (layout, column) = (model.data.layout(), model.data.sharing().same_tiles());
    let [_, n_columns] = layout.shape();
    let mut of_tiles: Vec<Vec<R>> =
        layout.tiles().owned().map(|tile| vec![R::zero(); rows.len() * layout.tiles().width(tile)]).collect();
    for (line, bytes) in column.all_gather(&R::write(&own.concat())).iter().enumerate() {
        let (values, theirs) = (R::read(bytes), layout.of(line * n_columns).rows_here());
        let places = || (0..rows.len()).filter(|place| theirs.contains(&rows[*place]));
        let mut values = &values[..];
        for (tile, to) in layout.tiles().owned().zip(&mut of_tiles) {
            let width = layout.tiles().width(tile);
            for place in places() {
                let (row, later) = values.split_at(width);
                to[place * width..(place + 1) * width].copy_from_slice(row);
                values = later;
            }
        }
    }
    of_tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_counted_by_what_they_cost() {
        let (few, many) = (expected(3000, 30, None), expected(3000, 60, None));
        assert!((many - 2.0 * few).abs() < 1e-9 && few > FEWEST, "{few}, {many}");
        assert_eq!(expected(20, 5, None), FEWEST, "a small problem is looked at too");
        assert!(expected(3000, 60, Some(0.5)) < many);
        assert_eq!([4, 160, 3000].map(|n_rows| asked(n_rows, true)), [4, 10, 32]);
        assert_eq!(asked(3000, false), 8);
    }
}
