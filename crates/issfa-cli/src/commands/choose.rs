//! `issfa choose`: which settings, by short fits judged on cells that they did not see.

use super::fit::{FitOptions, open_rows};
use crate::options::Common;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::{Failure, Outcome};
use clap::Args;
use issfa::choose::{Choice, Judging, Trial, USUAL_SWEEPS, choose};
use issfa::run::folder::Output;
use issfa::run::held::Held;
use issfa::run::inputs;
use issfa::structure::Shelf;
use issfa::summary::text::seconds;
use issfa::{Error, Result};
use std::path::{Path, PathBuf};

/// Which settings? Short fits over structures and shares of noise, judged by hidden cells of rows that they did not see
///
/// Every fifth block of rows that follow each other is held out. Each setting is fitted to the other rows; then a share of
/// the cells of the held-out rows is hidden and predicted from the visible ones. Structures are tried first, path at the
/// noise that is measured, the others at as much; then, with the best of them, other shares of noise (--target-r2): halved for as
/// long as that predicts better, doubled for as long as it does not predict worse. What --structure, --target-r2 or
/// --noise-prior say is kept.
///
/// Recommended is the simplest of the settings that are as good as the best: whose R2 is below it by at most two standard errors
/// of the difference, or by at most 1% of it. The usual structure (path) goes before others, then come the fewest features.
#[derive(Args)]
#[command(
    mut_arg("sweeps", |arg| arg.help("Iterations of each short fit (default 200)")),
    mut_arg("time_budget", |arg| arg.help("Stop after this time, with what was tried by then: 90s, 5m, 2h")),
    mut_arg("seed", |arg| arg.help("Same seed and data: same results; also which cells are hidden")),
    after_help = "Examples:\n  issfa choose data.npy --grid 64x64\n  issfa choose \"run-*.nii.gz\" --mask mask.nii.gz --sweeps 100 --out choice"
)]
pub struct Options {
    /// A folder to make with choose.tsv, choose.json and a figure
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The share of cells of held-out rows to hide
    #[arg(long, default_value_t = Judging::default().hide)]
    hide: f64,
    /// The share of rows to hold out, in blocks of rows that follow each other
    #[arg(long, value_name = "SHARE", default_value_t = Judging::default().holdout)]
    holdout: f64,
    /// How many such parts are held out one after the other, with a fit of every setting for each
    #[arg(long, value_name = "N", default_value_t = Judging::default().folds)]
    folds: usize,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fit: FitOptions,
}

/// Options that the recommended fit is not to have, and whether a value follows them.
const NOT_OF_A_FIT: [(&str, bool); 14] = [
    ("--out", true),
    ("--hide", true),
    ("--holdout", true),
    ("--folds", true),
    ("--json", false),
    ("--sweeps", true),
    ("--burn-in", true),
    ("--thin", true),
    ("--time-budget", true),
    ("--structure", true),
    ("--overwrite", false),
    ("--quiet", false),
    ("--progress", true),
    ("--threads", true),
];

pub fn run(options: Options, common: &Common) -> Outcome {
    let Options { out, hide, holdout, folds, json, mut fit } = options;
    fit.sweeps.get_or_insert(USUAL_SWEEPS);
    let checked = fit.checked()?;
    let held = out.as_deref().map(|out| {
        let inputs = inputs::files(&checked.settings.input, &checked.settings);
        Held::for_new(out, Output::Choice, common.overwrite, &inputs)
    });
    let held = held.transpose()?;
    let common = &Common { quiet: common.quiet || json, ..common.clone() };
    let tell = |text: &str| common.say(text);
    let shelf = Shelf::beside(out.as_deref().unwrap_or(Path::new("run")), &tell);
    let rows = open_rows(&checked.settings, common)?;
    let signals = Signals::listen();
    let mut progress = Progress::new(common, signals.clone());
    let judging = Judging { hide, holdout, folds };
    let choice = choose(&rows, &checked, &judging, &shelf, (&mut progress, Some(signals.watch())));
    progress.finish();
    let choice = match choice {
        Err(Error::Stopped) => {
            err!("stopped before the first setting was tried; nothing was written");
            return Err(Failure::Exit(if signals.came() { signals.exit_code() } else { 1 }));
        }
        choice => choice?,
    };
    if json {
        out!("{}", serde_json::to_string_pretty(&choice).expect("a choice is JSON"));
    } else {
        print(&choice);
    }
    held.map_or(Ok(()), |held| write(&choice, held, common))?;
    match (choice.is_complete, signals.came()) {
        (false, true) => Err(Failure::Exit(signals.exit_code())),
        _ => Ok(()),
    }
}

