//! The 348 bytes that open a NIfTI-1 file, read and checked.

use std::path::Path;

use super::space::{Affine, Space};
use super::{EARLIEST_VALUES, HEADER_BYTES, place};
use crate::data::read::element::{ByteOrder, Encoding, Kind};
use crate::error::{Error, Result};

/// The first bytes of every gzip file.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What stands in the first field of NIfTI-2 headers.
const NIFTI_2_BYTES: i32 = 540;

/// What to do about a header that does not hold together.
const SAVE_AGAIN: &str = "copy the file again from where it came, or save it again with the program that made it";

/// What a NIfTI-1 file holds, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// `dim[0]`: up to 3 for a single volume, 4 and more for volumes over time.
    pub n_axes: usize,
    /// Sites along x, y and z.
    pub grid: [usize; 3],
    /// Volumes over time; 1 for a single image.
    pub n_volumes: usize,
    /// How values are stored.
    pub element: Encoding,
    /// Where the values begin.
    pub data_start: u64,
    /// None where stored values stand for themselves.
    pub scaling: Option<Scaling>,
    /// Where the voxels lie.
    pub space: Space,
}

/// Stored values stand for `slope * stored + intercept`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// `scl_slope`.
    pub slope: f64,
    /// `scl_inter`.
    pub intercept: f64,
}

impl Header {
    /// Reads the header from the first bytes of a file, of which it needs 348.
    pub fn parse(path: &Path, start: &[u8]) -> Result<Header> {
        parse(start).map_err(|problem| Error::malformed(path, problem))
    }

    /// Whether single precision holds every value exactly.
    pub fn is_single(&self) -> bool {
        self.element.kind.is_single() && self.scaling.is_none()
    }

    /// Sites of a volume.
    pub fn n_sites(&self) -> usize {
        self.grid.iter().product()
    }

    /// Whether the file is one volume without an axis of time.
    pub fn is_single_volume(&self) -> bool {
        self.n_axes <= 3
    }

    /// Bytes of a volume.
    pub fn volume_bytes(&self) -> u64 {
        (self.n_sites() * self.element.kind.size()) as u64
    }

    /// Bytes of the file up to the end of its values; known not to overflow.
    pub fn file_bytes(&self) -> u64 {
        self.data_start + self.volume_bytes() * self.n_volumes as u64
    }

    /// See [`Space::affine`].
    pub fn affine(&self) -> Affine {
        self.space.affine()
    }

    /// See [`Space::code`].
    pub fn space_code(&self) -> i16 {
        self.space.code()
    }

    /// The sizes, for messages: `64x64x36, 200 volumes`.
    pub(crate) fn show_sizes(&self) -> String {
        format!("{}, {} volumes", crate::data::grid::show_grid(&self.grid), self.n_volumes)
    }
}

/// Within the header, whose errors get the file's name at the end.
type Parsed<T> = std::result::Result<T, String>;

fn parse(start: &[u8]) -> Parsed<Header> {
    let fields = Fields::recognise(start)?;
    let (n_axes, sizes) = fields.sizes()?;
    let header = Header {
        n_axes,
        grid: [sizes[0], sizes[1], sizes[2]],
        n_volumes: sizes[3],
        element: fields.element()?,
        data_start: fields.data_start()?,
        scaling: fields.scaling()?,
        space: fields.space()?,
    };
    let counts = [header.element.kind.size()].into_iter().chain(sizes);
    let n_bytes = counts.map(|count| count as u64).try_fold(1_u64, u64::checked_mul);
    let end = n_bytes.and_then(|n_bytes| n_bytes.checked_add(header.data_start));
    if end.is_none_or(|end| usize::try_from(end).is_err()) {
        let sizes = header.show_sizes();
        return Err(format!("its sizes ({sizes}) are too large for any file; {SAVE_AGAIN}"));
    }
    Ok(header)
}

/// The bytes of a header known to be NIfTI-1's.
struct Fields<'a> {
    bytes: &'a [u8; HEADER_BYTES],
    order: ByteOrder,
}

