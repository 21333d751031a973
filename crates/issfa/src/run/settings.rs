//! Settings of a fit: raw (as in TOML and on the command line, defaults here), then checked.

use super::record::RECORD;
use super::until::{Until, Window};
use crate::chain::coarse;
use crate::data::axes::parse_axes;
use crate::data::grid::{parse_grid, show_grid};
use crate::data::read::{Columns, Reading, RowsAxis};
use crate::data::{Centering, Detrend, Missing, Rows};
use crate::error::{Error, Result, setting};
use crate::kernels::Kernel;
pub use crate::model::ThetaStep;
use crate::model::{GammaPrior, InverseGammaPrior, NormalPrior, Priors, WeightMeanPrior};
use crate::noise;
use crate::structure::{Curve, Shelf, Spectrum, Structure, expression};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The format of run folders, checkpoints and draws; raised when an older version could not read them.
pub const FORMAT: u32 = 5;

/// The most sweeps that a chain may have.
pub const MOST_SWEEPS: u64 = 1_000_000_000_000;
/// The most chains that a run may have.
pub const MOST_CHAINS: u64 = 10_000;
/// The most draws that a chain may keep.
const MOST_DRAWS: u64 = 1_000_000;
/// The most repeats of a part of a sweep.
const MOST_REPEATS: u64 = 10_000;

/// Sweeps left out at the start of a run that is longer.
pub const USUAL_BURN_IN: u64 = 500;
/// Every so many sweeps one is kept.
pub const USUAL_THIN: u64 = 5;
/// Degrees of freedom of Student weights.
pub const USUAL_TAILS: f64 = 4.0;

/// Every setting of a fit, by the names of the options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Files that the rows come from; empty for an array.
    pub input: Vec<PathBuf>,
    /// Which axis of arrays and tables counts the rows.
    #[serde(alias = "rows_axis", skip_serializing_if = "RowsAxis::is_usual")]
    pub rows_axis: RowsAxis,
    /// Columns of tables to use (`2-785`, `a,b`) or to leave out (`^label`); left out: all are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<String>,
    /// Sites along each axis, such as `100x100`; left out: that of the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<String>,
    /// One structure an axis, such as `cycle x path`; left out: `path` on every axis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structure: Option<String>,
    /// The spectral curve: `q`, powers, sums, `axes`.
    pub curve: String,
    /// A bundle of settings that goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Iterations in all; at most, where a run ends when it has settled.
    pub sweeps: u64,
    /// Whether it may end before: `settled`.
    #[serde(skip_serializing_if = "Until::is_usual")]
    pub until: Until,
    /// Sweeps left out at the start; left out: [`USUAL_BURN_IN`], or two thirds of a run that is not longer.
    #[serde(alias = "burn_in", skip_serializing_if = "Option::is_none")]
    pub burn_in: Option<u64>,
    /// Every so many sweeps one is kept; left out: [`USUAL_THIN`], or 1 where burn-in is cut short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thin: Option<u64>,
    /// Independent chains.
    pub chains: u32,
    /// Same seed, rows and settings: same bits.
    pub seed: u64,
    /// Where chains start: `kmeans:15`, `empty`, or the folder of a run.
    pub init: String,
    /// Whether the first sweeps of burn-in look at the smoothest modes alone.
    pub start: Start,
    /// The most features there may be.
    #[serde(alias = "max_features", skip_serializing_if = "Option::is_none")]
    pub max_features: Option<usize>,
    /// Asks for this share of variance to be explained: `0.9`, or `0.9:10` with a weight.
    #[serde(alias = "target_r2", skip_serializing_if = "Option::is_none")]
    pub target_r2: Option<String>,
    /// The noise: `reference` (measured on differences of rows), `white`, or the file of a stored reference.
    pub noise: String,
    /// What the weights of active entries are drawn from.
    #[serde(skip_serializing_if = "Weights::is_usual")]
    pub weights: Weights,
    /// How theta is updated.
    #[serde(alias = "theta_step")]
    pub theta_step: ThetaStep,
    /// Left out: site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub center: Option<Centering>,
    /// Whether each site is divided by its standard deviation.
    pub scale: bool,
    /// Which trend is taken out of each run.
    pub detrend: Detrend,
    /// One file a run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confounds: Vec<PathBuf>,
    /// The columns of the confounds to use; empty: all.
    #[serde(alias = "confound_columns", skip_serializing_if = "Vec::is_empty")]
    pub confound_columns: Vec<String>,
    /// Rows left out at the start of each run.
    #[serde(alias = "drop_volumes")]
    pub drop_volumes: usize,
    /// A file that names the runs of a single array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<PathBuf>,
    /// A file, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    /// What becomes of NaN cells.
    pub missing: Missing,
    /// How data are stored while sampling.
    pub precision: Precision,
    /// A folder for data that memory does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill: Option<PathBuf>,
    /// The most memory that the fit may hold, such as `8GB`: data go to a file where they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// How many evenly spaced draws are kept.
    #[serde(alias = "keep_draws")]
    pub keep_draws: usize,
    /// Whether denoised rows are wanted.
    pub reconstruct: bool,
    /// Rows left out of the fit whose residual is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heldout: Option<PathBuf>,
    /// The size that exceedance maps are about, in mean absolute values of a feature.
    pub exceed: f64,
    /// Whether results of images are also written under MELODIC's names.
    pub melodic: bool,
    /// The anatomical image under the figures of features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<PathBuf>,
    /// What the axes are called and where they lie, for pictures: `latitude=61:49,longitude=-10:2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axes: Option<String>,
    /// How much the page of the run holds.
    #[serde(skip_serializing_if = "PageSize::is_usual")]
    pub report: PageSize,
    /// Ends a fit (which can be gone on with) after this time: `90s`, `5m`, `2h`.
    #[serde(alias = "time_budget", skip_serializing_if = "Option::is_none")]
    pub time_budget: Option<String>,
    /// How often a checkpoint is made.
    #[serde(alias = "checkpoint_every")]
    pub checkpoint_every: String,
    /// `[noise_reference]`.
    #[serde(rename = "noise_reference")]
    pub noise_reference: noise::Recipe,
    /// `[priors]`.
    pub priors: PriorSettings,
    /// `[sweep]`.
    pub sweep: SweepSettings,
}

