//! Volumes in space: which value a place in millimetres has, and the rasters of places that a slice shows.

use crate::data::nifti::Affine;

/// A slice has at most about this many pixels along a side: more voxels than that do not show on paper.
const MOST_PIXELS: f64 = 250.0;
/// Voxel edges and origins past these sizes (in millimetres) are taken for a broken header.
const EDGES: std::ops::Range<f64> = 1e-6..1e6;
const FARTHEST: f64 = 1e9;

/// A volume and where its voxels lie. Values are row-major with the last axis (z) fastest:
/// index = (x * ny + y) * nz + z.
#[derive(Debug, Clone, Copy)]
pub struct Volume<'a> {
    /// Voxels along x, y and z.
    pub grid: [usize; 3],
    /// One a voxel.
    pub values: &'a [f32],
    /// Voxel indices to millimetres: to the right, anterior, superior.
    pub affine: Affine,
}

/// A place in millimetres: to the right, anterior, superior.
pub type World = [f64; 3];

/// A volume with both ways between its voxels and the world.
pub struct Placed<'a> {
    /// What it holds.
    pub volume: Volume<'a>,
    to_voxels: Affine,
}

impl<'a> Placed<'a> {
    /// Where the affine puts it; `None` if the affine cannot be inverted.
    pub fn by_affine(volume: Volume<'a>) -> Option<Self> {
        check_length(&volume);
        Some(Placed { volume, to_voxels: inverse(&volume.affine)? })
    }

    /// Along its own axes, a millimetre a voxel.
    pub fn by_voxels(volume: Volume<'a>) -> Self {
        check_length(&volume);
        let unit: Affine = std::array::from_fn(|line| std::array::from_fn(|column| f64::from(line == column)));
        Placed { volume: Volume { affine: unit, ..volume }, to_voxels: unit }
    }

    /// The smallest box along the world's axes that holds all voxels, edges included.
    pub fn bounds(&self) -> [(f64, f64); 3] {
        let mut bounds = [(f64::INFINITY, -f64::INFINITY); 3];
        for corner in 0..8 {
            let end = |axis: usize| if corner >> axis & 1 == 0 { 0 } else { self.volume.grid[axis].max(1) };
            let place = apply(&self.volume.affine, [0, 1, 2].map(|axis| end(axis) as f64 - 0.5));
            bounds = std::array::from_fn(|axis| (bounds[axis].0.min(place[axis]), bounds[axis].1.max(place[axis])));
        }
        bounds
    }

    /// The place with the most squares about it, of such places the one with the largest value; and the size of the largest
    /// value of all. The middle and 0 if there is none but zeros.
    pub fn peak(&self) -> (World, f64) {
        let grid = self.volume.grid;
        let middle = (grid[0] / 2 * grid[1] + grid[1] / 2) * grid[2] + grid[2] / 2;
        let sizes = || self.volume.values.iter().map(|value| f64::from(value.abs()));
        let size = sizes().filter(|size| size.is_finite()).fold(0.0, f64::max);
        let around = self.squares_around();
        let larger = |best: (usize, (f64, f64)), (site, own): (usize, f64)| {
            let found = (around[site], own);
            if found > best.1 { (site, found) } else { best }
        };
        let (site, _) = sizes().enumerate().filter(|(_, own)| own.is_finite()).fold((middle, (0.0, 0.0)), larger);
        let [_, ny, nz] = grid.map(|length| length.max(1));
        let voxel = [site / (ny * nz), site / nz % ny, site % nz];
        (apply(&self.volume.affine, voxel.map(|index| index as f64)), size)
    }

