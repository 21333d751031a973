//! Which cells take part: masks, missing values, runs, dropped rows, trends and confounds, through the real binary.

mod common;
use common::Bench;

use issfa::data::read::npy::{read_npy_f32, read_npy_f64};

const SHORT: &str = "--sweeps 40 --burn-in 20 --thin 1 --seed 2 --quiet";

fn array(bench: &Bench, name: &str) -> (Vec<usize>, Vec<f32>) {
    read_npy_f32(&bench.path(name)).unwrap()
}

/// The simulation's rows with some cells changed.
fn changed(bench: &Bench, name: &str, change: impl Fn(usize, usize) -> Option<f64>) {
    let (shape, mut values) = read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    let n_sites: usize = shape[1..].iter().product();
    for (at, x) in values.iter_mut().enumerate() {
        *x = change(at / n_sites, at % n_sites).unwrap_or(*x);
    }
    bench.npy(name, &shape, &values);
}

/// A disc on the 12x10 grid.
fn disc() -> Vec<f64> {
    let inside = |site: usize| {
        let (x, y) = ((site / 10) as f64 - 5.5, (site % 10) as f64 - 4.5);
        f64::from(u8::from(x * x / 25.0 + y * y / 16.0 < 1.0))
    };
    (0..120).map(inside).collect()
}

#[test]
fn what_lies_outside_of_the_mask_does_not_matter() {
    let bench = Bench::simulated();
    let mask = disc();
    bench.npy("mask.npy", &[12, 10], &mask);
    changed(&bench, "broken.npy", |_, site| (mask[site] == 0.0).then_some(f64::NAN));
    for (input, run) in [("sim/observations.npy", "one"), ("broken.npy", "two")] {
        bench.ok(&format!("fit {input} --grid 12x10 --mask mask.npy --reconstruct {SHORT} --out {run}"));
    }
    assert_eq!(bench.trace("one"), bench.trace("two"));
    for name in ["features.npy", "weights.npy", "reconstruction.npy"] {
        assert_eq!(bench.bytes(&format!("one/{name}")), bench.bytes(&format!("two/{name}")), "{name}");
    }
    let (shape, features) = array(&bench, "one/features.npy");
    assert_eq!(shape[1..], [12, 10]);
    let outside = |at: usize| mask[at % 120] == 0.0;
    assert!((0..features.len()).filter(|&at| outside(at)).all(|at| features[at].is_nan()));
    let (_, rows) = array(&bench, "one/reconstruction.npy");
    assert!((0..rows.len()).all(|at| rows[at].is_nan() == outside(at)));
    let report = bench.json("evaluate one --truth sim --json");
    assert_eq!(report["n_found"], 3, "{report}");
    // New rows and hidden cells know of the mask too.
    bench.ok("transform one sim/heldout.npy --out new --quiet");
    assert!(array(&bench, "new/reconstruction.npy").1.iter().enumerate().all(|(at, x)| x.is_nan() == outside(at)));
    let hidden = bench.json("evaluate one --data sim/heldout.npy --hide 0.2 --json");
    assert!(hidden["r2"].as_f64().unwrap() > 0.05, "{hidden}");
    let plan = bench.json("plan sim/observations.npy --grid 12x10 --mask mask.npy --json");
    assert_eq!(plan["n_sites"].as_f64().unwrap(), mask.iter().sum::<f64>());
}

#[test]
fn an_automatic_mask_leaves_constant_sites_out_and_resumes() {
    let bench = Bench::simulated();
    changed(&bench, "dead.npy", |_, site| (site % 7 == 0).then_some(5.0));
    bench.ok(&format!("fit dead.npy --grid 12x10 --mask auto {SHORT} --out whole"));
    bench.ok("fit dead.npy --grid 12x10 --mask auto --sweeps 30 --burn-in 20 --thin 1 --seed 2 --quiet --out part");
    bench.ok("resume part --sweeps 40 --quiet");
    assert_eq!(bench.trace("whole"), bench.trace("part"));
    let (_, mask) = array(&bench, "whole/mask.npy");
    assert!((0..120).all(|site| mask[site] == f32::from(u8::from(site % 7 != 0))));
}

