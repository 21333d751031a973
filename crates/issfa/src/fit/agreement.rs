//! Whether all ranks run the same program on the same data with the same settings.

use crate::comm::Comm;
use crate::data::read;
use crate::error::{Error, Result};
use crate::run::record::InputRecord;
use crate::run::settings::Settings;
use crate::structure::Structure;
use std::path::Path;

/// Refuses a rank that has another version, other settings, or other files than rank 0; on every rank alike.
pub fn check(comm: &dyn Comm, settings: &Settings, inputs: &[InputRecord], side_checksums: &[String]) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let mut known = vec![
        ("version".to_string(), env!("CARGO_PKG_VERSION").to_string()),
        ("settings".to_string(), settings.to_toml()),
    ];
    known.extend(inputs.iter().map(|input| (input.path.display().to_string(), input.checksum.clone())));
    known.extend(side_checksums.iter().map(|checksum| ("confounds or names of runs".to_string(), checksum.clone())));
    known.extend(files_beside(settings));
    compare(comm, &known)
}

/// The files that settings name, with what is in them. Where no rank can read one, the error comes where it is needed.
fn files_beside(settings: &Settings) -> Vec<(String, String)> {
    let mask = settings.mask.as_deref().filter(|text| *text != "auto");
    let noise = Some(settings.noise.as_str()).filter(|text| !["reference", "white"].contains(text));
    let checksum = |path: &str| read::checksum(Path::new(path)).unwrap_or_else(|_| "cannot be read".to_string());
    mask.into_iter().chain(noise).map(|path| (path.to_string(), checksum(path))).collect()
}

/// Refuses a rank whose basis has other bits: another file of a graph, or a processor of another kind.
pub fn check_structure(comm: &dyn Comm, structure: &Structure) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let what = "structure (its files, or what this kind of processor makes of them)".to_string();
    compare(comm, &[("the identity of the structure".to_string(), structure.identity()), (what, structure.probe())])
}

/// Compares what every rank knows with what rank 0 does.
fn compare(comm: &dyn Comm, known: &[(String, String)]) -> Result<()> {
    let own = serde_json::to_vec(known).expect("text is JSON");
    let all: Vec<Vec<(String, String)>> =
        comm.all_gather(&own).iter().map(|bytes| serde_json::from_slice(bytes).unwrap_or_default()).collect();
    match (1..all.len()).find_map(|rank| Some((rank, first_difference(&all[0], &all[rank])?))) {
        None => Ok(()),
        Some((rank, [what, expected, found])) => Err(Error::RanksDiffer { rank, what, found, expected }),
    }
}

/// What differs, and how it is on rank 0 and on the other rank.
fn first_difference(first: &[(String, String)], other: &[(String, String)]) -> Option<[String; 3]> {
    let at = (0..first.len().max(other.len())).find(|&at| first.get(at) != other.get(at))?;
    let nothing = ("nothing".to_string(), "nothing".to_string());
    let (here, there) = (first.get(at).unwrap_or(&nothing), other.get(at).unwrap_or(&nothing));
    if here.0 != "settings" {
        let what = if here.0 == there.0 { here.0.clone() } else { "input".to_string() };
        let show = |known: &(String, String)| {
            if here.0 == there.0 { known.1.clone() } else { format!("{} ({})", known.0, known.1) }
        };
        return Some([what, show(here), show(there)]);
    }
    let lines =
        here.1.lines().zip(there.1.lines()).find(|(a, b)| a != b).unwrap_or(("more settings", "fewer settings"));
    Some(["settings".to_string(), lines.0.to_string(), lines.1.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::local::Local;

    #[test]
    fn a_rank_with_something_else_is_named() {
        let input = |checksum: &str| vec![InputRecord { path: "a.npy".into(), n_rows: 3, checksum: checksum.into() }];
        let run = |seeds: [u64; 3], checksums: [&str; 3]| {
            Local::run(3, |comm| {
                let settings = Settings { seed: seeds[comm.rank()], ..Settings::default() };
                check(comm.as_ref(), &settings, &input(checksums[comm.rank()]), &[]).map_err(|error| error.to_string())
            })
        };
        assert!(run([1; 3], ["x"; 3]).iter().all(|outcome| outcome.is_ok()));
        for error in run([1, 1, 2], ["x"; 3]) {
            let text = error.unwrap_err();
            assert!(text.contains("rank 2") && text.contains("seed = 1") && text.contains("seed = 2"), "{text}");
        }
        for error in run([1; 3], ["x", "y", "x"]) {
            let text = error.unwrap_err();
            assert!(text.contains("rank 1") && text.contains("a.npy") && text.contains('y'), "{text}");
        }
    }

    /// Files of a mask and of a noise reference count by what is in them; one that a rank does not have is no error before the
    /// ranks have compared, or the others would wait for it.
    #[test]
    fn files_beside_the_data_count_by_what_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file").display().to_string();
        let mask = Settings { mask: Some(path.clone()), ..Settings::default() };
        let noise = Settings { noise: path.clone(), ..Settings::default() };
        assert!(files_beside(&Settings::default()).is_empty());
        for settings in [mask, noise] {
            std::fs::remove_file(&path).ok();
            let missing = files_beside(&settings);
            std::fs::write(&path, "one").unwrap();
            let one = files_beside(&settings);
            std::fs::write(&path, "other").unwrap();
            let other = files_beside(&settings);
            assert!([&missing, &one, &other].iter().all(|known| known.len() == 1 && known[0].0 == path));
            assert!(missing != one && one != other && missing != other);
        }
    }
}
