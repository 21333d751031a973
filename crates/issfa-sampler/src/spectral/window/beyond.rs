//! Features outside of the mask given what they are inside, which only the prior knows of \[M14\].

use super::{Window, loops};
use crate::numeric::linalg::Real;
use crate::numeric::normals;
use crate::rng::Stream;
use crate::structure::Direction;

/// The energy of the error, in the law that is drawn from, is at most this: as that of draws of everything.
const ENOUGH: f64 = 1e-4;
/// Steps of a draw at most: many times as many as where a trial was through.
const MOST_STEPS: usize = 3000;
/// More steps than this, of four transforms each, take longer than a joint draw.
const FEW_STEPS: usize = 30;
/// Each takes the residual's size down to the square of what the precision can be trusted to, or the next one is in double precision.
const MOST_RENEWALS: usize = 20;
const LEAST_GAIN: f64 = 1e-2;

/// The prior's precision `U diag(h) U'` between sites outside, in two precisions.
pub(super) struct Beyond<'a, R> {
    window: &'a Window,
    rough: Factors<R>,
    exact: Factors<f64>,
}

/// h, and one over it, by mode.
struct Factors<R> {
    precisions: Vec<R>,
    variances: Vec<R>,
}

impl<R: Real> Factors<R> {
    fn new(precisions: &[f64]) -> Factors<R> {
        let each = |of: fn(f64) -> f64| precisions.iter().map(|h| R::from_f64(of(*h))).collect();
        Factors { precisions: each(|h| h), variances: each(|h| 1.0 / h) }
    }
}

