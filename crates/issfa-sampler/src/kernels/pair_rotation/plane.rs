//! One row and the plane of two features: what each use of the pair weighs, its weights integrated out \[M16\].

use super::uses::{self, ChunkWeights, ROW_CHUNK, Use, Uses, rows_joined};
use crate::model::NormalPrior;
use crate::model::simulate::normal;
use crate::numeric::lanes::exp_of_negative;
use crate::rng::Stream;
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
    /// What it has of its own, if anything.
    pub own: Option<Own>,
}

/// What a row has of its own where it has holes, or Student weights.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Products of both features with each other over what the row holds: first, mixed, second.
    pub gram: [f64; 3],
    /// Local precisions of both weights.
    pub local: [f64; 2],
}

/// The rows of a chunk as the pair sees them.
#[derive(Clone, Debug)]
pub struct ChunkView {
    /// How many rows there are.
    pub n_rows: usize,
    /// Their [`RowView::inner`], feature by feature.
    pub inner: [[f64; ROW_CHUNK]; 2],
    /// Rows with something of their own.
    pub own: Vec<(usize, Own)>,
}

impl ChunkView {
    /// Of some rows.
    pub fn new(rows: impl Iterator<Item = RowView>) -> ChunkView {
        let mut view = ChunkView { n_rows: 0, inner: [[0.0; ROW_CHUNK]; 2], own: Vec::new() };
        for (at, row) in rows.enumerate() {
            (view.inner[0][at], view.inner[1][at]) = (row.inner[0], row.inner[1]);
            view.own.extend(row.own.map(|own| (at, own)));
            view.n_rows = at + 1;
        }
        view
    }
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
    /// What multiplies `b_1^2`, `b_1 b_2` and `b_2^2` where both are.
    both: [f64; 3],
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
            both: [0.5 * precision[2], -precision[1], 0.5 * precision[0]].map(|x| x / determinant),
        }
    }
}

impl Pair {
    /// The plane as a row sees it that has something of its own.
    fn own_plane(&self, rotation: Rotation, own: &Own) -> Plane {
        let mut pair = *self;
        pair.weights.iter_mut().zip(own.local).for_each(|(weight, local)| weight.precision *= local);
        pair.plane(rotation, own.gram)
    }
}

impl Plane {
    #[inline(always)]
    fn pull(&self, inner: [f64; 2]) -> [f64; 2] {
        let [x, y] = self.rotation.inner(inner);
        [self.slope * x + self.offset[0], self.slope * y + self.offset[1]]
    }

    /// The log weight of each use of the pair by a row, relative to neither.
    #[inline(always)]
    pub fn ln_weights(&self, inner: [f64; 2]) -> Uses {
        let ([x, y], [a, b, c]) = (self.pull(inner), self.both);
        let [_, first, second, mixed] = self.constants;
        let both = a * x * x + b * x * y + c * y * y;
        [0.0, first + self.halves[0] * x * x, second + self.halves[1] * y * y, mixed + both]
    }

    /// Draws the weights of the features that are used.
    pub fn draw_weights(&self, inner: [f64; 2], using: Use, stream: &mut impl rand::Rng) -> [Option<f64>; 2] {
        let ([x, y], [p, r, q]) = (self.pull(inner), self.precision);
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

impl Pair {
    /// The weights of what each row of a chunk uses over the largest of the row, and the sum of the logarithms of those.
    #[inline(always)]
    pub fn weights(&self, plane: &Plane, rows: &ChunkView) -> (ChunkWeights, f64) {
        let [mut neither, mut first, mut second, mut both] = [[0.0; ROW_CHUNK]; 4];
        for at in 0..ROW_CHUNK {
            [_, first[at], second[at], both[at]] = plane.ln_weights([rows.inner[0][at], rows.inner[1][at]]);
        }
        for &(at, ref own) in &rows.own {
            let own = self.own_plane(plane.rotation, own);
            [_, first[at], second[at], both[at]] = own.ln_weights([rows.inner[0][at], rows.inner[1][at]]);
        }
        let larger = |x: f64, y: f64| if x > y { x } else { y };
        let mut ln_most = 0.0;
        for at in 0..ROW_CHUNK {
            let most = larger(larger(first[at], second[at]), larger(both[at], 0.0));
            (first[at], second[at], both[at]) = (first[at] - most, second[at] - most, both[at] - most);
            neither[at] = -most;
        }
        neither[..rows.n_rows].iter().for_each(|x| ln_most -= x);
        for weights in [&mut neither, &mut first, &mut second, &mut both] {
            weights.iter_mut().for_each(|x| *x = exp_of_negative(*x));
        }
        neither[rows.n_rows..].fill(1.0);
        [&mut first, &mut second, &mut both].into_iter().for_each(|weights| weights[rows.n_rows..].fill(0.0));
        ([neither, first, second, both], ln_most)
    }

    /// Draws what each row of a chunk uses and its weights, given what they use together.
    pub fn draw_chunk(
        &self,
        plane: &Plane,
        rows: &ChunkView,
        together: Use,
        stream: &mut Stream,
    ) -> Vec<[Option<f64>; 2]> {
        let (weights, _) = self.weights(plane, rows);
        let parts: Vec<Uses> = (0..rows.n_rows).map(|at| weights.each_ref().map(|of_use| of_use[at])).collect();
        let uses = uses::draw(&parts, together, stream);
        let mut own = rows.own.iter().peekable();
        let mut draw = |(at, using): (usize, Use)| {
            let own = own.next_if(|(row, _)| *row == at);
            let own = own.map(|(_, own)| self.own_plane(plane.rotation, own));
            own.as_ref().unwrap_or(plane).draw_weights([rows.inner[0][at], rows.inner[1][at]], using, stream)
        };
        uses.into_iter().enumerate().map(&mut draw).collect()
    }
}

/// [`ChunkUses`] for each of some planes.
pub struct UsesOfChunk<'a> {
    /// The pair.
    pub pair: &'a Pair,
    /// The rows.
    pub rows: &'a ChunkView,
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
            let (weights, ln_most) = self.pair.weights(plane, self.rows);
            let uses = rows_joined(&weights);
            let total: f64 = uses.iter().sum();
            *place = ChunkUses { uses: uses.map(|x| x / total), ln_total: ln_most + total.ln() };
        }
    }
}
