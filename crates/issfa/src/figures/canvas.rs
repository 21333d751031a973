//! A page being drawn: text, lines, polygons, rectangles and pixel images, kept as a list that both formats are made of.

use super::text::{TextStyle, wrap};
use super::{Figure, WIDTH};

/// Ink for text.
pub const INK: &str = "#222222";
/// Ink for ticks, captions and notes.
pub const QUIET: &str = "#555555";
/// Ink for grid lines.
pub const GRID: &str = "#e4e4e4";
/// Space between a figure's edge and its text.
pub const EDGE: f64 = 16.0;

/// A box on the page, in CSS pixels; y runs down.
#[derive(Debug, Clone, Copy)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }

    pub fn middle(&self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy)]
pub struct Stroke {
    pub colour: &'static str,
    pub width: f64,
    /// Lengths of a dash and of the gap after it.
    pub dashes: Option<[u8; 2]>,
}

impl Stroke {
    pub const fn solid(colour: &'static str, width: f64) -> Self {
        Stroke { colour, width, dashes: None }
    }

    pub const fn dashed(colour: &'static str, width: f64) -> Self {
        Stroke { colour, width, dashes: Some([5, 3]) }
    }
}

/// Row-major indices into a palette of at most 256 colours.
#[derive(Debug, Clone)]
pub struct Pixels {
    pub width: usize,
    pub height: usize,
    pub indices: Vec<u8>,
    pub palette: Vec<[u8; 3]>,
}

/// Something on a page. Colours are `#rrggbb`; coordinates are to a hundredth of a CSS pixel.
#[derive(Debug, Clone)]
pub enum Shape {
    /// With its baseline at the place.
    Text {
        place: (f64, f64),
        text: String,
        style: TextStyle,
    },
    Line {
        ends: [(f64, f64); 2],
        stroke: Stroke,
    },
    /// With round joins and ends.
    Polyline {
        points: Vec<(f64, f64)>,
        stroke: Stroke,
    },
    Polygon {
        points: Vec<(f64, f64)>,
        fill: &'static str,
        opacity: f64,
    },
    Dot {
        centre: (f64, f64),
        radius: f64,
        fill: &'static str,
    },
    Rect {
        rect: Rect,
        fill: &'static str,
    },
    Frame {
        rect: Rect,
        stroke: Stroke,
    },
    /// Stretched over the box, with hard edges between the pixels.
    Image {
        rect: Rect,
        pixels: Pixels,
    },
}

/// A page being drawn.
#[derive(Default)]
pub struct Canvas {
    shapes: Vec<Shape>,
}

impl Canvas {
    pub fn new() -> Self {
        Canvas::default()
    }

    /// Draws the title at the top, on as many lines as it needs, and gives the y below it.
    pub fn title(&mut self, title: &str) -> f64 {
        let mut y = 26.0;
        for line in wrap(title, WIDTH - 2.0 * EDGE, TextStyle::TITLE.size, 3) {
            self.text(EDGE, y, &line, TextStyle::TITLE);
            y += 19.0;
        }
        y
    }

    /// Text with its baseline at y.
    pub fn text(&mut self, x: f64, y: f64, text: &str, style: TextStyle) {
        self.shapes.push(Shape::Text { place: point((x, y)), text: text.into(), style });
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        self.shapes.push(Shape::Line { ends: [from, to].map(point), stroke });
    }

    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let points = points.iter().copied().map(point).collect();
        self.shapes.push(Shape::Polyline { points, stroke });
    }

    pub fn polygon(&mut self, points: &[(f64, f64)], fill: &'static str, opacity: f64) {
        let points = points.iter().copied().map(point).collect();
        self.shapes.push(Shape::Polygon { points, fill, opacity });
    }

    pub fn dot(&mut self, centre: (f64, f64), radius: f64, fill: &'static str) {
        self.shapes.push(Shape::Dot { centre: point(centre), radius, fill });
    }

    pub fn rect(&mut self, rect: Rect, fill: &'static str) {
        self.shapes.push(Shape::Rect { rect: round(rect), fill });
    }

    pub fn frame(&mut self, rect: Rect, stroke: Stroke) {
        self.shapes.push(Shape::Frame { rect: round(rect), stroke });
    }

    /// Pixels stretched over the box, with hard edges between them.
    pub fn image(&mut self, rect: Rect, pixels: Pixels) {
        self.shapes.push(Shape::Image { rect: round(rect), pixels });
    }

    /// Closes the page at a height.
    pub fn finish(self, height: f64) -> Figure {
        Figure::new(self.shapes, WIDTH, height.ceil())
    }
}

fn round(Rect { x, y, width, height }: Rect) -> Rect {
    Rect { x: number(x), y: number(y), width: number(width), height: number(height) }
}

fn point((x, y): (f64, f64)) -> (f64, f64) {
    (number(x), number(y))
}

/// A coordinate to a hundredth, never a negative zero.
fn number(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}
