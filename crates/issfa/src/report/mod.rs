//! The figures of a run and of its comparison with a known truth.

pub mod brain;
pub mod noise;
pub mod upright;

use crate::compiled::Sampled;
use crate::data::read::npy::read_npy_f32;
use crate::data::{Array, Rows, memory, read};
use crate::error::{Error, Result};
use crate::evidence::EvidenceCurve;
use crate::figures::bars::{columns, histogram};
use crate::figures::images::{GalleryOptions, GalleryRow, Limits, Panel, gallery};
use crate::figures::lines::{LinePanel, Mark, Series, panels};
use crate::figures::ticks::{Scale, number};
use crate::new_rows::transform::NewRowSettings;
use crate::noise::{Filter, RowNoise};
use crate::numeric::workers::share;
use crate::run::settings::Precision;
use crate::run::trace::TraceRow;
use crate::structure::{Direction, Spectrum, Structure};
use crate::summary::Fitted;
use crate::summary::features::{excess_kurtosis, read_images};
use std::path::Path;
use std::sync::Arc;
use upright::Upright;

/// The most pictures a gallery shows.
const MOST_SHOWN: usize = 300;
/// The most features of a fit in one figure; its page has all.
const MOST_FEATURES: usize = 60;

/// (Re)makes the figures of a fit in a folder: traces, features, the posterior of K, weights.
pub fn write_figures(fitted: &Fitted, folder: &Path) -> Result<()> {
    let chains = fitted.traces();
    if chains.iter().all(|rows| rows.is_empty()) {
        return Ok(());
    }
    let (table, features) = (&fitted.found().features.table, &fitted.features());
    let has_features = features.shape[0] > 0;
    let of_noise = |filter: &Arc<Filter>| {
        let upright = Upright::of(fitted);
        noise::write_noise_figures(filter.reference(), &fitted.structure, &fitted.mask, &upright, folder)
    };
    let of_evidence = |curve| dimensionality(curve, table.len()).save(folder, "dimensionality");
    let name = |at: usize| table[at].id.to_string();
    // Those that take longest first.
    let all: [&(dyn Fn() -> Result<()> + Sync); 7] = [
        &|| if has_features { feature_gallery(fitted, features).save(folder, "features") } else { Ok(()) },
        &|| fitted.noise.as_ref().map_or(Ok(()), of_noise),
        &|| traces(fitted, &chains).save(folder, "traces"),
        &|| match has_features && features.shape.len() > 2 {
            true => profiles(features, &name).save(folder, "profiles"),
            false => Ok(()),
        },
        &|| fitted.evidence.as_ref().map_or(Ok(()), of_evidence),
        &|| n_features(fitted, &chains).save(folder, "n_features"),
        &|| if has_features { weights(fitted).save(folder, "weights") } else { Ok(()) },
    ];
    let problems = share(
        all.into_iter(),
        || Ok(()),
        |sofar: &mut Result<()>, write| {
            if sofar.is_ok() {
                *sofar = write();
            }
        },
    );
    problems.into_iter().collect()
}

/// The persistent features, each with its map in noise units under it where the noise was measured.
fn feature_gallery(fitted: &Fitted, features: &Array) -> crate::figures::Figure {
    let (table, upright, z) = (&fitted.found().features.table, Upright::of(fitted), fitted.features_z());
    let (n, shown) = (features.shape[0], features.shape[0].min(MOST_FEATURES));
    let caption = |at: usize| format!("{}: {:.2}%", table[at].id, 100.0 * table[at].variance_explained);
    let slices: Vec<Option<usize>> = (0..shown).map(|at| upright.fullest(features.row(at))).collect();
    let means = (0..shown).map(|at| upright.panel(features.row(at), slices[at], caption(at))).collect();
    let label = if z.is_some() { "mean" } else { "" };
    let mut rows = vec![GalleryRow { label: label.into(), panels: means }];
    if let Some(z) = z {
        // The place in the brain is said above.
        let panel = |at: usize| Panel { caption: String::new(), ..upright.panel(z.row(at), slices[at], String::new()) };
        rows.push(GalleryRow { label: "z".into(), panels: (0..shown).map(panel).collect() });
    }
    let title = format!("{shown} of {n} persistent features, by variance explained (id: share of the sum of squares)");
    gallery(&title, &rows, GalleryOptions { by_sign: true, ..GalleryOptions::default() })
}

