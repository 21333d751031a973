//! `issfa structure`: what an expression of structures means.

use super::summary::figure;
use crate::Outcome;
use crate::options::{Common, numbers};
use clap::{Args, Subcommand};
use issfa::data::memory;
use issfa::report;
use issfa::run_folder::{Output, check_output, prepare_output};
use issfa::structure::{Curve, Shelf, Spectrum, Structure, expression};
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

/// Size, cost and eigenvalues of a structure, and its eigenvectors as a figure
#[derive(Args)]
#[command(after_help = "Examples:\n  issfa structure show \"path(8) x path(8)\"\n  \
    issfa structure show \"groups(8,8,5,11)\" --out groups")]
struct Show {
    /// The expression, such as "cycle(24) x path(33)"; words: path(n), cycle(n), groups(sizes), wavelet(n,haar|d4),
    /// iid(n), graph(FILE)
    structure: String,
    /// Sites along each axis, where the expression leaves them out
    #[arg(long)]
    grid: Option<String>,
    /// The spectral curve
    #[arg(long, default_value = "q")]
    curve: String,
    /// The curve's parameters, which scale the eigenvectors (default: 1 each)
    #[arg(long)]
    theta: Option<String>,
    /// The folder to make for the figure (an earlier one made by this command is replaced)
    #[arg(long, default_value = "structure")]
    out: PathBuf,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let Action::Show(options) = options.action;
    let grid = options.grid.as_deref().map(expression::parse_grid).transpose()?;
    let tell = |text: &str| common.say(text);
    let shelf = Shelf::beside(&options.out, &tell);
    let structure = expression::build_with(Some(&options.structure), grid.as_deref(), &shelf)?;
    memory::check(&structure.expression(), structure.n_sites().saturating_mul(8 * 100) as u64)?;
    let spectrum = Spectrum::new(&structure, &Curve::parse(&options.curve)?);
    let given = options.theta.as_deref().map(|text| numbers("--theta", text)).transpose()?;
    let theta = given.unwrap_or_else(|| vec![1.0; spectrum.n_parameters()]);
    spectrum.check_theta(&theta)?;
    let earlier = options.out.join("eigenvectors.svg").is_file();
    check_output(&options.out, Output::StructureShown, common.overwrite || earlier)?;
    prepare_output(&options.out, Output::StructureShown)?;
    describe(&structure, &spectrum, &theta);
    report::write_eigenvectors(&options.out, &structure, &spectrum, &theta)?;
    structure.save_graphs(&options.out)?;
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
    out!("sites        {} ({})", structure.n_sites(), expression::show_grid(structure.grid()));
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
