//! `issfa noise`: the noise of a data set, to look at before fitting and to share between fits.

use super::fit::{FitOptions, open_rows};
use crate::Outcome;
use crate::options::Common;
use clap::Args;
use issfa::data::axes::parse_axes;
use issfa::fit::{LookedAt, look_at_noise};
use issfa::report::noise::write_noise_figures;
use issfa::report::upright::Upright;
use issfa::run::folder::{NOISE_REFERENCE, Output};
use issfa::run::held::Held;
use issfa::run::inputs;
use issfa::structure::Shelf;
use std::path::PathBuf;

/// Measure the noise on differences of rows that follow each other, and show it: what a fit with --noise reference uses
#[derive(Args)]
#[command(
    after_help = "Example:\n  issfa noise bold.nii.gz --mask mask.nii.gz --out noise\n  issfa fit bold.nii.gz --mask mask.nii.gz --noise noise/noise_reference.safetensors --out run"
)]
pub struct Options {
    /// The folder to make
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    fit: FitOptions,
}

pub fn run(options: Options, common: &Common) -> Outcome {
    let checked = options.fit.checked()?;
    let inputs = inputs::files(&checked.settings.input, &checked.settings);
    let mut held = Held::for_new(&options.out, Output::Noise, common.overwrite, &inputs)?;
    let tell = |text: &str| common.say(text);
    let shelf = Shelf::beside(&options.out, &tell);
    let rows = open_rows(&checked.settings, common)?;
    let LookedAt { filter, structure, mask, space } = look_at_noise(&rows, &checked, &shelf)?;
    let reference = filter.reference();
    let place = held.begin()?;
    reference.to_bundle().save(&place.join(NOISE_REFERENCE))?;
    let axes = checked.settings.axes.as_deref().map(|text| parse_axes(text, structure.grid().len())).transpose()?;
    let upright = Upright::new(structure.grid(), space.as_ref(), axes.as_deref());
    write_noise_figures(reference, &structure, &mask, &upright, &place)?;
    held.publish()?;
    common.say(&format!("noise: {}", reference.findings.in_words()));
    common.say(&format!(
        "its level is {:.4} in the data's units; rows vary {:.2} times as much as differences of neighbours ({}), of which {} were \
         looked at",
        reference.findings.level,
        reference.findings.ratio,
        if reference.findings.is_series { "a series" } else { "rows in no order" },
        reference.findings.n_differences,
    ));
    let shape = [reference.findings.n_rows, reference.run_levels.len(), reference.site_scales.len()];
    if let Some(why) = reference.findings.why_no_row_levels(shape, &checked.settings.noise_reference) {
        common.say(&format!("note: --row-noise changes nothing here: {why}"));
    }
    reference.findings.doubts().iter().for_each(|doubt| common.say(&format!("note: {doubt}")));
    common.say(&format!(
        "look at {}; issfa fit --noise {} uses it",
        options.out.join("noise_spectrum.png").display(),
        options.out.join(NOISE_REFERENCE).display()
    ));
    Ok(())
}
