//! Moves along the ridge that the likelihood cannot see: features shrink, weights grow, theta follows \[M7\].

use super::{Info, Turn, metropolis};
use crate::model::simulate::normal;
use crate::model::{Model, Priors, State, WeightMeanPrior};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;
use crate::spectral::Projections;

/// Tries a sweep and the standard deviations of `ln c` they cycle through.
const TRIES: usize = 10;
const SDS: [f64; 3] = [0.3, 0.1, 0.03];

/// What the move looks at: everything else cancels.
#[derive(Clone, Debug)]
pub struct Scales {
    /// xi, one a parameter of the curve.
    pub ln_theta: Vec<f64>,
    /// tau, one a feature.
    pub weight_means: Vec<f64>,
    /// nu, one a feature.
    pub weight_precisions: Vec<f64>,
}

impl Scales {
    /// theta -> c^(2/d) theta, tau -> c tau, nu -> nu / c^2, with `ln_c = ln c` and `degree = d` that of the curve.
    pub fn scaled(&self, ln_c: f64, degree: f64) -> Scales {
        let c = ln_c.exp();
        Scales {
            ln_theta: self.ln_theta.iter().map(|x| x + 2.0 * ln_c / degree).collect(),
            weight_means: self.weight_means.iter().map(|tau| c * tau).collect(),
            weight_precisions: self.weight_precisions.iter().map(|nu| nu / (c * c)).collect(),
        }
    }
}

/// The log acceptance ratio of a move by `ln_c`, Jacobian included.
pub fn ln_ratio(priors: &Priors, old: &Scales, new: &Scales, ln_c: f64) -> f64 {
    let normal_change =
        |x: f64, y: f64, mean: f64, precision: f64| -0.5 * precision * ((y - mean).powi(2) - (x - mean).powi(2));
    let theta: f64 = (old.ln_theta.iter().zip(&new.ln_theta).zip(&priors.ln_theta))
        .map(|((&x, &y), p)| normal_change(x, y, p.mean, p.precision))
        .sum();
    let means: f64 = match priors.weight_mean {
        WeightMeanPrior::Fixed(_) => 0.0,
        WeightMeanPrior::Normal(p) => (old.weight_means.iter().zip(&new.weight_means))
            .map(|(&x, &y)| normal_change(x, y, p.mean, p.precision) + ln_c)
            .sum(),
    };
    let prior = priors.weight_precision;
    let precisions: f64 = (old.weight_precisions.iter().zip(&new.weight_precisions))
        .map(|(x, y)| -2.0 * ln_c * (prior.shape - 1.0) - prior.rate * (y - x) - 2.0 * ln_c)
        .sum();
    theta + means + precisions
}

/// Stands aside where the curve is not homogeneous, where a fixed weight mean is not zero, and without features.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let Some(degree) = model.spectrum.degree() else { return Info::default() };
    let fixed_elsewhere = matches!(model.priors.weight_mean, WeightMeanPrior::Fixed(mean) if mean != 0.0);
    if fixed_elsewhere || state.n_features() == 0 {
        return Info::default();
    }
    let mut stream = turn.streams.stream(Purpose::Rescale, 0, 0);
    let mut scales = Scales {
        ln_theta: state.ln_theta.clone(),
        weight_means: state.weight_means.clone(),
        weight_precisions: state.weight_precisions.clone(),
    };
    let (mut total, mut accepted) = (0.0, 0);
    for attempt in 0..TRIES {
        let ln_c = SDS[attempt % SDS.len()] * normal(&mut stream);
        let moved = scales.scaled(ln_c, degree);
        if metropolis::accept(ln_ratio(&model.priors, &scales, &moved, ln_c), &mut stream) {
            scales = moved;
            total += ln_c;
            accepted += 1;
        }
    }
    if accepted > 0 {
        state.features.scale((-total).exp());
        state.loadings.scale(total.exp());
        state.ln_theta = scales.ln_theta;
        state.weight_means = scales.weight_means;
        state.weight_precisions = scales.weight_precisions;
        projections.features_changed();
    }
    Info { proposed: TRIES as u32, accepted, ..Info::default() }
}
