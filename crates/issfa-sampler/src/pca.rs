//! Principal components of the data, without centring: what people would use instead.

use crate::comm::Solo;
use crate::model::Loadings;
use crate::numeric::eigen::symmetric_eigen;
use crate::numeric::linalg::{Real, View, multiply};
use crate::numeric::workers::share;
use crate::spectral::{FeatureSpectra, Pass, SpectralData, TILE, squared_row_norms, weighted_rows};

const BLOCK: usize = 256;

/// Unit-norm components (as spectra) by descending eigenvalue.
pub struct Components<R> {
    /// One a component.
    pub spectra: FeatureSpectra<R>,
    /// The sum of squares along each.
    pub squares: Vec<f64>,
    /// The sum of squares of the data.
    pub total: f64,
}

/// The first `n` components (fewer if the data have fewer), from the eigenvectors of `Y Y'`.
pub fn components<R: Real>(data: &SpectralData<R>, n: usize) -> Components<R> {
    let t = data.n_rows();
    let eigen = symmetric_eigen(&row_gram(data), t);
    let largest = eigen.values.last().copied().unwrap_or(0.0);
    let n = n.min(t).min(data.n_modes());
    let (mut weights, mut squares) = (Vec::new(), Vec::new());
    for place in (0..t).rev().take(n) {
        let value = eigen.values[place];
        // Products are rounded: what is left of a direction without variance is not a component.
        if value <= (16.0 * R::EPSILON).max(1e-10) * largest {
            break;
        }
        weights.push((0..t).map(|row| (row, eigen.vectors[row * t + place] / value.sqrt())).collect());
        squares.push(value);
    }
    Components { spectra: weighted_rows(data, &weights), squares, total: eigen.values.iter().sum() }
}

/// `Y Y'`, row-major: blocks of rows in parallel, tiles in order.
fn row_gram<R: Real>(data: &SpectralData<R>) -> Vec<f64> {
    let t = data.n_rows();
    let mut gram = vec![0.0; t * t];
    share(gram.chunks_mut(BLOCK * t).enumerate(), Vec::new, |products: &mut Vec<R>, (block, sums)| {
        let (first, n_rows) = (block * BLOCK, sums.len() / t);
        // The lower triangle is all that is read.
        let n_cols = first + n_rows;
        for tile in 0..data.tiles().len() {
            let width = data.tiles().width(tile);
            let values = data.tile(tile);
            let rows = View::new(&values[first * width..(first + n_rows) * width], n_rows, width);
            let cols = View::new(&values[..n_cols * width], n_cols, width);
            products.resize(n_rows * n_cols, R::zero());
            multiply(products, rows, cols.t());
            for (sums, products) in sums.chunks_exact_mut(t).zip(products.chunks_exact(n_cols)) {
                sums.iter_mut().zip(products).for_each(|(sum, x)| *sum += x.to_f64());
            }
        }
    });
    gram
}

/// `Y'Y` over modes, row-major: blocks of modes in parallel, stretches of rows in order.
fn mode_gram<R: Real>(data: &SpectralData<R>) -> Vec<f64> {
    const STRETCH: usize = 1024;
    let (n, tiles) = (data.n_modes(), data.tiles());
    let mut gram = vec![0.0; n * n];
    share(gram.chunks_mut(TILE * n).enumerate(), Vec::new, |products: &mut Vec<R>, (tile, sums)| {
        let width = tiles.width(tile);
        // The lower triangle is all that is read.
        for other in 0..=tile {
            let other_width = tiles.width(other);
            products.resize(width * other_width, R::zero());
            let stretches = data.tile(tile).chunks(STRETCH * width).zip(data.tile(other).chunks(STRETCH * other_width));
            for (rows, other_rows) in stretches {
                let n_rows = rows.len() / width;
                multiply(products, View::new(rows, n_rows, width).t(), View::new(other_rows, n_rows, other_width));
                for (sums, products) in sums.chunks_exact_mut(n).zip(products.chunks_exact(other_width)) {
                    let sums = &mut sums[other * TILE..other * TILE + other_width];
                    sums.iter_mut().zip(products).for_each(|(sum, x)| *sum += x.to_f64());
                }
            }
        }
    });
    gram
}

/// `Y Y'` or `Y'Y`, whichever is smaller; only the lower triangle is filled.
pub fn smaller_gram<R: Real>(data: &SpectralData<R>) -> Vec<f64> {
    if data.n_rows() <= data.n_modes() { row_gram(data) } else { mode_gram(data) }
}

/// The scores of rows on components: their inner products, row-major rows x components.
pub fn scores<R: Real>(components: &Components<R>, data: &SpectralData<R>) -> Vec<f64> {
    let norms: Vec<f64> = squared_row_norms(data).iter().map(|x| x.sqrt()).collect();
    let nothing = Loadings::empty(data.n_rows());
    let pass = Pass { data, row_norms: &norms, loadings: &nothing, comm: &Solo };
    let projections = pass.project(&mut components.spectra.clone());
    (0..data.n_rows()).flat_map(|row| projections.row(row).to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gram_matrices_equal_the_naive_ones() {
        for (n_rows, n_modes) in [(5, 3), (3, 5), (2100, 300), (300, 600)] {
            let value = |t: usize, v: usize| ((t * 31 + v * 17) as f64 * 0.37).sin();
            let rows: Vec<Vec<f64>> = (0..n_rows).map(|t| (0..n_modes).map(|v| value(t, v)).collect()).collect();
            let gram = smaller_gram(&SpectralData::<f64>::from_rows(&rows));
            let n = n_rows.min(n_modes);
            assert_eq!(gram.len(), n * n);
            for (i, j) in [(0, 0), (n - 1, 0), (n - 1, n / 2), (n / 2, n / 3), (n - 1, n - 1)] {
                let naive: f64 = if n_rows <= n_modes {
                    (0..n_modes).map(|v| value(i, v) * value(j, v)).sum()
                } else {
                    (0..n_rows).map(|t| value(t, i) * value(t, j)).sum()
                };
                assert!((gram[i * n + j] - naive).abs() < 1e-9, "{n_rows} x {n_modes} at {i}, {j}");
            }
        }
    }

    #[test]
    fn components_are_orthonormal_and_explain_low_rank_data() {
        let wave = |t: usize, v: usize, f: f64| ((t as f64) * f).sin() * ((v as f64) * f * 0.1).cos();
        let rows: Vec<Vec<f64>> =
            (0..300).map(|t| (0..40).map(|v| wave(t, v, 1.0) + 0.5 * wave(t, v, 2.7)).collect()).collect();
        let data = SpectralData::<f64>::from_rows(&rows);
        let components = components(&data, 10);
        assert_eq!(components.spectra.n_features(), 2, "rank two");
        let (a, b) = (components.spectra.feature(0), components.spectra.feature(1));
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        assert!((dot(&a, &a) - 1.0).abs() < 1e-9 && dot(&a, &b).abs() < 1e-7);
        let scores = scores(&components, &data);
        let left: f64 = rows
            .iter()
            .enumerate()
            .flat_map(|(t, row)| {
                let (a, b, scores) = (&a, &b, &scores);
                row.iter().enumerate().map(move |(v, y)| y - scores[2 * t] * a[v] - scores[2 * t + 1] * b[v])
            })
            .map(|r| r * r)
            .sum();
        assert!(left < 1e-12, "{left}");
    }
}
