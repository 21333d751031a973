//! NumPy's .npy arrays, versions 1.0 to 3.0.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::element::{ByteOrder, Encoding, Kind};
use super::places::PlacedFile;
use super::{RowSource, rows_asked_for};
use crate::data::memory;
use crate::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Sites of a column-major array that are read before their values are laid out, and rows laid out at once: 8 kB of
/// output, which stays in the cache.
const TILE_SITES: usize = 16;
const TILE_ROWS: usize = 64;

/// No header of a real file is longer.
const LONGEST_HEADER: usize = 1 << 24;

/// Values converted at once by [`read_npy_f32`].
const PIECE: usize = 1 << 16;

/// A .npy array as rows: the first axis counts the rows, all others are the grid. One axis is a single column.
pub struct NpyRows {
    path: PathBuf,
    header: Header,
    /// Where the values begin in the file.
    data_start: usize,
    n_sites: usize,
    /// The whole file, where it was unpacked into memory.
    unpacked: Option<Arc<Vec<u8>>>,
    /// Whether the axis of the rows, first in `shape`, is the last one in the file.
    rows_are_last: bool,
}

impl NpyRows {
    /// Opens a file that has at least one row and one site.
    pub fn open(path: &Path) -> Result<NpyRows> {
        NpyRows::open_any(path)?.with_values()
    }

    /// A file that was unpacked; `path` is what messages call it.
    pub fn of_unpacked(path: &Path, bytes: Vec<u8>) -> Result<NpyRows> {
        NpyRows::from_file(path, Some(Arc::new(bytes)))?.with_values()
    }

    /// The same array, whose last axis counts the rows.
    pub fn with_last_axis_first(mut self) -> NpyRows {
        let n_values = self.n_values();
        self.header.shape.rotate_right(1);
        self.rows_are_last = self.header.shape.len() > 1;
        self.n_sites = n_values / self.n_rows();
        self
    }

    fn with_values(self) -> Result<NpyRows> {
        if self.n_values() == 0 {
            let shape = tuple(&self.header.shape);
            return Err(Error::malformed(&self.path, format!("the array is empty: its shape is {shape}")));
        }
        Ok(self)
    }

    /// Opens a file that may have no rows or no sites, as our own results do when there are no features.
    fn open_any(path: &Path) -> Result<NpyRows> {
        NpyRows::from_file(path, None)
    }

    fn from_file(path: &Path, unpacked: Option<Arc<Vec<u8>>>) -> Result<NpyRows> {
        let file = placed(path, &unpacked)?;
        let start = file.start(LONGEST_HEADER.min(header_bytes(&file.start(12)?)))?;
        let (header, data_start) = read_header(&start).map_err(|problem| Error::malformed(path, problem))?;
        let n_left = usize::try_from(file.n_bytes()).unwrap_or(usize::MAX) - data_start;
        let n_sites = header.check(n_left).map_err(|problem| Error::malformed(path, problem))?;
        Ok(NpyRows { path: path.to_path_buf(), header, data_start, n_sites, unpacked, rows_are_last: false })
    }

    /// Known not to overflow, and the file to be long enough for it.
    fn n_values(&self) -> usize {
        self.n_rows() * self.n_sites
    }

    /// Where a value lies in the file, after `skipped` others.
    fn place(&self, skipped: usize) -> u64 {
        (self.data_start + skipped * self.header.element.kind.size()) as u64
    }

    fn read_row_major(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        let (element, size) = (self.header.element, self.header.element.kind.size());
        let (file, mut places) = (placed(&self.path, &self.unpacked)?, out.iter_mut());
        let (first, n_bytes) = (self.place(first_row * self.n_sites), places.len() * size);
        file.for_each_piece(first, n_bytes, size, &mut |piece| {
            element.decode(piece, places.by_ref().take(piece.len() / size));
        })
    }

