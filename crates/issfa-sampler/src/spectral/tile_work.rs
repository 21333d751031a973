//! The loops over one tile, compiled for the machine's vectors: `W'Y`, the draw, and projection.
//!
//! They are plain loops inside `with_simd`, which the dispatcher instantiates with the instructions that the machine has.
//! Order and rounding do not depend on them.

use super::products::{Packed, ROWS};
use super::residual::{add_squares, with_products};
use super::sums::{Factors, FixedSums};
use crate::numeric::linalg::Real;
use crate::spectral::{Entry, Layout, Loadings, SpectralData};
use pulp::{Simd, WithSimd};

/// Rows that stay in cache while `W'Y` is formed, with as many that are being fetched.
const ROW_BLOCK: usize = 128;

/// Modes that are worked on at a time in registers.
pub const PIECE: usize = 64;

/// `B = W'Y` at one tile. A block of rows stays in cache while each feature adds up its rows, a piece of the tile in
/// registers.
pub struct AddStatistic<'a, R> {
    pub rows: &'a [R],
    pub width: usize,
    pub columns: &'a Columns<R>,
    pub statistic: &'a mut [R],
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

/// `W'Y` at one tile, as a sum over bands: those of the rows that are here.
pub fn add_bands<R: Real>(
    arch: pulp::Arch,
    data: &SpectralData<R>,
    tile: usize,
    columns: &[Columns<R>],
    (statistic, band): (&mut [R], &mut Vec<R>),
) {
    let (width, mut rows) = (data.tiles().width(tile), data.tile(tile));
    if columns.is_empty() {
        statistic.fill(R::zero());
    }
    for (at, columns) in columns.iter().enumerate() {
        let (now, later) = rows.split_at(columns.n_rows * width);
        rows = later;
        if at == 0 {
            arch.dispatch(AddStatistic { rows: now, width, columns, statistic });
            continue;
        }
        band.resize(statistic.len(), R::zero());
        arch.dispatch(AddStatistic { rows: now, width, columns, statistic: band });
        statistic.iter_mut().zip(&*band).for_each(|(sum, x)| *sum = *sum + *x);
    }
}

/// The loadings of the rows that are here, weights negated and in the precision of the data.
pub struct RowEntries<R> {
    starts: Vec<usize>,
    entries: Vec<(u32, R)>,
}

impl<R: Real> RowEntries<R> {
    pub fn new(loadings: &Loadings) -> RowEntries<R> {
        let n_active = loadings.rows().iter().map(Vec::len).sum();
        let (mut starts, mut entries) = (vec![0], Vec::with_capacity(n_active));
        for row in loadings.rows() {
            entries.extend(row.iter().map(|entry| (entry.feature as u32, R::from_f64(-entry.weight))));
            starts.push(entries.len());
        }
        RowEntries { starts, entries }
    }

    /// Of one of these rows.
    #[inline(always)]
    pub fn of(&self, row: usize) -> &[(u32, R)] {
        &self.entries[self.starts[row]..self.starts[row + 1]]
    }
}

/// The loadings of a band by blocks of rows and, within a block, by features.
pub struct Columns<R> {
    n_rows: usize,
    n_features: usize,
    /// Where the entries of each (block, feature) start, and the end.
    starts: Vec<usize>,
    /// Row within the block, and weight.
    entries: Vec<(u32, R)>,
}

impl<R: Real> Columns<R> {
    /// One for each band that is here.
    pub fn of_bands(loadings: &Loadings, layout: Layout) -> Vec<Columns<R>> {
        layout.bands_here().map(|(_, rows)| Columns::new(loadings.some(rows), loadings.n_features())).collect()
    }

    /// Of some rows, over so many features.
    pub fn new(rows: &[Vec<Entry>], n_features: usize) -> Columns<R> {
        let (n_rows, n_active) = (rows.len(), rows.iter().map(Vec::len).sum());
        let (mut starts, mut entries) = (vec![0], Vec::with_capacity(n_active));
        let mut lists = vec![Vec::new(); n_features];
        for rows in rows.chunks(ROW_BLOCK) {
            for (row, entry) in rows.iter().enumerate().flat_map(|(row, list)| list.iter().map(move |e| (row, e))) {
                lists[entry.feature].push((row as u32, R::from_f64(entry.weight)));
            }
            for list in &mut lists {
                entries.append(list);
                starts.push(entries.len());
            }
        }
        Columns { n_rows, n_features, starts, entries }
    }

