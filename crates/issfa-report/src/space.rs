//! Where the sites of a fit lie on the page: volumes are turned so that axes run right, anterior and superior.

use crate::maps;
use issfa::data::nifti::Header;
use issfa::lab::figures::resample::{Placed, Volume};
use issfa::{Error, Fitted, Result};
use serde::Serialize;
use std::path::Path;

/// The grid of the page, and which column of the mask each of its sites inside has.
pub struct Layout {
    /// Sites along each axis as the page has them.
    pub grid: Vec<usize>,
    /// For each site of the page, in its order, the column of the mask, if it takes part.
    pub columns: Vec<Option<usize>>,
    /// For images: voxels to millimetres, of the turned volume.
    pub affine: Option<[[f64; 4]; 3]>,
}

/// An image under the features, on a finer grid over the same box.
#[derive(Serialize)]
pub struct Anatomy {
    grid: [usize; 3],
    blob: &'static str,
    name: String,
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// The most voxels that an anatomy has: each is a byte.
const MOST_VOXELS: usize = 1_500_000;

impl Layout {
    /// Of a fit.
    pub fn of(fitted: &Fitted) -> Layout {
        let (mask, grid) = (fitted.mask(), fitted.structure().grid().to_vec());
        let mut column_of = vec![None; mask.n_grid_sites()];
        mask.sites().into_iter().enumerate().for_each(|(column, site)| column_of[site] = Some(column));
        match fitted.space() {
            Some(space) => turned(space, &column_of),
            None => Layout { grid, columns: column_of, affine: None },
        }
    }

    /// Values by column of the mask in the order of the page.
    pub fn inside<'a>(&'a self, values: &'a [f32]) -> impl Iterator<Item = f32> + Clone + 'a {
        self.columns.iter().flatten().map(|&column| values[column])
    }

    /// Which sites take part, a bit each; nothing where all do.
    pub fn mask(&self) -> Option<Vec<u8>> {
        let inside: Vec<bool> = self.columns.iter().map(Option::is_some).collect();
        inside.contains(&false).then(|| maps::bits(&inside))
    }
}

/// For each axis of the page (right, anterior, superior) the voxel axis, and whether it runs the other way.
fn turning(space: &Header) -> [(usize, bool); 3] {
    let affine = space.affine();
    let nothing = vec![0.0; space.n_sites()];
    let volume = Volume { grid: space.grid, values: &nothing, affine };
    let Some(placed) = Placed::by_affine(volume) else { return [(0, false), (1, false), (2, false)] };
    let axes = placed.voxel_axes();
    std::array::from_fn(|world| (axes[world], affine[world][axes[world]] < 0.0))
}

fn turned(space: &Header, column_of: &[Option<usize>]) -> Layout {
    let (turning, own, affine) = (turning(space), space.grid, space.affine());
    let grid = turning.map(|(axis, _)| own[axis]);
    let mut columns = Vec::with_capacity(column_of.len());
    for at in 0..column_of.len() {
        let place = [at / (grid[1] * grid[2]), at / grid[2] % grid[1], at % grid[2]];
        let mut voxel = [0; 3];
        for (along, &(axis, is_turned)) in turning.iter().enumerate() {
            voxel[axis] = if is_turned { grid[along] - 1 - place[along] } else { place[along] };
        }
        columns.push(column_of[(voxel[0] * own[1] + voxel[1]) * own[2] + voxel[2]]);
    }
    let line = |world: usize| {
        let mut line = [0.0, 0.0, 0.0, affine[world][3]];
        for (along, &(axis, is_turned)) in turning.iter().enumerate() {
            line[along] = if is_turned { -affine[world][axis] } else { affine[world][axis] };
            line[3] += if is_turned { affine[world][axis] * (own[axis] as f64 - 1.0) } else { 0.0 };
        }
        line
    };
    Layout { grid: grid.to_vec(), columns, affine: Some([line(0), line(1), line(2)]) }
}

impl Anatomy {
    /// The image of a file, or the mean of the data where none is given.
    pub fn of(fitted: &Fitted, layout: &Layout, background: Option<&Path>) -> Result<Option<Anatomy>> {
        let Some(affine) = layout.affine else { return Ok(None) };
        let grid = [layout.grid[0], layout.grid[1], layout.grid[2]];
        let Some(path) = background else {
            let means = fitted.mean_row();
            if means.is_empty() || means.iter().all(|&x| x == means[0]) {
                return Ok(None);
            }
            let values: Vec<f32> = layout.columns.iter().map(|place| place.map_or(0.0, |at| means[at])).collect();
            return Ok(Some(Anatomy::new(grid, &values, "the mean of the data".into())));
        };
        let source = issfa::data::read::open(path)?;
        let Some(header) = source.space().cloned() else {
            return Err(Error::malformed(path, "is not an image; give a .nii or .nii.gz file"));
        };
        let mut values = vec![0.0; source.n_sites()];
        source.read_rows(0, &mut values)?;
        let values: Vec<f32> = values.into_iter().map(|x| x as f32).collect();
        let volume = Volume { grid: header.grid, values: &values, affine: header.affine() };
        let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        Ok(Placed::by_affine(volume).map(|placed| {
            let finer = finer(grid, affine, placed.shortest_edge());
            let fine = [0, 1, 2].map(|axis| grid[axis] * finer);
            Anatomy::new(fine, &resampled(&placed, fine, finer, affine), name)
        }))
    }

    fn new(grid: [usize; 3], values: &[f32], name: String) -> Anatomy {
        let mut seen: Vec<f32> = values.iter().copied().filter(|x| x.is_finite() && *x != 0.0).collect();
        seen.sort_by(f32::total_cmp);
        let share = |share: f64| seen.get((share * (seen.len().max(1) - 1) as f64) as usize).copied().unwrap_or(0.0);
        let (low, high) = (share(0.01).min(0.0), share(0.99));
        let range = if high > low { high - low } else { 1.0 };
        let byte = |&x: &f32| if x.is_finite() { ((x - low) / range * 255.0).clamp(0.0, 255.0) as u8 } else { 0 };
        Anatomy { grid, blob: "anatomy", name, bytes: values.iter().map(byte).collect() }
    }
}

/// How many times finer than the features an anatomy with voxels of this size is shown.
fn finer(grid: [usize; 3], affine: [[f64; 4]; 3], edge: f64) -> usize {
    let step = |axis: usize| affine.iter().map(|line| line[axis].powi(2)).sum::<f64>().sqrt();
    let wanted = ([0, 1, 2].map(step).into_iter().fold(0.0, f64::max) / edge).round().max(1.0) as usize;
    let n_voxels: usize = grid.iter().product();
    (1..=wanted).rev().find(|times| n_voxels * times.pow(3) <= MOST_VOXELS).unwrap_or(1)
}

fn resampled(placed: &Placed, fine: [usize; 3], finer: usize, affine: [[f64; 4]; 3]) -> Vec<f32> {
    let value = |at: usize| {
        let fine_place = [at / (fine[1] * fine[2]), at / fine[2] % fine[1], at % fine[2]];
        let voxel = fine_place.map(|index| (index as f64 + 0.5) / finer as f64 - 0.5);
        let world = affine.map(|line| line[0] * voxel[0] + line[1] * voxel[1] + line[2] * voxel[2] + line[3]);
        let value = placed.smooth(world);
        if value.is_finite() { value as f32 } else { 0.0 }
    };
    (0..fine.iter().product()).map(value).collect()
}
