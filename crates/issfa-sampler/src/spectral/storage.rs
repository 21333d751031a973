//! Where the numbers of the data live: in memory, on large pages where there are many, or in a file mapped into memory.

use crate::data::memory;
use crate::error::{Error, Result};
use crate::numeric::linalg::Real;
use memmap2::MmapMut;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// From this size on, memory is asked for in large pages: walking through it is then a good deal faster.
const LARGE: usize = 32 << 20;

/// A fixed number of numbers, all zero at first.
#[derive(Debug)]
pub enum Storage<R> {
    Small(Vec<R>),
    Mapped(MmapMut, PhantomData<R>),
    Spilled(Spilled),
}

/// Numbers in a file, of which some tiles are in memory at a time.
#[derive(Debug)]
pub struct Spilled {
    map: MmapMut,
    folder: PathBuf,
    /// The last tile that was looked at.
    furthest: AtomicUsize,
    /// The end of the tiles that were fetched for those who look at all of them, one after the other.
    fetched: AtomicUsize,
}

/// How a tile is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All of it, and then the next ones.
    All,
    /// A few rows of it, or it alone: whoever looks asks for what comes next.
    Rows,
}

/// What is fetched while a tile is being worked on: so many tiles for each thread, and at least so many bytes.
const AHEAD: usize = 2;
const AHEAD_BYTES: usize = 8 << 20;

/// Systems fetch no more at a time than they would on their own, whatever they are asked for: this many bytes at least.
const FETCHED_AT_ONCE: usize = 128 << 10;

/// Tiles that stay in memory behind the last one that was asked for: other threads may still be at work on them.
pub fn n_behind() -> usize {
    2 * rayon::current_num_threads() + 1
}

impl<R: Real> Storage<R> {
    /// Room in memory, for what is known to fit.
    pub fn in_memory(n: usize) -> Storage<R> {
        Storage::try_in_memory(n).unwrap_or_else(|_| Storage::Small(vec![R::zero(); n]))
    }

    /// Room in memory; an error where the system refuses it.
    pub fn try_in_memory(n: usize) -> Result<Storage<R>> {
        let n_bytes = n.saturating_mul(R::BYTES);
        if n_bytes < LARGE {
            return Ok(Storage::Small(vec![R::zero(); n]));
        }
        let map = MmapMut::map_anon(n_bytes).map_err(|_| memory::no_room("the data", n_bytes))?;
        // A hint: without it everything works, more slowly.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Storage::Mapped(map, PhantomData))
    }

    /// Room in memory that the system has cleared already: it does so at the first look, which takes its time.
    fn touched(n: usize) -> Result<Storage<R>> {
        const PAGE: usize = 4096;
        let mut storage = Storage::try_in_memory(n)?;
        storage.iter_mut().step_by(PAGE / R::BYTES).for_each(|x| *x = std::hint::black_box(R::zero()));
        Ok(storage)
    }

