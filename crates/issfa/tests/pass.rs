//! The streaming pass against naive loops, the law of the drawn features, and the same bits for any number of threads.

mod common;

use common::*;
use issfa::comm::Solo;
use issfa::lab::chain::sweep;
use issfa::lab::kernels::{Kernel, Phase, Turn};
use issfa::lab::model::{Loadings, Model, State, simulate};
use issfa::lab::numeric::eigen::symmetric_eigen;
use issfa::lab::numeric::linalg::Real;
use issfa::lab::rng::{Purpose, Stream, Streams};
use issfa::lab::spectral::{FeatureConditional, FeatureSpectra, OneByOne, Pass, Projections, SpectralData, TILE};
use issfa::lab::spectral::{squared_row_norms, sum_over_tiles};
use issfa::selftest::threshold;
use rayon::ThreadPoolBuilder;

/// Data, loadings and features of given sizes, and what a draw is conditioned on.
struct Case<R> {
    data: SpectralData<R>,
    row_norms: Vec<f64>,
    loadings: Loadings,
    features: FeatureSpectra<R>,
    precisions: Vec<f64>,
    noise_variance: f64,
}

/// What a pass reads of a case, while the features are free to change.
macro_rules! pass {
    ($case:expr) => {
        Pass { data: &$case.data, row_norms: &$case.row_norms, loadings: &$case.loadings, comm: &Solo }
    };
}

fn streams_of(sweep: u64) -> Streams {
    Streams { seed: 3, chain: 0, sweep }
}

impl<R: Real> Case<R> {
    fn new(n_rows: usize, n_modes: usize, n_features: usize) -> Case<R> {
        let mut stream = stream(11, (n_rows * 1_000_000 + n_modes * 100 + n_features) as u64);
        let rows: Vec<Vec<f64>> = (0..n_rows).map(|_| normals(n_modes, &mut stream)).collect();
        let data = SpectralData::from_rows(&rows);
        let features: Vec<Vec<f64>> = (0..n_features).map(|_| normals(n_modes, &mut stream)).collect();
        Case {
            row_norms: squared_row_norms(&data).iter().map(|x| x.sqrt()).collect(),
            data,
            loadings: random_loadings(n_rows, n_features, &mut stream),
            features: FeatureSpectra::from_rows(n_modes, features.iter().map(Vec::as_slice)),
            precisions: (0..n_modes).map(|v| 0.5 + (v % 9) as f64).collect(),
            noise_variance: 0.7,
        }
    }

    fn draw(&mut self, sweep: u64) -> Projections<R> {
        let rotation = symmetric_eigen(&self.loadings.gram(), self.loadings.n_features());
        let (noise_variance, precisions) = (self.noise_variance, &self.precisions[..]);
        let conditional = FeatureConditional { rotation: &rotation, noise_variance, precisions };
        pass!(self).draw(&conditional, &streams_of(sweep), &mut self.features)
    }

    fn draw_one_by_one(&mut self, order: &[usize], sweep: u64) -> Projections<R> {
        let (noise_variance, precisions) = (self.noise_variance, &self.precisions[..]);
        let conditional = OneByOne { gram: &self.loadings.gram(), order, noise_variance, precisions };
        pass!(self).draw_one_by_one(&conditional, &streams_of(sweep), &mut self.features)
    }

    fn project(&mut self) -> Projections<R> {
        pass!(self).project(&mut self.features)
    }

    /// Compares everything in `projections` with loops over the stored numbers.
    fn check(&self, projections: &Projections<R>, tolerance: f64, what: &str) {
        let features = spectra(&self.features);
        let norm = |x: &[f64]| dot(x, x).sqrt();
        let (k, mut residual) = (features.len(), 0.0);
        for a in 0..k {
            for b in 0..k {
                let size = norm(&features[a]) * norm(&features[b]);
                let naive = dot(&features[a], &features[b]);
                assert_close(
                    projections.gram()[a * k + b],
                    naive,
                    tolerance,
                    size,
                    &format!("{what}: S S' at {a}, {b}"),
                );
            }
        }
        for t in 0..self.data.n_rows() {
            let row = self.data.row(t);
            for (a, feature) in features.iter().enumerate() {
                let size = norm(&row) * norm(feature);
                let found = projections.row(t)[a];
                assert_close(found, dot(&row, feature), tolerance, size, &format!("{what}: Y S' at {t}, {a}"));
            }
            let explained = |v: usize| -> f64 {
                self.loadings.row(t).iter().map(|entry| entry.weight * features[entry.feature][v]).sum()
            };
            residual += (0..row.len()).map(|v| (row[v] - explained(v)).powi(2)).sum::<f64>();
        }
        assert_eq!(projections.gram().len(), k * k);
        assert_close(projections.squared_residual(), residual, tolerance, residual, &format!("{what}: residual"));
    }
}

