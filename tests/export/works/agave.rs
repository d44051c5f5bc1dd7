//! Rows equal the accounts in Agave's own bank after it has loaded the same archives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use crate::export::{export_rows, fixture_pair, stderr_of};

/// Returns the accounts of Agave's bank. The program that `AGAVE_DUMP` names understands
/// `load --full A [--incremental B] --genesis DIR`, and then writes a row for each account with lamports to the
/// file that `DUMP` names. It also understands `gen`, which makes chains.
fn rows_by_agave(archives: &[&Path], genesis: &Path) -> Vec<String> {
    let dir = temp_dir();
    let dump = dir.path().join("rows");
    let program = std::env::var_os("AGAVE_DUMP").expect("AGAVE_DUMP names the program");
    let mut command = Command::new(program);
    command.arg("load").arg("--full").arg(archives[0]).arg("--genesis").arg(genesis).env("DUMP", &dump);
    if let Some(incremental) = archives.get(1) {
        command.arg("--incremental").arg(incremental);
    }
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{}", stderr_of(&output));
    let mut rows: Vec<String> = fs::read_to_string(dump).expect("read").lines().map(String::from).collect();
    rows.sort();
    rows
}

/// Checks that both programs find the same rows. Returns their number.
fn assert_same_rows(archives: &[&Path], genesis: &Path) -> usize {
    let found = export_rows(archives, &["--data", "full"]);
    let expected = rows_by_agave(archives, genesis);
    assert_eq!(found.len(), expected.len(), "{archives:?}");
    let difference = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert!(difference.is_none(), "{archives:?}: {difference:?}");
    found.len()
}

#[test]
#[ignore = "asks Agave itself: AGAVE_DUMP names a program built on its crates"]
fn rows_equal_the_accounts_of_agaves_bank() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let genesis = fixture("genesis.bin");
    let genesis = genesis.parent().expect("a directory");
    assert_same_rows(&[&full], genesis);
    assert_same_rows(&[&full, &incremental], genesis);
    for (seed, flags) in [
        (1, "--accounts 3000 --slots 60 --close-permille 100"),
        (2, "--accounts 2000 --slots 120 --hot --close-permille 200"),
        (3, "--accounts 30000 --slots 240 --hot --update-pct 20"),
    ] {
        let dir = temp_dir();
        let chain = dir.path().join("chain");
        let mut command = Command::new(std::env::var_os("AGAVE_DUMP").expect("AGAVE_DUMP names the program"));
        command.arg("gen").arg(&chain).args(flags.split(' ')).args(["--seed", &seed.to_string()]);
        assert!(command.output().expect("runs").status.success(), "{flags}");
        let archive_path = |prefix: &str| -> PathBuf {
            let archives = relative_paths(&chain.join("archives"));
            let name = archives.iter().find(|name| name.starts_with(prefix)).expect("an archive");
            chain.join("archives").join(name)
        };
        let full = archive_path("snapshot-");
        let incremental = archive_path("incremental-");
        let count = assert_same_rows(&[&full], &chain);
        assert!(count > 1000, "{count}");
        assert_same_rows(&[&full, &incremental], &chain);
        // The last state, archived by slotpress.
        let whole = archive(&chain, dir.path(), &["--layout=clustered"]);
        assert_same_rows(&[&whole], &chain);
    }
}
