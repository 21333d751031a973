//! The span of all features, and the features in it that rows use most sparsely: what rank 0 works out for all.

use super::sparsest::{Kept, Orthonormal, SMALL_IN_THE_END, nearest_rotation};
use crate::model::{Entry, Loadings};
use crate::numeric::eigen::{Eigen, symmetric_eigen, symmetric_eigenvalues};
use crate::numeric::linalg::{View, cholesky, multiply, solve_cholesky};

/// Rows that are looked at, at most.
const MOST_ROWS: usize = 1 << 14;
/// Directions are taken for this share of the largest eigenvalue of `W'W` at least: what can be divided by.
const LEAST_DIRECTION: f64 = 1e-12;
/// Of two columns that are nearly one, added to the squares of both as a share of them.
const RIDGE: f64 = 1e-6;
/// Rows must use this share of as many features at most.
const FEWER: f64 = 0.75;
/// Weights are left out that are less than so many standard deviations of what noise alone makes of them.
const NOISY: f64 = 3.0;

/// What all features become.
pub struct Turned {
    /// New features as combinations of the old ones: new x old, row-major.
    pub features: Vec<f64>,
    /// New weights as combinations of the old ones: old x new.
    pub weights: Vec<f64>,
    /// The least weight of each feature that is kept.
    pub least: Vec<f64>,
    /// The size that large weights have.
    pub large: f64,
}

impl Turned {
    /// As a message.
    pub fn to_numbers(&self) -> Vec<f64> {
        [&self.features[..], &self.weights, &self.least, &[self.large]].concat()
    }

    /// Of k features; nothing from nothing.
    pub fn from_numbers(numbers: &[f64], k: usize) -> Option<Turned> {
        let (features, rest) = numbers.split_at_checked(k * k)?;
        let (weights, rest) = rest.split_at_checked(k * k)?;
        let (large, least) = rest.split_last()?;
        Some(Turned { features: features.to_vec(), weights: weights.to_vec(), least: least.to_vec(), large: *large })
    }

    /// The weights of a row, those that are small among them.
    pub fn weights_of(&self, entries: &[Entry], new: &mut [f64]) {
        combine(entries, &self.weights, new);
    }

    /// The weights of a row that are kept.
    pub fn kept<'a>(&'a self, weights: &'a [f64]) -> impl Iterator<Item = Entry> + 'a {
        let large = weights.iter().zip(&self.least).enumerate().filter(|(_, (weight, least))| weight.abs() >= **least);
        large.map(|(feature, (&weight, _))| Entry { feature, weight })
    }

    fn n_uses(&self, loadings: &Loadings) -> usize {
        let mut weights = vec![0.0; self.least.len()];
        let mut of_row = |entries: &Vec<Entry>| {
            self.weights_of(entries, &mut weights);
            self.kept(&weights).count()
        };
        loadings.rows().iter().map(&mut of_row).sum()
    }
}

/// The span of all features: `W S = X L^1/2 P' S`, where `W'W = P L P'` and `X = W P L^-1/2` has orthonormal columns.
pub struct Span {
    k: usize,
    eigen: Eigen,
    /// `W'W`, its diagonal.
    squares: Vec<f64>,
    /// `S S'`.
    gram: Vec<f64>,
}

impl Span {
    /// From `W'W` and `S S'`.
    pub fn new(weights: &[f64], gram: Vec<f64>, k: usize) -> Span {
        let mut eigen = symmetric_eigen(weights, k);
        let least = LEAST_DIRECTION * eigen.values.last().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
        eigen.values.iter_mut().for_each(|value| *value = value.max(least));
        Span { k, eigen, squares: weights.iter().step_by(k + 1).copied().collect(), gram }
    }

    /// Squared singular values of `W S`, ascending.
    pub fn energies(&self) -> Vec<f64> {
        let roots = self.scaled(0.5);
        let half = self.product(self.square(&roots).t(), self.square(&self.gram));
        symmetric_eigenvalues(&self.product(self.square(&half), self.square(&roots)), self.k)
    }

    /// The features that rows use most sparsely, if they use far fewer of them.
    pub fn sparser(&self, loadings: &Loadings, noise_variance: f64) -> Option<Turned> {
        let x = self.rows(loadings);
        let turned = self.turned(&x, &x.sparse(self.now()), noise_variance)?;
        let most = FEWER * loadings.n_active() as f64;
        (turned.n_uses(loadings) as f64 <= most).then_some(turned)
    }

