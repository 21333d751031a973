//! The persistent features as they are reported: order, sign, table, smoothness.

use super::diagnostics::{effective_sample_size, quantile, split_r_hat};
use crate::chain::moments::FeatureMoments;
use crate::chain::posterior::Posterior;
use crate::data::Mask;
use crate::data::read::npy::read_npy_f32;
use crate::data::write::write_npy_f32;
use crate::error::{Error, Result};
use crate::numeric::table::{Format, Row};
use crate::run::checksums::Checksums;
use crate::run::folder::{ACTIVATION, FEATURE_TABLE, FEATURES, FEATURES_EXCEEDANCE, FEATURES_SD, PRESENCE, WEIGHTS};
use crate::structure::Structure;
use std::path::Path;

/// `features.tsv`: widths stand last, one an axis, then their lower and upper ends.
const TABLE: Format = Format { separator: '\t', remedy: "" };

/// Posterior-mean features with everything known about them, ordered by variance explained.
#[derive(Clone, Debug, Default)]
pub struct PersistentFeatures {
    /// Sites along each axis.
    pub grid: Vec<usize>,
    /// Which sites take part.
    pub mask: Mask,
    /// By column of the mask; unit norm, the largest absolute value positive.
    pub means: Vec<Vec<f32>>,
    /// Standard deviations over kept sweeps, by column of the mask.
    pub sds: Vec<Vec<f32>>,
    /// The probability that a site exceeds [`PersistentFeatures::exceed`] mean absolute values of the feature.
    pub exceedance: Vec<Vec<f32>>,
    /// In mean absolute values.
    pub exceed: f64,
    /// For each feature, by kept sweep, chain after chain: the share of the data's sum of squares that it accounts for; 0 where
    /// it was not there.
    pub presence: Vec<Vec<f32>>,
    /// For each feature, by row: the mean weight, where present.
    pub weights: Vec<Vec<f32>>,
    /// For each feature, by row: the probability of being active, where present.
    pub activation: Vec<Vec<f32>>,
    /// A line a feature.
    pub table: Vec<FeatureRow>,
    /// Rows of the fit.
    pub n_rows: usize,
    /// Rows of the input that were not part of it.
    pub empty_rows: Vec<usize>,
}

/// A line of `features.tsv`.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureRow {
    /// For life.
    pub id: u64,
    /// Share of kept sweeps in which the feature was there.
    pub presence: f64,
    /// Mean number of rows that use it.
    pub activations: f64,
    /// Share of the data's sum of squares (after centring).
    pub variance_explained: f64,
    /// Excess kurtosis of its mean weights.
    pub kurtosis: f64,
    /// Best absolute cosine in the other chains (for features of all chains: in each of them); none with one chain.
    pub stability: Option<f64>,
    /// How many chains have it in at least half of their kept sweeps.
    pub chains: usize,
    /// How many independent draws would say as much about whether it is there.
    pub ess: f64,
    /// Near 1 where chains, and their halves, agree on how often it is there.
    pub rhat: f64,
    /// Full width at half maximum along each axis: the 5%, 50% and 95% points over kept draws. In the unit of the steps
    /// between sites: millimetres for images, else sites.
    pub smoothness: Vec<[f64; 3]>,
}

/// What the features of a fit are about.
#[derive(Clone, Copy)]
pub struct About<'a> {
    /// Sites along each axis.
    pub grid: &'a [usize],
    /// Which sites take part.
    pub mask: &'a Mask,
    /// The distance between neighbouring sites along each axis.
    pub steps: &'a [f64],
    /// Rows of the fit.
    pub n_rows: usize,
    /// Places of input rows that were not part of it.
    pub empty_rows: &'a [usize],
    /// That of the prepared data, in the user's units.
    pub sum_of_squares: f64,
    /// The size that exceedance is about, in mean absolute values.
    pub exceed: f64,
}

impl PersistentFeatures {
    /// No feature.
    fn nothing(about: &About) -> PersistentFeatures {
        PersistentFeatures {
            grid: about.grid.to_vec(),
            mask: about.mask.clone(),
            exceed: about.exceed,
            n_rows: about.n_rows,
            empty_rows: about.empty_rows.to_vec(),
            ..PersistentFeatures::default()
        }
    }

    /// From the accumulated moments.
    pub fn new(posterior: &Posterior, about: &About) -> PersistentFeatures {
        let mut result = PersistentFeatures::nothing(about);
        for moments in posterior.persistent() {
            result.push(moments, posterior.n_kept, about);
        }
        result
    }

