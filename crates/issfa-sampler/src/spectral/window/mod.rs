//! Data that hold a part of the grid only: sites under a mask, and rows with holes.
//!
//! The columns of the data are then sites, not modes. What was not observed is not zero: for the feature draw the
//! statistic `B = W'Y` is completed where data are missing \[M14\], transformed, and the features are drawn in the spectral
//! domain as ever; rows are completed one by one where their unique features may change.

mod beyond;
mod draw;
mod gathered;
mod loops;
mod means;
mod system;
mod turned;

pub use gathered::residuals_at_columns;

use super::{FeatureSpectra, Loadings, Pass, Projections, SpectralData};
use crate::comm::Comm;
use crate::numeric::linalg::Real;
use crate::numeric::normals;
use crate::numeric::workers::share;
use crate::rng::Stream;
use crate::structure::{Direction, Structure};
use gathered::share_out;
use std::sync::Arc;

/// Which cells of the grid the data hold.
#[derive(Clone, Debug)]
pub struct Window {
    structure: Arc<Structure>,
    /// The site of each column of the data, ascending.
    sites: Vec<usize>,
    outside: Vec<usize>,
    /// By site.
    is_seen: Vec<bool>,
    /// The columns that each row lacks, ascending; the data are 0 there.
    holes: Vec<Vec<u32>>,
}

impl Window {
    /// `sites` are those the columns of the data stand for, in ascending order; `holes` has a list of columns for each row.
    pub fn new(structure: Arc<Structure>, sites: Vec<usize>, holes: Vec<Vec<u32>>) -> Window {
        assert!(sites.windows(2).all(|pair| pair[0] < pair[1]), "sites are in ascending order");
        assert!(sites.last().is_none_or(|last| *last < structure.n_sites()), "sites lie on the grid");
        let mut is_seen = vec![false; structure.n_sites()];
        sites.iter().for_each(|&site| is_seen[site] = true);
        let outside = (0..structure.n_sites()).filter(|&site| !is_seen[site]).collect();
        Window { structure, sites, outside, is_seen, holes }
    }

    /// The site of each column.
    pub fn sites(&self) -> &[usize] {
        &self.sites
    }

    /// The columns that a row lacks.
    pub fn holes(&self, row: usize) -> &[u32] {
        &self.holes[row]
    }

    /// The number of cells observed.
    pub fn n_cells(&self) -> f64 {
        let missing: usize = self.holes.iter().map(Vec::len).sum();
        (self.holes.len() * self.sites.len() - missing) as f64
    }

    /// The features at the columns of the data, all of them on every rank.
    pub fn at_columns<R: Real>(&self, spectra: &FeatureSpectra<R>, comm: &dyn Comm) -> FeatureSpectra<R> {
        let columns = share_out(comm, spectra.n_features(), |feature, scratch| {
            self.one_at_columns(spectra.stored(feature), scratch)
        });
        FeatureSpectra::from_vectors(self.sites.len(), &columns)
    }

    /// One spectrum at the columns of the data.
    pub fn one_at_columns<R: Real>(&self, mut spectrum: Vec<R>, scratch: &mut Vec<R>) -> Vec<R> {
        self.structure.apply(Direction::ToSites, &mut spectrum, scratch);
        self.sites.iter().map(|&site| spectrum[site]).collect()
    }

    /// The image of one spectrum, at all sites.
    pub fn image(&self, spectrum: &[f64]) -> Vec<f64> {
        let mut image = spectrum.to_vec();
        self.structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
        image
    }

    /// The spectrum of an image.
    pub fn spectrum(&self, mut image: Vec<f64>) -> Vec<f64> {
        self.structure.apply(Direction::ToSpectrum, &mut image, &mut Vec::new());
        image
    }

    /// Spectra of images that are known at the columns and taken for 0 elsewhere: a start, not an estimate.
    pub fn spectra_of_columns<R: Real>(&self, columns: &FeatureSpectra<R>) -> FeatureSpectra<R> {
        let on_grid = |feature: usize| {
            let mut image = vec![0.0; self.structure.n_sites()];
            self.sites.iter().zip(columns.feature(feature)).for_each(|(&site, x)| image[site] = x);
            image
        };
        let mut images: Vec<Vec<f64>> = (0..columns.n_features()).map(on_grid).collect();
        self.transform_all(Direction::ToSpectrum, &mut images);
        FeatureSpectra::from_rows(self.structure.n_sites(), images.iter().map(Vec::as_slice))
    }