/// The eigenvalues of a run whose file is damaged or gone are to be made anew.
pub fn forget_damaged_evidence(run: &Path) -> Result<()> {
    EvidenceCurve::forget_damaged(run)
}

/// Computes the eigenvalues and the evidence of a fit that does not have them, from its rows: those of its inputs, unless
/// they are given.
pub fn add_evidence(fitted: &mut Fitted, rows: Option<Rows>) -> Result<()> {
    fn curve<R: Sampled>(fitted: &Fitted, rows: Option<Rows>) -> Result<EvidenceCurve> {
        let observations = fitted.training_rows(rows)?;
        let (n_rows, n_sites) = (fitted.record.n_rows as u64, observations.n_columns() as u64);
        let needed = n_rows * n_sites * R::BYTES as u64 + 3 * 8 * n_rows.min(n_sites).pow(2);
        memory::check(&format!("the eigenvalues of {n_rows} x {n_sites}"), needed)?;
        let (structure, preprocessing) = (&fitted.structure, &fitted.preprocessing);
        let runs = || (0..observations.n_runs()).map(|run| observations.run_rows(run));
        let levels = fitted.noise.as_ref().map(|filter| filter.reference().row_levels(runs())).unwrap_or_default();
        let noise = fitted.noise.as_ref().map(|filter| RowNoise { filter, levels: &levels });
        let rows = R::all_rows(&observations, structure, preprocessing, noise)?;
        let unit = fitted.noise.as_ref().map_or(preprocessing.factor, |filter| filter.reference().unit);
        Ok(EvidenceCurve::of(&rows.data, unit))
    }
    if fitted.evidence.is_some() {
        return Ok(());
    }
    let curve = match fitted.settings().precision {
        Precision::F32 => curve::<f32>(fitted, rows)?,
        Precision::F64 => curve::<f64>(fitted, rows)?,
    };
    if let Some(folder) = &fitted.folder {
        curve.write(folder)?;
    }
    fitted.evidence = Some(curve);
    Ok(())
}

/// Eigenvalues and evidence, with what PCA and what the model make of them.
fn dimensionality(curve: &EvidenceCurve, n_persistent: usize) -> crate::figures::Figure {
    let best = curve.best();
    let shown = (3 * best.unwrap_or(0).max(n_persistent)).max(60).min(curve.eigenvalues.len());
    let series = |values: &[f64], name: &str| {
        let y: Vec<f64> = values.iter().take(shown).copied().collect();
        vec![Series { name: name.into(), x: (1..=y.len()).map(|k| k as f64).collect(), y }]
    };
    let largest = curve.ln_evidence.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let relative: Vec<f64> = curve.ln_evidence.iter().map(|x| x - largest).collect();
    let persistent = (1..=shown)
        .contains(&n_persistent)
        .then(|| Mark { at: n_persistent as f64, label: "persistent features".into() });
    let list = [
        LinePanel {
            y_label: "eigenvalue".into(),
            series: series(&curve.eigenvalues, "eigenvalues"),
            vertical: persistent,
            scale: Scale::Log10,
            ..LinePanel::default()
        },
        LinePanel {
            y_label: "ln evidence - largest".into(),
            x_label: "principal components".into(),
            series: series(&relative, "evidence"),
            vertical: best.map(|k| Mark { at: k as f64, label: format!("largest at {k}") }),
            ..LinePanel::default()
        },
    ];
    panels("How many principal components: eigenvalues and Minka's evidence", &list)
}

fn panel(image: &[f32], grid: &[usize], caption: String) -> Panel {
    Panel { caption, grid: grid.to_vec(), values: image.iter().map(|&x| f64::from(x)).collect() }
}

