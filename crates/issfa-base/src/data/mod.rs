//! From files to spectral data: reading, stacking, centring, scaling, transforming.

pub mod array;
pub mod axes;
pub mod confounds;
pub mod covariates;
pub mod division;
pub mod grid;
pub mod mask;
pub mod memory;
pub mod nifti;
pub mod observations;
pub mod preprocess;
pub mod read;
pub mod regression;
pub mod rows;
pub mod runs;
pub mod write;

pub use array::Array;
pub use covariates::{Covariates, Detrend};
pub use mask::Mask;
pub use observations::{Missing, Observations};
pub use preprocess::{Centering, Preprocessing};
pub use read::memory::Values;
pub use rows::Rows;
