//! Principal components of the data, without centring: what people would use instead; and the evidence for their number.

pub mod evidence;

pub use issfa_sampler::pca::*;
