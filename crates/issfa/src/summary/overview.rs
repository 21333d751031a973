//! The overview of a run: posteriors, mixing, costs, and a verdict in words.

use super::Fitted;
use super::diagnostics::{effective_sample_size, mean, quantile, split_r_hat};
use super::features::FeatureRow;
use super::synchrony::Synchrony;
use crate::error::{Verb, action, setting};
use crate::run::checkpoint::Counters;
use crate::run::trace::TraceRow;
use serde::Serialize;
use std::collections::BTreeMap;

/// The posterior of one number, over the kept part of all chains.
#[derive(Clone, Debug, Serialize)]
pub struct Quantity {
    /// As in the trace.
    pub name: String,
    /// Over kept sweeps of all chains.
    pub mean: f64,
    /// The 5%, 50% and 95% points.
    pub quantiles: [f64; 3],
    /// How many independent draws would say as much.
    pub effective_sample_size: f64,
    /// Near 1 where halves of chains agree.
    pub split_r_hat: f64,
}

/// Everything `issfa summary` says.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// The folder.
    pub run: String,
    /// Of the program that made it.
    pub version: String,
    /// Rows of the fit.
    pub n_rows: usize,
    /// Sites of the grid.
    pub n_sites: usize,
    /// As an expression.
    pub structure: String,
    /// What was done to the data before sampling.
    pub preparation: String,
    /// How many ran.
    pub chains: usize,
    /// By the chain that is least far.
    pub sweeps_done: u64,
    /// By every chain.
    pub sweeps_planned: u64,
    /// Sweeps that do not count.
    pub burn_in: u64,
    /// Kept sweeps, over all chains.
    pub n_kept: usize,
    /// How often each number of features was seen, over all chains.
    pub n_features_posterior: BTreeMap<usize, usize>,
    /// Features that are there in at least half of the kept sweeps.
    pub n_persistent: usize,
    /// Persistent features that together hold 95% of what all of them explain.
    pub n_carrying_95: usize,
    /// The share of the data's mean square (after centring) that is not noise. Features may overlap, so their own shares
    /// need not add up to it.
    pub variance_explained: f64,
    /// Features by how alike their time courses are in all runs, the most alike first.
    pub synchrony: Vec<Synchrony>,
    /// How many principal components Minka's evidence asks for.
    pub minka_dimension: Option<usize>,
    /// The posterior of the numbers of the trace that matter.
    pub quantities: Vec<Quantity>,
    /// Names of the parameters of the curve.
    pub theta: Vec<String>,
    /// Median full width at half maximum along each axis, in millimetres for images, else in sites.
    pub smoothness: Vec<f64>,
    /// The share of sweeps in which theta's proposal was taken.
    pub theta_acceptance: f64,
    /// The share of proposals that each kernel accepted.
    pub acceptance: BTreeMap<String, f64>,
    /// Over all sweeps, burn-in too.
    pub seconds_per_sweep: f64,
    /// The share of each kernel in the time of a sweep.
    pub kernel_shares: BTreeMap<String, f64>,
    /// What rank 0 brought to the messages of a sweep; 0 where it was alone.
    pub bytes_sent_per_sweep: f64,
    /// What looks wrong, and what to do.
    pub verdict: Vec<String>,
    /// The persistent features, by variance explained.
    #[serde(skip)]
    pub features: Vec<FeatureRow>,
    /// Whether their smoothness is in millimetres.
    #[serde(skip)]
    pub is_in_millimetres: bool,
}

