//! New observations under a fitted model: weights, activations and denoised rows, averaged over the kept draws.

use super::scatter::Scatter;
use super::{Effort, FEW_ROWS, FeaturesAre, Known, RowMeans};
use crate::chain::matching::dot;
use crate::chain::posterior::UnitImage;
use crate::compiled::Sampled;
use crate::data::nifti::space::check_same_place;
use crate::data::observations::Watch;
use crate::data::preprocess::MeansOf;
use crate::data::regression::{Regression, RunFit};
use crate::data::rows::check_same_names;
use crate::data::{Array, Covariates, Detrend, Observations, Rows};
use crate::error::{Error, Result, setting};
use crate::model::State;
use crate::noise::levels_of_new_rows;
use crate::numeric::linalg::{View, multiply};
use crate::numeric::workers::share;
use crate::rng::Streams;
use crate::run::draws::Draw;
use crate::run::folder::MASK_IMAGE;
use crate::run::inputs;
use crate::run::settings::Precision;
use crate::spectral::load::{Loaded, holes_of, lay_out, to_columns};
use crate::spectral::{Domain, FeatureSpectra, SpectralData, Tiles};
use crate::structure::{Direction, Spectrum};
use crate::summary::Fitted;
use std::path::PathBuf;
use xxhash_rust::xxh3::Xxh3;

/// New rows at a time.
const BATCH_BYTES: usize = 256 << 20;

/// Which site means new rows are centred by (and get back), and whose slopes on trend and confounds are taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CenterNew {
    /// Those of the training rows.
    Train,
    /// Those of each new file.
    Own,
}

/// How new rows are to be prepared and shown.
#[derive(Clone)]
pub struct NewRowSettings {
    /// Whose means and slopes are taken off.
    pub center: CenterNew,
    /// Those of the new runs, where the fit had confounds.
    pub confounds: NewConfounds,
    /// Rows to leave out at the start of each run; none: as many as in the fit.
    pub drop_volumes: Option<usize>,
    /// Ids of features that are left out of the reconstruction.
    pub drop: Vec<u64>,
    /// Whether each row is taken as if it were the only one, with the training rows' level of noise, no trend, and random
    /// numbers by its values: what is said of it depends neither on the other rows nor on their order. (Confounds, where
    /// they are given, are centred over all rows.)
    pub apart: bool,
    /// What rows take the features for; none: integrated out after a fit to fewer than [`FEW_ROWS`] rows. Under a mask and
    /// where cells are missing they are at their means whatever is asked for.
    pub features: Option<FeaturesAre>,
    /// Asked between chunks of rows and between draws whether to stop.
    pub watch: Option<Watch>,
}

/// The confounds of new rows.
#[derive(Clone, Debug, Default)]
pub enum NewConfounds {
    /// Those that came along with the rows; without any, the fit must have had none.
    #[default]
    OfRows,
    /// Do without.
    Without,
    /// One file a run.
    Files(Vec<PathBuf>),
}

/// New rows under a fitted model, in the user's units.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformed {
    /// How strongly rows use the persistent features: rows x K.
    pub weights: Array,
    /// How probably they use them: rows x K.
    pub activation: Array,
    /// Denoised rows: rows x grid.
    pub reconstruction: Array,
}

/// Results for a batch of rows, row-major, in the user's units.
pub struct Batch {
    /// The first one's place.
    pub first_row: usize,
    /// Rows x persistent features.
    pub weights: Vec<f32>,
    /// Rows x persistent features.
    pub activation: Vec<f32>,
    /// Rows x sites.
    pub reconstruction: Vec<f32>,
    /// How many of the rows took the features at their means.
    pub n_at_means: usize,
}

impl Default for NewRowSettings {
    fn default() -> NewRowSettings {
        let (center, confounds) = (CenterNew::Train, NewConfounds::OfRows);
        let (drop, apart, features) = (Vec::new(), false, None);
        NewRowSettings { center, confounds, drop_volumes: None, drop, apart, features, watch: None }
    }
}

impl NewRowSettings {
    /// Whether whoever watches wants it to end.
    pub fn is_over(&self) -> bool {
        self.watch.as_ref().is_some_and(|wants_stop| wants_stop())
    }

