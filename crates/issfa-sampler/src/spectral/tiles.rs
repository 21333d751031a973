//! Storage by tiles of modes: the data (the rows that are here, of each tile contiguous) and the features.

use super::kept::{Kept, TileRow};
use super::sharing::{Layout, Sharing};
use super::storage::{Ahead, Look, Storage};
use crate::comm::{Comm, part_of};
use crate::error::Result;
use crate::numeric::lanes::TILE;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use std::ops::Range;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// How `n_modes` modes are cut into tiles, and which of them this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Of all tiles, whoever holds them.
    pub n_modes: usize,
    /// The tiles of this rank, first and end; `None` where every rank holds all of them.
    part: Option<(usize, usize)>,
    /// Whether this rank is the first of those that hold them.
    speaks: bool,
    /// Ranks that hold all of them between them.
    n_columns: usize,
}

impl Tiles {
    /// Everything in one place.
    pub fn whole(n_modes: usize) -> Tiles {
        Tiles { n_modes, part: None, speaks: true, n_columns: 1 }
    }

    /// Those of one of several columns of ranks; none for a rank that is left over. Where ranks hold the same tiles one of them
    /// speaks for them: ranks that do come first and, in their order, have all tiles in theirs.
    pub fn part(self, column: Option<usize>, n_columns: usize, speaks: bool) -> Tiles {
        let part = column.map_or(0..0, |column| part_of(self.len(), column, n_columns));
        Tiles { n_modes: self.n_modes, part: Some((part.start, part.end)), speaks, n_columns }
    }

    /// The tiles that each of `size` ranks speaks for.
    pub fn spoken_for(self, size: usize) -> impl Iterator<Item = Range<usize>> {
        let n_columns = self.n_columns;
        (0..size).map(move |rank| if rank < n_columns { part_of(self.len(), rank, n_columns) } else { 0..0 })
    }

    /// The same for sums between ranks of which no two hold the same tile.
    pub fn each_once(self) -> Tiles {
        Tiles { speaks: true, ..self }
    }

    /// Whether what is known of the tiles here is for this rank to tell.
    pub fn speaks(self) -> bool {
        self.speaks
    }

    /// Whether other ranks hold other tiles.
    pub fn is_shared(self) -> bool {
        self.part.is_some()
    }

    /// The tiles that are here.
    pub fn owned(self) -> Range<usize> {
        self.part.map_or(0..self.len(), |(first, end)| first..end)
    }

    /// The modes of the tiles that are here.
    pub fn owned_modes(self) -> Range<usize> {
        let owned = self.owned();
        (owned.start * TILE).min(self.n_modes)..(owned.end * TILE).min(self.n_modes)
    }

    /// The number of tiles, here and elsewhere.
    pub fn len(self) -> usize {
        self.n_modes.div_ceil(TILE)
    }

    /// Whether there is nothing to cut.
    pub fn is_empty(self) -> bool {
        self.n_modes == 0
    }

    /// The modes of one tile.
    pub fn modes(self, tile: usize) -> Range<usize> {
        tile * TILE..((tile + 1) * TILE).min(self.n_modes)
    }

    /// How many modes a tile has.
    pub fn width(self, tile: usize) -> usize {
        self.modes(tile).len()
    }
}

/// The observations in the spectral domain, `Y U`: for each tile that is here, the rows that are here x modes, row-major.
#[derive(Debug)]
pub struct SpectralData<R> {
    sharing: Sharing,
    tiles: Tiles,
    /// The rows that are here.
    rows: Range<usize>,
    values: Storage<R>,
    /// Rows that are in memory beside, where the values are in a file.
    pub(super) kept: Option<Kept<R>>,
}

impl<R: Real> SpectralData<R> {
    /// Room for `n_rows` whole rows, all zero.
    pub fn zeros(n_rows: usize, tiles: Tiles) -> Self {
        assert!(!tiles.is_shared(), "data that are shared come with those who share them");
        let sharing = Sharing::none(n_rows, tiles.n_modes);
        SpectralData::of(&sharing, Storage::in_memory(n_cells_here(&sharing)))
    }

    /// Whole data whose rows are summed over in other bands: for tests, which have few rows.
    pub fn in_bands(self, band: usize) -> Self {
        let sharing = Sharing::in_bands(self.n_rows(), self.n_modes(), band);
        SpectralData::of(&sharing, self.values)
    }

