//! The small language of structures: `path(8) x iid`. Errors point at the place.

use super::wavelet::n_levels;
use super::{Basis, Cycle, Filter, Graph, Groups, Iid, Path, Shelf, Structure, Wavelet};
use crate::data::grid::{LONGEST_AXIS, show_grid};
use crate::data::read;
use crate::error::{Error, Result, setting};
use std::path::Path as FilePath;

/// One axis as written: a word and, where given, what stood in its brackets.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    word: String,
    position: usize,
    arguments: Option<Vec<Argument>>,
}

/// One of the things in brackets, without the spaces and quotes around it.
#[derive(Clone, Debug, PartialEq)]
struct Argument {
    text: String,
    position: usize,
}

/// How the words of the language are written.
const USAGE: [&str; 6] = [
    "path or path(n)",
    "cycle or cycle(n)",
    "groups(size,size,...)",
    "wavelet(n,haar), wavelet(d4) or wavelet(haar,levels=FILE)",
    "iid or iid(n)",
    "graph(FILE)",
];

/// The structure that `text` names (default: `path` on every axis); sizes left out come from `grid`.
pub fn build(text: Option<&str>, grid: Option<&[usize]>) -> Result<Structure> {
    build_with(text, grid, &Shelf::none())
}

/// [`build`] with a shelf for the decompositions of graphs.
pub fn build_with(text: Option<&str>, grid: Option<&[usize]>, shelf: &Shelf) -> Result<Structure> {
    let Some(text) = text else {
        let problem = || format!("give {} or {} with sizes", setting("grid"), setting("structure"));
        let grid = grid.ok_or_else(|| Error::setting("grid", "(none)", problem()))?;
        return Ok(Structure::new(grid.iter().map(|&n| Box::new(Path::new(n)) as Box<dyn Basis>).collect()));
    };
    let mut axes = parse(text)?;
    if let (Some(grid), [only]) = (grid, axes.as_slice())
        && only.word == "iid"
        && only.arguments.is_none()
    {
        axes = vec![only.clone(); grid.len()];
    }
    // Before the sizes: a misspelt word may be why the number of axes is wrong.
    axes.iter().try_for_each(|axis| check_word(text, axis))?;
    if let Some(grid) = grid
        && grid.len() != axes.len()
    {
        let problem = format!(
            "the structure has {} axes, but the grid {} has {}; name one structure an axis, joined by x",
            axes.len(),
            show_grid(grid),
            grid.len()
        );
        return Err(Error::expression(text, 0, &problem));
    }
    let bases =
        axes.iter().enumerate().map(|(at, axis)| Writing { text, axis, n: grid.map(|grid| grid[at]) }.build(shelf));
    let structure = Structure::new(bases.collect::<Result<_>>()?);
    match structure.grid().iter().try_fold(1usize, |product, &n| product.checked_mul(n)) {
        Some(_) => Ok(structure),
        None => Err(Error::expression(text, 0, "a structure with more sites than can be counted")),
    }
}

/// The same expression with the files in it named from the root, so that it holds in every folder.
pub fn with_absolute_files(text: &str) -> Result<String> {
    let absolute =
        |path: &str| std::path::absolute(path).map_or_else(|_| path.to_string(), |p| p.display().to_string());
    let one = |axis: &Axis| {
        let argument = |argument: &Argument| match (axis.word.as_str(), argument.text.strip_prefix("levels=")) {
            ("graph", _) => quoted(&absolute(&argument.text)),
            ("wavelet", Some(levels)) if inline_levels(levels).is_none() => {
                quoted(&format!("levels={}", absolute(levels)))
            }
            _ => argument.text.clone(),
        };
        match &axis.arguments {
            None => axis.word.clone(),
            Some(list) => format!("{}({})", axis.word, list.iter().map(argument).collect::<Vec<_>>().join(",")),
        }
    };
    let axes = parse(text)?;
    let has_files = axes.iter().any(|axis| axis.word == "graph" || axis.word == "wavelet");
    Ok(if has_files { axes.iter().map(one).collect::<Vec<_>>().join(" x ") } else { text.to_string() })
}

