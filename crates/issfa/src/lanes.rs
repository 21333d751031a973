//! Sums in a fixed number of lanes: they vectorise on every machine, and their bits depend on none.
//!
//! Everything here is to be inlined into a `with_simd`, which is compiled for the machine's vectors.

/// Lanes of a sum.
pub const LANES: usize = 16;

/// The sum of `terms(0), .., terms(n - 1)`.
#[inline(always)]
pub fn sum_of(n: usize, terms: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    for first in (0..n / LANES * LANES).step_by(LANES) {
        for lane in 0..LANES {
            lanes[lane] += terms(first + lane);
        }
    }
    let tail = (n / LANES * LANES..n).fold(0.0, |sum, at| sum + terms(at));
    lanes.iter().sum::<f64>() + tail
}

const MANTISSA: u64 = (1 << 52) - 1;
const ONE: u64 = 1023 << 52;

/// The sum of the logarithms of up to 256 positive numbers, by the product of their mantissas and the sum of their
/// exponents: one logarithm in all. What is not positive and finite falls back to one logarithm each.
#[inline(always)]
pub fn sum_of_ln(values: &[f64]) -> f64 {
    debug_assert!(values.len() <= 256, "mantissas of more numbers could overflow");
    let (mut products, mut exponents, mut sound) = ([1.0f64; LANES], [0u64; LANES], [true; LANES]);
    let mut push = |lane: usize, value: f64| {
        let bits = value.to_bits();
        products[lane] *= f64::from_bits(bits & MANTISSA | ONE);
        exponents[lane] += bits >> 52;
        sound[lane] &= value >= f64::MIN_POSITIVE && value < f64::INFINITY;
    };
    let (chunks, tail) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            push(lane, chunk[lane]);
        }
    }
    tail.iter().enumerate().for_each(|(lane, value)| push(lane, *value));
    if !sound.iter().all(|&lane| lane) {
        return values.iter().map(|value| value.ln()).sum();
    }
    let exponent = exponents.iter().sum::<u64>() as f64 - 1023.0 * values.len() as f64;
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
            assert!((sum_of_ln(&values) - naive).abs() < 1e-11 * (1.0 + naive.abs()), "{n}");
            assert!(
                (sum_of(n, |i| values[i]) - values.iter().sum::<f64>()).abs() <= 1e-14 * values.iter().sum::<f64>()
            );
        }
    }

    #[test]
    fn odd_numbers_are_not_lost() {
        assert!(sum_of_ln(&[1.0, f64::NAN]).is_nan() && sum_of_ln(&[2.0, -1.0]).is_nan());
        assert_eq!(sum_of_ln(&[1.0, 0.0]), f64::NEG_INFINITY);
        assert_eq!(sum_of_ln(&[1.0, f64::INFINITY]), f64::INFINITY);
        assert!((sum_of_ln(&[5e-324]) - 5e-324f64.ln()).abs() < 1e-9);
    }
}
