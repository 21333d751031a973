//! The overview of a run: posteriors, mixing, costs, and a verdict in words.

use super::Fitted;
use super::diagnostics::{effective_sample_size, mean, quantile, split_r_hat};
use super::features::FeatureRow;
use super::ranks::{bulk_ess, rank_r_hat};
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
    /// The effective sample size by ranks, which ArviZ calls `ess_bulk`.
    pub bulk_ess: f64,
    /// R-hat by ranks, which ArviZ calls `r_hat` (for two chains and more; here halves of one chain are compared too).
    pub rank_r_hat: f64,
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
    /// What the noise is taken to be, in words.
    pub noise: String,
    /// The level of the measured noise, in the data's units; none where the noise is white.
    pub noise_level: Option<f64>,
    /// How many ran.
    pub chains: usize,
    /// By the chain that is least far.
    pub sweeps_done: u64,
    /// By every chain.
    pub sweeps_planned: u64,
    /// Sweeps that do not count.
    pub burn_in: u64,
    /// Sweeps of the first chain that looked at the smoothest modes alone, and how many modes these were.
    pub coarse_start: Option<(usize, usize)>,
    /// Kept sweeps, over all chains.
    pub n_kept: usize,
    /// Features of the last sweep of the first chain.
    pub n_features_now: Option<usize>,
    /// How often each number of features was seen, over all chains.
    pub n_features_posterior: BTreeMap<usize, usize>,
    /// Features that are there in at least half of the kept sweeps.
    pub n_persistent: usize,
    /// Persistent features that together hold 95% of what all of them explain.
    pub n_carrying_95: usize,
    /// Persistent features that every chain has in at least half of its kept sweeps; none with one chain.
    pub n_agreeing: Option<usize>,
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
    /// Seconds of writing draws and checkpoints and of waiting for the disk, over those of the sweeps.
    pub saving_share: f64,
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
        let (record, burn_in) = (&fitted.record, fitted.checked.window.burn_in);
        let mut counters = Counters::default();
        fitted.chains.iter().for_each(|chain| add(&mut counters, &chain.counters));
        let chains: Vec<Vec<TraceRow>> = fitted.chains.iter().map(|chain| chain.trace.clone()).collect();
        let after = |rows: &Vec<TraceRow>| rows.iter().filter(|row| row.sweep > burn_in).cloned().collect();
        // A chain in burn-in has nothing to say yet.
        let kept: Vec<Vec<TraceRow>> =
            chains.iter().map(after).filter(|rows: &Vec<TraceRow>| !rows.is_empty()).collect();
        // What is left of a window that was let go says nothing of this one.
        let nothing = Vec::new();
        let table = if kept.is_empty() { &nothing } else { &fitted.found().features.table };
        let n_kept = kept.iter().map(|rows| rows.len() / fitted.checked.thin as usize).sum();
        // What noise of variance 1, in the units of the trace, is of the data's mean square.
        let noise_share = record.noise.as_ref().map_or(record.data_scale.powi(-2), |noise| noise.share);
        let n_sweeps: u64 = fitted.chains.iter().map(|chain| chain.sweep).sum();
        let mut overview = Overview {
            run: fitted.name().display().to_string(),
            version: record.version.clone(),
            n_rows: record.n_rows,
            n_sites: record.n_sites,
            structure: record.structure.clone(),
            preparation: fitted.recorded().preparation(),
            noise: record.noise_in_words(),
            noise_level: record.noise.as_ref().map(|noise| noise.level),
            chains: chains.len(),
            sweeps_done: fitted.chains.iter().map(|chain| chain.sweep).min().unwrap_or(0),
            sweeps_planned: fitted.checked.window.sweeps,
            burn_in,
            coarse_start: coarse_start(&chains, record.n_sites),
            n_kept,
            n_features_now: chains.first().and_then(|rows| rows.last()).map(|row| row.n_features),
            n_features_posterior: histogram(&kept),
            n_persistent: table.len(),
            n_carrying_95: carrying(table, 0.95),
            n_agreeing: (kept.len() > 1).then(|| table.iter().filter(|row| row.chains == kept.len()).count()),
            variance_explained: 1.0 - mean_of(&kept, |row| row.noise_variance) * noise_share,
            synchrony: fitted.found().synchrony.clone(),
            minka_dimension: fitted.evidence.as_ref().and_then(|curve| curve.best()),
            quantities: quantities(&kept, &record.theta),
            theta: record.theta.clone(),
            smoothness: median_smoothness(table),
            theta_acceptance: mean_of(&kept, |row| f64::from(u8::from(row.theta_accepted))),
            acceptance: rates(&counters),
            seconds_per_sweep: mean_of(&chains, |row| row.seconds),
            kernel_shares: shares(&counters),
            saving_share: counters.seconds_saving / counters.seconds.max(1e-12),
            bytes_sent_per_sweep: counters.bytes_sent as f64 / n_sweeps.max(1) as f64,
            verdict: Vec::new(),
            features: table.clone(),
            is_in_millimetres: record.images,
        };
        overview.verdict = overview.judge(fitted);
        overview
    }

    /// What looks wrong, and what to do.
    fn judge(&self, fitted: &Fitted) -> Vec<String> {
        let cap = fitted.settings().max_features;
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
        verdict.extend(self.judge_mixing());
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
        verdict.extend(self.judge_number(fitted));
        if self.n_persistent == 0 && self.sweeps_done == self.sweeps_planned {
            verdict.push(match k.mean {
                few if few < 1.0 => "No feature persisted: the data look like noise to the model.".into(),
                mean => format!(
                    "{mean:.1} features are there on average, but none in half of the kept sweeps: they come and go."
                ),
            });
        }
        if verdict.is_empty() {
            verdict.push("Nothing looks wrong.".into());
        }
        verdict
    }
}

