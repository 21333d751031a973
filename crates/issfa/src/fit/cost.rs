//! What ranks send each other in a sweep, and how long a sweep takes on so many of them.
//!
//! The counts follow the code: one line a message, in the order of the sweep. Tests compare them with what was sent. What comes
//! to rank 0 at kept sweeps and checkpoints (all features), and in every sweep with held-out rows, is not among them.

use crate::kernels::unique_features::offers;
use crate::kernels::{Kernel, few_rows, pair_rotation};
use crate::spectral::{Cut, Layout, TILE};
use std::collections::BTreeMap;

/// Everything that the traffic of a sweep depends on.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Rows of the data.
    pub n_rows: usize,
    /// Modes, or sites under a mask.
    pub n_columns: usize,
    /// Rows of a band.
    pub band: usize,
    /// Sites of the grid where a mask or missing cells make them count.
    pub n_grid: Option<usize>,
    /// Whether rows lack single cells.
    pub has_holes: bool,
    /// Under a mask: every so many sweeps features are drawn jointly inside and outside.
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
    /// The same where all know how much each brings.
    GatherKnown,
    /// From rank 0 to all.
    Broadcast,
    /// From each to each, what is for it.
    Exchange,
}

/// Between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// All ranks.
    All,
    /// Those that hold other tiles of the same rows.
    Line,
    /// Those that hold other rows of the same tiles.
    Column,
}

/// Messages of one kind in a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// How it goes.
    pub way: Way,
    /// Between whom.
    pub among: Among,
    /// How often in a sweep.
    pub n_calls: f64,
    /// What one rank brings to one of them, on average over ranks.
    pub n_bytes: f64,
}

/// Evaluations of theta's target in a sweep: with derivatives in the search (a few more or less, as the search goes), and
/// without in the two steps.
const THETA_DERIVATIVES: f64 = 14.0;
const THETA_VALUES: f64 = 3.0;
/// The digests of the state and what comes next.
const AGREEMENT_BYTES: f64 = 25.0;
/// Seconds that a rank takes for an entry of `Y S'` of the rows that it holds, beside what is shared: to add up over its threads,
/// send, receive and convert it.
const SECONDS_PER_ENTRY: f64 = 3e-9;
/// Seconds that all ranks of a line take for a row that they hold, doing the same: to draw who may give birth, count, split and sort
/// rows, and follow those that others update. Measured: docs/performance.md, Ranks.
const SECONDS_PER_ROW: f64 = 1.2e-6;
/// Rows that use a feature which few rows use, about.
const FEW_USERS: f64 = 8.0;

impl Size {
    /// How so many ranks share rows and tiles.
    pub fn layout(&self, n_ranks: usize) -> Layout {
        let cut = if self.n_grid.is_some() { Cut::Tiles } else { Cut::TilesAndRows };
        Layout::shared(self.n_rows, self.n_columns, self.band, cut, (0, n_ranks))
    }
}

/// What the counts are made of.
struct Counts {
    /// Ranks, lines and columns.
    ranks: f64,
    lines: f64,
    columns: f64,
    n_tiles: f64,
    n_bands: f64,
    /// K, T and V.
    k: f64,
    t: f64,
    v: f64,
    /// Of a number.
    bytes: f64,
    list: Vec<Message>,
}

impl Counts {
    fn add(&mut self, way: Way, among: Among, n_calls: f64, n_bytes: f64) {
        // A rank that is alone in its line has nobody to tell.
        if among != Among::Line || self.columns > 1.0 {
            self.list.push(Message { way, among, n_calls, n_bytes });
        }
    }

    /// Something that all ranks bring a part of.
    fn gather(&mut self, n_calls: f64, bytes_of_all: f64) {
        self.add(Way::Gather, Among::All, n_calls, bytes_of_all / self.ranks);
    }

