//! The noise of a data set from the differences of its rows.

use super::bands::Bands;
use super::components::without_components;
use super::factors::scales_of_noise;
use super::levels::{Levels, clipped_variance, levels_of};
use super::rows::spread_of;
use super::spectra::Spectra;
use super::{Filter, Findings, Recipe, Reference, Sample};
use crate::data::Mask;
use crate::numeric::workers::share;
use crate::structure::Structure;
use std::sync::Arc;

/// Columns that a thread looks at together.
const COLUMNS: usize = 64;

/// A reference, or why there is none.
pub enum Measured {
    /// What was measured.
    Reference(Box<Reference>),
    /// Why the noise is taken to be white.
    Nothing(&'static str),
}

/// What noise is measured on, and how.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Of the rows.
    pub sample: &'a Sample,
    /// Their runs.
    pub n_runs: usize,
    /// The basis.
    pub structure: &'a Arc<Structure>,
    /// The sites that take part.
    pub mask: &'a Mask,
    /// The constants.
    pub recipe: &'a Recipe,
    /// Of the prepared rows.
    pub mean_square: f64,
}

/// Measures the noise on differences of prepared rows.
pub fn measure(subject: &Subject) -> Measured {
    let Subject { sample, n_runs, structure, mask, recipe, .. } = *subject;
    if sample.n_differences() == 0 {
        return Measured::Nothing("no run has two rows, so that there are no differences to measure noise on");
    }
    let Some(mut site_scales) = site_scales(sample, mask.n_columns(), recipe) else {
        return Measured::Nothing("rows that follow each other do not differ, so that there is no noise to measure");
    };
    let ratio = ratio(sample, &site_scales);
    let is_series = ratio >= recipe.series_ratio;
    let bands = Bands::new(structure, recipe);
    // Of rows in no order on a few sites nothing but what rows share tells signal from noise.
    let by_factors = !is_series && !bands.has_rough_modes(recipe) && !bands.are_alike();
    if by_factors {
        site_scales = scales_of_noise(sample, &site_scales, recipe);
    }
    let spectra = Spectra { structure, mask, scales: &site_scales };
    let powers =
        if by_factors { vec![1.0; bands.len()] } else { powers_of_noise(sample, &bands, &spectra, is_series, recipe) };
    let rows: Vec<&[f32]> = sample.rows().map(|(_, row)| row).collect();
    let of_rows = spectra.powers(rows.len(), |at| rows[at].iter().map(|&x| f64::from(x)), f64::INFINITY);
    // Rows hold the noise too.
    let row_powers = bands.means(&of_rows).iter().zip(&powers).map(|(row, noise)| row.max(*noise)).collect();
    let findings = findings(sample, ratio, is_series);
    let mut reference = Reference {
        structure: structure.identity(),
        mask_checksum: mask.checksum(),
        site_scales,
        band_ends: bands.ends.clone(),
        powers,
        row_powers,
        run_levels: vec![1.0; n_runs],
        row_factors: Vec::new(),
        level: 1.0,
        of_differences: 1.0,
        unit: 1.0,
        findings,
    };
    if by_factors {
        // Differences hold both: the level of the noise is theirs by as much.
        let filter = Filter::new(reference.clone(), structure.clone(), mask.clone());
        reference.of_differences = 1.0 / levels_of(sample, n_runs, &filter, recipe).level;
    }
    reference = remeasure(reference, subject);
    Measured::Reference(Box::new(reference))
}

/// The power of the noise in each band: what differences have, less what many rows share.
fn powers_of_noise(sample: &Sample, bands: &Bands, spectra: &Spectra, is_series: bool, recipe: &Recipe) -> Vec<f64> {
    let of_modes = spectra.powers(sample.n_differences(), |at| sample.difference(at), recipe.clip_spectrum);
    let all = at_least_a_little(bands.medians(&of_modes));
    let without_signal = match (is_series, spectra.mask.is_full()) {
        (true, false) => all,
        (true, true) => {
            let apart = sample.differences_apart();
            without_components(bands, (apart.len(), 1.0), |at| sample.difference(apart[at]), spectra, &all)
        }
        (false, _) => {
            let rows = (sample.n_kept(), sample.share_of_freedom());
            let rest = without_components(bands, rows, |at| sample.kept(at), spectra, &all);
            let guarded = bands.guarded(&of_modes, recipe, &all);
            rest.iter().zip(guarded).map(|(rest, guarded)| rest.max(guarded)).collect()
        }
    };
    at_least_a_little(without_signal)
}

