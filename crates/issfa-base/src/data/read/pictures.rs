//! Pictures as rows, held in memory: the pages of a TIFF file, or PNG and TIFF files that belong together.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tiff::ColorType;
use tiff::decoder::{Decoder, DecodingResult, Limits};

use super::element::{ByteOrder, Encoding, Kind};
use super::glob::natural_order;
use super::memory::Values;
use super::{RowSource, ending, open_file, rows_asked_for};
use crate::data::grid::show_grid;
use crate::data::memory;
use crate::error::{Error, Result, bytes};

/// Bytes of a page of a TIFF file. Its decoder makes room for lists in the file by the same limit, so that a damaged file
/// could ask for anything.
const LARGEST_PAGE: usize = 1 << 30;

/// Pictures of one size: the grid is height x width, and x channels where they have colours.
pub struct Pictures {
    name: PathBuf,
    grid: Vec<usize>,
    values: Values,
    /// The file of each row, and its page.
    places: Vec<(PathBuf, usize)>,
    /// How the numbers of the first are stored, which says what is white.
    numbers: String,
}

/// One picture, decoded.
struct Picture {
    grid: Vec<usize>,
    values: Vec<f64>,
    /// How they are stored: `8-bit numbers`, say.
    numbers: String,
}

/// Whether a file is a picture, by its ending.
pub fn is_picture(path: &Path) -> bool {
    matches!(ending(path).as_str(), "png" | "tif" | "tiff")
}

impl Pictures {
    /// The pictures of a folder, in natural order of their names; its other files are left alone.
    pub fn open_folder(folder: &Path) -> Result<Pictures> {
        let files = files(folder)?;
        if files.is_empty() {
            let problem = "is a folder without .png, .tif or .tiff files; give a folder of images, or a file";
            return Err(Error::malformed(folder, problem));
        }
        Pictures::open(folder, &files)
    }

    /// The pages of all files, one after the other.
    pub fn open(name: &Path, files: &[PathBuf]) -> Result<Pictures> {
        let mut pictures = Pictures {
            name: name.into(),
            grid: Vec::new(),
            values: Values::F32(Vec::new()),
            places: Vec::new(),
            numbers: String::new(),
        };
        for file in files {
            match ending(file).as_str() {
                "png" => pictures.push(file, 0, read_png(file)?)?,
                _ => for_each_page(file, &mut |page, picture| pictures.push(file, page, picture))?,
            }
        }
        Ok(pictures)
    }

    fn push(&mut self, file: &Path, page: usize, picture: Picture) -> Result<()> {
        match self.places.first() {
            None => (self.grid, self.numbers) = (picture.grid.clone(), picture.numbers.clone()),
            Some((first, _)) if self.grid != picture.grid => {
                let (found, expected) = (show_grid(&picture.grid), show_grid(&self.grid));
                let problem = format!(
                    "page {}: its size is {found} (height, width, channels), but that of {} is {expected}; bring all pictures \
                     to one size",
                    page + 1,
                    first.display()
                );
                return Err(Error::malformed(file, problem));
            }
            Some((first, _)) if self.numbers != picture.numbers => {
                let problem = format!(
                    "page {}: holds {}, but {} holds {}, so that the same grey is another number in each; save all pictures \
                     with the same depth",
                    page + 1,
                    picture.numbers,
                    first.display(),
                    self.numbers
                );
                return Err(Error::malformed(file, problem));
            }
            Some(_) => {}
        }
        let what = self.name.display().to_string();
        memory::check(&what, 8 * picture.values.len() as u64)?;
        self.values.append(&picture.values, false);
        self.places.push((file.to_path_buf(), page));
        Ok(())
    }
}

/// The pictures in a folder, in natural order.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::read(folder))? {
        let name = entry.map_err(Error::read(folder))?.file_name();
        let path = folder.join(&name);
        let name = name.to_string_lossy().into_owned();
        if is_picture(&path) && !name.starts_with('.') && path.is_file() {
            names.push((name, path));
        }
    }
    names.sort_by(|(one, _), (other, _)| natural_order(one, other));
    Ok(names.into_iter().map(|(_, path)| path).collect())
}