    /// Sums over tiles of so many numbers of each.
    fn gather_tiles(&mut self, n_calls: f64, n_sums: f64) {
        self.add(Way::GatherKnown, Among::All, n_calls, 8.0 * self.n_tiles * n_sums / self.ranks);
    }

    /// What lines have, where rows are cut.
    fn gather_lines(&mut self, n_calls: f64, bytes_of_all: f64) {
        if self.lines > 1.0 {
            self.gather(n_calls, bytes_of_all);
        }
    }

    /// So many numbers of every band, where rows are cut.
    fn gather_bands(&mut self, n_calls: f64, n_numbers: f64) {
        if self.lines > 1.0 {
            self.add(Way::GatherKnown, Among::All, n_calls, 8.0 * n_numbers * self.n_bands / self.ranks);
        }
    }

    /// Integers of every line, where rows are cut.
    fn sum_lines(&mut self, n_calls: f64, n_numbers: f64) {
        if self.lines > 1.0 {
            self.add(Way::Sum, Among::All, n_calls, 8.0 * n_numbers);
        }
    }

    /// A sum over bands of so many bytes a mode, where rows are cut: shared out between the ranks of the column.
    fn sum_bands(&mut self, bytes_per_mode: f64) {
        if self.lines > 1.0 {
            let (own, share) = (bytes_per_mode * self.v / self.columns, self.lines);
            self.add(Way::Exchange, Among::Column, 1.0, own * self.n_bands / share * (share - 1.0) / share);
            self.add(Way::Gather, Among::Column, 1.0, own / share);
        }
    }

    /// Sums over tiles of so many numbers, which lines share between them.
    fn sum_tiles(&mut self, n_calls: f64, n_sums: f64) {
        let bytes = 8.0 * self.n_tiles / self.columns * n_sums / self.lines;
        self.add(Way::GatherKnown, Among::Line, n_calls, bytes);
    }

    /// Products of all rows with so many features: each rank gets those of the rows that it updates.
    fn products(&mut self, n_features: f64) {
        let bytes = 8.0 * self.t / self.lines * n_features * (self.columns - 1.0) / self.columns;
        self.add(Way::Exchange, Among::Line, 1.0, bytes);
    }
}

/// The messages of one sweep after burn-in.
pub fn messages(size: &Size, n_ranks: usize) -> Vec<Message> {
    if n_ranks == 1 {
        return Vec::new();
    }
    let layout = size.layout(n_ranks);
    let [lines, columns] = layout.shape().map(|n| n as f64);
    let mut counts = Counts {
        ranks: n_ranks as f64,
        lines,
        columns,
        n_tiles: size.n_columns.div_ceil(TILE) as f64,
        n_bands: layout.n_bands() as f64,
        k: size.n_features as f64,
        t: size.n_rows as f64,
        v: size.n_columns as f64,
        bytes: size.bytes as f64,
        list: Vec::new(),
    };
    of_features(&mut counts, size);
    of_rows(&mut counts, size);
    of_few_rows(&mut counts, size);
    of_births(&mut counts, size);
    of_parameters(&mut counts, size);
    counts.list
}

/// The draw of features and the pass over the data.
fn of_features(counts: &mut Counts, size: &Size) {
    let Counts { ranks, n_bands, k, v, bytes, .. } = *counts;
    counts.gather_lines(1.0, 8.0 * k * k * n_bands);
    counts.add(Way::Broadcast, Among::All, 1.0, 8.0 * (k + k * k) / ranks);
    if let Some(grid) = size.n_grid.map(|n| n as f64) {
        // The statistic, the rotated features, and their images at the columns.
        [v, grid, v].into_iter().for_each(|width| counts.gather(1.0, k * width * bytes));
        if size.has_holes {
            // Images at all sites, from which holes are filled; in double precision where features are drawn jointly.
            let joint = 1.0 / size.joint_every.max(1) as f64;
            counts.gather(1.0 - joint, k * grid * bytes);
            counts.gather(joint, k * grid * 8.0);
        }
    }
    counts.gather_tiles(1.0, k);
    counts.sum_bands(k * bytes);
    counts.add(Way::Sum, Among::All, 1.0, 8.0 * k * k);
    counts.gather_tiles(1.0, n_bands + k);
    counts.products(k);
}

