//! A fitted model as a run folder.

use super::folder_sink::{seal_reconstruction, write_noise, write_place};
use crate::data::Array;
use crate::data::write::write_npy_f32;
use crate::error::{Error, Result};
use crate::run::checkpoint::{self, Belongings};
use crate::run::draws::{Draws, DrawsPlace};
use crate::run::folder::{Output, RECONSTRUCTION, Run, TRACE};
use crate::run::held::Held;
use crate::run::trace::TraceWriter;
use crate::summary::Fitted;
use crate::summary::export::RunImages;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

impl Fitted {
    /// Writes a fit that is in memory as a run folder, which must not exist yet. Every command takes it; only going on with
    /// it needs the rows again.
    pub fn save(&self, folder: &Path) -> Result<()> {
        if let Some(own) = &self.folder {
            let problem = format!("the fit has a folder, {}; copy that", own.display());
            return Err(Error::malformed(folder, problem));
        }
        let mut held = Held::for_new(folder, Output::Run, false, &[])?;
        let place = held.begin()?;
        self.structure.save_graphs(&place)?;
        write_place(&place, &self.mask, self.structure.grid(), self.space.as_ref(), &self.preprocessing)?;
        write_noise(&place, self.noise.as_deref())?;
        for chain in 0..self.chains.len() {
            self.save_chain(chain, &place)?;
        }
        if self.settings().chains > 1 {
            self.results().write(&self.found, &place)?;
            self.save_rows(self.reconstruction.as_ref(), &place)?;
        }
        if let Some(curve) = &self.evidence {
            curve.write(&place)?;
        }
        Run::write_config(&place, &self.recorded())?;
        held.publish()
    }

    fn save_chain(&self, at: usize, run: &Path) -> Result<()> {
        let (chain, number) = (&self.chains[at], at as u32 + 1);
        let folder = &Run::chain_folder(run, number);
        fs::create_dir_all(folder).map_err(Error::write(folder))?;
        let mut trace = TraceWriter::create(&folder.join(TRACE), self.record.theta.len())?;
        chain.trace.iter().try_for_each(|row| trace.push(row))?;
        trace.sync()?;
        let draws = Draws::new(folder, self.settings().keep_draws);
        let mut belongings = Belongings {
            chain: at as u32 + 1,
            trace: trace.mark(),
            draws: BTreeMap::new(),
            preprocessing: draws.create(&self.preprocessing)?,
        };
        if let DrawsPlace::Memory(kept) = &chain.draws.place {
            kept.iter().try_for_each(|(number, draw)| draws.store(*number, &draw.to_bundle()))?;
            belongings.draws = kept.iter().map(|(number, draw)| (*number, draw.checksum().to_string())).collect();
        }
        if let Some(stored) = &chain.checkpoint {
            checkpoint::save(folder, stored.to_bundle(), &belongings)?;
        }
        let results = Run::results_folder(run, number, self.settings().chains);
        fs::create_dir_all(&results).map_err(Error::write(&results))?;
        self.save_rows(chain.reconstruction.as_ref(), &results)?;
        self.results().write(&chain.found, &results)
    }

    fn save_rows(&self, rows: Option<&Array>, folder: &Path) -> Result<()> {
        let Some(array) = rows else { return Ok(()) };
        write_npy_f32(&folder.join(RECONSTRUCTION), &array.shape, &array.values)?;
        let mut images = self.space.as_ref().map(|space| RunImages::new(folder, space, &self.record.runs));
        (0..array.shape[0])
            .try_for_each(|row| images.as_mut().map_or(Ok(()), |images| images.push(array.row(row), &self.mask)))?;
        seal_reconstruction(folder, &self.record.runs)
    }
}
