//! Posterior means on the fly: features, weights and activations by feature id, and the reconstruction.
//!
//! Features are compared on unit norm, in the user's units, with their sign turned to the running mean. Standard
//! deviations live in the site domain, so kept features are transformed back at every kept sweep.

use super::smoothness::full_width;
use crate::data::{Mask, Preprocessing};
use crate::model::State;
use crate::noise::Filter;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{FeatureSpectra, SpectralData, Tiles};
use crate::structure::{Direction, Structure};
use std::collections::HashMap;

/// What it takes to show a spectrum in the user's units, at the sites that take part.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// The basis.
    pub structure: &'a Structure,
    /// The sites that take part.
    pub mask: &'a Mask,
    /// The way back to the user's units.
    pub preprocessing: &'a Preprocessing,
    /// What rows were filtered by.
    pub noise: Option<&'a Filter>,
    /// The level of the noise in each row; empty: 1.
    pub row_levels: &'a [f64],
}

impl Shown<'_> {
    /// The columns of a spectrum's image, in the units of prepared rows.
    pub fn prepared(&self, mut spectrum: Vec<f64>, scratch: &mut Vec<f64>) -> Vec<f64> {
        if let Some(filter) = self.noise {
            return filter.show(spectrum, scratch);
        }
        self.structure.apply(Direction::ToSites, &mut spectrum, scratch);
        self.mask.gather(&spectrum)
    }

    /// The columns of a spectrum's image, in the user's units.
    pub fn columns(&self, spectrum: Vec<f64>, scratch: &mut Vec<f64>) -> Vec<f64> {
        let mut columns = self.prepared(spectrum, scratch);
        self.preprocessing.to_units(&mut columns);
        columns
    }

    /// The smoothness of an image along each axis, in sites.
    fn widths(&self, columns: &[f64]) -> Vec<f32> {
        let (image, grid) = (self.mask.scatter(columns, f64::NAN), self.structure.grid());
        (0..grid.len()).map(|axis| full_width(&image, grid, axis) as f32).collect()
    }
}

/// Everything accumulated over kept sweeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    /// Kept sweeps so far.
    pub n_kept: u64,
    /// In the order of their ids.
    pub features: Vec<FeatureMoments>,
    /// Of the rows, where it is wanted.
    pub reconstruction: Option<Reconstruction>,
}

/// Running moments of one feature over the kept sweeps in which it was present.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureMoments {
    /// The feature's own, for life.
    pub id: u64,
    /// Kept sweeps in which it was there.
    pub n_present: u64,
    /// Mean of the unit-norm feature, by site.
    pub mean: Vec<f32>,
    /// Sum of squared deviations from the mean, by site.
    pub deviations: Vec<f32>,
    /// Kept sweeps in which the feature exceeded the size asked for, by site.
    pub exceeds: Vec<u32>,
    /// The smoothness of every kept draw along each axis, in sites, draw by draw.
    pub widths: Vec<f32>,
    /// Sum of weights (for the unit-norm feature), by row.
    pub weights: Vec<f64>,
    /// Kept sweeps in which the row used the feature.
    pub active: Vec<u32>,
    /// Sum over kept sweeps of the squared weights' total: the sum of squares that the feature accounts for.
    pub energy: f64,
}

/// The running mean of `W S`, in the spectral domain.
#[derive(Clone, Debug)]
pub struct Reconstruction {
    /// Rows x modes.
    pub mean: SpectralData<f32>,
}

impl PartialEq for Reconstruction {
    fn eq(&self, other: &Self) -> bool {
        (0..self.mean.tiles().len()).all(|tile| self.mean.tile(tile) == other.mean.tile(tile))
    }
}

impl Posterior {
    /// Nothing yet; `with_reconstruction` is the shape (rows, modes) where the reconstruction is wanted.
    pub fn new(with_reconstruction: Option<(usize, usize)>) -> Posterior {
        let zeros = |(rows, modes)| Reconstruction { mean: SpectralData::zeros(rows, Tiles::whole(modes)) };
        Posterior { n_kept: 0, features: Vec::new(), reconstruction: with_reconstruction.map(zeros) }
    }

