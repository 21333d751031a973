//! `issfa fit`: from data to a run folder.

use super::report::write_page;
use crate::options::{Common, named, pair};
use crate::progress::Progress;
use crate::ranks::Job;
use crate::signals::Signals;
use crate::{Failure, Outcome, words};
use clap::Args;
use issfa::data::grid::show_grid;
use issfa::data::read::{ENDINGS, RowsAxis, expand_inputs};
use issfa::data::{Centering, Detrend, Missing, Rows};
use issfa::error::bytes;
use issfa::fit::{About, Ending, Ranks, Request, Session, hold};
use issfa::report::brain::{Which, check_background};
use issfa::run::doubts::doubts;
use issfa::run::folder::{FIGURES, Output};
use issfa::run::held::Held;
use issfa::run::inputs;
use issfa::run::settings::ThetaStep;
use issfa::run::settings::{Checked, PageSize, Precision, Preset, Settings, Start, USUAL_BURN_IN, USUAL_THIN, Weights};
use issfa::run::until::{MOST_UNTIL_SETTLED, Until};
use issfa::structure::{Shelf, expression};
use issfa::summary::overview::Overview;
use issfa::summary::text::seconds;
use issfa::summary::{Fitted, labels};
use issfa::{Error, report};
use issfa_report::PageOptions;
use std::path::{Path, PathBuf};

type Result<T, E = Error> = std::result::Result<T, E>;

/// Fit the model: draw from its posterior and write a run folder
#[derive(Args)]
#[command(
    after_help = "Example:\n  issfa simulate --preset small --seed 1 --out sim\n  issfa fit sim/observations.npy --grid 48x48 --sweeps 300 --burn-in 150 --out run"
)]
pub struct Options {
    /// The run folder to make
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    fit: FitOptions,
    #[command(flatten)]
    ranks: RankOptions,
}

/// How the ranks of mpirun are divided.
#[derive(Args)]
pub struct RankOptions {
    /// Under mpirun: so many ranks share a chain and its data (default: chains run side by side where ranks divide)
    #[arg(long, value_name = "N")]
    ranks_per_chain: Option<usize>,
}

impl RankOptions {
    pub fn divide(&self, job: &Job, n_chains: u32) -> Result<Ranks> {
        Ranks::for_chains(job.comm.clone(), n_chains, self.ranks_per_chain)
    }
}

