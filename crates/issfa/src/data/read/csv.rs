//! Text tables, .csv and .tsv, held in memory as f64.
//!
//! A .tsv file is separated by tabs. A .csv file is separated by commas; when its first line has none, by semicolons,
//! else by tabs, else by any run of white space. Decimals are written with a point. The first line is a header when
//! none of its cells is a number. Empty cells, `nan` and `NA` read as NaN.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{RowSource, open_file, rows_asked_for};
use crate::error::{Error, Result};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Characters of a wrong cell that an error repeats.
const SHOWN: usize = 40;

/// A table of numbers, one line a row.
pub struct TextTable {
    path: PathBuf,
    n_columns: usize,
    has_header: bool,
    values: Vec<f64>,
}

impl TextTable {
    /// Reads a table whose separator shows in its first line.
    pub fn open_csv(path: &Path) -> Result<TextTable> {
        TextTable::read(path, lines_of(path)?, None)
    }

    /// Reads a table separated by tabs.
    pub fn open_tsv(path: &Path) -> Result<TextTable> {
        TextTable::read(path, lines_of(path)?, Some(Separator::Mark(b'\t')))
    }

    fn read(path: &Path, mut file: impl BufRead, separator: Option<Separator>) -> Result<TextTable> {
        let mut table = TableBuilder::new(path, separator);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if file.read_until(b'\n', &mut line).map_err(Error::read(path))? == 0 {
                break;
            }
            table.add_line(number, &line)?;
        }
        table.finish()
    }
}

fn lines_of(path: &Path) -> Result<impl BufRead> {
    Ok(BufReader::with_capacity(1 << 18, open_file(path)?))
}

impl RowSource for TextTable {
    fn path(&self) -> &Path {
        &self.path
    }

    fn n_rows(&self) -> usize {
        self.values.len() / self.n_columns
    }

    fn n_sites(&self) -> usize {
        self.n_columns
    }

    fn grid(&self) -> Option<&[usize]> {
        None
    }

    fn has_header(&self) -> bool {
        self.has_header
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        rows_asked_for(self, first_row, out.len());
        out.copy_from_slice(&self.values[first_row * self.n_columns..][..out.len()]);
        Ok(())
    }
}

/// What stands between the cells of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Separator {
    Mark(u8),
    WhiteSpace,
}

impl Separator {
    /// The first of `marks` that the line has, or else white space.
    pub(crate) fn of_first_line(line: &str, marks: [u8; 3]) -> Separator {
        let mark = marks.into_iter().find(|&mark| line.contains(char::from(mark)));
        mark.map_or(Separator::WhiteSpace, Separator::Mark)
    }

    /// Calls `visit` with each cell of a line, trimmed, until one fails.
    pub(crate) fn for_each_cell(self, line: &str, mut visit: impl FnMut(&str) -> Result<()>) -> Result<()> {
        match self {
            Separator::WhiteSpace => line.split_whitespace().try_for_each(visit),
            Separator::Mark(mark) if line.contains('"') => {
                unquoted(line, mark).iter().try_for_each(|cell| visit(cell.trim()))
            }
            Separator::Mark(mark) => line.split(char::from(mark)).try_for_each(|cell| visit(cell.trim())),
        }
    }
}

/// The cells of a line with quotes in it. One line at a time, so that line numbers stay true and blank lines are seen.
fn unquoted(line: &str, mark: u8) -> ::csv::StringRecord {
    let mut settings = ::csv::ReaderBuilder::new();
    settings.delimiter(mark).has_headers(false).flexible(true).buffer_capacity(line.len());
    let mut cells = ::csv::StringRecord::new();
    let read = settings.from_reader(line.as_bytes()).read_record(&mut cells);
    debug_assert!(read.is_ok(), "a line in memory that is UTF-8 can always be read");
    cells
}

enum Cell {
    Number(f64),
    Missing,
    Text,
}

impl Cell {
    fn parse(text: &str) -> Cell {
        if ["", "na", "nan"].iter().any(|missing| text.eq_ignore_ascii_case(missing)) {
            return Cell::Missing;
        }
        text.parse().map_or(Cell::Text, Cell::Number)
    }
}

/// The first line that is not blank, to which the others are held.
#[derive(Clone, Copy)]
struct FirstLine {
    number: usize,
    separator: Separator,
    n_columns: usize,
}

struct TableBuilder<'a> {
    path: &'a Path,
    separator: Option<Separator>,
    first_line: Option<FirstLine>,
    /// Lines without content since the last one with some: harmless at the end, a missing row before another.
    n_blank: usize,
    has_header: bool,
    values: Vec<f64>,
}

