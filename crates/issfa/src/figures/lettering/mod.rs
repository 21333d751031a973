//! Text as outlines, set in the fonts inside the program, so that a PNG looks alike on machines with no fonts.
//!
//! The crates that read any font are large to build; two known fonts need little: letters in a row, left to right,
//! with kerning, raised digits and a second font for letters that the first lacks.

mod face;
mod glyphs;
mod kerning;

use super::text::{Anchor, Piece, RAISED_SIZE, pieces, plain};
use face::Face;
use std::sync::LazyLock;
use tiny_skia::{Path, PathBuilder, Transform};

/// The first is for all letters that it has.
static FACES: LazyLock<[Face; 2]> = LazyLock::new(|| {
    let fonts: [&[u8]; 2] = [epaint_default_fonts::UBUNTU_LIGHT, epaint_default_fonts::HACK_REGULAR];
    fonts.map(Face::new)
});

/// The outlines of a text in a size, y down, with its baseline and the part of it that the anchor names at the origin.
/// None where there is nothing to see.
pub fn outline(text: &str, size: f32, anchor: Anchor) -> Option<Path> {
    let mut pen = Pen { x: 0.0, baseline: 0.0, path: PathBuilder::new() };
    for piece in pieces(&plain(text)) {
        pen.baseline += piece.shift() as f32 * size;
        pen.write(&piece, size);
    }
    let share = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => 0.5,
        Anchor::End => 1.0,
    };
    pen.path.finish()?.transform(Transform::from_translate(-share * pen.x, 0.0))
}

/// Where the next letter goes, and what is written.
struct Pen {
    x: f32,
    baseline: f32,
    path: PathBuilder,
}

impl Pen {
    fn write(&mut self, piece: &Piece, size: f32) {
        let size = if piece.is_raised { RAISED_SIZE as f32 * size } else { size };
        let mut last = None;
        for letter in joined(&piece.text).chars() {
            let (index, glyph) = find(letter);
            let face = &FACES[index];
            let scale = size / face.units_per_em();
            self.x += match last {
                Some((last_index, left)) if last_index == index => scale * face.kerning(left, glyph),
                _ => 0.0,
            };
            let place = Transform::from_row(scale, 0.0, 0.0, -scale, self.x, self.baseline);
            face.draw(glyph, place, &mut self.path);
            self.x += scale * face.advance(glyph);
            last = Some((index, glyph));
        }
    }
}

/// The face that has a letter, and its glyph there; letters in no face are the first one's box for missing ones.
fn find(letter: char) -> (usize, u16) {
    let glyph = |(index, face): (usize, &Face)| Some((index, face.glyph(letter)?));
    FACES.iter().enumerate().find_map(glyph).unwrap_or((0, 0))
}

/// The text with its pairs of letters that are cut as one.
fn joined(text: &str) -> String {
    text.replace("fi", "\u{fb01}").replace("fl", "\u{fb02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(text: &str) -> f32 {
        outline(text, 100.0, Anchor::Start).map_or(0.0, |path| path.bounds().right())
    }

    #[test]
    fn anchors_move_the_text() {
        let bounds = |anchor| outline("Hill", 10.0, anchor).unwrap().bounds();
        let (start, middle, end) = (bounds(Anchor::Start), bounds(Anchor::Middle), bounds(Anchor::End));
        assert!(start.left() > 0.0 && start.left() < 2.0 && end.right() < 0.0 && end.right() > -2.0);
        assert!((start.left() + end.left() - 2.0 * middle.left()).abs() < 1e-4);
        assert!(start.top() < -6.0 && start.top() > -9.0 && start.bottom().abs() < 0.5, "{start:?}");
    }

    #[test]
    fn pairs_are_kerned_and_joined() {
        let to_next = |pair: &str| width(pair) - width(&pair[1..]);
        assert!(to_next("AV") < to_next("AA") - 2.0, "{} {}", to_next("AV"), to_next("AA"));
        assert_eq!(joined("fit flat"), "\u{fb01}t \u{fb02}at");
    }

    #[test]
    fn digits_are_raised_and_the_line_comes_back() {
        let raised = outline("10⁵", 100.0, Anchor::Start).unwrap().bounds();
        assert!(raised.top() < outline("105", 100.0, Anchor::Start).unwrap().bounds().top() - 5.0);
        let after = outline("10⁵ m", 100.0, Anchor::Start).unwrap().bounds();
        assert!(after.bottom().abs() < 3.0, "{after:?}");
    }

    #[test]
    fn letters_of_other_fonts_and_unknown_ones_are_drawn() {
        assert_eq!((find('σ').0, find('é').0, find('−').0), (0, 0, 0));
        assert_eq!(find('⟨').0, 1);
        assert_eq!(find('\u{10ffff}'), (0, 0));
        assert!(width("\u{10ffff}") > 10.0);
        assert!(outline(" \u{7} ", 10.0, Anchor::Middle).is_none());
    }
}
