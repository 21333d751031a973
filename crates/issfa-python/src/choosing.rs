//! Settings chosen for Python, as `issfa choose` chooses them.

use crate::given::Given;
use crate::running::{Listeners, show_and_wait};
use crate::settings;
use crate::words::to_python;
use issfa::choose::{Choice, Judging};
use issfa::fit::{Observer, Stop};
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::run::inputs;
use issfa::structure::Shelf;
use issfa::{Error, Result, Rows, Settings};
use pyo3::prelude::*;
use std::path::PathBuf;

/// How settings are judged, as `python/issfa/_choose.py` says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct How {
    hide: f64,
    holdout: f64,
    folds: usize,
}

/// Tries settings; gives what was found as JSON, nothing where a stop came before the first was tried, and what stopped it.
#[pyfunction]
#[pyo3(signature = (given, settings, how, out, overwrite, n_threads, listeners))]
#[expect(clippy::too_many_arguments, reason = "they are those of a call of Python")]
pub fn choose(
    py: Python,
    given: Given,
    settings: &str,
    how: How,
    out: Option<PathBuf>,
    overwrite: bool,
    n_threads: usize,
    listeners: Listeners,
) -> PyResult<(Option<String>, Option<PyErr>)> {
    let settings = settings::read(settings).map_err(to_python)?;
    let rows = given.rows(&settings)?;
    let judging = Judging { hide: how.hide, holdout: how.holdout, folds: how.folds };
    let work = move |observer: &mut dyn Observer, stop: &Stop| {
        try_settings(&rows, settings, &judging, (out, overwrite), (observer, stop))
    };
    match show_and_wait(py, n_threads, &listeners, work)? {
        (Ok(choice), stopped_by) => Ok((Some(serde_json::to_string(&choice).expect("a choice is JSON")), stopped_by)),
        (Err(Error::Stopped), Some(by)) => Ok((None, Some(by))),
        (Err(error), _) => Err(to_python(error)),
    }
}

fn try_settings(
    rows: &Rows,
    settings: Settings,
    judging: &Judging,
    (out, overwrite): (Option<PathBuf>, bool),
    (observer, stop): (&mut dyn Observer, &Stop),
) -> Result<Choice> {
    let checked = settings.check()?;
    let files = inputs::files(rows.paths(), &checked.settings);
    let held = out.as_deref().map(|out| Held::for_new(out, Output::Choice, overwrite, &files)).transpose()?;
    let choice = issfa::choose::choose(rows, &checked, judging, &Shelf::none(), (observer, Some(stop.watch())))?;
    if let Some(mut held) = held {
        choice.write(&held.begin()?)?;
        held.publish()?;
    }
    Ok(choice)
}
