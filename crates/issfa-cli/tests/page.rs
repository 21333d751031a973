//! The page of a run: who writes it, what it holds, and how large it is. What it looks like is tested in a browser.

mod common;

use common::Bench;
use std::fs;

fn size(bench: &Bench, name: &str) -> u64 {
    fs::metadata(bench.path(name)).unwrap().len()
}

#[test]
fn every_fit_writes_a_page_of_the_size_that_was_asked_for() {
    let bench = Bench::simulated();
    let said = bench.ok("fit sim/observations.npy --grid 12x10 --sweeps 30 --out run");
    assert!(said.contains("page: run/report.html") && said.contains("(all maps)"), "{said}");
    let html = fs::read_to_string(bench.path("run/report.html")).unwrap();
    for needed in ["Content-Security-Policy", "id=\"data\"", "id=\"blob-mean-0\"", "id=\"blob-sd-0\"", "uPlot"] {
        assert!(html.contains(needed), "{needed}");
    }
    assert!(!html.contains("src=") && !html.contains("@import"), "nothing is loaded");
    let full = size(&bench, "run/report.html");
    let said = bench.ok("report run --report light");
    assert!(said.contains("one map a feature") && size(&bench, "run/report.html") < full, "{said}");
    let html = fs::read_to_string(bench.path("run/report.html")).unwrap();
    assert!(html.contains("id=\"blob-mean-0\"") && !html.contains("id=\"blob-sd-0\""));
    bench.ok("fit sim/observations.npy --grid 12x10 --sweeps 30 --report none --out quiet");
    assert!(!bench.path("quiet/report.html").exists());
    let said = bench.ok("resume quiet --sweeps +5");
    assert!(!said.contains("page:"), "the run knows that none is wanted: {said}");
    bench.ok("fit sim/observations.npy --grid 12x10 --sweeps 30 --overwrite --out run");
    assert_eq!(size(&bench, "run/report.html") / 1000, full / 1000, "a new fit replaces the page");
}

#[test]
fn a_fit_leaves_how_far_it_is() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --grid 12x10 --sweeps 30 --burn-in 10 --thin 2 --chains 2 --out run");
    for (name, chain) in [("run/live.json", 1), ("run/chain-2/live.json", 2)] {
        let live: serde_json::Value = serde_json::from_slice(&fs::read(bench.path(name)).unwrap()).unwrap();
        let expected =
            [("format", 1), ("chain", chain), ("sweep", 30), ("sweeps", 30), ("burn_in", 10), ("n_kept", 10)];
        expected.iter().for_each(|(key, value)| assert_eq!(live[key], *value, "{key}"));
        assert!(live["n_features"].as_u64().unwrap() > 0 && live["live_seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_page_that_is_not_wanted_any_more_goes() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --grid 12x10 --sweeps 20 --out run");
    assert!(bench.path("run/report.html").is_file());
    let said = bench.ok("report run --report none");
    assert!(said.contains("report.html was of an earlier time and is removed"), "{said}");
    assert!(!bench.path("run/report.html").exists());
    assert!(!bench.ok("report run --report none").contains("removed"));
    bench.ok("report run");
    assert!(bench.path("run/report.html").is_file());
}

#[test]
fn mistakes_are_named() {
    let bench = Bench::simulated();
    let fit = "fit sim/observations.npy --grid 12x10 --sweeps 30 --out run";
    for (words, expected) in [
        (format!("{fit} --axes a"), "--axes = a: names 1 axes, but the grid has 2"),
        (format!("{fit} --axes a=1:b,c"), "'b' is not a number"),
        (format!("{fit} --report small"), "small"),
    ] {
        let error = bench.fails(2, &words);
        assert!(error.contains(expected), "{error}");
        assert!(!bench.path("run").exists(), "{words}");
    }
    bench.ok(fit);
    bench.write("said.json", "[1]");
    assert!(bench.fails(2, "report run --evaluation said.json").contains("said.json"));
    assert!(bench.fails(2, "watch nowhere").contains("nowhere"));
    assert!(bench.fails(2, "watch run --listen somewhere").contains("--listen"));
}
