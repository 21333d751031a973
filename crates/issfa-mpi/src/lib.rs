//! Ranks over MPI: the operations of [`issfa::comm::Comm`], and nothing statistical.
//!
//! The crate is empty without its feature `rsmpi`, so that the workspace builds where there is no MPI.
#![cfg(feature = "rsmpi")]

use issfa::comm::{Comm, Traffic, TrafficCounter};
use mpi::collective::SystemOperation;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives, Root};
use mpi::{Count, Threading};
use std::sync::Arc;

/// MPI counts with 32 bits: longer messages go in pieces that add up to less than this over all ranks.
const MOST_BYTES: usize = 1 << 30;

/// All processes that were started together. MPI ends when this is dropped.
pub struct World {
    universe: Universe,
    /// Whether the ranks may have threads of their own.
    grants_threads: bool,
}

impl World {
    /// Starts MPI; `None` where it runs already.
    pub fn start() -> Option<World> {
        // Threads work within a rank, but only the main thread talks to other ranks.
        let (universe, granted) = mpi::initialize_with_threading(Threading::Funneled)?;
        Some(World { universe, grants_threads: granted != Threading::Single })
    }

    /// Whether MPI has granted what was asked for: ranks with threads, of which the main one alone talks to other ranks.
    pub fn grants_threads(&self) -> bool {
        self.grants_threads
    }

    /// The ranks of this job.
    pub fn ranks(&self) -> Arc<dyn Comm> {
        Arc::new(Ranks::new(self.universe.world()))
    }

    /// Ends every rank of the job.
    pub fn abort(&self, code: u8) -> ! {
        self.universe.world().abort(i32::from(code))
    }
}

/// Ends every rank of the job, from wherever it is called: for a rank that cannot go on.
pub fn abort_all(code: u8) -> ! {
    SimpleCommunicator::world().abort(i32::from(code))
}

/// Ranks that can talk to each other.
struct Ranks {
    communicator: SimpleCommunicator,
    rank: usize,
    size: usize,
    counter: TrafficCounter,
}

// SAFETY: a communicator is a handle that the MPI library owns. All calls come from the main thread (see `Comm`: every rank
// calls the same operations in the same order), as MPI_THREAD_FUNNELED asks for; other threads only hold the handle.
unsafe impl Send for Ranks {}
unsafe impl Sync for Ranks {}

impl Ranks {
    fn new(communicator: SimpleCommunicator) -> Ranks {
        let (rank, size) = (communicator.rank() as usize, communicator.size() as usize);
        Ranks { communicator, rank, size, counter: TrafficCounter::default() }
    }

    fn lengths(&self, own: usize) -> Vec<usize> {
        let mut lengths = vec![0_u64; self.size];
        self.communicator.all_gather_into(&(own as u64), &mut lengths[..]);
        lengths.into_iter().map(|length| length as usize).collect()
    }

    /// The ranges of the next piece of each message, until all are through.
    fn pieces(&self, lengths: &[usize]) -> Vec<Vec<std::ops::Range<usize>>> {
        let at_once = MOST_BYTES / self.size;
        let n_rounds = lengths.iter().max().map_or(0, |longest| longest.div_ceil(at_once));
        let piece = |round: usize, length: usize| {
            let start = (round * at_once).min(length);
            start..(start + at_once).min(length)
        };
        (0..n_rounds).map(|round| lengths.iter().map(|&length| piece(round, length)).collect()).collect()
    }
}

/// An empty slice of Rust's points to address 1, which MPI libraries take for MPI_IN_PLACE. This one points to something.
fn addressed(bytes: &[u8]) -> &[u8] {
    static SOMETHING: [u8; 1] = [0];
    if bytes.is_empty() { &SOMETHING[..0] } else { bytes }
}

/// Room for so many bytes, at an address of its own even if there are none (see [`addressed`]).
fn room(n_bytes: usize) -> Vec<u8> {
    let mut room = Vec::with_capacity(n_bytes + 1);
    room.resize(n_bytes, 0);
    room
}

/// Lengths and where they start, one after the other.
fn counts_and_places(lengths: impl Iterator<Item = usize>) -> (Vec<Count>, Vec<Count>) {
    let (mut counts, mut places, mut next) = (Vec::new(), Vec::new(), 0);
    for length in lengths {
        counts.push(length as Count);
        places.push(next as Count);
        next += length;
    }
    (counts, places)
}

