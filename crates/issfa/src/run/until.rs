//! How long a run goes on: for so many sweeps, or until its chains have settled, looked at in windows that double.

use super::settings::Checked;
use serde::{Deserialize, Serialize};

/// The fewest sweeps before the first look at whether chains have settled.
const LEAST_LOOK: u64 = 200;

/// Sweeps that a run until settled may take at most, unless it is told otherwise: seven times doubled.
pub const MOST_UNTIL_SETTLED: u64 = 128_000;

/// What ends a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// All its sweeps are done.
    #[default]
    Sweeps,
    /// Its chains have settled; or all sweeps are done.
    Settled,
}

impl Until {
    /// Whether it is the usual one, which files need not name.
    pub fn is_usual(&self) -> bool {
        *self == Until::Sweeps
    }
}

/// The sweeps that a run is about: those after `burn_in` up to `sweeps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The last one.
    pub sweeps: u64,
    /// Sweeps left out at the start.
    pub burn_in: u64,
}

impl Window {
    /// Of new settings: the sweeps after burn-in, and for a run until settled those up to the first look.
    pub(super) fn first(until: Until, sweeps: u64, burn_in: u64) -> Window {
        match until {
            Until::Sweeps => Window { sweeps, burn_in },
            Until::Settled => Window { sweeps: look(burn_in, sweeps), burn_in },
        }
    }
}

/// When to look at a window that begins after `burn_in`, at most after `cap` sweeps.
fn look(burn_in: u64, cap: u64) -> u64 {
    burn_in.saturating_mul(2).max(LEAST_LOOK).min(cap)
}

impl Checked {
    /// As a stored run has them: it may stand in a later window.
    pub fn at(mut self, window: Option<Window>) -> Checked {
        self.window = match (self.settings.until, window) {
            (_, None) => self.window,
            (Until::Sweeps, Some(Window { burn_in, .. })) => Window { burn_in, ..self.window },
            (Until::Settled, Some(window)) => window,
        };
        self
    }

    /// For the record: the window, where the settings alone do not say it.
    pub fn later_window(&self) -> Option<Window> {
        let settings = &self.settings;
        let first = Window::first(settings.until, settings.sweeps, settings.burn_in.unwrap_or(0));
        (self.window != first).then_some(self.window)
    }

    /// The window after this one, if there are sweeps left: what was looked at is left out, and as much comes on top. Where
    /// fewer sweeps are left than this window has, it is made longer instead.
    pub fn next_window(&self) -> Option<Window> {
        let (done, cap, burn_in) = (self.window.sweeps, self.settings.sweeps, self.window.burn_in);
        if self.settings.until == Until::Settled && done < cap && cap - done < done - burn_in {
            return Some(Window { sweeps: cap, burn_in });
        }
        (self.settings.until == Until::Settled && done < cap).then(|| Window { sweeps: look(done, cap), burn_in: done })
    }

    /// With other sweeps at most, or another end. A run that is not to settle any more ends where it would have been looked
    /// at, unless sweeps are given.
    pub fn extended(mut self, sweeps: Option<u64>, until: Option<Until>) -> Checked {
        let until = until.unwrap_or(self.settings.until);
        let usual = match (self.settings.until, until) {
            (Until::Settled, Until::Sweeps) => self.window.sweeps,
            (Until::Sweeps, Until::Settled) => self.settings.sweeps.max(MOST_UNTIL_SETTLED),
            _ => self.settings.sweeps,
        };
        (self.settings.sweeps, self.settings.until) = (sweeps.unwrap_or(usual), until);
        let cap = self.settings.sweeps;
        self.window.sweeps = match until {
            Until::Sweeps => cap,
            // One that was cut short by the sweeps there were is as long as it would have been.
            Until::Settled => self.window.sweeps.max(look(self.window.burn_in, cap)),
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::*;

    fn until_settled(sweeps: u64, burn_in: u64) -> Checked {
        let settings = Settings { sweeps, burn_in: Some(burn_in), until: Until::Settled, ..Settings::default() };
        settings.check().unwrap()
    }

    fn windows(mut checked: Checked) -> Vec<(u64, u64)> {
        let mut windows = vec![(checked.window.burn_in, checked.window.sweeps)];
        while let Some(next) = checked.next_window() {
            windows.push((next.burn_in, next.sweeps));
            checked = checked.at(Some(next));
        }
        windows
    }

    #[test]
    fn windows_double_and_leave_out_what_came_before() {
        assert_eq!(windows(until_settled(3000, 500)), [(500, 1000), (1000, 2000), (2000, 3000)]);
        assert_eq!(windows(until_settled(1000, 30)), [(30, 200), (200, 400), (400, 800), (400, 1000)]);
        assert_eq!(windows(until_settled(1600, 30)), [(30, 200), (200, 400), (400, 800), (800, 1600)]);
        assert_eq!(
            windows(until_settled(203, 100)),
            [(100, 200), (100, 203)],
            "no window is too short to keep anything"
        );
        assert_eq!(windows(until_settled(100, 60)), [(60, 100)]);
        assert_eq!(windows(Settings::default().check().unwrap()), [(500, 1000)]);
    }

    #[test]
    fn a_run_that_is_made_longer_has_the_windows_of_a_longer_run() {
        let cut = until_settled(3000, 500).at(Some(Window { burn_in: 2000, sweeps: 3000 }));
        assert_eq!(windows(cut.clone().extended(Some(9000), None)), [(2000, 4000), (4000, 8000), (4000, 9000)]);
        assert_eq!(windows(cut.clone().extended(None, Some(Until::Sweeps))), [(2000, 3000)]);
        assert_eq!(windows(cut.extended(Some(5000), Some(Until::Sweeps))), [(2000, 5000)]);
        let plain = Settings { sweeps: 700, ..Settings::default() }.check().unwrap();
        assert_eq!(windows(plain.extended(Some(2000), Some(Until::Settled))), [(500, 1000), (1000, 2000)]);
    }

    #[test]
    fn the_record_knows_later_windows_only() {
        let first = until_settled(3000, 500);
        assert_eq!(first.later_window(), None);
        let next = first.next_window();
        let later = first.clone().at(next);
        assert_eq!(later.later_window(), next);
        // Not to settle any more, it keeps what it left out.
        let ended = later.extended(None, Some(Until::Sweeps));
        let stored = ended.settings.clone().check().unwrap().at(ended.later_window());
        assert_eq!(stored.window, Window { burn_in: 1000, sweeps: 2000 });
    }
}
