//! Inputs given as patterns: `*`, `?` and `[..]` in a file's name, for shells that do not expand them.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Replaces every pattern by the files it matches, in natural order (`vol2` before `vol10`). A path that exists, or that
/// has no wildcards in it, stays as it is.
pub fn expand_inputs(inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut expanded = Vec::new();
    for input in inputs {
        if has_wildcards(input) && fs::symlink_metadata(input).is_err() {
            expanded.extend(matches(input)?);
        } else {
            expanded.push(input.clone());
        }
    }
    Ok(expanded)
}

fn has_wildcards(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '['])
}

/// The files that a pattern matches, at least one.
fn matches(pattern: &Path) -> Result<Vec<PathBuf>> {
    let nothing = || Error::NothingMatches { pattern: pattern.to_path_buf() };
    let name: Vec<char> = pattern.file_name().ok_or_else(nothing)?.to_string_lossy().chars().collect();
    let folder = pattern.parent().unwrap_or(Path::new(""));
    let to_list = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if has_wildcards(folder) && !folder.is_dir() {
        return Err(nothing());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(to_list).map_err(Error::read(to_list))? {
        let entry = entry.map_err(Error::read(to_list))?.file_name();
        let text: Vec<char> = entry.to_string_lossy().chars().collect();
        // Hidden files are meant only when the dot is written.
        let hidden = text.first() == Some(&'.') && name.first() != Some(&'.');
        let path = folder.join(&entry);
        if !hidden && name_matches(&name, &text) && !path.is_dir() {
            found.push((entry.to_string_lossy().into_owned(), path));
        }
    }
    found.sort_by(|(one, _), (other, _)| natural_order(one, other));
    if found.is_empty() { Err(nothing()) } else { Ok(found.into_iter().map(|(_, path)| path).collect()) }
}

/// Whether a name fits a pattern. After a mismatch the last `*` takes one character more, so that the time is at most the
/// product of the lengths.
fn name_matches(pattern: &[char], name: &[char]) -> bool {
    let (mut at_pattern, mut at_name) = (0, 0);
    let mut last_star = None;
    while at_name < name.len() {
        if pattern.get(at_pattern) == Some(&'*') {
            last_star = Some((at_pattern, at_name));
            at_pattern += 1;
        } else if let Some(length) = fits(&pattern[at_pattern..], name[at_name]) {
            at_pattern += length;
            at_name += 1;
        } else if let Some((star, taken)) = last_star {
            last_star = Some((star, taken + 1));
            (at_pattern, at_name) = (star + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at_pattern..].iter().all(|&rest| rest == '*')
}

/// The length of the pattern's first part if a single character fits it.
fn fits(pattern: &[char], character: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => match set_length(pattern) {
            Some(length) => in_set(&pattern[1..length - 1], character).then_some(length),
            None => (character == '[').then_some(1),
        },
        other => (*other == character).then_some(1),
    }
}

/// The length of a set such as `[a-z]` with its brackets; a bracket right after the first (and `!`) belongs to the set.
fn set_length(pattern: &[char]) -> Option<usize> {
    let first = if matches!(pattern.get(1), Some('!' | '^')) { 3 } else { 2 };
    let end = pattern.iter().skip(first).position(|&character| character == ']')?;
    Some(first + end + 1)
}

fn in_set(set: &[char], character: char) -> bool {
    let (negated, mut set) = match set {
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    while let Some(&first) = set.first() {
        match set {
            [_, '-', last, rest @ ..] => {
                found |= (first..=*last).contains(&character);
                set = rest;
            }
            _ => {
                found |= first == character;
                set = &set[1..];
            }
        }
    }
    found != negated
}

/// Runs of digits are compared as numbers; equal numbers written otherwise, as text.
pub(super) fn natural_order(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let [(head, rest), (other_head, other_rest)] = [split_run(left), split_run(right)];
        match compare_runs(head, other_head) {
            Ordering::Equal if head.is_empty() => return one.cmp(other),
            Ordering::Equal => (left, right) = (rest, other_rest),
            order => return order,
        }
    }
}

/// The first run of digits, or of anything else, and what follows.
fn split_run(text: &str) -> (&str, &str) {
    let is_digit = |character: char| character.is_ascii_digit();
    let digits_first = text.starts_with(is_digit);
    text.split_at(text.find(|character| is_digit(character) != digits_first).unwrap_or(text.len()))
}

fn compare_runs(one: &str, other: &str) -> Ordering {
    let is_number = |run: &str| run.starts_with(|character: char| character.is_ascii_digit());
    if !is_number(one) || !is_number(other) {
        return one.cmp(other);
    }
    let [one, other] = [one, other].map(|run| run.trim_start_matches('0'));
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits_name(pattern: &str, name: &str) -> bool {
        let [pattern, name] = [pattern, name].map(|text| text.chars().collect::<Vec<_>>());
        name_matches(&pattern, &name)
    }

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("*.nii", &["a.nii", ".nii", "a.b.nii"][..], &["a.nii.gz", "anii"][..]),
            ("*", &["", "a"], &[]),
            ("a?c", &["abc", "aüc"], &["ac", "abbc"]),
            ("v[0-3x].nii", &["v0.nii", "v3.nii", "vx.nii"], &["v4.nii", "v-.nii", "v.nii"]),
            ("[!a-c]*", &["d", "dab"], &["a", "cd", ""]),
            ("[]x]", &["]", "x"], &["[", "y"]),
            ("[-a]", &["-", "a"], &["b"]),
            ("[a-]", &["-", "a"], &["b"]),
            ("[z-a]", &[], &["a", "m", "z"]),
            ("a[b", &["a[b"], &["ab"]),
            ("*a*b*", &["xaybz", "ab", "aab"], &["ba", "a"]),
            ("sub-*_run-?.nii*", &["sub-01_run-1.nii.gz", "sub-_run-2.nii"], &["sub-01_run-10.nii"]),
        ] {
            assert!(yes.iter().all(|name| fits_name(pattern, name)), "{pattern}");
            assert!(!no.iter().any(|name| fits_name(pattern, name)), "{pattern}");
        }
        assert!(!fits_name(&"*a".repeat(200), &"a".repeat(199)), "quick though hard");
    }

    #[test]
    fn numbers_in_names_count() {
        let mut names =
            ["v10", "v2", "v1", "v02", "v1a", "v", "w", "v1_10", "v1_9", "v99999999999999999999999999", "10", "9"];
        names.sort_by(|one, other| natural_order(one, other));
        let sorted =
            ["9", "10", "v", "v1", "v1_9", "v1_10", "v1a", "v02", "v2", "v10", "v99999999999999999999999999", "w"];
        assert_eq!(names, sorted);
    }

    #[test]
    fn files_stand_in_for_patterns() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["v10.nii", "v9.nii", ".v1.nii", "w.nii", "real[1].nii"] {
            fs::write(path(name), "").unwrap();
        }
        fs::create_dir(path("v11.nii")).unwrap();
        let expanded = |names: &[&str]| expand_inputs(&names.iter().map(|name| path(name)).collect::<Vec<_>>());
        let paths = |names: &[&str]| names.iter().map(|name| path(name)).collect::<Vec<_>>();
        assert_eq!(expanded(&["w.nii", "v*.nii"]).unwrap(), paths(&["w.nii", "v9.nii", "v10.nii"]));
        assert_eq!(expanded(&["real[1].nii"]).unwrap(), paths(&["real[1].nii"]), "as it is");
        assert_eq!(expanded(&["missing.nii"]).unwrap(), paths(&["missing.nii"]), "left to be missed when opened");
        assert_eq!(expanded(&[".v*"]).unwrap(), paths(&[".v1.nii"]));
        for nothing in ["x*.nii", "*/v9.nii", "v?.npy"] {
            let error = expanded(&[nothing]).unwrap_err();
            assert!(matches!(&error, Error::NothingMatches { pattern } if *pattern == path(nothing)), "{error}");
            assert!(error.to_string().contains(nothing));
        }
        assert!(matches!(expanded(&["nowhere/v*"]), Err(Error::Read { .. })));
        assert_eq!(expand_inputs(&[]).unwrap(), Vec::<PathBuf>::new());
    }
}
