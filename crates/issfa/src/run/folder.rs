//! A run folder: its layout, its settings, and the checks before anything in it is used or replaced.

use crate::data::nifti::Header;
use crate::data::{Mask, Observations, Preprocessing, read};
use crate::error::{Error, Result, Verb, action, setting};
use crate::numeric::files::write_atomically;
use crate::run::draws::Draws;
use crate::run::inputs;
use crate::run::settings::{Checked, FORMAT, Record, Settings};
use crate::structure::{Shelf, Structure, expression};
use std::fs;
use std::path::{Path, PathBuf};

/// The mask of a run that has one: an array of 0 and 1 on the grid.
pub const MASK_FILE: &str = "mask.npy";
/// The mask of a run on images, which also says where their voxels lie.
pub const MASK_IMAGE: &str = "mask.nii.gz";

/// The mean of the training images.
pub const MEAN_IMAGE: &str = "mean.nii.gz";

/// A run that exists on disk.
pub struct Run {
    pub folder: PathBuf,
    pub checked: Checked,
    pub record: Record,
}

impl Run {
    /// Reads and checks `config.toml`.
    pub fn open(folder: &Path) -> Result<Run> {
        let path = folder.join("config.toml");
        if !path.is_file() {
            return Err(Error::NotA { kind: "run folder", path: folder.to_path_buf(), missing: "config.toml" });
        }
        check_recorded_format(&path)?;
        let settings = Settings::read(&path)?;
        let record = settings.record.clone().ok_or_else(|| {
            Error::malformed(&path, format!("has no [record]: it was not written by {}", action(Verb::Fit)))
        })?;
        let (n_streams, n_chains) = (record.streams.len(), settings.chains as usize);
        if n_streams > 0 && n_streams != n_chains {
            let problem = format!("has chains = {n_chains}, but was merged of {n_streams}; write chains = {n_streams}");
            return Err(Error::Config { path, problem });
        }
        Ok(Run { folder: folder.to_path_buf(), checked: settings.check()?, record })
    }

    /// Writes `config.toml`.
    pub fn write_config(folder: &Path, settings: &Settings) -> Result<()> {
        write_atomically(&folder.join("config.toml"), settings.to_toml().as_bytes())
    }

    /// The folder of a chain (from 1): the run's own for the first.
    pub fn chain_folder(folder: &Path, chain: u32) -> PathBuf {
        if chain == 1 { folder.to_path_buf() } else { folder.join(format!("chain-{chain}")) }
    }

    /// The folders of all chains that have started.
    pub fn chain_folders(&self) -> Vec<PathBuf> {
        (1..=self.checked.settings.chains)
            .map(|chain| Run::chain_folder(&self.folder, chain))
            .filter(|folder| folder.join("trace.csv").is_file())
            .collect()
    }

    /// The structure of the run, with its sizes.
    pub fn structure(&self) -> Result<Structure> {
        let shelf = Shelf::of(&self.folder, &self.record.graphs);
        expression::build_with(Some(&self.record.structure), None, &shelf)
    }

    /// The sites that took part.
    pub fn mask(&self) -> Result<Mask> {
        let structure = self.structure()?;
        match self.record.n_masked_sites {
            None => Ok(Mask::full(structure.n_sites())),
            Some(_) => {
                let name = if self.record.images { MASK_IMAGE } else { MASK_FILE };
                Mask::read(&self.folder.join(name), structure.grid())
            }
        }
    }

    /// Where the voxels of a run on images lie.
    pub fn space(&self) -> Result<Option<Header>> {
        if !self.record.images {
            return Ok(None);
        }
        Ok(read::open(&self.folder.join(MASK_IMAGE))?.space().cloned())
    }

    /// Opens the training rows as they were fitted.
    pub fn observations(&self) -> Result<Observations> {
        let mut observations = inputs::open(&self.checked.settings)?;
        inputs::complete(&mut observations, &self.checked.settings, Some(self.mask()?))?;
        Ok(observations)
    }

    /// The kept draws of the first chain.
    pub fn draws(&self) -> Draws {
        Draws::new(&self.folder, self.checked.settings.keep_draws)
    }

    /// How training rows were prepared.
    pub fn preprocessing(&self) -> Result<Preprocessing> {
        self.draws().preprocessing()
    }

