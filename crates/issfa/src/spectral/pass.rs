//! The streaming pass: one visit of every tile of the data draws the features and collects all that the rows need.
//!
//! For each tile: the statistic `B = W'Y` (W is sparse), the joint draw of all features at the tile's modes, then
//! `Y S'` and `S S'` into fixed-point sums and the explicit residual `Y - W S` into its slot.

use super::sums::{FixedSums, Units, bounding_exponent, column_factors, exponent_holds};
use super::{FeatureSpectra, SpectralData};
use crate::comm::Comm;
use crate::linalg::{Eigen, Real, View, multiply};
use crate::model::Loadings;
use crate::rng::{Purpose, Streams};
use crate::workers::share;
use rand_distr::{Distribution, StandardNormal};

/// Rows of a tile that go through one matrix product: fixed, so that the bits do not depend on the machine.
const ROW_CHUNK: usize = 256;

/// What the features depend on besides the data and the loadings \[M2\].
pub struct FeatureConditional<'a> {
    /// Of `W'W`.
    pub rotation: &'a Eigen,
    pub noise_variance: f64,
    /// `h_v`, one a mode.
    pub precisions: &'a [f64],
    pub streams: &'a Streams,
}

/// `Y S'` and `S S'`: all that the rows need to know of the data. Stale once the features change.
#[derive(Clone, Debug, Default)]
pub struct Projections {
    n_features: usize,
    with_data: Vec<f64>,
    gram: Vec<f64>,
    squared_residual: f64,
    features_fresh: bool,
    residual_fresh: bool,
}

impl Projections {
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
        self.features_fresh = false;
        self.residual_fresh = false;
    }
}

/// Draws all features jointly from their conditional \[M2\] and projects the data onto them.
pub fn draw_features<R: Real>(
    data: &SpectralData<R>,
    row_norms: &[f64],
    loadings: &Loadings,
    conditional: &FeatureConditional,
    spectra: &mut FeatureSpectra<R>,
    comm: &dyn Comm,
) -> Projections {
    Pass { data, row_norms, loadings, conditional: Some(conditional), comm }.run(spectra)
}

/// Projects the data onto the features as they are.
pub fn project<R: Real>(
    data: &SpectralData<R>,
    row_norms: &[f64],
    loadings: &Loadings,
    spectra: &mut FeatureSpectra<R>,
    comm: &dyn Comm,
) -> Projections {
    Pass { data, row_norms, loadings, conditional: None, comm }.run(spectra)
}

struct Pass<'a, R> {
    data: &'a SpectralData<R>,
    row_norms: &'a [f64],
    loadings: &'a Loadings,
    conditional: Option<&'a FeatureConditional<'a>>,
    comm: &'a dyn Comm,
}

/// The places of a tile: its features and its slots for the residual and the features' squared norms.
struct Place<'a, R> {
    tile: usize,
    features: &'a mut [R],
    slots: &'a mut [f64],
}

/// What one thread needs and adds up.
struct Scratch<R> {
    statistic: Vec<f64>,
    rotated: Vec<f64>,
    drawn: Vec<f64>,
    small_gram: Vec<f64>,
    products: Vec<R>,
    residual: Vec<R>,
    with_data: FixedSums,
    gram: FixedSums,
}

