//! The page of a fit: one HTML file that needs no network, and a server that shows it while the fit runs.
//!
//! | file | what |
//! |---|---|
//! | `contents` | what the page shows, as JSON, and arrays beside it |
//! | `features`, `space`, `maps`, `methods` | parts of that |
//! | [`watch`] | the same page over a run that goes on |
//! | `page/` | the page itself: HTML, style and scripts, bundled when the crate is built |
#![warn(missing_docs)]

mod contents;
mod features;
mod maps;
mod methods;
mod space;
pub mod watch;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contents::Contents;
use issfa::data::axes::AxisPlaces;
use issfa::lab::numeric::files::write_lightly;
use issfa::run::settings::PageSize;
use issfa::summary::Standing;
use issfa::{Fitted, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// How a page is made.
pub struct PageOptions<'a> {
    /// How much it holds.
    pub size: PageSize,
    /// What the run is called.
    pub name: String,
    /// The image under the features of images; the mean of the data where there is none.
    pub background: Option<PathBuf>,
    /// What the axes are called and where they lie, where that is known.
    pub axes: Option<Vec<AxisPlaces>>,
    /// What `evaluate` said, where it was asked.
    pub evaluation: Option<serde_json::Value>,
    /// Whether some rows are shown beside what the features make of them, for which the inputs are read.
    pub with_rows: bool,
    /// The library's settings and actions in the words of the user.
    pub words: &'a (dyn Fn(&str) -> String + Sync),
}

impl<'a> PageOptions<'a> {
    /// As the settings of a fit have it.
    pub fn of(fitted: &Fitted, words: &'a (dyn Fn(&str) -> String + Sync)) -> PageOptions<'a> {
        let background = fitted.settings().background.clone().filter(|path| path.is_file());
        let name = fitted.name().file_name().map_or_else(|| "fit".into(), |name| name.to_string_lossy().into_owned());
        let (size, axes) = (fitted.settings().report, fitted.axes());
        PageOptions { size, name, background, axes, evaluation: None, with_rows: true, words }
    }
}

/// A page that was made, and not written yet.
pub struct Page {
    /// All of it.
    pub html: String,
    /// Whether features have one map each.
    pub is_light: bool,
    /// How many sites along each axis are shown as one: more than 1 where a light page would be too large.
    pub every: usize,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl Page {
    /// What it holds, in words; `full` is how the user asks for a full one.
    pub fn holds(&self, full: &str) -> String {
        match (self.is_light, self.every) {
            (false, _) => "all maps".into(),
            (true, 1) => format!("one map a feature; {full} has all"),
            (true, n) => format!("one map a feature, {n} sites along each axis as one; {full} has all"),
        }
    }

    /// Of a fit whose features are these.
    pub fn of(fitted: &Fitted, standing: Standing, options: &PageOptions) -> Result<Page> {
        let contents = Contents::of(fitted, standing, options)?;
        let (is_light, every, warnings) = (contents.is_light, contents.every, contents.warnings);
        Ok(Page { html: assemble(&options.name, &contents.data, &contents.blobs), is_light, every, warnings })
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_lightly(path, self.html.as_bytes())
    }
}

const TEMPLATE: &str = include_str!("../page/index.html");
const STYLE: &str = concat!(include_str!("../page/uplot/uPlot.min.css"), include_str!("../page/style.css"));
const UPLOT: &str = include_str!("../page/uplot/uPlot.iife.min.js");
/// The scripts in the order in which they rely on each other.
const SCRIPTS: [&str; 9] = [
    include_str!("../page/base.js"),
    include_str!("../page/colours.js"),
    include_str!("../page/charts.js"),
    include_str!("../page/maps.js"),
    include_str!("../page/slicer.js"),
    include_str!("../page/sections.js"),
    include_str!("../page/features.js"),
    include_str!("../page/live.js"),
    include_str!("../page/main.js"),
];

/// The page with its data in it.
fn assemble(title: &str, data: &serde_json::Value, blobs: &[(String, Vec<u8>)]) -> String {
    let n_bytes: usize = blobs.iter().map(|(_, bytes)| bytes.len() * 4 / 3 + 100).sum();
    let mut arrays = String::with_capacity(n_bytes);
    for (name, bytes) in blobs {
        let _ = writeln!(arrays, "<script type=\"text/plain\" id=\"blob-{name}\">{}</script>", STANDARD.encode(bytes));
    }
    let parts = [
        ("{{title}}", escaped(title)),
        ("{{style}}", STYLE.to_string()),
        ("{{uplot}}", UPLOT.to_string()),
        ("{{script}}", SCRIPTS.join("\n")),
        ("{{data}}", json_in_html(data)),
        ("{{arrays}}", arrays),
    ];
    // Piece by piece: what is put in may hold braces too.
    let (mut html, mut rest) = (String::new(), TEMPLATE);
    for (mark, text) in parts {
        let (before, after) = rest.split_once(mark).expect("the template has its marks in this order");
        html.push_str(before);
        html.push_str(&text);
        rest = after;
    }
    html + rest
}

/// Text made safe inside an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// JSON that cannot end the element it stands in, whatever strings say.
fn json_in_html(data: &serde_json::Value) -> String {
    data.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let data = serde_json::json!({"name": "</script><script>alert(1)</script>{{arrays}}<!--"});
        let html = assemble("</title><script>", &data, &[("a".into(), vec![1, 2, 3])]);
        assert!(html.contains("<title>&lt;/title&gt;&lt;script&gt;"));
        assert!(html.contains("\\u003c/script\\u003e") && !html.contains("</script><script>alert"));
        assert_eq!(html.matches("id=\"blob-a\">AQID</script>").count(), 1);
        let begins = html.matches("<script").count();
        assert_eq!(begins, html.matches("</script>").count());
        let back: serde_json::Value = serde_json::from_str(&json_in_html(&data)).unwrap();
        assert_eq!(back, data);
    }
}
