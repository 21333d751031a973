//! Checkpoints: everything a chain needs to go on as if it had never stopped.

use super::codec::{put_posterior, put_state, take_posterior, take_state};
use super::draws::check_format;
use super::settings::FORMAT;
use crate::chain::Posterior;
use crate::error::{Error, Result, setting};
use crate::model::State;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::linalg::Real;
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

/// Where a chain's checkpoint lies.
pub fn path(chain_folder: &Path) -> PathBuf {
    chain_folder.join("checkpoint").join("state.safetensors")
}

/// A chain at rest as named arrays, for the run with this fingerprint.
pub fn encode<R: Real>(
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

/// Writes a checkpoint; the one before stays until the new one is complete.
pub fn save(chain_folder: &Path, checkpoint: &Bundle) -> Result<()> {
    let path = path(chain_folder);
    let folder = path.parent().unwrap_or(chain_folder);
    fs::create_dir_all(folder).map_err(Error::write(folder))?;
    checkpoint.save(&path)
}

/// Reads a checkpoint of whatever run, with its format checked.
pub fn open(chain_folder: &Path) -> Result<Stored> {
    let path = path(chain_folder);
    let stored = Stored::open(&path)?;
    check_format(&stored)?;
    Ok(stored)
}

/// What a checkpoint of the run with this fingerprint holds.
pub fn decode<R: Real>(
    stored: &Stored,
    fingerprint: &str,
    with_reconstruction: Option<(usize, usize)>,
) -> Result<Checkpoint<R>> {
    check_origin(stored, fingerprint)?;
    Ok(Checkpoint {
        sweep: stored.number("sweep")?,
        state: take_state(stored)?,
        posterior: take_posterior(stored, with_reconstruction)?,
        counters: counters(stored),
    })
}

/// What was accumulated alone, of the run with this fingerprint.
pub fn posterior(stored: &Stored, fingerprint: &str, with_reconstruction: Option<(usize, usize)>) -> Result<Posterior> {
    check_origin(stored, fingerprint)?;
    take_posterior(stored, with_reconstruction)
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

/// Sums over all sweeps so far.
pub fn counters(stored: &Stored) -> Counters {
    stored.text("counters").ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Sweep number and counters, whatever the run.
pub fn peek(chain_folder: &Path) -> Result<(u64, Counters)> {
    let stored = open(chain_folder)?;
    Ok((stored.number("sweep")?, counters(&stored)))
}

/// The state alone, whatever the run: to start another chain from.
pub fn load_state<R: Real>(chain_folder: &Path) -> Result<State<R>> {
    let stored = open(chain_folder)?;
    if stored.text("precision")? != R::NAME {
        let problem = format!("was written with another {} than {}", setting("precision"), R::NAME);
        return Err(Error::malformed(stored.path(), problem));
    }
    take_state(&stored)
}
