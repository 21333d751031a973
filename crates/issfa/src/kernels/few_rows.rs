//! Features that few rows use: a row joins or leaves, the feature itself integrated out \[M19\].
//!
//! A feature that two or three rows share has learnt their noise. Given the feature, a row that leaves loses what it has
//! learnt there, and hardly ever does; given the rows alone, it costs nothing.

use super::unique_features::ln_evidence;
use super::{Info, Phase, Turn, metropolis};
use crate::model::{Model, State, ibp, simulate};
use crate::numeric::lanes::{Tileful, filled_up};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream};
use crate::spectral::{
    Domain, FeatureSpectra, Projections, SpectralData, TILE, Window, residuals_at_columns, sum_over_tiles,
};
use pulp::{Simd, WithSimd};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::sync::Arc;

/// Features that more rows use are left alone.
pub const MOST_ROWS: usize = 8;

/// Proposals for each feature in a sweep. Where cells were not observed every row that is looked at takes a transform.
const PROPOSALS: usize = 8;
const PROPOSALS_AT_CELLS: usize = 2;

/// A row that uses a feature, by its place among those that are looked at, and its weight.
#[derive(Clone, Copy, Debug)]
struct Use {
    place: usize,
    weight: f64,
}

/// Proposes to every feature that few rows use, in random order, that a row joins or leaves. Not while a start is looked for,
/// when there are many of them.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let mut info = Info::default();
    let is_small = |feature: &usize| state.loadings.counts()[*feature] <= MOST_ROWS;
    let mut order: Vec<usize> = (0..state.n_features()).filter(is_small).collect();
    if order.is_empty() || turn.phase == Phase::BurnIn {
        return info;
    }
    order.shuffle(&mut turn.streams.stream(Purpose::FewRows, 0, 0));
    let precisions = model.spectrum.precisions(&state.theta());
    let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
    let mut images = match &model.domain {
        Domain::Modes => None,
        Domain::Cells(window) => Some(Images::new(model, window, state, projections)),
    };
    for (number, feature) in order.into_iter().enumerate() {
        let step = Step { turn, feature, part: number as u32 + 1 };
        let mut looked_at = LookedAt::new(model, state, images.as_ref(), &step);
        let own = looked_at.walk(model, state, &variances, &step);
        (info.proposed, info.accepted) = (info.proposed + own.proposed, info.accepted + own.accepted);
        if own.accepted > 0 {
            looked_at.put(state, &precisions, &step);
            images.iter_mut().for_each(|images| images.replace(state, feature));
        }
    }
    if info.accepted > 0 {
        projections.features_changed();
        images.into_iter().for_each(|images| projections.keep_columns(images.columns));
    }
    info
}

/// `ln` of what the prior of the activations and the choice of rows say for one more row, where `n` of all use a feature.
pub fn ln_joining(n: usize, n_rows: usize, ibp_repulsion: f64) -> f64 {
    let prior = ibp::ln_column_weight(n + 1, n_rows, ibp_repulsion) - ibp::ln_column_weight(n, n_rows, ibp_repulsion);
    // One of all rows may join, and one of those that use it leaves.
    prior + (n_rows as f64 / (n + 1) as f64).ln()
}

/// What a feature gains over noise at the modes of one tile, integrated out: rows with these weights and residuals use it.
#[inline(always)]
pub fn ln_gain<'a>(uses: impl Iterator<Item = (f64, &'a [f64])>, variances: &Tileful, noise_variance: f64) -> f64 {
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
fn weighted_sum<'a>(uses: impl Iterator<Item = (f64, &'a [f64])>) -> (Tileful, f64) {
    let (mut sum, mut energy) = ([0.0; TILE], 0.0);
    for (weight, residual) in uses {
        energy += weight * weight;
        sum.iter_mut().zip(residual).for_each(|(sum, r)| *sum += weight * r);
    }
    (sum, energy)
}

/// One feature's turn, with streams of its own.
struct Step<'a> {
    turn: &'a Turn,
    feature: usize,
    part: u32,
}

