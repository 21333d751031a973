//! Printing: what cannot be written is remembered, unless nobody reads any more (`issfa summary run | head`), and codes
//! that terminals obey are made visible.

use std::borrow::Cow;
use std::io::{ErrorKind, Write, stdout};
use std::sync::OnceLock;

/// Why standard output could not be written, if it could not.
static FAILURE: OnceLock<String> = OnceLock::new();

/// A line on standard output.
macro_rules! out {
    ($($text:tt)*) => { $crate::print::out(&format!($($text)*)) };
}

/// A line on standard error.
macro_rules! err {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "{}", $crate::print::visible(&format!($($text)*)));
    }};
}

/// A line on standard output.
pub fn out(text: &str) {
    note(writeln!(stdout(), "{}", visible(text)));
}

/// Remembers a failure to write to standard output.
pub fn note(written: std::io::Result<()>) {
    if let Err(error) = written.and_then(|()| stdout().flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILURE.get_or_init(|| error.to_string());
    }
}

/// Why standard output could not be written, if it could not.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}

/// Text from files and names may hold codes that move the cursor, change colours or turn the direction of writing: they are
/// shown by their numbers, as in JSON.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_code = |c: char| {
        c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_code) {
        return Cow::Borrowed(text);
    }
    let show = |c: char| if is_code(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    Cow::Owned(text.chars().map(show).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_shown_by_their_numbers() {
        assert_eq!(visible("a\tb\nc \u{e9} \u{3b3}"), "a\tb\nc \u{e9} \u{3b3}");
        assert_eq!(visible("\u{1b}[31mred\u{7}\r\u{9b}2J\u{202e}x"), "\\u001b[31mred\\u0007\\u000d\\u009b2J\\u202ex");
    }
}
