//! A run folder: its layout, its settings, and the checks before anything in it is used or replaced.

use super::record::{Record, Recorded};
use super::settings::Checked;
use crate::data::nifti::Header;
use crate::data::{Mask, Rows, read};
use crate::error::{Error, Result, setting};
use crate::noise::Reference;
use crate::numeric::files::write_atomically;
use crate::run::checkpoint;
use crate::run::checksums::{CHECKSUMS, Checksums};
use crate::structure::{Shelf, Structure, expression};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Settings and record.
pub const CONFIG: &str = "config.toml";
/// A row a sweep.
pub const TRACE: &str = "trace.csv";
/// Posterior-mean features.
pub const FEATURES: &str = "features.npy";
/// Their standard deviations.
pub const FEATURES_SD: &str = "features_sd.npy";
/// Their size in a row that uses them, in standard deviations of the noise.
pub const FEATURES_Z: &str = "features_z.npy";
/// How probably they exceed a size.
pub const FEATURES_EXCEEDANCE: &str = "features_exceedance.npy";
/// A line a feature.
pub const FEATURE_TABLE: &str = "features.tsv";
/// How strongly rows use features.
pub const WEIGHTS: &str = "weights.npy";
/// How probably rows use features.
pub const ACTIVATION: &str = "activation.npy";
/// What each feature accounts for in every kept sweep.
pub const PRESENCE: &str = "presence.npy";
/// One page to look at.
pub const PAGE: &str = "report.html";
/// How far a fit is, at its last checkpoint.
pub const LIVE: &str = "live.json";
/// How strongly rows use features, under the names of rows that the input has.
pub const LABELLED_WEIGHTS: &str = "labelled_weights.tsv";
/// Features under the names of columns that the input has.
pub const LABELLED_FEATURES: &str = "labelled_features.tsv";
/// Pictures.
pub const FIGURES: &str = "figures";
/// The denoised data.
pub const RECONSTRUCTION: &str = "reconstruction.npy";

/// The denoised data of a run as an image.
pub fn reconstruction_image(run: &str) -> String {
    format!("reconstruction_{run}.nii.gz")
}

/// The mask of a run that has one: an array of 0 and 1 on the grid.
pub const MASK_FILE: &str = "mask.npy";
/// The mask of a run on images, which also says where their voxels lie.
pub const MASK_IMAGE: &str = "mask.nii.gz";

/// The noise as it was measured.
pub const NOISE_REFERENCE: &str = "noise_reference.safetensors";

/// The mean of the training images.
pub const MEAN_IMAGE: &str = "mean.nii.gz";

/// A run that exists on disk.
pub struct Run {
    /// Where it lies.
    pub folder: PathBuf,
    /// Its settings.
    pub checked: Checked,
    /// What it was made from.
    pub record: Record,
}

