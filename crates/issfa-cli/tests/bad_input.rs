//! What a user can get wrong: a clear message, the right exit code, nothing lost. What is merely odd: it works.

mod common;
use common::Bench;

const SHORT: &str = "--sweeps 12 --burn-in 4 --thin 2 --quiet";

#[test]
fn wrong_paths_and_files() {
    let bench = Bench::empty();
    assert!(bench.fails(2, "fit nowhere.npy --out run").contains("nowhere.npy"));
    bench.write("empty.npy", "");
    assert!(bench.fails(2, "fit empty.npy --out run").contains("empty.npy"));
    bench.write("empty.csv", "");
    assert!(bench.fails(2, "fit empty.csv --out run").contains("empty.csv"));
    bench.write("data.csv", "1,2,3\n4,five,6\n");
    let error = bench.fails(2, "fit data.csv --out run");
    assert!(error.contains("line 2, column 2") && error.contains("'five'"), "{error}");
    bench.write("ragged.csv", "1,2,3\n4,5\n");
    assert!(bench.fails(2, "fit ragged.csv --out run").contains("ragged.csv"));
    bench.write("text.npy", "hello");
    assert!(bench.fails(2, "fit text.npy --out run").contains("text.npy"));
    bench.write("data.xyz", "1");
    assert!(bench.fails(2, "fit data.xyz --out run").contains(".npy"));
    assert!(bench.fails(2, "fit --out run").contains("INPUT"));
    assert!(!bench.path("run").exists(), "nothing was made");
    for command in ["resume", "summary", "report"] {
        assert!(bench.fails(2, &format!("{command} nowhere")).contains("config.toml"));
    }
    assert!(bench.fails(2, "evaluate nowhere --truth nosim").contains("config.toml"));
}

#[test]
fn wrong_values() {
    let bench = Bench::simulated();
    let error = bench.fails(2, "fit sim/observations.npy --grid 12x11 --out run");
    assert!(error.contains("12x11") && error.contains("132") && error.contains("120"), "{error}");
    let error = bench.fails(2, "fit sim/observations.npy --structure \"path(12) x path(11)\" --out run");
    assert!(error.contains("132") && error.contains("120"), "{error}");
    let error = bench.fails(2, "fit sim/observations.npy --grid 12x10 --structure \"path x pth\" --out run");
    assert!(error.contains("'pth'") && error.contains("path or path(n)"), "{error}");
    let error = bench.fails(2, "fit sim/observations.npy --curve \"q + r\" --out run");
    assert!(error.contains("'r'"), "{error}");
    for options in [
        "--sweeps 0",
        "--burn-in 2000",
        "--thin 0",
        "--target-r2 2",
        "--noise-prior 1",
        "--init nonsense",
        "--threads 0",
        "--weights cauchy",
    ] {
        bench.fails(2, &format!("fit sim/observations.npy --grid 12x10 {options} --out run"));
    }
    for (weights, tails, problem) in [
        ("normal", "4", "weight_tails = 4: is for --weights student"),
        ("student", "0", "weight_tails = 0: degrees of freedom must be positive"),
        ("student", "nan", "weight_tails = NaN: degrees of freedom must be positive"),
    ] {
        bench.write("tails.toml", format!("weights = \"{weights}\"\n[priors]\nweight_tails = {tails}\n"));
        let error = bench.fails(2, "fit sim/observations.npy --grid 12x10 --config tails.toml --out run");
        assert!(error.contains(problem), "{error}");
    }
    let mut values = vec![0.5; 40];
    values[17] = f64::NAN;
    bench.npy("nan.npy", &[4, 10], &values);
    let error = bench.fails(2, "fit nan.npy --out run");
    assert!(error.contains("row 1, site 7 is NaN"), "{error}");
    values[17] = f64::INFINITY;
    bench.npy("inf.npy", &[4, 10], &values);
    assert!(bench.fails(2, "fit inf.npy --out run").contains("row 1, site 7 is inf"));
    bench.npy("other.npy", &[4, 10], &[0.5; 40]);
    let error = bench.fails(2, "fit sim/observations.npy other.npy --out run");
    assert!(error.contains("10 sites") && error.contains("120"), "{error}");
    assert!(!bench.path("run").exists());
    bench.npy("extreme.npy", &[2, 3], &[1e200, 0.0, 1.0, 2.0, 3.0, 4.0]);
    assert!(bench.fails(2, "fit extreme.npy --out run").contains("1e200"));
    assert!(bench.fails(2, "fit sim/observations.npy --out other.npy").contains("is a file"));
    for grid in ["100000x100000x1000", "99999999999x99999999999", "99999999x99999999x99999999"] {
        bench.fails(2, &format!("simulate --grid {grid} --out huge"));
        bench.fails(2, &format!("prior-sample --grid {grid} --out huge"));
    }
    bench.ok("simulate --rows 9 --heldout-rows 3 --grid 5x5 --features 2 --out sim5 --quiet");
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run"));
    assert!(bench.fails(2, "transform run other.npy --out new").contains("10 sites"));
    assert!(bench.fails(2, "evaluate run --data sim/heldout.npy --hide 1.5").contains("--hide"));
    assert!(bench.fails(2, "report run --truth sim5").contains("25 sites"));
    assert!(bench.fails(2, "evaluate run --truth run").contains("simulation.toml"));
    std::fs::remove_file(bench.path("run/trace.csv")).unwrap();
    assert!(bench.fails(2, "summary run").contains("trace.csv"));
}

