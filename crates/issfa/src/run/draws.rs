//! Kept draws on disk: whole states, evenly thinned, for `transform` and `evaluate`.
//!
//! Draw number i (the i-th kept sweep) is retained while i is a multiple of the stride, the least power of two for
//! which no more than the wanted number remain. The set therefore depends on the number of kept sweeps alone, and a
//! run that is extended stays even.

use super::codec::{put_preprocessing, put_spectra, put_state, take_preprocessing, take_spectra, take_state};
use super::settings::FORMAT;
use crate::data::Preprocessing;
use crate::error::{Error, Result};
use crate::model::State;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::files::{copy_file, create_folder, sync_folder};
use crate::numeric::linalg::Real;
use crate::spectral::FeatureSpectra;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How new rows are prepared.
const PREPROCESSING: &str = "preprocessing.safetensors";

/// The folder of a chain's draws.
#[derive(Clone, Debug)]
pub struct Draws {
    folder: PathBuf,
    capacity: u64,
}

/// A kept draw: a state, and the mean of its features given everything else in it.
///
/// New rows are inferred from the mean \[M12\]: the draw scatters about it in every mode, which a new row cannot know of.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw<R> {
    /// The state of a kept sweep.
    pub state: State<R>,
    /// Given all else in it.
    pub feature_means: FeatureSpectra<R>,
}

/// The stride after `n_kept` kept sweeps.
fn stride(n_kept: u64, capacity: u64) -> u64 {
    let mut stride = 1;
    while n_kept / stride > capacity {
        stride *= 2;
    }
    stride
}

impl Draws {
    /// Draws below `folder` (a chain's), at most `capacity` of them.
    pub fn new(folder: &Path, capacity: usize) -> Draws {
        Draws { folder: folder.join("draws"), capacity: capacity as u64 }
    }

    /// Makes the folder and stores what new rows need to be prepared like the old ones.
    pub fn create(&self, preprocessing: &Preprocessing) -> Result<()> {
        create_folder(&self.folder)?;
        let mut bundle = Bundle::default();
        bundle.note("format", FORMAT.to_string());
        put_preprocessing(&mut bundle, preprocessing);
        bundle.save(&self.folder.join(PREPROCESSING))
    }

    /// Whether the `n_kept`-th kept sweep belongs to the even set when it comes.
    pub fn retains(n_kept: u64, capacity: usize) -> bool {
        n_kept.is_multiple_of(stride(n_kept, capacity as u64))
    }

    /// Stores the draw of the `n_kept`-th kept sweep.
    pub fn store(&self, n_kept: u64, draw: &Bundle) -> Result<()> {
        draw.save(&self.path(n_kept))
    }

    /// Waits until the disk knows of all draws.
    pub fn sync(&self) -> Result<()> {
        sync_folder(&self.folder)
    }

