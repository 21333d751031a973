//! A fitted model as a run folder.

use super::folder_sink::FolderSink;
use crate::data::write::write_npy_f32;
use crate::error::{Error, Result};
use crate::numeric::files::write_atomically;
use crate::run::checkpoint::{self, Belongings};
use crate::run::checksums::seal;
use crate::run::draws::{Draws, DrawsPlace};
use crate::run::folder::{Output, RECONSTRUCTION, Run, TRACE, check_output, prepare_output, reconstruction_image};
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
        check_output(folder, Output::Run, false)?;
        if let Some(own) = &self.folder {
            let problem = format!("the fit has a folder, {}; copy that", own.display());
            return Err(Error::malformed(folder, problem));
        }
        prepare_output(folder, Output::Run)?;
        self.structure.save_graphs(folder)?;
        FolderSink::new(folder).write_place(
            &self.mask,
            self.structure.grid(),
            self.space.as_ref(),
            &self.preprocessing,
        )?;
        FolderSink::new(folder).write_noise(self.noise.as_deref())?;
        for chain in 0..self.chains.len() {
            self.save_chain(chain, &Run::chain_folder(folder, chain as u32 + 1))?;
        }
        if let Some(curve) = &self.evidence {
            curve.write(folder)?;
        }
        // Last: without it the folder is not taken for a run.
        Run::write_config(folder, &self.recorded())
    }

    fn save_chain(&self, at: usize, folder: &Path) -> Result<()> {
        let chain = &self.chains[at];
        fs::create_dir_all(folder).map_err(Error::write(folder))?;
        let mut trace = TraceWriter::create(&folder.join(TRACE), self.record.theta.len())?;
        chain.trace.iter().try_for_each(|row| trace.push(row))?;
        trace.flush()?;
        let draws = Draws::new(folder, self.settings().keep_draws);
        let mut belongings = Belongings {
            chain: at as u32 + 1,
            trace: trace.mark(),
            draws: BTreeMap::new(),
            preprocessing: draws.create(&self.preprocessing)?,
        };
        if let DrawsPlace::Memory(kept) = &chain.draws.place {
            kept.iter().try_for_each(|(number, draw)| write_atomically(&draws.path(*number), draw.bytes()))?;
            belongings.draws = kept.iter().map(|(number, draw)| (*number, draw.checksum().to_string())).collect();
        }
        if let Some(stored) = &chain.checkpoint {
            checkpoint::save(folder, stored.to_bundle(), &belongings)?;
        }
        if let Some(array) = &chain.reconstruction {
            write_npy_f32(&folder.join(RECONSTRUCTION), &array.shape, &array.values)?;
            let mut images = self.space.as_ref().map(|space| RunImages::new(folder, space, &self.record.runs));
            for row in 0..array.shape[0] {
                images.as_mut().map_or(Ok(()), |images| images.push(array.row(row), &self.mask))?;
            }
            let images = self.record.runs.iter().map(|run| reconstruction_image(&run.name));
            seal(folder, &images.chain([RECONSTRUCTION.to_string()]).collect::<Vec<_>>())?;
        }
        self.results().write(&chain.found, folder)
    }
}
