//! Posterior means on the fly: features, weights and activations, and the reconstruction.
//!
//! Features are compared on unit norm, in the user's units, with their sign turned to the running mean. Every kept sweep they
//! are matched with those of the sweeps before \[M18\]. Standard deviations live in the site domain, so kept features are
//! transformed back at every kept sweep.

use super::matching::{ALIKE, STILL_ALIKE, assign};
use super::moments::FeatureMoments;
use super::smoothness::full_width;
use crate::data::{Mask, Preprocessing};
use crate::model::State;
use crate::noise::Filter;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{FeatureSpectra, SpectralData, Tiles};
use crate::structure::{Direction, Structure};
use std::cmp::Reverse;

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
    fn widths(&self, columns: &[f32]) -> Vec<f32> {
        let wide: Vec<f64> = columns.iter().map(|&x| f64::from(x)).collect();
        let (image, grid) = (self.mask.scatter(&wide, f64::NAN), self.structure.grid());
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
    /// The id of the next one to be met.
    pub next_id: u64,
    /// Of the rows, where it is wanted.
    pub reconstruction: Option<Reconstruction>,
}

/// A feature at the sites that take part, of unit norm in the user's units, and the norm it had.
#[derive(Clone, Debug)]
pub struct UnitImage {
    /// By column.
    pub values: Vec<f32>,
    /// Before it was divided by it.
    pub norm: f64,
}

impl UnitImage {
    fn is_sound(&self) -> bool {
        self.norm > 0.0 && self.norm.is_finite()
    }
}

