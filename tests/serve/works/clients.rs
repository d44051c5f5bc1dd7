//! Requests for files, ranges and redirects, with and without conditions, from curl, wget and aria2c, and as
//! Agave and Firedancer send them.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::common::served::{ServeProcess, large_archive, read_head, read_response, send, two_archives};
use crate::common::*;
use crate::rebase::{rebase, two_full_archives};

#[test]
fn redirects_lead_to_the_newest_archives() {
    let server = ServeProcess::start(&[]);
    for (path, name) in [("/snapshot.tar.bz2", FULL_26), ("/incremental-snapshot.tar.bz2", INCREMENTAL_26_40)] {
        for method in ["GET", "HEAD"] {
            let response = server.request(method, path, "");
            assert_eq!(response.status, 303);
            assert_eq!(response.header("location"), format!("/{name}"), "no host, no directory, no query");
            assert_eq!(response.header("content-length"), "0");
        }
        let file = fs::read(fixture(name)).expect("read");
        let response = server.get(&format!("/{name}"), "");
        assert_eq!(response.status, 200);
        assert!(response.body == file);
        assert_eq!(response.header("accept-ranges"), "bytes");
        assert!(!response.headers.contains_key("transfer-encoding"));
        let head = server.request("HEAD", &format!("/{name}"), "");
        assert_eq!((head.status, head.header("content-length")), (200, file.len().to_string().as_str()));
        assert_eq!(head.header("etag"), response.header("etag"));
    }
    let (status, lines) = server.stop();
    assert!(status.success(), "a server that is asked to stop has not failed: {lines:?}");
    let transfers: Vec<&String> = lines.iter().filter(|line| line.contains("\"served\"")).collect();
    assert_eq!(transfers.len(), 2, "{lines:?}");
    assert!(transfers.iter().all(|line| line.contains("\"complete\":true")), "{lines:?}");
}

#[test]
fn redirects_never_lead_to_a_rebased_archive() {
    let dir = temp_dir();
    let served = temp_dir();
    let [old, new] = two_full_archives(AGAVE_4_5, dir.path());
    fs::copy(&old, served.path().join(name(&old))).expect("copied");
    let rebased = rebase(&[&new], &old, served.path(), &[]);
    let listed = slotpress().args(["list", "--json"]).arg(served.path()).output().expect("runs").stdout;
    let line =
        String::from_utf8(listed).expect("text").lines().find(|line| line.contains(&name(&rebased))).map(String::from);
    let line: serde_json::Value = serde_json::from_str(&line.expect("listed")).expect("JSON");
    let base_hash = name(&old).split(['-', '.']).nth(2).expect("a hash").to_string();
    assert_eq!((&line["rebased_on"], &line["chosen"]), (&base_hash.into(), &false.into()));
    let server = ServeProcess::start_in(served, &[]);
    let full = server.get("/snapshot.tar.bz2", "");
    assert_eq!((full.status, full.header("location")), (303, format!("/{}", name(&old)).as_str()));
    assert_eq!(server.get("/incremental-snapshot.tar.bz2", "").status, 404);
    let by_name = server.get(&format!("/{}", name(&rebased)), "");
    assert_eq!(by_name.status, 200);
    assert!(by_name.body == fs::read(&rebased).expect("read"));
}

