//! Tables of named columns as text: a header, then a line a row. Read back by the names of the columns.

use super::files::write_atomically;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How one kind of table is written.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// What stands between two cells.
    pub separator: char,
    /// What to do about a table that cannot be read: the end of the message that says so.
    pub remedy: &'static str,
}

impl Format {
    /// One line, the header or a row.
    pub fn line(self, cells: &[impl AsRef<str>]) -> String {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 {
                line.push(self.separator);
            }
            line.push_str(cell.as_ref());
        }
        line.push('\n');
        line
    }

    /// Writes a whole table, or none of it.
    pub fn write<C: AsRef<str>>(
        self,
        path: &Path,
        columns: &[C],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Result<()> {
        let mut text = self.line(columns);
        rows.into_iter().for_each(|row| text += &self.line(&row));
        write_atomically(path, text.as_bytes())
    }

    /// Reads a table.
    pub fn read(self, path: &Path) -> Result<Table> {
        let text = std::fs::read_to_string(path).map_err(Error::read(path))?;
        self.parse(path, &text)
    }

    /// The table that a text is; `path` is where it came from.
    pub fn parse(self, path: &Path, text: &str) -> Result<Table> {
        let cells = |line: &str| line.split(self.separator).map(str::to_string).collect::<Vec<_>>();
        let mut lines = text.lines();
        let columns = lines.next().map(cells).unwrap_or_default();
        let table = Table { format: self, path: path.to_path_buf(), columns, rows: lines.map(cells).collect() };
        match table.rows.iter().position(|row| row.len() != table.columns.len()) {
            None => Ok(table),
            Some(at) => {
                let (found, expected) = (table.rows[at].len(), table.columns.len());
                Err(table.wrong(at + 2, format!(" has {found} cells under {expected} columns")))
            }
        }
    }
}

/// A table as it was read.
#[derive(Clone, Debug)]
pub struct Table {
    format: Format,
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether there is a column of this name.
    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    /// Refuses the table if it lacks one of these columns.
    pub fn require(&self, columns: &[&str]) -> Result<()> {
        columns.iter().try_for_each(|column| self.place(column).map(drop))
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        (0..self.rows.len()).map(|at| Row { table: self, at })
    }

    fn place(&self, column: &str) -> Result<usize> {
        let place = self.columns.iter().position(|name| name == column);
        place.ok_or_else(|| self.wrong(1, format!(" has no column {column}")))
    }

    fn wrong(&self, line: usize, problem: String) -> Error {
        Error::malformed(&self.path, format!("line {line}{problem}{}", self.format.remedy))
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    at: usize,
}

impl Row<'_> {
    /// What a cell says.
    pub fn get<T: FromStr>(&self, column: &str) -> Result<T> {
        let cell = &self.table.rows[self.at][self.table.place(column)?];
        cell.parse().map_err(|_| self.wrong(column))
    }

    /// What a cell says that may be empty.
    pub fn get_if_any<T: FromStr>(&self, column: &str) -> Result<Option<T>> {
        let is_empty = self.table.rows[self.at][self.table.place(column)?].is_empty();
        if is_empty { Ok(None) } else { self.get(column).map(Some) }
    }

    /// The error of a cell that cannot be.
    pub fn wrong(&self, column: &str) -> Error {
        let place = self.table.columns.iter().position(|name| name == column);
        let cell = place.map_or("", |place| &self.table.rows[self.at][place]);
        self.table.wrong(self.at + 2, format!(", column {column}: '{cell}' cannot stand there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { separator: ',', remedy: "; make it anew" };

    #[test]
    fn tables_come_back_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let rows = [vec!["1".to_string(), String::new()], vec!["2".into(), "0.5".into()]];
        FORMAT.write(&path, &["n", "x"], rows).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "n,x\n1,\n2,0.5\n");
        let table = FORMAT.read(&path).unwrap();
        assert!(table.has("x") && !table.has("y"));
        let read = |row: Row| (row.get::<u32>("n").unwrap(), row.get_if_any::<f64>("x").unwrap());
        assert_eq!(table.rows().map(read).collect::<Vec<_>>(), [(1, None), (2, Some(0.5))]);
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_column() {
        let path = Path::new("a.csv");
        let problem = |text: &str| match FORMAT.parse(path, text) {
            Err(error) => error.to_string(),
            Ok(table) => {
                let numbers = table.rows().map(|row| row.get::<f64>("x")).collect::<Result<Vec<_>>>();
                numbers.and(table.require(&["n", "x"])).unwrap_err().to_string()
            }
        };
        for (text, expected) in [
            ("n,x\n1\n", "a.csv: line 2 has 1 cells under 2 columns; make it anew"),
            ("n,x\n1,2\n2,z\n", "a.csv: line 3, column x: 'z' cannot stand there; make it anew"),
            ("n\n", "a.csv: line 1 has no column x; make it anew"),
            ("", "a.csv: line 1 has no column n; make it anew"),
        ] {
            assert!(problem(text).contains(expected), "{text:?}: {}", problem(text));
        }
    }
}