    fn transform_all<R: Real>(&self, direction: Direction, images: &mut [Vec<R>]) {
        share(images.iter_mut(), Vec::new, |scratch, image| self.structure.apply(direction, image, scratch));
    }

    /// `Y S'` and `S S'` over what was observed, row by row where rows have holes.
    pub fn project<R: Real>(&self, pass: &Pass<R>, spectra: &FeatureSpectra<R>) -> Projections<R> {
        let columns = self.at_columns(spectra, pass.comm);
        let mut projections = pass.project(&mut columns.part(pass.data.tiles()));
        // Rows often lack the same cells as the row before.
        let mut last: &[u32] = &[];
        for (row, holes) in self.holes.iter().enumerate().filter(|(_, holes)| !holes.is_empty()) {
            let values = values_at(&columns, holes);
            let gram = (last != holes).then(|| self.own_gram(&projections, &columns, holes, &values));
            last = holes;
            projections.leave_out(row, pass.loadings.row(row), &values, gram);
        }
        projections.set_columns(columns);
        projections
    }

    /// `S S'` over the columns that a row holds: what it lacks taken off, or, where that is most, what it has added up, since
    /// little would be left of large numbers.
    fn own_gram<R: Real>(
        &self,
        projections: &Projections<R>,
        columns: &FeatureSpectra<R>,
        holes: &[u32],
        values: &[Vec<f64>],
    ) -> Vec<f64> {
        let k = columns.n_features();
        let add = |gram: &mut [f64], values: &[Vec<f64>], sign: f64| {
            for features in values {
                for (own, x) in gram.chunks_exact_mut(k.max(1)).zip(features) {
                    own.iter_mut().zip(features).for_each(|(sum, y)| *sum += sign * x * y);
                }
            }
        };
        if 2 * holes.len() <= self.sites.len() {
            let mut gram = projections.gram().to_vec();
            add(&mut gram, values, -1.0);
            return gram;
        }
        let seen: Vec<u32> =
            (0..self.sites.len() as u32).filter(|column| holes.binary_search(column).is_err()).collect();
        let mut gram = vec![0.0; k * k];
        add(&mut gram, &values_at(columns, &seen), 1.0);
        gram
    }

    /// Rows with holes, and their weights in the rotated basis.
    fn turned_weights(&self, loadings: &Loadings, vectors: &[f64], k: usize) -> Vec<(usize, Vec<f64>)> {
        let with_holes = self.holes.iter().enumerate().filter(|(_, holes)| !holes.is_empty());
        let turn = |(row, _): (usize, &Vec<u32>)| {
            let r = vectors.len() / k.max(1);
            let mut weights = vec![0.0; r];
            for entry in loadings.row(row) {
                let vector = &vectors[entry.feature * r..(entry.feature + 1) * r];
                weights.iter_mut().zip(vector).for_each(|(sum, p)| *sum += entry.weight * p);
            }
            (row, weights)
        };
        with_holes.map(turn).collect()
    }

    /// Residuals of rows given the state, as spectra: `seen` where the row was observed, noise elsewhere.
    pub fn complete_residuals<R: Real>(
        &self,
        rows: &[usize],
        seen: &[Vec<R>],
        noise_variance: f64,
        stream_of: impl Fn(usize) -> Stream + Sync,
    ) -> SpectralData<R> {
        let noise_sd = noise_variance.sqrt();
        let mut residuals: Vec<(usize, Vec<R>)> = rows.iter().map(|&row| (row, Vec::new())).collect();
        let new_scratch = || (Vec::new(), Vec::new());
        share(residuals.iter_mut().zip(seen), new_scratch, |(scratch, normals), ((row, image), seen)| {
            image.resize(self.structure.n_sites(), R::zero());
            self.sites.iter().zip(seen).for_each(|(&site, r)| image[site] = *r);
            let holes = self.holes[*row].iter().map(|&column| self.sites[column as usize]);
            normals.resize(self.outside.len() + holes.len(), 0.0);
            normals::fill(&mut stream_of(*row), normals);
            for (site, normal) in self.outside.iter().copied().chain(holes).zip(normals.iter()) {
                image[site] = R::from_f64(noise_sd * normal);
            }
            self.structure.apply(Direction::ToSpectrum, image, scratch);
        });
        let residuals: Vec<Vec<R>> = residuals.into_iter().map(|(_, spectrum)| spectrum).collect();
        SpectralData::from_rows(&residuals)
    }
}

