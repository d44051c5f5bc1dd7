//! Candidates that are archives by Firedancer.

use std::fs;

use crate::common::firedancer::*;
use crate::common::site::{Files, Way, ledger_tree, restored, run, serve};
use crate::common::*;

fn files(archives: &[std::path::PathBuf]) -> Files {
    archives.iter().map(|path| (name(path), fs::read(path).expect("read"))).collect()
}

/// Candidates that only Firedancer loads are skipped with a warning: the next one is taken.
#[test]
fn what_agave_does_not_load_is_passed_over() {
    let (agaves, expected, (chain, ..)) = (files(&[fixture(FULL_26)]), temp_dir(), CHAINS[2]);
    let expected = expected.path().join("ledger");
    assert_eq!(run(&["restore", text(&fixture(FULL_26)), "--ledger", text(&expected)]).code, Some(0));
    for way in [Way::Ranges, Way::Whole] {
        // Candidates newer than Agave's; the same with an incremental archive on them; nothing
        // else.
        let only_newer = serve(&files(&[full(chain), incremental(chain)]), way);
        let mixed = serve(&files(&[fixture(FULL_26), incremental(CHAINS[0].0)]), way);
        let (theirs, dir) = (serve(&agaves, way), temp_dir());
        for (number, servers) in [vec![&only_newer, &theirs], vec![&mixed], vec![&only_newer]].iter().enumerate() {
            let ledger = dir.path().join(format!("ledger-{number}"));
            let urls: Vec<String> = servers.iter().map(|server| server.url("")).collect();
            let urls = urls.iter().map(String::as_str);
            let said =
                run(&["bootstrap"].into_iter().chain(urls).chain(["--ledger", text(&ledger)]).collect::<Vec<_>>());
            let words = said.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("only Firedancer loads it"), "{number} {way:?} {said:?}");
            if number < 2 {
                assert_eq!(said.code, Some(0), "{number} {way:?} {said:?}");
                assert!(ledger_tree(&ledger) == ledger_tree(&expected), "{number} {way:?}");
            } else {
                assert_eq!(said.code, Some(1), "{way:?} {said:?}");
                assert!(words.contains("recompress --for agave"), "{said:?}");
                assert!(names(&ledger).iter().all(|name| !name.contains("snapshot")), "{:?}", names(&ledger));
            }
        }
    }
}

/// Archives by newer versions of Firedancer are candidates like others.
#[test]
fn what_agave_loads_is_taken() {
    let chain = "firedancer-2026-09/full-bank";
    let files = files(&[full(chain), incremental(chain)]);
    let expected = restored(&files);
    let (server, dir) = (serve(&files, Way::Ranges), temp_dir());
    let ledger = dir.path().join("ledger");
    let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(ledger_tree(&ledger) == ledger_tree(&expected.path().join("ledger")));
}
