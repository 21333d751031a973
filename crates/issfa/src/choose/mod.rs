//! Which settings: short fits to most of the rows, judged by the hidden cells of the others.
//!
//! Structures are tried first, at the same share of noise, what the first of them leaves of the variance where it was measured;
//! then, with the best of them, other shares: halved for as long as that predicts better, doubled for as long as it does not
//! predict worse.

mod candidates;
mod figure;
mod judged;
mod trial;

pub use judged::Trial;

use crate::data::division::Division;
use crate::data::observations::Watch;
use crate::data::{Rows, memory};
use crate::error::{Error, Result, setting};
use crate::fit::Observer;
use crate::numeric::files::write_atomically;
use crate::run::inputs;
use crate::run::settings::{Checked, Settings};
use crate::structure::Shelf;
use judged::{Verdict, judge};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use trial::{Setting, Trials};

/// Sweeps of each fit, unless it is told otherwise.
pub const USUAL_SWEEPS: u64 = 200;
/// The table of the trials.
pub const TABLE: &str = "choose.tsv";
/// Everything that was found.
pub const FOUND: &str = "choose.json";

/// The fewest rows that can be divided.
const LEAST_ROWS: usize = 30;
/// The fewest blocks whose scatter gives a standard error.
const LEAST_BLOCKS: usize = 3;
/// How often the share of noise is halved, and how often doubled.
const MOST_STEPS: usize = 4;
/// The least and the largest share of noise that is tried.
const SHARES: [f64; 2] = [0.01, 0.95];

/// How settings are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judging {
    /// The share of cells of held-out rows that is hidden.
    pub hide: f64,
    /// The share of rows that a fit does not see.
    pub holdout: f64,
    /// How many such parts are left out, one after the other: as many fits of each setting.
    pub folds: usize,
}

impl Default for Judging {
    fn default() -> Judging {
        Judging { hide: 0.2, holdout: 0.2, folds: 1 }
    }
}

/// What was tried, and what is recommended.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Rows that took part.
    pub n_rows: usize,
    /// Rows that were held out, of all folds.
    pub n_held: usize,
    /// The blocks that they are in.
    pub n_blocks: usize,
    /// The share of their cells that was hidden.
    pub hide: f64,
    /// Of each fit.
    pub sweeps: u64,
    /// In the order in which they were made.
    pub trials: Vec<Trial>,
    /// The place of the one with the largest R2.
    pub best: usize,
    /// The place of the one to be used.
    pub recommended: usize,
    /// Why.
    pub reason: String,
    /// R2 of the hidden cells where those of every block are predicted by what the other blocks recommend.
    pub r2_of_choice: f64,
    /// Whether all was tried, and nobody asked for a stop.
    pub is_complete: bool,
}

/// Tries settings and recommends one. A structure or a prior of the noise that the settings name is kept.
pub fn choose(
    rows: &Rows,
    checked: &Checked,
    judging: &Judging,
    shelf: &Shelf,
    (observer, watch): (&mut dyn Observer, Option<Watch>),
) -> Result<Choice> {
    let settings = &checked.settings;
    let fixed = Fixed::of(settings)?;
    let period = judging.period()?;
    inputs::check(rows, settings)?;
    let wants_stop = || watch.as_ref().is_some_and(|wants_stop| wants_stop());
    let rows = rows.clone().remembered(memory::available().map_or(1 << 30, |free| free / 4), &wants_stop)?;
    let observations = inputs::open(&rows, settings)?;
    let structure = checked.structure(observations.path(), observations.grid(), observations.n_sites(), shelf)?;
    let lengths: Vec<usize> = observations.runs().iter().map(|run| run.n_rows).collect();
    let division = |fold: usize| Arc::new(Division::new(&lengths, period, fold));
    let divisions: Vec<Arc<Division>> = (0..judging.folds).map(division).collect();
    check_rows(rows.path(), &lengths, &divisions[0], judging.holdout)?;
    let structures = match &settings.structure {
        Some(given) => vec![given.clone()],
        None if fixed.structure => vec![String::new()],
        None => candidates::structures(&rows, settings, structure.grid(), &divisions[0])?,
    };
    let mut trials = Trials::new(&rows, checked, (divisions, judging.hide), (observer, watch), shelf);
    let is_complete = try_all(&mut trials, structures, &fixed)?;
    let made = trials.finish();
    if made.is_empty() {
        return Err(Error::Stopped);
    }
    Ok(Choice::of(made, (lengths.iter().sum(), judging, checked.window.sweeps), is_complete))
}

