//! The `issfa` command: flags to checked settings to library calls; one file a command.

#[macro_use]
mod print;
mod commands;
mod options;
mod progress;
mod ranks;
mod signals;
mod words;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use issfa::Error;
use options::Common;
use std::process::ExitCode;

/// Infinite structured sparse factor analysis: how many latent features made the data, what they look like, and
/// which of them each observation uses.
#[derive(Parser)]
#[command(name = "issfa", version, arg_required_else_help = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand)]
enum Command {
    Demo(commands::demo::Options),
    Simulate(commands::simulate::Options),
    Fit(commands::fit::Options),
    Resume(commands::resume::Options),
    Plan(commands::plan::Options),
    Choose(commands::choose::Options),
    Noise(commands::noise::Options),
    Summary(commands::summary::Options),
    Transform(commands::transform::Options),
    Draws(commands::draws::Options),
    Evaluate(commands::evaluate::Options),
    Peaks(commands::peaks::Options),
    Match(commands::match_maps::Options),
    PriorSample(commands::prior_sample::Options),
    Structure(commands::structure::Options),
    Selftest(commands::selftest::Options),
    Merge(commands::merge::Options),
    Report(commands::report::Options),
    Watch(commands::watch::Options),
}

/// How a command failed: by the library's account, or with an exit code of its own after it has said all.
pub enum Failure {
    Library(Error),
    Exit(u8),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Library(error)
    }
}

/// What a command returns.
pub type Outcome = Result<(), Failure>;

/// Reads the arguments, runs the command and says how it went.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return told(&answer),
    };
    let outcome = run(cli);
    match outcome {
        Ok(()) => written(),
        Err(Failure::Exit(code)) => ExitCode::from(code),
        Err(Failure::Library(error)) => {
            err!("error: {}", words::error(&error));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// What other programs call the number of components.
const NUMBER_OF_COMPONENTS: [&str; 12] = [
    "--n-components",
    "--n_components",
    "--ncomponents",
    "--components",
    "--ncomp",
    "--n-features",
    "--n-factors",
    "--factors",
    "--dim",
    "--K",
    "--k",
    "-k",
];

/// What to say about an option that does not exist, but has a name elsewhere.
fn known_elsewhere(answer: &clap::Error) -> Option<String> {
    let unknown = match (answer.kind(), answer.get(ContextKind::InvalidArg)?) {
        (ErrorKind::UnknownArgument, ContextValue::String(unknown)) => unknown,
        _ => return None,
    };
    NUMBER_OF_COMPONENTS.contains(&unknown.as_str()).then(|| {
        format!(
            "error: there is no {unknown}: how many features there are is found in the data; --max-features N sets the most \
             there may be"
        )
    })
}

/// Help, or what is wrong with the arguments.
fn told(answer: &clap::Error) -> ExitCode {
    if let Some(text) = known_elsewhere(answer) {
        err!("{text}");
        return ExitCode::from(2);
    }
    let text = answer.render().to_string();
    let has_codes = std::env::args_os().any(|word| word.to_string_lossy().contains(char::is_control));
    match (answer.use_stderr(), has_codes) {
        (true, true) => err!("{}", text.trim_end()),
        (true, false) => drop(answer.print()),
        (false, _) => {
            print::note(answer.print());
            return written();
        }
    }
    ExitCode::from(2)
}

/// Whether everything reached standard output.
fn written() -> ExitCode {
    let Some(problem) = print::failure() else { return ExitCode::SUCCESS };
    err!("error: cannot write to standard output: {problem}");
    ExitCode::from(1)
}

fn exit_code(error: &Error) -> u8 {
    if error.is_wrong_use() { 2 } else { 1 }
}

fn run(cli: Cli) -> Outcome {
    let common = cli.common;
    common.start_threads()?;
    if !matches!(cli.command, Command::Fit(_) | Command::Resume(_)) {
        ranks::alone()?;
    }
    match cli.command {
        Command::Demo(options) => commands::demo::run(options, &common),
        Command::Simulate(options) => commands::simulate::run(options, &common),
        Command::Fit(options) => ranks::together(&common, |job, common| commands::fit::run(options, job, common)),
        Command::Plan(options) => commands::plan::run(options, &common),
        Command::Choose(options) => commands::choose::run(options, &common),
        Command::Noise(options) => commands::noise::run(options, &common),
        Command::Resume(options) => ranks::together(&common, |job, common| commands::resume::run(options, job, common)),
        Command::Summary(options) => commands::summary::run(options),
        Command::Transform(options) => commands::transform::run(options, &common),
        Command::Draws(options) => commands::draws::run(options, &common),
        Command::Evaluate(options) => commands::evaluate::run(options),
        Command::Peaks(options) => commands::peaks::run(options, &common),
        Command::Match(options) => commands::match_maps::run(options, &common),
        Command::PriorSample(options) => commands::prior_sample::run(options, &common),
        Command::Structure(options) => commands::structure::run(options, &common),
        Command::Selftest(options) => commands::selftest::run(options),
        Command::Merge(options) => commands::merge::run(options, &common),
        Command::Report(options) => commands::report::run(options, &common),
        Command::Watch(options) => commands::watch::run(options),
    }
}
