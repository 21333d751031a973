//! A fitted model, in memory or in a run folder: what summaries, new rows, evaluations and figures are made from.

use super::labels;
use super::overview::Overview;
use super::peaks::{self, StandingOut, Threshold};
use super::results::{Found, Results};
use crate::chain::matching::{STILL_ALIKE, assign, dot};
use crate::chain::posterior::{Shown, UnitImage};
use crate::compiled::Sampled;
use crate::data::nifti::Header;
use crate::data::preprocess::MeansOf;
use crate::data::read::npy::read_npy_f32;
use crate::data::{Array, Mask, Observations, Preprocessing, Rows};
use crate::error::{Error, Result, Verb, action};
use crate::evidence::EvidenceCurve;
use crate::noise::{Filter, Reference};
use crate::run::checkpoint::{self, Counters};
use crate::run::checksums::Checksums;
use crate::run::draws::{Draws, DrawsOfChains, DrawsPlace, KeptDraws};
use crate::run::folder::{FEATURE_TABLE, LABELLED_FEATURES, RECONSTRUCTION, Run, TRACE, no_array};
use crate::run::inputs;
use crate::run::record::{Record, Recorded};
use crate::run::settings::{Checked, Precision, Settings};
use crate::run::trace::{self, TraceRow};
use crate::structure::Structure;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What messages call a fit without a folder.
pub const NAME_IN_MEMORY: &str = "the fit";

/// A model that was fitted to rows, or is on the way to be.
#[derive(Clone)]
pub struct Fitted {
    pub(crate) checked: Checked,
    pub(crate) record: Record,
    pub(crate) structure: Arc<Structure>,
    pub(crate) mask: Mask,
    pub(crate) space: Option<Header>,
    /// What the sites are called, where the input says so.
    pub(crate) column_names: Option<Vec<String>>,
    pub(crate) preprocessing: Preprocessing,
    pub(crate) noise: Option<Arc<Filter>>,
    /// Those that have started.
    pub(crate) chains: Vec<ChainRecord>,
    /// What they have found together.
    pub(crate) found: Arc<Found>,
    /// Whether `found` is that of the kept draws: results are written when a fit ends or stops.
    pub(crate) has_results: bool,
    /// The denoised rows by all chains, where they are in memory.
    pub(crate) reconstruction: Option<Array>,
    pub(crate) evidence: Option<EvidenceCurve>,
    /// Where it lies, if it does.
    pub(crate) folder: Option<PathBuf>,
}

/// What is known about one chain.
#[derive(Clone)]
pub(crate) struct ChainRecord {
    pub trace: Vec<TraceRow>,
    /// Sweeps done at the last checkpoint.
    pub sweep: u64,
    pub counters: Counters,
    pub found: Arc<Found>,
    pub draws: KeptDraws,
    /// The last checkpoint, for a chain that is in memory.
    pub checkpoint: Option<Arc<crate::numeric::bytes::Stored>>,
    /// The denoised rows, for a chain that is in memory.
    pub reconstruction: Option<Array>,
}

impl Fitted {
    /// Opens a run folder, also one whose fit has stopped or is still going on.
    pub fn open(folder: &Path) -> Result<Fitted> {
        let run = Run::open(folder)?;
        let (structure, mask) = (Arc::new(run.structure()?), run.mask()?);
        let reference = run.noise_reference()?;
        let noise = reference.map(|reference| Arc::new(Filter::new(reference, structure.clone(), mask.clone())));
        let mut fitted = Fitted {
            structure,
            mask,
            noise,
            space: run.space()?,
            column_names: labels::names_in(&folder.join(LABELLED_FEATURES))?,
            preprocessing: Preprocessing::nothing(),
            chains: Vec::new(),
            found: Arc::default(),
            has_results: Checksums::open(folder)?.has(FEATURE_TABLE),
            reconstruction: None,
            evidence: EvidenceCurve::read(folder)?,
            folder: Some(folder.to_path_buf()),
            checked: run.checked.clone(),
            record: run.record.clone(),
        };
        let started = run.started_chains();
        if started.is_empty() {
            return Err(Error::NotA { kind: "run folder", path: folder.to_path_buf(), missing: TRACE });
        }
        fitted.found = fitted.results().read(folder)?.into();
        for chain in started {
            let chain = fitted.read_chain(folder, chain)?;
            fitted.chains.push(chain);
        }
        Ok(fitted)
    }

