//! Draws of the features given what was observed in a window \[M14\]: with what lies outside in turn, or without it.

use super::super::tile_work::DrawRotated;
use super::Window;
use super::beyond::Beyond;
use super::gathered::{share_out, statistic};
use super::system::{Goal, System, add_to};
use super::turned::Rotation;
use crate::comm::Comm;
use crate::numeric::linalg::Real;
use crate::numeric::normals;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::spectral::{FeatureConditional, FeatureDraw, FeatureSpectra, Outside, Pass, Projections};
use crate::structure::Direction;
use rand_distr::{Distribution, StandardNormal};
use std::collections::BTreeMap;

impl Window {
    /// Draws the features given the loadings and what was observed, and projects the data onto them.
    pub fn draw<R: Real>(&self, pass: &Pass<R>, draw: &FeatureDraw, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        let (k, vectors) = (spectra.n_features(), &draw.conditional.rotation.vectors);
        let rotation = Rotation::new(vectors, k);
        let seen = statistic(pass, &rotation);
        let now = rotation.turned(spectra);
        let incomplete = self.turned_weights(pass.loadings, vectors, k);
        let is_redrawn = draw.outside == Outside::GivenInside && !self.outside.is_empty();
        let beyond = is_redrawn.then(|| Beyond::new(self, draw.conditional.precisions));
        let drawing = Drawing { window: self, draw, seen, incomplete, beyond, comm: pass.comm };
        let turned = match draw.outside {
            Outside::InTurn | Outside::GivenInside => drawing.in_turn(&now),
            Outside::Jointly => drawing.jointly(&now),
        };
        *spectra = rotation.back(self.structure.n_sites(), &turned);
        if turned.len() < k {
            self.add_unseen_part(draw, &rotation, spectra);
        }
        self.project(pass, spectra)
    }

    /// Whether drawing features outside given what they are inside takes less time than a joint draw.
    pub fn is_quick_outside<R: Real>(&self, precisions: &[f64], streams: &Streams) -> bool {
        let stream = &mut streams.stream(Purpose::MissingCells, TRIAL, 0);
        self.outside.is_empty() || Beyond::<R>::new(self, precisions).is_quick(stream)
    }
}

impl Window {
    /// Adds a draw from the prior of the part of features that no row tells of: that outside of the eigenvectors.
    fn add_unseen_part<R: Real>(&self, draw: &FeatureDraw, rotation: &Rotation<R>, drawn: &mut FeatureSpectra<R>) {
        let (k, n_modes) = (drawn.n_features(), self.structure.n_sites());
        let from_prior = |feature: usize| -> Vec<R> {
            let mut stream = draw.streams.stream(Purpose::Features, UNSEEN, feature as u64);
            let one = |h: &f64| -> R {
                let normal: f64 = StandardNormal.sample(&mut stream);
                R::from_f64(normal / h.sqrt())
            };
            draw.conditional.precisions.iter().map(one).collect()
        };
        let mut prior: Vec<Vec<R>> = vec![Vec::new(); k];
        share(prior.iter_mut().enumerate(), || (), |_, (feature, row)| *row = from_prior(feature));
        let prior = FeatureSpectra::from_vectors(n_modes, &prior);
        let along = rotation.back(n_modes, &rotation.turned(&prior).to_vectors());
        for (tile, values) in drawn.tiles_mut() {
            for (to, (x, a)) in values.iter_mut().zip(prior.tile(tile).iter().zip(along.tile(tile))) {
                *to = R::from_f64(to.to_f64() + x.to_f64() - a.to_f64());
            }
        }
    }
}

/// Numbers of streams: of what no row tells of, of what lies outside given what is inside, and of whether that is drawn.
const UNSEEN: u32 = 1 << 30;
const BEYOND: u32 = 2;
const TRIAL: u32 = 3;

/// Normal numbers made at a time.
const AT_ONCE: usize = 512;

/// What the cells that rows lack add to the rotated statistic, by site.
type FromHoles = BTreeMap<usize, Vec<f64>>;

/// Rotated features on their way.
struct Drawing<'a, R> {
    window: &'a Window,
    draw: &'a FeatureDraw<'a>,
    /// The rotated statistic at the columns of the data.
    seen: Vec<Vec<R>>,
    /// Rows with holes, and their weights in the rotated basis.
    incomplete: Vec<(usize, Vec<f64>)>,
    /// Where features are drawn anew outside before all else.
    beyond: Option<Beyond<'a, R>>,
    comm: &'a dyn Comm,
}

