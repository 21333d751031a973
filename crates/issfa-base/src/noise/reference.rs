//! What is measured of the noise, and the constants of the recipe.

use super::rows::{obstacle, spread_of};
use crate::error::{Error, Result};
use crate::numeric::bytes::{Bundle, Stored};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// The constants of the recipe: `[noise_reference]` of the settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recipe {
    /// What the prior of the noise's level weighs, in numbers of all cells.
    pub weight: f64,
    /// Differences are clipped at so many scales of their site when that scale is measured.
    pub clip_sites: f64,
    /// How often that is repeated.
    pub clip_rounds: u32,
    /// The least scale of a site, in root mean squares of all scales.
    pub least_scale: f64,
    /// Differences over their site's scale are clipped at this when powers are measured.
    pub clip_spectrum: f64,
    /// Bands of modes, about.
    pub bands: usize,
    /// Modes in the smoothest band.
    pub first_band: usize,
    /// Rows are a series where they vary so many times as much as their differences.
    pub series_ratio: f64,
    /// Of rows in no order, the share of modes, the roughest, that a line is laid through.
    pub guard_share: f64,
    /// And the bins that they are put into.
    pub guard_bins: usize,
    /// New files of so many rows have levels of their own.
    pub own_level_rows: usize,
    /// Whether rows of a series may differ in noise; not unless asked for.
    #[serde(skip_serializing_if = "is_usual_row_levels")]
    pub row_levels: bool,
    /// They do where the powers of differences vary so many times as much as by chance.
    #[serde(skip_serializing_if = "is_usual_row_spread")]
    pub row_spread: f64,
    /// Differences are clipped at so many of their own standard deviations when their powers are measured.
    #[serde(skip_serializing_if = "is_usual_clip_rows")]
    pub clip_rows: f64,
}

impl Default for Recipe {
    fn default() -> Recipe {
        Recipe {
            weight: 10.0,
            clip_sites: 3.0,
            clip_rounds: 4,
            least_scale: 0.1,
            clip_spectrum: 4.0,
            bands: 16,
            first_band: 16,
            series_ratio: 1.15,
            guard_share: 0.75,
            guard_bins: 8,
            own_level_rows: 20,
            row_levels: USUAL_ROW_LEVELS,
            row_spread: USUAL_ROW_SPREAD,
            clip_rows: USUAL_CLIP_ROWS,
        }
    }
}

const USUAL_ROW_LEVELS: bool = false;
const USUAL_ROW_SPREAD: f64 = 3.0;
const USUAL_CLIP_ROWS: f64 = 1.5;

// Keys that older runs do not have are left out where they say what is usual, so that those runs keep their checksums.
fn is_usual_row_levels(value: &bool) -> bool {
    *value == USUAL_ROW_LEVELS
}

fn is_usual_row_spread(value: &f64) -> bool {
    *value == USUAL_ROW_SPREAD
}

fn is_usual_clip_rows(value: &f64) -> bool {
    *value == USUAL_CLIP_ROWS
}

impl Recipe {
    /// Refuses constants that make no sense.
    pub fn check(&self) -> Result<()> {
        let numbers = [
            ("weight", self.weight),
            ("clip_sites", self.clip_sites),
            ("least_scale", self.least_scale),
            ("clip_spectrum", self.clip_spectrum),
            ("series_ratio", self.series_ratio),
            ("row_spread", self.row_spread),
            ("clip_rows", self.clip_rows),
        ];
        for (name, value) in numbers {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::setting(&format!("noise_reference.{name}"), value, "must be above 0"));
            }
        }
        if self.row_spread < 1.0 {
            let problem = "must be at least 1: rows that vary less than by chance have no levels of their own";
            return Err(Error::setting("noise_reference.row_spread", self.row_spread, problem));
        }
        if !(self.guard_share > 0.0 && self.guard_share <= 1.0) {
            let problem = "must be above 0 and at most 1";
            return Err(Error::setting("noise_reference.guard_share", self.guard_share, problem));
        }
        let counts = [("bands", self.bands, 1), ("first_band", self.first_band, 1), ("guard_bins", self.guard_bins, 2)];
        for (name, value, least) in counts {
            if !(least..=MOST_BANDS).contains(&value) {
                let problem = format!("at least {least}, at most {MOST_BANDS}");
                return Err(Error::setting(&format!("noise_reference.{name}"), value, problem));
            }
        }
        if self.clip_rounds > MOST_ROUNDS {
            return Err(Error::setting(
                "noise_reference.clip_rounds",
                self.clip_rounds,
                format!("at most {MOST_ROUNDS}"),
            ));
        }
        Ok(())
    }
}

/// The most bands, bins, or modes in the smoothest band.
const MOST_BANDS: usize = 1_000_000;
/// The most rounds of clipping.
const MOST_ROUNDS: u32 = 1000;

