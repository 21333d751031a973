//! Fits an array in memory, with a mask, cells that were not observed, two runs and confounds, then looks at new rows:
//! `cargo run --release --example fit_array`.

use issfa::{Centering, Confounds, Detrend, Fitted, Missing, Rows, Settings, fit};

/// The grid, the rows of each of the two runs, and the confounds of a row.
pub const GRID: [usize; 2] = [20, 24];
pub const RUN_ROWS: [usize; 2] = [60, 50];
pub const CONFOUNDS: [&str; 2] = ["motion", "pulse"];

/// Two smooth features that rows use in turns, confounds in every site, noise, and holes; row-major.
pub fn values() -> Vec<f32> {
    let n_sites = GRID[0] * GRID[1];
    let n_rows: usize = RUN_ROWS.iter().sum();
    let cell = |row: usize, site: usize| {
        if (row * 31 + site * 7).is_multiple_of(89) {
            return f32::NAN;
        }
        let (x, y) = ((site / GRID[1]) as f32 / 6.0, (site % GRID[1]) as f32 / 5.0);
        let weights = [[1.5, 0.0], [0.0, 2.0], [0.0, 0.0], [1.0, -1.5]][row % 4];
        let noise = ((row * 7919 + site * 104_729) % 1009) as f32 / 504.5 - 1.0;
        let nuisance = 0.5 * confounds(row)[0] as f32 - 0.3 * confounds(row)[1] as f32;
        5.0 + weights[0] * x.sin() * y.cos() + weights[1] * (x + y).cos() + nuisance + 0.4 * noise
    };
    (0..n_rows).flat_map(|row| (0..n_sites).map(move |site| cell(row, site))).collect()
}

/// What disturbed a row.
pub fn confounds(row: usize) -> [f64; 2] {
    [(row as f64 / 7.0).sin(), (row as f64 * 1.3).cos()]
}

/// A disk of sites.
pub fn mask() -> Vec<bool> {
    let inside = |site: usize| (site / GRID[1]).abs_diff(10).pow(2) + (site % GRID[1]).abs_diff(12).pow(2) < 90;
    (0..GRID[0] * GRID[1]).map(inside).collect()
}

/// As options of the command would have them.
pub fn settings() -> Settings {
    Settings {
        sweeps: 60,
        seed: 3,
        center: Some(Centering::Both),
        detrend: Detrend::Linear,
        missing: Missing::Impute,
        reconstruct: true,
        ..Settings::default()
    }
}

/// The rows with all that belongs to them.
pub fn rows() -> issfa::Result<Rows> {
    let mut first = 0;
    let mut tables = Vec::new();
    for n_rows in RUN_ROWS {
        tables.push(Confounds::from_values(&CONFOUNDS, (first..first + n_rows).flat_map(confounds).collect())?);
        first += n_rows;
    }
    let rows = Rows::from_values(values(), &GRID)?.with_mask(&mask())?;
    Ok(rows.with_runs(&[("first", RUN_ROWS[0]), ("second", RUN_ROWS[1])])?.with_confounds(tables))
}

/// Rows in, a fitted model out.
pub fn fitted() -> issfa::Result<Fitted> {
    fit(rows()?, &settings())
}

#[allow(dead_code)]
fn main() -> issfa::Result<()> {
    let fitted = fitted()?;
    println!("{}", fitted.summary());
    let n_sites = GRID[0] * GRID[1];
    let table = Confounds::from_values(&CONFOUNDS, (0..8).flat_map(confounds).collect())?;
    let new = Rows::from_values(values()[..8 * n_sites].to_vec(), &GRID)?.with_confounds(vec![table]);
    let new = fitted.transform(new)?;
    println!("weights of new rows: {:?}, denoised rows: {:?}", new.weights.shape, new.reconstruction.shape);
    Ok(())
}
