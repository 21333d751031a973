//! How files are to be read where they do not say it themselves: which axis counts the rows, and which columns are data.

use super::{RowSource, rows_asked_for};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Columns that a message names.
const SHOWN: usize = 12;

/// Which axis of an array or table counts the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowsAxis {
    /// The first.
    #[default]
    First,
    /// The last: space first, time last.
    Last,
}

impl RowsAxis {
    /// Whether it is the first.
    pub fn is_usual(&self) -> bool {
        *self == RowsAxis::First
    }
}

/// How files are to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Which axis counts the rows.
    pub rows_axis: RowsAxis,
    /// Which columns are data; left out: all.
    pub columns: Option<Columns>,
}

/// Columns of a table to pick or to leave out: names, numbers from 1, and ranges `2-785` or `2-`, joined by commas; all or
/// none of them with `^` before, which leaves them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    parts: Vec<String>,
    /// Whether they are left out.
    pub are_dropped: bool,
}

impl Columns {
    /// Reads `2-785`, `a,b` or `^label`.
    pub fn parse(text: &str) -> Result<Columns> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let n_dropped = parts.iter().filter(|part| part.starts_with('^')).count();
        let is_empty = |part: &&str| part.trim_start_matches('^').is_empty();
        if parts.iter().any(is_empty) || n_dropped != 0 && n_dropped != parts.len() {
            let problem = "write names, numbers from 1 or ranges such as 2-785, joined by commas: those to use, or, each with ^ \
                           before, those to leave out";
            return Err(Error::setting("columns", text, problem));
        }
        let bare = |part: &&str| part.trim_start_matches('^').to_string();
        Ok(Columns { parts: parts.iter().map(bare).collect(), are_dropped: n_dropped > 0 })
    }

    /// For each column of a file, whether it is used.
    pub fn used(&self, path: &Path, n_columns: usize, names: Option<&[String]>) -> Result<Vec<bool>> {
        let mut named = vec![false; n_columns];
        for part in &self.parts {
            let found = names.map_or(Ok(None), |names| only(path, part, names))?;
            let range = found.map(|at| (at + 1, at + 1)).or_else(|| range(part, n_columns));
            match range {
                Some((first, last)) if 1 <= first && first <= last && last <= n_columns => {
                    named[first - 1..last].fill(true);
                }
                Some(_) => return Err(wrong(path, part, &format!("there are {n_columns} columns, counted from 1"))),
                None => return Err(wrong(path, part, &listed(names))),
            }
        }
        if self.are_dropped {
            named.iter_mut().for_each(|named| *named = !*named);
        }
        match named.contains(&true) {
            true => Ok(named),
            false => Err(Error::malformed(path, "no column is left to be used")),
        }
    }
}

fn wrong(path: &Path, part: &str, problem: &str) -> Error {
    Error::setting("columns", part, format!("is no column of {}: {problem}", path.display()))
}

/// The place of a name among the columns, if it is there; a name that several have says too little.
fn only(path: &Path, part: &str, names: &[String]) -> Result<Option<usize>> {
    let places: Vec<usize> = (0..names.len()).filter(|&at| names[at] == part).collect();
    if let [first, second, ..] = places[..] {
        let problem = format!(
            "is the name of columns {} and {} of {}; write the number of the one that is meant",
            first + 1,
            second + 1,
            path.display()
        );
        return Err(Error::setting("columns", part, problem));
    }
    Ok(places.first().copied())
}

fn listed(names: Option<&[String]>) -> String {
    match names {
        None => "it has no names of columns; write numbers from 1".into(),
        Some(names) => {
            let more = if names.len() > SHOWN { ", ..." } else { "" };
            format!("it has {}{more}", names[..names.len().min(SHOWN)].join(", "))
        }
    }
}

/// `3`, `2-785` or `2-`, from 1.
fn range(part: &str, n_columns: usize) -> Option<(usize, usize)> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    match part.split_once('-') {
        None => number(part).map(|n| (n, n)),
        Some((first, "")) => Some((number(first)?, n_columns)),
        Some((first, last)) => Some((number(first)?, number(last)?)),
    }
}

/// Some columns of an array of rows x columns.
pub struct Chosen {
    source: Box<dyn RowSource>,
    columns: Vec<usize>,
}

impl Chosen {
    /// The columns that are used.
    pub fn new(source: Box<dyn RowSource>, columns: &Columns) -> Result<Chosen> {
        if source.grid().is_some() {
            let problem = format!(
                "picks columns of tables, but {} has a grid; a mask picks sites of it",
                source.path().display()
            );
            return Err(Error::setting("columns", columns.parts.join(","), problem));
        }
        let used = columns.used(source.path(), source.n_sites(), None)?;
        Ok(Chosen { source, columns: (0..used.len()).filter(|&at| used[at]).collect() })
    }
}

impl RowSource for Chosen {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn n_rows(&self) -> usize {
        self.source.n_rows()
    }

    fn n_sites(&self) -> usize {
        self.columns.len()
    }

    fn grid(&self) -> Option<&[usize]> {
        None
    }

    fn is_single(&self) -> bool {
        self.source.is_single()
    }

    fn read_rows(&self, first_row: usize, out: &mut [f64]) -> Result<()> {
        let (n_rows, n_all) = (rows_asked_for(self, first_row, out.len()), self.source.n_sites());
        let mut all = vec![0.0; n_rows * n_all];
        self.source.read_rows(first_row, &mut all)?;
        for (row, out) in all.chunks_exact(n_all).zip(out.chunks_exact_mut(self.columns.len())) {
            self.columns.iter().zip(out).for_each(|(&column, out)| *out = row[column]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_picked_and_dropped() {
        let names = ["id", "a", "b", "7"].map(String::from);
        let used = |text: &str| Columns::parse(text).unwrap().used(Path::new("t.csv"), 4, Some(&names));
        assert_eq!(used("a,b").unwrap(), [false, true, true, false]);
        assert_eq!(used("2-").unwrap(), used("^id").unwrap());
        assert_eq!(used("^1, ^7").unwrap(), [false, true, true, false], "names before numbers");
        assert_eq!(used("1-2").unwrap(), [true, true, false, false]);
        for (text, problem) in [
            ("c", "id, a, b, 7"),
            ("5", "4 columns"),
            ("0", "4 columns"),
            ("3-2", "4 columns"),
            ("^1-4", "no column is left"),
        ] {
            assert!(used(text).unwrap_err().to_string().contains(problem), "{text}");
        }
        let twice = ["id", "a", "b", "a"].map(String::from);
        let told = Columns::parse("^a").unwrap().used(Path::new("t.csv"), 4, Some(&twice)).unwrap_err().to_string();
        assert!(told.contains("columns = a") && told.contains("columns 2 and 4 of t.csv"), "{told}");
        for text in ["", "a,,b", "^a,b", "^"] {
            assert!(Columns::parse(text).is_err(), "{text:?}");
        }
    }
}
