//! Results as brain imagers expect them: images in the space of the input, and a table of time courses for each run.

use super::features::PersistentFeatures;
use super::peaks;
use super::results::Found;
use super::synchrony::{self, Synchrony};
use crate::data::Mask;
use crate::data::nifti::{Header, NiftiWriter, write_nifti};
use crate::data::runs::NamedRun;
use crate::error::{Error, Result};
use crate::numeric::files::write_atomically;
use crate::run::folder::reconstruction_image;
use std::path::{Path, PathBuf};

/// Circular shifts for the null of synchrony, where they do not take long.
const SHIFTS: usize = 1000;
/// The most products that shifts may cost in all.
const MOST_PRODUCTS: usize = 4_000_000_000;

/// The images of features, one volume a feature. Outside of the mask they are 0, as viewers expect.
pub fn write_images(features: &PersistentFeatures, space: &Header, folder: &Path) -> Result<()> {
    let write = |name: &str, images: &[Vec<f32>]| write_volumes(name, images, features, space, folder);
    write("features.nii.gz", &features.means)?;
    write("features_sd.nii.gz", &features.sds)?;
    write("features_exceedance.nii.gz", &features.exceedance)?;
    write("features_thresholded.nii.gz", &features.thresholded())?;
    peaks::write(features, space, folder)
}

/// Images by column as one volume each; without any, what an earlier state left is taken away.
pub fn write_volumes(
    name: &str,
    images: &[Vec<f32>],
    features: &PersistentFeatures,
    space: &Header,
    folder: &Path,
) -> Result<()> {
    let path = folder.join(name);
    if images.is_empty() {
        return remove(&path);
    }
    let volumes = images.iter().map(|image| features.mask.scatter(image, 0.0));
    write_nifti(&path, space.grid, images.len(), space, 0.0, volumes)
}

/// MELODIC's names: the features over their standard deviation, and all time courses under one another.
pub fn write_melodic(features: &PersistentFeatures, space: &Header, folder: &Path) -> Result<()> {
    let image = folder.join("melodic_IC.nii.gz");
    if features.means.is_empty() {
        remove(&image)?;
        return remove(&folder.join("melodic_mix"));
    }
    let z_scores = |(mean, sd): (&Vec<f32>, &Vec<f32>)| {
        let z = mean.iter().zip(sd).map(|(mean, sd)| if *sd > 0.0 { mean / sd } else { 0.0 }).collect::<Vec<_>>();
        features.mask.scatter(&z, 0.0)
    };
    let k = features.means.len();
    write_nifti(&image, space.grid, k, space, 0.0, features.means.iter().zip(&features.sds).map(z_scores))?;
    let line = |row: &[f32]| row.iter().map(|w| format!("{w:.7e}")).collect::<Vec<_>>().join("  ") + "\n";
    let text: String = features.by_input_row(&features.weights).chunks_exact(k).map(line).collect();
    write_atomically(&folder.join("melodic_mix"), text.as_bytes())
}

/// `weights_<run>.tsv` and `activation_<run>.tsv`: a line a row, a column a feature.
pub fn write_courses(ids: &[u64], weights: &[f32], activation: &[f32], runs: &[NamedRun], folder: &Path) -> Result<()> {
    let k = ids.len();
    let header = ids.iter().map(|id| format!("feature_{id}")).collect::<Vec<_>>().join("\t");
    let number = |x: &f32| if x.is_nan() { "n/a".to_string() } else { format!("{x:.6}") };
    let line = |row: &[f32]| row.iter().map(number).collect::<Vec<_>>().join("\t") + "\n";
    let table = |values: &[f32], first: usize, n_rows: usize| -> String {
        let rows = (first..first + n_rows).map(|row| line(&values[row * k..(row + 1) * k]));
        format!("{header}\n") + &rows.collect::<String>()
    };
    let mut first = 0;
    for NamedRun { name, n_rows } in runs {
        for (kind, values) in [("weights", weights), ("activation", activation)] {
            let path = folder.join(format!("{kind}_{name}.tsv"));
            write_atomically(&path, table(values, first, *n_rows).as_bytes())?;
        }
        first += n_rows;
    }
    Ok(())
}

/// How alike time courses are over runs, where there are several.
pub fn synchrony_of(features: &PersistentFeatures, runs: &[NamedRun], seed: u64) -> Vec<Synchrony> {
    if runs.len() < 2 || features.means.is_empty() {
        return Vec::new();
    }
    let k = features.means.len();
    let weights = features.by_input_row(&features.weights);
    let mut first = 0;
    let mut courses = Vec::new();
    for run in runs {
        let rows = first..first + run.n_rows;
        let course = |feature: usize| rows.clone().map(|row| f64::from(weights[row * k + feature])).collect::<Vec<_>>();
        courses.push((0..k).map(course).collect::<Vec<_>>());
        first += run.n_rows;
    }
    let n_shifts = (MOST_PRODUCTS / (weights.len().max(1))).clamp(20, SHIFTS);
    let ids: Vec<u64> = features.table.iter().map(|row| row.id).collect();
    synchrony::synchrony(&ids, &courses, n_shifts, seed)
}

/// Writes how alike time courses are, where there are several runs and something was found.
pub fn write_synchrony(found: &Found, runs: &[NamedRun], folder: &Path) -> Result<()> {
    if runs.len() < 2 || found.features.means.is_empty() {
        return remove(&folder.join(synchrony::FILE));
    }
    synchrony::write(folder, &found.synchrony)
}

/// Rows written as one 4-D image a run, one after the other.
pub struct RunImages {
    folder: PathBuf,
    space: Header,
    /// Runs to come, the next one last.
    runs: Vec<NamedRun>,
    now: Option<(NiftiWriter, usize)>,
}

impl RunImages {
    /// `reconstruction_<run>.nii.gz` of these runs.
    pub fn new(folder: &Path, space: &Header, runs: &[NamedRun]) -> RunImages {
        let runs = runs.iter().rev().cloned().collect();
        RunImages { folder: folder.to_path_buf(), space: space.clone(), runs, now: None }
    }

    /// Adds a row on the grid; what lies outside of the mask is 0, as viewers expect, and a row without data NaN.
    pub fn push(&mut self, row: &[f32], mask: &Mask) -> Result<()> {
        let (mut writer, n_left) = match self.now.take() {
            Some(now) => now,
            None => {
                let run = self.runs.pop().expect("rows are those of the runs");
                let path = self.folder.join(reconstruction_image(&run.name));
                let seconds = self.space.space.repetition_seconds().unwrap_or(0.0);
                (NiftiWriter::create(&path, self.space.grid, run.n_rows, &self.space, seconds)?, run.n_rows)
            }
        };
        writer.write_volume(&mask.scatter(&mask.gather(row), 0.0))?;
        if n_left > 1 {
            self.now = Some((writer, n_left - 1));
            return Ok(());
        }
        writer.finish()
    }
}

/// Takes away what an earlier state of the run left, where there is nothing to show any more.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::write(path)(error)),
        _ => Ok(()),
    }
}
