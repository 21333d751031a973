//! Which rows are asked about a feature: those that look most like what the rows that stay with it have in common.
//!
//! Nothing here may depend on what the rows that are asked decide, for this feature or for another that is looked at in the same
//! sweep: so what few rows use counts as part of the rows.

use super::super::images::Images;
use super::{Choice, MOST_ROWS};
use crate::comm::all_gather_values;
use crate::model::{Entry, Model, State};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{FeatureSpectra, Sharing, Tiles, sum_over_rows, sum_over_some_tiles, within};

/// The share of all squared variances that likeness is judged by.
const ENOUGH: f64 = 0.9;

/// Fills in who is asked.
pub(super) fn ask_the_like<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    images: Option<&Images<R>>,
    precisions: &[f64],
    choices: &mut [Choice],
) {
    let columns = images.map_or(&state.features, |images| images.columns());
    let means = means(model, state, images, precisions, choices);
    let tiles = match images {
        None => telling_tiles(model.data.tiles(), precisions),
        Some(_) => (0..model.data.tiles().len()).collect(),
    };
    let explained = explained_likeness(model, columns, &means, &tiles);
    let with_data = model.pass(&state.loadings).products_at_tiles(&means, &tiles);
    let (n, own) = (choices.len(), model.data.layout().own_rows());
    let most = super::asked(state.loadings.n_rows(), images.is_none());
    let mut likest = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        let likeness = |(place, row): (usize, usize)| {
            let of_features = many_use(state, row).map(|entry| entry.weight * explained[entry.feature * n + at]);
            Like { choice: at, row, likeness: (with_data[place * n + at] - of_features.sum::<f64>()).abs() }
        };
        let stays = |row: usize| choice.staying.iter().any(|(staying, _)| *staying == row);
        let others = own.clone().enumerate().filter(|(_, row)| !stays(*row));
        likest.push(the_likest(others.map(likeness).collect(), most));
    }
    for like in most_of_all(likest, most, model.data.sharing()) {
        choices[like.choice].asked.push(like.row);
    }
}

/// How much a row looks like what the rows of a choice have in common.
#[derive(Clone, Copy)]
struct Like {
    choice: usize,
    row: usize,
    likeness: f64,
}

/// The rows that look most like it, the likest first.
fn the_likest(mut rows: Vec<Like>, most: usize) -> Vec<Like> {
    let order = |a: &Like, b: &Like| b.likeness.total_cmp(&a.likeness).then(a.row.cmp(&b.row));
    if rows.len() > most {
        rows.select_nth_unstable_by(most, order);
        rows.truncate(most);
    }
    rows.sort_unstable_by(order);
    rows
}

/// The likest of all rows for each choice, on every rank, from those of the rows that each updates: first in every line, then
/// between lines.
fn most_of_all(likest: Vec<Vec<Like>>, most: usize, sharing: &Sharing) -> Vec<Like> {
    if sharing.all().size() == 1 {
        return likest.concat();
    }
    let n_choices = likest.len();
    let written = |likest: Vec<Vec<Like>>| -> Vec<f64> {
        likest.iter().flatten().flat_map(|like| [like.choice as f64, like.row as f64, like.likeness]).collect()
    };
    let read = |numbers: Vec<f64>| {
        let mut rows = vec![Vec::new(); n_choices];
        for &[choice, row, likeness] in numbers.as_chunks::<3>().0 {
            let like = Like { choice: choice as usize, row: row as usize, likeness };
            rows[like.choice].push(like);
        }
        rows.into_iter().map(|rows| the_likest(rows, most)).collect::<Vec<_>>()
    };
    let of_line = read(all_gather_values(sharing.same_rows(), &written(likest)));
    if !sharing.layout().cuts_rows() {
        return of_line.concat();
    }
    read(sharing.from_lines(written(of_line))).concat()
}

/// The tiles that tell most of a feature: those with the largest variances, down to where nine tenths of their squares are.
fn telling_tiles(tiles: Tiles, precisions: &[f64]) -> Vec<usize> {
    let squares = |tile: usize| precisions[tiles.modes(tile)].iter().map(|h| 1.0 / (h * h)).sum::<f64>();
    let squares: Vec<f64> = (0..tiles.len()).map(squares).collect();
    let mut order: Vec<usize> = (0..tiles.len()).collect();
    order.sort_by(|a, b| squares[*b].total_cmp(&squares[*a]).then(a.cmp(b)));
    let (mut left, total) = (ENOUGH * squares.iter().sum::<f64>(), order.len());
    let n = order.iter().position(|&tile| {
        left -= squares[tile];
        left <= 0.0
    });
    order.truncate(n.map_or(total, |last| last + 1));
    order.sort_unstable();
    order
}

