//! Input files as rows of f64: one trait, one file a format, chosen by the file's ending.

pub mod csv;
pub mod element;
pub mod elsewhere;
pub mod glob;
pub mod gzip;
pub mod memory;
pub mod nifti;
pub mod npy;
pub mod npz;
pub mod picked;
pub mod pictures;
pub mod places;
pub mod reading;
pub mod text;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::data::nifti::Header;
use crate::error::{Error, Result};

pub use glob::expand_inputs;
pub use reading::{Columns, Reading, RowsAxis};

/// The endings of files that can be read, for messages.
pub const ENDINGS: &str = ".npy, .npz, .csv, .tsv, .nii, .tif or .png";

const CHECKSUM_PIECE: usize = 1 << 20;

/// Rows of one input file, in file order, as f64.
pub trait RowSource: Send + Sync {
    /// The file that rows come from, for messages.
    fn path(&self) -> &Path;

    /// Number of rows, T; at least 1.
    fn n_rows(&self) -> usize;

    /// Number of sites in a row, V, the product of the grid; at least 1.
    fn n_sites(&self) -> usize;

    /// The lengths of the grid's axes for T x grid arrays (three or more axes), `None` for plain T x V tables.
    fn grid(&self) -> Option<&[usize]>;

    /// The file that a row comes from, for messages.
    fn row_path(&self, _row: usize) -> &Path {
        self.path()
    }

    /// The place in its file of a row, for messages.
    fn row_number(&self, row: usize) -> usize {
        row
    }

    /// The header that says where the sites lie, for images.
    fn space(&self) -> Option<&Header> {
        None
    }

    /// Whether reading costs nothing.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// Whether single precision holds every value exactly, as far as that is known without reading them.
    fn is_single(&self) -> bool {
        false
    }

    /// What the rows are known by: the xxh3-128 of the file's bytes, as 32 hexadecimal digits.
    fn checksum(&self) -> Result<String> {
        checksum(self.path())
    }

    /// What its rows are called, where the file says so.
    fn row_names(&self) -> Option<&[String]> {
        None
    }

    /// What its sites are called, where the file says so.
    fn column_names(&self) -> Option<&[String]> {
        None
    }

    /// Whether the file has a line of names above its rows.
    fn has_header(&self) -> bool {
        false
    }

    /// Fills `out` (a whole number of rows, row-major, C order of the grid) with the rows from `first_row` on.
    /// Values are not checked for being finite. Panics when the rows are not all in the file.
    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()>;
}

/// Opens a file as rows, by its ending, in any case; or the pictures of a folder.
pub fn open(path: &Path) -> Result<Box<dyn RowSource>> {
    open_as(path, &Reading::default(), csv::Names::None)
}

/// [`open`] in a way that was asked for, where a table may have names of rows in its first column.
fn open_as(path: &Path, reading: &Reading, names: csv::Names) -> Result<Box<dyn RowSource>> {
    let is_array = npz::split(path).is_some() || ["npy", "npz"].contains(&ending(path).as_str());
    if is_array {
        return open_array(path, reading);
    }
    if reading.rows_axis == RowsAxis::Last && path.exists() && !csv::is_table(path) {
        let problem = format!("is for arrays and tables; {} says itself which are its rows", path.display());
        return Err(Error::setting("rows-axis", "last", problem));
    }
    let source = open_file_as(path, reading, names)?;
    match &reading.columns {
        Some(columns) if !csv::is_table(path) => Ok(Box::new(reading::Chosen::new(source, columns)?)),
        _ => Ok(source),
    }
}

fn open_array(path: &Path, reading: &Reading) -> Result<Box<dyn RowSource>> {
    let is_archive = npz::split(path).is_some() || ending(path) == "npz";
    let array = if is_archive { npz::open(path)? } else { npy::NpyRows::open(path)? };
    let array = if reading.rows_axis == RowsAxis::Last { array.with_last_axis_first() } else { array };
    match &reading.columns {
        None => Ok(Box::new(array)),
        Some(columns) => Ok(Box::new(reading::Chosen::new(Box::new(array), columns)?)),
    }
}

