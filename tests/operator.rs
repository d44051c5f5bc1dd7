//! What an operator meets on the screen: verdicts, mistakes, and what to do next.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::*;

/// Runs the program: the exit code, stdout, stderr.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = slotpress().args(arguments).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
}

fn fails(arguments: &[&str], code: i32, texts: &[&str]) -> String {
    let (found, stdout, stderr) = run(arguments);
    assert_eq!(found, code, "{arguments:?}: {stdout}{stderr}");
    for text in texts {
        assert!(stderr.contains(text), "{arguments:?}: {text:?} is not in: {stderr}");
    }
    stderr
}

fn last_line(stdout: &str) -> &str {
    stdout.lines().last().unwrap_or_default()
}

/// The pair, under its names and under others.
fn pairs(dir: &Path) -> [(String, String); 2] {
    let renamed = (dir.join("full.tar.zst"), dir.join("incremental.tar.zst"));
    fs::copy(fixture(FULL_26), &renamed.0).expect("copied");
    fs::copy(fixture(INCREMENTAL_26_40), &renamed.1).expect("copied");
    let named = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
    [named, renamed].map(|(full, incremental)| (text(&full).to_string(), text(&incremental).to_string()))
}

#[test]
fn swapped_archives_are_recognised() {
    let dir = temp_dir();
    let [named, renamed] = pairs(dir.path());
    let target = dir.path().join("ledger");
    for (full, incremental) in [&named, &renamed] {
        let said = fails(
            &["verify", incremental, full],
            2,
            &["the two archives are swapped", "hint: give the full archive first"],
        );
        assert_eq!(said.lines().count(), 2, "{said}");
        let said =
            fails(&["restore", incremental, full, "--ledger", text(&target)], 2, &["the two archives are swapped"]);
        assert!(said.contains(&format!("{incremental} is the incremental one")), "{said}");
        assert!(!target.join("snapshots").exists());
    }
}

#[test]
fn two_full_archives_are_no_pair() {
    let full = fixture(FULL_26);
    let hint = "hint: verify each on its own";
    fails(&["verify", text(&full), text(&full)], 2, &["both archives are full ones", hint]);
}

/// Many failures that are alike take a few lines, unless all are asked for.
#[test]
fn failures_that_are_alike_stand_together() {
    let ledger = ledger("ledger-at-40");
    let run_dir = ledger.path().join("accounts/run");
    for name in names(&run_dir).iter().take(10) {
        fs::remove_file(run_dir.join(name)).expect("removed");
    }
    let (code, grouped, _) = run(&["verify", text(ledger.path())]);
    assert_eq!(code, 3);
    assert_eq!(grouped.matches("failure: entries: a storage is missing").count(), 1, "{grouped}");
    let (_, all, _) = run(&["verify", "--all", text(ledger.path())]);
    // One of the ten is no part of the state.
    let count = all.matches("failure: entries: a storage is missing").count();
    assert!((5..=10).contains(&count), "{all}");
    assert!(grouped.contains(&format!("  {count} storages: accounts/")), "{grouped}");
    assert!(grouped.contains("--all lists them") && !all.contains("--all lists them"), "{grouped}");
}

/// `inspect` and `verify` agree on an archive whose name is not its own.
#[test]
fn a_renamed_archive_has_one_verdict() {
    let dir = temp_dir();
    for name in ["renamed.tar.zst".to_string(), FULL_26.replace("-26-", "-27-")] {
        let path = dir.path().join(name);
        fs::copy(fixture(FULL_26), &path).expect("copied");
        let (_, inspected, _) = run(&["inspect", text(&path)]);
        let (code, verified, _) = run(&["verify", text(&path)]);
        assert_eq!(code, 3);
        for client in ["Agave 4.2 to 4.5: ", "Firedancer: "] {
            assert!(inspected.contains(&format!("{client}NO: ")), "{inspected}");
        }
        assert_eq!(verified.matches("refuses it: ").count(), 2, "{verified}");
    }
}