/// One feature after the other, from the residual of the rows: no statistic, no Gram matrix.
#[test]
fn one_by_one_equals_its_slow_twin() {
    const SWEEP: u64 = 4;
    for (n_rows, n_modes, k) in [(7, 5, 1), (7, 300, 3), (40, 530, 6)] {
        let mut case = Case::<f64>::new(n_rows, n_modes, k);
        let order: Vec<usize> = (0..k).rev().collect();
        let mut expected = spectra(&case.features);
        for (tile, first) in (0..n_modes).step_by(TILE).enumerate() {
            let width = TILE.min(n_modes - first);
            let normals = normals(k * width, &mut streams_of(SWEEP).stream(Purpose::Features, 0, tile as u64));
            for &feature in &order {
                for mode in first..first + width {
                    let (mut precision, mut pull) = (case.precisions[mode], 0.0);
                    for row in 0..n_rows {
                        let mine = case.loadings.row(row).iter().find(|entry| entry.feature == feature);
                        let weight = mine.map_or(0.0, |entry| entry.weight);
                        let others = case.loadings.row(row).iter().filter(|entry| entry.feature != feature);
                        let explained: f64 = others.map(|entry| entry.weight * expected[entry.feature][mode]).sum();
                        precision += weight * weight / case.noise_variance;
                        pull += weight * (case.data.row(row)[mode] - explained) / case.noise_variance;
                    }
                    let normal = normals[feature * width + mode - first];
                    expected[feature][mode] = pull / precision + normal / precision.sqrt();
                }
            }
        }
        let projections = case.draw_one_by_one(&order, SWEEP);
        case.check(&projections, 1e-9, "one by one");
        for (found, expected) in spectra(&case.features).iter().zip(&expected) {
            found.iter().zip(expected).for_each(|(x, y)| assert_close(*x, *y, 1e-10, 10.0, "one by one"));
        }
    }
}

fn check_all_sizes<R: Real>(tolerance: f64) {
    for n_modes in [1, 5, 256, 300, 700] {
        for n_rows in [1, 7, 300] {
            for n_features in [0, 1, 6, 43] {
                let what = format!("{} {n_rows} rows {n_modes} modes {n_features} features", R::NAME);
                let mut case = Case::<R>::new(n_rows, n_modes, n_features);
                let projections = case.project();
                case.check(&projections, tolerance, &format!("{what}, projected"));
                let before = case.features.clone();
                let projections = case.draw(1);
                case.check(&projections, tolerance, &format!("{what}, drawn"));
                assert!(n_features == 0 || case.features != before, "nothing was drawn");
            }
        }
    }
}

#[test]
fn sums_equal_naive_ones_in_double_precision() {
    check_all_sizes::<f64>(1e-9);
}

#[test]
fn sums_equal_naive_ones_in_single_precision() {
    check_all_sizes::<f32>(1e-4);
}

/// The numbers of `projections` as bits.
fn bits<R>(projections: &Projections<R>, n_rows: usize) -> Vec<u64> {
    let rows = (0..n_rows).flat_map(|t| projections.row(t)).chain(projections.gram());
    rows.chain([&projections.squared_residual()]).map(|x| x.to_bits()).collect()
}

/// The fixed point is set by the previous features; when it turns out far off, the pass repeats itself.
#[test]
fn sums_survive_a_jump_of_the_norms_by_a_million() {
    for factor in [1e-6, 1e6, 0.0, 1e-60, 1e60] {
        let (mut plain, mut jumped) = (Case::<f64>::new(7, 300, 6), Case::<f64>::new(7, 300, 6));
        plain.draw(1);
        jumped.features.scale(factor);
        let drawn = jumped.draw(1);
        assert_eq!(plain.features, jumped.features, "the previous features do not enter the draw");
        jumped.check(&drawn, 1e-9, &format!("norms jumped by {factor}"));
        let projected = jumped.project();
        assert_eq!(bits(&drawn, 7), bits(&projected, 7), "a repeated pass has the exponents of the true norms");
    }
}

