//! New rows with the features integrated out: the ratio against dense matrices, the law against integrals, and its invariance.

mod common;

use common::*;
use issfa::lab::kernels::features::conditional_means;
use issfa::lab::kernels::shared_activations::{Change, NewRow};
use issfa::lab::model::log_joint::{ln_normal_density, ln_student_density};
use issfa::lab::model::{Entry, Loadings, Model, Priors, State, WeightMeanPrior, simulate};
use issfa::lab::rng::{Stream, Streams};
use issfa::lab::spectral::load::Loaded;
use issfa::lab::spectral::{Domain, FeatureSpectra, SpectralData};
use issfa::new_rows::scatter::{Scatter, UncertainRow};
use issfa::new_rows::{Effort, Known, all_of, feature_terms, infer};
use issfa::selftest::threshold;
use rand::RngExt;
use std::f64::consts::PI;

const FALSE_ALARM_RATE: f64 = 1e-3;

fn scatter_of(model: &Model<f64>, state: &State<f64>) -> Scatter<f64> {
    Scatter::new(state, &model.spectrum.precisions(&state.theta()))
}

/// `ln N(x; mean, variance)` summed over modes.
fn ln_normal(x: &[f64], mean: &[f64], variance: impl Fn(usize) -> f64) -> f64 {
    let at = |v: usize| -0.5 * ((2.0 * PI * variance(v)).ln() + (x[v] - mean[v]).powi(2) / variance(v));
    (0..x.len()).map(at).sum()
}

/// `w m` of one row.
fn explained(entries: &[Entry], means: &FeatureSpectra<f64>) -> Vec<f64> {
    let mut sum = vec![0.0; means.tiles().n_modes];
    for entry in entries {
        sum.iter_mut().zip(means.feature(entry.feature)).for_each(|(x, s)| *x += entry.weight * s);
    }
    sum
}

/// `ln p(Y)` of some rows given their loadings, features integrated out, with a dense covariance of the rows at each mode.
fn ln_marginal(data: &[Vec<f64>], loadings: &Loadings, noise: f64, precisions: &[f64]) -> f64 {
    let (n, k, dense) = (data.len(), loadings.n_features(), dense_loadings(loadings));
    let products = |a: usize, b: usize| dot(&dense[a * k..(a + 1) * k], &dense[b * k..(b + 1) * k]);
    let at_mode = |(v, h): (usize, &f64)| {
        let entry = |at: usize| products(at / n, at % n) / h + if at / n == at % n { noise } else { 0.0 };
        let covariance: Vec<f64> = (0..n * n).map(entry).collect();
        let column: Vec<f64> = data.iter().map(|row| row[v]).collect();
        ln_normal_dense(&column, &vec![0.0; n], &covariance)
    };
    precisions.iter().enumerate().map(at_mode).sum()
}

/// A state, its data, and a new row with random loadings, for any numbers of rows and features.
fn random_case(n_rows: usize, k: usize, seed: u64) -> (Model<f64>, State<f64>, Vec<f64>, Vec<Entry>) {
    let (spectrum, mut stream) = (spectrum("path(17) x path(17)", "q"), stream(seed, 3));
    let priors = priors(spectrum.n_parameters(), NORMAL_MEAN);
    let mut state = State::empty(n_rows, spectrum.n_modes(), spectrum.n_parameters());
    state.loadings = random_loadings(n_rows, k, &mut stream);
    state.noise_variance = 0.3 + stream.random::<f64>();
    state.ln_theta = normals(2, &mut stream);
    let precisions = spectrum.precisions(&state.theta());
    for feature in 0..k {
        state.features.push(&simulate::feature_spectrum(&precisions, &mut stream));
        state.feature_ids.push(feature as u64 + 1);
        state.weight_means.push(0.0);
        state.weight_precisions.push(1.0);
    }
    let data = simulate::data_given_state(&state, &mut stream);
    let row = normals(spectrum.n_modes(), &mut stream);
    let mut entries = random_loadings(1, k, &mut stream).row(0).to_vec();
    if entries.is_empty() {
        entries.push(Entry { feature: 0, weight: 0.7 });
    }
    (Model::new(data, spectrum, priors), state, row, entries)
}