#[test]
fn the_last_line_is_the_verdict() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let out = text(dir.path());
    let (full, incremental) = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
    let (code, stdout, _) = run(&["verify", text(&full)]);
    assert_eq!((code, last_line(&stdout)), (0, "GOOD: all checks passed; complete by state"));
    let (code, stdout, stderr) = run(&["archive", text(ledger.path()), "-o", out, "--verify"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let verdict = stdout[stdout.find("GOOD: ").expect("a verdict")..].replace('\n', " ");
    assert!(verdict.starts_with("GOOD: read back: 27 storages, ") && verdict.contains("records, state"), "{stdout}");
    // A healthy pair restores without a warning, though its storages are longer than the newer bank file says.
    let target = dir.path().join("ledger");
    let arguments = ["restore", text(&full), text(&incremental), "--ledger", text(&target), "--verify"];
    let (code, stdout, stderr) = run(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "no warning");
    assert!(stdout.contains("GOOD: read back: "), "{stdout}");
    // Of an incremental archive alone, the state is not known.
    let tree = dir.path().join("tree");
    let arguments = ["restore", text(&incremental), "--ledger", text(&tree), "--tree", "archive", "--verify"];
    let (code, stdout, _) = run(&[&arguments[..], &["--check", "frames"]].concat());
    let said = stdout.replace('\n', " ");
    assert!(code == 0 && said.contains("no failure was found") && said.contains("not checked: state ("), "{stdout}");
}

#[test]
fn what_exists_already_is_no_failure_where_it_may_be_skipped() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let (out, full) = (text(dir.path()), fixture(FULL_26));
    let path = archive(ledger.path(), dir.path(), &[]);
    let before = fs::metadata(&path).expect("metadata").modified().expect("a time");
    for command in [&["archive", text(ledger.path())][..], &["recompress", text(&full)]] {
        let arguments = |flags: &[&'static str]| [command, &["-o", out], flags].concat();
        fails(&arguments(&[]), 5, &["exists already", "hint: --force replaces it, --skip-existing leaves it"]);
        let (code, stdout, stderr) = run(&arguments(&["--skip-existing"]));
        assert_eq!((code, stdout.lines().next(), stderr.as_str()), (0, path.to_str(), ""));
        assert!(stdout.contains("skipped: it exists already"), "{stdout}");
        let (code, stdout, _) = run(&arguments(&["--skip-existing", "--json"]));
        let line: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!((code, &line["type"], line["path"].as_str()), (0, &"skipped".into(), path.to_str()));
    }
    assert_eq!(fs::metadata(&path).expect("metadata").modified().expect("a time"), before);
}

#[test]
fn mistakes_are_explained() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let (ledger, out, full) = (text(ledger.path()), text(dir.path()), fixture(FULL_26));
    let file = dir.path().join("file.tar.zst");
    fs::write(&file, "").expect("written");
    let missing = dir.path().join("no.tar.zst");
    let bank = format!("{ledger}/snapshots/26");
    let inside = format!("give the ledger directory: {ledger}");
    let target = format!("{out}/restored");
    for (arguments, code, texts) in [
        (
            &["archive", ledger, "-o", out, "--format", "lz4", "--zstd-level", "5"][..],
            2,
            &["--zstd-level", "hint: "][..],
        ),
        (&["archive", ledger, "-o", text(&file)], 1, &["is a file", "hint: give a directory"]),
        (
            &["archive", ledger, "-o", text(&missing)],
            1,
            &["does not exist", "the archive's name follows from slot and hash"],
        ),
        (&["archive", ledger, "-o", out, "--memory", "10XB"], 2, &["'10XB'", "sizes look like 8MiB"]),
        (&["verify", text(&full), "--expect-slot", "abc"], 2, &["'abc'", "a slot is a whole number"]),
        (&["restore", ledger, "--ledger", &target], 2, &["restore takes archives", "slotpress archive "]),
        (&["archive", &bank, "-o", out], 2, &["inside a ledger", &inside, "--slot 26"]),
        (&["verify", &bank], 2, &[&inside]),
        (&["inspect", &bank], 2, &[&inside]),
    ] {
        fails(arguments, code, texts);
    }
    // Whoever names an owner wants its accounts.
    let (code, stdout, stderr) = run(&["inspect", text(&full), "--owner", "11111111111111111111111111111111"]);
    assert!(code == 0 && stdout.contains("11111111111111111111111111111111"), "{stdout}{stderr}");
}

/// Wrong arguments are one JSON object too, where JSON is asked for.
#[test]
fn json_of_wrong_arguments() {
    for arguments in [
        &["archive", "--json", "--no-such-flag"][..],
        &["archive", "--json"],
        &["--json"],
        &["--json", "no-such-command"],
        &["verify", "x", "--expect-slot", "abc", "--progress", "json"],
    ] {
        let said = fails(arguments, 2, &[]);
        assert_eq!(said.lines().count(), 1, "{said}");
        let line: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!((&line["type"], &line["exit_code"]), (&"error".into(), &2.into()));
        let message = line["message"].as_str().expect("a message");
        assert!(!message.is_empty() && !message.starts_with("error"), "{said}");
        assert!(line["hint"].is_string(), "{said}");
    }
}

/// Lamports beyond 2^53 keep their last digit as text.
#[test]
fn lamports_as_text() {
    let full = fixture(FULL_26);
    for (arguments, name) in [
        (["inspect", text(&full), "--json"], "capitalization_lamports"),
        (["verify", text(&full), "--json"], "capitalization"),
    ] {
        let (_, stdout, _) = run(&arguments);
        let line: Value = serde_json::from_str(&stdout).expect("JSON");
        let number = line[name].as_u64().expect("a number");
        assert_eq!(line[format!("{name}_text")], number.to_string());
    }
}

