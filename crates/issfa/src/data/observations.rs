//! Several input files as one table of rows, each file a run.

use super::grid::show_grid;
use super::read::{self, RowSource};
use crate::error::{Error, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Rows read at a time while streaming.
pub const CHUNK_BYTES: usize = 32 << 20;

/// Sees a chunk of rows: the run they belong to, the first one's place in the whole table, and the values.
pub type Visit<'a> = dyn FnMut(usize, usize, &mut [f64]) -> Result<()> + 'a;

/// The rows of all inputs, stacked in the order given.
pub struct Observations {
    sources: Vec<Box<dyn RowSource>>,
    /// First row of each source, and the total at the end.
    starts: Vec<usize>,
    n_sites: usize,
    chunk_bytes: usize,
}

impl Observations {
    /// Opens all files and checks that they have the same sites.
    pub fn open(paths: &[PathBuf]) -> Result<Observations> {
        if paths.is_empty() {
            return Err(Error::setting("INPUT", "(none)", "give at least one .npy, .csv or .tsv file"));
        }
        let sources = paths.iter().map(|path| read::open(path)).collect::<Result<Vec<_>>>()?;
        let first = &sources[0];
        let with_grid = sources.iter().find(|source| source.grid().is_some()).unwrap_or(first);
        for source in &sources[1..] {
            let because = |other: &dyn RowSource| format!("as in {}", other.path().display());
            check_source(source.as_ref(), &[first.n_sites()], &because(first.as_ref()))?;
            let grid = with_grid.grid().map_or_else(|| vec![first.n_sites()], <[usize]>::to_vec);
            check_source(source.as_ref(), &grid, &because(with_grid.as_ref()))?;
        }
        let mut starts = vec![0];
        for source in &sources {
            starts.push(starts[starts.len() - 1] + source.n_rows());
        }
        let n_sites = first.n_sites();
        Ok(Observations { sources, starts, n_sites, chunk_bytes: CHUNK_BYTES })
    }

    pub fn n_rows(&self) -> usize {
        self.starts[self.sources.len()]
    }

    /// Refuses rows that have another number of sites than `grid`, or bring a grid that is the same turned round.
    pub fn check_grid(&self, grid: &[usize], because: &str) -> Result<()> {
        self.sources.iter().try_for_each(|source| check_source(source.as_ref(), grid, because))
    }

    pub fn n_sites(&self) -> usize {
        self.n_sites
    }

    /// The grid that an input brings along.
    pub fn grid(&self) -> Option<&[usize]> {
        self.sources.iter().find_map(|source| source.grid())
    }

    /// The first input's path, for messages.
    pub fn path(&self) -> &Path {
        self.sources[0].path()
    }

    /// Leaves all but the first rows out.
    pub fn keep_first(&mut self, n_rows: usize) {
        self.starts.iter_mut().for_each(|start| *start = (*start).min(n_rows));
    }

    /// Rows are then read this many bytes (as f64) at a time.
    pub fn set_chunk_bytes(&mut self, chunk_bytes: usize) {
        self.chunk_bytes = chunk_bytes;
    }

    /// How many runs there are, and the rows of one.
    pub fn n_runs(&self) -> usize {
        self.sources.len()
    }

    pub fn run_rows(&self, run: usize) -> Range<usize> {
        self.starts[run]..self.starts[run + 1]
    }

    /// Calls `visit` on chunks of rows in order; a chunk never spans runs.
    /// Every value is checked to be finite.
    pub fn for_each_chunk(&self, visit: &mut Visit) -> Result<()> {
        self.visit_chunks(Cells::Finite, visit)
    }

    /// [`Observations::for_each_chunk`] where NaN stands for a cell that was not observed.
    pub fn for_each_chunk_with_holes(&self, visit: &mut Visit) -> Result<()> {
        self.visit_chunks(Cells::FiniteOrMissing, visit)
    }

    fn visit_chunks(&self, cells: Cells, visit: &mut Visit) -> Result<()> {
        let rows_at_once = (self.chunk_bytes / (8 * self.n_sites)).max(1);
        let mut values = Vec::new();
        for (run, source) in self.sources.iter().enumerate() {
            let mut first = 0;
            let n_rows = self.run_rows(run).len();
            while first < n_rows {
                let n = rows_at_once.min(n_rows - first);
                values.resize(n * self.n_sites, 0.0);
                source.read_rows(first, &mut values)?;
                check_cells(&values, self.n_sites, first, source.path(), cells)?;
                visit(run, self.starts[run] + first, &mut values)?;
                first += n;
            }
        }
        Ok(())
    }
}

fn check_source(source: &dyn RowSource, grid: &[usize], because: &str) -> Result<()> {
    let (path, expected) = (source.path().to_path_buf(), grid.iter().product());
    if source.n_sites() != expected {
        return Err(Error::SitesDiffer { path, found: source.n_sites(), expected, because: because.into() });
    }
    match source.grid() {
        // Another number of axes is another way to write the same sites; as many axes of other lengths are not.
        Some(own) if own.len() == grid.len() && own != grid => {
            Err(Error::GridsDiffer { path, found: show_grid(own), expected: show_grid(grid), because: because.into() })
        }
        _ => Ok(()),
    }
}

/// Which values are let through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cells {
    Finite,
    FiniteOrMissing,
}

fn check_cells(values: &[f64], n_sites: usize, first_row: usize, path: &Path, cells: Cells) -> Result<()> {
    let allowed = |x: &f64| x.is_finite() || x.is_nan() && cells == Cells::FiniteOrMissing;
    match values.iter().position(|x| !allowed(x)) {
        None => Ok(()),
        Some(at) => Err(Error::NonFinite {
            path: path.to_path_buf(),
            row: first_row + at / n_sites,
            site: at % n_sites,
            value: values[at],
        }),
    }
}