    /// The sum of squares within two voxels along each axis, nearer ones counting more.
    fn squares_around(&self) -> Vec<f64> {
        const REACH: usize = 2;
        let weight = |distance: usize| (REACH + 1 - distance) as f64;
        let grid = self.volume.grid;
        let square = |x: &f32| if x.is_finite() { f64::from(*x).powi(2) } else { 0.0 };
        let mut sums: Vec<f64> = self.volume.values.iter().map(square).collect();
        for axis in 0..3 {
            let n_inner: usize = grid[axis + 1..].iter().product();
            let sum = |site: usize| {
                let at = site / n_inner % grid[axis];
                let places = at.saturating_sub(REACH)..(at + REACH + 1).min(grid[axis]);
                let value = |place: usize| sums[site + place * n_inner - at * n_inner];
                places.map(|place| weight(place.abs_diff(at)) * value(place)).sum::<f64>()
            };
            sums = (0..sums.len()).map(sum).collect();
        }
        sums
    }

    /// The value of the voxel that holds the place; NaN outside.
    pub fn nearest(&self, place: World) -> f64 {
        let voxel = apply(&self.to_voxels, place).map(|index| (index + 0.5).floor());
        let is_inside = (0..3).all(|axis| voxel[axis] >= 0.0 && voxel[axis] < self.volume.grid[axis] as f64);
        if is_inside { self.value(voxel.map(|index| index as usize)) } else { f64::NAN }
    }

    /// The trilinear mean of the voxels about the place; NaN outside. A voxel without a value counts as 0.
    pub fn smooth(&self, place: World) -> f64 {
        let voxel = apply(&self.to_voxels, place);
        let last = self.volume.grid.map(|length| length as f64 - 1.0);
        if !(0..3).all(|axis| voxel[axis] >= -0.5 && voxel[axis] <= last[axis] + 0.5) {
            return f64::NAN;
        }
        let voxel: World = std::array::from_fn(|axis| voxel[axis].clamp(0.0, last[axis]));
        let corner_share = |corner: usize| {
            let upper: [usize; 3] = std::array::from_fn(|axis| corner >> axis & 1);
            let at = std::array::from_fn(|axis| (voxel[axis].floor() + upper[axis] as f64).min(last[axis]) as usize);
            let share = |axis: usize| if upper[axis] == 1 { voxel[axis].fract() } else { 1.0 - voxel[axis].fract() };
            let value = self.value(at);
            if value.is_finite() { share(0) * share(1) * share(2) * value } else { 0.0 }
        };
        (0..8).map(corner_share).sum()
    }

    /// How many voxels lie along each axis of the world, by the voxel axis that runs most along it.
    pub fn n_along(&self) -> [usize; 3] {
        self.voxel_axes().map(|axis| self.volume.grid[axis])
    }

    /// Where the volume is a single layer, the place moved along the world's axis into that layer: a tilted layer is
    /// shown whole, not only where a level plane cuts it.
    pub fn in_layer(&self, mut place: World, through: usize) -> World {
        let axis = self.voxel_axes()[through];
        let slope = self.to_voxels[axis][through];
        if self.volume.grid[axis] == 1 && slope.abs() > 1e-9 {
            place[through] -= apply(&self.to_voxels, place)[axis] / slope;
        }
        place
    }

    /// The length of the shortest edge of a voxel.
    pub fn shortest_edge(&self) -> f64 {
        edges(&self.volume.affine).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// For each axis of the world the voxel axis along it: of all ways to pair them, the one with the least turning.
    pub fn voxel_axes(&self) -> [usize; 3] {
        let edges = edges(&self.volume.affine);
        let cosine = |world: usize, axis: usize| self.volume.affine[world][axis].abs() / edges[axis];
        let agreement = |pairing: &[usize; 3]| (0..3).map(|world| cosine(world, pairing[world])).sum::<f64>();
        let pairings = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let better = |best, pairing| if agreement(&pairing) > agreement(&best) + 1e-9 { pairing } else { best };
        pairings.into_iter().fold(pairings[0], better)
    }

    fn value(&self, [x, y, z]: [usize; 3]) -> f64 {
        let [_, ny, nz] = self.volume.grid;
        f64::from(self.volume.values[(x * ny + y) * nz + z])
    }
}

fn check_length(volume: &Volume) {
    let n_voxels: usize = volume.grid.iter().product();
    assert_eq!(n_voxels, volume.values.len(), "a volume has one value for each voxel of its grid");
}

fn apply(affine: &Affine, place: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|line| (0..3).map(|axis| affine[line][axis] * place[axis]).sum::<f64>() + affine[line][3])
}

