//! Which sites of the grid take part: all of them, or those under a mask.

use super::Observations;
use super::grid::show_grid;
use super::nifti::space::check_same_place;
use super::read::{self, npy::read_npy_f32};
use super::write::write_npy_f32;
use crate::error::{Error, Result, setting};
use std::path::Path;

/// The sites of a grid that data are given for. Their numbers, one a site, are called columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask {
    n_grid_sites: usize,
    /// In ascending order; none where every site takes part.
    sites: Option<Vec<usize>>,
}

impl Mask {
    /// Every site takes part.
    pub fn full(n_grid_sites: usize) -> Mask {
        Mask { n_grid_sites, sites: None }
    }

    /// The sites at which `inside` says so; a mask of all sites is no mask.
    pub fn from_inside(inside: &[bool]) -> Mask {
        let sites: Vec<usize> = (0..inside.len()).filter(|&site| inside[site]).collect();
        let is_full = sites.len() == inside.len();
        Mask { n_grid_sites: inside.len(), sites: (!is_full).then_some(sites) }
    }

    /// Reads a mask on `grid`: not 0 and not NaN is inside.
    pub fn read(path: &Path, grid: &[usize]) -> Result<Mask> {
        let (shape, values) = read_image(path)?;
        // Another number of axes is another way to write the same sites; as many axes of other lengths are not.
        let same = shape == grid || shape.len() != grid.len() && values.len() == grid.iter().product::<usize>();
        if !same {
            let problem =
                format!("the mask has the shape {}, but the data have the grid {}", show_grid(&shape), show_grid(grid));
            return Err(Error::malformed(path, problem));
        }
        let inside: Vec<bool> = values.iter().map(|&x| x != 0.0 && !x.is_nan()).collect();
        if !inside.contains(&true) {
            return Err(Error::malformed(path, format!("the mask is empty: all of its {} values are 0", values.len())));
        }
        Ok(Mask::from_inside(&inside))
    }

    /// [`Mask::read`] for these observations: a mask that is an image must lie where they do.
    pub fn read_for(path: &Path, grid: &[usize], observations: &Observations) -> Result<Mask> {
        let mask = Mask::read(path, grid)?;
        if let Some(space) = observations.space().filter(|_| !is_array(path)) {
            let own = read::open(path)?;
            own.space().map_or(Ok(()), |own| check_same_place((observations.path(), space), (path, own)))?;
        }
        Ok(mask)
    }

    /// A digest of the sites, for recognising the mask.
    pub fn checksum(&self) -> String {
        let bytes: Vec<u8> = self.sites().iter().flat_map(|site| (*site as u64).to_le_bytes()).collect();
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes))
    }

    /// The sites of the present mask that have a value in any row, where some have none.
    pub fn without_empty_sites(observations: &Observations) -> Result<Option<Mask>> {
        let n = observations.n_columns();
        let (mut empty, mut is_first): (Vec<usize>, bool) = (Vec::new(), true);
        let rows = 0..observations.n_rows().min(1);
        observations.for_each_chunk_raw_of(rows, &mut |_, _, values| {
            empty = (0..n).filter(|&column| values[column].is_nan()).collect();
            is_first = false;
            Ok(())
        })?;
        if is_first || empty.is_empty() {
            return Ok(None);
        }
        observations.for_each_chunk_raw(&mut |_, _, values| {
            for row in values.chunks_exact(n) {
                empty.retain(|&column| row[column].is_nan());
            }
            Ok(())
        })?;
        if empty.len() == n {
            return Err(Error::malformed(observations.path(), "every value is NaN: there is nothing to fit"));
        }
        let mut inside = vec![false; observations.n_sites()];
        let mask = observations.mask();
        (0..n).for_each(|column| inside[mask.site(column)] = true);
        empty.iter().for_each(|&column| inside[mask.site(column)] = false);
        Ok((!empty.is_empty()).then(|| Mask::from_inside(&inside)))
    }

    /// The sites whose values are finite and not constant in every run.
    pub fn automatic(observations: &Observations) -> Result<Mask> {
        let n = observations.n_columns();
        let mut inside = vec![true; n];
        let (mut first, mut varies, mut at_run) = (vec![0.0; n], vec![true; n], usize::MAX);
        let mut close_run =
            |varies: &[bool]| inside.iter_mut().zip(varies).for_each(|(inside, varies)| *inside &= varies);
        observations.for_each_chunk_raw(&mut |run, _, values| {
            for row in values.chunks_exact(n) {
                if run != at_run {
                    close_run(&varies);
                    (first, varies, at_run) = (row.to_vec(), vec![false; n], run);
                }
                for ((x, first), varies) in row.iter().zip(&mut first).zip(&mut varies) {
                    *varies |= x != first;
                    if !x.is_finite() {
                        // Never equal to anything again.
                        *first = f64::NAN;
                    }
                }
            }
            Ok(())
        })?;
        close_run(&varies);
        // A site with a value that is not finite is out, however much it varies.
        let mut finite = vec![true; n];
        observations.for_each_chunk_raw(&mut |_, _, values| {
            for row in values.chunks_exact(n) {
                finite.iter_mut().zip(row).for_each(|(finite, x)| *finite &= x.is_finite());
            }
            Ok(())
        })?;
        inside.iter_mut().zip(finite).for_each(|(inside, finite)| *inside &= finite);
        if !inside.contains(&true) {
            let problem = format!(
                "no site is finite and varies in every run, so that an automatic mask is empty; give {}",
                setting("mask").to("FILE")
            );
            return Err(Error::malformed(observations.path(), problem));
        }
        Ok(Mask::from_inside(&inside))
    }

    /// Writes the mask as an array of 0 and 1.
    pub fn write(&self, path: &Path, grid: &[usize]) -> Result<()> {
        write_npy_f32(path, grid, &self.scatter(&vec![1.0; self.n_columns()], 0.0))
    }

    /// Whether every site takes part.
    pub fn is_full(&self) -> bool {
        self.sites.is_none()
    }

    /// Sites that take part.
    pub fn n_columns(&self) -> usize {
        self.sites.as_ref().map_or(self.n_grid_sites, Vec::len)
    }

    /// Sites of the grid, inside or not.
    pub fn n_grid_sites(&self) -> usize {
        self.n_grid_sites
    }

    /// The site of a column.
    pub fn site(&self, column: usize) -> usize {
        self.sites.as_ref().map_or(column, |sites| sites[column])
    }

    /// The sites of all columns.
    pub fn sites(&self) -> Vec<usize> {
        self.sites.clone().unwrap_or_else(|| (0..self.n_grid_sites).collect())
    }

    /// What an image shows at the columns.
    pub fn gather<T: Copy>(&self, image: &[T]) -> Vec<T> {
        assert_eq!(image.len(), self.n_grid_sites, "an image has a value for every site");
        self.sites.as_ref().map_or_else(|| image.to_vec(), |sites| sites.iter().map(|&site| image[site]).collect())
    }

    /// The image that shows these columns, and `elsewhere` at all other sites.
    pub fn scatter<T: Copy>(&self, columns: &[T], elsewhere: T) -> Vec<T> {
        assert_eq!(columns.len(), self.n_columns(), "a value for every column");
        let Some(sites) = &self.sites else { return columns.to_vec() };
        let mut image = vec![elsewhere; self.n_grid_sites];
        sites.iter().zip(columns).for_each(|(&site, &x)| image[site] = x);
        image
    }
}

