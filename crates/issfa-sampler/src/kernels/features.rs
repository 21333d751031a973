//! All features given the loadings, the noise and theta \[M2\]: jointly, or one after the other.

use super::{Info, Turn};
use crate::comm::told_by_rank_0;
use crate::model::{Loadings, Model, State};
use crate::numeric::eigen::{Eigen, symmetric_eigen};
use crate::numeric::linalg::Real;
use crate::rng::{Purpose, Streams};
use crate::spectral::{FeatureConditional, FeatureDraw, FeatureSpectra, OneByOne, Outside, Projections};
use rand::seq::SliceRandom;

/// Of the sweeps in which features are drawn anew outside, one in so many draws them jointly inside and outside, where the others
/// draw them given inside.
pub const JOINT_ONE_IN: u64 = 8;
/// What drawing them outside given inside takes of the time of a joint draw, about, where it is done.
pub const SHARE_GIVEN_INSIDE: f64 = 0.3;

/// Draws every feature at every mode in one pass over the data, which leaves fresh projections behind.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let (rotation, precisions) = (rotation(model, state), model.spectrum.precisions(&state.theta()));
    let noise_variance = state.noise_variance;
    let conditional = FeatureConditional { rotation: &rotation, noise_variance, precisions: &precisions };
    let outside = outside(model, &precisions, &turn.streams);
    let draw = FeatureDraw { conditional, streams: &turn.streams, outside };
    *projections = model.domain.draw(&model.pass(&state.loadings), &draw, &mut state.features);
    Info::default()
}

/// The basis that diagonalises `W'W`; where there are more features than rows, the part of it that rows tell of.
fn rotation<R: Real>(model: &Model<R>, state: &State<R>) -> Eigen {
    let (n, sharing) = (state.n_features(), model.data.sharing());
    let eigen = if n > state.loadings.n_rows() {
        state.loadings.gathered(sharing).map(|loadings| thin_rotation(&loadings))
    } else {
        state.loadings.gram_on_rank_0(sharing).map(|gram| symmetric_eigen(&gram, n))
    };
    let numbers = told_by_rank_0(model.comm.as_ref(), || {
        let eigen = eigen.expect("rank 0 has it");
        [eigen.values, eigen.vectors].concat()
    });
    let n_values = numbers.len() / (n + 1);
    Eigen { values: numbers[..n_values].to_vec(), vectors: numbers[n_values..].to_vec() }
}

/// Beside the largest: eigenvalues that are rounding errors, and those whose vectors need to be made orthogonal again.
const NO_EIGENVALUE: f64 = 1e-14;
const INEXACT: f64 = 1e-6;

/// Eigenvectors of `W'W` with eigenvalues above 0, from those of the smaller `W W'`: with `W W' = Q L Q'` they are the columns
/// of `W' Q L^-1/2`.
pub fn thin_rotation(loadings: &Loadings) -> Eigen {
    let (n_rows, k) = (loadings.n_rows(), loadings.n_features());
    let eigen = symmetric_eigen(&loadings.row_gram(), n_rows);
    let largest = eigen.values.last().copied().unwrap_or(0.0);
    let (mut values, mut columns): (Vec<f64>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    for place in (0..n_rows).rev().filter(|&place| eigen.values[place] > NO_EIGENVALUE * n_rows as f64 * largest) {
        let value = eigen.values[place];
        let mut column = vec![0.0; k];
        for (row, entries) in loadings.rows().iter().enumerate() {
            let along = eigen.vectors[row * n_rows + place] / value.sqrt();
            entries.iter().for_each(|entry| column[entry.feature] += along * entry.weight);
        }
        if value > INEXACT * largest || make_orthogonal(&mut column, &columns) {
            values.push(value);
            columns.push(column);
        }
    }
    let r = values.len();
    Eigen { values, vectors: (0..k * r).map(|at| columns[at % r][at / r]).collect() }
}

/// Takes what others hold off a column and makes its length 1, unless next to nothing is left.
fn make_orthogonal(column: &mut [f64], others: &[Vec<f64>]) -> bool {
    for _ in 0..2 {
        for other in others {
            let along: f64 = column.iter().zip(other).map(|(x, p)| x * p).sum();
            column.iter_mut().zip(other).for_each(|(x, p)| *x -= along * p);
        }
        let norm = column.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm < 0.1 {
            return false;
        }
        column.iter_mut().for_each(|x| *x /= norm);
    }
    true
}

/// Drawing what was not observed and the features in turn costs 2K transforms and leaves the law alone, but a smooth mode
/// that lies outside needs about `lambda / (sigma^2 h)` turns to forget where it was. So every few sweeps the features are drawn
/// anew outside, given what they are inside: some 20 times as many transforms. In the first sweep, and now and then, they are
/// drawn jointly, which takes three times as many again. Where the prior ties sites outside to those inside by more than their
/// rims (a steep curve, sites scattered over the grid) it is the other way round, and they are always drawn jointly. Which of the
/// two hangs on theta, which stays as it is here, and on random numbers of its own.
fn outside<R: Real>(model: &Model<R>, precisions: &[f64], streams: &Streams) -> Outside {
    let (sweep, every) = (streams.sweep, model.joint_every.max(1));
    let joint_every = every.saturating_mul(JOINT_ONE_IN);
    if sweep % every != 1 % every {
        Outside::InTurn
    } else if sweep % joint_every != 1 % joint_every && model.domain.is_quick_outside::<R>(precisions, streams) {
        Outside::GivenInside
    } else {
        Outside::Jointly
    }
}

/// Whether features are drawn given inside now and then, as they would be in this state; for those who plan.
pub fn is_drawn_given_inside<R: Real>(model: &Model<R>, state: &State<R>, streams: &Streams) -> bool {
    model.domain.is_quick_outside::<R>(&model.spectrum.precisions(&state.theta()), streams)
}

/// The same law reached feature by feature, as samplers of this kind usually do: it mixes worse, and is here to show that.
pub fn update_one_by_one<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections<R>,
    turn: &Turn,
) -> Info {
    let gram = state.loadings.gram_on_rank_0(model.data.sharing());
    let gram = told_by_rank_0(model.comm.as_ref(), || gram.expect("rank 0 has it"));
    let precisions = model.spectrum.precisions(&state.theta());
    // Storage order tells ages, so the order of the scan is drawn anew, and is the same for all modes.
    let mut order: Vec<usize> = (0..state.n_features()).collect();
    order.shuffle(&mut turn.streams.stream(Purpose::FeatureOrder, 0, 0));
    let noise_variance = state.noise_variance;
    let conditional = OneByOne { gram: &gram, order: &order, noise_variance, precisions: &precisions };
    let pass = model.pass(&state.loadings);
    *projections = model.domain.draw_one_by_one(&pass, &conditional, &turn.streams, &mut state.features);
    Info::default()
}

