//! Downloads that are interrupted and continued, and downloads from several mirrors.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::*;
use crate::common::site::*;
use crate::common::strace::number_from_env;
use crate::common::*;

/// Returns the number of bytes that were requested from a server.
fn requested_bytes(server: &Server, length: u64) -> u64 {
    let gets = server.requests().into_iter().filter(|request| request.method == "GET");
    gets.map(|request| request.range().map_or(length, |range| range.end.min(length) - range.start)).sum()
}

/// The first server sends at most two thirds of the archive, and then only errors. The next run requests
/// hardly more than the missing bytes, from another server.
#[test]
fn a_download_resumes_where_it_ended() {
    let files = larger_archive();
    let (full, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    let length = bytes.len() as u64;
    let dir = temp_dir();
    // Sends half of every long range, up to two thirds of the archive, then only errors. Shorter ranges
    // are sent whole: otherwise, there would be many transfers of a few bytes, each with a pause.
    const LONG_BYTES: u64 = 128 * 1024;
    let sent_bytes = AtomicU64::new(0);
    let served = files.clone();
    let dying = Server::start(move |request, stream| {
        if request.method == "HEAD" || request.range().is_none() {
            return respond(&served, TransferMode::Ranges, request, stream);
        }
        let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
            return respond(&served, TransferMode::Ranges, request, stream);
        };
        let range = request.range().expect("a range");
        let range_bytes = range.end - range.start;
        let answered_bytes = if range_bytes > LONG_BYTES { range_bytes.div_ceil(2) } else { range_bytes };
        if sent_bytes.fetch_add(answered_bytes, Relaxed) + answered_bytes > length * 2 / 3 {
            return send_response(stream, "404 Not Found", &[], b"");
        }
        let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
        let content_length = range_bytes.to_string();
        let headers =
            [("Content-Range", content_range.as_str()), ("Content-Length", &content_length), ("ETag", &etag(bytes))];
        send_head(stream, "206 Partial Content", &headers)?;
        stream.write_all(&bytes[range.start as usize..(range.start + answered_bytes) as usize])?;
        Ok(Connection::Close)
    });
    let output = run_to_json(&["fetch", &dying.url(&format!("/{full}")), "-o", text(dir.path()), "--streams", "2"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stderr.contains("bytes are kept"), "{output:?}");
    let paths = relative_paths(dir.path());
    assert_eq!(paths.len(), 2, "the partial file and its journal: {paths:?}");

    let good = serve(&files, TransferMode::Ranges);
    // A dry run must not count the missing bytes as kept, although the partial file has its full length: the
    // archive's end arrived first.
    let ledger = dir.path().join("ledger");
    let other = serve(&files, TransferMode::Ranges);
    let plan = ["bootstrap", &other.url("/"), "--ledger", text(&ledger), "--snapshots", text(dir.path()), "--dry-run"];
    let planned = run_to_json(&plan).line("bootstrap_plan")["kept_bytes"].clone();
    let url = good.url(&format!("/{full}"));
    // With more streams, an idle connection would also request a piece that another connection has been fetching for
    // two seconds.
    let output = run_to_json(&["fetch", &url, "-o", text(dir.path()), "--streams", "1"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(planned, output.line("fetch")["archives"][0]["kept_bytes"], "{output:?}");
    assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes);
    assert_eq!(relative_paths(dir.path()), std::slice::from_ref(full));
    assert!(output.stderr.contains("MiB already exist"), "{output:?}");
    let archive = &output.line("fetch")["archives"][0];
    let kept_bytes = archive["kept_bytes"].as_u64().expect("a number");
    assert!(kept_bytes > 0, "{output:?}");
    // The last part of the archive arrived first. A frame that crosses its start is requested again. Such a frame has
    // at most 256 KiB of tar; twice that leaves a margin for its headers.
    let requested = requested_bytes(&good, length);
    let again_bytes_max = 2 * 256 * 1024;
    assert!(requested <= length - kept_bytes + again_bytes_max, "{requested} of {length}, {kept_bytes} kept");
}

/// Two mirrors have different ETags. Bytes from the first are kept when the download continues from the second,
/// because the frame hashes match.
#[test]
fn another_mirror_resumes_a_download() {
    let (name, bytes) = full(&larger_archive());
    let length = bytes.len() as u64;
    let dir = temp_dir();
    let served = bytes.clone();
    let sent_bytes = AtomicU64::new(0);
    let gone = Server::start(move |request, stream| {
        let range_bytes = request.range().map_or(0, |range| range.end.min(length) - range.start);
        if request.method != "HEAD" && sent_bytes.fetch_add(range_bytes, Relaxed) + range_bytes > length * 3 / 4 {
            send_response(stream, "404 Not Found", &[], b"")
        } else {
            send_file(request, stream, &served, "\"one\"")
        }
    });
    let fetch = |server: &Server| {
        run_to_json(&["fetch", &server.url(&format!("/{name}")), "-o", text(dir.path()), "--streams", "1"])
    };
    assert_eq!(fetch(&gone).code, Some(4));
    let served = bytes.clone();
    let other = Server::start(move |request, stream| send_file(request, stream, &served, "\"other\""));
    let output = fetch(&other);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fs::read(dir.path().join(&name)).expect("fetched") == bytes);
    let kept_bytes = output.line("fetch")["archives"][0]["kept_bytes"].as_u64().expect("a number");
    let requested = requested_bytes(&other, length);
    assert!(kept_bytes > length / 4, "{kept_bytes} of {length} kept");
    assert!(requested <= length - kept_bytes + 2 * 256 * 1024, "{requested} of {length}, {kept_bytes} kept");
}

/// Several connections compare a second mirror with the first only once.
#[test]
fn a_mirror_is_compared_once() {
    let files = larger_archive();
    let (name, bytes) = full(&files);
    let servers = [serve(&files, TransferMode::Ranges), serve(&files, TransferMode::Ranges)];
    let urls = servers.each_ref().map(|server| server.url(&format!("/{name}")));
    let dir = temp_dir();
    let output = run_to_json(&["fetch", &urls[0], &urls[1], "-o", text(dir.path()), "--streams", "8"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let requests = servers[1].requests();
    let is_end = |request: &&Request| request.range().is_some_and(|range| range.end == bytes.len() as u64);
    assert_eq!(requests.iter().filter(is_end).count(), 1, "{requests:?}");
}

/// One of three mirrors has a wrong frame. The fetch succeeds, whichever mirror is named first.
#[test]
fn a_mirror_with_a_wrong_frame_is_dropped() {
    let files = archives(&[]);
    let (full, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    let mut wrong = files.clone();
    // The change is in the middle of a frame. The archive's end, which is compared, is the same.
    wrong.get_mut(full).expect("there")[bytes.len() / 2] ^= 1;
    let servers =
        [serve(&files, TransferMode::Ranges), serve(&wrong, TransferMode::Ranges), serve(&files, TransferMode::Ranges)];
    let urls = servers.each_ref().map(|server| server.url(&format!("/{full}")));
    for first in 0..3 {
        let dir = temp_dir();
        let order: Vec<&str> = (0..3).map(|offset| urls[(first + offset) % 3].as_str()).collect();
        let output = run_to_json(&[&["fetch"], order.as_slice(), &["-o", text(dir.path()), "--streams", "3"]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes);
    }
    // Alone, the mirror is refused, and no file has the archive's name.
    let dir = temp_dir();
    let output = run_to_json(&["fetch", &urls[1], "-o", text(dir.path())]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("does not match its hash"), "{output:?}");
    assert!(!dir.path().join(full).exists());
}

/// The journal is written every second. So after a kill, the next run requests the bytes that have not
/// arrived, and again at most one range per connection, and the end of the archive.
#[test]
fn after_a_kill_few_bytes_are_fetched_again() {
    const STREAMS: u64 = 8;
    const RANGE_BYTES: u64 = 1 << 20;
    const BLOCK_BYTES: usize = 4096;
    let kills = number_from_env("FAULTS_KILLS", 2);
    // A single frame without an index is fetched in ranges of 1 MiB. No two of its blocks are the same.
    let mut content = vec![0; 16 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content.extend([0; 1024]);
    let bytes = zstd::bulk::compress(&content, 1).expect("compresses");
    let length = bytes.len() as u64;
    let files = Files::from([(FULL_26.to_string(), bytes.clone())]);
    for kill in 0..kills {
        let server = serve(&files, TransferMode::Ranges);
        let dir = temp_dir();
        let url = server.url(&format!("/{FULL_26}"));
        let mut child = std::process::Command::new(slotpress_path())
            .args(["fetch", &url, "-o", text(dir.path()), "--streams", "8", "--max-rate", "4MiB", "-q"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        // The archive's end and a range for each stream are requested at once, so some bytes are always in flight. The
        // kills come after 10 to 14 MiB, in no order.
        let kill_at_bytes = (10 + kill * 619 % 5) << 20;
        wait_for("some of the file", || requested_bytes(&server, length) >= kill_at_bytes);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!dir.path().join(FULL_26).exists(), "the fetch ended before the kill");
        let partial = fs::read(dir.path().join(format!("slotpress-fetch-{FULL_26}"))).unwrap_or_default();
        let blocks = partial.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES));
        let arrived: u64 =
            blocks.filter(|(block, expected)| block == expected).map(|(block, _)| block.len() as u64).sum();
        let before = requested_bytes(&server, length);
        let output = run_to_json(&["fetch", &url, "-o", text(dir.path()), "--streams", "8"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(files_in(dir.path()) == files);
        let requested = requested_bytes(&server, length) - before;
        // The last eighth, which is fetched first, is requested again.
        let end_bytes = length / 8;
        assert!(
            requested <= length - arrived + STREAMS * RANGE_BYTES + end_bytes,
            "{arrived} of {length} arrived, {requested} requested"
        );
    }
}

/// A download that is killed twice transfers at most a tenth more than its length. `KILLED_STREAMS` and
/// `KILLED_MIB` replace the default of four connections and 64 MiB.
#[test]
fn two_kills_cost_at_most_a_tenth_of_a_download() {
    const CHUNK_BYTES: usize = 32 * 1024;
    let streams = number_from_env("KILLED_STREAMS", 4);
    let size_mib = number_from_env("KILLED_MIB", 64) as usize;
    let mut content = vec![0; size_mib << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content.extend([0; 1024]);
    let bytes = zstd::bulk::compress(&content, 1).expect("compresses");
    let length = bytes.len() as u64;
    let served = bytes.clone();
    let sent_bytes = Arc::new(AtomicU64::new(0));
    let counter = sent_bytes.clone();
    let server = Server::start(move |request, stream| {
        let Some(range) = request.range().filter(|_| request.method == "GET") else {
            return send_file(request, stream, &served, "\"a\"");
        };
        let content_range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
        let content_length = (range.end - range.start).to_string();
        let headers =
            [("Content-Range", content_range.as_str()), ("Content-Length", &content_length), ("ETag", "\"a\"")];
        send_head(stream, "206 Partial Content", &headers)?;
        for chunk in served[range.start as usize..range.end as usize].chunks(CHUNK_BYTES) {
            stream.write_all(chunk)?;
            counter.fetch_add(chunk.len() as u64, Relaxed);
            // At this rate the download takes a second or two, with few bytes in flight.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(Connection::KeepAlive)
    });
    let dir = temp_dir();
    let url = server.url(&format!("/{FULL_26}"));
    let streams = streams.to_string();
    let arguments = ["fetch", &url, "-o", text(dir.path()), "--streams", &streams];
    for third in 1..3 {
        let mut command = std::process::Command::new(slotpress_path());
        let mut child = command.args(arguments).arg("-q").spawn().expect("starts");
        wait_for("a third of the file", || sent_bytes.load(Relaxed) >= length * third / 3);
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!dir.path().join(FULL_26).exists(), "the fetch ended before the kill");
    }
    let output = run_to_json(&arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fs::read(dir.path().join(FULL_26)).expect("fetched") == bytes);
    let sent_bytes = sent_bytes.load(Relaxed);
    println!("{sent_bytes} bytes for {length}: {:.3} x", sent_bytes as f64 / length as f64);
    assert!(sent_bytes * 10 <= length * 11, "{sent_bytes} bytes for {length}");
}

/// A limit on the length of files has the effect of a full disk.
#[test]
fn a_fetch_that_runs_out_of_space_is_finished_by_the_next() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let dir = temp_dir();
    let command = format!(
        "ulimit -f 40; exec {} fetch {} -o {}",
        slotpress_path().display(),
        server.url(""),
        dir.path().display()
    );
    let output =
        std::process::Command::new("sh").args(["-c", &format!("trap '' XFSZ; {command}")]).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: "), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(
        !relative_paths(dir.path()).iter().any(|name| files.contains_key(name)),
        "{:?}",
        relative_paths(dir.path())
    );
    let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(files_in(dir.path()) == files);
}
