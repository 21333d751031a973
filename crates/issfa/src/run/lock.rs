//! The lock of a folder: one process writes to it at a time, and a process that is gone holds nothing.
//!
//! It is a lock of the operating system on the file `lock`, which goes with the process, however that ends. Where the file
//! system has none, it is the file `lock.held`, made by whoever comes first and written again every few seconds: one whose
//! process is not there any more, or that was not written for long, is set aside.

use crate::error::{Error, Result};
use crate::numeric::files::{create_temporary, without_links};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file that is locked.
pub(super) const LOCK: &str = "lock";
/// The file that is the lock where files cannot be locked.
pub(super) const HELD: &str = "lock.held";
/// So often a file that stands for a lock is written again,
const BEAT: Duration = Duration::from_secs(20);
/// and after so long without that its process is taken for lost.
const PATIENCE: Duration = Duration::from_secs(300);
/// Others may take the file away between two steps, but not so often.
const TRIES: usize = 100;
/// More than any owner writes.
const MOST_BYTES: u64 = 8192;

/// A lock that this process has.
pub struct Lock {
    /// The file that says whose it is.
    path: PathBuf,
    file: File,
    text: String,
    /// Where the file alone is the lock: ends the thread that writes it again.
    heart: Option<Sender<()>>,
}

/// Who has a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    host: String,
    command: String,
    /// Seconds since 1970.
    since: u64,
    /// Of the machine, in which the number of the process means something.
    #[serde(default)]
    boot: String,
    /// Processes of other containers have numbers of their own.
    #[serde(default)]
    space: String,
    /// When the process began, by the clock of the machine: numbers are given again.
    #[serde(default)]
    began: String,
}

impl Lock {
    /// Locks a folder that exists; refused where another process has it.
    pub fn take(folder: &Path) -> Result<Lock> {
        let path = folder.join(LOCK);
        let mut n_refusals = 0;
        for _ in 0..TRIES {
            let file = open(&path, true)?;
            match file.try_lock() {
                // Unless whoever had it before has just taken it away.
                Ok(()) if is_at(&file, &path) => return Lock::new(path, file, false),
                Ok(()) => {}
                // Somebody may just be looking whether it is free.
                Err(TryLockError::WouldBlock) if n_refusals < 3 => {
                    n_refusals += 1;
                    thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Err(in_use(folder, read_text(&file))),
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(&path);
                    return Lock::take_by_name(folder, PATIENCE);
                }
            }
        }
        Err(Error::write(&path)(io::Error::new(io::ErrorKind::WouldBlock, "others keep taking it away")))
    }

    /// Refuses a folder that another process has, without leaving a trace.
    pub fn check_free(folder: &Path) -> Result<()> {
        let Ok(file) = open(&folder.join(LOCK), false) else { return Ok(()) };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(in_use(folder, read_text(&file))),
            _ => Ok(()),
        }
    }

    /// Who has a folder, if anybody; nothing is written.
    pub fn owner(folder: &Path) -> Option<String> {
        let by = |said: &str| toml::from_str::<Owner>(said).map_or("another process".into(), |owner| owner.in_words());
        // Shared, so that a file which may only be read will do, and others who look do not count.
        if let Ok(file) = File::open(folder.join(LOCK))
            && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
        {
            return Some(by(&read_text(&file)));
        }
        let file = File::open(folder.join(HELD)).ok()?;
        let age = file.metadata().and_then(|found| found.modified()).ok()?.elapsed().unwrap_or_default();
        (age < PATIENCE).then(|| by(&read_text(&file)))
    }

    fn take_by_name(folder: &Path, patience: Duration) -> Result<Lock> {
        let path = folder.join(HELD);
        for _ in 0..TRIES {
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Lock::new(path, file, true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::write(&path)(error)),
            }
            let Ok(file) = open(&path, false) else { continue };
            let said = read_text(&file);
            if is_alive(&file, &said, folder, patience)? {
                return Err(in_use(folder, said));
            }
            set_aside(&path, &said)?;
        }
        Err(Error::write(&path)(io::Error::new(io::ErrorKind::WouldBlock, "others keep taking it away")))
    }

    fn new(path: PathBuf, mut file: File, is_by_name: bool) -> Result<Lock> {
        let text = toml::to_string(&Owner::this_process()).expect("names and numbers are TOML");
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(text.as_bytes())
        };
        write(&mut file).map_err(Error::write(&path))?;
        let heart = is_by_name.then(|| file.try_clone().ok().map(|file| beat(file, text.clone()))).flatten();
        Ok(Lock { path, file, text, heart })
    }

    /// Whether it is still this process's: one that slept for long may have been taken for lost.
    pub fn check(&self) -> Result<()> {
        if self.heart.is_none() {
            return Ok(());
        }
        let said = fs::read_to_string(&self.path).unwrap_or_default();
        let folder = self.path.parent().unwrap_or(&self.path);
        if said == self.text { Ok(()) } else { Err(in_use(folder, said)) }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.heart = None;
        // As long as nobody else can have it: taken away before it is let go.
        if fs::read_to_string(&self.path).is_ok_and(|said| said == self.text) && is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens the file of a lock, and nothing that it is not safe to write to.
fn open(path: &Path, create: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false);
    let file = without_links(&mut options).open(path).map_err(Error::write(path))?;
    let found = file.metadata().map_err(Error::write(path))?;
    #[cfg(unix)]
    let has_other_names = std::os::unix::fs::MetadataExt::nlink(&found) > 1;
    #[cfg(not(unix))]
    let has_other_names = false;
    if !found.is_file() || has_other_names {
        return Err(Error::malformed(path, "should be a file that issfa made, but is something else; take it away"));
    }
    Ok(file)
}