#[test]
fn ranges_are_answered_with_their_bytes() {
    let server = ServeProcess::start(&[]);
    let path = format!("/{FULL_26}");
    let file = fs::read(fixture(FULL_26)).expect("read");
    let length = file.len();
    let etag = server.request("HEAD", &path, "").header("etag").to_string();
    let get = |headers: &str| server.get(&path, headers);

    let response = get("Range: bytes=5-104\r\n");
    assert_eq!((response.status, response.body.as_slice()), (206, &file[5..105]));
    assert_eq!(response.header("content-range"), format!("bytes 5-104/{length}"));
    assert_eq!(get("Range: bytes=-10\r\n").body, file[length - 10..]);
    assert_eq!(get(&format!("Range: bytes={}-\r\n", length - 7)).body, file[length - 7..]);
    assert_eq!(get(&format!("Range: bytes=5-6\r\nIf-Range: {etag}\r\n")).status, 206);
    for validator in ["\"other\"", "Sat, 01 Jan 2000 00:00:00 GMT", "W/\"x\""] {
        let response = get(&format!("Range: bytes=5-6\r\nIf-Range: {validator}\r\n"));
        assert_eq!(response.status, 200, "{validator}");
        assert!(response.body == file, "{validator}");
    }
    let several = get("Range: bytes=0-1,5-6\r\n");
    assert_eq!(several.status, 200, "several ranges are answered with the whole file");
    assert!(several.body == file, "several ranges are answered with the whole file");
    let response = get(&format!("Range: bytes={length}-\r\n"));
    assert_eq!((response.status, response.header("content-range")), (416, format!("bytes */{length}").as_str()));
}

#[test]
fn conditions_decide_the_status() {
    let server = ServeProcess::start(&[]);
    let path = format!("/{FULL_26}");
    let head = server.request("HEAD", &path, "");
    let date = head.header("last-modified");
    let etag = head.header("etag");
    assert!(etag.starts_with('"'), "not strong: {etag}");
    assert!(etag.ends_with('"'), "not strong: {etag}");
    assert!(etag.len() > 30, "not strong: {etag}");
    for (headers, status) in [
        (format!("If-None-Match: \"x\", {etag}\r\n"), 304),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        ("If-None-Match: \"x\"\r\n".to_string(), 200),
        (format!("If-Match: {etag}\r\n"), 200),
        ("If-Match: \"x\"\r\n".to_string(), 412),
    ] {
        assert_eq!(server.get(&path, &headers).status, status, "{headers}");
    }
}

/// The new version has a different entity tag, so no client continues its download with wrong bytes.
#[test]
fn a_replaced_file_is_sent_whole() {
    let server = ServeProcess::start(&[]);
    let path = format!("/{FULL_26}");
    let length = fs::read(fixture(FULL_26)).expect("read").len();
    let etag = server.request("HEAD", &path, "").header("etag").to_string();
    fs::write(server.path(FULL_26), make_skippable_frames(length)).expect("written");
    let later = SystemTime::now() + Duration::from_secs(10);
    fs::File::open(server.path(FULL_26)).expect("opened").set_modified(later).expect("set");
    let response = server.get(&path, &format!("Range: bytes=5-6\r\nIf-Range: {etag}\r\n"));
    assert_eq!((response.status, response.body.len()), (200, length));
    assert_ne!(response.header("etag"), etag);
}

/// Most of these ranges are sent in many pieces, far into the file.
#[test]
fn long_ranges_are_answered_with_their_bytes() {
    let dir = two_archives();
    let (name, content) = large_archive(dir.path(), 60, 40 << 20);
    let server = ServeProcess::start_in(dir, &[]);
    let mut stream = server.connect();
    for (first, last) in [(20 << 20, 35 << 20), (30_000_001, 41_943_039), (9 << 20, 9 << 20), (12_345_678, 23_456_789)]
    {
        send(&mut stream, "GET", &format!("/{name}"), &format!("Range: bytes={first}-{last}\r\n"));
        let body = read_response(&mut stream, "GET").body;
        assert!(body == content[first..=last], "{first}-{last}");
    }
    let (_, lines) = server.stop();
    assert!(!lines.iter().any(|line| line.contains("bug")), "{lines:?}");
}

