//! Who holds what: the ranks of a job as a grid, whose lines share rows between them and whose columns share tiles of modes.
//!
//! Rows are cut into bands of a fixed length, whatever the number of ranks. A sum over rows is each band's own sum, added in
//! the order of bands: so it does not depend on who holds which band, and of up to one band of rows it is a plain sum.

use super::{TILE, Tiles};
use crate::comm::{Comm, Solo, Traffic, all_gather_known_values, all_gather_values, part_of};
use crate::numeric::bytes::Element;
use crate::numeric::linalg::Real;
use std::ops::Range;
use std::sync::Arc;

/// Rows of a band, unless a test wants more bands.
pub const BAND: usize = 4096;

/// Rows that are updated on the same rank: a whole number of the chunks of every kernel.
pub const OWN_CHUNK: usize = 64;

/// What all ranks of a line do alike for a row takes about as long as the pass over so many tiles of it, with 50 features.
const ALIKE: usize = 1;

/// Along what data may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Tiles alone: every rank has its part of all rows.
    Tiles,
    /// Tiles, and rows where there are more ranks than tiles need.
    TilesAndRows,
}

/// How rows and tiles are shared out, as one rank sees it. Rank r is at line `r / columns` and column `r % columns`; ranks that are
/// left over hold nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    n_rows: usize,
    n_modes: usize,
    band: usize,
    n_lines: usize,
    n_columns: usize,
    rank: usize,
    n_ranks: usize,
}

impl Layout {
    /// Shared out so that the busiest rank has as little to do as can be; with fewer lines where that is as good.
    pub fn shared(n_rows: usize, n_modes: usize, band: usize, cut: Cut, (rank, n_ranks): (usize, usize)) -> Layout {
        assert!(band > 0 && band.is_multiple_of(OWN_CHUNK), "a band is a whole number of chunks of {OWN_CHUNK} rows");
        let of_lines = |n_lines: usize| {
            let n_columns = n_ranks / n_lines;
            Layout { n_rows, n_modes, band, n_lines, n_columns, rank, n_ranks }
        };
        let most = if cut == Cut::Tiles { 1 } else { n_rows.div_ceil(band).clamp(1, n_ranks) };
        let work = |layout: &Layout| layout.most_rows().saturating_mul(layout.most_tiles() + ALIKE);
        (1..=most).map(of_lines).min_by_key(work).expect("one line is always possible")
    }

    /// Rows that the busiest rank holds.
    pub fn most_rows(self) -> usize {
        self.n_bands().div_ceil(self.n_lines).saturating_mul(self.band).min(self.n_rows)
    }

    /// Tiles that the busiest rank holds.
    pub fn most_tiles(self) -> usize {
        self.n_modes.div_ceil(TILE).div_ceil(self.n_columns)
    }

    /// The same as another rank sees it.
    pub fn of(self, rank: usize) -> Layout {
        Layout { rank, ..self }
    }

    /// T.
    pub fn n_rows(self) -> usize {
        self.n_rows
    }

    /// V.
    pub fn n_modes(self) -> usize {
        self.n_modes
    }

    /// Rows of a band.
    pub fn band(self) -> usize {
        self.band
    }

    /// How many bands there are, here and elsewhere.
    pub fn n_bands(self) -> usize {
        self.n_rows.div_ceil(self.band)
    }

    /// How many ranks there are, those that are left over among them.
    pub fn n_ranks(self) -> usize {
        self.n_ranks
    }

    /// Lines and columns.
    pub fn shape(self) -> [usize; 2] {
        [self.n_lines, self.n_columns]
    }

    /// Whether other ranks hold other rows.
    pub fn cuts_rows(self) -> bool {
        self.n_lines > 1
    }

    /// The line of this rank, unless it is left over.
    pub fn line(self) -> Option<usize> {
        Some(self.rank / self.n_columns).filter(|line| *line < self.n_lines)
    }

    /// The column of this rank.
    pub fn column(self) -> usize {
        self.rank % self.n_columns
    }

