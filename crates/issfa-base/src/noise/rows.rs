//! Rows of a series that differ in noise: a factor for each, from the powers of the filtered differences it has part in.
//!
//! The difference between rows t and t + 1 has the variance `(v_t + v_(t+1))/2`, so that v is a deconvolution: what alternates
//! from row to row is in no difference, and the rest is known as well as so many sites tell. It is solved by least squares with
//! a prior, whose variance and memory are those of the powers, less what chance gives them.

use super::levels::clipped_variance;
use super::{Recipe, Sample};
use crate::numeric::workers::share;

/// Columns are cut into so many blocks, whose median is a difference's power: a signal in some of them does not matter.
const BLOCKS: usize = 16;
/// Of at least so many columns each, and no fewer blocks than these.
const LEAST_COLUMNS: usize = 16;
const FEWEST_BLOCKS: usize = 4;
/// A power may be beyond both its neighbours by so many standard deviations by chance: a row that is noisy makes two
/// differences strong, a signal that begins only one.
const BEYOND_NEIGHBOURS: f64 = 3.0;
/// The least variance of a row, in variances of its run.
const LEAST: f64 = 0.1;
/// The most that a row is taken to tell of the next.
const MOST_MEMORY: f64 = 0.99;

/// What keeps rows from levels of their own, however they differ.
pub fn obstacle(is_series: bool, n_columns: usize, n_differences: usize, recipe: &Recipe) -> Option<String> {
    let (enough_columns, enough) = (FEWEST_BLOCKS * LEAST_COLUMNS, recipe.own_level_rows);
    if !is_series {
        Some("rows that follow each other are not alike, so that their differences hold signal".into())
    } else if n_columns < enough_columns {
        Some(format!("{n_columns} sites tell too little of a row's noise, it takes {enough_columns}"))
    } else if n_differences < enough {
        Some(format!("it takes {enough} rows that follow another one, here are {n_differences}"))
    } else if !Sample::keeps_all(n_columns, n_differences) {
        Some("the rows are too large to be kept until all are known".into())
    } else {
        None
    }
}

/// The level of each row over that of its run; empty where rows are alike, but for chance, or too little is known of them.
pub fn factors_of_rows(white: &[Vec<f32>], sample: &Sample, recipe: &Recipe) -> Vec<f64> {
    let n_blocks = BLOCKS.min(sample.n_columns() / LEAST_COLUMNS);
    let (powers, chance) = powers_of(white, sample.n_columns(), n_blocks, recipe);
    let mut deviations = powers;
    for run in runs_of(sample) {
        let own = &mut deviations[run];
        cap(own, 1.0 + BEYOND_NEIGHBOURS * chance.sqrt());
        relate(own);
    }
    let spread = deviations.iter().map(|x| x * x).sum::<f64>() / deviations.len() as f64;
    // Not true of NaN either: nothing varies, nothing is known.
    let is_beyond_chance = spread > recipe.row_spread * chance;
    if !is_beyond_chance {
        return Vec::new();
    }
    // Covariances over one and two steps.
    let over = |steps: usize| {
        let pairs = runs_of(sample).into_iter().flat_map(|run| run.clone().skip(steps).map(move |at| (at - steps, at)));
        let (sum, n) = pairs.fold((0.0, 0), |(sum, n), (a, b)| (sum + deviations[a] * deviations[b], n + 1));
        sum / f64::max(f64::from(n), 1.0)
    };
    let prior = Prior::of(spread, [over(1), over(2)], chance);
    let mut factors = vec![1.0; sample.n_kept()];
    for run in runs_of(sample) {
        let first = sample.later_row(run.start) - 1;
        for (at, x) in prior.solve(&deviations[run]).into_iter().enumerate() {
            factors[first + at] = f64::sqrt((1.0 + x).max(LEAST));
        }
    }
    factors
}

/// What the difference between a row and the one before it is stronger by.
pub fn pair_factor(factors: &[f64], later_row: usize) -> f64 {
    (0.5 * (factors[later_row - 1].powi(2) + factors[later_row].powi(2))).sqrt()
}

/// The standard deviation of ln factors; nothing without any.
pub fn spread_of(factors: &[f64]) -> Option<f64> {
    let n = factors.len() as f64;
    let mean = factors.iter().map(|x| x.ln()).sum::<f64>() / n;
    (n > 0.0).then(|| (factors.iter().map(|x| (x.ln() - mean).powi(2)).sum::<f64>() / n).sqrt())
}