    /// An error where whoever watches wants it to end.
    pub fn heed(&self) -> Result<()> {
        if self.is_over() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Whole files without confounds, such as those of a simulation.
    pub fn plain() -> NewRowSettings {
        NewRowSettings { confounds: NewConfounds::Without, drop_volumes: Some(0), ..NewRowSettings::default() }
    }
}

impl Batch {
    /// Nothing was observed of this row, so nothing is said of it.
    fn forget(&mut self, row: usize, n_rows: usize) {
        for values in [&mut self.weights, &mut self.activation, &mut self.reconstruction] {
            let width = values.len() / n_rows;
            values[row * width..(row + 1) * width].fill(f32::NAN);
        }
    }
}

impl Fitted {
    /// Weights, activations and denoised versions of new rows, averaged over the kept draws. NaN is a cell that was not
    /// observed.
    pub fn transform(&self, rows: Rows) -> Result<Transformed> {
        self.transform_with(&rows, &NewRowSettings::default())
    }

    /// [`Fitted::transform`] of rows that are prepared in another way.
    pub fn transform_with(&self, rows: &Rows, how: &NewRowSettings) -> Result<Transformed> {
        let observations = self.open_rows(rows, how)?;
        let (mut weights, mut activation, mut reconstruction) = (Vec::new(), Vec::new(), Vec::new());
        self.transform_batches(&observations, how, &mut |batch| {
            weights.extend(batch.weights);
            activation.extend(batch.activation);
            reconstruction.extend(batch.reconstruction);
            Ok(())
        })?;
        let (n_rows, k) = (observations.n_rows(), self.ids().len());
        let shape: Vec<usize> = std::iter::once(n_rows).chain(self.structure.grid().iter().copied()).collect();
        Ok(Transformed {
            weights: Array::new(&[n_rows, k], weights),
            activation: Array::new(&[n_rows, k], activation),
            reconstruction: Array::new(&shape, reconstruction),
        })
    }

    /// The ids of the persistent features.
    pub fn ids(&self) -> Vec<u64> {
        self.found().features.table.iter().map(|row| row.id).collect()
    }

    /// New rows under the mask of the fit and with its covariates; NaN is a cell that was not observed.
    pub fn open_rows(&self, rows: &Rows, how: &NewRowSettings) -> Result<Observations> {
        // Whoever asks is about to make room for results.
        self.draws()?;
        let settings = self.settings();
        let mut observations = Observations::of(rows);
        self.check_sites(&observations)?;
        if let Some(runs) = &rows.runs {
            observations.split(runs)?;
        }
        let n_dropped = how.drop_volumes.unwrap_or(settings.drop_volumes);
        observations.drop_first(n_dropped)?;
        how.watch.iter().cloned().for_each(|watch| observations.set_watch(watch));
        observations.set_mask(self.mask.clone());
        observations.allow_holes();
        // Every batch goes through all kept draws.
        observations.set_chunk_bytes(BATCH_BYTES);
        let n_trends = usize::from(settings.detrend == Detrend::Linear);
        let names = &self.preprocessing.covariates[n_trends..];
        let columns = (!names.is_empty()).then_some(names);
        let tables = match &how.confounds {
            NewConfounds::Without => Vec::new(),
            NewConfounds::Files(files) if names.is_empty() => return Err(no_confounds(files.len())),
            NewConfounds::Files(files) => inputs::read_tables(files, columns)?,
            NewConfounds::OfRows if names.is_empty() && !rows.confounds.is_empty() => {
                return Err(no_confounds(rows.confounds.len()));
            }
            NewConfounds::OfRows if rows.confounds.is_empty() && !names.is_empty() => {
                let problem = format!(
                    "the run had confounds taken out ({}); give {} of the new runs, or {}",
                    names.join(", "),
                    setting("confounds").to("FILE..."),
                    setting("confounds").to("none")
                );
                return Err(Error::setting("confounds", "(nothing)", problem));
            }
            NewConfounds::OfRows => inputs::given_tables(rows, columns)?,
        };
        inputs::add_covariates(&mut observations, settings.detrend, &tables, n_dropped)?;
        if how.apart && settings.detrend == Detrend::Linear {
            observations.set_covariates(observations.covariates().clone().without_trend());
        }
        Ok(observations)
    }