/// Smaller jumps stay within the spare bits: no repeat, and still right.
#[test]
fn sums_survive_smaller_jumps_of_the_norms() {
    for factor in [2e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 2e3, 5e3] {
        let mut case = Case::<f64>::new(7, 300, 6);
        case.features.scale(factor);
        let drawn = case.draw(1);
        case.check(&drawn, 1e-9, &format!("previous features scaled by {factor}"));
    }
}

/// One feature's norm jumps while the others stay.
#[test]
fn sums_survive_a_jump_of_one_feature() {
    for factor in [1e-6, 1e-2, 1e2, 1e6] {
        let mut case = Case::<f64>::new(7, 300, 3);
        let mut features = spectra(&case.features);
        features[1].iter_mut().for_each(|x| *x *= factor);
        case.features = FeatureSpectra::from_rows(300, features.iter().map(Vec::as_slice));
        let drawn = case.draw(1);
        case.check(&drawn, 1e-9, &format!("one previous feature scaled by {factor}"));
    }
}

/// Of data that features explain all but wholly the residual is what is left of every cell, not a difference of large sums.
#[test]
fn a_residual_of_next_to_nothing_is_right() {
    fn check<R: Real>(noise: f64) {
        let mut case = Case::<R>::new(60, 530, 6);
        let features = spectra(&case.features);
        let mut stream = stream(12, 0);
        let rows: Vec<Vec<f64>> = (0..60)
            .map(|t| {
                let mut row: Vec<f64> = normals(530, &mut stream).iter().map(|x| noise * x).collect();
                for entry in case.loadings.row(t) {
                    row.iter_mut().zip(&features[entry.feature]).for_each(|(y, s)| *y += entry.weight * s);
                }
                row
            })
            .collect();
        case.data = SpectralData::from_rows(&rows);
        case.row_norms = squared_row_norms(&case.data).iter().map(|x| x.sqrt()).collect();
        let projections = case.project();
        case.check(&projections, 1e-3, &format!("{} noise {noise}", R::NAME));
    }
    // Shares of the data's square on both sides of the bound of either precision, and far below.
    for noise in [0.3, 0.1, 0.05, 0.03, 0.01, 1e-3, 1e-4] {
        check::<f32>(noise);
    }
    for noise in [1e-5, 3e-6, 1e-6, 3e-7, 1e-8] {
        check::<f64>(noise);
    }
}

#[test]
fn small_sums_over_tiles_are_in_tile_order() {
    let case = Case::<f64>::new(3, 700, 1);
    let sums = sum_over_tiles(case.data.tiles(), 2, &Solo, |tile, modes, slots| {
        slots[0] = tile as f64;
        slots[1] = modes.len() as f64;
    });
    assert_eq!(sums, [3.0, 700.0]);
}

#[test]
#[should_panic(expected = "projections are stale")]
fn stale_rows_are_refused() {
    let mut projections = Case::<f64>::new(2, 5, 1).project();
    projections.features_changed();
    projections.row(0);
}

#[test]
#[should_panic(expected = "projections are stale")]
fn stale_gram_is_refused() {
    let mut projections = Case::<f64>::new(2, 5, 1).project();
    projections.features_changed();
    projections.gram();
}

#[test]
#[should_panic(expected = "residual is stale")]
fn stale_residual_is_refused() {
    let mut projections = Case::<f64>::new(2, 5, 1).project();
    projections.loadings_changed();
    projections.row(0);
    projections.squared_residual();
}

#[test]
#[should_panic(expected = "projections are stale")]
fn projections_that_never_were_are_refused() {
    Projections::<f64>::default().gram();
}

