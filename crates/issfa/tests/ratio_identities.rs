//! Ratio identities: each kernel's conditional against differences of the slow log joint, on random small states.

mod common;

use common::*;
use issfa::comm::Solo;
use issfa::lab::kernels::pair_rotation::plane::{ChunkUses, ChunkView, Pair, Rotation, RowView, UsesOfChunk};
use issfa::lab::kernels::pair_rotation::uses::BOTH;
use issfa::lab::kernels::{
    Phase, Turn, features, few_rows, ibp_repulsion, ibp_strength, local_precisions, noise, pair_rotation, rescale,
    shared_activations::FeatureTerms, sign_flip, theta, unique_features, weight_means, weight_precisions,
};
use issfa::lab::model::log_joint::{ln_gamma_density, ln_joint, ln_normal_density, ln_student_density, ln_weights};
use issfa::lab::model::{
    Entry, GammaPrior, InverseGammaPrior, Model, NormalPrior, Priors, State, WeightMeanPrior, ibp, simulate,
};
use issfa::lab::numeric::eigen::symmetric_eigen;
use issfa::lab::numeric::lanes::filled_up;
use issfa::lab::rng::{Stream, Streams};
use issfa::lab::spectral::{FeatureSpectra, Projections, Sharing, Tiles, mode_energies};
use issfa::structure::Direction;

const N_ROWS: usize = 5;
const STRUCTURE: &str = "path(3) x cycle(2)";
const CURVES: [&str; 6] = ["q", "q^2", "axes", "q^2 + q", "q^2 + q'", "q^1.5 + q'^1.5"];
const SEEDS: u64 = 12;
const TOLERANCE: f64 = 1e-9;

/// Fixed factors of the modes, as under a noise reference.
const FACTORS: [f64; 6] = [7.0, 3.0, 2.0, 1.0, 0.5, 0.2];

/// Runs `check` on a dozen states a curve, half of them with a factor for each mode, and makes sure that features were among them.
fn on_random_states(weight_mean: WeightMeanPrior, check: impl Fn(&Model<f64>, &State<f64>, &mut Stream)) {
    on_states_with_tails(weight_mean, None, check);
}

/// The same with normal weights or Student ones.
fn on_states_with_tails(
    weight_mean: WeightMeanPrior,
    weight_tails: Option<f64>,
    check: impl Fn(&Model<f64>, &State<f64>, &mut Stream),
) {
    let mut n_features = 0;
    for curve in CURVES {
        let plain = spectrum(STRUCTURE, curve);
        let priors = Priors { weight_tails, ..priors(plain.n_parameters(), weight_mean) };
        for seed in 1..=SEEDS {
            let spectrum =
                if seed.is_multiple_of(2) { plain.clone() } else { plain.clone().with_factors(FACTORS.to_vec()) };
            let (model, state) = draw_case(N_ROWS, &spectrum, &priors, seed);
            n_features += state.n_features();
            check(&model, &state, &mut stream(seed, 1));
        }
    }
    assert!(n_features > 50, "{n_features} features in all: the states are too poor to test anything");
}

/// The difference of the log joint, and the size it is to be compared with.
fn ln_joint_change(model: &Model<f64>, from: &State<f64>, to: &State<f64>) -> (f64, f64) {
    let (before, after) = (ln_joint(model, from), ln_joint(model, to));
    (after - before, 1.0 + before.abs() + after.abs())
}

fn ln_inverse_gamma(x: f64, prior: InverseGammaPrior) -> f64 {
    ln_gamma_density(1.0 / x, GammaPrior { shape: prior.shape, rate: prior.scale }) - 2.0 * x.ln()
}

fn squared_residual(model: &Model<f64>, state: &State<f64>) -> f64 {
    let row = |t: usize| {
        let mean = simulate::noiseless_row(state, t);
        model.data.row(t).iter().zip(mean).map(|(y, m)| (y - m).powi(2)).sum::<f64>()
    };
    (0..N_ROWS).map(row).sum()
}

/// The active weights of one feature.
fn active_weights(state: &State<f64>, feature: usize) -> Vec<f64> {
    let entries = state.loadings.rows().iter().flatten();
    entries.filter(|entry| entry.feature == feature).map(|entry| entry.weight).collect()
}

fn fresh_projections(model: &Model<f64>, state: &State<f64>) -> Projections<f64> {
    model.pass(&state.loadings).project(&mut state.features.clone())
}

#[test]
fn features_given_the_rest() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let k = state.n_features();
        let precisions = model.spectrum.precisions(&state.theta());
        let mut moved = state.clone();
        let other: Vec<Vec<f64>> = (0..k).map(|_| normals(precisions.len(), stream)).collect();
        moved.features = FeatureSpectra::from_rows(precisions.len(), other.iter().map(Vec::as_slice));
        let (old, new) = (spectra(&state.features), spectra(&moved.features));
        let data: Vec<Vec<f64>> = (0..N_ROWS).map(|t| model.data.row(t)).collect();
        let means = spectra(&features::conditional_means(model, state));
        let mut ratio = 0.0;
        for (mode, &h) in precisions.iter().enumerate() {
            let at_mode = |rows: &[Vec<f64>]| rows.iter().map(|row| row[mode]).collect::<Vec<_>>();
            let (mean, covariance) =
                dense_feature_conditional(&state.loadings, &at_mode(&data), state.noise_variance, h);
            ratio += ln_normal_dense(&at_mode(&new), &mean, &covariance)
                - ln_normal_dense(&at_mode(&old), &mean, &covariance);
            check_rotation(state, &at_mode(&data), h, &mean, &covariance);
            let size = 1.0 + mean.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            at_mode(&means)
                .iter()
                .zip(&mean)
                .for_each(|(x, y)| assert_close(*x, *y, TOLERANCE, size, "conditional mean"));
        }
        let (change, size) = ln_joint_change(model, state, &moved);
        assert_close(ratio, change, TOLERANCE, size, "features");
    });
}

