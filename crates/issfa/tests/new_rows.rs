//! New rows with the features integrated out: the ratio against dense matrices, the law against integrals, and its invariance.

mod common;

use common::*;
use issfa::lab::kernels::features::conditional_means;
use issfa::lab::kernels::shared_activations::{Change, NewRow};
use issfa::lab::model::{Entry, Loadings, Model, State, WeightMeanPrior, simulate};
use issfa::lab::rng::{Purpose, Stream, Streams};
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
        let found = |entries: &[Entry], ln_ratio: f64| {
            ln_normal(&row, &explained(entries, &means), |_| noise) + ln_ratio
        };
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
