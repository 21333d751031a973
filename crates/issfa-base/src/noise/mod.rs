//! Noise that differs between sites and is smooth: measured on the data's own differences before a fit \[M15\].
//!
//! A [`Reference`] is what was measured: a scale for every site, a power for every band of modes, a level for every run,
//! and where rows of a series differ in noise a factor for every row.
//! A [`Filter`] takes such noise out of rows, so that what is left of it is white, and puts what a fit shows back into the
//! data's units.

mod bands;
mod components;
mod factors;
mod filter;
mod levels;
mod measure;
mod reference;
mod rows;
mod sample;
mod spectra;

pub use filter::{Filter, RowNoise};
pub use levels::{levels_of_new_rows, levels_of_rows};
pub use measure::{Measured, Subject, measure, remeasure};
pub use reference::{Findings, Recipe, Reference};
pub use sample::Sample;
