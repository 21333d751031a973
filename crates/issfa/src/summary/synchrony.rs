//! Synchrony: whether a feature's time courses go together in runs that shared their timing (a film, a task).
//!
//! The measure is the mean Pearson correlation over all pairs of runs. How large it gets by chance is learned from
//! circular shifts: every run is turned by an amount of its own, which leaves its autocorrelation as it is and takes
//! away only what the runs have in common in time. A drift that all runs share is synchrony to this test: remove drifts
//! first where they are not meant.

use std::path::Path;

use rand::RngExt;
use serde::Serialize;

use super::diagnostics::{mean, quantile};
use crate::error::Result;
use crate::numeric::table::{Format, Row};
use crate::numeric::workers;
use crate::rng::{Purpose, Streams};

/// The table's name in a run folder.
pub const FILE: &str = "synchrony.tsv";

const TABLE: Format = Format { separator: '\t', remedy: "; make the table anew" };

const COLUMNS: [&str; 9] = ["rank", "id", "correlation", "null_mean", "null_95", "p", "q", "n_runs", "n_rows"];

/// Two points always correlate by 1 or -1: fewer common rows than this tell nothing.
const LEAST_ROWS: usize = 3;

/// A course whose sum of squares about the mean is at most this share of that about zero is constant but for rounding.
const CONSTANT: f64 = 1e-24;

/// Shifts that bring the runs back into step give the same correlation but for rounding: they count as at least as
/// large.
const ROUNDING: f64 = 1e-12;

/// How alike a feature's time courses are in all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Synchrony {
    /// Id of the feature.
    pub id: u64,
    /// Mean Pearson correlation over all pairs of runs; NaN where there is no pair.
    pub correlation: f64,
    /// Mean of the same under circular shifts.
    pub null_mean: f64,
    /// 95% point of the same under circular shifts.
    pub null_95: f64,
    /// (1 + shifts at least as large) / (1 + shifts).
    pub p: f64,
    /// p adjusted over features by Benjamini and Hochberg.
    pub q: f64,
    /// Runs in which the course is not constant.
    pub n_runs: usize,
    /// Rows compared: those that all runs have.
    pub n_rows: usize,
}

/// Compares the time courses `courses[run][feature]` between runs, over the rows that all runs have.
///
/// Rows that are NaN are left out pair by pair; runs in which the course is constant have no pairs. The `n_shifts`
/// shifts are the same for all features. Sorted by correlation, largest first, ties by id; features without a pair
/// stand last. Nothing for fewer than two runs.
pub fn synchrony(ids: &[u64], courses: &[Vec<Vec<f64>>], n_shifts: usize, seed: u64) -> Vec<Synchrony> {
    assert!(courses.iter().all(|run| run.len() == ids.len()), "every run has a course for every feature");
    if courses.len() < 2 {
        return Vec::new();
    }
    let n_rows = courses.iter().flatten().map(Vec::len).min().unwrap_or(0);
    let shifts: Vec<Vec<usize>> = (0..n_shifts).map(|index| shift(index, courses.len(), n_rows, seed)).collect();
    let mut list: Vec<Option<Synchrony>> = vec![None; ids.len()];
    workers::share(
        list.iter_mut().enumerate(),
        || (),
        |(), (feature, place)| {
            let runs: Vec<&[f64]> = courses.iter().map(|run| &run[feature][..n_rows]).collect();
            *place = Some(of_feature(ids[feature], &runs, &shifts));
        },
    );
    let mut list: Vec<Synchrony> = list.into_iter().map(|found| found.expect("every feature was visited")).collect();
    adjust(&mut list);
    let descending = |x: f64| if x.is_nan() { f64::INFINITY } else { -x };
    list.sort_by(|a, b| descending(a.correlation).total_cmp(&descending(b.correlation)).then(a.id.cmp(&b.id)));
    list
}

/// How far each run is turned in one of the shifts.
fn shift(index: usize, n_runs: usize, n_rows: usize, seed: u64) -> Vec<usize> {
    let mut stream = Streams::once(seed).stream(Purpose::SynchronyShifts, 0, index as u64);
    (0..n_runs).map(|_| stream.random_range(0..n_rows.max(1))).collect()
}