/// `P diag(1/d) P'` with `d_i = lambda_i / s2 + h`, and its product with `B / s2`, against the dense inverse.
fn check_rotation(state: &State<f64>, data_at_mode: &[f64], h: f64, mean: &[f64], covariance: &[f64]) {
    let k = state.n_features();
    let rotation = symmetric_eigen(&state.loadings.gram(), k);
    let precision = |i: usize| rotation.values[i].max(0.0) / state.noise_variance + h;
    let entry = |a: usize, b: usize| {
        (0..k).map(|i| rotation.vectors[a * k + i] * rotation.vectors[b * k + i] / precision(i)).sum::<f64>()
    };
    let rotated: Vec<f64> = (0..k * k).map(|at| entry(at / k, at % k)).collect();
    let dense = dense_loadings(&state.loadings);
    let pull: Vec<f64> = (0..k)
        .map(|a| (0..N_ROWS).map(|t| dense[t * k + a] * data_at_mode[t]).sum::<f64>() / state.noise_variance)
        .collect();
    let size = 1.0 + mean.iter().chain(covariance).fold(0.0, |most: f64, x| most.max(x.abs()));
    rotated.iter().zip(covariance).for_each(|(x, y)| assert_close(*x, *y, TOLERANCE, size, "rotated covariance"));
    let rotated_mean = if k == 0 { vec![] } else { apply(&rotated, &pull) };
    rotated_mean.iter().zip(mean).for_each(|(x, y)| assert_close(*x, *y, TOLERANCE, size, "rotated mean"));
}

#[test]
fn noise_variance() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        let residual = squared_residual(model, state);
        let projections = fresh_projections(model, state);
        assert_close(projections.squared_residual(), residual, TOLERANCE, 1.0 + residual, "residual of the pass");
        let given = noise::conditional(model.priors.noise, model.n_cells(), residual);
        for factor in [0.3, 0.9, 2.5] {
            let moved = State { noise_variance: factor * state.noise_variance, ..state.clone() };
            let ratio = ln_inverse_gamma(moved.noise_variance, given) - ln_inverse_gamma(state.noise_variance, given);
            let (change, size) = ln_joint_change(model, state, &moved);
            assert_close(ratio, change, TOLERANCE, size, "noise variance");
        }
    });
}

#[test]
fn strength() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        let given =
            ibp_strength::conditional(model.priors.ibp_strength, state.n_features(), N_ROWS, state.ibp_repulsion);
        for factor in [0.2, 3.0] {
            let moved = State { ibp_strength: factor * state.ibp_strength, ..state.clone() };
            let ratio = ln_gamma_density(moved.ibp_strength, given) - ln_gamma_density(state.ibp_strength, given);
            let (change, size) = ln_joint_change(model, state, &moved);
            assert_close(ratio, change, TOLERANCE, size, "strength");
        }
    });
}

/// The walk is symmetric in `ln beta` and the joint is a density in beta: the Jacobian is `beta* / beta`.
#[test]
fn repulsion() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        for factor in [0.2_f64, 0.8, 3.0] {
            let (from, to) = (state.ibp_repulsion, factor * state.ibp_repulsion);
            let moved = State { ibp_repulsion: to, ..state.clone() };
            let counts = state.loadings.counts();
            let ratio =
                ibp_repulsion::ln_ratio(model.priors.ibp_repulsion, state.ibp_strength, counts, N_ROWS, from, to);
            let (change, size) = ln_joint_change(model, state, &moved);
            assert_close(ratio, change + factor.ln(), TOLERANCE, size, "repulsion");
        }
    });
}

#[test]
fn means_of_weights() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let WeightMeanPrior::Normal(prior) = model.priors.weight_mean else { panic!("the prior is normal") };
        for feature in 0..state.n_features() {
            let weights = active_weights(state, feature);
            let given = weight_means::conditional(
                prior,
                state.weight_precisions[feature],
                weights.len() as f64,
                weights.iter().sum(),
            );
            let mut moved = state.clone();
            moved.weight_means[feature] += simulate::normal(stream);
            let ratio = ln_normal_density(moved.weight_means[feature], given)
                - ln_normal_density(state.weight_means[feature], given);
            let (change, size) = ln_joint_change(model, state, &moved);
            assert_close(ratio, change, TOLERANCE, size, "mean of weights");
        }
    });
}

#[test]
fn precisions_of_weights() {
    for weight_mean in [NORMAL_MEAN, WeightMeanPrior::Fixed(0.0)] {
        on_random_states(weight_mean, |model, state, _| {
            for feature in 0..state.n_features() {
                let weights = active_weights(state, feature);
                let squares = weights.iter().map(|a| (a - state.weight_means[feature]).powi(2)).sum();
                let given =
                    weight_precisions::conditional(model.priors.weight_precision, weights.len() as f64, squares);
                let mut moved = state.clone();
                moved.weight_precisions[feature] *= 1.7;
                let ratio = ln_gamma_density(moved.weight_precisions[feature], given)
                    - ln_gamma_density(state.weight_precisions[feature], given);
                let (change, size) = ln_joint_change(model, state, &moved);
                assert_close(ratio, change, TOLERANCE, size, "precision of weights");
            }
        });
    }
}

/// The state with one entry of the loadings replaced or taken away.
fn with_entry(state: &State<f64>, row: usize, feature: usize, weight: Option<f64>) -> State<f64> {
    let mut moved = state.clone();
    moved.loadings.edit_rows(&Sharing::none(0, 0), |rows| {
        rows[row].retain(|entry| entry.feature != feature);
        rows[row].extend(weight.map(|weight| Entry { feature, weight }));
        rows[row].sort_unstable_by_key(|entry| entry.feature);
    });
    moved
}

/// With `m` other rows using a feature its column weighs `B(m + z, T - m - z + beta)`, so the exchangeable prior
/// odds are `m / (T - 1 - m + beta)`; given the probability `pi` they are `pi / (1 - pi)`.
#[test]
fn shared_activations() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let projections = fresh_projections(model, state);
        for row in 0..N_ROWS {
            for feature in 0..state.n_features() {
                let own = state.loadings.row(row).iter().any(|entry| entry.feature == feature);
                let elsewhere = state.loadings.counts()[feature] - usize::from(own);
                if elsewhere > 0 {
                    check_activation(model, state, &projections, (row, feature, elsewhere as f64), stream);
                }
            }
        }
    });
}

