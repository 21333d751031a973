//! How well a trace has mixed: effective sample size and split R-hat.

/// The effective number of independent draws in chains of equal meaning, by Geyer's initial monotone sequence.
pub fn effective_sample_size(chains: &[Vec<f64>]) -> f64 {
    let halves = split(chains);
    let (m, n) = (halves.len() as f64, halves.first().map_or(0, Vec::len));
    if n < 4 {
        return f64::NAN;
    }
    let means: Vec<f64> = halves.iter().map(|chain| mean(chain)).collect();
    let within = halves.iter().zip(&means).map(|(chain, mean)| variance(chain, *mean)).sum::<f64>() / m;
    let between = variance_between(&means);
    let total = within * (n as f64 - 1.0) / n as f64 + between;
    if total <= 0.0 {
        return f64::NAN;
    }
    let correlation = |lag: usize| {
        let covariance = |(chain, mean): (&Vec<f64>, &f64)| {
            let products = chain.iter().zip(&chain[lag..]).map(|(a, b)| (a - mean) * (b - mean));
            products.sum::<f64>() / n as f64
        };
        let covariance = halves.iter().zip(&means).map(covariance).sum::<f64>() / m;
        1.0 - (within - covariance * n as f64 / (n as f64 - 1.0)) / total
    };
    let (mut sum, mut last) = (0.0, f64::INFINITY);
    for pair in 0..(n - 1) / 2 {
        let value = (correlation(2 * pair) + correlation(2 * pair + 1)).min(last);
        if value <= 0.0 {
            break;
        }
        sum += value;
        last = value;
    }
    let draws = m * n as f64;
    (draws / (2.0 * sum - 1.0).max(1.0 / draws.log10().max(1.0))).min(draws * draws.log10().max(1.0))
}

/// The potential scale reduction of half-chains: near 1 when they agree.
pub fn split_r_hat(chains: &[Vec<f64>]) -> f64 {
    r_hat_of(&split(chains))
}

/// The potential scale reduction of chains of equal length.
pub(super) fn r_hat_of(halves: &[Vec<f64>]) -> f64 {
    let n = halves.first().map_or(0, Vec::len) as f64;
    if n < 2.0 {
        return f64::NAN;
    }
    let means: Vec<f64> = halves.iter().map(|chain| mean(chain)).collect();
    let within =
        halves.iter().zip(&means).map(|(chain, mean)| variance(chain, *mean)).sum::<f64>() / halves.len() as f64;
    let between = variance_between(&means);
    if within <= 0.0 {
        return if between > 0.0 { f64::INFINITY } else { 1.0 };
    }
    ((within * (n - 1.0) / n + between) / within).sqrt()
}

/// Halves of equal length; an odd middle is dropped.
pub(super) fn split(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let half = chains.iter().map(Vec::len).min().unwrap_or(0) / 2;
    chains.iter().flat_map(|chain| [chain[..half].to_vec(), chain[chain.len() - half..].to_vec()]).collect()
}

/// The arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

fn variance_between(means: &[f64]) -> f64 {
    if means.len() > 1 { variance(means, mean(means)) } else { 0.0 }
}

/// The value below which a share of the (sorted) values lies.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::simulate::normal;
    use crate::rng::{Purpose, Streams};

    fn autoregression(coefficient: f64, n: usize, index: u64) -> Vec<f64> {
        let mut stream = Streams::once(3).stream(Purpose::Prior, 0, index);
        let mut x = normal(&mut stream) / (1.0 - coefficient * coefficient).sqrt();
        let mut step = || {
            x = coefficient * x + normal(&mut stream);
            x
        };
        (0..n).map(|_| step()).collect()
    }

    #[test]
    fn effective_size_of_autoregressions() {
        for coefficient in [0.0, 0.5, 0.9] {
            let chains: Vec<Vec<f64>> = (0..4).map(|i| autoregression(coefficient, 20_000, i)).collect();
            let expected = 80_000.0 * (1.0 - coefficient) / (1.0 + coefficient);
            let found = effective_sample_size(&chains);
            assert!((found / expected - 1.0).abs() < 0.15, "{coefficient}: {found} {expected}");
            assert!((split_r_hat(&chains) - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn drift_and_disagreement_show() {
        let drifting: Vec<f64> =
            autoregression(0.0, 1000, 0).iter().enumerate().map(|(i, x)| x + i as f64 / 100.0).collect();
        assert!(split_r_hat(&[drifting]) > 1.5);
        assert!(split_r_hat(&[vec![1.0; 10]]) == 1.0 && split_r_hat(&[]).is_nan());
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.75), 2.5);
    }
}
