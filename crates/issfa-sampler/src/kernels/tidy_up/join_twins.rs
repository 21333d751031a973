//! Joins pairs of features that describe the same true one in different rows.
//!
//! Early births often find the same feature from several rows at once. Each copy then holds its own rows, and Gibbs
//! updates move rows between copies one by one. For pairs that look alike this step compares the evidence of two
//! features with that of one (spectra integrated out, weights carried over) and joins them where one is better.

use super::disjoint;
use crate::comm::all_gather_values;
use crate::kernels::Info;
use crate::model::log_joint::ln_normal_density;
use crate::model::{Entry, Model, NormalPrior, State, ibp};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{
    Domain, FeatureSpectra, Projections, Sharing, TileRow, Window, sum_over_rows, sum_over_tiles, within,
};
use std::ops::Range;
use std::sync::Arc;

/// Pairs looked at in one sweep.
const MOST_PAIRS: usize = 16;
/// The least absolute cosine of a pair that is looked at.
const ALIKE: f64 = 0.25;

/// A pair and what joining it would mean: the second feature counts as `factor` times the first.
struct Twins {
    stays: usize,
    goes: usize,
    factor: f64,
    /// Rows that use either, with the weights of both.
    rows: Vec<(usize, [f64; 2])>,
    /// Features that these rows use, all in all.
    n_entries: f64,
}

/// Looking at pairs may take this share of the products that a pass over the data takes.
const SHARE_OF_A_PASS: f64 = 0.1;

/// Joins every pair of untouched features that is better off as one.
pub fn run<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &Projections<R>,
    touched: &[bool],
    sweep: u64,
) -> Info {
    let pairs = within_bounds(alike(model, state, projections, touched), state, sweep);
    // Features that were touched are no longer those that the projections know.
    let known = if touched.contains(&true) { None } else { projections.columns() };
    let gains = evidence_gains(model, state, known, &pairs);
    let better = |twins: &Twins, gain: f64| gain + prior_gain(state, twins) > 0.0;
    let joined: Vec<&Twins> =
        pairs.iter().zip(&gains).filter(|(twins, gain)| better(twins, **gain)).map(|p| p.0).collect();
    for twins in &joined {
        carry_over(state, twins, model.data.sharing());
    }
    let mut gone: Vec<usize> = joined.iter().map(|twins| twins.goes).collect();
    gone.sort_unstable();
    state.remove_features(&gone);
    Info { proposed: pairs.len() as u32, accepted: gone.len() as u32, ..Info::default() }
}

/// Disjoint pairs of features that look alike, the most alike first.
fn alike<R: Real>(model: &Model<R>, state: &State<R>, projections: &Projections<R>, touched: &[bool]) -> Vec<Twins> {
    let (k, gram) = (state.n_features(), projections.gram());
    let mut scored = Vec::new();
    for j in 0..k {
        for l in j + 1..k {
            let cosine = gram[j * k + l] / (gram[j * k + j] * gram[l * k + l]).sqrt();
            if cosine.abs() > ALIKE {
                scored.push((cosine, j, l));
            }
        }
    }
    scored.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then((a.1, a.2).cmp(&(b.1, b.2))));
    let counts = state.loadings.counts();
    let twins = |[j, l]: [usize; 2]| {
        let (stays, goes) = if counts[j] >= counts[l] { (j, l) } else { (l, j) };
        let sign = gram[j * k + l].signum();
        let factor = sign * (gram[goes * k + goes] / gram[stays * k + stays]).sqrt();
        Twins { stays, goes, factor, rows: Vec::new(), n_entries: 0.0 }
    };
    let pairs = disjoint(scored.into_iter().map(|(_, j, l)| [j, l]), touched, MOST_PAIRS);
    let mut pairs: Vec<Twins> = pairs.into_iter().map(twins).collect();
    find_rows(state, &mut pairs, model.data.sharing());
    pairs
}

/// As many of the pairs as take a share of a pass: each needs the residuals of all its rows. Sweep by sweep others come first,
/// so that all are looked at in time.
fn within_bounds<R: Real>(mut pairs: Vec<Twins>, state: &State<R>, sweep: u64) -> Vec<Twins> {
    let products = |twins: &Twins| twins.n_entries;
    let most = SHARE_OF_A_PASS * state.loadings.n_rows() as f64 * state.n_features() as f64;
    if pairs.iter().map(products).sum::<f64>() <= most {
        return pairs;
    }
    let first = sweep as usize % pairs.len();
    pairs.rotate_left(first);
    let mut spent = 0.0;
    let mut is_within = |twins: &Twins| {
        let is_first = spent == 0.0;
        spent += products(twins);
        is_first || spent <= most
    };
    pairs.into_iter().take_while(|twins| is_within(twins)).collect()
}

