//! Draws of the features given what was observed in a window \[M14\]: with what lies outside in turn, or without it.

use super::Window;
use super::gathered::{share_out, statistic};
use super::system::{System, add_to};
use super::turned::{Turned, rotated};
use crate::comm::Comm;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::Purpose;
use crate::spectral::{FeatureConditional, FeatureDraw, FeatureSpectra, Outside, Pass, Projections};
use crate::structure::Direction;
use rand_distr::{Distribution, StandardNormal};
use std::collections::BTreeMap;

impl Window {
    /// Draws the features given the loadings and what was observed, and projects the data onto them.
    pub fn draw<R: Real>(&self, pass: &Pass<R>, draw: &FeatureDraw, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        let (k, vectors) = (spectra.n_features(), &draw.conditional.rotation.vectors);
        let seen = rotated(vectors, k, Turned::In, &statistic(pass));
        let mut turned = rotated(vectors, k, Turned::In, &spectra.to_vectors());
        let incomplete = self.turned_weights(pass.loadings, vectors, k);
        let drawing = Drawing { window: self, draw, seen, incomplete, comm: pass.comm };
        match draw.outside {
            Outside::InTurn(rounds) => (0..rounds).for_each(|round| turned = drawing.in_turn(&turned, round)),
            Outside::Jointly => turned = drawing.jointly(&turned),
        }
        let mut drawn = rotated(vectors, k, Turned::Out, &turned);
        if turned.len() < k {
            self.add_unseen_part(draw, &mut drawn);
        }
        *spectra = FeatureSpectra::from_vectors(self.structure.n_sites(), &drawn);
        self.project(pass, spectra)
    }
}

impl Window {
    /// Adds a draw from the prior of the part of features that no row tells of: that outside of the eigenvectors.
    fn add_unseen_part<R: Real>(&self, draw: &FeatureDraw, drawn: &mut [Vec<R>]) {
        let FeatureConditional { rotation, precisions, .. } = draw.conditional;
        let from_prior = |feature: usize| -> Vec<R> {
            let mut stream = draw.streams.stream(Purpose::Features, UNSEEN, feature as u64);
            let one = |h: &f64| -> R {
                let normal: f64 = StandardNormal.sample(&mut stream);
                R::from_f64(normal / h.sqrt())
            };
            precisions.iter().map(one).collect()
        };
        let k = drawn.len();
        let mut prior: Vec<Vec<R>> = vec![Vec::new(); k];
        share(prior.iter_mut().enumerate(), || (), |_, (feature, row)| *row = from_prior(feature));
        let along = rotated(&rotation.vectors, k, Turned::In, &prior);
        let along = rotated(&rotation.vectors, k, Turned::Out, &along);
        for (row, (prior, along)) in drawn.iter_mut().zip(prior.iter().zip(&along)) {
            let unseen = prior.iter().zip(along).map(|(x, a)| x.to_f64() - a.to_f64());
            row.iter_mut().zip(unseen).for_each(|(to, x)| *to = R::from_f64(to.to_f64() + x));
        }
    }
}

/// The number of the streams of what no row tells of, among those of rounds.
const UNSEEN: u32 = 1 << 30;

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
    comm: &'a dyn Comm,
}