/// The largest split R-hat of what has settled.
const SETTLED: f64 = 1.05;
/// As many independent draws make shares and intervals that can be believed.
const ENOUGH: f64 = 100.0;

impl Overview {
    /// Whether the chains have settled, and how much more they would need.
    fn judge_mixing(&self) -> Vec<String> {
        let mut verdict = Vec::new();
        let deciding: Vec<&Quantity> = self.deciding().collect();
        let (k, others) = (deciding[0], &deciding[1..]);
        if k.split_r_hat > SETTLED {
            let r_hat = k.split_r_hat;
            verdict
                .push(format!("The number of features is still drifting (split R-hat {r_hat:.2}): {}.", self.longer()));
        }
        let drifts = |q: &&&Quantity| q.split_r_hat > SETTLED;
        let drifting: Vec<String> =
            others.iter().filter(drifts).map(|q| format!("{} ({:.2})", q.name, q.split_r_hat)).collect();
        if !drifting.is_empty() {
            verdict.push(format!("Not settled yet, by split R-hat: {}; {}.", drifting.join(", "), self.longer()));
        }
        let few: Vec<&&Quantity> = deciding.iter().filter(|q| q.effective_sample_size < ENOUGH).collect();
        if drifting.is_empty() && k.split_r_hat <= SETTLED && !few.is_empty() {
            let names: Vec<String> =
                few.iter().map(|q| format!("{} ({:.0})", q.name, q.effective_sample_size)).collect();
            let names = names.join(", ");
            verdict.push(format!(
                "Fewer than {ENOUGH:.0} independent draws of {names}: their intervals are rough; {}.",
                self.longer()
            ));
        }
        verdict
    }

    /// What chains are judged by: the number of features first, then noise, theta and likelihood.
    fn deciding(&self) -> impl Iterator<Item = &Quantity> {
        let decides =
            |name: &str| ["features", "noise variance", "ln likelihood"].contains(&name) || name.starts_with("theta");
        self.quantities.iter().filter(move |quantity| decides(&quantity.name))
    }

    /// What keeps the chains from being called settled: by R-hat, or by too few independent draws.
    pub fn restless(&self) -> Vec<String> {
        if self.n_kept < 4 {
            return vec!["too few kept sweeps".into()];
        }
        let quantities = self.deciding().map(|q| (q.name.clone(), q.split_r_hat, q.effective_sample_size));
        let carrying = self.features.iter().take(self.n_carrying_95);
        let features = carrying.map(|row| (format!("presence of feature {}", row.id), row.rhat, row.ess));
        let doubt = |(name, r_hat, size): (String, f64, f64)| match (r_hat <= SETTLED, size < ENOUGH) {
            (false, _) => Some(format!("{name} (R-hat {r_hat:.2})")),
            (true, true) => Some(format!("{name} ({size:.0} independent draws)")),
            (true, false) => None,
        };
        quantities.chain(features).filter_map(doubt).collect()
    }

