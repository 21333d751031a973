//! Eigenvalues and eigenvectors of symmetric matrices: Householder reflections to a tridiagonal matrix, then divide and conquer
//! (Cuppen), with vectors that are orthogonal by construction (Gu and Eisenstat). Sequential.

use super::linalg::{View, multiply, subtract_product};
use super::tridiagonal;
use pulp::{Simd, WithSimd};

/// Eigenvalues in ascending order and orthonormal eigenvectors of a symmetric matrix.
#[derive(Clone, Debug)]
pub struct Eigen {
    /// In ascending order.
    pub values: Vec<f64>,
    /// Row-major n x n; column i belongs to value i.
    pub vectors: Vec<f64>,
}

/// The eigendecomposition of a symmetric n x n matrix (the lower triangle is read).
pub fn symmetric_eigen(matrix: &[f64], n: usize) -> Eigen {
    let reduced = Reduced::new(matrix, n);
    let (values, mut rows) = tridiagonal::eigen(reduced.diagonal, &reduced.below);
    reduced.reflections.apply(&mut rows);
    let mut vectors = vec![0.0; n * n];
    for (i, row) in rows.chunks_exact(n.max(1)).enumerate() {
        row.iter().enumerate().for_each(|(at, x)| vectors[at * n + i] = *x);
    }
    Eigen { values: values.into_iter().map(|value| value * reduced.unit).collect(), vectors }
}

/// The eigenvalues alone, in ascending order (the lower triangle is read).
pub fn symmetric_eigenvalues(matrix: &[f64], n: usize) -> Vec<f64> {
    let reduced = Reduced::new(matrix, n);
    let values = tridiagonal::eigenvalues(reduced.diagonal, reduced.below);
    values.into_iter().map(|value| value * reduced.unit).collect()
}

/// Columns that are reflected before the rest of the matrix is told of them.
const PANEL: usize = 24;

/// `Q' (matrix / unit) Q`, tridiagonal, with Q a product of reflections.
struct Reduced {
    diagonal: Vec<f64>,
    below: Vec<f64>,
    reflections: Reflections,
    /// A power of two near the largest entry, so that no square is too large or too small.
    unit: f64,
}

impl Reduced {
    fn new(matrix: &[f64], n: usize) -> Reduced {
        assert_eq!(matrix.len(), n * n, "a square matrix is needed");
        // The largest would not know of NaN.
        assert!(matrix.iter().all(|x| x.is_finite()), "a matrix of numbers has eigenvalues");
        let largest = matrix.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        let unit = if largest > 0.0 { largest.log2().floor().exp2() } else { 1.0 };
        let mut rest: Vec<f64> =
            (0..n * n).map(|at| matrix[(at / n).max(at % n) * n + (at / n).min(at % n)] / unit).collect();
        let mut reduced = Reduced { diagonal: vec![], below: vec![], reflections: Reflections::none(n), unit };
        let arch = pulp::Arch::new();
        while reduced.diagonal.len() < n {
            arch.dispatch(NextPanel { reduced: &mut reduced, rest: &mut rest });
        }
        reduced.below.truncate(n.saturating_sub(1));
        reduced
    }
}

/// A panel to be reflected, compiled for the machine's vectors.
struct NextPanel<'a> {
    reduced: &'a mut Reduced,
    rest: &'a mut [f64],
}

impl WithSimd for NextPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.reduced.reduce_panel(self.rest);
    }
}

