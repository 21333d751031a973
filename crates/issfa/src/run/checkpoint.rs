//! Checkpoints: everything a chain needs to go on as if it had never stopped.

use super::checksums::run_of;
use super::codec::{Sizes, put_posterior, put_state, take_posterior, take_state_of};
use super::draws::check_format;
use super::settings::FORMAT;
use super::trace::TraceMark;
use crate::chain::Posterior;
use crate::compiled::Sampled;
use crate::error::{Error, Result, Verb, action, setting};
use crate::model::State;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::files::create_folder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sums over all sweeps so far that summaries report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// By kernel name: seconds, proposals, acceptances.
    pub kernels: BTreeMap<String, (f64, u64, u64)>,
    /// Of all sweeps.
    pub seconds: f64,
    /// Of writing draws and checkpoints, and of waiting until the disk has them; but for the last checkpoint.
    #[serde(default)]
    pub seconds_saving: f64,
    /// Bytes that rank 0 brought to messages in sweeps; none where it is alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_sent: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A chain at rest.
pub struct Checkpoint<R> {
    /// Sweeps done.
    pub sweep: u64,
    /// Where the chain stands.
    pub state: State<R>,
    /// What was accumulated.
    pub posterior: Posterior,
    /// Times and acceptances.
    pub counters: Counters,
}

/// What lies beside a checkpoint and belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Belongings {
    /// Which chain of its run it is of, from 1.
    pub chain: u32,
    /// How far the trace goes.
    pub trace: TraceMark,
    /// The kept draws, by the numbers of their kept sweeps, with their checksums.
    pub draws: BTreeMap<u64, String>,
    /// The checksum of what new rows are prepared by.
    pub preprocessing: String,
}

/// Where a chain's checkpoint lies.
pub fn path(chain_folder: &Path) -> PathBuf {
    chain_folder.join("checkpoint").join("state.safetensors")
}

/// Where the checkpoint before lies, as long as the chain is on its way.
pub fn previous_path(chain_folder: &Path) -> PathBuf {
    chain_folder.join("checkpoint").join("previous.safetensors")
}

/// Where a checkpoint is until it has been read back.
fn next_path(chain_folder: &Path) -> PathBuf {
    chain_folder.join("checkpoint").join("next.safetensors")
}

/// Whether a chain has a checkpoint.
pub fn exists(chain_folder: &Path) -> bool {
    path(chain_folder).is_file() || previous_path(chain_folder).is_file()
}

/// A chain at rest as named arrays, for the run with this fingerprint.
pub fn encode<R: Sampled>(
    fingerprint: &str,
    sweep: u64,
    state: &State<R>,
    posterior: &Posterior,
    counters: &Counters,
) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.note("format", FORMAT.to_string());
    bundle.note("fingerprint", fingerprint);
    bundle.note("precision", R::NAME);
    bundle.note("counters", serde_json::to_string(counters).expect("counters are JSON"));
    bundle.put("sweep", &[1], &[sweep]);
    put_state(&mut bundle, state);
    put_posterior(&mut bundle, posterior);
    bundle
}

/// Writes a checkpoint with what belongs to it. It is read back before it takes the place of the one before, which stays
/// beside it.
pub fn save(chain_folder: &Path, mut checkpoint: Bundle, belongings: &Belongings) -> Result<()> {
    let (path, next) = (path(chain_folder), next_path(chain_folder));
    let folder = path.parent().unwrap_or(chain_folder);
    create_folder(folder)?;
    checkpoint.note("belongings", serde_json::to_string(belongings).expect("names and numbers are JSON"));
    checkpoint.save(&next)?;
    Stored::open(&next)?;
    if path.is_file() {
        let previous = previous_path(chain_folder);
        forget_previous(chain_folder)?;
        // A second name, so that there is a last checkpoint at every moment; where files have one name only, nearly so.
        let kept = fs::hard_link(&path, &previous).or_else(|_| fs::rename(&path, &previous));
        kept.map_err(Error::write(&previous))?;
    }
    fs::rename(&next, &path).map_err(Error::write(&path))
}