/// How much the page of a run (`report.html`) holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageSize {
    /// All maps, or one a feature where they would be many bytes.
    #[default]
    Auto,
    /// One map a feature.
    Light,
    /// Mean, standard deviation, exceedance and z of each feature.
    Full,
    /// No page.
    None,
}

impl PageSize {
    fn is_usual(&self) -> bool {
        *self == PageSize::Auto
    }
}

/// A bundle of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Knowles and Ghahramani: no structure, weight means fixed at 0.
    Isfa,
}

/// What the first sweeps of burn-in look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// The smoothest modes, where there are many and their order means something; then all.
    #[default]
    Coarse,
    /// All modes from the first sweep on.
    Full,
}

/// What the weights of active entries are drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// Normal about the feature's mean weight.
    #[default]
    Normal,
    /// Student, with heavier tails.
    Student,
}

impl Weights {
    fn is_usual(&self) -> bool {
        *self == Weights::Normal
    }
}

/// How spectral data and features are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single: half the memory, as exact as noise asks for.
    #[default]
    F32,
    /// Double.
    F64,
}

impl Precision {
    /// Bytes that a number takes.
    pub fn n_bytes(self) -> u64 {
        match self {
            Precision::F32 => 4,
            Precision::F64 => 8,
        }
    }
}

/// `[priors]`: pairs as documented in docs/formats.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriorSettings {
    /// Inverse gamma shape and scale of the noise variance, in the user's units; vague when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<[f64; 2]>,
    /// Gamma shape and rate of the buffet's strength.
    pub ibp_strength: [f64; 2],
    /// Gamma shape and rate of its repulsion.
    pub ibp_repulsion: [f64; 2],
    /// Gamma shape and rate of the weights' precisions.
    pub weight_precision: [f64; 2],
    /// Of the weights' means.
    pub weight_mean: WeightMeanSetting,
    /// Degrees of freedom of Student weights; left out: [`USUAL_TAILS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_tails: Option<f64>,
    /// Normal mean and standard deviation of every ln theta.
    pub ln_theta: [f64; 2],
}