#[test]
fn one_connection_serves_many_requests() {
    let server = ServeProcess::start(&[]);
    let mut stream = server.connect();
    let file = fs::read(fixture(INCREMENTAL_26_40)).expect("read");
    for round in 0..20 {
        send(&mut stream, "GET", &format!("/{INCREMENTAL_26_40}"), &format!("Range: bytes={round}-\r\n"));
        assert_eq!(read_response(&mut stream, "GET").body, file[round..]);
        send(&mut stream, "HEAD", "/snapshot.tar.bz2", "");
        assert_eq!(read_response(&mut stream, "HEAD").status, 303);
    }
    // A response to HEAD has no body, not even if it is an error.
    for path in ["/none", "/", "/healthz", "/api/v1/archives", "/incremental-snapshot.tar.bz2"] {
        send(&mut stream, "HEAD", path, "");
        read_response(&mut stream, "HEAD");
    }
    // Pipelined requests are answered in order.
    for first in 7..10 {
        send(&mut stream, "GET", &format!("/{INCREMENTAL_26_40}"), &format!("Range: bytes={first}-99\r\n"));
    }
    for first in 7..10 {
        assert_eq!(read_response(&mut stream, "GET").body, file[first..100]);
    }
}

#[test]
fn only_get_head_and_options_are_allowed() {
    let server = ServeProcess::start(&[]);
    let path = format!("/{FULL_26}");
    assert_eq!(server.request("OPTIONS", &path, "").status, 204);
    for method in ["POST", "PUT", "DELETE", "TRACE", "PATCH", "BREW"] {
        let response = server.request(method, &path, "Content-Length: 0\r\n");
        assert_eq!((response.status, response.header("allow")), (405, "GET, HEAD, OPTIONS"), "{method}");
        let response = server.request(method, &path, "Content-Length: 5\r\nConnection: close\r\n\r\nhello");
        assert_eq!((response.status, response.header("allow")), (405, "GET, HEAD, OPTIONS"), "{method}");
    }
    let response = server.request("GET", &path, "Content-Length: 5\r\nConnection: close\r\n\r\nhello");
    assert_eq!(response.status, 413);
    assert!(server.path(FULL_26).exists());
}

/// With `--access-log`, each range has a line.
#[test]
fn ranges_are_one_transfer_in_the_log() {
    for (flags, expected_lines) in [(&[][..], 1), (&["--access-log"], 4)] {
        let server = ServeProcess::start(flags);
        for start in [0, 1000, 2000, 3000] {
            let range = format!("Range: bytes={start}-{}\r\n", start + 999);
            assert_eq!(server.get(&format!("/{FULL_26}"), &range).status, 206);
        }
        let lines = server.stop().1;
        let served: Vec<serde_json::Value> = lines
            .iter()
            .filter(|line| line.contains("\"served\""))
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(served.len(), expected_lines, "{lines:?}");
        if let [served] = &served[..] {
            assert_eq!((&served["requests"], &served["total_bytes"]), (&4.into(), &4000.into()), "{served}");
            assert_eq!((&served["sent_bytes"], &served["complete"]), (&4000.into(), &true.into()), "{served}");
        }
    }
}

#[test]
fn the_list_describes_the_archives() {
    let server = ServeProcess::start(&[]);
    let response = server.get("/api/v1/archives", "");
    let json: serde_json::Value = serde_json::from_str(&response.text()).expect("JSON");
    assert_eq!((&json["version"], &json["newest_slot"]), (&1.into(), &40.into()));
    assert_eq!(json["choice"]["incremental"], INCREMENTAL_26_40);
    let first = &json["archives"][0];
    assert_eq!((&first["name"], &first["size_bytes"]), (&FULL_26.into(), &218_457.into()));
    // Paths are relative to the list, so they work behind a proxy with any prefix.
    assert_eq!(first["path"], format!("../../{FULL_26}"));
    let etag = server.request("HEAD", &format!("/{FULL_26}"), "").header("etag").to_string();
    assert_eq!(first["etag"], etag);
}

#[test]
fn a_genesis_beside_the_archives_is_served() {
    let server = ServeProcess::start(&[]);
    assert_eq!(server.get("/genesis.tar.bz2", "").status, 404);
    fs::write(server.dir.path().join("genesis.tar.bz2"), "a genesis").expect("written");
    let genesis = server.get("/genesis.tar.bz2", "");
    assert_eq!((genesis.status, genesis.text(), genesis.header("content-length")), (200, "a genesis".into(), "9"));
    assert_eq!(server.get("/genesis.tar.bz2", "Range: bytes=2-3\r\n").text(), "ge");
}

