//! A sink that writes a run folder.

use super::denoised::{DenoisedRows, join_reconstructions};
use super::prepared::About;
use super::sink::Sink;
use crate::data::nifti::{Header, write_volume};
use crate::data::write::NpyWriter;
use crate::data::{Array, Mask, Preprocessing};
use crate::error::Result;
use crate::noise::Filter;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::files::{create_folder, sync_folder};
use crate::pca::evidence::EvidenceCurve;
use crate::run::checkpoint;
use crate::run::draws::{Draws, KeptDraws};
use crate::run::folder::{MASK_FILE, MASK_IMAGE, MEAN_IMAGE, NOISE_REFERENCE, RECONSTRUCTION, Run, TRACE};
use crate::run::held::Held;
use crate::run::trace::{self, TraceRow, TraceWriter};
use crate::summary::Found;
use crate::summary::export::RunImages;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a run folder.
pub struct FolderSink {
    held: Held,
    capacity: usize,
    /// Of the chain that is running, and its number.
    trace: Option<(u32, TraceWriter)>,
    /// Whether draws were stored since the last checkpoint.
    has_new_draws: bool,
}

impl FolderSink {
    /// A run in this folder.
    pub fn new(held: Held) -> FolderSink {
        FolderSink { held, capacity: 1, trace: None, has_new_draws: false }
    }

    fn chain_folder(&self, chain: u32) -> PathBuf {
        Run::chain_folder(&self.held.place(), chain)
    }

    fn made_results_folder(&self, chain: u32, about: &About) -> Result<PathBuf> {
        let folder = Run::results_folder(&self.held.place(), chain, about.checked.settings.chains);
        create_folder(&folder)?;
        Ok(folder)
    }

    fn kept(&self, chain: u32) -> Draws {
        Draws::new(&self.chain_folder(chain), self.capacity)
    }
}

/// Writes the noise reference, if there is one.
pub(super) fn write_noise(folder: &Path, filter: Option<&Filter>) -> Result<()> {
    let path = folder.join(NOISE_REFERENCE);
    filter.map_or(Ok(()), |filter| filter.reference().to_bundle().save(&path))
}

/// Writes which sites take part and, for images, where they lie and what they are on average.
pub(super) fn write_place(
    folder: &Path,
    mask: &Mask,
    grid: &[usize],
    space: Option<&Header>,
    preprocessing: &Preprocessing,
) -> Result<()> {
    let Some(space) = space else {
        return if mask.is_full() { Ok(()) } else { mask.write(&folder.join(MASK_FILE), grid) };
    };
    let on_grid = |columns: Vec<f32>| mask.scatter(&columns, 0.0);
    write_volume(&folder.join(MASK_IMAGE), space, &on_grid(vec![1.0; mask.n_columns()]))?;
    let mean = preprocessing.overall.means.iter().map(|&x| x as f32).collect();
    write_volume(&folder.join(MEAN_IMAGE), space, &on_grid(mean))
}

impl Sink for FolderSink {
    fn begin(&mut self, about: &About) -> Result<()> {
        let folder = self.held.begin()?;
        about.structure.save_graphs(&folder)?;
        write_place(&folder, &about.mask, about.structure.grid(), about.space.as_ref(), &about.preprocessing)?;
        write_noise(&folder, about.noise.as_deref())?;
        Run::write_config(&folder, &about.recorded())
    }

    fn take_place(&mut self) -> Result<()> {
        self.held.publish()?;
        // The trace has another name now.
        let reopen = |chain| TraceWriter::reopen(&self.chain_folder(chain).join(TRACE), 0).map(|trace| (chain, trace));
        self.trace = self.trace.as_ref().map(|(chain, _)| reopen(*chain)).transpose()?;
        Ok(())
    }

    fn go_on(&mut self, about: &About) -> Result<()> {
        // Before anything is written: the checkpoint may belong to something else.
        let folder = self.held.folder();
        checkpoint::check_origin(&checkpoint::open(folder)?, &about.recorded().fingerprint())?;
        Run::write_config(folder, &about.recorded())?;
        sync_folder(folder)
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
        create_folder(&folder)?;
        self.capacity = about.checked.settings.keep_draws;
        self.trace = Some((chain, TraceWriter::create(&folder.join(TRACE), about.record.theta.len())?));
        self.has_new_draws = true;
        self.kept(chain).create(&about.preprocessing)
    }

    fn go_on_with_chain(&mut self, chain: u32, about: &About, sweep: u64, n_kept: u64) -> Result<Vec<TraceRow>> {
        self.capacity = about.checked.settings.keep_draws;
        self.kept(chain).prune(n_kept)?;
        let path = self.chain_folder(chain).join(TRACE);
        self.trace = Some((chain, TraceWriter::reopen(&path, sweep)?));
        trace::read(&path)
    }

    fn sweep(&mut self, row: &TraceRow) -> Result<()> {
        self.trace.as_mut().map_or(Ok(()), |(_, trace)| trace.push(row))
    }

    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()> {
        self.has_new_draws = true;
        self.kept(chain).store(number, &draw)
    }

    /// Trace and draws first, then the checkpoint that relies on them, then what only the old checkpoint needed may go;
    /// the disk has each before the next is begun.
    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()> {
        self.held.check()?;
        let folder = self.chain_folder(chain);
        self.trace.as_mut().map_or(Ok(()), |(_, trace)| trace.sync())?;
        if std::mem::take(&mut self.has_new_draws) {
            self.kept(chain).sync()?;
        }
        checkpoint::save(&folder, &checkpoint)?;
        sync_folder(checkpoint::path(&folder).parent().unwrap_or(&folder))?;
        sync_folder(&folder)?;
        self.kept(chain).prune(n_kept)
    }

