//! NIfTI images through the real binary.

mod common;
use common::Bench;

use issfa::data::nifti::{Header, write_nifti};
use std::path::Path;

const SHORT: &str = "--sweeps 6 --quiet";

/// A header written byte by byte: float32, millimetres and seconds, an sform that begins at (-10, `y`, -30).
fn header(dim: [i16; 5], y: f32) -> Vec<u8> {
    let mut bytes = vec![0; 352];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    put(0, &348i32.to_le_bytes());
    put(40, &dim.map(i16::to_le_bytes).concat());
    put(70, &[16, 0, 32, 0]);
    put(76, &floats(&[1.0, 2.0, 2.0, 3.0, 1.5]));
    put(108, &floats(&[352.0, 1.0, 0.0]));
    put(123, &[2 | 8]);
    put(254, &4i16.to_le_bytes());
    put(280, &floats(&[-2.0, 0.0, 0.0, -10.0, 0.0, 2.0, 0.0, y, 0.0, 0.0, 3.0, -30.0]));
    put(344, b"n+1\0");
    bytes
}

/// A value for every voxel and volume that is smooth in space and changes with time.
fn value(x: usize, y: usize, z: usize, t: usize) -> f32 {
    let (place, time) = ((x as f32 / 2.0 + y as f32 / 3.0 + z as f32).sin(), (t as f32 * 1.3).cos());
    place * time + 0.1 * ((x * 31 + y * 17 + z * 7 + t * 3) as f32).sin()
}

const GRID: [usize; 3] = [5, 4, 3];
const VOLUMES: usize = 12;

/// The volumes in the file's order, x fastest.
fn stored(volumes: std::ops::Range<usize>) -> Vec<u8> {
    let [nx, ny, nz] = GRID;
    let mut bytes = Vec::new();
    for t in volumes {
        for z in 0..nz {
            for y in 0..ny {
                bytes.extend((0..nx).flat_map(|x| value(x, y, z, t).to_le_bytes()));
            }
        }
    }
    bytes
}

fn image(bench: &Bench, name: &str, y: f32) {
    let header = header([4, 5, 4, 3, VOLUMES as i16], y);
    bench.write(name, [header, stored(0..VOLUMES)].concat());
}

/// The same as an array, z fastest.
fn array(bench: &Bench, name: &str) {
    let [nx, ny, nz] = GRID;
    let mut values = Vec::new();
    for t in 0..VOLUMES {
        for x in 0..nx {
            for y in 0..ny {
                values.extend((0..nz).map(|z| f64::from(value(x, y, z, t))));
            }
        }
    }
    bench.npy(name, &[VOLUMES, nx, ny, nz], &values);
}

/// Through our own writer, since the tests have no compressor.
fn compress(bench: &Bench, plain: &str, name: &str) {
    let source = issfa::data::read::open(&bench.path(plain)).unwrap();
    let like = source.space().unwrap();
    let volumes = (0..source.n_rows()).map(|row| {
        let mut volume = vec![0.0; source.n_sites()];
        source.read_rows(row, &mut volume).unwrap();
        volume.iter().map(|value| *value as f32).collect()
    });
    write_nifti(&bench.path(name), like.grid, source.n_rows(), like, 1.5, volumes).unwrap();
}

#[test]
fn images_and_arrays_are_the_same_data() {
    let bench = Bench::empty();
    image(&bench, "sub.nii", -20.0);
    compress(&bench, "sub.nii", "sub.nii.gz");
    array(&bench, "sub.npy");
    assert_eq!(bench.bytes("sub.nii.gz")[..2], [0x1f, 0x8b]);
    for (input, run) in [("sub.nii", "plain"), ("sub.nii.gz", "run"), ("sub.npy", "array")] {
        // Images are centred by site unless told otherwise, arrays are not.
        let center = if run == "array" { "--center site" } else { "" };
        bench.ok(&format!("fit {input} {SHORT} {center} --out {run}"));
        bench.ok(&format!("summary {run}"));
    }
    assert_eq!(bench.trace("run"), bench.trace("array"));
    assert_eq!(bench.trace("plain"), bench.trace("array"));
    assert_eq!(bench.bytes("run/features.npy"), bench.bytes("array/features.npy"));
    bench.ok("transform run sub.nii --out new --quiet");
    assert!(bench.path("new/reconstruction_sub.nii.gz").is_file());
    image(&bench, "moved.nii", -25.0);
    let refused = bench.fails(2, "transform run moved.nii --out no");
    assert!(refused.contains("-25") && refused.contains("-20") && !bench.path("no").exists(), "{refused}");
    bench.ok("evaluate run --data sub.nii.gz --hide 0.2 --json");
    bench.ok(&format!("plan sub.nii.gz {SHORT}"));
    bench.ok("resume run --sweeps +3 --quiet");
}

