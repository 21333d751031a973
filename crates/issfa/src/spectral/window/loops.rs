//! Loops over one spectrum or image, compiled for the machine's vectors. Sums are in double precision and in a fixed number of
//! lanes, so their bits depend on no machine.

use crate::numeric::linalg::Real;
use pulp::{Simd, WithSimd};

/// Lanes of a sum.
const LANES: usize = 16;

/// Functions whose bodies are compiled for each kind of vectors, as closures would not be.
macro_rules! vectorised {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $out:ty $body:block)*) => {$(
        $(#[$doc])*
        pub(super) fn $name<'a, R: Real>($($argument: $kind),*) -> $out {
            struct Work<'a, R> {
                $($argument: $kind),*
            }
            impl<'a, R: Real> WithSimd for Work<'a, R> {
                type Output = $out;

                #[inline(always)]
                fn with_simd<S: Simd>(self, _: S) -> $out {
                    let Work { $($argument),* } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Work { $($argument),* })
        }
    )*};
}

vectorised! {
    /// `to = residual * inverse + ratio * to`.
    fn turn(to: &'a mut [R], ratio: f64, residual: &'a [R], inverse: &'a [R]) -> () {
        let ratio = R::from_f64(ratio);
        for ((x, r), d) in to.iter_mut().zip(residual).zip(inverse) {
            *x = x.mul_add(ratio, r.mul_add(*d, R::zero()));
        }
    }

    /// `to += factor * from`.
    fn add(to: &'a mut [R], factor: f64, from: &'a [R]) -> () {
        let factor = R::from_f64(factor);
        to.iter_mut().zip(from).for_each(|(x, y)| *x = y.mul_add(factor, *x));
    }

    /// `to += from * factors`.
    fn add_product(to: &'a mut [R], from: &'a [R], factors: &'a [f64]) -> () {
        for ((x, y), factor) in to.iter_mut().zip(from).zip(factors) {
            *x = y.mul_add(R::from_f64(*factor), *x);
        }
    }

    /// Times `factor` where something was seen, and nothing elsewhere.
    fn keep_seen(image: &'a mut [R], is_seen: &'a [bool], factor: f64) -> () {
        let factor = R::from_f64(factor);
        for (x, is_seen) in image.iter_mut().zip(is_seen) {
            *x = x.mul_add(if *is_seen { factor } else { R::zero() }, R::zero());
        }
    }

    /// The inner product.
    fn inner(a: &'a [R], b: &'a [R]) -> f64 {
        in_lanes(a, b, |x, y| x.to_f64() * y.to_f64())
    }

    /// The sum of `x^2` times a weight.
    fn weighted_square(values: &'a [R], weights: &'a [R]) -> f64 {
        in_lanes(values, weights, |x, w| x.to_f64() * x.to_f64() * w.to_f64())
    }
}

#[inline(always)]
fn in_lanes<R: Real>(a: &[R], b: &[R], term: impl Fn(R, R) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    let tail: f64 = a_tail.iter().zip(b_tail).map(|(x, y)| term(*x, *y)).sum();
    lanes.iter().sum::<f64>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_equal_naive_ones() {
        for n in [0, 1, 15, 16, 53] {
            let wave = |step: f64| (0..n).map(|i| (i as f64 * step).sin()).collect::<Vec<f64>>();
            let (a, b, c) = (wave(0.7), wave(1.3), wave(2.1));
            let is_seen: Vec<bool> = (0..n).map(|i| i % 3 == 0).collect();
            let near = |found: &[f64], one: &dyn Fn(usize) -> f64| {
                assert!(found.iter().enumerate().all(|(v, x)| (x - one(v)).abs() < 1e-14), "{n}: {found:?}");
            };
            let changed = |change: &dyn Fn(&mut Vec<f64>)| {
                let mut to = a.clone();
                change(&mut to);
                to
            };
            near(&changed(&|to| turn(to, 0.3, &b, &c)), &|v| b[v] * c[v] + 0.3 * a[v]);
            near(&changed(&|to| add(to, -0.4, &b)), &|v| a[v] - 0.4 * b[v]);
            near(&changed(&|to| add_product(to, &b, &c)), &|v| a[v] + b[v] * c[v]);
            near(&changed(&|to| keep_seen(to, &is_seen, 2.5)), &|v| if v % 3 == 0 { 2.5 * a[v] } else { 0.0 });
            near(&[inner(&a, &b)], &|_| (0..n).map(|v| a[v] * b[v]).sum());
            near(&[weighted_square(&a, &c)], &|_| (0..n).map(|v| a[v] * a[v] * c[v]).sum());
        }
    }
}
