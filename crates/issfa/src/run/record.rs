//! What a run was made by and from: its settings as they were, and what the data turned out to be.

use super::codec::Sizes;
use super::settings::{FORMAT, PageSize, Settings};
use super::until::{Until, Window};
use crate::data::Centering;
use crate::data::runs::NamedRun;
use crate::error::{Error, Result, Verb, action, setting};
use crate::noise::{Findings, Recipe};
use crate::numeric::files::write_atomically;
use crate::structure::graph::GraphFile;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The table of `config.toml` that holds the record.
pub const RECORD: &str = "record";

/// The settings of a run with its record: what `config.toml` holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// As they were, with those filled in that were left out.
    pub settings: Settings,
    /// What came of the data.
    pub record: Record,
}

/// What a run was made by and from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Of the program.
    pub version: String,
    /// Of the folder.
    pub format: u32,
    /// Rows that took part.
    pub n_rows: usize,
    /// Sites of the grid.
    pub n_sites: usize,
    /// With its sizes.
    pub structure: String,
    /// The names of the curve's parameters.
    pub theta: Vec<String>,
    /// Raw data are divided by this before sampling (after centring and site scaling).
    pub data_scale: f64,
    /// What the rows came from.
    pub inputs: Vec<InputRecord>,
    /// Whether the inputs are images, so that results are written as such too.
    #[serde(default)]
    pub images: bool,
    /// The runs, with the rows of each.
    pub runs: Vec<NamedRun>,
    /// What was regressed out of every site beside its mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covariates: Vec<String>,
    /// Checksums of the confounds and of the names of runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub side_checksums: Vec<String>,
    /// The checksum of rows left out whose residual is traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heldout_checksum: Option<String>,
    /// Sites that take part, where a mask leaves some out, and their checksum: they are in mask.npy or mask.nii.gz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_masked_sites: Option<usize>,
    /// The checksum of the sites that take part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_checksum: Option<String>,
    /// Sites among those left out that have no value in any row.
    #[serde(default)]
    pub n_empty_sites: usize,
    /// Cells that were not observed, of rows that took part.
    #[serde(default)]
    pub n_missing_cells: u64,
    /// Rows of the input without any value, which are not part of the fit; they count from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub empty_rows: Vec<usize>,
    /// The files of the structure; their decompositions are in the run's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<GraphFile>,
    /// The sum of squares of the prepared data, in the user's units; runs of earlier builds do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum_of_squares: Option<f64>,
    /// What the noise reference looks like; none where the noise is taken to be white.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Findings>,
    /// The checksum of the noise reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_checksum: Option<String>,
    /// Why a reference that was asked for could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_is_white_since: Option<String>,
    /// Of a merged run, the stream that each chain draws from; elsewhere empty, which means the usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<ChainStream>,
    /// The sweeps that a run which goes on until it has settled is about, after the first look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// In a file: what record and settings are known by. Elsewhere nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// What a chain draws its random numbers from: the seed and the chain's number in the run that it was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStream {
    /// Of the run that the chain was made in.
    pub seed: u64,
    /// From 1.
    pub chain: u32,
}

impl Record {
    /// The stream of a chain (from 1) of the run with this record and seed.
    pub fn stream(&self, seed: u64, chain: u32) -> ChainStream {
        let merged = self.streams.get(chain as usize - 1).copied();
        merged.unwrap_or(ChainStream { seed, chain })
    }

