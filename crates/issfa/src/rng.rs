//! Randomness keyed by meaning: a stream is named by what it is for, never by the thread that draws from it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A counter-based generator positioned at the start of one named stream.
pub type Stream = ChaCha8Rng;

/// What a stream is drawn for. The discriminants are part of the meaning of a seed: never renumber, only add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    Simulation = 1,
    Prior = 2,
    Initial = 3,
    Features = 10,
    Noise = 11,
    RowSplit = 12,
    SharedActivations = 13,
    UniqueCounts = 14,
    UniqueProposals = 15,
    UniqueSpectra = 16,
    Theta = 17,
    Rescale = 18,
    IbpStrength = 19,
    IbpRepulsion = 20,
    WeightMeans = 21,
    WeightPrecisions = 22,
    FeatureOrder = 23,
    MissingCells = 24,
    MissingRows = 25,
    NewRows = 30,
    HiddenCells = 31,
    SynchronyShifts = 32,
}

/// The streams of one sweep of one chain.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    pub seed: u64,
    pub chain: u32,
    pub sweep: u64,
}

impl Streams {
    /// Streams that belong to no sweep: simulation, initial states.
    pub fn once(seed: u64) -> Streams {
        Streams { seed, chain: 0, sweep: 0 }
    }

    /// The stream for `purpose`; `part` is a round or half, `index` a row, a chunk of rows or a tile of modes.
    pub fn stream(&self, purpose: Purpose, part: u32, index: u64) -> Stream {
        let mut key = [0u8; 32];
        key[0..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&self.sweep.to_le_bytes());
        key[16..20].copy_from_slice(&self.chain.to_le_bytes());
        key[20..24].copy_from_slice(&(purpose as u32).to_le_bytes());
        key[24..28].copy_from_slice(&part.to_le_bytes());
        let mut stream = ChaCha8Rng::from_seed(key);
        stream.set_stream(index);
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use rand_distr::{Distribution, Gamma, StandardNormal};

    #[test]
    fn streams_differ_by_every_part_of_their_name() {
        let base = Streams { seed: 1, chain: 2, sweep: 3 };
        let others = [
            Streams { seed: 9, ..base }.stream(Purpose::Theta, 4, 5),
            Streams { chain: 9, ..base }.stream(Purpose::Theta, 4, 5),
            Streams { sweep: 9, ..base }.stream(Purpose::Theta, 4, 5),
            base.stream(Purpose::Noise, 4, 5),
            base.stream(Purpose::Theta, 9, 5),
            base.stream(Purpose::Theta, 4, 9),
        ];
        let first: u64 = base.stream(Purpose::Theta, 4, 5).random();
        for mut other in others {
            assert_ne!(first, other.random::<u64>());
        }
        assert_eq!(first, base.stream(Purpose::Theta, 4, 5).random::<u64>());
    }

    /// A change of these numbers means that old seeds give other results: say so in the changelog.
    #[test]
    fn golden_draws() {
        let mut stream = Streams { seed: 1, chain: 2, sweep: 3 }.stream(Purpose::Features, 4, 5);
        let normal: f64 = StandardNormal.sample(&mut stream);
        let gamma: f64 = Gamma::new(2.5, 1.0).unwrap().sample(&mut stream);
        let uniform: f64 = stream.random();
        assert_eq!((normal.to_bits(), gamma.to_bits(), uniform.to_bits()), GOLDEN, "{normal} {gamma} {uniform}");
    }
    const GOLDEN: (u64, u64, u64) = (4601077284826344517, 4605687013743679578, 4593677188642381468);
}
