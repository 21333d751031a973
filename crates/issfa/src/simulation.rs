//! Simulated studies with a known truth: smooth unit-norm features, sparse weights, noise of several kinds.

use crate::data::grid::parse_grid;
use crate::data::memory;
use crate::data::write::{NpyWriter, write_npy_f32};
use crate::error::{Error, Result, bytes};
use crate::model::simulate::{feature_spectrum, normal, white};
use crate::numeric::files::write_atomically;
use crate::numeric::workers::share;
use crate::rng::{Purpose, Stream, Streams};
use crate::structure::graph::GraphFile;
use crate::structure::{Curve, Direction, Shelf, Spectrum, Structure, expression};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Everything that makes a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Simulation {
    /// Decides everything that is drawn.
    pub seed: u64,
    /// To be fitted.
    pub rows: usize,
    /// To be predicted.
    pub heldout_rows: usize,
    /// As text: `100x100`.
    pub grid: String,
    /// As an expression; by default paths along every axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<String>,
    /// As an expression.
    pub curve: String,
    /// True ones.
    pub features: usize,
    /// The probability that a row uses a feature.
    pub density: f64,
    /// One a parameter of the curve.
    pub theta: Vec<f64>,
    /// Of all features.
    pub weight_mean: f64,
    /// Each feature's weights have a variance drawn uniformly from this range.
    pub weight_variance: [f64; 2],
    /// The noise variance, on average over sites.
    pub noise: f64,
    /// What the noise is like.
    #[serde(default)]
    pub noise_kind: NoiseKind,
    /// What weights do from row to row.
    #[serde(default)]
    pub traces: Traces,
    /// The files of the structure; their decompositions are in the simulation's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<GraphFile>,
}

/// What simulated noise is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoiseKind {
    /// Independent, alike at all sites.
    #[default]
    White,
    /// Independent, with a standard deviation that varies smoothly over sites.
    Sites,
    /// In part a smooth field of its own in every row.
    Smooth,
    /// Both.
    Both,
}

/// What simulated weights do from row to row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Traces {
    /// Every row is drawn anew.
    #[default]
    Independent,
    /// A weight that is drawn fades over the rows that follow.
    Series,
}

/// The share of the variance of noise of the smooth kind that is smooth, and over how many sites it is.
const SMOOTH_SHARE: f64 = 0.15;
const SMOOTH_REACH: f64 = 3.0;
/// The standard deviation of the logarithm of a site's noise where sites differ, and over how many sites it is smooth.
const SITES_SPREAD: f64 = 0.5;
const SITES_REACH: f64 = 10.0;
/// What is left of a weight one row later in a series.
const FADING: f64 = 0.85;

/// Bytes that may be written to a folder's disk; nothing where the system does not say.
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

impl Simulation {
    /// The study of the paper's section 5.
    pub fn paper(seed: u64) -> Simulation {
        Simulation {
            seed,
            rows: 3000,
            heldout_rows: 1000,
            grid: "100x100".into(),
            structure: None,
            curve: "q".into(),
            features: 50,
            density: 0.05,
            theta: vec![1.0, 100.0],
            weight_mean: 1.0,
            weight_variance: [50.0, 100.0],
            noise: 1.0,
            noise_kind: NoiseKind::White,
            traces: Traces::Independent,
            graphs: Vec::new(),
        }
    }

    /// A small one that runs in seconds.
    pub fn small(seed: u64) -> Simulation {
        Simulation { rows: 600, heldout_rows: 200, grid: "48x48".into(), features: 12, ..Simulation::paper(seed) }
    }

