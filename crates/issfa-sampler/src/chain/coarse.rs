//! A start from coarse to fine: the model at its smoothest modes alone, for the first sweeps of burn-in.
//!
//! Smooth features live in the modes that the prior lets vary most; there they stand out of the noise, and a sweep costs a
//! fraction. Burn-in is free to look at less than the data; the sweeps that are kept never do.

use super::sweep::SweepInfo;
use super::{Chain, Schedule};
use crate::error::Result;
use crate::kernels::Kernel;
use crate::model::{InverseGammaPrior, Loadings, Model, Priors, State};
use crate::numeric::linalg::Real;
use crate::spectral::{Domain, SpectralData, at_modes};

/// One in so many modes is looked at, about.
pub const SHARE: usize = 8;
/// Fewer modes than this are not worth it.
const LEAST_MODES: usize = 256;
/// The most sweeps that are coarse.
const MOST_SWEEPS: u64 = 20;
/// How often a coarse sweep goes through its kernels: it costs little, and looking for features takes many rounds. Pairs are
/// turned in the last round only: that costs as much as in any sweep.
const ROUNDS: u64 = 3;
/// So many times as many clusters as were asked for are where a coarse start begins: at few modes they cost little, and features
/// that one cluster holds together take long to come apart.
pub const CLUSTERS: usize = 2;
/// Births leave a coarse start with at most one feature for so many rows, or so many where rows are few: where there is more noise
/// at the few modes than was measured, births would go on, and deaths for hundreds of sweeps after.
const ROWS_PER_FEATURE: usize = 4;
const MOST_OF_FEW_ROWS: usize = 60;
/// Prior precisions that differ by less than this share of themselves do not tell modes apart.
const SAME: f64 = 1e-9;

/// How many sweeps are coarse, of a chain with this burn-in: what births and tidying up have of it, two thirds, and not too
/// many.
pub fn n_sweeps(burn_in: u64) -> u64 {
    (burn_in - burn_in / 3).min(MOST_SWEEPS)
}

impl<R: Real> Chain<R> {
    /// [`Chain::coarse_step`], in the precision at hand.
    pub(crate) fn one_generic_coarse_sweep(&mut self, model: &Model<R>, schedule: &Schedule) -> Result<SweepInfo> {
        let often: Vec<Kernel> =
            schedule.kernels.iter().copied().filter(|kernel| *kernel != Kernel::PairRotation).collect();
        self.step_in_rounds(model, schedule, ROUNDS, &often)
    }
}

/// A model at some of the modes of another one.
pub struct Coarse<R> {
    /// At these modes.
    pub model: Model<R>,
    modes: Vec<usize>,
    n_modes: usize,
}

impl<R: Real> Coarse<R> {
    /// The model at its smoothest modes; nothing where there are few modes, where their order means little, or where cells were
    /// not observed: taken for 0 they would make noise of some modes and none of others, and that look like features.
    pub fn of(model: &Model<R>) -> Option<Coarse<R>> {
        if !model.domain.is_whole() {
            return None;
        }
        let prior_mean: Vec<f64> = model.priors.ln_theta.iter().map(|prior| prior.mean.exp()).collect();
        let modes = smoothest(&model.spectrum.precisions(&prior_mean))?;
        let n_modes = model.spectrum.n_modes();
        // A prior that counts for all cells counts for as many times those that are left.
        let share = modes.len() as f64 / n_modes as f64;
        let InverseGammaPrior { shape, scale } = model.priors.noise;
        let noise = InverseGammaPrior { shape: share * shape, scale: share * scale };
        let priors = Priors { noise, ..model.priors.clone() };
        let data = at_modes(&model.data, &modes);
        let coarse = Model {
            max_features: model.max_features.min(MOST_OF_FEW_ROWS.max(model.data.n_rows() / ROWS_PER_FEATURE)),
            birth_rounds: model.birth_rounds,
            row_sweeps: model.row_sweeps,
            theta_step: model.theta_step,
            ..Model::with(data, Domain::Modes, model.spectrum.at_modes(&modes), priors, model.comm.clone())
        };
        Some(Coarse { model: coarse, modes, n_modes })
    }

