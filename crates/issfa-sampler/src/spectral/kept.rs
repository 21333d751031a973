//! Rows of data in a file that are kept in memory: those that births will look at stay as the pass goes by, so that the file need
//! not be read again for them. What is kept says how fast a row is there, never what is in it.

use super::{SpectralData, Tiles};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use std::ops::{Deref, Range};
use std::sync::{Arc, PoisonError, RwLock};

/// Rows in ascending order.
type Rows = Arc<Vec<usize>>;

/// The rows that are kept, and those that are to be.
#[derive(Debug)]
pub(super) struct Kept<R> {
    /// Bytes that they may take.
    room: usize,
    /// What whoever looks at whole tiles leaves here.
    wanted: RwLock<Rows>,
    /// Of each tile that is here.
    pieces: Vec<RwLock<Arc<Piece<R>>>>,
}

/// Some rows at one tile.
#[derive(Debug)]
struct Piece<R> {
    rows: Rows,
    values: Vec<R>,
}

/// One row within a tile, where the data are or from what is kept of them.
#[derive(Debug)]
pub struct TileRow<'a, R>(Where<'a, R>);

#[derive(Debug)]
enum Where<'a, R> {
    Data(&'a [R]),
    Kept(Arc<Piece<R>>, Range<usize>),
}

impl<R> Deref for TileRow<'_, R> {
    type Target = [R];

    #[inline(always)]
    fn deref(&self) -> &[R] {
        match &self.0 {
            Where::Data(values) => values,
            Where::Kept(piece, place) => &piece.values[place.clone()],
        }
    }
}

impl<'a, R> TileRow<'a, R> {
    #[inline(always)]
    pub(super) fn of(values: &'a [R]) -> TileRow<'a, R> {
        TileRow(Where::Data(values))
    }
}

impl<R: Real> Kept<R> {
    /// Nothing yet.
    pub fn new(tiles: Tiles, room: usize) -> Kept<R> {
        let wanted = Rows::default();
        let nothing = Arc::new(Piece { rows: wanted.clone(), values: Vec::new() });
        let pieces = tiles.owned().map(|_| RwLock::new(nothing.clone())).collect();
        Kept { room, wanted: RwLock::new(wanted), pieces }
    }

    pub fn room(&self) -> usize {
        self.room
    }

    /// Says which rows are to be kept: as many of these as there is room for, the first first.
    fn want(&self, mut rows: Vec<usize>, row_bytes: usize) -> Rows {
        rows.truncate(self.room / row_bytes.max(1));
        rows.sort_unstable();
        rows.dedup();
        let rows = Arc::new(rows);
        *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = rows.clone();
        rows
    }

    fn piece(&self, at: usize) -> Arc<Piece<R>> {
        self.pieces[at].read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps these rows of a tile, those that `values_of` gives.
    fn put<'a>(&self, at: usize, rows: &Rows, values_of: impl Fn(usize) -> TileRow<'a, R>) {
        let mut values = Vec::new();
        rows.iter().for_each(|&row| values.extend_from_slice(&values_of(row)));
        let piece = Arc::new(Piece { rows: rows.clone(), values });
        *self.pieces[at].write().unwrap_or_else(PoisonError::into_inner) = piece;
    }

    /// Leaves what is wanted of a tile that is looked at as a whole, by the tile's values of a row.
    pub fn pass_by<'a>(&self, at: usize, values_of: impl Fn(usize) -> &'a [R]) {
        let wanted = self.wanted.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !Arc::ptr_eq(&wanted, &self.piece(at).rows) {
            self.put(at, &wanted, |row| TileRow::of(values_of(row)));
        }
    }

    /// A row at a tile, if it is kept.
    pub fn row(&self, at: usize, row: usize) -> Option<TileRow<'static, R>> {
        let piece = self.piece(at);
        let place = piece.rows.binary_search(&row).ok()?;
        let width = piece.values.len() / piece.rows.len();
        Some(TileRow(Where::Kept(piece, place * width..(place + 1) * width)))
    }

    fn has(&self, at: usize, row: usize) -> bool {
        self.piece(at).rows.binary_search(&row).is_ok()
    }
}

/// Tiles for which rows are asked for before they are looked at, for each thread.
const AHEAD: usize = 2;

/// Where more than one of so many rows is looked at whole tiles are asked for: a page holds several rows.
const MANY: usize = 8;

impl<R: Real> SpectralData<R> {
    /// To be told before a pass which rows will be looked at after it, the surest first: of data in a file the pass keeps them, as far
    /// as there is room. A guess will do.
    pub fn expect(&self, rows: impl FnOnce() -> Vec<usize>) {
        if let Some(kept) = &self.kept {
            kept.want(rows(), self.row_bytes());
        }
    }

