//! `issfa simulate`: data with a known truth.

use crate::Outcome;
use crate::options::{Common, named, numbers, pair};
use clap::{Args, ValueEnum};
use issfa::Result;
use issfa::data::grid::{parse_grid, show_grid};
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::simulation::{NoiseKind, Simulation, Traces};
use issfa::structure::{Curve, Shelf, Spectrum, expression};
use std::path::PathBuf;

/// Simulate observations of smooth features with sparse weights, and keep the truth
#[derive(Args)]
#[command(after_help = "Example:\n  issfa simulate --preset paper --seed 1 --out sim")]
pub struct Options {
    /// paper: 3000 rows on 100x100 with 50 features; small: 600 rows on 48x48 with 12
    #[arg(long, value_enum, default_value = "small")]
    preset: PresetName,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder to make
    #[arg(long)]
    out: PathBuf,
    /// Observations to fit
    #[arg(long)]
    rows: Option<usize>,
    /// Observations kept apart
    #[arg(long)]
    heldout_rows: Option<usize>,
    /// Sites along each axis, such as 100x100
    #[arg(long)]
    grid: Option<String>,
    /// One structure an axis, such as "cycle(24) x path(33)" (default: path on every axis)
    #[arg(long)]
    structure: Option<String>,
    /// The spectral curve
    #[arg(long)]
    curve: Option<String>,
    /// How many features
    #[arg(long)]
    features: Option<usize>,
    /// The probability that a row uses a feature
    #[arg(long)]
    density: Option<f64>,
    /// The curve's parameters, ridge then roughness (default 1,100)
    #[arg(long)]
    theta: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    weight_mean: Option<f64>,
    /// The range of the features' weight variances
    #[arg(long, value_name = "LOW,HIGH")]
    weight_variance: Option<String>,
    /// The noise variance, on average over sites
    #[arg(long)]
    noise: Option<f64>,
    /// What the noise is like: white, different between sites, in part smooth, or both (default white)
    #[arg(long, value_parser = named::<NoiseKind>(&["white", "sites", "smooth", "both"]))]
    noise_kind: Option<NoiseKind>,
    /// Weights from row to row: drawn anew (independent), or fading over the rows that follow (series); default independent
    #[arg(long, value_parser = named::<Traces>(&["independent", "series"]))]
    traces: Option<Traces>,
}

#[derive(Clone, Copy, ValueEnum)]
enum PresetName {
    Paper,
    Small,
}

impl Options {
    fn simulation(&self, shelf: &Shelf) -> Result<Simulation> {
        let preset = match self.preset {
            PresetName::Paper => Simulation::paper(self.seed),
            PresetName::Small => Simulation::small(self.seed),
        };
        let structure = self.structure.as_deref().map(expression::with_absolute_files).transpose()?;
        let curve = self.curve.clone().unwrap_or(preset.curve);
        // Sizes written in the structure are the grid; the preset's grid is for those who name neither.
        let (mut grid, mut example_theta) = (self.grid.clone(), None);
        if let Some(text) = structure.as_deref() {
            let sizes = self.grid.as_deref().map(parse_grid).transpose()?;
            let built = expression::build_with(Some(text), sizes.as_deref(), shelf)?;
            grid = Some(show_grid(built.grid()));
            example_theta = Some(Spectrum::new(&built, &Curve::parse(&curve)?).example_theta());
        }
        let theta = self.theta.as_deref().map(|text| numbers("theta", text)).transpose()?;
        let variance = self.weight_variance.as_deref().map(|text| pair("weight-variance", text)).transpose()?;
        Ok(Simulation {
            seed: self.seed,
            rows: self.rows.unwrap_or(preset.rows),
            heldout_rows: self.heldout_rows.unwrap_or(preset.heldout_rows),
            grid: grid.unwrap_or(preset.grid),
            structure,
            curve,
            features: self.features.unwrap_or(preset.features),
            density: self.density.unwrap_or(preset.density),
            theta: theta.or(example_theta).unwrap_or(preset.theta),
            weight_mean: self.weight_mean.unwrap_or(preset.weight_mean),
            weight_variance: variance.unwrap_or(preset.weight_variance),
            noise: self.noise.unwrap_or(preset.noise),
            noise_kind: self.noise_kind.unwrap_or(preset.noise_kind),
            traces: self.traces.unwrap_or(preset.traces),
            graphs: Vec::new(),
        })
    }
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let tell = |text: &str| common.say(text);
    let shelf = Shelf::beside(&options.out, &tell);
    let simulation = options.simulation(&shelf)?;
    let (structure, spectrum) = simulation.check(&shelf)?;
    simulation.check_room(&options.out, &structure)?;
    let inputs = simulation.structure.as_deref().map_or(Vec::new(), expression::files);
    let mut held = Held::for_new(&options.out, Output::Simulation, common.overwrite, &inputs)?;
    simulation.write_checked(&held.begin()?, &structure, &spectrum)?;
    held.publish()?;
    common.say(&format!(
        "simulated {} + {} rows on {} with {} features in {}; next: issfa fit {} --grid {}{} --out run",
        simulation.rows,
        simulation.heldout_rows,
        simulation.grid,
        simulation.features,
        options.out.display(),
        quoted(&options.out.join("observations.npy").display().to_string()),
        simulation.grid,
        model_options(&simulation),
    ));
    Ok(())
}

/// The options of `fit` that name the same model.
fn model_options(simulation: &Simulation) -> String {
    let structure = simulation.structure.iter().map(|text| format!(" --structure {}", quoted(text)));
    let curve = (simulation.curve != "q").then(|| format!(" --curve {}", quoted(&simulation.curve)));
    // Every feature has a mean weight, which centring would take out; noise is as it was made.
    let noise = (simulation.noise_kind == NoiseKind::White).then(|| " --noise white".to_string());
    structure.chain(curve).chain(noise).chain([" --center none".to_string()]).collect()
}

/// As a shell reads it back.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text.to_string() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
