//! Turns the signs of a feature, its weights and their mean at once: the likelihood cannot see it \[M17\].

use super::{Info, Turn, metropolis};
use crate::model::{Model, NormalPrior, State, WeightMeanPrior};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;
use crate::spectral::Projections;

/// The log acceptance ratio: only the prior of the mean weight knows the sign.
pub fn ln_ratio(prior: NormalPrior, weight_mean: f64) -> f64 {
    -2.0 * prior.precision * prior.mean * weight_mean
}

/// Proposes it to every feature. Stands aside where signs mean nothing (means centred at 0) and where a fixed mean forbids it.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let prior = match model.priors.weight_mean {
        WeightMeanPrior::Normal(prior) if prior.mean != 0.0 => prior,
        _ => return Info::default(),
    };
    let mut stream = turn.streams.stream(Purpose::SignFlip, 0, 0);
    let accept = |&mean: &f64| metropolis::accept(ln_ratio(prior, mean), &mut stream);
    let turned: Vec<bool> = state.weight_means.iter().map(accept).collect();
    let accepted = turned.iter().filter(|turned| **turned).count() as u32;
    if accepted > 0 {
        state.features.turn_signs(&turned);
        state.loadings.turn_signs(&turned);
        state.weight_means.iter_mut().zip(&turned).filter(|(_, turned)| **turned).for_each(|(mean, _)| *mean = -*mean);
        projections.features_changed();
    }
    Info { proposed: turned.len() as u32, accepted, ..Info::default() }
}
