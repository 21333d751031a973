//! What the page shows, as JSON, and the arrays beside it as bytes.

use crate::features::{self, Maps};
use crate::methods;
use crate::space::{Anatomy, Layout, coarser_axes};
use crate::{PageOptions, maps};
use issfa::run::folder::CONFIG;
use issfa::run::settings::PageSize;
use issfa::run::trace::TraceRow;
use issfa::summary::Standing;
use issfa::{Fitted, Result};
use serde_json::{Value, json};
use std::path::Path;

/// What a page is made of.
pub struct Contents {
    /// Everything but arrays.
    pub data: Value,
    /// Arrays by name.
    pub blobs: Vec<(String, Vec<u8>)>,
    /// Whether features have one map each.
    pub is_light: bool,
    /// How many sites along each axis are shown as one.
    pub every: usize,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A page is made light rather than larger than this; the maps of a light one are made coarser.
const LARGE: usize = 40_000_000;
/// The most sweeps that a trace shows of each chain; of longer ones every so many.
const MOST_SWEEPS: usize = 4000;
/// Inputs of more bytes than this are not read again for pictures of rows.
const MOST_INPUT_BYTES: u64 = 2 << 30;
/// Rows that are shown beside what the features make of them.
const ROWS_SEEN: usize = 4;

impl Contents {
    /// Of a fit.
    pub fn of(fitted: &Fitted, standing: Standing, options: &PageOptions) -> Result<Contents> {
        let (own, maps) = (Layout::of(fitted), Maps::of(fitted));
        let is_light = match options.size {
            PageSize::Light => true,
            PageSize::Full | PageSize::None => false,
            PageSize::Auto => maps.n_bytes(own.n_inside(), false) > LARGE,
        };
        // Bytes are written as four letters for three.
        let every = if is_light { own.coarsening(maps.n_features(), LARGE / 4 * 3) } else { 1 };
        let axes = options.axes.as_ref().map(|axes| coarser_axes(axes, &own.grid, every));
        let (own_grid, layout) = (own.grid.clone(), if every > 1 { own.coarser(every) } else { own });
        let mut contents = Contents { data: Value::Null, blobs: Vec::new(), is_light, every, warnings: Vec::new() };
        let (mut overview, grid) = (fitted.summary(), layout.grid.clone());
        overview.verdict.iter_mut().for_each(|line| *line = (options.words)(line));
        let anatomy = contents.anatomy(fitted, &layout, options.background.as_deref());
        let mask = layout.mask().map(|bits| contents.add("mask", bits));
        let rows = contents.rows_seen(fitted, &layout, standing, options);
        contents.data = json!({
            "format": 1,
            "name": options.name,
            "standing": standing_name(standing),
            "is_light": is_light,
            "burn_in": fitted.burn_in(),
            "overview": overview,
            "grid": grid,
            "own_grid": own_grid,
            "every": every,
            "axes": axes,
            "affine": layout.affine,
            "mask": mask,
            "anatomy": anatomy,
            "runs": fitted.record().runs,
            "drop": fitted.settings().drop_volumes,
            "repetition_seconds": fitted.space().and_then(|space| space.space.repetition_seconds()),
            "structure": structure_words(fitted),
            "features": features::add(fitted, &layout, maps, &mut contents),
            "trace": contents.traces(fitted),
            "noise": contents.noise(fitted, &layout),
            "eigenvalues": eigenvalues(fitted),
            "rows": rows,
            "evaluation": options.evaluation,
            "settings": fitted.recorded().to_toml(),
            "checksums": checksums(fitted),
            "command": command(fitted),
            "methods": methods::paragraph(fitted),
            "references": methods::references(fitted),
        });
        Ok(contents)
    }

    /// Keeps an array under a name, which is returned.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> String {
        self.blobs.push((name.to_string(), bytes));
        name.to_string()
    }