/// Updates of rows, and of pairs of features.
fn of_rows(counts: &mut Counts, size: &Size) {
    let Counts { ranks, k, t, .. } = *counts;
    let halves = 2.0 * f64::from(size.row_sweeps);
    counts.add(Way::Gather, Among::Line, halves, 0.5 * t / ranks * (4.0 + 12.0 * size.active_per_row));
    counts.sum_lines(2.0 * halves, k);
    // Of every pair what chunks of rows use under each rotation, then bands, and where it is turned what becomes of the rows.
    let pairs = pair_rotation::n_pairs(size.n_features, size.n_columns) as f64;
    let own_chunks = size.n_rows.div_ceil(pair_rotation::ROW_CHUNK) as f64 / ranks;
    counts.add(Way::GatherKnown, Among::Line, pairs, 40.0 * pair_rotation::CANDIDATES as f64 * own_chunks);
    counts.gather_bands(pairs, 5.0 * pair_rotation::CANDIDATES as f64);
    let of_row = 1.0 + 16.0 * size.active_per_row / k.max(1.0);
    counts.add(Way::Gather, Among::Line, size.turned_pairs, t / ranks * of_row);
    counts.sum_lines(size.turned_pairs, 2.0);
}

/// Of features that few rows use: who uses them, their means, these with all features and all rows, who is asked, and what those
/// gain.
fn of_few_rows(counts: &mut Counts, size: &Size) {
    let Counts { ranks, lines, columns, k, t, v, bytes, .. } = *counts;
    let per_feature = few_rows::asked(size.n_rows, size.n_grid.is_none()) as f64;
    let few = size.asked / per_feature;
    counts.gather_lines(1.0, 24.0 * few * FEW_USERS);
    counts.sum_bands(8.0 * few);
    if size.n_grid.is_some() {
        counts.gather(2.0, few * v * bytes);
    }
    let looked_at = if size.n_grid.is_some() { 1.0 } else { few_rows::SHARE_LOOKED_AT };
    counts.gather_tiles(1.0, looked_at * few * k);
    counts.gather_tiles(1.0, few);
    counts.products(few);
    let likest = per_feature.min(t / ranks);
    counts.add(Way::Gather, Among::Line, 1.0, 24.0 * few * likest);
    counts.gather_lines(1.0, 24.0 * few * per_feature * lines);
    if size.n_grid.is_some() {
        counts.gather(few, per_feature * v * bytes);
        return;
    }
    if lines > 1.0 {
        let residuals = (per_feature + FEW_USERS) * v / columns * bytes / lines;
        counts.add(Way::Gather, Among::Column, few, residuals);
    }
    counts.sum_tiles(few, per_feature * few_rows::SHOWN as f64);
    counts.gather_lines(few, 8.0 * per_feature * few_rows::SHOWN as f64);
}

/// Births: from the prior in rounds, and offers.
fn of_births(counts: &mut Counts, size: &Size) {
    let Counts { lines, columns, v, bytes, .. } = *counts;
    let part_seen = size.n_grid.map(|n| v / n as f64);
    let rounds = f64::from(size.birth_rounds);
    let offers = offers::expected(size.n_rows, size.n_features, size.active_per_row, part_seen);
    let per_round = (size.proposals - offers).max(0.0) / rounds.max(1.0);
    if size.n_grid.is_some() {
        counts.gather(rounds, per_round * v * bytes);
        counts.gather(1.0, offers * v * bytes);
        return;
    }
    counts.sum_tiles(rounds, per_round);
    counts.sum_tiles(1.0, offers * offers::SHOWN as f64);
    // How many there were, who is accepted, and, where a feature was born, what it is at the tiles of a column.
    counts.gather_lines(rounds + 1.0, 8.0 * lines);
    if lines > 1.0 {
        counts.add(Way::Gather, Among::Column, 1.0, v / columns * bytes / lines);
    }
}

