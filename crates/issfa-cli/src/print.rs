//! Printing that does not panic when nobody reads any more (`issfa summary run | head`).

/// A line on standard output.
macro_rules! out {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// A line on standard error.
macro_rules! err {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
