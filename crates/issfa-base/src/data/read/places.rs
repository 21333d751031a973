//! A file whose bytes are read by their places. (A map would end the process where another one cuts the file short.)

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open_file;
use crate::error::{Error, Result};

/// Bytes read at once: they stay in the cache until they are decoded.
pub const PIECE: usize = 1 << 18;

/// A file that is open, with its length at that time. Readers open it when rows are asked for and close it after, so that
/// many files need few descriptors.
pub struct PlacedFile {
    path: PathBuf,
    bytes: Bytes,
    n_bytes: u64,
}

/// Where the bytes are.
enum Bytes {
    /// On disk.
    File(File),
    /// In memory: a file that was unpacked.
    Memory(Arc<Vec<u8>>),
}

impl PlacedFile {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<PlacedFile> {
        let file = open_file(path)?;
        let n_bytes = file.metadata().map_err(Error::read(path))?.len();
        Ok(PlacedFile { path: path.to_path_buf(), bytes: Bytes::File(file), n_bytes })
    }

    /// A file that was unpacked; `path` is what messages call it.
    pub fn unpacked(path: &Path, bytes: Arc<Vec<u8>>) -> PlacedFile {
        let n_bytes = bytes.len() as u64;
        PlacedFile { path: path.to_path_buf(), bytes: Bytes::Memory(bytes), n_bytes }
    }

    /// Its length when it was opened.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Its first bytes, fewer where it has fewer.
    pub fn start(&self, n_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; n_bytes.min(usize::try_from(self.n_bytes).unwrap_or(usize::MAX))];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `bytes` from this place on.
    pub fn read(&self, place: u64, bytes: &mut [u8]) -> Result<()> {
        let file = match &self.bytes {
            Bytes::File(file) => file,
            Bytes::Memory(all) => {
                bytes.copy_from_slice(&all[place as usize..][..bytes.len()]);
                return Ok(());
            }
        };
        read_exact_at(file, place, bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let n_bytes = file.metadata().map_or(self.n_bytes, |now| now.len());
                let problem =
                    format!("became shorter while it was read: it ends at {n_bytes} bytes; wait until it is whole");
                Error::malformed(&self.path, problem)
            }
            _ => Error::read(&self.path)(error),
        })
    }

    /// Visits `n_bytes` from this place on in pieces, all but the last of a length that `size` divides.
    pub fn for_each_piece(&self, place: u64, n_bytes: usize, size: usize, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut piece = vec![0; n_bytes.min(PIECE / size * size)];
        let mut done = 0;
        while done < n_bytes {
            let now = piece.len().min(n_bytes - done);
            self.read(place + done as u64, &mut piece[..now])?;
            visit(&piece[..now]);
            done += now;
        }
        Ok(())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, place: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, place)
}

#[cfg(not(unix))]
fn read_exact_at(file: &File, place: u64, bytes: &mut [u8]) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    // The place in a file belongs to all its handles.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut file = file;
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(bytes)
}
