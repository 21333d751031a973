//! The sampler of [issfa](https://docs.rs/issfa), in a crate of its own so that it is compiled once, beside what stands on it:
//! tiles of modes and the pass over the data, the model, one update each, chains, and weights of new rows.
//!
//! The crate `issfa` has all of it under the same names in `issfa::lab`, and is what to use.

#![warn(missing_docs)]

use issfa_base::{comm, data, error, noise, numeric, rng, structure};

pub mod chain;
pub mod compiled;
pub mod infer;
pub mod kernels;
pub mod model;
pub mod pca;
pub mod spectral;