impl Overview {
    /// Of a fit that has started.
    pub fn of(fitted: &Fitted) -> Overview {
        let (settings, record, burn_in) = (fitted.settings(), &fitted.record, fitted.checked.burn_in);
        let mut counters = Counters::default();
        fitted.chains.iter().for_each(|chain| add(&mut counters, &chain.counters));
        let chains: Vec<Vec<TraceRow>> = fitted.chains.iter().map(|chain| chain.trace.clone()).collect();
        let after = |rows: &Vec<TraceRow>| rows.iter().filter(|row| row.sweep > burn_in).cloned().collect();
        let kept: Vec<Vec<TraceRow>> = chains.iter().map(after).collect();
        let table = &fitted.found().features.table;
        let n_kept = kept.iter().map(|rows| rows.len() / fitted.checked.thin as usize).sum();
        let n_sweeps: u64 = fitted.chains.iter().map(|chain| chain.sweep).sum();
        let mut overview = Overview {
            run: fitted.name().display().to_string(),
            version: record.version.clone(),
            n_rows: record.n_rows,
            n_sites: record.n_sites,
            structure: record.structure.clone(),
            preparation: fitted.recorded().preparation(),
            chains: chains.len(),
            sweeps_done: fitted.chains.iter().map(|chain| chain.sweep).min().unwrap_or(0),
            sweeps_planned: settings.sweeps,
            burn_in,
            n_kept,
            n_features_posterior: histogram(&kept),
            n_persistent: table.len(),
            n_carrying_95: carrying(table, 0.95),
            variance_explained: 1.0 - mean_of(&kept, |row| row.noise_variance) / record.data_scale.powi(2),
            synchrony: fitted.found().synchrony.clone(),
            minka_dimension: fitted.evidence.as_ref().and_then(|curve| curve.best()),
            quantities: quantities(&kept, &record.theta),
            theta: record.theta.clone(),
            smoothness: median_smoothness(table),
            theta_acceptance: mean_of(&kept, |row| f64::from(u8::from(row.theta_accepted))),
            acceptance: rates(&counters),
            seconds_per_sweep: mean_of(&chains, |row| row.seconds),
            kernel_shares: shares(&counters),
            bytes_sent_per_sweep: counters.bytes_sent as f64 / n_sweeps.max(1) as f64,
            verdict: Vec::new(),
            features: table.clone(),
            is_in_millimetres: record.images,
        };
        overview.verdict = overview.judge(settings.max_features);
        overview
    }

    /// What looks wrong, and what to do.
    fn judge(&self, cap: Option<usize>) -> Vec<String> {
        let mut verdict = Vec::new();
        if self.sweeps_done < self.sweeps_planned {
            let (done, planned) = (self.sweeps_done, self.sweeps_planned);
            let resume = action(Verb::Resume).on(&self.run);
            verdict.push(format!("The run stands at sweep {done} of {planned}: {resume} goes on."));
        }
        if self.n_kept < 2 {
            verdict.push("Too few kept sweeps to say anything about the posterior yet.".into());
            return verdict;
        }
        let k = &self.quantities[0];
        if k.split_r_hat > 1.1 {
            verdict.push(format!(
                "The number of features is still drifting (split R-hat {:.2}): {}.",
                k.split_r_hat,
                action(Verb::Resume).on(&self.run).with(setting("sweeps").to("+500"))
            ));
        }
        for quantity in self.quantities[1..].iter().filter(|q| q.split_r_hat > 1.1) {
            let name = &quantity.name;
            verdict.push(format!(
                "{name} has not settled (split R-hat {:.2}): give it more sweeps.",
                quantity.split_r_hat
            ));
        }
        if cap.is_some_and(|cap| k.quantiles[2] >= cap as f64) {
            verdict.push(format!("The number of features stands at its cap: raise {}.", setting("max-features")));
        }
        if self.theta_acceptance < 0.2 && k.mean > 0.0 {
            verdict.push(format!(
                "Proposals for theta are accepted in {:.0}% of sweeps only: its posterior is far from a t distribution; \
                 give it more sweeps and look at its trace.",
                100.0 * self.theta_acceptance
            ));
        }
        if k.mean > 0.1 * self.n_rows as f64 && k.mean > 100.0 {
            verdict.push(format!(
                "The number of features is very large ({:.0}), as happens when the noise is not white: {} of them carry \
                 95% of what is explained; {} asks for a coarser account.",
                k.mean,
                self.n_carrying_95,
                setting("target-r2").to(0.9)
            ));
        }
        if self.n_persistent == 0 && self.sweeps_done == self.sweeps_planned {
            verdict.push("No feature persisted: the data look like noise to the model.".into());
        }
        if verdict.is_empty() {
            verdict.push("Nothing looks wrong.".into());
        }
        verdict
    }
}

