//! Stacked panels of lines over one shared x axis: traces, curves, convergence.

use super::axes::{Axis, BELOW, LEFT};
use super::canvas::{Canvas, Rect, Stroke};
use super::text::{Anchor, TextStyle, text_width, wrap};
use super::ticks::Scale;
use super::{Figure, WIDTH, legend};

/// A reference line over the data.
const MARK: Stroke = Stroke::dashed("#444444", 1.1);
/// Series of at most this many points show each point as a dot.
const N_DOTTED: usize = 25;
const GAP: f64 = 18.0;

/// A named line; a point where either number is not finite breaks it.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Places along the axis.
    pub x: Vec<f64>,
    /// One value a place.
    pub y: Vec<f64>,
}

/// A labelled line across a panel.
#[derive(Debug, Clone, Default)]
pub struct Mark {
    /// Where the line stands.
    pub at: f64,
    /// What is written at it.
    pub label: String,
}

/// One panel of a stack.
#[derive(Debug, Clone, Default)]
pub struct LinePanel {
    /// Beside the panel.
    pub y_label: String,
    /// Shown under the last panel only.
    pub x_label: String,
    /// What is drawn.
    pub series: Vec<Series>,
    /// For example where burn-in ends.
    pub vertical: Option<Mark>,
    /// For example a true value.
    pub horizontal: Option<Mark>,
    /// Of the values.
    pub scale: Scale,
}

impl LinePanel {
    fn names(&self) -> Vec<&str> {
        self.series.iter().map(|series| series.name.as_str()).collect()
    }

    fn x_values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| series.x.iter().copied());
        points.chain(self.vertical.iter().map(|mark| mark.at))
    }

    fn y_values(&self) -> impl Iterator<Item = f64> {
        let points = self.series.iter().flat_map(|series| series.y.iter().copied());
        points.chain(self.horizontal.iter().map(|mark| mark.at))
    }
}

/// Panels over one another. A legend or marker label equal to the one above is not repeated.
pub fn panels(title: &str, panels: &[LinePanel]) -> Figure {
    let mut canvas = Canvas::new();
    let mut top = canvas.title(title) + 2.0;
    let x_range = Scale::Linear.range(panels.iter().flat_map(LinePanel::x_values));
    let width = WIDTH - LEFT - right_margin(panels);
    let height = [320.0, 320.0, 210.0, 160.0][panels.len().min(3)];
    for (index, panel) in panels.iter().enumerate() {
        let above = index.checked_sub(1).map(|index| &panels[index]);
        if above.is_none_or(|above| above.names() != panel.names()) {
            top = legend::draw(&mut canvas, LEFT, top, &panel.names());
        }
        let is_new_mark = label(&panel.vertical) != above.map(|above| label(&above.vertical)).unwrap_or_default();
        top += if is_new_mark { 16.0 } else { 0.0 };
        let frame = Rect { x: LEFT, y: top, width, height };
        let x_axis = Axis::across(frame, x_range, Scale::Linear);
        let x_label = (index + 1 == panels.len()).then_some(panel.x_label.as_str());
        draw_panel(&mut canvas, frame, panel, &x_axis, x_label, is_new_mark);
        top = frame.bottom() + GAP;
    }
    canvas.finish(top - GAP + BELOW + 4.0)
}

fn label(mark: &Option<Mark>) -> &str {
    mark.as_ref().map_or("", |mark| &mark.label)
}

/// Room for the labels of horizontal references.
fn right_margin(panels: &[LinePanel]) -> f64 {
    let widths = panels.iter().map(|panel| text_width(label(&panel.horizontal), TextStyle::SMALL.size) + 18.0);
    widths.fold(30.0, f64::max).min(150.0)
}

fn draw_panel(
    canvas: &mut Canvas,
    frame: Rect,
    panel: &LinePanel,
    x_axis: &Axis,
    x_label: Option<&str>,
    is_new_mark: bool,
) {
    let y_range = panel.scale.pad(panel.scale.range(panel.y_values()), 0.06);
    let y_axis = Axis::upward(frame, y_range, panel.scale);
    y_axis.draw_left(canvas, frame, &panel.y_label);
    x_axis.draw_below(canvas, frame, x_label);
    let mut n_drawn = 0;
    for (index, series) in panel.series.iter().enumerate() {
        n_drawn += draw_series(canvas, series, (x_axis, &y_axis), legend::stroke(index));
    }
    if n_drawn == 0 {
        let (x, y) = frame.middle();
        canvas.text(x, y - 6.0, "no data", TextStyle::SMALL);
    }
    if let Some((mark, x)) = panel.vertical.as_ref().and_then(|mark| Some((mark, x_axis.place(mark.at)?))) {
        canvas.line((x, frame.y), (x, frame.bottom()), MARK);
        draw_mark_label(canvas, frame, x, if is_new_mark { &mark.label } else { "" });
    }
    if let Some((mark, y)) = panel.horizontal.as_ref().and_then(|mark| Some((mark, y_axis.place(mark.at)?))) {
        canvas.line((frame.x, y), (frame.right(), y), MARK);
        let style = TextStyle::SMALL.anchored(Anchor::Start);
        let label = wrap(&mark.label, WIDTH - frame.right() - 8.0, style.size, 1).concat();
        canvas.text(frame.right() + 6.0, y + 4.0, &label, style);
    }
}

