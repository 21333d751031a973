//! Births and deaths: the features that only one row uses, all rows in parallel and exactly \[M5\].
//!
//! Given the shared features, the sets unique to each row are independent a priori, with a Poisson number of
//! features each. A set is proposed from the prior and accepted by the ratio of the marginal likelihoods of the
//! row's residual (spectra integrated out); on acceptance the spectra are drawn from their conditional.

pub mod offers;

use super::images::Images;
use super::{Info, Phase, Turn, metropolis};
use crate::model::{Entry, Loadings, Model, State, ibp, simulate};
use crate::numeric::bytes::Element;
use crate::numeric::lanes::{Tileful, filled_up, sum_of, sum_of_ln};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream};
use crate::spectral::{FeatureSpectra, Projections, Sharing, SpectralData, TILE, sum_over_tiles};
use pulp::{Simd, WithSimd};
use std::collections::BTreeSet;
use std::ops::Range;

/// During burn-in at least this many births are proposed in a round, up to this rate a row: a chain that starts with few
/// features would otherwise propose few, and make do with mixtures of true ones before those are born.
const BURN_IN_PROPOSALS: f64 = 10.0;
const BURN_IN_RATE: f64 = 0.05;

/// A row whose unique features may change in this round.
#[derive(Clone, Debug)]
struct Candidate {
    row: usize,
    /// Where the row stands among the spectra it is judged by.
    place: usize,
    /// Places of the features unique to the row now, and the sum of their squared weights.
    old: Vec<usize>,
    old_energy: f64,
    new: Vec<Newborn>,
    new_energy: f64,
}

/// What candidates are judged by.
#[derive(Clone, Copy)]
enum Rows<'a, R> {
    /// Spectra of the rows themselves.
    Data(&'a SpectralData<R>),
    /// Spectra of their residuals given all features.
    Residuals(&'a SpectralData<R>),
}

impl<R> Rows<'_, R> {
    /// The rows of the data that candidates are judged by.
    fn of(self, candidates: &[Candidate]) -> Vec<usize> {
        match self {
            Rows::Data(_) => candidates.iter().map(|candidate| candidate.row).collect(),
            Rows::Residuals(_) => Vec::new(),
        }
    }
}

/// A proposed feature, its spectrum still integrated out.
#[derive(Clone, Copy, Debug)]
struct Newborn {
    weight: f64,
    weight_mean: f64,
    weight_precision: f64,
}

/// Proposes a new set of unique features to every row, as many rounds as the model says; after them, and after the first two
/// thirds of burn-in, some rows are offered features one by one.
pub fn update<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn) -> Info {
    let precisions = model.spectrum.precisions(&state.theta());
    let variances: Vec<f64> = precisions.iter().map(|h| 1.0 / h).collect();
    let mut info = Info::default();
    let mut images = Images::of(model, state, projections);
    let mut has_unique = rows_with(state, 1);
    model.data.keep(|| rows_to_come(model, state, turn, 1));
    let with_offers = u32::from(turn.phase != Phase::BurnIn);
    for number in 0..model.birth_rounds + with_offers {
        let round = Round { turn, number };
        let (mut candidates, shown) = if number < model.birth_rounds {
            (propose(model, state, &has_unique, round), Vec::new())
        } else {
            offers::make(model, state, round)
        };
        let n_proposed = candidates.len();
        // Where rows have cells that were not observed, these are drawn first, anew in each round.
        let completed = images.as_ref().map(|images| complete(model, state, images, &mut candidates, round));
        let rows = completed.as_ref().map_or(Rows::Data(&model.data), Rows::Residuals);
        if number < model.birth_rounds {
            choose(model, rows, state, &mut candidates, &variances, round);
        } else {
            offers::choose(model, rows, state, &mut candidates, &shown, &variances, round);
        }
        let (n_proposed, mut candidates) = of_all_lines(n_proposed, candidates, model.data.sharing());
        info.proposed += n_proposed as u32;
        keep_within(model.max_features, state.n_features(), &mut candidates);
        info.accepted += candidates.len() as u32;
        if candidates.is_empty() {
            continue;
        }
        projections.features_changed();
        let (births, deaths) = apply(model, rows, state, &candidates, &precisions, round);
        info.births += births;
        info.deaths += deaths;
        images.iter_mut().for_each(|images| images.add_newborns(state));
        has_unique = rows_with(state, 1);
    }
    info
}