impl Reduced {
    /// Reflects the next columns, and then takes `V' W + W' V` off the rest of the matrix.
    #[inline(always)]
    fn reduce_panel(&mut self, rest: &mut [f64]) {
        let (first, n) = (self.diagonal.len(), self.reflections.n);
        let end = (first + PANEL).min(n);
        // Reflectors in the first half, what they do to the matrix in the second; and the halves the other way round.
        let (mut panel, mut turned) = (Vec::with_capacity(2 * PANEL * n), Vec::with_capacity(2 * PANEL * n));
        let mut effects = Vec::with_capacity(PANEL * n);
        for at in first..end {
            let mut column = rest[at * n..][..n].to_vec();
            for (v, w) in panel.chunks_exact(n).zip(effects.chunks_exact(n)) {
                take_off(&mut column, v, w[at]);
                take_off(&mut column, w, v[at]);
            }
            self.diagonal.push(column[at]);
            let (reflector, scale, below) = reflector(&column, at + 1);
            self.below.push(below);
            let effect = effect_of(&reflector, scale, at + 1, rest, (&panel, &effects));
            self.reflections.push(&reflector, scale);
            panel.extend(reflector);
            effects.extend(effect);
        }
        turned.extend_from_slice(&effects);
        turned.extend_from_slice(&panel);
        panel.extend(effects);
        let (width, left) = (2 * (end - first), n - end);
        let part = |rows: &[f64]| -> Vec<f64> { rows.chunks_exact(n).flat_map(|row| &row[end..]).copied().collect() };
        let (panel, turned) = (part(&panel), part(&turned));
        if left > 0 {
            let corner = &mut rest[end * n + end..];
            subtract_product(corner, n, View::new(&panel, width, left).t(), View::new(&turned, width, left));
        }
    }
}

/// `column -= factor * other`.
#[inline(always)]
fn take_off(column: &mut [f64], other: &[f64], factor: f64) {
    column.iter_mut().zip(other).for_each(|(x, y)| *x = (-factor).mul_add(*y, *x));
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 32;
    let mut lanes = [0.0; LANES];
    let (a_rest, b_rest) = (a.chunks_exact(LANES).remainder(), b.chunks_exact(LANES).remainder());
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            lanes[lane] = a[lane].mul_add(b[lane], lanes[lane]);
        }
    }
    lanes.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// The reflector `v` (0 before `from`) and scale with `(I - scale v v') column = (.., below, 0, ..)` from there on.
#[inline(always)]
fn reflector(column: &[f64], from: usize) -> (Vec<f64>, f64, f64) {
    let mut v = column.to_vec();
    v[..from.min(column.len())].fill(0.0);
    let Some(&head) = v.get(from) else { return (v, 0.0, 0.0) };
    let tail = dot(&v[from + 1..], &v[from + 1..]);
    // Squares that are nearly too small to be numbers have lost digits, and the reflector would not have the length it claims.
    if tail < f64::MIN_POSITIVE / f64::EPSILON {
        return (v, 0.0, head);
    }
    let below = -(head * head + tail).sqrt().copysign(head);
    let shifted = head - below;
    v[from] = 1.0;
    v[from + 1..].iter_mut().for_each(|x| *x /= shifted);
    (v, -shifted / below, below)
}

/// `w` with `(I - scale v v') A (I - scale v v') = A - v w' - w v'`, A being the rest less what the panel takes off it.
#[inline(always)]
fn effect_of(v: &[f64], scale: f64, from: usize, rest: &[f64], (panel, effects): (&[f64], &[f64])) -> Vec<f64> {
    let n = v.len();
    let mut w = vec![0.0; n];
    if scale == 0.0 {
        return w;
    }
    for at in from..n {
        w[at] = dot(&rest[at * n + from..(at + 1) * n], &v[from..]);
    }
    for (other, effect) in panel.chunks_exact(n).zip(effects.chunks_exact(n)) {
        let (with_effect, with_other) = (dot(&effect[from..], &v[from..]), dot(&other[from..], &v[from..]));
        take_off(&mut w[from..], &other[from..], with_effect);
        take_off(&mut w[from..], &effect[from..], with_other);
    }
    w[from..].iter_mut().for_each(|x| *x *= scale);
    let half = 0.5 * scale * dot(&w[from..], &v[from..]);
    take_off(&mut w[from..], &v[from..], half);
    w
}

/// A product of reflections `I - scale v v'`, the first one leftmost.
struct Reflections {
    n: usize,
    reflectors: Vec<f64>,
    scales: Vec<f64>,
}

impl Reflections {
    fn none(n: usize) -> Reflections {
        Reflections { n, reflectors: Vec::with_capacity(n * n), scales: vec![] }
    }

