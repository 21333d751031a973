//! Activations and weights of features that other rows use too, all rows in parallel and exactly \[M4\].
//!
//! The rows are split at random into two halves. While one half is updated, a feature may be switched in it only if
//! some row of the other half uses it, so that no feature can die here; given its probability `pi_k` the rows are
//! independent. Features are visited in a random order: the storage order knows their age, and a scan that depends
//! on the state would bias the posterior.

use super::{Info, Phase, Turn, local_precisions, refresh};
use crate::model::{Entry, Model, NormalPrior, State, ibp};
use crate::numeric::bytes::Element;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream, Streams};
use crate::spectral::{Layout, Projections, Sharing};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, StandardNormal};

/// Rows that share a random stream and a piece of work.
const ROW_CHUNK: usize = 32;

/// Row sweeps during burn-in, at least: they are cheap beside the pass, and features sort themselves out sooner.
const BURN_IN_ROW_SWEEPS: u32 = 3;

/// What does not depend on the row in the update of one feature \[M4\].
#[derive(Clone, Copy, Debug)]
pub struct FeatureTerms {
    /// `g = S_k . S_k`.
    pub squared_norm: f64,
    /// sigma^2.
    pub noise_variance: f64,
    /// The prior of an active weight: tau_k, and nu_k or, of a Student weight, nu_k times its local precision.
    pub weight: NormalPrior,
    /// Degrees of freedom of Student weights.
    pub tails: Option<f64>,
    /// `ln(pi_k / (1 - pi_k))`; `None` where the activation may not change.
    pub ln_prior_odds: Option<f64>,
}

impl FeatureTerms {
    /// The weight given that the feature is active; `inner` is its product with the row's partial residual.
    pub fn active_weight(&self, inner: f64) -> NormalPrior {
        let precision = self.weight.precision + self.squared_norm / self.noise_variance;
        let mean = (inner / self.noise_variance + self.weight.precision * self.weight.mean) / precision;
        NormalPrior { mean, precision }
    }

    /// The log odds of being active, the weight integrated out.
    pub fn ln_odds(&self, inner: f64, ln_prior_odds: f64) -> f64 {
        let given = self.active_weight(inner);
        let prior = self.weight;
        0.5 * (prior.precision / given.precision).ln() + 0.5 * given.precision * given.mean.powi(2)
            - 0.5 * prior.precision * prior.mean.powi(2)
            + ln_prior_odds
    }
}

/// [`FeatureTerms`] with what `ln_odds` computes in vain for every row taken out.
struct ReadyTerms {
    squared_norm: f64,
    /// The mean of an active weight is `slope * inner + offset`.
    slope: f64,
    offset: f64,
    half_precision: f64,
    sd: f64,
    /// Log odds are `constant + half_precision * mean^2`; `None` where only the weight may change.
    constant: Option<f64>,
}

impl ReadyTerms {
    fn new(terms: &FeatureTerms) -> ReadyTerms {
        let (at_zero, at_one) = (terms.active_weight(0.0), terms.active_weight(1.0));
        let half_precision = 0.5 * at_zero.precision;
        let constant = |odds| terms.ln_odds(0.0, odds) - half_precision * at_zero.mean.powi(2);
        ReadyTerms {
            squared_norm: terms.squared_norm,
            slope: at_one.mean - at_zero.mean,
            offset: at_zero.mean,
            half_precision,
            sd: at_zero.precision.sqrt().recip(),
            constant: terms.ln_prior_odds.map(constant),
        }
    }
}

/// All rows, as often as the model says; during burn-in at least `BURN_IN_ROW_SWEEPS` times.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    update_in_order(model, state, projections, turn, |order, stream| order.shuffle(stream))
}

/// The update with features visited in the order that `arrange` makes of their places: exact if it is a fresh random
/// one.
pub fn update_in_order<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections<R>,
    turn: &Turn,
    arrange: impl Fn(&mut [usize], &mut Stream),
) -> Info {
    if !projections.features_are_fresh() {
        refresh(model, state, projections);
    }
    let n_row_sweeps = match turn.phase {
        Phase::BurnIn | Phase::Settling => model.row_sweeps.max(BURN_IN_ROW_SWEEPS),
        Phase::Sampling => model.row_sweeps,
    };
    for row_sweep in 0..n_row_sweeps {
        let in_first = first_half(model.data.layout(), row_sweep, &turn.streams);
        for half in 0..2 {
            let changing: Vec<bool> = in_first.iter().map(|&first| first == (half == 0)).collect();
            let (part, tails) = (2 * row_sweep + half, model.priors.weight_tails);
            let half = Half { streams: &turn.streams, part, changing: &changing, tails };
            half.update(model.data.sharing(), state, projections, &arrange);
        }
    }
    projections.loadings_changed();
    Info::default()
}