    /// Checks the values; returns structure and curve.
    pub fn check(&self, shelf: &Shelf) -> Result<(Structure, Spectrum)> {
        let grid = parse_grid(&self.grid)?;
        let n_sites = grid.iter().product::<usize>();
        let needed = n_sites.saturating_mul(self.features.saturating_add(8).saturating_mul(8));
        memory::check(&format!("a simulation on {}", self.grid), needed as u64)?;
        let n_rows = self.rows.saturating_add(self.heldout_rows);
        let weights =
            if self.traces == Traces::Series { n_rows.saturating_mul(self.features.saturating_mul(8)) } else { 0 };
        memory::check(&format!("the weights of {n_rows} rows"), weights as u64)?;
        let structure = expression::build_with(self.structure.as_deref(), Some(&grid), shelf)?;
        let spectrum = Spectrum::new(&structure, &Curve::parse(&self.curve)?);
        let wrong = |name: &str, value: String, problem: &str| Err(Error::setting(name, value, problem));
        if self.rows == 0 {
            return wrong("rows", self.rows.to_string(), "must be at least 1");
        }
        if !(self.density > 0.0 && self.density <= 1.0) {
            return wrong("density", self.density.to_string(), "must be above 0 and at most 1");
        }
        if !(self.noise >= 0.0 && self.noise.is_finite()) {
            return wrong("noise", self.noise.to_string(), "is a variance: not negative");
        }
        let [low, high] = self.weight_variance;
        if !(low >= 0.0 && high >= low && high.is_finite()) {
            return wrong("weight-variance", format!("{low},{high}"), "give LOW,HIGH with 0 <= LOW <= HIGH");
        }
        spectrum.check_theta(&self.theta)?;
        Ok((structure, spectrum))
    }

    /// Refuses more rows than the disk of `folder`, or of the first folder above it that is there, has room for.
    pub fn check_room(&self, folder: &Path, structure: &Structure) -> Result<()> {
        let n_rows = (self.rows as u64).saturating_add(self.heldout_rows as u64);
        let needed = n_rows.saturating_mul(4 * (structure.n_sites() + self.features) as u64);
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let free = absolute.ancestors().find_map(free_bytes);
        match free {
            Some(free) if needed > free => {
                let (needed, free) = (bytes(needed), bytes(free));
                let problem = format!("{n_rows} rows in all take {needed} on disk, but {free} are free there");
                Err(Error::setting("rows", self.rows, problem))
            }
            _ => Ok(()),
        }
    }

    /// Reads `simulation.toml` of a simulation folder.
    pub fn read(folder: &Path) -> Result<Simulation> {
        let path = folder.join("simulation.toml");
        if !path.is_file() {
            return Err(Error::NotA {
                kind: "simulation folder",
                path: folder.to_path_buf(),
                missing: "simulation.toml",
            });
        }
        let text = std::fs::read_to_string(&path).map_err(Error::read(&path))?;
        toml::from_str(&text).map_err(|error| Error::Config { path, problem: error.to_string() })
    }

