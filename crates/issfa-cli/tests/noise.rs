//! Noise that is not white, through the real binary: what is measured, that fits stay small, that runs keep their reference.

mod common;
use common::Bench;

const SHORT: &str = "--sweeps 40 --burn-in 20 --thin 2 --seed 1 --quiet";

fn simulate(bench: &Bench, options: &str) {
    bench.ok(&format!(
        "simulate --preset small --rows 300 --heldout-rows 60 {} --features 5 --density 0.15 --seed 4 {options} --out sim \
         --overwrite --quiet",
        if options.contains("--grid") { "" } else { "--grid 24x24" }
    ));
}

fn number(value: &serde_json::Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// With the reference the features are found and little else, whatever the noise; taken for white, noise that is not makes
/// features by the dozen.
#[test]
fn features_are_found_under_every_kind_of_noise() {
    for kind in ["white", "sites", "smooth", "both"] {
        for traces in ["independent", "series"] {
            let bench = Bench::empty();
            simulate(&bench, &format!("--noise-kind {kind} --traces {traces} --weight-variance 200,400"));
            bench.ok("fit sim/observations.npy --grid 24x24 --center none --sweeps 150 --seed 1 --out run --quiet");
            let report = bench.json("evaluate run --truth sim --json");
            assert!(number(&report, "n_found") >= 4.0, "{kind} {traces}: {report}");
            assert!(number(&report, "n_features_mean") < 20.0, "{kind} {traces}: {report}");
            if kind == "both" && traces == "independent" {
                bench.ok(
                    "fit sim/observations.npy --grid 24x24 --center none --noise white --sweeps 60 --out white --quiet",
                );
                let white = bench.json("evaluate white --truth sim --json");
                assert!(number(&white, "n_features_mean") > 30.0, "{white}");
                let verdict = bench.json("summary white --json")["verdict"].to_string();
                assert!(verdict.contains("not identified") || number(&white, "n_features_mean") < 75.0, "{verdict}");
            }
        }
    }
}

/// The same bits for any number of threads, after a stop, with the reference from a file, merged, in single and double.
#[test]
fn a_run_keeps_its_reference() {
    let bench = Bench::empty();
    simulate(&bench, "--noise-kind both");
    let mask: Vec<f64> = (0..576).map(|at| f64::from(u8::from(at % 24 > 2 && at / 24 < 20))).collect();
    bench.npy("mask.npy", &[24, 24], &mask);
    for options in ["", "--precision f64", "--mask mask.npy", "--mask mask.npy --center none"] {
        let fit = |out: &str, more: &str| {
            let mut short = SHORT.to_string();
            for word in ["--sweeps 40", "--seed 1"].iter().filter(|word| more.contains(word.split_once(' ').unwrap().0))
            {
                short = short.replace(word, "");
            }
            bench.ok(&format!("fit sim/observations.npy --grid 24x24 {options} {short} {more} --out {out} --overwrite"))
        };
        fit("whole", "--threads 1");
        fit("other", "--threads 2");
        fit("part", "--sweeps 30");
        bench.ok("resume part --sweeps 40 --quiet");
        for run in ["other", "part"] {
            assert_eq!(bench.trace(run), bench.trace("whole"), "{options}: {run}");
            for name in ["features.npy", "features_z.npy", "weights.npy", "noise_reference.safetensors"] {
                assert_eq!(
                    bench.bytes(&format!("{run}/{name}")),
                    bench.bytes(&format!("whole/{name}")),
                    "{run}/{name}"
                );
            }
        }
        fit("shared", "--noise whole/noise_reference.safetensors");
        assert_eq!(bench.trace("shared"), bench.trace("whole"), "{options}");
        fit("second", "--seed 2");
        bench.ok("merge whole second --out merged --overwrite --quiet");
        assert_eq!(bench.bytes("merged/noise_reference.safetensors"), bench.bytes("whole/noise_reference.safetensors"));
        bench.ok("transform merged sim/heldout.npy --out new --overwrite --quiet");
        let hidden = bench.json("evaluate whole --data sim/heldout.npy --hide 0.2 --json");
        assert!(number(&hidden, "r2") >= number(&hidden, "signal_r2") - 0.01, "{hidden}");
    }
    bench.write("part/noise_reference.safetensors", bench.bytes("second/config.toml"));
    assert!(bench.fails(2, "summary part").contains("noise_reference.safetensors"));
}

/// A run that is three times another, signal and noise, has three times its weights and denoised rows, in the fit and as new
/// rows.
#[test]
fn levels_of_runs_come_back_in_the_units_of_the_data() {
    let bench = Bench::empty();
    simulate(&bench, "--weight-variance 200,400");
    let (_, values) = issfa::data::read::npy::read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    bench.npy("one.npy", &[300, 24, 24], &values);
    bench.npy("three.npy", &[300, 24, 24], &values.iter().map(|x| 3.0 * x).collect::<Vec<_>>());
    bench.ok("fit one.npy three.npy --sweeps 120 --seed 1 --reconstruct --out run --quiet");
    bench.ok("transform run three.npy --center-new own --out new --quiet");
    let load = |name: &str| issfa::data::read::npy::read_npy_f64(&bench.path(name)).unwrap().1;
    let slope = |a: &[f64], b: &[f64]| {
        let (xy, xx) = a.iter().zip(b).fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
        xy / xx
    };
    for name in ["weights.npy", "reconstruction.npy"] {
        let (fitted, new) = (load(&format!("run/{name}")), load(&format!("new/{name}")));
        let (first, second) = fitted.split_at(fitted.len() / 2);
        for (what, other) in [("in the fit", second), ("as new rows", &new[..])] {
            let slope = slope(first, other);
            assert!((slope / 3.0 - 1.0).abs() < 0.1, "{name} {what}: {slope}");
        }
    }
}

/// Rows of a series that are louder, signal and noise, have weights and denoised rows that are as much larger, in the fit and as
/// new rows; the reference holds their factors, with the same bits for any number of threads, after a stop, and when merged.
#[test]
fn rows_that_differ_in_noise_come_back_in_the_units_of_the_data() {
    let bench = Bench::empty();
    simulate(&bench, "--traces series --weight-variance 1000,2000");
    let (_, values) = issfa::data::read::npy::read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    let level = |row: usize| if (row / 40).is_multiple_of(2) { 0.75 } else { 1.5 };
    let louder: Vec<f64> = values.iter().enumerate().map(|(at, x)| level(at / 576) * x).collect();
    bench.npy("alike.npy", &[300, 24, 24], &values);
    bench.npy("louder.npy", &[300, 24, 24], &louder);
    let fit = |input: &str, more: &str, out: &str| {
        bench.ok(&format!(
            "fit {input}.npy --row-noise --center none --burn-in 40 --seed 1 --reconstruct {more} --out {out}"
        ))
    };
    assert!(fit("alike", "--sweeps 80", "alike").contains("rows differ by no more than chance"));
    assert!(fit("louder", "--sweeps 80 --threads 1", "run").contains("rows differ by ±"));
    fit("louder", "--sweeps 80 --threads 2", "other");
    fit("louder", "--sweeps 60", "part");
    bench.ok("resume part --sweeps 80 --quiet");
    for run in ["other", "part"] {
        assert_eq!(bench.trace(run), bench.trace("run"), "{run}");
        for name in ["features.npy", "weights.npy", "reconstruction.npy", "noise_reference.safetensors"] {
            assert_eq!(bench.bytes(&format!("{run}/{name}")), bench.bytes(&format!("run/{name}")), "{run}/{name}");
        }
    }
    bench.ok(
        "fit louder.npy --row-noise --center none --burn-in 40 --sweeps 80 --seed 2 --reconstruct --out second --quiet",
    );
    bench.ok("merge run second --out merged --quiet");
    assert_eq!(bench.bytes("merged/noise_reference.safetensors"), bench.bytes("run/noise_reference.safetensors"));
    bench.ok("transform merged louder.npy --out new --quiet");
    bench.ok("transform alike alike.npy --out plain --quiet");
    let load = |name: &str| issfa::data::read::npy::read_npy_f64(&bench.path(name)).unwrap().1;
    for (name, plain) in [("run", "alike"), ("new", "plain")] {
        let (found, plain) =
            (load(&format!("{name}/reconstruction.npy")), load(&format!("{plain}/reconstruction.npy")));
        for loud in [0.75, 1.5] {
            let is_such = |at: &usize| level(at / 576) == loud;
            let (xy, xx) = (0..found.len())
                .filter(is_such)
                .fold((0.0, 0.0), |(xy, xx), at| (xy + plain[at] * found[at], xx + plain[at] * plain[at]));
            assert!((xy / xx / loud - 1.0).abs() < 0.05, "{name}: {} for {loud}", xy / xx);
        }
    }
    // In a file of settings, and not unless asked for.
    bench.write("rows.toml", "[noise_reference]\nrow_levels = true\n");
    let short = "fit louder.npy --center none --sweeps 6";
    assert!(bench.ok(&format!("{short} --config rows.toml --out file")).contains("rows differ by ±"));
    assert!(!bench.ok(&format!("{short} --out one")).contains("rows differ by"));
    let hidden = bench.json("evaluate run --data louder.npy --hide 0.2 --json");
    // Noise is 69% of the variance.
    assert!(number(&hidden, "r2") > 0.3, "{hidden}");
}

#[test]
fn noise_is_shown_before_a_fit_and_wrong_files_are_named() {
    let bench = Bench::empty();
    simulate(&bench, "--noise-kind sites");
    let told = bench.ok("noise sim/observations.npy --grid 24x24 --row-noise --out noise");
    assert!(told.contains("--row-noise changes nothing here: rows that follow each other are not alike"), "{told}");
    assert!(told.contains("-fold between sites") && told.contains("noise_spectrum.png"), "{told}");
    for name in ["noise_reference.safetensors", "noise_sites.png", "noise_spectrum.svg"] {
        assert!(bench.path("noise").join(name).is_file(), "{name}");
    }
    let error = bench.fails(2, &format!("fit sim/observations.npy --grid 24x24 --noise nowhere {SHORT} --out run"));
    assert!(error.contains("--noise = ") && error.contains("nowhere"), "{error}");
    bench.npy("small.npy", &[30, 10, 10], &(0..3000).map(|i| f64::from(i * 7919 % 101)).collect::<Vec<_>>());
    let error = bench.fails(2, &format!("fit small.npy --noise noise/noise_reference.safetensors {SHORT} --out run"));
    assert!(error.contains("576 sites") && error.contains("100 take part"), "{error}");
    // One row a run: no differences, so the noise is white, and said to be.
    bench.npy("one.npy", &[1, 30], &(0..30).map(|i| f64::from(i % 7)).collect::<Vec<_>>());
    let told = bench.ok("fit one.npy --row-noise --center none --sweeps 6 --out one");
    assert!(told.contains("note: --row-noise changes nothing here: the noise is taken to be white"), "{told}");
    assert!(told.contains("noise: white: no run has two rows"), "{told}");
    let told = bench.ok("resume one --sweeps 9");
    assert!(told.contains("noise: white: no run has two rows"), "{told}");
    // As many sites, but others.
    simulate(&bench, "--grid 16x36");
    let error =
        bench.fails(2, "fit sim/observations.npy --grid 16x36 --noise noise/noise_reference.safetensors --out run");
    assert!(error.contains("path(24) x path(24)") && error.contains("path(16) x path(36)"), "{error}");
}

/// Sites without any value are a mask; cells that are missing in some rows are named with both remedies.
#[test]
fn sites_that_are_nan_in_all_rows_are_left_out() {
    let bench = Bench::simulated();
    let (_, values) = issfa::data::read::npy::read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    let land = |site: usize| site % 10 < 3;
    let with_land: Vec<f64> =
        values.iter().enumerate().map(|(at, &x)| if land(at % 120) { f64::NAN } else { x }).collect();
    bench.npy("land.npy", &[80, 12, 10], &with_land);
    let told = bench.ok("fit land.npy --sweeps 40 --seed 1 --out run");
    assert!(told.contains("84 of 120 sites: the others are NaN in all rows and left out"), "{told}");
    let (_, features) = issfa::data::read::npy::read_npy_f32(&bench.path("run/features.npy")).unwrap();
    assert!(features.iter().enumerate().all(|(at, x)| x.is_nan() == land(at % 120)));
    bench.ok("resume run --sweeps 50 --quiet");
    let mut holes = values;
    holes[5] = f64::NAN;
    bench.npy("holes.npy", &[80, 12, 10], &holes);
    let error = bench.fails(2, "fit holes.npy --sweeps 40 --out no");
    assert!(error.contains("--missing impute") && error.contains("--mask"), "{error}");
}

/// Means of 1e2 to 1e6 standard deviations, which single precision cannot hold: no fit ends with nonsense.
#[test]
fn large_means_do_no_harm() {
    let bench = Bench::simulated();
    let (_, values) = issfa::data::read::npy::read_npy_f64(&bench.path("sim/observations.npy")).unwrap();
    let mask: Vec<f64> = (0..120).map(|site| f64::from(u8::from(site % 10 < 7))).collect();
    bench.npy("mask.npy", &[12, 10], &mask);
    for exponent in [2, 4, 6] {
        for holes in [false, true] {
            let mean = 10f64.powi(exponent);
            let value = |(at, x): (usize, &f64)| if holes && at % 97 == 5 { f64::NAN } else { x + mean };
            bench.npy("data.npy", &[80, 12, 10], &values.iter().enumerate().map(value).collect::<Vec<_>>());
            for options in ["", "--mask mask.npy", "--center none", "--center none --mask mask.npy --noise white"] {
                let impute = if holes { "--missing impute" } else { "" };
                let line =
                    format!("fit data.npy {options} {impute} --sweeps 60 --seed 1 --out run --overwrite --quiet");
                let done = bench.run(&line);
                let told = String::from_utf8_lossy(&done.stderr);
                if exponent == 6 && options.contains("none") && !done.status.success() {
                    // Not even double precision holds it: then the fit ends, and says what to do.
                    assert!(told.contains("times the data") && told.contains("--center site"), "{told}");
                    continue;
                }
                assert!(done.status.success(), "{line}: {told}");
                let summary = bench.json("summary run --json");
                let explained = number(&summary, "variance_explained");
                assert!((0.0..=1.0).contains(&explained), "{mean} {options} {holes}: {explained}");
                if !options.contains("none") {
                    let noise = summary["quantities"][3]["mean"].as_f64().unwrap();
                    assert!((0.8..1.2).contains(&noise), "{mean} {options} {holes}: {noise}");
                }
            }
        }
    }
}
