//! How many principal components: Minka's Laplace approximation of the evidence \[M13\], for any shape of data.
//!
//! The method needs more samples than dimensions. Where there are fewer rows than sites the sites are taken for the
//! samples: the spectrum is always that of the smaller Gram matrix.

use crate::compiled::Sampled;
use crate::error::{Error, Result};
use crate::numeric::eigen::symmetric_eigenvalues;
use crate::numeric::table::Format;
use crate::run::checksums::{Checksums, seal};
use crate::spectral::SpectralData;
use statrs::function::gamma::ln_gamma;
use std::f64::consts::{LN_2, PI};
use std::path::Path;

/// The file of a run that holds the curve.
pub const FILE: &str = "eigenvalues.csv";

const TABLE: Format = Format { separator: ',', remedy: "" };

/// Up to this many rows or sites (the fewer of the two) the curve takes a moment.
const QUICK: usize = 1000;

/// Whether the curve takes little time beside a fit: a fifth of it at most, by a rough count of operations.
///
/// All eigenvalues of d dimensions take some 13 d^3 (their products run at a tenth of the speed of the sampler's); a sweep
/// with 50 features takes 100 for each cell.
pub fn is_cheap(n_rows: usize, n_columns: usize, sweeps: u64) -> bool {
    let dimension = n_rows.min(n_columns);
    let fit = sweeps as f64 * n_rows as f64 * n_columns as f64 * 100.0;
    dimension <= QUICK || 13.0 * (dimension as f64).powi(3) <= 0.2 * fit
}

/// Smaller eigenvalues, as a share of the largest, are rounding.
const NEGLIGIBLE: f64 = 1e-6;

/// The eigenvalues of the data and the evidence for each number of components.
#[derive(Clone, Debug, PartialEq)]
pub struct EvidenceCurve {
    /// Of the smaller Gram matrix over the number of samples, in descending order.
    pub eigenvalues: Vec<f64>,
    /// For 1, 2, ... components, up to one less than the rank.
    pub ln_evidence: Vec<f64>,
}

impl EvidenceCurve {
    /// The curve of some data, whose numbers are to be multiplied by `unit`.
    pub fn of<R: Sampled>(data: &SpectralData<R>, unit: f64) -> EvidenceCurve {
        let dimension = data.n_rows().min(data.n_modes());
        let n_samples = data.n_rows().max(data.n_modes());
        let mut eigenvalues = symmetric_eigenvalues(&R::smaller_gram(data), dimension);
        eigenvalues.reverse();
        eigenvalues.iter_mut().for_each(|x| *x = x.max(0.0) * unit * unit / n_samples as f64);
        let ln_evidence = ln_evidence(&eigenvalues, n_samples);
        EvidenceCurve { eigenvalues, ln_evidence }
    }

    /// The number of components with the largest evidence, if there is any choice.
    pub fn best(&self) -> Option<usize> {
        let values = &self.ln_evidence;
        (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).map(|at| at + 1)
    }

    /// Writes `component,eigenvalue,ln_evidence`, the last empty where there is none.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let rows = self.eigenvalues.iter().enumerate().map(|(at, eigenvalue)| {
            let evidence = self.ln_evidence.get(at).map_or(String::new(), f64::to_string);
            vec![(at + 1).to_string(), eigenvalue.to_string(), evidence]
        });
        TABLE.write(&folder.join(FILE), &["component", "eigenvalue", "ln_evidence"], rows)?;
        seal(folder, &[FILE])
    }

    /// Takes the curve of a run away: it is made anew.
    pub fn forget(folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        if path.is_file() {
            std::fs::remove_file(&path).map_err(Error::write(&path))?;
        }
        seal(folder, &[FILE])
    }

    /// Takes the curve of a run away where its file is damaged or gone.
    pub fn forget_damaged(folder: &Path) -> Result<()> {
        let known = Checksums::open(folder)?;
        if known.has(FILE) && known.check(FILE).is_err() { EvidenceCurve::forget(folder) } else { Ok(()) }
    }

    /// Reads the curve of a run, if it has one.
    pub fn read(folder: &Path) -> Result<Option<EvidenceCurve>> {
        let (path, known) = (folder.join(FILE), Checksums::open(folder)?);
        if !known.has(FILE) {
            return Ok(None);
        }
        known.check(FILE)?;
        let mut curve = EvidenceCurve { eigenvalues: Vec::new(), ln_evidence: Vec::new() };
        for row in TABLE.read(&path)?.rows() {
            curve.eigenvalues.push(row.get("eigenvalue")?);
            curve.ln_evidence.extend(row.get_if_any::<f64>("ln_evidence")?);
        }
        Ok(Some(curve))
    }
}