/// Everything but where the results go.
#[derive(Args)]
pub struct FitOptions {
    /// Data: .npy (rows x sites, or rows x grid), .npz or FILE.npz:NAME, .csv, .tsv (also .gz), .nii or .nii.gz (a row a
    /// volume), .tif (a row a page), .png, or a folder of pictures; several files are stacked by rows, 3-D images and
    /// pictures are the rows of one run; "*" and "?" in file names are understood
    pub input: Vec<PathBuf>,
    /// Which axis of arrays and tables counts the rows: first, or last for arrays such as (x, y, z, time)
    #[arg(long, value_parser = named::<RowsAxis>(&["first", "last"]))]
    pub rows_axis: Option<RowsAxis>,
    /// Columns of tables to use, by name or number from 1: 2-785, or a,b; or, with ^ before each, to leave out: ^label
    #[arg(long, value_name = "LIST")]
    pub columns: Option<String>,
    /// Sites along each axis, such as 100x100; the last axis is fastest
    #[arg(long)]
    pub grid: Option<String>,
    /// One structure an axis, such as "path x path" (default: path on every axis); words: path(n), cycle(n), groups(sizes), wavelet(n,haar|d4), iid(n), graph(FILE)
    #[arg(long)]
    pub structure: Option<String>,
    /// The spectral curve: q, q^2, "q^2 + q", "q^2 + q'", axes
    #[arg(long)]
    pub curve: Option<String>,
    /// Iterations in all (default 1000; with --until settled at most so many, default 128000)
    #[arg(long)]
    pub sweeps: Option<u64>,
    /// sweeps, or settled: go on until R-hat is at most 1.05 with 100 independent draws (of the number of features, noise, theta,
    /// likelihood, and of whether the largest features are there), looked at after 1000, 2000, 4000 ... sweeps with the first half left out
    #[arg(long, value_parser = named::<Until>(&["sweeps", "settled"]))]
    pub until: Option<Until>,
    /// Iterations left out at the start (default 500, or two thirds of a shorter run)
    #[arg(long)]
    pub burn_in: Option<u64>,
    /// Keep every n-th iteration after burn-in (default 5, or all of a short run)
    #[arg(long)]
    pub thin: Option<u64>,
    /// Independent chains, side by side on the threads there are
    #[arg(long)]
    pub chains: Option<u32>,
    /// Same seed and data: same results
    #[arg(long)]
    pub seed: Option<u64>,
    /// isfa: no structure, weight means fixed at 0 (Knowles and Ghahramani)
    #[arg(long, value_parser = named::<Preset>(&["isfa"]))]
    pub preset: Option<Preset>,
    /// Where to start: kmeans:15, empty, or a run folder
    #[arg(long)]
    pub init: Option<String>,
    /// What the first sweeps of burn-in look at: the smoothest modes, which is faster, or all (default coarse)
    #[arg(long, value_parser = named::<Start>(&["coarse", "full"]))]
    pub start: Option<Start>,
    /// The most features there may be
    #[arg(long, value_name = "N")]
    pub max_features: Option<usize>,
    /// Inverse gamma prior of the noise variance, in the data's units (of the measured noise under a reference)
    #[arg(long, value_name = "SHAPE,SCALE", conflicts_with = "target_r2")]
    pub noise_prior: Option<String>,
    /// Ask for this share of variance to be explained, with a weight (default 10)
    #[arg(long, value_name = "R[:w]")]
    pub target_r2: Option<String>,
    /// The noise: reference (measured on differences of rows that follow each other), white (alike everywhere), or the file
    /// of a stored reference (default reference)
    #[arg(long, value_name = "reference|white|FILE")]
    pub noise: Option<String>,
    /// Measure the noise of every row of a series too, where rows differ (more than by chance)
    #[arg(long)]
    pub row_noise: bool,
    /// What active weights are drawn from: normal, or student with heavier tails (default normal)
    #[arg(long, value_parser = named::<Weights>(&["normal", "student"]))]
    pub weights: Option<Weights>,
    /// How theta is updated: mh is exact, laplace is as in the paper
    #[arg(long, value_parser = named::<ThetaStep>(&["mh", "laplace"]))]
    pub theta_step: Option<ThetaStep>,
    /// Subtract means: of each site (per run), of each row, or both (default: site)
    #[arg(long, value_parser = named::<Centering>(&["none", "site", "row", "both"]))]
    pub center: Option<Centering>,
    /// Divide each site by its standard deviation
    #[arg(long)]
    pub scale: bool,
    /// Take a straight line over the rows of each run out of every site (default none)
    #[arg(long, value_parser = named::<Detrend>(&["none", "linear"]))]
    pub detrend: Option<Detrend>,
    /// Tables of confounds (TSV, CSV or columns of numbers), one a run, regressed out of every site of the run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub confounds: Vec<PathBuf>,
    /// Use these columns of the confounds only, by their names
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',')]
    pub confound_columns: Vec<String>,
    /// Leave out the first N rows (volumes) of each run
    #[arg(long, value_name = "N")]
    pub drop_volumes: Option<usize>,
    /// Names the runs of a single array: a label for each row, or lines "name n_rows"
    #[arg(long, value_name = "FILE")]
    pub runs: Option<PathBuf>,
    /// Which sites take part: an image or .npy array of 0 and 1 on the grid, or auto (finite and not constant in every run)
    #[arg(long, value_name = "FILE|auto")]
    pub mask: Option<String>,
    /// What becomes of NaN cells: error refuses them, impute takes them for not observed
    #[arg(long, value_parser = named::<Missing>(&["error", "impute"]))]
    pub missing: Option<Missing>,
    /// How data are stored while sampling
    #[arg(long, value_parser = named::<Precision>(&["f32", "f64"]))]
    pub precision: Option<Precision>,
    /// Keep the data in a file in this folder instead of memory, for data that memory does not hold
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,
    /// The most memory to hold, such as 8GB: data that do not fit go to a file, in the folder of --spill or that of temporary files
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// How many evenly spaced draws to keep on disk
    #[arg(long, value_name = "N")]
    pub keep_draws: Option<usize>,
    /// Also write reconstruction.npy, the denoised data
    #[arg(long)]
    pub reconstruct: bool,
    /// Rows left out of the fit whose residual is traced
    #[arg(long, value_name = "FILE")]
    pub heldout: Option<PathBuf>,
    /// The size that exceedance and thresholded maps are about, in mean absolute values of a feature (default 2, the
    /// paper's threshold)
    #[arg(long, value_name = "TIMES")]
    pub exceed: Option<f64>,
    /// Also write MELODIC's files, melodic_IC.nii.gz and melodic_mix (NIfTI input)
    #[arg(long)]
    pub melodic: bool,
    /// The anatomical image under the figures of features (default: the mean of the data)
    #[arg(long, value_name = "FILE")]
    pub background: Option<PathBuf>,
    /// What the axes are called and where they lie, for pictures: latitude=61:49,longitude=-10:2 (first and last site)
    #[arg(long, value_name = "NAME=FIRST:LAST,...")]
    pub axes: Option<String>,
    /// How much report.html holds: full (all maps of each feature), light (one map a feature), none, or auto: full unless
    /// that were more than 40 MB (default auto)
    #[arg(long, value_parser = named::<PageSize>(&["auto", "light", "full", "none"]))]
    pub report: Option<PageSize>,
    /// Stop (and leave a checkpoint) after this time: 90s, 5m, 2h
    #[arg(long, value_name = "TIME")]
    pub time_budget: Option<String>,
    /// How often a checkpoint is written
    #[arg(long, value_name = "TIME")]
    pub checkpoint_every: Option<String>,
    /// Settings from a TOML file (a run's config.toml too); options given here win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl FitOptions {
    /// The checked settings: those of the file, then the options given.
    pub fn checked(self) -> Result<Checked> {
        let checked = self.settings()?.check()?;
        if checked.settings.input.is_empty() {
            let problem = format!("give at least one {ENDINGS} file, before options that take several files");
            return Err(Error::setting("input", "(none)", problem));
        }
        Ok(checked)
    }

    /// The settings of the file, if there is one, with the options given in their place.
    fn settings(mut self) -> Result<Settings> {
        let mut settings = self.config.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
        self.set_schedule(&mut settings);
        self.set_model(&mut settings)?;
        self.set_data(&mut settings)?;
        self.set_output(&mut settings);
        make_absolute(&mut settings);
        Ok(settings)
    }

    /// How long and from where.
    fn set_schedule(&mut self, settings: &mut Settings) {
        // The usual schedule, as it stands in the file of a longer run, gives way to that of a short one.
        let is_short = self.sweeps.unwrap_or(settings.sweeps) <= USUAL_BURN_IN;
        if is_short && settings.burn_in.is_none_or(|burn_in| burn_in == USUAL_BURN_IN) && self.burn_in.is_none() {
            settings.burn_in = None;
            settings.thin = settings.thin.filter(|thin| *thin != USUAL_THIN);
        }
        if self.until == Some(Until::Settled) && settings.until == Until::Sweeps {
            settings.sweeps = MOST_UNTIL_SETTLED;
        }
        set(&mut settings.until, self.until);
        set(&mut settings.sweeps, self.sweeps);
        settings.burn_in = self.burn_in.or(settings.burn_in);
        settings.thin = self.thin.or(settings.thin);
        set(&mut settings.chains, self.chains);
        set(&mut settings.seed, self.seed);
        set(&mut settings.init, self.init.take());
        set(&mut settings.start, self.start);
        settings.time_budget = self.time_budget.take().or(settings.time_budget.take());
        set(&mut settings.checkpoint_every, self.checkpoint_every.take());
    }

    /// What is fitted.
    fn set_model(&mut self, settings: &mut Settings) -> Result<()> {
        settings.grid = self.grid.take().or(settings.grid.take());
        let structure = self.structure.as_deref().map(expression::with_absolute_files).transpose()?;
        settings.structure = structure.or(settings.structure.take());
        set(&mut settings.curve, self.curve.take());
        settings.preset = self.preset.or(settings.preset);
        settings.max_features = self.max_features.or(settings.max_features);
        settings.target_r2 = self.target_r2.take().or(settings.target_r2.take());
        if let Some(text) = &self.noise_prior {
            settings.priors.noise = Some(pair("noise-prior", text)?);
        }
        set(&mut settings.noise, self.noise.take().map(|text| absolute_unless(&text, &["reference", "white"])));
        set(&mut settings.weights, self.weights);
        set(&mut settings.theta_step, self.theta_step);
        set(&mut settings.precision, self.precision);
        Ok(())
    }

    /// Which rows and sites, and what is done to them.
    fn set_data(&mut self, settings: &mut Settings) -> Result<()> {
        set(&mut settings.input, given(&mut self.input));
        settings.input = expand_inputs(&settings.input)?;
        set(&mut settings.rows_axis, self.rows_axis);
        settings.columns = self.columns.take().or(settings.columns.take());
        settings.center = self.center.or(settings.center);
        settings.scale |= self.scale;
        settings.noise_reference.row_levels |= self.row_noise;
        set(&mut settings.detrend, self.detrend);
        set(&mut settings.confounds, given(&mut self.confounds).map(|files| expand_inputs(&files)).transpose()?);
        set(&mut settings.confound_columns, given(&mut self.confound_columns));
        set(&mut settings.drop_volumes, self.drop_volumes);
        settings.runs = self.runs.take().or(settings.runs.take());
        settings.mask = self.mask.take().or(settings.mask.take()).map(|text| absolute_unless(&text, &["auto"]));
        set(&mut settings.missing, self.missing);
        settings.heldout = self.heldout.take().or(settings.heldout.take());
        settings.spill = self.spill.take().or(settings.spill.take());
        settings.memory = self.memory.take().or(settings.memory.take());
        Ok(())
    }

    /// What is kept and shown.
    fn set_output(&mut self, settings: &mut Settings) {
        set(&mut settings.keep_draws, self.keep_draws);
        settings.reconstruct |= self.reconstruct;
        set(&mut settings.exceed, self.exceed);
        settings.melodic |= self.melodic;
        settings.background = self.background.take().or(settings.background.take());
        settings.axes = self.axes.take().or(settings.axes.take());
        set(&mut settings.report, self.report);
    }
}

