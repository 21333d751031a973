//! Pairs of features turned in the plane they span, all their activations and weights summed out \[M16\].
//!
//! Where most rows use two features, each may settle on a mixture of both: features hold the weights in place and weights
//! the features. Here several rotations of a pair are weighed against each other by the evidence of all rows, one is drawn,
//! and then all activations and weights of the pair. The rows are known by their products with the features alone, so that
//! no pass over the data is needed.

pub mod plane;
pub mod uses;

use super::{Info, Phase, Turn, local_precisions, refresh};
use crate::comm::{Comm, all_gather_known_values};
use crate::model::{Model, NormalPrior, State, ibp};
use crate::numeric::bytes::Element;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream, Streams};
use crate::spectral::{Layout, Projections, Sharing};
use plane::{ChunkUses, ChunkView, Own, Pair, Plane, Rotation, RowView, UsesOfChunk};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::ops::Range;
use uses::{BOTH, Use, Uses};

pub use uses::ROW_CHUNK;

/// Rotations that are weighed against each other, no rotation among them.
pub const CANDIDATES: usize = 8;

/// How far rotations go: see [`Rotation::draw`].
const SCALE: f64 = 0.2;

/// Products of a pass over the data that take as long as one row of one pair.
const PRODUCTS_PER_ROW: f64 = 1600.0;
/// Pairs may take this share of a pass, but there are at least so many of them where there are features enough.
const SHARE_OF_A_PASS: f64 = 0.1;
const FEWEST_PAIRS: usize = 32;

/// Log odds beyond this are as good as infinite, but can be added and taken off.
const MOST_LN_ODDS: f64 = 700.0;

/// Where both features are used less likely than this, a rotation is out of the question.
const LEAST: f64 = 1e-200;

/// During burn-in there are up to twice as many where features are few: so many over the number of features.
const BURN_IN_PAIRS: usize = 1600;

/// Pairs in a sweep. It depends on nothing that the kernel changes, and not on the machine.
pub fn n_pairs(n_features: usize, n_columns: usize) -> usize {
    let share = SHARE_OF_A_PASS * n_features as f64 * n_columns as f64 / PRODUCTS_PER_ROW;
    (share as usize).max(FEWEST_PAIRS).min(n_features * n_features.saturating_sub(1) / 2)
}

/// Turns as many pairs as [`n_pairs`] says, one after the other.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let mut n_pairs = n_pairs(state.n_features(), model.data.n_modes());
    if n_pairs == 0 {
        return Info::default();
    }
    if turn.phase != Phase::Sampling {
        n_pairs = n_pairs.max((2 * n_pairs).min(BURN_IN_PAIRS / state.n_features()));
    }
    if !projections.features_are_fresh() {
        refresh(model, state, projections);
    }
    let mut info = Info::default();
    for (number, pair) in draw_pairs(state.n_features(), n_pairs, &turn.streams).into_iter().enumerate() {
        let tails = model.priors.weight_tails;
        let turning = Turning::new(state, tails, projections, pair, &turn.streams, number as u32 + 1);
        let turned = turning.run(model.data.sharing());
        info.proposed += 1;
        if let Some(turned) = turned {
            info.accepted += 1;
            apply(state, projections, pair, turned, model.data.sharing());
        }
    }
    info
}

/// Pairs whatever the state: features in a random order, two by two, as often as it takes.
fn draw_pairs(n_features: usize, n_pairs: usize, streams: &Streams) -> Vec<[usize; 2]> {
    let mut stream = streams.stream(Purpose::PairRotation, 0, 0);
    let mut order: Vec<usize> = (0..n_features).collect();
    let mut pairs = Vec::with_capacity(n_pairs + n_features / 2);
    while pairs.len() < n_pairs {
        order.shuffle(&mut stream);
        pairs.extend_from_slice(order.as_chunks::<2>().0);
    }
    pairs.truncate(n_pairs);
    pairs
}

/// What becomes of a pair.
struct Turned {
    rotation: Rotation,
    /// New weights of both features, by row, of those here.
    weights: Vec<[Option<f64>; 2]>,
}

