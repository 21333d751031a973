//! Outlines of glyphs: contours of lines and quadratic curves, or other glyphs put together.

use super::face::{Face, Table};
use tiny_skia::{PathBuilder, Point, Transform};

/// Bits of a point's flags.
mod point {
    pub const ON_CURVE: u8 = 1;
    pub const X_IS_BYTE: u8 = 2;
    pub const Y_IS_BYTE: u8 = 4;
    pub const REPEATS: u8 = 8;
    /// The byte is positive or, where there is none, the coordinate stays.
    pub const X_IS_SAME_OR_POSITIVE: u8 = 16;
    pub const Y_IS_SAME_OR_POSITIVE: u8 = 32;
}

/// Bits of a part's flags, in a glyph put together of others.
mod part {
    pub const WIDE_PLACE: u16 = 1;
    pub const IS_SCALED: u16 = 8;
    pub const MORE_FOLLOW: u16 = 32;
    pub const IS_STRETCHED: u16 = 64;
    pub const IS_TURNED: u16 = 128;
}

impl Face {
    /// Adds the outline of a glyph; the transform takes font units to the path.
    pub fn draw(&self, glyph: u16, transform: Transform, path: &mut PathBuilder) {
        let place = |glyph: usize| self.glyph_places.u32(4 * glyph) as usize;
        let (start, end) = (place(glyph as usize), place(glyph as usize + 1));
        if start == end {
            return;
        }
        let data = self.glyph_data.from(start);
        match data.i16(0) {
            n_contours if n_contours >= 0 => draw_contours(data.from(10), n_contours as usize, transform, path),
            _ => self.draw_parts(data.from(10), transform, path),
        }
    }

    fn draw_parts(&self, mut data: Table, transform: Transform, path: &mut PathBuilder) {
        loop {
            let (flags, glyph) = (data.u16(0), data.u16(2));
            assert!(flags & (part::IS_SCALED | part::IS_STRETCHED | part::IS_TURNED) == 0, "parts keep their size");
            let is_wide = flags & part::WIDE_PLACE != 0;
            let (x, y) = match is_wide {
                true => (f32::from(data.i16(4)), f32::from(data.i16(6))),
                false => (f32::from(data.u8(4) as i8), f32::from(data.u8(5) as i8)),
            };
            self.draw(glyph, transform.pre_translate(x, y), path);
            if flags & part::MORE_FOLLOW == 0 {
                return;
            }
            data = data.from(if is_wide { 8 } else { 6 });
        }
    }
}

#[derive(Clone, Copy)]
struct OutlinePoint {
    place: Point,
    is_on_curve: bool,
}

fn draw_contours(data: Table, n_contours: usize, transform: Transform, path: &mut PathBuilder) {
    let ends: Vec<usize> = (0..n_contours).map(|contour| data.u16(2 * contour) as usize + 1).collect();
    let n_points = ends.last().copied().unwrap_or(0);
    let n_instructions = data.u16(2 * n_contours) as usize;
    let points = points(data.from(2 * n_contours + 2 + n_instructions), n_points, transform);
    let mut start = 0;
    for end in ends {
        draw_contour(&points[start..end], path);
        start = end;
    }
}

/// The points of all contours: first their flags, then their steps in x, then those in y.
fn points(data: Table, n_points: usize, transform: Transform) -> Vec<OutlinePoint> {
    let (flags, n_read) = flags(data, n_points);
    let (xs, n_read) = coordinates(data, n_read, &flags, (point::X_IS_BYTE, point::X_IS_SAME_OR_POSITIVE));
    let (ys, _) = coordinates(data, n_read, &flags, (point::Y_IS_BYTE, point::Y_IS_SAME_OR_POSITIVE));
    let mut places: Vec<Point> = xs.into_iter().zip(ys).map(|(x, y)| Point::from_xy(x, y)).collect();
    transform.map_points(&mut places);
    let on_curve = flags.iter().map(|flags| flags & point::ON_CURVE != 0);
    places.into_iter().zip(on_curve).map(|(place, is_on_curve)| OutlinePoint { place, is_on_curve }).collect()
}