/// Refuses what cannot be held, before room is made for it.
fn check_size(path: &Path, n_values: Option<usize>) -> Result<usize> {
    let n_values = n_values.unwrap_or(usize::MAX / 8);
    if n_values == 0 {
        return Err(Error::malformed(path, "the picture is empty: its height or width is 0"));
    }
    memory::check(&format!("the picture in {}", path.display()), 8 * n_values as u64)?;
    Ok(n_values)
}

fn grid(height: u32, width: u32, n_channels: usize) -> Vec<usize> {
    let mut grid = vec![height as usize, width as usize];
    grid.extend((n_channels > 1).then_some(n_channels));
    grid
}

fn n_values(grid: &[usize]) -> Option<usize> {
    grid.iter().try_fold(1_usize, |n, &length| n.checked_mul(length)).filter(|n| *n <= usize::MAX / 8)
}

fn read_png(path: &Path) -> Result<Picture> {
    let damaged =
        |error: png::DecodingError| Error::malformed(path, format!("is not a whole PNG file ({error}); copy it again"));
    let mut decoder = png::Decoder::new(BufReader::new(open_file(path)?));
    // Palettes become colours, and less than a byte becomes one.
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let n_bytes = check_size(path, reader.output_buffer_size())?;
    let mut raw = memory::zeros::<u8>(&path.display().to_string(), n_bytes)?;
    let frame = reader.next_frame(&mut raw).map_err(damaged)?;
    let (kind, n_bits) = if frame.bit_depth == png::BitDepth::Sixteen { (Kind::U16, 16) } else { (Kind::U8, 8) };
    let grid = grid(frame.height, frame.width, frame.color_type.samples());
    let mut values = vec![0.0; check_size(path, n_values(&grid))?];
    Encoding { kind, order: ByteOrder::Big }.decode(&raw, values.iter_mut());
    Ok(Picture { grid, values, numbers: whole_numbers(n_bits) })
}

/// The pages of a TIFF file, one after the other.
fn for_each_page(path: &Path, visit: &mut dyn FnMut(usize, Picture) -> Result<()>) -> Result<()> {
    let damaged = |error: tiff::TiffError| {
        let problem = format!("is not a TIFF file that can be read ({error}); copy it again, or save it as plain TIFF");
        Error::malformed(path, problem)
    };
    let mut limits = Limits::default();
    limits.decoding_buffer_size = LARGEST_PAGE;
    let file = BufReader::new(open_file(path)?);
    let mut decoder = Decoder::new(file).map_err(damaged)?.with_limits(limits);
    check_promise(path, &mut decoder)?;
    for page in 0.. {
        let (width, height) = decoder.dimensions().map_err(damaged)?;
        let colours = decoder.colortype().map_err(damaged)?;
        check_depth(path, page, colours)?;
        let grid = grid(height, width, channels(path, colours)?);
        let depth = usize::from(colours.bit_depth().div_ceil(8)).max(1);
        let expected = check_size(path, n_values(&grid))?;
        if expected > LARGEST_PAGE / depth {
            let (size, most) = (show_grid(&grid), bytes(LARGEST_PAGE as u64));
            let problem = format!("page {}: its size is {size}, but a page may have {most}; save it as .npy", page + 1);
            return Err(Error::malformed(path, problem));
        }
        let (values, numbers) = wide(decoder.read_image().map_err(damaged)?);
        if values.len() != expected {
            let problem = format!(
                "page {} holds {} values, but its size {} needs {expected}; save colours pixel by pixel, not in planes",
                page + 1,
                values.len(),
                show_grid(&grid)
            );
            return Err(Error::malformed(path, problem));
        }
        visit(page, Picture { grid, values, numbers })?;
        if !decoder.more_images() {
            break;
        }
        decoder.next_image().map_err(damaged)?;
    }
    Ok(())
}

