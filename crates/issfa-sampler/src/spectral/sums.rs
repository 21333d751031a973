//! Sums that do not depend on their order: numbers are rounded to a fixed point and added as integers.
//!
//! Entry (t, k) of a matrix of inner products is counted in units of `2^(row exponent + column exponent - BITS)`,
//! where the exponents bound the norms of the two vectors. By the Cauchy-Schwarz inequality every partial sum is
//! bounded by the product of the norms, so checking the norms afterwards is enough to rule out overflow.

use crate::numeric::linalg::Real;

/// Bits below a bound: the resolution of a sum is `2^-BITS` of the product of the norms.
const BITS: i32 = 40;

/// How far a norm may have been underestimated (as a power of two). Both norms of an entry of `S S'` may have been, and
/// `BITS` plus twice this must stay below the 51 bits that [`to_fixed`] can round.
pub const SPARE_BITS: i32 = 5;

/// How far a norm may have been overestimated before a sum becomes too coarse.
const COARSE_BITS: i32 = 4;

/// Adding this constant pushes the integer part of `|x| < 2^51` into the low bits of the float.
const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

/// The least power of two that bounds `norm`, as an exponent; a zero norm counts as tiny.
pub fn bounding_exponent(norm: f64) -> i32 {
    if norm > 0.0 { (norm.log2().ceil() as i32).clamp(-400, 400) } else { -400 }
}

/// `2^exponent`, for exponents of normal numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Whether a sum made with exponent `assumed` is sound for a vector whose norm turned out as `norm`.
pub fn exponent_holds(assumed: i32, norm: f64) -> bool {
    let actual = bounding_exponent(norm);
    actual <= assumed + SPARE_BITS && (actual >= assumed - COARSE_BITS || norm == 0.0)
}

/// A matrix of fixed-point sums, row-major.
#[derive(Clone, Debug)]
pub struct FixedSums {
    n_cols: usize,
    sums: Vec<i64>,
}

/// The units of a [`FixedSums`]: powers of two, an exponent a row and one a column.
#[derive(Clone, Debug)]
pub struct Exponents<'a> {
    pub rows: &'a [i32],
    pub cols: &'a [i32],
}

/// What turns numbers into units, computed once: a factor a row and one a column.
#[derive(Clone, Debug)]
pub struct Factors {
    rows: Vec<f64>,
    cols: Vec<f64>,
}

impl Exponents<'_> {
    /// The factors of these units.
    pub fn factors(&self) -> Factors {
        let rows = self.rows.iter().map(|&e| power_of_two(BITS - e)).collect();
        Factors { rows, cols: self.cols.iter().map(|&e| power_of_two(-e)).collect() }
    }
}

impl Factors {
    /// How many columns there are.
    pub fn n_cols(&self) -> usize {
        self.cols.len()
    }
}

impl FixedSums {
    pub fn zeros(n_rows: usize, n_cols: usize) -> FixedSums {
        FixedSums { n_cols, sums: vec![0; n_rows * n_cols] }
    }

    /// Rows of sums that were added up elsewhere.
    pub fn of(sums: Vec<i64>, n_cols: usize) -> FixedSums {
        FixedSums { n_cols, sums }
    }

    /// Adds a block of whole rows, starting at `first_row`.
    #[inline(always)]
    pub fn add_rows<R: Real>(&mut self, first_row: usize, block: &[R], factors: &Factors) {
        let n = self.n_cols;
        if n == 0 {
            return;
        }
        let rows = self.sums[first_row * n..].chunks_exact_mut(n).zip(block.chunks_exact(n));
        for (offset, (sums, values)) in rows.enumerate() {
            let row_factor = factors.rows[first_row + offset];
            for ((sum, value), factor) in sums.iter_mut().zip(values).zip(&factors.cols) {
                *sum = sum.wrapping_add(to_fixed(value.to_f64() * (row_factor * factor)));
            }
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &FixedSums) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| *a = a.wrapping_add(*b));
    }

    /// The integers, for a reduction over ranks.
    pub fn integers_mut(&mut self) -> &mut [i64] {
        &mut self.sums
    }

    /// The sums as floating-point numbers.
    pub fn to_floats(&self, factors: &Factors) -> Vec<f64> {
        let mut floats = Vec::with_capacity(self.sums.len());
        let columns: Vec<f64> = factors.cols.iter().map(|x| 1.0 / x).collect();
        for (row, sums) in self.sums.chunks_exact(self.n_cols.max(1)).enumerate() {
            let row_unit = 1.0 / factors.rows[row];
            floats.extend(sums.iter().zip(&columns).map(|(&sum, column)| sum as f64 * row_unit * column));
        }
        floats
    }
}

/// `x` rounded to the nearest integer, for `|x| < 2^51`; meaningless but harmless beyond.
#[inline(always)]
fn to_fixed(x: f64) -> i64 {
    ((x + MAGIC).to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_by_the_magic_constant() {
        for x in [0.0, 0.4, -0.4, 1.6, -1.6, 12345.0, -(2f64.powi(50)) + 3.0, 2f64.powi(50) - 7.0] {
            assert_eq!(to_fixed(x), x.round_ties_even() as i64, "{x}");
        }
    }

    #[test]
    fn sums_do_not_depend_on_order_and_are_accurate() {
        let values: Vec<f64> = (0..1000).map(|i| (i as f64 * 1.3).sin() * 10f64.powi(i % 7 - 3)).collect();
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt() * 30.0;
        let (rows, cols) = ([bounding_exponent(norm)], [0]);
        let factors = Exponents { rows: &rows, cols: &cols }.factors();
        let add = |order: &mut dyn Iterator<Item = usize>| {
            let mut sums = FixedSums::zeros(1, 1);
            order.for_each(|i| sums.add_rows(0, &values[i..i + 1], &factors));
            sums.to_floats(&factors)[0]
        };
        let forward = add(&mut (0..1000));
        assert_eq!(forward.to_bits(), add(&mut (0..1000).rev()).to_bits());
        assert_eq!(forward.to_bits(), add(&mut (0..1000).map(|i| i * 7 % 1000)).to_bits());
        assert!((forward - values.iter().sum::<f64>()).abs() < 1e-9 * norm);
    }

    #[test]
    fn exponents_bound_and_hold() {
        for norm in [1e-30, 0.3, 1.0, 1.1, 7e8] {
            let e = bounding_exponent(norm);
            assert_eq!(power_of_two(e), f64::from(e).exp2());
            assert!(f64::from(e).exp2() >= norm && f64::from(e - 1).exp2() < norm);
            assert!(exponent_holds(e, norm) && exponent_holds(e, norm * 31.0) && exponent_holds(e, norm / 15.0));
            assert!(!exponent_holds(e, norm * 65.0) && !exponent_holds(e, norm / 33.0));
        }
        assert!(exponent_holds(3, 0.0) && !exponent_holds(3, f64::INFINITY));
    }
}
