//! Long chains against posteriors known exactly: enumerated activations, and the prior where data say nothing.

mod common;

use common::*;
use issfa::lab::kernels::{Kernel, Phase, Turn};
use issfa::lab::model::{GammaPrior, Model, State, WeightMeanPrior, ibp};
use issfa::lab::rng::Streams;
use issfa::lab::spectral::{Projections, SpectralData};
use issfa::selftest::threshold;
use statrs::function::gamma::ln_gamma;
use std::collections::HashMap;

const KERNELS: [Kernel; 3] = [Kernel::Features, Kernel::SharedActivations, Kernel::UniqueFeatures];
const BATCHES: usize = 200;
const FALSE_ALARM_RATE: f64 = 1e-3;

/// Runs the kernels that change features and activations, everything else fixed, and notes `summary` each sweep.
fn run_chain<T>(
    model: &Model<f64>,
    mut state: State<f64>,
    seed: u64,
    n_sweeps: u64,
    summary: impl Fn(&State<f64>) -> T,
) -> Vec<T> {
    let burn_in = n_sweeps / 100;
    let mut projections = Projections::default();
    let mut notes = Vec::with_capacity(n_sweeps as usize);
    for sweep in 0..burn_in + n_sweeps {
        let turn = Turn { streams: Streams { seed, chain: 0, sweep }, phase: Phase::Sampling };
        for kernel in KERNELS {
            kernel.update(model, &mut state, &mut projections, &turn);
        }
        if sweep >= burn_in {
            notes.push(summary(&state));
        }
    }
    notes
}

/// Compares means of series with their exact values, by batch means.
fn check(comparisons: &[(String, f64, Vec<f64>)]) {
    let limit = threshold(comparisons.len(), FALSE_ALARM_RATE);
    let mut worst = ("nothing", 0.0_f64);
    for (name, exact, series) in comparisons {
        let (mean, error) = mean_and_error(series, BATCHES);
        let z = (mean - exact) / error;
        println!("{name:28} exact {exact:.5} found {mean:.5} +- {error:.5}, {z:6.2} standard errors");
        if z.is_nan() || z.abs() > worst.1.abs() {
            worst = (name, z);
        }
    }
    assert!(
        worst.1.abs() < limit,
        "{} is off by {:.2} standard errors; {} correct ones pass {limit:.2} with probability {FALSE_ALARM_RATE}",
        worst.0,
        worst.1,
        comparisons.len()
    );
}

/// How many features only the first of two rows uses, only the second, and both.
type Patterns = [usize; 3];

fn patterns(state: &State<f64>) -> Patterns {
    let mut users = vec![0; state.n_features()];
    for (row, entries) in state.loadings.rows().iter().enumerate() {
        entries.iter().for_each(|entry| users[entry.feature] += 1 << row);
    }
    [1, 2, 3].map(|pattern| users.iter().filter(|&&user| user == pattern).count())
}

/// `P(n) prod_v N(y_v; 0, s2 I + Z Z'/h_v)` for all counts below a maximum, normalised.
fn enumerate(model: &Model<f64>, state: &State<f64>) -> HashMap<Patterns, f64> {
    const MAXIMUM: usize = 20;
    let weight = |count| ibp::ln_column_weight(count, 2, state.ibp_repulsion);
    let ln_rate = |count| (state.ibp_strength * state.ibp_repulsion).ln() + weight(count);
    let precisions = model.spectrum.precisions(&state.theta());
    let data = [model.data.row(0), model.data.row(1)];
    let ln_weight = |counts: Patterns| {
        let [first, second, both] = counts.map(|n| n as f64);
        let prior = (first + second) * ln_rate(1) + both * ln_rate(2)
            - counts.iter().map(|&n| ln_gamma(n as f64 + 1.0)).sum::<f64>();
        let at_mode = |(mode, h): (usize, &f64)| {
            let noise = state.noise_variance;
            let covariance = [noise + (first + both) / h, both / h, both / h, noise + (second + both) / h];
            ln_normal_dense(&[data[0][mode], data[1][mode]], &[0.0; 2], &covariance)
        };
        prior + precisions.iter().enumerate().map(at_mode).sum::<f64>()
    };
    let all = (0..MAXIMUM.pow(3)).map(|at| [at % MAXIMUM, at / MAXIMUM % MAXIMUM, at / MAXIMUM.pow(2)]);
    let weights: HashMap<Patterns, f64> = all.map(|counts| (counts, ln_weight(counts).exp())).collect();
    let total: f64 = weights.values().sum();
    weights.into_iter().map(|(counts, weight)| (counts, weight / total)).collect()
}

