//! `issfa report`: (re)make the figures and the page of a run.

use crate::options::{Common, named};
use crate::{Outcome, words};
use clap::Args;
use issfa::data::axes::parse_axes;
use issfa::error::bytes;
use issfa::report::brain::{Which, write_brain_figures};
use issfa::report::{add_evidence, forget_damaged_evidence, write_truth_figures};
use issfa::run::folder::{FIGURES, PAGE};
use issfa::run::held::Held;
use issfa::run::settings::PageSize;
use issfa::summary::{Fitted, Standing};
use issfa::{Error, Result};
use issfa_report::{Page, PageOptions};
use std::path::{Path, PathBuf};

/// (Re)make the figures of a run and its page, report.html: one file that needs no network
#[derive(Args)]
#[command(after_help = "Example:\n  issfa report run --truth sim")]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// Also compare with this simulation's truth
    #[arg(long, value_name = "SIM")]
    truth: Option<PathBuf>,
    /// The anatomical image under the figures of features (default: that of the fit, or the mean of the data)
    #[arg(long, value_name = "FILE")]
    background: Option<PathBuf>,
    /// Which features of brain images get a figure of their own: all, or ids of features.tsv (default: all
    /// up to 40, and the ends of the ranking by correlation between runs); figures of other features are taken away
    #[arg(long, value_name = "all|ID,ID...")]
    features: Option<String>,
    /// How much the page holds: full (all maps of each feature), light (one map a feature), none, or auto: full unless that
    /// were more than 40 MB (default: as the fit was told)
    #[arg(long, value_parser = named::<PageSize>(&["auto", "light", "full", "none"]))]
    report: Option<PageSize>,
    /// What the axes are called and where they lie, such as latitude=61:49,longitude=-10:2 (default: as the fit was told)
    #[arg(long, value_name = "NAME=FIRST:LAST,...")]
    axes: Option<String>,
    /// What issfa evaluate --json said, to be shown on the page
    #[arg(long, value_name = "FILE")]
    evaluation: Option<PathBuf>,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let _held = Held::of_run(&options.run)?;
    // What the data say again need not be believed.
    forget_damaged_evidence(&options.run)?;
    let mut fitted = Fitted::open(&options.run)?;
    let folder = options.run.join(FIGURES);
    // The other figures do not need the data.
    if let Err(problem) = add_evidence(&mut fitted, None) {
        common.warn(&format!("no figure of eigenvalues: {}", words::error(&problem)));
    }
    issfa::report::write_figures(&fitted, &folder)?;
    let of_the_fit = fitted.settings().background.as_deref();
    if let Some(path) = of_the_fit.filter(|path| options.background.is_none() && !path.is_file()) {
        let path = path.display();
        common
            .warn(&format!("the fit's background {path} is not there any more; the mean of the data takes its place"));
    }
    let background = options.background.as_deref().or(of_the_fit.filter(|path| path.is_file()));
    for warning in write_brain_figures(&fitted, &which(options.features.as_deref())?, background, &folder)? {
        common.warn(&warning);
    }
    if let Some(simulation) = &options.truth {
        write_truth_figures(&fitted, simulation, &folder)?;
    }
    common.say(&format!("figures in {}", folder.display()));
    let mut page = PageOptions::of(&fitted, &words::text);
    page.background = background.map(Path::to_path_buf);
    page.size = options.report.unwrap_or(page.size);
    if let Some(text) = &options.axes {
        page.axes = Some(parse_axes(text, fitted.structure().grid().len())?);
    }
    page.evaluation = options.evaluation.as_deref().map(read_evaluation).transpose()?;
    write_page(&fitted, &page, &options.run, common)?;
    Ok(())
}

fn read_evaluation(path: &Path) -> Result<serde_json::Value> {
    let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
    let problem = "is not what issfa evaluate --json prints";
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|_| Error::malformed(path, problem))?;
    if value.is_object() { Ok(value) } else { Err(Error::malformed(path, problem)) }
}

/// Makes the page of a run, says how large it is, and writes it; of a run in burn-in it shows what the chain stands at.
pub fn write_page(fitted: &Fitted, options: &PageOptions, run: &Path, common: &Common) -> Result<()> {
    let path = run.join(PAGE);
    if options.size == PageSize::None {
        return remove_page(&path, common);
    }
    let page = if fitted.summary().n_kept > 0 {
        Page::of(fitted, Standing::Results, options)?
    } else {
        let (fitted, standing) = Fitted::open_as_it_stands(run)?;
        Page::of(&fitted, standing, options)?
    };
    page.warnings.iter().for_each(|warning| err!("warning: {}", words::text(warning)));
    let (size, holds) = (bytes(page.html.len() as u64), page.holds("--report full"));
    common.say(&format!("page: {}, {size} ({holds})", path.display()));
    page.write(&path)
}

/// A page of an earlier time would show what is not so any more.
fn remove_page(path: &Path, common: &Common) -> Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => common.say(&format!("{} was of an earlier time and is removed", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::write(path)(error)),
    }
    Ok(())
}

fn which(text: Option<&str>) -> Result<Which> {
    let id = |part: &str| {
        let wrong = || Error::setting("features", part, "write all, or ids of features.tsv joined by commas");
        part.trim().parse::<u64>().map_err(|_| wrong())
    };
    match text {
        None => Ok(Which::Usual),
        Some("all") => Ok(Which::All),
        Some(text) => Ok(Which::These(text.split(',').map(id).collect::<Result<_>>()?)),
    }
}
