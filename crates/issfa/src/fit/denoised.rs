//! The denoised rows of a chain, one by one: the mean of what its features explain, in the data's units.

use super::prepared::About;
use crate::data::preprocess::MeansOf;
use crate::error::Result;
use crate::numeric::workers::share;
use crate::spectral::SpectralData;

/// Rows that are shown at a time.
const BLOCK: usize = 64;

/// The posterior mean of `W S`, and what it takes to show its rows.
pub struct DenoisedRows<'a> {
    pub(super) about: &'a About,
    pub(super) mean: &'a SpectralData<f32>,
}

impl DenoisedRows<'_> {
    /// Rows of the input, and the grid.
    pub fn shape(&self) -> Vec<usize> {
        let n_rows = self.mean.n_rows() + self.about.record.empty_rows.len();
        std::iter::once(n_rows).chain(self.about.structure.grid().iter().copied()).collect()
    }

    /// Calls `visit` on every row of the input in order; rows without any value are NaN, as is what the mask leaves out.
    pub fn for_each(&self, visit: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let About { record, structure, mask, preprocessing, row_means, row_levels, .. } = self.about;
        let shown = self.about.shown();
        let mut block: Vec<Vec<f64>> = Vec::new();
        let nothing = vec![f32::NAN; structure.n_sites()];
        let (mut fitted, mut place) = (0usize, 0usize);
        for (run, named) in record.runs.iter().enumerate() {
            for _ in 0..named.n_rows {
                if record.empty_rows.contains(&place) {
                    visit(&nothing)?;
                } else {
                    if fitted.is_multiple_of(BLOCK) {
                        let rows = fitted..self.mean.n_rows().min(fitted + BLOCK);
                        block = rows.map(|row| self.mean.row(row)).collect();
                        share(block.iter_mut(), Vec::new, |scratch, row| {
                            *row = shown.prepared(std::mem::take(row), scratch);
                        });
                    }
                    let mut columns = std::mem::take(&mut block[fitted % BLOCK]);
                    let level = row_levels.get(fitted).copied().unwrap_or(1.0);
                    columns.iter_mut().for_each(|x| *x *= level);
                    let row_mean = row_means.get(fitted).copied().unwrap_or(0.0);
                    preprocessing.restore(&mut columns, MeansOf::Run(run), row_mean);
                    let columns: Vec<f32> = columns.iter().map(|&x| x as f32).collect();
                    visit(&mask.scatter(&columns, f32::NAN))?;
                    fitted += 1;
                }
                place += 1;
            }
        }
        Ok(())
    }
}
