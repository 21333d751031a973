//! Whole rows put together, on every rank, from tiles and from the ranks that hold or compute them.

use super::super::tile_work::{Columns, add_bands};
use super::super::{Entry, FeatureSpectra, Pass, TILE, Tiles};
use super::turned::Rotation;
use crate::comm::{Comm, all_gather_values, part_of};
use crate::numeric::linalg::Real;
use crate::numeric::workers::share;
use pulp::{Simd, WithSimd};

/// `P'W'Y`, a row a turned feature.
pub(super) fn statistic<R: Real>(pass: &Pass<R>, rotation: &Rotation<R>) -> Vec<Vec<R>> {
    let Pass { data, loadings, comm, .. } = *pass;
    let (k, columns) = (loadings.n_features(), Columns::of_bands(loadings, data.layout()));
    let mut of_tiles: Vec<(usize, Vec<R>)> = data.tiles().owned().map(|tile| (tile, Vec::new())).collect();
    let arch = pulp::Arch::new();
    let scratch = || (Vec::new(), Vec::new());
    share(of_tiles.iter_mut(), scratch, |(statistic, band): &mut (Vec<R>, Vec<R>), (tile, turned)| {
        let width = data.tiles().width(*tile);
        statistic.resize(k * width, R::zero());
        add_bands(arch, data, *tile, &columns, (statistic, band));
        *turned = rotation.turn_in(statistic, width);
    });
    rows_of_tiles(data.tiles(), rotation.n_turned(), of_tiles.into_iter().map(|(_, values)| values).collect(), comm)
}

/// `Y - W S` of some rows at all columns, each rank adding those that it holds. `columns` has the features at the columns of
/// the window, the one at place k of the state at `places[k]`.
pub fn residuals_at_columns<R: Real>(
    pass: &Pass<R>,
    rows: &[usize],
    columns: &FeatureSpectra<R>,
    places: &[usize],
) -> Vec<Vec<R>> {
    let Pass { data, loadings, comm, .. } = *pass;
    let tiles = data.tiles();
    let mut of_tiles: Vec<(usize, Vec<R>)> = tiles.owned().map(|tile| (tile, Vec::new())).collect();
    share(
        of_tiles.iter_mut(),
        || (),
        |_, (tile, residuals)| {
            data.look_ahead(*tile, rows);
            residuals.resize(rows.len() * tiles.width(*tile), R::zero());
            for (&row, residual) in rows.iter().zip(residuals.chunks_exact_mut(tiles.width(*tile))) {
                let (values, entries) = (&*data.tile_row(*tile, row), loadings.row(row));
                let features = columns.tile(*tile);
                pulp::Arch::new().dispatch(TakeOff { values, entries, features, places, residual });
            }
        },
    );
    rows_of_tiles(tiles, rows.len(), of_tiles.into_iter().map(|(_, values)| values).collect(), comm)
}

/// `y - w S` of a row at the columns of a tile.
struct TakeOff<'a, R> {
    values: &'a [R],
    entries: &'a [Entry],
    features: &'a [R],
    places: &'a [usize],
    residual: &'a mut [R],
}

impl<R: Real> WithSimd for TakeOff<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.values.len();
        let mut left = [0.0; TILE];
        left.iter_mut().zip(self.values).for_each(|(r, y)| *r = y.to_f64());
        for entry in self.entries {
            let feature = &self.features[self.places[entry.feature] * width..][..width];
            left.iter_mut().zip(feature).for_each(|(r, s)| *r -= entry.weight * s.to_f64());
        }
        self.residual.iter_mut().zip(left).for_each(|(to, r)| *to = R::from_f64(r));
    }
}

/// Whole rows, on every rank, from what the tiles have of them (rows x width each).
fn rows_of_tiles<R: Real>(tiles: Tiles, n_rows: usize, of_tiles: Vec<Vec<R>>, comm: &dyn Comm) -> Vec<Vec<R>> {
    let of_tiles = if tiles.is_shared() {
        let own: Vec<R> = of_tiles.concat();
        let mut all = all_gather_values(comm, &own).into_iter();
        (0..tiles.len()).map(|tile| all.by_ref().take(n_rows * tiles.width(tile)).collect()).collect()
    } else {
        of_tiles
    };
    let mut joined = vec![Vec::new(); n_rows];
    let join = |_: &mut (), (at, row): (usize, &mut Vec<R>)| {
        row.reserve_exact(tiles.n_modes);
        for (tile, values) in of_tiles.iter().enumerate() {
            let width = tiles.width(tile);
            row.extend_from_slice(&values[at * width..(at + 1) * width]);
        }
    };
    share(joined.iter_mut().enumerate(), || (), join);
    joined
}

/// Computes rows one by one, each on one of the ranks, and hands all of them to all ranks.
pub(super) fn share_out<R: Real, S>(
    comm: &dyn Comm,
    n_rows: usize,
    compute: impl Fn(usize, &mut Vec<S>) -> Vec<R> + Sync,
) -> Vec<Vec<R>>
where
    S: Send,
{
    let own = part_of(n_rows, comm.rank(), comm.size());
    let mut rows: Vec<(usize, Vec<R>)> = own.map(|at| (at, Vec::new())).collect();
    share(rows.iter_mut(), Vec::new, |scratch, (at, row)| *row = compute(*at, scratch));
    let rows: Vec<Vec<R>> = rows.into_iter().map(|(_, row)| row).collect();
    if comm.size() == 1 {
        return rows;
    }
    let all = all_gather_values(comm, &rows.concat());
    let width = all.len() / n_rows.max(1);
    all.chunks_exact(width.max(1)).map(<[R]>::to_vec).collect()
}
