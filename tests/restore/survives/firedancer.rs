//! A restore of what Firedancer wrote that ends before its time, at any stage.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Instant;

use crate::common::firedancer::*;
use crate::common::*;

const CHAIN: (&str, &str) = ("firedancer-2026-08/chain", "agave-4.2.2");

fn restore(ledger: &Path) -> std::process::Command {
    let mut restore = command("restore");
    restore.args([full(CHAIN.0), incremental(CHAIN.0)]).arg("--ledger").arg(ledger);
    restore
}

fn left(ledger: &Path) -> Vec<String> {
    let is_left = |(path, content): (String, Option<Vec<u8>>)| {
        (content.is_some() && !path.ends_with(".lock") && path != "genesis.bin").then_some(path)
    };
    tree(ledger).into_iter().filter_map(is_left).collect()
}

#[test]
fn a_panic_at_each_stage_leaves_nothing() {
    for place in [
        "unpacking",
        "sorting",
        "converting",
        "converting:2",
        "making the archive",
        "making the archive:2",
        "source",
        "placing",
    ] {
        let dir = temp_dir();
        let ledger = empty_ledger_of(CHAIN.1, dir.path(), "ledger");
        let (code, _, stderr) = run(restore(&ledger).env("FAULTS_PANIC_AT", place));
        assert!(code != 0 && stderr.contains("injected"), "{place}: {code} {stderr}");
        assert_eq!(left(&ledger), [""; 0], "{place}");
        assert_eq!(run(&mut restore(&ledger)).0, 0, "{place}");
    }
}

/// Killed at any moment, it leaves no archive and no ledger that a validator would take; the next run makes both.
#[test]
fn killed_it_leaves_nothing_that_loads() {
    let dir = temp_dir();
    let whole = empty_ledger_of(CHAIN.1, dir.path(), "whole");
    let started = Instant::now();
    assert_eq!(run(&mut restore(&whole)).0, 0);
    let (took, expected) = (started.elapsed(), tree(&whole).into_iter().filter(|(path, _)| !path.ends_with(".lock")));
    let expected: Vec<_> = expected.collect();
    let mut killed = 0;
    for number in 0..24u32 {
        let ledger = empty_ledger_of(CHAIN.1, dir.path(), &format!("ledger-{number}"));
        let mut child = restore(&ledger).stderr(std::process::Stdio::null()).spawn().expect("starts");
        sleep(took * number / 24);
        child.kill().expect("killed");
        let is_done = child.wait().expect("ends").success();
        killed += u32::from(!is_done);
        let is_marked = ledger.join("snapshots/40/fastboot_version").exists();
        assert!(is_marked || !is_done, "{number}");
        if !is_marked {
            assert_eq!(run(&mut restore(&ledger)).0, 0, "{number}: {:?}", left(&ledger));
        }
        let found: Vec<_> = tree(&ledger).into_iter().filter(|(path, _)| !path.ends_with(".lock")).collect();
        let paths = |files: &[(String, Option<Vec<u8>>)]| files.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
        let found: Vec<_> = found.into_iter().filter(|it| is_marked || !it.0.contains("slotpress-partial")).collect();
        assert_eq!(paths(&found), paths(&expected), "{number}");
        assert!(found == expected, "{number}");
        fs::remove_dir_all(&ledger).expect("removed");
    }
    assert!(killed > 0, "{took:?}");
}
