//! A fit from settings to results: load, start chains, keep draws and checkpoints, write what was found.

use crate::chain::{Chain, Schedule};
use crate::checkpoint::{self, Checkpoint, Counters};
use crate::config::{Checked, FORMAT, Init, Record, Settings};
use crate::data::load::{Loaded, training_rows};
use crate::data::nifti::space::check_same_place;
use crate::data::nifti::{Header, write_volume};
use crate::data::preprocess::{Findings, MeansOf};
use crate::data::write::NpyWriter;
use crate::data::{Centering, Mask, Missing, Observations, Preprocessing, memory};
use crate::draws::Draws;
use crate::error::{Error, Result};
use crate::init;
use crate::inputs;
use crate::kernels::{Kernel, features};
use crate::linalg::Real;
use crate::model::{Model, State};
use crate::new_rows;
use crate::pca::evidence::{self, EvidenceCurve};
use crate::run_folder::{MASK_FILE, MASK_IMAGE, MEAN_IMAGE, Output, Run, prepare_output};
use crate::spectral::SpectralData;
use crate::structure::{Direction, Shelf, Spectrum, Structure};
use crate::summary::export::{self, RunImages};
use crate::summary::features::{Setting, read_images};
use crate::summary::posterior::Shown;
use crate::summary::{PersistentFeatures, Posterior};
use crate::trace::{TraceRow, TraceWriter, Units};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whoever watches a fit: shows progress and may ask it to stop.
pub trait Observer {
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
    Finished,
    /// The observer asked for it.
    Stopped,
    OutOfTime,
}

/// Data, structure and model of a fit: everything that is loaded once.
pub struct Prepared<R> {
    pub checked: Checked,
    pub structure: Arc<Structure>,
    pub mask: Mask,
    /// Where the sites lie, for images.
    pub space: Option<Header>,
    pub preprocessing: Preprocessing,
    pub findings: Findings,
    pub model: Model<R>,
    pub heldout: Option<Loaded<R>>,
    pub record: Record,
    /// Bytes, about.
    pub memory: u64,
}

/// A rough count of the bytes a fit holds: data twice over only where asked, some 64 features with their moments, means and
/// slopes of every run. Under a mask features are drawn by way of the whole grid, several times over.
pub fn memory_needed(observations: &Observations, bytes: usize, settings: &Settings) -> u64 {
    let [n_rows, n_columns, n_grid, n_runs] =
        [observations.n_rows(), observations.n_columns(), observations.n_sites(), observations.n_runs()]
            .map(|n| n as u64);
    let cells = n_rows * n_columns;
    let is_masked = n_columns < n_grid || observations.may_have_holes();
    let features = 64 * (n_grid * (2 * bytes as u64 + if is_masked { 40 } else { 0 }) + 20 * n_columns);
    let data = if settings.spill.is_some() { SPILL_CHUNK_BYTES as u64 } else { cells * bytes as u64 };
    let nuisance = 2 * 8 * n_runs * n_columns * (1 + observations.covariates().n_columns() as u64);
    data + if settings.reconstruct { 4 * n_rows * n_grid } else { 0 } + features + nuisance + (64 << 20)
}

/// Rows read at a time when data go to a file.
const SPILL_CHUNK_BYTES: usize = 256 << 20;

impl<R: Real> Prepared<R> {
    /// Opens, checks and loads the inputs.
    pub fn load(checked: Checked, shelf: &Shelf) -> Result<Prepared<R>> {
        let observations = inputs::open(&checked.settings)?;
        Prepared::from_observations(checked, observations, None, shelf)
    }

    /// The same for a run that exists, with its own mask.
    pub fn load_again(run: Run) -> Result<Prepared<R>> {
        let (observations, mask) = (inputs::open(&run.checked.settings)?, run.mask()?);
        Prepared::from_observations(run.checked, observations, Some(mask), &Shelf::of(&run.folder, &run.record.graphs))
    }

