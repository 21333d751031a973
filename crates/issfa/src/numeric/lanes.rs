//! Sums in a fixed number of lanes: they vectorise on every machine, and their bits depend on none.
//!
//! Everything here is to be inlined into a `with_simd`, which is compiled for the machine's vectors.

/// Modes in a tile (the last one of a grid may be narrower).
pub const TILE: usize = 256;

/// Lanes of a sum.
const LANES: usize = 16;

/// Numbers of one tile; a narrower tile is filled up.
pub type Tileful = [f64; TILE];

/// A tile of numbers that the compiler knows the size of, filled up where there are fewer.
#[inline(always)]
pub fn filled_up(values: &[f64], with: f64) -> Tileful {
    let mut tile = [with; TILE];
    tile[..values.len()].copy_from_slice(values);
    tile
}

/// The sum of `terms(0), .., terms(TILE - 1)`.
#[inline(always)]
pub fn sum_of(terms: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    for first in (0..TILE).step_by(LANES) {
        for lane in 0..LANES {
            lanes[lane] += terms(first + lane);
        }
    }
    lanes.iter().sum()
}

const MANTISSA: u64 = (1 << 52) - 1;
const ONE: u64 = 1023 << 52;

/// The sum of the logarithms of positive numbers, by the product of their mantissas and the sum of their exponents: one
/// logarithm in all. What is not positive and finite falls back to one logarithm each.
#[inline(always)]
pub fn sum_of_ln(values: &Tileful) -> f64 {
    let (mut products, mut exponents, mut sound) = ([1.0f64; LANES], [0u64; LANES], [true; LANES]);
    for first in (0..TILE).step_by(LANES) {
        for lane in 0..LANES {
            let value = values[first + lane];
            let bits = value.to_bits();
            products[lane] *= f64::from_bits(bits & MANTISSA | ONE);
            exponents[lane] += bits >> 52;
            sound[lane] &= (f64::MIN_POSITIVE..f64::INFINITY).contains(&value);
        }
    }
    if !sound.iter().all(|&lane| lane) {
        return values.iter().map(|value| value.ln()).sum();
    }
    let exponent = exponents.iter().sum::<u64>() as f64 - 1023.0 * TILE as f64;
    products.iter().product::<f64>().ln() + exponent * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_naive_ones() {
        for n in [0, 1, 7, 16, 17, 255, 256] {
            let values: Vec<f64> = (0..n).map(|i| 10f64.powf((i as f64 * 0.7).sin() * 30.0)).collect();
            let naive: f64 = values.iter().map(|x| x.ln()).sum();
            assert!((sum_of_ln(&filled_up(&values, 1.0)) - naive).abs() < 1e-11 * (1.0 + naive.abs()), "{n}");
            let (sum, tile) = (values.iter().sum::<f64>(), filled_up(&values, 0.0));
            assert!((sum_of(|v| tile[v]) - sum).abs() <= 1e-14 * sum);
        }
    }

    #[test]
    fn odd_numbers_are_not_lost() {
        let with = |odd: f64| sum_of_ln(&filled_up(&[2.0, odd], 1.0));
        assert!(with(f64::NAN).is_nan() && with(-1.0).is_nan());
        assert_eq!((with(0.0), with(f64::INFINITY)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!((with(5e-324) - 5e-324f64.ln() - 2f64.ln()).abs() < 1e-9);
    }
}
