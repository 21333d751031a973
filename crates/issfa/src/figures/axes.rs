//! Axes: a range of values laid along a frame, with grid lines, ticks and labels.

use super::canvas::{Canvas, GRID, QUIET, Rect, Stroke};
use super::text::{Anchor, TextStyle, wrap};
use super::ticks::{Scale, Tick};

/// Room left of a frame for tick labels and a y label of two lines.
pub const LEFT: f64 = 96.0;
/// Room under a frame for tick labels and an x label.
pub const BELOW: f64 = 46.0;

/// A range of values laid over a range of pixels.
pub struct Axis {
    scale: Scale,
    range: (f64, f64),
    pixels: (f64, f64),
    pub ticks: Vec<Tick>,
}

impl Axis {
    /// A horizontal axis along the frame.
    pub fn across(frame: Rect, range: (f64, f64), scale: Scale) -> Self {
        let n_wanted = (frame.width / 100.0).clamp(2.0, 8.0) as usize;
        Axis { scale, range, pixels: (frame.x, frame.right()), ticks: scale.ticks(range, n_wanted) }
    }

    /// A vertical axis along the frame, low values at the bottom.
    pub fn upward(frame: Rect, range: (f64, f64), scale: Scale) -> Self {
        let n_wanted = (frame.height / 36.0).clamp(2.0, 6.0) as usize;
        Axis { scale, range, pixels: (frame.bottom(), frame.y), ticks: scale.ticks(range, n_wanted) }
    }

    /// The axis as a bare line.
    pub fn without_ticks(self) -> Self {
        Axis { ticks: Vec::new(), ..self }
    }

    /// The pixel of a value, if it has one.
    pub fn place(&self, value: f64) -> Option<f64> {
        let [low, high] = [self.range.0, self.range.1].map(|end| self.scale.forward(end));
        let fraction = (self.scale.forward(value) - low) / (high - low);
        self.scale.holds(value).then_some(self.pixels.0 + fraction * (self.pixels.1 - self.pixels.0))
    }

    /// Grid lines, tick labels and a label left of the frame.
    pub fn draw_left(&self, canvas: &mut Canvas, frame: Rect, label: &str) {
        for tick in &self.ticks {
            let Some(y) = self.place(tick.value) else { continue };
            canvas.line((frame.x, y), (frame.right(), y), Stroke::solid(GRID, 1.0));
            canvas.text(frame.x - 8.0, y + 4.0, &tick.label, TextStyle::SMALL.anchored(Anchor::End));
        }
        canvas.line((frame.x, frame.y), (frame.x, frame.bottom()), Stroke::solid(QUIET, 1.0));
        let lines = wrap(label, frame.height, TextStyle::LABEL.size, 2);
        let first = frame.x - 65.0 - 15.0 * (lines.len().max(1) - 1) as f64;
        for (index, line) in lines.iter().enumerate() {
            canvas.text(first + 15.0 * index as f64, frame.middle().1, line, TextStyle::LABEL.turned(-90.0));
        }
    }

    /// The base line and its tick marks; tick labels and a label under them where one is given.
    pub fn draw_below(&self, canvas: &mut Canvas, frame: Rect, label: Option<&str>) {
        let bottom = frame.bottom();
        canvas.line((frame.x, bottom), (frame.right(), bottom), Stroke::solid(QUIET, 1.0));
        for tick in &self.ticks {
            let Some(x) = self.place(tick.value) else { continue };
            canvas.line((x, bottom), (x, bottom + 4.0), Stroke::solid(QUIET, 1.0));
            if label.is_some() {
                canvas.text(x, bottom + 17.0, &tick.label, TextStyle::SMALL);
            }
        }
        canvas.text(frame.middle().0, bottom + 37.0, label.unwrap_or_default(), TextStyle::LABEL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_run_along_the_frame() {
        let frame = Rect { x: 100.0, y: 0.0, width: 200.0, height: 50.0 };
        let axis = Axis::across(frame, (1.0, 100.0), Scale::Log10);
        assert!((axis.place(10.0).unwrap() - 200.0).abs() < 1e-9);
        assert_eq!(axis.place(0.0), None);
        assert_eq!(Axis::upward(frame, (0.0, 1.0), Scale::Linear).place(1.0), Some(0.0));
    }
}
