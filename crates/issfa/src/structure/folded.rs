//! A short symmetric basis as two dense products of half the size: its modes are even or odd under a mirror of the
//! axis, so even modes need only sums of mirrored sites and odd modes only their differences. For short axes this is
//! faster than any fast transform, and exact at every length.

use super::Direction;
use crate::linalg::{View, multiply};
use std::ops::Range;

/// The longest axis for which dense products are used where a fast transform exists (measured crossover).
pub const DENSE_LIMIT: usize = 128;

/// Lines taken at a time, so that they stay in cache.
const AT_ONCE: usize = 256;

/// An orthonormal basis of `n` sites whose modes are even or odd.
#[derive(Clone, Debug)]
pub struct Folded {
    n: usize,
    /// Sites with their mirror sites, then sites that are their own mirror.
    pairs: Vec<(usize, usize)>,
    singles: Vec<usize>,
    even: Half,
    odd: Half,
}

/// The modes of one parity.
#[derive(Clone, Debug)]
struct Half {
    modes: Vec<usize>,
    /// Row-major, sites (pairs, then singles) x modes.
    matrix: Vec<f64>,
}

impl Folded {
    /// The basis with entries `entry(site, mode)`.
    pub fn new(
        n: usize,
        mirror: impl Fn(usize) -> usize,
        is_even: impl Fn(usize) -> bool,
        entry: impl Fn(usize, usize) -> f64,
    ) -> Folded {
        let pairs: Vec<_> = (0..n).map(|site| (site, mirror(site))).filter(|(site, other)| site < other).collect();
        let singles: Vec<usize> = (0..n).filter(|&site| mirror(site) == site).collect();
        let half = |sites: Vec<usize>, modes: Vec<usize>| {
            assert_eq!(sites.len(), modes.len(), "a basis has as many modes of a parity as sites that carry it");
            let matrix = sites.iter().flat_map(|&site| modes.iter().map(move |&mode| (site, mode)));
            Half { matrix: matrix.map(|(site, mode)| entry(site, mode)).collect(), modes }
        };
        let (even, odd) = (0..n).partition(|&mode| is_even(mode));
        let carriers = pairs.iter().map(|pair| pair.0);
        let even = half(carriers.clone().chain(singles.iter().copied()).collect(), even);
        Folded { even, odd: half(carriers.collect(), odd), n, pairs, singles }
    }

