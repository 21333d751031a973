//! States, posteriors and preprocessing to and from named arrays. Nothing is taken out that could not have been put in:
//! shapes, indices and numbers are looked at.

use crate::chain::moments::FeatureMoments;
use crate::chain::posterior::{Posterior, Reconstruction};
use crate::compiled::Sampled;
use crate::data::Preprocessing;
use crate::data::regression::RunFit;
use crate::error::Result;
use crate::model::{Entry, Loadings, State};
use crate::numeric::bytes::{Bundle, Stored};
use crate::spectral::{FeatureSpectra, SpectralData, Tiles};

/// Puts features x modes into a bundle.
pub fn put_spectra<R: Sampled>(bundle: &mut Bundle, name: &str, spectra: &FeatureSpectra<R>) {
    let (k, n_modes) = (spectra.n_features(), spectra.tiles().n_modes);
    bundle.put_parts(name, &[k, n_modes], (0..k).map(|feature| spectra.stored(feature)));
}

/// The sizes that everything stored about a chain must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of the fit.
    pub n_rows: usize,
    /// Sites of the grid, and so modes.
    pub n_modes: usize,
    /// Sites that take part.
    pub n_columns: usize,
    /// Parameters of the curve.
    pub n_theta: usize,
    /// Runs of the input.
    pub n_runs: usize,
}

fn is_positive(x: &f64) -> bool {
    *x > 0.0 && x.is_finite()
}

/// Refuses numbers of which one is not what it should be.
fn check<'a, T: std::fmt::Debug + 'a>(
    stored: &Stored,
    name: &str,
    values: impl IntoIterator<Item = &'a T>,
    is_sound: impl Fn(&T) -> bool,
) -> Result<()> {
    match values.into_iter().find(|x| !is_sound(x)) {
        None => Ok(()),
        Some(x) => Err(stored.damaged(format!("'{name}' holds {x:?}, which cannot stand there"))),
    }
}

/// Refuses an array of another length.
fn check_length(stored: &Stored, name: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(stored.damaged(format!("'{name}' is for {found}, but the run has {expected}")))
}

/// Takes features x modes out again.
pub fn take_spectra<R: Sampled>(stored: &Stored, name: &str, n_modes: usize) -> Result<FeatureSpectra<R>> {
    let ([k, found], values) = stored.table::<R>(name)?;
    // Before anything is made of that size.
    check_length(stored, name, found, n_modes)?;
    check(stored, name, &values, |x| x.to_f64().is_finite())?;
    let wide: Vec<f64> = values.iter().map(|x| x.to_f64()).collect();
    let spectra = FeatureSpectra::from_rows(n_modes, wide.chunks_exact(n_modes.max(1)));
    check_length(stored, name, spectra.n_features(), k)?;
    Ok(spectra)
}

/// Puts a state into a bundle.
pub fn put_state<R: Sampled>(bundle: &mut Bundle, state: &State<R>) {
    let k = state.n_features();
    put_spectra(bundle, "features", &state.features);
    bundle.put("feature_ids", &[k], &state.feature_ids);
    bundle.put("next_feature_id", &[1], &[state.next_feature_id]);
    bundle.put("weight_means", &[k], &state.weight_means);
    bundle.put("weight_precisions", &[k], &state.weight_precisions);
    bundle.put("noise_variance", &[1], &[state.noise_variance]);
    bundle.put("ln_theta", &[state.ln_theta.len()], &state.ln_theta);
    bundle.put("ibp_strength", &[1], &[state.ibp_strength]);
    bundle.put("ibp_repulsion", &[1], &[state.ibp_repulsion]);
    let rows = state.loadings.rows();
    let counts: Vec<u32> = rows.iter().map(|row| row.len() as u32).collect();
    let entries = || rows.iter().flatten();
    let n = entries().count();
    bundle.put("active_per_row", &[rows.len()], &counts);
    bundle.put("active_features", &[n], &entries().map(|e| e.feature as u32).collect::<Vec<_>>());
    bundle.put("active_weights", &[n], &entries().map(|e| e.weight).collect::<Vec<_>>());
}

