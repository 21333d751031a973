//! A fit as a page shows it, also one that is still going on: what its last checkpoints hold, and rows beside what the
//! features make of them.

use super::Fitted;
use super::results::Found;
use crate::chain::posterior::{Posterior, Shown};
use crate::compiled::Sampled;
use crate::data::axes::{AxisPlaces, parse_axes};
use crate::data::nifti::Header;
use crate::data::preprocess::MeansOf;
use crate::error::Result;
use crate::evidence::EvidenceCurve;
use crate::numeric::bytes::Stored;
use crate::numeric::linalg::Real as _;
use crate::run::checkpoint;
use crate::run::folder::Run;
use crate::run::held::Held;
use crate::run::settings::Precision;
use crate::run::trace::TraceRow;
use std::path::Path;

/// What the features of a fit are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Those of its results.
    Results,
    /// Those of the sweeps kept so far.
    Kept,
    /// The state of a sweep of burn-in: what the chain stands at, no result.
    State(u64),
}

/// A row of the fit and what the features make of it, by column of the mask, in the data's units after centring.
#[derive(Clone, Debug)]
pub struct RowSeen {
    /// Its place among the rows of the fit.
    pub row: usize,
    /// What was observed; NaN where nothing was.
    pub observed: Vec<f32>,
    /// The persistent features times the row's mean weights.
    pub explained: Vec<f32>,
}

impl Fitted {
    /// Opens a run folder as it stands now: while a fit is at work there, or after it was stopped in burn-in, features are
    /// those of the last checkpoints. Nothing is written.
    pub fn open_as_it_stands(folder: &Path) -> Result<(Fitted, Standing)> {
        let mut fitted = Fitted::open(folder)?;
        let (burn_in, thin) = (fitted.checked.window.burn_in, fitted.checked.thin);
        let has_kept = |chain: &super::ChainRecord| chain.sweep >= burn_in + thin;
        let has_kept = fitted.chains.iter().any(has_kept);
        if fitted.has_results && has_kept && Held::owner(folder).is_none() {
            return Ok((fitted, Standing::Results));
        }
        let standing = match fitted.settings().precision {
            Precision::F32 if !fitted.is_promoted()? => fitted.take_checkpoints::<f32>()?,
            _ => fitted.take_checkpoints::<f64>()?,
        };
        Ok((fitted, standing))
    }

    /// Whether the fit computes in double precision though it was not asked to.
    fn is_promoted(&self) -> Result<bool> {
        let first = Run::open(&self.name())?.started_chains().first().copied().unwrap_or(1);
        self.stored(first).map(|stored| stored.text("precision").is_ok_and(|name| name == f64::NAME))
    }

    fn stored(&self, chain: u32) -> Result<Stored> {
        checkpoint::open(&Run::chain_folder(&self.name(), chain))
    }

    fn take_checkpoints<R: Sampled>(&mut self) -> Result<Standing> {
        let (fingerprint, sizes) = (self.recorded().fingerprint(), self.record.sizes());
        let with_reconstruction = self.settings().reconstruct;
        let mut kept = Vec::new();
        let chains = Run::open(&self.name())?.started_chains();
        for &chain in chains.iter().take(self.chains.len()) {
            let posterior = checkpoint::posterior(&self.stored(chain)?, &fingerprint, &sizes, with_reconstruction)?;
            kept.extend(Some(posterior).filter(|posterior| posterior.n_kept > 0));
        }
        let (posterior, standing) = if kept.is_empty() {
            let now = checkpoint::decode::<R>(&self.stored(chains[0])?, &fingerprint, &sizes, with_reconstruction)?;
            let levels: Vec<f64> = (0..self.record.n_rows).map(|row| self.row_level(row)).collect();
            let mut of_state = Posterior::new(None);
            R::add_to(
                &mut of_state,
                &now.state,
                &Shown { row_levels: &levels, ..self.shown() },
                self.settings().exceed,
            );
            (of_state, Standing::State(now.sweep))
        } else {
            (Posterior::joined(kept.into_iter()), Standing::Kept)
        };
        self.found = Found { features: self.results().persistent(&posterior), synchrony: Vec::new() }.into();
        Ok(standing)
    }

    /// Where the sites lie, for images.
    pub fn space(&self) -> Option<&Header> {
        self.space.as_ref().filter(|space| space.grid[..] == *self.structure.grid())
    }

    /// The mean of the training rows, by column of the mask.
    pub fn mean_row(&self) -> Vec<f32> {
        self.preprocessing.overall.means.iter().map(|&x| x as f32).collect()
    }

    /// The eigenvalues of the data and the evidence for their number, where they are known.
    pub fn evidence(&self) -> Option<&EvidenceCurve> {
        self.evidence.as_ref()
    }

    /// What the axes of the grid are called and where they lie, where that was said.
    pub fn axes(&self) -> Option<Vec<AxisPlaces>> {
        let text = self.settings().axes.as_deref()?;
        parse_axes(text, self.structure.grid().len()).ok()
    }

    /// Sweeps left out at the start.
    pub fn burn_in(&self) -> u64 {
        self.checked.window.burn_in
    }

    /// Sweeps of each chain, done or still to be done; until chains have settled, those before the next look.
    pub fn planned_sweeps(&self) -> u64 {
        self.checked.window.sweeps
    }

    /// One row a sweep, chain by chain.
    pub fn traces(&self) -> Vec<&[TraceRow]> {
        self.chains.iter().map(|chain| &chain.trace[..]).collect()
    }

    /// Rows of the fit beside what its features make of them; reads the inputs again, which must be those of the fit.
    pub fn rows_seen(&self, rows: &[usize]) -> Result<Vec<RowSeen>> {
        let observations = self.training_rows(None)?;
        let features = &self.found().features;
        let mut seen = Vec::new();
        for &row in rows {
            observations.for_each_chunk_of(row..row + 1, &mut |run, first, values| {
                let covariates = observations.covariates().row(first);
                self.preprocessing.apply(values, covariates, MeansOf::Run(run));
                self.preprocessing.to_units(values);
                let mut explained = vec![0.0; values.len()];
                for (mean, weights) in features.means.iter().zip(&features.weights) {
                    explained.iter_mut().zip(mean).for_each(|(sum, x)| *sum += weights[row] * x);
                }
                let observed = values.iter().map(|&x| x as f32).collect();
                seen.push(RowSeen { row, observed, explained });
                Ok(())
            })?;
        }
        Ok(seen)
    }
}
