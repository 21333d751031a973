//! Weights of rows that were not part of the fit, given a kept state: Gibbs updates without births \[M12\].

pub mod scatter;

use crate::comm::Solo;
use crate::kernels::shared_activations::{FeatureTerms, NewRow};
use crate::model::{Entry, Loadings, NormalPrior, State};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::spectral::load::Loaded;
use crate::spectral::{FeatureSpectra, Pass, Projections, squared_row_norms};
use scatter::{Scatter, UncertainRow};
use serde::Serialize;

/// With fewer training rows than this features are integrated out of new rows; with more they are known well enough for
/// their means to do.
pub const FEW_ROWS: usize = 200;

/// What new rows take the features for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FeaturesAre {
    /// Numbers that are not known, and that the row tells of too.
    IntegratedOut,
    /// Their conditional means: with [`FEW_ROWS`] training rows or more, under a mask, and where cells are missing.
    AtTheirMeans,
}

/// What a kept draw says.
#[derive(Clone, Copy)]
pub struct Known<'a, R> {
    /// All but the features.
    pub state: &'a State<R>,
    /// Degrees of freedom of Student weights.
    pub tails: Option<f64>,
    /// The features' means given all else in the state.
    pub means: &'a FeatureSpectra<R>,
    /// How they scatter about them, if they are to be integrated out of rows that are whole.
    pub scatter: Option<&'a Scatter<R>>,
    /// Features to be left out of [`RowMeans::told`]; empty for none.
    pub left_out: &'a [bool],
}

/// How many updates a row gets, and how many of the first are left out of the means. With the features integrated out as many
/// come before, given their means.
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

    /// The share that each of the others has in the means.
    fn share(self) -> f64 {
        1.0 / (self.sweeps - self.dropped) as f64
    }
}

/// Means over one row's updates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowMeans {
    /// Mean of A o Z, one a feature.
    pub weights: Vec<f64>,
    /// Share of updates in which the feature was active.
    pub activation: Vec<f64>,
    /// By mode, mean of `E[w S | y, w] - w m`: what the row itself tells of its features. Empty where they were taken at their
    /// means.
    pub told: Vec<f64>,
}

impl RowMeans {
    fn zeros(n_features: usize) -> RowMeans {
        RowMeans { weights: vec![0.0; n_features], activation: vec![0.0; n_features], told: Vec::new() }
    }

    /// The weights that are not 0.
    pub fn entries(&self) -> Vec<Entry> {
        let entries = self.weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0);
        entries.map(|(feature, &weight)| Entry { feature, weight }).collect()
    }

    fn add(&mut self, share: f64, entries: &[Entry]) {
        for entry in entries {
            self.weights[entry.feature] += share * entry.weight;
            self.activation[entry.feature] += share;
        }
    }
}

/// The terms of every feature for a new row: prior odds `m_k / (T + beta - m_k)`.
pub fn feature_terms<R: Real>(state: &State<R>, tails: Option<f64>, squared_norms: &[f64]) -> Vec<FeatureTerms> {
    let n_rows = state.loadings.n_rows() as f64;
    let one = |feature: usize| {
        let count = state.loadings.counts()[feature] as f64;
        FeatureTerms {
            squared_norm: squared_norms[feature],
            noise_variance: state.noise_variance,
            weight: NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] },
            tails,
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
    let mut means = RowMeans::zeros(terms.len());
    let mut row = NewRow::new(terms, with_data, gram, &[]);
    for sweep in 0..effort.sweeps {
        row.update(stream);
        if sweep >= effort.dropped {
            means.add(effort.share(), row.entries());
        }
    }
    means
}

/// One row's means with the features integrated out: updates given their means first, since from 0 the exact ones hardly move.
fn infer_uncertain<R: Real>(
    mut row: NewRow,
    spectrum: Vec<f64>,
    (known, scatter): (&Known<R>, &Scatter<R>),
    effort: Effort,
    stream: &mut impl rand::Rng,
) -> RowMeans {
    let mut means = RowMeans { told: vec![0.0; spectrum.len()], ..RowMeans::zeros(known.state.n_features()) };
    (0..effort.sweeps).for_each(|_| row.update(stream));
    let mut uncertain = UncertainRow::new(scatter, known.means, spectrum, row.entries());
    for sweep in 0..effort.sweeps {
        row.update_if(stream, |change, stream| uncertain.accept(change, stream));
        if sweep >= effort.dropped {
            means.add(effort.share(), row.entries());
            uncertain.add_told(effort.share(), row.entries(), known.left_out, &mut means.told);
        }
    }
    means
}