    fn push(&mut self, moments: &FeatureMoments, n_kept: u64, about: &About) {
        let (n, sum_of_squares) = (moments.n_present as f64, about.sum_of_squares);
        let norm = moments.mean.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let largest = moments.mean.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(1.0);
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        let unit: Vec<f32> = moments.mean.iter().map(|&x| (sign * f64::from(x) / norm.max(1e-300)) as f32).collect();
        let sd = |d: &f32| (f64::from(*d).max(0.0) / n).sqrt() as f32;
        let weights: Vec<f32> = moments.weights.iter().map(|w| (sign * w / n) as f32).collect();
        self.table.push(FeatureRow {
            id: moments.id,
            presence: n / n_kept as f64,
            activations: moments.active.iter().map(|&a| f64::from(a)).sum::<f64>() / n,
            variance_explained: if sum_of_squares > 0.0 { moments.mean_energy() / sum_of_squares } else { 0.0 },
            kurtosis: excess_kurtosis(weights.iter().map(|&w| f64::from(w))),
            stability: None,
            chains: moments.n_chains(),
            ess: presence_ess(moments),
            rhat: split_r_hat(&presence_series(moments)),
            smoothness: smoothness(&moments.widths, about.steps),
        });
        let share = |energy: &f64| if sum_of_squares > 0.0 { (energy / sum_of_squares) as f32 } else { 0.0 };
        self.presence.push(moments.series.iter().flatten().map(share).collect());
        self.exceedance.push(moments.exceeds.iter().map(|&count| (f64::from(count) / n) as f32).collect());
        self.sds.push(moments.deviations.iter().map(sd).collect());
        self.activation.push(moments.active.iter().map(|&a| (f64::from(a) / n) as f32).collect());
        self.weights.push(weights);
        self.means.push(unit);
    }

    /// Leaves smoothness out along axes whose neighbours are not close (groups, graphs).
    pub fn smooth_only_along(&mut self, structure: &Structure) {
        for (axis, basis) in structure.axes().iter().enumerate().filter(|(_, basis)| !basis.neighbours_are_close()) {
            debug_assert_eq!(basis.n_sites(), self.grid[axis], "the features are on the structure's grid");
            self.table.iter_mut().for_each(|row| row.smoothness[axis] = [f64::NAN; 3]);
        }
    }

    /// Compares with the features of the other chains, each a list of unit images by column.
    pub fn set_stability(&mut self, others: &[&Vec<Vec<f32>>]) {
        if others.is_empty() {
            return;
        }
        let cosine =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>().abs();
        for (row, mean) in self.table.iter_mut().zip(&self.means) {
            // The best match in each other chain, and of these the mean.
            let best = |chain: &&Vec<Vec<f32>>| chain.iter().map(|other| cosine(mean, other)).fold(0.0, f64::max);
            row.stability = Some(others.iter().map(best).sum::<f64>() / others.len() as f64);
        }
    }

    /// The means where they are as large as [`PersistentFeatures::exceed`] times their mean absolute value, else 0.
    pub fn thresholded(&self) -> Vec<Vec<f32>> {
        let one = |image: &Vec<f32>| {
            let size = threshold(image, self.exceed) as f32;
            image.iter().map(|&x| if x.abs() >= size { x } else { 0.0 }).collect()
        };
        self.means.iter().map(one).collect()
    }

    /// Columns (one a feature) as rows of the input, NaN where there was nothing to fit; row-major.
    pub fn by_input_row(&self, columns: &[Vec<f32>]) -> Vec<f32> {
        let mut fitted = 0..self.n_rows;
        let mut values = Vec::new();
        for at in 0..self.n_input_rows() {
            let row = if self.empty_rows.contains(&at) { None } else { fitted.next() };
            values.extend(columns.iter().map(|column| row.map_or(f32::NAN, |row| column[row])));
        }
        values
    }

    /// Rows of the input that are not dropped.
    pub fn n_input_rows(&self) -> usize {
        self.n_rows + self.empty_rows.len()
    }

    /// Images by column of the mask as an array on the grid, NaN outside of the mask.
    pub fn write_images(&self, images: &[Vec<f32>], path: &Path) -> Result<()> {
        let shape: Vec<usize> = std::iter::once(images.len()).chain(self.grid.iter().copied()).collect();
        let values: Vec<f32> = images.iter().flat_map(|image| self.mask.scatter(image, f32::NAN)).collect();
        write_npy_f32(path, &shape, &values)
    }

