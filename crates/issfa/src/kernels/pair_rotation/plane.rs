//! One row and the plane of two features: what each use of the pair weighs, its weights integrated out \[M16\].

use super::uses::{ChunkWeights, ROW_CHUNK, Use, Uses, rows_joined};
use crate::model::NormalPrior;
use crate::model::simulate::normal;
use crate::numeric::lanes::exp_of_negative;
use pulp::{Simd, WithSimd};

/// A rotation of the plane: the first feature becomes `cos first + sin second`, the second `cos second - sin first`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotation {
    /// The cosine of the angle.
    pub cos: f64,
    /// Its sine.
    pub sin: f64,
}

impl Rotation {
    /// None at all.
    pub const IDENTITY: Rotation = Rotation { cos: 1.0, sin: 0.0 };

    /// A draw with the half angle's tangent `scale` times a Cauchy number: at scale 1 the angle is uniform. There is as much
    /// chance of a rotation as of its inverse.
    pub fn draw(scale: f64, stream: &mut impl rand::Rng) -> Rotation {
        let (x, y) = (scale * normal(stream), normal(stream));
        let length = x * x + y * y;
        Rotation { cos: (y * y - x * x) / length, sin: 2.0 * x * y / length }
    }

    /// Both, one after the other.
    pub fn then(self, other: Rotation) -> Rotation {
        Rotation { cos: self.cos * other.cos - self.sin * other.sin, sin: self.sin * other.cos + self.cos * other.sin }
    }

    /// New features as combinations of the old ones.
    pub fn combination(self) -> [[f64; 2]; 2] {
        [[self.cos, self.sin], [-self.sin, self.cos]]
    }

    /// Products of the new features with a vector, from those of the old ones.
    #[inline(always)]
    fn inner(self, [x, y]: [f64; 2]) -> [f64; 2] {
        [self.cos * x + self.sin * y, self.cos * y - self.sin * x]
    }

    /// Products of the new features with each other (first, mixed, second), from those of the old ones.
    fn gram(self, [a, b, c]: [f64; 3]) -> [f64; 3] {
        let ([ax, bx], [ay, by]) = (self.inner([a, b]), self.inner([b, c]));
        let ([first, mixed], [_, second]) = (self.inner([ax, ay]), self.inner([bx, by]));
        [first, mixed, second]
    }
}

/// What does not depend on the row or the rotation.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// sigma^2.
    pub noise_variance: f64,
    /// The prior of active weights: tau and nu of both.
    pub weights: [NormalPrior; 2],
    /// `ln(pi/(1 - pi))` of both.
    pub ln_prior_odds: [f64; 2],
}

/// A row as the pair sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowView {
    /// Products of both features with the residual that leaves both out.
    pub inner: [f64; 2],
    /// Their products with each other over what the row holds, where it has holes: first, mixed, second.
    pub own_gram: Option<[f64; 3]>,
}

/// The pair in a rotated plane, ready for rows.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    rotation: Rotation,
    /// `b = slope D + offset`, D the rotated products.
    slope: f64,
    offset: [f64; 2],
    /// The precision matrix of both weights, where both are active: first, mixed, second; and its determinant.
    precision: [f64; 3],
    determinant: f64,
    /// Log weights of the uses at b = 0, and what multiplies `b_1^2` or `b_2^2` where one is active.
    constants: Uses,
    halves: [f64; 2],
}

impl Pair {
    /// The plane after a rotation, from the products of the features with each other before it.
    pub fn plane(&self, rotation: Rotation, gram: [f64; 3]) -> Plane {
        let ([x, y], [first, mixed, second]) = (self.weights, rotation.gram(gram));
        let slope = 1.0 / self.noise_variance;
        let precision = [x.precision + first.max(0.0) * slope, mixed * slope, y.precision + second.max(0.0) * slope];
        // It is at least that of the prior; rounding must not take it below.
        let least = x.precision * y.precision;
        let determinant = (precision[0] * precision[2] - precision[1] * precision[1]).max(least);
        let alone = |prior: NormalPrior, precision: f64, ln_odds: f64| {
            ln_odds + 0.5 * (prior.precision / precision).ln() - 0.5 * prior.precision * prior.mean.powi(2)
        };
        let ones = [alone(x, precision[0], self.ln_prior_odds[0]), alone(y, precision[2], self.ln_prior_odds[1])];
        let both = ones[0] + ones[1] + 0.5 * (precision[0] * precision[2] / determinant).ln();
        Plane {
            rotation,
            slope,
            offset: [x.precision * x.mean, y.precision * y.mean],
            precision,
            determinant,
            constants: [0.0, ones[0], ones[1], both],
            halves: [0.5 / precision[0], 0.5 / precision[2]],
        }
    }
}

