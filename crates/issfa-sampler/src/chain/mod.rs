//! One chain: which sweeps are kept, and the step that advances it.

pub mod coarse;
pub mod init;
pub mod matching;
pub mod moments;
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

/// Rows and sites of so many cells make a sweep of one round; of fewer they are gone through as many times more often, up to most:
/// such sweeps cost little, and features that come and go need many.
const CELLS_OF_ONE_ROUND: usize = 1 << 19;
const MOST_ROUNDS: usize = 8;
/// The streams of a round after the first are those of a sweep that no chain has.
const APART: u64 = 1 << 44;

/// How often a sweep goes through its kernels.
pub fn rounds_for(n_rows: usize, n_sites: usize) -> u64 {
    (CELLS_OF_ONE_ROUND / (n_rows * n_sites).max(1)).clamp(1, MOST_ROUNDS) as u64
}

/// Features that leave more than so many times the data have run away.
const MOST_LEFT: f64 = 4.0;

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
    /// How often it does that.
    pub rounds: u64,
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

    /// Where in the chain a sweep stands.
    pub fn phase(&self, sweep: u64) -> Phase {
        match sweep {
            _ if sweep > self.burn_in => Phase::Sampling,
            _ if sweep > self.burn_in - self.burn_in / 3 => Phase::Settling,
            _ => Phase::BurnIn,
        }
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

    /// [`Chain::step`], in the precision at hand.
    pub(crate) fn one_generic_sweep(&mut self, model: &Model<R>, schedule: &Schedule) -> Result<SweepInfo> {
        self.step_in_rounds(model, schedule, schedule.rounds, &schedule.kernels)
    }

    /// One more sweep, of rounds that all but the last go through the first list of kernels.
    fn step_in_rounds(
        &mut self,
        model: &Model<R>,
        schedule: &Schedule,
        rounds: u64,
        often: &[Kernel],
    ) -> Result<SweepInfo> {
        self.sweep += 1;
        let (mut all, phase) = (SweepInfo::default(), schedule.phase(self.sweep));
        for round in 0..rounds {
            let turn = Turn { streams: schedule.streams(self.sweep + round * APART), phase };
            let kernels = if round + 1 < rounds { often } else { &schedule.kernels };
            let info = sweep::run(kernels, model, &mut self.state, &mut self.projections, &turn);
            self.check_sound(model, &info)?;
            all.steps.extend(info.steps);
            all.squared_residual = info.squared_residual;
        }
        Ok(all)
    }

    /// Refuses numbers that are not finite, and features that leave more than there was. A draw of K features scatters about
    /// what explains T rows best by about K / T of the noise.
    fn check_sound(&self, model: &Model<R>, info: &SweepInfo) -> Result<()> {
        let lost = |what: String| Err(Error::Diverged { sweep: self.sweep, what });
        let diverged = |what: &str| lost(format!("{what} is not finite"));
        let positive = |x: f64| x > 0.0 && x.is_finite();
        if !info.squared_residual.is_finite() {
            let is_whole = model.domain.is_whole();
            return diverged(if is_whole { "the residual" } else { "the residual, or a feature outside of the mask," });
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
        let total: f64 = model.row_norms.iter().map(|norm| norm * norm).sum();
        let scatter = 1.0 + self.state.n_features() as f64 / model.data.n_rows().max(1) as f64;
        if total > 0.0 && info.squared_residual > MOST_LEFT * scatter * total {
            let times = info.squared_residual / total;
            return lost(format!("what the features leave of the data is {times:.1e} times the data"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_sweeps_are_counted_as_they_are_kept() {
        let schedule = Schedule { seed: 0, chain: 1, sweeps: 100, burn_in: 13, thin: 4, kernels: vec![], rounds: 1 };
        let mut kept = 0;
        for sweep in 1..=100 {
            kept += u64::from(schedule.keeps(sweep));
            assert_eq!(kept, schedule.n_kept(sweep));
        }
        assert!(schedule.keeps(17) && !schedule.keeps(13));
    }

    #[test]
    fn few_cells_are_gone_through_more_often() {
        let rounds = [(61, 12), (800, 120), (1797, 64), (500, 4096), (0, 5), (10_000_000, 10_000_000)]
            .map(|(n, v)| rounds_for(n, v));
        assert_eq!(rounds, [8, 5, 4, 1, 8, 1]);
    }

    #[test]
    fn rounds_are_sweeps_with_streams_of_their_own() {
        let structure = crate::structure::expression::build(Some("path(5)"), None).unwrap();
        let spectrum = crate::structure::Spectrum::new(&structure, &crate::structure::Curve::parse("q").unwrap());
        // The default noise may be of any size: data drawn from it leave the numbers' range.
        let noise = crate::model::InverseGammaPrior { shape: 6.0, scale: 5.0 };
        let priors = crate::model::Priors { noise, ..crate::model::Priors::default_for(spectrum.n_parameters()) };
        let mut stream = Streams::once(1).stream(crate::rng::Purpose::Prior, 0, 0);
        let truth = crate::model::simulate::prior_state::<f64>(20, &spectrum, &priors, &mut stream);
        let model = Model::new(crate::model::simulate::data_given_state(&truth, &mut stream), spectrum, priors);
        let kernels = Kernel::DEFAULT_SWEEP.to_vec();
        let schedule = Schedule { seed: 7, chain: 1, sweeps: 9, burn_in: 0, thin: 1, kernels, rounds: 3 };
        let by_hand = |sweeps: [u64; 3]| {
            let (mut state, mut projections) = (init::empty(&model), Projections::default());
            for sweep in sweeps {
                let turn = Turn { streams: schedule.streams(sweep), phase: Phase::Sampling };
                sweep::run(&schedule.kernels, &model, &mut state, &mut projections, &turn);
            }
            state
        };
        let mut chain = Chain::new(init::empty(&model), 0);
        chain.step(&model, &schedule).unwrap();
        assert_eq!(chain.state.ln_theta, by_hand([1, 1 + APART, 1 + 2 * APART]).ln_theta);
        assert_ne!(chain.state.ln_theta, by_hand([1, 1, 1]).ln_theta, "each draws anew");
    }

    #[test]
    fn a_third_of_burn_in_is_for_settling() {
        let schedule = Schedule { seed: 0, chain: 1, sweeps: 100, burn_in: 9, thin: 4, kernels: vec![], rounds: 1 };
        let phases: Vec<Phase> = (1..=10).map(|sweep| schedule.phase(sweep)).collect();
        assert_eq!(phases[..6], [Phase::BurnIn; 6]);
        assert_eq!(phases[6..9], [Phase::Settling; 3]);
        assert_eq!(phases[9], Phase::Sampling);
        assert_eq!(Schedule { burn_in: 0, ..schedule }.phase(1), Phase::Sampling);
    }

    #[test]
    fn features_that_leave_more_than_there_was_are_refused() {
        use crate::model::Priors;
        use crate::spectral::SpectralData;
        use crate::structure::{Curve, Spectrum, expression};
        let structure = expression::build(Some("path(3)"), None).unwrap();
        let spectrum = Spectrum::new(&structure, &Curve::default());
        let priors = Priors::default_for(spectrum.n_parameters());
        let rows = [vec![1.0, 2.0, 2.0], vec![0.0, 0.0, 1.0]];
        let model = Model::<f64>::new(SpectralData::from_rows(&rows), spectrum, priors);
        let chain = Chain::new(init::empty(&model), 1);
        let left = |squared_residual: f64| chain.check_sound(&model, &SweepInfo { steps: vec![], squared_residual });
        // The data's sum of squares is 10, with one feature for two rows.
        assert!(left(59.0).is_ok());
        let error = left(61.0).unwrap_err().to_string();
        assert!(error.contains("sweep 1: what the features leave of the data is 6.1e0 times the data"), "{error}");
        assert!(left(f64::NAN).unwrap_err().to_string().contains("the residual is not finite"));
    }
}