    /// [`Prepared::load`] on rows that are already open, with a mask if it is known.
    pub fn from_observations(
        mut checked: Checked,
        mut observations: Observations,
        mask: Option<Mask>,
        shelf: &Shelf,
    ) -> Result<Prepared<R>> {
        let space = observations.space().cloned();
        let usual = if space.is_some() { Centering::Site } else { Centering::None };
        let centering = *checked.settings.center.get_or_insert(usual);
        let settings = &checked.settings;
        if settings.melodic && space.is_none() {
            return Err(Error::setting("--melodic", true, "MELODIC's files are images, but the input is not NIfTI"));
        }
        if settings.spill.is_some() {
            // Longer stretches in the file: the disk is written in an order that it likes.
            observations.set_chunk_bytes(SPILL_CHUNK_BYTES);
        }
        let (n_rows, n_sites) = (observations.n_rows(), observations.n_sites());
        let structure = Arc::new(checked.structure(observations.path(), observations.grid(), n_sites, shelf)?);
        match mask {
            Some(mask) => inputs::complete(&mut observations, settings, Some(mask))?,
            None => inputs::choose_cells(&mut observations, settings, structure.grid())?,
        }
        let n_columns = observations.n_columns();
        let needed = memory_needed(&observations, R::BYTES, settings);
        memory::check(&format!("a fit of {n_rows} x {n_columns} in {}", R::NAME), needed)?;
        let (preprocessing, findings) = Preprocessing::fit(&observations, centering, settings.scale)?;
        let Loaded { data, window } =
            training_rows(&observations, &structure, &preprocessing, settings.spill.as_deref())?;
        let spectrum = Spectrum::new(&structure, &checked.curve);
        let priors = checked.priors(&spectrum, preprocessing.factor, findings.n_cells)?;
        let one_by_one = settings.sweep.kernels.contains(&Kernel::FeaturesOneByOne);
        if window.is_some() && one_by_one {
            let problem = "draws features from whole rows only; leave out this kernel, or --mask and --missing impute";
            return Err(Error::setting("kernels", Kernel::FeaturesOneByOne.name(), problem));
        }
        let mut model = match window {
            None => Model::new(data, spectrum, priors),
            Some(window) => Model::in_window(data, window, spectrum, priors),
        };
        model.max_features = settings.max_features.unwrap_or(usize::MAX);
        model.birth_rounds = settings.sweep.birth_rounds;
        model.row_sweeps = settings.sweep.row_sweeps;
        model.joint_every = settings.sweep.joint_every;
        model.theta_step = settings.theta_step;
        let record = Record {
            version: env!("CARGO_PKG_VERSION").into(),
            format: FORMAT,
            n_rows: observations.n_rows(),
            n_sites,
            structure: structure.expression(),
            theta: model.spectrum.parameter_names(),
            data_scale: preprocessing.factor,
            inputs: inputs::records(settings, &observations)?,
            images: space.is_some(),
            runs: observations.runs(),
            covariates: preprocessing.covariates.clone(),
            side_checksums: inputs::side_checksums(settings)?,
            n_masked_sites: (!observations.mask().is_full()).then_some(n_columns),
            mask_checksum: (!observations.mask().is_full()).then(|| observations.mask().checksum()),
            n_missing_cells: (observations.n_rows() * n_columns) as u64 - findings.n_cells as u64,
            empty_rows: observations.empty_rows(),
            graphs: structure.graph_files(),
        };
        let mask = observations.mask().clone();
        let load = |path: &Path| load_heldout(path, &observations, &structure, &preprocessing, settings);
        let heldout = settings.heldout.as_deref().map(load).transpose()?;
        Ok(Prepared {
            memory: needed,
            structure,
            mask,
            space,
            preprocessing,
            findings,
            model,
            heldout,
            record,
            checked,
        })
    }

    /// The factors between the sampler's units and the user's.
    pub fn units(&self) -> Units {
        Units { data_scale: self.preprocessing.factor, degree: self.model.spectrum.degree() }
    }

    /// The distance between neighbouring sites along each axis: millimetres for images, else 1.
    pub fn steps(&self) -> Vec<f64> {
        let grid = self.structure.grid();
        match &self.space {
            Some(space) if space.grid[..] == *grid => space.space.voxel_sizes().to_vec(),
            _ => vec![1.0; grid.len()],
        }
    }