    fn read_column_major(&self, first_row: usize, n_rows: usize, out: &mut [f64]) -> Result<()> {
        let (element, size) = (self.header.element, self.header.element.kind.size());
        let file = placed(&self.path, &self.unpacked)?;
        let mut columns = vec![0; TILE_SITES * n_rows * size];
        for first_site in (0..self.n_sites).step_by(TILE_SITES) {
            let sites = first_site..(first_site + TILE_SITES).min(self.n_sites);
            for (site, column) in sites.clone().zip(columns.chunks_exact_mut((n_rows * size).max(1))) {
                file.read(self.place(self.site_in_file(site) * self.n_rows() + first_row), column)?;
            }
            for row in (0..n_rows).step_by(TILE_ROWS) {
                let rows = row..(row + TILE_ROWS).min(n_rows);
                for (site, column) in sites.clone().zip(columns.chunks_exact((n_rows * size).max(1))) {
                    let places = out[row * self.n_sites + site..].iter_mut().step_by(self.n_sites);
                    element.decode(&column[rows.start * size..rows.end * size], places);
                }
            }
        }
        Ok(())
    }

    /// Rows that follow each other, with the sites of each in column-major order.
    fn read_turned_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        self.read_row_major(first_row, out)?;
        let places: Vec<usize> = (0..self.n_sites).map(|site| self.site_in_file(site)).collect();
        for row in out.chunks_exact_mut(self.n_sites) {
            let in_file = row.to_vec();
            row.iter_mut().zip(&places).for_each(|(value, &place)| *value = in_file[place]);
        }
        Ok(())
    }

    /// The number of a site in the file, from its row-major number: column-major, unless the rows are the last axis of a
    /// row-major file.
    fn site_in_file(&self, site: usize) -> usize {
        if self.rows_are_last && self.header.layout == Layout::RowMajor {
            return site;
        }
        let (mut rest, mut in_file) = (site, 0);
        for &length in self.header.shape[1..].iter().rev() {
            in_file = in_file * length + rest % length;
            rest /= length;
        }
        in_file
    }
}

impl RowSource for NpyRows {
    fn path(&self) -> &Path {
        &self.path
    }

    fn n_rows(&self) -> usize {
        self.header.shape[0]
    }

    fn n_sites(&self) -> usize {
        self.n_sites
    }

    fn grid(&self) -> Option<&[usize]> {
        (self.header.shape.len() >= 3).then(|| &self.header.shape[1..])
    }

    fn is_single(&self) -> bool {
        self.header.element.kind.is_single()
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        let n_rows = rows_asked_for(self, first_row, out.len());
        match (self.header.layout, self.rows_are_last) {
            (Layout::RowMajor, false) => self.read_row_major(first_row, out),
            (Layout::ColumnMajor, true) => self.read_turned_rows(first_row, out),
            (Layout::ColumnMajor, false) | (Layout::RowMajor, true) => self.read_column_major(first_row, n_rows, out),
        }
    }
}

fn placed(path: &Path, unpacked: &Option<Arc<Vec<u8>>>) -> Result<PlacedFile> {
    match unpacked {
        Some(bytes) => Ok(PlacedFile::unpacked(path, bytes.clone())),
        None => PlacedFile::open(path),
    }
}

/// A whole array of any supported dtype as f64, in C order, with its shape. Empty arrays are allowed.
pub fn read_npy_f64(path: &Path) -> Result<(Vec<usize>, Vec<f64>)> {
    let array = NpyRows::open_any(path)?;
    let mut values = memory::zeros(&path.display().to_string(), array.n_values())?;
    if !values.is_empty() {
        array.read_rows(0, &mut values)?;
    }
    Ok((array.header.shape, values))
}

/// A whole array of any supported dtype as f32 (rounded where it is wider), in C order, with its shape. Empty arrays
/// are allowed.
pub fn read_npy_f32(path: &Path) -> Result<(Vec<usize>, Vec<f32>)> {
    let array = NpyRows::open_any(path)?;
    let mut values = Vec::new();
    memory::reserve(&path.display().to_string(), &mut values, array.n_values())?;
    if array.n_values() == 0 {
        return Ok((array.header.shape, values));
    }
    let rows_at_once = (PIECE / array.n_sites).clamp(1, array.n_rows());
    let mut piece = vec![0.0; rows_at_once * array.n_sites];
    for first_row in (0..array.n_rows()).step_by(rows_at_once) {
        let n_values = rows_at_once.min(array.n_rows() - first_row) * array.n_sites;
        array.read_rows(first_row, &mut piece[..n_values])?;
        values.extend(piece[..n_values].iter().map(|&value| value as f32));
    }
    Ok((array.header.shape, values))
}

