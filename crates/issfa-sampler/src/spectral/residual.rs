//! The squared residual `|Y - W S|^2`: from products that a pass has anyway, or cell by cell where these would cancel.
//!
//! `|y - w S|^2 = |y|^2 - 2 w (y S')' + w (S S') w'` costs a few operations a row, where taking features off every cell costs as many
//! as there are entries of W. Of data that features explain almost wholly little would be left of large numbers.

use super::tile_work::{PIECE, RowEntries, prefetch};
use crate::numeric::linalg::Real;
use pulp::{Simd, WithSimd};

/// Products are trusted while the residual, beside the data's square, is so many times what their precision resolves.
const RESOLVED: f64 = 1e4;

/// Whether a residual that was found from products has to be found cell by cell.
pub fn is_cancelled<R: Real>(residual: f64, square: f64) -> bool {
    residual < RESOLVED * R::EPSILON * square
}

/// `-2 w (y S')'` of some rows, whose `products` with all features are given; weights come negated.
#[inline(always)]
pub fn with_products<'a, R: Real>(
    n_features: usize,
    products: &[R],
    entries: impl Iterator<Item = &'a [(u32, R)]>,
) -> f64 {
    let mut sum = 0.0;
    for (products, entries) in products.chunks_exact(n_features.max(1)).zip(entries) {
        let of_row: f64 =
            entries.iter().map(|&(feature, minus)| minus.to_f64() * products[feature as usize].to_f64()).sum();
        sum += 2.0 * of_row;
    }
    sum
}

/// Adds the squares of some rows at one tile to `lanes`. Meanwhile the `later` rows are fetched.
#[inline(always)]
pub fn add_squares<R: Real>(rows: &[R], later: &[R], lanes: &mut [f64; PIECE]) {
    let mut squares = [R::zero(); PIECE];
    let (pieces, rest) = rows.as_chunks::<PIECE>();
    for (at, piece) in pieces.iter().enumerate() {
        prefetch(later.get(at * PIECE..(at + 1) * PIECE).unwrap_or_default());
        for v in 0..PIECE {
            squares[v] = piece[v].mul_add(piece[v], squares[v]);
        }
    }
    for v in 0..PIECE {
        lanes[v] += squares[v].to_f64();
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, x)| *lane += x.to_f64().powi(2));
}

/// The squared residual of a band of rows at one tile, cell by cell.
pub struct Explicit<'a, R> {
    pub rows: &'a [R],
    /// Where they start among the rows of `entries`.
    pub first: usize,
    pub width: usize,
    pub entries: &'a RowEntries<R>,
    pub features: &'a [R],
    /// Room for a row.
    pub left: &'a mut Vec<R>,
}

impl<R: Real> WithSimd for Explicit<'_, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let Explicit { width, features, left, .. } = self;
        let mut lanes = [0.0; PIECE];
        for (row, values) in self.rows.chunks_exact(width).enumerate() {
            left.clear();
            left.extend_from_slice(values);
            for &(feature, minus) in self.entries.of(self.first + row) {
                let feature = &features[feature as usize * width..][..width];
                left.iter_mut().zip(feature).for_each(|(r, s)| *r = s.mul_add(minus, *r));
            }
            add_squares(left, &[], &mut lanes);
        }
        lanes.iter().sum()
    }
}
