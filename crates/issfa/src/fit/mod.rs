//! A fit from settings to results: load, start chains, keep draws and checkpoints, write what was found.

mod prepared;

pub use prepared::{Prepared, memory_needed};

use crate::chain::{Chain, Schedule};
use crate::checkpoint::{self, Checkpoint, Counters};
use crate::data::preprocess::MeansOf;
use crate::data::write::NpyWriter;
use crate::draws::Draws;
use crate::error::{Error, Result};
use crate::inputs;
use crate::kernels::features;
use crate::linalg::Real;
use crate::model::State;
use crate::new_rows;
use crate::pca::evidence::{self, EvidenceCurve};
use crate::run_folder::{Output, Run, prepare_output};
use crate::spectral::SpectralData;
use crate::structure::Direction;
use crate::summary::Posterior;
use crate::summary::export::RunImages;
use crate::summary::posterior::Shown;
use crate::summary::results::{Images, all_but, read_under};
use crate::trace::{TraceRow, TraceWriter};
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
        going.write_results(&[])?;
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
    let images = folders.iter().map(|folder| read_under(&prepared.mask, folder)).collect::<Result<Vec<_>>>()?;
    for (at, chain_folder) in folders.iter().enumerate() {
        let going = Going::start(prepared, chain_folder, at as u32 + 1, None)?;
        going.write_results(&all_but(&images, at))?;
    }
    Ok(())
}

/// A chain on its way, with its files.
struct Going<'a, R> {
    prepared: &'a Prepared<R>,
    folder: PathBuf,
    /// Which chain of the run it is, from 1.
    number: u32,
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
            number,
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
        row.chain = self.number;
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

    fn write_results(&self, others: &[Images]) -> Result<()> {
        self.prepared.results().write(&self.posterior, others, self.schedule.seed, &self.folder)?;
        match &self.posterior.reconstruction {
            Some(reconstruction) => self.write_reconstruction(&reconstruction.mean),
            None => Ok(()),
        }
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