/// With the ratio, the law of a new row given the means is its law given the training rows: that of all rows over that of the
/// training rows. After changes the ratio is that of the new weights.
#[test]
fn the_ratio_makes_the_law_given_means_that_given_the_training_rows() {
    for (n_rows, k, seed) in [(5, 1, 1), (6, 4, 2), (3, 6, 3), (9, 5, 4)] {
        let (model, state, row, entries) = random_case(n_rows, k, seed);
        let (means, scatter) = (conditional_means(&model, &state), scatter_of(&model, &state));
        let precisions = model.spectrum.precisions(&state.theta());
        let training: Vec<Vec<f64>> = (0..n_rows).map(|t| model.data.row(t)).collect();
        let noise = state.noise_variance;
        let exact = |entries: &[Entry]| {
            let rows = |last: &[&[Entry]]| {
                let all = state.loadings.rows().iter().cloned().chain(last.iter().map(|row| row.to_vec()));
                Loadings::from_rows(all.collect(), k)
            };
            let together = [training.clone(), vec![row.clone()]].concat();
            ln_marginal(&together, &rows(&[entries]), noise, &precisions)
                - ln_marginal(&training, &rows(&[]), noise, &precisions)
        };
        let found =
            |entries: &[Entry], ln_ratio: f64| ln_normal(&row, &explained(entries, &means), |_| noise) + ln_ratio;
        let mut uncertain = UncertainRow::new(&scatter, &means, row.clone(), &entries);
        let size = exact(&entries).abs();
        assert_close(found(&entries, uncertain.ln_ratio()), exact(&entries), 1e-9, size, "at the start");
        let (mut stream, mut weights) = (stream(seed, 4), vec![0.0; k]);
        entries.iter().for_each(|entry| weights[entry.feature] = entry.weight);
        let mut n_accepted = 0;
        for step in 0..40 {
            let (feature, new) = (step % k, if step % 3 == 0 { 0.0 } else { 0.3 * simulate::normal(&mut stream) });
            if uncertain.accept(Change { feature, old: weights[feature], new }, &mut stream) {
                weights[feature] = new;
                n_accepted += 1;
            }
        }
        assert!(n_accepted > 0);
        let used = (0..k).filter(|&j| weights[j] != 0.0).map(|feature| Entry { feature, weight: weights[feature] });
        let used: Vec<Entry> = used.collect();
        assert_close(found(&used, uncertain.ln_ratio()), exact(&used), 1e-9, size, "after changes");
    }
}

/// What a row tells of the features it uses is their mean given all rows less that given the training rows, for all of them
/// and for some.
#[test]
fn what_a_row_tells_of_features_is_the_change_of_their_means() {
    for (n_rows, k, seed) in [(6, 4, 5), (3, 6, 6)] {
        let (model, state, row, entries) = random_case(n_rows, k, seed);
        let (means, scatter) = (conditional_means(&model, &state), scatter_of(&model, &state));
        let rows = state.loadings.rows().iter().cloned().chain([entries.clone()]).collect();
        let together = Loadings::from_rows(rows, k);
        let uncertain = UncertainRow::new(&scatter, &means, row.clone(), &entries);
        for left_out in [vec![], (0..k).map(|j| j == entries[0].feature).collect()] {
            let mut told = vec![0.0; row.len()];
            uncertain.add_told(0.5, &entries, &left_out, &mut told);
            for (v, h) in model.spectrum.precisions(&state.theta()).iter().enumerate() {
                let training: Vec<f64> = (0..n_rows).map(|t| model.data.row(t)[v]).collect();
                let all = [&training[..], &row[v..v + 1]].concat();
                let noise = state.noise_variance;
                let (before, covariance) = dense_feature_conditional(&state.loadings, &training, noise, *h);
                let (after, _) = dense_feature_conditional(&together, &all, noise, *h);
                let shown = entries.iter().filter(|entry| !left_out.get(entry.feature).unwrap_or(&false));
                let change: f64 = shown.map(|e| e.weight * (after[e.feature] - before[e.feature])).sum();
                assert_close(2.0 * told[v], change, 1e-8, 1.0, "told");
                let weights = dense_loadings(&Loadings::from_rows(vec![entries.clone()], k));
                let variance = dot(&weights, &apply(&covariance, &weights));
                assert_close(scatter.variance_of(&entries)[v], variance, 1e-9, 1.0, "variance");
            }
        }
    }
}