/// The values of all features at some columns: a row a column.
fn values_at<R: Real>(columns: &FeatureSpectra<R>, chosen: &[u32]) -> Vec<Vec<f64>> {
    let at = |&column: &u32| {
        let tile = column as usize / super::TILE;
        let (width, offset) = (columns.tiles().width(tile), column as usize % super::TILE);
        (0..columns.n_features()).map(|k| columns.tile(tile)[k * width + offset].to_f64()).collect()
    };
    chosen.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::system::Goal;
    use super::*;
    use crate::comm::Solo;
    use crate::numeric::eigen::symmetric_eigen;
    use crate::numeric::linalg::cholesky;
    use crate::rng::{Purpose, Streams};
    use crate::spectral::{Entry, FeatureConditional};
    use crate::structure::expression;

    /// Five rows of a 3 x 2 grid under a mask with a hole, two features.
    struct Case {
        window: Window,
        data: SpectralData<f64>,
        loadings: Loadings,
        spectra: FeatureSpectra<f64>,
        precisions: Vec<f64>,
        noise_variance: f64,
    }

    const HOLES: [(usize, u32); 3] = [(0, 1), (3, 0), (3, 3)];

    fn case() -> Case {
        let structure = Arc::new(expression::build(Some("path(3) x path(2)"), None).unwrap());
        let mut holes = vec![Vec::new(); 5];
        HOLES.iter().for_each(|(row, column)| holes[*row].push(*column));
        let value = |t: usize, c: usize| ((t * 5 + c * 3) as f64 * 0.7).sin();
        let seen = |t: usize, c: usize| !HOLES.contains(&(t, c as u32));
        let rows: Vec<Vec<f64>> =
            (0..5).map(|t| (0..4).map(|c| if seen(t, c) { value(t, c) } else { 0.0 }).collect()).collect();
        let weights = [[1.0, 0.0], [0.5, -1.0], [0.0, 0.7], [-0.8, 0.3], [1.2, 0.4]];
        let entries = |w: &[f64; 2]| {
            let list = w.iter().enumerate().filter(|(_, weight)| **weight != 0.0);
            list.map(|(feature, &weight)| Entry { feature, weight }).collect()
        };
        Case {
            window: Window::new(structure, vec![0, 2, 3, 5], holes),
            data: SpectralData::from_rows(&rows),
            loadings: Loadings::from_rows(weights.iter().map(entries).collect(), 2),
            spectra: FeatureSpectra::from_rows(6, [[0.3, -1.0, 0.2, 0.5, 0.1, -0.4], [1.0; 6]].iter().map(|x| &x[..])),
            precisions: vec![0.5, 1.0, 1.5, 2.0, 3.0, 4.0],
            noise_variance: 0.3,
        }
    }

    impl Case {
        fn pass(&self) -> Pass<'_, f64> {
            Pass { data: &self.data, row_norms: &[10.0; 5], loadings: &self.loadings, comm: &Solo }
        }
    }

    /// The basis at the sites of the columns: `basis[column][mode]`.
    fn basis(case: &Case) -> Vec<Vec<f64>> {
        let modes: Vec<Vec<f64>> = (0..6)
            .map(|mode| {
                let mut unit = vec![0.0; 6];
                unit[mode] = 1.0;
                case.window.image(&unit)
            })
            .collect();
        case.window.sites().iter().map(|&site| modes.iter().map(|image| image[site]).collect()).collect()
    }

    #[test]
    fn projections_are_over_what_was_observed() {
        let case = case();
        let projections = case.window.project(&case.pass(), &case.spectra);
        let basis = basis(&case);
        let at =
            |k: usize, c: usize| -> f64 { case.spectra.feature(k).iter().zip(&basis[c]).map(|(s, u)| s * u).sum() };
        let mut residual = 0.0;
        for t in 0..5 {
            let seen: Vec<usize> = (0..4).filter(|&c| !HOLES.contains(&(t, c as u32))).collect();
            for a in 0..2 {
                let product: f64 = seen.iter().map(|&c| case.data.row(t)[c] * at(a, c)).sum();
                assert!((projections.row(t)[a] - product).abs() < 1e-9);
                for b in 0..2 {
                    let gram: f64 = seen.iter().map(|&c| at(a, c) * at(b, c)).sum();
                    assert!((projections.gram_of(t)[a * 2 + b] - gram).abs() < 1e-9, "row {t}");
                }
            }
            for &c in &seen {
                let explained: f64 = case.loadings.row(t).iter().map(|e| e.weight * at(e.feature, c)).sum();
                residual += (case.data.row(t)[c] - explained).powi(2);
            }
        }
        assert!((projections.squared_residual() - residual).abs() < 1e-9);
        assert_eq!(case.window.n_cells(), 17.0);
    }

    #[test]
    fn means_solve_the_dense_equations() {
        let case = case();
        let rotation = symmetric_eigen(&case.loadings.gram(), 2);
        let (noise_variance, precisions) = (case.noise_variance, &case.precisions[..]);
        let conditional = FeatureConditional { rotation: &rotation, noise_variance, precisions };
        let means = case.window.means_up_to(Goal::Size(1e-20), &case.pass(), &conditional);
        // Unknowns are (feature, mode); every observed cell adds a rank-one term.
        let basis = basis(&case);
        let mut matrix = vec![0.0; 144];
        let mut right = [0.0; 12];
        (0..12).for_each(|at| matrix[at * 13] = case.precisions[at % 6]);
        for t in 0..5 {
            for c in (0..4).filter(|&c| !HOLES.contains(&(t, c as u32))) {
                let mut term = [0.0; 12];
                for entry in case.loadings.row(t) {
                    (0..6).for_each(|v| term[entry.feature * 6 + v] = entry.weight * basis[c][v]);
                }
                for i in 0..12 {
                    right[i] += term[i] * case.data.row(t)[c] / case.noise_variance;
                    (0..12).for_each(|j| matrix[i * 12 + j] += term[i] * term[j] / case.noise_variance);
                }
            }
        }
        let found: Vec<f64> = [means.feature(0), means.feature(1)].concat();
        assert!(cholesky(&matrix, 12).is_some());
        for i in 0..12 {
            let left: f64 = (0..12).map(|j| matrix[i * 12 + j] * found[j]).sum();
            assert!((left - right[i]).abs() < 1e-6, "{left} {}", right[i]);
        }
    }

    #[test]
    fn residuals_are_known_where_rows_were_observed() {
        let case = case();
        let stream_of = |row: usize| Streams::once(1).stream(Purpose::MissingRows, 0, row as u64);
        let columns = case.window.at_columns(&case.spectra, &Solo);
        // Columns need not stand in the order of the state.
        let swapped = FeatureSpectra::from_vectors(4, &[columns.feature(1), columns.feature(0)]);
        let seen = residuals_at_columns(&case.pass(), &[3, 1], &swapped, &[1, 0]);
        let residuals = case.window.complete_residuals(&[3, 1], &seen, case.noise_variance, stream_of);
        for (place, row) in [(0, 3), (1, 1)] {
            let image = case.window.image(&residuals.row(place));
            for (c, &site) in case.window.sites().iter().enumerate() {
                let explained: f64 =
                    case.loadings.row(row).iter().map(|e| e.weight * columns.feature(e.feature)[c]).sum();
                let known = (image[site] - (case.data.row(row)[c] - explained)).abs() < 1e-12;
                assert_eq!(known, !HOLES.contains(&(row, c as u32)), "row {row}, column {c}");
            }
        }
    }
}