    /// Refuses rows of other sites, of the same sites elsewhere, or of columns with other names.
    pub fn check_sites(&self, observations: &Observations) -> Result<()> {
        let because = format!("the run's structure is {}", self.structure.expression());
        observations.check_grid(self.structure.grid(), &because)?;
        if let (Some(expected), Some(found)) = (&self.column_names, observations.column_names()) {
            check_same_names((observations.path(), found), (&self.name().display().to_string(), expected))?;
        }
        match (&self.space, observations.space()) {
            (Some(own), Some(new)) => {
                let path = self.name().join(MASK_IMAGE);
                check_same_place((&path, own), (observations.path(), new))
            }
            _ => Ok(()),
        }
    }

    /// What new rows are prepared by: fits of their own, one a run, or nothing for the training rows'.
    pub fn own_fits(&self, observations: &Observations, center: CenterNew) -> Result<Vec<RunFit>> {
        match center {
            CenterNew::Train => Ok(Vec::new()),
            CenterNew::Own => Ok(Regression::of(observations, None)?.finish().runs),
        }
    }

    /// Refuses ids that no persistent feature has.
    pub fn check_ids(&self, drop: &[u64]) -> Result<()> {
        let ids = self.ids();
        let Some(id) = drop.iter().find(|id| !ids.contains(id)) else { return Ok(()) };
        let known = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        Err(Error::setting("drop", id, format!("no such id in features.tsv; there are: {known}")))
    }

    /// Infers all rows batch by batch.
    pub fn transform_batches(
        &self,
        observations: &Observations,
        how: &NewRowSettings,
        visit: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        self.check_sites(observations)?;
        self.check_ids(&how.drop)?;
        let n_sites = observations.n_columns();
        let own = self.own_fits(observations, how.center)?;
        let rows_at_once = (BATCH_BYTES / (8 * n_sites)).max(1);
        let means_of = |run: usize| own.get(run).map_or(MeansOf::Training, MeansOf::These);
        let levels = match (how.apart, &self.noise) {
            (true, Some(filter)) => vec![filter.reference().level; observations.n_rows()],
            _ => self.levels(observations, means_of)?,
        };
        observations.for_each_chunk(&mut |run, first_row, values| {
            let way = Way { means: means_of(run), levels: &levels, covariates: observations.covariates(), how };
            for (at, rows) in values.chunks_mut(rows_at_once * n_sites).enumerate() {
                let first_row = first_row + at * rows_at_once;
                visit(match self.settings().precision {
                    Precision::F32 => self.transform_batch::<f32>(rows, first_row, way)?,
                    Precision::F64 => self.transform_batch::<f64>(rows, first_row, way)?,
                })?;
            }
            Ok(())
        })
    }

    /// Rows that begin with `first_row` of all; they are used up.
    fn transform_batch<R: Sampled>(&self, rows: &mut [f64], first_row: usize, way: Way) -> Result<Batch> {
        let n_sites = self.mask.n_columns();
        let n_rows = rows.len() / n_sites;
        let keys: Vec<u64> = match way.how.apart {
            true => rows.chunks_exact(n_sites).map(key_of_values).collect(),
            false => (first_row..first_row + n_rows).map(|row| row as u64).collect(),
        };
        let mut offsets = vec![0.0; n_rows];
        share(
            rows.chunks_exact_mut(n_sites).zip(&mut offsets).enumerate(),
            || (),
            |_, (at, (row, offset))| {
                *offset = self.preprocessing.apply(row, way.covariates.row(first_row + at), way.means);
            },
        );
        let is_empty: Vec<bool> = rows.chunks_exact(n_sites).map(|row| row.iter().all(|x| x.is_nan())).collect();
        let levels = &way.levels[first_row..first_row + n_rows];
        let parts = self.parts::<R>(rows, levels);
        let mut sums = Sums::new(n_rows, self.structure.n_sites(), self.ids().len());
        let draws = self.draws()?;
        for number in 0..draws.len() {
            way.how.heed()?;
            let draw = draws.read::<R>(number)?;
            // The draw's number keys the streams, so that draws differ and batches do not matter.
            let streams = Streams { seed: self.settings().seed, chain: 0, sweep: number as u64 };
            self.add_draw(&draw, &parts, (&streams, &keys), way.how, &mut sums);
        }
        let mut batch = self.finish(sums, first_row, (way.means, levels), &offsets);
        for row in (0..n_rows).filter(|&row| is_empty[row]) {
            batch.forget(row, n_rows);
        }
        Ok(batch)
    }

