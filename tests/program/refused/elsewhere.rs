//! Directories that are not ledgers: no file is made in them.

use std::fs;

use crate::common::runs::*;
use crate::common::*;

#[test]
fn no_file_is_made_in_directories_that_are_not_ledgers() {
    let dir = temp_dir();
    let out = temp_dir();
    fs::create_dir(dir.path().join("snapshots")).expect("made");
    fs::write(dir.path().join("notes.txt"), "somebody's").expect("written");
    let before = tree(dir.path());
    for arguments in [
        vec!["verify", text(dir.path())],
        vec!["archive", text(dir.path()), "-o", text(out.path())],
        vec!["inspect", text(dir.path())],
        vec!["inspect", text(dir.path()), "--by-owner"],
        vec!["levels", text(dir.path()), "--levels", "1"],
    ] {
        let (code, stderr) = run_to_stderr(&arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {stderr}");
        assert!(tree(dir.path()) == before, "{arguments:?} made {:?}", relative_paths(dir.path()));
    }
}