    /// Draws everything and writes the folder's files.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (structure, spectrum) = self.check(&Shelf::none())?;
        self.write_checked(folder, &structure, &spectrum)
    }

    /// [`Simulation::write`] with what [`Simulation::check`] returned.
    pub fn write_checked(&self, folder: &Path, structure: &Structure, spectrum: &Spectrum) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::write(folder))?;
        structure.save_graphs(folder)?;
        let features = self.draw_features(structure, spectrum);
        let k = features.len();
        let shape: Vec<usize> = std::iter::once(k).chain(structure.grid().iter().copied()).collect();
        let flat: Vec<f32> = features.iter().flatten().map(|&x| x as f32).collect();
        write_npy_f32(&folder.join("truth_features.npy"), &shape, &flat)?;
        let variances = self.draw_variances();
        let truth = Drawn {
            features: &features,
            weights: (self.traces == Traces::Series).then(|| self.draw_series(&variances)),
            variances: &variances,
            noise: Noise::new(self, structure),
        };
        let (n_sites, n) = (structure.n_sites(), self.rows);
        let mut observations = NpyWriter::create(&folder.join("observations.npy"), &[n, n_sites])?;
        let mut weights = NpyWriter::create(&folder.join("truth_weights.npy"), &[n, k])?;
        self.for_each_block(0, n, &truth, &mut |block| {
            observations.write_values(&block.noisy)?;
            weights.write_values(&block.weights)
        })?;
        observations.finish()?;
        weights.finish()?;
        let mut heldout = NpyWriter::create(&folder.join("heldout.npy"), &[self.heldout_rows, n_sites])?;
        let mut clean = NpyWriter::create(&folder.join("truth_heldout.npy"), &[self.heldout_rows, n_sites])?;
        self.for_each_block(n, self.heldout_rows, &truth, &mut |block| {
            heldout.write_values(&block.noisy)?;
            clean.write_values(&block.clean)
        })?;
        heldout.finish()?;
        clean.finish()?;
        let recorded = Simulation { graphs: structure.graph_files(), ..self.clone() };
        let text = toml::to_string(&recorded).expect("a simulation can be written as TOML");
        write_atomically(&folder.join("simulation.toml"), text.as_bytes())
    }

    fn stream(&self, part: u32, index: u64) -> Stream {
        Streams::once(self.seed).stream(Purpose::Simulation, part, index)
    }

    /// Features in the site domain, each of unit norm.
    fn draw_features(&self, structure: &Structure, spectrum: &Spectrum) -> Vec<Vec<f64>> {
        let mut features = prior_features(structure, spectrum, &self.theta, self.features, |k| self.stream(0, k));
        for feature in &mut features {
            let norm = feature.iter().map(|x| x * x).sum::<f64>().sqrt();
            feature.iter_mut().for_each(|x| *x /= norm);
        }
        features
    }

    fn draw_variances(&self) -> Vec<f64> {
        let mut stream = self.stream(1, 0);
        let [low, high] = self.weight_variance;
        (0..self.features).map(|_| low + (high - low) * stream.random::<f64>()).collect()
    }

    fn for_each_block(
        &self,
        first: usize,
        n_rows: usize,
        truth: &Drawn,
        visit: &mut dyn FnMut(&Block) -> Result<()>,
    ) -> Result<()> {
        const ROWS: usize = 64;
        for start in (0..n_rows).step_by(ROWS) {
            let mut rows = vec![Row::default(); ROWS.min(n_rows - start)];
            share(rows.iter_mut().enumerate(), Vec::new, |scratch, (offset, row)| {
                *row = self.draw_row((first + start + offset) as u64, truth, scratch);
            });
            visit(&Block {
                noisy: rows.iter().flat_map(|row| row.noisy.iter().copied()).collect(),
                clean: rows.iter().flat_map(|row| row.clean.iter().copied()).collect(),
                weights: rows.iter().flat_map(|row| row.weights.iter().copied()).collect(),
            })?;
        }
        Ok(())
    }

    /// The weights of all rows, held-out ones too, where those of neighbours are alike: one is drawn as rarely as makes as
    /// many rows use a feature as rows that are drawn anew do, and fades.
    fn draw_series(&self, variances: &[f64]) -> Vec<Vec<f64>> {
        let n_rows = self.rows + self.heldout_rows;
        let mut weights = vec![vec![0.0; variances.len()]; n_rows];
        // Rows in which a weight is above a tenth of what it began with.
        let lasting = (0.1f64.ln() / FADING.ln()).ceil();
        for (k, variance) in variances.iter().enumerate() {
            let mut stream = self.stream(5, k as u64);
            let mut now = 0.0;
            for row in &mut weights {
                let begins = stream.random::<f64>() < self.density / lasting;
                let weight = self.weight_mean + variance.sqrt() * normal(&mut stream);
                now = if begins { weight } else { FADING * now };
                if now.abs() < 0.1 * variance.sqrt() {
                    now = 0.0;
                }
                row[k] = now;
            }
        }
        weights
    }

    fn draw_row(&self, index: u64, truth: &Drawn, scratch: &mut Vec<f64>) -> Row {
        let mut stream = self.stream(2, index);
        let mut weigh = |variance: &f64| {
            let active = stream.random::<f64>() < self.density;
            let weight = self.weight_mean + variance.sqrt() * normal(&mut stream);
            if active { weight } else { 0.0 }
        };
        let independent: Vec<f64> = truth.variances.iter().map(&mut weigh).collect();
        let weights = truth.weights.as_ref().map_or(&independent, |all| &all[index as usize]);
        let n_sites: usize = parse_grid(&self.grid).map_or(0, |grid| grid.iter().product());
        let mut clean = vec![0.0; n_sites];
        for (weight, feature) in weights.iter().zip(truth.features).filter(|(weight, _)| **weight != 0.0) {
            clean.iter_mut().zip(feature).for_each(|(x, s)| *x += weight * s);
        }
        let sd = self.noise.sqrt();
        let white = white(n_sites, sd, &mut stream);
        let noise = truth.noise.shape(white, sd, &mut self.stream(4, index), scratch);
        Row {
            noisy: clean.iter().zip(&noise).map(|(x, noise)| (x + noise) as f32).collect(),
            clean: clean.iter().map(|&x| x as f32).collect(),
            weights: weights.iter().map(|&w| w as f32).collect(),
        }
    }
}

