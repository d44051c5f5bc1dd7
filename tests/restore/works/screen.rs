//! Output for the operator while a ledger is restored.

use crate::common::*;

/// The printed paths are absolute and quoted, so the lines that start a validator work in any directory.
#[test]
fn restore_ends_with_lines_to_paste() {
    let dir = temp_dir();
    let output = slotpress()
        .current_dir(dir.path())
        .arg("restore")
        .arg(fixture(FULL_26))
        .args(["--ledger", "led ger", "--accounts", "accounts"])
        .output()
        .expect("runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{stdout}");
    let dir = text(dir.path());
    assert!(stdout.contains(&format!("\n  [paths]\n  snapshots = \"{dir}/led ger\"\n")), "{stdout}");
    let agave = format!("  agave-validator --ledger '{dir}/led ger' --accounts {dir}/accounts --no-snapshot-fetch\n");
    assert!(stdout.ends_with(&agave), "{stdout}");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.lines().last().is_some_and(|last| last.starts_with("warning: nobody confirmed")), "{stderr}");
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    let mut known = slotpress();
    known.current_dir(dir).arg("restore").arg(fixture(FULL_26)).args(["--ledger", "known", "--expect-hash", hash]);
    let known = String::from_utf8(known.output().expect("runs").stderr).expect("text");
    assert!(!known.contains("nobody confirmed"), "{known}");
}
