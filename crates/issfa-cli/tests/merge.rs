//! Runs merged into one with the real binary: the same files as of several chains, the same bits when it goes on.

mod common;
use common::Bench;
use std::collections::BTreeMap;
use std::path::Path;

const FIT: &str = "fit sim/observations.npy --grid 12x10 --sweeps 30 --burn-in 10 --thin 2 --keep-draws 4 --heldout sim/heldout.npy --reconstruct --quiet";

const RESULTS: [&str; 6] = [
    "features.npy",
    "features_sd.npy",
    "features_exceedance.npy",
    "weights.npy",
    "activation.npy",
    "reconstruction.npy",
];

/// Every file below a folder with its contents.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.extend(files(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.insert(name, std::fs::read(&path).unwrap());
        }
    }
    all
}

fn names(bench: &Bench, run: &str) -> Vec<String> {
    files(&bench.path(run)).into_keys().collect()
}

/// The rows of a trace without `chain` and `seconds`, after checking that all are of this chain.
fn rows(bench: &Bench, folder: &str, chain: u32) -> Vec<String> {
    let lines = bench.trace(folder);
    let row = |line: &String| {
        let (number, rest) = line.split_once(',').expect("a row");
        assert_eq!(number, chain.to_string(), "{folder}");
        rest.to_string()
    };
    lines.iter().skip(1).map(row).collect()
}

/// A chain of a merged run is the chain it was made of, but for its number and for `stability`.
fn same_chain(bench: &Bench, (merged, chain): (&str, u32), (source, number): (&str, u32)) {
    assert_eq!(rows(bench, merged, chain), rows(bench, source, number), "{merged} {source}");
    let [merged_results, results] = [merged, source].map(|folder| own_results(bench, folder));
    for name in RESULTS {
        assert!(
            bench.bytes(&format!("{merged_results}/{name}")) == bench.bytes(&format!("{results}/{name}")),
            "{name}: {source}"
        );
    }
    let draws = |folder: &str| files(&bench.path(folder).join("draws"));
    assert!(draws(merged) == draws(source), "draws of {source}");
    assert_eq!(table(bench, &merged_results, 5), table(bench, &results, 5), "{source}");
}

/// Where the results of a chain alone are: of several chains, those of the first have a folder of their own.
fn own_results(bench: &Bench, folder: &str) -> String {
    let own = format!("{folder}/chain-1");
    if bench.path(&own).is_dir() { own } else { folder.to_string() }
}

/// `features.tsv` without one column.
fn table(bench: &Bench, folder: &str, without: usize) -> Vec<Vec<String>> {
    let text = String::from_utf8(bench.bytes(&format!("{folder}/features.tsv"))).unwrap();
    let row =
        |line: &str| line.split('\t').enumerate().filter(|(at, _)| *at != without).map(|(_, x)| x.into()).collect();
    text.lines().map(row).collect()
}

fn stabilities(bench: &Bench, folder: &str) -> Vec<f64> {
    table(bench, folder, usize::MAX).iter().skip(1).map(|row| row[5].parse().unwrap()).collect()
}

