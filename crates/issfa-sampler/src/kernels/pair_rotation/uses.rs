//! Sums over all ways in which rows may use a pair of features so that each is used at least once, and draws from them.
//!
//! Independent parts (rows, or chunks of rows) each use neither, one or both of the pair. Numbers are joined part by part
//! and never taken off each other, so that nothing cancels however rarely a feature is used.

use rand::RngExt;

/// Which of a pair are used, as bits: 1 the first, 2 the second.
pub type Use = usize;

/// A weight for each use.
pub type Uses = [f64; 4];

/// Both features.
pub const BOTH: Use = 3;

/// What no parts at all use.
const NOTHING: Uses = [1.0, 0.0, 0.0, 0.0];

/// The weights of what two parts use together.
#[inline(always)]
pub fn joined(a: &Uses, b: &Uses) -> Uses {
    [
        a[0] * b[0],
        a[1] * (b[0] + b[1]) + a[0] * b[1],
        a[2] * (b[0] + b[2]) + a[0] * b[2],
        a[3] * (b[0] + b[1] + b[2] + b[3]) + a[1] * (b[2] + b[3]) + a[2] * (b[1] + b[3]) + a[0] * b[3],
    ]
}

/// Rows whose sums are joined before those of others, and that share a random stream.
pub const ROW_CHUNK: usize = 64;

/// The weights of the rows of a chunk, use by use; rows that are not there use nothing.
pub type ChunkWeights = [[f64; ROW_CHUNK]; 4];

/// Rows that are joined side by side.
const LANES: usize = 8;

/// The weights of what the rows of a chunk use together: every eighth row, then the eight.
#[inline(always)]
pub fn rows_joined([neither, first, second, both]: &ChunkWeights) -> Uses {
    let mut lanes = [NOTHING; LANES];
    for start in (0..ROW_CHUNK).step_by(LANES) {
        for lane in 0..LANES {
            let at = start + lane;
            lanes[lane] = joined(&lanes[lane], &[neither[at], first[at], second[at], both[at]]);
        }
    }
    all_joined(lanes.into_iter())
}

/// The weights of what all parts use together.
pub fn all_joined(parts: impl DoubleEndedIterator<Item = Uses>) -> Uses {
    parts.rev().fold(NOTHING, |later, part| joined(&part, &later))
}

/// Draws what each part uses, given what they use together.
pub fn draw(parts: &[Uses], together: Use, stream: &mut impl rand::Rng) -> Vec<Use> {
    let mut later = vec![NOTHING; parts.len() + 1];
    for at in (0..parts.len()).rev() {
        later[at] = joined(&parts[at], &later[at + 1]);
    }
    let mut so_far = 0;
    let mut draw_one = |(part, later): (&Uses, &Uses)| {
        let completes = |now: Use| (0..4).filter(|next| now | next == together).map(|next| later[next]).sum::<f64>();
        let weights: Uses = std::array::from_fn(|using| part[using] * completes(so_far | using));
        let using = draw_use(&weights, stream);
        so_far |= using;
        using
    };
    parts.iter().zip(&later[1..]).map(&mut draw_one).collect()
}

/// One of the uses in proportion to its weight.
fn draw_use(weights: &Uses, stream: &mut impl rand::Rng) -> Use {
    let mut left = stream.random::<f64>() * weights.iter().sum::<f64>();
    let mut last = 0;
    for (using, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        last = using;
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Streams};

    fn parts() -> Vec<Uses> {
        let part = |t: usize| {
            std::array::from_fn(|using| (1.0 + ((3 * t + 5 * using) as f64).sin()) * [1.0, 0.1, 0.02, 0.3][using])
        };
        (0..4).map(part).collect()
    }

    /// All 256 ways of four parts, with their weights and what they use together.
    fn all_ways(parts: &[Uses]) -> Vec<(Vec<Use>, f64, Use)> {
        let way = |code: usize| {
            let uses: Vec<Use> = (0..parts.len()).map(|t| code >> (2 * t) & 3).collect();
            let weight = uses.iter().zip(parts).map(|(&using, part)| part[using]).product();
            let together = uses.iter().fold(0, |all, using| all | using);
            (uses, weight, together)
        };
        (0..1 << (2 * parts.len())).map(way).collect()
    }

    #[test]
    fn sums_are_over_all_ways() {
        let parts = parts();
        let found = all_joined(parts.iter().copied());
        for (together, found) in found.iter().enumerate() {
            let slow: f64 = all_ways(&parts).iter().filter(|way| way.2 == together).map(|way| way.1).sum();
            assert!((found / slow - 1.0).abs() < 1e-12, "{together}: {found} {slow}");
        }
        let mut rows: ChunkWeights = [[1.0; ROW_CHUNK], [0.0; ROW_CHUNK], [0.0; ROW_CHUNK], [0.0; ROW_CHUNK]];
        for (at, part) in parts.iter().enumerate() {
            (0..4).for_each(|using| rows[using][17 * at] = part[using]);
        }
        found.iter().zip(rows_joined(&rows)).for_each(|(x, y)| assert!((x / y - 1.0).abs() < 1e-12));
        // In chunks, too.
        let chunks = parts.chunks(2).map(|chunk| all_joined(chunk.iter().copied()));
        let by_chunks = all_joined(chunks.collect::<Vec<_>>().into_iter());
        found.iter().zip(by_chunks).for_each(|(x, y)| assert!((x / y - 1.0).abs() < 1e-12));
    }

    fn draw_by_bands(parts: &[Uses], bands: &[Uses], together: Use, stream: &mut impl rand::Rng) -> Vec<Use> {
        let of_bands = draw(bands, together, stream);
        parts.chunks(2).zip(of_bands).flat_map(|(band, using)| draw(band, using, stream)).collect()
    }

    #[test]
    fn draws_have_the_law_of_the_ways() {
        let (parts, n) = (parts(), 200_000);
        let mut stream = Streams::once(3).stream(Purpose::PairRotation, 0, 0);
        for together in 1..4 {
            let ways: Vec<_> = all_ways(&parts).into_iter().filter(|way| way.2 == together).collect();
            let total: f64 = ways.iter().map(|way| way.1).sum();
            let mut counts = std::collections::BTreeMap::<Vec<Use>, f64>::new();
            // Half of the draws go by bands of two parts: what each band uses, then its parts.
            let bands: Vec<Uses> = parts.chunks(2).map(|band| all_joined(band.iter().copied())).collect();
            for turn in 0..n {
                let uses = match turn % 2 {
                    0 => draw(&parts, together, &mut stream),
                    _ => draw_by_bands(&parts, &bands, together, &mut stream),
                };
                *counts.entry(uses).or_default() += 1.0;
            }
            assert!(counts.keys().all(|uses| ways.iter().any(|way| way.0 == *uses)));
            let mut squares = 0.0;
            for (uses, weight, _) in &ways {
                let expected = f64::from(n) * weight / total;
                squares += (counts.get(uses).copied().unwrap_or(0.0) - expected).powi(2) / expected;
            }
            let freedom = ways.len() as f64 - 1.0;
            assert!((squares - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{together}: {squares} for {freedom}");
        }
    }
}
