//! The invariance test: draw state and data from the model, apply a kernel, and see that nothing has changed.
//!
//! Repeats are independent, so the standard error of each paired difference is honest. The whole sweep is tested as
//! well as each kernel, because kernels that pass alone can fail together.

use crate::compiled::Sampled;
use crate::kernels::{Kernel, Phase, Turn};
use crate::model::{
    Entry, GammaPrior, InverseGammaPrior, Model, NormalPrior, Priors, State, WeightMeanPrior, simulate,
};
use crate::rng::{Purpose, Streams};
use crate::spectral::{BAND, Projections, SpectralData, Window};
use crate::structure::{Curve, Direction, Spectrum, Structure, expression};
use rayon::prelude::*;
use std::marker::PhantomData;
use std::sync::Arc;

/// What is applied between "before" and "after".
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// Kernels, in order.
    Kernels(Vec<Kernel>),
    /// The repulsion, told another prior than the one that states are drawn from: must fail.
    MistakenPrior,
}

impl Subject {
    /// A name for tables.
    pub fn name(&self) -> String {
        match self {
            Subject::Kernels(list) if list.as_slice() == Kernel::DEFAULT_SWEEP => "whole sweep".into(),
            Subject::Kernels(list) => list.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(" + "),
            Subject::MistakenPrior => "ibp_repulsion, another prior (wrong)".into(),
        }
    }

    fn apply<R: Sampled>(
        &self,
        model: &mut Model<R>,
        state: &mut State<R>,
        projections: &mut Projections<R>,
        turn: &Turn,
    ) {
        let kernels = match self {
            Subject::Kernels(kernels) => kernels.as_slice(),
            Subject::MistakenPrior => {
                model.priors.ibp_repulsion.shape += 1.0;
                &[Kernel::IbpRepulsion]
            }
        };
        for kernel in kernels {
            R::update(*kernel, model, state, projections, turn);
        }
    }

    /// Every shipped kernel alone (but for those that belong to burn-in and do nothing after), then the whole sweep.
    pub fn shipped() -> Vec<Subject> {
        let drawing = Kernel::DEFAULT_SWEEP.iter().filter(|kernel| !kernel.is_for_burn_in());
        let alone = drawing.map(|&kernel| Subject::Kernels(vec![kernel]));
        alone.chain([Subject::Kernels(Kernel::DEFAULT_SWEEP.to_vec())]).collect()
    }
}

/// The tiny model of the test.
#[derive(Clone, Debug)]
pub struct Tiny {
    /// T.
    pub n_rows: usize,
    /// As an expression.
    pub structure: String,
    /// As an expression.
    pub curve: String,
    /// The prior of tau.
    pub weight_mean: WeightMeanPrior,
    /// Degrees of freedom of Student weights.
    pub weight_tails: Option<f64>,
    /// How often the subject is applied between before and after.
    pub applications: u64,
    /// The cap on features: states beyond it are left out.
    pub max_features: usize,
    /// The sites that are observed, all where empty.
    pub mask: Vec<usize>,
    /// Cells (row, column of the mask) that are missing.
    pub holes: Vec<(usize, u32)>,
    /// As in the model.
    pub joint_every: u64,
    /// What multiplies the precision of every mode, as under a noise reference; 1 where empty.
    pub factors: Vec<f64>,
    /// Rows of a band.
    pub band: usize,
}

impl Default for Tiny {
    fn default() -> Self {
        Tiny {
            n_rows: 4,
            structure: "path(2) x path(2)".into(),
            curve: "q".into(),
            weight_mean: WeightMeanPrior::Normal(NormalPrior { mean: 0.5, precision: 2.0 }),
            weight_tails: None,
            applications: 2,
            max_features: usize::MAX,
            mask: Vec::new(),
            holes: Vec::new(),
            joint_every: 20,
            factors: Vec::new(),
            band: BAND,
        }
    }
}

impl Tiny {
    fn structure(&self) -> Structure {
        expression::build(Some(&self.structure), None).expect("the test's structure is valid")
    }

    fn spectrum(&self) -> Spectrum {
        let curve = Curve::parse(&self.curve).expect("the test's curve is valid");
        let spectrum = Spectrum::new(&self.structure(), &curve);
        if self.factors.is_empty() { spectrum } else { spectrum.with_factors(self.factors.clone()) }
    }