/// `[mean, sd]` or `"fixed 0"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WeightMeanSetting {
    /// Mean and standard deviation.
    Normal([f64; 2]),
    /// `fixed 0`, say.
    Fixed(String),
}

/// `[sweep]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepSettings {
    /// Updates of all rows in a sweep.
    pub row_sweeps: u32,
    /// Rounds of births and deaths in a sweep.
    pub birth_rounds: u32,
    /// Under a mask: every so many sweeps features are drawn anew outside, given inside or jointly.
    pub joint_every: u64,
    /// What a sweep does, in order.
    pub kernels: Vec<Kernel>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            input: Vec::new(),
            rows_axis: RowsAxis::First,
            columns: None,
            grid: None,
            structure: None,
            curve: "q".into(),
            preset: None,
            sweeps: 1000,
            until: Until::Sweeps,
            burn_in: None,
            thin: None,
            chains: 1,
            seed: 0,
            init: "kmeans:15".into(),
            start: Start::Coarse,
            max_features: None,
            target_r2: None,
            noise: "reference".into(),
            weights: Weights::Normal,
            theta_step: ThetaStep::Mh,
            center: None,
            scale: false,
            detrend: Detrend::None,
            confounds: Vec::new(),
            confound_columns: Vec::new(),
            drop_volumes: 0,
            runs: None,
            mask: None,
            missing: Missing::Error,
            precision: Precision::F32,
            spill: None,
            memory: None,
            keep_draws: 20,
            reconstruct: false,
            heldout: None,
            exceed: 2.0,
            melodic: false,
            background: None,
            axes: None,
            report: PageSize::Auto,
            time_budget: None,
            checkpoint_every: "60s".into(),
            noise_reference: noise::Recipe::default(),
            priors: PriorSettings::default(),
            sweep: SweepSettings::default(),
        }
    }
}

impl Default for PriorSettings {
    fn default() -> Self {
        PriorSettings {
            noise: None,
            ibp_strength: [1.0, 1.0],
            ibp_repulsion: [1.0, 1.0],
            weight_precision: [10.0, 10.0],
            weight_mean: WeightMeanSetting::Normal([0.0, 1.0]),
            weight_tails: None,
            ln_theta: [0.0, 3.0],
        }
    }
}

impl Default for SweepSettings {
    fn default() -> Self {
        SweepSettings { row_sweeps: 1, birth_rounds: 8, joint_every: 20, kernels: Kernel::DEFAULT_SWEEP.to_vec() }
    }
}

/// How a chain starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// The means of so many clusters.
    KMeans(usize),
    /// One feature in two rows.
    Empty,
    /// The last state of a run.
    Run(PathBuf),
}

/// A share of variance that the features should explain, and how many cells' worth of weight the wish has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetR2 {
    /// Of the variance.
    pub share: f64,
    /// In numbers of all cells.
    pub weight: f64,
}

/// What the noise is taken to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoiseModel {
    /// As it is measured on differences of rows.
    Reference,
    /// Alike at all sites and modes.
    White,
    /// As in a stored reference.
    File(PathBuf),
}

/// Settings that passed every check that does not need the data.
#[derive(Clone, Debug)]
pub struct Checked {
    /// With burn-in and thinning as they are.
    pub settings: Settings,
    /// Whether double precision was not asked for, but needed.
    pub is_promoted: bool,
    /// The sweeps it is about, as far as is planned.
    pub window: Window,
    /// Every so many sweeps one is kept.
    pub thin: u64,
    /// Where chains start.
    pub init: Init,
    /// What is asked of the noise.
    pub target_r2: Option<TargetR2>,
    /// What the noise is.
    pub noise: NoiseModel,
    /// The spectral curve.
    pub curve: Curve,
    /// How often a checkpoint is made.
    pub checkpoint_every: Duration,
    /// After which a fit ends.
    pub time_budget: Option<Duration>,
    /// The most bytes of memory that the fit may hold.
    pub memory: Option<u64>,
}

