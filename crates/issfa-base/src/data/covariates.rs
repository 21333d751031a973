//! What is regressed out of every site beside its mean: a trend over the run, and confounds.

use super::Observations;
use super::confounds::Confounds;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A column whose centred sum of squares is below this share of the raw one is constant but for rounding.
const CONSTANT: f64 = 1e-20;

/// What the column of a trend is called; it comes first.
const TREND: &str = "trend";

/// Which trend is taken out of each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detrend {
    /// Trends stay where they are.
    #[default]
    None,
    /// A straight line over the rows of a run.
    Linear,
}

/// Covariates of every row of some observations: row-major, each column with mean 0 in every run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Covariates {
    names: Vec<String>,
    values: Vec<f64>,
}

impl Covariates {
    /// The trend and the confounds of each run (none, or one table a run), at the rows that are kept. Tables have a line
    /// for every row of a run, those too that were dropped at its start.
    pub fn new(
        observations: &Observations,
        detrend: Detrend,
        confounds: &[(PathBuf, Confounds)],
        n_dropped: usize,
    ) -> Result<Covariates> {
        let n_runs = observations.n_runs();
        if !confounds.is_empty() && confounds.len() != n_runs {
            let problem = format!("there are {n_runs} runs; give one file for each, in the order of the runs");
            return Err(Error::setting("confounds", format!("{} files", confounds.len()), problem));
        }
        let mut names: Vec<String> = Vec::new();
        if detrend == Detrend::Linear {
            names.push(TREND.into());
        }
        names.extend(confounds.first().into_iter().flat_map(|(_, table)| table.names.iter().cloned()));
        let mut covariates = Covariates { names, values: Vec::new() };
        if covariates.names.is_empty() {
            return Ok(covariates);
        }
        for run in 0..n_runs {
            let (kept, n_source) = observations.kept_rows(run);
            let table = confounds.get(run);
            if let Some((path, table)) = table.filter(|(_, table)| table.n_rows != n_source + n_dropped) {
                let dropped =
                    if n_dropped > 0 { format!(", {n_dropped} dropped ones among them") } else { String::new() };
                let problem = format!(
                    "has {} lines of confounds, but run {} has {} rows{dropped}; one line a row is needed",
                    table.n_rows,
                    run + 1,
                    n_source + n_dropped
                );
                return Err(Error::malformed(path, problem));
            }
            let about = observations.rows_of_means(run);
            covariates.push_run(detrend, table.map(|(_, table)| table), (&kept, &about), n_dropped);
        }
        Ok(covariates)
    }

    /// Adds the rows `kept` of a run, each column less its mean over the rows `about`.
    fn push_run(
        &mut self,
        detrend: Detrend,
        table: Option<&Confounds>,
        (kept, about): (&[usize], &[usize]),
        n_dropped: usize,
    ) {
        let values = |row: usize| {
            let trend = (detrend == Detrend::Linear).then_some(row as f64);
            let confounds = table.map_or(&[][..], |table| table.row(n_dropped + row));
            trend.into_iter().chain(confounds.iter().copied()).collect::<Vec<f64>>()
        };
        let known: Vec<Vec<f64>> = about.iter().map(|&row| values(row)).collect();
        let first = self.values.len();
        kept.iter().for_each(|&row| self.values.extend(values(row)));
        let n = self.n_columns();
        for column in 0..n {
            let own = || known.iter().map(|row| row[column]);
            let mean = own().sum::<f64>() / (known.len() as f64).max(1.0);
            let (raw, left): (f64, f64) = (own().map(|x| x * x).sum(), own().map(|x| (x - mean).powi(2)).sum());
            // What rounding leaves of a constant column is no covariate.
            let factor = if left > CONSTANT * raw { 1.0 } else { 0.0 };
            self.values[first..].iter_mut().skip(column).step_by(n).for_each(|x| *x = factor * (*x - mean));
        }
    }

