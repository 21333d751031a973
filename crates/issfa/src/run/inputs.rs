//! From settings to observations: which files, runs, rows, sites and covariates take part.

use crate::data::confounds::{Confounds, read_confounds};
use crate::data::runs::read_runs;
use crate::data::{Covariates, Detrend, Mask, Missing, Observations, read};
use crate::error::Result;
use crate::run::settings::{InputRecord, Settings};
use std::path::{Path, PathBuf};

/// Opens the inputs, divided into runs, without the volumes that are dropped at the start of each.
pub fn open(settings: &Settings) -> Result<Observations> {
    let mut observations = Observations::open(&settings.input)?;
    if let Some(path) = &settings.runs {
        let runs = read_runs(path, observations.n_rows())?;
        observations.split(&runs)?;
    }
    observations.drop_first(settings.drop_volumes)?;
    Ok(observations)
}

/// Chooses sites and rows by mask and missing cells, and gives the rows their covariates.
pub fn choose_cells(observations: &mut Observations, settings: &Settings, grid: &[usize]) -> Result<()> {
    let mask = match settings.mask.as_deref() {
        None => None,
        Some("auto") => Some(Mask::automatic(observations)?),
        Some(path) => Some(Mask::read_for(Path::new(path), grid, observations)?),
    };
    complete(observations, settings, mask)
}

/// [`choose_cells`] with the mask already known.
pub fn complete(observations: &mut Observations, settings: &Settings, mask: Option<Mask>) -> Result<()> {
    if let Some(mask) = mask {
        observations.set_mask(mask);
    }
    if settings.missing == Missing::Impute {
        observations.allow_missing()?;
    }
    let columns = (!settings.confound_columns.is_empty()).then_some(&settings.confound_columns[..]);
    add_covariates(observations, settings.detrend, &settings.confounds, columns, settings.drop_volumes)
}

/// Reads the confounds of each run and gives every row its covariates.
pub fn add_covariates(
    observations: &mut Observations,
    detrend: Detrend,
    confounds: &[PathBuf],
    columns: Option<&[String]>,
    n_dropped: usize,
) -> Result<()> {
    let mut tables: Vec<Confounds> = read_confounds(confounds, columns)?;
    if let Some(columns) = columns {
        tables.iter_mut().for_each(|table| table.order_as(columns));
    }
    let tables: Vec<(PathBuf, Confounds)> = confounds.iter().cloned().zip(tables).collect();
    let covariates = Covariates::new(observations, detrend, &tables, n_dropped)?;
    observations.set_covariates(covariates);
    Ok(())
}

/// What the inputs are known by.
pub fn records(settings: &Settings, observations: &Observations) -> Result<Vec<InputRecord>> {
    let one = |(input, path): (usize, &PathBuf)| {
        let n_rows = observations.input_rows(input);
        Ok(InputRecord { path: path.clone(), n_rows, checksum: read::checksum(path)? })
    };
    settings.input.iter().enumerate().map(one).collect()
}

/// The checksums of files that decide the data beside the inputs: confounds, and the names of runs.
pub fn side_checksums(settings: &Settings) -> Result<Vec<String>> {
    settings.confounds.iter().chain(&settings.runs).map(|path| read::checksum(path)).collect()
}