/// How many were proposed and who is accepted of all rows, in their order, from those of the rows that each line holds.
fn of_all_lines(n_proposed: usize, accepted: Vec<Candidate>, sharing: &Sharing) -> (usize, Vec<Candidate>) {
    if !sharing.layout().cuts_rows() {
        return (n_proposed, accepted);
    }
    let own: Vec<f64> =
        [n_proposed as f64].into_iter().chain(accepted.iter().flat_map(Candidate::to_numbers)).collect();
    let (mut n_proposed, mut accepted) = (0, Vec::new());
    for line in sharing.bytes_from_lines(f64::write(&own)) {
        let numbers = f64::read(&line);
        let (n_of_line, mut left) = numbers.split_first().expect("a line says how many it has proposed");
        n_proposed += *n_of_line as usize;
        while let Some((candidate, rest)) = Candidate::from_numbers(left) {
            accepted.push(candidate);
            left = rest;
        }
    }
    (n_proposed, accepted)
}

/// Leaves the candidates that are accepted.
fn choose<R: Real>(
    model: &Model<R>,
    rows: Rows<R>,
    state: &State<R>,
    candidates: &mut Vec<Candidate>,
    variances: &[f64],
    round: Round,
) {
    let ratios = ln_ratios(model, rows, state, candidates, variances);
    let mut ratios = ratios.iter();
    candidates.retain(|candidate| {
        let ln_ratio = *ratios.next().expect("one ratio a candidate");
        let mut stream = round.stream(Purpose::UniqueProposals, 2 * candidate.row as u64 + 1);
        metropolis::accept(ln_ratio, &mut stream)
    });
}

/// Leaves the candidates, in order, with which there are not more features than there may be, unless they make them fewer.
fn keep_within(max_features: usize, mut n_features: usize, candidates: &mut Vec<Candidate>) {
    candidates.retain(|candidate| {
        let after = n_features - candidate.old.len() + candidate.new.len();
        let keep = after <= max_features || after <= n_features;
        if keep {
            n_features = after;
        }
        keep
    });
}

/// One round of proposals, with streams of its own.
#[derive(Clone, Copy)]
struct Round<'a> {
    turn: &'a Turn,
    number: u32,
}

impl Round<'_> {
    fn stream(self, purpose: Purpose, index: u64) -> Stream {
        self.turn.streams.stream(purpose, self.number, index)
    }
}

/// Proposals from the prior for every row here; rows that have nothing unique and get nothing cost one uniform number.
fn propose<R: Real>(model: &Model<R>, state: &State<R>, has_unique: &[bool], round: Round) -> Vec<Candidate> {
    let n_rows = state.loadings.n_rows();
    let mut rate = ibp::unique_rate(n_rows, state.ibp_strength, state.ibp_repulsion);
    if round.turn.phase == Phase::BurnIn {
        rate = rate.max((BURN_IN_PROPOSALS / n_rows as f64).min(BURN_IN_RATE));
    }
    let (counts, first, mut candidates) = (ibp::Counts::new(rate), model.data.rows_here().start, Vec::new());
    for (band, rows) in model.data.layout().bands_here() {
        let mut stream = round.stream(Purpose::UniqueCounts, band as u64);
        for row in rows {
            let n_new = counts.draw(&mut stream);
            if n_new == 0 && !has_unique[row - first] {
                continue;
            }
            let mut stream = round.stream(Purpose::UniqueProposals, 2 * row as u64);
            let new = (0..n_new).map(|_| newborn(model, &mut stream)).collect();
            candidates.push(Candidate::new(state, row, new));
        }
    }
    candidates
}

/// Which of the rows here use a feature that no more than so many rows use.
fn rows_with<R>(state: &State<R>, most: usize) -> Vec<bool> {
    let is_rare = |entry: &Entry| state.loadings.counts()[entry.feature] <= most;
    state.loadings.here().map(|row| state.loadings.row(row).iter().any(is_rare)).collect()
}

