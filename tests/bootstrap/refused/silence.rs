//! Sources without archives, when the node itself has archives.

use std::fs;
use std::path::Path;

use crate::common::http::{Server, send_response};
use crate::common::site::*;
use crate::common::*;

fn write_files(files: &Files, dir: &Path) {
    fs::create_dir(dir).expect("made");
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).expect("written");
    }
}

/// If another source has an archive, each source without archives is named in a warning. If no source has
/// one, the run fails, and names the local archives.
#[test]
fn sources_without_archives_are_named() {
    let files = archives(&[]);
    let serve_answer = |status: &'static str, body: &'static str| {
        Server::start(move |_, stream| {
            send_response(stream, status, &[("Content-Type", "application/json")], body.as_bytes())
        })
    };
    let servers = [
        serve_answer("404 Not Found", ""),
        serve_answer("200 OK", r#"{"version":1,"archives":[]}"#),
        serve_answer("200 OK", r#"{"version":1,"archives":[{"name":"x","size_bytes":-1}]}"#),
    ];
    let urls: Vec<String> = servers.iter().map(|server| server.url("/")).chain([format!("{DEAD_URL}/")]).collect();
    let good = serve(&files, TransferMode::Ranges);
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        for source in &urls {
            let dir = temp_dir();
            let out = dir.path().join("out");
            write_files(&files, &out);
            let source_text = source.trim_end_matches('/');
            let output = run_to_json(&[command, source, flag, text(&out)]);
            assert_eq!(output.code, Some(4), "{command} {source}: {output:?}");
            for part in [source_text, "of slot 40", "slotpress restore"] {
                assert!(output.stderr.contains(part), "{command} {source}: {output:?}");
            }
            let output = run_to_json(&[command, source, &good.url("/"), flag, text(&out)]);
            assert_eq!(output.code, Some(0), "{command} {source}: {output:?}");
            let is_warning = |line: &&str| line.contains("\"warning\"") && line.contains("this source is passed over");
            let warnings: Vec<&str> = output.stderr.lines().filter(is_warning).collect();
            assert_eq!(warnings.len(), 1, "{output:?}");
            assert!(warnings[0].contains(source_text), "{output:?}");
        }
    }
}

#[test]
fn expected_local_archives_are_used_without_a_source() {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    write_files(&archives(&[]), &ledger);
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    let output = run_to_json(&["bootstrap", DEAD_URL, "--ledger", text(&ledger), "--expect-hash", hash]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 40, "{output:?}");
}