/// A marker's label over the frame, kept inside its width.
fn draw_mark_label(canvas: &mut Canvas, frame: Rect, x: f64, label: &str) {
    let half = text_width(label, TextStyle::SMALL.size) / 2.0;
    let (lowest, highest) = (frame.x + half, frame.right() - half);
    let x = if lowest < highest { x.clamp(lowest, highest) } else { frame.middle().0 };
    canvas.text(x, frame.y - 5.0, label, TextStyle::SMALL);
}

/// Draws a series and gives how many of its points have a place.
fn draw_series(canvas: &mut Canvas, series: &Series, axes: (&Axis, &Axis), stroke: Stroke) -> usize {
    let place = |(&x, &y): (&f64, &f64)| Some((axes.0.place(x)?, axes.1.place(y)?));
    let places: Vec<Option<(f64, f64)>> = series.x.iter().zip(&series.y).map(place).collect();
    let n_points = places.iter().flatten().count();
    for piece in places.split(Option::is_none).filter(|piece| !piece.is_empty()) {
        let points: Vec<(f64, f64)> = piece.iter().copied().flatten().collect();
        if points.len() > 1 {
            canvas.polyline(&decimate(&points), stroke);
        }
        if points.len() == 1 || n_points <= N_DOTTED {
            points.iter().for_each(|&point| canvas.dot(point, 2.6, stroke.colour));
        }
    }
    n_points
}

/// Keeps the first, lowest, highest and last point of each pixel column, which looks the same as all of them.
pub(super) fn decimate(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    for column in points.chunk_by(|left, right| left.0.floor() == right.0.floor()) {
        let by_height = |&left: &usize, &right: &usize| column[left].1.total_cmp(&column[right].1);
        let lowest = (0..column.len()).min_by(by_height).unwrap_or(0);
        let highest = (0..column.len()).max_by(by_height).unwrap_or(0);
        let mut chosen = [0, lowest, highest, column.len() - 1];
        chosen.sort_unstable();
        kept.extend(chosen.chunk_by(|left, right| left == right).map(|same| column[same[0]]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, y: Vec<f64>) -> Series {
        Series { name: name.into(), x: (0..y.len()).map(|index| index as f64).collect(), y }
    }

    #[test]
    fn decimation_keeps_extremes_and_ends() {
        let wave = |index: usize| (index as f64 * 0.01, ((index * 7919) % 1000) as f64);
        let mut points: Vec<(f64, f64)> = (0..80_000).map(wave).collect();
        points[12_345].1 = 1e6;
        points[54_321].1 = -1e6;
        let kept = decimate(&points);
        assert!(kept.len() <= 4 * 801);
        assert!(kept.contains(&points[12_345]) && kept.contains(&points[54_321]));
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[79_999]));
        assert_eq!(decimate(&points[..3]).len(), 3);
    }

    #[test]
    fn long_traces_stay_small_and_odd_data_draw() {
        let long = LinePanel {
            series: vec![series("chain 1", (0..200_000).map(|index| (index as f64).sin()).collect())],
            vertical: Some(Mark { at: 1000.0, label: "burn-in ends".into() }),
            ..Default::default()
        };
        let figure = panels("Long", std::slice::from_ref(&long));
        super::super::check(&figure);
        assert!(figure.svg().len() < 80_000, "{}", figure.svg().len());
        let odd = [vec![], vec![3.0], vec![f64::NAN; 4], vec![2.0; 9], vec![1.0, f64::NAN, f64::INFINITY, 1e308, -2.0]];
        for (y, scale) in odd.into_iter().flat_map(|y| [(y.clone(), Scale::Linear), (y, Scale::Log10)]) {
            let panel = LinePanel { series: vec![series("one", y)], scale, ..Default::default() };
            super::super::check(&panels("Odd", &[panel.clone(), panel]));
        }
        super::super::check(&panels("Nothing at all", &[]));
    }

    #[test]
    fn a_legend_needs_two_series() {
        let draw = |names: &[&str]| {
            let series = names.iter().map(|name| series(name, vec![1.0, 2.0])).collect();
            panels("Legend", &[LinePanel { series, ..Default::default() }]).svg().to_string()
        };
        assert!(!draw(&["alone"]).contains("alone"));
        assert!(draw(&["first", "second"]).contains("second"));
    }
}
