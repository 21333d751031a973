//! Fits under mpirun: the same bits on any number of ranks, and every way a job can end.
#![cfg(feature = "mpi")]

mod common;
use common::Bench;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FIT: &str = "fit sim/observations.npy --grid 40x30 --sweeps 24 --burn-in 12 --thin 3 --keep-draws 3 --seed 9 --init kmeans:5 --quiet";

fn bench() -> Bench {
    let bench = Bench::empty();
    bench.ok("simulate --seed 5 --rows 90 --heldout-rows 20 --grid 40x30 --features 5 --density 0.2 --out sim --quiet");
    bench
}

/// mpirun as tests need it: as root, with more ranks than cores, and without a core to each rank.
fn mpirun(bench: &Bench) -> Command {
    let mut command = Command::new("mpirun");
    command.current_dir(bench.folder()).args(["--oversubscribe", "--bind-to", "none"]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The words of one program among those that mpirun starts.
fn program(bench: &Bench, n_ranks: usize, arguments: &str) -> Vec<std::ffi::OsString> {
    let command = bench.command(arguments);
    let program = [command.get_program()].into_iter().chain(command.get_args()).map(Into::into);
    ["-n".into(), n_ranks.to_string().into()].into_iter().chain(program).collect()
}

fn run_on(bench: &Bench, n_ranks: usize, arguments: &str) -> Output {
    mpirun(bench).args(program(bench, n_ranks, arguments)).output().expect("mpirun is installed")
}

fn ok_on(bench: &Bench, n_ranks: usize, arguments: &str) {
    let output = run_on(bench, n_ranks, arguments);
    assert!(output.status.success(), "{n_ranks} ranks: {arguments}\n{}", text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The arrays of a checkpoint, without the header, which knows how long everything took.
fn checkpoint(bench: &Bench, run: &str) -> Vec<u8> {
    let bytes = bench.bytes(&format!("{run}/checkpoint/state.safetensors"));
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + length..].to_vec()
}

fn same(bench: &Bench, one: &str, other: &str) {
    assert_eq!(bench.trace(one), bench.trace(other), "{one}, {other}");
    for name in ["features.npy", "features_sd.npy", "weights.npy", "activation.npy", "features.tsv"] {
        let [one_bytes, other_bytes] = [one, other].map(|run| bench.bytes(&format!("{run}/{name}")));
        assert!(one_bytes == other_bytes, "{name} of {one}, {other}");
    }
    assert!(checkpoint(bench, one) == checkpoint(bench, other), "checkpoints of {one}, {other}");
}

#[test]
fn the_same_bits_on_any_number_of_ranks_and_threads() {
    let bench = bench();
    let mask: Vec<f64> = (0..1200).map(|site| f64::from(u8::from(site % 30 > 6 && site / 30 > 4))).collect();
    bench.npy("mask.npy", &[40, 30], &mask);
    for (name, more) in [("whole", "--threads 2"), ("masked", "--threads 1 --mask mask.npy")] {
        bench.ok(&format!("{FIT} {more} --out {name}-1"));
        for n_ranks in 2..=4 {
            ok_on(&bench, n_ranks, &format!("{FIT} {more} --out {name}-{n_ranks}"));
            same(&bench, &format!("{name}-1"), &format!("{name}-{n_ranks}"));
        }
    }
    // One rank under mpirun, and a run that goes on with more ranks than it began with.
    ok_on(&bench, 1, &format!("{FIT} --out one"));
    same(&bench, "whole-1", "one");
    ok_on(&bench, 2, &format!("{} --out longer", FIT.replace("--sweeps 24", "--sweeps 15")));
    ok_on(&bench, 4, "resume longer --sweeps 24 --quiet");
    same(&bench, "whole-1", "longer");
    ok_on(&bench, 3, "resume longer --sweeps +6 --quiet");
    bench.ok("resume whole-1 --sweeps +6 --quiet");
    same(&bench, "whole-1", "longer");
    let sent = bench.json("summary longer --json")["bytes_sent_per_sweep"].as_f64().unwrap();
    assert!(sent > 8.0 * 90.0, "products of 90 rows with some features: {sent}");
}

#[test]
fn chains_run_side_by_side() {
    let bench = bench();
    bench.ok(&format!("{FIT} --chains 2 --out alone"));
    ok_on(&bench, 4, &format!("{FIT} --chains 2 --out groups"));
    ok_on(&bench, 2, &format!("{FIT} --chains 2 --ranks-per-chain 2 --out together"));
    for run in ["groups", "together"] {
        same(&bench, "alone", run);
        same(&bench, "alone/chain-2", &format!("{run}/chain-2"));
    }
    let output = run_on(&bench, 3, &format!("{FIT} --chains 2 --ranks-per-chain 2 --out wrong"));
    assert!(text(&output.stderr).contains("--ranks-per-chain"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(2));
}

/// Ranks that were started with different things before them.
#[test]
fn ranks_that_differ_are_refused() {
    let bench = bench();
    std::fs::create_dir(bench.path("elsewhere")).unwrap();
    let mut other = bench.bytes("sim/observations.npy");
    let last = other.len() - 1;
    other[last] ^= 1;
    bench.write("elsewhere/observations.npy", other);
    let cases = [
        (FIT.replace("sim/", "elsewhere/"), "input"),
        (FIT.replace("--seed 9", "--seed 8"), "seed = 8"),
        (FIT.replace("--init kmeans:5", "--precision f64"), "settings"),
    ];
    for (second, what) in cases {
        let mut command = mpirun(&bench);
        command.args(program(&bench, 1, &format!("{FIT} --out run"))).arg(":");
        let output = command.args(program(&bench, 1, &format!("{second} --out run"))).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("rank 1") && message.contains(what), "{message}");
        assert!(!bench.path("run").exists(), "nothing was written");
    }
    let message = text(&run_on(&bench, 2, &format!("{} --out run", FIT.replace("40x30", "41x30"))).stderr);
    // mpirun has words of its own, in which there is an error code.
    let n_errors = message.lines().filter(|line| line.starts_with("error")).count();
    assert_eq!(n_errors, 1, "one rank speaks for all: {message}");
    let output = run_on(&bench, 2, "summary sim");
    assert!(text(&output.stderr).contains("runs in one process"), "{}", text(&output.stderr));
}

/// A fit of many sweeps on three ranks, once its checkpoint knows of some.
fn long_fit(bench: &Bench, out: &str, launcher: &[&str]) -> Child {
    let fit = FIT.replace("--sweeps 24", "--sweeps 100000");
    let mut command = mpirun(bench);
    command.args(launcher).args(program(bench, 3, &format!("{fit} --checkpoint-every 1s --out {out}")));
    let child = command.spawn().expect("mpirun is installed");
    let start = Instant::now();
    while sweeps_in_checkpoint(bench, out) < 3 {
        assert!(start.elapsed() < Duration::from_secs(120), "no checkpoint of {out}");
        std::thread::sleep(Duration::from_millis(100));
    }
    child
}

fn sweeps_in_checkpoint(bench: &Bench, run: &str) -> u64 {
    issfa::run::checkpoint::peek(&bench.path(run)).map_or(0, |(sweep, _)| sweep)
}

/// Waits for the end; must come soon.
fn ended(child: Child) -> (Option<i32>, String) {
    let start = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    (output.status.code(), text(&output.stderr))
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Whatever ended the job, it goes on in one process, to where a job that nothing happened to would be.
fn goes_on(bench: &Bench, run: &str) {
    let sweep = sweeps_in_checkpoint(bench, run);
    bench.ok(&format!("resume {run} --sweeps 100000 --time-budget 1s --quiet"));
    let reached = sweeps_in_checkpoint(bench, run);
    assert!(reached > sweep);
    let fit = FIT.replace("--sweeps 24", &format!("--sweeps {reached}"));
    bench.ok(&format!("{fit} --out {run}-undisturbed"));
    assert_eq!(bench.trace(run), bench.trace(&format!("{run}-undisturbed")));
}

#[test]
fn a_rank_that_dies_ends_the_job_and_the_checkpoint_is_sound() {
    let bench = bench();
    let child = long_fit(&bench, "killed", &[]);
    let ranks = Command::new("pgrep").args(["-P", &child.id().to_string()]).output().unwrap();
    let ranks: Vec<u32> = text(&ranks.stdout).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ranks.len(), 3);
    signal(ranks[1], "-KILL");
    let (code, message) = ended(child);
    assert_ne!(code, Some(0));
    assert!(message.contains("signal 9"), "{message}");
    goes_on(&bench, "killed");
}

#[test]
fn a_scheduler_s_signals_stop_the_job_at_a_checkpoint() {
    let bench = bench();
    let child = long_fit(&bench, "usr1", &[]);
    signal(child.id(), "-USR1");
    let (code, message) = ended(child);
    assert_eq!(code, Some(138), "{message}");
    assert!(message.contains("stopped at sweep"), "{message}");
    goes_on(&bench, "usr1");
    // mpirun waits so many seconds before it passes SIGTERM on, and as many again before it kills.
    let child = long_fit(&bench, "term", &["--mca", "odls_base_sigkill_timeout", "3"]);
    signal(child.id(), "-TERM");
    let (_, message) = ended(child);
    assert!(message.contains("stopped at sweep"), "{message}");
    goes_on(&bench, "term");
}