#[test]
fn quiet_prints_the_path_and_nothing_else() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let (out, full) = (text(dir.path()), fixture(FULL_26));
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
        let (code, stdout, stderr) = run(&[arguments, &["-q"]].concat());
        assert_eq!((code, stdout, stderr), (0, format!("{path}\n"), String::new()), "{arguments:?}");
    }
    let found = format!("{}\n", text(&archived));
    for (arguments, expected) in [
        (&["list", out][..], found.as_str()),
        (&["find", "--source", out], &found),
        (&["doctor", text(ledger.path())], ""),
        (&["levels", text(&full), "--levels", "1", "--min-time", "0"], ""),
        (&["levels", "sizes", text(&full), "--min-time", "0"], ""),
        (&["prune", out, "--keep-full", "0", "--keep-incremental", "0"], ""),
    ] {
        let (code, stdout, stderr) = run(&[arguments, &["-q"]].concat());
        assert_eq!((code, stdout.as_str()), (0, expected), "{arguments:?}: {stderr}");
    }
}

/// The lines that start a validator hold in any directory.
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

/// Ctrl-C is answered at once, also while the work cannot end yet.
#[test]
fn stopping_is_said_at_once() {
    let dir = temp_dir();
    let beginning = fs::read(fixture(FULL_3500)).expect("read");
    for is_json in [false, true] {
        let mut command = Command::new(slotpress_path());
        command.args(["recompress", "-", "-o", text(dir.path())]);
        if is_json {
            command.arg("--json");
        }
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&beginning[..20_000]).expect("written");
        wait_for("the reader", || rustix::io::ioctl_fionread(&stdin).expect("a pipe") == 0);
        wait_for_handler(&child, Signal::INT);
        kill_process(Pid::from_child(&child), Signal::INT).expect("sent");
        // Its input never ends, so it ends by itself or not at all.
        exit_code(&mut child);
        let output = child.wait_with_output().expect("ended");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(130), "{said}");
        let line = said.lines().next().expect("a line");
        match is_json {
            true => assert_eq!(line, r#"{"type":"status","message":"stopping: removing what was written"}"#),
            false => assert_eq!(line, "stopping: removing what was written"),
        }
        drop(stdin);
    }
    assert_eq!(names(dir.path()), Vec::<String>::new());
}

/// Room in a chosen --temporary-dir is looked at before anything is read: no minutes are lost, and nothing is written.
#[test]
fn a_temporary_directory_without_room_is_refused_at_once() {
    const HUGE_BYTES: u64 = 8 << 40;
    let dir = temp_dir();
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (archive, temporary) = (dir.path().join(FULL_26), on_disk.path());
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    // A hole behind the archive: what it would unpack to is foreseen by its length.
    fs::File::options().write(true).open(&archive).and_then(|file| file.set_len(HUGE_BYTES)).expect("grown");
    let arguments = ["verify", text(&archive), "--memory", "64MiB", "--temporary-dir"];
    fails(&[&arguments[..], &[text(temporary)]].concat(), 1, &["not enough space under ", "hint: "]);
    assert_eq!(names(temporary), Vec::<String>::new());
    // Nor does a directory in memory have any, whatever it says.
    let memory = Path::new("/dev/shm");
    if dir.path().starts_with(memory) {
        let expected =
            ["/dev/shm is in memory too", "hint: give more --memory, or a directory on a disk: --temporary-dir"];
        fails(&[&arguments[..], &[text(memory)]].concat(), 1, &expected);
    }
}

/// A dry run says what would be, and leaves nothing.
#[test]
fn a_dry_run_of_archive() {
    let (ledger, dir) = (ledger("ledger-at-26"), temp_dir());
    let arguments = ["archive", text(ledger.path()), "-o", text(dir.path()), "--dry-run"];
    let files = || names(ledger.path()).into_iter().filter(|name| name != "ledger.lock").collect::<Vec<_>>();
    let before = files();
    let (code, stdout, stderr) = run(&arguments);
    let path = dir.path().join(FULL_26);
    assert_eq!((code, stdout.lines().next(), stderr.as_str()), (0, path.to_str(), ""), "{stdout}");
    assert!(
        stdout.contains("  full, slot 26, 27 storages\n") && stdout.ends_with("Nothing was written.\n"),
        "{stdout}"
    );
    let (_, stdout, _) = run(&[&arguments[..], &["--json"]].concat());
    assert_eq!(names(dir.path()), Vec::<String>::new());
    assert_eq!(files(), before);
    let line: Value = serde_json::from_str(&stdout).expect("JSON");
    let estimated = line["estimated_bytes"].as_u64().expect("a number");
    let made = archive(ledger.path(), dir.path(), &[]);
    let length = fs::metadata(&made).expect("metadata").len();
    assert!(estimated.abs_diff(length) * 20 < length, "{estimated} estimated, {length} made");
    // What would be refused is refused.
    fails(&arguments, 5, &["exists already"]);
    fails(&[&arguments[..], &["--base-slot", "25"]].concat(), 1, &["there is no full archive of slot 25"]);
    fails(&["archive", text(ledger.path()), "-o", "-", "--dry-run"], 2, &["--dry-run"]);
}