    /// Adds the state of a kept sweep; `exceed` is the size that exceedances are counted of, in mean absolute values of a
    /// feature, and `n_planned` how many sweeps will have been kept in the end.
    pub fn add<R: Real>(&mut self, state: &State<R>, shown: &Shown, exceed: f64, n_planned: u64) {
        self.n_kept += 1;
        let places: HashMap<u64, usize> = state.feature_ids.iter().enumerate().map(|(k, &id)| (id, k)).collect();
        // A dead feature never comes back: without half of the planned sweeps it will not be reported.
        self.features.retain(|f| places.contains_key(&f.id) || 2 * f.n_present >= n_planned);
        self.make_room(state, shown.mask.n_columns());
        let columns = columns(state, shown.row_levels);
        let present = self.features.iter_mut().filter_map(|f| places.get(&f.id).map(|&k| (f, k)));
        let present: Vec<(&mut FeatureMoments, usize)> = present.collect();
        share(present.into_iter(), Vec::new, |scratch, (moments, k)| {
            let image = shown.columns(state.features.feature(k), scratch);
            moments.add(&image, &columns[k], exceed, || shown.widths(&image));
        });
        if let Some(reconstruction) = &mut self.reconstruction {
            reconstruction.add(state, self.n_kept);
        }
    }

    fn make_room<R: Real>(&mut self, state: &State<R>, n_columns: usize) {
        let newest = self.features.last().map_or(0, |f| f.id);
        let known = |id: &u64| self.features.binary_search_by_key(id, |f| f.id).is_ok();
        let mut new: Vec<u64> = state.feature_ids.iter().copied().filter(|id| !known(id)).collect();
        new.sort_unstable();
        debug_assert!(new.iter().all(|&id| id > newest), "ids only grow");
        let n_rows = state.loadings.n_rows();
        self.features.extend(new.into_iter().map(|id| FeatureMoments::new(id, n_rows, n_columns)));
    }

    /// Features present in at least half of the kept sweeps, by the sum of squares they account for.
    pub fn persistent(&self) -> Vec<&FeatureMoments> {
        let mut list: Vec<&FeatureMoments> =
            self.features.iter().filter(|f| f.n_present > 0 && 2 * f.n_present >= self.n_kept).collect();
        list.sort_by(|a, b| b.mean_energy().total_cmp(&a.mean_energy()).then(a.id.cmp(&b.id)));
        list
    }
}

/// The (row, weight) entries of each feature; weights are multiplied by the level of the row, if that is known.
fn columns<R: Real>(state: &State<R>, levels: &[f64]) -> Vec<Vec<(usize, f64)>> {
    let mut columns = vec![Vec::new(); state.n_features()];
    for (row, entries) in state.loadings.rows().iter().enumerate() {
        let level = levels.get(row).copied().unwrap_or(1.0);
        entries.iter().for_each(|entry| columns[entry.feature].push((row, level * entry.weight)));
    }
    columns
}

impl FeatureMoments {
    fn new(id: u64, n_rows: usize, n_sites: usize) -> FeatureMoments {
        FeatureMoments {
            id,
            n_present: 0,
            mean: vec![0.0; n_sites],
            deviations: vec![0.0; n_sites],
            exceeds: vec![0; n_sites],
            widths: Vec::new(),
            weights: vec![0.0; n_rows],
            active: vec![0; n_rows],
            energy: 0.0,
        }
    }

    fn add(&mut self, image: &[f64], column: &[(usize, f64)], exceed: f64, widths: impl FnOnce() -> Vec<f32>) {
        let norm = image.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm == 0.0 || !norm.is_finite() {
            return;
        }
        self.n_present += 1;
        self.widths.extend(widths());
        let size = exceed * image.iter().map(|x| x.abs()).sum::<f64>() / image.len() as f64;
        self.exceeds.iter_mut().zip(image).for_each(|(n, x)| *n += u32::from(x.abs() > size));
        let along: f64 = image.iter().zip(&self.mean).map(|(x, &m)| x * f64::from(m)).sum();
        let sign = if along < 0.0 { -1.0 } else { 1.0 };
        let n = self.n_present as f64;
        for ((x, mean), deviation) in image.iter().zip(&mut self.mean).zip(&mut self.deviations) {
            let unit = sign * x / norm;
            let before = unit - f64::from(*mean);
            let moved = f64::from(*mean) + before / n;
            *deviation = (f64::from(*deviation) + before * (unit - moved)) as f32;
            *mean = moved as f32;
        }
        for &(row, weight) in column {
            self.weights[row] += sign * weight * norm;
            self.active[row] += 1;
            self.energy += (weight * norm).powi(2);
        }
    }

    /// The mean sum of squares the feature accounts for, over the sweeps in which it was present.
    pub fn mean_energy(&self) -> f64 {
        self.energy / (self.n_present as f64).max(1.0)
    }
}

