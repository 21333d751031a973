//! Levels of runs and rows: how strong their noise is once it is filtered.

use super::rows::{factors_of_rows, obstacle, pair_factor};
use super::{Filter, Recipe, Sample};
use crate::data::preprocess::MeansOf;
use crate::data::{Observations, Preprocessing};
use crate::error::Result;
use crate::numeric::workers::share;
use statrs::function::erf::erfc;

/// Of differences with missing cells, which take long to filter, at most so many a run are looked at for its level.
const MOST_FILLED: usize = 100;
/// And so many for levels of rows; nothing is known of others.
const MOST_FILLED_BY_ROW: usize = 1000;

/// How strong the noise is.
pub struct Levels {
    /// In every run.
    pub of_runs: Vec<f64>,
    /// In every row, over its run's; empty where rows of a run are alike.
    pub row_factors: Vec<f64>,
    /// In all runs together.
    pub level: f64,
}

impl Levels {
    /// In a row.
    fn of(&self, run: usize, row: usize) -> f64 {
        self.row_factors.get(row).map_or(self.of_runs[run], |factor| self.of_runs[run] * factor)
    }
}

/// The level of every run and of all together: the root of the clipped variance of its filtered differences, each over the
/// factors of its rows, and what the reference says is noise of that. Runs without any have the level of all. Rows of a series
/// may have factors.
pub fn levels_of(sample: &Sample, n_runs: usize, filter: &Filter, recipe: &Recipe) -> Levels {
    let n = sample.n_differences();
    let n_there_are = sample.n_rows().saturating_sub(n_runs);
    let is_series = filter.reference().findings.is_series;
    let by_row = recipe.row_levels && obstacle(is_series, sample.n_columns(), n_there_are, recipe).is_none();
    let most = if by_row { MOST_FILLED_BY_ROW } else { MOST_FILLED };
    let has_holes = (0..n).any(|at| sample.difference(at).any(|x| x.is_nan()));
    let stride = if has_holes { n.div_ceil(most * n_runs).max(1) } else { 1 };
    let mut white = white_differences(sample, filter, stride, by_row);
    let row_factors = if by_row { factors_of_rows(&white, sample, recipe) } else { Vec::new() };
    if !row_factors.is_empty() {
        for (at, white) in white.iter_mut().enumerate() {
            let factor = pair_factor(&row_factors, sample.later_row(at));
            white.iter_mut().for_each(|x| *x = (f64::from(*x) / factor) as f32);
        }
    }
    let level = |run: Option<usize>| {
        let of_run =
            white.iter().enumerate().step_by(stride).filter(|(at, _)| run.is_none_or(|run| sample.run(*at) == run));
        let values = of_run.flat_map(|(_, row)| row.iter().filter(|x| !x.is_nan()).map(|&x| f64::from(x)));
        clipped_variance(values, recipe.clip_sites, recipe.clip_rounds).filter(|v| *v > 0.0).map(f64::sqrt)
    };
    let noise = filter.reference().of_differences;
    let all = level(None).unwrap_or(1.0);
    let of_runs = (0..n_runs).map(|run| noise * level(Some(run)).unwrap_or(all)).collect();
    Levels { of_runs, row_factors, level: noise * all }
}

/// Every so many differences, and all without missing cells if they are wanted, filtered; NaN where a cell is missing, empty where
/// all are.
fn white_differences(sample: &Sample, filter: &Filter, stride: usize, with_all_whole: bool) -> Vec<Vec<f32>> {
    let scales = &filter.reference().site_scales;
    let mut white: Vec<Vec<f32>> = vec![Vec::new(); sample.n_differences()];
    share(white.iter_mut().enumerate(), Vec::new, |scratch, (at, white)| {
        let raw = || sample.difference(at);
        let is_wanted = at.is_multiple_of(stride) || with_all_whole && !raw().any(|x| x.is_nan());
        if !is_wanted || raw().all(|x| x.is_nan()) {
            return;
        }
        let mut row: Vec<f64> = raw().zip(scales).map(|(x, scale)| x / scale).collect();
        filter.fill_in_noise(&mut row, scratch);
        filter.whiten(&mut row, scratch);
        *white = row.iter().zip(raw()).map(|(&x, raw)| if raw.is_nan() { f32::NAN } else { x as f32 }).collect();
    });
    white
}

