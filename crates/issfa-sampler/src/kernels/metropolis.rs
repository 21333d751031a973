//! The Metropolis-Hastings decision.

use rand::RngExt;

/// Whether to accept a proposal with this log ratio; what is not a number is refused.
pub fn accept(ln_ratio: f64, stream: &mut impl rand::Rng) -> bool {
    let uniform: f64 = stream.random();
    !ln_ratio.is_nan() && uniform.ln() < ln_ratio
}