fn check_activation(
    model: &Model<f64>,
    state: &State<f64>,
    projections: &Projections<f64>,
    (row, feature, elsewhere): (usize, usize, f64),
    stream: &mut Stream,
) {
    let k = state.n_features();
    let off = with_entry(state, row, feature, None);
    let spectrum = state.features.feature(feature);
    let explained = simulate::noiseless_row(&off, row);
    let partial: Vec<f64> = model.data.row(row).iter().zip(explained).map(|(y, m)| y - m).collect();
    let inner = dot(&partial, &spectrum);
    let others = off.loadings.row(row).iter().map(|e| e.weight * projections.gram()[e.feature * k + feature]);
    let by_projections = projections.row(row)[feature] - others.sum::<f64>();
    assert_close(by_projections, inner, TOLERANCE, 10.0 + inner.abs(), "inner product from projections");
    let terms = FeatureTerms {
        squared_norm: dot(&spectrum, &spectrum),
        noise_variance: state.noise_variance,
        weight: NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] },
        tails: None,
        ln_prior_odds: None,
    };
    let prior_odds = elsewhere / (N_ROWS as f64 - 1.0 - elsewhere + state.ibp_repulsion);
    let ln_odds = terms.ln_odds(inner, prior_odds.ln());
    for _ in 0..3 {
        let weight = 2.0 * simulate::normal(stream);
        let on = with_entry(state, row, feature, Some(weight));
        let (change, size) = ln_joint_change(model, &off, &on);
        let found = change - ln_normal_density(weight, terms.active_weight(inner));
        assert_close(found, ln_odds, TOLERANCE, size, "activation");
    }
}

/// A proposed unique feature.
struct Newborn {
    weight: f64,
    weight_mean: f64,
    weight_precision: f64,
}

impl Newborn {
    fn draw(model: &Model<f64>, stream: &mut Stream) -> Newborn {
        let prior = model.priors.weight_precision;
        let weight_mean = simulate::weight_mean(&model.priors.weight_mean, stream);
        let weight_precision = simulate::gamma(prior.shape, prior.rate, stream);
        let weight = weight_mean + simulate::normal(stream) / weight_precision.sqrt();
        Newborn { weight, weight_mean, weight_precision }
    }

    /// Its density under the proposal, as one point of a Poisson process: the rate times the densities.
    fn ln_proposal(&self, model: &Model<f64>, rate: f64) -> f64 {
        let weight = NormalPrior { mean: self.weight_mean, precision: self.weight_precision };
        let mut total = rate.ln() + ln_gamma_density(self.weight_precision, model.priors.weight_precision);
        if let WeightMeanPrior::Normal(prior) = model.priors.weight_mean {
            total += ln_normal_density(self.weight_mean, prior);
        }
        total + ln_normal_density(self.weight, weight)
    }
}

/// The state without the features that only `row` uses.
fn without_unique(state: &State<f64>, row: usize) -> State<f64> {
    let mut bare = state.clone();
    let unique = |entry: &&Entry| state.loadings.counts()[entry.feature] == 1;
    let dead: Vec<usize> = state.loadings.row(row).iter().filter(unique).map(|entry| entry.feature).collect();
    bare.remove_features(&dead);
    bare
}

fn with_newborns(bare: &State<f64>, row: usize, born: &[Newborn], spectra: &[Vec<f64>]) -> State<f64> {
    let mut state = bare.clone();
    for (born, spectrum) in born.iter().zip(spectra) {
        state.loadings.push_unique(row, born.weight);
        state.features.push(spectrum);
        let id = state.new_id();
        state.feature_ids.push(id);
        state.weight_means.push(born.weight_mean);
        state.weight_precisions.push(born.weight_precision);
    }
    state
}

/// `ln p(S_new | rest)` in the rank-one form: mean `a r/s2 / (h + c/s2)`, covariance `(1/h)(I - a a'/(s2 h + c))`.
fn ln_spectra_density(
    born: &[Newborn],
    spectra: &[Vec<f64>],
    residual: &[f64],
    precisions: &[f64],
    noise_variance: f64,
) -> f64 {
    let n = born.len();
    let energy: f64 = born.iter().map(|b| b.weight.powi(2)).sum();
    let at_mode = |mode: usize| {
        let h = precisions[mode];
        let values: Vec<f64> = spectra.iter().map(|s| s[mode]).collect();
        let scale = residual[mode] / noise_variance / (h + energy / noise_variance);
        let mean: Vec<f64> = born.iter().map(|b| b.weight * scale).collect();
        let entry = |a: usize, b: usize| {
            let identity = f64::from(u8::from(a == b));
            (identity - born[a].weight * born[b].weight / (noise_variance * h + energy)) / h
        };
        let covariance: Vec<f64> = (0..n * n).map(|at| entry(at / n, at % n)).collect();
        ln_normal_dense(&values, &mean, &covariance)
    };
    (0..residual.len()).map(at_mode).sum()
}

/// What a set of unique features gains, read off the log joint: everything but the evidence is taken away.
fn ln_gain_by_joint(
    model: &Model<f64>,
    bare: &State<f64>,
    row: usize,
    residual: &[f64],
    born: &[Newborn],
    stream: &mut Stream,
) -> (f64, f64) {
    let precisions = model.spectrum.precisions(&bare.theta());
    let spectra: Vec<Vec<f64>> = born.iter().map(|_| normals(precisions.len(), stream)).collect();
    let (change, size) = ln_joint_change(model, bare, &with_newborns(bare, row, born, &spectra));
    let rate = ibp::unique_rate(N_ROWS, bare.ibp_strength, bare.ibp_repulsion);
    let proposal: f64 = born.iter().map(|b| b.ln_proposal(model, rate)).sum();
    let drawn = ln_spectra_density(born, &spectra, residual, &precisions, bare.noise_variance);
    (change - proposal - drawn, size + drawn.abs())
}

/// The kernel's evidence for the modes of these small models, which are one narrow tile.
fn ln_evidence(residual: &[f64], energy: f64, variances: &[f64], noise_variance: f64) -> f64 {
    let (residual, variances) = (filled_up(residual, 0.0), filled_up(variances, 0.0));
    unique_features::ln_evidence(&residual, energy, &variances, noise_variance)
}