/// One feature's row, its q still to come.
fn of_feature(id: u64, runs: &[&[f64]], shifts: &[Vec<usize>]) -> Synchrony {
    let in_step = vec![0; runs.len()];
    let all = std::iter::once(&in_step).chain(shifts);
    let is_complete = runs.iter().all(|course| course.iter().all(|value| value.is_finite()));
    let found = if is_complete { mean_correlations(runs, all) } else { mean_correlations_pair_by_pair(runs, all) };
    let (correlation, null) = (found[0].clamp(-1.0, 1.0), &found[1..]);
    let mut known: Vec<f64> = null.iter().copied().filter(|value| !value.is_nan()).collect();
    known.sort_by(f64::total_cmp);
    // A shift that leaves no pair says nothing: it counts against the feature.
    let n_as_large = null.iter().filter(|&&value| value.is_nan() || value >= correlation - ROUNDING).count();
    let p = (1 + n_as_large) as f64 / (1 + null.len()) as f64;
    Synchrony {
        id,
        correlation,
        null_mean: if correlation.is_nan() { f64::NAN } else { mean(&known) },
        null_95: if correlation.is_nan() { f64::NAN } else { quantile(&known, 0.95) },
        p: if correlation.is_nan() { f64::NAN } else { p },
        q: f64::NAN,
        n_runs: runs.iter().filter(|course| unit(course).is_some()).count(),
        n_rows: runs.first().map_or(0, |course| course.len()),
    }
}

/// The mean correlation over pairs under each shift, for courses without gaps. With unit vectors u_r for the m runs
/// that vary, the sum over pairs is `(|sum_r u_r|^2 - m) / 2`: one pass over the runs and not over the pairs.
fn mean_correlations<'a>(runs: &[&[f64]], shifts: impl Iterator<Item = &'a Vec<usize>>) -> Vec<f64> {
    let units: Vec<Option<Vec<f64>>> = runs.iter().map(|course| unit(course)).collect();
    let m = units.iter().flatten().count() as f64;
    if m < 2.0 {
        return shifts.map(|_| f64::NAN).collect();
    }
    let mut sum = vec![0.0; runs[0].len()];
    let mut of_shift = |shift: &Vec<usize>| {
        sum.fill(0.0);
        for (unit, &by) in units.iter().zip(shift) {
            unit.iter().for_each(|unit| add_turned(&mut sum, unit, by));
        }
        (sum.iter().map(|x| x * x).sum::<f64>() - m) / (m * (m - 1.0))
    };
    shifts.map(&mut of_shift).collect()
}

/// Adds a course that begins at row `by` and goes round.
fn add_turned(sum: &mut [f64], course: &[f64], by: usize) {
    let (end, start) = course.split_at(by);
    let (first, second) = sum.split_at_mut(start.len());
    for (sum, part) in [(first, start), (second, end)] {
        sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
}

/// A course about its mean, with norm 1 (and 0 in gaps); none for a course that is constant or too short.
fn unit(course: &[f64]) -> Option<Vec<f64>> {
    let present: Vec<f64> = course.iter().copied().filter(|value| value.is_finite()).collect();
    let centre = mean(&present);
    let about = |centre: f64| present.iter().map(|value| (value - centre).powi(2)).sum::<f64>();
    let (norm, is_constant) = (about(centre).sqrt(), about(centre) <= CONSTANT * about(0.0));
    if present.len() < LEAST_ROWS || is_constant {
        return None;
    }
    Some(course.iter().map(|value| if value.is_finite() { (value - centre) / norm } else { 0.0 }).collect())
}

/// What [`mean_correlations`] gives, from the definition; gaps are left out of each pair.
///
/// A pair's correlation depends on how far the two are turned against each other, so that each lag is computed once.
fn mean_correlations_pair_by_pair<'a>(runs: &[&[f64]], shifts: impl Iterator<Item = &'a Vec<usize>>) -> Vec<f64> {
    let shifts: Vec<&Vec<usize>> = shifts.collect();
    let runs: Vec<Course> = runs.iter().map(|values| Course::new(values)).collect();
    let mut sums = vec![(0.0, 0_usize); shifts.len()];
    for second in 1..runs.len() {
        for first in 0..second {
            let n_rows = runs[first].n_rows;
            let mut by_lag: Vec<Option<Option<f64>>> = vec![None; n_rows.max(1)];
            for (shift, (sum, n_pairs)) in shifts.iter().zip(&mut sums) {
                let lag = (shift[second] + n_rows - shift[first]) % n_rows.max(1);
                let known = by_lag[lag].get_or_insert_with(|| runs[first].correlation(&runs[second], lag));
                if let Some(correlation) = known {
                    *sum += *correlation;
                    *n_pairs += 1;
                }
            }
        }
    }
    sums.into_iter().map(|(sum, n_pairs)| if n_pairs > 0 { sum / n_pairs as f64 } else { f64::NAN }).collect()
}

