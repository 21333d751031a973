//! Writes the shapes of a page as SVG text.

use super::canvas::{Pixels, Rect, Shape, Stroke};
use super::png_bytes::{PngColours, encode};
use super::text::{Anchor, TextStyle, markup};
use base64::Engine;

/// The page on a white ground.
pub fn write(shapes: &[Shape], width: f64, height: f64) -> String {
    let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"");
    let font = "font-family=\"Ubuntu, Helvetica, Arial, sans-serif\"";
    let ground = format!("<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>");
    let body: String = shapes.iter().map(|shape| element(shape) + "\n").collect();
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} {font}>\n{ground}\n{body}</svg>\n")
}

fn element(shape: &Shape) -> String {
    match shape {
        Shape::Text { place, text, style } => text_element(*place, text, *style),
        Shape::Line { ends: [(x1, y1), (x2, y2)], stroke } => {
            format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {}/>", look(stroke))
        }
        Shape::Polyline { points, stroke } => {
            let joins = "fill=\"none\" stroke-linejoin=\"round\" stroke-linecap=\"round\"";
            format!("<polyline points=\"{}\" {joins} {}/>", join(points), look(stroke))
        }
        Shape::Polygon { points, fill, opacity } => {
            format!("<polygon points=\"{}\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>", join(points))
        }
        Shape::Dot { centre: (x, y), radius, fill } => {
            format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>")
        }
        Shape::Rect { rect, fill } => format!("<rect {} fill=\"{fill}\"/>", place(rect)),
        Shape::Frame { rect, stroke } => format!("<rect {} fill=\"none\" {}/>", place(rect), look(stroke)),
        Shape::Image { rect, pixels } => image_element(rect, pixels),
    }
}

fn text_element((x, y): (f64, f64), text: &str, style: TextStyle) -> String {
    let anchor = match style.anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let turn = match style.turn {
        0.0 => String::new(),
        turn => format!(" transform=\"rotate({turn} {x} {y})\""),
    };
    let look = format!("font-size=\"{}\" fill=\"{1}\" color=\"{1}\"", style.size, style.colour);
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" {look}{turn}>{}</text>", markup(text))
}

fn image_element(rect: &Rect, pixels: &Pixels) -> String {
    let colours = PngColours::Palette(&pixels.palette);
    let bytes = encode(pixels.width as u32, pixels.height as u32, colours, &pixels.indices);
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    let how = "preserveAspectRatio=\"none\" style=\"image-rendering: pixelated\"";
    format!("<image {} {how} href=\"data:image/png;base64,{data}\"/>", place(rect))
}

fn look(stroke: &Stroke) -> String {
    let dashes = stroke.dashes.map(|[dash, gap]| format!(" stroke-dasharray=\"{dash} {gap}\"")).unwrap_or_default();
    format!("stroke=\"{}\" stroke-width=\"{}\"{dashes}", stroke.colour, stroke.width)
}

fn place(Rect { x, y, width, height }: &Rect) -> String {
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
}

fn join(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::canvas::Canvas;
    use super::*;

    #[test]
    fn elements_carry_what_was_drawn() {
        let mut canvas = Canvas::new();
        canvas.line((0.0, 1.004), (2.0, -0.001), Stroke::dashed("#123456", 1.1));
        canvas.text(3.0, 4.0, "a<b", TextStyle::LABEL.turned(-90.0));
        let figure = canvas.finish(50.0);
        let line = "<line x1=\"0\" y1=\"1\" x2=\"2\" y2=\"0\" stroke=\"#123456\" stroke-width=\"1.1\" stroke-dasharray=\"5 3\"/>";
        assert!(figure.svg().contains(line), "{}", figure.svg());
        assert!(figure.svg().contains(" transform=\"rotate(-90 3 4)\">a&lt;b</text>"), "{}", figure.svg());
    }
}
