//! Sparse columns in the span of a matrix: dense algebra of one process.

use crate::numeric::eigen::{Eigen, symmetric_eigen};
use crate::numeric::linalg::{View, multiply};

/// Steps of the ascent at most; from mixtures of sparse columns it takes about ten.
const MOST_STEPS: usize = 100;
/// The ascent ends where a step gains less than this share of what there is.
const SETTLED: f64 = 1e-4;
/// How firmly columns stay where nothing pulls at them, beside the least that pulls at any.
const FIRMNESS: f64 = 1e-3;
/// How often small entries are left out at most, and by which share what is left out must fall each time for another.
const MOST_ROUNDS: usize = 30;
const LEAST_FALL: f64 = 0.1;
/// So little left out, beside all, is nothing.
const NOTHING: f64 = 1e-12;
/// Entries below this share of the large ones of their column are small while columns are looked for, and in the end.
const SMALL: f64 = 0.2;
pub const SMALL_IN_THE_END: f64 = 0.1;

/// An n x k matrix with orthonormal columns, row-major.
pub struct Orthonormal {
    pub values: Vec<f64>,
    pub n: usize,
    pub k: usize,
}

/// Columns in the span of X with their small entries left out.
pub struct Kept {
    /// M, k x k: the columns are those of `X M`.
    pub directions: Vec<f64>,
    /// How large the large entries of each column are; 0 of a column of nothing.
    pub sizes: Vec<f64>,
    /// What is left of the columns, n x k.
    values: Vec<f64>,
    /// The share of all squares that was left out, columns of the same size.
    left_out: f64,
}

impl Orthonormal {
    /// Sparse columns near those of `X R`, R k x k: uphill to large fourth powers, then without the condition that they are
    /// orthogonal to each other.
    pub fn sparse(&self, start: Vec<f64>) -> Kept {
        let mut kept = self.without_small(self.peaked(start), SMALL);
        for _ in 0..MOST_ROUNDS {
            // What is left is no longer in the span: the nearest that is.
            let next = self.without_small(self.products(&kept.values), SMALL);
            let is_settled = next.left_out > (1.0 - LEAST_FALL) * kept.left_out || next.left_out < NOTHING;
            kept = next;
            if is_settled {
                break;
            }
        }
        self.without_small(kept.directions, SMALL_IN_THE_END)
    }

    /// The rotation R of the largest sum of fourth powers of `X R` that is found uphill from `start`.
    ///
    /// The sum is convex in R, so that the rotation nearest to its gradient is never lower. Columns of few large entries have
    /// much of it, and mixtures of them little: their entries add up to something near a normal law.
    fn peaked(&self, start: Vec<f64>) -> Vec<f64> {
        let (mut rotation, mut before) = (start, 0.0);
        for _ in 0..MOST_STEPS {
            let mut columns = self.columns(&rotation);
            let fourth: f64 = columns.iter().map(|x| x.powi(4)).sum();
            if fourth <= before * (1.0 + SETTLED) {
                break;
            }
            before = fourth;
            columns.iter_mut().for_each(|x| *x = x.powi(3));
            let mut gradient = self.products(&columns);
            let firmness = FIRMNESS / self.n as f64;
            gradient.iter_mut().zip(&rotation).for_each(|(g, r)| *g += firmness * r);
            rotation = nearest_rotation(&gradient, self.k);
        }
        rotation
    }

    /// `X M` without entries below a share of their column's size.
    fn without_small(&self, directions: Vec<f64>, share: f64) -> Kept {
        let mut values = self.columns(&directions);
        let sizes = sizes(&values, self.k);
        let (mut all, mut small) = (0.0, 0.0);
        for row in values.chunks_exact_mut(self.k) {
            for (x, size) in row.iter_mut().zip(&sizes).filter(|(_, size)| **size > 0.0) {
                let square = (*x / size).powi(2);
                all += square;
                if square < share * share {
                    small += square;
                    *x = 0.0;
                }
            }
        }
        Kept { directions, sizes, values, left_out: if all > 0.0 { small / all } else { 0.0 } }
    }

    fn view(&self) -> View<'_, f64> {
        View::new(&self.values, self.n, self.k)
    }

    /// `X M`.
    fn columns(&self, directions: &[f64]) -> Vec<f64> {
        let mut columns = vec![0.0; self.n * self.k];
        multiply(&mut columns, self.view(), View::new(directions, self.k, self.k));
        columns
    }

    /// `X'V`.
    fn products(&self, columns: &[f64]) -> Vec<f64> {
        let mut products = vec![0.0; self.k * self.k];
        multiply(&mut products, self.view().t(), View::new(columns, self.n, self.k));
        products
    }
}