#[test]
fn files_of_one_volume_are_one_run() {
    let bench = Bench::empty();
    image(&bench, "sub.nii", -20.0);
    for t in 0..VOLUMES {
        bench.write(&format!("vol_{t}.nii"), [header([3, 5, 4, 3, 1], -20.0), stored(t..t + 1)].concat());
    }
    bench.ok(&format!("fit sub.nii {SHORT} --center site --out whole"));
    bench.ok(&format!("fit \"vol_*.nii\" {SHORT} --center site --out series"));
    assert_eq!(bench.trace("whole"), bench.trace("series"));
    let config = String::from_utf8(bench.bytes("series/config.toml")).unwrap();
    let places: Vec<_> = ["vol_0.nii", "vol_2.nii", "vol_10.nii"].iter().map(|name| config.find(name)).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "the files themselves, in natural order: {places:?}"
    );
    bench.ok("resume series --sweeps +3 --quiet");
    bench.ok("transform series \"vol_?.nii\" --out new --quiet");
    bench.ok("evaluate series --data \"vol_1*.nii\" --hide 0.2 --json");
    bench.ok(&format!("plan \"vol_*.nii\" {SHORT}"));
    let error = bench.fails(2, &format!("fit vol_1.nii sub.nii {SHORT} --out other"));
    assert!(error.contains("vol_1.nii: is a 3-D image") && error.contains("sub.nii"), "{error}");
    let error = bench.fails(2, &format!("fit \"sub-*.nii.gz\" {SHORT} --out other"));
    assert!(error.contains("sub-*.nii.gz: no file matches"), "{error}");
    for command in ["transform series \"x*.nii\" --out new2", "evaluate series --data \"x*.nii\"", "plan \"x*.nii\""] {
        assert!(bench.fails(2, command).contains("x*.nii: no file matches"));
    }
    assert!(!bench.path("other").exists());
}

#[test]
fn images_in_other_places_are_refused() {
    let bench = Bench::empty();
    image(&bench, "a.nii", -20.0);
    image(&bench, "b.nii", -20.0);
    image(&bench, "shifted.nii", -23.5);
    bench.ok(&format!("fit a.nii b.nii {SHORT} --out run"));
    let error = bench.fails(2, &format!("fit a.nii shifted.nii {SHORT} --out other"));
    assert!(error.contains("shifted.nii") && error.contains("a.nii"), "{error}");
    assert!(error.contains("-23.5000") && error.contains("-20.0000") && error.lines().count() >= 8, "{error}");
    assert!(!bench.path("other").exists());
}

#[test]
fn flat_images_work() {
    let bench = Bench::empty();
    let mut bytes = header([4, 20, 3, 1, 6], 0.0);
    bytes.extend((0..360).flat_map(|at| (at as f32).sin().to_le_bytes()));
    bench.write("flat.nii", bytes);
    bench.ok(&format!("fit flat.nii {SHORT} --out run"));
    bench.ok("summary run");
}

