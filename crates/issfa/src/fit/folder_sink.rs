//! A sink that writes a run folder.

use super::denoised::DenoisedRows;
use super::prepared::About;
use super::sink::Sink;
use crate::data::nifti::{Header, write_volume};
use crate::data::write::NpyWriter;
use crate::data::{Array, Mask, Preprocessing};
use crate::error::{Error, Result};
use crate::noise::Filter;
use crate::numeric::bytes::{Bundle, Stored};
use crate::pca::evidence::EvidenceCurve;
use crate::run::checkpoint::{self, Belongings};
use crate::run::checksums::seal;
use crate::run::draws::{Draws, DrawsPlace};
use crate::run::folder::{
    MASK_FILE, MASK_IMAGE, MEAN_IMAGE, NOISE_REFERENCE, Output, RECONSTRUCTION, Run, TRACE, prepare_output,
    reconstruction_image,
};
use crate::run::trace::{self, TraceRow, TraceWriter};
use crate::summary::Found;
use crate::summary::export::RunImages;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a run folder.
pub struct FolderSink {
    folder: PathBuf,
    capacity: usize,
    /// Of the chain that is running.
    trace: Option<TraceWriter>,
    /// What belongs to the chains that were run: to their last checkpoint, with draws kept since.
    known: BTreeMap<u32, Belongings>,
    /// Kept sweeps at the last checkpoint of the chain that is running.
    n_kept: u64,
    notes: Vec<String>,
}

impl FolderSink {
    /// A run in this folder, which is made when a fit begins.
    pub fn new(folder: &Path) -> FolderSink {
        let (folder, known) = (folder.to_path_buf(), BTreeMap::new());
        FolderSink { folder, capacity: 1, trace: None, known, n_kept: 0, notes: Vec::new() }
    }

    fn chain_folder(&self, chain: u32) -> PathBuf {
        Run::chain_folder(&self.folder, chain)
    }

    fn kept(&self, chain: u32) -> Draws {
        Draws::new(&self.chain_folder(chain), self.capacity)
    }

    /// A checkpoint, if it and all that belongs to it is as it was written.
    fn sound(&self, chain: u32, path: &Path) -> Result<Stored> {
        let stored = checkpoint::open_file(path)?;
        checkpoint::check_chain(&stored, chain)?;
        let belongings = checkpoint::belongings(&stored)?;
        trace::check(&self.chain_folder(chain).join(TRACE), &belongings.trace)?;
        self.kept(chain).check(&belongings)?;
        Ok(stored)
    }

    /// The last checkpoint that a chain can go on from, and why it is not the last one of all.
    fn find_sound(&self, chain: u32) -> Result<(Stored, Option<String>)> {
        let folder = self.chain_folder(chain);
        let previous = checkpoint::previous_path(&folder);
        match self.sound(chain, &checkpoint::path(&folder)) {
            Ok(stored) => Ok((stored, None)),
            Err(error) if !previous.is_file() => Err(error.with_remedy("put back a copy, or fit again")),
            Err(error) => match self.sound(chain, &previous) {
                Ok(stored) => Ok((stored, Some(error.to_string()))),
                Err(_) => Err(error.with_remedy("the checkpoint before does not help; put back a copy, or fit again")),
            },
        }
    }

    /// Writes the noise reference, if there is one.
    pub(super) fn write_noise(&self, filter: Option<&Filter>) -> Result<()> {
        let path = self.folder.join(NOISE_REFERENCE);
        filter.map_or(Ok(()), |filter| filter.reference().to_bundle().save(&path))
    }

    /// Writes which sites take part and, for images, where they lie and what they are on average.
    pub(super) fn write_place(
        &self,
        mask: &Mask,
        grid: &[usize],
        space: Option<&Header>,
        preprocessing: &Preprocessing,
    ) -> Result<()> {
        let Some(space) = space else {
            if mask.is_full() {
                return Ok(());
            }
            mask.write(&self.folder.join(MASK_FILE), grid)?;
            return seal(&self.folder, &[MASK_FILE]);
        };
        let on_grid = |columns: Vec<f32>| mask.scatter(&columns, 0.0);
        write_volume(&self.folder.join(MASK_IMAGE), space, &on_grid(vec![1.0; mask.n_columns()]))?;
        let mean = preprocessing.overall.means.iter().map(|&x| x as f32).collect();
        write_volume(&self.folder.join(MEAN_IMAGE), space, &on_grid(mean))?;
        seal(&self.folder, &[MASK_IMAGE, MEAN_IMAGE])
    }
}

impl Sink for FolderSink {
    fn begin(&mut self, about: &About) -> Result<()> {
        prepare_output(&self.folder, Output::Run)?;
        about.structure.save_graphs(&self.folder)?;
        self.write_place(&about.mask, about.structure.grid(), about.space.as_ref(), &about.preprocessing)?;
        self.write_noise(about.noise.as_deref())?;
        Run::write_config(&self.folder, &about.recorded())
    }

    fn go_on(&mut self, about: &About) -> Result<()> {
        // Before anything is written: the checkpoint may belong to something else.
        checkpoint::check_origin(&self.find_sound(1)?.0, &about.recorded().fingerprint())?;
        about.structure.save_graphs(&self.folder)?;
        if EvidenceCurve::read(&self.folder).is_err() {
            EvidenceCurve::forget(&self.folder)?;
        }
        self.write_place(&about.mask, about.structure.grid(), about.space.as_ref(), &about.preprocessing)?;
        Run::write_config(&self.folder, &about.recorded())
    }

