//! `--json`: every field that a command prints is in docs/json.md, and every field that is listed there is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{FULL_26, INCREMENTAL_26_40, fixture, ledger, slotpress, temp_dir};

/// The names in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    text.split('`').skip(1).step_by(2).filter(is_name)
}

/// The fields of each type: the names in the first columns of its tables.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md")).expect("the document");
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for section in text.split("\n### ").skip(1) {
        let section = section.split("\n## ").next().expect("a section");
        let (heading, body) = section.split_once('\n').expect("a heading");
        let rows = body.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |")).skip(1);
        let rows: Vec<(&str, &str)> = rows.collect();
        let kinds: Vec<&str> = quoted(heading).collect();
        if kinds.len() > 1 {
            // A table of types.
            types.extend(rows.iter().map(|(kind, fields)| {
                (quoted(kind).collect::<String>(), quoted(fields).map(str::to_string).collect())
            }));
            continue;
        }
        let of_kind = types.entry(kinds.concat()).or_default();
        for (fields, meaning) in rows {
            let fields: Vec<&str> = quoted(fields).collect();
            // "each also with `_min` and `_max`"
            let endings = quoted(meaning).filter(|name| name.starts_with('_'));
            of_kind.extend(endings.flat_map(|ending| fields.iter().map(move |field| format!("{field}{ending}"))));
            of_kind.extend(fields.iter().map(ToString::to_string));
        }
    }
    // "The fields of `archive` without `threads` and `read_back`"
    let archive = types["archive"].clone();
    let of_both = archive.into_iter().filter(|field| field != "threads" && field != "read_back");
    types.get_mut("recompress").expect("documented").extend(of_both);
    types
}

/// What commands print, by type.
#[derive(Default)]
struct Printed(BTreeMap<String, BTreeSet<String>>);

impl Printed {
    fn run<A: AsRef<OsStr>>(&mut self, arguments: &[A]) {
        let output = slotpress().args(arguments).arg("--json").output().expect("runs");
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let shown: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        assert!(!said.is_empty() || !output.status.success(), "{shown:?}: {errors}");
        for line in said.lines().chain(errors.lines().filter(|line| line.starts_with('{'))) {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{shown:?}: {error}: {line}"));
            let fields = value.as_object().expect("an object");
            let kind = fields["type"].as_str().expect("a type").to_string();
            self.0.entry(kind).or_default().extend(fields.keys().filter(|field| *field != "type").cloned());
        }
    }
}

