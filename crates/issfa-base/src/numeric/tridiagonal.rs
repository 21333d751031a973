//! Eigenvalues and eigenvectors of symmetric tridiagonal matrices: small ones by the QL iteration, larger ones in two halves
//! that a rank-one change puts together.

use super::linalg::{View, multiply};
use pulp::{Simd, WithSimd};

/// Sizes up to this are not divided.
const LEAF: usize = 32;
const EPSILON: f64 = f64::EPSILON;

/// The eigenvalues in ascending order, and eigenvectors as rows (row-major n x n).
pub fn eigen(mut diagonal: Vec<f64>, below: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let solved = divide(&mut diagonal, below);
    (solved.values, solved.rows)
}

/// The eigenvalues alone, in ascending order.
pub fn eigenvalues(mut diagonal: Vec<f64>, mut below: Vec<f64>) -> Vec<f64> {
    iterate(&mut diagonal, &mut below, |_, _, _| {});
    diagonal.sort_unstable_by(f64::total_cmp);
    diagonal
}

/// A solved part: values in ascending order, vectors as rows.
struct Solved {
    values: Vec<f64>,
    rows: Vec<f64>,
}

fn divide(diagonal: &mut [f64], below: &[f64]) -> Solved {
    let n = diagonal.len();
    if n <= LEAF {
        return pulp::Arch::new().dispatch(Leaf { diagonal, below });
    }
    let middle = n / 2;
    let joint = below[middle - 1];
    diagonal[middle - 1] -= joint.abs();
    diagonal[middle] -= joint.abs();
    let (first, second) = diagonal.split_at_mut(middle);
    let halves = [divide(first, &below[..middle - 1]), divide(second, &below[middle..])];
    Joining::new(halves, joint).join()
}

/// A part that is not divided, compiled for the machine's vectors.
struct Leaf<'a> {
    diagonal: &'a [f64],
    below: &'a [f64],
}

impl WithSimd for Leaf<'_> {
    type Output = Solved;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Solved {
        let n = self.diagonal.len();
        let mut values = self.diagonal.to_vec();
        let mut rows = vec![0.0; n * n];
        (0..n).for_each(|i| rows[i * n + i] = 1.0);
        iterate(&mut values, &mut self.below.to_vec(), |at, cos, sin| {
            let (upper, lower) = rows[at * n..][..2 * n].split_at_mut(n);
            turn(upper, lower, cos, -sin);
        });
        in_order(n, values, rows)
    }
}

/// `(upper, lower) -> (cos upper + sin lower, cos lower - sin upper)`.
#[inline(always)]
fn turn(upper: &mut [f64], lower: &mut [f64], cos: f64, sin: f64) {
    for (x, y) in upper.iter_mut().zip(lower) {
        (*x, *y) = (cos.mul_add(*x, sin * *y), cos.mul_add(*y, -sin * *x));
    }
}

fn in_order(n: usize, values: Vec<f64>, rows: Vec<f64>) -> Solved {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let rows = order.iter().flat_map(|&i| &rows[i * n..(i + 1) * n]).copied().collect();
    Solved { values: order.into_iter().map(|i| values[i]).collect(), rows }
}

/// Turns planes of neighbours until nothing is left beside the diagonal (implicit QL with Wilkinson's shift);
/// `turned(at, cos, sin)` hears of each plane (at, at + 1).
#[inline(always)]
fn iterate(diagonal: &mut [f64], below: &mut [f64], mut turned: impl FnMut(usize, f64, f64)) {
    let n = diagonal.len();
    for start in 0..n {
        for _ in 0..200 {
            let small = |at: usize| below[at].abs() <= EPSILON * (diagonal[at].abs() + diagonal[at + 1].abs());
            let end = (start..n - 1).find(|&at| below[at].abs() < f64::MIN_POSITIVE || small(at)).unwrap_or(n - 1);
            if end == start {
                break;
            }
            let ratio = (diagonal[start + 1] - diagonal[start]) / (2.0 * below[start]);
            let shift = below[start] / (ratio + (ratio * ratio + 1.0).sqrt().copysign(ratio));
            let mut along = diagonal[end] - diagonal[start] + shift;
            let (mut sin, mut cos, mut moved) = (1.0, 1.0, 0.0);
            let mut last = end;
            for at in (start..end).rev() {
                let (bulge, rest) = (sin * below[at], cos * below[at]);
                // Numbers are near 1 or negligible, so that squares may vanish.
                let length = (bulge * bulge + along * along).sqrt();
                if at + 1 < end {
                    below[at + 1] = length;
                }
                if length == 0.0 {
                    diagonal[at + 1] -= moved;
                    break;
                }
                (sin, cos) = (bulge / length, along / length);
                let lifted = diagonal[at + 1] - moved;
                let turn = (diagonal[at] - lifted) * sin + 2.0 * cos * rest;
                moved = sin * turn;
                diagonal[at + 1] = lifted + moved;
                along = cos * turn - rest;
                turned(at, cos, sin);
                last = at;
            }
            if last == start {
                diagonal[start] -= moved;
                below[start] = along;
            }
            if end < n - 1 {
                below[end] = 0.0;
            }
        }
    }
}

