//! One chain: which sweeps are kept, and the step that advances it.

pub mod init;
pub mod posterior;
mod smoothness;
pub mod sweep;

pub use posterior::Posterior;

use crate::error::{Error, Result};
use crate::kernels::{Kernel, Phase, Turn};
use crate::model::{Model, State};
use crate::numeric::linalg::Real;
use crate::rng::Streams;
use crate::spectral::Projections;
use sweep::SweepInfo;

/// How long a chain runs and what it keeps. Sweeps count from 1.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Of its random streams.
    pub seed: u64,
    /// From 1.
    pub chain: u32,
    /// How many there are in all.
    pub sweeps: u64,
    /// Sweeps left out at the start.
    pub burn_in: u64,
    /// Every so many sweeps after burn-in one is kept.
    pub thin: u64,
    /// What a sweep does, in order.
    pub kernels: Vec<Kernel>,
}

impl Schedule {
    /// Whether a sweep counts for the posterior: after burn-in, every thin-th.
    pub fn keeps(&self, sweep: u64) -> bool {
        sweep > self.burn_in && (sweep - self.burn_in).is_multiple_of(self.thin)
    }

    /// How many sweeps are kept up to and including `sweep`.
    pub fn n_kept(&self, sweep: u64) -> u64 {
        sweep.saturating_sub(self.burn_in) / self.thin
    }

    /// The streams of one sweep.
    pub fn streams(&self, sweep: u64) -> Streams {
        Streams { seed: self.seed, chain: self.chain, sweep }
    }
}

/// A state on its way.
pub struct Chain<R> {
    /// Where it stands.
    pub state: State<R>,
    /// What the last pass over the data has left for the updates of rows.
    pub projections: Projections<R>,
    /// Sweeps done.
    pub sweep: u64,
}

impl<R: Real> Chain<R> {
    /// A chain that stands after `sweep` sweeps.
    pub fn new(state: State<R>, sweep: u64) -> Chain<R> {
        Chain { state, projections: Projections::default(), sweep }
    }

    /// One more sweep.
    pub fn step(&mut self, model: &Model<R>, schedule: &Schedule) -> Result<SweepInfo> {
        let next = self.sweep + 1;
        let phase = if next <= schedule.burn_in { Phase::BurnIn } else { Phase::Sampling };
        let turn = Turn { streams: schedule.streams(next), phase };
        let info = sweep::run(&schedule.kernels, model, &mut self.state, &mut self.projections, &turn);
        self.sweep = next;
        self.check_finite(&info)?;
        Ok(info)
    }

    fn check_finite(&self, info: &SweepInfo) -> Result<()> {
        let diverged = |what| Err(Error::Diverged { sweep: self.sweep, what });
        let positive = |x: f64| x > 0.0 && x.is_finite();
        if !info.squared_residual.is_finite() {
            return diverged("the residual");
        }
        if !positive(self.state.noise_variance) {
            return diverged("the noise variance");
        }
        if !self.state.ln_theta.iter().all(|x| x.is_finite()) {
            return diverged("theta");
        }
        if !self.state.weight_precisions.iter().all(|nu| positive(*nu)) {
            return diverged("a weight precision");
        }
        if !positive(self.state.ibp_strength) || !positive(self.state.ibp_repulsion) {
            return diverged("a parameter of the buffet process");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_sweeps_are_counted_as_they_are_kept() {
        let schedule = Schedule { seed: 0, chain: 1, sweeps: 100, burn_in: 13, thin: 4, kernels: vec![] };
        let mut kept = 0;
        for sweep in 1..=100 {
            kept += u64::from(schedule.keeps(sweep));
            assert_eq!(kept, schedule.n_kept(sweep));
        }
        assert!(schedule.keeps(17) && !schedule.keeps(13));
    }
}