/// Absolute paths, so that the run can be resumed from anywhere.
fn make_absolute(settings: &mut Settings) {
    let inputs = settings.input.iter_mut().chain(&mut settings.confounds).chain(&mut settings.runs);
    let others = inputs.chain(&mut settings.heldout).chain(&mut settings.spill).chain(&mut settings.background);
    for path in others {
        *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    }
}

/// A list, if anything is in it.
fn given<T>(list: &mut Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| std::mem::take(list))
}

/// A file from the root, so that the run can be resumed from anywhere; words stay.
fn absolute_unless(text: &str, words: &[&str]) -> String {
    match words.contains(&text) {
        true => text.into(),
        false => std::path::absolute(text).map_or_else(|_| text.into(), |path| path.display().to_string()),
    }
}

fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *place = value;
    }
}

pub fn run(options: Options, job: &Job, common: &Common) -> Outcome {
    let checked = options.fit.checked()?;
    let held = hold(job.comm.as_ref(), &options.out, true, || {
        let inputs = inputs::files(&checked.settings.input, &checked.settings);
        Held::for_new(&options.out, Output::Run, common.overwrite, &inputs)
    })?;
    let ranks = options.ranks.divide(job, checked.settings.chains)?;
    fit_into(checked, held, ranks, common).map(|_| ())
}

