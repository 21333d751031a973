//! What a fit loads once: rows checked and prepared, the structure, the model, and what the run is known by.

use super::heldout::{heldout_checksum, heldout_rows, load_heldout};
use super::noise::{self, Noise};
use super::{Ranks, agreement, ranks};
use crate::chain::coarse::{self, Coarse};
use crate::chain::posterior::Shown;
use crate::chain::{Schedule, rounds_for};
use crate::comm::Comm;
use crate::compiled::Sampled;
use crate::data::nifti::Header;
use crate::data::observations::Watch;
use crate::data::preprocess::{Findings, Show};
use crate::data::{Centering, Mask, Observations, Preprocessing, Rows, memory};
use crate::error::{Error, Result, setting};
use crate::fit::memory::{check_memory, may_be_ahead, memory_needed, place_data, room_for_kept, room_for_rows};
use crate::kernels::Kernel;
use crate::model::{Model, State};
use crate::noise::{Filter, Reference, RowNoise, Sample};
use crate::numeric::bytes::{Bundle, Stored};
use crate::run::checkpoint;
use crate::run::codec::{put_preprocessing, take_preprocessing};
use crate::run::folder::Run;
use crate::run::inputs;
use crate::run::record::{ChainStream, InputRecord, Record, Recorded};
use crate::run::settings::{Checked, FORMAT, Init, Settings};
use crate::run::trace::UserUnits;
use crate::run::until::Window;
use crate::spectral::Ahead;
use crate::spectral::load::{Loaded, Place};
use crate::structure::{Shelf, Spectrum, Structure};
use crate::summary::{Fitted, Results};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is asked of a fit.
#[derive(Clone)]
pub struct Request<'a> {
    /// The rows to fit.
    pub rows: Rows,
    /// The settings.
    pub checked: Checked,
    /// Where decompositions of graphs may be found.
    pub shelf: Option<&'a Shelf<'a>>,
    /// Who shares the work.
    pub ranks: Ranks,
    /// What is known of a fit that goes on.
    pub earlier: Option<Earlier>,
    /// Asked while rows are read, where one process does that.
    pub watch: Option<Watch>,
    /// All but the first so many rows are left out.
    pub keep_first: Option<usize>,
}

/// What is known of a fit that goes on.
#[derive(Clone)]
pub struct Earlier {
    /// What messages call it.
    pub name: PathBuf,
    /// Its sites.
    pub mask: Mask,
    /// Its record.
    pub record: Record,
    /// Its noise reference, if it has one.
    pub noise: Option<Reference>,
}

impl Request<'_> {
    /// A new fit in one process.
    pub fn new(rows: Rows, checked: Checked) -> Request<'static> {
        let ranks = Ranks::alone();
        Request { rows, checked, shelf: None, ranks, earlier: None, watch: None, keep_first: None }
    }
}

/// What a fit is about, whatever its precision.
pub struct About {
    /// The settings.
    pub checked: Checked,
    /// What the run is known by.
    pub record: Record,
    /// The basis that features live in.
    pub structure: Arc<Structure>,
    /// The sites that take part.
    pub mask: Mask,
    /// Where the sites lie, for images.
    pub space: Option<Header>,
    /// What the sites are called, where the input says so.
    pub column_names: Option<Vec<String>>,
    /// The way from raw rows to the sampler's units and back.
    pub preprocessing: Preprocessing,
    /// What rows are filtered by, unless the noise is white.
    pub noise: Option<Arc<Filter>>,
    /// The level of the noise in each row; empty where the noise is white.
    pub row_levels: Vec<f64>,
    /// What the raw data look like.
    pub findings: Findings,
    /// Means taken off the rows, where rows were centred.
    pub row_means: Vec<f64>,
    /// Who shares the work.
    pub ranks: Ranks,
    /// Bytes, about.
    pub memory: u64,
    /// How data are stored.
    pub precision: &'static str,
}

/// A fit with everything that is loaded once.
pub struct Prepared<R> {
    /// What it is about.
    pub about: About,
    /// Data and priors.
    pub model: Model<R>,
    /// Whether there are rows left out whose residual is traced.
    pub traces_heldout: bool,
    /// Those rows, on rank 0.
    pub heldout: Option<Loaded<R>>,
}

/// Means that leave less of the sum of squares to the rest are too large for single precision: features, and their products
/// with the data, are exact to about 1e-7 of themselves.
const LEAST_BESIDE_MEANS: f64 = 1e-3;

