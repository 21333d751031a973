//! The overview of a fit as text, and numbers and times for people.

use super::overview::Overview;
use std::fmt::{self, Display, Write};
use std::time::Duration;

impl Display for Overview {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        put_head(out, self)?;
        put_features(out, self)?;
        put_synchrony(out, self)?;
        writeln!(out, "\nVerdict")?;
        self.verdict.iter().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

fn put_head(out: &mut dyn Write, overview: &Overview) -> fmt::Result {
    writeln!(
        out,
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
    )?;
    if !overview.preparation.is_empty() {
        writeln!(out, "data: {}", overview.preparation)?;
    }
    if let Some((n_sweeps, n_modes)) = overview.coarse_start {
        writeln!(out, "start: {n_sweeps} sweeps at the smoothest {n_modes} of {} modes", overview.n_sites)?;
    }
    match overview.noise_level {
        Some(level) => writeln!(
            out,
            "noise: {}; its level is {} in the data's units, and noise variance and theta below are in units of it\n",
            overview.noise,
            figure(level)
        )?,
        None => writeln!(out, "noise: {}\n", overview.noise)?,
    }
    if overview.n_kept == 0 {
        let n = overview.n_features_now.map_or(String::new(), |n| format!(" The chain stands at {n} features."));
        return writeln!(out, "no draws were kept yet: burn-in ({} sweeps) is not over.{n}", overview.burn_in);
    }
    writeln!(
        out,
        "{} persistent features (in at least half of the kept sweeps), {} of which hold 95% of their sums of squares{}; all \
         but noise is {:.2}% of the data's",
        overview.n_persistent,
        overview.n_carrying_95,
        overview.n_agreeing.map_or(String::new(), |n| format!(", {n} agree between chains")),
        100.0 * overview.variance_explained,
    )?;
    put_counts(out, overview)?;
    if let Some(dimension) = overview.minka_dimension {
        writeln!(out, "principal components by Minka's evidence: {dimension}")?;
    }
    put_quantities(out, overview)?;
    put_costs(out, overview)
}

fn put_quantities(out: &mut dyn Write, overview: &Overview) -> fmt::Result {
    writeln!(
        out,
        "\n{:24} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6} {:>9} {:>8}",
        "", "mean", "5%", "median", "95%", "ESS", "R-hat", "bulk ESS", "by ranks"
    )?;
    for quantity in &overview.quantities {
        let [low, middle, high] = quantity.quantiles;
        writeln!(
            out,
            "{:24} {:>12} {:>12} {:>12} {:>12} {:>7} {:>6.3} {:>9} {:>8}",
            quantity.name,
            figure(quantity.mean),
            figure(low),
            figure(middle),
            figure(high),
            // A quantity that never moved has none.
            or_dash(quantity.effective_sample_size, 0),
            quantity.split_r_hat,
            or_dash(quantity.bulk_ess, 0),
            or_dash(quantity.rank_r_hat, 3),
        )?;
    }
    Ok(())
}

fn put_costs(out: &mut dyn Write, overview: &Overview) -> fmt::Result {
    writeln!(out, "\n{} per sweep; share of each part:", seconds(overview.seconds_per_sweep))?;
    let mut shares: Vec<_> = overview.kernel_shares.iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(a.1));
    for (name, share) in shares {
        let accepted = overview.acceptance.get(name).map_or(String::new(), |rate| format!("  accepted {:.3}", rate));
        writeln!(out, "  {name:20} {:5.1}%{accepted}", 100.0 * share)?;
    }
    Ok(())
}

fn put_counts(out: &mut dyn Write, overview: &Overview) -> fmt::Result {
    let total: usize = overview.n_features_posterior.values().sum();
    let mut counts: Vec<_> = overview.n_features_posterior.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let shown: Vec<String> =
        counts.iter().take(8).map(|(k, n)| format!("{k} ({:.0}%)", 100.0 * **n as f64 / total as f64)).collect();
    writeln!(out, "number of features: {}{}", shown.join(", "), if counts.len() > 8 { ", ..." } else { "" })
}

fn put_features(out: &mut dyn Write, overview: &Overview) -> fmt::Result {
    const SHOWN: usize = 15;
    let table = &overview.features;
    if table.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:>8} {:>9} {:>12} {:>10} {:>9} {:>10} {:>6}  smoothness (FWHM in {}, 90% interval)",
        "feature",
        "presence",
        "activations",
        "variance",
        "kurtosis",
        "stability",
        "chains",
        if overview.is_in_millimetres { "mm" } else { "sites" },
    )?;
    for row in table.iter().take(SHOWN) {
        let widths: Vec<String> = row
            .smoothness
            .iter()
            .map(|[low, middle, high]| match middle.is_nan() {
                true => "-".into(),
                false => format!("{middle:.1} ({low:.1}-{high:.1})"),
            })
            .collect();
        writeln!(
            out,
            "{:>8} {:>9.2} {:>12.1} {:>9.3}% {:>9.1} {:>10} {:>6}  {}",
            row.id,
            row.presence,
            row.activations,
            100.0 * row.variance_explained,
            row.kurtosis,
            row.stability.map_or("-".into(), |s| format!("{s:.3}")),
            row.chains,
            widths.join(" x "),
        )?;
    }
    if table.len() > SHOWN {
        writeln!(out, "  ... {} more in features.tsv", table.len() - SHOWN)?;
    }
    Ok(())
}

fn put_synchrony(out: &mut dyn Write, overview: &Overview) -> fmt::Result {
    const SHOWN: usize = 5;
    if overview.synchrony.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nmost alike in all runs (mean correlation of time courses; circular shifts; all in synchrony.tsv):"
    )?;
    writeln!(out, "{:>8} {:>12} {:>12} {:>9} {:>9}", "feature", "correlation", "95% shifted", "p", "q")?;
    for row in overview.synchrony.iter().take(SHOWN) {
        let [correlation, shifted] = [row.correlation, row.null_95].map(|x| or_dash(x, 3));
        writeln!(out, "{:>8} {correlation:>12} {shifted:>12} {:>9.4} {:>9.4}", row.id, row.p, row.q)?;
    }
    Ok(())
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

/// A short time for people.
pub fn seconds(time: f64) -> String {
    if time < 60.0 || time.is_nan() {
        format!("{time:.3} s")
    } else {
        duration(std::time::Duration::from_secs_f64(time))
    }
}

/// A time for people: `3 h 05 min`, `4 min 10 s`, `12 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}