/// Two solved halves of one matrix: `diag(values) + weight z z'` in the basis of their vectors.
struct Joining {
    values: Vec<f64>,
    z: Vec<f64>,
    weight: f64,
    /// Vectors as rows over both halves, and which halves each reaches.
    rows: Vec<f64>,
    reach: Vec<[bool; 2]>,
    middle: usize,
}

impl Joining {
    fn new([first, second]: [Solved; 2], joint: f64) -> Joining {
        let (middle, left) = (first.values.len(), second.values.len());
        let n = middle + left;
        let (mut rows, mut z) = (vec![0.0; n * n], Vec::with_capacity(n));
        for (at, row) in first.rows.chunks_exact(middle).enumerate() {
            rows[at * n..][..middle].copy_from_slice(row);
            z.push(row[middle - 1] * 0.5f64.sqrt());
        }
        for (at, row) in second.rows.chunks_exact(left).enumerate() {
            rows[(middle + at) * n + middle..][..left].copy_from_slice(row);
            z.push(row[0].copysign(row[0] * joint) * 0.5f64.sqrt());
        }
        let reach = (0..n).map(|at| [at < middle, at >= middle]).collect();
        let values = [first.values, second.values].concat();
        Joining { values, z, weight: 2.0 * joint.abs(), rows, reach, middle }
    }

    fn join(mut self) -> Solved {
        let n = self.values.len();
        let (kept, settled) = self.settle();
        let poles: Vec<f64> = kept.iter().map(|&at| self.values[at]).collect();
        let z: Vec<f64> = kept.iter().map(|&at| self.z[at]).collect();
        let roots = pulp::Arch::new().dispatch(Secular { poles: &poles, z: &z, weight: self.weight });
        let mut rows = self.combined(&kept, &roots.vectors);
        let mut values = roots.values;
        for at in settled {
            values.push(self.values[at]);
            rows.extend_from_slice(&self.rows[at * n..][..n]);
        }
        in_order(n, values, rows)
    }