    /// Room in a file in `folder` that has no name and goes with the process, however it ends.
    pub fn in_file(n: usize, folder: &Path) -> Result<Storage<R>> {
        if n == 0 {
            return Ok(Storage::in_memory(0));
        }
        std::fs::create_dir_all(folder).map_err(Error::write(folder))?;
        let (path, file) = new_file(folder)?;
        // On Unix an open file outlives its name; elsewhere the name stays until someone removes it.
        let _ = std::fs::remove_file(&path);
        reserve(&file, (n * R::BYTES) as u64).map_err(Error::write(&path))?;
        // SAFETY: the file is ours alone: it was made just now and has no name that others could open it by.
        let map = unsafe { MmapMut::map_mut(&file) }.map_err(Error::write(&path))?;
        // Around a row that is looked at the system would read as much as it reads ahead, maybe whole tiles: what is to be read is
        // said instead. A hint.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Random);
        let (furthest, fetched) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Storage::Spilled(Spilled { map, folder: folder.to_path_buf(), furthest, fetched }))
    }

    /// Room where these numbers are: in a file beside theirs, if they are in one and there can be another.
    pub fn beside(&self, n: usize) -> Storage<R> {
        match self {
            Storage::Spilled(Spilled { folder, .. }) => {
                Storage::in_file(n, folder).unwrap_or_else(|_| Storage::in_memory(n))
            }
            _ => Storage::in_memory(n),
        }
    }

    /// To be told before a tile is looked at: of numbers in a file the next tiles are fetched, and those that were left are let
    /// go. Hints only: whoever still looks at a tile gets it again.
    pub fn follow(&self, tile: usize, tile_bytes: usize, look: Look) {
        if let Storage::Spilled(spilled) = self {
            spilled.follow(tile, tile_bytes, look);
        }
    }

    /// Begins to fetch bytes of a file that will be looked at soon.
    pub fn ask_for(&self, bytes: Range<usize>) {
        if let Storage::Spilled(spilled) = self {
            spilled.fetch(bytes);
        }
    }

    /// Lets all pages of a file go from memory; what was written goes to the disk.
    pub fn let_go(&self) {
        if let Storage::Spilled(spilled) = self {
            spilled.let_go(0..spilled.map.len());
        }
    }
}

/// Room in memory that is made on a thread of its own, before it is known for sure how many numbers there are.
pub struct Ahead<R>(JoinHandle<Result<Storage<R>>>);

impl<R: Real> Ahead<R> {
    /// Begins to make room for so many numbers.
    pub fn begin(n: usize) -> Ahead<R> {
        Ahead(std::thread::spawn(move || Storage::touched(n)))
    }

    /// The room, once it is made; let go where it is not for so many numbers.
    pub(super) fn taken(self, n: usize) -> Option<Storage<R>> {
        self.0.join().ok()?.ok().filter(|room| room.len() == n)
    }
}

impl Spilled {
    fn follow(&self, tile: usize, tile_bytes: usize, look: Look) {
        if look == Look::All {
            self.fetch_ahead(tile, tile_bytes);
        }
        let (furthest, behind) = (self.furthest.load(Ordering::Relaxed), n_behind());
        let starts_anew = tile + behind < furthest;
        if tile <= furthest && !starts_anew {
            return;
        }
        if self.furthest.compare_exchange(furthest, tile, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let first = furthest.saturating_sub(behind);
        let left = if starts_anew { first..furthest + 1 } else { first..tile.saturating_sub(behind) };
        self.let_go(left.start * tile_bytes..left.end * tile_bytes);
    }

    /// Fetches what follows a tile, and the tile where no one has: each tile once as those who look go from the first to the last.
    fn fetch_ahead(&self, tile: usize, tile_bytes: usize) {
        let ahead = (AHEAD * rayon::current_num_threads()).max(AHEAD_BYTES.div_ceil(tile_bytes.max(1)));
        let (fetched, end) = (self.fetched.load(Ordering::Relaxed), tile + ahead + 1);
        let goes_on = (tile + 1..=end + n_behind()).contains(&fetched);
        if goes_on {
            // What was fetched too long ago may be gone, and would come back page by page.
            self.fetch(tile * tile_bytes..(tile + 1) * tile_bytes);
        }
        let start = if goes_on { fetched } else { tile };
        let is_mine = || self.fetched.compare_exchange(fetched, end, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if start < end && is_mine() {
            self.fetch(start * tile_bytes..end * tile_bytes);
        }
    }

    fn fetch(&self, bytes: Range<usize>) {
        let bytes = bytes.start..bytes.end.min(self.map.len());
        #[cfg(unix)]
        if !bytes.is_empty() {
            for start in bytes.clone().step_by(FETCHED_AT_ONCE) {
                let n = FETCHED_AT_ONCE.min(bytes.end - start);
                let _ = self.map.advise_range(memmap2::Advice::WillNeed, start, n);
            }
        }
    }

    fn let_go(&self, bytes: Range<usize>) {
        let bytes = bytes.start..bytes.end.min(self.map.len());
        #[cfg(unix)]
        if !bytes.is_empty() {
            // SAFETY: of a shared map of a file nothing is lost: its pages come back from the file's.
            let _ = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len())
            };
        }
    }
}