/// The rows that are looked at in a sweep, those of births before those of offers, each once: what is proposed in any round follows
/// from random streams and from who uses features that `most` rows use, or fewer; births in one round add none in another.
/// Of the state before other kernels it is a guess.
pub fn rows_to_come<R: Real>(model: &Model<R>, state: &State<R>, turn: &Turn, most: usize) -> Vec<usize> {
    let has_unique = rows_with(state, most);
    let births = (0..model.birth_rounds).flat_map(|number| propose(model, state, &has_unique, Round { turn, number }));
    let mut candidates: Vec<Candidate> = births.collect();
    if turn.phase != Phase::BurnIn {
        candidates.extend(offers::make(model, state, Round { turn, number: model.birth_rounds }).0);
    }
    let mut known = BTreeSet::new();
    candidates.into_iter().map(|candidate| candidate.row).filter(|row| known.insert(*row)).collect()
}

/// What no other row uses.
fn unique_of<R>(state: &State<R>, row: usize) -> impl Iterator<Item = &Entry> {
    state.loadings.row(row).iter().filter(|entry| state.loadings.counts()[entry.feature] == 1)
}

impl Candidate {
    fn new<R>(state: &State<R>, row: usize, new: Vec<Newborn>) -> Candidate {
        Candidate {
            row,
            place: row,
            old: unique_of(state, row).map(|entry| entry.feature).collect(),
            old_energy: unique_of(state, row).map(|entry| entry.weight.powi(2)).sum(),
            new_energy: new.iter().map(|born| born.weight.powi(2)).sum(),
            new,
        }
    }

    /// Row, numbers of old and of new features, old energy, the old ones, and three numbers of each new one.
    fn to_numbers(&self) -> Vec<f64> {
        let mut numbers = vec![self.row as f64, self.old.len() as f64, self.new.len() as f64, self.old_energy];
        numbers.extend(self.old.iter().map(|feature| *feature as f64));
        numbers.extend(self.new.iter().flat_map(|born| [born.weight, born.weight_mean, born.weight_precision]));
        numbers
    }

    /// The first candidate of several, and what comes after it.
    fn from_numbers(numbers: &[f64]) -> Option<(Candidate, &[f64])> {
        let (&[row, n_old, n_new, old_energy], rest) = numbers.split_first_chunk()?;
        let (old, rest) = rest.split_at(n_old as usize);
        let (new, rest) = rest.split_at(3 * n_new as usize);
        let born =
            |&[weight, weight_mean, weight_precision]: &[f64; 3]| Newborn { weight, weight_mean, weight_precision };
        let new: Vec<Newborn> = new.as_chunks::<3>().0.iter().map(born).collect();
        let candidate = Candidate {
            row: row as usize,
            place: row as usize,
            old: old.iter().map(|feature| *feature as usize).collect(),
            old_energy,
            new_energy: new.iter().map(|born| born.weight.powi(2)).sum(),
            new,
        };
        Some((candidate, rest))
    }
}

/// The residuals of all candidates' rows with what was not observed drawn given the state.
fn complete<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    images: &Images<R>,
    candidates: &mut [Candidate],
    round: Round,
) -> SpectralData<R> {
    candidates.iter_mut().enumerate().for_each(|(place, candidate)| candidate.place = place);
    let rows: Vec<usize> = candidates.iter().map(|candidate| candidate.row).collect();
    images.complete(model, state, &rows, |row| round.stream(Purpose::MissingRows, row as u64))
}

fn newborn<R>(model: &Model<R>, stream: &mut impl rand::Rng) -> Newborn {
    let prior = model.priors.weight_precision;
    let weight_mean = simulate::weight_mean(&model.priors.weight_mean, stream);
    let weight_precision = simulate::gamma(prior.shape, prior.rate, stream);
    let local = simulate::local_precision(model.priors.weight_tails, stream);
    let weight = weight_mean + simulate::normal(stream) / (weight_precision * local).sqrt();
    Newborn { weight, weight_mean, weight_precision }
}

/// The log ratio of marginal likelihoods, proposed over current, for each candidate.
fn ln_ratios<R: Real>(
    model: &Model<R>,
    rows: Rows<R>,
    state: &State<R>,
    candidates: &[Candidate],
    variances: &[f64],
) -> Vec<f64> {
    let arch = pulp::Arch::new();
    let (tiles, line) = (state.features.tiles().each_once(), model.data.sharing().same_rows());
    let looked_at = rows.of(candidates);
    sum_over_tiles(tiles, candidates.len(), line, |tile, modes, slots| {
        model.data.look_ahead(tile, &looked_at);
        arch.dispatch(RatiosAt { rows, state, candidates, tile, variances: &variances[modes], slots });
    })
}

