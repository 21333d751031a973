//! Rows by column to spectra, in the units of the site scales.

use crate::data::Mask;
use crate::numeric::workers::share;
use crate::structure::{Direction, Structure};

/// Rows that are transformed at a time.
pub const BLOCK: usize = 64;

/// Rows by column to spectra.
pub struct Spectra<'a> {
    /// The basis.
    pub structure: &'a Structure,
    /// The sites that take part.
    pub mask: &'a Mask,
    /// What each column is divided by.
    pub scales: &'a [f64],
}

impl Spectra<'_> {
    /// The spectrum of a row that is divided by the scales, clipped, and 0 where nothing is known; and how much is known.
    fn of(&self, row: impl Iterator<Item = f64>, clip: f64, spectrum: &mut [f64], scratch: &mut Vec<f64>) -> usize {
        spectrum.fill(0.0);
        let mut n_seen = 0;
        for (column, (x, scale)) in row.zip(self.scales).enumerate().filter(|(_, (x, _))| !x.is_nan()) {
            spectrum[self.mask.site(column)] = (x / scale).clamp(-clip, clip);
            n_seen += 1;
        }
        self.structure.apply(Direction::ToSpectrum, spectrum, scratch);
        n_seen
    }

    /// Calls `visit` on the spectra of all rows in order; returns how much is known, in whole rows.
    pub fn for_each<Row: Iterator<Item = f64>>(
        &self,
        n_rows: usize,
        row: impl Fn(usize) -> Row + Sync,
        clip: f64,
        mut visit: impl FnMut(&[f64]),
    ) -> f64 {
        let n_modes = self.structure.n_sites();
        let mut spectra = vec![(vec![0.0; n_modes], 0); BLOCK.min(n_rows)];
        let mut n_seen = 0;
        for first in (0..n_rows).step_by(BLOCK) {
            let n = BLOCK.min(n_rows - first);
            share(spectra[..n].iter_mut().enumerate(), Vec::new, |scratch, (at, (spectrum, n_seen))| {
                *n_seen = self.of(row(first + at), clip, spectrum, scratch);
            });
            for (spectrum, n) in &spectra[..n] {
                visit(spectrum);
                n_seen += n;
            }
        }
        n_seen as f64 / n_modes as f64
    }

    /// The mean square of every mode, over the share of the grid that is known.
    pub fn powers<Row: Iterator<Item = f64>>(
        &self,
        n_rows: usize,
        row: impl Fn(usize) -> Row + Sync,
        clip: f64,
    ) -> Vec<f64> {
        let mut sums = vec![0.0; self.structure.n_sites()];
        let n = self.for_each(n_rows, row, clip, |spectrum| {
            sums.iter_mut().zip(spectrum).for_each(|(sum, x)| *sum += x * x);
        });
        sums.iter().map(|sum| sum / n).collect()
    }
}
