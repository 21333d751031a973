//! `issfa structure`: what an expression of structures means.

use crate::Outcome;
use crate::options::{Common, Prior, PriorOptions};
use clap::{Args, Subcommand};
use issfa::data::grid::show_grid;
use issfa::report;
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::structure::{Shelf, Spectrum, Structure, expression};
use issfa::summary::text::figure;
use std::path::PathBuf;

/// Look at a structure before using it
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Show(Show),
}

/// Size, cost and eigenvalues of a structure, and as a figure its eigenvectors scaled by theta (1 each by default)
#[derive(Args)]
#[command(after_help = "Examples:\n  issfa structure show \"path(8) x path(8)\"\n  \
    issfa structure show \"groups(8,8,5,11)\" --out groups")]
struct Show {
    /// The expression, such as "cycle(24) x path(33)"; words: path(n), cycle(n), groups(sizes), wavelet(n,haar|d4),
    /// iid(n), graph(FILE)
    structure: String,
    #[command(flatten)]
    prior: PriorOptions,
    /// The folder to make for the figure (an earlier one made by this command is replaced)
    #[arg(long, default_value = "structure")]
    out: PathBuf,
}

/// Enough for the figure's eigenvectors.
const N_IMAGES: usize = 100;

pub fn run(options: Options, common: &Common) -> Outcome {
    let Action::Show(options) = options.action;
    let tell = |text: &str| common.say(text);
    let shelf = Shelf::beside(&options.out, &tell);
    let usual = |spectrum: &Spectrum| vec![1.0; spectrum.n_parameters()];
    let Prior { structure, spectrum, theta } =
        options.prior.build(Some(&options.structure), &shelf, N_IMAGES, usual)?;
    let earlier = options.out.join("eigenvectors.svg").is_file();
    let inputs = expression::files(&options.structure);
    let mut held = Held::for_new(&options.out, Output::StructureShown, common.overwrite || earlier, &inputs)?;
    let place = held.begin()?;
    describe(&structure, &spectrum, &theta);
    report::write_eigenvectors(&place, &structure, &spectrum, &theta)?;
    structure.save_graphs(&place)?;
    held.publish()?;
    common.say(&format!("eigenvectors: {}", options.out.join("eigenvectors.png").display()));
    Ok(())
}

/// The table for people.
fn describe(structure: &Structure, spectrum: &Spectrum, theta: &[f64]) {
    let range = |values: &[f64]| {
        let (low, high) = values.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &x| (low.min(x), high.max(x)));
        let n_zero = values.iter().filter(|&&x| x == 0.0).count();
        format!("{} to {} ({n_zero} of {} are 0)", figure(low), figure(high), values.len())
    };
    out!("structure    {}", structure.expression());
    out!("sites        {} ({})", structure.n_sites(), show_grid(structure.grid()));
    for (at, axis) in structure.axes().iter().enumerate() {
        let n = axis.n_sites();
        out!(
            "axis {:<7} {}: n = {n}, cost of a line {}, eigenvalues {}",
            at + 1,
            axis.word(),
            axis.cost(),
            range(axis.eigenvalues())
        );
    }
    out!("eigenvalues  {}", range(&structure.eigenvalues()));
    let names = spectrum.parameter_names();
    let theta: Vec<String> =
        names.iter().zip(theta).map(|(name, value)| format!("{name} {}", figure(*value))).collect();
    out!("parameters   {}", theta.join(", "));
}
