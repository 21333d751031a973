//! Runs that go on until their chains have settled, as a user sees them.

mod common;

use common::Bench;

const FIT: &str = "fit sim/observations.npy --grid 12x10 --noise white --until settled --burn-in 100 --seed 3";

/// What a command says, on the way and at its end; it must succeed.
fn said(bench: &Bench, arguments: &str) -> String {
    let output = bench.run(arguments);
    let text = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
    assert!(output.status.success(), "issfa {arguments}\n{text}");
    text
}

#[test]
fn what_is_called_settled_is_settled() {
    let bench = Bench::simulated();
    // Of 200 sweeps 40 draws are kept, fewer than it takes.
    let text = said(&bench, &format!("{FIT} --chains 2 --thin 5 --sweeps 25600 --out run"));
    let at = text.split("\nsettled at sweep ").nth(1).unwrap_or_else(|| panic!("{text}"));
    let at: u64 = at.lines().next().unwrap().parse().unwrap();
    let looks: Vec<u64> = (0..8).map(|doubled| 200 << doubled).take_while(|look| *look < at).collect();
    assert!(at < 25_600 && !looks.is_empty(), "it settles, but not at the first look: {text}");
    assert!(looks.iter().all(|look| text.contains(&format!("not settled at sweep {look}: "))), "{text}");
    let summary = bench.json("summary run --json");
    assert_eq!((summary["sweeps_done"].as_u64(), summary["burn_in"].as_u64()), (Some(at), Some(at / 2)));
    assert_eq!(summary["n_kept"].as_u64(), Some(at / 5), "a fifth of half of the sweeps of two chains");
    let quantities = summary["quantities"].as_array().unwrap();
    let mut n_judged = 0;
    for one in quantities {
        let name = one["name"].as_str().unwrap();
        if ["features", "noise variance", "ln likelihood"].contains(&name) || name.starts_with("theta") {
            let (r_hat, size) = (one["split_r_hat"].as_f64().unwrap(), one["effective_sample_size"].as_f64().unwrap());
            assert!(r_hat <= 1.05 && size >= 100.0, "{name}: {r_hat}, {size}");
            n_judged += 1;
        }
    }
    assert_eq!(n_judged, 5);
    assert_eq!(summary["verdict"][0].as_str(), Some("Nothing looks wrong."));
    // It has settled, so that there is nothing to do; more sweeps are done where they are asked for.
    assert!(said(&bench, "resume run").contains(&format!("settled at sweep {at}")));
    bench.ok("resume run --sweeps +6 --quiet");
    assert_eq!(bench.json("summary run --json")["sweeps_done"].as_u64(), Some(at + 6));
}

#[test]
fn a_look_when_the_time_is_over_keeps_what_there_is() {
    let bench = Bench::simulated();
    let text = said(&bench, &format!("{FIT} --thin 2 --sweeps 200 --out run"));
    assert!(text.contains("not settled, and all 200 sweeps are used up: "), "{text}");
    let before = bench.bytes("run/features.npy");
    let text = said(&bench, "resume run --sweeps 800 --time-budget 0s");
    assert!(text.contains("not settled at sweep 200: ") && text.contains("time budget used up at sweep 200"), "{text}");
    assert_eq!(bench.json("summary run --json")["n_kept"].as_u64(), Some(50));
    assert!(bench.bytes("run/features.npy") == before, "nothing is let go of");
    bench.ok("transform run sim/heldout.npy --out new --quiet");
    // Gone on with, it is the run that had as many sweeps from the start.
    bench.ok("resume run --quiet");
    bench.ok(&format!("{FIT} --thin 2 --sweeps 800 --out whole --quiet"));
    assert_eq!(bench.trace("run"), bench.trace("whole"));
    assert!(bench.bytes("run/features.npy") == bench.bytes("whole/features.npy"));
}

#[test]
fn few_sweeps_after_a_look_are_added_to_those_before() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --thin 5 --sweeps 203 --out run --quiet"));
    let summary = bench.json("summary run --json");
    assert_eq!((summary["sweeps_done"].as_u64(), summary["n_kept"].as_u64()), (Some(203), Some(20)));
}

#[test]
fn runs_that_ended_in_different_windows_are_told_what_to_do() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --thin 2 --sweeps 200 --out one --quiet"));
    bench.ok(&format!("{} --thin 2 --sweeps 400 --out two --quiet", FIT.replace("--seed 3", "--seed 4")));
    let told = bench.fails(2, "merge one two --out both");
    assert!(told.contains("one keeps what comes after sweep 100, but two what comes after sweep 200"), "{told}");
    let remedy = told.split("those of one run: issfa ").nth(1).unwrap_or_else(|| panic!("{told}"));
    assert_eq!(remedy.trim(), "fit --config one/config.toml --chains 2");
    bench.ok(&format!("{} --out both --quiet", remedy.trim()));
    assert_eq!(bench.json("summary both --json")["chains"].as_u64(), Some(2));
}