impl Kept {
    /// `V'V` and `V'X`, V the columns without their small entries.
    pub fn products(&self, x: &Orthonormal) -> [Vec<f64>; 2] {
        let columns = View::new(&self.values, x.n, x.k);
        [columns, x.view()].map(|other| {
            let mut products = vec![0.0; x.k * x.k];
            multiply(&mut products, columns.t(), other);
            products
        })
    }
}

/// The orthogonal matrix nearest to a square one B: `B (B'B)^-1/2`.
pub fn nearest_rotation(matrix: &[f64], k: usize) -> Vec<f64> {
    let view = View::new(matrix, k, k);
    let mut gram = vec![0.0; k * k];
    multiply(&mut gram, view.t(), view);
    let Eigen { values, vectors } = symmetric_eigen(&gram, k);
    let least = 1e-14 * values.last().copied().unwrap_or(0.0);
    let scaled: Vec<f64> = (0..k * k).map(|at| vectors[at] / values[at % k].max(least).sqrt()).collect();
    let (mut root, mut nearest) = (vec![0.0; k * k], vec![0.0; k * k]);
    multiply(&mut root, View::new(&scaled, k, k), View::new(&vectors, k, k).t());
    multiply(&mut nearest, view, View::new(&root, k, k));
    nearest
}

/// How large the large entries of each column are: the root of its fourth powers over its squares.
fn sizes(columns: &[f64], k: usize) -> Vec<f64> {
    let mut powers = vec![[0.0; 2]; k];
    for row in columns.chunks_exact(k) {
        for ([second, fourth], x) in powers.iter_mut().zip(row) {
            *second += x * x;
            *fourth += x.powi(4);
        }
    }
    powers.iter().map(|[second, fourth]| if *fourth > 0.0 { (fourth / second).sqrt() } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 300;
    const K: usize = 5;

    /// Each row has an entry in one of the columns or in two.
    fn sparse_columns() -> Vec<f64> {
        let entry = |row: usize, column: usize| {
            let is_used = row % K == column || (row.is_multiple_of(7) && (row / 7) % K == column);
            if is_used { 1.5 + (row as f64 * 0.7 + column as f64).sin() } else { 0.0 }
        };
        (0..N * K).map(|at| entry(at / K, at % K)).collect()
    }

    /// X with the same span.
    fn orthonormal(columns: &[f64]) -> Orthonormal {
        let view = View::new(columns, N, K);
        let mut gram = vec![0.0; K * K];
        multiply(&mut gram, view.t(), view);
        let Eigen { values, vectors } = symmetric_eigen(&gram, K);
        let whitening: Vec<f64> = (0..K * K).map(|at| vectors[at] / values[at % K].sqrt()).collect();
        let mut values = vec![0.0; N * K];
        multiply(&mut values, view, View::new(&whitening, K, K));
        Orthonormal { values, n: N, k: K }
    }

    #[test]
    fn sparse_columns_are_found_in_their_span() {
        let truth = sparse_columns();
        let x = orthonormal(&truth);
        let identity: Vec<f64> = (0..K * K).map(|at| f64::from(u8::from(at % (K + 1) == 0))).collect();
        let found = x.sparse(identity);
        let n_entries = |values: &[f64]| values.iter().filter(|x| **x != 0.0).count();
        assert_eq!(n_entries(&found.values), n_entries(&truth));
        let columns = x.columns(&found.directions);
        let of =
            |values: &[f64], column: usize| -> Vec<f64> { values.iter().skip(column).step_by(K).copied().collect() };
        let product = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(x, y)| x * y).sum() };
        for column in 0..K {
            let column = of(&columns, column);
            let cosine = |other: usize| {
                let other = of(&truth, other);
                product(&column, &other).abs() / (product(&column, &column) * product(&other, &other)).sqrt()
            };
            assert!((0..K).any(|other| cosine(other) > 0.999_999));
        }
    }

    #[test]
    fn the_nearest_rotation_is_one_and_leaves_rotations_alone() {
        let matrix: Vec<f64> = (0..K * K).map(|at| ((at * at) as f64 * 1.7).sin()).collect();
        let rotation = nearest_rotation(&matrix, K);
        let mut gram = vec![0.0; K * K];
        multiply(&mut gram, View::new(&rotation, K, K).t(), View::new(&rotation, K, K));
        assert!((0..K * K).all(|at| (gram[at] - f64::from(u8::from(at % (K + 1) == 0))).abs() < 1e-9), "{gram:?}");
        let again = nearest_rotation(&rotation, K);
        assert!(again.iter().zip(&rotation).all(|(a, b)| (a - b).abs() < 1e-9));
    }
}
