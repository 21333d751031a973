//! Named arrays in one file (safetensors), written atomically and known by a checksum that the file holds itself:
//! checkpoints, draws and what `transform` needs.

use crate::error::{Error, Result};
use crate::numeric::files::PendingFile;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// The note that holds the checksum of everything else.
const CHECKSUM: &str = "checksum";

/// Arrays and text to be written together.
#[derive(Default)]
pub struct Bundle {
    arrays: Vec<Named>,
    notes: HashMap<String, String>,
}

/// Name, type, shape and little-endian bytes of an array.
type Named = (String, Dtype, Vec<usize>, Vec<u8>);

/// An element type that can be stored.
pub trait Element: Copy {
    /// The name in safetensors files.
    const DTYPE: Dtype;
    /// NumPy's name of the little-endian type.
    const NPY: &'static str;
    /// Adds little-endian bytes.
    fn append(values: &[Self], bytes: &mut Vec<u8>);
    /// Little-endian bytes.
    fn write(values: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of_val(values));
        Self::append(values, &mut bytes);
        bytes
    }
    /// What [`Element::write`] wrote.
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($type:ty, $dtype:ident, $npy:literal, $bytes:literal) => {
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            const NPY: &'static str = $npy;
            fn append(values: &[Self], bytes: &mut Vec<u8>) {
                bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
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
        self.put_parts(name, shape, [values]);
    }

    /// Adds an array whose values lie in several places, without laying them side by side first.
    pub fn put_parts<E: Element, P: AsRef<[E]>>(
        &mut self,
        name: &str,
        shape: &[usize],
        parts: impl IntoIterator<Item = P>,
    ) {
        let n_bytes = shape.iter().product::<usize>() * size_of::<E>();
        let mut bytes = Vec::with_capacity(n_bytes);
        parts.into_iter().for_each(|part| E::append(part.as_ref(), &mut bytes));
        assert_eq!(bytes.len(), n_bytes, "{name}: the values fill the shape");
        self.arrays.push((name.to_string(), E::DTYPE, shape.to_vec(), bytes));
    }

    /// Adds a text.
    pub fn note(&mut self, name: &str, text: impl Into<String>) {
        self.notes.insert(name.to_string(), text.into());
    }

    fn views(&self) -> impl ExactSizeIterator<Item = (&str, TensorView<'_>)> {
        self.arrays.iter().map(|array| (array.0.as_str(), view(array)))
    }

    fn header(&self) -> HashMap<String, String> {
        // One note only: a map of several would be written in an order that differs from run to run.
        let mut notes: std::collections::BTreeMap<_, _> = self.notes.iter().collect();
        let (name, checksum) = (CHECKSUM.to_string(), self.checksum());
        notes.insert(&name, &checksum);
        let notes = serde_json::to_string(&notes).expect("text can be written as JSON");
        HashMap::from([("notes".to_string(), notes)])
    }

    /// What everything in it is known by: 32 hexadecimal digits.
    pub fn checksum(&self) -> String {
        digest(self.views().collect(), &self.notes)
    }

    /// Everything as it would be in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        safetensors::serialize(self.views(), Some(self.header())).expect("named arrays can be written")
    }

    /// Everything as if it had been read back; `name` is for messages. No array is copied.
    pub fn into_stored(self, name: &str) -> Stored {
        let checksum = self.checksum();
        Stored { path: name.into(), content: Content::Arrays(self.arrays), notes: self.notes, checksum }
    }

    /// What a file begins with, and the arrays in the order in which they follow.
    fn head(&self) -> (Vec<u8>, Vec<&[u8]>) {
        let order = RefCell::new(Vec::new());
        let outlines = self.arrays.iter().map(|(name, dtype, shape, bytes)| {
            let outline = Outline { dtype: *dtype, shape, bytes, order: &order };
            (name.as_str(), outline)
        });
        let head = safetensors::serialize(outlines, Some(self.header())).expect("named arrays can be written");
        (head, order.into_inner())
    }

    /// Writes everything to a temporary file, flushes it to disk and renames it.
    pub fn save(&self, path: &Path) -> Result<()> {
        let (head, order) = self.head();
        let mut file = PendingFile::create(path)?;
        file.append(&head)?;
        order.into_iter().try_for_each(|bytes| file.append(bytes))?;
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

/// The xxh3-128 of names, types, shapes and values in the order of names, and of all notes but the checksum.
fn digest(mut arrays: Vec<(&str, TensorView)>, notes: &HashMap<String, String>) -> String {
    let mut hasher = Xxh3::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    arrays.sort_by_key(|(name, _)| *name);
    for (name, view) in &arrays {
        add(name.as_bytes());
        add(format!("{:?} {:?}", view.dtype(), view.shape()).as_bytes());
        add(view.data());
    }
    let mut texts: Vec<_> = notes.iter().filter(|(name, _)| *name != CHECKSUM).collect();
    texts.sort();
    texts.iter().for_each(|(name, text)| [name, text].iter().for_each(|part| add(part.as_bytes())));
    format!("{:032x}", hasher.digest128())
}

/// A bundle read back.
pub struct Stored {
    path: std::path::PathBuf,
    content: Content,
    notes: HashMap<String, String>,
    checksum: String,
}

/// Where its arrays are.
enum Content {
    /// Within the bytes of a file.
    File(Vec<u8>),
    /// As they were put into a bundle.
    Arrays(Vec<Named>),
}

impl Content {
    /// All arrays; those of a file were looked at when it was opened.
    fn views(&self) -> Vec<(String, TensorView<'_>)> {
        match self {
            Content::File(bytes) => SafeTensors::deserialize(bytes).expect("the header was read before").tensors(),
            Content::Arrays(arrays) => arrays.iter().map(|array| (array.0.clone(), view(array))).collect(),
        }
    }
}

/// An array of a bundle.
fn view((_, dtype, shape, bytes): &Named) -> TensorView<'_> {
    TensorView::new(*dtype, shape.clone(), bytes).expect("bytes fill the shape")
}

