//! `issfa merge`: runs of the same data and settings with different seeds become the chains of one run.

use super::fit::{figures, finding, ordinal};
use super::report::write_page;
use crate::options::Common;
use crate::{Outcome, words};
use clap::Args;
use issfa::data::grid::show_grid;
use issfa::fit::merge::Merge;
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::summary::{Fitted, labels};
use issfa_report::PageOptions;
use std::path::{Path, PathBuf};

/// Make runs of the same data and settings, with different seeds, the chains of one run
#[derive(Args)]
#[command(
    after_help = "Example:\n  issfa fit data.npy --seed 1 --out one      (at the same time, or on another machine:)\n  issfa fit data.npy --seed 2 --out two\n  issfa merge one two --out both\n  issfa summary both"
)]
pub struct Options {
    /// The run folders, two or more; they are not changed
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The run folder to make: the chains of all runs, in the order given
    #[arg(long, value_name = "RUN")]
    out: PathBuf,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let merge = Merge::plan(&options.runs, &options.out)?;
    let mut held = Held::for_new(&options.out, Output::Run, common.overwrite, &[])?;
    announce(&merge, &options.out, common);
    merge.write(&mut held)?;
    let fitted = Fitted::open(&options.out)?;
    figures(&fitted, &options.out, common)?;
    labels::write_like(&fitted, &merge.runs[0].folder, &options.out)?;
    write_page(&fitted, &PageOptions::of(&fitted, &words::text), &options.out, common)?;
    let overview = fitted.summary();
    common.say(&finding(&overview));
    let out = options.out.display();
    if overview.minka_dimension.is_none() {
        common.say(&format!("issfa report {out} adds the eigenvalues of the data and their figure"));
    }
    let go_on =
        if merge.sweep < merge.runs[0].checked.window.sweeps { format!(", issfa resume {out}") } else { String::new() };
    common.say(&format!("done: {out}; next: issfa summary {out}{go_on}"));
    Ok(())
}

/// The first lines: what will be done, and which chain comes from where.
fn announce(merge: &Merge, out: &Path, common: &Common) {
    let (checked, record) = (&merge.runs[0].checked, &merge.runs[0].record);
    common.say(&format!(
        "merge: {} runs of {} rows x {} sites ({}), {}; {} chains of {} sweeps ({} burn-in, then every {} kept); results in {}",
        merge.runs.len(),
        record.n_rows,
        record.n_sites,
        show_grid(merge.structure().grid()),
        record.structure,
        merge.chains.len(),
        merge.sweep,
        checked.window.burn_in,
        ordinal(checked.thin),
        out.display(),
    ));
    for (at, source) in merge.chains.iter().enumerate() {
        common.say(&format!("chain {}: {}, seed {}", at + 1, source.folder.display(), source.stream.seed));
    }
}
