//! `--json`: samples of every type have exactly the fields that docs/json.md lists.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::served::ServeProcess;
use crate::common::*;
use crate::publish::setup::Setup;

/// The fields of each type. A field of a nested object, or of an object in a list, is named `parent.child`.
type Fields = BTreeMap<String, BTreeSet<String>>;

/// Returns the names of fields and types in backticks.
fn names_in_backticks(text: &str) -> impl Iterator<Item = &str> {
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || "._".contains(char));
    text.split('`').skip(1).step_by(2).filter(is_name)
}

/// Returns the names in the first column of a row: "`a`, `b`", or "`a`: `b`" for the field `b` of
/// objects in `a`.
fn field_names(column: &str) -> BTreeSet<String> {
    let Some(end) = column.find("`: ") else {
        return names_in_backticks(column).map(str::to_string).collect();
    };
    let (parents, children) = column.split_at(end + 1);
    let mut names = BTreeSet::new();
    for parent in names_in_backticks(parents) {
        names.insert(parent.to_string());
        names.extend(names_in_backticks(children).map(|child| format!("{parent}.{child}")));
    }
    names
}

/// Removes parenthesized parts of a text.
fn remove_asides(text: &str) -> String {
    let mut text = text.to_string();
    while let Some((before, aside)) = text.split_once('(') {
        let after = aside.split_once(')').map_or("", |(_, after)| after);
        text = format!("{before}{after}");
    }
    text
}

/// Reads docs/json.md. Below a type's heading is a table of the type's fields. A table of several types has a row for
/// each.
fn read_documented_fields() -> Fields {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md")).expect("the document");
    let mut types = Fields::new();
    let mut kind = String::new();
    let mut lists_types = false;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            kind = names_in_backticks(heading).next().unwrap_or_default().to_string();
            continue;
        }
        let columns: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        match columns.as_slice() {
            ["type", "fields"] => lists_types = true,
            ["field", "meaning"] => lists_types = false,
            [types_column, fields] if line.starts_with('|') && lists_types => {
                types
                    .entry(names_in_backticks(types_column).collect())
                    .or_default()
                    .extend(field_names(&remove_asides(fields)));
            }
            [fields, meaning @ ..] if line.starts_with("| ") => {
                let fields = field_names(fields);
                // The page says "each also with `_min` and `_max`".
                let endings = names_in_backticks(meaning.first().unwrap_or(&"")).filter(|name| name.starts_with('_'));
                let more = endings.flat_map(|ending| fields.iter().map(move |field| format!("{field}{ending}")));
                types.entry(kind.clone()).or_default().extend(more.chain(fields.clone()));
            }
            _ => {}
        }
    }
    // The page says "the fields of `archive` without `threads` and `read_back`".
    let shared = types["archive"].clone();
    let shared = shared.into_iter().filter(|field| field != "threads" && !field.starts_with("read_back"));
    let shared: Vec<String> = shared.collect();
    for kind in ["recompress", "rebase"] {
        types.get_mut(kind).expect("documented").extend(shared.clone());
    }
    types
}

/// Fields that commands print, by type.
#[derive(Default)]
struct PrintedFields(Fields);

impl PrintedFields {
    fn run<A: AsRef<OsStr>>(&mut self, arguments: &[A]) {
        let output = slotpress().args(arguments).arg("--json").output().expect("runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let shown: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        assert!(!stdout.is_empty() || !output.status.success(), "{shown:?}: {stderr}");
        stdout.lines().chain(stderr.lines().filter(|line| line.starts_with('{'))).for_each(|line| self.add(line));
    }

    fn add(&mut self, line: &str) {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let fields = self.0.entry(value["type"].as_str().expect("a type").to_string()).or_default();
        add_fields(&value, "", fields);
        fields.remove("type");
    }
}

fn add_fields(value: &Value, above: &str, fields: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = format!("{above}{name}");
        let objects = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        objects.iter().for_each(|value| add_fields(value, &format!("{name}."), fields));
        fields.insert(name);
    }
}

