//! Small text files that come with the data, in one piece, whatever program wrote them.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// The text of a file without a byte order mark, and without blanks and empty lines at its end. Its lines are those of
/// [`str::lines`].
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(Error::read(path))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = line_at(error.as_bytes(), error.utf8_error().valid_up_to());
        Error::malformed(path, format!("line {line} is not UTF-8 text; save the file as plain text in UTF-8"))
    })?;
    if let Some(at) = lone_carriage_return(text.as_bytes()) {
        // Lines ended so would otherwise run together into one.
        let line = line_at(text.as_bytes(), at);
        let problem = format!("line {line} has a carriage return within it; save the file with \\n line ends");
        return Err(Error::malformed(path, problem));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.trim_end_matches([' ', '\r', '\n']).to_string())
}

/// The number of the line that holds a byte, from 1.
fn line_at(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count()
}

fn lone_carriage_return(bytes: &[u8]) -> Option<usize> {
    (0..bytes.len()).find(|&at| bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, bytes).unwrap();
        read_text(&path)
    }

    #[test]
    fn marks_and_empty_ends_are_gone() {
        for text in ["a\n b\t", "a\n b\t\n", "\u{feff}a\r\n b\t \r\n\r\n  \n"] {
            assert_eq!(read(text.as_bytes()).unwrap().lines().collect::<Vec<_>>(), ["a", " b\t"], "{text:?}");
        }
        assert_eq!(read(b"").unwrap(), "");
        assert_eq!(read("\u{feff} \r\n\n".as_bytes()).unwrap(), "");
    }

    #[test]
    fn what_is_no_text_is_named_by_line() {
        let problem = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert!(problem(b"a\n\xff\n").contains("notes.txt: line 2 is not UTF-8"));
        assert!(problem(b"a\nb\rc").contains("line 2 has a carriage return"));
        assert!(matches!(read_text(Path::new("/nowhere/a.txt")), Err(Error::Read { .. })));
    }
}