/// The differences of each run, which follow each other.
fn runs_of(sample: &Sample) -> Vec<std::ops::Range<usize>> {
    let places: Vec<usize> = (0..sample.n_differences()).collect();
    places.chunk_by(|&a, &b| sample.run(a) == sample.run(b)).map(|run| run[0]..run[run.len() - 1] + 1).collect()
}

/// The power of every difference (NaN where too little of it is known), and the variance that chance gives to one over its mean.
fn powers_of(white: &[Vec<f32>], n_columns: usize, n_blocks: usize, recipe: &Recipe) -> (Vec<f64>, f64) {
    let block = |at: usize| at * n_columns / n_blocks..(at + 1) * n_columns / n_blocks;
    let mut blocks: Vec<Vec<f64>> = vec![Vec::new(); white.len()];
    share(
        blocks.iter_mut().zip(white),
        || (),
        |(), (blocks, white)| {
            let variance = |at: usize| {
                let values = white.get(block(at)).into_iter().flatten().filter(|x| !x.is_nan()).map(|&x| f64::from(x));
                let is_enough = 2 * values.clone().count() >= block(at).len();
                clipped_variance(values, recipe.clip_rows, recipe.clip_rounds).filter(|v| is_enough && *v > 0.0)
            };
            let all: Option<Vec<f64>> = (0..n_blocks).map(variance).collect();
            *blocks = all.unwrap_or_default();
        },
    );
    // What blocks usually have of a difference's power.
    let known = || blocks.iter().filter(|blocks| !blocks.is_empty());
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let share_of = |at: usize| median(known().map(|blocks| blocks[at] / mean(blocks)).collect());
    let usual: Vec<f64> = (0..n_blocks).map(share_of).collect();
    let power = |blocks: &Vec<f64>| median(blocks.iter().zip(&usual).map(|(x, usual)| x / usual).collect());
    let powers: Vec<f64> = blocks.iter().map(power).collect();
    let mut squares = 0.0;
    for (blocks, power) in blocks.iter().zip(&powers).filter(|(blocks, _)| !blocks.is_empty()) {
        squares += blocks.iter().zip(&usual).map(|(x, usual)| (x / usual / power - 1.0).powi(2)).sum::<f64>();
    }
    let of_block = squares / (known().count() * (n_blocks - 1)) as f64;
    // A median varies by so much more than a mean.
    (powers, of_block / n_blocks as f64 * std::f64::consts::FRAC_PI_2)
}

/// The median; NaN of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { f64::NAN } else { 0.5 * (values[(n - 1) / 2] + values[n / 2]) }
}

/// Powers at most so many times as large as the larger neighbour.
fn cap(powers: &mut [f64], most: f64) {
    let as_they_were = powers.to_vec();
    for (at, power) in powers.iter_mut().enumerate() {
        let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| as_they_were.get(at));
        let largest = neighbours.copied().fold(f64::NAN, f64::max);
        if *power > most * largest {
            *power = most * largest;
        }
    }
}

/// Powers over their mean, less 1; 0 where nothing is known.
fn relate(powers: &mut [f64]) {
    let known = || powers.iter().filter(|x| !x.is_nan());
    let mean = known().sum::<f64>() / known().count() as f64;
    powers.iter_mut().for_each(|x| *x = if x.is_nan() || mean.is_nan() { 0.0 } else { *x / mean - 1.0 });
}

/// How rows of a run are taken to vary: by a first-order autoregression, beside which differences vary by chance.
struct Prior {
    /// The variance of rows.
    of_rows: f64,
    /// The correlation of rows that follow each other.
    memory: f64,
    /// The variance that chance gives to a difference.
    chance: f64,
}

impl Prior {
    /// By the variance of differences and their covariance over one and two steps.
    fn of(variance: f64, [beside, two_apart]: [f64; 2], chance: f64) -> Prior {
        // Differences that share a row share a quarter of their chance.
        let without_chance = beside - 0.25 * chance;
        let ratio = if without_chance > 0.0 { two_apart / without_chance } else { 0.0 };
        let memory = ratio.clamp(0.0, MOST_MEMORY);
        // What is slow has half as much chance again as if differences shared none.
        Prior { of_rows: 2.0 * (variance - chance) / (1.0 + memory), memory, chance: 1.5 * chance }
    }

