//! How the processes that share out a chain talk to each other: a trait, the case of one process, and, for tests, ranks
//! that are threads.

pub mod local;

use crate::numeric::bytes::Element;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A group of processes that run the same chain, each holding a part of the data. All of them call the same operations in
/// the same order.
///
/// Integer addition is associative, so a sum has the same bits for any number of ranks. Everything else travels as bytes
/// and is put together in the order of ranks.
pub trait Comm: Send + Sync {
    /// This process's place, from 0.
    fn rank(&self) -> usize;
    /// How many processes there are.
    fn size(&self) -> usize;
    /// Replaces `values` on every rank by their sum over ranks, wrapping.
    fn sum_integers(&self, values: &mut [i64]);
    /// What each rank brings, on every rank.
    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>>;
    /// [`Comm::all_gather`] where every rank knows how many bytes each brings: what need not be told first.
    fn all_gather_known(&self, own: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
        assert_eq!((own.len(), self.size()), (lengths[self.rank()], lengths.len()), "what is brought is as was said");
        self.all_gather(own)
    }
    /// What each rank brings, on rank 0; nothing elsewhere.
    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>>;
    /// Replaces `bytes` on every rank by those of rank 0.
    fn broadcast(&self, bytes: &mut Vec<u8>);
    /// Hands parcel r to rank r; returns what each rank had for this one.
    fn exchange(&self, parcels: Vec<Vec<u8>>) -> Vec<Vec<u8>>;
    /// Sums of `values` over ranks, wrapping, of which rank r gets the r-th stretch alone.
    fn scatter_sums(&self, values: &[i64], stretches: &[Range<usize>]) -> Vec<i64> {
        let parcel = |stretch: &Range<usize>| {
            let bits: Vec<u64> = values[stretch.clone()].iter().map(|x| *x as u64).collect();
            u64::write(&bits)
        };
        let mut sums = vec![0_i64; stretches[self.rank()].len()];
        for part in self.exchange(stretches.iter().map(parcel).collect()) {
            sums.iter_mut().zip(u64::read(&part)).for_each(|(sum, x)| *sum = sum.wrapping_add(x as i64));
        }
        sums
    }
    /// The ranks that give the same colour, in their order, as a group of their own.
    fn split(&self, colour: usize) -> Arc<dyn Comm>;
    /// What this rank has sent so far.
    fn traffic(&self) -> Traffic;
}

/// How often something was sent and how much: for a sum or a gathering what this rank brought to it, for a broadcast what
/// rank 0 had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent.
    pub n_calls: u64,
    /// Their bytes.
    pub n_bytes: u64,
}

/// Counts the traffic of a rank.
#[derive(Debug, Default)]
pub struct TrafficCounter {
    n_calls: AtomicU64,
    n_bytes: AtomicU64,
}

impl TrafficCounter {
    /// Counts one message.
    pub fn add(&self, n_bytes: usize) {
        self.n_calls.fetch_add(1, Ordering::Relaxed);
        self.n_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }

    /// What was counted up to now.
    pub fn so_far(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { n_calls: read(&self.n_calls), n_bytes: read(&self.n_bytes) }
    }
}

/// One process that holds all modes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Comm for Solo {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn sum_integers(&self, _values: &mut [i64]) {}
    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        vec![own.to_vec()]
    }
    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        vec![own.to_vec()]
    }
    fn broadcast(&self, _bytes: &mut Vec<u8>) {}
    fn exchange(&self, parcels: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        parcels
    }
    fn split(&self, _colour: usize) -> Arc<dyn Comm> {
        Arc::new(Solo)
    }
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// Numbers of every rank, one rank after the other.
pub fn all_gather_values<E: Element>(comm: &dyn Comm, own: &[E]) -> Vec<E> {
    if comm.size() == 1 {
        return own.to_vec();
    }
    comm.all_gather(&E::write(own)).iter().flat_map(|bytes| E::read(bytes)).collect()
}

/// [`all_gather_values`] where every rank knows how many numbers each brings.
pub fn all_gather_known_values<E: Element>(comm: &dyn Comm, own: &[E], lengths: impl Iterator<Item = usize>) -> Vec<E> {
    if comm.size() == 1 {
        return own.to_vec();
    }
    let lengths: Vec<usize> = lengths.map(|length| length * size_of::<E>()).collect();
    comm.all_gather_known(&E::write(own), &lengths).iter().flat_map(|bytes| E::read(bytes)).collect()
}

/// Rank 0 computes, all others are told: for what is small, iterative, and might differ between kinds of processors.
pub fn told_by_rank_0(comm: &dyn Comm, compute: impl FnOnce() -> Vec<f64>) -> Vec<f64> {
    if comm.size() == 1 {
        return compute();
    }
    let mut bytes = if comm.rank() == 0 { f64::write(&compute()) } else { Vec::new() };
    comm.broadcast(&mut bytes);
    f64::read(&bytes)
}

/// The part of `n` things that falls to a rank: consecutive ones, as even as can be.
pub fn part_of(n: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    rank * n / size..(rank + 1) * n / size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_leave_nothing_out() {
        for (n, size) in [(10, 3), (2, 4), (0, 2), (1000, 7)] {
            let parts: Vec<_> = (0..size).map(|rank| part_of(n, rank, size)).collect();
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((parts[0].start, parts[size - 1].end), (0, n));
            assert!(parts.iter().all(|part| part.len() <= n.div_ceil(size)));
        }
    }
}
