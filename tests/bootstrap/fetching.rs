//! `fetch`: bytes, however badly they come.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::site::*;
use crate::common::*;
use crate::net::server::*;

/// The bytes of answers' bodies that a server was asked for.
fn asked_bytes(server: &Server, length: u64) -> u64 {
    let gets = server.requests().into_iter().filter(|request| request.method == "GET");
    gets.map(|request| request.range().map_or(length, |range| range.end.min(length) - range.start)).sum()
}

#[test]
fn archives_come_whole_from_every_kind_of_server() {
    let is_of_archive = |request: &&Request| request.method == "GET" && !request.path.starts_with("/api/");
    for files in [archives(&[]), agaves_archives()] {
        for way in [Way::Ranges, Way::Whole, Way::Liar] {
            let (server, dir) = (serve(&files, way), temp_dir());
            let said = run(&["fetch", &server.url(""), "-o", text(dir.path())]);
            assert_eq!(said.code, Some(0), "{way:?} {said:?}");
            assert!(files_in(dir.path()) == files, "{way:?}: {:?}", names(dir.path()));
            let archives = &said.line("fetch")["archives"];
            assert_eq!(archives.as_array().expect("a list").len(), 2);
            // Again: nothing is fetched.
            let before = server.requests().iter().filter(is_of_archive).count();
            let said = run(&["fetch", &server.url(""), "-o", text(dir.path())]);
            assert_eq!(said.line("fetch")["archives"][0]["was_there"], true);
            // Measuring does not count.
            assert!(server.requests().iter().filter(is_of_archive).count() <= before + 2);
        }
    }
}

