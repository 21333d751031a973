//! The trace: one row a sweep, in the user's units, as `trace.csv`.

use crate::chain::sweep::SweepInfo;
use crate::compiled::Sampled;
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::model::{Model, State};
use crate::numeric::files::{begin_anew, cut, sync_file, write_atomically};
use crate::numeric::table::{Format, Row};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

const TABLE: Format = Format { separator: ',', remedy: "" };

/// The columns of a trace; between them stand those of theta.
const BEFORE_THETA: [&str; 7] =
    ["chain", "sweep", "seconds", "n_features", "n_shared", "n_activations", "noise_variance"];
const AFTER_THETA: [&str; 9] = [
    "ibp_strength",
    "ibp_repulsion",
    "ln_likelihood",
    "theta_accepted",
    "births",
    "deaths",
    "proposals",
    "heldout_residual",
    "n_modes",
];

/// The factors between the sampler's units and the user's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserUnits {
    /// Prepared data are raw data divided by this.
    pub data_scale: f64,
    /// The curve's degree in theta; without one theta is shown in the sampler's units.
    pub degree: Option<f64>,
}

impl UserUnits {
    /// sigma^2 in the user's units.
    pub fn noise_variance(self, value: f64) -> f64 {
        value * self.data_scale.powi(2)
    }

    /// theta in the user's units.
    pub fn theta(self, value: f64) -> f64 {
        self.degree.map_or(value, |degree| value / self.data_scale.powf(2.0 / degree))
    }
}

/// One sweep in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceRow {
    /// From 1.
    pub chain: u32,
    /// From 1.
    pub sweep: u64,
    /// The duration of this sweep.
    pub seconds: f64,
    /// Modes of the grid that it looked at: fewer than all while a start is coarse.
    pub n_modes: usize,
    /// Features after the sweep.
    pub n_features: usize,
    /// Those that several rows use.
    pub n_shared: usize,
    /// Active entries of Z.
    pub n_activations: usize,
    /// sigma^2.
    pub noise_variance: f64,
    /// One a parameter of the curve.
    pub theta: Vec<f64>,
    /// alpha.
    pub ibp_strength: f64,
    /// beta.
    pub ibp_repulsion: f64,
    /// `ln p(Y | W, S, sigma^2)` at the feature draw.
    pub ln_likelihood: f64,
    /// Whether the proposal at the mode was taken.
    pub theta_accepted: bool,
    /// Unique features that came to be.
    pub births: u32,
    /// Unique features that ceased to be.
    pub deaths: u32,
    /// Rows that were proposed other unique features, over all rounds.
    pub proposals: u32,
    /// The mean squared residual of the held-out rows; empty without any.
    pub heldout_residual: Option<f64>,
}

impl TraceRow {
    /// The row of a sweep just done.
    pub fn new<R: Sampled>(model: &Model<R>, state: &State<R>, info: &SweepInfo, units: UserUnits) -> TraceRow {
        let n_cells = model.n_cells();
        let noise = units.noise_variance(state.noise_variance);
        let fit = info.squared_residual / state.noise_variance;
        let unique = info.of(Kernel::UniqueFeatures);
        TraceRow {
            chain: 0,
            sweep: 0,
            seconds: 0.0,
            n_modes: model.spectrum.n_modes(),
            n_features: state.n_features(),
            n_shared: state.loadings.n_shared(),
            n_activations: state.loadings.n_active(),
            noise_variance: noise,
            theta: state.theta().into_iter().map(|t| units.theta(t)).collect(),
            ibp_strength: state.ibp_strength,
            ibp_repulsion: state.ibp_repulsion,
            ln_likelihood: -0.5 * (n_cells * (2.0 * std::f64::consts::PI * noise).ln() + fit),
            theta_accepted: info.is_accepted_at_last(Kernel::Theta),
            births: unique.births,
            deaths: unique.deaths,
            proposals: unique.proposed,
            heldout_residual: None,
        }
    }

    fn columns(n_theta: usize) -> Vec<String> {
        let theta: Vec<String> = (1..=n_theta).map(theta_column).collect();
        let theta = theta.iter().map(String::as_str);
        BEFORE_THETA.into_iter().chain(theta).chain(AFTER_THETA).map(str::to_string).collect()
    }

