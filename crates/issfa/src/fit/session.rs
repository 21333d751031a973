//! A fit that can be run, stopped and gone on with: rows and settings in, a fitted model out.

use super::chain_run::{Account, ChainRun, Watcher};
use super::folder_sink::FolderSink;
use super::memory_sink::MemorySink;
use super::prepared::{About, Earlier, Prepared, Request};
use super::ranks;
use super::side_by_side;
use super::sink::Sink;
use super::{Ending, Observer};
use crate::chain::Posterior;
use crate::compiled::Sampled;
use crate::data::Rows;
use crate::error::{Error, Result, Verb, action};
use crate::evidence::{self, EvidenceCurve};
use crate::model::State;
use crate::run::draws::{DrawsPlace, KeptDraws};
use crate::run::folder::{Output, Run};
use crate::run::held::Held;
use crate::run::settings::{Precision, Settings};
use crate::run::until::{Until, Window};
use crate::run::{checkpoint, inputs};
use crate::structure::Shelf;
use crate::summary::results::compare_chains;
use crate::summary::{ChainRecord, Fitted, Found};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Rows and settings, loaded and ready to run. The precision is chosen inside.
pub struct Session {
    engine: Box<dyn Engine>,
    /// On rank 0 of those that share a chain.
    sink: Option<Box<dyn Sink>>,
    folder: Option<PathBuf>,
    /// Whether there is something to go on from.
    has_begun: bool,
    /// Chains of a fit in memory that this session goes on with.
    earlier: BTreeMap<u32, ChainRecord>,
    /// What they have found together.
    earlier_found: Option<Arc<Found>>,
}

/// A fit of either precision.
trait Engine: Send {
    fn about(&self) -> &About;
    fn begin(&mut self, sink: &mut Option<Box<dyn Sink>>) -> Result<()>;
    /// Runs all chains to the end of the window.
    fn run(&mut self, watcher: &mut Watcher, sink: &mut Option<Box<dyn Sink>>) -> Result<Ending>;
    /// Has another window before it.
    fn set_window(&mut self, window: Window);
    fn evidence(&self) -> Option<EvidenceCurve>;
    /// What all chains have found together so far, on the first rank of all.
    fn found(&self) -> Option<&Arc<Found>>;
    /// What this process has run.
    fn chains(&self, sink: &dyn Sink) -> Result<BTreeMap<u32, ChainRecord>>;
}

struct Task<R> {
    prepared: Prepared<R>,
    /// The state of another run to start from.
    start: Option<State<R>>,
    /// Whether it is still to take the place of an earlier fit.
    is_new: bool,
    /// What the chains of this rank's group have come to.
    chains: BTreeMap<u32, (Account, Arc<Found>)>,
    /// What all chains have found together.
    found: Option<Arc<Found>>,
}

fn load(request: Request) -> Result<Box<dyn Engine>> {
    fn task<R: Sampled>(request: Request) -> Result<Box<dyn Engine>> {
        let prepared = Prepared::<R>::load(request)?;
        Ok(Box::new(Task { prepared, start: None, is_new: false, chains: BTreeMap::new(), found: None }))
    }
    if request.checked.settings.precision == Precision::F64 {
        return task::<f64>(request);
    }
    match task::<f32>(request.clone()) {
        Err(Error::NeedsDouble { .. }) => task::<f64>(in_double(request)),
        other => other,
    }
}

/// The same in double precision.
fn in_double(mut request: Request) -> Request {
    request.checked.settings.precision = Precision::F64;
    request.checked.is_promoted = true;
    request
}

impl Session {
    /// A fit that keeps everything in memory.
    pub fn in_memory(rows: Rows, settings: &Settings) -> Result<Session> {
        Session::new(Request::new(rows, settings.clone().check()?), None)
    }

    /// A fit into a run folder, or in memory. A run that is in the folder already is replaced once the new one has its first
    /// checkpoint.
    pub fn new(request: Request, folder: Option<&Path>) -> Result<Session> {
        let Some(folder) = folder else {
            let engine = load(request)?;
            return Ok(Session::with(engine, None, false, || Box::new(MemorySink::default())));
        };
        let inputs = inputs::files(request.rows.paths(), &request.checked.settings);
        let held = request.ranks.hold(folder, true, || Held::for_new(folder, Output::Run, true, &inputs))?;
        Session::in_folder(request, held)
    }