#[test]
fn malformed_images_are_named() {
    let bench = Bench::empty();
    let good = [header([4, 5, 4, 3, VOLUMES as i16], 0.0), stored(0..VOLUMES)].concat();
    let with = |at: usize, field: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + field.len()].copy_from_slice(field);
        bytes
    };
    let mut garbled = with(108, &368f32.to_le_bytes());
    garbled.splice(348..352, [[1; 4].as_slice(), &[255; 16]].concat());
    for (bytes, words) in [
        (vec![], "empty"),
        (good[..200].to_vec(), "cut short"),
        (good[..1000].to_vec(), "cut short"),
        (with(0, &540i32.to_le_bytes()), "NIfTI-2"),
        (with(344, b"ni1\0"), ".hdr/.img"),
        (with(40, &[9, 0]), "must be 1 to 7"),
        (with(44, &(-4i16).to_le_bytes()), "length -4"),
        (with(42, &[255, 127, 255, 127, 255, 127, 255, 127]), "32767x32767x32767"),
        (with(70, &[32, 0]), "complex"),
        (with(108, &f32::NAN.to_le_bytes()), "vox_offset"),
        (with(108, &1e30f32.to_le_bytes()), "vox_offset"),
        (with(108, &1e6f32.to_le_bytes()), "cut short"),
        (garbled, "extension at byte 352 says it has -1 bytes"),
    ] {
        bench.write("bad.nii", bytes);
        let error = bench.fails(2, &format!("fit bad.nii {SHORT} --out run"));
        assert!(error.contains("bad.nii") && error.contains(words), "{words}: {error}");
    }
    bench.write("plain.nii.gz", &good);
    assert!(bench.fails(2, "fit plain.nii.gz --out run").contains("not compressed"));
    image(&bench, "sub.nii", 0.0);
    compress(&bench, "sub.nii", "sub.nii.gz");
    let whole = bench.bytes("sub.nii.gz");
    bench.write("cut.nii.gz", &whole[..whole.len() * 2 / 3]);
    let error = bench.fails(2, &format!("fit cut.nii.gz {SHORT} --out run"));
    assert!(error.contains("cut.nii.gz") && error.contains("within row"), "{error}");
    bench.write("pair.img", "x");
    assert!(bench.fails(2, "fit pair.img --out run").contains("nibabel"));
    assert!(!bench.path("run").exists());
    assert!(Header::parse(Path::new("good.nii"), &good).is_ok());
}

#[test]
fn features_are_drawn_over_a_background() {
    let bench = Bench::empty();
    image(&bench, "a.nii", -20.0);
    image(&bench, "b.nii", -20.0);
    array(&bench, "array.npy");
    bench.write("anatomy.nii", [header([3, 5, 4, 3, 1], -20.0), stored(0..1)].concat());
    let refused =
        |background: &str| bench.fails(2, &format!("fit a.nii b.nii {SHORT} --background {background} --out run"));
    assert!(refused("nowhere.nii").contains("nowhere.nii"));
    assert!(refused("array.npy").contains("is not an image"));
    assert!(!bench.path("run").exists(), "a wrong background is found out before the fit");
    bench.ok(&format!("fit a.nii b.nii {SHORT} --background anatomy.nii --out run"));
    let figures = || -> Vec<String> {
        let names = std::fs::read_dir(bench.path("run/figures")).unwrap();
        let mut names: Vec<String> = names.map(|name| name.unwrap().file_name().to_string_lossy().into()).collect();
        names.retain(|name| name.starts_with("feature_") && name.ends_with(".png"));
        names.sort();
        names
    };
    assert!(bench.path("run/figures/synchrony.png").is_file() && !figures().is_empty());
    let table = String::from_utf8(bench.bytes("run/features.tsv")).unwrap();
    let ids: Vec<&str> = table.lines().skip(1).map(|line| line.split('\t').next().unwrap()).collect();
    bench.ok("report run --features all --quiet");
    assert_eq!(figures().len(), ids.len());
    bench.ok(&format!("report run --features {} --quiet", ids[0]));
    assert_eq!(figures(), [format!("feature_{}.png", ids[0])]);
    assert!(bench.fails(2, "report run --features 99999").contains("99999"));
    assert!(bench.fails(2, "report run --features some").contains("--features = some"));
}