    fn of(sharing: &Sharing, values: Storage<R>) -> Self {
        let layout = sharing.layout();
        SpectralData { sharing: sharing.clone(), tiles: layout.tiles(), rows: layout.rows_here(), values, kept: None }
    }

    /// Values in a file, beside which some rows may be in memory.
    fn keeping(sharing: &Sharing, values: Storage<R>, room: usize) -> Self {
        let kept = matches!(values, Storage::Spilled(_)).then(|| Kept::new(sharing.layout().tiles(), room));
        SpectralData { kept, ..SpectralData::of(sharing, values) }
    }

    /// Room for this rank's part, or an error where the system refuses the memory.
    pub fn in_memory(sharing: &Sharing) -> Result<Self> {
        Ok(SpectralData::of(sharing, Storage::try_in_memory(n_cells_here(sharing))?))
    }

    /// [`SpectralData::in_memory`] in the room that was made ahead, if it is as large as it should be.
    pub fn made_ahead(sharing: &Sharing, ahead: Ahead<R>) -> Result<Self> {
        match ahead.taken(n_cells_here(sharing)) {
            Some(values) => Ok(SpectralData::of(sharing, values)),
            None => SpectralData::in_memory(sharing),
        }
    }

    /// [`SpectralData::in_memory`] in a file in `folder`, for data that memory does not hold; rows that are kept in memory beside
    /// may take so many bytes.
    pub fn spilled(sharing: &Sharing, folder: &Path, room: usize) -> Result<Self> {
        Ok(SpectralData::keeping(sharing, Storage::in_file(n_cells_here(sharing), folder)?, room))
    }

    /// [`SpectralData::in_memory`] where these are: in memory, or in a file beside theirs.
    pub fn beside(&self, sharing: &Sharing) -> Self {
        let room = self.kept.as_ref().map_or(0, Kept::room);
        SpectralData::keeping(sharing, self.values.beside(n_cells_here(sharing)), room)
    }

    /// Lets go of what is in a file: memory need not hold it until it is looked at.
    pub fn let_go(&self) {
        self.values.let_go();
    }

    /// Lays out rows given as full spectra.
    pub fn from_rows<E: Real>(rows: &[Vec<E>]) -> Self {
        let tiles = Tiles::whole(rows.first().map_or(0, Vec::len));
        let mut data = Self::zeros(rows.len(), tiles);
        let place = |_: &mut (), (tile, values): (usize, &mut [R])| {
            let modes = tiles.modes(tile);
            for (to, row) in values.chunks_exact_mut(modes.len()).zip(rows) {
                to.iter_mut().zip(&row[modes.clone()]).for_each(|(to, x)| *to = R::from_f64(x.to_f64()));
            }
        };
        share(data.tiles_mut(), || (), place);
        data
    }

    /// The tiles that are here with their numbers, mutable and in order, each rows x width.
    pub fn tiles_mut(&mut self) -> impl ExactSizeIterator<Item = (usize, &mut [R])> {
        let first = self.tiles.owned().start;
        self.values.chunks_mut((TILE * self.rows.len()).max(1)).enumerate().map(move |(at, tile)| (first + at, tile))
    }

    /// T, wherever the rows are.
    pub fn n_rows(&self) -> usize {
        self.sharing.layout().n_rows()
    }

    /// The rows that are here.
    pub fn rows_here(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Who holds what, and the ranks that do.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Who holds what.
    pub fn layout(&self) -> Layout {
        self.sharing.layout()
    }

    /// V: modes, or sites of a window.
    pub fn n_modes(&self) -> usize {
        self.tiles.n_modes
    }

    /// How columns are cut.
    pub fn tiles(&self) -> Tiles {
        self.tiles
    }

    /// All rows that are here of one tile, row-major.
    pub fn tile(&self, tile: usize) -> &[R] {
        let (values, width) = (self.look_at(tile, Look::All), self.tiles.width(tile));
        if let Some(kept) = &self.kept {
            let row = |row: usize| &values[(row - self.rows.start) * width..][..width];
            kept.pass_by(tile - self.tiles.owned().start, row);
        }
        values
    }

    /// [`SpectralData::tile`] without those after it: of values in a file these are not fetched.
    pub fn tile_alone(&self, tile: usize) -> &[R] {
        self.look_at(tile, Look::Rows)
    }

    fn look_at(&self, tile: usize, look: Look) -> &[R] {
        let n_rows = self.rows.len();
        self.values.follow(tile - self.tiles.owned().start, TILE * n_rows * R::BYTES, look);
        let (modes, first) = (self.tiles.modes(tile), self.tiles.owned_modes().start);
        &self.values[(modes.start - first) * n_rows..(modes.end - first) * n_rows]
    }

    /// One row within a tile.
    #[inline]
    pub fn tile_row(&self, tile: usize, row: usize) -> TileRow<'_, R> {
        debug_assert!(self.rows.contains(&row), "row {row} is on another rank: here are {:?}", self.rows);
        let kept = self.kept.as_ref().and_then(|kept| kept.row(tile - self.tiles.owned().start, row));
        kept.unwrap_or_else(|| {
            let (width, at) = (self.tiles.width(tile), row - self.rows.start);
            TileRow::of(&self.look_at(tile, Look::Rows)[at * width..(at + 1) * width])
        })
    }

