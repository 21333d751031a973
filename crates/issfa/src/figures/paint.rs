//! Paints the shapes of a page as pixels.

use super::canvas::{self, Pixels, Shape};
use super::lettering;
use super::text::TextStyle;
use tiny_skia::{
    Color, FillRule, FilterQuality, LineCap, LineJoin, Paint, Path, PathBuilder, Pattern, Pixmap, Rect, SpreadMode,
    Stroke, StrokeDash, Transform,
};

/// Only a light face is at hand: a thin outline brings it to normal weight.
const TEXT_OUTLINE: f32 = 0.2;

/// The page on a white ground: RGB, row-major, `scale` pixels for one CSS pixel.
pub fn paint(shapes: &[Shape], (width, height): (u32, u32), scale: u32) -> Vec<u8> {
    let mut pixmap = Pixmap::new(width * scale, height * scale).expect("a figure has a positive size");
    pixmap.fill(Color::WHITE);
    let mut page = Page { pixmap, scale: Transform::from_scale(scale as f32, scale as f32) };
    shapes.iter().for_each(|shape| page.draw(shape));
    page.pixmap.data().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

struct Page {
    pixmap: Pixmap,
    /// From CSS pixels to ours.
    scale: Transform,
}

impl Page {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Text { place, text, style } => self.text(*place, text, *style),
            Shape::Line { ends, stroke } => self.stroke(chain(ends, false), &pen(stroke), stroke.colour),
            Shape::Polyline { points, stroke } => {
                let round = Stroke { line_cap: LineCap::Round, line_join: LineJoin::Round, ..pen(stroke) };
                self.stroke(chain(points, false), &round, stroke.colour);
            }
            Shape::Polygon { points, fill, opacity } => self.fill(chain(points, true), fill, *opacity),
            Shape::Dot { centre, radius, fill } => self.fill(circle(*centre, *radius), fill, 1.0),
            Shape::Rect { rect, fill } => self.fill(outline(rect), fill, 1.0),
            Shape::Frame { rect, stroke } => self.stroke(outline(rect), &pen(stroke), stroke.colour),
            Shape::Image { rect, pixels } => self.image(rect, pixels),
        }
    }

    fn fill(&mut self, path: Option<Path>, colour: &str, opacity: f64) {
        let Some(path) = path else { return };
        self.pixmap.fill_path(&path, &ink(colour, opacity), FillRule::Winding, self.scale, None);
    }

    fn stroke(&mut self, path: Option<Path>, pen: &Stroke, colour: &str) {
        let Some(path) = path else { return };
        self.pixmap.stroke_path(&path, &ink(colour, 1.0), pen, self.scale, None);
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, style: TextStyle) {
        let Some(path) = lettering::outline(text, style.size as f32, style.anchor) else { return };
        let turn = Transform::from_rotate(style.turn as f32).post_translate(x as f32, y as f32);
        let path = path.transform(turn);
        self.fill(path.clone(), style.colour, 1.0);
        self.stroke(path, &Stroke { width: TEXT_OUTLINE, ..Stroke::default() }, style.colour);
    }

    fn image(&mut self, rect: &canvas::Rect, pixels: &Pixels) {
        let (width, height) = (pixels.width as f32, pixels.height as f32);
        let image = pixmap(pixels);
        let shader = Pattern::new(image.as_ref(), SpreadMode::Pad, FilterQuality::Nearest, 1.0, Transform::identity());
        let stretch = Transform::from_scale(rect.width as f32 / width, rect.height as f32 / height)
            .post_translate(rect.x as f32, rect.y as f32)
            .post_concat(self.scale);
        let whole = Rect::from_xywh(0.0, 0.0, width, height).expect("an image has a positive size");
        self.pixmap.fill_rect(whole, &Paint { shader, ..Paint::default() }, stretch, None);
    }
}

fn pixmap(pixels: &Pixels) -> Pixmap {
    let mut pixmap = Pixmap::new(pixels.width as u32, pixels.height as u32).expect("an image has a positive size");
    for (pixel, &index) in pixmap.data_mut().chunks_exact_mut(4).zip(&pixels.indices) {
        let [red, green, blue] = pixels.palette[index as usize];
        pixel.copy_from_slice(&[red, green, blue, u8::MAX]);
    }
    pixmap
}

/// A path through the points; none where there are too few, or some are not finite.
fn chain(points: &[(f64, f64)], is_closed: bool) -> Option<Path> {
    let (first, rest) = points.split_first()?;
    let mut path = PathBuilder::new();
    path.move_to(first.0 as f32, first.1 as f32);
    rest.iter().for_each(|&(x, y)| path.line_to(x as f32, y as f32));
    if is_closed {
        path.close();
    }
    path.finish()
}