    fn results(&mut self, chain: u32, about: &About, found: &Found) -> Result<()> {
        let folder = self.made_results_folder(chain, about)?;
        about.results().write(found, &folder)?;
        sync_folder(&folder)
    }

    fn joint_results(&mut self, about: &About, found: &Found, n_kept: &[(u32, u64)]) -> Result<()> {
        let (run, n_chains) = (self.held.place(), about.checked.settings.chains);
        about.results().write(found, &run)?;
        if about.checked.settings.reconstruct {
            let part = |&(chain, n): &(u32, u64)| (Run::results_folder(&run, chain, n_chains).join(RECONSTRUCTION), n);
            // A chain that was killed has none yet.
            let parts: Vec<_> =
                n_kept.iter().filter(|(_, n)| *n > 0).map(part).filter(|(path, _)| path.is_file()).collect();
            let space = about.space.as_ref().map(|space| (space, &about.mask, &about.record.runs[..]));
            join_reconstructions(&parts, &run, space)?;
        }
        sync_folder(&run)
    }

    fn reconstruction(&mut self, chain: u32, about: &About, rows: &DenoisedRows) -> Result<()> {
        let folder = self.made_results_folder(chain, about)?;
        let mut array = NpyWriter::create(&folder.join(RECONSTRUCTION), &rows.shape())?;
        let mut images = about.space.as_ref().map(|space| RunImages::new(&folder, space, &about.record.runs));
        rows.for_each(&mut |row| {
            array.write_values(row)?;
            images.as_mut().map_or(Ok(()), |images| images.push(row, &about.mask))
        })?;
        array.finish()?;
        sync_folder(&folder)
    }

    fn known_evidence(&self) -> Result<Option<EvidenceCurve>> {
        EvidenceCurve::read(self.held.folder())
    }

    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()> {
        curve.write(self.held.folder())?;
        sync_folder(self.held.folder())
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

#[cfg(test)]
mod tests {
    use crate::Rows;
    use crate::fit::{Observer, Request, Session};
    use crate::numeric::files::log;
    use crate::run::settings::Settings;
    use crate::run::trace::TraceRow;
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// Notes what the disk was waited for after each sweep.
    #[derive(Default)]
    struct Notes(Vec<Vec<String>>);

    impl Observer for Notes {
        fn sweep(&mut self, _: &TraceRow, _: u64, _: Duration) {
            self.0.push(waited_for());
        }
        fn wants_stop(&self) -> bool {
            false
        }
        fn note(&mut self, _: &str) {}
    }

    /// Files and folders (with a slash) below the run.
    fn waited_for() -> Vec<String> {
        let name = |(what, path): (&str, std::path::PathBuf)| {
            let text = path.display().to_string();
            let inside = text.split_once("/run").map_or("", |(_, inside)| inside.trim_start_matches('/')).to_string();
            if what == "folder" { inside + "/" } else { inside }
        };
        log::take().into_iter().map(name).collect()
    }

    /// Whatever a checkpoint needs is on disk before the checkpoint is, and the checkpoint before anything goes on.
    #[test]
    fn what_a_checkpoint_needs_is_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let settings = Settings {
            sweeps: 6,
            burn_in: Some(2),
            thin: Some(1),
            checkpoint_every: "0s".into(),
            noise: "white".into(),
            ..Settings::default()
        };
        let values: Vec<f32> = (0..30 * 20).map(|at| ((at * 7919 % 1009) as f32 / 100.0).sin()).collect();
        let request = Request::new(Rows::from_values(values, &[4, 5]).unwrap(), settings.check().unwrap());
        let mut session = Session::new(request, Some(&run)).unwrap();
        let mut notes = Notes::default();
        log::take();
        session.run(&mut notes).unwrap();
        let of_results = waited_for();
        // Until the first checkpoint files wait in a folder of their own; then they take their place.
        let first = &notes.0[0];
        for needed in ["config.toml", "trace.csv", "draws/preprocessing.safetensors", "checkpoint/state.safetensors"] {
            assert!(first.iter().any(|name| name.ends_with(needed)), "{needed}: {first:?}");
        }
        assert!(first.iter().any(|name| name == "/"), "the folder itself: {first:?}");
        // The row of a sweep is noted before its checkpoint, which comes into the notes of the next.
        for (sweep, names) in notes.0.iter().enumerate().skip(3) {
            let at = |wanted: &str| {
                let found = names.iter().position(|name| name.starts_with(wanted));
                found.unwrap_or_else(|| panic!("{wanted} after sweep {sweep}: {names:?}"))
            };
            let order = ["trace.csv", "draws/", "checkpoint/state", "checkpoint/"].map(at);
            assert!(order[0] < order[2] && order[1] < order[2], "{names:?}");
            assert!(names[order[2]..].contains(&"checkpoint/".to_string()), "{names:?}");
        }
        let of_results: BTreeSet<&str> = of_results.iter().map(String::as_str).collect();
        for needed in ["features.npy", "weights.npy", "features.tsv", "activation.npy", "/"] {
            assert!(of_results.contains(needed), "{needed}: {of_results:?}");
        }
    }
}