/// Which of the rows here change first: half of every band.
fn first_half(layout: Layout, row_sweep: u32, streams: &Streams) -> Vec<bool> {
    let mut in_first = vec![false; layout.rows_here().len()];
    for (band, rows) in layout.bands_here() {
        let mut shuffled: Vec<usize> = (0..rows.len()).collect();
        // Index 1 is for features.
        let index = if band == 0 { 0 } else { 1 + band as u64 };
        shuffled.shuffle(&mut streams.stream(Purpose::RowSplit, row_sweep, index));
        let first = rows.start - layout.rows_here().start;
        shuffled[..rows.len() / 2].iter().for_each(|&row| in_first[first + row] = true);
    }
    in_first
}

/// The rows that change while the others stand still.
struct Half<'a> {
    streams: &'a Streams,
    /// Numbers the streams of this half within the sweep.
    part: u32,
    /// By row, of those here.
    changing: &'a [bool],
    /// Of Student weights.
    tails: Option<f64>,
}

impl Half<'_> {
    fn update<R: Real>(
        &self,
        sharing: &Sharing,
        state: &mut State<R>,
        projections: &Projections<R>,
        arrange: impl Fn(&mut [usize], &mut Stream),
    ) {
        let Half { streams, part, changing, tails } = *self;
        let mut stream = streams.stream(Purpose::RowSplit, part, 1);
        let terms = feature_terms(state, tails, projections, used_outside(state, changing, sharing), &mut stream);
        let features: Vec<ReadyTerms> = terms.iter().map(ReadyTerms::new).collect();
        let mut order: Vec<usize> = (0..features.len()).collect();
        arrange(&mut order, &mut stream);
        let (first, own) = (sharing.layout().rows_here().start, sharing.layout().own_rows());
        state.loadings.edit_rows(sharing, |rows| {
            let chunks = rows[own.start - first..own.end - first].chunks_mut(ROW_CHUNK).enumerate();
            let chunks = chunks.map(|(at, rows)| (own.start / ROW_CHUNK + at, rows));
            let work = |scratch: &mut RowScratch, (chunk, rows): (usize, &mut [Vec<Entry>])| {
                let mut stream = streams.stream(Purpose::SharedActivations, part, chunk as u64);
                let mut local =
                    streams.stream(Purpose::SharedActivations, part, local_precisions::STREAMS + chunk as u64);
                for (offset, entries) in rows.iter_mut().enumerate() {
                    let row = chunk * ROW_CHUNK + offset;
                    if !changing[row - first] {
                        continue;
                    }
                    let own = own_terms(&terms, projections.own_gram(row), entries, &mut local);
                    let given = RowGiven {
                        with_data: projections.row(row),
                        gram: projections.gram_of(row),
                        features: own.as_ref().unwrap_or(&features),
                        order: &order,
                    };
                    scratch.update_row(entries, &given, &mut stream);
                }
            };
            share(chunks, RowScratch::default, work);
            if sharing.same_rows().size() > 1 {
                hand_round(sharing, rows, changing);
            }
        });
    }
}

