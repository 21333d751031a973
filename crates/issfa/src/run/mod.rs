//! A run: its settings, its record, and its folder with trace, draws and checkpoints.

pub mod checkpoint;
pub mod checksums;
pub mod codec;
pub mod doubts;
pub mod draws;
mod entries;
pub mod folder;
pub mod held;
pub mod inputs;
mod lock;
pub mod record;
pub mod reseal;
pub mod settings;
pub mod trace;
pub mod until;