/// What new rows are measured by: only where rows of the fit differed in noise do theirs.
fn recipe_of_new_rows(filter: &Filter, recipe: &Recipe) -> Recipe {
    let row_levels = recipe.row_levels && !filter.reference().row_factors.is_empty();
    Recipe { row_levels, ..recipe.clone() }
}

/// The levels of new rows: those of their run, and their own, where it has enough rows.
pub fn levels_of_new_rows<'a>(
    filter: &Filter,
    observations: &Observations,
    preprocessing: &'a Preprocessing,
    recipe: &Recipe,
    means: impl Fn(usize) -> MeansOf<'a>,
) -> Result<Vec<f64>> {
    let n_runs = observations.n_runs();
    let has_many = |run: usize| observations.run_rows(run).len() >= recipe.own_level_rows;
    let mut levels = vec![filter.reference().level; observations.n_rows()];
    if (0..n_runs).any(has_many) {
        let sample = Sample::of(observations, preprocessing, means)?;
        let own = levels_of(&sample, n_runs, filter, &recipe_of_new_rows(filter, recipe));
        for run in (0..n_runs).filter(|&run| has_many(run)) {
            observations.run_rows(run).for_each(|row| levels[row] = own.of(run, row));
        }
    }
    Ok(levels)
}

/// The levels of prepared rows that follow each other, where there are enough of them; else that of the reference.
pub fn levels_of_rows<'a>(
    filter: &Filter,
    rows: impl ExactSizeIterator<Item = &'a [f64]>,
    recipe: &Recipe,
) -> Vec<f64> {
    let n_rows = rows.len();
    if n_rows < recipe.own_level_rows {
        return vec![filter.reference().level; n_rows];
    }
    let mut sample = Sample::new(filter.reference().site_scales.len(), std::iter::once(0..n_rows));
    rows.for_each(|row| sample.push(0, row));
    sample.finish();
    let own = levels_of(&sample, 1, filter, &recipe_of_new_rows(filter, recipe));
    (0..n_rows).map(|row| own.of(0, row)).collect()
}

/// What clipping at `clip` standard deviations leaves of the variance of a Gaussian.
fn left_by_clipping(clip: f64) -> f64 {
    let tail = 0.5 * erfc(clip / std::f64::consts::SQRT_2);
    let density = (-0.5 * clip * clip).exp() / (2.0 * std::f64::consts::PI).sqrt();
    1.0 - 2.0 * tail - 2.0 * clip * density + 2.0 * clip * clip * tail
}

