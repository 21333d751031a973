//! Infinite structured sparse factor analysis: an exact sampler that works in the spectral domain.
//!
//! Observations `Y` (rows on a grid of sites) are explained as `Y = (A o Z) S + E`: smooth features `S`, weights `A`,
//! sparse activations `Z` whose number of columns is learned, white noise `E`. The library has no command line, prints
//! nothing, keeps no global state, and needs no system library.
//!
//! # Fit an array
//!
//! ```
//! use issfa::{Rows, Settings, fit};
//! # let value = |row: usize, site: usize| if row % 3 == 0 { (site as f32 / 5.0).sin() } else { 0.0 }
//! #     + ((row * 7919 + site * 104_729) % 1009) as f32 / 2018.0 - 0.25;
//! # let values: Vec<f32> = (0..40 * 96).map(|at| value(at / 96, at % 96)).collect();
//! # let more_values = values[..5 * 96].to_vec();
//! let rows = Rows::from_values(values, &[8, 12])?; // rows x grid, f32 or f64; or Rows::open(&paths)
//! let fitted = fit(rows, &Settings { sweeps: 60, seed: 1, ..Settings::default() })?;
//! println!("{}", fitted.summary());
//! let features = fitted.features(); // K x 8 x 12; also features_sd, weights, activation, trace, noise, theta
//! assert_eq!(features.shape[1..], [8, 12]);
//! let new = fitted.transform(Rows::from_values(more_values, &[8, 12])?)?; // weights, activation, reconstruction
//! assert_eq!(new.reconstruction.shape, [5, 8, 12]);
//! # Ok::<(), issfa::Error>(())
//! ```
//!
//! Everything that files may bring can come along with an array: [`Rows::with_mask`], [`Rows::with_runs`],
//! [`Rows::with_confounds`], [`Rows::with_heldout`]; NaN is a cell that was not observed where [`Settings::missing`] says
//! so. `examples/fit_array.rs` shows it. [`fit::Session`] is the longer form: progress, a stop from another thread, going
//! on, a run folder, ranks. [`Fitted::open`] and [`Fitted::save`] are the way from and to a run folder.
//!
//! # The map
//!
//! Each module uses only those above it (`tests/layers.rs`).
//!
//! | stage | modules |
//! |---|---|
//! | what a user can get wrong | [`error`] |
//! | raw input | [`data`]: reading, stacking, masks, confounds, centring |
//! | basis and eigenvalues | [`structure`] |
//! | noise that is not white, measured and filtered out | [`noise`] |
//! | tiles of modes, order-free sums, the pass over the data | [`lab::spectral`], over [`comm`], [`lab::numeric`] |
//! | the model; one update each; a chain; for each precision | [`lab::model`], [`lab::kernels`], [`lab::chain`], [`lab::compiled`] |
//! | settings, record, folder, checkpoints, draws, trace | [`run`] |
//! | what was found; new rows | [`summary`], [`new_rows`] |
//! | from rows to a fitted model | [`mod@fit`] |
//! | how good it is, what it looks like | [`simulation`], [`evaluate`], [`report`] |
//! | which settings | [`choose`] |
//! | how we know | [`selftest`], [`lab::model::log_joint`] |

#![warn(missing_docs)]

pub use issfa_base::{comm, data, error, noise, structure};
use issfa_base::{numeric, rng};
use issfa_sampler::{chain, compiled, kernels, model, pca, spectral};

pub mod choose;
pub mod evaluate;
mod evidence;
mod figures;
pub mod fit;
pub mod new_rows;
pub mod report;
pub mod run;
pub mod selftest;
pub mod simulation;
pub mod summary;

pub use data::confounds::Confounds;
pub use data::{Array, Centering, Detrend, Missing, Rows, Values};
pub use error::{Error, Result};
pub use fit::fit;
pub use run::settings::{Precision, Settings};
pub use summary::Fitted;

pub mod lab {
    //! The sampler's parts, for tests, measurements and experiments. They change as the sampler does.
    //!
    //! ```
    //! use issfa::lab::chain::{Chain, Schedule, init};
    //! use issfa::lab::kernels::Kernel;
    //! use issfa::lab::model::{InverseGammaPrior, Model, Priors, simulate};
    //! use issfa::lab::rng::{Purpose, Streams};
    //! use issfa::structure::{Curve, Spectrum, expression};
    //!
    //! // A structure (an orthonormal basis with eigenvalues) and a curve give the prior precision of every mode.
    //! let structure = expression::build(Some("path(6) x path(5)"), None)?;
    //! let spectrum = Spectrum::new(&structure, &Curve::parse("q")?);
    //! let noise = InverseGammaPrior { shape: 6.0, scale: 5.0 };
    //! let priors = Priors { noise, ..Priors::default_for(spectrum.n_parameters()) };
    //!
    //! // State and data from the model itself.
    //! let mut stream = Streams::once(1).stream(Purpose::Prior, 0, 0);
    //! let truth = simulate::prior_state::<f32>(40, &spectrum, &priors, &mut stream);
    //! let data = simulate::data_given_state(&truth, &mut stream);
    //!
    //! // A model is what stays fixed, a chain is a state on its way; a sweep is a list of kernels.
    //! let model = Model::new(data, spectrum, priors);
    //! let mut chain = Chain::new(init::k_means(&model, 5, 1, 1), 0);
    //! let kernels = Kernel::DEFAULT_SWEEP.to_vec();
    //! let schedule = Schedule { seed: 1, chain: 1, sweeps: 20, burn_in: 10, thin: 1, kernels, rounds: 1 };
    //! for _ in 0..schedule.sweeps {
    //!     chain.step(&model, &schedule)?;
    //! }
    //! assert!(chain.state.noise_variance > 0.0);
    //! # Ok::<(), issfa::Error>(())
    //! ```

    pub mod chain {
        //! A chain: its schedule, its sweeps, where it starts, and what is accumulated over kept ones.
        pub use crate::chain::*;
    }
    pub mod compiled {
        //! The sampler as it was compiled for each precision.
        pub use crate::compiled::*;
    }
    pub mod figures {
        //! Figures as SVG and PNG.
        pub use crate::figures::*;
    }
    pub mod kernels {
        //! One update each.
        pub use crate::kernels::*;
    }
    pub mod model {
        //! Priors, state, and the slow log joint that tests every kernel.
        pub use crate::model::*;
    }
    pub mod numeric {
        //! Dense algebra, vector lanes, threads, arrays and tables as bytes.
        pub use crate::numeric::*;
    }
    pub mod pca {
        //! Principal components of the data.
        pub use crate::pca::*;
    }
    pub mod rng {
        //! Random streams keyed by meaning.
        pub use crate::rng::*;
    }
    pub mod spectral {
        //! Tiles of modes, order-free sums, and the pass over the data.
        pub use crate::spectral::*;
    }
}