#[test]
fn merged_runs_are_the_chains_of_one() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --seed 1 --out one"));
    bench.ok(&format!("{FIT} --seed 2 --chains 2 --out two"));
    bench.ok(&format!("{FIT} --seed 3 --out three"));
    bench.ok(&format!("{FIT} --seed 1 --chains 4 --out usual"));
    let before = ["one", "two", "three"].map(|run| files(&bench.path(run)));
    let text = bench.ok("merge one two three --out all");
    assert!(
        text.starts_with("merge: 3 runs of 80 rows x 120 sites (12x10), path(12) x path(10); 4 chains of 30"),
        "{text}"
    );
    assert!(text.contains("chain 3: two/chain-2, seed 2"), "{text}");
    assert!(text.ends_with("done: all; next: issfa summary all\n"), "{text}");
    assert!(before == ["one", "two", "three"].map(|run| files(&bench.path(run))), "the runs are as they were");

    // Only a fit says how far it is.
    let usual = |name: &String| !name.contains("draw-") && !name.ends_with("live.json");
    let [found, expected] =
        ["all", "usual"].map(|run| names(&bench, run).into_iter().filter(usual).collect::<Vec<_>>());
    assert_eq!(found, expected, "the files that fit --chains makes");
    let sources = [("one", 1), ("two", 1), ("two/chain-2", 2), ("three", 1)];
    let folders = ["all", "all/chain-2", "all/chain-3", "all/chain-4"];
    for (at, (folder, source)) in folders.iter().zip(sources).enumerate() {
        same_chain(&bench, (folder, at as u32 + 1), source);
        let stable = stabilities(&bench, folder);
        assert!(!stable.is_empty() && stable.iter().all(|s| (0.0..=1.0001).contains(s)), "{stable:?}");
    }
    // What all have found together: presence by all kept sweeps, and in how many chains.
    let all = table(&bench, "all", usize::MAX);
    let column = |name: &str| all[0].iter().position(|own| own == name).unwrap();
    let number = |row: &Vec<String>, name: &str| row[column(name)].parse::<f64>().unwrap();
    assert!(all.len() > 1, "{all:?}");
    for row in &all[1..] {
        assert!(number(row, "presence") >= 0.5 && (1.0..=4.0).contains(&number(row, "chains")), "{row:?}");
        assert!(number(row, "stability") > 0.3, "{row:?}");
        assert!(number(row, "chains") < 4.0 || number(row, "presence") >= 0.5, "{row:?}");
    }
    let summary = bench.json("summary all --json");
    let n_agreeing = all[1..].iter().filter(|row| number(row, "chains") == 4.0).count();
    assert_eq!(summary["n_agreeing"].as_u64(), Some(n_agreeing as u64), "{summary}");
    assert_eq!((summary["chains"].as_u64(), summary["n_kept"].as_u64()), (Some(4), Some(40)), "{summary}");
    assert!(bench.json("evaluate all --truth sim --json")["n_found"].is_number());

    // A run's own chains and merged ones go on with the same bits.
    for run in ["one", "two", "three", "all"] {
        bench.ok(&format!("resume {run} --sweeps +14 --quiet"));
    }
    for (at, (folder, source)) in folders.iter().zip(sources).enumerate() {
        same_chain(&bench, (folder, at as u32 + 1), source);
        assert_eq!(rows(&bench, folder, at as u32 + 1).len(), 44);
    }
}

/// Merging is the same in one step and in two, and does not need the data.
#[test]
fn merged_runs_can_be_merged_again() {
    let bench = Bench::simulated();
    for seed in 1..=3 {
        bench.ok(&format!("{FIT} --precision f64 --seed {seed} --out run{seed}"));
    }
    // Runs of earlier builds do not know the sum of squares; one that does is enough.
    let without = |line: &&str| !line.starts_with("sum_of_squares");
    for run in ["run1", "run2"] {
        bench.edit_config(run, |text| text.lines().filter(without).collect::<Vec<_>>().join("\n"));
    }
    assert!(bench.fails(2, "merge run1 run2 --out no").contains("issfa resume run1"));
    bench.ok("resume run1 --quiet");
    // The data are not needed.
    std::fs::rename(bench.path("sim"), bench.path("moved")).unwrap();
    bench.ok("merge run1 run2 run3 --out at-once --quiet");
    bench.ok("merge run1 run2 --out pair --quiet");
    assert_eq!(bench.ok("merge pair run3 --out in-steps --quiet"), "");
    let [at_once, mut in_steps] = ["at-once", "in-steps"].map(|run| files(&bench.path(run)));
    for name in ["config.toml", "features.tsv", "chain-3/features.tsv", "checkpoint/state.safetensors"] {
        assert!(at_once[name] == in_steps[name], "{name}");
    }
    // The page has the name of the run on it.
    in_steps.retain(|name, _| !name.starts_with("figures") && name != "report.html");
    assert!(in_steps.iter().all(|(name, bytes)| at_once[name] == *bytes));
    let error = bench.fails(2, "merge pair run2 --out no");
    assert!(error.contains("pair and run2 have the same seed") && error.contains("chain 1 of seed 2"), "{error}");
    bench.edit_config("pair", |text| text.replace("chains = 2", "chains = 3"));
    assert!(bench.fails(2, "resume pair").contains("write chains = 2"));
}

