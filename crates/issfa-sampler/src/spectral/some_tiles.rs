//! Inner products of rows with spectra over some of the tiles: enough to tell which rows look alike.

use super::pass::own_rows;
use super::products::{Packed, ROWS};
use super::sums::{Exponents, Factors, FixedSums, bounding_exponent};
use super::{FeatureSpectra, Pass};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use pulp::{Simd, WithSimd};

impl<R: Real> Pass<'_, R> {
    /// Inner products of the rows that this rank updates with some spectra, given at the columns of the data, over some tiles:
    /// rows x spectra.
    pub fn products_at_tiles(&self, spectra: &FeatureSpectra<R>, some: &[usize]) -> Vec<f64> {
        let (data, n, owned) = (self.data, spectra.n_features(), self.data.tiles().owned());
        let here = data.rows_here();
        let rows: Vec<i32> = self.row_norms[here.clone()].iter().map(|&norm| bounding_exponent(norm)).collect();
        let norms = spectra.squared_norms(self.comm);
        let cols: Vec<i32> = norms.iter().map(|norm| bounding_exponent(norm.sqrt())).collect();
        let factors = &Exponents { rows: &rows, cols: &cols }.factors();
        let tiles: Vec<usize> = some.iter().copied().filter(|tile| owned.contains(tile)).collect();
        let new_sums = || FixedSums::zeros(here.len(), n);
        let ahead = 2 * rayon::current_num_threads();
        let scratches = share(0..tiles.len(), new_sums, |sums, at| {
            let tile = tiles[at];
            let next = if at == 0 { 1..ahead + 1 } else { at + ahead..at + ahead + 1 };
            let next = next.filter_map(|later| tiles.get(later));
            next.for_each(|&later| data.ask_for(later, here.clone()));
            let width = data.tiles().width(tile);
            let mut packed = Packed::default();
            packed.pack(spectra.tile(tile), n, width);
            pulp::Arch::new().dispatch(AddProducts {
                rows: data.tile_alone(tile),
                width,
                packed: &packed,
                sums,
                factors,
            });
        });
        let mut sums = new_sums();
        scratches.iter().for_each(|part| sums.merge(part));
        own_rows(sums, &rows, &cols, data.sharing())
    }
}

/// The products' shares of one tile.
struct AddProducts<'a, R> {
    rows: &'a [R],
    width: usize,
    packed: &'a Packed<R>,
    sums: &'a mut FixedSums,
    factors: &'a Factors,
}

impl<R: Real> WithSimd for AddProducts<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let AddProducts { width, packed, sums, factors, .. } = self;
        let mut products = vec![R::zero(); ROWS * factors.n_cols()];
        for (group, rows) in self.rows.chunks(ROWS * width).enumerate() {
            let products = &mut products[..rows.len() / width * factors.n_cols()];
            packed.inner_products(rows, products);
            sums.add_rows(group * ROWS, products, factors);
        }
    }
}