/// What stops the work is an error; everything else is told, with what follows from it.
#[test]
fn the_doctor_looks_at_a_ledger() {
    let ledger = ledger("ledger-at-26");
    let (code, stdout, stderr) = run(&["doctor", text(ledger.path())]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for subject in
        ["lock", "bank", "owner", "space", "open files", "memory", "processors", "cachestat", "load", "disk", "cores"]
    {
        assert!(
            stdout.lines().any(|line| line.get(5..).is_some_and(|rest| rest.starts_with(subject))),
            "{subject}: {stdout}"
        );
    }
    assert!(stdout.lines().all(|line| line.chars().count() <= 80 || !line.contains(": ")), "{stdout}");
    let held = fs::OpenOptions::new().create(true).truncate(false).write(true).open(ledger.path().join("ledger.lock"));
    let held = held.expect("opened");
    held.lock().expect("locked");
    let (code, stdout, _) = run(&["doctor", text(ledger.path()), "--json"]);
    let line: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &line["findings"][0]["verdict"]), (1, &"bad".into()), "{stdout}");
    let holder = format!("(process {})", std::process::id());
    assert!(line["findings"][0]["found"].as_str().is_some_and(|found| found.ends_with(&holder)), "{stdout}");
    let beside = "slotpress can verify, recompress and serve the archives";
    fails(
        &["archive", text(ledger.path()), "-o", text(ledger.path())],
        1,
        &[&holder, "hint: stop the validator", beside],
    );
    // What a killed restore leaves is named, with the way on.
    drop(held);
    fs::write(ledger.path().join("slotpress-partial-journal"), "").expect("written");
    let (code, stdout, _) = run(&["doctor", text(ledger.path())]);
    assert!(code == 1 && stdout.contains("slotpress-partial-journal") && stdout.contains("run the same"), "{stdout}");
    let (_, _, stderr) = run(&["verify", text(ledger.path())]);
    assert!(stderr.contains("slotpress-partial-journal") && stderr.contains("run the same"), "{stderr}");
    // What a validator may choose by its name, and what takes room.
    let cut = FULL_26.replace("-26-", "-27-");
    fs::write(ledger.path().join(&cut), [0; 1000]).expect("written");
    fs::write(ledger.path().join(format!("slotpress-fetch-{FULL_26}")), [0; 1000]).expect("written");
    let (code, stdout, _) = run(&["doctor", text(ledger.path()), "--json"]);
    for part in [&cut, "its first bytes are not those of an archive", "slotpress-fetch-", "prune --partials"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert_eq!(code, 1, "the journal is there");
    // A killed validator's bank snapshot has no mark.
    fs::remove_file(ledger.path().join("slotpress-partial-journal")).expect("removed");
    fs::remove_file(ledger.path().join("snapshots/26/fastboot_version")).expect("removed");
    let (code, stdout, _) = run(&["doctor", text(ledger.path())]);
    assert!(code == 1 && stdout.contains("slot 26 is not complete: it has no fastboot_version"), "{stdout}");
    assert!(!stdout.contains("can be archived"), "{stdout}");
    // What others call it.
    let level = ["archive", text(ledger.path()), "-o", "/", "--level", "3"];
    fails(&level, 2, &["hint: --zstd-level is what --level is called here"]);
    fails(&["serve", "/", "--listen", "8899"], 2, &["an address and a port are needed: 127.0.0.1:8899"]);
    fails(&["doctor", "/no/such/ledger"], 1, &["is not a directory", "hint: "]);
}

