//! Data at some of their modes, gathered from where the rows are and shared out again.

use super::load::{hand_over, lay_out};
use super::{SpectralData, TILE, Tiles};
use crate::comm::{Comm, part_of};
use crate::numeric::linalg::Real;
use std::ops::Range;

/// Rows that a rank looks at together.
const AT_ONCE: usize = 256;

/// Data of whole rows at some modes (ascending).
pub fn at_modes<R: Real>(data: &SpectralData<R>, modes: &[usize], comm: &dyn Comm) -> SpectralData<R> {
    let (n_rows, size) = (data.n_rows(), comm.size());
    let mut chosen = data.beside(n_rows, Tiles::shared(modes.len(), comm));
    for first in (0..n_rows).step_by(AT_ONCE * size) {
        let n = (n_rows - first).min(AT_ONCE * size);
        let of_rank = |rank: usize| {
            let part = part_of(n, rank, size);
            first + part.start..first + part.end
        };
        let (first_row, values) = (of_rank(comm.rank()).start, some_rows(data, modes, comm, of_rank).concat());
        if chosen.tiles().is_shared() {
            hand_over(Some((first_row, &values[..])), &mut chosen, comm);
        } else {
            lay_out(&values, first_row, &mut chosen);
        }
    }
    chosen
}

/// Some rows, the part of each rank on that rank, at these modes wherever they are.
fn some_rows<R: Real>(
    data: &SpectralData<R>,
    modes: &[usize],
    comm: &dyn Comm,
    of_rank: impl Fn(usize) -> Range<usize>,
) -> Vec<Vec<R>> {
    let here = data.tiles().owned_modes();
    let places: Vec<(usize, usize)> =
        modes.iter().filter(|mode| here.contains(mode)).map(|mode| (mode / TILE, mode % TILE)).collect();
    let at = |row: usize| places.iter().map(move |&(tile, offset)| data.tile_row(tile, row)[offset]);
    if comm.size() == 1 {
        // Tile by tile: they may be in a file.
        let mut rows = vec![Vec::with_capacity(places.len()); of_rank(0).len()];
        for &(tile, offset) in &places {
            rows.iter_mut().zip(of_rank(0)).for_each(|(values, row)| values.push(data.tile_row(tile, row)[offset]));
        }
        return rows;
    }
    let parcels = (0..comm.size()).map(|rank| R::write(&of_rank(rank).flat_map(at).collect::<Vec<R>>()));
    let parcels: Vec<Vec<R>> = comm.exchange(parcels.collect()).iter().map(|bytes| R::read(bytes)).collect();
    let n_rows = of_rank(comm.rank()).len();
    let piece = |parcel: &Vec<R>, row: usize| {
        let width = parcel.len() / n_rows;
        parcel[row * width..(row + 1) * width].to_vec()
    };
    // Ranks hold consecutive modes, so that this is their order.
    (0..n_rows).map(|row| parcels.iter().flat_map(|parcel| piece(parcel, row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::local::Local;

    /// What rows of numbers are at some modes, on so many ranks.
    fn at_modes_on(size: usize, rows: &[Vec<f64>], modes: &[usize]) -> Vec<Vec<f64>> {
        let parts = Local::run(size, |comm| {
            let mut data = SpectralData::<f64>::zeros(rows.len(), Tiles::shared(rows[0].len(), comm.as_ref()));
            let here = data.tiles().owned_modes();
            let values: Vec<f64> = rows.iter().flat_map(|row| row[here.clone()].to_vec()).collect();
            if !here.is_empty() {
                lay_out(&values, 0, &mut data);
            }
            let chosen = at_modes(&data, modes, comm.as_ref());
            let tiles = chosen.tiles();
            let row = |row: usize| tiles.owned().flat_map(|tile| chosen.tile_row(tile, row).to_vec()).collect();
            (0..rows.len()).map(row).collect::<Vec<Vec<f64>>>()
        });
        (0..rows.len()).map(|row| parts.iter().flat_map(|part| part[row].clone()).collect()).collect()
    }

    #[test]
    fn modes_are_those_of_the_rows_on_any_number_of_ranks() {
        let modes: Vec<usize> = (0..1050).filter(|mode| mode % 35 < 11).collect();
        let value = |row: usize, mode: usize| ((row * 37 + mode * 11) as f64 * 0.7).sin();
        let rows: Vec<Vec<f64>> = (0..300).map(|row| (0..1050).map(|mode| value(row, mode)).collect()).collect();
        let expected: Vec<Vec<f64>> = rows.iter().map(|row| modes.iter().map(|&mode| row[mode]).collect()).collect();
        for size in [1, 2, 3, 7] {
            assert!(at_modes_on(size, &rows, &modes) == expected, "{size} ranks");
        }
    }
}