fn apply<R: Real>(
    state: &mut State<R>,
    projections: &mut Projections<R>,
    [j, l]: [usize; 2],
    turned: Turned,
    sharing: &Sharing,
) {
    state.loadings.set_pair(sharing, [j, l], turned.weights.into_iter());
    projections.loadings_changed();
    let rotation = turned.rotation;
    state.features.combine(j, l, rotation.combination());
    projections.combine(j, l, rotation.combination());
    if rotation.sin.abs() > rotation.cos.abs() {
        // Each has become more like the other: names go with what is seen.
        state.feature_ids.swap(j, l);
    }
}

/// One pair on its way.
struct Turning<'a, R> {
    state: &'a State<R>,
    projections: &'a Projections<R>,
    features: [usize; 2],
    pair: Pair,
    gram: [f64; 3],
    streams: &'a Streams,
    /// Numbers the streams of the pair.
    part: u32,
    stream: Stream,
    /// Of Student weights.
    tails: Option<f64>,
}

impl<'a, R: Real> Turning<'a, R> {
    fn new(
        state: &'a State<R>,
        tails: Option<f64>,
        projections: &'a Projections<R>,
        features: [usize; 2],
        streams: &'a Streams,
        part: u32,
    ) -> Self {
        let mut stream = streams.stream(Purpose::PairRotation, part, 0);
        let (n_rows, counts) = (state.loadings.n_rows(), state.loadings.counts());
        let ln_prior_odds = features.map(|feature| {
            let odds = ibp::draw_ln_odds(counts[feature], n_rows, state.ibp_repulsion, &mut stream);
            odds.clamp(-MOST_LN_ODDS, MOST_LN_ODDS)
        });
        let weights =
            features.map(|k| NormalPrior { mean: state.weight_means[k], precision: state.weight_precisions[k] });
        let pair = Pair { noise_variance: state.noise_variance, weights, ln_prior_odds };
        let gram = of_pair(projections.gram(), state.n_features(), features);
        Turning { state, projections, features, pair, gram, streams, part, stream, tails }
    }

    /// Draws a rotation and what follows; `None` where all stays as it is, or where numbers do not reach so far.
    fn run(mut self, sharing: &Sharing) -> Option<Turned> {
        let rotations = draw_candidates(&mut self.stream);
        let (layout, line) = (sharing.layout(), sharing.same_rows());
        let own = chunks_of(layout.own_rows());
        let views = self.views(&own);
        let chunks = gathered(self.chunk_uses(&views, &rotations), layout, line);
        let bands = bands_of_all(&chunks, sharing);
        let of_rotation = |at: usize| bands.iter().skip(at).step_by(CANDIDATES);
        let ln_evidences: Vec<f64> = (0..CANDIDATES).map(|at| ln_evidence(of_rotation(at))).collect();
        let chosen =
            if ln_evidences[0] > f64::NEG_INFINITY { draw_candidate(&ln_evidences, &mut self.stream) } else { 0 };
        if chosen == 0 {
            return None;
        }
        let bands: Vec<Uses> = of_rotation(chosen).map(|band| band.uses).collect();
        let chunks: Vec<Uses> = chunks.iter().skip(chosen).step_by(CANDIDATES).map(|chunk| chunk.uses).collect();
        let uses = self.draw_uses(&bands, &chunks, layout);
        let first = chunks_of(layout.rows_here()).start;
        let weights = self.draw_rows(&views, own.start, rotations[chosen], &uses[own.start - first..own.end - first]);
        Some(Turned { rotation: rotations[chosen], weights: handed_round(weights, layout, line) })
    }

    /// What each chunk here uses: where there are several bands, what each of them does comes first.
    fn draw_uses(&mut self, bands: &[Uses], chunks: &[Uses], layout: Layout) -> Vec<Use> {
        if layout.n_bands() == 1 {
            return uses::draw(chunks, BOTH, &mut self.stream);
        }
        let together = uses::draw(bands, BOTH, &mut self.stream);
        let of_band = |((band, _), chunks): ((usize, Range<usize>), &[Uses])| {
            let mut stream = self.streams.stream(Purpose::PairRotation, self.part, BAND_STREAMS + band as u64);
            uses::draw(chunks, together[band], &mut stream)
        };
        layout.bands_here().zip(chunks.chunks(layout.band() / ROW_CHUNK)).flat_map(of_band).collect()
    }

