//! Small sums over modes: one slot a tile, added in tile order on every rank alike.

use super::{FeatureSpectra, SpectralData, TILE, Tiles};
use crate::comm::{Comm, all_gather_values};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use std::ops::Range;

/// Sums of rows are taken for so many at a time: a slot for every row and tile would be a good part of the data.
const ROWS_AT_ONCE: usize = 1024;

/// Sums over all modes of what `part` adds up over the modes of one tile, `n_sums` numbers at a time.
///
/// `part(tile, modes, slots)` fills slots that start at zero, on the rank that holds the tile.
pub fn sum_over_tiles(
    tiles: Tiles,
    n_sums: usize,
    comm: &dyn Comm,
    part: impl Fn(usize, Range<usize>, &mut [f64]) + Sync,
) -> Vec<f64> {
    sum_over_some_tiles(tiles, 0..tiles.len(), n_sums, comm, part)
}

/// [`sum_over_tiles`] of some of all tiles, in ascending order.
pub fn sum_over_some_tiles(
    tiles: Tiles,
    some: impl IntoIterator<Item = usize>,
    n_sums: usize,
    comm: &dyn Comm,
    part: impl Fn(usize, Range<usize>, &mut [f64]) + Sync,
) -> Vec<f64> {
    let owned = tiles.owned();
    let here: Vec<usize> = some.into_iter().filter(|tile| owned.contains(tile)).collect();
    let mut slots = vec![0.0; here.len() * n_sums];
    let places = here.iter().zip(slots.chunks_mut(n_sums.max(1)));
    share(places, || (), |_, (&tile, slot)| part(tile, tiles.modes(tile), slot));
    if tiles.is_shared() && n_sums > 0 {
        // Ranks hold consecutive tiles, so that this is the order of tiles.
        slots = all_gather_values(comm, &slots);
    }
    let mut sums = vec![0.0; n_sums];
    for slot in slots.chunks_exact(n_sums.max(1)) {
        sums.iter_mut().zip(slot).for_each(|(sum, part)| *sum += part);
    }
    sums
}

/// `sum_k S_kv^2` for every mode v; 0 at modes that are elsewhere.
pub fn mode_energies<R: Real>(spectra: &FeatureSpectra<R>) -> Vec<f64> {
    let tiles = spectra.tiles();
    let mut energies = vec![0.0; tiles.n_modes];
    let work = |_: &mut (), (tile, energy): (usize, &mut [f64])| {
        for row in spectra.tile(tile).chunks_exact(tiles.width(tile)) {
            energy.iter_mut().zip(row).for_each(|(e, x)| *e += x.to_f64() * x.to_f64());
        }
    };
    let owned = tiles.owned();
    let places = energies[tiles.owned_modes()].chunks_mut(TILE).enumerate();
    share(places.map(|(at, energy)| (owned.start + at, energy)), || (), work);
    energies
}

/// The squared norm of every row of the data.
pub fn squared_row_norms<R: Real>(data: &SpectralData<R>, comm: &dyn Comm) -> Vec<f64> {
    let of_rows = |first: usize| {
        let n_rows = ROWS_AT_ONCE.min(data.n_rows() - first);
        sum_over_tiles(data.tiles(), n_rows, comm, |tile, modes, slots| {
            let rows = data.tile(tile)[first * modes.len()..].chunks_exact(modes.len());
            slots.iter_mut().zip(rows).for_each(|(slot, row)| *slot = row.iter().map(|x| x.to_f64().powi(2)).sum());
        })
    };
    (0..data.n_rows()).step_by(ROWS_AT_ONCE).flat_map(of_rows).collect()
}

/// The features `sum_t w_tk Y_t`, one for each column of `weights` (a list of (row, weight) a feature).
pub fn weighted_rows<R: Real>(data: &SpectralData<R>, weights: &[Vec<(usize, f64)>]) -> FeatureSpectra<R> {
    let mut spectra = FeatureSpectra::none(data.tiles());
    spectra.grow(weights.len());
    let work = |sum: &mut Vec<f64>, (tile, out): (usize, &mut [R])| {
        let width = data.tiles().width(tile);
        for (list, out) in weights.iter().zip(out.chunks_exact_mut(width)) {
            sum.clear();
            sum.resize(width, 0.0);
            for &(row, weight) in list {
                let values = data.tile_row(tile, row);
                sum.iter_mut().zip(values).for_each(|(s, y)| *s += weight * y.to_f64());
            }
            out.iter_mut().zip(sum.iter()).for_each(|(to, x)| *to = R::from_f64(*x));
        }
    };
    share(spectra.tiles_mut(), Vec::new, work);
    spectra
}
