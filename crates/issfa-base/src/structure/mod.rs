//! Structures: orthonormal bases with known eigenvalues, one per grid axis, and the curves that turn eigenvalues
//! into the prior precision of each mode.
//!
//! A new structure is one new file with a [`Basis`], one arm in [`expression`], and its tests.

use std::fmt::Debug;

pub mod curve;
mod cycle;
mod dense;
pub mod expression;
mod folded;
pub mod graph;
mod groups;
mod iid;
mod lines;
mod path;
mod product;
mod wavelet;

pub use curve::{Curve, Spectrum};
pub use cycle::Cycle;
pub use graph::{Graph, Shelf};
pub use groups::Groups;
pub use iid::Iid;
pub use path::Path;
pub use product::Structure;
pub use wavelet::{Filter, Wavelet};

/// Which way a transform goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sites to modes: multiplication by `U'`.
    ToSpectrum,
    /// Modes to sites: multiplication by `U`.
    ToSites,
}

/// An orthonormal basis `U` of one axis, with the eigenvalues of the matrix it diagonalises.
pub trait Basis: Debug + Send + Sync {
    /// The number of sites, and of modes.
    fn n_sites(&self) -> usize;

    /// The word of the structure language that makes this basis, with its size.
    fn word(&self) -> String;

    /// One eigenvalue a mode, none negative.
    fn eigenvalues(&self) -> &[f64];

    /// What one transform of a line costs, for people.
    fn cost(&self) -> &'static str;

    /// Whether sites next to each other in the array are close, so that smoothness along the axis means something.
    fn neighbours_are_close(&self) -> bool {
        true
    }

    /// The graph, for a basis that came from a file and is kept with a run.
    fn graph(&self) -> Option<&Graph> {
        None
    }

    /// Transforms, in place, every line of the array `outer x n_sites x inner` (row-major) that runs along the middle
    /// axis. `scratch` is grown as needed and may be lent again.
    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>);

    /// [`Basis::apply`] in single precision. By way of double precision, unless there is a faster way.
    fn apply_single(&self, direction: Direction, values: &mut [f32], inner: usize, _scratch: &mut Vec<f32>) {
        by_way_of_double(self, direction, values, inner);
    }
}

/// Transforms numbers of single precision in double precision.
fn by_way_of_double<B: Basis + ?Sized>(basis: &B, direction: Direction, values: &mut [f32], inner: usize) {
    let mut wide: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    basis.apply(direction, &mut wide, inner, &mut Vec::new());
    values.iter_mut().zip(wide).for_each(|(to, x)| *to = x as f32);
}

#[cfg(test)]
pub(crate) mod checks {
    //! What every basis must satisfy, checked against its explicit matrix.
    use super::*;

    /// The matrix `U` (row-major, sites x modes), one unit vector at a time.
    pub fn explicit_matrix(basis: &dyn Basis) -> Vec<f64> {
        let n = basis.n_sites();
        let mut matrix = vec![0.0; n * n];
        for mode in 0..n {
            let mut unit = vec![0.0; n];
            unit[mode] = 1.0;
            basis.apply(Direction::ToSites, &mut unit, 1, &mut Vec::new());
            (0..n).for_each(|site| matrix[site * n + mode] = unit[site]);
        }
        matrix
    }

    /// The Laplacian of a weighted graph, row-major; loops do nothing.
    pub fn laplacian(n: usize, edges: &[(usize, usize, f64)]) -> Vec<f64> {
        let mut matrix = vec![0.0; n * n];
        for &(i, j, weight) in edges {
            matrix[i * n + i] += weight;
            matrix[j * n + j] += weight;
            matrix[i * n + j] -= weight;
            matrix[j * n + i] -= weight;
        }
        matrix
    }

    /// `U' U = I`, `U diag(gamma) U' = laplacian`, and both directions agree on strided lines.
    pub fn check_basis(basis: &dyn Basis, laplacian: &[f64]) {
        let n = basis.n_sites();
        let matrix = explicit_matrix(basis);
        for a in 0..n {
            for b in 0..n {
                let gram: f64 = (0..n).map(|s| matrix[s * n + a] * matrix[s * n + b]).sum();
                assert!((gram - f64::from(u8::from(a == b))).abs() < 1e-12, "not orthonormal at {a}, {b}: {gram}");
                let entry: f64 = (0..n).map(|m| matrix[a * n + m] * basis.eigenvalues()[m] * matrix[b * n + m]).sum();
                let limit = 1e-12 * (1.0 + basis.eigenvalues().iter().copied().fold(0.0, f64::max));
                assert!((entry - laplacian[a * n + b]).abs() < limit, "{}: entry {a}, {b}: {entry}", basis.word());
            }
        }
        // Few lines and more than are taken at a time, one after the other and side by side.
        for (outer, inner) in [(2, 1), (2, 3), (300, 1), (1, 300)] {
            check_lines(basis, &matrix, outer, inner);
        }
    }

    fn check_lines(basis: &dyn Basis, matrix: &[f64], outer: usize, inner: usize) {
        let n = basis.n_sites();
        let original: Vec<f64> = (0..outer * n * inner).map(|i| (i as f64 * 1.7).sin()).collect();
        let mut values = original.clone();
        basis.apply(Direction::ToSpectrum, &mut values, inner, &mut Vec::new());
        for (at, value) in values.iter().enumerate() {
            let (o, mode, i) = (at / (n * inner), at / inner % n, at % inner);
            let naive: f64 = (0..n).map(|s| matrix[s * n + mode] * original[(o * n + s) * inner + i]).sum();
            assert!((value - naive).abs() < 1e-12 * (n as f64).sqrt() + 1e-13, "fast {value}, naive {naive}");
        }
        let mut single: Vec<f32> = original.iter().map(|&x| x as f32).collect();
        basis.apply_single(Direction::ToSpectrum, &mut single, inner, &mut Vec::new());
        let limit = 1e-6 * (n as f64).sqrt();
        assert!(values.iter().zip(&single).all(|(a, b)| (a - f64::from(*b)).abs() < limit), "single precision");
        basis.apply_single(Direction::ToSites, &mut single, inner, &mut Vec::new());
        basis.apply(Direction::ToSites, &mut values, inner, &mut Vec::new());
        assert!(values.iter().zip(&original).all(|(a, b)| (a - b).abs() < 1e-12), "round trip");
        assert!(single.iter().zip(&original).all(|(a, b)| (f64::from(*a) - b).abs() < limit), "single round trip");
    }
}
