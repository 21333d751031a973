//! The streaming pass: one visit of every tile of the data draws the features and collects all that the rows need.
//!
//! For each tile: the statistic `B = W'Y` (W is sparse), the joint draw of all features at the tile's modes, then
//! `Y S'` and `S S'` into fixed-point sums and the squared residual, from these, into its slots. Ranks that hold other rows of the
//! same tile add up the statistic together and draw the same features.

use super::products::{Packed, ROWS};
use super::residual::{Explicit, is_cancelled};
use super::sums::{Exponents, Factors, FixedSums, bounding_exponent, exponent_holds};
use super::tile_work::{AddStatistic, Columns, DrawOneByOne, DrawRotated, ProjectRows, RowEntries, add_bands};
use super::{FeatureSpectra, Projections, Sharing, SpectralData, TILE};
use crate::comm::Comm;
use crate::numeric::bytes::Element;
use crate::numeric::eigen::Eigen;
use crate::numeric::linalg::{Real, View, multiply};
use crate::numeric::workers::share;
use crate::rng::{Purpose, Streams};
use crate::spectral::Loadings;
use rand_distr::{Distribution, StandardNormal};
use std::ops::Range;

/// What a pass reads.
#[derive(Clone, Copy)]
pub struct Pass<'a, R> {
    /// Rows x columns (modes, or sites of a window).
    pub data: &'a SpectralData<R>,
    /// Norms of the rows of the data.
    pub row_norms: &'a [f64],
    /// The weights of the features in every row.
    pub loadings: &'a Loadings,
    /// Who holds the other tiles.
    pub comm: &'a dyn Comm,
}

/// The features given everything else \[M2\], in the basis that diagonalises `W'W`.
#[derive(Clone, Copy)]
pub struct FeatureConditional<'a> {
    /// Eigenvectors and eigenvalues of `W'W`: all, or those with eigenvalues above 0 (vectors are then features x fewer).
    pub rotation: &'a Eigen,
    /// sigma^2.
    pub noise_variance: f64,
    /// `h_v`, one a mode.
    pub precisions: &'a [f64],
}

/// The features given everything else, one after the other \[M2\].
#[derive(Clone, Copy)]
pub struct OneByOne<'a> {
    /// `W'W`.
    pub gram: &'a [f64],
    /// The order in which features are drawn.
    pub order: &'a [usize],
    /// sigma^2.
    pub noise_variance: f64,
    /// `h_v`, one a mode.
    pub precisions: &'a [f64],
}

