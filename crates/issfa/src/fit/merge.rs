//! Runs of the same data and settings with different seeds as the chains of one run, without reading the data again.

use super::denoised::join_reconstructions;
use super::folder_sink::seal_reconstruction;
use crate::chain::Posterior;
use crate::compiled::Sampled;
use crate::data::Mask;
use crate::data::nifti::Header;
use crate::data::read::npy::read_npy_f32;
use crate::error::{Error, Result, Verb, action, setting};
use crate::evidence::EvidenceCurve;
use crate::noise::Reference;
use crate::numeric::files::{copy_file, create_folder};
use crate::run::checkpoint::{self, Belongings, Checkpoint};
use crate::run::checksums::{Checksums, seal};
use crate::run::draws::Draws;
use crate::run::folder::{
    CONFIG, MASK_FILE, MASK_IMAGE, MEAN_IMAGE, NOISE_REFERENCE, RECONSTRUCTION, Run, TRACE, WEIGHTS,
    reconstruction_image,
};
use crate::run::held::{Held, refuse_links};
use crate::run::record::{ChainStream, InputRecord, Record, Recorded};
use crate::run::settings::{Precision, Settings};
use crate::run::trace;
use crate::run::until::Until;
use crate::structure::Structure;
use crate::summary::results::compare_chains;
use crate::summary::{Found, Results};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A merged run, checked and ready to be written.
pub struct Merge {
    /// Those to be merged.
    pub runs: Vec<Run>,
    /// In the order of their new numbers.
    pub chains: Vec<Source>,
    /// Those of the merged run.
    pub settings: Settings,
    /// The sweep at which every chain stands.
    pub sweep: u64,
    record: Record,
    sum_of_squares: f64,
    structure: Structure,
    mask: Mask,
    space: Option<Header>,
    noise: Option<Reference>,
}

/// A chain of one of the runs.
pub struct Source {
    /// Which of the runs it belongs to, from 0.
    pub run: usize,
    /// Its number there, from 1.
    pub number: u32,
    /// Where it lies.
    pub folder: PathBuf,
    /// Where its own results lie.
    results: PathBuf,
    /// What it draws from.
    pub stream: ChainStream,
}

impl Merge {
    /// Checks everything that can be checked before anything is written.
    pub fn plan(folders: &[PathBuf], out: &Path) -> Result<Merge> {
        check_folders(folders, out)?;
        let runs = folders.iter().map(|folder| Run::open(folder)).collect::<Result<Vec<_>>>()?;
        let Some((first, others)) = runs.split_first() else {
            return Err(Error::TooFewRuns { run: out.to_path_buf() });
        };
        runs.iter().try_for_each(|run| refuse_links(&run.folder))?;
        others.iter().try_for_each(|other| check_same(first, other))?;
        let chains: Vec<Source> = runs.iter().enumerate().flat_map(|(at, run)| sources(at, run)).collect();
        check_streams(&runs, &chains)?;
        let sweep = common_sweep(&runs, &chains)?;
        let known = runs.iter().find_map(|run| run.record.sum_of_squares);
        let sum_of_squares = known.ok_or_else(|| Error::ResultsBehind {
            path: first.folder.join(CONFIG),
            run: first.folder.clone(),
            problem: "was written by an earlier build and has no sum of squares in its record",
        })?;
        let (structure, mask, space) = (first.structure()?, first.mask()?, first.space()?);
        let noise = first.noise_reference()?;
        let record = Record {
            sum_of_squares: Some(sum_of_squares),
            streams: chains.iter().map(|source| source.stream).collect(),
            ..first.record.clone()
        };
        let settings = Settings { chains: chains.len() as u32, ..first.checked.settings.clone() };
        let merge = Merge { settings, sweep, record, sum_of_squares, structure, mask, space, noise, runs, chains };
        merge.chains.iter().try_for_each(|source| merge.check_chain(source))?;
        Ok(merge)
    }

