//! Rows that are in memory: an array that was given, or a file read once for all that looks at its rows.

use super::{RowSource, rows_asked_for};
use crate::data::memory;
use crate::data::nifti::Header;
use crate::data::observations::chunk_bytes;
use crate::error::{Error, Result};
use crate::numeric::bytes::Element;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Numbers in one of the two precisions, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Values {
        Values::F32(values)
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Values {
        Values::F64(values)
    }
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn copy_to(&self, first: usize, out: &mut [f64]) {
        let places = first..first + out.len();
        match self {
            Values::F32(values) => out.iter_mut().zip(&values[places]).for_each(|(to, x)| *to = f64::from(*x)),
            Values::F64(values) => out.copy_from_slice(&values[places]),
        }
    }

    /// Adds numbers at the end, in single precision as long as that holds all of them exactly (which may be known).
    pub(super) fn append(&mut self, more: &[f64], is_known_exact: bool) {
        let is_exact = |x: &f64| x.is_nan() || f64::from(*x as f32).to_bits() == x.to_bits();
        if let Values::F32(values) = self {
            // Without a way out early, so that many are looked at in one go.
            if is_known_exact || more.iter().fold(true, |all, x| all & is_exact(x)) {
                values.extend(more.iter().map(|&x| x as f32));
                return;
            }
            let mut wide = Vec::with_capacity(values.capacity());
            wide.extend(values.iter().map(|&x| f64::from(x)));
            *self = Values::F64(wide);
        }
        if let Values::F64(values) = self {
            values.extend_from_slice(more);
        }
    }

    /// The xxh3-128 of the numbers' little-endian bytes and of the shape, as 32 hexadecimal digits.
    fn checksum(&self, shape: &[usize]) -> String {
        const PIECE: usize = 1 << 16;
        let mut hasher = hasher_of(shape);
        match self {
            Values::F32(values) => values.chunks(PIECE).for_each(|piece| hasher.update(&f32::write(piece))),
            Values::F64(values) => values.chunks(PIECE).for_each(|piece| hasher.update(&f64::write(piece))),
        }
        format!("{:032x}", hasher.digest128())
    }
}

/// What an array of these rows would be known by: in single precision where its values are.
pub fn checksum_as_array(rows: &dyn RowSource, grid: &[usize], is_single: bool) -> Result<String> {
    let (n_rows, n_sites) = (rows.n_rows(), rows.n_sites());
    let rows_at_once = (chunk_bytes(n_sites) / (8 * n_sites)).max(1);
    let mut hasher = hasher_of(&[&[n_rows], grid].concat());
    let mut chunk = Vec::new();
    for first in (0..n_rows).step_by(rows_at_once) {
        chunk.resize(rows_at_once.min(n_rows - first) * n_sites, 0.0);
        rows.read_rows(first, &mut chunk)?;
        match is_single {
            true => hasher.update(&f32::write(&chunk.iter().map(|&x| x as f32).collect::<Vec<_>>())),
            false => hasher.update(&f64::write(&chunk)),
        }
    }
    Ok(format!("{:032x}", hasher.digest128()))
}

fn hasher_of(shape: &[usize]) -> Xxh3 {
    let mut hasher = Xxh3::new();
    shape.iter().for_each(|n| hasher.update(&(*n as u64).to_le_bytes()));
    hasher
}

/// An array that was given as such.
pub struct ArrayRows {
    /// What messages call it.
    name: PathBuf,
    n_sites: usize,
    grid: Vec<usize>,
    values: Values,
}

impl ArrayRows {
    /// Rows on a grid, one after the other.
    pub fn new(name: &str, values: Values, grid: &[usize]) -> Result<ArrayRows> {
        let (name, n_sites) = (PathBuf::from(name), grid.iter().product::<usize>());
        if n_sites == 0 {
            return Err(Error::malformed(&name, "the grid has no site"));
        }
        if values.is_empty() || !values.len().is_multiple_of(n_sites) {
            let problem =
                format!("{} values are not a whole number of rows of {n_sites} sites, at least one", values.len());
            return Err(Error::malformed(&name, problem));
        }
        Ok(ArrayRows { name, n_sites, grid: grid.to_vec(), values })
    }
}

impl ArrayRows {
    /// All rows of another source as the array that is known by a checksum; in either precision, if it is another one.
    pub fn known_as(name: &str, source: &dyn RowSource, checksum: &str) -> Result<ArrayRows> {
        let (n_rows, n_sites) = (source.n_rows(), source.n_sites());
        let grid = source.grid().map_or_else(|| vec![n_sites], <[usize]>::to_vec);
        let mut values = Vec::new();
        memory::reserve("the rows", &mut values, n_rows * n_sites)?;
        values.resize(n_rows * n_sites, 0.0);
        source.read_rows(0, &mut values)?;
        if checksum_as_array(source, &grid, true)? == checksum {
            let single: Vec<f32> = values.into_iter().map(|x| x as f32).collect();
            return ArrayRows::new(name, single.into(), &grid);
        }
        ArrayRows::new(name, values.into(), &grid)
    }
}

