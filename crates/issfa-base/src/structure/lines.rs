//! Lines of an array along one axis, brought together so that a transform sees them contiguous.

/// Lines gathered at a time: neighbours share cache lines.
const AT_ONCE: usize = 8;

/// Calls `visit(line, rest)` on every line of the array `outer x n x inner` (row-major) along its middle axis, in
/// place. `rest` is `n_rest` numbers of scratch.
pub fn for_each_line(
    values: &mut [f64],
    (n, inner): (usize, usize),
    scratch: &mut Vec<f64>,
    n_rest: usize,
    mut visit: impl FnMut(&mut [f64], &mut [f64]),
) {
    scratch.clear();
    scratch.resize(AT_ONCE * n + n_rest, 0.0);
    let (gathered, rest) = scratch.split_at_mut(AT_ONCE * n);
    if inner == 1 {
        values.chunks_exact_mut(n).for_each(|line| visit(line, rest));
        return;
    }
    for block in values.chunks_exact_mut(n * inner) {
        for first in (0..inner).step_by(AT_ONCE) {
            let width = AT_ONCE.min(inner - first);
            for j in 0..n {
                let from = &block[j * inner + first..][..width];
                from.iter().enumerate().for_each(|(line, x)| gathered[line * n + j] = *x);
            }
            gathered.chunks_exact_mut(n).take(width).for_each(|line| visit(line, rest));
            for j in 0..n {
                let to = &mut block[j * inner + first..][..width];
                to.iter_mut().enumerate().for_each(|(line, x)| *x = gathered[line * n + j]);
            }
        }
    }
}
