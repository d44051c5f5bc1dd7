//! Candidates that are archives by Firedancer.

use std::fs;

use crate::common::firedancer::*;
use crate::common::site::{Files, Way, ledger_tree, restore_files, run, serve};
use crate::common::*;

fn files(archives: &[std::path::PathBuf]) -> Files {
    archives.iter().map(|path| (name(path), fs::read(path).expect("read"))).collect()
}

/// Candidates that only Firedancer loads are skipped with a warning: the next one is taken.
#[test]
fn archives_that_only_firedancer_loads_are_skipped() {
    let agaves = files(&[fixture(FULL_26)]);
    let expected = temp_dir();
    let newer = "firedancer-2026-08/validator";
    let expected = expected.path().join("ledger");
    assert_eq!(run(&["restore", text(&fixture(FULL_26)), "--ledger", text(&expected)]).code, Some(0));
    for way in [Way::Ranges, Way::Whole] {
        // Candidates newer than Agave's; the same with an incremental archive on them; nothing
        // else.
        let only_newer = serve(&files(&[full(newer), incremental(newer)]), way);
        let mixed = serve(&files(&[fixture(FULL_26), incremental(OLD)]), way);
        let theirs = serve(&agaves, way);
        let dir = temp_dir();
        for (number, servers) in [vec![&only_newer, &theirs], vec![&mixed], vec![&only_newer]].iter().enumerate() {
            let ledger = dir.path().join(format!("ledger-{number}"));
            let urls: Vec<String> = servers.iter().map(|server| server.url("")).collect();
            let urls = urls.iter().map(String::as_str);
            let output =
                run(&["bootstrap"].into_iter().chain(urls).chain(["--ledger", text(&ledger)]).collect::<Vec<_>>());
            let words = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("only Firedancer loads it"), "{number} {way:?} {output:?}");
            if number < 2 {
                assert_eq!(output.code, Some(0), "{number} {way:?} {output:?}");
                assert!(ledger_tree(&ledger) == ledger_tree(&expected), "{number} {way:?}");
            } else {
                assert_eq!(output.code, Some(1), "{way:?} {output:?}");
                assert!(words.contains(HINT), "{output:?}");
                assert!(names(&ledger).iter().all(|name| !name.contains("snapshot")), "{:?}", names(&ledger));
            }
        }
    }
}

/// Archives by newer versions of Firedancer are candidates like others.
#[test]
fn archives_that_agave_loads_are_used() {
    let files = files(&[full(NEW), incremental(NEW)]);
    let expected = restore_files(&files);
    let server = serve(&files, Way::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(ledger_tree(&ledger) == ledger_tree(&expected.path().join("ledger")));
}

/// A pair that Agave refuses is passed over: Agave's incremental archive on Firedancer's full one,
/// whose vote accounts have no rent epochs, and 0 hashes per tick. The next pair is taken, or the
/// full archive alone.
#[test]
fn after_a_refused_pair_the_next_is_used() {
    let agaves = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(AGAVE_4_4, prefix));
    for (refused, next, why) in [
        ([full(NEW), agaves[1].clone()], agaves.clone(), "rent epoch"),
        (
            [full(NEW), incremental("firedancer-2026-09/full-bank-hashes-0")],
            [full(NEW), incremental(NEW)],
            "0 hashes per tick",
        ),
    ] {
        let refused = serve(&files(&refused), Way::Ranges);
        let server = serve(&files(&next), Way::Ranges);
        for (number, archives) in [&next[..], &[full(NEW)]].into_iter().enumerate() {
            let dir = temp_dir();
            let urls = [refused.url(""), server.url("")];
            let [ledger, expected] = ["ledger", "expected"].map(|name| dir.path().join(name));
            let restored = slotpress().arg("restore").args(archives).arg("--ledger").arg(&expected).assert();
            restored.success();
            let mut arguments = vec!["bootstrap", "--ledger", text(&ledger)];
            arguments.extend(urls.iter().take(2 - number).map(String::as_str));
            let output = run(&arguments);
            assert_eq!(output.code, Some(0), "{why}: {output:?}");
            let words = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(number == 0 || words.contains(why), "{output:?}");
            assert!(ledger_tree(&ledger) == ledger_tree(&expected), "{why}, {number}");
        }
    }
}
