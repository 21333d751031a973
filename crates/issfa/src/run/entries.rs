//! What is in an output folder: what the command made, what it never finished, and what is somebody else's.

use super::folder::{FIGURES, Output, is_chain};
use super::lock::{HELD, LOCK};
use crate::error::{Error, Result};
use crate::numeric::files::{is_temporary, refuse_link};
use std::fs;
use std::path::{Path, PathBuf};

/// What a file or folder in an output folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Results, old or new.
    Made,
    /// What a process that was killed did not finish.
    Stray,
    /// Locks, and results on the way to their place.
    Machinery,
    /// Somebody else's.
    Foreign,
}

/// A file or folder in an output folder. Links are files.
pub(super) struct Entry {
    pub path: PathBuf,
    /// Names below the output folder, joined by `/`.
    pub place: String,
    pub kind: Kind,
    pub is_folder: bool,
}

/// Everything in an output folder and in the folders that the command makes there, without following links; what is in a
/// folder comes after it.
pub(super) fn entries(folder: &Path, output: Output) -> Result<Vec<Entry>> {
    let mut list = Vec::new();
    collect(folder, output, &mut Vec::new(), &mut list)?;
    list.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(list)
}

fn collect(folder: &Path, output: Output, above: &mut Vec<String>, list: &mut Vec<Entry>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::read(folder))? {
        let entry = entry.map_err(Error::read(folder))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        // One that is gone meanwhile is no folder.
        let is_folder = entry.file_type().is_ok_and(|found| found.is_dir());
        above.push(name);
        let place: Vec<&str> = above.iter().map(String::as_str).collect();
        let kind = kind(output, &place);
        list.push(Entry { path: path.clone(), place: above.join("/"), kind, is_folder });
        if is_folder && kind == Kind::Made {
            collect(&path, output, above, list)?;
        }
        above.pop();
    }
    Ok(())
}

/// What stands at a place below an output folder.
pub(super) fn kind(output: Output, place: &[&str]) -> Kind {
    let Some((name, above)) = place.split_last() else { return Kind::Made };
    match (output, place) {
        (Output::Demo, ["sim", inside @ ..]) => return kind(Output::Simulation, inside),
        (Output::Demo, ["run", inside @ ..]) => return kind(Output::Run, inside),
        (Output::Run, [chain, inside @ ..]) if is_chain(chain) => return kind(Output::Run, inside),
        _ => {}
    }
    let is_made = |name: &str| match above {
        [] => output.makes(name),
        ["draws" | "checkpoint"] => name.ends_with(".safetensors"),
        ["structure"] => name.starts_with("graph-") && name.ends_with(".safetensors"),
        [FIGURES] => name.ends_with(".svg") || name.ends_with(".png"),
        _ => false,
    };
    // Names of earlier builds: NAME.tmp, also in place of the ending, and those of a library.
    let is_unfinished = |name: &str| is_made(name) || is_made(&format!("{name}.safetensors"));
    let is_of_library = name.strip_prefix(".tmp").is_some_and(|rest| rest.len() == 6);
    match name {
        _ if above.is_empty() && is_machinery(name) => Kind::Machinery,
        _ if is_made(name) => Kind::Made,
        _ if is_temporary(name) || is_of_library => Kind::Stray,
        _ if name.strip_suffix(".tmp").is_some_and(is_unfinished) => Kind::Stray,
        _ => Kind::Foreign,
    }
}

/// Locks, results on the way, and the names that network file systems give to files which are open and have none any more.
fn is_machinery(name: &str) -> bool {
    [LOCK, HELD].contains(&name) || name.starts_with(".nfs") || Stage::ALL.iter().any(|stage| stage.is_of(name))
}

/// How far results are on the way to their place. They wait in a folder inside of the one that they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Being written: nothing to a process that comes later.
    Writing,
    /// Complete: the old ones go.
    Ready,
    /// The old ones are gone: the new ones take their place.
    Moving,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Writing, Stage::Ready, Stage::Moving];

    fn ending(self) -> &'static str {
        match self {
            Stage::Writing => "writing",
            Stage::Ready => "ready",
            Stage::Moving => "moving",
        }
    }

    /// The folder where results wait.
    pub fn folder(self, folder: &Path, output: Output) -> PathBuf {
        folder.join(format!(".issfa-{output:?}-{}", self.ending()).to_lowercase())
    }

    /// Whether anything is there so far on the way.
    pub fn is_there(self, folder: &Path, output: Output) -> bool {
        fs::symlink_metadata(self.folder(folder, output)).is_ok_and(|found| found.is_dir())
    }

    fn is_of(self, name: &str) -> bool {
        Output::ALL.iter().any(|output| self.folder(Path::new(""), *output) == Path::new(name))
    }
}

/// Refuses a run folder in which something that issfa made was replaced by a link.
pub fn refuse_links(run: &Path) -> Result<()> {
    let list = entries(run, Output::Run)?;
    list.iter().filter(|entry| entry.kind == Kind::Made).try_for_each(|entry| refuse_link(&entry.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_told_apart() {
        let expected = [
            (Output::Run, "config.toml", Kind::Made),
            (Output::Run, "chain-2", Kind::Made),
            (Output::Run, "chain-2/draws/draw-000001.safetensors", Kind::Made),
            (Output::Run, "chain-x", Kind::Foreign),
            (Output::Run, "figures/traces.png", Kind::Made),
            (Output::Run, "figures/notes.txt", Kind::Foreign),
            (Output::Run, "draws/mine.npy", Kind::Foreign),
            (Output::Run, "lock", Kind::Machinery),
            (Output::Run, "figures/lock", Kind::Foreign),
            (Output::Run, ".issfa-run-writing", Kind::Machinery),
            (Output::Run, ".issfa-transform-ready", Kind::Machinery),
            (Output::Run, ".issfa-7-0-1a.tmp", Kind::Stray),
            (Output::Run, "checkpoint/.issfa-7-0-1a.tmp", Kind::Stray),
            (Output::Run, "checkpoint/state.tmp", Kind::Stray),
            (Output::Run, "checkpoint/.tmpAb12Cd", Kind::Stray),
            (Output::Run, "config.toml.tmp", Kind::Stray),
            (Output::Run, "thesis.tmp", Kind::Foreign),
            (Output::Transform, "reconstruction.npy.tmp", Kind::Stray),
            (Output::Transform, "reconstruction_a.nii.gz.tmp", Kind::Stray),
            (Output::Transform, "config.toml", Kind::Foreign),
            (Output::Simulation, "truth_features.npy.tmp", Kind::Stray),
            (Output::Demo, "run/trace.csv", Kind::Made),
            (Output::Demo, "run/lock", Kind::Machinery),
            (Output::Demo, "sim/trace.csv", Kind::Foreign),
        ];
        for (output, place, expected) in expected {
            assert_eq!(kind(output, &place.split('/').collect::<Vec<_>>()), expected, "{output:?} {place}");
        }
    }
}