    /// The sizes of everything stored about a chain.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            n_rows: self.n_rows,
            n_modes: self.n_sites,
            n_columns: self.n_masked_sites.unwrap_or(self.n_sites),
            n_theta: self.theta.len(),
            n_runs: self.runs.len(),
        }
    }

    /// What the noise is taken to be.
    pub fn noise_in_words(&self) -> String {
        match (&self.noise, &self.noise_is_white_since) {
            (Some(noise), _) => noise.in_words(),
            (None, None) => "white".into(),
            (None, Some(reason)) => format!("white: {reason}"),
        }
    }

    /// What keeps rows from noise levels of their own, however they differ.
    pub fn obstacle_to_row_levels(&self, recipe: &Recipe) -> Option<String> {
        let Some(noise) = &self.noise else { return Some("the noise is taken to be white".into()) };
        noise.obstacle_to_row_levels(self.shape(), recipe)
    }

    /// Why rows have no noise levels of their own where the recipe asks for them.
    pub fn why_no_row_levels(&self, recipe: &Recipe) -> Option<String> {
        match &self.noise {
            Some(noise) => noise.why_no_row_levels(self.shape(), recipe),
            None => self.obstacle_to_row_levels(recipe).filter(|_| recipe.row_levels),
        }
    }

    /// Rows, runs, and sites that take part.
    fn shape(&self) -> [usize; 3] {
        [self.n_rows, self.runs.len(), self.n_masked_sites.unwrap_or(self.n_sites)]
    }

    /// Refuses inputs, or what decides the data beside them, with other checksums; `of` is the run's folder or name.
    pub fn check_inputs(&self, of: &Path, paths: &[PathBuf], inputs: &[String], side: &[String]) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            let [found, expected] = [self.inputs.len(), inputs.len()].map(|n| format!("{n} inputs"));
            return Err(Error::OtherOrigin { path: of.to_path_buf(), what: "data", found, expected });
        }
        for (at, (found, input)) in inputs.iter().zip(&self.inputs).enumerate() {
            if *found != input.checksum {
                return Err(Error::OtherOrigin {
                    path: paths.get(at).unwrap_or(&input.path).clone(),
                    what: "data",
                    found: format!("checksum {}", input.checksum),
                    expected: format!("checksum {found}"),
                });
            }
        }
        if side != self.side_checksums {
            return Err(Error::OtherOrigin {
                path: of.to_path_buf(),
                what: "confounds or names of runs",
                found: self.side_checksums.join(", "),
                expected: side.join(", "),
            });
        }
        Ok(())
    }

    /// Refuses other rows to be left out than before; `path` is where they are, or the run.
    pub fn check_heldout(&self, path: &Path, checksum: &Option<String>) -> Result<()> {
        if *checksum == self.heldout_checksum {
            return Ok(());
        }
        let name = |checksum: &Option<String>| checksum.as_ref().map_or("none".into(), |sum| format!("checksum {sum}"));
        let (found, expected) = (name(&self.heldout_checksum), name(checksum));
        Err(Error::OtherOrigin { path: path.to_path_buf(), what: "held-out rows", found, expected })
    }
}

/// An input file and its xxh3-128 checksum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputRecord {
    /// Where it lay, or what an array is called.
    pub path: PathBuf,
    /// Rows that took part.
    pub n_rows: usize,
    /// As 32 hexadecimal digits.
    pub checksum: String,
}

impl Recorded {
    /// Reads the `config.toml` of a run.
    pub fn read(path: &Path) -> Result<Recorded> {
        let mut recorded = Recorded::read_unchecked(path)?;
        let (written, found) = (recorded.record.checksum.take(), recorded.checksum());
        if written.as_ref() == Some(&found) {
            return Ok(recorded);
        }
        let written = written.unwrap_or_else(|| "none".into());
        let resume = action(Verb::Resume).with(setting("sweeps").to("N"));
        let fit = action(Verb::Fit).with(setting("config").to(path.display())).with(setting("out").to("NEW"));
        let problem = format!(
            "damaged or changed since the fit: the checksum of settings and record is {found}, but {written} is written in \
             it; put it back ({resume} makes a run longer), or make a run of what it says now: {fit}"
        );
        Err(Error::malformed(path, problem))
    }

    /// Gives a `config.toml` that was changed by hand its checksum.
    pub fn seal(path: &Path) -> Result<()> {
        let mut recorded = Recorded::read_unchecked(path)?;
        recorded.record.checksum = None;
        write_atomically(path, recorded.to_toml().as_bytes())
    }

