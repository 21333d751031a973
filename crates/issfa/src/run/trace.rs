//! The trace: one row a sweep, in the user's units, as `trace.csv`.

use crate::chain::sweep::SweepInfo;
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::model::{Model, State};
use crate::numeric::files::{begin_anew, cut, sync_file, write_atomically};
use crate::numeric::linalg::Real;
use crate::numeric::table::{Format, Row};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const TABLE: Format = Format { separator: ',', remedy: "" };

/// The columns of a trace; between them stand those of theta.
const BEFORE_THETA: [&str; 7] =
    ["chain", "sweep", "seconds", "n_features", "n_shared", "n_activations", "noise_variance"];
const AFTER_THETA: [&str; 8] = [
    "ibp_strength",
    "ibp_repulsion",
    "ln_likelihood",
    "theta_accepted",
    "births",
    "deaths",
    "proposals",
    "heldout_residual",
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
    pub fn new<R: Real>(model: &Model<R>, state: &State<R>, info: &SweepInfo, units: UserUnits) -> TraceRow {
        let n_cells = model.n_cells();
        let noise = units.noise_variance(state.noise_variance);
        let fit = info.squared_residual / state.noise_variance;
        let unique = info.of(Kernel::UniqueFeatures);
        TraceRow {
            chain: 0,
            sweep: 0,
            seconds: 0.0,
            n_features: state.n_features(),
            n_shared: state.loadings.n_shared(),
            n_activations: state.loadings.n_active(),
            noise_variance: noise,
            theta: state.theta().into_iter().map(|t| units.theta(t)).collect(),
            ibp_strength: state.ibp_strength,
            ibp_repulsion: state.ibp_repulsion,
            ln_likelihood: -0.5 * (n_cells * (2.0 * std::f64::consts::PI * noise).ln() + fit),
            theta_accepted: info.of(Kernel::Theta).accepted > 0,
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
        ];
        head.into_iter().chain(theta).chain(tail).collect()
    }

    fn read(row: Row, n_theta: usize) -> Result<TraceRow> {
        Ok(TraceRow {
            chain: row.get("chain")?,
            sweep: row.get("sweep")?,
            seconds: row.get("seconds")?,
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

/// Appends rows to `trace.csv`.
pub struct TraceWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl TraceWriter {
    /// Starts a new trace.
    pub fn create(path: &Path, n_theta: usize) -> Result<TraceWriter> {
        let file = begin_anew(path)?;
        let mut writer = TraceWriter { path: path.to_path_buf(), file: BufWriter::new(file) };
        writer.write(&TABLE.line(&TraceRow::columns(n_theta)))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Goes on with a trace, dropping exactly the rows after `sweep`.
    pub fn reopen(path: &Path, sweep: u64) -> Result<TraceWriter> {
        let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
        let mut length = 0;
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let number = line.split(',').nth(1).and_then(|cell| cell.parse::<u64>().ok());
            let complete = line.ends_with('\n') && (at == 0 || number.is_some_and(|number| number <= sweep));
            if !complete {
                break;
            }
            length += line.len();
        }
        let file = cut(path, length as u64)?;
        Ok(TraceWriter { path: path.to_path_buf(), file: BufWriter::new(file) })
    }

    /// Adds a row, which may stay in memory for a while.
    pub fn push(&mut self, row: &TraceRow) -> Result<()> {
        self.write(&TABLE.line(&row.cells()))
    }

    /// Hands all rows to the system.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(Error::write(&self.path))
    }

    /// Waits until the disk has all rows.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        sync_file(self.file.get_ref(), &self.path)
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.file.write_all(text.as_bytes()).map_err(Error::write(&self.path))
    }
}

/// Reads a whole trace. A last line that was cut off is left out.
pub fn read(path: &Path) -> Result<Vec<TraceRow>> {
    let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    let table = TABLE.parse(path, whole)?;
    let n_theta = (1..).take_while(|&p| table.has(&theta_column(p))).count();
    table.rows().map(|row| TraceRow::read(row, n_theta)).collect()
}

/// Copies the rows up to and including `sweep` under the number of another chain.
pub fn copy_as(from: &Path, to: &Path, chain: u32, sweep: u64) -> Result<()> {
    let text = std::fs::read_to_string(from).map_err(Error::read(from))?;
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    let mut copy = String::with_capacity(whole.len());
    for (at, line) in whole.split_inclusive('\n').enumerate() {
        let (_, rest) = line.split_once(',').unwrap_or_default();
        let number = rest.split(',').next().and_then(|cell| cell.parse::<u64>().ok());
        if at == 0 {
            copy += line;
        } else if number.is_some_and(|number| number <= sweep) {
            copy += &format!("{chain},{rest}");
        }
    }
    write_atomically(to, copy.as_bytes())
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
        (1..=5).for_each(|sweep| writer.push(&row(sweep)).unwrap());
        writer.flush().unwrap();
        assert_eq!(read(&path).unwrap(), (1..=5).map(row).collect::<Vec<_>>());
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"1,6,0.2").unwrap();
        assert_eq!(read(&path).unwrap().len(), 5, "a torn line is left out");
        let mut writer = TraceWriter::reopen(&path, 3).unwrap();
        writer.push(&TraceRow { heldout_residual: Some(0.5), ..row(4) }).unwrap();
        writer.flush().unwrap();
        let rows = read(&path).unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[3].heldout_residual, Some(0.5));
        assert_eq!(rows[2], row(3));
    }
}