    /// A fit into a run folder that is held already; under ranks by rank 0.
    pub fn in_folder(request: Request, held: Held) -> Result<Session> {
        let engine = load(request)?;
        Ok(Session::with(engine, Some(held), false, || Box::new(MemorySink::default())))
    }

    /// Goes on with a run folder; the settings of `run` may ask for more sweeps. Rows are those of its inputs, unless they
    /// are given. `request` may change who shares the work and who watches. The folder is held since before `run` was read.
    pub fn resume(held: Held, run: &Run, rows: Option<Rows>, prepare: impl FnOnce(&mut Request)) -> Result<Session> {
        let rows = rows.map_or_else(|| run.rows(), Ok)?;
        let shelf = Shelf::of(&run.folder, &run.record.graphs);
        let mut request = Request::new(rows, run.checked.clone());
        request.shelf = Some(&shelf);
        request.earlier = Some(Earlier {
            name: run.folder.clone(),
            mask: run.mask()?,
            record: run.record.clone(),
            noise: run.noise_reference()?,
        });
        prepare(&mut request);
        let engine = load(request)?;
        Ok(Session::with(engine, Some(held), true, || Box::new(MemorySink::default())))
    }

    /// Goes on with a fitted model until it has done `sweeps` in all; the rows are those it was fitted to.
    pub fn go_on(fitted: &Fitted, rows: Rows, sweeps: u64) -> Result<Session> {
        Session::go_on_with(fitted, rows, (Some(sweeps), None), |_| ())
    }

    /// [`Session::go_on`] until there are so many sweeps, or until the chains have settled; what is left out stays as it was.
    /// The request may be told who watches and how long it may take.
    pub fn go_on_with(
        fitted: &Fitted,
        rows: Rows,
        (sweeps, until): (Option<u64>, Option<Until>),
        prepare: impl FnOnce(&mut Request),
    ) -> Result<Session> {
        let held = fitted.folder.as_deref().map(Held::of_run).transpose()?;
        if let Some(sweeps) = sweeps.filter(|sweeps| *sweeps < fitted.planned_sweeps()) {
            return Err(Error::setting("sweeps", sweeps, "a run cannot be made shorter"));
        }
        let mut request = Request::new(rows, fitted.checked.clone().extended(sweeps, until));
        let (name, mask, record) = (fitted.name(), fitted.mask.clone(), fitted.record.clone());
        let noise = fitted.noise.as_ref().map(|filter| filter.reference().clone());
        request.earlier = Some(Earlier { name, mask, record, noise });
        let shelf = fitted.folder.as_deref().map(|folder| Shelf::of(folder, &fitted.record.graphs));
        request.shelf = shelf.as_ref();
        prepare(&mut request);
        let engine = load(request)?;
        let mut session = Session::with(engine, held, true, || Box::new(MemorySink::of(fitted)));
        if fitted.folder.is_none() {
            session.earlier = (1..).zip(fitted.chains.iter().cloned()).collect();
            session.earlier_found = Some(fitted.found.clone());
        }
        Ok(session)
    }

    fn with(
        engine: Box<dyn Engine>,
        held: Option<Held>,
        has_begun: bool,
        memory: impl FnOnce() -> Box<dyn Sink>,
    ) -> Session {
        let folder = held.as_ref().map(|held| held.folder().to_path_buf());
        let sink = || match held {
            Some(held) => Box::new(FolderSink::new(held)) as Box<dyn Sink>,
            None => memory(),
        };
        let sink = engine.about().is_first().then(sink);
        Session { engine, sink, folder, has_begun, earlier: BTreeMap::new(), earlier_found: None }
    }

    /// What will be done.
    pub fn about(&self) -> &About {
        self.engine.about()
    }