    /// Writes which sites take part and, for images, where they lie and what they are on average.
    fn write_place(&self, folder: &Path) -> Result<()> {
        let Some(space) = &self.space else {
            let (path, grid) = (folder.join(MASK_FILE), self.structure.grid());
            return if self.mask.is_full() { Ok(()) } else { self.mask.write(&path, grid) };
        };
        let on_grid = |columns: Vec<f32>| self.mask.scatter(&columns, 0.0);
        write_volume(&folder.join(MASK_IMAGE), space, &on_grid(vec![1.0; self.mask.n_columns()]))?;
        let mean = self.preprocessing.overall.means.iter().map(|&x| x as f32).collect();
        write_volume(&folder.join(MEAN_IMAGE), space, &on_grid(mean))
    }

    /// The settings as they are saved with the run.
    pub fn recorded_settings(&self) -> Settings {
        let mut settings = self.checked.settings.clone();
        settings.record = Some(self.record.clone());
        settings
    }

    /// The schedule of a chain.
    pub fn schedule(&self, chain: u32) -> Schedule {
        let settings = &self.checked.settings;
        Schedule {
            seed: settings.seed,
            chain,
            sweeps: settings.sweeps,
            burn_in: settings.burn_in,
            thin: settings.thin,
            kernels: settings.sweep.kernels.clone(),
        }
    }

    /// Where a chain starts.
    pub fn initial_state(&self, chain: u32) -> Result<State<R>> {
        match &self.checked.init {
            Init::KMeans(n) => Ok(init::k_means(&self.model, *n, self.checked.settings.seed, chain)),
            Init::Empty => Ok(init::empty(&self.model)),
            Init::Run(folder) => self.state_of_run(folder),
        }
    }

    /// The state of the run to start from, where there is one.
    fn start_of_run(&self) -> Result<Option<State<R>>> {
        match &self.checked.init {
            Init::Run(folder) => self.state_of_run(folder).map(Some),
            _ => Ok(None),
        }
    }

    fn state_of_run(&self, folder: &Path) -> Result<State<R>> {
        let run = Run::open(folder)?;
        let same_structure = run.structure()?.identity() == self.structure.identity();
        let same = run.record.n_rows == self.record.n_rows && same_structure;
        if !same || run.record.theta != self.record.theta {
            return Err(Error::OtherOrigin {
                path: folder.to_path_buf(),
                what: "data or structure",
                found: format!("{} rows, {}", run.record.n_rows, run.record.structure),
                expected: format!("{} rows, {}", self.record.n_rows, self.record.structure),
            });
        }
        let state = checkpoint::load_state::<R>(folder)?;
        if state.n_features() > self.model.max_features {
            let problem = format!("the run to start from has {} features", state.n_features());
            return Err(Error::setting("--max-features", self.model.max_features, problem));
        }
        Ok(state)
    }

    fn with_reconstruction(&self) -> Option<(usize, usize)> {
        self.checked.settings.reconstruct.then_some((self.record.n_rows, self.record.n_sites))
    }
}

fn load_heldout<R: Real>(
    path: &Path,
    training: &Observations,
    structure: &Arc<Structure>,
    preprocessing: &Preprocessing,
    settings: &Settings,
) -> Result<Loaded<R>> {
    if !settings.confounds.is_empty() {
        let problem = "the confounds of held-out rows are not known; leave it out and use issfa evaluate --data, or do without \
                       --confounds";
        return Err(Error::setting("--heldout", path.display(), problem));
    }
    let mut observations = Observations::open(&[path.to_path_buf()])?;
    observations.check_grid(structure.grid(), "as in the training rows")?;
    if let (Some(own), Some(new)) = (training.space(), observations.space()) {
        check_same_place((training.path(), own), (observations.path(), new))?;
    }
    observations.drop_first(settings.drop_volumes)?;
    observations.set_mask(training.mask().clone());
    if settings.missing == Missing::Impute {
        observations.allow_missing()?;
    }
    inputs::add_covariates(&mut observations, settings.detrend, &[], None, 0)?;
    // Held-out rows are new rows: they are centred by the means of all training rows.
    let as_new =
        Preprocessing { runs: vec![preprocessing.overall.clone(); observations.n_runs()], ..preprocessing.clone() };
    training_rows(&observations, structure, &as_new, None)
}

