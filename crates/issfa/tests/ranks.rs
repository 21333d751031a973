//! The same fit on one rank and on several (threads of this process, with one thread each): the same bits in every file.

use issfa::comm::Comm;
use issfa::comm::local::Local;
use issfa::data::write::write_npy_f64;
use issfa::data::{Centering, Missing, Rows};
use issfa::fit::cost::{Size, bytes_per_rank, messages};
use issfa::fit::{Ending, Observer, Prepared, Ranks, Request, Session};
use issfa::lab::chain::Chain;
use issfa::lab::kernels::{Kernel, features};
use issfa::lab::numeric::linalg::Real;
use issfa::lab::spectral::BAND;
use issfa::noise::{Recipe, Reference};
use issfa::run::folder::{NOISE_REFERENCE, Run};
use issfa::run::held::Held;
use issfa::run::settings::{Precision, Settings, Weights};
use issfa::run::trace::TraceRow;
use issfa::run::until::{Until, Window};
use issfa::summary::Fitted;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Sites of a grid that takes five tiles, the last one short.
const GRID: [usize; 2] = [33, 34];
/// One that is large enough for a coarse start, on two tiles.
const LARGE_GRID: [usize; 2] = [50, 52];
const ROWS: usize = 70;
/// One on three tiles, with rows of four bands, so that ranks share both; the last band is short.
const BAND_GRID: [usize; 2] = [26, 27];
const BAND_ROWS: usize = 200;
const SHORT_BAND: usize = 64;

/// Asks for a stop after some sweeps.
struct Quiet {
    n_left: u64,
}

impl Observer for Quiet {
    fn sweep(&mut self, _: &TraceRow, _: u64, _: Duration) {
        // Chains side by side may each do one more.
        self.n_left = self.n_left.saturating_sub(1);
    }
    fn wants_stop(&self) -> bool {
        self.n_left == 0
    }
    fn note(&mut self, _: &str) {}
}

/// Two smooth features, each in some rows, with noise that no generator is needed for.
fn value(grid: [usize; 2], row: usize, site: usize) -> f64 {
    let (x, y) = ((site / grid[1]) as f64 / 9.0, (site % grid[1]) as f64 / 7.0);
    let weights = [[1.5, 0.0], [0.0, 2.0], [1.0, -1.5], [0.0, 0.0]][row % 4];
    let noise = ((row * 7919 + site * 104_729) % 1009) as f64 / 504.5 - 1.0;
    3.0 + weights[0] * x.sin() * y.cos() + weights[1] * (x + y).cos() + 0.4 * noise
}

/// Strong features that are each in some rows, more of them than clusters at the start: found as mixtures first.
fn strong_value(grid: [usize; 2], row: usize, site: usize) -> f64 {
    const FEATURES: usize = 7;
    let (x, y) = ((site / grid[1]) as f64 / grid[0] as f64, (site % grid[1]) as f64 / grid[1] as f64);
    let feature = |k: usize| {
        let (across, along) = (3.0 * (k % 3 + 1) as f64, 3.0 * (k / 3 + 1) as f64);
        (across * x + k as f64).cos() * (along * y + 2.0 * k as f64).cos()
    };
    let weight = |k: usize| 40.0 * (1.5 + ((row * 7 + k) as f64 * 1.3).sin());
    let uses = [(row * row + row / 3) % FEATURES, (row * 5 + row / 7) % FEATURES];
    let uses = &uses[..if row.is_multiple_of(3) { 2 } else { 1 }];
    let noise = ((row * 7919 + site * 104_729) % 1009) as f64 / 504.5 - 1.0;
    uses.iter().map(|&k| weight(k) * feature(k)).sum::<f64>() + noise
}

/// A slow signal in noise that differs between rows.
fn loud_value(row: usize, site: usize) -> f64 {
    let bits = [17, 29, 41].iter().fold((row * 4096 + site) as u64 + 1, |x, shift| {
        let x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^ (x >> shift)
    });
    let noise = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let level = if row % 20 < 8 { 1.5 } else { 0.8 };
    2.0 * (row as f64 / 9.0).sin() * (site as f64 / 200.0).cos() + level * noise
}

/// What differs between the fits of this file.
#[derive(Clone, Copy, Default)]
struct Case {
    holes: bool,
    mask: bool,
    extras: bool,
    large: bool,
    student: bool,
    bands: bool,
    strong: bool,
    loud: bool,
}

