//! Rows as a user gives them: files or arrays, and what belongs to them.

use super::confounds::Confounds;
use super::division::{Division, Side};
use super::nifti::space::check_same_place;
use super::observations::check_source;
use super::read::memory::{ArrayRows, Remembered, Values};
use super::read::{self, Reading, RowSource};
use super::runs::{NamedRun, run_names};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What an array is called in messages.
const ARRAY: &str = "values";

/// Rows to be fitted or looked at, with the mask, runs, confounds and held-out rows that came along with them. What is
/// a file may be named in the settings instead. Rows are made and told of by functions; the fields are the engine's, without a promise
/// that they stay.
#[derive(Clone)]
pub struct Rows {
    /// One a run.
    #[doc(hidden)]
    pub sources: Vec<Arc<dyn RowSource>>,
    /// The files given; none for arrays.
    #[doc(hidden)]
    pub paths: Vec<PathBuf>,
    /// Runs that rows of one source are cut into.
    #[doc(hidden)]
    pub runs: Option<Vec<NamedRun>>,
    /// Which sites take part.
    #[doc(hidden)]
    pub mask: Option<Vec<bool>>,
    /// One a run, or one for all.
    #[doc(hidden)]
    pub confounds: Vec<Confounds>,
    /// Rows left out of the fit, whose residual is traced.
    #[doc(hidden)]
    pub heldout: Option<Box<Rows>>,
    /// A part of them, where not all take part.
    #[doc(hidden)]
    pub part: Option<(Arc<Division>, Side)>,
}

impl Rows {
    /// Rows of an array: row-major, f32 or f64, each row on the grid in C order. NaN is refused, unless the settings take
    /// it for a cell that was not observed.
    pub fn from_values(values: impl Into<Values>, grid: &[usize]) -> Result<Rows> {
        Rows::of_sources(vec![Arc::new(ArrayRows::new(ARRAY, values.into(), grid)?)])
    }

    /// Several arrays on one grid, each a run with a name.
    pub fn from_runs(runs: Vec<(String, Values)>, grid: &[usize]) -> Result<Rows> {
        let array = |(name, values): (String, Values)| -> Result<Arc<dyn RowSource>> {
            Ok(Arc::new(ArrayRows::new(&name, values, grid)?))
        };
        Rows::of_sources(runs.into_iter().map(array).collect::<Result<Vec<_>>>()?)
    }

    /// Rows that lie elsewhere in memory, each source a run.
    pub fn of_sources(sources: Vec<Arc<dyn RowSource>>) -> Result<Rows> {
        Rows::from_sources(sources, Vec::new())
    }

    /// Opens files and checks that they have the same sites in the same places. Each file is a run; 3-D images are the
    /// volumes of one.
    pub fn open(paths: &[PathBuf]) -> Result<Rows> {
        Rows::open_as(paths, &Reading::default())
    }

    /// [`Rows::open`] where the files do not say themselves which axis counts the rows, or which columns are data.
    pub fn open_as(paths: &[PathBuf], reading: &Reading) -> Result<Rows> {
        let sources = match paths {
            [] => Vec::new(),
            paths => read::open_runs(paths, reading)?.into_iter().map(Arc::from).collect(),
        };
        // From the root, so that a run can be gone on with from anywhere.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Rows::from_sources(sources, paths.iter().map(absolute).collect())
    }

    /// Files that hold the arrays which are known by these checksums.
    pub fn open_arrays(paths: &[PathBuf], known: &[String]) -> Result<Rows> {
        let known = known.iter().map(String::as_str).chain(std::iter::repeat(""));
        let array = |(source, checksum): (&Arc<dyn RowSource>, &str)| -> Result<Arc<dyn RowSource>> {
            Ok(Arc::new(ArrayRows::known_as(ARRAY, source.as_ref(), checksum)?))
        };
        let files = Rows::open(paths)?;
        Rows::of_sources(files.sources.iter().zip(known).map(array).collect::<Result<Vec<_>>>()?)
    }

    fn from_sources(sources: Vec<Arc<dyn RowSource>>, paths: Vec<PathBuf>) -> Result<Rows> {
        let Some(first) = sources.first() else {
            return Err(Error::setting("input", "(none)", format!("give at least one {} file", read::ENDINGS)));
        };
        let with_grid = sources.iter().find(|source| source.grid().is_some()).unwrap_or(first);
        for source in &sources[1..] {
            let because = |other: &dyn RowSource| format!("as in {}", other.path().display());
            check_source(source.as_ref(), &[first.n_sites()], &because(first.as_ref()))?;
            let grid = with_grid.grid().map_or_else(|| vec![first.n_sites()], <[usize]>::to_vec);
            check_source(source.as_ref(), &grid, &because(with_grid.as_ref()))?;
        }
        check_spaces(&sources)?;
        check_names(&sources)?;
        Ok(Rows { sources, paths, runs: None, mask: None, confounds: Vec::new(), heldout: None, part: None })
    }

    /// Leaves the sites out that are not inside, in C order of the grid.
    pub fn with_mask(mut self, inside: &[bool]) -> Result<Rows> {
        if inside.len() != self.n_sites() {
            let (found, expected) = (inside.len(), self.n_sites());
            let because = "the mask has one value a site".to_string();
            return Err(Error::SitesDiffer { path: self.path().to_path_buf(), found, expected, because });
        }
        self.mask = Some(inside.to_vec());
        Ok(self)
    }

