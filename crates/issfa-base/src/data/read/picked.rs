//! Some of the rows of another source, in its order: one of several runs in an array, a run without its first volumes, those
//! that a fit is to see, or those that it is not.

use super::{RowSource, rows_asked_for};
use crate::data::nifti::Header;
use crate::error::Result;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Chosen rows of a source; there may be none.
pub struct Picked {
    source: Arc<dyn RowSource>,
    /// Their places in the source, ascending.
    rows: Vec<usize>,
    names: Option<Vec<String>>,
}

impl Picked {
    /// The rows at these places, which must be ascending and lie within the source.
    pub fn new(source: Arc<dyn RowSource>, rows: Vec<usize>) -> Picked {
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "rows are in order");
        assert!(rows.last().is_none_or(|last| *last < source.n_rows()), "rows lie within their source");
        let names = source.row_names().map(|names| rows.iter().map(|&row| names[row].clone()).collect());
        Picked { source, rows, names }
    }

    /// Rows that follow each other, at least one.
    pub fn stretch(source: Arc<dyn RowSource>, rows: Range<usize>) -> Picked {
        assert!(!rows.is_empty(), "a stretch has a row");
        Picked::new(source, rows.collect())
    }
}

impl RowSource for Picked {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn n_rows(&self) -> usize {
        self.rows.len()
    }

    fn n_sites(&self) -> usize {
        self.source.n_sites()
    }

    fn grid(&self) -> Option<&[usize]> {
        self.source.grid()
    }

    fn row_path(&self, row: usize) -> &Path {
        self.source.row_path(self.rows[row])
    }

    fn row_number(&self, row: usize) -> usize {
        self.source.row_number(self.rows[row])
    }

    fn space(&self) -> Option<&Header> {
        self.source.space()
    }

    fn has_header(&self) -> bool {
        self.source.has_header()
    }

    fn is_in_memory(&self) -> bool {
        self.source.is_in_memory()
    }

    fn row_names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn column_names(&self) -> Option<&[String]> {
        self.source.column_names()
    }

    fn checksum(&self) -> Result<String> {
        self.source.checksum()
    }

    fn is_single(&self) -> bool {
        self.source.is_single()
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        let n_rows = rows_asked_for(self, first_row, out.len());
        let (rows, n_sites) = (&self.rows[first_row..first_row + n_rows], self.n_sites());
        let mut at = 0;
        // Stretches of rows that follow each other are read at once.
        for stretch in rows.chunk_by(|one, next| next - one == 1) {
            self.source.read_rows(stretch[0], &mut out[at * n_sites..(at + stretch.len()) * n_sites])?;
            at += stretch.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::ArrayRows;
    use super::*;

    #[test]
    fn rows_are_those_picked() {
        let values: Vec<f32> = (0..24).map(|x| x as f32).collect();
        let source = Arc::new(ArrayRows::new("values", values.into(), &[3]).unwrap());
        let picked = Picked::new(source, vec![1, 2, 5, 7]);
        let mut out = vec![0.0; 9];
        picked.read_rows(1, &mut out).unwrap();
        assert_eq!(out, [6.0, 7.0, 8.0, 15.0, 16.0, 17.0, 21.0, 22.0, 23.0]);
        assert_eq!((picked.n_rows(), picked.row_number(2)), (4, 5));
    }
}
