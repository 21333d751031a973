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

    /// `to = from + ratio * to`.
    fn follow(to: &'a mut [R], ratio: f64, from: &'a [R]) -> () {
        let ratio = R::from_f64(ratio);
        to.iter_mut().zip(from).for_each(|(x, y)| *x = x.mul_add(ratio, *y));
    }

    /// `to *= factors`.
    fn multiply(to: &'a mut [R], factors: &'a [R]) -> () {
        to.iter_mut().zip(factors).for_each(|(x, factor)| *x = x.mul_add(*factor, R::zero()));
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

/// Numbers that several loops go over while they are near.
const PIECE: usize = 1024;

/// `to += from * factors`, and the inner product of what it is then with `from`.
pub(super) fn add_product_and_meet<R: Real>(to: &mut [R], from: &[R], factors: &[f64]) -> f64 {
    let pieces = to.chunks_mut(PIECE).zip(from.chunks(PIECE)).zip(factors.chunks(PIECE));
    let one = |((to, from), factors): ((&mut [R], &[R]), &[f64])| {
        add_product(to, from, factors);
        inner(to, from)
    };
    pieces.map(one).sum()
}

/// `x += step * direction`, `residual -= step * applied`, and the sum of the residual's squares times weights.
pub(super) fn advance<R: Real>(
    [x, residual]: [&mut [R]; 2],
    step: f64,
    [direction, applied]: [&[R]; 2],
    weights: &[R],
) -> f64 {
    let moved = x.chunks_mut(PIECE).zip(direction.chunks(PIECE));
    let left = residual.chunks_mut(PIECE).zip(applied.chunks(PIECE)).zip(weights.chunks(PIECE));
    let mut size = 0.0;
    for ((x, direction), ((residual, applied), weights)) in moved.zip(left) {
        add(x, step, direction);
        add(residual, -step, applied);
        size += weighted_square(residual, weights);
    }
    size
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
        for n in [0, 1, 15, 16, 53, 2 * PIECE + 17] {
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
            near(&changed(&|to| follow(to, 0.3, &b)), &|v| b[v] + 0.3 * a[v]);
            near(&changed(&|to| multiply(to, &b)), &|v| a[v] * b[v]);
            near(&changed(&|to| add(to, -0.4, &b)), &|v| a[v] - 0.4 * b[v]);
            near(&changed(&|to| add_product(to, &b, &c)), &|v| a[v] + b[v] * c[v]);
            near(&changed(&|to| keep_seen(to, &is_seen, 2.5)), &|v| if v % 3 == 0 { 2.5 * a[v] } else { 0.0 });
            let near_sum = |found: f64, one: &dyn Fn(usize) -> f64| {
                let sum: f64 = (0..n).map(one).sum();
                assert!((found - sum).abs() < 1e-14 * (1 + n) as f64, "{n}: {found} {sum}");
            };
            near_sum(inner(&a, &b), &|v| a[v] * b[v]);
            near_sum(weighted_square(&a, &c), &|v| a[v] * a[v] * c[v]);
            let mut to = a.clone();
            near_sum(add_product_and_meet(&mut to, &b, &c), &|v| (a[v] + b[v] * c[v]) * b[v]);
            near(&to, &|v| a[v] + b[v] * c[v]);
            let (mut x, mut residual) = (a.clone(), b.clone());
            let square = advance([&mut x, &mut residual], 0.3, [&b, &c], &a);
            near_sum(square, &|v| (b[v] - 0.3 * c[v]).powi(2) * a[v]);
            near(&[x, residual].concat(), &|v| if v < n { a[v] + 0.3 * b[v] } else { b[v - n] - 0.3 * c[v - n] });
        }
    }
}