impl<R: Real> Pass<'_, R> {
    fn run(&self, spectra: &mut FeatureSpectra<R>) -> Projections {
        let rows: Vec<i32> = self.row_norms.iter().map(|&norm| bounding_exponent(norm)).collect();
        let mut exponents: Vec<i32> =
            spectra.squared_norms().iter().map(|norm| bounding_exponent(norm.sqrt())).collect();
        loop {
            let (projections, norms) = self.attempt(spectra, &rows, &exponents);
            let holds = exponents.iter().zip(&norms).all(|(&assumed, &norm)| exponent_holds(assumed, norm));
            // What is not finite is left for the chain to report.
            if holds || norms.iter().any(|norm| !norm.is_finite()) {
                return projections;
            }
            exponents = norms.iter().map(|&norm| bounding_exponent(norm)).collect();
        }
    }

    /// One pass with assumed exponents of the features' norms; returns the true norms too.
    fn attempt(&self, spectra: &mut FeatureSpectra<R>, rows: &[i32], cols: &[i32]) -> (Projections, Vec<f64>) {
        let (n_rows, k, n_tiles) = (self.data.n_rows(), spectra.n_features(), self.data.tiles().len());
        let factors = column_factors(cols);
        let (data_units, gram_units) = (Units { rows, cols }, Units { rows: cols, cols });
        let mut slots = vec![0.0; n_tiles * (k + 1)];
        let places = spectra.tile_slices_mut().zip(slots.chunks_mut(k + 1)).enumerate();
        let places = places.map(|(tile, (features, slots))| Place { tile, features, slots });
        let scratches = share(
            places,
            || self.new_scratch(k),
            |scratch, mut place| {
                if let Some(conditional) = self.conditional {
                    self.draw_tile(conditional, &mut place, scratch);
                }
                self.project_tile(&mut place, scratch, &data_units, &gram_units, &factors);
            },
        );
        let mut sums = scratches.into_iter().map(|scratch| (scratch.with_data, scratch.gram));
        let (mut with_data, mut gram) =
            sums.next().unwrap_or_else(|| (FixedSums::zeros(n_rows, k), FixedSums::zeros(k, k)));
        for (other_data, other_gram) in sums {
            with_data.merge(&other_data);
            gram.merge(&other_gram);
        }
        self.comm.sum_integers(with_data.integers_mut());
        self.comm.sum_integers(gram.integers_mut());
        let totals = self.add_slots(slots, k + 1);
        let projections = Projections {
            n_features: k,
            with_data: with_data.to_floats(&data_units),
            gram: gram.to_floats(&gram_units),
            squared_residual: totals[0],
            features_fresh: true,
            residual_fresh: true,
        };
        (projections, totals[1..].iter().map(|x| x.sqrt()).collect())
    }

    fn new_scratch(&self, k: usize) -> Scratch<R> {
        Scratch {
            statistic: Vec::new(),
            rotated: Vec::new(),
            drawn: Vec::new(),
            small_gram: vec![0.0; k * k],
            products: Vec::new(),
            residual: Vec::new(),
            with_data: FixedSums::zeros(self.data.n_rows(), k),
            gram: FixedSums::zeros(k, k),
        }
    }

    /// Slots of all tiles, added in tile order.
    fn add_slots(&self, slots: Vec<f64>, n_sums: usize) -> Vec<f64> {
        super::sum_over_tiles(self.data.tiles(), n_sums, self.comm, |tile, _, out| {
            out.copy_from_slice(&slots[tile * n_sums..(tile + 1) * n_sums]);
        })
    }

    /// The joint draw at the modes of one tile: in the basis that diagonalises `W'W` everything is independent.
    fn draw_tile(&self, conditional: &FeatureConditional, place: &mut Place<R>, scratch: &mut Scratch<R>) {
        let modes = self.data.tiles().modes(place.tile);
        let (k, width) = (conditional.rotation.values.len(), modes.len());
        for buffer in [&mut scratch.statistic, &mut scratch.rotated, &mut scratch.drawn] {
            buffer.clear();
            buffer.resize(k * width, 0.0);
        }
        self.add_statistic(place.tile, width, &mut scratch.statistic);
        let vectors = View::new(&conditional.rotation.vectors, k, k);
        multiply(&mut scratch.rotated, vectors.t(), View::new(&scratch.statistic, k, width));
        let mut stream = conditional.streams.stream(Purpose::Features, 0, place.tile as u64);
        let precisions = &conditional.precisions[modes];
        for (row, value) in scratch.rotated.chunks_exact_mut(width).zip(&conditional.rotation.values) {
            let from_data = value.max(0.0) / conditional.noise_variance;
            for (x, h) in row.iter_mut().zip(precisions) {
                let precision = from_data + h;
                let normal: f64 = StandardNormal.sample(&mut stream);
                *x = *x / conditional.noise_variance / precision + normal / precision.sqrt();
            }
        }
        multiply(&mut scratch.drawn, vectors, View::new(&scratch.rotated, k, width));
        place.features.iter_mut().zip(&scratch.drawn).for_each(|(to, x)| *to = R::from_f64(*x));
    }

    /// `B = W'Y` at one tile.
    fn add_statistic(&self, tile: usize, width: usize, statistic: &mut [f64]) {
        for (row, values) in self.data.tile(tile).chunks_exact(width).enumerate() {
            for entry in self.loadings.row(row) {
                let sum = &mut statistic[entry.feature * width..(entry.feature + 1) * width];
                sum.iter_mut().zip(values).for_each(|(b, y)| *b += entry.weight * y.to_f64());
            }
        }
    }

    /// Adds one tile's share of `Y S'`, `S S'`, the squared norms and the squared residual.
    fn project_tile(
        &self,
        place: &mut Place<R>,
        scratch: &mut Scratch<R>,
        data_units: &Units,
        gram_units: &Units,
        factors: &[f64],
    ) {
        let width = self.data.tiles().width(place.tile);
        let k = place.features.len() / width;
        let features = View::new(&*place.features, k, width);
        let wide: Vec<f64> = place.features.iter().map(|x| x.to_f64()).collect();
        let wide = View::new(&wide, k, width);
        multiply(&mut scratch.small_gram, wide, wide.t());
        scratch.gram.add_rows(0, &scratch.small_gram, gram_units, factors);
        (0..k).for_each(|j| place.slots[1 + j] = scratch.small_gram[j * k + j]);
        for (chunk, rows) in self.data.tile(place.tile).chunks(ROW_CHUNK * width).enumerate() {
            let n_rows = rows.len() / width;
            scratch.products.resize(n_rows * k, R::zero());
            multiply(&mut scratch.products, View::new(rows, n_rows, width), features.t());
            scratch.with_data.add_rows(chunk * ROW_CHUNK, &scratch.products, data_units, factors);
            for (row, values) in rows.chunks_exact(width).enumerate() {
                let entries = self.loadings.row(chunk * ROW_CHUNK + row);
                scratch.residual.clear();
                scratch.residual.extend_from_slice(values);
                for entry in entries {
                    let feature = &place.features[entry.feature * width..(entry.feature + 1) * width];
                    let minus = R::from_f64(-entry.weight);
                    scratch.residual.iter_mut().zip(feature).for_each(|(r, s)| *r = s.add_scaled(minus, *r));
                }
                place.slots[0] += sum_of_squares(&scratch.residual);
            }
        }
    }
}

/// The sum of squares in double precision, in eight lanes so that it can be vectorised in a fixed order.
fn sum_of_squares<R: Real>(values: &[R]) -> f64 {
    let mut lanes = [0.0; 8];
    let chunks = values.chunks_exact(8);
    let tail: f64 = chunks.remainder().iter().map(|x| x.to_f64().powi(2)).sum();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane += x.to_f64() * x.to_f64());
    }
    lanes.iter().sum::<f64>() + tail
}
