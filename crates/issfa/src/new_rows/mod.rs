//! Weights of rows that were not part of the fit, given a kept state: Gibbs updates without births \[M12\].

pub mod transform;

use crate::comm::Solo;
use crate::kernels::shared_activations::{FeatureTerms, sample_new_row};
use crate::model::{Entry, Loadings, NormalPrior, State};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::spectral::load::Loaded;
use crate::spectral::{FeatureSpectra, Pass, Projections, squared_row_norms};

/// How many updates a row gets, and how many of the first are left out of the means.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// All of them.
    pub sweeps: usize,
    /// The first ones, left out.
    pub dropped: usize,
}

impl Effort {
    /// For results.
    pub const FULL: Effort = Effort { sweeps: 25, dropped: 10 };
    /// For intervals: the last of as many updates as results get.
    pub const ONE_DRAW: Effort = Effort { sweeps: 25, dropped: 24 };
    /// For a trace: one draw after a short warm-up.
    pub const BRIEF: Effort = Effort { sweeps: 5, dropped: 4 };
}

/// Means over one row's updates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowMeans {
    /// Mean of A o Z, one a feature.
    pub weights: Vec<f64>,
    /// Share of updates in which the feature was active.
    pub activation: Vec<f64>,
}

/// The terms of every feature for a new row: prior odds `m_k / (T + beta - m_k)`.
pub fn feature_terms<R: Real>(state: &State<R>, squared_norms: &[f64]) -> Vec<FeatureTerms> {
    let n_rows = state.loadings.n_rows() as f64;
    let one = |feature: usize| {
        let count = state.loadings.counts()[feature] as f64;
        FeatureTerms {
            squared_norm: squared_norms[feature],
            noise_variance: state.noise_variance,
            weight: NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] },
            ln_prior_odds: Some((count / (n_rows + state.ibp_repulsion - count)).ln()),
        }
    };
    (0..state.n_features()).map(one).collect()
}

/// One row's means given its inner products with the features and theirs with each other.
pub fn infer_row(
    terms: &[FeatureTerms],
    with_data: &[f64],
    gram: &[f64],
    effort: Effort,
    stream: &mut impl rand::Rng,
) -> RowMeans {
    let mut means = RowMeans { weights: vec![0.0; terms.len()], activation: vec![0.0; terms.len()] };
    let share_of_one = 1.0 / (effort.sweeps - effort.dropped) as f64;
    sample_new_row(terms, with_data, gram, effort.sweeps, stream, |sweep, entries: &[Entry]| {
        if sweep >= effort.dropped {
            for entry in entries {
                means.weights[entry.feature] += share_of_one * entry.weight;
                means.activation[entry.feature] += share_of_one;
            }
        }
    });
    means
}

/// Projects new rows onto features, over the cells that they hold.
fn project_rows<R: Real>(rows: &Loaded<R>, features: &FeatureSpectra<R>) -> Projections<R> {
    let data = &rows.data;
    let norms: Vec<f64> = squared_row_norms(data, &Solo).iter().map(|x| x.sqrt()).collect();
    let nothing = Loadings::empty(data.n_rows());
    let pass = Pass { data, row_norms: &norms, loadings: &nothing, comm: &Solo };
    rows.domain.project(&pass, &mut features.clone())
}

/// Means of new rows, all in parallel; `first_row` numbers their random streams.
///
/// `features` are the conditional means of the state's features and not the features themselves: a draw S = m + d has
/// noise d in every mode, and the likelihood `|y - w S|^2` would charge `w^2 |d|^2 / 2 sigma^2` to every row that uses the
/// feature. With S integrated out a row sees `N(w m, sigma^2 + w' D w)`, whose second term is to first order without effect
/// on w.
pub fn infer<R: Real>(
    rows: &Loaded<R>,
    state: &State<R>,
    features: &FeatureSpectra<R>,
    effort: Effort,
    streams: &Streams,
    first_row: usize,
) -> (Vec<RowMeans>, Projections<R>) {
    infer_keyed(rows, state, features, effort, streams, |row| (first_row + row) as u64)
}

