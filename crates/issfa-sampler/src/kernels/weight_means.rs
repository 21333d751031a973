//! The mean weight tau_k of each feature, over its active rows \[M10\].

use super::{Info, Turn, weight_moments};
use crate::model::simulate::normal;
use crate::model::{Model, NormalPrior, State, WeightMeanPrior};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;

/// Normal: precision `r + n nu`, mean `(r m + nu sum a) / (r + n nu)`, weights counted by their local precisions.
pub fn conditional(prior: NormalPrior, weight_precision: f64, n_active: f64, sum: f64) -> NormalPrior {
    let precision = prior.precision + n_active * weight_precision;
    NormalPrior { mean: (prior.precision * prior.mean + weight_precision * sum) / precision, precision }
}

/// Draws them from their conditionals, unless they are fixed.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn) -> Info {
    let WeightMeanPrior::Normal(prior) = model.priors.weight_mean else { return Info::default() };
    let mut stream = turn.streams.stream(Purpose::WeightMeans, 0, 0);
    for (feature, moments) in weight_moments(model, state, &turn.streams, Purpose::WeightMeans).into_iter().enumerate()
    {
        let given = conditional(prior, state.weight_precisions[feature], moments.mass, moments.sum);
        state.weight_means[feature] = given.mean + normal(&mut stream) / given.precision.sqrt();
    }
    Info::default()
}
