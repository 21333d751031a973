//! Kept draws with their features in the places of those that were found, for whoever looks at the posterior itself.

use super::fitted::{ChainRecord, Fitted};
use crate::chain::matching::dot;
use crate::chain::posterior::UnitImage;
use crate::compiled::Sampled;
use crate::data::Array;
use crate::data::preprocess::MeansOf;
use crate::error::{Error, Result};
use crate::model::State;
use crate::run::settings::Precision;

/// A kept draw.
#[derive(Clone, Debug, PartialEq)]
pub struct AlignedDraw {
    /// From 1.
    pub chain: u32,
    /// The sweep it is of.
    pub sweep: u64,
    /// The persistent features as this draw has them, of unit norm: K x grid; 0 where it has none, NaN outside of a mask.
    pub features: Array,
    /// Which of them it has.
    pub present: Vec<bool>,
    /// The probed cells without noise, in the data's units; row means, where they were taken off, are left out.
    pub probes: Vec<f64>,
}

/// A cell of the input to be followed over draws.
#[derive(Clone, Copy)]
struct Probe {
    /// Among the rows of the fit; none where the row had no value.
    row: Option<usize>,
    column: usize,
    run: usize,
}

impl Fitted {
    /// All kept draws, chain after chain, with the value of some cells (row of the input and site of the grid).
    pub fn aligned_draws(&self, probes: &[(usize, usize)]) -> Result<Vec<AlignedDraw>> {
        let probes = probes.iter().map(|&probe| self.probe(probe)).collect::<Result<Vec<_>>>()?;
        let mut draws = Vec::new();
        for (chain, number) in self.chains.iter().zip(1..) {
            for at in 0..chain.draws.len() {
                draws.push(match self.settings().precision {
                    Precision::F32 => self.aligned_draw::<f32>(chain, number, at, &probes)?,
                    Precision::F64 => self.aligned_draw::<f64>(chain, number, at, &probes)?,
                });
            }
        }
        Ok(draws)
    }

    fn probe(&self, (row, site): (usize, usize)) -> Result<Probe> {
        let wrong = |problem: String| Error::setting("probes", format!("({row}, {site})"), problem);
        let n_rows = self.found().features.n_input_rows();
        if row >= n_rows {
            return Err(wrong(format!("there are {n_rows} rows, counted from 0")));
        }
        let column = self.mask.sites().iter().position(|inside| *inside == site);
        let column = column.ok_or_else(|| wrong("no such site takes part".into()))?;
        let empty = &self.record.empty_rows;
        let fitted = row - empty.iter().filter(|at| **at < row).count();
        let mut end = 0;
        let run = self.record.runs.iter().position(|run| {
            end += run.n_rows;
            row < end
        });
        Ok(Probe { row: (!empty.contains(&row)).then_some(fitted), column, run: run.unwrap_or(0) })
    }

    fn aligned_draw<R: Sampled>(
        &self,
        chain: &ChainRecord,
        number: u32,
        at: usize,
        probes: &[Probe],
    ) -> Result<AlignedDraw> {
        let state = chain.draws.read::<R>(at)?.state;
        let images = R::images(&state.features, &self.shown());
        let means = &self.found().features.means;
        let mut features = vec![vec![0.0f32; self.mask.n_columns()]; means.len()];
        let mut present = vec![false; means.len()];
        for (image, place) in images.iter().zip(self.places(&images)) {
            let Some(place) = place else { continue };
            let sign = if dot(&image.values, &means[place]) < 0.0 { -1.0 } else { 1.0 };
            features[place] = image.values.iter().map(|x| sign * x).collect();
            present[place] = true;
        }
        let probes = probes.iter().map(|probe| self.value(&state, &images, *probe)).collect();
        Ok(AlignedDraw {
            chain: number,
            sweep: chain.draws.sweep(at)?,
            features: self.on_grid(&features),
            present,
            probes,
        })
    }

    /// What the features of a draw, and the mean of the site, make of a cell.
    fn value<R: Sampled>(&self, state: &State<R>, images: &[UnitImage], probe: Probe) -> f64 {
        let Some(row) = probe.row else { return f64::NAN };
        let share = |entry: &crate::model::Entry| {
            let image = &images[entry.feature];
            entry.weight * image.norm * f64::from(image.values[probe.column])
        };
        let signal = state.loadings.row(row).iter().map(share).sum::<f64>();
        let mean = self.preprocessing.site_means(MeansOf::Run(probe.run)).get(probe.column).copied().unwrap_or(0.0);
        self.row_level(row) * signal + mean
    }
}
