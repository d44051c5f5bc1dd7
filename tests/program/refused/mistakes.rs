//! Mistakes of an operator, and the hints that follow.

use std::fs;

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

#[test]
fn existing_archives_can_be_skipped() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let out = text(dir.path());
    let full = fixture(FULL_26);
    let path = archive(ledger.path(), dir.path(), &[]);
    let before = fs::metadata(&path).expect("metadata").modified().expect("a time");
    for command in [&["archive", text(ledger.path())][..], &["recompress", text(&full)]] {
        let arguments = |flags: &[&'static str]| [command, &["-o", out], flags].concat();
        assert_fails(&arguments(&[]), 5, &["already exists", "hint: --force replaces it, --skip-existing leaves it"]);
        let (code, stdout, stderr) = run_to_text(&arguments(&["--skip-existing"]));
        assert_eq!((code, stdout.lines().next(), stderr.as_str()), (0, path.to_str(), ""));
        assert!(stdout.contains("skipped    already exists"), "{stdout}");
        let (code, stdout, _) = run_to_text(&arguments(&["--skip-existing", "--json"]));
        let line: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!((code, &line["type"], line["path"].as_str()), (0, &"skipped".into(), path.to_str()));
    }
    assert_eq!(fs::metadata(&path).expect("metadata").modified().expect("a time"), before);
}

/// A build without `export` says how to get it.
#[cfg(not(feature = "export"))]
#[test]
fn export_is_explained_where_the_build_lacks_it() {
    let how = ["this build lacks `export`", "cargo install --locked slotpress --features export"];
    assert_fails(&["export", "/full.tar.zst", "-o", "/tables"], 2, &how);
    let stderr = assert_fails(&["export", "/full.tar.zst", "--json"], 2, &how);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let stderr = assert_fails(&["exporter", "/full.tar.zst"], 2, &[]);
    assert!(!stderr.contains("lacks"), "{stderr}");
}

#[test]
fn mistakes_are_explained_with_a_hint() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let ledger = text(ledger.path());
    let out = text(dir.path());
    let full = fixture(FULL_26);
    let file = dir.path().join("file.tar.zst");
    fs::write(&file, "").expect("written");
    let missing = dir.path().join("no.tar.zst");
    let bank = format!("{ledger}/snapshots/26");
    let inside = format!("pass the ledger directory: {ledger}");
    let target = format!("{out}/restored");
    for (arguments, code, texts) in [
        (
            &["archive", ledger, "-o", out, "--format", "lz4", "--zstd-level", "5"][..],
            2,
            &["--zstd-level", "hint: "][..],
        ),
        (&["archive", ledger, "-o", text(&file)], 1, &["is a file", "hint: pass a directory"]),
        (
            &["archive", ledger, "-o", text(&missing)],
            1,
            &["does not exist", "the archive is named after its slot and hash"],
        ),
        (&["archive", ledger, "-o", out, "--memory", "10XB"], 2, &["'10XB'", "sizes look like 8MiB"]),
        (&["verify", text(&full), "--expect-slot", "abc"], 2, &["'abc'", "a slot is a whole number"]),
        (&["restore", ledger, "--ledger", &target], 2, &["restore needs archives", "slotpress archive "]),
        (&["archive", &bank, "-o", out], 2, &["inside a ledger", &inside, "--slot 26"]),
        (&["verify", &bank], 2, &[&inside]),
        (&["inspect", &bank], 2, &[&inside]),
    ] {
        assert_fails(arguments, code, texts);
    }
}

