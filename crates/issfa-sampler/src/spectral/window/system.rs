//! Features given what was observed in a window: a linear system that no basis makes diagonal, and its solution by
//! conjugate gradients \[M14\].

use super::{Window, loops};
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
    /// `A X = diag(h) X + U' (lambda / sigma^2 X at what was observed)`, holes taken out row by row, and `x'A x` of each row.
    fn apply<R: Real>(&self, spectra: &[Vec<R>], images: &mut [Vec<R>]) -> Vec<f64> {
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
        let mut energies = vec![0.0; spectra.len()];
        let rows = images.iter_mut().zip(spectra).zip(&mut energies).enumerate();
        share(rows, Vec::new, |scratch, (i, ((image, spectrum), energy))| {
            loops::keep_seen(image, &window.is_seen, self.from_data[i]);
            for (site, shares) in &without {
                image[*site] = R::from_f64(image[*site].to_f64() - shares[i]);
            }
            window.structure.apply(Direction::ToSpectrum, image, scratch);
            *energy = loops::add_product_and_meet(image, spectrum, self.precisions);
        });
        energies
    }

    /// The inner product of a residual with itself over what the precision would be if everything had been observed.
    fn size(&self, residual: &[Vec<f64>]) -> f64 {
        let one = |(row, from_data): (&Vec<f64>, &f64)| {
            row.iter().zip(self.precisions).map(|(x, h)| x.powi(2) / (from_data + h)).sum::<f64>()
        };
        residual.iter().zip(self.from_data).map(one).sum()
    }

    /// Below any eigenvalue of the precision over what it would be if everything had been observed: `h / (lambda / sigma^2 + h)`
    /// at the smoothest mode.
    fn least_eigenvalue(&self) -> f64 {
        let least = self.precisions.iter().copied().fold(f64::INFINITY, f64::min);
        let worst = self.from_data.iter().copied().fold(0.0, f64::max);
        least / (worst + least)
    }

    /// The solution of `A x = pull`, as near as `goal` says. Steps are taken in the precision R; where that does not reach, the
    /// residual is formed anew in double precision and what is left is solved for.
    pub fn solve<R: Real>(&self, pull: Vec<Vec<f64>>, goal: Goal) -> Vec<Vec<f64>> {
        let mut solution: Vec<Vec<f64>> = pull.iter().map(|row| vec![0.0; row.len()]).collect();
        let mut residual = pull.clone();
        let mut last = f64::INFINITY;
        for _ in 0..MOST_RENEWALS {
            let size = self.size(&residual);
            if goal.is_met(size, 1.0 / self.least_eigenvalue()) {
                break;
            }
            if size > LEAST_GAIN * last {
                // Too near singular for R.
                add_scaled(&mut solution, 1.0, &self.solve_once::<f64>(&residual, goal, 0.0).0);
                break;
            }
            last = size;
            let (part, is_met) = self.solve_once::<R>(&residual, goal, size * R::RELIABLE * R::RELIABLE);
            add_scaled(&mut solution, 1.0, &part);
            if is_met {
                break;
            }
            self.apply(&solution, &mut residual);
            for (left, right) in residual.iter_mut().zip(&pull) {
                left.iter_mut().zip(right).for_each(|(applied, b)| *applied = b - *applied);
            }
        }
        solution
    }

    /// Conjugate gradients, preconditioned by what the precision would be if everything had been observed, until the goal is
    /// met (which is told) or the residual's size is `within_reach`.
    fn solve_once<R: Real>(&self, pull: &[Vec<f64>], goal: Goal, within_reach: f64) -> (Vec<Vec<R>>, bool) {
        let zeros = || pull.iter().map(|row| vec![R::zero(); row.len()]).collect::<Vec<_>>();
        let (mut solution, mut direction, mut applied) = (zeros(), zeros(), zeros());
        let mut residual: Vec<Vec<R>> = pull.iter().map(|row| row.iter().map(|&x| R::from_f64(x)).collect()).collect();
        let inverse = |c: &f64| self.precisions.iter().map(|h| R::from_f64(1.0 / (c + h))).collect();
        let inverses: Vec<Vec<R>> = self.from_data.iter().map(inverse).collect();
        let squares = residual.iter().zip(&inverses).map(|(r, inverse)| loops::weighted_square(r, inverse));
        let mut size: f64 = squares.sum();
        let (least, mut ratio) = (self.least_eigenvalue(), 0.0);
        // An upper bound on the energy of the error is this times the size (Gauss and Radau; Meurant and Tichy 2013).
        let mut energy_of_size = 1.0 / least;
        for _ in 0..MOST_STEPS {
            let is_met = goal.is_met(size, energy_of_size);
            if is_met || size <= within_reach {
                return (solution, is_met);
            }
            let rows = direction.iter_mut().zip(residual.iter().zip(&inverses));
            share(rows, || (), |_, (to, (r, inverse))| loops::turn(to, ratio, r, inverse));
            let step = size / self.apply(&direction, &mut applied).iter().sum::<f64>();
            let mut sizes = vec![0.0; pull.len()];
            let rows = solution.iter_mut().zip(&mut residual).zip(&mut sizes).enumerate();
            share(
                rows,
                || (),
                |_, (i, ((solution, residual), size))| {
                    *size = loops::advance([solution, residual], step, [&direction[i], &applied[i]], &inverses[i]);
                },
            );
            let next: f64 = sizes.iter().sum();
            (ratio, size) = (next / size, next);
            let more = energy_of_size - step;
            energy_of_size = more / (least * more + ratio);
        }
        (solution, true)
    }
}

