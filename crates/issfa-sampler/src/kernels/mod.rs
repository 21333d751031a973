//! The kernels: after burn-in each leaves the posterior unchanged. They see neither files nor clocks nor each other.
//!
//! A new kernel is one new file with an `update`, one arm in [`Kernel`], a purpose in [`crate::rng::Purpose`], and
//! its ratio identity and invariance test.

pub mod features;
pub mod few_rows;
pub mod ibp_repulsion;
pub mod ibp_strength;
mod images;
pub mod local_precisions;
pub mod metropolis;
pub mod noise;
pub mod pair_rotation;
pub mod rescale;
pub mod shared_activations;
pub mod sign_flip;
pub mod theta;
pub mod tidy_up;
pub mod unique_features;
pub mod unmix;
pub mod weight_means;
pub mod weight_precisions;

use crate::model::{Model, NormalPrior, State};
use crate::numeric::linalg::Real;
use crate::rng::{Purpose, Streams};
use crate::spectral::Projections;
use std::ops::Range;

/// Where in a chain a kernel runs.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The random streams of the sweep.
    pub streams: Streams,
    /// Before or after burn-in.
    pub phase: Phase,
}

/// Before or after burn-in.
///
/// During burn-in rows are updated more often, and theta stays where it is while there are no features. In its first
/// two thirds births are proposed at a least rate and `unmix` and `tidy_up` do their work: what leads to a good start
/// sooner. What they added and is not wanted can die in the last third. After burn-in every kernel leaves the
/// posterior unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first two thirds of burn-in: a good start is looked for.
    BurnIn,
    /// The last third of it: what is drawn is still thrown away.
    Settling,
    /// What is drawn may be kept.
    Sampling,
}

/// What a kernel did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Info {
    /// Changes that were proposed.
    pub proposed: u32,
    /// Those that were accepted.
    pub accepted: u32,
    /// Features that came to be.
    pub births: u32,
    /// Features that ceased to be.
    pub deaths: u32,
}

/// The updates a sweep may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    /// All features turned at once to where rows use them most sparsely, in the first two thirds of burn-in only \[M21\].
    Unmix,
    /// All features, jointly \[M2\].
    Features,
    /// The features one after the other \[M2\]; of whole rows only.
    FeaturesOneByOne,
    /// The noise variance \[M3\].
    Noise,
    /// Activations and weights of features that several rows use \[M4\].
    SharedActivations,
    /// Pairs of features turned in the plane they span \[M16\].
    PairRotation,
    /// Mixtures pulled apart and copies joined, in the first two thirds of burn-in only.
    TidyUp,
    /// Rows that join or leave features that few rows use \[M20\].
    FewRows,
    /// Births and deaths of features that one row uses \[M5\].
    UniqueFeatures,
    /// The parameters of the spectral curve \[M6\].
    Theta,
    /// Features against weights, along what the likelihood cannot see \[M7\].
    Rescale,
    /// The signs of features, where the prior of their weights tells them apart \[M17\].
    SignFlip,
    /// alpha \[M8\].
    IbpStrength,
    /// beta \[M9\].
    IbpRepulsion,
    /// tau \[M10\].
    WeightMeans,
    /// nu \[M11\].
    WeightPrecisions,
}

impl Kernel {
    /// One sweep, in order.
    pub const DEFAULT_SWEEP: [Kernel; 15] = [
        Kernel::Unmix,
        Kernel::Features,
        Kernel::Noise,
        Kernel::SharedActivations,
        Kernel::PairRotation,
        Kernel::TidyUp,
        Kernel::FewRows,
        Kernel::UniqueFeatures,
        Kernel::Theta,
        Kernel::Rescale,
        Kernel::SignFlip,
        Kernel::IbpStrength,
        Kernel::IbpRepulsion,
        Kernel::WeightMeans,
        Kernel::WeightPrecisions,
    ];

    /// Whether it only looks for a good start, and does nothing after burn-in.
    pub fn is_for_burn_in(self) -> bool {
        matches!(self, Kernel::Unmix | Kernel::TidyUp)
    }

