//! Which rows are asked about a feature: those that look most like what the rows that stay with it have in common.
//!
//! Nothing here may depend on what the rows that are asked decide, for this feature or for another that is looked at in the same
//! sweep: so what few rows use counts as part of the rows.

use super::super::images::Images;
use super::{Choice, MOST_ROWS};
use crate::model::{Entry, Model, State};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{FeatureSpectra, Tiles, sum_over_some_tiles};

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
    let n = choices.len();
    let most = super::asked(state.loadings.n_rows(), images.is_none());
    let mut likenesses = vec![0.0; state.loadings.n_rows()];
    for (at, choice) in choices.iter_mut().enumerate() {
        for (row, likeness) in likenesses.iter_mut().enumerate() {
            let of_features = many_use(state, row).map(|entry| entry.weight * explained[entry.feature * n + at]);
            *likeness = (with_data[row * n + at] - of_features.sum::<f64>()).abs();
        }
        choice.asked = (0..likenesses.len()).collect();
        choice.asked.retain(|row| choice.staying.iter().all(|(staying, _)| staying != row));
        let order = |a: &usize, b: &usize| likenesses[*b].total_cmp(&likenesses[*a]).then(a.cmp(b));
        if choice.asked.len() > most {
            choice.asked.select_nth_unstable_by(most, order);
            choice.asked.truncate(most);
        }
        choice.asked.sort_unstable_by(order);
    }
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
    let mut sums = FeatureSpectra::none(tiles);
    sums.grow(choices.len());
    let add = |sum: &mut Vec<f64>, (tile, places): (usize, &mut [R])| {
        let (features, width) = (columns.tile(tile), tiles.width(tile));
        for (choice, place) in choices.iter().zip(places.chunks_exact_mut(width)) {
            sum.clear();
            sum.resize(width, 0.0);
            for &(row, weight) in &choice.staying {
                let values = model.data.tile_row(tile, row);
                sum.iter_mut().zip(values).for_each(|(sum, y)| *sum += weight * y.to_f64());
                for entry in many_use(state, row) {
                    let (feature, factor) = (&features[entry.feature * width..][..width], weight * entry.weight);
                    sum.iter_mut().zip(feature).for_each(|(sum, s)| *sum -= factor * s.to_f64());
                }
            }
            place.iter_mut().zip(sum.iter()).for_each(|(to, x)| *to = R::from_f64(*x));
        }
    };
    share(sums.tiles_mut(), Vec::new, add);
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
