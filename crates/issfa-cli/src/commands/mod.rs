//! The commands, one file each.

pub mod demo;
pub mod evaluate;
pub mod fit;
pub mod merge;
pub mod plan;
pub mod prior_sample;
pub mod report;
pub mod resume;
pub mod selftest;
pub mod simulate;
pub mod structure;
pub mod summary;
pub mod transform;

/// Calls a function that is generic in the number type with the one the precision names.
macro_rules! with_precision {
    ($precision:expr, $function:ident ( $($argument:expr),* )) => {
        match $precision {
            issfa::run::settings::Precision::F32 => $function::<f32>($($argument),*),
            issfa::run::settings::Precision::F64 => $function::<f64>($($argument),*),
        }
    };
}
pub(crate) use with_precision;
