//! The features at the cells that were observed, for kernels that change features one by one.

use crate::model::{Model, State};
use crate::numeric::linalg::Real;
use crate::rng::Stream;
use crate::spectral::{Domain, FeatureSpectra, Projections, SpectralData, Window, residuals_at_columns};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The features at the columns of a window, by their ids: births and deaths leave those of the others as they are.
pub(super) struct Images<'a, R> {
    window: &'a Window,
    columns: Arc<FeatureSpectra<R>>,
    ids: Vec<u64>,
}

impl<'a, R: Real> Images<'a, R> {
    /// Where not all cells were observed.
    pub fn of(model: &'a Model<R>, state: &State<R>, projections: &Projections<R>) -> Option<Images<'a, R>> {
        let Domain::Cells(window) = &model.domain else { return None };
        let known = projections.columns();
        let columns = known.unwrap_or_else(|| Arc::new(window.at_columns(&state.features, model.comm.as_ref())));
        Some(Images { window, columns, ids: state.feature_ids.clone() })
    }

    /// What they are images in.
    pub fn window(&self) -> &'a Window {
        self.window
    }

    /// The images; as long as no feature was born or died they stand where the features do.
    pub fn columns(&self) -> &Arc<FeatureSpectra<R>> {
        &self.columns
    }

    /// Follows births: features with ids beyond those that are known.
    pub fn add_newborns(&mut self, state: &State<R>) {
        let columns = Arc::make_mut(&mut self.columns);
        let newest = self.ids.iter().copied().max().unwrap_or(0);
        for (feature, &id) in state.feature_ids.iter().enumerate().filter(|(_, id)| **id > newest) {
            let image = self.window.one_at_columns(state.features.stored(feature), &mut Vec::new());
            columns.push(&image.iter().map(|x| x.to_f64()).collect::<Vec<_>>());
            self.ids.push(id);
        }
    }

    /// Follows a feature that was drawn anew.
    pub fn replace(&mut self, state: &State<R>, feature: usize) {
        let place = self.places(state)[feature];
        let image = self.window.one_at_columns(state.features.stored(feature), &mut Vec::new());
        Arc::make_mut(&mut self.columns).set(place, &image);
    }

    /// Where the image of each feature of the state stands.
    fn places(&self, state: &State<R>) -> Vec<usize> {
        let place: BTreeMap<u64, usize> = self.ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        state.feature_ids.iter().map(|id| place[id]).collect()
    }

    /// The residuals of some rows given all features, as spectra, with what was not observed drawn given the state.
    pub fn complete(
        &self,
        model: &Model<R>,
        state: &State<R>,
        rows: &[usize],
        stream_of: impl Fn(usize) -> Stream + Sync,
    ) -> SpectralData<R> {
        let seen = residuals_at_columns(&model.pass(&state.loadings), rows, &self.columns, &self.places(state));
        self.window.complete_residuals(rows, &seen, state.noise_variance, stream_of)
    }
}
