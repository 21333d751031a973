//! Prediction of hidden cells: some cells of new rows are hidden, inferred from the rest, and compared; and the same for
//! probabilistic principal components.

use super::probabilistic_pca::{Baseline, visible_products};
use crate::compiled::Sampled;
use crate::data::observations::Watch;
use crate::data::preprocess::MeansOf;
use crate::data::regression::{Regression, RunFit};
use crate::data::{Observations, Preprocessing, Rows, memory};
use crate::error::{Error, Result};
use crate::new_rows::transform::{CenterNew, NewRowSettings};
use crate::new_rows::{Effort, FeaturesAre, feature_terms, infer_row};
use crate::noise::{Filter, levels_of_rows};
use crate::numeric::linalg::{View, multiply};
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::run::draws::Draw;
use crate::run::inputs;
use crate::run::settings::Precision;
use crate::summary::Fitted;
use rand::RngExt;
use serde::Serialize;

/// The figures of `issfa evaluate --data`.
#[derive(Clone, Debug, Serialize)]
pub struct HiddenReport {
    /// Cells that were hidden.
    pub n_hidden: usize,
    /// What rows took the features for: these have hidden cells.
    pub features_of_new_rows: FeaturesAre,
    /// Mean squared error of the hidden cells, in the user's units squared: features, and under a noise reference the noise
    /// that the visible cells tell of.
    pub hidden_cell_error: f64,
    /// One minus the error over the variance of the hidden cells, after centring as the fit asks.
    pub r2: f64,
    /// The error of the features alone.
    pub signal_error: f64,
    /// The same share of the features alone.
    pub signal_r2: f64,
    /// The same error of probabilistic principal components.
    pub pca_hidden_cell_error: f64,
    /// The same share of theirs.
    pub pca_r2: f64,
    /// Their number, by cross-validation on the training rows.
    pub pca_dimension: usize,
    /// Their error over `hidden_cell_error`.
    pub pca_error_ratio: f64,
}

/// Squared errors and values of the hidden cells of a row that was left out of a fit, in the user's units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldRow {
    /// The run that it belongs to, from 0.
    pub run: usize,
    /// Its place there.
    pub row: usize,
    /// The sum of squared errors, as of [`HiddenReport::hidden_cell_error`].
    pub squared_error: f64,
    /// How many cells were hidden.
    pub n_hidden: usize,
    /// The sum of what centring leaves of their values.
    pub sum: f64,
    /// The sum of its squares.
    pub squares: f64,
}

/// A new row: prepared values, NaN where a cell is hidden or missing, and the hidden cells' truth.
struct Row {
    /// The run, and the place among all rows.
    run: usize,
    number: usize,
    prepared: Vec<f64>,
    hidden: Vec<usize>,
    /// Values of the hidden cells without the covariates' share.
    truth: Vec<f64>,
    /// What comes back beside the features: the site's mean, and the row's.
    offsets: Vec<f64>,
    /// The level of the noise.
    level: f64,
    /// The row as the sampler takes it, NaN where `prepared` is.
    white: Vec<f64>,
    /// Sums over draws of what the features explain, in the units of `prepared`.
    signal: Vec<f64>,
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
    let n_sites = fitted.mask.n_columns() as u64;
    let of_training = fitted.record.n_rows as u64 * n_sites * fitted.settings().precision.n_bytes();
    let rows = predicted(fitted, new, how, (share_hidden, seed), 3 * of_training)?;
    let training = fitted.training_rows(training)?;
    let baseline = match fitted.settings().precision {
        Precision::F32 => Baseline::fit::<f32>(&training, fitted, share_hidden, seed)?,
        Precision::F64 => Baseline::fit::<f64>(&training, fitted, share_hidden, seed)?,
    };
    let report = report(rows, fitted, how, Some(&baseline));
    how.heed().map(|()| report)
}

/// The share of the variance of hidden cells that is predicted, [`HiddenReport::r2`], without a comparison.
pub fn r2(fitted: &Fitted, new: &Rows, how: &NewRowSettings, hidden: (f64, u64)) -> Result<f64> {
    let report = report(predicted(fitted, new, how, hidden, 0)?, fitted, how, None);
    how.heed().map(|()| report.r2)
}

