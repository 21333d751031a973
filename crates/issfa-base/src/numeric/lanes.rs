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

/// `e^x` for x of 0 or less, to within two units in the last place; below -700 it is that of -700. Plain sums and products, the
/// same bits on every machine.
#[inline(always)]
pub fn exp_of_negative(x: f64) -> f64 {
    /// Adding this leaves a whole number in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    /// ln 2 in two parts, the first with zeros at its end.
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    let x = if x < -700.0 { -700.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + MAGIC;
    let power = shifted - MAGIC;
    let rest = x - power * LN_2[0] - power * LN_2[1];
    let mut sum = 1.0 / 479_001_600.0;
    for factorial in [39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = sum * rest + 1.0 / factorial;
    }
    f64::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 52))
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
    fn exponentials_equal_the_library_s() {
        for i in 0..200_000 {
            let x = -f64::from(i) * 0.003_517;
            let (found, exact) = (exp_of_negative(x), x.max(-700.0).exp());
            assert!((found / exact - 1.0).abs() < 4.5e-16, "{x}: {found} {exact}");
        }
        assert!(exp_of_negative(f64::NEG_INFINITY) < 1e-300 && exp_of_negative(0.0) == 1.0);
    }

    #[test]
    fn odd_numbers_are_not_lost() {
        let with = |odd: f64| sum_of_ln(&filled_up(&[2.0, odd], 1.0));
        assert!(with(f64::NAN).is_nan() && with(-1.0).is_nan());
        assert_eq!((with(0.0), with(f64::INFINITY)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!((with(5e-324) - 5e-324f64.ln() - 2f64.ln()).abs() < 1e-9);
    }
}
