//! The product of one basis per grid axis: transforms go axis by axis, eigenvalues add.

use super::graph::{Graph, GraphFile, Shelf};
use super::{Basis, Direction};
use crate::error::Result;
use crate::numeric::linalg::{Either, Real};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// An orthonormal basis of a whole grid. The last axis is fastest (C order), for sites and modes alike.
#[derive(Debug)]
pub struct Structure {
    axes: Vec<Box<dyn Basis>>,
    grid: Vec<usize>,
}

impl Structure {
    /// The Kronecker product of `axes`.
    pub fn new(axes: Vec<Box<dyn Basis>>) -> Structure {
        assert!(!axes.is_empty(), "a structure has at least one axis");
        let grid = axes.iter().map(|axis| axis.n_sites()).collect();
        Structure { axes, grid }
    }

    /// Sites along each axis.
    pub fn grid(&self) -> &[usize] {
        &self.grid
    }

    /// The bases, one an axis.
    pub fn axes(&self) -> &[Box<dyn Basis>] {
        &self.axes
    }

    /// The number of sites, and of modes.
    pub fn n_sites(&self) -> usize {
        self.grid.iter().product()
    }

    /// The structure as an expression, with sizes: `path(100) x path(100)`.
    pub fn expression(&self) -> String {
        self.axes.iter().map(|axis| axis.word()).collect::<Vec<_>>().join(" x ")
    }

    /// The graphs among the axes.
    pub fn graphs(&self) -> impl Iterator<Item = &Graph> {
        self.axes.iter().filter_map(|axis| axis.graph())
    }

    /// Their files, to be recorded.
    pub fn graph_files(&self) -> Vec<GraphFile> {
        self.graphs().map(|graph| graph.file().clone()).collect()
    }

    /// Keeps what was dear to compute within the folder of a run or simulation.
    pub fn save_graphs(&self, folder: &Path) -> Result<()> {
        self.graphs().try_for_each(|graph| graph.save(&Shelf::inside(folder)))
    }

    /// What the structure is, whatever its files are called.
    pub fn identity(&self) -> String {
        let axis = |axis: &dyn Basis| match axis.graph() {
            Some(graph) => format!("graph:{}:{}", graph.file().checksum, graph.file().n_sites),
            None => axis.word(),
        };
        self.axes.iter().map(|basis| axis(basis.as_ref())).collect::<Vec<_>>().join(" x ")
    }

    /// The eigenvalue of `axis` at every mode of the grid.
    pub fn axis_eigenvalues(&self, axis: usize) -> Vec<f64> {
        let inner: usize = self.grid[axis + 1..].iter().product();
        let along = self.axes[axis].eigenvalues();
        (0..self.n_sites()).map(|mode| along[mode / inner % along.len()]).collect()
    }

    /// The Kronecker sum of the axes' eigenvalues: one number a mode.
    pub fn eigenvalues(&self) -> Vec<f64> {
        let mut sum = vec![0.0; self.n_sites()];
        for axis in 0..self.axes.len() {
            sum.iter_mut().zip(self.axis_eigenvalues(axis)).for_each(|(total, value)| *total += value);
        }
        sum
    }

    /// A checksum of the basis as it is here: of the eigenvalues, and of the spectrum of an image that has a part in every
    /// mode. Files decomposed elsewhere, or processors of another kind, may give other bits.
    pub fn probe(&self) -> String {
        let mut image: Vec<f64> = (0..self.n_sites()).map(|site| ((site as f64) * 1.618 + 0.3).sin()).collect();
        self.apply(Direction::ToSpectrum, &mut image, &mut Vec::new());
        let mut hasher = Xxh3::new();
        image.iter().chain(&self.eigenvalues()).for_each(|x| hasher.update(&x.to_bits().to_le_bytes()));
        format!("{:016x}", hasher.digest())
    }

    /// Transforms one image in place.
    pub fn apply<R: Real>(&self, direction: Direction, image: &mut [R], scratch: &mut Vec<R>) {
        assert_eq!(image.len(), self.n_sites(), "an image fills the grid");
        let mut inner = image.len();
        for axis in &self.axes {
            inner /= axis.n_sites();
            match R::by_precision(image, scratch) {
                Either::Single(image, scratch) => axis.apply_single(direction, image, inner, scratch),
                Either::Double(image, scratch) => axis.apply(direction, image, inner, scratch),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Iid, Path, expression};
    use super::*;

    fn example() -> Structure {
        Structure::new(vec![Box::new(Path::new(3)), Box::new(Iid::new(2)), Box::new(Path::new(4))])
    }

    /// The 24 x 24 matrix, as a Kronecker product written out.
    #[test]
    fn the_product_equals_the_kronecker_matrix() {
        let structure = example();
        let single: Vec<Vec<f64>> =
            structure.axes().iter().map(|a| super::super::checks::explicit_matrix(a.as_ref())).collect();
        let entry = |site: usize, mode: usize| {
            single[0][site / 8 * 3 + mode / 8]
                * single[1][site / 4 % 2 * 2 + mode / 4 % 2]
                * single[2][site % 4 * 4 + mode % 4]
        };
        let image: Vec<f64> = (0..24).map(|i| (i as f64 * 0.37).cos()).collect();
        let mut spectrum = image.clone();
        structure.apply(Direction::ToSpectrum, &mut spectrum, &mut Vec::new());
        for mode in 0..24 {
            let naive: f64 = (0..24).map(|site| entry(site, mode) * image[site]).sum();
            assert!((naive - spectrum[mode]).abs() < 1e-13);
        }
        structure.apply(Direction::ToSites, &mut spectrum, &mut Vec::new());
        assert!(spectrum.iter().zip(&image).all(|(a, b)| (a - b).abs() < 1e-13));
    }

    #[test]
    fn eigenvalues_add() {
        let structure = example();
        let (first, last) = (structure.axis_eigenvalues(0), structure.axis_eigenvalues(2));
        let sum = structure.eigenvalues();
        assert!((0..24).all(|mode| (sum[mode] - first[mode] - last[mode]).abs() < 1e-15));
        assert_eq!(first[8], Path::new(3).eigenvalues()[1]);
        assert_eq!(last[5], Path::new(4).eigenvalues()[1]);
        assert_eq!(structure.expression(), "path(3) x iid(2) x path(4)");
    }

    #[test]
    fn brain_sized_grids_make_the_round_trip() {
        let cases = [
            "path(61) x path(73) x path(61)",
            "path(64) x path(64) x path(29)",
            "cycle(61) x wavelet(73,d4) x groups(30,31)",
            "cycle(24) x path(131) x wavelet(64,haar)",
            "cycle(151) x path(10)",
        ];
        for text in cases {
            let structure = expression::build(Some(text), None).unwrap();
            let image: Vec<f64> = (0..structure.n_sites()).map(|i| (i as f64 * 0.61).sin()).collect();
            let mut values = image.clone();
            let scratch = &mut Vec::new();
            structure.apply(Direction::ToSpectrum, &mut values, scratch);
            let (before, after): (f64, f64) = (image.iter().map(|x| x * x).sum(), values.iter().map(|x| x * x).sum());
            assert!((before / after - 1.0).abs() < 1e-12);
            structure.apply(Direction::ToSites, &mut values, scratch);
            assert!(values.iter().zip(&image).all(|(a, b)| (a - b).abs() < 1e-11));
        }
    }
}