/// New rows with hidden cells and what the kept draws say of them; `more` bytes will be needed beside them.
fn predicted(
    fitted: &Fitted,
    new: &Rows,
    how: &NewRowSettings,
    (share_hidden, seed): (f64, u64),
    more: u64,
) -> Result<Vec<Row>> {
    check_share(share_hidden)?;
    let observations = fitted.open_rows(new, how)?;
    check_memory(&observations, more)?;
    let mut rows = hide(&observations, share_hidden, seed)?;
    let own = match how.center {
        CenterNew::Train => Vec::new(),
        CenterNew::Own => own_fits(&rows, &observations),
    };
    let means_of = |run: usize| own.get(run).map_or(MeansOf::Training, MeansOf::These);
    prepare(&mut rows, &observations, &fitted.preprocessing, &means_of);
    let recipe = &fitted.settings().noise_reference;
    filter(&mut rows, &observations, fitted, how, &|filter, _, own| {
        levels_of_rows(filter, own.iter().map(|row| &row.prepared[..]), recipe)
    });
    predict_in(fitted, how, rows)
}

/// Hides a share of the cells of rows that a fit left out, a part of the rows of its own runs, and predicts them: with the
/// means, slopes and noise that the rest of their run has shown. `watch` is asked whether to stop.
pub fn held_rows(
    fitted: &Fitted,
    held: &Rows,
    (share_hidden, seed): (f64, u64),
    watch: Option<Watch>,
) -> Result<Vec<HeldRow>> {
    check_share(share_hidden)?;
    let (settings, how) = (fitted.settings(), &NewRowSettings { watch, ..NewRowSettings::default() });
    let mut observations = inputs::open(held, settings)?;
    let mask = Some(fitted.mask.clone());
    inputs::choose_cells(&mut observations, held, settings, fitted.structure.grid(), mask)?;
    check_memory(&observations, 0)?;
    let mut rows = hide(&observations, share_hidden, seed)?;
    prepare(&mut rows, &observations, &fitted.preprocessing, &MeansOf::Run);
    filter(&mut rows, &observations, fitted, how, &|filter, run, own| {
        vec![filter.reference().run_levels[run]; own.len()]
    });
    let rows = predict_in(fitted, how, rows)?;
    let errors = squared_errors(&rows, fitted, how, None);
    let one = |(row, [_, both, _]): (&Row, &[f64; 3])| {
        let (kept, _) = observations.kept_rows(row.run);
        HeldRow {
            run: row.run,
            row: kept[row.number - observations.run_rows(row.run).start],
            squared_error: *both,
            n_hidden: row.hidden.len(),
            sum: row.left().sum(),
            squares: row.left().map(|x| x * x).sum(),
        }
    };
    Ok(rows.iter().zip(&errors).map(one).collect())
}

fn check_share(hidden: f64) -> Result<()> {
    match hidden > 0.0 && hidden < 1.0 {
        true => Ok(()),
        false => Err(Error::setting("hide", hidden, "give a share above 0 and below 1, such as 0.2")),
    }
}

fn check_memory(observations: &Observations, more: u64) -> Result<()> {
    let (n_rows, n_columns) = (observations.n_rows() as u64, observations.n_columns() as u64);
    memory::check("hidden cells of new rows, and principal components", 40 * n_rows * n_columns + more)
}

fn predict_in(fitted: &Fitted, how: &NewRowSettings, rows: Vec<Row>) -> Result<Vec<Row>> {
    match fitted.settings().precision {
        Precision::F32 => predict::<f32>(fitted, how, rows),
        Precision::F64 => predict::<f64>(fitted, how, rows),
    }
}

fn predict<R: Sampled>(fitted: &Fitted, how: &NewRowSettings, mut rows: Vec<Row>) -> Result<Vec<Row>> {
    let draws = fitted.draws()?;
    for number in 0..draws.len() {
        how.heed()?;
        let draw = draws.read::<R>(number)?;
        let streams = Streams { seed: fitted.settings().seed, chain: 0, sweep: number as u64 };
        add_predictions(&draw, fitted, &streams, how, &mut rows);
    }
    how.heed()?;
    // Of a row without any visible cell nothing can be said.
    rows.retain(|row| row.prepared.iter().any(|x| !x.is_nan()));
    Ok(rows)
}

