//! Local precisions of Student weights, drawn by whoever needs them and then forgotten \[M19\].
//!
//! A Student weight is a normal one whose precision `nu_k lambda` holds a gamma number of its own. Given all else each is
//! drawn from its conditional; that of an entry which is not active has its prior. Nobody keeps them: the state is about
//! weights alone.

use crate::model::{GammaPrior, NormalPrior, simulate};

/// Streams of local precisions stand behind those that a kernel has for chunks of rows.
pub(super) const STREAMS: u64 = 1 << 32;

/// Gamma: shape `(d + 1)/2`, rate `(d + nu (a - tau)^2)/2` of a weight a; without one both are `d/2`.
pub fn conditional(tails: f64, prior: NormalPrior, weight: Option<f64>) -> GammaPrior {
    let (n, square) = weight.map_or((0.0, 0.0), |a| (1.0, prior.precision * (a - prior.mean).powi(2)));
    GammaPrior { shape: 0.5 * (tails + n), rate: 0.5 * (tails + square) }
}

/// One local precision, 1 for normal weights.
pub fn draw(tails: Option<f64>, prior: NormalPrior, weight: Option<f64>, stream: &mut impl rand::Rng) -> f64 {
    tails.map_or(1.0, |tails| {
        let given = conditional(tails, prior, weight);
        simulate::gamma(given.shape, given.rate, stream)
    })
}
