//! How settings compare: R2 of hidden cells with its standard error, and the rule that one of them is recommended by.

use crate::evaluate::hidden::HeldRow;
use serde::Serialize;

/// A setting that was tried.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Trial {
    /// One structure an axis; empty where a preset says it.
    pub structure: String,
    /// The share of variance that was asked for; nothing where the noise has the prior of the settings.
    pub target_r2: Option<f64>,
    /// The share of the variance of hidden cells that was predicted.
    pub r2: f64,
    /// Its standard error, by the scatter of the blocks of rows.
    pub r2_se: f64,
    /// By how much it is below the best.
    pub behind: f64,
    /// The standard error of that: both have predicted the same cells.
    pub behind_se: f64,
    /// The mean number of features.
    pub n_features: f64,
    /// The share of the variance of the rows of the fit that was left as noise.
    pub share_of_noise: f64,
    /// Fitting and scoring.
    pub seconds: f64,
    #[serde(skip)]
    pub(super) blocks: Vec<Block>,
    #[serde(skip)]
    pub(super) n_held: usize,
}

/// Sums over the hidden cells of a block of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Block {
    pub squared_error: f64,
    pub n_cells: f64,
    pub sum: f64,
    pub squares: f64,
}

impl Block {
    pub fn add(&mut self, row: &HeldRow) {
        self.squared_error += row.squared_error;
        self.n_cells += row.n_hidden as f64;
        self.sum += row.sum;
        self.squares += row.squares;
    }
}

/// What there is to predict in each block, about the mean of all.
fn totals(blocks: &[Block]) -> Vec<f64> {
    let add = |what: fn(&Block) -> f64| blocks.iter().map(what).sum::<f64>();
    let mean = add(|block| block.sum) / add(|block| block.n_cells).max(1.0);
    blocks.iter().map(|block| block.squares - 2.0 * mean * block.sum + block.n_cells * mean * mean).collect()
}

/// The ratio of two sums over blocks, and its standard error: blocks are independent, the cells in one need not be.
fn ratio(above: &[f64], below: &[f64]) -> (f64, f64) {
    let (n, sum) = (above.len() as f64, below.iter().sum::<f64>());
    let ratio = above.iter().sum::<f64>() / sum;
    let scatter: f64 = above.iter().zip(below).map(|(above, below)| (above - ratio * below).powi(2)).sum();
    (ratio, (scatter * n / (n - 1.0)).sqrt() / sum)
}

/// R2 of the hidden cells of all blocks, and its standard error.
pub(super) fn r2(blocks: &[Block]) -> (f64, f64) {
    let errors: Vec<f64> = blocks.iter().map(|block| block.squared_error).collect();
    let (left, error) = ratio(&errors, &totals(blocks));
    (1.0 - left, error)
}

/// By how much R2 of `own` is below that of `other`, and the standard error of the difference.
fn behind(own: &[Block], other: &[Block]) -> (f64, f64) {
    let differences: Vec<f64> =
        own.iter().zip(other).map(|(own, best)| own.squared_error - best.squared_error).collect();
    ratio(&differences, &totals(other))
}

/// A setting is as good as the best if it is behind by at most so many standard errors of the difference,
const ERRORS: f64 = 2.0;
/// or by at most this share of the best R2, however surely.
const NO_ACCOUNT: f64 = 0.01;
/// That in words.
const AS_WELL: &str = "to two standard errors of the difference, or to 1%";

/// Which of the trials is best, and which is recommended.
pub(super) struct Verdict {
    pub best: usize,
    /// A difference in R2 that is of no account.
    tolerance: f64,
    pub recommended: usize,
    /// Of every trial, by how much it is behind the best, and the standard error.
    pub behind: Vec<(f64, f64)>,
}

impl Verdict {
    /// Whether a trial is surely behind the best, and by more than is of no account.
    pub fn is_worse(&self, trial: usize) -> bool {
        let (behind, error) = self.behind[trial];
        behind > (ERRORS * error).max(self.tolerance)
    }

    /// The rule in words, with its numbers.
    pub fn reason(&self, trials: &[Trial]) -> String {
        let (chosen, best) = (&trials[self.recommended], &trials[self.best]);
        let (behind, error) = self.behind[self.recommended];
        if self.recommended == self.best {
            return format!(
                "it predicts hidden cells best, and nothing that predicts as well ({AS_WELL}) is simpler ({:.1} features)",
                chosen.n_features
            );
        }
        let what =
            if chosen.structure == best.structure { "fewest features" } else { "usual structure, or fewest features" };
        format!(
            "of what predicts hidden cells as well as the best ({AS_WELL}) it is the simplest ({what}): {:.1} features where the \
             best has {:.1}, for an R2 {behind:.4} lower (standard error {error:.4})",
            chosen.n_features, best.n_features
        )
    }
}

/// Of the trials that are as good as the best: those with the structure of the first, the usual one, if there are any; of these the
/// one with the fewest features.
pub(super) fn judge(trials: &[Trial]) -> Verdict {
    let blocks: Vec<Vec<Block>> = trials.iter().map(|trial| trial.blocks.clone()).collect();
    judge_blocks(trials, &blocks)
}