impl Run {
    /// Reads and checks `config.toml`.
    pub fn open(folder: &Path) -> Result<Run> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Err(Error::NotA { kind: "run folder", path: folder.to_path_buf(), missing: CONFIG });
        }
        let Recorded { settings, record } = Recorded::read(&path)?;
        let (n_streams, n_chains) = (record.streams.len(), settings.chains as usize);
        if n_streams > 0 && n_streams != n_chains {
            let problem = format!("has chains = {n_chains}, but was merged of {n_streams}; write chains = {n_streams}");
            return Err(Error::Config { path, problem });
        }
        let checked = settings.check()?.at(record.window);
        Ok(Run { folder: folder.to_path_buf(), checked, record })
    }

    /// Settings and record.
    pub fn recorded(&self) -> Recorded {
        Recorded { settings: self.checked.settings.clone(), record: self.record.clone() }
    }

    /// Writes `config.toml`.
    pub fn write_config(folder: &Path, recorded: &Recorded) -> Result<()> {
        write_atomically(&folder.join(CONFIG), recorded.to_toml().as_bytes())
    }

    /// The folder of a chain (from 1): the run's own for the first.
    pub fn chain_folder(folder: &Path, chain: u32) -> PathBuf {
        if chain == 1 { folder.to_path_buf() } else { folder.join(format!("chain-{chain}")) }
    }

    /// Where the results of a chain alone lie: of several, those of the first have a folder of their own too, since what all
    /// have found together stands in the run's.
    pub fn results_folder(folder: &Path, chain: u32, n_chains: u32) -> PathBuf {
        if n_chains == 1 { folder.to_path_buf() } else { folder.join(format!("chain-{chain}")) }
    }

    /// The numbers of all chains that have started.
    pub fn started_chains(&self) -> Vec<u32> {
        let has_started = |chain: &u32| {
            let folder = Run::chain_folder(&self.folder, *chain);
            checkpoint::exists(&folder) || has_rows(&folder.join(TRACE))
        };
        (1..=self.checked.settings.chains).filter(has_started).collect()
    }

    /// The structure of the run, with its sizes.
    pub fn structure(&self) -> Result<Structure> {
        let shelf = Shelf::of(&self.folder, &self.record.graphs);
        let structure = expression::build_with(Some(&self.record.structure), None, &shelf)?;
        if structure.n_sites() != self.record.n_sites {
            let (found, expected) = (structure.n_sites(), self.record.n_sites);
            let problem = format!("has a structure of {found} sites, but {expected} sites");
            return Err(Error::Config { path: self.folder.join(CONFIG), problem });
        }
        Ok(structure)
    }

    /// The sites that took part.
    pub fn mask(&self) -> Result<Mask> {
        let structure = self.structure()?;
        match self.record.n_masked_sites {
            None => Ok(Mask::full(structure.n_sites())),
            Some(_) => {
                let name = if self.record.images { MASK_IMAGE } else { MASK_FILE };
                let (path, remedy) = (self.folder.join(name), "put back a copy, or fit again");
                let mask = Mask::read(&path, structure.grid()).map_err(|error| error.with_remedy(remedy))?;
                match Some(mask.checksum()) == self.record.mask_checksum {
                    true => Ok(mask),
                    false => Err(Error::malformed(&path, format!("is not the mask of this run; {remedy}"))),
                }
            }
        }
    }

    /// Where the voxels of a run on images lie.
    pub fn space(&self) -> Result<Option<Header>> {
        if !self.record.images {
            return Ok(None);
        }
        Checksums::open(&self.folder)?.check(MASK_IMAGE)?;
        Ok(read::open(&self.folder.join(MASK_IMAGE))?.space().cloned())
    }

    /// The rows that the run was made from.
    pub fn rows(&self) -> Result<Rows> {
        if self.checked.settings.input.is_empty() {
            return Err(no_array(&self.folder));
        }
        self.checked.settings.rows()
    }

    /// The rows that the run was fitted to, from other files: its inputs elsewhere, or files of what was an array in memory.
    pub fn rows_from(&self, paths: &[PathBuf]) -> Result<Rows> {
        if !self.checked.settings.input.is_empty() {
            return Rows::open_as(paths, &self.checked.settings.reading()?);
        }
        let known: Vec<String> = self.record.inputs.iter().map(|input| input.checksum.clone()).collect();
        let rows = Rows::open_arrays(paths, &known)?;
        let n_dropped = self.checked.settings.drop_volumes;
        match &self.record.runs[..] {
            runs if runs.len() > 1 && known.len() == 1 => {
                rows.with_runs(&runs.iter().map(|run| (run.name.as_str(), run.n_rows + n_dropped)).collect::<Vec<_>>())
            }
            _ => Ok(rows),
        }
    }

    /// The noise reference of a run that has one.
    pub fn noise_reference(&self) -> Result<Option<Reference>> {
        let Some(expected) = &self.record.noise_checksum else { return Ok(None) };
        let path = self.folder.join(NOISE_REFERENCE);
        let remedy = "put back a copy, or fit again";
        let reference = Reference::read(&path).map_err(|error| error.with_remedy(remedy))?;
        let (found, sizes) = (reference.checksum(), self.record.sizes());
        let is_of_run = reference.site_scales.len() == sizes.n_columns
            && reference.run_levels.len() == sizes.n_runs
            && [0, sizes.n_rows].contains(&reference.row_factors.len());
        if found != *expected || !is_of_run {
            let problem = format!("is not the reference of this run (checksum {found}, expected {expected}); {remedy}");
            return Err(Error::malformed(&path, problem));
        }
        Ok(Some(reference))
    }
}

