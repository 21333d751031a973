//! Pulls apart pairs of features that describe two true ones as mixtures.
//!
//! When two features are found together, each may settle on a mixture of both: every row of either then uses the
//! pair, and Gibbs updates turn the pair apart only slowly, because features hold the weights in place and weights the
//! features. For pairs that are active together far more often than chance, this step searches the plane they span
//! for the two directions that explain the rows most sparsely (weights integrated out) and moves there.

use super::disjoint;
use crate::kernels::Info;
use crate::model::{Entry, Model, State};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{Projections, Sharing, within};

/// Directions of the half circle that are tried.
const DIRECTIONS: usize = 24;
/// Pairs looked at in one sweep.
const MOST_PAIRS: usize = 32;
/// A pair is suspicious when it is active together this many times more often than chance, and in this many rows.
const EXCESS: f64 = 3.0;
const FEWEST_ROWS: usize = 4;
/// How much better (in nats) the new directions must be.
const MARGIN: f64 = 3.0;

/// Two features and the rows that use at least one of them, each with the products of both with its residual that leaves both
/// out.
struct Pair {
    features: [usize; 2],
    rows: Vec<(usize, [f64; 2])>,
}

/// What the pair becomes: new features as combinations of the old ones, and new weights of its rows.
struct Untangled {
    features: [usize; 2],
    /// `new_i = sum_j combination[i][j] old_j`.
    combination: [[f64; 2]; 2],
    weights: Vec<(usize, [f64; 2])>,
}

/// Changes every suspicious pair that is better off apart, and marks its features.
pub fn run<R: Real>(
    model: &Model<R>,
    state: &mut State<R>,
    projections: &Projections<R>,
    touched: &mut [bool],
) -> Info {
    let sharing = model.data.sharing();
    let pairs = seen_from_rows(state, projections, suspicious_pairs(state, sharing), sharing);
    let mut found: Vec<Option<Untangled>> = pairs.iter().map(|_| None).collect();
    {
        let state = &*state;
        share(
            pairs.iter().zip(&mut found),
            || (),
            |_, (pair, place)| {
                *place = Plane::new(state, projections, pair).untangle(pair);
            },
        );
    }
    let changed: Vec<Untangled> = found.into_iter().flatten().collect();
    for change in &changed {
        apply(state, change, sharing);
        change.features.into_iter().for_each(|feature| touched[feature] = true);
    }
    Info { proposed: pairs.len() as u32, accepted: changed.len() as u32, ..Info::default() }
}

/// Disjoint pairs that are active together too often, the most striking first.
fn suspicious_pairs<R: Real>(state: &State<R>, sharing: &Sharing) -> Vec<[usize; 2]> {
    let (k, n_rows) = (state.n_features(), state.loadings.n_rows() as f64);
    let counts = state.loadings.counts();
    let mut together = vec![0; k * k];
    for row in state.loadings.rows() {
        for (at, a) in row.iter().enumerate() {
            row[at + 1..].iter().for_each(|b| together[a.feature * k + b.feature] += 1);
        }
    }
    sharing.sum_over_lines(&mut together);
    let mut scored = Vec::new();
    for j in 0..k {
        for l in j + 1..k {
            let (seen, expected) = (together[j * k + l], counts[j] as f64 * counts[l] as f64 / n_rows);
            if seen >= FEWEST_ROWS as i64 && seen as f64 > EXCESS * expected {
                scored.push(((seen as f64 - expected) / (expected + 1.0).sqrt(), j, l));
            }
        }
    }
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    disjoint(scored.into_iter().map(|(_, j, l)| [j, l]), &vec![false; k], MOST_PAIRS)
}

/// The pairs with their rows, on every rank: each knows the products of some rows.
fn seen_from_rows<R: Real>(
    state: &State<R>,
    projections: &Projections<R>,
    pairs: Vec<[usize; 2]>,
    sharing: &Sharing,
) -> Vec<Pair> {
    let (k, gram) = (state.n_features(), projections.gram());
    let inner = |row: usize, [j, l]: [usize; 2]| {
        let mut products = [j, l].map(|feature| projections.row(row)[feature]);
        for entry in state.loadings.row(row).iter().filter(|entry| ![j, l].contains(&entry.feature)) {
            products[0] -= entry.weight * gram[entry.feature * k + j];
            products[1] -= entry.weight * gram[entry.feature * k + l];
        }
        products
    };
    // Number of the pair, row, and both products.
    let mut own = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        let uses = |row: &usize| state.loadings.row(*row).iter().any(|entry| pair.contains(&entry.feature));
        own.extend(projections.rows().filter(uses).flat_map(|row| {
            let [a, b] = inner(row, *pair);
            [at as f64, row as f64, a, b]
        }));
    }
    let all = sharing.from_own_rows(own);
    let mut pairs: Vec<Pair> = pairs.into_iter().map(|features| Pair { features, rows: Vec::new() }).collect();
    for &[at, row, a, b] in all.as_chunks::<4>().0 {
        pairs[at as usize].rows.push((row as usize, [a, b]));
    }
    pairs
}

