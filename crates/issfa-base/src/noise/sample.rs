//! Differences of rows that follow each other, kept as the rows go by.

use crate::data::preprocess::MeansOf;
use crate::data::{Observations, Preprocessing};
use crate::error::Result;
use std::ops::Range;

/// The most bytes that kept differences take.
const MOST_BYTES: usize = 512 << 20;
/// The most rows that are kept beside the differences.
const MOST_ROWS: usize = 256;

/// Pairs of rows that follow each other, evenly thinned where there are many; some of the rows as they are; and how much rows
/// vary.
pub struct Sample {
    n_columns: usize,
    stride: usize,
    row_stride: usize,
    /// Rows less the first one of their run, so that large means take no digits; in the end less the run's mean.
    kept: Vec<f32>,
    /// The run of each kept row.
    kept_runs: Vec<usize>,
    /// The places of kept rows that follow the one before.
    pairs: Vec<usize>,
    /// Some rows as they are.
    rows: Vec<f32>,
    row_runs: Vec<usize>,
    run: usize,
    n_in_run: usize,
    /// Pairs of rows that went by.
    n_pairs: usize,
    last_kept: usize,
    n_seen: usize,
    spread: Spread,
}

/// Sums over the rows of a run about its first one.
#[derive(Default)]
struct Spread {
    first: Vec<f64>,
    n: Vec<f64>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    /// Of the runs that have ended: squares about their means, and degrees of freedom.
    within: Vec<f64>,
    freedom: Vec<f64>,
}

impl Spread {
    fn new(n_columns: usize) -> Spread {
        let zeros = || vec![0.0; n_columns];
        let first = vec![f64::NAN; n_columns];
        Spread { first, n: zeros(), sums: zeros(), squares: zeros(), within: zeros(), freedom: zeros() }
    }

    fn add(&mut self, row: &[f64]) {
        for (at, &x) in row.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
            if self.first[at].is_nan() {
                self.first[at] = x;
            }
            let from_first = x - self.first[at];
            self.n[at] += 1.0;
            self.sums[at] += from_first;
            self.squares[at] += from_first * from_first;
        }
    }

    /// The first value of each column in the run; NaN where there was none yet.
    fn first_row(&self) -> &[f64] {
        &self.first
    }

    fn end_run(&mut self) {
        for at in (0..self.n.len()).filter(|&at| self.n[at] > 0.0) {
            self.within[at] += (self.squares[at] - self.sums[at] * self.sums[at] / self.n[at]).max(0.0);
            self.freedom[at] += self.n[at] - 1.0;
        }
        for values in [&mut self.n, &mut self.sums, &mut self.squares] {
            values.fill(0.0);
        }
        self.first.fill(f64::NAN);
    }
}

/// The differences that are kept at most.
fn room(n_columns: usize) -> usize {
    (MOST_BYTES / (4 * n_columns)).max(32)
}

impl Sample {
    /// Nothing yet; `runs` are the rows that each run will have.
    pub fn new(n_columns: usize, runs: impl Iterator<Item = Range<usize>>) -> Sample {
        let (mut n_rows, mut n_differences) = (0, 0);
        for rows in runs {
            n_rows += rows.len();
            n_differences += rows.len().saturating_sub(1);
        }
        let room = room(n_columns);
        let room_for_rows = (room / 2).min(MOST_ROWS);
        Sample {
            n_columns,
            stride: n_differences.div_ceil(room).max(1),
            row_stride: n_rows.div_ceil(room_for_rows).max(1),
            kept: Vec::new(),
            kept_runs: Vec::new(),
            pairs: Vec::new(),
            rows: Vec::new(),
            row_runs: Vec::new(),
            run: usize::MAX,
            n_in_run: 0,
            n_pairs: 0,
            last_kept: usize::MAX,
            n_seen: 0,
            spread: Spread::new(n_columns),
        }
    }

    /// Nothing yet, of rows that are still to come.
    pub fn to_be(observations: &Observations) -> Sample {
        let runs = (0..observations.n_runs()).map(|run| observations.run_rows(run));
        Sample::new(observations.n_columns(), runs)
    }

