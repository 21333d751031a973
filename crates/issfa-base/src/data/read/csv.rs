//! Text tables, .csv and .tsv, also compressed as .gz, held in memory as f64.
//!
//! A .tsv file is separated by tabs. A .csv file is separated by commas; when its first line has none, by semicolons,
//! else by tabs, else by any run of white space. Decimals are written with a point. The first line is a header when
//! none of its cells is a number. Empty cells, `nan` and `NA` read as NaN. A first column of words or dates beside numbers
//! names the rows.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::gzip::GzipStream;
use super::{Columns, Reading, RowSource, RowsAxis, ending, open_file, rows_asked_for};
use crate::error::{Error, Result};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes read at once.
const BUFFER: usize = 1 << 18;

/// Characters of a wrong cell that an error repeats.
const SHOWN: usize = 40;

/// Whether a first column of words names the rows, or is a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// It is a mistake.
    None,
    /// It names the rows.
    OfRows,
}

/// A table of numbers, one line a row.
pub struct TextTable {
    path: PathBuf,
    n_columns: usize,
    has_header: bool,
    values: Vec<f64>,
    row_names: Option<Vec<String>>,
    column_names: Option<Vec<String>>,
}

impl TextTable {
    /// Reads a table: `.tsv` is separated by tabs, the separator of others shows in their first line.
    pub fn open(path: &Path, reading: &Reading, names: Names) -> Result<TextTable> {
        let (file, ending) = (open_file(path)?, ending(path));
        let separator = ending.starts_with("tsv").then_some(Separator::Mark(b'\t'));
        let builder = TableBuilder { names, columns: reading.columns.clone(), ..TableBuilder::new(path, separator) };
        let table = match ending.ends_with(".gz") {
            false => TextTable::read(BufReader::with_capacity(BUFFER, file), builder)?,
            true => TextTable::read(BufReader::with_capacity(BUFFER, GzipStream::new(file)), builder)
                .map_err(|error| error.with_remedy("a .gz file has to be whole: copy or compress it again"))?,
        };
        Ok(if reading.rows_axis == RowsAxis::Last { table.turned() } else { table })
    }

    /// The same table, whose columns are the rows.
    fn turned(self) -> TextTable {
        let (n_rows, n_columns) = (self.n_rows(), self.n_columns);
        let column = |column: usize| self.values.iter().skip(column).step_by(n_columns).copied();
        TextTable {
            values: (0..n_columns).flat_map(column).collect(),
            n_columns: n_rows,
            path: self.path,
            has_header: self.has_header,
            row_names: self.column_names,
            column_names: self.row_names,
        }
    }