/// What a feature gains by the rows that use it, itself integrated out, and its density given them.
fn gain_and_density(model: &Model<f64>, state: &State<f64>, feature: usize) -> (f64, f64) {
    let precisions = model.spectrum.precisions(&state.theta());
    let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
    let uses: Vec<(f64, Vec<f64>)> = (0..N_ROWS)
        .filter_map(|row| {
            let entry = state.loadings.row(row).iter().find(|entry| entry.feature == feature)?;
            let explained = simulate::noiseless_row(&with_entry(state, row, feature, None), row);
            Some((entry.weight, model.data.row(row).iter().zip(explained).map(|(y, m)| y - m).collect()))
        })
        .collect();
    let (noise, energy) = (state.noise_variance, uses.iter().map(|(weight, _)| weight * weight).sum::<f64>());
    let at_mode = |(v, value): (usize, f64)| {
        let precision = precisions[v] + energy / noise;
        let pull: f64 = uses.iter().map(|(weight, residual)| weight * residual[v]).sum();
        ln_normal_density(value, NormalPrior { mean: pull / noise / precision, precision })
    };
    let density = state.features.feature(feature).into_iter().enumerate().map(at_mode).sum();
    let uses = uses.iter().map(|(weight, residual)| (*weight, &residual[..]));
    (few_rows::ln_gain(uses, &filled_up(&variances, 0.0), noise), density)
}

/// A row joins a feature, which becomes another at the same time.
#[test]
fn rows_that_join_a_feature() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        for (feature, row) in (0..state.n_features()).flat_map(|feature| (0..N_ROWS).map(move |row| (feature, row))) {
            if state.loadings.row(row).iter().any(|entry| entry.feature == feature) {
                continue;
            }
            let weight = 2.0 * simulate::normal(stream);
            let mut moved = with_entry(state, row, feature, Some(weight));
            let mut spectra = moved.features.to_vectors();
            spectra[feature] = normals(model.spectrum.n_modes(), stream);
            moved.features = FeatureSpectra::from_vectors(model.spectrum.n_modes(), &spectra);
            let n = state.loadings.counts()[feature];
            let prior = NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] };
            let (before, after) = (gain_and_density(model, state, feature), gain_and_density(model, &moved, feature));
            // The kernel counts the choice of those that stay, which the joint knows nothing of.
            let choice = 0.5f64.ln();
            let ratio = few_rows::ln_joining(n, N_ROWS, state.ibp_repulsion) - choice + after.0 - before.0;
            let densities = ln_normal_density(weight, prior) + after.1 - before.1;
            let (change, size) = ln_joint_change(model, state, &moved);
            assert_close(ratio + densities, change, TOLERANCE, size + densities.abs(), "a row that joins");
        }
    });
}

#[test]
fn unique_features_by_the_joint() {
    for weight_mean in [NORMAL_MEAN, WeightMeanPrior::Fixed(0.0)] {
        on_random_states(weight_mean, |model, state, stream| {
            let precisions = model.spectrum.precisions(&state.theta());
            let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
            for row in 0..N_ROWS {
                let bare = without_unique(state, row);
                let explained = simulate::noiseless_row(&bare, row);
                let residual: Vec<f64> = model.data.row(row).iter().zip(explained).map(|(y, m)| y - m).collect();
                for n_new in 0..4 {
                    let born: Vec<Newborn> = (0..n_new).map(|_| Newborn::draw(model, stream)).collect();
                    let energy = born.iter().map(|b| b.weight.powi(2)).sum();
                    let evidence = ln_evidence(&residual, energy, &variances, state.noise_variance);
                    let (gain, size) = ln_gain_by_joint(model, &bare, row, &residual, &born, stream);
                    assert_close(evidence, gain, TOLERANCE, size, "unique features");
                }
            }
        });
    }
}

/// The whole acceptance ratio from the current set (as the state has it, spectra and all) to a proposed one.
#[test]
fn births_and_deaths() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let precisions = model.spectrum.precisions(&state.theta());
        let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
        let rate = ibp::unique_rate(N_ROWS, state.ibp_strength, state.ibp_repulsion);
        for row in 0..N_ROWS {
            let unique = state.loadings.row(row).iter().filter(|entry| state.loadings.counts()[entry.feature] == 1);
            let old_spectra: Vec<Vec<f64>> = unique.clone().map(|e| state.features.feature(e.feature)).collect();
            let newborn = |entry: &Entry| Newborn {
                weight: entry.weight,
                weight_mean: state.weight_means[entry.feature],
                weight_precision: state.weight_precisions[entry.feature],
            };
            let old: Vec<Newborn> = unique.map(newborn).collect();
            let new: Vec<Newborn> = (0..1 + row % 3).map(|_| Newborn::draw(model, stream)).collect();
            let new_spectra: Vec<Vec<f64>> = new.iter().map(|_| normals(precisions.len(), stream)).collect();
            let bare = without_unique(state, row);
            let explained = simulate::noiseless_row(&bare, row);
            let residual: Vec<f64> = model.data.row(row).iter().zip(explained).map(|(y, m)| y - m).collect();
            let ln_proposal = |born: &[Newborn], spectra: &[Vec<f64>]| {
                born.iter().map(|b| b.ln_proposal(model, rate)).sum::<f64>()
                    + ln_spectra_density(born, spectra, &residual, &precisions, state.noise_variance)
            };
            let evidence = |born: &[Newborn]| {
                let energy = born.iter().map(|b| b.weight.powi(2)).sum();
                ln_evidence(&residual, energy, &variances, state.noise_variance)
            };
            let (change, size) = ln_joint_change(model, state, &with_newborns(&bare, row, &new, &new_spectra));
            let ratio = change + ln_proposal(&old, &old_spectra) - ln_proposal(&new, &new_spectra);
            assert_close(evidence(&new) - evidence(&old), ratio, TOLERANCE, 10.0 * size, "birth and death");
        }
    });
}

