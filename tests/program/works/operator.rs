//! Output of commands, as an operator reads it.

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

fn last_line(stdout: &str) -> &str {
    stdout.lines().last().unwrap_or_default()
}

#[test]
fn the_last_line_is_the_verdict() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let out = text(dir.path());
    let full = fixture(FULL_26);
    let (code, stdout, _) = run_to_text(&["verify", text(&full)]);
    assert_eq!(
        (code, last_line(&stdout)),
        (0, "GOOD: all checks passed; the state hash shows that no storage is missing")
    );
    let (code, stdout, stderr) = run_to_text(&["archive", text(ledger.path()), "-o", out, "--verify"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let verdict = stdout[stdout.find("GOOD: ").expect("a verdict")..].replace('\n', " ");
    assert!(verdict.starts_with("GOOD: read back: 27 storages, "), "{stdout}");
    assert!(verdict.contains("records, state"), "{stdout}");
}

/// The pair's storages are longer than the newer bank file says. Agave writes such pairs, so this is not worth a
/// warning.
#[test]
fn a_good_pair_is_restored_without_a_warning() {
    let dir = temp_dir();
    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(fixture);
    let target = dir.path().join("ledger");
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    let arguments = ["restore", text(&full), text(&incremental), "--ledger", text(&target), "--expect-hash", hash];
    let (code, _, stderr) = run_to_text(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""));
}

/// Sums of lamports may exceed 2^53, and many parsers of JSON would round such numbers.
#[test]
fn lamports_are_text_in_json() {
    let full = fixture(FULL_26);
    for command in ["inspect", "verify"] {
        let (_, stdout, _) = run_to_text(&[command, text(&full), "--json"]);
        let line: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(line["capitalization_lamports"], "1101927935518954");
    }
}

#[test]
fn quiet_prints_only_paths() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let out = text(dir.path());
    let full = fixture(FULL_26);
    let target = dir.path().join("restored");
    let archived = dir.path().join(FULL_26);
    let bank = target.join("snapshots/26");
    for (arguments, path) in [
        (&["archive", text(ledger.path()), "-o", out, "--verify"][..], text(&archived)),
        (&["archive", text(ledger.path()), "-o", out, "--skip-existing"], text(&archived)),
        (&["recompress", text(&full), "-o", out, "--force"], text(&archived)),
        (&["verify", text(&full)], text(&full)),
        (&["restore", text(&full), "--ledger", text(&target)], text(&bank)),
    ] {
        let (code, stdout, stderr) = run_to_text(&[arguments, &["-q"]].concat());
        assert_eq!((code, stdout, stderr), (0, format!("{path}\n"), String::new()), "{arguments:?}");
    }
    let found = format!("{}\n", text(&archived));
    for (arguments, expected) in [
        (&["list", out][..], found.as_str()),
        (&["find", out], &found),
        (&["doctor", text(ledger.path())], ""),
        (&["levels", text(&full), "--levels", "1", "--min-time", "0"], ""),
        (&["levels", "sizes", text(&full), "--min-time", "0"], ""),
        (&["prune", out, "--keep-full", "0", "--keep-incremental", "0"], ""),
    ] {
        let (code, stdout, stderr) = run_to_text(&[arguments, &["-q"]].concat());
        assert_eq!((code, stdout.as_str()), (0, expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn verbose_prints_the_plan() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let restored = out.path().join("restored");
    let full = fixture(FULL_26);
    let target = text(out.path());
    for (command, plan) in [
        (
            vec!["archive", text(ledger.path()), "-o", target],
            "902 KiB of tar, storages: 27; obsolete records left out: ",
        ),
        (vec!["recompress", text(&full), "-o", target, "--force"], "to read; workers: "),
        (vec!["restore", text(&full), "--ledger", text(&restored)], "to copy into the snapshots directory; workers: "),
        (vec!["verify", text(&full)], "to read; workers: "),
    ] {
        let (code, stdout, stderr) = run_to_text(&[&command[..], &["-v"]].concat());
        assert_eq!(code, 0, "{stderr}");
        let line = |start: &str| stderr.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
        assert!(line("plan: ").contains(plan), "{stderr}");
        assert!(!stdout.contains("plan: "), "{stdout}");
    }
}

#[cfg(all(feature = "levels", feature = "net", feature = "serve", feature = "stores"))]
#[test]
fn the_long_version_names_every_feature() {
    let output = slotpress().arg("--version").output().expect("runs");
    let version = String::from_utf8(output.stdout).expect("text");
    assert!(version.contains("features  levels net serve stores synth"), "{version}");
    assert_eq!(version.lines().any(|line| line.contains(" export")), cfg!(feature = "export"), "{version}");
}