    /// Takes the rows of a single array for those of several runs: names and numbers of rows, in order.
    pub fn with_runs(mut self, runs: &[(&str, usize)]) -> Result<Rows> {
        let (n_named, n_rows) = (runs.iter().map(|(_, n)| n).sum::<usize>(), self.n_rows());
        if n_named != n_rows || runs.iter().any(|(_, n)| *n == 0) {
            let problem = format!("name runs of at least one row that have {n_rows} rows together");
            return Err(Error::setting("runs", format!("{n_named} rows"), problem));
        }
        let is_fit = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
        let is_twice = |at: usize| runs[..at].iter().any(|(name, _)| *name == runs[at].0);
        if let Some(at) = (0..runs.len()).find(|&at| !is_fit(runs[at].0) || is_twice(at)) {
            let problem = "name every run differently, by letters, digits, '-', '_' and '.'";
            return Err(Error::setting("runs", runs[at].0, problem));
        }
        self.runs = Some(runs.iter().map(|(name, n)| NamedRun { name: (*name).into(), n_rows: *n }).collect());
        Ok(self)
    }

    /// Gives each run a table of confounds, which are regressed out of every site.
    pub fn with_confounds(mut self, confounds: Vec<Confounds>) -> Rows {
        self.confounds = confounds;
        self
    }

    /// Rows left out of the fit, whose residual is traced.
    pub fn with_heldout(mut self, rows: Rows) -> Rows {
        self.heldout = Some(Box::new(rows));
        self
    }

    /// One part of rows that are divided: the rows of every run, without those that are dropped at its start.
    pub fn with_part(mut self, division: &Arc<Division>, side: Side) -> Rows {
        self.part = Some((division.clone(), side));
        self
    }

    /// The same rows, read into memory where they take at most so many bytes, so that files are read once for several fits.
    pub fn remembered(mut self, most_bytes: u64, wants_stop: &dyn Fn() -> bool) -> Result<Rows> {
        if 8 * (self.n_rows() * self.n_sites()) as u64 <= most_bytes {
            for source in self.sources.iter_mut().filter(|source| !source.is_in_memory()) {
                *source = Arc::new(Remembered::new(source.clone(), wants_stop)?);
            }
        }
        Ok(self)
    }

    /// How many there are.
    pub fn n_rows(&self) -> usize {
        self.sources.iter().map(|source| source.n_rows()).sum()
    }

    /// Values in a row.
    pub fn n_sites(&self) -> usize {
        self.sources[0].n_sites()
    }

    /// The first input, for messages.
    pub fn path(&self) -> &Path {
        self.sources[0].path()
    }

    /// The files given; none where the rows are arrays.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Rows of each input that was given: volumes given one a file are rows of one run.
    pub(super) fn input_rows(&self) -> Vec<usize> {
        let is_series = self.sources.len() < self.paths.len();
        if is_series { vec![1; self.paths.len()] } else { self.sources.iter().map(|s| s.n_rows()).collect() }
    }

    pub(super) fn run_names(&self) -> Vec<String> {
        run_names(&self.sources.iter().map(|source| source.path()).collect::<Vec<_>>())
    }

    /// What each input is called, and what it is known by.
    pub fn checksums(&self) -> Result<Vec<(PathBuf, String)>> {
        match &self.paths[..] {
            [] => self.sources.iter().map(|source| Ok((source.path().to_path_buf(), source.checksum()?))).collect(),
            paths => paths.iter().map(|path| Ok((path.clone(), read::checksum(path)?))).collect(),
        }
    }
}

/// Refuses images whose voxels lie elsewhere than those of the first image.
fn check_spaces(sources: &[Arc<dyn RowSource>]) -> Result<()> {
    let mut images = sources.iter().filter_map(|source| Some((source.path(), source.space()?)));
    let Some(first) = images.next() else { return Ok(()) };
    images.try_for_each(|image| check_same_place(first, image))
}

/// Refuses tables whose columns have other names, or the same in another order.
fn check_names(sources: &[Arc<dyn RowSource>]) -> Result<()> {
    let mut named = sources.iter().filter_map(|source| Some((source, source.column_names()?)));
    let Some((first, expected)) = named.next() else { return Ok(()) };
    named.try_for_each(|(source, found)| {
        check_same_names((source.path(), found), (&first.path().display().to_string(), expected))
    })
}

/// Refuses columns of a file that have other names than those of another place, or the same in another order.
pub fn check_same_names((path, found): (&Path, &[String]), (place, expected): (&str, &[String])) -> Result<()> {
    // Tables of names know no tabs or ends of lines.
    let plain = |name: &String| name.replace(['\t', '\n', '\r'], " ");
    let Some(at) = found.iter().zip(expected).position(|(own, other)| plain(own) != plain(other)) else {
        return Ok(());
    };
    let problem = format!(
        "calls its column {} \"{}\", which is \"{}\" in {place}; give all files the same columns in the same order",
        at + 1,
        found[at],
        expected[at],
    );
    Err(Error::malformed(path, problem))
}