/// ImageJ writes stacks beyond 4 GB with one page and a note of how many there are, which would be read as one row.
fn check_promise(path: &Path, decoder: &mut Decoder<BufReader<File>>) -> Result<()> {
    let description = decoder.find_tag(tiff::tags::Tag::ImageDescription).ok().flatten();
    let text = description.and_then(|value| value.into_string().ok()).unwrap_or_default();
    let promised = text.lines().find_map(|line| line.strip_prefix("images=")?.trim().parse::<usize>().ok());
    match promised {
        Some(n) if n > 1 && text.starts_with("ImageJ") && !decoder.more_images() => {
            let problem = format!(
                "is an ImageJ stack of {n} images with a single page, as ImageJ writes beyond {}; save it as BigTIFF, or as \
                 an array: numpy.save('stack.npy', tifffile.imread('stack.tif'))",
                bytes(4_000_000_000)
            );
            Err(Error::malformed(path, problem))
        }
        _ => Ok(()),
    }
}

fn channels(path: &Path, colours: ColorType) -> Result<usize> {
    match colours {
        ColorType::Gray(_) => Ok(1),
        ColorType::GrayA(_) => Ok(2),
        ColorType::RGB(_) | ColorType::YCbCr(_) | ColorType::Lab(_) => Ok(3),
        ColorType::RGBA(_) | ColorType::CMYK(_) => Ok(4),
        ColorType::Multiband { num_samples, .. } => Ok(usize::from(num_samples)),
        other => {
            Err(Error::malformed(path, format!("has colours that are not read ({other:?}); save it in grey or as RGB")))
        }
    }
}

/// Refuses pixels of less than a byte, which come packed.
fn check_depth(path: &Path, page: usize, colours: ColorType) -> Result<()> {
    let (n_bits, palette) = (colours.bit_depth(), matches!(colours, ColorType::Palette(_)));
    if palette || n_bits.is_multiple_of(8) && n_bits > 0 {
        return Ok(());
    }
    let problem = format!(
        "page {} has {n_bits} bits a pixel; 8, 16, 32 and 64 are read; save it with 8, in Python: \
         PIL.Image.open('a.tif').convert('L').save('a.png')",
        page + 1
    );
    Err(Error::malformed(path, problem))
}

fn whole_numbers(n_bits: u32) -> String {
    format!("{n_bits}-bit numbers")
}

/// The values, and how they were stored.
fn wide(values: DecodingResult) -> (Vec<f64>, String) {
    fn all<T: Copy>(values: &[T], wide: impl Fn(T) -> f64) -> Vec<f64> {
        values.iter().map(|&x| wide(x)).collect()
    }
    let signed = |n_bits: u32| format!("signed {}", whole_numbers(n_bits));
    let real = || "numbers with decimals".to_string();
    match values {
        DecodingResult::U8(values) => (all(&values, f64::from), whole_numbers(8)),
        DecodingResult::U16(values) => (all(&values, f64::from), whole_numbers(16)),
        DecodingResult::U32(values) => (all(&values, f64::from), whole_numbers(32)),
        DecodingResult::U64(values) => (all(&values, |x| x as f64), whole_numbers(64)),
        DecodingResult::I8(values) => (all(&values, f64::from), signed(8)),
        DecodingResult::I16(values) => (all(&values, f64::from), signed(16)),
        DecodingResult::I32(values) => (all(&values, f64::from), signed(32)),
        DecodingResult::I64(values) => (all(&values, |x| x as f64), signed(64)),
        DecodingResult::F16(values) => (all(&values, |x| x.to_f64()), real()),
        DecodingResult::F32(values) => (all(&values, f64::from), real()),
        DecodingResult::F64(values) => (values, real()),
    }
}

impl RowSource for Pictures {
    fn path(&self) -> &Path {
        &self.name
    }