    fn add_draw<R: Sampled>(
        &self,
        draw: &Draw<R>,
        parts: &[Part<R>],
        (streams, keys): (&Streams, &[u64]),
        how: &NewRowSettings,
        sums: &mut Sums,
    ) {
        let (state, ids) = (&draw.state, self.ids());
        let images = R::images(&state.features, &self.shown());
        let places = self.places(&images);
        let is_left_out = |column: &Option<usize>| column.is_some_and(|column| how.drop.contains(&ids[column]));
        let left_out: Vec<bool> = places.iter().map(is_left_out).collect();
        let scatter = self.scatter(state, how.features);
        let tails = self.settings().weight_tails();
        let known = Known { state, tails, means: &draw.feature_means, scatter: scatter.as_ref(), left_out: &left_out };
        let mut means = vec![RowMeans::default(); sums.reconstruction.n_rows()];
        for part in parts {
            let keys: Vec<u64> = part.rows.iter().map(|&row| keys[row]).collect();
            let (of_part, _) = R::infer(&part.loaded, &known, Effort::FULL, streams, &keys);
            part.rows.iter().zip(of_part).for_each(|(&row, own)| means[row] = own);
        }
        self.add_weights((&images, &places), &means, sums);
        sums.add_reconstructions(&known, &means);
    }

    /// Spectra by column of the mask, in the user's units, one after the other.
    pub fn images<R: Sampled>(&self, spectra: &FeatureSpectra<R>) -> Vec<f64> {
        let mut images = self.prepared_images(spectra);
        images.chunks_exact_mut(self.mask.n_columns()).for_each(|image| self.preprocessing.to_units(image));
        images
    }

    /// Spectra by column of the mask, in the units of prepared rows, one after the other.
    pub fn prepared_images<R: Sampled>(&self, spectra: &FeatureSpectra<R>) -> Vec<f64> {
        let n_columns = self.mask.n_columns();
        let mut images = vec![0.0; spectra.n_features() * n_columns];
        share(images.chunks_exact_mut(n_columns).enumerate(), Vec::new, |scratch, (feature, image)| {
            image.copy_from_slice(&self.shown().prepared(spectra.feature(feature), scratch));
        });
        images
    }

    /// Spectra by column of the mask, in the sampler's units, one after the other.
    pub fn at_sites<R: Sampled>(&self, spectra: &FeatureSpectra<R>) -> Vec<f64> {
        let n_columns = self.mask.n_columns();
        let mut images = vec![0.0; spectra.n_features() * n_columns];
        share(images.chunks_exact_mut(n_columns).enumerate(), Vec::new, |scratch, (feature, image)| {
            let mut full = spectra.feature(feature);
            self.structure.apply(Direction::ToSites, &mut full, scratch);
            image.copy_from_slice(&self.mask.gather(&full));
        });
        images
    }

    /// The levels of the noise in new rows: 1 where the noise is white.
    pub(crate) fn levels<'a>(
        &'a self,
        observations: &Observations,
        means: impl Fn(usize) -> MeansOf<'a>,
    ) -> Result<Vec<f64>> {
        match &self.noise {
            None => Ok(vec![1.0; observations.n_rows()]),
            Some(filter) => {
                let recipe = &self.settings().noise_reference;
                levels_of_new_rows(filter, observations, &self.preprocessing, recipe, means)
            }
        }
    }

