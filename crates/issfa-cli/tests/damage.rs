//! Run folders that were damaged, cut, or made by somebody who means harm: errors, and never other results.

mod common;

use common::Bench;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

const FIT: &str = "--sweeps 12 --burn-in 4 --thin 2 --keep-draws 3 --quiet";

/// Two runs (of a seed each) of two files under a mask, on a graph, with everything that is stored.
fn bench() -> Bench {
    let bench = Bench::empty();
    let value = |at: usize| (at as f64 * 0.37).sin() * ((at / 30) as f64 * 1.3).cos() + 0.2 * (at as f64 * 7.7).sin();
    let values: Vec<f64> = (0..360).map(value).collect();
    bench.npy("a.npy", &[12, 6, 5], &values);
    bench.npy("b.npy", &[12, 6, 5], &values.iter().map(|x| x * x - 0.3 * x).collect::<Vec<_>>());
    let inside: Vec<f64> = (0..30).map(|site| f64::from(u8::from(site != 7))).collect();
    bench.npy("mask.npy", &[6, 5], &inside);
    bench.write("edges.csv", (0..4).map(|i| format!("{i},{}\n", i + 1)).collect::<String>());
    for seed in [1, 2] {
        bench.ok(&format!(
            "fit a.npy b.npy --mask mask.npy --structure \"path x graph(edges.csv)\" --reconstruct {FIT} --seed {seed} --out run{seed}"
        ));
    }
    bench
}

/// All files below a folder but the figures, without times in the trace; checkpoints know times too.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if path.is_dir() {
                open.push(path);
            } else if name.ends_with("trace.csv") {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                let without = |line: &str| {
                    line.split(',').enumerate().filter(|(at, _)| *at != 2).map(|(_, c)| c).collect::<Vec<_>>().join(",")
                };
                found.insert(name, text.lines().map(without).collect::<Vec<_>>().join("\n").into_bytes());
            } else if !["figures/", "checkpoint/", "config.toml", "report.html", "live.json"]
                .iter()
                .any(|part| name.contains(part))
            {
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copy(&path, &target) } else { std::fs::copy(&path, &target).map(drop).unwrap() }
    }
}

/// What a command makes of the run `now`: its exit code, what it says, and its output.
fn make(bench: &Bench, command: &str) -> (Output, BTreeMap<String, Vec<u8>>) {
    let _ = std::fs::remove_dir_all(bench.path("out"));
    let output = bench.run(command);
    let mut made = files(&bench.path(if command.starts_with("resume") { "now" } else { "out" }));
    made.insert("stdout".into(), output.stdout.clone());
    (output, made)
}

const COMMANDS: [&str; 5] = [
    "summary now --json",
    "transform now b.npy --out out --quiet",
    "merge now run2 --out out --quiet",
    "evaluate now --data a.npy --hide 0.2 --json",
    "resume now --sweeps +4 --quiet",
];

/// The files that later commands believe.
fn believed(run: &Path) -> Vec<PathBuf> {
    let names = files(run).into_keys().filter(|name| {
        let is_shown_only =
            name.starts_with("features_z") || name.starts_with("weights_") || name.starts_with("activation_");
        !is_shown_only
    });
    let others = ["config.toml", "checkpoint/state.safetensors"].map(String::from);
    names.chain(others).map(PathBuf::from).collect()
}

fn is_panic(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stderr);
    text.contains("panicked") || !matches!(output.status.code(), Some(0..=2))
}

#[test]
fn flips_are_noticed_or_change_nothing() {
    let bench = bench();
    copy(&bench.path("run1"), &bench.path("now"));
    let wanted: Vec<_> = COMMANDS
        .iter()
        .map(|command| {
            let (output, made) = make(&bench, command);
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            made
        })
        .collect();
    let list = believed(&bench.path("run1"));
    assert!(list.len() > 15, "{list:?}");
    let mut random = 12345_u64;
    let mut next = |n: usize| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % n
    };
    let mut n_noticed = 0;
    for case in 0..200 {
        let path = &list[case % list.len()];
        let mut bytes = std::fs::read(bench.path("run1").join(path)).unwrap();
        let bit = next(8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Every file is met by every command, over the cases.
        let at = (case / list.len() + case) % COMMANDS.len();
        let _ = std::fs::remove_dir_all(bench.path("now"));
        copy(&bench.path("run1"), &bench.path("now"));
        std::fs::write(bench.path("now").join(path), &bytes).unwrap();
        let (output, made) = make(&bench, COMMANDS[at]);
        let told = format!(
            "{} with bit {bit} of {}: {}",
            COMMANDS[at],
            path.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!is_panic(&output), "{told}");
        match output.status.success() {
            true => assert!(made == wanted[at], "{told}"),
            false => n_noticed += 1,
        }
    }
    assert!(n_noticed > 60, "{n_noticed}");
}

