//! issfa: infinite structured sparse factor analysis.
pub mod comm;
pub mod data { pub mod read; pub mod write; }
pub mod error;
pub mod figures;
pub mod kernels;
pub mod linalg;
pub mod model;
pub mod rng;
pub mod selftest;
pub mod spectral;
pub mod structure;
pub mod sweep;
pub mod workers;

pub use error::{Error, Result};
