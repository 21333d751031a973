//! What a newcomer types in the first hour: words of other programs, shapes that are probably not meant, files as they
//! come.

mod common;
use common::Bench;
use issfa::data::read::npy::read_npy_f32;

const SHORT: &str = "--sweeps 12 --burn-in 4 --thin 2";

#[test]
fn other_programs_words_for_the_number_of_components_lead_to_ours() {
    let bench = Bench::empty();
    for word in ["--n-components", "--n_components", "--components", "--K", "-k"] {
        let error = bench.fails(2, &format!("fit data.npy {word} 20 --out run"));
        assert!(error.contains(&format!("no {word}:")) && error.contains("--max-features N"), "{error}");
    }
    let error = bench.fails(2, "fit data.npy --nonsense 20 --out run");
    assert!(error.contains("--nonsense") && !error.contains("--max-features"), "{error}");
}

#[test]
fn a_run_is_asked_in_words_that_can_be_typed() {
    let bench = Bench::simulated();
    let output = bench.run(&format!("fit sim/observations.npy --center none --quiet {SHORT} --out run"));
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");

    let error = bench.fails(2, "evaluate run");
    assert!(error.contains("issfa evaluate run --data NEW --hide 0.2"), "{error}");
    assert!(error.contains("issfa evaluate run --truth SIM"), "{error}");

    let error = bench.fails(2, "resume run --sweeps 5");
    assert!(
        error.contains("12 of 12 are done") && error.contains("issfa resume run --sweeps +5 (17 in all)"),
        "{error}"
    );
    bench.ok("resume run --sweeps +5 --quiet");
    bench.ok("resume run --sweeps 18 --quiet");
}

#[test]
fn draws_of_features_are_those_of_the_means() {
    let bench = Bench::simulated();
    bench.ok("fit sim/observations.npy --grid 12x10 --noise white --quiet --seed 3 --sweeps 60 --out run");
    let said = bench.ok("draws run --out draws.npy");
    let (shape, draws) = read_npy_f32(&bench.path("draws.npy")).unwrap();
    let (of_means, means) = read_npy_f32(&bench.path("run/features.npy")).unwrap();
    assert_eq!((shape[0], &shape[1..]), (20, &of_means[..]), "{said}");
    let (k, n) = (of_means[0], of_means[1] * of_means[2]);
    assert!(k >= 2, "{k} features were found");
    let mut n_there = 0;
    for image in draws.chunks_exact(n).zip(means.chunks_exact(n).cycle()) {
        if image.0[0].is_nan() {
            assert!(image.0.iter().all(|x| x.is_nan()), "a draw has a feature or not");
            continue;
        }
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        assert!((dot(image.0, image.0) - 1.0).abs() < 1e-4, "of unit norm");
        assert!(dot(image.0, image.1) > 0.3, "like its mean, with its sign");
        n_there += 1;
    }
    assert!(2 * n_there >= 20 * k, "{n_there} of 20 x {k}");

    assert!(bench.fails(2, "draws run --out draws.npy").contains("--overwrite"));
    bench.ok("draws run --out draws.npy --overwrite --quiet");
    assert!(bench.fails(2, "draws run --out run").contains("is a folder"));
    assert!(bench.fails(2, "draws nowhere --out new.npy").contains("nowhere"));
    assert!(!bench.path("new.npy").exists());
}