impl Reconstruction {
    fn add<R: Real>(&mut self, state: &State<R>, n_kept: u64) {
        let tiles = self.mean.tiles();
        let share_of_new = 1.0 / n_kept as f32;
        share(self.mean.tiles_mut(), Vec::new, |explained: &mut Vec<f32>, (tile, means)| {
            let width = tiles.width(tile);
            let features = state.features.tile(tile);
            for (entries, mean) in state.loadings.rows().iter().zip(means.chunks_exact_mut(width)) {
                explained.clear();
                explained.resize(width, 0.0);
                for entry in entries {
                    let feature = &features[entry.feature * width..(entry.feature + 1) * width];
                    let weight = entry.weight as f32;
                    explained.iter_mut().zip(feature).for_each(|(x, s)| *x += weight * s.to_f64() as f32);
                }
                mean.iter_mut().zip(explained.iter()).for_each(|(m, x)| *m += share_of_new * (x - *m));
            }
        });
    }
}

/// The features of a state by column, of unit norm in the user's units, with their norms.
pub fn unit_images<R: Real>(spectra: &FeatureSpectra<R>, shown: &Shown) -> Vec<(Vec<f64>, f64)> {
    let mut images: Vec<(Vec<f64>, f64)> = (0..spectra.n_features()).map(|k| (spectra.feature(k), 0.0)).collect();
    share(images.iter_mut(), Vec::new, |scratch, (image, norm)| {
        *image = shown.columns(std::mem::take(image), scratch);
        *norm = image.iter().map(|x| x * x).sum::<f64>().sqrt();
        let divisor = if *norm > 0.0 { *norm } else { 1.0 };
        image.iter_mut().for_each(|x| *x /= divisor);
    });
    images
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Entry, Loadings};
    use crate::structure::expression;

    fn plain() -> Preprocessing {
        Preprocessing { factor: 2.0, ..Preprocessing::nothing() }
    }

    fn state(spectrum: [f64; 3], weights: [f64; 2]) -> State<f64> {
        let mut state = State::empty(2, 3, 1);
        let rows = weights.iter().map(|&weight| vec![Entry { feature: 0, weight }]).collect();
        state.loadings = Loadings::from_rows(rows, 1);
        state.features.push(&spectrum);
        state.feature_ids.push(5);
        state.weight_means.push(0.0);
        state.weight_precisions.push(1.0);
        state
    }

    #[test]
    fn means_are_on_unit_norm_with_aligned_signs() {
        let structure = expression::build(Some("iid(3)"), None).unwrap();
        let mut posterior = Posterior::new(Some((2, 3)));
        let (mask, preprocessing) = (Mask::full(3), plain());
        let shown =
            Shown { structure: &structure, mask: &mask, preprocessing: &preprocessing, noise: None, row_levels: &[] };
        posterior.add(&state([3.0, 4.0, 0.0], [1.0, 2.0]), &shown, 2.0, 2);
        posterior.add(&state([-6.0, -8.0, 0.0], [-1.0, 0.5]), &shown, 2.0, 2);
        let feature = posterior.persistent()[0];
        assert!((feature.mean[0] - 0.6).abs() < 1e-6 && (feature.mean[1] - 0.8).abs() < 1e-6);
        assert!(feature.deviations.iter().all(|d| d.abs() < 1e-6));
        // Weights for the unit-norm feature in the user's units: w |S| 2, signs turned.
        assert!((feature.weights[0] - (10.0 + 20.0)).abs() < 1e-9);
        assert!((feature.weights[1] - (20.0 - 10.0)).abs() < 1e-9);
        assert_eq!(feature.active, [2, 2]);
        // Mean absolute value 7/3 of the first: none is twice as large; but 4 exceeds 1.5 times it.
        assert_eq!(feature.exceeds, [0, 0, 0]);
        assert_eq!(feature.widths.len(), 2);
        let mean = &posterior.reconstruction.as_ref().unwrap().mean;
        assert!((mean.row(0)[0] - (3.0 + 6.0) / 2.0).abs() < 1e-6);
    }

    #[test]
    fn the_dead_are_freed_once_they_cannot_reach_half() {
        let structure = expression::build(Some("iid(3)"), None).unwrap();
        let mut posterior = Posterior::new(None);
        let (mask, preprocessing) = (Mask::full(3), plain());
        let shown =
            Shown { structure: &structure, mask: &mask, preprocessing: &preprocessing, noise: None, row_levels: &[] };
        posterior.add(&state([1.0, 0.0, 0.0], [1.0, 1.0]), &shown, 2.0, 4);
        let empty = State::<f64>::empty(2, 3, 1);
        posterior.add(&empty, &shown, 2.0, 2);
        assert_eq!(posterior.features.len(), 1, "half of two sweeps is one");
        posterior.add(&empty, &shown, 2.0, 4);
        assert!(posterior.features.is_empty() && posterior.persistent().is_empty());
    }
}
