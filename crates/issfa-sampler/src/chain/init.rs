//! Where a chain starts: clusters of rows, or a single small feature.

use crate::model::{Entry, Loadings, Model, State};
use crate::numeric::linalg::Real;
use crate::rng::{Purpose, Streams};
use crate::spectral::{FeatureSpectra, weighted_rows};
use rand::RngExt;

const LLOYD_STEPS: usize = 10;

/// How often all rows are looked at, about, until there are enough seeds.
const LOOKS: usize = 15;

/// One feature with weight 1 in the first two rows (one, if there is but one).
pub fn empty<R: Real>(model: &Model<R>) -> State<R> {
    let members = (0..model.data.n_rows().min(2)).collect();
    from_clusters(model, vec![members])
}

/// Chains that are to be compared start apart: from clusters of rows, twice as many, one small feature, a third as many, and so
/// on.
pub fn apart<R: Real>(model: &Model<R>, n_clusters: usize, seed: u64, chain: u32) -> State<R> {
    match chain.saturating_sub(1) % 4 {
        0 => k_means(model, n_clusters, seed, chain),
        1 => k_means(model, 2 * n_clusters, seed, chain),
        2 => empty(model),
        _ => k_means(model, n_clusters.div_ceil(3), seed, chain),
    }
}

/// k-means with k-means++ seeding; each cluster becomes a feature that its rows use with weight 1.
pub fn k_means<R: Real>(model: &Model<R>, n_clusters: usize, seed: u64, chain: u32) -> State<R> {
    let mut stream = Streams { seed, chain, sweep: 0 }.stream(Purpose::Initial, 0, 0);
    let n_clusters = n_clusters.min(model.data.n_rows()).min(model.max_features);
    let mut clusters: Vec<Vec<usize>> = seeds(model, n_clusters, &mut stream).iter().map(|&row| vec![row]).collect();
    for _ in 0..LLOYD_STEPS {
        let (next, _) = assign(model, &centroids(model, &clusters));
        let settled = next == clusters;
        clusters = next;
        if settled {
            break;
        }
    }
    clusters.retain(|members| !members.is_empty());
    from_clusters(model, clusters)
}

/// Rows far from each other: each next one with probability proportional to its squared distance from those before, a few at a time
/// where they are many.
fn seeds<R: Real>(model: &Model<R>, n_clusters: usize, stream: &mut impl rand::Rng) -> Vec<usize> {
    let mut chosen = vec![stream.random_range(0..model.data.n_rows())];
    let mut nearest = vec![f64::INFINITY; model.data.n_rows()];
    let (mut n_known, at_once) = (0, n_clusters.div_ceil(LOOKS));
    while chosen.len() < n_clusters {
        let newest: Vec<Vec<usize>> = chosen[n_known..].iter().map(|&row| vec![row]).collect();
        let (_, distances) = assign(model, &centroids(model, &newest));
        nearest.iter_mut().zip(distances).for_each(|(near, d)| *near = near.min(d));
        let total: f64 = nearest.iter().sum();
        if total <= 0.0 {
            break;
        }
        n_known = chosen.len();
        for _ in 0..at_once.min(n_clusters - n_known) {
            let mut left = stream.random::<f64>() * total;
            let pick = nearest.iter().position(|d| {
                left -= d;
                left < 0.0
            });
            chosen.push(pick.unwrap_or(nearest.len() - 1));
        }
    }
    chosen
}

fn centroids<R: Real>(model: &Model<R>, clusters: &[Vec<usize>]) -> FeatureSpectra<R> {
    let share = |members: &Vec<usize>| members.iter().map(|&row| (row, 1.0 / members.len() as f64)).collect();
    weighted_rows(&model.data, &clusters.iter().map(share).collect::<Vec<_>>())
}

/// The rows nearest to each centre, and every row's squared distance to its own.
fn assign<R: Real>(model: &Model<R>, centres: &FeatureSpectra<R>) -> (Vec<Vec<usize>>, Vec<f64>) {
    let k = centres.n_features();
    let mut centres = centres.clone();
    let nothing = Loadings::empty(model.data.n_rows()).part(model.data.rows_here());
    let projections = model.pass(&nothing).project(&mut centres);
    let mut clusters = vec![Vec::new(); k];
    let mut distances = Vec::with_capacity(model.data.n_rows());
    let nearest = |row: usize| {
        let products = projections.row(row);
        let distance = |c: usize| projections.gram()[c * k + c] - 2.0 * products[c];
        let best = (0..k).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0);
        [best as f64, distance(best)]
    };
    let own = projections.rows().flat_map(nearest).collect();
    for (row, &[best, distance]) in model.data.sharing().from_own_rows(own).as_chunks::<2>().0.iter().enumerate() {
        clusters[best as usize].push(row);
        distances.push((distance + model.row_norms[row].powi(2)).max(0.0));
    }
    (clusters, distances)
}

fn from_clusters<R: Real>(model: &Model<R>, clusters: Vec<Vec<usize>>) -> State<R> {
    let n_rows = model.data.n_rows();
    let mut state = State::empty(n_rows, model.spectrum.n_modes(), model.spectrum.n_parameters());
    let mean_square = model.row_norms.iter().map(|norm| norm * norm).sum::<f64>() / model.n_cells();
    state.noise_variance = if mean_square > 0.0 { mean_square } else { 1.0 };
    state.features = model.domain.spectra_of_columns(centroids(model, &clusters), model.comm.as_ref());
    let mut rows = vec![Vec::new(); n_rows];
    let tau = match model.priors.weight_mean {
        crate::model::WeightMeanPrior::Fixed(value) => value,
        crate::model::WeightMeanPrior::Normal(_) => 0.0,
    };
    for (feature, members) in clusters.iter().enumerate() {
        members.iter().for_each(|&row| rows[row].push(Entry { feature, weight: 1.0 }));
        let id = state.new_id();
        state.feature_ids.push(id);
        state.weight_means.push(tau);
        state.weight_precisions.push(1.0);
    }
    state.loadings = Loadings::from_rows(rows, clusters.len()).part(model.data.rows_here());
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Priors;
    use crate::spectral::SpectralData;
    use crate::structure::{Curve, Spectrum, expression};

    fn model(rows: &[Vec<f64>]) -> Model<f64> {
        let structure = expression::build(Some(&format!("path({})", rows[0].len())), None).unwrap();
        let spectrum = Spectrum::new(&structure, &Curve::default());
        let priors = Priors::default_for(spectrum.n_parameters());
        Model::new(SpectralData::from_rows(rows), spectrum, priors)
    }

    #[test]
    fn clear_clusters_are_found() {
        let rows: Vec<Vec<f64>> =
            (0..30).map(|t| vec![10.0 * f64::from(t % 3), f64::from(t) * 0.001, -5.0 * f64::from(t % 3)]).collect();
        let state = k_means(&model(&rows), 3, 1, 1);
        assert_eq!(state.loadings.counts(), [10, 10, 10]);
        for t in 0..27 {
            assert_eq!(state.loadings.row(t)[0].feature, state.loadings.row(t + 3)[0].feature);
        }
    }

    #[test]
    fn degenerate_data_give_a_legal_state() {
        for rows in [vec![vec![0.0, 0.0]], vec![vec![1.0, 1.0]; 5], vec![vec![0.0]; 3]] {
            let model = model(&rows);
            for state in [k_means(&model, 15, 1, 1), empty(&model)] {
                assert!(state.n_features() >= 1 && state.noise_variance > 0.0);
                assert!(state.loadings.counts().iter().all(|&count| count > 0));
            }
        }
    }
}