/// Every rank tells those that hold the same rows what became of its own.
fn hand_round(sharing: &Sharing, rows: &mut [Vec<Entry>], changing: &[bool]) {
    let (layout, comm) = (sharing.layout(), sharing.same_rows());
    let (first, own) = (layout.rows_here().start, layout.own_rows());
    let changed = || (own.start - first..own.end - first).filter(|&row| changing[row]).map(|row| &rows[row]);
    let counts: Vec<u32> = changed().map(|row| row.len() as u32).collect();
    let features: Vec<u32> = changed().flatten().map(|entry| entry.feature as u32).collect();
    let weights: Vec<f64> = changed().flatten().map(|entry| entry.weight).collect();
    let message = [u32::write(&counts), u32::write(&features), f64::write(&weights)].concat();
    let mut to_fill = (0..rows.len()).filter(|&row| changing[row]).collect::<Vec<_>>().into_iter();
    for (theirs, bytes) in layout.own_rows_of_line().iter().zip(comm.all_gather(&message)) {
        let end = theirs.end - first;
        let n_rows = to_fill.as_slice().partition_point(|&row| row < end);
        let (counts, entries) = bytes.split_at(4 * n_rows);
        let (features, weights) = entries.split_at(entries.len() / 3);
        let entries = u32::read(features).into_iter().zip(f64::read(weights));
        let mut entries = entries.map(|(feature, weight)| Entry { feature: feature as usize, weight });
        for (row, count) in to_fill.by_ref().take(n_rows).zip(u32::read(counts)) {
            rows[row].clear();
            rows[row].extend(entries.by_ref().take(count as usize));
        }
    }
}

/// The terms of a row that has a gram matrix or, with Student weights, local precisions of its own.
fn own_terms(
    terms: &[FeatureTerms],
    own_gram: Option<&[f64]>,
    entries: &[Entry],
    stream: &mut impl rand::Rng,
) -> Option<Vec<ReadyTerms>> {
    if own_gram.is_none() && terms.iter().all(|terms| terms.tails.is_none()) {
        return None;
    }
    let (mut entries, k) = (entries.iter().peekable(), terms.len());
    let own = |(feature, terms): (usize, &FeatureTerms)| {
        let weight = entries.next_if(|entry| entry.feature == feature).map(|entry| entry.weight);
        let mut own = *terms;
        own.weight.precision *= local_precisions::draw(terms.tails, terms.weight, weight, stream);
        if let Some(gram) = own_gram {
            own.squared_norm = gram[feature * (k + 1)].max(0.0);
        }
        ReadyTerms::new(&own)
    };
    Some(terms.iter().enumerate().map(own).collect())
}

/// Which features some row uses that stands still.
fn used_outside<R: Real>(state: &State<R>, changing: &[bool], sharing: &Sharing) -> Vec<bool> {
    let mut used = vec![0; state.n_features()];
    for (entries, _) in state.loadings.rows().iter().zip(changing).filter(|(_, changing)| !**changing) {
        entries.iter().for_each(|entry| used[entry.feature] = 1);
    }
    sharing.sum_over_lines(&mut used);
    used.into_iter().map(|n_lines| n_lines > 0).collect()
}

/// Draws each feature's probability and collects its terms; features that no row outside uses keep their activations.
fn feature_terms<R: Real>(
    state: &State<R>,
    tails: Option<f64>,
    projections: &Projections<R>,
    used_outside: Vec<bool>,
    stream: &mut impl rand::Rng,
) -> Vec<FeatureTerms> {
    let k = state.n_features();
    let (n_rows, counts) = (state.loadings.n_rows(), state.loadings.counts());
    let mut prepare = |feature: usize| {
        let ln_prior_odds =
            used_outside[feature].then(|| ibp::draw_ln_odds(counts[feature], n_rows, state.ibp_repulsion, stream));
        FeatureTerms {
            squared_norm: projections.gram()[feature * k + feature],
            noise_variance: state.noise_variance,
            weight: NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] },
            tails,
            ln_prior_odds,
        }
    };
    (0..k).map(&mut prepare).collect()
}

/// What the update of one row depends on.
#[derive(Clone, Copy)]
struct RowGiven<'a> {
    /// Inner products of the row with the features, and of the features with each other.
    with_data: &'a [f64],
    gram: &'a [f64],
    features: &'a [ReadyTerms],
    /// The order in which features are visited.
    order: &'a [usize],
}

/// One row, dense, while it is updated.
#[derive(Default)]
struct RowScratch {
    active: Vec<bool>,
    weights: Vec<f64>,
    /// `sum_j w_j S_j . S_k` for every k.
    explained: Vec<f64>,
}

/// What an update would make of one entry of a row.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The column.
    pub feature: usize,
    /// The weight that it has; 0 where the row does not use the feature.
    pub old: f64,
    /// The one that was drawn.
    pub new: f64,
}

impl RowScratch {
    fn update_row(&mut self, entries: &mut Vec<Entry>, given: &RowGiven, stream: &mut impl rand::Rng) {
        self.update_row_if(entries, given, stream, |_, _| true);
    }