/// The lengths of a voxel's edges.
fn edges(affine: &Affine) -> [f64; 3] {
    [0, 1, 2].map(|axis| affine[..3].iter().map(|line| line[axis] * line[axis]).sum::<f64>().sqrt())
}

/// By cofactors; `None` for affines that squash space or lie beyond all scanners.
fn inverse(affine: &Affine) -> Option<Affine> {
    let edges = edges(affine);
    let is_sane = edges.iter().all(|edge| EDGES.contains(edge)) && (0..3).all(|line| affine[line][3].abs() < FARTHEST);
    let cofactor = |line: usize, column: usize| {
        let ([a, b], [c, d]) = ([1, 2].map(|step| (line + step) % 3), [1, 2].map(|step| (column + step) % 3));
        affine[a][c] * affine[b][d] - affine[a][d] * affine[b][c]
    };
    let volume: f64 = (0..3).map(|column| affine[0][column] * cofactor(0, column)).sum();
    if !is_sane || volume.is_nan() || volume.abs() < 1e-6 * edges.iter().product::<f64>() {
        return None;
    }
    let mut inverse = [[0.0; 4]; 4];
    for (line, entries) in inverse[..3].iter_mut().enumerate() {
        (0..3).for_each(|column| entries[column] = cofactor(column, line) / volume);
        entries[3] = -(0..3).map(|column| entries[column] * affine[column][3]).sum::<f64>();
    }
    inverse[3][3] = 1.0;
    Some(inverse)
}

/// Which axes of the world (0 right, 1 anterior, 2 superior) a slice shows to the right and up, and which it cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plane {
    /// As anatomists call it.
    pub name: &'static str,
    /// The axis to the right.
    pub across: usize,
    /// The axis upwards.
    pub up: usize,
    /// The axis that is cut.
    pub through: usize,
}

/// As seen from above, from the right and from behind: the right side of the body is on the right.
pub const PLANES: [Plane; 3] = [
    Plane { name: "axial", across: 0, up: 1, through: 2 },
    Plane { name: "sagittal", across: 1, up: 2, through: 0 },
    Plane { name: "coronal", across: 0, up: 2, through: 1 },
];

/// The size of a pixel in millimetres, for all slices of a volume: voxels get a whole number of pixels if they can.
pub fn pixel_size(volume: &Placed) -> f64 {
    let longest = volume.bounds().iter().map(|(low, high)| high - low).fold(0.0, f64::max);
    let n_per_voxel = (MOST_PIXELS * volume.shortest_edge() / longest + 1e-6).floor();
    if n_per_voxel >= 1.0 { volume.shortest_edge() / n_per_voxel } else { longest / MOST_PIXELS }
}

/// The places of a slice's pixels.
pub struct Raster {
    /// Which way it looks.
    pub plane: Plane,
    /// A place on the slice.
    through: World,
    /// Left and upper edge, in millimetres.
    left: f64,
    top: f64,
    pixel: f64,
    /// Pixels in a line.
    pub n_across: usize,
    /// Lines.
    pub n_down: usize,
}

impl Raster {
    /// The slice of a box through a place.
    pub fn new(plane: Plane, bounds: &[(f64, f64); 3], through: World, pixel: f64) -> Self {
        let n_pixels = |(low, high): (f64, f64)| ((high - low) / pixel - 1e-3).ceil().max(1.0) as usize;
        let (n_across, n_down) = (n_pixels(bounds[plane.across]), n_pixels(bounds[plane.up]));
        let top = bounds[plane.up].0 + n_down as f64 * pixel;
        Raster { plane, through, left: bounds[plane.across].0, top, pixel, n_across, n_down }
    }