impl Plane {
    #[inline(always)]
    fn pull(&self, row: &RowView) -> [f64; 2] {
        let [x, y] = self.rotation.inner(row.inner);
        [self.slope * x + self.offset[0], self.slope * y + self.offset[1]]
    }

    /// The log weight of each use of the pair by a row, relative to neither.
    #[inline(always)]
    pub fn ln_weights(&self, row: &RowView) -> Uses {
        let ([x, y], [p, r, q]) = (self.pull(row), self.precision);
        let both = 0.5 * (q * x * x - 2.0 * r * x * y + p * y * y) / self.determinant;
        let [_, first, second, mixed] = self.constants;
        [0.0, first + self.halves[0] * x * x, second + self.halves[1] * y * y, mixed + both]
    }

    /// Draws the weights of the features that are used.
    pub fn draw_weights(&self, row: &RowView, using: Use, stream: &mut impl rand::Rng) -> [Option<f64>; 2] {
        let ([x, y], [p, r, q]) = (self.pull(row), self.precision);
        let mut draw = |mean: f64, precision: f64| mean + normal(stream) / precision.sqrt();
        match using {
            0 => [None, None],
            1 => [Some(draw(x / p, p)), None],
            2 => [None, Some(draw(y / q, q))],
            _ => {
                let second = draw((p * y - r * x) / self.determinant, self.determinant / p);
                [Some(draw((x - r * second) / p, p)), Some(second)]
            }
        }
    }
}

/// What the rows of a chunk use together under one rotation: probabilities, and the logarithm of what they were divided by.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkUses {
    /// By use; they add up to 1.
    pub uses: Uses,
    /// The logarithm of the sum over all that the rows might use.
    pub ln_total: f64,
}

/// The rows of a chunk (at most [`ROW_CHUNK`]) under several rotations.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    /// The pair.
    pub pair: &'a Pair,
    /// Its rows.
    pub rows: &'a [RowView],
}

impl Chunk<'_> {
    /// The weights of what each row uses over the largest of the row, and the sum of the logarithms of those.
    #[inline(always)]
    pub fn weights(&self, plane: &Plane) -> (ChunkWeights, f64) {
        let mut views = [RowView::default(); ROW_CHUNK];
        views[..self.rows.len()].copy_from_slice(self.rows);
        let mut weights = [[0.0; ROW_CHUNK]; 4];
        for (at, view) in views.iter().enumerate() {
            let of_row = plane.ln_weights(view);
            (0..4).for_each(|using| weights[using][at] = of_row[using]);
        }
        for (at, view) in self.rows.iter().enumerate() {
            if let Some(gram) = view.own_gram {
                let of_row = self.pair.plane(plane.rotation, gram).ln_weights(view);
                (0..4).for_each(|using| weights[using][at] = of_row[using]);
            }
        }
        let mut most = [0.0; ROW_CHUNK];
        for at in 0..ROW_CHUNK {
            most[at] = weights[0][at].max(weights[1][at]).max(weights[2][at].max(weights[3][at]));
            (0..4).for_each(|using| weights[using][at] = exp_of_negative(weights[using][at] - most[at]));
        }
        for at in self.rows.len()..ROW_CHUNK {
            (0..4).for_each(|using| weights[using][at] = if using == 0 { 1.0 } else { 0.0 });
        }
        (weights, most[..self.rows.len()].iter().sum())
    }
}

/// [`ChunkUses`] for each of some planes.
pub struct UsesOfChunk<'a> {
    /// The rows.
    pub chunk: Chunk<'a>,
    /// The plane after each rotation.
    pub planes: &'a [Plane],
    /// Where the answers go.
    pub places: &'a mut [ChunkUses],
}

impl WithSimd for UsesOfChunk<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (place, plane) in self.places.iter_mut().zip(self.planes) {
            let (mut weights, ln_most) = self.chunk.weights(plane);
            let uses = rows_joined(&mut weights);
            let total: f64 = uses.iter().sum();
            *place = ChunkUses { uses: uses.map(|x| x / total), ln_total: ln_most + total.ln() };
        }
    }
}