/// Takes a state out again.
pub fn take_state<R: Sampled>(stored: &Stored, n_modes: usize) -> Result<State<R>> {
    let features = take_spectra(stored, "features", n_modes)?;
    let k = features.n_features();
    let state = State {
        loadings: take_loadings(stored, k)?,
        features,
        feature_ids: stored.values("feature_ids", &[k])?,
        next_feature_id: stored.number("next_feature_id")?,
        weight_means: stored.values("weight_means", &[k])?,
        weight_precisions: stored.values("weight_precisions", &[k])?,
        noise_variance: stored.number("noise_variance")?,
        ln_theta: stored.take("ln_theta")?.1,
        ibp_strength: stored.number("ibp_strength")?,
        ibp_repulsion: stored.number("ibp_repulsion")?,
    };
    check(stored, "weight_means", &state.weight_means, |x| x.is_finite())?;
    check(stored, "weight_precisions", &state.weight_precisions, is_positive)?;
    check(stored, "noise_variance", &[state.noise_variance], is_positive)?;
    check(stored, "ln_theta", &state.ln_theta, |x| is_positive(&x.exp()))?;
    check(stored, "ibp_strength", &[state.ibp_strength], is_positive)?;
    check(stored, "ibp_repulsion", &[state.ibp_repulsion], is_positive)?;
    check(stored, "next_feature_id", &[state.next_feature_id], |next| *next < 1 << 62)?;
    check(stored, "feature_ids", &state.feature_ids, |id| *id < state.next_feature_id)?;
    let mut ids = state.feature_ids.clone();
    ids.sort_unstable();
    check(stored, "feature_ids", ids.array_windows(), |[one, next]: &[u64; 2]| one != next)?;
    Ok(state)
}

/// Takes the weights of `k` features out again.
fn take_loadings(stored: &Stored, k: usize) -> Result<Loadings> {
    let (_, counts) = stored.take::<u32>("active_per_row")?;
    let n: usize = counts.iter().map(|&count| count as usize).sum();
    let active = stored.values::<u32>("active_features", &[n])?;
    let weights = stored.values::<f64>("active_weights", &[n])?;
    check(stored, "active_features", &active, |feature| (*feature as usize) < k)?;
    check(stored, "active_weights", &weights, |x| x.is_finite())?;
    let mut entries = active.iter().zip(weights).map(|(&feature, weight)| Entry { feature: feature as usize, weight });
    let rows = counts.iter().map(|&count| entries.by_ref().take(count as usize).collect()).collect();
    let loadings = Loadings::from_rows(rows, k);
    let is_twice = |row: &Vec<Entry>| row.array_windows().any(|[one, next]| one.feature == next.feature);
    match loadings.rows().iter().position(is_twice) {
        None => Ok(loadings),
        Some(row) => Err(stored.damaged(format!("row {row} uses a feature twice"))),
    }
}

/// Takes the state of a run with these sizes out again.
pub fn take_state_of<R: Sampled>(stored: &Stored, sizes: &Sizes) -> Result<State<R>> {
    let state = take_state(stored, sizes.n_modes)?;
    check_length(stored, "active_per_row", state.loadings.n_rows(), sizes.n_rows)?;
    check_length(stored, "ln_theta", state.ln_theta.len(), sizes.n_theta)?;
    Ok(state)
}

/// Puts the accumulated posterior into a bundle.
pub fn put_posterior(bundle: &mut Bundle, posterior: &Posterior) {
    let list = &posterior.features;
    let n = list.len();
    let (n_sites, n_rows) = list.first().map_or((0, 0), |f| (f.mean.len(), f.weights.len()));
    bundle.put("posterior.n_kept", &[1], &[posterior.n_kept]);
    bundle.put("posterior.ids", &[n], &list.iter().map(|f| f.id).collect::<Vec<_>>());
    bundle.put("posterior.n_present", &[n], &list.iter().map(|f| f.n_present).collect::<Vec<_>>());
    bundle.put("posterior.next_id", &[1], &[posterior.next_id]);
    bundle.put("posterior.last_ids", &[n], &list.iter().map(|f| f.last_id).collect::<Vec<_>>());
    bundle.put_parts("posterior.series", &[n, posterior.n_kept as usize], list.iter().map(|f| &f.series[0]));
    bundle.put_parts("posterior.mean", &[n, n_sites], list.iter().map(|f| &f.mean));
    bundle.put_parts("posterior.deviations", &[n, n_sites], list.iter().map(|f| &f.deviations));
    bundle.put_parts("posterior.exceeds", &[n, n_sites], list.iter().map(|f| &f.exceeds));
    let n_widths = list.iter().map(|f| f.widths.len()).sum();
    bundle.put_parts("posterior.widths", &[n_widths], list.iter().map(|f| &f.widths));
    bundle.put_parts("posterior.weights", &[n, n_rows], list.iter().map(|f| &f.weights));
    bundle.put_parts("posterior.active", &[n, n_rows], list.iter().map(|f| &f.active));
    if let Some(reconstruction) = &posterior.reconstruction {
        let mean = &reconstruction.mean;
        let shape = [mean.n_rows(), mean.n_modes()];
        bundle.put_parts("posterior.reconstruction", &shape, (0..mean.tiles().len()).map(|tile| mean.tile(tile)));
    }
}

