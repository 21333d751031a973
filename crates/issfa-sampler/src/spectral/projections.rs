//! What a pass over the data leaves behind for the rows.

use super::{Entry, FeatureSpectra};
use crate::numeric::linalg::Real;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// `Y S'` and `S S'`: all that the rows need to know of the data. Stale once the features change.
#[derive(Clone, Debug)]
pub struct Projections<R> {
    n_features: usize,
    /// The rows whose products are here: those that this rank updates.
    rows: Range<usize>,
    with_data: Vec<f64>,
    gram: Vec<f64>,
    /// The gram matrices of rows that have holes, and which row has which of them: rows often lack the same cells.
    own_grams: Vec<Vec<f64>>,
    rows_with_holes: BTreeMap<usize, usize>,
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
            rows: 0..0,
            with_data: Vec::new(),
            gram: Vec::new(),
            own_grams: Vec::new(),
            rows_with_holes: BTreeMap::new(),
            columns: None,
            squared_residual: 0.0,
            features_fresh: false,
            residual_fresh: false,
        }
    }
}

impl<R: Real> Projections<R> {
    /// Follows features j and l that became `c[0][0] j + c[0][1] l` and `c[1][0] j + c[1][1] l`: all here is linear in them.
    pub fn combine(&mut self, j: usize, l: usize, c: [[f64; 2]; 2]) {
        assert!(self.features_fresh, "the projections are stale: a pass must come first");
        let k = self.n_features;
        let combine = |x: f64, y: f64| [c[0][0] * x + c[0][1] * y, c[1][0] * x + c[1][1] * y];
        let columns = |matrix: &mut [f64]| {
            for row in matrix.chunks_exact_mut(k) {
                [row[j], row[l]] = combine(row[j], row[l]);
            }
        };
        columns(&mut self.with_data);
        for gram in std::iter::once(&mut self.gram).chain(&mut self.own_grams) {
            columns(gram);
            for at in 0..k {
                [gram[j * k + at], gram[l * k + at]] = combine(gram[j * k + at], gram[l * k + at]);
            }
        }
        self.columns.iter_mut().for_each(|columns| Arc::make_mut(columns).combine(j, l, c));
        self.residual_fresh = false;
    }
}

impl<R> Projections<R> {
    /// Fresh ones.
    pub(super) fn new(
        n_features: usize,
        rows: Range<usize>,
        with_data: Vec<f64>,
        gram: Vec<f64>,
        squared_residual: f64,
    ) -> Self {
        let (features_fresh, residual_fresh) = (true, true);
        let nothing = Projections::default();
        Projections { n_features, rows, with_data, gram, squared_residual, features_fresh, residual_fresh, ..nothing }
    }

    /// Inner products of one row of the data with every feature; of rows that this rank updates.
    pub fn row(&self, row: usize) -> &[f64] {
        assert!(self.features_fresh, "the projections are stale: a pass must come first");
        assert!(self.rows.contains(&row), "the products of row {row} are on another rank: here are {:?}", self.rows);
        let at = row - self.rows.start;
        &self.with_data[at * self.n_features..(at + 1) * self.n_features]
    }

    /// The rows that [`Projections::row`] knows.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
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
        self.rows_with_holes.get(&row).map(|&at| self.own_grams[at].as_slice())
    }

    /// Gives a row a gram matrix of its own (where there is none, that of the last such row) and takes the cells that it lacks
    /// out of the residual; `values` has the features at each of them.
    pub(super) fn leave_out(&mut self, row: usize, entries: &[Entry], values: &[Vec<f64>], gram: Option<Vec<f64>>) {
        for features in values {
            // The data are 0 there, so that the residual holds what the features say.
            let explained: f64 = entries.iter().map(|entry| entry.weight * features[entry.feature]).sum();
            self.squared_residual -= explained * explained;
        }
        self.own_grams.extend(gram);
        self.rows_with_holes.insert(row, self.own_grams.len() - 1);
    }

    /// The features at the columns of a window, where there is one and they are known.
    pub fn columns(&self) -> Option<Arc<FeatureSpectra<R>>> {
        self.columns.clone()
    }

    /// Keeps the features at the columns of a window, where they are known although all else is stale.
    pub fn keep_columns(&mut self, columns: Arc<FeatureSpectra<R>>) {
        self.columns = Some(columns);
    }

    pub(super) fn set_columns(&mut self, columns: FeatureSpectra<R>) {
        self.columns = Some(Arc::new(columns));
    }

    /// `|Y - W S|^2`.
    pub fn squared_residual(&self) -> f64 {
        assert!(self.residual_fresh, "the residual is stale: a pass must come first");
        self.squared_residual
    }

    pub(super) fn set_squared_residual(&mut self, squared_residual: f64) {
        self.squared_residual = squared_residual;
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
