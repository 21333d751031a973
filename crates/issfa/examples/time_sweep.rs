//! Times sweeps against the bare matrix product on simulated spectra, in turns within one run; prints JSON.
//!
//! `time_sweep T V K ROUNDS` with V as a grid such as 100x100; threads as RAYON_NUM_THREADS says.

use issfa::data::grid::parse_grid;
use issfa::lab::chain::{Chain, Schedule};
use issfa::lab::kernels::Kernel;
use issfa::lab::model::{Entry, Loadings, Model, Priors, State, simulate};
use issfa::lab::numeric::linalg::{View, multiply};
use issfa::lab::numeric::workers::share;
use issfa::lab::rng::{Purpose, Stream, Streams};
use issfa::lab::spectral::{FeatureSpectra, SpectralData, Tiles};
use issfa::structure::{Curve, Spectrum, expression};
use rand::RngExt;
use std::collections::BTreeMap;
use std::time::Instant;

/// Share of rows that use a feature.
const DENSITY: f64 = 0.05;
const NOISE: f64 = 1.0;

fn main() -> issfa::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [n_rows, grid, k, rounds] = &arguments[..] else {
        eprintln!("usage: time_sweep T GRID K ROUNDS, such as: time_sweep 3000 100x100 50 5");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse::<usize>().expect("a whole number");
    let (n_rows, k, rounds) = (number(n_rows), number(k), number(rounds));
    let structure = expression::build(None, Some(&parse_grid(grid)?))?;
    let spectrum = Spectrum::new(&structure, &Curve::default());
    let (state, data) = simulated(n_rows, &spectrum, k);
    let model = Model::new(data, spectrum, Priors::default_for(2));
    let schedule = Schedule {
        seed: 1,
        chain: 1,
        sweeps: u64::MAX,
        burn_in: 0,
        thin: 1,
        kernels: Kernel::DEFAULT_SWEEP.to_vec(),
        rounds: 1,
    };
    let mut chain = Chain::new(state, 0);
    chain.step(&model, &schedule)?;
    let (mut ratios, mut sweeps, mut bares, mut kernels) = (vec![], vec![], vec![], BTreeMap::new());
    for _ in 0..rounds {
        let bare = time_of(|| bare_product(&model.data, &chain.state.features));
        let mut info = None;
        let sweep = time_of(|| info = Some(chain.step(&model, &schedule)));
        for step in info.expect("the step ran")?.steps {
            *kernels.entry(step.kernel.name()).or_insert(0.0) += step.seconds / rounds as f64;
        }
        ratios.push(sweep / bare);
        sweeps.push(sweep);
        bares.push(bare);
    }
    let kernels: Vec<String> = kernels.iter().map(|(name, seconds)| format!("\"{name}\": {seconds:.6}")).collect();
    println!(
        "{{\"rows\": {n_rows}, \"sites\": {}, \"features\": {}, \"threads\": {}, \"ratio\": {:.4}, \"sweep_seconds\": {:.6}, \
         \"product_seconds\": {:.6}, \"product_gigaflops\": {:.1}, \"kernel_seconds\": {{{}}}}}",
        structure.n_sites(),
        chain.state.n_features(),
        rayon::current_num_threads(),
        median(&mut ratios),
        median(&mut sweeps),
        median(&mut bares),
        2e-9 * n_rows as f64 * structure.n_sites() as f64 * chain.state.n_features() as f64 / median(&mut bares),
        kernels.join(", ")
    );
    Ok(())
}

/// A true state with `k` features, each used by a twentieth of the rows, and data from it.
fn simulated(n_rows: usize, spectrum: &Spectrum, k: usize) -> (State<f32>, SpectralData<f32>) {
    let streams = Streams::once(1);
    let mut stream = streams.stream(Purpose::Simulation, 0, 0);
    let mut state = State::<f32>::empty(n_rows, spectrum.n_modes(), 2);
    // Features have about unit variance at a site, that of the noise.
    state.ln_theta = vec![-3.0, 1.6];
    state.noise_variance = NOISE;
    let precisions = spectrum.precisions(&state.theta());
    let mut row = |_| {
        let weights = (0..k).map(|feature| (feature, stream.random::<f64>(), simulate::normal(&mut stream)));
        let active = weights.filter(|(_, uniform, _)| *uniform < DENSITY);
        active.map(|(feature, _, weight)| Entry { feature, weight }).collect::<Vec<_>>()
    };
    state.loadings = Loadings::from_rows((0..n_rows).map(&mut row).collect(), k);
    state.weight_means = vec![0.0; k];
    state.weight_precisions = vec![1.0; k];
    state.feature_ids = (0..k).map(|_| state.new_id()).collect();
    let mut features = vec![Vec::new(); k];
    share(
        features.iter_mut().enumerate(),
        || (),
        |_, (at, feature)| {
            *feature = simulate::feature_spectrum(&precisions, &mut streams.stream(Purpose::Simulation, 1, at as u64));
        },
    );
    state.features = FeatureSpectra::from_rows(spectrum.n_modes(), features.iter().map(Vec::as_slice));
    let mut data = SpectralData::zeros(n_rows, Tiles::whole(spectrum.n_modes()));
    share(
        data.tiles_mut(),
        || (),
        |_, (tile, values)| {
            let mut stream: Stream = streams.stream(Purpose::Simulation, 2, tile as u64);
            let width = values.len() / n_rows;
            for (row, values) in values.chunks_exact_mut(width).enumerate() {
                values.iter_mut().for_each(|y| *y = (NOISE.sqrt() * simulate::normal(&mut stream)) as f32);
                for entry in state.loadings.row(row) {
                    let feature = &state.features.tile(tile)[entry.feature * width..][..width];
                    values.iter_mut().zip(feature).for_each(|(y, s)| *y += entry.weight as f32 * s);
                }
            }
        },
    );
    (state, data)
}

/// `Y S'` in single precision, tile by tile, shared between threads as in the pass, and nothing else.
fn bare_product(data: &SpectralData<f32>, features: &FeatureSpectra<f32>) {
    let (n_rows, k) = (data.n_rows(), features.n_features());
    let new_scratch = || vec![0.0f32; n_rows * k];
    let scratches = share(0..data.tiles().len(), new_scratch, |products, tile| {
        let width = data.tiles().width(tile);
        let (values, features) = (View::new(data.tile(tile), n_rows, width), View::new(features.tile(tile), k, width));
        multiply(products, values, features.t());
    });
    std::hint::black_box(scratches);
}

fn time_of(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
