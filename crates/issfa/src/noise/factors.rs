//! The noise of rows in no order, whose differences hold the signal too: what factors that many rows share leave of each site
//! and of each mode.

use super::bands::Bands;
use super::spectra::Spectra;
use super::{Recipe, Sample};
use crate::numeric::linalg::{View, multiply, symmetric_eigen};
use crate::structure::{Direction, Structure};

/// Factors are sought among so many of the smoothest modes or all sites, in up to so many rows; in more where those are fewer.
const MOST: usize = 1000;
/// And never in rows with more values at all sites, but for a few.
const MOST_VALUES: usize = 1 << 26;
const FEWEST_ROWS: usize = 32;
/// How often factors are sought anew at most, and how little the noise of all sites changes when they are found.
const ROUNDS: usize = 6;
const SETTLED: f64 = 0.005;
/// How far beyond the edge of noise a factor is signal.
const BEYOND_NOISE: f64 = 1.1;
/// Differences that are clipped have less noise than what factors leave, by this much of what chance does.
const STANDARD_ERRORS: f64 = 3.0;
/// A mode that has more than so many times the power of its band has it from signal.
const BEYOND_BAND: f64 = 3.0;
/// The least that factors leave of the freedom of a site or mode, and the square of it of its variance.
const LEAST_LEFT: f64 = 0.05;

/// Noise at sites and in modes.
pub struct Noise {
    /// The standard deviation at each column.
    pub scales: Vec<f64>,
    /// Beside the scales, the power of each mode; all 1 where modes say nothing.
    pub powers: Vec<f64>,
}

/// The noise of all but what rows share, from the scales of differences, which hold signal too.
///
/// Rows are divided by the scales and their modes each by the root of its power, so that any noise that the model knows has
/// independent values of variance 1 (of its power up to a few times that of its band: a factor may be a single mode). Principal components beyond what such noise gives a sample of as many rows are signal.
/// What they leave of each site's and each mode's variance, over the share of its freedom that they leave, is its noise; the next
/// round finds weaker ones, since less signal is in the scales and powers. Where sites are few, or no mode is smoother than
/// another, sites say it all.
pub fn without_factors(sample: &Sample, spectra: &Spectra, bands: &Bands, recipe: &Recipe) -> Noise {
    let (structure, n_columns) = (spectra.structure, spectra.scales.len());
    let modes = bands.has_rough_modes(recipe).then(|| &bands.order[..bands.order.len().min(MOST)]);
    let n_sought = modes.map_or(n_columns, <[usize]>::len);
    let most_rows = (MOST * MOST / n_sought).max(MOST).min((MOST_VALUES / structure.n_sites()).max(FEWEST_ROWS));
    let places: Vec<usize> = (0..sample.n_kept()).step_by(sample.n_kept().div_ceil(most_rows).max(1)).collect();
    let mut noise = Noise { scales: spectra.scales.to_vec(), powers: vec![1.0; structure.n_sites()] };
    for round in 0..ROUNDS {
        let rows = Rows::new(sample, &places, &Spectra { scales: &noise.scales, ..*spectra }, modes);
        let before = mean_square(&noise.scales);
        match modes {
            Some(modes) => noise.lower_by_modes(rows, (modes, bands), structure, round == 0),
            None => noise.lower_by_sites(rows, round == 0),
        }
        if (mean_square(&noise.scales) / before - 1.0).abs() < SETTLED && round > 0 {
            break;
        }
    }
    // Signals that few rows hold are clipped from differences; factors may miss them. Both scatter by chance.
    let surely = 1.0 - STANDARD_ERRORS / (places.len() as f64).sqrt();
    let clipped = noise.scales.iter_mut().zip(spectra.scales).filter(|(scale, clipped)| **clipped < surely * **scale);
    clipped.for_each(|(scale, clipped)| *scale = *clipped);
    let least = recipe.least_scale * mean_square(&noise.scales).sqrt();
    noise.scales.iter_mut().for_each(|scale| *scale = scale.max(least));
    noise
}

