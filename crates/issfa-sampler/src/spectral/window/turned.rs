//! Features turned into the basis that diagonalises `W'W`, and back, tile by tile.

use super::super::{FeatureSpectra, Tiles};
use crate::numeric::linalg::{Real, View, multiply};
use crate::numeric::workers::share;

/// The rotation P, k rows by as many columns as there are turned features, in the precision of the data.
pub(super) struct Rotation<R> {
    vectors: Vec<R>,
    k: usize,
}

impl<R: Real> Rotation<R> {
    /// Of `k` features.
    pub fn new(vectors: &[f64], k: usize) -> Rotation<R> {
        Rotation { vectors: vectors.iter().map(|&x| R::from_f64(x)).collect(), k }
    }

    /// How many turned features there are.
    pub fn n_turned(&self) -> usize {
        self.vectors.len() / self.k.max(1)
    }

    fn view(&self) -> View<'_, R> {
        View::new(&self.vectors, self.k, self.n_turned())
    }

    /// `P'X` of what a tile has, features x width.
    pub fn turn_in(&self, values: &[R], width: usize) -> Vec<R> {
        let mut turned = vec![R::zero(); self.n_turned() * width];
        multiply(&mut turned, self.view().t(), View::new(values, self.k, width));
        turned
    }

    /// `P'X` of features that are all here.
    pub fn turned(&self, features: &FeatureSpectra<R>) -> FeatureSpectra<R> {
        let tiles = features.tiles();
        let mut turned = FeatureSpectra::none(tiles);
        turned.grow(self.n_turned());
        share(
            turned.tiles_mut(),
            || (),
            |_, (tile, values)| {
                multiply(values, self.view().t(), View::new(features.tile(tile), self.k, tiles.width(tile)));
            },
        );
        turned
    }

    /// `P X` of turned features given as rows of `n_modes` numbers.
    pub fn back<E: Real>(&self, n_modes: usize, rows: &[Vec<E>]) -> FeatureSpectra<R> {
        let tiles = Tiles::whole(n_modes);
        let mut features = FeatureSpectra::none(tiles);
        features.grow(self.k);
        share(features.tiles_mut(), Vec::new, |turned: &mut Vec<R>, (tile, values)| {
            let modes = tiles.modes(tile);
            turned.clear();
            rows.iter().for_each(|row| turned.extend(row[modes.clone()].iter().map(|x| R::from_f64(x.to_f64()))));
            multiply(values, self.view(), View::new(turned, rows.len(), modes.len()));
        });
        features
    }
}