/// The files that an expression names.
pub fn files(text: &str) -> Vec<std::path::PathBuf> {
    let one = |axis: &Axis, argument: &Argument| match (axis.word.as_str(), argument.text.strip_prefix("levels=")) {
        ("graph", _) => Some(argument.text.as_str().into()),
        ("wavelet", Some(levels)) if inline_levels(levels).is_none() => Some(levels.into()),
        _ => None,
    };
    let axes = parse(text).unwrap_or_default();
    axes.iter()
        .flat_map(|axis| axis.arguments.iter().flatten().filter_map(move |argument| one(axis, argument)))
        .collect()
}

/// How a graph is written.
pub fn graph_word(path: &FilePath) -> String {
    format!("graph({})", quoted(&path.display().to_string()))
}

/// In quotes where the text would otherwise be taken apart.
fn quoted(text: &str) -> String {
    if text.contains(['(', ')', ',']) || text.trim() != text { format!("\"{text}\"") } else { text.to_string() }
}

fn check_word(text: &str, axis: &Axis) -> Result<()> {
    let is_known = USAGE.iter().any(|usage| usage.split([' ', '(']).next() == Some(&axis.word));
    if is_known {
        return Ok(());
    }
    let problem =
        format!("'{}' is not a structure; here one of these is meant to stand: {}", axis.word, USAGE.join("; "));
    Err(Error::expression(text, axis.position, &problem))
}

/// An axis within its expression, and the sites that the grid gives it.
struct Writing<'a> {
    text: &'a str,
    axis: &'a Axis,
    n: Option<usize>,
}

