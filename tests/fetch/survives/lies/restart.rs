//! A server that is killed and restarted during `fetch`, one that stays away, and servers that are too slow.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use slotpress_base::{Error, KeptDir, NoProgress, Progress, Until};
use slotpress_net::{Client, ClientOptions, Download, FetchLimits, PartialFile, Remote, parse_url};

use super::lying_server::{Archive, ArchiveKind};
use crate::common::strace::number_from_env;
use crate::common::*;

fn start_slow_server(dir: &Path, address: SocketAddr) -> Child {
    let child = Command::new(slotpress_path())
        // The server is slow, so hardly any bytes are in flight when it ends, and all streams notice its end at
        // once.
        .args(["-q", "serve", "--listen", &address.to_string(), "--max-rate", "1MiB"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "it does not listen");
        thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Returns the number of bytes that a journal lists.
fn journaled_bytes(journal: &Path) -> u64 {
    let Ok(text) = fs::read(journal) else { return 0 };
    let Ok(journal) = serde_json::from_slice::<serde_json::Value>(&text) else { return 0 };
    let ranges = journal["ranges"].as_array().cloned().unwrap_or_default();
    ranges.iter().map(|range| range[1].as_u64().unwrap_or_default() - range[0].as_u64().unwrap_or_default()).sum()
}

/// The server is killed during a transfer. It starts again after all eight streams have reconnected
/// and been cut off. The fetch then completes.
#[test]
fn a_fetch_outlives_its_server() {
    let archive = Archive::get(ArchiveKind::Single);
    for _ in 0..number_from_env("LIES_RUNS", 1) {
        let www = temp_dir();
        let out = temp_dir();
        fs::write(www.path().join(&archive.name), &archive.original).expect("written");
        let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
        let mut server = start_slow_server(www.path(), address);
        let fetch = Command::new(slotpress_path())
            .args(["fetch", &format!("http://{address}/{}", archive.name), "--streams", "8", "-o"])
            .arg(out.path())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        // By then, every stream has had time to begin.
        let journal = out.path().join(format!("slotpress-fetch-{}.journal", archive.name));
        wait_for("a part of the archive", || journaled_bytes(&journal) >= archive.original.len() as u64 / 4);
        server.kill().expect("killed");
        server.wait().expect("ends");
        assert!(!out.path().join(&archive.name).exists(), "the fetch ended before the kill");
        let listener = TcpListener::bind(address).expect("the same port");
        listener.set_nonblocking(true).expect("set");
        let mut accepted = 0;
        wait_for("all streams to reconnect", || {
            accepted += usize::from(listener.accept().is_ok());
            accepted >= 8
        });
        drop(listener);
        server = start_slow_server(www.path(), address);
        let output = fetch.wait_with_output().expect("ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(fs::read(out.path().join(&archive.name)).expect("fetched") == archive.original);
        server.kill().expect("killed");
        server.wait().expect("ends");
    }
}

/// Runs a download that must fail, and returns its error.
fn fail_download(client: &Client, dir: &Path, remote: Remote, limits: FetchLimits, progress: &dyn Progress) -> Error {
    let name = remote.archive_name().expect("an archive").to_string();
    let kept_dir = Arc::new(KeptDir::open(dir).expect("opened"));
    let file = Arc::new(PartialFile::open(&kept_dir, &name).expect("a file"));
    let download = Download::begin(client.clone(), file, vec![remote], limits, progress).expect("begins");
    let error = download.run(progress).expect_err("no archive");
    assert!(!dir.join(name).exists());
    error
}

/// The download ends when `give_up_after` has passed.
#[test]
fn a_server_that_is_gone_for_good_is_given_up() {
    let archive = Archive::get(ArchiveKind::Hashed);
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let server = super::LyingServer::start(archive, super::honest);
    let url = parse_url(&server.url()).expect("a URL");
    let mut remote = client.head(&url, &NoProgress).expect("a head");
    drop(server);
    let free_address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    remote.requested_url = parse_url(&format!("http://{free_address}/")).expect("a URL");
    remote.url = parse_url(&format!("http://{free_address}/{}", archive.name)).expect("a URL");
    let dir = temp_dir();
    let give_up_after = Duration::from_millis(700);
    let limits = FetchLimits::default().give_up_after(give_up_after);
    let start = Instant::now();
    let error = fail_download(&client, dir.path(), remote, limits, &NoProgress);
    assert_eq!(error.kind().exit_code(), 4, "{error}");
    assert!(start.elapsed() >= give_up_after, "{:?}", start.elapsed());
}

/// A download also gives up on a single server that sends hardly any bytes, with and without ranges. The
/// message says why.
#[test]
fn a_server_that_is_too_slow_is_given_up() {
    let archive = Archive::get(ArchiveKind::Hashed);
    let options = ClientOptions::default().read_timeout(Duration::from_millis(300));
    let client = Client::new(&options).expect("a client");
    for (behavior, accepts_ranges) in [
        (super::a_byte_a_second as super::lying_server::Behavior, true),
        (super::slow_except_end_of_file, true),
        (super::slow_end_of_each_range, true),
        (super::a_byte_every_20_ms, true),
        (super::a_byte_every_20_ms, false),
    ] {
        let server = super::LyingServer::start(archive, behavior);
        let mut remote = client.head(&parse_url(&server.url()).expect("a URL"), &NoProgress).expect("a head");
        remote.accepts_ranges = accepts_ranges;
        let dir = temp_dir();
        let limits = FetchLimits::default().give_up_after(Duration::from_millis(900));
        let start = Instant::now();
        let until = Until(|| start.elapsed() > Duration::from_secs(60));
        let error = fail_download(&client, dir.path(), remote, limits, &until);
        let message = error.to_string();
        assert_eq!(error.kind().exit_code(), 4, "{message}");
        assert!(message.contains("1 KiB/s"), "{message}");
        assert!(message.contains("0.9 s"), "{message}");
    }
}
