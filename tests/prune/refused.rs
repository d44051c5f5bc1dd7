//! Directories that are not pruned.

use std::fs;
use std::path::Path;

use crate::common::listed::file_names;
use crate::common::served::two_archives;
use crate::common::*;

/// A target of `publish` has an index, which would still name the deleted archives.
#[test]
fn a_target_of_publish_is_not_pruned() {
    let json = format!(r#"{{"version":1,"archives":[{{"name":"{FULL_26}"}}]}}"#);
    for path in ["latest.json", "api/v1/archives"] {
        let dir = two_archives();
        let index = dir.path().join(path);
        fs::create_dir_all(index.parent().expect("a directory")).expect("made");
        fs::write(&index, &json).expect("written");
        let prune = || {
            let flags = ["--keep-full", "0", "--keep-incremental", "0"];
            slotpress().arg("prune").arg(dir.path()).args(flags).output().expect("runs")
        };
        let output = prune();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{path}: {stderr}");
        assert!(stderr.contains("hint: let `slotpress publish` prune it"), "{path}: {stderr}");
        // A file that is not an index belongs to no publisher.
        fs::write(&index, "{}").expect("written");
        assert!(prune().status.success(), "{path}");
    }
}

/// If the index's path exists but cannot be read, it may be an index, so no archive is removed.
#[test]
fn a_directory_whose_index_cannot_be_read_is_not_pruned() {
    type Make = fn(&Path);
    let too_long: Make = |path| fs::File::create(path).and_then(|file| file.set_len((8 << 20) + 1)).expect("made");
    let directory: Make = |path| fs::create_dir(path).expect("made");
    let link: Make = |path| std::os::unix::fs::symlink("elsewhere", path).expect("made");
    for path in ["latest.json", "api/v1/archives"] {
        for (message, make) in [("exceeds the", too_long), ("is not a file", directory), ("symbolic link", link)] {
            let dir = two_archives();
            let index = dir.path().join(path);
            fs::create_dir_all(index.parent().expect("a directory")).expect("made");
            make(&index);
            let before = file_names(dir.path());
            let flags = ["--keep-full", "0", "--keep-incremental", "0", "--unusable"];
            let output = slotpress().arg("prune").arg(dir.path()).args(flags).output().expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{path}: {stderr}");
            for part in [message, text(&index), "hint: "] {
                assert!(stderr.contains(part), "{path}: {stderr}");
            }
            assert_eq!(file_names(dir.path()), before);
        }
    }
    // The file `api` takes the place of the index's directory, so there can be no index.
    let dir = two_archives();
    fs::write(dir.path().join("api"), "").expect("written");
    slotpress().arg("prune").arg(dir.path()).args(["--keep-full", "1", "--keep-incremental", "1"]).assert().success();
}