impl Settings {
    /// Reads a TOML file; unknown keys are refused with their place. What a run has recorded is left aside.
    pub fn read(path: &Path) -> Result<Settings> {
        let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
        let wrong = |error: toml::de::Error| Error::Config {
            path: path.to_path_buf(),
            problem: error.to_string().trim_end().to_string(),
        };
        let mut table: toml::Table = toml::from_str(&text).map_err(wrong)?;
        match table.remove(RECORD) {
            // The text knows the places of its keys.
            None => toml::from_str(&text).map_err(wrong),
            Some(_) => table.try_into().map_err(wrong),
        }
    }

    /// The settings as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("settings can be written as TOML")
    }

    /// Degrees of freedom of Student weights; none where weights are normal.
    pub fn weight_tails(&self) -> Option<f64> {
        (self.weights == Weights::Student).then(|| self.priors.weight_tails.unwrap_or(USUAL_TAILS))
    }

    /// How the files of rows are to be read.
    pub fn reading(&self) -> Result<Reading> {
        let columns = self.columns.as_deref().map(Columns::parse).transpose()?;
        if columns.is_some() && self.rows_axis == RowsAxis::Last {
            let problem =
                format!("is for tables whose lines are the rows; leave {} out", setting("rows-axis").to("last"));
            return Err(Error::setting("columns", self.columns.as_deref().unwrap_or_default(), problem));
        }
        Ok(Reading { rows_axis: self.rows_axis, columns })
    }

    /// Opens the files that the rows come from.
    pub fn rows(&self) -> Result<Rows> {
        Rows::open_as(&self.input, &self.reading()?)
    }

    /// Applies the preset and checks every value.
    pub fn check(mut self) -> Result<Checked> {
        if i64::try_from(self.seed).is_err() {
            // The largest number that a TOML file holds.
            return Err(Error::setting("seed", self.seed, format!("must be at most {}", i64::MAX)));
        }
        if self.preset == Some(Preset::Isfa) {
            if self.structure.as_deref().is_some_and(|text| text.trim() != "iid") {
                return Err(Error::setting(
                    "structure",
                    self.structure.as_deref().unwrap_or_default(),
                    "the preset isfa means the structure iid; leave one of the two out",
                ));
            }
            self.structure = Some("iid".into());
            self.priors.weight_mean = WeightMeanSetting::Fixed("fixed 0".into());
        }
        self.reading()?;
        let (burn_in, thin) = self.fill_in_schedule();
        self.check_counts(burn_in, thin)?;
        self.priors.check()?;
        if let (Weights::Normal, Some(tails)) = (self.weights, self.priors.weight_tails) {
            let problem = format!("is for {}; leave it out", setting("weights").to("student"));
            return Err(Error::setting("weight_tails", tails, problem));
        }
        self.priors.weight_tails = self.weight_tails();
        self.noise_reference.check()?;
        let checked = Checked {
            is_promoted: false,
            window: Window::first(self.until, self.sweeps, burn_in),
            thin,
            init: parse_init(&self.init)?,
            target_r2: self.target_r2.as_deref().map(parse_target_r2).transpose()?,
            noise: match self.noise.as_str() {
                "reference" => NoiseModel::Reference,
                "white" => NoiseModel::White,
                path => NoiseModel::File(path.into()),
            },
            curve: Curve::parse(&self.curve)?,
            checkpoint_every: parse_duration("checkpoint-every", &self.checkpoint_every)?,
            time_budget: self.time_budget.as_deref().map(|text| parse_duration("time-budget", text)).transpose()?,
            memory: self.memory.as_deref().map(|text| parse_bytes("memory", text)).transpose()?,
            settings: self,
        };
        if checked.target_r2.is_some() && checked.settings.priors.noise.is_some() {
            let both = format!("both {} and {}", setting("target-r2"), setting("priors.noise"));
            return Err(Error::setting("target-r2", "", format!("{both} set the noise prior; give one")));
        }
        Ok(checked)
    }

    /// A run too short for the usual burn-in gets two thirds of its sweeps, and keeps all others, unless told otherwise.
    fn fill_in_schedule(&mut self) -> (u64, u64) {
        let is_short = self.burn_in.is_none() && self.sweeps <= USUAL_BURN_IN;
        let usual = if is_short { (self.sweeps * 2 / 3, 1) } else { (USUAL_BURN_IN, USUAL_THIN) };
        (*self.burn_in.get_or_insert(usual.0), *self.thin.get_or_insert(usual.1))
    }

    fn check_counts(&self, burn_in: u64, thin: u64) -> Result<()> {
        let at_least = |name: &str, value: u64, least: u64| {
            if value < least { Err(Error::setting(name, value, format!("must be at least {least}"))) } else { Ok(()) }
        };
        let at_most = |name: &str, value: u64, most: u64| {
            if value > most { Err(Error::setting(name, value, format!("must be at most {most}"))) } else { Ok(()) }
        };
        at_least("sweeps", self.sweeps, 1)?;
        at_most("sweeps", self.sweeps, MOST_SWEEPS)?;
        at_least("thin", thin, 1)?;
        at_least("chains", u64::from(self.chains), 1)?;
        at_most("chains", u64::from(self.chains), MOST_CHAINS)?;
        at_least("keep-draws", self.keep_draws as u64, 1)?;
        at_most("keep-draws", self.keep_draws as u64, MOST_DRAWS)?;
        at_least("max-features", self.max_features.unwrap_or(1) as u64, 1)?;
        at_least("row_sweeps", u64::from(self.sweep.row_sweeps), 1)?;
        at_least("birth_rounds", u64::from(self.sweep.birth_rounds), 1)?;
        at_most("row_sweeps", u64::from(self.sweep.row_sweeps), MOST_REPEATS)?;
        at_most("birth_rounds", u64::from(self.sweep.birth_rounds), MOST_REPEATS)?;
        at_least("joint_every", self.sweep.joint_every, 1)?;
        if !(self.exceed > 0.0 && self.exceed.is_finite()) {
            return Err(Error::setting("exceed", self.exceed, "give a positive number, such as 2"));
        }
        if !self.confound_columns.is_empty() && self.confounds.is_empty() {
            let names = self.confound_columns.join(",");
            let problem = format!("there are no {} to choose from", setting("confounds").to("FILE..."));
            return Err(Error::setting("confound-columns", names, problem));
        }
        if burn_in >= self.sweeps {
            let problem =
                format!("burn-in must leave sweeps to keep: fewer than {} ({})", setting("sweeps"), self.sweeps);
            return Err(Error::setting("burn-in", burn_in, problem));
        }
        if self.sweeps - burn_in < thin {
            let problem = format!("with {} sweeps after burn-in none would be kept", self.sweeps - burn_in);
            return Err(Error::setting("thin", thin, problem));
        }
        let has = |kernel: &Kernel| self.sweep.kernels.contains(kernel);
        for needed in [&[Kernel::Features, Kernel::FeaturesOneByOne][..], &[Kernel::Noise]] {
            if !needed.iter().any(has) {
                let names = needed.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(" or ");
                return Err(Error::setting("kernels", names, "every sweep needs this kernel"));
            }
        }
        Ok(())
    }
}

