//! Archives that Firedancer's own producer wrote: read as what they are, and made into what Agave loads.

use std::fs;
use std::path::PathBuf;

use crate::common::firedancer::*;
use crate::common::*;

/// A ledger of what Firedancer archived holds what Agave loads, beside it too.
#[test]
fn a_ledger_for_agave_is_restored() {
    for (chain, agave, _) in CHAINS {
        let dir = temp_dir();
        let agave_full = fixture_of(agave, "snapshot-");
        for (number, pair) in [[full(chain), incremental(chain)], [agave_full, incremental(chain)]].iter().enumerate() {
            let ledger = dir.path().join(format!("ledger-{number}"));
            fs::create_dir(&ledger).expect("made");
            fs::copy(genesis_of(agave), ledger.join("genesis.bin")).expect("copied");
            let (code, _, stderr) = run(command("restore").args(pair).arg("--ledger").arg(&ledger).arg("--verify"));
            assert_eq!(code, 0, "{chain}: {stderr}");
            assert_eq!(run(command("verify").arg(&ledger).args(["--for", "agave-4.2,agave-4.5"])).0, 0);
            let archives: Vec<PathBuf> = pair.iter().map(|archive| ledger.join(name(archive))).collect();
            assert_eq!(verify(&[&archives[0], &archives[1]], &["--for", "agave"]).0, 0, "{chain}");
            assert!(names(&ledger).iter().all(|name| !name.starts_with("tmp-")), "{:?}", names(&ledger));
        }
        // In the place of what Agave loads: it is not replaced.
        let ledger = dir.path().join("in-place");
        fs::create_dir(&ledger).expect("made");
        let in_place = ledger.join(name(&full(chain)));
        fs::copy(full(chain), &in_place).expect("copied");
        let (code, _, stderr) = run(command("restore").arg(&in_place).arg("--ledger").arg(&ledger));
        assert!(code == 1 && stderr.contains("move it to another directory"), "{code}: {stderr}");
        assert!(fs::read(&in_place).expect("read") == fs::read(full(chain)).expect("read"));
    }
}