/// Runs commands on directories and files.
fn run_locally(printed: &mut PrintedFields, dir: &Path) {
    let ledger_26 = ledger("ledger-at-26");
    let ledger_40 = ledger("ledger-at-40");
    let path = |name: &str| text(&dir.join(name)).to_string();
    let at_26 = text(ledger_26.path());
    let at_40 = text(ledger_40.path());
    let full = fixture(FULL_26);
    let incremental = fixture(INCREMENTAL_26_40);
    let full = text(&full);
    let incremental = text(&incremental);
    fs::create_dir(path("out")).expect("made");
    fs::create_dir(path("smaller")).expect("made");

    printed.run(&["archive", at_26, "-o", &path("out"), "--dry-run"]);
    printed.run(&["archive", at_26, "-o", &path("out"), "--verify"]);
    printed.run(&["archive", at_26, "-o", &path("out"), "--skip-existing"]);
    printed.run(&["archive", at_40, "-o", &path("out"), "--base-slot", "26"]);
    printed.run(&["archive", at_26, "-o", &path("out")]);
    printed.run(&["recompress", full, "-o", &path("smaller")]);
    printed.run(&["rebase", full, incremental, "--onto", full, "--dry-run"]);
    printed.run(&["restore", full, incremental, "--ledger", &path("restored")]);
    printed.run(&["verify", full, incremental, "--expect-slot", "41"]);
    let padded = dir.join(FULL_26);
    let tar = [tar_of(full.as_ref()), vec![0; 9216]].concat();
    fs::write(&padded, zstd::encode_all(tar.as_slice(), 1).expect("compressed")).expect("written");
    printed.run(&["verify", text(&padded), "--for", "agave"]);
    printed.run(&["inspect", full]);
    printed.run(&["inspect", at_26]);
    printed.run(&["inspect", at_26, "--by-owner"]);
    printed.run(&["inspect", full, "--account", "Vote111111111111111111111111111111111111111"]);
    printed.run(&["doctor", at_26]);
    printed.run(&["synth", &path("synth"), "--size", "1MiB"]);
    printed.run(&["demo", "--size", "1MiB"]);
    printed.run(&["find", &path("out")]);
    printed.run(&["fetch", &path("out"), "-o", &path("fetched")]);
    printed.run(&["bootstrap", &path("out"), "--ledger", &path("booted"), "--dry-run"]);
    printed.run(&["bootstrap", &path("out"), "--ledger", &path("booted")]);
    fs::write(path("out/") + &FULL_26.replace("-26-", "-27-"), "x").expect("written");
    fs::write(path("out/slotpress-fetch-") + FULL_26, "x").expect("written");
    let damaged = path("damaged");
    let mut bytes = fs::read(full).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::create_dir(&damaged).expect("made");
    fs::write(format!("{damaged}/{FULL_26}"), bytes).expect("written");
    fs::copy(incremental, format!("{damaged}/{INCREMENTAL_26_40}")).expect("copied");
    printed.run(&["verify", &damaged]);
    printed.run(&["list", &path("out")]);
    printed.run(&["prune", &path("out"), "--keep-full", "1", "--keep-incremental", "1", "--dry-run"]);
    let quick = ["--repeat", "1", "--min-time", "0", "--frame-size", "64KiB", "--sample", "512KiB"];
    printed.run(&[["levels", full, "--levels", "1,2"].as_slice(), &quick].concat());
    printed.run(&[["levels", "link", full, "--levels", "1,2", "--bandwidth", "1Gbit"].as_slice(), &quick].concat());
    printed.run(&["levels", "frames", full, "--min-time", "0"]);
    printed.run(&["levels", "sizes", full, "--repeat", "1", "--min-time", "0"]);
}

