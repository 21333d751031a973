//! Everything a user can get wrong or a machine can refuse, one variant each, with the values in it.

pub mod mention;

pub use mention::{Action, Mention, Setting, Verb, action, mentions, reworded, setting};
use std::path::{Path, PathBuf};

/// The library's result.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure a user can act on. Our own mistakes are assertions, not variants.
// The fields are what their names and the messages say.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },

    /// A file is not what its name or place says it is.
    #[error("{}: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },

    /// A cell of a text table is not a number. Lines and columns count from 1.
    #[error(
        "{}: line {line}, column {column}: '{text}' is not a number; write a number there (a header is allowed only as the \
         first line){}",
        path.display(),
        or_leave_out(*is_of_data, *column)
    )]
    NotANumber { path: PathBuf, line: usize, column: usize, text: String, is_of_data: bool },

    /// A value is NaN or infinite. Rows and sites count from 0.
    #[error(
        "{}: row {row}, site {site}{place} is {value}; every cell of the data must be a finite number: fill the cell or \
         leave the row out{}",
        path.display(),
        or_impute(*value)
    )]
    NonFinite { path: PathBuf, row: usize, site: usize, place: String, value: f64 },

    /// Two inputs, or an input and a run, have different numbers of sites.
    #[error("{}: has {found} sites a row, but {expected} are expected ({because})", path.display())]
    SitesDiffer { path: PathBuf, found: usize, expected: usize, because: String },

    /// Two inputs, or an input and a run, have as many sites on different grids.
    #[error(
        "{}: has the grid {found}, but {expected} is expected ({because}); turn the array's axes round to match",
        path.display()
    )]
    GridsDiffer { path: PathBuf, found: String, expected: String, because: String },

    /// Two images have their voxels in different places.
    #[error(
        "{}: its voxels do not lie where those of {} do; bring the images into one space first, on one grid. Its affine is\n\
         {found}\nbut in {} it is\n{expected}",
        path.display(),
        first.display(),
        first.display()
    )]
    AffinesDiffer { path: PathBuf, found: String, first: PathBuf, expected: String },

    /// A pattern given as an input matches no file.
    #[error(
        "{}: no file matches this pattern; check the folder and the name (*, ? and [..] are understood in the file's name \
         only, not in folders)",
        pattern.display()
    )]
    NothingMatches { pattern: PathBuf },

    /// The sizes written in a structure make another number of sites than the data have.
    #[error(
        "the structure {structure} has {product} sites, but a row of {} has {n_sites}; its sizes must have the product \
         {n_sites} (a graph whose last sites have no edges takes its size from {})",
        path.display(),
        setting("grid")
    )]
    StructureMismatch { structure: String, product: usize, path: PathBuf, n_sites: usize },

    /// The grid has another number of sites than the data.
    #[error(
        "the grid {grid} has {product} sites, but a row of {} has {n_sites}; give {} with a product of {n_sites}",
        path.display(),
        setting("grid")
    )]
    GridMismatch { grid: String, product: usize, path: PathBuf, n_sites: usize },

    /// An expression (structure, curve, grid) cannot be read; `position` counts characters from 0.
    #[error("{problem}\n  {text}\n  {}^", " ".repeat(*position))]
    Expression { text: String, position: usize, problem: String },

    /// A setting or parameter has a value it cannot have. The name is its key, as in `burn-in`; two are joined by a comma.
    #[error("{name} = {value}: {problem}")]
    Setting { name: String, value: String, problem: String },

    /// A TOML file has a wrong key, type or syntax. The problem is in the words of the TOML reader, without mentions.
    #[error("{}: {problem}", path.display())]
    Config { path: PathBuf, problem: String },

    /// The output folder is already there.
    #[error(
        "{} exists already; choose another {}, or add {} to replace it",
        path.display(),
        setting("out"),
        setting("overwrite").to(true)
    )]
    OutputExists { path: PathBuf },

    /// Another process writes to the folder.
    #[error("{} is in use by {by}; wait until it ends", path.display())]
    InUse { path: PathBuf, by: String },

    /// A file that is to be read lies where results would take its place.
    #[error(
        "{} is read by this command and lies in {}, where it would be replaced; move it, or choose another {}",
        input.display(),
        out.display(),
        setting("out")
    )]
    InputInOutput { input: PathBuf, out: PathBuf },

    /// A folder given as a run or simulation lacks a file that every one has.
    #[error("{} is not a {kind}: it has no {missing}", path.display())]
    NotA { kind: &'static str, path: PathBuf, missing: &'static str },

    /// A run folder, checkpoint or draw was written in another format.
    #[error(
        "{}: written in format {found}, but this version reads format {supported}; use the version of issfa that wrote it, \
         or fit again",
        path.display()
    )]
    OtherFormat { path: PathBuf, found: String, supported: u32 },

    /// A checkpoint belongs to other data or settings.
    #[error(
        "{}: belongs to other {what} ({found} there, {expected} now); resume with what the run was made from, or fit again",
        path.display()
    )]
    OtherOrigin { path: PathBuf, what: &'static str, found: String, expected: String },

    /// Ranks of one job that do not have the same before them.
    #[error(
        "rank {rank} has another {what} than rank 0 ({found} there, {expected} on rank 0); start all ranks with one \
         command, one installation and the same files"
    )]
    RanksDiffer { rank: usize, what: String, found: String, expected: String },

    /// Ranks of one job that no longer agree on the state of the chain.
    #[error(
        "rank {rank} does not agree with rank 0 on the state after sweep {sweep}; run all ranks on processors of one kind. \
         The last checkpoint is sound: {} goes on from it",
        action(Verb::Resume)
    )]
    RanksDiverged { rank: usize, sweep: u64 },

    /// One run alone cannot be merged.
    #[error("only {} is given to be merged; name two runs or more", run.display())]
    TooFewRuns { run: PathBuf },

    /// A run is named twice among those to be merged.
    #[error("{} and {} are the same folder; name each run once", first.display(), second.display())]
    SameRunTwice { first: PathBuf, second: PathBuf },

    /// The folder of a merged run would change one of the runs that it is made of.
    #[error(
        "{} and {}, a run to be merged, lie one in the other; choose another {}",
        setting("out").to(out.display()),
        run.display(),
        setting("out")
    )]
    OutputIsInput { out: PathBuf, run: PathBuf },

    /// Runs to be merged are not of the same data and settings.
    #[error(
        "{} and {} are runs of different {what}: {name} is {} in the first, but {} in the second; only runs that differ by \
         their seed are merged: {} makes another such run",
        first.display(),
        second.display(),
        values[0],
        values[1],
        another_like(first)
    )]
    RunsDiffer { first: PathBuf, second: PathBuf, what: &'static str, name: String, values: Box<[String; 2]> },

    /// Runs to be merged went on until they had settled, and did so in different windows of sweeps.
    #[error(
        "{} keeps what comes after sweep {}, but {} what comes after sweep {}: they settled at different looks, and neither can \
         be brought to the window of the other; chains that settle together are those of one run: {}",
        first.display(),
        left_out[0],
        second.display(),
        left_out[1],
        together(first, *n_chains)
    )]
    WindowsDiffer { first: PathBuf, second: PathBuf, left_out: [u64; 2], n_chains: u32 },

    /// Runs to be merged hold the same chain.
    #[error(
        "{} and {} have the same seed: both hold chain {chain} of seed {seed}, the same draws twice; leave one of them out, \
         or fit it again with another {}",
        first.display(),
        second.display(),
        setting("seed")
    )]
    SameChainTwice { first: PathBuf, second: PathBuf, seed: u64, chain: u32 },

    /// Chains to be merged have done different numbers of sweeps.
    #[error(
        "{} stands at sweep {first_sweep}, but {} at sweep {second_sweep}; chains of one run have the same length: {remedy}",
        first.display(),
        second.display()
    )]
    UnevenChains { first: PathBuf, first_sweep: u64, second: PathBuf, second_sweep: u64, remedy: String },

    /// The results of a run are older than its checkpoint, or it lacks what newer builds record.
    #[error("{}: {problem}; {} writes it", path.display(), action(Verb::Resume).on(run.display()))]
    ResultsBehind { path: PathBuf, run: PathBuf, problem: &'static str },

    /// The data do not fit into memory.
    #[error(
        "{what} needs about {} of memory, but {} are available; use fewer rows or sites, {}, {} (fit keeps the data on \
         disk), or a larger machine",
        bytes(*needed),
        bytes(*available),
        setting("precision").to("f32"),
        setting("spill").to("DIR")
    )]
    TooLittleMemory { what: String, needed: u64, available: u64 },

    /// The system refuses memory.
    #[error(
        "the system gives no {} of memory for {what}; end other programs, raise the limit (ulimit -v), use fewer rows or \
         sites, or {}",
        bytes(*n_bytes),
        setting("spill").to("DIR")
    )]
    NoRoom { what: String, n_bytes: u64 },

    /// A file could not be written.
    #[error("cannot write {}: {source}; what was complete before is untouched", path.display())]
    Write { path: PathBuf, source: std::io::Error },

    /// Whoever watches asked for a stop before the chains began.
    #[error("stopped while the data were being read; nothing was written")]
    Stopped,

    /// The sampler met a number that is not finite, or features that leave more than there was.
    #[error(
        "sweep {sweep}: {what}; the last checkpoint is kept. Use {}, take large means out ({}), and check the data for extreme \
         values",
        setting("precision").to("f64"),
        setting("center").to("site")
    )]
    Diverged { sweep: u64, what: String },

    /// The data have means that single precision cannot hold beside what varies.
    #[error(
        "site means hold all but {share:.1e} of the sum of squares, more than single precision can hold beside the rest; use \
         {} or {}",
        setting("center").to("site"),
        setting("precision").to("f64")
    )]
    NeedsDouble { share: f64 },
}

