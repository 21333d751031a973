//! The path graph (first-order random walk): smooth along a line with free ends; the basis is the DCT-II.

use super::folded::{DENSE_LIMIT, Folded};
use super::lines::for_each_line;
use super::{Basis, Direction, by_way_of_double};
use crate::numeric::linalg::Real;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::f64::consts::PI;
use std::sync::Arc;

/// `U[j][k] = c_k cos(pi (j + 1/2) k / n)`, orthonormal (`c_0 = sqrt(1/n)`, else `sqrt(2/n)`); eigenvalues
/// `2 - 2 cos(pi k / n)`.
pub struct Path {
    eigenvalues: Vec<f64>,
    transform: Transform,
}

enum Transform {
    Short(Folded, Folded<f32>),
    Long(Cosines),
}

impl Path {
    /// A path of `n` sites.
    pub fn new(n: usize) -> Path {
        if n <= DENSE_LIMIT { Path::with(n, Transform::Short(folded(n), folded(n))) } else { Path::fast(n) }
    }

    fn fast(n: usize) -> Path {
        Path::with(n, Transform::Long(Cosines::new(n)))
    }

    fn with(n: usize, transform: Transform) -> Path {
        // 4 sin^2 rather than 2 - 2 cos: no cancellation for the smoothest modes.
        let eigenvalues = (0..n).map(|k| 4.0 * (PI * k as f64 / (2 * n) as f64).sin().powi(2)).collect();
        Path { eigenvalues, transform }
    }
}

fn folded<R: Real>(n: usize) -> Folded<R> {
    let entry = |site: usize, mode: usize| {
        // The angle is reduced to one period in integers, so that it is exact for every size.
        let turns = ((2 * site + 1) * mode) % (4 * n);
        normalisation(n, mode) * (PI * turns as f64 / (2 * n) as f64).cos()
    };
    Folded::new(n, 0, entry)
}

fn normalisation(n: usize, mode: usize) -> f64 {
    if mode == 0 { (1.0 / n as f64).sqrt() } else { (2.0 / n as f64).sqrt() }
}

impl Basis for Path {
    fn n_sites(&self) -> usize {
        self.eigenvalues.len()
    }

    fn word(&self) -> String {
        format!("path({})", self.n_sites())
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "n log n"
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        match &self.transform {
            Transform::Short(folded, _) => folded.apply(direction, values, inner, scratch),
            Transform::Long(cosines) => cosines.apply(direction, values, inner, scratch),
        }
    }

    fn apply_single(&self, direction: Direction, values: &mut [f32], inner: usize, scratch: &mut Vec<f32>) {
        match &self.transform {
            Transform::Short(_, folded) => folded.apply(direction, values, inner, scratch),
            _ => by_way_of_double(self, direction, values, inner),
        }
    }
}

/// The orthonormal DCT-II of long lines by way of a Fourier transform of the same length: the even sites in order, then the
/// odd ones backwards, have waves `V_k`, and coefficients k and n - k are the real part and minus the imaginary part of
/// `turn_k V_k`, `turn_k = c_k exp(-i pi k / (2 n))`.
struct Cosines {
    to_spectrum: Arc<dyn RealToComplex<f64>>,
    to_sites: Arc<dyn ComplexToReal<f64>>,
    /// `turn_k` for k = 0 to n / 2.
    turns: Vec<Complex<f64>>,
}

impl Cosines {
    fn new(n: usize) -> Cosines {
        let mut planner = RealFftPlanner::new();
        let (to_spectrum, to_sites) = (planner.plan_fft_forward(n), planner.plan_fft_inverse(n));
        let turn = |k: usize| Complex::from_polar(normalisation(n, k), -PI * k as f64 / (2 * n) as f64);
        Cosines { to_spectrum, to_sites, turns: (0..=n / 2).map(turn).collect() }
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        let n = self.to_spectrum.len();
        let mut waves = self.to_spectrum.make_output_vec();
        let n_work = self.to_spectrum.get_scratch_len().max(self.to_sites.get_scratch_len());
        let mut work = vec![Complex::default(); n_work];
        for_each_line(values, (n, inner), scratch, n, |line, folded| {
            let done = match direction {
                Direction::ToSpectrum => {
                    fold(line, folded);
                    let done = self.to_spectrum.process_with_scratch(folded, &mut waves, &mut work);
                    self.coefficients(&waves, line);
                    done
                }
                Direction::ToSites => {
                    self.waves_of(line, &mut waves);
                    let done = self.to_sites.process_with_scratch(&mut waves, folded, &mut work);
                    unfold(folded, line);
                    done
                }
            };
            done.expect("the buffers were made for this length, and single waves are real");
        });
    }

    fn coefficients(&self, waves: &[Complex<f64>], line: &mut [f64]) {
        let n = line.len();
        for (k, (turn, wave)) in self.turns.iter().zip(waves).enumerate() {
            let turned = turn * wave;
            line[(n - k) % n] = -turned.im;
            line[k] = turned.re;
        }
    }

    /// The waves whose unscaled inverse transform is the folded line with these coefficients.
    fn waves_of(&self, line: &[f64], waves: &mut [Complex<f64>]) {
        let n = line.len();
        waves[0] = Complex::new(line[0] * self.turns[0].re, 0.0);
        for (k, (turn, wave)) in self.turns.iter().zip(waves).enumerate().skip(1) {
            // `turn_k` has length sqrt(2/n), so that its conjugate over 2 undoes it and the n of the unscaled inverse.
            *wave = turn.conj() * Complex::new(line[k], -line[n - k]) * 0.5;
            if 2 * k == n {
                wave.im = 0.0;
            }
        }
    }
}

/// Even sites in order, then odd ones backwards.
fn fold(line: &[f64], folded: &mut [f64]) {
    let n = line.len();
    for (at, x) in line.iter().enumerate() {
        folded[if at % 2 == 0 { at / 2 } else { n - 1 - at / 2 }] = *x;
    }
}

fn unfold(folded: &[f64], line: &mut [f64]) {
    let n = line.len();
    for (at, x) in line.iter_mut().enumerate() {
        *x = folded[if at % 2 == 0 { at / 2 } else { n - 1 - at / 2 }];
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{check_basis, laplacian};
    use super::*;

    fn edges(n: usize) -> Vec<(usize, usize, f64)> {
        (1..n).map(|i| (i - 1, i, 1.0)).collect()
    }

    #[test]
    fn short_paths_diagonalise_the_laplacian() {
        for n in [1, 2, 3, 4, 7, 16, 61] {
            check_basis(&Path::new(n), &laplacian(n, &edges(n)));
        }
    }

    #[test]
    fn long_paths_do_too_and_fast_equals_dense() {
        for n in [1, 2, 5, 29, 130, 149] {
            check_basis(&Path::fast(n), &laplacian(n, &edges(n)));
        }
    }
}