    /// The tiles that are here.
    pub fn tiles(self) -> Tiles {
        let whole = Tiles::whole(self.n_modes);
        match self.line() {
            _ if self.n_ranks == 1 => whole,
            line => whole.part(line.map(|_| self.column()), self.n_columns, line == Some(0)),
        }
    }

    /// The bands that are here, by number.
    fn own_bands(self) -> Range<usize> {
        self.line().map_or(0..0, |line| part_of(self.n_bands(), line, self.n_lines))
    }

    /// The rows that are here; of no other are there data or loadings.
    pub fn rows_here(self) -> Range<usize> {
        let bands = self.own_bands();
        (bands.start * self.band).min(self.n_rows)..(bands.end * self.band).min(self.n_rows)
    }

    /// The bands that are here, with their numbers.
    pub fn bands_here(self) -> impl ExactSizeIterator<Item = (usize, Range<usize>)> {
        self.own_bands().map(move |band| (band, band * self.band..((band + 1) * self.band).min(self.n_rows)))
    }

    /// The rows of those here that are updated on this rank.
    pub fn own_rows(self) -> Range<usize> {
        let here = self.rows_here();
        let chunks = part_of(here.len().div_ceil(OWN_CHUNK), self.column(), self.n_columns);
        (here.start + chunks.start * OWN_CHUNK).min(here.end)..(here.start + chunks.end * OWN_CHUNK).min(here.end)
    }

    /// The rows that each rank of this line updates.
    pub fn own_rows_of_line(self) -> Vec<Range<usize>> {
        match self.line() {
            Some(line) => {
                (0..self.n_columns).map(|column| self.of(line * self.n_columns + column).own_rows()).collect()
            }
            None => vec![0..0; self.n_ranks - self.n_lines * self.n_columns],
        }
    }

    /// Whether this rank speaks for its line where something is known to all ranks of the line.
    fn speaks(self) -> bool {
        self.line().is_some() && self.column() == 0
    }
}

/// A layout and the ranks that it is about.
#[derive(Clone)]
pub struct Sharing {
    layout: Layout,
    all: Arc<dyn Comm>,
    /// Where rows are cut: the ranks of the same line, and those of the same column.
    groups: Option<[Arc<dyn Comm>; 2]>,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.layout.fmt(formatter)
    }
}

impl Sharing {
    /// Everything in one place.
    pub fn none(n_rows: usize, n_modes: usize) -> Sharing {
        Sharing::in_bands(n_rows, n_modes, BAND)
    }

    /// Between all of these ranks. All of them together.
    pub fn between(all: &Arc<dyn Comm>, n_rows: usize, n_modes: usize, band: usize, cut: Cut) -> Sharing {
        let layout = Layout::shared(n_rows, n_modes, band, cut, (all.rank(), all.size()));
        let [n_lines, n_columns] = layout.shape();
        let groups = layout.cuts_rows().then(|| {
            let line = layout.line();
            [line.unwrap_or(n_lines), line.map_or(n_columns, |_| layout.column())].map(|colour| all.split(colour))
        });
        Sharing { layout, all: all.clone(), groups }
    }

    /// Nobody shares; in bands of this length.
    pub fn in_bands(n_rows: usize, n_modes: usize, band: usize) -> Sharing {
        let alone: Arc<dyn Comm> = Arc::new(Solo);
        Sharing::between(&alone, n_rows, n_modes, band, Cut::TilesAndRows)
    }

    /// Other data of the same rows, between the same ranks. All of them together.
    pub fn of_modes(&self, n_modes: usize) -> Sharing {
        Sharing::between(&self.all, self.layout.n_rows, n_modes, self.layout.band, Cut::TilesAndRows)
    }

    /// Who holds what.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// All ranks.
    pub fn all(&self) -> &dyn Comm {
        self.all.as_ref()
    }

    /// The ranks that hold other tiles of the same rows.
    pub fn same_rows(&self) -> &dyn Comm {
        self.groups.as_ref().map_or(self.all.as_ref(), |[line, _]| line.as_ref())
    }

