//! Ends in the middle of adding a table: the old manifest is there, or the new one.

use std::path::Path;

use crate::common::strace::trace;
use crate::common::*;
use crate::export::survives::ends::{CALLS, WORK_PREFIX};
use crate::export::works::added::tables;
use crate::export::{pair, run};

fn accounts(out: &Path) {
    let archives = pair("agave-4.2.2");
    assert!(run(&archives.each_ref().map(|archive| archive.as_path()), out, &[]).status.success());
}

fn arguments(out: &Path) -> Vec<String> {
    let inputs = pair("agave-4.2.2").map(|archive| text(&archive).to_string());
    let flags = ["-o", text(out), "--table", "token-accounts", "--threads", "1"].map(String::from);
    std::iter::once("export".to_string()).chain(inputs).chain(flags).collect()
}

/// The next run adds the table, if it is not there.
fn next_run(out: &Path, at: &str) {
    let manifest = crate::export::manifest(out);
    let is_added = manifest["tables"].as_array().expect("a list").len() == 2;
    let again = slotpress().args(arguments(out)).output().expect("runs");
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(if is_added { 5 } else { 0 }), "{at}: {said}");
    assert_eq!(tables(out), ["accounts", "token_accounts"], "{at}");
}

#[test]
fn killed_at_each_change_of_a_name() {
    needs!("strace");
    let whole = temp_dir();
    accounts(whole.path());
    let calls = format!("{CALLS},unlinkat");
    let seen = trace(&arguments(whole.path()), &calls, None);
    assert!(seen.output.status.success(), "{}", seen.log);
    let mut added = 0;
    for call in &seen.calls {
        let out = temp_dir();
        accounts(out.path());
        let injection = format!("{}:signal=KILL:when={}", call.name, call.number);
        let killed = trace(&arguments(out.path()), &calls, Some(&injection));
        assert!(killed.is_killed, "{}", call.line);
        let count = crate::export::manifest(out.path())["tables"].as_array().expect("a list").len();
        added += usize::from(count == 2);
        next_run(out.path(), &call.line);
    }
    assert!(added > 0 && added < seen.calls.len() / 2, "{added}");
}

#[test]
fn disks_that_fail_at_each_change_of_a_name() {
    needs!("strace");
    let whole = temp_dir();
    accounts(whole.path());
    let seen = trace(&arguments(whole.path()), CALLS, None);
    assert!(seen.output.status.success(), "{}", seen.log);
    let mut failed = 0;
    for call in &seen.calls {
        for (error, more) in [("EIO", ""), ("EIO", "+")] {
            let out = temp_dir();
            accounts(out.path());
            let before = tree(out.path());
            let injection = format!("{}:error={error}:when={}{more}", call.name, call.number);
            let ended = trace(&arguments(out.path()), CALLS, Some(&injection));
            let at = format!("{injection} {}: {}", call.line, String::from_utf8_lossy(&ended.output.stderr));
            if ended.output.status.success() {
                assert_eq!(tables(out.path()), ["accounts", "token_accounts"], "{at}");
                continue;
            }
            failed += 1;
            if more.is_empty() {
                assert!(tree(out.path()) == before, "{at}");
            }
            let is_left = |name: &String| name.starts_with(WORK_PREFIX) || name.starts_with("tmp-");
            assert!(!more.is_empty() || !names(out.path()).iter().any(is_left), "{at}");
            next_run(out.path(), &at);
        }
    }
    assert!(failed > 10, "{failed}");
}
