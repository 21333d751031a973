//! Confounds of runs (motion, physiology, drifts) as numbers, from the tables that other programs write.
//!
//! A table is separated by tabs; when its first line has none, by commas, else by semicolons, else by any run of white
//! space. Its first line is a header unless all cells there are numbers or missing; without header the columns are
//! called `confound_1`, `confound_2` and so on. Decimals are written with a point.

use std::path::{Path, PathBuf};

use super::read::csv::Separator;
use super::read::text::read_text;
use crate::error::{Error, Result, setting};

/// Ways in which programs write that there is no value, in lower case.
const MISSING: [&str; 6] = ["", "n/a", "na", "nan", "null", "."];

/// Columns that a message lists before it stops: tables may have hundreds.
const LISTED: usize = 12;

/// Characters of a wrong cell that a message repeats.
const SHOWN: usize = 40;

/// A run's confounds: named columns, one value a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Confounds {
    /// Of the columns, in order.
    pub names: Vec<String>,
    /// Rows x columns, row-major; all finite.
    pub values: Vec<f64>,
    /// As many as the run has.
    pub n_rows: usize,
}

impl Confounds {
    /// Columns with their names, row-major.
    pub fn from_values(names: &[&str], values: Vec<f64>) -> Result<Confounds> {
        let n = names.len();
        let problem = if n == 0 || values.is_empty() || !values.len().is_multiple_of(n) {
            format!("{} values are not a whole number of rows of {n} columns, at least one", values.len())
        } else if let Some(at) = values.iter().position(|x| !x.is_finite()) {
            format!(
                "row {}, column {} is {}; every confound must be a finite number",
                at / n,
                names[at % n],
                values[at]
            )
        } else {
            let names = names.iter().map(|name| name.to_string()).collect();
            return Ok(Confounds { names, n_rows: values.len() / n, values });
        };
        Err(Error::malformed(Path::new("confounds"), problem))
    }

    /// The values of a row.
    pub fn row(&self, row: usize) -> &[f64] {
        let n = self.names.len();
        &self.values[row * n..(row + 1) * n]
    }
}

/// Reads one file per run and brings all to the same columns, in the order of the first file.
///
/// `columns` keeps only those named, and only those are looked into; none keeps all, and then every file must have the
/// same. Values missing in a column's first rows, as derivatives have them, get the mean of its others so that they do
/// not pull; elsewhere nothing may be missing.
pub fn read_confounds(paths: &[PathBuf], columns: Option<&[String]>) -> Result<Vec<Confounds>> {
    let tables = paths.iter().map(|path| Table::read(path)).collect::<Result<Vec<_>>>()?;
    let Some((first, others)) = tables.split_first() else { return Ok(Vec::new()) };
    for other in others {
        check_headers_agree(first, other)?;
    }
    let names = match columns {
        Some(wanted) => chosen(wanted, &tables)?,
        None => common(first, others)?,
    };
    tables.iter().map(|table| table.confounds(&names)).collect()
}

fn check_headers_agree(first: &Table, other: &Table) -> Result<()> {
    let [one, two] = match (first.has_header, other.has_header) {
        (true, false) => ["has no header line", "has one"],
        (false, true) => ["has a header line", "has none"],
        _ => return Ok(()),
    };
    let problem =
        format!("{one}, but {} {two}; give the files of all runs with a header or all without", first.shown());
    Err(Error::malformed(other.path, problem))
}

/// The columns asked for, once it is sure that every file has them.
fn chosen(wanted: &[String], tables: &[Table]) -> Result<Vec<String>> {
    if wanted.is_empty() {
        return Err(Error::setting("confound-columns", "(none)", "name at least one column"));
    }
    for name in wanted {
        if let Some(lacking) = tables.iter().find(|table| table.place(name).is_none()) {
            return Err(lacking.lacks(name, tables));
        }
    }
    Ok(tables[0].names.iter().filter(|name| wanted.contains(name)).cloned().collect())
}

/// All columns of the first file, once it is sure that every other file has the same.
fn common(first: &Table, others: &[Table]) -> Result<Vec<String>> {
    first.check_all_named()?;
    for other in others {
        other.check_all_named()?;
        if let Some(name) = first.names.iter().find(|name| other.place(name).is_none()) {
            return Err(other.lacks(name, std::slice::from_ref(first)));
        }
        if let Some(name) = other.names.iter().find(|name| first.place(name).is_none()) {
            let problem = format!(
                "has a column '{name}', which {} has not; give the same columns for every run, or choose columns with \
                 {}",
                first.shown(),
                setting("confound-columns")
            );
            return Err(Error::malformed(other.path, problem));
        }
    }
    Ok(first.names.clone())
}

