//! What ranks send each other in a sweep, and how long a sweep takes on so many of them.
//!
//! The counts follow the code: one line a message, in the order of the sweep. Tests compare them with what was sent. What comes
//! to rank 0 at kept sweeps and checkpoints (all features), and in every sweep with held-out rows, is not among them.

use crate::kernels::few_rows;
use crate::kernels::unique_features::offers;
use crate::kernels::{Kernel, pair_rotation};
use crate::numeric::lanes::TILE;
use std::collections::BTreeMap;

/// Everything that the traffic of a sweep depends on.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Rows of the data.
    pub n_rows: usize,
    /// Modes, or sites under a mask.
    pub n_columns: usize,
    /// Sites of the grid where a mask or missing cells make them count.
    pub n_grid: Option<usize>,
    /// Whether rows lack single cells.
    pub has_holes: bool,
    /// Under a mask: every so many sweeps features are drawn jointly.
    pub joint_every: u64,
    /// Features there are.
    pub n_features: usize,
    /// Features that a row uses on average.
    pub active_per_row: f64,
    /// Proposed changes of unique features in a sweep.
    pub proposals: f64,
    /// Pairs of features that are turned in a sweep, of those that are looked at.
    pub turned_pairs: f64,
    /// Rows that are asked about features that few rows use, in a sweep.
    pub asked: f64,
    /// Updates of all rows in a sweep.
    pub row_sweeps: u32,
    /// Rounds of births in a sweep.
    pub birth_rounds: u32,
    /// Parameters of the curve.
    pub n_theta: usize,
    /// Bytes of a number of the data.
    pub bytes: usize,
}

/// How fast ranks talk to each other.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Bytes a second, in and out of a rank.
    pub bandwidth: f64,
    /// Seconds that a message takes however short it is.
    pub latency: f64,
}

/// How a message goes round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Added up, result everywhere.
    Sum,
    /// Everything everywhere.
    Gather,
    /// From rank 0 to all.
    Broadcast,
}

/// Messages of one kind in a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// How it goes.
    pub way: Way,
    /// How often in a sweep.
    pub n_calls: f64,
    /// What one rank brings to one of them, on average over ranks.
    pub n_bytes: f64,
}

/// Evaluations of theta's target in a sweep: with derivatives in the search (a few more or less, as the search goes), and
/// without in the two steps.
const THETA_DERIVATIVES: f64 = 14.0;
const THETA_VALUES: f64 = 3.0;
/// The digest of the state and what comes next.
const AGREEMENT_BYTES: f64 = 9.0;
/// Seconds that every rank takes for an entry of `Y S'`, beside what is shared: to send, receive and convert it.
const SECONDS_PER_ENTRY: f64 = 3e-9;

/// The messages of one sweep after burn-in.
pub fn messages(size: &Size, n_ranks: usize) -> Vec<Message> {
    if n_ranks == 1 {
        return Vec::new();
    }
    let (k, t, ranks) = (size.n_features as f64, size.n_rows as f64, n_ranks as f64);
    let (columns, bytes) = (size.n_columns as f64, size.bytes as f64);
    let own_tiles = size.n_columns.div_ceil(TILE) as f64 / ranks;
    let message = |way, n_calls, n_bytes| Message { way, n_calls, n_bytes };
    let mut list = vec![message(Way::Broadcast, 1.0, 8.0 * (k + k * k) / ranks)];
    if let Some(grid) = size.n_grid.map(|n| n as f64) {
        // The statistic, the rotated features, and their images at the columns.
        list.extend([columns, grid, columns].map(|width| message(Way::Gather, 1.0, k * width * bytes / ranks)));
        if size.has_holes {
            // Images at all sites, from which holes are filled; in double precision where features are drawn jointly.
            let joint = 1.0 / size.joint_every.max(1) as f64;
            list.push(message(Way::Gather, 1.0 - joint, k * grid * bytes / ranks));
            list.push(message(Way::Gather, joint, k * grid * 8.0 / ranks));
        }
    }
    list.push(message(Way::Gather, 1.0, 8.0 * own_tiles * k));
    list.push(message(Way::Sum, 1.0, 8.0 * t * k));
    list.push(message(Way::Sum, 1.0, 8.0 * k * k));
    list.push(message(Way::Gather, 1.0, 8.0 * own_tiles * (k + 1.0)));
    let halves = 2.0 * f64::from(size.row_sweeps);
    list.push(message(Way::Gather, halves, 0.5 * t / ranks * (4.0 + 12.0 * size.active_per_row)));
    // Of every pair what chunks of rows use under each rotation, and where it is turned what becomes of the rows.
    let pairs = pair_rotation::n_pairs(size.n_features, size.n_columns) as f64;
    let own_chunks = size.n_rows.div_ceil(pair_rotation::ROW_CHUNK) as f64 / ranks;
    list.push(message(Way::Gather, pairs, 40.0 * pair_rotation::CANDIDATES as f64 * own_chunks));
    list.push(message(Way::Gather, size.turned_pairs, t / ranks * (1.0 + 16.0 * size.active_per_row / k.max(1.0))));
    // Of features that few rows use: their means, these with all features and all rows, and what those that are asked gain.
    let per_feature = few_rows::asked(size.n_rows, size.n_grid.is_none()) as f64;
    let few = size.asked / per_feature;
    let (gains, looked_at) = match size.n_grid {
        Some(_) => {
            list.push(message(Way::Gather, 2.0, few * columns * bytes / ranks));
            (size.asked * columns * bytes / ranks, 1.0)
        }
        None => (8.0 * own_tiles * size.asked * few_rows::SHOWN as f64, few_rows::SHARE_LOOKED_AT),
    };
    list.push(message(Way::Gather, 1.0, 8.0 * own_tiles * looked_at * few * k));
    list.push(message(Way::Sum, 1.0, 8.0 * t * few));
    list.push(message(Way::Gather, few, gains / few.max(1e-9)));
    let part_seen = size.n_grid.map(|n| columns / n as f64);
    let rounds = f64::from(size.birth_rounds);
    let per_proposal = if size.n_grid.is_some() { columns * bytes / ranks } else { 8.0 * own_tiles };
    let offers = offers::expected(size.n_rows, size.n_features, size.active_per_row, part_seen);
    let proposals = (size.proposals - offers).max(0.0);
    list.push(message(Way::Gather, rounds, proposals / rounds.max(1.0) * per_proposal));
    let per_offer = if size.n_grid.is_some() { per_proposal } else { offers::SHOWN as f64 * per_proposal };
    list.push(message(Way::Gather, 1.0, offers * per_offer));
    let p = size.n_theta as f64;
    if size.n_grid.is_none() {
        list.push(message(Way::Gather, THETA_DERIVATIVES, 8.0 * own_tiles * (1.0 + p + p * p)));
        list.push(message(Way::Gather, THETA_VALUES, 8.0 * own_tiles));
    }
    list.push(message(Way::Broadcast, 1.0, 8.0 * (2.0 * p + p * p) / ranks));
    list.push(message(Way::Gather, 1.0, AGREEMENT_BYTES));
    list
}