    /// The places of the pixels' centres, line by line from the top left.
    pub fn places(&self) -> impl Iterator<Item = World> {
        (0..self.n_down * self.n_across).map(|index| {
            let mut place = self.through;
            place[self.plane.across] = self.left + ((index % self.n_across) as f64 + 0.5) * self.pixel;
            place[self.plane.up] = self.top - ((index / self.n_across) as f64 + 0.5) * self.pixel;
            place
        })
    }

    /// A place as shares of the slice's width and height, from the top left.
    pub fn shares(&self, place: World) -> (f64, f64) {
        let (width, height) = self.size();
        ((place[self.plane.across] - self.left) / width, (self.top - place[self.plane.up]) / height)
    }

    /// Width and height in millimetres.
    pub fn size(&self) -> (f64, f64) {
        (self.n_across as f64 * self.pixel, self.n_down as f64 * self.pixel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All zero but for one voxel.
    fn lit(grid: [usize; 3], [x, y, z]: [usize; 3]) -> Vec<f32> {
        let mut values = vec![0.0; grid.iter().product()];
        values[(x * grid[1] + y) * grid[2] + z] = 5.0;
        values
    }

    fn affine(lines: [[f64; 4]; 3]) -> Affine {
        [lines[0], lines[1], lines[2], [0.0, 0.0, 0.0, 1.0]]
    }

    /// The millimetres of the lit pixels in a slice through the peak: (lowest, highest) across and up.
    fn lit_box(volume: &Placed, plane: Plane) -> [(f64, f64); 2] {
        let raster = Raster::new(plane, &volume.bounds(), volume.peak().0, pixel_size(volume));
        let lit: Vec<World> = raster.places().filter(|&place| volume.nearest(place) == 5.0).collect();
        [plane.across, plane.up].map(|axis| {
            let ends = lit.iter().map(|place| place[axis]);
            (ends.clone().fold(f64::INFINITY, f64::min), ends.fold(-f64::INFINITY, f64::max))
        })
    }

    #[test]
    fn a_flipped_affine_keeps_left_and_right() {
        // x runs to the left, as in many scanners' files: voxel (1, 3, 0) lies at (-2 + 10, 3 * 3 - 20, 5).
        let flipped = affine([[-2.0, 0.0, 0.0, 10.0], [0.0, 3.0, 0.0, -20.0], [0.0, 0.0, 4.0, 5.0]]);
        let grid = [6, 5, 4];
        let values = lit(grid, [1, 3, 0]);
        let volume = Placed::by_affine(Volume { grid, values: &values, affine: flipped }).unwrap();
        assert_eq!(volume.peak(), ([8.0, -11.0, 5.0], 5.0));
        assert_eq!(volume.bounds(), [(-1.0, 11.0), (-21.5, -6.5), (3.0, 19.0)]);
        let [across, up] = lit_box(&volume, PLANES[0]);
        assert!(7.0 <= across.0 && across.1 <= 9.0 && -12.5 <= up.0 && up.1 <= -9.5, "{across:?} {up:?}");
        let raster = Raster::new(PLANES[0], &volume.bounds(), volume.peak().0, 1.0);
        assert_eq!((raster.n_across, raster.n_down), (12, 15));
        let lit: Vec<usize> = raster.places().map(|place| usize::from(volume.nearest(place) == 5.0)).collect();
        // x = 8 is the 9th and 10th millimetre from the left edge at -1; y = -11 lies 4 to 6 under the top at -6.5.
        let on = |down: usize, across: usize| lit[down * 12 + across] == 1;
        assert!(on(3, 8) && on(5, 9) && !on(3, 7) && !on(3, 10) && !on(2, 8) && !on(6, 8));
        assert_eq!(lit.iter().sum::<usize>(), 6);
        assert_eq!(raster.shares([8.0, -11.0, 5.0]), (9.0 / 12.0, 4.5 / 15.0));
    }

    #[test]
    fn a_quarter_turn_puts_voxel_axes_on_other_world_axes() {
        // World x = -2 j, world y = 2 i, world z = 3 k: voxel (4, 1, 2) lies at (-2, 8, 6).
        let turned = affine([[0.0, -2.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]]);
        let grid = [6, 4, 3];
        let values = lit(grid, [4, 1, 2]);
        let volume = Placed::by_affine(Volume { grid, values: &values, affine: turned }).unwrap();
        assert_eq!(volume.peak().0, [-2.0, 8.0, 6.0]);
        assert_eq!(volume.n_along(), [4, 6, 3]);
        for (plane, centre, half) in
            [(0, [-2.0, 8.0], [1.0, 1.0]), (1, [8.0, 6.0], [1.0, 1.5]), (2, [-2.0, 6.0], [1.0, 1.5])]
        {
            for ((low, high), (centre, half)) in lit_box(&volume, PLANES[plane]).iter().zip(centre.iter().zip(half)) {
                let edge = [low - 0.05, high + 0.05];
                assert!(
                    (edge[0] - (centre - half)).abs() < 0.05 && (edge[1] - (centre + half)).abs() < 0.05,
                    "{edge:?}"
                );
            }
        }
    }

    #[test]
    fn smooth_values_are_linear_between_voxels() {
        let grid = [3, 2, 2];
        let affine = affine([[2.0, 0.0, 0.0, 1.0], [0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 7.0]]);
        let value = |x: usize, y: usize, z: usize| (10 * x + 3 * y + z) as f32;
        let values: Vec<f32> = (0..12).map(|site| value(site / 4, site / 2 % 2, site % 2)).collect();
        let volume = Placed::by_affine(Volume { grid, values: &values, affine }).unwrap();
        assert!((volume.smooth([4.0, -0.25, 7.5]) - 16.25).abs() < 1e-12);
        assert_eq!(volume.smooth([0.2, 0.3, 6.6]), 0.0);
        assert!(volume.smooth([-0.1, 0.0, 7.0]).is_nan() && volume.smooth([3.0, 0.0, 8.6]).is_nan());
        let gaps = [f32::NAN; 12];
        assert_eq!(Placed::by_affine(Volume { grid, values: &gaps, affine }).unwrap().smooth([3.0, 0.0, 7.0]), 0.0);
    }

    #[test]
    fn broken_affines_are_refused_and_inverses_undo() {
        let values = [0.0; 1];
        let placed = |affine| Placed::by_affine(Volume { grid: [1; 3], values: &values, affine }).is_some();
        let flat = affine([[1.0, 2.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]);
        assert!(!placed([[0.0; 4]; 4]) && !placed([[f64::NAN; 4]; 4]) && !placed(flat) && !placed([[1e300; 4]; 4]));
        let oblique = affine([[1.8, -0.4, 0.3, -70.0], [0.5, 2.1, -0.2, 12.0], [-0.1, 0.3, 3.0, 33.0]]);
        let back = apply(&inverse(&oblique).unwrap(), apply(&oblique, [3.0, -7.0, 11.0]));
        assert!(back.iter().zip([3.0, -7.0, 11.0]).all(|(found, true_value)| (found - true_value).abs() < 1e-12));
    }

    #[test]
    fn a_tilted_single_layer_is_shown_whole() {
        let tilted = affine([[2.0, 0.0, 0.0, 0.0], [0.0, 1.9, -0.6, 0.0], [0.0, 0.6, 1.9, 0.0]]);
        let values = vec![1.0; 30 * 30];
        let volume = Placed::by_affine(Volume { grid: [30, 30, 1], values: &values, affine: tilted }).unwrap();
        assert_eq!(volume.n_along(), [30, 30, 1]);
        let raster = Raster::new(PLANES[0], &volume.bounds(), volume.peak().0, pixel_size(&volume));
        let n_shown = raster.places().filter(|&place| !volume.nearest(volume.in_layer(place, 2)).is_nan()).count();
        assert!(n_shown as f64 > 0.95 * (raster.n_across * raster.n_down) as f64);
    }
}
