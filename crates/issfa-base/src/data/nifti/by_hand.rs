//! NIfTI-1 files made byte by byte, for tests: places and codes are written out here, apart from the code they test.

use std::io::Write;

/// Everything a file says, right or wrong. Volume `t` has `100 x + 10 y + z + 1000 t` at (x, y, z), before scaling.
#[derive(Clone)]
pub struct Image {
    pub big_endian: bool,
    pub header_size: i32,
    pub dim: [i16; 8],
    pub datatype: i16,
    pub pixdim: [f32; 8],
    pub vox_offset: f32,
    pub scaling: [f32; 2],
    pub units: u8,
    pub qform_code: i16,
    pub sform_code: i16,
    pub quaternion: [f32; 3],
    pub qoffset: [f32; 3],
    pub srows: [[f32; 4]; 3],
    pub magic: [u8; 4],
    /// What stands between the header and the values.
    pub extensions: Vec<u8>,
}

impl Default for Image {
    /// Two volumes of 3x4x5 float32.
    fn default() -> Image {
        Image {
            big_endian: false,
            header_size: 348,
            dim: [4, 3, 4, 5, 2, 1, 1, 1],
            datatype: 16,
            pixdim: [1.0, 2.0, 3.0, 4.0, 2.5, 0.0, 0.0, 0.0],
            vox_offset: 352.0,
            scaling: [0.0, 0.0],
            units: 2 | 8,
            qform_code: 0,
            sform_code: 0,
            quaternion: [0.0; 3],
            qoffset: [0.0; 3],
            srows: [[2.0, 0.0, 0.0, -10.0], [0.0, 3.0, 0.0, -20.0], [0.0, 0.0, 4.0, -30.0]],
            magic: *b"n+1\0",
            extensions: vec![0; 4],
        }
    }
}

impl Image {
    fn put<const SIZE: usize>(&self, header: &mut [u8], at: usize, mut little: [u8; SIZE]) {
        if self.big_endian {
            little.reverse();
        }
        header[at..at + SIZE].copy_from_slice(&little);
    }

    fn put_floats(&self, header: &mut [u8], at: usize, values: &[f32]) {
        for (place, value) in values.iter().enumerate() {
            self.put(header, at + 4 * place, value.to_le_bytes());
        }
    }

    pub fn header(&self) -> Vec<u8> {
        let mut header = vec![0; 348];
        let bytes = &mut header;
        self.put(bytes, 0, self.header_size.to_le_bytes());
        for (place, length) in self.dim.iter().enumerate() {
            self.put(bytes, 40 + 2 * place, length.to_le_bytes());
        }
        self.put(bytes, 70, self.datatype.to_le_bytes());
        self.put_floats(bytes, 76, &self.pixdim);
        self.put_floats(bytes, 108, &[self.vox_offset, self.scaling[0], self.scaling[1]]);
        bytes[123] = self.units;
        self.put(bytes, 252, self.qform_code.to_le_bytes());
        self.put(bytes, 254, self.sform_code.to_le_bytes());
        self.put_floats(bytes, 256, &self.quaternion);
        self.put_floats(bytes, 268, &self.qoffset);
        self.put_floats(bytes, 280, self.srows.as_flattened());
        bytes[344..348].copy_from_slice(&self.magic);
        header
    }

    /// Lengths along x, y, z and time.
    pub fn lengths(&self) -> [usize; 4] {
        std::array::from_fn(|axis| if axis < self.dim[0] as usize { self.dim[axis + 1] as usize } else { 1 })
    }

    /// The value at (x, y, z) of volume t as it is meant, after scaling.
    pub fn value(&self, [x, y, z, t]: [usize; 4]) -> f64 {
        let stored = self.stored([x, y, z, t]);
        let [slope, intercept] = self.scaling.map(f64::from);
        if slope == 0.0 || !slope.is_finite() { stored } else { slope * stored + intercept }
    }

    /// Small types hold what fits into them.
    fn stored(&self, [x, y, z, t]: [usize; 4]) -> f64 {
        let value = (100 * x + 10 * y + z + 1000 * t) as f64;
        match self.datatype {
            2 => value % 256.0,
            256 => value % 256.0 - 128.0,
            4 | 8 | 1024 | 16 | 64 => 0.0 - value,
            _ => value,
        }
    }

    fn append_stored(&self, value: f64, bytes: &mut Vec<u8>) {
        let first = bytes.len();
        match self.datatype {
            2 => bytes.push(value as u8),
            256 => bytes.extend((value as i8).to_le_bytes()),
            4 => bytes.extend((value as i16).to_le_bytes()),
            512 => bytes.extend((value as u16).to_le_bytes()),
            8 => bytes.extend((value as i32).to_le_bytes()),
            768 => bytes.extend((value as u32).to_le_bytes()),
            1024 => bytes.extend((value as i64).to_le_bytes()),
            1280 => bytes.extend((value as u64).to_le_bytes()),
            16 => bytes.extend((value as f32).to_le_bytes()),
            _ => bytes.extend(value.to_le_bytes()),
        }
        if self.big_endian {
            bytes[first..].reverse();
        }
    }

    /// The whole file; x runs fastest.
    pub fn file(&self) -> Vec<u8> {
        let mut file = self.header();
        file.extend(&self.extensions);
        let [nx, ny, nz, nt] = self.lengths();
        for t in 0..nt {
            for z in 0..nz {
                for y in 0..ny {
                    for x in 0..nx {
                        self.append_stored(self.stored([x, y, z, t]), &mut file);
                    }
                }
            }
        }
        file
    }

    /// All volumes as rows in C order: z runs fastest.
    pub fn rows(&self) -> Vec<f64> {
        let [nx, ny, nz, nt] = self.lengths();
        let mut rows = Vec::new();
        for t in 0..nt {
            for x in 0..nx {
                for y in 0..ny {
                    rows.extend((0..nz).map(|z| self.value([x, y, z, t])));
                }
            }
        }
        rows
    }
}

/// Bytes as one member of a gzip file.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