/// Fills in the rows of each pair, wherever they are.
fn find_rows<R: Real>(state: &State<R>, pairs: &mut [Twins], sharing: &Sharing) {
    let here = || state.loadings.here().zip(state.loadings.rows());
    let weight = |entries: &[Entry], feature: usize| {
        entries.iter().find(|entry| entry.feature == feature).map_or(0.0, |entry| entry.weight)
    };
    // Number of the pair, row, both weights, and how many features the row uses.
    let mut own = Vec::new();
    for (at, twins) in pairs.iter().enumerate() {
        for (row, entries) in here() {
            let [a, b] = [twins.stays, twins.goes].map(|feature| weight(entries, feature));
            if [a, b] != [0.0, 0.0] {
                own.extend([at as f64, row as f64, a, b, entries.len() as f64]);
            }
        }
    }
    for &[at, row, a, b, n_entries] in sharing.from_lines(own).as_chunks::<5>().0 {
        let twins = &mut pairs[at as usize];
        twins.rows.push((row as usize, [a, b]));
        twins.n_entries += n_entries;
    }
}

/// Log evidence of one feature in place of two, for each pair, all other features given.
fn evidence_gains<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    known: Option<Arc<FeatureSpectra<R>>>,
    pairs: &[Twins],
) -> Vec<f64> {
    let precisions = model.spectrum.precisions(&state.theta());
    let noise = state.noise_variance;
    if pairs.is_empty() {
        return Vec::new();
    }
    if let Domain::Cells(window) = &model.domain {
        let columns = known.unwrap_or_else(|| Arc::new(window.at_columns(&state.features, model.comm.as_ref())));
        let gain = |twins: &Twins| {
            let statistics = statistics_in_window(model, window, state, &columns, twins);
            evidence_gain(twins, &precisions, &statistics, noise)
        };
        return pairs.iter().map(gain).collect();
    }
    let rows: Vec<usize> = pairs.iter().flat_map(|twins| twins.rows.iter().map(|(row, _)| *row)).collect();
    let statistics = sum_over_rows(&model.data, &rows, 2 * pairs.len(), |tile, rows, sums| {
        let (mut statistics, mut residual) = (Vec::new(), Vec::new());
        let (features, data_of) = (state.features.tile(tile), |row: usize| model.data.tile_row(tile, row));
        for (twins, sums) in pairs.iter().zip(sums.chunks_exact_mut(2 * model.data.tiles().width(tile))) {
            add_statistics(data_of, features, state, twins, &rows, &mut statistics, &mut residual);
            sums.copy_from_slice(statistics.as_flattened());
        }
    });
    let first = model.data.tiles().owned().start;
    sum_over_tiles(model.data.tiles(), pairs.len(), model.comm.as_ref(), |tile, modes, slots| {
        let of_pairs = statistics[tile - first].1.chunks_exact(2 * modes.len());
        for ((twins, slot), statistics) in pairs.iter().zip(slots).zip(of_pairs) {
            *slot += evidence_gain(twins, &precisions[modes.clone()], statistics.as_chunks::<2>().0, noise);
        }
    })
}

/// The gain at some modes.
fn evidence_gain(twins: &Twins, precisions: &[f64], statistics: &[[f64; 2]], noise: f64) -> f64 {
    let [a, b, ab] = second_moments(twins);
    let joined = a + 2.0 * twins.factor * ab + twins.factor * twins.factor * b;
    let mut gain = 0.0;
    for (h, [first, second]) in precisions.iter().zip(statistics) {
        let (p, q, r) = (a / noise + h, b / noise + h, ab / noise);
        let determinant = p * q - r * r;
        let two = 0.5 * (h * h / determinant).ln()
            + 0.5 * (q * first * first - 2.0 * r * first * second + p * second * second)
                / (determinant * noise * noise);
        let (precision, sum) = (joined / noise + h, first + twins.factor * second);
        let one = 0.5 * (h / precision).ln() + 0.5 * sum * sum / (precision * noise * noise);
        gain += one - two;
    }
    gain
}