/// What one rank brings to all of them, on average.
pub fn bytes_per_rank(messages: &[Message]) -> f64 {
    // An empty sum would be -0.
    0.0 + messages.iter().map(|message| message.n_calls * message.n_bytes).sum::<f64>()
}

/// Seconds that the messages take, by the usual algorithms: a sum goes round twice, in pieces; a gathering once; a broadcast
/// as a tree of pieces. Lengths are told first, but for sums.
pub fn seconds_to_send(messages: &[Message], n_ranks: usize, network: &Network) -> f64 {
    let (ranks, steps) = (n_ranks as f64, (n_ranks as f64).log2().ceil());
    let one = |message: &Message| {
        let all = message.n_bytes * ranks;
        let (n_steps, n_bytes) = match message.way {
            Way::Sum => (2.0 * steps, 2.0 * message.n_bytes * (ranks - 1.0) / ranks),
            Way::Gather => (2.0 * steps, all * (ranks - 1.0) / ranks),
            Way::Broadcast => (2.0 * steps, 2.0 * all),
        };
        message.n_calls * (n_steps * network.latency + n_bytes / network.bandwidth)
    };
    0.0 + messages.iter().map(one).sum::<f64>()
}

/// Seconds of work of one sweep on the busiest rank, from the seconds of each kernel on one.
pub fn seconds_of_work(kernels: &BTreeMap<&'static str, f64>, size: &Size, n_ranks: usize) -> f64 {
    let n_tiles = size.n_columns.div_ceil(TILE);
    let of_tiles = n_tiles.div_ceil(n_ranks) as f64 / n_tiles.max(1) as f64;
    let shared = |name: &str| {
        // Under a mask all ranks have all features, and work on them alike but for the draw.
        let whole_rows =
            [Kernel::FewRows, Kernel::UniqueFeatures, Kernel::TidyUp, Kernel::Theta].map(Kernel::name).contains(&name);
        let by_tiles = name == Kernel::Features.name() || whole_rows && size.n_grid.is_none();
        match name {
            _ if by_tiles => of_tiles,
            _ if [Kernel::SharedActivations, Kernel::PairRotation].map(Kernel::name).contains(&name) => {
                1.0 / n_ranks as f64
            }
            _ => 1.0,
        }
    };
    let work: f64 = kernels.iter().map(|(name, seconds)| seconds * shared(name)).sum();
    let entries = if n_ranks > 1 { (size.n_rows * size.n_features) as f64 * SECONDS_PER_ENTRY } else { 0.0 };
    work + entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Size = Size {
        n_rows: 3000,
        n_columns: 10_000,
        n_grid: None,
        has_holes: false,
        joint_every: 20,
        n_features: 50,
        active_per_row: 2.5,
        proposals: 30.0,
        turned_pairs: 2.0,
        asked: 160.0,
        row_sweeps: 1,
        birth_rounds: 8,
        n_theta: 2,
        bytes: 4,
    };

    #[test]
    fn sums_of_products_are_what_is_sent_most() {
        let sent = bytes_per_rank(&messages(&PAPER, 6));
        // With all features, and with those of them that few rows use.
        let sums = 8.0 * 3000.0 * (50.0 + PAPER.asked / few_rows::asked(3000, true) as f64);
        assert!(sent > sums && sent < 1.2 * sums, "{sent}, {sums}");
        assert_eq!(bytes_per_rank(&messages(&PAPER, 1)), 0.0);
    }

    #[test]
    fn work_shrinks_until_there_is_a_rank_for_every_tile() {
        let kernels = BTreeMap::from([(Kernel::Features.name(), 1.0), (Kernel::Noise.name(), 0.125)]);
        let work = |ranks| seconds_of_work(&kernels, &PAPER, ranks);
        assert_eq!(work(1), 1.125);
        assert!((work(40) - work(4000)).abs() < 1e-12, "40 tiles");
        assert!((work(2) - 0.625).abs() < 1e-3);
    }

    #[test]
    fn a_slower_network_takes_longer() {
        let seconds = |bandwidth, latency| seconds_to_send(&messages(&PAPER, 64), 64, &Network { bandwidth, latency });
        assert!(seconds(1e9, 1e-6) < seconds(1e8, 1e-6) && seconds(1e9, 1e-6) < seconds(1e9, 1e-5));
    }
}