/// Whether an open file is the one that has this name now.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        let named = fs::symlink_metadata(path).map(place);
        file.metadata().map(place).is_ok_and(|own| named.is_ok_and(|named| named == own))
    }
    #[cfg(not(unix))]
    {
        file.metadata().is_ok() && path.exists()
    }
}

fn read_text(mut file: &File) -> String {
    let mut bytes = Vec::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(MOST_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn in_use(folder: &Path, said: String) -> Error {
    let by = toml::from_str::<Owner>(&said).map_or("another process".into(), |owner| owner.in_words());
    Error::InUse { path: folder.to_path_buf(), by }
}

/// Whether whoever made the file is at work: its process where that can be seen from here, else by when it was last written.
fn is_alive(file: &File, said: &str, folder: &Path, patience: Duration) -> Result<bool> {
    let own = Owner::this_process();
    if let Ok(owner) = toml::from_str::<Owner>(said)
        && !own.boot.is_empty()
        && (&owner.boot, &owner.space) == (&own.boot, &own.space)
    {
        return Ok(beginning(owner.pid) == owner.began);
    }
    // Both times by the clock of the file system, which may be another machine's.
    let (path, now) = create_temporary(folder).map_err(Error::write(folder))?;
    let modified = |file: &File| file.metadata().and_then(|found| found.modified());
    let times = modified(&now).and_then(|now| Ok((now, modified(file)?)));
    let _ = fs::remove_file(&path);
    let (now, then) = times.map_err(Error::write(folder))?;
    Ok(now.duration_since(then).unwrap_or_default() < patience)
}

/// Takes away the file of a process that is gone, unless another has just done so and made its own.
fn set_aside(path: &Path, said: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let (aside, _) = create_temporary(folder).map_err(Error::write(path))?;
    match fs::rename(path, &aside) {
        Ok(()) if fs::read_to_string(&aside).is_ok_and(|found| found != said) => {
            fs::rename(&aside, path).map_err(Error::write(path))
        }
        _ => fs::remove_file(&aside).map_err(Error::write(path)),
    }
}

/// Writes the file again and again, so that its time is that of a process at work, until the sender goes.
fn beat(mut file: File, text: String) -> Sender<()> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        while receiver.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
            // A beat that fails is a beat that is missing.
            let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(text.as_bytes()));
        }
    });
    sender
}

impl Owner {
    fn this_process() -> Owner {
        let read = |path: &str| fs::read_to_string(path).map_or(String::new(), |text| text.trim().to_string());
        let space = fs::read_link("/proc/self/ns/pid").map_or(String::new(), |link| link.display().to_string());
        let pid = std::process::id();
        Owner {
            pid,
            host: host(),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            boot: read("/proc/sys/kernel/random/boot_id"),
            space,
            began: beginning(pid),
        }
    }