    /// The means of rows given those of their differences.
    fn solve(&self, differences: &[f64]) -> Vec<f64> {
        let Prior { of_rows, memory, chance } = *self;
        let n = differences.len() + 1;
        let precision = 1.0 / (of_rows * (1.0 - memory * memory));
        let beside = 0.25 / chance - memory * precision;
        let (mut ratios, mut solution) = (vec![0.0; n], vec![0.0; n]);
        // Elimination along the band.
        for row in 0..n {
            let own = [row.checked_sub(1), Some(row)].into_iter().flatten().filter_map(|at| differences.get(at));
            let is_inside = f64::from(u8::from(row > 0 && row + 1 < n));
            let diagonal = precision * (1.0 + is_inside * memory * memory) + 0.25 * own.clone().count() as f64 / chance;
            let right = 0.5 * own.sum::<f64>() / chance;
            let (before, ratio) = if row > 0 { (solution[row - 1], ratios[row - 1]) } else { (0.0, 0.0) };
            let pivot = diagonal - beside * ratio;
            ratios[row] = beside / pivot;
            solution[row] = (right - beside * before) / pivot;
        }
        for row in (1..n).rev() {
            solution[row - 1] -= ratios[row - 1] * solution[row];
        }
        solution
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Filter, Measured, Reference, Subject, levels_of_rows, measure, remeasure};
    use super::*;
    use crate::data::Mask;
    use crate::numeric::bytes::Stored;
    use crate::numeric::linalg::{cholesky, solve_cholesky};
    use crate::rng::{Purpose, Streams};
    use crate::structure::{Structure, expression};
    use std::sync::Arc;

    const SIDE: usize = 24;

    fn normal(stream: &mut impl rand::Rng) -> f64 {
        rand_distr::Distribution::sample(&rand_distr::StandardNormal, stream)
    }

    fn structure() -> Arc<Structure> {
        Arc::new(expression::build(Some("path(24) x path(24)"), None).unwrap())
    }

    /// Rows of noise with levels `level(row)` about a slow signal, and `more(row, site)` on top.
    fn rows_with(n_rows: usize, level: impl Fn(usize) -> f64, more: impl Fn(usize, usize) -> f64) -> Vec<Vec<f64>> {
        let mut stream = Streams::once(17).stream(Purpose::Simulation, 0, 0);
        let slow = |row: usize, site: usize| 4.0 * (row as f64 / 25.0).sin() * (site as f64 / 60.0).cos();
        let mut row = |row: usize| {
            (0..SIDE * SIDE).map(|site| level(row) * normal(&mut stream) + slow(row, site) + more(row, site)).collect()
        };
        (0..n_rows).map(&mut row).collect()
    }

    fn reference_of(rows: &[Vec<f64>], runs: &[std::ops::Range<usize>], recipe: &Recipe) -> Reference {
        let mut sample = Sample::new(SIDE * SIDE, runs.iter().cloned());
        for (run, places) in runs.iter().enumerate() {
            places.clone().for_each(|row| sample.push(run, &rows[row]));
        }
        sample.finish();
        let (structure, mask) = (&structure(), &Mask::full(SIDE * SIDE));
        let subject = Subject { sample: &sample, n_runs: runs.len(), structure, mask, recipe, mean_square: 9.0 };
        let Measured::Reference(reference) = measure(&subject) else { panic!("no noise") };
        assert!(reference.findings.is_series, "{:?}", reference.findings);
        assert_eq!(remeasure(*reference.clone(), &subject), *reference, "measured again it is the same");
        *reference
    }

    fn by_row() -> Recipe {
        Recipe { row_levels: true, ..Recipe::default() }
    }

    /// Root mean square of ln of one over the other, over its means.
    fn error(found: &[f64], truth: impl Fn(usize) -> f64) -> f64 {
        let off: Vec<f64> = found.iter().enumerate().map(|(row, x)| (x / truth(row)).ln()).collect();
        spread_of(&off.iter().map(|x| x.exp()).collect::<Vec<f64>>()).unwrap()
    }