/// Results are written in single precision, which holds numbers of this size and their sums and products with weights.
const LEAST_SIZE: f64 = 1e-30;
const LARGEST_SIZE: f64 = 1e30;

/// Refuses data whose results would be infinite or 0 in single precision.
fn check_scale(path: &Path, preprocessing: &Preprocessing, findings: &Findings) -> Result<()> {
    let size = (findings.sum_of_squares / findings.n_cells).sqrt();
    let largest = preprocessing.overall.means.iter().fold(size, |most, mean| most.max(mean.abs()));
    let is_far = |x: f64| !(LEAST_SIZE..=LARGEST_SIZE).contains(&x);
    if findings.nothing_left || !(is_far(size) || is_far(largest)) {
        return Ok(());
    }
    let (size, factor) = if largest.is_finite() { (largest, -largest.log10().round()) } else { (f64::MAX, -308.0) };
    let problem = format!(
        "its values are about {size:.0e}, but results are written in single precision: values from {LEAST_SIZE:e} to \
         {LARGEST_SIZE:e} are taken; multiply the data by 1e{factor}"
    );
    Err(Error::malformed(path, problem))
}

impl<R: Sampled> Prepared<R> {
    /// Checks, prepares and loads rows.
    pub fn load(request: Request) -> Result<Prepared<R>> {
        let Request { rows, mut checked, shelf, ranks, earlier, watch, keep_first } = request;
        inputs::check(&rows, &checked.settings)?;
        let mut observations = open_rows(&rows, &mut checked, keep_first)?;
        let settings = &checked.settings;
        let is_alone = ranks.all.size() == 1;
        let watch = watch.filter(|_| is_alone);
        let heed = || if watch.as_ref().is_some_and(|wants_stop| wants_stop()) { Err(Error::Stopped) } else { Ok(()) };
        heed()?;
        if checked.memory.is_none() {
            check_memory::<R>(&rows, &observations, settings, ranks.own.size())?;
        }
        watch.clone().into_iter().for_each(|watch| observations.set_watch(watch));
        // Rank 0 measures what there is to measure; the others look at their own rows alone, and once.
        let most_bytes = match keep_first.is_none() && ranks.own.rank() == 0 {
            true => room_for_rows(&observations, R::BYTES, &checked, ranks.all.size()),
            false => 0,
        };
        let ahead = (is_alone && may_be_ahead::<R>(&rows, &observations, &checked))
            .then(|| Ahead::begin(observations.n_rows() * observations.n_sites()));
        // Of a file both read all; the system has it in memory by then.
        let (known_by, in_memory) = rayon::join(
            || Ok((inputs::records(&rows, &observations)?, inputs::side_checksums(&rows, settings)?)),
            || observations.remembered(most_bytes),
        );
        let (records, side) = known_by?;
        let heldout_checksum = heldout_checksum(&rows, settings)?;
        if let Some(earlier) = &earlier {
            let checksums: Vec<String> = records.iter().map(|input| input.checksum.clone()).collect();
            earlier.record.check_inputs(&earlier.name, rows.paths(), &checksums, &side)?;
            earlier.record.check_heldout(settings.heldout.as_deref().unwrap_or(&earlier.name), &heldout_checksum)?;
        }
        agreement::check(ranks.all.as_ref(), settings, &records, &side)?;
        heed()?;
        let (path, n_sites) = (observations.path(), observations.n_sites());
        let structure =
            Arc::new(checked.structure(path, observations.grid(), n_sites, shelf.unwrap_or(&Shelf::none()))?);
        agreement::check_structure(ranks.all.as_ref(), &structure)?;
        observations.look_there(in_memory?);
        let known_mask = earlier.as_ref().map(|earlier| earlier.mask.clone());
        inputs::choose_cells(&mut observations, &rows, settings, structure.grid(), known_mask)?;
        if let Some(earlier) = &earlier {
            observations.set_n_empty_sites(earlier.record.n_empty_sites);
        }
        let (streams, noise) = earlier.map_or((Vec::new(), None), |Earlier { record, noise, .. }| {
            (record.streams, Some(noise.ok_or(record.noise_is_white_since)))
        });
        let window = checked.later_window();
        let known = Known { inputs: records, side_checksums: side, heldout_checksum, streams, window, noise };
        Prepared::from_observations(checked, &rows, observations, structure, ranks, known, ahead)
    }

