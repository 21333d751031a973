//! Rows left out of a fit whose residual is traced.

use crate::compiled::Sampled;
use crate::data::nifti::space::check_same_place;
use crate::data::preprocess::MeansOf;
use crate::data::{Missing, Observations, Preprocessing, Rows};
use crate::error::{Error, Result, Verb, action, setting};
use crate::noise::{Filter, RowNoise, levels_of_new_rows};
use crate::run::inputs;
use crate::run::settings::Settings;
use crate::spectral::load::Loaded;
use crate::structure::Structure;
use std::sync::Arc;

/// Rows whose residual is traced, from where they were given.
pub(super) fn heldout_rows(rows: &Rows, settings: &Settings) -> Result<Option<Rows>> {
    let heldout = match (&rows.heldout, &settings.heldout) {
        (Some(heldout), _) => Rows::clone(heldout),
        (None, Some(path)) => Rows::open_as(std::slice::from_ref(path), &settings.reading()?)?,
        (None, None) => return Ok(None),
    };
    if !settings.confounds.is_empty() || !rows.confounds.is_empty() {
        let problem = format!(
            "the confounds of held-out rows are not known; leave it out and use {}, or do without {}",
            action(Verb::Evaluate).with(setting("data")),
            setting("confounds")
        );
        return Err(Error::setting("heldout", heldout.path().display(), problem));
    }
    Ok(Some(heldout))
}

/// What they are known by.
pub(super) fn heldout_checksum(rows: &Rows, settings: &Settings) -> Result<Option<String>> {
    let Some(heldout) = heldout_rows(rows, settings)? else { return Ok(None) };
    let checksums: Vec<String> = heldout.checksums()?.into_iter().map(|(_, checksum)| checksum).collect();
    Ok(Some(checksums.join(",")))
}

/// Loads them as new rows: under the training rows' mask, centred by the means of all of them, filtered at their own level.
pub(super) fn load_heldout<R: Sampled>(
    rows: &Rows,
    training: &Observations,
    structure: &Arc<Structure>,
    (preprocessing, filter): (&Preprocessing, Option<&Filter>),
    settings: &Settings,
) -> Result<Loaded<R>> {
    let mut observations = Observations::of(rows);
    if let Some(runs) = &rows.runs {
        observations.split(runs)?;
    }
    observations.check_grid(structure.grid(), "as in the training rows")?;
    if let (Some(own), Some(new)) = (training.space(), observations.space()) {
        check_same_place((training.path(), own), (observations.path(), new))?;
    }
    observations.drop_first(settings.drop_volumes)?;
    observations.set_mask(training.mask().clone());
    if settings.missing == Missing::Impute {
        observations.allow_missing()?;
    }
    inputs::add_covariates(&mut observations, settings.detrend, &[], 0)?;
    // Held-out rows are new rows: they are centred by the means of all training rows.
    let as_new =
        Preprocessing { runs: vec![preprocessing.overall.clone(); observations.n_runs()], ..preprocessing.clone() };
    let recipe = &settings.noise_reference;
    let levels = filter.map(|filter| levels_of_new_rows(filter, &observations, &as_new, recipe, MeansOf::Run));
    let levels = levels.transpose()?.unwrap_or_default();
    let noise = filter.map(|filter| RowNoise { filter, levels: &levels });
    R::all_rows(&observations, structure, &as_new, noise)
}
