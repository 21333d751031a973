//! Follows a run folder without writing to it: new rows of its traces, new checkpoints and results, and whether a fit is at
//! work there.

use crate::contents::panels;
use issfa::error::{Verb, action};
use issfa::run::checkpoint;
use issfa::run::checksums::CHECKSUMS;
use issfa::run::folder::{CONFIG, LIVE, Run, TRACE};
use issfa::run::held::Held;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What is known of a run, for all who look.
#[derive(Default)]
pub struct Seen {
    /// Raised when rows that were shown are not there any more.
    pub epoch: u64,
    /// Chain, then the sweep and the values of the panels; nothing for what is not a number.
    pub rows: Vec<(u32, Vec<Option<f64>>)>,
    /// Raised with every new checkpoint or result.
    pub version: u64,
    /// Whether a fit is at work, and how far it is.
    pub status: Value,
}

/// Looks at a folder again and again.
pub struct Follower {
    folder: PathBuf,
    traces: BTreeMap<u32, Followed>,
    stamps: Vec<Option<(SystemTime, u64)>>,
    resume: String,
}

/// How far the trace of a chain was read.
#[derive(Default)]
struct Followed {
    /// Bytes.
    read: u64,
    /// Lines, with the header.
    n_lines: u64,
    /// Which columns are shown; none where the header cannot be read.
    columns: Option<Vec<usize>>,
    /// The first line that cannot be read, and how many there are.
    damaged: Option<(u64, u64)>,
}

impl Followed {
    fn add_damaged(&mut self) {
        let (first, n) = self.damaged.unwrap_or((self.n_lines, 0));
        self.damaged = Some((first, n + 1));
    }
}

impl Follower {
    /// Of a run folder; `words` says actions in the words of the user.
    pub fn new(folder: &Path, words: &dyn Fn(&str) -> String) -> Follower {
        let resume = words(&action(Verb::Resume).on(folder.display()).to_string());
        Follower { folder: folder.to_path_buf(), traces: BTreeMap::new(), stamps: Vec::new(), resume }
    }

    /// Looks once; returns whether anything is new.
    pub fn look(&mut self, seen: &mut Seen) -> bool {
        // A run that is just being replaced has no settings for a moment.
        let Ok(run) = Run::open(&self.folder) else { return self.tell(seen, json!({"state": "waiting"})) };
        let (n_before, epoch) = (seen.rows.len(), seen.epoch);
        for chain in 1..=run.checked.settings.chains {
            if self.read_trace(&run, chain, seen).is_none() {
                self.traces.clear();
                seen.rows.clear();
                seen.epoch += 1;
            }
        }
        let stamps = self.stamps_of(&run);
        let is_new = stamps != self.stamps;
        self.stamps = stamps;
        seen.version += u64::from(is_new);
        let status = self.status(&run, seen);
        self.tell(seen, status) || is_new || epoch != seen.epoch || n_before != seen.rows.len()
    }

    fn tell(&self, seen: &mut Seen, status: Value) -> bool {
        let is_new = seen.status != status;
        seen.status = status;
        is_new
    }