    /// To be told which rows will be looked at more than once: of data in a file they are read now, tile by tile, where they
    /// are not kept already.
    pub fn keep(&self, rows: impl FnOnce() -> Vec<usize>) {
        let Some(kept) = &self.kept else { return };
        let rows = kept.want(rows(), self.row_bytes());
        let first = self.tiles().owned().start;
        share(
            self.tiles().owned(),
            || (),
            |(), tile| {
                self.look_ahead(tile, &rows);
                if !rows.iter().all(|&row| kept.has(tile - first, row)) {
                    kept.put(tile - first, &rows, |row| self.tile_row(tile, row));
                }
            },
        );
    }

    /// To be told by whoever looks at some rows tile by tile, at each of them: of data in a file those of later tiles are asked for.
    pub fn look_ahead(&self, tile: usize, rows: &[usize]) {
        let Some(kept) = &self.kept else { return };
        if rows.is_empty() {
            return;
        }
        let (owned, here) = (self.tiles().owned(), self.rows_here());
        for later in self.coming(tile) {
            if MANY * rows.len() > here.len() {
                self.ask_for(later, here.clone());
                continue;
            }
            let is_there = |row: &&usize| here.contains(row) && !kept.has(later - owned.start, **row);
            rows.iter().filter(is_there).for_each(|&row| self.ask_for(later, row..row + 1));
        }
    }

    /// [`SpectralData::look_ahead`] for a stretch of rows.
    pub fn look_ahead_at(&self, tile: usize, rows: Range<usize>) {
        if self.kept.is_some() {
            self.coming(tile).for_each(|later| self.ask_for(later, rows.clone()));
        }
    }

    /// The tiles to ask for where one is looked at: at the first one more than one.
    fn coming(&self, tile: usize) -> Range<usize> {
        let (owned, ahead) = (self.tiles().owned(), AHEAD * rayon::current_num_threads());
        let first = if tile == owned.start { tile } else { tile + ahead };
        first.min(owned.end)..(tile + ahead + 1).min(owned.end)
    }

    fn row_bytes(&self) -> usize {
        self.tiles().owned_modes().len() * R::BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectral::Sharing;
    use crate::spectral::load::lay_out;

    const SHAPE: (usize, usize) = (100, 1100);

    /// Numbers in a file, with room for so many rows.
    fn spilled(folder: &std::path::Path, n_rows: usize) -> SpectralData<f32> {
        let sharing = Sharing::none(SHAPE.0, SHAPE.1);
        let mut data = SpectralData::spilled(&sharing, folder, n_rows * 4 * SHAPE.1).unwrap();
        let values: Vec<f64> = (0..SHAPE.0 * SHAPE.1).map(|at| at as f64).collect();
        lay_out(&values, 0, &mut data);
        data
    }

    fn are_right(data: &SpectralData<f32>, tile: usize) -> bool {
        let first = |row: usize| (row * SHAPE.1 + data.tiles().modes(tile).start) as f32;
        let is_right = |row| data.tile_row(tile, row).iter().enumerate().all(|(at, x)| *x == first(row) + at as f32);
        (0..SHAPE.0).all(is_right)
    }

    fn kept_rows(data: &SpectralData<f32>, tile: usize) -> Vec<usize> {
        (0..SHAPE.0).filter(|&row| data.kept.as_ref().unwrap().has(tile, row)).collect()
    }

    #[test]
    fn a_pass_keeps_what_is_expected_as_far_as_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let data = spilled(folder.path(), 3);
        data.expect(|| vec![70, 3, 98, 41]);
        assert!(kept_rows(&data, 0).is_empty(), "nothing was looked at yet");
        for tile in 0..data.tiles().len() {
            data.tile(tile);
            assert_eq!(kept_rows(&data, tile), [3, 70, 98]);
            assert!(are_right(&data, tile), "tile {tile}");
        }
        data.expect(Vec::new);
        data.tile(1);
        assert!(kept_rows(&data, 1).is_empty() && kept_rows(&data, 2).len() == 3);
    }

    #[test]
    fn what_a_pass_has_not_kept_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let data = spilled(folder.path(), 10);
        data.expect(|| vec![1, 2, 3]);
        (0..2).for_each(|tile| assert_eq!(data.tile(tile).len(), 100 * 256));
        for (rows, at_first) in [([3, 1], [1, 2, 3]), ([50, 99], [50, 99, 99])] {
            data.keep(|| rows.to_vec());
            assert!(kept_rows(&data, 0).iter().all(|row| at_first.contains(row)), "{rows:?}");
            for tile in 0..data.tiles().len() {
                assert!(rows.iter().all(|row| kept_rows(&data, tile).contains(row)), "{rows:?}, tile {tile}");
                assert!(are_right(&data, tile), "{rows:?}, tile {tile}");
            }
        }
    }

    #[test]
    fn data_in_memory_keep_nothing() {
        let data = SpectralData::<f32>::from_rows(&[vec![1.0; 300], vec![2.0; 300]]);
        data.expect(|| panic!("nobody asks"));
        data.keep(|| panic!("nobody asks"));
        data.look_ahead(0, &[1]);
        assert_eq!(data.tile_row(1, 1)[..], [2.0; 44]);
    }
}
