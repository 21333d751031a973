//! Data at some of their modes, gathered from where the rows are and shared out again.

use super::{Layout, SpectralData, TILE};
use crate::numeric::linalg::Real;
use std::ops::Range;

/// Rows that a rank looks at together.
const AT_ONCE: usize = 256;

/// Data of whole rows at some modes (ascending). All ranks together.
pub fn at_modes<R: Real>(data: &SpectralData<R>, modes: &[usize]) -> SpectralData<R> {
    let sharing = data.sharing().of_modes(modes.len());
    let mut chosen = data.beside(&sharing);
    let (from, to, comm) = (data.layout(), sharing.layout(), sharing.all());
    let of_ranks = || (0..comm.size()).map(|rank| from.of(rank).rows_here().len());
    for round in 0..of_ranks().max().unwrap_or(0).div_ceil(AT_ONCE) {
        let parcel = |rank: usize| R::write(&some_cells(data, modes, &Overlap::new(modes, round, from, to.of(rank))));
        let parcels = comm.exchange((0..comm.size()).map(parcel).collect());
        for (rank, parcel) in parcels.iter().enumerate() {
            put(&R::read(parcel), &Overlap::new(modes, round, from.of(rank), to), &mut chosen);
        }
    }
    chosen
}

/// What one rank has in a round of what another is to get.
struct Overlap {
    rows: Range<usize>,
    /// Places among the chosen modes.
    places: Range<usize>,
}

impl Overlap {
    fn new(modes: &[usize], round: usize, from: Layout, to: Layout) -> Overlap {
        let (has, gets) = (from.rows_here(), to.rows_here());
        let start = has.start + round * AT_ONCE;
        let rows = start.max(gets.start)..(start + AT_ONCE).min(has.end).min(gets.end);
        let (known, wanted) = (from.tiles().owned_modes(), to.tiles().owned_modes());
        let place = |mode: usize| modes.partition_point(|other| *other < mode);
        Overlap { rows, places: place(known.start).max(wanted.start)..place(known.end).min(wanted.end) }
    }
}

/// Those cells, mode by mode: tiles may be in a file, from which those of the next tile are asked for.
fn some_cells<R: Real>(data: &SpectralData<R>, modes: &[usize], overlap: &Overlap) -> Vec<R> {
    let Overlap { rows, places } = overlap;
    let mut cells = Vec::with_capacity(rows.len() * places.len());
    let mut tiles = modes[places.start..places.end.max(places.start)].chunk_by(|a, b| a / TILE == b / TILE).peekable();
    while let Some(of_tile) = tiles.next().filter(|_| !rows.is_empty()) {
        tiles.peek().iter().for_each(|next| data.ask_for(next[0] / TILE, rows.clone()));
        of_tile.iter().for_each(|&mode| cells.extend(data.column(mode, rows.clone())));
    }
    cells
}

/// Puts cells in their places.
fn put<R: Real>(cells: &[R], overlap: &Overlap, chosen: &mut SpectralData<R>) {
    let Overlap { rows, places } = overlap;
    if rows.is_empty() {
        return;
    }
    let (tiles, first_row) = (chosen.tiles(), chosen.rows_here().start);
    for (tile, values) in chosen.tiles_mut() {
        let (modes, width) = (tiles.modes(tile), tiles.width(tile));
        for place in places.start.max(modes.start)..places.end.min(modes.end) {
            let column = &cells[(place - places.start) * rows.len()..][..rows.len()];
            for (row, x) in rows.clone().zip(column) {
                values[(row - first_row) * width + place - modes.start] = *x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::lay_out;
    use super::*;
    use crate::comm::local::Local;
    use crate::spectral::{Cut, Sharing};

    /// What rows of numbers are at some modes, on so many ranks: the cells that each of them has.
    fn at_modes_on(size: usize, rows: &[Vec<f64>], modes: &[usize]) -> Vec<Vec<f64>> {
        let parts = Local::run(size, |comm| {
            let sharing = Sharing::between(&comm, rows.len(), rows[0].len(), 64, Cut::TilesAndRows);
            let mut data = SpectralData::<f64>::in_memory(&sharing).unwrap();
            let (here, rows_here) = (data.tiles().owned_modes(), data.rows_here());
            let values: Vec<f64> = rows[rows_here.clone()].iter().flat_map(|row| row[here.clone()].to_vec()).collect();
            if !here.is_empty() {
                lay_out(&values, rows_here.start, &mut data);
            }
            let chosen = at_modes(&data, modes);
            let (tiles, rows_here) = (chosen.tiles(), chosen.rows_here());
            let row = |row: usize| tiles.owned().flat_map(|tile| chosen.tile_row(tile, row).to_vec()).collect();
            (rows_here.clone(), rows_here.map(row).collect::<Vec<Vec<f64>>>())
        });
        let of_row = |row: usize| {
            let holders = parts.iter().filter(|(here, _)| here.contains(&row));
            holders.flat_map(|(here, rows)| rows[row - here.start].clone()).collect()
        };
        (0..rows.len()).map(of_row).collect()
    }

    #[test]
    fn modes_are_those_of_the_rows_on_any_number_of_ranks() {
        let modes: Vec<usize> = (0..1050).filter(|mode| mode % 35 < 11).collect();
        let value = |row: usize, mode: usize| ((row * 37 + mode * 11) as f64 * 0.7).sin();
        let rows: Vec<Vec<f64>> = (0..300).map(|row| (0..1050).map(|mode| value(row, mode)).collect()).collect();
        let expected: Vec<Vec<f64>> = rows.iter().map(|row| modes.iter().map(|&mode| row[mode]).collect()).collect();
        for size in [1, 2, 3, 7, 9] {
            assert!(at_modes_on(size, &rows, &modes) == expected, "{size} ranks");
        }
    }
}
