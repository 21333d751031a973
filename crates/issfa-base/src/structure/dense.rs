//! A basis applied as a dense matrix, for want of anything faster.

use super::Direction;
use crate::numeric::linalg::{View, multiply};

/// An explicit orthonormal matrix, row-major, sites x modes.
#[derive(Clone, Debug)]
pub struct Dense {
    n: usize,
    matrix: Vec<f64>,
}

impl Dense {
    /// A matrix given row-major, sites x modes.
    pub fn new(n: usize, matrix: Vec<f64>) -> Dense {
        assert_eq!(matrix.len(), n * n, "the matrix is square");
        Dense { n, matrix }
    }

    /// The matrix, row-major, sites x modes.
    pub fn matrix(&self) -> &[f64] {
        &self.matrix
    }

    /// See [`super::Basis::apply`].
    pub fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        let n = self.n;
        let matrix = View::new(&self.matrix, n, n);
        let from_left = match direction {
            Direction::ToSpectrum => matrix.t(),
            Direction::ToSites => matrix,
        };
        scratch.clear();
        scratch.resize(values.len(), 0.0);
        if inner == 1 {
            multiply(scratch, View::new(values, values.len() / n, n), from_left.t());
        } else {
            for (out, lines) in scratch.chunks_exact_mut(n * inner).zip(values.chunks_exact(n * inner)) {
                multiply(out, from_left, View::new(lines, n, inner));
            }
        }
        values.copy_from_slice(scratch);
    }
}
