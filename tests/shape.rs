//! The arrows of docs/architecture.md: a module uses those below it, never those above or beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// From the bottom up. What stands in one line may not use each other.
const LAYERS: [&[&str]; 15] = [
    &["error"],
    &["files", "memory", "pool", "progress", "quantity", "stopwatch", "text"],
    &["threads"],
    &["ledger"],
    &["format", "io", "pipeline", "read_back", "store"],
    &["read"],
    &["net"],
    &["catalog", "fetch", "find", "rules"],
    &["state"],
    &["synth", "archive", "restore"],
    &["bootstrap", "recompress", "serve", "verify"],
    &["doctor", "inspect"],
    &["levels"],
    &["cli"],
    &["main", "lib"],
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("read") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

/// What follows `crate::`, alone or in braces; of braces inside braces, only the first names.
fn used(source: &str) -> BTreeSet<String> {
    let name =
        |text: &str| -> String { text.chars().take_while(|char| char.is_ascii_lowercase() || *char == '_').collect() };
    let mut names = BTreeSet::new();
    for (at, _) in source.match_indices("crate::") {
        let rest = &source[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut is_item_start = true;
        for (at, char) in group.char_indices() {
            match char {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => is_item_start = true,
                char if char.is_whitespace() => {}
                _ if depth == 0 && is_item_start => {
                    names.insert(name(&group[at..]));
                    is_item_start = false;
                }
                _ => {}
            }
        }
    }
    names.remove("");
    names
}

#[test]
fn arrows_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let inside = file.strip_prefix(&root).expect("inside").to_str().expect("text");
        let module = inside.split('/').next().expect("a module").trim_end_matches(".rs").to_string();
        let source = fs::read_to_string(file).expect("read");
        // Tests may look at anything.
        if inside.ends_with("tests.rs") {
            continue;
        }
        let source = source.split("#[cfg(test)]").next().expect("a first part");
        let own = used(source).into_iter().filter(|other| *other != module && root.join(other).exists());
        let files = used(source).into_iter().filter(|other| root.join(format!("{other}.rs")).exists());
        arrows.entry(module.clone()).or_default().extend(own.chain(files).filter(|other| *other != module));
    }
    assert!(arrows.len() > 12 && arrows["cli"].len() > 8 && arrows["ledger"].contains("error"), "{arrows:?}");
    for (module, others) in &arrows {
        let own = layer(module).unwrap_or_else(|| panic!("{module} has no place in LAYERS"));
        for other in others {
            let below = layer(other).unwrap_or_else(|| panic!("{other} has no place in LAYERS"));
            assert!(below < own, "{module} uses {other}, which is not below it");
        }
    }
}

#[test]
fn what_is_used_is_found() {
    let source = "use {crate::{ErrorKind, cli::{ui::Ui, values}, error::Result,\n levels::{a, b::c}}, std::x};\nlet a = crate::store::b;";
    assert_eq!(used(source).into_iter().collect::<Vec<_>>(), ["cli", "error", "levels", "store"]);
}