impl<R: Real> Drawing<'_, R> {
    /// Draws what was not observed given the rotated features, then the features given that.
    fn in_turn(&self, now: &FeatureSpectra<R>) -> Vec<Vec<R>> {
        let (structure, n_turned) = (&self.window.structure, self.seen.len());
        let to_sites = |i: usize, scratch: &mut Vec<R>| {
            let mut image = now.stored(i);
            structure.apply(Direction::ToSites, &mut image, scratch);
            if let Some(beyond) = &self.beyond {
                beyond.redraw(&mut image, &mut self.draw.streams.stream(Purpose::MissingCells, BEYOND, i as u64));
            }
            image
        };
        // Holes take all features at a site.
        let images = (!self.incomplete.is_empty()).then(|| share_out(self.comm, n_turned, to_sites));
        let from_holes = images.as_ref().map_or_else(BTreeMap::new, |images| self.fill_holes(images));
        share_out(self.comm, n_turned, |i, scratch| {
            let mut values = images.as_ref().map_or_else(|| to_sites(i, scratch), |images| images[i].clone());
            self.complete_statistic(i, &mut values, &from_holes);
            structure.apply(Direction::ToSpectrum, &mut values, scratch);
            self.draw_given_all(i, &mut values);
            values
        })
    }

    /// Turns a rotated feature (by site) into its rotated statistic: what was seen, and a draw where nothing was.
    ///
    /// Outside, `P'B = diag(lambda) R + noise` with variances `lambda_i sigma^2`; a hole adds `w y` with `y ~ N(w S, sigma^2)`.
    fn complete_statistic(&self, i: usize, image: &mut [R], from_holes: &FromHoles) {
        let FeatureConditional { rotation, noise_variance, .. } = self.draw.conditional;
        let value = rotation.values[i].max(0.0);
        let scatter = value.sqrt() * noise_variance.sqrt();
        let mut stream = self.draw.streams.stream(Purpose::MissingCells, 0, i as u64);
        let mut normals = [0.0; AT_ONCE];
        for sites in self.window.outside.chunks(AT_ONCE) {
            normals::fill(&mut stream, &mut normals[..sites.len()]);
            for (&site, normal) in sites.iter().zip(normals) {
                image[site] = R::from_f64(value * image[site].to_f64() + scatter * normal);
            }
        }
        self.window.sites.iter().zip(&self.seen[i]).for_each(|(&site, b)| image[site] = *b);
        for (site, shares) in from_holes {
            image[*site] = R::from_f64(image[*site].to_f64() + shares[i]);
        }
    }

    /// Turns a rotated statistic (by mode) into a rotated feature.
    fn draw_given_all(&self, i: usize, row: &mut [R]) {
        let FeatureConditional { rotation, noise_variance, precisions } = self.draw.conditional;
        let mut stream = self.draw.streams.stream(Purpose::Features, 0, i as u64);
        let (arch, values, mut normals) = (pulp::Arch::new(), &rotation.values[i..=i], [0.0; AT_ONCE]);
        for (rotated, precisions) in row.chunks_mut(AT_ONCE).zip(precisions.chunks(AT_ONCE)) {
            let normals = &mut normals[..rotated.len()];
            normals::fill(&mut stream, normals);
            arch.dispatch(DrawRotated { values, noise_variance, precisions, rotated, normals });
        }
    }

    /// Draws what holes lack given the rotated features by site: for every site with holes, what they add to the rotated
    /// statistic.
    fn fill_holes<E: Real>(&self, turned: &[Vec<E>]) -> FromHoles {
        let noise_sd = self.draw.conditional.noise_variance.sqrt();
        let mut filled = BTreeMap::new();
        for (row, weights) in &self.incomplete {
            let mut stream = self.draw.streams.stream(Purpose::MissingCells, 1, *row as u64);
            for &column in &self.window.holes[*row] {
                let site = self.window.sites[column as usize];
                let normal: f64 = StandardNormal.sample(&mut stream);
                let mean: f64 = weights.iter().zip(turned).map(|(w, image)| w * image[site].to_f64()).sum();
                add_to(&mut filled, site, weights, mean + noise_sd * normal);
            }
        }
        filled
    }

    /// Draws the rotated features given all that was observed.
    fn jointly(&self, turned: &FeatureSpectra<R>) -> Vec<Vec<R>> {
        let from_holes = self.fill_holes_from_spectra(turned);
        share_out(self.comm, self.seen.len(), |i, scratch| {
            let drawn = self.draw_one_jointly(i, &from_holes, scratch);
            drawn.iter().map(|&x| R::from_f64(x)).collect()
        })
    }

    /// [`Drawing::fill_holes`] from spectra.
    fn fill_holes_from_spectra(&self, turned: &FeatureSpectra<R>) -> FromHoles {
        if self.incomplete.is_empty() {
            return BTreeMap::new();
        }
        let images = share_out(self.comm, self.seen.len(), |i, _: &mut Vec<R>| {
            // In double precision, as everything that is solved for.
            let mut image = turned.feature(i);
            self.window.structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
            image
        });
        self.fill_holes(&images)
    }

    /// Draws a rotated feature from its law given all that was observed under the mask; holes were filled before.
    ///
    /// Its precision is `A = diag(h) + lambda / sigma^2 U' 1 U` with 1 at the sites of the mask. A draw solves
    /// `A x = U' (B / sigma^2 + sqrt(lambda) / sigma e) + sqrt(h) e'`, whose right side scatters with covariance A.
    fn draw_one_jointly(&self, i: usize, from_holes: &FromHoles, scratch: &mut Vec<f64>) -> Vec<f64> {
        let FeatureDraw { conditional, streams, .. } = self.draw;
        let FeatureConditional { rotation, noise_variance, precisions } = *conditional;
        let from_data = rotation.values[i].max(0.0) / noise_variance;
        let mut right = vec![0.0; self.window.structure.n_sites()];
        let mut normals = vec![0.0; right.len()];
        let seen = &mut normals[..self.window.sites.len()];
        normals::fill(&mut streams.stream(Purpose::MissingCells, 0, i as u64), seen);
        for ((&site, b), normal) in self.window.sites.iter().zip(&self.seen[i]).zip(seen) {
            right[site] = b.to_f64() / noise_variance + from_data.sqrt() * *normal;
        }
        from_holes.iter().for_each(|(site, shares)| right[*site] += shares[i] / noise_variance);
        self.window.structure.apply(Direction::ToSpectrum, &mut right, scratch);
        normals::fill(&mut streams.stream(Purpose::Features, 0, i as u64), &mut normals);
        right.iter_mut().zip(precisions).zip(&normals).for_each(|((x, h), normal)| *x += h.sqrt() * normal);
        let (window, from_data) = (self.window, &[from_data]);
        let system = System { window, incomplete: &[], noise_variance, from_data, precisions };
        system.solve::<R>(vec![right], Goal::DRAW).swap_remove(0)
    }
}