/// Runs all chains of a new fit into `folder`, which is made empty first.
pub fn fit<R: Real>(prepared: &Prepared<R>, folder: &Path, observer: &mut dyn Observer) -> Result<Ending> {
    // Before anything is replaced: the run to start from may be the one that is.
    let start = prepared.start_of_run()?;
    prepare_output(folder, Output::Run)?;
    prepared.structure.save_graphs(folder)?;
    prepared.write_place(folder)?;
    Run::write_config(folder, &prepared.recorded_settings())?;
    run_chains(prepared, folder, observer, start.as_ref())
}

/// Goes on with a fit that stopped.
pub fn resume<R: Real>(prepared: &Prepared<R>, folder: &Path, observer: &mut dyn Observer) -> Result<Ending> {
    // Before anything is written: the checkpoint may belong to something else.
    checkpoint::check_origin(folder, &prepared.recorded_settings().fingerprint())?;
    Run::write_config(folder, &prepared.recorded_settings())?;
    run_chains(prepared, folder, observer, None)
}

fn run_chains<R: Real>(
    prepared: &Prepared<R>,
    folder: &Path,
    observer: &mut dyn Observer,
    start: Option<&State<R>>,
) -> Result<Ending> {
    let deadline = prepared.checked.time_budget.map(|budget| Instant::now() + budget);
    let n_chains = prepared.checked.settings.chains;
    let mut ending = Ending::Finished;
    for number in 1..=n_chains {
        let chain_folder = Run::chain_folder(folder, number);
        let mut going = Going::start(prepared, &chain_folder, number, start)?;
        ending = going.run(observer, deadline, n_chains - number)?;
        going.write_results(None)?;
        if ending != Ending::Finished {
            break;
        }
    }
    if ending == Ending::Finished {
        if n_chains > 1 {
            write_stability(prepared, folder, n_chains)?;
        }
        write_evidence(prepared, folder, observer)?;
    }
    Ok(ending)
}

/// The eigenvalues of the data and the evidence for principal components, where they take little time beside the fit.
fn write_evidence<R: Real>(prepared: &Prepared<R>, folder: &Path, observer: &mut dyn Observer) -> Result<()> {
    if folder.join(evidence::FILE).is_file() {
        return Ok(());
    }
    let (n_rows, n_sites, settings) = (prepared.record.n_rows, prepared.record.n_sites, &prepared.checked.settings);
    if !evidence::is_cheap(n_rows, n_sites, settings.sweeps * u64::from(settings.chains)) {
        observer.note(&format!("issfa report {} adds the eigenvalues of the data and their figure", folder.display()));
        return Ok(());
    }
    EvidenceCurve::of(&prepared.model.data, prepared.preprocessing.factor).write(folder)
}

/// Rewrites every chain's results with the best matches in the others.
fn write_stability<R: Real>(prepared: &Prepared<R>, folder: &Path, n_chains: u32) -> Result<()> {
    let folders: Vec<PathBuf> = (1..=n_chains).map(|number| Run::chain_folder(folder, number)).collect();
    let under_mask = |folder: &Path| -> Result<Vec<Vec<f32>>> {
        let images = read_images(&folder.join("features.npy"))?.1;
        Ok(images.iter().map(|image| prepared.mask.gather(image)).collect())
    };
    let images = folders.iter().map(|folder| under_mask(folder)).collect::<Result<Vec<_>>>()?;
    for (at, chain_folder) in folders.iter().enumerate() {
        let others: Vec<_> =
            images.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, list)| list.clone()).collect();
        Going::start(prepared, chain_folder, at as u32 + 1, None)?.write_results(Some(&others))?;
    }
    Ok(())
}

/// A chain on its way, with its files.
struct Going<'a, R> {
    prepared: &'a Prepared<R>,
    folder: PathBuf,
    schedule: Schedule,
    chain: Chain<R>,
    posterior: Posterior,
    counters: Counters,
    draws: Draws,
    trace: TraceWriter,
    fingerprint: String,
}