    fn n_rows(&self) -> usize {
        self.places.len()
    }

    fn n_sites(&self) -> usize {
        self.grid.iter().product()
    }

    fn grid(&self) -> Option<&[usize]> {
        Some(&self.grid)
    }

    fn row_path(&self, row: usize) -> &Path {
        &self.places[row].0
    }

    fn row_number(&self, row: usize) -> usize {
        self.places[row].1
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        rows_asked_for(self, first_row, out.len());
        self.values.copy_to(first_row * self.n_sites(), out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reading, checksum, open, open_runs};
    use super::*;
    use std::io::Cursor;
    use tiff::encoder::{TiffEncoder, colortype};

    fn png(width: u32, height: u32, colours: png::ColorType, depth: png::BitDepth, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(colours);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    fn grey(value: u8) -> Vec<u8> {
        png(3, 2, png::ColorType::Grayscale, png::BitDepth::Eight, &[value, 1, 2, 3, 4, 5])
    }

    fn tiff(pages: &[[f32; 6]]) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let mut encoder = TiffEncoder::new(&mut bytes).unwrap();
        pages.iter().for_each(|page| encoder.write_image::<colortype::Gray32Float>(3, 2, page).unwrap());
        bytes.into_inner()
    }

    fn all_rows(source: &dyn RowSource) -> Vec<f64> {
        let mut out = vec![0.0; source.n_rows() * source.n_sites()];
        source.read_rows(0, &mut out).unwrap();
        out
    }

    #[test]
    fn pages_are_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stack.TIF");
        let pages = [[0.5, 1.0, 2.0, 3.0, 4.0, 5.0], [-1.0, 0.0, 0.0, 0.0, 0.0, 9.25]];
        fs::write(&path, tiff(&pages)).unwrap();
        let source = open(&path).unwrap();
        assert_eq!((source.n_rows(), source.grid()), (2, Some(&[2, 3][..])));
        assert_eq!(all_rows(source.as_ref()), pages.concat().iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
        // Two stacks are two runs, two single pages the rows of one.
        let other = folder.path().join("other.tiff");
        fs::write(&other, tiff(&pages)).unwrap();
        assert_eq!(open_runs(&[path.clone(), other.clone()], &Reading::default()).unwrap().len(), 2);
        fs::write(&path, tiff(&pages[..1])).unwrap();
        fs::write(&other, tiff(&pages[1..])).unwrap();
        let runs = open_runs(&[path, other], &Reading::default()).unwrap();
        assert_eq!((runs.len(), runs[0].n_rows(), runs[0].row_number(1)), (1, 2, 0));
    }

    #[test]
    fn a_folder_is_read_in_natural_order() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        assert!(open(folder.path()).err().unwrap().to_string().contains("is a folder without .png"));
        for (at, value) in [(10, 3), (2, 2), (1, 1)] {
            fs::write(name(&format!("img{at}.png")), grey(value)).unwrap();
        }
        fs::write(name("notes.txt"), "not a picture").unwrap();
        let source = open(folder.path()).unwrap();
        let first: Vec<f64> = all_rows(source.as_ref()).chunks(6).map(|row| row[0]).collect();
        assert_eq!(first, [1.0, 2.0, 3.0]);
        assert!(source.row_path(2).ends_with("img10.png"));
        let before = checksum(folder.path()).unwrap();
        fs::write(name("img2.png"), grey(7)).unwrap();
        assert_ne!(checksum(folder.path()).unwrap(), before);
        let wide = png(6, 1, png::ColorType::Grayscale, png::BitDepth::Eight, &[0; 6]);
        fs::write(name("img3.png"), wide).unwrap();
        let error = open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("img3.png") && error.contains("1x6") && error.contains("2x3"), "{error}");
    }

    #[test]
    fn depths_and_colours_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let rows = |bytes: Vec<u8>| {
            fs::write(&path, bytes).unwrap();
            let source = open(&path).unwrap();
            (source.grid().unwrap().to_vec(), all_rows(source.as_ref()))
        };
        let sixteen = png(2, 1, png::ColorType::Grayscale, png::BitDepth::Sixteen, &[1, 0, 255, 255]);
        assert_eq!(rows(sixteen), (vec![1, 2], vec![256.0, 65535.0]));
        let colours = png(1, 2, png::ColorType::Rgb, png::BitDepth::Eight, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(rows(colours), (vec![2, 1, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let bits = png(8, 1, png::ColorType::Grayscale, png::BitDepth::One, &[0b1010_0000]);
        assert_eq!(rows(bits).1[..4], [255.0, 0.0, 255.0, 0.0]);
    }

    #[test]
    fn depths_are_not_mixed() {
        let folder = tempfile::tempdir().unwrap();
        let sixteen = png(3, 2, png::ColorType::Grayscale, png::BitDepth::Sixteen, &[0; 12]);
        fs::write(folder.path().join("a1.png"), grey(1)).unwrap();
        fs::write(folder.path().join("a2.png"), sixteen).unwrap();
        let told = open(folder.path()).err().unwrap().to_string();
        assert!(told.contains("a2.png: page 1: holds 16-bit") && told.contains("a1.png holds 8-bit"), "{told}");
        fs::remove_file(folder.path().join("a2.png")).unwrap();
        fs::write(folder.path().join("a3.tif"), tiff(&[[0.5; 6]])).unwrap();
        let told = open(folder.path()).err().unwrap().to_string();
        assert!(told.contains("a3.tif") && told.contains("decimals") && told.contains("a1.png holds 8-bit"), "{told}");
    }

    /// A page of 8 x 1 pixels of one bit, little-endian.
    fn one_bit_tiff() -> Vec<u8> {
        let tags: [(u16, u16, u32); 8] =
            [(256, 3, 8), (257, 3, 1), (258, 3, 1), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1), (279, 4, 1)];
        let mut bytes = b"II*\0".to_vec();
        bytes.extend(10_u32.to_le_bytes());
        bytes.extend([0b1010_0000, 0]);
        bytes.extend((tags.len() as u16).to_le_bytes());
        for (tag, kind, value) in tags {
            bytes.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
            bytes.extend([1_u32.to_le_bytes(), value.to_le_bytes()].concat());
        }
        bytes.extend(0_u32.to_le_bytes());
        bytes
    }

    #[test]
    fn single_bits_are_named_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bits.tif");
        fs::write(&path, one_bit_tiff()).unwrap();
        let told = open(&path).err().unwrap().to_string();
        assert!(told.contains("page 1 has 1 bits a pixel; 8, 16") && told.contains("convert('L')"), "{told}");
    }

    #[test]
    fn damage_is_an_error_or_another_picture() {
        let folder = tempfile::tempdir().unwrap();
        for (name, whole) in [("a.png", grey(9)), ("a.tif", tiff(&[[1.0; 6], [2.0; 6]]))] {
            let path = folder.path().join(name);
            for length in 0..whole.len() {
                fs::write(&path, &whole[..length]).unwrap();
                if let Err(error) = open(&path) {
                    assert!(error.to_string().contains(name), "{error}");
                }
            }
            for place in 0..whole.len() {
                for flip in [1, 0x10, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[place] ^= flip;
                    fs::write(&path, &bytes).unwrap();
                    let _ = open(&path).map(|source| all_rows(source.as_ref()));
                }
            }
        }
    }

    #[test]
    fn sizes_that_no_memory_holds_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.png");
        let mut bytes = grey(1);
        bytes[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        let mut checksum = flate2::Crc::new();
        checksum.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&checksum.sum().to_be_bytes());
        fs::write(&path, bytes).unwrap();
        let error = open(&path).err().unwrap().to_string();
        assert!(error.contains("huge.png"), "{error}");
    }
}
