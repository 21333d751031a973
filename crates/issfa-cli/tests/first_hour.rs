//! What a newcomer types in the first hour: words of other programs, shapes that are probably not meant, files as they
//! come.

mod common;
use common::Bench;
use issfa::data::read::npy::read_npy_f32;

const SHORT: &str = "--sweeps 12 --burn-in 4 --thin 2";

#[test]
fn other_programs_words_for_the_number_of_components_lead_to_ours() {
    let bench = Bench::empty();
    for word in ["--n-components", "--n_components", "--components", "--K", "-k"] {
        let error = bench.fails(2, &format!("fit data.npy {word} 20 --out run"));
        assert!(error.contains(&format!("no {word}:")) && error.contains("--max-features N"), "{error}");
    }
    let error = bench.fails(2, "fit data.npy --nonsense 20 --out run");
    assert!(error.contains("--nonsense") && !error.contains("--max-features"), "{error}");
}

#[test]
fn a_run_is_asked_in_words_that_can_be_typed() {
    let bench = Bench::simulated();
    let output = bench.run(&format!("fit sim/observations.npy --center none --quiet {SHORT} --out run"));
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");

    let error = bench.fails(2, "evaluate run");
    assert!(error.contains("issfa evaluate run --data NEW --hide 0.2"), "{error}");
    assert!(error.contains("issfa evaluate run --truth SIM"), "{error}");

    let error = bench.fails(2, "resume run --sweeps 5");
    assert!(
        error.contains("12 of 12 are done") && error.contains("issfa resume run --sweeps +5 (17 in all)"),
        "{error}"
    );
    bench.ok("resume run --sweeps +5 --quiet");
    bench.ok("resume run --sweeps 18 --quiet");
}

#[test]
fn draws_of_features_are_those_of_the_means() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --grid 12x10 --noise white --quiet --seed 3 --sweeps 60 --out run");
    let said = bench.ok("draws run --out draws.npy");
    let (shape, draws) = read_npy_f32(&bench.path("draws.npy")).unwrap();
    let (of_means, means) = read_npy_f32(&bench.path("run/features.npy")).unwrap();
    assert_eq!((shape[0], &shape[1..]), (20, &of_means[..]), "{said}");
    let (k, n) = (of_means[0], of_means[1] * of_means[2]);
    assert!(k >= 2, "{k} features were found");
    let mut n_there = 0;
    for image in draws.chunks_exact(n).zip(means.chunks_exact(n).cycle()) {
        if image.0[0].is_nan() {
            assert!(image.0.iter().all(|x| x.is_nan()), "a draw has a feature or not");
            continue;
        }
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        assert!((dot(image.0, image.0) - 1.0).abs() < 1e-4, "of unit norm");
        assert!(dot(image.0, image.1) > 0.3, "like its mean, with its sign");
        n_there += 1;
    }
    assert!(2 * n_there >= 20 * k, "{n_there} of 20 x {k}");

    assert!(bench.fails(2, "draws run --out draws.npy").contains("--overwrite"));
    bench.ok("draws run --out draws.npy --overwrite --quiet");
    assert!(bench.fails(2, "draws run --out run").contains("is a folder"));
    assert!(bench.fails(2, "draws nowhere --out new.npy").contains("nowhere"));
    assert!(!bench.path("new.npy").exists());
}

/// 40 rows of 64 numbers: two features on 8 x 8 with noise.
fn rows_on_8x8() -> Vec<f64> {
    let bump = |site: usize, at: f64| {
        let (y, x) = ((site / 8) as f64, (site % 8) as f64);
        (-((y - at).powi(2) + (x - at).powi(2)) / 4.0).exp()
    };
    let noise = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 1009.0 - 0.5;
    let weight = |row: usize, k: usize| if row.is_multiple_of(k + 2) { 5.0 + noise(row * 3 + k) } else { 0.0 };
    let value = |i: usize| {
        let (row, site) = (i / 64, i % 64);
        weight(row, 0) * bump(site, 2.0) + weight(row, 1) * bump(site, 5.5) + noise(i)
    };
    (0..40 * 64).map(value).collect()
}

fn table(values: &[f64], mark: &str, header: &str, first: impl Fn(usize) -> String) -> String {
    let line = |(row, values): (usize, &[f64])| {
        first(row) + &values.iter().map(f64::to_string).collect::<Vec<_>>().join(mark) + "\n"
    };
    header.to_string() + &values.chunks(64).enumerate().map(line).collect::<String>()
}

