//! Results after a failure: the best state that is left, and a last line if a better one was given
//! up.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bootstrap::Mirror;
use crate::common::http::{Request, Server, answer};
use crate::common::site::*;
use crate::common::*;

/// Serves these files with the mirror's list of archives.
fn mirror_of(files: Files, list: String) -> Server {
    Server::start(move |request: &Request, stream| {
        if request.path.ends_with("/api/v1/archives") {
            answer(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes())
        } else {
            respond(&files, Way::Ranges, request, stream)
        }
    })
}

fn files_of(mirror: &Mirror, names: &[&String]) -> Files {
    names.iter().map(|name| ((*name).clone(), fs::read(mirror.server.path(name)).expect("read"))).collect()
}

fn is_get_of(request: &Request, name: &str) -> bool {
    request.method == "GET" && request.path.ends_with(name)
}

/// The mirror also has the old full archive, and the rebased one is damaged. The new full archive
/// is fetched; the old one and the damaged one are not fetched again. The same holds if the
/// mirror's old archive has other bytes than the node's.
#[test]
fn the_new_full_archive_replaces_a_damaged_rebased_one() {
    let mirror = Mirror::start();
    let base = temp_dir();
    let old = mirror.put_old(base.path());
    let mut files = files_of(&mirror, &[&mirror.new, &mirror.rebased]);
    let rebased = files.get_mut(&mirror.rebased).expect("there");
    let middle = rebased.len() / 3;
    rebased[middle] ^= 1;
    let again = temp_dir();
    let output =
        run(&["recompress", text(&old), "-o", text(again.path()), "--zstd-level", "1", "--frame-size", "64KiB"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let bytes = |path: &Path| fs::read(path).expect("read");
    for (is_in_dir, theirs) in
        [(false, bytes(&old)), (true, bytes(&old)), (true, bytes(&again.path().join(&mirror.old)))]
    {
        files.insert(mirror.old.clone(), theirs);
        let mut list: Value = serde_json::from_str(&mirror.list()).expect("JSON");
        let old_bytes = files[&mirror.old].len();
        list["archives"]
            .as_array_mut()
            .expect("a list")
            .insert(0, json!({"name": mirror.old, "size_bytes": old_bytes}));
        let server = mirror_of(files.clone(), list.to_string());
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let url = server.url("");
        let mut arguments = vec!["bootstrap", &url, "--ledger", text(&ledger)];
        if is_in_dir {
            let _ = mirror.put_old(&ledger);
        } else {
            arguments.extend(["--base", text(&old)]);
        }
        let output = run(&arguments);
        assert_eq!((output.code, &output.line("restore")["slot"]), (Some(0), &40.into()), "{output:?}");
        let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
        assert_eq!((archives.len(), archives[0]["name"].as_str()), (1, Some(mirror.new.as_str())), "{output:?}");
        let requests = server.requests();
        assert!(!requests.iter().any(|request| is_get_of(request, &mirror.old)), "{output:?}");
        assert!(output.line("bootstrap")["given_up"].is_null(), "the new full one has that state: {output:?}");
    }
}

/// The only source loses its incremental archive. The run gets the older state; the last line says
/// which newer one was given up, and why.
#[test]
fn the_last_line_names_an_abandoned_state() {
    let files = archives(&[]);
    let incremental = files.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let served = files.clone();
        let server = Server::start(move |request, stream| {
            let is_lost = request.method == "GET" && request.path.starts_with("/incremental-snapshot-");
            if is_lost {
                answer(stream, "404 Not Found", &[], b"")
            } else {
                respond(&served, Way::Ranges, request, stream)
            }
        });
        let dir = temp_dir();
        let output = run(&[command, &server.url(""), flag, text(&dir.path().join("out"))]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let last = output.stderr.lines().last().unwrap_or_default();
        assert!(last.contains(&incremental), "{output:?}");
        assert!(last.contains("404"), "{output:?}");
        assert!(last.contains("slot 40"), "{output:?}");
        let given_up = &output.line(command)["given_up"];
        assert_eq!(
            (&given_up["slot"], &given_up["archives"][1]),
            (&40.into(), &incremental.clone().into()),
            "{output:?}"
        );
        // Nothing was given up, so there is no such line.
        let good = serve(&files, Way::Ranges);
        let output = run(&[command, &good.url(""), flag, text(&dir.path().join("good"))]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.line(command)["given_up"].is_null(), "{output:?}");
    }
}

/// Nine mirrors have damaged archives; the run gets the state of the honest one.
#[test]
fn one_honest_mirror_among_ten_is_enough() {
    let files = archives(&[]);
    let incremental = files.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    let liars: Vec<Server> = (0..9)
        .map(|number| {
            let mut files = files.clone();
            // Each mirror's archive is damaged elsewhere, and has a different name.
            let mut bytes = files.remove(&incremental).expect("there");
            let middle = bytes.len() / 2 + number;
            bytes[middle] ^= 1;
            files.insert(incremental.replace("-26-40-", &format!("-26-{}-", 41 + number)), bytes);
            serve(&files, Way::Ranges)
        })
        .collect();
    let honest = serve(&files, Way::Ranges);
    let urls: Vec<String> = liars.iter().chain([&honest]).map(|server| server.url("")).collect();
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let dir = temp_dir();
        let out = dir.path().join("out");
        let arguments: Vec<&str> =
            [command].into_iter().chain(urls.iter().map(String::as_str)).chain([flag, text(&out)]).collect();
        let output = run(&arguments);
        assert_eq!(output.code, Some(0), "{output:?}");
        let archives = output.line(command)["archives"].as_array().expect("archives").clone();
        assert_eq!(archives.last().expect("one")["name"].as_str(), Some(incremental.as_str()), "{output:?}");
        assert!(output.line(command)["given_up"]["slot"].as_u64() > Some(40), "{output:?}");
    }
}

/// The node has a full archive and an incremental one on it, from the day before. A mirror has a
/// newer rebased archive on the same full archive: only that is fetched.
#[test]
fn a_newer_rebased_archive_is_fetched_onto_the_nodes_full_one() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let old = mirror.put_old(&ledger);
    fs::copy(fixture(INCREMENTAL_26_40), ledger.join(INCREMENTAL_26_40.replace("-26-40-", "-26-33-"))).expect("copied");
    let output = run(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
    let names: Vec<Option<&str>> = archives.iter().map(|one| one["name"].as_str()).collect();
    assert_eq!(names, [Some(name(&old).as_str()), Some(mirror.rebased.as_str())], "{output:?}");
}

/// What replaces the base.
#[derive(Clone, Copy, Debug)]
enum Swap {
    Pipe,
    Directory,
    Link,
    Shorter,
    Gone,
}

fn swap(base: &Path, kind: Swap) {
    if let Swap::Shorter = kind {
        let file = fs::File::options().write(true).open(base).expect("opened");
        file.set_len(file.metadata().expect("its length").len() / 3).expect("cut off");
        return;
    }
    fs::remove_file(base).expect("removed");
    match kind {
        Swap::Pipe => {
            rustix::fs::mkfifoat(rustix::fs::CWD, base, rustix::fs::Mode::from_raw_mode(0o644)).expect("made");
        }
        Swap::Directory => fs::create_dir(base).expect("made"),
        Swap::Link => std::os::unix::fs::symlink("/dev/null", base).expect("linked"),
        Swap::Shorter | Swap::Gone => {}
    }
}

/// A base that is replaced after it was chosen: the run continues with the full archive.
#[test]
fn a_base_replaced_during_the_run_is_not_used() {
    let mirror = Mirror::start();
    let files = files_of(&mirror, &[&mirror.new, &mirror.rebased]);
    let list = mirror.list();
    for (is_late, is_in_dir) in [(false, false), (true, false), (false, true), (true, true)] {
        for kind in [Swap::Pipe, Swap::Directory, Swap::Link, Swap::Shorter, Swap::Gone] {
            let dir = temp_dir();
            let ledger = dir.path().join("ledger");
            let base = mirror.put_old(&if is_in_dir { ledger.clone() } else { dir.path().join("base") });
            let files = files.clone();
            let list = list.clone();
            let rebased = mirror.rebased.clone();
            let swapped = base.clone();
            let is_swapped = AtomicBool::new(false);
            // The genesis is requested when the base is chosen but not yet read; the rebased
            // archive, when it has been read.
            let server = Server::start(move |request: &Request, stream| {
                let now = if is_late {
                    is_get_of(request, &rebased) && request.range().is_some()
                } else {
                    request.path.contains("genesis")
                };
                if now && !is_swapped.swap(true, Relaxed) {
                    swap(&swapped, kind);
                }
                if request.path.ends_with("/api/v1/archives") {
                    answer(stream, "200 OK", &[("Content-Type", "application/json")], list.as_bytes())
                } else {
                    respond(&files, Way::Ranges, request, stream)
                }
            });
            let at = format!("{kind:?}, late: {is_late}, in the directory: {is_in_dir}");
            let output = slotpress()
                .args(["bootstrap", &server.url(""), "--ledger", text(&ledger), "--base", text(&base), "--json"])
                .timeout(Duration::from_secs(60))
                .output()
                .expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{at}: {stderr}");
            assert!(ledger.join("snapshots/40").is_dir(), "{at}: {stderr}");
        }
    }
}