/// The statistics at all modes, with what the pair itself says where nothing was observed.
fn statistics_in_window<R: Real>(
    model: &Model<R>,
    window: &Window,
    state: &State<R>,
    columns: &FeatureSpectra<R>,
    twins: &Twins,
) -> Vec<[f64; 2]> {
    let tiles = model.data.tiles();
    let mut of_tiles: Vec<(usize, Vec<[f64; 2]>)> = tiles.owned().map(|tile| (tile, Vec::new())).collect();
    share(of_tiles.iter_mut(), Vec::new, |residual, (tile, of_tile)| {
        let data_of = |row: usize| model.data.tile_row(*tile, row);
        add_statistics(data_of, columns.tile(*tile), state, twins, &model.data.rows_here(), of_tile, residual);
    });
    let mut seen: Vec<f64> = of_tiles.iter().flat_map(|(_, of_tile)| of_tile.as_flattened()).copied().collect();
    if tiles.is_shared() {
        seen = all_gather_values(model.comm.as_ref(), &seen);
    }
    let pair = [twins.stays, twins.goes].map(|feature| window.image(&state.features.feature(feature)));
    let [a, b, ab] = second_moments(twins);
    let mut images = [[a, ab], [ab, b]]
        .map(|[first, second]| pair[0].iter().zip(&pair[1]).map(|(j, l)| first * j + second * l).collect::<Vec<f64>>());
    for (&site, values) in window.sites().iter().zip(seen.as_chunks::<2>().0) {
        images.iter_mut().zip(values).for_each(|(image, x)| image[site] = *x);
    }
    let [first, second] = images.map(|image| window.spectrum(image));
    first.into_iter().zip(second).map(|(a, b)| [a, b]).collect()
}

/// `w_j'w_j`, `w_l'w_l`, `w_j'w_l`.
fn second_moments(twins: &Twins) -> [f64; 3] {
    let mut moments = [0.0; 3];
    for (_, [a, b]) in &twins.rows {
        moments[0] += a * a;
        moments[1] += b * b;
        moments[2] += a * b;
    }
    moments
}

/// `sum_t w_t r_t` of both features over some rows, at the columns of a tile, r_t the residual without either. Cells that a row lacks count
/// as 0: this is about a better start, and they are few.
fn add_statistics<'a, R: Real>(
    data_of: impl Fn(usize) -> TileRow<'a, R>,
    features: &[R],
    state: &State<R>,
    twins: &Twins,
    rows: &Range<usize>,
    statistics: &mut Vec<[f64; 2]>,
    residual: &mut Vec<f64>,
) {
    let width = features.len() / state.n_features();
    statistics.clear();
    statistics.resize(width, [0.0; 2]);
    for (row, [a, b]) in within(&twins.rows, rows) {
        residual.clear();
        residual.extend(data_of(*row).iter().map(|y| y.to_f64()));
        let others = |entry: &&Entry| entry.feature != twins.stays && entry.feature != twins.goes;
        for entry in state.loadings.row(*row).iter().filter(others) {
            let feature = &features[entry.feature * width..(entry.feature + 1) * width];
            residual.iter_mut().zip(feature).for_each(|(r, s)| *r -= entry.weight * s.to_f64());
        }
        for (sums, r) in statistics.iter_mut().zip(residual.iter()) {
            sums[0] += a * r;
            sums[1] += b * r;
        }
    }
}

/// What joining changes in the prior of activations and weights.
fn prior_gain<R: Real>(state: &State<R>, twins: &Twins) -> f64 {
    let n_rows = state.loadings.n_rows();
    let column = |count: usize| ibp::ln_column_weight(count, n_rows, state.ibp_repulsion);
    let counts = state.loadings.counts();
    let activations = column(twins.rows.len())
        - column(counts[twins.stays])
        - column(counts[twins.goes])
        - (state.ibp_strength * state.ibp_repulsion).ln();
    let prior =
        |feature: usize| NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] };
    let density = |weight: f64, feature: usize| {
        if weight == 0.0 { 0.0 } else { ln_normal_density(weight, prior(feature)) }
    };
    let row = |(_, [a, b]): &(usize, [f64; 2])| {
        let joined = ln_normal_density(a + twins.factor * b, prior(twins.stays));
        joined - density(*a, twins.stays) - density(*b, twins.goes)
    };
    activations + twins.rows.iter().map(row).sum::<f64>()
}

