//! NIfTI-1 files of float32 volumes that lie where another image lies.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::header::Header;
use super::{EARLIEST_VALUES, HEADER_BYTES, place};
use crate::data::grid::show_grid;
use crate::error::{Error, Result};
use crate::numeric::files::PendingFile;

/// NIfTI's code and bits for float32.
const FLOAT32: (i16, i16) = (16, 32);

/// Slices turned round at once: as many float32 as a cache line holds.
const SLICES: usize = 16;

/// Writes `n_volumes` volumes, each in C order of `grid` (z fastest), to a `.nii` or, by its name, `.nii.gz` file with
/// the place, orientation and units of `like`. `repetition_seconds` is the time between volumes, 0 where there is none.
pub fn write_nifti(
    path: &Path,
    grid: [usize; 3],
    n_volumes: usize,
    like: &Header,
    repetition_seconds: f64,
    volumes: impl IntoIterator<Item = Vec<f32>>,
) -> Result<()> {
    let mut writer = NiftiWriter::create(path, grid, n_volumes, like, repetition_seconds)?;
    volumes.into_iter().try_for_each(|volume| writer.write_volume(&volume))?;
    writer.finish()
}

/// Writes a single volume as a 3-D image, which keeps the time between volumes in its header; see [`write_nifti`].
pub fn write_volume(path: &Path, like: &Header, volume: &[f32]) -> Result<()> {
    let seconds = like.space.repetition_seconds().unwrap_or(0.0);
    let mut writer = NiftiWriter::begin(path, like.grid, 1, like, seconds, 3)?;
    writer.write_volume(volume)?;
    writer.finish()
}

/// A file written volume by volume. Dropped before [`NiftiWriter::finish`], it leaves nothing behind.
pub struct NiftiWriter {
    file: Compressor,
    grid: [usize; 3],
    n_expected: usize,
    n_written: usize,
    /// Some slices in the file's order.
    slab: Vec<f32>,
    bytes: Vec<u8>,
}

impl NiftiWriter {
    /// Begins a file beside `path`; see [`write_nifti`].
    pub fn create(
        path: &Path,
        grid: [usize; 3],
        n_volumes: usize,
        like: &Header,
        repetition_seconds: f64,
    ) -> Result<NiftiWriter> {
        NiftiWriter::begin(path, grid, n_volumes, like, repetition_seconds, 4)
    }

    fn begin(
        path: &Path,
        grid: [usize; 3],
        n_volumes: usize,
        like: &Header,
        repetition_seconds: f64,
        n_axes: i16,
    ) -> Result<NiftiWriter> {
        let file = PendingFile::create(path)?;
        let lengths = [grid[0], grid[1], grid[2], n_volumes].map(|length| i16::try_from(length).unwrap_or(0));
        if lengths.iter().any(|&length| length < 1) {
            let problem = format!(
                "{n_volumes} volumes of {} are not possible in NIfTI-1, whose axes have 1 to {} sites",
                show_grid(&grid),
                i16::MAX
            );
            return Err(file.refused(problem));
        }
        let mut file = if is_compressed(path) {
            Compressor::Gzip(Box::new(GzEncoder::new(file, Compression::new(4))))
        } else {
            Compressor::Plain(file)
        };
        file.write(&header(n_axes, lengths, like, repetition_seconds))?;
        Ok(NiftiWriter { file, grid, n_expected: n_volumes, n_written: 0, slab: Vec::new(), bytes: Vec::new() })
    }

    /// Appends a volume in C order.
    pub fn write_volume(&mut self, volume: &[f32]) -> Result<()> {
        let [nx, ny, nz] = self.grid;
        assert_eq!(volume.len(), nx * ny * nz, "a volume fills the grid");
        for first_z in (0..nz).step_by(SLICES) {
            let n_slices = SLICES.min(nz - first_z);
            self.slab.resize(n_slices * nx * ny, 0.0);
            turn_round(volume, self.grid, first_z, &mut self.slab);
            self.bytes.clear();
            self.bytes.extend(self.slab.iter().flat_map(|value| value.to_le_bytes()));
            self.file.write(&self.bytes)?;
        }
        self.n_written += 1;
        Ok(())
    }

