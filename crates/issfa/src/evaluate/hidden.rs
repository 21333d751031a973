//! Prediction of hidden cells: some cells of new rows are hidden, inferred from the rest, and compared; and the same
//! for principal components by least squares on the visible cells.

use crate::comm::Solo;
use crate::data::preprocess::MeansOf;
use crate::data::regression::Regression;
use crate::data::{Observations, Preprocessing, Rows, memory};
use crate::error::{Error, Result};
use crate::new_rows::transform::{CenterNew, NewRowSettings};
use crate::new_rows::{Effort, feature_terms, infer_row};
use crate::numeric::linalg::{Real, View, cholesky, multiply};
use crate::numeric::workers::share;
use crate::pca;
use crate::rng::{Purpose, Streams};
use crate::run::draws::Draw;
use crate::run::settings::Precision;
use crate::spectral::load::{Loaded, training_rows};
use crate::structure::Direction;
use crate::summary::Fitted;
use rand::RngExt;
use serde::Serialize;

/// The largest number of principal components tried.
const MOST_COMPONENTS: usize = 200;

/// The figures of `issfa evaluate --data`.
#[derive(Clone, Debug, Serialize)]
pub struct HiddenReport {
    /// Cells that were hidden.
    pub n_hidden: usize,
    /// Mean squared error of the hidden cells, in the user's units squared.
    pub hidden_cell_error: f64,
    /// One minus the error over the variance of the hidden cells, after centring as the fit asks.
    pub r2: f64,
    /// The same error of PCA.
    pub pca_hidden_cell_error: f64,
    /// The same share of PCA.
    pub pca_r2: f64,
    /// The number of components with the least error on these very cells (the choice favours PCA).
    pub pca_dimension: usize,
    /// PCA's error over ours.
    pub pca_error_ratio: f64,
}

/// A new row: prepared values, NaN where a cell is hidden or missing, and the hidden cells' truth.
struct Row {
    prepared: Vec<f64>,
    hidden: Vec<usize>,
    /// Values of the hidden cells without the covariates' share.
    truth: Vec<f64>,
    /// What comes back beside the features: the site's mean, and the row's.
    offsets: Vec<f64>,
    /// Sums over draws of the predictions, prepared.
    predicted: Vec<f64>,
    /// Squared errors of PCA for each number of components from 0.
    pca_errors: Vec<f64>,
}

/// Hides a share of the cells of every new row and predicts them. The training rows, which principal components are
/// taken of, are read from the inputs of the fit unless they are given.
pub fn evaluate(
    fitted: &Fitted,
    new: &Rows,
    how: &NewRowSettings,
    (share_hidden, seed): (f64, u64),
    training: Option<Rows>,
) -> Result<HiddenReport> {
    if !(share_hidden > 0.0 && share_hidden < 1.0) {
        return Err(Error::setting("hide", share_hidden, "give a share above 0 and below 1, such as 0.2"));
    }
    fitted.draws()?;
    let observations = fitted.open_rows(new, how)?;
    let (n_rows, n_columns) = (observations.n_rows() as u64, observations.n_columns() as u64);
    let of_training = fitted.record.n_rows as u64 * n_columns * fitted.settings().precision.n_bytes();
    memory::check("hidden cells of new rows, and principal components", 16 * n_rows * n_columns + of_training)?;
    let mut rows = hide(&observations, share_hidden, seed)?;
    prepare(&mut rows, &observations, &fitted.preprocessing, how.center);
    match fitted.settings().precision {
        Precision::F32 => predict::<f32>(fitted, rows, training),
        Precision::F64 => predict::<f64>(fitted, rows, training),
    }
}

fn predict<R: Real>(fitted: &Fitted, mut rows: Vec<Row>, training: Option<Rows>) -> Result<HiddenReport> {
    let draws = fitted.draws()?;
    for number in 0..draws.len() {
        let draw = draws.read::<R>(number)?;
        let streams = Streams { seed: fitted.settings().seed, chain: 0, sweep: number as u64 };
        add_predictions(&draw, fitted, &streams, &mut rows);
    }
    // Of a row without any visible cell nothing can be said.
    rows.retain(|row| row.prepared.iter().any(|x| !x.is_nan()));
    add_pca_errors::<R>(&fitted.training_rows(training)?, fitted, &mut rows)?;
    Ok(report(rows, fitted))
}