    /// Twice as many sweeps after burn-in, or as many as it takes.
    fn longer(&self) -> String {
        let more = (self.sweeps_done.saturating_sub(self.burn_in)).max(100);
        let resume = || action(Verb::Resume).on(&self.run);
        let (longer, settled) = (setting("sweeps").to(format!("+{more}")), setting("until").to("settled"));
        format!("{}, or {}", resume().with(longer), resume().with(settled))
    }
}

/// Sweeps of the first chain that did not look at all modes, and how many they looked at.
fn coarse_start(chains: &[Vec<TraceRow>], n_modes: usize) -> Option<(usize, usize)> {
    let coarse: Vec<&TraceRow> = chains.first()?.iter().take_while(|row| row.n_modes < n_modes).collect();
    coarse.first().map(|row| (coarse.len(), row.n_modes))
}

/// Features of which there are more than this share of the rows are not identified.
const MANY: f64 = 0.25;
/// A measured noise that the posterior moves by more than this share is fought by the data.
const FOUGHT: f64 = 0.1;

impl Overview {
    /// Whether the number of features can be believed, with what would help, in numbers of this run.
    fn judge_number(&self, fitted: &Fitted) -> Option<String> {
        let (settings, record, k) = (fitted.settings(), &fitted.record, self.quantities[0].mean);
        let noise = self.quantities.iter().find(|quantity| quantity.name == "noise variance").map_or(1.0, |q| q.mean);
        let is_measured = record.noise.is_some() && settings.priors.noise.is_none() && settings.target_r2.is_none();
        let is_fought = is_measured && (noise - 1.0).abs() > FOUGHT;
        let n_many = MANY * self.n_rows as f64;
        if k <= n_many.max(5.0) && !is_fought {
            return None;
        }
        let why = if k > n_many {
            format!("{k:.0} are more than a quarter of the {} rows", self.n_rows)
        } else {
            format!("the data move the noise to {noise:.2} of what was measured")
        };
        let mut helps = Vec::new();
        if settings.noise == "white" {
            helps.push(format!(
                "{} measures noise that differs between sites or is smooth",
                setting("noise").to("reference")
            ));
        }
        let recipe = &settings.noise_reference;
        let is_told = record.noise.as_ref().is_some_and(|noise| noise.between_rows.is_some());
        if !recipe.row_levels && !is_told && record.obstacle_to_row_levels(recipe).is_none() {
            let by_row = setting("noise_reference.row_levels").to(true);
            helps.push(format!("{by_row} gives rows noise levels of their own, where they differ"));
        }
        // Always below what is explained now.
        let wanted = (0.9 * self.variance_explained * 100.0).floor() / 100.0;
        if wanted > 0.0 && wanted < 1.0 {
            let target = setting("target-r2").to(format!("{wanted:.2}"));
            helps.push(format!("{target} asks for a coarser account than the {:.2} of now", self.variance_explained));
        }
        if self.n_carrying_95 > 0
            && (self.n_carrying_95 as f64) < k
            && cap_is_larger(settings.max_features, self.n_carrying_95)
        {
            let cap = setting("max-features").to(self.n_carrying_95);
            helps.push(format!("{cap} keeps as many as hold 95% of what is explained"));
        }
        let helps = if helps.is_empty() { String::new() } else { format!(" {}.", helps.join("; ")) };
        Some(format!("The number of features is not identified here: {why}.{helps}"))
    }
}

fn cap_is_larger(cap: Option<usize>, wanted: usize) -> bool {
    cap.is_none_or(|cap| cap > wanted)
}

fn add(total: &mut Counters, own: &Counters) {
    total.seconds += own.seconds;
    total.seconds_saving += own.seconds_saving;
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
        bulk_ess: bulk_ess(&values),
        rank_r_hat: rank_r_hat(&values),
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
