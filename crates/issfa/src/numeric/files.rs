//! Files that are either written whole or not at all.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Replaces `path` by `contents`, which have reached the disk before the old file goes.
pub fn write_atomically(path: &Path, contents: &[u8]) -> Result<()> {
    let mut file = PendingFile::create(path)?;
    file.append(contents)?;
    file.sync()?;
    file.finish()
}

/// Copies a file into a folder that is being made.
pub fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let mut source = File::open(from).map_err(Error::read(from))?;
    let mut copy = File::create(to).map_err(Error::write(to))?;
    io::copy(&mut source, &mut copy).map_err(Error::write(to))?;
    Ok(())
}

/// A file under the name `<name>.tmp` until it is complete; dropped before that, it is removed.
pub struct PendingFile {
    path: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl PendingFile {
    /// Begins the file that will be `path`.
    pub fn create(path: &Path) -> Result<PendingFile> {
        let Some(name) = path.file_name() else {
            return Err(Error::write(path)(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file")));
        };
        let mut name = name.to_os_string();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(Error::write(path))?;
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
        self.writer().get_ref().sync_all().map_err(Error::write(&self.path))
    }

    fn write_out(&mut self) -> Result<()> {
        self.flush().map_err(Error::write(&self.path))
    }

    /// Gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        self.write_out()?;
        fs::rename(&self.temporary, &self.path).map_err(Error::write(&self.path))?;
        self.file = None;
        Ok(())
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