/// The noise of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The identity of the structure that it lies on.
    pub structure: String,
    /// The checksum of the sites.
    pub mask_checksum: String,
    /// Standard deviations of the noise by column of the mask, in the data's units.
    pub site_scales: Vec<f64>,
    /// The largest eigenvalue of each band but the last, which has no end.
    pub band_ends: Vec<f64>,
    /// The noise's power at a mode of each band, over the scales.
    pub powers: Vec<f64>,
    /// The power of the rows themselves, over the scales: what fills cells in.
    pub row_powers: Vec<f64>,
    /// The level of each run, in units of the scales.
    pub run_levels: Vec<f64>,
    /// Where rows of a series differ in noise, the level of each row over that of its run; else empty.
    pub row_factors: Vec<f64>,
    /// The level of all runs together.
    pub level: f64,
    /// Levels are these times what differences show: 1, unless they hold signal that no band leaves out.
    pub of_differences: f64,
    /// The root mean square of white rows, about: the sampler's unit.
    pub unit: f64,
    /// What it looks like.
    pub findings: Findings,
}

/// What the noise looks like, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// Rows it was measured on.
    pub n_rows: usize,
    /// Differences it was measured on.
    pub n_differences: usize,
    /// The variance of rows over that of their differences.
    pub ratio: f64,
    /// Whether rows that follow each other are alike, so that differences show noise alone.
    pub is_series: bool,
    /// The noise's share of the variance of the data.
    pub share: f64,
    /// The scale that 95% of the sites are below over the scale that 5% are below.
    pub between_sites: f64,
    /// How smooth the noise is: full width at half maximum, in sites; nothing where neighbours are not close.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_width: Option<f64>,
    /// The root mean square of the noise, in the data's units.
    pub level: f64,
    /// The standard deviation of ln levels of rows about those of their runs, where rows differ in noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_rows: Option<f64>,
}

/// How many numbers findings are.
const N_FINDINGS: usize = 8;

impl Findings {
    fn numbers(&self) -> [f64; N_FINDINGS] {
        let Findings { n_rows, n_differences, ratio, is_series, share, between_sites, full_width, level, .. } = self;
        let [n_rows, n_differences] = [*n_rows, *n_differences].map(|n| n as f64);
        let is_series = f64::from(u8::from(*is_series));
        [n_rows, n_differences, *ratio, is_series, *share, *between_sites, full_width.unwrap_or(f64::NAN), *level]
    }

    fn from_numbers(numbers: &[f64]) -> Findings {
        Findings {
            n_rows: numbers[0] as usize,
            n_differences: numbers[1] as usize,
            ratio: numbers[2],
            is_series: numbers[3] != 0.0,
            share: numbers[4],
            between_sites: numbers[5],
            full_width: Some(numbers[6]).filter(|width| !width.is_nan()),
            level: numbers[7],
            // It follows from the factors of rows.
            between_rows: None,
        }
    }

    /// The first line of a fit: "28% of the variance, tenfold between sites, smooth over 2.1 sites (FWHM)".
    pub fn in_words(&self) -> String {
        let mut parts = vec![format!("{}% of the variance", figure(100.0 * self.share))];
        parts.push(match self.between_sites {
            ratio if ratio < 1.25 => "alike at all sites".to_string(),
            ratio => format!("{}-fold between sites", figure(ratio)),
        });
        match self.full_width {
            Some(width) if width >= 0.6 => parts.push(format!("smooth over {} sites (FWHM)", figure(width))),
            Some(_) => parts.push("not smooth".into()),
            None => {}
        }
        if let Some(spread) = self.between_rows {
            parts.push(format!("rows differ by ±{}%", figure(100.0 * spread)));
        }
        parts.join(", ")
    }

    /// What keeps rows from levels of their own, however they differ, in a fit of so many rows, runs and columns.
    pub fn obstacle_to_row_levels(&self, shape: [usize; 3], recipe: &Recipe) -> Option<String> {
        let [n_rows, n_runs, n_columns] = shape;
        obstacle(self.is_series, n_columns, n_rows.saturating_sub(n_runs), recipe)
    }

    /// Why rows have no levels of their own where the recipe asks for them.
    pub fn why_no_row_levels(&self, shape: [usize; 3], recipe: &Recipe) -> Option<String> {
        let by_chance = || "rows differ by no more than chance".to_string();
        let is_missed = recipe.row_levels && self.between_rows.is_none();
        is_missed.then(|| self.obstacle_to_row_levels(shape, recipe).unwrap_or_else(by_chance))
    }

    /// Why the reference may not be trusted.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.n_rows < 20 {
            doubts.push(format!("the noise was measured on {} rows only: it is rough", self.n_rows));
        }
        if !self.is_series {
            doubts.push(
                "rows that follow each other are not alike, so the noise is that of rough modes, or what factors of many \
                 rows leave: what is smooth and dense may be noise or features"
                    .to_string(),
            );
        }
        if self.share < 0.05 {
            let share = figure(100.0 * self.share);
            doubts.push(format!(
                "noise is only {share}% of the variance: nearly all is signal, and the number of features counts real \
                 variation"
            ));
        }
        doubts
    }
}

