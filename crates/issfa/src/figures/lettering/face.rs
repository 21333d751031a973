//! One TrueType font: its tables, which glyph a letter has, and how wide it is.

use super::kerning::Pairs;

/// A font of the program's own: tables are trusted, and read as far as our two fonts use the format.
pub struct Face {
    letters: Table,
    pub(super) glyph_places: Table,
    pub(super) glyph_data: Table,
    widths: Table,
    n_widths: usize,
    units_per_em: f32,
    pairs: Vec<Pairs>,
}

impl Face {
    pub fn new(font: &'static [u8]) -> Face {
        let file = Table(font);
        let table = |name: &[u8; 4]| file.find(name).expect("our fonts have every table that we read");
        let head = table(b"head");
        assert_eq!(head.u16(50), 1, "places of glyphs in our fonts are long");
        Face {
            letters: letters(table(b"cmap")),
            glyph_places: table(b"loca"),
            glyph_data: table(b"glyf"),
            widths: table(b"hmtx"),
            n_widths: table(b"hhea").u16(34) as usize,
            units_per_em: f32::from(head.u16(18)),
            pairs: file.find(b"GPOS").map(Pairs::all).unwrap_or_default(),
        }
    }

    pub fn units_per_em(&self) -> f32 {
        self.units_per_em
    }

    /// The glyph of a letter, if the font has one.
    pub fn glyph(&self, letter: char) -> Option<u16> {
        let code = u16::try_from(u32::from(letter)).ok()?;
        let n_bytes = self.letters.u16(6) as usize;
        let (ends, starts) = (self.letters.from(14), self.letters.from(16 + n_bytes));
        let (steps, places) = (self.letters.from(16 + 2 * n_bytes), self.letters.from(16 + 3 * n_bytes));
        let at = (0..n_bytes).step_by(2).find(|&at| ends.u16(at) >= code)?;
        let past_start = code.checked_sub(starts.u16(at))?;
        let glyph = match places.u16(at) as usize {
            0 => code.wrapping_add(steps.u16(at)),
            place => match places.u16(at + place + 2 * past_start as usize) {
                0 => 0,
                glyph => glyph.wrapping_add(steps.u16(at)),
            },
        };
        (glyph != 0).then_some(glyph)
    }

    /// How far the next letter is, in font units.
    pub fn advance(&self, glyph: u16) -> f32 {
        f32::from(self.widths.u16(4 * (glyph as usize).min(self.n_widths - 1)))
    }

    /// How much further it is between two glyphs, in font units.
    pub fn kerning(&self, left: u16, right: u16) -> f32 {
        self.pairs.iter().map(|pairs| f32::from(pairs.between(left, right))).sum()
    }
}

/// The map from letters to glyphs in segments (format 4).
fn letters(map: Table) -> Table {
    let mut maps = (0..map.u16(2) as usize).map(|index| map.from(map.u32(8 + 8 * index) as usize));
    maps.find(|map| map.u16(0) == 4).expect("our fonts map letters in segments")
}

/// Bytes from some place of a font on; numbers are big-endian.
#[derive(Clone, Copy)]
pub struct Table(&'static [u8]);

impl Table {
    /// A table of a font file by its name.
    fn find(self, name: &[u8; 4]) -> Option<Table> {
        let mut records = (0..self.u16(4) as usize).map(|index| self.from(12 + 16 * index));
        let record = records.find(|record| record.0.starts_with(name))?;
        Some(self.from(record.u32(8) as usize))
    }

    pub fn from(self, at: usize) -> Table {
        Table(&self.0[at..])
    }

    pub fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    pub fn u16(self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    pub fn i16(self, at: usize) -> i16 {
        self.u16(at) as i16
    }

    pub fn u32(self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_glyphs_and_widths() {
        let face = Face::new(epaint_default_fonts::HACK_REGULAR);
        let widths = "iW0.é".chars().map(|letter| face.advance(face.glyph(letter).unwrap()));
        assert!(widths.into_iter().all(|width| width == 1233.0), "all letters of this font are as wide");
        assert_eq!((face.units_per_em(), face.glyph('\u{e000}'), face.glyph('🙂')), (2048.0, None, None));
    }
}
