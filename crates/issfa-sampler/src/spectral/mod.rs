//! The spectral domain: data and features as coefficients of modes, in tiles, and everything that sums over modes.
//!
//! Tiles of modes are the unit of work for threads, tiles and bands of rows that of ranks (`sharing`). Large sums over tiles
//! (`Y S'`, `S S'`) are added as fixed-point integers; small ones have a slot a tile and are added in tile order; sums over
//! rows have a slot a band and are added in the order of bands. None depends on who worked on what.

mod chosen;
mod domain;
mod kept;
pub mod load;
pub mod loadings;
mod pass;
mod products;
mod projections;
mod residual;
mod sharing;
mod some_tiles;
mod statistics;
mod storage;
mod sums;
mod tile_work;
mod tiles;
mod turned;
mod window;

pub use crate::numeric::lanes::TILE;
pub use chosen::at_modes;
pub use domain::{Domain, FeatureDraw, Outside};
pub use kept::TileRow;
pub use loadings::{Entry, Loadings};
pub use pass::{FeatureConditional, OneByOne, Pass};
pub use projections::Projections;
pub use sharing::{BAND, Cut, Layout, OWN_CHUNK, Sharing};
pub use statistics::{
    mode_energies, squared_row_norms, sum_over_rows, sum_over_some_tiles, sum_over_tiles, weighted_rows, within,
};
pub use storage::{Ahead, n_behind};
pub use tiles::{FeatureSpectra, SpectralData, Tiles};
pub use window::{Window, residuals_at_columns};