    /// The update of [`RowScratch::update_row`] with each entry's draw a proposal, made only where `accept` says so.
    fn update_row_if<S: rand::Rng>(
        &mut self,
        entries: &mut Vec<Entry>,
        given: &RowGiven,
        stream: &mut S,
        mut accept: impl FnMut(Change, &mut S) -> bool,
    ) {
        let RowGiven { with_data, gram, features, order } = *given;
        self.load(entries, gram, features.len());
        for &feature in order {
            let terms = &features[feature];
            let was_active = self.active[feature];
            if terms.constant.is_none() && !was_active {
                continue;
            }
            let old = self.weights[feature];
            let inner = with_data[feature] - self.explained[feature] + old * terms.squared_norm;
            let mean = terms.slope * inner + terms.offset;
            let active = match terms.constant {
                None => true,
                Some(constant) => {
                    let ln_odds = constant + terms.half_precision * mean * mean;
                    stream.random::<f64>() * (1.0 + (-ln_odds).exp()) < 1.0
                }
            };
            let mut new = 0.0;
            if active {
                let normal: f64 = StandardNormal.sample(stream);
                new = mean + terms.sd * normal;
            }
            if (active || was_active) && accept(Change { feature, old, new }, stream) {
                self.active[feature] = active;
                self.set_weight(feature, new, gram);
            }
        }
        entries.clear();
        let active = (0..features.len()).filter(|&feature| self.active[feature]);
        entries.extend(active.map(|feature| Entry { feature, weight: self.weights[feature] }));
    }

    fn load(&mut self, entries: &[Entry], gram: &[f64], k: usize) {
        self.active.clear();
        self.active.resize(k, false);
        for buffer in [&mut self.weights, &mut self.explained] {
            buffer.clear();
            buffer.resize(k, 0.0);
        }
        for entry in entries {
            self.active[entry.feature] = true;
            self.set_weight(entry.feature, entry.weight, gram);
        }
    }

    fn set_weight(&mut self, feature: usize, weight: f64, gram: &[f64]) {
        let change = weight - self.weights[feature];
        if change != 0.0 {
            let k = self.explained.len();
            let row = &gram[feature * k..(feature + 1) * k];
            self.explained.iter_mut().zip(row).for_each(|(sum, g)| *sum += change * g);
            self.weights[feature] = weight;
        }
    }
}

/// A row that is not part of the fit (a new observation): the prior odds are given, nothing is unique.
pub struct NewRow<'a> {
    with_data: &'a [f64],
    gram: &'a [f64],
    terms: Vec<FeatureTerms>,
    features: Vec<ReadyTerms>,
    order: Vec<usize>,
    scratch: RowScratch,
    entries: Vec<Entry>,
}

impl<'a> NewRow<'a> {
    /// A row by its inner products with the features and theirs with each other, and what it uses at first.
    pub fn new(terms: &[FeatureTerms], with_data: &'a [f64], gram: &'a [f64], entries: &[Entry]) -> NewRow<'a> {
        let features: Vec<ReadyTerms> = terms.iter().map(ReadyTerms::new).collect();
        let (order, entries, terms) = ((0..features.len()).collect(), entries.to_vec(), terms.to_vec());
        NewRow { with_data, gram, terms, features, order, scratch: RowScratch::default(), entries }
    }

    /// What it uses now.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A Gibbs update of every entry, in random order.
    pub fn update(&mut self, stream: &mut impl rand::Rng) {
        self.update_if(stream, |_, _| true);
    }

    /// The same with each draw a proposal. One entry's draw from its conditional is reversible with respect to the law of
    /// [`NewRow::update`], so that accepting by the ratio of another law to this one leaves that other law unchanged. (Of
    /// Student weights given their local precisions, of which no ratio knows.)
    pub fn update_if<S: rand::Rng>(&mut self, stream: &mut S, accept: impl FnMut(Change, &mut S) -> bool) {
        self.order.shuffle(stream);
        let NewRow { with_data, gram, terms, features, order, scratch, entries } = self;
        if let Some(own) = own_terms(terms, None, entries, stream) {
            *features = own;
        }
        scratch.update_row_if(entries, &RowGiven { with_data, gram, features, order }, stream, accept);
    }
}