    /// Some rows at one mode.
    pub fn column(&self, mode: usize, rows: Range<usize>) -> impl Iterator<Item = R> {
        let (tile, width) = (mode / TILE, self.tiles.width(mode / TILE));
        let values = &self.look_at(tile, Look::Rows)[(rows.start - self.rows.start) * width..];
        values.chunks_exact(width).take(rows.len()).map(move |row| row[mode % TILE])
    }

    /// Of values in a file: begins to fetch some rows of a tile that will be looked at soon.
    pub fn ask_for(&self, tile: usize, rows: Range<usize>) {
        let (width, first) = (self.tiles.width(tile), self.tiles.owned_modes().start);
        let start = (self.tiles.modes(tile).start - first) * self.rows.len();
        let at = |row: usize| (start + (row - self.rows.start) * width) * R::BYTES;
        self.values.ask_for(at(rows.start)..at(rows.end));
    }

    /// The whole spectrum of a row.
    pub fn row(&self, row: usize) -> Vec<f64> {
        assert!(!self.tiles.is_shared(), "whole rows are where all tiles are");
        (0..self.tiles.len())
            .flat_map(|tile| self.tile_row(tile, row).iter().map(|x| x.to_f64()).collect::<Vec<_>>())
            .collect()
    }
}

impl<R: Real> Clone for SpectralData<R> {
    /// A copy in memory.
    fn clone(&self) -> Self {
        SpectralData::of(&self.sharing, self.values.copied())
    }
}

/// How many numbers fall to this rank.
fn n_cells_here(sharing: &Sharing) -> usize {
    let layout = sharing.layout();
    layout.rows_here().len().saturating_mul(layout.tiles().owned_modes().len())
}

/// The features in the spectral domain, `S U`: for each tile that is here, features x modes, row-major.
///
/// Births append and deaths move the last features into the holes, so neither copies the whole array.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureSpectra<R> {
    n_features: usize,
    tiles: Tiles,
    values: Vec<Vec<R>>,
}

impl<R: Real> FeatureSpectra<R> {
    /// No feature yet, everything in one place.
    pub fn empty(n_modes: usize) -> Self {
        FeatureSpectra::none(Tiles::whole(n_modes))
    }

    /// No feature yet.
    pub fn none(tiles: Tiles) -> Self {
        FeatureSpectra { n_features: 0, tiles, values: vec![Vec::new(); tiles.owned().len()] }
    }