    /// The structure of the data.
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// Makes the merged run.
    pub fn write(&self, held: &mut Held) -> Result<()> {
        let out = held.begin()?;
        self.copy_place(&out)?;
        let bring = |at: usize| match self.settings.precision {
            Precision::F32 => self.bring::<f32>(at, &out),
            Precision::F64 => self.bring::<f64>(at, &out),
        };
        let brought = (0..self.chains.len()).map(bring).collect::<Result<Vec<(Posterior, Found)>>>()?;
        self.write_results(brought, &out)?;
        Run::write_config(&out, &self.recorded())?;
        held.publish()
    }

    /// The results of every chain, and of all together.
    fn write_results(&self, chains: Vec<(Posterior, Found)>, out: &Path) -> Result<()> {
        let (posteriors, mut found): (Vec<_>, Vec<_>) = chains.into_iter().unzip();
        let n_kept: Vec<u64> = posteriors.iter().map(|posterior| posterior.n_kept).collect();
        let mut all = self.results().of(&Posterior::joined(posteriors.into_iter()), self.chains[0].stream.seed);
        let kept = found.iter_mut().zip(&n_kept).filter(|(_, n)| **n > 0).map(|(found, _)| found);
        compare_chains(&mut kept.collect::<Vec<_>>(), &mut all);
        for (at, found) in found.iter().enumerate() {
            self.results().write(found, &self.new_results(out, at))?;
        }
        self.results().write(&all, out)?;
        if !self.settings.reconstruct {
            return Ok(());
        }
        let part = |(at, n): (usize, &u64)| (self.new_results(out, at).join(RECONSTRUCTION), *n);
        let parts: Vec<_> = n_kept.iter().enumerate().filter(|(_, n)| **n > 0).map(part).collect();
        let space = self.space.as_ref().map(|space| (space, &self.mask, &self.record.runs[..]));
        join_reconstructions(&parts, out, space)?;
        seal_reconstruction(out, &self.record.runs)
    }

    fn recorded(&self) -> Recorded {
        Recorded { settings: self.settings.clone(), record: self.record.clone() }
    }

