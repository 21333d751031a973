//! What a fit will need, before committing to it: memory and disk by count, seconds per sweep measured on a slice.

use crate::chain::{Chain, rounds_for};
use crate::compiled::Sampled;
use crate::data::{Rows, memory};
use crate::error::{Error, Result};
use crate::fit::cost::{self, Network, Size};
use crate::fit::memory::place_data;
use crate::fit::{Prepared, Request, memory_needed};
use crate::kernels::unique_features::offers;
use crate::kernels::{Kernel, pair_rotation};
use crate::kernels::{features, few_rows};
use crate::run::inputs;
use crate::run::settings::{Checked, Precision};
pub use crate::spectral::{BAND, TILE};
use crate::structure::Shelf;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Cells of the larger slice; the smaller one has half its rows.
const SLICE_CELLS: usize = 20_000_000;

/// Numbers of features that times and sizes are given for.
const FEATURES: [usize; 4] = [15, 50, 150, 500];

/// The least share of the time of passes over whole rows that grows with the rows: with 15 features and some hundred rows, all but
/// the draw of normals.
const LEAST_PER_ROW: f64 = 0.8;

/// What a fit will need.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Rows of the fit.
    pub n_rows: usize,
    /// Sites that take part.
    pub n_sites: usize,
    /// With its sizes.
    pub structure: String,
    /// How data are stored.
    pub precision: &'static str,
    /// What it will hold, about.
    pub memory_bytes: u64,
    /// What is free, where that is known.
    pub memory_available: Option<u64>,
    /// In the folder of `--spill`.
    pub spill_bytes: u64,
    /// Of each chain.
    pub sweeps: u64,
    /// How many.
    pub chains: u32,
    /// Rows of the two slices, and the features that the sweeps on them had.
    pub slice_rows: [usize; 2],
    /// Features that the sweeps on the larger slice had.
    pub slice_features: usize,
    /// To read and prepare all rows.
    pub load_seconds: f64,
    /// For several numbers of features.
    pub by_features: Vec<Needs>,
    /// The same on several ranks.
    pub by_ranks: Vec<OnRanks>,
}

/// What else to plan for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// As if there were so many rows.
    pub n_rows: Option<usize>,
    /// Numbers of ranks, and the network between them.
    pub ranks: Vec<usize>,
    /// How fast ranks send.
    pub network: Option<Network>,
}

/// A number of ranks, with a number of features.
#[derive(Clone, Debug, Serialize)]
pub struct OnRanks {
    /// How many ranks.
    pub n_ranks: usize,
    /// How many features.
    pub n_features: usize,
    /// Lines of ranks that share rows between them; columns that share tiles.
    pub grid: [usize; 2],
    /// Of rank 0, which needs most.
    pub memory_bytes: u64,
    /// What a rank brings to the messages of a sweep, on average.
    pub bytes_per_sweep: u64,
    /// Of a rank in a sweep.
    pub seconds_of_work: f64,
    /// Of a rank in a sweep.
    pub seconds_to_send: f64,
    /// Of a sweep.
    pub seconds_per_sweep: f64,
}

/// Times and sizes for a number of features.
#[derive(Clone, Debug, Serialize)]
pub struct Needs {
    /// How many features.
    pub n_features: usize,
    /// Of a sweep.
    pub seconds_per_sweep: f64,
    /// Of all sweeps of all chains.
    pub total_seconds: f64,
    /// Checkpoint, kept draws and results.
    pub disk_bytes: u64,
}

/// Two sweeps on a slice.
struct Measured {
    n_rows: usize,
    n_sites: f64,
    n_grid: f64,
    n_features: f64,
    load_seconds: f64,
    kernels: BTreeMap<&'static str, f64>,
    /// Of a sweep: features that a row uses out of all, and proposed births and deaths.
    density: f64,
    proposals: f64,
    /// Pairs of features turned in a sweep.
    turned_pairs: f64,
    asked: f64,
    /// Of the sweeps that draw features anew outside, one in so many draws them jointly.
    joint_one_in: u64,
    n_theta: usize,
    is_partial: bool,
    has_holes: bool,
}

impl Measured {
    /// Sites that take part over those of the grid, where cells were not observed.
    fn part_seen(&self) -> Option<f64> {
        self.is_partial.then_some(self.n_sites / self.n_grid)
    }
}

/// Plans a fit. What cannot fit into memory is refused with both figures, as `fit` would.
pub fn plan(rows: &Rows, checked: &Checked, shelf: &Shelf, wanted: &Wanted) -> Result<Plan> {
    match checked.settings.precision {
        Precision::F32 => match plan_in::<f32>(rows, checked, shelf, wanted) {
            Err(Error::NeedsDouble { .. }) => {
                let mut double = checked.clone();
                double.settings.precision = Precision::F64;
                plan_in::<f64>(rows, &double, shelf, wanted)
            }
            other => other,
        },
        Precision::F64 => plan_in::<f64>(rows, checked, shelf, wanted),
    }
}