#[test]
fn existing_results_are_kept() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run"));
    let before = bench.bytes("run/features.npy");
    assert!(
        bench.fails(2, &format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run")).contains("--overwrite")
    );
    bench.fails(2, "fit nowhere.npy --out run --overwrite");
    assert!(before == bench.bytes("run/features.npy"), "a failed fit leaves the old one alone");
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --seed 4 --out run --overwrite"));
    assert!(before != bench.bytes("run/features.npy"));
    std::fs::create_dir(bench.path("precious")).unwrap();
    bench.write("precious/thesis.tex", "words");
    let error = bench.fails(2, &format!("fit sim/observations.npy --grid 12x10 {SHORT} --out precious --overwrite"));
    assert!(error.contains("precious") && bench.path("precious/thesis.tex").is_file(), "{error}");
}

#[test]
fn odd_but_legal_data_work() {
    let bench = Bench::empty();
    let wave: Vec<f64> = (0..60).map(|i| (f64::from(i) * 0.7).sin()).collect();
    bench.npy("t1.npy", &[1, 60], &wave);
    bench.npy("v1.npy", &[60, 1], &wave);
    bench.npy("one.npy", &[1, 1], &[3.0]);
    bench.npy("constant.npy", &[10, 6], &[7.0; 60]);
    bench.npy("zeros.npy", &[10, 6], &[0.0; 60]);
    bench.write("text.csv", "a,b,c\n1,2,3\n4,5,7\n2,2,1\n0,1,0\n");
    for name in ["t1.npy", "v1.npy", "one.npy", "constant.npy", "zeros.npy", "text.csv"] {
        for options in ["", "--center site --scale", "--preset isfa --init empty"] {
            bench.ok(&format!("fit {name} {SHORT} {options} --reconstruct --out run --overwrite"));
            bench.ok("summary run");
            bench.ok(&format!("transform run {name} --out new --overwrite --quiet"));
            bench.ok(&format!("evaluate run --data {name} --hide 0.3 --json"));
        }
    }
}

#[test]
fn integer_and_fortran_arrays_are_the_same_data() {
    let bench = Bench::empty();
    let values: Vec<i16> = (0..48).map(|i| ((i * 37) % 23) as i16 - 11).collect();
    let header = |descr: &str, fortran: &str| {
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': (8, 6), }}");
        text += &" ".repeat(127 - 10 - text.len());
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16 + 1).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.push(b'\n');
        bytes
    };
    let mut integers = header("<i2", "False");
    integers.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bench.write("integers.npy", integers);
    let mut fortran = header(">f8", "True");
    for site in 0..6 {
        fortran.extend((0..8).flat_map(|row| f64::from(values[row * 6 + site]).to_be_bytes()));
    }
    bench.write("fortran.npy", fortran);
    for name in ["integers", "fortran"] {
        bench.ok(&format!("fit {name}.npy {SHORT} --out {name}"));
    }
    assert_eq!(bench.trace("integers"), bench.trace("fortran"));
}

/// A sparse file with an honest header: its length is right, but the data cannot be held.
#[test]
fn data_larger_than_memory_are_refused_at_once() {
    let bench = Bench::empty();
    let (rows, sites) = (4_000_000u64, 10_000_000u64);
    let mut text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, {sites}), }}");
    text += &" ".repeat(127 - 10 - text.len());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16 + 1).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(b'\n');
    let file = std::fs::File::create(bench.path("huge.npy")).unwrap();
    std::io::Write::write_all(&mut &file, &bytes).unwrap();
    if file.set_len(bytes.len() as u64 + rows * sites).is_err() {
        eprintln!("this file system has no files of 40 TB: nothing to refuse");
        return;
    }
    let error = bench.fails(2, "fit huge.npy --out run");
    assert!(error.contains("TB of memory") && error.contains("available"), "{error}");
}

