//! What a fit loads once: inputs read, checked and prepared, the structure, the model, and what the run is known by.

use super::{Ranks, agreement, ranks};
use crate::chain::Schedule;
use crate::chain::init;
use crate::comm::{Comm, Solo};
use crate::data::nifti::space::check_same_place;
use crate::data::nifti::{Header, write_volume};
use crate::data::preprocess::Findings;
use crate::data::{Centering, Mask, Missing, Observations, Preprocessing, memory};
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::model::{Model, State};
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::linalg::Real;
use crate::run::checkpoint::{self};
use crate::run::codec::{put_preprocessing, take_preprocessing};
use crate::run::folder::{MASK_FILE, MASK_IMAGE, MEAN_IMAGE, Run};
use crate::run::inputs;
use crate::run::settings::{ChainStream, Checked, FORMAT, Init, Record, Settings};
use crate::run::trace::UserUnits;
use crate::spectral::load::{Loaded, training_rows};
use crate::structure::{Shelf, Spectrum, Structure};
use crate::summary::Results;
use std::path::Path;
use std::sync::Arc;

/// Data, structure and model of a fit: everything that is loaded once.
pub struct Prepared<R> {
    pub checked: Checked,
    pub structure: Arc<Structure>,
    pub mask: Mask,
    /// Where the sites lie, for images.
    pub space: Option<Header>,
    pub preprocessing: Preprocessing,
    pub findings: Findings,
    pub model: Model<R>,
    pub heldout: Option<Loaded<R>>,
    pub record: Record,
    pub ranks: Ranks,
    /// Bytes, about.
    pub memory: u64,
}

/// A rough count of the bytes a fit holds: data twice over only where asked, some 64 features with their moments and products, means and
/// slopes of every run. Under a mask features are drawn by way of the whole grid, several times over. Ranks share the data;
/// the figure is that of rank 0, which keeps the rest.
pub fn memory_needed(
    observations: &Observations,
    n_rows: usize,
    bytes: usize,
    settings: &Settings,
    n_ranks: usize,
) -> u64 {
    let [n_rows, n_columns, n_grid, n_runs] =
        [n_rows, observations.n_columns(), observations.n_sites(), observations.n_runs()].map(|n| n as u64);
    let cells = n_rows * n_columns;
    let is_masked = n_columns < n_grid || observations.may_have_holes();
    let features = 64 * (n_grid * (2 * bytes as u64 + if is_masked { 40 } else { 0 }) + 20 * n_columns);
    let data = if settings.spill.is_some() { SPILL_CHUNK_BYTES as u64 } else { cells * bytes as u64 / n_ranks as u64 };
    // Every thread adds up products of all rows with all features.
    let products = 64 * 8 * n_rows * (3 + rayon::current_num_threads() as u64);
    let nuisance = 2 * 8 * n_runs * n_columns * (1 + observations.covariates().n_columns() as u64);
    data + if settings.reconstruct { 4 * n_rows * n_grid } else { 0 } + features + products + nuisance + (64 << 20)
}

/// Rows read at a time when data go to a file.
const SPILL_CHUNK_BYTES: usize = 256 << 20;

impl<R: Real> Prepared<R> {
    /// Opens, checks and loads the inputs.
    pub fn load(checked: Checked, shelf: &Shelf, ranks: Ranks) -> Result<Prepared<R>> {
        let observations = inputs::open(&checked.settings)?;
        Prepared::from_observations(checked, observations, None, shelf, ranks)
    }

    /// The same for a run that exists, with its own mask.
    pub fn load_again(run: Run, ranks: Ranks) -> Result<Prepared<R>> {
        let (observations, mask) = (inputs::open(&run.checked.settings)?, run.mask()?);
        let shelf = Shelf::of(&run.folder, &run.record.graphs);
        Prepared::from_observations(run.checked, observations, Some(mask), &shelf, ranks)
    }