    /// The same for rows that do not follow each other: each is taken for one in the middle of its run.
    pub fn without_trend(mut self) -> Covariates {
        let n = self.n_columns().max(1);
        if self.names.first().is_some_and(|name| name == TREND) {
            self.values.iter_mut().step_by(n).for_each(|x| *x = 0.0);
        }
        self
    }

    /// Refuses runs so short that a mean and the covariates fitted to them would explain them altogether.
    pub fn check_lengths(&self, observations: &Observations) -> Result<()> {
        // Runs cut short by a plan are let be.
        let too_short = |run: &usize| (1..=self.n_columns() + 1).contains(&observations.run_rows(*run).len());
        let Some(run) = (0..observations.n_runs()).find(too_short) else { return Ok(()) };
        if self.names.is_empty() || observations.is_cut_short() {
            return Ok(());
        }
        let problem = format!(
            "run {} has {} rows, which its mean and these {} covariates explain altogether; take fewer out",
            run + 1,
            observations.run_rows(run).len(),
            self.n_columns()
        );
        Err(Error::setting("detrend, confounds", self.names.join(", "), problem))
    }

    /// The columns' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Covariates of each row.
    pub fn n_columns(&self) -> usize {
        self.names.len()
    }

    /// Rows that have covariates; 0 where there are no columns.
    pub fn n_rows(&self) -> usize {
        self.values.len() / self.names.len().max(1)
    }

    /// The covariates of a row; nothing where there are none.
    pub fn row(&self, row: usize) -> &[f64] {
        let n = self.n_columns();
        &self.values[row * n..(row + 1) * n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Rows;
    use crate::data::division::{Division, Side};
    use crate::data::preprocess::{Centering, MeansOf, Preprocessing};
    use crate::data::write::write_npy_f64;
    use std::sync::Arc;

    /// Rows that are held out have the covariates that their run's other rows are about.
    #[test]
    fn held_out_rows_are_beside_the_means_of_the_others() {
        let rows = Rows::from_values((0..80).map(|x| x as f32).collect::<Vec<_>>(), &[2]).unwrap();
        let table = Confounds::from_values(&["a"], (0..40).map(|row| f64::from(row * row)).collect()).unwrap();
        let division = Arc::new(Division::new(&[40], 5, 0));
        let of = |side: Side| {
            let mut observations = Observations::of(&rows);
            observations.keep_part(&division, side);
            let table = (PathBuf::from("a.tsv"), table.clone());
            (Covariates::new(&observations, Detrend::Linear, &[table], 0).unwrap(), division.rows(0, side))
        };
        let ((training, places), (held, held_places)) = (of(Side::Training), of(Side::Held));
        let mean = |power: u32| places.iter().map(|&row| row.pow(power) as f64).sum::<f64>() / places.len() as f64;
        for (covariates, places) in [(&training, &places), (&held, &held_places)] {
            assert_eq!(covariates.n_rows(), places.len());
            for (at, &row) in places.iter().enumerate() {
                let expected = [row as f64 - mean(1), (row * row) as f64 - mean(2)];
                assert!(covariates.row(at).iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-9), "{row}");
            }
        }
    }

    /// 0.72 over 193 rows does not add up exactly; what rounding leaves of it must not take the mean off a second time.
    #[test]
    fn a_constant_confound_takes_nothing_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let values: Vec<f64> = (0..193).map(|row| 100.0 + f64::from(row % 5)).collect();
        write_npy_f64(&path, &[193, 1], &values).unwrap();
        let mut data = Observations::open(std::slice::from_ref(&path)).unwrap();
        let table = Confounds { names: vec!["constant".into()], values: vec![0.72; 193], n_rows: 193 };
        let covariates = Covariates::new(&data, Detrend::None, &[(path, table)], 0).unwrap();
        data.set_covariates(covariates);
        let (fitted, _) = Preprocessing::fit(&data, Centering::Site, false).unwrap();
        let mut row = [values[0]];
        fitted.clean(&mut row, data.covariates().row(0), MeansOf::Run(0));
        assert_eq!(row, [100.0]);
    }
}
