//! Held-out rows of a simulation under a fit, with the features at their means and integrated out; prints a line of JSON.
//!
//! `new_rows RUN SIM`. Errors are means over cells of (reconstruction - noise-free truth)^2.

use issfa::Rows;
use issfa::data::read::npy::read_npy_f32;
use issfa::new_rows::FeaturesAre;
use issfa::new_rows::transform::NewRowSettings;
use issfa::summary::Fitted;
use std::path::Path;
use std::time::Instant;

fn main() -> issfa::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, simulation] = &arguments[..] else {
        eprintln!("usage: new_rows RUN SIM");
        std::process::exit(2);
    };
    let (fitted, simulation) = (Fitted::open(Path::new(run))?, Path::new(simulation));
    let (_, truth) = read_npy_f32(&simulation.join("truth_heldout.npy"))?;
    let mut found = Vec::new();
    for features in [FeaturesAre::AtTheirMeans, FeaturesAre::IntegratedOut] {
        let how = NewRowSettings { features: Some(features), ..NewRowSettings::plain() };
        let observations = fitted.open_rows(&Rows::open(&[simulation.join("heldout.npy")])?, &how)?;
        let (start, mut reconstruction) = (Instant::now(), Vec::new());
        fitted.transform_batches(&observations, &how, &mut |batch| {
            reconstruction.extend(batch.reconstruction);
            Ok(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let squares = reconstruction.iter().zip(&truth).map(|(x, t)| f64::from(x - t).powi(2));
        found.push((squares.sum::<f64>() / truth.len() as f64, seconds));
    }
    let [(at_means, seconds_at_means), (integrated_out, seconds)] = found[..] else { unreachable!("two ways") };
    println!(
        "{{\"at_means\": {at_means:.8}, \"integrated_out\": {integrated_out:.8}, \
         \"seconds_at_means\": {seconds_at_means:.3}, \"seconds_integrated_out\": {seconds:.3}}}"
    );
    Ok(())
}
