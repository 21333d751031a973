//! From rows and settings to observations: which runs, rows, sites and covariates take part.

use super::record::InputRecord;
use super::settings::Settings;
use crate::data::confounds::{Confounds, read_confounds};
use crate::data::runs::read_runs;
use crate::data::{Covariates, Detrend, Mask, Missing, Observations, Rows, read};
use crate::error::{Error, Result};
use crate::numeric::bytes::Element;
use crate::structure::expression;
use std::path::{Path, PathBuf};

/// Refuses what came along with the rows and is named in the settings too.
pub fn check(rows: &Rows, settings: &Settings) -> Result<()> {
    let twice = [
        ("mask", rows.mask.is_some() && settings.mask.is_some()),
        ("runs", rows.runs.is_some() && settings.runs.is_some()),
        ("confounds", !rows.confounds.is_empty() && !settings.confounds.is_empty()),
        ("heldout", rows.heldout.is_some() && settings.heldout.is_some()),
    ];
    match twice.iter().find(|(_, is_twice)| *is_twice) {
        None => Ok(()),
        Some((name, _)) => Err(Error::setting(name, "given twice", "it came along with the rows too; give it once")),
    }
}

/// The files that are read for a fit of these inputs: all that the settings name, but not a run to start from.
pub fn files(inputs: &[PathBuf], settings: &Settings) -> Vec<PathBuf> {
    let named =
        |text: &Option<String>, words: &[&str]| text.as_deref().filter(|text| !words.contains(text)).map(PathBuf::from);
    let noise = Some(settings.noise.clone());
    let of_structure = settings.structure.as_deref().map_or(Vec::new(), expression::files);
    let others = [&settings.runs, &settings.heldout, &settings.background].into_iter().flatten();
    let mut files: Vec<PathBuf> = inputs.iter().chain(&settings.confounds).chain(others).cloned().collect();
    files.extend(named(&settings.mask, &["auto"]).into_iter().chain(named(&noise, &["reference", "white"])));
    files.extend(of_structure);
    files
}

/// The rows divided into runs, without the volumes that are dropped at the start of each.
pub fn open(rows: &Rows, settings: &Settings) -> Result<Observations> {
    let mut observations = Observations::of(rows);
    if let Some(path) = &settings.runs {
        let runs = read_runs(path, observations.n_rows())?;
        observations.split(&runs)?;
    }
    if let Some(runs) = &rows.runs {
        observations.split(runs)?;
    }
    observations.drop_first(settings.drop_volumes)?;
    if let Some((division, side)) = &rows.part {
        observations.keep_part(division, *side);
    }
    Ok(observations)
}

/// Chooses sites and rows by mask and missing cells, and gives the rows their covariates.
pub fn choose_cells(
    observations: &mut Observations,
    rows: &Rows,
    settings: &Settings,
    grid: &[usize],
    known_mask: Option<Mask>,
) -> Result<()> {
    let is_known = known_mask.is_some();
    let mask = match (known_mask, &rows.mask, settings.mask.as_deref()) {
        (Some(mask), _, _) => Some(mask),
        (_, Some(inside), _) if inside.contains(&true) => Some(Mask::from_inside(inside)),
        (_, Some(_), _) => return Err(Error::malformed(rows.path(), "the mask is empty: no site takes part")),
        (_, _, None) => None,
        (_, _, Some("auto")) => Some(Mask::automatic(observations)?),
        (_, _, Some(path)) => Some(Mask::read_for(Path::new(path), grid, observations)?),
    };
    if let Some(mask) = mask {
        observations.set_mask(mask);
    }
    if !is_known && let Some(mask) = Mask::without_empty_sites(observations)? {
        observations.set_n_empty_sites(observations.n_columns() - mask.n_columns());
        observations.set_mask(mask);
    }
    if settings.missing == Missing::Impute {
        observations.allow_missing()?;
    }
    let columns = (!settings.confound_columns.is_empty()).then_some(&settings.confound_columns[..]);
    let tables = match &rows.confounds[..] {
        [] => read_tables(&settings.confounds, columns)?,
        [first, ..] => given_tables(rows, Some(columns.unwrap_or(&first.names)))?,
    };
    add_covariates(observations, settings.detrend, &tables, settings.drop_volumes)
}

/// The confounds that came along with rows, with these columns in this order; other columns are refused.
pub fn given_tables(rows: &Rows, columns: Option<&[String]>) -> Result<Vec<(PathBuf, Confounds)>> {
    let path = rows.path().to_path_buf();
    let Some(columns) = columns else { return Ok(rows.confounds.iter().map(|t| (path.clone(), t.clone())).collect()) };
    let matched = |(run, table): (usize, &Confounds)| {
        let mut table = table.clone();
        let is_same = table.names.len() == columns.len() && columns.iter().all(|name| table.names.contains(name));
        if !is_same {
            let (found, expected) = (table.names.join(", "), columns.join(", "));
            let problem = format!("the confounds of run {} are {found}, but {expected} are expected", run + 1);
            return Err(Error::malformed(&path, problem));
        }
        table.order_as(columns);
        Ok((path.clone(), table))
    };
    rows.confounds.iter().enumerate().map(matched).collect()
}

/// Reads the confounds of each run, the columns in the order given.
pub fn read_tables(paths: &[PathBuf], columns: Option<&[String]>) -> Result<Vec<(PathBuf, Confounds)>> {
    let mut tables: Vec<Confounds> = read_confounds(paths, columns)?;
    if let Some(columns) = columns {
        tables.iter_mut().for_each(|table| table.order_as(columns));
    }
    Ok(paths.iter().cloned().zip(tables).collect())
}

/// Gives every row its covariates.
pub fn add_covariates(
    observations: &mut Observations,
    detrend: Detrend,
    tables: &[(PathBuf, Confounds)],
    n_dropped: usize,
) -> Result<()> {
    let covariates = Covariates::new(observations, detrend, tables, n_dropped)?;
    observations.set_covariates(covariates);
    Ok(())
}

/// What the inputs are known by.
pub fn records(rows: &Rows, observations: &Observations) -> Result<Vec<InputRecord>> {
    let one = |(input, (path, checksum)): (usize, (PathBuf, String))| InputRecord {
        path,
        n_rows: observations.input_rows(input),
        checksum,
    };
    Ok(rows.checksums()?.into_iter().enumerate().map(one).collect())
}

/// The checksums of what decides the data beside the inputs: confounds, and the names of runs.
pub fn side_checksums(rows: &Rows, settings: &Settings) -> Result<Vec<String>> {
    let files = settings.confounds.iter().chain(&settings.runs).map(|path| read::checksum(path));
    let mut checksums = files.collect::<Result<Vec<_>>>()?;
    let digest = |bytes: &[u8]| format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes));
    checksums.extend(rows.confounds.iter().map(|table| digest(&f64::write(&table.values))));
    let runs = rows.runs.iter().flatten().flat_map(|run| (run.n_rows as u64).to_le_bytes()).collect::<Vec<u8>>();
    checksums.extend((!runs.is_empty()).then(|| digest(&runs)));
    Ok(checksums)
}
