//! The persistent features as they are reported: order, sign, table, smoothness.

use super::posterior::{FeatureMoments, Posterior};
use crate::data::Mask;
use crate::data::read::npy::read_npy_f32;
use crate::data::write::{write_atomically, write_npy_f32};
use crate::error::{Error, Result};
use crate::structure::Structure;
use std::path::Path;

/// Posterior-mean features with everything known about them, ordered by variance explained.
#[derive(Clone, Debug)]
pub struct PersistentFeatures {
    pub grid: Vec<usize>,
    pub mask: Mask,
    /// By column of the mask; unit norm, the largest absolute value positive.
    pub means: Vec<Vec<f32>>,
    pub sds: Vec<Vec<f32>>,
    /// For each feature, by row: mean weight and probability of being active, where present.
    pub weights: Vec<Vec<f32>>,
    pub activation: Vec<Vec<f32>>,
    pub table: Vec<FeatureRow>,
    /// Rows of the fit.
    pub n_rows: usize,
    /// Rows of the input that were not part of it.
    pub empty_rows: Vec<usize>,
}

/// A line of `features.tsv`.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureRow {
    pub id: u64,
    /// Share of kept sweeps in which the feature was there.
    pub presence: f64,
    /// Mean number of rows that use it.
    pub activations: f64,
    /// Share of the data's sum of squares (after centring).
    pub variance_explained: f64,
    /// Excess kurtosis of its mean weights.
    pub kurtosis: f64,
    /// Best absolute cosine in the other chains; none with one chain.
    pub stability: Option<f64>,
    /// Full width at half maximum along each axis, in sites.
    pub smoothness: Vec<f64>,
}

impl PersistentFeatures {
    /// From the accumulated moments; `sum_of_squares` is that of the prepared data in the user's units.
    pub fn new(
        posterior: &Posterior,
        grid: &[usize],
        mask: &Mask,
        (n_rows, empty_rows): (usize, &[usize]),
        sum_of_squares: f64,
    ) -> PersistentFeatures {
        let mut result = PersistentFeatures {
            grid: grid.to_vec(),
            mask: mask.clone(),
            means: Vec::new(),
            sds: Vec::new(),
            weights: Vec::new(),
            activation: Vec::new(),
            table: Vec::new(),
            n_rows,
            empty_rows: empty_rows.to_vec(),
        };
        for moments in posterior.persistent() {
            result.push(moments, posterior.n_kept, sum_of_squares);
        }
        result
    }

    fn push(&mut self, moments: &FeatureMoments, n_kept: u64, sum_of_squares: f64) {
        let n = moments.n_present as f64;
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
            smoothness: {
                let image = self.mask.scatter(&unit, f32::NAN);
                (0..self.grid.len()).map(|axis| full_width(&image, &self.grid, axis)).collect()
            },
        });
        self.sds.push(moments.deviations.iter().map(sd).collect());
        self.activation.push(moments.active.iter().map(|&a| (f64::from(a) / n) as f32).collect());
        self.weights.push(weights);
        self.means.push(unit);
    }

    /// Leaves smoothness out along axes whose neighbours are not close (groups, graphs).
    pub fn smooth_only_along(&mut self, structure: &Structure) {
        for (axis, basis) in structure.axes().iter().enumerate().filter(|(_, basis)| !basis.neighbours_are_close()) {
            debug_assert_eq!(basis.n_sites(), self.grid[axis], "the features are on the structure's grid");
            self.table.iter_mut().for_each(|row| row.smoothness[axis] = f64::NAN);
        }
    }

    /// Compares with the features of the other chains (each a list of unit images).
    pub fn set_stability(&mut self, others: &[Vec<Vec<f32>>]) {
        if others.is_empty() {
            return;
        }
        let cosine =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>().abs();
        for (row, mean) in self.table.iter_mut().zip(&self.means) {
            // The best match in each other chain, and of these the mean.
            let best = |chain: &Vec<Vec<f32>>| chain.iter().map(|other| cosine(mean, other)).fold(0.0, f64::max);
            row.stability = Some(others.iter().map(best).sum::<f64>() / others.len() as f64);
        }
    }

    /// Writes `features.npy`, `features_sd.npy`, `weights.npy`, `activation.npy` and `features.tsv`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let k = self.means.len();
        let shape: Vec<usize> = std::iter::once(k).chain(self.grid.iter().copied()).collect();
        let on_grid = |images: &[Vec<f32>]| images.iter().flat_map(|x| self.mask.scatter(x, 0.0)).collect::<Vec<_>>();
        write_npy_f32(&folder.join("features.npy"), &shape, &on_grid(&self.means))?;
        write_npy_f32(&folder.join("features_sd.npy"), &shape, &on_grid(&self.sds))?;
        let n_input_rows = self.n_rows + self.empty_rows.len();
        let by_row = |columns: &[Vec<f32>]| -> Vec<f32> {
            let mut fitted = 0..self.n_rows;
            let mut row = |at: usize| if self.empty_rows.contains(&at) { None } else { fitted.next() };
            let places: Vec<Option<usize>> = (0..n_input_rows).map(&mut row).collect();
            let value = |place: &Option<usize>, column: &Vec<f32>| place.map_or(f32::NAN, |row| column[row]);
            places.iter().flat_map(|place| columns.iter().map(move |column| value(place, column))).collect()
        };
        write_npy_f32(&folder.join("weights.npy"), &[n_input_rows, k], &by_row(&self.weights))?;
        write_npy_f32(&folder.join("activation.npy"), &[n_input_rows, k], &by_row(&self.activation))?;
        write_atomically(&folder.join("features.tsv"), self.to_tsv().as_bytes())
    }

    fn to_tsv(&self) -> String {
        let axes: String = (1..=self.grid.len()).map(|axis| format!("\tsmoothness_{axis}")).collect();
        let mut text = format!("id\tpresence\tactivations\tvariance_explained\tkurtosis\tstability{axes}\n");
        for row in &self.table {
            let smoothness: String = row.smoothness.iter().map(|s| format!("\t{s:.4}").to_lowercase()).collect();
            text += &format!(
                "{}\t{:.4}\t{:.2}\t{:.6e}\t{:.4}\t{}{smoothness}\n",
                row.id,
                row.presence,
                row.activations,
                row.variance_explained,
                row.kurtosis,
                row.stability.map_or("nan".into(), |s| format!("{s:.4}")),
            );
        }
        text
    }
}

