//! Calibration: how often central 90% intervals of the posterior hold the truth.
//!
//! If the truth is exchangeable with n draws, it lies between the m-th smallest and the m-th largest of them with
//! probability 1 - 2 m / (n + 1): exactly 90% for n = 19, 39, 59, ... and m = (n + 1) / 20. No interval is ever formed; it
//! is enough to count the draws below the truth.

use super::truth::{FOUND, cosine};
use crate::chain::matching::dot;
use crate::compiled::Sampled;
use crate::data::preprocess::MeansOf;
use crate::error::Result;
use crate::model::simulate::normal;
use crate::model::{Entry, State};
use crate::new_rows::scatter::Scatter;
use crate::new_rows::{Effort, Known, RowMeans, all_of};
use crate::noise::levels_of_rows;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::run::draws::Draw;
use crate::spectral::FeatureSpectra;
use crate::summary::Fitted;
use std::ops::Range;

/// The most cells (rows x sites) that are looked at.
const MOST_CELLS: usize = 2_000_000;

/// Shares of numbers whose 90% interval holds the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Of unit-norm features at every site: those found and present in all draws.
    pub features: Option<f64>,
    /// Of noise-free training rows.
    pub training: Option<f64>,
    /// Of noise-free held-out rows.
    pub heldout: Option<f64>,
}

/// A simulation's truth under the mask, row-major, in the user's units.
pub struct Truth<'a> {
    /// By column of the mask.
    pub features: &'a [Vec<f32>],
    /// Rows x features.
    pub weights: &'a [f64],
    /// Noisy and noise-free held-out rows.
    pub heldout: (&'a [f32], &'a [f32]),
}

/// The number of draws to use and the rank of the interval's ends, if there are enough.
fn calibrated(n_draws: usize) -> Option<(usize, usize)> {
    let rank = (n_draws + 1) / 20;
    (rank > 0).then_some((20 * rank - 1, rank))
}

/// Draws below and not above a truth, for many numbers at once.
struct Counts {
    truth: Vec<f64>,
    below: Vec<u32>,
    not_above: Vec<u32>,
}

impl Counts {
    fn new(truth: Vec<f64>) -> Counts {
        let zeros = vec![0; truth.len()];
        Counts { below: zeros.clone(), not_above: zeros, truth }
    }

    fn add(&mut self, first: usize, draw: &[f64]) {
        for (at, x) in draw.iter().enumerate() {
            let truth = self.truth[first + at];
            self.below[first + at] += u32::from(*x < truth);
            self.not_above[first + at] += u32::from(*x <= truth);
        }
    }

    /// The share between the `rank`-th smallest and largest of `n` draws, ends included.
    fn share_inside(&self, n: usize, rank: usize) -> Option<f64> {
        let inside = |(below, not_above): (&u32, &u32)| *not_above as usize >= rank && *below as usize <= n - rank;
        let n_inside = self.below.iter().zip(&self.not_above).filter(|counts| inside(*counts)).count();
        (!self.truth.is_empty()).then(|| n_inside as f64 / self.truth.len() as f64)
    }
}