/// A reference that was measured on other data, with the levels of these.
pub fn remeasure(mut reference: Reference, subject: &Subject) -> Reference {
    let Subject { sample, n_runs, structure, mask, recipe, mean_square } = *subject;
    let filter = Filter::new(reference.clone(), structure.clone(), mask.clone());
    let Levels { of_runs, row_factors, level } = levels_of(sample, n_runs, &filter, recipe);
    (reference.run_levels, reference.row_factors, reference.level) = (of_runs, row_factors, level);
    reference.unit = unit(sample, &filter, |run, row| reference.row_level(run, row));
    describe(&mut reference, &filter, structure, mean_square);
    reference
}

/// The root mean square of white rows.
fn unit(sample: &Sample, filter: &Filter, level: impl Fn(usize, usize) -> f64 + Sync) -> f64 {
    let scales = &filter.reference().site_scales;
    let mut sums = vec![(0.0, 0usize); sample.rows().len()];
    share(sums.iter_mut().zip(sample.rows()).enumerate(), Vec::new, |scratch, (at, (sum, (run, raw)))| {
        let level = level(run, at * sample.row_stride());
        let scaled = raw.iter().zip(scales).map(|(&x, scale)| f64::from(x) / (scale * level));
        let mut row: Vec<f64> = scaled.map(|x| if x.is_nan() { 0.0 } else { x }).collect();
        filter.whiten(&mut row, scratch);
        let seen = row.iter().zip(raw).filter(|(_, raw)| !raw.is_nan());
        *sum = seen.fold((0.0, 0), |(sum, n), (x, _)| (sum + x * x, n + 1));
    });
    let (squares, n) = sums.iter().fold((0.0, 0), |(a, n), (b, m)| (a + b, n + m));
    let unit = (squares / n.max(1) as f64).sqrt();
    if unit > 0.0 && unit.is_finite() { unit } else { 1.0 }
}

/// Powers of which none is next to nothing beside the largest.
fn at_least_a_little(powers: Vec<f64>) -> Vec<f64> {
    let largest = powers.iter().copied().fold(0.0, f64::max);
    let least = if largest > 0.0 { 1e-6 * largest } else { 1.0 };
    powers.into_iter().map(|power| power.max(least)).collect()
}

fn findings(sample: &Sample, ratio: f64, is_series: bool) -> Findings {
    let (n_rows, n_differences) = (sample.n_rows(), sample.n_differences());
    let nothing = f64::NAN;
    let (share, between_sites, level) = (nothing, nothing, nothing);
    let (full_width, between_rows) = (None, None);
    Findings { n_rows, n_differences, ratio, is_series, share, between_sites, full_width, level, between_rows }
}

/// Fills in what follows from the rest.
fn describe(reference: &mut Reference, filter: &Filter, structure: &Structure, mean_square: f64) {
    let n_modes = filter.powers().len() as f64;
    let mean_power = filter.powers().iter().sum::<f64>() / n_modes * reference.level.powi(2);
    let squares: f64 = reference.site_scales.iter().map(|scale| scale * scale).sum();
    let mut sorted = reference.site_scales.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    let findings = &mut reference.findings;
    findings.share = mean_power * squares / sorted.len() as f64 / mean_square;
    findings.between_sites = at(0.95) / at(0.05);
    findings.level = (mean_power * squares / sorted.len() as f64).sqrt();
    findings.full_width = full_width(filter.powers(), structure);
    findings.between_rows = spread_of(&reference.row_factors);
}

/// The full width at half maximum of the noise over the axes along which neighbours are close: of a field with eigenvalues g,
/// the mean squared difference of neighbours is the mean of `g` over modes, weighted by their powers.
fn full_width(powers: &[f64], structure: &Structure) -> Option<f64> {
    let total: f64 = powers.iter().sum();
    let close = (0..structure.axes().len())
        .filter(|&axis| structure.axes()[axis].neighbours_are_close() && structure.grid()[axis] > 2)
        .filter(|&axis| structure.axis_eigenvalues(axis).iter().any(|&g| g > 0.0));
    let width = |axis: usize| {
        let n = structure.grid()[axis] as f64;
        let rough: f64 = powers.iter().zip(structure.axis_eigenvalues(axis)).map(|(p, g)| p * g).sum();
        let correlation = 1.0 - 0.5 * rough / total * n / (n - 1.0);
        if correlation > 0.0 { (-2.0 * std::f64::consts::LN_2 / correlation.min(1.0 - 1e-12).ln()).sqrt() } else { 0.0 }
    };
    let widths: Vec<f64> = close.map(width).collect();
    (!widths.is_empty()).then(|| widths.iter().sum::<f64>() / widths.len() as f64)
}

