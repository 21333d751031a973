//! Rows of a NumPy array, read where they lie: either precision, any order of the axes, views too.

use issfa::Result;
use issfa::data::read::RowSource;
use issfa::data::read::memory::checksum_as_array;
use numpy::{PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// An array of rows that Python holds.
pub struct NumpyRows {
    /// What messages call it.
    name: PathBuf,
    n_rows: usize,
    grid: Vec<usize>,
    n_sites: usize,
    first: *const u8,
    is_single: bool,
    /// In bytes.
    row_stride: isize,
    /// In bytes, from the first site of a row; left out where sites follow each other.
    places: Option<Vec<isize>>,
    /// As long as this is there, so is the memory.
    _array: Py<PyAny>,
}

// SAFETY: the memory stays as long as `_array` does, and is only read. Whoever changes an array while it is being fitted
// gets a fit of either value, as with any library that lets other threads of Python run meanwhile.
unsafe impl Send for NumpyRows {}
unsafe impl Sync for NumpyRows {}

impl NumpyRows {
    /// Of an array (rows x sites, or rows x grid) of float32 or float64.
    pub fn new(name: &str, array: &Bound<PyAny>) -> PyResult<NumpyRows> {
        if let Ok(single) = array.cast::<PyArrayDyn<f32>>() {
            return Ok(NumpyRows::of(name, single, single.data().cast::<u8>(), true));
        }
        let Ok(double) = array.cast::<PyArrayDyn<f64>>() else {
            return Err(PyTypeError::new_err("rows are arrays of float32 or float64"));
        };
        Ok(NumpyRows::of(name, double, double.data().cast::<u8>(), false))
    }

    fn of<T>(name: &str, array: &Bound<PyArrayDyn<T>>, first: *const u8, is_single: bool) -> NumpyRows {
        let (shape, strides) = (array.shape(), array.strides());
        let grid = shape[1..].to_vec();
        let n_bytes = if is_single { 4 } else { 8 };
        let places = places(&grid, &strides[1..]);
        let is_in_order = places.iter().enumerate().all(|(site, place)| *place == (site * n_bytes) as isize);
        NumpyRows {
            name: PathBuf::from(name),
            n_rows: shape[0],
            n_sites: places.len(),
            grid,
            first,
            is_single,
            row_stride: strides[0],
            places: (!is_in_order).then_some(places),
            _array: array.clone().into_any().unbind(),
        }
    }

    fn value(&self, offset: isize) -> f64 {
        // SAFETY: offsets are those of rows and sites of the array; nothing is said about alignment.
        unsafe {
            let at = self.first.offset(offset);
            if self.is_single {
                f64::from(at.cast::<f32>().read_unaligned())
            } else {
                at.cast::<f64>().read_unaligned()
            }
        }
    }
}

/// Offsets of all sites, in C order.
fn places(grid: &[usize], strides: &[isize]) -> Vec<isize> {
    let mut places = vec![0];
    for (n, stride) in grid.iter().zip(strides) {
        places = places.iter().flat_map(|place| (0..*n as isize).map(move |at| place + at * stride)).collect();
    }
    places
}

impl RowSource for NumpyRows {
    fn path(&self) -> &Path {
        &self.name
    }

    fn n_rows(&self) -> usize {
        self.n_rows
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
        checksum_as_array(self, &self.grid, self.is_single)
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        let n_rows = out.len() / self.n_sites;
        assert!(first_row + n_rows <= self.n_rows, "rows that are there");
        let start = |row: usize| (first_row + row) as isize * self.row_stride;
        let n_bytes = if self.is_single { 4 } else { 8 };
        let Some(places) = &self.places else {
            for (row, out) in out.chunks_exact_mut(self.n_sites).enumerate() {
                out.iter_mut().zip(0..).for_each(|(x, site)| *x = self.value(start(row) + site * n_bytes));
            }
            return Ok(());
        };
        // Along memory: rows of an array in Fortran order lie side by side, volumes one after the other.
        if self.row_stride.unsigned_abs() < self.n_sites {
            for (site, place) in places.iter().enumerate() {
                (0..n_rows).for_each(|row| out[row * self.n_sites + site] = self.value(start(row) + place));
            }
        } else {
            for (row, out) in out.chunks_exact_mut(self.n_sites).enumerate() {
                out.iter_mut().zip(places).for_each(|(x, place)| *x = self.value(start(row) + place));
            }
        }
        Ok(())
    }
}