    /// Those of the basis that the change moves, by value; and those that stay as they are, where z has next to nothing or
    /// after a turn that leaves all of two equal values' z to one of them.
    fn settle(&mut self) -> (Vec<usize>, Vec<usize>) {
        let n = self.values.len();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| self.values[a].total_cmp(&self.values[b]));
        let largest = self.values.iter().fold(self.weight, |largest, x| largest.max(x.abs()));
        let negligible = 8.0 * EPSILON * largest;
        let (mut kept, mut settled): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
        for at in order {
            if self.weight * self.z[at].abs() <= negligible {
                settled.push(at);
                continue;
            }
            if let Some(&before) = kept.last() {
                let length = self.z[before].hypot(self.z[at]);
                let (cos, sin) = (self.z[at] / length, -self.z[before] / length);
                let apart = self.values[at] - self.values[before];
                if (apart * cos * sin).abs() <= negligible {
                    self.turn(before, at, cos, sin);
                    (self.z[before], self.z[at]) = (0.0, length);
                    kept.pop();
                    settled.push(before);
                }
            }
            kept.push(at);
        }
        (kept, settled)
    }

    fn turn(&mut self, a: usize, b: usize, cos: f64, sin: f64) {
        let n = self.values.len();
        let (low, high) = (a.min(b), a.max(b));
        let (upper, lower) = self.rows.split_at_mut(high * n);
        let (upper, lower) = (&mut upper[low * n..][..n], &mut lower[..n]);
        turn(upper, lower, cos, if a < b { sin } else { -sin });
        let (x, y) = (self.values[a], self.values[b]);
        self.values[a] = cos * cos * x + sin * sin * y;
        self.values[b] = cos * cos * y + sin * sin * x;
        let both = [self.reach[a][0] || self.reach[b][0], self.reach[a][1] || self.reach[b][1]];
        (self.reach[a], self.reach[b]) = (both, both);
    }

    /// The rows that `vectors` (as rows over those kept) make of the kept rows; each half only of those that reach it.
    fn combined(&self, kept: &[usize], vectors: &[f64]) -> Vec<f64> {
        let (n, k) = (self.values.len(), kept.len());
        let mut rows = vec![0.0; k * n];
        for (half, columns) in [0..self.middle, self.middle..n].into_iter().enumerate() {
            let there: Vec<usize> = (0..k).filter(|&j| self.reach[kept[j]][half]).collect();
            let basis: Vec<f64> =
                there.iter().flat_map(|&j| &self.rows[kept[j] * n..][columns.clone()]).copied().collect();
            let factors: Vec<f64> =
                vectors.chunks_exact(k.max(1)).flat_map(|vector| there.iter().map(|&j| vector[j])).collect();
            let mut product = vec![0.0; k * columns.len()];
            let shape = (there.len(), columns.len());
            multiply(&mut product, View::new(&factors, k, shape.0), View::new(&basis, shape.0, shape.1));
            for (row, part) in rows.chunks_exact_mut(n).zip(product.chunks_exact(shape.1)) {
                row[columns.clone()].copy_from_slice(part);
            }
        }
        rows
    }
}

/// Eigenvalues and eigenvectors (as rows) of `diag(poles) + weight z z'`, poles ascending and apart.
struct Roots {
    values: Vec<f64>,
    vectors: Vec<f64>,
}

/// What the roots are of, compiled for the machine's vectors.
struct Secular<'a> {
    poles: &'a [f64],
    z: &'a [f64],
    weight: f64,
}

impl WithSimd for Secular<'_> {
    type Output = Roots;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Roots {
        let Secular { poles, z, weight } = self;
        let k = poles.len();
        let pulls: Vec<f64> = z.iter().map(|z| weight * z * z).collect();
        let (mut values, mut vectors) = (Vec::with_capacity(k), vec![0.0; k * k]);
        let mut shifted = vec![0.0; k];
        for (at, gaps) in vectors.chunks_exact_mut(k.max(1)).enumerate() {
            let (origin, offset) = root(poles, &pulls, at, &mut shifted);
            values.push(poles[origin] + offset);
            // What lies between a pole and the root, without cancellation.
            gaps.iter_mut().zip(poles).for_each(|(gap, pole)| *gap = (pole - poles[origin]) - offset);
        }
        let exact = z_of_roots(poles, z, &vectors);
        for vector in vectors.chunks_exact_mut(k.max(1)) {
            vector.iter_mut().zip(&exact).for_each(|(x, z)| *x = z / *x);
            let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            vector.iter_mut().for_each(|x| *x /= length);
        }
        Roots { values, vectors }
    }
}

/// The z (times a constant) whose roots are exactly those that were found, so that vectors made of it are orthogonal.
/// `gaps` has pole less root, a row each root.
#[inline(always)]
fn z_of_roots(poles: &[f64], z: &[f64], gaps: &[f64]) -> Vec<f64> {
    let k = poles.len();
    let mut squares = vec![1.0; k];
    for (root, gaps) in gaps.chunks_exact(k.max(1)).enumerate() {
        for (at, square) in squares.iter_mut().enumerate() {
            *square *= if at == root { -gaps[at] } else { gaps[at] / (poles[at] - poles[root]) };
        }
    }
    squares.iter().zip(z).map(|(square, z)| square.abs().sqrt().copysign(*z)).collect()
}