/// [`infer`] with random streams by a key of each row.
pub fn infer_keyed<R: Real>(
    rows: &Loaded<R>,
    state: &State<R>,
    features: &FeatureSpectra<R>,
    effort: Effort,
    streams: &Streams,
    key: impl Fn(usize) -> u64 + Sync,
) -> (Vec<RowMeans>, Projections<R>) {
    let projections = project_rows(rows, features);
    let terms_with = |gram: &[f64]| {
        let k = state.n_features();
        let norms: Vec<f64> = (0..k).map(|feature| gram[feature * k + feature].max(0.0)).collect();
        feature_terms(state, &norms)
    };
    let terms = terms_with(projections.gram());
    let mut inferred = vec![RowMeans::default(); rows.data.n_rows()];
    share(
        inferred.iter_mut().enumerate(),
        || (),
        |_, (row, means)| {
            let mut stream = streams.stream(Purpose::NewRows, 0, key(row));
            let own = projections.own_gram(row).map(terms_with);
            let (terms, gram) = (own.as_ref().unwrap_or(&terms), projections.gram_of(row));
            *means = infer_row(terms, projections.row(row), gram, effort, &mut stream);
        },
    );
    (inferred, projections)
}

/// The mean squared residual of held-out rows under one state and the means of its features, in the sampler's units.
pub fn mean_squared_residual<R: Real>(
    heldout: &Loaded<R>,
    state: &State<R>,
    features: &FeatureSpectra<R>,
    streams: &Streams,
) -> f64 {
    let data = &heldout.data;
    let (rows, projections) = infer(heldout, state, features, Effort::BRIEF, streams, 0);
    let k = state.n_features();
    let squares = squared_row_norms(data, &Solo);
    let residual = |(row, means): (usize, &RowMeans)| {
        let (w, g, c) = (&means.weights, projections.row(row), projections.gram_of(row));
        let linear: f64 = w.iter().zip(g).map(|(w, g)| w * g).sum();
        let quadratic: f64 = (0..k).map(|i| w[i] * (0..k).map(|j| c[i * k + j] * w[j]).sum::<f64>()).sum();
        squares[row] - 2.0 * linear + quadratic
    };
    rows.iter().enumerate().map(residual).sum::<f64>() / heldout.n_cells()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::features::conditional_means;
    use crate::kernels::{Kernel, Phase, Turn};
    use crate::model::{Model, Priors, simulate};
    use crate::spectral::Domain;
    use crate::structure::{Curve, Spectrum, expression};

    /// One feature that 30 rows use, hidden in noise at 3000 modes; new rows use it with weight 2.
    ///
    /// Given its conditional mean the weights of new rows come out right. Given a draw they come out too small by the share
    /// of the draw's squared norm that is scatter: this is what \[M12\] is about.
    #[test]
    fn weights_of_new_rows_are_right_on_average_with_means_and_too_small_with_draws() {
        const TRUE_WEIGHT: f64 = 2.0;
        let (n_rows, n_modes, n_new) = (30, 3000, 400);
        let structure = expression::build(Some("iid(3000)"), None).unwrap();
        let spectrum = Spectrum::new(&structure, &Curve::default());
        let mut stream = Streams::once(8).stream(Purpose::Simulation, 0, 0);
        let mut state = State::<f64>::empty(n_rows, n_modes, 1);
        let weights = |n: usize, weight: f64| Loadings::from_rows(vec![vec![Entry { feature: 0, weight }]; n], 1);
        state.loadings = weights(n_rows, 1.0);
        state.ln_theta = vec![30.0_f64.ln()];
        state.features.push(&simulate::feature_spectrum(&vec![30.0; n_modes], &mut stream));
        state.feature_ids.push(1);
        // A wide prior for the weight, so that it does not shrink what is inferred.
        state.weight_means.push(0.0);
        state.weight_precisions.push(1e-6);
        state.noise_variance = 1.0;
        let data = simulate::data_given_state(&state, &mut stream);
        let new_state = State { loadings: weights(n_new, TRUE_WEIGHT), ..state.clone() };
        let new_rows = Loaded {
            data: simulate::data_given_state(&new_state, &mut stream),
            domain: Domain::Modes,
            row_means: Vec::new(),
        };
        let model = Model::new(data, spectrum, Priors::default_for(1));
        let streams = Streams { seed: 8, chain: 1, sweep: 1 };
        let turn = Turn { streams, phase: Phase::Sampling };
        Kernel::Features.update(&model, &mut state, &mut Projections::default(), &turn);
        let means = conditional_means(&model, &state);
        let mean_weight = |features: &FeatureSpectra<f64>| {
            let (rows, _) = infer(&new_rows, &state, features, Effort::FULL, &streams, 0);
            rows.iter().map(|row| row.weights[0]).sum::<f64>() / n_new as f64
        };
        // Prior and noise say as much of a mode as 30 rows do, so that half of the feature is known.
        let with_means = mean_weight(&means);
        assert!((with_means - TRUE_WEIGHT).abs() < 0.1, "{with_means}");
        let with_a_draw = mean_weight(&state.features);
        assert!((with_a_draw - 0.5 * TRUE_WEIGHT).abs() < 0.15, "{with_a_draw}");
    }
}
