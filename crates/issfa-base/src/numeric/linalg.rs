//! Products borrowed from `gemm`, and Cholesky factors, as safe functions on row-major slices; all sequential.

/// A number type that spectral data may be stored in.
pub trait Real:
    crate::numeric::bytes::Element
    + Copy
    + Send
    + Sync
    + Default
    + PartialEq
    + std::fmt::Debug
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + 'static
{
    /// The name in configuration files and checkpoints.
    const NAME: &'static str;
    /// How far iterations in this precision can be trusted to take a residual down.
    const RELIABLE: f64;
    /// Bytes a number takes.
    const BYTES: usize;
    /// The relative spacing of numbers near 1.
    const EPSILON: f64;
    /// The nearest number of this precision.
    fn from_f64(value: f64) -> Self;
    /// The same number in double precision.
    fn to_f64(self) -> f64;
    /// `self * factor + addend`, rounded once: the same bits on every machine, fast where the machine fuses.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// 0.
    fn zero() -> Self;
    /// 1.
    fn one() -> Self;
    /// Values and scratch space by the precision that they are in.
    fn by_precision<'a>(values: &'a mut [Self], scratch: &'a mut Vec<Self>) -> Either<'a>;
}

macro_rules! real {
    ($type:ty, $name:literal, $bytes:literal, $reliable:literal, $either:ident) => {
        impl Real for $type {
            const NAME: &'static str = $name;
            const RELIABLE: f64 = $reliable;
            const BYTES: usize = $bytes;
            const EPSILON: f64 = <$type>::EPSILON as f64;
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                <$type>::mul_add(self, factor, addend)
            }
            #[inline(always)]
            fn zero() -> Self {
                0.0
            }
            #[inline(always)]
            fn one() -> Self {
                1.0
            }
            fn by_precision<'a>(values: &'a mut [Self], scratch: &'a mut Vec<Self>) -> Either<'a> {
                Either::$either(values, scratch)
            }
        }
    };
}
real!(f32, "f32", 4, 1e-4, Single);
real!(f64, "f64", 8, 1e-10, Double);

/// Values and scratch space in one of the two precisions.
pub enum Either<'a> {
    /// float32.
    Single(&'a mut [f32], &'a mut Vec<f32>),
    /// float64.
    Double(&'a mut [f64], &'a mut Vec<f64>),
}

