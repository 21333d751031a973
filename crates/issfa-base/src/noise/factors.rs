//! The noise of rows in no order on so few sites that no mode is rough: what factors that many rows share leave of each site.

use super::{Recipe, Sample};
use crate::numeric::eigen::symmetric_eigen;
use crate::numeric::linalg::{View, multiply};

/// Where there are more sites than these, at most as many rows are looked at: one of the two is what factors are sought in.
const MOST: usize = 1000;
/// And never more values at a time, but for a few rows.
const MOST_VALUES: usize = 1 << 24;
const FEWEST_ROWS: usize = 32;
/// How often factors are sought anew.
const ROUNDS: usize = 5;
/// How far beyond the edge of noise a factor is signal.
const BEYOND_NOISE: f64 = 1.1;
/// The least that factors leave of a site's freedom, and the square of it of its variance.
const LEAST_LEFT: f64 = 0.05;

/// Standard deviations of the noise at each column, from those of differences, which hold signal too.
///
/// Rows are divided by the scales, principal components beyond what noise of variance 1 gives a sample of as many rows are taken out,
/// and the scales become what is left at each column, over the share of its freedom that is left. The next round finds weaker
/// factors, since noise of variance 1 is what most columns hold then.
pub fn scales_of_noise(sample: &Sample, of_differences: &[f64], recipe: &Recipe) -> Vec<f64> {
    let n = of_differences.len();
    let most_rows = (MOST_VALUES / n).max(FEWEST_ROWS).min(if n > MOST { MOST } else { usize::MAX });
    let places: Vec<usize> = (0..sample.n_kept()).step_by(sample.n_kept().div_ceil(most_rows).max(1)).collect();
    let mut scales = of_differences.to_vec();
    for round in 0..ROUNDS {
        let rows = Rows::new(sample, &places, &scales);
        let variances = rows.variances(sample.share_of_freedom());
        // At first scales hold the signal, and columns have a variance of about 1 with it.
        let noise = if round == 0 { median(variances.clone()) } else { 1.0 };
        let left = rows.left(&variances, noise, sample.share_of_freedom());
        scales.iter_mut().zip(&left).for_each(|(scale, left)| *scale *= left.sqrt());
    }
    let mean_square = scales.iter().map(|scale| scale * scale).sum::<f64>() / n as f64;
    let least = recipe.least_scale * mean_square.sqrt();
    scales.into_iter().map(|scale| scale.max(least)).collect()
}

/// Rows over the scales of their columns, 0 where nothing is known.
struct Rows {
    values: Vec<f64>,
    n_rows: usize,
    n_columns: usize,
    /// Rows that are known at each column.
    n_seen: Vec<f64>,
}

impl Rows {
    fn new(sample: &Sample, places: &[usize], scales: &[f64]) -> Rows {
        let mut n_seen = vec![0.0; scales.len()];
        let mut values = Vec::with_capacity(places.len() * scales.len());
        for &place in places {
            for ((x, scale), n) in sample.kept(place).zip(scales).zip(&mut n_seen) {
                *n += f64::from(u8::from(!x.is_nan()));
                values.push(if x.is_nan() { 0.0 } else { x / scale });
            }
        }
        Rows { values, n_rows: places.len(), n_columns: scales.len(), n_seen }
    }