/// Loads, announces, fits, and reports; returns what was fitted where this process has it.
pub fn fit_into(checked: Checked, held: Held, ranks: Ranks, common: &Common) -> Result<Option<Fitted>, Failure> {
    let tell = |text: &str| common.say(text);
    let out = held.folder().to_path_buf();
    checked.settings.background.as_deref().map_or(Ok(()), check_background)?;
    let shelf = Shelf::beside(&out, &tell);
    let rows = match ranks.all.rank() {
        0 => open_rows(&checked.settings, common)?,
        _ => checked.settings.rows()?,
    };
    let early = early_signals(&ranks);
    let watch = early.as_ref().map(Signals::watch);
    let request = Request { shelf: Some(&shelf), ranks, watch, ..Request::new(rows, checked) };
    run_session(Session::in_folder(request, held), early, &out, common)
}

/// Opens the rows, and says where they are probably not what is meant.
pub fn open_rows(settings: &Settings, common: &Common) -> Result<Rows> {
    let rows = settings.rows()?;
    doubts(&rows, settings)?.iter().for_each(|doubt| common.warn(doubt));
    Ok(rows)
}

/// Signals are heard while rows are read by one process; several ranks are ended by them until they all sweep.
pub fn early_signals(ranks: &Ranks) -> Option<Signals> {
    (ranks.all.size() == 1).then(Signals::listen)
}

