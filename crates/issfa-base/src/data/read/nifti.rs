//! NIfTI-1 images as rows, a volume each: `.nii` from a memory map, `.nii.gz` as a stream, 3-D files as a series.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::element::ByteOrder;
use super::gzip::{GzipStream, read_up_to};
use super::places::PlacedFile;
use super::{RowSource, open_file, rows_asked_for};
use crate::data::nifti::header::GZIP_MAGIC;
use crate::data::nifti::space::check_same_place;
use crate::data::nifti::{EARLIEST_VALUES, HEADER_BYTES, Header};
use crate::error::{Error, Result};

/// Deflate makes at most 1032 bytes out of one, and gzip files have a frame around it.
const LARGEST_EXPANSION: u64 = 1100;

/// Slices turned round at once: as many f64 as a cache line holds.
const SLICES: usize = 8;

/// Bytes decompressed at once.
const PIECE: usize = 1 << 16;

/// Size and code of a header extension, which come before its content.
const EXTENSION_START: usize = 8;

/// What to do about a file that is not whole.
const COPY_AGAIN: &str = "copy the file again from where it came";

/// A NIfTI-1 file as rows, one a volume; the grid is (x, y, z), z fastest, whatever their lengths.
pub struct NiftiRows {
    path: PathBuf,
    header: Header,
    values: Values,
}

/// Where the values come from.
enum Values {
    Plain,
    /// Open from the first row asked for to the last, so that many files need few descriptors.
    Gzip(Mutex<Option<Box<Stream>>>),
}

/// A compressed file that is being read.
struct Stream {
    bytes: GzipStream,
    next_row: usize,
}

impl NiftiRows {
    /// Reads the header, and checks that the file can hold what it promises. Names that end in `.gz` are decompressed.
    pub fn open(path: &Path) -> Result<NiftiRows> {
        let is_compressed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
        if is_compressed { NiftiRows::open_gzip(path) } else { NiftiRows::open_plain(path) }
    }

    fn open_plain(path: &Path) -> Result<NiftiRows> {
        let file = PlacedFile::open(path)?;
        let header = read_start(path, &mut open_file(path)?, Length::Bytes(file.n_bytes()))?;
        Ok(NiftiRows { path: path.to_path_buf(), header, values: Values::Plain })
    }

    fn open_gzip(path: &Path) -> Result<NiftiRows> {
        let mut file = open_file(path)?;
        let length = Length::Compressed(file.metadata().map_err(Error::read(path))?.len());
        check_gzip(path, &mut file)?;
        let header = read_start(path, &mut open_stream(path)?, length)?;
        Ok(NiftiRows { path: path.to_path_buf(), header, values: Values::Gzip(Mutex::new(None)) })
    }