#[test]
fn metrics_are_served_at_a_separate_address() {
    let server = ServeProcess::start(&["--metrics", "127.0.0.1:0"]);
    for path in ["/metrics", "/api/v1/archives/", "/api", "/favicon.ico", "/genesis.tar.bz2"] {
        assert_eq!(server.get(path, "").status, 404, "{path}");
    }
    let mut stream = crate::common::served::connect(server.metrics.expect("an address"));
    send(&mut stream, "GET", "/metrics", "");
    let response = read_response(&mut stream, "GET");
    assert_eq!(response.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    for part in ["slotpress_serve_archives 2", "slotpress_serve_responses_total{status=\"404\"} 5", "# EOF"] {
        assert!(response.text().contains(part), "{part}: {}", response.text());
    }
    send(&mut stream, "GET", &format!("/{FULL_26}"), "");
    assert_eq!(read_response(&mut stream, "GET").status, 404, "the address serves only metrics");
}

#[test]
fn a_server_whose_directory_is_gone_is_unhealthy() {
    let server = ServeProcess::start(&[]);
    assert_eq!(server.get("/healthz", "").text(), "ok\n");
    fs::remove_dir_all(server.dir.path()).expect("removed");
    wait_for("the end of the directory", || server.get("/healthz", "").status == 503);
    assert_eq!(server.get(&format!("/{FULL_26}"), "").status, 404);
    fs::create_dir(server.dir.path()).expect("made again");
}

/// The client requests HEAD and GET on both paths, without query and ranges. It follows up to four
/// redirects, and needs a length.
#[test]
fn a_client_like_firedancers_receives_both_archives() {
    let dir = two_archives();
    let (name, content) = large_archive(dir.path(), 60, 8 << 20);
    let incremental = INCREMENTAL_26_40.replace("-26-40-", "-60-70-");
    fs::copy(dir.path().join(INCREMENTAL_26_40), dir.path().join(&incremental)).expect("copied");
    let server = ServeProcess::start_in(dir, &[]);
    for (path, name) in [("/snapshot.tar.bz2", &name), ("/incremental-snapshot.tar.bz2", &incremental)] {
        for method in ["HEAD", "GET"] {
            let mut path = path.to_string();
            for redirects in 0.. {
                assert!(redirects <= 4);
                let mut stream = server.connect();
                send(
                    &mut stream,
                    method,
                    &path,
                    "User-Agent: Firedancer\r\nAccept: */*\r\nAccept-Encoding: identity\r\n",
                );
                let response = read_head(&mut stream).expect("a head");
                if response.status == 303 {
                    path = response.header("location").to_string();
                    assert!(path.starts_with('/'), "{path}");
                    assert!(path.ends_with(".tar.zst"), "{path}");
                    assert!(!path.contains('?'), "{path}");
                    continue;
                }
                assert_eq!((response.status, path.as_str()), (200, format!("/{name}").as_str()));
                let length: usize = response.header("content-length").parse().expect("a length");
                if method == "GET" {
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).expect("all of it");
                    assert!(name.starts_with("inc") || body == content);
                }
                break;
            }
        }
    }
}

/// Runs a program in a directory, for a minute at most. Returns true if it succeeds.
fn run_succeeds(dir: &Path, program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments).current_dir(dir);
    command.output().expect("run").status.success()
}

/// A server with a large archive.
struct LargeArchive {
    server: ServeProcess,
    name: String,
    content: Vec<u8>,
}

fn serve_large_archive() -> LargeArchive {
    let dir = two_archives();
    let (name, content) = large_archive(dir.path(), 60, 24 << 20);
    LargeArchive { server: ServeProcess::start_in(dir, &[]), name, content }
}

fn file_has_content(path: &Path, content: &[u8]) -> bool {
    fs::read(path).expect("a file") == content
}

