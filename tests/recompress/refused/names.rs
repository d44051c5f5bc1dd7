//! Output names that already exist.

use std::fs;

use crate::common::screen::*;
use crate::common::*;

/// A run ends at once if another run is making the same archive.
#[test]
fn a_second_run_for_one_name_is_refused() {
    let dir = temp_dir();
    let temporary = dir.path().join(format!("tmp-snapshot-archive-slotpress-{FULL_26}"));
    let held = fs::File::create(&temporary).expect("created");
    held.lock().expect("locked");
    let source = fixture(FULL_26);
    for more in [&["--skip-existing"][..], &[]] {
        let arguments = [&["recompress", text(&source), "-o", text(dir.path())], more].concat();
        assert_fails(&arguments, 5, &[&format!("{FULL_26} is being made by"), "hint: wait"]);
    }
    // A temporary file without a lock was left by a killed run.
    unlock(held);
    let (code, _, stderr) = run_to_text(&["recompress", text(&source), "-o", text(dir.path())]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(relative_paths(dir.path()), [FULL_26]);
}