/// One flag for each point, and how many bytes they took.
fn flags(data: Table, n_points: usize) -> (Vec<u8>, usize) {
    let (mut flags, mut at) = (Vec::with_capacity(n_points), 0);
    while flags.len() < n_points {
        let flag = data.u8(at);
        let repeats = flag & point::REPEATS != 0;
        let n_same = if repeats { 1 + data.u8(at + 1) as usize } else { 1 };
        flags.extend(std::iter::repeat_n(flag, n_same));
        at += if repeats { 2 } else { 1 };
    }
    (flags, at)
}

/// One coordinate of each point, and where the bytes after them begin.
fn coordinates(
    data: Table,
    mut at: usize,
    flags: &[u8],
    (is_byte, is_same_or_positive): (u8, u8),
) -> (Vec<f32>, usize) {
    let mut value = 0;
    let mut step = |flag: &u8| {
        match (flag & is_byte != 0, flag & is_same_or_positive != 0) {
            (true, is_positive) => {
                let size = i32::from(data.u8(at));
                value += if is_positive { size } else { -size };
                at += 1;
            }
            (false, false) => {
                value += i32::from(data.i16(at));
                at += 2;
            }
            (false, true) => {}
        }
        value as f32
    };
    (flags.iter().map(&mut step).collect(), at)
}

/// Between two points off the curve, the one in their middle is on it.
fn draw_contour(points: &[OutlinePoint], path: &mut PathBuilder) {
    let (Some(&first), Some(&last)) = (points.first(), points.last()) else { return };
    let (start, rest) = match (first.is_on_curve, last.is_on_curve) {
        (true, _) => (first.place, &points[1..]),
        (false, true) => (last.place, &points[..points.len() - 1]),
        (false, false) => (middle(first.place, last.place), points),
    };
    path.move_to(start.x, start.y);
    let mut control: Option<Point> = None;
    for &OutlinePoint { place, is_on_curve } in rest.iter().chain([&OutlinePoint { place: start, is_on_curve: true }]) {
        match (control, is_on_curve) {
            (None, true) => path.line_to(place.x, place.y),
            (None, false) => control = Some(place),
            (Some(off), true) => {
                path.quad_to(off.x, off.y, place.x, place.y);
                control = None;
            }
            (Some(off), false) => {
                let on = middle(off, place);
                path.quad_to(off.x, off.y, on.x, on.y);
                control = Some(place);
            }
        }
    }
    path.close();
}

fn middle(left: Point, right: Point) -> Point {
    Point::from_xy((left.x + right.x) / 2.0, (left.y + right.y) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiny_skia::Rect;

    fn bounds(face: &Face, letter: char) -> Option<Rect> {
        let mut path = PathBuilder::new();
        face.draw(face.glyph(letter)?, Transform::identity(), &mut path);
        Some(path.finish()?.bounds())
    }

    #[test]
    fn letters_have_their_height() {
        let face = Face::new(epaint_default_fonts::UBUNTU_LIGHT);
        let [capital, accented, low] = ['E', 'É', 'x'].map(|letter| bounds(&face, letter).unwrap());
        assert!(capital.top() == 0.0 && capital.bottom() == 693.0, "{capital:?}");
        assert!(accented.top() == 0.0 && accented.bottom() > 800.0, "an accent stands over its letter: {accented:?}");
        assert!(low.bottom() < capital.bottom());
        assert!(bounds(&face, ' ').is_none());
    }

    #[test]
    fn every_letter_of_both_fonts_is_drawn() {
        for font in [epaint_default_fonts::UBUNTU_LIGHT, epaint_default_fonts::HACK_REGULAR] {
            let face = Face::new(font);
            let letters = ('\u{21}'..='\u{ffff}').filter(|&letter| face.glyph(letter).is_some());
            let (mut n_letters, em) = (0, face.units_per_em());
            for letter in letters {
                n_letters += 1;
                let Some(bounds) = bounds(&face, letter) else { continue };
                assert!(bounds.width() < 4.0 * em && bounds.height() < 3.0 * em, "{letter}: {bounds:?}");
            }
            assert!(n_letters > 1000);
        }
    }
}