impl Error {
    /// Whether the mistake lies in what the user gave (exit code 2) rather than in the running (exit code 1).
    pub fn is_wrong_use(&self) -> bool {
        let while_running = matches!(self, Error::Write { .. } | Error::NoRoom { .. } | Error::Stopped);
        !while_running && !matches!(self, Error::Diverged { .. } | Error::RanksDiverged { .. })
    }

    /// The settings and actions that the advice in this error names.
    pub fn remedies(&self) -> Vec<Mention> {
        match self {
            Error::Config { .. } => Vec::new(),
            Error::Setting { problem, .. } => mentions(problem),
            _ => mentions(&self.to_string()),
        }
    }

    /// The error with every setting and action in other words; where there are none for it, it stays as it is.
    pub fn reworded(&self, words: impl Fn(&Mention) -> Option<String>) -> String {
        match self {
            Error::Config { .. } => self.to_string(),
            Error::Setting { name, value, problem } => {
                let in_words = |key: &str| words(&Mention::Setting(setting(key))).unwrap_or_else(|| key.to_string());
                let names = name.split(", ").map(in_words).collect::<Vec<_>>().join(", ");
                format!("{names} = {value}: {}", reworded(problem, words))
            }
            _ => reworded(&self.to_string(), words),
        }
    }

