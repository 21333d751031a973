//! `issfa summary`: what a run found, how well it mixed, and what to do.

use super::fit::seconds;
use crate::{Outcome, words};
use clap::Args;
use issfa::summary::Fitted;
use issfa::summary::overview::Overview;
use std::path::PathBuf;

/// The posterior in numbers, mixing, costs, and a verdict in words
#[derive(Args)]
#[command(after_help = "Example:\n  issfa summary run")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: Options) -> Outcome {
    let fitted = Fitted::open(&options.run)?;
    let mut overview = fitted.summary();
    overview.verdict.iter_mut().for_each(|line| *line = words::text(line));
    if options.json {
        out!("{}", serde_json::to_string_pretty(&overview).expect("an overview is JSON"));
    } else {
        print(&overview);
        print_features(&fitted);
        print_synchrony(&overview);
        out!("\nVerdict");
        overview.verdict.iter().for_each(|line| out!("  {line}"));
    }
    Ok(())
}

fn print(overview: &Overview) {
    out!(
        "{}: {} rows x {} sites, {}; {} chain(s), sweep {} of {}, {} kept after {} burn-in\n",
        overview.run,
        overview.n_rows,
        overview.n_sites,
        overview.structure,
        overview.chains,
        overview.sweeps_done,
        overview.sweeps_planned,
        overview.n_kept,
        overview.burn_in,
    );
    if !overview.preparation.is_empty() {
        out!("data: {}\n", overview.preparation);
    }
    out!(
        "{} persistent features (in at least half of the kept sweeps), {} of which hold 95% of their sums of squares; all \
         but noise is {:.2}% of the data's",
        overview.n_persistent,
        overview.n_carrying_95,
        100.0 * overview.variance_explained,
    );
    print_counts(overview);
    if let Some(dimension) = overview.minka_dimension {
        out!("principal components by Minka's evidence: {dimension}");
    }
    if overview.n_kept == 0 {
        out!("\nno draws were kept yet: burn-in is not over");
        return;
    }
    out!("\n{:24} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6}", "", "mean", "5%", "median", "95%", "ESS", "R-hat");
    for quantity in &overview.quantities {
        let [low, middle, high] = quantity.quantiles;
        out!(
            "{:24} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6.3}",
            quantity.name,
            figure(quantity.mean),
            figure(low),
            figure(middle),
            figure(high),
            // A quantity that never moved has none.
            or_dash(quantity.effective_sample_size, 0),
            quantity.split_r_hat,
        );
    }
    out!("\n{} per sweep; share of each part:", seconds(overview.seconds_per_sweep));
    let mut shares: Vec<_> = overview.kernel_shares.iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(a.1));
    for (name, share) in shares {
        let accepted = overview.acceptance.get(name).map_or(String::new(), |rate| format!("  accepted {:.3}", rate));
        out!("  {name:20} {:5.1}%{accepted}", 100.0 * share);
    }
}

fn print_counts(overview: &Overview) {
    let total: usize = overview.n_features_posterior.values().sum();
    let mut counts: Vec<_> = overview.n_features_posterior.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let shown: Vec<String> =
        counts.iter().take(8).map(|(k, n)| format!("{k} ({:.0}%)", 100.0 * **n as f64 / total as f64)).collect();
    out!("number of features: {}{}", shown.join(", "), if counts.len() > 8 { ", ..." } else { "" });
}

fn print_features(fitted: &Fitted) {
    const SHOWN: usize = 15;
    let table = &fitted.found().features.table;
    if table.is_empty() {
        return;
    }
    out!(
        "\n{:>8} {:>9} {:>12} {:>10} {:>9} {:>10}  smoothness (FWHM in {}, 90% interval)",
        "feature",
        "presence",
        "activations",
        "variance",
        "kurtosis",
        "stability",
        if fitted.record().images { "mm" } else { "sites" },
    );
    for row in table.iter().take(SHOWN) {
        let widths: Vec<String> = row
            .smoothness
            .iter()
            .map(|[low, middle, high]| match middle.is_nan() {
                true => "-".into(),
                false => format!("{middle:.1} ({low:.1}-{high:.1})"),
            })
            .collect();
        out!(
            "{:>8} {:>9.2} {:>12.1} {:>9.3}% {:>9.1} {:>10}  {}",
            row.id,
            row.presence,
            row.activations,
            100.0 * row.variance_explained,
            row.kurtosis,
            row.stability.map_or("-".into(), |s| format!("{s:.3}")),
            widths.join(" x "),
        );
    }
    if table.len() > SHOWN {
        out!("  ... {} more in features.tsv", table.len() - SHOWN);
    }
}

fn print_synchrony(overview: &Overview) {
    const SHOWN: usize = 5;
    if overview.synchrony.is_empty() {
        return;
    }
    out!("\nmost alike in all runs (mean correlation of time courses; circular shifts; all in synchrony.tsv):");
    out!("{:>8} {:>12} {:>12} {:>9} {:>9}", "feature", "correlation", "95% shifted", "p", "q");
    for row in overview.synchrony.iter().take(SHOWN) {
        let [correlation, shifted] = [row.correlation, row.null_95].map(|x| or_dash(x, 3));
        out!("{:>8} {correlation:>12} {shifted:>12} {:>9.4} {:>9.4}", row.id, row.p, row.q);
    }
}

/// A number where there is one.
fn or_dash(x: f64, digits: usize) -> String {
    if x.is_nan() { "-".into() } else { format!("{x:.digits$}") }
}

/// A number with enough digits for its size.
pub fn figure(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 || !x.is_finite() {
        format!("{x}")
    } else if (1e-3..1e6).contains(&size) {
        let digits = (4 - size.log10().floor() as i32).clamp(0, 6) as usize;
        format!("{x:.digits$}")
    } else {
        format!("{x:.4e}")
    }
}
