//! The way of a row through the filter and back.
//!
//! With scales `D`, powers `b` and the basis `U`, a row `y` inside the mask `P` becomes `P U b^-1/2 U' P' D^-1 y` over its
//! level: white, where the noise is stationary once it is divided by the scales; exactly so without a mask, and but
//! for a rim with one; then it is divided by the sampler's unit, so that rows have a mean square of about 1. What a fit shows goes the way back. Both ways, and the filling of missing cells, solve systems
//! `P U p U' P' x = y` by conjugate gradients, preconditioned by `P U p^-1 U' P'`.

use super::Reference;
use crate::data::Mask;
use crate::structure::{Direction, Structure};
use std::sync::Arc;

/// The residual, beside the right side, at which a system is solved.
const SOLVED: f64 = 1e-7;
const MOST_STEPS: usize = 400;

/// A filter for rows.
#[derive(Clone, Copy)]
pub struct RowNoise<'a> {
    /// The filter.
    pub filter: &'a Filter,
    /// The level of each row.
    pub levels: &'a [f64],
}

/// A reference laid over the modes of a structure and the sites of a mask.
pub struct Filter {
    reference: Reference,
    structure: Arc<Structure>,
    mask: Mask,
    /// By mode: the noise's power, its root, and the rows' power.
    powers: Vec<f64>,
    roots: Vec<f64>,
    row_powers: Vec<f64>,
}

impl Filter {
    /// For rows at the sites of a mask.
    pub fn new(reference: Reference, structure: Arc<Structure>, mask: Mask) -> Filter {
        assert_eq!(reference.site_scales.len(), mask.n_columns(), "a scale for each site that takes part");
        let bands: Vec<usize> = structure.eigenvalues().iter().map(|&value| reference.band(value)).collect();
        let powers: Vec<f64> = bands.iter().map(|&band| reference.powers[band]).collect();
        let row_powers = bands.iter().map(|&band| reference.row_powers[band]).collect();
        let roots = powers.iter().map(|power| power.sqrt()).collect();
        Filter { reference, structure, mask, powers, roots, row_powers }
    }

    /// What was measured.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The noise's power at every mode: what the prior precision of a feature is multiplied by when it is filtered.
    pub fn powers(&self) -> &[f64] {
        &self.powers
    }

    /// A prepared row by column, in the data's units, as a white spectrum; of a whole grid, without missing cells.
    pub fn to_spectrum(&self, row: &mut [f64], level: f64, scratch: &mut Vec<f64>) {
        self.divide(row, level);
        self.structure.apply(Direction::ToSpectrum, row, scratch);
        row.iter_mut().zip(&self.roots).for_each(|(x, root)| *x /= root);
    }

    /// A prepared row by column, in the data's units, as white values by column. Missing cells (NaN) are filled in on the
    /// way, and stay missing.
    pub fn to_columns(&self, row: &mut [f64], level: f64, scratch: &mut Vec<f64>) {
        let holes: Vec<usize> = (0..row.len()).filter(|&column| row[column].is_nan()).collect();
        self.divide(row, level);
        if !holes.is_empty() {
            self.predict(row, &self.row_powers, scratch);
        }
        self.whiten(row, scratch);
        holes.iter().for_each(|&column| row[column] = f64::NAN);
    }

    /// Scaled columns to white columns.
    pub(super) fn whiten(&self, row: &mut [f64], scratch: &mut Vec<f64>) {
        let inverse_roots: Vec<f64> = self.roots.iter().map(|root| 1.0 / root).collect();
        let sites = self.mask.sites();
        let white = self.multiply(&inverse_roots, &sites, row, &sites, scratch);
        row.copy_from_slice(&white);
    }

    /// Fills in the NaN of a row of residuals (in the data's units) by the mean of the noise there, given that at the other
    /// columns.
    pub fn noise_given_the_rest(&self, residual: &mut [f64], level: f64, scratch: &mut Vec<f64>) {
        self.divide(residual, level);
        self.predict(residual, &self.powers, scratch);
        let factor = level * self.reference.unit;
        residual.iter_mut().zip(&self.reference.site_scales).for_each(|(x, scale)| *x *= scale * factor);
    }

    /// Fills in the NaN of a scaled row of noise by their mean given the rest.
    pub(super) fn fill_in_noise(&self, row: &mut [f64], scratch: &mut Vec<f64>) {
        if row.iter().any(|x| x.is_nan()) {
            self.predict(row, &self.powers, scratch);
        }
    }