    /// Puts the file in its place; refused when there were more or fewer volumes than announced.
    pub fn finish(self) -> Result<()> {
        if self.n_written != self.n_expected {
            let (expected, written) = (self.n_expected, self.n_written);
            return Err(self.file.pending().refused(format!("{expected} volumes were announced, but {written} given")));
        }
        self.file.finish()
    }
}

/// Whether the name asks for gzip.
fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"))
}

/// Copies the slices from `first_z` on, z fastest, to a slab with x fastest.
fn turn_round(volume: &[f32], [nx, ny, nz]: [usize; 3], first_z: usize, slab: &mut [f32]) {
    for y in 0..ny {
        for x in 0..nx {
            let from = &volume[(x * ny + y) * nz + first_z..];
            let places = slab[y * nx + x..].iter_mut().step_by(nx * ny);
            places.zip(from).for_each(|(place, value)| *place = *value);
        }
    }
}

/// The header and the four bytes after it, which say that no extensions follow.
fn header(n_axes: i16, lengths: [i16; 4], like: &Header, repetition_seconds: f64) -> Vec<u8> {
    let space = &like.space;
    let mut bytes = vec![0; EARLIEST_VALUES as usize];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let mut pixdim = space.pixdim;
    let step = repetition_seconds / space.seconds().unwrap_or(1.0);
    pixdim[4] = if step.is_finite() { step as f32 } else { 0.0 };
    pixdim[5..].fill(0.0);
    let dim = [n_axes, lengths[0], lengths[1], lengths[2], lengths[3], 1, 1, 1];
    put(place::SIZE, &(HEADER_BYTES as i32).to_le_bytes());
    put(place::DIM, &dim.map(i16::to_le_bytes).concat());
    put(place::DATATYPE, &FLOAT32.0.to_le_bytes());
    put(place::BITPIX, &FLOAT32.1.to_le_bytes());
    put(place::PIXDIM, &floats(&pixdim));
    put(place::VOX_OFFSET, &floats(&[EARLIEST_VALUES as f32]));
    put(place::SCL_SLOPE, &floats(&[1.0]));
    put(place::UNITS, &[space.units]);
    put(place::DESCRIP, b"issfa");
    put(place::QFORM_CODE, &space.qform_code.to_le_bytes());
    put(place::SFORM_CODE, &space.sform_code.to_le_bytes());
    put(place::QUATERNION, &floats(&space.quaternion));
    put(place::QOFFSET, &floats(&space.qoffset));
    put(place::SROWS, &floats(space.srows.as_flattened()));
    put(place::MAGIC, b"n+1\0");
    bytes
}

/// A file to be, with or without gzip on the way.
enum Compressor {
    Plain(PendingFile),
    Gzip(Box<GzEncoder<PendingFile>>),
}

