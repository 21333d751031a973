//! How much memory a fit needs, and where its data go so that it keeps to a bound.

use crate::chain::coarse;
use crate::compiled::Sampled;
use crate::data::{Mask, Missing, Observations, Rows, memory};
use crate::error::{Error, Result};
use crate::kernels::few_rows;
use crate::noise::Sample;
use crate::run::settings::{Checked, Settings, Start};
use crate::spectral::{BAND, Cut, Layout, TILE, n_behind};
use std::path::Path;

/// Bytes that rows may take while they are prepared where nobody says how much is free.
const BYTES_FOR_ROWS: u64 = 1 << 30;
/// Rows read at a time when data go to a file.
const SPILL_CHUNK_BYTES: usize = 256 << 20;
/// The same under a bound on memory, at most.
const SMALL_CHUNK_BYTES: usize = 32 << 20;

/// Without a bound on memory, the share of data in a file that rows which births look at may take in memory.
const KEPT_SHARE: usize = 16;

/// A rough count of the bytes a fit holds: data twice over only where asked, some 64 features with their moments and products,
/// means and slopes of every run; of whole rows also what a coarse start looks at. Rows from which noise is measured are let go
/// before. Under a mask features are drawn by way of the whole grid, several times over. Ranks share the data; the figure is
/// that of rank 0, which keeps the rest.
pub fn memory_needed(
    observations: &Observations,
    (n_rows, n_columns): (usize, usize),
    bytes: usize,
    settings: &Settings,
    n_ranks: usize,
) -> u64 {
    let is_masked = n_columns < observations.n_sites() || observations.may_have_holes();
    let cut = if is_masked { Cut::Tiles } else { Cut::TilesAndRows };
    let layout = Layout::shared(n_rows, n_columns, BAND, cut, (0, n_ranks));
    let [rows_here, columns_here] =
        [layout.most_rows(), (layout.most_tiles().saturating_mul(TILE)).min(n_columns)].map(|n| n as u128);
    let sample = if settings.noise == "white" { 0 } else { Sample::n_bytes(n_rows, n_columns) };
    // Headers may claim more than can be counted with 64 bits.
    let [n_rows, n_columns, n_grid, n_runs, bytes, n_ranks] =
        [n_rows, n_columns, observations.n_sites(), observations.n_runs(), bytes, n_ranks].map(|n| n as u128);
    let cells = n_rows * n_columns;
    let features = 64 * (n_grid * (2 * bytes + if is_masked { 40 } else { 0 }) + 20 * n_columns);
    let data = if settings.spill.is_some() {
        spilled_bytes(cells, rows_here, bytes, settings)
    } else {
        rows_here * columns_here * bytes
    };
    let rows_looked_at = 2 * (few_rows::MOST_ASKED + few_rows::MOST_ROWS) as u128 * n_grid * bytes;
    let has_coarse = !is_masked && settings.start != Start::Full && settings.spill.is_none();
    let coarse = if has_coarse { cells * bytes / coarse::SHARE as u128 / n_ranks } else { 0 };
    // Every thread adds up products of all rows that are here with all features.
    let products = 64 * 8 * rows_here * (3 + rayon::current_num_threads() as u128);
    let nuisance = 2 * 8 * n_runs * n_columns * (1 + observations.covariates().n_columns() as u128);
    let reconstruction = if settings.reconstruct { 4 * n_rows * n_grid } else { 0 };
    let sampling = data + coarse + reconstruction + features + rows_looked_at + products;
    let all = sampling.max(u128::from(sample)) + nuisance + (64 << 20);
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// What is in memory of data in a file: the rows that are read at a time (in double precision, and as they are written), and later
/// the tiles at hand.
fn spilled_bytes(cells: u128, n_rows: u128, bytes: u128, settings: &Settings) -> u128 {
    let tiles = (n_behind() + rayon::current_num_threads()) as u128 * n_rows * TILE as u128 * bytes;
    let kept = if settings.memory.is_some() { 0 } else { cells * bytes / KEPT_SHARE as u128 };
    kept + tiles.min(cells * bytes).max(spill_chunk(settings, cells * bytes) as u128 * 3 / 2)
}

/// Bytes of rows that are read at a time when data go to a file.
fn spill_chunk(settings: &Settings, data_bytes: u128) -> usize {
    let part = (data_bytes / 8).clamp(1 << 20, SMALL_CHUNK_BYTES as u128) as usize;
    if settings.memory.is_some() { part } else { SPILL_CHUNK_BYTES }
}

/// Bytes that rows may take while they are prepared, so that files are read once for all that looks at them: most of what the
/// fit itself leaves free. Ranks may all be on one machine.
pub(super) fn room_for_rows(observations: &Observations, bytes: usize, checked: &Checked, n_ranks: usize) -> u64 {
    let shape = (observations.n_rows(), observations.n_columns());
    let needed = memory_needed(observations, shape, bytes, &checked.settings, 1);
    let room = |free: u64| free.saturating_sub(needed) / 4 * 3 / n_ranks as u64;
    memory::available().into_iter().chain(checked.memory).min().map_or(BYTES_FOR_ROWS, room)
}

/// Whether room for the data may be made while rows are still read: where their number is known, there is memory for many times
/// it, and a thread to spare.
pub(super) fn may_be_ahead<R: Sampled>(rows: &Rows, observations: &Observations, checked: &Checked) -> bool {
    const PLENTY: u64 = 8;
    let settings = &checked.settings;
    let all_take_part = settings.mask.is_none() && rows.mask.is_none() && settings.missing != Missing::Impute;
    let stays = settings.spill.is_none() && checked.memory.is_none();
    let n_bytes = (observations.n_rows() * observations.n_sites() * R::BYTES) as u64;
    let fits = || memory::available().is_some_and(|free| n_bytes <= free / PLENTY);
    all_take_part && stays && rayon::current_num_threads() > 1 && fits()
}

/// Bytes that rows of data in a file may take beside them: what the bound leaves, or else what [`memory_needed`] counts for them.
pub(super) fn room_for_kept(checked: &Checked, data_bytes: usize, needed: u64) -> usize {
    let left = |bound: u64| usize::try_from(bound.saturating_sub(needed)).unwrap_or(usize::MAX);
    checked.memory.map_or(data_bytes / KEPT_SHARE, left)
}

/// Says whether data go to a file where memory is bounded: in the folder that is named, or that of temporary files. An error where
/// not even that keeps the fit within the bound.
pub(super) fn place_data(
    observations: &mut Observations,
    shape: (usize, usize),
    bytes: usize,
    checked: &mut Checked,
    n_ranks: usize,
) -> Result<()> {
    if let Some(bound) = checked.memory {
        let folder = checked.settings.spill.take();
        let needed = |settings: &Settings| memory_needed(observations, shape, bytes, settings, n_ranks);
        if needed(&checked.settings) > bound {
            checked.settings.spill = Some(folder.unwrap_or_else(std::env::temp_dir));
            let needed = needed(&checked.settings);
            if needed > bound {
                return Err(too_tight(checked, shape, needed));
            }
        }
    }
    if checked.settings.spill.is_some() {
        // Longer stretches in the file: the disk is written in an order that it likes.
        let data_bytes = shape.0 as u128 * shape.1 as u128 * bytes as u128;
        observations.set_chunk_bytes(spill_chunk(&checked.settings, data_bytes));
    }
    Ok(())
}

/// The error of a bound on memory that cannot be kept.
fn too_tight(checked: &Checked, (n_rows, n_columns): (usize, usize), needed: u64) -> Error {
    let least = needed.div_ceil(1_000_000);
    let problem = format!(
        "a fit of {n_rows} x {n_columns} holds about {least} MB even with its data on disk; give at least that, or use fewer rows \
         or sites"
    );
    Error::setting("memory", checked.settings.memory.clone().unwrap_or_default(), problem)
}

/// Refuses rows that cannot fit before they are read for their checksums: by the sites that are sure to take part.
pub(super) fn check_memory<R: Sampled>(
    rows: &Rows,
    observations: &Observations,
    settings: &Settings,
    n_ranks: usize,
) -> Result<()> {
    let grid = observations.grid().map_or_else(|| vec![observations.n_sites()], <[usize]>::to_vec);
    let n_columns = match (&rows.mask, settings.mask.as_deref()) {
        // Which sites vary, and which rows have a value, is not known yet.
        _ if settings.missing == Missing::Impute => return Ok(()),
        (_, Some("auto")) => return Ok(()),
        (Some(inside), _) => inside.iter().filter(|is_inside| **is_inside).count(),
        (_, Some(path)) => match Mask::read(Path::new(path), &grid) {
            Ok(mask) => mask.n_columns(),
            Err(_) => return Ok(()),
        },
        (None, None) => {
            let mut n_known = 0;
            observations.for_each_chunk_raw_of(0..observations.n_rows().min(1), &mut |_, _, values| {
                n_known = values.iter().filter(|x| !x.is_nan()).count();
                Ok(())
            })?;
            n_known
        }
    };
    let n_rows = observations.n_rows();
    let needed = memory_needed(observations, (n_rows, n_columns), R::BYTES, settings, n_ranks);
    memory::check(&format!("a fit of {n_rows} x {n_columns} in {}", R::NAME), needed)
}