/// Takes the accumulated posterior out again; with the reconstruction where that was accumulated.
pub fn take_posterior(stored: &Stored, sizes: &Sizes, with_reconstruction: bool) -> Result<Posterior> {
    let mut posterior = Posterior::new(None);
    posterior.n_kept = stored.number("posterior.n_kept")?;
    posterior.next_id = stored.number("posterior.next_id")?;
    posterior.features = take_moments(stored, sizes, posterior.n_kept)?;
    if with_reconstruction {
        let values = stored.values::<f32>("posterior.reconstruction", &[sizes.n_rows, sizes.n_modes])?;
        check(stored, "posterior.reconstruction", &values, |x| x.is_finite())?;
        let mut mean = SpectralData::zeros(sizes.n_rows, Tiles::whole(sizes.n_modes));
        let mut from = values.as_slice();
        for (_, tile) in mean.tiles_mut() {
            let (now, later) = from.split_at(tile.len());
            tile.copy_from_slice(now);
            from = later;
        }
        posterior.reconstruction = Some(Reconstruction { mean });
    }
    Ok(posterior)
}

/// Takes the moments of features out again.
fn take_moments(stored: &Stored, sizes: &Sizes, n_kept: u64) -> Result<Vec<FeatureMoments>> {
    let (_, ids) = stored.take::<u64>("posterior.ids")?;
    check(stored, "posterior.ids", ids.array_windows(), |[one, next]: &[u64; 2]| one < next)?;
    let n = ids.len();
    // Nothing was put in of what no feature has.
    let (n_sites, n_rows) = if n == 0 { (0, 0) } else { (sizes.n_columns, sizes.n_rows) };
    let n_present = stored.values::<u64>("posterior.n_present", &[n])?;
    check(stored, "posterior.n_present", &n_present, |present| *present <= n_kept && *present < 1 << 32)?;
    let last_ids = stored.values::<u64>("posterior.last_ids", &[n])?;
    let n_kept = n_kept as usize;
    let series = stored.values::<f64>("posterior.series", &[n, n_kept])?;
    let means = stored.values::<f32>("posterior.mean", &[n, n_sites])?;
    let deviations = stored.values::<f32>("posterior.deviations", &[n, n_sites])?;
    let exceeds = stored.values::<u32>("posterior.exceeds", &[n, n_sites])?;
    let (_, widths) = stored.take::<f32>("posterior.widths")?;
    let weights = stored.values::<f64>("posterior.weights", &[n, n_rows])?;
    let active = stored.values::<u32>("posterior.active", &[n, n_rows])?;
    check(stored, "posterior.series", &series, |x| x.is_finite() && *x >= 0.0)?;
    check(stored, "posterior.mean", &means, |x| x.is_finite())?;
    check(stored, "posterior.deviations", &deviations, |x| x.is_finite())?;
    check(stored, "posterior.weights", &weights, |x| x.is_finite())?;
    let n_draws = n_present.iter().sum::<u64>().max(1) as usize;
    check_length(stored, "posterior.widths", widths.len() % n_draws, 0)?;
    let n_axes = widths.len() / n_draws;
    let first_width = |at: usize| n_present[..at].iter().sum::<u64>() as usize * n_axes;
    let part = |at: usize, size: usize| at * size..(at + 1) * size;
    let moments = |at: usize| FeatureMoments {
        id: ids[at],
        last_id: last_ids[at],
        n_present: n_present[at],
        mean: means[part(at, n_sites)].to_vec(),
        deviations: deviations[part(at, n_sites)].to_vec(),
        exceeds: exceeds[part(at, n_sites)].to_vec(),
        widths: widths[first_width(at)..first_width(at + 1)].to_vec(),
        weights: weights[part(at, n_rows)].to_vec(),
        active: active[part(at, n_rows)].to_vec(),
        series: vec![series[part(at, n_kept)].to_vec()],
    };
    Ok((0..n).map(moments).collect())
}