/// Features along each axis, through the site where each is largest.
fn profiles(features: &Array, name: &dyn Fn(usize) -> String) -> crate::figures::Figure {
    const SHOWN: usize = 5;
    let (n, grid) = (features.shape[0], &features.shape[1..]);
    let along = |image: &[f32], axis: usize| {
        let seen = (0..image.len()).filter(|&site| !image[site].is_nan());
        let peak = seen.max_by(|&a, &b| image[a].abs().total_cmp(&image[b].abs())).unwrap_or(0);
        let inner: usize = grid[axis + 1..].iter().product();
        let first = peak - peak / inner % grid[axis] * inner;
        (0..grid[axis]).map(|step| f64::from(image[first + step * inner])).collect::<Vec<_>>()
    };
    let row = |axis: usize| GalleryRow {
        label: format!("axis {}, {} sites", axis + 1, grid[axis]),
        panels: (0..n.min(SHOWN))
            .map(|at| Panel { caption: name(at), grid: vec![grid[axis]], values: along(features.row(at), axis) })
            .collect(),
    };
    let rows: Vec<GalleryRow> = (0..grid.len()).map(row).collect();
    gallery("The first features along each axis, through their largest value", &rows, GalleryOptions::default())
}

fn traces(fitted: &Fitted, chains: &[&[TraceRow]]) -> crate::figures::Figure {
    let of = |pick: &dyn Fn(&TraceRow) -> f64| -> Vec<Series> {
        let one = |(at, rows): (usize, &&[TraceRow])| Series {
            name: format!("chain {}", at + 1),
            x: rows.iter().map(|row| row.sweep as f64).collect(),
            y: rows.iter().map(pick).collect(),
        };
        chains.iter().enumerate().map(one).collect()
    };
    let panel = |y_label: &str, series: Vec<Series>, scale: Scale| LinePanel {
        y_label: y_label.into(),
        x_label: "sweep".into(),
        series,
        vertical: Some(Mark { at: fitted.checked.window.burn_in as f64, label: "burn-in ends".into() }),
        horizontal: None,
        scale,
    };
    let mut list = vec![
        panel("features", of(&|row| row.n_features as f64), Scale::Linear),
        panel("noise variance", of(&|row| row.noise_variance), scale_of(chains, |row| row.noise_variance)),
    ];
    for (p, name) in fitted.record.theta.iter().enumerate() {
        list.push(panel(name, of(&|row| row.theta[p]), Scale::Log10));
    }
    if chains.iter().copied().flatten().any(|row| row.heldout_residual.is_some()) {
        let residual = of(&|row| row.heldout_residual.unwrap_or(f64::NAN));
        let scale = scale_of(chains, |row| row.heldout_residual.unwrap_or(f64::NAN));
        list.push(panel("held-out residual", residual, scale));
    }
    panels("Traces", &list)
}

/// By orders of magnitude where values fall by more than one.
fn scale_of(chains: &[&[TraceRow]], of: impl Fn(&TraceRow) -> f64) -> Scale {
    let (low, high) = Scale::Linear.range(chains.iter().copied().flatten().map(of));
    if low > 0.0 && high > 10.0 * low { Scale::Log10 } else { Scale::Linear }
}

fn n_features(fitted: &Fitted, chains: &[&[TraceRow]]) -> crate::figures::Figure {
    let after = chains.iter().copied().flatten().filter(|row| row.sweep > fitted.checked.window.burn_in);
    let counts: Vec<f64> = after.map(|row| row.n_features as f64).collect();
    let (low, high) = counts.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &k| (low.min(k), high.max(k)));
    if !low.is_finite() {
        return columns("Posterior of the number of features", "features", "share of sweeps", &[]);
    }
    let share = |k: usize| counts.iter().filter(|&&count| count == k as f64).count() as f64 / counts.len() as f64;
    if high - low > 40.0 {
        let series = [("sweeps".to_string(), counts)];
        return histogram("Posterior of the number of features", "features", &series, 40, None, Scale::Linear);
    }
    let bars: Vec<(String, f64)> = (low as usize..=high as usize).map(|k| (k.to_string(), share(k))).collect();
    columns("Posterior of the number of features", "features", "share of sweeps", &bars)
}

