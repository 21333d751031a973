//! Standard normal numbers by the hundred: Box and Muller's way, compiled for the machine's vectors; the same bits on every
//! machine.

use pulp::{Simd, WithSimd};
use rand::Rng;
use std::f64::consts::{FRAC_PI_2, LN_2};

/// Pairs that are made at a time.
const PAIRS: usize = 64;

/// Fills a slice with independent standard normal numbers.
pub fn fill(stream: &mut impl Rng, to: &mut [f64]) {
    let arch = pulp::Arch::new();
    let (mut bytes, mut normals) = ([0; 8 * PAIRS], [[0.0; PAIRS]; 2]);
    for to in to.chunks_mut(2 * PAIRS) {
        stream.fill_bytes(&mut bytes);
        let words: [u64; PAIRS] = std::array::from_fn(|at| u64::from_le_bytes(bytes.as_chunks::<8>().0[at]));
        arch.dispatch(Pairs { words: &words, normals: &mut normals });
        to.copy_from_slice(&normals.as_flattened()[..to.len()]);
    }
}

/// Pairs of normal numbers, each from 64 random bits: to make these takes longer than all else.
struct Pairs<'a> {
    words: &'a [u64; PAIRS],
    normals: &'a mut [[f64; PAIRS]; 2],
}

impl WithSimd for Pairs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Pairs { words, normals } = self;
        for at in 0..PAIRS {
            [normals[0][at], normals[1][at]] = pair(words[at]);
        }
    }
}

/// Bits for where in its quarter of the circle a pair lies, and for its radius, which reaches sqrt(2 ln 2^38) = 7.3.
const ANGLE: u32 = 24;
const RADIUS: u32 = 62 - ANGLE;

/// Two independent normal numbers from 64 random bits: two say which quarter of the circle it is. Numbers are then some 1e-7 of
/// each other apart, as they are in single precision.
#[inline(always)]
fn pair(bits: u64) -> [f64; 2] {
    // In (0, 1].
    let uniform = (whole(bits >> (64 - RADIUS)) + 1.0) * (1.0 / (1u64 << RADIUS) as f64);
    let radius = (-2.0 * ln(uniform)).sqrt();
    let along = (whole((bits >> 2) & ((1 << ANGLE) - 1)) + 0.5) * (1.0 / (1u64 << ANGLE) as f64) - 0.5;
    let [cosine, sine] = cos_sin(along * FRAC_PI_2);
    let (x, y) = if bits & 1 == 0 { (cosine, sine) } else { (sine, cosine) };
    let radius = if bits & 2 == 0 { radius } else { -radius };
    [radius * x, radius * y]
}

/// A whole number below 2^52, without the instruction that not all machines have.
#[inline(always)]
fn whole(bits: u64) -> f64 {
    const TWO_52: u64 = 0x4330 << 48;
    f64::from_bits(bits | TWO_52) - f64::from_bits(TWO_52)
}

/// The logarithm of a positive number that is not too small: of its mantissa, between 1/sqrt(2) and sqrt(2), by the series in
/// (m - 1)/(m + 1), and its exponent.
#[inline(always)]
fn ln(x: f64) -> f64 {
    /// The bits of 1/sqrt(2).
    const LEAST: u64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = x.to_bits().wrapping_sub(LEAST).wrapping_add(1 << 62);
    let exponent = whole(shifted >> 52) - 1024.0;
    let mantissa = f64::from_bits((shifted & ((1 << 52) - 1)) + LEAST);
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 1.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = square.mul_add(sum, 1.0 / odd);
    }
    exponent.mul_add(LN_2, 2.0 * s * sum)
}

/// Cosine and sine of an angle of at most pi/4, by their series.
#[inline(always)]
fn cos_sin(x: f64) -> [f64; 2] {
    let square = -x * x;
    let (mut cosine, mut sine) = (1.0, 1.0);
    for step in [16.0, 14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0] {
        cosine = (square * cosine).mul_add(1.0 / (step * (step - 1.0)), 1.0);
        sine = (square * sine).mul_add(1.0 / (step * (step + 1.0)), 1.0);
    }
    [cosine, x * sine]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn pairs_are_those_of_the_library_s_functions() {
        let mut stream = rand_chacha::ChaCha8Rng::from_seed([5; 32]);
        for at in 0..100_000u64 {
            let random = stream.next_u64();
            let bits = if at < 38 { (1 << (26 + at)) | (random & ((1 << 26) - 1)) } else { random };
            let uniform = ((bits >> 26) as f64 + 1.0) / 2f64.powi(38);
            let turn = (((bits >> 2 & 0xff_ffff) as f64 + 0.5) / 2f64.powi(24) - 0.5) * FRAC_PI_2;
            let size = (-2.0 * uniform.ln()).sqrt() * if bits & 2 == 0 { 1.0 } else { -1.0 };
            let mut exact = [size * turn.cos(), size * turn.sin()];
            if bits & 1 == 1 {
                exact.reverse();
            }
            let found = pair(bits);
            assert!(found.iter().zip(exact).all(|(x, y)| (x - y).abs() < 1e-14), "{bits}: {found:?} {exact:?}");
        }
        assert_eq!(pair(u64::MAX), [0.0, 0.0]);
    }

    /// Against the distribution function at some places, within 4 standard errors, and pairs do not go together.
    #[test]
    fn numbers_are_normal() {
        let n = 1_000_001;
        let mut numbers = vec![0.0; n];
        fill(&mut rand_chacha::ChaCha8Rng::from_seed([7; 32]), &mut numbers);
        let near = |found: f64, expected: f64, variance: f64, what: &str| {
            assert!((found - expected).abs() < 4.0 * (variance / n as f64).sqrt(), "{what}: {found}, not {expected}");
        };
        for (place, below) in
            [(-3.0, 0.001_349_898), (-1.0, 0.158_655_254), (0.0, 0.5), (0.5, 0.691_462_461), (2.0, 0.977_249_868)]
        {
            let share = numbers.iter().filter(|x| **x < place).count() as f64 / n as f64;
            near(share, below, below * (1.0 - below), "below a place");
        }
        let mean = |of: &dyn Fn(usize) -> f64| (0..n).map(of).sum::<f64>() / n as f64;
        near(mean(&|i| numbers[i]), 0.0, 1.0, "mean");
        near(mean(&|i| numbers[i].powi(2)), 1.0, 2.0, "square");
        near(mean(&|i| numbers[i].powi(4)), 3.0, 96.0, "fourth power");
        for lag in [1, PAIRS] {
            near(mean(&|i| numbers[i] * numbers[(i + lag) % n]), 0.0, 1.0, "product");
            near(mean(&|i| (numbers[i] * numbers[(i + lag) % n]).powi(2)), 1.0, 8.0, "product of squares");
        }
    }
}
