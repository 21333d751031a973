//! `issfa plan`: what a fit will need, before committing to it.

use super::fit::{FitOptions, open_rows};
use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::error::bytes;
use issfa::fit::cost::Network;
use issfa::fit::plan::{BAND, Plan, TILE, Wanted, plan};
use issfa::structure::Shelf;
use issfa::summary::text::seconds;
use issfa::{Error, Result};
use std::path::Path;

/// Memory, disk and seconds per sweep of a fit, measured on two sweeps of a slice of its rows
#[derive(Args)]
#[command(
    after_help = "Examples:\n  issfa plan data.npy --grid 64x64 --sweeps 2000\n  issfa plan data.npy --grid 64x64 --ranks 6,64 --bandwidth 10 --latency 2"
)]
pub struct Options {
    #[command(flatten)]
    fit: FitOptions,
    /// Also on so many ranks of mpirun: bytes sent and seconds per sweep
    #[arg(long, value_name = "R,R...", value_delimiter = ',')]
    ranks: Vec<usize>,
    /// Gigabytes a second that a rank can send to others
    #[arg(long, value_name = "GB/S", default_value_t = 10.0)]
    bandwidth: f64,
    /// Microseconds that the shortest message takes
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 2.0)]
    latency: f64,
    /// As if there were so many rows
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    fn wanted(&self) -> Result<Wanted> {
        let positive = |name: &str, value: f64| match value {
            value if value > 0.0 && value.is_finite() => Ok(value),
            _ => Err(Error::setting(name, value, "must be positive")),
        };
        if self.ranks.contains(&0) {
            return Err(Error::setting("ranks", 0, "must be at least 1"));
        }
        if self.rows == Some(0) {
            return Err(Error::setting("rows", 0, "must be at least 1"));
        }
        let network = Network {
            bandwidth: 1e9 * positive("bandwidth", self.bandwidth)?,
            latency: 1e-6 * positive("latency", self.latency)?,
        };
        Ok(Wanted { n_rows: self.rows, ranks: self.ranks.clone(), network: Some(network) })
    }
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let wanted = options.wanted()?;
    let json = options.json;
    let checked = options.fit.checked()?;
    let tell = |text: &str| common.say(text);
    // A plan has no folder of its own: it looks where a run made here would.
    let shelf = Shelf::beside(Path::new("run"), &tell);
    let plan = plan(&open_rows(&checked.settings, common)?, &checked, &shelf, &wanted)?;
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
    print_ranks(plan);
}

fn print_ranks(plan: &Plan) {
    if plan.by_ranks.is_empty() {
        return;
    }
    out!(
        "\n{:>6} {:>9} {:>9} {:>14} {:>16} {:>12} {:>12} {:>12}",
        "ranks",
        "grid",
        "features",
        "memory, rank 0",
        "sent per sweep",
        "work",
        "sending",
        "per sweep"
    );
    for case in &plan.by_ranks {
        out!(
            "{:>6} {:>9} {:>9} {:>14} {:>16} {:>12} {:>12} {:>12}",
            case.n_ranks,
            format!("{} x {}", case.grid[0], case.grid[1]),
            case.n_features,
            bytes(case.memory_bytes),
            bytes(case.bytes_per_sweep),
            seconds(case.seconds_of_work),
            seconds(case.seconds_to_send),
            seconds(case.seconds_per_sweep)
        );
    }
    let (n_tiles, n_bands) = (plan.n_sites.div_ceil(TILE), plan.n_rows.div_ceil(BAND));
    out!(
        "\nEvery rank as fast as this machine with its threads. What is sent is per rank. Ranks are a grid that shares {n_bands} \
         band(s) of {BAND} rows and {n_tiles} tile(s) of {TILE} modes: more ranks than there are tiles of bands find nothing to \
         do in the pass over the data."
    );
}
