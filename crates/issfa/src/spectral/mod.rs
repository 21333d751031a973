//! The spectral domain: data and features as coefficients of modes, in tiles, and everything that sums over modes.
//!
//! Tiles of modes are the unit of work for threads and ranks. Large sums over tiles (`Y S'`, `S S'`) are added as
//! fixed-point integers; small ones have a slot a tile and are added in tile order. Neither depends on who worked
//! on which tile.

mod chosen;
mod domain;
pub mod load;
pub mod loadings;
mod pass;
mod products;
mod projections;
mod some_tiles;
mod statistics;
mod storage;
mod sums;
mod tile_work;
mod tiles;
mod window;

pub use crate::numeric::lanes::TILE;
pub use chosen::at_modes;
pub use domain::{Domain, FeatureDraw, Outside};
pub use loadings::{Entry, Loadings};
pub use pass::{FeatureConditional, OneByOne, Pass};
pub use projections::Projections;
pub use statistics::{mode_energies, squared_row_norms, sum_over_some_tiles, sum_over_tiles, weighted_rows};
pub use storage::n_behind;
pub use tiles::{Ahead, FeatureSpectra, SpectralData, Tiles};
pub use window::{Window, residuals_at_columns};
