//! Runs by name: where they lie in one array, and what to call those that have a file each.

use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path};

use super::read::text::read_text;
use crate::error::{Error, Result};

/// First words of a line that is a header.
const HEADERS: [&str; 3] = ["run", "name", "subject"];

/// Endings that are no part of a run's name; the longer of two first.
const ENDINGS: [&str; 11] =
    [".nii.gz", ".nii", ".npy", ".npz", ".csv.gz", ".tsv.gz", ".csv", ".tsv", ".png", ".tiff", ".tif"];

/// What both kinds of file look like, for messages.
const REMEDY: &str = "give one label a row, or a line a run with its name and its number of rows";

/// A stretch of rows with a name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NamedRun {
    /// Fit for a file's name: letters, digits, '-', '_' and '.'.
    pub name: String,
    /// The length of the stretch.
    pub n_rows: usize,
}

/// Reads a file that names the runs of a single array with `n_rows` rows.
///
/// It has either one label a row, the rows of a run standing together, or a line a run: its name and its number of
/// rows, separated by a tab, a comma or a blank, the numbers adding up to `n_rows`. A header that begins with `run`,
/// `name` or `subject` is skipped. Where both readings are possible, the one that fits `n_rows` is taken.
pub fn read_runs(path: &Path, n_rows: usize) -> Result<Vec<NamedRun>> {
    let text = read_text(path)?;
    let lines = numbered_lines(path, &text)?;
    let lines = without_header(&lines, n_rows);
    let stretches = match table(lines) {
        Some(table) if adds_up(&table, n_rows) || lines.len() != n_rows => {
            check_counts(path, &table, n_rows)?;
            table
        }
        _ => labelled_stretches(path, lines, n_rows)?,
    };
    check_labels_differ(path, &stretches)?;
    named(path, &stretches)
}

/// A line of the file, counted from 1, without blanks around it.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// Rows with the same label, which begin in this line of the file.
struct Stretch<'a> {
    line: usize,
    label: &'a str,
    n_rows: usize,
}

fn numbered_lines<'a>(path: &Path, text: &'a str) -> Result<Vec<Line<'a>>> {
    if text.is_empty() {
        return Err(Error::malformed(path, format!("the file is empty; {REMEDY}")));
    }
    let lines: Vec<Line> =
        text.lines().enumerate().map(|(at, text)| Line { number: at + 1, text: text.trim() }).collect();
    match lines.iter().find(|line| line.text.is_empty()) {
        Some(empty) => {
            Err(Error::malformed(path, format!("line {} is empty; write the label of its row there", empty.number)))
        }
        None => Ok(lines),
    }
}

/// Leaves a header out, but not a label that only looks like one: what fits the number of rows counts.
fn without_header<'l, 'a>(lines: &'l [Line<'a>], n_rows: usize) -> &'l [Line<'a>] {
    let fits = |lines: &[Line]| lines.len() == n_rows || table(lines).is_some_and(|table| adds_up(&table, n_rows));
    match lines {
        [first, rest @ ..] if !rest.is_empty() && looks_like_header(*first) && (fits(rest) || !fits(lines)) => rest,
        _ => lines,
    }
}

fn looks_like_header(line: Line) -> bool {
    let first = unquoted(line.text.split(['\t', ',', ' ']).next().unwrap_or_default());
    HEADERS.iter().any(|header| first.eq_ignore_ascii_case(header)) && entry(line).is_none()
}

/// The file as lines of a name and a number of rows, if all are.
fn table<'a>(lines: &[Line<'a>]) -> Option<Vec<Stretch<'a>>> {
    lines.iter().map(|line| entry(*line)).collect()
}

/// A name and a number of rows. The number stands last, so that a name may have blanks in it.
fn entry(line: Line) -> Option<Stretch> {
    let mark = ['\t', ',', ' '].into_iter().find(|&mark| line.text.contains(mark))?;
    let (label, count) = line.text.rsplit_once(mark)?;
    let label = unquoted(label);
    let n_rows = unquoted(count).parse().ok()?;
    (!label.is_empty() && !has_mark(label)).then_some(Stretch { line: line.number, label, n_rows })
}