fn is_array(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy"))
}

/// The shape and values of a single image: a .npy array, or a NIfTI volume.
fn read_image(path: &Path) -> Result<(Vec<usize>, Vec<f32>)> {
    if is_array(path) {
        return read_npy_f32(path);
    }
    let source = read::open(path)?;
    let Some(grid) = source.grid().filter(|_| source.n_rows() == 1) else {
        let problem =
            format!("a mask is a single image (.npy, .nii or .nii.gz), but this has {} rows", source.n_rows());
        return Err(Error::malformed(path, problem));
    };
    let mut values = vec![0.0; source.n_sites()];
    source.read_rows(0, &mut values)?;
    Ok((grid.to_vec(), values.iter().map(|&x| x as f32).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write::write_npy_f64;

    #[test]
    fn columns_come_back() {
        let mask = Mask::from_inside(&[false, true, true, false, true]);
        assert_eq!(mask.gather(&[10, 11, 12, 13, 14]), [11, 12, 14]);
        assert_eq!(mask.scatter(&[1, 2, 3], 0), [0, 1, 2, 0, 3]);
        assert_eq!((mask.n_columns(), mask.site(2), mask.is_full()), (3, 4, false));
        assert!(Mask::from_inside(&[true; 3]).is_full());
    }

    #[test]
    fn files_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mask.npy");
        write_npy_f64(&path, &[2, 2], &[1.0, 0.0, f64::NAN, 2.0]).unwrap();
        assert_eq!(Mask::read(&path, &[2, 2]).unwrap().sites(), [0, 3]);
        assert_eq!(Mask::read(&path, &[4]).unwrap().sites(), [0, 3]);
        assert!(Mask::read(&path, &[4, 1]).unwrap_err().to_string().contains("shape 2x2"));
        write_npy_f64(&path, &[2, 2], &[0.0; 4]).unwrap();
        assert!(Mask::read(&path, &[2, 2]).unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn constant_and_broken_sites_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a.npy", "b.npy"].map(|name| folder.path().join(name));
        write_npy_f64(&a, &[2, 4], &[1.0, 5.0, 1.0, 0.0, 2.0, 5.0, 3.0, 1.0]).unwrap();
        write_npy_f64(&b, &[2, 4], &[1.0, 5.0, 7.0, f64::NAN, 4.0, 6.0, 7.0, 2.0]).unwrap();
        let observations = Observations::open(&[a, b]).unwrap();
        assert_eq!(Mask::automatic(&observations).unwrap().sites(), [0]);
    }
}