impl<R: Real> Pass<'_, R> {
    /// Projects the data onto features that are given at its columns. They stay as they are.
    pub fn project(&self, columns: &mut FeatureSpectra<R>) -> Projections<R> {
        self.visit(None, columns)
    }

    /// Draws all features, jointly, from data whose columns are modes, and projects the data onto them.
    pub fn draw(
        &self,
        conditional: &FeatureConditional,
        streams: &Streams,
        spectra: &mut FeatureSpectra<R>,
    ) -> Projections<R> {
        let vectors = conditional.rotation.vectors.iter().map(|&x| R::from_f64(x)).collect();
        self.visit(Some((Law::Joint { conditional, vectors }, streams)), spectra)
    }

    /// [`Pass::draw`] feature by feature.
    pub fn draw_one_by_one(
        &self,
        conditional: &OneByOne,
        streams: &Streams,
        spectra: &mut FeatureSpectra<R>,
    ) -> Projections<R> {
        self.visit(Some((Law::OneByOne(conditional), streams)), spectra)
    }

    fn visit(&self, drawing: Option<(Law<R>, &Streams)>, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        assert_eq!(self.loadings.here(), self.data.rows_here(), "loadings are known where the rows are");
        let columns = || Columns::of_bands(self.loadings, self.data.layout());
        let drawing = drawing.map(|(law, streams)| Drawing { law, streams, columns: columns() });
        let grams = self.data.layout().bands_here().map(|(_, rows)| self.loadings.gram_of(rows)).collect();
        Visit { pass: *self, entries: RowEntries::new(self.loadings), grams, drawing }.run(spectra)
    }

    /// The mean of the features' conditional: what a draw scatters about.
    pub fn means(&self, conditional: &FeatureConditional) -> FeatureSpectra<R> {
        let (data, k) = (self.data, self.loadings.n_features());
        let columns = Columns::of_bands(self.loadings, data.layout());
        let known = self.statistics_of_column(&columns);
        let FeatureConditional { rotation, noise_variance, precisions } = *conditional;
        let vectors: Vec<R> = rotation.vectors.iter().map(|&x| R::from_f64(x)).collect();
        let mut means = FeatureSpectra::none(data.tiles());
        means.grow(k);
        let scratch = || (pulp::Arch::new(), Vec::new(), Vec::new(), Vec::new());
        share(means.tiles_mut(), scratch, |(arch, statistic, band, rotated), (tile, place)| {
            let modes = data.tiles().modes(tile);
            let width = modes.len();
            statistic.resize(k * width, R::zero());
            match &known {
                Some(known) => statistic.copy_from_slice(&known[tile - data.tiles().owned().start]),
                None => add_bands(*arch, data, tile, &columns, (statistic, band)),
            }
            let joint =
                Joint { vectors: &vectors, values: &rotation.values, noise_variance, precisions: &precisions[modes] };
            joint.draw(*arch, statistic, rotated, &vec![0.0; k * width], place);
        });
        means
    }

    /// `W'Y` at each tile that is here, where other ranks hold other rows of it. All ranks of the column together.
    fn statistics_of_column(&self, columns: &[Columns<R>]) -> Option<Vec<Vec<R>>> {
        let (data, k, sharing) = (self.data, self.loadings.n_features(), self.data.sharing());
        if !data.layout().cuts_rows() {
            return None;
        }
        let tiles = data.tiles();
        let n = k * tiles.owned_modes().len();
        let mut bands = vec![vec![R::zero(); n]; columns.len()];
        // Places by tile, then by band.
        let mut places: Vec<Vec<&mut [R]>> = tiles.owned().map(|_| Vec::new()).collect();
        for band in &mut bands {
            let stretches = band.chunks_mut((k * TILE).max(1));
            places.iter_mut().zip(stretches).for_each(|(places, stretch)| places.push(stretch));
        }
        share(tiles.owned().zip(places), pulp::Arch::new, |arch, (tile, places)| {
            let (width, mut rows) = (tiles.width(tile), data.tile(tile));
            for (columns, statistic) in columns.iter().zip(places) {
                let (now, later) = rows.split_at(columns.n_rows() * width);
                rows = later;
                arch.dispatch(AddStatistic { rows: now, width, columns, statistic });
            }
        });
        let sums = sharing.sum_over_bands(&bands);
        Some(sums.chunks((k * TILE).max(1)).map(<[R]>::to_vec).collect())
    }
}

/// The joint conditional at the modes of one tile.
struct Joint<'a, R> {
    /// Eigenvectors and eigenvalues of `W'W`.
    vectors: &'a [R],
    values: &'a [f64],
    noise_variance: f64,
    precisions: &'a [f64],
}

impl<R: Real> Joint<'_, R> {
    /// Turns `W'Y` into features: their mean plus `normals` times their scatter.
    fn draw(&self, arch: pulp::Arch, statistic: &[R], rotated: &mut Vec<R>, normals: &[f64], features: &mut [R]) {
        let (r, width) = (self.values.len(), self.precisions.len());
        let k = features.len() / width;
        let vectors = View::new(self.vectors, k, r);
        rotated.resize(r * width, R::zero());
        multiply(rotated, vectors.t(), View::new(statistic, k, width));
        if r < k {
            return self.draw_thin(arch, rotated, normals, features);
        }
        let Joint { values, noise_variance, precisions, .. } = *self;
        arch.dispatch(DrawRotated { values, noise_variance, precisions, rotated, normals });
        multiply(features, vectors, View::new(rotated, k, width));
    }

    /// The same where the eigenvectors are those with eigenvalues above 0: a draw from the prior, whose part along them gives
    /// way to a draw given the data. The other parts know of no data.
    fn draw_thin(&self, arch: pulp::Arch, rotated: &mut [R], normals: &[f64], features: &mut [R]) {
        let (r, width) = (self.values.len(), self.precisions.len());
        let k = features.len() / width;
        let vectors = View::new(self.vectors, k, r);
        let roots: Vec<f64> = self.precisions.iter().map(|h| h.sqrt()).collect();
        for (place, (x, normal)) in features.iter_mut().zip(normals).enumerate() {
            *x = R::from_f64(normal / roots[place % width]);
        }
        let mut along = vec![R::zero(); r * width];
        multiply(&mut along, vectors.t(), View::new(features, k, width));
        let normals: Vec<f64> = along.iter().enumerate().map(|(place, x)| x.to_f64() * roots[place % width]).collect();
        let Joint { values, noise_variance, precisions, .. } = *self;
        arch.dispatch(DrawRotated { values, noise_variance, precisions, rotated, normals: &normals });
        rotated.iter_mut().zip(&along).for_each(|(x, a)| *x = R::from_f64(x.to_f64() - a.to_f64()));
        let mut moved = vec![R::zero(); k * width];
        multiply(&mut moved, vectors, View::new(rotated, r, width));
        features.iter_mut().zip(&moved).for_each(|(x, m)| *x = R::from_f64(x.to_f64() + m.to_f64()));
    }
}

