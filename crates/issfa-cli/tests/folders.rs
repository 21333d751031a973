//! Output folders that nothing can spoil: one process at a time, the old results until there are new ones, no links followed.
#![cfg(unix)]

mod common;
use common::Bench;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FIT: &str = "fit sim/observations.npy --grid 12x10 --noise white --burn-in 10 --thin 2 --keep-draws 5 --seed 9 --reconstruct --quiet";
const SHORT: &str = "--noise white --sweeps 6 --burn-in 2 --thin 1 --quiet";

/// Everything below a folder: contents of files, targets of links.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(contents(&path).into_iter().map(|(inside, bytes)| (format!("{name}/{inside}"), bytes)));
        } else if kind.is_symlink() {
            found.insert(name, fs::read_link(&path).unwrap().display().to_string().into_bytes());
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

/// Compares all that a run holds but what tells the time.
fn assert_same(bench: &Bench, one: &str, other: &str) {
    assert_eq!(bench.trace(one), bench.trace(other), "{one} {other}");
    let timeless = |run: &str| {
        let mut all = contents(&bench.path(run));
        all.retain(|name, _| !name.starts_with("figures/") && !["trace.csv", "config.toml"].contains(&name.as_str()));
        all.retain(|name, _| !["report.html", "live.json"].contains(&name.rsplit('/').next().unwrap_or(name)));
        // The header of a checkpoint knows how long everything took.
        all.retain(|name, _| !name.starts_with("checkpoint/"));
        all
    };
    let (one, other) = (timeless(one), timeless(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    one.iter().for_each(|(name, bytes)| assert!(*bytes == other[name], "{name}"));
}

/// A command at work, which ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status().unwrap().success());
    }

    fn code(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn start(bench: &Bench, arguments: &str) -> Running {
    Running(bench.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts"))
}

fn wait_for(path: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < end, "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A fit that will not end by itself, once it has kept some sweeps.
fn endless(bench: &Bench, run: &str) -> Running {
    let child = start(bench, &format!("{FIT} --sweeps 10000000 --checkpoint-every 0.1s --out {run}"));
    wait_for(&bench.path(run).join("draws/draw-000004.safetensors"));
    child
}

fn copy_folder(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_run_in_use_is_refused_and_can_be_read() {
    let bench = Bench::simulated();
    let child = endless(&bench, "run");
    let whose = format!("run is in use by process {} on ", child.0.id());
    for command in [
        "resume run".to_string(),
        format!("{FIT} --sweeps 20 --out run"),
        format!("{FIT} --sweeps 20 --out run --overwrite"),
        "report run".into(),
    ] {
        let error = bench.fails(2, &command);
        assert!(error.contains(&whose) && error.contains("--sweeps 10000000"), "{command}: {error}");
    }
    bench.ok("summary run");
    child.signal("TERM");
    assert_eq!(child.code(), Some(143));
    assert!(!bench.path("run/lock").exists());
    let sweeps: Vec<String> =
        bench.trace("run")[1..].iter().map(|line| line.split(',').nth(1).unwrap().into()).collect();
    assert!(sweeps.iter().enumerate().all(|(at, sweep)| *sweep == (at + 1).to_string()), "every sweep once");
    bench.ok("resume run --time-budget 0.1s --quiet");
}

#[test]
fn of_two_at_once_one_is_refused() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --sweeps 500 --out whole"));
    bench.ok(&format!("{FIT} --sweeps 20 --out part"));
    let mut n_refused = 0;
    for number in 0..3 {
        let [resumed, fitted] = ["resumed", "fitted"].map(|name| format!("{name}{number}"));
        copy_folder(&bench.path("part"), &bench.path(&resumed));
        let commands = [format!("resume {resumed} --sweeps 500 --quiet"), format!("{FIT} --sweeps 500 --out {fitted}")];
        for (command, run) in commands.iter().zip([resumed, fitted]) {
            let codes = [start(&bench, command), start(&bench, command)].map(Running::code);
            assert!(
                codes.contains(&Some(0)) && codes.iter().all(|code| [Some(0), Some(2)].contains(code)),
                "{codes:?}"
            );
            n_refused += codes.iter().filter(|code| **code == Some(2)).count();
            assert_same(&bench, "whole", &run);
        }
    }
    assert!(n_refused >= 4, "they ran at the same time: {n_refused} of 6 were refused");
}

#[test]
fn what_kill_9_leaves_needs_no_hand() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --sweeps 60 --out whole"));
    let child = endless(&bench, "run");
    child.kill();
    assert!(bench.path("run/lock").exists(), "it was held");
    bench.ok("resume run --time-budget 0.1s --quiet");
    assert!(!bench.path("run/lock").exists());
    // Killed before it had anything: the folder counts as empty.
    fs::create_dir_all(bench.path("early/.issfa-run-writing/draws")).unwrap();
    bench.write("early/.issfa-run-writing/config.toml", "torn");
    bench.write("early/.issfa-1-2-3.tmp", "torn");
    bench.write("early/lock", "pid = 1");
    bench.ok(&format!("{FIT} --sweeps 60 --out early"));
    assert_same(&bench, "whole", "early");
}

/// A process that is killed while new results take the place of old ones has the next one finish that.
#[test]
fn a_replacement_that_was_broken_off_is_finished() {
    let bench = Bench::simulated();
    bench.ok(&format!("{FIT} --sweeps 40 --out new"));
    bench.ok(&format!("{} --sweeps 30 --out old", FIT.replace("--seed 9", "--seed 8")));
    // Complete, but the old files are still there.
    copy_folder(&bench.path("old"), &bench.path("ready"));
    copy_folder(&bench.path("new"), &bench.path("ready/.issfa-run-ready"));
    // The old ones are gone, half of the new ones have come, config.toml is to come last.
    copy_folder(&bench.path("new"), &bench.path("moving"));
    fs::create_dir(bench.path("moving/.issfa-run-moving")).unwrap();
    for name in ["config.toml", "draws", "weights.npy"] {
        fs::rename(bench.path("moving").join(name), bench.path("moving/.issfa-run-moving").join(name)).unwrap();
    }
    for run in ["ready", "moving"] {
        bench.ok(&format!("resume {run} --quiet"));
        assert_same(&bench, "new", run);
    }
    // Not complete: the old run is what counts.
    copy_folder(&bench.path("old"), &bench.path("writing"));
    copy_folder(&bench.path("new"), &bench.path("writing/.issfa-run-writing"));
    bench.ok("resume writing --quiet");
    assert_same(&bench, "old", "writing");
}

#[test]
fn the_old_run_stays_until_there_is_a_new_one() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run"));
    fs::set_permissions(bench.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(bench.path("run"), bench.path("link")).unwrap();
    let mut values = vec![0.5; 80 * 120];
    values[77 * 120] = f64::NAN;
    bench.npy("bad.npy", &[80, 120], &values);
    let before = contents(&bench.path("run"));
    let inside = |arguments: &str| bench.command(arguments).current_dir(bench.path("run")).output().unwrap();
    for bad in ["../sim/observations.npy --grid 16x16", "../bad.npy --grid 12x10", "../none.npy"] {
        for out in [".", "../run", "../link"] {
            let failed = inside(&format!("fit {bad} {SHORT} --overwrite --out {out}"));
            assert_eq!(failed.status.code(), Some(2), "{}", String::from_utf8_lossy(&failed.stderr));
            assert!(contents(&bench.path("run")) == before, "{bad} {out}");
        }
    }
    let inode = fs::metadata(bench.path("run")).unwrap().ino();
    let mut earlier = bench.bytes("run/features.npy");
    for (seed, out) in [(5, "."), (6, "../link"), (7, "../run/")] {
        let done =
            inside(&format!("fit ../sim/observations.npy --grid 12x10 {SHORT} --seed {seed} --overwrite --out {out}"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(bench.bytes("run/features.npy") != earlier, "{out}");
        earlier = bench.bytes("run/features.npy");
        let folder = fs::metadata(bench.path("run")).unwrap();
        assert_eq!((folder.ino(), folder.mode() & 0o777), (inode, 0o700), "the folder is the same one");
    }
    assert!(fs::symlink_metadata(bench.path("link")).unwrap().is_symlink());
    bench.ok("summary link");
    // Nothing of the way there is left.
    let names: Vec<String> = contents(&bench.path("run")).into_keys().filter(|name| name.starts_with('.')).collect();
    assert!(names.is_empty() && !bench.path("run/lock").exists(), "{names:?}");
}

/// Where the machine lets us mount one: a folder that cannot be removed.
#[test]
fn a_mount_point_is_written_to_like_any_folder() {
    let bench = Bench::simulated();
    let disk = bench.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(&disk).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("no right to mount a file system here: mount points are not tested");
        return;
    }
    let fit = |more: &str| bench.run(&format!("fit sim/observations.npy {SHORT} --out disk {more}")).status.code();
    let codes = [fit("--grid 12x10"), fit("--grid 16x16 --overwrite"), fit("--grid 12x10 --seed 4 --overwrite")];
    let summary = bench.run("summary disk");
    assert!(Command::new("umount").arg(&disk).status().is_ok_and(|status| status.success()));
    assert_eq!(codes, [Some(0), Some(2), Some(0)]);
    assert!(summary.status.success());
}

#[test]
fn what_was_never_finished_is_cleared_and_blocks_nothing() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run"));
    for (name, command) in [
        ("new", "transform run sim/heldout.npy --quiet --out new"),
        ("other", "simulate --rows 30 --heldout-rows 5 --grid 6x5 --features 2 --quiet --out other"),
    ] {
        let strays = ["reconstruction.npy.tmp", "observations.npy.tmp", ".issfa-12-0-ab.tmp"];
        let stray = if name == "new" { strays[0] } else { strays[1] };
        let scatter = || [stray, strays[2]].iter().for_each(|stray| bench.write(&format!("{name}/{stray}"), "torn"));
        fs::create_dir(bench.path(name)).unwrap();
        scatter();
        bench.ok(command);
        scatter();
        assert!(bench.fails(2, command).contains("exists already"));
        bench.ok(&format!("{command} --overwrite"));
        let names = contents(&bench.path(name)).into_keys().collect::<Vec<_>>().join(" ");
        assert!(!names.contains("tmp") && !names.contains("lock"), "{names}");
    }
    for stray in ["checkpoint/state.tmp", "draws/.tmpAb12Cd", "config.toml.tmp", "figures/.issfa-1-0-2.tmp"] {
        bench.write(&format!("run/{stray}"), vec![0; 100_000]);
    }
    let before = contents(&bench.path("run")).len();
    bench.ok("resume run --sweeps +2 --quiet");
    assert!(!contents(&bench.path("run")).keys().any(|name| name.contains("tmp")));
    assert!(contents(&bench.path("run")).len() < before);
}

#[test]
fn killed_commands_leave_nothing_in_the_way() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run"));
    let simulate = "simulate --rows 30000 --heldout-rows 10 --grid 20x20 --features 3 --quiet --out big";
    let transform = "transform run big.npy --quiet --out new";
    bench.npy("big.npy", &[3000, 120], &(0..3000 * 120).map(|at| (at as f64).sin()).collect::<Vec<_>>());
    for pause in [5, 40, 120] {
        for command in [simulate, transform] {
            let child = start(&bench, &format!("{command} --overwrite"));
            std::thread::sleep(Duration::from_millis(pause));
            child.kill();
        }
        bench.ok("simulate --rows 30 --heldout-rows 5 --grid 6x5 --features 2 --quiet --out big --overwrite");
        bench.ok("transform run sim/heldout.npy --quiet --out new --overwrite");
        for folder in ["big", "new"] {
            let names = contents(&bench.path(folder)).into_keys().collect::<Vec<_>>().join(" ");
            assert!(!names.contains("tmp") && !names.contains("lock") && !names.contains(".issfa"), "{names}");
        }
    }
}

#[test]
fn inputs_are_not_deleted() {
    let bench = Bench::simulated();
    bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --reconstruct --out run"));
    bench.ok("transform run sim/heldout.npy --quiet --out new");
    symlink(bench.path("run/reconstruction.npy"), bench.path("link.npy")).unwrap();
    let before = contents(bench.folder());
    for (input, command) in [
        ("run/reconstruction.npy", format!("fit run/reconstruction.npy {SHORT} --out run --overwrite")),
        ("link.npy", format!("fit link.npy {SHORT} --out run --overwrite")),
        (
            "run/reconstruction.npy",
            format!(
                "fit sim/observations.npy --grid 12x10 --heldout run/reconstruction.npy {SHORT} --out run --overwrite"
            ),
        ),
        ("new/reconstruction.npy", "transform run new/reconstruction.npy --out new --overwrite".into()),
    ] {
        let error = bench.fails(2, &command);
        assert!(error.contains(input.split('/').next_back().unwrap()) && error.contains("--out"), "{command}: {error}");
        assert!(contents(bench.folder()) == before, "{command}");
    }
    // What somebody else put into a folder of ours is not ours.
    bench.write("run/figures/notes.txt", "mine");
    let error = bench.fails(2, &format!("fit sim/observations.npy --grid 12x10 {SHORT} --out run --overwrite"));
    assert!(error.contains("'figures/notes.txt'"), "{error}");
    assert_eq!(bench.bytes("run/figures/notes.txt"), b"mine");
}

#[test]
fn links_in_a_run_folder_are_not_followed() {
    let bench = Bench::simulated();
    for (seed, run) in [(1, "one"), (2, "two")] {
        bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --seed {seed} --out {run}"));
    }
    fs::create_dir(bench.path("elsewhere")).unwrap();
    bench.write("victim", "untouched");
    // Behind names of temporary files, old and new.
    for name in ["config.toml.tmp", "checkpoint/state.tmp", "trace.csv.tmp"] {
        symlink(bench.path("victim"), bench.path("one").join(name)).unwrap();
    }
    bench.ok("resume one --sweeps +2 --quiet");
    assert_eq!(bench.bytes("victim"), b"untouched");
    bench.ok("resume two --sweeps +2 --quiet");
    // In the place of files and folders of the run.
    let cases =
        [("trace.csv", "victim"), ("eigenvalues.csv", "victim"), ("figures", "elsewhere"), ("draws", "elsewhere")];
    for (name, target) in cases {
        copy_folder(&bench.path("one"), &bench.path("hostile"));
        let place = bench.path("hostile").join(name);
        if place.is_dir() {
            fs::remove_dir_all(&place).unwrap()
        } else {
            fs::remove_file(&place).unwrap()
        }
        symlink(bench.path(target), &place).unwrap();
        for command in ["resume hostile --sweeps +2", "report hostile", "merge hostile two --out both"] {
            let error = bench.fails(2, command);
            assert!(error.contains(&format!("hostile/{name}: is a link")), "{command}: {error}");
        }
        assert!(!bench.path("both").exists());
        // A new fit takes the place of the link, not of what lies behind it.
        bench.ok(&format!("fit sim/observations.npy --grid 12x10 {SHORT} --out hostile --overwrite"));
        assert!(!fs::symlink_metadata(&place).unwrap().is_symlink());
        assert_eq!(bench.bytes("victim"), b"untouched");
        assert_eq!(fs::read_dir(bench.path("elsewhere")).unwrap().count(), 0);
        fs::remove_dir_all(bench.path("hostile")).unwrap();
    }
    bench.ok("merge one two --out both --quiet");
}

#[test]
fn a_closed_terminal_stops_a_fit_at_a_checkpoint_unless_it_is_to_go_on() {
    // The tests themselves may be under nohup, which children would inherit.
    // SAFETY: the default action is no function of ours.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    let bench = Bench::simulated();
    let child = endless(&bench, "run");
    for _ in 0..3 {
        child.signal("HUP");
    }
    assert_eq!(child.code(), Some(129));
    let done = bench.trace("run").len() - 1;
    assert_eq!(bench.json("summary run --json")["sweeps_done"].as_u64(), Some(done as u64), "the last sweep is saved");
    assert!(bench.path("run/features.npy").is_file());
    bench.ok(&format!("{FIT} --sweeps {done} --out whole"));
    assert_eq!(bench.trace("run"), bench.trace("whole"));
    // As under nohup.
    let program = assert_cmd::cargo::cargo_bin!("issfa").display().to_string();
    let script = format!("trap '' HUP; exec {program} {FIT} --sweeps 3000 --out immune");
    let child = Running(Command::new("sh").args(["-c", &script]).current_dir(bench.folder()).spawn().unwrap());
    wait_for(&bench.path("immune/checkpoint/state.safetensors"));
    child.signal("HUP");
    assert_eq!(child.code(), Some(0));
}