/// The root of `1 + sum pulls / (poles - x)` behind pole `at` (before the next one), as the nearer pole and what is beyond it.
#[inline(always)]
fn root(poles: &[f64], pulls: &[f64], at: usize, shifted: &mut [f64]) -> (usize, f64) {
    let k = poles.len();
    let last = at + 1 == k;
    let width = if last { pulls.iter().sum() } else { poles[at + 1] - poles[at] };
    shift(poles, poles[at], shifted);
    if k == 1 {
        return (0, width);
    }
    let mut origin = at;
    let (mut low, mut high) = (0.0, width);
    if !last {
        if Balance::at(shifted, pulls, at + 1, 0.5 * width).sum() >= 0.0 {
            high = 0.5 * width;
        } else {
            (origin, low, high) = (at + 1, -0.5 * width, 0.0);
            shift(poles, poles[at + 1], shifted);
        }
    }
    // The two poles beside the root, or the last two.
    let (left, split) = if last { (at - 1, at) } else { (at, at + 1) };
    let mut x = 0.5 * (low + high);
    for _ in 0..100 {
        let balance = Balance::at(shifted, pulls, split, x);
        let sum = balance.sum();
        if sum.abs() <= 8.0 * EPSILON * balance.size || high - low <= EPSILON * x.abs() {
            break;
        }
        if sum > 0.0 {
            high = x
        } else {
            low = x
        }
        let step = balance.step(shifted[left] - x, shifted[left + 1] - x, (low - x, high - x));
        let next = step.map_or(0.5 * (low + high), |step| x + step);
        if next == x {
            break;
        }
        x = next;
    }
    (origin, x)
}

#[inline(always)]
fn shift(poles: &[f64], origin: f64, shifted: &mut [f64]) {
    shifted.iter_mut().zip(poles).for_each(|(shifted, pole)| *shifted = pole - origin);
}

/// The sum of `pulls / (shifted - x)` and its slope.
#[inline(always)]
fn attraction(shifted: &[f64], pulls: &[f64], x: f64) -> (f64, f64) {
    const LANES: usize = 8;
    let (mut sums, mut slopes) = ([0.0; LANES], [0.0; LANES]);
    let whole = shifted.len() / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        for lane in 0..LANES {
            let inverse = 1.0 / (shifted[first + lane] - x);
            let term = pulls[first + lane] * inverse;
            sums[lane] += term;
            slopes[lane] += term * inverse;
        }
    }
    for at in whole..shifted.len() {
        let inverse = 1.0 / (shifted[at] - x);
        sums[0] += pulls[at] * inverse;
        slopes[0] += pulls[at] * inverse * inverse;
    }
    (sums.iter().sum(), slopes.iter().sum())
}

/// The secular function at a point: what the poles up to `split` and those from there on add to 1, their slopes, and the sum
/// of the sizes of all terms.
struct Balance {
    below: f64,
    above: f64,
    slopes: [f64; 2],
    size: f64,
}

impl Balance {
    #[inline(always)]
    fn at(shifted: &[f64], pulls: &[f64], split: usize, x: f64) -> Balance {
        let (below, below_slope) = attraction(&shifted[..split], &pulls[..split], x);
        let (above, above_slope) = attraction(&shifted[split..], &pulls[split..], x);
        // The terms of a part have one sign.
        let size = 1.0 + below.abs() + above.abs();
        Balance { below, above, slopes: [below_slope, above_slope], size }
    }

    #[inline(always)]
    fn sum(&self) -> f64 {
        1.0 + self.below + self.above
    }

    /// The way to the root of `c + s / (left - x) + S / (right - x)`, which has the value and both slopes of the function here,
    /// if it lies within bounds.
    #[inline(always)]
    fn step(&self, left: f64, right: f64, (low, high): (f64, f64)) -> Option<f64> {
        let sum = self.sum();
        let c = sum - left * self.slopes[0] - right * self.slopes[1];
        let a = (left + right) * sum - left * right * (self.slopes[0] + self.slopes[1]);
        let b = left * right * sum;
        let discriminant = (a * a - 4.0 * b * c).max(0.0).sqrt();
        let q = 0.5 * (a + discriminant.copysign(a));
        [q / c, b / q].into_iter().find(|&step| step > low && step < high)
    }
}