/// The law of one new row under two features: expectations by integration over a grid, with dense matrices.
struct Integrals {
    activation: [f64; 2],
    weights: [f64; 2],
    told: Vec<f64>,
}

fn integrate(model: &Model<f64>, state: &State<f64>, row: &[f64]) -> Integrals {
    const POINTS: usize = 600;
    let precisions = model.spectrum.precisions(&state.theta());
    let noise = state.noise_variance;
    let at_modes: Vec<(Vec<f64>, Vec<f64>)> = (0..row.len())
        .map(|v| {
            let training: Vec<f64> = (0..model.data.n_rows()).map(|t| model.data.row(t)[v]).collect();
            dense_feature_conditional(&state.loadings, &training, noise, precisions[v])
        })
        .collect();
    let terms = feature_terms(state, model.priors.weight_tails, &[0.0; 2]);
    // Where a feature is not used there is one point, of weight 0; where it is, a grid over the prior.
    let points = |feature: usize| -> Vec<(bool, f64, f64)> {
        let (prior, ln_odds) =
            (terms[feature].weight, terms[feature].ln_prior_odds.expect("existing features have odds"));
        let sd = prior.precision.sqrt().recip();
        let reach = if model.priors.weight_tails.is_some() { 20.0 } else { 7.0 };
        let step = 2.0 * reach / POINTS as f64;
        let used = (0..POINTS).map(|at| {
            let weight = prior.mean + sd * (-reach + (at as f64 + 0.5) * step);
            let ln_density = match model.priors.weight_tails {
                None => ln_normal_density(weight, prior),
                Some(tails) => ln_student_density(weight, prior, tails),
            };
            (true, weight, ln_odds + ln_density + (sd * step).ln())
        });
        std::iter::once((false, 0.0, 0.0)).chain(used).collect()
    };
    let mut sums = Integrals { activation: [0.0; 2], weights: [0.0; 2], told: vec![0.0; row.len()] };
    let mut total = 0.0;
    for first in points(0) {
        for second in points(1) {
            let w = [first.1, second.1];
            let mut ln_weight = first.2 + second.2;
            let mut told = vec![0.0; row.len()];
            for (v, (means, covariance)) in at_modes.iter().enumerate() {
                let (q, residual) = (dot(&w, &apply(covariance, &w)), row[v] - dot(&w, means));
                ln_weight -= 0.5 * ((2.0 * PI * (noise + q)).ln() + residual.powi(2) / (noise + q));
                told[v] = residual * q / (noise + q);
            }
            let weight = ln_weight.exp();
            total += weight;
            for (k, point) in [first, second].iter().enumerate() {
                sums.activation[k] += weight * f64::from(u8::from(point.0));
                sums.weights[k] += weight * point.1;
            }
            sums.told.iter_mut().zip(&told).for_each(|(sum, x)| *sum += weight * x);
        }
    }
    sums.activation.iter_mut().chain(&mut sums.weights).chain(&mut sums.told).for_each(|sum| *sum /= total);
    sums
}

/// Three training rows, two features, eight modes, and a row that may use either of them, or none.
fn tiny_case(weight_tails: Option<f64>) -> (Model<f64>, State<f64>, Vec<f64>) {
    let (spectrum, mut stream) = (spectrum("path(8)", "q"), stream(11, 0));
    let priors = Priors { weight_tails, ..priors(spectrum.n_parameters(), WeightMeanPrior::Fixed(0.5)) };
    let mut state = State::empty(3, 8, 2);
    let entry = |feature, weight| Entry { feature, weight };
    let rows = vec![vec![entry(0, 1.0)], vec![entry(0, 0.8), entry(1, 1.1)], vec![entry(1, -0.9)]];
    state.loadings = Loadings::from_rows(rows, 2);
    (state.noise_variance, state.ln_theta, state.ibp_repulsion) = (0.3, vec![-1.5, -0.5], 0.8);
    (state.weight_means, state.weight_precisions) = (vec![0.5, -0.3], vec![1.5, 1.0]);
    let precisions = spectrum.precisions(&state.theta());
    for id in 1..=2 {
        state.features.push(&simulate::feature_spectrum(&precisions, &mut stream));
        state.feature_ids.push(id);
    }
    let data = simulate::data_given_state(&state, &mut stream);
    let new = State { loadings: Loadings::from_rows(vec![vec![entry(0, 0.5), entry(1, -0.5)]], 2), ..state.clone() };
    let row = simulate::data_given_state(&new, &mut stream).row(0);
    (Model::new(data, spectrum, priors), state, row)
}

