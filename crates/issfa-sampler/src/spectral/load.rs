//! Rows into spectral tiles, as a stream: read a chunk, prepare and transform its rows in parallel, lay them out.

use crate::comm::{Comm, Solo, all_gather_values, part_of};
use crate::data::preprocess::MeansOf;
use crate::data::{Observations, Preprocessing};
use crate::error::Result;
use crate::noise::{Filter, RowNoise};
use crate::numeric::bytes::Element;
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use crate::spectral::{Ahead, BAND, Cut, Domain, Sharing, SpectralData, TILE};
use crate::structure::{Direction, Structure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows ready for the sampler.
pub struct Loaded<R> {
    /// Rows x columns.
    pub data: SpectralData<R>,
    /// What the columns are.
    pub domain: Domain,
    /// The mean that was taken off each row, where rows were centred; else empty. On every rank those of all rows.
    pub row_means: Vec<f64>,
}

impl<R: Real> Loaded<R> {
    /// The number of cells that were observed.
    pub fn n_cells(&self) -> f64 {
        self.domain.n_cells(&self.data)
    }
}

/// Where rows go.
pub enum Place<'a, R> {
    /// Into memory.
    Memory,
    /// Into memory that was asked for before, where it is as large as it should be.
    Ahead(Ahead<R>),
    /// Into a file in a folder, beside which rows may take so many bytes of memory.
    File(&'a Path, usize),
}

/// [`training_rows`] in one process and in memory.
pub fn all_rows<R: Real>(
    observations: &Observations,
    structure: &Arc<Structure>,
    preprocessing: &Preprocessing,
    noise: Option<RowNoise>,
) -> Result<Loaded<R>> {
    let alone: Arc<dyn Comm> = Arc::new(Solo);
    training_rows(observations, structure, preprocessing, noise, Place::Memory, &alone, BAND)
}

/// Loads the training rows, each centred by the means of its run. Each rank reads some
/// rows, and ranks then exchange them for their shares of modes (or sites) and bands.
pub fn training_rows<R: Real>(
    observations: &Observations,
    structure: &Arc<Structure>,
    preprocessing: &Preprocessing,
    noise: Option<RowNoise>,
    place: Place<R>,
    comm: &Arc<dyn Comm>,
    band: usize,
) -> Result<Loaded<R>> {
    let (n_rows, n_columns) = (observations.n_rows(), observations.n_columns());
    let holes = find_holes(observations, comm.as_ref())?;
    let domain = Domain::new(structure, observations.mask().sites(), holes);
    // Where cells were not observed all ranks draw what is missing of the same rows.
    let cut = if domain.is_whole() { Cut::TilesAndRows } else { Cut::Tiles };
    let sharing = Sharing::between(comm, n_rows, n_columns, band, cut);
    let (is_shared, comm) = (comm.size() > 1, comm.as_ref());
    let mut data = match place {
        Place::Memory => SpectralData::in_memory(&sharing)?,
        Place::Ahead(ahead) => SpectralData::made_ahead(&sharing, ahead)?,
        Place::File(folder, room) => SpectralData::spilled(&sharing, folder, room)?,
    };
    let covariates = observations.covariates();
    let mut row_means = Vec::new();
    observations.for_each_chunk_of(part_of(n_rows, comm.rank(), comm.size()), &mut |run, first_row, values| {
        let means = RowMeans::new(values.len() / n_columns);
        let prepare = |at: usize, row: &mut [f64]| {
            means.set(at, preprocessing.apply(row, covariates.row(first_row + at), MeansOf::Run(run)));
        };
        let noise = noise.map(|noise| (noise.filter, &noise.levels[first_row..]));
        to_columns(values, n_columns, &domain, structure, noise, prepare);
        row_means.extend(means.values());
        if is_shared {
            hand_over(Some((first_row, &*values)), &mut data, comm);
        } else {
            lay_out(values, first_row, &mut data);
        }
        data.let_go();
        Ok(())
    })?;
    // Other ranks may have more chunks than this one.
    while is_shared && hand_over::<f64, R>(None, &mut data, comm) {}
    let row_means = if preprocessing.centering.rows() { all_gather_values(comm, &row_means) } else { Vec::new() };
    Ok(Loaded { data, domain, row_means })
}

/// Means of the rows of a chunk, set by the threads that prepare them.
struct RowMeans(Vec<AtomicU64>);

impl RowMeans {
    fn new(n_rows: usize) -> RowMeans {
        RowMeans((0..n_rows).map(|_| AtomicU64::new(0)).collect())
    }

    fn set(&self, row: usize, mean: f64) {
        self.0[row].store(mean.to_bits(), Ordering::Relaxed);
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }
}

/// One round of an exchange: gives every rank its rows of a chunk at its modes, if there is one, and lays out what it gets.
/// Returns whether any rank had something.
fn hand_over<E: Real, R: Real>(chunk: Option<(usize, &[E])>, data: &mut SpectralData<R>, comm: &dyn Comm) -> bool {
    if !all_gather_values(comm, &[u32::from(chunk.is_some())]).contains(&1) {
        return false;
    }
    let n_modes = data.n_modes();
    let parcel = |rank: usize| {
        let Some((first_row, spectra)) = chunk else { return Vec::new() };
        let layout = data.layout().of(rank);
        let (modes, theirs) = (layout.tiles().owned_modes(), layout.rows_here());
        let end = first_row + spectra.len() / n_modes;
        let (start, end) = (theirs.start.clamp(first_row, end), theirs.end.clamp(first_row, end));
        if start >= end || modes.is_empty() {
            return Vec::new();
        }
        let rows = spectra[(start - first_row) * n_modes..(end - first_row) * n_modes].chunks_exact(n_modes);
        let values: Vec<R> = rows.flat_map(|row| &row[modes.clone()]).map(|x| R::from_f64(x.to_f64())).collect();
        [u64::write(&[start as u64]), R::write(&values)].concat()
    };
    for parcel in comm.exchange((0..comm.size()).map(parcel).collect()).iter().filter(|parcel| !parcel.is_empty()) {
        let (first_row, values) = parcel.split_at(8);
        lay_out(&R::read(values), u64::read(first_row)[0] as usize, data);
    }
    true
}

/// The columns that each row lacks, on every rank.
fn find_holes(observations: &Observations, comm: &dyn Comm) -> Result<Vec<Vec<u32>>> {
    let n_rows = observations.n_rows();
    if !observations.may_have_holes() {
        return Ok(vec![Vec::new(); n_rows]);
    }
    let (mut counts, mut holes) = (Vec::new(), Vec::new());
    observations.for_each_chunk_of(part_of(n_rows, comm.rank(), comm.size()), &mut |_, _, values| {
        for row in values.chunks_exact(observations.n_columns()) {
            let of_row = holes_of(row);
            counts.push(of_row.len() as u32);
            holes.extend(of_row);
        }
        Ok(())
    })?;
    let mut holes = all_gather_values(comm, &holes).into_iter();
    let counts = all_gather_values(comm, &counts);
    Ok(counts.into_iter().map(|count| holes.by_ref().take(count as usize).collect()).collect())
}

/// The columns at which a row is NaN.
pub fn holes_of(row: &[f64]) -> Vec<u32> {
    (0..row.len()).filter(|&column| row[column].is_nan()).map(|column| column as u32).collect()
}

/// Prepares every row of a block, in parallel, and brings it into the form in which the domain keeps it: a spectrum, or
/// values by site with 0 for what was not observed; through a filter, where there is one, each row for noise of its level.
/// `prepare` gets the row's place in the block.
pub fn to_columns(
    values: &mut [f64],
    n_columns: usize,
    domain: &Domain,
    structure: &Structure,
    noise: Option<(&Filter, &[f64])>,
    prepare: impl Fn(usize, &mut [f64]) + Sync,
) {
    share(values.chunks_exact_mut(n_columns).enumerate(), Vec::new, |scratch, (at, row)| {
        prepare(at, row);
        match (domain, noise) {
            (Domain::Modes, None) => structure.apply(Direction::ToSpectrum, row, scratch),
            (Domain::Modes, Some((filter, levels))) => filter.to_spectrum(row, levels[at], scratch),
            (Domain::Cells(_), None) => {}
            (Domain::Cells(_), Some((filter, levels))) => filter.to_columns(row, levels[at], scratch),
        }
        if !domain.is_whole() {
            row.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = 0.0);
        }
    });
}

/// Copies a block of spectra of rows that are here, at the modes that are here, into their places in the tiles.
pub fn lay_out<E: Real, R: Real>(spectra: &[E], first_row: usize, data: &mut SpectralData<R>) {
    let (n_rows, here) = (data.rows_here().len(), data.tiles().owned_modes());
    let first_row = first_row - data.rows_here().start;
    let work = |_: &mut (), (tile, place): (usize, &mut [R])| {
        let width = place.len() / n_rows;
        let first = tile * TILE - here.start;
        let rows = place[first_row * width..].chunks_exact_mut(width);
        for (to, spectrum) in rows.zip(spectra.chunks_exact(here.len())) {
            to.iter_mut().zip(&spectrum[first..first + width]).for_each(|(to, x)| *to = R::from_f64(x.to_f64()));
        }
    };
    share(data.tiles_mut(), || (), work);
}
