//! Candidates whose archives Firedancer wrote.

use std::fs;

use crate::common::firedancer::*;
use crate::common::site::{Files, TransferMode, ledger_tree, restore_files, run_to_json, serve};
use crate::common::*;

fn read_files(archives: &[std::path::PathBuf]) -> Files {
    archives.iter().map(|path| (name(path), fs::read(path).expect("read"))).collect()
}

/// Returns the words of a text with one space between them, since messages are wrapped.
fn unwrap_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An archive of Agave is used instead: another full archive, or the same full archive alone.
#[test]
fn archives_that_only_firedancer_loads_are_skipped() {
    let chain = "firedancer-2026-08/validator";
    let dir = temp_dir();
    let expected = dir.path().join("expected");
    assert_eq!(run_to_json(&["restore", text(&fixture(FULL_26)), "--ledger", text(&expected)]).code, Some(0));
    for mode in [TransferMode::Ranges, TransferMode::Whole] {
        let newer_pair = serve(&read_files(&[full(chain), incremental(chain)]), mode);
        let agave_server = serve(&read_files(&[fixture(FULL_26)]), mode);
        let mixed_pair = serve(&read_files(&[fixture(FULL_26), incremental(OLD_CHAIN)]), mode);
        for urls in [vec![newer_pair.url(""), agave_server.url("")], vec![mixed_pair.url("")]] {
            let ledger_dir = temp_dir();
            let ledger = ledger_dir.path().join("ledger");
            let mut arguments = vec!["bootstrap", "--ledger", text(&ledger)];
            arguments.extend(urls.iter().map(String::as_str));
            let output = run_to_json(&arguments);
            assert_eq!(output.code, Some(0), "{urls:?} {mode:?} {output:?}");
            assert!(unwrap_lines(&output.stderr).contains("only Firedancer loads it"), "{urls:?} {mode:?} {output:?}");
            assert!(ledger_tree(&ledger) == ledger_tree(&expected), "{urls:?} {mode:?}");
        }
    }
}

#[test]
fn sources_with_nothing_that_agave_loads_are_refused() {
    let chain = "firedancer-2026-08/validator";
    for mode in [TransferMode::Ranges, TransferMode::Whole] {
        let server = serve(&read_files(&[full(chain), incremental(chain)]), mode);
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(1), "{mode:?} {output:?}");
        let stderr = unwrap_lines(&output.stderr);
        assert!(stderr.contains("only Firedancer loads it"), "{mode:?} {output:?}");
        assert!(stderr.contains(HINT), "{output:?}");
        assert!(relative_paths(&ledger).iter().all(|name| !name.contains("snapshot")), "{:?}", relative_paths(&ledger));
    }
}

#[test]
fn firedancers_archives_that_agave_loads_are_used() {
    let files = read_files(&[full(NEW_CHAIN), incremental(NEW_CHAIN)]);
    let expected = restore_files(&files);
    let server = serve(&files, TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(ledger_tree(&ledger) == ledger_tree(&expected.path().join("ledger")));
}

/// Agave refuses two pairs: its own incremental archive on Firedancer's full archive, whose vote accounts
/// have no rent epochs, and a pair with 0 hashes per tick. The next pair is used, or the full archive
/// alone.
#[test]
fn after_a_refused_pair_the_next_is_used() {
    let agave_archives = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(AGAVE_4_4, prefix));
    for (refused, next, why) in [
        ([full(NEW_CHAIN), agave_archives[1].clone()], agave_archives.clone(), "rent epoch"),
        (
            [full(NEW_CHAIN), incremental("firedancer-2026-09/full-bank-hashes-0")],
            [full(NEW_CHAIN), incremental(NEW_CHAIN)],
            "0 hashes per tick",
        ),
    ] {
        let refused = serve(&read_files(&refused), TransferMode::Ranges);
        let server = serve(&read_files(&next), TransferMode::Ranges);
        for (number, archives) in [&next[..], &[full(NEW_CHAIN)]].into_iter().enumerate() {
            let dir = temp_dir();
            let urls = [refused.url(""), server.url("")];
            let [ledger, expected] = ["ledger", "expected"].map(|name| dir.path().join(name));
            let restored = slotpress().arg("restore").args(archives).arg("--ledger").arg(&expected).assert();
            restored.success();
            let mut arguments = vec!["bootstrap", "--ledger", text(&ledger)];
            arguments.extend(urls.iter().take(2 - number).map(String::as_str));
            let output = run_to_json(&arguments);
            assert_eq!(output.code, Some(0), "{why}: {output:?}");
            assert!(number == 0 || unwrap_lines(&output.stderr).contains(why), "{output:?}");
            assert!(ledger_tree(&ledger) == ledger_tree(&expected), "{why}, {number}");
        }
    }
}