    fn anatomy(&mut self, fitted: &Fitted, layout: &Layout, background: Option<&Path>) -> Option<Anatomy> {
        let anatomy = Anatomy::of(fitted, layout, background).unwrap_or_else(|problem| {
            self.warnings.push(problem.to_string());
            Anatomy::of(fitted, layout, None).ok().flatten()
        });
        let mut anatomy = anatomy?;
        self.add("anatomy", std::mem::take(&mut anatomy.bytes));
        Some(anatomy)
    }

    fn traces(&mut self, fitted: &Fitted) -> Value {
        let longest = fitted.traces().iter().map(|rows| rows.len()).max().unwrap_or(0);
        let stride = longest.div_ceil(MOST_SWEEPS).max(1);
        let panels = panels(&fitted.record().theta, fitted.traces().iter().any(|rows| has_heldout(rows)));
        for (chain, rows) in fitted.traces().iter().enumerate() {
            let rows: Vec<&TraceRow> = rows.iter().step_by(stride).collect();
            let bytes = panels.iter().flat_map(|panel| maps::floats(rows.iter().map(|row| panel.value(row)))).collect();
            self.add(&format!("trace-{}", chain + 1), bytes);
        }
        let panels: Vec<Value> = panels.iter().map(|panel| json!({"name": panel.name, "log": panel.log})).collect();
        json!({"stride": stride, "chains": fitted.traces().len(), "panels": panels})
    }

    fn noise(&mut self, fitted: &Fitted, layout: &Layout) -> Value {
        let Some(reference) = fitted.noise_reference() else { return Value::Null };
        let sds: Vec<f32> = reference.noise_sds().into_iter().map(|x| x as f32).collect();
        let map = maps::unsigned(layout.inside(&sds));
        let mut sorted = fitted.structure().eigenvalues();
        sorted.sort_by(f64::total_cmp);
        let mut last = vec![0; reference.powers.len()];
        sorted.iter().enumerate().for_each(|(rank, &value)| last[reference.band(value)] = rank + 1);
        json!({
            "blob": self.add("noise", map.bytes),
            "scale": map.scale,
            "level": reference.findings.level,
            "run_levels": reference.run_levels,
            "words": reference.findings.in_words(),
            "doubts": reference.findings.doubts(),
            "last_rank": last,
            "powers": reference.powers,
            "row_powers": reference.row_powers,
        })
    }

    /// Rows of the fit beside what the features make of them, where the inputs can be read.
    fn rows_seen(&mut self, fitted: &Fitted, layout: &Layout, standing: Standing, options: &PageOptions) -> Value {
        let inputs = &fitted.settings().input;
        let n_bytes: u64 = inputs.iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum();
        let n_features = fitted.found().features.means.len();
        if !options.with_rows || standing != Standing::Results || n_features == 0 || inputs.is_empty() {
            return Value::Null;
        }
        if n_bytes > MOST_INPUT_BYTES {
            return json!({"why_not": "the inputs are too large to be read again for it"});
        }
        let seen = match fitted.rows_seen(&telling_rows(fitted)) {
            Ok(seen) => seen,
            Err(problem) => return json!({"why_not": (options.words)(&problem.to_string())}),
        };
        let mut list = Vec::new();
        for row in seen {
            let both = row.observed.iter().chain(&row.explained).copied();
            let scale = maps::signed(both).scale;
            // The scale of both, so that they can be compared.
            let coded = |values: &[f32]| maps::signed(layout.inside(values).chain([scale])).bytes;
            let (observed, explained) = (coded(&row.observed), coded(&row.explained));
            let name = |what: &str| format!("row-{}-{what}", row.row);
            list.push(json!({
                "row": input_row(fitted, row.row),
                "scale": scale,
                "observed": self.add(&name("observed"), observed[..observed.len() - 1].to_vec()),
                "explained": self.add(&name("explained"), explained[..explained.len() - 1].to_vec()),
            }));
        }
        json!({ "list": list })
    }
}

fn standing_name(standing: Standing) -> Value {
    match standing {
        Standing::Results => json!({"of": "results"}),
        Standing::Kept => json!({"of": "kept"}),
        Standing::State(sweep) => json!({"of": "state", "sweep": sweep}),
    }
}

