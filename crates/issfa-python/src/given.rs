//! What Python gives as rows: arrays or files, with the mask, runs, confounds and held-out rows that came along.

use crate::rows::NumpyRows;
use crate::words::to_python;
use issfa::data::read::{RowSource, expand_inputs};
use issfa::{Confounds, Rows, Settings};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Rows as `python/issfa/_inputs.py` hands them over.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Given<'py> {
    /// Files; none where there are arrays.
    paths: Vec<PathBuf>,
    /// One a run, with its name.
    arrays: Vec<(String, Bound<'py, PyAny>)>,
    /// A value a site.
    mask: Option<Vec<bool>>,
    /// Names and numbers of rows of the runs of a single array.
    runs: Option<Vec<(String, usize)>>,
    /// Names of columns, and rows after each other; one table a run.
    confounds: Vec<(Vec<String>, Vec<f64>)>,
    /// Rows that are left out of the fit.
    heldout: Option<Bound<'py, PyAny>>,
}

impl Given<'_> {
    /// The same for the library; files are read as the settings say.
    pub fn rows(&self, settings: &Settings) -> PyResult<Rows> {
        let mut rows = match &self.arrays[..] {
            [] => expand_inputs(&self.paths).and_then(|paths| Rows::open_as(&paths, &settings.reading()?)),
            arrays => {
                let source = |(name, array): &(String, Bound<PyAny>)| -> PyResult<Arc<dyn RowSource>> {
                    Ok(Arc::new(NumpyRows::new(name, array)?))
                };
                Rows::of_sources(arrays.iter().map(source).collect::<PyResult<_>>()?)
            }
        }
        .map_err(to_python)?;
        if let Some(inside) = &self.mask {
            rows = rows.with_mask(inside).map_err(to_python)?;
        }
        if let Some(runs) = &self.runs {
            let runs: Vec<(&str, usize)> = runs.iter().map(|(name, n)| (name.as_str(), *n)).collect();
            rows = rows.with_runs(&runs).map_err(to_python)?;
        }
        let table = |(names, values): &(Vec<String>, Vec<f64>)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Confounds::from_values(&names, values.clone()).map_err(to_python)
        };
        rows = rows.with_confounds(self.confounds.iter().map(table).collect::<PyResult<_>>()?);
        if let Some(heldout) = &self.heldout {
            rows = rows.with_heldout(heldout.extract::<Given>()?.rows(settings)?);
        }
        Ok(rows)
    }
}