impl<'a, R: Real> Beyond<'a, R> {
    pub fn new(window: &'a Window, precisions: &[f64]) -> Beyond<'a, R> {
        Beyond { window, rough: Factors::new(precisions), exact: Factors::new(precisions) }
    }

    /// Draws an image anew outside, given what it is inside.
    ///
    /// With w a draw from the prior and `d = x - w` inside, what is drawn is `w + y` outside, where y solves `H_oo y = - H_oi d`.
    /// A draw that is not near enough is none: what is not finite the chain reports.
    pub fn redraw(&self, image: &mut [R], stream: &mut Stream) {
        let drawn = self.prior_image(stream);
        let moved = self.solve(self.pull(image, &drawn), MOST_STEPS);
        for &site in &self.window.outside {
            let x = moved.as_ref().map_or(f64::NAN, |moved| drawn[site] + moved[site]);
            image[site] = R::from_f64(x);
        }
    }

    /// Whether few steps are enough, and lead where they say, by a trial with a draw from the prior in the place of a feature: it
    /// knows of the law that is drawn from, and of no feature.
    pub fn is_quick(&self, stream: &mut Stream) -> bool {
        let drawn = self.prior_image(stream);
        let pull = self.pull(&vec![R::zero(); drawn.len()], &drawn);
        self.solve(pull.clone(), FEW_STEPS).is_some_and(|found| {
            let residual = self.residual(&found, &pull);
            let mut spread = residual.clone();
            self.filter(&self.exact.variances, &mut spread, &mut Vec::new());
            loops::inner(&residual, &spread).abs() <= 2.0 * ENOUGH
        })
    }

    /// An image from the prior.
    fn prior_image(&self, stream: &mut Stream) -> Vec<f64> {
        let mut drawn = vec![0.0; self.exact.variances.len()];
        normals::fill(stream, &mut drawn);
        drawn.iter_mut().zip(&self.exact.variances).for_each(|(x, variance)| *x *= variance.sqrt());
        self.window.structure.apply(Direction::ToSites, &mut drawn, &mut Vec::new());
        drawn
    }

    /// `- H_oi d`.
    fn pull(&self, image: &[R], drawn: &[f64]) -> Vec<f64> {
        let mut pull = vec![0.0; image.len()];
        self.window.sites.iter().for_each(|&site| pull[site] = drawn[site] - image[site].to_f64());
        self.filter(&self.exact.precisions, &mut pull, &mut Vec::new());
        pull
    }

    /// `U diag(factors) U'`, of the result what lies outside.
    fn filter<E: Real>(&self, factors: &[E], image: &mut [E], scratch: &mut Vec<E>) {
        let window = self.window;
        window.structure.apply(Direction::ToSpectrum, image, scratch);
        loops::multiply(image, factors);
        window.structure.apply(Direction::ToSites, image, scratch);
        window.sites.iter().for_each(|&site| image[site] = E::zero());
    }

    /// The solution of `H_oo y = pull`, if so many steps are enough. Steps are taken in the precision R, or in double precision where
    /// that does not reach; as far as a precision can be trusted, then the residual is formed anew and what is left is solved for.
    fn solve(&self, pull: Vec<f64>, most_steps: usize) -> Option<Vec<f64>> {
        let (mut solution, mut residual) = (vec![0.0; pull.len()], pull.clone());
        let (mut left, mut last, mut is_rough) = (most_steps, f64::INFINITY, true);
        for _ in 0..MOST_RENEWALS {
            let (size, is_met) = if is_rough {
                self.solve_once(&self.rough, &residual, &mut left, &mut solution)
            } else {
                self.solve_once(&self.exact, &residual, &mut left, &mut solution)
            };
            if is_met {
                return Some(solution);
            }
            if left == 0 {
                return None;
            }
            residual = self.residual(&solution, &pull);
            is_rough &= size <= LEAST_GAIN * last;
            last = size;
        }
        None
    }

    /// `pull - H_oo y`.
    fn residual(&self, solution: &[f64], pull: &[f64]) -> Vec<f64> {
        let mut residual = solution.to_vec();
        self.filter(&self.exact.precisions, &mut residual, &mut Vec::new());
        residual.iter_mut().zip(pull).for_each(|(applied, b)| *applied = b - *applied);
        residual
    }

    /// Conjugate gradients, preconditioned by the prior's variance between sites outside, `V_oo`: `H_oo V_oo` has no eigenvalue
    /// below 1, so that the energy of the error is at most the residual's size. Adds what is found, takes the steps off those that
    /// are left, and tells the size at the start and whether it became as small as it has to be.
    fn solve_once<E: Real>(
        &self,
        by: &Factors<E>,
        pull: &[f64],
        left: &mut usize,
        solution: &mut [f64],
    ) -> (f64, bool) {
        let mut residual: Vec<E> = pull.iter().map(|&x| E::from_f64(x)).collect();
        let (mut found, mut direction, mut scratch) = (vec![E::zero(); pull.len()], residual.clone(), Vec::new());
        let mut applied = residual.clone();
        self.filter(&by.variances, &mut direction, &mut scratch);
        let mut size = loops::inner(&residual, &direction);
        let first = size;
        let within_reach = E::RELIABLE * E::RELIABLE * first;
        while size > ENOUGH && size > within_reach && size.is_finite() && *left > 0 {
            *left -= 1;
            applied.copy_from_slice(&direction);
            self.filter(&by.precisions, &mut applied, &mut scratch);
            let step = size / loops::inner(&direction, &applied);
            loops::add(&mut found, step, &direction);
            loops::add(&mut residual, -step, &applied);
            applied.copy_from_slice(&residual);
            self.filter(&by.variances, &mut applied, &mut scratch);
            let next = loops::inner(&residual, &applied);
            loops::follow(&mut direction, next / size, &applied);
            size = next;
        }
        solution.iter_mut().zip(&found).for_each(|(x, y)| *x += y.to_f64());
        // Where rounding is all there is the size may be below 0, or no number.
        (first, size.abs() <= ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::linalg::{cholesky, solve_cholesky};
    use crate::rng::{Purpose, Streams};
    use crate::structure::expression;
    use std::sync::Arc;

    fn case() -> (Window, Vec<f64>) {
        let structure = Arc::new(expression::build(Some("path(7) x path(6)"), None).unwrap());
        let precisions = structure.eigenvalues().iter().map(|gamma| 0.02 + 3.0 * gamma).collect();
        (Window::new(structure, (13..31).filter(|site| site % 6 > 1).collect(), vec![Vec::new()]), precisions)
    }

    /// `U diag(h) U'` at two lists of sites.
    fn dense(window: &Window, precisions: &[f64], rows: &[usize], columns: &[usize]) -> Vec<f64> {
        let column = |site: usize| {
            let mut unit = vec![0.0; precisions.len()];
            unit[site] = 1.0;
            let spectrum = window.spectrum(unit);
            window.image(&spectrum.iter().zip(precisions).map(|(x, h)| x * h).collect::<Vec<_>>())
        };
        let columns: Vec<Vec<f64>> = columns.iter().map(|&site| column(site)).collect();
        rows.iter().flat_map(|&row| columns.iter().map(move |column| column[row])).collect()
    }

    /// Mean and covariance of many draws are those of the dense conditional, within 5 standard errors; inside nothing moves.
    #[test]
    fn draws_have_the_dense_conditional() {
        let (window, precisions) = case();
        let (beyond, n_out) = (Beyond::<f32>::new(&window, &precisions), window.outside.len());
        let start: Vec<f32> = (0..precisions.len()).map(|site| (site as f32 * 0.8).sin()).collect();
        let h = dense(&window, &precisions, &window.outside, &window.outside);
        let across = dense(&window, &precisions, &window.outside, &window.sites);
        let inside = |row: usize| -> f64 {
            let row = &across[row * window.sites.len()..][..window.sites.len()];
            row.iter().zip(&window.sites).map(|(h, &site)| -h * f64::from(start[site])).sum()
        };
        let factor = cholesky(&h, n_out).expect("a precision");
        let mean = solve_cholesky(&factor, &(0..n_out).map(inside).collect::<Vec<_>>());
        let (n, mut sums, mut squares) = (20_000, vec![0.0; n_out], vec![0.0; n_out]);
        for draw in 0..n {
            let mut image = start.clone();
            beyond.redraw(&mut image, &mut Streams::once(4).stream(Purpose::MissingCells, 0, draw));
            assert!(window.sites.iter().all(|&site| image[site] == start[site]));
            for (at, &site) in window.outside.iter().enumerate() {
                let x = f64::from(image[site]) - mean[at];
                sums[at] += x / n as f64;
                squares[at] += x * x / n as f64;
            }
        }
        for at in 0..n_out {
            let mut unit = vec![0.0; n_out];
            unit[at] = 1.0;
            let variance = solve_cholesky(&factor, &unit)[at];
            assert!(sums[at].abs() < 5.0 * (variance / n as f64).sqrt(), "{at}: {} of {variance}", sums[at]);
            assert!((squares[at] / variance - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt(), "{at}: {}", squares[at]);
        }
    }

    /// A disc, of more sites than steps are taken.
    fn disc(side: usize) -> Window {
        let structure = Arc::new(expression::build(Some(&format!("path({side}) x path({side})")), None).unwrap());
        let (middle, radius) = (0.5 * (side as f64 - 1.0), 0.4 * side as f64);
        let is_inside = |site: &usize| ((site / side) as f64 - middle).hypot((site % side) as f64 - middle) < radius;
        Window::new(structure, (0..side * side).filter(is_inside).collect(), vec![Vec::new()])
    }

    fn curve(window: &Window, [ridge, roughness, power]: [f64; 3]) -> Vec<f64> {
        window.structure.eigenvalues().iter().map(|gamma| (ridge + roughness * gamma).powf(power)).collect()
    }

    /// Whether a draw given inside would do, in single and in double precision.
    fn is_quick(window: &Window, precisions: &[f64]) -> bool {
        let stream = || Streams::once(2).stream(Purpose::MissingCells, 0, 0);
        let [single, double] = [
            Beyond::<f32>::new(window, precisions).is_quick(&mut stream()),
            Beyond::<f64>::new(window, precisions).is_quick(&mut stream()),
        ];
        assert!(double || !single);
        single && double
    }

    #[test]
    fn few_steps_are_enough_where_features_are_no_smoother_than_their_neighbours_make_them() {
        let (disc, small) = (disc(32), case().0);
        for theta in [[1.0, 1.0, 1.0], [1.0, 100.0, 1.0], [1.0, 1e5, 1.0], [1e3, 1e6, 1.0], [1.0, 1e3, 0.5]] {
            assert!(is_quick(&disc, &curve(&disc, theta)), "{theta:?}");
            assert!(is_quick(&small, &curve(&small, theta)), "{theta:?}");
        }
        // The last two hold numbers that are beyond single precision, and beyond double.
        for theta in [[1.0, 1e3, 3.0], [1.0, 1e3, 5.0], [1.0, 100.0, 6.0], [1.0, 1e3, 12.0], [1.0, 1e3, 90.0]] {
            assert!(!is_quick(&disc, &curve(&disc, theta)), "{theta:?}");
        }
    }

    /// What cannot be solved for is not drawn.
    #[test]
    fn a_draw_that_is_not_near_enough_is_no_number() {
        let window = disc(16);
        for theta in [[1.0, 1e3, 9.0], [1.0, 1e3, 90.0]] {
            let mut image = vec![1.0f32; window.structure.n_sites()];
            let stream = &mut Streams::once(4).stream(Purpose::MissingCells, 0, 1);
            Beyond::<f32>::new(&window, &curve(&window, theta)).redraw(&mut image, stream);
            assert!(window.outside.iter().all(|&site| image[site].is_nan()), "{theta:?}");
        }
    }

    /// In single and in double precision, for curves of very different slopes.
    #[test]
    fn solutions_have_little_energy_left() {
        let (small, large) = (case().0, disc(24));
        for (window, theta) in [
            (&small, [1.0, 10.0, 1.0]),
            (&small, [1e-4, 1.0, 1.0]),
            (&small, [1e-3, 5.0, 3.0]),
            (&small, [1e4, 1e6, 1.0]),
            (&large, [1.0, 100.0, 1.0]),
            (&large, [1e4, 1e8, 1.0]),
            (&large, [1.0, 30.0, 2.0]),
        ] {
            let (n, n_out) = (window.structure.n_sites(), window.outside.len());
            let (precisions, [ridge, roughness, power]) = (curve(window, theta), theta);
            let scale = (ridge + 0.1 * roughness).powf(power).sqrt();
            let h = dense(window, &precisions, &window.outside, &window.outside);
            let mut truth = vec![0.0; n];
            window.outside.iter().for_each(|&site| truth[site] = (site as f64 * 1.7).sin() / scale);
            let exact = Beyond::<f64>::new(window, &precisions);
            let mut pull = truth.clone();
            exact.filter(&exact.exact.precisions, &mut pull, &mut Vec::new());
            let rough = Beyond::<f32>::new(window, &precisions);
            for found in [exact.solve(pull.clone(), MOST_STEPS), rough.solve(pull, MOST_STEPS)] {
                let found = found.expect("it is near enough");
                let error: Vec<f64> = window.outside.iter().map(|&site| found[site] - truth[site]).collect();
                let energy: f64 = (0..n_out * n_out).map(|at| h[at] * error[at / n_out] * error[at % n_out]).sum();
                assert!(energy < 2.0 * ENOUGH, "{theta:?}: {energy}");
            }
        }
    }
}
