//! An export that ends in the middle leaves no table that looks complete but is not. The next run completes
//! the tables.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::strace::trace;
use crate::common::*;
use crate::export::{fixture_pair, list_files, read_manifest, run_export, stderr_of};

const TABLES: [&str; 2] = ["--table", "accounts,token-accounts"];

/// System calls that change directory entries, or sync.
const CALLS: &str = "rename,renameat,renameat2,link,linkat,mkdirat,fsync";

/// Prefix of the work directory, which a finished run removes.
const WORK_PREFIX: &str = "slotpress-partial-export-";

fn arguments(out: &Path) -> Vec<String> {
    let inputs = fixture_pair("agave-4.2.2").map(|archive| text(&archive).to_string());
    let flags = ["-o", text(out), TABLES[0], TABLES[1], "--threads", "1"].map(String::from);
    std::iter::once("export".to_string()).chain(inputs).chain(flags).collect()
}

/// Returns the files of an output, except those in the work directory and those with temporary names.
fn visible_files(out: &Path) -> Vec<String> {
    let is_named = |name: &String| !name.starts_with(WORK_PREFIX) && !name.starts_with("tmp-");
    list_files(out).into_iter().filter(is_named).collect()
}

/// True if both tables have a manifest, so that they look complete.
fn is_complete(out: &Path) -> bool {
    visible_files(out).iter().filter(|name| name.contains("/_manifest-")).count() == 2
}

fn run_again(out: &Path) -> Output {
    let archives = fixture_pair("agave-4.2.2");
    run_export(&archives.each_ref().map(|archive| archive.as_path()), out, &TABLES)
}

/// Checks that the next run completes the tables, and reports that it removed files if any were visible.
fn assert_next_run_completes(out: &Path, whole: &[String], label: &str) {
    let left = visible_files(out);
    let output = run_again(out);
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(0), "{label}: {left:?}: {stderr}");
    assert_eq!(list_files(out), whole, "{label}");
    let is_reported = stderr.contains("removed the files of an unfinished export of slot 40");
    assert_eq!(is_reported, !left.is_empty(), "{label}: {left:?}: {stderr}");
}

#[test]
fn a_kill_while_files_are_renamed_or_synced_leaves_no_partial_table() {
    needs!("strace");
    let whole = temp_dir();
    let calls = format!("{CALLS},unlinkat");
    let seen = trace(&arguments(whole.path()), &calls, None);
    assert!(seen.output.status.success());
    assert!(!seen.calls.is_empty());
    let mut visible_count = 0;
    let mut complete_count = 0;
    for call in &seen.calls {
        let out = temp_dir();
        let injection = format!("{}:signal=KILL:when={}", call.name, call.number);
        let killed = trace(&arguments(out.path()), &calls, Some(&injection));
        assert!(killed.is_killed, "{}", call.line);
        visible_count += usize::from(!visible_files(out.path()).is_empty());
        if !is_complete(out.path()) {
            assert_next_run_completes(out.path(), &list_files(whole.path()), &call.line);
            continue;
        }
        complete_count += 1;
        let without_journal = |name: &String| !name.starts_with("_unfinished-");
        assert!(
            visible_files(out.path()).into_iter().filter(without_journal).eq(list_files(whole.path())),
            "{}",
            call.line
        );
        assert_eq!(read_manifest(out.path())["tables"], read_manifest(whole.path())["tables"]);
        assert_eq!(run_again(out.path()).status.code(), Some(5), "{}", call.line);
        assert_eq!(list_files(out.path()), list_files(whole.path()), "{}: other files are left", call.line);
    }
    assert!(visible_count > complete_count, "{visible_count} {complete_count}");
    assert!(complete_count > 0);
}

/// The call fails once, or each time from then on. If it keeps failing, the run may be unable to remove its files.
#[test]
fn a_failure_while_files_are_renamed_or_synced_leaves_no_partial_table() {
    needs!("strace");
    let whole = temp_dir();
    let seen = trace(&arguments(whole.path()), CALLS, None);
    assert!(seen.output.status.success());
    assert!(!seen.calls.is_empty());
    let mut failed = 0;
    for call in &seen.calls {
        for (error, suffix) in [("EIO", ""), ("ENOSPC", ""), ("EIO", "+")] {
            let out = temp_dir();
            let injection = format!("{}:error={error}:when={}{suffix}", call.name, call.number);
            let ended = trace(&arguments(out.path()), CALLS, Some(&injection));
            let label = format!("{injection} {}: {}", call.line, stderr_of(&ended.output));
            if ended.output.status.success() {
                assert_eq!(list_files(out.path()), list_files(whole.path()), "{label}");
                continue;
            }
            failed += 1;
            assert_eq!(ended.output.status.code(), Some(1), "{label}");
            if suffix.is_empty() {
                assert_eq!(relative_paths(out.path()), Vec::<String>::new(), "{label}");
            } else {
                assert!(!is_complete(out.path()), "{label}");
            }
            assert_next_run_completes(out.path(), &list_files(whole.path()), &label);
        }
    }
    assert!(failed > 10, "{failed}");
}

/// A run is killed when all its data files are in place, but no manifest is. Then another program adds a
/// file. The next run removes the killed run's files, and fails because of the added file, which it keeps.
#[test]
fn files_of_other_programs_are_kept() {
    needs!("strace");
    let out = temp_dir();
    let seen = trace(&arguments(temp_dir().path()), CALLS, None);
    let is_move = |call: &&crate::common::strace::Call| call.line.contains("snapshot_slot=40");
    let last_move = seen.calls.iter().rfind(is_move).expect("a move");
    let next = seen.calls.iter().skip_while(|call| call.line != last_move.line).nth(1).expect("another call");
    trace(&arguments(out.path()), CALLS, Some(&format!("{}:signal=KILL:when={}", next.name, next.number)));
    std::fs::write(out.path().join("token_accounts/snapshot_slot=40/theirs"), "theirs").expect("written");
    let output = run_again(out.path());
    assert_eq!(output.status.code(), Some(5), "{}", stderr_of(&output));
    assert_eq!(visible_files(out.path()), ["token_accounts/snapshot_slot=40/theirs"]);
}

#[test]
fn a_panic_leaves_nothing() {
    let archives = fixture_pair("agave-4.2.2");
    for place in ["decoder", "row encoder", "export publisher"] {
        let top = temp_dir();
        let out = top.path().join("new/parents/tables");
        let mut command = slotpress();
        command.env("FAULTS_PANIC_AT", place).env_remove("RUST_BACKTRACE");
        let output = command.arg("export").args(&archives).arg("-o").arg(&out).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{place}: {}", stderr_of(&output));
        assert_eq!(relative_paths(top.path()), Vec::<String>::new(), "{place}");
    }
}

/// A limit on the size of files (RLIMIT_FSIZE) makes a write fail, as a full disk does.
#[test]
fn an_export_that_reaches_the_file_size_limit_leaves_nothing() {
    needs!("prlimit");
    let [full, _] = fixture_pair("agave-4.2.2");
    let out = temp_dir();
    let mut command = Command::new("prlimit");
    command.arg("--fsize=20000").arg(slotpress_path()).arg("export").arg(&full).arg("-o").arg(out.path());
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(1), "{}", stderr_of(&output));
    assert_eq!(relative_paths(out.path()), Vec::<String>::new());
}
