//! Features given what was observed in a window: a linear system that no basis makes diagonal, and its solution by
//! conjugate gradients \[M14\].

use super::Window;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::structure::Direction;
use std::collections::BTreeMap;

/// The precision of some rotated features given the loadings and what was observed, as an operator on their spectra.
pub(super) struct System<'a> {
    pub window: &'a Window,
    /// Rows with holes, with their weights in these features.
    pub incomplete: &'a [(usize, Vec<f64>)],
    pub noise_variance: f64,
    /// `lambda / sigma^2` of each feature.
    pub from_data: &'a [f64],
    pub precisions: &'a [f64],
}

impl System<'_> {
    /// `diag(h) X + U' (lambda / sigma^2 X at what was observed)`, holes taken out row by row.
    fn apply<R: Real>(&self, spectra: &[Vec<R>], images: &mut [Vec<R>]) {
        let window = self.window;
        images.iter_mut().zip(spectra).for_each(|(image, spectrum)| image.copy_from_slice(spectrum));
        window.transform_all(Direction::ToSites, images);
        let mut without = BTreeMap::new();
        for (row, weights) in self.incomplete {
            for &column in &window.holes[*row] {
                let site = window.sites[column as usize];
                let explained: f64 = weights.iter().zip(images.iter()).map(|(w, image)| w * image[site].to_f64()).sum();
                add_to(&mut without, site, weights, explained / self.noise_variance);
            }
        }
        share(
            images.iter_mut().zip(self.from_data).enumerate(),
            || (),
            |_, (i, (image, from_data))| {
                image.iter_mut().for_each(|x| *x = R::from_f64(x.to_f64() * from_data));
                window.outside.iter().for_each(|&site| image[site] = R::zero());
                for (site, shares) in &without {
                    image[*site] = R::from_f64(image[*site].to_f64() - shares[i]);
                }
            },
        );
        window.transform_all(Direction::ToSpectrum, images);
        for (image, spectrum) in images.iter_mut().zip(spectra) {
            let values = image.iter_mut().zip(spectrum).zip(self.precisions);
            values.for_each(|((y, x), h)| *y = R::from_f64(y.to_f64() + h * x.to_f64()));
        }
    }

    /// The residual that is small enough for means: beside the right side.
    pub fn least_size_of_a_mean(&self, right: &[Vec<f64>]) -> f64 {
        self.size(right) * SOLVED * SOLVED
    }

    /// The inner product of a residual with itself over what the precision would be if everything had been observed.
    fn size<R: Real>(&self, residual: &[Vec<R>]) -> f64 {
        let one = |(row, from_data): (&Vec<R>, &f64)| {
            row.iter().zip(self.precisions).map(|(x, h)| x.to_f64().powi(2) / (from_data + h)).sum::<f64>()
        };
        residual.iter().zip(self.from_data).map(one).sum()
    }

    /// The size of a residual that is small beside the scatter of one draw, whose energy is one in every direction: the energy
    /// of the error, `r' A^-1 r`, is at most the size times `(lambda / sigma^2 + h) / h` at the smoothest mode.
    pub fn least_size_of_a_draw(&self) -> f64 {
        let least = self.precisions.iter().copied().fold(f64::INFINITY, f64::min);
        let worst = self.from_data.iter().copied().fold(0.0, f64::max);
        SMALL_ERROR * least / (worst + least)
    }

    /// The solution of `A x = pull` up to a residual of size `enough`. Steps are taken in the precision R; where that does
    /// not reach, the residual is formed anew in double precision and what is left is solved for.
    pub fn solve<R: Real>(&self, pull: Vec<Vec<f64>>, enough: f64) -> Vec<Vec<f64>> {
        let mut solution: Vec<Vec<f64>> = pull.iter().map(|row| vec![0.0; row.len()]).collect();
        let mut residual = pull.clone();
        let mut last = f64::INFINITY;
        for _ in 0..MOST_RENEWALS {
            let size = self.size(&residual);
            if size <= enough {
                break;
            }
            if size > LEAST_GAIN * last {
                // Too near singular for R.
                add_scaled(&mut solution, 1.0, &self.solve_once::<f64>(&residual, enough));
                break;
            }
            last = size;
            let within_reach = size * R::RELIABLE * R::RELIABLE;
            let part = self.solve_once::<R>(&residual, enough.max(within_reach));
            add_scaled(&mut solution, 1.0, &part);
            if enough >= within_reach {
                break;
            }
            self.apply(&solution, &mut residual);
            for (left, right) in residual.iter_mut().zip(&pull) {
                left.iter_mut().zip(right).for_each(|(applied, b)| *applied = b - *applied);
            }
        }
        solution
    }

    /// Conjugate gradients, preconditioned by what the precision would be if everything had been observed, until the
    /// residual's size is `enough`.
    fn solve_once<R: Real>(&self, pull: &[Vec<f64>], enough: f64) -> Vec<Vec<R>> {
        let zeros = || pull.iter().map(|row| vec![R::zero(); row.len()]).collect::<Vec<_>>();
        let (mut solution, mut direction, mut applied) = (zeros(), zeros(), zeros());
        let mut residual: Vec<Vec<R>> = pull.iter().map(|row| row.iter().map(|&x| R::from_f64(x)).collect()).collect();
        let mut size = self.size(&residual);
        let mut ratio = 0.0;
        for _ in 0..MOST_STEPS {
            if size <= enough {
                break;
            }
            for ((to, from), from_data) in direction.iter_mut().zip(&residual).zip(self.from_data) {
                let preconditioned = from.iter().zip(self.precisions).map(|(x, h)| x.to_f64() / (from_data + h));
                to.iter_mut().zip(preconditioned).for_each(|(x, y)| *x = R::from_f64(y + ratio * x.to_f64()));
            }
            self.apply(&direction, &mut applied);
            let step = size / inner(&direction, &applied);
            add_scaled(&mut solution, step, &direction);
            add_scaled(&mut residual, -step, &applied);
            let next = self.size(&residual);
            (ratio, size) = (next / size, next);
        }
        solution
    }
}

