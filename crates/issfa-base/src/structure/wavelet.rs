//! Orthonormal wavelets, Haar and periodised Daubechies 4: energy penalised by scale.
//!
//! One step halves a line of m numbers into ceil(m/2) sums and floor(m/2) differences; steps go on with the sums until
//! one is left. Spectra are laid out sum first, then differences from the coarsest level to the finest.
//!
//! Where m is odd the last number has no partner and goes on to the next level. For Haar a sum remembers how many sites
//! are in it, so that the last sum is the mean of all sites at every length; for D4 this holds at powers of two, and
//! at other lengths a constant image has some energy in the coarse levels.

use super::lines::for_each_line;
use super::{Basis, Direction};

/// Which wavelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Steps.
    Haar,
    /// Daubechies' with four coefficients, periodised.
    D4,
}

impl Filter {
    /// The name in the language of structures.
    pub fn name(self) -> &'static str {
        match self {
            Filter::Haar => "haar",
            Filter::D4 => "d4",
        }
    }
}

/// A wavelet basis with one eigenvalue a level: `4^j`, j = 0 the coarsest differences, unless given; 0 for the last sum.
#[derive(Debug)]
pub struct Wavelet {
    filter: Filter,
    eigenvalues: Vec<f64>,
    /// Eigenvalues given by the user, coarsest first.
    levels: Option<Vec<f64>>,
}

impl Wavelet {
    /// `levels`, where given, has one number a level (ceil(log2 n) of them), the coarsest first.
    pub fn new(n: usize, filter: Filter, levels: Option<Vec<f64>>) -> Wavelet {
        let n_levels = n_levels(n);
        assert!(levels.as_ref().is_none_or(|levels| levels.len() == n_levels), "one eigenvalue a level");
        let of_level = |j: usize| levels.as_ref().map_or(4f64.powi(j as i32), |levels| levels[j]);
        let mut eigenvalues = vec![0.0; n];
        for (step, m) in lengths(n).enumerate() {
            eigenvalues[m.div_ceil(2)..m].fill(of_level(n_levels - 1 - step));
        }
        Wavelet { filter, eigenvalues, levels }
    }
}

/// How many times a line of `n` is halved.
pub fn n_levels(n: usize) -> usize {
    lengths(n).count()
}

/// The lengths that are halved, the longest first.
fn lengths(n: usize) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
    let n_levels = n.next_power_of_two().trailing_zeros() as usize;
    (0..n_levels).map(move |step| n.div_ceil(1 << step))
}

/// Transforms one line in place; `work` is at least as long.
pub fn transform_line(filter: Filter, direction: Direction, line: &mut [f64], work: &mut [f64]) {
    let n = line.len();
    let step = |(step, m): (usize, usize), line: &mut [f64]| {
        let work = &mut work[..m];
        match (filter, direction) {
            (Filter::Haar, Direction::ToSpectrum) => haar_split(&line[..m], work, Sizes::of(n, m, step)),
            (Filter::Haar, Direction::ToSites) => haar_join(&line[..m], work, Sizes::of(n, m, step)),
            (Filter::D4, Direction::ToSpectrum) => d4_split(&line[..m], work),
            (Filter::D4, Direction::ToSites) => d4_join(&line[..m], work),
        }
        line[..m].copy_from_slice(work);
    };
    let mut step = step;
    match direction {
        Direction::ToSpectrum => lengths(n).enumerate().for_each(|at| step(at, line)),
        Direction::ToSites => lengths(n).enumerate().rev().for_each(|at| step(at, line)),
    }
}

/// How many sites are in each number of a level: all alike but the last.
#[derive(Clone, Copy)]
struct Sizes {
    full: f64,
    last: f64,
}

impl Sizes {
    fn of(n: usize, m: usize, step: usize) -> Sizes {
        let full = 1usize << step;
        Sizes { full: full as f64, last: (n - (m - 1) * full) as f64 }
    }

