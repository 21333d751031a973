//! A short symmetric basis as two dense products of half the size. Under the mirror of the axis its modes are even or odd,
//! so even modes need only sums of mirrored sites and odd modes only their differences. For short axes this is faster
//! than any fast transform, and exact at every length.

use super::Direction;
use crate::numeric::linalg::{Real, View, multiply};
use std::ops::Range;

/// The longest axis for which dense products are used where a fast transform exists (measured crossover).
pub const DENSE_LIMIT: usize = 128;

/// Lines taken at a time, so that they stay in cache.
const AT_ONCE: usize = 256;

/// An orthonormal basis of `n` sites. The first `n_lead` sites are their own mirrors; of the others the i-th from the
/// front mirrors the i-th from the back. The first `n_lead` modes are even, then even and odd ones take turns.
#[derive(Clone, Debug)]
pub struct Folded<R = f64> {
    n: usize,
    n_lead: usize,
    /// Row-major, sites (lead, first of each pair, middle) x even modes.
    even: Vec<R>,
    /// Row-major, sites (first of each pair) x odd modes.
    odd: Vec<R>,
}

/// Lines in scratch, split by parity: `even` and `odd` are what goes in, `even_out` and `odd_out` what comes out.
struct Halves<'a, R> {
    even: &'a mut [R],
    odd: &'a mut [R],
    even_out: &'a mut [R],
    odd_out: &'a mut [R],
}

impl<R: Real> Folded<R> {
    /// The basis with entries `entry(site, mode)`.
    pub fn new(n: usize, n_lead: usize, entry: impl Fn(usize, usize) -> f64) -> Folded<R> {
        let mut folded = Folded { n, n_lead, even: Vec::new(), odd: Vec::new() };
        let (n_even, n_odd) = (folded.n_even(), folded.n_odd());
        let even = |at: usize| R::from_f64(entry(at / n_even, folded.even_mode(at % n_even)));
        let odd = |at: usize| R::from_f64(entry(n_lead + at / n_odd, folded.odd_mode(at % n_odd)));
        (folded.even, folded.odd) = ((0..n_even * n_even).map(even).collect(), (0..n_odd * n_odd).map(odd).collect());
        folded
    }

    fn n_odd(&self) -> usize {
        (self.n - self.n_lead) / 2
    }

    fn n_even(&self) -> usize {
        self.n - self.n_odd()
    }

    /// See [`super::Basis::apply`].
    pub fn apply(&self, direction: Direction, values: &mut [R], inner: usize, scratch: &mut Vec<R>) {
        let n_needed = 2 * self.n * AT_ONCE;
        if scratch.len() < n_needed {
            scratch.resize(n_needed, R::zero());
        }
        if inner == 1 {
            values.chunks_mut(self.n * AT_ONCE).for_each(|lines| self.apply_lines(direction, lines, scratch));
            return;
        }
        for block in values.chunks_exact_mut(self.n * inner) {
            for first in (0..inner).step_by(AT_ONCE) {
                let columns = first..inner.min(first + AT_ONCE);
                self.apply_columns(direction, block, inner, columns, scratch);
            }
        }
    }

