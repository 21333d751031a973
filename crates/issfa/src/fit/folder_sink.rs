//! A sink that writes a run folder.

use super::denoised::{DenoisedRows, join_reconstructions};
use super::prepared::About;
use super::sink::Sink;
use crate::data::nifti::{Header, write_volume};
use crate::data::write::NpyWriter;
use crate::data::{Array, Mask, Preprocessing};
use crate::error::{Error, Result};
use crate::noise::Filter;
use crate::numeric::bytes::{Bundle, Stored};
use crate::pca::evidence::EvidenceCurve;
use crate::run::checkpoint;
use crate::run::draws::{Draws, KeptDraws};
use crate::run::folder::{
    MASK_FILE, MASK_IMAGE, MEAN_IMAGE, NOISE_REFERENCE, Output, RECONSTRUCTION, Run, TRACE, prepare_output,
};
use crate::run::trace::{self, TraceRow, TraceWriter};
use crate::summary::Found;
use crate::summary::export::RunImages;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a run folder.
pub struct FolderSink {
    folder: PathBuf,
    capacity: usize,
    /// Of the chain that is running.
    trace: Option<TraceWriter>,
}

impl FolderSink {
    /// A run in this folder, which is made when a fit begins.
    pub fn new(folder: &Path) -> FolderSink {
        FolderSink { folder: folder.to_path_buf(), capacity: 1, trace: None }
    }

    fn chain_folder(&self, chain: u32) -> PathBuf {
        Run::chain_folder(&self.folder, chain)
    }

    fn made_results_folder(&self, chain: u32, about: &About) -> Result<PathBuf> {
        let folder = Run::results_folder(&self.folder, chain, about.checked.settings.chains);
        std::fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
        Ok(folder)
    }

    fn kept(&self, chain: u32) -> Draws {
        Draws::new(&self.chain_folder(chain), self.capacity)
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
            return if mask.is_full() { Ok(()) } else { mask.write(&self.folder.join(MASK_FILE), grid) };
        };
        let on_grid = |columns: Vec<f32>| mask.scatter(&columns, 0.0);
        write_volume(&self.folder.join(MASK_IMAGE), space, &on_grid(vec![1.0; mask.n_columns()]))?;
        let mean = preprocessing.overall.means.iter().map(|&x| x as f32).collect();
        write_volume(&self.folder.join(MEAN_IMAGE), space, &on_grid(mean))
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
        checkpoint::check_origin(&checkpoint::open(&self.folder)?, &about.recorded().fingerprint())?;
        Run::write_config(&self.folder, &about.recorded())
    }

    fn checkpoint(&self, chain: u32) -> Result<Option<Arc<Stored>>> {
        let folder = self.chain_folder(chain);
        if !checkpoint::path(&folder).is_file() {
            return Ok(None);
        }
        Ok(Some(Arc::new(checkpoint::open(&folder)?)))
    }

    fn begin_chain(&mut self, chain: u32, about: &About) -> Result<()> {
        let folder = self.chain_folder(chain);
        std::fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
        self.capacity = about.checked.settings.keep_draws;
        self.trace = Some(TraceWriter::create(&folder.join(TRACE), about.record.theta.len())?);
        self.kept(chain).create(&about.preprocessing)
    }

    fn go_on_with_chain(&mut self, chain: u32, about: &About, sweep: u64, n_kept: u64) -> Result<Vec<TraceRow>> {
        self.capacity = about.checked.settings.keep_draws;
        self.kept(chain).prune(n_kept)?;
        let path = self.chain_folder(chain).join(TRACE);
        self.trace = Some(TraceWriter::reopen(&path, sweep)?);
        trace::read(&path)
    }

    fn sweep(&mut self, row: &TraceRow) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), |trace| trace.push(row))
    }

    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()> {
        self.kept(chain).store(number, &draw)
    }

    /// Trace first, then the checkpoint that relies on it, then what only the old checkpoint needed may go.
    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), TraceWriter::flush)?;
        checkpoint::save(&self.chain_folder(chain), &checkpoint)?;
        self.kept(chain).prune(n_kept)
    }

    fn results(&mut self, chain: u32, about: &About, found: &Found) -> Result<()> {
        about.results().write(found, &self.made_results_folder(chain, about)?)
    }

    fn joint_results(&mut self, about: &About, found: &Found, n_kept: &[(u32, u64)]) -> Result<()> {
        about.results().write(found, &self.folder)?;
        if !about.checked.settings.reconstruct {
            return Ok(());
        }
        let n_chains = about.checked.settings.chains;
        let part =
            |&(chain, n): &(u32, u64)| (Run::results_folder(&self.folder, chain, n_chains).join(RECONSTRUCTION), n);
        // A chain that was killed has none yet.
        let parts: Vec<_> =
            n_kept.iter().filter(|(_, n)| *n > 0).map(part).filter(|(path, _)| path.is_file()).collect();
        let space = about.space.as_ref().map(|space| (space, &about.mask, &about.record.runs[..]));
        join_reconstructions(&parts, &self.folder, space)
    }

    fn reconstruction(&mut self, chain: u32, about: &About, rows: &DenoisedRows) -> Result<()> {
        let folder = self.made_results_folder(chain, about)?;
        let mut array = NpyWriter::create(&folder.join(RECONSTRUCTION), &rows.shape())?;
        let mut images = about.space.as_ref().map(|space| RunImages::new(&folder, space, &about.record.runs));
        rows.for_each(&mut |row| {
            array.write_values(row)?;
            images.as_mut().map_or(Ok(()), |images| images.push(row, &about.mask))
        })?;
        array.finish()
    }

    fn known_evidence(&self) -> Result<Option<EvidenceCurve>> {
        EvidenceCurve::read(&self.folder)
    }

    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()> {
        curve.write(&self.folder)
    }

    fn draws(&self, chain: u32) -> Result<KeptDraws> {
        Ok(KeptDraws::Files(self.kept(chain).list()?.into_iter().map(|(_, path)| path).collect()))
    }

    fn denoised(&self, _chain: u32) -> Option<Array> {
        None
    }

    fn joint_denoised(&self) -> Option<Array> {
        None
    }
}