    #[test]
    fn levels_of_rows_are_found() {
        // Slow, and row by row with some that are much noisier.
        let slow = |row: usize| 1.0 + 0.2 * (row as f64 / 15.0).cos();
        let odd = |row: usize| if (row * 7919) % 23 < 2 { 1.6 } else { 1.0 };
        let runs = [0..150, 150..300];
        let reference = reference_of(&rows_with(300, slow, |_, _| 0.0), &runs, &by_row());
        // What chance gives to the standard deviation of one difference by all its sites is 0.03.
        let off = error(&reference.row_levels(runs.iter().cloned()), slow);
        assert!(off < 0.03, "{off}");
        assert!(reference.findings.in_words().contains("rows differ by ±"), "{}", reference.findings.in_words());
        let reference = reference_of(&rows_with(300, odd, |_, _| 0.0), &runs, &by_row());
        let found = reference.row_levels(runs.iter().cloned());
        let mean = |is_odd: bool| {
            let of: Vec<f64> = (0..300).filter(|&row| (odd(row) > 1.0) == is_odd).map(|row| found[row]).collect();
            of.iter().sum::<f64>() / of.len() as f64
        };
        // It shrinks, and what alternates is not seen.
        assert!((1.3..1.65).contains(&(mean(true) / mean(false))), "{} {}", mean(true), mean(false));
        let flat = error(&vec![1.0; 300], odd);
        assert!(error(&found, odd) < 0.75 * flat, "{} {flat}", error(&found, odd));
    }

    #[test]
    fn rows_that_are_alike_have_no_factors() {
        let runs = [0..200, 200..230];
        let rows = rows_with(230, |row| if row < 200 { 1.0 } else { 2.0 }, |_, _| 0.0);
        let (with, without) = (by_row(), Recipe::default());
        let reference = reference_of(&rows, &runs, &with);
        assert!(reference.row_factors.is_empty());
        assert_eq!(reference, reference_of(&rows, &runs, &without));
        assert_eq!(reference.checksum(), reference_of(&rows, &runs, &without).checksum());
        assert_eq!(reference.row_level(1, 205), reference.run_levels[1]);
    }

    /// Less than chance is no reason to give rows levels: what is more than chance would have a variance below 0.
    #[test]
    fn rows_must_vary_by_more_than_chance() {
        let with = |row_spread: f64| Recipe { row_spread, ..by_row() };
        assert!(with(0.99).check().unwrap_err().to_string().contains("row_spread"));
        assert!(with(1.0).check().is_ok() && with(f64::NAN).check().is_err());
        let reference = reference_of(&rows_with(300, |_| 1.0, |_, _| 0.0), std::slice::from_ref(&(0..300)), &with(1.0));
        assert!(reference.row_factors.iter().all(|x| (x - 1.0).abs() < 0.1), "{:?}", reference.row_factors);
    }

    #[test]
    fn what_stands_in_the_way_is_told() {
        let recipe = by_row();
        let why = |is_series, n_columns, n| obstacle(is_series, n_columns, n, &recipe).unwrap_or_default();
        assert_eq!(why(true, 64, 20), "");
        assert!(why(false, 64, 20).contains("not alike"));
        assert!(why(true, 63, 20).contains("63 sites"));
        assert!(why(true, 64, 19).contains("here are 19"));
        assert!(why(true, 1 << 20, 2000).contains("too large"));
        // As rows of a fit are measured, and with what it says.
        let mut found =
            reference_of(&rows_with(15, |_| 0.3, |_, _| 0.0), std::slice::from_ref(&(0..15)), &recipe).findings;
        assert!(found.why_no_row_levels([15, 1, SIDE * SIDE], &recipe).unwrap().contains("here are 14"));
        assert_eq!(found.why_no_row_levels([15, 1, SIDE * SIDE], &Recipe::default()), None);
        assert!(found.why_no_row_levels([150, 1, SIDE * SIDE], &recipe).unwrap().contains("chance"));
        found.between_rows = Some(0.1);
        assert_eq!(found.why_no_row_levels([15, 1, SIDE * SIDE], &recipe), None);
    }

