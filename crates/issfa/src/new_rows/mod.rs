//! Weights of rows that were not part of the fit: the sampler's updates of them, and the way from rows to results and back.

pub mod transform;

pub use issfa_sampler::infer::*;
