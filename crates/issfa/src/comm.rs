//! How ranks that share out the modes agree on sums: a trait with one operation, and the case of one process.

/// A group of processes that run the same chain, each holding some tiles of modes.
///
/// Integer addition is associative, so a reduction gives the same bits for any number of ranks. Floating-point
/// partial sums travel as bit patterns in slots of their own (all other ranks send zero there).
pub trait Comm: Send + Sync {
    /// This process's place, from 0.
    fn rank(&self) -> usize;
    /// How many processes share the modes.
    fn size(&self) -> usize;
    /// Replaces `values` on every rank by their sum over ranks, wrapping.
    fn sum_integers(&self, values: &mut [i64]);
}

/// One process that holds all modes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Comm for Solo {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn sum_integers(&self, _values: &mut [i64]) {}
}
