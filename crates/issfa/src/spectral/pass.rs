//! The streaming pass: one visit of every tile of the data draws the features and collects all that the rows need.
//!
//! For each tile: the statistic `B = W'Y` (W is sparse), the joint draw of all features at the tile's modes, then
//! `Y S'` and `S S'` into fixed-point sums and the explicit residual `Y - W S` into its slot.

use super::products::{Packed, ROWS};
use super::sums::{Factors, FixedSums, Units, bounding_exponent, exponent_holds};
use super::{FeatureSpectra, SpectralData};
use crate::comm::Comm;
use crate::linalg::{Eigen, Real, View, multiply};
use crate::model::Loadings;
use crate::rng::{Purpose, Streams};
use crate::workers::share;
use pulp::{Simd, WithSimd};
use rand_distr::{Distribution, StandardNormal};

/// Rows that stay in cache while `W'Y` is formed, with as many that are being fetched.
const ROW_BLOCK: usize = 128;

/// Modes that are worked on at a time in registers.
const PIECE: usize = 64;

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
    let vectors = conditional.rotation.vectors.iter().map(|&x| R::from_f64(x)).collect();
    let drawing = Some(Drawing { conditional, vectors, columns: Columns::new(loadings) });
    Pass { data, row_norms, entries: RowEntries::new(loadings), drawing, comm }.run(spectra)
}

/// Projects the data onto the features as they are.
pub fn project<R: Real>(
    data: &SpectralData<R>,
    row_norms: &[f64],
    loadings: &Loadings,
    spectra: &mut FeatureSpectra<R>,
    comm: &dyn Comm,
) -> Projections {
    Pass { data, row_norms, entries: RowEntries::new(loadings), drawing: None, comm }.run(spectra)
}

struct Pass<'a, R> {
    data: &'a SpectralData<R>,
    row_norms: &'a [f64],
    entries: RowEntries<R>,
    drawing: Option<Drawing<'a, R>>,
    comm: &'a dyn Comm,
}

