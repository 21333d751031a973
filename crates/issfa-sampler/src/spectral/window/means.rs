//! Means of the features given what was observed in a window, by conjugate gradients: there is no basis in which both the
//! prior and what was observed are diagonal.

use super::Window;
use super::gathered::{share_out, statistic};
use super::system::{Goal, System};
use super::turned::Rotation;
use crate::numeric::linalg::Real;
use crate::spectral::{FeatureConditional, FeatureSpectra, Pass};
use crate::structure::Direction;

impl Window {
    /// The mean of the features' conditional given what was observed.
    pub fn means<R: Real>(&self, pass: &Pass<R>, conditional: &FeatureConditional) -> FeatureSpectra<R> {
        self.means_up_to(Goal::MEAN, pass, conditional)
    }

    pub(super) fn means_up_to<R: Real>(
        &self,
        goal: Goal,
        pass: &Pass<R>,
        conditional: &FeatureConditional,
    ) -> FeatureSpectra<R> {
        let FeatureConditional { rotation, noise_variance, precisions } = *conditional;
        let (k, comm) = (pass.loadings.n_features(), pass.comm);
        let incomplete = self.turned_weights(pass.loadings, &rotation.vectors, k);
        let from_data: Vec<f64> = rotation.values.iter().map(|value| value.max(0.0) / noise_variance).collect();
        let turning = Rotation::<R>::new(&rotation.vectors, k);
        let turned = statistic(pass, &turning);
        let pull = |i: usize, scratch: &mut Vec<f64>| {
            let mut image = vec![0.0; self.structure.n_sites()];
            self.sites.iter().zip(&turned[i]).for_each(|(&site, b)| image[site] = b.to_f64() / noise_variance);
            self.structure.apply(Direction::ToSpectrum, &mut image, scratch);
            image
        };
        let system =
            |from_data| System { window: self, incomplete: &incomplete, noise_variance, from_data, precisions };
        let solved = if incomplete.is_empty() {
            // Rotated features then have nothing to do with each other.
            share_out(comm, turned.len(), |i, scratch| {
                system(&from_data[i..=i]).solve::<R>(vec![pull(i, scratch)], goal).swap_remove(0)
            })
        } else {
            system(&from_data).solve::<R>(share_out(comm, turned.len(), pull), goal)
        };
        turning.back(self.structure.n_sites(), &solved)
    }
}
