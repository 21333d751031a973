//! Figures for papers and reports: pure functions from plain data to an SVG, and the same picture as PNG.
//!
//! | file | draws |
//! |---|---|
//! | [`lines`] | stacked panels of lines over one x axis (traces) |
//! | [`images`] | rows of small maps or curves on a grid (features) |
//! | [`brain`] | slices of a brain volume over the anatomy, time courses beneath |
//! | [`bars`] | histograms and bar charts |
//! | [`colour`], [`ticks`] | colour maps, scales |
//! | `resample`, `overlay`, `courses` | what only [`brain`] is made of |
//! | `svg`, `text`, `axes`, `legend`, `slice`, `panel` | the parts they are made of |

mod axes;
pub mod bars;
pub mod brain;
pub mod colour;
mod courses;
pub mod images;
mod legend;
pub mod lines;
mod overlay;
mod panel;
mod resample;
mod slice;
mod svg;
mod text;
pub mod ticks;

use crate::error::{Error, Result};
use resvg::{tiny_skia, usvg};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Width of every figure, in CSS pixels.
pub const WIDTH: f64 = 900.0;

/// PNG pixels for one CSS pixel.
const PNG_SCALE: f32 = 2.0;

/// The fonts inside the program, so that a PNG looks alike on machines with no fonts.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    fonts.load_font_data(epaint_default_fonts::HACK_REGULAR.to_vec());
    fonts.set_sans_serif_family("Ubuntu");
    Arc::new(fonts)
});

/// A finished picture.
#[derive(Debug, Clone)]
pub struct Figure {
    svg: String,
    width: f64,
    height: f64,
}

impl Figure {
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
        let tree = self.tree();
        let size = tree.size().to_int_size();
        let (width, height) = (size.width() * PNG_SCALE as u32, size.height() * PNG_SCALE as u32);
        let mut pixmap = tiny_skia::Pixmap::new(width, height).expect("a figure has a positive size");
        resvg::render(&tree, tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE), &mut pixmap.as_mut());
        let opaque: Vec<u8> = pixmap.data().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        svg::encode_png(width, height, svg::PngColours::Rgb, &opaque)
    }

    /// Writes `NAME.svg` and `NAME.png` into the folder, which is made where it is missing.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(Error::write(folder))?;
        write(&folder.join(format!("{name}.svg")), self.svg.as_bytes())?;
        write(&folder.join(format!("{name}.png")), &self.png())
    }

    fn tree(&self) -> usvg::Tree {
        // Only a light face is at hand: a thin outline brings it to normal weight.
        let style_sheet = Some("text { stroke: currentColor; stroke-width: 0.2px }".to_string());
        let options = usvg::Options { fontdb: FONTS.clone(), style_sheet, ..Default::default() };
        usvg::Tree::from_str(&self.svg, &options).expect("our own SVG is well formed")
    }
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    std::fs::write(path, contents).map_err(Error::write(path))
}

/// What the tests of the sibling files ask of every figure: it parses, its PNG has the right size and is not blank.
#[cfg(test)]
pub(crate) fn check(figure: &Figure) {
    figure.tree();
    let is_bad = |text| figure.svg.contains(text);
    assert!(!["\"NaN", "NaN,", ",NaN", "\"inf", "\"-inf", "inf,", ",inf"].into_iter().any(is_bad), "not finite");
    let (size, pixels) = decode(&figure.png());
    assert_eq!(size, (figure.width as u32 * 2, figure.height as u32 * 2));
    let dark = pixels.iter().filter(|&&value| value < 128).count();
    assert!(dark > 100, "the figure is blank");
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
        let mut canvas = svg::Canvas::new();
        let red = svg::Pixels { width: 1, height: 1, indices: vec![0], palette: vec![[255, 0, 0]] };
        canvas.image(svg::Rect { x: 100.0, y: 10.0, width: 50.0, height: 50.0 }, &red);
        let (_, pixels) = decode(&canvas.finish(80.0).png());
        let at = (70 * 2 * WIDTH as usize + 250) * 3;
        assert_eq!(pixels[at..at + 3], [255, 0, 0], "resvg needs its feature raster-images");
    }
}
