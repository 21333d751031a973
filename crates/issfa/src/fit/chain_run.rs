//! A chain on its way: sweeps, what is kept of them, checkpoints, and the agreement of ranks in between.

use super::denoised::DenoisedRows;
use super::prepared::{About, Prepared};
use super::ranks::{self, Position};
use super::sink::Sink;
use super::{Ending, Observer};
use crate::chain::coarse::Coarse;
use crate::chain::sweep::SweepInfo;
use crate::chain::{Chain, Posterior, Schedule};
use crate::compiled::Sampled;
use crate::error::Result;
use crate::model::{Model, State};
use crate::run::checkpoint::{self, Checkpoint, Counters};
use crate::run::draws::{self, Draws};
use crate::run::trace::TraceRow;
use crate::summary::Found;
use std::time::{Duration, Instant};

/// A chain on its way.
pub(super) struct ChainRun<'a, R> {
    prepared: &'a Prepared<R>,
    /// Which chain of the run it is, from 1.
    number: u32,
    schedule: Schedule,
    chain: Chain<R>,
    /// What is looked at while the start is coarse; the chain's state is then that of its model.
    coarse: Option<Coarse<R>>,
    n_kept: u64,
    /// Kept by rank 0.
    account: Option<Account>,
}

/// What is accumulated about a chain.
#[derive(Clone)]
pub(super) struct Account {
    pub posterior: Posterior,
    pub counters: Counters,
    pub trace: Vec<TraceRow>,
    pub sweep: u64,
    fingerprint: String,
}

/// When to stop, to save, and whom to tell.
pub(super) struct Watcher<'a> {
    pub observer: &'a mut dyn Observer,
    pub deadline: Option<Instant>,
    pub save_every: Duration,
    /// Sweeps of chains that are still to come.
    pub sweeps_to_come: u64,
}

/// What is to happen after a sweep, on all ranks alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoOn,
    Save,
    End(Ending),
}

impl Account {
    fn new<R: Sampled>(prepared: &Prepared<R>) -> Account {
        Account {
            posterior: Posterior::new(prepared.about.with_reconstruction()),
            counters: Counters::default(),
            trace: Vec::new(),
            sweep: 0,
            fingerprint: prepared.about.recorded().fingerprint(),
        }
    }

    fn save<R: Sampled>(&mut self, chain: u32, sweep: u64, state: &State<R>, sink: &mut dyn Sink) -> Result<()> {
        let bundle = checkpoint::encode(&self.fingerprint, sweep, state, &self.posterior, &self.counters);
        let start = Instant::now();
        sink.save(chain, self.posterior.n_kept, bundle)?;
        self.counters.seconds_saving += start.elapsed().as_secs_f64();
        self.sweep = sweep;
        Ok(())
    }

    fn add_times(&mut self, row: &TraceRow, info: &SweepInfo, bytes_sent: u64) {
        for step in &info.steps {
            let sums = self.counters.kernels.entry(step.kernel.name().into()).or_default();
            sums.0 += step.seconds;
            sums.1 += u64::from(step.info.proposed);
            sums.2 += u64::from(step.info.accepted);
        }
        self.counters.seconds += row.seconds;
        self.counters.bytes_sent += bytes_sent;
    }

    /// What the chain has found, and its denoised rows where they are wanted.
    pub fn give_results(&self, about: &About, chain: u32, sink: &mut dyn Sink) -> Result<Found> {
        let found = about.results().of(&self.posterior, about.schedule(chain).seed);
        // First: where the weights are those of a checkpoint, the denoised rows are too.
        if let Some(reconstruction) = &self.posterior.reconstruction {
            sink.reconstruction(chain, about, &DenoisedRows { about, mean: &reconstruction.mean })?;
        }
        sink.results(chain, about, &found)?;
        Ok(found)
    }
}

/// Where a chain is to go on, with what is accumulated about it, on rank 0; nowhere if it is to begin.
fn earlier<R: Sampled>(
    prepared: &Prepared<R>,
    number: u32,
    sink: &mut Option<Box<dyn Sink>>,
) -> Result<Option<(Account, Checkpoint<R>)>> {
    let Some(sink) = sink else { return Ok(None) };
    let Some(stored) = sink.last_sound(number)? else { return Ok(None) };
    let about = &prepared.about;
    let (fingerprint, sizes) = (about.recorded().fingerprint(), about.record.sizes());
    let mut checkpoint = checkpoint::decode::<R>(&stored, &fingerprint, &sizes, about.with_reconstruction().is_some())?;
    let posterior = std::mem::replace(&mut checkpoint.posterior, Posterior::new(None));
    let (counters, sweep) = (checkpoint.counters.clone(), checkpoint.sweep);
    let schedule = about.schedule(number);
    // What was kept of the window before.
    let is_over = sweep == schedule.burn_in && posterior.n_kept > 0;
    if posterior.n_kept != schedule.n_kept(sweep) && !is_over {
        return Err(stored.damaged(format!("it has kept {} of {sweep} sweeps", posterior.n_kept)));
    }
    let trace = sink.go_on_with_chain(number, about, &stored, (sweep, posterior.n_kept))?;
    if trace.len() as u64 != sweep {
        return Err(stored.damaged(format!("it is of sweep {sweep}, but its trace has {} rows", trace.len())));
    }
    let mut account = Account { posterior, counters, trace, sweep, fingerprint };
    if is_over {
        account.posterior = Posterior::new(about.with_reconstruction());
        // Twice: the checkpoint before is to know nothing of what is let go either.
        account.save(number, sweep, &checkpoint.state, sink.as_mut())?;
        account.save(number, sweep, &checkpoint.state, sink.as_mut())?;
    }
    Ok(Some((account, checkpoint)))
}