fn plan_in<R: Sampled>(rows: &Rows, checked: &Checked, shelf: &Shelf, wanted: &Wanted) -> Result<Plan> {
    let mut checked = checked.clone();
    let mut observations = inputs::open(rows, &checked.settings)?;
    let structure = checked.structure(observations.path(), observations.grid(), observations.n_sites(), shelf)?;
    inputs::choose_cells(&mut observations, rows, &checked.settings, structure.grid(), None)?;
    let (n_given, n_sites) = (observations.n_rows(), observations.n_columns());
    let n_rows = wanted.n_rows.unwrap_or(n_given);
    place_data(&mut observations, (n_rows, n_sites), R::BYTES, &mut checked, 1)?;
    let (checked, settings) = (&checked, &checked.settings);
    let memory_on = |n_ranks: usize| memory_needed(&observations, (n_rows, n_sites), R::BYTES, settings, n_ranks);
    let memory_bytes = memory_on(1);
    if wanted.ranks.is_empty() && wanted.n_rows.is_none() {
        memory::check(&format!("a fit of {n_rows} x {n_sites} in {}", R::NAME), memory_bytes)?;
    }
    let most = (SLICE_CELLS / n_sites).clamp(8, n_given.max(8)).min(n_given).min(n_rows);
    let slices = [measure::<R>(rows, checked, shelf, most.div_ceil(2))?, measure::<R>(rows, checked, shelf, most)?];
    let planned = Planned { checked, n_rows, n_sites, n_grid: structure.n_sites(), bytes: R::BYTES, slices };
    let cases = wanted.ranks.iter().flat_map(|&ranks| FEATURES.map(|n_features| (ranks, n_features)));
    let on_ranks = |(n_ranks, n_features): (usize, usize)| {
        planned.on_ranks(n_ranks, n_features, memory_on(n_ranks), wanted.network)
    };
    let by_ranks = cases.map(on_ranks).collect();
    let slices = &planned.slices;
    Ok(Plan {
        by_ranks,
        n_rows,
        n_sites,
        structure: structure.expression(),
        precision: R::NAME,
        memory_bytes,
        memory_available: memory::available(),
        spill_bytes: if settings.spill.is_some() { (n_rows * n_sites * R::BYTES) as u64 } else { 0 },
        sweeps: checked.window.sweeps,
        chains: settings.chains,
        slice_rows: [slices[0].n_rows, slices[1].n_rows],
        slice_features: slices[1].n_features.round() as usize,
        load_seconds: slices[1].load_seconds * n_rows as f64 / slices[1].n_rows as f64,
        by_features: FEATURES.iter().map(|&n_features| planned.needs(n_features)).collect(),
    })
}

/// A fit and what two slices of it have shown.
struct Planned<'a> {
    checked: &'a Checked,
    n_rows: usize,
    /// Sites that take part, and those of the grid.
    n_sites: usize,
    n_grid: usize,
    /// Of a number.
    bytes: usize,
    slices: [Measured; 2],
}