    fn from_observations(
        mut checked: Checked,
        rows: &Rows,
        mut observations: Observations,
        structure: Arc<Structure>,
        ranks: Ranks,
        mut known: Known,
        ahead: Option<Ahead<R>>,
    ) -> Result<Prepared<R>> {
        let comm = ranks.own.clone();
        let (n_rows, n_columns) = (observations.n_rows(), observations.n_columns());
        place_data(&mut observations, (n_rows, n_columns), R::BYTES, &mut checked, comm.size())?;
        let settings = &checked.settings;
        let memory = memory_needed(&observations, (n_rows, n_columns), R::BYTES, settings, comm.size());
        memory::check(&format!("a fit of {n_rows} x {n_columns} in {}", R::NAME), memory)?;
        let centering = settings.center.unwrap_or(Centering::Site);
        let wants_sample = comm.rank() == 0 && noise::wants_sample(&checked, &known.noise);
        let mut sample = wants_sample.then(|| Sample::to_be(&observations));
        let mut show = sample.as_mut().map(|sample| |run: usize, row: &[f64]| sample.push(run, row));
        let show = show.as_mut().map(|show| show as Show);
        let (mut preprocessing, findings) =
            fit_preprocessing(&observations, centering, settings.scale, show, comm.as_ref())?;
        sample.iter_mut().for_each(Sample::finish);
        if R::BYTES < 8 && !centering.sites() && 1.0 - findings.share_of_site_means < LEAST_BESIDE_MEANS {
            return Err(Error::NeedsDouble { share: 1.0 - findings.share_of_site_means });
        }
        check_scale(observations.path(), &preprocessing, &findings)?;
        // Rows to be filtered are divided by the scales of their noise instead.
        let plain = Preprocessing { site_scales: Vec::new(), factor: 1.0, ..preprocessing.clone() };
        let (known_noise, mean_square) = (known.noise.take(), findings.sum_of_squares / findings.n_cells);
        let noise = noise::find(&observations, sample, &structure, &checked, known_noise, mean_square, comm.as_ref())?;
        let filter = noise.filter().cloned();
        if filter.is_some() {
            preprocessing = plain;
        }
        let row_levels = row_levels(filter.as_deref(), &observations);
        let row_noise = filter.as_deref().map(|filter| RowNoise { filter, levels: &row_levels });
        let place = match (settings.spill.as_deref(), ahead) {
            (Some(folder), _) => Place::File(folder, room_for_kept(&checked, n_rows * n_columns * R::BYTES, memory)),
            (None, Some(ahead)) => Place::Ahead(ahead),
            (None, None) => Place::Memory,
        };
        let Loaded { data, domain, row_means } =
            R::training_rows(&observations, &structure, &preprocessing, row_noise, place, &comm, ranks.band)?;
        let mut spectrum = Spectrum::new(&structure, &checked.curve);
        if let Some(filter) = &filter {
            spectrum = spectrum.with_factors(filter.powers().to_vec());
        }
        let measured = filter.as_ref().map(|filter| &filter.reference().findings);
        let priors = checked.priors(&spectrum, unit(&preprocessing, filter.as_deref()), findings.n_cells, measured)?;
        let mut model = R::model(data, domain, spectrum, priors, comm.clone());
        set_up(&mut model, settings)?;
        let theta = model.spectrum.parameter_names();
        let record = known.record(&observations, &structure, theta, &preprocessing, &findings, &noise);
        let heldout = heldout_rows(rows, settings)?;
        let traces_heldout = heldout.is_some();
        let way = (&preprocessing, filter.as_deref());
        let load = |heldout: Rows| load_heldout(&heldout, &observations, &structure, way, settings);
        // Rank 0 alone looks at them, with features gathered.
        let heldout = heldout.filter(|_| comm.rank() == 0).map(load).transpose()?;
        let (mask, space) = (observations.mask().clone(), observations.space().cloned());
        let about = About {
            checked,
            record,
            structure,
            mask,
            space,
            column_names: observations.column_names().map(<[String]>::to_vec),
            preprocessing,
            row_levels,
            noise: filter,
            findings,
            row_means,
            ranks,
            memory,
            precision: R::NAME,
        };
        Ok(Prepared { about, model, traces_heldout, heldout })
    }