/// The variance of values about 0 that are clipped at so many standard deviations, again and again, as if they were Gaussian.
pub fn clipped_variance(values: impl Iterator<Item = f64> + Clone, clip: f64, rounds: u32) -> Option<f64> {
    let mean = |most: f64| {
        let (sum, n) = values.clone().fold((0.0, 0usize), |(sum, n), x| (sum + (x * x).min(most), n + 1));
        (n > 0).then(|| sum / n as f64)
    };
    let (mut variance, mut of_gaussian) = (mean(f64::INFINITY)?, 1.0);
    for _ in 0..rounds {
        variance = mean(clip * clip * variance)?;
        of_gaussian = left_by_clipping(clip * f64::sqrt(of_gaussian));
    }
    Some(variance / of_gaussian)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Streams};

    fn normal(stream: &mut impl rand::Rng) -> f64 {
        rand_distr::Distribution::sample(&rand_distr::StandardNormal, stream)
    }

    #[test]
    fn clipping_is_undone_for_a_gaussian() {
        let mut stream = Streams::once(3).stream(Purpose::Simulation, 0, 0);
        let mut values: Vec<f64> = (0..40_000).map(|_| 2.0 * normal(&mut stream)).collect();
        let clean = clipped_variance(values.iter().copied(), 3.0, 4).unwrap();
        assert!((clean / 4.0 - 1.0).abs() < 0.03, "{clean}");
        values.iter_mut().step_by(200).for_each(|x| *x = 500.0);
        let dirty = clipped_variance(values.iter().copied(), 3.0, 4).unwrap();
        assert!((dirty / 4.0 - 1.0).abs() < 0.5, "{dirty}");
        assert_eq!(clipped_variance(std::iter::empty(), 3.0, 4), None);
    }

    /// Missing cells take long to fill in.
    #[test]
    fn of_differences_with_missing_cells_few_are_looked_at() {
        let structure = std::sync::Arc::new(crate::structure::expression::build(Some("path(64)"), None).unwrap());
        let (mask, recipe) = (crate::data::Mask::full(64), Recipe { row_levels: true, ..Recipe::default() });
        let mut stream = Streams::once(5).stream(Purpose::Simulation, 0, 0);
        let mut sample = Sample::new(64, std::iter::once(0..40));
        for row in 0..40 {
            let mut values: Vec<f64> = (0..64).map(|_| row as f64 + normal(&mut stream)).collect();
            if row >= 20 {
                values[3] = f64::NAN;
            }
            sample.push(0, &values);
        }
        sample.finish();
        let (structure, recipe, mask) = (&structure, &recipe, &mask);
        let subject = super::super::Subject { sample: &sample, n_runs: 1, structure, mask, recipe, mean_square: 5.0 };
        let super::super::Measured::Reference(reference) = super::super::measure(&subject) else { panic!("no noise") };
        let filter = Filter::new(*reference, structure.clone(), mask.clone());
        for with_all_whole in [true, false] {
            let white = white_differences(&sample, &filter, 4, with_all_whole);
            for (at, white) in white.iter().enumerate() {
                let is_known = at % 4 == 0 || with_all_whole && at < 19;
                assert_eq!(white.len(), if is_known { 64 } else { 0 }, "{at}");
            }
        }
    }

    /// Runs with noise three times as strong, some of whose cells are missing, have three times the level.
    #[test]
    fn levels_are_those_of_the_runs() {
        let structure = std::sync::Arc::new(crate::structure::expression::build(Some("path(60)"), None).unwrap());
        let mask = crate::data::Mask::full(60);
        let mut stream = Streams::once(9).stream(Purpose::Simulation, 0, 0);
        let mut sample = Sample::new(60, [0..150, 150..300, 300..302].into_iter());
        for row in 0..302 {
            let (run, level) = if row < 150 {
                (0, 1.0)
            } else if row < 300 {
                (1, 3.0)
            } else {
                (2, 1.0)
            };
            let mut values: Vec<f64> = (0..60).map(|_| level * normal(&mut stream)).collect();
            if row % 7 == 0 {
                values[row % 60] = f64::NAN;
            }
            sample.push(run, &values);
        }
        sample.finish();
        let (recipe, mean_square) = (Recipe::default(), 5.0);
        let (structure, recipe, mask) = (&structure, &recipe, &mask);
        let subject = super::super::Subject { sample: &sample, n_runs: 3, structure, mask, recipe, mean_square };
        let super::super::Measured::Reference(reference) = super::super::measure(&subject) else { panic!("no noise") };
        let ratio = reference.run_levels[1] / reference.run_levels[0];
        assert!((ratio / 3.0 - 1.0).abs() < 0.05, "{ratio}");
        assert!((reference.run_levels[2] / reference.run_levels[0] - 1.0).abs() < 0.4, "{:?}", reference.run_levels);
    }
}