/// Many copies of one row, each with a chain of its own, against the integrals; and rows that take features at their means,
/// which must not agree.
#[test]
fn the_law_of_a_row_is_that_of_the_integrals() {
    compare_with_integrals(None);
}

#[test]
fn the_law_of_a_row_with_student_weights_is_that_of_the_integrals() {
    compare_with_integrals(Some(2.0));
}

fn compare_with_integrals(weight_tails: Option<f64>) {
    const COPIES: usize = 400;
    let (model, state, row) = tiny_case(weight_tails);
    let exact = integrate(&model, &state, &row);
    let copies = Loaded {
        data: SpectralData::from_rows(&vec![row.clone(); COPIES]),
        domain: Domain::Modes,
        row_means: Vec::new(),
    };
    let (means, scatter) = (conditional_means(&model, &state), scatter_of(&model, &state));
    let worst = |scatter: Option<&Scatter<f64>>| {
        let known = Known { state: &state, tails: model.priors.weight_tails, means: &means, scatter, left_out: &[] };
        let streams = Streams { seed: 3, chain: 1, sweep: 1 };
        let effort = Effort { sweeps: 1500, dropped: 300 };
        let (rows, _) = infer(&copies, &known, effort, &streams, &all_of(&copies));
        let mut comparisons = Vec::new();
        for k in 0..2 {
            comparisons.push((exact.activation[k], rows.iter().map(|row| row.activation[k]).collect::<Vec<_>>()));
            comparisons.push((exact.weights[k], rows.iter().map(|row| row.weights[k]).collect()));
        }
        for v in (0..row.len()).filter(|_| scatter.is_some()) {
            comparisons.push((exact.told[v], rows.iter().map(|row| row.told[v]).collect()));
        }
        let limit = threshold(comparisons.len(), FALSE_ALARM_RATE);
        let z = comparisons.iter().map(|(exact, found)| {
            let (mean, error) = mean_and_error(found, COPIES);
            println!("exact {exact:9.5} found {mean:9.5} +- {error:.5}");
            ((mean - exact) / error).abs()
        });
        (z.fold(0.0, f64::max), limit)
    };
    let (found, limit) = worst(Some(&scatter));
    assert!(found < limit, "off by {found:.2} standard errors, limit {limit:.2}");
    let (found, limit) = worst(None);
    assert!(found > 3.0 * limit, "features at their means should be seen to differ: {found:.2} standard errors");
}

/// What does not depend on the features, which are integrated out, of a new row and its weights.
fn statistics(state: &State<f64>, row: &[f64], means: &FeatureSpectra<f64>, q: &[f64], entries: &[Entry]) -> Vec<f64> {
    let sum = |of: &dyn Fn(&Entry) -> f64| entries.iter().map(of).sum::<f64>();
    let explained = explained(entries, means);
    let residual: f64 = row.iter().zip(&explained).map(|(y, x)| (y - x).powi(2)).sum::<f64>() / state.noise_variance;
    let active = entries.len() as f64;
    vec![
        active,
        sum(&|entry| entry.weight),
        sum(&|entry| entry.weight.powi(2)),
        sum(&|entry| {
            state.weight_precisions[entry.feature] * (entry.weight - state.weight_means[entry.feature]).powi(2)
        }),
        dot(row, &explained).clamp(-50.0, 50.0),
        residual.ln(),
        (q.iter().sum::<f64>() / state.noise_variance).ln_1p(),
        active * residual.ln(),
        active * state.noise_variance.ln(),
    ]
}

