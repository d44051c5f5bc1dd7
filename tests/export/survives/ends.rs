//! Ends in the middle: nothing looks complete, and the next run works.

use crate::common::strace::trace;
use crate::common::*;
use crate::export::{files, manifest, pair, run};

/// Nothing that an engine would read as a complete table, unless the manifest is there.
fn looks_complete(dir: &std::path::Path) -> bool {
    names(dir).iter().any(|name| name.starts_with("_manifest-"))
}

#[test]
fn killed_at_each_change_of_a_name() {
    needs!("strace");
    let archives = pair("agave-4.2.2");
    let arguments = |out: &str| {
        let inputs = archives.iter().map(|archive| text(archive).to_string());
        let flags = ["-o", out, "--table", "accounts,token-accounts", "--threads", "1"].map(String::from);
        std::iter::once("export".to_string()).chain(inputs).chain(flags).collect::<Vec<_>>()
    };
    let calls = "rename,renameat,renameat2,link,linkat,mkdirat,fsync";
    let whole = temp_dir();
    let seen = trace(&arguments(text(whole.path())), calls, None);
    assert!(seen.output.status.success() && !seen.calls.is_empty());
    for call in &seen.calls {
        let out = temp_dir();
        let injection = format!("{}:signal=KILL:when={}", call.name, call.number);
        let killed = trace(&arguments(text(out.path())), calls, Some(&injection));
        assert!(killed.is_killed, "{}", call.line);
        if looks_complete(out.path()) {
            assert_eq!(files(out.path()), files(whole.path()), "{}", call.line);
            assert_eq!(manifest(out.path())["tables"], manifest(whole.path())["tables"]);
            continue;
        }
        let again =
            run(&archives.each_ref().map(|one| one.as_path()), out.path(), &["--table", "accounts,token-accounts"]);
        let said = String::from_utf8_lossy(&again.stderr);
        match again.status.code() {
            Some(0) => assert_eq!(files(out.path()), files(whole.path()), "{}", call.line),
            // Partitions had their names, and the manifest had not: an operator removes them.
            code => assert!(code == Some(5) && said.contains("snapshot_slot=40"), "{}: {said}", call.line),
        }
    }
}

#[test]
fn a_panic_leaves_nothing() {
    let archives = pair("agave-4.2.2");
    for place in ["decoder", "export publisher"] {
        let out = temp_dir();
        let mut command = slotpress();
        command.env("FAULTS_PANIC_AT", place).env_remove("RUST_BACKTRACE");
        let output = command.arg("export").args(&archives).arg("-o").arg(out.path()).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{place}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(names(out.path()), Vec::<String>::new(), "{place}");
    }
}

/// A full disk is an error of the write.
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
