//! The noise as it was measured: a map of its scales, and its spectrum.

use super::upright::Upright;
use crate::data::Mask;
use crate::error::Result;
use crate::figures::colour::Colours;
use crate::figures::images::{GalleryOptions, GalleryRow, gallery};
use crate::figures::lines::{LinePanel, Mark, Series, panels};
use crate::figures::ticks::{Scale, number};
use crate::noise::Reference;
use crate::structure::Structure;
use std::path::Path;

/// Writes `noise_sites` and `noise_spectrum` to a folder.
pub fn write_noise_figures(
    reference: &Reference,
    structure: &Structure,
    mask: &Mask,
    upright: &Upright,
    folder: &Path,
) -> Result<()> {
    let findings = &reference.findings;
    let sds = reference.noise_sds();
    let largest = sds.iter().copied().fold(0.0, f64::max);
    let caption = format!("level {}, largest {}", number(findings.level), number(largest));
    let sds: Vec<f32> = sds.iter().map(|&sd| sd as f32).collect();
    let panel = upright.panel(&mask.scatter(&sds, f32::NAN), upright.middle(), caption);
    let row = GalleryRow { label: String::new(), panels: vec![panel] };
    let options = GalleryOptions { colours: Colours::Sequential, n_columns: 1, ..GalleryOptions::default() };
    let title = format!("Noise: standard deviation by site, in the data's units ({})", findings.in_words());
    gallery(&title, &[row], options).save(folder, "noise_sites")?;
    spectrum(reference, structure).save(folder, "noise_spectrum")
}

/// Powers of noise and rows by rank of the modes, smooth ones first.
fn spectrum(reference: &Reference, structure: &Structure) -> crate::figures::Figure {
    let mut sorted = structure.eigenvalues();
    sorted.sort_by(f64::total_cmp);
    let mut last = vec![0; reference.powers.len()];
    sorted.iter().enumerate().for_each(|(rank, &value)| last[reference.band(value)] = rank + 1);
    let steps = |name: &str, powers: &[f64]| {
        let (mut x, mut y, mut first) = (Vec::new(), Vec::new(), 1);
        for (&end, &power) in last.iter().zip(powers) {
            x.extend([first as f64, end as f64].map(f64::log10));
            y.extend([power, power]);
            first = end + 1;
        }
        Series { name: name.into(), x, y }
    };
    let panel = LinePanel {
        y_label: "power of a mode, in units of the site scales".into(),
        x_label: "log10 of the mode's rank, smooth to rough".into(),
        series: vec![steps("noise", &reference.powers), steps("rows", &reference.row_powers)],
        horizontal: Some(Mark { at: 1.0, label: "white".into() }),
        scale: Scale::Log10,
        ..LinePanel::default()
    };
    panels("Spectrum of the noise, and of the rows", &[panel])
}