    /// What features are, in a row that uses them, in standard deviations of the noise: each times the root mean square of
    /// its weights.
    pub fn in_noise(&self, noise_sds: &[f64]) -> Vec<Vec<f32>> {
        let one = |at: usize| {
            let squares: f64 = self.weights[at].iter().map(|&w| f64::from(w).powi(2)).sum();
            let n_active: f64 = self.activation[at].iter().map(|&p| f64::from(p)).sum();
            let size = (squares / n_active.max(1e-300)).sqrt();
            self.means[at].iter().zip(noise_sds).map(|(&x, sd)| (f64::from(x) * size / sd) as f32).collect()
        };
        (0..self.means.len()).map(one).collect()
    }

    /// Writes `features.npy`, `features_sd.npy`, `features_exceedance.npy`, `presence.npy`, `weights.npy`, `activation.npy`
    /// and `features.tsv`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let k = self.means.len();
        self.write_images(&self.means, &folder.join(FEATURES))?;
        self.write_images(&self.sds, &folder.join(FEATURES_SD))?;
        self.write_images(&self.exceedance, &folder.join(FEATURES_EXCEEDANCE))?;
        let n_kept = self.presence.first().map_or(0, Vec::len);
        let by_sweep: Vec<f32> =
            (0..n_kept).flat_map(|at| self.presence.iter().map(move |series| series[at])).collect();
        write_npy_f32(&folder.join(PRESENCE), &[n_kept, k], &by_sweep)?;
        let shape = [self.n_input_rows(), k];
        write_npy_f32(&folder.join(WEIGHTS), &shape, &self.by_input_row(&self.weights))?;
        write_npy_f32(&folder.join(ACTIVATION), &shape, &self.by_input_row(&self.activation))?;
        TABLE.write(&folder.join(FEATURE_TABLE), &self.columns(), self.table.iter().map(FeatureRow::cells))
    }

    /// Reads back what [`PersistentFeatures::write`] wrote; nothing where it has not been written yet.
    pub fn read(folder: &Path, about: &About) -> Result<PersistentFeatures> {
        let (grid, mask) = (about.grid, about.mask);
        let mut found = PersistentFeatures::nothing(about);
        if !Checksums::open(folder)?.has(FEATURE_TABLE) {
            return Ok(found);
        }
        found.table = read_table(&folder.join(FEATURE_TABLE))?;
        let images = |name: &str| -> Result<Vec<Vec<f32>>> {
            let (own, images) = read_images(&folder.join(name))?;
            if own != grid || images.len() != found.table.len() {
                let problem = format!("has {} images, which are not those of {FEATURE_TABLE}", images.len());
                return Err(Error::malformed(&folder.join(name), problem));
            }
            Ok(images.iter().map(|image| mask.gather(image)).collect())
        };
        (found.means, found.sds) = (images(FEATURES)?, images(FEATURES_SD)?);
        found.exceedance = images(FEATURES_EXCEEDANCE)?;
        found.presence = found.presence_of(&folder.join(PRESENCE))?;
        found.weights = found.columns_of(&folder.join(WEIGHTS))?;
        found.activation = found.columns_of(&folder.join(ACTIVATION))?;
        Ok(found)
    }

    fn presence_of(&self, path: &Path) -> Result<Vec<Vec<f32>>> {
        let (shape, values) = read_npy_f32(path)?;
        let k = self.table.len();
        if shape.len() != 2 || shape[1] != k {
            return Err(Error::malformed(path, format!("has shape {shape:?}, but {k} features are known")));
        }
        Ok((0..k).map(|at| values.iter().skip(at).step_by(k).copied().collect()).collect())
    }

    /// The columns of a table of input rows, at the rows that were fitted.
    fn columns_of(&self, path: &Path) -> Result<Vec<Vec<f32>>> {
        let (shape, values) = read_npy_f32(path)?;
        let (k, n) = (self.table.len(), self.n_input_rows());
        if shape != [n, k] {
            return Err(Error::malformed(
                path,
                format!("has shape {shape:?}, but {n} rows and {k} features are known"),
            ));
        }
        let fitted: Vec<usize> = (0..n).filter(|row| !self.empty_rows.contains(row)).collect();
        Ok((0..k).map(|at| fitted.iter().map(|row| values[row * k + at]).collect()).collect())
    }

    fn columns(&self) -> Vec<String> {
        let axes = || 1..=self.grid.len();
        let names = COLUMNS.map(String::from);
        let medians = axes().map(width_column);
        let ends = axes().flat_map(|axis| END_POINTS.map(|end| width_column(axis) + end));
        names.into_iter().chain(medians).chain(ends).collect()
    }
}