/// Appends to each message the piece that came for it.
fn append(messages: &mut [Vec<u8>], pieces: &[u8], counts: &[Count]) {
    let mut left = pieces;
    for (message, &count) in messages.iter_mut().zip(counts) {
        let (now, later) = left.split_at(count as usize);
        message.extend_from_slice(now);
        left = later;
    }
}

impl Comm for Ranks {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn sum_integers(&self, values: &mut [i64]) {
        self.counter.add(8 * values.len());
        let mut sums = Vec::new();
        for values in values.chunks_mut(MOST_BYTES / 8) {
            sums.clear();
            sums.resize(values.len(), 0_i64);
            self.communicator.all_reduce_into(&*values, &mut sums[..], SystemOperation::sum());
            values.copy_from_slice(&sums);
        }
    }

    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.all_gather_known(own, &self.lengths(own.len()))
    }

    fn all_gather_known(&self, own: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
        self.counter.add(own.len());
        let mut messages: Vec<Vec<u8>> = lengths.iter().map(|&length| Vec::with_capacity(length)).collect();
        for ranges in self.pieces(lengths) {
            let (counts, places) = counts_and_places(ranges.iter().map(|range| range.len()));
            let mut received = room(ranges.iter().map(|range| range.len()).sum());
            let mut into = PartitionMut::new(&mut received[..], &counts[..], &places[..]);
            self.communicator.all_gather_varcount_into(addressed(&own[ranges[self.rank].clone()]), &mut into);
            append(&mut messages, &received, &counts);
        }
        messages
    }

    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.counter.add(own.len());
        let lengths = self.lengths(own.len());
        let root = self.communicator.process_at_rank(0);
        let mut messages = if self.rank == 0 { vec![Vec::new(); self.size] } else { Vec::new() };
        for ranges in self.pieces(&lengths) {
            let piece = addressed(&own[ranges[self.rank].clone()]);
            if self.rank != 0 {
                root.gather_varcount_into(piece);
                continue;
            }
            let (counts, places) = counts_and_places(ranges.iter().map(|range| range.len()));
            let mut received = room(ranges.iter().map(|range| range.len()).sum());
            let mut into = PartitionMut::new(&mut received[..], &counts[..], &places[..]);
            root.gather_varcount_into_root(piece, &mut into);
            append(&mut messages, &received, &counts);
        }
        messages
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        let root = self.communicator.process_at_rank(0);
        self.counter.add(if self.rank == 0 { bytes.len() } else { 0 });
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        bytes.chunks_mut(MOST_BYTES).for_each(|piece| root.broadcast_into(piece));
    }

    fn exchange(&self, parcels: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let sent: Vec<usize> = parcels.iter().map(Vec::len).collect();
        self.counter.add(sent.iter().sum::<usize>() - sent[self.rank]);
        let lengths: Vec<u64> = sent.iter().map(|&length| length as u64).collect();
        let mut incoming = vec![0_u64; self.size];
        self.communicator.all_to_all_into(&lengths[..], &mut incoming[..]);
        let incoming: Vec<usize> = incoming.into_iter().map(|length| length as usize).collect();
        let mut messages = vec![Vec::new(); self.size];
        // All ranks go through as many rounds.
        let most =
            self.lengths(sent.iter().chain(&incoming).copied().max().unwrap_or(0)).into_iter().max().unwrap_or(0);
        let n_rounds = self.pieces(&[most]).len();
        let (out, back) =
            (self.pieces(&[&sent[..], &[most]].concat()), self.pieces(&[&incoming[..], &[most]].concat()));
        for round in 0..n_rounds {
            let out = &out[round][..self.size];
            let pieces: Vec<u8> =
                parcels.iter().zip(out).flat_map(|(parcel, range)| &parcel[range.clone()]).copied().collect();
            let (counts, places) = counts_and_places(out.iter().map(|range| range.len()));
            let (counts_back, places_back) =
                counts_and_places(back[round][..self.size].iter().map(|range| range.len()));
            let mut received = room(counts_back.iter().map(|&count| count as usize).sum());
            let mut into = PartitionMut::new(&mut received[..], &counts_back[..], &places_back[..]);
            self.communicator
                .all_to_all_varcount_into(&Partition::new(addressed(&pieces), &counts[..], &places[..]), &mut into);
            append(&mut messages, &received, &counts_back);
        }
        messages
    }

    fn split(&self, colour: usize) -> Arc<dyn Comm> {
        let group = self.communicator.split_by_color(Color::with_value(colour as i32));
        Arc::new(Ranks::new(group.expect("a rank with a colour has a group")))
    }

    fn traffic(&self) -> Traffic {
        self.counter.so_far()
    }
}
