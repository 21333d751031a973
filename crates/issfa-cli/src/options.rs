//! Options that several commands share.

use crate::words;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use issfa::Error;
use issfa::data::grid::parse_grid;
use issfa::data::read::expand_inputs;
use issfa::data::{Rows, memory};
use issfa::new_rows::transform::{CenterNew, NewConfounds, NewRowSettings};
use issfa::structure::{Curve, Shelf, Spectrum, Structure, expression};
use issfa::summary::Fitted;
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::path::{Path, PathBuf};

type Result<T, E = Error> = std::result::Result<T, E>;

/// More threads than any machine has cores.
const MOST_THREADS: usize = 4096;

/// Options of every command.
#[derive(Args, Clone)]
pub struct Common {
    /// Say nothing but errors and results
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Threads to use (default: all cores); results do not depend on it
    #[arg(long, global = true, value_name = "N")]
    pub threads: Option<usize>,
    /// How progress is shown
    #[arg(long, global = true, value_enum, default_value = "auto")]
    pub progress: ProgressStyle,
    /// Replace results that are already there
    #[arg(long, global = true)]
    pub overwrite: bool,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressStyle {
    /// A bar on a terminal, plain lines elsewhere
    Auto,
    /// A bar
    Bar,
    /// A line every few seconds
    Plain,
    /// One JSON object a sweep, on standard output
    Json,
}

impl Common {
    /// Sizes the thread pool.
    pub fn start_threads(&self) -> Result<()> {
        let Some(n) = self.threads.or_else(crate::ranks::usual_threads) else { return Ok(()) };
        if !(1..=MOST_THREADS).contains(&n) {
            return Err(Error::setting("threads", n, format!("must be at least 1 and at most {MOST_THREADS}")));
        }
        rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build_global()
            .map_err(|error| Error::setting("threads", n, error.to_string()))
    }

    /// Prints a line for people, unless they want quiet.
    pub fn say(&self, text: &str) {
        if !self.quiet && self.progress != ProgressStyle::Json {
            out!("{}", words::text(text));
        }
    }
}

impl Common {
    /// Prints a line about something that is probably not meant, unless they want quiet.
    pub fn warn(&self, text: &str) {
        if !self.quiet {
            err!("warning: {}", words::text(text));
        }
    }

    /// Refuses a file to be written that is already there, unless it may be replaced.
    pub fn check_new_file(&self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Err(Error::malformed(path, "is a folder; give the name of a file to write"));
        }
        match path.exists() && !self.overwrite {
            true => Err(Error::OutputExists { path: path.to_path_buf() }),
            false => Ok(()),
        }
    }
}

/// Options that make a prior of features: where they live and how smooth they are.
#[derive(Args)]
pub struct PriorOptions {
    /// Sites along each axis, where the structure leaves them out
    #[arg(long)]
    grid: Option<String>,
    /// The spectral curve: q, q^2, "q^2 + q", "q^2 + q'", axes
    #[arg(long, default_value = "q")]
    pub curve: String,
    /// The curve's parameters, ridge then roughness
    #[arg(long)]
    theta: Option<String>,
}

/// A prior of features.
pub struct Prior {
    pub structure: Structure,
    pub spectrum: Spectrum,
    pub theta: Vec<f64>,
}

impl PriorOptions {
    /// Builds the structure and lays the curve over it, for work that holds `n_images` images at a time; `usual` gives
    /// theta where it is left out.
    pub fn build(
        &self,
        structure: Option<&str>,
        shelf: &Shelf,
        n_images: usize,
        usual: impl FnOnce(&Spectrum) -> Vec<f64>,
    ) -> Result<Prior> {
        let grid = self.grid.as_deref().map(parse_grid).transpose()?;
        let structure = expression::build_with(structure, grid.as_deref(), shelf)?;
        let needed = structure.n_sites().saturating_mul(n_images.saturating_mul(8));
        memory::check(&format!("{n_images} images of {}", structure.expression()), needed as u64)?;
        let spectrum = Spectrum::new(&structure, &Curve::parse(&self.curve)?);
        let given = self.theta.as_deref().map(|text| numbers("theta", text)).transpose()?;
        let theta = given.unwrap_or_else(|| usual(&spectrum));
        spectrum.check_theta(&theta)?;
        Ok(Prior { structure, spectrum, theta })
    }
}

/// A parser of the library's choices by the names that they have in files of settings.
pub fn named<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).map(|name| {
        let known: Result<T, serde::de::value::Error> = T::deserialize(name.as_str().into_deserializer());
        known.expect("the names are those of the choices")
    })
}

/// Reads numbers joined by commas.
pub fn numbers(name: &str, text: &str) -> Result<Vec<f64>> {
    let parse = |part: &str| {
        let number = part.trim().parse::<f64>().ok().filter(|x| x.is_finite());
        number.ok_or_else(|| Error::setting(name, text, format!("'{}' is not a number", part.trim())))
    };
    text.split(',').map(parse).collect()
}

/// Reads two numbers joined by a comma.
pub fn pair(name: &str, text: &str) -> Result<[f64; 2]> {
    numbers(name, text)?.try_into().map_err(|_| Error::setting(name, text, "give two numbers joined by a comma"))
}

/// How new rows are read and centred.
#[derive(Args)]
pub struct NewRowOptions {
    /// Centre new rows by the training means (and take trend and confounds off with the training slopes), or by the means
    /// and slopes of each new file
    #[arg(long, value_parser = named::<CenterNew>(&["train", "own"]), default_value = "train")]
    center_new: CenterNew,
    /// Confounds of the new rows, one file each, where the fit had some; or none
    #[arg(long, value_name = "FILE", num_args = 1..)]
    confounds: Vec<PathBuf>,
    /// Leave out the first N rows of each new file (default: as in the fit)
    #[arg(long, value_name = "N")]
    drop_volumes: Option<usize>,
}

impl NewRowOptions {
    /// All files that are read for new rows.
    pub fn files(&self, new: &[PathBuf]) -> Result<Vec<PathBuf>> {
        Ok([expand_inputs(new)?, self.confounds.clone()].concat())
    }

    /// The rows, read as those of the fit, and how they are to be prepared.
    pub fn rows(&self, files: &[PathBuf], fitted: &Fitted) -> Result<(Rows, NewRowSettings)> {
        let confounds = match &self.confounds[..] {
            [] => NewConfounds::OfRows,
            [word] if word == Path::new("none") => NewConfounds::Without,
            files => NewConfounds::Files(expand_inputs(files)?),
        };
        let (center, drop_volumes) = (self.center_new, self.drop_volumes);
        let how = NewRowSettings { center, confounds, drop_volumes, ..NewRowSettings::default() };
        Ok((Rows::open_as(&expand_inputs(files)?, &fitted.settings().reading()?)?, how))
    }
}