/// A pass on its way.
struct Visit<'a, R> {
    pass: Pass<'a, R>,
    entries: RowEntries<R>,
    /// `W'W` of each band that is here.
    grams: Vec<Vec<f64>>,
    drawing: Option<Drawing<'a, R>>,
}

/// Where features are drawn from, with the loadings in the precision of the data.
struct Drawing<'a, R> {
    law: Law<'a, R>,
    streams: &'a Streams,
    /// Of each band that is here.
    columns: Vec<Columns<R>>,
}

enum Law<'a, R> {
    /// With the eigenvectors in the precision of the data.
    Joint {
        conditional: &'a FeatureConditional<'a>,
        vectors: Vec<R>,
    },
    OneByOne(&'a OneByOne<'a>),
}

/// The places of a tile: its features and its slots for the residual of each band and the features' squared norms.
struct Place<'a, R> {
    tile: usize,
    features: &'a mut [R],
    slots: &'a mut [f64],
}

/// What one thread needs and adds up.
struct Scratch<R> {
    arch: pulp::Arch,
    statistic: Vec<R>,
    band: Vec<R>,
    rotated: Vec<R>,
    normals: Vec<f64>,
    packed: Packed<R>,
    small_gram: Vec<R>,
    products: Vec<R>,
    with_data: FixedSums,
    gram: FixedSums,
}