/// Theta, the weights' parameters, and whether all agree.
fn of_parameters(counts: &mut Counts, size: &Size) {
    let Counts { ranks, k, .. } = *counts;
    let p = size.n_theta as f64;
    if size.n_grid.is_none() {
        counts.gather_tiles(THETA_DERIVATIVES, 1.0 + p + p * p);
        counts.gather_tiles(THETA_VALUES, 1.0);
    }
    counts.add(Way::Broadcast, Among::All, 1.0, 8.0 * (2.0 * p + p * p) / ranks);
    counts.gather_bands(2.0, 4.0 * k);
    counts.gather(1.0, AGREEMENT_BYTES * ranks);
}

/// What one rank brings to all of them, on average.
pub fn bytes_per_rank(messages: &[Message]) -> f64 {
    // An empty sum would be -0.
    0.0 + messages.iter().map(|message| message.n_calls * message.n_bytes).sum::<f64>()
}

/// Seconds that the messages take, by the usual algorithms: a sum goes round twice, in pieces; a gathering once; a broadcast
/// as a tree of pieces; what each has for each goes directly. Lengths are told first where they are not known.
pub fn seconds_to_send(messages: &[Message], layout: Layout, network: &Network) -> f64 {
    let [lines, columns] = layout.shape();
    let one = |message: &Message| {
        let ranks = match message.among {
            Among::All => layout.n_ranks(),
            Among::Line => columns,
            Among::Column => lines,
        } as f64;
        let (steps, all) = (ranks.log2().ceil(), message.n_bytes * ranks);
        let (n_steps, n_bytes) = match message.way {
            Way::Sum => (2.0 * steps, 2.0 * message.n_bytes * (ranks - 1.0) / ranks),
            Way::Gather => (2.0 * steps, all * (ranks - 1.0) / ranks),
            Way::GatherKnown => (steps, all * (ranks - 1.0) / ranks),
            Way::Broadcast => (2.0 * steps, 2.0 * all),
            Way::Exchange => (2.0 * steps + ranks - 1.0, message.n_bytes),
        };
        message.n_calls * (n_steps * network.latency + n_bytes / network.bandwidth)
    };
    0.0 + messages.iter().map(one).sum::<f64>()
}

/// Eigenvectors take so many times as long as as many products in a matrix product, and so many products for each n^3.
const EIGENVECTORS: f64 = 15.0;
/// A normal number takes as long as so many products.
const NORMAL: f64 = 400.0;

/// What the draw of features and the pass over the data take, in products: what rows and tiles share, what every rank of a column
/// does for its tiles, and what rank 0 does for all: rotations and products of features; eigenvectors of the smaller of W'W and
/// W W'.
pub fn parts_of_features(n_rows: f64, n_columns: f64, k: f64) -> [f64; 3] {
    let draw = n_columns * k * (6.0 * k + NORMAL);
    [2.0 * n_rows * n_columns * k, draw, EIGENVECTORS * k.min(n_rows).powi(3)]
}

