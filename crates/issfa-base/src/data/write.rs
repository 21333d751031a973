//! `.npy` arrays, written whole or not at all.

use crate::error::Result;
use crate::numeric::bytes::Element;
use crate::numeric::files::PendingFile;
use std::path::Path;

/// Values turned into bytes at once.
const PIECE: usize = 1 << 14;

/// NumPy begins the values at a multiple of this, for maps.
const ALIGNMENT: usize = 64;

/// Writes a C-order f32 array; `values` fill `shape` exactly. Infinity is refused: no result is infinite, but it may be too
/// large for single precision.
pub fn write_npy_f32(path: &Path, shape: &[usize], values: &[f32]) -> Result<()> {
    let mut writer = NpyWriter::create(path, shape)?;
    writer.write_values(values)?;
    writer.finish()
}

/// Writes a C-order f64 array; `values` fill `shape` exactly.
pub fn write_npy_f64(path: &Path, shape: &[usize], values: &[f64]) -> Result<()> {
    write_npy(path, shape, values)
}

fn write_npy<T: Element>(path: &Path, shape: &[usize], values: &[T]) -> Result<()> {
    let mut writer = NpyWriter::start::<T>(path, shape)?;
    writer.append(values)?;
    writer.finish()
}

/// A C-order f32 array written piece by piece. Dropped before [`NpyWriter::finish`], it leaves nothing behind.
pub struct NpyWriter {
    file: PendingFile,
    shape: Vec<usize>,
    n_expected: usize,
    n_written: usize,
    scratch: Vec<u8>,
}

impl NpyWriter {
    /// Begins an array of this shape beside `path`.
    pub fn create(path: &Path, shape: &[usize]) -> Result<NpyWriter> {
        NpyWriter::start::<f32>(path, shape)
    }

    /// Appends values in C order.
    pub fn write_values(&mut self, values: &[f32]) -> Result<()> {
        if values.iter().any(|x| x.is_infinite()) {
            return Err(self
                .file
                .refused(format!("a value is beyond {:e}; bring the data to another scale", f32::MAX)));
        }
        self.append(values)
    }

    /// Puts the array in its place; refused when the values do not fill the shape.
    pub fn finish(self) -> Result<()> {
        if self.n_written != self.n_expected {
            let (shape, expected, written) = (&self.shape, self.n_expected, self.n_written);
            return Err(self
                .file
                .refused(format!("shape {shape:?} takes {expected} values, but {written} were given")));
        }
        self.file.finish()
    }

    fn start<T: Element>(path: &Path, shape: &[usize]) -> Result<NpyWriter> {
        let mut file = PendingFile::create(path)?;
        let n_expected = shape.iter().try_fold(1_usize, |n, &length| n.checked_mul(length));
        let (Some(n_expected), Some(header)) = (n_expected, header(T::NPY, shape)) else {
            return Err(file.refused(format!("an array of shape {shape:?} is too large")));
        };
        file.append(&header)?;
        Ok(NpyWriter { file, shape: shape.to_vec(), n_expected, n_written: 0, scratch: Vec::new() })
    }

    fn append<T: Element>(&mut self, values: &[T]) -> Result<()> {
        for piece in values.chunks(PIECE) {
            self.scratch.clear();
            self.scratch.extend(T::write(piece));
            self.file.append(&self.scratch)?;
            self.n_written += piece.len();
        }
        Ok(())
    }
}

