//! What is accumulated about one feature, over the kept sweeps of a chain or of several.

use super::matching::dot;
use super::posterior::UnitImage;

/// Running moments of one feature over the kept sweeps in which it was present.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureMoments {
    /// Its number among all that were ever met.
    pub id: u64,
    /// The chain's own name for it when it was last seen.
    pub last_id: u64,
    /// Kept sweeps in which it was there.
    pub n_present: u64,
    /// Mean of the unit-norm feature, by site.
    pub mean: Vec<f32>,
    /// Sum of squared deviations from the mean, by site.
    pub deviations: Vec<f32>,
    /// Kept sweeps in which the feature exceeded the size asked for, by site.
    pub exceeds: Vec<u32>,
    /// The smoothness of every kept draw along each axis, in sites, draw by draw.
    pub widths: Vec<f32>,
    /// Sum of weights (for the unit-norm feature), by row.
    pub weights: Vec<f64>,
    /// Kept sweeps in which the row used the feature.
    pub active: Vec<u32>,
    /// For each chain, the sum of squares that the feature accounts for in every kept sweep; 0 where it was not there.
    pub series: Vec<Vec<f64>>,
}

impl FeatureMoments {
    /// One that was not seen in the kept sweeps so far.
    pub fn new(id: u64, n_rows: usize, n_sites: usize, n_missed: usize) -> FeatureMoments {
        FeatureMoments {
            id,
            last_id: 0,
            n_present: 0,
            mean: vec![0.0; n_sites],
            deviations: vec![0.0; n_sites],
            exceeds: vec![0; n_sites],
            widths: Vec::new(),
            weights: vec![0.0; n_rows],
            active: vec![0; n_rows],
            series: vec![vec![0.0; n_missed]],
        }
    }

    /// Adds a draw with the (row, weight) entries that use it.
    pub fn add(&mut self, image: &UnitImage, column: &[(usize, f64)], exceed: f64, widths: Vec<f32>) {
        let UnitImage { values, norm } = image;
        self.n_present += 1;
        self.widths.extend(widths);
        let size = exceed * values.iter().map(|&x| f64::from(x.abs())).sum::<f64>() / values.len() as f64;
        self.exceeds.iter_mut().zip(values).for_each(|(n, x)| *n += u32::from(f64::from(x.abs()) > size));
        let sign = if dot(values, &self.mean) < 0.0 { -1.0 } else { 1.0 };
        let n = self.n_present as f64;
        for ((x, mean), deviation) in values.iter().zip(&mut self.mean).zip(&mut self.deviations) {
            let unit = sign * f64::from(*x);
            let before = unit - f64::from(*mean);
            let moved = f64::from(*mean) + before / n;
            *deviation = (f64::from(*deviation) + before * (unit - moved)) as f32;
            *mean = moved as f32;
        }
        let mut energy = 0.0;
        for &(row, weight) in column {
            self.weights[row] += sign * weight * norm;
            self.active[row] += 1;
            energy += (weight * norm).powi(2);
        }
        // What is there is never 0.
        self.series[0].push(energy.max(f64::MIN_POSITIVE));
    }

    /// A kept sweep without it.
    pub fn miss(&mut self) {
        self.series[0].push(0.0);
    }

    /// Adds what another chain has found of the same feature.
    pub fn join(&mut self, other: &FeatureMoments) {
        let sign = if dot(&self.mean, &other.mean) < 0.0 { -1.0 } else { 1.0 };
        let (own, new) = (self.n_present as f64, other.n_present as f64);
        let n = (own + new).max(1.0);
        let sites = self.mean.iter_mut().zip(&mut self.deviations).zip(other.mean.iter().zip(&other.deviations));
        for ((mean, deviation), (other_mean, other_deviation)) in sites {
            let apart = sign * f64::from(*other_mean) - f64::from(*mean);
            *deviation = (f64::from(*deviation) + f64::from(*other_deviation) + apart * apart * own * new / n) as f32;
            *mean = (f64::from(*mean) + apart * new / n) as f32;
        }
        self.exceeds.iter_mut().zip(&other.exceeds).for_each(|(sum, x)| *sum += x);
        self.weights.iter_mut().zip(&other.weights).for_each(|(sum, x)| *sum += sign * x);
        self.active.iter_mut().zip(&other.active).for_each(|(sum, x)| *sum += x);
        self.widths.extend_from_slice(&other.widths);
        self.n_present += other.n_present;
    }

    /// The mean sum of squares the feature accounts for, over the sweeps in which it was present.
    pub fn mean_energy(&self) -> f64 {
        self.series.iter().flatten().sum::<f64>() / (self.n_present as f64).max(1.0)
    }

    /// In how many chains it is there in at least half of the kept sweeps.
    pub fn n_chains(&self) -> usize {
        let n_present = |series: &[f64]| series.iter().filter(|x| **x > 0.0).count();
        self.series.iter().filter(|series| !series.is_empty() && 2 * n_present(series) >= series.len()).count()
    }
}