impl PriorSettings {
    fn check(&self) -> Result<()> {
        let pairs = [
            ("priors.noise", self.noise.unwrap_or([1.0, 1.0])),
            ("ibp_strength", self.ibp_strength),
            ("ibp_repulsion", self.ibp_repulsion),
            ("weight_precision", self.weight_precision),
        ];
        for (name, pair) in pairs {
            if !pair.iter().all(|x| *x > 0.0 && x.is_finite()) {
                return Err(Error::setting(name, format!("{pair:?}"), "both numbers of this prior must be positive"));
            }
        }
        let normals = [("ln_theta", Some(self.ln_theta)), ("weight_mean", self.weight_mean.normal())];
        for (name, pair) in normals {
            let Some([mean, sd]) = pair else { continue };
            if !(mean.is_finite() && sd > 0.0 && sd.is_finite()) {
                return Err(Error::setting(
                    name,
                    format!("[{mean}, {sd}]"),
                    "a normal prior is [mean, sd] with sd > 0",
                ));
            }
        }
        if let Some(tails) = self.weight_tails.filter(|tails| !(*tails > 0.0 && tails.is_finite())) {
            return Err(Error::setting("weight_tails", tails, "degrees of freedom must be positive"));
        }
        self.weight_mean.fixed().map(|_| ())
    }
}

impl WeightMeanSetting {
    fn normal(&self) -> Option<[f64; 2]> {
        match self {
            WeightMeanSetting::Normal(pair) => Some(*pair),
            WeightMeanSetting::Fixed(_) => None,
        }
    }

