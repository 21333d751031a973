//! The state of a chain: plain data, no generator, no derived quantity, no data matrix.

use super::Loadings;
use crate::numeric::linalg::Real;
use crate::spectral::{FeatureSpectra, Sharing};
use xxhash_rust::xxh3::Xxh3;

/// One point of the posterior. Vectors over features share one order; a feature keeps its id for life.
#[derive(Clone, Debug, PartialEq)]
pub struct State<R> {
    /// A o Z.
    pub loadings: Loadings,
    /// S U, in the precision of the data.
    pub features: FeatureSpectra<R>,
    /// For life, ever larger ones for later births.
    pub feature_ids: Vec<u64>,
    /// What the next feature will be called.
    pub next_feature_id: u64,
    /// tau_k.
    pub weight_means: Vec<f64>,
    /// nu_k.
    pub weight_precisions: Vec<f64>,
    /// sigma^2.
    pub noise_variance: f64,
    /// xi_p = ln theta_p.
    pub ln_theta: Vec<f64>,
    /// alpha.
    pub ibp_strength: f64,
    /// beta.
    pub ibp_repulsion: f64,
}

impl<R: Real> State<R> {
    /// No feature, and the starting values of everything else.
    pub fn empty(n_rows: usize, n_modes: usize, n_parameters: usize) -> State<R> {
        State {
            loadings: Loadings::empty(n_rows),
            features: FeatureSpectra::empty(n_modes),
            feature_ids: Vec::new(),
            next_feature_id: 1,
            weight_means: Vec::new(),
            weight_precisions: Vec::new(),
            noise_variance: 1.0,
            ln_theta: vec![0.0; n_parameters],
            ibp_strength: 1.0,
            ibp_repulsion: 1.0,
        }
    }

    /// K.
    pub fn n_features(&self) -> usize {
        self.feature_ids.len()
    }

    /// theta = exp(xi).
    pub fn theta(&self) -> Vec<f64> {
        self.ln_theta.iter().map(|x| x.exp()).collect()
    }

    /// Gives out the next feature id.
    pub fn new_id(&mut self) -> u64 {
        self.next_feature_id += 1;
        self.next_feature_id - 1
    }

    /// A checksum of everything that all ranks hold alike: all but the features themselves, and the loadings of rows.
    pub fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        let mut add = |bits: u64| hasher.update(&bits.to_le_bytes());
        self.loadings.counts().iter().for_each(|count| add(*count as u64));
        self.feature_ids.iter().for_each(|id| add(*id));
        add(self.next_feature_id);
        let numbers = self.weight_means.iter().chain(&self.weight_precisions).chain(&self.ln_theta);
        let single = [&self.noise_variance, &self.ibp_strength, &self.ibp_repulsion];
        numbers.chain(single).for_each(|x| add(x.to_bits()));
        hasher.digest()
    }

    /// The same state with all features and all rows in one place, on rank 0 alone. All ranks together.
    pub fn gathered(&self, sharing: &Sharing) -> Option<State<R>> {
        let (features, loadings) = (self.features.gathered(sharing.all()), self.loadings.gathered(sharing));
        let (features, loadings) = features.zip(loadings)?;
        // Nothing large is copied: the features are what is large.
        let State { feature_ids, weight_means, weight_precisions, ln_theta, .. } = self;
        Some(State {
            features,
            loadings,
            feature_ids: feature_ids.clone(),
            weight_means: weight_means.clone(),
            weight_precisions: weight_precisions.clone(),
            ln_theta: ln_theta.clone(),
            ..*self
        })
    }

    /// Removes features (sorted places): the last ones alive move into the holes.
    pub fn remove_features(&mut self, dead: &[usize]) {
        if dead.is_empty() {
            return;
        }
        let (moves, n) = moves_into_holes(self.n_features(), dead);
        self.loadings.compact(dead, &moves, n);
        self.features.compact(&moves, n);
        for &(from, to) in &moves {
            self.feature_ids[to] = self.feature_ids[from];
            self.weight_means[to] = self.weight_means[from];
            self.weight_precisions[to] = self.weight_precisions[from];
        }
        self.feature_ids.truncate(n);
        self.weight_means.truncate(n);
        self.weight_precisions.truncate(n);
    }
}

/// Which of the last survivors fills which hole, and how many survive.
fn moves_into_holes(n: usize, dead: &[usize]) -> (Vec<(usize, usize)>, usize) {
    let n_left = n - dead.len();
    let survivors = (n_left..n).filter(|place| dead.binary_search(place).is_err());
    let holes = dead.iter().copied().filter(|&place| place < n_left);
    (survivors.zip(holes).collect(), n_left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_filled_from_the_end() {
        assert_eq!(moves_into_holes(6, &[1, 4]), (vec![(5, 1)], 4));
        assert_eq!(moves_into_holes(6, &[4, 5]), (vec![], 4));
        assert_eq!(moves_into_holes(3, &[0, 1, 2]), (vec![], 0));
        assert_eq!(moves_into_holes(4, &[0, 1]), (vec![(2, 0), (3, 1)], 2));
    }

    #[test]
    fn removal_keeps_all_vectors_in_step() {
        let mut state = State::<f64>::empty(2, 3, 1);
        for k in 0..4 {
            state.loadings.push_unique(k % 2, k as f64);
            state.features.push(&[k as f64; 3]);
            let id = state.new_id();
            state.feature_ids.push(id);
            state.weight_means.push(10.0 * k as f64);
            state.weight_precisions.push(100.0 * k as f64);
        }
        state.remove_features(&[0, 2]);
        assert_eq!(state.feature_ids, [4, 2]);
        assert_eq!(state.weight_means, [30.0, 10.0]);
        assert_eq!(state.weight_precisions, [300.0, 100.0]);
        assert_eq!(state.features.feature(0), [3.0; 3]);
        assert_eq!(
            state.loadings.row(1).iter().map(|e| (e.feature, e.weight)).collect::<Vec<_>>(),
            [(0, 3.0), (1, 1.0)]
        );
        assert_eq!(state.next_feature_id, 5);
    }
}