/// The plane of two features, seen from the rows.
struct Plane {
    /// Gram matrix of the two.
    gram: [[f64; 2]; 2],
    /// For each row, the products of both with the residual that leaves both out.
    inner: Vec<[f64; 2]>,
    noise_variance: f64,
    weight_precision: f64,
    ln_prior_odds: f64,
}

/// A direction of the plane in coordinates of the two features, scaled to their mean norm.
type Direction = [f64; 2];

impl Plane {
    fn new<R: Real>(state: &State<R>, projections: &Projections<R>, pair: &Pair) -> Plane {
        let (k, [j, l]) = (state.n_features(), pair.features);
        let gram = projections.gram();
        // Two features of the plane will share its rows between them.
        let count = 0.5 * pair.rows.len() as f64;
        Plane {
            gram: [[gram[j * k + j], gram[j * k + l]], [gram[l * k + j], gram[l * k + l]]],
            inner: pair.rows.iter().map(|(_, inner)| *inner).collect(),
            noise_variance: state.noise_variance,
            weight_precision: (state.weight_precisions[j] * state.weight_precisions[l]).sqrt(),
            ln_prior_odds: (count / (state.loadings.n_rows() as f64 - count + state.ibp_repulsion)).ln(),
        }
    }

    fn product(&self, a: Direction, b: Direction) -> f64 {
        (0..2).map(|i| (0..2).map(|j| a[i] * self.gram[i][j] * b[j]).sum::<f64>()).sum()
    }

    /// Directions spread evenly between the two features, the features themselves among them.
    fn directions(&self) -> Vec<Direction> {
        let norms = [self.gram[0][0].sqrt(), self.gram[1][1].sqrt()];
        let scale = (norms[0] * norms[1]).sqrt();
        let direction = |at: usize| {
            let angle = std::f64::consts::PI * at as f64 / DIRECTIONS as f64;
            let raw = [angle.cos() / norms[0], angle.sin() / norms[1]];
            let length = self.product(raw, raw).max(1e-12).sqrt();
            raw.map(|x| x * scale / length)
        };
        (0..DIRECTIONS).map(direction).collect()
    }

    /// Log evidence of one row for one active direction, relative to none.
    fn ln_single(&self, direction: Direction, inner: [f64; 2]) -> f64 {
        let precision = self.weight_precision + self.product(direction, direction) / self.noise_variance;
        let slope = (direction[0] * inner[0] + direction[1] * inner[1]) / self.noise_variance;
        0.5 * (self.weight_precision / precision).ln() + 0.5 * slope * slope / precision + self.ln_prior_odds
    }

    /// Weights and log evidence of one row for two active directions, relative to none.
    fn both(&self, a: Direction, b: Direction, inner: [f64; 2]) -> ([f64; 2], f64) {
        let (nu, noise) = (self.weight_precision, self.noise_variance);
        let (p, q) = (nu + self.product(a, a) / noise, nu + self.product(b, b) / noise);
        let r = self.product(a, b) / noise;
        let determinant = (p * q - r * r).max(1e-300);
        let slope = [a, b].map(|d| (d[0] * inner[0] + d[1] * inner[1]) / noise);
        let weights = [(q * slope[0] - r * slope[1]) / determinant, (p * slope[1] - r * slope[0]) / determinant];
        let gain = 0.5 * (weights[0] * slope[0] + weights[1] * slope[1]);
        (weights, (nu * nu / determinant).ln() * 0.5 + gain + 2.0 * self.ln_prior_odds)
    }

