//! The parameters of the spectral curve, given the features \[M6\].
//!
//! The target depends on the features only through K and the energy of each mode. The mode is found by a safeguarded
//! Newton method that always starts at the prior mean: the proposal must not depend on the current value.

use super::{Info, Phase, Turn, metropolis};
use crate::comm::{Comm, told_by_rank_0};
use crate::model::simulate::{gamma, normal};
use crate::model::{Model, NormalPrior, State, ThetaStep};
use crate::numeric::eigen::{Eigen, symmetric_eigen};
use crate::numeric::lanes::{Tileful, filled_up, sum_of, sum_of_ln};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;
use crate::spectral::{TILE, Tiles, mode_energies, sum_over_tiles};
use crate::structure::Spectrum;
use crate::structure::curve::CurveBatch;
use pulp::{Simd, WithSimd};
use rand::RngExt;
use std::ops::Range;

const DEGREES_OF_FREEDOM: f64 = 5.0;
/// Beyond this the curve has left the range of numbers; the search is kept inside.
const LIMIT: f64 = 50.0;
const NEWTON_STEPS: usize = 60;
/// The search first looks at every so many-th tile, if there are at least this many of those.
const SAMPLE_STRIDE: usize = 8;
/// Standard deviations of the random walk, one picked at random each sweep.
const WALK_SDS: [f64; 4] = [0.3, 0.1, 0.03, 0.01];

/// `ln p(xi | S)` up to a constant, as a function of xi.
pub struct Target<'a> {
    /// The curve over the modes.
    pub spectrum: &'a Spectrum,
    /// Of xi, one a parameter.
    pub priors: &'a [NormalPrior],
    /// K.
    pub n_features: f64,
    /// `sum_k S_kv^2` for every mode.
    pub energies: &'a [f64],
    /// Which modes this rank knows the energies of.
    pub tiles: Tiles,
    /// Who knows the energies of the other modes.
    pub comm: &'a dyn Comm,
    /// Only every so many-th tile of modes is looked at, and counted as often: 1 for the target itself.
    pub stride: usize,
}

/// The target and its derivatives at a point.
pub struct Expansion {
    /// `ln p(xi | S)`, up to the target's constant.
    pub value: f64,
    /// In xi.
    pub gradient: Vec<f64>,
    /// Row-major.
    pub hessian: Vec<f64>,
}

impl Target<'_> {
    /// `K/2 sum ln h - 1/2 sum h q - 1/2 sum r (xi - m)^2`.
    pub fn value(&self, ln_theta: &[f64]) -> f64 {
        let theta: Vec<f64> = ln_theta.iter().map(|x| x.exp()).collect();
        let arch = pulp::Arch::new();
        let sums = sum_over_tiles(self.tiles, 1, self.comm, |_, modes, slot| {
            slot[0] = arch.dispatch(ValueAt { target: self, theta: &theta, modes });
        });
        sums[0] + self.ln_prior(ln_theta)
    }

    fn ln_prior(&self, ln_theta: &[f64]) -> f64 {
        ln_theta.iter().zip(self.priors).map(|(x, p)| -0.5 * p.precision * (x - p.mean).powi(2)).sum()
    }

    /// Value, gradient and Hessian in xi.
    pub fn expand(&self, ln_theta: &[f64]) -> Expansion {
        let theta: Vec<f64> = ln_theta.iter().map(|x| x.exp()).collect();
        let n = theta.len();
        let arch = pulp::Arch::new();
        let sums = sum_over_tiles(self.tiles, 1 + n + n * n, self.comm, |tile, modes, slots| {
            if tile % self.stride == 0 {
                arch.dispatch(ExpandAt { target: self, theta: &theta, modes, slots });
                slots.iter_mut().for_each(|slot| *slot *= self.stride as f64);
            }
        });
        let mut gradient = sums[1..=n].to_vec();
        let mut hessian = sums[1 + n..].to_vec();
        for (p, prior) in self.priors.iter().enumerate() {
            gradient[p] -= prior.precision * (ln_theta[p] - prior.mean);
            hessian[p * n + p] -= prior.precision;
        }
        Expansion { value: sums[0] + self.ln_prior(ln_theta), gradient, hessian }
    }
}