/// Announces, runs, and reports.
pub fn run_session(
    session: Result<Session>,
    early: Option<Signals>,
    out: &Path,
    common: &Common,
) -> Result<Option<Fitted>, Failure> {
    let mut session = match (session, &early) {
        (Err(error @ Error::Stopped), Some(signals)) => {
            err!("{}", words::error(&error));
            return Err(Failure::Exit(signals.exit_code()));
        }
        (session, _) => session?,
    };
    let signals = early.unwrap_or_else(Signals::listen);
    announce(session.about(), out, common);
    let mut progress = Progress::new(common, signals.clone());
    let ending = session.run(&mut progress);
    progress.finish();
    conclude(ending?, &session, out, &signals, common)
}

/// The first line: what will be done.
fn announce(about: &About, out: &Path, common: &Common) {
    if !about.is_first_of_all() {
        return;
    }
    let (checked, record) = (&about.checked, &about.record);
    let settings = &checked.settings;
    let chains = if settings.chains > 1 { format!("{} chains of ", settings.chains) } else { String::new() };
    let until = match settings.until {
        Until::Sweeps => String::new(),
        Until::Settled => format!(" to the next look at whether they have settled, at most {} in all", settings.sweeps),
    };
    let ranks = match (about.ranks.all.size(), about.ranks.n_groups) {
        (1, _) => String::new(),
        (size, 1) => format!(" on rank 0 of {size}"),
        (size, groups) => format!(" on rank 0 of {size} (chains in {groups} groups side by side)"),
    };
    common.say(&format!(
        "fit: {} rows x {} sites ({}), {}, {}, about {} of memory{ranks}; {chains}{} sweeps{until} ({} burn-in, then every {} kept); results in {}",
        record.n_rows,
        record.n_sites,
        show_grid(about.structure.grid()),
        record.structure,
        about.precision,
        bytes(about.memory),
        checked.window.sweeps,
        checked.window.burn_in,
        ordinal(checked.thin),
        out.display(),
    ));
    let preparation = about.recorded().preparation();
    if !preparation.is_empty() {
        common.say(&format!("data: {preparation}"));
    }
    common.say(&format!("noise: {}", record.noise_in_words()));
    if settings.chains > 1 && checked.starts_from_a_run() {
        common.say("note: all chains start from the same state, so that R-hat between them says less than it seems to");
    }
    for doubt in record.noise.iter().flat_map(|noise| noise.doubts()) {
        common.say(&format!("note: {doubt}"));
    }
    if checked.is_promoted {
        common.say(
            "note: means of sites are so large that f32 could not hold what varies beside them: computing in f64 \
             (--center site would do with f32)",
        );
    }
    if settings.scale && record.noise.is_some() {
        common.say("note: --scale changes nothing here: sites are divided by their noise already");
    }
    if let Some(why) = record.why_no_row_levels(&settings.noise_reference) {
        common.say(&format!("note: --row-noise changes nothing here: {why}"));
    }
    warn_about(about, common);
}

