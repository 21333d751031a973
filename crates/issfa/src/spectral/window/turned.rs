//! Rows turned into the basis that diagonalises `W'W`, and back.

use crate::numeric::linalg::{Real, View, multiply};
use crate::numeric::workers::share;

/// Which way the rotation turns: into the basis that diagonalises `W'W`, or out of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    In,
    Out,
}

/// `P'X` or `P X`, for rows X of any length; P has k rows.
pub(super) fn rotated<R: Real>(vectors: &[f64], k: usize, turned: Turned, rows: &[Vec<R>]) -> Vec<Vec<R>> {
    const PIECE: usize = 4096;
    let n = rows.first().map_or(0, Vec::len);
    let vectors: Vec<R> = vectors.iter().map(|&x| R::from_f64(x)).collect();
    let r = vectors.len() / k.max(1);
    let rotation = View::new(&vectors, k, r);
    let (rotation, n_in, n_out) = if turned == Turned::In { (rotation.t(), k, r) } else { (rotation, r, k) };
    let mut pieces: Vec<(usize, Vec<R>)> = (0..n.div_ceil(PIECE)).map(|at| (at * PIECE, Vec::new())).collect();
    share(pieces.iter_mut(), Vec::new, |values: &mut Vec<R>, (first, out)| {
        let width = PIECE.min(n - *first);
        values.clear();
        rows.iter().for_each(|row| values.extend_from_slice(&row[*first..*first + width]));
        out.resize(n_out * width, R::zero());
        multiply(out, rotation, View::new(values, n_in, width));
    });
    let mut joined = vec![Vec::new(); n_out];
    share(
        joined.iter_mut().enumerate(),
        || (),
        |_, (i, row): (usize, &mut Vec<R>)| {
            row.reserve_exact(n);
            for (_, out) in &pieces {
                let width = out.len() / n_out;
                row.extend_from_slice(&out[i * width..(i + 1) * width]);
            }
        },
    );
    joined
}