fn open_file_as(path: &Path, reading: &Reading, names: csv::Names) -> Result<Box<dyn RowSource>> {
    if path.exists()
        && let Some(advice) = elsewhere::advice(path)
    {
        return Err(Error::malformed(path, advice));
    }
    if path.is_dir() {
        return Ok(Box::new(pictures::Pictures::open_folder(path)?));
    }
    check_is_file(path)?;
    match ending(path).as_str() {
        "csv" | "csv.gz" | "tsv" | "tsv.gz" => Ok(Box::new(csv::TextTable::open(path, reading, names)?)),
        "png" | "tif" | "tiff" => Ok(Box::new(pictures::Pictures::open(path, &[path.to_path_buf()])?)),
        "nii" | "nii.gz" => Ok(Box::new(nifti::NiftiRows::open(path)?)),
        "hdr" | "img" | "hdr.gz" | "img.gz" => Err(Error::malformed(
            path,
            "is one of a .hdr/.img pair, which is not read; join the two into one .nii.gz file, for example with \
             fslchfiletype NIFTI_GZ or by loading and saving them with nibabel",
        )),
        _ => Err(Error::malformed(path, format!("the ending does not name a supported format; give a {ENDINGS} file"))),
    }
}

/// Opens inputs as runs, each file one; 3-D images, and pictures, given together are the rows of a single run.
pub fn open_runs(paths: &[PathBuf], reading: &Reading) -> Result<Vec<Box<dyn RowSource>>> {
    if paths.len() > 1
        && *reading == Reading::default()
        && paths.iter().all(|path| pictures::is_picture(path) && path.is_file())
    {
        let all = pictures::Pictures::open(&paths[0], paths)?;
        if all.n_rows() == paths.len() {
            return Ok(vec![Box::new(all)]);
        }
    }
    let runs = paths.iter().map(|path| open_as(path, reading, csv::Names::OfRows)).collect::<Result<Vec<_>>>()?;
    let is_volume = |run: &dyn RowSource| run.space().is_some_and(Header::is_single_volume);
    let volume = runs.iter().find(|run| is_volume(run.as_ref()));
    let other = runs.iter().find(|run| !is_volume(run.as_ref()));
    match (volume, other) {
        (None, _) => Ok(runs),
        (Some(_), None) => Ok(vec![Box::new(nifti::NiftiSeries::open(paths)?)]),
        (Some(volume), Some(other)) => {
            let problem = format!(
                "is a 3-D image, but {} is not; give the volumes of one run as 3-D images, or runs as 4-D images (fslmerge -t \
                 joins volumes)",
                other.path().display()
            );
            Err(Error::malformed(volume.path(), problem))
        }
    }
}

/// What stands after the last dot of a name, in lower case; with what stands before `.gz`.
fn ending(path: &Path) -> String {
    let lower = |path: &Path| path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    match lower(path).as_str() {
        "gz" => format!("{}.gz", lower(Path::new(path.file_stem().unwrap_or_default()))),
        ending => ending.to_string(),
    }
}

/// The xxh3-128 of a file's bytes, as 32 hexadecimal digits; of one array of an archive, with its name; of a folder of
/// pictures, with their names.
pub fn checksum(path: &Path) -> Result<String> {
    let mut hasher = Xxh3::new();
    if let Some((file, name)) = npz::split(path) {
        add_file(&mut hasher, &file)?;
        hasher.update(name.as_bytes());
    } else if path.is_dir() {
        for file in pictures::files(path)? {
            hasher.update(file.file_name().unwrap_or_default().as_encoded_bytes());
            add_file(&mut hasher, &file)?;
        }
    } else {
        add_file(&mut hasher, path)?;
    }
    Ok(format!("{:032x}", hasher.digest128()))
}

fn add_file(hasher: &mut Xxh3, path: &Path) -> Result<()> {
    let mut file = open_file(path)?;
    let mut piece = vec![0; CHECKSUM_PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n_bytes) => hasher.update(&piece[..n_bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::read(path)(error)),
        }
    }
}

fn open_file(path: &Path) -> Result<File> {
    check_is_file(path)?;
    File::open(path).map_err(Error::read(path))
}