#[test]
fn a_damaged_file_is_named_with_a_remedy() {
    let bench = bench();
    for (name, command, words) in [
        ("weights.npy", "summary run1", "issfa resume run1 writes it"),
        ("features.tsv", "report run1", "issfa resume run1 writes it"),
        ("eigenvalues.csv", "summary run1", "issfa resume run1 writes it"),
        ("reconstruction.npy", "merge run1 run2 --out m", "issfa resume run1 writes it"),
        ("draws/draw-000002.safetensors", "transform run1 a.npy --out t", "fit again"),
        ("draws/draw-000002.safetensors", "resume run1", "fit again"),
        ("draws/preprocessing.safetensors", "transform run1 a.npy --out t", "fit again"),
        ("checkpoint/state.safetensors", "resume run1", "fit again"),
        ("trace.csv", "resume run1", "fit again"),
        ("trace.csv", "summary run1", "fit again"),
        ("noise_reference.safetensors", "summary run1", "fit again"),
    ] {
        let path = format!("run1/{name}");
        let bytes = bench.bytes(&path);
        let mut damaged = bytes.clone();
        let last = damaged.len() - 2;
        damaged[last] ^= 1;
        for state in [Some(damaged), Some(bytes[..bytes.len() / 2].to_vec()), None] {
            match &state {
                Some(state) => bench.write(&path, state),
                None => std::fs::remove_file(bench.path(&path)).unwrap(),
            }
            if state.is_none() && name.contains("checkpoint") {
                continue;
            }
            let error = bench.fails(2, command);
            assert!(error.contains(name) && error.contains(words), "{command} without {name}: {error}");
        }
        bench.write(&path, bytes);
        let _ = std::fs::remove_dir_all(bench.path("t"));
    }
    let mask = bench.bytes("run1/mask.npy");
    bench.write("run1/mask.npy", [&mask[..mask.len() - 4], &[0; 4]].concat());
    for command in ["summary run1", "resume run1"] {
        let error = bench.fails(2, command);
        assert!(error.contains("mask.npy: is not the mask of this run") && error.contains("fit again"), "{error}");
    }
    bench.write("run1/mask.npy", mask);
    // What can be made again is made again.
    let good = files(&bench.path("run1"));
    for name in ["weights.npy", "eigenvalues.csv", "checksums.tsv", "synchrony.tsv", "reconstruction.npy"] {
        bench.write(&format!("run1/{name}"), "x");
        bench.ok("resume run1 --quiet");
        assert!(files(&bench.path("run1")) == good, "{name}");
    }
}

#[test]
fn a_run_goes_back_to_the_checkpoint_before() {
    let bench = Bench::simulated();
    let fit =
        "fit sim/observations.npy --grid 12x10 --burn-in 20 --thin 2 --keep-draws 8 --sweeps 4000 --seed 3 --quiet";
    bench.ok(&format!("{fit} --checkpoint-every 0s --time-budget 0.3s --out part"));
    let sweep = issfa::run::checkpoint::peek(&bench.path("part")).unwrap().0;
    assert!(sweep > 2 && bench.path("part/checkpoint/previous.safetensors").is_file());
    let end = sweep + 10;
    bench.ok(&format!("{} --out whole", fit.replace("4000", &end.to_string())));
    let whole = files(&bench.path("whole"));
    let trace = bench.bytes("part/trace.csv");
    let state = bench.bytes("part/checkpoint/state.safetensors");
    let last_line = trace[..trace.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let mut flipped = state.clone();
    flipped[state.len() / 2] ^= 4;
    for (name, contents) in [
        ("checkpoint/state.safetensors", Some(flipped)),
        ("checkpoint/state.safetensors", Some(state[..state.len() / 3].to_vec())),
        ("checkpoint/state.safetensors", None),
        ("trace.csv", Some(trace[..last_line].to_vec())),
    ] {
        let _ = std::fs::remove_dir_all(bench.path("now"));
        copy(&bench.path("part"), &bench.path("now"));
        match contents {
            Some(contents) => bench.write(&format!("now/{name}"), contents),
            None => std::fs::remove_file(bench.path("now").join(name)).unwrap(),
        }
        // A run cannot be made shorter; the plan is what the test wants.
        bench.edit_config("now", |text| text.replace("sweeps = 4000", &format!("sweeps = {end}")));
        let output = bench.run("resume now --progress plain");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains("goes back to the checkpoint before"), "{told}");
        let now = files(&bench.path("now"));
        whole.iter().for_each(|(name, bytes)| assert!(now.get(name) == Some(bytes), "{name}"));
        assert!(!bench.path("now/checkpoint/previous.safetensors").exists());
    }
    // Nothing is left to go back to.
    bench.write("part/trace.csv", &trace[..100]);
    let error = bench.fails(2, "resume part");
    assert!(error.contains("part/trace.csv") && error.contains("fit again"), "{error}");
}

