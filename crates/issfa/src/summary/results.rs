//! The results of a chain, from what was accumulated over its kept sweeps: the data are not needed.

use super::export;
use super::features::{About, PersistentFeatures};
use super::synchrony::{self, Synchrony};
use crate::chain::posterior::Posterior;
use crate::data::Mask;
use crate::data::nifti::Header;
use crate::error::Result;
use crate::noise::Reference;
use crate::run::checksums::{Checksums, seal};
use crate::run::folder::{
    ACTIVATION, FEATURE_TABLE, FEATURES, FEATURES_EXCEEDANCE, FEATURES_SD, FEATURES_Z, PRESENCE, WEIGHTS,
};
use crate::run::record::Record;
use crate::run::settings::Settings;
use crate::structure::Structure;
use std::path::Path;

/// What a chain has found, or several together.
#[derive(Clone, Default)]
pub struct Found {
    /// Those that persisted.
    pub features: PersistentFeatures,
    /// How alike their time courses are over runs, the most alike first; empty where there is one run.
    pub synchrony: Vec<Synchrony>,
}

/// The results that are read again.
const BELIEVED: [&str; 8] =
    [FEATURE_TABLE, FEATURES, FEATURES_SD, FEATURES_EXCEEDANCE, PRESENCE, WEIGHTS, ACTIVATION, synchrony::FILE];

/// What the results of a chain are about.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    /// Where features live.
    pub structure: &'a Structure,
    /// The sites that take part.
    pub mask: &'a Mask,
    /// Where the sites lie, for images.
    pub space: Option<&'a Header>,
    /// Those of the run.
    pub settings: &'a Settings,
    /// Of the run.
    pub record: &'a Record,
    /// That of the prepared data, in the user's units.
    pub sum_of_squares: f64,
    /// What was measured of the noise.
    pub noise: Option<&'a Reference>,
}

impl Results<'_> {
    /// What a chain has found; `seed` is its own.
    pub fn of(&self, posterior: &Posterior, seed: u64) -> Found {
        let features = self.persistent(posterior);
        let synchrony = export::synchrony_of(&features, &self.record.runs, seed);
        Found { features, synchrony }
    }

    /// The features that persisted.
    pub fn persistent(&self, posterior: &Posterior) -> PersistentFeatures {
        let mut found = PersistentFeatures::new(posterior, &self.about(&self.steps()));
        found.smooth_only_along(self.structure);
        found
    }

    /// What was written into a chain's folder; refused where it is not as it was written.
    pub fn read(&self, folder: &Path) -> Result<Found> {
        let known = Checksums::open(folder)?;
        BELIEVED.iter().filter(|name| known.has(name)).try_for_each(|name| known.check(name))?;
        let features = PersistentFeatures::read(folder, &self.about(&self.steps()))?;
        Ok(Found { features, synchrony: synchrony::read(folder)?.unwrap_or_default() })
    }

    fn about<'a>(&'a self, steps: &'a [f64]) -> About<'a> {
        About {
            grid: self.structure.grid(),
            mask: self.mask,
            steps,
            n_rows: self.record.n_rows,
            empty_rows: &self.record.empty_rows,
            sum_of_squares: self.sum_of_squares,
            exceed: self.settings.exceed,
        }
    }

    /// The distance between neighbouring sites along each axis: millimetres for images, else 1.
    fn steps(&self) -> Vec<f64> {
        let grid = self.structure.grid();
        match self.space {
            Some(space) if space.grid[..] == *grid => space.space.voxel_sizes().to_vec(),
            _ => vec![1.0; grid.len()],
        }
    }

    /// Writes everything but the reconstruction into a chain's folder.
    pub fn write(&self, found: &Found, folder: &Path) -> Result<()> {
        let (runs, features) = (&self.record.runs, &found.features);
        features.write(folder)?;
        let in_noise = self.noise.map(|reference| features.in_noise(&reference.noise_sds()));
        if let Some(images) = &in_noise {
            features.write_images(images, &folder.join(FEATURES_Z))?;
        }
        if let Some(space) = self.space {
            export::write_images(features, space, folder)?;
            in_noise.map_or(Ok(()), |images| {
                export::write_volumes("features_z.nii.gz", &images, features, space, folder)
            })?;
            if self.settings.melodic {
                export::write_melodic(features, space, folder)?;
            }
        }
        if self.space.is_some() || runs.len() > 1 {
            let ids: Vec<u64> = features.table.iter().map(|row| row.id).collect();
            let by_row = |values| features.by_input_row(values);
            export::write_courses(&ids, &by_row(&features.weights), &by_row(&features.activation), runs, folder)?;
        }
        export::write_synchrony(found, runs, folder)?;
        seal(folder, &BELIEVED)
    }
}

/// Compares the features of every chain with those of the others, and those of all together with each.
pub fn compare_chains(chains: &mut [&mut Found], all: &mut Found) {
    let means: Vec<Vec<Vec<f32>>> = chains.iter().map(|found| found.features.means.clone()).collect();
    for (at, found) in chains.iter_mut().enumerate() {
        let others: Vec<&Vec<Vec<f32>>> = means.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, m)| m).collect();
        found.features.set_stability(&others);
    }
    if chains.len() > 1 {
        all.features.set_stability(&means.iter().collect::<Vec<_>>());
    }
}