    /// The name in configuration files and summaries.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Unmix => "unmix",
            Kernel::Features => "features",
            Kernel::FeaturesOneByOne => "features_one_by_one",
            Kernel::Noise => "noise",
            Kernel::SharedActivations => "shared_activations",
            Kernel::PairRotation => "pair_rotation",
            Kernel::TidyUp => "tidy_up",
            Kernel::FewRows => "few_rows",
            Kernel::UniqueFeatures => "unique_features",
            Kernel::Theta => "theta",
            Kernel::Rescale => "rescale",
            Kernel::SignFlip => "sign_flip",
            Kernel::IbpStrength => "ibp_strength",
            Kernel::IbpRepulsion => "ibp_repulsion",
            Kernel::WeightMeans => "weight_means",
            Kernel::WeightPrecisions => "weight_precisions",
        }
    }

    /// Applies the kernel once.
    pub fn update<R: Real>(
        self,
        model: &Model<R>,
        state: &mut State<R>,
        projections: &mut Projections<R>,
        turn: &Turn,
    ) -> Info {
        match self {
            Kernel::Unmix => unmix::update(model, state, projections, turn),
            Kernel::Features => features::update(model, state, projections, turn),
            Kernel::FeaturesOneByOne => features::update_one_by_one(model, state, projections, turn),
            Kernel::Noise => noise::update(model, state, projections, turn),
            Kernel::SharedActivations => shared_activations::update(model, state, projections, turn),
            Kernel::PairRotation => pair_rotation::update(model, state, projections, turn),
            Kernel::TidyUp => tidy_up::update(model, state, projections, turn),
            Kernel::FewRows => few_rows::update(model, state, projections, turn),
            Kernel::UniqueFeatures => unique_features::update(model, state, projections, turn),
            Kernel::Theta => theta::update(model, state, turn),
            Kernel::Rescale => rescale::update(model, state, projections, turn),
            Kernel::SignFlip => sign_flip::update(model, state, projections, turn),
            Kernel::IbpStrength => ibp_strength::update(model, state, turn),
            Kernel::IbpRepulsion => ibp_repulsion::update(model, state, turn),
            Kernel::WeightMeans => weight_means::update(model, state, turn),
            Kernel::WeightPrecisions => weight_precisions::update(model, state, turn),
        }
    }
}

/// Makes the projections valid for the state as it is, where they are not.
fn refresh<R: Real>(model: &Model<R>, state: &mut State<R>, projections: &mut Projections<R>) {
    *projections = model.domain.project(&model.pass(&state.loadings), &mut state.features);
}

/// Sums over a feature's active weights, each counted by its local precision (1 for normal weights).
#[derive(Clone, Copy, Debug, Default)]
struct WeightMoments {
    n_active: f64,
    /// Of the local precisions.
    mass: f64,
    sum: f64,
    /// Of `(weight - tau)^2`.
    squares: f64,
}

/// The moments of every feature, with local precisions drawn from streams of `purpose`, one a band of rows. All ranks together.
fn weight_moments<R>(model: &Model<R>, state: &State<R>, streams: &Streams, purpose: Purpose) -> Vec<WeightMoments>
where
    R: Real,
{
    let (n, sharing) = (state.weight_means.len(), model.data.sharing());
    let of_band = |(band, rows): (usize, Range<usize>)| {
        let mut stream = streams.stream(purpose, 0, local_precisions::STREAMS + band as u64);
        let mut moments = vec![0.0; 4 * n];
        for entry in state.loadings.some(rows).iter().flatten() {
            let (feature, weight) = (entry.feature, entry.weight);
            let prior = NormalPrior { mean: state.weight_means[feature], precision: state.weight_precisions[feature] };
            let local = local_precisions::draw(model.priors.weight_tails, prior, Some(weight), &mut stream);
            let moment = &mut moments[4 * feature..4 * feature + 4];
            moment[0] += 1.0;
            moment[1] += local;
            moment[2] += local * weight;
            moment[3] += local * (weight - prior.mean).powi(2);
        }
        moments
    };
    let bands: Vec<Vec<f64>> = sharing.layout().bands_here().map(of_band).collect();
    let sums = sharing.sum_of_bands(4 * n, &bands);
    let of_feature = |&[n_active, mass, sum, squares]: &[f64; 4]| WeightMoments { n_active, mass, sum, squares };
    sums.as_chunks::<4>().0.iter().map(of_feature).collect()
}