    /// The factors between the sampler's units and the user's.
    pub fn units(&self) -> UserUnits {
        UserUnits { data_scale: self.about.unit(), degree: self.model.spectrum.degree() }
    }

    /// What a chain looks at that has done so many sweeps, while its start is coarse. After the last sweep of that kind its
    /// state is still a coarse one.
    pub(super) fn coarse_after(&self, sweep: u64) -> Option<Coarse<R>> {
        self.about.checked.coarse_sweeps().filter(|n_coarse| sweep <= *n_coarse).and_then(|_| R::coarse_of(&self.model))
    }

    /// Where a chain starts that is never coarse.
    pub fn initial_state(&self, chain: u32) -> Result<State<R>> {
        self.start_in(&self.model, chain, 1)
    }

    /// Where a chain starts that is coarse at first.
    pub(super) fn coarse_start(&self, coarse: &Coarse<R>, chain: u32) -> Result<State<R>> {
        self.start_in(&coarse.model, chain, coarse::CLUSTERS)
    }

    /// Where a chain starts, as a state of this model or of its coarse one, from so many times as many clusters as were asked for.
    fn start_in(&self, model: &Model<R>, chain: u32, times: usize) -> Result<State<R>> {
        let About { checked, record, ranks: who, .. } = &self.about;
        let ChainStream { seed, chain } = record.stream(checked.settings.seed, chain);
        match &checked.init {
            Init::KMeans(n) => Ok(R::apart(model, n.saturating_mul(times), seed, chain)),
            Init::Empty => Ok(R::empty(model)),
            Init::Run(folder) => {
                let state = (who.own.rank() == 0).then(|| self.state_of_run(folder)).transpose()?;
                let (_, whole) = ranks::broadcast_state(&self.model, state.map(|state| (0, state)))?;
                Ok(ranks::own_part(&self.model, whole))
            }
        }
    }

    /// The state of the run to start from, where there is one.
    pub(super) fn start_of_run(&self) -> Result<Option<State<R>>> {
        match &self.about.checked.init {
            Init::Run(_) => Ok(Some(self.initial_state(1)?)),
            _ => Ok(None),
        }
    }

    fn state_of_run(&self, folder: &Path) -> Result<State<R>> {
        let (run, record) = (Run::open(folder)?, &self.about.record);
        let same_structure = run.structure()?.identity() == self.about.structure.identity();
        let same = run.record.n_rows == record.n_rows && same_structure;
        if !same || run.record.theta != record.theta {
            return Err(Error::OtherOrigin {
                path: folder.to_path_buf(),
                what: "data or structure",
                found: format!("{} rows, {}", run.record.n_rows, run.record.structure),
                expected: format!("{} rows, {}", record.n_rows, record.structure),
            });
        }
        let state = checkpoint::load_state::<R>(folder, &self.about.record.sizes())?;
        if state.n_features() > self.model.max_features {
            let problem = format!("the run to start from has {} features", state.n_features());
            return Err(Error::setting("max-features", self.model.max_features, problem));
        }
        Ok(state)
    }
}

impl About {
    /// Whether this is rank 0 of those that share a chain, which writes what there is to write about it.
    pub fn is_first(&self) -> bool {
        self.ranks.own.rank() == 0
    }

    /// Whether this is rank 0 of all, which writes what is about all chains.
    pub fn is_first_of_all(&self) -> bool {
        self.ranks.all.rank() == 0
    }

