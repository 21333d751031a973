//! Files that are either written whole or not at all, are on disk when they are said to be, and never lie behind a link.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of files begin and end that are not complete yet.
const TEMPORARY: (&str, &str) = (".issfa-", ".tmp");

/// Replaces `path` by `contents`, which have reached the disk before the old file goes.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<()> {
    let mut file = PendingFile::create(path)?;
    file.append(contents)?;
    file.finish()
}

/// The same for what can be made again at any time: nobody waits for the disk.
pub fn write_lightly(path: &Path, contents: &[u8]) -> Result<()> {
    let mut file = PendingFile::create(path)?;
    file.append(contents)?;
    file.rename().map(drop)
}

/// Copies a file, which must not be a link: what lies behind it may be anybody's.
pub fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let mut source = open_itself(from)?;
    let mut copy = PendingFile::create(to)?;
    io::copy(&mut source, &mut copy).map_err(Error::write(to))?;
    copy.finish()
}

/// A new, empty file in the place of whatever is there.
pub fn begin_anew(path: &Path) -> Result<File> {
    if fs::symlink_metadata(path).is_ok() {
        fs::remove_file(path).map_err(Error::write(path))?;
    }
    OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::write(path))
}

/// Cuts a file down to its first bytes, to be written to after them. The old file stays until the new one is complete.
pub fn cut(path: &Path, n_bytes: u64) -> Result<File> {
    let mut source = open_itself(path)?.take(n_bytes);
    let mut file = PendingFile::create(path)?;
    io::copy(&mut source, &mut file).map_err(Error::write(path))?;
    file.sync()?;
    file.rename()
}

/// Opens a file for reading, but not what a link points to.
fn open_itself(path: &Path) -> Result<File> {
    refuse_link(path)?;
    let mut options = OpenOptions::new();
    without_links(options.read(true)).open(path).map_err(Error::read(path))
}

/// Refuses a link where a file or folder of our own should be.
pub fn refuse_link(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(Error::malformed(
            path,
            "is a link, and what lies behind a link is neither changed nor copied; put the file or folder itself there",
        )),
        _ => Ok(()),
    }
}

/// Opening fails where the name is that of a link.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    options
}

/// Makes a folder, and those above it, so that they outlast a loss of power; returns those that were not there, the
/// innermost first.
pub fn create_folder(path: &Path) -> Result<Vec<PathBuf>> {
    let above = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    let missing: Vec<PathBuf> = above.take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    fs::create_dir_all(path).map_err(Error::write(path))?;
    for folder in missing.iter().rev() {
        sync_folder(folder.parent().unwrap_or(folder))?;
    }
    Ok(missing)
}

/// Waits until the disk has the names in a folder.
pub fn sync_folder(path: &Path) -> Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    log::note("folder", path);
    #[cfg(unix)]
    match File::open(path).and_then(|folder| folder.sync_all()) {
        // Not every file system can do it, and then there is nothing to wait for.
        Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            return Err(Error::write(path)(error));
        }
        _ => {}
    }
    Ok(())
}

/// Waits until the disk has what was written to a file.
pub fn sync_file(file: &File, path: &Path) -> Result<()> {
    log::note("file", path);
    file.sync_all().map_err(Error::write(path))
}

/// Whether a file of this name was never completed, and goes when the folder is next written to.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY.0) && name.ends_with(TEMPORARY.1)
}

/// A file of a name that no other has, in a folder.
pub fn create_temporary(folder: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(format!("{}{process}-{number}-{now:x}{}", TEMPORARY.0, TEMPORARY.1));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (path, file)),
        }
    }
}