    /// Refuses input files that are not the ones the run was made from.
    pub fn check_inputs(&self) -> Result<()> {
        for (path, input) in self.checked.settings.input.iter().zip(&self.record.inputs) {
            let found = read::checksum(path)?;
            if found != input.checksum {
                return Err(Error::OtherOrigin {
                    path: path.clone(),
                    what: "data",
                    found: format!("checksum {}", input.checksum),
                    expected: format!("checksum {found}"),
                });
            }
        }
        let side = inputs::side_checksums(&self.checked.settings)?;
        if side != self.record.side_checksums {
            return Err(Error::OtherOrigin {
                path: self.folder.clone(),
                what: "confounds or names of runs",
                found: self.record.side_checksums.join(", "),
                expected: side.join(", "),
            });
        }
        Ok(())
    }
}

/// The format is looked at before the rest, which another format may lay out in another way.
fn check_recorded_format(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).map_err(Error::read(path))?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|error| Error::Config { path: path.to_path_buf(), problem: error.to_string() })?;
    let format = table.get("record").and_then(|record| record.get("format")).and_then(toml::Value::as_integer);
    match format {
        Some(found) if found != i64::from(FORMAT) => {
            Err(Error::OtherFormat { path: path.to_path_buf(), found: found.to_string(), supported: FORMAT })
        }
        _ => Ok(()),
    }
}

/// The folders that commands make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Run,
    Simulation,
    Transform,
    PriorSamples,
    StructureShown,
    Demo,
}

impl Output {
    /// Everything that may be in such a folder.
    fn names(self) -> &'static [&'static str] {
        match self {
            Output::Run => &[
                "config.toml",
                "trace.csv",
                "features.npy",
                "features_sd.npy",
                "features_exceedance.npy",
                "features.tsv",
                "weights.npy",
                "activation.npy",
                "reconstruction.npy",
                "eigenvalues.csv",
                MASK_FILE,
                MASK_IMAGE,
                MEAN_IMAGE,
                "features.nii.gz",
                "features_sd.nii.gz",
                "features_exceedance.nii.gz",
                "features_thresholded.nii.gz",
                "melodic_IC.nii.gz",
                "melodic_mix",
                "synchrony.tsv",
                "draws",
                "checkpoint",
                "figures",
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
            Output::Transform => &["weights.npy", "activation.npy", "reconstruction.npy"],
            Output::PriorSamples => &["samples.npy", "prior_samples.svg", "prior_samples.png"],
            Output::StructureShown => &["eigenvectors.svg", "eigenvectors.png", "structure"],
            Output::Demo => &["sim", "run"],
        }
    }

    fn makes(self, name: &str) -> bool {
        let of_a_run = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
        let is_per_run =
            of_a_run("weights_", ".tsv") || of_a_run("activation_", ".tsv") || of_a_run("reconstruction_", ".nii.gz");
        self.names().contains(&name)
            || self == Output::Run && name.starts_with("chain-")
            || matches!(self, Output::Run | Output::Transform) && is_per_run
    }
}

/// Whether results may be written to `folder`: it is not there, or empty, or may be replaced and holds nothing that the
/// same command did not make.
pub fn check_output(folder: &Path, output: Output, overwrite: bool) -> Result<()> {
    if folder.is_file() {
        return Err(Error::malformed(folder, format!("is a file; choose a folder for {}", setting("out"))));
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::Write { path: folder.to_path_buf(), source }),
    };
    let mut names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    if names.is_empty() {
        return Ok(());
    }
    if !overwrite {
        return Err(Error::OutputExists { path: folder.to_path_buf() });
    }
    match names.iter().find(|name| !output.makes(name)) {
        None => Ok(()),
        Some(foreign) => Err(Error::malformed(
            folder,
            format!(
                "holds '{foreign}', which this command does not make, so it is not replaced; move it or choose another {}",
                setting("out")
            ),
        )),
    }
}

/// Makes `folder` empty and ready, under the conditions of [`check_output`] with leave to overwrite.
pub fn prepare_output(folder: &Path, output: Output) -> Result<()> {
    check_output(folder, output, true)?;
    if folder.is_dir() {
        fs::remove_dir_all(folder).map_err(Error::write(folder))?;
    }
    fs::create_dir_all(folder).map_err(Error::write(folder))
}
