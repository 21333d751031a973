//! Time courses of one feature: a small panel for each run, all on the same axes.

use super::WIDTH;
use super::axes::{Axis, BELOW, LEFT};
use super::canvas::{Canvas, Rect, Stroke};
use super::colour::PALETTE;
use super::lines::decimate;
use super::text::{Anchor, TextStyle, text_width, wrap};
use super::ticks::{Scale, Tick, number};

/// More runs than this stand in two columns.
const MOST_STACKED: usize = 6;
/// Further runs are only counted.
const MOST_SHOWN: usize = 24;
const ON: Stroke = Stroke::solid(PALETTE[0], 1.3);
const OFF: &str = "#a0a0a0";
const ZERO: Stroke = Stroke::solid("#d0d0d0", 1.0);
/// Lower panels have room for three ticks only.
const LOW: f64 = 100.0;
/// Dots of rows that are off are at least this far apart: closer ones run together on paper.
const DOT_STEP: f64 = 3.0;
/// Height of a run's name over its panel.
const NAME: f64 = 17.0;
const RIGHT: f64 = 30.0;
const COLUMN_GAP: f64 = 30.0;

/// One run's weights of the feature. NaN where there is no value.
#[derive(Debug, Clone, Default)]
pub struct TimeCourse {
    /// Of the run.
    pub name: String,
    /// By row.
    pub weights: Vec<f64>,
    /// Whether the feature is on in that row (probability at least one half); rows past its end count as on.
    pub active: Vec<bool>,
}

impl TimeCourse {
    fn is_on(&self, row: usize) -> bool {
        self.active.get(row).copied().unwrap_or(true)
    }
}

/// What the panels of all runs have in common.
struct Layout {
    n_columns: usize,
    n_lines: usize,
    width: f64,
    height: f64,
    /// Seconds, or 1 where rows are counted.
    step: f64,
    x_label: &'static str,
    x_range: (f64, f64),
    y_range: (f64, f64),
}

/// Draws the panels from `top` on and gives the y below them. Without runs nothing is drawn.
pub fn draw(canvas: &mut Canvas, top: f64, courses: &[TimeCourse], repetition_seconds: Option<f64>) -> f64 {
    if courses.is_empty() {
        return top;
    }
    let shown = &courses[..courses.len().min(MOST_SHOWN)];
    let layout = Layout::new(shown, repetition_seconds);
    draw_legend(canvas, top, courses.len() - shown.len());
    let top = top + 20.0;
    for (index, course) in shown.iter().enumerate() {
        let is_lowest = index + layout.n_columns >= shown.len();
        layout.draw_run(canvas, layout.frame(top, index), course, index % layout.n_columns == 0, is_lowest);
    }
    let (first, last) = (layout.frame(top, 0), layout.frame(top, (layout.n_lines - 1) * layout.n_columns));
    canvas.text(LEFT - 60.0, (first.y + last.bottom()) / 2.0, "weight", TextStyle::LABEL.turned(-90.0));
    last.bottom() + BELOW
}

impl Layout {
    fn new(shown: &[TimeCourse], repetition_seconds: Option<f64>) -> Self {
        let n_columns = if shown.len() > MOST_STACKED { 2 } else { 1 };
        let n_lines = shown.len().div_ceil(n_columns);
        let width = (WIDTH - LEFT - RIGHT - COLUMN_GAP * (n_columns - 1) as f64) / n_columns as f64;
        let height = [150.0, 150.0, 110.0, 86.0, 66.0, 58.0, 52.0].get(n_lines).copied().unwrap_or(44.0);
        let seconds = repetition_seconds.filter(|seconds| (1e-9..1e9).contains(seconds));
        let step = seconds.unwrap_or(1.0);
        let last_row = shown.iter().map(|course| course.weights.len()).max().unwrap_or(0).saturating_sub(1);
        let on = |course: &TimeCourse, row: usize| if course.is_on(row) { course.weights[row] } else { 0.0 };
        let values = shown.iter().flat_map(|course| (0..course.weights.len()).map(move |row| on(course, row)));
        Layout {
            n_columns,
            n_lines,
            width,
            height,
            step,
            x_label: if seconds.is_some() { "seconds" } else { "volume" },
            x_range: Scale::Linear.pad((0.0, last_row.max(1) as f64 * step), 0.01),
            y_range: Scale::Linear.pad(Scale::Linear.range(values.chain([0.0])), 0.08),
        }
    }