impl Writing<'_> {
    /// The basis of the axis.
    fn build(&self, shelf: &Shelf) -> Result<Box<dyn Basis>> {
        let arguments = self.axis.arguments.as_deref().unwrap_or_default();
        Ok(match self.axis.word.as_str() {
            "path" => Box::new(Path::new(self.only_length(arguments)?)),
            "cycle" => Box::new(Cycle::new(self.only_length(arguments)?)),
            "iid" => Box::new(Iid::new(self.only_length(arguments)?)),
            "groups" => Box::new(self.groups(arguments)?),
            "wavelet" => Box::new(self.wavelet(arguments)?),
            "graph" => Box::new(self.graph(arguments, shelf)?),
            other => unreachable!("'{other}' was refused before"),
        })
    }

    fn wrong(&self, at: Option<&Argument>, problem: &str) -> Error {
        Error::expression(self.text, at.map_or(self.axis.position, |argument| argument.position), problem)
    }

    fn whole_number(&self, argument: &Argument, what: &str) -> Result<usize> {
        match argument.text.parse::<usize>() {
            Ok(n) if (1..=LONGEST_AXIS).contains(&n) => Ok(n),
            Ok(n) if n > 0 => Err(self.wrong(Some(argument), &format!("{what} is at most {LONGEST_AXIS}"))),
            _ => {
                Err(self.wrong(Some(argument), &format!("{what} is a positive whole number, not '{}'", argument.text)))
            }
        }
    }

    fn only_length(&self, arguments: &[Argument]) -> Result<usize> {
        let what = format!("the size of '{}'", self.axis.word);
        let given = arguments.first().map(|argument| self.whole_number(argument, &what)).transpose()?;
        if let Some(extra) = arguments.get(1) {
            return Err(self.wrong(Some(extra), &format!("'{}' takes its size alone", self.axis.word)));
        }
        self.length(given)
    }

    /// The size of an axis: in its brackets, from the grid, or both when they agree.
    fn length(&self, given: Option<usize>) -> Result<usize> {
        match (given, self.n) {
            (Some(n), Some(m)) if n != m => {
                Err(self.wrong(None, &format!("this axis has {n} sites, but the grid has {m} there")))
            }
            (None, None) => {
                let after = if self.axis.word == "wavelet" { "n,haar" } else { "n" };
                let problem = format!("no grid is given, so write the size: {}({after})", self.axis.word);
                Err(self.wrong(None, &problem))
            }
            (Some(n), _) | (None, Some(n)) => Ok(n),
        }
    }

    fn groups(&self, arguments: &[Argument]) -> Result<Groups> {
        if arguments.is_empty() {
            return Err(self.wrong(None, "write the sizes of the groups, such as groups(8,8,5,11)"));
        }
        let sizes = arguments.iter().map(|argument| self.whole_number(argument, "the size of a group"));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        self.length(Some(sizes.iter().sum()))?;
        Ok(Groups::new(sizes))
    }

    fn wavelet(&self, arguments: &[Argument]) -> Result<Wavelet> {
        let (mut n, mut filter, mut levels) = (None, None, None);
        for argument in arguments {
            let again = || self.wrong(Some(argument), "this was given before; levels are joined by semicolons");
            match argument.text.as_str() {
                "haar" | "d4" if filter.is_some() => return Err(again()),
                "haar" => filter = Some(Filter::Haar),
                "d4" => filter = Some(Filter::D4),
                text if text.starts_with("levels=") && levels.is_some() => return Err(again()),
                text if text.starts_with("levels=") => levels = Some(argument),
                text if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                    if n.is_some() {
                        return Err(again());
                    }
                    n = Some(self.whole_number(argument, "the size of a wavelet axis")?);
                }
                text => {
                    let problem = format!("'{text}' is neither a size, nor haar or d4, nor levels=FILE");
                    return Err(self.wrong(Some(argument), &problem));
                }
            }
        }
        let Some(filter) = filter else {
            return Err(self.wrong(None, "say which wavelet: wavelet(n,haar) or wavelet(n,d4)"));
        };
        let n = self.length(n)?;
        let levels = levels.map(|argument| self.levels(argument, n)).transpose()?;
        Ok(Wavelet::new(n, filter, levels))
    }

    /// The eigenvalues of the levels, coarsest first: from a file, or written out with semicolons.
    fn levels(&self, argument: &Argument, n: usize) -> Result<Vec<f64>> {
        let text = &argument.text["levels=".len()..];
        if text.is_empty() {
            return Err(self.wrong(Some(argument), "name a file, or write the levels: levels=1;4;16"));
        }
        let levels = match inline_levels(text) {
            Some(levels) => levels,
            None => {
                let source = read::open(FilePath::new(text))?;
                let mut values = vec![0.0; source.n_rows() * source.n_sites()];
                source.read_rows(0, &mut values)?;
                values
            }
        };
        if levels.len() != n_levels(n) {
            let problem = format!(
                "{} eigenvalues are given, but a wavelet on {n} sites has {} levels (the coarsest first; the mean has 0)",
                levels.len(),
                n_levels(n)
            );
            return Err(self.wrong(Some(argument), &problem));
        }
        match levels.iter().find(|x| !(x.is_finite() && **x >= 0.0)) {
            Some(odd) => Err(self.wrong(Some(argument), &format!("the eigenvalue {odd} is negative or not finite"))),
            None => Ok(levels),
        }
    }

    fn graph(&self, arguments: &[Argument], shelf: &Shelf) -> Result<Graph> {
        let [file] = arguments else {
            return Err(
                self.wrong(None, "write the graph's file: graph(FILE), in quotes if its name has a comma or bracket")
            );
        };
        let graph = Graph::open(FilePath::new(&file.text), self.n, shelf)?;
        self.length(Some(graph.n_sites()))?;
        Ok(graph)
    }
}

fn inline_levels(text: &str) -> Option<Vec<f64>> {
    text.split(';').map(|part| part.trim().parse().ok()).collect()
}