    /// The same whatever checksum is written in it.
    pub(crate) fn read_unchecked(path: &Path) -> Result<Recorded> {
        let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
        let wrong = |problem: String| Error::Config { path: path.to_path_buf(), problem };
        let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let record = table.remove(RECORD);
        // The format is looked at before the rest, which another format may lay out in another way.
        let format = record.as_ref().and_then(|record| record.get("format")).and_then(toml::Value::as_integer);
        if let Some(found) = format.filter(|found| *found != i64::from(FORMAT)) {
            return Err(Error::OtherFormat { path: path.into(), found: found.to_string(), supported: FORMAT });
        }
        let plain = |error: toml::de::Error| wrong(error.to_string().trim_end().to_string());
        let settings = table.try_into().map_err(plain)?;
        let record = record.ok_or_else(|| wrong("has no [record]: it was not written by a fit".into()))?;
        Ok(Recorded { settings, record: record.try_into().map_err(plain)? })
    }

    /// As `config.toml` holds it.
    pub fn to_toml(&self) -> String {
        #[derive(Serialize)]
        struct Last<'a> {
            record: &'a Record,
        }
        let record = Record { checksum: Some(self.checksum()), ..self.record.clone() };
        let record = toml::to_string(&Last { record: &record }).expect("a record can be written as TOML");
        format!("{}\n{record}", self.settings.to_toml())
    }

    /// What record and settings are known by. Files may be moved: they are known by what is in them. How often a run is
    /// saved, and how long it may take, decide nothing.
    fn checksum(&self) -> String {
        let Recorded { mut settings, record } = self.clone();
        (settings.input, settings.confounds) = (Vec::new(), Vec::new());
        (settings.runs, settings.heldout, settings.spill) = (None, None, None);
        (settings.checkpoint_every, settings.time_budget, settings.memory) = (String::new(), None, None);
        #[derive(Serialize)]
        struct Last {
            record: Record,
        }
        let record = toml::to_string(&Last { record: Record { checksum: None, ..record } });
        let text = settings.to_toml() + &record.expect("a record can be written as TOML");
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
    }

    /// What was done to the data before sampling, in words.
    pub fn preparation(&self) -> String {
        let Recorded { settings, record } = self;
        let mut parts = Vec::new();
        if record.runs.len() > 1 {
            parts.push(format!("{} runs", record.runs.len()));
        }
        if settings.drop_volumes > 0 {
            parts.push(format!("first {} rows of each run left out", settings.drop_volumes));
        }
        if settings.mask.as_deref() == Some("auto") && record.n_masked_sites.is_none() {
            parts.push("the automatic mask leaves no site out".into());
        }
        if let Some(n) = record.n_masked_sites {
            let how = if settings.mask.as_deref() == Some("auto") { "an automatic mask" } else { "the mask" };
            let n_empty = record.n_empty_sites;
            parts.push(match n_empty {
                0 => format!("{n} of {} sites under {how}", record.n_sites),
                empty if n + empty == record.n_sites => {
                    format!("{n} of {} sites: the others are NaN in all rows and left out", record.n_sites)
                }
                _ => format!("{n} of {} sites under {how}, without {n_empty} that are NaN in all rows", record.n_sites),
            });
        }
        match settings.center.unwrap_or_default() {
            Centering::None => {}
            Centering::Site => parts.push("site means subtracted in each run".into()),
            Centering::Row => parts.push("row means subtracted".into()),
            Centering::Both => parts.push("site means (in each run) and row means subtracted".into()),
        }
        if !record.covariates.is_empty() {
            parts.push(format!("regressed out in each run: {}", record.covariates.join(", ")));
        }
        if settings.scale && record.noise.is_none() {
            parts.push("sites divided by their standard deviation".into());
        }
        if record.n_missing_cells > 0 {
            parts.push(format!("{} cells were not observed", record.n_missing_cells));
        }
        if !record.empty_rows.is_empty() {
            parts.push(format!("{} rows without any value left out", record.empty_rows.len()));
        }
        parts.join("; ")
    }

    /// A digest of everything that decides the chain and what is accumulated from it, for checkpoints: not how long it runs.
    pub fn fingerprint(&self) -> String {
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(self.deciding().to_toml().as_bytes()))
    }

    /// The settings and the record with everything blanked that does not decide the chain or what is accumulated from it.
    pub fn deciding(&self) -> Recorded {
        let Recorded { mut settings, mut record } = self.clone();
        settings.sweeps = 0;
        settings.until = Until::Sweeps;
        settings.time_budget = None;
        settings.checkpoint_every = String::new();
        settings.chains = 0;
        settings.input = Vec::new();
        settings.heldout = None;
        (settings.spill, settings.memory) = (None, None);
        // The record knows these by what is in them.
        settings.noise = String::new();
        settings.confounds = Vec::new();
        settings.runs = None;
        settings.mask = None;
        settings.melodic = false;
        settings.background = None;
        settings.report = PageSize::Auto;
        settings.axes = None;
        record.version = String::new();
        record.window = None;
        record.inputs.iter_mut().for_each(|input| input.path = PathBuf::new());
        record.runs.iter_mut().for_each(|run| run.name = String::new());
        record.graphs.iter_mut().for_each(|graph| graph.path = PathBuf::new());
        // Follow from the data.
        record.n_empty_sites = 0;
        record.noise_is_white_since = None;
        record.sum_of_squares = None;
        Recorded { settings, record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(settings: Settings) -> Recorded {
        let record = Record {
            version: "1".into(),
            format: FORMAT,
            n_rows: 3,
            n_sites: 2,
            structure: "path(2)".into(),
            theta: vec!["a".into()],
            data_scale: 0.1,
            inputs: vec![InputRecord { path: "a.npy".into(), n_rows: 3, checksum: "x".into() }],
            images: false,
            runs: vec![NamedRun { name: "a".into(), n_rows: 3 }],
            covariates: Vec::new(),
            side_checksums: Vec::new(),
            heldout_checksum: None,
            n_masked_sites: None,
            mask_checksum: None,
            n_empty_sites: 0,
            n_missing_cells: 0,
            empty_rows: vec![1],
            graphs: Vec::new(),
            sum_of_squares: Some(2.5),
            noise: None,
            noise_checksum: None,
            noise_is_white_since: None,
            streams: Vec::new(),
            window: None,
            checksum: None,
        };
        Recorded { settings, record }
    }

    #[test]
    fn what_is_written_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        let whole = recorded(Settings { burn_in: Some(3), thin: Some(1), ..Settings::default() });
        std::fs::write(&path, whole.to_toml()).unwrap();
        assert_eq!(Recorded::read(&path).unwrap(), whole);
        assert_eq!(Settings::read(&path).unwrap(), whole.settings, "the record is left aside");
        std::fs::write(&path, whole.settings.to_toml()).unwrap();
        assert!(Recorded::read(&path).unwrap_err().to_string().contains("has no [record]"));
        for (what, other) in
            [("burn-in = 3", "burn-in = 4"), ("n_rows = 3", "n_rows = 4"), ("sweeps = 1000", "sweeps = 900")]
        {
            assert!(whole.to_toml().contains(what), "{what} in {}", whole.to_toml());
            std::fs::write(&path, whole.to_toml().replacen(what, other, 1)).unwrap();
            let error = Recorded::read(&path).unwrap_err().to_string();
            assert!(error.contains("damaged or changed"), "{error}");
        }
        std::fs::write(&path, whole.to_toml().replace("\"60s\"", "\"7m\"")).unwrap();
        assert_eq!(Recorded::read(&path).unwrap().settings.checkpoint_every, "7m");
        let other = whole.to_toml().replace(&format!("format = {FORMAT}"), "format = 1");
        std::fs::write(&path, other).unwrap();
        assert!(matches!(Recorded::read(&path), Err(Error::OtherFormat { .. })));
    }

    #[test]
    fn fingerprints_see_what_decides_the_chain_only() {
        let base = recorded(Settings::default());
        let same = Settings { sweeps: 7000, checkpoint_every: "1s".into(), ..Settings::default() };
        let other = Settings { seed: 1, ..Settings::default() };
        let shown = Settings { report: PageSize::Light, axes: Some("x".into()), ..Settings::default() };
        assert_eq!(base.fingerprint(), recorded(same).fingerprint());
        assert_eq!(base.fingerprint(), recorded(shown).fingerprint());
        // Runs of builds without these settings can be resumed.
        assert!(!["report", "axes"].iter().any(|key| base.settings.to_toml().contains(key)));
        assert_ne!(base.fingerprint(), recorded(other).fingerprint());
    }
}