/// Reads `features.tsv`.
pub fn read_table(path: &Path) -> Result<Vec<FeatureRow>> {
    let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
    let rows = text.lines().enumerate().skip(1).map(|(at, line)| {
        parse_row(line).ok_or_else(|| Error::malformed(path, format!("line {} is not a row of features", at + 1)))
    });
    rows.collect()
}

fn parse_row(line: &str) -> Option<FeatureRow> {
    let cells: Vec<&str> = line.split('\t').collect();
    let number = |at: usize| cells.get(at)?.parse::<f64>().ok();
    Some(FeatureRow {
        id: cells[0].parse().ok()?,
        presence: number(1)?,
        activations: number(2)?,
        variance_explained: number(3)?,
        kurtosis: number(4)?,
        stability: number(5).filter(|s| !s.is_nan()),
        smoothness: cells.get(6..)?.iter().map(|cell| cell.parse().ok()).collect::<Option<_>>()?,
    })
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

/// The full width at half maximum of a Gaussian smoother with this image's lag-one correlation r along an axis:
/// `sqrt(-2 ln 2 / ln r)`, over neighbours that are not NaN; 0 where r is not positive, infinite where it is 1.
pub fn full_width(image: &[f32], grid: &[usize], axis: usize) -> f64 {
    let inner: usize = grid[axis + 1..].iter().product();
    let (mut products, mut squares) = (0.0, 0.0);
    for (at, &x) in image.iter().enumerate() {
        let x = f64::from(x);
        let place = at / inner % grid[axis];
        if place + 1 < grid[axis] && !x.is_nan() && !image[at + inner].is_nan() {
            let next = f64::from(image[at + inner]);
            products += x * next;
            squares += 0.5 * (x * x + next * next);
        }
    }
    let correlation = if squares > 0.0 { products / squares } else { 0.0 };
    if correlation <= 0.0 {
        0.0
    } else if correlation >= 1.0 {
        f64::INFINITY
    } else {
        (-2.0 * std::f64::consts::LN_2 / correlation.ln()).sqrt()
    }
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
    fn width_of_a_smooth_bump_is_near_its_kernel() {
        // White noise smoothed by a Gaussian of sd s has lag-one correlation exp(-1/(4 s^2)), that is FWHM 2.355 s.
        // A lone bump exp(-x^2/(4 s^2))-like image has the same correlation when its own sd is s.
        let s: f64 = 3.0;
        let image: Vec<f32> = (0..101).map(|i| (-(f64::from(i) - 50.0).powi(2) / (2.0 * s * s)).exp() as f32).collect();
        let width = full_width(&image, &[101], 0);
        assert!((width - 2.0 * (2.0 * std::f64::consts::LN_2).sqrt() * s).abs() < 0.1, "{width}");
        let columns: Vec<f32> = (0..20).flat_map(|_| [1.0, -1.0, 1.0]).collect();
        assert_eq!(full_width(&columns, &[20, 3], 0), f64::INFINITY);
        assert_eq!(full_width(&columns, &[20, 3], 1), 0.0);
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
            smoothness: vec![4.25, 0.0],
        };
        let features = PersistentFeatures {
            grid: vec![1, 2],
            mask: Mask::full(1 * 2),
            means: vec![vec![1.0, 0.0]],
            sds: vec![vec![0.5, 0.5]],
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
    }
}