#[test]
fn a_dry_run_of_restore() {
    let dir = temp_dir();
    let (full, incremental) = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
    let target = dir.path().join("ledger");
    let arguments = ["restore", text(&full), text(&incremental), "--ledger", text(&target), "--dry-run"];
    let (code, stdout, stderr) = run(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for part in ["  slot 26, hash 5vEhTbsm", "  slot 40, hash D5jEKFz2", " needed, ", "Nothing was restored.\n"] {
        assert!(stdout.contains(part), "{part:?} is not in: {stdout}");
    }
    assert_eq!(names(dir.path()), Vec::<String>::new());
    let (_, stdout, _) = run(&[&arguments[..], &["--json"]].concat());
    let line: Value = serde_json::from_str(&stdout).expect("JSON");
    let unpacked = line["archives"][0]["unpacked_bytes"].as_u64().expect("a number");
    assert_eq!(unpacked, tar_of(&full).len() as u64, "all of a small archive is the sample");
    // What would be refused is refused, and what may be replaced is named.
    fs::create_dir_all(target.join("snapshots/7")).expect("made");
    fails(
        &arguments,
        5,
        &[text(&target), "hint: restore into an empty directory, or replace that state with --replace-state"],
    );
    let (code, stdout, _) = run(&[&arguments[..], &["--replace-state"]].concat());
    let replaced = format!("  replaces {}, moved aside at the end", target.join("snapshots/7").display());
    assert!(code == 0 && stdout.replace("\n           ", " ").contains(&replaced), "{stdout}");
    assert!(target.join("snapshots/7").exists());
    fails(
        &["restore", text(&incremental), "--ledger", text(&target), "--dry-run"],
        2,
        &["an incremental archive alone"],
    );
}

/// An old state is moved aside, or deleted first; files of the validator, archives among them, stay.
#[test]
fn restore_replaces_a_state() {
    for (flags, is_deleted) in [(&["--replace-state"][..], false), (&["--replace-state", "--delete-state-first"], true)]
    {
        let dir = temp_dir();
        let (full, incremental, target) = (fixture(FULL_26), fixture(INCREMENTAL_26_40), dir.path().join("ledger"));
        let restore = |flags: &[&str]| {
            let arguments = ["restore", text(&full), text(&incremental), "--ledger", text(&target), "--json"];
            run(&[&arguments[..], flags].concat())
        };
        let (code, _, stderr) = run(&["restore", text(&full), "--ledger", text(&target)]);
        assert_eq!(code, 0, "{stderr}");
        fs::write(target.join("tower-1_9-x.bin"), "the validator's").expect("written");
        let before = tree(&target);
        let (code, _, stderr) = restore(&[]);
        assert!(code == 5 && stderr.contains("--replace-state"), "{stderr}");
        // What is refused before anything is read deletes nothing.
        let (code, _, stderr) = restore(&[flags, &["--expect-slot", "41"]].concat());
        assert!(code == 3 && tree(&target) == before, "{stderr}");
        let (code, stdout, stderr) = restore(flags);
        assert_eq!(code, 0, "{stderr}");
        let line: Value = serde_json::from_str(stdout.lines().last().expect("a line")).expect("JSON");
        assert_eq!(line["replaced"].as_array().map(Vec::len), Some(if is_deleted { 0 } else { 2 }), "{stdout}");
        let now = tree(&target);
        assert!(now.contains_key("snapshots/40/fastboot_version") && now.contains_key(FULL_26), "{now:?}");
        assert!(!now.contains_key("snapshots/26/fastboot_version") && now.contains_key("tower-1_9-x.bin"), "{now:?}");
        assert_eq!(now.keys().any(|path| path.contains("slotpress-replaced-")), !is_deleted, "{now:?}");
        fails(&["verify", text(&target)], 0, &[]);
    }
}

/// A validator starts from the newest archives, whatever was restored: they are in the way, or go aside.
#[test]
fn an_older_state_beside_newer_archives() {
    let full = fixture(FULL_26);
    for (inner, from_stdin) in [("", false), ("remote", false), ("", true)] {
        let dir = temp_dir();
        let target = dir.path().join("ledger");
        let newer = target.join(inner).join(INCREMENTAL_26_40);
        fs::create_dir_all(newer.parent().expect("a parent")).expect("made");
        fs::copy(fixture(INCREMENTAL_26_40), &newer).expect("copied");
        // Alone, it is none that a validator would take; beside its full archive it is.
        let source = if from_stdin { "-" } else { text(&full) };
        let restore = |flags: &[&str]| {
            let arguments = [&["restore", source, "--ledger", text(&target)], flags].concat();
            run_json(&arguments, from_stdin.then_some(&full))
        };
        fs::copy(&full, target.join(FULL_26)).expect("copied");
        let before = tree(&target);
        let (code, _, stderr) = restore(&[]);
        assert!(code == 5 && stderr.contains("slot 26") && stderr.contains("--replace-state"), "{code}: {stderr}");
        assert!(stderr.contains(INCREMENTAL_26_40) && tree(&target) == before, "{stderr}");
        if !from_stdin {
            let (code, preview, stderr) = restore(&["--dry-run", "--replace-state"]);
            assert!(code == 0 && preview["existing"][0] == text(&newer), "{stderr}: {preview}");
            assert_eq!(restore(&["--dry-run"]).0, 5);
        }
        let (code, report, stderr) = restore(&["--replace-state"]);
        assert_eq!(code, 0, "{stderr}");
        let aside = Path::new(report["replaced"][0].as_str().expect("a path")).join(inner).join(INCREMENTAL_26_40);
        assert!(fs::read(aside).expect("moved") == fs::read(fixture(INCREMENTAL_26_40)).expect("read"));
        assert!(!newer.exists() && target.join("snapshots/26/fastboot_version").exists());
    }
    // One of another base is none that a validator would take.
    let dir = temp_dir();
    let other = dir.path().join(INCREMENTAL_26_40.replace("-26-40-", "-20-40-"));
    fs::copy(fixture(INCREMENTAL_26_40), &other).expect("copied");
    let (code, _, stderr) = run(&["restore", text(&full), "--ledger", text(dir.path())]);
    assert!(code == 0 && other.exists(), "{stderr}");
}

/// A restore that fails after the old state was deleted leaves the archives, and no part of a state.
#[test]
fn a_state_that_was_deleted_first_leaves_nothing_that_boots() {
    let dir = temp_dir();
    let (full, target) = (fixture(FULL_26), dir.path().join("ledger"));
    let (code, _, stderr) = run(&["restore", text(&full), "--ledger", text(&target)]);
    assert_eq!(code, 0, "{stderr}");
    let mut bytes = fs::read(&full).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = dir.path().join("damaged.tar.zst");
    fs::write(&damaged, bytes).expect("written");
    let replace = ["--replace-state", "--delete-state-first"];
    let (code, _, stderr) = run(&[&["restore", text(&damaged), "--ledger", text(&target)][..], &replace].concat());
    assert!(code == 3 && stderr.contains("Deleting the existing state"), "{stderr}");
    assert!(!target.join("snapshots/26").exists() && !target.join("accounts/run").exists());
    assert!(target.join(FULL_26).exists());
    let (code, _, stderr) = run(&[&["restore", text(&full), "--ledger", text(&target)][..], &replace].concat());
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn verbose_tells_the_plan_and_what_limited_the_run() {
    let (ledger, out) = (ledger("ledger-at-26"), temp_dir());
    let restored = out.path().join("restored");
    let (full, target) = (fixture(FULL_26), text(out.path()));
    for (command, plan) in [
        (
            vec!["archive", text(ledger.path()), "-o", target],
            "902 KiB of tar, storages: 27; obsolete records left out: ",
        ),
        (vec!["recompress", text(&full), "-o", target, "--force"], "to read; workers: "),
        (vec!["restore", text(&full), "--ledger", text(&restored)], "to copy into the archives directory; workers: "),
        (vec!["verify", text(&full)], "to read; workers: "),
    ] {
        let (code, stdout, stderr) = run(&[&command[..], &["-v"]].concat());
        assert_eq!(code, 0, "{stderr}");
        let line = |start: &str| stderr.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
        assert!(line("plan: ").contains(plan), "{stderr}");
        assert!(line("memory: at most ").contains(" for each worker ("), "{stderr}");
        assert!(line("limited by ").contains(" (slotpress used "), "{stderr}");
        assert!(!stdout.contains("plan: "), "{stdout}");
    }
}

/// Names can hold anything: what is printed shows control characters, and no terminal obeys them.
#[test]
fn control_characters_of_names_are_shown() {
    const NAME: &str = "x\n\x1b]0;owned\x07\u{202e}";
    let dir = temp_dir();
    let path = dir.path().join(NAME);
    fs::create_dir(&path).expect("made");
    let archive = path.join(FULL_26);
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    let wrong = path.join("wrong.tar.zst");
    fs::write(&wrong, "wrong").expect("written");
    let (ledger, archive, wrong, dir_text) = (path.join("ledger"), text(&archive), text(&wrong), text(&path));
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
        let (_, stdout, stderr) = run(arguments);
        let printed = stdout + &stderr;
        assert!(!printed.contains(|char: char| char != '\n' && char.is_control()), "{arguments:?}: {printed:?}");
        assert!(!printed.contains('\u{202e}') && !printed.contains("x\n"), "{arguments:?}: {printed:?}");
        let is_named = printed.contains("owned");
        assert!(!is_named || printed.contains("x\\n\\u{1b}]0;owned\\u{7}\\u{202e}"), "{arguments:?}: {printed:?}");
        named += usize::from(is_named);
    }
    assert!(named >= 8, "{named} of them name it");
}

/// What was meant for a server is told, with the command that reads it.
#[cfg(feature = "net")]
#[test]
fn urls_where_files_are_read_and_hosts_without_a_scheme() {
    let dir = temp_dir();
    let out = text(dir.path());
    let url = format!("http://user:secret@127.0.0.1:9/{FULL_26}");
    let bootstrap = format!("`slotpress bootstrap http://127.0.0.1:9/{FULL_26} --ledger {out}`");
    for (arguments, code, expected) in [
        (&["restore", &url, "--ledger", out][..], 2, bootstrap.as_str()),
        (&["restore", "127.0.0.1:9/x.tar.zst", "--ledger", out], 2, "bootstrap http://127.0.0.1:9/x.tar.zst"),
        (&["recompress", &url, "-o", out], 2, &format!("`slotpress fetch http://127.0.0.1:9/{FULL_26} -o DIR`")),
        (&["fetch", "localhost:9", "-o", out], 1, "write http://localhost:9/"),
        (&["find", "--source", "localhost:9"], 1, "write http://localhost:9/"),
        (&["bootstrap", "localhost:9", "--ledger", out], 1, "write http://localhost:9/"),
        (&["find", "--rpc", "localhost:9"], 2, "write http://localhost:9/"),
        (&["list", "localhost:9"], 2, "write http://localhost:9/"),
        (&["verify", "localhost:9/x.tar.zst"], 2, "write http://localhost:9/x.tar.zst"),
        (&["inspect", "localhost:9/x.tar.zst"], 2, "write http://localhost:9/x.tar.zst"),
    ] {
        let said = fails(arguments, code, &["hint: ", expected]);
        assert!(!said.contains("secret"), "{said}");
    }
}

/// An archive that a validator has deleted has an exit code of its own, whoever wants to read it.
#[test]
fn an_archive_that_is_gone() {
    let dir = temp_dir();
    let (out, gone) = (text(dir.path()), format!("/no/such/{FULL_26}"));
    for arguments in [
        &["restore", &gone, "--ledger", out][..],
        &["recompress", &gone, "-o", out],
        &["recompress", text(&fixture(INCREMENTAL_26_40)), "--base", &gone, "-o", out],
        &["verify", &gone],
        &["inspect", &gone],
    ] {
        fails(arguments, 6, &["cannot open", "no such file", "hint: validators delete old archives"]);
    }
    assert_eq!(names(dir.path()), [""; 0]);
}

/// What another run is making is not begun; it is known before the archive is read.
#[test]
fn two_recompress_for_one_name() {
    let dir = temp_dir();
    let temporary = dir.path().join(format!("tmp-snapshot-archive-slotpress-{FULL_26}"));
    let held = fs::File::create(&temporary).expect("created");
    held.lock().expect("locked");
    let source = fixture(FULL_26);
    for more in [&["--skip-existing"][..], &[]] {
        let arguments = [&["recompress", text(&source), "-o", text(dir.path())], more].concat();
        fails(&arguments, 5, &[&format!("{FULL_26} is being made by"), "hint: wait"]);
    }
    // What nobody holds was left by a killed run.
    drop(held);
    let (code, _, stderr) = run(&["recompress", text(&source), "-o", text(dir.path())]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(names(dir.path()), [FULL_26]);
}

/// The job in docs/operating.md, as it is printed, but for the place of its directories.
#[test]
fn the_nightly_job_runs_as_printed() {
    let dir = temp_dir();
    let [snapshots, archive, bin] = ["snapshots", "archive", "bin"].map(|name| dir.path().join(name));
    for dir in [&snapshots, &archive, &bin] {
        fs::create_dir(dir).expect("made");
    }
    let documented = include_str!("../docs/operating.md").replace("/mnt/", &format!("{}/", dir.path().display()));
    let block = |start: &str| {
        let (_, block) = documented.split_once(start).expect("a block");
        block.split_once("```").expect("its end").0.to_string()
    };
    let script = bin.join("slotpress-nightly");
    fs::write(&script, block("```sh\n")).expect("written");
    std::os::unix::fs::symlink(slotpress_path(), bin.join("slotpress")).expect("linked");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("set");
    let crontab = block("```\n# /etc/cron.d/slotpress");
    let (_, job) = crontab.lines().find_map(|line| line.split_once("  sol  ")).expect("a job");
    let job = || {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("/bin/sh").args(["-c", job]).env("PATH", path).output().expect("runs");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), said)
    };
    let silent = (Some(0), String::new());
    assert_eq!(job(), silent, "a validator that has written nothing yet");
    let put = |name: &str| fs::copy(fixture(name), snapshots.join(name)).expect("copied");
    put(FULL_26);
    assert_eq!(job(), silent, "a full archive");
    assert_eq!(names(&archive), [FULL_26]);
    put(INCREMENTAL_26_40);
    assert_eq!(job(), silent, "an incremental one on it");
    assert_eq!(names(&archive), [INCREMENTAL_26_40, FULL_26]);
    let made = |name: &str| fs::metadata(archive.join(name)).and_then(|it| it.modified()).expect("a time");
    let before = made(INCREMENTAL_26_40);
    // What is not among the newest two goes.
    fs::write(archive.join(FULL_26.replace("-26-", "-5-")), filler(9)).expect("written");
    put(FULL_3500);
    assert_eq!(job(), silent, "a newer full archive");
    assert_eq!(names(&archive), [INCREMENTAL_26_40, FULL_26, FULL_3500]);
    assert_eq!(job(), silent, "nothing new");
    assert_eq!(made(INCREMENTAL_26_40), before);
    // What cron is to mail.
    fs::copy(fixture(FULL_3500), snapshots.join(FULL_3500.replace("-3500-", "-3600-"))).expect("copied");
    let (code, said) = job();
    assert!(code == Some(3) && said.contains("error: "), "{code:?} {said}");
}