/// Means and all covariances (within and between modes) of many draws, against the dense conditional.
#[test]
fn drawn_features_follow_their_conditional() {
    const DRAWS: usize = 40_000;
    let (n_rows, n_modes, k) = (7, 5, 3);
    let mut case = Case::<f64>::new(n_rows, n_modes, k);
    let n = k * n_modes;
    let (mut mean, mut covariance) = (vec![0.0; n], vec![0.0; n * n]);
    for mode in 0..n_modes {
        let data: Vec<f64> = (0..n_rows).map(|t| case.data.row(t)[mode]).collect();
        let (centre, spread) =
            dense_feature_conditional(&case.loadings, &data, case.noise_variance, case.precisions[mode]);
        for a in 0..k {
            mean[a * n_modes + mode] = centre[a];
            (0..k).for_each(|b| covariance[(a * n_modes + mode) * n + b * n_modes + mode] = spread[a * k + b]);
        }
    }
    let (mut sums, mut products) = (vec![0.0; n], vec![0.0; n * n]);
    for sweep in 0..DRAWS {
        case.draw(sweep as u64);
        let centred: Vec<f64> = spectra(&case.features).concat().iter().zip(&mean).map(|(x, m)| x - m).collect();
        for i in 0..n {
            sums[i] += centred[i];
            (0..n).for_each(|j| products[i * n + j] += centred[i] * centred[j]);
        }
    }
    let limit = threshold(n + n * (n + 1) / 2, 1e-3);
    let count = DRAWS as f64;
    let mut worst: f64 = 0.0;
    for i in 0..n {
        worst = worst.max((sums[i] / (covariance[i * n + i] * count).sqrt()).abs());
        for j in 0..=i {
            let expected = covariance[i * n + j];
            let variance = covariance[i * n + i] * covariance[j * n + j] + expected * expected;
            worst = worst.max(((products[i * n + j] / count - expected) / (variance / count).sqrt()).abs());
        }
    }
    println!("worst of {} moments: {worst:.2} standard errors", n + n * (n + 1) / 2);
    assert!(worst < limit, "worst {worst:.2} standard errors; {limit:.2} has a false-alarm rate of 1e-3");
}

/// Runs `work` in pools of 1, 2 and 3 threads and demands the same result.
fn in_pools<T: PartialEq + std::fmt::Debug + Send>(work: impl Fn() -> T + Sync) -> T {
    let run = |n| ThreadPoolBuilder::new().num_threads(n).build().expect("a small pool").install(&work);
    let alone = run(1);
    for n_threads in [2, 3] {
        assert!(alone == run(n_threads), "{n_threads} threads give other bits than one");
    }
    alone
}

fn one_pass<R: Real>() {
    let (features, _) = in_pools(|| {
        let mut case = Case::<R>::new(300, 1500, 6);
        let projections = case.draw(2);
        (case.features.clone(), bits(&projections, 300))
    });
    assert_eq!(features.n_features(), 6);
}

#[test]
fn one_pass_has_the_same_bits_for_any_number_of_threads() {
    one_pass::<f32>();
    one_pass::<f64>();
}

/// A model with simulated data: 60 rows, 700 modes, a dozen features.
fn simulated<R: Real>(stream: &mut Stream) -> Model<R> {
    let spectrum = spectrum("path(28) x path(25)", "q");
    let priors = priors(spectrum.n_parameters(), NORMAL_MEAN);
    let mut truth = simulate::prior_state::<R>(60, &spectrum, &priors, stream);
    truth.noise_variance = 0.5;
    let data = simulate::data_given_state(&truth, stream);
    Model::new(data, spectrum, priors)
}

fn whole_sweeps<R: Real>() {
    let model = simulated::<R>(&mut stream(21, 0));
    let state = in_pools(|| {
        let mut state = State::<R>::empty(60, 700, 2);
        let mut projections = Projections::default();
        for sweep in 0..20 {
            let turn = Turn { streams: Streams { seed: 4, chain: 0, sweep }, phase: Phase::Sampling };
            sweep::run(&Kernel::DEFAULT_SWEEP, &model, &mut state, &mut projections, &turn);
        }
        state
    });
    assert!(state.n_features() > 0 && state.loadings.n_shared() > 0, "the sweeps found nothing to share");
}

#[test]
fn twenty_sweeps_have_the_same_bits_for_any_number_of_threads() {
    whole_sweeps::<f32>();
    whole_sweeps::<f64>();
}
