//! Servers that behave as those of clients and mirrors do, at their worst: stalls, deadlines, ends that come too early,
//! files that change, disks that are full.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{fs, thread};

use slotpress_base::NoProgress;
use slotpress_net::{Client, ClientOptions, Download, Limits, PartialFile, parse_url};
use slotpress_read::Publishable;

use super::site::*;
use crate::common::*;
use crate::net::server::{Server, Then, answer, file, head, redirect, stall};

fn full(files: &Files) -> (String, Vec<u8>) {
    let (name, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    (name.clone(), bytes.clone())
}

/// Agave's RPC port: 303, never a range, no ETag; a transfer is ended at a deadline. Firedancer's: 302, one answer for a
/// connection.
#[test]
fn the_servers_of_both_clients() {
    let files = Arc::new(agaves_archives());
    for (status, is_firedancer) in [("303 See Other", false), ("302 Found", true)] {
        let served = files.clone();
        let cut = AtomicUsize::new(2);
        let server = Server::start(move |request, stream| {
            let newest = |prefix: &str| served.keys().rev().find(|name| name.starts_with(prefix)).expect("one");
            let to = match request.path.as_str() {
                "/snapshot.tar.bz2" => newest("snapshot-"),
                "/incremental-snapshot.tar.bz2" => newest("incremental-"),
                _ => "",
            };
            if !to.is_empty() {
                return answer(stream, status, &[("Location", &format!("/{to}"))], b"");
            }
            let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
                return answer(stream, "404 Not Found", &[("Connection", "close")], b"").map(|_| Then::Close);
            };
            let closes: &[(&str, &str)] = if is_firedancer { &[("Connection", "close")] } else { &[] };
            head(stream, "200 OK", &[closes, &[("Content-Length", &bytes.len().to_string())]].concat())?;
            if request.method == "HEAD" {
                return Ok(if is_firedancer { Then::Close } else { Then::Keep });
            }
            // The deadline comes in the middle, twice.
            if cut.load(Relaxed) > 0 {
                cut.fetch_sub(1, Relaxed);
                stream.write_all(&bytes[..bytes.len() / 2])?;
                return Ok(Then::Close);
            }
            stream.write_all(bytes)?;
            Ok(if is_firedancer { Then::Close } else { Then::Keep })
        });
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
        assert_eq!(said.code, Some(0), "{status} {said:?}");
        assert!(!server.requests().iter().any(|request| request.path.contains('?')));
        let fetched = files_in(&ledger);
        assert!(files.iter().all(|(name, bytes)| fetched.get(name) == Some(bytes)), "{:?}", names(&ledger));
    }
}

/// Every connection stalls once, after some bytes: the read timeout ends it, and what came is kept.
#[test]
fn stalls_are_given_up_and_what_came_is_kept() {
    let (name, bytes) = full(&larger_archive());
    let (served, length) = (bytes.clone(), bytes.len());
    let stalls = AtomicUsize::new(3);
    let server = Server::start(move |request, stream| {
        let Some(range) = request.range().filter(|range| range.end - range.start > 100_000) else {
            return file(request, stream, &served, &etag(&served));
        };
        if stalls.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return file(request, stream, &served, &etag(&served));
        }
        let end = range.end.min(served.len() as u64);
        let place = format!("bytes {}-{}/{}", range.start, end - 1, served.len());
        let stated = (end - range.start).to_string();
        let headers = [("Content-Range", place.as_str()), ("Content-Length", &stated), ("ETag", &etag(&served))];
        head(stream, "206 Partial Content", &headers)?;
        stream.write_all(&served[range.start as usize..range.start as usize + 70_000])?;
        stream.flush()?;
        stall(stream)
    });
    let options = ClientOptions::default().read_timeout(Duration::from_millis(300));
    let client = Client::new(&options).expect("a client");
    let url = parse_url(&server.url(&format!("/{name}"))).expect("a URL");
    let remote = client.head(&url, &NoProgress).expect("a head");
    let dir = temp_dir();
    let partial = Arc::new(PartialFile::open(dir.path(), &name).expect("a file"));
    let limits = Limits::default().streams(3);
    let download = Download::begin(client, partial.clone(), vec![remote], limits, &NoProgress).expect("begins");
    let fetched = download.run(&NoProgress).expect("fetched");
    assert_eq!(fetched.length_bytes, length as u64);
    let path = partial.publish(&name).expect("published");
    assert!(fs::read(path).expect("read") == bytes);
    let given: u64 = fetched.servers.iter().map(|given| given.bytes).sum();
    assert!(given < length as u64 + 4 * 1024 * 1024, "{given} of {length}");
}

