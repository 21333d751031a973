//! Signal that differences hold too is shared by rows, noise is not: principal components are taken out of the smooth bands.

use super::bands::Bands;
use super::spectra::{BLOCK, Spectra};
use crate::numeric::eigen::symmetric_eigen;
use crate::numeric::linalg::{View, multiply};

/// Principal components are sought among so many of the smoothest modes.
const MOST_MODES: usize = 1000;
/// How far beyond the edge of noise a component is signal.
const BEYOND_NOISE: f64 = 1.1;
/// The least share of a band's modes that components leave to measure noise on.
const LEAST_LEFT: f64 = 0.1;
/// How often components are sought anew.
const ROUNDS: usize = 3;

/// The powers of smooth bands without what is shared by many rows: principal components whose variance is beyond what
/// noise of the present powers gives a sample of as many rows are taken out, with their share of each band's modes, and
/// the powers are measured again on what is left. They only ever go down, from powers that hold all signal.
pub fn without_components<Row: Iterator<Item = f64>>(
    bands: &Bands,
    (n_rows, freedom): (usize, f64),
    row: impl Fn(usize) -> Row + Sync,
    spectra: &Spectra,
    powers: &[f64],
) -> Vec<f64> {
    let n = bands.order.len().min(MOST_MODES);
    let smooth = &bands.order[..n];
    let mut gram = vec![0.0; n * n];
    let mut block: Vec<f64> = Vec::with_capacity(BLOCK * n);
    let mut product = vec![0.0; n * n];
    let mut flush = |block: &mut Vec<f64>| {
        let rows = View::new(block, block.len() / n, n);
        multiply(&mut product, rows.t(), rows);
        gram.iter_mut().zip(&product).for_each(|(sum, x)| *sum += x);
        block.clear();
    };
    let n_rows = spectra.for_each(n_rows, row, f64::INFINITY, |spectrum| {
        block.extend(smooth.iter().map(|&mode| spectrum[mode]));
        if block.len() == BLOCK * n {
            flush(&mut block);
        }
    });
    if !block.is_empty() {
        flush(&mut block);
    }
    let n_rows = freedom * n_rows;
    // Under a mask modes are not independent: up to so many of them share what one would hold.
    let shared = spectra.structure.n_sites() as f64 / spectra.mask.n_columns() as f64;
    let edge = (1.0 + (n as f64 / n_rows).sqrt()).powi(2) * BEYOND_NOISE * shared;
    let mut now = powers.to_vec();
    for _ in 0..ROUNDS {
        now = lowered(bands, &gram, (n, n_rows), edge, &now);
    }
    now
}

/// One round, given products of n modes with each other over so many rows.
fn lowered(bands: &Bands, gram: &[f64], (n, n_rows): (usize, f64), edge: f64, powers: &[f64]) -> Vec<f64> {
    let band_of = |rank: usize| bands.of_rank(rank);
    let of_mode: Vec<f64> = (0..n).map(|rank| powers[band_of(rank)]).collect();
    let entry = |at: usize| gram[at] / (n_rows * (of_mode[at / n] * of_mode[at % n]).sqrt());
    let covariance: Vec<f64> = (0..n * n).map(entry).collect();
    let eigen = symmetric_eigen(&covariance, n);
    let signal: Vec<usize> = (0..n).filter(|&i| eigen.values[i] > edge).collect();
    // By band: what is left of the power, and of the modes.
    let mut left = vec![(0.0, 0.0, 0.0); powers.len()];
    for rank in 0..n {
        let (mut power, mut share) = (covariance[rank * n + rank], 1.0);
        for &i in &signal {
            let square = eigen.vectors[rank * n + i].powi(2);
            power -= eigen.values[i] * square;
            share -= square;
        }
        let of_band = &mut left[band_of(rank)];
        *of_band = (of_band.0 + power, of_band.1 + share, of_band.2 + 1.0);
    }
    let mut lowered = powers.to_vec();
    for band in (0..powers.len()).rev() {
        let (power, share, n) = left[band];
        if share >= LEAST_LEFT * n && n > 0.0 {
            lowered[band] = powers[band] * (power / share).clamp(LEAST_LEFT * LEAST_LEFT, 1.0);
        } else if n > 0.0 && band + 1 < powers.len() {
            // Nothing is left to measure: as its neighbour.
            lowered[band] = powers[band].min(lowered[band + 1]);
        }
    }
    lowered
}
