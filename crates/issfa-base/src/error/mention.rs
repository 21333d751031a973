//! Settings and actions that a text of the library names, in a form that is read back, so that whoever shows the text can
//! put them into words of its own: flags and commands on a command line, parameters and calls in a program.
//!
//! A mention stands between backquotes: `` `grid` ``, `` `missing = impute` ``, `` `resume run, sweeps = +500` ``.

use std::fmt::{self, Display};

/// A setting or an action named in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mention {
    /// A setting.
    Setting(Setting),
    /// An action.
    Action(Action),
}

/// A setting by its key (as in a run's `config.toml`, those of tables as `priors.noise`) or a parameter of an action, with
/// a value where the text names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub key: String,
    /// What to set it to.
    pub value: Option<String>,
}

/// Something to do with the folder of a run, with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What to do.
    pub verb: Verb,
    /// With which run.
    pub run: Option<String>,
    /// With which settings.
    pub settings: Vec<Setting>,
}

/// What texts of the library advise to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Fit again.
    Fit,
    /// Go on with a run.
    Resume,
    /// Make its figures.
    Report,
    /// Measure it on new rows.
    Evaluate,
}

/// The setting with this key.
pub fn setting(key: &str) -> Setting {
    Setting { key: key.into(), value: None }
}

/// The action of this name.
pub fn action(verb: Verb) -> Action {
    Action { verb, run: None, settings: Vec::new() }
}

/// The mentions in a text, in order.
pub fn mentions(text: &str) -> Vec<Mention> {
    pieces(text).into_iter().filter_map(|(_, mention)| mention).collect()
}

/// The text with every mention in other words; where there are none for it, it stays as it is.
pub fn reworded(text: &str, words: impl Fn(&Mention) -> Option<String>) -> String {
    let in_words = |(piece, mention): (&str, Option<Mention>)| match mention.and_then(|mention| words(&mention)) {
        Some(words) => words,
        None => piece.to_string(),
    };
    pieces(text).into_iter().map(in_words).collect()
}

/// The text cut into mentions and what lies between them.
fn pieces(text: &str) -> Vec<(&str, Option<Mention>)> {
    let (mut found, mut start, mut from) = (Vec::new(), 0, 0);
    while let Some(open) = text[from..].find('`').map(|at| from + at) {
        let Some(close) = text[open + 1..].find('`').map(|at| open + 1 + at) else { break };
        match Mention::parse(&text[open + 1..close]) {
            Some(mention) => {
                found.push((&text[start..open], None));
                found.push((&text[open..=close], Some(mention)));
                (start, from) = (close + 1, close + 1);
            }
            // Backquotes of someone else: the second may be the first of the next pair.
            None => from = close,
        }
    }
    found.push((&text[start..], None));
    found
}

impl Setting {
    /// With a value.
    pub fn to(self, value: impl Display) -> Setting {
        Setting { value: Some(value.to_string()), ..self }
    }

    fn parse(text: &str) -> Option<Setting> {
        let (key, value) = match text.split_once(" = ") {
            Some((key, value)) => (key, Some(unguarded(value)?)),
            None => (text, None),
        };
        let is_of_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        let is_key = key.starts_with(|c: char| c.is_ascii_lowercase()) && key.chars().all(is_of_key);
        is_key.then(|| Setting { key: key.into(), value })
    }

    fn show(&self) -> String {
        self.value.as_ref().map_or(self.key.clone(), |value| format!("{} = {}", self.key, guarded(value)))
    }
}

impl Action {
    /// With the folder of a run.
    pub fn on(self, run: impl Display) -> Action {
        Action { run: Some(run.to_string()), ..self }
    }

    /// With a setting.
    pub fn with(mut self, setting: Setting) -> Action {
        self.settings.push(setting);
        self
    }

    fn parse(text: &str) -> Option<Action> {
        let mut parts = text.split(", ");
        let head = parts.next()?;
        let (name, run) = head.split_once(' ').map_or((head, None), |(name, run)| (name, Some(run)));
        let verb = Verb::ALL.into_iter().find(|verb| verb.name() == name)?;
        let run = run.map(|run| unguarded(run).ok_or(())).transpose().ok()?;
        Some(Action { verb, run, settings: parts.map(Setting::parse).collect::<Option<_>>()? })
    }

    fn show(&self) -> String {
        let run = self.run.as_ref().map_or(String::new(), |run| format!(" {}", guarded(run)));
        let settings = self.settings.iter().map(|setting| format!(", {}", setting.show())).collect::<String>();
        format!("{}{run}{settings}", self.verb.name())
    }
}

impl Verb {
    const ALL: [Verb; 4] = [Verb::Fit, Verb::Resume, Verb::Report, Verb::Evaluate];

    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Fit => "fit",
            Verb::Resume => "resume",
            Verb::Report => "report",
            Verb::Evaluate => "evaluate",
        }
    }
}

impl Mention {
    fn parse(text: &str) -> Option<Mention> {
        Action::parse(text).map(Mention::Action).or_else(|| Setting::parse(text).map(Mention::Setting))
    }
}

/// A value that could be taken for more than one is written as a JSON string without backquotes and commas.
fn guarded(value: &str) -> String {
    if !value.contains(['`', ',', '"']) {
        return value.to_string();
    }
    let quoted = serde_json::to_string(value).expect("a string is JSON");
    quoted.replace('`', "\\u0060").replace(',', "\\u002c")
}

fn unguarded(text: &str) -> Option<String> {
    if text.starts_with('"') { serde_json::from_str(text).ok() } else { Some(text.to_string()) }
}

impl Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "`{}`", self.show())
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "`{}`", self.show())
    }
}

impl Display for Mention {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Mention::Setting(setting) => setting.fmt(f),
            Mention::Action(action) => action.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mentions_show_themselves() {
        assert_eq!(setting("max-features").to_string(), "`max-features`");
        assert_eq!(setting("missing").to("impute").to_string(), "`missing = impute`");
        assert_eq!(action(Verb::Resume).on("run").to_string(), "`resume run`");
        let longer = action(Verb::Resume).on("run").with(setting("sweeps").to("+500"));
        assert_eq!(longer.to_string(), "`resume run, sweeps = +500`");
    }

    #[test]
    fn mentions_are_read_back() {
        for value in ["impute", "", "my run", "a, b = c", "FILE...", "o`ne", "\"", "\\\"`,", "C:\\new\ntext", "ä`"] {
            let given = [
                Mention::Setting(setting("priors.noise").to(value)),
                Mention::Setting(setting("grid")),
                Mention::Action(action(Verb::Fit).with(setting("config").to(value)).with(setting("seed"))),
                Mention::Action(action(Verb::Report).on(value)),
                Mention::Action(action(Verb::Evaluate)),
            ];
            let text = given.iter().map(|mention| format!("try {mention}: it may do;")).collect::<String>();
            assert_eq!(mentions(&text), given, "{text}");
        }
    }

    #[test]
    fn other_backquotes_are_left_alone() {
        let words = |mention: &Mention| match mention {
            Mention::Setting(setting) if setting.key == "grid" => Some("GRID".into()),
            _ => None,
        };
        for (text, expected) in [
            ("give `grid`", "give GRID"),
            ("a`b: give `grid`, or ` none", "a`b: give GRID, or ` none"),
            ("``grid` x` `seed` `Grid` `", "`GRID x` `seed` `Grid` `"),
            ("expected one of `,`, `}` or `grid`", "expected one of `,`, `}` or GRID"),
            ("", ""),
        ] {
            assert_eq!(reworded(text, words), expected);
        }
    }
}