/// Weights are pinned at 1 (to a thousandth), so that the loadings are the activations.
fn check_enumeration(data: &[Vec<f64>; 2], noise_variance: f64, seed: u64) {
    let spectrum = spectrum("path(3)", "q");
    let mut priors = priors(spectrum.n_parameters(), WeightMeanPrior::Fixed(1.0));
    priors.weight_precision = GammaPrior { shape: 1e8, rate: 1e2 };
    let model = Model::new(SpectralData::from_rows(data), spectrum, priors);
    let mut state = State::empty(2, 3, 2);
    (state.noise_variance, state.ibp_strength, state.ibp_repulsion) = (noise_variance, 1.3, 0.8);
    state.ln_theta = vec![-0.5, 0.3];
    let exact = enumerate(&model, &state);
    let found = run_chain(&model, state, seed, 300_000, patterns);
    let mut common: Vec<(&Patterns, &f64)> = exact.iter().filter(|(_, probability)| **probability > 0.01).collect();
    common.sort_by(|a, b| b.1.total_cmp(a.1));
    let share: f64 = common.iter().map(|(_, probability)| **probability).sum();
    assert!(common.len() > 10 && share > 0.6, "{} patterns with {share:.2} of the mass", common.len());
    let mut comparisons: Vec<(String, f64, Vec<f64>)> = Vec::new();
    for (counts, &probability) in common {
        let series = found.iter().map(|found| f64::from(u8::from(found == counts))).collect();
        comparisons.push((format!("P{counts:?}"), probability, series));
    }
    for (at, name) in ["only the first row", "only the second row", "both rows"].iter().enumerate() {
        let mean = exact.iter().map(|(counts, probability)| counts[at] as f64 * probability).sum();
        comparisons.push((format!("mean of {name}"), mean, found.iter().map(|found| found[at] as f64).collect()));
    }
    check(&comparisons);
}

#[test]
fn activations_of_similar_rows_follow_the_enumerated_posterior() {
    check_enumeration(&[vec![1.9, -1.2, 0.5], vec![1.5, -0.9, -0.2]], 0.3, 1);
}

#[test]
fn activations_of_different_rows_follow_the_enumerated_posterior() {
    check_enumeration(&[vec![2.5, 0.7, 0.4], vec![-1.0, 0.8, -0.6]], 0.5, 2);
}

/// With noise beyond all data the number of features is Poisson with mean `alpha H_T(beta)`, and every row uses a
/// Poisson number with mean alpha.
#[test]
fn without_information_the_prior_comes_back() {
    let (n_rows, strength, repulsion) = (3, 1.4, 0.7);
    let spectrum = spectrum("path(2)", "q");
    let priors = priors(spectrum.n_parameters(), NORMAL_MEAN);
    let data = [vec![0.4, -1.0], vec![1.2, 0.3], vec![-0.5, 0.9]];
    let model = Model::new(SpectralData::from_rows(&data), spectrum, priors);
    let mut state = State::empty(n_rows, 2, 2);
    (state.noise_variance, state.ibp_strength, state.ibp_repulsion) = (1e12, strength, repulsion);
    let found = run_chain(&model, state, 3, 300_000, |state| {
        let lengths: Vec<usize> = state.loadings.rows().iter().map(Vec::len).collect();
        (state.n_features(), lengths, state.loadings.n_shared())
    });
    let mean = strength * ibp::expected_features_per_strength(n_rows, repulsion);
    let poisson = |k: usize| (k as f64 * mean.ln() - mean - ln_gamma(k as f64 + 1.0)).exp();
    let alone = n_rows as f64 * ibp::unique_rate(n_rows, strength, repulsion);
    let mut comparisons = vec![
        ("mean of K".to_string(), mean, found.iter().map(|found| found.0 as f64).collect::<Vec<_>>()),
        ("mean square of K".into(), mean + mean * mean, found.iter().map(|found| (found.0 * found.0) as f64).collect()),
        ("mean of shared features".into(), mean - alone, found.iter().map(|found| found.2 as f64).collect()),
    ];
    for row in 0..n_rows {
        let series = found.iter().map(|found| found.1[row] as f64).collect();
        comparisons.push((format!("features of row {row}"), strength, series));
    }
    for k in (0..20).filter(|&k| poisson(k) > 0.01) {
        let series = found.iter().map(|found| f64::from(u8::from(found.0 == k))).collect();
        comparisons.push((format!("P(K = {k})"), poisson(k), series));
    }
    check(&comparisons);
}
