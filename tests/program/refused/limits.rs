//! Limits on memory and on the size of files, and the length of messages.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::runs::{code_and_stderr, program};
use crate::common::*;

fn run_command(command: &mut Command) -> (Option<i32>, String) {
    code_and_stderr(&command.env_remove("RUST_BACKTRACE").output().expect("runs"))
}

const MIB: usize = 1 << 20;

/// Under each limit, a command succeeds, or fails with an error and a hint. A failed `archive` or `restore` leaves
/// nothing that looks complete.
#[test]
fn too_little_memory_is_a_clear_error() {
    needs!("prlimit");
    let archive = fixture(FULL_26);
    let ledger = ledger("ledger-at-26");
    let mut codes = std::collections::BTreeSet::new();
    let starts = |megabytes: &u64| {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={megabytes}000000")).arg(slotpress_path()).arg("--version");
        run_command(&mut command).0 == Some(0)
    };
    // A few MB more than the program needs to start. With less, the C library ends it before it can say why.
    let least = format!("--as={}000000", (20..).find(starts).expect("it starts") + 5);
    let limits = ["--as=60000000", "--as=150000000", "--as=400000000", "--data=60000000", "--data=150000000"];
    for limit in [least.as_str()].into_iter().chain(limits) {
        let dir = temp_dir();
        let out = dir.path().join("out");
        let target = dir.path().join("restored");
        let synth = dir.path().join("synth");
        fs::create_dir(&out).expect("made");
        for arguments in [
            vec!["archive", text(ledger.path()), "-o", text(&out)],
            vec!["recompress", text(&archive), "-o", text(&out), "--force"],
            vec!["restore", text(&archive), "--ledger", text(&target)],
            vec!["verify", text(&archive)],
            vec!["verify", text(ledger.path())],
            vec!["inspect", text(&archive), "--by-owner"],
            vec!["inspect", text(&archive)],
            vec!["inspect", text(ledger.path()), "--by-owner"],
            vec!["levels", text(&archive), "--levels", "1,9", "--repeat", "1", "--min-time", "0"],
            vec!["synth", text(&synth), "--size", "4MiB"],
        ] {
            let mut command = Command::new("prlimit");
            command.arg(limit).arg(slotpress_path()).args(&arguments).args(["--threads", "4"]).stdin(Stdio::null());
            let (code, stderr) = run_command(&mut command);
            let is_clear =
                code == Some(0) || code == Some(1) && stderr.contains("error: ") && stderr.contains("hint: ");
            assert!(is_clear, "{limit} {arguments:?}: {code:?} {stderr}");
            assert!(!stderr.contains("panicked"), "{limit} {arguments:?}: {code:?} {stderr}");
            codes.insert((limit, code));
            if code == Some(1) {
                assert!(arguments[0] != "archive" || !out.join(FULL_26).exists());
                assert!(arguments[0] != "restore" || !target.join("snapshots/26/fastboot_version").exists());
            }
        }
    }
    assert!(codes.contains(&(least.as_str(), Some(1))), "{codes:?}");
    assert!(codes.contains(&("--as=400000000", Some(0))), "{codes:?}");
}

#[test]
fn threads_reserve_little_address_space() {
    needs!("prlimit");
    let mut command = Command::new("prlimit");
    command.arg("--as=400000000").arg(slotpress_path()).arg("inspect").arg(fixture(FULL_26));
    let (code, stderr) = run_command(command.args(["--by-owner", "--threads", "4"]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains("workers are used"), "{stderr}");
}

#[test]
fn an_impossible_size_is_a_usage_error() {
    let (code, stderr) = run_command(&mut program(&["synth", "/nowhere/at/all", "--size", "1EiB"]));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("out of range"), "{stderr}");
}

