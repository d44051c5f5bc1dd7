//! After a failure, a run ends with the best remaining state. Its last line names a better state that it
//! abandoned.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bootstrap::{Mirror, serve_with_list};
use crate::common::http::{Request, Server, send_response};
use crate::common::site::*;
use crate::common::*;

fn is_get_of(request: &Request, name: &str) -> bool {
    request.method == "GET" && request.path.ends_with(name)
}

/// Where a node has the old full archive, and what the mirror has under the same name.
struct OldArchive {
    is_in_ledger: bool,
    content_on_mirror: Vec<u8>,
}

/// Runs a bootstrap from a mirror of `files`, of which the rebased archive is damaged. Asserts that the new full archive
/// is fetched, and the old one is not.
fn assert_new_full_archive_is_fetched(mirror: &Mirror, mut files: Files, old: OldArchive) {
    let mut list: Value = serde_json::from_str(&mirror.archive_list()).expect("JSON");
    let listed_old = json!({"name": mirror.old_name, "size_bytes": old.content_on_mirror.len()});
    list["archives"].as_array_mut().expect("a list").insert(0, listed_old);
    files.insert(mirror.old_name.clone(), old.content_on_mirror);
    let server = serve_with_list(files, list.to_string());
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let url = server.url("");
    let mut arguments = vec!["bootstrap", &url, "--ledger", text(&ledger)];
    let base;
    if old.is_in_ledger {
        let _ = mirror.copy_old_to(&ledger);
    } else {
        base = mirror.copy_old_to(&dir.path().join("base"));
        arguments.extend(["--base", text(&base)]);
    }
    let output = run_to_json(&arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 40, "{output:?}");
    let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
    assert_eq!(archives.len(), 1, "{output:?}");
    assert_eq!(archives[0]["name"], mirror.new_name.as_str(), "{output:?}");
    let requests = server.requests();
    assert!(!requests.iter().any(|request| is_get_of(request, &mirror.old_name)), "{output:?}");
    assert!(output.line("bootstrap")["abandoned"].is_null(), "the new full archive has the same state: {output:?}");
}

/// The mirror also has the old full archive, with the same bytes as the node's or with other bytes.
#[test]
fn the_new_full_archive_replaces_a_damaged_rebased_one() {
    let mirror = Mirror::start();
    let mut files = mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]);
    let rebased = files.get_mut(&mirror.rebased_name).expect("the archive");
    let damaged_at = rebased.len() / 3;
    rebased[damaged_at] ^= 1;
    let dir = temp_dir();
    let old = mirror.copy_old_to(dir.path());
    let recompressed = temp_dir();
    let flags = ["--zstd-level", "1", "--frame-size", "64KiB"];
    let output = run_to_json(&[&["recompress", text(&old), "-o", text(recompressed.path())], &flags[..]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let same = fs::read(&old).expect("read");
    let other = fs::read(recompressed.path().join(&mirror.old_name)).expect("read");
    for old in [
        OldArchive { is_in_ledger: false, content_on_mirror: same.clone() },
        OldArchive { is_in_ledger: true, content_on_mirror: same },
        OldArchive { is_in_ledger: true, content_on_mirror: other },
    ] {
        assert_new_full_archive_is_fetched(&mirror, files.clone(), old);
    }
}

/// The only source loses its incremental archive, so the run ends with the older state.
#[test]
fn the_last_line_names_an_abandoned_state() {
    let files = archives(&[]);
    let incremental = files.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let served = files.clone();
        let server = Server::start(move |request, stream| {
            let is_lost = request.method == "GET" && request.path.starts_with("/incremental-snapshot-");
            if is_lost {
                send_response(stream, "404 Not Found", &[], b"")
            } else {
                respond(&served, TransferMode::Ranges, request, stream)
            }
        });
        let dir = temp_dir();
        let output = run_to_json(&[command, &server.url(""), flag, text(&dir.path().join("out"))]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let last = output.stderr.lines().last().unwrap_or_default();
        assert!(last.contains(&incremental), "{output:?}");
        assert!(last.contains("404"), "{output:?}");
        assert!(last.contains("slot 40"), "{output:?}");
        let abandoned = &output.line(command)["abandoned"];
        assert_eq!(abandoned["slot"], 40, "{output:?}");
        assert_eq!(abandoned["archives"][1], incremental.as_str(), "{output:?}");
        // With a good source, the line names no abandoned state.
        let good = serve(&files, TransferMode::Ranges);
        let output = run_to_json(&[command, &good.url(""), flag, text(&dir.path().join("good"))]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.line(command)["abandoned"].is_null(), "{output:?}");
    }
}

/// Nine mirrors have damaged archives. The run ends with the state of the honest mirror.
#[test]
fn one_honest_mirror_among_ten_is_enough() {
    let files = archives(&[]);
    let incremental = files.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    let liars: Vec<Server> = (0..9)
        .map(|number| {
            let mut files = files.clone();
            // Each mirror's archive is damaged at a different byte, and named for a different slot.
            let mut bytes = files.remove(&incremental).expect("the archive");
            let middle = bytes.len() / 2 + number;
            bytes[middle] ^= 1;
            files.insert(incremental.replace("-26-40-", &format!("-26-{}-", 41 + number)), bytes);
            serve(&files, TransferMode::Ranges)
        })
        .collect();
    let honest = serve(&files, TransferMode::Ranges);
    let urls: Vec<String> = liars.iter().chain([&honest]).map(|server| server.url("")).collect();
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let dir = temp_dir();
        let out = dir.path().join("out");
        let arguments: Vec<&str> =
            [command].into_iter().chain(urls.iter().map(String::as_str)).chain([flag, text(&out)]).collect();
        let output = run_to_json(&arguments);
        assert_eq!(output.code, Some(0), "{output:?}");
        let archives = output.line(command)["archives"].as_array().expect("archives").clone();
        assert_eq!(archives.last().expect("one")["name"].as_str(), Some(incremental.as_str()), "{output:?}");
        assert!(output.line(command)["abandoned"]["slot"].as_u64() > Some(40), "{output:?}");
    }
}