/// The header of version 1.0 up to the first value; `None` when its length does not fit into the 16 bits for it.
fn header(descr: &str, shape: &[usize]) -> Option<Vec<u8>> {
    let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
    // Python reads (3) as a number, so a single axis keeps its comma.
    let lengths = if shape.len() == 1 { lengths.trim_end() } else { lengths.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}");
    let begin = b"\x93NUMPY\x01\x00";
    let unpadded = begin.len() + 2 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    text.push('\n');
    let length = u16::try_from(text.len()).ok()?;
    Some([begin, &length.to_le_bytes()[..], text.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::read::npy::{read_npy_f32, read_npy_f64};
    use crate::error::Error;
    use crate::numeric::files::full_disk::fill_disk;
    use crate::numeric::files::write_atomically;
    use std::fs;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_header_is_what_numpy_writes() {
        let text = |shape: &[usize]| {
            let header = header("<f4", shape).unwrap();
            assert_eq!(header.len() % ALIGNMENT, 0, "{shape:?}");
            assert_eq!(usize::from(header[8]) + 256 * usize::from(header[9]), header.len() - 10);
            assert_eq!((&header[..8], header.last()), (&b"\x93NUMPY\x01\x00"[..], Some(&b'\n')));
            String::from_utf8(header[10..].to_vec()).unwrap().trim_end().to_string()
        };
        assert_eq!(text(&[]), "{'descr': '<f4', 'fortran_order': False, 'shape': (), }");
        assert_eq!(text(&[5]), "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }");
        assert_eq!(text(&[3, 4]), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
        (0..40).for_each(|n_axes| drop(text(&vec![11; n_axes])));
        assert!(header("<f4", &vec![1; 40_000]).is_none());
    }

    #[test]
    fn pieces_make_the_same_file_as_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let [whole, pieces] = ["whole.npy", "pieces.npy"].map(|name| folder.path().join(name));
        let values: Vec<f32> = (0..3 * 20_000).map(|value| (value as f32).sin()).collect();
        write_npy_f32(&whole, &[3, 20_000], &values).unwrap();
        let mut writer = NpyWriter::create(&pieces, &[3, 20_000]).unwrap();
        for piece in values.chunks(777) {
            writer.write_values(piece).unwrap();
        }
        assert!(!pieces.exists());
        writer.finish().unwrap();
        assert_eq!(fs::read(&whole).unwrap(), fs::read(&pieces).unwrap());
        assert_eq!(read_npy_f32(&pieces).unwrap(), (vec![3, 20_000], values));
        assert_eq!(names(folder.path()), ["pieces.npy", "whole.npy"]);
    }

    #[test]
    fn doubles_keep_every_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let values = [0.1, f64::MIN_POSITIVE, -f64::MAX, f64::INFINITY, 1.0 / 3.0, -0.0];
        write_npy_f64(&path, &[2, 1, 3], &values).unwrap();
        let (shape, found) = read_npy_f64(&path).unwrap();
        assert_eq!(shape, [2, 1, 3]);
        assert!(found.iter().map(|value| value.to_bits()).eq(values.map(f64::to_bits)));
    }

    #[test]
    fn a_wrong_count_leaves_the_earlier_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_npy_f32(&path, &[2], &[1.0, 2.0]).unwrap();
        for n_values in [0, 3, 5] {
            let error = write_npy_f32(&path, &[2, 2], &vec![0.0; n_values]).unwrap_err().to_string();
            assert!(error.contains("a.npy") && error.contains("takes 4 values"), "{error}");
        }
        assert!(write_npy_f32(&path, &[usize::MAX, 2], &[]).unwrap_err().to_string().contains("too large"));
        drop(NpyWriter::create(&path, &[9]).unwrap());
        assert_eq!(read_npy_f32(&path).unwrap().1, [1.0, 2.0]);
        assert_eq!(names(folder.path()), ["a.npy"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_the_earlier_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_npy_f32(&path, &[2], &[1.0, 2.0]).unwrap();
        fill_disk(true);
        for n_values in [1, 100_000] {
            let error = write_npy_f64(&path, &[n_values], &vec![0.5; n_values]).unwrap_err();
            assert!(matches!(&error, Error::Write { path: named, .. } if *named == path), "{error}");
        }
        assert!(write_atomically(&path, b"text").is_err());
        fill_disk(false);
        assert_eq!(read_npy_f32(&path).unwrap().1, [1.0, 2.0]);
        assert_eq!(names(folder.path()), ["a.npy"]);
    }

    #[test]
    fn whole_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        write_atomically(&path, b"first, and longer").unwrap();
        write_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["run.toml"]);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing").join("a.npy");
        assert!(write_npy_f32(&missing, &[1], &[0.0]).unwrap_err().to_string().contains("missing"));
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(write_atomically(&taken, b"x").is_err());
        assert!(write_atomically(Path::new("/"), b"x").unwrap_err().to_string().contains("names no file"));
        assert_eq!(names(folder.path()), ["taken"]);
    }
}
