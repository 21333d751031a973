//! How much work a sweep is on so many ranks, all together: what grows with their number is what they do alike. Prints JSON.
//!
//! `work_on_ranks FILE GRID K RANKS SWEEPS`: ranks are threads that sleep while they wait, and processor time is what counts, so
//! that other work on the machine does no harm. Linux only.

use issfa::comm::local::Local;
use issfa::data::Rows;
use issfa::fit::{Prepared, Ranks, Request};
use issfa::lab::chain::Chain;
use issfa::{Centering, Settings};
use std::fs;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, grid, k, ranks, sweeps] = &arguments[..] else {
        eprintln!("usage: work_on_ranks FILE GRID K RANKS SWEEPS, such as: work_on_ranks rows.npy 16x32 50 2 40");
        std::process::exit(2);
    };
    let number = |text: &str| text.parse::<usize>().expect("a whole number");
    let (k, sweeps) = (number(k), number(sweeps));
    let settings = Settings {
        input: vec![file.into()],
        grid: Some(grid.clone()),
        center: Some(Centering::None),
        noise: "white".into(),
        init: format!("kmeans:{k}"),
        max_features: Some(k),
        ..Settings::default()
    };
    let found = Local::run(number(ranks), |comm| {
        let request =
            Request::new(Rows::open(&settings.input).expect("rows"), settings.clone().check().expect("settings"));
        let prepared =
            Prepared::<f32>::load(Request { ranks: Ranks::together(comm.clone()), ..request }).expect("data");
        let mut schedule = prepared.about.schedule(1);
        schedule.burn_in = 0;
        let mut chain = Chain::new(prepared.initial_state(1).expect("a start"), 0);
        (0..5).for_each(|_| _ = chain.step(&prepared.model, &schedule).expect("a sweep"));
        comm.all_gather(&[]);
        let before = processor_seconds();
        for _ in 0..sweeps {
            chain.step(&prepared.model, &schedule).expect("a sweep");
            std::hint::black_box(chain.state.loadings.digest());
        }
        comm.all_gather(&[]);
        let seconds = (processor_seconds() - before) / sweeps as f64;
        // A thread that is gone is not counted.
        comm.all_gather(&[]);
        (seconds, prepared.model.data.layout().shape(), chain.state.n_features(), prepared.model.data.n_rows())
    });
    let (seconds, [lines, columns], k, n_rows) = found[0];
    println!(
        "{{\"rows\": {n_rows}, \"features\": {k}, \"lines\": {lines}, \"columns\": {columns}, \"seconds\": {seconds:.6}}}"
    );
}

/// Seconds that this process has had a processor, all threads together.
fn processor_seconds() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let of_thread = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or(0.0)
    };
    1e-9 * tasks.map(|task| of_thread(task.path())).sum::<f64>()
}