/// A course written twice over, so that it can be read from any row on and round.
struct Course {
    n_rows: usize,
    /// 0 in gaps.
    values: Vec<f64>,
    /// 1 where there is a value, 0 in gaps.
    present: Vec<f64>,
}

impl Course {
    fn new(values: &[f64]) -> Course {
        let twice = || values.iter().chain(values);
        Course {
            n_rows: values.len(),
            values: twice().map(|&value| if value.is_finite() { value } else { 0.0 }).collect(),
            present: twice().map(|value| f64::from(u8::from(value.is_finite()))).collect(),
        }
    }

    /// Pearson's correlation with another course that begins at row `lag`, over rows that both have; none where these
    /// are too few or one of the two is constant there.
    fn correlation(&self, other: &Course, lag: usize) -> Option<f64> {
        let both = self.present.iter().zip(&other.present[lag..]).map(|(a, b)| a * b);
        let rows = both.zip(&self.values).zip(&other.values[lag..]).take(self.n_rows);
        let (mut n, mut sums, mut squares) = (0.0, [0.0; 2], [0.0; 2]);
        for ((present, x), y) in rows.clone() {
            n += present;
            sums = [sums[0] + present * x, sums[1] + present * y];
            squares = [squares[0] + present * x * x, squares[1] + present * y * y];
        }
        let [x_mean, y_mean] = sums.map(|sum| sum / n);
        let (mut products, mut about) = (0.0, [0.0; 2]);
        for ((present, x), y) in rows {
            let (x, y) = (present * (x - x_mean), present * (y - y_mean));
            products += x * y;
            about = [about[0] + x * x, about[1] + y * y];
        }
        let is_constant = (0..2).any(|which| about[which] <= CONSTANT * squares[which]);
        (n >= LEAST_ROWS as f64 && !is_constant).then(|| products / (about[0] * about[1]).sqrt())
    }
}

/// Sets q, the least false discovery rate at which a feature is among the findings: with the p of the m features that
/// have one in order, the least `p_j m / j` from a feature's place j on.
fn adjust(list: &mut [Synchrony]) {
    let mut tested: Vec<&mut Synchrony> = list.iter_mut().filter(|row| !row.p.is_nan()).collect();
    tested.sort_by(|a, b| a.p.total_cmp(&b.p));
    let m = tested.len() as f64;
    let mut least = 1.0_f64;
    for (at, row) in tested.into_iter().enumerate().rev() {
        least = least.min(row.p * m / (at + 1) as f64);
        row.q = least;
    }
}

/// Writes the table, one line a feature in the order of the list.
pub fn write(folder: &Path, list: &[Synchrony]) -> Result<()> {
    let cells = |(at, row): (usize, &Synchrony)| {
        let correlations = [row.correlation, row.null_mean, row.null_95].map(|x| format!("{x:.6}"));
        let chances = [row.p, row.q].map(|x| format!("{x:.6e}"));
        let numbers = correlations.into_iter().chain(chances).map(|cell| cell.to_lowercase());
        let counts = [row.n_runs.to_string(), row.n_rows.to_string()];
        [(at + 1).to_string(), row.id.to_string()].into_iter().chain(numbers).chain(counts).collect()
    };
    TABLE.write(&folder.join(FILE), &COLUMNS, list.iter().enumerate().map(cells))
}

/// Reads the table of a folder, none where there is no such file.
pub fn read(folder: &Path) -> Result<Option<Vec<Synchrony>>> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let table = TABLE.read(&path)?;
    table.require(&COLUMNS)?;
    table.rows().enumerate().map(|(at, row)| read_row(row, at + 1)).collect::<Result<Vec<_>>>().map(Some)
}