impl RowSource for ArrayRows {
    fn path(&self) -> &Path {
        &self.name
    }

    fn n_rows(&self) -> usize {
        self.values.len() / self.n_sites
    }

    fn n_sites(&self) -> usize {
        self.n_sites
    }

    fn grid(&self) -> Option<&[usize]> {
        (self.grid.len() > 1).then_some(&self.grid)
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn checksum(&self) -> Result<String> {
        Ok(self.values.checksum(&[&[self.n_rows()], &self.grid[..]].concat()))
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        rows_asked_for(self, first_row, out.len());
        self.values.copy_to(first_row * self.n_sites, out);
        Ok(())
    }
}

/// The rows of another source, read once.
pub struct Remembered {
    source: Arc<dyn RowSource>,
    values: Values,
}

impl Remembered {
    /// Reads all rows, unless it is asked to stop on the way.
    pub fn new(source: Arc<dyn RowSource>, wants_stop: &dyn Fn() -> bool) -> Result<Remembered> {
        let (n_rows, n_sites) = (source.n_rows(), source.n_sites());
        let rows_at_once = (chunk_bytes(n_sites) / (8 * n_sites)).max(1);
        let mut room = Vec::new();
        memory::reserve("the rows", &mut room, n_rows * n_sites)?;
        let mut values = Values::F32(room);
        let mut chunk = Vec::new();
        for first in (0..n_rows).step_by(rows_at_once) {
            if wants_stop() {
                return Err(Error::Stopped);
            }
            chunk.resize(rows_at_once.min(n_rows - first) * n_sites, 0.0);
            source.read_rows(first, &mut chunk)?;
            values.append(&chunk, source.is_single());
        }
        Ok(Remembered { source, values })
    }
}

impl RowSource for Remembered {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn n_rows(&self) -> usize {
        self.source.n_rows()
    }

    fn n_sites(&self) -> usize {
        self.source.n_sites()
    }

    fn grid(&self) -> Option<&[usize]> {
        self.source.grid()
    }

    fn row_path(&self, row: usize) -> &Path {
        self.source.row_path(row)
    }

    fn row_number(&self, row: usize) -> usize {
        self.source.row_number(row)
    }

    fn space(&self) -> Option<&Header> {
        self.source.space()
    }

    fn has_header(&self) -> bool {
        self.source.has_header()
    }

    fn row_names(&self) -> Option<&[String]> {
        self.source.row_names()
    }

    fn column_names(&self) -> Option<&[String]> {
        self.source.column_names()
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn checksum(&self) -> Result<String> {
        self.source.checksum()
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        self.values.copy_to(first_row * self.n_sites(), out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were() {
        for values in
            [Values::from(vec![1.0f32, 2.5, -0.0, 4.0, 5.0, 6.0]), Values::from(vec![0.1, 2.0, 3.0, 4.0, 5.0, 6.0])]
        {
            let rows = ArrayRows::new("values", values.clone(), &[1, 2]).unwrap();
            assert_eq!((rows.n_rows(), rows.n_sites(), rows.grid()), (3, 2, Some(&[1, 2][..])));
            let kept = Remembered::new(Arc::new(rows), &|| false).unwrap();
            assert_eq!(kept.values, values, "as exact as it has to be");
            let mut row = [0.0; 2];
            kept.read_rows(1, &mut row).unwrap();
            let mut expected = [0.0; 2];
            values.copy_to(2, &mut expected);
            assert_eq!(row.map(f64::to_bits), expected.map(f64::to_bits));
        }
    }

    #[test]
    fn what_is_no_whole_number_of_rows_is_refused() {
        for (n, grid) in [(5, &[2][..]), (0, &[2]), (4, &[0, 2])] {
            assert!(ArrayRows::new("values", vec![0.0f32; n].into(), grid).is_err());
        }
    }

    #[test]
    fn rows_are_known_by_what_their_array_is() {
        for values in [Values::from(vec![1.0f32, 2.5, -0.0, 4.0]), Values::from(vec![0.1, 2.0, 3.0, 4.0])] {
            let is_single = matches!(values, Values::F32(_));
            let rows = ArrayRows::new("values", values, &[1, 2]).unwrap();
            let checksum = rows.checksum().unwrap();
            assert_eq!(checksum_as_array(&rows, &[1, 2], is_single).unwrap(), checksum);
            let again = ArrayRows::known_as("again", &rows, &checksum).unwrap();
            assert_eq!((&again.values, again.checksum().unwrap()), (&rows.values, checksum));
        }
    }

    #[test]
    fn checksums_tell_values_and_shapes_apart() {
        let of =
            |values: Vec<f64>, grid: &[usize]| ArrayRows::new("x", values.into(), grid).unwrap().checksum().unwrap();
        assert_eq!(of(vec![1.0, 2.0], &[2]), of(vec![1.0, 2.0], &[2]));
        assert_ne!(of(vec![1.0, 2.0], &[2]), of(vec![1.0, 3.0], &[2]));
        assert_ne!(of(vec![1.0, 2.0], &[2]), of(vec![1.0, 2.0], &[1]));
    }
}
