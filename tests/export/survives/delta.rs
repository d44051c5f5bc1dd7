//! Ends between the manifest and the Delta tables: the next run makes the versions that are missing.

use std::path::Path;

use crate::common::strace::trace;
use crate::common::*;
use crate::export::files;
use crate::export::survives::ends::CALLS;
use crate::export::works::changes::{Chain, manifests, of_agave};
use crate::export::works::delta::{export_day, versions};

const TABLES: [&str; 2] = ["--table", "accounts,stakes"];

fn arguments(chain: &Chain, out: &Path) -> Vec<String> {
    let [old, new] = [0, 1].map(|day| chain.day(day));
    let words = ["export", "-o", text(out), "--delta", "--threads", "1", "--since", text(old[0])];
    let new = new.iter().map(|path| text(path));
    let words = words[..1].iter().copied().chain(new).chain(words[1..].iter().copied()).chain(TABLES);
    words.map(String::from).collect()
}

/// The next run makes what is missing, and refuses a second export of the slot.
fn next_run(chain: &Chain, out: &Path, whole: &[String], at: &str) {
    let is_complete = manifests(out).len() == 2;
    let missed = TABLES[1].split(',').any(|table| versions(out, table).len() < 2);
    let (code, said) = export_day(chain, 1, out, &TABLES);
    assert_eq!(code, Some(if is_complete { 5 } else { 0 }), "{at}: {said}");
    assert_eq!(said.contains("added slot 3550 to the Delta tables"), is_complete && missed, "{at}: {said}");
    assert!(TABLES[1].split(',').all(|table| versions(out, table) == [3500, 3550]), "{at}");
    assert_eq!(files(out), whole, "{at}");
}

#[test]
fn killed_after_the_manifest() {
    needs!("strace");
    let chain = of_agave().pop().expect("a chain");
    let (first, whole) = (temp_dir(), temp_dir());
    assert_eq!(export_day(&chain, 0, first.path(), &TABLES).0, Some(0));
    let copy = |to: &Path| copy_tree(first.path(), &to.join("out"));
    copy(whole.path());
    let calls = format!("{CALLS},unlinkat,write");
    let seen = trace(&arguments(&chain, &whole.path().join("out")), &calls, None);
    assert!(seen.output.status.success(), "{}", String::from_utf8_lossy(&seen.output.stderr));
    let whole = files(&whole.path().join("out"));
    let from = seen.calls.iter().position(|call| call.line.contains("_manifest-3550")).expect("the manifest");
    let mut between = 0;
    for call in &seen.calls[from..] {
        for fault in ["signal=KILL", "error=EIO"] {
            let dir = temp_dir();
            copy(dir.path());
            let out = dir.path().join("out");
            let injection = format!("{}:{fault}:when={}", call.name, call.number);
            trace(&arguments(&chain, &out), &calls, Some(&injection));
            between += usize::from(manifests(&out).len() == 2 && versions(&out, "stakes").len() == 1);
            next_run(&chain, &out, &whole, &format!("{injection} {}", call.line));
        }
    }
    assert!(between > 5, "{between}");
}

#[test]
fn a_panic_between() {
    let chain = of_agave().pop().expect("a chain");
    let out = temp_dir();
    assert_eq!(export_day(&chain, 0, out.path(), &TABLES).0, Some(0));
    let mut command = slotpress();
    command.env("FAULTS_PANIC_AT", "delta commit").env_remove("RUST_BACKTRACE");
    let output = command.args(arguments(&chain, out.path())).output().expect("runs");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(manifests(out.path()).len() == 2 && versions(out.path(), "accounts") == [3500]);
    // The next day's run makes both versions.
    let (code, said) = export_day(&chain, 2, out.path(), &TABLES);
    assert!(code == Some(0) && said.contains("added slot 3550 to the Delta tables"), "{said}");
    assert!(TABLES[1].split(',').all(|table| versions(out.path(), table) == [3500, 3550, 3575]));
}
