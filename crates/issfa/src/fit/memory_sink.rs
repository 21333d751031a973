//! A sink that keeps everything in memory.

use super::denoised::{DenoisedRows, mean_of};
use super::prepared::About;
use super::sink::Sink;
use crate::data::Array;
use crate::error::Result;
use crate::evidence::EvidenceCurve;
use crate::numeric::bytes::{Bundle, Stored};
use crate::run::draws::{Draws, DrawsPlace};
use crate::run::trace::TraceRow;
use crate::summary::{Fitted, Found};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the draws and checkpoints of chains in memory are called in messages.
const NAME: &str = "the fit in memory";

/// Keeps a fit in memory.
#[derive(Default)]
pub struct MemorySink {
    chains: BTreeMap<u32, Kept>,
    evidence: Option<EvidenceCurve>,
    capacity: usize,
    /// Of several chains together.
    reconstruction: Option<Array>,
}

#[derive(Default)]
struct Kept {
    trace: Vec<TraceRow>,
    /// By the number of the kept sweep.
    draws: BTreeMap<u64, Arc<Stored>>,
    checkpoint: Option<Arc<Stored>>,
    reconstruction: Option<Array>,
}

impl MemorySink {
    /// What a fit in memory had come to.
    pub fn of(fitted: &Fitted) -> MemorySink {
        let (evidence, reconstruction) = (fitted.evidence.clone(), fitted.reconstruction.clone());
        let mut sink = MemorySink { evidence, reconstruction, ..MemorySink::default() };
        for (at, chain) in fitted.chains.iter().enumerate() {
            let draws = match &chain.draws.place {
                DrawsPlace::Memory(draws) => draws.clone(),
                DrawsPlace::Files(_) => BTreeMap::new(),
            };
            let kept = Kept {
                trace: chain.trace.clone(),
                draws,
                checkpoint: chain.checkpoint.clone(),
                reconstruction: chain.reconstruction.clone(),
            };
            sink.chains.insert(at as u32 + 1, kept);
        }
        sink
    }

    fn chain(&mut self, chain: u32) -> &mut Kept {
        self.chains.entry(chain).or_default()
    }

    fn prune(&mut self, chain: u32, n_kept: u64) {
        let capacity = self.capacity;
        self.chain(chain).draws.retain(|number, _| Draws::belongs(*number, n_kept, capacity));
    }
}

impl Sink for MemorySink {
    fn begin(&mut self, about: &About) -> Result<()> {
        *self = MemorySink { capacity: about.checked.settings.keep_draws, ..MemorySink::default() };
        Ok(())
    }

    fn go_on(&mut self, about: &About) -> Result<()> {
        self.capacity = about.checked.settings.keep_draws;
        Ok(())
    }

    fn checkpoint(&self, chain: u32) -> Result<Option<Arc<Stored>>> {
        Ok(self.chains.get(&chain).and_then(|kept| kept.checkpoint.clone()))
    }

    fn begin_chain(&mut self, chain: u32, _about: &About) -> Result<()> {
        *self.chain(chain) = Kept::default();
        Ok(())
    }

    fn go_on_with_chain(
        &mut self,
        chain: u32,
        _about: &About,
        _from: &Stored,
        (sweep, n_kept): (u64, u64),
    ) -> Result<Vec<TraceRow>> {
        self.prune(chain, n_kept);
        let kept = self.chain(chain);
        kept.trace.retain(|row| row.sweep <= sweep);
        Ok(kept.trace.clone())
    }

    fn sweep(&mut self, row: &TraceRow) -> Result<()> {
        self.chain(row.chain).trace.push(row.clone());
        Ok(())
    }

    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()> {
        self.chain(chain).draws.insert(number, Arc::new(draw.into_stored(NAME)));
        Ok(())
    }

    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()> {
        self.chain(chain).checkpoint = Some(Arc::new(checkpoint.into_stored(NAME)));
        self.prune(chain, n_kept);
        Ok(())
    }

    fn results(&mut self, _chain: u32, _about: &About, _found: &Found) -> Result<()> {
        Ok(())
    }

    fn joint_results(&mut self, _about: &About, _found: &Found, n_kept: &[(u32, u64)]) -> Result<()> {
        let rows = |&(chain, n): &(u32, u64)| Some((self.chains.get(&chain)?.reconstruction.as_ref()?, n));
        self.reconstruction = mean_of(&n_kept.iter().filter_map(rows).collect::<Vec<_>>());
        Ok(())
    }

    fn reconstruction(&mut self, chain: u32, _about: &About, rows: &DenoisedRows) -> Result<()> {
        let mut values = Vec::new();
        rows.for_each(&mut |row| {
            values.extend_from_slice(row);
            Ok(())
        })?;
        self.chain(chain).reconstruction = Some(Array::new(&rows.shape(), values));
        Ok(())
    }

    fn known_evidence(&self) -> Result<Option<EvidenceCurve>> {
        Ok(self.evidence.clone())
    }

    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()> {
        self.evidence = Some(curve.clone());
        Ok(())
    }

    fn draws(&self, chain: u32) -> Result<DrawsPlace> {
        Ok(DrawsPlace::Memory(self.chains.get(&chain).map(|kept| kept.draws.clone()).unwrap_or_default()))
    }

    fn denoised(&self, chain: u32) -> Option<Array> {
        self.chains.get(&chain).and_then(|kept| kept.reconstruction.clone())
    }

    fn joint_denoised(&self) -> Option<Array> {
        self.reconstruction.clone().or_else(|| self.denoised(1))
    }
}