    fn in_words(&self) -> String {
        // The file may come from anywhere: nothing in it is to reach a terminal but letters, and not too many.
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(200).collect::<String>();
        let (host, command) = (plain(&self.host), plain(&self.command));
        format!("process {} on {host} ({command}, since {})", self.pid, date(self.since))
    }
}

/// When a process began, as its system counts; nothing where there is no such process.
fn beginning(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field is the name, in which there may be anything.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    fields.split(' ').nth(19).unwrap_or_default().to_string()
}

fn host() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_else(|_| "this machine".into());
}

/// Seconds since 1970 as a date, in universal time (days to years by the way of 400 years from 1 March 0000).
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = 400 * era + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_name(folder: &Path) -> Result<Lock> {
        Lock::take_by_name(folder, PATIENCE)
    }

    #[test]
    fn one_has_it_and_the_other_is_told_who() {
        let folder = tempfile::tempdir().unwrap();
        for take in [Lock::take, by_name] {
            let lock = take(folder.path()).unwrap();
            let error = take(folder.path()).err().unwrap();
            let expected = format!("process {} on {} (", std::process::id(), host());
            assert!(error.is_wrong_use() && error.to_string().contains(&expected), "{error}");
            lock.check().unwrap();
            drop(lock);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        }
        Lock::check_free(folder.path()).unwrap();
        assert_eq!(Lock::owner(folder.path()), None);
        for take in [Lock::take, by_name] {
            let _lock = take(folder.path()).unwrap();
            assert!(Lock::owner(folder.path()).unwrap().contains(&std::process::id().to_string()));
        }
        let _lock = Lock::take(folder.path()).unwrap();
        assert!(matches!(Lock::check_free(folder.path()), Err(Error::InUse { .. })));
    }

    #[test]
    fn what_a_process_that_is_gone_left_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let own = Owner::this_process();
        let gone = Owner { pid: u32::MAX, began: "1".into(), ..own.clone() };
        let again = Owner { began: "1".into(), ..own.clone() };
        for owner in [&gone, &again] {
            for name in [LOCK, HELD] {
                fs::write(folder.path().join(name), toml::to_string(owner).unwrap()).unwrap();
            }
            drop(Lock::take(folder.path()).unwrap());
            drop(by_name(folder.path()).unwrap());
        }
        // Elsewhere, or torn: as long as it is written.
        let elsewhere = Owner { boot: "other".into(), host: "node7".into(), ..gone };
        for text in [toml::to_string(&elsewhere).unwrap(), String::new(), "\u{1b}[31m".into()] {
            fs::write(folder.path().join(HELD), &text).unwrap();
            let error = by_name(folder.path()).err().unwrap().to_string();
            assert!(error.contains(if text.contains("node7") { "on node7" } else { "another process" }), "{error}");
            drop(Lock::take_by_name(folder.path(), Duration::ZERO).unwrap());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_that_was_taken_over_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let lock = by_name(folder.path()).unwrap();
        fs::write(folder.path().join(HELD), "another's").unwrap();
        assert!(lock.check().is_err());
        drop(lock);
        assert!(folder.path().join(HELD).exists(), "what is not ours stays");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_by_way_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [victim, lock] = ["victim", LOCK].map(|name| folder.path().join(name));
        fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, &lock).unwrap();
        assert!(Lock::take(folder.path()).err().unwrap().to_string().contains(LOCK));
        fs::remove_file(&lock).unwrap();
        fs::hard_link(&victim, &lock).unwrap();
        assert!(Lock::take(folder.path()).err().unwrap().to_string().contains("something else"));
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
    }

    #[test]
    fn words_of_strangers_are_cleaned() {
        let owner = Owner { command: "a\u{1b}[2Jb".repeat(100), ..Owner::this_process() };
        let words = owner.in_words();
        assert!(!words.contains('\u{1b}') && words.len() < 500, "{words}");
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(1_709_210_096), "2024-02-29 12:34:56 UTC");
        assert_eq!(date(4_102_444_799), "2099-12-31 23:59:59 UTC");
    }
}