/// A draw with its rotation and the loadings in the precision of the data.
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
        let (data_factors, gram_factors) = (Units { rows, cols }.factors(), Units { rows: cols, cols }.factors());
        let mut slots = vec![0.0; n_tiles * (k + 1)];
        let places = spectra.tile_slices_mut().zip(slots.chunks_mut(k + 1)).enumerate();
        let places = places.map(|(tile, (features, slots))| Place { tile, features, slots });
        let scratches = share(
            places,
            || self.new_scratch(k),
            |scratch, mut place| {
                if let Some(drawing) = &self.drawing {
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
        self.comm.sum_integers(with_data.integers_mut());
        self.comm.sum_integers(gram.integers_mut());
        let totals = self.add_slots(slots, k + 1);
        let projections = Projections {
            n_features: k,
            with_data: with_data.to_floats(&data_factors),
            gram: gram.to_floats(&gram_factors),
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
        super::sum_over_tiles(self.data.tiles(), n_sums, self.comm, |tile, _, out| {
            out.copy_from_slice(&slots[tile * n_sums..(tile + 1) * n_sums]);
        })
    }

    /// The joint draw at the modes of one tile: in the basis that diagonalises `W'W` everything is independent.
    fn draw_tile(&self, drawing: &Drawing<R>, place: &mut Place<R>, scratch: &mut Scratch<R>) {
        let modes = self.data.tiles().modes(place.tile);
        let (conditional, width) = (drawing.conditional, modes.len());
        let k = conditional.rotation.values.len();
        let Scratch { arch, statistic, rotated, normals, .. } = scratch;
        statistic.resize(k * width, R::zero());
        let rows = self.data.tile(place.tile);
        arch.dispatch(AddStatistic { rows, width, columns: &drawing.columns, statistic });
        rotated.resize(k * width, R::zero());
        let vectors = View::new(&drawing.vectors, k, k);
        multiply(rotated, vectors.t(), View::new(statistic, k, width));
        let mut stream = conditional.streams.stream(Purpose::Features, 0, place.tile as u64);
        normals.clear();
        normals.extend((0..k * width).map(|_| -> f64 { StandardNormal.sample(&mut stream) }));
        let precisions = &conditional.precisions[modes];
        arch.dispatch(DrawRotated { conditional, precisions, rotated, normals });
        multiply(place.features, vectors, View::new(rotated, k, width));
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

// What follows is compiled for the machine's vectors: plain loops inside `with_simd`, which the dispatcher instantiates
// with the instructions that the machine has. Order and rounding do not depend on them.

/// `B = W'Y` at one tile. A block of rows stays in cache while each feature adds up its rows, a piece of the tile in
/// registers.
struct AddStatistic<'a, R> {
    rows: &'a [R],
    width: usize,
    columns: &'a Columns<R>,
    statistic: &'a mut [R],
}

impl<R: Real> WithSimd for AddStatistic<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let AddStatistic { rows, width, columns, statistic } = self;
        statistic.fill(R::zero());
        let n_features = columns.n_features.max(1);
        for (block, start) in (0..rows.len()).step_by(ROW_BLOCK * width).enumerate() {
            let (rows, later) = rows[start..].split_at((ROW_BLOCK * width).min(rows.len() - start));
            let mut later = later[..rows.len().min(later.len())].chunks(rows.len().div_ceil(n_features));
            for (feature, sums) in statistic.chunks_exact_mut(width).enumerate() {
                prefetch(later.next().unwrap_or_default());
                let entries = columns.of(block, feature);
                if entries.is_empty() {
                    continue;
                }
                let (pieces, tail) = sums.as_chunks_mut::<PIECE>();
                for (at, piece) in pieces.iter_mut().enumerate() {
                    let mut sum = [R::zero(); PIECE];
                    for &(row, weight) in entries {
                        let first = row as usize * width + at * PIECE;
                        let values: &[R; PIECE] = rows[first..first + PIECE].try_into().expect("a piece of a row");
                        for v in 0..PIECE {
                            sum[v] = values[v].mul_add(weight, sum[v]);
                        }
                    }
                    piece.iter_mut().zip(sum).for_each(|(total, part)| *total = part.mul_add(R::one(), *total));
                }
                let first = width - tail.len();
                for (offset, total) in tail.iter_mut().enumerate() {
                    let add = |sum: R, &(row, weight): &(u32, R)| {
                        rows[row as usize * width + first + offset].mul_add(weight, sum)
                    };
                    *total = entries.iter().fold(R::zero(), add).mul_add(R::one(), *total);
                }
            }
        }
    }
}

/// The loadings by rows, weights negated and in the precision of the data.
struct RowEntries<R> {
    starts: Vec<usize>,
    entries: Vec<(u32, R)>,
}

impl<R: Real> RowEntries<R> {
    fn new(loadings: &Loadings) -> RowEntries<R> {
        let (mut starts, mut entries) = (vec![0], Vec::with_capacity(loadings.n_active()));
        for row in loadings.rows() {
            entries.extend(row.iter().map(|entry| (entry.feature as u32, R::from_f64(-entry.weight))));
            starts.push(entries.len());
        }
        RowEntries { starts, entries }
    }

    #[inline(always)]
    fn of(&self, row: usize) -> &[(u32, R)] {
        &self.entries[self.starts[row]..self.starts[row + 1]]
    }
}

/// The loadings by blocks of rows and, within a block, by features.
struct Columns<R> {
    n_features: usize,
    /// Where the entries of each (block, feature) start, and the end.
    starts: Vec<usize>,
    /// Row within the block, and weight.
    entries: Vec<(u32, R)>,
}

impl<R: Real> Columns<R> {
    fn new(loadings: &Loadings) -> Columns<R> {
        let n_features = loadings.n_features();
        let (mut starts, mut entries) = (vec![0], Vec::with_capacity(loadings.n_active()));
        let mut lists = vec![Vec::new(); n_features];
        for rows in loadings.rows().chunks(ROW_BLOCK) {
            for (row, entry) in rows.iter().enumerate().flat_map(|(row, list)| list.iter().map(move |e| (row, e))) {
                lists[entry.feature].push((row as u32, R::from_f64(entry.weight)));
            }
            for list in &mut lists {
                entries.append(list);
                starts.push(entries.len());
            }
        }
        Columns { n_features, starts, entries }
    }

    #[inline(always)]
    fn of(&self, block: usize, feature: usize) -> &[(u32, R)] {
        let at = block * self.n_features + feature;
        &self.entries[self.starts[at]..self.starts[at + 1]]
    }
}

/// Turns the rotated statistic into the rotated draw.
struct DrawRotated<'a, R> {
    conditional: &'a FeatureConditional<'a>,
    precisions: &'a [f64],
    rotated: &'a mut [R],
    normals: &'a [f64],
}

