//! The engine of the Python package: arrays, settings and calls of Python on one side, the library on the other.

mod choosing;
mod fitted;
mod given;
mod rows;
mod running;
mod settings;
mod words;

use pyo3::prelude::*;

/// What `python/issfa` is made of.
#[pymodule]
fn _engine(module: &Bound<PyModule>) -> PyResult<()> {
    module.add_class::<fitted::PyFitted>()?;
    module.add_class::<running::Sweep>()?;
    module.add_function(wrap_pyfunction!(fitted::open, module)?)?;
    module.add_function(wrap_pyfunction!(running::fit, module)?)?;
    module.add_function(wrap_pyfunction!(running::resume, module)?)?;
    module.add_function(wrap_pyfunction!(choosing::choose, module)?)?;
    module.add_function(wrap_pyfunction!(settings::default_settings, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