    /// Reads a chain, and with the first one how new rows are prepared.
    fn read_chain(&mut self, run: &Path, number: u32) -> Result<ChainRecord> {
        let results = Run::results_folder(run, number, self.checked.settings.chains);
        let folder = &Run::chain_folder(run, number);
        let (stored, path) = (checkpoint::open(folder)?, folder.join(TRACE));
        checkpoint::check_origin(&stored, &self.recorded().fingerprint())?;
        checkpoint::check_chain(&stored, number)?;
        let (belongings, sizes) = (checkpoint::belongings(&stored)?, self.record.sizes());
        let draws = Draws::new(folder, self.checked.settings.keep_draws);
        if self.chains.is_empty() {
            self.preprocessing = draws.preprocessing(&belongings, &sizes)?;
        }
        let resume = action(Verb::Resume).on(self.name().display());
        let remedy =
            format!("put back a copy, try {resume} (an older checkpoint may do with less of it), or fit again");
        let (sweep, rows) = (stored.number("sweep")?, trace::read(&path, &belongings.trace));
        let rows = rows.map_err(|error| error.with_remedy(remedy))?;
        let is_of_run = rows.len() as u64 == sweep && rows.iter().all(|row| row.theta.len() == sizes.n_theta);
        if !is_of_run {
            return Err(Error::malformed(
                &path,
                format!("damaged: its {} rows are not those of {sweep} sweeps", rows.len()),
            ));
        }
        Ok(ChainRecord {
            trace: rows,
            sweep,
            counters: checkpoint::counters(&stored)?,
            found: Arc::new(self.results().read(&results)?),
            draws: KeptDraws { sizes, place: DrawsPlace::Files(draws.known(&belongings)) },
            checkpoint: None,
            reconstruction: None,
        })
    }

    /// The same with everything in memory, which needs its folder no more.
    pub fn in_memory(&self) -> Result<Fitted> {
        let mut own = self.clone();
        let Some(folder) = own.folder.take() else { return Ok(own) };
        let n_chains = self.settings().chains;
        for (chain, number) in own.chains.iter_mut().zip(1..) {
            chain.draws = chain.draws.in_memory()?;
            chain.checkpoint = Some(Arc::new(checkpoint::open(&Run::chain_folder(&folder, number))?));
            chain.reconstruction = self.stored_rows(&Run::results_folder(&folder, number, n_chains))?;
        }
        own.reconstruction = self.stored_rows(&folder)?;
        Ok(own)
    }

    /// The denoised rows that a folder of results has.
    fn stored_rows(&self, folder: &Path) -> Result<Option<Array>> {
        let known = Checksums::open(folder)?;
        if !known.has(RECONSTRUCTION) {
            return Ok(None);
        }
        known.check(RECONSTRUCTION)?;
        let (shape, values) = read_npy_f32(&folder.join(RECONSTRUCTION))?;
        Ok(Some(Array::new(&shape, values)))
    }

    /// The settings, with those filled in that were left out.
    pub fn settings(&self) -> &Settings {
        &self.checked.settings
    }

    /// What the run was made by and from.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Settings and record, as `config.toml` has them.
    pub fn recorded(&self) -> Recorded {
        Recorded { settings: self.checked.settings.clone(), record: self.record.clone() }
    }