/// Projects new rows onto features, over the cells that they hold.
fn project_rows<R: Real>(rows: &Loaded<R>, features: &FeatureSpectra<R>) -> Projections<R> {
    let data = &rows.data;
    let norms: Vec<f64> = squared_row_norms(data).iter().map(|x| x.sqrt()).collect();
    let nothing = Loadings::empty(data.n_rows());
    let pass = Pass { data, row_norms: &norms, loadings: &nothing, comm: &Solo };
    rows.domain.project(&pass, &mut features.clone())
}

/// Means of new rows, all in parallel; `keys` name their random streams.
///
/// Features come as the conditional means of the state's and not as the features themselves: a draw S = m + d has noise d in
/// every mode, and the likelihood `|y - w S|^2` would charge `w^2 |d|^2 / 2 sigma^2` to every row that uses the feature. With S
/// integrated out a row sees `N(w m, sigma^2 + w' D w)`. With few training rows it is judged by that; with many the second term
/// is small, and to first order without effect on w.
pub fn infer<R: Real>(
    rows: &Loaded<R>,
    known: &Known<R>,
    effort: Effort,
    streams: &Streams,
    keys: &[u64],
) -> (Vec<RowMeans>, Projections<R>) {
    let state = known.state;
    let projections = project_rows(rows, known.means);
    let terms_with = |gram: &[f64]| {
        let k = state.n_features();
        let norms: Vec<f64> = (0..k).map(|feature| gram[feature * k + feature].max(0.0)).collect();
        feature_terms(state, known.tails, &norms)
    };
    let terms = terms_with(projections.gram());
    // The features' covariance is diagonal over modes only.
    let scatter = known.scatter.filter(|_| rows.domain.is_whole());
    let mut inferred = vec![RowMeans::default(); rows.data.n_rows()];
    share(
        inferred.iter_mut().zip(keys).enumerate(),
        || (),
        |_, (row, (means, key))| {
            let mut stream = streams.stream(Purpose::NewRows, 0, *key);
            let own = projections.own_gram(row).map(terms_with);
            let (terms, gram) = (own.as_ref().unwrap_or(&terms), projections.gram_of(row));
            let with_data = projections.row(row);
            *means = match scatter {
                None => infer_row(terms, with_data, gram, effort, &mut stream),
                Some(scatter) => {
                    let new_row = NewRow::new(terms, with_data, gram, &[]);
                    infer_uncertain(new_row, rows.data.row(row), (known, scatter), effort, &mut stream)
                }
            };
        },
    );
    (inferred, projections)
}

/// The numbers of rows that are all there are.
pub fn all_of<R: Real>(rows: &Loaded<R>) -> Vec<u64> {
    (0..rows.data.n_rows() as u64).collect()
}

/// The mean squared residual of held-out rows under one state and the means of its features, in the sampler's units. It is
/// traced in every sweep, so that features stay at their means whatever the number of training rows.
pub fn mean_squared_residual<R: Real>(
    heldout: &Loaded<R>,
    state: &State<R>,
    tails: Option<f64>,
    features: &FeatureSpectra<R>,
    streams: &Streams,
) -> f64 {
    let data = &heldout.data;
    let known = Known { state, tails, means: features, scatter: None, left_out: &[] };
    let (rows, projections) = infer(heldout, &known, Effort::BRIEF, streams, &all_of(heldout));
    let k = state.n_features();
    let squares = squared_row_norms(data);
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
            let known = Known { state: &state, tails: None, means: features, scatter: None, left_out: &[] };
            let (rows, _) = infer(&new_rows, &known, Effort::FULL, &streams, &all_of(&new_rows));
            rows.iter().map(|row| row.weights[0]).sum::<f64>() / n_new as f64
        };
        // Prior and noise say as much of a mode as 30 rows do, so that half of the feature is known.
        let with_means = mean_weight(&means);
        assert!((with_means - TRUE_WEIGHT).abs() < 0.1, "{with_means}");
        let with_a_draw = mean_weight(&state.features);
        assert!((with_a_draw - 0.5 * TRUE_WEIGHT).abs() < 0.15, "{with_a_draw}");
    }
}