/// Features that are accumulated although the present draw does not have them: at most so many, and half of what it has.
const SPARE: usize = 8;

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
        Posterior { n_kept: 0, features: Vec::new(), next_id: 1, reconstruction: with_reconstruction.map(zeros) }
    }

    /// Adds the state of a kept sweep; `exceed` is the size that exceedances are counted of, in mean absolute values of a
    /// feature.
    pub fn add<R: Real>(&mut self, state: &State<R>, shown: &Shown, exceed: f64) {
        let images = unit_images(&state.features, shown);
        let places = self.places(&images, state, shown.mask.n_columns());
        self.n_kept += 1;
        let columns = columns(state, shown.row_levels);
        let mut draws: Vec<Option<usize>> = vec![None; self.features.len()];
        places.iter().enumerate().for_each(|(k, place)| place.iter().for_each(|&place| draws[place] = Some(k)));
        share(
            self.features.iter_mut().zip(&draws),
            || (),
            |_, (moments, draw)| match *draw {
                Some(k) => {
                    moments.last_id = state.feature_ids[k];
                    moments.add(&images[k], &columns[k], exceed, shown.widths(&images[k].values));
                }
                None => moments.miss(),
            },
        );
        self.forget(&draws, state.n_features());
        if let Some(reconstruction) = &mut self.reconstruction {
            reconstruction.add(state, self.n_kept);
        }
    }

    /// Which of the accumulated features those of a draw are; new ones are taken up.
    fn places<R: Real>(&mut self, images: &[UnitImage], state: &State<R>, n_columns: usize) -> Vec<Option<usize>> {
        let values: Vec<&[f32]> = images.iter().map(|image| &image.values[..]).collect();
        let means: Vec<&[f32]> = self.features.iter().map(|moments| &moments.mean[..]).collect();
        let lives_on = |k: usize, at: usize| self.features[at].last_id == state.feature_ids[k];
        let mut places = assign(&values, &means, |k, at| if lives_on(k, at) { STILL_ALIKE } else { ALIKE });
        for (place, _) in places.iter_mut().zip(images).filter(|(place, image)| place.is_none() && image.is_sound()) {
            *place = Some(self.features.len());
            let (n_rows, n_missed) = (state.loadings.n_rows(), self.n_kept as usize);
            self.features.push(FeatureMoments::new(self.next_id, n_rows, n_columns, n_missed));
            self.next_id += 1;
        }
        places
    }

    /// Lets go of the rarest features that this draw did not have, where there are too many of them. What is there in half
    /// of the kept sweeps stays.
    fn forget(&mut self, draws: &[Option<usize>], n_features: usize) {
        let n_spare = n_features / 2 + SPARE;
        let is_absent = |at: &usize| draws[*at].is_none() && 2 * self.features[*at].n_present < self.n_kept;
        let mut absent: Vec<usize> = (0..draws.len()).filter(is_absent).collect();
        let last_seen = |at: usize| self.features[at].series[0].iter().rposition(|x| *x > 0.0);
        absent.sort_by_key(|&at| Reverse((self.features[at].n_present, last_seen(at), Reverse(at))));
        let mut goes = vec![false; draws.len()];
        absent.into_iter().skip(n_spare).for_each(|at| goes[at] = true);
        let mut goes = goes.into_iter();
        self.features.retain(|_| !goes.next().unwrap_or(false));
    }

    /// What several chains have found together. Features of the first chain keep their ids, others get new ones. Reconstructions
    /// are left out.
    pub fn joined(chains: impl Iterator<Item = Posterior>) -> Posterior {
        let mut all = Posterior::new(None);
        let mut n_kept = Vec::new();
        for chain in chains {
            all.join(chain, &n_kept);
            n_kept.push(all.n_kept - n_kept.iter().sum::<u64>());
        }
        all
    }

    /// Adds a chain to those that kept so many sweeps each.
    fn join(&mut self, chain: Posterior, n_kept: &[u64]) {
        if n_kept.is_empty() {
            *self = Posterior { reconstruction: None, ..chain };
            return;
        }
        let images: Vec<&[f32]> = chain.features.iter().map(|moments| &moments.mean[..]).collect();
        let means: Vec<&[f32]> = self.features.iter().map(|moments| &moments.mean[..]).collect();
        let places = assign(&images, &means, |_, _| ALIKE);
        for (mut moments, place) in chain.features.into_iter().zip(places) {
            match place {
                Some(place) => {
                    self.features[place].join(&moments);
                    self.features[place].series.append(&mut moments.series);
                }
                None => {
                    moments.id = self.next_id;
                    self.next_id += 1;
                    let missed = n_kept.iter().map(|&n| vec![0.0; n as usize]);
                    moments.series = missed.chain(moments.series).collect();
                    self.features.push(moments);
                }
            }
        }
        self.n_kept += chain.n_kept;
        let missed = self.features.iter_mut().filter(|moments| moments.series.len() == n_kept.len());
        missed.for_each(|moments| moments.series.push(vec![0.0; chain.n_kept as usize]));
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
pub fn unit_images<R: Real>(spectra: &FeatureSpectra<R>, shown: &Shown) -> Vec<UnitImage> {
    let nothing = UnitImage { values: Vec::new(), norm: 0.0 };
    let mut images = vec![nothing; spectra.n_features()];
    share(images.iter_mut().enumerate(), Vec::new, |scratch, (k, image)| {
        let columns = shown.columns(spectra.feature(k), scratch);
        image.norm = columns.iter().map(|x| x * x).sum::<f64>().sqrt();
        let divisor = if image.norm > 0.0 { image.norm } else { 1.0 };
        image.values = columns.iter().map(|x| (x / divisor) as f32).collect();
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
        posterior.add(&state([3.0, 4.0, 0.0], [1.0, 2.0]), &shown, 2.0);
        posterior.add(&state([-6.0, -8.0, 0.0], [-1.0, 0.5]), &shown, 2.0);
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

    /// Features by name, each with a spectrum, used by both rows.
    fn state_of(features: &[(u64, [f64; 3])]) -> State<f64> {
        let mut state = State::empty(2, 3, 1);
        let row = || (0..features.len()).map(|feature| Entry { feature, weight: 1.0 }).collect();
        state.loadings = Loadings::from_rows(vec![row(), row()], features.len());
        for (id, spectrum) in features {
            state.features.push(spectrum);
            state.feature_ids.push(*id);
            state.weight_means.push(0.0);
            state.weight_precisions.push(1.0);
        }
        state
    }

    fn posterior_of(draws: &[State<f64>]) -> Posterior {
        let structure = expression::build(Some("iid(3)"), None).unwrap();
        let (mask, preprocessing) = (Mask::full(3), plain());
        let shown =
            Shown { structure: &structure, mask: &mask, preprocessing: &preprocessing, noise: None, row_levels: &[] };
        let mut posterior = Posterior::new(None);
        draws.iter().for_each(|draw| posterior.add(draw, &shown, 2.0));
        posterior
    }

    const X: [f64; 3] = [2.0, 0.1, 0.0];
    const Y: [f64; 3] = [0.0, 3.0, 0.1];

    #[test]
    fn features_are_who_they_look_like_whatever_their_names() {
        // Names change, features swap places, one is away for a while, and a sign turns.
        let draws = [
            state_of(&[(1, X), (2, Y)]),
            state_of(&[(2, X), (1, Y)]),
            state_of(&[(7, Y)]),
            state_of(&[(9, X.map(|x| -x)), (7, Y)]),
        ];
        let posterior = posterior_of(&draws);
        let found: Vec<(u64, u64)> = posterior.features.iter().map(|f| (f.id, f.n_present)).collect();
        assert_eq!(found, [(1, 3), (2, 4)]);
        assert_eq!(
            posterior.features[0].series[0].iter().map(|x| *x > 0.0).collect::<Vec<_>>(),
            [true, true, false, true]
        );
        assert!(posterior.features[0].mean[0] > 0.99 && posterior.persistent().len() == 2);
        // A draw that is half alike is the feature of before only if the chain says so.
        let half = [2.0, 2.6, 0.0];
        assert_eq!(posterior_of(&[state_of(&[(1, X)]), state_of(&[(1, half)])]).features.len(), 1);
        assert_eq!(posterior_of(&[state_of(&[(1, X)]), state_of(&[(2, half)])]).features.len(), 2);
    }

    #[test]
    fn the_rarest_are_let_go_and_memory_stays_bounded() {
        // One feature stays, a hundred others come once each, in other directions of few sites.
        let mut draws = Vec::new();
        for at in 0..100u64 {
            let turn = 0.9 * at as f64;
            draws.push(state_of(&[(1, X), (at + 2, [0.0, turn.cos(), turn.sin()])]));
        }
        let posterior = posterior_of(&draws);
        assert!(posterior.features.len() <= 2 + 1 + SPARE, "{}", posterior.features.len());
        assert_eq!(posterior.features[0].n_present, 100);
        assert!(posterior.features.iter().all(|f| f.series[0].len() == 100));
    }

    #[test]
    fn chains_are_joined_feature_by_feature() {
        let first = posterior_of(&[state_of(&[(1, X)]), state_of(&[(1, X), (2, Y)])]);
        let second = posterior_of(&[state_of(&[(4, Y.map(|x| -x)), (5, [0.1, 0.0, 4.0])])]);
        let all = Posterior::joined([first.clone(), second.clone()].into_iter());
        assert_eq!(all.n_kept, 3);
        let found: Vec<(u64, u64, usize)> = all.features.iter().map(|f| (f.id, f.n_present, f.n_chains())).collect();
        assert_eq!(found, [(1, 2, 1), (2, 2, 2), (3, 1, 1)]);
        assert!(all.features.iter().all(|f| f.series.iter().map(Vec::len).eq([2, 1])));
        // Turned to the sign of the first chain, the feature of the second has the opposite weights.
        let [one, other] =
            [&first, &second].map(|chain| chain.features.iter().find(|f| f.mean[1].abs() > 0.9).unwrap());
        assert!((one.weights[0] - 6.0).abs() < 0.1 && (other.weights[0] - 6.0).abs() < 0.1);
        assert!(all.features[1].weights[0].abs() < 1e-9, "{:?}", all.features[1].weights);
        assert!(all.features[1].deviations.iter().all(|d| *d < 1e-6));
        // Moments of joined chains are those of all draws in one.
        let whole = posterior_of(&[
            state_of(&[(1, [2.0, 0.3, 0.0])]),
            state_of(&[(1, [2.0, -0.4, 0.1])]),
            state_of(&[(1, [2.0, 0.1, 0.2])]),
        ]);
        let parts = [
            posterior_of(&[state_of(&[(1, [2.0, 0.3, 0.0])])]),
            posterior_of(&[state_of(&[(8, [2.0, -0.4, 0.1])]), state_of(&[(8, [2.0, 0.1, 0.2])])]),
        ];
        let joined = Posterior::joined(parts.into_iter());
        let alike = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(alike(&joined.features[0].mean, &whole.features[0].mean));
        assert!(alike(&joined.features[0].deviations, &whole.features[0].deviations));
        assert_eq!(joined.features[0].mean_energy(), whole.features[0].mean_energy());
        assert_eq!(Posterior::joined([first.clone()].into_iter()), first);
    }
}
