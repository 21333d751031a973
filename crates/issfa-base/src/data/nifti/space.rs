//! Where the voxels of an image lie: pixel sizes, units and the two ways to give an affine.

use std::path::Path;

use super::Header;
use crate::error::{Error, Result};

/// Voxel indices (x, y, z, 1) to millimetres; the last line is (0, 0, 0, 1).
pub type Affine = [[f64; 4]; 4];

/// Affines are the same when no entry differs by more than this share of the voxel size.
const TOLERANCE: f64 = 1e-3;

/// The header's fields about space and time, as stored, so that they can be written again unchanged.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// `pixdim`: the handedness of the qform, then the steps along the axes.
    pub pixdim: [f32; 8],
    /// `xyzt_units`: the unit of space in bits 0 to 2, of time in bits 3 to 5.
    pub units: u8,
    /// `qform_code`: above 0 where the quaternion holds.
    pub qform_code: i16,
    /// The last three parts of the unit quaternion (a, b, c, d).
    pub quaternion: [f32; 3],
    /// The place of the first voxel under the qform.
    pub qoffset: [f32; 3],
    /// `sform_code`: above 0 where the rows below hold.
    pub sform_code: i16,
    /// `srow_x`, `srow_y`, `srow_z`: the affine of the sform.
    pub srows: [[f32; 4]; 3],
}

impl Space {
    /// The sform if it has a code, else the qform if it has one, else the voxel sizes alone; in millimetres (where the
    /// unit is not given, it is taken to be that).
    pub fn affine(&self) -> Affine {
        let mut affine = if self.sform_code > 0 {
            self.sform_affine()
        } else if self.qform_code > 0 {
            self.qform_affine()
        } else {
            self.pixdim_affine()
        };
        affine[..3].iter_mut().flatten().for_each(|entry| *entry *= self.millimetres());
        affine
    }

    /// What the affine leads to: 0 nowhere in particular, 1 the scanner, 2 another image, 3 Talairach, 4 MNI 152, 5 another template.
    pub fn code(&self) -> i16 {
        if self.sform_code > 0 { self.sform_code } else { self.qform_code.max(0) }
    }

    /// The lengths of a voxel's edges in millimetres, from the affine.
    pub fn voxel_sizes(&self) -> [f64; 3] {
        column_lengths(&self.affine())
    }

    /// Seconds between volumes, where the header gives them (a unit left out is taken to be seconds).
    pub fn repetition_seconds(&self) -> Option<f64> {
        let seconds = f64::from(self.pixdim[4]) * self.seconds()?;
        (seconds > 0.0 && seconds.is_finite()).then_some(seconds)
    }

    /// One unit of space in millimetres.
    fn millimetres(&self) -> f64 {
        match self.units & 7 {
            1 => 1000.0,
            3 => 0.001,
            _ => 1.0,
        }
    }

    /// One unit of the fourth axis in seconds; `None` where that axis is a frequency.
    pub(crate) fn seconds(&self) -> Option<f64> {
        match self.units & 0o70 {
            0 | 8 => Some(1.0),
            16 => Some(1e-3),
            24 => Some(1e-6),
            _ => None,
        }
    }

    /// The step along an axis; steps that were left out count as 1.
    fn step(&self, axis: usize) -> f64 {
        let step = f64::from(self.pixdim[axis + 1]).abs();
        if step > 0.0 && step.is_finite() { step } else { 1.0 }
    }

    fn pixdim_affine(&self) -> Affine {
        let mut affine = identity();
        (0..3).for_each(|axis| affine[axis][axis] = self.step(axis));
        affine
    }

    fn sform_affine(&self) -> Affine {
        let mut affine = identity();
        (0..3).for_each(|line| affine[line] = self.srows[line].map(f64::from));
        affine
    }