    /// Adds new rows of a chain; nothing where the trace has become another.
    fn read_trace(&mut self, run: &Run, chain: u32, seen: &mut Seen) -> Option<()> {
        let path = Run::chain_folder(&self.folder, chain).join(TRACE);
        let Ok(mut file) = File::open(path) else {
            return if self.traces.contains_key(&chain) { None } else { Some(()) };
        };
        let followed = self.traces.entry(chain).or_default();
        if file.metadata().map_or(0, |found| found.len()) < followed.read {
            return None;
        }
        let mut text = Vec::new();
        // Where it cannot be read now, the next look tries again.
        if file.seek(SeekFrom::Start(followed.read)).and_then(|_| file.read_to_end(&mut text)).is_err() {
            return Some(());
        }
        // The last line may not be complete yet.
        let n_complete = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&text[..n_complete]);
        let (mut lines, is_from_start) = (text.lines(), followed.read == 0);
        if is_from_start && let Some(header) = lines.next() {
            *followed = Followed { n_lines: 1, columns: columns_of(run, header), ..Followed::default() };
            if followed.columns.is_none() {
                followed.add_damaged();
            }
        }
        followed.read += n_complete as u64;
        let mut last = seen.rows.iter().rev().find(|(of, _)| *of == chain).and_then(|(_, row)| row[0]).unwrap_or(0.0);
        for line in lines {
            followed.n_lines += 1;
            let row = followed.columns.as_deref().and_then(|columns| row_of(line, columns));
            match row.filter(|(sweep, _)| *sweep > last) {
                // A trace that was cut and written on has other rows where these were: it is read anew. What is odd in one
                // that was just read anew is damaged.
                Some((sweep, _)) if sweep != last + 1.0 && !is_from_start => return None,
                None if !is_from_start => return None,
                Some((sweep, row)) => {
                    last = sweep;
                    seen.rows.push((chain, row));
                }
                None => followed.add_damaged(),
            }
        }
        Some(())
    }

    /// What the user should know of traces that are not as they were written.
    fn damage(&self) -> Vec<String> {
        let words = |(&chain, followed): (&u32, &Followed)| {
            let (first, n) = followed.damaged?;
            let path = Run::chain_folder(&self.folder, chain).join(TRACE);
            let what = match n {
                1 => format!("line {first} cannot be read and is left out"),
                n => format!("{n} lines cannot be read and are left out, the first of them line {first}"),
            };
            Some(format!("{}: {what}", path.display()))
        };
        self.traces.iter().filter_map(words).collect()
    }

    /// When everything that the page is made of was last written.
    fn stamps_of(&self, run: &Run) -> Vec<Option<(SystemTime, u64)>> {
        let of_chain = |chain: u32| checkpoint::path(&Run::chain_folder(&self.folder, chain));
        let paths = (1..=run.checked.settings.chains).map(of_chain);
        let others = [CHECKSUMS, CONFIG].map(|name| self.folder.join(name));
        let stamp = |path: PathBuf| path.metadata().ok().and_then(|found| Some((found.modified().ok()?, found.len())));
        paths.chain(others).map(stamp).collect()
    }

    fn status(&self, run: &Run, seen: &Seen) -> Value {
        let (planned, n_chains) = (run.checked.window.sweeps, run.checked.settings.chains);
        let last = |chain: u32| seen.rows.iter().rev().find(|(of, _)| *of == chain).and_then(|(_, row)| row[0]);
        let sweeps: Vec<u64> = (1..=n_chains).filter_map(last).map(|sweep| sweep as u64).collect();
        let chain = sweeps.len().max(1);
        let sweep = sweeps.last().copied().unwrap_or(0);
        let live = Run::chain_folder(&self.folder, chain as u32).join(LIVE);
        let live: Value =
            std::fs::read_to_string(live).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let is_done = sweeps.len() == n_chains as usize && sweeps.iter().all(|&sweep| sweep >= planned);
        let owner = Held::owner(&self.folder);
        let state = match (&owner, is_done) {
            (Some(_), false) => "running",
            (Some(_), true) => "finishing",
            (None, true) => "finished",
            (None, false) => "stopped",
        };
        json!({
            "state": state, "by": owner, "chain": chain, "chains": n_chains, "sweep": sweep, "planned": planned,
            "burn_in": run.checked.window.burn_in, "checkpoint": live["sweep"], "resume": self.resume, "damage": self.damage(),
        })
    }
}

/// The sweep of a line, and what is shown of it; nothing where it is not a line of a trace.
fn row_of(line: &str, columns: &[usize]) -> Option<(f64, Vec<Option<f64>>)> {
    let cells: Vec<&str> = line.split(',').collect();
    let number = |&at: &usize| match *cells.get(at)? {
        "" => Some(None),
        cell => cell.parse::<f64>().ok().map(Some),
    };
    let row = columns.iter().map(number).collect::<Option<Vec<_>>>()?;
    Some((row[0]?, row))
}