    /// X, at some rows.
    fn rows(&self, loadings: &Loadings) -> Orthonormal {
        let (k, whitening) = (self.k, self.scaled(-0.5));
        let every = loadings.n_rows().div_ceil(MOST_ROWS).max(1);
        let some = || loadings.rows().iter().step_by(every);
        let mut values = vec![0.0; some().len() * k];
        for (row, entries) in values.chunks_exact_mut(k).zip(some()) {
            combine(entries, &whitening, row);
        }
        Orthonormal { n: some().len(), k, values }
    }

    /// R with `X R` nearest to W, its columns brought to norm 1.
    fn now(&self) -> Vec<f64> {
        let (k, roots) = (self.k, self.scaled(0.5));
        let norm = |feature: usize| self.squares[feature].max(f64::MIN_POSITIVE).sqrt();
        let unit: Vec<f64> = (0..k * k).map(|at| roots[at % k * k + at / k] / norm(at % k)).collect();
        nearest_rotation(&unit, k)
    }

    /// Features and weights at sparse columns, in units in which large weights are alike and features, on average, as large as
    /// they were.
    fn turned(&self, x: &Orthonormal, kept: &Kept, noise_variance: f64) -> Option<Turned> {
        let (k, sizes) = (self.k, &kept.sizes);
        let mut features = self.explaining(x, kept)?;
        let half = self.product(self.square(&features), self.square(&self.gram));
        let energies = self.product(self.square(&half), self.square(&features).t());
        let energy = |new: usize| energies[new * (k + 1)].max(0.0) * sizes[new] * sizes[new];
        let large = ((0..k).map(energy).sum::<f64>() / self.gram.iter().step_by(k + 1).sum::<f64>()).sqrt();
        let least = |new: usize| {
            // A weight alone is known up to the noise over the norm of its feature.
            let noisy = NOISY * large * (noise_variance / energy(new)).sqrt();
            if energy(new) > 0.0 { noisy.max(SMALL_IN_THE_END * large) } else { f64::INFINITY }
        };
        let mut weights = self.product(self.square(&self.scaled(-0.5)), self.square(&kept.directions));
        for (at, weight) in weights.iter_mut().enumerate() {
            *weight *= if sizes[at % k] > 0.0 { large / sizes[at % k] } else { 0.0 };
        }
        features.iter_mut().enumerate().for_each(|(at, x)| *x *= sizes[at / k] / large);
        Some(Turned { features, weights, least: (0..k).map(least).collect(), large })
    }

    /// The features that explain `W S` best with the weights that are kept, new x old: `(V'V)^-1 V'X L^1/2 P'`.
    fn explaining(&self, x: &Orthonormal, kept: &Kept) -> Option<Vec<f64>> {
        let (k, [mut squares, with_x]) = (self.k, kept.products(x));
        squares.iter_mut().step_by(k + 1).for_each(|square| *square += RIDGE * *square + f64::MIN_POSITIVE);
        let lower = cholesky(&squares, k)?;
        let right = self.product(self.square(&with_x), self.square(&self.scaled(0.5)).t());
        let mut features = vec![0.0; k * k];
        for old in 0..k {
            let column: Vec<f64> = right.iter().skip(old).step_by(k).copied().collect();
            let solved = solve_cholesky(&lower, &column);
            features.iter_mut().skip(old).step_by(k).zip(solved).for_each(|(to, x)| *to = x);
        }
        Some(features)
    }

    /// `P L^power`.
    fn scaled(&self, power: f64) -> Vec<f64> {
        let scales: Vec<f64> = self.eigen.values.iter().map(|value| value.powf(power)).collect();
        self.eigen.vectors.iter().enumerate().map(|(at, p)| p * scales[at % self.k]).collect()
    }

    fn square<'a>(&self, matrix: &'a [f64]) -> View<'a, f64> {
        View::new(matrix, self.k, self.k)
    }

    fn product(&self, a: View<f64>, b: View<f64>) -> Vec<f64> {
        let mut product = vec![0.0; self.k * self.k];
        multiply(&mut product, a, b);
        product
    }
}

/// The weights of a row in combinations of its features: `combinations` is old x new.
fn combine(entries: &[Entry], combinations: &[f64], new: &mut [f64]) {
    new.fill(0.0);
    for Entry { feature, weight } in entries {
        let of_feature = &combinations[feature * new.len()..(feature + 1) * new.len()];
        new.iter_mut().zip(of_feature).for_each(|(new, x)| *new += weight * x);
    }
}
