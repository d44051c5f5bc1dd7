//! Which part of the program uses which: arrows point down, from the command line to what is on disk.

use {
    std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        path::{Path, PathBuf},
    },
    syn::{
        UseTree,
        visit::{self, Visit},
    },
};

/// The layers, from the bottom. A module uses modules of lower layers only.
const LAYERS: [&[&str]; 15] = [
    &["error", "text"],
    &["bytes", "files", "memory", "pool", "progress", "quantity", "stopwatch"],
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

/// Modules of the crate that a file uses, by their first names: in `use`, in paths, in the arguments of macros.
#[derive(Default)]
struct Used(BTreeSet<String>);

impl Used {
    fn of(source: &str) -> BTreeSet<String> {
        let mut used = Self::default();
        used.visit_file(&syn::parse_file(source).expect("Rust"));
        used.0
    }

    /// What a tree names below `crate`.
    fn tree(&mut self, tree: &UseTree, is_below_crate: bool) {
        match tree {
            UseTree::Path(path) if is_below_crate => drop(self.0.insert(path.ident.to_string())),
            UseTree::Path(path) if path.ident == "crate" => self.tree(&path.tree, true),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, is_below_crate)),
            UseTree::Name(name) if is_below_crate => drop(self.0.insert(name.ident.to_string())),
            UseTree::Rename(rename) if is_below_crate => drop(self.0.insert(rename.ident.to_string())),
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Used {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        // Tests may look at anything.
        let is_test = |attribute: &syn::Attribute| match &attribute.meta {
            syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
            _ => false,
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, false);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = path.segments.iter().map(|segment| segment.ident.to_string());
        if names.next().is_some_and(|first| first == "crate") {
            self.0.extend(names.next());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let tokens = call.tokens.to_string();
        let words: Vec<&str> = tokens.split_whitespace().collect();
        for three in words.windows(3) {
            if let ["crate", "::", name] = three {
                self.0.insert((*name).to_string());
            }
        }
        visit::visit_macro(self, call);
    }
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

#[test]
fn arrows_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let inside = file.strip_prefix(&root).expect("inside").to_str().expect("text");
        let module = inside.split('/').next().expect("a module").trim_end_matches(".rs").to_string();
        // Tests may look at anything; the crate's root names everything.
        if inside.ends_with("tests.rs") || inside.contains("/tests/") || module == "lib" {
            continue;
        }
        let is_module = |name: &String| root.join(name).exists() || root.join(format!("{name}.rs")).exists();
        let used = Used::of(&fs::read_to_string(file).expect("read"));
        let others = used.into_iter().filter(|other| *other != module && is_module(other));
        arrows.entry(module.clone()).or_default().extend(others);
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
    let source = "use {crate::{ErrorKind, cli::{ui::Ui, values}, error::Result,\n levels::{a, b::c}}, std::x};
        fn f() -> crate::format::F { println!(\"{}\", crate::text::b()); crate::store::b }
        #[cfg(test)] mod tests { use crate::serve::x; }";
    let found: Vec<String> = Used::of(source).into_iter().filter(|name| name.starts_with(char::is_lowercase)).collect();
    assert_eq!(found, ["cli", "error", "format", "levels", "store", "text"]);
}
