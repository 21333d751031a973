//! `issfa plan`: what a fit will need, before committing to it.

use super::fit::{FitOptions, seconds};
use super::with_precision;
use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::config::Checked;
use issfa::error::bytes;
use issfa::linalg::Real;
use issfa::plan::{Plan, plan};
use issfa::structure::Shelf;
use std::path::Path;

/// Memory, disk and seconds per sweep of a fit, measured on two sweeps of a slice of its rows
#[derive(Args)]
#[command(after_help = "Example:\n  issfa plan data.npy --grid 64x64 --sweeps 2000")]
pub struct Options {
    #[command(flatten)]
    fit: FitOptions,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let checked = options.fit.checked()?;
    with_precision!(checked.settings.precision, show(checked, options.json, common))
}

fn show<R: Real>(checked: Checked, json: bool, common: &Common) -> Outcome {
    let tell = |text: &str| common.say(text);
    // A plan has no folder of its own: it looks where a run made here would.
    let plan = plan::<R>(&checked, &Shelf::beside(Path::new("run"), &tell))?;
    if json {
        out!("{}", serde_json::to_string_pretty(&plan).expect("a plan is JSON"));
    } else {
        print(&plan);
    }
    Ok(())
}

fn print(plan: &Plan) {
    out!("fit of {} rows x {} sites, {}, {}", plan.n_rows, plan.n_sites, plan.structure, plan.precision);
    let available = plan.memory_available.map_or("an unknown amount".into(), bytes);
    out!("memory       about {}, of which {available} are available", bytes(plan.memory_bytes));
    if plan.spill_bytes > 0 {
        out!("spill        {} in the folder of --spill", bytes(plan.spill_bytes));
    }
    out!("loading      about {}", seconds(plan.load_seconds));
    out!("\n{:>9} {:>15} {:>18} {:>14}", "features", "per sweep", "all sweeps", "run folder");
    for needs in &plan.by_features {
        out!(
            "{:>9} {:>15} {:>18} {:>14}",
            needs.n_features,
            seconds(needs.seconds_per_sweep),
            seconds(needs.total_seconds),
            bytes(needs.disk_bytes)
        );
    }
    let chains = if plan.chains > 1 { format!(" in {} chains", plan.chains) } else { String::new() };
    out!(
        "\n{} sweeps{chains}; times from two sweeps with {} features on {} and on {} rows, drawn out to all rows. How many \
         features there are is what the fit finds out.",
        plan.sweeps,
        plan.slice_features,
        plan.slice_rows[0],
        plan.slice_rows[1]
    );
}