/// When conjugate gradients stop: for means, the residual beside the right side; for draws, the energy of the error, so that in
/// no direction, however many there are, it is more than a tenth of the scatter; and steps at most, which rounding may ask for.
const SOLVED: f64 = 1e-6;
const SMALL_ERROR: f64 = 0.01;
const MOST_STEPS: usize = 3000;
const MOST_RENEWALS: usize = 20;
/// A renewal must take the residual's size down to this, or steps are taken in double precision.
const LEAST_GAIN: f64 = 1e-2;

/// Adds `factor` times some weights to what a site has.
pub(super) fn add_to(sums: &mut BTreeMap<usize, Vec<f64>>, site: usize, weights: &[f64], factor: f64) {
    let sums = sums.entry(site).or_insert_with(|| vec![0.0; weights.len()]);
    sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += w * factor);
}

fn inner<R: Real>(a: &[Vec<R>], b: &[Vec<R>]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(x, y)| x.to_f64() * y.to_f64()).sum::<f64>()).sum()
}

fn add_scaled<A: Real, B: Real>(to: &mut [Vec<A>], factor: f64, from: &[Vec<B>]) {
    for (to, from) in to.iter_mut().zip(from) {
        to.iter_mut().zip(from).for_each(|(x, y)| *x = A::from_f64(x.to_f64() + factor * y.to_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::expression;
    use std::sync::Arc;

    /// However large the signal, the error stays small beside the scatter of one draw: a residual that is small beside the
    /// right side would not do, since smooth modes outside hardly show in it.
    #[test]
    fn draws_are_solved_to_their_own_scatter_whatever_the_signal() {
        let structure = Arc::new(expression::build(Some("path(24)"), None).unwrap());
        let n = structure.n_sites();
        let window = Window::new(structure.clone(), (0..9).collect(), vec![Vec::new()]);
        let precisions: Vec<f64> = structure.eigenvalues().iter().map(|gamma| 0.01 + gamma).collect();
        for from_data in [1.0, 1e3, 1e6, 1e10] {
            let system = System {
                window: &window,
                incomplete: &[],
                noise_variance: 1.0,
                from_data: &[from_data],
                precisions: &precisions,
            };
            let truth: Vec<f64> = (0..n).map(|mode| (mode as f64 * 1.3).sin() / precisions[mode].sqrt()).collect();
            let applied = |x: &[f64]| {
                let mut out = vec![vec![0.0; n]];
                system.apply(&[x.to_vec()], &mut out);
                out.swap_remove(0)
            };
            let solved = |found: Vec<Vec<f64>>| {
                let error: Vec<f64> = found[0].iter().zip(&truth).map(|(x, t)| x - t).collect();
                let energy: f64 = error.iter().zip(applied(&error)).map(|(e, a)| e * a).sum();
                assert!(energy <= SMALL_ERROR, "{from_data}: {energy}");
                // The smoothest mode lies mostly outside, where only the prior holds it.
                assert!(error[0].powi(2) * precisions[0] < SMALL_ERROR, "{from_data}: {}", error[0]);
            };
            let (right, enough) = (vec![applied(&truth)], system.least_size_of_a_draw());
            solved(system.solve::<f64>(right.clone(), enough));
            solved(system.solve::<f32>(right, enough));
        }
    }
}
