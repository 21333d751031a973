//! The commands, one file each.

pub mod choose;
pub mod demo;
pub mod draws;
pub mod evaluate;
pub mod fit;
pub mod match_maps;
pub mod merge;
pub mod noise;
pub mod peaks;
pub mod plan;
pub mod prior_sample;
pub mod report;
pub mod resume;
pub mod selftest;
pub mod simulate;
pub mod structure;
pub mod summary;
pub mod transform;
pub mod watch;