/// The levels of the noise in the rows of a run.
type LevelsOf<'a> = dyn Fn(&Filter, usize, &[Row]) -> Vec<f64> + 'a;

/// Rows as the sampler takes them: filtered, where the noise was measured, each at its level.
fn filter(rows: &mut [Row], observations: &Observations, fitted: &Fitted, how: &NewRowSettings, levels_of: &LevelsOf) {
    let Some(filter) = &fitted.noise else {
        rows.iter_mut().for_each(|row| row.white = row.prepared.clone());
        return;
    };
    for run in 0..observations.n_runs() {
        let own = &mut rows[observations.run_rows(run)];
        let levels = levels_of(filter, run, own);
        share(own.iter_mut().zip(levels), Vec::new, |scratch, (row, level)| {
            row.level = level;
            row.white = row.prepared.clone();
            if row.white.iter().any(|x| !x.is_nan()) && !how.is_over() {
                filter.to_columns(&mut row.white, level, scratch);
            }
        });
    }
}

/// Raw rows with some of their cells hidden.
fn hide(observations: &Observations, share: f64, seed: u64) -> Result<Vec<Row>> {
    let n_sites = observations.n_columns();
    let mut rows = Vec::new();
    observations.for_each_chunk_with_holes(&mut |run, first_row, values| {
        for (at, raw) in values.chunks_exact_mut(n_sites).enumerate() {
            let mut stream = Streams::once(seed).stream(Purpose::HiddenCells, 0, (first_row + at) as u64);
            let chosen = |site: &usize| stream.random::<f64>() < share && !raw[*site].is_nan();
            let hidden: Vec<usize> = (0..n_sites).filter(chosen).collect();
            let truth = hidden.iter().map(|&site| raw[site]).collect();
            hidden.iter().for_each(|&site| raw[site] = f64::NAN);
            let (prepared, offsets, signal) = (raw.to_vec(), vec![0.0; hidden.len()], vec![0.0; n_sites]);
            let (number, level, white) = (first_row + at, 1.0, Vec::new());
            rows.push(Row { run, number, prepared, hidden, truth, offsets, level, white, signal });
        }
        Ok(())
    })?;
    Ok(rows)
}

/// Means and slopes of the visible cells of every run.
fn own_fits(rows: &[Row], observations: &Observations) -> Vec<RunFit> {
    let covariates = observations.covariates();
    let mut regression = Regression::new(observations.n_runs(), observations.n_columns(), covariates.n_columns());
    rows.iter().for_each(|row| regression.add(row.run, covariates.row(row.number), &row.prepared));
    regression.finish().runs
}

/// Centres rows by means that do not know of the hidden cells.
fn prepare<'a>(
    rows: &mut [Row],
    observations: &Observations,
    preprocessing: &'a Preprocessing,
    means_of: &dyn Fn(usize) -> MeansOf<'a>,
) {
    let covariates = observations.covariates();
    for row in rows {
        let (covariates, means) = (covariates.row(row.number), means_of(row.run));
        let mut whole = vec![0.0; row.prepared.len()];
        row.hidden.iter().zip(&row.truth).for_each(|(&site, &x)| whole[site] = x);
        preprocessing.clean(&mut whole, covariates, means);
        row.truth = row.hidden.iter().map(|&site| whole[site]).collect();
        let offset = preprocessing.apply(&mut row.prepared, covariates, means);
        let site_means = preprocessing.site_means(means);
        let mean = |site: &usize| site_means.get(*site).copied().unwrap_or(0.0);
        row.offsets = row.hidden.iter().map(|site| mean(site) + offset).collect();
    }
}