/// A server that sends a few bytes in a second is given up, with a word on what is kept.
#[test]
fn a_trickle_ends_at_the_least_rate() {
    let (name, bytes) = full(&archives(&[]));
    let server = Server::start(move |request, stream| {
        if request.method == "HEAD" {
            return file(request, stream, &bytes, &etag(&bytes));
        }
        head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
        for byte in bytes.chunks(50) {
            stream.write_all(byte)?;
            thread::sleep(Duration::from_millis(200));
        }
        Ok(Then::Close)
    });
    let dir = temp_dir();
    let url = server.url(&format!("/{name}"));
    let said = run(&["fetch", &url, "-o", text(dir.path()), "--min-rate", "10KiB"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("slower than the least rate") && said.stderr.contains("bytes are kept"), "{said:?}");
    assert!(!dir.path().join(&name).exists());
}

/// Another archive takes the name while it is fetched, on the only server that has it.
#[test]
fn a_change_midway_is_no_mixture() {
    let (one, two) = (full(&archives(&["--zstd-level", "1"])), full(&archives(&["--zstd-level", "9"])));
    assert!(one.0 == two.0 && one.1 != two.1);
    let served = AtomicUsize::new(0);
    let (old, new) = (one.1.clone(), two.1.clone());
    let server = Server::start(move |request, stream| {
        let is_new = request.method == "GET" && served.fetch_add(1, Relaxed) >= 2;
        let bytes = if is_new { &new } else { &old };
        file(request, stream, bytes, &etag(bytes))
    });
    let dir = temp_dir();
    let url = server.url(&format!("/{}", one.0));
    let said = run(&["fetch", &url, "-o", text(dir.path()), "--streams", "1"]);
    if said.code == Some(0) {
        // It was all there before the change.
        assert!(fs::read(dir.path().join(&one.0)).expect("read") == one.1);
        return;
    }
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(!dir.path().join(&one.0).exists(), "{said:?}");
    // From now on it is the new one.
    let (name, bytes) = two;
    let served = bytes.clone();
    let server = Server::start(move |request, stream| file(request, stream, &served, &etag(&served)));
    let said = run(&["fetch", &server.url(&format!("/{name}")), "-o", text(dir.path())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(fs::read(dir.path().join(&name)).expect("read") == bytes);
}

/// A server that replaces its incremental archive as soon as a transfer of it was ended half-way, `replaced` times: then
/// the newest stays, and comes whole.
fn replacing(files: &Arc<Files>, way: Way, replaced: usize) -> Server {
    let (served, generation) = (files.clone(), AtomicUsize::new(0));
    let real = served.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    Server::start(move |request, stream| {
        let now = generation.load(Relaxed);
        // Older and older slots are gone; the real one is the newest.
        let newest =
            if now < replaced { real.replace("-26-40-", &format!("-26-{}-", 30 + now % 10)) } else { real.clone() };
        match request.path.trim_start_matches('/') {
            "incremental-snapshot.tar.bz2" => redirect(stream, &format!("/{newest}")),
            asked if asked.starts_with("incremental-") && asked != newest => answer(stream, "404 Not Found", &[], b""),
            asked if asked.starts_with("incremental-") && now < replaced => {
                let bytes = &served[&real];
                if request.method == "HEAD" {
                    let renamed = Files::from([(newest.clone(), bytes.clone())]);
                    return respond(&renamed, way, request, stream);
                }
                let range = request.range().filter(|_| way == Way::Ranges).unwrap_or(0..bytes.len() as u64);
                let (start, end) = (range.start as usize, (range.end as usize).min(bytes.len()));
                let (place, length) = (format!("bytes {start}-{}/{}", end - 1, bytes.len()), (end - start).to_string());
                let tag = etag(bytes);
                let fields = [("Content-Length", length.as_str()), ("ETag", &tag), ("Content-Range", &place)];
                match way {
                    Way::Ranges => head(stream, "206 Partial Content", &fields)?,
                    _ => head(stream, "200 OK", &fields[..1])?,
                }
                stream.write_all(&bytes[start..start + (end - start) / 2])?;
                generation.compare_exchange(now, now + 1, Relaxed, Relaxed).ok();
                Ok(Then::Close)
            }
            _ => respond(&served, way, request, stream),
        }
    })
}

/// Incremental archives that are gone before they have come, as where a source makes one every minute and ends slow
/// transfers: bootstrap takes the newest again, or says why there is none and makes the ledger of the full archive.
#[test]
fn incremental_archives_that_are_replaced() {
    for (way, files) in [(Way::Ranges, archives(&[])), (Way::Whole, archives(&[])), (Way::Whole, agaves_archives())] {
        let files = Arc::new(files);
        for (replaced, slot) in [(3, 40), (usize::MAX, 26)] {
            let server = replacing(&files, way, replaced);
            let dir = temp_dir();
            let ledger = dir.path().join("ledger");
            let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
            assert_eq!(said.code, Some(0), "{way:?}, {replaced}: {said:?}");
            assert_eq!(said.line("restore")["slot"], slot, "{said:?}");
            assert!(ledger.join(format!("snapshots/{slot}/fastboot_version")).is_file());
            let is_told = said.stderr.contains("no incremental archive could be fetched");
            assert_eq!(is_told, slot == 26, "{}", said.stderr);
            let left: Vec<String> =
                names(&ledger).into_iter().filter(|name| name.contains("slotpress-fetch")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

/// The ledger and the archives on two file systems; the disk that is full; the bound on a file's length.
#[test]
fn disks() {
    let files = archives(&[]);
    let server = serve(&files, Way::Ranges);
    let (here, there) = (temp_dir(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory"));
    let (ledger, snapshots, accounts) =
        (here.path().join("ledger"), there.path().join("snapshots"), there.path().join("accounts"));
    let flags = ["--snapshots", text(&snapshots), "--accounts", text(&accounts)];
    let said = run(&[&["bootstrap", &server.url(""), "--ledger", text(&ledger)][..], &flags].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let fetched = files_in(&snapshots);
    assert!(files.iter().all(|(name, bytes)| fetched.get(name) == Some(bytes)), "{:?}", names(&snapshots));

    // The system refuses to let files grow beyond some bytes, as a full disk would.
    let dir = temp_dir();
    let command = format!(
        "ulimit -f 40; exec {} fetch {} -o {}",
        slotpress_path().display(),
        server.url(""),
        dir.path().display()
    );
    let output = Command::new("sh").args(["-c", &format!("trap '' XFSZ; {command}")]).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: ") && !said.contains("panicked"), "{said}");
    assert!(!names(dir.path()).iter().any(|name| files.contains_key(name)), "{:?}", names(dir.path()));
    let said = run(&["fetch", &server.url(""), "-o", text(dir.path())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(files_in(dir.path()) == files);
}

/// Redirects that go round, to a private address of another kind, to nothing.
#[test]
fn redirects_that_lead_nowhere() {
    for to in ["/snapshot.tar.bz2", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/x", "ftp://h/x", ""] {
        let server = Server::start(move |_, stream| redirect(stream, to));
        let dir = temp_dir();
        let said = run(&["fetch", &server.url(""), "-o", text(dir.path())]);
        assert_eq!(said.code, Some(4), "{to}: {said:?}");
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }
}

/// What has arrived is restored while the rest is still under way: the server keeps back the rest until it sees storages.
#[test]
fn storages_are_restored_before_the_last_byte() {
    let files = Arc::new(larger_archive());
    let length: u64 = full(&files).1.len() as u64;
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let (served, sent, watched) = (files.clone(), AtomicUsize::new(0), ledger.clone());
    let storages = move || {
        let is_storage =
            |path: &String| path.contains("accounts") && path.rsplit('/').next().is_some_and(is_storage_name);
        watched.exists() && names(&watched).iter().filter(|path| is_storage(path)).count() >= 5
    };
    let server = Server::start(move |request, stream| {
        if let Some(range) = request.range() {
            let sent = sent.fetch_add((range.end - range.start) as usize, Relaxed) as u64;
            let start = std::time::Instant::now();
            // A third is still missing, and the end was sent first.
            while sent > length * 2 / 3 && !storages() && start.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(10));
            }
            if start.elapsed() >= Duration::from_secs(20) {
                return answer(stream, "404 Not Found", &[], b"");
            }
        }
        respond(&served, Way::Ranges, request, stream)
    });
    let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--streams", "2"]);
    assert_eq!(said.code, Some(0), "nothing was restored before the end came: {said:?}");
}

fn is_storage_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(slot, id)| [slot, id].iter().all(|part| part.parse::<u64>().is_ok()))
}
