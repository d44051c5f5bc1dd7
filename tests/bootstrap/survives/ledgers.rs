//! Runs that make a ledger although something fails.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::http::*;
use crate::common::records::field;
use crate::common::site::*;
use crate::common::*;

/// Starts a server that sends about 1 MiB/s on each connection, in small pieces, so that a run can be killed during
/// the fetch.
fn start_slow_server(files: Files) -> Server {
    Server::start(move |request, stream| {
        let Some(range) = request.range().filter(|_| request.method == "GET") else {
            return respond(&files, TransferMode::Ranges, request, stream);
        };
        let Some(bytes) = files.get(request.path.trim_start_matches('/')) else {
            return respond(&files, TransferMode::Ranges, request, stream);
        };
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
        let length = (range.end - range.start).to_string();
        let headers = [("Content-Range", place.as_str()), ("Content-Length", &length), ("ETag", &etag(bytes))];
        send_head(stream, "206 Partial Content", &headers)?;
        for piece in bytes[range.start as usize..range.end as usize].chunks(8 * 1024) {
            stream.write_all(piece)?;
            thread::sleep(Duration::from_millis(8));
        }
        Ok(Connection::KeepAlive)
    })
}

/// Waits until the child ends, but no longer than `timeout`. Returns `None` if it still runs.
fn wait_for_end(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + timeout;
    loop {
        let status = child.try_wait().expect("waits");
        if status.is_some() || Instant::now() > deadline {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Each run keeps the received bytes, so a later run can finish.
#[test]
fn killed_runs_are_finished_by_the_next() {
    let files = archives(&[]);
    let expected = ledger_tree(&restore_files(&files).path().join("ledger"));
    let slow = start_slow_server(files);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let mut kills = 0;
    for round in 0..40u64 {
        let mut child = Command::new(slotpress_path())
            .args(["bootstrap", &slow.url(""), "--ledger", text(&ledger), "--streams", "2", "-q"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let status = wait_for_end(&mut child, Duration::from_millis(60 + round * 97 % 700));
        match status {
            Some(status) if status.success() => break,
            Some(status) => panic!("{status} without a kill, in round {round}"),
            None => {
                // Every third run is interrupted instead of killed.
                let signal = if round % 3 == 2 { Signal::INT } else { Signal::KILL };
                kill_process(Pid::from_child(&child), signal).expect("killed");
                let status = child.wait().expect("ends");
                kills += 1;
                if status.success() {
                    break;
                }
            }
        }
        let is_marked_complete = fs::read_dir(ledger.join("snapshots"))
            .is_ok_and(|slots| slots.flatten().any(|slot| slot.path().join("fastboot_version").exists()));
        assert!(!is_marked_complete, "round {round}");
    }
    assert!(kills >= 3, "{kills} kills");
    let output = run_to_json(&["bootstrap", &slow.url(""), "--ledger", text(&ledger)]);
    // The ledger is complete, now or since the last round.
    assert!(matches!(output.code, Some(0 | 5)), "{output:?}");
    assert!(ledger_tree(&ledger) == expected, "{:?}", relative_paths(&ledger));
    let left: BTreeSet<String> =
        relative_paths(&ledger).into_iter().filter(|name| name.contains("slotpress-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_interrupted_run_keeps_its_download() {
    let files = archives(&[]);
    let stalling = {
        let files = files.clone();
        let gets = AtomicUsize::new(0);
        Server::start(move |request, stream| {
            let is_get = request.method == "GET" && request.range().is_some();
            // Only the first request for bytes is answered.
            if is_get && gets.fetch_add(1, Relaxed) > 0 {
                stall(stream)
            } else {
                respond(&files, TransferMode::Ranges, request, stream)
            }
        })
    };
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let child = Command::new(slotpress_path())
        .args(["bootstrap", &stalling.url(""), "--ledger", text(&ledger)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let gets =
        || stalling.requests().iter().filter(|request| request.method == "GET" && request.range().is_some()).count();
    let is_partial = |name: &String| name.contains("slotpress-fetch-");
    wait_for("a download that stalls", || {
        gets() > 1 && ledger.exists() && relative_paths(&ledger).iter().any(is_partial)
    });
    wait_for_handler(&child, Signal::INT);
    kill_process(Pid::from_child(&child), Signal::INT).expect("interrupted");
    let output = child.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("bytes are kept"), "{stderr}");
    assert!(!ledger.join("snapshots/26").exists());
}

/// Two servers have different archives of one name. The first server loses its file midway, so the whole
/// archive of the second server is fetched.
#[test]
fn a_source_that_vanishes_is_replaced_by_another() {
    let served = archives(&["--zstd-level", "1"]);
    let gets = AtomicUsize::new(0);
    let vanishing = Server::start(move |request, stream| {
        let is_get = request.method == "GET" && request.path.starts_with("/snapshot-");
        // The file is lost after one request.
        if is_get && gets.fetch_add(1, Relaxed) >= 1 {
            return send_response(stream, "404 Not Found", &[], b"");
        }
        respond(&served, TransferMode::Ranges, request, stream)
    });
    let steady = serve(&archives(&["--zstd-level", "9"]), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    for urls in [[vanishing.url(""), steady.url("")], [steady.url(""), vanishing.url("")]] {
        let _ = fs::remove_dir_all(&ledger);
        let output = run_to_json(&["bootstrap", &urls[0], &urls[1], "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.line("restore")["slot"], 40);
    }
}

/// Makes archives in which one account differs, with valid checksums, index and hashes.
fn forge_archives(files: &Files) -> Files {
    let dir = temp_dir();
    let mut forged = Files::new();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("written");
        let mut entries = entries(&path);
        let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/") && !entry.content.is_empty());
        // Flips a bit of the first account's balance.
        storage.expect("a storage").content[field::LAMPORTS.start] ^= 1;
        let tar = dir.path().join(name.replace(".zst", ""));
        fs::write(&tar, make_tar(&entries)).expect("written");
        let out = temp_dir();
        let output = run_to_json(&[
            "recompress",
            text(&tar),
            "-o",
            text(out.path()),
            "--check",
            "frames",
            "--frame-size",
            "64KiB",
        ]);
        assert_eq!(output.code, Some(0), "{output:?}");
        forged.extend(files_in(out.path()));
    }
    forged
}

#[test]
fn a_source_that_fails_a_check_is_dropped_in_any_order() {
    let files = archives(&[]);
    let honest = serve(&files, TransferMode::Ranges);
    let liar = serve(&forge_archives(&files), TransferMode::Ranges);
    for urls in [[liar.url(""), honest.url("")], [honest.url(""), liar.url("")]] {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let output = run_to_json(&["bootstrap", &urls[0], &urls[1], "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.line("restore")["slot"], 40);
        assert_eq!(output.line("restore")["state"], "checked");
    }
}

/// The failed run leaves nothing that spoils the next run.
#[test]
fn a_run_whose_only_source_fails_a_check_names_the_source() {
    let files = archives(&[]);
    let honest = serve(&files, TransferMode::Ranges);
    let liar = serve(&forge_archives(&files), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &liar.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains(&liar.url("")), "{output:?}");
    let output = run_to_json(&["bootstrap", &honest.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// Returns true if a request asks which incremental archive is the newest.
fn asks_for_incremental(request: &Request) -> bool {
    request.path.starts_with("/incremental-snapshot.tar") || request.path.starts_with("/api/")
}

/// Starts a server that does not answer a number of requests for the newest incremental archive, once the
/// full archive has been requested.
fn start_vanishing_server(files: Files, unanswered: usize) -> Server {
    let has_begun = AtomicBool::new(false);
    let unanswered = AtomicUsize::new(unanswered);
    Server::start(move |request, stream| {
        if request.method == "GET" && request.path.starts_with("/snapshot-") {
            has_begun.store(true, Relaxed);
        }
        let is_away = has_begun.load(Relaxed) && asks_for_incremental(request);
        if is_away && unanswered.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Ok(Connection::Close);
        }
        respond(&files, TransferMode::Ranges, request, stream)
    })
}

#[test]
fn a_run_waits_for_a_server_that_is_away_after_the_full_archive() {
    let server = start_vanishing_server(archives(&[]), 4);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 40, "{output:?}");
    assert!(output.stderr.contains("asking again in"), "{output:?}");
    assert!(output.stderr.contains(" UTC: "), "the warning has the time: {output:?}");
}

/// The server sends the full archive, but is too busy to say whether it has an incremental archive.
#[test]
fn a_server_that_fails_only_for_the_incremental_archive_is_asked_again() {
    let files = archives(&[]);
    let busy_answers_left = AtomicUsize::new(7);
    let server = Server::start(move |request, stream| {
        let is_busy = request.path.starts_with("/incremental-snapshot.tar");
        if is_busy && busy_answers_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            send_response(stream, "503 Service Unavailable", &[], b"")
        } else {
            respond(&files, TransferMode::Ranges, request, stream)
        }
    });
    let dir = temp_dir();
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&dir.path().join("ledger"))]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 40, "{output:?}");
}

/// Progress that collects warnings.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl slotpress::Progress for Warnings {
    fn event(&self, event: slotpress::ProgressEvent<'_>) {
        if let slotpress::ProgressEvent::Warning(message) = event {
            self.0.lock().expect("no panic").push(message.to_string());
        }
    }
}

/// The ledger has the state of the full archive, and a warning says so.
#[test]
fn if_a_server_stays_away_its_full_archive_is_restored_alone() {
    let server = start_vanishing_server(archives(&[]), usize::MAX);
    let dir = temp_dir();
    let sources = [server.url("").parse::<slotpress::net::SourceLocation>().expect("a URL")];
    let limits = slotpress::net::FetchLimits::default().give_up_after(Duration::from_millis(500));
    let options = slotpress::bootstrap::BootstrapOptions::new(sources, dir.path().join("ledger")).limits(limits);
    let warnings = Warnings::default();
    let client = slotpress::net::Client::new(&slotpress::net::ClientOptions::default()).expect("a client");
    let report = slotpress::bootstrap::bootstrap(&client, &options, &warnings).expect("a ledger");
    assert_eq!(report.restore.slot, 26);
    let warnings = warnings.0.into_inner().expect("no panic");
    assert!(warnings.iter().any(|line| line.contains("this is the state of snapshot-26-")), "{warnings:?}");
}

/// The incremental archive disappears while it is fetched, and the server offers no other one.
#[test]
fn after_a_vanished_incremental_archive_the_full_one_is_not_fetched_again() {
    let files = archives(&[]);
    let served = files.clone();
    let is_gone = AtomicBool::new(false);
    let server = Server::start(move |request, stream| {
        let is_incremental = request.path.starts_with("/incremental-snapshot-");
        if request.method == "GET" && is_incremental {
            is_gone.store(true, Relaxed);
        }
        if is_gone.load(Relaxed) && (is_incremental || asks_for_incremental(request)) {
            send_response(stream, "404 Not Found", &[], b"")
        } else {
            respond(&served, TransferMode::Ranges, request, stream)
        }
    });
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
    assert!(output.stderr.contains("no incremental archive could be fetched"), "{output:?}");
    let full_bytes = full(&files).1.len() as u64;
    let mut requested_bytes = 0;
    for request in server.requests() {
        let is_full = request.method == "GET" && request.path.starts_with("/snapshot-");
        if let Some(range) = request.range()
            && is_full
        {
            requested_bytes += range.end - range.start;
        }
    }
    assert!(requested_bytes < full_bytes * 3 / 2, "{requested_bytes} of {full_bytes}");
}

/// The sources are asked again after the liar was dropped.
#[test]
fn a_dropped_liar_is_not_used_again() {
    let files = archives(&[]);
    let liar = serve(&forge_archives(&files), TransferMode::Ranges);
    // The full archive on the server is replaced after the first request, so that the sources are asked again.
    let mut served = files;
    let gets = AtomicUsize::new(0);
    served.retain(|name, _| name.starts_with("snapshot-"));
    let honest = Server::start(move |request, stream| {
        let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
            return respond(&served, TransferMode::Ranges, request, stream);
        };
        let number = if request.method == "GET" { gets.fetch_add(1, Relaxed) } else { gets.load(Relaxed) };
        // The first request measures the rate. It fails, so the lying server seems faster, and is used first.
        if request.method == "GET" && number == 0 {
            send_head(stream, "503 Service Unavailable", &[("Content-Length", "0")])?;
            return Ok(Connection::Close);
        }
        send_file(request, stream, bytes, if number < 1 { "\"one\"" } else { "\"two\"" })
    });
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &liar.url(""), &honest.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
    let dropped = format!("{} is not used any more", liar.url(&format!("/{FULL_26}")));
    assert_eq!(output.stderr.matches(&dropped).count(), 1, "{output:?}");
}
