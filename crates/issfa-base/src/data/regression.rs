//! Means and slopes of every site in every run: least squares on the cells that were observed.

use super::Observations;
use super::preprocess::Show;
use crate::error::{Error, Result};
use crate::numeric::eigen::symmetric_eigen;
use std::collections::{BTreeSet, HashMap};

/// Directions of the covariates with less than this share of the largest are taken for copies of the others.
const LEAST_SHARE: f64 = 1e-10;

/// What was fitted to a run, or to all runs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFit {
    /// By column of the data; 0 where nothing was observed.
    pub means: Vec<f64>,
    /// Covariates x columns of the data.
    pub slopes: Vec<f64>,
}

impl RunFit {
    /// Takes the covariates' share off a row.
    pub fn take_slopes_off(&self, row: &mut [f64], covariates: &[f64]) {
        for (x, slopes) in covariates.iter().zip(self.slopes.chunks_exact(row.len().max(1))) {
            row.iter_mut().zip(slopes).for_each(|(y, slope)| *y -= x * slope);
        }
    }
}

/// Sums over rows, from which means and slopes follow.
pub struct Regression {
    n_columns: usize,
    n_covariates: usize,
    runs: Vec<RunSums>,
    /// By column of the data: the raw sum of squares.
    pub squares: Vec<f64>,
    largest: f64,
}

/// The sums of a run. The regressors are 1 and the covariates, p + 1 in all.
struct RunSums {
    /// (p + 1) x columns: regressors times data.
    products: Vec<f64>,
    /// (p + 1) x (p + 1), over all rows.
    gram: Vec<f64>,
    /// What the missing cells of a column take off the gram.
    lacking: HashMap<usize, Vec<f64>>,
}

/// The fits of all runs.
pub struct RunFits {
    /// Each run's own.
    pub runs: Vec<RunFit>,
    /// Means over all rows, and slopes that all runs share.
    pub overall: RunFit,
    /// Cells observed, by column.
    pub n_seen: Vec<f64>,
}

impl Regression {
    /// Before any row.
    pub fn new(n_runs: usize, n_columns: usize, n_covariates: usize) -> Regression {
        let p = n_covariates + 1;
        let empty = || RunSums { products: vec![0.0; p * n_columns], gram: vec![0.0; p * p], lacking: HashMap::new() };
        let runs = (0..n_runs).map(|_| empty()).collect();
        Regression { n_columns, n_covariates, runs, squares: vec![0.0; n_columns], largest: 0.0 }
    }

    /// Goes through all rows, which are shown to whoever wants to see them.
    pub fn of(observations: &Observations, mut show: Option<Show>) -> Result<Regression> {
        let covariates = observations.covariates();
        covariates.check_lengths(observations)?;
        let n = observations.n_columns();
        let mut sums = Regression::new(observations.n_runs(), n, covariates.n_columns());
        observations.for_each_chunk(&mut |run, first_row, values| {
            for (at, row) in values.chunks_exact(n).enumerate() {
                sums.add(run, covariates.row(first_row + at), row);
                show.iter_mut().for_each(|show| show(run, row));
            }
            Ok(())
        })?;
        if sums.largest > 0.0 && !(1e-140..1e140).contains(&sums.largest) {
            let largest = sums.largest;
            let problem =
                format!("the largest value is {largest:e}, whose square is out of range; rescale the data first");
            return Err(Error::malformed(observations.path(), problem));
        }
        Ok(sums)
    }

    /// Adds a row; NaN cells are not part of it.
    pub fn add(&mut self, run: usize, covariates: &[f64], row: &[f64]) {
        let (n, p) = (self.n_columns, self.n_covariates + 1);
        let sums = &mut self.runs[run];
        let regressor = |at: usize| if at == 0 { 1.0 } else { covariates[at - 1] };
        let outer: Vec<f64> = (0..p * p).map(|at| regressor(at / p) * regressor(at % p)).collect();
        sums.gram.iter_mut().zip(&outer).for_each(|(sum, x)| *sum += x);
        // Without a way out early, so that many cells are looked at in one go.
        if row.iter().fold(false, |any, y| any | y.is_nan()) {
            for column in (0..n).filter(|&column| row[column].is_nan()) {
                let lacking = sums.lacking.entry(column).or_insert_with(|| vec![0.0; p * p]);
                lacking.iter_mut().zip(&outer).for_each(|(sum, x)| *sum += x);
            }
        }
        self.largest = row.iter().fold(self.largest, |most, y| most.max(y.abs()));
        let known = |y: &f64| if y.is_nan() { 0.0 } else { *y };
        for ((square, sum), y) in self.squares.iter_mut().zip(&mut sums.products).zip(row.iter().map(known)) {
            *square += y * y;
            *sum += y;
        }
        for (x, products) in covariates.iter().zip(sums.products[n..].chunks_exact_mut(n)) {
            products.iter_mut().zip(row).filter(|(_, y)| !y.is_nan()).for_each(|(sum, y)| *sum += x * y);
        }
    }

