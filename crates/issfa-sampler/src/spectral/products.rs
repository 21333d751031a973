//! Inner products of rows with all features at the modes of a tile: the one product that a sweep cannot avoid.
//!
//! The features of a tile are packed once, modes x lanes, and the rows are read as they are stored; a general matrix
//! product would pack the rows too, which costs much when there are few features. Every inner product is one chain of
//! fused multiply-adds in the order of the modes, so its bits do not depend on the width of the machine's vectors.

use super::TILE;
use crate::numeric::linalg::Real;

/// Rows that go through the product together: with [`lanes`] features they fill the registers of AVX2.
const GROUP: usize = 6;

/// Rows to be given at a time: while they go by, a block of features stays in the first cache.
pub const ROWS: usize = 8 * GROUP;

/// The features of a tile, packed for [`Packed::inner_products`].
#[derive(Debug, Default)]
pub struct Packed<R> {
    n_features: usize,
    width: usize,
    /// For each block of features, modes x lanes; the last block is padded with zeros.
    values: Vec<R>,
}

/// Lanes of a block: two AVX2 vectors; a last block that needs only half has half.
const fn lanes<R: Real>() -> usize {
    64 / R::BYTES
}

impl<R: Real> Packed<R> {
    /// Packs features given row-major, features x modes.
    pub fn pack(&mut self, features: &[R], n_features: usize, width: usize) {
        (self.n_features, self.width) = (n_features, width);
        self.values.clear();
        for (first, n_lanes) in self.blocks() {
            let n_filled = n_lanes.min(n_features - first);
            for mode in 0..width {
                let lane =
                    |lane: usize| if lane < n_filled { features[(first + lane) * width + mode] } else { R::zero() };
                self.values.extend((0..n_lanes).map(lane));
            }
        }
    }

    /// First feature and lanes of each block.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<R> {
        let (n_features, full) = (self.n_features, lanes::<R>());
        let size = move |first: usize| if n_features - first <= full / 2 { full / 2 } else { full };
        (0..n_features).step_by(full).map(move |first| (first, size(first)))
    }

    /// Inner products of rows (row-major, rows x modes) with all features; `out` is rows x features.
    ///
    /// To be inlined into a function compiled for the machine's vectors.
    #[inline(always)]
    pub fn inner_products(&self, rows: &[R], out: &mut [R]) {
        let mut rest = self.values.as_slice();
        for (first, n_lanes) in self.blocks() {
            let (block, others) = rest.split_at(n_lanes * self.width);
            rest = others;
            // Both sizes of a block for both types: 16 and 8 lanes, 8 and 4.
            match n_lanes {
                16 => self.block_products::<16>(rows, block, first, out),
                8 => self.block_products::<8>(rows, block, first, out),
                _ => self.block_products::<4>(rows, block, first, out),
            }
        }
    }

    #[inline(always)]
    fn block_products<const L: usize>(&self, rows: &[R], block: &[R], first: usize, out: &mut [R]) {
        let k = self.n_features;
        let place = (k, first, L.min(k - first));
        let block = block.as_chunks::<L>().0;
        // Sizes known to the compiler keep the sums in registers.
        if let Ok(block) = block.try_into() {
            let (groups, rest) = rows.as_chunks::<TILE>().0.as_chunks::<GROUP>();
            let (out_groups, out_rest) = out.split_at_mut(groups.len() * GROUP * k);
            for (rows, out) in groups.iter().zip(out_groups.chunks_exact_mut(GROUP * k)) {
                store(&full::<R, GROUP, L>(rows, block), out, place);
            }
            for (row, out) in rest.iter().zip(out_rest.chunks_exact_mut(k)) {
                store(&full::<R, 1, L>(std::array::from_ref(row), block), out, place);
            }
            return;
        }
        for (row, out) in rows.chunks_exact(self.width).zip(out.chunks_exact_mut(k)) {
            store(&[single(row, block)], out, place);
        }
    }
}

/// Rows of a full tile with a block of features.
#[inline(always)]
fn full<R: Real, const M: usize, const L: usize>(rows: &[[R; TILE]; M], block: &[[R; L]; TILE]) -> [[R; L]; M] {
    let mut sums = [[R::zero(); L]; M];
    for mode in 0..TILE {
        for m in 0..M {
            for l in 0..L {
                sums[m][l] = rows[m][mode].mul_add(block[mode][l], sums[m][l]);
            }
        }
    }
    sums
}

/// One row of any width with a block of features: the same chain of operations.
#[inline(always)]
fn single<R: Real, const L: usize>(row: &[R], block: &[[R; L]]) -> [R; L] {
    let mut sums = [R::zero(); L];
    for (y, features) in row.iter().zip(block) {
        sums.iter_mut().zip(features).for_each(|(sum, s)| *sum = y.mul_add(*s, *sum));
    }
    sums
}

#[inline(always)]
fn store<R: Real, const M: usize, const L: usize>(
    sums: &[[R; L]; M],
    out: &mut [R],
    (k, first, n_filled): (usize, usize, usize),
) {
    for (row, sums) in out.chunks_exact_mut(k).zip(sums) {
        row[first..first + n_filled].copy_from_slice(&sums[..n_filled]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Products<'a, R>(&'a Packed<R>, &'a [R], &'a mut [R]);

    impl<R: Real> pulp::WithSimd for Products<'_, R> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) {
            self.0.inner_products(self.1, self.2);
        }
    }

    fn check<R: Real>(tolerance: f64) {
        for (n_rows, width, k) in [
            (1, 1, 1),
            (6, 5, 3),
            (6, 256, 50),
            (4, 7, 8),
            (6, 9, 9),
            (6, 256, 16),
            (2, 3, 33),
            (6, 256, 5),
            (5, 256, 20),
            (50, 256, 20),
        ] {
            let value = |i: usize, step: f64| R::from_f64((i as f64 * step).sin());
            let rows: Vec<R> = (0..n_rows * width).map(|i| value(i, 0.7)).collect();
            let features: Vec<R> = (0..k * width).map(|i| value(i, 1.3)).collect();
            let mut packed = Packed::default();
            packed.pack(&features, k, width);
            let mut out = vec![R::one(); n_rows * k];
            packed.inner_products(&rows, &mut out);
            let mut dispatched = vec![R::one(); n_rows * k];
            pulp::Arch::new().dispatch(Products(&packed, &rows, &mut dispatched));
            assert_eq!(out, dispatched, "the bits do not depend on the machine's vectors");
            for (at, found) in out.iter().enumerate() {
                let (row, feature) = (&rows[at / k * width..][..width], &features[at % k * width..][..width]);
                let naive: f64 = row.iter().zip(feature).map(|(x, y)| x.to_f64() * y.to_f64()).sum();
                assert!((found.to_f64() - naive).abs() < tolerance * (width as f64).sqrt(), "{n_rows} {width} {k}");
            }
        }
    }

    #[test]
    fn products_equal_naive_ones() {
        check::<f64>(1e-14);
        check::<f32>(1e-5);
    }
}