    /// Some chunks of rows as the pair sees them.
    fn views(&self, chunks: &Range<usize>) -> Vec<ChunkView> {
        let n_rows = self.state.loadings.n_rows();
        let mut views: Vec<Option<ChunkView>> = vec![None; chunks.len()];
        share(
            views.iter_mut().zip(chunks.clone()),
            || (),
            |(), (view, chunk)| {
                let rows = rows_of(&(chunk..chunk + 1), n_rows);
                let index = local_precisions::STREAMS + chunk as u64;
                let mut local = self.streams.stream(Purpose::PairRotation, self.part, index);
                *view = Some(ChunkView::new(rows.map(|row| self.view(row, &mut local))));
            },
        );
        views.into_iter().flatten().collect()
    }

    fn view(&self, row: usize, stream: &mut Stream) -> RowView {
        let (k, [j, l], gram) = (self.state.n_features(), self.features, self.projections.gram_of(row));
        let (with_j, with_l) = (&gram[j * k..(j + 1) * k], &gram[l * k..(l + 1) * k]);
        let with_data = self.projections.row(row);
        let mut inner = [with_data[j], with_data[l]];
        let mut weights = [None; 2];
        for entry in self.state.loadings.row(row) {
            match self.features.iter().position(|feature| *feature == entry.feature) {
                Some(at) => weights[at] = Some(entry.weight),
                None => {
                    inner[0] -= entry.weight * with_j[entry.feature];
                    inner[1] -= entry.weight * with_l[entry.feature];
                }
            }
        }
        let own_gram = self.projections.own_gram(row);
        let has_own = own_gram.is_some() || self.tails.is_some();
        let own = has_own.then(|| Own {
            gram: own_gram.map_or(self.gram, |gram| of_pair(gram, k, self.features)),
            local: [0, 1].map(|at| local_precisions::draw(self.tails, self.pair.weights[at], weights[at], stream)),
        });
        RowView { inner, own }
    }

    /// What each chunk uses under each rotation, rotations of a chunk side by side.
    fn chunk_uses(&self, views: &[ChunkView], rotations: &[Rotation]) -> Vec<ChunkUses> {
        let planes: Vec<Plane> = rotations.iter().map(|&rotation| self.pair.plane(rotation, self.gram)).collect();
        let mut chunks = vec![ChunkUses::default(); views.len() * rotations.len()];
        let work = chunks.chunks_exact_mut(rotations.len()).zip(views);
        share(work, pulp::Arch::new, |arch, (places, rows)| {
            arch.dispatch(UsesOfChunk { pair: &self.pair, rows, planes: &planes, places });
        });
        chunks
    }

    /// Draws what every row of some chunks uses and its weights, given what each of them uses.
    fn draw_rows(&self, views: &[ChunkView], first: usize, rotation: Rotation, uses: &[Use]) -> Vec<[Option<f64>; 2]> {
        let plane = self.pair.plane(rotation, self.gram);
        let mut weights = vec![Vec::new(); views.len()];
        share(
            weights.iter_mut().zip(views).enumerate(),
            || (),
            |(), (at, (weights, rows))| {
                let chunk = first + at;
                let mut stream = self.streams.stream(Purpose::PairRotation, self.part, 1 + chunk as u64);
                *weights = self.pair.draw_chunk(&plane, rows, uses[at], &mut stream);
            },
        );
        weights.concat()
    }
}

/// Streams of bands stand behind those of chunks.
const BAND_STREAMS: u64 = 1 << 33;

/// The chunks of some rows, which start with one.
fn chunks_of(rows: Range<usize>) -> Range<usize> {
    rows.start.div_ceil(ROW_CHUNK)..rows.end.div_ceil(ROW_CHUNK)
}

/// The rows of some chunks.
fn rows_of(chunks: &Range<usize>, n_rows: usize) -> Range<usize> {
    (chunks.start * ROW_CHUNK).min(n_rows)..(chunks.end * ROW_CHUNK).min(n_rows)
}

/// Products of two features with each other: first, mixed, second.
fn of_pair(gram: &[f64], k: usize, [j, l]: [usize; 2]) -> [f64; 3] {
    [gram[j * k + j], gram[j * k + l], gram[l * k + l]]
}

/// No rotation, and others about a common one: any of them might have been the first, so that drawing one by its evidence
/// leaves the posterior alone.
fn draw_candidates(stream: &mut Stream) -> Vec<Rotation> {
    let centre = Rotation::draw(SCALE, stream);
    let mut rotations = vec![Rotation::IDENTITY];
    rotations.extend((1..CANDIDATES).map(|_| centre.then(Rotation::draw(SCALE, stream))));
    rotations
}

