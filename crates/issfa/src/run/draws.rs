//! Kept draws on disk: whole states, evenly thinned, for `transform` and `evaluate`.
//!
//! Draw number i (the i-th kept sweep) is retained while i is a multiple of the stride, the least power of two for
//! which no more than the wanted number remain. The set therefore depends on the number of kept sweeps alone, and a
//! run that is extended stays even.

use super::checkpoint::Belongings;
use super::checksums::run_of;
use super::codec::{
    Sizes, check_preprocessing, put_preprocessing, put_spectra, put_state, take_preprocessing, take_spectra,
    take_state_of,
};
use super::settings::FORMAT;
use crate::compiled::Sampled;
use crate::data::Preprocessing;
use crate::error::{Error, Result, Verb, action};
use crate::model::State;
use crate::numeric::bytes::{Bundle, Stored};
use crate::numeric::files::{create_folder, sync_folder};
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

    /// Makes the folder and stores what new rows need to be prepared like the old ones; returns its checksum.
    pub fn create(&self, preprocessing: &Preprocessing) -> Result<String> {
        create_folder(&self.folder)?;
        let mut bundle = Bundle::default();
        bundle.note("format", FORMAT.to_string());
        put_preprocessing(&mut bundle, preprocessing);
        bundle.save(&self.folder.join(PREPROCESSING))?;
        Ok(bundle.checksum())
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

    /// Removes draws that the even sets after these numbers of kept sweeps do not hold. Only to be called once checkpoints
    /// that know of them are safe on disk.
    pub fn prune(&self, n_kept: &[u64]) -> Result<()> {
        for (number, path) in self.list()? {
            if !n_kept.iter().any(|n_kept| self.holds(number, *n_kept)) {
                fs::remove_file(&path).map_err(Error::write(&path))?;
            }
        }
        Ok(())
    }

    /// Removes draws of later kept sweeps.
    pub fn drop_later(&self, n_kept: u64) -> Result<()> {
        let later = self.list()?.into_iter().filter(|(number, _)| *number > n_kept);
        later.into_iter().try_for_each(|(_, path)| fs::remove_file(&path).map_err(Error::write(&path)))
    }

    /// Whether a draw belongs to the even set after `n_kept` kept sweeps with room for `capacity`.
    pub fn belongs(number: u64, n_kept: u64, capacity: usize) -> bool {
        number <= n_kept && number.is_multiple_of(stride(n_kept, capacity as u64))
    }

    /// Whether a draw belongs to the even set after `n_kept` kept sweeps.
    fn holds(&self, number: u64, n_kept: u64) -> bool {
        Draws::belongs(number, n_kept, self.capacity as usize)
    }

    /// Copies what belongs to a checkpoint to another chain.
    pub fn copy_to(&self, other: &Draws, belongings: &Belongings) -> Result<()> {
        create_folder(&other.folder)?;
        for (path, checksum) in self.files(belongings) {
            let stored = open_known(&path, &checksum)?;
            stored.to_bundle().save(&other.folder.join(path.file_name().unwrap_or_default()))?;
        }
        Ok(())
    }

    /// Refuses draws that are not those of a checkpoint, or gone.
    pub fn check(&self, belongings: &Belongings) -> Result<()> {
        self.files(belongings).into_iter().try_for_each(|(path, checksum)| open_known(&path, &checksum).map(drop))
    }

    /// All files that belong to a checkpoint, with their checksums.
    fn files(&self, belongings: &Belongings) -> Vec<(PathBuf, String)> {
        let preprocessing = (self.folder.join(PREPROCESSING), belongings.preprocessing.clone());
        self.known(belongings).into_iter().chain([preprocessing]).collect()
    }

    /// The draws that belong to a checkpoint, in order, with their checksums.
    pub fn known(&self, belongings: &Belongings) -> Vec<(PathBuf, String)> {
        belongings.draws.iter().map(|(number, checksum)| (self.path(*number), checksum.clone())).collect()
    }

    /// Numbers and files, in order.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut list = Vec::new();
        let entries = fs::read_dir(&self.folder).map_err(Error::read(&self.folder))?;
        for entry in entries {
            let path = entry.map_err(Error::read(&self.folder))?.path();
            if let Some(number) = number_of(&path) {
                list.push((number, path));
            }
        }
        list.sort();
        Ok(list)
    }

    /// How new rows are to be prepared.
    pub fn preprocessing(&self, belongings: &Belongings, sizes: &Sizes) -> Result<Preprocessing> {
        let stored = open_known(&self.folder.join(PREPROCESSING), &belongings.preprocessing)?;
        check_format(&stored)?;
        let preprocessing = take_preprocessing(&stored)?;
        check_preprocessing(&stored, &preprocessing, sizes)?;
        Ok(preprocessing)
    }
}

/// The number in the name of a draw's file.
fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("draw-").and_then(|rest| rest.strip_suffix(".safetensors"))?.parse().ok()
}

/// Reads a file that a checkpoint knows of.
fn open_known(path: &Path, checksum: &str) -> Result<Stored> {
    let opened = Stored::open(path).and_then(|stored| match stored.checksum() == checksum {
        true => Ok(stored),
        false => {
            let problem =
                format!("is not that of the checkpoint (checksum {}, expected {checksum})", stored.checksum());
            Err(Error::malformed(path, problem))
        }
    });
    let run = run_of(path.parent().and_then(Path::parent).unwrap_or(path));
    let resume = action(Verb::Resume).on(run.display());
    opened.map_err(|error| {
        error
            .with_remedy(format!("put back a copy, try {resume} (an older checkpoint may do without it), or fit again"))
    })
}

