//! What the columns of the data are: modes, where whole rows were observed, or sites, where some cells were not.
//!
//! Everything above asks a domain for projections, draws and means and need not know which it is. The two kernels that do
//! something else where cells are missing (births, and the joining of twins) look at it once each.

use super::{FeatureConditional, FeatureSpectra, OneByOne, Pass, Projections, SpectralData, Tiles, Window};
use crate::comm::Comm;
use crate::numeric::linalg::Real;
use crate::rng::Streams;
use crate::structure::Structure;
use std::sync::Arc;

/// What the columns of the data stand for.
#[derive(Clone, Debug)]
pub enum Domain {
    /// Modes: every cell of the grid was observed, and rows are kept as spectra.
    Modes,
    /// Sites: some cells were not observed, and rows are kept as they were given.
    Cells(Window),
}

/// A draw of the features.
#[derive(Clone, Copy)]
pub struct FeatureDraw<'a> {
    /// The law that is drawn from.
    pub conditional: FeatureConditional<'a>,
    /// Where the random numbers come from.
    pub streams: &'a Streams,
    /// What is done where nothing was observed, if there is such a place.
    pub outside: Outside,
}

/// How features are drawn where nothing was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// What was not observed and the features in turn: cheap, but smooth modes that lie outside move little by little.
    InTurn,
    /// As [`Outside::InTurn`], after the features outside were drawn given what they are inside.
    GivenInside,
    /// With the features inside, in one draw.
    Jointly,
}

impl Domain {
    /// Of rows given at some sites (ascending), each with the columns that it lacks.
    pub fn new(structure: &Arc<Structure>, sites: Vec<usize>, holes: Vec<Vec<u32>>) -> Domain {
        let is_whole = sites.len() == structure.n_sites() && holes.iter().all(Vec::is_empty);
        if is_whole { Domain::Modes } else { Domain::Cells(Window::new(structure.clone(), sites, holes)) }
    }

    /// Whether every cell of the grid was observed.
    pub fn is_whole(&self) -> bool {
        matches!(self, Domain::Modes)
    }

    /// The number of cells that were observed.
    pub fn n_cells<R: Real>(&self, data: &SpectralData<R>) -> f64 {
        match self {
            Domain::Modes => data.n_rows() as f64 * data.n_modes() as f64,
            Domain::Cells(window) => window.n_cells(),
        }
    }

    /// Whether a row was observed at a column.
    pub fn is_seen(&self, row: usize, column: usize) -> bool {
        match self {
            Domain::Modes => true,
            Domain::Cells(window) => !window.holes(row).contains(&(column as u32)),
        }
    }

    /// A spectrum as the data's columns show it: itself, or its image at the sites of the window.
    pub fn at_columns(&self, spectrum: Vec<f64>) -> Vec<f64> {
        match self {
            Domain::Modes => spectrum,
            Domain::Cells(window) => window.one_at_columns(spectrum, &mut Vec::new()),
        }
    }

    /// Features as the state keeps them from features at the columns: a start, not an estimate.
    pub fn spectra_of_columns<R: Real>(&self, columns: FeatureSpectra<R>, comm: &dyn Comm) -> FeatureSpectra<R> {
        match self {
            Domain::Modes => columns,
            Domain::Cells(window) => window.spectra_of_columns(&columns.everywhere(comm)),
        }
    }

    /// The part of whole features that a rank keeps: that at its modes, or, under a mask, all.
    pub fn own_part<R: Real>(&self, features: FeatureSpectra<R>, tiles: Tiles) -> FeatureSpectra<R> {
        match self {
            Domain::Modes => features.part(tiles),
            Domain::Cells(_) => features,
        }
    }

    /// Projects the data onto the features as they are.
    pub fn project<R: Real>(&self, pass: &Pass<R>, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        match self {
            Domain::Modes => pass.project(spectra),
            Domain::Cells(window) => window.project(pass, spectra),
        }
    }

    /// Draws all features jointly and projects the data onto them.
    pub fn draw<R: Real>(&self, pass: &Pass<R>, draw: &FeatureDraw, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        match self {
            Domain::Modes => pass.draw(&draw.conditional, draw.streams, spectra),
            Domain::Cells(window) => window.draw(pass, draw, spectra),
        }
    }

    /// Whether [`Outside::GivenInside`] takes less time than [`Outside::Jointly`] where the prior has these precisions.
    pub fn is_quick_outside<R: Real>(&self, precisions: &[f64], streams: &Streams) -> bool {
        match self {
            Domain::Modes => true,
            Domain::Cells(window) => window.is_quick_outside::<R>(precisions, streams),
        }
    }

    /// Draws one feature after the other and projects the data onto them; of whole rows only.
    pub fn draw_one_by_one<R: Real>(
        &self,
        pass: &Pass<R>,
        conditional: &OneByOne,
        streams: &Streams,
        spectra: &mut FeatureSpectra<R>,
    ) -> Projections<R> {
        assert!(self.is_whole(), "one by one is for complete data");
        pass.draw_one_by_one(conditional, streams, spectra)
    }

    /// The mean of the features' conditional given what was observed.
    pub fn means<R: Real>(&self, pass: &Pass<R>, conditional: &FeatureConditional) -> FeatureSpectra<R> {
        match self {
            Domain::Modes => pass.means(conditional),
            Domain::Cells(window) => window.means(pass, conditional),
        }
    }
}
