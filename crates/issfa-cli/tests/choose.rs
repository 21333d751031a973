//! Settings chosen by hidden cells of rows that the fits did not see, as a user meets it.

mod common;

use common::Bench;
use issfa::choose::{Judging, choose};
use issfa::fit::Stop;
use issfa::structure::Shelf;
use issfa::{Rows, Settings};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const N_ROWS: usize = 240;
const GRID: [usize; 2] = [9, 11];
const N_SITES: usize = GRID[0] * GRID[1];

/// Standard normal numbers, about: twelve uniform ones of a small generator.
struct Normals(u64);

impl Normals {
    fn next(&mut self) -> f64 {
        let mut uniform = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as f64 / (1u64 << 31) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }
}

/// A series of three smooth bumps of a size that come and go, and noise of variance 1 that keeps the share `memory` from row to
/// row; with the share of the variance that is noise.
fn rows_with_noise(size: f64, memory: f64) -> (Vec<f64>, f64) {
    let mut normals = Normals(7);
    let bump = |feature: usize, site: usize| {
        let (x, y) = ((site / GRID[1]) as f64, (site % GRID[1]) as f64);
        let (at_x, at_y) = [(2.0, 2.0), (6.0, 4.0), (3.0, 8.0)][feature];
        size * (-((x - at_x).powi(2) + (y - at_y).powi(2)) / 6.0).exp()
    };
    let weight = |feature: usize, row: usize| {
        let turns = row as f64 / [37.0, 23.0, 51.0][feature] + 0.3 * feature as f64;
        3.0 * ((std::f64::consts::TAU * turns).sin() - 0.2).max(0.0)
    };
    let signal: Vec<f64> =
        (0..N_ROWS * N_SITES).map(|at| (0..3).map(|k| weight(k, at / N_SITES) * bump(k, at % N_SITES)).sum()).collect();
    let mean = |site: usize| signal[site..].iter().step_by(N_SITES).sum::<f64>() / N_ROWS as f64;
    let means: Vec<f64> = (0..N_SITES).map(mean).collect();
    let of_signal: f64 = signal.iter().enumerate().map(|(at, x)| (x - means[at % N_SITES]).powi(2)).sum();
    let mut noise: Vec<f64> = (0..N_SITES).map(|_| normals.next()).collect();
    let mut next = |at: usize| {
        let own = &mut noise[at % N_SITES];
        *own = memory * *own + (1.0 - memory * memory).sqrt() * normals.next();
        signal[at] + *own
    };
    let of_noise = signal.len() as f64;
    ((0..signal.len()).map(&mut next).collect(), of_noise / (of_noise + of_signal))
}

