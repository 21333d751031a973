//! One feature or none, offered to rows whether or not they have one: births where the prior proposes next to none \[M5\].
//!
//! A row for which a feature of its own is as likely as none gets one from the prior once in 1/rate rounds only. Here a row
//! without unique features, or with one, is shown a few features drawn from the prior, the one that it has among them, and
//! takes one of them or none by their posterior weights: any of those shown might have been the one that it has.

use super::{Candidate, Newborn, Round, Rows, ln_evidence, newborn, shared_residual};
use crate::model::{Model, State, ibp};
use crate::numeric::lanes::filled_up;
use crate::numeric::linalg::Real;
use crate::rng::{Purpose, Stream};
use crate::spectral::{TILE, sum_over_tiles};
use pulp::{Simd, WithSimd};
use rand::RngExt;

/// Features shown to a row.
pub const SHOWN: usize = 4;
/// About this share of the operations of a sweep's product with the features goes into offers, unless these are too few.
const SHARE: f64 = 0.1;
const FEWEST: f64 = 10.0;
/// What an offer costs a mode beside the row's own features, in operations: of whole rows, and of rows with cells that were not
/// observed, which are drawn first.
const COST: f64 = 80.0;
const COST_UNOBSERVED: f64 = 400.0;

/// Rows of those here, and what each is shown; the rows are chosen by what unique features do not change.
pub(super) fn make<R: Real>(
    model: &Model<R>,
    state: &State<R>,
    round: Round,
) -> (Vec<Candidate>, Vec<[Newborn; SHOWN]>) {
    let share = share_of_rows(state.loadings.counts(), state.loadings.n_rows(), part_seen(model));
    let mut offers = (Vec::new(), Vec::new());
    let mut chosen = Vec::new();
    for (band, rows) in model.data.layout().bands_here() {
        let mut stream = round.stream(Purpose::UniqueCounts, band as u64);
        chosen.extend(rows.filter(|_| stream.random::<f64>() < share));
    }
    for row in chosen {
        let candidate = Candidate::new(state, row, Vec::new());
        if candidate.old.len() > 1 {
            continue;
        }
        let mut stream = round.stream(Purpose::UniqueProposals, 2 * row as u64);
        let mut shown = [(); SHOWN].map(|()| newborn(model, &mut stream));
        if let Some(&own) = candidate.old.first() {
            shown[0] = Newborn {
                weight: candidate.old_energy.sqrt(),
                weight_mean: state.weight_means[own],
                weight_precision: state.weight_precisions[own],
            };
        }
        offers.0.push(candidate);
        offers.1.push(shown);
    }
    offers
}

/// The share of rows that get an offer, by a count of operations; of features that several rows share only.
fn share_of_rows(counts: &[usize], n_rows: usize, part_seen: Option<f64>) -> f64 {
    let shared = counts.iter().filter(|count| **count > 1);
    let per_row = shared.clone().sum::<usize>() as f64 / n_rows as f64;
    expected(n_rows, shared.count(), per_row, part_seen) / n_rows as f64
}

/// Columns of the data over sites of the grid, where cells were not observed.
pub fn part_seen<R: Real>(model: &Model<R>) -> Option<f64> {
    let part = model.data.n_modes() as f64 / model.spectrum.n_modes() as f64;
    (!model.domain.is_whole()).then_some(part)
}

/// How many rows of `n_rows` get an offer, on average, if they use `per_row` of `n_features`. Where cells were not observed the
/// product is over a part of the sites, but an offer takes all modes.
pub fn expected(n_rows: usize, n_features: usize, per_row: f64, part_seen: Option<f64>) -> f64 {
    let cost = if part_seen.is_none() { COST } else { COST_UNOBSERVED };
    let share = SHARE * 2.0 * n_features as f64 * part_seen.unwrap_or(1.0) / (2.0 * per_row + cost);
    (share * n_rows as f64).max(FEWEST).min(n_rows as f64)
}

/// Lets every row take what it is shown, or nothing; leaves the candidates for which that changes something. What cannot be
/// weighed is not taken.
pub(super) fn choose<R: Real>(
    model: &Model<R>,
    rows: Rows<R>,
    state: &State<R>,
    candidates: &mut Vec<Candidate>,
    shown: &[[Newborn; SHOWN]],
    variances: &[f64],
    round: Round,
) {
    let arch = pulp::Arch::new();
    let n_evidences = SHOWN * candidates.len();
    let (tiles, line) = (state.features.tiles().each_once(), model.data.sharing().same_rows());
    let looked_at = rows.of(candidates);
    let evidences = sum_over_tiles(tiles, n_evidences, line, |tile, modes, slots| {
        model.data.look_ahead(tile, &looked_at);
        let variances = &variances[modes];
        arch.dispatch(EvidencesAt { rows, state, candidates, shown, tile, variances, slots });
    });
    let rate = ibp::unique_rate(state.loadings.n_rows(), state.ibp_strength, state.ibp_repulsion);
    let ln_prior = (rate / SHOWN as f64).ln();
    let mut offers = shown.iter().zip(evidences.chunks(SHOWN));
    candidates.retain_mut(|candidate| {
        let (shown, evidences) = offers.next().expect("one offer a candidate");
        let mut stream = round.stream(Purpose::UniqueProposals, 2 * candidate.row as u64 + 1);
        if evidences.iter().any(|evidence| evidence.is_nan()) {
            return false;
        }
        let taken = draw(ln_prior, evidences, &mut stream);
        let now = candidate.old.first().map(|_| 0);
        candidate.new.extend(taken.map(|place| shown[place]));
        candidate.new_energy = candidate.new.iter().map(|born| born.weight.powi(2)).sum();
        taken != now
    });
}