    /// Solves for means and slopes.
    pub fn finish(&self) -> RunFits {
        let runs: Vec<RunFit> = self.runs.iter().map(|sums| self.fit(sums)).collect();
        let n = self.n_columns;
        let (mut totals, mut n_seen) = (vec![0.0; n], vec![0.0; n]);
        for sums in &self.runs {
            let lacking = |column: usize| sums.lacking.get(&column).map_or(0.0, |lacking| lacking[0]);
            n_seen.iter_mut().enumerate().for_each(|(column, seen)| *seen += sums.gram[0] - lacking(column));
            totals.iter_mut().zip(&sums.products).for_each(|(total, sum)| *total += sum);
        }
        let mut means: Vec<f64> = totals.iter().zip(&n_seen).map(|(total, n)| total / n.max(1.0)).collect();
        // Over the cells of a column with holes covariates need not have mean 0, which a run's own mean knows of.
        for column in self.columns_with_holes() {
            let seen = |sums: &RunSums| sums.gram[0] - sums.lacking.get(&column).map_or(0.0, |lacking| lacking[0]);
            let total: f64 = self.runs.iter().zip(&runs).map(|(sums, run)| seen(sums) * run.means[column]).sum();
            means[column] = total / n_seen[column].max(1.0);
        }
        let overall = RunFit { means, slopes: self.shared_slopes(&runs) };
        RunFits { runs, overall, n_seen }
    }

    fn fit(&self, sums: &RunSums) -> RunFit {
        let (n, p) = (self.n_columns, self.n_covariates + 1);
        // Covariates have mean 0 over the rows of a run, so that the mean and the slopes of a complete column are apart.
        let n_rows = sums.gram[0].max(1.0);
        let mut fit = RunFit {
            means: sums.products[..n].iter().map(|sum| sum / n_rows).collect(),
            slopes: vec![0.0; self.n_covariates * n],
        };
        let inverse = pseudo_inverse(&without_first(&sums.gram, p), p - 1);
        apply(&inverse, &sums.products[n..], &mut fit.slopes, n);
        for (&column, lacking) in &sums.lacking {
            let gram: Vec<f64> = sums.gram.iter().zip(lacking).map(|(all, lacking)| all - lacking).collect();
            let own: Vec<f64> = (0..p).map(|at| sums.products[at * n + column]).collect();
            let mut solution = vec![0.0; p];
            apply(&pseudo_inverse(&gram, p), &own, &mut solution, 1);
            fit.means[column] = solution[0];
            (1..p).for_each(|at| fit.slopes[(at - 1) * n + column] = solution[at]);
        }
        fit
    }

    /// Slopes common to all runs, each run about its own means.
    fn shared_slopes(&self, runs: &[RunFit]) -> Vec<f64> {
        let (n, p) = (self.n_columns, self.n_covariates + 1);
        if p == 1 {
            return Vec::new();
        }
        let mut gram = vec![0.0; (p - 1) * (p - 1)];
        let mut products = vec![0.0; (p - 1) * n];
        for (sums, fit) in self.runs.iter().zip(runs) {
            gram.iter_mut().zip(without_first(&sums.gram, p)).for_each(|(total, x)| *total += x);
            products.iter_mut().zip(&sums.products[n..]).for_each(|(total, x)| *total += x);
            // Over the cells of a column with holes the covariates need not have mean 0.
            for (&column, lacking) in &sums.lacking {
                (1..p).for_each(|at| products[(at - 1) * n + column] += lacking[at] * fit.means[column]);
            }
        }
        let mut slopes = vec![0.0; (p - 1) * n];
        apply(&pseudo_inverse(&gram, p - 1), &products, &mut slopes, n);
        for column in self.columns_with_holes() {
            let own: Vec<f64> = (0..p - 1).map(|at| products[at * n + column]).collect();
            let mut solution = vec![0.0; p - 1];
            apply(&pseudo_inverse(&self.gram_of_column(&gram, column), p - 1), &own, &mut solution, 1);
            (0..p - 1).for_each(|at| slopes[at * n + column] = solution[at]);
        }
        slopes
    }

    fn columns_with_holes(&self) -> BTreeSet<usize> {
        self.runs.iter().flat_map(|run| run.lacking.keys().copied()).collect()
    }

    /// The gram of the covariates over all runs, without the cells that a column lacks.
    fn gram_of_column(&self, gram: &[f64], column: usize) -> Vec<f64> {
        let (mut own, p) = (gram.to_vec(), self.n_covariates + 1);
        for lacking in self.runs.iter().filter_map(|run| run.lacking.get(&column)) {
            own.iter_mut().zip(without_first(lacking, p)).for_each(|(sum, x)| *sum -= x);
        }
        own
    }
}

