//! What a fit says about the posterior: the fitted model, its features, its overview, and diagnostics of traces.

pub mod diagnostics;
pub mod export;
pub mod features;
mod fitted;
pub mod labels;
pub mod overview;
pub mod peaks;
pub mod results;
pub mod synchrony;
pub mod templates;
pub mod text;

pub use features::{FeatureRow, PersistentFeatures};
pub(crate) use fitted::ChainRecord;
pub use fitted::Fitted;
pub use results::{Found, Results};