    /// What messages call it: its folder, if it has one.
    pub fn name(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| NAME_IN_MEMORY.into())
    }

    /// The basis that features live in.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// The sites that take part.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Persistent features of all chains together, of unit norm: K x grid, by variance explained; NaN outside of a mask.
    pub fn features(&self) -> Array {
        self.on_grid(&self.found().features.means)
    }

    /// Their posterior standard deviations.
    pub fn features_sd(&self) -> Array {
        self.on_grid(&self.found().features.sds)
    }

    /// What they are, in a row that uses them, in standard deviations of the noise at the site; where that was measured.
    pub fn features_z(&self) -> Option<Array> {
        let filter = self.noise.as_ref()?;
        Some(self.on_grid(&self.found().features.in_noise(&filter.reference().noise_sds())))
    }

    /// The means that come back with reconstructions: of the sites over all rows, 0 where they were not taken off.
    pub fn means(&self) -> Array {
        let mut means = self.preprocessing.site_means(MeansOf::Training).to_vec();
        means.resize(self.mask.n_columns(), 0.0);
        self.on_grid_once(&means)
    }

    /// The posterior mean of the variance of the noise at each site, in the data's units squared.
    pub fn noise_variances(&self) -> Array {
        let scale = |site: usize| self.preprocessing.site_scales.get(site).copied().unwrap_or(1.0);
        let unit = |site: usize, sds: Option<&Vec<f64>>| sds.map_or_else(|| scale(site), |sds| sds[site]);
        let (noise, sds) = (self.noise(), self.noise_reference().map(Reference::noise_sds));
        let variance = |site: usize| noise * unit(site, sds.as_ref()).powi(2);
        self.on_grid_once(&(0..self.mask.n_columns()).map(variance).collect::<Vec<f64>>())
    }

    /// What was measured of the noise.
    pub fn noise_reference(&self) -> Option<&Reference> {
        self.noise.as_ref().map(|filter| filter.reference())
    }

    /// How strongly each row uses each of them: rows x K, in the data's units. Rows without any value are NaN.
    pub fn weights(&self) -> Array {
        self.by_row(&self.found().features.weights)
    }

    /// How probably each row uses each of them: rows x K.
    pub fn activation(&self) -> Array {
        self.by_row(&self.found().features.activation)
    }

    /// The denoised rows, where they were asked for and are in memory.
    pub fn reconstruction(&self) -> Option<&Array> {
        self.reconstruction.as_ref()
    }

    /// The denoised rows, where they were asked for, wherever they are.
    pub fn denoised(&self) -> Result<Option<Array>> {
        match (&self.reconstruction, &self.folder) {
            (None, Some(folder)) => self.stored_rows(folder),
            (known, _) => Ok(known.clone()),
        }
    }

    /// The folder it lies in, if it does.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// One row a sweep, of all chains.
    pub fn trace(&self) -> Vec<TraceRow> {
        self.chains.iter().flat_map(|chain| chain.trace.iter().cloned()).collect()
    }

    /// The posterior mean of the noise variance, in the data's units squared; under a noise reference, in units of what was
    /// measured.
    pub fn noise(&self) -> f64 {
        self.mean_of(|row| row.noise_variance)
    }

    /// The posterior means of the curve's parameters, in the order of [`Record::theta`].
    pub fn theta(&self) -> Vec<f64> {
        (0..self.record.theta.len()).map(|p| self.mean_of(|row| row.theta[p])).collect()
    }

    /// Posteriors, mixing, costs and a verdict; prints itself.
    pub fn summary(&self) -> Overview {
        Overview::of(self)
    }

    /// How many kept draws new rows go through: as many as a chain has.
    pub fn n_draws(&self) -> usize {
        self.draws_of_chains().len()
    }

    fn draws_of_chains(&self) -> DrawsOfChains<'_> {
        DrawsOfChains::new(self.chains.iter().map(|chain| &chain.draws))
    }

    /// What all chains have found together.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// For every feature of a draw, its place among those that were found.
    pub(crate) fn places(&self, images: &[UnitImage]) -> Vec<Option<usize>> {
        let draw: Vec<&[f32]> = images.iter().map(|image| &image.values[..]).collect();
        let means: Vec<&[f32]> = self.found.features.means.iter().map(|mean| &mean[..]).collect();
        assign(&draw, &means, |_, _| STILL_ALIKE)
    }

    /// Kept draws of all chains in turn; an error that says when there will be some, if there are none.
    pub(crate) fn draws(&self) -> Result<DrawsOfChains<'_>> {
        let draws = self.draws_of_chains();
        if draws.is_empty() {
            let problem = format!(
                "has no kept draw yet: draws start after burn-in ({} sweeps); {} goes on with the run",
                self.checked.window.burn_in,
                action(Verb::Resume)
            );
            return Err(Error::malformed(&self.name(), problem));
        }
        if !self.has_results {
            let resume = action(Verb::Resume).on(self.name().display());
            let problem =
                format!("has draws, but no {FEATURE_TABLE}: its fit is going on, or was killed; {resume} writes it");
            return Err(Error::malformed(&self.name(), problem));
        }
        Ok(draws)
    }

    /// Refuses a run that has kept nothing yet.
    pub fn check_kept(&self) -> Result<()> {
        self.draws().map(|_| ())
    }

    /// The rows of the fit from its files, where it has some.
    pub fn own_rows(&self) -> Result<Rows> {
        if self.settings().input.is_empty() {
            return Err(no_array(&self.name()));
        }
        self.settings().rows()
    }

    /// Where features of images stand out; refused where the rows are no images.
    pub fn standing_out(&self, threshold: Threshold, least_voxels: usize) -> Result<(StandingOut, &Header)> {
        let Some(space) = &self.space else {
            let problem =
                "was not fitted to images, so its sites have no places in millimetres; give a run on .nii files";
            return Err(Error::malformed(&self.name(), problem));
        };
        Ok((peaks::find(&self.found.features, space, threshold, least_voxels)?, space))
    }

    /// Visits the kept draws of the persistent features: K x grid, of unit norm with the signs of their means; NaN where a
    /// draw does not have the feature, and outside of a mask.
    pub fn for_each_draw(&self, visit: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        match self.checked.settings.precision {
            Precision::F32 => self.visit_draws::<f32>(visit),
            Precision::F64 => self.visit_draws::<f64>(visit),
        }
    }

    fn visit_draws<R: Sampled>(&self, visit: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let (draws, n_sites, means) = (self.draws()?, self.structure.n_sites(), &self.found.features.means);
        for at in 0..draws.len() {
            let images = R::images(&draws.read::<R>(at)?.state.features, &self.shown());
            let mut values = vec![f32::NAN; means.len() * n_sites];
            for (image, place) in images.iter().zip(self.places(&images)) {
                let Some(place) = place else { continue };
                let sign = if dot(&image.values, &means[place]) < 0.0 { -1.0 } else { 1.0 };
                let turned: Vec<f32> = image.values.iter().map(|x| sign * x).collect();
                values[place * n_sites..][..n_sites].copy_from_slice(&self.mask.scatter(&turned, f32::NAN));
            }
            visit(&values)?;
        }
        Ok(())
    }

    /// The rows of the fit as they were prepared; from its inputs, unless they are given. Other rows are refused.
    pub(crate) fn training_rows(&self, rows: Option<Rows>) -> Result<Observations> {
        let settings = self.settings();
        let rows = rows.map_or_else(|| self.own_rows(), Ok)?;
        let checksums: Vec<String> = rows.checksums()?.into_iter().map(|(_, checksum)| checksum).collect();
        let side = inputs::side_checksums(&rows, settings)?;
        self.record.check_inputs(&self.name(), rows.paths(), &checksums, &side)?;
        let mut observations = inputs::open(&rows, settings)?;
        inputs::choose_cells(&mut observations, &rows, settings, self.structure.grid(), Some(self.mask.clone()))?;
        Ok(observations)
    }

    /// What the results of its chains are about.
    pub(crate) fn results(&self) -> Results<'_> {
        Results {
            structure: &self.structure,
            mask: &self.mask,
            space: self.space.as_ref(),
            settings: &self.checked.settings,
            record: &self.record,
            sum_of_squares: self.record.sum_of_squares.unwrap_or(f64::NAN),
            noise: self.noise.as_ref().map(|filter| filter.reference()),
        }
    }

    /// The level of the noise in a row of the fit: 1 where the noise is white.
    pub(crate) fn row_level(&self, row: usize) -> f64 {
        let Some(filter) = &self.noise else { return 1.0 };
        let (mut place, mut fitted) = (0, 0);
        for (run, named) in self.record.runs.iter().enumerate() {
            let empty = self.record.empty_rows.iter().filter(|at| (place..place + named.n_rows).contains(*at)).count();
            place += named.n_rows;
            fitted += named.n_rows - empty;
            if row < fitted {
                return filter.reference().row_level(run, row);
            }
        }
        filter.reference().level
    }

    /// How spectra are shown; weights are those of the sampler.
    pub(crate) fn shown(&self) -> Shown<'_> {
        Shown {
            structure: &self.structure,
            mask: &self.mask,
            preprocessing: &self.preprocessing,
            noise: self.noise.as_deref(),
            row_levels: &[],
        }
    }

    fn mean_of(&self, of: impl Fn(&TraceRow) -> f64) -> f64 {
        let rows =
            self.chains.iter().flat_map(|chain| &chain.trace).filter(|row| row.sweep > self.checked.window.burn_in);
        let (sum, n) = rows.fold((0.0, 0.0), |(sum, n), row| (sum + of(row), n + 1.0));
        sum / n
    }

    pub(crate) fn on_grid(&self, columns: &[Vec<f32>]) -> Array {
        let shape: Vec<usize> = std::iter::once(columns.len()).chain(self.structure.grid().iter().copied()).collect();
        Array::new(&shape, columns.iter().flat_map(|image| self.mask.scatter(image, f32::NAN)).collect())
    }

    fn on_grid_once(&self, column: &[f64]) -> Array {
        let values = self.mask.scatter(column, f64::NAN).into_iter().map(|x| x as f32).collect();
        Array::new(self.structure.grid(), values)
    }

    fn by_row(&self, columns: &[Vec<f32>]) -> Array {
        let features = &self.found().features;
        Array::new(&[features.n_input_rows(), columns.len()], features.by_input_row(columns))
    }
}