    fn divide(&self, row: &mut [f64], level: f64) {
        let factor = level * self.reference.unit;
        row.iter_mut().zip(&self.reference.site_scales).for_each(|(x, scale)| *x /= scale * factor);
    }

    /// The image of a white spectrum in the data's units, by column, for a level of 1.
    pub fn show(&self, mut spectrum: Vec<f64>, scratch: &mut Vec<f64>) -> Vec<f64> {
        let mut columns = if self.mask.is_full() {
            spectrum.iter_mut().zip(&self.roots).for_each(|(x, root)| *x *= root);
            self.structure.apply(Direction::ToSites, &mut spectrum, scratch);
            spectrum
        } else {
            self.structure.apply(Direction::ToSites, &mut spectrum, scratch);
            let inverse_roots: Vec<f64> = self.roots.iter().map(|root| 1.0 / root).collect();
            let sites = self.mask.sites();
            self.solve(&inverse_roots, &sites, &self.mask.gather(&spectrum), scratch)
        };
        let unit = self.reference.unit;
        columns.iter_mut().zip(&self.reference.site_scales).for_each(|(x, scale)| *x *= scale * unit);
        columns
    }

    /// Fills in the NaN of a scaled row by their mean given the rest, for a field with these powers.
    fn predict(&self, row: &mut [f64], powers: &[f64], scratch: &mut Vec<f64>) {
        let (seen, unseen): (Vec<usize>, Vec<usize>) = (0..row.len()).partition(|&column| !row[column].is_nan());
        let values: Vec<f64> = seen.iter().map(|&column| row[column]).collect();
        let sites = |columns: &[usize]| columns.iter().map(|&column| self.mask.site(column)).collect::<Vec<_>>();
        let solution = self.solve(powers, &sites(&seen), &values, scratch);
        let predicted = self.multiply(powers, &sites(&seen), &solution, &sites(&unseen), scratch);
        unseen.iter().zip(predicted).for_each(|(&column, x)| row[column] = x);
    }

    /// `U powers U'` from values at some sites to those at others.
    fn multiply(
        &self,
        powers: &[f64],
        from: &[usize],
        values: &[f64],
        to: &[usize],
        scratch: &mut Vec<f64>,
    ) -> Vec<f64> {
        let mut image = vec![0.0; self.structure.n_sites()];
        from.iter().zip(values).for_each(|(&site, &x)| image[site] = x);
        self.structure.apply(Direction::ToSpectrum, &mut image, scratch);
        image.iter_mut().zip(powers).for_each(|(x, power)| *x *= power);
        self.structure.apply(Direction::ToSites, &mut image, scratch);
        to.iter().map(|&site| image[site]).collect()
    }

    /// The values at some sites that `U powers U'`, cut to them, makes the right side of.
    fn solve(&self, powers: &[f64], sites: &[usize], right: &[f64], scratch: &mut Vec<f64>) -> Vec<f64> {
        let inverse: Vec<f64> = powers.iter().map(|power| 1.0 / power).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let enough = SOLVED * SOLVED * dot(right, right);
        let (mut solution, mut residual) = (vec![0.0; right.len()], right.to_vec());
        let mut direction = self.multiply(&inverse, sites, &residual, sites, scratch);
        let mut size = dot(&residual, &direction);
        for _ in 0..MOST_STEPS {
            if dot(&residual, &residual) <= enough {
                break;
            }
            let applied = self.multiply(powers, sites, &direction, sites, scratch);
            let step = size / dot(&direction, &applied);
            solution.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
            residual.iter_mut().zip(&applied).for_each(|(r, a)| *r -= step * a);
            let preconditioned = self.multiply(&inverse, sites, &residual, sites, scratch);
            let next = dot(&residual, &preconditioned);
            direction.iter_mut().zip(&preconditioned).for_each(|(d, p)| *d = p + next / size * *d);
            size = next;
        }
        solution
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Findings, Reference};
    use super::*;
    use crate::numeric::linalg::{cholesky, solve_cholesky};
    use crate::structure::expression;

    fn filter(inside: &[bool]) -> Filter {
        let structure = Arc::new(expression::build(Some("path(6) x cycle(5)"), None).unwrap());
        let mask = Mask::from_inside(inside);
        let findings = Findings {
            n_rows: 9,
            n_differences: 8,
            ratio: 1.0,
            is_series: true,
            share: 0.5,
            between_sites: 2.0,
            full_width: None,
            level: 1.0,
            between_rows: None,
        };
        let reference = Reference {
            structure: structure.identity(),
            mask_checksum: mask.checksum(),
            site_scales: (0..mask.n_columns()).map(|column| 0.5 + 0.1 * column as f64).collect(),
            band_ends: vec![0.9, 2.5],
            powers: vec![30.0, 3.0, 0.4],
            row_powers: vec![90.0, 4.0, 0.5],
            run_levels: vec![1.5],
            row_factors: Vec::new(),
            level: 1.4,
            of_differences: 1.0,
            unit: 2.5,
            findings,
        };
        Filter::new(reference, structure, mask)
    }