    fn cells(&self) -> Vec<String> {
        let head = [
            self.chain.to_string(),
            self.sweep.to_string(),
            format!("{:.6}", self.seconds),
            self.n_features.to_string(),
            self.n_shared.to_string(),
            self.n_activations.to_string(),
            format!("{:?}", self.noise_variance),
        ];
        let theta = self.theta.iter().map(|t| format!("{t:?}"));
        let tail = [
            format!("{:?}", self.ibp_strength),
            format!("{:?}", self.ibp_repulsion),
            format!("{:?}", self.ln_likelihood),
            u8::from(self.theta_accepted).to_string(),
            self.births.to_string(),
            self.deaths.to_string(),
            self.proposals.to_string(),
            self.heldout_residual.map_or(String::new(), |x| format!("{x:?}")),
            self.n_modes.to_string(),
        ];
        head.into_iter().chain(theta).chain(tail).collect()
    }

    fn read(row: Row, n_theta: usize) -> Result<TraceRow> {
        Ok(TraceRow {
            chain: row.get("chain")?,
            sweep: row.get("sweep")?,
            seconds: row.get("seconds")?,
            n_modes: row.get("n_modes")?,
            n_features: row.get("n_features")?,
            n_shared: row.get("n_shared")?,
            n_activations: row.get("n_activations")?,
            noise_variance: row.get("noise_variance")?,
            theta: (1..=n_theta).map(|p| row.get(&theta_column(p))).collect::<Result<_>>()?,
            ibp_strength: row.get("ibp_strength")?,
            ibp_repulsion: row.get("ibp_repulsion")?,
            ln_likelihood: row.get("ln_likelihood")?,
            theta_accepted: row.get::<u8>("theta_accepted")? == 1,
            births: row.get("births")?,
            deaths: row.get("deaths")?,
            proposals: row.get("proposals")?,
            heldout_residual: row.get_if_any("heldout_residual")?,
        })
    }
}

/// The name of the column of parameter `p`, from 1.
fn theta_column(p: usize) -> String {
    format!("theta_{p}")
}

/// How far a trace goes that a checkpoint relies on, and what it is known by up to there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceMark {
    /// Bytes from the start.
    pub n_bytes: u64,
    /// Of these bytes.
    pub checksum: String,
}

/// Appends rows to `trace.csv`.
pub struct TraceWriter {
    path: PathBuf,
    file: BufWriter<File>,
    /// Of everything written so far.
    hasher: Xxh3,
    n_bytes: u64,
    /// When others could last see all rows.
    flushed: Instant,
}

/// Others see rows after so long at most.
const UNSEEN: Duration = Duration::from_millis(500);

impl TraceWriter {
    /// Starts a new trace.
    pub fn create(path: &Path, n_theta: usize) -> Result<TraceWriter> {
        let file = begin_anew(path)?;
        let mut writer = TraceWriter::of(path, file, b"");
        writer.write(&TABLE.line(&TraceRow::columns(n_theta)))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Goes on with a trace, dropping exactly what is later than the mark.
    pub fn reopen(path: &Path, mark: &TraceMark) -> Result<TraceWriter> {
        let text = marked(path, mark)?;
        let file = cut(path, mark.n_bytes)?;
        Ok(TraceWriter::of(path, file, text.as_bytes()))
    }

    fn of(path: &Path, file: File, known: &[u8]) -> TraceWriter {
        let mut hasher = Xxh3::new();
        hasher.update(known);
        let n_bytes = known.len() as u64;
        TraceWriter { path: path.to_path_buf(), file: BufWriter::new(file), hasher, n_bytes, flushed: Instant::now() }
    }

    /// Adds a row, which may stay in memory until the next row that comes after half a second.
    pub fn push(&mut self, row: &TraceRow) -> Result<()> {
        self.write(&TABLE.line(&row.cells()))?;
        if self.flushed.elapsed() >= UNSEEN { self.flush() } else { Ok(()) }
    }

    /// Hands all rows to the system.
    pub fn flush(&mut self) -> Result<()> {
        self.flushed = Instant::now();
        self.file.flush().map_err(Error::write(&self.path))
    }

    /// Waits until the disk has all rows.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        sync_file(self.file.get_ref(), &self.path)
    }

    /// How far it goes.
    pub fn mark(&self) -> TraceMark {
        TraceMark { n_bytes: self.n_bytes, checksum: format!("{:032x}", self.hasher.digest128()) }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.hasher.update(text.as_bytes());
        self.n_bytes += text.len() as u64;
        self.file.write_all(text.as_bytes()).map_err(Error::write(&self.path))
    }
}

