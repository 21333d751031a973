//! The library's settings, actions and errors in the words of Python: `missing = impute` is `missing="impute"`, and
//! `resume run` is `issfa.open("run").resume()`.

use issfa::Error;
use issfa::error::{Action, Mention, Setting, Verb, reworded};
use pyo3::prelude::*;

/// Keys that are entries of a parameter that is a dictionary.
const OF_SWEEP: [&str; 4] = ["kernels", "row_sweeps", "birth_rounds", "joint_every"];
const OF_PRIORS: [&str; 6] =
    ["ibp_strength", "ibp_repulsion", "weight_precision", "weight_mean", "weight_tails", "ln_theta"];

/// An error of the library as Python raises it: `issfa.Error`, of wrong use also a `ValueError`.
pub fn to_python(error: Error) -> PyErr {
    let text = error.reworded(|mention| Some(in_words(mention)));
    Python::attach(|py| {
        let name = if error.is_wrong_use() { "UseError" } else { "Error" };
        let class = py.import("issfa._errors").and_then(|module| module.getattr(name));
        class.and_then(|class| class.call1((text,))).map_or_else(|failure| failure, PyErr::from_value)
    })
}

/// A note, summary or verdict of the library.
pub fn text(text: &str) -> String {
    reworded(text, |mention| Some(in_words(mention)))
}

fn in_words(mention: &Mention) -> String {
    match mention {
        Mention::Setting(setting) => argument(setting),
        Mention::Action(action) => call(action),
    }
}

/// A parameter, with its value where there is one.
fn argument(setting: &Setting) -> String {
    let name = parameter(&setting.key);
    match setting.value.as_deref() {
        None => name,
        Some(value) => format!("{name}={}", literal(value)),
    }
}

/// What the parameter of a setting is called.
fn parameter(key: &str) -> String {
    match key {
        "input" => "X".into(),
        "seed" => "random_state".into(),
        "threads" => "n_jobs".into(),
        "priors.noise" => "noise_prior".into(),
        "noise_reference.row_levels" => "row_noise".into(),
        "reconstruct" => "reconstruction".into(),
        key if OF_SWEEP.contains(&key) => format!("sweep[\"{key}\"]"),
        key if OF_PRIORS.contains(&key) => format!("priors[\"{key}\"]"),
        key => key.replace('-', "_"),
    }
}

fn literal(value: &str) -> String {
    match value {
        "true" => "True".into(),
        "false" => "False".into(),
        // A sign means an addition.
        number if number.parse::<f64>().is_ok() && !number.starts_with('+') => number.into(),
        other => format!("{other:?}"),
    }
}

fn call(action: &Action) -> String {
    let settings = action.settings.iter().map(argument).collect::<Vec<_>>().join(", ");
    let of_run = action.run.as_deref().filter(|run| *run != issfa::summary::NAME_IN_MEMORY);
    match (action.verb, of_run) {
        (Verb::Report, run) => format!("issfa report {}", run.unwrap_or("RUN")),
        (Verb::Evaluate, _) => format!("score({settings})"),
        (Verb::Fit, _) => format!("fit({settings})"),
        (Verb::Resume, Some(run)) => format!("issfa.open({run:?}).resume({settings})"),
        (Verb::Resume, None) if settings.is_empty() => "resume(X)".into(),
        (Verb::Resume, None) => format!("resume(X, {settings})"),
    }
}