    /// How many rows they are of.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    #[inline(always)]
    fn of(&self, block: usize, feature: usize) -> &[(u32, R)] {
        let at = block * self.n_features + feature;
        &self.entries[self.starts[at]..self.starts[at + 1]]
    }
}

/// Turns the rotated statistic into the rotated draw.
pub struct DrawRotated<'a, R> {
    /// Eigenvalues of `W'W`.
    pub values: &'a [f64],
    pub noise_variance: f64,
    pub precisions: &'a [f64],
    pub rotated: &'a mut [R],
    pub normals: &'a [f64],
}

impl<R: Real> WithSimd for DrawRotated<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.precisions.len();
        let per_noise = 1.0 / self.noise_variance;
        let rows = self.rotated.chunks_exact_mut(width).zip(self.normals.chunks_exact(width));
        for ((row, normals), value) in rows.zip(self.values) {
            let from_data = value.max(0.0) * per_noise;
            for ((x, h), normal) in row.iter_mut().zip(self.precisions).zip(normals) {
                let variance = 1.0 / (from_data + h);
                *x = R::from_f64(x.to_f64() * per_noise * variance + normal * variance.sqrt());
            }
        }
    }
}

/// Draws the features of a tile one after the other, each given the others.
pub struct DrawOneByOne<'a, R> {
    /// `W'W`, row-major.
    pub gram: &'a [f64],
    pub order: &'a [usize],
    pub noise_variance: f64,
    pub precisions: &'a [f64],
    /// `W'Y`.
    pub statistic: &'a [R],
    pub normals: &'a [f64],
    pub features: &'a mut [R],
}

impl<R: Real> WithSimd for DrawOneByOne<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let (width, k) = (self.precisions.len(), self.order.len());
        let per_noise = 1.0 / self.noise_variance;
        let mut unexplained = vec![0.0; width];
        for &feature in self.order {
            let place = feature * width..(feature + 1) * width;
            unexplained.iter_mut().zip(&self.statistic[place.clone()]).for_each(|(u, b)| *u = b.to_f64());
            let overlaps = &self.gram[feature * k..(feature + 1) * k];
            for (other, overlap) in overlaps.iter().enumerate().filter(|(j, x)| *j != feature && **x != 0.0) {
                let others = &self.features[other * width..(other + 1) * width];
                unexplained.iter_mut().zip(others).for_each(|(u, s)| *u -= overlap * s.to_f64());
            }
            let from_data = overlaps[feature] * per_noise;
            let (features, normals) = (&mut self.features[place.clone()], &self.normals[place]);
            for (((x, u), h), normal) in features.iter_mut().zip(&unexplained).zip(self.precisions).zip(normals) {
                let variance = 1.0 / (from_data + h);
                *x = R::from_f64(u * per_noise * variance + normal * variance.sqrt());
            }
        }
    }
}

/// Adds a tile's share of `Y S'` of a band of rows to `sums`, a few rows at a time, and returns that of `|Y|^2 - 2 W (Y S')'`.
pub struct ProjectRows<'a, R> {
    pub rows: &'a [R],
    /// Where they start among the rows of `entries` and `sums`.
    pub first: usize,
    pub width: usize,
    pub entries: &'a RowEntries<R>,
    pub packed: &'a Packed<R>,
    pub products: &'a mut [R],
    pub sums: &'a mut FixedSums,
    pub factors: &'a Factors,
}

impl<R: Real> WithSimd for ProjectRows<'_, R> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let ProjectRows { width, first, .. } = self;
        let n_features = self.factors.n_cols();
        let (mut squares, mut crossed) = ([0.0; PIECE], 0.0);
        for (group, rows) in self.rows.chunks(ROWS * width).enumerate() {
            let products = &mut self.products[..rows.len() / width * n_features];
            self.packed.inner_products(rows, products);
            self.sums.add_rows(first + group * ROWS, products, self.factors);
            add_squares(rows, self.rows.get((group + 1) * ROWS * width..).unwrap_or_default(), &mut squares);
            let entries = (0..rows.len() / width).map(|row| self.entries.of(first + group * ROWS + row));
            crossed += with_products(n_features, products, entries);
        }
        squares.iter().sum::<f64>() + crossed
    }
}

/// Asks the machine to bring numbers nearer that will be needed soon; it changes nothing else.
#[inline(always)]
pub fn prefetch<R>(values: &[R]) {
    #[cfg(target_arch = "x86_64")]
    for line in values.chunks(64 / size_of::<R>()) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch is a hint about an address and reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}