#[test]
fn missing_cells_and_rows_are_left_out_and_come_back_as_nothing() {
    let bench = Bench::simulated();
    let is_missing = |row: usize, site: usize| row == 7 || row == 79 || (row * 31 + site * 17).is_multiple_of(11);
    changed(&bench, "holes.npy", |row, site| is_missing(row, site).then_some(f64::NAN));
    let refused = bench.fails(2, &format!("fit holes.npy --grid 12x10 {SHORT} --out run"));
    assert!(refused.contains("--missing impute"), "{refused}");
    for threads in [1, 2] {
        bench.ok(&format!(
            "fit holes.npy --grid 12x10 --missing impute --center site --reconstruct --threads {threads} {SHORT} --out run{threads}"
        ));
    }
    assert_eq!(bench.trace("run1"), bench.trace("run2"));
    let (shape, weights) = array(&bench, "run1/weights.npy");
    assert_eq!(shape[0], 80);
    assert!(weights.iter().enumerate().all(|(at, w)| w.is_nan() == [7, 79].contains(&(at / shape[1]))));
    let (_, rows) = array(&bench, "run1/reconstruction.npy");
    assert!(rows.iter().enumerate().all(|(at, x)| x.is_nan() == [7, 79].contains(&(at / 120))));
    assert_eq!(bench.json("evaluate run1 --truth sim --json")["n_found"], 3);
    // The holes themselves are predicted.
    let (_, truth) = read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    let holes = (0..80 * 120).filter(|at| is_missing(at / 120, at % 120) && !rows[*at].is_nan());
    let (mut left, mut total) = (0.0, 0.0);
    for at in holes {
        left += (f64::from(rows[at]) - truth[at]).powi(2);
        total += truth[at].powi(2);
    }
    assert!(left < 0.8 * total, "{left} of {total}");
    changed(&bench, "infinite.npy", |row, site| (row == 3 && site == 4).then_some(f64::INFINITY));
    let infinite = bench.fails(2, &format!("fit infinite.npy --grid 12x10 --missing impute {SHORT} --out no"));
    assert!(infinite.contains("row 3, site 4 is inf") && !bench.path("no").exists(), "{infinite}");
}

#[test]
fn masks_that_cannot_be_used_are_refused() {
    let bench = Bench::simulated();
    let refused =
        |mask: &str| bench.fails(2, &format!("fit sim/observations.npy --grid 12x10 --mask {mask} {SHORT} --out no"));
    bench.npy("turned.npy", &[10, 12], &[1.0; 120]);
    assert!(refused("turned.npy").contains("10x12"));
    bench.npy("empty.npy", &[12, 10], &[0.0; 120]);
    assert!(refused("empty.npy").contains("the mask is empty"));
    assert!(refused("nowhere.npy").contains("nowhere.npy"));
    bench.npy("mask.npy", &[12, 10], &disc());
    bench.write("one.toml", "[sweep]\nkernels = [\"features_one_by_one\", \"noise\"]\n");
    assert!(refused("mask.npy --config one.toml").contains("features_one_by_one"));
}

/// Two runs in one file, each with its own mean, trend and confound in every site.
fn nuisance(bench: &Bench) {
    let confound = |row: usize| ((row * row) as f64 * 0.7).sin();
    let (_, plain) = read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    changed(bench, "nuisance.npy", |row, site| {
        let (run, within) = (row / 40, (row % 40) as f64);
        let site_effect = 1.0 + site as f64 / 50.0;
        Some(
            plain[row * 120 + site]
                + 30.0 * run as f64
                + 0.4 * within * site_effect
                + 8.0 * confound(row) * site_effect,
        )
    });
    for run in 0..2 {
        let rows = (run * 40..(run + 1) * 40).map(|row| match row {
            0 => "0.5\tn/a\n".to_string(),
            _ => format!("{}\t{}\n", confound(row), row % 3),
        });
        bench.write(&format!("confounds-{run}.tsv"), "wave\tother\n".to_string() + &rows.collect::<String>());
    }
    bench.write("runs.tsv", "name\tn_rows\nfirst\t40\nsecond\t40\n");
}