/// Runs a server and clients. Also runs `archive` at the lowest rate, so slowly that it prints progress.
fn run_with_server(printed: &mut PrintedFields, dir: &Path) {
    let path = |name: &str| text(&dir.join(name)).to_string();
    let server = ServeProcess::start(&["--access-log"]);
    let url = server.url("");
    let full = server.url(&format!("/{FULL_26}"));
    let other = "http://127.0.0.1:9";
    printed.run(&["find", &url, other]);
    printed.run(&["find", &crate::bootstrap::Mirror::start().server.url("")]);
    printed.run(&["inspect", &full]);
    printed.run(&["fetch", &url, "-o", &path("from-server")]);
    printed.run(&["bootstrap", &url, "--ledger", &path("booted-from-server")]);
    server.get("/nothing", "");
    let is_logged = |kind: &str| server.lines().iter().any(|line| line.contains(kind));
    wait_for("the log of the server", || is_logged(r#""type":"served""#) && is_logged(r#""type":"answered""#));
    server.lines().iter().for_each(|line| printed.add(line));
    let dir = temp_dir();
    let synth = path("for-progress");
    printed.run(&["synth", &synth, "--size", "1MiB"]);
    let flags = ["--max-rate", "64KiB"];
    printed.run(&[["archive", &synth, "-o", text(dir.path())].as_slice(), &flags].concat());
}

/// Publishes a pair, then a second one with a further target that does not exist. Then publishes a pair
/// without space for pins, and a pair whose full archive is damaged.
fn run_publish(printed: &mut PrintedFields) {
    let mut run = |setup: &Setup, flags: &[&str]| {
        let output = setup.run_once(flags);
        let printed_text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        printed_text.lines().for_each(|line| printed.add(line));
    };
    let setup = Setup::with_pair();
    run(&setup, &["--as-is"]);
    for name in [FULL_3500, INCREMENTAL_3500_3550] {
        setup.write(&fixture(name));
    }
    run(&setup, &["--keep-full", "1", "--keep-incremental", "0", "--grace", "0s", "--to", "/nonexistent"]);

    run(&Setup::with_pair(), &["--pin-bytes", "1"]);

    let setup = Setup::with_pair();
    setup.write_damaged(&fixture(FULL_26));
    run(&setup, &[]);
}

#[test]
fn printed_fields_are_documented() {
    let mut printed = PrintedFields::default();
    let dir = temp_dir();
    run_locally(&mut printed, dir.path());
    run_with_server(&mut printed, dir.path());
    run_publish(&mut printed);

    let documented = read_documented_fields();
    let none = BTreeSet::new();
    let mut wrong = Vec::new();
    let kinds: BTreeSet<&String> = documented.keys().chain(printed.0.keys()).collect();
    for kind in kinds {
        let fields_of = |types: &'_ Fields| types.get(kind).unwrap_or(&none).clone();
        let listed = fields_of(&documented);
        let found = fields_of(&printed.0);
        let (unknown, missing): (Vec<_>, Vec<_>) =
            (found.difference(&listed).collect(), listed.difference(&found).collect());
        if !unknown.is_empty() || !missing.is_empty() || listed.is_empty() {
            wrong.push(format!("{kind}: not documented: {unknown:?}; not printed: {missing:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Control characters are escaped as in JSON: a parser of the line returns the original text.
#[test]
fn control_characters_are_escaped_and_not_altered() {
    let controls = "\u{7f}\u{80}\u{9b}\u{9f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}";
    let top = temp_dir();
    let dir = top.path().join(format!("a{controls}z"));
    fs::create_dir(&dir).expect("made");
    fs::copy(fixture(FULL_26), dir.join(FULL_26)).expect("copied");
    let missing = dir.join("missing");
    for arguments in [vec![OsStr::new("list"), dir.as_os_str()], vec![OsStr::new("inspect"), missing.as_os_str()]] {
        let output = slotpress().args(&arguments).arg("--json").output().expect("runs");
        let printed_text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        assert!(!printed_text.contains(|char| controls.contains(char)), "{printed_text:?}");
        let lines: Vec<Value> = printed_text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        let (field, wanted) = match lines[0]["type"].as_str() {
            Some("archive_listed") => ("file", dir.join(FULL_26).to_str().expect("UTF-8").to_string()),
            // Messages show a path escaped, as they do on a terminal.
            _ => ("message", "\\u{9b}".to_string()),
        };
        assert!(lines[0][field].as_str().expect("text").contains(&wanted), "{printed_text}");
    }
}
