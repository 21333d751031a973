//! Data at some of their modes, gathered from where the rows are and shared out again.

use super::load::{hand_over, lay_out};
use super::{SpectralData, TILE, Tiles};
use crate::comm::{Comm, part_of};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use std::ops::Range;

/// Rows that a rank looks at together.
const AT_ONCE: usize = 256;

/// The data at `modes`: of every row what it has at `columns` (ascending), put through `to_modes`.
pub(super) fn at_modes<R: Real>(
    data: &SpectralData<R>,
    columns: &[usize],
    modes: &[usize],
    comm: &dyn Comm,
    to_modes: impl Fn(&mut Vec<R>, &mut Vec<R>) + Sync,
) -> SpectralData<R> {
    let (n_rows, size) = (data.n_rows(), comm.size());
    let mut chosen = SpectralData::zeros(n_rows, Tiles::shared(modes.len(), comm));
    for first in (0..n_rows).step_by(AT_ONCE * size) {
        let n = (n_rows - first).min(AT_ONCE * size);
        let of_rank = |rank: usize| {
            let part = part_of(n, rank, size);
            first + part.start..first + part.end
        };
        let mut rows = whole_rows(data, columns, comm, of_rank);
        share(rows.iter_mut(), Vec::new, |scratch, row| to_modes(row, scratch));
        let (first_row, values) = (of_rank(comm.rank()).start, rows.concat());
        if chosen.tiles().is_shared() {
            hand_over(Some((first_row, &values[..])), &mut chosen, comm);
        } else {
            lay_out(&values, first_row, &mut chosen);
        }
    }
    chosen
}

/// Some rows, the part of each rank on that rank, at all `columns` wherever they are.
fn whole_rows<R: Real>(
    data: &SpectralData<R>,
    columns: &[usize],
    comm: &dyn Comm,
    of_rank: impl Fn(usize) -> Range<usize>,
) -> Vec<Vec<R>> {
    let here = data.tiles().owned_modes();
    let places: Vec<(usize, usize)> =
        columns.iter().filter(|column| here.contains(column)).map(|column| (column / TILE, column % TILE)).collect();
    let at = |row: usize| places.iter().map(move |&(tile, offset)| data.tile_row(tile, row)[offset]);
    if comm.size() == 1 {
        return of_rank(0).map(|row| at(row).collect()).collect();
    }
    let parcels = (0..comm.size()).map(|rank| R::write(&of_rank(rank).flat_map(at).collect::<Vec<R>>()));
    let parcels: Vec<Vec<R>> = comm.exchange(parcels.collect()).iter().map(|bytes| R::read(bytes)).collect();
    let n_rows = of_rank(comm.rank()).len();
    let piece = |parcel: &Vec<R>, row: usize| {
        let width = parcel.len() / n_rows;
        parcel[row * width..(row + 1) * width].to_vec()
    };
    // Ranks hold consecutive columns, so that this is their order.
    (0..n_rows).map(|row| parcels.iter().flat_map(|parcel| piece(parcel, row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Domain;
    use super::*;
    use crate::comm::local::Local;
    use crate::structure::{Direction, expression};
    use std::sync::Arc;

    /// What `n_rows` rows of numbers are at some modes, on so many ranks.
    fn at_modes_on(size: usize, domain: &Domain, rows: &[Vec<f64>], modes: &[usize]) -> Vec<Vec<f64>> {
        let parts = Local::run(size, |comm| {
            let mut data = SpectralData::<f64>::zeros(rows.len(), Tiles::shared(rows[0].len(), comm.as_ref()));
            let here = data.tiles().owned_modes();
            let values: Vec<f64> = rows.iter().flat_map(|row| row[here.clone()].to_vec()).collect();
            if !here.is_empty() {
                lay_out(&values, 0, &mut data);
            }
            let chosen = domain.at_modes(&data, modes, comm.as_ref());
            let tiles = chosen.tiles();
            let row = |row: usize| tiles.owned().flat_map(|tile| chosen.tile_row(tile, row).to_vec()).collect();
            (0..rows.len()).map(row).collect::<Vec<Vec<f64>>>()
        });
        (0..rows.len()).map(|row| parts.iter().flat_map(|part| part[row].clone()).collect()).collect()
    }

    #[test]
    fn modes_are_those_of_the_rows_on_any_number_of_ranks() {
        let structure = Arc::new(expression::build(Some("path(30) x path(35)"), None).unwrap());
        let sites: Vec<usize> = (0..1050).filter(|site| site % 3 > 0).collect();
        let modes: Vec<usize> = (0..1050).filter(|mode| mode % 35 < 11).collect();
        let value = |row: usize, column: usize| ((row * 37 + column * 11) as f64 * 0.7).sin();
        for (domain, n_columns) in [
            (Domain::new(&structure, (0..1050).collect(), vec![Vec::new(); 300]), 1050),
            (Domain::new(&structure, sites.clone(), vec![Vec::new(); 300]), sites.len()),
        ] {
            let rows: Vec<Vec<f64>> =
                (0..300).map(|row| (0..n_columns).map(|column| value(row, column)).collect()).collect();
            let spectrum_of = |row: &Vec<f64>| {
                let mut spectrum = row.clone();
                if !domain.is_whole() {
                    spectrum = vec![0.0; 1050];
                    sites.iter().zip(row).for_each(|(&site, x)| spectrum[site] = *x);
                    structure.apply(Direction::ToSpectrum, &mut spectrum, &mut Vec::new());
                }
                modes.iter().map(|&mode| spectrum[mode]).collect::<Vec<_>>()
            };
            let expected: Vec<Vec<f64>> = rows.iter().map(spectrum_of).collect();
            for size in [1, 2, 3, 7] {
                assert!(at_modes_on(size, &domain, &rows, &modes) == expected, "{n_columns} columns, {size} ranks");
            }
        }
    }
}