/// In the site domain, with dense covariances `s2 I + sum_k a_k^2 Q^-1` to which the features are added one by one.
#[test]
fn unique_features_by_dense_covariances() {
    let structure = structure(STRUCTURE);
    let n = structure.n_sites();
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let precisions = model.spectrum.precisions(&state.theta());
        let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
        let columns: Vec<Vec<f64>> = (0..n)
            .map(|mode| {
                let mut column = vec![0.0; n];
                column[mode] = 1.0;
                structure.apply(Direction::ToSites, &mut column, &mut Vec::new());
                column
            })
            .collect();
        let residual = normals(n, stream);
        let mut at_sites = residual.clone();
        structure.apply(Direction::ToSites, &mut at_sites, &mut Vec::new());
        let mut covariance = vec![0.0; n * n];
        (0..n).for_each(|i| covariance[i * n + i] = state.noise_variance);
        let zero = vec![0.0; n];
        let noise_only = ln_normal_dense(&at_sites, &zero, &covariance);
        let mut energy = 0.0;
        for _ in 0..3 {
            let weight = simulate::normal(stream);
            energy += weight * weight;
            for at in 0..n * n {
                covariance[at] += (0..n)
                    .map(|mode| weight * weight * variances[mode] * columns[mode][at / n] * columns[mode][at % n])
                    .sum::<f64>();
            }
            let gain = ln_normal_dense(&at_sites, &zero, &covariance) - noise_only;
            let evidence = ln_evidence(&residual, energy, &variances, state.noise_variance);
            assert_close(evidence, gain, TOLERANCE, 1.0 + noise_only.abs(), "dense evidence");
            // A row completed outside of a mask: the marginal of what was observed, times the law of the rest given it.
            let masked = ln_marginal_and_rest(&at_sites, &covariance, &[0, 2, 3]) - noise_only;
            assert_close(evidence, masked, TOLERANCE, 1.0 + noise_only.abs(), "dense evidence under a mask");
        }
    });
}

/// `ln N(y_in; 0, C_in) + ln N(y_out; C_oi C_in^-1 y_in, C_out - C_oi C_in^-1 C_io)`.
fn ln_marginal_and_rest(y: &[f64], covariance: &[f64], inside: &[usize]) -> f64 {
    let n = y.len();
    let outside: Vec<usize> = (0..n).filter(|site| !inside.contains(site)).collect();
    let part = |rows: &[usize], cols: &[usize]| -> Vec<f64> {
        rows.iter().flat_map(|&i| cols.iter().map(move |&j| covariance[i * n + j])).collect()
    };
    let (seen, m) = (part(inside, inside), inside.len());
    let y_in: Vec<f64> = inside.iter().map(|&site| y[site]).collect();
    let solved = |right: &[f64]| solve_dense(&seen, right);
    let across: Vec<Vec<f64>> = outside.iter().map(|&o| part(&[o], inside)).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let mean: Vec<f64> = across.iter().map(|row| dot(row, &solved(&y_in))).collect();
    let rest: Vec<f64> = (0..outside.len() * outside.len())
        .map(|at| {
            let (i, j) = (at / outside.len(), at % outside.len());
            covariance[outside[i] * n + outside[j]] - dot(&across[i], &solved(&across[j]))
        })
        .collect();
    let y_out: Vec<f64> = outside.iter().map(|&site| y[site]).collect();
    ln_normal_dense(&y_in, &vec![0.0; m], &seen) + ln_normal_dense(&y_out, &mean, &rest)
}

/// Solves a small symmetric positive definite system by elimination.
fn solve_dense(matrix: &[f64], right: &[f64]) -> Vec<f64> {
    let n = right.len();
    let (mut a, mut x) = (matrix.to_vec(), right.to_vec());
    for pivot in 0..n {
        for row in pivot + 1..n {
            let factor = a[row * n + pivot] / a[pivot * n + pivot];
            (pivot..n).for_each(|column| a[row * n + column] -= factor * a[pivot * n + column]);
            x[row] -= factor * x[pivot];
        }
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| a[row * n + column] * x[column]).sum();
        x[row] = (x[row] - known) / a[row * n + row];
    }
    x
}

/// Lends the target of theta's kernel for a state.
fn with_target(model: &Model<f64>, state: &State<f64>, check: impl FnOnce(&theta::Target)) {
    let energies = mode_energies(&state.features);
    check(&theta::Target {
        spectrum: &model.spectrum,
        priors: &model.priors.ln_theta,
        n_features: state.n_features() as f64,
        energies: &energies,
        tiles: Tiles::whole(energies.len()),
        comm: &Solo,
        stride: 1,
    });
}

#[test]
fn theta_target() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let mut moved = state.clone();
        moved.ln_theta.iter_mut().for_each(|x| *x += 0.7 * simulate::normal(stream));
        let (change, size) = ln_joint_change(model, state, &moved);
        with_target(model, state, |target| {
            let ratio = target.value(&moved.ln_theta) - target.value(&state.ln_theta);
            assert_close(ratio, change, TOLERANCE, size, "theta");
            let expansion = target.expand(&moved.ln_theta);
            assert_close(expansion.value, target.value(&moved.ln_theta), 1e-12, size, "value of the expansion");
        });
    });
}

#[test]
fn theta_derivatives() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        with_target(model, state, |target| {
            let (n, step) = (state.ln_theta.len(), 1e-5);
            let here = target.expand(&state.ln_theta);
            let size = 1.0 + here.value.abs() + here.hessian.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            for p in 0..n {
                let shifted = |by: f64| {
                    let mut point = state.ln_theta.clone();
                    point[p] += by;
                    target.expand(&point)
                };
                let (up, down) = (shifted(step), shifted(-step));
                let slope = (up.value - down.value) / (2.0 * step);
                assert_close(here.gradient[p], slope, 1e-7, size, "gradient");
                for r in 0..n {
                    let slope = (up.gradient[r] - down.gradient[r]) / (2.0 * step);
                    assert_close(here.hessian[p * n + r], slope, 1e-7, size, "hessian");
                }
            }
        });
    });
}

#[test]
fn theta_mode() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        with_target(model, state, |target| {
            let found = theta::Approximation::find(target);
            let there = target.expand(&found.mode);
            let steepest = there.gradient.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            assert!(steepest < 1e-5 * (1.0 + there.value.abs()), "gradient {:?} at the mode", there.gradient);
            assert!(there.value >= target.value(&state.ln_theta) - 1e-9, "the mode is below the current point");
            let at_mode = found.ln_t_density(&found.mode);
            assert!(at_mode >= found.ln_t_density(&state.ln_theta), "the proposal peaks at the mode");
            let again = theta::Approximation::find(target);
            assert_eq!(found.mode, again.mode, "the mode is a function of the target alone");
        });
    });
}

