//! A fitted model as Python sees it: arrays, tables, new rows.

use crate::given::Given;
use crate::running::{on_own_threads, pool};
use crate::words::{self, to_python};
use issfa::data::Array;
use issfa::data::observations::Watch;
use issfa::error::bytes;
use issfa::evaluate::hidden;
use issfa::fit::Stop;
use issfa::new_rows::transform::{CenterNew, NewConfounds, NewRowSettings};
use issfa::run::folder::{CONFIG, PAGE};
use issfa::run::held::Held;
use issfa::run::settings::PageSize;
use issfa::summary::Standing;
use issfa::{Error, Fitted, Result};
use issfa_report::{Page, PageOptions};
use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

/// A fitted model.
#[pyclass(frozen, name = "Fitted", module = "issfa._engine")]
pub struct PyFitted(Arc<Fitted>);

type Single<'py> = Bound<'py, PyArrayDyn<f32>>;

fn to_numpy<'py>(py: Python<'py>, array: Array) -> PyResult<Single<'py>> {
    array.values.into_pyarray(py).reshape(array.shape)
}

/// Opens a run folder, also one whose fit is still going on.
#[pyfunction]
pub fn open(py: Python, folder: PathBuf) -> PyResult<PyFitted> {
    py.detach(|| Fitted::open(&folder)).map(PyFitted::new).map_err(to_python)
}

/// How new rows are taken, as `python/issfa/_estimator.py` says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct How {
    apart: bool,
    center_new: String,
    without_confounds: bool,
    drop: Vec<u64>,
}

impl How {
    fn settings(self) -> PyResult<NewRowSettings> {
        let center = match self.center_new.as_str() {
            "train" => CenterNew::Train,
            "own" => CenterNew::Own,
            other => return Err(to_python(Error::setting("center-new", other, "write train or own"))),
        };
        let confounds = if self.without_confounds { NewConfounds::Without } else { NewConfounds::OfRows };
        Ok(NewRowSettings { center, confounds, drop: self.drop, apart: self.apart, ..NewRowSettings::default() })
    }
}

impl PyFitted {
    pub fn new(fitted: Fitted) -> PyFitted {
        PyFitted(Arc::new(fitted))
    }

    pub fn inner(&self) -> Arc<Fitted> {
        self.0.clone()
    }

    /// Works on threads of its own while other threads of Python go on.
    fn work<T: Send>(
        &self,
        py: Python,
        n_threads: usize,
        work: impl FnOnce(&Fitted) -> Result<T> + Send,
    ) -> PyResult<T> {
        let (pool, fitted) = (pool(n_threads)?, &self.0);
        py.detach(|| pool.install(|| work(fitted))).map_err(to_python)
    }

    /// The same for what takes long: a signal ends it as soon as it asks whether to stop.
    fn work_stoppably<T: Send + 'static>(
        &self,
        py: Python,
        n_threads: usize,
        work: impl FnOnce(&Fitted, Watch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (fitted, stop) = (self.0.clone(), Stop::default());
        let watch = stop.watch();
        let (result, stopped_by) = on_own_threads(py, n_threads, &stop, move || work(&fitted, watch))?;
        stopped_by.map_or_else(|| result.map_err(to_python), Err)
    }
}