impl Case {
    fn value(self, row: usize, site: usize) -> f64 {
        if self.strong { strong_value(self.grid(), row, site) } else { value(self.grid(), row, site) }
    }

    fn grid(self) -> [usize; 2] {
        match (self.large, self.bands) {
            (true, _) => LARGE_GRID,
            (_, true) => BAND_GRID,
            _ => GRID,
        }
    }
}

fn settings(folder: &Path, case: Case) -> Settings {
    settings_of(folder, case, if case.bands || case.strong { BAND_ROWS } else { ROWS })
}

fn settings_of(folder: &Path, case: Case, n_rows: usize) -> Settings {
    let grid = case.grid();
    let n_sites = grid[0] * grid[1];
    let cell = |row: usize, site: usize| match case.holes {
        true if (row * 31 + site).is_multiple_of(97) || row == 12 => f64::NAN,
        _ if case.loud => loud_value(row, site),
        _ => case.value(row, site),
    };
    let rows = |rows: std::ops::Range<usize>| -> Vec<f64> {
        rows.flat_map(|row| (0..n_sites).map(move |site| cell(row, site))).collect()
    };
    let inputs = [folder.join("a.npy"), folder.join("b.npy")];
    write_npy_f64(&inputs[0], &[45, n_sites], &rows(0..45)).unwrap();
    write_npy_f64(&inputs[1], &[n_rows - 45, n_sites], &rows(45..n_rows)).unwrap();
    let heldout = folder.join("heldout.npy");
    let heldout_value = |at: usize| case.value(at / n_sites, at);
    write_npy_f64(&heldout, &[5, n_sites], &(0..5 * n_sites).map(heldout_value).collect::<Vec<_>>()).unwrap();
    let mask = folder.join("mask.npy");
    let is_inside = |site: usize| (site / grid[1]).abs_diff(grid[0] / 2) + (site % grid[1]).abs_diff(grid[1] / 2) < 20;
    let inside = |site: usize| if is_inside(site) { 1.0 } else { 0.0 };
    write_npy_f64(&mask, &grid, &(0..n_sites).map(inside).collect::<Vec<_>>()).unwrap();
    Settings {
        input: inputs.to_vec(),
        grid: Some(format!("{}x{}", grid[0], grid[1])),
        sweeps: 12,
        burn_in: Some(5),
        thin: Some(2),
        keep_draws: 3,
        seed: 4,
        init: "kmeans:4".into(),
        // Rows in no order: signals as strong as these are taken for noise in part.
        noise: if case.strong { "white".into() } else { Settings::default().noise },
        center: Some(Centering::Site),
        missing: if case.holes { Missing::Impute } else { Missing::Error },
        mask: case.mask.then(|| mask.display().to_string()),
        heldout: case.extras.then_some(heldout),
        reconstruct: case.extras,
        checkpoint_every: "1h".into(),
        weights: if case.student { Weights::Student } else { Weights::Normal },
        noise_reference: Recipe { row_levels: case.loud, ..Recipe::default() },
        ..Settings::default()
    }
}

fn ranks(comm: Arc<dyn Comm>, settings: &Settings) -> Ranks {
    Ranks::for_chains(comm, settings.chains, None).unwrap()
}

fn precision<R: Real>() -> Precision {
    if R::BYTES == 4 { Precision::F32 } else { Precision::F64 }
}

fn run_fit<R: Real>(settings: &Settings, out: &Path, size: usize, n_sweeps: u64) {
    run_fit_in_bands::<R>(settings, out, size, n_sweeps, BAND);
}

fn run_fit_in_bands<R: Real>(settings: &Settings, out: &Path, size: usize, n_sweeps: u64, band: usize) {
    let settings = Settings { precision: precision::<R>(), ..settings.clone() };
    let endings = Local::run(size, |comm| {
        let rows = Rows::open(&settings.input).unwrap();
        let request = Request::new(rows, settings.clone().check().unwrap());
        let request = Request { ranks: Ranks { band, ..ranks(comm, &settings) }, ..request };
        Session::new(request, Some(out)).unwrap().run(&mut Quiet { n_left: n_sweeps }).unwrap()
    });
    let expected =
        if n_sweeps > settings.sweeps * u64::from(settings.chains) { Ending::Finished } else { Ending::Stopped };
    assert!(endings.iter().all(|ending| *ending == expected), "{endings:?}");
}