/// The place in the input of a row of the fit.
fn input_row(fitted: &Fitted, row: usize) -> usize {
    let empty = &fitted.record().empty_rows;
    let n = fitted.record().n_rows + empty.len();
    (0..n).filter(|at| !empty.contains(at)).nth(row).unwrap_or(row)
}

/// The row that features explain most of, in each of some stretches of the rows.
fn telling_rows(fitted: &Fitted) -> Vec<usize> {
    let (weights, n_rows) = (&fitted.found().features.weights, fitted.record().n_rows);
    let energy = |row: usize| weights.iter().map(|of_feature| of_feature[row].powi(2)).sum::<f32>();
    let part = |at: usize| at * n_rows / ROWS_SEEN..(at + 1) * n_rows / ROWS_SEEN;
    (0..ROWS_SEEN).filter_map(|at| part(at).max_by(|&a, &b| energy(a).total_cmp(&energy(b)))).collect()
}

/// A number of the trace that gets a panel.
pub struct TracePanel {
    name: String,
    log: bool,
    parameter: usize,
}

fn has_heldout(rows: &[TraceRow]) -> bool {
    rows.iter().any(|row| row.heldout_residual.is_some())
}

/// Named as the overview names its quantities.
pub fn panels(theta: &[String], with_heldout: bool) -> Vec<TracePanel> {
    let panel = |name: &str, log: bool| TracePanel { name: name.into(), log, parameter: 0 };
    let mut list = vec![panel("features", false), panel("noise variance", true)];
    let of_theta =
        |(parameter, name): (usize, &String)| TracePanel { name: format!("theta: {name}"), log: true, parameter };
    list.extend(theta.iter().enumerate().map(of_theta));
    list.push(panel("activations", false));
    list.push(panel("ln likelihood", false));
    if with_heldout {
        list.push(panel("held-out residual", true));
    }
    list
}

impl TracePanel {
    /// Its column of `trace.csv`.
    pub fn column(&self) -> String {
        match &self.name[..] {
            "features" => "n_features".into(),
            "activations" => "n_activations".into(),
            "held-out residual" => "heldout_residual".into(),
            name if name.starts_with("theta: ") => format!("theta_{}", self.parameter + 1),
            name => name.replace(' ', "_"),
        }
    }

    fn value(&self, row: &TraceRow) -> f64 {
        match &self.name[..] {
            "features" => row.n_features as f64,
            "noise variance" => row.noise_variance,
            "activations" => row.n_activations as f64,
            "ln likelihood" => row.ln_likelihood,
            "held-out residual" => row.heldout_residual.unwrap_or(f64::NAN),
            _ => row.theta[self.parameter],
        }
    }
}

fn structure_words(fitted: &Fitted) -> Value {
    let settings = fitted.settings();
    json!({"expression": fitted.record().structure, "curve": settings.curve, "theta": fitted.record().theta})
}

fn eigenvalues(fitted: &Fitted) -> Value {
    let Some(curve) = fitted.evidence() else { return Value::Null };
    let n_persistent = fitted.found().features.table.len();
    let shown = (3 * curve.best().unwrap_or(0).max(n_persistent)).max(60).min(curve.eigenvalues.len());
    let first = |values: &[f64]| values.iter().take(shown).copied().collect::<Vec<f64>>();
    json!({"eigenvalues": first(&curve.eigenvalues), "ln_evidence": first(&curve.ln_evidence), "best": curve.best()})
}

fn checksums(fitted: &Fitted) -> Vec<Value> {
    let input = |input: &issfa::run::record::InputRecord| json!({"path": input.path.display().to_string(), "rows": input.n_rows, "checksum": input.checksum});
    fitted.record().inputs.iter().map(input).collect()
}

/// What makes the same bits again: nothing does for a run that was merged, or that was stopped.
fn command(fitted: &Fitted) -> Option<String> {
    let overview = fitted.summary();
    let is_whole = fitted.record().streams.is_empty() && overview.sweeps_done == overview.sweeps_planned;
    let path = fitted.name().join(CONFIG).display().to_string().replace('\'', r"'\''");
    is_whole.then(|| format!("issfa fit --config '{path}' --out AGAIN"))
}
