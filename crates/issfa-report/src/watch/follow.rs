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
    /// For each chain: how far its trace was read, and which columns are shown.
    traces: BTreeMap<u32, (u64, Vec<usize>)>,
    stamps: Vec<Option<(SystemTime, u64)>>,
    resume: String,
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
        let (read, columns) = self.traces.entry(chain).or_default();
        if file.metadata().map_or(0, |found| found.len()) < *read {
            return None;
        }
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(*read)).and_then(|_| file.read_to_end(&mut text)).ok()?;
        // The last line may not be complete yet.
        let n_complete = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut lines = std::str::from_utf8(&text[..n_complete]).ok()?.lines();
        if *read == 0
            && let Some(header) = lines.next()
        {
            *columns = columns_of(run, header)?;
        }
        *read += n_complete as u64;
        let mut last = seen.rows.iter().rev().find(|(of, _)| *of == chain).and_then(|(_, row)| row[0]).unwrap_or(0.0);
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let row: Vec<Option<f64>> =
                columns.iter().map(|&at| cells.get(at).and_then(|cell| cell.parse().ok())).collect();
            // A trace that was cut and written on has other rows where these were.
            last = row[0].filter(|&sweep| sweep == last + 1.0)?;
            seen.rows.push((chain, row));
        }
        Some(())
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
            "burn_in": run.checked.window.burn_in, "checkpoint": live["sweep"], "resume": self.resume,
        })
    }
}

/// Where the sweep and the panels stand in a trace.
fn columns_of(run: &Run, header: &str) -> Option<Vec<usize>> {
    let names: Vec<&str> = header.split(',').collect();
    let place = |name: &str| names.iter().position(|column| *column == name);
    let with_heldout = run.checked.settings.heldout.is_some();
    let panels = panels(&run.record.theta, with_heldout);
    std::iter::once(place("sweep")).chain(panels.iter().map(|panel| place(&panel.column()))).collect()
}