/// The ratios' shares of one tile.
struct RatiosAt<'a, R> {
    rows: Rows<'a, R>,
    state: &'a State<R>,
    candidates: &'a [Candidate],
    tile: usize,
    variances: &'a [f64],
    slots: &'a mut [f64],
}

impl<R: Real> WithSimd for RatiosAt<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let RatiosAt { rows, state, tile, .. } = self;
        let (mut residual, noise) = (Vec::with_capacity(TILE), state.noise_variance);
        // Modes that are not there have no variance and no residual, and add nothing.
        let variances = &filled_up(self.variances, 0.0);
        for (candidate, slot) in self.candidates.iter().zip(self.slots) {
            shared_residual(rows, &state.loadings, candidate, tile, state.features.tile(tile), &mut residual);
            let residual = &filled_up(&residual, 0.0);
            *slot = ln_evidence(residual, candidate.new_energy, variances, noise)
                - ln_evidence(residual, candidate.old_energy, variances, noise);
        }
    }
}

/// `ln N(r; 0, s2 + c/h) - ln N(r; 0, s2)`: what unique features with squared weights adding up to `energy` gain.
///
/// With `x_v = 1 + c/(h_v s2)` it is `0.5 sum_v [ (r_v^2/s2) (1 - 1/x_v) - ln x_v ]`, at the modes of one tile.
#[inline(always)]
pub fn ln_evidence(residual: &Tileful, energy: f64, variances: &Tileful, noise_variance: f64) -> f64 {
    if energy == 0.0 {
        return 0.0;
    }
    let (ratio, per_noise) = (energy / noise_variance, 1.0 / noise_variance);
    let mut x = [1.0; TILE];
    for v in 0..TILE {
        x[v] += ratio * variances[v];
    }
    let gain = sum_of(|v| residual[v] * residual[v] * (ratio * variances[v] / x[v]));
    0.5 * (gain * per_noise - sum_of_ln(&x))
}

/// Replaces the unique features of accepted candidates, in row order. Returns how many were born and how many died.
fn apply<R: Real>(
    model: &Model<R>,
    rows: Rows<R>,
    state: &mut State<R>,
    accepted: &[Candidate],
    precisions: &[f64],
    round: Round,
) -> (u32, u32) {
    // Spectra first, into places at the end, while the shared features still stand where they stood.
    let n_before = state.n_features();
    let n_born = accepted.iter().map(|candidate| candidate.new.len()).sum();
    let (tiles, here) = (state.features.tiles(), model.data.rows_here());
    let mut spectra = std::mem::replace(&mut state.features, FeatureSpectra::empty(0));
    spectra.grow(n_born);
    let work = |residual: &mut Vec<f64>, (tile, values): (usize, &mut [R])| {
        let modes = tiles.modes(tile);
        let (old, born) = values.split_at_mut(n_before * modes.len());
        let mut first = 0;
        for candidate in accepted.iter().filter(|candidate| !candidate.new.is_empty()) {
            let n_new = candidate.new.len();
            if !here.contains(&candidate.row) {
                first += n_new;
                continue;
            }
            shared_residual(rows, &state.loadings, candidate, tile, old, residual);
            let place = &mut born[first * modes.len()..(first + n_new) * modes.len()];
            let index = (candidate.row * tiles.len() + tile) as u64;
            let mut stream = round.stream(Purpose::UniqueSpectra, index);
            draw_spectra(candidate, residual, &precisions[modes.clone()], state.noise_variance, place, &mut stream);
            first += n_new;
        }
    };
    share(spectra.tiles_mut(), Vec::new, work);
    if model.data.layout().cuts_rows() {
        take_newborns(model, accepted, n_before, &mut spectra);
    }
    state.features = spectra;
    let mut dead = Vec::new();
    for candidate in accepted {
        dead.extend_from_slice(&candidate.old);
        for born in &candidate.new {
            state.loadings.push_unique(candidate.row, born.weight);
            let id = state.new_id();
            state.feature_ids.push(id);
            state.weight_means.push(born.weight_mean);
            state.weight_precisions.push(born.weight_precision);
        }
    }
    dead.sort_unstable();
    state.remove_features(&dead);
    (n_born as u32, dead.len() as u32)
}

