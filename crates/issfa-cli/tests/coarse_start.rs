//! A start from coarse to fine finds what a full one finds, with fewer features on the way, and can be stopped and turned off.

mod common;
use common::Bench;

const N_FEATURES: u64 = 12;
const N_MODES: usize = 48 * 48;
const FIT: &str = "fit sim/observations.npy --grid 48x48 --noise white --center none --seed 3 --quiet";

fn simulated() -> Bench {
    let bench = Bench::empty();
    bench.ok(&format!(
        "simulate --seed 21 --rows 400 --heldout-rows 20 --grid 48x48 --features {N_FEATURES} --density 0.1 --out sim"
    ));
    bench
}

/// A column of the trace.
fn column(bench: &Bench, run: &str, name: &str) -> Vec<usize> {
    let text = String::from_utf8(bench.bytes(&format!("{run}/trace.csv"))).unwrap();
    let at = text.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    text.lines().skip(1).map(|line| line.split(',').nth(at).unwrap().parse().unwrap()).collect()
}

#[test]
fn all_features_are_found_and_few_others_on_the_way() {
    let bench = simulated();
    for init in ["kmeans:15", "empty"] {
        for start in ["full", "coarse"] {
            bench.ok(&format!("{FIT} --sweeps 60 --init {init} --start {start} --out {start} --overwrite"));
        }
        let n_modes = column(&bench, "coarse", "n_modes");
        // About an eighth of the modes are in for the first 20 sweeps.
        assert!(n_modes[..20].iter().all(|&n| n == n_modes[0] && n.abs_diff(N_MODES / 8) < 20), "{n_modes:?}");
        assert!(n_modes[20..].iter().all(|&n| n == N_MODES), "{n_modes:?}");
        let found = bench.json("evaluate coarse --truth sim --json");
        assert_eq!(found["n_found"], N_FEATURES, "{init}: {found}");
        let most = |run: &str| column(&bench, run, "n_features").into_iter().max().unwrap();
        assert!(most("coarse") < most("full"), "{init}: {} features on the way, {}", most("coarse"), most("full"));
    }
    let summary = bench.ok("summary coarse");
    assert!(summary.contains("start: 20 sweeps at the smoothest ") && summary.contains(" of 2304 modes"), "{summary}");
}

#[test]
fn it_can_be_turned_off_and_is_not_done_where_modes_have_no_order() {
    let bench = simulated();
    for (options, out) in [("--start full", "full"), ("--structure \"iid x iid\"", "iid"), ("--init full", "again")] {
        bench.ok(&format!("{FIT} --sweeps 6 {options} --out {out}"));
        assert_eq!(column(&bench, out, "n_modes"), [N_MODES; 6], "{options}");
    }
    let error = bench.fails(2, &format!("{FIT} --sweeps 6 --start rough --out no"));
    assert!(error.contains("coarse") && error.contains("full"), "{error}");
}

/// Stopped in the coarse stage and gone on with, and with other numbers of threads: the same bits.
#[test]
fn stops_and_threads_do_not_matter() {
    let bench = simulated();
    bench.ok(&format!("{FIT} --sweeps 18 --threads 2 --out whole"));
    bench.ok(&format!("{FIT} --sweeps 18 --threads 1 --time-budget 0s --out parts"));
    let mut n_parts = 1;
    while bench.trace("parts").len() < 19 {
        assert!(n_parts < 19, "every part has a sweep at least");
        bench.ok("resume parts --time-budget 0s --quiet");
        n_parts += 1;
    }
    assert!(n_parts > 12, "{n_parts} parts");
    assert_eq!(bench.trace("whole"), bench.trace("parts"));
    for name in ["features.npy", "weights.npy", "activation.npy"] {
        assert!(bench.bytes(&format!("whole/{name}")) == bench.bytes(&format!("parts/{name}")), "{name}");
    }
}
