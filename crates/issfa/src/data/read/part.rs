//! A stretch of the rows of another source: one of several runs in an array, or a run without its first volumes.

use super::RowSource;
use crate::data::nifti::Header;
use crate::error::Result;
use std::path::Path;
use std::sync::Arc;

/// Rows `first..first + n_rows` of a source.
pub struct Part {
    source: Arc<dyn RowSource>,
    first: usize,
    n_rows: usize,
}

impl Part {
    /// A part, which must lie within the source.
    pub fn new(source: Arc<dyn RowSource>, first: usize, n_rows: usize) -> Part {
        assert!(n_rows > 0 && first + n_rows <= source.n_rows(), "a part lies within its source");
        Part { source, first, n_rows }
    }
}

impl RowSource for Part {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn n_sites(&self) -> usize {
        self.source.n_sites()
    }

    fn grid(&self) -> Option<&[usize]> {
        self.source.grid()
    }

    fn row_path(&self, row: usize) -> &Path {
        self.source.row_path(self.first + row)
    }

    fn row_number(&self, row: usize) -> usize {
        self.source.row_number(self.first + row)
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
        self.source.row_names().map(|names| &names[self.first..self.first + self.n_rows])
    }

    fn column_names(&self) -> Option<&[String]> {
        self.source.column_names()
    }

    fn checksum(&self) -> Result<String> {
        self.source.checksum()
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        assert!(first_row * self.n_sites() + out.len() <= self.n_rows * self.n_sites(), "rows lie within the part");
        self.source.read_rows(self.first + first_row, out)
    }
}
