//! Ctrl-C, SIGTERM and, as schedulers send it, SIGUSR1: the first asks for a stop after the sweep, the second one of the same
//! kind ends at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[cfg(unix)]
const STOPPING: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGUSR1];
#[cfg(not(unix))]
const STOPPING: [i32; 2] = [SIGINT, SIGTERM];

/// Which signal has come, if any.
#[derive(Clone, Default)]
pub struct Signals {
    came: Arc<AtomicUsize>,
}

impl Signals {
    /// Starts listening.
    pub fn listen() -> Signals {
        let signals = Signals::default();
        for signal in STOPPING {
            let once = Arc::new(AtomicBool::new(false));
            // Registration fails only for signals that may not be caught; these may.
            let _ = flag::register_conditional_shutdown(signal, 128 + signal, once.clone());
            let _ = flag::register(signal, once);
            let _ = flag::register_usize(signal, signals.came.clone(), signal as usize);
        }
        signals
    }

    /// Whether a stop was asked for.
    pub fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed) != 0
    }

    /// Whether a stop was asked for, to be asked from anywhere.
    pub fn watch(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let signals = self.clone();
        Arc::new(move || signals.came())
    }

    /// The exit code that says so: 128 plus the signal's number.
    pub fn exit_code(&self) -> u8 {
        128 + self.came.load(Ordering::Relaxed) as u8
    }
}
