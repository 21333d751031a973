//! A fit from settings to results: load, start chains, keep draws and checkpoints, write what was found.

mod agreement;
pub mod cost;
pub mod merge;
pub mod plan;
mod prepared;
mod ranks;

pub use prepared::{Prepared, memory_needed};
pub use ranks::Ranks;

use crate::chain::Posterior;
use crate::chain::posterior::Shown;
use crate::chain::sweep::SweepInfo;
use crate::chain::{Chain, Schedule};
use crate::data::preprocess::MeansOf;
use crate::data::write::NpyWriter;
use crate::error::{Error, Result, Verb, action};
use crate::kernels::features;
use crate::model::State;
use crate::new_rows;
use crate::numeric::linalg::Real;
use crate::pca::evidence::{self, EvidenceCurve};
use crate::run::checkpoint::{self, Checkpoint, Counters};
use crate::run::draws::Draws;
use crate::run::folder::{Output, Run, prepare_output};
use crate::run::inputs;
use crate::run::trace::{TraceRow, TraceWriter};
use crate::spectral::SpectralData;
use crate::structure::Direction;
use crate::summary::export::RunImages;
use crate::summary::results::{Images, all_but, read_under};
use std::path::{Path, PathBuf};
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

/// Runs all chains of a new fit into `folder`, which is made empty first.
pub fn fit<R: Real>(prepared: &Prepared<R>, folder: &Path, observer: &mut dyn Observer) -> Result<Ending> {
    // Before anything is replaced: the run to start from may be the one that is.
    let start = prepared.start_of_run()?;
    prepared.ranks.meet();
    if prepared.is_first_of_all() {
        prepare_output(folder, Output::Run)?;
        prepared.structure.save_graphs(folder)?;
        prepared.write_place(folder)?;
        Run::write_config(folder, &prepared.recorded_settings())?;
    }
    prepared.ranks.meet();
    run_chains(prepared, folder, observer, start.as_ref())
}

/// Goes on with a fit that stopped.
pub fn resume<R: Real>(prepared: &Prepared<R>, folder: &Path, observer: &mut dyn Observer) -> Result<Ending> {
    // Before anything is written: the checkpoint may belong to something else.
    if prepared.is_first_of_all() {
        checkpoint::check_origin(folder, &prepared.recorded_settings().fingerprint())?;
        Run::write_config(folder, &prepared.recorded_settings())?;
    }
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
    let own_chains: Vec<u32> = (1..=n_chains).filter(|&number| prepared.ranks.run(number)).collect();
    for (at, &number) in own_chains.iter().enumerate() {
        let chain_folder = Run::chain_folder(folder, number);
        let mut going = Going::start(prepared, &chain_folder, number, start)?;
        ending = going.run(observer, deadline, (own_chains.len() - at - 1) as u32)?;
        if let Some(books) = &going.books {
            books.write_results(prepared, &[])?;
        }
        if ending != Ending::Finished {
            break;
        }
    }
    let ending = prepared.ranks.end(ending);
    if ending == Ending::Finished && prepared.is_first_of_all() {
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
    let is_cheap = evidence::is_cheap(n_rows, n_sites, settings.sweeps * u64::from(settings.chains));
    if !is_cheap || prepared.model.data.tiles().is_shared() {
        let report = action(Verb::Report).on(folder.display());
        observer.note(&format!("{report} adds the eigenvalues of the data and their figure"));
        return Ok(());
    }
    EvidenceCurve::of(&prepared.model.data, prepared.preprocessing.factor).write(folder)
}

/// Rewrites every chain's results with the best matches in the others.
fn write_stability<R: Real>(prepared: &Prepared<R>, folder: &Path, n_chains: u32) -> Result<()> {
    let folders: Vec<PathBuf> = (1..=n_chains).map(|number| Run::chain_folder(folder, number)).collect();
    let images = folders.iter().map(|folder| read_under(&prepared.mask, folder)).collect::<Result<Vec<_>>>()?;
    for (at, chain_folder) in folders.iter().enumerate() {
        Books::open(prepared, chain_folder, at as u32 + 1)?.0.write_results(prepared, &all_but(&images, at))?;
    }
    Ok(())
}

/// A chain on its way.
struct Going<'a, R> {
    prepared: &'a Prepared<R>,
    /// Which chain of the run it is, from 1.
    number: u32,
    schedule: Schedule,
    chain: Chain<R>,
    n_kept: u64,
    /// Kept by rank 0.
    books: Option<Books>,
}

