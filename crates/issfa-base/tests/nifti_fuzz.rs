//! Thousands of broken NIfTI files: no panic, and no more memory than the file's own size allows.
//!
//! Deterministic, from fixed seeds. `ISSFA_FUZZ_SECONDS=180` goes on with further seeds for that long.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use issfa_base::data::{Observations, read};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Counts the bytes that are held, and the most there were since the last look.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(held, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` and gives the most bytes it held at a time beyond what was held before.
fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = work();
    (result, MOST.load(Relaxed) - before)
}

/// Buffers, decoder and messages, whatever the file.
const ALLOWANCE: usize = 1 << 19;

/// Files in the normal suite.
const N_FILES: u64 = 4000;

/// Place, length and count of every field of the header.
const FIELDS: [(usize, usize, usize); 18] = [
    (0, 4, 1),
    (40, 2, 8),
    (68, 2, 1),
    (70, 2, 1),
    (72, 2, 1),
    (76, 4, 8),
    (108, 4, 1),
    (112, 4, 1),
    (116, 4, 1),
    (123, 1, 1),
    (252, 2, 1),
    (254, 2, 1),
    (256, 4, 3),
    (268, 4, 3),
    (280, 4, 12),
    (344, 4, 1),
    (348, 4, 1),
    (352, 4, 2),
];

/// A valid file: some type, byte order, sizes, forms and extensions.
fn valid(random: &mut ChaCha8Rng) -> Vec<u8> {
    let big_endian = random.random_bool(0.5);
    let types = [(2, 1), (4, 2), (8, 4), (16, 4), (64, 8), (256, 1), (512, 2), (768, 4), (1024, 8), (1280, 8)];
    let (datatype, size) = types[random.random_range(0..types.len())];
    let n_axes = random.random_range(1..=5);
    let lengths: Vec<i16> = (0..4).map(|axis| if axis < n_axes { random.random_range(1..=9) } else { 1 }).collect();
    let extension = if random.random_bool(0.3) { 16 * random.random_range(1..4) } else { 0 };
    let mut file = vec![0; 352 + extension];
    let mut put = |at: usize, mut bytes: Vec<u8>| {
        if big_endian {
            bytes.reverse();
        }
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    };
    put(0, 348i32.to_le_bytes().to_vec());
    for (at, length) in [n_axes as i16].iter().chain(&lengths).chain(&[1]).enumerate() {
        put(40 + 2 * at, length.to_le_bytes().to_vec());
    }
    put(70, i16::to_le_bytes(datatype).to_vec());
    put(108, ((352 + extension) as f32).to_le_bytes().to_vec());
    for at in (76..108).chain(112..120).chain(256..328).step_by(4) {
        put(at, random.random_range(-3.0f32..3.0).to_le_bytes().to_vec());
    }
    put(252, random.random_range(-1i16..3).to_le_bytes().to_vec());
    put(254, random.random_range(-1i16..3).to_le_bytes().to_vec());
    if extension > 0 {
        put(352, (extension as i32).to_le_bytes().to_vec());
        file[348] = 1;
    }
    file[344..348].copy_from_slice(b"n+1\0");
    let n_bytes = lengths.iter().map(|&length| length as usize).product::<usize>() * size;
    let values = file.len();
    file.resize(values + n_bytes, 0);
    random.fill_bytes(&mut file[values..]);
    file
}

/// Breaks a file in one of the ways that files break.
fn mutate(file: &mut Vec<u8>, random: &mut ChaCha8Rng) {
    match random.random_range(0..6) {
        0 => {
            for _ in 0..random.random_range(1..9) {
                flip(file, 0..400, random);
            }
        }
        1 => {
            let end = file.len();
            flip(file, 0..end, random);
        }
        2 => file.truncate(random.random_range(0..=file.len())),
        3 | 4 => {
            for _ in 0..random.random_range(1..4) {
                set_field(file, random);
            }
        }
        _ => {
            let extra = random.random_range(0..600);
            file.extend((0..extra).map(|at| (at * 37 % 256) as u8));
        }
    }
}

fn flip(file: &mut [u8], places: std::ops::Range<usize>, random: &mut ChaCha8Rng) {
    let end = places.end.min(file.len());
    if places.start < end {
        file[random.random_range(places.start..end)] ^= 1 << random.random_range(0..8);
    }
}

