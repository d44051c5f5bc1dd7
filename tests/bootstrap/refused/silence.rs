//! Sources without archives, when the node itself has some.

use std::fs;

use crate::common::http::{Server, answer};
use crate::common::site::*;
use crate::common::*;

/// A source that does not answer or has no archives is named. If no source has one, the run fails,
/// and names the local archives.
#[test]
fn sources_that_have_nothing_are_named() {
    let files = archives(&[]);
    let all = |status: &'static str, body: &'static str| {
        Server::start(move |_, stream| answer(stream, status, &[("Content-Type", "application/json")], body.as_bytes()))
    };
    let servers = [
        all("500 Internal Server Error", ""),
        all("404 Not Found", ""),
        all("200 OK", r#"{"version":1,"archives":[]}"#),
        all("200 OK", r#"{"version":1,"archives":[{"name":"x","size_bytes":-1}]}"#),
    ];
    let silent: Vec<String> = servers.iter().map(|server| server.url("/")).chain([format!("{DEAD}/")]).collect();
    let good = serve(&files, Way::Ranges);
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        for source in &silent {
            // The server stays busy: the run does not wait for the whole time.
            if source == &silent[0] {
                continue;
            }
            let dir = temp_dir();
            let out = dir.path().join("out");
            fs::create_dir(&out).expect("made");
            files.iter().for_each(|(name, bytes)| fs::write(out.join(name), bytes).expect("written"));
            let output = run(&[command, source, flag, text(&out)]);
            assert_eq!(output.code, Some(4), "{command} {source}: {output:?}");
            let is_named = output.stderr.contains(source.trim_end_matches('/')) && output.stderr.contains("of slot 40");
            assert!(is_named, "{command} {source}: {output:?}");
            assert!(output.stderr.contains("slotpress restore"), "{command} {source}: {output:?}");
            // If another source has an archive, this is a warning.
            let output = run(&[command, source, &good.url("/"), flag, text(&out)]);
            assert_eq!(output.code, Some(0), "{command} {source}: {output:?}");
            let warns = |line: &&str| line.contains("\"warning\"") && line.contains("this source is passed over");
            let warnings: Vec<&str> = output.stderr.lines().filter(warns).collect();
            assert_eq!(warnings.len(), 1, "{output:?}");
            assert!(warnings[0].contains(source.trim_end_matches('/')), "{output:?}");
        }
    }
    // The local archives are the expected ones.
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    fs::create_dir(&ledger).expect("made");
    files.iter().for_each(|(name, bytes)| fs::write(ledger.join(name), bytes).expect("written"));
    let output = run(&["bootstrap", &silent[4], "--ledger", text(&ledger), "--expect-hash", hash]);
    assert_eq!((output.code, &output.line("restore")["slot"]), (Some(0), &40.into()), "{output:?}");
}