impl FeatureRow {
    fn cells(&self) -> Vec<String> {
        let number = |x: f64| format!("{x:.4}").to_lowercase();
        let names = [
            self.id.to_string(),
            exact(self.presence),
            format!("{:.2}", self.activations),
            format!("{:.6e}", self.variance_explained),
            format!("{:.4}", self.kurtosis),
            self.stability.map_or("nan".into(), |s| format!("{s:.4}")),
            self.chains.to_string(),
            number(self.ess),
            number(self.rhat),
        ];
        let medians = self.smoothness.iter().map(|[_, middle, _]| number(*middle));
        let ends = self.smoothness.iter().flat_map(|[low, _, high]| [number(*low), number(*high)]);
        names.into_iter().chain(medians).chain(ends).collect()
    }

    fn read(row: Row, n_axes: usize) -> Result<FeatureRow> {
        let widths = |axis: usize| {
            let name = width_column(axis);
            let [low, high] = END_POINTS.map(|end| row.get(&format!("{name}{end}")));
            Ok([low?, row.get(&name)?, high?])
        };
        Ok(FeatureRow {
            id: row.get("id")?,
            presence: row.get("presence")?,
            activations: row.get("activations")?,
            variance_explained: row.get("variance_explained")?,
            kurtosis: row.get("kurtosis")?,
            stability: Some(row.get("stability")?).filter(|s: &f64| !s.is_nan()),
            chains: row.get("chains")?,
            ess: row.get("ess")?,
            rhat: row.get("rhat")?,
            smoothness: (1..=n_axes).map(widths).collect::<Result<_>>()?,
        })
    }
}

/// The columns of the table before those of widths.
const COLUMNS: [&str; 9] =
    ["id", "presence", "activations", "variance_explained", "kurtosis", "stability", "chains", "ess", "rhat"];

/// Whether a feature was there, for each chain.
fn presence_series(moments: &FeatureMoments) -> Vec<Vec<f64>> {
    let is_there = |x: &f64| f64::from(u8::from(*x > 0.0));
    moments.series.iter().map(|series| series.iter().map(is_there).collect()).collect()
}

/// Four digits where they say all, and else as many as it takes: what is read back is what was there.
fn exact(share: f64) -> String {
    let short = format!("{share:.4}");
    if short.parse() == Ok(share) { short } else { share.to_string() }
}

/// A presence that never changes, in any chain, is known as well as all draws can tell.
fn presence_ess(moments: &FeatureMoments) -> f64 {
    let series = presence_series(moments);
    let first = series.iter().flatten().next();
    if series.iter().flatten().all(|x| Some(x) == first) {
        return series.iter().map(|series| series.len() as f64).sum();
    }
    effective_sample_size(&series)
}

/// The name of the column of widths along an axis, from 1; what it ends with in the columns of their lower and upper ends.
fn width_column(axis: usize) -> String {
    format!("smoothness_{axis}")
}

const END_POINTS: [&str; 2] = ["_low", "_high"];

/// The 5%, 50% and 95% points of widths given draw by draw, times the steps.
fn smoothness(widths: &[f32], steps: &[f64]) -> Vec<[f64; 3]> {
    let along = |(axis, step): (usize, &f64)| {
        let mut own: Vec<f64> = widths.iter().skip(axis).step_by(steps.len()).map(|&w| f64::from(w)).collect();
        own.sort_by(f64::total_cmp);
        [0.05, 0.5, 0.95].map(|share| step * quantile(&own, share))
    };
    steps.iter().enumerate().map(along).collect()
}

/// Reads `features.tsv`.
pub fn read_table(path: &Path) -> Result<Vec<FeatureRow>> {
    let table = TABLE.read(path)?;
    let n_axes = (1..).take_while(|&axis| table.has(&width_column(axis))).count();
    table.rows().map(|row| FeatureRow::read(row, n_axes)).collect()
}

/// `times` mean absolute values of an image; with 2, the paper's threshold `(2 / V) sum |S_k|`.
pub fn threshold(columns: &[f32], times: f64) -> f64 {
    times * columns.iter().map(|&x| f64::from(x.abs())).sum::<f64>() / (columns.len() as f64).max(1.0)
}