/// Takes the checkpoint before away: the last one is all that is needed.
pub fn forget_previous(chain_folder: &Path) -> Result<()> {
    let path = previous_path(chain_folder);
    if path.is_file() { fs::remove_file(&path).map_err(Error::write(&path)) } else { Ok(()) }
}

/// Puts the checkpoint before in the place of a damaged one.
pub fn restore_previous(chain_folder: &Path) -> Result<()> {
    let path = path(chain_folder);
    fs::rename(previous_path(chain_folder), &path).map_err(Error::write(&path))
}

/// Reads the last checkpoint of whatever run, with its format checked.
pub fn open(chain_folder: &Path) -> Result<Stored> {
    let previous = previous_path(chain_folder);
    open_file(&path(chain_folder)).map_err(|error| {
        let resume = action(Verb::Resume).on(run_of(chain_folder).display());
        match previous.is_file() {
            true => error.with_remedy(format!("{resume} goes back to the checkpoint before")),
            false => error.with_remedy("put back a copy, or fit again"),
        }
    })
}

/// Reads a file as a checkpoint.
pub fn open_file(path: &Path) -> Result<Stored> {
    let stored = Stored::open(path)?;
    check_format(&stored)?;
    Ok(stored)
}

/// What belongs to a checkpoint.
pub fn belongings(stored: &Stored) -> Result<Belongings> {
    let text = stored.text("belongings")?;
    serde_json::from_str(text).map_err(|_| stored.damaged("note 'belongings' cannot be read"))
}

/// What a checkpoint of the run with this fingerprint holds.
pub fn decode<R: Sampled>(
    stored: &Stored,
    fingerprint: &str,
    sizes: &Sizes,
    with_reconstruction: bool,
) -> Result<Checkpoint<R>> {
    check_origin(stored, fingerprint)?;
    Ok(Checkpoint {
        sweep: stored.number("sweep")?,
        state: take_state_of(stored, sizes)?,
        posterior: take_posterior(stored, sizes, with_reconstruction)?,
        counters: counters(stored)?,
    })
}

/// What was accumulated alone, of the run with this fingerprint.
pub fn posterior(stored: &Stored, fingerprint: &str, sizes: &Sizes, with_reconstruction: bool) -> Result<Posterior> {
    check_origin(stored, fingerprint)?;
    take_posterior(stored, sizes, with_reconstruction)
}

/// Refuses the checkpoint of another run.
pub fn check_origin(stored: &Stored, fingerprint: &str) -> Result<()> {
    let found = stored.text("fingerprint")?;
    if found == fingerprint {
        return Ok(());
    }
    let (found, expected) = (found.to_string(), fingerprint.to_string());
    Err(Error::OtherOrigin { path: stored.path().to_path_buf(), what: "settings", found, expected })
}

/// Refuses the checkpoint of another chain of the run; numbers are from 1.
pub fn check_chain(stored: &Stored, chain: u32) -> Result<()> {
    let found = belongings(stored)?.chain;
    if found == chain {
        return Ok(());
    }
    let (found, expected) = (format!("chain {found}"), format!("chain {chain}"));
    Err(Error::OtherOrigin { path: stored.path().to_path_buf(), what: "chain", found, expected })
}

/// Sums over all sweeps so far.
pub fn counters(stored: &Stored) -> Result<Counters> {
    serde_json::from_str(stored.text("counters")?).map_err(|_| stored.damaged("note 'counters' cannot be read"))
}

/// Sweep number and counters, whatever the run.
pub fn peek(chain_folder: &Path) -> Result<(u64, Counters)> {
    let stored = open(chain_folder)?;
    Ok((stored.number("sweep")?, counters(&stored)?))
}

/// The state alone, of a run with these sizes: to start another chain from.
pub fn load_state<R: Sampled>(chain_folder: &Path, sizes: &Sizes) -> Result<State<R>> {
    let stored = open(chain_folder)?;
    if stored.text("precision")? != R::NAME {
        let problem = format!("was written with another {} than {}", setting("precision"), R::NAME);
        return Err(Error::malformed(stored.path(), problem));
    }
    take_state_of(&stored, sizes)
}
