//! Output for the operator while a ledger is restored.

use crate::common::*;

/// The printed lines that start a validator work in any directory.
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
    let agave = format!("  agave-validator --ledger '{dir}/led ger' --accounts {dir}/accounts --no-snapshot-fetch\n");
    assert!(stdout.contains(&agave), "{stdout}");
    assert!(stdout.ends_with(&format!("  [paths]\n  snapshots = \"{dir}/led ger\"\n")), "{stdout}");
}