impl Noise {
    /// One round where modes have powers.
    fn lower_by_modes(
        &mut self,
        mut rows: Rows,
        (modes, bands): (&[usize], &Bands),
        structure: &Structure,
        is_first: bool,
    ) {
        let (of_modes, of_sites) = (std::mem::take(&mut rows.of_modes), std::mem::take(&mut rows.of_sites));
        // At first signal and all.
        let before = if is_first { of_modes.clone() } else { std::mem::take(&mut self.powers) };
        let of_bands = bands.medians(&before);
        let most = |rank: usize| BEYOND_BAND * of_bands[bands.of_rank(rank)];
        let of_chosen: Vec<f64> = modes.iter().enumerate().map(|(rank, &mode)| before[mode].min(most(rank))).collect();
        let factors = rows.factors(&of_chosen, 1.0);
        self.powers = of_modes;
        for (at, (&mode, power)) in modes.iter().zip(&of_chosen).enumerate() {
            self.powers[mode] = power * Held::by(&factors, at).left_of(self.powers[mode] / power);
        }
        let mean = self.powers.iter().sum::<f64>() / self.powers.len() as f64;
        self.powers.iter_mut().for_each(|power| *power /= mean);
        let mut held = vec![Held::default(); self.scales.len()];
        for factor in &factors {
            let mut image = vec![0.0; structure.n_sites()];
            for ((&mode, power), x) in modes.iter().zip(&of_chosen).zip(&factor.direction) {
                image[mode] = (power / mean).sqrt() * x;
            }
            structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
            held.iter_mut().zip(image).for_each(|(held, x)| *held = held.and(factor.value, x));
        }
        let lower = |((scale, held), (square, known)): ((&mut f64, Held), (f64, f64))| {
            *scale *= (mean * held.left_of(square / mean) / known).sqrt();
        };
        self.scales.iter_mut().zip(held).zip(of_sites).filter(|(_, (square, _))| *square > 0.0).for_each(lower);
    }

    /// One round where sites say it all.
    fn lower_by_sites(&mut self, mut rows: Rows, is_first: bool) {
        let of_sites = std::mem::take(&mut rows.of_sites);
        // At first scales hold the signal, and sites have a variance of about 1 with it.
        let noise = if is_first { median(of_sites.iter().map(|(square, _)| *square).collect()) } else { 1.0 };
        let factors = rows.factors(&vec![1.0; self.scales.len()], noise);
        for (at, (square, known)) in of_sites.into_iter().enumerate().filter(|(_, (square, _))| *square > 0.0) {
            self.scales[at] *= (Held::by(&factors, at).left_of(square) / known).sqrt();
        }
    }
}

/// What factors hold of a site or mode.
#[derive(Clone, Copy, Default)]
struct Held {
    variance: f64,
    freedom: f64,
}

impl Held {
    /// At this place of the factors' directions.
    fn by(factors: &[Factor], at: usize) -> Held {
        factors.iter().fold(Held::default(), |held, factor| held.and(factor.value, factor.direction[at]))
    }

    fn and(self, value: f64, x: f64) -> Held {
        Held { variance: self.variance + value * x * x, freedom: self.freedom + x * x }
    }

    /// What is left of a variance.
    fn left_of(self, variance: f64) -> f64 {
        let left = (variance - self.variance) / (1.0 - self.freedom).max(LEAST_LEFT);
        left.max(LEAST_LEFT * LEAST_LEFT * variance)
    }
}

/// A factor: how much rows vary along it, and where it points.
struct Factor {
    value: f64,
    direction: Vec<f64>,
}

/// Rows over the scales of their sites, 0 where nothing is known, by site or by the chosen modes.
struct Rows {
    values: Vec<f64>,
    n_rows: usize,
    n_columns: usize,
    /// How many independent rows they are worth.
    worth: f64,
    /// The sum of squares at each site over that worth, and the share of the rows that are known there.
    of_sites: Vec<(f64, f64)>,
    /// The variance of each mode.
    of_modes: Vec<f64>,
}

impl Rows {
    fn new(sample: &Sample, places: &[usize], spectra: &Spectra, modes: Option<&[usize]>) -> Rows {
        let (n_rows, n_sites, freedom) = (places.len(), spectra.scales.len(), sample.share_of_freedom());
        let scaled = |place: usize| {
            let values = sample.kept(place).zip(spectra.scales);
            values.map(|(x, scale)| if x.is_nan() { None } else { Some(x / scale) })
        };
        let mut sums = vec![(0.0, 0.0); n_sites];
        for &place in places {
            for (x, (sum, n)) in scaled(place).zip(&mut sums) {
                *sum += x.map_or(0.0, |x| x * x);
                *n += f64::from(u8::from(x.is_some()));
            }
        }
        let n_known = sums.iter().map(|(_, n)| n).sum::<f64>() / n_sites as f64;
        let worth = freedom * n_known;
        let of_sites = sums.iter().map(|(sum, n)| (sum / worth, n / n_known)).collect();
        let (mut values, mut of_modes) =
            (Vec::with_capacity(n_rows * modes.map_or(n_sites, <[usize]>::len)), Vec::new());
        if let Some(modes) = modes {
            of_modes = vec![0.0; spectra.structure.n_sites()];
            spectra.for_each(
                n_rows,
                |at| sample.kept(places[at]),
                f64::INFINITY,
                |spectrum| {
                    values.extend(modes.iter().map(|&mode| spectrum[mode]));
                    of_modes.iter_mut().zip(spectrum).for_each(|(sum, x)| *sum += x * x);
                },
            );
            of_modes.iter_mut().for_each(|sum| *sum = (*sum / worth).max(f64::MIN_POSITIVE));
        } else {
            places.iter().for_each(|&place| values.extend(scaled(place).map(Option::unwrap_or_default)));
        }
        Rows { n_columns: values.len() / n_rows, values, n_rows, worth, of_sites, of_modes }
    }