    /// Of all rows, prepared by the means of their runs.
    pub fn of<'a>(
        observations: &Observations,
        preprocessing: &'a Preprocessing,
        means: impl Fn(usize) -> MeansOf<'a>,
    ) -> Result<Sample> {
        let mut sample = Sample::to_be(observations);
        let covariates = observations.covariates();
        observations.for_each_chunk(&mut |run, first_row, values| {
            for (at, row) in values.chunks_exact_mut(observations.n_columns()).enumerate() {
                preprocessing.apply(row, covariates.row(first_row + at), means(run));
                sample.push(run, row);
            }
            Ok(())
        })?;
        sample.finish();
        Ok(sample)
    }

    /// Whether every one of so many differences is kept.
    pub fn keeps_all(n_columns: usize, n_differences: usize) -> bool {
        n_differences <= room(n_columns)
    }

    /// The bytes that a sample of rows with so many columns may take.
    pub fn n_bytes(n_rows: usize, n_columns: usize) -> u64 {
        let all = 4 * (n_rows * n_columns) as u64;
        all.min(MOST_BYTES as u64) + all.min((MOST_BYTES / 2) as u64).min((4 * MOST_ROWS * n_columns) as u64)
    }

    /// The next row, prepared; NaN is a cell that was not observed.
    pub fn push(&mut self, run: usize, row: &[f64]) {
        if run != self.run {
            self.spread.end_run();
            (self.run, self.n_in_run) = (run, 0);
        }
        self.spread.add(row);
        // Of many rows, pairs are kept.
        if self.n_in_run.is_multiple_of(2) {
            self.n_pairs += 1;
        }
        if (self.n_pairs - 1).is_multiple_of(self.stride) {
            let first = self.spread.first_row();
            let from_first = |(x, first): (&f64, &f64)| if first.is_nan() { *x } else { x - first };
            self.kept.extend(row.iter().zip(first).map(|pair| from_first(pair) as f32));
            let follows = self.n_in_run > 0 && self.last_kept + 1 == self.n_seen;
            if follows {
                self.pairs.push(self.kept_runs.len());
            }
            self.kept_runs.push(run);
            self.last_kept = self.n_seen;
        }
        if self.n_seen.is_multiple_of(self.row_stride) {
            self.rows.extend(row.iter().map(|&x| x as f32));
            self.row_runs.push(run);
        }
        self.n_in_run += 1;
        self.n_seen += 1;
    }

    /// Says that all rows have gone by.
    pub fn finish(&mut self) {
        self.spread.end_run();
        self.center_kept();
    }

    /// How many differences were kept.
    pub fn n_differences(&self) -> usize {
        self.pairs.len()
    }

    /// How many rows went by.
    pub fn n_rows(&self) -> usize {
        self.n_seen
    }

    /// The later row of a difference: its place among the kept ones.
    pub fn later_row(&self, difference: usize) -> usize {
        self.pairs[difference]
    }

    /// How many columns a row has.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// How far apart the rows are that [`Sample::rows`] has.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// The run of a difference.
    pub fn run(&self, difference: usize) -> usize {
        self.kept_runs[self.pairs[difference]]
    }

    /// A difference over the root of two; NaN where a cell of either row is missing.
    pub fn difference(&self, at: usize) -> impl ExactSizeIterator<Item = f64> + '_ {
        let (row, n) = (self.pairs[at], self.n_columns);
        let (before, here) = self.kept[(row - 1) * n..(row + 1) * n].split_at(n);
        here.iter().zip(before).map(|(x, y)| (f64::from(*x) - f64::from(*y)) * std::f64::consts::FRAC_1_SQRT_2)
    }

    /// The differences of a column, those that are not NaN.
    pub fn of_column(&self, column: usize) -> impl Iterator<Item = f64> + Clone + '_ {
        let value = move |row: usize| f64::from(self.kept[row * self.n_columns + column]);
        let difference = move |&row: &usize| (value(row) - value(row - 1)) * std::f64::consts::FRAC_1_SQRT_2;
        self.pairs.iter().map(difference).filter(|x| !x.is_nan())
    }

    /// Differences that share no row.
    pub fn differences_apart(&self) -> Vec<usize> {
        let mut apart: Vec<usize> = Vec::new();
        for (at, row) in self.pairs.iter().enumerate() {
            if apart.last().is_none_or(|&last| self.pairs[last] + 1 < *row) {
                apart.push(at);
            }
        }
        apart
    }

    /// How many rows were kept.
    pub fn n_kept(&self) -> usize {
        self.kept_runs.len()
    }

    /// A kept row less the mean of its run's.
    pub fn kept(&self, at: usize) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.kept[at * self.n_columns..(at + 1) * self.n_columns].iter().map(|&x| f64::from(x))
    }

    /// The share of the kept rows' variance that their runs' means leave.
    pub fn share_of_freedom(&self) -> f64 {
        let n_runs = self.kept_runs.chunk_by(|a, b| a == b).count();
        (self.n_kept() as f64 - n_runs as f64).max(1.0) / self.n_kept().max(1) as f64
    }

    /// Takes the means of the kept rows of every run off them.
    fn center_kept(&mut self) {
        let n = self.n_columns;
        let mut rest = &mut self.kept[..];
        for run in self.kept_runs.chunk_by(|a, b| a == b) {
            let (rows, others) = rest.split_at_mut(run.len() * n);
            rest = others;
            let (mut sums, mut counts) = (vec![0.0; n], vec![0.0; n]);
            for row in rows.chunks_exact(n) {
                for (column, x) in row.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
                    sums[column] += f64::from(*x);
                    counts[column] += 1.0;
                }
            }
            sums.iter_mut().zip(&counts).for_each(|(sum, n)| *sum /= f64::max(*n, 1.0));
            for row in rows.chunks_exact_mut(n) {
                row.iter_mut().zip(&sums).for_each(|(x, mean)| *x = (f64::from(*x) - mean) as f32);
            }
        }
    }

    /// Some rows as they are, each with its run.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (usize, &[f32])> {
        self.rows.chunks_exact(self.n_columns).enumerate().map(|(at, row)| (self.row_runs[at], row))
    }

    /// The variance of rows about the means of their runs, column by column.
    pub fn row_variances(&self) -> Vec<f64> {
        let Spread { within, freedom, .. } = &self.spread;
        within.iter().zip(freedom).map(|(squares, n)| squares / n.max(1.0)).collect()
    }
}