/// Splits an expression into axes. Positions count characters.
fn parse(text: &str) -> Result<Vec<Axis>> {
    let characters: Vec<char> = text.chars().collect();
    let mut at = 0;
    let mut axes = Vec::new();
    loop {
        skip_spaces(&characters, &mut at);
        axes.push(parse_axis(text, &characters, &mut at)?);
        skip_spaces(&characters, &mut at);
        match characters.get(at) {
            None => return Ok(axes),
            Some('x') => at += 1,
            Some(_) => return Err(Error::expression(text, at, "between two structures stands x, as in path x path")),
        }
    }
}

fn parse_axis(text: &str, characters: &[char], at: &mut usize) -> Result<Axis> {
    let position = *at;
    while characters.get(*at).is_some_and(|c| c.is_alphabetic()) {
        *at += 1;
    }
    let word: String = characters[position..*at].iter().collect();
    if word.is_empty() || word == "x" {
        return Err(Error::expression(
            text,
            position,
            "a structure such as path, cycle(12) or iid is meant to stand here",
        ));
    }
    skip_spaces(characters, at);
    if characters.get(*at) != Some(&'(') {
        return Ok(Axis { word, position, arguments: None });
    }
    let arguments = parse_arguments(text, characters, at)?;
    Ok(Axis { word, position, arguments: Some(arguments) })
}

/// What stands between the bracket at `at` and its end, split at commas outside quotes.
fn parse_arguments(text: &str, characters: &[char], at: &mut usize) -> Result<Vec<Argument>> {
    let open = *at;
    let mut arguments = Vec::new();
    let (mut first, mut in_quotes) = (open + 1, false);
    for (here, &c) in characters.iter().enumerate().skip(open + 1) {
        match c {
            '"' => in_quotes = !in_quotes,
            ',' | ')' if !in_quotes => {
                arguments.push(argument(&characters[first..here], first));
                first = here + 1;
                if c == ')' {
                    *at = here + 1;
                    return match arguments.iter().find(|argument| argument.text.is_empty()) {
                        Some(empty) => Err(Error::expression(text, empty.position, "something is missing here")),
                        None => Ok(arguments),
                    };
                }
            }
            _ => {}
        }
    }
    Err(Error::expression(text, open, "this bracket is not closed"))
}

fn argument(characters: &[char], first: usize) -> Argument {
    let indent = characters.iter().take_while(|c| c.is_whitespace()).count().min(characters.len().saturating_sub(1));
    let text: String = characters.iter().collect();
    Argument { text: text.trim().replace('"', ""), position: first + indent }
}