/// On more than one tile: the expansion equals a sum over modes of the curve's slow twin, for every curve.
#[test]
fn theta_expansion_equals_the_sum_over_modes() {
    for curve in CURVES {
        let spectrum = spectrum("path(30) x cycle(23)", curve);
        let (n, k) = (spectrum.n_parameters(), 7.0);
        let priors = vec![NormalPrior { mean: 0.3, precision: 2.0 }; n];
        let energies: Vec<f64> = (0..spectrum.n_modes()).map(|v| 0.2 + (v as f64 * 0.7).sin().powi(2)).collect();
        let target = theta::Target {
            spectrum: &spectrum,
            priors: &priors,
            n_features: k,
            energies: &energies,
            tiles: Tiles::whole(energies.len()),
            comm: &Solo,
            stride: 1,
        };
        let xi: Vec<f64> = (0..n).map(|p| 0.4 - 0.3 * p as f64).collect();
        let th: Vec<f64> = xi.iter().map(|x| x.exp()).collect();
        let (mut value, mut gradient, mut hessian) = (0.0, vec![0.0; n], vec![0.0; n * n]);
        let mut point = spectrum.new_point();
        for (mode, e) in energies.iter().enumerate() {
            spectrum.evaluate(&th, mode, &mut point);
            let h = point.precision;
            value += 0.5 * (k * h.ln() - h * e);
            for p in 0..n {
                gradient[p] += 0.5 * (k / h - e) * point.gradient[p];
                for r in 0..n {
                    hessian[p * n + r] += 0.5 * (k / h - e) * point.hessian[p * n + r]
                        - 0.5 * k / (h * h) * point.gradient[p] * point.gradient[r];
                }
            }
        }
        for p in 0..n {
            value -= 0.5 * 2.0 * (xi[p] - 0.3).powi(2);
            gradient[p] -= 2.0 * (xi[p] - 0.3);
            hessian[p * n + p] -= 2.0;
        }
        let found = target.expand(&xi);
        let size = 1.0 + value.abs() + hessian.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert_close(found.value, value, 1e-12, size, curve);
        assert_close(target.value(&xi), value, 1e-12, size, curve);
        (0..n).for_each(|p| assert_close(found.gradient[p], gradient[p], 1e-12, size, curve));
        (0..n * n).for_each(|at| assert_close(found.hessian[at], hessian[at], 1e-12, size, curve));
    }
}

/// On many tiles the search begins on a sample of them, and ends at the mode of the whole target all the same.
#[test]
fn theta_mode_of_many_modes() {
    for curve in ["q", "q^2", "axes", "q^2 + q"] {
        let spectrum = spectrum("path(140) x path(150)", curve);
        let n = spectrum.n_parameters();
        let priors = vec![NormalPrior { mean: 0.0, precision: 1.0 / 9.0 }; n];
        let truth: Vec<f64> = (0..n).map(|p| [0.05, 3.0, 8.0][p]).collect();
        let (k, mut stream) = (5, stream(77, 1));
        let energy = |h: f64, stream: &mut Stream| (0..k).map(|_| simulate::normal(stream).powi(2) / h).sum();
        let energies: Vec<f64> = spectrum.precisions(&truth).iter().map(|&h| energy(h, &mut stream)).collect();
        let target = theta::Target {
            spectrum: &spectrum,
            priors: &priors,
            n_features: f64::from(k),
            energies: &energies,
            tiles: Tiles::whole(energies.len()),
            comm: &Solo,
            stride: 1,
        };
        let found = theta::Approximation::find(&target);
        let there = target.expand(&found.mode);
        let steepest = there.gradient.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        assert!(steepest < 1e-5 * (1.0 + there.value.abs()), "{curve}: gradient {:?}", there.gradient);
        assert!(there.value >= target.value(&truth.iter().map(|t| t.ln()).collect::<Vec<_>>()), "{curve}");
        // 105,000 normal numbers say what theta is to within a few percent.
        found.mode.iter().zip(&truth).for_each(|(x, t)| assert!((x - t.ln()).abs() < 0.5, "{curve}: {x} {}", t.ln()));
    }
}

/// The density of the proposal does not move with the current xi: a state that differs only there has the same one.
#[test]
fn theta_proposal_ignores_the_current_value() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        let moved = State { ln_theta: state.ln_theta.iter().map(|x| x + 1.0).collect(), ..state.clone() };
        let density = |state: &State<f64>| {
            let mut found = (vec![], 0.0);
            with_target(model, state, |target| {
                let approximation = theta::Approximation::find(target);
                found = (approximation.mode.clone(), approximation.ln_t_density(&vec![0.1; state.ln_theta.len()]));
            });
            found
        };
        assert_eq!(density(state), density(&moved));
    });
}

/// A normal weight whose precision holds a gamma number is a Student weight, and the number's conditional follows.
#[test]
fn local_precisions_given_weights() {
    for tails in [1.0, 4.0, 30.0] {
        on_states_with_tails(NORMAL_MEAN, Some(tails), |model, state, stream| {
            let mut total = 0.0;
            for entry in state.loadings.rows().iter().flatten() {
                let (mean, precision) = (state.weight_means[entry.feature], state.weight_precisions[entry.feature]);
                let prior = NormalPrior { mean, precision };
                let local = simulate::gamma(2.0, 2.0, stream);
                let given = local_precisions::conditional(tails, prior, Some(entry.weight));
                let together = ln_gamma_density(local, local_precisions::conditional(tails, prior, None))
                    + ln_normal_density(entry.weight, NormalPrior { mean, precision: precision * local });
                let student = ln_student_density(entry.weight, prior, tails);
                assert_close(together - ln_gamma_density(local, given), student, TOLERANCE, 10.0, "Student weight");
                total += student;
            }
            assert_close(ln_weights(model, state), total, TOLERANCE, 1.0 + total.abs(), "weights");
        });
    }
}

