//! How well a trace has mixed: effective sample size and split R-hat.

/// The effective number of independent draws in chains of equal meaning; NaN of few, or where nothing varies.
pub fn effective_sample_size(chains: &[Vec<f64>]) -> f64 {
    let mut halves = split(chains);
    if halves.first().is_none_or(|half| half.len() < 4) {
        return f64::NAN;
    }
    // In units of their own: a variance may be tiny.
    let largest = halves.iter().flatten().fold(f64::NEG_INFINITY, |most, x| most.max(*x));
    let range = halves.iter().flatten().fold(0.0, |range: f64, x| range.max(largest - x));
    if range > 0.0 {
        halves.iter_mut().flatten().for_each(|x| *x = (*x - largest) / range);
    }
    independent_draws(&halves).unwrap_or(f64::NAN)
}

/// The effective number of independent draws in half-chains whose values are of the size of 1, by Geyer's initial monotone
/// sequence, in the numbers of ArviZ; nothing where all are equal.
pub(super) fn independent_draws(halves: &[Vec<f64>]) -> Option<f64> {
    let size = (halves.len() * halves[0].len()) as f64;
    let tau = geyer(halves[0].len(), correlations(halves)?).max(1.0 / size.log10());
    Some(size / tau)
}

/// The correlation of draws by their distance, within and between chains; nothing where all draws are equal.
fn correlations(chains: &[Vec<f64>]) -> Option<impl Fn(usize) -> f64> {
    let n = chains[0].len() as f64;
    let means: Vec<f64> = chains.iter().map(|chain| mean(chain)).collect();
    let centred: Vec<Vec<f64>> =
        chains.iter().zip(&means).map(|(chain, mean)| chain.iter().map(|x| x - mean).collect()).collect();
    let covariance = move |lag: usize| {
        let of = |chain: &Vec<f64>| chain.iter().zip(&chain[lag..]).map(|(a, b)| a * b).sum::<f64>() / n;
        mean(&centred.iter().map(of).collect::<Vec<_>>())
    };
    let within = covariance(0) * n / (n - 1.0);
    let middle = mean(&means);
    let between = means.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / (means.len() as f64 - 1.0);
    let total = within * (n - 1.0) / n + between;
    (total > 1e-15).then_some(move |lag: usize| 1.0 - (within - covariance(lag)) / total)
}

/// One and twice the sum of the correlations up to where a pair of them is negative, made monotone.
fn geyer(n: usize, correlation: impl Fn(usize) -> f64) -> f64 {
    let mut rho = vec![1.0, correlation(1)];
    let (mut even, mut odd, mut lag) = (1.0, rho[1], 1);
    while lag + 3 < n && even + odd > 0.0 {
        (even, odd) = (correlation(lag + 1), correlation(lag + 2));
        rho.extend(if even + odd >= 0.0 { [even, odd] } else { [0.0, 0.0] });
        lag += 2;
    }
    // The last pair is not taken in whole: its even one is, where it helps.
    let last = lag - 1;
    if even > 0.0 {
        rho[last] = even;
    }
    for at in (1..(last - last.min(2))).step_by(2) {
        if rho[at + 1] + rho[at + 2] > rho[at - 1] + rho[at] {
            rho[at + 1] = (rho[at - 1] + rho[at]) / 2.0;
            rho[at + 2] = rho[at + 1];
        }
    }
    2.0 * rho[..last].iter().sum::<f64>() - 1.0 + rho[last]
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
