//! NIfTI-1 images: the header with its place in space, and a writer; rows are read by [`super::read::nifti`].

pub mod header;
pub mod space;
pub mod write;

#[cfg(test)]
pub(crate) mod by_hand;

pub use header::{Header, Scaling};
pub use space::{Affine, Space, show_affine};
pub use write::{NiftiWriter, write_nifti, write_volume};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 348;

/// The first place where values may stand: after the header and four bytes that tell whether extensions follow it.
pub const EARLIEST_VALUES: u64 = 352;

/// Where the fields that we use stand in the header.
pub(crate) mod place {
    pub const SIZE: usize = 0;
    pub const DIM: usize = 40;
    pub const DATATYPE: usize = 70;
    pub const BITPIX: usize = 72;
    pub const PIXDIM: usize = 76;
    pub const VOX_OFFSET: usize = 108;
    pub const SCL_SLOPE: usize = 112;
    pub const SCL_INTER: usize = 116;
    pub const UNITS: usize = 123;
    pub const DESCRIP: usize = 148;
    pub const QFORM_CODE: usize = 252;
    pub const SFORM_CODE: usize = 254;
    pub const QUATERNION: usize = 256;
    pub const QOFFSET: usize = 268;
    pub const SROWS: usize = 280;
    pub const MAGIC: usize = 344;
}