/// A file whose header is understood and whose cells are still text, so that only columns in use have to be numbers.
#[derive(Debug)]
struct Table<'a> {
    path: &'a Path,
    text: String,
    separator: Separator,
    has_header: bool,
    names: Vec<String>,
}

impl Table<'_> {
    fn read(path: &Path) -> Result<Table<'_>> {
        let text = read_text(path)?;
        let wrong = |problem: &str| Err(Error::malformed(path, problem));
        if text.is_empty() {
            return wrong("the file is empty; give a table of confounds with one line a row of the run");
        }
        let first_line = text.lines().next().unwrap_or_default();
        let separator = Separator::of_first_line(first_line.trim(), [b'\t', b',', b';']);
        let cells = cells_of(separator, first_line);
        if cells.is_empty() {
            return wrong("line 1 is empty; begin the file with its header or with its first row");
        }
        let has_header = !cells.iter().all(|cell| is_missing(cell) || cell.parse::<f64>().is_ok());
        if has_header && text.lines().nth(1).is_none() {
            return wrong("has a header line, but no row after it; give one line a row of the run");
        }
        let by_place = |place: usize| format!("confound_{place}");
        let names = if has_header { cells } else { (1..=cells.len()).map(by_place).collect() };
        check_names_differ(path, &names)?;
        Ok(Table { path, separator, has_header, names, text })
    }

    fn shown(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    fn check_all_named(&self) -> Result<()> {
        let Some(place) = self.place("") else { return Ok(()) };
        let problem = format!(
            "column {} has no name in the header; name it, or choose columns with {}",
            place + 1,
            setting("confound-columns")
        );
        Err(Error::malformed(self.path, problem))
    }

    /// The error that this file has no column of a name, with the first of `tables` that has it.
    fn lacks(&self, name: &str, tables: &[Table]) -> Error {
        let problem = match tables.iter().find(|table| table.place(name).is_some()) {
            Some(other) => format!(
                "has no column '{name}', which {} has; give the same columns for every run, or choose columns that all \
                 files have with {}",
                other.shown(),
                setting("confound-columns")
            ),
            None => format!(
                "has no column '{name}', nor has another file; choose with {} from {}",
                setting("confound-columns"),
                listed(&self.names)
            ),
        };
        Error::malformed(self.path, problem)
    }

    /// The columns of these names, which the table has.
    fn confounds(&self, names: &[String]) -> Result<Confounds> {
        let place = |name: &String| self.place(name).expect("the table was checked to have the column");
        let places: Vec<usize> = names.iter().map(place).collect();
        let mut values: Vec<f64> = Vec::new();
        for (at, line) in self.text.lines().enumerate().skip(usize::from(self.has_header)) {
            let cells = self.row(at + 1, line)?;
            for (name, &place) in names.iter().zip(&places) {
                let above = values.len().checked_sub(names.len()).map(|above| values[above]);
                values.push(self.value(at + 1, name, &cells[place], above)?);
            }
        }
        for (column, name) in names.iter().enumerate() {
            self.fill(name, values.iter_mut().skip(column).step_by(names.len()))?;
        }
        Ok(Confounds { n_rows: values.len() / names.len(), names: names.to_vec(), values })
    }

    /// The cells of a line, as many as the first line has.
    fn row(&self, line: usize, text: &str) -> Result<Vec<String>> {
        let mut cells = cells_of(self.separator, text);
        if cells.is_empty() && self.names.len() == 1 {
            cells.push(String::new()); // in a single column an empty line is an empty cell
        }
        if cells.len() == self.names.len() {
            return Ok(cells);
        }
        let (found, expected) = (cells.len(), self.names.len());
        let problem = format!("line {line} has {found} cells, but line 1 has {expected}; every line needs as many");
        Err(Error::malformed(self.path, problem))
    }

    /// A cell's number, NaN where it is missing and so is everything above it.
    fn value(&self, line: usize, column: &str, text: &str, above: Option<f64>) -> Result<f64> {
        let problem = if is_missing(text) {
            if above.is_none_or(f64::is_nan) {
                return Ok(f64::NAN);
            }
            "is missing after a value; only a column's first rows may be, so fill the cell"
        } else {
            match text.parse::<f64>() {
                Ok(value) if value.is_finite() => return Ok(value),
                Ok(_) => "is not finite; put a number there",
                Err(_) => "is not a number; put a number there (decimals with a point)",
            }
        };
        let shown: String = text.chars().take(SHOWN).collect();
        let problem = format!(
            "line {line}, column '{column}': '{shown}' {problem}, or choose other columns with {}",
            setting("confound-columns")
        );
        Err(Error::malformed(self.path, problem))
    }

    /// Puts the mean of a column's values in the place of those that are missing.
    fn fill<'v>(&self, name: &str, column: impl Iterator<Item = &'v mut f64>) -> Result<()> {
        let (missing, present): (Vec<_>, Vec<_>) = column.partition(|value| value.is_nan());
        if present.is_empty() {
            let problem = format!(
                "column '{name}' has no value in any row; leave it out, or choose other columns with {}",
                setting("confound-columns")
            );
            return Err(Error::malformed(self.path, problem));
        }
        let mean = present.iter().map(|value| **value).sum::<f64>() / present.len() as f64;
        missing.into_iter().for_each(|value| *value = mean);
        Ok(())
    }
}

