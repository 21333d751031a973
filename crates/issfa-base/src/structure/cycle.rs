//! The cycle graph (circulant): smooth on a loop; the basis is the real discrete Fourier transform.

use super::folded::{DENSE_LIMIT, Folded};
use super::lines::for_each_line;
use super::{Basis, Direction, by_way_of_double};
use crate::numeric::linalg::Real;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

/// Modes in the order 1, cos 1, sin 1, cos 2, sin 2, ..., and `(-1)^j` last where n is even; orthonormal. The eigenvalue
/// of frequency k is `2 - 2 cos(2 pi k / n)`. Two sites are joined by two edges, one site by a loop that does nothing.
pub struct Cycle {
    eigenvalues: Vec<f64>,
    transform: Transform,
}

enum Transform {
    Short(Folded, Folded<f32>),
    Long { to_spectrum: Arc<dyn RealToComplex<f64>>, to_sites: Arc<dyn ComplexToReal<f64>> },
}

impl Cycle {
    /// A cycle of `n` sites.
    pub fn new(n: usize) -> Cycle {
        if n <= DENSE_LIMIT { Cycle::with(n, Transform::Short(folded(n), folded(n))) } else { Cycle::fast(n) }
    }

    fn fast(n: usize) -> Cycle {
        let mut planner = RealFftPlanner::new();
        let (to_spectrum, to_sites) = (planner.plan_fft_forward(n), planner.plan_fft_inverse(n));
        Cycle::with(n, Transform::Long { to_spectrum, to_sites })
    }

    fn with(n: usize, transform: Transform) -> Cycle {
        // 4 sin^2 rather than 2 - 2 cos: no cancellation for the smoothest modes.
        let eigenvalue = |mode: usize| 4.0 * (PI * frequency(mode) as f64 / n as f64).sin().powi(2);
        Cycle { eigenvalues: (0..n).map(eigenvalue).collect(), transform }
    }
}

/// How often a mode goes round.
fn frequency(mode: usize) -> usize {
    mode.div_ceil(2)
}

/// Whether a mode has no partner: the constant, and the alternating one of an even cycle.
fn is_single(n: usize, mode: usize) -> bool {
    mode == 0 || 2 * frequency(mode) == n
}

fn folded<R: Real>(n: usize) -> Folded<R> {
    let entry = |site: usize, mode: usize| {
        // The angle is reduced to one period in integers, so that it is exact for every size.
        let angle = 2.0 * PI * ((site * frequency(mode)) % n) as f64 / n as f64;
        if is_single(n, mode) {
            (1.0 / n as f64).sqrt() * angle.cos().round()
        } else {
            (2.0 / n as f64).sqrt() * if mode % 2 == 1 { angle.cos() } else { angle.sin() }
        }
    };
    Folded::new(n, 1, entry)
}

/// `X_k = sum_j x_j exp(-2 pi i j k / n)` as coefficients: `cos: sqrt(2/n) Re X`, `sin: -sqrt(2/n) Im X`.
fn coefficients(waves: &[Complex<f64>], line: &mut [f64]) {
    let n = line.len();
    let (single, paired) = ((1.0 / n as f64).sqrt(), (2.0 / n as f64).sqrt());
    for (mode, x) in line.iter_mut().enumerate() {
        let wave = waves[frequency(mode)];
        *x = if is_single(n, mode) {
            single * wave.re
        } else if mode % 2 == 1 {
            paired * wave.re
        } else {
            -paired * wave.im
        };
    }
}

/// The waves whose unscaled inverse transform is the line with these coefficients.
fn waves_of(line: &[f64], waves: &mut [Complex<f64>]) {
    let n = line.len();
    let (single, paired) = ((1.0 / n as f64).sqrt(), (0.5 / n as f64).sqrt());
    waves.fill(Complex::default());
    for (mode, x) in line.iter().enumerate() {
        let wave = &mut waves[frequency(mode)];
        if is_single(n, mode) {
            wave.re = single * x;
        } else if mode % 2 == 1 {
            wave.re = paired * x;
        } else {
            wave.im = -paired * x;
        }
    }
}

impl Basis for Cycle {
    fn n_sites(&self) -> usize {
        self.eigenvalues.len()
    }

    fn word(&self) -> String {
        format!("cycle({})", self.n_sites())
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "n log n"
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        let shape = (self.n_sites(), inner);
        match (&self.transform, direction) {
            (Transform::Short(folded, _), _) => folded.apply(direction, values, inner, scratch),
            (Transform::Long { to_spectrum, .. }, Direction::ToSpectrum) => {
                let (mut waves, mut work) = (to_spectrum.make_output_vec(), to_spectrum.make_scratch_vec());
                for_each_line(values, shape, scratch, 0, |line, _| {
                    let done = to_spectrum.process_with_scratch(line, &mut waves, &mut work);
                    done.expect("the buffers were made for this length");
                    coefficients(&waves, line);
                });
            }
            (Transform::Long { to_sites, .. }, Direction::ToSites) => {
                let (mut waves, mut work) = (to_sites.make_input_vec(), to_sites.make_scratch_vec());
                for_each_line(values, shape, scratch, 0, |line, _| {
                    waves_of(line, &mut waves);
                    let done = to_sites.process_with_scratch(&mut waves, line, &mut work);
                    done.expect("the buffers were made for this length, and single waves are real");
                });
            }
        }
    }

    fn apply_single(&self, direction: Direction, values: &mut [f32], inner: usize, scratch: &mut Vec<f32>) {
        match &self.transform {
            Transform::Short(_, folded) => folded.apply(direction, values, inner, scratch),
            _ => by_way_of_double(self, direction, values, inner),
        }
    }
}

impl std::fmt::Debug for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{check_basis, laplacian};
    use super::*;

    fn edges(n: usize) -> Vec<(usize, usize, f64)> {
        (0..n).map(|i| (i, (i + 1) % n, 1.0)).collect()
    }

    #[test]
    fn short_cycles_diagonalise_the_laplacian() {
        for n in [1, 2, 3, 4, 7, 12, 24, 61] {
            check_basis(&Cycle::new(n), &laplacian(n, &edges(n)));
        }
    }

    #[test]
    fn long_cycles_do_too_and_fast_equals_dense() {
        for n in [1, 2, 3, 5, 12, 29, 130, 149] {
            check_basis(&Cycle::fast(n), &laplacian(n, &edges(n)));
        }
    }
}
