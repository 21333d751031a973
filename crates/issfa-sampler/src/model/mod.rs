//! The model: priors, state, loadings, the Indian buffet process, and the slow log joint that tests every kernel.

pub mod ibp;
pub mod log_joint;
pub mod priors;
pub mod simulate;
pub mod state;

pub use crate::spectral::{Entry, Loadings};
pub use priors::{GammaPrior, InverseGammaPrior, NormalPrior, Priors, WeightMeanPrior};
pub use state::State;

use crate::comm::{Comm, Solo};
use crate::numeric::linalg::Real;
use crate::spectral::{Domain, Pass, SpectralData, Window, squared_row_norms};
use crate::structure::Spectrum;
use std::sync::Arc;

/// How the parameters of the spectral curve are updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThetaStep {
    /// An independence proposal at the mode with its Metropolis-Hastings correction, then a random-walk step: exact.
    #[default]
    Mh,
    /// A draw from the normal approximation, uncorrected, as the paper did.
    Laplace,
}

/// Everything that stays fixed while a chain runs.
pub struct Model<R> {
    /// Rows x columns.
    pub data: SpectralData<R>,
    /// What the columns are, and which cells were observed.
    pub domain: Domain,
    /// Norms of the rows of the data.
    pub row_norms: Vec<f64>,
    /// The curve over the modes.
    pub spectrum: Spectrum,
    /// Of all parameters.
    pub priors: Priors,
    /// The truncation of the joint prior of activations, strength and repulsion.
    pub max_features: usize,
    /// Rounds of proposed births and deaths in one sweep.
    pub birth_rounds: u32,
    /// Updates of all activations and weights in one sweep.
    pub row_sweeps: u32,
    /// Under a mask: every so many sweeps, beginning with the first, features are drawn anew outside, one in a few times jointly
    /// with what is inside.
    pub joint_every: u64,
    /// How theta is updated.
    pub theta_step: ThetaStep,
    /// The other processes of the job.
    pub comm: Arc<dyn Comm>,
}

impl<R: Real> Model<R> {
    /// A model with default sampler settings, in one process.
    pub fn new(data: SpectralData<R>, spectrum: Spectrum, priors: Priors) -> Model<R> {
        assert_eq!(data.n_modes(), spectrum.n_modes(), "data and structure have the same modes");
        Model::with(data, Domain::Modes, spectrum, priors, Arc::new(Solo))
    }

    /// A model of data that hold some cells of the grid only.
    pub fn in_window(data: SpectralData<R>, window: Window, spectrum: Spectrum, priors: Priors) -> Model<R> {
        assert_eq!(data.n_modes(), window.sites().len(), "a column for each site of the window");
        Model::with(data, Domain::Cells(window), spectrum, priors, Arc::new(Solo))
    }

    /// A model of whole rows or of some cells, of data that ranks share between them.
    pub fn with(
        data: SpectralData<R>,
        domain: Domain,
        spectrum: Spectrum,
        priors: Priors,
        comm: Arc<dyn Comm>,
    ) -> Model<R> {
        assert_eq!(priors.ln_theta.len(), spectrum.n_parameters(), "a prior for each parameter of the curve");
        let row_norms = squared_row_norms(&data).iter().map(|x| x.sqrt()).collect();
        Model {
            data,
            domain,
            row_norms,
            spectrum,
            priors,
            max_features: usize::MAX,
            birth_rounds: 8,
            row_sweeps: 1,
            joint_every: 20,
            theta_step: ThetaStep::Mh,
            comm,
        }
    }

    /// What a pass over the data reads, given the loadings.
    pub fn pass<'a>(&'a self, loadings: &'a Loadings) -> Pass<'a, R> {
        Pass { data: &self.data, row_norms: &self.row_norms, loadings, comm: self.comm.as_ref() }
    }

    /// The number of cells that inform the noise.
    pub fn n_cells(&self) -> f64 {
        self.domain.n_cells(&self.data)
    }
}
