//! The figure of a choice: R2 of hidden cells and the number of features over the share of variance taken for noise.

use super::{Choice, Trial};
use crate::figures::Figure;
use crate::figures::lines::{LinePanel, Mark, Series, panels};
use crate::figures::ticks::Scale;

/// One line a structure; the recommended setting is marked.
pub(super) fn of(choice: &Choice) -> Figure {
    let mut structures: Vec<&str> = Vec::new();
    for trial in &choice.trials {
        if !structures.contains(&trial.structure.as_str()) {
            structures.push(&trial.structure);
        }
    }
    let series = |value: fn(&Trial) -> f64| -> Vec<Series> {
        let of_structure = |name: &&str| {
            let mut own: Vec<&Trial> = choice.trials.iter().filter(|trial| trial.structure == *name).collect();
            own.sort_by(|one, other| one.share_of_noise.total_cmp(&other.share_of_noise));
            let (x, y) = own.iter().map(|trial| (trial.share_of_noise, value(trial))).unzip();
            Series { name: name.to_string(), x, y }
        };
        structures.iter().map(of_structure).collect()
    };
    let mark = Mark { at: choice.chosen().share_of_noise, label: "recommended".into() };
    let panel = |y_label: &str, value: fn(&Trial) -> f64| LinePanel {
        y_label: y_label.into(),
        x_label: "share of the variance left as noise".into(),
        series: series(value),
        vertical: Some(mark.clone()),
        horizontal: None,
        scale: Scale::Linear,
    };
    panels(
        "Settings by the cells they predict",
        &[panel("R2 of hidden cells", |trial| trial.r2), panel("features", |trial| trial.n_features)],
    )
}