    /// Prepared rows with noise of these levels as the model takes them; NaN is a cell that was not observed. The rows are
    /// used up.
    pub fn load<R: Sampled>(&self, rows: &mut [f64], levels: &[f64]) -> Loaded<R> {
        let n_columns = self.mask.n_columns();
        let holes: Vec<Vec<u32>> = rows.chunks_exact(n_columns).map(holes_of).collect();
        let domain = Domain::new(&self.structure, self.mask.sites(), holes);
        let noise = self.noise.as_deref().map(|filter| (filter, levels));
        to_columns(rows, n_columns, &domain, &self.structure, noise, |_, _| {});
        let mut data = SpectralData::zeros(rows.len() / n_columns, Tiles::whole(n_columns));
        lay_out(rows, 0, &mut data);
        Loaded { data, domain, row_means: Vec::new() }
    }

    /// What new rows that are whole take the features for, if they may choose or are asked to.
    pub fn features_are(&self, asked: Option<FeaturesAre>) -> FeaturesAre {
        let is_whole = self.mask.is_full() && self.record.n_missing_cells == 0;
        let by_rows = if self.has_few_rows() { FeaturesAre::IntegratedOut } else { FeaturesAre::AtTheirMeans };
        if is_whole { asked.unwrap_or(by_rows) } else { FeaturesAre::AtTheirMeans }
    }

    /// Whether the fit had so few rows that features should be integrated out of new rows.
    pub fn has_few_rows(&self) -> bool {
        self.record.n_rows < FEW_ROWS
    }

    /// How a draw's features scatter about their means, where they are integrated out.
    pub fn scatter<R: Sampled>(&self, state: &State<R>, asked: Option<FeaturesAre>) -> Option<Scatter<R>> {
        if self.features_are(asked) == FeaturesAre::AtTheirMeans {
            return None;
        }
        let mut spectrum = Spectrum::new(&self.structure, &self.checked.curve);
        if let Some(filter) = &self.noise {
            spectrum = spectrum.with_factors(filter.powers().to_vec());
        }
        Some(R::scatter(state, &spectrum.precisions(&state.theta())))
    }

    /// Prepared rows as the model takes them: those that are whole apart from those that are not, so that what is found for a
    /// row does not depend on others.
    fn parts<R: Sampled>(&self, rows: &mut [f64], levels: &[f64]) -> Vec<Part<R>> {
        let n_columns = self.mask.n_columns();
        let is_whole = |row: &usize| !rows[row * n_columns..(row + 1) * n_columns].iter().any(|x| x.is_nan());
        let (whole, others): (Vec<usize>, Vec<usize>) = (0..rows.len() / n_columns).partition(is_whole);
        if whole.is_empty() || others.is_empty() || !self.mask.is_full() {
            return vec![Part { rows: (0..rows.len() / n_columns).collect(), loaded: self.load(rows, levels) }];
        }
        let load = |part: Vec<usize>| {
            let mut values: Vec<f64> =
                part.iter().flat_map(|row| &rows[row * n_columns..(row + 1) * n_columns]).copied().collect();
            let levels: Vec<f64> = part.iter().map(|&row| levels[row]).collect();
            Part { loaded: self.load(&mut values, &levels), rows: part }
        };
        vec![load(whole), load(others)]
    }

    fn add_weights(&self, (images, places): (&[UnitImage], &[Option<usize>]), means: &[RowMeans], sums: &mut Sums) {
        let k = self.ids().len();
        for (place, column) in places.iter().enumerate().filter_map(|(place, column)| Some((place, (*column)?))) {
            let UnitImage { values, norm } = &images[place];
            let is_turned = dot(values, &self.found().features.means[column]) < 0.0;
            let factor = if is_turned { -norm } else { *norm };
            sums.present[column] += 1.0;
            for (row, means) in means.iter().enumerate() {
                sums.weights[row * k + column] += factor * means.weights[place];
                sums.activation[row * k + column] += means.activation[place];
            }
        }
    }