impl Fields<'_> {
    fn recognise(start: &[u8]) -> Parsed<Fields<'_>> {
        if start.is_empty() {
            return Err(format!("the file is empty (0 bytes); {SAVE_AGAIN}"));
        }
        if start.starts_with(&GZIP_MAGIC) {
            return Err("is compressed with gzip; give it the ending .nii.gz".into());
        }
        let Some(bytes) = start.first_chunk::<HEADER_BYTES>() else {
            let n = start.len();
            return Err(format!(
                "is cut short: its {n} bytes end within the {HEADER_BYTES} of the header; {SAVE_AGAIN}"
            ));
        };
        let orders = [ByteOrder::Little, ByteOrder::Big].map(|order| Fields { bytes, order });
        let sizes = orders.each_ref().map(|fields| fields.i32(place::SIZE));
        if sizes.contains(&NIFTI_2_BYTES) {
            return Err("is NIfTI-2 (a header of 540 bytes), which is not read; save it as NIfTI-1, for example with \
                        nibabel: nib.Nifti1Image(image.dataobj, image.affine).to_filename('new.nii.gz')"
                .into());
        }
        let Some(fields) = orders.into_iter().find(|fields| fields.i32(place::SIZE) == HEADER_BYTES as i32) else {
            let size = sizes[0];
            return Err(format!(
                "is not a NIfTI-1 file: it begins with the number {size}, not {HEADER_BYTES}; give a NIfTI-1 image"
            ));
        };
        fields.check_magic()?;
        Ok(fields)
    }

    fn check_magic(&self) -> Parsed<()> {
        match self.array::<4>(place::MAGIC) {
            magic if magic == *b"n+1\0" => Ok(()),
            magic if magic == *b"ni1\0" => {
                Err("is the header of a .hdr/.img pair, which is not read; join the two into one \
                 .nii.gz file, for example with fslchfiletype NIFTI_GZ or by loading and saving it with nibabel"
                    .into())
            }
            magic => Err(format!(
                "is not a NIfTI-1 file: its magic is \"{}\", not \"n+1\\0\" (ANALYZE images have none); save it as NIfTI-1",
                magic.escape_ascii()
            )),
        }
    }

    /// The number of axes, and the sizes x, y, z and volumes, 1 where an axis is absent.
    fn sizes(&self) -> Parsed<(usize, [usize; 4])> {
        let dim: [i16; 8] = std::array::from_fn(|at| self.i16(place::DIM + 2 * at));
        let wrong = |problem: String| Err(format!("its header has dim = {dim:?}: {problem}"));
        let n_axes = match usize::try_from(dim[0]) {
            Ok(n_axes @ 1..=7) => n_axes,
            _ => {
                return wrong(format!(
                    "the first number counts the axes and must be 1 to 7, not {}; {SAVE_AGAIN}",
                    dim[0]
                ));
            }
        };
        let mut sizes = [1; 4];
        for axis in 1..=n_axes {
            match (axis, usize::try_from(dim[axis])) {
                (_, Err(_) | Ok(0)) => {
                    return wrong(format!(
                        "axis {axis} has the length {}, but must have at least 1; {SAVE_AGAIN}",
                        dim[axis]
                    ));
                }
                (1..=4, Ok(length)) => sizes[axis - 1] = length,
                (_, Ok(1)) => {}
                (_, Ok(length)) => {
                    return wrong(format!(
                        "axis {axis} has the length {length}, but only x, y, z and time are read; split the image along axis {axis}"
                    ));
                }
            }
        }
        Ok((n_axes, sizes))
    }

    fn element(&self) -> Parsed<Encoding> {
        let kind = match self.i16(place::DATATYPE) {
            2 => Kind::U8,
            4 => Kind::I16,
            8 => Kind::I32,
            16 => Kind::F32,
            64 => Kind::F64,
            256 => Kind::I8,
            512 => Kind::U16,
            768 => Kind::U32,
            1024 => Kind::I64,
            1280 => Kind::U64,
            code => {
                let name = datatype_name(code);
                return Err(format!("holds {name} (datatype {code}), which cannot be read; save it as float32"));
            }
        };
        Ok(Encoding { kind, order: self.order })
    }

    fn data_start(&self) -> Parsed<u64> {
        let offset = f64::from(self.f32(place::VOX_OFFSET));
        if offset.fract() != 0.0 || !(EARLIEST_VALUES as f64..2f64.powi(62)).contains(&offset) {
            return Err(format!(
                "its header says that the values begin at byte {offset} (vox_offset), but that must be a whole number of at \
                 least {EARLIEST_VALUES}; {SAVE_AGAIN}"
            ));
        }
        Ok(offset as u64)
    }

    fn scaling(&self) -> Parsed<Option<Scaling>> {
        let [slope, intercept] = [place::SCL_SLOPE, place::SCL_INTER].map(|at| f64::from(self.f32(at)));
        if slope == 0.0 || !slope.is_finite() {
            return Ok(None);
        }
        if !intercept.is_finite() {
            return Err(format!(
                "its header scales values by {slope} and adds {intercept} (scl_inter), which is no number; {SAVE_AGAIN}"
            ));
        }
        let changes_nothing = slope == 1.0 && intercept == 0.0;
        Ok((!changes_nothing).then_some(Scaling { slope, intercept }))
    }

    fn space(&self) -> Parsed<Space> {
        let space = Space {
            pixdim: std::array::from_fn(|at| self.f32(place::PIXDIM + 4 * at)),
            units: self.bytes[place::UNITS],
            qform_code: self.i16(place::QFORM_CODE),
            quaternion: std::array::from_fn(|at| self.f32(place::QUATERNION + 4 * at)),
            qoffset: std::array::from_fn(|at| self.f32(place::QOFFSET + 4 * at)),
            sform_code: self.i16(place::SFORM_CODE),
            srows: std::array::from_fn(|line| std::array::from_fn(|at| self.f32(place::SROWS + 16 * line + 4 * at))),
        };
        if space.affine().iter().flatten().all(|entry| entry.is_finite()) {
            return Ok(space);
        }
        let form = if space.sform_code > 0 { "sform" } else { "qform" };
        Err(format!(
            "its {form} has entries that are not finite; set it right (for example with fslorient), or set its code to 0"
        ))
    }

    fn array<const SIZE: usize>(&self, at: usize) -> [u8; SIZE] {
        *self.bytes[at..].first_chunk().expect("every field lies within the header")
    }

    /// Little-endian bytes of a field.
    fn ordered<const SIZE: usize>(&self, at: usize) -> [u8; SIZE] {
        let mut bytes = self.array(at);
        if self.order == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }

    fn i16(&self, at: usize) -> i16 {
        i16::from_le_bytes(self.ordered(at))
    }

    fn i32(&self, at: usize) -> i32 {
        i32::from_le_bytes(self.ordered(at))
    }

    fn f32(&self, at: usize) -> f32 {
        f32::from_le_bytes(self.ordered(at))
    }
}