    /// The variance at each column; 1 where nothing is known.
    fn variances(&self, freedom: f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.n_columns];
        for row in self.values.chunks_exact(self.n_columns) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * x);
        }
        sums.iter().zip(&self.n_seen).map(|(sum, n)| if *sum > 0.0 { sum / (freedom * n) } else { 1.0 }).collect()
    }

    /// What factors beyond noise of this variance leave of each column's variance.
    fn left(&self, variances: &[f64], noise: f64, freedom: f64) -> Vec<f64> {
        let (n, n_rows) = (self.n_columns, freedom * self.n_rows as f64);
        let edge = noise * BEYOND_NOISE * (1.0 + (n as f64 / n_rows).sqrt()).powi(2);
        // By column: what factors hold of the variance, and of the freedom.
        let mut held = vec![(0.0, 0.0); n];
        let rows = View::new(&self.values, self.n_rows, n);
        let by_columns = n <= self.n_rows;
        let size = n.min(self.n_rows);
        let mut gram = vec![0.0; size * size];
        if by_columns {
            multiply(&mut gram, rows.t(), rows)
        } else {
            multiply(&mut gram, rows, rows.t())
        };
        gram.iter_mut().for_each(|x| *x /= n_rows);
        let eigen = symmetric_eigen(&gram, size);
        for i in (0..size).filter(|&i| eigen.values[i] > edge) {
            let vector: Vec<f64> = (0..size).map(|at| eigen.vectors[at * size + i]).collect();
            let direction = if by_columns { vector } else { self.direction(&vector, eigen.values[i] * n_rows) };
            for (held, x) in held.iter_mut().zip(&direction) {
                *held = (held.0 + eigen.values[i] * x * x, held.1 + x * x);
            }
        }
        let left = |((variance, (of_variance, of_freedom)), n_seen): ((&f64, (f64, f64)), &f64)| {
            let of_variance = of_variance * self.n_rows as f64 / n_seen.max(1.0);
            let left = (variance - of_variance) / (1.0 - of_freedom).max(LEAST_LEFT);
            left.max(LEAST_LEFT * LEAST_LEFT * variance)
        };
        variances.iter().zip(held).zip(&self.n_seen).map(left).collect()
    }

    /// The direction over the columns that belongs to one over the rows.
    fn direction(&self, of_rows: &[f64], sum_of_squares: f64) -> Vec<f64> {
        let mut direction = vec![0.0; self.n_columns];
        for (row, weight) in self.values.chunks_exact(self.n_columns).zip(of_rows) {
            direction.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
        }
        direction.iter_mut().for_each(|x| *x /= sum_of_squares.sqrt());
        direction
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three factors in noise, in fewer rows than columns: what is found among the rows is what the columns' own products say.
    #[test]
    fn factors_of_few_rows_are_those_of_the_columns() {
        let (n_rows, n) = (9, 14);
        let wave = |a: usize, b: usize| ((a * 37 + b * 101) as f64 * 0.7).sin();
        let value = |row: usize, column: usize| {
            (0..3).map(|k| 4.0 * wave(row, k + 1) * wave(column, k + 20)).sum::<f64>() + wave(row + 50, column + 70)
        };
        let values: Vec<f64> = (0..n_rows * n).map(|at| value(at / n, at % n)).collect();
        let rows = Rows { values, n_rows, n_columns: n, n_seen: vec![n_rows as f64; n] };
        let (freedom, noise) = (0.8, 0.3);
        let variances = rows.variances(freedom);
        let worth = freedom * n_rows as f64;
        let product = |a: usize, b: usize| {
            (0..n_rows).map(|t| rows.values[t * n + a] * rows.values[t * n + b]).sum::<f64>() / worth
        };
        let gram: Vec<f64> = (0..n * n).map(|at| product(at / n, at % n)).collect();
        let eigen = symmetric_eigen(&gram, n);
        let edge = noise * BEYOND_NOISE * (1.0 + (n as f64 / worth).sqrt()).powi(2);
        let signal: Vec<usize> = (0..n).filter(|&i| eigen.values[i] > edge).collect();
        assert!((1..n_rows).contains(&signal.len()), "{:?} beside {edge}", eigen.values);
        for (column, left) in rows.left(&variances, noise, freedom).into_iter().enumerate() {
            let square = |i: usize| eigen.vectors[column * n + i].powi(2);
            let held: f64 = signal.iter().map(|&i| eigen.values[i] * square(i)).sum();
            let free = 1.0 - signal.iter().map(|&i| square(i)).sum::<f64>();
            let expected = ((gram[column * n + column] - held) / free.max(LEAST_LEFT))
                .max(LEAST_LEFT * LEAST_LEFT * variances[column]);
            assert!((left - expected).abs() < 1e-9 * variances[column], "{column}: {left} {expected}");
        }
    }
}
