//! Legends: one row or more of coloured strokes with names.

use super::WIDTH;
use super::canvas::{Canvas, EDGE, Stroke};
use super::colour::PALETTE;
use super::text::{Anchor, TextStyle, text_width, wrap};

const ROW: f64 = 18.0;
const SWATCH: f64 = 22.0;

/// The stroke of a series; past six the colours come again, dashed.
pub fn stroke(series: usize) -> Stroke {
    let colour = PALETTE[series % PALETTE.len()];
    if series < PALETTE.len() { Stroke::solid(colour, 1.4) } else { Stroke::dashed(colour, 1.4) }
}

/// Draws the names from a left edge, breaking rows at the page's edge, and gives the y below them.
/// Fewer than two names need no legend.
pub fn draw(canvas: &mut Canvas, left: f64, top: f64, names: &[&str]) -> f64 {
    if names.len() < 2 {
        return top;
    }
    let style = TextStyle::SMALL.anchored(Anchor::Start);
    let (mut x, mut y) = (left, top);
    for (index, name) in names.iter().enumerate() {
        let name = wrap(name, 300.0, style.size, 1).concat();
        let width = SWATCH + 6.0 + text_width(&name, style.size);
        if x > left && x + width > WIDTH - EDGE {
            (x, y) = (left, y + ROW);
        }
        let thick = Stroke { width: 2.4, ..stroke(index) };
        canvas.line((x, y + 8.0), (x + SWATCH, y + 8.0), thick);
        canvas.text(x + SWATCH + 6.0, y + 12.0, &name, style);
        x += width + 18.0;
    }
    y + ROW + 4.0
}
