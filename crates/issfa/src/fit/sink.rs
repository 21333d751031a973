//! Where the sweeps, kept draws, checkpoints and results of a fit go.

use super::denoised::DenoisedRows;
use super::prepared::About;
use crate::data::Array;
use crate::error::Result;
use crate::evidence::EvidenceCurve;
use crate::numeric::bytes::{Bundle, Stored};
use crate::run::draws::DrawsPlace;
use crate::run::trace::TraceRow;
use crate::summary::Found;
use std::sync::Arc;

/// Takes what a fit gives, chain by chain (from 1), and gives back what it takes to go on. Under ranks one belongs to rank 0
/// of each group that runs a chain.
pub trait Sink: Send {
    /// A new fit begins.
    fn begin(&mut self, about: &About) -> Result<()>;

    /// The first chains of a new fit have their first checkpoints: what was there of an earlier one goes.
    fn take_place(&mut self) -> Result<()> {
        Ok(())
    }

    /// A fit goes on, perhaps for longer than it was planned.
    fn go_on(&mut self, about: &About) -> Result<()>;

    /// The last checkpoint of a chain.
    fn checkpoint(&self, chain: u32) -> Result<Option<Arc<Stored>>>;

    /// The last checkpoint that a chain can go on from: it, and all that belongs to it, is as it was written.
    fn last_sound(&mut self, chain: u32) -> Result<Option<Arc<Stored>>> {
        self.checkpoint(chain)
    }

    /// What the user should know of how the last checkpoint was found.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// A chain begins.
    fn begin_chain(&mut self, chain: u32, about: &About) -> Result<()>;

    /// A chain goes on from a checkpoint, after so many sweeps and kept ones: whatever is later goes. Returns the trace.
    fn go_on_with_chain(&mut self, chain: u32, about: &About, from: &Stored, done: (u64, u64))
    -> Result<Vec<TraceRow>>;

    /// A sweep is done.
    fn sweep(&mut self, row: &TraceRow) -> Result<()>;

    /// The draw of the `number`-th kept sweep.
    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()>;

    /// A checkpoint after `n_kept` kept sweeps, which takes the place of the one before once it is complete.
    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()>;

    /// A chain is as long as planned: what only the checkpoint before the last one needed may go.
    fn finish_chain(&mut self, _chain: u32) -> Result<()> {
        Ok(())
    }

    /// What a chain has found so far.
    fn results(&mut self, chain: u32, about: &About, found: &Found) -> Result<()>;

    /// What the chains have found together, so far; `n_kept` says how many sweeps each of those that started has kept. Their
    /// results and denoised rows were given before.
    fn joint_results(&mut self, about: &About, found: &Found, n_kept: &[(u32, u64)]) -> Result<()>;

    /// The denoised rows of a chain.
    fn reconstruction(&mut self, chain: u32, about: &About, rows: &DenoisedRows) -> Result<()>;

    /// The eigenvalues of the data, if they are known.
    fn known_evidence(&self) -> Result<Option<EvidenceCurve>>;

    /// The eigenvalues of the data.
    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()>;

    /// The draws that a chain has kept.
    fn draws(&self, chain: u32) -> Result<DrawsPlace>;

    /// The denoised rows of a chain, where they are in memory.
    fn denoised(&self, chain: u32) -> Option<Array>;

    /// The denoised rows by all chains, where they are in memory.
    fn joint_denoised(&self) -> Option<Array>;
}
