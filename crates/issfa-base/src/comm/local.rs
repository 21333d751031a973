//! Ranks that are threads of one process: everything that ranks do can be tested without any other machine.

use super::{Comm, Traffic, TrafficCounter};
use crate::numeric::bytes::Element;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Longer than any rank of a test works between two meetings.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a rank brings to a meeting: a parcel for every rank, or one for all; and a new meeting place, of a split.
#[derive(Clone, Default)]
struct Brought {
    parcels: Vec<Vec<u8>>,
    place: Option<Arc<Meeting>>,
}

/// Where ranks wait until all have brought something, and leave only when all have seen it.
struct Meeting {
    size: usize,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    brought: Vec<Option<Brought>>,
    shown: Option<Arc<Vec<Brought>>>,
    n_seen: usize,
}

impl Meeting {
    fn new(size: usize) -> Arc<Meeting> {
        let table = Table { brought: vec![None; size], ..Table::default() };
        Arc::new(Meeting { size, table: Mutex::new(table), changed: Condvar::new() })
    }

    fn meet(&self, rank: usize, own: Brought) -> Arc<Vec<Brought>> {
        let wait = |table, until: &dyn Fn(&Table) -> bool| {
            let (table, waited) =
                self.changed.wait_timeout_while(table, PATIENCE, |table| !until(table)).expect("another rank panicked");
            assert!(!waited.timed_out(), "rank {rank} waited for the others in vain");
            table
        };
        let mut table = wait(self.table.lock().expect("another rank panicked"), &|table| table.shown.is_none());
        table.brought[rank] = Some(own);
        if table.brought.iter().all(Option::is_some) {
            let all = table.brought.iter_mut().map(|brought| brought.take().expect("all are there")).collect();
            table.shown = Some(Arc::new(all));
            self.changed.notify_all();
        }
        table = wait(table, &|table| table.shown.is_some());
        let shown = table.shown.clone().expect("it was shown");
        table.n_seen += 1;
        if table.n_seen == self.size {
            (table.shown, table.n_seen) = (None, 0);
            self.changed.notify_all();
        }
        shown
    }
}

/// One of several ranks in a process.
pub struct Local {
    rank: usize,
    meeting: Arc<Meeting>,
    counter: TrafficCounter,
}

impl Local {
    /// A group of `size` ranks; each belongs on a thread of its own.
    pub fn group(size: usize) -> Vec<Local> {
        let meeting = Meeting::new(size);
        (0..size).map(|rank| Local::at(rank, meeting.clone())).collect()
    }

    fn at(rank: usize, meeting: Arc<Meeting>) -> Local {
        Local { rank, meeting, counter: TrafficCounter::default() }
    }

    /// Runs `work` on every rank of a group, each with one thread, and returns what they found.
    pub fn run<T: Send>(size: usize, work: impl Fn(Arc<dyn Comm>) -> T + Sync) -> Vec<T> {
        let work = &work;
        std::thread::scope(|scope| {
            let start = |local: Local| {
                scope.spawn(move || {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
                    pool.install(|| work(Arc::new(local)))
                })
            };
            let ranks: Vec<_> = Local::group(size).into_iter().map(start).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
        })
    }

    fn meet(&self, parcels: Vec<Vec<u8>>) -> Arc<Vec<Brought>> {
        self.meeting.meet(self.rank, Brought { parcels, place: None })
    }
}

impl Comm for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.meeting.size
    }

    fn sum_integers(&self, values: &mut [i64]) {
        self.counter.add(8 * values.len());
        let bits: Vec<u64> = values.iter().map(|x| *x as u64).collect();
        values.fill(0);
        for brought in self.meet(vec![u64::write(&bits)]).iter() {
            let other = u64::read(&brought.parcels[0]);
            values.iter_mut().zip(other).for_each(|(sum, x)| *sum = sum.wrapping_add(x as i64));
        }
    }

    fn all_gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.counter.add(own.len());
        self.meet(vec![own.to_vec()]).iter().map(|brought| brought.parcels[0].clone()).collect()
    }

    fn gather(&self, own: &[u8]) -> Vec<Vec<u8>> {
        self.counter.add(own.len());
        let all = self.meet(vec![own.to_vec()]);
        if self.rank == 0 { all.iter().map(|brought| brought.parcels[0].clone()).collect() } else { Vec::new() }
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        let own = if self.rank == 0 { bytes.clone() } else { Vec::new() };
        self.counter.add(own.len());
        *bytes = self.meet(vec![own])[0].parcels[0].clone();
    }

    fn exchange(&self, parcels: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let kept = parcels[self.rank].len();
        self.counter.add(parcels.iter().map(Vec::len).sum::<usize>() - kept);
        self.meet(parcels).iter().map(|brought| brought.parcels[self.rank].clone()).collect()
    }

    fn split(&self, colour: usize) -> Arc<dyn Comm> {
        let colours = super::all_gather_values(self, &[colour as u64]);
        let members: Vec<usize> = (0..colours.len()).filter(|&rank| colours[rank] == colour as u64).collect();
        let place = (members[0] == self.rank).then(|| Meeting::new(members.len()));
        let all = self.meeting.meet(self.rank, Brought { parcels: Vec::new(), place });
        let place = all[members[0]].place.clone().expect("the first member brought the new place");
        let rank = members.iter().position(|&member| member == self.rank).expect("this rank is a member");
        Arc::new(Local::at(rank, place))
    }

    fn traffic(&self) -> Traffic {
        self.counter.so_far()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_find_the_same_sums_and_each_other_s_parcels() {
        for size in 1..=4 {
            let found = Local::run(size, |comm| {
                let rank = comm.rank();
                let mut sums = [1, rank as i64, i64::MAX];
                comm.sum_integers(&mut sums);
                let mut told = vec![7 + rank as u8];
                comm.broadcast(&mut told);
                let parcels = (0..size).map(|to| vec![rank as u8; to + 1]).collect();
                let received = comm.exchange(parcels);
                let gathered = comm.gather(&[rank as u8; 2]);
                let stretches: Vec<_> = (0..size).map(|rank| rank..rank + 1).collect();
                let scattered = comm.scatter_sums(&(0..size as i64).map(|x| x - 1).collect::<Vec<_>>(), &stretches);
                assert_eq!(scattered, [size as i64 * (rank as i64 - 1)]);
                let group = comm.split(rank % 2);
                (sums, told, received, gathered, (group.rank(), group.size()), comm.traffic().n_bytes)
            });
            for (rank, (sums, told, received, gathered, group, n_bytes)) in found.into_iter().enumerate() {
                let n = size as i64;
                assert_eq!(sums, [n, n * (n - 1) / 2, i64::MAX.wrapping_mul(n)]);
                assert_eq!(told, [7]);
                assert!(received.iter().enumerate().all(|(from, parcel)| *parcel == vec![from as u8; rank + 1]));
                assert_eq!(gathered.len(), if rank == 0 { size } else { 0 });
                assert_eq!(group, (rank / 2, (size + 1 - rank % 2) / 2));
                let to_others: usize = (1..=size).sum::<usize>() - (rank + 1);
                let split = if size > 1 { 8 } else { 0 };
                assert_eq!(n_bytes as usize, 24 + usize::from(rank == 0) + to_others + 2 + 8 * (size - 1) + split);
            }
        }
    }
}
