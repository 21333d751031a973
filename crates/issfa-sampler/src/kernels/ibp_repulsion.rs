//! The repulsion beta of the Indian buffet process, by a random walk in its logarithm \[M9\].

use super::{Info, Turn, metropolis};
use crate::model::simulate::normal;
use crate::model::{GammaPrior, Model, State, ibp};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;
use statrs::function::gamma::ln_gamma;

const STEPS: u32 = 3;
const SD: f64 = 0.5;

/// The log ratio of a proposal symmetric in `ln beta`; `counts` are the rows that use each feature. The paper prints it
/// without its first term, which P(Z) demands.
pub fn ln_ratio(prior: GammaPrior, strength: f64, counts: &[usize], n_rows: usize, from: f64, to: f64) -> f64 {
    let (k, n) = (counts.len() as f64, n_rows as f64);
    let columns: f64 = counts.iter().map(|&m| ln_gamma(n - m as f64 + to) - ln_gamma(n - m as f64 + from)).sum();
    let expected = |repulsion| ibp::expected_features_per_strength(n_rows, repulsion);
    k * (to / from).ln()
        + columns
        + k * (ln_gamma(n + from) - ln_gamma(n + to))
        + strength * (expected(from) - expected(to))
        + prior.shape * (to / from).ln()
        + prior.rate * (from - to)
}

/// A few steps of the walk.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn) -> Info {
    let (prior, strength, n_rows) = (model.priors.ibp_repulsion, state.ibp_strength, state.loadings.n_rows());
    walk(state, turn, |counts, from, to| ln_ratio(prior, strength, counts, n_rows, from, to))
}

/// The walk with a log ratio given as a function of the counts and of where the step leads from and to.
pub fn walk<R: Real>(state: &mut State<R>, turn: &Turn, ln_ratio: impl Fn(&[usize], f64, f64) -> f64) -> Info {
    let mut stream = turn.streams.stream(Purpose::IbpRepulsion, 0, 0);
    let mut info = Info { proposed: STEPS, ..Info::default() };
    for _ in 0..STEPS {
        let (from, to) = (state.ibp_repulsion, state.ibp_repulsion * (SD * normal(&mut stream)).exp());
        if metropolis::accept(ln_ratio(state.loadings.counts(), from, to), &mut stream) {
            state.ibp_repulsion = to;
            info.accepted += 1;
        }
    }
    info
}
