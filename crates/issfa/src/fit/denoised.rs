//! Denoised rows, one by one: the mean of what the features of a chain, or of several, explain, in the data's units.

use super::prepared::About;
use crate::data::nifti::Header;
use crate::data::preprocess::MeansOf;
use crate::data::runs::NamedRun;
use crate::data::write::NpyWriter;
use crate::data::{Array, Mask, read};
use crate::error::{Error, Result};
use crate::numeric::workers::share;
use crate::run::folder::RECONSTRUCTION;
use crate::spectral::SpectralData;
use crate::summary::export::RunImages;
use std::path::{Path, PathBuf};

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

/// The mean of the denoised rows of chains that kept so many sweeps each, in files, as the file of a run; for images, with the
/// images of its runs.
pub(super) fn join_reconstructions(
    chains: &[(PathBuf, u64)],
    folder: &Path,
    space: Option<(&Header, &Mask, &[NamedRun])>,
) -> Result<()> {
    let sources = chains.iter().map(|(path, n)| Ok((read::open(path)?, *n))).collect::<Result<Vec<_>>>()?;
    let Some((first, _)) = sources.first() else { return Ok(()) };
    let (n_rows, n_sites) = (first.n_rows(), first.n_sites());
    for (source, _) in &sources {
        if (source.n_rows(), source.n_sites()) != (n_rows, n_sites) {
            let problem = format!("does not have the {n_rows} rows of {n_sites} sites of {}", first.path().display());
            return Err(Error::malformed(source.path(), problem));
        }
    }
    let grid = first.grid().map_or(vec![n_sites], <[usize]>::to_vec);
    let shape: Vec<usize> = std::iter::once(n_rows).chain(grid).collect();
    let mut array = NpyWriter::create(&folder.join(RECONSTRUCTION), &shape)?;
    let mut images = space.map(|(space, mask, runs)| (RunImages::new(folder, space, runs), mask));
    let mut rows = vec![vec![0.0; n_sites]; sources.len()];
    for row in 0..n_rows {
        for ((source, _), values) in sources.iter().zip(&mut rows) {
            source.read_rows(row, values)?;
        }
        let parts: Vec<(&[f64], u64)> = rows.iter().zip(&sources).map(|(values, (_, n))| (&values[..], *n)).collect();
        let mean = weighted_mean(&parts);
        array.write_values(&mean)?;
        images.as_mut().map_or(Ok(()), |(images, mask)| images.push(&mean, mask))?;
    }
    array.finish()
}

/// The same in memory; nothing of nothing.
pub(super) fn mean_of(chains: &[(&Array, u64)]) -> Option<Array> {
    let (first, _) = chains.first()?;
    let wide: Vec<Vec<f64>> =
        chains.iter().map(|(array, _)| array.values.iter().map(|&x| f64::from(x)).collect()).collect();
    let parts: Vec<(&[f64], u64)> = wide.iter().zip(chains).map(|(values, (_, n))| (&values[..], *n)).collect();
    Some(Array::new(&first.shape, weighted_mean(&parts)))
}

fn weighted_mean(parts: &[(&[f64], u64)]) -> Vec<f32> {
    let total = parts.iter().map(|(_, n)| n).sum::<u64>().max(1) as f64;
    let n_values = parts.first().map_or(0, |(values, _)| values.len());
    let mean = |at: usize| parts.iter().map(|(values, n)| values[at] * *n as f64).sum::<f64>() / total;
    (0..n_values).map(|at| mean(at) as f32).collect()
}