impl Planned<'_> {
    fn needs(&self, n_features: usize) -> Needs {
        let settings = &self.checked.settings;
        let seconds_of_round: f64 = kernel_seconds(&self.slices, self.n_rows, n_features).values().sum();
        let seconds_per_sweep = self.rounds() * seconds_of_round;
        Needs {
            n_features,
            seconds_per_sweep,
            total_seconds: f64::from(settings.chains) * self.checked.window.sweeps as f64 * seconds_per_sweep,
            disk_bytes: disk_needed(self.checked, self.n_rows, [self.n_sites, self.n_grid], n_features, self.bytes),
        }
    }

    fn on_ranks(&self, n_ranks: usize, n_features: usize, memory_bytes: u64, network: Option<Network>) -> OnRanks {
        let size = self.size(n_features);
        let messages = cost::messages(&size, n_ranks);
        let kernels = kernel_seconds(&self.slices, self.n_rows, n_features);
        let seconds_of_work = self.rounds() * cost::seconds_of_work(&kernels, &size, n_ranks);
        let to_send = |network| self.rounds() * cost::seconds_to_send(&messages, size.layout(n_ranks), network);
        let seconds_to_send = network.as_ref().map_or(0.0, to_send);
        OnRanks {
            n_ranks,
            n_features,
            grid: size.layout(n_ranks).shape(),
            memory_bytes,
            bytes_per_sweep: (self.rounds() * cost::bytes_per_rank(&messages)) as u64,
            seconds_of_work,
            seconds_to_send,
            seconds_per_sweep: seconds_of_work + seconds_to_send,
        }
    }

    /// Of a sweep.
    fn rounds(&self) -> f64 {
        rounds_for(self.n_rows, self.n_sites) as f64
    }

    /// Changes of unique features that are proposed in a sweep: those from the prior are about as many for any number of rows.
    fn proposals(&self, n_features: usize) -> f64 {
        let larger = &self.slices[1];
        let offers = |n_rows: usize, k: f64| {
            offers::expected(n_rows, k.round() as usize, larger.density * k, larger.part_seen())
        };
        let from_prior = (larger.proposals - offers(larger.n_rows, larger.n_features)).max(0.0);
        from_prior + offers(self.n_rows, n_features as f64)
    }

    /// Rows that are asked about features that few rows use: of these there are fewer than there might be looked at where there
    /// are many rows.
    fn asked(&self, n_features: usize) -> f64 {
        let larger = &self.slices[1];
        let asked = |n_rows: usize, k: f64| {
            let most = few_rows::expected(n_rows, k.round() as usize, larger.part_seen());
            most.min(few_rows::share_of_features(n_rows) * k) * few_rows::asked(n_rows, !larger.is_partial) as f64
        };
        larger.asked * asked(self.n_rows, n_features as f64) / asked(larger.n_rows, larger.n_features)
    }

    fn size(&self, n_features: usize) -> Size {
        let (sweep, larger) = (&self.checked.settings.sweep, &self.slices[1]);
        Size {
            n_rows: self.n_rows,
            n_columns: self.n_sites,
            band: BAND,
            n_grid: larger.is_partial.then_some(self.n_grid),
            has_holes: larger.has_holes,
            joint_every: sweep.joint_every.saturating_mul(larger.joint_one_in),
            n_features,
            active_per_row: larger.density * n_features as f64,
            proposals: self.proposals(n_features),
            turned_pairs: larger.turned_pairs,
            asked: self.asked(n_features),
            row_sweeps: sweep.row_sweeps,
            birth_rounds: sweep.birth_rounds,
            n_theta: larger.n_theta,
            bytes: self.bytes,
        }
    }
}

/// Loads the first rows, starts a chain as the fit would, and times two sweeps after a first one.
fn measure<R: Sampled>(rows: &Rows, checked: &Checked, shelf: &Shelf, n_rows: usize) -> Result<Measured> {
    const SWEEPS: u64 = 2;
    let mut slice = checked.clone();
    (slice.settings.spill, slice.settings.memory, slice.memory) = (None, None, None);
    slice.settings.heldout = None;
    let start = Instant::now();
    let whole = Request::new(Rows { heldout: None, ..rows.clone() }, slice);
    let prepared = Prepared::<R>::load(Request { shelf: Some(shelf), keep_first: Some(n_rows), ..whole })?;
    let load_seconds = start.elapsed().as_secs_f64();
    let mut schedule = prepared.about.schedule(1);
    (schedule.burn_in, schedule.rounds) = (0, 1);
    let mut chain = Chain::new(R::apart(&prepared.model, 15, 0, 1), 0);
    let first = chain.step(&prepared.model, &schedule)?;
    let (mut kernels, mut fastest, mut n_features) = (BTreeMap::new(), BTreeMap::new(), 0.0);
    let (mut proposals, mut turned_pairs, mut asked) = (0.0, 0.0, 0.0);
    let streams = schedule.streams(chain.sweep);
    let is_given = R::is_drawn_given_inside(&prepared.model, &chain.state, &streams);
    let joint_one_in = if is_given { features::JOINT_ONE_IN } else { 1 };
    if !prepared.model.domain.is_whole() {
        // The first sweep's features are drawn jointly, as they are every so many sweeps, or outside alone.
        let joint = first.steps.iter().find(|step| step.kernel == Kernel::Features).map_or(0.0, |step| step.seconds);
        let one_in = joint_one_in as f64;
        let share = (1.0 + (one_in - 1.0) * features::SHARE_GIVEN_INSIDE) / one_in;
        kernels.insert(Kernel::Features.name(), joint * share / prepared.model.joint_every as f64);
    }
    for _ in 0..SWEEPS {
        n_features += chain.state.n_features() as f64 / SWEEPS as f64;
        let info = chain.step(&prepared.model, &schedule)?;
        proposals += f64::from(info.of(Kernel::UniqueFeatures).proposed) / SWEEPS as f64;
        turned_pairs += f64::from(info.of(Kernel::PairRotation).accepted) / SWEEPS as f64;
        asked += f64::from(info.of(Kernel::FewRows).proposed) / SWEEPS as f64;
        for step in info.steps {
            // The faster of the two: other work on the machine only ever adds.
            let best = fastest.entry(step.kernel.name()).or_insert(f64::INFINITY);
            *best = best.min(step.seconds);
        }
    }
    fastest.into_iter().for_each(|(name, seconds)| *kernels.entry(name).or_insert(0.0) += seconds);
    let k = chain.state.n_features().max(1);
    Ok(Measured {
        n_rows,
        n_sites: prepared.model.data.n_modes() as f64,
        n_grid: prepared.model.spectrum.n_modes() as f64,
        n_features: n_features.max(1.0),
        load_seconds,
        kernels,
        density: chain.state.loadings.n_active() as f64 / (n_rows * k) as f64,
        proposals,
        turned_pairs,
        asked,
        joint_one_in,
        n_theta: prepared.model.spectrum.n_parameters(),
        is_partial: !prepared.model.domain.is_whole(),
        has_holes: prepared.about.record.n_missing_cells > 0,
    })
}

