//! `issfa evaluate`: a run against a known truth, or by predicting hidden cells.

use crate::Outcome;
use crate::options::NewRowOptions;
use clap::Args;
use issfa::Error;
use issfa::evaluate::{hidden, truth};
use issfa::summary::Fitted;
use issfa::summary::text::figure;
use std::path::PathBuf;

/// Measure a run: against a simulation's truth, or on hidden cells of new rows
#[derive(Args)]
#[command(
    after_help = "Examples:\n  issfa evaluate run --truth sim\n  issfa evaluate run --data new.npy --hide 0.2 --seed 1"
)]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// The simulation folder the run was fitted to
    #[arg(long, value_name = "SIM", conflicts_with = "data")]
    truth: Option<PathBuf>,
    /// New rows, of which a share of the cells is hidden and predicted
    #[arg(long, value_name = "NEW", num_args = 1..)]
    data: Vec<PathBuf>,
    /// The share of cells to hide
    #[arg(long, default_value_t = 0.2)]
    hide: f64,
    /// Which cells are hidden
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    how: NewRowOptions,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: Options) -> Outcome {
    let fitted = Fitted::open(&options.run)?;
    if options.truth.is_none() && options.data.is_empty() {
        let run = options.run.display();
        let problem = format!(
            "say what to measure against: issfa evaluate {run} --data NEW --hide 0.2 predicts hidden cells of new rows, issfa \
             evaluate {run} --truth SIM compares with the truth of a simulation"
        );
        return Err(Error::setting("truth, data", "(none)", problem).into());
    }
    let value = if let Some(simulation) = &options.truth {
        serde_json::to_value(truth::evaluate(&fitted, simulation)?)
    } else {
        let (rows, how) = options.how.rows(&options.data, &fitted)?;
        serde_json::to_value(hidden::evaluate(&fitted, &rows, &how, (options.hide, options.seed), None)?)
    };
    let value = value.expect("a report is JSON");
    if options.json {
        out!("{}", serde_json::to_string_pretty(&value).expect("a value is JSON"));
    } else {
        print_table(&value);
    }
    Ok(())
}

/// One figure a line.
pub fn print_table(value: &serde_json::Value) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let text = match value.as_f64() {
            Some(x) if value.is_f64() => figure(x),
            None if value.is_null() => "-".into(),
            None if value.is_string() => value.as_str().unwrap_or_default().replace('_', " "),
            _ => value.to_string(),
        };
        out!("  {name:32} {text:>12}");
    }
}