/// Seconds of work of one sweep on the busiest rank, from the seconds of each kernel on one. What is not shared is counted as
/// such.
pub fn seconds_of_work(kernels: &BTreeMap<&'static str, f64>, size: &Size, n_ranks: usize) -> f64 {
    let layout = size.layout(n_ranks);
    let [lines, columns] = layout.shape().map(|n| n as f64);
    let n_tiles = size.n_columns.div_ceil(TILE).max(1) as f64;
    let of_tiles = layout.most_tiles() as f64 / n_tiles;
    let of_rows = layout.most_rows() as f64 / size.n_rows.max(1) as f64;
    let of_own = of_rows / columns;
    let is_masked = size.n_grid.is_some();
    let [pass, draw, eigen] = parts_of_features(size.n_rows as f64, size.n_columns as f64, size.n_features as f64);
    // Of rows that are asked about a feature each line judges some; likeness is looked for in all rows.
    let asked = few_rows::asked(size.n_rows, !is_masked) as f64;
    let of_asked = of_tiles * (asked / lines).ceil() / asked;
    let looking = few_rows::share_of_looking(size.n_rows);
    let shared = |name: &str| {
        let is = |kernel: Kernel| kernel.name() == name;
        match name {
            _ if is(Kernel::Features) => (pass * of_tiles * of_rows + draw * of_tiles + eigen) / (pass + draw + eigen),
            _ if is(Kernel::SharedActivations) || is(Kernel::PairRotation) => of_own,
            // Under a mask all ranks have all features, and work on them alike but for the draw.
            _ if is_masked => 1.0,
            _ if is(Kernel::FewRows) => looking * of_tiles * of_rows + (1.0 - looking) * of_asked,
            _ if is(Kernel::UniqueFeatures) => of_tiles * of_rows,
            _ if is(Kernel::TidyUp) || is(Kernel::Theta) => of_tiles,
            _ if is(Kernel::WeightMeans) || is(Kernel::WeightPrecisions) => of_rows,
            // Features and weights.
            _ if is(Kernel::Rescale) || is(Kernel::SignFlip) => of_rows.max(of_tiles),
            _ => 1.0,
        }
    };
    let work: f64 = kernels.iter().map(|(name, seconds)| seconds * shared(name)).sum();
    let rows = if n_ranks > 1 { layout.most_rows() as f64 } else { 0.0 };
    work + rows * (SECONDS_PER_ROW + size.n_features as f64 * SECONDS_PER_ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectral::BAND;

    const PAPER: Size = Size {
        n_rows: 3000,
        n_columns: 10_000,
        band: BAND,
        n_grid: None,
        has_holes: false,
        joint_every: 160,
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
    const LONG: Size = Size { n_rows: 300_000, ..PAPER };

    #[test]
    fn products_are_what_is_sent_most() {
        let sent = bytes_per_rank(&messages(&PAPER, 6));
        // With all features, and with those of them that few rows use.
        let products = 8.0 * 3000.0 * (50.0 + PAPER.asked / few_rows::asked(3000, true) as f64) * 5.0 / 6.0;
        assert!(sent > products && sent < 1.3 * products, "{sent}, {products}");
        assert_eq!(bytes_per_rank(&messages(&PAPER, 1)), 0.0);
        // A rank sends those of its own rows.
        assert!(bytes_per_rank(&messages(&LONG, 1000)) < 0.05 * bytes_per_rank(&messages(&LONG, 2)));
    }

    #[test]
    fn work_shrinks_until_there_is_a_rank_for_every_tile_of_every_band() {
        let kernels = BTreeMap::from([(Kernel::Features.name(), 1.0), (Kernel::Noise.name(), 0.125)]);
        let work = |size: &Size, ranks| seconds_of_work(&kernels, size, ranks);
        assert_eq!(work(&PAPER, 1), 1.125);
        assert!((work(&PAPER, 40) - work(&PAPER, 4000)).abs() < 1e-12, "40 tiles, one band");
        assert!((work(&PAPER, 2) - 0.625).abs() < 6e-3);
        assert!(work(&LONG, 1000) - 0.125 < 0.3 * (work(&LONG, 40) - 0.125), "74 bands");
    }

    #[test]
    fn a_slower_network_takes_longer() {
        let seconds = |bandwidth, latency| {
            seconds_to_send(&messages(&LONG, 64), LONG.layout(64), &Network { bandwidth, latency })
        };
        assert!(seconds(1e9, 1e-6) < seconds(1e8, 1e-6) && seconds(1e9, 1e-6) < seconds(1e9, 1e-5));
    }
}