    /// Where a draw lies.
    pub fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("draw-{number:06}.safetensors"))
    }

    /// Removes draws that the even set after `n_kept` kept sweeps does not hold. Only to be called once a checkpoint
    /// that knows of `n_kept` is safe on disk.
    pub fn prune(&self, n_kept: u64) -> Result<()> {
        for (number, path) in self.list()? {
            if !self.holds(number, n_kept) {
                fs::remove_file(&path).map_err(Error::write(&path))?;
            }
        }
        Ok(())
    }

    /// Whether a draw belongs to the even set after `n_kept` kept sweeps with room for `capacity`.
    pub fn belongs(number: u64, n_kept: u64, capacity: usize) -> bool {
        number <= n_kept && number.is_multiple_of(stride(n_kept, capacity as u64))
    }

    /// Whether a draw belongs to the even set after `n_kept` kept sweeps.
    fn holds(&self, number: u64, n_kept: u64) -> bool {
        Draws::belongs(number, n_kept, self.capacity as usize)
    }

    /// Copies the even set after `n_kept` kept sweeps to another chain, with what new rows need.
    pub fn copy_to(&self, other: &Draws, n_kept: u64) -> Result<()> {
        create_folder(&other.folder)?;
        let own = self.list()?.into_iter().filter(|(number, _)| self.holds(*number, n_kept)).map(|(_, path)| path);
        for path in own.chain([self.folder.join(PREPROCESSING)]) {
            copy_file(&path, &other.folder.join(path.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }

    /// Numbers and files, in order.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut list = Vec::new();
        let entries = fs::read_dir(&self.folder).map_err(Error::read(&self.folder))?;
        for entry in entries {
            let path = entry.map_err(Error::read(&self.folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = name.strip_prefix("draw-").and_then(|rest| rest.strip_suffix(".safetensors"));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                list.push((number, path));
            }
        }
        list.sort();
        Ok(list)
    }

    /// How new rows are to be prepared.
    pub fn preprocessing(&self) -> Result<Preprocessing> {
        let stored = Stored::open(&self.folder.join(PREPROCESSING))?;
        check_format(&stored)?;
        take_preprocessing(&stored)
    }
}

/// A state and the means of its features as named arrays.
pub fn encode<R: Real>(state: &State<R>, feature_means: &FeatureSpectra<R>, sweep: u64) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.note("format", FORMAT.to_string());
    bundle.put("sweep", &[1], &[sweep]);
    put_state(&mut bundle, state);
    put_spectra(&mut bundle, "feature_means", feature_means);
    bundle
}

fn decode<R: Real>(stored: &Stored) -> Result<Draw<R>> {
    check_format(stored)?;
    Ok(Draw { state: take_state(stored)?, feature_means: take_spectra(stored, "feature_means")? })
}

/// The kept draws of a chain, in order, wherever they are.
#[derive(Clone)]
pub enum KeptDraws {
    /// One a file.
    Files(Vec<PathBuf>),
    /// In memory, by the number of the kept sweep.
    Memory(BTreeMap<u64, Arc<Stored>>),
}

impl KeptDraws {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            KeptDraws::Files(paths) => paths.len(),
            KeptDraws::Memory(draws) => draws.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn read<R: Real>(&self, at: usize) -> Result<Draw<R>> {
        match self {
            KeptDraws::Files(paths) => decode(&Stored::open(&paths[at])?),
            KeptDraws::Memory(draws) => decode(draws.values().nth(at).expect("there are so many draws")),
        }
    }
}

/// Draws of several chains in turn, as many as one chain has, so that what goes through them takes as long as with one.
pub struct DrawsOfChains<'a> {
    list: Vec<(&'a KeptDraws, usize)>,
}

impl<'a> DrawsOfChains<'a> {
    /// The first draw of the first chain, the second of the second, and so on; chains without any are left out.
    pub fn new(chains: impl Iterator<Item = &'a KeptDraws>) -> DrawsOfChains<'a> {
        let chains: Vec<&KeptDraws> = chains.filter(|draws| !draws.is_empty()).collect();
        let longest = chains.iter().map(|draws| draws.len()).max().unwrap_or(0);
        let in_turn = (0..longest).map(|at| (chains[at % chains.len()], at));
        DrawsOfChains { list: in_turn.filter(|(draws, at)| *at < draws.len()).collect() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// One of them.
    pub fn read<R: Real>(&self, at: usize) -> Result<Draw<R>> {
        let (draws, at) = self.list[at];
        draws.read(at)
    }
}

/// Refuses what is of another format.
pub fn check_format(stored: &Stored) -> Result<()> {
    let found = stored.text("format")?;
    if found != FORMAT.to_string() {
        let path = stored.path().to_path_buf();
        return Err(Error::OtherFormat { path, found: found.to_string(), supported: FORMAT });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_even_set_depends_on_the_count_alone() {
        let folder = tempfile::tempdir().unwrap();
        let draws = Draws::new(folder.path(), 5);
        fs::create_dir_all(folder.path().join("draws")).unwrap();
        let state = State::<f32>::empty(2, 3, 1);
        for number in 1..=33 {
            if Draws::retains(number, 5) {
                draws.store(number, &encode(&state, &state.features, 10 * number)).unwrap();
            }
            if number % 7 == 0 {
                draws.prune(number).unwrap();
            }
        }
        draws.prune(33).unwrap();
        let numbers: Vec<u64> = draws.list().unwrap().iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [8, 16, 24, 32]);
        let feature_means = state.features.clone();
        let kept = KeptDraws::Files(draws.list().unwrap().into_iter().map(|(_, path)| path).collect());
        assert_eq!(kept.read::<f32>(0).unwrap(), Draw { state, feature_means });
        assert_eq!((stride(5, 5), stride(6, 5), stride(11, 5), stride(12, 5)), (1, 2, 2, 4));
    }
}
