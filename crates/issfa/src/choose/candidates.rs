//! Structures that are worth a try on a grid, by what the rows of the fit look like along each axis.

use crate::data::Rows;
use crate::data::division::{Division, Side};
use crate::error::Result;
use crate::run::inputs;
use crate::run::settings::Settings;
use std::sync::Arc;

/// Axes of no more sites are kinds of things (colours, say) rather than places.
const FEW_SITES: usize = 4;
/// The fewest sites of a circle.
const LEAST_CIRCLE: usize = 8;
/// Rows that are looked at.
const MOST_ROWS: usize = 400;
/// How much more alike neighbours are than sites far apart, where an axis can be told to be a circle.
const LEAST_CONTRAST: f64 = 0.05;

/// Path on every axis; with a circle where the ends of an axis are nearly as alike as neighbours; without order on axes of few
/// sites; without structure at all. Rows that are held out are not looked at.
pub(super) fn structures(
    rows: &Rows,
    settings: &Settings,
    grid: &[usize],
    division: &Arc<Division>,
) -> Result<Vec<String>> {
    let paths = vec!["path"; grid.len()];
    let with = |axis: usize, word: &'static str| {
        let mut words = paths.clone();
        words[axis] = word;
        words
    };
    let mut found = vec![paths.clone()];
    let values = looked_at(rows, settings, division)?;
    for axis in 0..grid.len() {
        if grid[axis] >= LEAST_CIRCLE && ends_meet(&values, grid, axis) {
            found.push(with(axis, "cycle"));
        }
        if (2..=FEW_SITES).contains(&grid[axis]) && grid.len() > 1 {
            found.push(with(axis, "iid"));
        }
    }
    found.push(vec!["iid"; grid.len()]);
    found.dedup();
    Ok(found.iter().map(|words| words.join(" x ")).collect())
}

/// Rows of the fit, spread evenly, each site less its mean; NaN stays.
fn looked_at(rows: &Rows, settings: &Settings, division: &Arc<Division>) -> Result<Vec<Vec<f64>>> {
    let observations = inputs::open(&rows.clone().with_part(division, Side::Training), settings)?;
    let (n_rows, n_sites) = (observations.n_rows(), observations.n_sites());
    let step = n_rows.div_ceil(MOST_ROWS);
    let mut seen: Vec<Vec<f64>> = Vec::new();
    observations.for_each_chunk_raw(&mut |_, first_row, values| {
        for (at, row) in values.chunks_exact(n_sites).enumerate() {
            if (first_row + at).is_multiple_of(step) {
                seen.push(row.to_vec());
            }
        }
        Ok(())
    })?;
    for site in 0..n_sites {
        let own = || seen.iter().map(|row| row[site]).filter(|x| x.is_finite());
        let mean = own().sum::<f64>() / (own().count() as f64).max(1.0);
        seen.iter_mut().for_each(|row| row[site] -= mean);
    }
    Ok(seen)
}

/// Whether the first and the last site of an axis are nearer to each other, by their correlation, than to be far apart.
fn ends_meet(values: &[Vec<f64>], grid: &[usize], axis: usize) -> bool {
    let n = grid[axis];
    let [neighbours, far] = [1, n / 2].map(|lag| correlation(values, grid, axis, lag, 0..n - lag));
    let ends = correlation(values, grid, axis, n - 1, 0..1);
    neighbours - far > LEAST_CONTRAST && ends > 0.5 * (neighbours + far)
}

/// The correlation of sites that are `lag` apart along an axis, over those that begin at `places`.
fn correlation(values: &[Vec<f64>], grid: &[usize], axis: usize, lag: usize, places: std::ops::Range<usize>) -> f64 {
    let stride: usize = grid[axis + 1..].iter().product();
    let [mut xy, mut xx, mut yy] = [0.0; 3];
    for row in values {
        for site in (0..row.len()).filter(|site| places.contains(&(site / stride % grid[axis]))) {
            let (x, y) = (row[site], row[site + lag * stride]);
            if x.is_finite() && y.is_finite() {
                xy += x * y;
                xx += x * x;
                yy += y * y;
            }
        }
    }
    if xx * yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waves round a circle on one axis, a slope with noise on the other, three colours.
    #[test]
    fn circles_and_colours_are_seen() {
        let (hours, places) = (12, 9);
        let value = |row: usize, hour: usize, place: usize, colour: usize| {
            let angle = std::f64::consts::TAU * (hour as f64 / hours as f64 + row as f64 * 0.37);
            let slope = ((row * 7919 % 101) as f64 / 50.0 - 1.0) * (place as f64 - 4.0);
            angle.sin() + slope + colour as f64
        };
        let mut values = Vec::new();
        for row in 0..60 {
            for hour in 0..hours {
                for place in 0..places {
                    (0..3).for_each(|colour| values.push(value(row, hour, place, colour) as f32));
                }
            }
        }
        let grid = [hours, places, 3];
        let rows = Rows::from_values(values, &grid).unwrap();
        let division = Arc::new(Division::new(&[60], 5, 0));
        let found = structures(&rows, &Settings::default(), &grid, &division).unwrap();
        assert_eq!(found, ["path x path x path", "cycle x path x path", "path x path x iid", "iid x iid x iid"]);
        let line = Rows::from_values(vec![1.0f32; 300], &[5]).unwrap();
        let found = structures(&line, &Settings::default(), &[5], &division).unwrap();
        assert_eq!(found, ["path", "iid"]);
    }
}
