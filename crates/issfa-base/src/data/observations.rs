//! Several input files as one table of rows, each file a run.

use super::Mask;
use super::covariates::Covariates;
use super::division::{Division, Side};
use super::grid::show_grid;
use super::nifti::Header;
use super::read::RowSource;
use super::read::memory::Remembered;
use super::read::picked::Picked;
use super::rows::Rows;
use super::runs::NamedRun;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows are read so many at a time while streaming, unless these take more room, or, where they are few, less than is quick
/// to fill again and again.
const ROWS_AT_ONCE: usize = 64;
const MOST_BYTES: usize = 32 << 20;
const FEW_BYTES: usize = 8 << 20;

/// How many bytes (as f64) of rows of so many sites are read at a time.
pub fn chunk_bytes(n_sites: usize) -> usize {
    (8 * n_sites).saturating_mul(ROWS_AT_ONCE).clamp(FEW_BYTES, MOST_BYTES)
}

/// Sees a chunk of rows: the run they belong to, the first one's place in the whole table, and the values.
pub type Visit<'a> = dyn FnMut(usize, usize, &mut [f64]) -> Result<()> + 'a;

/// Says whether to stop, whenever it is asked.
pub type Watch = Arc<dyn Fn() -> bool + Send + Sync>;

/// The rows of all inputs, stacked in the order given.
pub struct Observations {
    /// One a run.
    sources: Vec<Arc<dyn RowSource>>,
    names: Vec<String>,
    /// First row of each source, and the total at the end.
    starts: Vec<usize>,
    /// Rows of each file that was given.
    input_rows: Vec<usize>,
    n_sites: usize,
    mask: Mask,
    missing: Missing,
    /// Sites that the mask leaves out since no row has a value there.
    n_empty_sites: usize,
    /// Rows of the files without any value, which are left out: run and row within it, in order.
    empty: Vec<(usize, usize)>,
    covariates: Covariates,
    /// Which part of the rows of every run these are, where they are not all.
    part: Option<(Arc<Division>, Side)>,
    is_cut_short: bool,
    chunk_bytes: usize,
    /// Asked before every chunk.
    watch: Option<Watch>,
}

/// The rows of all runs, in memory if there was room.
pub struct InMemory(Vec<Arc<dyn RowSource>>);

/// What becomes of cells that are NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// They are refused.
    #[default]
    Error,
    /// They were not observed.
    Impute,
}

impl Observations {
    /// Opens all files and checks that they have the same sites in the same places. Each file is a run; 3-D images are
    /// the volumes of one.
    pub fn open(paths: &[PathBuf]) -> Result<Observations> {
        Ok(Observations::of(&Rows::open(paths)?))
    }

    /// Rows as they were given, each source a run.
    pub fn of(rows: &Rows) -> Observations {
        let n_sites = rows.n_sites();
        let mut observations = Observations {
            names: rows.run_names(),
            sources: Vec::new(),
            starts: Vec::new(),
            input_rows: rows.input_rows(),
            n_sites,
            mask: Mask::full(n_sites),
            missing: Missing::Error,
            n_empty_sites: 0,
            empty: Vec::new(),
            covariates: Covariates::default(),
            part: None,
            is_cut_short: false,
            chunk_bytes: chunk_bytes(n_sites),
            watch: None,
        };
        observations.set_sources(rows.sources.clone());
        observations
    }

    /// Reads all rows into memory, where they take at most so many bytes, for [`Observations::look_there`].
    pub fn remembered(&self, most_bytes: u64) -> Result<InMemory> {
        let bytes_of = |source: &Arc<dyn RowSource>| {
            let bytes = if source.is_single() { 4 } else { 8 };
            bytes * (source.n_rows() * source.n_sites()) as u64
        };
        let n_bytes: u64 = self.sources.iter().filter(|source| !source.is_in_memory()).map(bytes_of).sum();
        if n_bytes > most_bytes {
            return Ok(InMemory(self.sources.clone()));
        }
        let wants_stop = || self.watch.as_ref().is_some_and(|wants_stop| wants_stop());
        let in_memory = |source: &Arc<dyn RowSource>| -> Result<Arc<dyn RowSource>> {
            match source.is_in_memory() {
                true => Ok(source.clone()),
                false => Ok(Arc::new(Remembered::new(source.clone(), &wants_stop)?)),
            }
        };
        Ok(InMemory(self.sources.iter().map(in_memory).collect::<Result<_>>()?))
    }