/// `--quiet` leaves of the demo the directory that stays.
#[test]
fn a_quiet_demo() {
    let dir = temp_dir();
    let kept = dir.path().join("kept");
    let demo = ["demo", "--size", "8MiB", "--quiet"];
    assert_eq!(run(&demo).1, "");
    assert_eq!(run(&[&demo[..], &["--keep", text(&kept)]].concat()).1, format!("{}\n", kept.display()));
}

/// An incremental archive is read back on the full one that lies beside it, which is named; without one, what proves it is said.
#[test]
fn an_incremental_archive_is_read_back_on_its_full_one() {
    let (ledger, out) = (ledger("ledger-at-40"), temp_dir());
    fs::copy(fixture(FULL_26), out.path().join(FULL_26)).expect("copied");
    let run = |flags: &[&str]| {
        let mut command = slotpress();
        command.arg("archive").arg(ledger.path()).arg("-o").arg(out.path()).args(["--base-slot", "26", "--force"]);
        let output = command.args(flags).output().expect("runs");
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("text"))
    };
    let (code, said) = run(&["--verify"]);
    assert!(code == Some(0) && said.contains("GOOD: read back") && !said.contains("verify FULL"), "{said}");
    assert!(said.contains("reading it back on the full archive") && said.contains(FULL_26), "{said}");
    let (code, said) = run(&[]);
    assert!(code == Some(0) && said.contains("slotpress verify FULL "), "{said}");
    fs::remove_file(out.path().join(FULL_26)).expect("removed");
    let (code, said) = run(&["--verify", "--force-base"]);
    assert!(code == Some(0) && said.contains("not checked") && said.contains("slotpress verify FULL "), "{said}");
    // A full archive that is cut off is none, and one that is damaged may be at fault.
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    fs::write(out.path().join(FULL_26), &bytes[..bytes.len() - 1]).expect("written");
    let (code, said) = run(&[]);
    assert!(code == Some(1) && said.contains("there is no full archive of slot 26"), "{said}");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(out.path().join(FULL_26), &flipped).expect("written");
    let (code, said) = run(&["--verify"]);
    assert!(
        code == Some(3) && said.contains("read back on") && said.contains("verify the full archive and the ledger"),
        "{said}"
    );
}

