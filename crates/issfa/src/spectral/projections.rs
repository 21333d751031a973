//! What a pass over the data leaves behind for the rows.

use super::{Entry, FeatureSpectra};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `Y S'` and `S S'`: all that the rows need to know of the data. Stale once the features change.
#[derive(Clone, Debug)]
pub struct Projections<R> {
    n_features: usize,
    with_data: Vec<f64>,
    gram: Vec<f64>,
    /// The gram matrices of rows that have holes, by row.
    own_grams: BTreeMap<usize, Arc<Vec<f64>>>,
    /// Within a window: the features at its columns.
    columns: Option<Arc<FeatureSpectra<R>>>,
    squared_residual: f64,
    features_fresh: bool,
    residual_fresh: bool,
}

impl<R> Default for Projections<R> {
    /// Of nothing yet: stale.
    fn default() -> Self {
        Projections {
            n_features: 0,
            with_data: Vec::new(),
            gram: Vec::new(),
            own_grams: BTreeMap::new(),
            columns: None,
            squared_residual: 0.0,
            features_fresh: false,
            residual_fresh: false,
        }
    }
}

impl<R> Projections<R> {
    /// Fresh ones.
    pub(super) fn new(n_features: usize, with_data: Vec<f64>, gram: Vec<f64>, squared_residual: f64) -> Self {
        let (features_fresh, residual_fresh) = (true, true);
        let nothing = Projections::default();
        Projections { n_features, with_data, gram, squared_residual, features_fresh, residual_fresh, ..nothing }
    }

    /// Inner products of one row of the data with every feature.
    pub fn row(&self, row: usize) -> &[f64] {
        assert!(self.features_fresh, "the projections are stale: a pass must come first");
        &self.with_data[row * self.n_features..(row + 1) * self.n_features]
    }

    /// Inner products of the features with each other, row-major.
    pub fn gram(&self) -> &[f64] {
        assert!(self.features_fresh, "the projections are stale: a pass must come first");
        &self.gram
    }

    /// [`Projections::gram`] over what was observed of one row.
    pub fn gram_of(&self, row: usize) -> &[f64] {
        self.own_gram(row).unwrap_or_else(|| self.gram())
    }

    /// The gram matrix of a row that has holes.
    pub fn own_gram(&self, row: usize) -> Option<&[f64]> {
        assert!(self.features_fresh, "the projections are stale: a pass must come first");
        self.own_grams.get(&row).map(|gram| gram.as_slice())
    }

    /// Gives a row a gram matrix of its own and takes the cells that it lacks out of the residual; `values` has the features
    /// at each of them.
    pub(super) fn leave_out(&mut self, row: usize, entries: &[Entry], values: &[Vec<f64>], gram: Arc<Vec<f64>>) {
        for features in values {
            // The data are 0 there, so that the residual holds what the features say.
            let explained: f64 = entries.iter().map(|entry| entry.weight * features[entry.feature]).sum();
            self.squared_residual -= explained * explained;
        }
        self.own_grams.insert(row, gram);
    }

    /// The features at the columns of a window, where there is one and they are known.
    pub fn columns(&self) -> Option<Arc<FeatureSpectra<R>>> {
        self.columns.clone()
    }

    pub(super) fn set_columns(&mut self, columns: FeatureSpectra<R>) {
        self.columns = Some(Arc::new(columns));
    }

    /// `|Y - W S|^2`.
    pub fn squared_residual(&self) -> f64 {
        assert!(self.residual_fresh, "the residual is stale: a pass must come first");
        self.squared_residual
    }

    /// Whether [`Projections::row`] and [`Projections::gram`] may be read.
    pub fn features_are_fresh(&self) -> bool {
        self.features_fresh
    }

    /// Whether [`Projections::squared_residual`] may be read.
    pub fn residual_is_fresh(&self) -> bool {
        self.residual_fresh
    }

    /// To be called when the loadings changed.
    pub fn loadings_changed(&mut self) {
        self.residual_fresh = false;
    }

    /// To be called when features were born, died or were rescaled.
    pub fn features_changed(&mut self) {
        self.columns = None;
        self.features_fresh = false;
        self.residual_fresh = false;
    }
}