/// Scaled coordinates: K V features by 1/c, active weights by c, K precisions by 1/c^2, K means by c unless fixed.
#[test]
fn rescaling() {
    for (weight_mean, tails) in
        [(NORMAL_MEAN, None), (WeightMeanPrior::Fixed(0.0), None), (NORMAL_MEAN, Some(4.0)), (NORMAL_MEAN, Some(1.0))]
    {
        on_states_with_tails(weight_mean, tails, |model, state, _| {
            for ln_c in [-0.4_f64, 0.05, 0.9] {
                let Some(degree) = model.spectrum.degree() else { continue };
                let scales = rescale::Scales {
                    ln_theta: state.ln_theta.clone(),
                    weight_means: state.weight_means.clone(),
                    weight_precisions: state.weight_precisions.clone(),
                };
                let scaled = scales.scaled(ln_c, degree);
                let ratio = rescale::ln_ratio(&model.priors, &scales, &scaled, ln_c);
                let mut moved = state.clone();
                moved.features.scale((-ln_c).exp());
                moved.loadings.scale(ln_c.exp());
                moved.ln_theta = scaled.ln_theta;
                moved.weight_means = scaled.weight_means;
                moved.weight_precisions = scaled.weight_precisions;
                let k = state.n_features() as f64;
                let free_means = if matches!(weight_mean, WeightMeanPrior::Normal(_)) { k } else { 0.0 };
                let coordinates =
                    -k * model.spectrum.n_modes() as f64 + state.loadings.n_active() as f64 - 2.0 * k + free_means;
                let (change, size) = ln_joint_change(model, state, &moved);
                assert_close(ratio, change + coordinates * ln_c, TOLERANCE, size, "rescaling");
            }
        });
    }
}

/// The kernel itself leaves `W S` alone, keeps a fixed mean at 0, and stands aside where no move exists.
#[test]
fn rescaling_moves_along_the_ridge() {
    let turn = Turn { streams: Streams { seed: 5, chain: 0, sweep: 1 }, phase: Phase::Sampling };
    for weight_mean in [NORMAL_MEAN, WeightMeanPrior::Fixed(0.0), WeightMeanPrior::Fixed(1.0)] {
        on_random_states(weight_mean, |model, state, _| {
            let (mut moved, mut projections) = (state.clone(), fresh_projections(model, state));
            let info = rescale::update(model, &mut moved, &mut projections, &turn);
            let nowhere = model.spectrum.degree().is_none() || weight_mean == WeightMeanPrior::Fixed(1.0);
            if state.n_features() == 0 || nowhere {
                assert!(info.proposed == 0 && moved == *state && projections.features_are_fresh());
            }
            assert_eq!(projections.features_are_fresh(), info.accepted == 0);
            if weight_mean == WeightMeanPrior::Fixed(0.0) {
                assert_eq!(moved.weight_means, state.weight_means);
            }
            for row in 0..N_ROWS {
                let (old, new) = (simulate::noiseless_row(state, row), simulate::noiseless_row(&moved, row));
                let size = 1.0 + dot(&old, &old).sqrt();
                old.iter().zip(new).for_each(|(x, y)| assert_close(y, *x, 1e-12, size, "W S"));
            }
        });
    }
}

/// A pair of features of a state, with made-up prior odds, and how it sees the rows.
struct PairCase {
    features: [usize; 2],
    pair: Pair,
    gram: [f64; 3],
    rows: Vec<RowView>,
}

impl PairCase {
    fn new(state: &State<f64>, projections: &Projections<f64>, features: [usize; 2]) -> PairCase {
        let (k, [j, l]) = (state.n_features(), features);
        let at = |a: usize, b: usize| projections.gram()[a * k + b];
        let weights =
            features.map(|f| NormalPrior { mean: state.weight_means[f], precision: state.weight_precisions[f] });
        let inner = |row: usize| {
            let others = state.loadings.row(row).iter().filter(|entry| !features.contains(&entry.feature));
            let explained = |f: usize| others.clone().map(|entry| entry.weight * at(entry.feature, f)).sum::<f64>();
            RowView { inner: features.map(|f| projections.row(row)[f] - explained(f)), own: None }
        };
        PairCase {
            features,
            pair: Pair { noise_variance: state.noise_variance, weights, ln_prior_odds: [-0.7, 0.4] },
            gram: [at(j, j), at(j, l), at(l, l)],
            rows: (0..N_ROWS).map(inner).collect(),
        }
    }

    /// `ln p` of what the rows use of the pair and of its weights, up to a constant: log weights of the uses plus the density that
    /// weights are drawn from, which is put together here from scratch.
    fn ln_density(&self, state: &State<f64>, rotation: Rotation) -> f64 {
        let plane = self.pair.plane(rotation, self.gram);
        let spectra = self.features.map(|feature| state.features.feature(feature));
        let mut total = 0.0;
        for (row, view) in self.rows.iter().enumerate() {
            let weight = |f: &usize| state.loadings.row(row).iter().find(|e| e.feature == *f).map(|e| e.weight);
            let used: Vec<(usize, f64)> =
                self.features.iter().enumerate().filter_map(|(at, f)| weight(f).map(|weight| (at, weight))).collect();
            let using: usize = used.iter().map(|(at, _)| 1 << at).sum();
            total += plane.ln_weights(view.inner)[using];
            let [x, y] = view.inner;
            let turned = [rotation.cos * x + rotation.sin * y, rotation.cos * y - rotation.sin * x];
            let n = used.len();
            let (mut precision, mut pull) = (vec![0.0; n * n], vec![0.0; n]);
            for (a, (first, _)) in used.iter().enumerate() {
                let prior = self.pair.weights[*first];
                pull[a] = turned[*first] / state.noise_variance + prior.precision * prior.mean;
                for (b, (second, _)) in used.iter().enumerate() {
                    precision[a * n + b] = dot(&spectra[*first], &spectra[*second]) / state.noise_variance;
                }
                precision[a * n + a] += prior.precision;
            }
            if n > 0 {
                let covariance = inverse(&precision, n);
                let weights: Vec<f64> = used.iter().map(|(_, weight)| *weight).collect();
                total += ln_normal_dense(&weights, &apply(&covariance, &pull), &covariance);
            }
        }
        total
    }