/// Standard deviations of the differences at each column, none far below the others; nothing where all are 0.
fn site_scales(sample: &Sample, n_columns: usize, recipe: &Recipe) -> Option<Vec<f64>> {
    let mut variances: Vec<Option<f64>> = vec![None; n_columns];
    share(
        variances.chunks_mut(COLUMNS).enumerate(),
        || (),
        |_, (block, variances)| {
            for (at, variance) in variances.iter_mut().enumerate() {
                let differences = sample.of_column(block * COLUMNS + at);
                *variance = clipped_variance(differences, recipe.clip_sites, recipe.clip_rounds);
            }
        },
    );
    let known = || variances.iter().flatten();
    let mean_square = known().sum::<f64>() / known().count() as f64;
    if mean_square.is_nan() || mean_square <= 0.0 {
        return None;
    }
    let least = recipe.least_scale * mean_square.sqrt();
    Some(variances.iter().map(|variance| variance.unwrap_or(mean_square).sqrt().max(least)).collect())
}

/// The variance of rows over that of their differences, every site in units of its own scale.
fn ratio(sample: &Sample, scales: &[f64]) -> f64 {
    let mut of_differences = 0.0;
    for (column, scale) in scales.iter().enumerate() {
        let (sum, n) = sample.of_column(column).fold((0.0, 0usize), |(sum, n), x| (sum + x * x, n + 1));
        of_differences += sum / n.max(1) as f64 / (scale * scale);
    }
    let of_rows: f64 = sample.row_variances().iter().zip(scales).map(|(v, scale)| v / (scale * scale)).sum();
    of_rows / of_differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Streams};
    use crate::structure::Direction;
    use crate::structure::expression;

    const SIDE: usize = 16;

    fn normal(stream: &mut impl rand::Rng) -> f64 {
        rand_distr::Distribution::sample(&rand_distr::StandardNormal, stream)
    }

    /// Rows of noise with scales from 1 to 3 and a power of 6 at smooth modes, 1 at rough ones, plus `signal(row, site)`; the
    /// noise's share of the variance is checked, and what is measured is returned with the true standard deviations.
    fn measured(n_rows: usize, mask: &Mask, signal: impl Fn(usize, usize) -> f64) -> (Reference, Vec<f64>) {
        let structure = Arc::new(expression::build(Some("path(16) x path(16)"), None).unwrap());
        let n = SIDE * SIDE;
        let scales: Vec<f64> = (0..n).map(|site| 1.0 + 2.0 * (site / SIDE) as f64 / SIDE as f64).collect();
        let roots: Vec<f64> =
            structure.eigenvalues().iter().map(|g| if *g < 0.6 { 6f64.sqrt() } else { 1.0 }).collect();
        let mut stream = Streams::once(7).stream(Purpose::Simulation, 0, 0);
        let mut sample = Sample::new(mask.n_columns(), std::iter::once(0..n_rows));
        let (mut squares, mut of_noise) = (0.0, 0.0);
        for row in 0..n_rows {
            let mut image: Vec<f64> = roots.iter().map(|root| root * normal(&mut stream)).collect();
            structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
            for (site, x) in image.iter_mut().enumerate() {
                *x *= scales[site];
            }
            let mean_square = |image: &[f64]| mask.gather(image).iter().map(|x| x * x).sum::<f64>();
            of_noise += mean_square(&image) / (mask.n_columns() * n_rows) as f64;
            image.iter_mut().enumerate().for_each(|(site, x)| *x += signal(row, site));
            squares += mean_square(&image) / (mask.n_columns() * n_rows) as f64;
            sample.push(0, &mask.gather(&image));
        }
        sample.finish();
        let (structure, recipe) = (&structure, &Recipe::default());
        let subject = Subject { sample: &sample, n_runs: 1, structure, mask, recipe, mean_square: squares };
        match measure(&subject) {
            Measured::Reference(reference) => {
                let share = reference.findings.share / (of_noise / squares);
                assert!((share - 1.0).abs() < 0.25, "the share is {share} of the true one");
                // Smooth modes are larger at the rim of the grid.
                let variance = |site: usize| {
                    let mut unit: Vec<f64> = (0..n).map(|at| f64::from(u8::from(at == site))).collect();
                    structure.apply(Direction::ToSpectrum, &mut unit, &mut Vec::new());
                    unit.iter().zip(&roots).map(|(u, root)| (u * root).powi(2)).sum::<f64>()
                };
                let sds = (0..n).map(|site| scales[site] * variance(site).sqrt()).collect();
                (*reference, sds)
            }
            Measured::Nothing(reason) => panic!("{reason}"),
        }
    }

    /// The smooth over the rough power, and the largest error of a site's standard deviation, beside the truth.
    fn check(name: &str, (reference, scales): (Reference, Vec<f64>), mask: &Mask, most: [f64; 2]) {
        let structure = expression::build(Some("path(16) x path(16)"), None).unwrap();
        let filter = Filter::new(reference.clone(), Arc::new(structure), mask.clone());
        // Scales and powers share a factor, which the level and these normalise.
        let ratio = filter.powers()[0] / filter.powers()[SIDE * SIDE - 1] / 6.0;
        assert!((ratio.ln()).abs() < most[0], "{name}: smooth over rough is {ratio} of the truth");
        let factor = |column: usize| reference.site_scales[column] / scales[mask.site(column)];
        let mean = (0..mask.n_columns()).map(factor).sum::<f64>() / mask.n_columns() as f64;
        let worst = (0..mask.n_columns()).map(|column| (factor(column) / mean - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < most[1], "{name}: a scale is {worst} off");
    }

    #[test]
    fn noise_is_measured_under_series_and_rows_in_no_order() {
        let whole = Mask::full(SIDE * SIDE);
        let disc: Vec<bool> = (0..SIDE * SIDE)
            .map(|at| (at / SIDE) as f64 - 7.5)
            .zip((0..SIDE * SIDE).map(|at| (at % SIDE) as f64 - 7.5))
            .map(|(x, y)| x * x + y * y < 49.0)
            .collect();
        let disc = Mask::from_inside(&disc);
        let bump = |site: usize, x: f64| {
            let (a, b) = ((site / SIDE) as f64 - x, (site % SIDE) as f64 - 8.0);
            (-(a * a + b * b) / 20.0).exp()
        };
        let slow = |row: usize, site: usize| 12.0 * (row as f64 / 20.0).sin() * bump(site, 5.0);
        let sparse = |row: usize, site: usize| {
            let on = |k: usize| if (row * 7919 + k * 104_729) % 97 < 5 { 8.0 } else { 0.0 };
            on(1) * bump(site, 4.0) + on(2) * bump(site, 11.0)
        };
        // Blocks that begin and end at once, in every fourth row: a series whose differences hold much of the signal.
        let fast = |row: usize, site: usize| if (row / 4).is_multiple_of(3) { 9.0 * bump(site, 8.0) } else { 0.0 };
        let blocks = measured(600, &whole, fast);
        assert!(blocks.0.findings.is_series, "{:?}", blocks.0.findings);
        check("blocks", blocks, &whole, [0.25, 0.5]);
        check("noise alone", measured(600, &whole, |_, _| 0.0), &whole, [0.15, 0.15]);
        let series = measured(600, &whole, slow);
        assert!(series.0.findings.is_series && series.0.findings.share < 0.95, "{:?}", series.0.findings);
        check("a series", series, &whole, [0.15, 0.15]);
        // What is cut at the rim of a mask leaks from smooth modes into rough ones: the reference is flatter than the noise.
        check("under a mask", measured(600, &disc, slow), &disc, [0.8, 0.15]);
        let unordered = measured(600, &whole, sparse);
        assert!(!unordered.0.findings.is_series, "{:?}", unordered.0.findings);
        // Signal counts in the scales of rows in no order.
        check("rows in no order", unordered, &whole, [0.3, 0.5]);
    }

    /// Where sites are few no mode is rough: dense signals that rows in no order share are told from
    /// noise by what rows share. A run with noise and signals half as strong again has such a level.
    #[test]
    fn dense_signals_on_few_sites_are_no_noise() {
        for (words, n_rows, most) in [("path(18)", 400, 0.1), ("cycle(12)", 400, 0.1)] {
            let structure = Arc::new(expression::build(Some(words), None).unwrap());
            let (n, mut stream) = (structure.n_sites(), Streams::once(5).stream(Purpose::Simulation, 0, 0));
            let signals: Vec<Vec<f64>> = (0..3).map(|_| (0..n).map(|_| normal(&mut stream)).collect()).collect();
            let mut sample = Sample::new(n, [0..n_rows / 2, n_rows / 2..n_rows].into_iter());
            let (mut squares, mut of_noise) = (0.0, 0.0);
            for row in 0..n_rows {
                let (run, size) = if row < n_rows / 2 { (0, 1.0) } else { (1, 1.5) };
                let noise: Vec<f64> = (0..n).map(|_| 0.7 * size * normal(&mut stream)).collect();
                let weights: Vec<f64> = (0..3).map(|_| size * normal(&mut stream)).collect();
                let signal = |site: usize| signals.iter().zip(&weights).map(|(s, w)| s[site] * w).sum::<f64>();
                let values: Vec<f64> = noise.iter().enumerate().map(|(site, x)| x + signal(site)).collect();
                let mean_square = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>() / (n * n_rows) as f64;
                squares += mean_square(&values);
                of_noise += mean_square(&noise);
                sample.push(run, &values);
            }
            sample.finish();
            let (structure, recipe, mask) = (&structure, &Recipe::default(), &Mask::full(n));
            let subject = Subject { sample: &sample, n_runs: 2, structure, mask, recipe, mean_square: squares };
            let Measured::Reference(reference) = measure(&subject) else { panic!("no noise") };
            let share = reference.findings.share / (of_noise / squares);
            assert!((share - 1.0).abs() < most, "{words}: the share is {share} of the true one");
            let ratio = reference.run_levels[1] / reference.run_levels[0];
            assert!((ratio / 1.5 - 1.0).abs() < most, "{words}: {ratio}");
            let again = remeasure(*reference.clone(), &subject);
            assert_eq!(again, *reference, "measured again on the same rows it is the same");
        }
    }

    /// Signals in all modes, next to no noise: components take nearly everything, the line through rough modes holds the rest up.
    #[test]
    fn rows_in_no_order_keep_what_rough_modes_say_of_smooth_ones() {
        let (n_rows, n_signals, n) = (600, 60, SIDE * SIDE);
        let (mask, recipe, scales) = (Mask::full(n), Recipe::default(), vec![1.0; n]);
        let structure = Arc::new(expression::build(Some("path(16) x path(16)"), None).unwrap());
        let bands = Bands::new(&structure, &recipe);
        let mut stream = Streams::once(11).stream(Purpose::Simulation, 0, 0);
        let roots: Vec<f64> = structure.eigenvalues().iter().map(|g| 1.0 / (0.1 + g)).collect();
        let signals: Vec<Vec<f64>> =
            (0..n_signals).map(|_| roots.iter().map(|root| root * normal(&mut stream)).collect()).collect();
        let mut sample = Sample::new(n, std::iter::once(0..n_rows));
        for _ in 0..n_rows {
            let mut image: Vec<f64> = (0..n).map(|_| 0.01 * normal(&mut stream)).collect();
            for signal in &signals {
                let weight = normal(&mut stream);
                image.iter_mut().zip(signal).for_each(|(x, s)| *x += weight * s);
            }
            structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
            sample.push(0, &image);
        }
        sample.finish();
        let spectra = Spectra { structure: &structure, mask: &mask, scales: &scales };
        let of_modes = spectra.powers(sample.n_differences(), |at| sample.difference(at), recipe.clip_spectrum);
        let all = bands.medians(&of_modes);
        let rows = (sample.n_kept(), sample.share_of_freedom());
        let rest = without_components(&bands, rows, |at| sample.kept(at), &spectra, &all);
        let line = bands.guarded(&of_modes, &recipe, &all);
        assert!(rest.iter().zip(&line).filter(|(rest, line)| **rest < 0.5 * **line).count() > 3, "{rest:?} {line:?}");
        let powers = powers_of_noise(&sample, &bands, &spectra, false, &recipe);
        assert!(powers.iter().zip(&line).all(|(power, line)| power >= line), "{powers:?} {line:?}");
        assert!(powers.iter().zip(&all).all(|(power, all)| power <= all), "{powers:?} {all:?}");
    }

    /// The width follows from the correlation of neighbours, here taken from the covariance written out.
    #[test]
    fn widths_are_those_of_the_correlation_of_neighbours() {
        let structure = expression::build(Some("path(40)"), None).unwrap();
        let powers: Vec<f64> = structure.eigenvalues().iter().map(|g| 1.0 / (0.05 + g)).collect();
        let covariance = |a: usize, b: usize| {
            let spectrum = |site: usize| {
                let mut unit: Vec<f64> = (0..40).map(|at| f64::from(u8::from(at == site))).collect();
                structure.apply(Direction::ToSpectrum, &mut unit, &mut Vec::new());
                unit
            };
            spectrum(a).iter().zip(spectrum(b)).zip(&powers).map(|((x, y), p)| x * y * p).sum::<f64>()
        };
        let (mut products, mut squares) = (0.0, 0.0);
        for site in 0..39 {
            products += covariance(site, site + 1);
            squares += 0.5 * (covariance(site, site) + covariance(site + 1, site + 1));
        }
        let expected = (-2.0 * std::f64::consts::LN_2 / (products / squares).ln()).sqrt();
        let found = full_width(&powers, &structure).unwrap();
        assert!((found / expected - 1.0).abs() < 0.05, "{found} {expected}");
    }
}