    /// What this model knows of a state of the whole model. All ranks together.
    pub fn take(&self, state: State<R>, model: &Model<R>) -> State<R> {
        let whole = state.features.everywhere(self.model.comm.as_ref());
        let features = whole.at_modes(&self.modes).part(self.model.data.tiles());
        State { features, loadings: moved(&state.loadings, &model.data, &self.model.data), ..state }
    }

    /// A state as it is stored, on rank 0 alone: at all modes, 0 at those that are not here.
    pub fn gathered(&self, state: &State<R>) -> Option<State<R>> {
        let whole = state.gathered(self.model.data.sharing())?;
        Some(State { features: whole.features.spread_to(&self.modes, self.n_modes), ..whole })
    }

    /// A state that the whole model can go on from. All ranks together.
    pub fn give_back(&self, state: State<R>, model: &Model<R>) -> State<R> {
        let coarse = state.features.everywhere(self.model.comm.as_ref());
        let whole = coarse.spread_to(&self.modes, self.n_modes);
        let features = model.domain.own_part(whole, model.data.tiles());
        State { features, loadings: moved(&state.loadings, &self.model.data, &model.data), ..state }
    }
}

/// The loadings of the rows that are here of other data: there are as many, but ranks may hold others.
fn moved<R: Real>(loadings: &Loadings, from: &SpectralData<R>, to: &SpectralData<R>) -> Loadings {
    if from.rows_here() == to.rows_here() && !from.layout().cuts_rows() && !to.layout().cuts_rows() {
        return loadings.clone();
    }
    loadings.everywhere(from.sharing()).part(to.rows_here())
}

/// The modes of least precision, in their own order, about one in [`SHARE`]; cut where precisions differ. Nothing where there
/// is no such place between a quarter of that number and twice it.
fn smoothest(precisions: &[f64]) -> Option<Vec<usize>> {
    let wanted = precisions.len() / SHARE;
    if wanted < LEAST_MODES {
        return None;
    }
    let mut order: Vec<usize> = (0..precisions.len()).collect();
    order.sort_by(|&a, &b| precisions[a].total_cmp(&precisions[b]).then(a.cmp(&b)));
    let differs = |n: &usize| precisions[order[*n]] > (1.0 + SAME) * precisions[order[n - 1]];
    let below = (wanted / 4..=wanted).rev().find(differs);
    let n = below.or_else(|| (wanted..=2 * wanted).find(differs))?;
    order.truncate(n);
    order.sort_unstable();
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::{Curve, Spectrum, expression};

    #[test]
    fn the_stage_depends_on_burn_in_alone() {
        assert_eq!([0, 1, 2, 3, 15, 40, 59, 60, 500].map(n_sweeps), [0, 1, 2, 2, 10, 20, 20, 20, 20]);
    }

    fn chosen(structure: &str, factors: Option<Vec<f64>>) -> Option<Vec<usize>> {
        let structure = expression::build(Some(structure), None).unwrap();
        let mut spectrum = Spectrum::new(&structure, &Curve::default());
        if let Some(factors) = factors {
            spectrum = spectrum.with_factors(factors);
        }
        smoothest(&spectrum.precisions(&vec![1.0; spectrum.n_parameters()]))
    }

    #[test]
    fn the_smoothest_modes_are_chosen_where_their_order_means_something() {
        assert_eq!(chosen("path(2048)", None), Some((0..256).collect()));
        // Where the noise is strong, less is to be seen.
        let loud_at_first = (0..2048).map(|mode| if mode < 1000 { 1e4 } else { 1.0 }).collect();
        assert_eq!(chosen("path(2048)", Some(loud_at_first)), Some((1000..1256).collect()));
        let square = chosen("path(64) x path(64)", None).unwrap();
        assert!((450..=512).contains(&square.len()) && square.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(square.contains(&0) && square.contains(&(64 * 20)) && !square.contains(&(64 * 40 + 40)));
        assert_eq!(chosen("wavelet(4096,haar)", None).map(|modes| modes.len()), Some(512));
        // The means of 512 groups; one group, no structure or few modes tell nothing.
        assert_eq!(chosen(&format!("groups({})", vec!["8"; 512].join(",")), None).map(|modes| modes.len()), Some(512));
        for flat in ["groups(4096)", "iid(4096)", "path(2047)"] {
            assert_eq!(chosen(flat, None), None, "{flat}");
        }
    }
}
