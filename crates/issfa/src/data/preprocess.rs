//! Centring and scaling: fitted on the training rows, stored, and reused on new ones.

use super::Observations;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// What is subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Centering {
    #[default]
    None,
    /// Each site's mean over the rows of its run.
    Site,
    /// Each row's mean over sites.
    Row,
    /// Site means, then what is left of row means.
    Both,
}

impl Centering {
    fn sites(self) -> bool {
        matches!(self, Centering::Site | Centering::Both)
    }

    fn rows(self) -> bool {
        matches!(self, Centering::Row | Centering::Both)
    }
}

/// Which site means a row is centred by.
#[derive(Clone, Copy, Debug)]
pub enum MeansOf<'a> {
    /// A run of the training rows.
    Run(usize),
    /// All training rows (weighted over runs).
    Training,
    /// Given ones: a new run's own.
    These(&'a [f64]),
}

/// The map from raw rows to the sampler's units and back: `(x - means) / site_scales / factor`.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessing {
    pub centering: Centering,
    /// Site means of each run; empty unless sites are centred.
    pub run_means: Vec<Vec<f64>>,
    /// Site means over all training rows; empty unless sites are centred.
    pub overall_means: Vec<f64>,
    /// Standard deviation of each site (1 where constant); empty unless sites are scaled.
    pub site_scales: Vec<f64>,
    /// The root mean square of the prepared training data (1 if that is 0).
    pub factor: f64,
}

/// What the raw data look like, found on the way.
#[derive(Clone, Copy, Debug)]
pub struct Findings {
    /// The share of the sum of squares that site means hold.
    pub share_of_site_means: f64,
    /// The sum of squares after centring, in the user's units.
    pub sum_of_squares: f64,
    /// Cells that were observed.
    pub n_cells: f64,
}

impl Preprocessing {
    /// Fits on all rows; `scale` divides each site by its standard deviation.
    pub fn fit(observations: &Observations, centering: Centering, scale: bool) -> Result<(Preprocessing, Findings)> {
        let Means { run_means, overall_means, n_seen, squares: raw_squares } = means(observations)?;
        let mean_squares: f64 = overall_means.iter().zip(&n_seen).map(|(m, n)| n * m * m).sum();
        let share_of_site_means = if raw_squares > 0.0 { mean_squares / raw_squares } else { 0.0 };
        let mut fitted = Preprocessing { centering, run_means, overall_means, site_scales: Vec::new(), factor: 1.0 };
        if !centering.sites() {
            fitted.run_means.clear();
            fitted.overall_means.clear();
        }
        let squares = fitted.squares_by_site(observations)?;
        let sum_of_squares: f64 = squares.iter().sum();
        let mut scaled_squares = sum_of_squares;
        if scale {
            let sd = |(s, n): (&f64, &f64)| positive_or_one((s / n.max(1.0)).sqrt());
            fitted.site_scales = squares.iter().zip(&n_seen).map(sd).collect();
            scaled_squares = squares.iter().zip(&fitted.site_scales).map(|(s, sd)| s / (sd * sd)).sum();
        }
        let n_cells: f64 = n_seen.iter().sum();
        fitted.factor = positive_or_one((scaled_squares / n_cells).sqrt());
        Ok((fitted, Findings { share_of_site_means, sum_of_squares, n_cells }))
    }

    fn squares_by_site(&self, observations: &Observations) -> Result<Vec<f64>> {
        let mut squares = vec![0.0; observations.n_columns()];
        observations.for_each_chunk(&mut |run, _, values| {
            for row in values.chunks_exact_mut(squares.len()) {
                self.center(row, MeansOf::Run(run));
                squares.iter_mut().zip(row).filter(|(_, x)| !x.is_nan()).for_each(|(sum, x)| *sum += *x * *x);
            }
            Ok(())
        })?;
        Ok(squares)
    }

    fn site_means<'a>(&'a self, means: MeansOf<'a>) -> &'a [f64] {
        match means {
            MeansOf::Run(run) => self.run_means.get(run).map_or(&[], Vec::as_slice),
            MeansOf::Training => &self.overall_means,
            MeansOf::These(means) => means,
        }
    }

    /// Centres a raw row; returns the row mean that was taken off (0 unless rows are centred). NaN cells are left out.
    fn center(&self, row: &mut [f64], means: MeansOf) -> f64 {
        if self.centering.sites() {
            row.iter_mut().zip(self.site_means(means)).for_each(|(x, mean)| *x -= mean);
        }
        if !self.centering.rows() {
            return 0.0;
        }
        let seen = || row.iter().filter(|x| !x.is_nan());
        let offset = seen().sum::<f64>() / (seen().count() as f64).max(1.0);
        row.iter_mut().for_each(|x| *x -= offset);
        offset
    }

    /// Prepares a raw row; returns the row mean that was taken off.
    pub fn apply(&self, row: &mut [f64], means: MeansOf) -> f64 {
        let offset = self.center(row, means);
        if !self.site_scales.is_empty() {
            row.iter_mut().zip(&self.site_scales).for_each(|(x, sd)| *x /= sd);
        }
        row.iter_mut().for_each(|x| *x /= self.factor);
        offset
    }

