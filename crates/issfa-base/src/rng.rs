//! Randomness keyed by meaning: a stream is named by what it is for, never by the thread that draws from it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A counter-based generator positioned at the start of one named stream.
pub type Stream = ChaCha8Rng;

/// What a stream is drawn for. The discriminants are part of the meaning of a seed: never renumber, only add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Simulated truth and data.
    Simulation = 1,
    /// States and data from the prior: tests, `prior-sample`.
    Prior = 2,
    /// Where a chain starts.
    Initial = 3,
    /// The draw of all features, by tile (or by feature under a mask).
    Features = 10,
    /// The noise variance.
    Noise = 11,
    /// Which half of the rows changes first, features' probabilities and their order.
    RowSplit = 12,
    /// Activations and weights, by chunk of rows.
    SharedActivations = 13,
    /// Numbers of proposed unique features.
    UniqueCounts = 14,
    /// Their weights (even indices) and their acceptance (odd ones), by row.
    UniqueProposals = 15,
    /// Spectra of newborn features, by row and tile.
    UniqueSpectra = 16,
    /// The parameters of the curve.
    Theta = 17,
    /// Moves along the ridge.
    Rescale = 18,
    /// alpha.
    IbpStrength = 19,
    /// beta.
    IbpRepulsion = 20,
    /// tau.
    WeightMeans = 21,
    /// nu.
    WeightPrecisions = 22,
    /// The order of features drawn one by one.
    FeatureOrder = 23,
    /// What was not observed, for the draw of features.
    MissingCells = 24,
    /// What was not observed of rows whose unique features may change.
    MissingRows = 25,
    /// Which pairs of features are turned (part 0), then, by pair, how (index 0) and what becomes of each chunk of rows.
    PairRotation = 26,
    /// Which features change their sign.
    SignFlip = 27,
    /// Features that few rows use and who stays with them (part 0), their order (1), and, by feature, what others choose (2).
    FewRows = 28,
    /// Such a feature, drawn anew, by feature and tile.
    FewRowsFeature = 29,
    /// Rows that were not part of the fit, by row.
    NewRows = 30,
    /// Which cells are hidden for a test.
    HiddenCells = 31,
    /// Circular shifts of time courses.
    SynchronyShifts = 32,
    /// What was not observed of rows that may use a feature that few rows use, by feature and row.
    FewRowsMissing = 33,
}

/// The streams of one sweep of one chain.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// The user's.
    pub seed: u64,
    /// From 1; 0 for what belongs to none.
    pub chain: u32,
    /// From 1; 0 for what comes before.
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