/// A matrix inside a slice; element (i, j) is at `i * row_stride + j * col_stride`.
#[derive(Clone, Copy)]
pub struct View<'a, R> {
    data: &'a [R],
    n_rows: usize,
    n_cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, R> View<'a, R> {
    /// A row-major matrix that fills the slice.
    pub fn new(data: &'a [R], n_rows: usize, n_cols: usize) -> Self {
        assert_eq!(data.len(), n_rows * n_cols, "a view must fill its slice");
        View { data, n_rows, n_cols, row_stride: n_cols, col_stride: 1 }
    }

    /// The transpose, without moving anything.
    pub fn t(self) -> Self {
        View {
            data: self.data,
            n_rows: self.n_cols,
            n_cols: self.n_rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

/// `out = a b`, with `out` row-major. Sequential: the bits do not depend on the number of threads.
pub fn multiply<R: Real>(out: &mut [R], a: View<R>, b: View<R>) {
    assert_eq!(a.n_cols, b.n_rows, "inner sizes must agree");
    assert_eq!(out.len(), a.n_rows * b.n_cols, "the product must fill its place");
    if out.is_empty() {
        return;
    }
    if a.n_cols == 0 {
        out.fill(R::zero());
        return;
    }
    // SAFETY: `out` was checked above.
    unsafe { product(out.as_mut_ptr(), b.n_cols, a, b, R::zero(), R::one(), false) }
}

/// `out -= a b` in the first columns of rows that are `stride` numbers apart. Sequential.
pub fn subtract_product(out: &mut [f64], stride: usize, a: View<f64>, b: View<f64>) {
    assert_eq!(a.n_cols, b.n_rows, "inner sizes must agree");
    assert!(b.n_cols <= stride, "a row must fit between the next one and the last");
    if a.n_rows == 0 || a.n_cols == 0 || b.n_cols == 0 {
        return;
    }
    assert!((a.n_rows - 1) * stride + b.n_cols <= out.len(), "the product must fit its place");
    // SAFETY: `out` was checked above.
    unsafe { product(out.as_mut_ptr(), stride, a, b, 1.0, -1.0, true) }
}

/// `out = keep out + factor a b`.
///
/// # Safety
/// `out` has place for a row of the product every `stride` numbers; `View::new` ties the other sizes and strides to slices.
unsafe fn product<R: Real>(out: *mut R, stride: usize, a: View<R>, b: View<R>, keep: R, factor: R, read: bool) {
    // SAFETY: as promised by the caller.
    unsafe {
        gemm::gemm(
            a.n_rows,
            b.n_cols,
            a.n_cols,
            out,
            1,
            stride as isize,
            read,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            keep,
            factor,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Solves `L L' x = b` for a Cholesky factor L.
pub fn solve_cholesky(lower: &[f64], b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut x = b.to_vec();
    for i in 0..n {
        let dot: f64 = (0..i).map(|j| lower[i * n + j] * x[j]).sum();
        x[i] = (x[i] - dot) / lower[i * n + i];
    }
    for i in (0..n).rev() {
        let dot: f64 = (i + 1..n).map(|j| lower[j * n + i] * x[j]).sum();
        x[i] = (x[i] - dot) / lower[i * n + i];
    }
    x
}

/// The Cholesky factor (lower, row-major) of a symmetric positive definite matrix, or `None`.
pub fn cholesky(matrix: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut lower = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| lower[i * n + k] * lower[j * n + k]).sum();
            let rest = matrix[i * n + j] - dot;
            if i == j {
                if rest <= 0.0 || !rest.is_finite() {
                    return None;
                }
                lower[i * n + i] = rest.sqrt();
            } else {
                lower[i * n + j] = rest / lower[j * n + j];
            }
        }
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, step: f64) -> Vec<f64> {
        (0..n).map(|i| (i as f64 * step).sin()).collect()
    }

    #[test]
    fn products_equal_the_naive_ones_in_every_orientation() {
        for (m, k, n) in [(1, 1, 1), (3, 4, 5), (17, 256, 9), (40, 33, 70), (5, 0, 3)] {
            let (a, b) = (wave(m * k, 0.7), wave(k * n, 1.3));
            let naive: Vec<f64> =
                (0..m * n).map(|at| (0..k).map(|l| a[at / n * k + l] * b[l * n + at % n]).sum()).collect();
            let mut out = vec![f64::NAN; m * n];
            multiply(&mut out, View::new(&a, m, k), View::new(&b, k, n));
            assert!(out.iter().zip(&naive).all(|(x, y)| (x - y).abs() < 1e-12));
            let mut transposed = vec![f64::NAN; m * n];
            multiply(&mut transposed, View::new(&b, k, n).t(), View::new(&a, m, k).t());
            assert!((0..m * n).all(|at| (transposed[at % n * m + at / n] - naive[at]).abs() < 1e-12));
        }
    }

    #[test]
    fn triangular_solutions_solve() {
        let matrix = [4.0, 1.0, 0.5, 1.0, 3.0, 0.2, 0.5, 0.2, 2.0];
        let x = solve_cholesky(&cholesky(&matrix, 3).unwrap(), &[1.0, 2.0, 3.0]);
        for i in 0..3 {
            let b: f64 = (0..3).map(|j| matrix[i * 3 + j] * x[j]).sum();
            assert!((b - (i as f64 + 1.0)).abs() < 1e-12);
        }
    }

    #[test]
    fn cholesky_rebuilds_or_refuses() {
        let matrix = [4.0, 2.0, 2.0, 3.0];
        let lower = cholesky(&matrix, 2).unwrap();
        assert!((lower[2] * lower[2] + lower[3] * lower[3] - 3.0).abs() < 1e-15);
        assert!(cholesky(&[1.0, 2.0, 2.0, 1.0], 2).is_none());
    }
}
