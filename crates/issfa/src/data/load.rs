//! Rows into spectral tiles, as a stream: read a chunk, prepare and transform its rows in parallel, lay them out.

use super::preprocess::MeansOf;
use super::{Observations, Preprocessing};
use crate::error::Result;
use crate::linalg::Real;
use crate::spectral::{SpectralData, TILE};
use crate::structure::{Direction, Structure};
use crate::workers::share;
use std::path::Path;

/// Loads the training rows, each centred by the means of its run, into memory or into a file in `spill`.
pub fn training_rows<R: Real>(
    observations: &Observations,
    structure: &Structure,
    preprocessing: &Preprocessing,
    spill: Option<&Path>,
) -> Result<SpectralData<R>> {
    let (n_rows, n_sites) = (observations.n_rows(), observations.n_sites());
    let mut data = match spill {
        None => SpectralData::zeros(n_rows, n_sites),
        Some(folder) => SpectralData::spilled(n_rows, n_sites, folder)?,
    };
    observations.for_each_chunk(&mut |run, first_row, values| {
        to_spectra(values, structure, |row| {
            preprocessing.apply(row, MeansOf::Run(run));
        });
        lay_out(values, first_row, &mut data);
        Ok(())
    })?;
    Ok(data)
}

/// Prepares and transforms every row of a block, in parallel.
pub fn to_spectra(values: &mut [f64], structure: &Structure, prepare: impl Fn(&mut [f64]) + Sync) {
    let rows = values.chunks_exact_mut(structure.n_sites());
    share(rows, Vec::new, |scratch, row| {
        prepare(row);
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