/// How near to the solution conjugate gradients go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// For draws: until the energy of the error, `e' A e`, is at most this, beside that of a draw's scatter, which is one in every
    /// direction.
    Energy(f64),
    /// For means: until the residual's size is at most this. It is what the energy of the error would be if everything had been
    /// observed, and about that of the error where something was.
    Size(f64),
}

impl Goal {
    /// In no direction, however many there are, is the error more than a hundredth of the scatter. Conjugate gradients come from
    /// below, so that what is missing of the energy is missing in every draw: with 0.01 here a million repeats show it.
    pub const DRAW: Goal = Goal::Energy(1e-4);
    /// At what was observed, the error in all directions together is about what one draw scatters in one of them.
    pub const MEAN: Goal = Goal::Size(1.0);

    /// Whether a residual of this size will do, where the energy is at most `energy_of_size` times that.
    fn is_met(self, size: f64, energy_of_size: f64) -> bool {
        match self {
            Goal::Energy(enough) => energy_of_size * size <= enough,
            Goal::Size(enough) => size <= enough,
        }
    }
}

/// Steps at most, which rounding may ask for.
const MOST_STEPS: usize = 3000;
const MOST_RENEWALS: usize = 20;
/// A renewal must take the residual's size down to this, or steps are taken in double precision.
const LEAST_GAIN: f64 = 1e-2;

/// Adds `factor` times some weights to what a site has.
pub(super) fn add_to(sums: &mut BTreeMap<usize, Vec<f64>>, site: usize, weights: &[f64], factor: f64) {
    let sums = sums.entry(site).or_insert_with(|| vec![0.0; weights.len()]);
    sums.iter_mut().zip(weights).for_each(|(sum, w)| *sum += w * factor);
}

fn add_scaled<A: Real, B: Real>(to: &mut [Vec<A>], factor: f64, from: &[Vec<B>]) {
    for (to, from) in to.iter_mut().zip(from) {
        to.iter_mut().zip(from).for_each(|(x, y)| *x = A::from_f64(x.to_f64() + factor * y.to_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Streams};
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
                assert!(energy <= 1e-4, "{from_data}: {energy}");
                // The smoothest mode lies mostly outside, where only the prior holds it.
                assert!(error[0].powi(2) * precisions[0] < 1e-4, "{from_data}: {}", error[0]);
            };
            let right = vec![applied(&truth)];
            solved(system.solve::<f64>(right.clone(), Goal::DRAW));
            solved(system.solve::<f32>(right, Goal::DRAW));
        }
    }

    /// Of means only what lies where something was seen is used: there the error of all directions together is about that of one
    /// draw in one of them, and outside no one looks.
    #[test]
    fn means_are_near_where_something_was_seen() {
        let structure = Arc::new(expression::build(Some("path(28) x path(24)"), None).unwrap());
        let n = structure.n_sites();
        let is_inside = |site: &usize| ((site / 24) as f64 - 13.5).hypot((site % 24) as f64 - 11.5) < 8.5;
        let window = Window::new(structure.clone(), (0..n).filter(is_inside).collect(), vec![Vec::new()]);
        for (from_data, ridge, roughness) in
            [(700.0, 0.5, 10.0), (30.0, 0.01, 10.0), (1e5, 0.5, 10.0), (700.0, 1.0, 500.0)]
        {
            let precisions: Vec<f64> = structure.eigenvalues().iter().map(|gamma| ridge + roughness * gamma).collect();
            let (from_data, precisions) = (&[from_data][..], &precisions[..]);
            let system = System { window: &window, incomplete: &[], noise_variance: 1.0, from_data, precisions };
            let mut normals = vec![0.0; 2 * n];
            crate::numeric::normals::fill(&mut Streams::once(3).stream(Purpose::Simulation, 0, 0), &mut normals);
            let truth: Vec<f64> = (0..n).map(|mode| normals[mode] / precisions[mode].sqrt()).collect();
            let mut image = window.image(&truth);
            for site in 0..n {
                let seen = from_data[0] * image[site] + from_data[0].sqrt() * normals[n + site];
                image[site] = if window.is_seen[site] { seen } else { 0.0 };
            }
            let right = vec![window.spectrum(image)];
            let exact = system.solve::<f64>(right.clone(), Goal::Size(1e-18)).swap_remove(0);
            for found in [system.solve::<f64>(right.clone(), Goal::MEAN), system.solve::<f32>(right, Goal::MEAN)] {
                let error: Vec<f64> = found[0].iter().zip(&exact).map(|(x, y)| x - y).collect();
                let image = window.image(&error);
                let inside: f64 = window.sites.iter().map(|&site| from_data[0] * image[site].powi(2)).sum();
                assert!(inside < 1.5, "{from_data:?} {ridge} {roughness}: {inside}");
            }
        }
    }
}
