//! Where the sites of a fit lie on the page: volumes are turned so that axes run right, anterior and superior.

use crate::maps;
use issfa::data::axes::AxisPlaces;
use issfa::data::nifti::Header;
use issfa::lab::figures::resample::{Placed, Volume};
use issfa::{Error, Fitted, Result};
use serde::Serialize;
use std::path::Path;

/// The grid of the page, and which columns of the mask each of its sites stands for.
pub struct Layout {
    /// Sites along each axis as the page has them.
    pub grid: Vec<usize>,
    /// For images: voxels to millimetres, of the turned volume.
    pub affine: Option<[[f64; 4]; 3]>,
    /// For each site of the page, in its order, where its columns begin in the list of all; and the end of the list.
    starts: Vec<usize>,
    columns: Vec<usize>,
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
            None => Layout::new(grid, None, column_of.into_iter().map(Vec::from_iter)),
        }
    }

    fn new(grid: Vec<usize>, affine: Option<[[f64; 4]; 3]>, sites: impl Iterator<Item = Vec<usize>>) -> Layout {
        let (mut starts, mut columns) = (vec![0], Vec::new());
        for site in sites {
            columns.extend(site);
            starts.push(columns.len());
        }
        Layout { grid, affine, starts, columns }
    }

    /// The same with so many sites along each axis in the place of one.
    pub fn coarser(&self, times: usize) -> Layout {
        let grid: Vec<usize> = self.grid.iter().map(|n| n.div_ceil(times)).collect();
        let mut sites = vec![Vec::new(); grid.iter().product()];
        for (at, columns) in self.sites().enumerate() {
            let (mut rest, mut place, mut n_inner) = (at, 0, 1);
            for (own, coarse) in self.grid.iter().zip(&grid).rev() {
                place += rest % own / times * n_inner;
                (rest, n_inner) = (rest / own, n_inner * coarse);
            }
            sites[place].extend_from_slice(columns);
        }
        // The middle of a block lies between its first and its last voxel.
        let line = |line: [f64; 4]| {
            let middle = |axis: usize| if self.grid[axis] > 1 { (times as f64 - 1.0) / 2.0 } else { 0.0 };
            let by = |axis: usize| if self.grid[axis] > 1 { times as f64 } else { 1.0 };
            let shift: f64 = (0..3).map(|axis| line[axis] * middle(axis)).sum();
            [line[0] * by(0), line[1] * by(1), line[2] * by(2), line[3] + shift]
        };
        Layout::new(grid, self.affine.map(|affine| affine.map(line)), sites.into_iter())
    }

    /// How many times coarser it has to be for as many bytes as this to be no more than those, at one a site inside.
    pub fn coarsening(&self, n_maps: usize, most: usize) -> usize {
        let size = |times: &usize| n_maps * if *times == 1 { self.n_inside() } else { self.coarser(*times).n_inside() };
        let longest = self.grid.iter().copied().max().unwrap_or(1);
        (1..=longest).find(|times| size(times) <= most).unwrap_or(longest)
    }

    /// The columns of each site.
    fn sites(&self) -> impl Iterator<Item = &[usize]> + Clone {
        self.starts.windows(2).map(|ends| &self.columns[ends[0]..ends[1]])
    }

    /// Sites that take part.
    pub fn n_inside(&self) -> usize {
        self.sites().filter(|columns| !columns.is_empty()).count()
    }

    /// Values by column of the mask in the order of the page: of several at a site the largest in size.
    pub fn inside<'a>(&'a self, values: &'a [f32]) -> impl Iterator<Item = f32> + Clone + 'a {
        let larger = |one: f32, other: f32| if other.abs() > one.abs() || one.is_nan() { other } else { one };
        let of = move |columns: &[usize]| columns.iter().map(|&column| values[column]).fold(f32::NAN, larger);
        self.sites().filter(|columns| !columns.is_empty()).map(of)
    }

    /// Means over the columns of each site, 0 where there are none.
    fn means(&self, values: &[f32]) -> Vec<f32> {
        let sum = |columns: &[usize]| columns.iter().map(|&column| values[column]).sum::<f32>();
        self.sites().map(|columns| sum(columns) / columns.len().max(1) as f32).collect()
    }

    /// Which sites take part, a bit each; nothing where all do.
    pub fn mask(&self) -> Option<Vec<u8>> {
        let inside: Vec<bool> = self.sites().map(|columns| !columns.is_empty()).collect();
        inside.contains(&false).then(|| maps::bits(&inside))
    }
}

/// Where the axes lie when sites are taken together by so many.
pub fn coarser_axes(axes: &[AxisPlaces], own: &[usize], times: usize) -> Vec<AxisPlaces> {
    let one = |(axis, &n): (&AxisPlaces, &usize)| {
        let Some((first, last)) = axis.first.zip(axis.last).filter(|_| n > 1) else { return axis.clone() };
        let step = (last - first) / (n as f64 - 1.0);
        let start = first + step * (times as f64 - 1.0) / 2.0;
        let end = start + step * (times * (n.div_ceil(times) - 1)) as f64;
        AxisPlaces { first: Some(start), last: Some(end), ..axis.clone() }
    };
    axes.iter().zip(own).map(one).collect()
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
    let affine = Some([line(0), line(1), line(2)]);
    Layout::new(grid.to_vec(), affine, columns.into_iter().map(Vec::from_iter))
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
            return Ok(Some(Anatomy::new(grid, &layout.means(&means), "the mean of the data".into())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use issfa::data::axes::parse_axes;

    #[test]
    fn coarser_sites_hold_the_loudest_of_theirs() {
        // A grid of 3 x 5 whose first site is outside.
        let sites = (0..15).map(|site| if site == 0 { vec![] } else { vec![site - 1] });
        let affine = [[2.0, 0.0, 0.0, 10.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]];
        let own = Layout::new(vec![3, 5, 1], Some(affine), sites);
        let values: Vec<f32> = (1..15).map(|site| if site == 7 { -90.0 } else { site as f32 }).collect();
        assert_eq!((own.n_inside(), own.mask().is_some()), (14, true));
        assert_eq!(own.inside(&values).nth(6), Some(-90.0));
        let coarse = own.coarser(2);
        assert_eq!((coarse.grid.clone(), coarse.n_inside(), coarse.mask()), (vec![2, 3, 1], 6, None));
        assert_eq!(coarse.inside(&values).collect::<Vec<_>>(), [6.0, -90.0, 9.0, 11.0, 13.0, 14.0]);
        assert_eq!(coarse.affine.unwrap()[0], [4.0, 0.0, 0.0, 11.0]);
        assert_eq!(coarse.affine.unwrap()[2], [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(own.coarsening(10, 140), 1);
        assert_eq!(own.coarsening(10, 139), 2);
        let axes = coarser_axes(&parse_axes("latitude=10:14,longitude=0:8,hour", 3).unwrap(), &[3, 5, 1], 2);
        assert_eq!((axes[0].first, axes[0].last, axes[1].last), (Some(11.0), Some(15.0), Some(9.0)));
    }

    #[test]
    fn a_brain_of_many_features_fits_into_a_light_page() {
        let own = Layout::new(vec![61, 73, 61], None, (0..61 * 73 * 61).map(|site| vec![site]));
        let times = own.coarsening(400, 30_000_000);
        assert_eq!(times, 2);
        assert!(400 * own.coarser(times).n_inside() < 15_000_000);
    }
}