fn recommended(found: &Value) -> &Value {
    &found["trials"][found["recommended"].as_u64().unwrap() as usize]
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Noise that is independent from row to row is measured rightly, and no other share of it predicts better.
#[test]
fn white_noise_is_left_at_what_was_measured() {
    let bench = Bench::empty();
    let (values, share) = rows_with_noise(2.0, 0.0);
    bench.npy("data.npy", &[N_ROWS, GRID[0], GRID[1]], &values);
    let found = bench.json("choose data.npy --sweeps 90 --seed 1 --json");
    let chosen = recommended(&found);
    assert_eq!(chosen["structure"], "path x path");
    let ratio = number(chosen, "share_of_noise") / share;
    assert!((0.8..1.35).contains(&ratio), "{ratio} times the true share {share}: {found}");
    let (trials, k) = (found["trials"].as_array().unwrap(), number(chosen, "n_features"));
    assert!((2.0..7.0).contains(&k), "{found}");
    let half = trials.iter().find(|trial| trial["target_r2"].as_f64().is_some_and(|r| 1.0 - r < 0.7 * share)).unwrap();
    assert!(number(half, "n_features") > k + 5.0, "{found}");
    let whole = number(&found, "r2_of_choice");
    assert!((whole - number(chosen, "r2")).abs() < 0.05 && whole < 1.0 - 0.8 * share, "{found}");
}

/// Where features are hard to see, it helps to know that they are smooth.
#[test]
fn smoothness_is_seen_to_help() {
    let bench = Bench::empty();
    let (values, share) = rows_with_noise(0.8, 0.0);
    bench.npy("data.npy", &[N_ROWS, GRID[0], GRID[1]], &values);
    let found = bench.json("choose data.npy --sweeps 90 --seed 1 --folds 3 --json");
    let [path, iid] = [0, 1].map(|at| &found["trials"][at]);
    assert_eq!((path["structure"].as_str(), iid["structure"].as_str()), (Some("path x path"), Some("iid x iid")));
    assert!(number(iid, "behind") > 2.0 * number(iid, "behind_se"), "{found}");
    // Both leave the same share as noise, so that none predicts better for that alone.
    let told = 1.0 - number(path, "share_of_noise");
    assert!(path["target_r2"].is_null() && (number(iid, "target_r2") - told).abs() < 0.006, "{found}");
    assert_eq!(recommended(&found)["structure"], "path x path");
    let ratio = number(recommended(&found), "share_of_noise") / share;
    assert!((0.85..1.15).contains(&ratio), "{ratio} times the true share {share}: {found}");
}

/// Noise that is slow over rows looks like signal to differences of rows: held-out rows know better.
#[test]
fn slow_noise_is_found_out() {
    let bench = Bench::empty();
    let (values, share) = rows_with_noise(2.0, 0.6);
    bench.npy("data.npy", &[N_ROWS, GRID[0], GRID[1]], &values);
    let found = bench.json("choose data.npy --sweeps 90 --seed 1 --structure \"path x path\" --json");
    let (measured, chosen) = (&found["trials"][0], recommended(&found));
    assert!(number(measured, "share_of_noise") < 0.5 * share, "{found}");
    let ratio = number(chosen, "share_of_noise") / share;
    assert!((0.6..1.4).contains(&ratio), "{ratio} times the true share {share}: {found}");
    assert!(number(chosen, "n_features") < 0.5 * number(measured, "n_features"), "{found}");
}

/// All but what took time.
fn without_seconds(mut found: Value) -> Value {
    for trial in found["trials"].as_array_mut().unwrap() {
        trial.as_object_mut().unwrap().remove("seconds").unwrap();
    }
    found
}

#[test]
fn results_do_not_depend_on_threads_and_are_written() {
    let bench = Bench::simulated();
    let command = "choose sim/observations.npy --grid 12x10 --sweeps 20 --seed 4 --folds 2";
    let one = without_seconds(bench.json(&format!("{command} --threads 1 --json")));
    let many = without_seconds(bench.json(&format!("{command} --threads 3 --json --out choice")));
    assert_eq!(one, many);
    assert_eq!((&one["n_held"], &one["is_complete"]), (&Value::from(32), &Value::from(true)));
    let written: Value = serde_json::from_slice(&bench.bytes("choice/choose.json")).unwrap();
    assert_eq!(without_seconds(written), one);
    let table = String::from_utf8(bench.bytes("choice/choose.tsv")).unwrap();
    assert_eq!(table.lines().count(), 1 + one["trials"].as_array().unwrap().len());
    assert_eq!(table.matches("\ttrue\n").count(), 1, "{table}");
    assert!(bench.bytes("choice/choose.png").len() > 1000 && bench.bytes("choice/choose.svg").len() > 1000);
    let refusal = bench.fails(2, &format!("{command} --out choice"));
    assert!(refusal.contains("choice") && refusal.contains("--overwrite"), "{refusal}");
    // The command to go on with is one that works.
    let said = bench.ok("choose sim/observations.npy --grid 12x10 --sweeps 20 --seed 4 --quiet");
    let next = said.lines().find_map(|line| line.strip_prefix("next: issfa ")).unwrap_or_else(|| panic!("{said}"));
    bench.ok(&format!("{next} --sweeps 20 --quiet"));
    assert!(bench.path("run/features.npy").is_file());
}

/// What fits are made of, and which settings are tried, does not hang on rows that are held out.
#[test]
fn fits_do_not_see_the_rows_that_judge_them() {
    let (mut values, _) = rows_with_noise(2.0, 0.0);
    let checked = Settings { sweeps: 15, ..Settings::default() }.check().unwrap();
    let tried = |values: &[f64]| {
        let rows = Rows::from_values(values.to_vec(), &GRID).unwrap();
        let mut stop = Stop::default();
        choose(&rows, &checked, &Judging::default(), &Shelf::none(), (&mut stop, None)).unwrap()
    };
    let before = tried(&values);
    // Blocks of 240 / (5 * 6) rows, of which the third, eighth, ... are held out.
    let (length, n_held) = (8, before.n_held);
    assert_eq!((before.n_blocks, n_held), (6, 6 * length));
    for row in (0..N_ROWS).filter(|row| row / length % 5 == 2) {
        values[row * N_SITES..(row + 1) * N_SITES].iter_mut().for_each(|x| *x = 5.0 - 2.0 * *x);
    }
    let after = tried(&values);
    for (one, other) in before.trials.iter().zip(&after.trials).take(2) {
        assert_eq!((&one.structure, one.n_features, one.share_of_noise), {
            (&other.structure, other.n_features, other.share_of_noise)
        });
        assert!(one.r2 != other.r2);
    }
}

#[test]
fn mistakes_are_named() {
    let bench = Bench::simulated();
    bench.npy("few.npy", &[12, 20], &[0.5; 240]);
    for (arguments, words) in [
        ("few.npy", "few.npy: has 12 rows; at least 30"),
        ("sim/observations.npy --holdout 0.7", "--holdout = 0.7: give the share of rows"),
        ("sim/observations.npy --folds 6", "--folds = 6: with --holdout 0.2 there are at most 5"),
        ("sim/observations.npy --hide 1", "--hide = 1: give a share"),
        ("sim/observations.npy --structure iid --target-r2 0.5", "nothing is left to be chosen"),
        ("sim/observations.npy --init sim", "--init"),
        ("sim/observations.npy --grid 7x7", "7x7"),
        ("nowhere.npy", "nowhere.npy"),
    ] {
        let told = bench.fails(2, &format!("choose {arguments}"));
        assert!(told.contains(words), "{arguments}: {told}");
    }
    let told = bench.fails(1, "choose sim/observations.npy --grid 12x10 --time-budget 0s --out choice");
    assert!(told.contains("stopped before the first setting was tried"), "{told}");
    assert!(!bench.path("run").exists() && !bench.path("choice").exists());
}

/// Ctrl-C shows what was tried by then.
#[test]
#[cfg(unix)]
fn a_stop_shows_what_was_tried() {
    let bench = Bench::simulated();
    let mut command = bench.command("choose sim/observations.npy --grid 12x10 --sweeps 2000 --progress plain");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let second = lines.by_ref().map(Result::unwrap).filter(|line| line.starts_with("trying ")).nth(1);
    assert!(second.unwrap().contains("--structure"));
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("recommended so far") && text.contains("--structure \"path x path\""), "{text}");
    assert!(!text.contains("iid"), "{text}");
}