/// The node also has an older incremental archive on its full archive. Only the rebased archive is fetched.
#[test]
fn a_newer_rebased_archive_is_fetched_onto_the_nodes_full_one() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let old = mirror.copy_old_to(&ledger);
    fs::copy(fixture(INCREMENTAL_26_40), ledger.join(INCREMENTAL_26_40.replace("-26-40-", "-26-33-"))).expect("copied");
    let output = run_to_json(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
    let names: Vec<Option<&str>> = archives.iter().map(|archive| archive["name"].as_str()).collect();
    assert_eq!(names, [Some(name(&old).as_str()), Some(mirror.rebased_name.as_str())], "{output:?}");
}

/// What takes the place of the base.
#[derive(Clone, Copy, Debug)]
enum Replacement {
    Pipe,
    Directory,
    Link,
    Shorter,
    Gone,
}

impl Replacement {
    const ALL: [Self; 5] = [Self::Pipe, Self::Directory, Self::Link, Self::Shorter, Self::Gone];
}

fn replace_base(base: &Path, kind: Replacement) {
    if let Replacement::Shorter = kind {
        let file = fs::File::options().write(true).open(base).expect("opened");
        file.set_len(file.metadata().expect("its length").len() / 3).expect("truncated");
        return;
    }
    fs::remove_file(base).expect("removed");
    match kind {
        Replacement::Pipe => {
            rustix::fs::mkfifoat(rustix::fs::CWD, base, rustix::fs::Mode::from_raw_mode(0o644)).expect("made");
        }
        Replacement::Directory => fs::create_dir(base).expect("made"),
        Replacement::Link => std::os::unix::fs::symlink("/dev/null", base).expect("linked"),
        Replacement::Shorter | Replacement::Gone => {}
    }
}

/// When the base is replaced.
#[derive(Clone, Copy, Debug)]
enum ReplacedAt {
    /// The base has been chosen, but not read yet: the genesis is requested.
    BeforeRead,
    /// The base has been read: the rebased archive is requested.
    AfterRead,
}

#[derive(Clone, Copy, Debug)]
enum BaseLocation {
    Ledger,
    OtherDir,
}

#[derive(Clone, Copy, Debug)]
struct BaseCase {
    replacement: Replacement,
    replaced_at: ReplacedAt,
    location: BaseLocation,
}

/// Runs a bootstrap whose base is replaced. Asserts that the run continues with the newest full archive.
fn assert_replaced_base_is_not_used(mirror: &Mirror, case: BaseCase) {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let base = mirror.copy_old_to(&match case.location {
        BaseLocation::Ledger => ledger.clone(),
        BaseLocation::OtherDir => dir.path().join("base"),
    });
    let files = mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]);
    let list = mirror.archive_list();
    let rebased = mirror.rebased_name.clone();
    let replaced = base.clone();
    let is_replaced = AtomicBool::new(false);
    let server = Server::start(move |request: &Request, stream| {
        let must_replace = match case.replaced_at {
            ReplacedAt::BeforeRead => request.path.contains("genesis"),
            ReplacedAt::AfterRead => is_get_of(request, &rebased) && request.range().is_some(),
        };
        if must_replace && !is_replaced.swap(true, Relaxed) {
            replace_base(&replaced, case.replacement);
        }
        if request.path.ends_with("/api/v1/archives") {
            send_response(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes())
        } else {
            respond(&files, TransferMode::Ranges, request, stream)
        }
    });
    let output = slotpress()
        .args(["bootstrap", &server.url(""), "--ledger", text(&ledger), "--base", text(&base), "--json"])
        .timeout(Duration::from_secs(60))
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{case:?}: {stderr}");
    assert!(ledger.join("snapshots/40").is_dir(), "{case:?}: {stderr}");
    assert!(ledger.join(&mirror.new_name).is_file(), "{case:?}: {stderr}");
}

#[test]
fn a_base_replaced_during_the_run_is_not_used() {
    let mirror = Mirror::start();
    for replacement in Replacement::ALL {
        for replaced_at in [ReplacedAt::BeforeRead, ReplacedAt::AfterRead] {
            for location in [BaseLocation::Ledger, BaseLocation::OtherDir] {
                assert_replaced_base_is_not_used(&mirror, BaseCase { replacement, replaced_at, location });
            }
        }
    }
}