#[test]
fn owner_implies_by_owner() {
    let full = fixture(FULL_26);
    let (code, stdout, stderr) = run_to_text(&["inspect", text(&full), "--owner", "11111111111111111111111111111111"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("11111111111111111111111111111111"), "{stdout}{stderr}");
}

/// With `--json`, wrong arguments are one JSON object too.
#[test]
fn usage_errors_are_json_too() {
    for arguments in [
        &["archive", "--json", "--no-such-flag"][..],
        &["archive", "--json"],
        &["--json"],
        &["--json", "no-such-command"],
        &["verify", "x", "--expect-slot", "abc", "--json"],
    ] {
        let stderr = assert_fails(arguments, 2, &[]);
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let line: Value = serde_json::from_str(&stderr).expect("JSON");
        assert_eq!((&line["type"], &line["exit_code"]), (&"error".into(), &2.into()));
        let message = line["message"].as_str().expect("a message");
        assert!(!message.is_empty(), "{stderr}");
        assert!(!message.starts_with("error"), "{stderr}");
        assert!(line["hint"].is_string(), "{stderr}");
    }
}

/// Names may contain any characters: output shows control characters escaped, so no terminal obeys them.
#[test]
fn control_characters_in_names_are_escaped() {
    const NAME: &str = "x\n\x1b]0;owned\x07\u{202e}";
    let dir = temp_dir();
    let path = dir.path().join(NAME);
    fs::create_dir(&path).expect("made");
    let archive = path.join(FULL_26);
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    let wrong = path.join("wrong.tar.zst");
    fs::write(&wrong, "wrong").expect("written");
    let ledger = path.join("ledger");
    let archive = text(&archive);
    let wrong = text(&wrong);
    let dir_text = text(&path);
    let commands: [&[&str]; 12] = [
        &["verify", archive],
        &["verify", wrong],
        &["inspect", archive],
        &["inspect", wrong],
        &["list", dir_text],
        &["restore", archive, "--ledger", text(&ledger)],
        &["archive", text(&ledger), "-o", dir_text, "--force"],
        &["recompress", archive, "-o", dir_text, "--force"],
        &["doctor", dir_text],
        &["restore", "missing", "--threads", NAME],
        &[NAME],
        &["verify", NAME],
    ];
    let mut named = 0;
    for arguments in commands {
        let (_, stdout, stderr) = run_to_text(arguments);
        let printed = stdout + &stderr;
        assert!(!printed.contains(|char: char| char != '\n' && char.is_control()), "{arguments:?}: {printed:?}");
        assert!(!printed.contains('\u{202e}'), "{arguments:?}: {printed:?}");
        assert!(!printed.contains("x\n"), "{arguments:?}: {printed:?}");
        let is_named = printed.contains("owned");
        assert!(!is_named || printed.contains("x\\n\\u{1b}]0;owned\\u{7}\\u{202e}"), "{arguments:?}: {printed:?}");
        named += usize::from(is_named);
    }
    assert!(named >= 8, "only {named} commands name the path");
}

/// A command that cannot use a URL or a host names the command, or the URL, to use instead.
#[cfg(feature = "net")]
#[test]
fn errors_about_urls_and_hosts_suggest_what_works() {
    let dir = temp_dir();
    let out = text(dir.path());
    let url = format!("http://user:secret@127.0.0.1:9/{FULL_26}");
    let bootstrap = format!("`slotpress bootstrap http://127.0.0.1:9/{FULL_26} --ledger {out}`");
    for (arguments, code, expected) in [
        (&["restore", &url, "--ledger", out][..], 2, bootstrap.as_str()),
        (&["restore", "127.0.0.1:9/x.tar.zst", "--ledger", out], 2, "bootstrap http://127.0.0.1:9/x.tar.zst"),
        (&["recompress", &url, "-o", out], 2, &format!("`slotpress fetch http://127.0.0.1:9/{FULL_26} -o DIR`")),
        (&["fetch", "localhost:9", "-o", out], 1, "write http://localhost:9/"),
        (&["find", "localhost:9"], 1, "write http://localhost:9/"),
        (&["bootstrap", "localhost:9", "--ledger", out], 1, "write http://localhost:9/"),
        (&["find", "--rpc", "localhost:9"], 2, "write http://localhost:9/"),
        (&["list", "localhost:9"], 2, "write http://localhost:9/"),
        (&["verify", "localhost:9/x.tar.zst"], 2, "write http://localhost:9/x.tar.zst"),
        (&["inspect", "localhost:9/x.tar.zst"], 2, "write http://localhost:9/x.tar.zst"),
    ] {
        let stderr = assert_fails(arguments, code, &["hint: ", expected]);
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}

/// A validator may delete an archive before a command opens it, so a missing archive has its own exit code.
#[test]
fn a_missing_archive_has_its_own_exit_code() {
    let dir = temp_dir();
    let out = text(dir.path());
    let gone = format!("/no/such/{FULL_26}");
    for arguments in [
        &["restore", &gone, "--ledger", out][..],
        &["recompress", &gone, "-o", out],
        &["recompress", text(&fixture(INCREMENTAL_26_40)), "--base", &gone, "-o", out],
        &["verify", &gone],
        &["inspect", &gone],
    ] {
        assert_fails(arguments, 6, &["cannot open", "no such file", "hint: validators delete old archives"]);
    }
    assert_eq!(relative_paths(dir.path()), [""; 0]);
}

/// A command without `--zstd-level` does not suggest it for `--level`.
#[test]
fn flags_are_not_guessed() {
    let stderr = assert_fails(&["verify", "/archive", "--level", "3"], 2, &["--level"]);
    assert!(!stderr.contains("--zstd-level"), "{stderr}");
}

/// Other tools call the flag `--level`.
#[test]
fn level_is_an_alias_of_zstd_level() {
    assert_fails(&["archive", "/ledger", "-o", "/", "--level", "x"], 2, &["'x' for '--zstd-level <N>'"]);
}

#[test]
fn the_error_about_a_port_alone_suggests_an_address() {
    assert_fails(&["serve", "/", "--listen", "8899"], 2, &["an address and a port are needed: 127.0.0.1:8899"]);
}