#[test]
fn the_same_rows_in_any_format_give_the_same_features() {
    let bench = Bench::empty();
    let values = rows_on_8x8();
    bench.npy("plain.npy", &[40, 64], &values);
    let turned: Vec<f64> = (0..64 * 40).map(|i| values[i % 40 * 64 + i / 40]).collect();
    bench.npy("turned.npy", &[8, 8, 40], &turned);
    let text = table(&values, ",", "", |_| String::new());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    bench.write("plain.csv.gz", gzip.finish().unwrap());
    bench.write("labelled.csv", table(&values, ",", "", |row| format!("{},", row % 10)));
    let fit = format!("--noise white --seed 2 --quiet {SHORT}");
    bench.ok(&format!("fit plain.npy --grid 8x8 {fit} --out plain"));
    let expected = bench.bytes("plain/features.npy");
    for (input, out) in [
        ("turned.npy --rows-axis last", "turned"),
        ("plain.csv.gz --grid 8x8", "gzip"),
        ("labelled.csv --columns ^1 --grid 8x8", "labelled"),
        ("labelled.csv --columns 2- --grid 8x8", "picked"),
    ] {
        bench.ok(&format!("fit {input} {fit} --out {out}"));
        assert!(bench.bytes(&format!("{out}/features.npy")) == expected, "{input}");
    }
    // What was said of the rows is known when the run goes on, and to new rows.
    bench.ok("resume turned --sweeps +4 --quiet");
    bench.ok("transform labelled labelled.csv --out new --quiet");
    bench.ok("transform turned turned.npy --out newer --quiet");
    assert!(bench.fails(2, "transform labelled turned.npy --out none").contains("--columns"));
    let error = bench.fails(2, &format!("fit turned.npy --rows-axis last --columns 2- {fit} --out none"));
    assert!(error.contains("--columns") && error.contains("--rows-axis last"), "{error}");
}

#[test]
fn names_of_rows_and_columns_come_back() {
    let bench = Bench::empty();
    let header = "day".to_string() + &(0..64).map(|site| format!(",station {site}")).collect::<String>() + "\n";
    bench.write("named.csv", table(&rows_on_8x8(), ",", &header, |row| format!("2020-02-{row:02},")));
    bench.ok(&format!("fit named.csv --grid 8x8 --noise white --seed 2 --quiet --drop-volumes 3 {SHORT} --out run"));
    let text = |name: &str| String::from_utf8(bench.bytes(name)).unwrap();
    let (weights, features) = (text("run/labelled_weights.tsv"), text("run/labelled_features.tsv"));
    assert_eq!((weights.lines().count(), features.lines().count()), (1 + 37, 1 + 64));
    assert!(weights.lines().nth(1).unwrap().starts_with("2020-02-03\t"), "{weights}");
    assert!(features.lines().nth(64).unwrap().starts_with("station 63\t"), "{features}");
    let (shape, values) = read_npy_f32(&bench.path("run/weights.npy")).unwrap();
    let cells: Vec<f32> =
        weights.lines().nth(2).unwrap().split('\t').skip(1).map(|cell| cell.parse().unwrap()).collect();
    assert!(cells.len() == shape[1] && shape[1] > 0, "{weights}");
    for (cell, value) in cells.iter().zip(&values[shape[1]..]) {
        assert!((cell - value).abs() <= 1e-5 * value.abs().max(1e-3), "{cell} {value}");
    }
    let turned = "day".to_string() + &(0..64).rev().map(|site| format!(",station {site}")).collect::<String>() + "\n";
    bench.write("turned.csv", table(&rows_on_8x8(), ",", &turned, |row| format!("2020-03-{row:02},")));
    let refusal = bench.fails(2, &format!("fit named.csv turned.csv --grid 8x8 --quiet {SHORT} --out other"));
    assert!(refusal.contains("column 1 \"station 63\", which is \"station 0\" in"), "{refusal}");
    for command in ["transform run turned.csv --out new", "evaluate run --data turned.csv"] {
        let refusal = bench.fails(2, command);
        assert!(
            refusal.contains("turned.csv") && refusal.contains("\"station 63\", which is \"station 0\" in run"),
            "{refusal}"
        );
    }
    bench.ok("transform run named.csv --out new --quiet");
    assert!(text("new/labelled_weights.tsv").contains("\n2020-02-39\t"));
    // Merged runs have the tables of their first, without the data.
    let fit = format!("fit named.csv --grid 8x8 --noise white --quiet --drop-volumes 3 {SHORT} --seed 3 --out two");
    bench.ok(&fit);
    std::fs::rename(bench.path("named.csv"), bench.path("moved.csv")).unwrap();
    bench.ok("merge run two --out both --quiet");
    for name in ["labelled_weights.tsv", "labelled_features.tsv"] {
        let names = |run: &str| -> Vec<String> {
            text(&format!("{run}/{name}")).lines().map(|line| line.split('\t').next().unwrap().to_string()).collect()
        };
        assert_eq!(names("both"), names("run"));
    }
    let features = text("both/labelled_features.tsv");
    let n_both = read_npy_f32(&bench.path("both/features.npy")).unwrap().0[0];
    assert_eq!(features.lines().nth(64).unwrap().split('\t').count(), 1 + n_both);
    std::fs::rename(bench.path("moved.csv"), bench.path("named.csv")).unwrap();
    bench.ok(&format!("fit named.csv --grid 8x8 --noise white --quiet {SHORT} --out run --overwrite"));
}