    /// Settings and record as they are saved with the run.
    pub fn recorded(&self) -> Recorded {
        Recorded { settings: self.checked.settings.clone(), record: self.record.clone() }
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
            noise: self.noise.as_ref().map(|filter| filter.reference()),
        }
    }

    /// What the sampler's rows are to be multiplied by: to the data's units, or to those of the measured noise.
    pub fn unit(&self) -> f64 {
        unit(&self.preprocessing, self.noise.as_deref())
    }

    /// How spectra are shown.
    pub fn shown(&self) -> Shown<'_> {
        Shown {
            structure: &self.structure,
            mask: &self.mask,
            preprocessing: &self.preprocessing,
            noise: self.noise.as_deref(),
            row_levels: &self.row_levels,
        }
    }

    /// The schedule of a chain.
    pub fn schedule(&self, chain: u32) -> Schedule {
        let settings = &self.checked.settings;
        let ChainStream { seed, chain } = self.record.stream(settings.seed, chain);
        Schedule {
            seed,
            chain,
            sweeps: self.checked.window.sweeps,
            burn_in: self.checked.window.burn_in,
            thin: self.checked.thin,
            kernels: settings.sweep.kernels.clone(),
            rounds: rounds_for(self.record.n_rows, self.record.n_sites),
        }
    }

    pub(super) fn with_reconstruction(&self) -> Option<(usize, usize)> {
        self.checked.settings.reconstruct.then_some((self.record.n_rows, self.record.n_sites))
    }

    /// A fitted model without chains.
    pub(super) fn to_fitted(&self) -> Fitted {
        Fitted {
            found: Arc::default(),
            has_results: false,
            reconstruction: None,
            checked: self.checked.clone(),
            record: self.record.clone(),
            structure: self.structure.clone(),
            mask: self.mask.clone(),
            space: self.space.clone(),
            column_names: self.column_names.clone(),
            preprocessing: self.preprocessing.clone(),
            noise: self.noise.clone(),
            chains: Vec::new(),
            evidence: None,
            folder: None,
        }
    }
}

/// What a run is known by before its rows are prepared.
struct Known {
    inputs: Vec<InputRecord>,
    side_checksums: Vec<String>,
    heldout_checksum: Option<String>,
    streams: Vec<ChainStream>,
    window: Option<Window>,
    noise: noise::Known,
}

impl Known {
    fn record(
        self,
        observations: &Observations,
        structure: &Structure,
        theta: Vec<String>,
        preprocessing: &Preprocessing,
        findings: &Findings,
        noise: &Noise,
    ) -> Record {
        let (n_rows, n_columns) = (observations.n_rows(), observations.n_columns());
        let part = Some(observations.mask()).filter(|mask| !mask.is_full());
        Record {
            version: env!("CARGO_PKG_VERSION").into(),
            format: FORMAT,
            n_rows,
            n_sites: observations.n_sites(),
            structure: structure.expression(),
            theta,
            data_scale: preprocessing.factor,
            inputs: self.inputs,
            images: observations.space().is_some(),
            runs: observations.runs(),
            covariates: preprocessing.covariates.clone(),
            side_checksums: self.side_checksums,
            heldout_checksum: self.heldout_checksum,
            n_masked_sites: part.map(|_| n_columns),
            mask_checksum: part.map(Mask::checksum),
            n_empty_sites: observations.n_empty_sites(),
            n_missing_cells: (n_rows * n_columns) as u64 - findings.n_cells as u64,
            empty_rows: observations.empty_rows(),
            graphs: structure.graph_files(),
            sum_of_squares: Some(findings.sum_of_squares),
            noise: noise.filter().map(|filter| filter.reference().findings.clone()),
            noise_checksum: noise.filter().map(|filter| filter.reference().checksum()),
            noise_is_white_since: match noise {
                Noise::White(reason) => reason.clone(),
                Noise::Filtered(_) => None,
            },
            streams: self.streams,
            window: self.window,
            checksum: None,
        }
    }
}

fn unit(preprocessing: &Preprocessing, filter: Option<&Filter>) -> f64 {
    filter.map_or(preprocessing.factor, |filter| filter.reference().unit)
}

/// The level of the noise in every row.
fn row_levels(filter: Option<&Filter>, observations: &Observations) -> Vec<f64> {
    let Some(filter) = filter else { return Vec::new() };
    filter.reference().row_levels((0..observations.n_runs()).map(|run| observations.run_rows(run)))
}

/// Opens the rows, and settles what depends on their kind.
fn open_rows(rows: &Rows, checked: &mut Checked, keep_first: Option<usize>) -> Result<Observations> {
    let mut observations = inputs::open(rows, &checked.settings)?;
    keep_first.into_iter().for_each(|n_rows| observations.keep_first(n_rows));
    let settings = &mut checked.settings;
    settings.input = rows.paths().to_vec();
    settings.center.get_or_insert(Centering::Site);
    if settings.melodic && observations.space().is_none() {
        return Err(Error::setting("melodic", true, "MELODIC's files are images, but the input is not NIfTI"));
    }
    Ok(observations)
}

