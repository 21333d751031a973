//! Means of the features given what was observed in a window, by conjugate gradients: there is no basis in which both the
//! prior and what was observed are diagonal.

use super::Window;
use super::gathered::{share_out, statistic};
use super::system::System;
use super::turned::{Turned, rotated};
use crate::numeric::linalg::Real;
use crate::spectral::{FeatureConditional, FeatureSpectra, Pass};
use crate::structure::Direction;

impl Window {
    /// The mean of the features' conditional given what was observed.
    pub fn means<R: Real>(&self, pass: &Pass<R>, conditional: &FeatureConditional) -> FeatureSpectra<R> {
        let FeatureConditional { rotation, noise_variance, precisions } = *conditional;
        let (k, comm) = (pass.loadings.n_features(), pass.comm);
        let incomplete = self.turned_weights(pass.loadings, &rotation.vectors, k);
        let from_data: Vec<f64> = rotation.values.iter().map(|value| value.max(0.0) / noise_variance).collect();
        let turned = rotated(&rotation.vectors, k, Turned::In, &in_double(&statistic(pass)));
        let pull = |i: usize, scratch: &mut Vec<f64>| {
            let mut image = vec![0.0; self.structure.n_sites()];
            self.sites.iter().zip(&turned[i]).for_each(|(&site, b)| image[site] = b / noise_variance);
            self.structure.apply(Direction::ToSpectrum, &mut image, scratch);
            image
        };
        let system =
            |from_data| System { window: self, incomplete: &incomplete, noise_variance, from_data, precisions };
        let solved = if incomplete.is_empty() {
            // Rotated features then have nothing to do with each other.
            share_out(comm, turned.len(), |i, scratch| {
                let (system, right) = (system(&from_data[i..=i]), vec![pull(i, scratch)]);
                let enough = system.least_size_of_a_mean(&right);
                system.solve::<R>(right, enough).swap_remove(0)
            })
        } else {
            let (system, right) = (system(&from_data), share_out(comm, turned.len(), pull));
            let enough = system.least_size_of_a_mean(&right);
            system.solve::<R>(right, enough)
        };
        let means = rotated(&rotation.vectors, k, Turned::Out, &solved);
        FeatureSpectra::from_vectors(self.structure.n_sites(), &means)
    }
}

fn in_double<R: Real>(rows: &[Vec<R>]) -> Vec<Vec<f64>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_f64()).collect()).collect()
}