fn run_resume(out: &Path, size: usize) {
    run_resume_in_bands(out, size, BAND);
}

fn run_resume_in_bands(out: &Path, size: usize, band: usize) {
    Local::run(size, |comm| {
        let held = issfa::fit::hold(comm.as_ref(), out, false, || Held::of_run(out)).unwrap();
        let run = Run::open(out).unwrap();
        let ranks = Ranks { band, ..ranks(comm, &run.checked.settings) };
        let mut session = Session::resume(held, &run, None, |request| request.ranks = ranks).unwrap();
        assert_eq!(session.run(&mut Quiet { n_left: u64::MAX }).unwrap(), Ending::Finished);
    });
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut list = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { list.extend(files(&entry)) } else { list.push(entry) }
    }
    list.sort();
    list
}

/// The bytes of a file without what tells the time.
fn content(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if path.ends_with("trace.csv") {
        let text = String::from_utf8(bytes).unwrap();
        let without_seconds = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            [&cells[..2], &cells[3..]].concat().join(",")
        };
        return text.lines().map(without_seconds).collect::<Vec<_>>().join("\n").into_bytes();
    }
    if path.ends_with("checksums.tsv") {
        // The eigenvalues are not compared, and the last line is about all others.
        let text = String::from_utf8(bytes).unwrap();
        let others =
            text.lines().filter(|line| !["eigenvalues.csv", "checksums.tsv"].iter().any(|name| line.ends_with(name)));
        return others.collect::<Vec<_>>().join("\n").into_bytes();
    }
    if path.ends_with("state.safetensors") {
        // The header holds how long each kernel took.
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        return bytes[8 + length..].to_vec();
    }
    bytes
}

fn assert_same(one: &Path, other: &Path, what: &str) {
    let names = |folder: &Path| -> Vec<PathBuf> {
        let list = files(folder).into_iter().map(|path| path.strip_prefix(folder).unwrap().to_path_buf());
        // Several ranks leave the eigenvalues of the data to issfa report, and live.json tells the time.
        list.filter(|path| !["eigenvalues.csv", "live.json"].iter().any(|name| path.ends_with(name))).collect()
    };
    assert_eq!(names(one), names(other), "{what}");
    assert!(names(one).len() > 8, "there is something to compare");
    for name in names(one) {
        assert!(content(&one.join(&name)) == content(&other.join(&name)), "{what}: {} differs", name.display());
    }
}

fn same_on_any_number_of_ranks<R: Real>(case: Case) {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), case);
    let out = |name: &str| folder.path().join(name);
    run_fit::<R>(&settings, &out("1"), 1, u64::MAX);
    for size in 2..=4 {
        run_fit::<R>(&settings, &out(&size.to_string()), size, u64::MAX);
        assert_same(&out("1"), &out(&size.to_string()), &format!("{size} ranks"));
    }
    // Stopped on three ranks after burn-in, resumed on two.
    run_fit::<R>(&settings, &out("stopped"), 3, 8);
    run_resume(&out("stopped"), 2);
    assert_same(&out("1"), &out("stopped"), "3 ranks, then 2");
}

/// Ranks that share rows as well as tiles: two lines, four, two of three ranks, and some with a rank that is left over.
fn same_with_bands<R: Real>(case: Case, sizes: &[usize]) {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), Case { bands: true, ..case });
    let out = |name: &str| folder.path().join(name);
    let fit = |name: &str, size, n_sweeps| run_fit_in_bands::<R>(&settings, &out(name), size, n_sweeps, SHORT_BAND);
    fit("1", 1, u64::MAX);
    for &size in sizes {
        fit(&size.to_string(), size, u64::MAX);
        assert_same(&out("1"), &out(&size.to_string()), &format!("{size} ranks"));
    }
    // Stopped after burn-in, or during a coarse start, and gone on with on other numbers of ranks.
    for (n_sweeps, before, after) in [(8, 7, 4), (3, 4, 1), (2, 1, 6)] {
        let name = format!("stopped-{n_sweeps}");
        fit(&name, before, n_sweeps);
        run_resume_in_bands(&out(&name), after, SHORT_BAND);
        assert_same(&out("1"), &out(&name), &format!("{before} ranks, after {n_sweeps} sweeps {after}"));
    }
    // Bands are no matter of ranks: one long band is another fit.
    run_fit::<R>(&settings, &out("long"), 1, u64::MAX);
    assert_ne!(content(&out("1").join("trace.csv")), content(&out("long").join("trace.csv")));
}