    fn halves<'a>(&self, n_lines: usize, scratch: &'a mut [R]) -> Halves<'a, R> {
        let (before, after) = scratch.split_at_mut(self.n * AT_ONCE);
        let (even, odd) = before[..self.n * n_lines].split_at_mut(self.n_even() * n_lines);
        let (even_out, odd_out) = after[..self.n * n_lines].split_at_mut(self.n_even() * n_lines);
        Halves { even, odd, even_out, odd_out }
    }

    /// Lines that are contiguous, one after the other.
    fn apply_lines(&self, direction: Direction, lines: &mut [R], scratch: &mut [R]) {
        let (n_even, n_odd, m) = (self.n_even(), self.n_odd(), lines.len() / self.n);
        let halves = self.halves(m, scratch);
        for (at, line) in lines.chunks_exact(self.n).enumerate() {
            let (even, odd) = (&mut halves.even[at * n_even..][..n_even], &mut halves.odd[at * n_odd..][..n_odd]);
            match direction {
                Direction::ToSpectrum => self.fold_line(line, even, odd),
                Direction::ToSites => self.part_line(line, even, odd),
            }
        }
        let (even, odd) = (View::new(&self.even, n_even, n_even), View::new(&self.odd, n_odd, n_odd));
        let turned = |matrix| if direction == Direction::ToSpectrum { matrix } else { View::t(matrix) };
        multiply(halves.even_out, View::new(halves.even, m, n_even), turned(even));
        multiply(halves.odd_out, View::new(halves.odd, m, n_odd), turned(odd));
        for (at, line) in lines.chunks_exact_mut(self.n).enumerate() {
            let (even, odd) = (&halves.even_out[at * n_even..][..n_even], &halves.odd_out[at * n_odd..][..n_odd]);
            match direction {
                Direction::ToSpectrum => self.interleave_line(line, even, odd),
                Direction::ToSites => self.unfold_line(line, even, odd),
            }
        }
    }

    /// Sites to sums and differences.
    fn fold_line(&self, line: &[R], even: &mut [R], odd: &mut [R]) {
        let (n_lead, n_odd) = (self.n_lead, odd.len());
        even[..n_lead].copy_from_slice(&line[..n_lead]);
        let (front, back) = (&line[n_lead..n_lead + n_odd], line[self.n - n_odd..].iter().rev());
        let sums = even[n_lead..n_lead + n_odd].iter_mut().zip(odd);
        for ((sum, difference), (x, y)) in sums.zip(front.iter().zip(back)) {
            (*sum, *difference) = (*x + *y, *x - *y);
        }
        if n_lead + n_odd < even.len() {
            even[n_lead + n_odd] = line[n_lead + n_odd];
        }
    }

    /// Sums and differences to sites.
    fn unfold_line(&self, line: &mut [R], even: &[R], odd: &[R]) {
        let (n_lead, n_odd) = (self.n_lead, odd.len());
        line[..even.len()].copy_from_slice(even);
        let (front, back) = line.split_at_mut(self.n - n_odd);
        let sites = front[n_lead..n_lead + n_odd].iter_mut().zip(back.iter_mut().rev());
        for ((x, y), difference) in sites.zip(odd) {
            (*x, *y) = (*x + *difference, *x - *difference);
        }
    }

    /// Even and odd modes into their turns.
    fn interleave_line(&self, line: &mut [R], even: &[R], odd: &[R]) {
        let (lead, rest) = line.split_at_mut(self.n_lead);
        lead.copy_from_slice(&even[..self.n_lead]);
        let evens = &even[self.n_lead..];
        for ((pair, x), y) in rest.chunks_exact_mut(2).zip(evens).zip(odd) {
            (pair[0], pair[1]) = (*x, *y);
        }
        if odd.len() < evens.len() {
            line[self.n - 1] = even[even.len() - 1];
        }
    }

    /// The reverse of [`Folded::interleave_line`].
    fn part_line(&self, line: &[R], even: &mut [R], odd: &mut [R]) {
        let (lead, rest) = line.split_at(self.n_lead);
        let (even_lead, evens) = even.split_at_mut(self.n_lead);
        even_lead.copy_from_slice(lead);
        for ((pair, x), y) in rest.chunks_exact(2).zip(&mut *evens).zip(&mut *odd) {
            (*x, *y) = (pair[0], pair[1]);
        }
        if odd.len() < evens.len() {
            evens[odd.len()] = line[self.n - 1];
        }
    }

    /// Lines side by side: some columns of a block of n rows of `inner` numbers.
    fn apply_columns(
        &self,
        direction: Direction,
        block: &mut [R],
        inner: usize,
        columns: Range<usize>,
        scratch: &mut [R],
    ) {
        let (n_even, n_odd, width) = (self.n_even(), self.n_odd(), columns.len());
        let halves = self.halves(width, scratch);
        let row = |at: usize| at * inner + columns.start..at * inner + columns.end;
        match direction {
            Direction::ToSpectrum => self.fold_rows(block, &row, halves.even, halves.odd),
            Direction::ToSites => {
                gather(block, |k| row(self.even_mode(k)), halves.even);
                gather(block, |k| row(self.odd_mode(k)), halves.odd);
            }
        }
        let (even, odd) = (View::new(&self.even, n_even, n_even), View::new(&self.odd, n_odd, n_odd));
        let turned = |matrix| if direction == Direction::ToSpectrum { View::t(matrix) } else { matrix };
        multiply(halves.even_out, turned(even), View::new(halves.even, n_even, width));
        multiply(halves.odd_out, turned(odd), View::new(halves.odd, n_odd, width));
        match direction {
            Direction::ToSpectrum => {
                scatter(block, |k| row(self.even_mode(k)), halves.even_out);
                scatter(block, |k| row(self.odd_mode(k)), halves.odd_out);
            }
            Direction::ToSites => self.unfold_rows(block, &row, halves.even_out, halves.odd_out),
        }
    }

    fn even_mode(&self, k: usize) -> usize {
        k + k.saturating_sub(self.n_lead)
    }

    fn odd_mode(&self, k: usize) -> usize {
        self.n_lead + 2 * k + 1
    }

    /// [`Folded::fold_line`] for rows in place of numbers.
    fn fold_rows(&self, block: &[R], row: &impl Fn(usize) -> Range<usize>, even: &mut [R], odd: &mut [R]) {
        let width = row(0).len();
        gather(block, row, even);
        let sums = even[self.n_lead * width..].chunks_exact_mut(width);
        for (i, (sums, differences)) in sums.zip(odd.chunks_exact_mut(width)).enumerate() {
            for ((sum, difference), y) in sums.iter_mut().zip(differences).zip(&block[row(self.n - 1 - i)]) {
                (*sum, *difference) = (*sum + *y, *sum - *y);
            }
        }
    }

    /// [`Folded::unfold_line`] for rows in place of numbers.
    fn unfold_rows(&self, block: &mut [R], row: &impl Fn(usize) -> Range<usize>, even: &[R], odd: &[R]) {
        let width = row(0).len();
        for (site, sums) in even.chunks_exact(width).enumerate() {
            let pair = site.checked_sub(self.n_lead).filter(|&pair| pair < self.n_odd());
            let Some(pair) = pair else {
                block[row(site)].copy_from_slice(sums);
                continue;
            };
            let differences = &odd[pair * width..][..width];
            let both = || sums.iter().zip(differences);
            block[row(site)].iter_mut().zip(both()).for_each(|(x, (sum, difference))| *x = *sum + *difference);
            block[row(self.n - 1 - pair)]
                .iter_mut()
                .zip(both())
                .for_each(|(y, (sum, difference))| *y = *sum - *difference);
        }
    }
}

/// Copies rows of a block, the k-th from `place(k)`, until `to` is full.
fn gather<R: Real>(block: &[R], place: impl Fn(usize) -> Range<usize>, to: &mut [R]) {
    let rows = to.chunks_exact_mut(place(0).len()).enumerate();
    rows.for_each(|(k, to)| to.copy_from_slice(&block[place(k)]));
}

/// The reverse of [`gather`].
fn scatter<R: Real>(block: &mut [R], place: impl Fn(usize) -> Range<usize>, from: &[R]) {
    let rows = from.chunks_exact(place(0).len()).enumerate();
    rows.for_each(|(k, from)| block[place(k)].copy_from_slice(from));
}