    fn fixed(&self) -> Result<Option<f64>> {
        let WeightMeanSetting::Fixed(text) = self else { return Ok(None) };
        let number = text.strip_prefix("fixed").and_then(|rest| rest.trim().parse::<f64>().ok());
        match number {
            Some(value) if value.is_finite() => Ok(Some(value)),
            _ => Err(Error::setting("weight_mean", text, "write [mean, sd] or \"fixed 0\"")),
        }
    }
}

impl Checked {
    /// Whether chains start where another run ended, all in the same state.
    pub fn starts_from_a_run(&self) -> bool {
        matches!(self.init, Init::Run(_))
    }

    /// How many sweeps of every chain look at the smoothest modes alone, and its clusters in any case. Nothing where all modes
    /// are wanted; the state of another run needs no such start.
    pub fn coarse_sweeps(&self) -> Option<u64> {
        let is_coarse = self.settings.start == Start::Coarse && !self.starts_from_a_run();
        is_coarse.then(|| coarse::n_sweeps(self.settings.burn_in.unwrap_or(self.window.burn_in)))
    }

    /// The structure for data of `n_sites` sites that may bring a grid along.
    pub fn structure(
        &self,
        data_path: &Path,
        data_grid: Option<&[usize]>,
        n_sites: usize,
        shelf: &Shelf,
    ) -> Result<Structure> {
        let given = self.settings.grid.as_deref().map(parse_grid).transpose()?;
        let mut grid = given.or(data_grid.map(<[usize]>::to_vec));
        let text = self.settings.structure.as_deref();
        let structure = match (text, &grid) {
            // Without any grid, the sizes may stand in the structure, or the sites form a line.
            (Some(text), None) => expression::build_with(Some(text), None, shelf)
                .or_else(|error| expression::build_with(Some(text), Some(&[n_sites]), shelf).map_err(|_| error))?,
            (None, None) => {
                grid = Some(vec![n_sites]);
                expression::build(None, grid.as_deref())?
            }
            (text, Some(grid)) => {
                let product: usize = grid.iter().product();
                if product != n_sites {
                    return Err(grid_mismatch(grid, data_path, n_sites));
                }
                if let Some(own) = data_grid.filter(|own| own.len() == grid.len() && own != grid) {
                    return Err(Error::GridsDiffer {
                        path: data_path.to_path_buf(),
                        found: show_grid(own),
                        expected: show_grid(grid),
                        because: format!("by {}", setting("grid")),
                    });
                }
                expression::build_with(text, Some(grid), shelf)?
            }
        };
        if structure.n_sites() != n_sites {
            return Err(Error::StructureMismatch {
                structure: structure.expression(),
                product: structure.n_sites(),
                path: data_path.to_path_buf(),
                n_sites,
            });
        }
        self.settings.axes.as_deref().map(|text| parse_axes(text, structure.grid().len())).transpose()?;
        Ok(structure)
    }

    /// The priors in the sampler's units: data are divided by `data_scale`, and `n_cells` cells inform the noise, which was
    /// measured where a reference is used.
    pub fn priors(
        &self,
        spectrum: &Spectrum,
        data_scale: f64,
        n_cells: f64,
        measured: Option<&noise::Findings>,
    ) -> Result<Priors> {
        let settings = &self.settings.priors;
        let gamma = |[shape, rate]: [f64; 2]| GammaPrior { shape, rate };
        let normal = |[mean, sd]: [f64; 2]| NormalPrior { mean, precision: 1.0 / (sd * sd) };
        let noise = match (self.target_r2, settings.noise, measured) {
            (Some(target), _, _) => {
                let shape = 0.5 * target.weight * n_cells;
                // Of the variance of the data, in the sampler's units.
                let of_all = measured.map_or(1.0, |noise| 1.0 / (noise.share * data_scale * data_scale));
                let wanted = (1.0 - target.share) * of_all;
                InverseGammaPrior { shape, scale: shape * wanted }
            }
            (None, Some([shape, scale]), _) => InverseGammaPrior { shape, scale: scale / (data_scale * data_scale) },
            (None, None, Some(_)) => {
                let shape = 0.5 * self.settings.noise_reference.weight * n_cells;
                InverseGammaPrior { shape, scale: shape / (data_scale * data_scale) }
            }
            (None, None, None) => InverseGammaPrior { shape: 0.001, scale: 0.001 },
        };
        let weight_mean = match settings.weight_mean.fixed()? {
            Some(value) => WeightMeanPrior::Fixed(value),
            None => WeightMeanPrior::Normal(normal(settings.weight_mean.normal().unwrap_or([0.0, 1.0]))),
        };
        Ok(Priors {
            noise,
            ibp_strength: gamma(settings.ibp_strength),
            ibp_repulsion: gamma(settings.ibp_repulsion),
            weight_precision: gamma(settings.weight_precision),
            weight_mean,
            weight_tails: self.settings.weight_tails(),
            ln_theta: vec![normal(settings.ln_theta); spectrum.n_parameters()],
        })
    }
}