    /// Complete data, or what the mask and the holes leave of them.
    fn model<R: Sampled>(&self, data: SpectralData<R>, spectrum: &Spectrum, priors: &Priors) -> Model<R> {
        if self.mask.is_empty() && self.holes.is_empty() {
            return Model::new(data.in_bands(self.band), spectrum.clone(), priors.clone());
        }
        let structure = Arc::new(self.structure());
        let mask = if self.mask.is_empty() { (0..structure.n_sites()).collect() } else { self.mask.clone() };
        let (mut holes, mut rows) = (vec![Vec::new(); self.n_rows], Vec::new());
        self.holes.iter().for_each(|(row, column)| holes[*row].push(*column));
        for (row, holes) in holes.iter().enumerate() {
            let mut image = data.row(row);
            structure.apply(Direction::ToSites, &mut image, &mut Vec::new());
            let mut seen: Vec<f64> = mask.iter().map(|&site| image[site]).collect();
            holes.iter().for_each(|&column| seen[column as usize] = 0.0);
            rows.push(seen);
        }
        let window = Window::new(structure, mask, holes);
        Model::in_window(SpectralData::from_rows(&rows), window, spectrum.clone(), priors.clone())
    }

    /// Informative priors: without them nothing is sharp.
    fn priors(&self, n_parameters: usize) -> Priors {
        let ln_theta = |p| NormalPrior { mean: if p % 2 == 0 { 0.2 } else { -0.3 }, precision: 8.0 };
        Priors {
            noise: InverseGammaPrior { shape: 6.0, scale: 5.0 },
            ibp_strength: GammaPrior { shape: 3.0, rate: 2.0 },
            ibp_repulsion: GammaPrior { shape: 4.0, rate: 4.0 },
            weight_precision: GammaPrior { shape: 6.0, rate: 4.0 },
            weight_mean: self.weight_mean,
            weight_tails: self.weight_tails,
            ln_theta: (0..n_parameters).map(ln_theta).collect(),
        }
    }
}

/// The statistics compared, by name.
pub const STATISTICS: [&str; 21] = [
    "features",
    "activations",
    "unique features",
    "sum of squared weights",
    "sum of ln(1 + nu (a - tau)^2)",
    "ln noise variance",
    "ibp strength",
    "ln ibp repulsion",
    "ln theta 1",
    "ln theta last",
    "sum of weight means",
    "sum of ln weight precisions",
    "ln |S|^2",
    "ln |W S|^2",
    "residual / noise",
    "ln residual",
    "features x residual / noise",
    "activations x residual / noise",
    "features x ln theta 1",
    "features x ln noise variance",
    "features x ln ibp repulsion",
];

fn statistics<R: Sampled>(model: &Model<R>, state: &State<R>) -> [f64; STATISTICS.len()] {
    let (mut explained, mut residual) = (0.0, 0.0);
    for row in 0..state.loadings.n_rows() {
        let mean = simulate::noiseless_row(state, row);
        explained += mean.iter().map(|x| x * x).sum::<f64>();
        let observed = model.data.row(row);
        for (column, mean) in
            model.domain.at_columns(mean).iter().enumerate().filter(|(column, _)| model.domain.is_seen(row, *column))
        {
            residual += (observed[column] - mean).powi(2);
        }
    }
    let k = state.n_features() as f64;
    let active = state.loadings.n_active() as f64;
    let unique = state.loadings.counts().iter().filter(|&&count| count == 1).count() as f64;
    let squares: f64 = state.loadings.rows().iter().flatten().map(|entry| entry.weight.powi(2)).sum();
    let apart = |entry: &Entry| entry.weight - state.weight_means[entry.feature];
    let spread = |entry: &Entry| (state.weight_precisions[entry.feature] * apart(entry).powi(2)).ln_1p();
    let spread: f64 = state.loadings.rows().iter().flatten().map(spread).sum();
    let energy: f64 = state.features.squared_norms(model.comm.as_ref()).iter().sum();
    let (noise, theta, repulsion) = (state.noise_variance.ln(), state.ln_theta[0], state.ibp_repulsion.ln());
    let ratio = residual / state.noise_variance;
    [
        k,
        active,
        unique,
        squares,
        spread,
        noise,
        state.ibp_strength,
        repulsion,
        theta,
        state.ln_theta[state.ln_theta.len() - 1],
        state.weight_means.iter().sum(),
        state.weight_precisions.iter().map(|nu| nu.ln()).sum(),
        // One is added so that states without features count too.
        (1.0 + energy).ln(),
        (1.0 + explained).ln(),
        ratio,
        residual.ln(),
        k * ratio,
        active * ratio,
        k * theta,
        k * noise,
        k * repulsion,
    ]
}

