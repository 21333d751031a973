//! Shapes of data that are probably not what is meant, each with the setting that says otherwise.

use super::settings::Settings;
use crate::data::Rows;
use crate::data::grid::{parse_grid, show_grid};
use crate::data::read::csv::is_table;
use crate::data::read::npz;
use crate::data::read::{RowSource, RowsAxis};
use crate::error::{Result, setting};
use std::path::Path;

/// Images have at least so many sites along each axis.
const LEAST_SIDE: usize = 8;
/// A column of labels has at most so many different ones.
const MOST_LABELS: usize = 100;
/// Rows of a table that are looked at.
const MOST_ROWS: usize = 2000;
/// Names of columns that are no data.
const OTHER_THAN_DATA: [&str; 9] = ["label", "labels", "class", "target", "y", "id", "index", "unnamed: 0", ""];

/// What is probably not meant, a line each.
pub fn doubts(rows: &Rows, settings: &Settings) -> Result<Vec<String>> {
    let source = rows.sources[0].as_ref();
    let about_rows = about_rows(source, settings);
    let about_columns = match settings.columns.is_none() && settings.rows_axis.is_usual() && is_table(source.path()) {
        true => about_columns(source)?,
        false => None,
    };
    let about_sites = about_colours(source, settings).or_else(|| about_lines(source, settings));
    let found = [about_rows, about_columns, about_sites].into_iter().flatten();
    Ok(found.map(|doubt| format!("{}: {doubt}", source.path().display())).collect())
}

fn is_array(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    npz::split(path).is_some() || name.ends_with(".npy") || name.ends_with(".npz")
}

/// Arrays with the time last, as (x, y, z, time).
fn about_rows(source: &dyn RowSource, settings: &Settings) -> Option<String> {
    let (path, n_rows, n_sites) = (source.path(), source.n_rows(), source.n_sites());
    if settings.rows_axis == RowsAxis::Last || !(is_array(path) || is_table(path)) {
        return None;
    }
    let remedy = format!("if the last axis counts the rows, add {}", setting("rows-axis").to("last"));
    let given = settings.grid.as_deref().and_then(|text| parse_grid(text).ok());
    let n_given: Option<usize> = given.map(|grid| grid.iter().product());
    let Some(grid) = source.grid() else {
        let is_turned = n_given == Some(n_rows) && n_given != Some(n_sites);
        return is_turned
            .then(|| format!("has {n_rows} rows, as many as the grid has sites, of {n_sites} sites; {remedy}"));
    };
    let (last, first) = (grid[grid.len() - 1], n_rows);
    let longest = grid[..grid.len() - 1].iter().copied().max().unwrap_or(0).max(first);
    let is_colour = grid.len() > 2 && (3..=4).contains(&last);
    // Rows that are as many as sites along an axis of space are likely to be one.
    let is_space = grid[..grid.len() - 1].contains(&first) && last != first;
    let is_long = if grid.len() > 2 { last > longest } else { last > 2 * longest };
    (!is_colour && (is_space || is_long))
        .then(|| format!("is read as {n_rows} rows on the grid {}; {remedy}", show_grid(grid)))
}

/// Channels, between which features would be smooth.
fn about_colours(source: &dyn RowSource, settings: &Settings) -> Option<String> {
    let grid = source.grid().filter(|grid| grid.len() > 2 && source.space().is_none())?;
    let last = grid[grid.len() - 1];
    let structure = "path x ".repeat(grid.len() - 1) + "iid";
    (settings.structure.is_none() && settings.preset.is_none() && (3..=4).contains(&last)).then(|| {
        format!(
            "the last axis of {last} looks like colours, along which features are taken to be smooth; if it is, add {}",
            setting("structure").to(format!("\"{structure}\""))
        )
    })
}

/// Images that are read as lines.
fn about_lines(source: &dyn RowSource, settings: &Settings) -> Option<String> {
    let is_plain = source.grid().is_none() && source.column_names().is_none();
    let nothing_said = settings.grid.is_none() && settings.structure.is_none() && settings.preset.is_none();
    let side = side_of_square(source.n_sites()).filter(|_| is_plain && nothing_said)?;
    let grid = setting("grid").to(format!("{side}x{side}"));
    Some(format!(
        "its {} sites are read as a line; if they are images of {side} x {side}, add {grid}",
        source.n_sites()
    ))
}

fn side_of_square(n: usize) -> Option<usize> {
    let side = (n as f64).sqrt().round() as usize;
    (side * side == n && side >= LEAST_SIDE).then_some(side)
}

