//! Weights and features as tables under the names that the input gives to its rows and columns.

use super::Fitted;
use crate::data::Observations;
use crate::data::read::csv::is_table;
use crate::data::read::text::read_text;
use crate::error::Result;
use crate::numeric::files::write_atomically;
use crate::run::folder::{LABELLED_FEATURES, LABELLED_WEIGHTS};
use crate::run::inputs;
use std::path::Path;

/// Writes the tables of a fit into a folder, where an input has names; the inputs are read again for them.
pub fn write(fitted: &Fitted, folder: &Path) -> Result<()> {
    let settings = fitted.settings();
    if !settings.input.iter().any(|path| is_table(path)) {
        return Ok(());
    }
    let observations = inputs::open(&settings.rows()?, settings)?;
    write_features(fitted, observations.column_names(), folder)?;
    write_weights(&observations, &fitted.ids_of_features(), &fitted.weights().values, folder)
}

/// Writes the tables of a fit into a folder under the names that those of another fit of the same rows have.
pub fn write_like(fitted: &Fitted, other: &Path, folder: &Path) -> Result<()> {
    write_features(fitted, names_in(&other.join(LABELLED_FEATURES))?.as_deref(), folder)?;
    let rows = names_in(&other.join(LABELLED_WEIGHTS))?;
    rows.map_or(Ok(()), |names| write_rows(&names, &fitted.ids_of_features(), &fitted.weights().values, folder))
}

/// The names in the first column of one of these tables; nothing where there is none.
pub fn names_in(path: &Path) -> Result<Option<Vec<String>>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(path)?;
    let name = |line: &str| line.split('\t').next().unwrap_or_default().to_string();
    Ok(Some(text.lines().skip(1).map(name).collect()))
}

fn write_features(fitted: &Fitted, names: Option<&[String]>, folder: &Path) -> Result<()> {
    let Some(names) = names else { return Ok(()) };
    let (ids, features) = (fitted.ids_of_features(), fitted.features());
    let value = |site: usize, feature: usize| features.values[feature * names.len() + site];
    let rows = names.iter().enumerate().map(|(site, name)| (name, (0..ids.len()).map(|k| value(site, k)).collect()));
    write_table(&folder.join(LABELLED_FEATURES), "column", &ids, rows)
}

/// Writes the weights (rows x features) of observations whose rows have names.
pub fn write_weights(observations: &Observations, ids: &[u64], weights: &[f32], folder: &Path) -> Result<()> {
    observations.row_names().map_or(Ok(()), |names| write_rows(&names, ids, weights, folder))
}

fn write_rows(names: &[String], ids: &[u64], weights: &[f32], folder: &Path) -> Result<()> {
    let of_row = |row: usize| weights[row * ids.len()..(row + 1) * ids.len()].to_vec();
    let rows = names.iter().enumerate().map(|(row, name)| (name, of_row(row)));
    write_table(&folder.join(LABELLED_WEIGHTS), "row", ids, rows)
}

impl Fitted {
    fn ids_of_features(&self) -> Vec<u64> {
        self.found().features.table.iter().map(|row| row.id).collect()
    }
}

fn write_table<'a>(
    path: &Path,
    what: &str,
    ids: &[u64],
    rows: impl Iterator<Item = (&'a String, Vec<f32>)>,
) -> Result<()> {
    let header: String = ids.iter().map(|id| format!("\tfeature_{id}")).collect();
    let number = |x: &f32| if x.is_nan() { "\tn/a".to_string() } else { format!("\t{x:.6e}") };
    let line = |(name, values): (&String, Vec<f32>)| {
        let name = name.replace(['\t', '\n', '\r'], " ");
        format!("{name}{}\n", values.iter().map(number).collect::<String>())
    };
    let text = format!("{what}{header}\n{}", rows.map(line).collect::<String>());
    write_atomically(path, text.as_bytes())
}