/// A file of a new name. Processes on other machines, or in other containers, may have the same number.
fn new_file(folder: &Path) -> Result<(std::path::PathBuf, File)> {
    const TRIES: usize = 100;
    for attempt in 0.. {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let path = folder.join(format!("issfa-spill-{}-{now}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < TRIES => {}
            Err(source) => return Err(Error::Write { path, source }),
        }
    }
    unreachable!("the last try returns")
}

/// Makes sure that the disk holds the whole file: a full disk shows now, as an error, and not later, as a signal.
fn reserve(mut file: &File, n_bytes: u64) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    if rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, n_bytes).is_ok() {
        return Ok(());
    }
    let zeros = vec![0; 1 << 20];
    let mut left = n_bytes;
    while left > 0 {
        let n = left.min(zeros.len() as u64);
        file.write_all(&zeros[..n as usize])?;
        left -= n;
    }
    Ok(())
}

impl<R: Real> Deref for Storage<R> {
    type Target = [R];

    fn deref(&self) -> &[R] {
        match self {
            Storage::Small(values) => values,
            // SAFETY: maps start at a page, hold whole numbers, and every pattern of bits is a floating-point number.
            Storage::Mapped(map, _) | Storage::Spilled(Spilled { map, .. }) => unsafe {
                std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / R::BYTES)
            },
        }
    }
}

impl<R: Real> DerefMut for Storage<R> {
    fn deref_mut(&mut self) -> &mut [R] {
        match self {
            Storage::Small(values) => values,
            // SAFETY: as above, and the map is borrowed mutably.
            Storage::Mapped(map, _) | Storage::Spilled(Spilled { map, .. }) => unsafe {
                std::slice::from_raw_parts_mut(map.as_mut_ptr().cast(), map.len() / R::BYTES)
            },
        }
    }
}

impl<R: Real> Storage<R> {
    /// A copy in memory.
    pub fn copied(&self) -> Storage<R> {
        let mut copy = Storage::in_memory(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_holds_its_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let n = LARGE / 4 + 3;
        let kinds = [Storage::<f32>::in_memory(5), Storage::in_memory(n), Storage::in_file(n, folder.path()).unwrap()];
        for mut storage in kinds {
            let last = storage.len() - 1;
            assert!(storage.iter().all(|x| *x == 0.0));
            storage[last] = 7.5;
            assert_eq!(storage.copied()[last], 7.5);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
        assert!(matches!(Storage::<f64>::in_file(4, Path::new("/dev/null/no")), Err(Error::Write { .. })));
    }

    #[test]
    fn what_is_let_go_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (n_tiles, width) = (40, 3000);
        let mut storage = Storage::<f32>::in_file(n_tiles * width, folder.path()).unwrap();
        storage.iter_mut().enumerate().for_each(|(at, x)| *x = at as f32);
        storage.let_go();
        for pass in 0..3 {
            for tile in 0..n_tiles {
                storage.follow(tile, 4 * width, if pass == 1 { Look::Rows } else { Look::All });
                let values = &storage[tile * width..(tile + 1) * width];
                assert!(
                    values.iter().enumerate().all(|(at, x)| *x == (tile * width + at) as f32),
                    "{pass}: tile {tile}"
                );
            }
        }
        let beside = storage.beside(5);
        assert!(matches!(beside, Storage::Spilled(_)) && beside.len() == 5);
        assert!(matches!(Storage::<f32>::in_memory(5).beside(5), Storage::Small(_)));
    }
}
