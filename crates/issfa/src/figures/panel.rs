//! One panel of a gallery: a map in colours or a curve, and the colour bar they share.

use super::canvas::{Canvas, GRID, Pixels, Rect, Stroke};
use super::colour::{Colours, PALETTE};
use super::lines::decimate;
use super::slice::{Shape, Slice};
use super::text::{Anchor, TextStyle};
use super::ticks::Scale;

/// A map with more pixels along a side is averaged down: paper shows no more.
const MOST_PIXELS: usize = 400;
/// The frame of a panel.
pub const BORDER: Stroke = Stroke::solid("#999999", 0.8);

/// The scale of some values: symmetric about 0, or from 0 (or the lowest, if negative) to the highest.
pub fn limits(values: impl Iterator<Item = f64>, colours: Colours) -> (f64, f64) {
    let finite = values.filter(|&value| Scale::Linear.holds(value));
    let (low, high) = finite.fold((0.0f64, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    let largest = high.max(-low);
    match colours {
        _ if largest == 0.0 => (if colours == Colours::Diverging { -1.0 } else { 0.0 }, 1.0),
        Colours::Diverging => (-largest, largest),
        Colours::Sequential => (low, high),
    }
}

/// Draws a slice over a frame.
pub fn draw_slice(canvas: &mut Canvas, frame: Rect, slice: &Slice, limits: (f64, f64), colours: Colours) {
    match slice.shape {
        Shape::Curve => draw_curve(canvas, frame, &slice.values, limits),
        Shape::Plane { n_down, n_right } => {
            let (shape, values) = shrink((n_down, n_right), &slice.values);
            let indices = values.iter().map(|&value| Colours::index(value, limits)).collect();
            let pixels = Pixels { width: shape.1, height: shape.0, indices, palette: colours.palette() };
            canvas.image(frame, pixels);
        }
    }
    canvas.frame(frame, BORDER);
}

fn draw_curve(canvas: &mut Canvas, frame: Rect, values: &[f64], (low, high): (f64, f64)) {
    let inner = Rect { x: frame.x + 4.0, y: frame.y + 5.0, width: frame.width - 8.0, height: frame.height - 10.0 };
    let x = |index: usize| inner.x + inner.width * (index as f64 + 0.5) / values.len() as f64;
    let y = |value: f64| inner.bottom() - inner.height * (value - low) / (high - low);
    canvas.line((frame.x, y(0.0)), (frame.right(), y(0.0)), Stroke::solid("#bbbbbb", 1.0));
    let points: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    for piece in points.split(|point| !Scale::Linear.holds(point.1)).filter(|piece| !piece.is_empty()) {
        let places: Vec<(f64, f64)> = piece.iter().map(|&(index, value)| (x(index), y(value))).collect();
        canvas.polyline(&decimate(&places), Stroke::solid(PALETTE[0], 1.3));
        if values.len() <= 25 || piece.len() == 1 {
            places.iter().for_each(|&place| canvas.dot(place, 1.8, PALETTE[0]));
        }
    }
}

/// Averages blocks of pixels until no side is longer than paper can show.
fn shrink((n_down, n_right): (usize, usize), values: &[f64]) -> ((usize, usize), Vec<f64>) {
    let block = (n_down.div_ceil(MOST_PIXELS), n_right.div_ceil(MOST_PIXELS));
    let shape = (n_down.div_ceil(block.0), n_right.div_ceil(block.1));
    let mean = |pixel: usize| {
        let (top, left) = (pixel / shape.1 * block.0, pixel % shape.1 * block.1);
        let downs = top..(top + block.0).min(n_down);
        let rights = left..(left + block.1).min(n_right);
        let n_sites = downs.len() * rights.len();
        let sum: f64 = downs.map(|down| values[down * n_right..][rights.clone()].iter().sum::<f64>()).sum();
        sum / n_sites as f64
    };
    (shape, (0..shape.0 * shape.1).map(mean).collect())
}

/// The box of the colour bar that is drawn from a place on.
pub fn colour_bar((x, y): (f64, f64)) -> Rect {
    Rect { x, y: y + 3.0, width: 180.0, height: 11.0 }
}

/// Draws the bar with the limits under it and gives the x right of it.
pub fn draw_colour_bar(canvas: &mut Canvas, at: (f64, f64), colours: Colours, (low, high): (&str, &str)) -> f64 {
    let bar = colour_bar(at);
    let pixels = Pixels { width: 255, height: 1, indices: (0..255).collect(), palette: colours.palette() };
    canvas.image(bar, pixels);
    canvas.frame(bar, Stroke::solid(GRID, 0.8));
    let mut label = |x, text, anchor| canvas.text(x, bar.bottom() + 13.0, text, TextStyle::SMALL.anchored(anchor));
    label(bar.x, low, Anchor::Start);
    label(bar.right(), high, Anchor::End);
    if colours == Colours::Diverging {
        label(bar.middle().0, "0", Anchor::Middle);
    }
    bar.right() + 16.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_symmetric_or_from_zero() {
        let of = |values: &[f64], colours| limits(values.iter().copied(), colours);
        assert_eq!(of(&[-3.0, 1.0, f64::NAN], Colours::Diverging), (-3.0, 3.0));
        assert_eq!(of(&[2.0, 5.0], Colours::Sequential), (0.0, 5.0));
        assert_eq!(of(&[], Colours::Diverging), (-1.0, 1.0));
    }

    #[test]
    fn large_maps_are_averaged() {
        let (shape, values) = shrink((1000, 2), &vec![3.0; 2000]);
        assert_eq!((shape, values.len()), ((334, 2), 668));
        assert!(values.iter().all(|value| (value - 3.0).abs() < 1e-12));
    }
}
