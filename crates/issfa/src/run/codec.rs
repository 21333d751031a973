//! States, posteriors and preprocessing to and from named arrays.

use crate::chain::moments::FeatureMoments;
use crate::chain::posterior::{Posterior, Reconstruction};
use crate::data::regression::RunFit;
use crate::data::{Centering, Preprocessing};
use crate::error::Result;
use crate::model::{Entry, Loadings, State};
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::linalg::Real;
use crate::spectral::{FeatureSpectra, SpectralData, Tiles};

/// Puts features x modes into a bundle.
pub fn put_spectra<R: Real>(bundle: &mut Bundle, name: &str, spectra: &FeatureSpectra<R>) {
    let (k, n_modes) = (spectra.n_features(), spectra.tiles().n_modes);
    let values: Vec<R> = (0..k).flat_map(|feature| spectra.feature(feature).into_iter().map(R::from_f64)).collect();
    bundle.put(name, &[k, n_modes], &values);
}

/// Takes features x modes out again.
pub fn take_spectra<R: Real>(stored: &Stored, name: &str) -> Result<FeatureSpectra<R>> {
    let (shape, values) = stored.take::<R>(name)?;
    let n_modes = shape.get(1).copied().unwrap_or(0);
    let wide: Vec<f64> = values.iter().map(|x| x.to_f64()).collect();
    Ok(FeatureSpectra::from_rows(n_modes, wide.chunks_exact(n_modes.max(1))))
}

/// Puts a state into a bundle.
pub fn put_state<R: Real>(bundle: &mut Bundle, state: &State<R>) {
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
pub fn take_state<R: Real>(stored: &Stored) -> Result<State<R>> {
    let features = take_spectra(stored, "features")?;
    let k = features.n_features();
    let (_, counts) = stored.take::<u32>("active_per_row")?;
    let n: usize = counts.iter().map(|&count| count as usize).sum();
    let active = stored.values::<u32>("active_features", &[n])?;
    let weights = stored.values::<f64>("active_weights", &[n])?;
    let mut entries = active.iter().zip(weights).map(|(&feature, weight)| Entry { feature: feature as usize, weight });
    let rows = counts.iter().map(|&count| entries.by_ref().take(count as usize).collect()).collect();
    Ok(State {
        loadings: Loadings::from_rows(rows, k),
        features,
        feature_ids: stored.values("feature_ids", &[k])?,
        next_feature_id: stored.number("next_feature_id")?,
        weight_means: stored.values("weight_means", &[k])?,
        weight_precisions: stored.values("weight_precisions", &[k])?,
        noise_variance: stored.number("noise_variance")?,
        ln_theta: stored.take("ln_theta")?.1,
        ibp_strength: stored.number("ibp_strength")?,
        ibp_repulsion: stored.number("ibp_repulsion")?,
    })
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
    let series: Vec<f64> = list.iter().flat_map(|f| f.series[0].clone()).collect();
    bundle.put("posterior.series", &[n, posterior.n_kept as usize], &series);
    bundle.put("posterior.mean", &[n, n_sites], &list.iter().flat_map(|f| f.mean.clone()).collect::<Vec<_>>());
    let deviations: Vec<f32> = list.iter().flat_map(|f| f.deviations.clone()).collect();
    bundle.put("posterior.deviations", &[n, n_sites], &deviations);
    let exceeds: Vec<u32> = list.iter().flat_map(|f| f.exceeds.clone()).collect();
    bundle.put("posterior.exceeds", &[n, n_sites], &exceeds);
    let widths: Vec<f32> = list.iter().flat_map(|f| f.widths.clone()).collect();
    bundle.put("posterior.widths", &[widths.len()], &widths);
    bundle.put("posterior.weights", &[n, n_rows], &list.iter().flat_map(|f| f.weights.clone()).collect::<Vec<_>>());
    bundle.put("posterior.active", &[n, n_rows], &list.iter().flat_map(|f| f.active.clone()).collect::<Vec<_>>());
    if let Some(reconstruction) = &posterior.reconstruction {
        let mean = &reconstruction.mean;
        let values: Vec<f32> = (0..mean.tiles().len()).flat_map(|tile| mean.tile(tile).to_vec()).collect();
        bundle.put("posterior.reconstruction", &[mean.n_rows(), mean.n_modes()], &values);
    }
}

/// Takes the accumulated posterior out again; `with_reconstruction` as in [`Posterior::new`].
pub fn take_posterior(stored: &Stored, with_reconstruction: Option<(usize, usize)>) -> Result<Posterior> {
    let mut posterior = Posterior::new(with_reconstruction);
    posterior.n_kept = stored.number("posterior.n_kept")?;
    let (_, ids) = stored.take::<u64>("posterior.ids")?;
    let n = ids.len();
    let n_present = stored.values::<u64>("posterior.n_present", &[n])?;
    posterior.next_id = stored.number("posterior.next_id")?;
    let last_ids = stored.values::<u64>("posterior.last_ids", &[n])?;
    let n_kept = posterior.n_kept as usize;
    let series = stored.values::<f64>("posterior.series", &[n, n_kept])?;
    let (shape, means) = stored.take::<f32>("posterior.mean")?;
    let n_sites = shape[1];
    let deviations = stored.values::<f32>("posterior.deviations", &[n, n_sites])?;
    let exceeds = stored.values::<u32>("posterior.exceeds", &[n, n_sites])?;
    let (_, widths) = stored.take::<f32>("posterior.widths")?;
    let n_axes = widths.len() / n_present.iter().sum::<u64>().max(1) as usize;
    let first_width = |at: usize| n_present[..at].iter().sum::<u64>() as usize * n_axes;
    let (shape, weights) = stored.take::<f64>("posterior.weights")?;
    let n_rows = shape[1];
    let active = stored.values::<u32>("posterior.active", &[n, n_rows])?;
    let part = |at: usize, size: usize| at * size..(at + 1) * size;
    posterior.features = (0..n)
        .map(|at| FeatureMoments {
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
        })
        .collect();
    if let Some((rows, modes)) = with_reconstruction {
        let values = stored.values::<f32>("posterior.reconstruction", &[rows, modes])?;
        let mut mean = SpectralData::zeros(rows, Tiles::whole(modes));
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
    let (shape, means) = stored.take::<f64>("run_means")?;
    let (n_runs, n_sites) = (shape[0], shape[1]);
    let overall = RunFit { means: stored.take("overall_means")?.1, slopes: stored.take("overall_slopes")?.1 };
    let n_slopes = overall.slopes.len();
    let slopes = stored.values::<f64>("run_slopes", &[n_runs, n_slopes])?;
    let part = |values: &[f64], run: usize, n: usize| values[run * n..(run + 1) * n].to_vec();
    let run = |run: usize| RunFit { means: part(&means, run, n_sites), slopes: part(&slopes, run, n_slopes) };
    Ok(Preprocessing {
        centering: serde_json::from_str(stored.text("centering")?).unwrap_or(Centering::None),
        covariates: serde_json::from_str(stored.text("covariates")?).unwrap_or_default(),
        runs: (0..n_runs).map(run).collect(),
        overall,
        site_scales: stored.take("site_scales")?.1,
        factor: stored.number("factor")?,
    })
}