impl Stored {
    /// Reads a whole file and checks its header and its checksum.
    pub fn open(path: &Path) -> Result<Stored> {
        Stored::from_bytes(fs::read(path).map_err(Error::read(path))?, path)
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What everything in it is known by.
    pub fn checksum(&self) -> &str {
        &self.checksum
    }

    /// What [`Bundle::to_bytes`] made; `path` is for messages.
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Stored> {
        let stored = Stored::unchecked(bytes, path)?;
        match stored.notes.get(CHECKSUM) {
            Some(written) if *written == stored.checksum => Ok(stored),
            Some(written) => {
                let problem = format!("damaged: its checksum is {}, but {written} is written in it", stored.checksum);
                Err(Error::malformed(path, problem))
            }
            None => Err(Error::malformed(path, "damaged or not written by issfa (no checksum)")),
        }
    }

    /// The same whatever checksum is written in it.
    pub fn unchecked(bytes: Vec<u8>, path: &Path) -> Result<Stored> {
        let unreadable = |error| Error::malformed(path, format!("damaged or not written by issfa ({error:?})"));
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(unreadable)?;
        let text = metadata.metadata().as_ref().and_then(|map| map.get("notes").cloned()).unwrap_or_default();
        let notes: HashMap<String, String> = serde_json::from_str(&text)
            .map_err(|_| Error::malformed(path, "damaged or not written by issfa (no notes)"))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(unreadable)?;
        let list = tensors.tensors();
        let checksum = digest(list.iter().map(|(name, view)| (name.as_str(), view.clone())).collect(), &notes);
        Ok(Stored { path: path.to_path_buf(), content: Content::File(bytes), notes, checksum })
    }

    /// The same to be added to and written again.
    pub fn to_bundle(&self) -> Bundle {
        let one =
            |(name, view): (String, TensorView)| (name, view.dtype(), view.shape().to_vec(), view.data().to_vec());
        let mut notes = self.notes.clone();
        notes.remove(CHECKSUM);
        Bundle { arrays: self.content.views().into_iter().map(one).collect(), notes }
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<&str> {
        let missing = || Error::malformed(&self.path, format!("damaged: no note '{name}'"));
        self.notes.get(name).map(String::as_str).ok_or_else(missing)
    }

    /// Whether there is an array of this name.
    pub fn has(&self, name: &str) -> bool {
        self.content.views().iter().any(|(own, _)| own == name)
    }

    /// An array with its shape.
    pub fn take<E: Element>(&self, name: &str) -> Result<(Vec<usize>, Vec<E>)> {
        let damaged = |what: &str| Error::malformed(&self.path, format!("damaged: array '{name}' {what}"));
        let views = self.content.views();
        let (_, view) = views.iter().find(|(own, _)| own == name).ok_or_else(|| damaged("is missing"))?;
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

    /// An array of two axes.
    pub fn table<E: Element>(&self, name: &str) -> Result<([usize; 2], Vec<E>)> {
        let (shape, values) = self.take(name)?;
        match shape[..] {
            [n_rows, n_columns] => Ok(([n_rows, n_columns], values)),
            _ => Err(self.damaged(format!("array '{name}' has shape {shape:?}, not two axes"))),
        }
    }

    /// The error of a file whose contents cannot be.
    pub fn damaged(&self, problem: impl std::fmt::Display) -> Error {
        Error::malformed(&self.path, format!("damaged: {problem}"))
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
        (0..first.len()).for_each(|n| assert!(Stored::from_bytes(first[..n].to_vec(), &path).is_err(), "{n}"));
        let again = stored.to_bundle();
        assert_eq!((again.checksum().as_str(), again.to_bytes().len()), (stored.checksum(), first.len()));
        // What never was in a file is the same.
        let kept = bundle.into_stored("kept");
        assert_eq!((kept.checksum(), kept.text("other").unwrap()), (stored.checksum(), "two\nlines"));
        assert_eq!(kept.take::<f64>("x").unwrap(), stored.take::<f64>("x").unwrap());
        assert!(kept.take::<f32>("x").is_err() && kept.take::<f32>("y").is_err());
        assert_eq!(kept.to_bundle().to_bytes(), first);
    }

    #[test]
    fn every_flip_is_noticed_or_harmless() {
        let mut bundle = Bundle::default();
        bundle.put("x", &[3], &[1.0f64, 2.0, 3.0]);
        bundle.put("y", &[3], &[4.0f64, 5.0, 6.0]);
        bundle.note("format", "1");
        let (bytes, path) = (bundle.to_bytes(), Path::new("a.safetensors"));
        for at in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            if let Ok(stored) = Stored::from_bytes(flipped, path) {
                let values = [stored.values::<f64>("x", &[3]).unwrap(), stored.values("y", &[3]).unwrap()].concat();
                assert_eq!((values, stored.text("format").unwrap()), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "1"));
            }
        }
    }
}