/// Merged runs have their results as images too, the same as those of each run.
#[test]
fn merged_runs_have_images() {
    let bench = Bench::empty();
    image(&bench, "a.nii", -20.0);
    image(&bench, "b.nii", -20.0);
    for seed in [1, 2] {
        bench.ok(&format!("fit a.nii b.nii {SHORT} --seed {seed} --reconstruct --melodic --out run{seed}"));
    }
    bench.ok("merge run1 run2 --out both --quiet");
    for (merged, run) in [("both/chain-1", "run1"), ("both/chain-2", "run2")] {
        for name in [
            "features.nii.gz",
            "features_sd.nii.gz",
            "features_exceedance.nii.gz",
            "features_thresholded.nii.gz",
            "melodic_IC.nii.gz",
            "melodic_mix",
            "reconstruction_a.nii.gz",
            "reconstruction_b.nii.gz",
            "weights_a.tsv",
            "activation_b.tsv",
            "synchrony.tsv",
        ] {
            assert!(
                bench.bytes(&format!("{merged}/{name}")) == bench.bytes(&format!("{run}/{name}")),
                "{merged}/{name}"
            );
        }
    }
    // Denoised by both chains, which kept as many sweeps: the mean of the two.
    let values = |folder: &str| {
        let bytes = bench.bytes(&format!("{folder}/reconstruction.npy"));
        let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        bytes[start..].chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect::<Vec<f32>>()
    };
    let [both, one, two] = ["both", "both/chain-1", "both/chain-2"].map(values);
    assert!(!both.is_empty() && both.len() == one.len() && one != two);
    for ((mean, one), two) in both.iter().zip(&one).zip(&two) {
        assert!((mean - 0.5 * (one + two)).abs() <= 1e-3 * mean.abs().max(1.0), "{mean} {one} {two}");
    }
    for name in ["mask.nii.gz", "mean.nii.gz"] {
        assert!(bench.bytes(&format!("both/{name}")) == bench.bytes(&format!("run1/{name}")), "{name}");
    }
    assert!(bench.path("both/figures/synchrony.png").is_file());
    for run in ["run1", "run2", "both"] {
        bench.ok(&format!("resume {run} --sweeps +3 --quiet"));
    }
    for name in ["features.nii.gz", "reconstruction_b.nii.gz", "synchrony.tsv"] {
        assert!(bench.bytes(&format!("both/chain-2/{name}")) == bench.bytes(&format!("run2/{name}")), "{name}");
    }
}

/// The values of an image, volume by volume.
fn volumes(bench: &Bench, name: &str) -> Vec<Vec<f64>> {
    let source = issfa::data::read::open(&bench.path(name)).unwrap();
    let volume = |row: usize| {
        let mut values = vec![0.0; source.n_sites()];
        source.read_rows(row, &mut values).unwrap();
        values
    };
    (0..source.n_rows()).map(volume).collect()
}

fn cells(table: &str) -> Vec<Vec<f64>> {
    let line = |line: &str| line.split('\t').map(|cell| cell.parse().unwrap()).collect();
    table.lines().skip(1).map(line).collect()
}