fn figure(x: f64) -> String {
    if x >= 10.0 { format!("{x:.0}") } else { format!("{x:.1}") }
}

impl Reference {
    /// The band of a mode with this eigenvalue.
    pub fn band(&self, eigenvalue: f64) -> usize {
        self.band_ends.iter().position(|&end| eigenvalue <= end).unwrap_or(self.band_ends.len())
    }

    /// The level of the noise in a row of the fit.
    pub fn row_level(&self, run: usize, row: usize) -> f64 {
        let level = self.run_levels[run];
        self.row_factors.get(row).map_or(level, |factor| level * factor)
    }

    /// That of every row, of runs with these rows.
    pub fn row_levels(&self, runs: impl Iterator<Item = Range<usize>>) -> Vec<f64> {
        runs.enumerate().flat_map(|(run, rows)| rows.map(move |row| self.row_level(run, row))).collect()
    }

    /// The standard deviation of the noise at each column, in the data's units.
    pub fn noise_sds(&self) -> Vec<f64> {
        let squares: f64 = self.site_scales.iter().map(|scale| scale * scale).sum();
        let factor = self.findings.level / (squares / self.site_scales.len() as f64).sqrt();
        self.site_scales.iter().map(|scale| factor * scale).collect()
    }

    /// As named arrays.
    pub fn to_bundle(&self) -> Bundle {
        let mut bundle = Bundle::default();
        bundle.note("kind", KIND);
        bundle.note("structure", &self.structure);
        bundle.note("mask_checksum", &self.mask_checksum);
        bundle.put("findings", &[N_FINDINGS], &self.findings.numbers());
        bundle.put("site_scales", &[self.site_scales.len()], &self.site_scales);
        bundle.put("band_ends", &[self.band_ends.len()], &self.band_ends);
        bundle.put("powers", &[self.powers.len()], &self.powers);
        bundle.put("row_powers", &[self.row_powers.len()], &self.row_powers);
        bundle.put("run_levels", &[self.run_levels.len()], &self.run_levels);
        bundle.put("level", &[1], &[self.level]);
        bundle.put("unit", &[1], &[self.unit]);
        if !self.row_factors.is_empty() {
            bundle.put("row_factors", &[self.row_factors.len()], &self.row_factors);
        }
        if self.of_differences != 1.0 {
            bundle.put("of_differences", &[1], &[self.of_differences]);
        }
        bundle
    }

    /// What [`Reference::to_bundle`] made.
    pub fn from_stored(stored: &Stored) -> Result<Reference> {
        let wrong = || Error::malformed(stored.path(), "is not a noise reference");
        if stored.text("kind").map_err(|_| wrong())? != KIND {
            return Err(wrong());
        }
        let take = |name: &str| Ok(stored.take::<f64>(name)?.1);
        let powers: Vec<f64> = take("powers")?;
        if powers.is_empty() {
            return Err(wrong());
        }
        let row_factors = if stored.has("row_factors") { take("row_factors")? } else { Vec::new() };
        let mut findings = Findings::from_numbers(&stored.values("findings", &[N_FINDINGS])?);
        findings.between_rows = spread_of(&row_factors);
        let reference = Reference {
            structure: stored.text("structure")?.into(),
            mask_checksum: stored.text("mask_checksum")?.into(),
            site_scales: take("site_scales")?,
            band_ends: stored.values("band_ends", &[powers.len() - 1])?,
            row_powers: stored.values("row_powers", &[powers.len()])?,
            powers,
            run_levels: take("run_levels")?,
            row_factors,
            level: stored.number("level")?,
            of_differences: if stored.has("of_differences") { stored.number("of_differences")? } else { 1.0 },
            unit: stored.number("unit")?,
            findings,
        };
        let Reference { site_scales, powers, row_powers, run_levels, row_factors, .. } = &reference;
        let Reference { level, of_differences, unit, .. } = &reference;
        let is_sound = |x: &f64| *x > 0.0 && x.is_finite();
        let lists = [site_scales, powers, row_powers, run_levels, row_factors];
        if !lists.into_iter().flatten().chain([level, of_differences, unit]).all(is_sound) {
            return Err(Error::malformed(stored.path(), "damaged: a scale, power or level is not positive"));
        }
        if !reference.band_ends.iter().all(|x| x.is_finite()) || !is_sound(&reference.findings.level) {
            return Err(Error::malformed(stored.path(), "damaged: a band or the level of the noise is not a number"));
        }
        Ok(reference)
    }

    /// Reads a stored reference.
    pub fn read(path: &Path) -> Result<Reference> {
        Reference::from_stored(&Stored::open(path)?)
    }

    /// A digest of everything in it.
    pub fn checksum(&self) -> String {
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&self.to_bundle().to_bytes()))
    }
}

const KIND: &str = "noise reference";