    /// The ranks that hold other rows of the same tiles.
    pub fn same_tiles(&self) -> &dyn Comm {
        self.groups.as_ref().map_or(&Solo, |[_, column]| column.as_ref())
    }

    /// What this rank has sent so far.
    pub fn traffic(&self) -> Traffic {
        let groups = self.groups.iter().flatten().map(|group| group.traffic());
        groups.fold(self.all.traffic(), |sum, group| Traffic {
            n_calls: sum.n_calls + group.n_calls,
            n_bytes: sum.n_bytes + group.n_bytes,
        })
    }

    /// What each line has, one line after the other, on every rank. All ranks of a line bring the same.
    pub fn from_lines<E: Element>(&self, own: Vec<E>) -> Vec<E> {
        if !self.layout.cuts_rows() {
            return own;
        }
        all_gather_values(self.all(), if self.layout.speaks() { &own } else { &[] })
    }

    /// [`Sharing::from_lines`] of so many numbers of every band.
    pub fn from_bands<E: Element>(&self, n: usize, own: Vec<E>) -> Vec<E> {
        if !self.layout.cuts_rows() {
            return own;
        }
        let lengths = (0..self.layout.n_ranks).map(|rank| self.layout.of(rank));
        let lengths = lengths.map(|of| if of.speaks() { n * of.own_bands().len() } else { 0 });
        all_gather_known_values(self.all(), if self.layout.speaks() { &own } else { &[] }, lengths)
    }

    /// [`Sharing::from_lines`] of bytes, line by line.
    pub fn bytes_from_lines(&self, own: Vec<u8>) -> Vec<Vec<u8>> {
        if !self.layout.cuts_rows() {
            return vec![own];
        }
        self.of_lines(self.all().all_gather(if self.layout.speaks() { &own } else { &[] }))
    }

    /// [`Sharing::bytes_from_lines`] on rank 0 alone; nothing elsewhere.
    pub fn bytes_from_lines_to_rank_0(&self, own: Vec<u8>) -> Vec<Vec<u8>> {
        if !self.layout.cuts_rows() {
            return vec![own];
        }
        self.of_lines(self.all().gather(if self.layout.speaks() { &own } else { &[] }))
    }

    /// What those brought that speak for their lines.
    fn of_lines(&self, brought: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        brought.into_iter().step_by(self.layout.n_columns).take(self.layout.n_lines).collect()
    }

    /// What each rank has of the rows that it updates, in the order of rows, on every rank.
    pub fn from_own_rows<E: Element>(&self, own: Vec<E>) -> Vec<E> {
        if self.layout.n_ranks == 1 { own } else { all_gather_values(self.all(), &own) }
    }

    /// Replaces what each line has counted by the sum over lines. All ranks of a line bring the same.
    pub fn sum_over_lines(&self, values: &mut [i64]) {
        if self.layout.cuts_rows() && !values.is_empty() {
            if !self.layout.speaks() {
                values.fill(0);
            }
            self.all().sum_integers(values);
        }
    }

    /// Sums over all bands, in their order, of numbers that each of those here has: on every rank of the column.
    pub fn sum_over_bands<R: Real>(&self, bands: &[Vec<R>]) -> Vec<R> {
        let column = self.same_tiles();
        if column.size() == 1 {
            return in_order(bands.iter().map(|band| &band[..]));
        }
        // Each rank of the column adds up a stretch of the numbers, and tells the others.
        let n = bands.first().map_or(0, Vec::len);
        let stretch = |rank: usize| part_of(n, rank, column.size());
        let parcel = |rank: usize| bands.iter().flat_map(|band| R::write(&band[stretch(rank)])).collect();
        let parcels = column.exchange((0..column.size()).map(parcel).collect());
        let parts: Vec<Vec<R>> = parcels.iter().map(|bytes| R::read(bytes)).collect();
        let length = stretch(column.rank()).len().max(1);
        let sums = in_order(parts.iter().flat_map(|part| part.chunks(length)));
        all_gather_values(column, &sums)
    }