/// What all rows share.
struct Drawn<'a> {
    features: &'a [Vec<f64>],
    variances: &'a [f64],
    /// Of every row, where they are a series.
    weights: Option<Vec<Vec<f64>>>,
    noise: Noise<'a>,
}

/// What makes noise of a kind of white noise.
struct Noise<'a> {
    structure: &'a Structure,
    /// What each site's noise is multiplied by; empty where sites are alike.
    scales: Vec<f64>,
    /// The standard deviation of each mode of the smooth part; empty where there is none.
    smooth: Vec<f64>,
}

impl Noise<'_> {
    fn new<'a>(simulation: &Simulation, structure: &'a Structure) -> Noise<'a> {
        let kind = simulation.noise_kind;
        let mut noise = Noise { structure, scales: Vec::new(), smooth: Vec::new() };
        if matches!(kind, NoiseKind::Sites | NoiseKind::Both) {
            let field = noise.field(&roots(structure, SITES_REACH), &mut simulation.stream(3, 0), &mut Vec::new());
            noise.scales = field.iter().map(|x| (SITES_SPREAD * x).exp()).collect();
            let mean_square = noise.scales.iter().map(|x| x * x).sum::<f64>() / field.len() as f64;
            noise.scales.iter_mut().for_each(|x| *x /= mean_square.sqrt());
        }
        if matches!(kind, NoiseKind::Smooth | NoiseKind::Both) {
            noise.smooth = roots(structure, SMOOTH_REACH);
        }
        noise
    }

    /// Noise of the kind from white noise with a standard deviation.
    fn shape(&self, mut noise: Vec<f64>, sd: f64, stream: &mut Stream, scratch: &mut Vec<f64>) -> Vec<f64> {
        if !self.smooth.is_empty() {
            let (rough, smooth) = ((1.0 - SMOOTH_SHARE).sqrt(), SMOOTH_SHARE.sqrt() * sd);
            let field = self.field(&self.smooth, stream, scratch);
            noise.iter_mut().zip(&field).for_each(|(x, f)| *x = rough * *x + smooth * f);
        }
        noise.iter_mut().zip(&self.scales).for_each(|(x, scale)| *x *= scale);
        noise
    }

    /// A field of mean square 1, on average, with these standard deviations of its modes.
    fn field(&self, roots: &[f64], stream: &mut Stream, scratch: &mut Vec<f64>) -> Vec<f64> {
        let mut field: Vec<f64> = roots.iter().map(|root| root * normal(stream)).collect();
        self.structure.apply(Direction::ToSites, &mut field, scratch);
        field
    }
}