fn weights(fitted: &Fitted) -> crate::figures::Figure {
    let values: Vec<f64> = fitted.weights().values.iter().filter(|w| !w.is_nan()).map(|&w| f64::from(w)).collect();
    let note = format!("excess kurtosis {:.1}", excess_kurtosis(values.iter().copied()));
    let series = [("all rows and persistent features".to_string(), values)];
    let title = "Posterior mean weights on unit-norm features";
    histogram(title, "weight", &series, 60, Some(&note), Scale::Log10)
}

/// True features with their best matches, and held-out rows observed, true and reconstructed.
pub fn write_truth_figures(fitted: &Fitted, simulation: &Path, folder: &Path) -> Result<()> {
    let features = fitted.features();
    let grid = &features.shape[1..];
    let found: Vec<Vec<f32>> = (0..features.shape[0]).map(|at| features.row(at).to_vec()).collect();
    let (_, truth) = read_images(&simulation.join("truth_features.npy"))?;
    let (found_sites, true_sites) = (grid.iter().product::<usize>(), truth.first().map_or(0, Vec::len));
    if true_sites != found_sites {
        return Err(Error::SitesDiffer {
            path: simulation.join("truth_features.npy"),
            found: true_sites,
            expected: found_sites,
            because: format!("the run {} has that many", fitted.name().display()),
        });
    }
    features_beside_truth(&truth, &found, grid).save(folder, "truth_features")?;
    reconstructions(fitted, simulation, grid)?.save(folder, "truth_reconstruction")
}

fn features_beside_truth(truth: &[Vec<f32>], found: &[Vec<f32>], grid: &[usize]) -> crate::figures::Figure {
    // NaN lies outside of a mask.
    let cosine = |a: &[f32], b: &[f32]| {
        let inside = a.iter().zip(b).filter(|(_, y)| !y.is_nan());
        inside.map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>()
    };
    let mut rows =
        [GalleryRow { label: "true".into(), panels: vec![] }, GalleryRow { label: "found".into(), panels: vec![] }];
    for (at, feature) in truth.iter().enumerate().take(MOST_SHOWN) {
        let matched =
            found.iter().map(|image| (cosine(feature, image), image)).max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        rows[0].panels.push(panel(feature, grid, (at + 1).to_string()));
        rows[1].panels.push(match matched {
            Some((along, image)) => {
                let turned: Vec<f32> = image.iter().map(|x| x * along.signum() as f32).collect();
                panel(&turned, grid, format!("cos {:.2}", along.abs()))
            }
            None => Panel::default(),
        });
    }
    let columns = truth.len().clamp(1, 6);
    let options = GalleryOptions { n_columns: columns, ..GalleryOptions::default() };
    gallery("True features and the posterior means that match them best", &rows, options)
}

