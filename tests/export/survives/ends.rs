//! Exports that end in the middle: no table looks complete, and the next run works.

use std::path::Path;

use crate::common::strace::trace;
use crate::common::*;
use crate::export::{files, manifest, pair, run};

const TABLES: [&str; 2] = ["--table", "accounts,token-accounts"];

/// System calls that change names, or sync them.
pub const CALLS: &str = "rename,renameat,renameat2,link,linkat,mkdirat,fsync";

/// Prefix of temporary files, of which a finished run leaves none.
pub const WORK_PREFIX: &str = "slotpress-partial-export-";

fn arguments(out: &Path) -> Vec<String> {
    let inputs = pair("agave-4.2.2").map(|archive| text(&archive).to_string());
    let flags = ["-o", text(out), TABLES[0], TABLES[1], "--threads", "1"].map(String::from);
    std::iter::once("export".to_string()).chain(inputs).chain(flags).collect()
}

/// Returns all files that another program would read.
fn named(out: &Path) -> Vec<String> {
    let is_named = |name: &String| !name.starts_with(WORK_PREFIX) && !name.starts_with("tmp-");
    files(out).into_iter().filter(is_named).collect()
}

/// True if both tables are complete.
fn is_complete(out: &Path) -> bool {
    named(out).iter().filter(|name| name.contains("/_manifest-")).count() == 2
}

/// Checks that the next run makes the tables whole, and says what it removed.
fn next_run(out: &Path, whole: &[String], at: &str) {
    let (left, inputs) = (named(out), pair("agave-4.2.2"));
    let again = run(&inputs.each_ref().map(|one| one.as_path()), out, &TABLES);
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(0), "{at}: {left:?}: {said}");
    assert_eq!(files(out), whole, "{at}");
    let is_told = said.contains("removed the files of an unfinished export of slot 40");
    assert_eq!(is_told, !left.is_empty(), "{at}: {left:?}: {said}");
}

#[test]
fn killed_at_each_change_of_a_name() {
    needs!("strace");
    let whole = temp_dir();
    let calls = format!("{CALLS},unlinkat");
    let seen = trace(&arguments(whole.path()), &calls, None);
    assert!(seen.output.status.success() && !seen.calls.is_empty());
    let (mut were_named, mut were_complete) = (0, 0);
    for call in &seen.calls {
        let out = temp_dir();
        let injection = format!("{}:signal=KILL:when={}", call.name, call.number);
        let killed = trace(&arguments(out.path()), &calls, Some(&injection));
        assert!(killed.is_killed, "{}", call.line);
        were_named += usize::from(!named(out.path()).is_empty());
        if !is_complete(out.path()) {
            next_run(out.path(), &files(whole.path()), &call.line);
            continue;
        }
        were_complete += 1;
        let without_journal = |name: &String| !name.starts_with("_unfinished-");
        assert!(named(out.path()).into_iter().filter(without_journal).eq(files(whole.path())), "{}", call.line);
        assert_eq!(manifest(out.path())["tables"], manifest(whole.path())["tables"]);
        let inputs = pair("agave-4.2.2");
        let again = run(&inputs.each_ref().map(|one| one.as_path()), out.path(), &TABLES);
        assert_eq!(again.status.code(), Some(5), "{}", call.line);
        assert_eq!(files(out.path()), files(whole.path()), "{}: nothing else stays", call.line);
    }
    assert!(were_named > were_complete && were_complete > 0, "{were_named} {were_complete}");
}

/// A disk that fails once, and one that fails from then on, so that names cannot be removed either.
#[test]
fn disks_that_fail_at_each_change_of_a_name() {
    needs!("strace");
    let whole = temp_dir();
    let seen = trace(&arguments(whole.path()), CALLS, None);
    assert!(seen.output.status.success() && !seen.calls.is_empty());
    let mut failed = 0;
    for call in &seen.calls {
        for (error, more) in [("EIO", ""), ("ENOSPC", ""), ("EIO", "+")] {
            let out = temp_dir();
            let injection = format!("{}:error={error}:when={}{more}", call.name, call.number);
            let ended = trace(&arguments(out.path()), CALLS, Some(&injection));
            let at = format!("{injection} {}: {}", call.line, String::from_utf8_lossy(&ended.output.stderr));
            if ended.output.status.success() {
                assert_eq!(files(out.path()), files(whole.path()), "{at}");
                continue;
            }
            failed += 1;
            assert_eq!(ended.output.status.code(), Some(1), "{at}");
            if more.is_empty() {
                assert_eq!(names(out.path()), Vec::<String>::new(), "{at}");
            } else {
                assert!(!is_complete(out.path()), "{at}");
            }
            next_run(out.path(), &files(whole.path()), &at);
        }
    }
    assert!(failed > 10, "{failed}");
}

/// Files that a person has put there since the kill stay, and are an error.
#[test]
fn what_others_put_there_stays() {
    needs!("strace");
    let out = temp_dir();
    let seen = trace(&arguments(temp_dir().path()), CALLS, None);
    let moves = |call: &&crate::common::strace::Call| call.line.contains("snapshot_slot=40");
    let last = seen.calls.iter().rfind(moves).expect("a move");
    let next = seen.calls.iter().skip_while(|call| call.line != last.line).nth(1).expect("a sync");
    trace(&arguments(out.path()), CALLS, Some(&format!("{}:signal=KILL:when={}", next.name, next.number)));
    std::fs::write(out.path().join("token_accounts/snapshot_slot=40/theirs"), "theirs").expect("written");
    let inputs = pair("agave-4.2.2");
    let again = run(&inputs.each_ref().map(|one| one.as_path()), out.path(), &TABLES);
    assert_eq!(again.status.code(), Some(5), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(named(out.path()), ["token_accounts/snapshot_slot=40/theirs"]);
}

#[test]
fn a_panic_leaves_nothing() {
    let archives = pair("agave-4.2.2");
    for place in ["decoder", "row encoder", "export publisher"] {
        let top = temp_dir();
        let out = top.path().join("made/for/it");
        let mut command = slotpress();
        command.env("FAULTS_PANIC_AT", place).env_remove("RUST_BACKTRACE");
        let output = command.arg("export").args(&archives).arg("-o").arg(&out).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{place}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(names(top.path()), Vec::<String>::new(), "{place}");
    }
}

/// A write beyond the limit of a file's length fails, as on a full disk.
#[test]
fn a_file_beyond_its_limit() {
    needs!("prlimit");
    let [full, _] = pair("agave-4.2.2");
    let out = temp_dir();
    let mut command = std::process::Command::new("prlimit");
    command.arg("--fsize=20000").arg(slotpress_path()).arg("export").arg(&full).arg("-o").arg(out.path());
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(out.path()), Vec::<String>::new());
}