impl<R: Real> WithSimd for DrawRotated<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.precisions.len();
        let per_noise = 1.0 / self.conditional.noise_variance;
        let rows = self.rotated.chunks_exact_mut(width).zip(self.normals.chunks_exact(width));
        for ((row, normals), value) in rows.zip(&self.conditional.rotation.values) {
            let from_data = value.max(0.0) * per_noise;
            for ((x, h), normal) in row.iter_mut().zip(self.precisions).zip(normals) {
                let variance = 1.0 / (from_data + h);
                *x = R::from_f64(x.to_f64() * per_noise * variance + normal * variance.sqrt());
            }
        }
    }
}

/// Adds a tile's share of `Y S'` to `sums` and returns its share of the squared residual, a few rows at a time.
struct ProjectRows<'a, R> {
    rows: &'a [R],
    width: usize,
    entries: &'a RowEntries<R>,
    features: &'a [R],
    packed: &'a Packed<R>,
    products: &'a mut [R],
    sums: &'a mut FixedSums,
    factors: &'a Factors,
}

impl<R: Real> WithSimd for ProjectRows<'_, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let ProjectRows { width, features, .. } = self;
        let mut squares = [0.0; PIECE];
        for (group, rows) in self.rows.chunks(ROWS * width).enumerate() {
            let products = &mut self.products[..rows.len() / width * self.factors.n_cols()];
            self.packed.inner_products(rows, products);
            self.sums.add_rows(group * ROWS, products, self.factors);
            let later = self.rows.get((group + 1) * ROWS * width..).unwrap_or_default();
            let entries = |row: usize| self.entries.of(group * ROWS + row);
            add_squared_residuals(rows, later, features, width, entries, &mut squares);
        }
        squares.iter().sum()
    }
}

/// Asks the machine to bring numbers nearer that will be needed soon; it changes nothing else.
#[inline(always)]
fn prefetch<R>(values: &[R]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks(64 / size_of::<R>()) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch is a hint about an address and reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

/// Adds `(y - w S)^2` of some rows at one tile to `lanes`. A piece of all features stays in the first cache while the rows
/// go by, and a piece of a row in registers while features are taken off. Meanwhile the `later` rows are fetched.
#[inline(always)]
fn add_squared_residuals<'a, R: Real>(
    rows: &[R],
    later: &[R],
    features: &[R],
    width: usize,
    entries: impl Fn(usize) -> &'a [(u32, R)],
    lanes: &mut [f64; PIECE],
) {
    let n_rows = rows.len() / width;
    for first in (0..width / PIECE * PIECE).step_by(PIECE) {
        let piece = |from: &[R], at: usize| -> [R; PIECE] {
            from[at * width + first..at * width + first + PIECE].try_into().expect("a piece of a tile")
        };
        let mut squares = [R::zero(); PIECE];
        for row in 0..n_rows {
            prefetch(later.get(row * width + first..row * width + first + PIECE).unwrap_or_default());
            let mut residual = piece(rows, row);
            for &(feature, minus) in entries(row) {
                let feature = piece(features, feature as usize);
                for v in 0..PIECE {
                    residual[v] = feature[v].mul_add(minus, residual[v]);
                }
            }
            for v in 0..PIECE {
                squares[v] = residual[v].mul_add(residual[v], squares[v]);
            }
        }
        for v in 0..PIECE {
            lanes[v] += squares[v].to_f64();
        }
    }
    for row in 0..n_rows {
        for mode in width / PIECE * PIECE..width {
            let take_off =
                |r: R, &(feature, minus): &(u32, R)| features[feature as usize * width + mode].mul_add(minus, r);
            lanes[mode % PIECE] += entries(row).iter().fold(rows[row * width + mode], take_off).to_f64().powi(2);
        }
    }
}