/// Writes random bytes, or a number that is likely to hurt, into a field.
fn set_field(file: &mut [u8], random: &mut ChaCha8Rng) {
    let (first, length, count) = FIELDS[random.random_range(0..FIELDS.len())];
    let at = first + length * random.random_range(0..count);
    if file.len() < at + length {
        return;
    }
    let field = &mut file[at..at + length];
    let floats = [f32::NAN, f32::INFINITY, -1.0, 0.0, 1e38, 352.0, 16_777_216.0, 3e9, 1e-40, 347.0];
    match (random.random_range(0..3), length) {
        (0, 4) => field.copy_from_slice(&floats[random.random_range(0..floats.len())].to_le_bytes()),
        (1, _) => field.fill([0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)]),
        _ => random.fill_bytes(field),
    }
    if random.random_bool(0.5) {
        field.reverse();
    }
}

fn gzip(bytes: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let level = flate2::Compression::new(random.random_range(0..=9));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

/// The name and bytes of one broken file.
fn broken_file(seed: u64) -> (&'static str, Vec<u8>) {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut file = valid(random);
    match random.random_range(0..8) {
        0..3 => {
            mutate(&mut file, random);
            ("a.nii", file)
        }
        3 => ("a.nii.gz", bomb(random)),
        4 => {
            let mut stream = vec![0x1f, 0x8b, 8, random.random_range(0..32), 0, 0, 0, 0, 0, 3];
            let start = stream.len();
            stream.resize(start + random.random_range(0..2000), 0);
            random.fill_bytes(&mut stream[start..]);
            ("a.nii.gz", stream)
        }
        5 | 6 => {
            mutate(&mut file, random);
            ("a.nii.gz", gzip(&file, random))
        }
        _ => {
            let cut = random.random_range(0..=file.len());
            let mut stream = [gzip(&file[..cut], random), gzip(&file[cut..], random)].concat();
            mutate(&mut stream, random);
            ("a.nii.gz", stream)
        }
    }
}

/// A short stream of a long image of zeros, with sizes that are true, or nearly, or not at all.
fn bomb(random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut file = valid(random);
    file.truncate(352);
    file[344..352].copy_from_slice(b"n+1\0\0\0\0\0");
    file[108..112].copy_from_slice(&352f32.to_le_bytes());
    let lengths: [i16; 4] = std::array::from_fn(|_| random.random_range(1..200));
    file[..4].copy_from_slice(&348i32.to_le_bytes());
    file[40..42].copy_from_slice(&4i16.to_le_bytes());
    for (at, length) in lengths.iter().enumerate() {
        file[42 + 2 * at..][..2].copy_from_slice(&length.to_le_bytes());
    }
    file[70..72].copy_from_slice(&[2, 0]);
    file.resize(352 + random.random_range(0..300_000), 0);
    gzip(&file, random)
}

/// Opens the file and reads first, last and first rows again; the memory this takes is bounded by the file's length.
fn try_everything(path: &Path, length: usize, seed: u64) {
    let (opened, held) = most_held(|| read::open(path));
    assert!(held < ALLOWANCE, "seed {seed}: opening {length} bytes took {held}");
    let Ok(source) = opened else { return };
    let compressed = path.extension().is_some_and(|ending| ending == "gz");
    let most_values = if compressed { 1100 * length } else { length };
    assert!(source.n_rows() * source.n_sites() <= most_values, "seed {seed}: more values than bytes");
    let mut row = vec![0.0; source.n_sites()];
    for at in [0, source.n_rows() - 1, source.n_rows() / 2] {
        let (_, held) = most_held(|| source.read_rows(at, &mut row));
        assert!(held < ALLOWANCE + 8 * source.n_sites(), "seed {seed}: reading a row of {} took {held}", row.len());
    }
    let header = source.space().expect("an image has a header");
    assert!(header.affine().iter().flatten().all(|entry| entry.is_finite()), "seed {seed}");
    let _ = (header.space.repetition_seconds(), header.space.voxel_sizes(), header.space_code());
    drop(source);
    let _ = Observations::open(&[path.to_path_buf(), path.to_path_buf()]);
}

#[test]
fn broken_files_are_refused_and_nothing_worse() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let seconds = std::env::var("ISSFA_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut n_opened = 0;
    for seed in 0.. {
        if seed >= N_FILES && Instant::now() >= end {
            eprintln!("{seed} files, of which {n_opened} could be opened");
            break;
        }
        let (name, bytes) = broken_file(seed);
        let path = folder.path().join(name);
        fs::write(&path, &bytes).expect("a temporary file can be written");
        let tried = std::panic::catch_unwind(|| try_everything(&path, bytes.len(), seed));
        assert!(tried.is_ok(), "seed {seed} panics");
        n_opened += u64::from(read::open(&path).is_ok());
    }
    assert!(n_opened > N_FILES / 20, "some files are broken only a little: {n_opened}");
}