    fn results(&self) -> Results<'_> {
        Results {
            structure: &self.structure,
            mask: &self.mask,
            space: self.space.as_ref(),
            settings: &self.settings,
            record: &self.record,
            sum_of_squares: self.sum_of_squares,
            noise: self.noise.as_ref(),
        }
    }

    fn new_results(&self, out: &Path, at: usize) -> PathBuf {
        Run::results_folder(out, at as u32 + 1, self.chains.len() as u32)
    }

    /// Refuses a chain whose files are damaged, or behind its checkpoint where they are to be copied.
    fn check_chain(&self, source: &Source) -> Result<()> {
        let run = &self.runs[source.run];
        let fingerprint = run.recorded().fingerprint();
        let stored = checkpoint::open(&source.folder)?;
        let (sizes, reconstruct) = (self.record.sizes(), self.settings.reconstruct);
        let posterior = checkpoint::posterior(&stored, &fingerprint, &sizes, reconstruct)?;
        checkpoint::check_chain(&stored, source.number)?;
        let (path, belongings) = (source.folder.join(TRACE), checkpoint::belongings(&stored)?);
        let resume = action(Verb::Resume).on(run.folder.display());
        let remedy = format!("put back a copy, try {resume}, or fit again");
        let n_rows = trace::read(&path, &belongings.trace).map_err(|error| error.with_remedy(remedy))?.len();
        if n_rows as u64 != self.sweep {
            return Err(Error::malformed(&path, format!("has {n_rows} rows of the first {} sweeps", self.sweep)));
        }
        Draws::new(&source.folder, self.settings.keep_draws).check(&belongings)?;
        if self.settings.reconstruct && !self.is_current(&source.results, &posterior) {
            let problem = "the reconstruction is missing or older than the checkpoint";
            let path = source.folder.join(RECONSTRUCTION);
            return Err(Error::ResultsBehind { path, run: run.folder.clone(), problem });
        }
        if reconstruct { self.check_reconstruction(run, &source.results) } else { Ok(()) }
    }

    /// Whether the results in a chain's folder are those of its checkpoint.
    fn is_current(&self, folder: &Path, posterior: &Posterior) -> bool {
        let found = self.results().persistent(posterior);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let written = read_npy_f32(&folder.join(WEIGHTS)).map(|(_, weights)| bits(&weights));
        let is_same = written.is_ok_and(|written| written == bits(&found.by_input_row(&found.weights)));
        is_same && folder.join(RECONSTRUCTION).is_file()
    }

    /// Refuses a reconstruction that is not as it was written.
    fn check_reconstruction(&self, run: &Run, folder: &Path) -> Result<()> {
        let known = Checksums::open(folder)?;
        known.check(RECONSTRUCTION)?;
        let images = run.record.runs.iter().filter(|_| self.space.is_some());
        images.into_iter().try_for_each(|run| known.check(&reconstruction_image(&run.name)))
    }

    /// What all chains share: where the sites lie, graphs, and the eigenvalues of the data where a run has them.
    fn copy_place(&self, out: &Path) -> Result<()> {
        let first = &self.runs[0].folder;
        let known = Checksums::open(first)?;
        for name in [MASK_FILE, MASK_IMAGE, MEAN_IMAGE].into_iter().filter(|name| known.has(name)) {
            known.check(name)?;
            copy_file(&first.join(name), &out.join(name))?;
            seal(out, &[name])?;
        }
        if let Some(noise) = &self.noise {
            noise.to_bundle().save(&out.join(NOISE_REFERENCE))?;
        }
        for run in &self.runs {
            if let Some(curve) = EvidenceCurve::read(&run.folder)? {
                curve.write(out)?;
                break;
            }
        }
        self.structure.save_graphs(out)
    }

    /// Brings a chain into its new folder, all but the results that depend on the other chains; returns what it has found.
    fn bring<R: Sampled>(&self, at: usize, out: &Path) -> Result<(Posterior, Found)> {
        let (source, folder) = (&self.chains[at], &Run::chain_folder(out, at as u32 + 1));
        let run = &self.runs[source.run];
        let results = self.new_results(out, at);
        create_folder(folder)?;
        create_folder(&results)?;
        let own = run.recorded().fingerprint();
        let stored = checkpoint::open(&source.folder)?;
        let checkpoint = checkpoint::decode::<R>(&stored, &own, &self.record.sizes(), self.settings.reconstruct)?;
        let belongings = checkpoint::belongings(&stored)?;
        if checkpoint.sweep != self.sweep {
            let problem =
                format!("went from sweep {} to {} meanwhile; wait for the fit to end", self.sweep, checkpoint.sweep);
            return Err(Error::malformed(&checkpoint::path(&source.folder), problem));
        }
        let (from, to) = (source.folder.join(TRACE), folder.join(TRACE));
        let chain = at as u32 + 1;
        let trace = trace::copy_as(&from, &to, chain, &belongings.trace)?;
        let draws = |folder: &Path| Draws::new(folder, self.settings.keep_draws);
        draws(&source.folder).copy_to(&draws(folder), &belongings)?;
        if self.settings.reconstruct {
            self.copy_reconstruction(run, &source.results, &results)?;
        }
        let Checkpoint { sweep, state, posterior, counters } = checkpoint;
        let fingerprint = self.recorded().fingerprint();
        let checkpoint = checkpoint::encode(&fingerprint, sweep, &state, &posterior, &counters);
        checkpoint::save(folder, checkpoint, &Belongings { chain, trace, ..belongings })?;
        let found = self.results().of(&posterior, source.stream.seed);
        Ok((Posterior { reconstruction: None, ..posterior }, found))
    }

    /// Reconstructions have the means of the data in them, so they are not made again. Files elsewhere may have given the
    /// same runs other names.
    fn copy_reconstruction(&self, run: &Run, from: &Path, to: &Path) -> Result<()> {
        self.check_reconstruction(run, from)?;
        let images = run.record.runs.iter().zip(&self.record.runs).filter(|_| self.space.is_some());
        let images = images.map(|(old, new)| [old, new].map(|run| reconstruction_image(&run.name)));
        let all: Vec<_> = images.chain([[RECONSTRUCTION; 2].map(String::from)]).collect();
        all.iter().try_for_each(|[old, new]| copy_file(&from.join(old), &to.join(new)))?;
        seal(to, &all.iter().map(|[_, new]| new).collect::<Vec<_>>())
    }
}

