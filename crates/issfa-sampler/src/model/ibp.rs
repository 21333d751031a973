//! The two-parameter Indian buffet process: expected features, the weight of a column, and prior draws.

use rand::RngExt;
use rand_distr::{Beta, Distribution, Poisson};
use statrs::function::gamma::{digamma, ln_gamma};

/// `H_T(beta) = sum_{i=1..T} beta / (i + beta - 1)`: the expected number of features is `alpha H_T(beta)`.
pub fn expected_features_per_strength(n_rows: usize, repulsion: f64) -> f64 {
    let one_by_one: f64 = (0..n_rows.min(ADDED)).map(|i| repulsion / (i as f64 + repulsion)).sum();
    if n_rows <= ADDED {
        return one_by_one;
    }
    one_by_one + repulsion * (digamma(n_rows as f64 + repulsion) - digamma(ADDED as f64 + repulsion))
}

/// Terms of that sum that are added one by one; the rest is a difference of digamma functions.
const ADDED: usize = 4096;

/// `ln B(m, T - m + beta)`: a feature used by `count` of `n_rows` rows contributes `alpha beta` times its exponential.
pub fn ln_column_weight(count: usize, n_rows: usize, repulsion: f64) -> f64 {
    let (m, n) = (count as f64, n_rows as f64);
    ln_gamma(m) + ln_gamma(n - m + repulsion) - ln_gamma(n + repulsion)
}

/// The rate of the Poisson number of features unique to one row.
pub fn unique_rate(n_rows: usize, strength: f64, repulsion: f64) -> f64 {
    strength * repulsion / (repulsion + n_rows as f64 - 1.0)
}

/// `ln(pi/(1 - pi))` of a feature used by `count` of `n_rows` rows, with `pi ~ Beta(count, n_rows - count + repulsion)`; infinite
/// where pi is 1 to the last bit.
pub fn draw_ln_odds(count: usize, n_rows: usize, repulsion: f64, stream: &mut impl rand::Rng) -> f64 {
    let (m, n) = (count as f64, n_rows as f64);
    let probability: f64 = Beta::new(m, n - m + repulsion).expect("counts are positive").sample(stream);
    (probability / (1.0 - probability)).ln()
}

/// A Poisson draw; small rates by inversion, which costs one uniform number.
pub fn draw_poisson(rate: f64, stream: &mut impl rand::Rng) -> usize {
    Counts::new(rate).draw(stream)
}

/// Poisson draws of one rate.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    rate: f64,
    /// The probability of none.
    none: f64,
}

impl Counts {
    /// Of this rate.
    pub fn new(rate: f64) -> Counts {
        Counts { rate, none: (-rate).exp() }
    }

    /// One of them.
    pub fn draw(&self, stream: &mut impl rand::Rng) -> usize {
        let Counts { rate, none } = *self;
        if rate > 30.0 {
            return Poisson::new(rate).map_or(0, |poisson| poisson.sample(stream) as usize);
        }
        let uniform: f64 = stream.random();
        let (mut count, mut probability) = (0, none);
        let mut cumulative = probability;
        while uniform > cumulative && count < 1000 {
            count += 1;
            probability *= rate / count as f64;
            cumulative += probability;
        }
        count
    }
}

/// Draws the rows' feature lists in turn; features are numbered by first appearance.
pub fn draw_activations(
    n_rows: usize,
    strength: f64,
    repulsion: f64,
    stream: &mut impl rand::Rng,
) -> (Vec<Vec<usize>>, usize) {
    let mut counts: Vec<usize> = Vec::new();
    let mut rows = Vec::with_capacity(n_rows);
    for earlier in 0..n_rows {
        let total = repulsion + earlier as f64;
        let mut row = Vec::new();
        for (feature, count) in counts.iter_mut().enumerate() {
            if stream.random::<f64>() < *count as f64 / total {
                *count += 1;
                row.push(feature);
            }
        }
        let n_new = draw_poisson(strength * repulsion / total, stream);
        row.extend(counts.len()..counts.len() + n_new);
        counts.resize(counts.len() + n_new, 1);
        rows.push(row);
    }
    (rows, counts.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Streams};

    #[test]
    fn poisson_draws_have_the_right_moments() {
        for rate in [0.01, 0.7, 4.0, 55.0] {
            let mut stream = Streams::once(1).stream(Purpose::Prior, 0, 0);
            let n = 200_000;
            let draws: Vec<f64> = (0..n).map(|_| draw_poisson(rate, &mut stream) as f64).collect();
            let mean = draws.iter().sum::<f64>() / f64::from(n);
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
            assert!((mean - rate).abs() < 5.0 * (rate / f64::from(n)).sqrt(), "{rate}: {mean}");
            assert!(
                (variance / rate - 1.0).abs() < 5.0 * ((1.0 / rate + 2.0) / f64::from(n)).sqrt(),
                "{rate}: {variance}"
            );
        }
    }

    /// Sums the probabilities of all matrices of two rows: patterns 10, 01, 11 are independent Poisson counts.
    #[test]
    fn column_weights_are_the_rates_of_patterns() {
        let (strength, repulsion) = (1.7, 0.6);
        let rate = |count| strength * repulsion * ln_column_weight(count, 2, repulsion).exp();
        let total = 2.0 * rate(1) + rate(2);
        assert!((total - strength * expected_features_per_strength(2, repulsion)).abs() < 1e-12);
        assert!((rate(1) - unique_rate(2, strength, repulsion)).abs() < 1e-12);
        let slow: f64 = (0..300_000).map(|i| repulsion / (i as f64 + repulsion)).sum();
        assert!((expected_features_per_strength(300_000, repulsion) / slow - 1.0).abs() < 1e-12);
        let mut stream = Streams::once(2).stream(Purpose::Prior, 0, 0);
        let n = 100_000;
        let mut sums = [0.0; 2];
        for _ in 0..n {
            let (rows, k) = draw_activations(2, strength, repulsion, &mut stream);
            let both = rows[0].iter().filter(|f| rows[1].contains(f)).count();
            sums[0] += both as f64;
            sums[1] += k as f64;
        }
        let error = |sum: f64, rate: f64| (sum / f64::from(n) - rate).abs() / (rate / f64::from(n)).sqrt();
        assert!(error(sums[0], rate(2)) < 4.5 && error(sums[1], total) < 4.5);
    }
}
