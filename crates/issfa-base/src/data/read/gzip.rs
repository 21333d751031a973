//! A gzip file as a stream: its members one after the other, and what follows them left alone.

use std::fs::File;
use std::io::{self, BufReader, Read};

use flate2::bufread::GzDecoder;

use crate::data::nifti::header::GZIP_MAGIC;

/// Bytes of the compressed file read at once.
const BUFFER: usize = 1 << 16;

/// The bytes that a gzip file stands for.
pub struct GzipStream {
    /// `None` after the last member.
    member: Option<GzDecoder<BufReader<File>>>,
}

impl GzipStream {
    /// From the start of a file.
    pub fn new(file: File) -> GzipStream {
        GzipStream { member: Some(GzDecoder::new(BufReader::with_capacity(BUFFER, file))) }
    }

    /// Reads the rest of the current member, whose checksum is compared at its end.
    pub fn check_member(&mut self) -> io::Result<()> {
        let Some(member) = &mut self.member else { return Ok(()) };
        io::copy(member, &mut io::sink()).map(drop)
    }

    /// After a member comes another, the end, or bytes that are no gzip: padding, which `gzip` ignores too.
    fn next_member(&mut self) -> io::Result<()> {
        let Some(member) = self.member.take() else { return Ok(()) };
        let mut rest = member.into_inner();
        let mut start = [0; GZIP_MAGIC.len()];
        let n_read = read_up_to(&mut rest, &mut start)?;
        rest.seek_relative(-(n_read as i64))?;
        if start == GZIP_MAGIC {
            self.member = Some(GzDecoder::new(rest));
        }
        Ok(())
    }
}

impl Read for GzipStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            match member.read(out)? {
                0 => self.next_member()?,
                n_bytes => return Ok(n_bytes),
            }
        }
        Ok(0)
    }
}

/// Fills as much of `out` as there is.
pub fn read_up_to(file: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut n_read = 0;
    while n_read < out.len() {
        match file.read(&mut out[n_read..]) {
            Ok(0) => break,
            Ok(n_bytes) => n_read += n_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(n_read)
}