/// The mean of the features given everything else in the state.
pub fn conditional_means<R: Real>(model: &Model<R>, state: &State<R>) -> FeatureSpectra<R> {
    let (rotation, precisions) = (rotation(model, state), model.spectrum.precisions(&state.theta()));
    let noise_variance = state.noise_variance;
    let conditional = FeatureConditional { rotation: &rotation, noise_variance, precisions: &precisions };
    model.domain.means(&model.pass(&state.loadings), &conditional)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Entry, Priors};
    use crate::spectral::{SpectralData, Window};
    use crate::structure::{Curve, Spectrum, expression};
    use std::sync::Arc;

    /// How features are drawn in some sweep, on a square with a disc inside.
    fn outside_in(sweep: u64, curve: &str, theta: &[f64]) -> Outside {
        let structure = Arc::new(expression::build(Some("path(24) x path(24)"), None).unwrap());
        let is_inside = |site: &usize| ((site / 24) as f64 - 11.5).hypot((site % 24) as f64 - 11.5) < 9.0;
        let sites: Vec<usize> = (0..24 * 24).filter(is_inside).collect();
        let spectrum = Spectrum::new(&structure, &Curve::parse(curve).unwrap());
        let (data, priors) =
            (SpectralData::<f32>::from_rows(&[vec![0.0; sites.len()]]), Priors::default_for(theta.len()));
        let model = Model::in_window(data, Window::new(structure, sites, vec![vec![]]), spectrum, priors);
        outside(&model, &model.spectrum.precisions(theta), &Streams { seed: 1, chain: 1, sweep })
    }

    /// Where drawing outside given inside would take many steps, or get nowhere, features are drawn jointly instead; never more often
    /// than `joint_every` says.
    #[test]
    fn features_are_drawn_jointly_where_the_prior_is_steep() {
        for (curve, theta) in [("q", &[1.0, 100.0][..]), ("q", &[1e-3, 1e3]), ("axes", &[1.0, 10.0, 1000.0])] {
            let drawn = [1, 2, 20, 21, 141, 161].map(|sweep| outside_in(sweep, curve, theta));
            use Outside::{GivenInside, InTurn, Jointly};
            assert_eq!(drawn, [Jointly, InTurn, InTurn, GivenInside, GivenInside, Jointly], "{curve} {theta:?}");
        }
        for (curve, theta) in [("q^3", [1.0, 1e3]), ("q^5", [1.0, 1e3]), ("q^6", [1.0, 100.0]), ("q^12", [1.0, 1e3])] {
            let drawn = [1, 2, 20, 21, 141, 161].map(|sweep| outside_in(sweep, curve, &theta));
            use Outside::{InTurn, Jointly};
            assert_eq!(drawn, [Jointly, InTurn, InTurn, Jointly, Jointly, Jointly], "{curve} {theta:?}");
        }
    }

    /// `P L P' = W'W` and `P'P = I`, with a pair of rows that are nearly copies.
    #[test]
    fn a_thin_rotation_diagonalises() {
        let weight = |row: usize, feature: usize| ((row * row * 5 + 3 * row * feature + feature) as f64 * 1.3).sin();
        let mut rows: Vec<Vec<Entry>> =
            (0..4).map(|row| (0..7).map(|feature| Entry { feature, weight: weight(row, feature) }).collect()).collect();
        rows[3] = rows[2].iter().map(|entry| Entry { weight: entry.weight * (1.0 + 1e-7), ..*entry }).collect();
        rows[3][1].weight += 1e-6;
        let loadings = Loadings::from_rows(rows, 7);
        let Eigen { values, vectors } = thin_rotation(&loadings);
        let (r, gram) = (values.len(), loadings.gram());
        assert!((3..=4).contains(&r), "{r}");
        for (a, b) in (0..7).flat_map(|a| (0..7).map(move |b| (a, b))) {
            let entry: f64 = (0..r).map(|i| vectors[a * r + i] * values[i] * vectors[b * r + i]).sum();
            assert!((entry - gram[a * 7 + b]).abs() < 1e-12, "{a} {b}: {entry} {}", gram[a * 7 + b]);
        }
        for (i, j) in (0..r).flat_map(|i| (0..r).map(move |j| (i, j))) {
            let product: f64 = (0..7).map(|a| vectors[a * r + i] * vectors[a * r + j]).sum();
            assert!((product - f64::from(u8::from(i == j))).abs() < 1e-9, "{i} {j}: {product}");
        }
    }
}
