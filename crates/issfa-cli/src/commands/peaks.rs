//! `issfa peaks`: where features of images stand out, in millimetres.

use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::data::nifti::write_nifti;
use issfa::lab::numeric::files::write_atomically;
use issfa::summary::Fitted;
use issfa::summary::peaks::{Threshold, USUAL_SIZE, table};
use issfa::{Error, Result};
use std::path::PathBuf;

/// Clusters of voxels at which features of images stand out: peaks in mm, sizes, and maps of them alone
#[derive(Args)]
#[command(
    after_help = "Examples:\n  issfa peaks run\n  issfa peaks run --z 3.1 --min-size 20 --out peaks.tsv --maps peaks.nii.gz"
)]
pub struct Options {
    /// The run folder, of a fit to NIfTI images
    run: PathBuf,
    /// Voxels stand out that are so many posterior standard deviations from 0 (default: the threshold of
    /// features_thresholded.nii.gz)
    #[arg(long, value_name = "Z", allow_negative_numbers = true)]
    z: Option<f64>,
    /// The least number of voxels of a cluster
    #[arg(long, value_name = "N", default_value_t = USUAL_SIZE)]
    min_size: usize,
    /// Write the table here instead of printing it
    #[arg(long, value_name = "FILE.tsv")]
    out: Option<PathBuf>,
    /// Also write the features, 0 outside of these clusters, as an image
    #[arg(long, value_name = "FILE.nii.gz")]
    maps: Option<PathBuf>,
}

impl Options {
    /// Refuses outputs that are there already, one file for both, and maps that would not be an image.
    fn check_outputs(&self, common: &Common) -> Result<()> {
        [&self.out, &self.maps].into_iter().flatten().try_for_each(|path| common.check_new_file(path))?;
        let Some(maps) = &self.maps else { return Ok(()) };
        let shown = maps.display().to_string();
        if !shown.ends_with(".nii") && !shown.ends_with(".nii.gz") {
            return Err(Error::setting(
                "maps",
                shown,
                "is written as an image; give a name that ends with .nii or .nii.gz",
            ));
        }
        let place = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if self.out.as_ref().is_some_and(|out| place(out) == place(maps)) {
            return Err(Error::setting(
                "out, maps",
                shown,
                "the table and the maps are two files; give them two names",
            ));
        }
        Ok(())
    }
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let fitted = Fitted::open(&options.run)?;
    fitted.check_kept()?;
    options.check_outputs(common)?;
    let threshold = options.z.map_or(Threshold::OfRun, Threshold::Z);
    let (found, space) = fitted.standing_out(threshold, options.min_size)?;
    let text = table(&found.peaks, space);
    match &options.out {
        None => out!("{}", text.trim_end()),
        Some(path) => write_atomically(path, text.as_bytes())?,
    }
    if let Some(path) = options.maps.as_deref().filter(|_| !found.maps.is_empty()) {
        let volumes = found.maps.iter().map(|map| fitted.mask().scatter(map, 0.0));
        write_nifti(path, space.grid, found.maps.len(), space, 0.0, volumes)?;
    }
    if let Some(path) = &options.out {
        common.say(&format!("{} peaks of {} features: {}", found.peaks.len(), found.maps.len(), path.display()));
    }
    Ok(())
}
