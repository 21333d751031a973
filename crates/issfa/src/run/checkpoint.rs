//! Checkpoints: everything a chain needs to go on as if it had never stopped.

use crate::chain::Posterior;
use crate::error::{Error, Result, setting};
use crate::model::State;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::linalg::Real;
use crate::run::codec::{put_posterior, put_state, take_posterior, take_state};
use crate::run::draws::check_format;
use crate::run::settings::FORMAT;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sums over all sweeps so far that summaries report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// By kernel name: seconds, proposals, acceptances.
    pub kernels: BTreeMap<String, (f64, u64, u64)>,
    pub seconds: f64,
    /// Bytes that rank 0 brought to messages in sweeps; none where it is alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_sent: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A chain at rest.
pub struct Checkpoint<R> {
    pub sweep: u64,
    pub state: State<R>,
    pub posterior: Posterior,
    pub counters: Counters,
}

/// Where a chain's checkpoint lies.
pub fn path(chain_folder: &Path) -> PathBuf {
    chain_folder.join("checkpoint").join("state.safetensors")
}

/// Writes a checkpoint; the one before stays until the new one is complete.
pub fn save<R: Real>(chain_folder: &Path, fingerprint: &str, checkpoint: &Checkpoint<R>) -> Result<()> {
    let path = path(chain_folder);
    let folder = path.parent().unwrap_or(chain_folder);
    fs::create_dir_all(folder).map_err(Error::write(folder))?;
    let mut bundle = Bundle::default();
    bundle.note("format", FORMAT.to_string());
    bundle.note("fingerprint", fingerprint);
    bundle.note("precision", R::NAME);
    bundle.note("counters", serde_json::to_string(&checkpoint.counters).expect("counters are JSON"));
    bundle.put("sweep", &[1], &[checkpoint.sweep]);
    put_state(&mut bundle, &checkpoint.state);
    put_posterior(&mut bundle, &checkpoint.posterior);
    bundle.save(&path)
}

/// Reads a checkpoint of the run with this fingerprint.
pub fn load<R: Real>(
    chain_folder: &Path,
    fingerprint: &str,
    with_reconstruction: Option<(usize, usize)>,
) -> Result<Checkpoint<R>> {
    let stored = open(chain_folder, fingerprint)?;
    Ok(Checkpoint {
        sweep: stored.number("sweep")?,
        state: take_state(&stored)?,
        posterior: take_posterior(&stored, with_reconstruction)?,
        counters: counters(&stored),
    })
}

/// What was accumulated alone, of the run with this fingerprint.
pub fn load_posterior(
    chain_folder: &Path,
    fingerprint: &str,
    with_reconstruction: Option<(usize, usize)>,
) -> Result<Posterior> {
    take_posterior(&open(chain_folder, fingerprint)?, with_reconstruction)
}

/// Refuses the checkpoint of another run.
pub fn check_origin(chain_folder: &Path, fingerprint: &str) -> Result<()> {
    open(chain_folder, fingerprint).map(|_| ())
}

fn open(chain_folder: &Path, fingerprint: &str) -> Result<Stored> {
    let path = path(chain_folder);
    let stored = Stored::open(&path)?;
    check_format(&stored, &path)?;
    let found = stored.text("fingerprint")?;
    if found == fingerprint {
        return Ok(stored);
    }
    let (found, expected) = (found.to_string(), fingerprint.to_string());
    Err(Error::OtherOrigin { path, what: "settings", found, expected })
}

fn counters(stored: &Stored) -> Counters {
    stored.text("counters").ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Sweep number and counters, whatever the run.
pub fn peek(chain_folder: &Path) -> Result<(u64, Counters)> {
    let path = path(chain_folder);
    let stored = Stored::open(&path)?;
    check_format(&stored, &path)?;
    Ok((stored.number("sweep")?, counters(&stored)))
}

/// The state alone, whatever the run: to start another chain from.
pub fn load_state<R: Real>(chain_folder: &Path) -> Result<State<R>> {
    let path = path(chain_folder);
    let stored = Stored::open(&path)?;
    check_format(&stored, &path)?;
    if stored.text("precision")? != R::NAME {
        let problem = format!("was written with another {} than {}", setting("precision"), R::NAME);
        return Err(Error::malformed(&path, problem));
    }
    take_state(&stored)
}
