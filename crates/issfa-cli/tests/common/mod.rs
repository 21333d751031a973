//! Runs the real binary in a folder of its own.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A temporary folder with a small simulation in `sim`.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    /// An empty folder.
    pub fn empty() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A folder with 80 rows on 12x10 made of 3 features.
    pub fn simulated() -> Bench {
        let bench = Bench::empty();
        bench.ok(
            "simulate --seed 5 --rows 80 --heldout-rows 20 --grid 12x10 --features 3 --density 0.3 --theta 1,10 --out sim",
        );
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, to be started.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("issfa"));
        command.current_dir(self.folder.path()).args(split(arguments));
        command
    }

    /// Runs to the end.
    pub fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Runs, and must succeed; returns standard output.
    pub fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let (out, err) = texts(&output);
        assert!(output.status.success(), "issfa {arguments}\n{out}\n{err}");
        out
    }

    /// Runs, and must fail with this exit code; returns standard error.
    pub fn fails(&self, code: i32, arguments: &str) -> String {
        let output = self.run(arguments);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "issfa {arguments}\n{out}\n{err}");
        assert!(!err.contains("panicked") && !err.contains("RUST_BACKTRACE"), "issfa {arguments}\n{err}");
        err
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).expect("a temporary file can be written");
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Changes the settings of a run by hand, and gives them a checksum.
    pub fn edit_config(&self, run: &str, edit: impl Fn(String) -> String) {
        let path = self.path(run).join("config.toml");
        let text = std::fs::read_to_string(&path).expect("a run has settings");
        std::fs::write(&path, edit(text)).expect("a temporary file can be written");
        issfa::run::record::Recorded::seal(&path).expect("the settings can be read");
    }

    /// A trace without its `seconds` column.
    pub fn trace(&self, run: &str) -> Vec<String> {
        let text = String::from_utf8(self.bytes(&format!("{run}/trace.csv"))).expect("a trace is text");
        let without = |line: &str| {
            line.split(',').enumerate().filter(|(at, _)| *at != 2).map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
        };
        text.lines().map(without).collect()
    }

    /// JSON that a command prints.
    pub fn json(&self, arguments: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(arguments)).expect("JSON")
    }

    /// An .npy file of f64 with the given shape.
    pub fn npy(&self, name: &str, shape: &[usize], values: &[f64]) {
        issfa::data::write::write_npy_f64(&self.path(name), shape, values).expect("an array can be written");
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Splits at spaces; double quotes keep words together.
fn split(arguments: &str) -> Vec<String> {
    let pieces = arguments.split('"').enumerate();
    pieces
        .flat_map(|(at, piece)| match at % 2 {
            0 => piece.split_whitespace().map(String::from).collect::<Vec<_>>(),
            _ => vec![piece.to_string()],
        })
        .collect()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
