//! The streaming pass: one visit of every tile of the data draws the features and collects all that the rows need.
//!
//! For each tile: the statistic `B = W'Y` (W is sparse), the joint draw of all features at the tile's modes, then
//! `Y S'` and `S S'` into fixed-point sums and the explicit residual `Y - W S` into its slot.

use super::products::{Packed, ROWS};
use super::sums::{Factors, FixedSums, Units, bounding_exponent, exponent_holds};
use super::tile_work::{AddStatistic, Columns, DrawOneByOne, DrawRotated, ProjectRows, RowEntries};
use super::{FeatureSpectra, SpectralData};
use crate::comm::Comm;
use crate::numeric::linalg::{Eigen, Real, View, multiply};
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::spectral::{Entry, Loadings};
use rand_distr::{Distribution, StandardNormal};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the features depend on besides the data and the loadings \[M2\].
pub struct FeatureConditional<'a> {
    pub scan: Scan<'a>,
    pub noise_variance: f64,
    /// `h_v`, one a mode.
    pub precisions: &'a [f64],
    pub streams: &'a Streams,
}

/// Which features are drawn at a time.
#[derive(Clone, Copy)]
pub enum Scan<'a> {
    /// All of them, in the basis that diagonalises `W'W`.
    Joint(&'a Eigen),
    /// One after the other in `order`, given the rest; `gram` is `W'W`.
    OneByOne { gram: &'a [f64], order: &'a [usize] },
}

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

/// Draws all features from their conditional \[M2\] and projects the data onto them.
pub fn draw_features<R: Real>(
    data: &SpectralData<R>,
    row_norms: &[f64],
    loadings: &Loadings,
    conditional: &FeatureConditional,
    spectra: &mut FeatureSpectra<R>,
    comm: &dyn Comm,
) -> Projections<R> {
    let vectors = match conditional.scan {
        Scan::Joint(rotation) => rotation.vectors.iter().map(|&x| R::from_f64(x)).collect(),
        Scan::OneByOne { .. } => Vec::new(),
    };
    let drawing = Some(Drawing { conditional, vectors, columns: Columns::new(loadings) });
    Pass { data, row_norms, entries: RowEntries::new(loadings), drawing, comm }.run(spectra)
}

/// The mean of the features' conditional \[M2\]: what a draw scatters about.
pub fn feature_means<R: Real>(
    data: &SpectralData<R>,
    loadings: &Loadings,
    rotation: &Eigen,
    noise_variance: f64,
    precisions: &[f64],
) -> FeatureSpectra<R> {
    let (k, columns) = (loadings.n_features(), Columns::new(loadings));
    let vectors: Vec<R> = rotation.vectors.iter().map(|&x| R::from_f64(x)).collect();
    let mut means = FeatureSpectra::none(data.tiles());
    means.grow(k);
    let scratch = || (pulp::Arch::new(), Vec::new(), Vec::new());
    share(means.tiles_mut(), scratch, |(arch, statistic, rotated), (tile, place)| {
        let modes = data.tiles().modes(tile);
        let width = modes.len();
        statistic.resize(k * width, R::zero());
        arch.dispatch(AddStatistic { rows: data.tile(tile), width, columns: &columns, statistic });
        let joint =
            Joint { vectors: &vectors, values: &rotation.values, noise_variance, precisions: &precisions[modes] };
        joint.draw(*arch, statistic, rotated, &vec![0.0; k * width], place);
    });
    means
}

/// The joint conditional at the modes of one tile.
struct Joint<'a, R> {
    /// Eigenvectors and eigenvalues of `W'W`.
    vectors: &'a [R],
    values: &'a [f64],
    noise_variance: f64,
    precisions: &'a [f64],
}