    /// The file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn read_from_file(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        let file = PlacedFile::open(&self.path)?;
        let (row_bytes, element) = (self.header.volume_bytes(), self.header.element);
        let mut slab = self.empty_slab();
        for (row, volume) in (first_row as u64..).zip(out.chunks_exact_mut(self.n_sites())) {
            let mut place = self.header.data_start + row * row_bytes;
            let fill = |slab: &mut [f64]| {
                let (size, mut places) = (element.kind.size(), slab.iter_mut());
                let n_bytes = places.len() * size;
                file.for_each_piece(place, n_bytes, size, &mut |piece| {
                    element.decode(piece, places.by_ref().take(piece.len() / size));
                })?;
                place += n_bytes as u64;
                Ok(())
            };
            fill_volume(self.header.grid, &mut slab, volume, fill)?;
        }
        Ok(())
    }

    fn read_from_stream(&self, place: &Mutex<Option<Box<Stream>>>, first_row: usize, out: &mut [f64]) -> Result<()> {
        let n_rows = out.len() / self.n_sites();
        if n_rows == 0 {
            return Ok(());
        }
        // A reader that panicked left no stream behind: it is taken out while it is used.
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stream = match place.take() {
            Some(stream) if stream.next_row <= first_row => stream,
            _ => self.stream_from_first_row()?,
        };
        let mut slab = self.empty_slab();
        let mut piece = vec![0; PIECE];
        self.skip_rows(&mut stream, first_row)?;
        for volume in out.chunks_exact_mut(self.n_sites()) {
            let fill = |slab: &mut [f64]| self.decode_next(&mut stream.bytes, &mut piece, slab);
            fill_volume(self.header.grid, &mut slab, volume, fill).map_err(self.broken_at(stream.next_row))?;
            stream.next_row += 1;
        }
        if stream.next_row < self.n_rows() {
            *place = Some(stream);
        } else {
            // Bits that were lost on the way show in the checksum at the end.
            stream.bytes.check_member().map_err(self.broken_at(self.n_rows() - 1))?;
        }
        Ok(())
    }

    fn stream_from_first_row(&self) -> Result<Box<Stream>> {
        let mut bytes = open_stream(&self.path)?;
        skip(&mut bytes, self.header.data_start).map_err(self.broken_at(0))?;
        Ok(Box::new(Stream { bytes, next_row: 0 }))
    }

    fn skip_rows(&self, stream: &mut Stream, first_row: usize) -> Result<()> {
        while stream.next_row < first_row {
            skip(&mut stream.bytes, self.header.volume_bytes()).map_err(self.broken_at(stream.next_row))?;
            stream.next_row += 1;
        }
        Ok(())
    }

    fn decode_next(&self, file: &mut impl Read, piece: &mut [u8], out: &mut [f64]) -> io::Result<()> {
        let element = self.header.element;
        for places in out.chunks_mut(piece.len() / element.kind.size()) {
            let stored = &mut piece[..places.len() * element.kind.size()];
            file.read_exact(stored)?;
            element.decode(stored, places.iter_mut());
        }
        Ok(())
    }

    fn broken_at(&self, row: usize) -> impl FnOnce(io::Error) -> Error + '_ {
        move |error| broken(&self.path, &format!("within row {row} (from 0) of {}", self.n_rows()), error)
    }

    fn empty_slab(&self) -> Vec<f64> {
        let [nx, ny, nz] = self.header.grid;
        vec![0.0; nx * ny * nz.min(SLICES)]
    }
}

impl RowSource for NiftiRows {
    fn path(&self) -> &Path {
        &self.path
    }

    fn n_rows(&self) -> usize {
        self.header.n_volumes
    }

    fn n_sites(&self) -> usize {
        self.header.n_sites()
    }

    fn grid(&self) -> Option<&[usize]> {
        Some(&self.header.grid)
    }

    fn space(&self) -> Option<&Header> {
        Some(&self.header)
    }

    fn is_single(&self) -> bool {
        self.header.is_single()
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        rows_asked_for(self, first_row, out.len());
        match &self.values {
            Values::Plain => self.read_from_file(first_row, out)?,
            Values::Gzip(place) => self.read_from_stream(place, first_row, out)?,
        }
        if let Some(scaling) = self.header.scaling {
            out.iter_mut().for_each(|value| *value = scaling.slope * *value + scaling.intercept);
        }
        Ok(())
    }
}

/// 3-D files of one grid as the rows of one run, in the order given. A file is open only while it is read.
pub struct NiftiSeries {
    paths: Vec<PathBuf>,
    /// The first file's.
    header: Header,
}

impl NiftiSeries {
    /// Opens at least one file; every one must be a single volume on the same grid in the same place.
    pub fn open(paths: &[PathBuf]) -> Result<NiftiSeries> {
        assert!(!paths.is_empty(), "a series has at least one file");
        let header = NiftiRows::open(&paths[0])?.header;
        let series = NiftiSeries { paths: paths.to_vec(), header };
        (0..paths.len()).try_for_each(|row| series.open_row(row).map(drop))?;
        Ok(series)
    }

    fn open_row(&self, row: usize) -> Result<NiftiRows> {
        let (path, first) = (&self.paths[row], &self.paths[0]);
        let file = NiftiRows::open(path)?;
        let header = &file.header;
        if header.grid != self.header.grid || header.n_volumes != 1 {
            let (found, expected) = (header.show_sizes(), self.header.show_sizes());
            let problem =
                format!("has the sizes {found}, but {} has {expected}; a series needs equal ones", first.display());
            return Err(Error::malformed(path, problem));
        }
        check_same_place((first, &self.header), (path, header))?;
        Ok(file)
    }
}

impl RowSource for NiftiSeries {
    fn path(&self) -> &Path {
        &self.paths[0]
    }

    fn row_path(&self, row: usize) -> &Path {
        &self.paths[row]
    }

    fn n_rows(&self) -> usize {
        self.paths.len()
    }

    fn n_sites(&self) -> usize {
        self.header.n_sites()
    }