    /// Cosine and sine of the rotation that turns pair `i` of `m` numbers into sum and difference.
    fn rotation(self, i: usize, m: usize) -> (f64, f64) {
        let second = if 2 * i + 2 == m { self.last } else { self.full };
        let total = self.full + second;
        ((self.full / total).sqrt(), (second / total).sqrt())
    }
}

fn haar_split(from: &[f64], to: &mut [f64], sizes: Sizes) {
    let (m, n_sums) = (from.len(), from.len().div_ceil(2));
    for i in 0..m / 2 {
        let ((c, s), a, b) = (sizes.rotation(i, m), from[2 * i], from[2 * i + 1]);
        to[i] = c * a + s * b;
        to[n_sums + i] = s * a - c * b;
    }
    if m % 2 == 1 {
        to[n_sums - 1] = from[m - 1];
    }
}

fn haar_join(from: &[f64], to: &mut [f64], sizes: Sizes) {
    let (m, n_sums) = (from.len(), from.len().div_ceil(2));
    for i in 0..m / 2 {
        let ((c, s), sum, difference) = (sizes.rotation(i, m), from[i], from[n_sums + i]);
        to[2 * i] = c * sum + s * difference;
        to[2 * i + 1] = s * sum - c * difference;
    }
    if m % 2 == 1 {
        to[m - 1] = from[n_sums - 1];
    }
}

/// Daubechies' four coefficients: orthonormal, with two vanishing moments.
fn d4() -> [f64; 4] {
    let (root, scale) = (3f64.sqrt(), 1.0 / (4.0 * 2f64.sqrt()));
    [scale * (1.0 + root), scale * (3.0 + root), scale * (3.0 - root), scale * (1.0 - root)]
}

fn d4_split(from: &[f64], to: &mut [f64]) {
    let (h, m, n_sums) = (d4(), from.len(), from.len().div_ceil(2));
    let even = m - m % 2;
    for i in 0..even / 2 {
        let x: [f64; 4] = std::array::from_fn(|k| from[(2 * i + k) % even]);
        to[i] = h[0] * x[0] + h[1] * x[1] + h[2] * x[2] + h[3] * x[3];
        to[n_sums + i] = h[3] * x[0] - h[2] * x[1] + h[1] * x[2] - h[0] * x[3];
    }
    if m % 2 == 1 {
        to[n_sums - 1] = from[m - 1];
    }
}

fn d4_join(from: &[f64], to: &mut [f64]) {
    let (h, m, n_sums) = (d4(), from.len(), from.len().div_ceil(2));
    let even = m - m % 2;
    to[..even].fill(0.0);
    for i in 0..even / 2 {
        let (sum, difference) = (from[i], from[n_sums + i]);
        let parts = [
            h[0] * sum + h[3] * difference,
            h[1] * sum - h[2] * difference,
            h[2] * sum + h[1] * difference,
            h[3] * sum - h[0] * difference,
        ];
        parts.iter().enumerate().for_each(|(k, part)| to[(2 * i + k) % even] += part);
    }
    if m % 2 == 1 {
        to[m - 1] = from[n_sums - 1];
    }
}

impl Basis for Wavelet {
    fn n_sites(&self) -> usize {
        self.eigenvalues.len()
    }

    fn word(&self) -> String {
        let levels = self.levels.iter().map(|levels| {
            let numbers: Vec<String> = levels.iter().map(f64::to_string).collect();
            format!(",levels={}", numbers.join(";"))
        });
        format!("wavelet({},{}{})", self.n_sites(), self.filter.name(), levels.collect::<String>())
    }

    fn eigenvalues(&self) -> &[f64] {
        &self.eigenvalues
    }