fn grid_mismatch(grid: &[usize], path: &Path, n_sites: usize) -> Error {
    Error::GridMismatch { grid: show_grid(grid), product: grid.iter().product(), path: path.to_path_buf(), n_sites }
}

fn parse_init(text: &str) -> Result<Init> {
    if text == "empty" {
        return Ok(Init::Empty);
    }
    if let Some(rest) = text.strip_prefix("kmeans") {
        let number = rest.strip_prefix(':').unwrap_or("15");
        return match number.parse::<usize>() {
            Ok(n) if n > 0 => Ok(Init::KMeans(n)),
            _ => Err(Error::setting("init", text, "write kmeans:N with N at least 1")),
        };
    }
    if Path::new(text).is_dir() {
        return Ok(Init::Run(PathBuf::from(text)));
    }
    Err(Error::setting("init", text, "write kmeans:15, empty, or the folder of a run"))
}

fn parse_target_r2(text: &str) -> Result<TargetR2> {
    let (share, weight) = text.split_once(':').unwrap_or((text, "10"));
    match (share.trim().parse::<f64>(), weight.trim().parse::<f64>()) {
        (Ok(share), Ok(weight)) if share > 0.0 && share < 1.0 && weight > 0.0 && weight.is_finite() => {
            Ok(TargetR2 { share, weight })
        }
        _ => Err(Error::setting("target-r2", text, "write R or R:w with 0 < R < 1 and w > 0, such as 0.9 or 0.9:10")),
    }
}

/// Reads `90`, `90s`, `5m`, `2h`, `1d`.
pub fn parse_duration(name: &str, text: &str) -> Result<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => f64::NAN,
    };
    match number.trim().parse::<f64>().map(|value| Duration::try_from_secs_f64(value * seconds)) {
        Ok(Ok(duration)) => Ok(duration),
        _ => Err(Error::setting(name, text, "write a time such as 90s, 5m, 2h or 1d")),
    }
}