fn unquoted(cell: &str) -> &str {
    cell.trim().trim_matches('"').trim()
}

fn has_mark(label: &str) -> bool {
    label.contains(['\t', ','])
}

fn sum_of_rows(table: &[Stretch]) -> usize {
    table.iter().fold(0_usize, |sum, stretch| sum.saturating_add(stretch.n_rows))
}

/// Whether the numbers are those of a table and not the second words of labels.
fn adds_up(table: &[Stretch], n_rows: usize) -> bool {
    let labels: BTreeSet<&str> = table.iter().map(|stretch| stretch.label).collect();
    sum_of_rows(table) == n_rows && labels.len() == table.len()
}

fn check_counts(path: &Path, table: &[Stretch], n_rows: usize) -> Result<()> {
    if let Some(Stretch { line, label, .. }) = table.iter().find(|stretch| stretch.n_rows == 0) {
        let problem = format!("line {line}: the run '{label}' has 0 rows; leave the line out");
        return Err(Error::malformed(path, problem));
    }
    let sum = sum_of_rows(table);
    if sum != n_rows {
        let problem = format!("its runs have {sum} rows together, but the data have {n_rows}; {REMEDY}");
        return Err(Error::malformed(path, problem));
    }
    Ok(())
}

fn labelled_stretches<'a>(path: &Path, lines: &[Line<'a>], n_rows: usize) -> Result<Vec<Stretch<'a>>> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for &Line { number, text } in lines {
        let label = unquoted(text);
        if label.is_empty() || has_mark(label) {
            let problem =
                format!("line {number}: '{text}' is neither a label nor a name with a number of rows; {REMEDY}");
            return Err(Error::malformed(path, problem));
        }
        match stretches.last_mut() {
            Some(last) if last.label == label => last.n_rows += 1,
            _ => stretches.push(Stretch { line: number, label, n_rows: 1 }),
        }
    }
    if lines.len() == n_rows {
        return Ok(stretches);
    }
    let problem = format!("has {} labels, but the data have {n_rows} rows; {REMEDY}", lines.len());
    Err(Error::malformed(path, problem))
}

fn check_labels_differ(path: &Path, stretches: &[Stretch]) -> Result<()> {
    let mut first_lines = HashMap::new();
    for Stretch { line, label, .. } in stretches {
        if let Some(first) = first_lines.insert(*label, *line) {
            let problem = format!(
                "the run '{label}' stands in two places, from line {first} and again from line {line}; the rows of a \
                 run must stand together: bring them together, or give the second stretch a name of its own"
            );
            return Err(Error::malformed(path, problem));
        }
    }
    Ok(())
}

/// The runs with names fit for files, which must still differ.
fn named(path: &Path, stretches: &[Stretch]) -> Result<Vec<NamedRun>> {
    let mut labels = HashMap::new();
    let mut runs = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        let name = file_name(stretch.label);
        if let Some(other) = labels.insert(name.clone(), stretch.label) {
            let problem = format!(
                "the runs '{other}' and '{}' would both be called '{name}' in file names; rename one of them with \
                 letters and digits",
                stretch.label
            );
            return Err(Error::malformed(path, problem));
        }
        runs.push(NamedRun { name, n_rows: stretch.n_rows });
    }
    Ok(runs)
}

/// A label with `_` for all that is not a letter, a digit, '-', '_' or '.', and for a first '.', which hides files.
fn file_name(label: &str) -> String {
    let fit = |(at, character): (usize, char)| match character {
        '.' if at > 0 => '.',
        '-' | '_' => character,
        _ if character.is_alphanumeric() => character,
        _ => '_',
    };
    label.chars().enumerate().map(fit).collect()
}