fn reconstructions(fitted: &Fitted, simulation: &Path, grid: &[usize]) -> Result<crate::figures::Figure> {
    const SHOWN: usize = 5;
    let source = read::open(&simulation.join("heldout.npy"))?;
    let (n_rows, n_sites) = (source.n_rows().min(40), source.n_sites());
    let (_, truth) = read_npy_f32(&simulation.join("truth_heldout.npy"))?;
    // Rows with the strongest signal are the ones worth looking at.
    let energy = |row: usize| truth[row * n_sites..(row + 1) * n_sites].iter().map(|x| x * x).sum::<f32>();
    let mut order: Vec<usize> = (0..n_rows).collect();
    order.sort_by(|&a, &b| energy(b).total_cmp(&energy(a)));
    order.truncate(SHOWN);
    let mut reconstructed = Vec::new();
    let (heldout, how) = (Rows::open(&[simulation.join("heldout.npy")])?, NewRowSettings::plain());
    fitted.transform_batches(&fitted.open_rows(&heldout, &how)?, &how, &mut |batch| {
        reconstructed.extend_from_slice(&batch.reconstruction);
        Ok(())
    })?;
    let mut rows =
        ["observed", "true", "reconstructed"].map(|label| GalleryRow { label: label.into(), panels: vec![] });
    let mut observed = vec![0.0; n_sites];
    for &row in &order {
        source.read_rows(row, &mut observed)?;
        let part = row * n_sites..(row + 1) * n_sites;
        let noisy: Vec<f32> = observed.iter().map(|&x| x as f32).collect();
        rows[0].panels.push(panel(&noisy, grid, format!("held-out row {row}")));
        rows[1].panels.push(panel(&truth[part.clone()], grid, String::new()));
        rows[2].panels.push(panel(&reconstructed[part], grid, String::new()));
    }
    let options = GalleryOptions { n_columns: SHOWN, limits: Limits::PerPanel, ..GalleryOptions::default() };
    Ok(gallery("Held-out rows: what was seen, what was there, what the fit says", &rows, options))
}

/// The most eigenvectors shown along an axis of a plane, and of other grids in all.
const EIGENVECTORS: (usize, usize) = (8, 20);

/// The figure of a structure's eigenvectors, each times its prior standard deviation under theta: features are their
/// sums with standard normal weights.
pub fn write_eigenvectors(folder: &Path, structure: &Structure, spectrum: &Spectrum, theta: &[f64]) -> Result<()> {
    let (eigenvalues, precisions) = (structure.eigenvalues(), spectrum.precisions(theta));
    let mut scratch = Vec::new();
    let mut picture = |mode: usize| {
        let mut values = vec![0.0; structure.n_sites()];
        values[mode] = 1.0 / precisions[mode].sqrt();
        structure.apply(Direction::ToSites, &mut values, &mut scratch);
        Panel { caption: format!("γ = {}", number(eigenvalues[mode])), grid: structure.grid().to_vec(), values }
    };
    let smoothest = |values: &[f64], most: usize| {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        order.truncate(most);
        order
    };
    let along = |axis: usize| smoothest(structure.axes()[axis].eigenvalues(), EIGENVECTORS.0);
    let rows: Vec<GalleryRow> = match structure.grid() {
        [_, n_right] => {
            let row = |down: usize| GalleryRow {
                label: format!("mode {down}"),
                panels: along(1).into_iter().map(|right| picture(down * n_right + right)).collect(),
            };
            along(0).into_iter().map(row).collect()
        }
        _ => {
            let panels = smoothest(&eigenvalues, EIGENVECTORS.1).into_iter().map(picture).collect();
            vec![GalleryRow { label: String::new(), panels }]
        }
    };
    let n_columns = if structure.grid().len() == 2 { EIGENVECTORS.0 } else { 5 };
    let options = GalleryOptions { n_columns, limits: Limits::Shared, ..GalleryOptions::default() };
    let shown = theta.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    let title = format!("{}: smoothest eigenvectors, scaled by 1/sqrt(h), theta = {shown}", structure.expression());
    gallery(&title, &rows, options).save(folder, "eigenvectors")
}

/// The figure of features drawn from the prior.
pub fn write_prior_samples(folder: &Path, images: &[Vec<f64>], grid: &[usize], title: &str) -> Result<()> {
    if images.is_empty() {
        return Err(Error::setting("count", 0, "must be at least 1"));
    }
    let one = |(at, image): (usize, &Vec<f64>)| Panel {
        caption: format!("{}", at + 1),
        grid: grid.to_vec(),
        values: image.clone(),
    };
    let row =
        GalleryRow { label: String::new(), panels: images.iter().take(MOST_SHOWN).enumerate().map(one).collect() };
    let options = GalleryOptions { n_columns: images.len().clamp(1, 4), ..GalleryOptions::default() };
    gallery(title, &[row], options).save(folder, "prior_samples")
}