/// A state with all features in one place and at all modes, on rank 0 alone.
fn gathered<R: Sampled>(model: &Model<R>, coarse: Option<&Coarse<R>>, state: &State<R>) -> Option<State<R>> {
    coarse.map_or_else(|| state.gathered(model.data.sharing()), |coarse| R::coarse_gathered(coarse, state))
}

impl<'a, R: Sampled> ChainRun<'a, R> {
    /// From its checkpoint, or from the beginning.
    pub fn start(
        prepared: &'a Prepared<R>,
        number: u32,
        start: Option<&State<R>>,
        sink: &mut Option<Box<dyn Sink>>,
    ) -> Result<ChainRun<'a, R>> {
        let comm = prepared.model.comm.as_ref();
        let known = earlier(prepared, number, sink)?;
        let (account, coarse, position) = if ranks::told(comm, || known.is_some()) {
            let (account, checkpoint) = known.unzip();
            let Position { sweep, mut state } = ranks::hand_out(&prepared.model, checkpoint)?;
            let coarse = prepared.coarse_after(sweep);
            if let Some(coarse) = &coarse {
                state = R::coarse_take(coarse, state, &prepared.model);
            }
            (account, coarse, Position { sweep, state })
        } else {
            let coarse = prepared.coarse_after(0);
            let state = match (start, &coarse) {
                (Some(state), _) => state.clone(),
                (None, Some(coarse)) => prepared.coarse_start(coarse, number)?,
                (None, None) => prepared.initial_state(number)?,
            };
            let mut account = None;
            if let (Some(whole), Some(sink)) = (gathered(&prepared.model, coarse.as_ref(), &state), sink) {
                let account = account.insert(Account::new(prepared));
                sink.begin_chain(number, &prepared.about)?;
                account.save(number, 0, &whole, sink.as_mut())?;
            }
            (account, coarse, Position { sweep: 0, state })
        };
        let schedule = prepared.about.schedule(number);
        Ok(ChainRun {
            n_kept: schedule.n_kept(position.sweep),
            prepared,
            number,
            schedule,
            chain: Chain::new(position.state, position.sweep),
            coarse,
            account,
        })
    }

    /// Sweeps until the chain is as long as planned, or until it is told to stop.
    pub fn run(&mut self, watcher: &mut Watcher, sink: &mut Option<Box<dyn Sink>>) -> Result<Ending> {
        let total = self.schedule.sweeps;
        let (start, first) = (Instant::now(), self.chain.sweep);
        let mut saved = (self.chain.sweep, Instant::now());
        let mut ending = Ending::Finished;
        while self.chain.sweep < total {
            let row = self.one_sweep(sink)?;
            let done = self.chain.sweep - first;
            let to_go = total - self.chain.sweep + watcher.sweeps_to_come;
            watcher.observer.sweep(&row, total, start.elapsed().mul_f64(to_go as f64 / done as f64));
            let own = watcher.next(self.chain.sweep < total, saved.1);
            match ranks::agree(self.model().data.sharing(), &self.chain, own)? {
                Next::GoOn => {}
                Next::Save => {
                    self.save(sink)?;
                    saved = (self.chain.sweep, Instant::now());
                }
                Next::End(early) => {
                    ending = early;
                    break;
                }
            }
        }
        if saved.0 != self.chain.sweep {
            self.save(sink)?;
        }
        Ok(ending)
    }

    /// What was accumulated, on rank 0.
    pub fn into_account(self) -> Option<Account> {
        self.account
    }

    /// The model that the chain is at.
    fn model(&self) -> &Model<R> {
        self.coarse.as_ref().map_or(&self.prepared.model, |coarse| &coarse.model)
    }

    fn one_sweep(&mut self, sink: &mut Option<Box<dyn Sink>>) -> Result<TraceRow> {
        let start = Instant::now();
        let prepared = self.prepared;
        if prepared.about.checked.coarse_sweeps().is_none_or(|n_coarse| self.chain.sweep >= n_coarse) {
            self.take_in_all_modes();
        }
        let sent_before = self.model().data.sharing().traffic().n_bytes;
        let (model, info) = match &self.coarse {
            Some(coarse) => (&coarse.model, self.chain.coarse_step(&coarse.model, &self.schedule)?),
            None => (&prepared.model, self.chain.step(&prepared.model, &self.schedule)?),
        };
        let sent = model.data.sharing().traffic().n_bytes - sent_before;
        let mut row = TraceRow::new(model, &self.chain.state, &info, prepared.units());
        let sweep = self.chain.sweep;
        if self.schedule.keeps(sweep) {
            self.keep(sink)?;
        }
        if prepared.traces_heldout {
            row.heldout_residual = self.heldout_residual();
        }
        row.chain = self.number;
        row.sweep = sweep;
        row.seconds = start.elapsed().as_secs_f64();
        if let (Some(account), Some(sink)) = (&mut self.account, sink) {
            account.add_times(&row, &info, sent);
            account.trace.push(row.clone());
            sink.sweep(&row)?;
        }
        Ok(row)
    }

    /// Ends a coarse start: the features at the other modes are drawn in the sweep to come.
    fn take_in_all_modes(&mut self) {
        let Some(coarse) = self.coarse.take() else { return };
        let (state, sweep) = (self.chain.state.clone(), self.chain.sweep);
        self.chain = Chain::new(R::coarse_give_back(&coarse, state, &self.prepared.model), sweep);
    }

    /// The mean squared residual of the rows left out, on rank 0.
    fn heldout_residual(&self) -> Option<f64> {
        let prepared = self.prepared;
        let means = R::conditional_means(&prepared.model, &self.chain.state);
        let means = means.gathered(prepared.model.comm.as_ref())?;
        let streams = self.schedule.streams(self.chain.sweep);
        let (data, tails) = (prepared.heldout.as_ref()?, prepared.model.priors.weight_tails);
        let residual = R::mean_squared_residual(data, &self.chain.state, tails, &means, &streams);
        Some(prepared.units().noise_variance(residual))
    }

    /// Adds the state to the posterior and to the draws.
    fn keep(&mut self, sink: &mut Option<Box<dyn Sink>>) -> Result<()> {
        let (prepared, about) = (self.prepared, &self.prepared.about);
        let comm = prepared.model.comm.as_ref();
        self.n_kept += 1;
        let settings = &about.checked.settings;
        let means = Draws::retains(self.n_kept, settings.keep_draws)
            .then(|| R::conditional_means(&prepared.model, &self.chain.state).gathered(comm));
        // Where nothing is shared, the state is whole as it is.
        let gathered = if comm.size() > 1 { self.chain.state.gathered(prepared.model.data.sharing()) } else { None };
        let (Some(account), Some(sink)) = (&mut self.account, sink) else { return Ok(()) };
        let state = gathered.as_ref().unwrap_or(&self.chain.state);
        R::add_to(&mut account.posterior, state, &about.shown(), settings.exceed);
        if let Some(means) = means.flatten() {
            let start = Instant::now();
            sink.draw(self.number, self.n_kept, draws::encode(state, &means, self.chain.sweep))?;
            account.counters.seconds_saving += start.elapsed().as_secs_f64();
        }
        Ok(())
    }

    fn save(&mut self, sink: &mut Option<Box<dyn Sink>>) -> Result<()> {
        let (model, coarse) = (&self.prepared.model, self.coarse.as_ref());
        // Where nothing is shared, and nothing left out, the state is whole as it is.
        let is_whole = model.comm.size() == 1 && coarse.is_none();
        let gathered = if is_whole { None } else { gathered(model, coarse, &self.chain.state) };
        let (Some(account), Some(sink)) = (&mut self.account, sink) else { return Ok(()) };
        account.save(self.number, self.chain.sweep, gathered.as_ref().unwrap_or(&self.chain.state), sink.as_mut())
    }
}

impl Watcher<'_> {
    /// Why to end before all sweeps are done, if there is a reason.
    pub fn early(&self) -> Option<Ending> {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match (self.observer.wants_stop(), is_late) {
            (true, _) => Some(Ending::Stopped),
            (_, true) => Some(Ending::OutOfTime),
            _ => None,
        }
    }

    fn next(&self, is_unfinished: bool, saved: Instant) -> Next {
        // All sweeps are done: it is too late to be late.
        match self.early().filter(|early| is_unfinished || *early == Ending::Stopped) {
            Some(early) => Next::End(early),
            None if saved.elapsed() >= self.save_every => Next::Save,
            None => Next::GoOn,
        }
    }
}