    /// Principal components beyond noise of this variance, of columns over the roots of these powers.
    fn factors(mut self, powers: &[f64], noise: f64) -> Vec<Factor> {
        let (n, n_rows) = (self.n_columns, self.n_rows);
        let roots: Vec<f64> = powers.iter().map(|power| power.sqrt()).collect();
        for row in self.values.chunks_exact_mut(n) {
            row.iter_mut().zip(&roots).for_each(|(x, root)| *x /= root);
        }
        let rows = View::new(&self.values, n_rows, n);
        let by_columns = n <= n_rows;
        let size = n.min(n_rows);
        let mut gram = vec![0.0; size * size];
        if by_columns {
            multiply(&mut gram, rows.t(), rows);
        } else {
            multiply(&mut gram, rows, rows.t());
        }
        gram.iter_mut().for_each(|x| *x /= self.worth);
        let eigen = symmetric_eigen(&gram, size);
        let edge = noise * BEYOND_NOISE * (1.0 + (n as f64 / self.worth).sqrt()).powi(2);
        let factor = |i: usize| {
            let vector: Vec<f64> = (0..size).map(|at| eigen.vectors[at * size + i]).collect();
            let value = eigen.values[i];
            let direction = if by_columns { vector } else { self.direction(&vector, value * self.worth) };
            Factor { value, direction }
        };
        (0..size).filter(|&i| eigen.values[i] > edge).map(factor).collect()
    }

    /// The direction over the columns that belongs to one over the rows.
    fn direction(&self, of_rows: &[f64], sum_of_squares: f64) -> Vec<f64> {
        let mut direction = vec![0.0; self.n_columns];
        for (row, weight) in self.values.chunks_exact(self.n_columns).zip(of_rows) {
            direction.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
        }
        direction.iter_mut().for_each(|x| *x /= sum_of_squares.sqrt());
        direction
    }
}

fn mean_square(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three factors in noise, in fewer rows than columns: what is found among the rows is what the columns' own products say.
    #[test]
    fn factors_of_few_rows_are_those_of_the_columns() {
        let (n_rows, n) = (9, 14);
        let wave = |a: usize, b: usize| ((a * 37 + b * 101) as f64 * 0.7).sin();
        let value = |row: usize, column: usize| {
            (0..3).map(|k| 4.0 * wave(row, k + 1) * wave(column, k + 20)).sum::<f64>() + wave(row + 50, column + 70)
        };
        let values: Vec<f64> = (0..n_rows * n).map(|at| value(at / n, at % n)).collect();
        let (worth, noise) = (0.8 * n_rows as f64, 0.3);
        let powers: Vec<f64> = (0..n).map(|column| 1.0 + wave(column, 9).powi(2)).collect();
        let product = |a: usize, b: usize| {
            let sum = (0..n_rows).map(|t| values[t * n + a] * values[t * n + b]).sum::<f64>();
            sum / (worth * (powers[a] * powers[b]).sqrt())
        };
        let gram: Vec<f64> = (0..n * n).map(|at| product(at / n, at % n)).collect();
        let eigen = symmetric_eigen(&gram, n);
        let edge = noise * BEYOND_NOISE * (1.0 + (n as f64 / worth).sqrt()).powi(2);
        let signal: Vec<usize> = (0..n).filter(|&i| eigen.values[i] > edge).collect();
        assert!((1..n_rows).contains(&signal.len()), "{:?} beside {edge}", eigen.values);
        let rows = Rows { values, n_rows, n_columns: n, worth, of_sites: Vec::new(), of_modes: Vec::new() };
        let factors = rows.factors(&powers, noise);
        assert_eq!(factors.len(), signal.len());
        for column in 0..n {
            let square = |i: usize| eigen.vectors[column * n + i].powi(2);
            let held: f64 = signal.iter().map(|&i| eigen.values[i] * square(i)).sum();
            let free = 1.0 - signal.iter().map(|&i| square(i)).sum::<f64>();
            let variance = gram[column * n + column];
            let expected = ((variance - held) / free.max(LEAST_LEFT)).max(LEAST_LEFT * LEAST_LEFT * variance);
            let left = Held::by(&factors, column).left_of(variance);
            assert!((left - expected).abs() < 1e-9 * variance, "{column}: {left} {expected}");
        }
    }
}
