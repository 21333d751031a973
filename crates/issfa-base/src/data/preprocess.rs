//! Centring, detrending, confounds and scaling: fitted on the training rows, stored, and reused on new ones.

use super::Observations;
use super::regression::{Regression, RunFit, RunFits};
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// A site whose centred sum of squares is below this share of the raw one is constant but for rounding.
const CONSTANT: f64 = 1e-20;

/// What is subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Centering {
    /// Nothing.
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
    /// Whether site means are subtracted.
    pub fn sites(self) -> bool {
        matches!(self, Centering::Site | Centering::Both)
    }

    /// Whether row means are subtracted.
    pub fn rows(self) -> bool {
        matches!(self, Centering::Row | Centering::Both)
    }
}

/// Which means and slopes a row is prepared by.
#[derive(Clone, Copy, Debug)]
pub enum MeansOf<'a> {
    /// Those of a run of the training rows.
    Run(usize),
    /// Those of all training rows.
    Training,
    /// Given ones: a new run's own.
    These(&'a RunFit),
}

/// The map from raw rows to the sampler's units and back: `(x - slopes of covariates - means) / site_scales / factor`.
///
/// The way back adds the means, and not the covariates' share: that was not wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessing {
    /// Which means are subtracted.
    pub centering: Centering,
    /// Names of the covariates.
    pub covariates: Vec<String>,
    /// Means and slopes of each run. Means are subtracted only where sites are centred.
    pub runs: Vec<RunFit>,
    /// Means over all training rows, and the slopes that all runs share.
    pub overall: RunFit,
    /// Standard deviation of each site (1 where constant); empty unless sites are scaled.
    pub site_scales: Vec<f64>,
    /// The root mean square of the prepared training data (1 if that is 0).
    pub factor: f64,
}

/// Sees rows, each with the number of its run.
pub type Show<'a> = &'a mut dyn FnMut(usize, &[f64]);

/// What the raw data look like, found on the way.
#[derive(Clone, Copy, Debug)]
pub struct Findings {
    /// The share of the sum of squares that site means hold.
    pub share_of_site_means: f64,
    /// The sum of squares after centring, in the user's units.
    pub sum_of_squares: f64,
    /// Whether centring leaves nothing but rounding errors.
    pub nothing_left: bool,
    /// Cells that were observed.
    pub n_cells: f64,
}

impl Preprocessing {
    /// Rows as they are.
    pub fn nothing() -> Preprocessing {
        Preprocessing {
            centering: Centering::None,
            covariates: Vec::new(),
            runs: Vec::new(),
            overall: RunFit::default(),
            site_scales: Vec::new(),
            factor: 1.0,
        }
    }

    /// Fits on all rows; `scale` divides each site by its standard deviation.
    pub fn fit(observations: &Observations, centering: Centering, scale: bool) -> Result<(Preprocessing, Findings)> {
        Preprocessing::fit_and_show(observations, centering, scale, None)
    }

    /// [`Preprocessing::fit`]; who wants to see the rows is shown each with the number of its run, in order, centred and not
    /// scaled, without another look at what may be a large file.
    pub fn fit_and_show(
        observations: &Observations,
        centering: Centering,
        scale: bool,
        mut show: Option<Show>,
    ) -> Result<(Preprocessing, Findings)> {
        let stay_as_they_are = centering == Centering::None && observations.covariates().names().is_empty();
        let shown_at_first = if stay_as_they_are { show.take() } else { None };
        let regression = Regression::of(observations, shown_at_first)?;
        let RunFits { runs, overall, n_seen } = regression.finish();
        let raw_squares: f64 = regression.squares.iter().sum();
        let mean_squares: f64 = overall.means.iter().zip(&n_seen).map(|(m, n)| n * m * m).sum();
        let share_of_site_means = if raw_squares > 0.0 { mean_squares / raw_squares } else { 0.0 };
        let covariates = observations.covariates().names().to_vec();
        let mut fitted = Preprocessing { centering, covariates, runs, overall, ..Preprocessing::nothing() };
        let squares = match fitted.changes_nothing() {
            true => regression.squares.clone(),
            false => fitted.squares_by_site(observations, show)?,
        };
        let sum_of_squares: f64 = squares.iter().sum();
        let mut scaled_squares = sum_of_squares;
        if scale {
            // What rounding leaves of a constant site is not to be blown up.
            let is_constant = |(left, raw): (&f64, &f64)| *left <= CONSTANT * raw;
            let varies: Vec<bool> = squares.iter().zip(&regression.squares).map(|pair| !is_constant(pair)).collect();
            let sd = |at: usize| if varies[at] { (squares[at] / n_seen[at].max(1.0)).sqrt() } else { 1.0 };
            fitted.site_scales = (0..squares.len()).map(sd).collect();
            scaled_squares = squares.iter().zip(&fitted.site_scales).map(|(s, sd)| s / (sd * sd)).sum();
        }
        let n_cells: f64 = n_seen.iter().sum();
        fitted.factor = positive_or_one((scaled_squares / n_cells).sqrt());
        let nothing_left = sum_of_squares <= CONSTANT * raw_squares;
        Ok((fitted, Findings { share_of_site_means, sum_of_squares, nothing_left, n_cells }))
    }