/// A server that dies after some bytes, then comes back: what arrived is not asked for again.
#[test]
fn a_download_goes_on_where_it_stood() {
    let files = larger_archive();
    let (full, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    let length = bytes.len() as u64;
    let dir = temp_dir();
    // Sends half of every range, up to half of the archive, then nothing but errors.
    let sent = Arc::new(AtomicU64::new(0));
    let (served, budget) = (files.clone(), sent.clone());
    let dying = Server::start(move |request, stream| {
        if request.method == "HEAD" || request.range().is_none() {
            return respond(&served, Way::Ranges, request, stream);
        }
        let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
            return respond(&served, Way::Ranges, request, stream);
        };
        let range = request.range().expect("a range");
        let half = (range.end - range.start).div_ceil(2);
        if budget.fetch_add(half, Relaxed) + half > length * 2 / 3 {
            return answer(stream, "404 Not Found", &[], b"");
        }
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
        let stated = (range.end - range.start).to_string();
        let headers = [("Content-Range", place.as_str()), ("Content-Length", &stated), ("ETag", &etag(bytes))];
        head(stream, "206 Partial Content", &headers)?;
        stream.write_all(&bytes[range.start as usize..(range.start + half) as usize])?;
        Ok(Then::Close)
    });
    let said = run(&["fetch", &dying.url(&format!("/{full}")), "-o", text(dir.path()), "--streams", "2"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("bytes are kept"), "{said:?}");
    let kept = names(dir.path());
    assert_eq!(kept.len(), 2, "the partial file and its journal: {kept:?}");

    let good = serve(&files, Way::Ranges);
    // The partial file is as long as the archive, since its end came first: its length is not what is kept.
    let ledger = dir.path().join("ledger");
    let other = serve(&files, Way::Ranges);
    let plan = ["bootstrap", &other.url("/"), "--ledger", text(&ledger), "--snapshots", text(dir.path()), "--dry-run"];
    let planned = run(&plan).line("bootstrap_plan")["kept_bytes"].clone();
    let url = good.url(&format!("/{full}"));
    let said = run(&["fetch", &url, "-o", text(dir.path())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(planned, said.line("fetch")["archives"][0]["kept_bytes"], "{said:?}");
    assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes);
    assert_eq!(names(dir.path()), std::slice::from_ref(full));
    assert!(said.stderr.contains("MiB are there"), "{said:?}");
    let archive = &said.line("fetch")["archives"][0];
    let kept_bytes = archive["kept_bytes"].as_u64().expect("a number");
    assert!(kept_bytes > 0, "{said:?}");
    // A frame that lies across the first of the end's bytes is asked for once more: with its mark, at most as long as its tar.
    let (asked, again) = (asked_bytes(&good, length), 2 * 256 * 1024);
    assert!(asked <= length - kept_bytes + again, "{asked} of {length}, {kept_bytes} kept");
}

/// Of three mirrors of one archive, one has a frame of its own: it is named, and the archive is right.
#[test]
fn a_mirror_with_a_wrong_frame_is_named_and_dropped() {
    let files = archives(&[]);
    let (full, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    let mut wrong = files.clone();
    // In the middle of some frame; the end, which is compared, is the same.
    wrong.get_mut(full).expect("there")[bytes.len() / 2] ^= 1;
    let servers = [serve(&files, Way::Ranges), serve(&wrong, Way::Ranges), serve(&files, Way::Ranges)];
    let urls = servers.each_ref().map(|server| server.url(&format!("/{full}")));
    for first in 0..3 {
        let dir = temp_dir();
        let order: Vec<&str> = (0..3).map(|at| urls[(first + at) % 3].as_str()).collect();
        let said = run(&[&["fetch"], order.as_slice(), &["-o", text(dir.path()), "--streams", "3"]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes);
    }
    // Alone, it is refused, and nothing is named.
    let dir = temp_dir();
    let said = run(&["fetch", &urls[1], "-o", text(dir.path())]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("does not match its hash"), "{said:?}");
    assert!(!dir.path().join(full).exists());
}

/// The same name with other bytes: never mixed.
#[test]
fn another_archive_of_the_same_name_is_not_mixed() {
    let (one, two) = (archives(&["--zstd-level", "1"]), archives(&["--zstd-level", "9"]));
    let (full, bytes) = one.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    assert_ne!(two[full], *bytes);
    let servers = [serve(&one, Way::Ranges), serve(&two, Way::Ranges)];
    let urls = servers.each_ref().map(|server| server.url(&format!("/{full}")));
    let dir = temp_dir();
    let said = run(&["fetch", &urls[0], &urls[1], "-o", text(dir.path()), "--streams", "4"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes);
    // Asked for by its root, the other is refused.
    let root = said.line("fetch")["archives"][0]["root"].as_str().expect("a root").to_string();
    let dir = temp_dir();
    let said = run(&["fetch", &urls[1], "-o", text(dir.path()), "--expect-root", &root]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains(&root), "{said:?}");
}

/// What an earlier run left is of another archive: it is given up, with a word.
#[test]
fn what_is_of_another_archive_is_not_kept() {
    let (one, two) = (archives(&["--zstd-level", "1"]), archives(&["--zstd-level", "9"]));
    let (full, bytes) = one.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    for (way, kept_from) in [(Way::Ranges, 0), (Way::Whole, 0), (Way::Whole, 5000)] {
        let dir = temp_dir();
        let partial = dir.path().join(format!("slotpress-fetch-{full}"));
        let other = &two[full][..two[full].len() / 2];
        fs::write(&partial, other).expect("written");
        let journal = serde_json::json!({
            "slotpress_fetch": 1, "length_bytes": null, "etag": null, "last_modified": null,
            "ranges": [[kept_from, other.len()]],
        });
        fs::write(dir.path().join(format!("slotpress-fetch-{full}.journal")), journal.to_string()).expect("written");
        let server = serve(&one, way);
        let said = run(&["fetch", &server.url(&format!("/{full}")), "-o", text(dir.path())]);
        assert_eq!(said.code, Some(0), "{way:?} {said:?}");
        assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes, "{way:?}");
        assert_eq!(names(dir.path()), std::slice::from_ref(full));
    }
}

/// A body without an end, a longer one than allowed, a name that is none.
#[test]
fn hostile_servers_are_refused() {
    let files = archives(&[]);
    let full = files.keys().find(|name| name.starts_with("snapshot-")).expect("a full archive").clone();
    let dir = temp_dir();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let endless = Server::start(move |request, stream| {
        head(stream, "200 OK", &[("Connection", "close")])?;
        // Frames to be skipped, so that it could be an archive.
        let frame = [&[0x50, 0x2a, 0x4d, 0x18, 0xf8, 0xff, 0, 0][..], &[7; 65_528]].concat();
        while request.method != "HEAD" && count.fetch_add(1, Relaxed) < 2_000 {
            stream.write_all(&frame)?;
        }
        Ok(Then::Close)
    });
    let url = endless.url(&format!("/{full}"));
    let said = run(&["fetch", &url, "-o", text(dir.path()), "--max-bytes", "1MiB"]);
    assert!(matches!(said.code, Some(1 | 4)), "{said:?}");
    assert!(said.stderr.contains("--max-bytes"), "{said:?}");
    let left: u64 = files_in(dir.path()).values().map(|bytes| bytes.len() as u64).sum();
    assert!(left < 2 << 20, "{left}");
    let good = serve(&files, Way::Ranges);
    let said = run(&["fetch", &good.url(&format!("/{full}")), "-o", text(dir.path()), "--max-bytes", "1KiB"]);
    assert!(said.stderr.contains("--max-bytes"), "{said:?}");
    let named = Server::start(move |_, stream| redirect(stream, "/..%2f..%2fetc%2fpasswd.tar.zst"));
    let said = run(&["fetch", &named.url("/x.tar.zst"), "-o", text(dir.path())]);
    assert!(said.code.is_some_and(|code| code != 0), "{said:?}");
}

/// Killed at random moments, the next run asks for what has not arrived, and for at most one range of each connection once
/// more: the journal is written every second.
#[test]
fn what_arrived_is_hardly_fetched_again() {
    const STREAMS: u64 = 8;
    const RANGE_BYTES: u64 = 1 << 20;
    const BLOCK_BYTES: usize = 4096;
    let kills: u64 = std::env::var("FAULTS_KILLS").map_or(2, |text| text.parse().expect("a number"));
    // One frame, without an index: ranges of 1 MiB, and no two blocks that are the same.
    let mut content = vec![0; 16 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content.extend([0; 1024]);
    let bytes = zstd::bulk::compress(&content, 1).expect("compresses");
    let length = bytes.len() as u64;
    let files = Files::from([(FULL_26.to_string(), bytes.clone())]);
    for kill in 0..kills {
        let (server, dir) = (serve(&files, Way::Ranges), temp_dir());
        let url = server.url(&format!("/{FULL_26}"));
        let mut child = std::process::Command::new(slotpress_path())
            .args(["fetch", &url, "-o", text(dir.path()), "--streams", "8", "--max-rate", "4MiB", "-q"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        // The end and a range for each stream are asked for at once; of 16 MiB, some are always on their way.
        let asked = (10 + kill * 619 % 5) << 20;
        wait_for("some of the file", || asked_bytes(&server, length) >= asked);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!dir.path().join(FULL_26).exists(), "it was too quick");
        let partial = fs::read(dir.path().join(format!("slotpress-fetch-{FULL_26}"))).unwrap_or_default();
        let blocks = partial.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES));
        let arrived: u64 = blocks.filter(|(one, other)| one == other).map(|(one, _)| one.len() as u64).sum();
        let before = asked_bytes(&server, length);
        let said = run(&["fetch", &url, "-o", text(dir.path()), "--streams", "8"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(files_in(dir.path()) == files);
        let asked = asked_bytes(&server, length) - before;
        // The end, which comes first, is looked at again.
        let end = length / 8;
        assert!(
            asked <= length - arrived + STREAMS * RANGE_BYTES + end,
            "{arrived} of {length} arrived, {asked} asked for"
        );
    }
}

/// What no trusted server has is not fetched at all.
#[test]
fn what_nobody_vouches_for_is_not_fetched() {
    let files = archives(&[]);
    let (server, empty, dir) = (serve(&files, Way::Ranges), serve(&Files::new(), Way::Ranges), temp_dir());
    let is_fetch = |request: &Request| request.method == "GET" && request.path.ends_with(".tar.zst");
    let said = run(&["fetch", &server.url(""), "-o", text(dir.path()), "--trust", &empty.url("")]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("no trusted server confirms incremental-snapshot-26-40-"), "{said:?}");
    assert!(!server.requests().iter().any(is_fetch) && files_in(dir.path()).is_empty());
    let said = run(&["fetch", &server.url(""), "-o", text(dir.path()), "--trust", &server.url("")]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(files_in(dir.path()).len(), 2);
}

/// An incremental archive that appears while the full one is fetched, and that no trusted server has yet, is left out.
#[test]
fn what_appears_and_nobody_vouches_for_is_left_out() {
    let files = archives(&[]);
    let mut full_only = files.clone();
    full_only.retain(|name, _| name.starts_with("snapshot-"));
    let trusted = serve(&full_only, Way::Ranges);
    for command in ["fetch", "bootstrap"] {
        let (all, first, gets) = (files.clone(), full_only.clone(), AtomicUsize::new(0));
        let server = Server::start(move |request, stream| {
            let is_get = request.method == "GET" && request.path.starts_with("/snapshot-");
            let gets = if is_get { gets.fetch_add(1, Relaxed) + 1 } else { gets.load(Relaxed) };
            respond(if gets > 0 { &all } else { &first }, Way::Ranges, request, stream)
        });
        let dir = temp_dir();
        let to = if command == "fetch" { "-o" } else { "--ledger" };
        let said = run(&[command, &server.url(""), to, text(dir.path()), "--trust", &trusted.url("")]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stderr.contains("has appeared meanwhile"), "{said:?}");
        let found = files_in(dir.path());
        assert!(full_only.keys().all(|name| found.contains_key(name)), "{:?}", names(dir.path()));
        assert!(!found.keys().any(|name| name.starts_with("incremental-")), "{:?}", names(dir.path()));
        let slot =
            if command == "fetch" { &said.line("fetch")["archives"][0]["slot"] } else { &said.line("restore")["slot"] };
        assert_eq!(slot, 26);
    }
}

/// A server that says that it has an archive, the same as before, and does not send it, is not asked for it again.
#[test]
fn what_nobody_has_changed_is_asked_for_once() {
    let files = archives(&[]);
    let full = files.keys().find(|name| name.starts_with("snapshot-")).expect("a full archive").clone();
    let server = Server::start(move |request, stream| match request.method.as_str() {
        "GET" => answer(stream, "404 Not Found", &[], b""),
        _ => respond(&files, Way::Ranges, request, stream),
    });
    let dir = temp_dir();
    let said = run(&["fetch", &server.url(&format!("/{full}")), "-o", text(dir.path()), "--streams", "1"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert_eq!(server.requests().iter().filter(|request| request.method == "GET").count(), 1);
}