#[test]
fn shapes_that_are_probably_not_meant_are_asked_about() {
    let bench = Bench::empty();
    let values = rows_on_8x8();
    bench.npy("turned.npy", &[8, 8, 40], &values);
    bench.npy("flat.npy", &[40, 64], &values);
    bench.npy("colours.npy", &[10, 16, 4, 4], &values);
    bench.write("labelled.csv", table(&values, ",", "", |row| format!("{},", row % 10)));
    for (input, remedy) in [
        ("turned.npy", "--rows-axis last"),
        ("flat.npy", "--grid 8x8"),
        ("colours.npy", "--structure \"path x path x iid\""),
        ("labelled.csv", "--columns ^1"),
    ] {
        let output = bench.run(&format!("plan {input} --sweeps 10"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        assert_eq!(text.matches("warning: ").count(), 1, "{text}");
        assert!(text.contains(remedy) && text.contains(input), "{text}");
        let quiet = bench.run(&format!("plan {input} --sweeps 10 --quiet"));
        assert!(quiet.stderr.is_empty(), "{quiet:?}");
    }
    let error = bench.fails(2, "fit flat.npy --columns 70 --out run");
    assert!(error.contains("--columns = 70") && error.contains("64 columns") && error.contains("flat.npy"), "{error}");
    let error = bench.fails(2, "fit turned.npy --columns 2- --out run");
    assert!(error.contains("mask"), "{error}");
    bench.write("kinds.csv", "a,b,kind\n1,2,x\n3,4,y\n");
    assert!(bench.fails(2, "fit kinds.csv --out run").contains("--columns ^3"));
}

#[test]
fn files_of_other_programs_are_answered() {
    let bench = Bench::empty();
    for (name, lines) in [
        ("sst.nc", "sst.nc\")[\"NAME\"].transpose("),
        ("cells.h5", "cells.h5\")[\"NAME\"][:]"),
        ("rest.dtseries.nii", "rest.dtseries.nii\").get_fdata()"),
    ] {
        bench.write(name, "not looked into");
        let error = bench.fails(2, &format!("fit {name} --out run"));
        assert!(error.contains(name) && error.contains("\n  import ") && error.contains(lines), "{error}");
    }
    std::fs::create_dir(bench.path("sst.zarr")).unwrap();
    assert!(bench.fails(2, "fit sst.zarr --out run").contains("sst.zarr\", mode=\"r\")"));
    assert!(bench.fails(2, "fit nowhere.nc --out run").contains("nowhere.nc"));
    bench.write("broken.npz", "PK");
    assert!(bench.fails(2, "fit broken.npz --out run").contains("broken.npz"));
    assert!(bench.fails(2, "fit broken.npz:a --out run").contains("broken.npz"));
    assert!(bench.fails(2, "fit nowhere.npz:a --out run").contains("nowhere.npz"));
    std::fs::create_dir(bench.path("empty")).unwrap();
    assert!(bench.fails(2, "fit empty --out run").contains("without .png, .tif"));
    bench.write("bad.csv.gz", "1,2\n");
    assert!(bench.fails(2, "fit bad.csv.gz --out run").contains("bad.csv.gz"));
    assert!(!bench.path("run").exists());
}