    /// Takes a prepared row back to the user's units.
    pub fn restore(&self, row: &mut [f64], means: MeansOf, offset: f64) {
        self.to_units(row);
        if self.centering.sites() {
            row.iter_mut().zip(self.site_means(means)).for_each(|(x, mean)| *x += mean);
        }
        row.iter_mut().for_each(|x| *x += offset);
    }

    /// Takes a difference of prepared rows (a feature, say) to the user's units.
    pub fn to_units(&self, row: &mut [f64]) {
        if !self.site_scales.is_empty() {
            row.iter_mut().zip(&self.site_scales).for_each(|(x, sd)| *x *= sd);
        }
        row.iter_mut().for_each(|x| *x *= self.factor);
    }
}

/// Site means of each run, over the cells that are not NaN.
pub fn run_means(observations: &Observations) -> Result<Vec<Vec<f64>>> {
    Ok(means(observations)?.run_means)
}

/// What the means of raw data are taken from.
struct Means {
    /// By run and column; 0 where a run has no value.
    run_means: Vec<Vec<f64>>,
    overall_means: Vec<f64>,
    /// Cells observed, by column.
    n_seen: Vec<f64>,
    /// The raw sum of squares.
    squares: f64,
}

/// Means over the cells that are not NaN.
fn means(observations: &Observations) -> Result<Means> {
    let n_columns = observations.n_columns();
    let mut sums = vec![vec![0.0; n_columns]; observations.n_runs()];
    let mut counts = vec![vec![0.0; n_columns]; observations.n_runs()];
    let (mut squares, mut largest) = (0.0, 0.0f64);
    observations.for_each_chunk(&mut |run, _, values| {
        for row in values.chunks_exact(n_columns) {
            for (column, x) in row.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
                largest = largest.max(x.abs());
                sums[run][column] += x;
                counts[run][column] += 1.0;
                squares += x * x;
            }
        }
        Ok(())
    })?;
    if largest > 0.0 && !(1e-140..1e140).contains(&largest) {
        let problem = format!("the largest value is {largest:e}, whose square is out of range; rescale the data first");
        return Err(Error::malformed(observations.path(), problem));
    }
    let (mut overall, mut n_seen) = (vec![0.0; n_columns], vec![0.0; n_columns]);
    for (sums, counts) in sums.iter_mut().zip(&counts) {
        overall.iter_mut().zip(sums.iter()).for_each(|(total, sum)| *total += sum);
        n_seen.iter_mut().zip(counts).for_each(|(total, n)| *total += n);
        sums.iter_mut().zip(counts).for_each(|(sum, n): (&mut f64, &f64)| *sum /= n.max(1.0));
    }
    overall.iter_mut().zip(&n_seen).for_each(|(sum, n): (&mut f64, &f64)| *sum /= n.max(1.0));
    Ok(Means { run_means: sums, overall_means: overall, n_seen, squares })
}

fn positive_or_one(value: f64) -> f64 {
    if value > 0.0 { value } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write::write_npy_f64;

    fn observations(folder: &std::path::Path) -> Observations {
        let first = folder.join("a.npy");
        let second = folder.join("b.npy");
        write_npy_f64(&first, &[3, 2], &[1.0, 5.0, 2.0, 5.0, 6.0, 5.0]).unwrap();
        write_npy_f64(&second, &[1, 2], &[10.0, 1.0]).unwrap();
        Observations::open(&[first, second]).unwrap()
    }

    #[test]
    fn prepared_data_have_unit_mean_square_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let data = observations(folder.path());
        for centering in [Centering::None, Centering::Site, Centering::Row, Centering::Both] {
            for scale in [false, true] {
                let (fitted, _) = Preprocessing::fit(&data, centering, scale).unwrap();
                let mut squares = 0.0;
                data.for_each_chunk(&mut |run, _, values| {
                    for row in values.chunks_exact_mut(2) {
                        let raw = row.to_vec();
                        let offset = fitted.apply(row, MeansOf::Run(run));
                        squares += row.iter().map(|x| x * x).sum::<f64>();
                        fitted.restore(row, MeansOf::Run(run), offset);
                        assert!(row.iter().zip(&raw).all(|(a, b)| (a - b).abs() < 1e-12));
                    }
                    Ok(())
                })
                .unwrap();
                assert!((squares / 8.0 - 1.0).abs() < 1e-12, "{centering:?} {scale}: {squares}");
            }
        }
    }

    #[test]
    fn runs_are_centred_each_by_its_own_means() {
        let folder = tempfile::tempdir().unwrap();
        let (fitted, findings) = Preprocessing::fit(&observations(folder.path()), Centering::Site, false).unwrap();
        assert_eq!(fitted.run_means, [vec![3.0, 5.0], vec![10.0, 1.0]]);
        assert_eq!(fitted.overall_means, [4.75, 4.0]);
        assert!((findings.sum_of_squares - 14.0).abs() < 1e-12);
        assert!(findings.share_of_site_means > 0.5);
    }
}