impl Step<'_> {
    fn stream(&self, purpose: Purpose, index: u64) -> Stream {
        self.turn.streams.stream(purpose, self.part, index)
    }
}

/// The rows that use a feature and those that may, with what the other features leave of them.
struct LookedAt {
    rows: Vec<usize>,
    uses: Vec<Use>,
    /// Which of the rows may join, proposal by proposal.
    joining: Vec<usize>,
    /// For each tile that is here: rows x width.
    residuals: Vec<Vec<f64>>,
}

impl LookedAt {
    fn new<R: Real>(model: &Model<R>, state: &State<R>, images: Option<&Images<R>>, step: &Step) -> LookedAt {
        let (mut rows, mut uses) = (Vec::new(), Vec::new());
        for (row, entries) in state.loadings.rows().iter().enumerate() {
            if let Ok(at) = entries.binary_search_by_key(&step.feature, |entry| entry.feature) {
                uses.push(Use { place: rows.len(), weight: entries[at].weight });
                rows.push(row);
            }
        }
        let mut stream = step.stream(Purpose::FewRows, 0);
        let n_proposals = if images.is_some() { PROPOSALS_AT_CELLS } else { PROPOSALS };
        let mut joining = Vec::with_capacity(n_proposals);
        for _ in 0..n_proposals {
            let row = stream.random_range(0..state.loadings.n_rows());
            let place = rows.iter().position(|known| *known == row).unwrap_or(rows.len());
            if place == rows.len() {
                rows.push(row);
            }
            joining.push(place);
        }
        let completed = images.map(|images| images.complete(model, state, &rows, step));
        let residuals = residuals(model, state, step.feature, &rows, completed.as_ref());
        LookedAt { rows, uses, joining, residuals }
    }

    /// All proposals, one after the other; whether any was accepted.
    fn walk<R: Real>(&mut self, model: &Model<R>, state: &State<R>, variances: &[f64], step: &Step) -> Info {
        let (n_rows, beta) = (state.loadings.n_rows(), state.ibp_repulsion);
        let (mean, sd) = (state.weight_means[step.feature], state.weight_precisions[step.feature].sqrt().recip());
        let mut stream = step.stream(Purpose::FewRows, 1);
        let (mut info, mut known) = (Info::default(), None);
        for place in std::mem::take(&mut self.joining) {
            let n = self.uses.len();
            let (joins, leaving) = (stream.random::<bool>(), stream.random_range(0..n));
            let weight = mean + sd * simulate::normal(&mut stream);
            let is_used = self.uses.iter().any(|other| other.place == place);
            if joins && (is_used || n == MOST_ROWS) || !joins && n == 1 {
                continue;
            }
            let mut proposed = self.uses.clone();
            let ln_prior = if joins {
                proposed.push(Use { place, weight });
                ln_joining(n, n_rows, beta)
            } else {
                proposed.remove(leaving);
                -ln_joining(n - 1, n_rows, beta)
            };
            let before = known.unwrap_or_else(|| self.gain(model, state, &self.uses, variances));
            let after = self.gain(model, state, &proposed, variances);
            known = Some(before);
            info.proposed += 1;
            if metropolis::accept(ln_prior + after - before, &mut stream) {
                info.accepted += 1;
                (self.uses, known) = (proposed, Some(after));
            }
        }
        info
    }

    /// What the feature gains over noise with these uses.
    fn gain<R: Real>(&self, model: &Model<R>, state: &State<R>, uses: &[Use], variances: &[f64]) -> f64 {
        let (tiles, arch, noise_variance) = (state.features.tiles(), pulp::Arch::new(), state.noise_variance);
        let first = tiles.owned().start;
        let sums = sum_over_tiles(tiles, 1, model.comm.as_ref(), |tile, modes, slots| {
            let residuals = &self.residuals[tile - first];
            slots[0] = arch.dispatch(GainAt { uses, residuals, variances: &variances[modes], noise_variance });
        });
        sums[0]
    }