    fn frame(&self, top: f64, index: usize) -> Rect {
        let (line, column) = ((index / self.n_columns) as f64, (index % self.n_columns) as f64);
        let (x, y) = (LEFT + column * (self.width + COLUMN_GAP), top + NAME + line * (self.height + NAME + 6.0));
        Rect { x, y, width: self.width, height: self.height }
    }

    fn draw_run(&self, canvas: &mut Canvas, frame: Rect, course: &TimeCourse, is_leftmost: bool, is_lowest: bool) {
        let style = TextStyle { size: 11.5, ..TextStyle::LABEL.anchored(Anchor::Start) };
        canvas.text(frame.x, frame.y - 5.0, &wrap(&course.name, frame.width, style.size, 1).concat(), style);
        let mut y_axis = Axis::upward(frame, self.y_range, Scale::Linear);
        if frame.height < LOW {
            y_axis.ticks = three_ticks(self.y_range);
        }
        if !is_leftmost {
            y_axis.ticks.iter_mut().for_each(|tick| tick.label.clear());
        }
        let x_axis = Axis::across(frame, self.x_range, Scale::Linear);
        y_axis.draw_left(canvas, frame, "");
        x_axis.draw_below(canvas, frame, is_lowest.then_some(self.x_label));
        if let Some(zero) = y_axis.place(0.0) {
            canvas.line((frame.x, zero), (frame.right(), zero), ZERO);
        }
        self.draw_weights(canvas, frame, course, (&x_axis, &y_axis));
    }

    /// Stretches of rows that are on as lines, single ones as dots, and grey dots at zero for rows that are off.
    fn draw_weights(&self, canvas: &mut Canvas, frame: Rect, course: &TimeCourse, axes: (&Axis, &Axis)) {
        let place = |row: usize| {
            let weight = course.weights[row];
            let x = axes.0.place(row as f64 * self.step)?;
            Some((x, axes.1.place(weight)?, course.is_on(row)))
        };
        let places: Vec<Option<(f64, f64, bool)>> = (0..course.weights.len()).map(place).collect();
        if places.iter().all(Option::is_none) {
            canvas.text(frame.middle().0, frame.middle().1 - 6.0, "no data", TextStyle::SMALL);
        }
        let off = places.iter().flatten().filter(|place| !place.2).map(|place| place.0);
        draw_off(canvas, off, axes.1.place(0.0).unwrap_or(frame.bottom()));
        for piece in places.split(|place| !place.is_some_and(|place| place.2)) {
            let points: Vec<(f64, f64)> = piece.iter().flatten().map(|&(x, y, _)| (x, y)).collect();
            match points[..] {
                [] => {}
                [point] => canvas.dot(point, 1.8, ON.colour),
                _ => canvas.polyline(&decimate(&points), ON),
            }
        }
    }
}

/// Zero and a round number to either side, as far as the range holds them.
fn three_ticks((low, high): (f64, f64)) -> Vec<Tick> {
    let (smaller, larger) = (high.min(-low), high.max(-low));
    let reach = if smaller > 0.4 * larger { smaller } else { larger };
    let power = 10f64.powf(reach.log10().floor());
    let factors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
    let step = power * factors.into_iter().rfind(|factor| factor * power <= reach).unwrap_or(1.0);
    let inside = [-step, 0.0, step].into_iter().filter(|value| (low..=high).contains(value));
    inside.map(|value| Tick { value, label: number(value) }).collect()
}