impl Compressor {
    fn pending(&self) -> &PendingFile {
        match self {
            Compressor::Plain(file) => file,
            Compressor::Gzip(encoder) => encoder.get_ref(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match self {
            Compressor::Plain(file) => file.write_all(bytes),
            Compressor::Gzip(encoder) => encoder.write_all(bytes),
        };
        written.map_err(|error| self.failed(error))
    }

    fn finish(mut self) -> Result<()> {
        if let Compressor::Gzip(encoder) = &mut self {
            let ended = encoder.try_finish();
            ended.map_err(|error| self.failed(error))?;
        }
        match self {
            Compressor::Plain(file) => file.finish(),
            Compressor::Gzip(encoder) => {
                let path = encoder.get_ref().path().to_path_buf();
                encoder.finish().map_err(Error::write(&path))?.finish()
            }
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::write(self.pending().path())(error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::Image;
    use super::*;
    use crate::data::read::RowSource;
    use crate::data::read::nifti::NiftiRows;
    use std::fs;

    fn like(image: &Image) -> Header {
        Header::parse(Path::new("like.nii"), &image.header()).unwrap()
    }

    fn oblique() -> Image {
        Image {
            units: 2 | 16,
            qform_code: 1,
            quaternion: [0.1, -0.2, 0.3],
            qoffset: [5.0, 6.0, 7.0],
            sform_code: 4,
            pixdim: [-1.0, 2.0, 3.0, 4.0, 9.0, 8.0, 7.0, 6.0],
            big_endian: true,
            scaling: [3.0, 4.0],
            ..Image::default()
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let like = like(&oblique());
        for (name, grid) in [
            ("a.nii", [3, 4, 5]),
            ("a.nii.gz", [3, 4, 5]),
            ("b.NII.GZ", [1, 7, 40]),
            ("c.nii", [9, 1, 1]),
            ("d.nii", [5, 3, 16]),
        ] {
            let path = folder.path().join(name);
            let n_sites: usize = grid.iter().product();
            let values: Vec<f32> = (0..3 * n_sites).map(|at| (at as f32).sin()).collect();
            write_nifti(&path, grid, 3, &like, 1.5, values.chunks(n_sites).map(<[f32]>::to_vec)).unwrap();
            let rows = NiftiRows::open(&path).unwrap();
            assert_eq!((rows.n_rows(), rows.grid(), rows.header().n_axes), (3, Some(&grid[..]), 4));
            let mut found = vec![0.0; values.len()];
            rows.read_rows(0, &mut found).unwrap();
            assert!(found.iter().zip(&values).all(|(found, value)| *found == f64::from(*value)), "{name}");
            let (found, expected) = (&rows.header().space, &like.space);
            assert!((found.repetition_seconds().unwrap() - 1.5).abs() < 1e-6 && found.pixdim[4] == 1500.0);
            assert_eq!(found.pixdim[..4], expected.pixdim[..4]);
            assert_eq!((found.affine(), found.code(), found.units), (expected.affine(), 4, expected.units));
            assert_eq!((found.quaternion, found.qoffset), (expected.quaternion, expected.qoffset));
            assert_eq!((found.qform_code, rows.header().scaling), (1, None));
        }
    }

    #[test]
    fn the_header_states_what_readers_expect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.nii");
        write_nifti(&path, [1, 1, 2], 1, &like(&Image::default()), 0.0, [vec![1.0, 2.0]]).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 352 + 8);
        assert_eq!(bytes[..4], [92, 1, 0, 0]);
        assert_eq!(bytes[40..56], [4, 0, 1, 0, 1, 0, 2, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(bytes[70..74], [16, 0, 32, 0]);
        assert_eq!(bytes[92..96], [0; 4], "no repetition time");
        assert_eq!(bytes[108..120], [352.0f32, 1.0, 0.0].map(f32::to_le_bytes).concat());
        assert_eq!(bytes[124..132], [0; 8], "no display range");
        assert_eq!(&bytes[148..154], b"issfa\0");
        assert_eq!(&bytes[344..352], b"n+1\0\0\0\0\0");
        assert_eq!(bytes[352..], [1.0f32, 2.0].map(f32::to_le_bytes).concat());
    }

    #[test]
    fn what_cannot_be_written_leaves_the_earlier_file() {
        let folder = tempfile::tempdir().unwrap();
        let like = like(&Image::default());
        for name in ["a.nii", "a.nii.gz"] {
            let path = folder.path().join(name);
            let write = |grid, n_volumes, given| {
                write_nifti(&path, grid, n_volumes, &like, 0.0, vec![vec![1.0; 2]; given]).err().map(|e| e.to_string())
            };
            assert_eq!(write([1, 2, 1], 1, 1), None);
            let before = fs::read(&path).unwrap();
            assert!(write([1, 2, 1], 3, 2).unwrap().contains("3 volumes were announced, but 2 given"));
            assert!(write([1, 2, 1], 0, 0).unwrap().contains("0 volumes of 1x2x1 are not possible"));
            assert!(write([1, 2, 1], 40_000, 0).unwrap().contains("40000 volumes"));
            assert!(write([1, 2, 70_000], 1, 0).unwrap().contains("1x2x70000"));
            drop(NiftiWriter::create(&path, [1, 2, 1], 5, &like, 0.0).unwrap());
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        crate::numeric::files::full_disk::fill_disk(true);
        for (name, n_values) in [("a.nii", 2), ("a.nii.gz", 2), ("b.nii", 30_000), ("b.nii.gz", 30_000)] {
            let path = folder.path().join(name);
            let volume: Vec<f32> = (0..n_values).map(|at| (at as f32).sqrt().sin()).collect();
            let written = write_nifti(&path, [1, n_values, 1], 1, &like(&Image::default()), 0.0, [volume]);
            assert!(matches!(&written, Err(Error::Write { path: named, .. }) if *named == path), "{written:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