/// A new row under the features of a state: each used with probability `m_k / (T + beta)`.
fn draw_new_row(state: &State<f64>, tails: Option<f64>, stream: &mut Stream) -> (Vec<Entry>, Vec<f64>) {
    let k = state.n_features();
    let size = state.loadings.n_rows() as f64 + state.ibp_repulsion;
    let mut entries = Vec::new();
    for feature in 0..k {
        if stream.random::<f64>() * size < state.loadings.counts()[feature] as f64 {
            let precision = state.weight_precisions[feature] * simulate::local_precision(tails, stream);
            let weight = simulate::normal(stream) / precision.sqrt();
            entries.push(Entry { feature, weight: state.weight_means[feature] + weight });
        }
    }
    let loadings = Loadings::from_rows(vec![entries.clone()], k);
    let row = simulate::data_given_state(&State { loadings, ..state.clone() }, stream).row(0);
    (entries, row)
}

/// State, data, and a new row with its weights from the model: an update of the weights leaves the law of all of it as it was;
/// one that takes the features at their means does not.
#[test]
fn updates_leave_the_law_of_new_rows_unchanged() {
    check_updates(None);
}

#[test]
fn updates_leave_the_law_of_new_rows_with_student_weights_unchanged() {
    check_updates(Some(4.0));
}

fn check_updates(weight_tails: Option<f64>) {
    let n_repeats = if std::env::var_os("ISSFA_SLOW").is_some() { 1_000_000 } else { 60_000 };
    let spectrum = spectrum("path(6)", "q");
    let priors = Priors { weight_tails, ..priors(spectrum.n_parameters(), NORMAL_MEAN) };
    // Sums and sums of squares of changes: features integrated out, and at their means.
    let mut sums = [vec![[0.0; 2]; 9], vec![[0.0; 2]; 9]];
    for repeat in 0..n_repeats {
        let (model, state) = draw_case(4, &spectrum, &priors, 1000 + repeat);
        let mut stream = stream(repeat, 5);
        let (entries, row) = draw_new_row(&state, weight_tails, &mut stream);
        let (k, means, scatter) = (state.n_features(), conditional_means(&model, &state), scatter_of(&model, &state));
        let spectra = spectra(&means);
        let gram: Vec<f64> = (0..k * k).map(|at| dot(&spectra[at / k], &spectra[at % k])).collect();
        let with_data: Vec<f64> = spectra.iter().map(|feature| dot(feature, &row)).collect();
        let norms: Vec<f64> = (0..k).map(|j| gram[j * k + j]).collect();
        let terms = feature_terms(&state, model.priors.weight_tails, &norms);
        let of = |entries: &[Entry]| statistics(&state, &row, &means, &scatter.variance_of(entries), entries);
        let before = of(&entries);
        let mut uncertain = UncertainRow::new(&scatter, &means, row.clone(), &entries);
        let [mut exact, mut at_means] = [(); 2].map(|_| NewRow::new(&terms, &with_data, &gram, &entries));
        for _ in 0..3 {
            exact.update_if(&mut stream, |change, stream| uncertain.accept(change, stream));
            at_means.update(&mut stream);
        }
        for (sums, after) in sums.iter_mut().zip([exact, at_means]) {
            for ((sum, after), before) in sums.iter_mut().zip(of(after.entries())).zip(&before) {
                sum[0] += after - before;
                sum[1] += (after - before).powi(2);
            }
        }
    }
    let n = n_repeats as f64;
    let limit = threshold(9, FALSE_ALARM_RATE);
    let [exact, at_means] = sums.map(|sums| {
        let z = sums.iter().map(|[sum, squares]| sum / n / ((squares / n - (sum / n).powi(2)) / n).sqrt());
        z.collect::<Vec<f64>>()
    });
    println!("integrated out {exact:.2?}\nat their means {at_means:.2?}, limit {limit:.2}");
    assert!(exact.iter().all(|z| z.abs() < limit), "{exact:.2?}");
    assert!(at_means.iter().any(|z| z.abs() > 3.0 * limit), "the test should see {at_means:.2?}");
}