/// One of those shown, or none, by their weights: 1 for none.
pub fn draw(ln_prior: f64, ln_evidences: &[f64], stream: &mut Stream) -> Option<usize> {
    let most = ln_evidences.iter().map(|evidence| ln_prior + evidence).fold(0.0, f64::max);
    let weight = |evidence: &f64| (ln_prior + evidence - most).exp();
    let total = (-most).exp() + ln_evidences.iter().map(weight).sum::<f64>();
    let mut left = total * stream.random::<f64>();
    ln_evidences.iter().position(|evidence| {
        left -= weight(evidence);
        left < 0.0
    })
}

/// The evidences' shares of one tile.
struct EvidencesAt<'a, R> {
    rows: Rows<'a, R>,
    state: &'a State<R>,
    candidates: &'a [Candidate],
    shown: &'a [[Newborn; SHOWN]],
    tile: usize,
    variances: &'a [f64],
    slots: &'a mut [f64],
}

impl<R: Real> WithSimd for EvidencesAt<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let EvidencesAt { rows, state, tile, .. } = self;
        let (mut residual, noise) = (Vec::with_capacity(TILE), state.noise_variance);
        let variances = &filled_up(self.variances, 0.0);
        let offers = self.candidates.iter().zip(self.shown);
        for ((candidate, shown), slots) in offers.zip(self.slots.chunks_mut(SHOWN)) {
            shared_residual(rows, &state.loadings, candidate, tile, state.features.tile(tile), &mut residual);
            let residual = &filled_up(&residual, 0.0);
            for (born, slot) in shown.iter().zip(slots) {
                *slot = ln_evidence(residual, born.weight.powi(2), variances, noise);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Streams;

    #[test]
    fn what_is_shown_is_taken_by_its_weight() {
        let (ln_prior, evidences) = ((0.3f64 / 3.0).ln(), [2.0, -1.0, 0.5]);
        let weights = [1.0, 0.1 * 2.0f64.exp(), 0.1 * (-1.0f64).exp(), 0.1 * 0.5f64.exp()];
        let total: f64 = weights.iter().sum();
        let (mut stream, mut taken, n) = (Streams::once(1).stream(Purpose::UniqueProposals, 0, 1), [0.0; 4], 200_000.0);
        for _ in 0..n as usize {
            taken[draw(ln_prior, &evidences, &mut stream).map_or(0, |place| place + 1)] += 1.0 / n;
        }
        for (found, weight) in taken.iter().zip(weights) {
            let share = weight / total;
            assert!((found - share).abs() < 4.0 * (share * (1.0 - share) / n).sqrt(), "{taken:?}, weights {weights:?}");
        }
        let far = [-1e6, 1e6, 0.0];
        assert_eq!(draw(ln_prior, &far, &mut stream), Some(1), "nothing overflows");
        assert_eq!(draw(f64::NEG_INFINITY, &far[..1], &mut stream), None, "nothing is born at a rate of 0");
    }

    #[test]
    fn what_an_offer_changes_does_not_choose_rows() {
        let (shared, both) = ([900, 40, 2, 700], [900, 1, 40, 2, 1, 700, 1]);
        for part in [None, Some(0.4)] {
            assert_eq!(share_of_rows(&shared, 1000, part), share_of_rows(&both, 1000, part));
        }
        let more = [shared, shared].concat();
        assert!(
            share_of_rows(&more, 100_000, None) > share_of_rows(&shared, 100_000, None),
            "it is not the least share"
        );
    }

    #[test]
    fn offers_are_counted_by_what_they_cost() {
        let (few, many) = (expected(3000, 10, 1.0, None), expected(3000, 100, 10.0, None));
        assert!(few < many && many < 3000.0, "{few}, {many}");
        assert_eq!(expected(3000, 0, 0.0, None), FEWEST, "without features there are offers too");
        assert_eq!(expected(4, 50, 2.0, Some(1.0)), 4.0, "a row gets one offer at most");
        let [part, all] = [0.3, 1.0].map(|part| expected(30_000, 50, 2.0, Some(part)));
        assert!((part / all - 0.3).abs() < 1e-12 && all < expected(30_000, 50, 2.0, None));
    }
}