/// Sums of paired differences and of their squares.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    n: f64,
    sums: [f64; STATISTICS.len()],
    squares: [f64; STATISTICS.len()],
}

impl Moments {
    fn add(&mut self, before: &[f64], after: &[f64]) {
        self.n += 1.0;
        for i in 0..STATISTICS.len() {
            let difference = after[i] - before[i];
            self.sums[i] += difference;
            self.squares[i] += difference * difference;
        }
    }

    fn merge(&mut self, other: &Moments) {
        self.n += other.n;
        for i in 0..STATISTICS.len() {
            self.sums[i] += other.sums[i];
            self.squares[i] += other.squares[i];
        }
    }

    /// Mean differences over their standard errors.
    fn z(&self) -> Vec<f64> {
        let one = |i: usize| {
            let mean = self.sums[i] / self.n;
            let variance = self.squares[i] / self.n - mean * mean;
            if variance > 1e-24 { mean / (variance / self.n).sqrt() } else { 0.0 }
        };
        (0..STATISTICS.len()).map(one).collect()
    }
}

/// How far each statistic moved, in standard errors.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of what was applied.
    pub subject: String,
    /// Independent draws asked for.
    pub repeats: u64,
    /// One a statistic; 0 where nothing changed in any repeat.
    pub z: Vec<f64>,
}

impl Report {
    /// The statistic that moved most.
    pub fn worst(&self) -> (&'static str, f64) {
        let worst = (0..self.z.len()).max_by(|&a, &b| self.z[a].abs().total_cmp(&self.z[b].abs()));
        worst.map_or(("none", 0.0), |at| (STATISTICS[at], self.z[at]))
    }
}

/// The threshold in standard errors at which `n_tests` tests raise a false alarm with probability `rate` at most.
pub fn threshold(n_tests: usize, rate: f64) -> f64 {
    let per_test = rate / n_tests.max(1) as f64;
    let tail = |z: f64| statrs::function::erf::erfc(z / std::f64::consts::SQRT_2);
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if tail(middle) > per_test { low = middle } else { high = middle }
    }
    high
}

/// Runs `repeats` independent draws, in chunks shared by the threads, in double precision.
pub fn run(tiny: &Tiny, subject: &Subject, seed: u64, repeats: u64) -> Report {
    run_in::<f64>(tiny, subject, seed, repeats)
}

/// The same with data and features stored in either precision.
pub fn run_in<R: Sampled>(tiny: &Tiny, subject: &Subject, seed: u64, repeats: u64) -> Report {
    let apply = |model: &mut Model<R>, state: &mut State<R>, projections: &mut Projections<R>, turn: &Turn| {
        subject.apply(model, state, projections, turn);
    };
    let trial = Trial { tiny, spectrum: tiny.spectrum(), seed, apply, stored: PhantomData };
    trial.run(subject.name(), repeats)
}

/// Draws from a tiny model to which `apply` is done.
struct Trial<'a, R, F> {
    tiny: &'a Tiny,
    spectrum: Spectrum,
    seed: u64,
    apply: F,
    stored: PhantomData<R>,
}

impl<R: Sampled, F> Trial<'_, R, F>
where
    F: Fn(&mut Model<R>, &mut State<R>, &mut Projections<R>, &Turn) + Sync,
{
    fn run(&self, subject: String, repeats: u64) -> Report {
        const CHUNK: u64 = 256;
        let priors = self.tiny.priors(self.spectrum.n_parameters());
        // Chunks are collected in order, so that the report does not depend on the number of threads.
        let chunks: Vec<Moments> = (0..repeats.div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let mut moments = Moments::default();
                for repeat in chunk * CHUNK..((chunk + 1) * CHUNK).min(repeats) {
                    self.add_repeat(&priors, repeat, &mut moments);
                }
                moments
            })
            .collect();
        let mut total = chunks[0];
        chunks[1..].iter().for_each(|chunk| total.merge(chunk));
        Report { subject, repeats, z: total.z() }
    }

    fn add_repeat(&self, priors: &Priors, repeat: u64, moments: &mut Moments) {
        let tiny = self.tiny;
        let mut stream = Streams::once(self.seed).stream(Purpose::Prior, 0, repeat);
        let mut state = simulate::prior_state::<R>(tiny.n_rows, &self.spectrum, priors, &mut stream);
        if state.n_features() > tiny.max_features {
            return;
        }
        let data = simulate::data_given_state(&state, &mut stream);
        let mut model = tiny.model(data, &self.spectrum, priors);
        model.max_features = tiny.max_features;
        model.joint_every = tiny.joint_every;
        let before = statistics(&model, &state);
        let mut projections = Projections::default();
        for application in 0..tiny.applications {
            let streams = Streams { seed: self.seed, chain: 1, sweep: repeat * tiny.applications + application };
            let turn = Turn { streams, phase: Phase::Sampling };
            (self.apply)(&mut model, &mut state, &mut projections, &turn);
        }
        moments.add(&before, &statistics(&model, &state));
    }
}