impl<R: Real> Visit<'_, R> {
    fn run(&self, spectra: &mut FeatureSpectra<R>) -> Projections<R> {
        let here = self.pass.data.rows_here();
        let rows: Vec<i32> = self.pass.row_norms[here].iter().map(|&norm| bounding_exponent(norm)).collect();
        let mut exponents: Vec<i32> =
            spectra.squared_norms(self.pass.comm).iter().map(|norm| bounding_exponent(norm.sqrt())).collect();
        let mut drawing = self.drawing.as_ref();
        loop {
            let (projections, norms) = self.attempt(drawing, spectra, &rows, &exponents);
            let holds = exponents.iter().zip(&norms).all(|(&assumed, &norm)| exponent_holds(assumed, norm));
            // What is not finite is left for the chain to report.
            if holds || norms.iter().any(|norm| !norm.is_finite()) {
                return self.with_exact_residual(projections, spectra);
            }
            // The features are drawn: what is left is to add them up anew.
            drawing = None;
            exponents = norms.iter().map(|&norm| bounding_exponent(norm)).collect();
        }
    }

    /// With the residual cell by cell, in another look at the data, where products leave too little of it.
    fn with_exact_residual(&self, mut projections: Projections<R>, spectra: &FeatureSpectra<R>) -> Projections<R> {
        let square = self.pass.row_norms.iter().map(|norm| norm * norm).sum();
        if is_cancelled::<R>(projections.squared_residual(), square) {
            projections.set_squared_residual(self.explicit_residual(spectra));
        }
        projections
    }

    fn explicit_residual(&self, spectra: &FeatureSpectra<R>) -> f64 {
        let (data, n_bands) = (self.pass.data, self.pass.data.layout().bands_here().len());
        let mut slots = vec![0.0; data.layout().tiles().owned().len() * n_bands];
        let tiles = data.layout().tiles().owned().map(|tile| (tile, spectra.tile(tile)));
        let places = tiles.zip(slots.chunks_mut(n_bands.max(1)));
        let new_scratch = || (pulp::Arch::new(), Vec::new());
        share(places, new_scratch, |(arch, left), ((tile, features), slots)| {
            let (width, mut rows, mut first) = (data.tiles().width(tile), data.tile(tile), 0);
            for ((_, band), slot) in data.layout().bands_here().zip(slots) {
                let (now, later) = rows.split_at(band.len() * width);
                let entries = &self.entries;
                *slot = arch.dispatch(Explicit { rows: now, first, width, entries, features, left });
                (rows, first) = (later, first + band.len());
            }
        });
        self.add_slots(&slots, 0).0
    }

    /// One pass with assumed exponents of the features' norms; returns the true norms too.
    fn attempt(
        &self,
        drawing: Option<&Drawing<R>>,
        spectra: &mut FeatureSpectra<R>,
        rows: &[i32],
        cols: &[i32],
    ) -> (Projections<R>, Vec<f64>) {
        let (layout, k) = (self.pass.data.layout(), spectra.n_features());
        let (n_rows, n_slots) = (rows.len(), layout.bands_here().len() + k);
        let known = drawing.and_then(|drawing| self.pass.statistics_of_column(&drawing.columns));
        let (data_factors, gram_factors) =
            (Exponents { rows, cols }.factors(), Exponents { rows: cols, cols }.factors());
        let mut slots = vec![0.0; layout.tiles().owned().len() * n_slots];
        let places = spectra.tiles_mut().zip(slots.chunks_mut(n_slots.max(1)));
        let places = places.map(|((tile, features), slots)| Place { tile, features, slots });
        let scratches = share(
            places,
            || self.new_scratch(k),
            |scratch, mut place| {
                if let Some(drawing) = drawing {
                    self.draw_tile(drawing, known.as_deref(), &mut place, scratch);
                }
                self.project_tile(&mut place, scratch, &data_factors, &gram_factors);
            },
        );
        let mut sums = scratches.into_iter().map(|scratch| (scratch.with_data, scratch.gram));
        let (mut with_data, mut gram) =
            sums.next().unwrap_or_else(|| (FixedSums::zeros(n_rows, k), FixedSums::zeros(k, k)));
        for (other_data, other_gram) in sums {
            with_data.merge(&other_data);
            gram.merge(&other_gram);
        }
        if self.pass.data.tiles().is_shared() {
            self.pass.comm.sum_integers(gram.integers_mut());
        }
        let (residual, norms) = self.add_slots(&slots, k);
        let with_data = own_rows(with_data, rows, cols, self.pass.data.sharing());
        let gram = gram.to_floats(&gram_factors);
        let projections = Projections::new(k, layout.own_rows(), with_data, gram, residual);
        (projections, norms.iter().map(|x| x.sqrt()).collect())
    }

    fn new_scratch(&self, k: usize) -> Scratch<R> {
        Scratch {
            arch: pulp::Arch::new(),
            statistic: Vec::new(),
            band: Vec::new(),
            rotated: Vec::new(),
            normals: Vec::new(),
            packed: Packed::default(),
            small_gram: vec![R::zero(); k * k],
            products: vec![R::zero(); ROWS * k],
            with_data: FixedSums::zeros(self.pass.data.rows_here().len(), k),
            gram: FixedSums::zeros(k, k),
        }
    }

    /// The squared residual, tile by tile and in a tile band by band, and the features' squared norms in tile order: of each
    /// tile what is here.
    fn add_slots(&self, slots: &[f64], k: usize) -> (f64, Vec<f64>) {
        let (layout, comm) = (self.pass.data.layout(), self.pass.comm);
        let n_here = layout.bands_here().len();
        let of_tiles = || slots.chunks_exact((n_here + k).max(1));
        let mut own: Vec<f64> = of_tiles().flat_map(|slots| &slots[..n_here]).copied().collect();
        if layout.tiles().speaks() {
            own.extend(of_tiles().flat_map(|slots| &slots[n_here..]));
        }
        let of_ranks: Vec<Vec<f64>> = if layout.tiles().is_shared() {
            let length = |rank: usize| {
                let of = layout.of(rank);
                let of_tile = of.bands_here().len() + if of.tiles().speaks() { k } else { 0 };
                8 * of.tiles().owned().len() * of_tile
            };
            let lengths: Vec<usize> = (0..comm.size()).map(length).collect();
            comm.all_gather_known(&f64::write(&own), &lengths).iter().map(|bytes| f64::read(bytes)).collect()
        } else {
            vec![own]
        };
        let mut residuals = vec![Vec::new(); layout.tiles().len()];
        let mut norms = vec![0.0; k];
        for (rank, numbers) in of_ranks.iter().enumerate() {
            let (tiles, n_bands) = (layout.of(rank).tiles(), layout.of(rank).bands_here().len());
            let (of_bands, of_features) = numbers.split_at(tiles.owned().len() * n_bands);
            let of_bands = of_bands.chunks(n_bands.max(1));
            tiles.owned().zip(of_bands).for_each(|(tile, bands)| residuals[tile].extend_from_slice(bands));
            for slots in of_features.chunks_exact(k.max(1)) {
                norms.iter_mut().zip(slots).for_each(|(sum, part)| *sum += part);
            }
        }
        (residuals.iter().map(|bands| bands.iter().sum::<f64>()).sum(), norms)
    }

    /// The draw at the modes of one tile.
    fn draw_tile(
        &self,
        drawing: &Drawing<R>,
        known: Option<&[Vec<R>]>,
        place: &mut Place<R>,
        scratch: &mut Scratch<R>,
    ) {
        let modes = self.pass.data.tiles().modes(place.tile);
        let width = modes.len();
        let k = place.features.len() / width;
        let Scratch { arch, statistic, band, rotated, normals, .. } = scratch;
        let data = self.pass.data;
        statistic.resize(k * width, R::zero());
        match known {
            Some(known) => statistic.copy_from_slice(&known[place.tile - data.tiles().owned().start]),
            None => add_bands(*arch, data, place.tile, &drawing.columns, (statistic, band)),
        }
        let mut stream = drawing.streams.stream(Purpose::Features, 0, place.tile as u64);
        normals.clear();
        normals.extend((0..k * width).map(|_| -> f64 { StandardNormal.sample(&mut stream) }));
        match &drawing.law {
            Law::Joint { conditional, vectors } => {
                let FeatureConditional { rotation, noise_variance, precisions } = **conditional;
                let joint = Joint { vectors, values: &rotation.values, noise_variance, precisions: &precisions[modes] };
                joint.draw(*arch, statistic, rotated, normals, place.features);
            }
            Law::OneByOne(OneByOne { gram, order, noise_variance, precisions }) => {
                let (noise_variance, precisions) = (*noise_variance, &precisions[modes]);
                let features = &mut *place.features;
                arch.dispatch(DrawOneByOne { gram, order, noise_variance, precisions, statistic, normals, features });
            }
        }
    }

    /// Adds one tile's share of `Y S'`, `S S'`, the squared norms and the squared residual.
    fn project_tile(
        &self,
        place: &mut Place<R>,
        scratch: &mut Scratch<R>,
        data_factors: &Factors,
        gram_factors: &Factors,
    ) {
        let width = self.pass.data.tiles().width(place.tile);
        let k = place.features.len() / width;
        let features = &*place.features;
        let Scratch { arch, packed, small_gram, products, with_data, gram, .. } = scratch;
        packed.pack(features, k, width);
        let (data, entries, factors) = (self.pass.data, &self.entries, data_factors);
        multiply(small_gram, View::new(features, k, width), View::new(features, k, width).t());
        let (mut rows, mut first) = (data.tile(place.tile), 0);
        let (residuals, norms) = place.slots.split_at_mut(data.layout().bands_here().len());
        for (((_, band), residual), of_loadings) in data.layout().bands_here().zip(residuals).zip(&self.grams) {
            let (rows_of_band, later) = rows.split_at(band.len() * width);
            let crossed = arch.dispatch(ProjectRows {
                rows: rows_of_band,
                first,
                width,
                entries,
                packed,
                products,
                sums: with_data,
                factors,
            });
            let explained = of_loadings.iter().zip(&*small_gram).map(|(w, s)| w * s.to_f64()).sum::<f64>();
            *residual = crossed + explained;
            (rows, first) = (later, first + band.len());
        }
        if data.tiles().speaks() {
            gram.add_rows(0, small_gram, gram_factors);
            norms.iter_mut().enumerate().for_each(|(j, norm)| *norm = small_gram[j * k + j].to_f64());
        }
    }
}

/// The sums over all tiles of the rows that this rank updates, from those over the tiles here of the rows here.
pub(super) fn own_rows(mut sums: FixedSums, rows: &[i32], cols: &[i32], sharing: &Sharing) -> Vec<f64> {
    let (layout, line) = (sharing.layout(), sharing.same_rows());
    let (here, own) = (layout.rows_here(), layout.own_rows());
    if line.size() > 1 {
        let stretch = |own: &Range<usize>| (own.start - here.start) * cols.len()..(own.end - here.start) * cols.len();
        let stretches: Vec<_> = layout.own_rows_of_line().iter().map(stretch).collect();
        sums = FixedSums::of(line.scatter_sums(sums.integers_mut(), &stretches), cols.len());
    }
    let rows = &rows[own.start - here.start..own.end - here.start];
    sums.to_floats(&Exponents { rows, cols }.factors())
}