/// A file under a temporary name until it is complete; dropped before that, it is removed.
pub struct PendingFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl PendingFile {
    /// Begins the file that will be `path`.
    pub fn create(path: &Path) -> Result<PendingFile> {
        if path.file_name().is_none() {
            return Err(Error::write(path)(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file")));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let (temporary, file) = create_temporary(folder).map_err(Error::write(path))?;
        #[cfg(test)]
        let file = full_disk::instead_of(file);
        Ok(PendingFile { path: path.to_path_buf(), temporary, file: Some(BufWriter::with_capacity(1 << 16, file)) })
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn writer(&mut self) -> &mut BufWriter<File> {
        self.file.as_mut().expect("the file is open until it is finished or dropped")
    }

    /// Adds bytes at the end.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(Error::write(&self.path))
    }

    fn sync(&mut self) -> Result<()> {
        self.write_out()?;
        sync_file(self.file.as_ref().expect("the file is open").get_ref(), &self.path)
    }

    fn write_out(&mut self) -> Result<()> {
        self.flush().map_err(Error::write(&self.path))
    }

    /// Gives the file its name, once the disk has what is in it. The disk has the name after [`sync_folder`].
    pub fn finish(mut self) -> Result<()> {
        self.sync()?;
        self.rename().map(drop)
    }

    /// Gives the file its name, and goes on with it.
    fn rename(mut self) -> Result<File> {
        self.write_out()?;
        fs::rename(&self.temporary, &self.path).map_err(Error::write(&self.path))?;
        let writer = self.file.take().expect("the file is open until it is finished or dropped");
        writer.into_inner().map_err(|error| Error::write(&self.path)(error.into_error()))
    }

    /// The error of a file that cannot be written as asked.
    pub fn refused(&self, problem: String) -> Error {
        Error::write(&self.path)(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // Taken apart, since a dropped writer would first write out what it still holds.
            drop(file.into_parts());
            // The failure that led here is the one to report.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// What a thread that listens sees of the disk; and for tests a disk that is full.
pub mod log {
    use super::{Path, PathBuf};
    use std::cell::RefCell;

    thread_local! {
        static WAITED_FOR: RefCell<Option<Vec<(&'static str, PathBuf)>>> = const { RefCell::new(None) };
    }

    pub(super) fn note(what: &'static str, path: &Path) {
        WAITED_FOR.with_borrow_mut(|list| list.iter_mut().for_each(|list| list.push((what, path.to_path_buf()))));
    }

    /// What this thread has waited for since it last asked, files and folders in order; it listens from the first time on.
    pub fn take() -> Vec<(&'static str, PathBuf)> {
        WAITED_FOR.replace(Some(vec![])).unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) mod full_disk {
    use super::{File, OpenOptions};
    use std::cell::Cell;

    thread_local! {
        static IS_FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// From now on new files of this thread lie on a disk without room, or do not.
    pub(crate) fn fill_disk(is_full: bool) {
        IS_FULL.set(is_full);
    }

    pub(super) fn instead_of(file: File) -> File {
        if IS_FULL.get() { OpenOptions::new().write(true).open("/dev/full").expect("Linux has it") } else { file }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_are_neither_written_through_nor_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "untouched").unwrap();
        for name in ["a", "b", "c", "d"] {
            std::os::unix::fs::symlink(path("victim"), path(name)).unwrap();
        }
        write_atomically(&path("a"), b"mine").unwrap();
        write_lightly(&path("b"), b"mine").unwrap();
        begin_anew(&path("c")).unwrap().write_all(b"mine").unwrap();
        for error in [cut(&path("d"), 3).map(drop), copy_file(&path("d"), &path("e"))] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("/d: is a link"), "{error}");
        }
        assert!(["a", "b", "c"].iter().all(|name| fs::read(path(name)).unwrap() == b"mine"));
        assert_eq!(fs::read(path("victim")).unwrap(), b"untouched");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5, "nothing temporary is left");
    }

    #[test]
    fn what_is_cut_is_written_to_after_the_cut() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["a", "other"].map(|name| folder.path().join(name));
        fs::write(&path, "one two").unwrap();
        fs::hard_link(&path, &other).unwrap();
        cut(&path, 3).unwrap().write_all(b" three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one three");
        assert_eq!(fs::read(&other).unwrap(), b"one two", "another name of the old file keeps it");
    }

    #[test]
    fn folders_that_were_made_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(create_folder(&path("a/b")).unwrap(), [path("a/b"), path("a")]);
        assert!(create_folder(&path("a")).unwrap().is_empty());
        assert!(is_temporary(".issfa-12-0-ab.tmp") && !is_temporary("a.tmp"));
    }
}