    fn push(&mut self, reflector: &[f64], scale: f64) {
        self.reflectors.extend_from_slice(reflector);
        self.scales.push(scale);
    }

    /// Multiplies each row, taken as a column, by the product. A panel of reflections is `I - V' T V` with V their reflectors
    /// in rows and T triangular.
    fn apply(&self, rows: &mut [f64]) {
        let n = self.n;
        let panels: Vec<_> = self.reflectors.chunks(PANEL * n.max(1)).zip(self.scales.chunks(PANEL)).collect();
        for (reflectors, scales) in panels.into_iter().rev() {
            let (width, triangle) = (scales.len(), triangle_of(reflectors, scales, n));
            let (mut along, mut turned) = (vec![0.0; n * width], vec![0.0; n * width]);
            multiply(&mut along, View::new(rows, n, n), View::new(reflectors, width, n).t());
            multiply(&mut turned, View::new(&along, n, width), View::new(&triangle, width, width).t());
            subtract_product(rows, n, View::new(&turned, n, width), View::new(reflectors, width, n));
        }
    }
}

/// The upper triangle T of a panel.
fn triangle_of(reflectors: &[f64], scales: &[f64], n: usize) -> Vec<f64> {
    let width = scales.len();
    let (mut along, mut triangle) = (vec![0.0; width * width], vec![0.0; width * width]);
    multiply(&mut along, View::new(reflectors, width, n), View::new(reflectors, width, n).t());
    for (at, scale) in scales.iter().enumerate() {
        for row in 0..at {
            let earlier: f64 = (row..at).map(|old| triangle[row * width + old] * along[old * width + at]).sum();
            triangle[row * width + at] = -scale * earlier;
        }
        triangle[at * width + at] = *scale;
    }
    triangle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, step: f64) -> Vec<f64> {
        (0..n).map(|i| (i as f64 * step).sin()).collect()
    }

    fn tridiagonal_matrix(diagonal: &[f64], below: &[f64]) -> Vec<f64> {
        let n = diagonal.len();
        let mut matrix = vec![0.0; n * n];
        (0..n).for_each(|i| matrix[i * n + i] = diagonal[i]);
        for (i, x) in below.iter().enumerate() {
            (matrix[(i + 1) * n + i], matrix[i * n + i + 1]) = (*x, *x);
        }
        matrix
    }

    /// That values and vectors rebuild the matrix and vectors are orthonormal, to a few units in the last place of the
    /// largest value.
    fn check(matrix: &[f64], n: usize) -> Vec<f64> {
        let Eigen { values, vectors } = symmetric_eigen(matrix, n);
        assert!(values.is_sorted() && values.len() == n);
        let scale = values.iter().fold(f64::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
        let allowed = 4e-16 * (20.0 + n as f64);
        let scaled: Vec<f64> = (0..n * n).map(|at| vectors[at] * (values[at % n] / scale)).collect();
        let (mut rebuilt, mut gram) = (vec![0.0; n * n], vec![0.0; n * n]);
        multiply(&mut rebuilt, View::new(&scaled, n, n), View::new(&vectors, n, n).t());
        multiply(&mut gram, View::new(&vectors, n, n).t(), View::new(&vectors, n, n));
        for at in 0..n * n {
            assert!((rebuilt[at] - matrix[at] / scale).abs() <= allowed, "{n}: entry {at} is off");
            let whole = f64::from(u8::from(at / n == at % n));
            assert!((gram[at] - whole).abs() <= allowed, "{n}: vectors {} and {} are not orthonormal", at / n, at % n);
        }
        let alone = symmetric_eigenvalues(matrix, n);
        assert!(alone.iter().zip(&values).all(|(x, y)| (x - y).abs() <= allowed * scale));
        values
    }

    #[test]
    fn eigenvectors_rebuild_any_matrix() {
        for n in [0, 1, 2, 7, 24, 25, 32, 33, 64, 65, 100, 259] {
            let half = wave(n * n, 0.9);
            let matrix: Vec<f64> = (0..n * n).map(|at| half[at] + half[at % n * n + at / n]).collect();
            check(&matrix, n);
        }
    }

    #[test]
    fn equal_and_vanishing_values_have_orthonormal_vectors() {
        for n in [3, 40, 90, 150] {
            check(&vec![0.0; n * n], n);
            check(&vec![1.0; n * n], n);
            // A unit matrix with three directions more, and a product of few columns.
            for (rank, unit) in [(3, 1.0), (n / 3, 0.0)] {
                let columns = wave(n * rank, 1.7);
                let mut matrix = vec![0.0; n * n];
                multiply(&mut matrix, View::new(&columns, n, rank), View::new(&columns, n, rank).t());
                (0..n).for_each(|i| matrix[i * n + i] += unit);
                let values = check(&matrix, n);
                assert!(values[..n - rank].iter().all(|x| (x - unit).abs() < 1e-12));
            }
        }
    }

    #[test]
    fn known_values_are_found() {
        // A path: 2 - 2 cos(pi k / n). Both halves of it have the same values.
        for n in [36, 128, 200] {
            let diagonal: Vec<f64> = (0..n).map(|i| if i == 0 || i + 1 == n { 1.0 } else { 2.0 }).collect();
            let values = check(&tridiagonal_matrix(&diagonal, &vec![-1.0; n - 1]), n);
            for (k, value) in values.iter().enumerate() {
                let exact = 4.0 * (std::f64::consts::PI * k as f64 / (2 * n) as f64).sin().powi(2);
                assert!((value - exact).abs() < 1e-13, "{n}, {k}: {value} {exact}");
            }
        }
    }

    #[test]
    fn values_that_nearly_meet_are_told_apart() {
        // Wilkinson's matrices: pairs of values that agree to all digits; and several of them, barely joined.
        let wilkinson = |n: usize| -> Vec<f64> { (0..n).map(|i| (i as f64 - (n / 2) as f64).abs()).collect() };
        check(&tridiagonal_matrix(&wilkinson(101), &[1.0; 100]), 101);
        for joint in [1e-4, 1e-8, 1e-14, 0.0, -1e-8] {
            let diagonal = [wilkinson(21), wilkinson(21), wilkinson(21), wilkinson(21)].concat();
            let below: Vec<f64> = (1..84).map(|i| if i % 21 == 0 { joint } else { 1.0 }).collect();
            check(&tridiagonal_matrix(&diagonal, &below), 84);
        }
    }

    #[test]
    fn sizes_of_entries_do_not_matter() {
        let n = 70;
        for scale in [1e-250, 1e-30, 1e30, 1e250] {
            let half = wave(n * n, 0.37);
            let matrix: Vec<f64> = (0..n * n).map(|at| scale * (half[at] + half[at % n * n + at / n])).collect();
            check(&matrix, n);
        }
        // Entries from 1 down to 1e-140 in one matrix.
        let graded: Vec<f64> = (0..n * n).map(|at| 10f64.powi(-((at / n + at % n) as i32))).collect();
        check(&graded, n);
        // Entries beside the diagonal whose squares have few digits left, or none.
        for size in [1e-153, 1e-156, 1e-158, 1e-160, 1e-161, 1e-162, 1e-165] {
            let half = wave(n * n, 0.37);
            let apart = |i: usize, j: usize| {
                if i == j { 1.0 + (i % 5) as f64 } else { size * (half[i * n + j] + half[j * n + i]) }
            };
            let matrix: Vec<f64> = (0..n * n).map(|at| apart(at / n, at % n)).collect();
            check(&matrix, n);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for odd in [f64::NAN, f64::INFINITY] {
            let refused = std::panic::catch_unwind(|| symmetric_eigen(&[1.0, odd, odd, 2.0], 2));
            assert!(refused.is_err(), "{odd}");
        }
    }

    #[test]
    fn the_lower_triangle_is_read() {
        let full = [2.0, 1.0, 0.5, 1.0, 3.0, 0.2, 0.5, 0.2, 4.0];
        let mut lower = full;
        (lower[1], lower[2], lower[5]) = (9.0, 9.0, 9.0);
        assert_eq!(symmetric_eigen(&full, 3).vectors, symmetric_eigen(&lower, 3).vectors);
    }
}
