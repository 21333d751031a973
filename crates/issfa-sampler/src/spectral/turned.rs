//! All features as combinations of themselves, and their inner products with each other.

use super::FeatureSpectra;
use super::sums::{Exponents, FixedSums, bounding_exponent};
use crate::comm::Comm;
use crate::numeric::linalg::{Real, View, multiply};
use crate::numeric::workers::share;

impl<R: Real> FeatureSpectra<R> {
    /// `S S'`, row-major, on every rank: a sum that does not depend on who holds which tile.
    pub fn gram(&self, comm: &dyn Comm) -> Vec<f64> {
        let (tiles, k) = (self.tiles(), self.n_features());
        let exponents: Vec<i32> =
            self.squared_norms(comm).iter().map(|square| bounding_exponent(square.sqrt())).collect();
        let factors = Exponents { rows: &exponents, cols: &exponents }.factors();
        let here = if tiles.speaks() { tiles.owned() } else { 0..0 };
        let scratch = || (FixedSums::zeros(k, k), vec![R::zero(); k * k]);
        let parts = share(here, scratch, |(sums, products), tile| {
            let features = View::new(self.tile(tile), k, tiles.width(tile));
            multiply(products, features, features.t());
            sums.add_rows(0, products, &factors);
        });
        let mut all = FixedSums::zeros(k, k);
        parts.iter().for_each(|(sums, _)| all.merge(sums));
        if tiles.is_shared() {
            comm.sum_integers(all.integers_mut());
        }
        all.to_floats(&factors)
    }

    /// Replaces all features by combinations of them: `turn` is new x old, row-major.
    pub fn turn(&mut self, turn: &[f64]) {
        let (tiles, k) = (self.tiles(), self.n_features());
        let turn: Vec<R> = turn.iter().map(|&x| R::from_f64(x)).collect();
        let work = |old: &mut Vec<R>, (tile, values): (usize, &mut [R])| {
            old.clear();
            old.extend_from_slice(values);
            multiply(values, View::new(&turn, k, k), View::new(old, k, tiles.width(tile)));
        };
        share(self.tiles_mut(), Vec::new, work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;
    use crate::comm::local::Local;
    use crate::spectral::Tiles;

    fn features() -> FeatureSpectra<f64> {
        let rows: Vec<Vec<f64>> =
            (0..3).map(|k| (0..600).map(|v| ((k * 601 + v) as f64 * 0.7).sin()).collect()).collect();
        FeatureSpectra::from_vectors(600, &rows)
    }

    fn product(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn products_are_the_naive_ones_and_the_same_on_any_number_of_ranks() {
        let features = features();
        let gram = features.gram(&Solo);
        for (at, found) in gram.iter().enumerate() {
            let naive = product(&features.feature(at / 3), &features.feature(at % 3));
            assert!((found - naive).abs() < 1e-8, "{at}: {found} {naive}");
        }
        for n_ranks in 2..=4 {
            let part = |rank: usize| features.part(Tiles::whole(600).part(Some(rank), n_ranks, true));
            let found = Local::run(n_ranks, |comm| part(comm.rank()).gram(comm.as_ref()));
            assert!(found.iter().all(|other| *other == gram), "{n_ranks} ranks");
        }
    }

    #[test]
    fn turned_features_are_combinations() {
        let (old, mut new) = (features(), features());
        let turn = [0.5, 2.0, 0.0, -1.0, 0.0, 3.0, 0.0, 0.0, 0.0];
        new.turn(&turn);
        for (k, v) in [(0, 0), (1, 255), (0, 256), (1, 599), (2, 300)] {
            let naive: f64 = (0..3).map(|j| turn[k * 3 + j] * old.feature(j)[v]).sum();
            assert!((new.feature(k)[v] - naive).abs() < 1e-12, "{k} {v}");
        }
    }
}