/// Compares the latest draws of a fit with the truth.
pub fn coverage<R: Sampled>(fitted: &Fitted, truth: &Truth) -> Result<Coverage> {
    let draws = fitted.draws()?;
    let Some((n, rank)) = calibrated(draws.len()) else { return Ok(Coverage::default()) };
    let latest = draws.len() - n..draws.len();
    let mut features = Matched::new::<R>(fitted, truth, latest.clone())?;
    let n_sites = fitted.mask.n_columns();
    let n_rows = |available: usize| (MOST_CELLS / n_sites).max(1).min(available);
    // Rows that were left out of the fit would have to be matched first.
    let n_true_rows = truth.weights.len() / truth.features.len().max(1);
    let n_fitted = draws.read::<R>(latest.start)?.state.loadings.n_rows();
    let n_training = if n_fitted == n_true_rows { n_rows(n_true_rows) } else { 0 };
    let mut training = Counts::new(clean_training_rows(fitted, truth, n_training));
    let n_heldout = n_rows(truth.heldout.0.len() / n_sites);
    let part = ..n_heldout * n_sites;
    let mut heldout = Counts::new(in_units(fitted, prepared(fitted, &truth.heldout.1[part], MeansOf::Training)));
    let mut noisy = prepared(fitted, &truth.heldout.0[part], MeansOf::Training);
    let levels = own_levels(fitted, &noisy);
    let noisy = fitted.load::<R>(&mut noisy, &levels);
    for (number, at) in latest.enumerate() {
        let Draw { state, feature_means } = draws.read::<R>(at)?;
        features.add(&state, fitted);
        let sites = fitted.images(&state.features);
        for row in 0..n_training {
            let level = fitted.row_level(row);
            training.add(row * n_sites, &explained(state.loadings.row(row), level, &sites, n_sites));
        }
        let streams = Streams { seed: fitted.settings().seed, chain: 0, sweep: number as u64 };
        let scatter = fitted.scatter(&state, None);
        let tails = fitted.settings().weight_tails();
        let known = Known { state: &state, tails, means: &feature_means, scatter: scatter.as_ref(), left_out: &[] };
        let (rows, _) = R::infer(&noisy, &known, Effort::ONE_DRAW, &streams, &all_of(&noisy));
        let signals = known.scatter.map(|scatter| fitted.images(&signals(&known, scatter, &rows, &streams)));
        for ((row, means), level) in rows.iter().enumerate().zip(&levels) {
            let cells = match &signals {
                None => explained(&means.entries(), *level, &sites, n_sites),
                Some(signals) => signals[row * n_sites..(row + 1) * n_sites].iter().map(|x| level * x).collect(),
            };
            heldout.add(row * n_sites, &cells);
        }
    }
    Ok(Coverage {
        features: features.counts.share_inside(n, rank),
        training: training.share_inside(n, rank),
        heldout: heldout.share_inside(n, rank),
    })
}

/// A draw of `w S` of every row given the row and its weights, features integrated out: at a mode its mean is
/// `w m + g (y - w m)` and its variance `g s2`, with `g = q / (s2 + q)`.
fn signals<R: Sampled>(
    known: &Known<R>,
    scatter: &Scatter<R>,
    rows: &[RowMeans],
    streams: &Streams,
) -> FeatureSpectra<R> {
    let mut signals = vec![Vec::new(); rows.len()];
    let noise = known.state.noise_variance;
    let work = |_: &mut (), (row, (means, signal)): (usize, (&RowMeans, &mut Vec<f64>))| {
        let mut stream = streams.stream(Purpose::NewRows, 2, row as u64);
        let entries = means.entries();
        let sd = |q: f64| (q * noise / (noise + q)).max(0.0).sqrt();
        let scattered = scatter.variance_of(&entries).into_iter().zip(&means.told);
        *signal = scattered.map(|(q, told)| told + sd(q) * normal(&mut stream)).collect();
        for entry in &entries {
            let feature = known.means.feature(entry.feature);
            signal.iter_mut().zip(feature).for_each(|(sum, x)| *sum += entry.weight * x);
        }
    };
    share(rows.iter().zip(&mut signals).enumerate(), || (), work);
    FeatureSpectra::from_vectors(known.means.tiles().n_modes, &signals)
}

/// Persistent features that found a true one and are present in every draw.
struct Matched {
    /// Place among the persistent ones.
    columns: Vec<usize>,
    counts: Counts,
}

impl Matched {
    fn new<R: Sampled>(fitted: &Fitted, truth: &Truth, latest: Range<usize>) -> Result<Matched> {
        let mut n_present = vec![0; fitted.found().features.means.len()];
        for at in latest.clone() {
            let state = fitted.draws()?.read::<R>(at)?.state;
            let places = fitted.places(&R::images(&state.features, &fitted.shown()));
            places.into_iter().flatten().for_each(|column| n_present[column] += 1);
        }
        let present: Vec<bool> = n_present.into_iter().map(|n| n == latest.len()).collect();
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for feature in truth.features {
            let cosines = fitted
                .found()
                .features
                .means
                .iter()
                .enumerate()
                .map(|(column, image)| (column, cosine(feature, image)));
            let best = cosines.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
            let Some((column, along)) = best.filter(|(column, along)| along.abs() >= FOUND && present[*column]) else {
                continue;
            };
            columns.push(column);
            values.extend(feature.iter().map(|&x| along.signum() * f64::from(x)));
        }
        Ok(Matched { columns, counts: Counts::new(values) })
    }