fn datatype_name(code: i16) -> &'static str {
    match code {
        0 => "values of unknown type",
        1 => "single bits",
        32 | 1792 | 2048 => "complex numbers",
        128 | 2304 => "RGB colours",
        1536 => "float128 numbers",
        _ => "values of a type that NIfTI-1 does not have",
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_hand::Image;
    use super::*;

    fn header(image: &Image) -> Header {
        Header::parse(Path::new("image.nii"), &image.header()).unwrap()
    }

    fn problem(image: &Image) -> String {
        let error = Header::parse(Path::new("image.nii"), &image.header()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
        assert!(error.to_string().contains("image.nii"));
        error.to_string()
    }

    #[test]
    fn both_byte_orders_say_the_same() {
        for big_endian in [false, true] {
            let image = Image { dim: [4, 5, 6, 7, 8, 1, 1, 1], big_endian, scaling: [2.0, -1.0], ..Image::default() };
            let found = header(&image);
            assert_eq!((found.n_axes, found.grid, found.n_volumes, found.data_start), (4, [5, 6, 7], 8, 352));
            assert_eq!(found.element.kind, Kind::F32);
            assert_eq!(found.scaling, Some(Scaling { slope: 2.0, intercept: -1.0 }));
            assert_eq!(found.file_bytes(), 352 + 5 * 6 * 7 * 8 * 4);
            assert_eq!(found.space.repetition_seconds(), Some(2.5));
            assert_eq!(found.space.voxel_sizes(), [2.0, 3.0, 4.0]);
        }
    }

    #[test]
    fn absent_axes_have_length_one() {
        let sizes = |dim| {
            let found = header(&Image { dim, ..Image::default() });
            (found.grid, found.n_volumes, found.is_single_volume())
        };
        assert_eq!(sizes([1, 9, 0, 0, 0, 0, 0, 0]), ([9, 1, 1], 1, true));
        assert_eq!(sizes([2, 9, 8, 0, -4, 7, 7, 7]), ([9, 8, 1], 1, true));
        assert_eq!(sizes([3, 9, 8, 7, 99, 0, 0, 0]), ([9, 8, 7], 1, true));
        assert_eq!(sizes([4, 9, 8, 7, 1, 0, 0, 0]), ([9, 8, 7], 1, false));
        assert_eq!(sizes([7, 9, 8, 7, 6, 1, 1, 1]), ([9, 8, 7], 6, false));
    }

    #[test]
    fn wrong_sizes_are_named() {
        let with = |dim| problem(&Image { dim, ..Image::default() });
        for n_axes in [0, 8, -1, i16::MAX, i16::MIN] {
            assert!(with([n_axes, 1, 1, 1, 1, 1, 1, 1]).contains(&format!("must be 1 to 7, not {n_axes}")));
        }
        assert!(with([4, 3, -2, 2, 2, 1, 1, 1]).contains("axis 2 has the length -2"));
        assert!(with([4, 3, 2, 2, 0, 1, 1, 1]).contains("axis 4 has the length 0"));
        assert!(with([5, 3, 2, 2, 2, 3, 1, 1]).contains("axis 5 has the length 3, but only x, y, z and time"));
        assert!(with([5, 3, 2, 2, 2, 0, 1, 1]).contains("axis 5 has the length 0"));
    }

    #[test]
    fn sizes_that_overflow_nothing_are_still_exact() {
        let dim = [4, i16::MAX, i16::MAX, i16::MAX, i16::MAX, 1, 1, 1];
        let found = Header::parse(Path::new("i"), &Image { dim, datatype: 64, ..Image::default() }.header());
        // 9.2e18 bytes: countable in 64 bits, and refused when compared with the file.
        assert!(found.is_ok_and(|header| header.file_bytes() == 352 + 8 * 32767_u64.pow(4)));
    }

    #[test]
    fn unreadable_types_are_named() {
        let with = |datatype| problem(&Image { datatype, ..Image::default() });
        for (code, name) in [
            (32, "complex numbers"),
            (1792, "complex"),
            (2048, "complex"),
            (128, "RGB"),
            (2304, "RGB"),
            (1536, "float128"),
            (1, "bits"),
            (0, "unknown"),
            (-7, "does not have"),
        ] {
            assert!(with(code).contains(name) && with(code).contains(&format!("datatype {code}")), "{}", with(code));
        }
    }

    #[test]
    fn values_begin_after_the_header() {
        let with = |vox_offset| Image { vox_offset, ..Image::default() };
        for offset in [0.0, 347.0, 351.0, -352.0, 352.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            assert!(problem(&with(offset)).contains("vox_offset"), "{offset}");
        }
        assert_eq!(header(&with(1024.0)).data_start, 1024);
    }

    #[test]
    fn scaling_only_where_there_is_some() {
        let with = |scaling| Image { scaling, ..Image::default() };
        for none in [[0.0, 5.0], [f32::NAN, 5.0], [f32::INFINITY, f32::NAN], [1.0, 0.0]] {
            assert_eq!(header(&with(none)).scaling, None, "{none:?}");
        }
        assert_eq!(header(&with([1.0, 3.0])).scaling, Some(Scaling { slope: 1.0, intercept: 3.0 }));
        assert!(problem(&with([2.0, f32::NAN])).contains("scl_inter"));
    }

    #[test]
    fn other_formats_are_told_what_to_do() {
        assert!(problem(&Image { magic: *b"ni1\0", ..Image::default() }).contains(".hdr/.img pair"));
        assert!(problem(&Image { magic: [0; 4], ..Image::default() }).contains("ANALYZE"));
        assert!(problem(&Image { magic: *b"n+2\0", ..Image::default() }).contains("\"n+2\\x00\""));
        for big_endian in [false, true] {
            let newer = Image { header_size: 540, big_endian, ..Image::default() };
            assert!(problem(&newer).contains("NIfTI-2") && problem(&newer).contains("nibabel"));
        }
        assert!(problem(&Image { header_size: 349, ..Image::default() }).contains("begins with the number 349"));
        let of = |bytes: &[u8]| Header::parse(Path::new("i"), bytes).unwrap_err().to_string();
        assert!(of(&[]).contains("empty"));
        assert!(of(&[0x1f, 0x8b, 8]).contains(".nii.gz"));
        assert!(of(&Image::default().header()[..347]).contains("347 bytes end within the 348"));
    }

    #[test]
    fn affines_that_are_no_numbers_are_refused() {
        let mut image = Image { sform_code: 1, ..Image::default() };
        image.srows[1][2] = f32::NAN;
        assert!(problem(&image).contains("sform"));
        image.sform_code = 0;
        assert_eq!(header(&image).space_code(), 0);
        image = Image { qform_code: 1, qoffset: [0.0, f32::INFINITY, 0.0], ..Image::default() };
        assert!(problem(&image).contains("qform"));
    }
}