/// What a row has of features that many rows use.
fn many_use<R>(state: &State<R>, row: usize) -> impl Iterator<Item = &Entry> {
    state.loadings.row(row).iter().filter(|entry| state.loadings.counts()[entry.feature] > MOST_ROWS)
}

/// The mean of each feature given the rows that stay, at the columns of the data and up to a factor; where not all cells were
/// observed, as if the others had been 0.
fn means<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    images: Option<&Images<R>>,
    precisions: &[f64],
    choices: &[Choice],
) -> FeatureSpectra<R> {
    let columns = images.map_or(&state.features, |images| images.columns());
    let tiles = model.data.tiles();
    let mut staying: Vec<usize> =
        choices.iter().flat_map(|choice| choice.staying.iter().map(|(row, _)| *row)).collect();
    staying.sort_unstable();
    staying.dedup();
    let totals = sum_over_rows(&model.data, &staying, choices.len(), |tile, rows, sums| {
        let (features, width) = (columns.tile(tile), tiles.width(tile));
        for (choice, sum) in choices.iter().zip(sums.chunks_exact_mut(width)) {
            for &(row, weight) in within(&choice.staying, &rows) {
                let values = model.data.tile_row(tile, row);
                sum.iter_mut().zip(&*values).for_each(|(sum, y)| *sum += weight * y.to_f64());
                for entry in many_use(state, row) {
                    let (feature, factor) = (&features[entry.feature * width..][..width], weight * entry.weight);
                    sum.iter_mut().zip(feature).for_each(|(sum, s)| *sum -= factor * s.to_f64());
                }
            }
        }
    });
    let mut sums = FeatureSpectra::none(tiles);
    sums.grow(choices.len());
    for ((_, places), (_, totals)) in sums.tiles_mut().zip(totals) {
        places.iter_mut().zip(totals).for_each(|(to, x)| *to = R::from_f64(x));
    }
    let mut spectra = model.domain.spectra_of_columns(sums, model.comm.as_ref());
    let modes_of = spectra.tiles();
    let shrink = |_: &mut (), (tile, places): (usize, &mut [R])| {
        let precisions = &precisions[modes_of.modes(tile)];
        for (choice, place) in choices.iter().zip(places.chunks_exact_mut(precisions.len())) {
            let energy: f64 = choice.staying.iter().map(|(_, weight)| weight * weight).sum();
            let shrunk = |x: R, h: f64| R::from_f64(x.to_f64() / (state.noise_variance * h + energy));
            place.iter_mut().zip(precisions).for_each(|(x, h)| *x = shrunk(*x, *h));
        }
    };
    share(spectra.tiles_mut(), || (), shrink);
    match images {
        None => spectra,
        Some(images) => images.window().at_columns(&spectra, model.comm.as_ref()),
    }
}

/// Inner products of all features with all means over some tiles, features x means.
fn explained_likeness<R: Real>(
    model: &Model<R>,
    columns: &FeatureSpectra<R>,
    means: &FeatureSpectra<R>,
    some: &[usize],
) -> Vec<f64> {
    let (n, n_sums) = (means.n_features(), columns.n_features() * means.n_features());
    let (tiles, comm) = (model.data.tiles(), model.comm.as_ref());
    sum_over_some_tiles(tiles, some.iter().copied(), n_sums, comm, |tile, columns_of, slots| {
        let width = columns_of.len();
        let features = columns.tile(tile).chunks_exact(width);
        for (feature, slots) in features.zip(slots.chunks_exact_mut(n)) {
            for (mean, slot) in means.tile(tile).chunks_exact(width).zip(slots) {
                *slot = feature.iter().zip(mean).map(|(a, b)| a.to_f64() * b.to_f64()).sum();
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_smooth_modes_tell_most() {
        let tiles = Tiles::whole(1000);
        let rough_at_first: Vec<f64> = (0..1000).map(|mode| if mode < 512 { 10.0 } else { 1.0 }).collect();
        assert_eq!(telling_tiles(tiles, &rough_at_first), [2, 3]);
        assert_eq!(telling_tiles(tiles, &vec![2.0; 1000]), [0, 1, 2, 3], "all alike, all are needed");
    }
}