#[test]
fn peaks_lie_where_features_are_largest() {
    let bench = Bench::empty();
    image(&bench, "bold.nii", -20.0);
    bench.ok("fit bold.nii --noise white --sweeps 40 --seed 1 --exceed 1.2 --quiet --out run");
    let features = volumes(&bench, "run/features.nii.gz");
    assert!(!features.is_empty(), "something is found");
    let table = bench.ok("peaks run --min-size 1 --maps maps.nii.gz");
    assert!(table.starts_with("feature\tcluster\tx\ty\tz\tvalue\tz_score\tn_voxels\tvolume_mm3\n"), "{table}");
    let peaks = cells(&table);
    let (maps, thresholded) = (volumes(&bench, "maps.nii.gz"), volumes(&bench, "run/features_thresholded.nii.gz"));
    assert_eq!(maps, thresholded, "clusters of any size are all of the thresholded map");
    let ids = String::from_utf8(bench.bytes("run/features.tsv")).unwrap();
    for ((feature, line), map) in features.iter().zip(ids.lines().skip(1)).zip(&maps) {
        let id: f64 = line.split('\t').next().unwrap().parse().unwrap();
        let own: Vec<&Vec<f64>> = peaks.iter().filter(|peak| peak[0] == id).collect();
        let n_voxels: f64 = own.iter().map(|peak| peak[7]).sum();
        assert_eq!(n_voxels, map.iter().filter(|x| **x != 0.0).count() as f64);
        for peak in &own {
            // The header's affine, turned round.
            let voxel = [(-10.0 - peak[2]) / 2.0, (peak[3] + 20.0) / 2.0, (peak[4] + 30.0) / 3.0].map(|x| x as usize);
            let value = feature[(voxel[0] * GRID[1] + voxel[1]) * GRID[2] + voxel[2]];
            assert!((value - peak[5]).abs() < 1e-3, "{peak:?} {value}");
            assert_eq!(peak[8], 12.0 * peak[7]);
        }
        let largest = own.iter().map(|peak| peak[5].abs()).fold(0.0, f64::max);
        assert!((largest - feature.iter().fold(0.0, |most: f64, x| most.max(x.abs()))).abs() < 1e-3);
    }
    assert!(bench.bytes("run/peaks.tsv").starts_with(b"feature\tcluster\t"));
    let all = cells(&bench.ok("peaks run --min-size 1 --z 0.000001"));
    let few = cells(&bench.ok("peaks run --min-size 1 --z 2"));
    let n = |peaks: &[Vec<f64>]| peaks.iter().map(|peak| peak[7]).sum::<f64>();
    assert!(n(&all) > n(&few), "{all:?} {few:?}");
    assert!(few.iter().all(|peak| peak[6].abs() >= 2.0 - 0.005), "{few:?}");

    assert!(bench.fails(2, "peaks run --z -1").contains("--z"));
    let told = bench.fails(2, "peaks run --maps peaks.png");
    assert!(told.contains("--maps = peaks.png") && told.contains(".nii.gz"), "{told}");
    let told = bench.fails(2, "peaks run --out ./same.nii --maps same.nii");
    assert!(told.contains("--out, --maps") && told.contains("same.nii"), "{told}");
    assert!(!bench.path("peaks.png").exists() && !bench.path("same.nii").exists());
    assert!(bench.fails(2, "peaks run --maps maps.nii.gz").contains("--overwrite"));
    array(&bench, "bold.npy");
    bench.ok("fit bold.npy --noise white --sweeps 8 --quiet --out flat");
    assert!(bench.fails(2, "peaks flat").contains("was not fitted to images"));
    bench.ok("report run --quiet");
}

#[test]
fn features_are_matched_with_maps() {
    let bench = Bench::empty();
    image(&bench, "bold.nii", -20.0);
    bench.ok("fit bold.nii --noise white --sweeps 40 --seed 1 --quiet --out run");
    let matches = cells(&bench.ok("match run run/features.nii.gz"));
    assert!(!matches.is_empty());
    for (at, line) in matches.iter().enumerate() {
        assert_eq!(line[1], (at + 1) as f64, "each is most like itself");
        assert!(line[2] > 0.9999 && line[3] > 0.9999, "{line:?}");
    }
    assert_eq!(bench.json("match run run/features.npy --json").as_array().unwrap().len(), matches.len());
    // A map turned round, and not centred, is as much alike.
    let features = volumes(&bench, "run/features.nii.gz");
    bench.npy("turned.npy", &[1, 5, 4, 3], &features[0].iter().map(|x| 7.0 - 3.0 * x).collect::<Vec<_>>());
    assert!((cells(&bench.ok("match run turned.npy"))[0][2] + 1.0).abs() < 1e-3);
    bench.ok("match run turned.npy --out table.tsv");
    assert!(bench.fails(2, "match run turned.npy --out table.tsv").contains("--overwrite"));

    image(&bench, "elsewhere.nii", -22.0);
    assert!(bench.fails(2, "match run elsewhere.nii").contains("do not lie where"));
    bench.npy("other.npy", &[2, 3, 4, 5], &[1.0; 120]);
    let error = bench.fails(2, "match run other.npy");
    assert!(error.contains("3x4x5") && error.contains("5x4x3") && error.contains("resample_to_img"), "{error}");
    assert!(bench.fails(2, "match run nowhere.nii.gz").contains("nowhere.nii.gz"));
    bench.write("broken.nii.gz", "no image");
    assert!(bench.fails(2, "match run broken.nii.gz").contains("broken.nii.gz"));
}