    /// Small sums over all bands, in their order, of the `n` numbers that each of those here has: on every rank.
    pub fn sum_of_bands(&self, n: usize, bands: &[Vec<f64>]) -> Vec<f64> {
        let all = self.from_bands(n, bands.concat());
        let sums = in_order(all.chunks(n.max(1)));
        if sums.is_empty() { vec![0.0; n] } else { sums }
    }
}

/// The sum of some parts of the same length, one after the other.
fn in_order<'a, R: Real>(mut parts: impl Iterator<Item = &'a [R]>) -> Vec<R> {
    let mut sums = parts.next().map_or_else(Vec::new, <[R]>::to_vec);
    parts.for_each(|part| sums.iter_mut().zip(part).for_each(|(sum, x)| *sum = *sum + *x));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n_rows: usize, n_modes: usize, band: usize, n_ranks: usize) -> [usize; 2] {
        Layout::shared(n_rows, n_modes, band, Cut::TilesAndRows, (0, n_ranks)).shape()
    }

    #[test]
    fn every_cell_is_on_one_rank_and_every_row_updated_on_one() {
        for (n_rows, n_modes, n_ranks) in [(200, 702, 7), (200, 702, 6), (1, 1, 3), (1000, 300, 16), (64, 2000, 5)] {
            let layout = Layout::shared(n_rows, n_modes, 64, Cut::TilesAndRows, (0, n_ranks));
            let (mut cells, mut updated) = (vec![0; n_rows * n_modes], Vec::new());
            for layout in (0..n_ranks).map(|rank| layout.of(rank)) {
                for row in layout.rows_here() {
                    layout.tiles().owned_modes().for_each(|mode| cells[row * n_modes + mode] += 1);
                }
                assert_eq!(
                    layout.bands_here().flat_map(|(_, rows)| rows).collect::<Vec<_>>(),
                    layout.rows_here().collect::<Vec<_>>()
                );
                assert!(
                    layout.rows_here().len() <= layout.most_rows()
                        && layout.tiles().owned().len() <= layout.most_tiles()
                );
                updated.extend(layout.own_rows());
            }
            assert!(cells.iter().all(|n| *n == 1), "{n_rows} {n_modes} {n_ranks}");
            assert_eq!(updated, (0..n_rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_are_cut_where_tiles_do_not_go_round() {
        assert_eq!([2, 3, 4, 6, 7].map(|n| shape(200, 702, 64, n)), [[2, 1], [1, 3], [4, 1], [2, 3], [2, 3]]);
        assert_eq!([1, 6, 40, 1000].map(|n| shape(3000, 10_000, BAND, n)[0]), [1; 4], "one band");
        assert_eq!([64, 1000].map(|n| shape(300_000, 10_000, BAND, n)), [[15, 4], [74, 13]]);
        assert_eq!(Layout::shared(200, 702, 64, Cut::Tiles, (0, 7)).shape(), [1, 7]);
    }

    #[test]
    fn sums_over_bands_do_not_depend_on_who_holds_them() {
        use crate::comm::local::Local;
        let number =
            |band: usize, at: usize| (1.0 + band as f64 * 0.37 + at as f64 * 0.11).sin() * 10f64.powi(band as i32);
        let found = |n_ranks: usize| {
            Local::run(n_ranks, |comm| {
                let sharing = Sharing::between(&comm, 500, 256, 64, Cut::TilesAndRows);
                let band = |(band, _): (usize, Range<usize>)| (0..5).map(|at| number(band, at)).collect();
                let bands: Vec<Vec<f64>> = sharing.layout().bands_here().map(band).collect();
                let mut count = [sharing.layout().rows_here().len() as i64];
                sharing.sum_over_lines(&mut count);
                assert_eq!(count, [500]);
                let (of_column, of_all) = (sharing.sum_over_bands(&bands), sharing.sum_of_bands(5, &bands));
                assert!(sharing.layout().line().is_none() || of_column == of_all, "{n_ranks}");
                of_all
            })
        };
        let alone = found(1).remove(0);
        for n_ranks in 2..=6 {
            assert!(found(n_ranks).iter().all(|sums| *sums == alone), "{n_ranks} ranks");
        }
    }
}
