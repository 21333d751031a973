//! What the sampler of [issfa](https://docs.rs/issfa) stands on, in a crate of its own so that it is compiled beside it: errors,
//! dense algebra and files, random streams, ranks, rows as they come from users, structures and noise.
//!
//! The crate `issfa` has all of it under the same names, and is what to use.

#![warn(missing_docs)]

pub mod comm;
pub mod data;
pub mod error;
pub mod noise;
pub mod numeric;
pub mod rng;
pub mod structure;

pub use error::{Error, Result};