/// Two runs or more, none of them twice, and none where the result goes.
fn check_folders(folders: &[PathBuf], out: &Path) -> Result<()> {
    if let [run] = folders {
        return Err(Error::TooFewRuns { run: run.clone() });
    }
    for (at, second) in folders.iter().enumerate() {
        if let Some(first) = folders[..at].iter().find(|first| place(first) == place(second)) {
            return Err(Error::SameRunTwice { first: first.clone(), second: second.clone() });
        }
        if place(out).starts_with(place(second)) || place(second).starts_with(place(out)) {
            return Err(Error::OutputIsInput { out: out.to_path_buf(), run: second.clone() });
        }
    }
    Ok(())
}

/// Where a path leads, by way of all links, also if its last folders are yet to be made.
fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let known = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match known {
        Some((above, found)) => found.join(path.strip_prefix(above).unwrap_or(Path::new(""))),
        None => path,
    }
}

/// The chains of a run, started or not.
fn sources(at: usize, run: &Run) -> Vec<Source> {
    let one = |chain: u32| Source {
        run: at,
        number: chain,
        folder: Run::chain_folder(&run.folder, chain),
        results: Run::results_folder(&run.folder, chain, run.checked.settings.chains),
        stream: run.record.stream(run.checked.settings.seed, chain),
    };
    (1..=run.checked.settings.chains).map(one).collect()
}

fn check_streams(runs: &[Run], chains: &[Source]) -> Result<()> {
    for (at, second) in chains.iter().enumerate() {
        if let Some(first) = chains[..at].iter().find(|first| first.stream == second.stream) {
            let [first, second] = [first, second].map(|source| runs[source.run].folder.clone());
            let ChainStream { seed, chain } = chains[at].stream;
            return Err(Error::SameChainTwice { first, second, seed, chain });
        }
    }
    Ok(())
}

/// The number of sweeps that every chain has done.
fn common_sweep(runs: &[Run], chains: &[Source]) -> Result<u64> {
    let mut done = Vec::new();
    for source in chains {
        let exists = checkpoint::exists(&source.folder);
        if !exists && source.folder == runs[source.run].folder {
            let (kind, missing) = ("run folder with a checkpoint", "checkpoint/state.safetensors");
            return Err(Error::NotA { kind, path: source.folder.clone(), missing });
        }
        done.push(if exists { checkpoint::peek(&source.folder)?.0 } else { 0 });
    }
    let Some(other) = done.iter().position(|sweep| *sweep != done[0]) else { return Ok(done[0]) };
    Err(Error::UnevenChains {
        first: chains[0].folder.clone(),
        first_sweep: done[0],
        second: chains[other].folder.clone(),
        second_sweep: done[other],
        remedy: how_to_even_out(runs, chains, &done),
    })
}

/// The commands that bring all chains to the greatest length that any is planned to have: a run cannot be made shorter.
fn how_to_even_out(runs: &[Run], chains: &[Source], done: &[u64]) -> String {
    let target = runs.iter().map(|run| run.checked.window.sweeps).max().unwrap_or(0);
    let is_behind = |at: usize| chains.iter().zip(done).any(|(source, sweep)| source.run == at && *sweep < target);
    let behind = (0..runs.len()).filter(|at| is_behind(*at));
    let longer = |at: usize| {
        let resume = action(Verb::Resume).on(runs[at].folder.display()).with(setting("sweeps").to(target));
        match runs[at].checked.settings.until {
            Until::Sweeps => resume,
            Until::Settled => resume.with(setting("until").to("sweeps")),
        }
    };
    behind.map(|at| longer(at).to_string()).collect::<Vec<_>>().join("; ")
}