/// Where the sweep and the panels stand in a trace.
fn columns_of(run: &Run, header: &str) -> Option<Vec<usize>> {
    let names: Vec<&str> = header.split(',').collect();
    let place = |name: &str| names.iter().position(|column| *column == name);
    let with_heldout = run.checked.settings.heldout.is_some();
    let panels = panels(&run.record.theta, with_heldout);
    std::iter::once(place("sweep")).chain(panels.iter().map(|panel| place(&panel.column()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use issfa::Settings;

    /// A run of a small fit.
    fn run() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let values: Vec<f64> = (0..200).map(|at| f64::from(at * 37 % 11)).collect();
        let rows = issfa::Rows::from_values(values, &[10]).unwrap();
        let settings = Settings { sweeps: 12, burn_in: Some(4), noise: "white".into(), ..Settings::default() };
        let run = folder.path().join("run");
        issfa::fit(rows, &settings).unwrap().save(&run).unwrap();
        (folder, run)
    }

    fn sweeps(seen: &Seen) -> Vec<f64> {
        seen.rows.iter().map(|(_, row)| row[0].unwrap()).collect()
    }

    #[test]
    fn damaged_lines_are_left_out_and_said_once() {
        let (_folder, run) = run();
        let whole = std::fs::read(run.join(TRACE)).unwrap();
        let mut lines: Vec<Vec<u8>> = whole.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
        assert_eq!(lines.len(), 13);
        lines[5] = b"1,5,\xff\xfe,x\n".to_vec();
        let last = lines.pop().unwrap();
        // The last line is half written.
        std::fs::write(run.join(TRACE), [lines.concat(), last[..7].to_vec()].concat()).unwrap();
        let (mut follower, mut seen) = (Follower::new(&run, &|text| text.to_string()), Seen::default());
        assert!(follower.look(&mut seen));
        assert_eq!(sweeps(&seen), [1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]);
        assert!(seen.status["damage"][0].as_str().unwrap().ends_with("line 6 cannot be read and is left out"));
        let epoch = seen.epoch;
        assert!(!follower.look(&mut seen) && !follower.look(&mut seen), "nothing is new");
        std::fs::write(run.join(TRACE), [lines.concat(), last].concat()).unwrap();
        assert!(follower.look(&mut seen));
        assert_eq!((seen.rows.len(), seen.epoch), (11, epoch));
    }

    #[test]
    fn a_trace_that_was_cut_and_written_on_is_read_anew() {
        let (_folder, run) = run();
        let whole = std::fs::read_to_string(run.join(TRACE)).unwrap();
        let lines: Vec<&str> = whole.split_inclusive('\n').collect();
        std::fs::write(run.join(TRACE), lines[..9].concat()).unwrap();
        let (mut follower, mut seen) = (Follower::new(&run, &|text| text.to_string()), Seen::default());
        follower.look(&mut seen);
        // A damaged line that comes while one looks on.
        std::fs::write(run.join(TRACE), [&lines[..9].concat(), "odd\n", &lines[10..].concat()].concat()).unwrap();
        let mut epochs = Vec::new();
        for _ in 0..6 {
            follower.look(&mut seen);
            epochs.push(seen.epoch);
        }
        assert_eq!((seen.rows.len(), epochs[1..].iter().all(|&epoch| epoch == epochs[0])), (11, true), "{epochs:?}");
        std::fs::write(run.join(TRACE), lines[..4].concat()).unwrap();
        follower.look(&mut seen);
        follower.look(&mut seen);
        assert_eq!((sweeps(&seen), seen.status["damage"].clone()), (vec![1.0, 2.0, 3.0], json!([])));
        // Without a header there is nothing to show, and that is said.
        std::fs::write(run.join(TRACE), lines[1..].concat()).unwrap();
        follower.look(&mut seen);
        follower.look(&mut seen);
        assert!(seen.rows.is_empty() && seen.status["damage"][0].as_str().unwrap().contains("line 1"));
    }
}