/// What the settings say already.
struct Fixed {
    structure: bool,
    noise: bool,
}

impl Fixed {
    fn of(settings: &Settings) -> Result<Fixed> {
        let fixed = Fixed {
            structure: settings.structure.is_some() || settings.preset.is_some(),
            noise: settings.target_r2.is_some() || settings.priors.noise.is_some(),
        };
        if fixed.structure && fixed.noise {
            let problem = format!(
                "the settings name the structure and how much is noise, so that nothing is left to be chosen; leave out {} or {}",
                setting("structure"),
                setting("target-r2")
            );
            return Err(Error::setting("structure, target-r2", "both given", problem));
        }
        if Path::new(&settings.init).is_dir() {
            let problem = "fits of a part of the rows cannot start from a run of all of them; leave it out";
            return Err(Error::setting("init", &settings.init, problem));
        }
        Ok(fixed)
    }
}

impl Judging {
    /// Every how many blocks one is held out.
    fn period(&self) -> Result<usize> {
        if !(self.holdout >= 0.01 && self.holdout <= 0.5) {
            let problem = "give the share of rows to hold out: at least 0.01 and at most 0.5, such as 0.2";
            return Err(Error::setting("holdout", self.holdout, problem));
        }
        if !(self.hide > 0.0 && self.hide < 1.0) {
            return Err(Error::setting("hide", self.hide, "give a share above 0 and below 1, such as 0.2"));
        }
        let period = (1.0 / self.holdout).round() as usize;
        match (1..=period).contains(&self.folds) {
            true => Ok(period),
            false => {
                let problem = format!("with {} there are at most {period}", setting("holdout").to(self.holdout));
                Err(Error::setting("folds", self.folds, problem))
            }
        }
    }
}

fn check_rows(path: &Path, lengths: &[usize], division: &Division, holdout: f64) -> Result<()> {
    let n_rows: usize = lengths.iter().sum();
    if n_rows < LEAST_ROWS {
        let problem = format!("has {n_rows} rows; at least {LEAST_ROWS} are needed to hold some of them out");
        return Err(Error::malformed(path, problem));
    }
    if division.n_blocks() < LEAST_BLOCKS {
        let problem = format!(
            "of {n_rows} rows in {} runs only {} blocks would be held out, but {LEAST_BLOCKS} are needed; hold out more",
            lengths.len(),
            division.n_blocks()
        );
        return Err(Error::setting("holdout", holdout, problem));
    }
    Ok(())
}