    /// Runs all chains to their end, or until the observer or the time budget ends it. Called again, it goes on.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Ending> {
        if self.has_begun {
            let about = self.engine.about();
            self.sink.as_mut().filter(|_| about.is_first_of_all()).map_or(Ok(()), |sink| sink.go_on(about))?;
        } else {
            self.engine.begin(&mut self.sink)?;
            self.has_begun = true;
        }
        let checked = &self.about().checked;
        let mut watcher = Watcher {
            observer,
            deadline: checked.time_budget.map(|budget| Instant::now() + budget),
            save_every: checked.checkpoint_every,
            sweeps_to_come: 0,
        };
        let mut ending = self.engine.run(&mut watcher, &mut self.sink)?;
        while ending == Ending::Finished && self.about().checked.settings.until == Until::Settled {
            if let Some(end) = self.look(&mut watcher)? {
                ending = end;
                break;
            }
            ending = self.engine.run(&mut watcher, &mut self.sink)?;
        }
        if ending == Ending::Finished && self.about().is_first_of_all() {
            self.add_evidence(observer)?;
        }
        Ok(ending)
    }

    /// Looks at whether a run has settled, and says how it ends; nothing where it goes on: what it was looked at by is left out
    /// then, and as many sweeps are to come. The first of all ranks looks, for all.
    ///
    /// Where a stop has come meanwhile, or the time is over, all stays as it is: it looks again when it goes on.
    fn look(&mut self, watcher: &mut Watcher) -> Result<Option<Ending>> {
        let about = self.engine.about();
        let (sweeps, next, all) = (about.checked.window.sweeps, about.checked.next_window(), about.ranks.all.clone());
        all.all_gather(&[]);
        let mut restless = match self.fitted()? {
            Some(fitted) if about.is_first_of_all() => fitted.summary().restless(),
            _ => Vec::new(),
        };
        if restless.len() > MOST_NAMED {
            let n_more = restless.split_off(MOST_NAMED).len();
            restless.push(format!("and {n_more} more"));
        }
        let is_settled = ranks::told(all.as_ref(), || restless.is_empty());
        let early = about.ranks.end(watcher.early().unwrap_or(Ending::Finished));
        let (why, observer) = (restless.join(", "), &mut *watcher.observer);
        if is_settled {
            observer.note(&format!("settled at sweep {sweeps}"));
            return Ok(Some(Ending::Finished));
        }
        let Some(window) = next else {
            observer.note(&format!("not settled, and all {sweeps} sweeps are used up: {why}"));
            return Ok(Some(Ending::Finished));
        };
        if early != Ending::Finished {
            observer.note(&format!("not settled at sweep {sweeps}: {why}"));
            return Ok(Some(early));
        }
        observer.note(&format!("not settled at sweep {sweeps}: {why}; looks again at sweep {}", window.sweeps));
        self.engine.set_window(window);
        let about = self.engine.about();
        self.sink.as_mut().filter(|_| about.is_first_of_all()).map_or(Ok(()), |sink| sink.go_on(about))?;
        all.all_gather(&[]);
        Ok(None)
    }

    /// The eigenvalues of the data and the evidence for principal components, where they take little time beside the fit.
    fn add_evidence(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        if sink.known_evidence()?.is_some() {
            return Ok(());
        }
        match (self.engine.evidence(), &self.folder) {
            (Some(curve), _) => sink.evidence(&curve),
            (None, Some(folder)) => {
                let report = action(Verb::Report).on(folder.display());
                observer.note(&format!("{report} adds the eigenvalues of the data and their figure"));
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// What the chains have come to so far, on rank 0; elsewhere nothing.
    pub fn fitted(&self) -> Result<Option<Fitted>> {
        let Some(sink) = self.sink.as_deref().filter(|_| self.about().is_first_of_all()) else { return Ok(None) };
        let mut fitted = self.about().to_fitted();
        let mut chains = self.earlier.clone();
        chains.extend(self.engine.chains(sink)?);
        for chain in 1..=fitted.settings().chains {
            // Run by another group of ranks, or before this session.
            if self.folder.is_some() && !chains.contains_key(&chain) && sink.checkpoint(chain)?.is_some() {
                return self.folder.as_deref().map(Fitted::open).transpose();
            }
        }
        if chains.is_empty() {
            return Ok(None);
        }
        fitted.chains = chains.into_values().collect();
        fitted.found = self.engine.found().or(self.earlier_found.as_ref()).cloned().unwrap_or_default();
        fitted.has_results = true;
        fitted.reconstruction = sink.joint_denoised();
        fitted.evidence = sink.known_evidence()?;
        fitted.folder = self.folder.clone();
        Ok(Some(fitted))
    }
}

/// How many of those that keep a run from being settled are named.
const MOST_NAMED: usize = 6;

/// Every group of ranks has begun: rank 0 puts the new fit in its place, and the others go on there.
fn take_place(about: &About, sink: &mut Option<Box<dyn Sink>>) -> Result<()> {
    about.ranks.meet();
    if about.is_first_of_all() {
        sink.as_mut().map_or(Ok(()), |sink| sink.take_place())?;
    }
    about.ranks.meet();
    if !about.is_first_of_all() {
        sink.as_mut().map_or(Ok(()), |sink| sink.take_place())?;
    }
    Ok(())
}

/// What all chains have found together, so far; every chain gets the best matches of its features in the others.
fn join(own: &mut BTreeMap<u32, (Account, Arc<Found>)>, about: &About, sink: &mut dyn Sink) -> Result<Arc<Found>> {
    let (n_chains, seed) = (about.checked.settings.chains, about.schedule(1).seed);
    if n_chains == 1 {
        return Ok(own.get(&1).map(|(_, found)| found.clone()).unwrap_or_default());
    }
    let fingerprint = about.recorded().fingerprint();
    let (mut posteriors, mut n_kept, mut others) = (Vec::new(), Vec::new(), BTreeMap::new());
    let is_done: Vec<u32> =
        (1..=n_chains).filter(|chain| own.contains_key(chain) || about.ranks.n_groups > 1).collect();
    for chain in 1..=n_chains {
        let is_to_come = !own.contains_key(&chain) && about.ranks.n_groups == 1;
        let stored = match sink.checkpoint(chain) {
            // It goes back to the checkpoint before when it is its turn.
            Err(_) if is_to_come => continue,
            found => found?,
        };
        let Some(stored) = stored else { continue };
        let posterior = checkpoint::posterior(&stored, &fingerprint, &about.record.sizes(), false)?;
        if posterior.n_kept == 0 {
            continue;
        }
        n_kept.push((chain, posterior.n_kept));
        if !own.contains_key(&chain) {
            // Run by another group of ranks, or before this session.
            others.insert(chain, about.results().of(&posterior, about.schedule(chain).seed));
        }
        posteriors.push(posterior);
    }
    let mut all = about.results().of(&Posterior::joined(posteriors.into_iter()), seed);
    let has_kept = |chain: &u32| n_kept.iter().any(|(known, _)| known == chain);
    let known =
        own.iter_mut().filter(|(chain, _)| has_kept(chain)).map(|(chain, (_, found))| (*chain, Arc::make_mut(found)));
    let mut chains: BTreeMap<u32, &mut Found> =
        known.chain(others.iter_mut().map(|(chain, found)| (*chain, found))).collect();
    compare_chains(&mut chains.values_mut().map(|found| &mut **found).collect::<Vec<_>>(), &mut all);
    // What is to come writes its own, after its denoised rows.
    let mut done = chains.into_iter().filter(|(chain, _)| is_done.contains(chain));
    done.try_for_each(|(chain, found)| sink.results(chain, about, found))?;
    sink.joint_results(about, &all, &n_kept)?;
    Ok(Arc::new(all))
}

impl<R: Sampled> Engine for Task<R> {
    fn about(&self) -> &About {
        &self.prepared.about
    }

    fn begin(&mut self, sink: &mut Option<Box<dyn Sink>>) -> Result<()> {
        let about = &self.prepared.about;
        // Before anything is replaced: the run to start from may be the one that is.
        self.start = self.prepared.start_of_run()?;
        about.ranks.meet();
        sink.as_mut().filter(|_| about.is_first_of_all()).map_or(Ok(()), |sink| sink.begin(about))?;
        about.ranks.meet();
        self.is_new = true;
        Ok(())
    }

    fn set_window(&mut self, window: Window) {
        let about = &mut self.prepared.about;
        about.checked.window = window;
        about.record.window = about.checked.later_window();
        (self.chains, self.found) = (BTreeMap::new(), None);
    }

    fn run(&mut self, watcher: &mut Watcher, sink: &mut Option<Box<dyn Sink>>) -> Result<Ending> {
        let is_new = std::mem::take(&mut self.is_new);
        let about = &self.prepared.about;
        let n_chains = about.checked.settings.chains;
        let own: Vec<u32> = (1..=n_chains).filter(|&chain| about.ranks.runs_chain(chain)).collect();
        if about.record.window.is_some() {
            // What the window before has left is let go of for all chains at once.
            own.iter().try_for_each(|&number| ChainRun::start(&self.prepared, number, None, sink).map(|_| ()))?;
        }
        let mut ending = Ending::Finished;
        let n_at_once = side_by_side::n_at_once(about, own.len(), R::BYTES);
        for (at, numbers) in own.chunks(n_at_once).enumerate() {
            watcher.sweeps_to_come = (own.len().div_ceil(n_at_once) - at - 1) as u64 * about.checked.window.sweeps;
            let mut chains = Vec::with_capacity(numbers.len());
            for &number in numbers {
                chains.push(ChainRun::start(&self.prepared, number, self.start.as_ref(), sink)?);
                if is_new && number == own[0] {
                    take_place(about, sink)?;
                }
            }
            let notes = sink.as_mut().map_or(Vec::new(), |sink| sink.take_notes());
            notes.iter().for_each(|note| watcher.observer.note(note));
            let endings = side_by_side::run(&mut chains, watcher, sink)?;
            for ((&number, chain), ending) in numbers.iter().zip(chains).zip(&endings) {
                let (Some(mut account), Some(sink)) = (chain.into_account(), sink.as_mut()) else { continue };
                let found = account.give_results(about, number, sink.as_mut())?;
                // The sink has it in the checkpoint.
                account.posterior = Posterior::new(None);
                self.chains.insert(number, (account, Arc::new(found)));
                if *ending == Ending::Finished {
                    sink.finish_chain(number)?;
                }
            }
            // Chains of other groups may be on their way.
            if let Some(sink) = sink.as_mut().filter(|_| about.is_first_of_all() && about.ranks.n_groups == 1) {
                self.found = Some(join(&mut self.chains, about, sink.as_mut())?);
            }
            if let Some(early) = endings.into_iter().find(|ending| *ending != Ending::Finished) {
                ending = early;
                break;
            }
        }
        let ending = self.prepared.about.ranks.end(ending);
        let is_first_of_all = self.prepared.about.is_first_of_all();
        let is_shared = self.prepared.about.ranks.n_groups > 1;
        if let Some(sink) = sink.as_mut().filter(|_| is_first_of_all && is_shared) {
            self.found = Some(join(&mut self.chains, &self.prepared.about, sink.as_mut())?);
        }
        Ok(ending)
    }

    fn found(&self) -> Option<&Arc<Found>> {
        self.found.as_ref()
    }

    fn evidence(&self) -> Option<EvidenceCurve> {
        let About { record, checked, .. } = &self.prepared.about;
        let n_sweeps = checked.window.sweeps * u64::from(checked.settings.chains);
        let is_cheap = evidence::is_cheap(record.n_rows, record.n_sites, n_sweeps);
        let data = &self.prepared.model.data;
        (is_cheap && !data.tiles().is_shared()).then(|| EvidenceCurve::of(data, self.prepared.about.unit()))
    }

    fn chains(&self, sink: &dyn Sink) -> Result<BTreeMap<u32, ChainRecord>> {
        let record = |(&chain, (account, found)): (&u32, &(Account, Arc<Found>))| {
            let place = sink.draws(chain)?;
            let is_in_memory = matches!(place, DrawsPlace::Memory(_));
            let record = ChainRecord {
                trace: account.trace.clone(),
                sweep: account.sweep,
                counters: account.counters.clone(),
                found: found.clone(),
                draws: KeptDraws { sizes: self.about().record.sizes(), place },
                checkpoint: if is_in_memory { sink.checkpoint(chain)? } else { None },
                reconstruction: sink.denoised(chain),
            };
            Ok((chain, record))
        };
        self.chains.iter().map(record).collect()
    }
}
