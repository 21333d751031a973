//! A run: its settings, its record, and its folder with trace, draws and checkpoints.

pub mod checkpoint;
pub mod checksums;
pub mod codec;
pub mod draws;
pub mod folder;
pub mod inputs;
pub mod record;
pub mod reseal;
pub mod settings;
pub mod trace;