/// Within the header, whose errors get the file's name at the end.
type Parsed<T> = std::result::Result<T, String>;

/// From NumPy's `descr`, such as `<f8`.
fn parse_descr(descr: &str) -> Parsed<Encoding> {
    let (order, name) = match descr.as_bytes().first() {
        Some(b'<' | b'|') => (ByteOrder::Little, &descr[1..]),
        Some(b'>') => (ByteOrder::Big, &descr[1..]),
        Some(b'=') if cfg!(target_endian = "big") => (ByteOrder::Big, &descr[1..]),
        Some(b'=') => (ByteOrder::Little, &descr[1..]),
        _ => (ByteOrder::Little, descr),
    };
    let kind = match name {
        "b1" => Kind::Bool,
        "i1" => Kind::I8,
        "i2" => Kind::I16,
        "i4" => Kind::I32,
        "i8" => Kind::I64,
        "u1" => Kind::U8,
        "u2" => Kind::U16,
        "u4" => Kind::U32,
        "u8" => Kind::U64,
        "f2" => Kind::F16,
        "f4" => Kind::F32,
        "f8" => Kind::F64,
        _ => return Err(unsupported(descr, name)),
    };
    Ok(Encoding { kind, order })
}

fn unsupported(descr: &str, name: &str) -> String {
    let what = match name.as_bytes().first() {
        Some(b'O') => "Python objects",
        Some(b'c') => "complex numbers",
        Some(b'U' | b'S' | b'a') => "strings",
        Some(b'M' | b'm') => "dates or durations",
        Some(b'V') => "records",
        _ => "values of an unknown kind",
    };
    let advice = "save real numbers, for example with array.astype('float32')";
    format!("holds {what} (dtype {}), which cannot be read; {advice}", descr.escape_debug())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    RowMajor,
    ColumnMajor,
}

#[derive(Debug, PartialEq)]
struct Header {
    element: Encoding,
    layout: Layout,
    shape: Vec<usize>,
}

impl Header {
    /// The number of sites in a row, once it is sure that the array has rows and that `n_bytes` hold it.
    fn check(&self, n_bytes: usize) -> Parsed<usize> {
        let Some((&n_rows, grid)) = self.shape.split_first() else {
            return Err("holds a single value without axes; an array of rows is needed".into());
        };
        let too_large = || format!("the shape {} in its header is too large for any file", tuple(&self.shape));
        let n_sites = grid.iter().try_fold(1_usize, |n, &length| n.checked_mul(length)).ok_or_else(too_large)?;
        let needed = n_sites.checked_mul(n_rows).and_then(|n| n.checked_mul(self.element.kind.size()));
        let needed = needed.ok_or_else(too_large)?;
        if needed > n_bytes {
            let shape = tuple(&self.shape);
            return Err(format!(
                "is cut short: its shape {shape} needs {needed} bytes of values, but only {n_bytes} follow its header"
            ));
        }
        Ok(n_sites)
    }
}

