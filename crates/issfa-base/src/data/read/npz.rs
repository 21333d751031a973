//! NumPy's .npz archives: one of their arrays, `FILE.npz` or `FILE.npz:NAME`, unpacked into memory.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, FileReader, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveEntryWayfinder};

use super::npy::NpyRows;
use super::open_file;
use crate::data::memory;
use crate::error::{Error, Result};

/// What stands between a file and the name of an array in it.
const MARK: &str = ".npz:";

/// Arrays that a message names.
const SHOWN: usize = 20;

/// An array of an archive.
struct Member {
    name: String,
    n_bytes: u64,
    method: CompressionMethod,
    place: ZipArchiveEntryWayfinder,
}

/// The file and the name of the array in `FILE.npz:NAME`; none where a file has that very name.
pub fn split(path: &Path) -> Option<(PathBuf, String)> {
    let text = path.to_str().filter(|_| !path.is_file())?;
    let at = text.to_ascii_lowercase().rfind(MARK)?;
    let end = at + MARK.len();
    Some((text[..end - 1].into(), text[end..].to_string()))
}

/// Opens an array; the path may name one.
pub fn open(path: &Path) -> Result<NpyRows> {
    let (file, wanted) = split(path).map_or((path.to_path_buf(), None), |(file, name)| (file, Some(name)));
    let damaged = |error: &dyn std::fmt::Display| {
        Error::malformed(&file, format!("is not a whole .npz archive ({error}); save or copy it again"))
    };
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(open_file(&file)?, &mut buffer).map_err(|error| damaged(&error))?;
    let members = members(&archive, &mut buffer).map_err(|error| damaged(&error))?;
    let member = choose(&file, &members, wanted.as_deref())?;
    memory::check(&format!("{}, unpacked,", path.display()), member.n_bytes)?;
    let entry = archive.get_entry(member.place).map_err(|error| damaged(&error))?;
    let unpacked: Box<dyn Read> = match member.method {
        CompressionMethod::STORE => Box::new(entry.reader()),
        CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(entry.reader())),
        other => {
            let problem =
                format!("'{}' is compressed in a way that is not read ({other:?}); use numpy.savez", member.name);
            return Err(Error::malformed(&file, problem));
        }
    };
    let mut bytes = Vec::new();
    // Never more than was promised: an archive may unpack to anything.
    let read = entry.verifying_reader(unpacked).take(member.n_bytes.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| damaged(&error))?;
    NpyRows::of_unpacked(path, bytes)
}

/// The arrays of an archive, in its order.
fn members(archive: &ZipArchive<FileReader>, buffer: &mut [u8]) -> std::result::Result<Vec<Member>, rawzip::Error> {
    let (mut list, mut entries) = (Vec::new(), archive.entries(buffer));
    while let Some(entry) = entries.next_entry()? {
        let name = String::from_utf8_lossy(entry.file_path().as_ref()).into_owned();
        if let Some(name) = name.strip_suffix(".npy") {
            let (n_bytes, method) = (entry.uncompressed_size_hint(), entry.compression_method());
            list.push(Member { name: name.into(), n_bytes, method, place: entry.wayfinder() });
        }
    }
    Ok(list)
}

/// The one that is wanted, or the only one.
fn choose<'a>(file: &Path, members: &'a [Member], wanted: Option<&str>) -> Result<&'a Member> {
    let shown: Vec<&str> = members.iter().take(SHOWN).map(|member| member.name.as_str()).collect();
    let all = shown.join(", ") + if members.len() > SHOWN { ", ..." } else { "" };
    match (members, wanted) {
        ([], _) => Err(Error::malformed(file, "holds no array; numpy.savez writes archives that do")),
        ([only], None) => Ok(only),
        ([first, ..], None) => {
            let example = format!("{}:{}", file.display(), first.name);
            Err(Error::malformed(file, format!("holds {} arrays ({all}); name one, as in {example}", members.len())))
        }
        (_, Some(name)) => members
            .iter()
            .find(|member| member.name == name)
            .ok_or_else(|| Error::malformed(file, format!("has no array '{}'; it has {all}", name.escape_debug()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RowSource, checksum, open as open_rows};
    use super::*;
    use crate::data::write::write_npy_f64;
    use std::fs;
    use std::io::Write;

    /// An archive as NumPy writes it, `savez` or `savez_compressed`.
    fn archive(arrays: &[(&str, &[u8])], is_compressed: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = rawzip::ZipArchiveWriter::new(&mut bytes);
        for (name, array) in arrays {
            let method = if is_compressed { CompressionMethod::DEFLATE } else { CompressionMethod::STORE };
            let (mut entry, config) =
                writer.new_file(format!("{name}.npy")).compression_method(method).start().unwrap();
            let descriptor = if is_compressed {
                let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
                let mut inside = config.wrap(encoder);
                inside.write_all(array).unwrap();
                let (encoder, descriptor) = inside.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut inside = config.wrap(&mut entry);
                inside.write_all(array).unwrap();
                inside.finish().unwrap().1
            };
            entry.finish(descriptor).unwrap();
        }
        writer.finish().unwrap();
        bytes
    }

    fn array(shape: &[usize], values: &[f64]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_npy_f64(&path, shape, values).unwrap();
        fs::read(path).unwrap()
    }

    #[test]
    fn arrays_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npz");
        let (one, two) = (array(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), array(&[1, 2, 3], &[5.0; 6]));
        for is_compressed in [false, true] {
            fs::write(&path, archive(&[("one", &one)], is_compressed)).unwrap();
            let source = open_rows(&path).unwrap();
            let mut row = [0.0; 2];
            source.read_rows(1, &mut row).unwrap();
            assert_eq!((source.n_rows(), row), (2, [3.0, 4.0]));

            fs::write(&path, archive(&[("one", &one), ("two", &two)], is_compressed)).unwrap();
            let named = |name: &str| PathBuf::from(format!("{}:{name}", path.display()));
            assert_eq!(open_rows(&named("two")).unwrap().grid(), Some(&[2, 3][..]));
            assert_ne!(checksum(&named("one")).unwrap(), checksum(&named("two")).unwrap(), "other data");
            let problem = |path: &Path| open_rows(path).err().unwrap().to_string();
            assert!(problem(&path).contains("holds 2 arrays (one, two)") && problem(&path).contains("data.npz:one"));
            assert!(problem(&named("three")).contains("has no array 'three'; it has one, two"));
        }
        fs::write(&path, archive(&[], false)).unwrap();
        assert!(open_rows(&path).err().unwrap().to_string().contains("holds no array"));
        assert!(matches!(open_rows(&folder.path().join("no.npz:a")), Err(Error::Read { .. })));
    }

    #[test]
    fn damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.npz");
        let values: Vec<f64> = (0..12).map(f64::from).collect();
        for is_compressed in [false, true] {
            let whole = archive(&[("a", &array(&[3, 4], &values))], is_compressed);
            for length in 0..whole.len() {
                fs::write(&path, &whole[..length]).unwrap();
                assert!(open(&path).is_err(), "{length} bytes");
            }
            for place in 0..whole.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[place] ^= flip;
                    fs::write(&path, &bytes).unwrap();
                    let mut row = [0.0; 4];
                    let _ = open(&path).and_then(|rows| match rows.n_sites() {
                        4 => rows.read_rows(0, &mut row),
                        _ => Ok(()),
                    });
                }
            }
        }
    }
}
