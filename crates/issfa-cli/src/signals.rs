//! Ctrl-C, SIGTERM and, as schedulers send it, SIGUSR1: the first asks for a stop after the sweep, the second one of the same
//! kind ends at once. SIGHUP, which comes when a terminal is closed, asks for a stop, too, however often it comes.

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
            signals.note(signal);
        }
        #[cfg(unix)]
        if !ignores_hangup() {
            // The shell and the system both send it when a terminal goes, so that a second one means nothing.
            signals.note(signal_hook::consts::SIGHUP);
        }
        signals
    }

    fn note(&self, signal: i32) {
        let _ = flag::register_usize(signal, self.came.clone(), signal as usize);
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

/// Whether whoever started this process wants it to outlive its terminal, as `nohup` does.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    // SAFETY: without a new action, sigaction writes the present one into a struct that is ours.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}