#[test]
fn stopped_runs_are_merged_and_go_on() {
    let bench = Bench::simulated();
    let fit = FIT.replace("--sweeps 30", "--sweeps 24");
    for seed in [1, 2] {
        // A run that stands at sweep 24 of 30, as if it had been stopped there.
        bench.ok(&format!("{fit} --seed {seed} --out run{seed}"));
        bench.edit_config(&format!("run{seed}"), |text| text.replace("sweeps = 24", "sweeps = 30"));
        let mut trace = bench.bytes(&format!("run{seed}/trace.csv"));
        trace.extend_from_slice(b"1,25,0.1");
        bench.write(&format!("run{seed}/trace.csv"), trace);
    }
    let text = bench.ok("merge run1 run2 --out both");
    assert!(text.contains("2 chains of 24 sweeps") && text.contains("issfa resume both"), "{text}");
    assert!(bench.json("summary both --json")["verdict"][0].as_str().unwrap().contains("24 of 30"));
    for run in ["run1", "run2", "both"] {
        bench.ok(&format!("resume {run} --quiet"));
    }
    same_chain(&bench, ("both", 1), ("run1", 1));
    same_chain(&bench, ("both/chain-2", 2), ("run2", 1));
    // Results that a killed run left behind are older than its checkpoint.
    let weights = bench.bytes("run1/weights.npy");
    bench.ok("resume run1 --sweeps +6 --quiet");
    bench.ok("resume run2 --sweeps +6 --quiet");
    bench.write("run1/weights.npy", weights);
    let error = bench.fails(2, "merge run1 run2 --out no");
    assert!(error.contains("run1") && error.contains("issfa resume run1"), "{error}");
    bench.ok("resume run1 --quiet");
    bench.ok("merge run1 run2 --out again --quiet");
}

#[test]
fn masks_graphs_and_inputs_elsewhere_are_merged() {
    let bench = Bench::empty();
    let value = |at: usize| (at as f64 * 0.37).sin() * ((at / 30) as f64 * 1.3).cos() + 0.2 * (at as f64 * 7.7).sin();
    let values: Vec<f64> = (0..360).map(value).collect();
    bench.npy("a.npy", &[12, 6, 5], &values);
    bench.npy("b.npy", &[12, 6, 5], &values.iter().map(|x| x * x - 0.3 * x).collect::<Vec<_>>());
    let mut inside = vec![1.0; 30];
    inside[7] = 0.0;
    bench.npy("mask.npy", &[6, 5], &inside);
    std::fs::create_dir(bench.path("elsewhere")).unwrap();
    for name in ["a.npy", "b.npy", "mask.npy"] {
        bench.write(&format!("elsewhere/{name}"), bench.bytes(name));
    }
    bench.write("edges.csv", (0..4).map(|i| format!("{i},{}\n", i + 1)).collect::<String>());
    bench.write("elsewhere/edges.csv", bench.bytes("edges.csv"));
    let fit = |seed: u32, place: &str| {
        bench.ok(&format!(
            "fit {place}a.npy {place}b.npy --mask {place}mask.npy --structure \"path x graph({place}edges.csv)\" --scale --center site --sweeps 12 --burn-in 4 --thin 2 --seed {seed} --out run{seed} --quiet"
        ));
    };
    fit(1, "");
    fit(2, "elsewhere/");
    bench.ok("merge run1 run2 --out both --quiet");
    for name in ["mask.npy", "eigenvalues.csv"] {
        assert!(bench.bytes(&format!("both/{name}")) == bench.bytes(&format!("run1/{name}")), "{name}");
    }
    for name in ["synchrony.tsv", "weights_a.tsv", "activation_b.tsv"] {
        assert!(bench.bytes(&format!("both/chain-1/{name}")) == bench.bytes(&format!("run1/{name}")), "{name}");
    }
    for name in ["synchrony.tsv", "weights_a.tsv", "features.npy"] {
        assert!(bench.bytes(&format!("both/chain-2/{name}")) == bench.bytes(&format!("run2/{name}")), "{name}");
    }
    assert_eq!(table(&bench, "both/chain-1", 5), table(&bench, "run1", 5));
    // The merged run keeps the graph's decomposition.
    std::fs::remove_file(bench.path("edges.csv")).unwrap();
    for run in ["run1", "run2", "both"] {
        bench.ok(&format!("resume {run} --sweeps +6 --quiet"));
    }
    assert_eq!(rows(&bench, "both", 1), rows(&bench, "run1", 1));
    assert_eq!(rows(&bench, "both/chain-2", 2), rows(&bench, "run2", 1));
    inside[8] = 0.0;
    bench.npy("mask.npy", &[6, 5], &inside);
    bench.write("edges.csv", bench.bytes("elsewhere/edges.csv"));
    fit(3, "");
    let error = bench.fails(2, "merge run1 run3 --out no");
    assert!(error.contains("run1 and run3") && error.contains("record.mask_checksum"), "{error}");
}