    /// [`Prepared::load`] on rows that are already open, with a mask if it is known.
    pub fn from_observations(
        mut checked: Checked,
        mut observations: Observations,
        mask: Option<Mask>,
        shelf: &Shelf,
        ranks: Ranks,
    ) -> Result<Prepared<R>> {
        let comm = ranks.own.clone();
        let space = observations.space().cloned();
        let usual = if space.is_some() { Centering::Site } else { Centering::None };
        let centering = *checked.settings.center.get_or_insert(usual);
        let settings = &checked.settings;
        if settings.melodic && space.is_none() {
            return Err(Error::setting("--melodic", true, "MELODIC's files are images, but the input is not NIfTI"));
        }
        if settings.spill.is_some() {
            // Longer stretches in the file: the disk is written in an order that it likes.
            observations.set_chunk_bytes(SPILL_CHUNK_BYTES);
        }
        let (records, side_checksums) = (inputs::records(settings, &observations)?, inputs::side_checksums(settings)?);
        agreement::check(ranks.all.as_ref(), settings, &records, &side_checksums)?;
        let (n_rows, n_sites) = (observations.n_rows(), observations.n_sites());
        let structure = Arc::new(checked.structure(observations.path(), observations.grid(), n_sites, shelf)?);
        agreement::check_structure(ranks.all.as_ref(), &structure)?;
        match mask {
            Some(mask) => inputs::complete(&mut observations, settings, Some(mask))?,
            None => inputs::choose_cells(&mut observations, settings, structure.grid())?,
        }
        let n_columns = observations.n_columns();
        let needed = memory_needed(&observations, observations.n_rows(), R::BYTES, settings, comm.size());
        memory::check(&format!("a fit of {n_rows} x {n_columns} in {}", R::NAME), needed)?;
        let (preprocessing, findings) = fit_preprocessing(&observations, centering, settings.scale, comm.as_ref())?;
        let Loaded { data, domain } =
            training_rows(&observations, &structure, &preprocessing, settings.spill.as_deref(), comm.as_ref())?;
        let spectrum = Spectrum::new(&structure, &checked.curve);
        let priors = checked.priors(&spectrum, preprocessing.factor, findings.n_cells)?;
        let one_by_one = settings.sweep.kernels.contains(&Kernel::FeaturesOneByOne);
        if !domain.is_whole() && one_by_one {
            let problem = "draws features from whole rows only; leave out this kernel, or --mask and --missing impute";
            return Err(Error::setting("kernels", Kernel::FeaturesOneByOne.name(), problem));
        }
        let mut model = Model::with(data, domain, spectrum, priors, comm.clone());
        model.max_features = settings.max_features.unwrap_or(usize::MAX);
        model.birth_rounds = settings.sweep.birth_rounds;
        model.row_sweeps = settings.sweep.row_sweeps;
        model.joint_every = settings.sweep.joint_every;
        model.theta_step = settings.theta_step;
        let record = Record {
            version: env!("CARGO_PKG_VERSION").into(),
            format: FORMAT,
            n_rows: observations.n_rows(),
            n_sites,
            structure: structure.expression(),
            theta: model.spectrum.parameter_names(),
            data_scale: preprocessing.factor,
            inputs: records,
            images: space.is_some(),
            runs: observations.runs(),
            covariates: preprocessing.covariates.clone(),
            side_checksums,
            n_masked_sites: (!observations.mask().is_full()).then_some(n_columns),
            mask_checksum: (!observations.mask().is_full()).then(|| observations.mask().checksum()),
            n_missing_cells: (observations.n_rows() * n_columns) as u64 - findings.n_cells as u64,
            empty_rows: observations.empty_rows(),
            graphs: structure.graph_files(),
            sum_of_squares: Some(findings.sum_of_squares),
            streams: settings.record.as_ref().map(|record| record.streams.clone()).unwrap_or_default(),
        };
        let mask = observations.mask().clone();
        let load = |path: &Path| load_heldout(path, &observations, &structure, &preprocessing, settings);
        // Rank 0 alone looks at them, with features gathered.
        let heldout = settings.heldout.as_deref().filter(|_| comm.rank() == 0).map(load).transpose()?;
        Ok(Prepared {
            memory: needed,
            structure,
            mask,
            space,
            preprocessing,
            findings,
            model,
            heldout,
            record,
            ranks,
            checked,
        })
    }

    /// Whether this is rank 0 of those that share a chain, which writes what there is to write about it.
    pub fn is_first(&self) -> bool {
        self.ranks.own.rank() == 0
    }

    /// Whether this is rank 0 of all, which writes what is about all chains.
    pub fn is_first_of_all(&self) -> bool {
        self.ranks.all.rank() == 0
    }

    /// The factors between the sampler's units and the user's.
    pub fn units(&self) -> UserUnits {
        UserUnits { data_scale: self.preprocessing.factor, degree: self.model.spectrum.degree() }
    }