/// The controls: samplers that are wrong on purpose, which live nowhere but here, are caught.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{ibp_repulsion, shared_activations};
    use crate::model::ThetaStep;

    /// The largest shift in standard errors under an update that is wrong.
    fn worst_of(
        name: &str,
        seed: u64,
        repeats: u64,
        apply: impl Fn(&mut Model<f64>, &mut State<f64>, &mut Projections<f64>, &Turn) + Sync,
    ) -> f64 {
        let tiny = &Tiny::default();
        let report =
            Trial { tiny, spectrum: tiny.spectrum(), seed, apply, stored: PhantomData }.run(name.to_string(), repeats);
        let (statistic, z) = report.worst();
        println!("{name:55} {repeats:>8} repeats, worst {z:6.2} ({statistic})");
        z.abs()
    }

    /// The ratio of the paper lacks `K ln(beta*/beta)`.
    #[test]
    fn the_printed_repulsion_is_caught() {
        let worst = worst_of("ibp_repulsion as printed (wrong)", 301, 20_000, |model, state, _, turn| {
            let (prior, strength, n_rows) = (model.priors.ibp_repulsion, state.ibp_strength, state.loadings.n_rows());
            ibp_repulsion::walk(state, turn, |counts, from, to| {
                let complete = ibp_repulsion::ln_ratio(prior, strength, counts, n_rows, from, to);
                complete - counts.len() as f64 * (to / from).ln()
            });
        });
        assert!(worst > 20.0, "only {worst:.2} standard errors: the test has lost its bite");
    }

    /// What `--theta-step laplace` does.
    #[test]
    fn the_uncorrected_laplace_step_is_caught() {
        let limit = threshold(STATISTICS.len(), 1e-3);
        let name = "theta by uncorrected Laplace (wrong)";
        let worst = worst_of(name, 302, 300_000, |model, state, projections, turn| {
            model.theta_step = ThetaStep::Laplace;
            Kernel::Theta.update(model, state, projections, turn);
        });
        assert!(worst > limit, "only {worst:.2} standard errors (threshold {limit:.2}): the test has lost its bite");
    }

    #[test]
    #[ignore = "four million sweeps take minutes: part of the slow suite"]
    fn the_scan_in_storage_order_is_caught() {
        let name = "whole sweep, scan in storage order (wrong)";
        let worst = worst_of(name, 303, 4_000_000, |model, state, projections, turn| {
            for kernel in Kernel::DEFAULT_SWEEP {
                if kernel == Kernel::SharedActivations {
                    shared_activations::update_in_order(model, state, projections, turn, |_, _| {});
                } else {
                    kernel.update(model, state, projections, turn);
                }
            }
        });
        assert!(worst > 4.5, "only {worst:.2} standard errors: the test has lost its bite");
    }

    /// States with normal weights are told that weights are Student ones.
    #[test]
    fn other_tails_are_caught() {
        for kernel in [Kernel::SharedActivations, Kernel::WeightMeans, Kernel::WeightPrecisions] {
            let name = format!("{}, other tails (wrong)", kernel.name());
            let worst = worst_of(&name, 305, 100_000, |model, state, projections, turn| {
                model.priors.weight_tails = Some(4.0);
                kernel.update(model, state, projections, turn);
            });
            assert!(worst > 5.0, "only {worst:.2} standard errors: the test has lost its bite");
        }
    }

    #[test]
    fn another_prior_is_caught() {
        let report = run(&Tiny::default(), &Subject::MistakenPrior, 304, 20_000);
        assert!(report.worst().1.abs() > 20.0, "{:?}: the test has lost its bite", report.worst());
    }
}
