//! Bands of modes with like eigenvalues, in which the noise has one power.

use super::Recipe;
use crate::structure::Structure;

/// Eigenvalues that differ by less than this share of the largest are equal.
const EQUAL: f64 = 1e-9;

/// Modes in bands of like eigenvalues.
pub struct Bands {
    /// The largest eigenvalue of each band but the last.
    pub ends: Vec<f64>,
    eigenvalues: Vec<f64>,
    /// Modes by eigenvalue.
    pub order: Vec<usize>,
    /// Where bands begin in that order, and the number of modes.
    pub starts: Vec<usize>,
}

impl Bands {
    /// About so many bands, geometric in rank; equal eigenvalues stay together.
    pub fn new(structure: &Structure, recipe: &Recipe) -> Bands {
        let eigenvalues = structure.eigenvalues();
        let n = eigenvalues.len();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| eigenvalues[a].total_cmp(&eigenvalues[b]).then(a.cmp(&b)));
        let largest = eigenvalues[order[n - 1]];
        let growth = (n as f64 / recipe.first_band as f64).max(1.0).powf(1.0 / (recipe.bands as f64 - 1.0).max(1.0));
        let (mut starts, mut ends) = (vec![0], Vec::new());
        for band in 0..recipe.bands.saturating_sub(1) {
            let wanted = (recipe.first_band as f64 * growth.powi(band as i32)).round() as usize;
            let mut end = wanted.max(starts[starts.len() - 1] + recipe.first_band.div_ceil(2));
            let value = |rank: usize| eigenvalues[order[rank]];
            while end < n && value(end) - value(end - 1) <= EQUAL * largest {
                end += 1;
            }
            if end >= n {
                break;
            }
            starts.push(end);
            ends.push(0.5 * (value(end - 1) + value(end)));
        }
        starts.push(n);
        Bands { ends, eigenvalues, order, starts }
    }

    /// Whether all eigenvalues are equal, so that no mode is smoother than another however many there are.
    pub fn are_alike(&self) -> bool {
        let n = self.order.len();
        self.eigenvalues[self.order[n - 1]] - self.eigenvalues[self.order[0]] <= EQUAL
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The band of the mode with this rank.
    pub fn of_rank(&self, rank: usize) -> usize {
        self.starts[1..].iter().position(|&end| rank < end).unwrap_or(0)
    }

    fn of<'a>(&'a self, band: usize, powers: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        self.order[self.starts[band]..self.starts[band + 1]].iter().map(|&mode| powers[mode])
    }

    /// The median of each band.
    pub fn medians(&self, powers: &[f64]) -> Vec<f64> {
        (0..self.len()).map(|band| median(self.of(band, powers).collect())).collect()
    }

    /// The mean of each band.
    pub fn means(&self, powers: &[f64]) -> Vec<f64> {
        let mean =
            |band: usize| self.of(band, powers).sum::<f64>() / (self.starts[band + 1] - self.starts[band]) as f64;
        (0..self.len()).map(mean).collect()
    }

    fn n_rough(&self, recipe: &Recipe) -> usize {
        (self.order.len() as f64 * recipe.guard_share).round() as usize
    }

    /// Whether there are bands, and rough modes enough to lay a line through.
    pub fn has_rough_modes(&self, recipe: &Recipe) -> bool {
        self.len() >= 2 && self.n_rough(recipe) >= 2 * recipe.guard_bins
    }

    /// The powers of bands, at most those of a line, in ln power by eigenvalue, through the roughest modes, which hold next to
    /// no signal.
    pub fn guarded(&self, of_modes: &[f64], recipe: &Recipe, powers: &[f64]) -> Vec<f64> {
        let n = self.order.len();
        if !self.has_rough_modes(recipe) {
            return powers.to_vec();
        }
        let rough = &self.order[n - self.n_rough(recipe)..];
        let middle = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let bin = |at: usize| {
            let modes = &rough[at * rough.len() / recipe.guard_bins..(at + 1) * rough.len() / recipe.guard_bins];
            let x = middle(modes.iter().map(|&mode| self.eigenvalues[mode]).collect());
            let y = median(modes.iter().map(|&mode| of_modes[mode]).collect());
            (x, y.max(f64::MIN_POSITIVE).ln())
        };
        let points: Vec<(f64, f64)> = (0..recipe.guard_bins).map(bin).collect();
        let (x, y) = (middle(points.iter().map(|p| p.0).collect()), middle(points.iter().map(|p| p.1).collect()));
        let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
        let slope = if spread > 0.0 { points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread } else { 0.0 };
        let on_line = |band: usize| {
            let at = middle(self.of(band, &self.eigenvalues).collect());
            (y + slope * (at - x)).exp()
        };
        powers.iter().enumerate().map(|(band, power)| power.min(on_line(band))).collect()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    0.5 * (values[(n - 1) / 2] + values[n / 2])
}
