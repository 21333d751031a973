//! What is not known of a draw's features, and new rows with it integrated out \[M12\].

use crate::kernels::metropolis;
use crate::kernels::shared_activations::Change;
use crate::kernels::unique_features::ln_evidence;
use crate::model::{Entry, State};
use crate::numeric::eigen::{Eigen, symmetric_eigen};
use crate::numeric::lanes::filled_up;
use crate::numeric::linalg::Real;
use crate::spectral::{FeatureSpectra, TILE};
use pulp::{Simd, WithSimd};

/// How features scatter about their means given all else in a state: with covariance `P diag(1/d_iv) P'` at mode v \[M2\].
pub struct Scatter<R> {
    /// P, a row a feature.
    rotation: Vec<f64>,
    /// `1/d_iv`, a spectrum for each column of P.
    variances: FeatureSpectra<R>,
    /// sigma^2.
    noise_variance: f64,
}

impl<R: Real> Scatter<R> {
    /// Of a state whose training rows were whole; `precisions` are those of a feature's modes.
    pub fn new(state: &State<R>, precisions: &[f64]) -> Scatter<R> {
        let noise_variance = state.noise_variance;
        let Eigen { values, vectors } = symmetric_eigen(&state.loadings.gram(), state.n_features());
        let of_column = |lambda: &f64| -> Vec<f64> {
            let told = lambda.max(0.0) / noise_variance;
            precisions.iter().map(|h| 1.0 / (h + told)).collect()
        };
        let variances: Vec<Vec<f64>> = values.iter().map(of_column).collect();
        Scatter {
            rotation: vectors,
            variances: FeatureSpectra::from_vectors(precisions.len(), &variances),
            noise_variance,
        }
    }

    /// `P'w`.
    fn rotated<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Vec<f64> {
        let mut rotated = vec![0.0; self.variances.n_features()];
        entries.for_each(|entry| self.add_rotated(entry.feature, entry.weight, &mut rotated));
        rotated
    }

    fn add_rotated(&self, feature: usize, weight: f64, rotated: &mut [f64]) {
        let row = &self.rotation[feature * rotated.len()..][..rotated.len()];
        rotated.iter_mut().zip(row).for_each(|(sum, p)| *sum += weight * p);
    }

    /// The covariance of `a S` and `b S` at every mode, `sum_i (P'a)_i (P'b)_i / d_iv`, from `P'a` and `P'b`.
    fn covariance(&self, a: &[f64], b: &[f64]) -> Vec<f64> {
        let products: Vec<R> = a.iter().zip(b).map(|(a, b)| R::from_f64(a * b)).collect();
        let tiles = self.variances.tiles();
        let mut covariance = Vec::with_capacity(tiles.n_modes);
        let arch = pulp::Arch::new();
        for tile in 0..tiles.len() {
            let sums = arch.dispatch(Weighted { products: &products, variances: self.variances.tile(tile) });
            covariance.extend(sums[..tiles.width(tile)].iter().map(|x| x.to_f64()));
        }
        covariance
    }

    /// The variance of `w S` at every mode.
    pub fn variance_of(&self, entries: &[Entry]) -> Vec<f64> {
        let rotated = self.rotated(entries.iter());
        self.covariance(&rotated, &rotated)
    }
}

/// A sum of spectra with factors, at one tile.
struct Weighted<'a, R> {
    products: &'a [R],
    variances: &'a [R],
}

impl<R: Real> WithSimd for Weighted<'_, R> {
    type Output = [R; TILE];

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> [R; TILE] {
        let mut sums = [R::zero(); TILE];
        let width = self.variances.len() / self.products.len().max(1);
        for (&product, spectrum) in self.products.iter().zip(self.variances.chunks_exact(width.max(1))) {
            sums.iter_mut().zip(spectrum).for_each(|(sum, x)| *sum = x.mul_add(product, *sum));
        }
        sums
    }
}

/// The share of one tile in `ln N(y; w m, s2 + q) - ln N(y; w m, s2)`.
struct RatioAt<'a> {
    residual: &'a [f64],
    variance: &'a [f64],
    noise_variance: f64,
}

impl WithSimd for RatioAt<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        ln_evidence(&filled_up(self.residual, 0.0), 1.0, &filled_up(self.variance, 0.0), self.noise_variance)
    }
}