/// Whether a table has more than a line of names: a chain begins with that, and has a checkpoint before its first row.
fn has_rows(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| BufReader::new(file).lines().nth(1).is_some())
}

/// The folders that commands make; [`Held`](super::held::Held) is how they are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Of a fit.
    Run,
    /// Of a simulation.
    Simulation,
    /// Of new rows.
    Transform,
    /// Of draws from the prior.
    PriorSamples,
    /// Of a structure's eigenvectors.
    StructureShown,
    /// Of a look at the noise.
    Noise,
    /// Of settings that were tried.
    Choice,
    /// Of the demo.
    Demo,
}

/// Whether a folder of a run has the name of a further chain's.
pub(super) fn is_chain(name: &str) -> bool {
    name.strip_prefix("chain-").is_some_and(|number| number.parse::<u32>().is_ok())
}

impl Output {
    /// All of them.
    pub(super) const ALL: [Output; 8] = [
        Output::Run,
        Output::Simulation,
        Output::Transform,
        Output::PriorSamples,
        Output::StructureShown,
        Output::Noise,
        Output::Choice,
        Output::Demo,
    ];

    /// Everything that may be in such a folder.
    fn names(self) -> &'static [&'static str] {
        match self {
            Output::Run => &[
                CONFIG,
                TRACE,
                CHECKSUMS,
                FEATURES,
                FEATURES_SD,
                FEATURES_EXCEEDANCE,
                FEATURES_Z,
                PRESENCE,
                "features_z.nii.gz",
                FEATURE_TABLE,
                WEIGHTS,
                ACTIVATION,
                LABELLED_WEIGHTS,
                LABELLED_FEATURES,
                RECONSTRUCTION,
                "eigenvalues.csv",
                MASK_FILE,
                MASK_IMAGE,
                MEAN_IMAGE,
                NOISE_REFERENCE,
                "features.nii.gz",
                "features_sd.nii.gz",
                "features_exceedance.nii.gz",
                "features_thresholded.nii.gz",
                "melodic_IC.nii.gz",
                "melodic_mix",
                "synchrony.tsv",
                "peaks.tsv",
                "draws",
                "checkpoint",
                FIGURES,
                PAGE,
                LIVE,
                "structure",
            ],
            Output::Simulation => &[
                "simulation.toml",
                "observations.npy",
                "heldout.npy",
                "truth_features.npy",
                "truth_weights.npy",
                "truth_heldout.npy",
                "structure",
            ],
            Output::Transform => &[WEIGHTS, ACTIVATION, LABELLED_WEIGHTS, RECONSTRUCTION],
            Output::PriorSamples => &["samples.npy", "prior_samples.svg", "prior_samples.png"],
            Output::StructureShown => &["eigenvectors.svg", "eigenvectors.png", "structure"],
            Output::Noise => &[
                NOISE_REFERENCE,
                "noise_sites.svg",
                "noise_sites.png",
                "noise_spectrum.svg",
                "noise_spectrum.png",
                "structure",
            ],
            Output::Choice => &["choose.tsv", "choose.json", "choose.svg", "choose.png"],
            Output::Demo => &["sim", "run"],
        }
    }

    /// Whether the command makes a file or folder of this name.
    pub(super) fn makes(self, name: &str) -> bool {
        let of_a_run = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
        let is_per_run =
            of_a_run("weights_", ".tsv") || of_a_run("activation_", ".tsv") || of_a_run("reconstruction_", ".nii.gz");
        self.names().contains(&name)
            || self == Output::Run && is_chain(name)
            || matches!(self, Output::Run | Output::Transform) && is_per_run
    }
}

/// The array of a fit is not kept with it.
pub fn no_array(run: &Path) -> Error {
    let problem = format!(
        "was fitted to an array in memory, which it does not hold; give the array again as {}",
        setting("input")
    );
    Error::malformed(run, problem)
}