#[pymethods]
impl PyFitted {
    /// Persistent features: K x grid.
    fn features<'py>(&self, py: Python<'py>) -> PyResult<Single<'py>> {
        to_numpy(py, self.0.features())
    }

    fn features_sd<'py>(&self, py: Python<'py>) -> PyResult<Single<'py>> {
        to_numpy(py, self.0.features_sd())
    }

    fn features_z<'py>(&self, py: Python<'py>) -> PyResult<Option<Single<'py>>> {
        self.0.features_z().map(|array| to_numpy(py, array)).transpose()
    }

    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Single<'py>> {
        to_numpy(py, self.0.weights())
    }

    fn activation<'py>(&self, py: Python<'py>) -> PyResult<Single<'py>> {
        to_numpy(py, self.0.activation())
    }

    fn means<'py>(&self, py: Python<'py>) -> PyResult<Single<'py>> {
        to_numpy(py, self.0.means())
    }

    fn noise_variances<'py>(&self, py: Python<'py>) -> PyResult<Single<'py>> {
        to_numpy(py, self.0.noise_variances())
    }

    fn reconstruction<'py>(&self, py: Python<'py>) -> PyResult<Option<Single<'py>>> {
        self.0.denoised().map_err(to_python)?.map(|array| to_numpy(py, array)).transpose()
    }

    /// The trace by its columns; theta is sweeps x parameters.
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (rows, columns) = (self.0.trace(), PyDict::new(py));
        macro_rules! column {
            ($name:ident, $to:ty) => {
                let values: Vec<$to> = rows.iter().map(|row| row.$name as $to).collect();
                columns.set_item(stringify!($name), values.into_pyarray(py))?;
            };
        }
        column!(chain, i64);
        column!(sweep, i64);
        column!(seconds, f64);
        column!(n_features, i64);
        column!(n_shared, i64);
        column!(n_activations, i64);
        column!(noise_variance, f64);
        for p in 0..self.0.record().theta.len() {
            let values: Vec<f64> = rows.iter().map(|row| row.theta[p]).collect();
            columns.set_item(format!("theta_{}", p + 1), values.into_pyarray(py))?;
        }
        column!(ibp_strength, f64);
        column!(ibp_repulsion, f64);
        column!(ln_likelihood, f64);
        column!(theta_accepted, bool);
        column!(births, i64);
        column!(deaths, i64);
        column!(proposals, i64);
        let heldout: Vec<f64> = rows.iter().map(|row| row.heldout_residual.unwrap_or(f64::NAN)).collect();
        columns.set_item("heldout_residual", heldout.into_pyarray(py))?;
        Ok(columns)
    }

    /// The table of features by its columns.
    fn table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (rows, columns) = (&self.0.found().features.table, PyDict::new(py));
        let ids: Vec<i64> = rows.iter().map(|row| row.id as i64).collect();
        columns.set_item("id", ids.into_pyarray(py))?;
        let chains: Vec<i64> = rows.iter().map(|row| row.chains as i64).collect();
        columns.set_item("chains", chains.into_pyarray(py))?;
        macro_rules! column {
            ($($name:ident: $of:expr),*) => {
                $(let values: Vec<f64> = rows.iter().map($of).collect();
                columns.set_item(stringify!($name), values.into_pyarray(py))?;)*
            };
        }
        column!(
            presence: |row| row.presence,
            activations: |row| row.activations,
            variance_explained: |row| row.variance_explained,
            kurtosis: |row| row.kurtosis,
            stability: |row| row.stability.unwrap_or(f64::NAN),
            ess: |row| row.ess,
            rhat: |row| row.rhat
        );
        let n_axes = rows.first().map_or(0, |row| row.smoothness.len());
        for axis in 0..n_axes {
            let values: Vec<f64> = rows.iter().map(|row| row.smoothness[axis][1]).collect();
            columns.set_item(format!("smoothness_{}", axis + 1), values.into_pyarray(py))?;
        }
        Ok(columns)
    }

    /// The summary for people.
    fn summary_text(&self) -> String {
        words::text(&self.0.summary().to_string())
    }

    /// The summary as JSON.
    fn summary_json(&self) -> String {
        let mut overview = self.0.summary();
        overview.verdict.iter_mut().for_each(|text| *text = words::text(text));
        serde_json::to_string(&overview).expect("an overview is JSON")
    }

    /// The settings, with those filled in that were left out, as JSON.
    fn settings_json(&self) -> String {
        serde_json::to_string(self.0.settings()).expect("settings are JSON")
    }

    /// Sweeps left out at the start.
    #[getter]
    fn burn_in(&self) -> u64 {
        self.0.burn_in()
    }

    /// Sweeps that are planned, of each chain.
    #[getter]
    fn planned_sweeps(&self) -> u64 {
        self.0.planned_sweeps()
    }

    #[getter]
    fn grid(&self) -> Vec<usize> {
        self.0.structure().grid().to_vec()
    }

    /// What the structure is in words.
    #[getter]
    fn structure(&self) -> String {
        self.0.record().structure.clone()
    }

    /// Names of the parameters of the curve.
    #[getter]
    fn theta_names(&self) -> Vec<String> {
        self.0.record().theta.clone()
    }

    /// Names of runs and their rows.
    #[getter]
    fn runs(&self) -> Vec<(String, usize)> {
        self.0.record().runs.iter().map(|run| (run.name.clone(), run.n_rows)).collect()
    }

    /// Which sites take part; nothing where all do.
    fn mask(&self) -> Option<Vec<bool>> {
        let mask = self.0.mask();
        (!mask.is_full()).then(|| mask.scatter(&vec![true; mask.n_columns()], false))
    }

    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.0.folder().map(PathBuf::from)
    }

    #[getter]
    fn n_draws(&self) -> usize {
        self.0.n_draws()
    }

    /// Weights, activation and denoised versions of new rows.
    fn transform<'py>(&self, py: Python<'py>, given: Given, how: How, n_threads: usize) -> PyResult<Bound<'py, PyAny>> {
        let (rows, how) = (given.rows(self.0.settings())?, how.settings()?);
        let found = self.work_stoppably(py, n_threads, move |fitted, watch| {
            fitted.transform_with(&rows, &NewRowSettings { watch: Some(watch), ..how })
        })?;
        let arrays = [found.weights, found.activation, found.reconstruction].map(|array| to_numpy(py, array));
        let [weights, activation, reconstruction] = arrays;
        (weights?, activation?, reconstruction?).into_bound_py_any(py)
    }

    /// The share of the variance of hidden cells that is predicted.
    fn hidden_r2(&self, py: Python, given: Given, hide: f64, seed: u64, n_threads: usize) -> PyResult<f64> {
        let rows = given.rows(self.0.settings())?;
        self.work_stoppably(py, n_threads, move |fitted, watch| {
            let how = NewRowSettings { watch: Some(watch), ..NewRowSettings::default() };
            hidden::r2(fitted, &rows, &how, (hide, seed))
        })
    }

    /// Writes the page, under a name, to a file, or into the run folder; returns where, and what it holds.
    fn report(&self, py: Python, path: Option<PathBuf>, name: Option<String>) -> PyResult<(PathBuf, Vec<String>)> {
        self.work(py, 0, |fitted| {
            let own = fitted.folder().map(|folder| folder.join(PAGE));
            let Some(path) = path.or(own) else {
                return Err(Error::setting("path", "None", "the fit has no folder; say where the page shall be"));
            };
            // Whoever writes to a run folder holds it.
            let _held = path.parent().filter(|folder| folder.join(CONFIG).is_file()).map(Held::of_run).transpose()?;
            let mut options = PageOptions::of(fitted, &words::text);
            options.size = if options.size == PageSize::None { PageSize::Auto } else { options.size };
            options.name = name.unwrap_or(options.name);
            let page = Page::of(fitted, Standing::Results, &options)?;
            page.write(&path)?;
            let size = format!(
                "page: {}, {} ({})",
                path.display(),
                bytes(page.html.len() as u64),
                page.holds("report=\"full\"")
            );
            Ok((path, std::iter::once(size).chain(page.warnings).map(|note| words::text(&note)).collect()))
        })
    }

    /// Kept draws: chain and sweep of each, features (draws x K x grid), which are there (draws x K), probed cells
    /// (draws x probes).
    fn draws<'py>(
        &self,
        py: Python<'py>,
        probes: Vec<(usize, usize)>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let draws = self.work(py, n_threads, |fitted| fitted.aligned_draws(&probes))?;
        let (n, k) = (draws.len(), self.0.ids().len());
        let shape: Vec<usize> = [&[n, k], self.0.structure().grid()].concat();
        let mut features = Vec::with_capacity(shape.iter().product());
        let (mut present, mut values, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for draw in draws {
            features.extend(draw.features.values);
            present.extend(draw.present);
            values.extend(draw.probes);
            places.push((draw.chain, draw.sweep));
        }
        let features = to_numpy(py, Array::new(&shape, features))?;
        let present = present.into_pyarray(py).reshape([n, k])?;
        (places, features, present, values.into_pyarray(py).reshape([n, probes.len()])?).into_bound_py_any(py)
    }

    /// Writes a run folder, which must not exist yet.
    fn save(&self, py: Python, folder: PathBuf) -> PyResult<()> {
        self.work(py, 1, |fitted| fitted.in_memory()?.save(&folder))
    }

    /// The same without a folder.
    fn in_memory(&self, py: Python) -> PyResult<PyFitted> {
        self.work(py, 1, |fitted| fitted.in_memory()).map(PyFitted::new)
    }
}