    fn ellipse() -> Vec<bool> {
        (0..30).map(|at| (at / 5 + at % 5) % 4 != 0).collect()
    }

    /// `U powers U'` written out.
    fn covariance(filter: &Filter, powers: &[f64]) -> Vec<f64> {
        let all: Vec<usize> = (0..30).collect();
        let unit = |site: usize| (0..30).map(|at| f64::from(u8::from(at == site))).collect::<Vec<f64>>();
        all.iter().flat_map(|&site| filter.multiply(powers, &all, &unit(site), &all, &mut Vec::new())).collect()
    }

    #[test]
    fn filtered_rows_come_back() {
        for inside in [vec![true; 30], ellipse()] {
            let filter = filter(&inside);
            let n = filter.mask.n_columns();
            let row: Vec<f64> = (0..n).map(|at| (at as f64 * 1.7).sin() * 3.0).collect();
            let mut white = row.clone();
            filter.to_columns(&mut white, 1.5, &mut Vec::new());
            assert!(white.iter().zip(&row).any(|(a, b)| (a - b).abs() > 0.1));
            let mut image = filter.mask.scatter(&white, 0.0);
            filter.structure.apply(Direction::ToSpectrum, &mut image, &mut Vec::new());
            if filter.mask.is_full() {
                let mut spectrum = row.clone();
                filter.to_spectrum(&mut spectrum, 1.5, &mut Vec::new());
                assert!(spectrum.iter().zip(&image).all(|(a, b)| (a - b).abs() < 1e-12));
            }
            let shown = filter.show(image, &mut Vec::new());
            let worst = shown.iter().zip(&row).map(|(a, b)| (1.5 * a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-5, "{worst}");
        }
    }

    /// Whole rows of the noise that the reference stands for have the identity for covariance once they are filtered.
    #[test]
    fn noise_of_the_reference_becomes_white() {
        let filter = filter(&[true; 30]);
        let noise = covariance(&filter, &filter.powers);
        let inverse_roots: Vec<f64> = filter.roots.iter().map(|root| 1.0 / root).collect();
        let whitening = covariance(&filter, &inverse_roots);
        let product = |a: &[f64], b: &[f64]| -> Vec<f64> {
            (0..900).map(|at| (0..30).map(|k| a[at / 30 * 30 + k] * b[k * 30 + at % 30]).sum()).collect()
        };
        let white = product(&product(&whitening, &noise), &whitening);
        assert!((0..900).all(|at| (white[at] - f64::from(u8::from(at / 30 == at % 30))).abs() < 1e-12));
    }

    /// The filled-in cells are `C_hidden,seen C_seen,seen^-1 y_seen`, by dense algebra.
    #[test]
    fn missing_cells_are_filled_in_by_their_mean_given_the_rest() {
        let filter = filter(&ellipse());
        let dense = covariance(&filter, &filter.powers);
        let sites = filter.mask.sites();
        let mut row: Vec<f64> = (0..sites.len()).map(|at| (at as f64 * 0.9).cos()).collect();
        let truth = row.clone();
        [2, 3, 11].iter().for_each(|&column| row[column] = f64::NAN);
        let seen: Vec<usize> = (0..sites.len()).filter(|&column| !row[column].is_nan()).collect();
        let n = seen.len();
        let scale = |column: usize| 1.3 * filter.reference.site_scales[column];
        let block: Vec<f64> = (0..n * n).map(|at| dense[sites[seen[at / n]] * 30 + sites[seen[at % n]]]).collect();
        let lower = cholesky(&block, n).unwrap();
        let scaled: Vec<f64> = seen.iter().map(|&column| truth[column] / scale(column)).collect();
        let x = solve_cholesky(&lower, &scaled);
        filter.noise_given_the_rest(&mut row, 1.3, &mut Vec::new());
        for column in [2, 3, 11] {
            let mean: f64 = (0..n).map(|j| dense[sites[column] * 30 + sites[seen[j]]] * x[j]).sum();
            assert!((row[column] - mean * scale(column)).abs() < 1e-5, "{} {}", row[column], mean * scale(column));
        }
        assert!(seen.iter().all(|&column| (row[column] - truth[column]).abs() < 1e-12));
    }
}