    fn qform_affine(&self) -> Affine {
        let rotation = rotation(self.quaternion.map(f64::from));
        let handedness = if self.pixdim[0] < 0.0 { -1.0 } else { 1.0 };
        let steps = [self.step(0), self.step(1), self.step(2) * handedness];
        let mut affine = identity();
        for line in 0..3 {
            (0..3).for_each(|axis| affine[line][axis] = rotation[line][axis] * steps[axis]);
            affine[line][3] = f64::from(self.qoffset[line]);
        }
        affine
    }
}

/// The rotation of the unit quaternion (a, b, c, d) with a >= 0; rounding that makes (b, c, d) too long is taken out.
fn rotation([b, c, d]: [f64; 3]) -> [[f64; 3]; 3] {
    let squared = b * b + c * c + d * d;
    let (a, [b, c, d]) = if squared < 1.0 {
        ((1.0 - squared).sqrt(), [b, c, d])
    } else {
        (0.0, [b, c, d].map(|part| part / squared.sqrt()))
    };
    [
        [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
        [2.0 * (b * c + a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d - a * b)],
        [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a + d * d - b * b - c * c],
    ]
}

fn identity() -> Affine {
    let mut affine = [[0.0; 4]; 4];
    (0..4).for_each(|at| affine[at][at] = 1.0);
    affine
}

fn column_lengths(affine: &Affine) -> [f64; 3] {
    [0, 1, 2].map(|axis| affine[..3].iter().map(|line| line[axis] * line[axis]).sum::<f64>().sqrt())
}

/// Whether two affines lead to the same places, up to a thousandth of the first one's smallest voxel edge in every entry.
pub fn same_affine(one: &Affine, other: &Affine) -> bool {
    let allowed = TOLERANCE * column_lengths(one).into_iter().fold(f64::INFINITY, f64::min);
    one.iter().flatten().zip(other.iter().flatten()).all(|(one, other)| (one - other).abs() <= allowed)
}

/// Refuses an image whose affine is another than the first one's.
pub fn check_same_place(first: (&Path, &Header), image: (&Path, &Header)) -> Result<()> {
    let affines = [first.1, image.1].map(Header::affine);
    if same_affine(&affines[0], &affines[1]) {
        return Ok(());
    }
    let [expected, found] = affines.map(|affine| show_affine(&affine));
    Err(Error::AffinesDiffer { path: image.0.to_path_buf(), found, first: first.0.to_path_buf(), expected })
}

/// The upper three lines, a line each.
pub fn show_affine(affine: &Affine) -> String {
    let line = |line: &[f64; 4]| line.iter().map(|entry| format!("{entry:>12.4}")).collect::<String>();
    affine[..3].iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        Space {
            pixdim: [1.0, 2.0, 3.0, 4.0, 2.5, 0.0, 0.0, 0.0],
            units: 2 | 8,
            qform_code: 0,
            quaternion: [0.0; 3],
            qoffset: [10.0, 20.0, 30.0],
            sform_code: 0,
            srows: [[-2.0, 0.1, 0.0, 90.0], [0.0, 2.0, 0.2, -126.0], [0.3, 0.0, 2.0, -72.0]],
        }
    }

    fn close(found: &Affine, lines: [[f64; 4]; 3]) -> bool {
        let expected = lines.iter().flatten().chain(&[0.0, 0.0, 0.0, 1.0]);
        found.iter().flatten().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5)
    }

    #[test]
    fn sform_before_qform_before_voxel_sizes() {
        let mut space = space();
        assert!(close(&space.affine(), [[2.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0]]));
        assert_eq!(space.code(), 0);
        space.qform_code = 1;
        assert!(close(&space.affine(), [[2.0, 0.0, 0.0, 10.0], [0.0, 3.0, 0.0, 20.0], [0.0, 0.0, 4.0, 30.0]]));
        assert_eq!(space.code(), 1);
        space.sform_code = 4;
        assert!(close(&space.affine(), space.srows.map(|line| line.map(f64::from))));
        assert_eq!(space.code(), 4);
        (space.sform_code, space.qform_code) = (-1, -3);
        assert_eq!(space.code(), 0);
        assert_eq!(space.voxel_sizes(), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_quarter_turn_about_z_in_both_hands() {
        let half = 0.5f32.sqrt();
        let mut space = Space { qform_code: 2, quaternion: [0.0, 0.0, half], ..space() };
        assert!(close(&space.affine(), [[0.0, -3.0, 0.0, 10.0], [2.0, 0.0, 0.0, 20.0], [0.0, 0.0, 4.0, 30.0]]));
        space.pixdim[0] = -1.0;
        assert!(close(&space.affine(), [[0.0, -3.0, 0.0, 10.0], [2.0, 0.0, 0.0, 20.0], [0.0, 0.0, -4.0, 30.0]]));
        // No handedness counts as right.
        space.pixdim[0] = 0.0;
        assert!(close(&space.affine(), [[0.0, -3.0, 0.0, 10.0], [2.0, 0.0, 0.0, 20.0], [0.0, 0.0, 4.0, 30.0]]));
        // A half turn about x; and about y, longer than a unit quaternion can be.
        space.quaternion = [1.0, 0.0, 0.0];
        assert!(close(&space.affine(), [[2.0, 0.0, 0.0, 10.0], [0.0, -3.0, 0.0, 20.0], [0.0, 0.0, -4.0, 30.0]]));
        space.quaternion = [0.0, 1.5, 0.0];
        assert!(close(&space.affine(), [[-2.0, 0.0, 0.0, 10.0], [0.0, 3.0, 0.0, 20.0], [0.0, 0.0, -4.0, 30.0]]));
        // Quarter turns about x and y.
        space.quaternion = [half, 0.0, 0.0];
        assert!(close(&space.affine(), [[2.0, 0.0, 0.0, 10.0], [0.0, 0.0, -4.0, 20.0], [0.0, 3.0, 0.0, 30.0]]));
        space.quaternion = [0.0, half, 0.0];
        assert!(close(&space.affine(), [[0.0, 0.0, 4.0, 10.0], [0.0, 3.0, 0.0, 20.0], [-2.0, 0.0, 0.0, 30.0]]));
    }

    #[test]
    fn units_become_millimetres_and_seconds() {
        let with = |units: u8| Space { units, ..space() };
        assert_eq!(with(1).voxel_sizes(), [2000.0, 3000.0, 4000.0]);
        assert_eq!(with(0).voxel_sizes(), [2.0, 3.0, 4.0]);
        assert!((with(3).voxel_sizes()[2] - 0.004).abs() < 1e-12);
        for (units, seconds) in [(0, Some(2.5)), (8, Some(2.5)), (16, Some(0.0025)), (24, Some(0.0000025)), (32, None)]
        {
            let found: Option<f64> = with(2 | units).repetition_seconds();
            assert_eq!(
                found.map(|found| (found * 1e9).round()),
                seconds.map(|seconds: f64| (seconds * 1e9).round()),
                "{units}"
            );
        }
        let mut none = space();
        for step in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            none.pixdim = [step; 8];
            assert_eq!(none.repetition_seconds(), None);
            assert!(none.voxel_sizes() == [1.0; 3], "{step}");
        }
    }

    #[test]
    fn affines_are_compared_by_the_voxel() {
        let one = Space { sform_code: 1, ..space() }.affine();
        let mut other = one;
        other[1][3] += 0.0019;
        assert!(same_affine(&one, &other));
        other[1][3] += 0.0002;
        assert!(!same_affine(&one, &other));
        assert!(!same_affine(&one, &[[f64::NAN; 4]; 4]));
        assert_eq!(show_affine(&one).lines().count(), 3);
        assert!(show_affine(&one).lines().nth(1).unwrap().contains("-126.0000"));
    }
}
