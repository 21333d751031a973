//! Rows into spectral tiles, as a stream: read a chunk, prepare and transform its rows in parallel, lay them out.

use super::preprocess::MeansOf;
use super::{Observations, Preprocessing};
use crate::error::Result;
use crate::linalg::Real;
use crate::spectral::{SpectralData, TILE, Window};
use crate::structure::{Direction, Structure};
use crate::workers::share;
use std::path::Path;
use std::sync::Arc;

/// Rows ready for the sampler: as spectra, or by site with the window that says which cells they hold.
pub struct Loaded<R> {
    pub data: SpectralData<R>,
    pub window: Option<Window>,
}

/// Loads the training rows, each centred by the means of its run, into memory or into a file in `spill`.
pub fn training_rows<R: Real>(
    observations: &Observations,
    structure: &Arc<Structure>,
    preprocessing: &Preprocessing,
    spill: Option<&Path>,
) -> Result<Loaded<R>> {
    let (n_rows, n_columns) = (observations.n_rows(), observations.n_columns());
    let holes = find_holes(observations)?;
    let is_partial = !observations.mask().is_full() || holes.iter().any(|holes| !holes.is_empty());
    let mut data = match spill {
        None => SpectralData::zeros(n_rows, n_columns),
        Some(folder) => SpectralData::spilled(n_rows, n_columns, folder)?,
    };
    let covariates = observations.covariates();
    observations.for_each_chunk(&mut |run, first_row, values| {
        let prepare = |at: usize, row: &mut [f64]| {
            preprocessing.apply(row, covariates.row(first_row + at), MeansOf::Run(run));
        };
        if is_partial {
            share(
                values.chunks_exact_mut(n_columns).enumerate(),
                || (),
                |_, (at, row)| {
                    prepare(at, row);
                    row.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = 0.0);
                },
            );
        } else {
            to_spectra(values, structure, prepare);
        }
        lay_out(values, first_row, &mut data);
        Ok(())
    })?;
    let window = is_partial.then(|| Window::new(structure.clone(), observations.mask().sites(), holes));
    Ok(Loaded { data, window })
}

/// The columns that each row lacks.
fn find_holes(observations: &Observations) -> Result<Vec<Vec<u32>>> {
    let mut holes = vec![Vec::new(); observations.n_rows()];
    if !observations.may_have_holes() {
        return Ok(holes);
    }
    observations.for_each_chunk(&mut |_, first_row, values| {
        for (at, row) in values.chunks_exact(observations.n_columns()).enumerate() {
            holes[first_row + at] = holes_of(row);
        }
        Ok(())
    })?;
    Ok(holes)
}

/// The columns at which a row is NaN.
pub fn holes_of(row: &[f64]) -> Vec<u32> {
    (0..row.len()).filter(|&column| row[column].is_nan()).map(|column| column as u32).collect()
}

/// Prepares and transforms every row of a block, in parallel; `prepare` gets the row's place in the block.
pub fn to_spectra(values: &mut [f64], structure: &Structure, prepare: impl Fn(usize, &mut [f64]) + Sync) {
    let rows = values.chunks_exact_mut(structure.n_sites()).enumerate();
    share(rows, Vec::new, |scratch, (at, row)| {
        prepare(at, row);
        structure.apply(Direction::ToSpectrum, row, scratch);
    });
}

/// Copies a block of full spectra into their places in the tiles.
pub fn lay_out<R: Real>(spectra: &[f64], first_row: usize, data: &mut SpectralData<R>) {
    let (n_rows, n_modes) = (data.n_rows(), data.n_modes());
    share(
        data.tile_slices_mut().enumerate(),
        || (),
        |_, (tile, place)| {
            let width = place.len() / n_rows;
            let rows = place[first_row * width..].chunks_exact_mut(width);
            for (to, spectrum) in rows.zip(spectra.chunks_exact(n_modes)) {
                let from = &spectrum[tile * TILE..tile * TILE + width];
                to.iter_mut().zip(from).for_each(|(to, x)| *to = R::from_f64(*x));
            }
        },
    );
}
