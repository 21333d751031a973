//! The features of the page: what is known of each, its maps, its course over the rows.

use crate::contents::Contents;
use crate::maps::{self, Coded};
use crate::space::Layout;
use issfa::Fitted;
use serde_json::{Value, json};

/// Bars of a histogram of weights.
const N_BINS: usize = 24;
/// Rows that are named as those that use a feature most.
const N_ROWS: usize = 5;
/// The most rows of a course; of longer ones the largest weight of every so many.
const MOST_ROWS: usize = 5000;
/// The most bytes of all courses of a light page.
const MOST_LIGHT: usize = 200_000;

/// The maps that features have.
pub struct Maps<'a> {
    means: &'a [Vec<f32>],
    sds: &'a [Vec<f32>],
    exceedance: &'a [Vec<f32>],
    z: Option<Vec<Vec<f32>>>,
    n_rows: usize,
}

impl<'a> Maps<'a> {
    /// Of what a fit has found.
    pub fn of(fitted: &'a Fitted) -> Maps<'a> {
        let features = &fitted.found().features;
        let z = fitted.noise_reference().map(|reference| features.in_noise(&reference.noise_sds()));
        let n_rows = features.n_input_rows();
        Maps { means: &features.means, sds: &features.sds, exceedance: &features.exceedance, z, n_rows }
    }

    /// How many features there are.
    pub fn n_features(&self) -> usize {
        self.means.len()
    }

    /// About what they take on a page.
    pub fn n_bytes(&self, n_sites: usize, is_light: bool) -> usize {
        let n_maps = if is_light { 1 } else { 3 + usize::from(self.z.is_some()) };
        let n_courses = if is_light { 1 } else { 2 };
        self.means.len() * (n_sites * n_maps + self.n_rows.min(MOST_ROWS) * n_courses) * 4 / 3
    }
}

/// Adds the arrays of all features and says what is known of them.
pub fn add(fitted: &Fitted, layout: &Layout, maps: Maps, contents: &mut Contents) -> Value {
    let features = &fitted.found().features;
    let k = features.table.len();
    let (weights, activation) = (fitted.weights().values, fitted.activation().values);
    let n_rows = features.n_input_rows();
    let stride = if contents.is_light { (n_rows * k).div_ceil(MOST_LIGHT) } else { 1 };
    let stride = stride.max(n_rows.div_ceil(MOST_ROWS)).max(1);
    let list: Vec<Value> = (0..k)
        .map(|at| {
            let column = |values: &[f32]| -> Vec<f32> { (0..n_rows).map(|row| values[row * k + at]).collect() };
            let (own, active) = (column(&weights), column(&activation));
            let mut feature = known(fitted, at);
            feature["maps"] = add_maps(layout, &maps, at, contents);
            feature["course"] = add_courses(at, &own, &active, stride, contents);
            feature["histogram"] = histogram(&own, &active);
            feature["rows"] = most(&own);
            feature
        })
        .collect();
    json!({"list": list, "stride": stride, "n_rows": n_rows, "exceed": features.exceed})
}

/// The line of the table, and how alike its courses are over runs.
fn known(fitted: &Fitted, at: usize) -> Value {
    let found = fitted.found();
    let row = &found.features.table[at];
    let synchrony = found.synchrony.iter().find(|other| other.id == row.id);
    let mean = &found.features.means[at];
    let sum = mean.iter().map(|x| f64::from(x.abs())).sum::<f64>();
    json!({
        "id": row.id,
        "presence": short(row.presence),
        "activations": short(row.activations),
        "variance": short(row.variance_explained),
        "kurtosis": short(row.kurtosis),
        "stability": row.stability.map(short),
        "chains": row.chains,
        "ess": short(row.ess),
        "rhat": short(row.rhat),
        "smoothness": row.smoothness.iter().map(|widths| widths.map(short)).collect::<Vec<_>>(),
        "synchrony": synchrony.filter(|row| !row.correlation.is_nan()),
        "threshold": short(found.features.exceed * sum / mean.len().max(1) as f64),
    })
}

/// As many digits as anybody reads.
fn short(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

fn add_maps(layout: &Layout, maps: &Maps, at: usize, contents: &mut Contents) -> Value {
    let (mut list, is_light) = (Vec::new(), contents.is_light);
    let mut put = |kind: &str, coded: Coded| {
        let blob = contents.add(&format!("{kind}-{at}"), coded.bytes);
        list.push(json!({"kind": kind, "scale": short(coded.scale.into()), "blob": blob}));
    };
    put("mean", maps::signed(layout.inside(&maps.means[at])));
    if !is_light {
        put("sd", maps::unsigned(layout.inside(&maps.sds[at])));
        put("exceedance", maps::unsigned(layout.inside(&maps.exceedance[at])));
        maps.z.iter().for_each(|z| put("z", maps::signed(layout.inside(&z[at]))));
    }
    Value::Array(list)
}

fn add_courses(at: usize, weights: &[f32], active: &[f32], stride: usize, contents: &mut Contents) -> Value {
    let larger = |one: f32, other: &f32| if other.abs() > one.abs() || one.is_nan() { *other } else { one };
    let every =
        |values: &[f32]| -> Vec<f32> { values.chunks(stride).map(|some| some.iter().fold(f32::NAN, larger)).collect() };
    let coded = maps::signed(every(weights).into_iter());
    let blob = contents.add(&format!("course-{at}"), coded.bytes);
    let activation = (!contents.is_light).then(|| {
        let bytes = every(active).into_iter().map(|p| if p.is_finite() { (255.0 * p).round() as u8 } else { 0 });
        contents.add(&format!("activation-{at}"), bytes.collect())
    });
    json!({"scale": short(coded.scale.into()), "blob": blob, "activation": activation})
}

/// Of the weights of rows that use the feature more likely than not.
fn histogram(weights: &[f32], active: &[f32]) -> Value {
    let used: Vec<f32> =
        weights.iter().zip(active).filter(|(w, p)| **p >= 0.5 && w.is_finite()).map(|x| *x.0).collect();
    let (low, high) = used.iter().fold((0.0f32, 0.0f32), |(low, high), &w| (low.min(w), high.max(w)));
    let width = (high - low).max(f32::MIN_POSITIVE) / N_BINS as f32;
    let mut counts = vec![0; N_BINS];
    used.iter().for_each(|w| counts[(((w - low) / width) as usize).min(N_BINS - 1)] += 1);
    json!({"low": short(low.into()), "high": short(high.into()), "counts": counts, "n": used.len()})
}

/// The rows of the input with the largest weights.
fn most(weights: &[f32]) -> Value {
    let mut rows: Vec<usize> =
        (0..weights.len()).filter(|&row| weights[row].is_finite() && weights[row] != 0.0).collect();
    rows.sort_by(|&a, &b| weights[b].abs().total_cmp(&weights[a].abs()).then(a.cmp(&b)));
    rows.truncate(N_ROWS);
    rows.into_iter().map(|row| json!([row, short(weights[row].into())])).collect()
}
