//! The results of a chain as files, from what was accumulated over its kept sweeps: the data are not needed.

use super::export;
use super::features::{PersistentFeatures, Setting, read_images};
use crate::chain::posterior::Posterior;
use crate::data::Mask;
use crate::data::nifti::Header;
use crate::error::Result;
use crate::run::settings::{Record, Settings};
use crate::structure::Structure;
use std::path::Path;

/// The persistent features of a chain by column of the mask, of unit norm.
pub type Images = Vec<Vec<f32>>;

/// What the results of a chain are about.
#[derive(Clone, Copy)]
pub struct Results<'a> {
    pub structure: &'a Structure,
    pub mask: &'a Mask,
    /// Where the sites lie, for images.
    pub space: Option<&'a Header>,
    pub settings: &'a Settings,
    pub record: &'a Record,
    /// That of the prepared data, in the user's units.
    pub sum_of_squares: f64,
}

impl Results<'_> {
    /// The features that persisted.
    pub fn persistent(&self, posterior: &Posterior) -> PersistentFeatures {
        let setting = Setting {
            grid: self.structure.grid(),
            mask: self.mask,
            steps: &self.steps(),
            n_rows: self.record.n_rows,
            empty_rows: &self.record.empty_rows,
            sum_of_squares: self.sum_of_squares,
            exceed: self.settings.exceed,
        };
        let mut found = PersistentFeatures::new(posterior, &setting);
        found.smooth_only_along(self.structure);
        found
    }

    /// The distance between neighbouring sites along each axis: millimetres for images, else 1.
    fn steps(&self) -> Vec<f64> {
        let grid = self.structure.grid();
        match self.space {
            Some(space) if space.grid[..] == *grid => space.space.voxel_sizes().to_vec(),
            _ => vec![1.0; grid.len()],
        }
    }

    /// Writes everything but the reconstruction into a chain's folder; `others` are the features of the other chains,
    /// `seed` the chain's own.
    pub fn write(&self, posterior: &Posterior, others: &[Images], seed: u64, folder: &Path) -> Result<()> {
        let runs = &self.record.runs;
        let mut found = self.persistent(posterior);
        found.set_stability(others);
        found.write(folder)?;
        if let Some(space) = self.space {
            export::write_images(&found, space, folder)?;
            if self.settings.melodic {
                export::write_melodic(&found, space, folder)?;
            }
        }
        if self.space.is_some() || runs.len() > 1 {
            let ids: Vec<u64> = found.table.iter().map(|row| row.id).collect();
            let [weights, activation] = [&found.weights, &found.activation].map(|values| found.by_input_row(values));
            export::write_courses(&ids, &weights, &activation, runs, folder)?;
        }
        export::write_synchrony(&found, runs, seed, folder)
    }
}

/// The features that a chain's folder holds.
pub fn read_under(mask: &Mask, folder: &Path) -> Result<Images> {
    let images = read_images(&folder.join("features.npy"))?.1;
    Ok(images.iter().map(|image| mask.gather(image)).collect())
}

/// The features of all chains but one.
pub fn all_but(chains: &[Images], at: usize) -> Vec<Images> {
    chains.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, images)| images.clone()).collect()
}