    /// Whether rows are centred by nothing, and no covariate is taken off.
    fn changes_nothing(&self) -> bool {
        self.centering == Centering::None && self.covariates.is_empty()
    }

    fn squares_by_site(&self, observations: &Observations, mut show: Option<Show>) -> Result<Vec<f64>> {
        let mut squares = vec![0.0; observations.n_columns()];
        let covariates = observations.covariates();
        observations.for_each_chunk(&mut |run, first_row, values| {
            for (at, row) in values.chunks_exact_mut(squares.len()).enumerate() {
                self.center(row, covariates.row(first_row + at), MeansOf::Run(run));
                show.iter_mut().for_each(|show| show(run, row));
                let known = |x: &mut f64| if x.is_nan() { 0.0 } else { *x };
                squares.iter_mut().zip(row.iter_mut().map(known)).for_each(|(sum, x)| *sum += x * x);
            }
            Ok(())
        })?;
        Ok(squares)
    }

    fn fit_of<'a>(&'a self, means: MeansOf<'a>) -> Option<&'a RunFit> {
        match means {
            MeansOf::Run(run) => self.runs.get(run),
            MeansOf::Training => Some(&self.overall),
            MeansOf::These(fit) => Some(fit),
        }
    }

    /// The site means that rows are centred by; nothing where they are not.
    pub fn site_means<'a>(&'a self, means: MeansOf<'a>) -> &'a [f64] {
        match self.fit_of(means) {
            Some(fit) if self.centering.sites() => &fit.means,
            _ => &[],
        }
    }

    /// Takes the covariates' share off a raw row.
    pub fn clean(&self, row: &mut [f64], covariates: &[f64], means: MeansOf) {
        if let Some(fit) = self.fit_of(means) {
            fit.take_slopes_off(row, covariates);
        }
    }

    /// Centres a raw row; returns the row mean that was taken off (0 unless rows are centred). NaN cells are left out.
    fn center(&self, row: &mut [f64], covariates: &[f64], means: MeansOf) -> f64 {
        self.clean(row, covariates, means);
        row.iter_mut().zip(self.site_means(means)).for_each(|(x, mean)| *x -= mean);
        if !self.centering.rows() {
            return 0.0;
        }
        let seen = || row.iter().filter(|x| !x.is_nan());
        let offset = seen().sum::<f64>() / (seen().count() as f64).max(1.0);
        row.iter_mut().for_each(|x| *x -= offset);
        offset
    }

    /// Prepares a raw row with its covariates; returns the row mean that was taken off.
    pub fn apply(&self, row: &mut [f64], covariates: &[f64], means: MeansOf) -> f64 {
        let offset = self.center(row, covariates, means);
        if !self.site_scales.is_empty() {
            row.iter_mut().zip(&self.site_scales).for_each(|(x, sd)| *x /= sd);
        }
        row.iter_mut().for_each(|x| *x /= self.factor);
        offset
    }

    /// Takes a prepared row back to the user's units.
    pub fn restore(&self, row: &mut [f64], means: MeansOf, offset: f64) {
        self.to_units(row);
        row.iter_mut().zip(self.site_means(means)).for_each(|(x, mean)| *x += mean);
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

fn positive_or_one(value: f64) -> f64 {
    if value > 0.0 { value } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write::write_npy_f64;
    use crate::data::{Covariates, Detrend};

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
                        let offset = fitted.apply(row, &[], MeansOf::Run(run));
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
        assert_eq!(fitted.runs[0].means, [3.0, 5.0]);
        assert_eq!(fitted.runs[1].means, [10.0, 1.0]);
        assert_eq!(fitted.overall.means, [4.75, 4.0]);
        assert!((findings.sum_of_squares - 14.0).abs() < 1e-12);
        assert!(findings.share_of_site_means > 0.5);
    }

    #[test]
    fn trends_leave_for_good_and_constant_sites_are_not_blown_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let values: Vec<f64> = (0..5).flat_map(|t| [0.1, 3.0 + 2.0 * f64::from(t), f64::from(t * t)]).collect();
        write_npy_f64(&path, &[5, 3], &values).unwrap();
        let mut data = Observations::open(&[path]).unwrap();
        let covariates = Covariates::new(&data, Detrend::Linear, &[], 0).unwrap();
        data.set_covariates(covariates);
        let (fitted, _) = Preprocessing::fit(&data, Centering::Site, true).unwrap();
        assert_eq!(fitted.site_scales[..2], [1.0, 1.0]);
        let mut row = [0.1, 3.0, 0.0];
        let offset = fitted.apply(&mut row, data.covariates().row(0), MeansOf::Run(0));
        assert!(row[0].abs() < 1e-12 && row[1].abs() < 1e-12 && row[2] > 0.1, "{row:?}");
        fitted.restore(&mut row, MeansOf::Run(0), offset);
        assert!((row[1] - 7.0).abs() < 1e-12, "the mean comes back, the trend does not: {row:?}");
    }
}