/// What a kernel's work is proportional to, about, as the number of features grows.
struct Work {
    n_rows: f64,
    n_sites: f64,
    /// Features that a row uses, out of all.
    density: f64,
    /// Sites that take part over those of the grid, where cells were not observed.
    part_seen: Option<f64>,
}

/// Rows that are proposed unique features from the prior in a sweep, about.
const BIRTH_PROPOSALS: f64 = 100.0;

impl Work {
    fn of(&self, kernel: &str, k: f64) -> f64 {
        let Work { n_rows, n_sites, density, .. } = *self;
        if kernel == Kernel::Features.name() {
            return cost::parts_of_features(n_rows, n_sites, k).iter().sum();
        }
        if kernel == Kernel::SharedActivations.name() {
            // Each of a row's K updates may change K products.
            return n_rows * (20.0 * k + 2.0 * density * k * k);
        }
        if kernel == Kernel::PairRotation.name() {
            return n_rows * pair_rotation::n_pairs(k.round() as usize, n_sites as usize).max(1) as f64;
        }
        let per_candidate = n_sites * (50.0 + 2.0 * density * k);
        if kernel == Kernel::TidyUp.name() {
            return per_candidate;
        }
        if kernel == Kernel::FewRows.name() {
            return few_rows::expected(n_rows as usize, k.round() as usize, self.part_seen);
        }
        if kernel == Kernel::UniqueFeatures.name() {
            // Features are offered to more rows where there are more features.
            let offers = offers::expected(n_rows as usize, k.round() as usize, density * k, self.part_seen);
            return (offers + BIRTH_PROPOSALS) * per_candidate;
        }
        1.0
    }
}

/// Every kernel on the line through the two slices; some also grow with the number of features, or its square or cube.
fn kernel_seconds(slices: &[Measured; 2], n_rows: usize, n_features: usize) -> BTreeMap<&'static str, f64> {
    let [half, whole] = slices;
    let of = |slice: &Measured, name: &str| slice.kernels.get(name).copied().unwrap_or(0.0);
    let kernel = |(name, &seconds): (&&'static str, &f64)| {
        let grows = *name == Kernel::Features.name() || *name == Kernel::SharedActivations.name();
        let extra_rows = (whole.n_rows - half.n_rows).max(1) as f64;
        // The pass over whole rows is nearly all per row: what two noisy sweeps say must not hide that.
        let least = if grows && !whole.is_partial { LEAST_PER_ROW } else { 0.0 };
        // What looks at modes or counts alone is no matter of rows, whatever two noisy sweeps say.
        let is_fixed =
            [Kernel::Noise, Kernel::Theta, Kernel::IbpStrength, Kernel::IbpRepulsion].map(Kernel::name).contains(name);
        let most = if is_fixed { 0.0 } else { seconds / whole.n_rows as f64 };
        let per_row = ((seconds - of(half, name)) / extra_rows).clamp(least * most, most);
        let at_all_rows = seconds + per_row * (n_rows as f64 - whole.n_rows as f64);
        let Measured { n_sites, density, .. } = *whole;
        let size = Work { n_rows: n_rows as f64, n_sites, density, part_seen: whole.part_seen() };
        let work = |k: f64| size.of(name, k);
        (*name, at_all_rows * work(n_features as f64) / work(whole.n_features))
    };
    whole.kernels.iter().map(kernel).collect()
}

/// Checkpoint (state, moments, and a copy while it is replaced), kept draws (features and their means), results.
/// Sites are those that take part, and all of the grid.
fn disk_needed(
    checked: &Checked,
    n_rows: usize,
    [n_sites, n_grid_sites]: [usize; 2],
    n_features: usize,
    bytes: usize,
) -> u64 {
    let (rows, sites, grid, k) = (n_rows as u64, n_sites as u64, n_grid_sites as u64, n_features as u64);
    let spectra = k * grid * bytes as u64;
    let moments = k * (12 * sites + 12 * rows);
    let reconstruction = if checked.settings.reconstruct { 4 * rows * grid } else { 0 };
    let results = k * (12 * grid + 8 * rows) + reconstruction;
    2 * (spectra + moments + reconstruction) + checked.settings.keep_draws as u64 * 2 * spectra + results
}