#[test]
fn bands_of_rows() {
    same_with_bands::<f32>(Case { extras: true, ..Case::default() }, &[2, 3, 4, 5, 6, 7]);
}

#[test]
fn bands_of_rows_with_student_weights() {
    same_with_bands::<f64>(Case { student: true, ..Case::default() }, &[4, 7]);
}

/// All modes are on eleven tiles, those of the coarse start on two: ranks hold other rows in each.
#[test]
fn bands_of_rows_with_a_coarse_start() {
    same_with_bands::<f32>(Case { large: true, ..Case::default() }, &[4, 6]);
}

/// Under a mask rows stay whole, but sums over them are by bands.
#[test]
fn bands_of_rows_under_a_mask() {
    same_with_bands::<f32>(Case { mask: true, ..Case::default() }, &[4]);
}

/// The first four sweeps of whole rows look at 325 modes or so, on two tiles; one rank more than there are tiles, and a stop in between.
fn same_with_a_coarse_start<R: Real>(case: Case) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { sweeps: 8, ..settings(folder.path(), Case { large: true, ..case }) };
    let out = |name: &str| folder.path().join(name);
    run_fit::<R>(&settings, &out("1"), 1, u64::MAX);
    let trace = fs::read_to_string(out("1").join("trace.csv")).unwrap();
    let n_modes: Vec<usize> =
        trace.lines().skip(1).map(|row| row.split(',').next_back().unwrap().parse().unwrap()).collect();
    let all = LARGE_GRID[0] * LARGE_GRID[1];
    let is_whole = !case.mask && !case.holes;
    assert!(n_modes[..4].iter().all(|n| if is_whole { (257..=512).contains(n) } else { *n == all }), "{n_modes:?}");
    assert_eq!(n_modes[4..], [all; 4]);
    for size in [2, 3] {
        run_fit::<R>(&settings, &out(&size.to_string()), size, u64::MAX);
        assert_same(&out("1"), &out(&size.to_string()), &format!("{size} ranks"));
    }
    for (n_done, before, after) in [(2, 3, 2), (4, 1, 3)] {
        let name = format!("stopped-{n_done}");
        run_fit::<R>(&settings, &out(&name), before, n_done);
        run_resume(&out(&name), after);
        assert_same(&out("1"), &out(&name), &format!("{before} ranks, after {n_done} sweeps {after}"));
    }
}

#[test]
fn a_coarse_start() {
    same_with_a_coarse_start::<f32>(Case { extras: true, ..Case::default() });
}

#[test]
fn no_coarse_start_with_a_mask_and_missing_cells() {
    same_with_a_coarse_start::<f64>(Case { holes: true, mask: true, ..Case::default() });
}

/// Whether features are turned all at once in burn-in.
fn is_unmixed(case: Case, band: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), case);
    let request = Request::new(Rows::open(&settings.input).unwrap(), settings.check().unwrap());
    let ranks = Ranks { band, ..Ranks::together(Arc::new(issfa::comm::Solo)) };
    let prepared = Prepared::<f32>::load(Request { ranks, ..request }).unwrap();
    let schedule = prepared.about.schedule(1);
    let mut chain = Chain::new(prepared.initial_state(1).unwrap(), 0);
    let mut step = || chain.step(&prepared.model, &schedule).unwrap().of(Kernel::Unmix).accepted > 0;
    (0..schedule.burn_in).any(|_| step())
}

/// Strong signals, whose features are turned all at once: rank 0 says how, and a stop may come before.
#[test]
fn strong_signals() {
    for case in
        [Case::default(), Case { mask: true, ..Case::default() }, Case { holes: true, mask: true, ..Case::default() }]
    {
        let case = Case { strong: true, ..case };
        assert!(is_unmixed(case, BAND));
        same_on_any_number_of_ranks::<f32>(case);
    }
}

#[test]
fn bands_of_rows_with_strong_signals() {
    let case = Case { strong: true, ..Case::default() };
    assert!(is_unmixed(Case { bands: true, ..case }, SHORT_BAND));
    same_with_bands::<f32>(case, &[4, 7]);
}