#[test]
fn what_is_printed_is_what_is_documented() {
    let mut printed = Printed::default();
    let (ledger_26, ledger_40, dir) = (ledger("ledger-at-26"), ledger("ledger-at-40"), temp_dir());
    let at = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
    let text = |path: &Path| path.to_str().expect("text").to_string();
    let (at_26, at_40) = (text(ledger_26.path()), text(ledger_40.path()));
    let (full, incremental) = (text(&fixture(FULL_26)), text(&fixture(INCREMENTAL_26_40)));
    fs::create_dir(at("out")).expect("made");
    fs::create_dir(at("smaller")).expect("made");

    printed.run(&["archive", &at_26, "-o", &at("out"), "--dry-run"]);
    printed.run(&["archive", &at_26, "-o", &at("out"), "--verify"]);
    printed.run(&["archive", &at_26, "-o", &at("out"), "--skip-existing"]);
    printed.run(&["archive", &at_40, "-o", &at("out"), "--base-slot", "26"]);
    printed.run(&["archive", &at_26, "-o", &at("out")]);
    printed.run(&["recompress", &full, "-o", &at("smaller")]);
    printed.run(&["restore", &full, &incremental, "--ledger", &at("restored"), "--dry-run"]);
    printed.run(&["restore", &full, &incremental, "--ledger", &at("restored"), "--verify"]);
    printed.run(&["verify", &full, &incremental]);
    printed.run(&["inspect", &full]);
    printed.run(&["inspect", &at_26]);
    printed.run(&["inspect", &at_26, "--by-owner"]);
    printed.run(&["inspect", &full, "--account", "Vote111111111111111111111111111111111111111"]);
    printed.run(&["doctor", &at_26]);
    printed.run(&["synth", &at("synth"), "--size", "1MiB"]);
    printed.run(&["find", "--source", &at("out")]);
    printed.run(&["fetch", &at("out"), "-o", &at("fetched")]);
    printed.run(&["bootstrap", &at("out"), "--ledger", &at("booted"), "--dry-run"]);
    printed.run(&["bootstrap", &at("out"), "--ledger", &at("booted")]);
    fs::write(at("out/") + &FULL_26.replace("-26-", "-27-"), "x").expect("written");
    fs::write(at("out/slotpress-fetch-") + FULL_26, "x").expect("written");
    printed.run(&["list", &at("out")]);
    printed.run(&["prune", &at("out"), "--keep-full", "1", "--keep-incremental", "1", "--dry-run"]);
    let quick = ["--repeat", "1", "--min-time", "0", "--frame-size", "64KiB", "--sample", "512KiB"];
    printed.run(&[["levels", &full, "--levels", "1,2"].as_slice(), &quick].concat());
    printed.run(&[["levels", "link", &full, "--levels", "1,2", "--bandwidth", "1Gbit"].as_slice(), &quick].concat());
    printed.run(&["levels", "frames", &full, "--min-time", "0", "--bundles", "1,8"]);
    printed.run(&["levels", "sizes", &full, "--repeat", "1", "--min-time", "0"]);

    let documented = documented();
    let mut wrong = Vec::new();
    for (kind, fields) in &printed.0 {
        let of_kind = documented.get(kind).unwrap_or_else(|| panic!("{kind} is not documented"));
        let unknown: Vec<&String> = fields.iter().filter(|field| !of_kind.contains(*field)).collect();
        // docs/serving.md lists them.
        let are_elsewhere = kind == "archive_listed";
        if !are_elsewhere && !unknown.is_empty() {
            wrong.push(format!("not documented of {kind}: {unknown:?}"));
        }
        let missing: Vec<&String> = of_kind.difference(fields).collect();
        if !are_elsewhere && !missing.is_empty() {
            wrong.push(format!("documented of {kind}, and not printed: {missing:?}"));
        }
    }
    // Of what runs until it is stopped, of URLs, and on a terminal or after some time: tests/serve, tests/net and
    // tests/screen.rs look at these.
    let others = ["answered", "demo", "progress", "refused", "serve", "served", "status", "transfer", "warning"];
    let missing: Vec<&String> =
        documented.keys().filter(|kind| !printed.0.contains_key(*kind) && !others.contains(&kind.as_str())).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "never printed: {missing:?}\n{}", wrong.join("\n"));
}

/// Characters that a terminal would obey are escaped as JSON has it: each line can be parsed, and says the text as it was.
#[test]
fn controls_are_escaped_and_not_altered() {
    let controls = "\u{7f}\u{80}\u{9b}\u{9f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}";
    let top = temp_dir();
    let dir = top.path().join(format!("a{controls}z"));
    fs::create_dir(&dir).expect("made");
    fs::copy(fixture(FULL_26), dir.join(FULL_26)).expect("copied");
    let missing = dir.join("missing");
    for arguments in [vec![OsStr::new("list"), dir.as_os_str()], vec![OsStr::new("inspect"), missing.as_os_str()]] {
        let output = slotpress().args(&arguments).arg("--json").output().expect("runs");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        assert!(!said.contains(|char| controls.contains(char)), "{said:?}");
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let (field, wanted) = match lines[0]["type"].as_str() {
            Some("archive_listed") => ("file", dir.join(FULL_26).to_str().expect("UTF-8").to_string()),
            // Messages show a path escaped, as they do on a terminal.
            _ => ("message", "\\u{9b}".to_string()),
        };
        assert!(lines[0][field].as_str().expect("text").contains(&wanted), "{said}");
    }
}