/// What the data turned out to be that is probably not meant.
fn warn_about(about: &About, common: &Common) {
    let (checked, record) = (&about.checked, &about.record);
    if about.findings.nothing_left {
        common
            .warn("after centring nothing is left of the data: no site varies within a run, so nothing will be found");
    }
    if about.findings.share_of_site_means > 0.5 && checked.settings.center == Some(Centering::None) && record.n_rows > 1
    {
        common.warn(&format!(
            "site means hold {:.0}% of the sum of squares; --center site takes them out first",
            100.0 * about.findings.share_of_site_means
        ));
    }
    if checked.curve.sets_are_confounded() {
        common.warn("with q + q' only the sums of the two parameter sets are identified");
    }
}

/// Which of the sweeps are kept, for people.
pub fn ordinal(n: u64) -> String {
    match n {
        1 => "one".into(),
        2 => "2nd".into(),
        3 => "3rd".into(),
        n => format!("{n}th"),
    }
}

/// The figures of a run that has just been made.
pub fn figures(fitted: &Fitted, out: &Path, common: &Common) -> Result<()> {
    let folder = out.join(FIGURES);
    report::write_figures(fitted, &folder)?;
    // A run may be resumed where its background is not any more.
    let background = fitted.settings().background.as_deref().filter(|path| path.is_file());
    for warning in report::brain::write_brain_figures(fitted, &Which::Usual, background, &folder)? {
        common.warn(&warning);
    }
    Ok(())
}

/// What was found, in a line.
pub fn finding(overview: &Overview) -> String {
    match overview.n_kept {
        0 => {
            let now = overview.n_features_now.map_or(String::new(), |n| format!("; the chain stands at {n} features"));
            format!("no draws were kept yet: burn-in ({} sweeps) is not over{now}", overview.burn_in)
        }
        _ => format!(
            "{} persistent features, {} of which hold 95% of what they explain{}; all but noise is {:.1}% of the sum of \
             squares; {} per sweep on average",
            overview.n_persistent,
            overview.n_carrying_95,
            overview.n_agreeing.map_or(String::new(), |n| format!(", {n} of which agree between chains")),
            100.0 * overview.variance_explained,
            seconds(overview.seconds_per_sweep),
        ),
    }
}

/// Figures, last words and the exit code.
fn conclude(
    ending: Ending,
    session: &Session,
    out: &Path,
    signals: &Signals,
    common: &Common,
) -> Result<Option<Fitted>, Failure> {
    let Some(fitted) = session.fitted()? else {
        return if ending == Ending::Stopped { Err(Failure::Exit(signals.exit_code())) } else { Ok(None) };
    };
    let (shown, page) = rayon::join(
        || figures(&fitted, out, common),
        || write_page(&fitted, &PageOptions::of(&fitted, &words::text), out, common),
    );
    shown.and_then(|()| labels::write(&fitted, out)).and(page)?;
    let overview = fitted.summary();
    common.say(&finding(&overview));
    match ending {
        Ending::Finished => {
            common.say(&format!("done: {}; next: issfa summary {}", out.display(), out.display()));
        }
        Ending::OutOfTime => {
            common.say(&format!(
                "time budget used up at sweep {}; issfa resume {} goes on",
                overview.sweeps_done,
                out.display()
            ));
        }
        Ending::Stopped => {
            err!("stopped at sweep {}; issfa resume {} goes on", overview.sweeps_done, out.display());
            return Err(Failure::Exit(signals.exit_code()));
        }
    }
    Ok(Some(fitted))
}

/// Refuses to go on where a file is missing that every finished chain has.
pub fn require(path: &Path, kind: &'static str, missing: &'static str) -> Result<()> {
    if path.join(missing).is_file() { Ok(()) } else { Err(Error::NotA { kind, path: path.to_path_buf(), missing }) }
}