/// The evidence for 1, 2, ... components given eigenvalues in descending order, up to a constant.
///
/// With N samples in d dimensions, `v` the mean of the eigenvalues left out and `m = d k - k (k + 1) / 2`:
/// `ln p(U) - N/2 sum_(i<=k) ln l_i - N (d-k)/2 ln v + (m+k)/2 ln 2 pi - 1/2 ln |A| - k/2 ln N`, where
/// `ln |A| = sum_(i<=k) sum_(j>i) ln[(1/l^_j - 1/l_i) (l_i - l_j) N]` and `l^_j` is `l_j` up to k and `v` beyond.
fn ln_evidence(eigenvalues: &[f64], n_samples: usize) -> Vec<f64> {
    let (d, n) = (eigenvalues.len(), n_samples as f64);
    let largest = eigenvalues.first().copied().unwrap_or(0.0);
    let rank = eigenvalues.iter().take_while(|x| **x > NEGLIGIBLE * largest).count();
    // Equal eigenvalues have no direction of their own: their distance is taken for rounding.
    let distance = |a: f64, b: f64| (a - b).max(f64::EPSILON * largest);
    let mut left: f64 = eigenvalues.iter().sum();
    let (mut ln_prior, mut ln_kept, mut ln_pairs, mut n_pairs) = (0.0, 0.0, 0.0, 0.0);
    let mut curve = Vec::with_capacity(rank.saturating_sub(1));
    for k in 1..rank {
        let last = eigenvalues[k - 1];
        left -= last;
        let half = (d - k + 1) as f64 / 2.0;
        ln_prior += ln_gamma(half) - half * PI.ln() - LN_2;
        ln_kept += last.ln();
        // Pairs with the new component: from above with their full term, from below with what does not depend on v.
        let above = eigenvalues[..k - 1].iter().map(|&l| (distance(l, last) / (l * last)).ln());
        let below = eigenvalues[k..].iter().map(|&l| distance(last, l).ln());
        ln_pairs += above.sum::<f64>() + below.sum::<f64>();
        n_pairs += (d - k) as f64;
        let rest = (d - k) as f64;
        let v = (left / rest).max(f64::MIN_POSITIVE);
        let with_rest: f64 = eigenvalues[..k].iter().map(|&l| (distance(l, v) / (l * v)).ln()).sum();
        let ln_determinant = ln_pairs + rest * with_rest + n_pairs * n.ln();
        let m = d as f64 * k as f64 - 0.5 * k as f64 * (k as f64 + 1.0);
        curve.push(
            ln_prior - 0.5 * n * ln_kept - 0.5 * n * rest * v.ln() + 0.5 * (m + k as f64) * (2.0 * PI).ln()
                - 0.5 * ln_determinant
                - 0.5 * k as f64 * n.ln(),
        );
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::simulate::normal;
    use crate::rng::{Purpose, Streams};

    /// The formula as printed, term by term.
    fn naive(l: &[f64], n: f64, k: usize) -> f64 {
        let d = l.len();
        let v = l[k..].iter().sum::<f64>() / (d - k) as f64;
        let hat = |j: usize| if j < k { l[j] } else { v };
        let mut sum = -(k as f64) * LN_2;
        for i in 1..=k {
            let half = (d - i + 1) as f64 / 2.0;
            sum += ln_gamma(half) - half * PI.ln();
        }
        sum -= 0.5 * n * l[..k].iter().map(|x| x.ln()).sum::<f64>() + 0.5 * n * (d - k) as f64 * v.ln();
        let m = (d * k) as f64 - (k * (k + 1)) as f64 / 2.0;
        sum += 0.5 * (m + k as f64) * (2.0 * PI).ln() - 0.5 * k as f64 * n.ln();
        for i in 0..k {
            for j in i + 1..d {
                sum -= 0.5 * ((1.0 / hat(j) - 1.0 / hat(i)) * (l[i] - l[j]) * n).ln();
            }
        }
        sum
    }

    #[test]
    fn the_running_sums_equal_the_formula() {
        let eigenvalues: Vec<f64> = (0..12).map(|i| 9.0 / (1.0 + i as f64) + 0.3 * (i as f64).cos().abs()).collect();
        let mut eigenvalues = eigenvalues;
        eigenvalues.sort_by(|a, b| b.total_cmp(a));
        let curve = ln_evidence(&eigenvalues, 40);
        assert_eq!(curve.len(), 11);
        for (at, value) in curve.iter().enumerate() {
            let expected = naive(&eigenvalues, 40.0, at + 1);
            assert!((value - expected).abs() < 1e-9 * expected.abs(), "{value} {expected}");
        }
    }

    /// Rows with `k` strong random directions and unit noise.
    fn noisy(n_rows: usize, n_sites: usize, k: usize) -> SpectralData<f64> {
        let mut stream = Streams::once(3).stream(Purpose::Simulation, 0, 0);
        let mut draws = |n: usize| (0..n).map(|_| normal(&mut stream)).collect::<Vec<f64>>();
        let directions: Vec<Vec<f64>> = (0..k).map(|_| draws(n_sites)).collect();
        let rows = (0..n_rows).map(|_| {
            let (scores, mut row) = (draws(k), draws(n_sites));
            for (score, direction) in scores.iter().zip(&directions) {
                row.iter_mut().zip(direction).for_each(|(y, x)| *y += score * x);
            }
            row
        });
        SpectralData::from_rows(&rows.collect::<Vec<_>>())
    }

    #[test]
    fn strong_components_are_counted_in_either_shape() {
        for (n_rows, n_sites) in [(300, 40), (40, 300), (60, 60)] {
            let curve = EvidenceCurve::of(&noisy(n_rows, n_sites, 5), 1.0);
            assert_eq!(curve.best(), Some(5), "{n_rows} x {n_sites}");
            assert_eq!(curve.eigenvalues.len(), n_rows.min(n_sites));
        }
    }

    #[test]
    fn the_curve_comes_back_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(EvidenceCurve::read(folder.path()).unwrap(), None);
        let curve = EvidenceCurve::of(&noisy(30, 20, 2), 3.0);
        curve.write(folder.path()).unwrap();
        assert_eq!(EvidenceCurve::read(folder.path()).unwrap(), Some(curve));
        std::fs::write(folder.path().join(FILE), "component,eigenvalue,ln_evidence\n1,2\n").unwrap();
        assert!(EvidenceCurve::read(folder.path()).unwrap_err().to_string().contains("damaged"));
        seal(folder.path(), &[FILE]).unwrap();
        assert!(EvidenceCurve::read(folder.path()).unwrap_err().to_string().contains("line 2"));
        EvidenceCurve::forget(folder.path()).unwrap();
        assert_eq!(EvidenceCurve::read(folder.path()).unwrap(), None);
    }

    #[test]
    fn long_fits_have_time_for_the_curve() {
        assert!(is_cheap(3000, 10_000, 1000) && !is_cheap(3000, 10_000, 60));
        assert!(is_cheap(800, 100_000, 1) && !is_cheap(20_000, 270_000, 100));
    }

    #[test]
    fn data_without_a_choice_have_no_best() {
        let flat = EvidenceCurve::of(&SpectralData::<f64>::zeros(3, crate::spectral::Tiles::whole(4)), 1.0);
        assert_eq!((flat.best(), flat.eigenvalues.len()), (None, 3));
        assert_eq!(EvidenceCurve::of(&noisy(1, 4, 0), 1.0).best(), None);
    }
}
