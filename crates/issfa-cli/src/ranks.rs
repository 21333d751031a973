//! The job that this process is part of: alone, or one of several ranks that an MPI launcher started.

use crate::options::Common;
use crate::{Failure, Outcome};
use issfa::comm::{Comm, Solo};
use issfa::{Error, Result};
use std::sync::Arc;

/// By what launchers say how many processes they started.
const SIZE_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
/// By what they number them.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
/// By what they say how many of them are on this machine.
const LOCAL_SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];
/// A rank other than 0 waits so long before it reports a failure: most failures are those of all ranks, and one report is
/// enough.
#[cfg(feature = "mpi")]
const LET_RANK_0_SPEAK: std::time::Duration = std::time::Duration::from_secs(2);

/// The ranks of this job.
pub struct Job {
    pub comm: Arc<dyn Comm>,
    #[cfg(feature = "mpi")]
    world: Option<issfa_mpi::World>,
}

impl Job {
    /// One process.
    pub fn alone() -> Job {
        Job {
            comm: Arc::new(Solo),
            #[cfg(feature = "mpi")]
            world: None,
        }
    }

    /// Joins the other ranks, where there are any.
    #[cfg(not(feature = "mpi"))]
    fn join() -> Result<Job> {
        match launched_size() {
            Some(size) if size > 1 => Err(Error::setting(
                "mpirun -n",
                size,
                "this issfa was built without MPI, so that all ranks would do the same work; build it with \
                 cargo build --release --features mpi (see docs/cluster.md), or start it without mpirun",
            )),
            _ => Ok(Job::alone()),
        }
    }

    /// Joins the other ranks, where there are any.
    #[cfg(feature = "mpi")]
    fn join() -> Result<Job> {
        // A scheduler numbers processes that no launcher has started, too: one alone needs no MPI.
        let by_launcher =
            SIZE_VARIABLES[..2].iter().chain(&RANK_VARIABLES[..3]).any(|name| std::env::var(name).is_ok());
        let launched = by_launcher || launched_size().is_some_and(|size| size > 1);
        let Some(world) = launched.then(issfa_mpi::World::start).flatten() else {
            return Ok(Job::alone());
        };
        if !world.grants_threads() {
            let problem = "this MPI grants one thread a rank only (MPI_THREAD_SINGLE), but ranks of issfa have several; use an \
                           MPI that was built with threads";
            return Err(Error::setting("mpirun", "MPI_THREAD_FUNNELED", problem));
        }
        let comm = world.ranks();
        if let Some(size) = launched_size().filter(|&size| size > comm.size()) {
            let problem = format!(
                "the ranks see {} of them: issfa was built for another MPI than this launcher's; build it again with \
                 this one's mpicc in PATH, or use the launcher it was built for",
                comm.size()
            );
            return Err(Error::setting("mpirun -n", size, problem));
        }
        if comm.size() > 1 {
            // A rank that unwound would leave the others waiting for ever. Not every launcher ends a job when one of its
            // processes does, so MPI is told.
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                usual(info);
                issfa_mpi::abort_all(101);
            }));
        }
        Ok(Job { comm, world: Some(world) })
    }

    /// Whether this rank speaks and writes.
    pub fn is_first(&self) -> bool {
        self.comm.rank() == 0
    }

    /// All ranks leave together, with the largest exit code.
    fn leave(&self, code: u8) -> u8 {
        let codes = self.comm.all_gather(&[code]);
        codes.iter().flatten().copied().max().unwrap_or(code)
    }

    /// Says what went wrong and ends every rank.
    #[cfg(feature = "mpi")]
    fn fail(&self, error: &Error) -> Outcome {
        let Some(world) = &self.world else { return Ok(()) };
        if !self.is_first() {
            std::thread::sleep(LET_RANK_0_SPEAK);
        }
        let who = if self.is_first() { String::new() } else { format!(" on rank {}", self.comm.rank()) };
        err!("error{who}: {}", crate::words::error(error));
        world.abort(crate::exit_code(error))
    }

    #[cfg(not(feature = "mpi"))]
    fn fail(&self, _: &Error) -> Outcome {
        Ok(())
    }
}

/// How many processes a launcher has started: as it says, or at least so many as the number of this one tells.
fn launched_size() -> Option<usize> {
    declared(&SIZE_VARIABLES).or_else(|| declared(&RANK_VARIABLES).filter(|&rank| rank > 0).map(|rank| rank + 1))
}

/// A number that a launcher has put into the environment.
fn declared(names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Runs a command that works on several ranks.
pub fn together(common: &Common, command: impl FnOnce(&Job, &Common) -> Outcome) -> Outcome {
    let job = Job::join()?;
    let mut common = common.clone();
    common.quiet |= !job.is_first();
    let outcome = command(&job, &common);
    if job.comm.size() == 1 {
        return outcome;
    }
    match outcome {
        Ok(()) => {
            job.leave(0);
            Ok(())
        }
        Err(Failure::Exit(code)) => Err(Failure::Exit(job.leave(code))),
        Err(Failure::Library(error)) => job.fail(&error),
    }
}

/// Refuses to run a command several times over.
pub fn alone() -> Result<()> {
    match launched_size() {
        Some(size) if size > 1 => {
            let problem =
                "this command runs in one process; start it without mpirun (issfa fit and issfa resume use ranks)";
            Err(Error::setting("mpirun -n", size, problem))
        }
        _ => Ok(()),
    }
}

/// How many threads a rank should use: all cores, or its share where the launcher leaves ranks free to run on any core.
pub fn usual_threads() -> Option<usize> {
    let local = declared(&LOCAL_SIZE_VARIABLES).filter(|&local| local > 1)?;
    let available = std::thread::available_parallelism().ok()?.get();
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let n_cores = text.lines().filter(|line| line.starts_with("processor")).count();
    (available >= n_cores).then_some((available / local).max(1))
}
