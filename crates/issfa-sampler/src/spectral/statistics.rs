//! Small sums over modes: one slot a tile, added in tile order on every rank alike.

use super::{FeatureSpectra, SpectralData, TILE, Tiles};
use crate::comm::{Comm, all_gather_known_values};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use std::ops::Range;

/// Sums of rows are taken for so many at a time: a slot for every row and tile would be a good part of the data.
const ROWS_AT_ONCE: usize = 1024;

/// Sums over all modes of what `part` adds up over the modes of one tile, `n_sums` numbers at a time.
///
/// `part(tile, modes, slots)` fills slots that start at zero, on the first rank that holds the tile.
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
    let some: Vec<usize> = some.into_iter().collect();
    let (owned, within) = (tiles.owned(), |tiles: Range<usize>| some.iter().filter(move |tile| tiles.contains(tile)));
    let here: Vec<usize> = within(owned).copied().filter(|_| tiles.speaks()).collect();
    let mut slots = vec![0.0; here.len() * n_sums];
    let places = here.iter().zip(slots.chunks_mut(n_sums.max(1)));
    share(places, || (), |_, (&tile, slot)| part(tile, tiles.modes(tile), slot));
    if tiles.is_shared() && n_sums > 0 {
        // Those that speak hold consecutive tiles, so that this is the order of tiles.
        let lengths = tiles.spoken_for(comm.size()).map(|tiles| within(tiles).count() * n_sums);
        slots = all_gather_known_values(comm, &slots, lengths);
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

/// The squared norm of every row of the data, on every rank.
pub fn squared_row_norms<R: Real>(data: &SpectralData<R>) -> Vec<f64> {
    let (tiles, line) = (data.tiles().each_once(), data.sharing().same_rows());
    let n_here = data.rows_here().len();
    let of_rows = |first: usize| {
        let n_rows = ROWS_AT_ONCE.min(n_here - first);
        sum_over_tiles(tiles, n_rows, line, |tile, modes, slots| {
            let here = data.rows_here();
            data.look_ahead_at(tile, here.start + first..here.start + first + n_rows);
            let rows = data.tile_alone(tile)[first * modes.len()..].chunks_exact(modes.len());
            slots.iter_mut().zip(rows).for_each(|(slot, row)| *slot = row.iter().map(|x| x.to_f64().powi(2)).sum());
        })
    };
    data.sharing().from_lines((0..n_here).step_by(ROWS_AT_ONCE).flat_map(of_rows).collect())
}

/// Sums over rows, of `n` numbers a mode, at each tile that is here, as every rank that holds the tile knows them.
///
/// `add(tile, rows, sums)` adds up the rows of a band, on the rank that holds them, into sums that start at zero; of all rows it
/// looks at some.
pub fn sum_over_rows<R: Real>(
    data: &SpectralData<R>,
    some: &[usize],
    n: usize,
    add: impl Fn(usize, Range<usize>, &mut [f64]) + Sync,
) -> Vec<(usize, Vec<f64>)> {
    let (tiles, layout) = (data.tiles(), data.layout());
    let mut of_tiles: Vec<(usize, Vec<Vec<f64>>)> = tiles.owned().map(|tile| (tile, Vec::new())).collect();
    share(
        of_tiles.iter_mut(),
        || (),
        |(), (tile, bands)| {
            data.look_ahead(*tile, some);
            for (_, rows) in layout.bands_here() {
                let mut sums = vec![0.0; n * tiles.width(*tile)];
                add(*tile, rows, &mut sums);
                // Where no one else has a band, their sums need not be kept apart.
                match bands.last_mut().filter(|_| !layout.cuts_rows()) {
                    Some(total) => total.iter_mut().zip(sums).for_each(|(total, x)| *total += x),
                    None => bands.push(sums),
                }
            }
        },
    );
    let n_bands = of_tiles.iter().map(|(_, bands)| bands.len()).max().unwrap_or(0);
    let band = |at: usize| of_tiles.iter().flat_map(|(_, bands)| &bands[at]).copied().collect();
    let n_sums = if layout.cuts_rows() { layout.bands_here().len() } else { n_bands };
    let bands: Vec<Vec<f64>> = (0..n_sums).map(|at| if n_bands == 0 { Vec::new() } else { band(at) }).collect();
    let sums = data.sharing().sum_over_bands(&bands);
    tiles.owned().zip(sums.chunks((n * TILE).max(1)).map(<[f64]>::to_vec)).collect()
}

/// The features `sum_t w_tk Y_t`, one for each column of `weights` (a list of (row, weight) a feature, in the order of rows).
pub fn weighted_rows<R: Real>(data: &SpectralData<R>, weights: &[Vec<(usize, f64)>]) -> FeatureSpectra<R> {
    let mut spectra = FeatureSpectra::none(data.tiles());
    spectra.grow(weights.len());
    let some: Vec<usize> = weights.iter().flatten().map(|(row, _)| *row).collect();
    let sums = sum_over_rows(data, &some, weights.len(), |tile, rows, sums| {
        for (list, sum) in weights.iter().zip(sums.chunks_exact_mut(data.tiles().width(tile))) {
            for &(row, weight) in within(list, &rows) {
                let values = data.tile_row(tile, row);
                sum.iter_mut().zip(&*values).for_each(|(s, y)| *s += weight * y.to_f64());
            }
        }
    });
    for ((_, out), (_, sums)) in spectra.tiles_mut().zip(sums) {
        out.iter_mut().zip(sums).for_each(|(to, x)| *to = R::from_f64(x));
    }
    spectra
}

/// Those of a list by row, ascending, whose rows are among these.
pub fn within<'a, T>(list: &'a [(usize, T)], rows: &Range<usize>) -> &'a [(usize, T)] {
    let place = |row: usize| list.partition_point(|(other, _)| *other < row);
    &list[place(rows.start)..place(rows.end)]
}