    fn finish(&self, sums: Sums, first_row: usize, (means, levels): (MeansOf, &[f64]), offsets: &[f64]) -> Batch {
        let k = self.ids().len();
        let mean = |values: &[f64], unit: &dyn Fn(usize) -> f64| -> Vec<f32> {
            let mean = |(at, x): (usize, &f64)| (unit(at / k) * x / sums.present[at % k].max(1.0)) as f32;
            values.iter().enumerate().map(mean).collect()
        };
        let mut reconstruction = vec![0.0f32; offsets.len() * self.structure.n_sites()];
        let rows = reconstruction.chunks_exact_mut(self.structure.n_sites()).enumerate();
        share(rows, Vec::new, |scratch, (row, out)| {
            let spectrum = sums.reconstruction.row(row).iter().map(|x| levels[row] * x / sums.n_draws).collect();
            let mut columns = self.shown().prepared(spectrum, scratch);
            self.preprocessing.restore(&mut columns, means, offsets[row]);
            let image = self.mask.scatter(&columns, f64::NAN);
            out.iter_mut().zip(&image).for_each(|(to, x)| *to = *x as f32);
        });
        Batch {
            first_row,
            weights: mean(&sums.weights, &|row| levels[row]),
            activation: mean(&sums.activation, &|_| 1.0),
            reconstruction,
            n_at_means: sums.n_at_means,
        }
    }
}

/// How the rows of a run are prepared.
#[derive(Clone, Copy)]
struct Way<'a> {
    means: MeansOf<'a>,
    /// Of all rows.
    levels: &'a [f64],
    covariates: &'a Covariates,
    how: &'a NewRowSettings,
}

/// What a row is known by, whatever its place.
fn key_of_values(row: &[f64]) -> u64 {
    let mut hasher = Xxh3::new();
    // Zeros of either sign, and all NaN, are alike.
    row.iter().for_each(|x| hasher.update(&(if x.is_nan() { f64::NAN } else { x + 0.0 }).to_le_bytes()));
    hasher.digest()
}

fn no_confounds(n_given: usize) -> Error {
    let problem = "the run was fitted without confounds; leave them out";
    Error::setting("confounds", format!("{n_given} files"), problem)
}

/// Sums over draws.
struct Sums {
    n_draws: f64,
    /// Draws in which each persistent feature was there.
    present: Vec<f64>,
    weights: Vec<f64>,
    activation: Vec<f64>,
    reconstruction: SpectralData<f64>,
    /// Rows that took the features at their means.
    n_at_means: usize,
}

/// Rows of a batch that are loaded together.
struct Part<R> {
    /// Their places in the batch.
    rows: Vec<usize>,
    loaded: Loaded<R>,
}

impl Sums {
    fn new(n_rows: usize, n_modes: usize, k: usize) -> Sums {
        Sums {
            n_draws: 0.0,
            present: vec![0.0; k],
            weights: vec![0.0; n_rows * k],
            activation: vec![0.0; n_rows * k],
            reconstruction: SpectralData::zeros(n_rows, Tiles::whole(n_modes)),
            n_at_means: 0,
        }
    }

    /// Adds what the features of a draw explain of the rows, but for those that are left out.
    fn add_reconstructions<R: Sampled>(&mut self, known: &Known<R>, means: &[RowMeans]) {
        let (n_rows, k) = (means.len(), known.state.n_features());
        let shown = |row: &RowMeans, j: usize| if known.left_out[j] { 0.0 } else { row.weights[j] };
        let weights: Vec<R> = means.iter().flat_map(|row| (0..k).map(|j| R::from_f64(shown(row, j)))).collect();
        let tiles = known.means.tiles();
        share(self.reconstruction.tiles_mut(), Vec::new, |product: &mut Vec<R>, (tile, sum)| {
            product.resize(sum.len(), R::zero());
            let width = tiles.width(tile);
            multiply(product, View::new(&weights, n_rows, k), View::new(known.means.tile(tile), k, width));
            sum.iter_mut().zip(product.iter()).for_each(|(sum, x)| *sum += x.to_f64());
            for (row, sum) in means.iter().zip(sum.chunks_exact_mut(width)).filter(|(row, _)| !row.told.is_empty()) {
                sum.iter_mut().zip(&row.told[tiles.modes(tile)]).for_each(|(sum, x)| *sum += x);
            }
        });
        self.n_draws += 1.0;
        self.n_at_means = means.iter().filter(|row| row.told.is_empty()).count();
    }
}