/// Adds one draw's predictions; `G_t` and `C_t` leave the cells that are not seen out.
fn add_predictions<R: Sampled>(
    draw: &Draw<R>,
    fitted: &Fitted,
    streams: &Streams,
    how: &NewRowSettings,
    rows: &mut [Row],
) {
    let state = &draw.state;
    let (k, n_sites) = (state.n_features(), fitted.mask.n_columns());
    let features = fitted.at_sites(&draw.feature_means);
    let shown = fitted.prepared_images(&draw.feature_means);
    let mut gram = vec![0.0; k * k];
    let all = View::new(&features, k, n_sites);
    multiply(&mut gram, all, all.t());
    share(
        rows.iter_mut().enumerate(),
        || (),
        |_, (number, row)| {
            if how.is_over() {
                return;
            }
            let (with_data, own_gram) = visible_products(&row.white, &features, &gram, k);
            let norms: Vec<f64> = (0..k).map(|j| own_gram[j * k + j].max(0.0)).collect();
            let mut stream = streams.stream(Purpose::NewRows, 1, number as u64);
            let terms = feature_terms(state, fitted.settings().weight_tails(), &norms);
            let means = infer_row(&terms, &with_data, &own_gram, Effort::FULL, &mut stream);
            for (weight, image) in means.weights.iter().zip(shown.chunks_exact(n_sites)) {
                row.signal.iter_mut().zip(image).for_each(|(sum, x)| *sum += row.level * weight * x);
            }
        },
    );
}

/// Prediction minus truth of the hidden cells, in the user's units.
fn errors(row: &Row, predicted: &[f64], fitted: &Fitted) -> Vec<f64> {
    let preprocessing = &fitted.preprocessing;
    let scale = |site: usize| preprocessing.site_scales.get(site).copied().unwrap_or(1.0) * preprocessing.factor;
    let error = |at: usize| predicted[at] * scale(row.hidden[at]) + row.offsets[at] - row.truth[at];
    (0..row.hidden.len()).map(error).collect()
}

impl Row {
    /// What is left of the hidden cells for features to explain: the site means that come back by themselves are not their
    /// merit.
    fn left(&self) -> impl Iterator<Item = f64> {
        self.truth.iter().zip(&self.offsets).map(|(truth, offset)| truth - offset)
    }
}

/// Of every row, squared errors of the features alone, with the noise, and of principal components.
fn squared_errors(rows: &[Row], fitted: &Fitted, how: &NewRowSettings, baseline: Option<&Baseline>) -> Vec<[f64; 3]> {
    let n_draws = fitted.n_draws() as f64;
    let mut squares = vec![[0.0; 3]; rows.len()];
    share(squares.iter_mut().zip(rows), Vec::new, |scratch, (squares, row)| {
        if how.is_over() {
            return;
        }
        let signal: Vec<f64> = row.signal.iter().map(|x| x / n_draws).collect();
        let at_hidden = |values: &[f64]| row.hidden.iter().map(|&site| values[site]).collect::<Vec<f64>>();
        let mut both = signal.clone();
        if let Some(filter) = &fitted.noise {
            let mut noise: Vec<f64> = row.prepared.iter().zip(&signal).map(|(y, s)| y - s).collect();
            filter.noise_given_the_rest(&mut noise, row.level, scratch);
            both.iter_mut().zip(&noise).for_each(|(x, noise)| *x += noise);
        }
        let of_pca = match baseline {
            Some(baseline) => baseline.predict(&row.prepared, &row.hidden),
            None => vec![f64::NAN; row.hidden.len()],
        };
        for (square, predicted) in squares.iter_mut().zip([at_hidden(&signal), at_hidden(&both), of_pca]) {
            *square = errors(row, &predicted, fitted).iter().map(|e| e * e).sum::<f64>();
        }
    });
    squares
}

fn report(rows: Vec<Row>, fitted: &Fitted, how: &NewRowSettings, baseline: Option<&Baseline>) -> HiddenReport {
    let squares = squared_errors(&rows, fitted, how, baseline);
    let [alone, both, pca] = [0, 1, 2].map(|which| squares.iter().map(|own| own[which]).sum::<f64>());
    let n: usize = rows.iter().map(|row| row.hidden.len()).sum();
    let left = || rows.iter().flat_map(Row::left);
    let mean = left().sum::<f64>() / n as f64;
    let total: f64 = left().map(|x| (x - mean).powi(2)).sum();
    HiddenReport {
        n_hidden: n,
        features_of_new_rows: FeaturesAre::AtTheirMeans,
        hidden_cell_error: both / n as f64,
        r2: 1.0 - both / total,
        signal_error: alone / n as f64,
        signal_r2: 1.0 - alone / total,
        pca_hidden_cell_error: pca / n as f64,
        pca_r2: 1.0 - pca / total,
        pca_dimension: baseline.map_or(0, |baseline| baseline.dimension),
        pca_error_ratio: pca / both,
    }
}
