//! What a fit says about the posterior: the fitted model, its features, its overview, and diagnostics of traces.

mod aligned;
pub mod diagnostics;
pub mod export;
pub mod features;
mod fitted;
pub mod labels;
mod looking;
pub mod overview;
pub mod peaks;
pub mod ranks;
pub mod results;
pub mod synchrony;
pub mod templates;
pub mod text;

pub use aligned::AlignedDraw;
pub use features::{FeatureRow, PersistentFeatures};
pub(crate) use fitted::ChainRecord;
pub use fitted::{Fitted, NAME_IN_MEMORY};
pub use looking::{RowSeen, Standing};
pub use results::{Found, Results};
