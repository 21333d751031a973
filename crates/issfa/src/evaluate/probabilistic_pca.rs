//! Hidden cells by probabilistic principal components: the mean of the hidden cells given the visible ones under
//! `N(0, V (L - s I) V' + s I)`, with the number of components by cross-validation on the training rows.

use crate::compiled::Sampled;
use crate::data::Observations;
use crate::data::preprocess::MeansOf;
use crate::error::Result;
use crate::numeric::linalg::{View, cholesky, multiply, solve_cholesky};
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::spectral::load::lay_out;
use crate::spectral::{SpectralData, Tiles};
use crate::summary::Fitted;
use rand::RngExt;

/// The numbers of components that are tried.
const DIMENSIONS: [usize; 24] =
    [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 90, 110, 130, 150, 175, 200];
/// Parts that the training rows are divided into, each left out once.
const FOLDS: usize = 3;
/// The most rows of a part that are predicted.
const MOST_ROWS: usize = 100;

/// Fitted to the training rows.
pub struct Baseline {
    model: Components,
    /// Chosen on the training rows.
    pub dimension: usize,
}

/// Components by column with their variances.
struct Components {
    /// One after the other.
    images: Vec<f64>,
    /// Products of the components with each other: the identity but for rounding.
    gram: Vec<f64>,
    /// The variance along each.
    variances: Vec<f64>,
    /// Of a row.
    total: f64,
    n_columns: usize,
}

impl Baseline {
    /// Of prepared training rows; cells that are missing count as 0. `share_hidden` of the cells are hidden to choose the
    /// dimension.
    pub fn fit<R: Sampled>(training: &Observations, fitted: &Fitted, share_hidden: f64, seed: u64) -> Result<Baseline> {
        let (n_rows, n_columns) = (training.n_rows(), training.n_columns());
        let mut data = SpectralData::<R>::zeros(n_rows, Tiles::whole(n_columns));
        let covariates = training.covariates();
        training.for_each_chunk(&mut |run, first_row, values| {
            for (at, row) in values.chunks_exact_mut(n_columns).enumerate() {
                fitted.preprocessing.apply(row, covariates.row(first_row + at), MeansOf::Run(run));
                row.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = 0.0);
            }
            lay_out(values, first_row, &mut data);
            Ok(())
        })?;
        let dimension = choose(&data, share_hidden, seed);
        Ok(Baseline { model: Components::of(&data), dimension })
    }

    /// The mean of the hidden cells given the others (those not NaN), in the units of prepared rows.
    pub fn predict(&self, row: &[f64], hidden: &[usize]) -> Vec<f64> {
        self.model.predict(row, hidden, &[self.dimension]).pop().expect("one a dimension")
    }
}

/// The dimension with the least error on hidden cells of training rows that were left out. Parts are stretches of rows that
/// follow each other, since neighbours in a series are alike.
fn choose<R: Sampled>(data: &SpectralData<R>, share_hidden: f64, seed: u64) -> usize {
    let n = data.n_rows();
    let mut errors = vec![0.0; DIMENSIONS.len()];
    let n_folds = FOLDS.min(n);
    for fold in 0..n_folds {
        let out = fold * n / n_folds..(fold + 1) * n / n_folds;
        let kept: Vec<usize> = (0..n).filter(|row| !out.contains(row)).collect();
        if kept.is_empty() {
            return 0;
        }
        let mut part = SpectralData::<R>::zeros(kept.len(), data.tiles());
        kept.iter().enumerate().for_each(|(at, &row)| lay_out(&data.row(row), at, &mut part));
        let model = Components::of(&part);
        let rows: Vec<usize> = out.clone().step_by(out.len().div_ceil(MOST_ROWS).max(1)).collect();
        let mut of_rows = vec![vec![0.0; DIMENSIONS.len()]; rows.len()];
        share(
            of_rows.iter_mut().zip(&rows),
            || (),
            |_, (errors, &number)| {
                let mut row = data.row(number);
                let mut stream = Streams::once(seed).stream(Purpose::HiddenCells, 1, number as u64);
                let hidden: Vec<usize> = (0..row.len()).filter(|_| stream.random::<f64>() < share_hidden).collect();
                let truth: Vec<f64> = hidden.iter().map(|&site| row[site]).collect();
                hidden.iter().for_each(|&site| row[site] = f64::NAN);
                for (error, predicted) in errors.iter_mut().zip(model.predict(&row, &hidden, &DIMENSIONS)) {
                    *error = predicted.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum();
                }
            },
        );
        of_rows.iter().for_each(|own| errors.iter_mut().zip(own).for_each(|(sum, e)| *sum += e));
    }
    let best = (0..DIMENSIONS.len()).min_by(|&a, &b| errors[a].total_cmp(&errors[b])).unwrap_or(0);
    DIMENSIONS[best]
}

impl Components {
    fn of<R: Sampled>(data: &SpectralData<R>) -> Components {
        let found = R::components(data, DIMENSIONS[DIMENSIONS.len() - 1]);
        let (d, n_columns, n_rows) = (found.spectra.n_features(), data.n_modes(), data.n_rows() as f64);
        let images: Vec<f64> = (0..d).flat_map(|component| found.spectra.feature(component)).collect();
        let mut gram = vec![0.0; d * d];
        let all = View::new(&images, d, n_columns);
        multiply(&mut gram, all, all.t());
        let variances = found.squares.iter().map(|square| square / n_rows).collect();
        Components { images, gram, variances, total: found.total / n_rows, n_columns }
    }

