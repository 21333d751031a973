//! The small language of structures and grids: `path(8) x iid`, `100x100`. Errors point at the place.

use super::{Basis, Iid, Path, Structure};
use crate::error::{Error, Result};

/// One axis as written: a word and, where given, what stood in its brackets.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    word: String,
    argument: Option<String>,
    position: usize,
}

/// Words the language knows, with how to write them.
const WORDS: [(&str, &str); 2] = [("path", "path or path(n)"), ("iid", "iid or iid(n)")];

/// The longest axis that is taken for meant.
const LONGEST_AXIS: usize = 100_000_000;

/// Reads a grid such as `100x100`.
pub fn parse_grid(text: &str) -> Result<Vec<usize>> {
    let mut position = 0;
    let mut grid = Vec::new();
    for part in text.split('x') {
        match part.trim().parse::<usize>() {
            Ok(n) if (1..=LONGEST_AXIS).contains(&n) => grid.push(n),
            _ => return Err(wrong(text, position, "a grid is positive whole numbers joined by x, such as 100x100")),
        }
        position += part.chars().count() + 1;
    }
    if grid.iter().try_fold(1usize, |product, &n| product.checked_mul(n)).is_none() {
        return Err(wrong(text, 0, "a grid with more sites than can be counted"));
    }
    Ok(grid)
}

/// A grid as a user writes it.
pub fn show_grid(grid: &[usize]) -> String {
    grid.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// The structure that `text` names (default: `path` on every axis); sizes left out come from `grid`.
pub fn build(text: Option<&str>, grid: Option<&[usize]>) -> Result<Structure> {
    let Some(text) = text else {
        let grid = grid.ok_or_else(|| Error::setting("--grid", "(none)", "give --grid or --structure with sizes"))?;
        return Ok(Structure::new(grid.iter().map(|&n| Box::new(Path::new(n)) as Box<dyn Basis>).collect()));
    };
    let mut axes = parse(text)?;
    if let (Some(grid), [only]) = (grid, axes.as_slice())
        && only.word == "iid"
        && only.argument.is_none()
    {
        axes = vec![only.clone(); grid.len()];
    }
    if let Some(grid) = grid
        && grid.len() != axes.len()
    {
        let problem = format!(
            "the structure has {} axes, but the grid {} has {}; name one structure an axis, joined by x",
            axes.len(),
            show_grid(grid),
            grid.len()
        );
        return Err(wrong(text, 0, &problem));
    }
    let bases = axes.iter().enumerate().map(|(at, axis)| build_axis(text, axis, grid.map(|g| g[at])));
    Ok(Structure::new(bases.collect::<Result<_>>()?))
}

/// The basis of one axis.
fn build_axis(text: &str, axis: &Axis, n_from_grid: Option<usize>) -> Result<Box<dyn Basis>> {
    match axis.word.as_str() {
        "path" => Ok(Box::new(Path::new(length(text, axis, n_from_grid)?))),
        "iid" => Ok(Box::new(Iid::new(length(text, axis, n_from_grid)?))),
        unknown => {
            let known = WORDS.map(|(_, usage)| usage).join(", ");
            Err(wrong(text, axis.position, &format!("'{unknown}' is not a structure; write one of: {known}")))
        }
    }
}

/// The size of an axis: in its brackets, from the grid, or both when they agree.
fn length(text: &str, axis: &Axis, n_from_grid: Option<usize>) -> Result<usize> {
    let given = match &axis.argument {
        None => None,
        Some(argument) => match argument.trim().parse::<usize>() {
            Ok(n) if (1..=LONGEST_AXIS).contains(&n) => Some(n),
            _ => {
                let problem = format!("the size of '{}' is a positive whole number, not '{argument}'", axis.word);
                return Err(wrong(text, axis.position, &problem));
            }
        },
    };
    match (given, n_from_grid) {
        (Some(n), Some(m)) if n != m => {
            Err(wrong(text, axis.position, &format!("this axis has {n} sites, but the grid has {m} there")))
        }
        (None, None) => {
            Err(wrong(text, axis.position, &format!("no grid is given, so write the size: {}(n)", axis.word)))
        }
        (Some(n), _) | (None, Some(n)) => Ok(n),
    }
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
            Some(_) => return Err(wrong(text, at, "between two structures stands x, as in path x path")),
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
        return Err(wrong(text, position, "a structure such as path, path(8) or iid is meant to stand here"));
    }
    skip_spaces(characters, at);
    if characters.get(*at) != Some(&'(') {
        return Ok(Axis { word, argument: None, position });
    }
    let open = *at;
    match characters[open..].iter().position(|&c| c == ')') {
        None => Err(wrong(text, open, "this bracket is not closed")),
        Some(length) => {
            *at = open + length + 1;
            let argument = characters[open + 1..open + length].iter().collect();
            Ok(Axis { word, argument: Some(argument), position })
        }
    }
}

fn skip_spaces(characters: &[char], at: &mut usize) {
    while characters.get(*at).is_some_and(|c| c.is_whitespace()) {
        *at += 1;
    }
}

fn wrong(text: &str, position: usize, problem: &str) -> Error {
    Error::Expression { text: text.to_string(), position, problem: problem.to_string() }
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
        assert_eq!(failure("path(8", None).0, 4);
        assert_eq!(failure("path(8) path(8)", None).0, 8);
        assert_eq!(failure("path(8) x", None).0, 9);
        assert_eq!(failure("path(-1)", None).0, 0);
        assert!(failure("path x path", None).1.contains("path(n)"));
        assert!(failure("path(7) x path", Some(&[8, 8])).1.contains("7 sites"));
        assert!(failure("path", Some(&[8, 8])).1.contains("1 axes"));
        failure("", None);
    }

    #[test]
    fn grids() {
        assert_eq!(parse_grid("100x3x7").unwrap(), [100, 3, 7]);
        for bad in ["", "10x", "0x4", "a", "10x-1", "1.5"] {
            assert!(parse_grid(bad).is_err(), "{bad}");
        }
    }
}
