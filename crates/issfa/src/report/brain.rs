//! Figures of brain features: slices over an anatomical image with the time courses of every run beneath, and the ranking
//! of features by how alike their time courses are.

use crate::data::Array;
use crate::data::nifti::Header;
use crate::data::read;
use crate::data::runs::NamedRun;
use crate::error::{Error, Result, setting};
use crate::figures::Figure;
use crate::figures::brain::{BrainFigure, BrainMap, TimeCourse, Volume, brain_figure};
use crate::figures::lines::{LinePanel, Series, panels};
use crate::summary::features::{FeatureRow, threshold};
use crate::summary::synchrony::Synchrony;
use crate::summary::{Fitted, Found};
use std::fs;
use std::path::Path;

/// More features than this get no figure each unless they are asked for: the page has them all.
const MANY: usize = 40;

/// Which features get a figure.
#[derive(Clone, Debug, Default)]
pub enum Which {
    /// Every one of them; of very many those that explain most, and the first and the last of the ranking.
    #[default]
    Usual,
    /// Every one of them, however many.
    All,
    /// By id.
    These(Vec<u64>),
}

/// An image to draw features over.
struct Background {
    header: Header,
    values: Vec<f32>,
}

/// Everything that the figures of a run have in common.
struct Results {
    header: Header,
    images: Vec<Vec<f32>>,
    /// The same in noise units, where the noise was measured.
    in_noise: Option<Array>,
    table: Vec<FeatureRow>,
    ranking: Vec<Synchrony>,
    /// Rows x features.
    weights: Vec<f32>,
    activation: Vec<f32>,
    background: Background,
}

/// Draws the features of a fit of images into a folder, over `background` or else the mean of the data. Returns what a
/// person should know. Nothing happens for other fits.
pub fn write_brain_figures(
    fitted: &Fitted,
    which: &Which,
    background: Option<&Path>,
    folder: &Path,
) -> Result<Vec<String>> {
    let Found { features, synchrony } = fitted.found();
    write_ranking(synchrony, folder)?;
    let Some(header) = fitted.space.clone().filter(|_| !features.table.is_empty()) else { return Ok(Vec::new()) };
    let images = fitted.features();
    let results = Results {
        images: (0..images.shape[0]).map(|at| images.row(at).to_vec()).collect(),
        in_noise: fitted.features_z(),
        ranking: synchrony.clone(),
        weights: fitted.weights().values,
        activation: fitted.activation().values,
        background: match background {
            Some(path) => Background::read(path)?,
            None => Background::mean(fitted, &header),
        },
        header,
        table: features.table.clone(),
    };
    let chosen = results.choose(which)?;
    // Only now that nothing is missing.
    remove_old(folder)?;
    for place in chosen {
        let id = results.table[place].id;
        results.figure(fitted, place)?.save(folder, &format!("feature_{id}"))?;
    }
    Ok(background.and_then(|path| results.warning(path)).into_iter().collect())
}

/// Refuses a file that cannot be a background, before a fit that would end with it.
pub fn check_background(path: &Path) -> Result<()> {
    Background::read(path).map(|_| ())
}

fn write_ranking(ranking: &[Synchrony], folder: &Path) -> Result<()> {
    if ranking.is_empty() {
        return Ok(());
    }
    let series = |name: &str, of: fn(&Synchrony) -> f64| Series {
        name: name.into(),
        x: (1..=ranking.len()).map(|rank| rank as f64).collect(),
        y: ranking.iter().map(of).collect(),
    };
    let panel = LinePanel {
        y_label: "mean correlation between runs".into(),
        x_label: "rank of the feature (ids in synchrony.tsv)".into(),
        series: vec![
            series("correlation", |row| row.correlation),
            series("95% of circular shifts are below", |row| row.null_95),
        ],
        ..LinePanel::default()
    };
    panels("How alike the time courses of each feature are in all runs", &[panel]).save(folder, "synchrony")
}

/// Figures of features that are not shown any more would mislead.
fn remove_old(folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("feature_") {
            fs::remove_file(entry.path()).map_err(Error::write(&entry.path()))?;
        }
    }
    Ok(())
}

impl Background {
    /// The mean of the data, 0 outside of the mask.
    fn mean(fitted: &Fitted, header: &Header) -> Background {
        let means: Vec<f32> = fitted.preprocessing.overall.means.iter().map(|&x| x as f32).collect();
        Background { header: header.clone(), values: fitted.mask.scatter(&means, 0.0) }
    }

    fn read(path: &Path) -> Result<Background> {
        let source = read::open(path)?;
        let Some(header) = source.space().cloned() else {
            let problem = format!("is not an image; give a .nii or .nii.gz file for {}", setting("background"));
            return Err(Error::malformed(path, problem));
        };
        // Of several volumes the first.
        let mut values = vec![0.0; source.n_sites()];
        source.read_rows(0, &mut values)?;
        Ok(Background { header, values: values.iter().map(|&x| x as f32).collect() })
    }
}

