//! `bootstrap` makes the same ledgers as `restore`.

use std::fs;
use std::io::Write;

use crate::common::site::*;
use crate::common::{http, screen, *};

#[test]
fn the_ledger_equals_one_restored_from_disk() {
    for files in [archives(&[]), agave_archives()] {
        let expected = restore_files(&files);
        for mode in [TransferMode::Ranges, TransferMode::Whole, TransferMode::Liar] {
            let server = serve(&files, mode);
            let dir = temp_dir();
            let ledger = dir.path().join("ledger");
            let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
            assert_eq!(output.code, Some(0), "{mode:?} {output:?}");
            let restore = output.line("restore");
            assert_eq!(restore["slot"], 40);
            assert_eq!(restore["state"], "checked");
            assert!(ledger_tree(&ledger) == ledger_tree(&expected.path().join("ledger")), "{mode:?}");
        }
    }
}

#[test]
fn a_full_archive_alone_makes_a_ledger() {
    let server = serve(&archives(&[]), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--no-incremental"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
    let slots = relative_paths(&ledger.join("snapshots"));
    assert!(slots.contains(&"26".to_string()), "{slots:?}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let server = serve(&archives(&[]), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--dry-run"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let plan = output.line("bootstrap_plan");
    assert_eq!(plan["full"]["slot"], 26);
    assert_eq!(plan["incremental"]["slot"], 40);
    assert!(!ledger.exists());
}

#[test]
fn a_dry_run_leaves_the_files_of_a_killed_restore() {
    let server = serve(&archives(&[]), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    for left in ["accounts/slotpress-partial-run-1", "accounts/run/1.1", "snapshots/7"] {
        fs::create_dir_all(ledger.join(left)).expect("made");
    }
    let existing = ["snapshots/7", "accounts/run"].map(|part| serde_json::json!(ledger.join(part)));
    for (has_journal, existing) in [(false, &existing[..]), (true, &[])] {
        if has_journal {
            fs::write(ledger.join("slotpress-partial-journal"), "{}").expect("written");
        }
        let before = tree(&ledger);
        let output =
            run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--dry-run", "--replace-state"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(tree(&ledger) == before, "{output:?}");
        assert_eq!(output.line("bootstrap_plan")["existing"].as_array().expect("a list"), existing, "{output:?}");
    }
}

/// The output is short, and warns if nobody confirmed the state.
#[test]
fn the_output_ends_with_the_command_that_starts_a_validator() {
    let server = serve(&archives(&[]), TransferMode::Ranges);
    let dir = temp_dir();
    let url = server.url("");
    let ledger = dir.path().join("ledger");
    let bootstrap =
        |flags: &[&str]| screen::run_to_text(&[&["bootstrap", &url, "--ledger", text(&ledger)], flags].concat());
    let assert_short = |stdout: &str| {
        let lines: Vec<&str> = stdout.lines().collect();
        assert!(lines.len() <= 13, "{stdout}");
        assert!(lines.last().is_some_and(|last| last.starts_with("  agave-validator ")), "{stdout}");
        assert!(stdout.contains("checked, "), "{stdout}");
        assert!(!stdout.contains("checks the rest"), "{stdout}");
    };
    let (code, stdout, stderr) = bootstrap(&[]);
    assert_eq!(code, 0, "{stderr}");
    assert_short(&stdout);
    assert!(stderr.lines().last().is_some_and(|last| last.starts_with("warning: nobody confirmed")), "{stderr}");
    // The next run refuses to fetch the state that already exists.
    let (code, stdout, stderr) = bootstrap(&[]);
    assert_eq!(code, 5, "{stderr}");
    assert_eq!(stdout, "", "{stderr}");
    assert!(stderr.ends_with("error: slot 40 is already there: start the validator\n"), "{stderr}");
    let (code, stdout, stderr) = bootstrap(&["--replace-state", "--trust", &url]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!stderr.contains("nobody confirmed"), "{stderr}");
    assert_short(&stdout);
    assert!(stdout.contains("rm -r "), "{stdout}");
}

/// Packs a genesis into an archive, as servers offer it.
fn pack_genesis(genesis: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(genesis.len() as u64);
    tar.append_data(&mut header, "genesis.bin", genesis).expect("appended");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bzip2.write_all(&tar.into_inner().expect("finished")).expect("compressed");
    bzip2.finish().expect("compressed")
}

/// Starts a server with archives and with this genesis.
fn serve_with_genesis(genesis: &[u8]) -> http::Server {
    let mut files = archives(&[]);
    files.insert("genesis.tar.bz2".to_string(), pack_genesis(genesis));
    serve(&files, TransferMode::Ranges)
}

#[test]
fn the_expected_genesis_is_fetched() {
    let genesis = fs::read(fixture("genesis.bin")).expect("read");
    let hash = slotpress_format::ledger::names::Hash(<sha2::Sha256 as sha2::Digest>::digest(&genesis).into());
    let hash = hash.to_string();
    let server = serve_with_genesis(&genesis);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output =
        run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expect-genesis-hash", &hash]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(fs::read(ledger.join("genesis.bin")).expect("read"), genesis);
}

#[test]
fn an_unexpected_genesis_is_refused() {
    let server = serve_with_genesis(&fs::read(fixture("genesis.bin")).expect("read"));
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let wrong = "11111111111111111111111111111112";
    let output =
        run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expected-genesis-hash", wrong]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("genesis hash"), "{output:?}");
    assert!(!ledger.exists(), "{output:?}");
}

/// Agave would not start with such a genesis, so neither the state nor the genesis is left.
#[test]
fn a_genesis_of_another_chain_is_refused() {
    let server = serve_with_genesis(&fs::read(fixture_of(AGAVE_4_4, "genesis.bin")).expect("read"));
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("is from a different chain than the genesis"), "{output:?}");
    assert!(!ledger.join("snapshots").exists(), "{output:?}");
    assert!(!ledger.join("genesis.bin").exists(), "{output:?}");
}

#[test]
fn an_unreadable_genesis_is_not_used() {
    let server = serve_with_genesis(b"the beginning of a chain");
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("the genesis: "), "{output:?}");
    assert!(ledger.join("snapshots").exists(), "{output:?}");
    assert!(!ledger.join("genesis.bin").exists(), "{output:?}");
}

/// The genesis of the other server is named in a warning.
#[test]
fn the_genesis_of_the_right_chain_is_used() {
    let right = fs::read(fixture("genesis.bin")).expect("read");
    let other = serve_with_genesis(&fs::read(fixture_of(AGAVE_4_4, "genesis.bin")).expect("read"));
    let server = serve_with_genesis(&right);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &other.url(""), &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.stderr.contains(&format!("{}: the genesis is from a different chain", other.url("/genesis.tar.bz2")))
    );
    assert_eq!(fs::read(ledger.join("genesis.bin")).expect("read"), right);
}