/// Raw rows with some of their cells hidden.
fn hide(observations: &Observations, share: f64, seed: u64) -> Result<Vec<Row>> {
    let n_sites = observations.n_columns();
    let mut rows = Vec::new();
    observations.for_each_chunk_with_holes(&mut |_, first_row, values| {
        for (at, raw) in values.chunks_exact_mut(n_sites).enumerate() {
            let mut stream = Streams::once(seed).stream(Purpose::HiddenCells, 0, (first_row + at) as u64);
            let chosen = |site: &usize| stream.random::<f64>() < share && !raw[*site].is_nan();
            let hidden: Vec<usize> = (0..n_sites).filter(chosen).collect();
            let truth = hidden.iter().map(|&site| raw[site]).collect();
            hidden.iter().for_each(|&site| raw[site] = f64::NAN);
            let zeros = vec![0.0; hidden.len()];
            let (prepared, offsets, predicted) = (raw.to_vec(), zeros.clone(), zeros);
            rows.push(Row { prepared, hidden, truth, offsets, predicted, pca_errors: Vec::new() });
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Centres rows by the training means or by their own, which are taken over the visible cells.
fn prepare(rows: &mut [Row], observations: &Observations, preprocessing: &Preprocessing, center: CenterNew) {
    let covariates = observations.covariates();
    let run_of = |row: usize| (0..observations.n_runs()).find(|&run| observations.run_rows(run).contains(&row));
    let mut regression = Regression::new(observations.n_runs(), observations.n_columns(), covariates.n_columns());
    if center == CenterNew::Own {
        for (at, row) in rows.iter().enumerate() {
            regression.add(run_of(at).expect("every row is in a run"), covariates.row(at), &row.prepared);
        }
    }
    let own = regression.finish().runs;
    for (at, row) in rows.iter_mut().enumerate() {
        let run = run_of(at).expect("every row is in a run");
        let means = if center == CenterNew::Own { MeansOf::These(&own[run]) } else { MeansOf::Training };
        let mut whole = vec![0.0; row.prepared.len()];
        row.hidden.iter().zip(&row.truth).for_each(|(&site, &x)| whole[site] = x);
        preprocessing.clean(&mut whole, covariates.row(at), means);
        row.truth = row.hidden.iter().map(|&site| whole[site]).collect();
        let offset = preprocessing.apply(&mut row.prepared, covariates.row(at), means);
        let site_means = preprocessing.site_means(means);
        let mean = |site: &usize| site_means.get(*site).copied().unwrap_or(0.0);
        row.offsets = row.hidden.iter().map(|site| mean(site) + offset).collect();
    }
}

/// Adds one draw's predictions; `G_t` and `C_t` leave the cells that are not seen out.
fn add_predictions<R: Real>(draw: &Draw<R>, fitted: &Fitted, streams: &Streams, rows: &mut [Row]) {
    let state = &draw.state;
    let (k, n_sites) = (state.n_features(), fitted.mask.n_columns());
    let features = fitted.at_sites(&draw.feature_means);
    let mut gram = vec![0.0; k * k];
    let all = View::new(&features, k, n_sites);
    multiply(&mut gram, all, all.t());
    share(
        rows.iter_mut().enumerate(),
        || (),
        |_, (number, row)| {
            let (with_data, own_gram) = visible_products(&row.prepared, &features, &gram, k);
            let norms: Vec<f64> = (0..k).map(|j| own_gram[j * k + j].max(0.0)).collect();
            let mut stream = streams.stream(Purpose::NewRows, 1, number as u64);
            let means = infer_row(&feature_terms(state, &norms), &with_data, &own_gram, Effort::FULL, &mut stream);
            for (sum, &site) in row.predicted.iter_mut().zip(&row.hidden) {
                *sum += (0..k).map(|j| means.weights[j] * features[j * n_sites + site]).sum::<f64>();
            }
        },
    );
}

/// Inner products over the cells that are seen (not NaN).
fn visible_products(prepared: &[f64], features: &[f64], gram: &[f64], k: usize) -> (Vec<f64>, Vec<f64>) {
    let n_sites = prepared.len();
    let unseen: Vec<usize> = (0..n_sites).filter(|&site| prepared[site].is_nan()).collect();
    let product = |image: &[f64]| image.iter().zip(prepared).filter(|(_, y)| !y.is_nan()).map(|(s, y)| s * y).sum();
    let with_data = features.chunks_exact(n_sites).map(product).collect();
    let outside: Vec<f64> = (0..k).flat_map(|j| unseen.iter().map(move |&site| features[j * n_sites + site])).collect();
    let outside = View::new(&outside, k, unseen.len());
    let mut own = vec![0.0; k * k];
    multiply(&mut own, outside, outside.t());
    own.iter_mut().zip(gram).for_each(|(own, all)| *own = all - *own);
    (with_data, own)
}

fn add_pca_errors<R: Real>(training: &Observations, fitted: &Fitted, rows: &mut [Row]) -> Result<()> {
    let Loaded { data, domain, .. } =
        training_rows::<R>(training, &fitted.structure, &fitted.preprocessing, None, &Solo)?;
    let components = pca::components(&data, MOST_COMPONENTS).spectra;
    let (d, n_sites) = (components.n_features(), fitted.mask.n_columns());
    let mut images = vec![0.0; d * n_sites];
    share(images.chunks_exact_mut(n_sites).enumerate(), Vec::new, |scratch, (component, image)| {
        image.copy_from_slice(&components.feature(component));
        // Otherwise the data are given by site already.
        if domain.is_whole() {
            fitted.structure.apply(Direction::ToSites, image, scratch);
        }
    });
    let mut gram = vec![0.0; d * d];
    let all = View::new(&images, d, n_sites);
    multiply(&mut gram, all, all.t());
    share(
        rows.iter_mut(),
        || (),
        |_, row| {
            row.pca_errors = least_squares_errors(row, fitted, &images, &gram, d);
        },
    );
    Ok(())
}

/// Squared errors on the hidden cells for 0, 1, ... components, each fitted by least squares on the visible cells.
fn least_squares_errors(row: &Row, fitted: &Fitted, images: &[f64], gram: &[f64], d: usize) -> Vec<f64> {
    let n_sites = row.prepared.len();
    let (with_data, own) = visible_products(&row.prepared, images, gram, d);
    let squared_error = |coefficients: &[f64]| {
        let mut predicted = vec![0.0; row.hidden.len()];
        for (component, coefficient) in coefficients.iter().enumerate() {
            let image = &images[component * n_sites..];
            predicted.iter_mut().zip(&row.hidden).for_each(|(sum, &site)| *sum += coefficient * image[site]);
        }
        errors(row, &predicted, fitted).iter().map(|e| e * e).sum::<f64>()
    };
    let mut result = vec![squared_error(&[])];
    for n in 1..=d {
        // Leading blocks share their factors, but solving anew is simple and n is small.
        let block: Vec<f64> = (0..n * n).map(|at| own[at / n * d + at % n]).collect();
        let Some(lower) = cholesky(&block, n) else { break };
        result.push(squared_error(&solve(&lower, &with_data[..n])));
    }
    result
}

/// Solves `L L' x = b`.
fn solve(lower: &[f64], b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut x = b.to_vec();
    for i in 0..n {
        let dot: f64 = (0..i).map(|j| lower[i * n + j] * x[j]).sum();
        x[i] = (x[i] - dot) / lower[i * n + i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|j| lower[j * n + i] * x[j]).sum();
        x[i] = (x[i] - dot) / lower[i * n + i];
    }
    x
}

/// Prediction minus truth of the hidden cells, in the user's units.
fn errors(row: &Row, predicted: &[f64], fitted: &Fitted) -> Vec<f64> {
    let preprocessing = &fitted.preprocessing;
    let scale = |site: usize| preprocessing.site_scales.get(site).copied().unwrap_or(1.0) * preprocessing.factor;
    let error = |at: usize| predicted[at] * scale(row.hidden[at]) + row.offsets[at] - row.truth[at];
    (0..row.hidden.len()).map(error).collect()
}

fn report(rows: Vec<Row>, fitted: &Fitted) -> HiddenReport {
    let n_draws = fitted.chains[0].draws.len() as f64;
    let (mut ours, mut n) = (0.0, 0usize);
    let n_tried = rows.iter().map(|row| row.pca_errors.len()).min().unwrap_or(0);
    let mut pca = vec![0.0; n_tried];
    for row in &rows {
        let predicted: Vec<f64> = row.predicted.iter().map(|x| x / n_draws).collect();
        ours += errors(row, &predicted, fitted).iter().map(|e| e * e).sum::<f64>();
        pca.iter_mut().zip(&row.pca_errors).for_each(|(sum, e)| *sum += e);
        n += row.hidden.len();
    }
    // What is left for features to explain: the site means that come back by themselves are not their merit.
    let left = || rows.iter().flat_map(|row| row.truth.iter().zip(&row.offsets).map(|(truth, offset)| truth - offset));
    let mean = left().sum::<f64>() / n as f64;
    let total: f64 = left().map(|x| (x - mean).powi(2)).sum();
    let best = (0..n_tried).min_by(|&a, &b| pca[a].total_cmp(&pca[b])).unwrap_or(0);
    let best_error = pca.get(best).copied().unwrap_or(f64::NAN);
    HiddenReport {
        n_hidden: n,
        hidden_cell_error: ours / n as f64,
        r2: 1.0 - ours / total,
        pca_hidden_cell_error: best_error / n as f64,
        pca_r2: 1.0 - best_error / total,
        pca_dimension: best,
        pca_error_ratio: best_error / ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangular_solutions_solve() {
        let matrix = [4.0, 1.0, 0.5, 1.0, 3.0, 0.2, 0.5, 0.2, 2.0];
        let x = solve(&cholesky(&matrix, 3).unwrap(), &[1.0, 2.0, 3.0]);
        for i in 0..3 {
            let b: f64 = (0..3).map(|j| matrix[i * 3 + j] * x[j]).sum();
            assert!((b - (i as f64 + 1.0)).abs() < 1e-12);
        }
    }

    #[test]
    fn products_leave_unseen_cells_out() {
        let features = [1.0, 2.0, 3.0, 0.5, -1.0, 2.0];
        let gram = [14.0, 4.5, 4.5, 5.25];
        let (with_data, own) = visible_products(&[1.0, f64::NAN, 2.0], &features, &gram, 2);
        assert_eq!(with_data, [7.0, 4.5]);
        assert_eq!(own, [10.0, 6.5, 6.5, 4.25]);
    }
}