/// Fills in the spectra that were drawn where other rows are: of the tiles here, by the ranks of the column.
fn take_newborns<R: Real>(model: &Model<R>, accepted: &[Candidate], n_before: usize, spectra: &mut FeatureSpectra<R>) {
    let (layout, column) = (model.data.layout(), model.data.sharing().same_tiles());
    let [_, n_columns] = layout.shape();
    // The places of those that were born in rows of a line, and who holds them.
    let places = |rows: Range<usize>| {
        let born = accepted.iter().flat_map(|candidate| candidate.new.iter().map(|_| candidate.row));
        (n_before..).zip(born).filter(move |(_, row)| rows.contains(row)).map(|(place, _)| place)
    };
    let mut own = Vec::new();
    for tile in layout.tiles().owned() {
        let (values, width) = (spectra.tile(tile), layout.tiles().width(tile));
        places(layout.rows_here()).for_each(|place| R::append(&values[place * width..(place + 1) * width], &mut own));
    }
    for (line, bytes) in column.all_gather(&own).iter().enumerate() {
        let drawn = R::read(bytes);
        let mut drawn = &drawn[..];
        for (tile, values) in spectra.tiles_mut() {
            let width = layout.tiles().width(tile);
            for place in places(layout.of(line * n_columns).rows_here()) {
                let (now, later) = drawn.split_at(width);
                values[place * width..(place + 1) * width].copy_from_slice(now);
                drawn = later;
            }
        }
    }
}

/// The row's residual at the modes of one tile, without its unique features; `features` are those of the tile.
#[inline(always)]
fn shared_residual<R: Real>(
    rows: Rows<R>,
    loadings: &Loadings,
    candidate: &Candidate,
    tile: usize,
    features: &[R],
    residual: &mut Vec<f64>,
) {
    let (Rows::Data(spectra) | Rows::Residuals(spectra)) = rows;
    let values = spectra.tile_row(tile, candidate.place);
    let width = values.len();
    residual.clear();
    residual.extend(values.iter().map(|y| y.to_f64()));
    // Shared features are taken out of data, unique ones put back into residuals.
    let (is_data, sign) = if matches!(rows, Rows::Data(_)) { (true, -1.0) } else { (false, 1.0) };
    let is_shared = |entry: &&Entry| loadings.counts()[entry.feature] > 1;
    for entry in loadings.row(candidate.row).iter().filter(|entry| is_shared(entry) == is_data) {
        let feature = &features[entry.feature * width..(entry.feature + 1) * width];
        residual.iter_mut().zip(feature).for_each(|(r, s)| *r += sign * entry.weight * s.to_f64());
    }
}

/// Spectra of a row's new features given its residual: mean `a r/s2 / (h + c/s2)`, covariance
/// `(1/h)(I - a a'/(s2 h + c))`, whose square root is `(I - g a a')/sqrt(h)` with `g = (1 - sqrt(s2 h/(s2 h + c)))/c`.
fn draw_spectra<R: Real>(
    candidate: &Candidate,
    residual: &[f64],
    precisions: &[f64],
    noise_variance: f64,
    place: &mut [R],
    stream: &mut impl rand::Rng,
) {
    let width = residual.len();
    let energy = candidate.new_energy;
    let mut normals = vec![0.0; candidate.new.len()];
    for mode in 0..width {
        let h = precisions[mode];
        normals.iter_mut().for_each(|z| *z = simulate::normal(stream));
        let along: f64 = normals.iter().zip(&candidate.new).map(|(z, born)| z * born.weight).sum();
        let mean = residual[mode] / noise_variance / (h + energy / noise_variance);
        let noise_part = noise_variance * h;
        // (1 - sqrt(u))/c with u = s2 h/(s2 h + c), written without cancellation.
        let shrink = 1.0 / ((noise_part + energy) * (1.0 + (noise_part / (noise_part + energy)).sqrt()));
        for (k, (z, born)) in normals.iter().zip(&candidate.new).enumerate() {
            let value = born.weight * mean + (z - shrink * born.weight * along) / h.sqrt();
            place[k * width + mode] = R::from_f64(value);
        }
    }
}
