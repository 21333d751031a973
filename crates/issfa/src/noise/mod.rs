//! Noise that differs between sites and is smooth: measured on the data's own differences before a fit \[M15\].
//!
//! A [`Reference`] is what was measured: a scale for every site, a power for every band of modes, a level for every run.
//! A [`Filter`] takes such noise out of rows, so that what is left of it is white, and puts what a fit shows back into the
//! data's units.

mod bands;
mod components;
mod factors;
mod filter;
mod levels;
mod measure;
mod reference;
mod sample;
mod spectra;

pub use filter::{Filter, RunNoise};
pub use levels::{level_of_rows, levels_of_new_rows};
pub use measure::{Measured, Subject, measure, remeasure};
pub use reference::{Findings, Recipe, Reference};
pub use sample::Sample;