/// Gives a model what the settings say about its sweeps.
fn set_up<R: Sampled>(model: &mut Model<R>, settings: &Settings) -> Result<()> {
    let one_by_one = settings.sweep.kernels.contains(&Kernel::FeaturesOneByOne);
    if !model.domain.is_whole() && one_by_one {
        let (mask, impute) = (setting("mask"), setting("missing").to("impute"));
        let problem = format!("draws features from whole rows only; leave out this kernel, or {mask} and {impute}");
        return Err(Error::setting("kernels", Kernel::FeaturesOneByOne.name(), problem));
    }
    model.max_features = settings.max_features.unwrap_or(usize::MAX);
    model.birth_rounds = settings.sweep.birth_rounds;
    model.row_sweeps = settings.sweep.row_sweeps;
    model.joint_every = settings.sweep.joint_every;
    model.theta_step = settings.theta_step;
    Ok(())
}

/// Rank 0 reads all rows as a stream and fits; the others are told. (Sums over rows in another order have other bits.)
fn fit_preprocessing(
    observations: &Observations,
    centering: Centering,
    scale: bool,
    show: Option<Show>,
    comm: &dyn Comm,
) -> Result<(Preprocessing, Findings)> {
    if comm.size() == 1 {
        return Preprocessing::fit_and_show(observations, centering, scale, show);
    }
    let mut bytes = Vec::new();
    if comm.rank() == 0 {
        let (preprocessing, findings) = Preprocessing::fit_and_show(observations, centering, scale, show)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::read::RowSource;
    use crate::data::read::memory::ArrayRows;
    use crate::run::settings::Precision;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Rows as a file has them, which counts how often they are read.
    struct Counted {
        rows: ArrayRows,
        n_read: AtomicUsize,
    }

    impl RowSource for Counted {
        fn path(&self) -> &Path {
            self.rows.path()
        }
        fn n_rows(&self) -> usize {
            self.rows.n_rows()
        }
        fn n_sites(&self) -> usize {
            self.rows.n_sites()
        }
        fn grid(&self) -> Option<&[usize]> {
            self.rows.grid()
        }
        fn checksum(&self) -> Result<String> {
            self.rows.checksum()
        }
        fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
            self.n_read.fetch_add(out.len() / self.n_sites(), Ordering::Relaxed);
            self.rows.read_rows(first_row, out)
        }
    }

    #[test]
    fn rows_are_read_once_whatever_is_done_to_them() {
        let value = |at: usize| if at == 77 { f32::NAN } else { (at * 7919 % 101) as f32 };
        let rows = ArrayRows::new("values", (0..40 * 12).map(value).collect::<Vec<_>>().into(), &[3, 4]).unwrap();
        let source = Arc::new(Counted { rows, n_read: AtomicUsize::new(0) });
        let known = Rows::from_values(vec![0.0f32; 12], &[3, 4]).unwrap();
        let settings = Settings {
            center: Some(Centering::Both),
            scale: true,
            missing: crate::data::Missing::Impute,
            mask: Some("auto".into()),
            sweeps: 6,
            ..Settings::default()
        };
        let given = Rows { sources: vec![source.clone()], ..known };
        Prepared::<f32>::load(Request::new(given, settings.check().unwrap())).unwrap();
        assert_eq!(source.n_read.load(Ordering::Relaxed), 40);
    }

    /// Means, then squares and noise, then values; rows that stay as they are have no means to wait for.
    #[test]
    fn rows_that_memory_does_not_hold_are_read_three_times_at_most() {
        for (center, expected) in [(Centering::Site, 3), (Centering::Both, 3), (Centering::None, 2)] {
            let rows = (0..40 * 12).map(|at| (at * 7919 % 101) as f32).collect::<Vec<_>>();
            let rows = ArrayRows::new("values", rows.into(), &[3, 4]).unwrap();
            let source = Arc::new(Counted { rows, n_read: AtomicUsize::new(0) });
            let known = Rows::from_values(vec![0.0f32; 12], &[3, 4]).unwrap();
            let settings =
                Settings { center: Some(center), sweeps: 6, precision: Precision::F64, ..Settings::default() };
            let given = Rows { sources: vec![source.clone()], ..known };
            // Rows that are to be cut off are not remembered.
            let request = Request { keep_first: Some(40), ..Request::new(given, settings.check().unwrap()) };
            Prepared::<f64>::load(request).unwrap();
            let n_read = source.n_read.load(Ordering::Relaxed);
            // Twice the first row is looked at, with those of its chunk: here all.
            assert_eq!(n_read, (expected + 2) * 40, "{center:?}");
        }
    }
}
