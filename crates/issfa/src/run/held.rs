//! Output folders that this process holds: how new results take the place of old ones.
//!
//! New files wait in a folder of their own inside of the output folder, which stays what it is (a link, a mount point, its
//! permissions). Once they are complete and on disk, the old ones go and the new ones take their place; whoever holds the
//! folder next finishes what a process that was killed had begun of that.

pub use super::entries::refuse_links;
use super::entries::{Kind, Stage, entries, kind};
use super::folder::{CONFIG, Output};
use super::lock::Lock;
use crate::error::{Error, Result, setting};
use crate::numeric::files::{create_folder, sync_folder};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// An output folder that no other process writes to as long as this is there.
pub struct Held {
    folder: PathBuf,
    output: Output,
    /// Elsewhere than on rank 0 there is none: it holds the folder for all.
    lock: Option<Lock>,
    /// Whether results wait until they take the place of what is there.
    is_staged: bool,
    /// Folders that were made for it, and go again unless something comes of it.
    made: Vec<PathBuf>,
}

impl Held {
    /// A folder for new results: it is not there, or empty, or may be replaced and holds nothing that the same command did
    /// not make, nor any of the `inputs`.
    pub fn for_new(folder: &Path, output: Output, overwrite: bool, inputs: &[PathBuf]) -> Result<Held> {
        let check = || check(folder, output, overwrite, inputs);
        check()?;
        let mut held = Held { folder: folder.into(), output, lock: None, is_staged: true, made: Vec::new() };
        held.make_and_lock()?;
        settle(folder)?;
        check()?;
        held.clear()?;
        Ok(held)
    }

    /// A run folder that is there, to be added to.
    pub fn of_run(folder: &Path) -> Result<Held> {
        let is_on_the_way = [Stage::Ready, Stage::Moving].iter().any(|stage| stage.is_there(folder, Output::Run));
        if !folder.join(CONFIG).is_file() && !is_on_the_way {
            Lock::check_free(folder)?;
            return Err(Error::NotA { kind: "run folder", path: folder.to_path_buf(), missing: CONFIG });
        }
        let lock = Some(Lock::take(folder)?);
        let held = Held { folder: folder.into(), output: Output::Run, lock, is_staged: false, made: Vec::new() };
        settle(folder)?;
        refuse_links(folder)?;
        held.clear()?;
        Ok(held)
    }

    /// Who writes to a folder, if anybody does; nothing is written to find out.
    pub fn owner(folder: &Path) -> Option<String> {
        Lock::owner(folder)
    }