    /// From now on rows come from memory, where they are there: files are not read again.
    pub fn look_there(&mut self, rows: InMemory) {
        self.sources = rows.0;
    }

    fn set_sources(&mut self, sources: Vec<Arc<dyn RowSource>>) {
        self.starts = vec![0];
        for source in &sources {
            self.starts.push(self.n_rows_before_end() + source.n_rows());
        }
        self.sources = sources;
    }

    fn n_rows_before_end(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Takes the rows of a single array for those of several runs.
    pub fn split(&mut self, runs: &[NamedRun]) -> Result<()> {
        let [source] = &self.sources[..] else {
            let n = self.sources.len();
            let problem = format!("names the runs of a single array, but there are {n} inputs, each a run of its own");
            return Err(Error::setting("runs", self.path().display(), problem));
        };
        let (mut parts, mut first): (Vec<Arc<dyn RowSource>>, _) = (Vec::new(), 0);
        for run in runs {
            parts.push(Arc::new(Picked::stretch(source.clone(), first..first + run.n_rows)));
            first += run.n_rows;
        }
        assert_eq!(first, source.n_rows(), "runs name every row");
        self.names = runs.iter().map(|run| run.name.clone()).collect();
        self.set_sources(parts);
        Ok(())
    }

    /// Leaves the first rows of every run out.
    pub fn drop_first(&mut self, n_dropped: usize) -> Result<()> {
        if n_dropped == 0 {
            return Ok(());
        }
        let part = |source: &Arc<dyn RowSource>| -> Result<Arc<dyn RowSource>> {
            let n_rows = source.n_rows();
            if n_rows <= n_dropped {
                let problem = format!("{} has a run of {n_rows} rows: none would be left", source.path().display());
                return Err(Error::setting("drop-volumes", n_dropped, problem));
            }
            Ok(Arc::new(Picked::stretch(source.clone(), n_dropped..n_rows)))
        };
        let parts = self.sources.iter().map(part).collect::<Result<Vec<_>>>()?;
        self.set_sources(parts);
        Ok(())
    }

    /// Leaves all rows out but those of one part. It is that of the runs as they are now.
    pub fn keep_part(&mut self, division: &Arc<Division>, side: Side) {
        assert!(division.is_of(&self.runs()), "these runs were divided");
        let part = |(run, source): (usize, &Arc<dyn RowSource>)| -> Arc<dyn RowSource> {
            Arc::new(Picked::new(source.clone(), division.rows(run, side)))
        };
        let parts = self.sources.iter().enumerate().map(part).collect();
        self.set_sources(parts);
        self.part = Some((division.clone(), side));
    }

    /// What is regressed out of the rows, from now on.
    pub fn set_covariates(&mut self, covariates: Covariates) {
        assert!(covariates.n_columns() == 0 || covariates.n_rows() == self.n_rows(), "one line a row");
        self.covariates = covariates;
    }

    /// What is regressed out of the rows.
    pub fn covariates(&self) -> &Covariates {
        &self.covariates
    }

    /// The runs with all their rows, those without any value too.
    pub fn runs(&self) -> Vec<NamedRun> {
        let rows = |run: usize| self.run_rows(run).len() + self.empty.iter().filter(|(of, _)| *of == run).count();
        self.names.iter().enumerate().map(|(run, name)| NamedRun { name: name.clone(), n_rows: rows(run) }).collect()
    }

    /// The places within a run of its rows that are kept, and how many it has in all.
    pub fn kept_rows(&self, run: usize) -> (Vec<usize>, usize) {
        let n_source = self.sources[run].n_rows();
        let is_empty = |row: &usize| self.empty.contains(&(run, *row));
        let kept = (0..n_source).filter(|row| !is_empty(row)).take(self.run_rows(run).len());
        match &self.part {
            None => (kept.collect(), n_source),
            Some((division, side)) => {
                let places = division.rows(run, *side);
                (kept.map(|row| places[row]).collect(), division.lengths()[run])
            }
        }
    }

    /// The places of the rows that covariates have mean 0 over: those kept, and for held-out rows those of the fit.
    pub fn rows_of_means(&self, run: usize) -> Vec<usize> {
        match &self.part {
            Some((division, Side::Held)) => division.rows(run, Side::Training),
            _ => self.kept_rows(run).0,
        }
    }

    /// From now on rows are what the mask leaves of them.
    pub fn set_mask(&mut self, mask: Mask) {
        assert_eq!(mask.n_grid_sites(), self.n_sites, "the mask is one of these sites");
        self.mask = mask;
    }

    /// Sites that the mask leaves out since no row has a value there.
    pub fn n_empty_sites(&self) -> usize {
        self.n_empty_sites
    }

    /// Says how many sites the mask leaves out since no row has a value there.
    pub fn set_n_empty_sites(&mut self, n: usize) {
        self.n_empty_sites = n;
    }

    /// From now on NaN stands for a cell that was not observed.
    pub fn allow_holes(&mut self) {
        self.missing = Missing::Impute;
    }

    /// From now on NaN stands for a cell that was not observed, and rows without any value are left out.
    pub fn allow_missing(&mut self) -> Result<()> {
        self.allow_holes();
        let (n, mut empty) = (self.n_columns(), Vec::new());
        self.visit_chunks(Cells::FiniteOrMissing, &mut |run, first_row, values| {
            for (at, row) in values.chunks_exact(n).enumerate() {
                if row.iter().all(|x| x.is_nan()) {
                    empty.push((run, first_row + at - self.starts[run]));
                }
            }
            Ok(())
        })?;
        for run in 0..self.n_runs() {
            let n_before = empty.iter().filter(|(of, _)| *of <= run).count();
            self.starts[run + 1] -= n_before;
        }
        self.empty = empty;
        if self.n_rows() == 0 {
            return Err(Error::malformed(self.path(), "every value is NaN: there is nothing to fit"));
        }
        Ok(())
    }

    /// Whether NaN was allowed.
    pub fn may_have_holes(&self) -> bool {
        self.missing == Missing::Impute
    }

    /// The places of rows without any value among all rows of the files.
    pub fn empty_rows(&self) -> Vec<usize> {
        let first_of = |run: usize| self.sources[..run].iter().map(|source| source.n_rows()).sum::<usize>();
        self.empty.iter().map(|(run, row)| first_of(*run) + row).collect()
    }

    /// Rows that take part.
    pub fn n_rows(&self) -> usize {
        self.starts[self.sources.len()]
    }

    /// Refuses rows that have another number of sites than `grid`, or bring a grid that is the same turned round.
    pub fn check_grid(&self, grid: &[usize], because: &str) -> Result<()> {
        self.sources.iter().try_for_each(|source| check_source(source.as_ref(), grid, because))
    }

    /// Sites of the grid.
    pub fn n_sites(&self) -> usize {
        self.n_sites
    }

    /// Values a row has: the sites under the mask.
    pub fn n_columns(&self) -> usize {
        self.mask.n_columns()
    }

    /// The sites that take part.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The grid that an input brings along.
    pub fn grid(&self) -> Option<&[usize]> {
        self.sources.iter().find_map(|source| source.grid())
    }

    /// What the rows of all runs are called, those without any value too, where an input says so; others by run and row.
    pub fn row_names(&self) -> Option<Vec<String>> {
        self.sources.iter().find_map(|source| source.row_names())?;
        let of_run = |(source, name): (&Arc<dyn RowSource>, &String)| match source.row_names() {
            Some(names) => names.to_vec(),
            None => (0..source.n_rows()).map(|row| format!("{name}:{row}")).collect(),
        };
        Some(self.sources.iter().zip(&self.names).flat_map(of_run).collect())
    }

    /// What the sites are called, where an input says so.
    pub fn column_names(&self) -> Option<&[String]> {
        self.sources.iter().find_map(|source| source.column_names())
    }

    /// The header of the first image among the inputs: where the sites lie.
    pub fn space(&self) -> Option<&Header> {
        self.sources.iter().find_map(|source| source.space())
    }

    /// Rows that come from one of the files given.
    pub fn input_rows(&self, input: usize) -> usize {
        self.input_rows[input]
    }

    /// The first input's path, for messages.
    pub fn path(&self) -> &Path {
        self.sources[0].path()
    }

    /// Leaves all but the first rows out.
    pub fn keep_first(&mut self, n_rows: usize) {
        self.is_cut_short |= n_rows < self.n_rows();
        self.starts.iter_mut().for_each(|start| *start = (*start).min(n_rows));
    }

    /// Whether rows were left out by [`Observations::keep_first`].
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// From now on reading ends with an error as soon as the watch says so.
    pub fn set_watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Rows are then read this many bytes (as f64) at a time.
    pub fn set_chunk_bytes(&mut self, chunk_bytes: usize) {
        self.chunk_bytes = chunk_bytes;
    }

    /// How many runs there are, and the rows of one.
    pub fn n_runs(&self) -> usize {
        self.sources.len()
    }

    /// The rows of a run.
    pub fn run_rows(&self, run: usize) -> Range<usize> {
        self.starts[run]..self.starts[run + 1]
    }

    /// Calls `visit` on chunks of rows in order; a chunk never spans runs.
    /// Every value is checked to be finite, or to be NaN where that was allowed.
    pub fn for_each_chunk(&self, visit: &mut Visit) -> Result<()> {
        match self.missing {
            Missing::Error => self.visit_chunks(Cells::Finite, visit),
            Missing::Impute => self.visit_chunks(Cells::FiniteOrMissing, visit),
        }
    }

    /// [`Observations::for_each_chunk`] with values as they are.
    pub fn for_each_chunk_raw(&self, visit: &mut Visit) -> Result<()> {
        self.visit_chunks(Cells::Any, visit)
    }

    /// [`Observations::for_each_chunk_raw`] of some rows only.
    pub fn for_each_chunk_raw_of(&self, rows: Range<usize>, visit: &mut Visit) -> Result<()> {
        self.visit_rows(rows, Cells::Any, visit)
    }

    /// [`Observations::for_each_chunk`] where NaN stands for a cell that was not observed.
    pub fn for_each_chunk_with_holes(&self, visit: &mut Visit) -> Result<()> {
        self.visit_chunks(Cells::FiniteOrMissing, visit)
    }

    /// [`Observations::for_each_chunk`] of some rows only; other rows are hardly read.
    pub fn for_each_chunk_of(&self, rows: Range<usize>, visit: &mut Visit) -> Result<()> {
        let cells = if self.missing == Missing::Error { Cells::Finite } else { Cells::FiniteOrMissing };
        self.visit_rows(rows, cells, visit)
    }

    fn visit_chunks(&self, cells: Cells, visit: &mut Visit) -> Result<()> {
        self.visit_rows(0..self.n_rows(), cells, visit)
    }

    fn visit_rows(&self, rows: Range<usize>, cells: Cells, visit: &mut Visit) -> Result<()> {
        let rows_at_once = (self.chunk_bytes / (8 * self.n_sites)).max(1);
        let mut values = Vec::new();
        for (run, source) in self.sources.iter().enumerate() {
            let empty: Vec<usize> = self.empty.iter().filter(|(of, _)| *of == run).map(|(_, row)| *row).collect();
            // As many rows of the file as it takes to see all that are kept.
            let (n_kept, mut first, mut seen) = (self.run_rows(run).len(), 0, 0);
            while seen < n_kept {
                let n = rows_at_once.min(source.n_rows() - first).min(n_kept + empty.len() - first);
                let n_left = n - empty.iter().filter(|row| (first..first + n).contains(*row)).count();
                let start = self.starts[run] + seen;
                let wanted = rows.start.max(start)..rows.end.min(start + n_left);
                if self.watch.as_ref().is_some_and(|wants_stop| wants_stop()) {
                    return Err(Error::Stopped);
                }
                if !wanted.is_empty() {
                    values.resize(n * self.n_sites, 0.0);
                    source.read_rows(first, &mut values)?;
                    self.compact(&mut values, first, &empty);
                    check_cells(&values, &self.mask, first, source.as_ref(), cells)?;
                    let place = |row: usize| (row - start) * self.n_columns();
                    visit(run, wanted.start, &mut values[place(wanted.start)..place(wanted.end)])?;
                }
                first += n;
                seen += n_left;
            }
        }
        Ok(())
    }
}

impl Observations {
    /// Keeps the columns of the mask and the rows that are not empty.
    fn compact(&self, values: &mut Vec<f64>, first_row: usize, empty: &[usize]) {
        let (n_sites, n_columns) = (self.n_sites, self.n_columns());
        if self.mask.is_full() && empty.is_empty() {
            return;
        }
        let mut n_left = 0;
        for row in (0..values.len() / n_sites).filter(|row| !empty.contains(&(first_row + row))) {
            for column in 0..n_columns {
                // Never past what is still to be read: columns and rows only move down.
                values[n_left * n_columns + column] = values[row * n_sites + self.mask.site(column)];
            }
            n_left += 1;
        }
        values.truncate(n_left * n_columns);
    }
}

pub(super) fn check_source(source: &dyn RowSource, grid: &[usize], because: &str) -> Result<()> {
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

/// The indices of a site along the axes of a grid.
fn place_on(grid: &[usize], site: usize) -> Vec<usize> {
    (0..grid.len()).map(|axis| site / grid[axis + 1..].iter().product::<usize>() % grid[axis]).collect()
}

/// Which values are let through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cells {
    Finite,
    FiniteOrMissing,
    Any,
}

fn check_cells(values: &[f64], mask: &Mask, first_row: usize, source: &dyn RowSource, cells: Cells) -> Result<()> {
    let n_columns = mask.n_columns();
    let allowed = |x: &f64| match cells {
        Cells::Finite => x.is_finite(),
        Cells::FiniteOrMissing => x.is_finite() || x.is_nan(),
        Cells::Any => true,
    };
    // A row at a time, without a way out early, so that many cells are looked at in one go.
    let is_sound = |row: &&[f64]| row.iter().fold(true, |all, x| all & allowed(x));
    let sound = n_columns * values.chunks(n_columns.max(1)).take_while(is_sound).count();
    match values.iter().skip(sound).position(|x| !allowed(x)).map(|at| sound + at) {
        None => Ok(()),
        Some(at) => {
            let (row, site) = (first_row + at / n_columns, mask.site(at % n_columns));
            Err(Error::NonFinite {
                path: source.row_path(row).to_path_buf(),
                row: source.row_number(row),
                site,
                place: source.grid().map_or(String::new(), |grid| format!(" {:?}", place_on(grid, site))),
                value: values[at],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::nifti::by_hand::{Image, gzip};
    use super::*;
    use crate::data::write::write_npy_f64;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn image(&self, name: &str, image: &Image) -> PathBuf {
            let path = self.0.path().join(name);
            let bytes = if name.ends_with("gz") { gzip(&image.file()) } else { image.file() };
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    fn problem(paths: &[PathBuf]) -> String {
        Observations::open(paths).err().expect("the files are refused").to_string()
    }

    #[test]
    fn images_are_runs_and_volumes_are_rows_of_one() {
        let folder = Folder::new();
        let run = Image { sform_code: 1, ..Image::default() };
        let volume = Image { dim: [3, 3, 4, 5, 1, 1, 1, 1], ..run.clone() };
        let runs = [folder.image("a.nii", &run), folder.image("b.nii.gz", &run)];
        let volumes = ["c.nii", "d.nii.gz", "e.nii"].map(|name| folder.image(name, &volume));
        let of_runs = Observations::open(&runs).unwrap();
        assert_eq!((of_runs.n_runs(), of_runs.n_rows(), of_runs.input_rows(1)), (2, 4, 2));
        assert_eq!(of_runs.grid(), Some(&[3, 4, 5][..]));
        assert_eq!(of_runs.space().unwrap().space_code(), 1);
        let of_volumes = Observations::open(&volumes).unwrap();
        assert_eq!((of_volumes.n_runs(), of_volumes.n_rows(), of_volumes.input_rows(2)), (1, 3, 1));
        let mut rows = Vec::new();
        let mut keep = |_: usize, _: usize, values: &mut [f64]| {
            rows.extend_from_slice(values);
            Ok(())
        };
        of_volumes.for_each_chunk(&mut keep).unwrap();
        assert_eq!(rows, volume.rows().repeat(3));
        let mixed = problem(&[runs[0].clone(), volumes[0].clone()]);
        assert!(mixed.contains("c.nii: is a 3-D image") && mixed.contains("a.nii"), "{mixed}");
    }

    #[test]
    fn tables_and_images_of_as_many_sites_go_together() {
        let folder = Folder::new();
        let image = folder.image("a.nii", &Image::default());
        let table = folder.0.path().join("b.npy");
        write_npy_f64(&table, &[3, 60], &[0.5; 180]).unwrap();
        let both = Observations::open(&[table, image]).unwrap();
        assert_eq!((both.n_rows(), both.grid()), (5, Some(&[3, 4, 5][..])));
        assert!(both.space().is_some());
    }

    #[test]
    fn images_that_lie_elsewhere_are_refused_with_both_affines() {
        let folder = Folder::new();
        for dim in [Image::default().dim, [3, 3, 4, 5, 1, 1, 1, 1]] {
            let image = Image { sform_code: 1, dim, ..Image::default() };
            let mut near = image.clone();
            near.srows[0][3] += 0.001;
            let mut shifted = image.clone();
            shifted.srows[2][3] = -33.25;
            let [first, near, shifted] = [("a.nii", image), ("b.nii.gz", near), ("c.nii", shifted)]
                .map(|(name, image)| folder.image(name, &image));
            assert!(Observations::open(&[first.clone(), near.clone()]).is_ok());
            let error = Observations::open(&[first.clone(), near, shifted.clone()]).err().unwrap();
            assert!(
                matches!(&error, Error::AffinesDiffer { path, first: other, .. } if *path == shifted && *other == first)
            );
            assert!(error.to_string().contains("-33.25") && error.to_string().contains("-30.0"), "{error}");
        }
    }

    #[test]
    fn other_grids_are_refused() {
        let folder = Folder::new();
        let turned = Image { dim: [4, 4, 3, 5, 2, 1, 1, 1], ..Image::default() };
        let paths = [folder.image("a.nii", &Image::default()), folder.image("b.nii", &turned)];
        assert!(problem(&paths).contains("4x3x5") && problem(&paths).contains("3x4x5"));
    }

    #[test]
    fn a_value_that_is_none_is_named_by_its_file() {
        let folder = Folder::new();
        let volume = Image { dim: [3, 3, 4, 5, 1, 1, 1, 1], ..Image::default() };
        let paths = ["a.nii", "b.nii"].map(|name| folder.image(name, &volume));
        let mut bytes = volume.file();
        bytes[352..356].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(&paths[1], bytes).unwrap();
        let observations = Observations::open(&paths).unwrap();
        let error = observations.for_each_chunk(&mut |_, _, _| Ok(())).unwrap_err().to_string();
        assert!(error.contains("b.nii: row 1, site 0 [0, 0, 0] is NaN"), "{error}");
    }

    #[test]
    fn rows_are_remembered_where_there_is_room_for_them_as_exact_as_they_are() {
        let folder = Folder::new();
        let image = Image::default();
        let scaled = Image { scaling: [2.0, 1.0], ..Image::default() };
        for (name, image, bytes) in [("a.nii", image, 4), ("b.nii", scaled, 8)] {
            let path = folder.image(name, &image);
            let n_bytes = bytes * image.rows().len() as u64;
            for (room, is_kept) in [(n_bytes, true), (n_bytes - 1, false)] {
                let mut observations = Observations::open(std::slice::from_ref(&path)).unwrap();
                let in_memory = observations.remembered(room).unwrap();
                observations.look_there(in_memory);
                assert_eq!(observations.sources[0].is_in_memory(), is_kept, "{name} in {room}");
            }
        }
    }
}