    fn read(mut file: impl BufRead, mut table: TableBuilder) -> Result<TextTable> {
        let path = table.path;
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

/// Whether a file is a text table, by its ending.
pub fn is_table(path: &Path) -> bool {
    ["csv", "csv.gz", "tsv", "tsv.gz"].contains(&ending(path).as_str())
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

    fn row_names(&self) -> Option<&[String]> {
        self.row_names.as_deref()
    }

    fn column_names(&self) -> Option<&[String]> {
        self.column_names.as_deref()
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

/// Whether a cell can be the name of a row: a word or a date, not a number that is written otherwise.
fn is_name(cell: &str) -> bool {
    let n_marks = cell.chars().filter(|mark| ['-', '/', ':'].contains(mark)).count();
    matches!(Cell::parse(cell), Cell::Text) && (n_marks >= 2 || cell.contains(char::is_alphabetic))
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
    names: Names,
    columns: Option<Columns>,
    /// For each column of the file, whether it is used.
    used: Vec<bool>,
    /// The names of rows so far, and the line of the first.
    row_names: Option<(usize, Vec<String>)>,
    column_names: Vec<String>,
}

impl TableBuilder<'_> {
    fn new(path: &Path, separator: Option<Separator>) -> TableBuilder<'_> {
        TableBuilder {
            path,
            separator,
            first_line: None,
            n_blank: 0,
            has_header: false,
            values: Vec::new(),
            names: Names::None,
            columns: None,
            used: Vec::new(),
            row_names: None,
            column_names: Vec::new(),
        }
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
        let mut column_names = Vec::new();
        separator.for_each_cell(line, |cell| {
            n_columns += 1;
            column_names.push(cell.to_string());
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
        let names = self.has_header.then_some(&column_names[..]);
        self.used = match &self.columns {
            None => vec![true; n_columns],
            Some(columns) => columns.used(self.path, n_columns, names)?,
        };
        if self.has_header {
            self.column_names = column_names;
            return Ok(());
        }
        self.add_row(number, line, first)
    }

    /// Whether the first column may name the rows: not where it is to be left out.
    fn may_have_names(&self) -> bool {
        let is_dropped = self.columns.as_ref().is_some_and(|columns| columns.are_dropped) && !self.used[0];
        self.names == Names::OfRows && !is_dropped
    }

    /// Whether the first line of numbers begins with the name of its row.
    fn begins_with_name(&self, line: &str, separator: Separator) -> bool {
        let (mut column, mut has_name, mut has_number) = (0, false, false);
        let looked_at = separator.for_each_cell(line, |cell| {
            column += 1;
            has_name |= column == 1 && is_name(cell);
            has_number |= matches!(Cell::parse(cell), Cell::Number(_));
            Ok(())
        });
        looked_at.is_ok() && has_name && has_number
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
        let (is_first, is_of_data) = (self.values.is_empty(), self.names == Names::OfRows);
        if is_first && self.may_have_names() && self.begins_with_name(text, first.separator) {
            self.row_names = Some((line, Vec::new()));
            self.used[0] = false;
        }
        let (path, values, row_names, used) = (self.path, &mut self.values, &mut self.row_names, &self.used);
        let mut n_columns = 0;
        first.separator.for_each_cell(text, |cell| {
            n_columns += 1;
            if let Some((first_line, names)) = row_names.as_mut().filter(|_| n_columns == 1) {
                return name_row(path, *first_line, names, cell);
            }
            if used.get(n_columns - 1) == Some(&false) {
                return Ok(());
            }
            match Cell::parse(cell) {
                Cell::Number(value) => values.push(value),
                Cell::Missing => values.push(f64::NAN),
                Cell::Text => {
                    let text = cell.chars().take(SHOWN).collect();
                    let path = path.to_path_buf();
                    return Err(Error::NotANumber { path, line, column: n_columns, text, is_of_data });
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
        if self.first_line.is_none() {
            return Err(Error::malformed(self.path, "the file is empty; a table needs at least one line of numbers"));
        }
        if self.values.is_empty() {
            return Err(Error::malformed(self.path, "has a header line, but no line of numbers after it"));
        }
        let is_used = |name: &(usize, String)| self.used[name.0];
        let column_names = self.column_names.into_iter().enumerate().filter(is_used).map(|(_, name)| name).collect();
        Ok(TextTable {
            path: self.path.to_path_buf(),
            n_columns: self.used.iter().filter(|used| **used).count(),
            has_header: self.has_header,
            values: self.values,
            row_names: self.row_names.map(|(_, names)| names),
            column_names: self.has_header.then_some(column_names),
        })
    }
}

/// Adds the name of a row. A number among them shows that the first was none, but a mistake.
fn name_row(path: &Path, first_line: usize, names: &mut Vec<String>, cell: &str) -> Result<()> {
    if let (Cell::Number(_), Some(first)) = (Cell::parse(cell), names.first()) {
        let text = first.chars().take(SHOWN).collect();
        let path = path.to_path_buf();
        return Err(Error::NotANumber { path, line: first_line, column: 1, text, is_of_data: true });
    }
    names.push(cell.to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ending: &str, text: impl AsRef<[u8]>) -> Result<TextTable> {
        let separator = (ending == "tsv").then_some(Separator::Mark(b'\t'));
        let builder = TableBuilder::new(Path::new("table.csv"), separator);
        TextTable::read(text.as_ref(), TableBuilder { names: Names::OfRows, ..builder })
    }

    fn chosen(columns: &str, text: &str) -> Result<TextTable> {
        let columns = Some(Columns::parse(columns).unwrap());
        let builder = TableBuilder::new(Path::new("table.csv"), None);
        TextTable::read(text.as_bytes(), TableBuilder { names: Names::OfRows, columns, ..builder })
    }

    #[test]
    fn columns_are_picked_before_their_cells_are_read() {
        let flowers = "length,width,kind\n1,2,setosa\n3,4,other\n";
        assert!(matches!(read("csv", flowers), Err(Error::NotANumber { column: 3, .. })));
        for columns in ["^kind", "^3", "1-2", "length,width"] {
            let table = chosen(columns, flowers).unwrap();
            assert_eq!(table.column_names().unwrap(), ["length", "width"]);
            assert_eq!(rows(table), [1.0, 2.0, 3.0, 4.0], "{columns}");
        }
        assert_eq!(rows(chosen("2", "1,2,x\n3,4,y\n").unwrap()), [2.0, 4.0]);
        // A column of names stays one, unless it is left out.
        let named = chosen("b", "name,a,b\nx,1,2\ny,3,4\n").unwrap();
        assert_eq!(named.row_names().unwrap(), ["x", "y"]);
        assert_eq!(rows(named), [2.0, 4.0]);
        let nameless = chosen("^1", "name,a,b\nx,1,2\ny,3,4\n").unwrap();
        assert!(nameless.row_names().is_none() && rows(nameless) == [1.0, 2.0, 3.0, 4.0]);
        assert!(chosen("4", "1,2,3\n").is_err());
        let turned = chosen("1-3", "day,a,b\nx,1,2\ny,3,4\nz,5,6\n").unwrap().turned();
        assert_eq!((turned.row_names().unwrap().len(), turned.column_names().unwrap().len()), (2, 3));
        assert_eq!(rows(turned), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
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
    fn a_first_column_of_words_or_dates_names_the_rows() {
        for (text, names, columns) in [
            ("a,1,2\nb,3,4\n", ["a", "b"], None),
            (",x,y\na,1,2\nb,3,4\n", ["a", "b"], Some(["x", "y"])),
            ("day,x,y\n2020-01-01,1,2\n2020-01-02,3,4\n", ["2020-01-01", "2020-01-02"], Some(["x", "y"])),
        ] {
            let table = read("csv", text).unwrap();
            assert_eq!(table.row_names().unwrap(), names, "{text:?}");
            assert_eq!(table.column_names(), columns.map(|names| names.map(String::from)).as_ref().map(|x| &x[..]));
            assert_eq!((table.n_sites(), rows(table)), (2, vec![1.0, 2.0, 3.0, 4.0]), "{text:?}");
        }
        // Elsewhere words are a mistake, and so is one among numbers.
        let plain = TextTable::read(&b"a,1,2\n"[..], TableBuilder::new(Path::new("graph.csv"), None));
        assert!(matches!(plain, Err(Error::NotANumber { line: 1, column: 1, .. })));
        assert!(matches!(read("csv", "x1,2\n3,4\n"), Err(Error::NotANumber { line: 1, column: 1, .. })));
        assert!(read("csv", "i,j\n1,2\n").unwrap().row_names().is_none());
    }

    #[test]
    fn compressed_tables_are_the_same_tables() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("a.csv.gz", "x,y\n1,2\n3,4\n"), ("a.TSV.gz", "1\t2\n3\t4\n")] {
            let path = folder.path().join(name);
            let whole = crate::data::nifti::by_hand::gzip(text.as_bytes());
            std::fs::write(&path, &whole).unwrap();
            assert_eq!(rows(TextTable::open(&path, &Reading::default(), Names::None).unwrap()), [1.0, 2.0, 3.0, 4.0]);
            for length in 0..whole.len() {
                std::fs::write(&path, &whole[..length]).unwrap();
                let error =
                    TextTable::open(&path, &Reading::default(), Names::None).err().expect("it is refused").to_string();
                assert!(error.contains(name) && error.contains("copy or compress it again"), "{length}: {error}");
            }
        }
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