/// Refuses folders and pipes by name, before opening: opening a pipe would wait, mapping a folder gives a riddle.
fn check_is_file(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(Error::read(path))?;
    if metadata.is_dir() {
        return Err(Error::malformed(path, format!("is a folder; give a {ENDINGS} file")));
    }
    if !metadata.is_file() {
        return Err(Error::malformed(path, format!("is not a regular file; give a {ENDINGS} file")));
    }
    Ok(())
}

/// How many rows a buffer of `n_values` asks for, once it is sure that `source` has them.
fn rows_asked_for(source: &impl RowSource, first_row: usize, n_values: usize) -> usize {
    let n_rows = n_values / source.n_sites();
    assert_eq!(n_values % source.n_sites(), 0, "the buffer holds a whole number of rows");
    assert!(
        first_row <= source.n_rows() && n_rows <= source.n_rows() - first_row,
        "rows {first_row} to {first_row} + {n_rows} are in the file's {}",
        source.n_rows()
    );
    n_rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::nifti::by_hand::{Image, gzip};
    use crate::data::write::write_npy_f64;

    #[test]
    fn the_ending_chooses_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        let [npy, csv, tsv] = ["a.npy", "b.CSV", "c.tsv"].map(|name| folder.path().join(name));
        write_npy_f64(&npy, &[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        fs::write(&csv, "1,2\n3,4\n").unwrap();
        fs::write(&tsv, "1\t2\n3\t4\n").unwrap();
        for path in [&npy, &csv, &tsv] {
            let source = open(path).unwrap();
            let mut last = [0.0; 2];
            source.read_rows(1, &mut last).unwrap();
            assert_eq!((source.path(), source.n_rows(), source.n_sites(), source.grid()), (path.as_path(), 2, 2, None));
            assert_eq!(last, [3.0, 4.0]);
        }
        let image = Image::default();
        for (name, bytes) in [("d.NII", image.file()), ("e.f.Nii.GZ", gzip(&image.file()))] {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let source = open(&path).unwrap();
            assert_eq!((source.n_rows(), source.grid()), (2, Some(&[3, 4, 5][..])));
            assert_eq!(source.space().unwrap().space_code(), 0);
        }
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("data.xyz");
        fs::write(&other, "x").unwrap();
        let bare = folder.path().join("data");
        fs::write(&bare, "x").unwrap();
        let problem = |path: &Path| open(path).err().unwrap().to_string();
        assert!(problem(&other).contains("data.xyz") && problem(&other).contains(ENDINGS));
        assert!(problem(&bare).contains(".npy, .npz, .csv, .tsv, .nii, .tif or .png"));
        for (name, advice) in [("pair.hdr", "fslchfiletype"), ("pair.IMG.gz", "nibabel"), ("data.gz", ENDINGS)] {
            let path = folder.path().join(name);
            fs::write(&path, "x").unwrap();
            assert!(problem(&path).contains(name) && problem(&path).contains(advice));
        }
        assert!(problem(folder.path()).contains("is a folder"));
        let missing = folder.path().join("missing.npy");
        assert!(matches!(open(&missing), Err(Error::Read { path, .. }) if path == missing));
    }

    #[test]
    fn checksum_depends_on_the_bytes_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [empty, long, same] = ["empty", "long", "same"].map(|name| folder.path().join(name));
        let bytes: Vec<u8> = (0..CHECKSUM_PIECE * 2 + 77).map(|i| (i % 251) as u8).collect();
        fs::write(&empty, "").unwrap();
        fs::write(&long, &bytes).unwrap();
        fs::write(&same, &bytes).unwrap();
        assert_eq!(checksum(&empty).unwrap(), "99aa06d3014798d86001c324468d497f");
        assert_eq!(checksum(&long).unwrap(), format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes)));
        assert_eq!(checksum(&long).unwrap(), checksum(&same).unwrap());
        assert!(checksum(&folder.path().join("missing")).is_err());
    }

    #[test]
    #[should_panic(expected = "are in the file's 2")]
    fn rows_past_the_end_are_our_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        fs::write(&path, "1,2\n3,4\n").unwrap();
        let _ = open(&path).unwrap().read_rows(1, &mut [0.0; 4]);
    }
}
