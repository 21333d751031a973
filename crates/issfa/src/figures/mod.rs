//! Figures for papers and reports: pure functions from plain data to an SVG, and the same picture as PNG.
//!
//! | file | draws |
//! |---|---|
//! | [`lines`] | stacked panels of lines over one x axis (traces) |
//! | [`images`] | rows of small maps or curves on a grid (features) |
//! | [`brain`] | slices of a brain volume over the anatomy, time courses beneath |
//! | [`bars`] | histograms and bar charts |
//! | [`colour`], [`ticks`] | colour maps, scales |
//! | [`resample`] | volumes in space, and the slices of them |
//! | `overlay`, `courses` | what only [`brain`] is made of |
//! | `canvas`, `text`, `axes`, `legend`, `slice`, `panel` | the parts they are made of |
//! | `svg`; `paint`, `lettering`, `png_bytes` | a page as SVG; as PNG |

mod axes;
pub mod bars;
pub mod brain;
mod canvas;
pub mod colour;
mod courses;
pub mod images;
mod legend;
mod lettering;
pub mod lines;
mod overlay;
mod paint;
mod panel;
mod png_bytes;
pub mod resample;
mod slice;
mod svg;
mod text;
pub mod ticks;

pub use text::NO_BREAK;

use crate::error::{Error, Result};
use crate::numeric::files::write_lightly;
use canvas::Shape;
use png_bytes::PngColours;
use std::path::Path;

/// Width of every figure, in CSS pixels.
pub const WIDTH: f64 = 900.0;

/// PNG pixels for one CSS pixel.
const PNG_SCALE: u32 = 2;

/// A finished picture.
#[derive(Debug, Clone)]
pub struct Figure {
    shapes: Vec<Shape>,
    svg: String,
    width: f64,
    height: f64,
}

impl Figure {
    fn new(shapes: Vec<Shape>, width: f64, height: f64) -> Figure {
        let svg = svg::write(&shapes, width, height);
        Figure { shapes, svg, width, height }
    }

    /// The picture as SVG text.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// Width and height in CSS pixels.
    pub fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }

    /// The picture as PNG bytes, at twice its size.
    pub fn png(&self) -> Vec<u8> {
        let (width, height) = (self.width as u32, self.height as u32);
        let pixels = paint::paint(&self.shapes, (width, height), PNG_SCALE);
        png_bytes::encode(width * PNG_SCALE, height * PNG_SCALE, PngColours::Rgb, &pixels)
    }

    /// Writes `NAME.svg` and `NAME.png` into the folder, which is made where it is missing.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::write(folder))?;
        write_lightly(&folder.join(format!("{name}.svg")), self.svg.as_bytes())?;
        write_lightly(&folder.join(format!("{name}.png")), &self.png())
    }
}

/// What the tests of the sibling files ask of every figure: its tags close, its PNG has the right size and is not blank.
#[cfg(test)]
pub(crate) fn check(figure: &Figure) {
    assert!(is_balanced(&figure.svg), "the SVG is well formed");
    let is_bad = |text| figure.svg.contains(text);
    assert!(!["\"NaN", "NaN,", ",NaN", "\"inf", "\"-inf", "inf,", ",inf"].into_iter().any(is_bad), "not finite");
    let (size, pixels) = decode(&figure.png());
    assert_eq!(size, (figure.width as u32 * 2, figure.height as u32 * 2));
    let dark = pixels.iter().filter(|&&value| value < 128).count();
    assert!(dark > 100, "the figure is blank");
}

/// Whether every element that opens also closes, in order.
#[cfg(test)]
fn is_balanced(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for tag in svg.split('<').skip(1).filter_map(|tag| tag.split_once('>')).map(|(tag, _)| tag) {
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap_or_default();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) if open.pop() != Some(name) => return false,
            (false, false) => open.push(name),
            _ => {}
        }
    }
    open.is_empty()
}

#[cfg(test)]
fn decode(bytes: &[u8]) -> ((u32, u32), Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    ((frame.width, frame.height), pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_both_formats() {
        let folder = std::env::temp_dir().join(format!("issfa-figures-{}", std::process::id()));
        let figure = bars::columns("Saved", "x", "y", &[("a".into(), 1.0)]);
        figure.save(&folder, "one").unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("one.svg")).unwrap(), figure.svg());
        assert_eq!(decode(&std::fs::read(folder.join("one.png")).unwrap()).0.0, 2 * WIDTH as u32);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_impossible_folder_is_a_write_error() {
        let figure = bars::columns("Saved", "x", "y", &[]);
        assert!(matches!(figure.save(Path::new("/dev/null/no"), "one"), Err(Error::Write { .. })));
    }

    #[test]
    fn embedded_images_reach_the_png() {
        let mut canvas = canvas::Canvas::new();
        let red = canvas::Pixels { width: 1, height: 1, indices: vec![0], palette: vec![[255, 0, 0]] };
        canvas.image(canvas::Rect { x: 100.0, y: 10.0, width: 50.0, height: 50.0 }, red);
        let (_, pixels) = decode(&canvas.finish(80.0).png());
        let at = (70 * 2 * WIDTH as usize + 250) * 3;
        assert_eq!(pixels[at..at + 3], [255, 0, 0]);
    }
}