/// What is written about a chain.
struct Books {
    folder: PathBuf,
    posterior: Posterior,
    counters: Counters,
    draws: Draws,
    trace: TraceWriter,
    fingerprint: String,
    /// Of the chain's streams.
    seed: u64,
}

/// What is to happen after a sweep, on all ranks alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Save,
    End(Ending),
}

impl Books {
    /// Goes on with a folder's books, from its checkpoint.
    fn open<R: Real>(prepared: &Prepared<R>, folder: &Path, number: u32) -> Result<(Books, Checkpoint<R>)> {
        let fingerprint = prepared.recorded_settings().fingerprint();
        let mut checkpoint = checkpoint::load(folder, &fingerprint, prepared.with_reconstruction())?;
        let draws = Draws::new(folder, prepared.checked.settings.keep_draws);
        draws.prune(checkpoint.posterior.n_kept)?;
        let books = Books {
            trace: TraceWriter::reopen(&folder.join("trace.csv"), checkpoint.sweep)?,
            folder: folder.to_path_buf(),
            posterior: std::mem::replace(&mut checkpoint.posterior, Posterior::new(None)),
            counters: checkpoint.counters.clone(),
            draws,
            fingerprint,
            seed: prepared.schedule(number).seed,
        };
        Ok((books, checkpoint))
    }

    /// New books of a chain that starts in `state`.
    fn create<R: Real>(prepared: &Prepared<R>, folder: &Path, number: u32, state: State<R>) -> Result<Books> {
        std::fs::create_dir_all(folder).map_err(Error::write(folder))?;
        let mut books = Books {
            trace: TraceWriter::create(&folder.join("trace.csv"), prepared.model.spectrum.n_parameters())?,
            folder: folder.to_path_buf(),
            posterior: Posterior::new(prepared.with_reconstruction()),
            counters: Counters::default(),
            draws: Draws::new(folder, prepared.checked.settings.keep_draws),
            fingerprint: prepared.recorded_settings().fingerprint(),
            seed: prepared.schedule(number).seed,
        };
        books.draws.create(&prepared.preprocessing)?;
        books.save(0, state)?;
        Ok(books)
    }

    /// Trace first, then the checkpoint that relies on it, then what only the old checkpoint needed may go.
    fn save<R: Real>(&mut self, sweep: u64, state: State<R>) -> Result<()> {
        self.trace.flush()?;
        let (posterior, counters) = (self.posterior.clone(), self.counters.clone());
        checkpoint::save(&self.folder, &self.fingerprint, &Checkpoint { sweep, state, posterior, counters })?;
        self.draws.prune(self.posterior.n_kept)
    }

    fn add_times(&mut self, row: &TraceRow, info: &SweepInfo) {
        for step in &info.steps {
            let sums = self.counters.kernels.entry(step.kernel.name().into()).or_default();
            sums.0 += step.seconds;
            sums.1 += u64::from(step.info.proposed);
            sums.2 += u64::from(step.info.accepted);
        }
        self.counters.seconds += row.seconds;
    }
}

