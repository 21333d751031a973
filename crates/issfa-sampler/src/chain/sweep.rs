//! One sweep: a list of kernels run once, in order, with what each did and how long it took.

use crate::kernels::{Info, Kernel, Turn, unique_features};
use crate::model::{Model, State};
use crate::numeric::linalg::Real;
use crate::spectral::Projections;
use std::time::Instant;

/// What happened in a sweep, kernel by kernel.
#[derive(Clone, Debug, Default)]
pub struct SweepInfo {
    /// One a kernel.
    pub steps: Vec<Step>,
    /// `|Y - W S|^2` after the feature draw, with the noise variance drawn from it.
    pub squared_residual: f64,
}

/// One kernel's part.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Which.
    pub kernel: Kernel,
    /// What it did.
    pub info: Info,
    /// How long it took.
    pub seconds: f64,
}

impl SweepInfo {
    /// What one kernel did, over all its places in the list.
    pub fn of(&self, kernel: Kernel) -> Info {
        let mut total = Info::default();
        for step in self.steps.iter().filter(|step| step.kernel == kernel) {
            total.proposed += step.info.proposed;
            total.accepted += step.info.accepted;
            total.births += step.info.births;
            total.deaths += step.info.deaths;
        }
        total
    }

    /// Whether a kernel's last proposal was accepted.
    pub fn is_accepted_at_last(&self, kernel: Kernel) -> bool {
        self.steps.iter().rev().find(|step| step.kernel == kernel).is_some_and(|step| step.info.accepted > 0)
    }
}

/// Runs `kernels` once.
pub fn run<R: Real>(
    kernels: &[Kernel],
    model: &Model<R>,
    state: &mut State<R>,
    projections: &mut Projections<R>,
    turn: &Turn,
) -> SweepInfo {
    let mut sweep = SweepInfo { steps: Vec::with_capacity(kernels.len()), squared_residual: f64::NAN };
    if kernels.contains(&Kernel::UniqueFeatures) {
        // A feature that two rows use may be one's alone by then.
        model.data.expect(|| unique_features::rows_to_come(model, state, turn, 2));
    }
    for &kernel in kernels {
        let start = Instant::now();
        let info = kernel.update(model, state, projections, turn);
        if kernel == Kernel::Noise {
            sweep.squared_residual = projections.squared_residual();
        }
        sweep.steps.push(Step { kernel, info, seconds: start.elapsed().as_secs_f64() });
    }
    sweep
}
