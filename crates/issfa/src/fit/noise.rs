//! The noise of the rows of a fit: measured, read from a file, or known from the run that goes on.

use crate::comm::Comm;
use crate::data::nifti::Header;
use crate::data::{Centering, Mask, Observations, Preprocessing, Rows};
use crate::error::{Error, setting};
use crate::noise::{self, Filter, Measured, Recipe, Reference, Sample, Subject};
use crate::numeric::bytes::Stored;
use crate::run::inputs;
use crate::run::settings::{Checked, NoiseModel};
use crate::structure::{Shelf, Structure};
use std::path::Path;
use std::sync::Arc;

type Result<T, E = Error> = std::result::Result<T, E>;

/// The noise of a fit.
pub(super) enum Noise {
    /// Rows are filtered.
    Filtered(Arc<Filter>),
    /// Rows stay as they are; if a reference was asked for, with the reason.
    White(Option<String>),
}

impl Noise {
    pub fn filter(&self) -> Option<&Arc<Filter>> {
        match self {
            Noise::Filtered(filter) => Some(filter),
            Noise::White(_) => None,
        }
    }
}

/// What is known of a run that goes on: its reference, or why it has none.
pub(super) type Known = Option<Result<Reference, Option<String>>>;

/// Whether noise is to be measured, from a sample of the rows.
pub(super) fn wants_sample(checked: &Checked, known: &Known) -> bool {
    checked.noise != NoiseModel::White && known.is_none()
}

/// Rank 0 measures, the others are told. The sample is of rows that are neither scaled nor divided.
pub(super) fn find(
    observations: &Observations,
    sample: Option<Sample>,
    structure: &Arc<Structure>,
    checked: &Checked,
    known: Known,
    mean_square: f64,
    comm: &dyn Comm,
) -> Result<Noise> {
    let filtered = |reference: Reference| {
        Noise::Filtered(Arc::new(Filter::new(reference, structure.clone(), observations.mask().clone())))
    };
    if checked.noise == NoiseModel::White {
        return Ok(Noise::White(None));
    }
    match known {
        Some(Ok(reference)) => return Ok(filtered(reference)),
        Some(Err(reason)) => return Ok(Noise::White(reason)),
        None => {}
    }
    let recipe = &checked.settings.noise_reference;
    let rows = PreparedRows { observations, structure, recipe, mean_square };
    // Every rank reads the file, so that a wrong one ends them all.
    let stored = match &checked.noise {
        NoiseModel::File(path) => Some(rows.stored(path)?),
        _ => None,
    };
    let mut bytes = Vec::new();
    if comm.rank() == 0 {
        let sample = sample.expect("rank 0 has looked at the rows");
        let measured = match stored {
            Some(reference) => rows.with_levels_of(reference, &sample),
            None => noise::measure(&rows.subject(&sample)),
        };
        bytes = match measured {
            Measured::Nothing(reason) => reason.as_bytes().to_vec(),
            Measured::Reference(reference) if comm.size() == 1 => return Ok(filtered(*reference)),
            Measured::Reference(reference) => reference.to_bundle().to_bytes(),
        };
    }
    comm.broadcast(&mut bytes);
    match Stored::from_bytes(bytes.clone(), observations.path()) {
        Ok(stored) => Ok(filtered(Reference::from_stored(&stored)?)),
        Err(_) => Ok(Noise::White(Some(String::from_utf8_lossy(&bytes).into_owned()))),
    }
}

/// The noise of rows, with what it lies on.
pub struct LookedAt {
    /// As a fit would use it.
    pub filter: Arc<Filter>,
    /// The basis.
    pub structure: Arc<Structure>,
    /// The sites that take part.
    pub mask: Mask,
    /// Where they lie, for images.
    pub space: Option<Header>,
}

/// Measures the noise of rows as a fit with these settings would.
pub fn look_at_noise(rows: &Rows, checked: &Checked, shelf: &Shelf) -> Result<LookedAt> {
    let settings = &checked.settings;
    inputs::check(rows, settings)?;
    let mut observations = inputs::open(rows, settings)?;
    let (path, n_sites) = (observations.path(), observations.n_sites());
    let structure = Arc::new(checked.structure(path, observations.grid(), n_sites, shelf)?);
    inputs::choose_cells(&mut observations, rows, settings, structure.grid(), None)?;
    let centering = settings.center.unwrap_or(Centering::Site);
    let mut sample = Sample::to_be(&observations);
    let mut show = |run: usize, row: &[f64]| sample.push(run, row);
    let (_, findings) = Preprocessing::fit_and_show(&observations, centering, false, Some(&mut show))?;
    sample.finish();
    let mean_square = findings.sum_of_squares / findings.n_cells;
    let mask = observations.mask().clone();
    let recipe = &settings.noise_reference;
    let rows = PreparedRows { observations: &observations, structure: &structure, recipe, mean_square };
    match noise::measure(&rows.subject(&sample)) {
        Measured::Reference(reference) => {
            let filter = Arc::new(Filter::new(*reference, structure.clone(), mask.clone()));
            Ok(LookedAt { filter, structure, mask, space: observations.space().cloned() })
        }
        Measured::Nothing(reason) => Err(Error::malformed(observations.path(), reason)),
    }
}

/// Rows as they are before they are filtered.
struct PreparedRows<'a> {
    observations: &'a Observations,
    structure: &'a Arc<Structure>,
    recipe: &'a Recipe,
    mean_square: f64,
}

impl PreparedRows<'_> {
    fn subject<'a>(&'a self, sample: &'a Sample) -> Subject<'a> {
        let PreparedRows { observations, structure, recipe, mean_square, .. } = *self;
        Subject { sample, n_runs: observations.n_runs(), structure, mask: observations.mask(), recipe, mean_square }
    }

    /// The reference of a file.
    fn stored(&self, path: &Path) -> Result<Reference> {
        if !path.is_file() {
            let problem =
                "write reference, white, or the file of a stored reference (noise_reference.safetensors of a run)";
            return Err(Error::setting("noise", path.display(), problem));
        }
        let reference = Reference::read(path)?;
        check_sites(&reference, path, self.structure, self.observations.mask())?;
        Ok(reference)
    }

    /// A reference of other rows, with the levels of these.
    fn with_levels_of(&self, reference: Reference, sample: &Sample) -> Measured {
        let measured = if sample.n_differences() == 0 {
            let run_levels = vec![reference.level; self.observations.n_runs()];
            Reference { run_levels, row_factors: Vec::new(), ..reference }
        } else {
            noise::remeasure(reference, &self.subject(sample))
        };
        Measured::Reference(Box::new(measured))
    }
}

fn check_sites(reference: &Reference, path: &Path, structure: &Structure, mask: &Mask) -> Result<()> {
    let (found, expected) = (reference.site_scales.len(), mask.n_columns());
    let differs = if found != expected {
        format!("has the noise of {found} sites, but {expected} take part here")
    } else if reference.structure != structure.identity() {
        format!("has the noise on {}, but the structure here is {}", reference.structure, structure.identity())
    } else if reference.mask_checksum != mask.checksum() {
        "has the noise under another mask".to_string()
    } else {
        return Ok(());
    };
    let (grid, of_mask, of_structure) = (setting("grid"), setting("mask"), setting("structure"));
    let problem = format!("{differs}; use a reference of the same {grid}, {of_mask} and {of_structure}");
    Err(Error::malformed(path, problem))
}