fn write(choice: &Choice, mut held: Held, common: &Common) -> Result<()> {
    let place = held.begin()?;
    choice.write(&place)?;
    held.publish()?;
    common.say(&format!("choose.tsv, choose.json and choose.png in {}", held.folder().display()));
    Ok(())
}

/// The curve, what is recommended and why, and what to type next.
fn print(choice: &Choice) {
    out!(
        "{} of {} rows were held out, in {} blocks; {:.0}% of their cells were hidden; fits of {} sweeps",
        choice.n_held,
        choice.n_rows,
        choice.n_blocks,
        100.0 * choice.hide,
        choice.sweeps
    );
    let names: Vec<String> = choice.trials.iter().map(setting).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max("setting".len());
    out!(
        "\n  {:width$}  {:>8} {:>8}  {:>17}  {:>8}  {:>6}  {:>9}",
        "setting",
        "R2",
        "+-",
        "behind best",
        "features",
        "noise",
        "time"
    );
    for (at, trial) in choice.trials.iter().enumerate() {
        let behind =
            if at == choice.best { "best".into() } else { format!("{:.4} +- {:.4}", trial.behind, trial.behind_se) };
        out!(
            "{} {:width$}  {:>8.4} {:>8.4}  {behind:>17}  {:>8.1}  {:>5.1}%  {:>9}",
            if at == choice.recommended { "*" } else { " " },
            names[at],
            trial.r2,
            trial.r2_se,
            trial.n_features,
            100.0 * trial.share_of_noise,
            seconds(trial.seconds)
        );
    }
    let so_far = if choice.is_complete { "" } else { " so far: it was stopped before all was tried" };
    out!("\nrecommended{so_far}: {}", names[choice.recommended]);
    out!("  {}", choice.reason);
    out!("  R2 {:.4} where each block is predicted by what the other blocks recommend", choice.r2_of_choice);
    out!("next: {}", command(choice.chosen(), std::env::args().skip(1)));
}

/// What was tried, as options.
fn setting(trial: &Trial) -> String {
    let structure = (!trial.structure.is_empty()).then(|| format!("--structure {}", quoted(&trial.structure)));
    let target = trial.target_r2.map(|target| format!("--target-r2 {target}"));
    structure.into_iter().chain(target).collect::<Vec<_>>().join(" ")
}

/// The fit to be made: with the options given here, but for those that are about choosing.
fn command(trial: &Trial, given: impl Iterator<Item = String>) -> String {
    let mut words = vec!["issfa".to_string(), "fit".to_string()];
    let mut given = given.filter(|word| word != "choose");
    while let Some(word) = given.next() {
        let known = NOT_OF_A_FIT.iter().find(|(name, _)| word.split('=').next() == Some(name));
        match known {
            Some((name, true)) if word == *name => drop(given.next()),
            Some(_) => {}
            None => words.push(quoted(&word)),
        }
    }
    words.push(setting(trial));
    words.push("--out run".into());
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// In quotes where a shell would take the text apart.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    match text.chars().all(is_plain) && !text.is_empty() {
        true => text.to_string(),
        false if text.contains(['"', '$', '`', '\\', '!']) => format!("'{}'", text.replace('\'', "'\\''")),
        false => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn tried(target_r2: Option<f64>) -> Trial {
        let mut trial = Trial::default();
        (trial.structure, trial.target_r2) = ("path x cycle".into(), target_r2);
        trial
    }

    #[test]
    fn the_command_keeps_what_belongs_to_the_fit() {
        let typed =
            "choose --quiet a*.npy --grid 8x8 --out=c --sweeps 50 --structure x --seed 3 --json --hide 0.1 --scale";
        let said = command(&tried(Some(0.93)), typed.split(' ').map(String::from));
        assert_eq!(
            said,
            "issfa fit \"a*.npy\" --grid 8x8 --seed 3 --scale --structure \"path x cycle\" --target-r2 0.93 --out run"
        );
        let said = command(&tried(None), ["choose", "it's $5.npy"].map(String::from).into_iter());
        assert_eq!(said, "issfa fit 'it'\\''s $5.npy' --structure \"path x cycle\" --out run");
    }

    /// Options that are dropped exist, and take a value where it is said so.
    #[test]
    fn what_a_fit_is_not_to_have_is_known() {
        let mut cli = crate::Cli::command();
        cli.build();
        let choose = cli.find_subcommand("choose").unwrap();
        for (name, has_value) in NOT_OF_A_FIT {
            let option = choose.get_arguments().find(|argument| argument.get_long() == Some(&name[2..])).expect(name);
            assert_eq!(option.get_action().takes_values(), has_value, "{name}");
        }
    }
}
