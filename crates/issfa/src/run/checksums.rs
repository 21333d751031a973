//! `checksums.tsv`: what the results in a chain's folder are known by, so that damage is noticed where they are read.

use super::folder::FEATURE_TABLE;
use crate::data::read;
use crate::error::{Error, Result, Verb, action};
use crate::numeric::files::write_atomically;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the table: a line a file, the last one about the lines before it.
pub const CHECKSUMS: &str = "checksums.tsv";

/// The checksums of the files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    folder: PathBuf,
    files: BTreeMap<String, String>,
}

impl Checksums {
    /// Those of a folder; none where nothing has been written yet.
    pub fn open(folder: &Path) -> Result<Checksums> {
        let (path, folder) = (folder.join(CHECKSUMS), folder.to_path_buf());
        if !path.is_file() {
            // Results never come without it.
            return match folder.join(FEATURE_TABLE).is_file() {
                true => Err(Error::malformed(&path, format!("is missing; {}", again(&folder)))),
                false => Ok(Checksums { folder, files: BTreeMap::new() }),
            };
        }
        let text = std::fs::read_to_string(&path).map_err(Error::read(&path))?;
        let files = parse(&text).ok_or_else(|| Error::malformed(&path, format!("damaged; {}", again(&folder))))?;
        Ok(Checksums { folder, files })
    }

    /// Whether a file is known.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Refuses a file that is not as it was written.
    pub fn check(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        let Some(expected) = self.files.get(name) else {
            return Err(Error::malformed(&path, format!("is not in {CHECKSUMS}; {}", again(&self.folder))));
        };
        let found = read::checksum(&path).map_err(|error| error.with_remedy(again(&self.folder)))?;
        if found == *expected {
            return Ok(());
        }
        let problem = format!("damaged, or being written (checksum {found}, expected {expected})");
        Err(Error::malformed(&path, problem).with_remedy(again(&self.folder)))
    }

    fn write(&self) -> Result<()> {
        let lines: String = self.files.iter().map(|(name, checksum)| format!("{checksum}\t{name}\n")).collect();
        let text = format!("{lines}{}\t{CHECKSUMS}\n", of(&lines));
        write_atomically(&self.folder.join(CHECKSUMS), text.as_bytes())
    }
}

/// Takes down what files of a folder are known by; those of them that are not there are forgotten.
pub fn seal<N: AsRef<str>>(folder: &Path, names: &[N]) -> Result<()> {
    // A damaged table is made anew: what it knew of other files has to be written again before it is believed.
    let fresh = || Checksums { folder: folder.to_path_buf(), files: BTreeMap::new() };
    let mut known = Checksums::open(folder).unwrap_or_else(|_| fresh());
    for name in names.iter().map(AsRef::as_ref) {
        let path = folder.join(name);
        match path.is_file() {
            true => known.files.insert(name.to_string(), read::checksum(&path)?),
            false => known.files.remove(name),
        };
    }
    known.write()
}

fn parse(text: &str) -> Option<BTreeMap<String, String>> {
    let last = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
    let (lines, own) = text.split_at(last);
    if own != format!("{}\t{CHECKSUMS}\n", of(lines)) {
        return None;
    }
    lines.lines().map(|line| line.split_once('\t').map(|(checksum, name)| (name.into(), checksum.into()))).collect()
}

fn of(text: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}

/// What to do about results that cannot be believed.
fn again(folder: &Path) -> String {
    format!("{} writes it again", action(Verb::Resume).on(run_of(folder).display()))
}

/// The run that a chain's folder belongs to.
/// The run that the folder of a chain belongs to.
pub fn run_of(folder: &Path) -> &Path {
    let is_chain = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with("chain-"));
    if is_chain { folder.parent().unwrap_or(folder) } else { folder }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_that_change_or_go_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let problem =
            |name: &str| Checksums::open(folder.path()).and_then(|known| known.check(name)).unwrap_err().to_string();
        assert!(problem("a").contains("is not in checksums.tsv"));
        ["a", "b"].iter().for_each(|name| fs::write(path(name), name).unwrap());
        seal(folder.path(), &["a", "b", "c"]).unwrap();
        let known = Checksums::open(folder.path()).unwrap();
        assert!(known.check("a").is_ok() && known.check("b").is_ok() && !known.has("c"));
        fs::write(path("a"), "x").unwrap();
        assert!(problem("a").contains("damaged") && problem("a").contains("resume"), "{}", problem("a"));
        fs::remove_file(path("a")).unwrap();
        assert!(problem("a").contains("cannot be read"), "{}", problem("a"));
        fs::write(path("b"), "y").unwrap();
        seal(folder.path(), &["a"]).unwrap();
        assert!(problem("b").contains("damaged"), "what was not written is not looked at anew");
    }

    #[test]
    fn the_table_itself_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FEATURE_TABLE), "x").unwrap();
        assert!(Checksums::open(folder.path()).unwrap_err().to_string().contains("is missing"));
        seal(folder.path(), &[FEATURE_TABLE]).unwrap();
        let bytes = fs::read(folder.path().join(CHECKSUMS)).unwrap();
        for at in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            fs::write(folder.path().join(CHECKSUMS), flipped).unwrap();
            assert!(Checksums::open(folder.path()).is_err(), "{at}");
        }
    }
}
