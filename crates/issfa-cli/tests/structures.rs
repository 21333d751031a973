//! Structures through the real binary: every command, graphs from files, what is refused.

mod common;
use common::Bench;

const SHORT: &str = "--sweeps 40 --burn-in 20 --thin 2 --seed 1 --quiet";

/// Four groups of four sites, each fully connected, in a ring.
fn write_ring(bench: &Bench, name: &str) {
    let inside = (0..4).flat_map(|g| (0..4).flat_map(move |i| (0..i).map(move |j| (4 * g + i, 4 * g + j, 1.0))));
    let between = (0..4).map(|g| (4 * g, (4 * g + 5) % 16, 0.5));
    let lines: String = inside.chain(between).map(|(i, j, weight)| format!("{i},{j},{weight}\n")).collect();
    bench.write(name, format!("i,j,weight\n{lines}"));
}

#[test]
fn every_structure_is_simulated_fitted_and_evaluated() {
    let bench = Bench::empty();
    write_ring(&bench, "ring.csv");
    bench.write("levels.csv", "1\n2\n3\n");
    let cases = [
        ("cycle(30)", "q"),
        ("groups(8,8,5,11)", "q"),
        ("wavelet(30,haar)", "q"),
        ("wavelet(8,d4,levels=levels.csv) x cycle(4)", "q"),
        ("graph(ring.csv) x path(3)", "q"),
        ("groups(3,4) x path(5)", "q^2 + q"),
        ("cycle(6) x path(3) x path(2)", "axes"),
        ("cycle(24)", "q^2 + q'"),
    ];
    for (structure, curve) in cases {
        let options = format!("--structure \"{structure}\" --curve \"{curve}\"");
        bench.ok(&format!(
            "simulate {options} --rows 60 --heldout-rows 10 --features 2 --density 0.4 --seed 3 --out sim --overwrite"
        ));
        bench.ok(&format!("fit sim/observations.npy --noise white {options} {SHORT} --out run --overwrite"));
        let report = bench.json("evaluate run --truth sim --json");
        assert_eq!(report["n_found"], 2, "{structure} {curve}: {report}");
        bench.ok("transform run sim/heldout.npy --out new --overwrite");
        let hidden = bench.json("evaluate run --data sim/heldout.npy --hide 0.2 --seed 1 --json");
        // Hidden cells hold noise of variance 1, whose mean square over n cells has sd sqrt(2/n); the rest is our error.
        let number = |name: &str| hidden[name].as_f64().expect("a number");
        let limit = 1.2 + 4.0 * (2.0 / number("n_hidden")).sqrt();
        assert!(number("hidden_cell_error") < limit, "{structure}: {hidden}");
        bench.ok(&format!("prior-sample {options} --count 3 --out prior --overwrite"));
        bench.ok(&format!("structure show \"{structure}\" --curve \"{curve}\" --out shown"));
        assert!(bench.path("shown/eigenvectors.png").is_file() && bench.path("prior/prior_samples.png").is_file());
        assert!(!bench.ok("summary run").contains("NaN"));
    }
}

#[test]
fn a_run_keeps_its_graph() {
    let bench = Bench::empty();
    write_ring(&bench, "ring.csv");
    let options = "--structure \"graph(ring.csv) x path(3)\"";
    bench.ok(&format!("simulate {options} --rows 40 --heldout-rows 5 --features 2 --density 0.4 --out sim"));
    bench.ok(&format!("fit sim/observations.npy {options} {SHORT} --out whole"));
    let short = SHORT.replace("--sweeps 40", "--sweeps 30");
    bench.ok(&format!("fit sim/observations.npy {options} {short} --out run"));
    let stored: Vec<_> =
        std::fs::read_dir(bench.path("run/structure")).unwrap().map(|e| e.unwrap().file_name()).collect();
    let name = stored[0].to_string_lossy().into_owned();
    assert!(stored.len() == 1 && name.starts_with("graph-") && name.ends_with("-16.safetensors"), "{stored:?}");
    // The run does not need the file any more, wherever it is and whatever has become of it.
    std::fs::remove_file(bench.path("ring.csv")).unwrap();
    std::fs::rename(bench.path("run"), bench.path("moved")).unwrap();
    bench.ok("resume moved --sweeps 40 --quiet");
    assert_eq!(bench.trace("moved"), bench.trace("whole"));
    assert_eq!(bench.bytes("moved/features.npy"), bench.bytes("whole/features.npy"));
    bench.ok("transform moved sim/heldout.npy --out new");
    bench.ok("evaluate moved --truth sim --json");
    // A new fit does.
    assert!(bench.fails(2, &format!("fit sim/observations.npy {options} {SHORT} --out other")).contains("ring.csv"));
}

#[test]
fn what_is_refused_is_named() {
    let bench = Bench::empty();
    bench.npy("data.npy", &[5, 396], &vec![0.5; 5 * 396]);
    let fit = |structure: &str| format!("fit data.npy --structure \"{structure}\" {SHORT} --out run");
    let error = bench.fails(2, &fit("cycle(12) x pth(33)"));
    assert!(error.contains("'pth'") && error.contains("cycle or cycle(n)"), "{error}");
    let lines: Vec<&str> = error.lines().collect();
    let (text, caret) = (lines[lines.len() - 2], lines[lines.len() - 1]);
    assert_eq!(text.find("pth"), caret.find('^'), "the caret points at the word:\n{error}");
    let error = bench.fails(2, &fit("cycle(12) x path(34)"));
    assert!(error.contains("408") && error.contains("396"), "{error}");
    let error = bench.fails(2, &fit("graph(nowhere.csv)"));
    assert!(error.contains("nowhere.csv"), "{error}");
    bench.write("skew.csv", "2,-1,0,0\n-1,2,0,0\n0,0,1,0\n0,0.25,0,1\n");
    let error = bench.fails(2, &fit("graph(skew.csv)"));
    assert!(error.contains("skew.csv") && error.contains("0.25") && error.contains("symmetric"), "{error}");
    bench.write("negative.csv", "1,2,0,0\n2,1,0,0\n0,0,1,0\n0,0,0,1\n");
    let error = bench.fails(2, &fit("graph(negative.csv)"));
    assert!(error.contains("semi-definite") && error.contains("-1.0"), "{error}");
    assert!(!bench.path("run").exists(), "nothing was made");
    let error = bench.fails(2, "prior-sample --structure \"iid(5)\" --theta 1,2 --out prior");
    assert!(error.contains("give 1 positive number: ridge"), "{error}");
    bench.write("notes.txt", "mine");
    std::fs::create_dir(bench.path("structure")).unwrap();
    bench.write("structure/notes.txt", "mine");
    assert!(bench.fails(2, "structure show \"path(8)\"").contains("--overwrite"));
    assert!(bench.fails(2, "structure show \"path(8)\" --overwrite").contains("notes.txt"));
    assert_eq!(bench.bytes("structure/notes.txt"), b"mine");
}
