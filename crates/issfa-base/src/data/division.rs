//! Rows of every run in two parts: blocks that a fit does not see, and the rest but for the neighbours of the blocks.

use super::runs::NamedRun;
use std::ops::Range;

/// The fewest rows of a block, where runs are long enough for several.
const LEAST_BLOCK: usize = 8;
/// Held-out blocks that are aimed at.
const BLOCKS: [usize; 2] = [4, 12];

/// Rows on either side of a block that are in neither part, where blocks are twice as long: what is slow over rows, noise too,
/// would tell the fit of the rows that it is judged by.
const MOST_BETWEEN: usize = 5;

/// Which of the two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The rows of a fit.
    Training,
    /// Those that it does not see.
    Held,
}

/// Held-out blocks of rows that follow each other, by run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    lengths: Vec<usize>,
    /// Of every run, in order.
    blocks: Vec<Vec<Range<usize>>>,
    /// Rows on either side of a block that are in neither part.
    n_between: usize,
}

impl Division {
    /// Cuts every run into blocks of about one length and holds every `period`-th out, beginning with another one in each
    /// `fold` below `period`. Runs of fewer rows than `period` stay whole.
    pub fn new(lengths: &[usize], period: usize, fold: usize) -> Division {
        let n_held = lengths.iter().sum::<usize>() / period;
        let n_blocks = (n_held / LEAST_BLOCK).clamp(BLOCKS[0], BLOCKS[1]);
        let length = n_held.div_ceil(n_blocks).max(1);
        let of_run = |n_rows: usize| -> Vec<Range<usize>> {
            if n_rows < period {
                return Vec::new();
            }
            let n_all =
                period * ((n_rows as f64 / (length * period) as f64).round() as usize).clamp(1, n_rows / period);
            let end = |block: usize| block * n_rows / n_all;
            let is_held = |block: &usize| block % period == (period / 2 + fold) % period;
            (0..n_all).filter(is_held).map(|block| end(block)..end(block + 1)).collect()
        };
        let blocks = lengths.iter().map(|&n_rows| of_run(n_rows)).collect();
        Division { lengths: lengths.to_vec(), blocks, n_between: (length / 2).min(MOST_BETWEEN) }
    }

    /// How many rows every run has.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The places of the rows of a part within a run.
    pub fn rows(&self, run: usize, side: Side) -> Vec<usize> {
        let n = self.n_between;
        let is_near = |row: usize, n: usize| {
            self.blocks[run].iter().any(|block| (block.start.saturating_sub(n)..block.end + n).contains(&row))
        };
        let is_in = |row: &usize| match side {
            Side::Held => is_near(*row, 0),
            Side::Training => !is_near(*row, n),
        };
        (0..self.lengths[run]).filter(is_in).collect()
    }

    /// The number of the block that a held-out row is in, over all runs.
    pub fn block_of(&self, run: usize, row: usize) -> usize {
        let before: usize = self.blocks[..run].iter().map(Vec::len).sum();
        before + self.blocks[run].iter().position(|block| block.contains(&row)).expect("the row is held out")
    }

    /// Blocks that are held out.
    pub fn n_blocks(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Rows that are held out.
    pub fn n_held(&self) -> usize {
        self.blocks.iter().flatten().map(Range::len).sum()
    }

    /// Whether these are the runs that were divided.
    pub(super) fn is_of(&self, runs: &[NamedRun]) -> bool {
        runs.iter().map(|run| run.n_rows).eq(self.lengths.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_hold_every_row_out_once() {
        for lengths in [&[1000][..], &[121; 12], &[30], &[57, 3, 200], &[7, 5, 9, 40]] {
            let mut n_out: Vec<Vec<usize>> = lengths.iter().map(|&n| vec![0; n]).collect();
            for fold in 0..5 {
                let division = Division::new(lengths, 5, fold);
                let mut blocks = Vec::new();
                for run in 0..lengths.len() {
                    let [held, seen] = [Side::Held, Side::Training].map(|side| division.rows(run, side));
                    let apart = |row: &usize| held.iter().all(|other| row.abs_diff(*other) > division.n_between);
                    assert!(seen.iter().all(apart) && seen.len() * 5 >= lengths[run] * 2, "{lengths:?}");
                    blocks.extend(held.iter().map(|&row| division.block_of(run, row)));
                    held.iter().for_each(|&row| n_out[run][row] += 1);
                }
                assert!(blocks.is_sorted() && blocks.last().is_none_or(|last| last + 1 == division.n_blocks()));
                assert_eq!(blocks.len(), division.n_held());
            }
            for (run, n) in lengths.iter().enumerate() {
                assert!(n_out[run].iter().all(|times| *times == usize::from(*n >= 5)), "{lengths:?}");
            }
        }
    }

    /// Blocks are long: rows that follow each other are alike, and a neighbour in the fit would tell too much.
    #[test]
    fn blocks_are_stretches_of_rows() {
        let division = Division::new(&[1000], 5, 0);
        assert_eq!((division.n_held(), division.n_blocks(), division.n_between), (200, 12, 5));
        assert!(division.blocks[0].iter().all(|block| block.len() >= 16));
        let runs = Division::new(&[121; 12], 5, 0);
        assert_eq!(runs.n_blocks(), 12);
        assert!(runs.blocks.iter().flatten().all(|block| block.len() >= 24 && block.start > 40 && block.end < 80));
    }
}