/// What a later chain has damaged does not stop the first one, and is mended when it is its turn.
#[test]
fn a_later_chain_goes_back_too() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --grid 12x10 --burn-in 20 --thin 2 --keep-draws 8 --sweeps 40 --seed 3 --chains 2 --reconstruct --quiet --out part");
    copy(&bench.path("part"), &bench.path("whole"));
    bench.ok("resume whole --sweeps +10 --quiet");
    copy(&bench.path("part"), &bench.path("now"));
    let state = bench.bytes("part/chain-2/checkpoint/state.safetensors");
    bench.write("now/chain-2/checkpoint/previous.safetensors", &state);
    let mut flipped = state.clone();
    flipped[state.len() / 2] ^= 4;
    bench.write("now/chain-2/checkpoint/state.safetensors", flipped);
    bench.write("now/chain-2/reconstruction.npy", &bench.bytes("part/chain-2/reconstruction.npy")[..40]);
    bench.ok("resume now --sweeps +10 --quiet");
    let (now, whole) = (files(&bench.path("now")), files(&bench.path("whole")));
    assert!(whole.len() > 20 && whole.keys().eq(now.keys()));
    whole.iter().for_each(|(name, bytes)| assert!(now[name] == *bytes, "{name}"));
    // Where there is nothing to go back to, nothing is begun.
    let trace = bench.trace("part");
    std::fs::remove_file(bench.path("part/chain-2/checkpoint/state.safetensors")).unwrap();
    bench.write("part/chain-2/checkpoint/state.safetensors", &state[..100]);
    let error = bench.fails(2, "resume part --sweeps +10");
    assert!(error.contains("chain-2/checkpoint/state.safetensors") && error.contains("fit again"), "{error}");
    assert_eq!(bench.trace("part"), trace);
}

#[test]
fn files_that_mean_harm_are_refused() {
    let bench = bench();
    // A header that claims more than any memory holds, and numbers that cannot be, with checksums that fit.
    let header = |shape: &str, n: usize| {
        let json = format!(
            "{{\"__metadata__\":{{\"notes\":\"{{}}\"}},\"features\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[0,{n}]}}}}"
        );
        [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &vec![0; n]].concat()
    };
    let state = bench.bytes("run1/checkpoint/state.safetensors");
    for bytes in [
        header("[1000000000000000000]", 0),
        header("[0,1000000000000000000]", 0),
        header("[4294967296,4294967296]", 8),
        (u64::MAX - 1).to_le_bytes().to_vec(),
        Vec::new(),
    ] {
        bench.write("run1/checkpoint/state.safetensors", &bytes);
        for command in ["resume run1", "summary run1", "merge run1 run2 --out m", "fit a.npy b.npy --init run1 --out n"]
        {
            bench.fails(2, command);
        }
    }
    bench.write("run1/checkpoint/state.safetensors", &state);
    let edit = |from: &str, to: &str| {
        let text = String::from_utf8(bench.bytes("run1/config.toml")).unwrap();
        assert!(text.contains(from), "{from} in {text}");
        bench.write("run1/config.toml", text.replacen(from, to, 1));
        issfa::run::reseal::reseal(&bench.path("run1")).unwrap();
        for command in ["resume run1", "summary run1", "transform run1 a.npy --out t", "merge run1 run2 --out m"] {
            bench.fails(2, command);
        }
        bench.write("run1/config.toml", &text);
        issfa::run::reseal::reseal(&bench.path("run1")).unwrap();
        bench.ok("summary run1");
    };
    edit("n_rows = 24", "n_rows = 1000000000000");
    edit("n_sites = 30", "n_sites = 31");
    edit("chains = 1", "chains = 4294967295");
    edit("path(6)", "path(600000000000)");
}

#[test]
fn output_that_cannot_be_written_fails() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --grid 12x10 --sweeps 6 --burn-in 2 --thin 1 --seed 1 --quiet --out run");
    for command in [
        "summary run",
        "summary run --json",
        "evaluate run --truth sim",
        "plan sim/observations.npy --grid 12x10",
        "--help",
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.command(command).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {told}");
        assert!(told.contains("cannot write to standard output"), "{command}: {told}");
        // Nobody who reads: nothing to complain about.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = bench.command(command).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn codes_do_not_reach_the_terminal() {
    let bench = Bench::empty();
    bench.write("bad.csv", "1,2\n3,\u{1b}[2Jx\n");
    bench.write("\u{1b}[31mred.csv", "1,2\n3,x\n");
    let arguments = [
        vec!["fit", "bad.csv", "--out", "o"],
        vec!["fit", "\u{1b}[31mred.csv", "--out", "o"],
        vec!["summary", "\u{1b}[31m"],
        vec!["summary", "a", "--\u{1b}[31m"],
    ];
    for words in arguments {
        let output = bench.command("").args(&words).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(!told.contains('\u{1b}'), "{words:?}: {told:?}");
    }
    assert!(bench.fails(2, "fit bad.csv --out o").contains("\\u001b[2Jx"));
}

