//! Chains that run at the same time on the threads of one process. Each has the bits that it has alone.

use super::chain_run::{ChainRun, Watcher};
use super::denoised::DenoisedRows;
use super::prepared::About;
use super::sink::Sink;
use super::{Ending, Observer};
use crate::compiled::Sampled;
use crate::data::{Array, memory};
use crate::error::{Error, Result};
use crate::numeric::bytes::{Bundle, Stored};

use crate::evidence::EvidenceCurve;
use crate::run::draws::DrawsPlace;
use crate::run::trace::TraceRow;
use crate::summary::Found;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many chains run at the same time: one a thread where memory allows it. A chain has less to gain from a second thread
/// than from having one for itself. Ranks run theirs in groups.
pub(super) fn n_at_once(about: &About, n_chains: usize, bytes: usize) -> usize {
    if about.ranks.all.size() > 1 {
        return 1;
    }
    let wanted = n_chains.min(rayon::current_num_threads()).max(1);
    // All have the data in common, unless they are on disk; what a coarse start looks at is each one's own.
    let data = (about.record.n_rows * about.mask.n_columns() * bytes) as u64;
    let in_memory = if about.checked.settings.spill.is_some() { 0 } else { data };
    let of_one = about.memory.saturating_sub(in_memory).max(1);
    let bound = about.checked.memory.map(|bound| bound.saturating_sub(in_memory));
    let room = memory::available().into_iter().chain(bound).min().map_or(wanted, |free| (free / of_one) as usize);
    wanted.min(room.max(1))
}

/// Runs chains to their end, or until they are told to stop, and says how each of them ended.
pub(super) fn run<R: Sampled>(
    chains: &mut [ChainRun<R>],
    watcher: &mut Watcher,
    sink: &mut Option<Box<dyn Sink>>,
) -> Result<Vec<Ending>> {
    let n_chains = chains.len();
    if n_chains <= 1 {
        return chains.iter_mut().map(|chain| chain.run(watcher, sink)).collect();
    }
    let shared = sink.take().map(|sink| Arc::new(Mutex::new(sink)));
    let has_failed = AtomicBool::new(false);
    let (deadline, save_every, sweeps_to_come) = (watcher.deadline, watcher.save_every, watcher.sweeps_to_come);
    let observer: &mut dyn Observer = watcher.observer;
    let observer = Mutex::new(observer);
    let n_threads = |at: usize| {
        let all = rayon::current_num_threads();
        (all / n_chains + usize::from(at < all % n_chains)).max(1)
    };
    let one = |at: usize, chain: &mut ChainRun<R>| -> Result<Ending> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads(at)).build();
        let pool = pool.map_err(|error| Error::setting("threads", n_threads(at), error.to_string()))?;
        let mut observer = SharedObserver { observer: &observer, has_failed: &has_failed };
        let mut watcher = Watcher { observer: &mut observer, deadline, save_every, sweeps_to_come };
        let mut sink = shared.clone().map(|sink| Box::new(SharedSink(sink)) as Box<dyn Sink>);
        let _guard = StopOthers(&has_failed);
        let ending = pool.install(|| chain.run(&mut watcher, &mut sink));
        has_failed.fetch_or(ending.is_err(), Ordering::Relaxed);
        ending
    };
    let one = &one;
    let endings: Vec<Result<Ending>> = std::thread::scope(|scope| {
        let spawned: Vec<_> =
            chains.iter_mut().enumerate().map(|(at, chain)| scope.spawn(move || one(at, chain))).collect();
        // A panic goes on where it can be seen.
        spawned
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    *sink = shared.map(|sink| {
        let mutex = Arc::into_inner(sink).expect("all chains have ended");
        mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
    });
    endings.into_iter().collect()
}

/// Ends the other chains where one panics.
struct StopOthers<'a>(&'a AtomicBool);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

/// One of several who tell the same observer. They stop when one of them has failed.
struct SharedObserver<'a, 'b> {
    observer: &'a Mutex<&'b mut dyn Observer>,
    has_failed: &'a AtomicBool,
}

impl Observer for SharedObserver<'_, '_> {
    fn sweep(&mut self, row: &TraceRow, total: u64, left: Duration) {
        locked(self.observer).sweep(row, total, left);
    }

    fn wants_stop(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || locked(self.observer).wants_stop()
    }

    fn note(&mut self, text: &str) {
        locked(self.observer).note(text);
    }
}

/// What others may have left in the middle of is theirs: a panic of one ends all.
fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of several chains that give to the same sink.
struct SharedSink(Arc<Mutex<Box<dyn Sink>>>);

impl SharedSink {
    fn sink(&self) -> MutexGuard<'_, Box<dyn Sink>> {
        locked(&self.0)
    }
}

impl Sink for SharedSink {
    fn begin(&mut self, about: &About) -> Result<()> {
        self.sink().begin(about)
    }

    fn take_place(&mut self) -> Result<()> {
        self.sink().take_place()
    }

    fn go_on(&mut self, about: &About) -> Result<()> {
        self.sink().go_on(about)
    }

    fn checkpoint(&self, chain: u32) -> Result<Option<Arc<Stored>>> {
        self.sink().checkpoint(chain)
    }

    fn last_sound(&mut self, chain: u32) -> Result<Option<Arc<Stored>>> {
        self.sink().last_sound(chain)
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.sink().take_notes()
    }

    fn begin_chain(&mut self, chain: u32, about: &About) -> Result<()> {
        self.sink().begin_chain(chain, about)
    }

    fn go_on_with_chain(
        &mut self,
        chain: u32,
        about: &About,
        from: &Stored,
        done: (u64, u64),
    ) -> Result<Vec<TraceRow>> {
        self.sink().go_on_with_chain(chain, about, from, done)
    }

    fn sweep(&mut self, row: &TraceRow) -> Result<()> {
        self.sink().sweep(row)
    }

    fn draw(&mut self, chain: u32, number: u64, draw: Bundle) -> Result<()> {
        self.sink().draw(chain, number, draw)
    }

    fn save(&mut self, chain: u32, n_kept: u64, checkpoint: Bundle) -> Result<()> {
        self.sink().save(chain, n_kept, checkpoint)
    }

    fn finish_chain(&mut self, chain: u32) -> Result<()> {
        self.sink().finish_chain(chain)
    }

    fn results(&mut self, chain: u32, about: &About, found: &Found) -> Result<()> {
        self.sink().results(chain, about, found)
    }

    fn joint_results(&mut self, about: &About, found: &Found, n_kept: &[(u32, u64)]) -> Result<()> {
        self.sink().joint_results(about, found, n_kept)
    }

    fn reconstruction(&mut self, chain: u32, about: &About, rows: &DenoisedRows) -> Result<()> {
        self.sink().reconstruction(chain, about, rows)
    }

    fn known_evidence(&self) -> Result<Option<EvidenceCurve>> {
        self.sink().known_evidence()
    }

    fn evidence(&mut self, curve: &EvidenceCurve) -> Result<()> {
        self.sink().evidence(curve)
    }

    fn draws(&self, chain: u32) -> Result<DrawsPlace> {
        self.sink().draws(chain)
    }

    fn denoised(&self, chain: u32) -> Option<Array> {
        self.sink().denoised(chain)
    }

    fn joint_denoised(&self) -> Option<Array> {
        self.sink().joint_denoised()
    }
}