#[test]
fn runs_trends_and_confounds_are_taken_out() {
    let bench = Bench::simulated();
    nuisance(&bench);
    let common = "--grid 12x10 --runs runs.tsv --center site --noise white";
    bench.ok(&format!(
        "fit nuisance.npy {common} --detrend linear --confounds confounds-0.tsv confounds-1.tsv --confound-columns wave {SHORT} --out clean"
    ));
    let report = bench.json("evaluate clean --truth sim --json");
    assert_eq!(report["n_found"], 3, "{report}");
    let config = String::from_utf8(bench.bytes("clean/config.toml")).unwrap();
    assert!(
        config.contains("covariates = [\"trend\", \"wave\"]") && config.contains("detrend = \"linear\""),
        "{config}"
    );
    let summary = bench.ok("summary clean");
    assert!(summary.contains("2 runs") && summary.contains("trend, wave"), "{summary}");
    for name in ["weights_first.tsv", "activation_second.tsv", "synchrony.tsv"] {
        assert!(bench.path(&format!("clean/{name}")).is_file(), "{name}");
    }
    // Without taking them out they are features.
    bench.ok(&format!("fit nuisance.npy {common} {SHORT} --out raw"));
    let explained = |run: &str| bench.json(&format!("summary {run} --json"))["variance_explained"].as_f64().unwrap();
    assert!(explained("raw") > explained("clean") + 0.3, "{} {}", explained("raw"), explained("clean"));
    // A config with all of it gives the same fit again.
    bench.ok("fit --config clean/config.toml --quiet --out again");
    assert_eq!(bench.bytes("clean/features.npy"), bench.bytes("again/features.npy"));
    // New rows need their confounds, by name.
    let refused = bench.fails(2, "transform clean sim/heldout.npy --out new");
    assert!(refused.contains("wave") && refused.contains("--confounds none"), "{refused}");
    bench.ok("transform clean nuisance.npy --confounds none --out new --quiet");
}

#[test]
fn dropped_rows_are_not_part_of_anything() {
    let bench = Bench::simulated();
    changed(&bench, "bad-start.npy", |row, _| (row % 40 < 2).then_some(1e6));
    bench.write("runs.txt", ["a\n"; 40].concat() + &["b\n"; 40].concat());
    bench.ok(&format!(
        "fit bad-start.npy --grid 12x10 --runs runs.txt --drop-volumes 2 --reconstruct {SHORT} --out run"
    ));
    assert_eq!(array(&bench, "run/weights.npy").0[0], 76);
    assert_eq!(array(&bench, "run/reconstruction.npy").0[0], 76);
    let table = String::from_utf8(bench.bytes("run/weights_b.tsv")).unwrap();
    assert_eq!(table.lines().count(), 39);
    assert!(bench.json("summary run --json")["quantities"][3]["mean"].as_f64().unwrap() < 100.0);
    let refused = bench.fails(2, &format!("fit bad-start.npy --grid 12x10 --drop-volumes 80 {SHORT} --out no"));
    assert!(refused.contains("--drop-volumes = 80"), "{refused}");
}

#[test]
fn confounds_that_do_not_belong_are_refused() {
    let bench = Bench::simulated();
    nuisance(&bench);
    let fit = "fit nuisance.npy --grid 12x10 --runs runs.tsv --sweeps 6 --quiet --out no --confounds";
    let refused = |files: &str| bench.fails(2, &format!("{fit} {files}"));
    assert!(refused("confounds-0.tsv").contains("2 runs"));
    bench.write("short.tsv", "wave\tother\n1\t2\n3\t4\n");
    assert!(refused("confounds-0.tsv short.tsv").contains("has 2 lines of confounds, but run 2 has 40"));
    bench.write("renamed.tsv", "wave\tanother\n".to_string() + &"1\t2\n".repeat(40));
    let message = refused("confounds-0.tsv renamed.tsv");
    assert!(message.contains("renamed.tsv") && message.contains("other"), "{message}");
    bench.write("words.tsv", "wave\tother\n1\t2\nx\t3\n");
    assert!(refused("words.tsv confounds-1.tsv").contains("words.tsv"));
    assert!(refused("confounds-0.tsv nowhere.tsv").contains("nowhere.tsv"));
    assert!(!bench.path("no").exists());
    bench.write("runs.tsv", "name\tn_rows\nfirst\t40\nsecond\t41\n");
    assert!(refused("confounds-0.tsv confounds-1.tsv").contains("runs.tsv"));
}

