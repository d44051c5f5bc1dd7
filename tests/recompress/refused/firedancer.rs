//! Archives that only the Firedancer versions of their time load.

use std::path::Path;

use crate::common::firedancer::*;
use crate::common::*;

/// They are refused from files and from pipes, whether the state is checked or not. The oldest are also
/// refused with a base and as a base.
#[test]
fn archives_of_old_firedancers_are_refused() {
    let dir = temp_dir();
    let assert_refused = |source: &Path, more: &[&str]| {
        let mut recompress = command("recompress");
        let (code, _, stderr) = run_command_to_first_line(recompress.arg(source).args(more).arg("-o").arg(dir.path()));
        let unwrapped = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, 1, "{stderr}");
        for part in ["only Firedancer loads it", HINT, &name(source)] {
            assert!(unwrapped.contains(part), "{part}: {stderr}");
        }
        assert_eq!(relative_paths(dir.path()), [""; 0], "{stderr}");
    };
    for source in [full(OLD_CHAIN), full(CHAIN_WITHOUT_STAKES)] {
        for more in [&[][..], &["--check", "frames"]] {
            assert_refused(&source, more);
        }
        let mut piped = command("recompress");
        piped.args(["-", "-o"]).arg(dir.path()).stdin(std::fs::File::open(&source).expect("opened"));
        let output = piped.output().expect("runs");
        let unwrapped = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(1), "{unwrapped}");
        assert!(unwrapped.contains(HINT), "{unwrapped}");
        assert_eq!(relative_paths(dir.path()), [""; 0], "{unwrapped}");
    }
    assert_refused(&incremental(OLD_CHAIN), &["--base", text(&full(OLD_CHAIN))]);
    assert_refused(&incremental(OLD_CHAIN), &["--base", text(&fixture(FULL_26))]);
    let mut recompress = command("recompress");
    recompress.arg(fixture(INCREMENTAL_26_40)).arg("--base").arg(full(OLD_CHAIN));
    let (code, _, stderr) = run_command_to_first_line(recompress.arg("-o").arg(dir.path()));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("only Firedancer loads it"), "{stderr}");
}