    fn grid(&self) -> Option<&[usize]> {
        Some(&self.header.grid)
    }

    fn space(&self) -> Option<&Header> {
        Some(&self.header)
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        rows_asked_for(self, first_row, out.len());
        let mut rows = (first_row..).zip(out.chunks_exact_mut(self.n_sites()));
        rows.try_for_each(|(row, volume)| self.open_row(row)?.read_rows(0, volume))
    }
}

/// Fills a volume, z fastest, from values that come with x fastest, a few slices at a time.
fn fill_volume<E>(
    [nx, ny, nz]: [usize; 3],
    slab: &mut [f64],
    volume: &mut [f64],
    mut fill: impl FnMut(&mut [f64]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    for first_z in (0..nz).step_by(SLICES) {
        let slab = &mut slab[..SLICES.min(nz - first_z) * nx * ny];
        fill(slab)?;
        for y in 0..ny {
            for x in 0..nx {
                let along_z = slab[y * nx + x..].iter().step_by(nx * ny);
                let places = &mut volume[(x * ny + y) * nz + first_z..];
                places.iter_mut().zip(along_z).for_each(|(place, value)| *place = *value);
            }
        }
    }
    Ok(())
}

fn open_stream(path: &Path) -> Result<GzipStream> {
    Ok(GzipStream::new(open_file(path)?))
}

/// Refuses what is not compressed at all by a better name than a broken stream.
fn check_gzip(path: &Path, file: &mut impl Read) -> Result<()> {
    let mut start = [0; GZIP_MAGIC.len()];
    let n_read = read_up_to(file, &mut start).map_err(Error::read(path))?;
    if n_read == 0 {
        return Err(Error::malformed(path, format!("the file is empty (0 bytes); {COPY_AGAIN}")));
    }
    if start != GZIP_MAGIC {
        let problem = "is not compressed with gzip; give it the ending .nii if it is a plain image";
        return Err(Error::malformed(path, problem));
    }
    Ok(())
}

/// What is known of a file's length.
#[derive(Clone, Copy)]
enum Length {
    Bytes(u64),
    Compressed(u64),
}

impl Length {
    /// Refuses a header that promises more than the file can hold, before anything is made as large as it says.
    fn check(self, header: &Header) -> std::result::Result<(), String> {
        let (sizes, needed) = (header.show_sizes(), header.file_bytes());
        match self {
            Length::Bytes(found) if needed > found => {
                Err(format!("is cut short: its sizes ({sizes}) need {needed} bytes, but it has {found}; {COPY_AGAIN}"))
            }
            Length::Compressed(found) if needed > found.saturating_mul(LARGEST_EXPANSION) => Err(format!(
                "is cut short: its sizes ({sizes}) need {needed} bytes, and no compression brings these into {found}; {COPY_AGAIN}"
            )),
            _ => Ok(()),
        }
    }
}

/// Reads and checks everything before the values.
fn read_start(path: &Path, file: &mut impl Read, length: Length) -> Result<Header> {
    let broken = |error| broken(path, "within its header", error);
    let mut start = [0; HEADER_BYTES];
    let n_read = read_up_to(file, &mut start).map_err(broken)?;
    if matches!(length, Length::Compressed(_)) && start.starts_with(&GZIP_MAGIC) {
        return Err(Error::malformed(path, "is compressed twice; decompress it once with gunzip"));
    }
    let header = Header::parse(path, &start[..n_read])?;
    length.check(&header).map_err(|problem| Error::malformed(path, problem))?;
    let extensions = check_extensions(file, &header).map_err(broken)?;
    extensions.map_err(|problem| Error::malformed(path, problem))?;
    Ok(header)
}

/// Walks the extensions between header and values, which we do not use: where they do not fill their place, the values
/// are not where the header says either.
fn check_extensions(file: &mut impl Read, header: &Header) -> io::Result<std::result::Result<(), String>> {
    let mut follow = [0; 4];
    file.read_exact(&mut follow)?;
    let (mut at, end) = (EARLIEST_VALUES, header.data_start);
    while follow[0] != 0 && at + EXTENSION_START as u64 <= end {
        let mut start = [0; EXTENSION_START];
        file.read_exact(&mut start)?;
        let size = [start[0], start[1], start[2], start[3]];
        let size = match header.element.order {
            ByteOrder::Little => i32::from_le_bytes(size),
            ByteOrder::Big => i32::from_be_bytes(size),
        };
        match u64::try_from(size) {
            // Nothing but padding comes after the last one.
            Ok(0) => break,
            Ok(n_bytes) if n_bytes >= EXTENSION_START as u64 && n_bytes <= end - at => {
                skip(file, n_bytes - EXTENSION_START as u64)?;
                at += n_bytes;
            }
            _ => {
                return Ok(Err(format!(
                    "the header extension at byte {at} says it has {size} bytes, but the values begin at byte {end}; save \
                     the image again, without extensions if need be"
                )));
            }
        }
    }
    Ok(Ok(()))
}

/// Reads past so many bytes.
fn skip(file: &mut impl Read, n_bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut file.take(n_bytes), &mut io::sink())?;
    if skipped == n_bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A file that ends early or whose compressed bytes make no sense is the file's fault, anything else the machine's.
fn broken(path: &Path, place: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::malformed(path, format!("is cut short: it ends {place}; {COPY_AGAIN}")),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            Error::malformed(path, format!("is damaged {place}: {error}; {COPY_AGAIN}"))
        }
        _ => Error::read(path)(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::nifti::by_hand::{Image, gzip};
    use std::fs;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        }

        /// The image as a plain and as a compressed file.
        fn both(&self, image: &Image) -> [PathBuf; 2] {
            [self.file("a.nii", &image.file()), self.file("a.nii.gz", &gzip(&image.file()))]
        }

        fn problem(&self, name: &str, bytes: &[u8]) -> String {
            let error = NiftiRows::open(&self.file(name, bytes)).err().expect("the file is refused");
            assert!(matches!(&error, Error::Malformed { path, .. } if path.ends_with(name)), "{error:?}");
            error.to_string()
        }
    }

    fn all_rows(source: &dyn RowSource) -> Vec<f64> {
        let mut rows = vec![f64::NAN; source.n_rows() * source.n_sites()];
        source.read_rows(0, &mut rows).unwrap();
        rows
    }

    #[test]
    fn every_type_in_both_byte_orders_is_in_its_place() {
        let folder = Folder::new();
        for datatype in [2, 4, 8, 16, 64, 256, 512, 768, 1024, 1280] {
            for big_endian in [false, true] {
                for scaling in [[0.0, 9.0], [1.0, 0.0], [0.5, -3.0], [-2.0, 0.0]] {
                    let image = Image { datatype, big_endian, scaling, ..Image::default() };
                    for path in folder.both(&image) {
                        let source = NiftiRows::open(&path).unwrap();
                        assert_eq!((source.n_rows(), source.n_sites(), source.grid()), (2, 60, Some(&[3, 4, 5][..])));
                        assert_eq!(all_rows(&source), image.rows(), "{datatype} {big_endian} {scaling:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_value_by_hand() {
        let folder = Folder::new();
        let image = Image { datatype: 512, ..Image::default() };
        for path in folder.both(&image) {
            let rows = all_rows(&NiftiRows::open(&path).unwrap());
            assert_eq!(rows[(2 * 4 + 3) * 5 + 4], 234.0);
            assert_eq!(rows[60 + (4 + 2) * 5 + 3], 1123.0);
        }
    }

    #[test]
    fn any_shape_from_any_row() {
        let folder = Folder::new();
        for dim in [
            [4, 3, 4, 5, 7, 1, 1, 1],
            [4, 1, 1, 1, 3, 1, 1, 1],
            [4, 2, 3, 19, 4, 1, 1, 1],
            [7, 5, 1, 8, 3, 1, 1, 1],
            [2, 4, 6, 0, 0, 0, 0, 0],
            [4, 90, 80, 17, 2, 1, 1, 1],
        ] {
            let image = Image { dim, ..Image::default() };
            let (expected, [nx, ny, nz, n_rows]) = (image.rows(), image.lengths());
            for path in folder.both(&image) {
                let source = NiftiRows::open(&path).unwrap();
                assert_eq!(source.grid(), Some(&[nx, ny, nz][..]));
                // Forward, back, over gaps, nothing, and all at once.
                for first_row in (0..n_rows).chain((0..n_rows).rev()).chain((0..n_rows).step_by(2)) {
                    for n_read in [0, 1, n_rows - first_row] {
                        let mut out = vec![f64::NAN; n_read * source.n_sites()];
                        source.read_rows(first_row, &mut out).unwrap();
                        assert_eq!(out, expected[first_row * source.n_sites()..][..out.len()], "{dim:?} {first_row}");
                    }
                }
            }
        }
    }

    #[test]
    fn members_and_what_follows_them() {
        let folder = Folder::new();
        let image = Image { dim: [4, 3, 4, 5, 9, 1, 1, 1], ..Image::default() };
        let file = image.file();
        let whole = gzip(&file);
        let mut odd = vec![
            [&whole[..], b"garbage"].concat(),
            [&whole[..], &[0; 512]].concat(),
            [&whole[..], &[0x1f]].concat(),
            [&whole[..], &GZIP_MAGIC].concat(),
            gzip(&[&file[..], b"more than the header promises"].concat()),
        ];
        for length in [1, 7, 100, 348, 350, 1000] {
            odd.push(file.chunks(length).flat_map(gzip).collect());
            odd.push(file.chunks(length).flat_map(|piece| [gzip(piece), gzip(b"")].concat()).collect());
        }
        for bytes in odd {
            let source = NiftiRows::open(&folder.file("a.nii.gz", &bytes)).unwrap();
            assert_eq!(all_rows(&source), image.rows());
            assert_eq!(all_rows(&source), image.rows(), "and once more");
        }
    }

    #[test]
    fn a_stream_that_ends_early_names_its_row() {
        let folder = Folder::new();
        let image = Image { dim: [4, 3, 4, 5, 9, 1, 1, 1], ..Image::default() };
        let file = image.file();
        // The compressed file is whole, but what it holds is not.
        let source = NiftiRows::open(&folder.file("short.nii.gz", &gzip(&file[..352 + 4 * 240 + 100]))).unwrap();
        let mut row = vec![0.0; 60];
        source.read_rows(3, &mut row).unwrap();
        for _ in 0..2 {
            let error = source.read_rows(4, &mut row).unwrap_err().to_string();
            assert!(error.contains("short.nii.gz") && error.contains("within row 4 (from 0) of 9"), "{error}");
        }
        source.read_rows(3, &mut row).unwrap();
        assert_eq!(row, image.rows()[180..240], "a failure does not stick");
        // The compressed file is cut.
        let whole = gzip(&file);
        for length in 0..whole.len() {
            let opened = NiftiRows::open(&folder.file("cut.nii.gz", &whole[..length]));
            let error = opened.and_then(|source| source.read_rows(0, &mut vec![0.0; 540])).unwrap_err();
            assert!(matches!(error, Error::Malformed { .. }), "{length}: {error}");
        }
    }

    #[test]
    fn lost_bits_show_in_the_checksum() {
        let folder = Folder::new();
        let mut bytes = gzip(&Image::default().file());
        let checksum = bytes.len() - 8;
        bytes[checksum] ^= 1;
        let source = NiftiRows::open(&folder.file("a.nii.gz", &bytes)).unwrap();
        let error = source.read_rows(0, &mut [0.0; 120]).unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains("row 1"), "{error}");
    }

    #[test]
    fn malformed_files_say_what_is_wrong() {
        let folder = Folder::new();
        let image = Image::default();
        let file = image.file();
        for (name, wrap) in [("a.nii", (|bytes| bytes.to_vec()) as fn(&[u8]) -> Vec<u8>), ("a.nii.gz", gzip)] {
            let problem = |bytes: &[u8]| folder.problem(name, &wrap(bytes));
            let of = |image: Image| problem(&image.file());
            assert!(problem(b"").contains("empty (0 bytes)"));
            assert!(problem(&file[..100]).contains("cut short"));
            assert!(problem(&file[..348]).contains("cut short"));
            assert!(problem(&[7; 400]).contains("not 348"));
            assert!(of(Image { magic: *b"ni1\0", ..image.clone() }).contains(".hdr/.img"));
            assert!(of(Image { header_size: 540, ..image.clone() }).contains("NIfTI-2"));
            assert!(problem(&Image { vox_offset: f32::NAN, ..image.clone() }.file()).contains("vox_offset"));
            let large = Image { dim: [4, i16::MAX, i16::MAX, i16::MAX, i16::MAX, 1, 1, 1], ..image.clone() }.header();
            assert!(problem(&large).contains("32767x32767x32767, 32767 volumes"), "{}", problem(&large));
            let far = Image { vox_offset: 1e9, ..image.clone() };
            assert!(of(far).contains("1000000"));
        }
        assert!(folder.problem("a.nii", b"").contains("empty"));
        assert!(folder.problem("a.nii.gz", b"").contains("empty"));
        assert!(folder.problem("a.nii", &file[..file.len() - 1]).contains("need 832 bytes, but it has 831"));
        assert!(folder.problem("a.nii", &gzip(&file)).contains(".nii.gz"));
        assert!(folder.problem("a.nii.gz", &file).contains("not compressed"));
        assert!(folder.problem("a.nii.gz", &gzip(&gzip(&file))).contains("twice"));
        assert!(folder.problem("a.nii.gz", &[0x1f, 0x8b, 8, 0, 1, 2, 3]).contains("cut short"));
        assert!(folder.problem("a.nii.gz", &[[0x1f, 0x8b, 8, 0].as_slice(), &[0xff; 90]].concat()).contains("damaged"));
    }

    #[test]
    fn extensions_are_walked_over() {
        let folder = Folder::new();
        let extension = |size: i32, length: usize, big_endian: bool| {
            let size = if big_endian { size.to_be_bytes() } else { size.to_le_bytes() };
            [&size[..], &vec![6; length - 4]].concat()
        };
        for big_endian in [false, true] {
            let with = |sizes: &[(i32, usize)], padding: usize| {
                let mut extensions = vec![1, 0, 0, 0];
                extensions.extend(sizes.iter().flat_map(|&(size, length)| extension(size, length, big_endian)));
                extensions.extend(vec![0; padding]);
                let vox_offset = 348.0 + extensions.len() as f32;
                Image { extensions, vox_offset, big_endian, ..Image::default() }
            };
            for image in [with(&[(16, 16)], 0), with(&[(32, 32), (16, 16)], 16), with(&[], 0), with(&[(16, 16)], 5)] {
                for path in folder.both(&image) {
                    assert_eq!(all_rows(&NiftiRows::open(&path).unwrap()), image.rows());
                }
            }
            for (image, size) in
                [(with(&[(33, 32)], 0), "33"), (with(&[(-16, 16)], 0), "-16"), (with(&[(7, 16)], 0), "7")]
            {
                for (name, bytes) in [("a.nii", image.file()), ("a.nii.gz", gzip(&image.file()))] {
                    let problem = folder.problem(name, &bytes);
                    assert!(problem.contains(&format!("at byte 352 says it has {size} bytes")), "{problem}");
                }
            }
        }
        // Without the mark, whatever stands there is not looked at.
        let image = Image {
            extensions: vec![0, 9, 9, 9, 255, 255, 255, 255, 1, 2, 3, 4],
            vox_offset: 360.0,
            ..Image::default()
        };
        for path in folder.both(&image) {
            assert_eq!(all_rows(&NiftiRows::open(&path).unwrap()), image.rows());
        }
    }

    #[test]
    fn a_series_has_a_row_a_file() {
        let folder = Folder::new();
        let volume = |slope: f32| Image { dim: [3, 3, 4, 5, 1, 1, 1, 1], scaling: [slope, 0.0], ..Image::default() };
        let paths = [
            folder.file("v1.nii", &volume(1.0).file()),
            folder.file("v2.nii.gz", &gzip(&volume(2.0).file())),
            folder.file("v3.nii", &volume(3.0).file()),
        ];
        let series = NiftiSeries::open(&paths).unwrap();
        assert_eq!((series.n_rows(), series.path(), series.row_path(2)), (3, paths[0].as_path(), paths[2].as_path()));
        let expected: Vec<f64> = [1.0, 2.0, 3.0].iter().flat_map(|&slope| volume(slope).rows()).collect();
        assert_eq!(all_rows(&series), expected);
        let other = folder.file("v4.nii", &Image { dim: [3, 4, 3, 5, 1, 1, 1, 1], ..Image::default() }.file());
        let error = NiftiSeries::open(&[paths[0].clone(), other]).err().unwrap().to_string();
        assert!(error.contains("v4.nii") && error.contains("4x3x5") && error.contains("3x4x5"), "{error}");
    }

    #[test]
    fn threads_may_share_a_stream() {
        let folder = Folder::new();
        let image = Image { dim: [4, 3, 4, 5, 40, 1, 1, 1], ..Image::default() };
        let source = NiftiRows::open(&folder.file("a.nii.gz", &gzip(&image.file()))).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(all_rows(&source), image.rows()));
            }
        });
    }
}
