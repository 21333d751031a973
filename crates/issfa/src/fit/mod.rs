//! A fit: rows and settings in, a fitted model out. Where what it finds goes is a sink's business; ranks share the work.

mod agreement;
mod chain_run;
pub mod cost;
mod denoised;
mod folder_sink;
mod heldout;
mod memory;
mod memory_sink;
pub mod merge;
mod noise;
pub mod plan;
mod prepared;
mod ranks;
mod save;
mod session;
mod side_by_side;
mod sink;

pub use denoised::DenoisedRows;
pub use folder_sink::FolderSink;
pub use memory::memory_needed;
pub use memory_sink::MemorySink;
pub use noise::{LookedAt, look_at_noise};
pub use prepared::{About, Earlier, Prepared, Request};
pub use ranks::{Ranks, hold};
pub use session::Session;
pub use sink::Sink;

use crate::data::Rows;
use crate::data::observations::Watch;
use crate::error::{Error, Result};
use crate::run::settings::Settings;
use crate::run::trace::TraceRow;
use crate::summary::Fitted;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whoever watches a fit: shows progress and may ask it to stop.
pub trait Observer: Send {
    /// A sweep is done; `left` estimates the time until the end of the last chain.
    fn sweep(&mut self, row: &TraceRow, total: u64, left: Duration);

    /// Whether to stop after this sweep.
    fn wants_stop(&self) -> bool;

    /// Something a person should know.
    fn note(&mut self, text: &str);
}

/// How a fit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All sweeps are done.
    Finished,
    /// The observer asked for it.
    Stopped,
    /// The time budget is used up.
    OutOfTime,
}

/// Fits rows and keeps everything in memory.
///
/// For progress, a way to stop, a run folder or ranks there is [`Session`].
pub fn fit(rows: Rows, settings: &Settings) -> Result<Fitted> {
    let mut session = Session::in_memory(rows, settings)?;
    session.run(&mut Stop::default())?;
    session.fitted()?.ok_or(Error::Stopped)
}

/// Watches in silence, and stops a fit when another thread says so.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for a stop: after the sweep, or the chunk of rows, that is being worked on.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Takes it back, so that the fit can go on.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// What is asked while rows are read.
    pub fn watch(&self) -> Watch {
        let asked = self.0.clone();
        Arc::new(move || asked.load(Ordering::Relaxed))
    }
}

impl Observer for Stop {
    fn sweep(&mut self, _row: &TraceRow, _total: u64, _left: Duration) {}

    fn wants_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn note(&mut self, _text: &str) {}
}
