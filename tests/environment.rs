//! What an operator exports, and the real program. Every command with every variable is tried in the unit tests of
//! `cli::environment`, where nothing is run.

use {
    crate::common::{FULL_26, INCREMENTAL_26_40, archive, fixture, ledger, slotpress, temp_dir},
    std::{ffi::OsStr, fs, path::Path},
};

/// What would make every command fail that took it where it does not apply.
const EXPORTED: [(&str, &str); 16] = [
    ("SLOTPRESS_ACCOUNTS", "/nowhere/a:/nowhere/b"),
    ("SLOTPRESS_BASE_SLOT", "7"),
    ("SLOTPRESS_CSV", "/nowhere/owners.csv"),
    ("SLOTPRESS_DATA_LIMIT", "1KiB"),
    ("SLOTPRESS_FRAMES_UNIT", "record"),
    ("SLOTPRESS_KEEP", "/nowhere/demo"),
    ("SLOTPRESS_LARGEST", "3"),
    ("SLOTPRESS_LAYOUT", "clustered"),
    ("SLOTPRESS_LEDGER", "/nowhere/ledger"),
    ("SLOTPRESS_MEMORY", "1GiB"),
    ("SLOTPRESS_OWNER", "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA"),
    ("SLOTPRESS_SCRATCH", "/nowhere/scratch"),
    ("SLOTPRESS_SLOT", "7"),
    ("SLOTPRESS_SNAPSHOTS", "/nowhere/snapshots"),
    ("SLOTPRESS_TEMPORARY_DIR", "/nowhere/temporary"),
    ("SLOTPRESS_UNIT", "nothing"),
];

/// Runs with all of these but some, which apply.
fn run<A: AsRef<OsStr>>(arguments: &[A], without: &[&str]) -> String {
    let variables = EXPORTED.iter().filter(|(name, _)| !without.iter().any(|one| name.ends_with(one)));
    let output = slotpress().args(arguments).envs(variables.copied()).output().expect("runs");
    let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn what_does_not_apply_is_ignored() {
    let (full, newer, ledger, dir) = (fixture(FULL_26), fixture(INCREMENTAL_26_40), ledger("ledger-at-26"), temp_dir());
    let out = |name: &str| dir.path().join(name);
    fs::create_dir(out("archives")).expect("created");
    let own = ["_ACCOUNTS", "_SNAPSHOTS", "_SLOT"];

    run(&["verify", text(&full)], &["_TEMPORARY_DIR"]);
    run(&["verify", text(&full), text(&newer)], &["_TEMPORARY_DIR"]);
    assert!(
        run(&["verify", text(ledger.path())], &[&own[..], &["_TEMPORARY_DIR"]].concat()).contains("capitalization")
    );
    run(&["inspect", text(&full)], &[]);
    run(&["inspect", text(&full), "--by-owner"], &["_CSV", "_TEMPORARY_DIR"]);
    run(&["inspect", text(&full), "--account", "SysvarC1ock11111111111111111111111111111111"], &[]);
    run(&["inspect", text(ledger.path())], &own);
    run(&["recompress", text(&full), "-o", text(&out("archives"))], &["_MEMORY"]);
    run(&["archive", text(ledger.path()), "-o", text(&out("archives")), "--force"], &own);
    run(&["restore", text(&full), text(&newer), "--ledger", text(&out("a"))], &own);
    assert!(out("a/snapshots/40/fastboot_version").exists());
    run(&["restore", text(&full), "--ledger", text(&out("b")), "--tree", "archive"], &[]);
    assert!(out("b/version").exists());
    run(&["levels", text(&full), "--levels", "1", "--repeat", "1", "--min-time", "0"], &["_CSV"]);
    run(&["synth", text(&out("synth")), "--size", "1MiB"], &[]);
    assert!(run(&["completions", "bash"], &[]).contains("slotpress"));
}

#[test]
fn several_accounts_paths_in_one_variable() {
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
    let flags = ["--accounts", text(&path("a")).to_string().leak(), "--accounts", text(&path("b")).to_string().leak()];
    let with_flags = fs::read(archive(&path("ledger"), &out, &flags)).expect("read");
    let mut again = slotpress();
    again.arg("archive").arg(path("ledger")).arg("-o").arg(&out).arg("--force").env("SLOTPRESS_ACCOUNTS", &paths);
    again.assert().success();
    assert!(fs::read(out.join(FULL_26)).expect("read") == with_flags);
}

#[test]
fn errors_name_the_variable() {
    let (full, ledger, dir) = (fixture(FULL_26), ledger("ledger-at-26"), temp_dir());
    let fails = |arguments: &[&str], variable: (&str, &str), code: i32, parts: &[&str]| {
        let output = slotpress().args(arguments).envs([variable]).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    };
    let archive = ["archive", text(ledger.path()), "-o", text(dir.path())];
    let named = "it is the value of SLOTPRESS_LAYOUT in the environment";
    fails(&archive, ("SLOTPRESS_LAYOUT", "boot"), 2, &["'boot' for '--layout <LAYOUT>'", named]);
    let named = "hint: --frame-size takes 64KiB to 32MiB; the environment has SLOTPRESS_FRAME_SIZE=1";
    fails(&archive, ("SLOTPRESS_FRAME_SIZE", "1"), 2, &[named]);
    let named = "the environment has SLOTPRESS_ACCOUNTS=/nowhere/a";
    fails(&archive, ("SLOTPRESS_ACCOUNTS", "/nowhere/a"), 1, &["/nowhere/a/run is not a directory", named]);
    // On the command line, it is said that it does not apply.
    fails(&["verify", text(&full), "--slot", "26"], ("SLOTPRESS_SLOT", "27"), 2, &["this is an archive"]);
    fails(&["inspect", text(&full), "--accounts", "/a"], ("SLOTPRESS_SLOT", "27"), 2, &["not for an archive"]);
    fails(&["inspect", text(&full), "--csv", "x"], ("SLOTPRESS_SLOT", "27"), 2, &["--csv goes with --by-owner"]);
    fails(
        &["levels", text(&full), "--scratch", "/x"],
        ("SLOTPRESS_SLOT", "2"),
        2,
        &["--scratch goes with --end-to-end"],
    );
    let output = dir.path();
    fails(
        &["recompress", text(&full), "-o", text(output), "--base-slot", "2"],
        ("SLOTPRESS_X", "2"),
        2,
        &["--base-slot is"],
    );
}