/// Names of runs for file names and legends: the file's name without its ending, and as many of the folders before it
/// (the same number for all) as it takes to tell the runs apart. The same path given twice gets `_1`, `_2`.
pub fn run_names(paths: &[&Path]) -> Vec<String> {
    let paths: Vec<Vec<String>> = paths.iter().map(|path| parts(path)).collect();
    let with_folders = |n_folders: usize| -> Vec<String> {
        paths.iter().map(|parts| file_name(&parts[parts.len().saturating_sub(n_folders + 1)..].join("_"))).collect()
    };
    let n_different = |names: &[String]| names.iter().collect::<BTreeSet<_>>().len();
    let longest = paths.iter().map(Vec::len).max().unwrap_or(0);
    // The first of those that tell most apart: paths given twice cannot be told apart by folders.
    let mut best = with_folders(0);
    for n_folders in 1..longest {
        let names = with_folders(n_folders);
        if n_different(&names) > n_different(&best) {
            best = names;
        }
    }
    numbered(best)
}

/// The folders of a path as written, and its file's name without the ending.
fn parts(path: &Path) -> Vec<String> {
    let of_component = |component| match component {
        Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_string()),
        _ => None,
    };
    let mut parts: Vec<String> = path.components().filter_map(of_component).collect();
    if let Some(name) = parts.last_mut() {
        *name = name.replace(".npz:", "_");
        let lower = name.to_ascii_lowercase();
        let ending = ENDINGS.iter().find(|ending| lower.len() > ending.len() && lower.ends_with(*ending));
        name.truncate(name.len() - ending.map_or(0, |ending| ending.len()));
    }
    parts
}