    /// A run folder that rank 0 holds, on the other ranks.
    pub fn by_rank_0(folder: &Path, is_new: bool) -> Held {
        Held { folder: folder.into(), output: Output::Run, lock: None, is_staged: is_new, made: Vec::new() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where files are to be written now.
    pub fn place(&self) -> PathBuf {
        if self.is_staged { Stage::Writing.folder(&self.folder, self.output) } else { self.folder.clone() }
    }

    /// Makes the folder where new results wait.
    pub fn begin(&self) -> Result<PathBuf> {
        let place = self.place();
        create_folder(&place)?;
        Ok(place)
    }

    /// Gives new results the place of old ones. From now on files are written into the folder itself.
    pub fn publish(&mut self) -> Result<()> {
        let is_staged = std::mem::replace(&mut self.is_staged, false);
        self.check()?;
        if !is_staged || self.lock.is_none() {
            return Ok(());
        }
        let [writing, ready] = [Stage::Writing, Stage::Ready].map(|stage| stage.folder(&self.folder, self.output));
        sync_all(&writing)?;
        rename(&writing, &ready)?;
        sync_folder(&self.folder)?;
        settle(&self.folder)
    }

    /// Refuses to go on where another process took this one for lost.
    pub fn check(&self) -> Result<()> {
        self.lock.as_ref().map_or(Ok(()), Lock::check)
    }

    fn make_and_lock(&mut self) -> Result<()> {
        const TRIES: usize = 100;
        for attempt in 0.. {
            self.made.extend(create_folder(&self.folder)?);
            match Lock::take(&self.folder) {
                // Another process had made the folder, and has just taken it away again.
                Err(Error::Write { source, .. }) if source.kind() == ErrorKind::NotFound && attempt < TRIES => {}
                taken => return taken.map(|lock| self.lock = Some(lock)),
            }
        }
        unreachable!("the last try returns")
    }

    /// Takes away what processes that were killed did not finish.
    fn clear(&self) -> Result<()> {
        for output in Output::ALL {
            let place = Stage::Writing.folder(&self.folder, output);
            if Stage::Writing.is_there(&self.folder, output) {
                fs::remove_dir_all(&place).map_err(Error::write(&place))?;
            }
        }
        let strays = entries(&self.folder, self.output)?.into_iter().filter(|entry| entry.kind == Kind::Stray);
        for entry in strays.filter(|entry| !entry.is_folder) {
            fs::remove_file(&entry.path).map_err(Error::write(&entry.path))?;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        if self.is_staged {
            let _ = fs::remove_dir_all(self.place());
        }
        drop(lock);
        if self.is_staged {
            // Only those that are empty go.
            self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        }
    }
}

/// Whether results may be written to `folder`.
fn check(folder: &Path, output: Output, overwrite: bool, inputs: &[PathBuf]) -> Result<()> {
    if folder.is_file() {
        return Err(Error::malformed(folder, format!("is a file; choose a folder for {}", setting("out"))));
    }
    if let Err(error) = fs::read_dir(folder) {
        // It is made, or not, and then the reason is told.
        let is_missing = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        return if is_missing { Ok(()) } else { Err(Error::write(folder)(error)) };
    }
    let list = entries(folder, output)?;
    if list.iter().all(|entry| matches!(entry.kind, Kind::Stray | Kind::Machinery)) {
        return Ok(());
    }
    if !overwrite {
        Lock::check_free(folder)?;
        return Err(Error::OutputExists { path: folder.to_path_buf() });
    }
    if let Some(foreign) = list.iter().find(|entry| entry.kind == Kind::Foreign) {
        let problem = format!(
            "holds '{}', which this command does not make, so it is not replaced; move it or choose another {}",
            foreign.place,
            setting("out")
        );
        return Err(Error::malformed(folder, problem));
    }
    match inputs.iter().find(|input| is_inside(input, folder, output)) {
        Some(input) => Err(Error::InputInOutput { input: input.clone(), out: folder.to_path_buf() }),
        None => Ok(()),
    }
}

/// Whether a file, or what it is a link to, would go with what is in a folder.
fn is_inside(file: &Path, folder: &Path, output: Output) -> bool {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let parent = file.parent().and_then(|parent| parent.canonicalize().ok());
    let named = parent.zip(file.file_name()).map(|(parent, name)| parent.join(name));
    let Ok(folder) = folder.canonicalize() else { return false };
    let would_go = |path: PathBuf| {
        let Ok(inside) = path.strip_prefix(&folder) else { return false };
        let names: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        kind(output, &names.iter().map(|name| &**name).collect::<Vec<_>>()) != Kind::Foreign
    };
    named.into_iter().chain(file.canonicalize().ok()).any(would_go)
}

/// Finishes what was begun of giving new results the place of old ones.
fn settle(folder: &Path) -> Result<()> {
    for output in Output::ALL {
        let [ready, moving] = [Stage::Ready, Stage::Moving].map(|stage| stage.folder(folder, output));
        if Stage::Ready.is_there(folder, output) {
            take_out(folder, output)?;
            rename(&ready, &moving)?;
            sync_folder(folder)?;
        }
        if Stage::Moving.is_there(folder, output) {
            move_in(&moving, folder)?;
            sync_folder(folder)?;
        }
    }
    Ok(())
}

/// Removes what the command made. The file without which the folder is not taken for a run or simulation goes first.
fn take_out(folder: &Path, output: Output) -> Result<()> {
    let mut made = entries(folder, output)?;
    made.retain(|entry| entry.kind == Kind::Made);
    made.sort_by_key(|entry| !is_first_to_go(&entry.place));
    let (first, others) = made.split_at(made.partition_point(|entry| is_first_to_go(&entry.place)));
    for entry in first.iter().chain(others.iter().rev()) {
        let removed = if entry.is_folder { fs::remove_dir(&entry.path) } else { fs::remove_file(&entry.path) };
        match removed {
            // Somebody has put something into it meanwhile, or it is a mount point: the new files go into it.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::ResourceBusy) => {}
            removed => removed.map_err(Error::write(&entry.path))?,
        }
    }
    Ok(())
}

fn is_first_to_go(name: &str) -> bool {
    [CONFIG, "simulation.toml"].contains(&name)
}

/// Moves everything in a folder into another, and the folder is gone. What goes first comes last.
fn move_in(from: &Path, to: &Path) -> Result<()> {
    let list = fs::read_dir(from).map_err(Error::read(from))?;
    let mut names: Vec<_> = list.flatten().map(|entry| entry.file_name()).collect();
    names.sort_by_key(|name| (is_first_to_go(&name.to_string_lossy()), name.clone()));
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    for name in names {
        let (old, new) = (from.join(&name), to.join(&name));
        match is_folder(&old) && is_folder(&new) {
            true => move_in(&old, &new)?,
            false => rename(&old, &new)?,
        }
    }
    sync_folder(to)?;
    fs::remove_dir(from).map_err(Error::write(from))
}

/// Waits until the disk has the names in a folder and in those inside of it.
fn sync_all(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::read(folder))?.flatten() {
        if entry.file_type().is_ok_and(|found| found.is_dir()) {
            sync_all(&entry.path())?;
        }
    }
    sync_folder(folder)
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::write(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn names(folder: &Path) -> String {
        let list = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names.join(" ")
    }

    #[test]
    fn old_results_go_when_new_ones_are_complete_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let path = |name: &str| run.join(name);
        for (name, text) in
            [("config.toml", "old"), ("draws/draw-000001.safetensors", "old"), ("chain-2/trace.csv", "")]
        {
            write(path(name), text);
        }
        let before = names(&run);
        let mut held = Held::for_new(&run, Output::Run, true, &[]).unwrap();
        let place = held.begin().unwrap();
        write(place.join("config.toml"), "new");
        write(place.join("draws/draw-000002.safetensors"), "new");
        drop(held);
        assert_eq!(names(&run), before, "nothing came of it");
        held = Held::for_new(&run, Output::Run, true, &[]).unwrap();
        let place = held.begin().unwrap();
        write(place.join("config.toml"), "new");
        write(place.join("draws/draw-000002.safetensors"), "new");
        // Somebody else's, which comes while the new ones are made.
        write(path("draws/thesis.tex"), "mine");
        held.publish().unwrap();
        assert_eq!(held.place(), run);
        drop(held);
        assert_eq!(names(&run), "config.toml draws");
        assert_eq!(names(&path("draws")), "draw-000002.safetensors thesis.tex");
        assert_eq!(fs::read(path("config.toml")).unwrap(), b"new");
        assert!(Held::for_new(&run, Output::Run, true, &[]).err().unwrap().to_string().contains("'draws/thesis.tex'"));
    }

    #[test]
    fn folders_that_nothing_came_of_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        let held = Held::for_new(&out, Output::Transform, false, &[]).unwrap();
        held.begin().unwrap();
        assert!(matches!(Held::for_new(&out, Output::Transform, true, &[]), Err(Error::InUse { .. })));
        drop(held);
        assert_eq!(names(folder.path()), "");
        assert!(matches!(Held::of_run(&out), Err(Error::NotA { .. })));
    }
}
