//! Makes the checksums of a run folder anew, so that whatever is in its files is believed: for tests of the checks that lie
//! behind checksums.

use super::checkpoint::{self, Belongings};
use super::checksums::{CHECKSUMS, seal};
use super::folder::{CONFIG, NOISE_REFERENCE, Run, TRACE};
use super::record::Recorded;
use super::trace::TraceMark;
use crate::data::read;
use crate::error::Result;
use crate::noise::Reference;
use crate::numeric::bytes::{Bundle, Stored};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes the checksums of a run folder anew, as far as its files can be read.
pub fn reseal(folder: &Path) -> Result<()> {
    files_in(&folder.join("structure"))
        .iter()
        .chain([&folder.join(NOISE_REFERENCE)])
        .for_each(|path| drop(rewrite(path)));
    let mut fingerprint = None;
    if let Ok(mut recorded) = Recorded::read_unchecked(&folder.join(CONFIG)) {
        if let Ok(reference) = Reference::read(&folder.join(NOISE_REFERENCE)) {
            recorded.record.noise_checksum = Some(reference.checksum());
        }
        recorded.record.checksum = None;
        fingerprint = Some(recorded.fingerprint());
        Run::write_config(folder, &recorded)?;
    }
    let chains = files_in(folder)
        .into_iter()
        .filter(|path| path.is_dir() && [TRACE, CHECKSUMS].iter().any(|name| path.join(name).is_file()));
    for chain in chains.chain([folder.to_path_buf()]) {
        files_in(&chain.join("draws")).iter().for_each(|path| drop(rewrite(path)));
        for path in [checkpoint::path(&chain), checkpoint::previous_path(&chain)] {
            if let Ok(mut bundle) = unsealed(&path) {
                fingerprint.iter().for_each(|text| bundle.note("fingerprint", text));
                renew_belongings(&chain, &path, &mut bundle);
                bundle.save(&path)?;
            }
        }
        let listed = fs::read_to_string(chain.join(CHECKSUMS)).unwrap_or_default();
        let names: Vec<&str> = listed.lines().filter_map(|line| line.split_once('\t')).map(|(_, name)| name).collect();
        if let Some((_, names)) = names.split_last() {
            fs::remove_file(chain.join(CHECKSUMS)).map_err(crate::error::Error::write(&chain))?;
            seal(&chain, names)?;
        }
    }
    Ok(())
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn unsealed(path: &Path) -> Result<Bundle> {
    let bytes = fs::read(path).map_err(crate::error::Error::read(path))?;
    Ok(Stored::unchecked(bytes, path)?.to_bundle())
}

fn rewrite(path: &Path) -> Result<()> {
    unsealed(path)?.save(path)
}

/// What lies beside a checkpoint belongs to it, as it is now.
fn renew_belongings(chain: &Path, path: &Path, bundle: &mut Bundle) {
    let stored = fs::read(path).ok().and_then(|bytes| Stored::unchecked(bytes, path).ok());
    let Some(mut belongings): Option<Belongings> = stored.and_then(|stored| checkpoint::belongings(&stored).ok())
    else {
        return;
    };
    let trace = chain.join(TRACE);
    if let (Ok(checksum), Ok(file)) = (read::checksum(&trace), fs::metadata(&trace)) {
        belongings.trace = TraceMark { n_bytes: file.len(), checksum };
    }
    let checksum = |name: String| Some(Stored::open(&chain.join("draws").join(name)).ok()?.checksum().to_string());
    for (number, known) in &mut belongings.draws {
        *known = checksum(format!("draw-{number:06}.safetensors")).unwrap_or_else(|| known.clone());
    }
    belongings.preprocessing = checksum("preprocessing.safetensors".into()).unwrap_or(belongings.preprocessing);
    bundle.note("belongings", serde_json::to_string(&belongings).expect("names and numbers are JSON"));
}