    /// Cells that fire: in one place, or a few per cent of all sites at once, for a row or from a row on.
    #[test]
    fn fast_signals_are_no_noise_of_their_rows() {
        let fires = |row: usize| (row * 7919) % 31 < 3;
        let (whole, run) = (|_: usize| 1.0, std::slice::from_ref(&(0..300)));
        let close = |site: usize| (4..9).contains(&(site / SIDE)) && (10..15).contains(&(site % SIDE));
        let far = |row: usize, site: usize| (site * 31 + row * 57).is_multiple_of(41);
        let in_one_place = |row: usize, site: usize| if fires(row) && close(site) { 9.0 } else { 0.0 };
        let scattered = |row: usize, site: usize| if fires(row) && far(row, site) { 9.0 } else { 0.0 };
        let decaying = |row: usize, site: usize| {
            let decay = |ago: usize| 9.0 * (-(ago as f64) / 6.0).exp();
            (0..20).filter(|&ago| row >= ago && fires(row - ago) && far(row - ago, site)).map(decay).sum::<f64>()
        };
        for (name, rows) in [
            ("in one place", rows_with(300, whole, in_one_place)),
            ("scattered", rows_with(300, whole, scattered)),
            ("decaying", rows_with(300, whole, decaying)),
        ] {
            let reference = reference_of(&rows, run, &by_row());
            let worst = reference.row_factors.iter().map(|x| (x - 1.0).abs()).fold(0.0, f64::max);
            assert!(worst < 0.1, "{name}: {worst}");
        }
    }

    #[test]
    fn factors_are_stored_and_new_rows_have_their_own() {
        let level = |row: usize| 1.0 + 0.3 * (row as f64 / 9.0).sin();
        let rows = rows_with(200, level, |_, _| 0.0);
        let recipe = by_row();
        let reference = reference_of(&rows, std::slice::from_ref(&(0..200)), &recipe);
        assert_eq!(reference.row_factors.len(), 200);
        let bytes = reference.to_bundle().to_bytes();
        let read =
            Reference::from_stored(&Stored::from_bytes(bytes, std::path::Path::new("reference")).unwrap()).unwrap();
        assert_eq!(read, reference);
        let alike = Reference { row_factors: Vec::new(), ..reference.clone() };
        let of = |reference: &Reference, n: usize, recipe: &Recipe| {
            let filter = Filter::new(reference.clone(), structure(), Mask::full(SIDE * SIDE));
            levels_of_rows(&filter, rows[..n].iter().map(|row| &row[..]), recipe)
        };
        let found = of(&reference, 200, &recipe);
        assert!(error(&found, level) < 0.05, "{}", error(&found, level));
        assert!(found.iter().enumerate().all(|(row, x)| (x / reference.row_level(0, row) - 1.0).abs() < 1e-6));
        // Fewer, or of a fit whose rows were alike, or of one that was told not to look: they have one level.
        for levels in [
            of(&reference, 19, &recipe),
            of(&alike, 200, &recipe),
            of(&reference, 200, &Recipe { row_levels: false, ..recipe.clone() }),
        ] {
            assert!(levels.iter().all(|x| *x == levels[0]), "{levels:?}");
        }
        assert_eq!(of(&reference, 19, &recipe)[0], reference.level);
    }

    /// The same by dense algebra, from the covariance of rows.
    #[test]
    fn rows_are_solved_for() {
        let differences = [0.3, -0.1, 0.5, 0.2, -0.4];
        for memory in [0.0, 0.7] {
            let prior = Prior { of_rows: 0.04, memory, chance: 0.015 };
            let of_rows = |a: usize, b: usize| 0.04 * f64::powi(memory, a.abs_diff(b) as i32);
            let shared = |row: usize, at: usize| 0.5 * (of_rows(row, at) + of_rows(row, at + 1));
            let covariance =
                |a: usize, b: usize| 0.5 * (shared(a, b) + shared(a + 1, b)) + if a == b { 0.015 } else { 0.0 };
            let matrix: Vec<f64> = (0..25).map(|at| covariance(at / 5, at % 5)).collect();
            let y = solve_cholesky(&cholesky(&matrix, 5).unwrap(), &differences);
            let found = prior.solve(&differences);
            assert_eq!(found.len(), 6);
            for (row, x) in found.iter().enumerate() {
                let expected: f64 = (0..5).map(|at| shared(row, at) * y[at]).sum();
                assert!((x - expected).abs() < 1e-12, "{x} {expected}");
            }
        }
    }
}
