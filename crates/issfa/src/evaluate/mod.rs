//! How good a fit is: against a known truth, and by predicting hidden cells of new rows.

pub mod coverage;
pub mod hidden;
mod probabilistic_pca;
pub mod truth;