/// Reads `features.npy`: the grid and the unit-norm images.
pub fn read_images(path: &Path) -> Result<(Vec<usize>, Vec<Vec<f32>>)> {
    let (shape, values) = read_npy_f32(path)?;
    let n_sites: usize = shape[1..].iter().product();
    let images = values.chunks_exact(n_sites.max(1)).map(<[f32]>::to_vec).collect();
    Ok((shape[1..].to_vec(), images))
}

/// `m4 / m2^2 - 3` about the mean; 0 for constant values.
pub fn excess_kurtosis(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let moment = |power: i32| values.clone().map(|x| (x - mean).powi(power)).sum::<f64>() / n;
    let variance = moment(2);
    if variance > 0.0 { moment(4) / (variance * variance) - 3.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kurtosis_of_known_samples() {
        assert!((excess_kurtosis([1.0, -1.0].into_iter()) + 2.0).abs() < 1e-12);
        assert_eq!(excess_kurtosis([2.0; 5].into_iter()), 0.0);
        let sparse: Vec<f64> = (0..100).map(|i| if i == 0 { 1.0 } else { 0.0 }).collect();
        assert!(excess_kurtosis(sparse.iter().copied()) > 90.0);
    }

    #[test]
    fn widths_are_quantiles_over_draws_in_the_unit_of_the_steps() {
        let widths: Vec<f32> = (0..101).flat_map(|draw| [draw as f32, 2.0]).collect();
        assert_eq!(smoothness(&widths, &[3.0, 0.5]), [[15.0, 150.0, 285.0], [1.0; 3]]);
    }

    #[test]
    fn tables_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let row = FeatureRow {
            id: 7,
            presence: 0.75,
            activations: 12.5,
            variance_explained: 0.125,
            kurtosis: 3.5,
            stability: None,
            chains: 1,
            ess: 40.0,
            rhat: f64::INFINITY,
            smoothness: vec![[4.0, 4.25, 5.5], [0.0; 3]],
        };
        let features = PersistentFeatures {
            grid: vec![1, 2],
            mask: Mask::full(2),
            means: vec![vec![1.0, 0.0]],
            sds: vec![vec![0.5, 0.5]],
            exceedance: vec![vec![1.0, 0.0]],
            exceed: 2.0,
            presence: vec![vec![0.125, 0.0]],
            weights: vec![vec![1.0, 2.0, 3.0]],
            activation: vec![vec![0.0, 1.0, 1.0]],
            table: vec![row.clone()],
            n_rows: 3,
            empty_rows: vec![],
        };
        features.write(folder.path()).unwrap();
        assert_eq!(read_table(&folder.path().join("features.tsv")).unwrap(), [row]);
        let (grid, images) = read_images(&folder.path().join("features.npy")).unwrap();
        assert_eq!((grid, images), (vec![1, 2], features.means));
        assert_eq!(read_npy_f32(&folder.path().join("presence.npy")).unwrap(), (vec![2, 1], vec![0.125, 0.0]));
    }

    /// Always there is settled; there in one chain and not in the other is not.
    #[test]
    fn shares_are_written_as_they_are() {
        assert_eq!([1.0, 0.75, 2.0 / 3.0].map(exact), ["1.0000", "0.7500", "0.6666666666666666"]);
    }

    #[test]
    fn presence_is_known_where_chains_agree() {
        let about = |series: Vec<Vec<f64>>| FeatureMoments { series, ..FeatureMoments::new(1, 1, 1, 0) };
        let known = |moments: &FeatureMoments| {
            (moments.n_chains(), presence_ess(moments), split_r_hat(&presence_series(moments)))
        };
        assert_eq!(known(&about(vec![vec![2.0; 20], vec![3.0; 20]])), (2, 40.0, 1.0));
        let (chains, ess, rhat) = known(&about(vec![vec![2.0; 20], vec![0.0; 20]]));
        assert!(chains == 1 && ess < 5.0 && rhat == f64::INFINITY, "{chains} {ess} {rhat}");
        let now_and_then: Vec<f64> = (0..40).map(|at| f64::from(u8::from(at * 7 % 5 < 3))).collect();
        let (chains, ess, rhat) = known(&about(vec![now_and_then]));
        assert!(chains == 1 && ess > 20.0 && rhat < 1.05, "{chains} {ess} {rhat}");
    }
}