/// A first or last column that numbers or labels the rows.
fn about_columns(source: &dyn RowSource) -> Result<Option<String>> {
    let (n_rows, n_columns) = (source.n_rows().min(MOST_ROWS), source.n_sites());
    if n_columns < 2 || n_rows < 3 {
        return Ok(None);
    }
    let mut values = vec![0.0; n_rows * n_columns];
    source.read_rows(0, &mut values)?;
    let column = |at: usize| values.iter().skip(at).step_by(n_columns).copied().collect::<Vec<f64>>();
    let name = |at: usize| source.column_names().map(|names| names[at].as_str());
    let is_other = |at: usize| name(at).is_some_and(|name| OTHER_THAN_DATA.contains(&name.to_lowercase().as_str()));
    let first = usize::from(source.row_names().is_some());
    let remedy = |at: usize| match name(at).filter(|name| !name.is_empty() && !name.contains(',')) {
        Some(name) => setting("columns").to(format!("^{name}")),
        None => setting("columns").to(format!("^{}", at + first + 1)),
    };
    let is_square_without = side_of_square(n_columns - 1).is_some();
    for at in [0, n_columns - 1] {
        let values = column(at);
        let number = at + first + 1;
        if at == 0 && values.windows(2).all(|pair| pair[1] == pair[0] + 1.0) {
            return Ok(Some(format!("column {number} counts the rows; if it is no data, add {}", remedy(at))));
        }
        if is_other(at) || is_square_without && are_labels(&values) {
            return Ok(Some(format!("column {number} looks like labels; if it is no data, add {}", remedy(at))));
        }
    }
    Ok(None)
}

/// Whole numbers, few different ones.
fn are_labels(values: &[f64]) -> bool {
    let mut different: Vec<u64> = values.iter().map(|x| x.to_bits()).collect();
    different.sort_unstable();
    different.dedup();
    values.iter().all(|x| x.fract() == 0.0) && (2..=MOST_LABELS.min(values.len() - 1)).contains(&different.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write::write_npy_f32;

    fn of_shape(shape: &[usize], settings: &Settings) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npy");
        write_npy_f32(&path, shape, &vec![0.0; shape.iter().product()]).unwrap();
        doubts(&Rows::open(&[path]).unwrap(), settings).unwrap()
    }

    fn of_table(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.csv");
        std::fs::write(&path, text).unwrap();
        doubts(&Rows::open(&[path]).unwrap(), &Settings::default()).unwrap()
    }

    #[test]
    fn time_that_stands_last_is_asked_about() {
        let plain = Settings::default();
        for shape in [&[9, 9, 5, 20][..], &[9, 11, 9, 8], &[9, 9, 40], &[5, 6, 13]] {
            let found = of_shape(shape, &plain);
            assert!(found.len() == 1 && found[0].contains("`rows-axis = last`"), "{shape:?}: {found:?}");
        }
        for shape in [&[20, 9, 9, 5][..], &[40, 9, 9], &[6, 10, 12], &[40, 30], &[30, 40]] {
            assert!(of_shape(shape, &plain).is_empty(), "{shape:?}");
        }
        let with_grid = Settings { grid: Some("10x6".into()), ..Settings::default() };
        assert!(of_shape(&[60, 7], &with_grid)[0].contains("`rows-axis = last`"));
        assert!(of_shape(&[7, 60], &with_grid).is_empty());
    }

    #[test]
    fn flat_images_and_colours_are_asked_about() {
        let plain = Settings::default();
        assert!(of_shape(&[3, 784], &plain)[0].contains("`grid = 28x28`"));
        assert!(of_shape(&[3, 783], &plain).is_empty());
        let line = Settings { structure: Some("path".into()), ..Settings::default() };
        assert!(of_shape(&[3, 784], &line).is_empty());
        let found = of_shape(&[20, 9, 8, 3], &plain);
        assert!(found.len() == 1 && found[0].contains("path x path x iid"), "{found:?}");
    }

    #[test]
    fn columns_that_are_no_data_are_asked_about() {
        let lines = |first: &dyn Fn(usize) -> String, n: usize| -> String {
            let cells =
                |row: usize| (0..n).map(|at| format!(",{}", (row * 7 + at * 3) as f64 * 0.37)).collect::<String>();
            (0..30).map(|row| format!("{}{}\n", first(row), cells(row))).collect()
        };
        let index = of_table(&lines(&|row| row.to_string(), 5));
        assert!(
            index.len() == 1 && index[0].contains("counts the rows") && index[0].contains("`columns = ^1`"),
            "{index:?}"
        );
        let labels = of_table(&lines(&|row| (row * 7 % 10).to_string(), 64));
        assert!(labels.len() == 1 && labels[0].contains("looks like labels"), "{labels:?}");
        let named = of_table("a,b,target\n1,2.5,7\n4,2,0.5\n1,1,3\n");
        assert!(named.len() == 1 && named[0].contains("`columns = ^target`"), "{named:?}");
        assert!(of_table("a,b,c\n1,2.5,7\n4,2,0.5\n1,1,3\n").is_empty());
        assert!(of_table(&lines(&|row| format!("day{row}"), 5)).is_empty(), "names of rows");
    }
}