/// A new row that uses some features with some weights.
#[derive(Clone, Default)]
struct Place {
    /// `P'w`.
    rotated: Vec<f64>,
    /// `y - w m`, by mode.
    residual: Vec<f64>,
    /// `q_v`, the variance of `w S`.
    variance: Vec<f64>,
    /// `ln N(y; w m, s2 + q) - ln N(y; w m, s2)`.
    ln_ratio: f64,
}

/// A new row on its way, with the features integrated out.
pub struct UncertainRow<'a, R> {
    scatter: &'a Scatter<R>,
    means: &'a FeatureSpectra<R>,
    now: Place,
    proposed: Place,
}

impl<'a, R: Real> UncertainRow<'a, R> {
    /// A row's spectrum with what it uses.
    pub fn new(
        scatter: &'a Scatter<R>,
        means: &'a FeatureSpectra<R>,
        spectrum: Vec<f64>,
        entries: &[Entry],
    ) -> UncertainRow<'a, R> {
        let mut now = Place { rotated: scatter.rotated(entries.iter()), residual: spectrum, ..Place::default() };
        entries.iter().for_each(|entry| add_feature(means, entry.feature, -entry.weight, &mut now.residual));
        judge(scatter, &mut now);
        UncertainRow { scatter, means, proposed: now.clone(), now }
    }

    /// `ln N(y; w m, s2 + q) - ln N(y; w m, s2)` at the weights as they are.
    pub fn ln_ratio(&self) -> f64 {
        self.now.ln_ratio
    }

    /// Whether a change proposed by one entry's conditional given the features at their means is made.
    pub fn accept(&mut self, change: Change, stream: &mut impl rand::Rng) -> bool {
        let (Change { feature, old, new }, proposed) = (change, &mut self.proposed);
        proposed.rotated.copy_from_slice(&self.now.rotated);
        self.scatter.add_rotated(feature, new - old, &mut proposed.rotated);
        proposed.residual.copy_from_slice(&self.now.residual);
        add_feature(self.means, feature, old - new, &mut proposed.residual);
        judge(self.scatter, proposed);
        let accepted = metropolis::accept(proposed.ln_ratio - self.now.ln_ratio, stream);
        if accepted {
            std::mem::swap(&mut self.now, &mut self.proposed);
        }
        accepted
    }

    /// Adds a share of what the row tells of the features that it uses, `E[w S | y, w] - w m`, but for some of them.
    pub fn add_told(&self, share: f64, entries: &[Entry], left_out: &[bool], sums: &mut [f64]) {
        let Place { rotated, residual, variance, .. } = &self.now;
        let is_shown = |entry: &&Entry| !left_out.get(entry.feature).copied().unwrap_or(false);
        let some;
        let shown = if entries.iter().all(|entry| is_shown(&entry)) {
            variance
        } else {
            some = self.scatter.covariance(&self.scatter.rotated(entries.iter().filter(is_shown)), rotated);
            &some
        };
        let noise = self.scatter.noise_variance;
        for (mode, sum) in sums.iter_mut().enumerate() {
            *sum += share * residual[mode] * shown[mode] / (noise + variance[mode]);
        }
    }
}

/// Adds a feature, times a weight, to a spectrum.
fn add_feature<R: Real>(features: &FeatureSpectra<R>, feature: usize, weight: f64, spectrum: &mut [f64]) {
    let tiles = features.tiles();
    for (tile, sums) in spectrum.chunks_mut(TILE).enumerate() {
        let width = tiles.width(tile);
        let values = &features.tile(tile)[feature * width..(feature + 1) * width];
        sums.iter_mut().zip(values).for_each(|(sum, x)| *sum += weight * x.to_f64());
    }
}

/// The variance and the ratio that belong to a place's weights.
fn judge<R: Real>(scatter: &Scatter<R>, place: &mut Place) {
    place.variance = scatter.covariance(&place.rotated, &place.rotated);
    let (arch, noise_variance) = (pulp::Arch::new(), scatter.noise_variance);
    let tiles = place.residual.chunks(TILE).zip(place.variance.chunks(TILE));
    place.ln_ratio =
        tiles.map(|(residual, variance)| arch.dispatch(RatioAt { residual, variance, noise_variance })).sum();
}