fn add(total: &mut Counters, own: &Counters) {
    total.seconds += own.seconds;
    for (name, (seconds, proposed, accepted)) in &own.kernels {
        let sums = total.kernels.entry(name.clone()).or_default();
        sums.0 += seconds;
        sums.1 += proposed;
        sums.2 += accepted;
    }
    total.bytes_sent += own.bytes_sent;
}

fn histogram(chains: &[Vec<TraceRow>]) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    chains.iter().flatten().for_each(|row| *counts.entry(row.n_features).or_default() += 1);
    counts
}

fn carrying(table: &[FeatureRow], share: f64) -> usize {
    let total: f64 = table.iter().map(|row| row.variance_explained).sum();
    let mut sum = 0.0;
    let enough = |row: &FeatureRow| {
        sum += row.variance_explained;
        sum >= share * total
    };
    table.iter().position(enough).map_or(table.len(), |at| at + 1)
}

fn quantities(chains: &[Vec<TraceRow>], theta: &[String]) -> Vec<Quantity> {
    let mut list = vec![
        quantity("features", chains, |row| row.n_features as f64),
        quantity("shared features", chains, |row| row.n_shared as f64),
        quantity("activations", chains, |row| row.n_activations as f64),
        quantity("noise variance", chains, |row| row.noise_variance),
    ];
    for (p, name) in theta.iter().enumerate() {
        list.push(quantity(&format!("theta: {name}"), chains, |row| row.theta[p]));
    }
    list.push(quantity("ibp strength", chains, |row| row.ibp_strength));
    list.push(quantity("ibp repulsion", chains, |row| row.ibp_repulsion));
    list.push(quantity("ln likelihood", chains, |row| row.ln_likelihood));
    if chains.iter().flatten().any(|row| row.heldout_residual.is_some()) {
        list.push(quantity("held-out residual", chains, |row| row.heldout_residual.unwrap_or(f64::NAN)));
    }
    list
}

fn quantity(name: &str, chains: &[Vec<TraceRow>], of: impl Fn(&TraceRow) -> f64) -> Quantity {
    let values: Vec<Vec<f64>> = chains.iter().map(|rows| rows.iter().map(&of).collect()).collect();
    let mut all = values.concat();
    all.sort_by(f64::total_cmp);
    Quantity {
        name: name.into(),
        mean: mean(&all),
        quantiles: [0.05, 0.5, 0.95].map(|share| quantile(&all, share)),
        effective_sample_size: effective_sample_size(&values),
        split_r_hat: split_r_hat(&values),
    }
}

fn mean_of(chains: &[Vec<TraceRow>], of: impl Fn(&TraceRow) -> f64) -> f64 {
    mean(&chains.iter().flatten().map(of).collect::<Vec<_>>())
}

fn median_smoothness(table: &[FeatureRow]) -> Vec<f64> {
    let n_axes = table.first().map_or(0, |row| row.smoothness.len());
    let median = |axis: usize| {
        let mut widths: Vec<f64> = table.iter().map(|row| row.smoothness[axis][1]).collect();
        widths.sort_by(f64::total_cmp);
        quantile(&widths, 0.5)
    };
    (0..n_axes).map(median).collect()
}

fn rates(counters: &Counters) -> BTreeMap<String, f64> {
    let proposing = counters.kernels.iter().filter(|(_, sums)| sums.1 > 0);
    proposing.map(|(name, sums)| (name.clone(), sums.2 as f64 / sums.1 as f64)).collect()
}

fn shares(counters: &Counters) -> BTreeMap<String, f64> {
    let in_kernels: f64 = counters.kernels.values().map(|sums| sums.0).sum();
    let total = counters.seconds.max(in_kernels).max(1e-12);
    let mut shares: BTreeMap<String, f64> =
        counters.kernels.iter().map(|(name, sums)| (name.clone(), sums.0 / total)).collect();
    shares.insert("summaries and files".into(), (total - in_kernels) / total);
    shares
}