/// The log evidence of all rows, with both features used at least once.
pub fn ln_evidence<'a>(chunks: impl DoubleEndedIterator<Item = &'a ChunkUses> + Clone) -> f64 {
    let both = uses::all_joined(chunks.clone().map(|chunk| chunk.uses))[BOTH];
    let ln_total: f64 = chunks.map(|chunk| chunk.ln_total).sum();
    if both > LEAST { ln_total + both.ln() } else { f64::NEG_INFINITY }
}

/// One of the candidates in proportion to its evidence.
fn draw_candidate(ln_evidences: &[f64], stream: &mut Stream) -> usize {
    let most = ln_evidences.iter().fold(f64::NEG_INFINITY, |most, x| most.max(*x));
    let weights: Vec<f64> = ln_evidences.iter().map(|x| (x - most).exp()).collect();
    let mut left = stream.random::<f64>() * weights.iter().sum::<f64>();
    weights
        .iter()
        .position(|weight| {
            left -= weight;
            left < 0.0
        })
        .unwrap_or(0)
}

/// What the rows of each band use under each rotation, rotations of a band side by side, from the chunks of those that are here.
fn bands_of_all(chunks: &[ChunkUses], sharing: &Sharing) -> Vec<ChunkUses> {
    let of_band = |chunks: &[ChunkUses]| -> Vec<ChunkUses> {
        let of_rotation = |at: usize| {
            let chunks = chunks.iter().skip(at).step_by(CANDIDATES);
            let uses = uses::all_joined(chunks.clone().map(|chunk| chunk.uses));
            ChunkUses { uses, ln_total: chunks.map(|chunk| chunk.ln_total).sum() }
        };
        (0..CANDIDATES).map(of_rotation).collect()
    };
    let bands = chunks.chunks(CANDIDATES * sharing.layout().band() / ROW_CHUNK).flat_map(of_band);
    if sharing.layout().cuts_rows() {
        from_numbers(&sharing.from_bands(NUMBERS * CANDIDATES, to_numbers(&bands.collect::<Vec<_>>())))
    } else {
        bands.collect()
    }
}

/// Numbers that a message has of each.
const NUMBERS: usize = 5;

fn to_numbers(chunks: &[ChunkUses]) -> Vec<f64> {
    chunks.iter().flat_map(|chunk| [&chunk.uses[..], &[chunk.ln_total]].concat()).collect()
}

fn from_numbers(numbers: &[f64]) -> Vec<ChunkUses> {
    let chunk = |&[a, b, c, d, ln_total]: &[f64; NUMBERS]| ChunkUses { uses: [a, b, c, d], ln_total };
    numbers.as_chunks::<NUMBERS>().0.iter().map(chunk).collect()
}

/// The chunks of the ranks of a line, in order.
fn gathered(own: Vec<ChunkUses>, layout: Layout, comm: &dyn Comm) -> Vec<ChunkUses> {
    if comm.size() == 1 {
        return own;
    }
    let lengths = layout.own_rows_of_line().into_iter().map(|rows| NUMBERS * CANDIDATES * chunks_of(rows).len());
    from_numbers(&all_gather_known_values(comm, &to_numbers(&own), lengths))
}

/// Every rank tells those that hold the same rows what became of its own: a byte a row for what it uses, then the weights.
fn handed_round(own: Vec<[Option<f64>; 2]>, layout: Layout, comm: &dyn Comm) -> Vec<[Option<f64>; 2]> {
    if comm.size() == 1 {
        return own;
    }
    let code = |[x, y]: &[Option<f64>; 2]| u8::from(x.is_some()) + 2 * u8::from(y.is_some());
    let weights: Vec<f64> = own.iter().flatten().copied().flatten().collect();
    let bytes = [own.iter().map(code).collect(), f64::write(&weights)].concat();
    let mut all = Vec::with_capacity(layout.rows_here().len());
    for (theirs, bytes) in layout.own_rows_of_line().iter().zip(comm.all_gather(&bytes)) {
        let (uses, weights) = bytes.split_at(theirs.len());
        let mut weights = f64::read(weights).into_iter();
        let mut next = |is_used: bool| is_used.then(|| weights.next().expect("a weight for every use"));
        all.extend(uses.iter().map(|using| [next(using & 1 != 0), next(using & 2 != 0)]));
    }
    all
}