fn circle((x, y): (f64, f64), radius: f64) -> Option<Path> {
    PathBuilder::from_circle(x as f32, y as f32, radius as f32)
}

fn outline(rect: &canvas::Rect) -> Option<Path> {
    let rect = Rect::from_xywh(rect.x as f32, rect.y as f32, rect.width as f32, rect.height as f32)?;
    Some(PathBuilder::from_rect(rect))
}

fn pen(stroke: &canvas::Stroke) -> Stroke {
    let dash = stroke.dashes.and_then(|dashes| StrokeDash::new(dashes.map(f32::from).to_vec(), 0.0));
    Stroke { width: stroke.width as f32, dash, ..Stroke::default() }
}

fn ink(colour: &str, opacity: f64) -> Paint<'static> {
    let [red, green, blue] = rgb(colour).expect("colours are #rrggbb");
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (opacity * 255.0).round() as u8);
    paint
}

fn rgb(colour: &str) -> Option<[u8; 3]> {
    let number = u32::from_str_radix(colour.strip_prefix('#')?, 16).ok()?;
    let [0, red, green, blue] = number.to_be_bytes() else { return None };
    Some([red, green, blue])
}

#[cfg(test)]
mod tests {
    use super::super::canvas::{GRID, INK, QUIET};
    use super::super::colour::PALETTE;
    use super::*;

    fn pixel(pixels: &[u8], width: usize, (x, y): (usize, usize)) -> [u8; 3] {
        let at = (y * width + x) * 3;
        [pixels[at], pixels[at + 1], pixels[at + 2]]
    }

    #[test]
    fn shapes_cover_their_places() {
        let rect = canvas::Rect { x: 2.0, y: 2.0, width: 4.0, height: 4.0 };
        let colours = Pixels { width: 2, height: 1, indices: vec![0, 1], palette: vec![[255, 0, 0], [0, 0, 255]] };
        let stroke = canvas::Stroke::solid("#00ff00", 2.0);
        let shapes = [
            Shape::Rect { rect, fill: "#123456" },
            Shape::Image { rect: canvas::Rect { x: 10.0, ..rect }, pixels: colours },
            Shape::Line { ends: [(0.0, 15.0), (20.0, 15.0)], stroke },
            Shape::Dot { centre: (17.0, 4.0), radius: 2.0, fill: "#000000" },
        ];
        let pixels = paint(&shapes, (20, 20), 2);
        let at = |place| pixel(&pixels, 40, place);
        assert_eq!((at((1, 1)), at((4, 4)), at((11, 11))), ([255; 3], [0x12, 0x34, 0x56], [0x12, 0x34, 0x56]));
        assert_eq!((at((20, 5)), at((23, 5)), at((24, 5))), ([255, 0, 0], [255, 0, 0], [0, 0, 255]));
        assert_eq!(
            (at((3, 27)), at((3, 28)), at((39, 31)), at((39, 32))),
            ([255; 3], [0, 255, 0], [0, 255, 0], [255; 3])
        );
        assert_eq!((at((34, 8)), at((38, 13))), ([0; 3], [255; 3]));
    }

    #[test]
    fn turned_text_runs_up() {
        let text = |turn| {
            let style = TextStyle { colour: "#000000", ..TextStyle::TITLE.turned(turn) };
            let pixels = paint(&[Shape::Text { place: (50.0, 50.0), text: "Hill".into(), style }], (100, 100), 1);
            let dark: Vec<usize> = (0..10_000).filter(|&at| pixels[3 * at] < 128).collect();
            assert!(dark.len() > 30, "the text can be read");
            let (xs, ys) = (dark.iter().map(|at| at % 100), dark.iter().map(|at| at / 100));
            ((xs.clone().min().unwrap(), xs.max().unwrap()), (ys.clone().min().unwrap(), ys.max().unwrap()))
        };
        let (across, up) = (text(0.0), text(-90.0));
        assert!(across.0.0 >= 50 && across.0.1 > 60 && across.1.1 < 52, "{across:?}");
        assert!(up.1.1 <= 50 && up.1.0 < 40 && up.0.1 < 52, "{up:?}");
    }

    #[test]
    fn every_colour_in_use_is_read() {
        assert!(PALETTE.into_iter().chain([INK, QUIET, GRID]).all(|colour| rgb(colour).is_some()));
        assert_eq!(rgb("#0072b2"), Some([0, 0x72, 0xb2]));
        assert!(rgb("red").is_none() && rgb("#1234567").is_none());
    }
}
