//! Texts of the library name settings and actions as mentions, never as flags and commands: who shows them has words of
//! its own.

#[path = "common/sources.rs"]
mod sources;

/// The subcommands of the command line.
const COMMANDS: [&str; 17] = [
    "demo",
    "simulate",
    "fit",
    "resume",
    "plan",
    "choose",
    "summary",
    "transform",
    "draws",
    "peaks",
    "match",
    "evaluate",
    "prior-sample",
    "structure",
    "selftest",
    "merge",
    "report",
];

/// The code without comments of their own line, with lines joined that a text goes on over.
fn code(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let joined = |line: &str| line.strip_suffix('\\').map_or(format!("{line}\n"), |line| format!("{line}\u{1}"));
    let text: String = lines.map(joined).collect();
    let mut parts = text.split('\u{1}');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// The flags and commands in code.
fn flags_and_commands(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect::<String>();
    let flags = code.match_indices("--").map(|(at, _)| word(&code[at..]));
    let flags = flags.filter(|flag| !flag.trim_start_matches('-').is_empty());
    let commands = code.match_indices("issfa ").map(|(at, name)| word(&code[at + name.len()..]));
    let commands = commands.filter(|command| COMMANDS.contains(&command.as_str()));
    flags.chain(commands.map(|command| format!("issfa {command}"))).collect()
}

#[test]
fn library_texts_name_neither_flags_nor_commands() {
    let mut found = Vec::new();
    for (path, text) in sources::sources() {
        found.extend(flags_and_commands(&code(&text)).iter().map(|words| format!("{}: {words}", path.display())));
    }
    assert!(found.is_empty(), "texts of the library with words of the command line:\n{}", found.join("\n"));
}

#[test]
fn flags_and_commands_are_seen() {
    let text = "/// See --grid.\nlet a = \"give --max-features, or issfa \\\n    resume run\"; // issfa\nlet b = \"a -- b --\";";
    assert_eq!(flags_and_commands(&code(text)), ["--max-features", "issfa resume"]);
    assert!(flags_and_commands("the version of issfa that wrote it").is_empty());
}