impl TableBuilder<'_> {
    fn new(path: &Path, separator: Option<Separator>) -> TableBuilder<'_> {
        TableBuilder { path, separator, first_line: None, n_blank: 0, has_header: false, values: Vec::new() }
    }

    fn add_line(&mut self, number: usize, bytes: &[u8]) -> Result<()> {
        let bytes = if number == 1 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes) } else { bytes };
        let Ok(line) = std::str::from_utf8(bytes) else {
            return Err(Error::malformed(
                self.path,
                format!("line {number} is not UTF-8 text; save the file as UTF-8"),
            ));
        };
        let line = line.trim_end_matches(['\n', '\r']);
        if line.contains('\r') {
            // Rows ended so would otherwise run together into one.
            let problem = format!("line {number} has a carriage return within it; save the file with \\n line ends");
            return Err(Error::malformed(self.path, problem));
        }
        if line.trim_matches(' ').is_empty() {
            self.n_blank += 1;
            return Ok(());
        }
        match self.first_line {
            None => self.add_first_line(number, line),
            Some(first) => {
                self.add_blank_rows(number, first)?;
                self.add_row(number, line, first)
            }
        }
    }

    fn add_first_line(&mut self, number: usize, line: &str) -> Result<()> {
        self.n_blank = 0;
        let separator = self.separator.unwrap_or_else(|| Separator::of_first_line(line, [b',', b';', b'\t']));
        let (mut n_columns, mut n_numbers, mut n_texts) = (0, 0, 0);
        separator.for_each_cell(line, |cell| {
            n_columns += 1;
            match Cell::parse(cell) {
                Cell::Number(_) => n_numbers += 1,
                Cell::Text => n_texts += 1,
                Cell::Missing => {}
            }
            Ok(())
        })?;
        let first = FirstLine { number, separator, n_columns };
        self.first_line = Some(first);
        // A line of missing values alone is a row: dropping it as a header would hide them.
        self.has_header = n_numbers == 0 && n_texts > 0;
        if self.has_header { Ok(()) } else { self.add_row(number, line, first) }
    }

    /// In a single column a blank line is an empty cell; in a wider table it is a mistake.
    fn add_blank_rows(&mut self, next: usize, first: FirstLine) -> Result<()> {
        if self.n_blank > 0 && first.n_columns > 1 {
            return Err(self.unequal(next - self.n_blank, 0, first));
        }
        self.values.extend(std::iter::repeat_n(f64::NAN, self.n_blank));
        self.n_blank = 0;
        Ok(())
    }

    fn add_row(&mut self, line: usize, text: &str, first: FirstLine) -> Result<()> {
        let (path, values) = (self.path, &mut self.values);
        let mut n_columns = 0;
        first.separator.for_each_cell(text, |cell| {
            n_columns += 1;
            match Cell::parse(cell) {
                Cell::Number(value) => values.push(value),
                Cell::Missing => values.push(f64::NAN),
                Cell::Text => {
                    let text = cell.chars().take(SHOWN).collect();
                    return Err(Error::NotANumber { path: path.to_path_buf(), line, column: n_columns, text });
                }
            }
            Ok(())
        })?;
        if n_columns == first.n_columns { Ok(()) } else { Err(self.unequal(line, n_columns, first)) }
    }

    fn unequal(&self, line: usize, n_cells: usize, first: FirstLine) -> Error {
        let FirstLine { number, n_columns, .. } = first;
        let problem =
            format!("line {line} has {n_cells} cells, but line {number} has {n_columns}; every line needs as many");
        Error::malformed(self.path, problem)
    }

    fn finish(self) -> Result<TextTable> {
        let Some(first) = self.first_line else {
            return Err(Error::malformed(self.path, "the file is empty; a table needs at least one line of numbers"));
        };
        if self.values.is_empty() {
            return Err(Error::malformed(self.path, "has a header line, but no line of numbers after it"));
        }
        Ok(TextTable {
            path: self.path.to_path_buf(),
            n_columns: first.n_columns,
            has_header: self.has_header,
            values: self.values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ending: &str, text: impl AsRef<[u8]>) -> Result<TextTable> {
        let separator = (ending == "tsv").then_some(Separator::Mark(b'\t'));
        TextTable::read(Path::new("table.csv"), text.as_ref(), separator)
    }

    fn problem(text: impl AsRef<[u8]>) -> String {
        read("csv", text).err().expect("the table is refused").to_string()
    }

    fn rows(table: TextTable) -> Vec<f64> {
        let mut out = vec![0.0; table.n_rows() * table.n_sites()];
        table.read_rows(0, &mut out).unwrap();
        out
    }

    #[test]
    fn every_way_to_write_the_same_table() {
        for text in [
            "1,2.5\n-3,4e1\n",
            "1,2.5\n-3,4e1",
            "1,2.5\r\n-3,4e1\r\n\r\n\n  \n",
            "\u{feff}1,2.5\n-3,4e1\n",
            "\n\n1,2.5\n-3,4e1\n",
            " 1 , 2.5\n-3 ,\t+40.0\n",
            "a,b\n1,2.5\n-3,40\n",
            "\u{feff}\"left, upper\",\"b\"\"c\"\n\"1\",2.5\n-3,\"40\"\n",
            ",b\n1,2.5\n-3,40\n",
            "1;2.5\n-3;40\n",
            "1\t2.5\n-3\t40\n",
            "1 2.5\n  -3    40  \n",
            "x y\n1.000e+00 2.500e+00\n-3.000e+00 4.000e+01\n",
        ] {
            let table = read("csv", text).unwrap();
            assert_eq!((table.n_rows(), table.n_sites(), table.grid()), (2, 2, None), "{text:?}");
            assert_eq!(rows(table), [1.0, 2.5, -3.0, 40.0], "{text:?}");
        }
        assert_eq!(rows(read("tsv", "name, first\tb\n1\t2\n").unwrap()), [1.0, 2.0]);
    }

    #[test]
    fn rows_from_the_middle() {
        let table = read("csv", "0,1\n2,3\n4,5\n6,7\n").unwrap();
        let mut out = [0.0; 4];
        table.read_rows(1, &mut out).unwrap();
        assert_eq!(out, [2.0, 3.0, 4.0, 5.0]);
        table.read_rows(4, &mut []).unwrap();
    }

    #[test]
    fn missing_cells_are_nan_and_keep_their_place() {
        for text in ["NA,nan\n,1\n", ",\nNaN,1\n", "a,b\nNA,na\n\"\",1\n"] {
            let values = rows(read("csv", text).unwrap());
            assert_eq!(values.len(), 4, "{text:?}");
            assert!(values[..3].iter().all(|value| value.is_nan()) && values[3] == 1.0, "{text:?}");
        }
        assert!(rows(read("tsv", "1\t2\n\t\n").unwrap())[2..].iter().all(|value| value.is_nan()));
        let column = rows(read("csv", "x\n1\n\n3\n\n").unwrap());
        assert!(column.len() == 3 && column[1].is_nan() && column[2] == 3.0);
        assert_eq!(rows(read("csv", "inf,1\n").unwrap())[0], f64::INFINITY);
    }

    #[test]
    fn text_is_named_by_line_and_column() {
        for (text, line, column, wrong) in [
            ("a,b\n1,2\n3,four\n", 3, 2, "four"),
            ("1,b\n", 1, 2, "b"),
            ("a,b\nc,d\n", 2, 1, "c"),
            ("\n1,2\n\"5 6\",2\n", 3, 1, "5 6"),
            ("1,5;2,5\n", 1, 2, "5;2"),
            ("a;b\n1,5;2\n", 2, 1, "1,5"),
        ] {
            let error = read("csv", text).err();
            let Some(Error::NotANumber { line: at, column: across, text: found, .. }) = error else {
                panic!("{text:?}: {error:?}")
            };
            assert_eq!((at, across, found.as_str()), (line, column, wrong), "{text:?}");
        }
        let long = "x".repeat(1000);
        assert!(problem(format!("1\n{long}\n")).len() < 400);
    }

    #[test]
    fn malformed_tables_say_what_is_wrong() {
        assert!(problem("").contains("the file is empty"));
        assert!(problem("\u{feff}\r\n\n").contains("the file is empty"));
        assert!(problem("a,b\n\n").contains("no line of numbers"));
        assert!(problem("1,2\n3,4\n5\n").contains("line 3 has 1 cells, but line 1 has 2"));
        assert!(problem("\na,b\n1,2,3\n").contains("line 3 has 3 cells, but line 2 has 2"));
        assert!(problem("1,2\n\n\n3,4\n").contains("line 2 has 0 cells, but line 1 has 2"));
        assert!(problem(b"1,2\n\xff,4\n").contains("line 2 is not UTF-8"));
        assert!(problem("1\r2\r3\r").contains("line 1 has a carriage return"));
        assert!(problem("").contains("table.csv"));
    }

    #[test]
    fn no_truncation_and_no_flipped_byte_panics() {
        let valid = "\u{feff}\"a\",b;c\r\n1.5,-2e3\r\n\"3\",NA\n\n".as_bytes();
        for length in 0..valid.len() {
            let _ = read("csv", &valid[..length]);
        }
        for place in 0..valid.len() {
            for byte in 0..=255 {
                let mut text = valid.to_vec();
                text[place] = byte;
                let _ = (read("csv", &text), read("tsv", &text));
            }
        }
    }
}
