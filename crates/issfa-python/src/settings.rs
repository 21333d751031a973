//! Settings as Python gives them: JSON by the keys of a settings file.

use crate::words::to_python;
use issfa::run::until::Until;
use issfa::structure::expression;
use issfa::{Error, Result, Settings};
use pyo3::prelude::*;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Reads settings, each by itself, so that a wrong one is named.
pub fn read(text: &str) -> Result<Settings> {
    let given: Map<String, Value> = serde_json::from_str(text).expect("the package writes settings as JSON");
    for (key, value) in &given {
        let alone = Map::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = serde_json::from_value::<Settings>(Value::Object(alone)) {
            return Err(Error::setting(key, value, error.to_string()));
        }
    }
    let mut settings: Settings = serde_json::from_value(Value::Object(given)).expect("each of them can be read");
    make_absolute(&mut settings)?;
    Ok(settings)
}

/// When a fit that goes on is to end.
pub fn read_until(text: &str) -> Result<Until> {
    let read = serde_json::from_value(Value::String(text.into()));
    read.map_err(|_| Error::setting("until", text, "write sweeps or settled"))
}

/// Files from the root, so that a run can be gone on with from anywhere.
fn make_absolute(settings: &mut Settings) -> Result<()> {
    let lists = settings.input.iter_mut().chain(&mut settings.confounds).chain(&mut settings.runs);
    let others = [&mut settings.heldout, &mut settings.spill, &mut settings.background].into_iter().flatten();
    for path in lists.chain(others) {
        *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    }
    let from_root =
        |text: &str| std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text)).display().to_string();
    settings.mask = settings.mask.take().map(|text| if text == "auto" { text } else { from_root(&text) });
    if !["reference", "white"].contains(&settings.noise.as_str()) {
        settings.noise = from_root(&settings.noise);
    }
    settings.structure = settings.structure.as_deref().map(expression::with_absolute_files).transpose()?;
    Ok(())
}

/// All settings with their usual values, as JSON.
#[pyfunction]
pub fn default_settings() -> PyResult<String> {
    let settings = Settings::default().check().map_err(to_python)?.settings;
    Ok(serde_json::to_string(&settings).expect("settings are JSON"))
}
