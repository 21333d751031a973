//! The path graph (first-order random walk): smooth along a line with free ends; the basis is the DCT-II.

use super::folded::{DENSE_LIMIT, Folded};
use super::lines::for_each_line;
use super::{Basis, Direction, by_way_of_double};
use crate::numeric::linalg::Real;
use rustdct::{DctPlanner, TransformType2And3};
use std::f64::consts::PI;
use std::sync::Arc;

/// `U[j][k] = c_k cos(pi (j + 1/2) k / n)`, orthonormal (`c_0 = sqrt(1/n)`, else `sqrt(2/n)`); eigenvalues
/// `2 - 2 cos(pi k / n)`.
pub struct Path {
    eigenvalues: Vec<f64>,
    transform: Transform,
}

enum Transform {
    Short(Folded, Folded<f32>),
    Long(Arc<dyn TransformType2And3<f64>>),
}

impl Path {
    /// A path of `n` sites.
    pub fn new(n: usize) -> Path {
        if n <= DENSE_LIMIT { Path::with(n, Transform::Short(folded(n), folded(n))) } else { Path::fast(n) }
    }

    fn fast(n: usize) -> Path {
        Path::with(n, Transform::Long(DctPlanner::new().plan_dct2(n)))
    }

    fn with(n: usize, transform: Transform) -> Path {
        // 4 sin^2 rather than 2 - 2 cos: no cancellation for the smoothest modes.
        let eigenvalues = (0..n).map(|k| 4.0 * (PI * k as f64 / (2 * n) as f64).sin().powi(2)).collect();
        Path { eigenvalues, transform }
    }
}

fn folded<R: Real>(n: usize) -> Folded<R> {
    let entry = |site: usize, mode: usize| {
        // The angle is reduced to one period in integers, so that it is exact for every size.
        let turns = ((2 * site + 1) * mode) % (4 * n);
        normalisation(n, mode) * (PI * turns as f64 / (2 * n) as f64).cos()
    };
    Folded::new(n, 0, entry)
}

fn normalisation(n: usize, mode: usize) -> f64 {
    if mode == 0 { (1.0 / n as f64).sqrt() } else { (2.0 / n as f64).sqrt() }
}

impl Basis for Path {
    fn n_sites(&self) -> usize {
        self.eigenvalues.len()
    }

    fn word(&self) -> String {
        format!("path({})", self.n_sites())
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "n log n"
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        match &self.transform {
            Transform::Short(folded, _) => folded.apply(direction, values, inner, scratch),
            Transform::Long(dct) => {
                for_each_line(values, (self.n_sites(), inner), scratch, dct.get_scratch_len(), |line, work| {
                    transform_line(dct.as_ref(), direction, line, work);
                });
            }
        }
    }

    fn apply_single(&self, direction: Direction, values: &mut [f32], inner: usize, scratch: &mut Vec<f32>) {
        match &self.transform {
            Transform::Short(_, folded) => folded.apply(direction, values, inner, scratch),
            _ => by_way_of_double(self, direction, values, inner),
        }
    }
}

/// One orthonormal DCT-II or its inverse; the planner's transforms are unscaled (`dct3` halves the first entry).
fn transform_line(dct: &dyn TransformType2And3<f64>, direction: Direction, line: &mut [f64], scratch: &mut [f64]) {
    let n = line.len();
    match direction {
        Direction::ToSpectrum => {
            dct.process_dct2_with_scratch(line, scratch);
            line.iter_mut().enumerate().for_each(|(k, x)| *x *= normalisation(n, k));
        }
        Direction::ToSites => {
            line.iter_mut().enumerate().for_each(|(k, x)| *x *= normalisation(n, k));
            line[0] *= 2.0;
            dct.process_dct3_with_scratch(line, scratch);
        }
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{check_basis, laplacian};
    use super::*;

    fn edges(n: usize) -> Vec<(usize, usize, f64)> {
        (1..n).map(|i| (i - 1, i, 1.0)).collect()
    }

    #[test]
    fn short_paths_diagonalise_the_laplacian() {
        for n in [1, 2, 3, 4, 7, 16, 61] {
            check_basis(&Path::new(n), &laplacian(n, &edges(n)));
        }
    }

    #[test]
    fn long_paths_do_too_and_fast_equals_dense() {
        for n in [1, 2, 5, 29, 130, 149] {
            check_basis(&Path::fast(n), &laplacian(n, &edges(n)));
        }
    }
}