/// A matrix without its first line and column.
fn without_first(matrix: &[f64], p: usize) -> Vec<f64> {
    (1..p).flat_map(|i| (1..p).map(move |j| i * p + j)).map(|at| matrix[at]).collect()
}

/// `out = matrix * right`, with `n` numbers in a line of `right`.
fn apply(matrix: &[f64], right: &[f64], out: &mut [f64], n: usize) {
    let p = right.len() / n.max(1);
    for (line, out) in matrix.chunks_exact(p.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
        for (factor, right) in line.iter().zip(right.chunks_exact(n.max(1))) {
            out.iter_mut().zip(right).for_each(|(sum, x)| *sum += factor * x);
        }
    }
}

/// The inverse on the directions that a symmetric matrix has, with its lines brought to one size first.
fn pseudo_inverse(matrix: &[f64], p: usize) -> Vec<f64> {
    if p == 0 {
        return Vec::new();
    }
    let size: Vec<f64> = (0..p).map(|i| matrix[i * p + i].max(0.0).sqrt()).collect();
    let unit = |x: f64, size: f64| if size > 0.0 { x / size } else { 0.0 };
    let scaled: Vec<f64> = (0..p * p).map(|at| unit(unit(matrix[at], size[at / p]), size[at % p])).collect();
    let eigen = symmetric_eigen(&scaled, p);
    let largest = eigen.values.iter().copied().fold(0.0, f64::max);
    let mut inverse = vec![0.0; p * p];
    for (k, value) in eigen.values.iter().enumerate().filter(|(_, value)| **value > LEAST_SHARE * largest) {
        for at in 0..p * p {
            inverse[at] += eigen.vectors[at / p * p + k] * eigen.vectors[at % p * p + k] / value;
        }
    }
    (0..p * p).map(|at| unit(unit(inverse[at], size[at / p]), size[at % p])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two columns made from means and slopes, the covariates centred; the second column may lack cells.
    fn sums(means: [f64; 2], slopes: [[f64; 2]; 2], hole: Option<usize>) -> Regression {
        let covariates = [[-3.0, 1.0], [-1.0, -2.0], [1.0, 0.5], [3.0, 0.5]];
        let mut sums = Regression::new(1, 2, 2);
        for (at, x) in covariates.iter().enumerate() {
            let mut row = [0, 1].map(|c| means[c] + x[0] * slopes[0][c] + x[1] * slopes[1][c]);
            if hole == Some(at) {
                row[1] = f64::NAN;
            }
            sums.add(0, x, &row);
        }
        sums
    }

    #[test]
    fn exact_data_give_their_means_and_slopes_with_and_without_holes() {
        for hole in [None, Some(0), Some(2)] {
            let found = sums([5.0, -2.0], [[1.0, 0.25], [-3.0, 2.0]], hole).finish();
            let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-10);
            assert!(near(&found.runs[0].means, &[5.0, -2.0]), "{:?}", found.runs[0]);
            assert!(near(&found.runs[0].slopes, &[1.0, 0.25, -3.0, 2.0]), "{:?}", found.runs[0]);
            assert!(near(&found.overall.slopes, &[1.0, 0.25, -3.0, 2.0]), "{:?}", found.overall);
            let mut row = [5.0 + 2.0 - 3.0 * 7.0, f64::NAN];
            found.runs[0].take_slopes_off(&mut row, &[2.0, 7.0]);
            assert!((row[0] - 5.0).abs() < 1e-10 && row[1].is_nan());
        }
    }

    #[test]
    fn copies_and_constants_among_covariates_do_no_harm() {
        let mut sums = Regression::new(1, 1, 3);
        for x in [-1.0, 0.0, 1.0] {
            sums.add(0, &[x, 1e6 * x, 0.0], &[4.0 + 2.0 * x]);
        }
        let fit = &sums.finish().runs[0];
        for x in [-1.0, 2.0] {
            let mut row = [4.0 + 2.0 * x];
            fit.take_slopes_off(&mut row, &[x, 1e6 * x, 0.0]);
            assert!((row[0] - 4.0).abs() < 1e-9, "{row:?}");
        }
    }

    #[test]
    fn runs_share_slopes_about_their_own_means() {
        let mut sums = Regression::new(2, 1, 1);
        for (run, mean) in [10.0, -20.0].into_iter().enumerate() {
            [-1.0, 1.0].iter().for_each(|x| sums.add(run, &[*x], &[mean + (run as f64 + 1.0) * x]));
        }
        let fits = sums.finish();
        let slopes = [fits.runs[0].slopes[0], fits.runs[1].slopes[0], fits.overall.slopes[0]];
        assert!(slopes.iter().zip([1.0, 2.0, 1.5]).all(|(found, slope)| (found - slope).abs() < 1e-12), "{slopes:?}");
        assert_eq!((fits.overall.means[0], fits.n_seen[0]), (-5.0, 4.0));
    }
}
