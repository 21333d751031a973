//! The repulsion beta of the Indian buffet process, by a random walk in its logarithm \[M9\].

use super::{Info, Turn, metropolis};
use crate::model::simulate::normal;
use crate::model::{GammaPrior, Model, State, ibp};
use crate::numeric::linalg::Real;
use crate::rng::Purpose;
use statrs::function::gamma::ln_gamma;

const STEPS: u32 = 3;
const SD: f64 = 0.5;

/// Which acceptance ratio to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ratio {
    /// With `K ln(beta*/beta)`, which P(Z) demands.
    Complete,
    /// As printed in the paper, without it: wrong, kept so that the invariance test can show that it bites.
    AsPrinted,
}

/// The log ratio of a proposal symmetric in `ln beta`; `counts` are the rows that use each feature.
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

pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn) -> Info {
    update_with(model, state, turn, Ratio::Complete)
}

/// The update with a choice of ratio, for the tests.
pub fn update_with<R: Real>(model: &Model<R>, state: &mut State<R>, turn: &Turn, ratio: Ratio) -> Info {
    let mut stream = turn.streams.stream(Purpose::IbpRepulsion, 0, 0);
    let mut info = Info { proposed: STEPS, ..Info::default() };
    let counts = state.loadings.counts();
    for _ in 0..STEPS {
        let (from, to) = (state.ibp_repulsion, state.ibp_repulsion * (SD * normal(&mut stream)).exp());
        let prior = model.priors.ibp_repulsion;
        let mut ln = ln_ratio(prior, state.ibp_strength, counts, state.loadings.n_rows(), from, to);
        if ratio == Ratio::AsPrinted {
            ln -= counts.len() as f64 * (to / from).ln();
        }
        if metropolis::accept(ln, &mut stream) {
            state.ibp_repulsion = to;
            info.accepted += 1;
        }
    }
    info
}
