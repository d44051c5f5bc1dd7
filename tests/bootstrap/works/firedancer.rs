//! Archives of Firedancer's, converted while they arrive.

use std::fs;

use crate::common::firedancer::{as_firedancer_writes, files_without_archives, full, incremental, verify};
use crate::common::site::{Files, Way, ledger_tree, restored, run, serve};
use crate::common::*;

/// A ledger of both writers' pairs is what a restore makes of them; also where Agave's incremental archive, which is chosen when
/// the full one has been read, tells the rent epochs.
#[test]
fn pairs_of_both_writers() {
    let sources = temp_dir();
    let chain = "firedancer-2026-08/chain";
    let [agave_full, agave_newer] = [fixture(FULL_26), fixture(INCREMENTAL_26_40)];
    let written = as_firedancer_writes(&agave_full, 2, 0, sources.path());
    for pair in [[full(chain), incremental(chain)], [agave_full, incremental(chain)], [written, agave_newer]] {
        let files: Files = pair.iter().map(|path| (name(path), fs::read(path).expect("read"))).collect();
        let expected = restored(&files);
        let expected = expected.path().join("ledger");
        for way in [Way::Ranges, Way::Whole] {
            let (server, dir) = (serve(&files, way), temp_dir());
            let ledger = dir.path().join("ledger");
            let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
            assert_eq!(said.code, Some(0), "{way:?} {said:?}");
            assert!(ledger_tree(&ledger) == ledger_tree(&expected), "{way:?} {pair:?}");
            assert!(!files_without_archives(&ledger).keys().any(|path| path.contains("partial")), "{way:?}");
            let beside = pair.each_ref().map(|path| ledger.join(name(path)));
            assert_eq!(verify(&[&beside[0], &beside[1]], &["--for", "agave"]).0, 0, "{pair:?}");
        }
    }
}