    /// The mean of the hidden cells for several numbers of components (as many as there are, at most).
    fn predict(&self, row: &[f64], hidden: &[usize], dimensions: &[usize]) -> Vec<Vec<f64>> {
        let (d, n) = (self.variances.len(), self.n_columns);
        let (with_data, own) = visible_products(row, &self.images, &self.gram, d);
        let of = |dimension: usize| {
            let k = dimension.min(d);
            let explained: f64 = self.variances[..k].iter().sum();
            let noise = ((self.total - explained) / (n - k).max(1) as f64).max(1e-9 * self.total / n as f64);
            let root = |i: usize| (self.variances[i] - noise).max(0.0).sqrt();
            let mut system: Vec<f64> =
                (0..k * k).map(|at| root(at / k) * own[at / k * d + at % k] * root(at % k)).collect();
            (0..k).for_each(|i| system[i * k + i] += noise);
            let right: Vec<f64> = (0..k).map(|i| root(i) * with_data[i]).collect();
            let mut predicted = vec![0.0; hidden.len()];
            let Some(lower) = cholesky(&system, k) else { return predicted };
            for (component, score) in solve_cholesky(&lower, &right).iter().enumerate() {
                let image = &self.images[component * n..];
                let weight = root(component) * score;
                predicted.iter_mut().zip(hidden).for_each(|(sum, &site)| *sum += weight * image[site]);
            }
            predicted
        };
        dimensions.iter().map(|&dimension| of(dimension)).collect()
    }
}

/// Inner products of a row with images, and of images with each other, over the cells that are seen (not NaN).
pub fn visible_products(row: &[f64], images: &[f64], gram: &[f64], k: usize) -> (Vec<f64>, Vec<f64>) {
    let n_sites = row.len();
    let unseen: Vec<usize> = (0..n_sites).filter(|&site| row[site].is_nan()).collect();
    let product = |image: &[f64]| image.iter().zip(row).filter(|(_, y)| !y.is_nan()).map(|(s, y)| s * y).sum();
    let with_data = images.chunks_exact(n_sites).map(product).collect();
    let outside: Vec<f64> = (0..k).flat_map(|j| unseen.iter().map(move |&site| images[j * n_sites + site])).collect();
    let outside = View::new(&outside, k, unseen.len());
    let mut own = vec![0.0; k * k];
    multiply(&mut own, outside, outside.t());
    own.iter_mut().zip(gram).for_each(|(own, all)| *own = all - *own);
    (with_data, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_leave_unseen_cells_out() {
        let features = [1.0, 2.0, 3.0, 0.5, -1.0, 2.0];
        let gram = [14.0, 4.5, 4.5, 5.25];
        let (with_data, own) = visible_products(&[1.0, f64::NAN, 2.0], &features, &gram, 2);
        assert_eq!(with_data, [7.0, 4.5]);
        assert_eq!(own, [10.0, 6.5, 6.5, 4.25]);
    }

    /// Against the conditional mean written out with the dense covariance.
    #[test]
    fn predictions_are_conditional_means() {
        let rows: Vec<Vec<f64>> = (0..40)
            .map(|t| {
                let (a, b) = ((f64::from(t) * 0.7).sin() * 3.0, (f64::from(t) * 1.9).cos() * 2.0);
                (0..5)
                    .map(|v| a * f64::from(v + 1) + b * f64::from(v % 2) + (f64::from(t * 5 + v) * 2.3).sin())
                    .collect()
            })
            .collect();
        let data = SpectralData::<f64>::from_rows(&rows);
        let model = Components::of(&data);
        let k = 2;
        let noise = (model.total - model.variances[..k].iter().sum::<f64>()) / 3.0;
        let entry = |a: usize, b: usize| {
            let signal: f64 =
                (0..k).map(|i| model.images[i * 5 + a] * (model.variances[i] - noise) * model.images[i * 5 + b]).sum();
            signal + if a == b { noise } else { 0.0 }
        };
        let (seen, hidden) = ([0, 2, 4], [1, 3]);
        let row = [1.0, f64::NAN, -2.0, f64::NAN, 0.5];
        let block: Vec<f64> = (0..9).map(|at| entry(seen[at / 3], seen[at % 3])).collect();
        let solved = solve_cholesky(&cholesky(&block, 3).unwrap(), &seen.map(|site| row[site]));
        let predicted = model.predict(&row, &hidden, &[k]).pop().unwrap();
        for (at, &site) in hidden.iter().enumerate() {
            let mean: f64 = (0..3).map(|j| entry(site, seen[j]) * solved[j]).sum();
            assert!((predicted[at] - mean).abs() < 1e-9, "{} {mean}", predicted[at]);
        }
    }

    #[test]
    fn the_dimension_is_that_of_the_signal() {
        let mut stream = Streams::once(4).stream(Purpose::Simulation, 0, 0);
        let mut normal = || crate::model::simulate::normal(&mut stream);
        let images: Vec<Vec<f64>> = (0..3).map(|_| (0..40).map(|_| normal()).collect()).collect();
        let row = |_: usize| {
            let weights: Vec<f64> = (0..3).map(|_| normal()).collect();
            (0..40).map(|v| (0..3).map(|k| weights[k] * images[k][v]).sum::<f64>() + 0.5 * normal()).collect()
        };
        let rows: Vec<Vec<f64>> = (0..150).map(row).collect();
        assert_eq!(choose(&SpectralData::<f64>::from_rows(&rows), 0.2, 1), 3);
    }
}
