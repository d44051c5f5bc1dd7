//! Archives of Firedancer are restored like others if Agave loads them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::firedancer::*;
use crate::common::oracle::Oracle;
use crate::common::*;
use crate::rebase::{rebase, two_full_archives};

/// Agave loads archives by newer versions of Firedancer.
#[test]
fn a_pair_that_agave_loads_is_restored_as_it_is() {
    let dir = temp_dir();
    let chain = NEW_CHAIN;
    for (number, pair) in [vec![full(chain)], vec![full(chain), incremental(chain)]].iter().enumerate() {
        let ledger = empty_ledger_of(AGAVE_4_4, dir.path(), &format!("ledger-{number}"));
        let (code, report, stderr) =
            run_command_to_first_line(command("restore").args(pair).arg("--ledger").arg(&ledger));
        assert_eq!((code, &report["state"]), (0, &"checked".into()), "{stderr}");
        assert_eq!(
            run_command_to_first_line(command("verify").arg(&ledger).args(["--for", "agave-4.2,agave-4.5"])).0,
            0
        );
        for archive in pair {
            assert!(fs::read(ledger.join(name(archive))).expect("read") == fs::read(archive).expect("read"));
        }
    }
}

/// The full archive has no stakes, and a slot for each storage. Agave reads the bank from the incremental
/// archive on it. Rent epochs must agree.
#[test]
fn a_full_archive_without_stakes_needs_a_newer_one_with_stakes() {
    let dir = temp_dir();
    let without_stakes = full(CHAIN_WITHOUT_STAKES);
    let [agave_full, new] = two_full_archives(AGAVE_4_4, dir.path());
    let genesis = agave_full.parent().expect("a directory");
    // `rebase` writes all vote accounts; newer versions of Firedancer write their rent epochs as 0.
    for incremental in [rebase(&[&new], &without_stakes, dir.path(), &[]), incremental(NEW_CHAIN)] {
        let (code, report, stderr) = verify(&[&without_stakes, &incremental], &["--for", "agave,firedancer"]);
        assert_eq!(code, 0, "{}: {report} {stderr}", incremental.display());
        let piped = fs::File::open(&without_stakes).expect("opened");
        for (name, source) in [("files", without_stakes.as_path()), ("pipe", Path::new("-"))] {
            let parent = tempfile::tempdir_in(dir.path()).expect("a directory");
            let ledger = empty_ledger_of(AGAVE_4_4, parent.path(), name);
            let mut restore = command("restore");
            restore.arg(source).arg(&incremental).arg("--ledger").arg(&ledger);
            let output = restore.stdin(Stdio::from(piped.try_clone().expect("cloned"))).output().expect("runs");
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
        for oracle in Oracle::all() {
            assert_eq!(oracle.load(&without_stakes, Some(&incremental), genesis), oracle.load(&new, None, genesis));
        }
    }
    // Agave's own incremental archive holds only vote accounts that changed.
    let agave_incremental = fixture_of(AGAVE_4_4, "incremental-");
    let (code, report, stderr) = verify(&[&without_stakes, &agave_incremental], &[]);
    assert_eq!(code, 0, "{report} {stderr}");
    assert!(loads(&report, "firedancer"), "{report} {stderr}");
    assert!(!loads(&report, "agave-4.2"), "{report} {stderr}");
    let (code, report, _) = verify(&[&without_stakes, &agave_incremental], &["--for", "agave"]);
    let rules = report["failures"].as_array().expect("failures").iter().map(|failure| failure["rule"].clone());
    assert_eq!(code, 3, "{report}");
    assert!(rules.into_iter().all(|rule| rule == "no-rent-epoch"), "{report}");
    let ledger = empty_ledger_of(AGAVE_4_4, dir.path(), "refused");
    let mut restore = command("restore");
    let (code, _, stderr) =
        run_command_to_first_line(restore.args([&without_stakes, &agave_incremental]).arg("--ledger").arg(&ledger));
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("use Agave's full archive, or Firedancer's incremental one"), "{stderr}");
    for oracle in Oracle::all() {
        assert!(oracle.try_load(&without_stakes, Some(&agave_incremental), genesis).is_err());
    }
}