#[test]
fn unwritable_places_are_named() {
    let bench = Bench::simulated();
    bench.write("file", "in the way");
    for command in [
        "fit sim/observations.npy --grid 12x10 --sweeps 4 --burn-in 1 --thin 1 --out file/run",
        "simulate --out file/sim",
    ] {
        let error = bench.fails(1, command);
        assert!(error.contains("cannot write") && error.contains("file/"), "{error}");
    }
}

/// On a tiny file system of its own, where the machine lets us make one.
#[test]
fn a_full_disk_ends_the_run_and_keeps_the_last_checkpoint() {
    let bench = Bench::simulated();
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&disk).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("no right to mount a small file system here: the full disk is not tested");
        return;
    }
    let fit =
        "fit sim/observations.npy --grid 12x10 --burn-in 2 --thin 1 --keep-draws 5000 --checkpoint-every 0s --quiet";
    let full = bench.run(&format!("{fit} --sweeps 5000 --out disk/run"));
    let (code, error) = (full.status.code(), String::from_utf8_lossy(&full.stderr).into_owned());
    let summary = bench.run("summary disk/run");
    let unmounted = std::process::Command::new("umount").arg(&disk).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("cannot write") && error.contains("No space left"), "{error}");
    assert!(summary.status.success() && String::from_utf8_lossy(&summary.stdout).contains("goes on"));
}

/// `--overwrite` replaces what the same command made, and nothing else.
#[test]
fn nothing_foreign_is_replaced() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run"));
    let features = bench.bytes("run/features.npy");
    let error = bench.fails(2, "transform run sim/heldout.npy --out run --overwrite");
    assert!(error.contains("run: holds 'checkpoint'"), "{error}");
    assert_eq!(bench.bytes("run/features.npy"), features);
    std::fs::copy(bench.path("sim/observations.npy"), bench.path("run/mine.npy")).unwrap();
    let error = bench.fails(2, &format!("fit run/mine.npy --grid 12x10 {SHORT} --out run --overwrite"));
    assert!(error.contains("'mine.npy'"), "{error}");
    assert_eq!(bench.bytes("run/features.npy"), features);
    std::fs::remove_file(bench.path("run/mine.npy")).unwrap();
    // A run that cannot be the start is found out before the old results go; a run may start from itself.
    bench.npy("other.npy", &[9, 120], &(0..9 * 120).map(|i| (i as f64).sin()).collect::<Vec<_>>());
    bench.ok(&format!("fit other.npy --grid 12x10 {SHORT} --out other"));
    let restart =
        |init: &str| format!("fit sim/observations.npy --grid 12x10 {SHORT} --init {init} --out run --overwrite");
    bench.fails(2, &restart("other"));
    assert_eq!(bench.bytes("run/features.npy"), features);
    bench.ok(&restart("run"));
    bench.ok("summary run");
}

/// As many sites on a grid that is turned round are other sites.
#[test]
fn grids_turned_round_are_refused() {
    let bench = Bench::empty();
    let values: Vec<f64> = (0..20 * 12).map(|i| (i as f64 * 0.7).sin()).collect();
    bench.npy("flat.npy", &[20, 12], &values);
    bench.npy("data.npy", &[20, 3, 4], &values);
    bench.npy("turned.npy", &[20, 4, 3], &values);
    bench.ok(&format!("fit data.npy {SHORT} --out run"));
    let refusals = [
        "transform run turned.npy --out new".to_string(),
        "evaluate run --data turned.npy --hide 0.2".into(),
        format!("fit data.npy --heldout turned.npy {SHORT} --out other"),
        format!("fit flat.npy data.npy turned.npy {SHORT} --out other"),
        format!("fit data.npy --grid 4x3 {SHORT} --out other"),
    ];
    for command in refusals {
        let error = bench.fails(2, &command);
        assert!(error.contains("3x4") && error.contains("4x3"), "{command}: {error}");
    }
    bench.ok("transform run flat.npy --out new");
    bench.ok(&format!("fit data.npy --grid 12 {SHORT} --out line"));
    assert!(!bench.path("other").exists());
}

/// Without MPI in it, the binary would do the same work once for every rank.
#[test]
#[cfg(not(feature = "mpi"))]
fn ranks_without_mpi_are_refused() {
    let bench = Bench::simulated();
    let fit = "fit sim/observations.npy --grid 12x10 --sweeps 3 --out run";
    for (arguments, remedy) in [(fit, "--features mpi"), ("summary run", "without mpirun")] {
        let output = bench.command(arguments).env("OMPI_COMM_WORLD_SIZE", "2").output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(remedy), "{message}");
    }
    assert!(!bench.path("run").exists());
}
