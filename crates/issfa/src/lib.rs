//! Infinite structured sparse factor analysis: an exact sampler that works in the spectral domain.
//!
//! Observations `Y` (rows on a grid of sites) are explained as `Y = (A o Z) S + E`: smooth features `S`, weights `A`,
//! sparse activations `Z` whose number of columns is learned, white noise `E`. The library has no command line, prints
//! nothing, and needs no system library.
//!
//! # A tour
//!
//! ```
//! use issfa::chain::{Chain, Schedule};
//! use issfa::kernels::Kernel;
//! use issfa::model::{InverseGammaPrior, Model, Priors, simulate};
//! use issfa::rng::{Purpose, Streams};
//! use issfa::structure::{Curve, Spectrum, expression};
//!
//! // A structure (an orthonormal basis with eigenvalues) and a curve give the prior precision of every mode.
//! let structure = expression::build(Some("path(6) x path(5)"), None)?;
//! let spectrum = Spectrum::new(&structure, &Curve::parse("q")?);
//! let noise = InverseGammaPrior { shape: 6.0, scale: 5.0 };
//! let priors = Priors { noise, ..Priors::default_for(spectrum.n_parameters()) };
//!
//! // State and data from the model itself; real data come through `data::load`.
//! let mut stream = Streams::once(1).stream(Purpose::Prior, 0, 0);
//! let truth = simulate::prior_state::<f32>(40, &spectrum, &priors, &mut stream);
//! let data = simulate::data_given_state(&truth, &mut stream);
//!
//! // A model is what stays fixed, a chain is a state on its way; a sweep is a list of kernels.
//! let model = Model::new(data, spectrum, priors);
//! let mut chain = Chain::new(issfa::chain::init::k_means(&model, 5, 1, 1), 0);
//! let kernels = Kernel::DEFAULT_SWEEP.to_vec();
//! let schedule = Schedule { seed: 1, chain: 1, sweeps: 20, burn_in: 10, thin: 1, kernels };
//! for _ in 0..schedule.sweeps {
//!     chain.step(&model, &schedule)?;
//! }
//! assert!(chain.state.noise_variance > 0.0);
//! # Ok::<(), issfa::Error>(())
//! ```
//!
//! # The map
//!
//! | stage | modules |
//! |---|---|
//! | raw input | [`data`] (reading, stacking, centring, layout), [`simulation`] |
//! | basis and eigenvalues | [`structure`] |
//! | tiles of modes, order-free sums, the pass over the data | [`spectral`], over [`comm`], [`workers`], [`linalg`] |
//! | the model | [`model`] |
//! | one update each | [`kernels`], drawing from [`rng`] |
//! | a list of updates; a chain; a fit; fits as one | [`sweep`], [`chain`], [`fit`], [`init`], [`merge`] |
//! | what is kept | [`trace`], [`draws`], [`checkpoint`], [`run_folder`], over [`store`], [`state_io`] |
//! | what it means | [`summary`], [`new_rows`], [`transform`], [`evaluate`], [`pca`] |
//! | what it looks like | [`figures`], [`report`] |
//! | how we know | [`selftest`], [`model::log_joint`] |

pub mod chain;
pub mod comm;
pub mod data;
pub mod error;
pub mod evaluate;
pub mod figures;
pub mod fit;
pub mod kernels;
pub mod model;
pub mod new_rows;
pub mod numeric;
pub mod pca;
pub mod report;
pub mod rng;
pub mod run;
pub mod selftest;
pub mod simulation;
pub mod spectral;
pub mod structure;
pub mod summary;

pub use error::{Error, Result};