/// Hints know better than guesses by spelling, and stand alone.
#[test]
fn hints_without_guesses() {
    let say = |arguments: &[&str]| {
        let output = slotpress().args(arguments).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let said = say(&["archive", "/ledger", "-o", "/out", "--level", "3"]);
    assert!(said.contains("hint: --zstd-level is what --level is called here") && !said.contains("tip:"), "{said}");
    let said = say(&["archive", "/ledger", "/out"]);
    assert!(said.contains("hint: the directory for the archive is given with -o: -o /out"), "{said}");
}

/// What was built in, by name.
#[cfg(all(feature = "levels", feature = "net", feature = "serve", feature = "stores"))]
#[test]
fn the_long_version_names_every_feature() {
    let output = slotpress().args(["--version", "-v"]).output().expect("runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.contains("features  levels net serve stores"), "{said}");
}

/// A demo says of its short run what it measured, and no more; what a killed one has left goes with the next one.
#[test]
fn a_demo_and_what_a_killed_one_leaves() {
    let dir = temp_dir();
    let demo = || {
        let mut command = Command::new(slotpress_path());
        command.args(["demo", "--size", "8MiB"]).env("TMPDIR", dir.path());
        command
    };
    let mut child = demo().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_for("a ledger", || names(dir.path()).iter().any(|name| name.ends_with("/ledger")));
    child.kill().expect("killed");
    child.wait().expect("ends");
    assert!(!names(dir.path()).is_empty(), "a killed program removes nothing");
    let output = demo().output().expect("runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("\nArchived at "), "{stdout}");
    assert!(!stdout.contains("450 GB"), "{stdout}");
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
