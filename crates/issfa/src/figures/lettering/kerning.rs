//! Which pairs of glyphs stand closer together or further apart.

use super::face::Table;

/// The only adjustment in our fonts: the advance of the left glyph.
const ADVANCE_ONLY: u16 = 4;

/// One list of adjusted pairs; a pair's kerning is the sum over all lists.
pub struct Pairs {
    table: Table,
}

impl Pairs {
    /// The lists of a font's table of positions, which in our fonts holds nothing else.
    pub fn all(positions: Table) -> Vec<Pairs> {
        let lookups = positions.from(positions.u16(8) as usize);
        let list = |index: usize| {
            let lookup = lookups.from(lookups.u16(2 + 2 * index) as usize);
            let table = lookup.from(lookup.u16(6) as usize);
            assert_eq!((lookup.u16(0), lookup.u16(4)), (2, 1), "our fonts have one table of pairs in each list");
            assert_eq!((table.u16(4), table.u16(6)), (ADVANCE_ONLY, 0), "our fonts adjust only advances");
            Pairs { table }
        };
        (0..lookups.u16(0) as usize).map(list).collect()
    }

    /// What is added between two glyphs, in font units.
    pub fn between(&self, left: u16, right: u16) -> i16 {
        let Some(index) = coverage(self.table.from(self.table.u16(2) as usize), left) else { return 0 };
        match self.table.u16(0) {
            1 => self.listed(index, right),
            _ => self.by_class(left, right),
        }
    }

    fn listed(&self, index: usize, right: u16) -> i16 {
        let set = self.table.from(self.table.u16(10 + 2 * index) as usize);
        let mut pairs = (0..set.u16(0) as usize).map(|pair| set.from(2 + 4 * pair));
        pairs.find(|pair| pair.u16(0) == right).map_or(0, |pair| pair.i16(2))
    }

    fn by_class(&self, left: u16, right: u16) -> i16 {
        let class = |at: usize, glyph| class(self.table.from(self.table.u16(at) as usize), glyph) as usize;
        let n_right = self.table.u16(14) as usize;
        self.table.i16(16 + 2 * (class(8, left) * n_right + class(10, right)))
    }
}

/// The index of a glyph among the covered ones.
fn coverage(table: Table, glyph: u16) -> Option<usize> {
    let n_entries = table.u16(2) as usize;
    if table.u16(0) == 1 {
        return (0..n_entries).find(|index| table.u16(4 + 2 * index) == glyph);
    }
    let range = range(table.from(4), n_entries, glyph)?;
    Some((range.u16(4) + (glyph - range.u16(0))) as usize)
}

/// The class of a glyph; 0 for all that are not listed.
fn class(table: Table, glyph: u16) -> u16 {
    if table.u16(0) == 1 {
        let index = glyph.checked_sub(table.u16(2)).filter(|&index| index < table.u16(4));
        return index.map_or(0, |index| table.u16(6 + 2 * index as usize));
    }
    range(table.from(4), table.u16(2) as usize, glyph).map_or(0, |range| range.u16(4))
}

/// The range, of records of first glyph, last glyph and a number, that holds the glyph.
fn range(records: Table, n_records: usize, glyph: u16) -> Option<Table> {
    let mut ranges = (0..n_records).map(|index| records.from(6 * index));
    ranges.find(|range| (range.u16(0)..=range.u16(2)).contains(&glyph))
}

#[cfg(test)]
mod tests {
    use super::super::face::Face;

    #[test]
    fn pairs_of_the_fonts() {
        let face = Face::new(epaint_default_fonts::UBUNTU_LIGHT);
        let kerning = |left, right| face.kerning(face.glyph(left).unwrap(), face.glyph(right).unwrap());
        assert!(kerning('T', 'o') < -20.0 && kerning('A', 'V') < -20.0, "{} {}", kerning('T', 'o'), kerning('A', 'V'));
        assert_eq!((kerning('n', 'n'), kerning('1', '0')), (0.0, 0.0));
        assert_eq!(Face::new(epaint_default_fonts::HACK_REGULAR).kerning(40, 50), 0.0);
    }
}