impl<'a, R: Real> Going<'a, R> {
    /// From the folder's checkpoint, or from the beginning.
    fn start(prepared: &'a Prepared<R>, folder: &Path, number: u32, start: Option<&State<R>>) -> Result<Going<'a, R>> {
        let fingerprint = prepared.recorded_settings().fingerprint();
        let draws = Draws::new(folder, prepared.checked.settings.keep_draws);
        let trace_path = folder.join("trace.csv");
        let (checkpoint, trace) = if checkpoint::path(folder).is_file() {
            let checkpoint = checkpoint::load(folder, &fingerprint, prepared.with_reconstruction())?;
            draws.prune(checkpoint.posterior.n_kept)?;
            let trace = TraceWriter::reopen(&trace_path, checkpoint.sweep)?;
            (checkpoint, trace)
        } else {
            std::fs::create_dir_all(folder).map_err(Error::write(folder))?;
            draws.create(&prepared.preprocessing)?;
            let checkpoint = Checkpoint {
                sweep: 0,
                state: start.map_or_else(|| prepared.initial_state(number), |state| Ok(state.clone()))?,
                posterior: Posterior::new(prepared.with_reconstruction()),
                counters: Counters::default(),
            };
            let trace = TraceWriter::create(&trace_path, prepared.model.spectrum.n_parameters())?;
            checkpoint::save(folder, &fingerprint, &checkpoint)?;
            (checkpoint, trace)
        };
        Ok(Going {
            prepared,
            folder: folder.to_path_buf(),
            schedule: prepared.schedule(number),
            chain: Chain::new(checkpoint.state, checkpoint.sweep),
            posterior: checkpoint.posterior,
            counters: checkpoint.counters,
            draws,
            trace,
            fingerprint,
        })
    }

    fn run(&mut self, observer: &mut dyn Observer, deadline: Option<Instant>, chains_left: u32) -> Result<Ending> {
        let total = self.schedule.sweeps;
        let (start, first) = (Instant::now(), self.chain.sweep);
        let mut saved = (self.chain.sweep, Instant::now());
        let mut ending = Ending::Finished;
        while self.chain.sweep < total {
            let row = self.one_sweep()?;
            let done = self.chain.sweep - first;
            let to_go = total - self.chain.sweep + u64::from(chains_left) * total;
            let left = start.elapsed().mul_f64(to_go as f64 / done as f64);
            observer.sweep(&row, total, left);
            if observer.wants_stop() {
                ending = Ending::Stopped;
                break;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) && self.chain.sweep < total {
                ending = Ending::OutOfTime;
                break;
            }
            if saved.1.elapsed() >= self.prepared.checked.checkpoint_every {
                self.save()?;
                saved = (self.chain.sweep, Instant::now());
            }
        }
        if saved.0 != self.chain.sweep {
            self.save()?;
        }
        Ok(ending)
    }

    fn one_sweep(&mut self) -> Result<TraceRow> {
        let start = Instant::now();
        let prepared = self.prepared;
        let info = self.chain.step(&prepared.model, &self.schedule)?;
        let sweep = self.chain.sweep;
        if self.schedule.keeps(sweep) {
            let n_planned = self.schedule.n_kept(self.schedule.sweeps);
            let shown =
                Shown { structure: &prepared.structure, mask: &prepared.mask, preprocessing: &prepared.preprocessing };
            self.posterior.add(&self.chain.state, &shown, prepared.checked.settings.exceed, n_planned);
            let means = || features::conditional_means(&prepared.model, &self.chain.state);
            self.draws.offer(&self.chain.state, means, sweep, self.posterior.n_kept)?;
        }
        let mut row = TraceRow::new(&prepared.model, &self.chain.state, &info, prepared.units());
        row.heldout_residual = prepared.heldout.as_ref().map(|data| {
            let streams = self.schedule.streams(sweep);
            let means = features::conditional_means(&prepared.model, &self.chain.state);
            let residual = new_rows::mean_squared_residual(data, &self.chain.state, &means, &streams);
            prepared.units().noise_variance(residual)
        });
        row.chain = self.schedule.chain;
        row.sweep = sweep;
        row.seconds = start.elapsed().as_secs_f64();
        for step in &info.steps {
            let sums = self.counters.kernels.entry(step.kernel.name().into()).or_default();
            sums.0 += step.seconds;
            sums.1 += u64::from(step.info.proposed);
            sums.2 += u64::from(step.info.accepted);
        }
        self.counters.seconds += row.seconds;
        self.trace.push(&row)?;
        Ok(row)
    }

    /// Trace first, then the checkpoint that relies on it, then what only the old checkpoint needed may go.
    fn save(&mut self) -> Result<()> {
        self.trace.flush()?;
        let checkpoint = Checkpoint {
            sweep: self.chain.sweep,
            state: self.chain.state.clone(),
            posterior: self.posterior.clone(),
            counters: self.counters.clone(),
        };
        checkpoint::save(&self.folder, &self.fingerprint, &checkpoint)?;
        self.draws.prune(self.posterior.n_kept)
    }

    fn write_results(&self, others: Option<&[Vec<Vec<f32>>]>) -> Result<()> {
        let prepared = self.prepared;
        let (record, settings) = (&prepared.record, &prepared.checked.settings);
        let mut found = PersistentFeatures::new(
            &self.posterior,
            &Setting {
                grid: prepared.structure.grid(),
                mask: &prepared.mask,
                steps: &prepared.steps(),
                n_rows: record.n_rows,
                empty_rows: &record.empty_rows,
                sum_of_squares: prepared.findings.sum_of_squares,
                exceed: settings.exceed,
            },
        );
        found.smooth_only_along(&prepared.structure);
        found.set_stability(others.unwrap_or_default());
        found.write(&self.folder)?;
        if let Some(space) = &prepared.space {
            export::write_images(&found, space, &self.folder)?;
            if settings.melodic {
                export::write_melodic(&found, space, &self.folder)?;
            }
        }
        if prepared.space.is_some() || record.runs.len() > 1 {
            let ids: Vec<u64> = found.table.iter().map(|row| row.id).collect();
            let [weights, activation] = [&found.weights, &found.activation].map(|values| found.by_input_row(values));
            export::write_courses(&ids, &weights, &activation, &record.runs, &self.folder)?;
        }
        export::write_synchrony(&found, &record.runs, settings.seed, &self.folder)?;
        if let Some(reconstruction) = &self.posterior.reconstruction {
            self.write_reconstruction(&reconstruction.mean)?;
        }
        Ok(())
    }

    fn write_reconstruction(&self, mean: &SpectralData<f32>) -> Result<()> {
        let prepared = self.prepared;
        let empty: &[usize] = &prepared.record.empty_rows;
        let n_rows = mean.n_rows() + empty.len();
        let shape: Vec<usize> = std::iter::once(n_rows).chain(prepared.structure.grid().iter().copied()).collect();
        let mut array = NpyWriter::create(&self.folder.join("reconstruction.npy"), &shape)?;
        let mut images =
            prepared.space.as_ref().map(|space| RunImages::new(&self.folder, space, &prepared.record.runs));
        let mut write = |row: &[f32]| -> Result<()> {
            array.write_values(row)?;
            images.as_mut().map_or(Ok(()), |images| images.push(row, &prepared.mask))
        };
        let settings = &prepared.checked.settings;
        let mut observations = inputs::open(settings)?;
        inputs::complete(&mut observations, settings, Some(prepared.mask.clone()))?;
        let n_columns = observations.n_columns();
        let nothing = vec![f32::NAN; prepared.structure.n_sites()];
        let (mut scratch, mut n_written) = (Vec::new(), 0);
        observations.for_each_chunk(&mut |run, first_row, values| {
            for (at, raw) in values.chunks_exact_mut(n_columns).enumerate() {
                while empty.contains(&n_written) {
                    write(&nothing)?;
                    n_written += 1;
                }
                let means = MeansOf::Run(run);
                let covariates = observations.covariates().row(first_row + at);
                let offset = prepared.preprocessing.apply(raw, covariates, means);
                let mut image = mean.row(first_row + at);
                prepared.structure.apply(Direction::ToSites, &mut image, &mut scratch);
                let mut columns = prepared.mask.gather(&image);
                prepared.preprocessing.restore(&mut columns, means, offset);
                let columns: Vec<f32> = columns.iter().map(|&x| x as f32).collect();
                write(&prepared.mask.scatter(&columns, f32::NAN))?;
                n_written += 1;
            }
            Ok(())
        })?;
        (n_written..n_rows).try_for_each(|_| write(&nothing))?;
        array.finish()
    }
}
