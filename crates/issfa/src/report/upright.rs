//! Pictures the right way up: slices of brains as anatomists see them, north above and east on the right.

use crate::data::axes::AxisPlaces;
use crate::data::nifti::{Affine, Header};
use crate::figures::NO_BREAK;
use crate::figures::images::Panel;
use crate::figures::resample::{PLANES, Placed, Plane, Volume};
use crate::figures::ticks::number;
use crate::summary::Fitted;

/// How fields on a grid are shown.
pub struct Upright {
    grid: Vec<usize>,
    /// Axes that are shown from their last site on.
    is_turned: Vec<bool>,
    brain: Option<Brain>,
}

/// Which plane of a brain is shown, and which voxel axes run along those of the world.
struct Brain {
    plane: Plane,
    axes: [usize; 3],
    affine: Affine,
}

impl Upright {
    /// For a grid of images that lie in a space, or one whose axes have names.
    pub fn new(grid: &[usize], space: Option<&Header>, axes: Option<&[AxisPlaces]>) -> Upright {
        let is_turned = axes.map_or(vec![false; grid.len()], |axes| axes.iter().map(AxisPlaces::is_turned).collect());
        let brain = space.filter(|space| space.grid[..] == *grid).and_then(Brain::new);
        Upright { grid: grid.to_vec(), is_turned, brain }
    }

    /// For what a fit has found.
    pub fn of(fitted: &Fitted) -> Upright {
        Upright::new(fitted.structure().grid(), fitted.space(), fitted.axes().as_deref())
    }

    /// The slice of a brain that holds most of a field's squares, with its neighbours; nothing for other grids.
    pub fn fullest(&self, values: &[f32]) -> Option<usize> {
        let axis = self.brain.as_ref()?.through();
        let n_inner: usize = self.grid[axis + 1..].iter().product();
        let mut energy = vec![0.0; self.grid[axis]];
        for (site, x) in values.iter().enumerate().filter(|(_, x)| x.is_finite()) {
            energy[site / n_inner % self.grid[axis]] += f64::from(x * x);
        }
        let around = |at: usize| energy[at.saturating_sub(1)..(at + 2).min(energy.len())].iter().sum::<f64>();
        (0..energy.len()).max_by(|&a, &b| around(a).total_cmp(&around(b)))
    }

    /// The middle slice of a brain.
    pub fn middle(&self) -> Option<usize> {
        self.brain.as_ref().map(|brain| self.grid[brain.through()] / 2)
    }

    /// A field as a panel; of a brain this slice.
    pub fn panel(&self, values: &[f32], slice: Option<usize>, caption: String) -> Panel {
        let Some((brain, slice)) = self.brain.as_ref().zip(slice) else {
            let values = (0..values.len()).map(|at| f64::from(values[self.from(at)])).collect();
            return Panel { caption, grid: self.grid.clone(), values };
        };
        let [across, up] =
            [brain.plane.across, brain.plane.up].map(|world| (brain.axes[world], brain.runs_back(world)));
        let (n_right, n_down) = (self.grid[across.0], self.grid[up.0]);
        let place = |(axis, runs_back): (usize, bool), at: usize| if runs_back { self.grid[axis] - 1 - at } else { at };
        let value = |at: usize| {
            let mut voxel = [0; 3];
            voxel[brain.through()] = slice;
            voxel[across.0] = place(across, at % n_right);
            voxel[up.0] = place(up, n_down - 1 - at / n_right);
            f64::from(values[(voxel[0] * self.grid[1] + voxel[1]) * self.grid[2] + voxel[2]])
        };
        let parts = [caption, brain.name(&self.grid, slice)].into_iter().filter(|part| !part.is_empty());
        let caption = parts.collect::<Vec<_>>().join(", ");
        Panel { caption, grid: vec![n_down, n_right], values: (0..n_down * n_right).map(value).collect() }
    }