/// Standard deviations of modes of a field that is smooth over so many sites, with mean square 1.
fn roots(structure: &Structure, reach: f64) -> Vec<f64> {
    let mut powers: Vec<f64> = structure.eigenvalues().iter().map(|g| 1.0 / (1.0 + reach * reach * g)).collect();
    let mean = powers.iter().sum::<f64>() / powers.len() as f64;
    powers.iter_mut().for_each(|power| *power = (*power / mean).sqrt());
    powers
}

/// Features drawn from the prior, in the site domain; `stream_of(k)` is the stream of feature k.
pub fn prior_features(
    structure: &Structure,
    spectrum: &Spectrum,
    theta: &[f64],
    count: usize,
    stream_of: impl Fn(u64) -> Stream + Sync,
) -> Vec<Vec<f64>> {
    let precisions = spectrum.precisions(theta);
    let mut features = vec![Vec::new(); count];
    share(features.iter_mut().enumerate(), Vec::new, |scratch, (k, feature)| {
        *feature = feature_spectrum(&precisions, &mut stream_of(k as u64));
        structure.apply(Direction::ToSites, feature, scratch);
    });
    features
}

struct Block {
    noisy: Vec<f32>,
    clean: Vec<f32>,
    weights: Vec<f32>,
}

#[derive(Clone, Default)]
struct Row {
    noisy: Vec<f32>,
    clean: Vec<f32>,
    weights: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::read::npy::read_npy_f32;

    #[test]
    fn files_have_the_stated_moments() {
        let folder = tempfile::tempdir().unwrap();
        let simulation =
            Simulation { rows: 2000, grid: "8x6".into(), features: 4, density: 0.3, ..Simulation::small(3) };
        simulation.write(folder.path()).unwrap();
        let load = |name: &str| read_npy_f32(&folder.path().join(name)).unwrap();
        let (shape, features) = load("truth_features.npy");
        assert_eq!(shape, [4, 8, 6]);
        for feature in features.chunks_exact(48) {
            assert!((feature.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
        }
        let (shape, weights) = load("truth_weights.npy");
        assert_eq!(shape, [2000, 4]);
        let active: Vec<f64> = weights.iter().filter(|w| **w != 0.0).map(|&w| f64::from(w)).collect();
        assert!((active.len() as f64 / 8000.0 - 0.3).abs() < 0.025);
        let variance = active.iter().map(|w| (w - 1.0).powi(2)).sum::<f64>() / active.len() as f64;
        assert!(variance > 45.0 && variance < 105.0, "{variance}");
        let (shape, noisy) = load("observations.npy");
        assert_eq!(shape, [2000, 48]);
        let mut noise = 0.0;
        for (t, row) in noisy.chunks_exact(48).enumerate() {
            for (v, &y) in row.iter().enumerate() {
                let mean: f32 = (0..4).map(|k| weights[t * 4 + k] * features[k * 48 + v]).sum();
                noise += f64::from(y - mean).powi(2) / 96_000.0;
            }
        }
        assert!((noise - 1.0).abs() < 0.03, "{noise}");
        assert_eq!(Simulation::read(folder.path()).unwrap(), simulation);
    }

    #[test]
    fn wrong_settings_are_named() {
        let wrong = |edit: fn(&mut Simulation)| {
            let mut simulation = Simulation::small(1);
            edit(&mut simulation);
            simulation.check(&Shelf::none()).expect_err("a wrong setting").to_string()
        };
        assert!(wrong(|s| s.density = 0.0).contains("density = 0:"));
        assert!(wrong(|s| s.theta = vec![1.0]).contains("ridge, roughness"));
        assert!(wrong(|s| s.weight_variance = [2.0, 1.0]).contains("weight-variance = 2,1:"));
        assert!(wrong(|s| s.grid = "4xx".into()).contains("4xx"));
    }
}