#[test]
fn curl_downloads_and_resumes() {
    needs!("curl");
    let LargeArchive { server, name, content } = serve_large_archive();
    let dir = temp_dir();
    let url = server.url(&format!("/{name}"));
    assert!(run_succeeds(dir.path(), "curl", &["-fsSL", "-o", "new", &server.url("/snapshot.tar.bz2")]));
    assert!(file_has_content(&dir.path().join("new"), &content));
    fs::write(dir.path().join("partial"), &content[..content.len() / 2]).expect("written");
    assert!(run_succeeds(dir.path(), "curl", &["-fsS", "-C", "-", "-o", "partial", &url]), "curl does not resume");
    assert!(file_has_content(&dir.path().join("partial"), &content));
    assert!(!run_succeeds(dir.path(), "curl", &["-fsS", "-o", "none", &server.url("/snapshot-1.tar.zst")]));
    assert!(run_succeeds(dir.path(), "curl", &["-fsS", "-z", "new", "-R", "-o", "again", &url]));
}

#[test]
fn wget_downloads_and_resumes() {
    needs!("wget");
    let LargeArchive { server, name, content } = serve_large_archive();
    let dir = temp_dir();
    assert!(run_succeeds(dir.path(), "wget", &["-q", "--trust-server-names", &server.url("/snapshot.tar.bz2")]));
    assert!(file_has_content(&dir.path().join(&name), &content), "the file is named after the archive");
    fs::write(dir.path().join(&name), &content[..content.len() / 2]).expect("written");
    assert!(run_succeeds(dir.path(), "wget", &["-q", "-c", &server.url(&format!("/{name}"))]));
    assert!(file_has_content(&dir.path().join(&name), &content));
}

#[test]
fn aria2c_downloads_over_several_connections() {
    needs!("aria2c");
    let LargeArchive { server, name, content } = serve_large_archive();
    let dir = temp_dir();
    let flags = ["-q", "-x", "8", "-s", "8", "-k", "1M", "--file-allocation=none", "-o", "new"];
    assert!(run_succeeds(dir.path(), "aria2c", &[&flags[..], &[&server.url(&format!("/{name}"))]].concat()));
    assert!(file_has_content(&dir.path().join("new"), &content));
}

/// Mirrors of one archive have the same entity tag, although the times of their files differ.
#[test]
fn the_root_is_the_entity_tag() {
    let first = temp_dir();
    let second = temp_dir();
    let output =
        slotpress().args(["recompress", "--json", "-o"]).arg(first.path()).arg(fixture(FULL_26)).output().expect("run");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let root = report["root"].as_str().expect("a root").to_string();
    fs::copy(first.path().join(FULL_26), second.path().join(FULL_26)).expect("copied");
    let later = SystemTime::now() + Duration::from_secs(10);
    fs::File::open(second.path().join(FULL_26)).expect("opened").set_modified(later).expect("set");
    let file = fs::read(first.path().join(FULL_26)).expect("read");
    let servers = [first, second].map(|dir| ServeProcess::start_in(dir, &[]));
    let path = format!("/{FULL_26}");
    for server in &servers {
        assert_eq!(server.request("HEAD", &path, "").header("etag"), format!("\"{root}\""));
        let json: serde_json::Value = serde_json::from_str(&server.get("/api/v1/archives", "").text()).expect("JSON");
        let archive = &json["archives"][0];
        assert_eq!(archive["root"], root.as_str());
        // The root covers the bytes and the length.
        let offset = archive["frame_hashes"]["offset_bytes"].as_u64().expect("a number");
        let end = server.get(&path, &format!("Range: bytes={offset}-\r\n")).body;
        let hash = blake3::Hasher::new().update(&(file.len() as u64).to_le_bytes()).update(&end).finalize();
        assert_eq!(hash.to_hex().as_str(), root);
    }
    // A changed file has a different entity tag at once, before the server reads the directory again.
    let mut changed = file.clone();
    changed[100] ^= 1;
    fs::write(servers[0].path(FULL_26), &changed).expect("written");
    assert_ne!(servers[0].request("HEAD", &path, "").header("etag"), format!("\"{root}\""));
}
