//! Tables of synthetic states of every mix equal those of a reader that shares no code with slotpress.

use crate::common::records::{PlainRecord, newest, records};
use crate::common::*;
use crate::export::export_rows;

#[test]
fn tables_of_every_mix_are_those_of_a_plain_reader() {
    for mix in ["mainnet", "tokens", "nfts", "programs", "empty", "random"] {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let mut synth = slotpress();
        synth.arg("synth").arg(&ledger).args(["--size", "3MiB", "--incremental", "1MiB", "--mix", mix]);
        synth.assert().success();
        let full = archive(&ledger.join("at-full"), dir.path(), &[]);
        let base_slot = name(&full).split('-').nth(1).expect("a slot").to_string();
        let incremental = archive(&ledger, dir.path(), &["--base-slot", &base_slot]);
        let archives = [full.as_path(), &incremental];
        let all: Vec<PlainRecord> = archives.iter().flat_map(|archive| records(archive)).collect();
        let alive = newest(&all).into_values().filter(|record| record.lamports > 0);
        let mut expected: Vec<String> = alive
            .map(|record| {
                let PlainRecord { owner, pubkey, lamports, slot, executable, data, .. } = record;
                format!("{owner},{pubkey},{lamports},{slot},{},{executable}", data.len())
            })
            .collect();
        expected.sort();
        assert!(export_rows(&archives, &["--memory", "160MiB"]) == expected, "{mix}");
        assert!(export_rows(&[&ledger], &["--threads", "3"]) == expected, "{mix}");
    }
}