impl<R: Real> Drawing<'_, R> {
    /// Draws what was not observed given the rotated features, then the features given that.
    fn in_turn(&self, turned: &[Vec<R>], round: u32) -> Vec<Vec<R>> {
        let structure = &self.window.structure;
        let to_sites = |i: usize, scratch: &mut Vec<R>| {
            let mut image = turned[i].clone();
            structure.apply(Direction::ToSites, &mut image, scratch);
            image
        };
        // Holes take all features at a site.
        let images = (!self.incomplete.is_empty()).then(|| share_out(self.comm, turned.len(), to_sites));
        let from_holes = images.as_ref().map_or_else(BTreeMap::new, |images| self.fill_holes(images, round));
        share_out(self.comm, turned.len(), |i, scratch| {
            let mut values = images.as_ref().map_or_else(|| to_sites(i, scratch), |images| images[i].clone());
            self.complete_statistic(i, &mut values, &from_holes, round);
            structure.apply(Direction::ToSpectrum, &mut values, scratch);
            self.draw_given_all(i, &mut values, round);
            values
        })
    }

    /// Turns a rotated feature (by site) into its rotated statistic: what was seen, and a draw where nothing was.
    ///
    /// Outside, `P'B = diag(lambda) R + noise` with variances `lambda_i sigma^2`; a hole adds `w y` with `y ~ N(w S, sigma^2)`.
    fn complete_statistic(&self, i: usize, image: &mut [R], from_holes: &FromHoles, round: u32) {
        let FeatureConditional { rotation, noise_variance, .. } = self.draw.conditional;
        let value = rotation.values[i].max(0.0);
        let scatter = value.sqrt() * noise_variance.sqrt();
        let mut stream = self.draw.streams.stream(Purpose::MissingCells, 2 * round, i as u64);
        for &site in &self.window.outside {
            let normal: f64 = StandardNormal.sample(&mut stream);
            image[site] = R::from_f64(value * image[site].to_f64() + scatter * normal);
        }
        self.window.sites.iter().zip(&self.seen[i]).for_each(|(&site, b)| image[site] = *b);
        for (site, shares) in from_holes {
            image[*site] = R::from_f64(image[*site].to_f64() + shares[i]);
        }
    }

    /// Turns a rotated statistic (by mode) into a rotated feature.
    fn draw_given_all(&self, i: usize, row: &mut [R], round: u32) {
        let FeatureConditional { rotation, noise_variance, precisions } = self.draw.conditional;
        let per_noise = 1.0 / noise_variance;
        let from_data = rotation.values[i].max(0.0) * per_noise;
        let mut stream = self.draw.streams.stream(Purpose::Features, round, i as u64);
        for (x, h) in row.iter_mut().zip(precisions) {
            let variance = 1.0 / (from_data + h);
            let normal: f64 = StandardNormal.sample(&mut stream);
            *x = R::from_f64(x.to_f64() * per_noise * variance + normal * variance.sqrt());
        }
    }

    /// Draws what holes lack given the rotated features by site: for every site with holes, what they add to the rotated
    /// statistic.
    fn fill_holes<E: Real>(&self, turned: &[Vec<E>], round: u32) -> FromHoles {
        let noise_sd = self.draw.conditional.noise_variance.sqrt();
        let mut filled = BTreeMap::new();
        for (row, weights) in &self.incomplete {
            let mut stream = self.draw.streams.stream(Purpose::MissingCells, 2 * round + 1, *row as u64);
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
    fn jointly(&self, turned: &[Vec<R>]) -> Vec<Vec<R>> {
        let from_holes = self.fill_holes_from_spectra(turned);
        share_out(self.comm, turned.len(), |i, scratch| {
            let drawn = self.draw_one_jointly(i, &from_holes, scratch);
            drawn.iter().map(|&x| R::from_f64(x)).collect()
        })
    }

    /// [`Drawing::fill_holes`] from spectra.
    fn fill_holes_from_spectra(&self, turned: &[Vec<R>]) -> FromHoles {
        if self.incomplete.is_empty() {
            return BTreeMap::new();
        }
        let images = share_out(self.comm, turned.len(), |i, _: &mut Vec<R>| {
            // In double precision, as everything that is solved for.
            let mut image = turned[i].iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
            self.window.structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
            image
        });
        self.fill_holes(&images, 0)
    }

    /// Draws a rotated feature from its law given all that was observed under the mask; holes were filled before.
    ///
    /// Its precision is `A = diag(h) + lambda / sigma^2 U' 1 U` with 1 at the sites of the mask. A draw solves
    /// `A x = U' (B / sigma^2 + sqrt(lambda) / sigma e) + sqrt(h) e'`, whose right side scatters with covariance A.
    fn draw_one_jointly(&self, i: usize, from_holes: &FromHoles, scratch: &mut Vec<f64>) -> Vec<f64> {
        let FeatureDraw { conditional, streams, .. } = self.draw;
        let FeatureConditional { rotation, noise_variance, precisions } = *conditional;
        let from_data = rotation.values[i].max(0.0) / noise_variance;
        let mut stream = streams.stream(Purpose::MissingCells, 0, i as u64);
        let mut normal = || -> f64 { StandardNormal.sample(&mut stream) };
        let mut right = vec![0.0; self.window.structure.n_sites()];
        for (&site, b) in self.window.sites.iter().zip(&self.seen[i]) {
            right[site] = b.to_f64() / noise_variance + from_data.sqrt() * normal();
        }
        from_holes.iter().for_each(|(site, shares)| right[*site] += shares[i] / noise_variance);
        self.window.structure.apply(Direction::ToSpectrum, &mut right, scratch);
        let mut stream = streams.stream(Purpose::Features, 0, i as u64);
        for (x, h) in right.iter_mut().zip(precisions) {
            let normal: f64 = StandardNormal.sample(&mut stream);
            *x += h.sqrt() * normal;
        }
        let (window, from_data) = (self.window, &[from_data]);
        let system = System { window, incomplete: &[], noise_variance, from_data, precisions };
        let enough = system.least_size_of_a_draw();
        system.solve::<R>(vec![right], enough).swap_remove(0)
    }
}