/// Gives the rows of the feature that goes to the one that stays.
fn carry_over<R: Real>(state: &mut State<R>, twins: &Twins, sharing: &Sharing) {
    let here = state.loadings.here();
    state.loadings.edit_rows(sharing, |rows| {
        for (row, [a, b]) in within(&twins.rows, &here) {
            let entries = &mut rows[row - here.start];
            entries.retain(|entry| entry.feature != twins.stays && entry.feature != twins.goes);
            entries.push(Entry { feature: twins.stays, weight: a + twins.factor * b });
            entries.sort_unstable_by_key(|entry| entry.feature);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Kernel, Phase, Turn, refresh};
    use crate::model::{Loadings, Priors};
    use crate::rng::Streams;
    use crate::spectral::SpectralData;
    use crate::structure::{Curve, Spectrum, expression};

    /// Even rows show one pattern, odd rows the same (`twins`) or another one.
    fn split_pair(twins: bool) -> (Model<f64>, State<f64>) {
        let first = [3.0, 1.0, 0.0, -1.0, 2.0, 0.0];
        let second = if twins { first } else { [2.5, -1.5, 1.5, 1.0, 1.0, -1.5] };
        let pattern = |t: usize| if t.is_multiple_of(2) { first } else { second };
        let noise = |t: usize, v: usize| 0.3 * ((t * 7 + v * 13) as f64).sin();
        let row = |t: usize| (0..6).map(|v| pattern(t)[v] + noise(t, v)).collect::<Vec<f64>>();
        let data = SpectralData::from_rows(&(0..20).map(row).collect::<Vec<_>>());
        let structure = expression::build(Some("path(6)"), None).unwrap();
        let spectrum = Spectrum::new(&structure, &Curve::default());
        let mut state = State::empty(20, 6, 2);
        state.features.push(&first);
        state.features.push(&second.map(|x| -1.1 * x));
        let entry = |t: usize| Entry { feature: t % 2, weight: if t.is_multiple_of(2) { 1.0 } else { -0.9 } };
        state.loadings = Loadings::from_rows((0..20).map(|t| vec![entry(t)]).collect(), 2);
        for _ in 0..2 {
            let id = state.new_id();
            state.feature_ids.push(id);
            state.weight_means.push(0.0);
            state.weight_precisions.push(1.0);
        }
        state.noise_variance = 0.05;
        (Model::new(data, spectrum, Priors::default_for(2)), state)
    }

    #[test]
    fn twins_are_joined_and_others_are_not() {
        for (twins, expected) in [(true, 1), (false, 2)] {
            let (model, mut state) = split_pair(twins);
            let mut projections = Projections::default();
            refresh(&model, &mut state, &mut projections);
            run(&model, &mut state, &projections, &[false; 2], 1);
            assert_eq!(state.n_features(), expected);
            assert_eq!(state.loadings.n_active(), 20);
        }
    }

    #[test]
    fn nothing_happens_after_burn_in() {
        let (model, mut state) = split_pair(true);
        let before = state.clone();
        let turn = Turn { streams: Streams { seed: 1, chain: 1, sweep: 2 }, phase: Phase::Sampling };
        let info = Kernel::TidyUp.update(&model, &mut state, &mut Projections::default(), &turn);
        assert_eq!((info, state), (Info::default(), before));
    }

    /// The gain per pair against dense normal densities of the whole data, spectra integrated out mode by mode.
    #[test]
    fn the_evidence_is_that_of_the_dense_model() {
        let (model, mut state) = split_pair(false);
        let mut projections = Projections::default();
        refresh(&model, &mut state, &mut projections);
        let pairs = alike(&model, &state, &projections, &[false; 2]);
        let gain = evidence_gains(&model, &state, None, &pairs)[0];
        let h = model.spectrum.precisions(&state.theta());
        let dense = |weights: &[Vec<f64>]| -> f64 {
            (0..6)
                .map(|v| {
                    let covariance: Vec<f64> = (0..400)
                        .map(|at| {
                            let shared: f64 = weights.iter().map(|w| w[at / 20] * w[at % 20] / h[v]).sum();
                            shared + if at / 20 == at % 20 { state.noise_variance } else { 0.0 }
                        })
                        .collect();
                    let lower = crate::numeric::linalg::cholesky(&covariance, 20).unwrap();
                    let mut z: Vec<f64> = (0..20).map(|t| model.data.row(t)[v]).collect();
                    let mut ln = 0.0;
                    for i in 0..20 {
                        z[i] = (z[i] - (0..i).map(|j| lower[i * 20 + j] * z[j]).sum::<f64>()) / lower[i * 20 + i];
                        ln -= lower[i * 20 + i].ln() + 0.5 * z[i] * z[i];
                    }
                    ln
                })
                .sum()
        };
        let column = |feature: usize| -> Vec<f64> {
            let weight =
                |t: usize| state.loadings.row(t).iter().find(|e| e.feature == feature).map_or(0.0, |e| e.weight);
            (0..20).map(weight).collect()
        };
        let (stays, goes) = (column(pairs[0].stays), column(pairs[0].goes));
        let joined: Vec<f64> = stays.iter().zip(&goes).map(|(a, b)| a + pairs[0].factor * b).collect();
        let expected = dense(&[joined]) - dense(&[stays, goes]);
        assert!((gain - expected).abs() < 1e-8 * expected.abs(), "{gain} {expected}");
    }
}
