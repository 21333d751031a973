//! Text: styles, escaping, widths, line breaks and raised digits.

use super::canvas::{INK, QUIET};

/// Which part of a text stands at its x.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks; `turn` is in degrees, clockwise.
#[derive(Debug, Clone, Copy)]
pub struct TextStyle {
    pub size: f64,
    pub colour: &'static str,
    pub anchor: Anchor,
    pub turn: f64,
}

impl TextStyle {
    pub const TITLE: TextStyle = TextStyle { size: 15.0, colour: INK, anchor: Anchor::Start, turn: 0.0 };
    pub const LABEL: TextStyle = TextStyle { size: 12.5, colour: INK, anchor: Anchor::Middle, turn: 0.0 };
    pub const SMALL: TextStyle = TextStyle { size: 11.0, colour: QUIET, anchor: Anchor::Middle, turn: 0.0 };

    pub fn anchored(self, anchor: Anchor) -> Self {
        TextStyle { anchor, ..self }
    }

    pub fn turned(self, turn: f64) -> Self {
        TextStyle { turn, ..self }
    }
}

/// Text made safe inside an element or attribute; control characters, which XML forbids, become spaces.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}

/// About how wide a text comes out; fonts differ, so this errs to the wide side.
pub fn text_width(text: &str, size: f64) -> f64 {
    let em = |letter: char| match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.27,
        '⁰'..='⁻' | '¹' | '²' | '³' | 'f' | 'r' | 't' | ' ' | '(' | ')' | '[' | ']' | '-' => 0.38,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.90,
        'A'..='Z' | '×' | '−' | '+' | '=' => 0.68,
        _ => 0.58,
    };
    size * text.chars().map(em).sum::<f64>()
}

/// A blank at which no line is broken.
pub const NO_BREAK: char = '\u{a0}';

/// Breaks a text into at most `n_lines` lines of a width, and ends it with an ellipsis where it does not fit. What is joined by
/// [`NO_BREAK`] stays in one line.
pub fn wrap(text: &str, width: f64, size: f64, n_lines: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() && c != NO_BREAK).filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if lines_fit(line, word, width, size) => *line = format!("{line} {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    let is_cut = lines.len() > n_lines;
    lines.truncate(n_lines);
    let last = lines.len();
    let shorten = |(index, line): (usize, String)| shorten(line, width, size, is_cut && index + 1 == last);
    lines.into_iter().enumerate().map(shorten).collect()
}

fn lines_fit(line: &str, word: &str, width: f64, size: f64) -> bool {
    text_width(line, size) + text_width(" ", size) + text_width(word, size) <= width
}

fn shorten(mut line: String, width: f64, size: f64, is_cut: bool) -> String {
    if !is_cut && text_width(&line, size) <= width {
        return line;
    }
    while !line.is_empty() && text_width(&line, size) + text_width("…", size) > width {
        line.pop();
    }
    line.trim_end().to_string() + "…"
}

/// A part of a text that is raised, or is not.
pub struct Piece {
    pub text: String,
    pub is_raised: bool,
    was_raised: bool,
}

/// Size of raised letters, of the others'.
pub const RAISED_SIZE: f64 = 0.75;
/// How far up raised letters go, of their own size.
const RAISE: f64 = 0.45;
/// How far down the letters after them come back, of their own size.
const DROP: f64 = 0.34;

impl Piece {
    /// How far down the baseline moves before the piece, of the size of letters that are not raised.
    pub fn shift(&self) -> f64 {
        match (self.is_raised, self.was_raised) {
            (true, _) => -RAISE * RAISED_SIZE,
            (false, true) => DROP,
            (false, false) => 0.0,
        }
    }
}

/// The pieces of a text, with raised digits as plain ones, as few fonts have them all.
pub fn pieces(text: &str) -> Vec<Piece> {
    let letters: Vec<char> = text.chars().collect();
    let mut was_raised = false;
    let piece = |letters: &[char]| {
        let is_raised = lower(letters[0]).is_some();
        let text = letters.iter().map(|&letter| lower(letter).unwrap_or(letter)).collect();
        Piece { text, is_raised, was_raised: std::mem::replace(&mut was_raised, is_raised) }
    };
    letters.chunk_by(|left, right| lower(*left).is_some() == lower(*right).is_some()).map(piece).collect()
}

/// Text as the inside of an SVG element: escaped, with raised digits as small shifted ones.
pub fn markup(text: &str) -> String {
    let inside = |piece: Piece| match (piece.is_raised, piece.was_raised) {
        (true, _) => {
            let size = 100.0 * RAISED_SIZE;
            format!("<tspan dy=\"-{RAISE}em\" font-size=\"{size}%\">{}</tspan>", escape(&piece.text))
        }
        (false, true) => format!("<tspan dy=\"{DROP}em\">{}</tspan>", escape(&piece.text)),
        (false, false) => escape(&piece.text),
    };
    pieces(text).into_iter().map(inside).collect()
}

/// Text as a page of XML shows it: a control character is a space, and so are several spaces; none at the ends.
pub fn plain(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The plain letter of a raised one.
fn lower(letter: char) -> Option<char> {
    let place = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻".chars().position(|raised| raised == letter)?;
    "0123456789−".chars().nth(place)
}

#[cfg(test)]
mod tests {
    use super::super::canvas::Canvas;
    use super::*;

    #[test]
    fn escapes_and_stays_well_formed() {
        assert_eq!(escape("a<b & \"c\"\u{7}"), "a&lt;b &amp; &quot;c&quot; ");
        let mut canvas = Canvas::new();
        canvas.title("</text> & <b> ]]> 'quoted' 10⁻⁵ \u{1}\u{0}");
        super::super::check(&canvas.finish(60.0));
    }

    #[test]
    fn digits_are_raised() {
        assert_eq!(markup("a<b"), "a&lt;b");
        let raised = "10<tspan dy=\"-0.45em\" font-size=\"75%\">−5</tspan><tspan dy=\"0.34em\"> m</tspan>";
        assert_eq!(markup("10⁻⁵ m"), raised);
    }

    #[test]
    fn spaces_are_joined() {
        assert_eq!(plain(" a\tb  c\n"), "a b c");
    }

    #[test]
    fn wraps_and_shortens() {
        assert_eq!(wrap("short", 100.0, 11.0, 1), ["short"]);
        assert_eq!(wrap("one two three", 60.0, 11.0, 3), ["one two", "three"]);
        assert_eq!(wrap("one two\u{a0}three", 60.0, 11.0, 3), ["one", "two\u{a0}three"]);
        let cut = wrap("one two three four five six", 60.0, 11.0, 2);
        assert!(cut.len() == 2 && cut[1].ends_with('…'), "{cut:?}");
        assert!(text_width(&wrap("x".repeat(99).as_str(), 80.0, 11.0, 2)[0], 11.0) <= 80.0);
        assert!(wrap("", 80.0, 11.0, 2).is_empty());
    }
}
