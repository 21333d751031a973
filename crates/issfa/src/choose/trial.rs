//! One setting tried: short fits that do not see the held-out rows, and the errors at the hidden cells of these.

use super::judged::{Block, Trial, r2};
use crate::data::Rows;
use crate::data::division::{Division, Side};
use crate::data::observations::Watch;
use crate::error::{Error, Result, setting};
use crate::evaluate::hidden;
use crate::fit::{Ending, Observer, Request, Session};
use crate::run::settings::{Checked, PageSize, Settings};
use crate::run::trace::TraceRow;
use crate::run::until::Until;
use crate::structure::Shelf;
use crate::summary::Fitted;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is tried in place of the settings' own.
pub(super) struct Setting {
    pub structure: String,
    pub target_r2: Option<f64>,
}

impl Setting {
    /// For people.
    fn shown(&self) -> String {
        let structure = (!self.structure.is_empty()).then(|| setting("structure").to(&self.structure).to_string());
        let target = self.target_r2.map(|target| setting("target-r2").to(target).to_string());
        structure.into_iter().chain(target).collect::<Vec<_>>().join(" ")
    }
}

/// A trial may have so many features, however few the rows.
const FEWEST_AT_MOST: usize = 20;

/// The trials made so far, and what all have in common.
pub(super) struct Trials<'a> {
    rows: &'a Rows,
    checked: &'a Checked,
    divisions: Vec<Arc<Division>>,
    hide: f64,
    observer: &'a mut dyn Observer,
    watch: Option<Watch>,
    shelf: &'a Shelf<'a>,
    deadline: Option<Instant>,
    /// Settings that are sure to follow the next one.
    pub to_come: usize,
    made: Vec<Trial>,
}

impl<'a> Trials<'a> {
    pub fn new(
        rows: &'a Rows,
        checked: &'a Checked,
        (divisions, hide): (Vec<Arc<Division>>, f64),
        (observer, watch): (&'a mut dyn Observer, Option<Watch>),
        shelf: &'a Shelf<'a>,
    ) -> Trials<'a> {
        let deadline = checked.time_budget.map(|budget| Instant::now() + budget);
        Trials { rows, checked, divisions, hide, observer, watch, shelf, deadline, to_come: 0, made: Vec::new() }
    }

    pub fn made(&self) -> &[Trial] {
        &self.made
    }

    pub fn finish(self) -> Vec<Trial> {
        self.made
    }

    /// Tries a setting and gives its place among those made; nothing where a stop came first.
    pub fn make(&mut self, setting: Setting) -> Result<Option<usize>> {
        let start = Instant::now();
        let n_rows = self.divisions.first().map_or(0, |division| division.lengths().iter().sum());
        let checked = of_trial(&self.checked.settings, &setting, n_rows).check()?;
        self.observer.note(&format!("trying {}", setting.shown()));
        let (mut blocks, mut n_held, mut features, mut noise) = (Vec::new(), 0, 0.0, 0.0);
        for fold in 0..self.divisions.len() {
            let Some(fitted) = self.fit(&checked, fold)? else { return Ok(None) };
            let overview = fitted.summary();
            let kept: u64 = overview.n_features_posterior.values().map(|n| *n as u64).sum();
            let sum: f64 = overview.n_features_posterior.iter().map(|(k, n)| (*k * *n) as f64).sum();
            features += sum / (kept as f64).max(1.0);
            noise += 1.0 - overview.variance_explained;
            let division = &self.divisions[fold];
            n_held += division.n_held();
            match self.score(&fitted, division) {
                Err(Error::Stopped) => return Ok(None),
                scored => blocks.extend(scored?),
            }
        }
        let n_folds = self.divisions.len() as f64;
        let ((r2, r2_se), seconds) = (r2(&blocks), start.elapsed().as_secs_f64());
        let (n_features, share_of_noise) = (features / n_folds, noise / n_folds);
        let (structure, target_r2) = (setting.structure, setting.target_r2);
        let (behind, behind_se) = (0.0, 0.0);
        self.made.push(Trial {
            structure,
            target_r2,
            r2,
            r2_se,
            behind,
            behind_se,
            n_features,
            share_of_noise,
            seconds,
            blocks,
            n_held,
        });
        Ok(Some(self.made.len() - 1))
    }

    /// A fit to the rows that are not held out.
    fn fit(&mut self, checked: &Checked, fold: usize) -> Result<Option<Fitted>> {
        let rows = Rows { heldout: None, ..self.rows.clone().with_part(&self.divisions[fold], Side::Training) };
        let watch = self.watch.clone();
        let request = Request { shelf: Some(self.shelf), watch, ..Request::new(rows, checked.clone()) };
        let mut session = match Session::new(request, None) {
            Err(Error::Stopped) => return Ok(None),
            session => session?,
        };
        let n_folds = self.divisions.len();
        let n_to_come = self.to_come * n_folds + (n_folds - fold - 1);
        let mut follow =
            Follow { observer: &mut *self.observer, start: Instant::now(), n_to_come, deadline: self.deadline };
        match session.run(&mut follow)? {
            Ending::Finished => session.fitted(),
            Ending::Stopped | Ending::OutOfTime => Ok(None),
        }
    }

    fn score(&self, fitted: &Fitted, division: &Arc<Division>) -> Result<Vec<Block>> {
        let held = self.rows.clone().with_part(division, Side::Held);
        let mut blocks = vec![Block::default(); division.n_blocks()];
        for row in hidden::held_rows(fitted, &held, (self.hide, self.checked.settings.seed), self.watch.clone())? {
            blocks[division.block_of(row.run, row.row)].add(&row);
        }
        Ok(blocks)
    }
}

/// The settings of a short fit: one chain of so many sweeps, of which nothing is kept but draws. Where too little is taken for
/// noise features multiply without end; more than half as many as rows need not be seen.
fn of_trial(settings: &Settings, setting: &Setting, n_rows: usize) -> Settings {
    let most = (n_rows / 2).max(FEWEST_AT_MOST);
    let target_r2 = setting.target_r2.map(|target| target.to_string()).or(settings.target_r2.clone());
    let structure = Some(setting.structure.clone()).filter(|text| !text.is_empty());
    Settings {
        structure,
        target_r2,
        chains: 1,
        max_features: Some(settings.max_features.map_or(most, |wanted| wanted.min(most))),
        until: Until::Sweeps,
        time_budget: None,
        reconstruct: false,
        heldout: None,
        melodic: false,
        background: None,
        report: PageSize::None,
        ..settings.clone()
    }
}

/// Shows the sweeps of a fit with the time that is left of all.
struct Follow<'a> {
    observer: &'a mut dyn Observer,
    start: Instant,
    /// Fits after this one.
    n_to_come: usize,
    deadline: Option<Instant>,
}

impl Observer for Follow<'_> {
    fn sweep(&mut self, row: &TraceRow, total: u64, left: Duration) {
        let of_others = (self.start.elapsed() + left) * self.n_to_come as u32;
        self.observer.sweep(row, total, left + of_others);
    }

    fn wants_stop(&self) -> bool {
        self.observer.wants_stop() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn note(&mut self, text: &str) {
        self.observer.note(text);
    }
}