/// The likelihood's part of the target at the modes of one tile.
struct ValueAt<'a> {
    target: &'a Target<'a>,
    theta: &'a [f64],
    modes: Range<usize>,
}

impl WithSimd for ValueAt<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let energies = filled_up(&self.target.energies[self.modes.clone()], 0.0);
        let mut h = [1.0; TILE];
        self.target.spectrum.precisions_at(self.theta, self.modes.clone(), &mut h[..self.modes.len()]);
        0.5 * (self.target.n_features * sum_of_ln(&h) - sum_of(|v| h[v] * energies[v]))
    }
}

/// Value, gradient and Hessian of the likelihood's part at the modes of one tile.
///
/// With `a = (K/h - e)/2`, `b = -K/(2 h^2)`, F and D the first and second derivatives of h by a set's linear form, and
/// `u_p = theta_p c_p` (c_p what multiplies parameter p): the gradient is `sum a F u_p`, the Hessian
/// `sum (b F F' + [same set] a D) u_p u_r + [p = r] gradient_p`.
struct ExpandAt<'a> {
    target: &'a Target<'a>,
    theta: &'a [f64],
    modes: Range<usize>,
    slots: &'a mut [f64],
}

impl WithSimd for ExpandAt<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let ExpandAt { target: &Target { spectrum, n_features, energies, .. }, theta, modes, slots } = self;
        let (n, size) = (theta.len(), spectrum.set_size());
        let energies = filled_up(&energies[modes.clone()], 0.0);
        let mut batch = CurveBatch::default();
        spectrum.differentiate(theta, modes.clone(), &mut batch);
        let h = &batch.precisions;
        slots[0] = 0.5 * (n_features * sum_of_ln(h) - sum_of(|v| h[v] * energies[v]));
        // Modes that are not there have derivatives of zero, and add nothing.
        let (mut slope, mut weights) = ([0.0; TILE], [0.0; TILE]);
        for v in 0..TILE {
            slope[v] = 0.5 * (n_features / h[v] - energies[v]);
        }
        let of = |p: usize| spectrum.coefficients(p, modes.clone()).map(|values| filled_up(values, 0.0));
        for set in 0..spectrum.n_sets() {
            for v in 0..TILE {
                weights[v] = slope[v] * batch.first[set][v];
            }
            for p in 0..size {
                slots[1 + set * size + p] = theta[set * size + p] * weighted_sum(&weights, &of(p), &None);
            }
            for other in 0..=set {
                for v in 0..TILE {
                    let same = if other == set { slope[v] * batch.second[set][v] } else { 0.0 };
                    let curvature = -0.5 * n_features / (h[v] * h[v]);
                    weights[v] = curvature * batch.first[set][v] * batch.first[other][v] + same;
                }
                for (p, r) in (0..size).flat_map(|p| (0..size).map(move |r| (p, r))) {
                    let (p_at, r_at) = (set * size + p, other * size + r);
                    let sum = theta[p_at] * theta[r_at] * weighted_sum(&weights, &of(p), &of(r));
                    slots[1 + n + p_at * n + r_at] = sum;
                    slots[1 + n + r_at * n + p_at] = sum;
                }
            }
        }
        for p in 0..n {
            slots[1 + n + p * n + p] += slots[1 + p];
        }
    }
}

/// `sum_v w_v c_v d_v`; a coefficient that is not given is 1.
#[inline(always)]
fn weighted_sum(weights: &Tileful, c: &Option<Tileful>, d: &Option<Tileful>) -> f64 {
    match (c, d) {
        (None, None) => sum_of(|v| weights[v]),
        (Some(c), None) | (None, Some(c)) => sum_of(|v| weights[v] * c[v]),
        (Some(c), Some(d)) => sum_of(|v| weights[v] * c[v] * d[v]),
    }
}