    fn add<R: Sampled>(&mut self, state: &State<R>, fitted: &Fitted) {
        let images = R::images(&state.features, &fitted.shown());
        let places = fitted.places(&images);
        let n_sites = fitted.mask.n_columns();
        for (at, &column) in self.columns.iter().enumerate() {
            let place = places.iter().position(|other| *other == Some(column)).expect("present in every draw");
            let sign = dot(&images[place].values, &fitted.found().features.means[column]).signum();
            let turned: Vec<f64> = images[place].values.iter().map(|&x| sign * f64::from(x)).collect();
            self.counts.add(at * n_sites, &turned);
        }
    }
}

/// Prepared rows in the user's units again, centred as they are.
fn in_units(fitted: &Fitted, mut rows: Vec<f64>) -> Vec<f64> {
    rows.chunks_exact_mut(fitted.mask.n_columns()).for_each(|row| fitted.preprocessing.to_units(row));
    rows
}

/// The levels of the noise in prepared rows that follow each other.
fn own_levels(fitted: &Fitted, rows: &[f64]) -> Vec<f64> {
    let rows = rows.chunks_exact(fitted.mask.n_columns());
    match &fitted.noise {
        None => vec![1.0; rows.len()],
        Some(filter) => levels_of_rows(filter, rows, &fitted.settings().noise_reference),
    }
}

/// Rows prepared as they are before they are filtered.
fn prepared(fitted: &Fitted, rows: &[f32], means: MeansOf) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().map(|&x| f64::from(x)).collect();
    for row in values.chunks_exact_mut(fitted.mask.n_columns()) {
        fitted.preprocessing.apply(row, &[], means);
    }
    values
}

fn clean_training_rows(fitted: &Fitted, truth: &Truth, n_rows: usize) -> Vec<f64> {
    let k = truth.features.len().max(1);
    let clean = |weights: &[f64]| {
        let mut row = vec![0.0f32; fitted.mask.n_columns()];
        for (weight, feature) in weights.iter().zip(truth.features).filter(|(weight, _)| **weight != 0.0) {
            row.iter_mut().zip(feature).for_each(|(x, s)| *x += *weight as f32 * s);
        }
        row
    };
    let rows: Vec<f32> = truth.weights.chunks_exact(k).take(n_rows).flat_map(clean).collect();
    in_units(fitted, prepared(fitted, &rows, MeansOf::Run(0)))
}

fn explained(entries: &[Entry], level: f64, features: &[f64], n_sites: usize) -> Vec<f64> {
    let mut row = vec![0.0; n_sites];
    for entry in entries {
        let feature = &features[entry.feature * n_sites..(entry.feature + 1) * n_sites];
        row.iter_mut().zip(feature).for_each(|(x, s)| *x += level * entry.weight * s);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchangeable_draws_cover_nine_times_in_ten() {
        let mut stream = Streams::once(5).stream(Purpose::Prior, 0, 0);
        for n_draws in [19, 20, 39, 45] {
            let (n, rank) = calibrated(n_draws).unwrap();
            assert!(n <= n_draws && n + 1 == 20 * rank);
            const N: usize = 40_000;
            let mut counts = Counts::new((0..N).map(|_| normal(&mut stream)).collect());
            for _ in 0..n {
                counts.add(0, &(0..N).map(|_| normal(&mut stream)).collect::<Vec<_>>());
            }
            let share = counts.share_inside(n, rank).unwrap();
            assert!((share - 0.9).abs() < 4.5 * (0.09 / N as f64).sqrt(), "{share} with {n}");
        }
        assert_eq!(calibrated(18), None);
    }

    #[test]
    fn draws_that_never_move_cover_only_themselves() {
        let mut counts = Counts::new(vec![0.0, 1.0]);
        (0..19).for_each(|_| counts.add(0, &[0.0, 0.0]));
        assert_eq!(counts.share_inside(19, 1), Some(0.5));
    }
}