    /// Draws the feature given the rows that use it, and gives them their weights.
    fn put<R: Real>(&self, state: &mut State<R>, precisions: &[f64], step: &Step) {
        let (tiles, feature, noise) = (state.features.tiles(), step.feature, state.noise_variance);
        let places = state.features.tiles_mut().zip(&self.residuals);
        share(
            places,
            || (),
            |_, ((tile, values), residuals)| {
                let modes = tiles.modes(tile);
                let width = modes.len();
                let mut stream = step.stream(Purpose::FewRowsFeature, tile as u64);
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

/// Weights and residuals of the rows that use a feature, at one tile.
#[inline(always)]
fn uses_at<'a>(uses: &'a [Use], residuals: &'a [f64], width: usize) -> impl Iterator<Item = (f64, &'a [f64])> {
    uses.iter().map(move |known| (known.weight, &residuals[known.place * width..][..width]))
}

/// The gain's share of one tile.
struct GainAt<'a> {
    uses: &'a [Use],
    residuals: &'a [f64],
    variances: &'a [f64],
    noise_variance: f64,
}

impl WithSimd for GainAt<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        // Modes that are not there have no variance and no residual, and add nothing.
        let uses = uses_at(self.uses, self.residuals, self.variances.len());
        ln_gain(uses, &filled_up(self.variances, 0.0), self.noise_variance)
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
) -> Vec<Vec<f64>> {
    let tiles = state.features.tiles();
    let mut residuals: Vec<(usize, Vec<f64>)> = tiles.owned().map(|tile| (tile, Vec::new())).collect();
    let fill = |_: &mut (), (tile, residuals): &mut (usize, Vec<f64>)| {
        let (features, width) = (state.features.tile(*tile), tiles.width(*tile));
        for (place, &row) in rows.iter().enumerate() {
            let values = completed.map_or_else(|| model.data.tile_row(*tile, row), |rows| rows.tile_row(*tile, place));
            let start = residuals.len();
            residuals.extend(values.iter().map(|y| y.to_f64()));
            for entry in state.loadings.row(row) {
                // Others are taken out of data, the one is put back into residuals.
                let factor = match (entry.feature == feature, completed.is_some()) {
                    (false, false) => -entry.weight,
                    (true, true) => entry.weight,
                    _ => continue,
                };
                let spectrum = &features[entry.feature * width..(entry.feature + 1) * width];
                residuals[start..].iter_mut().zip(spectrum).for_each(|(r, s)| *r += factor * s.to_f64());
            }
        }
    };
    share(residuals.iter_mut(), || (), fill);
    residuals.into_iter().map(|(_, values)| values).collect()
}

/// The features at the columns of a window.
struct Images<'a, R> {
    window: &'a Window,
    columns: Arc<FeatureSpectra<R>>,
}

impl<R: Real> Images<'_, R> {
    fn new<'a>(model: &Model<R>, window: &'a Window, state: &State<R>, projections: &Projections<R>) -> Images<'a, R> {
        let known = projections.columns();
        let columns = known.unwrap_or_else(|| Arc::new(window.at_columns(&state.features, model.comm.as_ref())));
        Images { window, columns }
    }

    /// The residuals of some rows with what was not observed drawn given the state.
    fn complete(&self, model: &Model<R>, state: &State<R>, rows: &[usize], step: &Step) -> SpectralData<R> {
        let places: Vec<usize> = (0..state.n_features()).collect();
        let seen = residuals_at_columns(&model.pass(&state.loadings), rows, &self.columns, &places);
        let stream_of = |row: usize| step.stream(Purpose::FewRowsMissing, row as u64);
        self.window.complete_residuals(rows, &seen, state.noise_variance, stream_of)
    }

    /// Follows a feature that was drawn anew.
    fn replace(&mut self, state: &State<R>, feature: usize) {
        let image = self.window.one_at_columns(state.features.stored(feature), &mut Vec::new());
        Arc::make_mut(&mut self.columns).set(feature, &image);
    }
}
