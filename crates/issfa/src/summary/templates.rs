//! Features against given maps: which of them each is most like.

use super::Fitted;
use crate::data::grid::show_grid;
use crate::data::nifti::space::check_same_place;
use crate::data::read;
use crate::error::{Error, Result};
use serde::Serialize;
use std::path::Path;

/// The map that a feature is most like, over the sites of the mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    /// Id of the feature.
    pub feature: u64,
    /// The number of the map (a volume or row of the file), from 1.
    pub template: usize,
    /// Pearson's correlation with it, the largest in size of all maps.
    pub r: f64,
    /// The cosine with it.
    pub cosine: f64,
}

/// For each feature of a fit, the most alike of the maps in a file: volumes of an image in the same place, or an array of
/// maps x grid.
pub fn best_matches(fitted: &Fitted, path: &Path) -> Result<Vec<Match>> {
    let source = read::open(path)?;
    let (grid, remedy) = (
        fitted.structure.grid(),
        "bring the maps onto the grid of the data first, for example with \
                          nilearn.image.resample_to_img",
    );
    let is_same = match source.grid() {
        Some(own) if own.len() == grid.len() => own == grid,
        _ => source.n_sites() == fitted.structure.n_sites(),
    };
    if !is_same {
        let own = source.grid().map_or_else(|| source.n_sites().to_string(), show_grid);
        let problem = format!("its maps have the grid {own}, but the run has {}; {remedy}", show_grid(grid));
        return Err(Error::malformed(path, problem));
    }
    if let (Some(space), Some(own)) = (&fitted.space, source.space()) {
        check_same_place((&fitted.name(), space), (path, own))?;
    }
    let mut templates = Vec::new();
    let mut values = vec![0.0; source.n_sites()];
    for row in 0..source.n_rows() {
        source.read_rows(row, &mut values)?;
        values.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
        templates.push(fitted.mask.gather(&values));
    }
    let features = &fitted.found.features;
    let best = |(mean, row): (&Vec<f32>, &super::FeatureRow)| {
        let mean: Vec<f64> = mean.iter().map(|&x| f64::from(x)).collect();
        let compared = templates.iter().enumerate().map(|(at, template)| Match {
            feature: row.id,
            template: at + 1,
            r: cosine(&centred(&mean), &centred(template)),
            cosine: cosine(&mean, template),
        });
        compared.reduce(|best, other| if other.r.abs() > best.r.abs() { other } else { best })
    };
    Ok(features.means.iter().zip(&features.table).filter_map(best).collect())
}

fn centred(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|x| x - mean).collect()
}

/// 0 where one of the two is.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    if norms > 0.0 { dot(a, b) / norms } else { 0.0 }
}

/// The matches as text, a line a feature.
pub fn table(matches: &[Match]) -> String {
    let line = |m: &Match| format!("{}\t{}\t{:.4}\t{:.4}\n", m.feature, m.template, m.r, m.cosine);
    "feature\ttemplate\tr\tcosine\n".to_string() + &matches.iter().map(line).collect::<String>()
}