/// Puts the preprocessing into a bundle.
pub fn put_preprocessing(bundle: &mut Bundle, preprocessing: &Preprocessing) {
    let (n_runs, n_sites) = (preprocessing.runs.len(), preprocessing.overall.means.len());
    let n_slopes = preprocessing.overall.slopes.len();
    let json = |what: &dyn Fn() -> serde_json::Result<String>| what().expect("names are JSON");
    bundle.note("centering", json(&|| serde_json::to_string(&preprocessing.centering)));
    bundle.note("covariates", json(&|| serde_json::to_string(&preprocessing.covariates)));
    let of_runs = |of: fn(&RunFit) -> &Vec<f64>| preprocessing.runs.iter().flat_map(|run| of(run).clone()).collect();
    let (means, slopes): (Vec<f64>, Vec<f64>) = (of_runs(|run| &run.means), of_runs(|run| &run.slopes));
    bundle.put("run_means", &[n_runs, n_sites], &means);
    bundle.put("run_slopes", &[n_runs, n_slopes], &slopes);
    bundle.put("overall_means", &[n_sites], &preprocessing.overall.means);
    bundle.put("overall_slopes", &[n_slopes], &preprocessing.overall.slopes);
    bundle.put("site_scales", &[preprocessing.site_scales.len()], &preprocessing.site_scales);
    bundle.put("factor", &[1], &[preprocessing.factor]);
}

/// Takes the preprocessing out again.
pub fn take_preprocessing(stored: &Stored) -> Result<Preprocessing> {
    let ([n_runs, n_sites], means) = stored.table::<f64>("run_means")?;
    let unreadable = |name: &str| stored.damaged(format!("note '{name}' cannot be read"));
    let covariates: Vec<String> =
        serde_json::from_str(stored.text("covariates")?).map_err(|_| unreadable("covariates"))?;
    let n_slopes = n_sites * covariates.len();
    let overall = RunFit {
        means: stored.values("overall_means", &[n_sites])?,
        slopes: stored.values("overall_slopes", &[n_slopes])?,
    };
    let slopes = stored.values::<f64>("run_slopes", &[n_runs, n_slopes])?;
    let (_, site_scales) = stored.take::<f64>("site_scales")?;
    let factor = stored.number("factor")?;
    for (name, values) in [
        ("run_means", &means),
        ("run_slopes", &slopes),
        ("overall_means", &overall.means),
        ("overall_slopes", &overall.slopes),
    ] {
        check(stored, name, values, |x| x.is_finite())?;
    }
    check(stored, "site_scales, factor", site_scales.iter().chain([&factor]), is_positive)?;
    if !site_scales.is_empty() {
        check_length(stored, "site_scales", site_scales.len(), n_sites)?;
    }
    let part = |values: &[f64], run: usize, n: usize| values[run * n..(run + 1) * n].to_vec();
    let run = |run: usize| RunFit { means: part(&means, run, n_sites), slopes: part(&slopes, run, n_slopes) };
    Ok(Preprocessing {
        centering: serde_json::from_str(stored.text("centering")?).map_err(|_| unreadable("centering"))?,
        covariates,
        runs: (0..n_runs).map(run).collect(),
        overall,
        site_scales,
        factor,
    })
}

/// Refuses a preprocessing that is not of the run.
pub fn check_preprocessing(stored: &Stored, preprocessing: &Preprocessing, sizes: &Sizes) -> Result<()> {
    check_length(stored, "overall_means", preprocessing.overall.means.len(), sizes.n_columns)?;
    check_length(stored, "run_means", preprocessing.runs.len(), sizes.n_runs)
}