/// The normal approximation at the mode: negative Hessian as eigenvectors and floored eigenvalues.
pub struct Approximation {
    /// Where the target is largest.
    pub mode: Vec<f64>,
    curvature: Eigen,
}

impl Approximation {
    /// Newton's method from the prior mean, first on a sample of the modes where there are many. The mode is a function of
    /// the features alone, as it must be, whichever way it is found.
    pub fn find(target: &Target) -> Approximation {
        let start: Vec<f64> = target.priors.iter().map(|p| p.mean).collect();
        if target.energies.len() < SAMPLE_STRIDE * SAMPLE_STRIDE * TILE {
            return Approximation::climb(target, start);
        }
        let sample = Target { stride: SAMPLE_STRIDE, ..*target };
        Approximation::climb(target, Approximation::climb(&sample, start).mode)
    }

    /// The approximation that rank 0 found, on every rank.
    fn told_by_rank_0(self, comm: &dyn Comm) -> Approximation {
        let n = self.mode.len();
        let numbers = told_by_rank_0(comm, || [self.mode, self.curvature.values, self.curvature.vectors].concat());
        let (mode, values, vectors) = (&numbers[..n], &numbers[n..2 * n], &numbers[2 * n..]);
        Approximation { mode: mode.to_vec(), curvature: Eigen { values: values.to_vec(), vectors: vectors.to_vec() } }
    }

    /// Newton's method with a floored curvature and step halving.
    fn climb(target: &Target, start: Vec<f64>) -> Approximation {
        let mut mode = start;
        let mut here = target.expand(&mode);
        for _ in 0..NEWTON_STEPS {
            let curvature = floored_curvature(&here.hessian, target.priors);
            let step = solve(&curvature, &here.gradient);
            let length = step.iter().map(|x| x * x).sum::<f64>().sqrt();
            let gain = 0.5 * step.iter().zip(&here.gradient).map(|(s, g)| s * g).sum::<f64>();
            // Gains below the rounding of the value cannot be seen by the line search.
            if length < 1e-7 || gain < 1e-11 * (1.0 + here.value.abs()) || !length.is_finite() {
                break;
            }
            let Some((point, expansion)) = line_search(target, &mode, &step, length, here.value) else { break };
            (mode, here) = (point, expansion);
        }
        Approximation { curvature: floored_curvature(&here.hessian, target.priors), mode }
    }

    /// The mode plus `scale` times a draw with covariance one over the curvature.
    fn draw(&self, scale: f64, stream: &mut impl rand::Rng) -> Vec<f64> {
        let n = self.mode.len();
        let along: Vec<f64> = self.curvature.values.iter().map(|e| scale * normal(stream) / e.sqrt()).collect();
        let shift = |p: usize| (0..n).map(|i| self.curvature.vectors[p * n + i] * along[i]).sum::<f64>();
        (0..n).map(|p| self.mode[p] + shift(p)).collect()
    }

    /// A multivariate t draw.
    fn draw_t(&self, stream: &mut impl rand::Rng) -> Vec<f64> {
        let chi_squared = gamma(0.5 * DEGREES_OF_FREEDOM, 0.5, stream);
        self.draw((DEGREES_OF_FREEDOM / chi_squared).sqrt(), stream)
    }

    /// The log density of the t proposal, up to a constant.
    pub fn ln_t_density(&self, ln_theta: &[f64]) -> f64 {
        let n = self.mode.len();
        let along =
            |i: usize| (0..n).map(|p| self.curvature.vectors[p * n + i] * (ln_theta[p] - self.mode[p])).sum::<f64>();
        let distance: f64 = (0..n).map(|i| self.curvature.values[i] * along(i).powi(2)).sum();
        -0.5 * (DEGREES_OF_FREEDOM + n as f64) * (1.0 + distance / DEGREES_OF_FREEDOM).ln()
    }
}