/// A run that cannot succeed within a limit is refused, and the error names the limit.
#[test]
fn plans_beyond_memory_limits_are_refused() {
    needs!("prlimit");
    let archive = fixture(FULL_26);
    for (limit, arguments) in [
        ("--data=40000000", vec!["inspect", text(&archive), "--by-owner"]),
        ("--data=60000000", vec!["levels", text(&archive), "--levels", "19", "--repeat", "1"]),
        ("--data=300000000", vec!["levels", text(&archive), "--levels", "1", "--sample", "1GiB"]),
    ] {
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(slotpress_path()).args(&arguments).args(["--threads", "2"]).stdin(Stdio::null());
        let (code, stderr) = run_command(&mut command);
        assert_eq!(code, Some(1), "{limit} {arguments:?}: {stderr}");
        assert!(stderr.contains("not enough memory: the data limit (ulimit -d) leaves"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn fewer_workers_run_with_a_warning() {
    needs!("prlimit");
    let archive = fixture(FULL_26);
    let mut command = Command::new("prlimit");
    command.arg("--data=220000000").arg(slotpress_path()).args(["inspect", text(&archive), "--threads", "8"]);
    let (code, stderr) = run_command(&mut command);
    assert_eq!(code, Some(0), "{code:?} {stderr}");
    assert!(stderr.contains("of 8 workers are used"), "{code:?} {stderr}");
}

/// Whatever an archive or a ledger contains, messages stay short, and contain no escape sequence.
#[test]
fn messages_about_hostile_inputs_are_short() {
    const OUTPUT_BYTES_MAX: usize = 8 * 1024;
    let dir = temp_dir();
    let long = "\u{1b}[31mx".repeat(MIB / 6);
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let assert_short = |arguments: &[&str]| {
        let output = Command::new(slotpress_path()).args(arguments).stdin(Stdio::null()).output().expect("runs");
        for bytes in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(bytes);
            let start: String = text.chars().take(400).collect();
            assert!(bytes.len() < OUTPUT_BYTES_MAX, "{arguments:?}: {} bytes: {start}", bytes.len());
            assert!(!text.contains('\u{1b}'), "{arguments:?}: {start}");
        }
        assert!(output.status.code().is_some_and(|code| code < 4), "{arguments:?}: {:?}", output.status);
    };
    let assert_short_for_archive = |archive: &Path| {
        let target = dir.path().join("restored");
        for json in [false, true] {
            let more: &[&str] = if json { &["--json"] } else { &[] };
            for arguments in [
                vec!["verify", text(archive)],
                vec!["inspect", text(archive)],
                vec!["recompress", text(archive), "-o", text(&out), "--force"],
                vec!["restore", text(archive), "--ledger", text(&target)],
            ] {
                assert_short(&[&arguments[..], more].concat());
                let _ = fs::remove_dir_all(&target);
            }
        }
    };
    let sound_entries = entries(&fixture(FULL_26));
    let write = |entries: &[TarEntry], more: &[u8]| {
        let path = dir.path().join(FULL_26);
        fs::write(&path, zstd::bulk::compress(&[more, &make_tar(entries)].concat(), 1).expect("compressed"))
            .expect("written");
        path
    };
    // A long version.
    let mut entries = sound_entries.clone();
    let version = entries.iter_mut().find(|entry| entry.path == "version").expect("a version");
    version.content = long.as_bytes().to_vec();
    assert_short_for_archive(&write(&entries, &[]));
    // A long name, in both forms of tar.
    for kind in [b'L', b'x'] {
        let name = match kind {
            b'L' => format!("{long}\0").into_bytes(),
            _ => format!("{} path={long}\n", long.len() + 14).into_bytes(),
        };
        let mut start = tar_header("././@LongLink", kind, name.len() as u64).to_vec();
        start.extend_from_slice(&name);
        start.resize(start.len().next_multiple_of(512), 0);
        assert_short_for_archive(&write(&sound_entries, &start));
    }
    // Many wrong names.
    let mut entries = sound_entries.clone();
    entries.extend((0..5000).map(|n| TarEntry {
        path: format!("accounts/\u{1b}[31m{n}"),
        kind: b'0',
        content: Vec::new(),
    }));
    let path = write(&entries, &[]);
    assert_short(&["inspect", text(&path)]);
    assert_short(&["restore", text(&path), "--ledger", text(&dir.path().join("restored"))]);
    // Files of a ledger.
    for file in ["version", "fastboot_version"] {
        let ledger = ledger("ledger-at-26");
        fs::write(ledger.path().join("snapshots/26").join(file), &long).expect("written");
        for command in ["verify", "inspect"] {
            assert_short(&[command, text(ledger.path())]);
        }
        assert_short(&["archive", text(ledger.path()), "-o", text(&out), "--force"]);
    }
}

/// Under a limit on the length of files, a write fails with an error; no signal ends the run silently.
#[test]
fn a_file_size_limit_is_a_clear_error() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let [out, from, target] = ["out", "from", "target"].map(|name| dir.path().join(name));
    for dir in [&out, &from] {
        fs::create_dir(dir).expect("made");
    }
    let full = from.join(FULL_26);
    fs::copy(fixture(FULL_26), &full).expect("copied");
    let mut failed = Vec::new();
    for arguments in [
        vec!["archive", text(ledger.path()), "-o", text(&out)],
        vec!["recompress", text(&full), "-o", text(&out)],
        vec!["restore", text(&full), "--ledger", text(&target)],
        vec!["synth", text(&dir.path().join("synth")), "--size", "1MiB"],
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 4; exec \"$0\" \"$@\""]).arg(slotpress_path()).args(&arguments);
        let (code, stderr) = run_command(&mut command);
        let is_clear = code == Some(1) && stderr.contains("file too large") && stderr.contains("ulimit -f");
        let left = relative_paths(&out);
        if !is_clear || !left.is_empty() || target.exists() {
            failed.push(format!("{arguments:?}: {code:?}, {left:?}, {stderr}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