    fn checkpoint(&self, chain: u32) -> Result<Option<Arc<Stored>>> {
        let folder = self.chain_folder(chain);
        if !checkpoint::exists(&folder) {
            return Ok(None);
        }
        Ok(Some(Arc::new(checkpoint::open(&folder)?)))
    }

    fn last_sound(&mut self, chain: u32) -> Result<Option<Arc<Stored>>> {
        if !checkpoint::exists(&self.chain_folder(chain)) {
            return Ok(None);
        }
        let (stored, problem) = self.find_sound(chain)?;
        if let Some(problem) = problem {
            let sweep: u64 = stored.number("sweep")?;
            self.notes.push(format!("chain {chain} goes back to the checkpoint before, of sweep {sweep}: {problem}"));
        }
        Ok(Some(Arc::new(stored)))
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn begin_chain(&mut self, chain: u32, about: &About) -> Result<()> {
        let folder = self.chain_folder(chain);
        std::fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
        self.capacity = about.checked.settings.keep_draws;
        let writer = TraceWriter::create(&folder.join(TRACE), about.record.theta.len())?;
        let preprocessing = self.kept(chain).create(&about.preprocessing)?;
        let belongings = Belongings { chain, trace: writer.mark(), draws: BTreeMap::new(), preprocessing };
        (self.trace, self.n_kept) = (Some(writer), 0);
        self.known.insert(chain, belongings);
        Ok(())
    }

    fn go_on_with_chain(
        &mut self,
        chain: u32,
        about: &About,
        from: &Stored,
        (_, n_kept): (u64, u64),
    ) -> Result<Vec<TraceRow>> {
        (self.capacity, self.n_kept) = (about.checked.settings.keep_draws, n_kept);
        let belongings = checkpoint::belongings(from)?;
        if !belongings.draws.keys().all(|number| Draws::belongs(*number, n_kept, self.capacity)) {
            return Err(from.damaged("it knows of draws that cannot be"));
        }
        let folder = self.chain_folder(chain);
        if from.path() == checkpoint::previous_path(&folder) {
            checkpoint::restore_previous(&folder)?;
        }
        self.kept(chain).drop_later(n_kept)?;
        let path = folder.join(TRACE);
        self.trace = Some(TraceWriter::reopen(&path, &belongings.trace)?);
        let rows = trace::read(&path, &belongings.trace)?;
        self.known.insert(chain, belongings);
        Ok(rows)
    }

    fn sweep(&mut self, row: &TraceRow) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), |trace| trace.push(row))
    }

    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()> {
        self.kept(chain).store(number, &draw)?;
        let known = self.known.get_mut(&chain).expect("a chain begins before it keeps draws");
        known.draws.insert(number, draw.checksum());
        Ok(())
    }

    /// Trace first, then the checkpoint that relies on it, then what neither it nor the one before needs may go.
    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()> {
        let trace = self.trace.as_mut().expect("a chain begins before it is saved");
        trace.flush()?;
        let known = self.known.get_mut(&chain).expect("a chain begins before it is saved");
        known.trace = trace.mark();
        known.draws.retain(|number, _| Draws::belongs(*number, n_kept, self.capacity));
        checkpoint::save(&Run::chain_folder(&self.folder, chain), checkpoint, known)?;
        let before = std::mem::replace(&mut self.n_kept, n_kept);
        self.kept(chain).prune(&[n_kept, before])
    }

    fn finish_chain(&mut self, chain: u32) -> Result<()> {
        checkpoint::forget_previous(&self.chain_folder(chain))?;
        self.kept(chain).prune(&[self.n_kept])
    }

    fn results(&mut self, chain: u32, about: &About, found: &Found) -> Result<()> {
        about.results().write(found, &self.chain_folder(chain))
    }

    fn reconstruction(&mut self, chain: u32, about: &About, rows: &DenoisedRows) -> Result<()> {
        let folder = self.chain_folder(chain);
        let mut array = NpyWriter::create(&folder.join(RECONSTRUCTION), &rows.shape())?;
        let mut images = about.space.as_ref().map(|space| RunImages::new(&folder, space, &about.record.runs));
        rows.for_each(&mut |row| {
            array.write_values(row)?;
            images.as_mut().map_or(Ok(()), |images| images.push(row, &about.mask))
        })?;
        array.finish()?;
        let images = about.record.runs.iter().map(|run| reconstruction_image(&run.name));
        seal(&folder, &images.chain([RECONSTRUCTION.to_string()]).collect::<Vec<_>>())
    }

    fn known_evidence(&self) -> Result<Option<EvidenceCurve>> {
        EvidenceCurve::read(&self.folder)
    }

    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()> {
        curve.write(&self.folder)
    }

    fn draws(&self, chain: u32) -> Result<DrawsPlace> {
        let draws = self.kept(chain);
        match self.known.get(&chain) {
            Some(known) => Ok(DrawsPlace::Files(draws.known(known))),
            None => {
                let stored = checkpoint::open(&self.chain_folder(chain))?;
                Ok(DrawsPlace::Files(draws.known(&checkpoint::belongings(&stored)?)))
            }
        }
    }

    fn denoised(&self, _chain: u32) -> Option<Array> {
        None
    }
}