fn judge_blocks(trials: &[Trial], blocks: &[Vec<Block>]) -> Verdict {
    let all = || 0..trials.len();
    let error = |at: usize| blocks[at].iter().map(|block| block.squared_error).sum::<f64>();
    let best = all().min_by(|&a, &b| error(a).total_cmp(&error(b))).expect("something was tried");
    let behind: Vec<(f64, f64)> = all().map(|at| behind(&blocks[at], &blocks[best])).collect();
    let tolerance = NO_ACCOUNT * r2(&blocks[best]).0.max(0.0);
    let verdict = Verdict { best, tolerance, recommended: best, behind };
    let is_unusual = |at: usize| trials[at].structure != trials[0].structure;
    let simpler = |a: &usize, b: &usize| {
        let by_structure = is_unusual(*a).cmp(&is_unusual(*b));
        by_structure.then(trials[*a].n_features.total_cmp(&trials[*b].n_features)).then(error(*a).total_cmp(&error(*b)))
    };
    let near = all().filter(|&at| at == best || !verdict.is_worse(at));
    let recommended = near.min_by(simpler).expect("the best is near itself");
    Verdict { recommended, ..verdict }
}

/// R2 where the cells of every block are predicted by what the other blocks recommend: no block takes part in the choice that
/// it judges.
pub(super) fn r2_of_choice(trials: &[Trial]) -> f64 {
    let n_blocks = trials[0].blocks.len();
    let without = |left_out: usize| {
        let others = |trial: &Trial| (0..n_blocks).filter(|&at| at != left_out).map(|at| trial.blocks[at]).collect();
        let blocks: Vec<Vec<Block>> = trials.iter().map(others).collect();
        trials[judge_blocks(trials, &blocks).recommended].blocks[left_out]
    };
    r2(&(0..n_blocks).map(without).collect::<Vec<Block>>()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(n_features: f64, errors: &[f64]) -> Trial {
        let block = |error: &f64| Block { squared_error: *error, n_cells: 10.0, sum: 0.0, squares: 10.0 };
        Trial {
            structure: "path".into(),
            target_r2: None,
            r2: 0.0,
            r2_se: 0.0,
            behind: 0.0,
            behind_se: 0.0,
            n_features,
            share_of_noise: 0.5,
            seconds: 0.0,
            blocks: errors.iter().map(block).collect(),
            n_held: errors.len(),
        }
    }

    #[test]
    fn r2_and_its_error_are_those_of_means_over_equal_blocks() {
        let (r2, error) = r2(&trial(1.0, &[2.0, 4.0, 3.0, 7.0]).blocks);
        // Shares left of 0.2, 0.4, 0.3, 0.7: mean 0.4, variance of the mean 0.14 / 3 / 4.
        assert!((r2 - 0.6).abs() < 1e-12 && (error - (0.14f64 / 12.0).sqrt()).abs() < 1e-12, "{r2} {error}");
    }

    /// Blocks differ much, but the second setting is worse in each of them: the difference is what counts.
    #[test]
    fn the_simplest_of_those_that_are_as_good() {
        let best = trial(20.0, &[2.0, 4.0, 3.0, 7.0]);
        let worse = trial(3.0, &[2.5, 4.6, 3.4, 7.5]);
        let alike = trial(9.0, &[2.1, 3.9, 3.2, 6.9]);
        let verdict = judge(&[worse.clone(), best.clone(), alike.clone()]);
        assert_eq!((verdict.best, verdict.recommended), (1, 2));
        assert!(verdict.is_worse(0) && !verdict.is_worse(2));
        let reason = verdict.reason(&[worse.clone(), best.clone(), alike]);
        assert!(reason.contains("0.0025 lower") && reason.contains("9.0 features where the best has 20.0"), "{reason}");
        let verdict = judge(&[worse, best.clone()]);
        assert_eq!(verdict.recommended, 1);
        // Surely worse, but by half a percent of what the best predicts.
        let hardly = trial(3.0, &[2.03, 4.03, 3.03, 7.03]);
        assert_eq!(judge(&[best.clone(), hardly.clone()]).recommended, 1);
        // The structure that comes first is the usual one.
        let other = Trial { structure: "iid".into(), ..hardly };
        assert_eq!(judge(&[best.clone(), other.clone()]).recommended, 0);
        assert_eq!(judge(&[other, best]).recommended, 0);
    }

    /// One that is good by the luck of one block is not chosen for that block.
    #[test]
    fn no_block_judges_what_it_has_chosen() {
        let steady = trial(5.0, &[5.0; 6]);
        let lucky = trial(5.0, &[0.0, 5.9, 5.9, 5.9, 5.9, 5.9]);
        let picked = judge(&[steady.clone(), lucky.clone()]);
        assert_eq!(picked.best, 1);
        assert!(r2_of_choice(&[steady.clone(), lucky]) < r2(&steady.blocks).0 + 1e-12);
    }
}
