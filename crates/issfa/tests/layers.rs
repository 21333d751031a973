//! Imports point downwards: a module uses only modules that stand before it in [`LAYERS`].

#[path = "common/sources.rs"]
mod sources;

/// The modules of the library, each above those that it may use. docs/design.md draws this list.
const LAYERS: [&str; 25] = [
    "error",
    "numeric",
    "rng",
    "comm",
    "data",
    "structure",
    "noise",
    "spectral",
    "model",
    "kernels",
    "chain",
    "pca",
    "infer",
    "compiled",
    "figures",
    "run",
    "evidence",
    "summary",
    "new_rows",
    "fit",
    "simulation",
    "evaluate",
    "choose",
    "report",
    "selftest",
];

/// The modules that a text names after `crate::`, by the line.
fn uses(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + "crate::".len()..];
        let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{') {
            None => found.push((line, word(rest))),
            Some(list) => {
                let list = &list[..list.find('}').unwrap_or(list.len())];
                found.extend(list.split(',').map(|part| (line, word(part.trim()))));
            }
        }
    }
    found
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|known| *known == module)
}

#[test]
fn imports_point_downwards() {
    let mut upwards = Vec::new();
    for (inside, text) in sources::sources() {
        let module = inside.components().next().unwrap().as_os_str().to_string_lossy().replace(".rs", "");
        if module == "lib" {
            continue;
        }
        let own = layer(&module).unwrap_or_else(|| panic!("{module} has no place in LAYERS"));
        for (line, used) in uses(&text) {
            // Names that are not modules (crate::Error, crate::Result) are those of the bottom.
            if layer(&used).is_some_and(|used| used > own) {
                upwards.push(format!("{}:{line}: {module} uses {used}, which stands above it", inside.display()));
            }
        }
    }
    assert!(upwards.is_empty(), "imports that point upwards:\n{}", upwards.join("\n"));
}

#[test]
fn uses_are_seen() {
    let text = "use crate::error::Result;\nuse crate::{chain, fit::Prepared};\nlet x = crate::report::y();";
    let words: Vec<String> = uses(text).into_iter().map(|(_, word)| word).collect();
    assert_eq!(words, ["error", "chain", "fit", "report"]);
}
