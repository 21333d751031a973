//! What the library above calls of the sampler, compiled here for each precision: a generic function is compiled where it is
//! called, and all of the sampler would be once more in that crate.

use crate::chain::coarse::Coarse;
use crate::chain::posterior::{Posterior, Shown, UnitImage, unit_images};
use crate::chain::sweep::SweepInfo;
use crate::chain::{Chain, Schedule, init};
use crate::comm::Comm;
use crate::data::Observations;
use crate::data::preprocess::Preprocessing;
use crate::error::Result;
use crate::infer::scatter::Scatter;
use crate::infer::{self, Effort, Known, RowMeans};
use crate::kernels::{Info, Kernel, Turn, features};
use crate::model::{Model, Priors, State};
use crate::noise::RowNoise;
use crate::numeric::linalg::Real;
use crate::pca::{self, Components};
use crate::rng::Streams;
use crate::spectral::load::{self, Loaded, Place};
use crate::spectral::{Domain, FeatureSpectra, Projections, SpectralData, weighted_rows};
use crate::structure::{Spectrum, Structure};
use std::sync::Arc;

macro_rules! sampled {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $out:ty = $generic:expr;)*) => {
        /// A number type that the sampler has been compiled for.
        pub trait Sampled: Real {
            $($(#[$doc])* fn $name($($argument: $kind),*) -> $out;)*
        }
        sampled!(for f32: $(fn $name($($argument: $kind),*) -> $out = $generic;)*);
        sampled!(for f64: $(fn $name($($argument: $kind),*) -> $out = $generic;)*);
    };
    (for $real:ty: $(fn $name:ident($($argument:ident: $kind:ty),*) -> $out:ty = $generic:expr;)*) => {
        impl Sampled for $real {
            $(fn $name($($argument: $kind),*) -> $out {
                $generic($($argument),*)
            })*
        }
    };
}

sampled! {
    /// [`Chain::step`].
    fn one_sweep(chain: &mut Chain<Self>, model: &Model<Self>, schedule: &Schedule) -> Result<SweepInfo>
        = Chain::one_generic_sweep;
    /// [`Chain::coarse_step`].
    fn one_coarse_sweep(chain: &mut Chain<Self>, model: &Model<Self>, schedule: &Schedule) -> Result<SweepInfo>
        = Chain::one_generic_coarse_sweep;
    /// [`Kernel::update`].
    fn update(
        kernel: Kernel, model: &Model<Self>, state: &mut State<Self>, projections: &mut Projections<Self>, turn: &Turn,
    ) -> Info = Kernel::update;
    /// [`init::apart`].
    fn apart(model: &Model<Self>, n_clusters: usize, seed: u64, chain: u32) -> State<Self> = init::apart;
    /// [`init::empty`].
    fn empty(model: &Model<Self>) -> State<Self> = init::empty;
    /// [`Coarse::of`].
    fn coarse_of(model: &Model<Self>) -> Option<Coarse<Self>> = Coarse::of;
    /// [`Coarse::take`].
    fn coarse_take(coarse: &Coarse<Self>, state: State<Self>, model: &Model<Self>) -> State<Self> = Coarse::take;
    /// [`Coarse::give_back`].
    fn coarse_give_back(coarse: &Coarse<Self>, state: State<Self>, model: &Model<Self>) -> State<Self> = Coarse::give_back;
    /// [`Coarse::gathered`].
    fn coarse_gathered(coarse: &Coarse<Self>, state: &State<Self>) -> Option<State<Self>> = Coarse::gathered;
    /// [`Model::with`].
    fn model(
        data: SpectralData<Self>, domain: Domain, spectrum: Spectrum, priors: Priors, comm: Arc<dyn Comm>,
    ) -> Model<Self> = Model::with;
    /// [`features::conditional_means`].
    fn conditional_means(model: &Model<Self>, state: &State<Self>) -> FeatureSpectra<Self> = features::conditional_means;
    /// [`features::is_drawn_given_inside`].
    fn is_drawn_given_inside(model: &Model<Self>, state: &State<Self>, streams: &Streams) -> bool
        = features::is_drawn_given_inside;
    /// [`Posterior::add`].
    fn add_to(posterior: &mut Posterior, state: &State<Self>, shown: &Shown, exceed: f64) -> () = Posterior::add;
    /// [`unit_images`].
    fn images(spectra: &FeatureSpectra<Self>, shown: &Shown) -> Vec<UnitImage> = unit_images;
    /// [`load::all_rows`].
    fn all_rows(
        observations: &Observations, structure: &Arc<Structure>, preprocessing: &Preprocessing, noise: Option<RowNoise>,
    ) -> Result<Loaded<Self>> = load::all_rows;
    /// [`load::training_rows`].
    fn training_rows(
        observations: &Observations, structure: &Arc<Structure>, preprocessing: &Preprocessing, noise: Option<RowNoise>,
        place: Place<Self>, comm: &Arc<dyn Comm>, band: usize,
    ) -> Result<Loaded<Self>> = load::training_rows;
    /// [`weighted_rows`].
    fn weighted(data: &SpectralData<Self>, weights: &[Vec<(usize, f64)>]) -> FeatureSpectra<Self> = weighted_rows;
    /// [`infer::infer`].
    fn infer(
        rows: &Loaded<Self>, known: &Known<Self>, effort: Effort, streams: &Streams, keys: &[u64],
    ) -> (Vec<RowMeans>, Projections<Self>) = infer::infer;
    /// [`infer::mean_squared_residual`].
    fn mean_squared_residual(
        heldout: &Loaded<Self>, state: &State<Self>, tails: Option<f64>, features: &FeatureSpectra<Self>, streams: &Streams,
    ) -> f64 = infer::mean_squared_residual;
    /// [`Scatter::new`].
    fn scatter(state: &State<Self>, precisions: &[f64]) -> Scatter<Self> = Scatter::new;
    /// [`pca::components`].
    fn components(data: &SpectralData<Self>, n: usize) -> Components<Self> = pca::components;
    /// [`pca::scores`].
    fn scores(components: &Components<Self>, data: &SpectralData<Self>) -> Vec<f64> = pca::scores;
    /// [`pca::smaller_gram`].
    fn smaller_gram(data: &SpectralData<Self>) -> Vec<f64> = pca::smaller_gram;
}

impl<R: Sampled> Chain<R> {
    /// One more sweep.
    pub fn step(&mut self, model: &Model<R>, schedule: &Schedule) -> Result<SweepInfo> {
        R::one_sweep(self, model, schedule)
    }

    /// One more sweep of a coarse start.
    pub fn coarse_step(&mut self, model: &Model<R>, schedule: &Schedule) -> Result<SweepInfo> {
        R::one_coarse_sweep(self, model, schedule)
    }
}
