//! The library's own source, that of issfa-base and issfa-sampler included, for tests of how it is written.

use std::fs;
use std::path::{Path, PathBuf};

/// Every source file of the library, by its path below `src`, up to its tests, which may use anything.
pub fn sources() -> Vec<(PathBuf, String)> {
    ["src", "../issfa-base/src", "../issfa-sampler/src"].into_iter().flat_map(sources_below).collect()
}

fn sources_below(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let below = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(&root).unwrap().to_path_buf(), without_tests(&text).to_string())
    };
    files(&root).into_iter().map(below).collect()
}

/// All source files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let parts = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    parts.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}

fn without_tests(text: &str) -> &str {
    &text[..text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len())]
}
