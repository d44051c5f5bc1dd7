//! Servers with archives, and runs of the program against them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::common::http::{Connection, Request, Server, send_file, send_head, send_redirect, send_response};
use crate::common::*;

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Makes a full archive of slot 26 and an incremental one of slot 40, with small frames and frame
/// hashes.
pub fn archives(flags: &[&str]) -> Files {
    let out = temp_dir();
    for source in [FULL_26, INCREMENTAL_26_40] {
        let output = slotpress()
            .arg("recompress")
            .arg(fixture(source))
            .args(["--frame-size", "64KiB", "--check", "frames"])
            .args(flags)
            .arg("-o")
            .arg(out.path())
            .output()
            .expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    files_in(out.path())
}

/// Makes a full archive of a few megabytes. The index and seek table are a small part of it.
pub fn larger_archive() -> Files {
    let dir = temp_dir();
    let (ledger, out) = (dir.path().join("ledger"), dir.path().join("out"));
    fs::create_dir(&out).expect("made");
    for arguments in [
        &["synth", text(&ledger), "--size", "16MiB"][..],
        &["archive", text(&ledger), "-o", text(&out), "--frame-size", "256KiB"],
    ] {
        let output = run_to_json(arguments);
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    files_in(&out)
}

/// Makes a full archive that is fetched in several ranges, and an incremental one.
pub fn pair_of_archives() -> Files {
    pair_and_genesis().0
}

/// Makes the same pair. Also returns the chain's genesis, which Agave needs to load the archives.
pub fn pair_and_genesis() -> (Files, Vec<u8>) {
    let dir = temp_dir();
    let (ledger, out) = (dir.path().join("ledger"), dir.path().join("out"));
    fs::create_dir(&out).expect("made");
    let full = ledger.join("at-full");
    let output = run_to_json(&["synth", text(&ledger), "--size", "8MiB", "--incremental", "1MiB"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let output = run_to_json(&["archive", text(&full), "-o", text(&out), "--frame-size", "256KiB"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let slot = output.line("archive")["slot"].to_string();
    let output =
        run_to_json(&["archive", text(&ledger), "-o", text(&out), "--frame-size", "256KiB", "--base-slot", &slot]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let files = files_in(&out);
    assert_eq!(files.len(), 2);
    assert!(files.values().any(|bytes| bytes.len() > 2 << 20), "no archive needs several ranges");
    (files, fs::read(ledger.join("genesis.bin")).expect("read"))
}

/// Returns archives that Agave wrote, in one frame and without an index.
pub fn agave_archives() -> Files {
    [FULL_26, INCREMENTAL_26_40].map(|name| (name.to_string(), fs::read(fixture(name)).expect("read"))).into()
}

pub fn files_in(dir: &Path) -> Files {
    let files = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.is_file()).map(|path| (name(&path), fs::read(&path).expect("read"))).collect()
}

/// How a server sends files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferMode {
    /// The server sends ranges and an ETag.
    Ranges,
    /// The server always sends the whole file, like Agave's RPC port.
    Whole,
    /// The server announces ranges, but sends the whole file.
    Liar,
}

/// Serves files as Agave's RPC port does: at their names, and at two paths that redirect to the newest archives.
pub fn serve(files: &Files, mode: TransferMode) -> Server {
    let files = Arc::new(files.clone());
    Server::start(move |request, stream| respond(&files, mode, request, stream))
}

pub fn respond(files: &Files, mode: TransferMode, request: &Request, stream: &mut TcpStream) -> io::Result<Connection> {
    let newest = |prefix: &str| files.keys().rev().find(|name| name.starts_with(prefix) && !name.ends_with("bz2"));
    let requested_name = request.path.trim_start_matches('/');
    let redirected_name = match requested_name {
        "snapshot.tar.bz2" => newest("snapshot-"),
        "incremental-snapshot.tar.bz2" => newest("incremental-"),
        _ => None,
    };
    if let Some(name) = redirected_name {
        return send_redirect(stream, &format!("/{name}"));
    }
    let Some(bytes) = files.get(requested_name) else {
        let prefixes = ["snapshot", "incremental-snapshot", "genesis"];
        let is_served_by_agave = prefixes.iter().any(|prefix| requested_name.starts_with(prefix));
        let status = if is_served_by_agave { "404 Not Found" } else { "405 Method Not Allowed" };
        return send_response(stream, status, &[], b"");
    };
    match mode {
        TransferMode::Ranges => send_file(request, stream, bytes, &etag(bytes)),
        TransferMode::Whole | TransferMode::Liar => {
            let accept_ranges = [("Accept-Ranges", "bytes")];
            let headers: &[(&str, &str)] = if mode == TransferMode::Liar { &accept_ranges } else { &[] };
            send_head(stream, "200 OK", &[headers, &[("Content-Length", &bytes.len().to_string())]].concat())?;
            if request.method != "HEAD" {
                stream.write_all(bytes)?;
            }
            Ok(Connection::KeepAlive)
        }
    }
}

pub fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", blake3::hash(bytes).to_hex())
}

/// The output of a run with `--json`.
#[derive(Debug)]
pub struct JsonOutput {
    pub code: Option<i32>,
    pub lines: Vec<serde_json::Value>,
    pub stderr: String,
}

impl JsonOutput {
    /// Returns the first JSON object of a type.
    pub fn line(&self, kind: &str) -> &serde_json::Value {
        self.lines.iter().find(|line| line["type"] == kind).unwrap_or_else(|| panic!("no {kind}: {self:?}"))
    }
}

pub fn run_to_json(arguments: &[&str]) -> JsonOutput {
    let output = slotpress().args(arguments).arg("--json").output().expect("runs");
    let lines = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    JsonOutput {
        code: output.status.code(),
        lines: lines.collect(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Restores a ledger from the archives, in the directory `ledger` of the result.
pub fn restore_files(files: &Files) -> TempDir {
    let dir = temp_dir();
    let write = |prefix: &str| -> PathBuf {
        let (name, bytes) = files.iter().find(|(name, _)| name.starts_with(prefix)).expect("an archive");
        let path = dir.path().join(name);
        fs::write(&path, bytes).expect("written");
        path
    };
    let (full, incremental) = (write("snapshot-"), write("incremental-"));
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["restore", text(&full), text(&incremental), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    dir
}

/// Returns the ledger's files, without those of the genesis and of a replaced state.
pub fn ledger_tree(ledger: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut files = tree(ledger);
    files.retain(|path, _| !path.starts_with("genesis") && !path.starts_with("slotpress-replaced-"));
    files
}

pub fn full(files: &Files) -> (String, Vec<u8>) {
    let (name, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    (name.clone(), bytes.clone())
}

/// URL at which no server listens.
pub const DEAD_URL: &str = "http://127.0.0.1:9";

/// Makes the full archive of [`archives`] alone.
pub fn full_archive_only() -> Files {
    archives(&[]).into_iter().filter(|(name, _)| name.starts_with("snapshot-")).collect()
}