    /// A read failure of `path`, for `map_err`.
    pub fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Read { path: path.to_path_buf(), source }
    }

    /// A write failure of `path`, for `map_err`.
    pub fn write(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
        move |source| Error::Write { path: path.to_path_buf(), source }
    }

    /// A malformed file.
    pub fn malformed(path: &Path, problem: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_path_buf(), problem: problem.into() }
    }

    /// A file that cannot be read or is not what it should be, with what can be done about it.
    pub fn with_remedy(self, remedy: impl std::fmt::Display) -> Error {
        match self {
            Error::Malformed { path, problem } => Error::Malformed { path, problem: format!("{problem}; {remedy}") },
            Error::Read { path, source } => Error::malformed(&path, format!("cannot be read ({source}); {remedy}")),
            other => other,
        }
    }

    /// An expression that cannot be read; `position` counts characters from 0.
    pub fn expression(text: &str, position: usize, problem: impl Into<String>) -> Error {
        Error::Expression { text: text.to_string(), position, problem: problem.into() }
    }

    /// A setting out of its range, by its key.
    pub fn setting(name: &str, value: impl ToString, problem: impl Into<String>) -> Error {
        Error::Setting { name: name.into(), value: value.to_string(), problem: problem.into() }
    }
}

/// The advice for a cell that is not a number.
fn or_impute(value: f64) -> String {
    match value.is_nan() {
        true => format!(
            ", or {} takes NaN for a cell that was not observed, or {} leaves such sites out",
            setting("missing").to("impute"),
            setting("mask").to("FILE|auto")
        ),
        false => String::new(),
    }
}

/// The advice for a column of data with words in it.
fn or_leave_out(is_of_data: bool, column: usize) -> String {
    let columns = setting("columns").to(format!("^{column}"));
    if is_of_data { format!(", or leave the column out of the data with {columns}") } else { String::new() }
}

/// A fit of the same data with the same settings as a run, but another seed.
fn another_like(run: &Path) -> Action {
    let config = run.join("config.toml");
    action(Verb::Fit).with(setting("config").to(config.display())).with(setting("seed").to("N"))
}

/// A fit of the same data with the same settings as a run, but so many chains.
fn together(run: &Path, n_chains: u32) -> Action {
    let config = run.join("config.toml");
    action(Verb::Fit).with(setting("config").to(config.display())).with(setting("chains").to(n_chains))
}

/// A byte count for people: `6.3 GB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a program might: `missing` is a parameter called MISSING.
    fn shouted(mention: &Mention) -> Option<String> {
        match mention {
            Mention::Setting(setting) => Some(setting.key.to_uppercase()),
            Mention::Action(_) => None,
        }
    }

    #[test]
    fn remedies_are_data() {
        let error = Error::OutputExists { path: "run".into() };
        let expected = [setting("out"), setting("overwrite").to(true)].map(Mention::Setting);
        assert_eq!(error.remedies(), expected);
        let error = Error::ResultsBehind { path: "run/x".into(), run: "run".into(), problem: "is old" };
        assert_eq!(error.remedies(), [Mention::Action(action(Verb::Resume).on("run"))]);
    }

    #[test]
    fn errors_are_reworded() {
        let error = Error::setting("detrend, confounds", "`seed`", format!("leave {} out", setting("confounds")));
        assert_eq!(error.to_string(), "detrend, confounds = `seed`: leave `confounds` out");
        assert_eq!(error.reworded(shouted), "DETREND, CONFOUNDS = `seed`: leave CONFOUNDS out");
        assert_eq!(error.remedies(), [Mention::Setting(setting("confounds"))]);
        let error = Error::Config { path: "a.toml".into(), problem: "unknown field `x`, expected `grid`".into() };
        assert_eq!(error.reworded(shouted), error.to_string());
        assert!(error.remedies().is_empty());
    }
}
