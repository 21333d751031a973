//! A sink that writes a run folder.

use super::denoised::{DenoisedRows, join_reconstructions};
use super::prepared::About;
use super::sink::Sink;
use crate::data::nifti::{Header, write_volume};
use crate::data::runs::NamedRun;
use crate::data::write::NpyWriter;
use crate::data::{Array, Mask, Preprocessing};
use crate::error::Result;
use crate::evidence::EvidenceCurve;
use crate::noise::Filter;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::files::{create_folder, sync_folder, write_lightly};
use crate::run::checkpoint::{self, Belongings};
use crate::run::checksums::{Checksums, seal};
use crate::run::draws::{Draws, DrawsPlace};
use crate::run::folder::{
    LIVE, MASK_FILE, MASK_IMAGE, MEAN_IMAGE, NOISE_REFERENCE, RECONSTRUCTION, Run, TRACE, reconstruction_image,
};
use crate::run::held::Held;
use crate::run::trace::{self, TraceRow, TraceWriter};
use crate::run::until::Window;
use crate::summary::Found;
use crate::summary::export::RunImages;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Writes a run folder.
pub struct FolderSink {
    held: Held,
    capacity: usize,
    /// The chains that are running.
    running: BTreeMap<u32, Running>,
    /// What belongs to the chains that were run: to their last checkpoint, with draws kept since.
    known: BTreeMap<u32, Belongings>,
    notes: Vec<String>,
}

/// `live.json`: how far a chain is at its last checkpoint, for those who look on.
#[derive(Default, Serialize)]
struct Live {
    format: u32,
    chain: u32,
    sweep: u64,
    sweeps: u64,
    burn_in: u64,
    n_kept: u64,
    n_features: usize,
    noise_variance: f64,
    /// Of the sweeps since the chain began or went on.
    seconds: f64,
    /// Of writing this file, as often.
    live_seconds: f64,
    /// Seconds since 1970.
    written: u64,
}

impl Live {
    fn of(about: &About) -> Live {
        let Window { sweeps, burn_in } = about.checked.window;
        Live { format: 1, sweeps, burn_in, ..Live::default() }
    }

    fn add(&mut self, row: &TraceRow) {
        (self.chain, self.sweep, self.n_features) = (row.chain, row.sweep, row.n_features);
        self.noise_variance = row.noise_variance;
        self.seconds += row.seconds;
    }

    fn write(&mut self, chain: u32, n_kept: u64, folder: &Path) -> Result<()> {
        let start = Instant::now();
        (self.chain, self.n_kept) = (chain, n_kept);
        self.written = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let text = serde_json::to_string(self).expect("numbers are JSON");
        write_lightly(&folder.join(LIVE), text.as_bytes())?;
        self.live_seconds += start.elapsed().as_secs_f64();
        Ok(())
    }
}

/// A chain on its way.
struct Running {
    trace: TraceWriter,
    /// Kept sweeps at its last checkpoint.
    n_kept: u64,
    /// Whether draws were stored since.
    has_new_draws: bool,
    live: Live,
}

