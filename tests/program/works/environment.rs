//! Environment variables that set flags of the program.

use std::ffi::OsStr;
use std::fs;

use crate::common::{FULL_26, INCREMENTAL_26_40, archive, fixture, ledger, slotpress, temp_dir, text};

/// Variables of several commands. The paths and the proxy do not exist, so a command that used them by mistake would
/// fail.
const VARIABLES: [(&str, &str); 7] = [
    ("SLOTPRESS_ACCOUNTS", "/nowhere/a:/nowhere/b"),
    ("SLOTPRESS_LEDGER", "/nowhere/ledger"),
    ("SLOTPRESS_MAX_RATE", ""),
    ("SLOTPRESS_MEMORY", "1GiB"),
    ("SLOTPRESS_PROXY", "http://127.0.0.1:1"),
    ("SLOTPRESS_SNAPSHOTS", "/nowhere/snapshots"),
    ("SLOTPRESS_THREADS", "2"),
];

/// Runs a command with `VARIABLES`, except those whose names end with one of `excluded_endings`. Returns its output.
fn run_with_variables<A: AsRef<OsStr>>(arguments: &[A], excluded_endings: &[&str]) -> String {
    let variables = VARIABLES.iter().filter(|(name, _)| !excluded_endings.iter().any(|ending| name.ends_with(ending)));
    let output = slotpress().args(arguments).envs(variables.copied()).output().expect("runs");
    let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn variables_that_do_not_apply_are_ignored() {
    let full = fixture(FULL_26);
    let newer = fixture(INCREMENTAL_26_40);
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let out = |name: &str| dir.path().join(name);
    fs::create_dir(out("archives")).expect("created");
    let ledger_variables = ["_ACCOUNTS", "_SNAPSHOTS"];

    run_with_variables(&["verify", text(&full)], &[]);
    run_with_variables(&["verify", text(&full), text(&newer)], &[]);
    assert!(run_with_variables(&["verify", text(ledger.path())], &ledger_variables).contains("capitalization"));
    run_with_variables(&["inspect", text(&full)], &[]);
    run_with_variables(&["inspect", text(&full), "--by-owner"], &[]);
    run_with_variables(&["inspect", text(&full), "--account", "SysvarC1ock11111111111111111111111111111111"], &[]);
    run_with_variables(&["inspect", text(ledger.path())], &ledger_variables);
    run_with_variables(&["recompress", text(&full), "-o", text(&out("archives"))], &[]);
    run_with_variables(&["archive", text(ledger.path()), "-o", text(&out("archives")), "--force"], &ledger_variables);
    run_with_variables(&["restore", text(&full), text(&newer), "--ledger", text(&out("a"))], &ledger_variables);
    assert!(out("a/snapshots/40/fastboot_version").exists());
    run_with_variables(&["levels", text(&full), "--levels", "1", "--repeat", "1", "--min-time", "0"], &[]);
    run_with_variables(&["synth", text(&out("synth")), "--size", "1MiB"], &[]);
    assert!(run_with_variables(&["completions", "bash"], &[]).contains("slotpress"));
}

#[test]
fn one_variable_holds_several_accounts_paths() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name);
    let paths = std::env::join_paths([path("a"), path("b")]).expect("joined");
    let mut restore = slotpress();
    restore.arg("restore").arg(fixture(FULL_26)).arg("--ledger").arg(path("ledger")).env("SLOTPRESS_ACCOUNTS", &paths);
    restore.assert().success();
    for name in ["a/run", "b/run"] {
        assert!(fs::read_dir(path(name)).expect("read").count() > 0, "{name}");
    }
    let out = path("archives");
    fs::create_dir(&out).expect("created");
    let [first, second] = ["a", "b"].map(path);
    let flags = ["--accounts", text(&first), "--accounts", text(&second)];
    let with_flags = fs::read(archive(&path("ledger"), &out, &flags)).expect("read");
    let mut again = slotpress();
    again.arg("archive").arg(path("ledger")).arg("-o").arg(&out).arg("--force").env("SLOTPRESS_ACCOUNTS", &paths);
    again.assert().success();
    assert!(fs::read(out.join(FULL_26)).expect("read") == with_flags);
}

/// Runs `verify` on a good archive with a variable; returns its exit code and its standard error.
fn verify_with_variable(variable: &str, value: &str, flags: &[&str]) -> (Option<i32>, String) {
    let full = fixture(FULL_26);
    let output = slotpress().args(["verify", text(&full)]).args(flags).env(variable, value).output().expect("runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn errors_name_the_variable_of_a_value() {
    let (code, stderr) = verify_with_variable("SLOTPRESS_THREADS", "none", &[]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("'none' for '--threads <N>'"), "{stderr}");
    assert!(stderr.ends_with("hint: the value comes from SLOTPRESS_THREADS in the environment\n"), "{stderr}");
    let (code, stderr) = verify_with_variable("SLOTPRESS_THREADS", "none", &["--json"]);
    assert_eq!((code, stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("SLOTPRESS_THREADS"), "{stderr}");
}

/// `serve` has a flag of the same name as `publish`, with a different variable.
#[test]
fn errors_name_the_variable_of_the_running_command() {
    let publish = slotpress().args(["publish", "/a", "--to", "/b"]).env("SLOTPRESS_PUBLISH_GRACE", "soon").output();
    let stderr = String::from_utf8_lossy(&publish.expect("runs").stderr).into_owned();
    assert!(stderr.ends_with("hint: the value comes from SLOTPRESS_PUBLISH_GRACE in the environment\n"), "{stderr}");
}

#[test]
fn a_flag_overrides_its_variable() {
    assert_eq!(verify_with_variable("SLOTPRESS_THREADS", "0", &["--threads", "2"]), (Some(0), String::new()));
}

#[test]
fn a_variable_without_a_flag_is_a_warning() {
    let (code, stderr) = verify_with_variable("SLOTPRESS_LEVEL", "9", &[]);
    assert_eq!(code, Some(0), "{stderr}");
    let warning = "ignoring SLOTPRESS_LEVEL: no flag reads this variable";
    assert!(stderr.contains(warning), "{stderr}");
}