impl<'a, R: Real> Going<'a, R> {
    /// From the folder's checkpoint, or from the beginning.
    fn start(prepared: &'a Prepared<R>, folder: &Path, number: u32, start: Option<&State<R>>) -> Result<Going<'a, R>> {
        let comm = prepared.model.comm.as_ref();
        let exists = ranks::told(comm, || checkpoint::path(folder).is_file());
        let (books, checkpoint) = if exists {
            let opened = prepared.is_first().then(|| Books::open(prepared, folder, number)).transpose()?;
            let (books, checkpoint) = opened.unzip();
            (books, ranks::hand_out(&prepared.model, checkpoint)?)
        } else {
            let state = match start {
                Some(state) => state.clone(),
                None => prepared.initial_state(number)?,
            };
            let whole = state.gathered(comm);
            (
                whole.map(|whole| Books::create(prepared, folder, number, whole)).transpose()?,
                ranks::Position { sweep: 0, state },
            )
        };
        let schedule = prepared.schedule(number);
        Ok(Going {
            n_kept: schedule.n_kept(checkpoint.sweep),
            prepared,
            number,
            schedule,
            chain: Chain::new(checkpoint.state, checkpoint.sweep),
            books,
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
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline) && self.chain.sweep < total;
            let is_time_to_save = saved.1.elapsed() >= self.prepared.checked.checkpoint_every;
            let own = match (observer.wants_stop(), is_late, is_time_to_save) {
                (true, _, _) => Next::End(Ending::Stopped),
                (_, true, _) => Next::End(Ending::OutOfTime),
                (_, _, true) => Next::Save,
                _ => Next::GoOn,
            };
            match ranks::agree(self.prepared.model.comm.as_ref(), &self.chain, own)? {
                Next::GoOn => {}
                Next::Save => {
                    self.save()?;
                    saved = (self.chain.sweep, Instant::now());
                }
                Next::End(early) => {
                    ending = early;
                    break;
                }
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
        let comm = prepared.model.comm.as_ref();
        let sent_before = comm.traffic().n_bytes;
        let info = self.chain.step(&prepared.model, &self.schedule)?;
        let sent = comm.traffic().n_bytes - sent_before;
        let sweep = self.chain.sweep;
        if self.schedule.keeps(sweep) {
            self.keep()?;
        }
        let mut row = TraceRow::new(&prepared.model, &self.chain.state, &info, prepared.units());
        if prepared.checked.settings.heldout.is_some() {
            let means = features::conditional_means(&prepared.model, &self.chain.state).gathered(comm);
            let residual = |(data, means)| {
                let streams = self.schedule.streams(sweep);
                prepared.units().noise_variance(new_rows::mean_squared_residual(
                    data,
                    &self.chain.state,
                    means,
                    &streams,
                ))
            };
            row.heldout_residual = prepared.heldout.as_ref().zip(means.as_ref()).map(residual);
        }
        row.chain = self.number;
        row.sweep = sweep;
        row.seconds = start.elapsed().as_secs_f64();
        if let Some(books) = &mut self.books {
            books.add_times(&row, &info);
            books.counters.bytes_sent += sent;
            books.trace.push(&row)?;
        }
        Ok(row)
    }

    /// Adds the state to the posterior and to the draws.
    fn keep(&mut self) -> Result<()> {
        let prepared = self.prepared;
        let comm = prepared.model.comm.as_ref();
        self.n_kept += 1;
        let capacity = prepared.checked.settings.keep_draws;
        let means = Draws::retains(self.n_kept, capacity)
            .then(|| features::conditional_means(&prepared.model, &self.chain.state).gathered(comm));
        // Where nothing is shared, the state is whole as it is.
        let gathered = if comm.size() > 1 { self.chain.state.gathered(comm) } else { None };
        let Some(books) = &mut self.books else { return Ok(()) };
        let state = gathered.as_ref().unwrap_or(&self.chain.state);
        let n_planned = self.schedule.n_kept(self.schedule.sweeps);
        let shown =
            Shown { structure: &prepared.structure, mask: &prepared.mask, preprocessing: &prepared.preprocessing };
        books.posterior.add(state, &shown, prepared.checked.settings.exceed, n_planned);
        if let Some(means) = means.flatten() {
            books.draws.store(state, &means, self.chain.sweep, self.n_kept)?;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        let state = self.chain.state.gathered(self.prepared.model.comm.as_ref());
        match self.books.as_mut().zip(state) {
            Some((books, state)) => books.save(self.chain.sweep, state),
            None => Ok(()),
        }
    }
}

impl Books {
    fn write_results<R: Real>(&self, prepared: &Prepared<R>, others: &[Images]) -> Result<()> {
        prepared.results().write(&self.posterior, others, self.seed, &self.folder)?;
        match &self.posterior.reconstruction {
            Some(reconstruction) => self.write_reconstruction(prepared, &reconstruction.mean),
            None => Ok(()),
        }
    }

    fn write_reconstruction<R: Real>(&self, prepared: &Prepared<R>, mean: &SpectralData<f32>) -> Result<()> {
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