impl Results {
    fn choose(&self, which: &Which) -> Result<Vec<usize>> {
        let place = |id: u64| self.table.iter().position(|row| row.id == id);
        match which {
            Which::All => Ok((0..self.table.len()).collect()),
            Which::These(ids) => ids.iter().map(|&id| place(id).ok_or_else(|| self.unknown(id))).collect(),
            Which::Usual => {
                // A feature that some runs do not use at all says little about runs being alike.
                let n_runs = self.ranking.iter().map(|row| row.n_runs).max().unwrap_or(0);
                let compares = |row: &&Synchrony| !row.correlation.is_nan() && row.n_runs == n_runs;
                let ranked: Vec<u64> = self.ranking.iter().filter(compares).map(|row| row.id).collect();
                let ends = ranked.first().into_iter().chain(ranked.last()).filter_map(|&id| place(id));
                let mut chosen: Vec<usize> = (0..self.table.len().min(MANY)).chain(ends).collect();
                chosen.sort_unstable();
                chosen.dedup();
                Ok(chosen)
            }
        }
    }

    fn unknown(&self, id: u64) -> Error {
        let known = self.table.iter().map(|row| row.id.to_string()).collect::<Vec<_>>().join(", ");
        Error::setting("features", id, format!("no such id in features.tsv; there are: {known}"))
    }

    fn figure(&self, fitted: &Fitted, place: usize) -> Result<Figure> {
        let (mask, exceed) = (&fitted.mask, fitted.settings().exceed);
        let image = mask.scatter(&mask.gather(&self.images[place]), f32::NAN);
        let times = if exceed == 2.0 { "twice".into() } else { format!("{exceed} times") };
        let Background { header, values } = &self.background;
        let in_noise = self.in_noise.as_ref().map(|array| mask.scatter(&mask.gather(array.row(place)), f32::NAN));
        let map = |name: &str, values| BrainMap {
            name: name.into(),
            volume: Volume { grid: self.header.grid, values, affine: self.header.affine() },
            threshold: threshold(&mask.gather(values), exceed),
            threshold_note: format!("{times} the mean absolute value"),
        };
        let z = "z: in a row that uses it, in standard deviations of the noise";
        Ok(brain_figure(&BrainFigure {
            title: self.title(place),
            feature: map(if in_noise.is_some() { "posterior mean, unit norm" } else { "" }, &image),
            other: in_noise.as_deref().map(|values| map(z, values)),
            background: Some(Volume { grid: header.grid, values, affine: header.affine() }),
            time_courses: self.courses(fitted, place),
            repetition_seconds: self.header.space.repetition_seconds(),
        }))
    }

    fn title(&self, place: usize) -> String {
        let row = &self.table[place];
        let mut parts = vec![format!("{:.2}% of variance", 100.0 * row.variance_explained)];
        if let Some(rank) = self.ranking.iter().position(|other| other.id == row.id) {
            let Synchrony { correlation, null_95, .. } = &self.ranking[rank];
            let n = self.ranking.len();
            parts.push(format!("between runs r = {correlation:.3} (shifted {null_95:.3}), rank {} of {n}", rank + 1));
        }
        let widths = row.smoothness.iter().map(|[_, middle, _]| *middle).filter(|width| !width.is_nan());
        let widths = widths.map(|width| format!("{width:.0}")).collect::<Vec<_>>().join(" x ");
        let is_rough = row.smoothness.iter().any(|[_, middle, _]| *middle < 0.5);
        parts.push(format!("FWHM {widths} mm{}", if is_rough { " (0: neighbours are not alike)" } else { "" }));
        format!("Feature {}: {}", row.id, parts.join("; "))
    }

    fn courses(&self, fitted: &Fitted, place: usize) -> Vec<TimeCourse> {
        let k = self.table.len();
        let mut first = 0;
        // Rows that were dropped keep their place in time.
        let n_dropped = fitted.settings().drop_volumes;
        let course = |run: &NamedRun| {
            let rows = first..first + run.n_rows;
            first += run.n_rows;
            let weights = rows.clone().map(|row| f64::from(self.weights[row * k + place]));
            let active = rows.map(|row| self.activation[row * k + place] >= 0.5);
            TimeCourse {
                name: run.name.clone(),
                weights: std::iter::repeat_n(f64::NAN, n_dropped).chain(weights).collect(),
                active: std::iter::repeat_n(true, n_dropped).chain(active).collect(),
            }
        };
        fitted.record.runs.iter().map(course).collect()
    }

    /// A template under data that were not brought to its space shows features in wrong places.
    fn warning(&self, path: &Path) -> Option<String> {
        let [own, other] = [&self.header, &self.background.header].map(Header::space_code);
        (own != other).then(|| {
            format!(
                "{} is in {}, but the data are in {}: features may be shown in the wrong place",
                path.display(),
                space_name(other),
                space_name(own)
            )
        })
    }
}

/// What a NIfTI code says of a space.
fn space_name(code: i16) -> &'static str {
    match code {
        1 => "scanner space",
        2 => "the space of another image",
        3 => "Talairach space",
        4 => "MNI 152 space",
        5 => "the space of a template",
        _ => "an unknown space",
    }
}
