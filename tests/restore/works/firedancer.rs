//! Archives by Firedancer are restored like others if Agave loads them.

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

/// A full archive without stakes, with a slot for each storage, below an incremental one: Agave
/// takes the bank from that. Rent epochs must agree.
#[test]
fn a_full_archive_without_stakes_needs_a_newer_one_with_stakes() {
    let dir = temp_dir();
    let names = full(CHAIN_WITHOUT_STAKES);
    let [agave_full, new] = two_full_archives(AGAVE_4_4, dir.path());
    let genesis = agave_full.parent().expect("a directory");
    // `rebase` writes all vote accounts; newer versions of Firedancer write their rent epochs as 0.
    for newer in [rebase(&[&new], &names, dir.path(), &[]), incremental(NEW_CHAIN)] {
        let (code, report, stderr) = verify(&[&names, &newer], &["--for", "agave,firedancer"]);
        assert_eq!(code, 0, "{}: {report} {stderr}", newer.display());
        let piped = fs::File::open(&names).expect("opened");
        for (name, first) in [("files", names.as_path()), ("pipe", Path::new("-"))] {
            let into = tempfile::tempdir_in(dir.path()).expect("a directory");
            let ledger = empty_ledger_of(AGAVE_4_4, into.path(), name);
            let mut restore = command("restore");
            restore.arg(first).arg(&newer).arg("--ledger").arg(&ledger);
            let output = restore.stdin(Stdio::from(piped.try_clone().expect("cloned"))).output().expect("runs");
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
        for oracle in Oracle::all() {
            assert_eq!(oracle.load(&names, Some(&newer), genesis), oracle.load(&new, None, genesis));
        }
    }
    // Agave's own incremental archive holds only vote accounts that changed.
    let newer = fixture_of(AGAVE_4_4, "incremental-");
    let (code, report, stderr) = verify(&[&names, &newer], &[]);
    assert_eq!(code, 0, "{report} {stderr}");
    assert!(loads(&report, "firedancer"), "{report} {stderr}");
    assert!(!loads(&report, "agave-4.2"), "{report} {stderr}");
    let (code, report, _) = verify(&[&names, &newer], &["--for", "agave"]);
    let rules = report["failures"].as_array().expect("failures").iter().map(|failure| failure["rule"].clone());
    assert_eq!(code, 3, "{report}");
    assert!(rules.into_iter().all(|rule| rule == "no-rent-epoch"), "{report}");
    let ledger = empty_ledger_of(AGAVE_4_4, dir.path(), "refused");
    let (code, _, stderr) =
        run_command_to_first_line(command("restore").args([&names, &newer]).arg("--ledger").arg(&ledger));
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("take Agave's full archive, or Firedancer's incremental one"), "{stderr}");
    for oracle in Oracle::all() {
        assert!(oracle.try_load(&names, Some(&newer), genesis).is_err());
    }
}
