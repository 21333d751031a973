//! `issfa demo`: simulate a small study, fit it, compare with the truth, draw figures.

use super::evaluate::print_table;
use super::fit::fit_into;
use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::Centering;
use issfa::fit::Ranks;
use issfa::report::write_truth_figures;
use issfa::run::folder::{FIGURES, Output, PAGE};
use issfa::run::held::Held;
use issfa::run::settings::Settings;
use issfa::run::until::Until;
use issfa::simulation::Simulation;
use std::path::PathBuf;

/// Simulate a small study, fit it, and compare with the truth: under a minute on 2 cores
#[derive(Args)]
#[command(after_help = "Example:\n  issfa demo --out demo")]
pub struct Options {
    /// The folder to make (an earlier demo there is replaced)
    #[arg(long, default_value = "demo")]
    out: PathBuf,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let (sim, fit) = (options.out.join("sim"), options.out.join("run"));
    let earlier = sim.join("simulation.toml").is_file();
    let _held = Held::for_new(&options.out, Output::Demo, common.overwrite || earlier, &[])?;
    let simulation = Simulation::small(1);
    common.say(&format!(
        "1. simulate: {} noisy images on {} made of {} smooth features, each used by {:.0}% of them",
        simulation.rows,
        simulation.grid,
        simulation.features,
        100.0 * simulation.density
    ));
    let mut held = Held::for_new(&sim, Output::Simulation, true, &[])?;
    simulation.write(&held.begin()?)?;
    held.publish()?;
    common.say("2. fit: the number of features, their smoothness and their use are learned");
    let settings = Settings {
        input: vec![std::path::absolute(sim.join("observations.npy")).unwrap_or_default()],
        heldout: Some(std::path::absolute(sim.join("heldout.npy")).unwrap_or_default()),
        grid: Some(simulation.grid.clone()),
        chains: 2,
        until: Until::Settled,
        sweeps: 4000,
        burn_in: Some(250),
        thin: Some(5),
        keep_draws: 30,
        seed: 1,
        // As they were simulated: white noise, and features that are to explain all there is.
        noise: "white".into(),
        center: Some(Centering::None),
        ..Settings::default()
    };
    let held = Held::for_new(&fit, Output::Run, true, &[])?;
    let fitted = fit_into(settings.check()?, held, Ranks::alone(), common)?.expect("alone, this process has it all");
    let _held_run = Held::of_run(&fit)?;
    common.say("3. compare with the truth");
    let report = issfa::evaluate::truth::evaluate(&fitted, &sim)?;
    write_truth_figures(&fitted, &sim, &fit.join(FIGURES))?;
    if !common.quiet {
        print_table(&serde_json::to_value(&report).expect("a report is JSON"));
    }
    let figures = fit.join(FIGURES);
    let page = fit.join(PAGE);
    common.say(&format!(
        "\nLook at {}\n        {}\n        {}\nThen: issfa summary {}",
        page.display(),
        figures.join("truth_features.png").display(),
        figures.join("truth_reconstruction.png").display(),
        fit.display(),
    ));
    Ok(())
}