fn draw_off(canvas: &mut Canvas, places: impl Iterator<Item = f64>, zero: f64) {
    let mut last = -f64::INFINITY;
    for x in places {
        if x - last >= DOT_STEP {
            canvas.dot((x, zero), 1.5, OFF);
            last = x;
        }
    }
}

fn draw_legend(canvas: &mut Canvas, top: f64, n_hidden: usize) {
    let style = TextStyle::SMALL.anchored(Anchor::Start);
    let on = "weight of the feature in each run";
    canvas.line((LEFT, top + 8.0), (LEFT + 22.0, top + 8.0), Stroke { width: 2.4, ..ON });
    canvas.text(LEFT + 28.0, top + 12.0, on, style);
    let x = LEFT + 28.0 + text_width(on, style.size) + 18.0;
    [3.0, 9.0, 15.0].iter().for_each(|step| canvas.dot((x + step, top + 8.0), 1.8, OFF));
    canvas.text(x + 24.0, top + 12.0, "grey: feature off in this volume", style);
    if n_hidden > 0 {
        let more = format!("{n_hidden} more not shown");
        canvas.text(WIDTH - RIGHT, top + 12.0, &more, TextStyle::SMALL.anchored(Anchor::End));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(weights: Vec<f64>, active: Vec<bool>) -> TimeCourse {
        TimeCourse { name: "sub-01 run-1".into(), weights, active }
    }

    fn svg(courses: &[TimeCourse], seconds: Option<f64>) -> String {
        let mut canvas = Canvas::new();
        canvas.title("Time courses");
        let bottom = draw(&mut canvas, 50.0, courses, seconds);
        let figure = canvas.finish(bottom + 10.0);
        super::super::check(&figure);
        figure.svg().to_string()
    }

    #[test]
    fn off_rows_are_grey_dots_and_the_line_is_broken_there() {
        let weights = vec![1.0, 2.0, 3.0, 2.0, 1.0, 4.0];
        let active = vec![true, true, false, false, true, false];
        let svg = svg(&[course(weights, active)], Some(2.0));
        assert_eq!(svg.matches(&format!("fill=\"{OFF}\"")).count(), 3 + 3, "three in the legend, three in the panel");
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(svg.matches(&format!("r=\"1.8\" fill=\"{}\"", ON.colour)).count(), 1);
        assert!(svg.contains(">seconds<") && svg.contains(">weight<") && svg.contains(">sub-01 run-1<"));
    }

    #[test]
    fn many_runs_are_counted_and_stay_small() {
        let wave = |row: usize| (row as f64 * 0.1).sin();
        let long = course((0..3000).map(wave).collect(), (0..3000).map(|row| row % 400 < 200).collect());
        let svg = svg(&vec![long; 30], None);
        assert!(svg.contains("6 more not shown") && svg.contains(">volume<"));
        assert_eq!(svg.matches("sub-01").count(), MOST_SHOWN);
        assert!(svg.len() < 800_000, "{}", svg.len());
    }

    #[test]
    fn low_panels_have_ticks_on_both_sides() {
        let values = |range| three_ticks(range).into_iter().map(|tick| tick.value).collect::<Vec<f64>>();
        assert_eq!(values((-1.9, 2.1)), [-1.0, 0.0, 1.0]);
        assert_eq!(values((-0.1, 2.1)), [0.0, 2.0]);
        assert_eq!(values((-37.0, 1.0)), [-30.0, 0.0]);
    }

    #[test]
    fn odd_courses_draw() {
        let odd =
            [vec![], vec![3.0], vec![f64::NAN; 4], vec![0.0; 9], vec![1.0, f64::NAN, f64::INFINITY, 1e308, -2e299]];
        for (n_runs, weights) in [1, 2, 7, 9, 25].into_iter().zip(odd) {
            for seconds in [None, Some(0.0), Some(f64::NAN), Some(1e308), Some(0.72)] {
                svg(&vec![course(weights.clone(), vec![]); n_runs], seconds);
            }
        }
    }
}