    /// The site that is shown at a place.
    fn from(&self, at: usize) -> usize {
        let (mut site, mut rest, mut n_inner) = (0, at, 1);
        for (&length, &is_turned) in self.grid.iter().zip(&self.is_turned).rev() {
            let index = rest % length;
            site += n_inner * if is_turned { length - 1 - index } else { index };
            (rest, n_inner) = (rest / length, n_inner * length);
        }
        site
    }
}

impl Brain {
    fn new(space: &Header) -> Option<Brain> {
        let (values, affine) = (vec![0.0; space.n_sites()], space.affine());
        let placed = Placed::by_affine(Volume { grid: space.grid, values: &values, affine })?;
        let (axes, n_along) = (placed.voxel_axes(), placed.n_along());
        let plane = PLANES.into_iter().find(|plane| n_along[plane.across] > 1 && n_along[plane.up] > 1)?;
        Some(Brain { plane, axes, affine })
    }

    fn through(&self) -> usize {
        self.axes[self.plane.through]
    }

    /// Whether voxels are counted against the direction of the world's axis.
    fn runs_back(&self, world: usize) -> bool {
        self.affine[world][self.axes[world]] < 0.0
    }

    /// `z = 12 mm`, at the middle of the slice; nothing where there is one slice only.
    fn name(&self, grid: &[usize], slice: usize) -> String {
        let world = self.plane.through;
        if grid[self.through()] == 1 {
            return String::new();
        }
        let index = |axis: usize| if axis == self.through() { slice as f64 } else { (grid[axis] as f64 - 1.0) / 2.0 };
        let at = (0..3).map(|axis| self.affine[world][axis] * index(axis)).sum::<f64>() + self.affine[world][3];
        format!("{} = {} mm", ["x", "y", "z"][world], number(at.round())).replace(' ', &NO_BREAK.to_string())
    }
}

#[cfg(test)]
#[path = "../../../issfa-base/src/data/nifti/by_hand.rs"]
#[allow(dead_code)]
mod by_hand;

#[cfg(test)]
mod tests {
    use super::by_hand::Image;
    use super::*;
    use crate::data::axes::parse_axes;
    use std::path::Path;

    #[test]
    fn north_is_up() {
        let axes = parse_axes("latitude=10:12,longitude=0:1", 2).unwrap();
        let panel =
            Upright::new(&[3, 2], None, Some(&axes)).panel(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], None, String::new());
        assert_eq!(panel.values, [4.0, 5.0, 2.0, 3.0, 0.0, 1.0]);
        let panel = Upright::new(&[3, 2], None, None).panel(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], None, String::new());
        assert_eq!(panel.values, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    /// A volume whose x axis runs to the left and whose third axis runs to the front.
    #[test]
    fn brains_are_seen_from_above() {
        let srows = [[-2.0, 0.0, 0.0, 4.0], [0.0, 0.0, 3.0, -6.0], [0.0, 2.0, 0.0, 0.0]];
        let image = Image { sform_code: 1, srows, dim: [4, 3, 4, 5, 2, 1, 1, 1], ..Image::default() };
        let header = Header::parse(Path::new("a.nii"), &image.header()).unwrap();
        // Loud at the voxel (0, 3, 4): right (x = 4 mm), front (y = 6 mm), top (z = 6 mm).
        let mut values = vec![0.0f32; 60];
        values[3 * 5 + 4] = 9.0;
        let upright = Upright::new(&[3, 4, 5], Some(&header), None);
        let slice = upright.fullest(&values);
        assert!(matches!(slice, Some(2 | 3)), "{slice:?}");
        let panel = upright.panel(&values, Some(3), "7".into());
        assert_eq!((panel.grid, panel.caption.as_str()), (vec![5, 3], "7, z\u{a0}=\u{a0}6\u{a0}mm"));
        assert_eq!(panel.values.iter().position(|x| *x == 9.0), Some(2), "the upper right corner");
    }
}