/// Reads `500000000`, `500000KB`, `500MB`, `1.5GB`, `1TB`: thousands of thousands.
pub fn parse_bytes(name: &str, text: &str) -> Result<u64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let size = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "KB" | "K" => 1e3,
        "MB" | "M" => 1e6,
        "GB" | "G" => 1e9,
        "TB" | "T" => 1e12,
        _ => f64::NAN,
    };
    match number.trim().parse::<f64>().map(|value| value * size) {
        Ok(bytes) if (1.0..1e18).contains(&bytes) => Ok(bytes as u64),
        _ => Err(Error::setting(name, text, "write a size such as 800MB, 16GB or 2000000000 (bytes)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(edit: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        edit(&mut settings);
        settings.check().expect_err("a wrong setting").to_string()
    }

    #[test]
    fn defaults_pass_and_survive_toml() {
        let settings = Settings::default();
        assert_eq!(toml::from_str::<Settings>(&settings.to_toml()).unwrap(), settings);
        assert!(settings.check().is_ok());
        let text =
            "burn-in = 3\nsweeps = 9\nthin = 1\n[priors]\nweight_mean = \"fixed 0\"\n[sweep]\nbirth_rounds = 2\n";
        let settings: Settings = toml::from_str(text).unwrap();
        assert_eq!((settings.burn_in, settings.sweep.birth_rounds), (Some(3), 2));
        assert_eq!(settings.priors.weight_mean.fixed().unwrap(), Some(0.0));
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        for text in ["swept = 3", "[priors]\nnoize = [1, 1]", "[sweep]\nrounds = 1"] {
            let error = toml::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        assert!(problem(|s| s.sweeps = 0).contains("sweeps = 0:"));
        assert!(problem(|s| s.burn_in = Some(1000)).contains("burn-in = 1000"));
        assert!(problem(|s| s.thin = Some(501)).contains("thin = 501:"));
        assert!(problem(|s| s.init = "nowhere".into()).contains("init = nowhere"));
        assert!(problem(|s| s.target_r2 = Some("1.2".into())).contains("target-r2 = 1.2:"));
        assert!(problem(|s| s.priors.ibp_strength = [0.0, 1.0]).contains("ibp_strength"));
        assert!(problem(|s| s.priors.weight_mean = WeightMeanSetting::Fixed("free".into())).contains("weight_mean"));
        assert!(problem(|s| s.checkpoint_every = "soon".into()).contains("checkpoint-every = soon:"));
        for wrong in ["much", "-1GB", "0", "4 GiB", "", "1e30GB"] {
            assert!(problem(|s| s.memory = Some(wrong.into())).contains("write a size such as 800MB"), "{wrong}");
        }
        for (text, bytes) in [("1", 1), ("2 kB", 2_000), ("800MB", 800_000_000), ("1.5g", 1_500_000_000)] {
            assert_eq!(parse_bytes("memory", text).unwrap(), bytes);
        }
        assert!(problem(|s| s.sweep.kernels.retain(|k| *k != Kernel::Noise)).contains("noise"));
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400)] {
            assert_eq!(parse_duration("x", text).unwrap(), Duration::from_secs(seconds));
        }
        assert!(parse_duration("x", "-3s").is_err() && parse_duration("x", "2y").is_err());
    }

    #[test]
    fn short_runs_have_a_short_burn_in() {
        let schedule = |sweeps, burn_in, thin| {
            let checked = Settings { sweeps, burn_in, thin, ..Settings::default() }.check().unwrap();
            assert_eq!(
                (checked.settings.burn_in, checked.settings.thin),
                (Some(checked.window.burn_in), Some(checked.thin))
            );
            (checked.window.burn_in, checked.thin)
        };
        assert_eq!(schedule(1000, None, None), (500, 5));
        assert_eq!(schedule(501, None, Some(1)), (500, 1));
        assert_eq!(schedule(300, None, None), (200, 1));
        assert_eq!(schedule(300, None, Some(4)), (200, 4));
        assert_eq!(schedule(300, Some(100), None), (100, 5));
        assert_eq!(schedule(1, None, None), (0, 1));
    }

    /// In units of the measured noise, the prior stands at 1; or where the wanted share of the variance is left.
    #[test]
    fn the_prior_of_measured_noise_stands_where_it_was_measured() {
        let structure = expression::build(Some("path(4)"), None).unwrap();
        let spectrum = Spectrum::new(&structure, &Curve::default());
        let measured = noise::Findings {
            n_rows: 9,
            n_differences: 8,
            ratio: 2.0,
            is_series: true,
            share: 0.4,
            between_sites: 1.0,
            full_width: None,
            level: 1.0,
            between_rows: None,
        };
        let (unit, n_cells) = (2.5, 100.0);
        let centre = |settings: Settings, measured: Option<&noise::Findings>| {
            let prior = settings.check().unwrap().priors(&spectrum, unit, n_cells, measured).unwrap().noise;
            (prior.shape, prior.scale / prior.shape * unit * unit)
        };
        let close = |(shape, at): (f64, f64), (n, wanted): (f64, f64)| {
            assert!((shape - n).abs() < 1e-9 && (at - wanted).abs() < 1e-9, "{shape} {at}");
        };
        close(centre(Settings::default(), Some(&measured)), (500.0, 1.0));
        let target = || Settings { target_r2: Some("0.8:2".into()), ..Settings::default() };
        // A fifth of the variance is half of the noise that was measured.
        close(centre(target(), Some(&measured)), (100.0, 0.5));
        // Without a reference the unit is the data's root mean square.
        close(centre(target(), None), (100.0, 0.2 * unit * unit));
    }
}
