//! Mixing by ranks, which heavy tails do not mislead: the rank-normalised R-hat and the bulk effective sample size of Vehtari,
//! Gelman, Simpson, Carpenter and Bürkner (2021), in the numbers of ArviZ.

use super::diagnostics::{independent_draws, quantile, r_hat_of, split};
use statrs::function::erf::erfc_inv;

/// The larger of the R-hats of half-chains by rank and by rank of the distance from the median.
pub fn rank_r_hat(chains: &[Vec<f64>]) -> f64 {
    let halves = split(chains);
    if !can_be_ranked(&halves) {
        return f64::NAN;
    }
    let mut all = halves.concat();
    all.sort_by(f64::total_cmp);
    let median = quantile(&all, 0.5);
    let folded: Vec<Vec<f64>> = halves.iter().map(|half| half.iter().map(|x| (x - median).abs()).collect()).collect();
    r_hat_of(&normal_scores(&halves)).max(r_hat_of(&normal_scores(&folded)))
}

/// The effective number of independent draws by rank, by Geyer's initial monotone sequence.
pub fn bulk_ess(chains: &[Vec<f64>]) -> f64 {
    let halves = split(chains);
    if !can_be_ranked(&halves) {
        return f64::NAN;
    }
    independent_draws(&normal_scores(&halves)).unwrap_or(halves.iter().flatten().count() as f64)
}

/// Whether halves have two draws each, and no draw is NaN.
fn can_be_ranked(halves: &[Vec<f64>]) -> bool {
    halves.first().is_some_and(|half| half.len() >= 2) && halves.iter().flatten().all(|x| !x.is_nan())
}

/// Quantiles of the standard normal distribution at (rank - 3/8) / (size + 1/4); equal values have their mean rank.
fn normal_scores(chains: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let all = chains.concat();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| all[a].total_cmp(&all[b]));
    let mut scores = vec![0.0; all.len()];
    let mut before = 0;
    for equal in order.chunk_by(|&a, &b| all[a] == all[b]) {
        let rank = before as f64 + (equal.len() as f64 + 1.0) / 2.0;
        let share = (rank - 0.375) / (all.len() as f64 + 0.25);
        equal.iter().for_each(|&at| scores[at] = -std::f64::consts::SQRT_2 * erfc_inv(2.0 * share));
        before += equal.len();
    }
    scores.chunks_exact(chains[0].len()).map(<[f64]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A skewed autoregression.
    fn chain(number: u64, n: u64) -> Vec<f64> {
        let mut x = 0.0;
        let step = |at: u64| {
            x = 0.7 * x + ((at * 7919 + number * 104_729 + at * at * 31) % 1009) as f64 / 1009.0 - 0.5;
            (2.0 * x).exp()
        };
        (0..n).map(step).collect()
    }

    /// What ArviZ 0.23 says of the same chains: odd lengths, ties, short ones, chains apart.
    #[test]
    fn numbers_are_those_of_arviz() {
        let own = [chain(0, 101), chain(1, 101)];
        let each = |of: fn(f64) -> f64| own.iter().map(|chain| chain.iter().map(|&x| of(x)).collect()).collect();
        let tied: Vec<Vec<f64>> = each(|x| (x * 2.0).round_ties_even());
        let apart = [own[0].clone(), own[1].iter().map(|x| x + 3.0).collect()];
        let short = [vec![1.0, 3.0, 2.0, 5.0], vec![2.0, 2.0, 4.0, 1.0]];
        let cases: [(&[Vec<f64>], f64, f64); 4] = [
            (&own, 1.06820216888106, 31.056349255092787),
            (&tied, 1.0652589972175812, 31.09129217400461),
            (&short, 1.0029388026564672, 7.224719895935548),
            (&apart, 1.7239231720834538, 3.476329621801723),
        ];
        for (chains, r_hat, ess) in cases {
            let found = (rank_r_hat(chains), bulk_ess(chains));
            assert!(
                (found.0 / r_hat - 1.0).abs() < 1e-9 && (found.1 / ess - 1.0).abs() < 1e-9,
                "{found:?} {r_hat} {ess}"
            );
        }
    }

    #[test]
    fn nothing_and_constants_have_an_answer() {
        assert!(rank_r_hat(&[]).is_nan() && bulk_ess(&[vec![1.0, 2.0]]).is_nan());
        assert!(bulk_ess(&[vec![1.0, f64::NAN, 2.0, 3.0]]).is_nan());
        assert_eq!((rank_r_hat(&[vec![2.0; 10]]), bulk_ess(&[vec![2.0; 10]])), (1.0, 10.0));
    }
}
