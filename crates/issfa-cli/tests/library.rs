//! The library on arrays in memory and the command on the same data in files: the same bits.

#[path = "../../issfa/examples/fit_array.rs"]
mod fit_array;

use fit_array::{CONFOUNDS, GRID, RUN_ROWS};
use issfa::data::read::npy::read_npy_f32;
use issfa::data::write::{write_npy_f32, write_npy_f64};
use issfa::fit::{Ending, Observer, Session, Stop};
use issfa::new_rows::transform::{NewConfounds, NewRowSettings};
use issfa::run::trace::TraceRow;
use issfa::{Fitted, Settings};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn bits(values: &[f32]) -> Vec<u32> {
    // NaN is NaN, whatever its payload.
    values.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Runs the command to its end.
fn command(arguments: &[String]) {
    let program = assert_cmd::cargo::cargo_bin!("issfa");
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn without_seconds(trace: &[TraceRow]) -> Vec<TraceRow> {
    trace.iter().map(|row| TraceRow { seconds: 0.0, ..row.clone() }).collect()
}

fn assert_same(one: &Fitted, other: &Fitted) {
    assert_eq!(without_seconds(&one.trace()), without_seconds(&other.trace()));
    let arrays = |fitted: &Fitted| {
        [fitted.features(), fitted.features_sd(), fitted.weights(), fitted.activation()]
            .map(|array| (array.shape.clone(), bits(&array.values)))
    };
    assert_eq!(arrays(one), arrays(other));
    assert!(!one.features().values.is_empty(), "something was found");
}

/// Writes the example's data as files and gives the options that say the same as its settings.
fn files(folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let (n_sites, values) = (GRID[0] * GRID[1], fit_array::values());
    let mut options = Vec::new();
    let mut first = 0;
    let mut tables = vec!["--confounds".to_string()];
    for (name, n_rows) in ["first", "second"].iter().zip(RUN_ROWS) {
        let part = &values[first * n_sites..(first + n_rows) * n_sites];
        write_npy_f32(&folder.join(format!("{name}.npy")), &[n_rows, GRID[0], GRID[1]], part).unwrap();
        let line = |row: usize| fit_array::confounds(row).map(|x| format!("{x:?}")).join(",");
        let lines: Vec<String> = (first..first + n_rows).map(line).collect();
        fs::write(folder.join(format!("{name}.csv")), format!("{}\n{}\n", CONFOUNDS.join(","), lines.join("\n")))
            .unwrap();
        options.push(path(&format!("{name}.npy")));
        tables.push(path(&format!("{name}.csv")));
        first += n_rows;
    }
    let mask: Vec<f64> = fit_array::mask().iter().map(|inside| f64::from(u8::from(*inside))).collect();
    write_npy_f64(&folder.join("mask.npy"), &GRID, &mask).unwrap();
    options.extend(tables);
    let rest = "--sweeps 60 --seed 3 --center both --detrend linear --missing impute --reconstruct --mask";
    options.extend(rest.split(' ').map(String::from));
    options.push(path("mask.npy"));
    options
}

#[test]
fn arrays_give_the_bits_that_files_do() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    command(&[&["fit".to_string()], &files(folder.path())[..], &["--out".into(), out.display().to_string()]].concat());
    let (of_files, of_array) = (Fitted::open(&out).unwrap(), fit_array::fitted().unwrap());
    assert_same(&of_files, &of_array);
    let (shape, denoised) = read_npy_f32(&out.join("reconstruction.npy")).unwrap();
    let own = of_array.reconstruction().unwrap();
    assert_eq!((shape, bits(&denoised)), (own.shape.clone(), bits(&own.values)));
    // Saved and opened again it is the same, and takes new rows as the run of the command does.
    let saved = folder.path().join("saved");
    of_array.save(&saved).unwrap();
    let again = Fitted::open(&saved).unwrap();
    assert_same(&again, &of_array);
    let new = || {
        let table = issfa::Confounds::from_values(&CONFOUNDS, (0..5).flat_map(fit_array::confounds).collect()).unwrap();
        let values = fit_array::values()[..5 * GRID[0] * GRID[1]].to_vec();
        issfa::Rows::from_values(values, &GRID).unwrap().with_confounds(vec![table])
    };
    let results = [&of_files, &of_array, &again].map(|fitted| {
        let new = fitted.transform(new()).unwrap();
        [new.weights, new.activation, new.reconstruction].map(|array| bits(&array.values))
    });
    assert!(results[0] == results[1] && results[1] == results[2]);
    command(&["summary".into(), saved.display().to_string()]);
    assert_eq!(of_array.summary().n_persistent, of_files.summary().n_persistent);
}

/// Asks for a stop after some sweeps, as another thread would.
struct After(u64, Stop);

impl Observer for After {
    fn sweep(&mut self, row: &TraceRow, _: u64, _: Duration) {
        if row.sweep == self.0 {
            self.1.stop();
        }
    }
    fn wants_stop(&self) -> bool {
        self.1.wants_stop()
    }
    fn note(&mut self, _: &str) {}
}

#[test]
fn a_fit_that_was_stopped_goes_on_as_if_it_had_not_been() {
    let whole = fit_array::fitted().unwrap();
    let mut session = Session::in_memory(fit_array::rows().unwrap(), &fit_array::settings()).unwrap();
    let stop = Stop::default();
    assert_eq!(session.run(&mut After(47, stop.clone())).unwrap(), Ending::Stopped);
    assert_eq!(session.fitted().unwrap().unwrap().trace().len(), 47);
    stop.clear();
    assert_eq!(session.run(&mut After(u64::MAX, stop)).unwrap(), Ending::Finished);
    assert_same(&session.fitted().unwrap().unwrap(), &whole);
}

#[test]
fn a_longer_fit_is_the_short_one_gone_on_with() {
    let settings = Settings { burn_in: Some(40), thin: Some(1), ..fit_array::settings() };
    let long = issfa::fit(fit_array::rows().unwrap(), &settings).unwrap();
    let short = Settings { sweeps: 50, ..settings };
    let short = issfa::fit(fit_array::rows().unwrap(), &short).unwrap();
    let mut session = Session::go_on(&short, fit_array::rows().unwrap(), 60).unwrap();
    session.run(&mut Stop::default()).unwrap();
    assert_same(&session.fitted().unwrap().unwrap(), &long);
    // Other rows are refused.
    let mut values = fit_array::values();
    values[5] += 1.0;
    let rows = issfa::Rows::from_values(values, &GRID).unwrap();
    let error = Session::go_on(&short, rows, 60).err().unwrap().to_string();
    assert!(error.contains("belongs to other data"), "{error}");
}

#[test]
fn a_stop_while_rows_are_read_writes_nothing() {
    let stop = Stop::default();
    stop.stop();
    let mut request = issfa::fit::Request::new(fit_array::rows().unwrap(), fit_array::settings().check().unwrap());
    request.watch = Some(stop.watch());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    assert!(matches!(Session::new(request, Some(&out)), Err(issfa::Error::Stopped)));
    assert!(!out.exists());
}

#[test]
fn chains_that_a_stop_did_not_reach_are_kept() {
    let settings = Settings { chains: 2, sweeps: 8, burn_in: Some(4), thin: Some(1), ..fit_array::settings() };
    let short = issfa::fit(fit_array::rows().unwrap(), &settings).unwrap();
    let mut session = Session::go_on(&short, fit_array::rows().unwrap(), 12).unwrap();
    assert_same(&session.fitted().unwrap().unwrap(), &short);
    let stop = Stop::default();
    // On one thread chains run one after the other.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let ending = pool.install(|| session.run(&mut After(10, stop.clone())));
    assert_eq!(ending.unwrap(), Ending::Stopped);
    assert_eq!(session.fitted().unwrap().unwrap().trace().len(), 10 + 8);
    stop.clear();
    assert_eq!(session.run(&mut After(u64::MAX, stop)).unwrap(), Ending::Finished);
    let long = issfa::fit(fit_array::rows().unwrap(), &Settings { sweeps: 12, ..settings }).unwrap();
    assert_same(&session.fitted().unwrap().unwrap(), &long);
}

#[test]
fn what_came_along_with_rows_is_checked() {
    let rows = || issfa::Rows::from_values(fit_array::values(), &GRID).unwrap();
    let [first, second] = RUN_ROWS;
    for names in [["a", "a"], ["a/b", "c"], ["", "c"]] {
        assert!(rows().with_runs(&[(names[0], first), (names[1], second)]).is_err(), "{names:?}");
    }
    assert!(rows().with_runs(&[("a", first)]).is_err());
    assert!(rows().with_mask(&[true; 3]).is_err());
    let table = |names: &[&str], n_rows: usize| {
        let values = (0..n_rows).flat_map(|row| names.iter().map(move |name| (row + name.len()) as f64)).collect();
        issfa::Confounds::from_values(names, values).unwrap()
    };
    let runs = rows().with_runs(&[("a", first), ("b", second)]).unwrap();
    let other = runs.with_confounds(vec![table(&["x", "yy"], first), table(&["x", "z"], second)]);
    let error = issfa::fit(other, &fit_array::settings()).err().unwrap().to_string();
    assert!(error.contains("the confounds of run 2 are x, z, but x, yy are expected"), "{error}");
}

#[test]
fn rows_taken_apart_depend_neither_on_others_nor_on_their_order() {
    let fitted = fit_array::fitted().unwrap();
    let n_sites = GRID[0] * GRID[1];
    let how = NewRowSettings { apart: true, confounds: NewConfounds::Without, ..NewRowSettings::default() };
    let mut values = fit_array::values()[..8 * n_sites].to_vec();
    values[3 * n_sites + 5] = f32::NAN;
    let found = |rows: &[usize]| {
        let own: Vec<f32> =
            rows.iter().flat_map(|row| values[row * n_sites..(row + 1) * n_sites].iter().copied()).collect();
        let rows = issfa::Rows::from_values(own, &GRID).unwrap();
        fitted.transform_with(&rows, &how).unwrap()
    };
    let all = found(&[0, 1, 2, 3, 4, 5, 6, 7]);
    for rows in [&[7, 6, 5, 4, 3, 2, 1, 0][..], &[3], &[5, 3], &[2, 2]] {
        let some = found(rows);
        for (at, &row) in rows.iter().enumerate() {
            assert_eq!(bits(some.weights.row(at)), bits(all.weights.row(row)), "{rows:?}");
            assert_eq!(bits(some.reconstruction.row(at)), bits(all.reconstruction.row(row)), "{rows:?}");
        }
    }
}

#[test]
fn a_fit_can_do_without_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let settings = Settings { chains: 2, sweeps: 12, burn_in: Some(4), thin: Some(1), ..fit_array::settings() };
    let request = issfa::fit::Request::new(fit_array::rows().unwrap(), settings.check().unwrap());
    let mut session = Session::new(request, Some(&out)).unwrap();
    session.run(&mut Stop::default()).unwrap();
    let opened = Fitted::open(&out).unwrap();
    let (own, denoised) = (opened.in_memory().unwrap(), opened.denoised().unwrap().unwrap());
    let site = fit_array::mask().iter().position(|inside| *inside).unwrap();
    let draws = opened.aligned_draws(&[(0, site), (7, site)]).unwrap();
    drop(session);
    fs::remove_dir_all(&out).unwrap();
    assert_same(&own, &opened);
    assert_eq!(bits(&own.reconstruction().unwrap().values), bits(&denoised.values));
    assert_eq!(draws.len(), 2 * 8);
    let again = own.aligned_draws(&[(0, site), (7, site)]).unwrap();
    for (one, other) in draws.iter().zip(&again) {
        assert_eq!((one.chain, one.sweep, &one.present), (other.chain, other.sweep, &other.present));
        assert_eq!((bits(&one.features.values), &one.probes), (bits(&other.features.values), &other.probes));
    }
    let mut longer = Session::go_on(&own, fit_array::rows().unwrap(), 14).unwrap();
    longer.run(&mut Stop::default()).unwrap();
    let settings = Settings { sweeps: 14, ..own.settings().clone() };
    assert_same(&longer.fitted().unwrap().unwrap(), &issfa::fit(fit_array::rows().unwrap(), &settings).unwrap());
}

#[test]
fn the_command_goes_on_with_a_fit_of_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let values: Vec<f32> = fit_array::values().iter().map(|x| if x.is_nan() { 0.0 } else { *x }).collect();
    let rows = || {
        let [first, second] = RUN_ROWS;
        issfa::Rows::from_values(values.clone(), &GRID).unwrap().with_runs(&[("a", first), ("b", second)]).unwrap()
    };
    let settings = Settings { sweeps: 8, burn_in: Some(4), thin: Some(1), ..Settings::default() };
    issfa::fit(rows(), &settings).unwrap().save(&folder.path().join("run")).unwrap();
    write_npy_f32(&folder.path().join("x.npy"), &[RUN_ROWS[0] + RUN_ROWS[1], GRID[0], GRID[1]], &values).unwrap();
    command(&["resume", &path("run"), &path("x.npy"), "--sweeps", "12"].map(String::from));
    let longer = issfa::fit(rows(), &Settings { sweeps: 12, ..settings }).unwrap();
    assert_same(&Fitted::open(&folder.path().join("run")).unwrap(), &longer);
}
