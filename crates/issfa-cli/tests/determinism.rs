//! Same seed, same bits: for any number of threads, and across every way of stopping and going on.

mod common;
use common::Bench;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const RESULTS: [&str; 6] =
    ["features.npy", "features_sd.npy", "weights.npy", "activation.npy", "features.tsv", "reconstruction.npy"];

fn same(bench: &Bench, one: &str, other: &str) {
    assert_eq!(bench.trace(one), bench.trace(other), "{one} {other}");
    for name in RESULTS {
        assert!(
            bench.bytes(&format!("{one}/{name}")) == bench.bytes(&format!("{other}/{name}")),
            "{name} of {one}, {other}"
        );
    }
    let draws = |run: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(bench.path(run).join("draws")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(draws(one), draws(other));
    for name in draws(one) {
        let name = name.to_string_lossy();
        assert!(bench.bytes(&format!("{one}/draws/{name}")) == bench.bytes(&format!("{other}/draws/{name}")), "{name}");
    }
}

const FIT: &str = "fit sim/observations.npy --grid 40x20 --burn-in 20 --thin 3 --keep-draws 4 --seed 9 --reconstruct --heldout sim/heldout.npy --quiet";

fn bench() -> Bench {
    let bench = Bench::empty();
    bench.ok("simulate --seed 5 --rows 90 --heldout-rows 20 --grid 40x20 --features 5 --density 0.2 --out sim");
    bench
}

#[test]
fn threads_do_not_matter() {
    let bench = bench();
    for threads in [1, 2, 3] {
        bench.ok(&format!("{FIT} --sweeps 60 --threads {threads} --out run{threads}"));
    }
    same(&bench, "run1", "run2");
    same(&bench, "run1", "run3");
    for threads in [1, 2] {
        bench.ok(&format!("transform run1 sim/heldout.npy --threads {threads} --out new{threads} --quiet"));
    }
    assert!(bench.bytes("new1/reconstruction.npy") == bench.bytes("new2/reconstruction.npy"));
}

/// Where the data are kept does not matter, and the file is gone afterwards.
#[test]
fn spilled_data_give_the_same_bits() {
    let bench = bench();
    bench.ok(&format!("{FIT} --sweeps 40 --out run"));
    bench.ok(&format!("{FIT} --sweeps 40 --spill scratch --out spilled"));
    same(&bench, "run", "spilled");
    assert_eq!(std::fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
    bench.fails(1, &format!("{FIT} --sweeps 40 --spill /dev/null/no --out other"));
}

/// A bound on memory sends data to a file where they do not fit, and nothing else; one that is too small says how much it takes.
#[test]
fn a_bound_on_memory_gives_the_same_bits() {
    let bench = Bench::empty();
    bench.ok("simulate --seed 5 --rows 2000 --heldout-rows 20 --grid 60x60 --features 5 --density 0.2 --out sim");
    let fit = "fit sim/observations.npy --grid 60x60 --sweeps 12 --burn-in 6 --thin 2 --seed 9 --reconstruct --threads 2 --quiet";
    bench.ok(&format!("{fit} --memory 10GB --spill scratch --out run"));
    assert!(!bench.path("scratch").exists(), "data that fit stay in memory");
    let refused = bench.fails(2, &format!("{fit} --memory 1MB --out other"));
    assert!(refused.contains("--memory = 1MB: a fit of 2000 x 3600 holds about "), "{refused}");
    let least: u64 = refused.split(" MB even").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    bench.ok(&format!("{fit} --memory {}MB --spill scratch --out spilled", least + 8));
    assert!(bench.path("scratch").exists(), "data that do not fit go to a file");
    same(&bench, "run", "spilled");
    let plan = |size: &str| {
        bench.ok(&format!("plan sim/observations.npy --grid 60x60 --reconstruct --threads 2 --memory {size}"))
    };
    assert!(plan(&format!("{}MB", least + 8)).contains("spill ") && !plan("10GB").contains("spill "));
    assert!(bench.fails(2, &format!("{fit} --memory much --out other")).contains("write a size such as 800MB"));
}

#[test]
fn double_precision_is_deterministic_too() {
    let bench = bench();
    for threads in [1, 2] {
        bench.ok(&format!("{FIT} --precision f64 --sweeps 30 --threads {threads} --out run{threads}"));
    }
    same(&bench, "run1", "run2");
}

/// Threads, an extension, and a copy made from the run's own settings; and the rows are told apart from normal ones.
#[test]
fn student_weights_are_deterministic_too() {
    let bench = bench();
    for threads in [1, 3] {
        bench.ok(&format!("{FIT} --weights student --sweeps 60 --threads {threads} --out run{threads}"));
    }
    same(&bench, "run1", "run3");
    bench.ok(&format!("{FIT} --weights student --sweeps 45 --out part"));
    bench.ok("resume part --sweeps +15 --quiet");
    same(&bench, "run1", "part");
    let config = String::from_utf8(bench.bytes("run1/config.toml")).unwrap();
    assert!(config.contains("weights = \"student\"") && config.contains("weight_tails = 4.0"), "{config}");
    bench.ok("fit --config run1/config.toml --out copy --quiet");
    same(&bench, "run1", "copy");
    bench.ok(&format!("{FIT} --sweeps 60 --out normal"));
    assert_ne!(bench.trace("run1"), bench.trace("normal"));
    let config = String::from_utf8(bench.bytes("normal/config.toml")).unwrap();
    assert!(!config.contains("weight_tails"), "{config}");
    for threads in [1, 2] {
        bench.ok(&format!("transform run1 sim/heldout.npy --threads {threads} --out new{threads} --quiet"));
    }
    assert!(bench.bytes("new1/weights.npy") == bench.bytes("new2/weights.npy"));
}

fn start(bench: &Bench, arguments: &str) -> Child {
    bench.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts")
}

/// Waits until the trace or checkpoint shows that a run is well under way.
fn wait_for(bench: &Bench, path: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while !bench.path(path).exists() {
        assert!(Instant::now() < end, "{path} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_killed_anywhere_resumes_with_the_same_bits() {
    let bench = bench();
    bench.ok(&format!("{FIT} --sweeps 90 --out whole"));
    for (number, pause) in [15, 120, 350].into_iter().enumerate() {
        let run = format!("killed{number}");
        let mut child = start(&bench, &format!("{FIT} --sweeps 90 --checkpoint-every 0.05s --out {run}"));
        wait_for(&bench, &format!("{run}/checkpoint/state.safetensors"));
        std::thread::sleep(Duration::from_millis(pause));
        child.kill().expect("kill -9");
        child.wait().expect("it is gone");
        bench.ok(&format!("resume {run} --quiet"));
        same(&bench, "whole", &run);
    }
}

#[test]
fn ctrl_c_and_sigterm_leave_a_run_that_goes_on() {
    let bench = bench();
    bench.ok(&format!("{FIT} --sweeps 400 --out whole"));
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let run = format!("stopped{code}");
        let mut child = start(&bench, &format!("{FIT} --sweeps 400 --out {run}"));
        wait_for(&bench, &format!("{run}/checkpoint/state.safetensors"));
        std::thread::sleep(Duration::from_millis(300));
        let kill = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        assert_eq!(child.wait().expect("it stops").code(), Some(code));
        let done = bench.trace(&run).len() - 1;
        assert!(done < 400, "the signal came in time");
        assert!(bench.path(&run).join("features.npy").is_file(), "summaries so far are written");
        bench.ok(&format!("resume {run} --quiet"));
        same(&bench, "whole", &run);
    }
}

#[test]
fn an_extended_run_equals_a_longer_one() {
    let bench = bench();
    bench.ok(&format!("{FIT} --sweeps 120 --out whole"));
    bench.ok(&format!("{FIT} --sweeps 60 --out part"));
    bench.ok("resume part --sweeps +60 --quiet");
    same(&bench, "whole", "part");
    let error = bench.fails(2, "resume part --sweeps 50");
    assert!(error.contains("cannot be made shorter"), "{error}");
}

#[test]
fn a_time_budget_stops_and_resume_goes_on() {
    let bench = bench();
    bench.ok(&format!("{FIT} --sweeps 300 --out whole"));
    let text = bench.ok(&format!("{} --sweeps 300 --time-budget 0.2s --out part", FIT.replace(" --quiet", "")));
    assert!(text.contains("time budget used up"), "{text}");
    bench.ok("resume part --quiet");
    same(&bench, "whole", "part");
}

#[test]
fn resume_refuses_other_data_and_settings() {
    let bench = bench();
    bench.ok(&format!("{FIT} --sweeps 30 --out run"));
    let config = String::from_utf8(bench.bytes("run/config.toml")).unwrap();
    bench.write("run/config.toml", config.replace("seed = 9", "seed = 8"));
    assert!(bench.fails(2, "resume run").contains("changed since the fit"));
    bench.edit_config("run", |text| text);
    assert!(bench.fails(2, "resume run").contains("other settings"));
    bench
        .write("run/config.toml", config.replace(&format!("format = {}", issfa::run::settings::FORMAT), "format = 77"));
    assert!(bench.fails(2, "resume run").contains("format 77"));
    assert!(bench.fails(2, "summary run").contains("format 77"));
    bench.write("run/config.toml", &config);
    let mut data = bench.bytes("sim/observations.npy");
    let last = data.len() - 1;
    data[last] ^= 1;
    bench.write("sim/observations.npy", data);
    assert!(bench.fails(2, "resume run").contains("other data"));
}