/// A validator fell behind. Its old state stays until the new state is complete, and is then moved beside
/// the new state.
#[test]
fn an_old_state_is_moved_aside() {
    let server = serve(&archives(&[]), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let url = server.url("");
    let bootstrap =
        |flags: &[&str]| run_to_json(&[&["bootstrap", url.as_str(), "--ledger", text(&ledger)], flags].concat());
    assert_eq!(bootstrap(&["--no-incremental"]).code, Some(0));
    for name in ["tower-1_9-x.bin", "rocksdb/CURRENT"] {
        fs::create_dir_all(ledger.join(name).parent().expect("a parent")).expect("made");
        fs::write(ledger.join(name), "the validator's").expect("written");
    }
    let before = tree(&ledger);
    let output = bootstrap(&[]);
    assert_eq!(output.code, Some(5), "an existing state is not replaced without the flag: {output:?}");
    assert!(tree(&ledger) == before, "a refused run changes nothing");
    let output = bootstrap(&["--replace-state", "--expect-slot", "41"]);
    assert_eq!(output.code, Some(3), "{output:?}");
    let mut after = tree(&ledger);
    after.retain(|path, _| before.contains_key(path));
    assert!(after == before, "a failed run moves nothing");

    let output = bootstrap(&["--replace-state"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let replaced = output.line("bootstrap")["replaced"].as_array().expect("a list").clone();
    assert_eq!(replaced.len(), 2, "{output:?}");
    let after = tree(&ledger);
    let find_moved = |path: &str| {
        let end = path.trim_start_matches("accounts/");
        let mut paths = after.keys();
        paths.find(|moved| moved.contains("slotpress-replaced-") && moved.ends_with(end)).cloned()
    };
    for (path, content) in &before {
        let is_state = path.starts_with("snapshots/26") || path.starts_with("accounts/run/");
        let place = if is_state { find_moved(path) } else { Some(path.clone()) };
        assert!(place.and_then(|place| after.get(&place)) == Some(content), "{path}");
    }
    let expected = restore_files(&archives(&[]));
    let mut new_state = ledger_tree(&ledger);
    new_state.retain(|path, _| {
        !path.contains("slotpress-replaced-") && !path.starts_with("tower") && !path.starts_with("rocksdb")
    });
    assert!(new_state == ledger_tree(&expected.path().join("ledger")));
}

#[test]
fn ledger_and_archives_may_be_on_two_file_systems() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let here = temp_dir();
    let there = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let ledger = here.path().join("ledger");
    let snapshots = there.path().join("snapshots");
    let accounts = there.path().join("accounts");
    let flags = ["--snapshots", text(&snapshots), "--accounts", text(&accounts)];
    let output = run_to_json(&[&["bootstrap", &server.url(""), "--ledger", text(&ledger)][..], &flags].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let fetched = files_in(&snapshots);
    assert!(files.iter().all(|(name, bytes)| fetched.get(name) == Some(bytes)), "{:?}", relative_paths(&snapshots));
}
