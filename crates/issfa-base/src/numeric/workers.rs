//! Shares independent pieces of work between the threads of the current rayon pool.

use std::sync::Mutex;

/// Runs `work` on every item, each thread with a scratch of its own, and returns the scratches.
///
/// Which thread takes which item is unspecified, so what `work` adds up in its scratch must not depend on order
/// (integers), or must go to a place that belongs to the item. One item, or one thread, runs in place.
pub fn share<Item: Send, Scratch: Send>(
    items: impl ExactSizeIterator<Item = Item> + Send,
    new_scratch: impl Fn() -> Scratch + Sync,
    work: impl Fn(&mut Scratch, Item) + Sync,
) -> Vec<Scratch> {
    let n_workers = rayon::current_num_threads().min(items.len());
    let queue = Mutex::new(items);
    let done = Mutex::new(Vec::with_capacity(n_workers.max(1)));
    on_workers(n_workers, &|| {
        let mut scratch = new_scratch();
        loop {
            let item = queue.lock().expect("a worker panicked").next();
            let Some(item) = item else { break };
            work(&mut scratch, item);
        }
        done.lock().expect("a worker panicked").push(scratch);
    });
    done.into_inner().expect("a worker panicked")
}

/// Runs a job on so many threads at once. Not generic: every way to share would be compiled with a pool's machinery of its own.
fn on_workers(n_workers: usize, job: &(dyn Fn() + Sync)) {
    if n_workers <= 1 {
        return job();
    }
    rayon::scope(|scope| (0..n_workers).for_each(|_| scope.spawn(|_| job())));
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn every_item_is_visited_once_for_any_number_of_threads() {
        for n_threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            let mut places = vec![0; 100];
            let scratches = pool.install(|| {
                share(
                    places.iter_mut(),
                    || 0,
                    |count, place| {
                        *place += 1;
                        *count += 1;
                    },
                )
            });
            assert_eq!(scratches.iter().sum::<i32>(), 100);
            assert!(places.iter().all(|&p| p == 1));
        }
    }
}