fn skip_spaces(characters: &[char], at: &mut usize) {
    while characters.get(*at).is_some_and(|c| c.is_whitespace()) {
        *at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str, grid: Option<&[usize]>) -> (usize, String) {
        match build(Some(text), grid) {
            Err(Error::Expression { position, problem, .. }) => (position, problem),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn sizes_come_from_brackets_or_grid() {
        assert_eq!(build(Some("path(8) x iid(3)"), None).unwrap().expression(), "path(8) x iid(3)");
        assert_eq!(build(Some(" path x  iid "), Some(&[8, 3])).unwrap().expression(), "path(8) x iid(3)");
        assert_eq!(build(Some("path( 8 )xpath(2)"), None).unwrap().grid(), [8, 2]);
        assert_eq!(build(Some("iid"), Some(&[4, 5])).unwrap().expression(), "iid(4) x iid(5)");
        assert_eq!(build(None, Some(&[4, 5])).unwrap().expression(), "path(4) x path(5)");
    }

    #[test]
    fn errors_point_at_the_place() {
        let (position, problem) = failure("path(12) x pth(33)", None);
        assert_eq!(position, 11);
        assert!(problem.contains("'pth'") && problem.contains("path or path(n)"));
        assert_eq!(failure("cycle(12) x pth(33)", Some(&[12])).0, 12);
        assert_eq!(failure("path(8", None).0, 4);
        assert_eq!(failure("path(8) path(8)", None).0, 8);
        assert_eq!(failure("path(8) x", None).0, 9);
        assert_eq!(failure("path(-1)", None).0, 5);
        assert_eq!(failure("path(3) x path(4, 5)", None).0, 18);
        assert_eq!(failure("groups(3,,2)", None).0, 9);
        assert_eq!(failure("groups(3, two)", None).0, 10);
        assert!(failure("groups", Some(&[8])).1.contains("groups(8,8,5,11)"));
        assert!(failure("groups(3,4)", Some(&[8])).1.contains("7 sites"));
        assert!(failure("wavelet(8)", None).1.contains("wavelet(n,haar)"));
        assert_eq!(failure("wavelet(8,d5)", None).0, 10);
        assert_eq!(failure("wavelet(8,haar,levels=1,2,5)", None).0, 24);
        assert_eq!(failure("wavelet(8,haar,d4)", None).0, 15);
        assert!(failure("wavelet(haar)", None).1.contains("wavelet(n,haar)"));
        assert!(failure("wavelet(8,haar,levels=)", None).1.contains("levels=1;4;16"));
        assert!(failure("path(9999999999)", None).1.contains("at most"));
        assert!(failure("wavelet(8,d4,levels=1;2)", None).1.contains("3 levels"));
        assert!(failure("wavelet(4,d4,levels=1;-2)", None).1.contains("-2"));
        assert!(failure("graph", None).1.contains("graph(FILE)"));
        assert!(failure("path x path", None).1.contains("path(n)"));
        assert!(failure("path(7) x path", Some(&[8, 8])).1.contains("7 sites"));
        assert!(failure("path", Some(&[8, 8])).1.contains("1 axes"));
        failure("", None);
    }

    #[test]
    fn every_word_builds_and_names_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("odd (1), name.csv");
        std::fs::write(&file, "0,1\n1,2\n0,2\n0,3\n").unwrap();
        let levels = folder.path().join("levels.csv");
        std::fs::write(&levels, "1\n5\n25\n").unwrap();
        let graph = format!("graph(\"{}\")", file.display());
        let cases = [
            ("cycle(12) x path(33)".to_string(), "cycle(12) x path(33)".to_string(), 396),
            ("groups(8, 8,5,11)xcycle( 3 )".into(), "groups(8,8,5,11) x cycle(3)".into(), 96),
            ("wavelet(haar,5)".into(), "wavelet(5,haar)".into(), 5),
            (format!("wavelet(8,d4,levels={})", levels.display()), "wavelet(8,d4,levels=1;5;25)".into(), 8),
            (format!("{graph} x iid(2)"), format!("{graph} x iid(2)"), 8),
        ];
        for (text, expected, n_sites) in cases {
            let structure = build(Some(&text), None).unwrap();
            assert_eq!((structure.expression(), structure.n_sites()), (expected.clone(), n_sites));
            assert_eq!(build(Some(&expected), None).unwrap().eigenvalues(), structure.eigenvalues());
        }
        assert_eq!(build(Some(&graph), Some(&[7])).unwrap().n_sites(), 7, "sites without edges");
    }

    #[test]
    fn files_are_named_from_the_root() {
        let here = std::env::current_dir().unwrap();
        let text = with_absolute_files("graph(g.csv) x wavelet(8,haar,levels=l.csv) x path").unwrap();
        let (graph, levels) = (here.join("g.csv"), here.join("l.csv"));
        assert_eq!(text, format!("graph({}) x wavelet(8,haar,levels={}) x path", graph.display(), levels.display()));
        assert_eq!(with_absolute_files(&text).unwrap(), text);
        assert_eq!(with_absolute_files(" path x  iid").unwrap(), " path x  iid");
        let inline = "wavelet(4,haar,levels=1;2)";
        assert_eq!(with_absolute_files(inline).unwrap(), inline);
    }
}
