//! A file as bytes in a memory map that gives its pages back.

use std::path::Path;

use memmap2::Mmap;

use super::open_file;
use crate::error::{Error, Result};

/// Fewer bytes than this are not worth a call to the system.
const WORTH_LETTING_GO: usize = 1 << 16;

/// A read-only view of a whole file.
pub struct MappedFile {
    map: Mmap,
}

impl MappedFile {
    /// Maps a file.
    pub fn open(path: &Path) -> Result<MappedFile> {
        let file = open_file(path)?;
        // SAFETY: we only read. Another process that cuts the file short meanwhile would end this one with SIGBUS;
        // that is the known price of a map, and no lock that other programs would respect could prevent it.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::read(path))?;
        Ok(MappedFile { map })
    }

    /// All of its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Tells the system that these bytes of the map are done with, so that a file read once does not stay in this
    /// process's memory.
    pub fn let_go(&self, bytes: &[u8]) {
        #[cfg(unix)]
        if bytes.len() >= WORTH_LETTING_GO {
            let first = bytes.as_ptr() as usize - self.map.as_ptr() as usize;
            // SAFETY: the map is a shared, read-only view of a file: pages let go are read again from the file if needed.
            let _ = unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, bytes.len()) };
        }
    }
}