/// Structures first, then shares of noise; says whether all was tried.
fn try_all(trials: &mut Trials, structures: Vec<String>, fixed: &Fixed) -> Result<bool> {
    let n_directions = if fixed.noise { 0 } else { 2 };
    for (at, structure) in structures.iter().enumerate() {
        trials.to_come = structures.len() - at - 1 + n_directions;
        // With more of the variance to explain another structure would predict better for that alone.
        let share = trials.made().first().map(|first| first.share_of_noise);
        let share = share.filter(|share| !fixed.noise && (SHARES[0]..=SHARES[1]).contains(share));
        let target_r2 = share.map(|share| rounded(1.0 - share));
        if trials.make(Setting { structure: structure.clone(), target_r2 })?.is_none() {
            return Ok(false);
        }
    }
    if fixed.noise {
        return Ok(true);
    }
    let picked = judge(trials.made()).recommended;
    let base = trials.made()[picked].clone();
    for (at, factor) in [0.5, 2.0].into_iter().enumerate() {
        trials.to_come = 1 - at;
        let mut share = base.share_of_noise;
        for _ in 0..MOST_STEPS {
            share *= factor;
            if !(SHARES[0]..=SHARES[1]).contains(&share) {
                break;
            }
            let target_r2 = Some(rounded(1.0 - share));
            let Some(made) = trials.make(Setting { structure: base.structure.clone(), target_r2 })? else {
                return Ok(false);
            };
            let (before, now) = (judge(&trials.made()[..made]), judge(trials.made()));
            // More features are to be worth it; fewer are welcome for as long as they predict as well.
            let goes_on =
                if factor < 1.0 { now.best == made && now.is_worse(before.best) } else { !now.is_worse(made) };
            if !goes_on {
                break;
            }
        }
    }
    Ok(true)
}

/// As many digits as tell shares of noise apart that differ by a tenth.
fn rounded(target_r2: f64) -> f64 {
    let digits = if target_r2 > 0.9 { 1000.0 } else { 100.0 };
    (target_r2 * digits).round() / digits
}

impl Choice {
    fn of(made: Vec<Trial>, (n_rows, judging, sweeps): (usize, &Judging, u64), is_complete: bool) -> Choice {
        let verdict = judge(&made);
        let Verdict { best, recommended, .. } = verdict;
        let (reason, r2_of_choice) = (verdict.reason(&made), judged::r2_of_choice(&made));
        let (n_held, n_blocks) = (made[0].n_held, made[0].blocks.len());
        let mut trials = made;
        for (trial, (behind, error)) in trials.iter_mut().zip(&verdict.behind) {
            (trial.behind, trial.behind_se) = (*behind, *error);
        }
        let hide = judging.hide;
        Choice { n_rows, n_held, n_blocks, hide, sweeps, trials, best, recommended, reason, r2_of_choice, is_complete }
    }

    /// The trial that is recommended.
    pub fn chosen(&self) -> &Trial {
        &self.trials[self.recommended]
    }

    /// These settings with what is recommended.
    pub fn settings(&self, settings: &Settings) -> Settings {
        let Trial { structure, target_r2, .. } = self.chosen();
        let target_r2 = target_r2.map(|target| target.to_string()).or(settings.target_r2.clone());
        let structure = Some(structure.clone()).filter(|text| !text.is_empty());
        Settings { structure, target_r2, ..settings.clone() }
    }

    /// The trials as text, a line each.
    pub fn table(&self) -> String {
        let header =
            "structure\ttarget_r2\tr2\tr2_se\tbehind\tbehind_se\tn_features\tshare_of_noise\tseconds\tis_recommended\n";
        let line = |(at, trial): (usize, &Trial)| {
            let Trial {
                structure, target_r2, r2, r2_se, behind, behind_se, n_features, share_of_noise, seconds, ..
            } = trial;
            let target = target_r2.map_or("n/a".into(), |target| target.to_string());
            format!(
                "{structure}\t{target}\t{r2:.6}\t{r2_se:.6}\t{behind:.6}\t{behind_se:.6}\t{n_features:.2}\t{share_of_noise:.6}\t\
                 {seconds:.2}\t{}\n",
                at == self.recommended
            )
        };
        header.to_string() + &self.trials.iter().enumerate().map(line).collect::<String>()
    }

    /// Writes table, JSON and figure into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write_atomically(&folder.join(TABLE), self.table().as_bytes())?;
        let json = serde_json::to_string_pretty(self).expect("a choice is JSON");
        write_atomically(&folder.join(FOUND), json.as_bytes())?;
        figure::of(self).save(folder, "choose")
    }
}
