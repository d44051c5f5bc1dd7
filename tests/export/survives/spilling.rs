//! An export that ends while it sorts rows on disk leaves nothing, unless it is killed. In that case, the
//! next run removes what is left.

use std::path::Path;
use std::process::Command;

use crate::common::strace::trace_in;
use crate::common::*;
use crate::export::works::tables::{SyntheticPair, make_synthetic_pair};
use crate::export::{dir_on_disk, stderr_of};

/// Returns the arguments of an export with so little memory that its rows do not fit.
fn arguments_with_little_memory(made: &SyntheticPair, out: &Path) -> Vec<String> {
    let inputs = ["export", text(&made.full), text(&made.incremental), "-o", text(out)];
    let order = ["--data", "full", "--order", "clustered"];
    let memory = ["--memory", "173MiB", "--threads", "1"];
    inputs.iter().chain(&order).chain(&memory).map(|word| (*word).to_string()).collect()
}

#[test]
fn an_export_that_ends_while_rows_are_on_disk_leaves_no_table() {
    needs!("strace");
    let made = make_synthetic_pair(&["--size", "48MiB"]);
    let whole = temp_dir();
    let temporary = dir_on_disk();
    let seen = trace_in(temporary.path(), &arguments_with_little_memory(&made, whole.path()), "pwrite64,openat", None);
    assert!(seen.output.status.success(), "{}", stderr_of(&seen.output));
    let is_temporary_file = |line: &str| line.contains("O_TMPFILE") && line.contains(text(temporary.path()));
    assert_eq!(seen.calls.iter().filter(|call| is_temporary_file(&call.line)).count(), 1, "one temporary file");
    let writes: Vec<_> = seen.calls.iter().filter(|call| call.name == "pwrite64").collect();
    assert!(writes.len() > 100, "{}", writes.len());
    for write in [writes[0], writes[writes.len() / 3]] {
        let out = temp_dir();
        let temporary = dir_on_disk();
        for injection in ["signal=KILL", "error=ENOSPC", "error=EIO"] {
            let injection = format!("pwrite64:{injection}:when={}", write.number);
            let ended = trace_in(
                temporary.path(),
                &arguments_with_little_memory(&made, out.path()),
                "pwrite64",
                Some(&injection),
            );
            let stderr = stderr_of(&ended.output);
            assert_eq!(relative_paths(temporary.path()), Vec::<String>::new(), "{injection}");
            if ended.is_killed {
                assert!(relative_paths(out.path()).iter().all(|name| name.starts_with("slotpress-partial-export-")));
                continue;
            }
            assert_eq!(ended.output.status.code(), Some(1), "{injection}: {stderr}");
            assert!(stderr.contains(text(temporary.path())), "{injection}: {stderr}");
            assert!(stderr.contains("--memory"), "{injection}: {stderr}");
            assert_eq!(
                relative_paths(out.path()),
                Vec::<String>::new(),
                "{injection}: the next run has removed what a kill left"
            );
        }
        let again = slotpress().args(arguments_with_little_memory(&made, out.path())).output().expect("runs");
        assert!(again.status.success());
        assert!(tree(out.path()) == tree(whole.path()));
    }
}

/// A limit on the size of files (RLIMIT_FSIZE) makes a write fail, as a full disk does.
#[test]
fn rows_beyond_the_file_size_limit_are_an_error() {
    needs!("prlimit");
    let made = make_synthetic_pair(&["--size", "48MiB"]);
    let out = temp_dir();
    let temporary = dir_on_disk();
    let mut command = Command::new("prlimit");
    command.arg("--fsize=1000000").arg(slotpress_path()).args(arguments_with_little_memory(&made, out.path()));
    command.env("TMPDIR", temporary.path());
    let output = command.output().expect("runs");
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write"), "{stderr}");
    assert!(stderr.contains(text(temporary.path())), "{stderr}");
    assert_eq!((relative_paths(out.path()), relative_paths(temporary.path())), (Vec::new(), Vec::new()));
}