/// Refuses runs of other data or settings: everything that decides a chain and what is kept of it, but the seed.
fn check_same(first: &Run, second: &Run) -> Result<()> {
    let differ = |what: &'static str, name: String, values: [String; 2]| {
        let [first, second] = [first, second].map(|run| run.folder.clone());
        Err(Error::RunsDiffer { first, second, what, name, values: Box::new(values) })
    };
    let inputs = [first, second].map(|run| &run.record.inputs);
    if inputs[0].len() != inputs[1].len() {
        return differ("data", "the number of inputs".into(), inputs.map(|list| list.len().to_string()));
    }
    let mut pairs = inputs[0].iter().zip(inputs[1]);
    if let Some(at) = pairs.position(|(a, b)| a.checksum != b.checksum) {
        let show = |input: &InputRecord| format!("{} (checksum {})", input.path.display(), input.checksum);
        return differ("data", format!("input {}", at + 1), inputs.map(|list| show(&list[at])));
    }
    // Held-out rows are traced, so they are to be the same.
    if first.record.heldout_checksum != second.record.heldout_checksum {
        let show = |run: &Run| run.checked.settings.heldout.as_ref().map_or("none".into(), |p| p.display().to_string());
        return differ("settings", "heldout".into(), [first, second].map(show));
    }
    for ((what, name, one), (_, _, other)) in parts(first)?.iter().zip(&parts(second)?) {
        if let Some((name, values)) = difference(name, Some(one), Some(other)) {
            return differ(what, name, values);
        }
    }
    let left_out = [first, second].map(|run| run.checked.window.burn_in);
    if left_out[0] != left_out[1] {
        let n_chains = first.checked.settings.chains + second.checked.settings.chains;
        let [first, second] = [first, second].map(|run| run.folder.clone());
        return Err(Error::WindowsDiffer { first, second, left_out, n_chains });
    }
    Ok(())
}

/// What two runs must share beside their inputs: of data or of settings, under which name. What explains a difference
/// comes before what follows from it.
fn parts(run: &Run) -> Result<Vec<(&'static str, &'static str, Value)>> {
    let Recorded { mut settings, mut record } = run.recorded().deciding();
    // Chains had better start apart.
    (settings.seed, settings.init) = (0, String::new());
    // The structure is known by what it is, whatever its files are called.
    (settings.grid, settings.structure) = (None, None);
    (record.structure, record.graphs) = (String::new(), Vec::new());
    record.streams = Vec::new();
    let structure = run.structure()?;
    // By way of their text: written as values too, all of both would be compiled once more.
    let table = |text: &str| toml::from_str::<Table>(text).expect("what was written as TOML can be read");
    let settings = table(&settings.to_toml());
    let mut record = table(&toml::to_string(&record).expect("a record can be written as TOML"));
    let mut taken = |name: &str| record.remove(name).unwrap_or(Value::Array(Vec::new()));
    let (side, scale) = (taken("side_checksums"), taken("data_scale"));
    Ok(vec![
        ("data", "record.side_checksums", side),
        ("settings", "structure", Value::String(structure.identity())),
        ("settings", "the decomposition of the structure", Value::String(structure.probe())),
        ("settings", "", Value::Table(settings)),
        ("data", "record", Value::Table(record)),
        ("data", "record.data_scale", scale),
    ])
}

/// The first place where two values differ, and what stands there.
fn difference(name: &str, one: Option<&Value>, other: Option<&Value>) -> Option<(String, [String; 2])> {
    if let (Some(Value::Table(a)), Some(Value::Table(b))) = (one, other) {
        let below = |key: &String| if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        let mut keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
        return keys.find_map(|key| difference(&below(key), a.get(key), b.get(key)));
    }
    let show = |value: Option<&Value>| value.map_or("not set".into(), Value::to_string);
    (one != other).then(|| (name.to_string(), [show(one), show(other)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_with_both_values() {
        let value = |text: &str| Value::Table(toml::from_str(text).unwrap());
        let one = value("thin = 2\n[priors]\nnoise = [1.0, 2.0]");
        let of = |text: &str| difference("", Some(&one), Some(&value(text)));
        assert_eq!(of("thin = 2\n[priors]\nnoise = [1.0, 2.0]"), None);
        assert_eq!(of("thin = 3\n[priors]\nnoise = [1.0, 2.0]"), Some(("thin".into(), ["2".into(), "3".into()])));
        let (name, [a, b]) = of("thin = 2\n[priors]").unwrap();
        assert_eq!((name.as_str(), a.as_str(), b.as_str()), ("priors.noise", "[1.0, 2.0]", "not set"));
        assert_eq!(of("thin = 2\nmask = \"auto\"\n[priors]\nnoise = [1.0, 2.0]").unwrap().0, "mask");
    }
}