    fn cost(&self) -> &'static str {
        "n"
    }

    fn apply(&self, direction: Direction, values: &mut [f64], inner: usize, scratch: &mut Vec<f64>) {
        let n = self.n_sites();
        for_each_line(values, (n, inner), scratch, n, |line, work| transform_line(self.filter, direction, line, work));
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::{check_basis, explicit_matrix};
    use super::*;

    const SIZES: [usize; 11] = [1, 2, 3, 4, 5, 7, 8, 13, 32, 33, 61];

    /// The transform written out as a product of one matrix a step: an obvious twin.
    fn naive(n: usize, filter: Filter) -> Vec<f64> {
        let mut total: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
        let (mut m, mut sizes) = (n, vec![1.0; n]);
        while m > 1 {
            let (pairs, sums) = (m / 2, m.div_ceil(2));
            let mut step: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
            step[..m * n].fill(0.0);
            let mut next = Vec::new();
            for i in 0..pairs {
                let (p, q): (f64, f64) = (sizes[2 * i], sizes[2 * i + 1]);
                let (sum, difference) = match filter {
                    Filter::Haar => {
                        let (c, s) = ((p / (p + q)).sqrt(), (q / (p + q)).sqrt());
                        (vec![c, s], vec![s, -c])
                    }
                    Filter::D4 => (d4().to_vec(), vec![d4()[3], -d4()[2], d4()[1], -d4()[0]]),
                };
                for k in 0..sum.len() {
                    step[i * n + (2 * i + k) % (2 * pairs)] += sum[k];
                    step[(sums + i) * n + (2 * i + k) % (2 * pairs)] += difference[k];
                }
                next.push(p + q);
            }
            if m % 2 == 1 {
                step[(sums - 1) * n + m - 1] = 1.0;
                next.push(sizes[m - 1]);
            }
            total = (0..n * n).map(|at| (0..n).map(|l| step[at / n * n + l] * total[l * n + at % n]).sum()).collect();
            (m, sizes) = (sums, next);
        }
        total
    }

    #[test]
    fn both_wavelets_are_orthonormal_and_equal_their_matrix() {
        for filter in [Filter::Haar, Filter::D4] {
            for n in SIZES {
                let (basis, rows) = (Wavelet::new(n, filter, None), naive(n, filter));
                let matrix = explicit_matrix(&basis);
                assert!((0..n * n).all(|at| (matrix[at] - rows[at % n * n + at / n]).abs() < 1e-12), "{filter:?} {n}");
                let gamma = basis.eigenvalues();
                let penalty: Vec<f64> = (0..n * n)
                    .map(|at| (0..n).map(|m| rows[m * n + at / n] * gamma[m] * rows[m * n + at % n]).sum())
                    .collect();
                check_basis(&basis, &penalty);
            }
        }
    }

    #[test]
    fn eigenvalues_go_by_level() {
        assert_eq!(Wavelet::new(8, Filter::D4, None).eigenvalues(), [0.0, 1.0, 4.0, 4.0, 16.0, 16.0, 16.0, 16.0]);
        assert_eq!(Wavelet::new(5, Filter::Haar, None).eigenvalues(), [0.0, 1.0, 4.0, 16.0, 16.0]);
        let given = Wavelet::new(4, Filter::Haar, Some(vec![2.5, 0.5]));
        assert_eq!(given.eigenvalues(), [0.0, 2.5, 0.5, 0.5]);
        assert_eq!(given.word(), "wavelet(4,haar,levels=2.5;0.5)");
        assert_eq!(n_levels(1), 0);
    }

    #[test]
    fn constants_are_smooth() {
        let energy_of_a_constant = |n: usize, filter: Filter| {
            let basis = Wavelet::new(n, filter, None);
            let mut values = vec![1.0; n];
            basis.apply(Direction::ToSpectrum, &mut values, 1, &mut Vec::new());
            values[1..].iter().map(|x| x * x).sum::<f64>()
        };
        assert!(SIZES.iter().all(|&n| energy_of_a_constant(n, Filter::Haar) < 1e-24));
        assert!([1, 2, 4, 8, 64].iter().all(|&n| energy_of_a_constant(n, Filter::D4) < 1e-24));
    }

    /// Two vanishing moments: a straight line has no fine detail away from the wrap.
    #[test]
    fn d4_sees_no_detail_in_a_line() {
        let mut values: Vec<f64> = (0..32).map(f64::from).collect();
        Wavelet::new(32, Filter::D4, None).apply(Direction::ToSpectrum, &mut values, 1, &mut Vec::new());
        assert!(values[16..31].iter().all(|x| x.abs() < 1e-12));
    }
}
