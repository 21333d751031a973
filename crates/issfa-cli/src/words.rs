//! The library's settings and actions in the words of the command line: `missing = impute` is `--missing impute`, and
//! `resume run` is `issfa resume run`.

use crate::Cli;
use clap::{Command, CommandFactory};
use issfa::Error;
use issfa::error::{Action, Mention, Setting, reworded};

/// An error of the library as the user is told.
pub fn error(error: &Error) -> String {
    error.reworded(in_words)
}

/// A note, warning or verdict of the library as the user is told.
pub fn text(text: &str) -> String {
    reworded(text, in_words)
}

fn in_words(mention: &Mention) -> Option<String> {
    match mention {
        Mention::Setting(setting) => option(setting),
        Mention::Action(action) => Some(command(action)),
    }
}

/// The option of a setting; those that only a file of settings can hold have none.
fn option(setting: &Setting) -> Option<String> {
    let name = match setting.key.as_str() {
        "input" => return Some("INPUT".into()),
        "priors.noise" => "noise-prior",
        "noise_reference.row_levels" => "row-noise",
        key => key,
    };
    has_option(&Cli::command(), name).then(|| match setting.value.as_deref() {
        None | Some("true") => format!("--{name}"),
        Some(value) => format!("--{name} {value}"),
    })
}

fn has_option(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(name))
        || command.get_subcommands().any(|command| has_option(command, name))
}

fn command(action: &Action) -> String {
    let options = action.settings.iter().filter_map(option);
    let words = ["issfa".into(), action.verb.name().into()].into_iter().chain(action.run.clone()).chain(options);
    words.collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use issfa::data::read::RowsAxis;
    use issfa::error::{Verb, action, setting};
    use issfa::run::settings::Settings;

    #[test]
    fn mentions_become_flags_and_commands() {
        for (mention, words) in [
            (setting("missing").to("impute").to_string(), "--missing impute"),
            (setting("overwrite").to(true).to_string(), "--overwrite"),
            (setting("priors.noise").to_string(), "--noise-prior"),
            (setting("noise_reference.row_levels").to(true).to_string(), "--row-noise"),
            (setting("kernels").to_string(), "`kernels`"),
            (action(Verb::Resume).to_string(), "issfa resume"),
            (action(Verb::Resume).on("a, b").with(setting("sweeps").to("+500")).to_string(), {
                "issfa resume a, b --sweeps +500"
            }),
            (action(Verb::Evaluate).with(setting("data")).to_string(), "issfa evaluate --data"),
        ] {
            assert_eq!(text(&format!("use {mention}.")), format!("use {words}."));
        }
    }

    #[test]
    fn names_of_settings_become_flags() {
        let told = |name: &str| error(&Error::setting(name, 0, "is wrong"));
        assert_eq!(told("burn-in"), "--burn-in = 0: is wrong");
        assert_eq!(told("detrend, confounds"), "--detrend, --confounds = 0: is wrong");
        assert_eq!(told("input"), "INPUT = 0: is wrong");
        for own in ["row_sweeps", "ibp_strength", "kernels", "mpirun -n"] {
            assert_eq!(told(own), format!("{own} = 0: is wrong"));
        }
    }

    #[test]
    fn every_setting_has_an_option() {
        let all = Settings {
            rows_axis: RowsAxis::Last,
            columns: Some(String::new()),
            grid: Some(String::new()),
            structure: Some(String::new()),
            max_features: Some(1),
            target_r2: Some(String::new()),
            confounds: vec!["file".into()],
            confound_columns: vec!["name".into()],
            runs: Some("file".into()),
            mask: Some(String::new()),
            spill: Some("folder".into()),
            memory: Some(String::new()),
            heldout: Some("file".into()),
            background: Some("file".into()),
            time_budget: Some(String::new()),
            ..Settings::default()
        };
        let toml = all.to_toml();
        let keys = toml.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
        let keys: Vec<&str> = keys.map(|(key, _)| key).collect();
        assert!(keys.len() > 25, "{toml}");
        keys.iter().for_each(|key| assert!(option(&setting(key)).is_some(), "{key}"));
    }

    #[test]
    fn words_of_the_toml_reader_stay() {
        let problem = "unknown field `x`, expected one of `input`, `grid`".to_string();
        let unknown = Error::Config { path: "a.toml".into(), problem };
        assert_eq!(error(&unknown), unknown.to_string());
    }
}
