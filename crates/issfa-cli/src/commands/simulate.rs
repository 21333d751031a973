//! `issfa simulate`: data with a known truth.

use crate::Outcome;
use crate::options::{Common, numbers, pair};
use clap::{Args, ValueEnum};
use issfa::Result;
use issfa::run_folder::{check_output, prepare_output};
use issfa::simulation::Simulation;
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
    /// One structure an axis (default: path on every axis)
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
    /// The curve's parameters: ridge,roughness
    #[arg(long)]
    theta: Option<String>,
    #[arg(long, allow_hyphen_values = true)]
    weight_mean: Option<f64>,
    /// The range of the features' weight variances
    #[arg(long, value_name = "LOW,HIGH")]
    weight_variance: Option<String>,
    /// The noise variance
    #[arg(long)]
    noise: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum PresetName {
    Paper,
    Small,
}

impl Options {
    fn simulation(&self) -> Result<Simulation> {
        let preset = match self.preset {
            PresetName::Paper => Simulation::paper(self.seed),
            PresetName::Small => Simulation::small(self.seed),
        };
        let theta = self.theta.as_deref().map(|text| numbers("--theta", text)).transpose()?;
        let variance = self.weight_variance.as_deref().map(|text| pair("--weight-variance", text)).transpose()?;
        Ok(Simulation {
            seed: self.seed,
            rows: self.rows.unwrap_or(preset.rows),
            heldout_rows: self.heldout_rows.unwrap_or(preset.heldout_rows),
            grid: self.grid.clone().unwrap_or(preset.grid),
            structure: self.structure.clone(),
            curve: self.curve.clone().unwrap_or(preset.curve),
            features: self.features.unwrap_or(preset.features),
            density: self.density.unwrap_or(preset.density),
            theta: theta.unwrap_or(preset.theta),
            weight_mean: self.weight_mean.unwrap_or(preset.weight_mean),
            weight_variance: variance.unwrap_or(preset.weight_variance),
            noise: self.noise.unwrap_or(preset.noise),
        })
    }
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let simulation = options.simulation()?;
    simulation.check()?;
    check_output(&options.out, common.overwrite)?;
    prepare_output(&options.out, &["simulation.toml"])?;
    simulation.write(&options.out)?;
    common.say(&format!(
        "simulated {} + {} rows on {} with {} features in {}; next: issfa fit {}/observations.npy --grid {} --out run",
        simulation.rows,
        simulation.heldout_rows,
        simulation.grid,
        simulation.features,
        options.out.display(),
        options.out.display(),
        simulation.grid,
    ));
    Ok(())
}