#[test]
fn chains_under_a_mask_find_the_same_features() {
    let bench = Bench::simulated();
    bench.npy("mask.npy", &[12, 10], &disc());
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 --mask mask.npy --chains 2 {SHORT} --out run"));
    let table = String::from_utf8(bench.bytes("run/features.tsv")).unwrap();
    let first = table.lines().nth(1).unwrap().split('\t').nth(5).unwrap();
    assert!(first.parse::<f64>().unwrap() > 0.8, "{table}");
}

#[test]
fn own_means_take_any_offset_of_new_rows_away() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 --center site {SHORT} --out run"));
    let (shape, plain) = read_npy_f64(&bench.path("sim/heldout.npy")).unwrap();
    let moved: Vec<f64> = plain.iter().enumerate().map(|(at, x)| x + 64.0 + (at % 120) as f64).collect();
    bench.npy("moved.npy", &shape, &moved);
    let error = |file: &str, center: &str| {
        let report = bench.json(&format!("evaluate run --data {file} --hide 0.2 --center-new {center} --json"));
        report["hidden_cell_error"].as_f64().unwrap()
    };
    let own = error("sim/heldout.npy", "own");
    assert!((error("moved.npy", "own") - own).abs() < 1e-3 * own);
    assert!(error("moved.npy", "train") > 10.0 * own);
}

/// After a fit to 80 rows features are integrated out of rows that are whole, and what is found for these does not depend on
/// rows that are not, nor on threads; the text says what was done.
#[test]
fn features_are_integrated_out_of_whole_rows_whatever_other_rows_lack() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 --noise white {SHORT} --out run"));
    let said = bench.ok("transform run sim/heldout.npy --out whole --threads 1");
    assert!(said.contains("features are integrated out: 80 training rows"), "{said}");
    let (shape, mut values) = read_npy_f64(&bench.path("sim/heldout.npy")).unwrap();
    for (row, site) in [(3, 7), (3, 60), (11, 0)] {
        values[row * 120 + site] = f64::NAN;
    }
    bench.npy("holes.npy", &shape, &values);
    let said = bench.ok("transform run holes.npy --out holes --threads 2");
    assert!(said.contains("2 of 20 rows take the features at their means, since they have missing cells"), "{said}");
    for name in ["weights.npy", "activation.npy", "reconstruction.npy"] {
        let (shape, whole) = array(&bench, &format!("whole/{name}"));
        let (_, holes) = array(&bench, &format!("holes/{name}"));
        let width = whole.len() / shape[0];
        for row in (0..20).filter(|row| ![3, 11].contains(row)) {
            assert_eq!(
                whole[row * width..(row + 1) * width],
                holes[row * width..(row + 1) * width],
                "{name}, row {row}"
            );
        }
    }
    let of = |report: serde_json::Value| report["features_of_new_rows"].clone();
    assert_eq!(of(bench.json("evaluate run --truth sim --json")), "integrated_out");
    assert_eq!(of(bench.json("evaluate run --data sim/heldout.npy --hide 0.2 --json")), "at_their_means");
    assert!(bench.ok("evaluate run --truth sim").contains("integrated out"));
    bench.npy("mask.npy", &[12, 10], &disc());
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 --mask mask.npy {SHORT} --out masked"));
    let said = bench.ok("transform masked sim/heldout.npy --out masked-new");
    assert!(said.contains("20 of 20 rows take the features at their means, since the fit has a mask"), "{said}");
    assert_eq!(of(bench.json("evaluate masked --truth sim --json")), "at_their_means");
}