    /// The same for the columns of Z: what their prior has beyond the odds.
    fn ln_columns(&self, state: &State<f64>) -> f64 {
        let column = |(feature, odds): (&usize, f64)| {
            let count = state.loadings.counts()[*feature];
            ibp::ln_column_weight(count, N_ROWS, state.ibp_repulsion) - count as f64 * odds
        };
        self.features.iter().zip(self.pair.ln_prior_odds).map(column).sum()
    }
}

/// Two features that are both used, turned, with new uses and weights in every row: the change of the log joint is that of the
/// weights of the uses and of the density that weights are drawn from. The prior of the features does not change.
#[test]
fn pair_rotations() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let projections = fresh_projections(model, state);
        for features in (1..state.n_features()).map(|l| [l - 1, l]) {
            let case = PairCase::new(state, &projections, features);
            for scale in [0.2, 1.0] {
                let rotation = Rotation::draw(scale, stream);
                let mut moved = state.clone();
                moved.features.combine(features[0], features[1], rotation.combination());
                let weights = |row: usize, stream: &mut Stream| {
                    let drawn = [simulate::normal(stream), simulate::normal(stream)];
                    [0, 1].map(|at| (row == at || drawn[at] > 0.3).then_some(drawn[at]))
                };
                moved.loadings.set_pair(model.data.sharing(), features, (0..N_ROWS).map(|row| weights(row, stream)));
                let before = case.ln_density(state, Rotation::IDENTITY) + case.ln_columns(state);
                let after = case.ln_density(&moved, rotation) + case.ln_columns(&moved);
                let (change, size) = ln_joint_change(model, state, &moved);
                assert_close(after - before, change, TOLERANCE, size, "pair rotation");
            }
        }
    });
}

/// The recursion over rows against the sum over all 4^5 ways in which five rows may use a pair so that both are used.
#[test]
fn evidence_of_a_pair() {
    on_random_states(NORMAL_MEAN, |model, state, stream| {
        let projections = fresh_projections(model, state);
        for features in (1..state.n_features()).map(|l| [l - 1, l]) {
            let case = PairCase::new(state, &projections, features);
            let plane = case.pair.plane(Rotation::draw(1.0, stream), case.gram);
            let ln_weights: Vec<[f64; 4]> = case.rows.iter().map(|row| plane.ln_weights(row.inner)).collect();
            let way = |code: usize| {
                let uses: Vec<usize> = (0..N_ROWS).map(|row| code >> (2 * row) & 3).collect();
                let ln_weight: f64 = uses.iter().zip(&ln_weights).map(|(using, weights)| weights[*using]).sum();
                (uses.iter().fold(0, |all, using| all | using) == BOTH).then_some(ln_weight)
            };
            let ways: Vec<f64> = (0..1 << (2 * N_ROWS)).filter_map(way).collect();
            let most = ways.iter().fold(f64::NEG_INFINITY, |most: f64, x| most.max(*x));
            let slow = most + ways.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
            // All rows in one chunk, and each in its own.
            let one = [ChunkView::new(case.rows.iter().copied())];
            let each: Vec<ChunkView> = case.rows.iter().map(|row| ChunkView::new([*row].into_iter())).collect();
            for chunks in [&one[..], &each] {
                let mut uses = vec![ChunkUses::default(); chunks.len()];
                for (rows, place) in chunks.iter().zip(uses.chunks_mut(1)) {
                    let work = UsesOfChunk { pair: &case.pair, rows, planes: &[plane], places: place };
                    pulp::Arch::new().dispatch(work);
                }
                let found = pair_rotation::ln_evidence(uses.iter());
                assert_close(found, slow, 1e-12, 1.0 + slow.abs(), "evidence of a pair");
            }
        }
    });
}

/// A kernel's turn leaves projections that are those of the new features.
#[test]
fn projections_follow_pair_rotations() {
    let turn = Turn { streams: Streams { seed: 6, chain: 0, sweep: 1 }, phase: Phase::Sampling };
    on_random_states(NORMAL_MEAN, |model, state, _| {
        let (mut moved, mut projections) = (state.clone(), fresh_projections(model, state));
        let info = pair_rotation::update(model, &mut moved, &mut projections, &turn);
        let k = state.n_features();
        assert_eq!(info.proposed as usize, pair_rotation::n_pairs(k, model.data.n_modes()));
        assert!(moved.loadings.counts().iter().all(|count| *count > 0), "no feature dies");
        assert_eq!(info.accepted == 0, moved == *state);
        let fresh = fresh_projections(model, &moved);
        let size = 1.0 + fresh.gram().iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        fresh.gram().iter().zip(projections.gram()).for_each(|(x, y)| assert_close(*y, *x, 1e-9, size, "S S'"));
        for row in 0..N_ROWS {
            let size = 10.0 + fresh.row(row).iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            fresh.row(row).iter().zip(projections.row(row)).for_each(|(x, y)| assert_close(*y, *x, 1e-9, size, "Y S'"));
        }
    });
}

#[test]
fn sign_flips() {
    on_random_states(NORMAL_MEAN, |model, state, _| {
        let WeightMeanPrior::Normal(prior) = model.priors.weight_mean else { panic!("the prior is normal") };
        for feature in 0..state.n_features() {
            let turned: Vec<bool> = (0..state.n_features()).map(|k| k == feature).collect();
            let mut moved = state.clone();
            moved.features.turn_signs(&turned);
            moved.loadings.turn_signs(&turned);
            moved.weight_means[feature] *= -1.0;
            let (change, size) = ln_joint_change(model, state, &moved);
            let ratio = sign_flip::ln_ratio(prior, state.weight_means[feature]);
            assert_close(ratio, change, TOLERANCE, size, "sign flip");
        }
    });
    let turn = Turn { streams: Streams { seed: 5, chain: 0, sweep: 1 }, phase: Phase::Sampling };
    let centred = WeightMeanPrior::Normal(NormalPrior { mean: 0.0, precision: 2.0 });
    for nowhere in [centred, WeightMeanPrior::Fixed(0.0), WeightMeanPrior::Fixed(1.0)] {
        on_random_states(nowhere, |model, state, _| {
            let (mut moved, mut projections) = (state.clone(), fresh_projections(model, state));
            let info = sign_flip::update(model, &mut moved, &mut projections, &turn);
            assert!(info.proposed == 0 && moved == *state && projections.features_are_fresh());
        });
    }
}