#[test]
fn other_heldout_rows_are_noticed() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --heldout sim/heldout.npy --grid 12x10 --sweeps 8 --burn-in 2 --thin 1 --quiet --out run");
    let mut bytes = bench.bytes("sim/heldout.npy");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    bench.write("sim/heldout.npy", bytes);
    let error = bench.fails(2, "resume run --sweeps +2");
    assert!(error.contains("heldout.npy") && error.contains("other held-out rows"), "{error}");
}

#[test]
fn limits_are_named() {
    let bench = Bench::simulated();
    let fit = "fit sim/observations.npy --grid 12x10 --out run";
    for (arguments, words) in [
        (format!("{fit} --chains 4294967295"), "at most 10000"),
        (format!("{fit} --threads 1000000"), "at most 4096"),
        (format!("{fit} --sweeps 9000000000000000000"), "at most 1000000000000"),
        ("simulate --rows 99999999999 --out s".into(), "are free there"),
        ("simulate --rows 99999999999 --traces series --out s".into(), "needs about"),
    ] {
        let error = bench.fails(2, &arguments);
        assert!(error.contains(words), "{arguments}: {error}");
    }
    // Before a checksum is taken of a file that takes minutes to read.
    let header = bench.bytes("sim/observations.npy")[..128].to_vec();
    let text = String::from_utf8_lossy(&header[10..]).replace("(80, 120)", "(200000000000, 120)");
    let start =
        [&header[..10], text.trim_end().as_bytes(), &b" ".repeat(118 - text.trim_end().len() - 1)[..], b"\n"].concat();
    bench.write("huge.npy", &start);
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("huge.npy")).unwrap();
    if file.set_len(128 + 4 * 120 * 200_000_000_000).is_err() {
        return;
    }
    let begun = std::time::Instant::now();
    let error = bench.fails(2, "fit huge.npy --grid 12x10 --out run");
    assert!(error.contains("needs about") && error.contains("are available"), "{error}");
    assert!(begun.elapsed().as_secs() < 20);
}

#[test]
fn data_of_extreme_scale_are_refused() {
    let bench = Bench::empty();
    let value = |at: usize| (at as f64 * 0.37).sin() + 0.2 * (at as f64 * 7.7).sin();
    for (scale, code) in [(1e38, 2), (1e-100, 2), (1e200, 2), (1e25, 0), (1e-25, 0)] {
        bench.npy("y.npy", &[20, 12], &(0..240).map(|at| scale * value(at)).collect::<Vec<_>>());
        let output = bench.run(&format!("fit y.npy --grid 4x3 {FIT} --out run --overwrite"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{scale}: {told}");
        assert_eq!(code == 2, told.contains("multiply the data by 1e") || told.contains("rescale the data"), "{told}");
        if code == 0 {
            let (_, weights) = issfa::data::read::npy::read_npy_f64(&bench.path("run/weights.npy")).unwrap();
            assert!(weights.iter().all(|x| x.is_finite()));
        }
    }
}

#[test]
fn memory_that_is_refused_is_an_error() {
    let bench = Bench::empty();
    bench.ok("simulate --seed 5 --rows 3000 --heldout-rows 1 --grid 60x60 --features 3 --out sim --quiet");
    let program = bench.command("").get_program().to_string_lossy().into_owned();
    for kilobytes in [150_000, 250_000] {
        let script = format!(
            "ulimit -v {kilobytes}; exec {program} fit sim/observations.npy --grid 60x60 {FIT} --threads 2 --out run"
        );
        let output =
            std::process::Command::new("sh").arg("-c").arg(script).current_dir(bench.folder()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{kilobytes}: {:?} {told}", output.status);
        assert!(told.contains("memory") && !told.contains("panicked"), "{kilobytes}: {told}");
    }
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    use issfa::data::read;
    let bench = Bench::empty();
    let values: Vec<f64> = (0..60_000).map(f64::from).collect();
    bench.npy("a.npy", &[300, 200], &values);
    let source = read::open(&bench.path("a.npy")).unwrap();
    let mut rows = vec![0.0; 200];
    source.read_rows(299, &mut rows).unwrap();
    assert_eq!(rows[199], 59_999.0);
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("a.npy")).unwrap();
    file.set_len(5000).unwrap();
    let error = source.read_rows(299, &mut rows).unwrap_err().to_string();
    assert!(error.contains("a.npy") && error.contains("became shorter"), "{error}");
}