/// The trace up to a mark; refused where it is shorter or another.
fn marked(path: &Path, mark: &TraceMark) -> Result<String> {
    let mut bytes = std::fs::read(path).map_err(Error::read(path))?;
    let n_bytes = bytes.len() as u64;
    if n_bytes < mark.n_bytes {
        let problem =
            format!("is cut short: {n_bytes} bytes are left of the {} that the checkpoint knows", mark.n_bytes);
        return Err(Error::malformed(path, problem));
    }
    bytes.truncate(mark.n_bytes as usize);
    if format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes)) != mark.checksum {
        return Err(Error::malformed(path, "damaged: its first rows are not those that the checkpoint knows"));
    }
    String::from_utf8(bytes).map_err(|_| Error::malformed(path, "damaged: is not text"))
}

/// Refuses a trace that is not the one marked.
pub fn check(path: &Path, mark: &TraceMark) -> Result<()> {
    marked(path, mark).map(drop)
}

/// Reads a trace up to a mark.
pub fn read(path: &Path, mark: &TraceMark) -> Result<Vec<TraceRow>> {
    let table = TABLE.parse(path, &marked(path, mark)?)?;
    let n_theta = (1..).take_while(|&p| table.has(&theta_column(p))).count();
    table.rows().map(|row| TraceRow::read(row, n_theta)).collect()
}

/// Copies a trace up to a mark under the number of another chain; returns the mark of the copy.
pub fn copy_as(from: &Path, to: &Path, chain: u32, mark: &TraceMark) -> Result<TraceMark> {
    let text = marked(from, mark)?;
    let mut copy = String::with_capacity(text.len());
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let (_, rest) = line.split_once(',').unwrap_or_default();
        if at == 0 {
            copy += line;
        } else {
            copy += &format!("{chain},{rest}");
        }
    }
    write_atomically(to, copy.as_bytes())?;
    let checksum = format!("{:032x}", xxhash_rust::xxh3::xxh3_128(copy.as_bytes()));
    Ok(TraceMark { n_bytes: copy.len() as u64, checksum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    fn row(sweep: u64) -> TraceRow {
        TraceRow {
            chain: 1,
            sweep,
            seconds: 0.25,
            n_modes: 100,
            n_features: 3,
            n_shared: 2,
            n_activations: 17,
            noise_variance: 1.0 / 3.0,
            theta: vec![1e-9, 2.5e20],
            ibp_strength: 0.1,
            ibp_repulsion: 2.0,
            ln_likelihood: -1234.5,
            theta_accepted: true,
            births: 1,
            deaths: 2,
            proposals: 9,
            heldout_residual: None,
        }
    }

    #[test]
    fn rows_come_back_and_reopening_drops_only_what_is_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let mut writer = TraceWriter::create(&path, 2).unwrap();
        (1..=3).for_each(|sweep| writer.push(&row(sweep)).unwrap());
        let third = writer.mark();
        (4..=5).for_each(|sweep| writer.push(&row(sweep)).unwrap());
        writer.flush().unwrap();
        let fifth = writer.mark();
        assert_eq!(read(&path, &fifth).unwrap(), (1..=5).map(row).collect::<Vec<_>>());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"1,6,0.2").unwrap();
        assert_eq!(read(&path, &fifth).unwrap().len(), 5, "a torn line is left out");
        let mut writer = TraceWriter::reopen(&path, &third).unwrap();
        assert_eq!(writer.mark(), third);
        writer.push(&TraceRow { heldout_residual: Some(0.5), ..row(4) }).unwrap();
        writer.flush().unwrap();
        let rows = read(&path, &writer.mark()).unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[3].heldout_residual, Some(0.5));
        assert_eq!(rows[2], row(3));
    }

    #[test]
    fn a_trace_that_is_shorter_or_another_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let mut writer = TraceWriter::create(&path, 2).unwrap();
        (1..=4).for_each(|sweep| writer.push(&row(sweep)).unwrap());
        writer.flush().unwrap();
        let (mark, bytes) = (writer.mark(), std::fs::read(&path).unwrap());
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(TraceWriter::reopen(&path, &mark).err().unwrap().to_string().contains("is cut short"));
        let mut other = bytes.clone();
        other[bytes.len() - 3] ^= 1;
        std::fs::write(&path, &other).unwrap();
        assert!(read(&path, &mark).unwrap_err().to_string().contains("damaged"));
        assert!(TraceWriter::reopen(&path, &mark).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), other, "what is refused is left as it is");
    }
}