/// The cells of a line without blanks and quotes around them.
fn cells_of(separator: Separator, line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let keep = |cell: &str| {
        cells.push(cell.trim_matches('"').to_string());
        Ok(())
    };
    separator.for_each_cell(line, keep).expect("keeping a cell does not fail");
    cells
}

fn is_missing(cell: &str) -> bool {
    MISSING.iter().any(|missing| cell.eq_ignore_ascii_case(missing))
}

/// Columns without a name are no double: they cannot be chosen, and are refused where they would be kept.
fn check_names_differ(path: &Path, names: &[String]) -> Result<()> {
    for (place, name) in names.iter().enumerate() {
        let first = names.iter().position(|other| other == name).expect("the name itself is there");
        if first < place && !name.is_empty() {
            let problem = format!(
                "columns {} and {} are both called '{name}'; give every column a name of its own",
                first + 1,
                place + 1
            );
            return Err(Error::malformed(path, problem));
        }
    }
    Ok(())
}

fn listed(names: &[String]) -> String {
    let all = names.iter().filter(|name| !name.is_empty()).map(String::as_str);
    let shown = all.take(LISTED).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED { format!("{shown}, .. ({} in all)", names.len()) } else { shown }
}

impl Confounds {
    /// Brings the columns into the order of these names, which are its own.
    pub fn order_as(&mut self, names: &[String]) {
        let mut names: Vec<&String> = names.iter().collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(*name));
        let place =
            |name: &String| self.names.iter().position(|own| own == name).expect("the names are the table's own");
        let places: Vec<usize> = names.iter().map(|name| place(name)).collect();
        let ordered = |row: &[f64]| places.iter().map(|&at| row[at]).collect::<Vec<_>>();
        self.values = self.values.chunks_exact(self.names.len().max(1)).flat_map(ordered).collect();
        self.names = names.into_iter().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_the_order_asked_for() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let mut table = Confounds { names: names(&["a", "b"]), values: vec![1.0, 2.0, 3.0, 4.0], n_rows: 2 };
        table.order_as(&names(&["b", "a"]));
        assert_eq!((table.names, table.values), (names(&["b", "a"]), vec![2.0, 1.0, 4.0, 3.0]));
    }
    use std::fs;

    /// Reads texts as the files run-1.txt, run-2.txt and so on.
    fn read(texts: &[&str], columns: Option<&[&str]>) -> Result<Vec<Confounds>> {
        let folder = tempfile::tempdir().unwrap();
        let path = |number: usize| folder.path().join(format!("run-{number}.txt"));
        let paths: Vec<PathBuf> = (1..=texts.len()).map(path).collect();
        for (path, text) in paths.iter().zip(texts) {
            fs::write(path, text).unwrap();
        }
        let columns = columns.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        read_confounds(&paths, columns.as_deref())
    }

    fn problem(texts: &[&str], columns: Option<&[&str]>) -> String {
        read(texts, columns).expect_err("the tables are refused").to_string()
    }

    /// Asserts that the message has all of these in it.
    fn assert_says(message: &str, parts: &[&str]) {
        for part in parts {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    }

    #[test]
    fn every_way_to_write_the_same_table() {
        for text in [
            "trans_x\trot x\n1\t2.5\n-3\t4e1\n",
            "\u{feff}trans_x\trot x\r\n1\t2.5\r\n-3\t4e1\r\n\r\n \r\n",
            "\"trans_x\"\t\"rot x\"\n\"1\"\t2.5\n-3\t40",
            "trans_x,rot x\n1,2.5\n-3,40\n",
            "\"trans_x\" , \"rot x\"\n 1 , 2.5\n-3,40\n\n\n",
            "trans_x;rot x\n1;2.5\n-3;40\n",
        ] {
            let runs = read(&[text], None).unwrap();
            let names = vec!["trans_x".to_string(), "rot x".to_string()];
            assert_eq!(runs, [Confounds { names, values: vec![1.0, 2.5, -3.0, 40.0], n_rows: 2 }], "{text:?}");
        }
        assert_eq!(read(&["\"a\" \"b\"\n1 2\n"], None).unwrap()[0].names, ["a", "b"]);
        assert_eq!(read(&["a,b\tc\n1\t2\n"], None).unwrap()[0].names, ["a,b", "c"], "a tab goes before a comma");
        assert_eq!(read(&[], None).unwrap(), []);
    }

    #[test]
    fn motion_parameters_have_no_header() {
        let text = "-0.00416487  0.00393948  0.110484  \n-0.00439367  0.00295214  0.111983  \n";
        let run = &read(&[text], None).unwrap()[0];
        assert_eq!((run.n_rows, run.names.join(" ").as_str()), (2, "confound_1 confound_2 confound_3"));
        assert_eq!(run.values, [-0.00416487, 0.00393948, 0.110484, -0.00439367, 0.00295214, 0.111983]);
        assert_eq!(read(&["1 2\t\n3 4\t\n"], None).unwrap()[0].values, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(read(&[text], Some(&["confound_3"])).unwrap()[0].values, [0.110484, 0.111983]);
        assert_says(&problem(&[text, "1 2\n"], None), &["run-2.txt", "'confound_3'", "run-1.txt has"]);
        assert_says(&problem(&["1 2\n", text], None), &["run-2.txt: has a column 'confound_3'", "run-1.txt has not"]);
    }

    #[test]
    fn columns_are_matched_by_name() {
        let texts = ["a\tb\tc\n1\t2\t3\n", "c,a,b\n6,4,5\n7,8,9\n"];
        let runs = read(&texts, None).unwrap();
        assert_eq!((&runs[0].values[..], runs[0].n_rows), (&[1.0, 2.0, 3.0][..], 1));
        assert_eq!((&runs[1].values[..], runs[1].n_rows), (&[4.0, 5.0, 6.0, 8.0, 9.0, 7.0][..], 2));
        let runs = read(&texts, Some(&["c", "a", "c"])).unwrap();
        assert!(runs.iter().all(|run| run.names == ["a", "c"]), "in the order of the first file, each once");
        assert_eq!(runs[1].values, [4.0, 6.0, 8.0, 7.0]);
    }

    #[test]
    fn columns_that_differ_are_named() {
        let [both, less] = ["a\tb\n1\t2\n", "a\n1\n"];
        let advice = "`confound-columns`";
        assert_says(&problem(&[both, both, less], None), &["run-3.txt: has no column 'b'", "run-1.txt has", advice]);
        assert_says(&problem(&[less, both], None), &["run-2.txt: has a column 'b'", "run-1.txt has not", advice]);
        assert_says(
            &problem(&[less, less, both], Some(&["b"])),
            &["run-1.txt: has no", "'b'", "run-3.txt has", advice],
        );
        assert_says(&problem(&[both, both], Some(&["x"])), &["run-1.txt", "'x'", "nor has another", "a, b", advice]);
        assert!(read(&[both, less], Some(&["a"])).is_ok());
        assert_says(&problem(&[both, "1 2\n"], None), &["run-2.txt: has no header line", "run-1.txt has one"]);
        assert_says(&problem(&["1 2\n", both], None), &["run-2.txt: has a header line", "run-1.txt has none"]);
        assert_says(&problem(&["a,b,a\n1,2,3\n"], None), &["columns 1 and 3 are both called 'a'"]);
        assert_says(&problem(&[both], Some(&[])), &["confound-columns = (none)"]);
        let many = (0..300).map(|number| format!("c{number}")).collect::<Vec<_>>().join("\t");
        let message = problem(&[&format!("{many}\n")], Some(&["x"]));
        assert_says(&message, &["no row after it"]);
        let row = vec!["1"; 300].join("\t");
        let message = problem(&[&format!("{many}\n{row}\n")], Some(&["x"]));
        assert_says(&message, &["c11, .. (300 in all)"]);
    }

    #[test]
    fn unnamed_columns_may_be_left_out() {
        let with_index = ",a,b\n0,1,2\n1,3,4\n";
        assert_says(&problem(&[with_index], None), &["column 1 has no name", "`confound-columns`"]);
        assert_eq!(read(&[with_index], Some(&["b"])).unwrap()[0].values, [2.0, 4.0]);
        assert_eq!(read(&[",,a\nx,y,1\n"], Some(&["a"])).unwrap()[0].values, [1.0]);
    }

    #[test]
    fn leading_gaps_get_the_mean() {
        for gap in ["n/a", "N/A", "NA", "nan", "NaN", "null", ".", "", "\"\""] {
            let text = format!("a\tb\n{gap}\t1\n{gap}\t2\n3\t{}\n5\t4\n", 3);
            assert_eq!(read(&[&text], None).unwrap()[0].values, [4.0, 1.0, 4.0, 2.0, 3.0, 3.0, 5.0, 4.0], "{gap}");
        }
        assert_eq!(read(&["n/a 1\n2 3\n"], None).unwrap()[0].values, [2.0, 1.0, 2.0, 3.0], "without header");
        assert_eq!(read(&["a\n\n2\n4\n\n"], None).unwrap()[0].values, [3.0, 2.0, 4.0], "one column");
    }

    #[test]
    fn wrong_cells_are_named() {
        let says = |text: &str, parts: &[&str]| {
            assert_says(&problem(&[text], None), parts);
            assert_says(&problem(&[text], None), &["run-1.txt", "`confound-columns`"]);
        };
        says("a\tb\n1\tn/a\n2\t3\n4\tn/a\n", &["line 4, column 'b': 'n/a' is missing after a value"]);
        says("1\n\n3\n", &["line 2, column 'confound_1': '' is missing after a value"]);
        says("a\n1\ninf\n", &["line 3, column 'a': 'inf' is not finite"]);
        says("a\n1\n1e999\n", &["'1e999' is not finite"]);
        says("a;b\n1;2,5\n", &["line 2, column 'b': '2,5' is not a number", "with a point"]);
        says("a,b\n1,n/a\n2,\n", &["column 'b' has no value"]);
        assert!(read(&["a\tb\n1\tx\n"], Some(&["a"])).is_ok(), "columns not in use may hold anything");
        assert!(problem(&[&format!("1\n{}\n", "x".repeat(1000))], None).len() < 300);
    }

    #[test]
    fn malformed_tables_say_what_is_wrong() {
        assert_says(&problem(&["1\n", ""], None), &["run-2.txt: the file is empty"]);
        assert_says(&problem(&["\u{feff}\r\n \n"], None), &["the file is empty"]);
        assert_says(&problem(&["\n1 2\n"], None), &["line 1 is empty"]);
        assert_says(&problem(&["a,b\n\n"], None), &["no row after it"]);
        assert_says(&problem(&["a,b\n1,2\n3\n"], None), &["line 3 has 1 cells, but line 1 has 2"]);
        assert_says(&problem(&["1 2\n3 4 5\n"], None), &["line 2 has 3 cells, but line 1 has 2"]);
        assert_says(&problem(&["1 2\n\n3 4\n"], None), &["line 2 has 0 cells, but line 1 has 2"]);
        let missing = read_confounds(&[PathBuf::from("/nowhere/confounds.tsv")], None);
        assert!(matches!(missing, Err(Error::Read { .. })));
    }

    #[test]
    fn no_truncation_and_no_changed_byte_panics() {
        let valid = "\u{feff}\"a\"\tb;c\r\nn/a\t-2e3\r\n\"3\"\t.5\n\n";
        for length in (0..valid.len()).filter(|&length| valid.is_char_boundary(length)) {
            let _ = read(&[&valid[..length]], None);
        }
        for place in 3..valid.len() {
            for byte in ['"', '\t', ',', ' ', '\n', '\r', 'x', '9', '.', '\0'] {
                let mut text = valid.to_string();
                text.replace_range(place..=place, &byte.to_string());
                let _ = read(&[&text, valid], None);
            }
        }
    }
}