    /// See [`super::Basis::apply`].
    pub fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        let n = self.n;
        let n_needed = 2 * n * AT_ONCE;
        if scratch.len() < n_needed {
            scratch.resize(n_needed, 0.0);
        }
        if inner == 1 {
            for lines in values.chunks_mut(n * AT_ONCE) {
                self.apply_lines(direction, lines, scratch);
            }
            return;
        }
        for block in values.chunks_exact_mut(n * inner) {
            for first in (0..inner).step_by(AT_ONCE) {
                self.apply_columns(direction, block, (inner, first, AT_ONCE.min(inner - first)), scratch);
            }
        }
    }

    /// Sizes of the even and odd halves.
    fn sizes(&self) -> (usize, usize) {
        (self.even.modes.len(), self.odd.modes.len())
    }

    /// Lines that are contiguous, one after the other.
    fn apply_lines(&self, direction: Direction, lines: &mut [f64], scratch: &mut [f64]) {
        let ((c, f), m) = (self.sizes(), lines.len() / self.n);
        let (before, after) = scratch.split_at_mut(self.n * AT_ONCE);
        let ((even, odd), (even_out, odd_out)) =
            (before[..self.n * m].split_at_mut(c * m), after[..self.n * m].split_at_mut(c * m));
        for (at, line) in lines.chunks_exact(self.n).enumerate() {
            let (even, odd) = (&mut even[at * c..][..c], &mut odd[at * f..][..f]);
            match direction {
                Direction::ToSpectrum => {
                    for ((&(i, j), sum), difference) in self.pairs.iter().zip(&mut *even).zip(odd) {
                        (*sum, *difference) = (line[i] + line[j], line[i] - line[j]);
                    }
                    self.singles.iter().zip(&mut even[f..]).for_each(|(&i, sum)| *sum = line[i]);
                }
                Direction::ToSites => {
                    self.even.modes.iter().zip(even).for_each(|(&mode, x)| *x = line[mode]);
                    self.odd.modes.iter().zip(odd).for_each(|(&mode, x)| *x = line[mode]);
                }
            }
        }
        for (half, from, to) in [(&self.even, &*even, &mut *even_out), (&self.odd, &*odd, &mut *odd_out)] {
            let k = half.modes.len();
            let matrix = View::new(&half.matrix, k, k);
            let matrix = if direction == Direction::ToSpectrum { matrix } else { matrix.t() };
            multiply(to, View::new(from, m, k), matrix);
        }
        for (at, line) in lines.chunks_exact_mut(self.n).enumerate() {
            let (even, odd) = (&even_out[at * c..][..c], &odd_out[at * f..][..f]);
            match direction {
                Direction::ToSpectrum => {
                    self.even.modes.iter().zip(even).for_each(|(&mode, x)| line[mode] = *x);
                    self.odd.modes.iter().zip(odd).for_each(|(&mode, x)| line[mode] = *x);
                }
                Direction::ToSites => {
                    for ((&(i, j), sum), difference) in self.pairs.iter().zip(even).zip(odd) {
                        (line[i], line[j]) = (sum + difference, sum - difference);
                    }
                    self.singles.iter().zip(&even[f..]).for_each(|(&i, sum)| line[i] = *sum);
                }
            }
        }
    }

    /// Lines side by side: columns `first` to `first + width` of a block of n rows of `inner`.
    fn apply_columns(
        &self,
        direction: Direction,
        block: &mut [f64],
        (inner, first, width): (usize, usize, usize),
        scratch: &mut [f64],
    ) {
        let (c, _) = self.sizes();
        let (before, after) = scratch.split_at_mut(self.n * AT_ONCE);
        let ((even, odd), (even_out, odd_out)) =
            (before[..self.n * width].split_at_mut(c * width), after[..self.n * width].split_at_mut(c * width));
        let place = |row: usize| row * inner + first..row * inner + first + width;
        match direction {
            Direction::ToSpectrum => self.fold(block, &place, even, odd, width),
            Direction::ToSites => {
                gather(block, &place, &self.even.modes, even, width);
                gather(block, &place, &self.odd.modes, odd, width);
            }
        }
        for (half, from, to) in [(&self.even, &*even, &mut *even_out), (&self.odd, &*odd, &mut *odd_out)] {
            let k = half.modes.len();
            let matrix = View::new(&half.matrix, k, k);
            let matrix = if direction == Direction::ToSpectrum { matrix.t() } else { matrix };
            multiply(to, matrix, View::new(from, k, width));
        }
        match direction {
            Direction::ToSpectrum => {
                scatter(block, &place, &self.even.modes, even_out, width);
                scatter(block, &place, &self.odd.modes, odd_out, width);
            }
            Direction::ToSites => self.unfold(block, &place, even_out, odd_out, width),
        }
    }

    fn fold(
        &self,
        block: &[f64],
        place: &impl Fn(usize) -> Range<usize>,
        even: &mut [f64],
        odd: &mut [f64],
        width: usize,
    ) {
        let (sums, lone) = even.split_at_mut(self.pairs.len() * width);
        for ((&(i, j), sums), differences) in
            self.pairs.iter().zip(sums.chunks_exact_mut(width)).zip(odd.chunks_exact_mut(width))
        {
            let rows = block[place(i)].iter().zip(&block[place(j)]);
            for ((sum, difference), (x, y)) in sums.iter_mut().zip(differences).zip(rows) {
                (*sum, *difference) = (x + y, x - y);
            }
        }
        gather(block, place, &self.singles, lone, width);
    }

    fn unfold(
        &self,
        block: &mut [f64],
        place: &impl Fn(usize) -> Range<usize>,
        even: &[f64],
        odd: &[f64],
        width: usize,
    ) {
        let (sums, lone) = even.split_at(self.pairs.len() * width);
        for ((&(i, j), sums), differences) in
            self.pairs.iter().zip(sums.chunks_exact(width)).zip(odd.chunks_exact(width))
        {
            let both = || sums.iter().zip(differences);
            block[place(i)].iter_mut().zip(both()).for_each(|(x, (sum, difference))| *x = sum + difference);
            block[place(j)].iter_mut().zip(both()).for_each(|(x, (sum, difference))| *x = sum - difference);
        }
        scatter(block, place, &self.singles, lone, width);
    }
}

fn gather(block: &[f64], place: &impl Fn(usize) -> Range<usize>, rows: &[usize], to: &mut [f64], width: usize) {
    rows.iter().zip(to.chunks_exact_mut(width)).for_each(|(&row, to)| to.copy_from_slice(&block[place(row)]));
}

fn scatter(block: &mut [f64], place: &impl Fn(usize) -> Range<usize>, rows: &[usize], from: &[f64], width: usize) {
    rows.iter().zip(from.chunks_exact(width)).for_each(|(&row, from)| block[place(row)].copy_from_slice(from));
}