    fn untangle(&self, pair: &Pair) -> Option<Untangled> {
        let directions = self.directions();
        let singles: Vec<Vec<f64>> = directions
            .iter()
            .map(|&direction| self.inner.iter().map(|&inner| self.ln_single(direction, inner)).collect())
            .collect();
        let score = |a: usize, b: usize| -> f64 {
            let row = |(at, &inner): (usize, &[f64; 2])| {
                let both = self.both(directions[a], directions[b], inner).1;
                let most = singles[a][at].max(singles[b][at]).max(both).max(0.0);
                let sum = (-most).exp() + (singles[a][at] - most).exp() + (singles[b][at] - most).exp();
                most + (sum + (both - most).exp()).ln()
            };
            self.inner.iter().enumerate().map(row).sum()
        };
        let mut best = (0, DIRECTIONS / 2, score(0, DIRECTIONS / 2) + MARGIN);
        for a in 0..DIRECTIONS {
            for b in a + 1..DIRECTIONS {
                // Directions nearly alike do not span the plane.
                if b - a < 3 || b - a > DIRECTIONS - 3 {
                    continue;
                }
                let value = score(a, b);
                if value > best.2 {
                    best = (a, b, value);
                }
            }
        }
        let (a, b) = (directions[best.0], directions[best.1]);
        if (best.0, best.1) == (0, DIRECTIONS / 2) {
            return None;
        }
        let weigh = |(at, &inner): (usize, &[f64; 2])| {
            let (weights, both) = self.both(a, b, inner);
            let (first, second) = (singles[best.0][at], singles[best.1][at]);
            let alone = |direction: Direction| {
                let precision = self.weight_precision + self.product(direction, direction) / self.noise_variance;
                (direction[0] * inner[0] + direction[1] * inner[1]) / self.noise_variance / precision
            };
            let chosen = if both > first && both > second {
                weights
            } else if first > second {
                [alone(a), 0.0]
            } else {
                [0.0, alone(b)]
            };
            (pair.rows[at].0, chosen)
        };
        let weights: Vec<(usize, [f64; 2])> = self.inner.iter().enumerate().map(weigh).collect();
        let used = |i: usize| weights.iter().any(|(_, weights)| weights[i] != 0.0);
        (used(0) && used(1)).then_some(Untangled { features: pair.features, combination: [a, b], weights })
    }
}

fn apply<R: Real>(state: &mut State<R>, change: &Untangled, sharing: &Sharing) {
    let [j, l] = change.features;
    state.features.combine(j, l, change.combination);
    let here = state.loadings.here();
    state.loadings.edit_rows(sharing, |rows| {
        for (row, weights) in within(&change.weights, &here) {
            let entries = &mut rows[row - here.start];
            entries.retain(|entry| entry.feature != j && entry.feature != l);
            let new = change.features.into_iter().zip(*weights).filter(|(_, weight)| *weight != 0.0);
            entries.extend(new.map(|(feature, weight)| Entry { feature, weight }));
            entries.sort_unstable_by_key(|entry| entry.feature);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::refresh;
    use crate::model::{Loadings, Priors};
    use crate::spectral::SpectralData;
    use crate::structure::{Curve, Spectrum, expression};

    /// Rows use one of two features; the state holds their sum and difference, with both active everywhere.
    fn tangled() -> (Model<f64>, State<f64>) {
        let (first, second) = ([3.0, 1.0, 0.0, -1.0, 2.0, 0.0], [0.0, 1.0, -3.0, 1.0, 0.0, 2.0]);
        let weight = |t: usize| 1.5 + (t as f64 * 0.7).sin();
        let mixed = |sign: f64| -> Vec<f64> { (0..6).map(|v| 0.7 * (first[v] + sign * second[v])).collect() };
        let row = |t: usize| -> Vec<f64> {
            let feature = if t.is_multiple_of(2) { &first } else { &second };
            feature.iter().enumerate().map(|(v, s)| weight(t) * s + 0.1 * ((t * 6 + v) as f64).cos()).collect()
        };
        let data = SpectralData::from_rows(&(0..40).map(row).collect::<Vec<_>>());
        let structure = expression::build(Some("path(6)"), None).unwrap();
        let spectrum = Spectrum::new(&structure, &Curve::default());
        let priors = Priors::default_for(2);
        let mut state = State::empty(40, 6, 2);
        state.features.push(&mixed(1.0));
        state.features.push(&mixed(-1.0));
        let entries = |t: usize| {
            let sign = if t.is_multiple_of(2) { 1.0 } else { -1.0 };
            let w = weight(t) / 1.4;
            vec![Entry { feature: 0, weight: w }, Entry { feature: 1, weight: sign * w }]
        };
        // Half of the rows are elsewhere, so that the pair is together more often than chance.
        let rows: Vec<Vec<Entry>> = (0..40).map(|t| if t < 12 { entries(t) } else { vec![] }).collect();
        state.loadings = Loadings::from_rows(rows, 2);
        for _ in 0..2 {
            let id = state.new_id();
            state.feature_ids.push(id);
            state.weight_means.push(0.0);
            state.weight_precisions.push(1.0);
        }
        state.noise_variance = 0.01;
        (Model::new(data, spectrum, priors), state)
    }

    #[test]
    fn mixtures_are_pulled_apart() {
        let (model, mut state) = tangled();
        let mut projections = Projections::default();
        refresh(&model, &mut state, &mut projections);
        let mut touched = [false; 2];
        let info = run(&model, &mut state, &projections, &mut touched);
        assert_eq!((info.accepted, touched), (1, [true, true]));
        assert_eq!(state.loadings.n_active(), 12, "one feature a row is enough");
        assert_eq!(state.loadings.counts(), [6, 6]);
    }
}