    /// What the results of a chain are about.
    pub fn results(&self) -> Results<'_> {
        Results {
            structure: &self.structure,
            mask: &self.mask,
            space: self.space.as_ref(),
            settings: &self.checked.settings,
            record: &self.record,
            sum_of_squares: self.findings.sum_of_squares,
        }
    }

    /// Writes which sites take part and, for images, where they lie and what they are on average.
    pub(super) fn write_place(&self, folder: &Path) -> Result<()> {
        let Some(space) = &self.space else {
            let (path, grid) = (folder.join(MASK_FILE), self.structure.grid());
            return if self.mask.is_full() { Ok(()) } else { self.mask.write(&path, grid) };
        };
        let on_grid = |columns: Vec<f32>| self.mask.scatter(&columns, 0.0);
        write_volume(&folder.join(MASK_IMAGE), space, &on_grid(vec![1.0; self.mask.n_columns()]))?;
        let mean = self.preprocessing.overall.means.iter().map(|&x| x as f32).collect();
        write_volume(&folder.join(MEAN_IMAGE), space, &on_grid(mean))
    }

    /// The settings as they are saved with the run.
    pub fn recorded_settings(&self) -> Settings {
        let mut settings = self.checked.settings.clone();
        settings.record = Some(self.record.clone());
        settings
    }

    /// The schedule of a chain.
    pub fn schedule(&self, chain: u32) -> Schedule {
        let settings = &self.checked.settings;
        let ChainStream { seed, chain } = self.record.stream(settings.seed, chain);
        Schedule {
            seed,
            chain,
            sweeps: settings.sweeps,
            burn_in: settings.burn_in,
            thin: settings.thin,
            kernels: settings.sweep.kernels.clone(),
        }
    }

    /// Where a chain starts.
    pub fn initial_state(&self, chain: u32) -> Result<State<R>> {
        let ChainStream { seed, chain } = self.record.stream(self.checked.settings.seed, chain);
        match &self.checked.init {
            Init::KMeans(n) => Ok(init::k_means(&self.model, *n, seed, chain)),
            Init::Empty => Ok(init::empty(&self.model)),
            Init::Run(folder) => {
                let state = self.is_first().then(|| self.state_of_run(folder)).transpose()?;
                let (_, whole) = ranks::broadcast_state(self.model.comm.as_ref(), state.map(|state| (0, state)))?;
                Ok(ranks::own_part(&self.model, whole))
            }
        }
    }

    /// The state of the run to start from, where there is one.
    pub(super) fn start_of_run(&self) -> Result<Option<State<R>>> {
        match &self.checked.init {
            Init::Run(_) => Ok(Some(self.initial_state(1)?)),
            _ => Ok(None),
        }
    }

    fn state_of_run(&self, folder: &Path) -> Result<State<R>> {
        let run = Run::open(folder)?;
        let same_structure = run.structure()?.identity() == self.structure.identity();
        let same = run.record.n_rows == self.record.n_rows && same_structure;
        if !same || run.record.theta != self.record.theta {
            return Err(Error::OtherOrigin {
                path: folder.to_path_buf(),
                what: "data or structure",
                found: format!("{} rows, {}", run.record.n_rows, run.record.structure),
                expected: format!("{} rows, {}", self.record.n_rows, self.record.structure),
            });
        }
        let state = checkpoint::load_state::<R>(folder)?;
        if state.n_features() > self.model.max_features {
            let problem = format!("the run to start from has {} features", state.n_features());
            return Err(Error::setting("--max-features", self.model.max_features, problem));
        }
        Ok(state)
    }

    pub(super) fn with_reconstruction(&self) -> Option<(usize, usize)> {
        self.checked.settings.reconstruct.then_some((self.record.n_rows, self.record.n_sites))
    }
}

/// Rank 0 reads all rows as a stream and fits; the others are told. (Sums over rows in another order have other bits.)
fn fit_preprocessing(
    observations: &Observations,
    centering: Centering,
    scale: bool,
    comm: &dyn Comm,
) -> Result<(Preprocessing, Findings)> {
    if comm.size() == 1 {
        return Preprocessing::fit(observations, centering, scale);
    }
    let mut bytes = Vec::new();
    if comm.rank() == 0 {
        let (preprocessing, findings) = Preprocessing::fit(observations, centering, scale)?;
        let mut bundle = Bundle::default();
        put_preprocessing(&mut bundle, &preprocessing);
        let Findings { share_of_site_means, sum_of_squares, nothing_left, n_cells } = findings;
        let numbers = [share_of_site_means, sum_of_squares, f64::from(u8::from(nothing_left)), n_cells];
        bundle.put("findings", &[numbers.len()], &numbers);
        bytes = bundle.to_bytes();
    }
    comm.broadcast(&mut bytes);
    let stored = Stored::from_bytes(bytes, observations.path())?;
    let (_, found) = stored.take::<f64>("findings")?;
    let findings = Findings {
        share_of_site_means: found[0],
        sum_of_squares: found[1],
        nothing_left: found[2] != 0.0,
        n_cells: found[3],
    };
    Ok((take_preprocessing(&stored)?, findings))
}

fn load_heldout<R: Real>(
    path: &Path,
    training: &Observations,
    structure: &Arc<Structure>,
    preprocessing: &Preprocessing,
    settings: &Settings,
) -> Result<Loaded<R>> {
    if !settings.confounds.is_empty() {
        let problem = "the confounds of held-out rows are not known; leave it out and use issfa evaluate --data, or do without \
                       --confounds";
        return Err(Error::setting("--heldout", path.display(), problem));
    }
    let mut observations = Observations::open(&[path.to_path_buf()])?;
    observations.check_grid(structure.grid(), "as in the training rows")?;
    if let (Some(own), Some(new)) = (training.space(), observations.space()) {
        check_same_place((training.path(), own), (observations.path(), new))?;
    }
    observations.drop_first(settings.drop_volumes)?;
    observations.set_mask(training.mask().clone());
    if settings.missing == Missing::Impute {
        observations.allow_missing()?;
    }
    inputs::add_covariates(&mut observations, settings.detrend, &[], None, 0)?;
    // Held-out rows are new rows: they are centred by the means of all training rows.
    let as_new =
        Preprocessing { runs: vec![preprocessing.overall.clone(); observations.n_runs()], ..preprocessing.clone() };
    training_rows(&observations, structure, &as_new, None, &Solo)
}