/// A state and the means of its features as named arrays.
pub fn encode<R: Sampled>(state: &State<R>, feature_means: &FeatureSpectra<R>, sweep: u64) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.note("format", FORMAT.to_string());
    bundle.put("sweep", &[1], &[sweep]);
    put_state(&mut bundle, state);
    put_spectra(&mut bundle, "feature_means", feature_means);
    bundle
}

fn decode<R: Sampled>(stored: &Stored, sizes: &Sizes) -> Result<Draw<R>> {
    check_format(stored)?;
    let state = take_state_of(stored, sizes)?;
    let feature_means: FeatureSpectra<R> = take_spectra(stored, "feature_means", sizes.n_modes)?;
    if feature_means.n_features() != state.n_features() {
        return Err(stored.damaged("'feature_means' are not those of the features"));
    }
    Ok(Draw { state, feature_means })
}

/// The kept draws of a chain, in order, wherever they are.
#[derive(Clone)]
pub struct KeptDraws {
    /// What each of them must fit.
    pub sizes: Sizes,
    /// Where they are.
    pub place: DrawsPlace,
}

/// Where the kept draws of a chain are.
#[derive(Clone)]
pub enum DrawsPlace {
    /// One a file, with their checksums.
    Files(Vec<(PathBuf, String)>),
    /// In memory, by the number of the kept sweep.
    Memory(BTreeMap<u64, Arc<Stored>>),
}

impl KeptDraws {
    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.place {
            DrawsPlace::Files(files) => files.len(),
            DrawsPlace::Memory(draws) => draws.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same, read into memory.
    pub fn in_memory(&self) -> Result<KeptDraws> {
        let DrawsPlace::Files(files) = &self.place else { return Ok(self.clone()) };
        let read = |(path, checksum): &(PathBuf, String)| {
            let number = number_of(path).expect("a draw is called by its number");
            Ok((number, Arc::new(open_known(path, checksum)?)))
        };
        let place = DrawsPlace::Memory(files.iter().map(read).collect::<Result<_>>()?);
        Ok(KeptDraws { sizes: self.sizes, place })
    }

    /// The sweep that one of them is of.
    pub fn sweep(&self, at: usize) -> Result<u64> {
        match &self.place {
            DrawsPlace::Files(files) => open_known(&files[at].0, &files[at].1)?.number("sweep"),
            DrawsPlace::Memory(draws) => draws.values().nth(at).expect("there are so many draws").number("sweep"),
        }
    }

    /// One of them.
    pub fn read<R: Sampled>(&self, at: usize) -> Result<Draw<R>> {
        match &self.place {
            DrawsPlace::Files(files) => decode(&open_known(&files[at].0, &files[at].1)?, &self.sizes),
            DrawsPlace::Memory(draws) => decode(draws.values().nth(at).expect("there are so many draws"), &self.sizes),
        }
    }
}

/// Draws of several chains, as many in all as one chain has, so that what goes through them takes as long as with one.
pub struct DrawsOfChains<'a> {
    list: Vec<(&'a KeptDraws, usize)>,
}

impl<'a> DrawsOfChains<'a> {
    /// Evenly spaced among those of all chains, one chain after the other.
    pub fn new(chains: impl Iterator<Item = &'a KeptDraws>) -> DrawsOfChains<'a> {
        let chains: Vec<&KeptDraws> = chains.collect();
        let all: Vec<_> = chains.iter().flat_map(|&draws| (0..draws.len()).map(move |at| (draws, at))).collect();
        let longest = chains.iter().map(|draws| draws.len()).max().unwrap_or(0);
        DrawsOfChains { list: (0..longest).map(|place| all[place * all.len() / longest]).collect() }
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
    pub fn read<R: Sampled>(&self, at: usize) -> Result<Draw<R>> {
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
                draws.prune(&[number]).unwrap();
            }
        }
        draws.store(4, &encode(&state, &state.features, 40)).unwrap();
        draws.prune(&[33, 12]).unwrap();
        let numbers = |draws: &Draws| draws.list().unwrap().iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(&draws), [4, 8, 16, 24, 32], "those of either checkpoint");
        draws.prune(&[33]).unwrap();
        let numbers: Vec<u64> = draws.list().unwrap().iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [8, 16, 24, 32]);
        let feature_means = state.features.clone();
        let known = |(_, path): (u64, PathBuf)| (path.clone(), Stored::open(&path).unwrap().checksum().to_string());
        let place = DrawsPlace::Files(draws.list().unwrap().into_iter().map(known).collect());
        let sizes = Sizes { n_rows: 2, n_modes: 3, n_columns: 3, n_theta: 1, n_runs: 1 };
        let kept = KeptDraws { sizes, place: place.clone() };
        assert_eq!(kept.read::<f32>(0).unwrap(), Draw { state, feature_means });
        for sizes in [Sizes { n_rows: 3, ..sizes }, Sizes { n_modes: 4, ..sizes }, Sizes { n_theta: 2, ..sizes }] {
            let error = KeptDraws { sizes, place: place.clone() }.read::<f32>(0).unwrap_err().to_string();
            assert!(error.contains("draw-000008.safetensors: damaged"), "{error}");
        }
        fs::copy(draws.path(16), draws.path(8)).unwrap();
        let error = kept.read::<f32>(0).unwrap_err().to_string();
        assert!(error.contains("draw-000008") && error.contains("is not that of the checkpoint"), "{error}");
        assert_eq!((stride(5, 5), stride(6, 5), stride(11, 5), stride(12, 5)), (1, 2, 2, 4));
    }
}