impl FolderSink {
    /// A run in this folder.
    pub fn new(held: Held) -> FolderSink {
        FolderSink { held, capacity: 1, running: BTreeMap::new(), known: BTreeMap::new(), notes: Vec::new() }
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
}

/// Takes down what denoised rows are known by.
pub(super) fn seal_reconstruction(folder: &Path, runs: &[NamedRun]) -> Result<()> {
    let images = runs.iter().map(|run| reconstruction_image(&run.name));
    seal(folder, &images.chain([RECONSTRUCTION.to_string()]).collect::<Vec<_>>())
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
        if mask.is_full() {
            return Ok(());
        }
        mask.write(&folder.join(MASK_FILE), grid)?;
        return seal(folder, &[MASK_FILE]);
    };
    let on_grid = |columns: Vec<f32>| mask.scatter(&columns, 0.0);
    write_volume(&folder.join(MASK_IMAGE), space, &on_grid(vec![1.0; mask.n_columns()]))?;
    let mean = preprocessing.overall.means.iter().map(|&x| x as f32).collect();
    write_volume(&folder.join(MEAN_IMAGE), space, &on_grid(mean))?;
    seal(folder, &[MASK_IMAGE, MEAN_IMAGE])
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
        // Traces have other names now.
        for (&chain, running) in &mut self.running {
            let path = Run::chain_folder(&self.held.place(), chain).join(TRACE);
            running.trace = TraceWriter::reopen(&path, &self.known[&chain].trace)?;
        }
        Ok(())
    }

    fn go_on(&mut self, about: &About) -> Result<()> {
        // Before anything is written: the checkpoint may belong to something else.
        for chain in 1..=about.checked.settings.chains {
            if chain == 1 || checkpoint::exists(&self.chain_folder(chain)) {
                checkpoint::check_origin(&self.find_sound(chain)?.0, &about.recorded().fingerprint())?;
            }
        }
        let folder = self.held.folder();
        about.structure.save_graphs(folder)?;
        if EvidenceCurve::read(folder).is_err() {
            EvidenceCurve::forget(folder)?;
        }
        write_place(folder, &about.mask, about.structure.grid(), about.space.as_ref(), &about.preprocessing)?;
        Run::write_config(folder, &about.recorded())?;
        sync_folder(folder)
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
        create_folder(&folder)?;
        self.capacity = about.checked.settings.keep_draws;
        let writer = TraceWriter::create(&folder.join(TRACE), about.record.theta.len())?;
        let preprocessing = self.kept(chain).create(&about.preprocessing)?;
        let belongings = Belongings { chain, trace: writer.mark(), draws: BTreeMap::new(), preprocessing };
        self.running.insert(chain, Running { trace: writer, n_kept: 0, has_new_draws: true, live: Live::of(about) });
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
        self.capacity = about.checked.settings.keep_draws;
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
        let trace = TraceWriter::reopen(&path, &belongings.trace)?;
        let rows = trace::read(&path, &belongings.trace)?;
        let mut live = Live::of(about);
        rows.last().iter().for_each(|row| live.add(row));
        self.running.insert(chain, Running { trace, n_kept, has_new_draws: false, live });
        self.known.insert(chain, belongings);
        Ok(rows)
    }

    fn sweep(&mut self, row: &TraceRow) -> Result<()> {
        let Some(running) = self.running.get_mut(&row.chain) else { return Ok(()) };
        running.live.add(row);
        running.trace.push(row)
    }

    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()> {
        self.kept(chain).store(number, &draw)?;
        let running = self.running.get_mut(&chain).expect("a chain begins before it keeps draws");
        running.has_new_draws = true;
        let known = self.known.get_mut(&chain).expect("a chain begins before it keeps draws");
        known.draws.insert(number, draw.checksum());
        Ok(())
    }

    /// Trace and draws first, then the checkpoint that relies on them, then what neither it nor the one before needs may go;
    /// the disk has each before the next is begun.
    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()> {
        self.held.check()?;
        let folder = self.chain_folder(chain);
        let kept = self.kept(chain);
        let running = self.running.get_mut(&chain).expect("a chain begins before it is saved");
        running.trace.sync()?;
        let mark = running.trace.mark();
        if std::mem::take(&mut running.has_new_draws) {
            kept.sync()?;
        }
        let known = self.known.get_mut(&chain).expect("a chain begins before it is saved");
        known.trace = mark;
        known.draws.retain(|number, _| Draws::belongs(*number, n_kept, self.capacity));
        checkpoint::save(&folder, checkpoint, known)?;
        running.live.write(chain, n_kept, &folder)?;
        sync_folder(checkpoint::path(&folder).parent().unwrap_or(&folder))?;
        sync_folder(&folder)?;
        let before = std::mem::replace(&mut running.n_kept, n_kept);
        kept.prune(&[n_kept, before])
    }

    fn finish_chain(&mut self, chain: u32) -> Result<()> {
        checkpoint::forget_previous(&self.chain_folder(chain))?;
        let n_kept = self.running.remove(&chain).map_or(0, |running| running.n_kept);
        self.kept(chain).prune(&[n_kept])
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
            // A chain that was killed has none yet, and one that is still to come writes a damaged one again.
            let is_sound = |(path, _): &(PathBuf, u64)| {
                let folder = path.parent().unwrap_or(&run);
                Checksums::open(folder).and_then(|known| known.check(RECONSTRUCTION)).is_ok()
            };
            let parts: Vec<_> = n_kept.iter().filter(|(_, n)| *n > 0).map(part).filter(is_sound).collect();
            let space = about.space.as_ref().map(|space| (space, &about.mask, &about.record.runs[..]));
            join_reconstructions(&parts, &run, space)?;
            seal_reconstruction(&run, &about.record.runs)?;
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
        seal_reconstruction(&folder, &about.record.runs)?;
        sync_folder(&folder)
    }

    fn known_evidence(&self) -> Result<Option<EvidenceCurve>> {
        EvidenceCurve::read(self.held.folder())
    }

    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()> {
        curve.write(self.held.folder())?;
        sync_folder(self.held.folder())
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
        for needed in ["config.toml", "trace.csv", "draws/preprocessing.safetensors", "checkpoint/next.safetensors"] {
            assert!(first.iter().any(|name| name.ends_with(needed)), "{needed}: {first:?}");
        }
        assert!(first.iter().any(|name| name == "/"), "the folder itself: {first:?}");
        // The row of a sweep is noted before its checkpoint, which comes into the notes of the next.
        for (sweep, names) in notes.0.iter().enumerate().skip(3) {
            let at = |wanted: &str| {
                let found = names.iter().position(|name| name.starts_with(wanted));
                found.unwrap_or_else(|| panic!("{wanted} after sweep {sweep}: {names:?}"))
            };
            let order = ["trace.csv", "draws/", "checkpoint/next", "checkpoint/"].map(at);
            assert!(order[0] < order[2] && order[1] < order[2], "{names:?}");
            assert!(names[order[2]..].contains(&"checkpoint/".to_string()), "{names:?}");
        }
        let of_results: BTreeSet<&str> = of_results.iter().map(String::as_str).collect();
        for needed in ["features.npy", "weights.npy", "features.tsv", "activation.npy", "/"] {
            assert!(of_results.contains(needed), "{needed}: {of_results:?}");
        }
    }
}