    /// Features given as full spectra.
    pub fn from_rows<'a>(n_modes: usize, rows: impl Iterator<Item = &'a [f64]>) -> Self {
        let mut spectra = Self::empty(n_modes);
        rows.for_each(|row| spectra.push(row));
        spectra
    }

    /// The same with all tiles filled in parallel.
    pub fn from_vectors<E: Real>(n_modes: usize, rows: &[Vec<E>]) -> Self {
        let mut spectra = Self::empty(n_modes);
        spectra.grow(rows.len());
        let tiles = spectra.tiles;
        let fill = |_: &mut (), (tile, values): (usize, &mut [R])| {
            let modes = tiles.modes(tile);
            for (to, row) in values.chunks_exact_mut(modes.len()).zip(rows) {
                to.iter_mut().zip(&row[modes.clone()]).for_each(|(to, x)| *to = R::from_f64(x.to_f64()));
            }
        };
        share(spectra.tiles_mut(), || (), fill);
        spectra
    }

    /// The tiles of one rank, out of all.
    pub fn part(&self, tiles: Tiles) -> Self {
        let values = tiles.owned().map(|tile| self.tile(tile).to_vec()).collect();
        FeatureSpectra { n_features: self.n_features, tiles, values }
    }

    /// All tiles, on rank 0 alone; elsewhere `None`.
    pub fn gathered(&self, comm: &dyn Comm) -> Option<Self> {
        if !self.tiles.is_shared() {
            return (comm.rank() == 0).then(|| self.clone());
        }
        let parts = comm.gather(&self.to_bytes());
        (comm.rank() == 0).then(|| self.joined(&parts))
    }

    /// All tiles, on every rank.
    pub fn everywhere(&self, comm: &dyn Comm) -> Self {
        if !self.tiles.is_shared() {
            return self.clone();
        }
        self.joined(&comm.all_gather(&self.to_bytes()))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let told = if self.tiles.speaks { &self.values[..] } else { &[] };
        told.iter().flat_map(|values| R::write(values)).collect()
    }

    fn joined(&self, parts: &[Vec<u8>]) -> Self {
        let tiles = Tiles::whole(self.tiles.n_modes);
        let mut numbers = parts.iter().flat_map(|bytes| R::read(bytes));
        let of_tile = |tile: usize| numbers.by_ref().take(self.n_features * tiles.width(tile)).collect();
        FeatureSpectra { n_features: self.n_features, tiles, values: (0..tiles.len()).map(of_tile).collect() }
    }

    /// All features as full spectra.
    pub fn to_vectors(&self) -> Vec<Vec<R>> {
        let mut vectors = vec![Vec::new(); self.n_features];
        share(vectors.iter_mut().enumerate(), || (), |_, (feature, vector)| *vector = self.stored(feature));
        vectors
    }

    /// Whole features at some of their modes.
    pub fn at_modes(&self, modes: &[usize]) -> Self {
        let chosen = |feature: Vec<R>| modes.iter().map(|&mode| feature[mode]).collect();
        Self::from_vectors(modes.len(), &self.to_vectors().into_iter().map(chosen).collect::<Vec<Vec<R>>>())
    }

    /// Whole features that are known at some modes, 0 at the others.
    pub fn spread_to(&self, modes: &[usize], n_modes: usize) -> Self {
        let spread = |feature: Vec<R>| {
            let mut all = vec![R::zero(); n_modes];
            modes.iter().zip(feature).for_each(|(&mode, x)| all[mode] = x);
            all
        };
        Self::from_vectors(n_modes, &self.to_vectors().into_iter().map(spread).collect::<Vec<_>>())
    }

    /// One feature as it is stored.
    pub fn stored(&self, feature: usize) -> Vec<R> {
        assert!(!self.tiles.is_shared(), "whole features are where all tiles are");
        let mut spectrum = Vec::with_capacity(self.tiles.n_modes);
        for (tile, values) in self.values.iter().enumerate() {
            let width = self.tiles.width(tile);
            spectrum.extend_from_slice(&values[feature * width..(feature + 1) * width]);
        }
        spectrum
    }

    /// Adds one feature at the end.
    pub fn push(&mut self, spectrum: &[f64]) {
        assert_eq!(spectrum.len(), self.tiles.n_modes, "a spectrum has one number a mode");
        for (tile, values) in self.tiles.owned().zip(&mut self.values) {
            values.extend(spectrum[self.tiles.modes(tile)].iter().map(|&x| R::from_f64(x)));
        }
        self.n_features += 1;
    }

    /// Puts another feature in the place of one.
    pub fn set(&mut self, feature: usize, spectrum: &[R]) {
        assert_eq!(spectrum.len(), self.tiles.n_modes, "a spectrum has one number a mode");
        for (tile, values) in self.tiles.owned().zip(&mut self.values) {
            let width = self.tiles.width(tile);
            values[feature * width..(feature + 1) * width].copy_from_slice(&spectrum[self.tiles.modes(tile)]);
        }
    }

    /// Adds `n` features of zeros at the end, for [`FeatureSpectra::tiles_mut`] to fill.
    pub fn grow(&mut self, n: usize) {
        self.n_features += n;
        for (tile, values) in self.tiles.owned().zip(&mut self.values) {
            values.resize(self.n_features * self.tiles.width(tile), R::zero());
        }
    }

    /// Moves feature `from` to place `to` for each pair in order, then keeps the first `n_features`.
    pub fn compact(&mut self, moves: &[(usize, usize)], n_features: usize) {
        for (tile, values) in self.tiles.owned().zip(&mut self.values) {
            let width = self.tiles.width(tile);
            for &(from, to) in moves {
                values.copy_within(from * width..(from + 1) * width, to * width);
            }
            values.truncate(n_features * width);
        }
        self.n_features = n_features;
    }

    /// Replaces features `j` and `l` by the combinations `c[0][0] j + c[0][1] l` and `c[1][0] j + c[1][1] l`.
    pub fn combine(&mut self, j: usize, l: usize, c: [[f64; 2]; 2]) {
        for (tile, values) in self.tiles.owned().zip(&mut self.values) {
            let width = self.tiles.width(tile);
            for v in 0..width {
                let old = [values[j * width + v].to_f64(), values[l * width + v].to_f64()];
                values[j * width + v] = R::from_f64(c[0][0] * old[0] + c[0][1] * old[1]);
                values[l * width + v] = R::from_f64(c[1][0] * old[0] + c[1][1] * old[1]);
            }
        }
    }

    /// Turns the signs of some features.
    pub fn turn_signs(&mut self, turned: &[bool]) {
        for (tile, values) in self.tiles.owned().zip(&mut self.values) {
            let rows = values.chunks_exact_mut(self.tiles.width(tile)).zip(turned);
            rows.filter(|(_, turned)| **turned)
                .for_each(|(row, _)| row.iter_mut().for_each(|x| *x = R::from_f64(-x.to_f64())));
        }
    }

    /// Multiplies everything by `factor`.
    pub fn scale(&mut self, factor: f64) {
        for values in &mut self.values {
            values.iter_mut().for_each(|x| *x = R::from_f64(x.to_f64() * factor));
        }
    }

    /// K.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// How modes are cut.
    pub fn tiles(&self) -> Tiles {
        self.tiles
    }

    /// A checksum of the features at the tiles that are here.
    pub fn digest(&self) -> u64 {
        let mut hasher = Xxh3::new();
        self.values.iter().for_each(|values| hasher.update(&R::write(values)));
        hasher.digest()
    }

    /// All features of one tile, row-major.
    pub fn tile(&self, tile: usize) -> &[R] {
        &self.values[tile - self.tiles.owned().start]
    }

    /// The tiles that are here with their numbers, mutable and in order, each features x width.
    pub fn tiles_mut(&mut self) -> impl ExactSizeIterator<Item = (usize, &mut [R])> {
        let first = self.tiles.owned().start;
        self.values.iter_mut().enumerate().map(move |(at, tile)| (first + at, tile.as_mut_slice()))
    }

    /// The whole spectrum of one feature.
    pub fn feature(&self, feature: usize) -> Vec<f64> {
        self.stored(feature).iter().map(|x| x.to_f64()).collect()
    }

    /// The squared norm of each feature, added in tile order.
    pub fn squared_norms(&self, comm: &dyn Comm) -> Vec<f64> {
        super::sum_over_tiles(self.tiles, self.n_features, comm, |tile, modes, slots| {
            for (norm, row) in slots.iter_mut().zip(self.tile(tile).chunks_exact(modes.len())) {
                *norm = row.iter().map(|x| x.to_f64().powi(2)).sum::<f64>();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;

    #[test]
    fn rows_come_back_as_they_went_in() {
        for n_modes in [1, 255, 256, 257, 600] {
            let rows: Vec<Vec<f64>> = (0..3).map(|t| (0..n_modes).map(|v| (t * 1000 + v) as f64).collect()).collect();
            let data = SpectralData::<f32>::from_rows(&rows);
            assert!((0..3).all(|t| data.row(t) == rows[t]));
            let mut spectra = FeatureSpectra::<f32>::from_rows(n_modes, rows.iter().map(Vec::as_slice));
            assert!((0..3).all(|k| spectra.feature(k) == rows[k]));
            spectra.compact(&[(2, 0)], 2);
            assert_eq!(spectra.feature(0), rows[2]);
            assert_eq!(spectra.feature(1), rows[1]);
            spectra.grow(1);
            assert_eq!(spectra.squared_norms(&Solo)[2], 0.0);
        }
    }

    #[test]
    fn room_made_ahead_is_taken_where_it_is_as_large_as_it_should_be() {
        let sharing = Sharing::none(4000, 3000);
        for n in [0, 5, 4000 * 3000] {
            let data = SpectralData::<f32>::made_ahead(&sharing, Ahead::begin(n)).unwrap();
            assert_eq!((data.n_rows(), data.values.len()), (4000, 4000 * 3000));
            assert!(data.values.iter().all(|x| *x == 0.0));
        }
    }
}
