//! A tiny SVG writer: text, lines, polygons, rectangles and embedded pixel images.

use super::text::{Anchor, TextStyle, markup, wrap};
use super::{Figure, WIDTH};
use base64::Engine;
use std::fmt::Write;

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
    pub dashes: Option<&'static str>,
}

impl Stroke {
    pub const fn solid(colour: &'static str, width: f64) -> Self {
        Stroke { colour, width, dashes: None }
    }

    pub const fn dashed(colour: &'static str, width: f64) -> Self {
        Stroke { colour, width, dashes: Some("5 3") }
    }

    fn attributes(&self) -> String {
        let dashes = self.dashes.map(|dashes| format!(" stroke-dasharray=\"{dashes}\"")).unwrap_or_default();
        format!("stroke=\"{}\" stroke-width=\"{}\"{dashes}", self.colour, self.width)
    }
}

/// Row-major indices into a palette of at most 256 colours.
pub struct Pixels {
    pub width: usize,
    pub height: usize,
    pub indices: Vec<u8>,
    pub palette: Vec<[u8; 3]>,
}

/// A page being drawn.
pub struct Canvas {
    body: String,
}

impl Default for Canvas {
    fn default() -> Self {
        Canvas::new()
    }
}

impl Canvas {
    pub fn new() -> Self {
        Canvas { body: String::new() }
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
        let anchor = match style.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let place = format!("x=\"{}\" y=\"{}\"", number(x), number(y));
        let turn = match style.turn {
            0.0 => String::new(),
            turn => format!(" transform=\"rotate({turn} {} {})\"", number(x), number(y)),
        };
        let look = format!("font-size=\"{}\" fill=\"{1}\" color=\"{1}\"", style.size, style.colour);
        self.push(format_args!("<text {place} text-anchor=\"{anchor}\" {look}{turn}>{}</text>", markup(text)));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        let place = [("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)];
        let place: String = place.iter().map(|(name, value)| format!("{name}=\"{}\" ", number(*value))).collect();
        self.push(format_args!("<line {place}{}/>", stroke.attributes()));
    }

    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let places = join(points);
        let joins = "fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\"";
        self.push(format_args!("<polyline points=\"{places}\" {joins} {}/>", stroke.attributes()));
    }

    pub fn polygon(&mut self, points: &[(f64, f64)], fill: &str, opacity: f64) {
        self.push(format_args!("<polygon points=\"{}\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>", join(points)));
    }

    pub fn dot(&mut self, centre: (f64, f64), radius: f64, fill: &str) {
        let (x, y) = (number(centre.0), number(centre.1));
        self.push(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>"));
    }

    pub fn rect(&mut self, rect: Rect, fill: &str) {
        self.push(format_args!("<rect {} fill=\"{fill}\"/>", place(rect)));
    }

    pub fn frame(&mut self, rect: Rect, stroke: Stroke) {
        self.push(format_args!("<rect {} fill=\"none\" {}/>", place(rect), stroke.attributes()));
    }

    /// Pixels stretched over the box, with hard edges between them.
    pub fn image(&mut self, rect: Rect, pixels: &Pixels) {
        let colours = PngColours::Palette(&pixels.palette);
        let bytes = encode_png(pixels.width as u32, pixels.height as u32, colours, &pixels.indices);
        let data = base64::engine::general_purpose::STANDARD.encode(bytes);
        let how = "preserveAspectRatio=\"none\" style=\"image-rendering: pixelated\"";
        self.push(format_args!("<image {} {how} href=\"data:image/png;base64,{data}\"/>", place(rect)));
    }

    /// Closes the page at a height.
    pub fn finish(self, height: f64) -> Figure {
        let (width, height) = (WIDTH, height.ceil());
        let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"");
        let font = "font-family=\"Ubuntu, Helvetica, Arial, sans-serif\"";
        let ground = format!("<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>");
        let svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} {font}>\n{ground}\n{}</svg>\n", self.body);
        Figure { svg, width, height }
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        writeln!(self.body, "{element}").expect("writing to a string cannot fail");
    }
}

fn place(rect: Rect) -> String {
    let (x, y, width, height) = (number(rect.x), number(rect.y), number(rect.width), number(rect.height));
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
}

fn join(points: &[(f64, f64)]) -> String {
    points.iter().map(|point| format!("{},{}", number(point.0), number(point.1))).collect::<Vec<_>>().join(" ")
}

/// A coordinate to a hundredth, without needless zeros.
fn number(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

/// How the bytes of a PNG mean colours.
pub enum PngColours<'a> {
    Rgb,
    Palette(&'a [[u8; 3]]),
}

/// Eight-bit pixels as a PNG file.
pub fn encode_png(width: u32, height: u32, colours: PngColours, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    match colours {
        PngColours::Rgb => encoder.set_color(png::ColorType::Rgb),
        PngColours::Palette(palette) => {
            encoder.set_color(png::ColorType::Indexed);
            encoder.set_palette(palette.concat());
        }
    }
    let mut writer = encoder.write_header().expect("a PNG has a positive size");
    writer.write_image_data(pixels).expect("the pixels fill the PNG");
    writer.finish().expect("writing to memory cannot fail");
    bytes
}