/// Names that occur more than once, numbered by occurrence; numbers that would make another's name are passed over.
fn numbered(names: Vec<String>) -> Vec<String> {
    let mut taken: BTreeSet<String> = names.iter().cloned().collect();
    let mut last_numbers: HashMap<&str, usize> = HashMap::new();
    let mut result = Vec::with_capacity(names.len());
    for name in &names {
        if names.iter().filter(|other| *other == name).count() == 1 {
            result.push(name.clone());
            continue;
        }
        let last = last_numbers.entry(name).or_default();
        let free = (*last + 1..).find(|number| taken.insert(format!("{name}_{number}")));
        *last = free.expect("numbers do not end");
        result.push(format!("{name}_{last}"));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str, n_rows: usize) -> Result<Vec<NamedRun>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.tsv");
        fs::write(&path, text).unwrap();
        read_runs(&path, n_rows)
    }

    fn assert_reads(text: &str, expected: &[(&str, usize)]) {
        let n_rows = expected.iter().map(|(_, n_rows)| n_rows).sum();
        let runs = read(text, n_rows).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let found: Vec<(&str, usize)> = runs.iter().map(|run| (run.name.as_str(), run.n_rows)).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    fn assert_refuses(text: &str, n_rows: usize, says: &str) {
        let message = read(text, n_rows).expect_err("the file is refused").to_string();
        assert!(message.contains("runs.tsv") && message.contains(says), "{message:?} does not say {says:?}");
    }

    #[test]
    fn a_label_a_row() {
        for text in ["a\na\nb\n", "a\na\nb", "\u{feff}a \r\na\r\nb\r\n\r\n", "run\na\na\nb\n", "\"a\"\n\"a\"\n\"b\"\n"]
        {
            assert_reads(text, &[("a", 2), ("b", 1)]);
        }
        assert_reads("1\n1\n2\n", &[("1", 2), ("2", 1)]);
        assert_reads("Subject\nsub 01\nsub 01\nsub 02\n", &[("sub_01", 2), ("sub_02", 1)]);
    }

    #[test]
    fn a_line_a_run() {
        for text in
            ["a\t20\nb\t5\n", "a,20\nb,5\n", "a 20\nb 5", "a   20\r\nb , 5\r\n\n", "name\tn_rows\na\t20\nb\t5\n"]
        {
            assert_reads(text, &[("a", 20), ("b", 5)]);
        }
        assert_reads("subject rows\nsub 1\t20\n\"sub 2\"\t5\n", &[("sub_1", 20), ("sub_2", 5)]);
        assert_reads("only 7", &[("only", 7)]);
        assert_reads("run 7", &[("run", 7)]);
    }

    #[test]
    fn the_number_of_rows_tells_readings_apart() {
        assert_reads("run 1\nrun 1\nrun 1\nrun 2\nrun 2\n", &[("run_1", 3), ("run_2", 2)]);
        assert_reads("run 1\nrun 1\n", &[("run_1", 2)]);
        assert_reads("run\nrun\nrun\n", &[("run", 3)]);
        assert_reads("run A\nrun A\nrun B\n", &[("run_A", 2), ("run_B", 1)]);
        assert_reads("run n_rows\na 1\nb 2\n", &[("a", 1), ("b", 2)]);
        assert_reads("run", &[("run", 1)]);
    }

    #[test]
    fn wrong_files_say_what_is_wrong() {
        assert_refuses("", 3, "the file is empty");
        assert_refuses("a\n\na\n", 3, "line 2 is empty");
        assert_refuses("a\na\nb\n", 5, "has 3 labels, but the data have 5 rows");
        assert_refuses("name\na\na\nb\n", 5, "has 3 labels");
        assert_refuses("a\t2\nb\t2\n", 5, "have 4 rows together, but the data have 5");
        assert_refuses(&format!("a\t{0}\nb\t{0}\n", usize::MAX), 5, "but the data have 5");
        assert_refuses("a\t5\nb\t0\n", 5, "line 2: the run 'b' has 0 rows");
        assert_refuses("a\t-5\nb\t10\n", 5, "line 1: 'a\t-5' is neither");
        assert_refuses("a\tx\t5\n", 5, "line 1");
        assert_refuses(",5\n", 5, "line 1: ',5' is neither");
        assert_refuses("a\nb\na\n", 3, "'a' stands in two places, from line 1 and again from line 3");
        assert_refuses("a\t2\nb\t2\na\t2\n", 6, "'a' stands in two places");
        assert_refuses("a b\na/b\n", 2, "'a b' and 'a/b' would both be called 'a_b'");
        let missing = read_runs(Path::new("/nowhere/runs.tsv"), 1);
        assert!(matches!(missing, Err(Error::Read { .. })));
    }

    fn names(paths: &[&str]) -> Vec<String> {
        run_names(&paths.iter().map(Path::new).collect::<Vec<_>>())
    }

    #[test]
    fn endings_and_folders_that_tell_nothing_are_left_out() {
        assert_eq!(names(&["data/run-1.nii.gz", "data/run-2.NII"]), ["run-1", "run-2"]);
        assert_eq!(
            names(&["a.npy", "b.csv", "c.tsv", "d.txt", "e.x.npy", ".nii"]),
            ["a", "b", "c", "d.txt", "e.x", "_nii"]
        );
        assert_eq!(names(&["sub 1/bold (new).nii"]), ["bold__new_"]);
        assert_eq!(names(&["größe.npy"]), ["größe"]);
        assert_eq!(names(&[]), Vec::<String>::new());
    }

    #[test]
    fn folders_tell_runs_apart() {
        assert_eq!(names(&["d/s1/bold.nii", "d/s2/bold.nii"]), ["s1_bold", "s2_bold"]);
        assert_eq!(names(&["/d/s1/f/r1.nii", "/d/s2/f/r1.nii", "/d/s2/f/r2.nii"]), ["s1_f_r1", "s2_f_r1", "s2_f_r2"]);
        assert_eq!(names(&["bold.nii", "old/bold.nii"]), ["bold", "old_bold"]);
        assert_eq!(names(&["bold.nii", "../bold.nii"]), ["bold", "_._bold"]);
        assert_eq!(names(&["bold.nii", "bold.npy"]), ["bold_1", "bold_2"]);
    }

    #[test]
    fn paths_given_twice_are_numbered() {
        assert_eq!(names(&["d/a.nii", "d/b.nii", "d/a.nii"]), ["a_1", "b", "a_2"]);
        assert_eq!(names(&["a.nii", "a_1.nii", "a.nii"]), ["a_2", "a_1", "a_3"]);
        assert_eq!(names(&["s1/a.nii", "s2/a.nii", "s1/a.nii"]), ["s1_a_1", "s2_a", "s1_a_2"]);
    }
}
