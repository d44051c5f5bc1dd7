//! Sources from a file, and sources on this machine.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::net::{Client, ClientOptions, FetchOptions, SourceLocation, fetch};
use slotpress::{ErrorKind, NoProgress, Progress, ProgressEvent};

use crate::common::site::*;
use crate::common::*;

#[test]
fn sources_can_come_from_a_file() {
    let good = serve(&full_archive_only(), TransferMode::Ranges);
    let dir = temp_dir();
    let file = dir.path().join("mirrors");
    let out = dir.path().join("out");
    let lines = format!("# ours\n\n  {}  \n{DEAD_URL}\n", good.url(""));
    fs::write(&file, lines).expect("written");
    let output = run_to_json(&["fetch", "--sources-from", text(&file), "-o", text(&out)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(run_to_json(&["find", "--sources-from", text(&file)]).code, Some(0));
}

#[test]
fn invalid_files_of_sources_are_refused() {
    let dir = temp_dir();
    let file = dir.path().join("mirrors");
    let out = dir.path().join("out");
    for (content, code, words) in
        [("ftp://x/\n", 2, "line 1"), ("# none\n", 2, "lists no source"), ("\n/no/such/path\n", 1, "line 2")]
    {
        fs::write(&file, content).expect("written");
        let output = run_to_json(&["fetch", "--sources-from", text(&file), "-o", text(&out)]);
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
    }
}

/// Records stages, bytes and warnings, as a program that embeds the library receives them.
#[derive(Default)]
struct Events {
    stages: Mutex<Vec<(String, Option<u64>)>>,
    bytes: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

impl Progress for Events {
    fn event(&self, event: ProgressEvent<'_>) {
        match event {
            ProgressEvent::Stage { stage, input_bytes } => {
                self.stages.lock().expect("nobody panicked").push((stage.to_string(), input_bytes));
            }
            ProgressEvent::Bytes { input, .. } => {
                self.bytes.fetch_add(input, Relaxed);
            }
            ProgressEvent::Warning(text) => self.warnings.lock().expect("nobody panicked").push(text.to_string()),
            _ => {}
        }
    }
}

/// A local archive is checked like a downloaded one: progress, age and the place of damage are reported.
#[test]
fn local_archives_are_checked_with_progress() {
    let dir = temp_dir();
    let out = temp_dir();
    let ledger = ledger("ledger-at-26");
    let archive = archive(ledger.path(), dir.path(), &[]);
    let sources = [text(dir.path()).parse::<SourceLocation>().expect("a directory")];
    let client = Client::new(&ClientOptions::default()).expect("a client");
    let events = Events::default();
    let options = FetchOptions::new(sources, out.path());
    let report = fetch(&client, &options, &events).expect("fetched");
    assert_eq!(report.archives[0].path.as_deref(), Some(&*archive));
    let stages = events.stages.into_inner().expect("nobody panicked");
    let bytes = events.bytes.into_inner();
    let warnings = events.warnings.into_inner().expect("nobody panicked");
    let length = fs::metadata(&archive).expect("there").len();
    assert!(stages.contains(&("Checking".to_string(), Some(length))), "{stages:?}");
    assert!(bytes <= length, "{bytes} of {length}");
    assert!(bytes > length / 2, "{bytes} of {length}");
    assert!(warnings.iter().any(|text| text.contains("according to its bank file, the state will be")), "{warnings:?}");

    let mut damaged = fs::read(&archive).expect("read");
    damaged[100] ^= 1;
    fs::write(&archive, damaged).expect("written");
    let error = fetch(&client, &options, &NoProgress).expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(error.offset_bytes(), Some(0), "{error}");
}

#[test]
fn a_missing_path_is_not_a_source() {
    let error = "/no/such/path".parse::<SourceLocation>().expect_err("nothing is there");
    assert!(error.hint().expect("advice").to_string().contains("a directory of archives"), "{error}");
}