/// The first of ever shorter steps that does not lose.
fn line_search(target: &Target, from: &[f64], step: &[f64], length: f64, value: f64) -> Option<(Vec<f64>, Expansion)> {
    let mut share = (3.0 / length).min(1.0);
    for _ in 0..30 {
        let point: Vec<f64> = from.iter().zip(step).map(|(x, s)| (x + share * s).clamp(-LIMIT, LIMIT)).collect();
        let expansion = target.expand(&point);
        if expansion.value >= value && point != from {
            return Some((point, expansion));
        }
        share *= 0.5;
    }
    None
}

/// Minus the Hessian with its eigenvalues made positive and kept above a tenth of the smallest prior precision.
///
/// Absolute values matter on the way to the mode: a negative eigenvalue set to the floor would send the step far
/// along its direction and starve the others.
fn floored_curvature(hessian: &[f64], priors: &[NormalPrior]) -> Eigen {
    let floor = 0.1 * priors.iter().map(|p| p.precision).fold(f64::INFINITY, f64::min);
    let negative: Vec<f64> = hessian.iter().map(|x| if x.is_finite() { -x } else { 0.0 }).collect();
    let mut eigen = symmetric_eigen(&negative, priors.len());
    eigen.values.iter_mut().for_each(|value| *value = value.abs().max(floor));
    eigen
}

fn solve(curvature: &Eigen, gradient: &[f64]) -> Vec<f64> {
    let n = gradient.len();
    let along = |i: usize| (0..n).map(|p| curvature.vectors[p * n + i] * gradient[p]).sum::<f64>();
    let scaled: Vec<f64> = (0..n).map(|i| along(i) / curvature.values[i]).collect();
    (0..n).map(|p| (0..n).map(|i| curvature.vectors[p * n + i] * scaled[i]).sum()).collect()
}

/// An independence proposal at the mode, then a step of a random walk; or a draw from the approximation.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn) -> Info {
    let mut stream = turn.streams.stream(Purpose::Theta, 0, 0);
    if state.n_features() == 0 {
        // Exact after burn-in. Before, theta would wander off and the first birth would be a null feature.
        if turn.phase == Phase::Sampling {
            let draw = |p: &NormalPrior| p.mean + normal(&mut stream) / p.precision.sqrt();
            state.ln_theta = model.priors.ln_theta.iter().map(draw).collect();
        }
        return Info { proposed: 1, accepted: 1, ..Info::default() };
    }
    let energies = mode_energies(&state.features);
    let target = Target {
        spectrum: &model.spectrum,
        priors: &model.priors.ln_theta,
        n_features: state.n_features() as f64,
        energies: &energies,
        tiles: state.features.tiles(),
        comm: model.comm.as_ref(),
        stride: 1,
    };
    let approximation = Approximation::find(&target).told_by_rank_0(model.comm.as_ref());
    if model.theta_step == ThetaStep::Laplace {
        state.ln_theta = approximation.draw(1.0, &mut stream);
        return Info { proposed: 1, accepted: 1, ..Info::default() };
    }
    let proposal = approximation.draw_t(&mut stream);
    let mut value = target.value(&state.ln_theta);
    let proposed_value = target.value(&proposal);
    let ln_ratio =
        proposed_value - value + approximation.ln_t_density(&state.ln_theta) - approximation.ln_t_density(&proposal);
    let accepted = metropolis::accept(ln_ratio, &mut stream);
    if accepted {
        (state.ln_theta, value) = (proposal, proposed_value);
    }
    walk(&target, &mut state.ln_theta, value, &mut stream);
    Info { proposed: 1, accepted: u32::from(accepted), ..Info::default() }
}

/// One random-walk step, so that a poor mode cannot freeze the chain.
fn walk(target: &Target, ln_theta: &mut Vec<f64>, value: f64, stream: &mut impl rand::Rng) {
    let sd = WALK_SDS[stream.random_range(0..WALK_SDS.len())];
    let moved: Vec<f64> = ln_theta.iter().map(|x| x + sd * normal(stream)).collect();
    if metropolis::accept(target.value(&moved) - value, stream) {
        *ln_theta = moved;
    }
}