/// A shape as Python writes it.
fn tuple(shape: &[usize]) -> String {
    match shape {
        [length] => format!("({length},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Where the header ends, going by its first bytes; nothing where they are not those of a header.
fn header_bytes(start: &[u8]) -> usize {
    match start {
        [_, _, _, _, _, _, 1, 0, low, high, ..] => 10 + little_endian(&[*low, *high]),
        [_, _, _, _, _, _, 2 | 3, 0, length @ ..] if length.len() == 4 => 12 + little_endian(length),
        _ => start.len(),
    }
}

/// The header and the position of the first value.
fn read_header(file: &[u8]) -> Parsed<(Header, usize)> {
    if file.is_empty() {
        return Err("the file is empty (0 bytes)".into());
    }
    if !file.starts_with(MAGIC) {
        return Err("is not a .npy file: it does not begin with \\x93NUMPY".into());
    }
    let cut = || format!("is cut short: its {} bytes end within the .npy header", file.len());
    let version = file.get(6..8).ok_or_else(cut)?;
    let (text_start, length) = match version {
        [1, 0] => (10, file.get(8..10).map(little_endian)),
        [2 | 3, 0] => (12, file.get(8..12).map(little_endian)),
        _ => {
            return Err(format!(".npy version {}.{} is not supported; 1.0 to 3.0 are", version[0], version[1]));
        }
    };
    let data_start = length.and_then(|length| length.checked_add(text_start)).ok_or_else(cut)?;
    let text = file.get(text_start..data_start).ok_or_else(cut)?;
    Ok((parse_header(text)?, data_start))
}

fn little_endian(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// The header is a Python dict with three keys, in any order.
fn parse_header(text: &[u8]) -> Parsed<Header> {
    let mut literal = Literal { text, position: 0 };
    let (mut descr, mut layout, mut shape) = (None, None, None);
    literal.expect(b'{')?;
    while !literal.accept(b'}') {
        let key = literal.string()?;
        literal.expect(b':')?;
        match key.as_str() {
            "descr" => descr = Some(literal.descr()?),
            "fortran_order" => layout = Some(literal.layout()?),
            "shape" => shape = Some(literal.shape()?),
            _ => return Err(format!("the .npy header has the unknown key {key:?}")),
        }
        if !literal.accept(b',') {
            literal.expect(b'}')?;
            break;
        }
    }
    literal.expect_end()?;
    let missing = |key| format!("the .npy header has no '{key}'");
    Ok(Header {
        element: parse_descr(&descr.ok_or_else(|| missing("descr"))?)?,
        layout: layout.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
    })
}

/// A cursor over the few Python literals that a header is made of.
struct Literal<'a> {
    text: &'a [u8],
    position: usize,
}

impl Literal<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.position..]
    }

    fn skip_spaces(&mut self) {
        self.position += self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    fn wanted<T>(&self, what: &str) -> Parsed<T> {
        Err(format!("the .npy header cannot be read: expected {what} at its byte {}", self.position))
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.accept_word(&[byte])
    }

    fn accept_word(&mut self, word: &[u8]) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(word);
        if found {
            self.position += word.len();
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.accept(byte) { Ok(()) } else { self.wanted(&format!("'{}'", char::from(byte))) }
    }

    fn expect_end(&mut self) -> Parsed<()> {
        self.skip_spaces();
        if self.rest().is_empty() { Ok(()) } else { self.wanted("the end") }
    }

    /// A quoted string; no dtype or key that we support has an escape in it.
    fn string(&mut self) -> Parsed<String> {
        self.skip_spaces();
        let Some(&quote @ (b'\'' | b'"')) = self.rest().first() else {
            return self.wanted("a quoted string");
        };
        let Some(length) = self.rest()[1..].iter().position(|&byte| byte == quote) else {
            return self.wanted("a string that ends");
        };
        let string = String::from_utf8_lossy(&self.rest()[1..=length]).into_owned();
        self.position += length + 2;
        Ok(string)
    }

    /// A dtype name; a list in its place describes records.
    fn descr(&mut self) -> Parsed<String> {
        if self.accept(b'[') { Err(unsupported("with named fields", "V")) } else { self.string() }
    }

    fn layout(&mut self) -> Parsed<Layout> {
        if self.accept_word(b"False") {
            Ok(Layout::RowMajor)
        } else if self.accept_word(b"True") {
            Ok(Layout::ColumnMajor)
        } else {
            self.wanted("True or False")
        }
    }

    fn shape(&mut self) -> Parsed<Vec<usize>> {
        let mut shape = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            shape.push(self.number()?);
            if !self.accept(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Parsed<usize> {
        self.skip_spaces();
        let n_digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        if n_digits == 0 {
            return self.wanted("a length");
        }
        let length = self.rest()[..n_digits]
            .iter()
            .try_fold(0_usize, |number, &digit| number.checked_mul(10)?.checked_add(usize::from(digit - b'0')));
        let Some(length) = length else {
            return self.wanted("a length that fits into 64 bits");
        };
        self.position += n_digits;
        // Python 2 wrote long integers as 10L.
        self.accept(b'L');
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write::{write_npy_f32, write_npy_f64};
    use std::fs;

    /// A .npy file of version 1.0 with this dict and these values.
    fn npy(dict: &str, data: &[u8]) -> Vec<u8> {
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((dict.len() as u16).to_le_bytes());
        file.extend(dict.as_bytes());
        file.extend(data);
        file
    }

    fn dict(descr: &str, fortran_order: bool, shape: &[usize]) -> String {
        let order = if fortran_order { "True" } else { "False" };
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {}, }}  \n", tuple(shape))
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn file(&self, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join("array.npy");
            fs::write(&path, bytes).unwrap();
            path
        }

        fn rows(&self, bytes: &[u8]) -> Vec<f64> {
            let source = NpyRows::open(&self.file(bytes)).unwrap();
            let mut out = vec![f64::NAN; source.n_rows() * source.n_sites()];
            source.read_rows(0, &mut out).unwrap();
            out
        }

        fn problem(&self, bytes: &[u8]) -> String {
            NpyRows::open(&self.file(bytes)).err().expect("the file is refused").to_string()
        }
    }

    #[test]
    fn every_dtype_in_both_byte_orders() {
        fn check<const SIZE: usize>(name: &str, values: [[u8; SIZE]; 3], expected: [f64; 3]) {
            let folder = Folder::new();
            let little = values.concat();
            let big = values.map(|value| value.into_iter().rev().collect::<Vec<_>>()).concat();
            for (mark, bytes) in [("<", &little), ("|", &little), ("=", &little), (">", &big)] {
                let header = dict(&format!("{mark}{name}"), false, &[3]);
                assert_eq!(folder.rows(&npy(&header, bytes)), expected, "{mark}{name}");
            }
        }
        check("b1", [[0], [1], [2]], [0.0, 1.0, 1.0]);
        check("i1", [-128, 0, 127].map(i8::to_le_bytes), [-128.0, 0.0, 127.0]);
        check("i2", [i16::MIN, -2, i16::MAX].map(i16::to_le_bytes), [-32768.0, -2.0, 32767.0]);
        check("i4", [i32::MIN, 65536, i32::MAX].map(i32::to_le_bytes), [-2147483648.0, 65536.0, 2147483647.0]);
        check("i8", [i64::MIN, -3, 1 << 53].map(i64::to_le_bytes), [-(2f64.powi(63)), -3.0, 2f64.powi(53)]);
        check("u1", [[0], [128], [255]], [0.0, 128.0, 255.0]);
        check("u2", [0, 258, u16::MAX].map(u16::to_le_bytes), [0.0, 258.0, 65535.0]);
        check("u4", [0, 7, u32::MAX].map(u32::to_le_bytes), [0.0, 7.0, 4294967295.0]);
        check("u8", [0, 9, u64::MAX].map(u64::to_le_bytes), [0.0, 9.0, 2f64.powi(64)]);
        check("f2", [0x3c00, 0xc500, 0x0001].map(u16::to_le_bytes), [1.0, -5.0, 2f64.powi(-24)]);
        check("f4", [1.5, -0.1, f32::MAX].map(f32::to_le_bytes), [1.5, f64::from(-0.1f32), f64::from(f32::MAX)]);
        check("f8", [0.1, -1e300, f64::INFINITY].map(f64::to_le_bytes), [0.1, -1e300, f64::INFINITY]);
    }

    #[test]
    fn the_last_axis_can_count_the_rows() {
        let folder = Folder::new();
        let bytes = |values: &[f64]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        for shape in [&[2, 3, 4][..], &[5, 3], &[2, 1, 3, 2], &[4]] {
            let n: usize = shape.iter().product();
            let straight: Vec<f64> = (0..n).map(|x| x as f64).collect();
            let n_rows = *shape.last().unwrap();
            // Value v of the row-major array stands at row v % n_rows, site v / n_rows.
            let n_sites = n / n_rows;
            for (fortran_order, values) in [(false, straight), (true, column_major(shape))] {
                let path = folder.file(&npy(&dict("<f8", fortran_order, shape), &bytes(&values)));
                let source = NpyRows::open(&path).unwrap().with_last_axis_first();
                assert_eq!((source.n_rows(), source.n_sites()), (n_rows, n_sites), "{shape:?}");
                for (first, n) in [(0, n_rows), (n_rows - 1, 1)] {
                    let mut out = vec![f64::NAN; n * n_sites];
                    source.read_rows(first, &mut out).unwrap();
                    for (at, value) in out.iter().enumerate() {
                        let (row, site) = (first + at / n_sites, at % n_sites);
                        assert_eq!(*value, (site * n_rows + row) as f64, "{shape:?} {fortran_order} {row} {site}");
                    }
                }
            }
        }
    }

    /// The row-major values 0, 1, 2.. of `shape`, in column-major order, found index by index.
    fn column_major(shape: &[usize]) -> Vec<f64> {
        (0..shape.iter().product())
            .map(|place: usize| {
                let (mut rest, mut indices) = (place, Vec::new());
                for &length in shape {
                    indices.push(rest % length);
                    rest /= length;
                }
                indices.iter().zip(shape).fold(0, |number, (index, length)| number * length + index) as f64
            })
            .collect()
    }

    #[test]
    fn both_orders_give_the_same_rows_from_any_row_on() {
        let folder = Folder::new();
        for shape in [&[5][..], &[150, 37], &[70, 3, 11], &[4, 2, 3, 5], &[1, 1, 1], &[130, 1], &[1, 40]] {
            let n_values: usize = shape.iter().product();
            let row_major: Vec<f64> = (0..n_values).map(|value| value as f64).collect();
            for (fortran_order, values) in [(false, row_major.clone()), (true, column_major(shape))] {
                let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let source = NpyRows::open(&folder.file(&npy(&dict("<f8", fortran_order, shape), &data))).unwrap();
                assert_eq!(source.n_sites() * source.n_rows(), n_values);
                assert_eq!(source.grid(), (shape.len() > 2).then(|| &shape[1..]));
                for first_row in 0..=shape[0].min(3) {
                    for n_rows in [0, 1, (shape[0] - first_row) / 2, shape[0] - first_row] {
                        let n_rows = n_rows.min(shape[0] - first_row);
                        let mut out = vec![f64::NAN; n_rows * source.n_sites()];
                        source.read_rows(first_row, &mut out).unwrap();
                        assert_eq!(out, row_major[first_row * source.n_sites()..][..out.len()], "{shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn versions_two_and_three_and_odd_dicts() {
        let folder = Folder::new();
        let data = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
        for version in [2, 3] {
            let text = dict("<f4", false, &[1, 2]);
            let mut file = [b"\x93NUMPY", &[version, 0][..], &(text.len() as u32).to_le_bytes()].concat();
            file.extend(text.as_bytes());
            file.extend(&data);
            assert_eq!(folder.rows(&file), [1.0, 2.0]);
        }
        for text in [
            "{\"shape\":(2L,1L),\"fortran_order\":False,\"descr\":\"<f4\"}",
            "\n { 'fortran_order' : True , 'shape' : ( 2 , 1 , ) , 'descr' : 'f4' , } \n",
        ] {
            assert_eq!(folder.rows(&npy(text, &data)), [1.0, 2.0]);
        }
    }

    #[test]
    fn malformed_files_say_what_is_wrong() {
        let folder = Folder::new();
        let values = [0; 64];
        let with = |text: &str| folder.problem(&npy(text, &values));
        assert!(folder.problem(b"").contains("empty (0 bytes)"));
        assert!(folder.problem(b"PK\x03\x04 zip").contains("is not a .npy file"));
        assert!(folder.problem(b"\x93NUMPY\x01").contains("end within the .npy header"));
        assert!(folder.problem(b"\x93NUMPY\x01\x00\xff\xff{}").contains("end within the .npy header"));
        assert!(folder.problem(b"\x93NUMPY\x04\x00\x00\x00").contains("version 4.0"));
        assert!(with("nonsense").contains("expected '{' at its byte 0"));
        assert!(with("{'descr': '<f8', 'shape': (2, 2)}").contains("no 'fortran_order'"));
        assert!(with("{'descr': '<f8', 'shape': (-2, 2)}").contains("expected a length"));
        assert!(with("{'descr': '<f8', 'color': 'red'}").contains("unknown key \"color\""));
        assert!(with("{'descr': '<f8").contains("a string that ends"));
        assert!(with(&dict("<f8", false, &[])).contains("a single value without axes"));
        assert!(with(&dict("<f8", false, &[0, 4])).contains("empty: its shape is (0, 4)"));
        assert!(with(&dict("<f8", false, &[4, 0])).contains("empty: its shape is (4, 0)"));
        let short = with(&dict("<f8", false, &[3, 3]));
        assert!(short.contains("needs 72 bytes") && short.contains("only 64 follow"));
        for huge in [&[usize::MAX, 2][..], &[2, usize::MAX, 2], &[usize::MAX / 4], &[0, usize::MAX, 2]] {
            assert!(with(&dict("<f8", false, huge)).contains("too large"), "{huge:?}");
        }
        assert!(with("{'descr': '<f8', 'shape': (99999999999999999999999,)}").contains("fits into 64 bits"));
        assert!(with(&dict("<f8", false, &[3, 3])).contains("array.npy"));
    }

    #[test]
    fn unsupported_dtypes_are_named() {
        let folder = Folder::new();
        for (descr, what) in [
            ("|O", "Python objects (dtype |O)"),
            ("<c16", "complex numbers (dtype <c16)"),
            ("<U5", "strings (dtype <U5)"),
            ("|S3", "strings (dtype |S3)"),
            ("<M8[ns]", "dates or durations (dtype <M8[ns])"),
            ("<f16", "unknown kind (dtype <f16)"),
            ("é", "unknown kind (dtype é)"),
            ("", "unknown kind"),
        ] {
            assert!(folder.problem(&npy(&dict(descr, false, &[1]), &[0; 64])).contains(what), "{descr}");
        }
        let records = "{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (1,)}";
        assert!(folder.problem(&npy(records, &[0; 8])).contains("records"));
    }

    /// Opening and reading may fail, but must not panic.
    fn try_everything(path: &Path) {
        if let Ok(source) = NpyRows::open(path) {
            let mut out = vec![0.0; source.n_rows() * source.n_sites()];
            source.read_rows(0, &mut out).unwrap();
        }
        let _ = read_npy_f32(path);
        let _ = read_npy_f64(path);
    }

    #[test]
    fn no_truncation_and_no_flipped_byte_panics() {
        let folder = Folder::new();
        let data: Vec<u8> = (0..2 * 3 * 4).flat_map(|value| f64::from(value).to_le_bytes()).collect();
        for fortran_order in [false, true] {
            let valid = npy(&dict("<f8", fortran_order, &[2, 3, 4]), &data);
            for length in 0..valid.len() {
                let path = folder.file(&valid[..length]);
                assert!(NpyRows::open(&path).is_err(), "{length} bytes");
                try_everything(&path);
            }
            let header_length = valid.len() - data.len();
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..4000 {
                let mut file = valid.clone();
                for _ in 0..1 + random % 3 {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    file[(random >> 33) as usize % header_length] = (random >> 56) as u8;
                }
                try_everything(&folder.file(&file));
            }
            // Digits in place of other bytes reach the shapes that plain noise seldom makes.
            for place in 0..header_length {
                for byte in b"0129,'(){}[]<>|: LTF" {
                    let mut file = valid.clone();
                    file[place] = *byte;
                    try_everything(&folder.file(&file));
                }
            }
        }
    }

    #[test]
    fn an_empty_array_with_long_axes_takes_no_memory() {
        let folder = Folder::new();
        for shape in [[0, 1 << 60], [1 << 60, 0]] {
            let path = folder.file(&npy(&dict("<f8", false, &shape), &[]));
            assert_eq!(read_npy_f32(&path).unwrap(), (shape.to_vec(), vec![]));
            assert_eq!(read_npy_f64(&path).unwrap(), (shape.to_vec(), vec![]));
        }
    }

    #[test]
    fn whole_arrays_round_trip_even_when_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("array.npy");
        for shape in [&[7][..], &[3, 5], &[2, 3, 4], &[1000, 300], &[2, 100_000], &[0, 4], &[4, 0], &[0]] {
            let n_values: usize = shape.iter().product();
            let single: Vec<f32> = (0..n_values).map(|value| value as f32 / 7.0).collect();
            write_npy_f32(&path, shape, &single).unwrap();
            assert_eq!(read_npy_f32(&path).unwrap(), (shape.to_vec(), single));
            let double: Vec<f64> = (0..n_values).map(|value| value as f64 / 7.0).collect();
            write_npy_f64(&path, shape, &double).unwrap();
            assert_eq!(read_npy_f64(&path).unwrap(), (shape.to_vec(), double));
        }
    }
}