impl<R: Real> Joint<'_, R> {
    /// Turns `W'Y` into features: their mean plus `normals` times their scatter.
    fn draw(&self, arch: pulp::Arch, statistic: &[R], rotated: &mut Vec<R>, normals: &[f64], features: &mut [R]) {
        let (k, width) = (self.values.len(), self.precisions.len());
        let vectors = View::new(self.vectors, k, k);
        rotated.resize(k * width, R::zero());
        multiply(rotated, vectors.t(), View::new(statistic, k, width));
        let Joint { values, noise_variance, precisions, .. } = *self;
        arch.dispatch(DrawRotated { values, noise_variance, precisions, rotated, normals });
        multiply(features, vectors, View::new(rotated, k, width));
    }
}

/// Projects the data onto the features as they are.
pub fn project<R: Real>(
    data: &SpectralData<R>,
    row_norms: &[f64],
    loadings: &Loadings,
    spectra: &mut FeatureSpectra<R>,
    comm: &dyn Comm,
) -> Projections<R> {
    Pass { data, row_norms, entries: RowEntries::new(loadings), drawing: None, comm }.run(spectra)
}

struct Pass<'a, R> {
    data: &'a SpectralData<R>,
    row_norms: &'a [f64],
    entries: RowEntries<R>,
    drawing: Option<Drawing<'a, R>>,
    comm: &'a dyn Comm,
}

/// A draw with its rotation (of a joint one) and the loadings in the precision of the data.
struct Drawing<'a, R> {
    conditional: &'a FeatureConditional<'a>,
    vectors: Vec<R>,
    columns: Columns<R>,
}

/// The places of a tile: its features and its slots for the residual and the features' squared norms.
struct Place<'a, R> {
    tile: usize,
    features: &'a mut [R],
    slots: &'a mut [f64],
}

/// What one thread needs and adds up.
struct Scratch<R> {
    arch: pulp::Arch,
    statistic: Vec<R>,
    rotated: Vec<R>,
    normals: Vec<f64>,
    packed: Packed<R>,
    small_gram: Vec<R>,
    products: Vec<R>,
    with_data: FixedSums,
    gram: FixedSums,
}

