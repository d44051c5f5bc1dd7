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

/// The mirror also has the old full archive, with the same bytes as the node's or with other bytes. The
/// new full archive is fetched, and the old one is not.
#[test]
fn the_new_full_archive_replaces_a_damaged_rebased_one() {
    let mirror = Mirror::start();
    let base = temp_dir();
    let old = mirror.copy_old_to(base.path());
    let mut files = mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]);
    let rebased = files.get_mut(&mirror.rebased_name).expect("the archive");
    let middle = rebased.len() / 3;
    rebased[middle] ^= 1;
    let recompressed = temp_dir();
    let flags = ["--zstd-level", "1", "--frame-size", "64KiB"];
    let output = run_to_json(&[&["recompress", text(&old), "-o", text(recompressed.path())], &flags[..]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let bytes = |path: &Path| fs::read(path).expect("read");
    let same = bytes(&old);
    let other = bytes(&recompressed.path().join(&mirror.old_name));
    for (is_in_ledger, mirrors_old) in [(false, same.clone()), (true, same), (true, other)] {
        files.insert(mirror.old_name.clone(), mirrors_old);
        let mut list: Value = serde_json::from_str(&mirror.archive_list()).expect("JSON");
        let old_bytes = files[&mirror.old_name].len();
        list["archives"]
            .as_array_mut()
            .expect("a list")
            .insert(0, json!({"name": mirror.old_name, "size_bytes": old_bytes}));
        let server = serve_with_list(files.clone(), list.to_string());
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let url = server.url("");
        let mut arguments = vec!["bootstrap", &url, "--ledger", text(&ledger)];
        if is_in_ledger {
            let _ = mirror.copy_old_to(&ledger);
        } else {
            arguments.extend(["--base", text(&old)]);
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

/// The base is replaced after it was chosen. The run continues with the newest full archive.
#[test]
fn a_base_replaced_during_the_run_is_not_used() {
    let mirror = Mirror::start();
    let files = mirror.read_files(&[&mirror.new_name, &mirror.rebased_name]);
    let list = mirror.archive_list();
    for (is_late, is_in_ledger) in [(false, false), (true, false), (false, true), (true, true)] {
        for kind in
            [Replacement::Pipe, Replacement::Directory, Replacement::Link, Replacement::Shorter, Replacement::Gone]
        {
            let dir = temp_dir();
            let ledger = dir.path().join("ledger");
            let base = mirror.copy_old_to(&if is_in_ledger { ledger.clone() } else { dir.path().join("base") });
            let files = files.clone();
            let list = list.clone();
            let rebased = mirror.rebased_name.clone();
            let replaced = base.clone();
            let is_replaced = AtomicBool::new(false);
            // The genesis is requested when the base has been chosen, but not read yet. The rebased
            // archive is requested when the base has been read.
            let server = Server::start(move |request: &Request, stream| {
                let is_time = if is_late {
                    is_get_of(request, &rebased) && request.range().is_some()
                } else {
                    request.path.contains("genesis")
                };
                if is_time && !is_replaced.swap(true, Relaxed) {
                    replace_base(&replaced, kind);
                }
                if request.path.ends_with("/api/v1/archives") {
                    send_response(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes())
                } else {
                    respond(&files, TransferMode::Ranges, request, stream)
                }
            });
            let case = format!("{kind:?}, late: {is_late}, in the ledger: {is_in_ledger}");
            let output = slotpress()
                .args(["bootstrap", &server.url(""), "--ledger", text(&ledger), "--base", text(&base), "--json"])
                .timeout(Duration::from_secs(60))
                .output()
                .expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{case}: {stderr}");
            assert!(ledger.join("snapshots/40").is_dir(), "{case}: {stderr}");
            assert!(ledger.join(&mirror.new_name).is_file(), "{case}: {stderr}");
        }
    }
}
