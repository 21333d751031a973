//! `issfa selftest`: the invariance test of the sampler on a tiny model.

use crate::{Failure, Outcome};
use clap::Args;
use issfa::selftest::{self, Subject, Tiny};
use std::time::Instant;

/// Check on this machine that every update leaves the posterior unchanged
#[derive(Args)]
#[command(after_help = "Example:\n  issfa selftest --seconds 60")]
pub struct Options {
    /// About how long to test
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const FALSE_ALARMS: f64 = 1e-3;

pub fn run(options: Options) -> Outcome {
    let tiny = Tiny::default();
    let mut subjects = Subject::shipped();
    subjects.push(Subject::MistakenPrior);
    let n_tests = subjects.len() * selftest::STATISTICS.len();
    let threshold = selftest::threshold(n_tests, FALSE_ALARMS);
    out!(
        "States and data are drawn from a tiny model ({} rows, {}), updated, and compared with themselves.\n\
         Largest shift of {} statistics, in standard errors; above {threshold:.2} is an alarm (a false one in {FALSE_ALARMS} of runs).\n",
        tiny.n_rows,
        tiny.structure,
        selftest::STATISTICS.len(),
    );
    let share = options.seconds / subjects.len() as f64;
    let mut passed = true;
    for subject in &subjects {
        let trial = Instant::now();
        selftest::run(&tiny, subject, options.seed, 2000);
        let per_repeat = trial.elapsed().as_secs_f64() / 2000.0;
        let repeats = ((share / per_repeat) as u64).clamp(2000, 100_000_000);
        let report = selftest::run(&tiny, subject, options.seed, repeats);
        let (statistic, z) = report.worst();
        let wrong_on_purpose = *subject == Subject::MistakenPrior;
        let ok = (z.abs() > threshold) == wrong_on_purpose;
        passed &= ok;
        let verdict = match (ok, wrong_on_purpose) {
            (true, false) => "passes",
            (true, true) => "fails, as it must",
            (false, false) => "FAILS",
            (false, true) => "PASSES, BUT MUST NOT",
        };
        out!("{:36} {repeats:>9} repeats  {z:>8.2} ({statistic})  {verdict}", report.subject);
    }
    out!(
        "\n{}",
        if passed {
            "The sampler is right on this machine."
        } else {
            "The sampler is wrong on this machine: please report it."
        }
    );
    if passed { Ok(()) } else { Err(Failure::Exit(1)) }
}
