//! Prints as JSON what memory a fit of an array takes, in bytes: `memory_of_fit x.npy 100x100 30`.
//!
//! The array is read into memory and stays there, as a caller's would. With `--sweeps` at the end, what is in use after each
//! sweep is printed too, and the most that was since the one before.

use issfa::data::read::npy::read_npy_f32;
use issfa::fit::{Observer, Session};
use issfa::run::trace::TraceRow;
use issfa::{Centering, Rows, Settings};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The system's allocator, which counts.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn taken(n: usize) {
    MOST.fetch_max(IN_USE.fetch_add(n, Ordering::Relaxed) + n, Ordering::Relaxed);
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size);
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes in memory so far, as the system says.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    1024 * line.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0)
}

struct Shown {
    are_sweeps: bool,
    most: usize,
}

impl Shown {
    fn tell(&mut self, what: &str) {
        let most = MOST.swap(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
        self.most = self.most.max(most);
        if self.are_sweeps {
            let in_use = IN_USE.load(Ordering::Relaxed);
            eprintln!("{what}: {:.1} MB, most {:.1} MB, {:.1} MB with the system", mb(in_use), mb(most), mb(peak()));
        }
    }
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

impl Observer for Shown {
    fn sweep(&mut self, row: &TraceRow, _total: u64, _left: Duration) {
        self.tell(&format!("sweep {}, {} features", row.sweep, row.n_features));
    }

    fn wants_stop(&self) -> bool {
        false
    }

    fn note(&mut self, _text: &str) {}
}

fn main() -> issfa::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, grid, sweeps, rest @ ..] = &words[..] else { panic!("memory_of_fit x.npy 100x100 30 [--sweeps]") };
    let grid: Vec<usize> = grid.split('x').map(|n| n.parse().expect("sites along an axis")).collect();
    let base = peak();
    let (_, values) = read_npy_f32(Path::new(path))?;
    let n_bytes = 4 * values.len();
    let rows = Rows::from_values(values, &grid)?;
    let mut shown = Shown { are_sweeps: !rest.is_empty(), most: 0 };
    shown.tell("rows");
    let settings = Settings {
        sweeps: sweeps.parse().expect("a number of sweeps"),
        seed: 1,
        noise: "white".into(),
        center: Some(Centering::None),
        ..Settings::default()
    };
    let mut session = Session::in_memory(rows.clone(), &settings)?;
    shown.tell("prepared");
    session.run(&mut shown)?;
    shown.tell("run");
    let fitted = session.fitted()?.expect("one process has everything");
    drop(session);
    shown.tell("fitted");
    let k = fitted.features().shape[0];
    println!(r#"{{"x": {n_bytes}, "base": {base}, "in_use": {}, "peak": {}, "K": {k}}}"#, shown.most, peak());
    drop(rows);
    Ok(())
}
