//! What is regressed out of every site beside its mean: a trend over the run, and confounds.

use super::Observations;
use super::confounds::Confounds;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Which trend is taken out of each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Detrend {
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
            return Err(Error::setting("--confounds", format!("{} files", confounds.len()), problem));
        }
        let mut names: Vec<String> = Vec::new();
        if detrend == Detrend::Linear {
            names.push("trend".into());
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
            covariates.push_run(detrend, table.map(|(_, table)| table), &kept, n_dropped);
            covariates.check_count(observations, run, kept.len())?;
        }
        Ok(covariates)
    }

    fn push_run(&mut self, detrend: Detrend, table: Option<&Confounds>, kept: &[usize], n_dropped: usize) {
        let (first, n) = (self.values.len(), self.n_columns());
        for &row in kept {
            if detrend == Detrend::Linear {
                self.values.push(row as f64);
            }
            if let Some(table) = table {
                let n = table.names.len();
                self.values.extend_from_slice(&table.values[(n_dropped + row) * n..(n_dropped + row + 1) * n]);
            }
        }
        for column in 0..n {
            let mean = self.values[first + column..].iter().step_by(n).sum::<f64>() / (kept.len() as f64).max(1.0);
            self.values[first + column..].iter_mut().step_by(n).for_each(|x| *x -= mean);
        }
    }

    fn check_count(&self, observations: &Observations, run: usize, n_kept: usize) -> Result<()> {
        // A mean and the covariates would explain a run with fewer rows altogether. Runs cut short by a plan are let be.
        if n_kept == 0 || n_kept > self.n_columns() + 1 || observations.is_cut_short() {
            return Ok(());
        }
        let problem = format!(
            "run {} has {n_kept} rows, which its mean and {} covariates explain altogether; use fewer columns \
             (--confound-columns)",
            run + 1,
            self.n_columns()
        );
        Err(Error::setting("--confounds", self.names.join(", "), problem))
    }

    /// The columns' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn n_columns(&self) -> usize {
        self.names.len()
    }

    pub fn n_rows(&self) -> usize {
        self.values.len() / self.names.len().max(1)
    }

    /// The covariates of a row; nothing where there are none.
    pub fn row(&self, row: usize) -> &[f64] {
        let n = self.n_columns();
        &self.values[row * n..(row + 1) * n]
    }
}