#[test]
fn runs_that_do_not_belong_together_are_refused() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --seed 1 --out one"));
    bench.ok(&format!("{FIT} --seed 2 --out two"));
    let refused = |arguments: &str, words: &[&str]| {
        let error = bench.fails(2, &format!("merge {arguments}"));
        words.iter().for_each(|word| assert!(error.contains(word), "merge {arguments}: '{word}' in {error}"));
    };
    refused("--out all", &["RUN"]);
    refused("one --out all", &["only one", "two runs or more"]);
    refused("one two ./one --out all", &["one and ./one are the same folder"]);
    refused("one sim --out all", &["sim is not a run folder", "config.toml"]);
    refused("one nowhere --out all", &["nowhere is not a run folder"]);
    refused("one two --out two", &["--out two", "choose another --out"]);
    refused("one two --out two --overwrite", &["--out two", "choose another --out"]);
    refused("one two --out one/figures/all", &["--out one/figures/all"]);
    std::os::unix::fs::symlink(bench.path("one"), bench.path("link")).unwrap();
    refused("one link --out all", &["one and link are the same folder"]);
    refused("one two --out link/new/all", &["--out link/new/all"]);

    for (name, options, words) in [
        ("longer", "--seed 4 --burn-in 12", ["one and longer", "burn-in is 10 in the first, but 12 in the second"]),
        ("curved", "--seed 4 --curve q^2", ["different settings: curve", "q^2"]),
        ("fewer", "--seed 4 --keep-draws 3", ["keep-draws is 4", "but 3"]),
        ("wide", "--seed 4 --precision f64", ["precision", "f64"]),
        ("shaped", "--seed 4 --structure \"cycle x path\"", ["structure", "cycle(12) x path(10)"]),
        ("prior", "--seed 4 --noise-prior 2,3", ["priors.noise is not set", "[2.0, 3.0]"]),
        ("tailed", "--seed 4 --weights student", ["priors.weight_tails is not set", "4.0"]),
        ("same", "--seed 1", ["one and same have the same seed", "another --seed"]),
    ] {
        let fit = FIT.replace("--burn-in 10 ", if options.contains("burn-in") { "" } else { "--burn-in 10 " });
        let fit = fit.replace("--keep-draws 4 ", if options.contains("keep-draws") { "" } else { "--keep-draws 4 " });
        bench.ok(&format!("{fit} {options} --out {name}"));
        refused(&format!("one {name} --out all"), &[name, words[0], words[1]]);
    }
    bench.ok(&format!("{} --seed 4 --out unheld", FIT.replace("--heldout sim/heldout.npy ", "")));
    refused("one unheld --out all", &["one and unheld", "heldout", "none"]);
    bench.ok("simulate --seed 6 --rows 80 --grid 12x10 --features 3 --density 0.3 --theta 1,10 --out sim2");
    bench.ok(&format!("{} --seed 4 --out others", FIT.replace("sim/observations.npy", "sim2/observations.npy")));
    refused("one others --out all", &["one and others are runs of different data", "sim2/observations.npy (checksum"]);

    bench.ok("resume two --sweeps +4 --quiet");
    refused("one two --out all", &["one stands at sweep 30", "two at sweep 34", "issfa resume one --sweeps 34"]);
    bench.ok("resume one --sweeps 34 --quiet");
    assert!(!bench.path("all").exists(), "nothing was made");

    let config = String::from_utf8(bench.bytes("two/config.toml")).unwrap();
    bench.edit_config("two", |text| text.replace("chains = 1", "chains = 2"));
    refused("one two --out all", &["two/chain-2 at sweep 0", "issfa resume two --sweeps 34"]);
    bench.write("two/config.toml", &config);

    let state = bench.bytes("two/checkpoint/state.safetensors");
    bench.write("two/checkpoint/state.safetensors", &state[..state.len() / 2]);
    refused("one two --out all", &["two/checkpoint/state.safetensors", "damaged"]);
    std::fs::remove_file(bench.path("two/checkpoint/state.safetensors")).unwrap();
    refused("one two --out all", &["two is not a run folder with a checkpoint"]);
    bench.write("two/checkpoint/state.safetensors", state);
    assert!(!bench.path("all").exists(), "nothing was made");

    bench.ok("merge one two --out all --quiet");
    refused("one two --out all", &["all exists already", "--overwrite"]);
    bench.ok("merge one two --out all --overwrite --quiet");
    bench.write("all/notes.txt", "mine");
    refused("one two --out all --overwrite", &["notes.txt"]);
    assert!(bench.ok("merge --help").contains("issfa merge one two --out both"));
}
