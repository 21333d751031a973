//! Named arrays in one file (safetensors), written atomically: checkpoints, draws and what `transform` needs.

use crate::error::{Error, Result};
use crate::numeric::files::PendingFile;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Arrays and text to be written together.
#[derive(Default)]
pub struct Bundle {
    arrays: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
    notes: HashMap<String, String>,
}

/// An element type that can be stored.
pub trait Element: Copy {
    /// The name in safetensors files.
    const DTYPE: Dtype;
    /// NumPy's name of the little-endian type.
    const NPY: &'static str;
    /// Little-endian bytes.
    fn write(values: &[Self]) -> Vec<u8>;
    /// What [`Element::write`] wrote.
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($type:ty, $dtype:ident, $npy:literal, $bytes:literal) => {
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            const NPY: &'static str = $npy;
            fn write(values: &[Self]) -> Vec<u8> {
                values.iter().flat_map(|v| v.to_le_bytes()).collect()
            }
            fn read(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks::<$bytes>().0.iter().map(|b| <$type>::from_le_bytes(*b)).collect()
            }
        }
    };
}
element!(f32, F32, "<f4", 4);
element!(f64, F64, "<f8", 8);
element!(u32, U32, "<u4", 4);
element!(u64, U64, "<u8", 8);

impl Bundle {
    /// Adds an array.
    pub fn put<E: Element>(&mut self, name: &str, shape: &[usize], values: &[E]) {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}: the values fill the shape");
        self.arrays.push((name.to_string(), E::DTYPE, shape.to_vec(), E::write(values)));
    }

    /// Adds a text.
    pub fn note(&mut self, name: &str, text: impl Into<String>) {
        self.notes.insert(name.to_string(), text.into());
    }

    fn views(&self) -> impl ExactSizeIterator<Item = (&str, TensorView<'_>)> {
        self.arrays.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).expect("bytes fill the shape");
            (name.as_str(), view)
        })
    }

    fn header(&self) -> HashMap<String, String> {
        // One note only: a map of several would be written in an order that differs from run to run.
        let notes = serde_json::to_string(&self.notes.iter().collect::<std::collections::BTreeMap<_, _>>())
            .expect("text can be written as JSON");
        HashMap::from([("notes".to_string(), notes)])
    }

    /// Everything as it would be in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        safetensors::serialize(self.views(), Some(self.header())).expect("named arrays can be written")
    }

    /// Everything as if it had been read back; `name` is for messages.
    pub fn into_stored(self, name: &str) -> Stored {
        let notes = self.notes.clone();
        Stored { path: name.into(), bytes: self.to_bytes(), notes }
    }

    /// Writes everything to a temporary file, flushes it to disk and renames it.
    pub fn save(&self, path: &Path) -> Result<()> {
        let order = RefCell::new(Vec::new());
        let outlines = self.arrays.iter().map(|(name, dtype, shape, bytes)| {
            let outline = Outline { dtype: *dtype, shape, bytes, order: &order };
            (name.as_str(), outline)
        });
        let head = safetensors::serialize(outlines, Some(self.header())).expect("named arrays can be written");
        let mut file = PendingFile::create(path)?;
        file.append(&head)?;
        order.into_inner().into_iter().try_for_each(|bytes| file.append(bytes))?;
        file.finish()
    }
}

/// An array that keeps its values to itself and notes when it is their turn: what is written of several are the header and
/// the order, and no second copy of the values is made.
struct Outline<'a, 'b> {
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
    order: &'b RefCell<Vec<&'a [u8]>>,
}

impl View for Outline<'_, '_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.order.borrow_mut().push(self.bytes);
        Cow::Borrowed(&[])
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// A bundle read back.
pub struct Stored {
    path: std::path::PathBuf,
    bytes: Vec<u8>,
    notes: HashMap<String, String>,
}

impl Stored {
    /// Reads a whole file and checks its header.
    pub fn open(path: &Path) -> Result<Stored> {
        Stored::from_bytes(fs::read(path).map_err(Error::read(path))?, path)
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole as it would be in a file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What [`Bundle::to_bytes`] made; `path` is for messages.
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Stored> {
        let (_, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|error| Error::malformed(path, format!("damaged or not written by issfa ({error:?})")))?;
        let text = metadata.metadata().as_ref().and_then(|map| map.get("notes").cloned()).unwrap_or_default();
        let notes = serde_json::from_str(&text)
            .map_err(|_| Error::malformed(path, "damaged or not written by issfa (no notes)"))?;
        Ok(Stored { path: path.to_path_buf(), bytes, notes })
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<&str> {
        let missing = || Error::malformed(&self.path, format!("damaged: no note '{name}'"));
        self.notes.get(name).map(String::as_str).ok_or_else(missing)
    }

    /// An array with its shape.
    pub fn take<E: Element>(&self, name: &str) -> Result<(Vec<usize>, Vec<E>)> {
        let damaged = |what: &str| Error::malformed(&self.path, format!("damaged: array '{name}' {what}"));
        let tensors = SafeTensors::deserialize(&self.bytes).map_err(|_| damaged("cannot be read"))?;
        let view = tensors.tensor(name).map_err(|_| damaged("is missing"))?;
        if view.dtype() != E::DTYPE {
            return Err(damaged("has another type"));
        }
        Ok((view.shape().to_vec(), E::read(view.data())))
    }

    /// The values of an array whose shape is known.
    pub fn values<E: Element>(&self, name: &str, shape: &[usize]) -> Result<Vec<E>> {
        let (found, values) = self.take(name)?;
        if found != shape {
            return Err(Error::malformed(
                &self.path,
                format!("damaged: array '{name}' has shape {found:?}, not {shape:?}"),
            ));
        }
        Ok(values)
    }

    /// A single number.
    pub fn number<E: Element>(&self, name: &str) -> Result<E> {
        Ok(self.values(name, &[1])?[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_come_back_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let mut bundle = Bundle::default();
        bundle.put("x", &[2, 2], &[1.0f64, 2.0, 3.0, 4.0]);
        bundle.put::<f32>("empty", &[0, 5], &[]);
        bundle.put("n", &[1], &[7u64]);
        bundle.note("format", "1");
        bundle.note("other", "two\nlines");
        bundle.save(&path).unwrap();
        let first = fs::read(&path).unwrap();
        bundle.save(&path).unwrap();
        assert_eq!(first, fs::read(&path).unwrap(), "the same bundle gives the same bytes");
        let stored = Stored::open(&path).unwrap();
        assert_eq!(stored.take::<f64>("x").unwrap(), (vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(stored.values::<f32>("empty", &[0, 5]).unwrap(), Vec::<f32>::new());
        assert_eq!(stored.number::<u64>("n").unwrap(), 7);
        assert_eq!(stored.text("other").unwrap(), "two\nlines");
        assert!(stored.values::<f64>("x", &[4]).is_err() && stored.take::<f32>("x").is_err());
        assert!(stored.take::<f32>("y").is_err() && stored.text("y").is_err());
        for n in 0..first.len() {
            fs::write(&path, &first[..n]).unwrap();
            if let Ok(stored) = Stored::open(&path) {
                assert!(stored.take::<f64>("x").is_err() || stored.number::<u64>("n").is_err());
            }
        }
    }
}
