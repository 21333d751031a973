//! Prints the mean seconds of one transform of an image on one thread: `time_transform "path(100) x path(100)"`.

use issfa::structure::{Direction, expression};
use std::time::{Duration, Instant};

fn main() -> issfa::Result<()> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "path(100) x path(100)".into());
    let structure = expression::build(Some(&text), None)?;
    let image: Vec<f64> = (0..structure.n_sites()).map(|i| (i as f64 * 0.61).sin()).collect();
    let (mut values, mut scratch) = (image.clone(), Vec::new());
    // The first one grows the scratch space.
    structure.apply(Direction::ToSpectrum, &mut values, &mut scratch);
    let (mut count, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_millis(200) {
        values.copy_from_slice(&image);
        structure.apply(Direction::ToSpectrum, &mut values, &mut scratch);
        count += 1;
    }
    println!("{:e}", start.elapsed().as_secs_f64() / f64::from(count));
    Ok(())
}