/// Ranks without a tile, and chains side by side on groups of ranks.
#[test]
fn many_ranks_and_two_chains() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { chains: 2, ..settings(folder.path(), Case::default()) };
    let out = |name: &str| folder.path().join(name);
    run_fit::<f32>(&settings, &out("1"), 1, u64::MAX);
    assert!(out("1").join("chain-2/features.npy").is_file());
    for size in [2, 4, 7] {
        run_fit::<f32>(&settings, &out(&size.to_string()), size, u64::MAX);
        assert_same(&out("1"), &out(&size.to_string()), &format!("{size} ranks"));
    }
}

/// What is sent in a sweep is what `issfa plan --ranks` says, given the numbers that the sweeps had.
#[test]
fn traffic_is_as_planned() {
    let folder = tempfile::tempdir().unwrap();
    let masked = Case { mask: true, ..Case::default() };
    let bands = Case { bands: true, ..Case::default() };
    let mut wrong = Vec::new();
    for case in [Case::default(), bands, masked, Case { holes: true, ..masked }] {
        let settings = settings_of(folder.path(), case, if case.holes { 300 } else { 1500 });
        // Where rows are cut: two lines, two of three ranks, and four.
        let (band, sizes) = if case.bands { (384, &[2, 6, 4][..]) } else { (BAND, &[2, 3][..]) };
        for &size in sizes {
            let sent = Local::run(size, |comm| sent_in_sweeps(&settings, comm, band));
            let measured = sent.iter().map(|(n_bytes, _)| n_bytes).sum::<f64>() / size as f64;
            let planned = bytes_per_rank(&messages(&sent[0].1, size));
            if (planned / measured - 1.0).abs() > 0.1 {
                wrong.push(format!("bands of {band}, {size} ranks: planned {planned}, sent {measured}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Bytes that a rank sends in a sweep, and the size of the problem that these sweeps had, on average.
fn sent_in_sweeps(settings: &Settings, comm: Arc<dyn Comm>, band: usize) -> (f64, Size) {
    const SWEEPS: usize = 10;
    let checked = settings.clone().check().unwrap();
    let request = Request::new(Rows::open(&settings.input).unwrap(), checked);
    let ranks = Ranks { band, ..Ranks::together(comm) };
    let prepared = Prepared::<f32>::load(Request { ranks, ..request }).unwrap();
    let mut schedule = prepared.about.schedule(1);
    (schedule.burn_in, schedule.rounds) = (0, 1);
    let mut chain = Chain::new(prepared.initial_state(1).unwrap(), 1);
    let (mut k, mut active, mut proposals, mut turned, mut asked) = (0, 0, 0, 0, 0);
    let traffic = || prepared.model.data.sharing().traffic().n_bytes;
    let before = traffic();
    for _ in 0..SWEEPS {
        k += chain.state.n_features();
        let info = chain.step(&prepared.model, &schedule).unwrap();
        active += chain.state.loadings.n_active();
        proposals += info.of(Kernel::UniqueFeatures).proposed as usize;
        turned += info.of(Kernel::PairRotation).accepted as usize;
        asked += info.of(Kernel::FewRows).proposed as usize;
    }
    // The ranks also compare their states.
    let n_bytes = (traffic() - before) as f64 / SWEEPS as f64 + 25.0;
    let n_rows = prepared.model.data.n_rows();
    let size = Size {
        n_rows,
        n_columns: prepared.model.data.n_modes(),
        band: prepared.model.data.layout().band(),
        n_grid: (!prepared.model.domain.is_whole()).then_some(GRID[0] * GRID[1]),
        has_holes: prepared.about.record.n_missing_cells > 0,
        joint_every: features::JOINT_ONE_IN * prepared.model.joint_every,
        n_features: (k as f64 / SWEEPS as f64).round() as usize,
        active_per_row: active as f64 / (SWEEPS * n_rows) as f64,
        proposals: proposals as f64 / SWEEPS as f64,
        turned_pairs: turned as f64 / SWEEPS as f64,
        asked: asked as f64 / SWEEPS as f64,
        row_sweeps: prepared.model.row_sweeps,
        birth_rounds: prepared.model.birth_rounds,
        n_theta: prepared.model.spectrum.n_parameters(),
        bytes: 4,
    };
    (n_bytes, size)
}

#[test]
fn whole_rows() {
    same_on_any_number_of_ranks::<f32>(Case::default());
}

#[test]
fn whole_rows_in_double_precision_with_reconstruction_and_heldout() {
    same_on_any_number_of_ranks::<f64>(Case { extras: true, ..Case::default() });
}

#[test]
fn under_a_mask() {
    same_on_any_number_of_ranks::<f32>(Case { mask: true, extras: true, ..Case::default() });
}

#[test]
fn with_student_weights() {
    same_on_any_number_of_ranks::<f32>(Case { student: true, extras: true, ..Case::default() });
}

#[test]
fn with_rows_that_differ_in_noise() {
    let case = Case { loud: true, ..Case::default() };
    let folder = tempfile::tempdir().unwrap();
    run_fit::<f32>(&settings(folder.path(), case), &folder.path().join("run"), 2, u64::MAX);
    let reference = Reference::read(&folder.path().join("run").join(NOISE_REFERENCE)).unwrap();
    assert_eq!(reference.row_factors.len(), ROWS, "{:?}", reference.findings);
    same_on_any_number_of_ranks::<f32>(Case { extras: true, ..case });
}

#[test]
fn with_missing_cells() {
    same_on_any_number_of_ranks::<f32>(Case { holes: true, ..Case::default() });
}

#[test]
fn with_a_mask_and_missing_cells() {
    same_on_any_number_of_ranks::<f64>(Case { holes: true, mask: true, ..Case::default() });
    same_on_any_number_of_ranks::<f32>(Case { holes: true, mask: true, student: true, ..Case::default() });
}

/// A folder that another process has is refused on every rank, and none waits for the others.
#[test]
fn ranks_learn_that_a_folder_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let held = Held::for_new(&out, issfa::run::folder::Output::Run, false, &[]).unwrap();
    let refusals = Local::run(3, |comm| {
        let rows = Rows::from_values(vec![0.5f32; 60], &[6]).unwrap();
        let request = Request::new(rows, Settings { sweeps: 3, ..Settings::default() }.check().unwrap());
        let request = Request { ranks: Ranks::together(comm), ..request };
        Session::new(request, Some(&out)).err().expect("it is refused").to_string()
    });
    let process = format!("is in use by process {}", std::process::id());
    assert!(refusals.iter().all(|refusal| refusal.contains(&process)), "{refusals:?}");
    drop(held);
    assert!(!out.exists(), "nothing was made");
}

#[test]
fn chains_that_are_to_settle_have_the_same_looks_however_they_are_run() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let settings = Settings {
        chains: 2,
        sweeps: 650,
        until: Until::Settled,
        burn_in: Some(20),
        checkpoint_every: "0.1s".into(),
        ..settings(folder.path(), Case { extras: true, ..Case::default() })
    };
    run_fit::<f32>(&settings, &place("whole"), 1, u64::MAX);
    let run = Run::open(&place("whole")).unwrap();
    assert_eq!(run.record.window, Some(Window { burn_in: 400, sweeps: 650 }), "not settled after 200, and after 400");
    let fitted = Fitted::open(&place("whole")).unwrap();
    assert_eq!(fitted.summary().n_kept, 2 * 125, "the first 400 sweeps of both chains are left out");
    assert!(fitted.trace().len() == 2 * 650);
    run_fit::<f32>(&settings, &place("groups"), 2, u64::MAX);
    assert_same(&place("whole"), &place("groups"), "two groups");
    // In the first chain, in the second window of the first chain, and in that of the second.
    for (n_sweeps, size) in [(120, 3), (430, 1), (700, 2)] {
        let name = place(&format!("stopped after {n_sweeps}"));
        run_fit::<f32>(&Settings { chains: 2, ..settings.clone() }, &name, 1, n_sweeps);
        run_resume(&name, size);
        assert_same(&place("whole"), &name, &format!("stopped after {n_sweeps} sweeps"));
    }
}

#[test]
fn chains_side_by_side_are_those_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { chains: 3, ..settings(folder.path(), Case { extras: true, ..Case::default() }) };
    for n_threads in [1, 2, 4] {
        let place = folder.path().join(n_threads.to_string());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| {
            let request = Request::new(Rows::open(&settings.input).unwrap(), settings.clone().check().unwrap());
            let mut session = Session::new(request, Some(&place)).unwrap();
            assert_eq!(session.run(&mut Quiet { n_left: u64::MAX }).unwrap(), Ending::Finished);
        });
        assert_same(&folder.path().join("1"), &place, &format!("{n_threads} threads"));
    }
}