fn read_row(row: Row, rank: usize) -> Result<Synchrony> {
    if row.get::<usize>("rank")? != rank {
        return Err(row.wrong("rank"));
    }
    Ok(Synchrony {
        id: row.get("id")?,
        correlation: row.get("correlation")?,
        null_mean: row.get("null_mean")?,
        null_95: row.get("null_95")?,
        p: row.get("p")?,
        q: row.get("q")?,
        n_runs: row.get("n_runs")?,
        n_rows: row.get("n_rows")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::simulate::normal;

    /// Courses by run and feature of independent autoregressions with variance 1.
    fn noise(n_runs: usize, n_features: usize, n_rows: usize, coefficient: f64, seed: u64) -> Vec<Vec<Vec<f64>>> {
        let mut stream = Streams::once(seed).stream(Purpose::Simulation, 0, 0);
        let innovation = (1.0 - coefficient * coefficient).sqrt();
        let mut course = || {
            let mut x = normal(&mut stream);
            let mut step = || {
                x = coefficient * x + innovation * normal(&mut stream);
                x
            };
            (0..n_rows).map(|_| step()).collect::<Vec<f64>>()
        };
        (0..n_runs).map(|_| (0..n_features).map(|_| course()).collect()).collect()
    }

    fn ids(n_features: usize) -> Vec<u64> {
        (0..n_features as u64).collect()
    }

    fn of_runs(courses: &[&[f64]], n_shifts: usize) -> Synchrony {
        let courses: Vec<Vec<Vec<f64>>> = courses.iter().map(|course| vec![course.to_vec()]).collect();
        synchrony(&[7], &courses, n_shifts, 1).remove(0)
    }

    #[test]
    fn identical_courses_correlate_fully() {
        let course = noise(1, 1, 50, 0.0, 1).remove(0).remove(0);
        let scaled: Vec<f64> = course.iter().map(|x| 1e3 + 5.0 * x).collect();
        let found = of_runs(&[&course, &scaled, &course], 99);
        assert!((found.correlation - 1.0).abs() < 1e-12, "{found:?}");
        assert!(found.null_mean.abs() < 0.1 && found.null_95 < 0.5, "{found:?}");
        assert_eq!((found.id, found.n_runs, found.n_rows), (7, 3, 50));
        let turned_round: Vec<f64> = course.iter().map(|x| -x).collect();
        assert!((of_runs(&[&course, &turned_round], 9).correlation + 1.0).abs() < 1e-12);
    }

    #[test]
    fn shifts_that_restore_the_step_count_as_large() {
        // Rows repeat with period 2: a shift restores the step of two runs with probability 1/2, up to rounding.
        let course: Vec<f64> = (0..30).map(|row| 0.1 + f64::from(row % 2) / 3.0).collect();
        let p = of_runs(&[&course, &course], 4000).p;
        assert!((p - 0.5).abs() < 4.0 * 0.5 / 4000_f64.sqrt(), "{p}");
    }

    /// The mean of 200 uniform p has sd 0.0204: 0.5 +- 0.082 is missed by chance for 6 of 100 000 seeds.
    #[test]
    fn chance_gives_uniform_p() {
        let list = synchrony(&ids(200), &noise(5, 200, 60, 0.0, 2), 199, 3);
        let p: Vec<f64> = list.iter().map(|row| row.p).collect();
        assert!((mean(&p) - 0.5).abs() < 0.082, "{}", mean(&p));
        assert!(list.iter().all(|row| row.q >= row.p && row.q <= 1.0));
    }

    /// With 400 features, p <= 0.05 is expected in 20, and by chance in more than 37 only for 14 of 100 000 seeds (40
    /// other seeds gave 20.6 on average, sd 5.0). Taking the rows for independent would give far more: the second half
    /// shows that the bound is not idle.
    #[test]
    fn autocorrelation_alone_raises_no_alarm() {
        let courses = noise(6, 400, 200, 0.9, 4);
        let list = synchrony(&ids(400), &courses, 199, 5);
        let n_alarms = list.iter().filter(|row| row.p <= 0.05).count();
        assert!(n_alarms <= 37, "{n_alarms}");
        // With white courses the mean over 15 pairs of 200 rows would have the sd 1 / sqrt(15 * 200).
        let n_naive = list.iter().filter(|row| row.correlation > 1.645 / 3000_f64.sqrt()).count();
        assert!(n_naive > 80, "{n_naive}");
    }

    #[test]
    fn a_common_design_is_found_and_stands_first() {
        let mut courses = noise(8, 20, 120, 0.5, 6);
        for run in &mut courses {
            for (row, value) in run[13].iter_mut().enumerate() {
                *value += if (row * row / 40) % 3 == 0 { 1.0 } else { 0.0 };
            }
        }
        let list = synchrony(&ids(20), &courses, 999, 7);
        assert_eq!((list[0].id, list[0].p), (13, 0.001));
        assert!(list[0].correlation > list[0].null_95 && (list[0].q - 0.02).abs() < 1e-12, "{:?}", list[0]);
        assert!(list.windows(2).all(|pair| pair[0].correlation >= pair[1].correlation));
        assert_eq!(list, synchrony(&ids(20), &courses, 999, 7), "the same seed, the same table");
        assert_ne!(list, synchrony(&ids(20), &courses, 999, 8));
    }

    #[test]
    fn the_fast_way_is_the_slow_way() {
        let mut courses = noise(7, 1, 41, 0.3, 8);
        courses[2][0] = vec![0.1; 41];
        let runs: Vec<&[f64]> = courses.iter().map(|run| run[0].as_slice()).collect();
        let shifts: Vec<Vec<usize>> = (0..200).map(|index| shift(index, 7, 41, 9)).collect();
        let (fast, slow) =
            (mean_correlations(&runs, shifts.iter()), mean_correlations_pair_by_pair(&runs, shifts.iter()));
        for (a, b) in fast.iter().zip(&slow) {
            assert!((a - b).abs() < 1e-13, "{a} {b}");
        }
        assert!(shifts.iter().flatten().any(|&by| by == 0) && shifts.iter().flatten().any(|&by| by == 40));
    }

    /// Neither way reads a lag from the other: both runs are turned here by hand.
    #[test]
    fn lags_turn_the_runs_against_each_other() {
        let courses = noise(2, 1, 10, 0.0, 10);
        let (one, other) = (&courses[0][0], &courses[1][0]);
        let turned = |course: &[f64], by: usize| (0..10).map(|row| course[(row + by) % 10]).collect::<Vec<f64>>();
        for (by, other_by) in [(0, 0), (0, 3), (9, 0), (4, 7), (7, 4)] {
            let (a, b) = (turned(one, by), turned(other, other_by));
            let covariance = |x: &[f64], y: &[f64]| {
                x.iter().zip(y).map(|(x_row, y_row)| (x_row - mean(x)) * (y_row - mean(y))).sum::<f64>()
            };
            let expected = covariance(&a, &b) / (covariance(&a, &a) * covariance(&b, &b)).sqrt();
            let shifts = [vec![by, other_by]];
            for way in [mean_correlations, mean_correlations_pair_by_pair] {
                assert!((way(&[one, other], shifts.iter())[0] - expected).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn runs_of_unequal_length_are_compared_where_all_have_rows() {
        let course = noise(1, 1, 80, 0.0, 11).remove(0).remove(0);
        let mut longer = course.clone();
        longer.extend([1e6; 20]);
        let found = of_runs(&[&longer, &course[..60], &course], 99);
        assert!((found.correlation - 1.0).abs() < 1e-12 && found.n_rows == 60 && found.p <= 0.03, "{found:?}");
    }

    #[test]
    fn gaps_are_left_out_pair_by_pair() {
        let course = noise(1, 1, 80, 0.0, 12).remove(0).remove(0);
        let mut with_gaps = course.clone();
        [3, 4, 50].iter().for_each(|&row| with_gaps[row] = f64::NAN);
        let mut with_others = course.clone();
        [10, 50, 79].iter().for_each(|&row| with_others[row] = f64::NAN);
        let found = of_runs(&[&course, &with_gaps, &with_others], 199);
        assert!((found.correlation - 1.0).abs() < 1e-12 && found.p == 0.005, "{found:?}");
        assert_eq!((found.n_runs, found.n_rows), (3, 80));
        let empty = vec![f64::NAN; 80];
        let found = of_runs(&[&course, &empty, &with_gaps], 9);
        assert!((found.correlation - 1.0).abs() < 1e-12 && found.n_runs == 2, "{found:?}");
    }

    #[test]
    fn a_gap_is_as_good_as_no_row() {
        let courses = noise(2, 1, 30, 0.5, 15);
        let (mut one, mut other) = (courses[0][0].clone(), courses[1][0].clone());
        (one[4], other[20], other[2]) = (f64::NAN, f64::NAN, f64::INFINITY);
        for lag in [0, 1, 17, 29] {
            let pairs = (0..30).map(|row| (one[row], other[(row + lag) % 30]));
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.filter(|(x, y)| x.is_finite() && y.is_finite()).unzip();
            let found = Course::new(&one).correlation(&Course::new(&other), lag).unwrap();
            assert!(x.len() < 30 && (found - mean_correlations(&[&x, &y], [vec![0, 0]].iter())[0]).abs() < 1e-13);
        }
    }

    #[test]
    fn features_without_pairs_stand_last() {
        let varying = noise(1, 1, 20, 0.0, 13).remove(0).remove(0);
        let constant = vec![0.1; 20];
        let run = |features: [&[f64]; 4]| features.map(<[f64]>::to_vec).to_vec();
        let courses = [
            run([&constant, &varying, &constant, &varying]),
            run([&varying, &varying, &constant, &varying]),
            run([&constant, &varying, &constant, &varying]),
        ];
        let list = synchrony(&[4, 9, 3, 8], &courses, 19, 1);
        let order: Vec<(u64, usize)> = list.iter().map(|row| (row.id, row.n_runs)).collect();
        assert_eq!(order, [(8, 3), (9, 3), (3, 0), (4, 1)], "ties by id, NaN last");
        for row in &list[2..] {
            assert!([row.correlation, row.null_mean, row.null_95, row.p, row.q].iter().all(|x| x.is_nan()), "{row:?}");
        }
        assert!(list[0].q <= 2.0 * list[0].p + 1e-12, "two features were tested");
    }

    #[test]
    fn too_little_gives_nothing() {
        assert_eq!(synchrony(&ids(2), &noise(1, 2, 10, 0.0, 14), 9, 1), []);
        assert_eq!(synchrony(&[], &[vec![], vec![]], 9, 1), []);
        assert!(of_runs(&[&[], &[]], 9).correlation.is_nan());
        assert!(of_runs(&[&[1.0, 2.0], &[1.0, 2.0]], 9).correlation.is_nan(), "two points always correlate");
        assert!(of_runs(&[&[1.0, f64::NAN, 2.0], &[1.0, 2.0, 3.0]], 9).correlation.is_nan());
        let found = of_runs(&[&[1.0, 2.0, 4.0], &[1.0, 2.0, 4.0]], 0);
        assert!(found.p == 1.0 && found.null_95.is_nan(), "{found:?}");
    }

    #[test]
    fn benjamini_and_hochberg_by_hand() {
        let row = |p: f64| Synchrony { p, q: f64::NAN, ..of_runs(&[&[1.0, 2.0, 4.0], &[1.0, 2.0, 4.0]], 0) };
        let mut list = [0.04, f64::NAN, 0.01, 0.03, 0.9].map(row);
        adjust(&mut list);
        let expected = [0.16 / 3.0, f64::NAN, 0.04, 0.16 / 3.0, 0.9];
        for (row, q) in list.iter().zip(expected) {
            assert!(row.q.is_nan() && q.is_nan() || (row.q - q).abs() < 1e-12, "{} {q}", row.q);
        }
    }

    #[test]
    fn tables_come_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let first = Synchrony {
            id: 5,
            correlation: 0.25,
            null_mean: -0.001,
            null_95: 0.125,
            p: 1e-3,
            q: 2.5e-2,
            n_runs: 3,
            n_rows: 40,
        };
        let nan = f64::NAN;
        let last =
            Synchrony { correlation: nan, null_mean: nan, null_95: nan, p: nan, q: nan, n_runs: 0, ..first.clone() };
        write(folder.path(), &[first.clone(), last]).unwrap();
        let list = read(folder.path()).unwrap().unwrap();
        assert_eq!((list.len(), &list[0]), (2, &first));
        assert!(list[1].correlation.is_nan() && list[1].q.is_nan() && list[1].n_runs == 0);
        write(folder.path(), &[]).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(vec![]));
    }

    #[test]
    fn broken_tables_are_named_by_line() {
        let header = TABLE.line(&COLUMNS);
        let folder = tempfile::tempdir().unwrap();
        for (text, line) in [
            (String::new(), "line 1"),
            ("id\tp\n".into(), "line 1"),
            (format!("{header}1\t5\t0\t0\t0\t0\t0\t3\t40\n2\t5\t0\t0\t0\t0\t0\t3\n"), "line 3"),
            (format!("{header}2\t5\t0\t0\t0\t0\t0\t3\t40\n"), "line 2"),
            (format!("{header}1\t5\tx\t0\t0\t0\t0\t3\t40\n"), "line 2"),
        ] {
            std::fs::write(folder.path().join(FILE), &text).unwrap();
            let message = read(folder.path()).expect_err("the table is refused").to_string();
            assert!(message.contains(FILE) && message.contains(line), "{text:?}: {message}");
        }
    }
}
