//! What a chain says about the posterior: running means by feature, and diagnostics of traces.

pub mod diagnostics;
pub mod export;
pub mod features;
pub mod overview;
pub mod results;
pub mod synchrony;

pub use features::{FeatureRow, PersistentFeatures};
pub use results::Results;