impl<R: Real> Pass<'_, R> {
    fn run(&self, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        let rows: Vec<i32> = self.row_norms.iter().map(|&norm| bounding_exponent(norm)).collect();
        let mut exponents: Vec<i32> =
            spectra.squared_norms(self.comm).iter().map(|norm| bounding_exponent(norm.sqrt())).collect();
        let mut drawing = self.drawing.as_ref();
        loop {
            let (projections, norms) = self.attempt(drawing, spectra, &rows, &exponents);
            let holds = exponents.iter().zip(&norms).all(|(&assumed, &norm)| exponent_holds(assumed, norm));
            // What is not finite is left for the chain to report.
            if holds || norms.iter().any(|norm| !norm.is_finite()) {
                return projections;
            }
            // The features are drawn: what is left is to add them up anew.
            drawing = None;
            exponents = norms.iter().map(|&norm| bounding_exponent(norm)).collect();
        }
    }

    /// One pass with assumed exponents of the features' norms; returns the true norms too.
    fn attempt(
        &self,
        drawing: Option<&Drawing<R>>,
        spectra: &mut FeatureSpectra<R>,
        rows: &[i32],
        cols: &[i32],
    ) -> (Projections<R>, Vec<f64>) {
        let (n_rows, k, n_tiles) = (self.data.n_rows(), spectra.n_features(), self.data.tiles().owned().len());
        let (data_factors, gram_factors) = (Units { rows, cols }.factors(), Units { rows: cols, cols }.factors());
        let mut slots = vec![0.0; n_tiles * (k + 1)];
        let places = spectra.tiles_mut().zip(slots.chunks_mut(k + 1));
        let places = places.map(|((tile, features), slots)| Place { tile, features, slots });
        let scratches = share(
            places,
            || self.new_scratch(k),
            |scratch, mut place| {
                if let Some(drawing) = drawing {
                    self.draw_tile(drawing, &mut place, scratch);
                }
                self.project_tile(&mut place, scratch, &data_factors, &gram_factors);
            },
        );
        let mut sums = scratches.into_iter().map(|scratch| (scratch.with_data, scratch.gram));
        let (mut with_data, mut gram) =
            sums.next().unwrap_or_else(|| (FixedSums::zeros(n_rows, k), FixedSums::zeros(k, k)));
        for (other_data, other_gram) in sums {
            with_data.merge(&other_data);
            gram.merge(&other_gram);
        }
        if self.data.tiles().is_shared() {
            self.comm.sum_integers(with_data.integers_mut());
            self.comm.sum_integers(gram.integers_mut());
        }
        let totals = self.add_slots(slots, k + 1);
        let projections = Projections {
            n_features: k,
            with_data: with_data.to_floats(&data_factors),
            gram: gram.to_floats(&gram_factors),
            own_grams: BTreeMap::new(),
            columns: None,
            squared_residual: totals[0],
            features_fresh: true,
            residual_fresh: true,
        };
        (projections, totals[1..].iter().map(|x| x.sqrt()).collect())
    }

    fn new_scratch(&self, k: usize) -> Scratch<R> {
        Scratch {
            arch: pulp::Arch::new(),
            statistic: Vec::new(),
            rotated: Vec::new(),
            normals: Vec::new(),
            packed: Packed::default(),
            small_gram: vec![R::zero(); k * k],
            products: vec![R::zero(); ROWS * k],
            with_data: FixedSums::zeros(self.data.n_rows(), k),
            gram: FixedSums::zeros(k, k),
        }
    }

    /// Slots of all tiles, added in tile order.
    fn add_slots(&self, slots: Vec<f64>, n_sums: usize) -> Vec<f64> {
        let first = self.data.tiles().owned().start;
        super::sum_over_tiles(self.data.tiles(), n_sums, self.comm, |tile, _, out| {
            out.copy_from_slice(&slots[(tile - first) * n_sums..(tile - first + 1) * n_sums]);
        })
    }

    /// The draw at the modes of one tile.
    fn draw_tile(&self, drawing: &Drawing<R>, place: &mut Place<R>, scratch: &mut Scratch<R>) {
        let modes = self.data.tiles().modes(place.tile);
        let (conditional, width) = (drawing.conditional, modes.len());
        let k = place.features.len() / width;
        let Scratch { arch, statistic, rotated, normals, .. } = scratch;
        statistic.resize(k * width, R::zero());
        let rows = self.data.tile(place.tile);
        arch.dispatch(AddStatistic { rows, width, columns: &drawing.columns, statistic });
        let mut stream = conditional.streams.stream(Purpose::Features, 0, place.tile as u64);
        normals.clear();
        normals.extend((0..k * width).map(|_| -> f64 { StandardNormal.sample(&mut stream) }));
        let (noise_variance, precisions) = (conditional.noise_variance, &conditional.precisions[modes]);
        match conditional.scan {
            Scan::Joint(rotation) => {
                let joint = Joint { vectors: &drawing.vectors, values: &rotation.values, noise_variance, precisions };
                joint.draw(*arch, statistic, rotated, normals, place.features);
            }
            Scan::OneByOne { gram, order } => {
                let features = &mut *place.features;
                arch.dispatch(DrawOneByOne { gram, order, noise_variance, precisions, statistic, normals, features });
            }
        }
    }

    /// Adds one tile's share of `Y S'`, `S S'`, the squared norms and the squared residual.
    fn project_tile(
        &self,
        place: &mut Place<R>,
        scratch: &mut Scratch<R>,
        data_factors: &Factors,
        gram_factors: &Factors,
    ) {
        let width = self.data.tiles().width(place.tile);
        let k = place.features.len() / width;
        let features = &*place.features;
        let Scratch { arch, packed, small_gram, products, with_data, gram, .. } = scratch;
        multiply(small_gram, View::new(features, k, width), View::new(features, k, width).t());
        packed.pack(features, k, width);
        let rows = self.data.tile(place.tile);
        let squares = arch.dispatch(ProjectRows {
            rows,
            width,
            entries: &self.entries,
            features,
            packed,
            products,
            sums: with_data,
            factors: data_factors,
        });
        place.slots[0] = squares;
        gram.add_rows(0, small_gram, gram_factors);
        (0..k).for_each(|j| place.slots[1 + j] = small_gram[j * k + j].to_f64());
    }
}
