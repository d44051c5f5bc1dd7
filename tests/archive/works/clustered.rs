//! Clustered archives: the same accounts, in a different order.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::records::{RECORD_HEADER_BYTES, field, record_ranges};
use crate::common::*;

const CLUSTERED: [&str; 2] = ["--layout", "clustered"];

/// Makes a directory with a ledger, whose storages are larger and smaller than small frames.
fn dir_with_ledger() -> TempDir {
    let dir = temp_dir();
    synthetic_ledger(&dir.path().join("ledger"), 6 << 20, 12);
    dir
}

fn archive_with(ledger: &Path, out: &TempDir, flags: &[&[&str]]) -> PathBuf {
    let flags: Vec<&str> = flags.iter().copied().flatten().copied().chain(["--force"]).collect();
    archive(ledger, out.path(), &flags)
}

/// Returns the meaningful bytes of each record of a storage, sorted.
fn sorted_records(storage: &[u8]) -> Vec<Vec<u8>> {
    let compared_bytes = |range: Range<usize>| {
        let (header, data) = storage[range].split_at(RECORD_HEADER_BYTES);
        [&header[field::COMPARED], data].concat()
    };
    let mut records: Vec<Vec<u8>> = record_ranges(storage).into_iter().map(compared_bytes).collect();
    records.sort();
    records
}

fn assert_same_accounts(verbatim: &Path, clustered: &Path) {
    let before = entries(verbatim);
    let after = entries(clustered);
    assert_eq!(before.len(), after.len());
    let mut moved = 0;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.path, before.content.len()), (&after.path, after.content.len()));
        if before.path.starts_with("accounts/") {
            assert!(sorted_records(&before.content) == sorted_records(&after.content), "{}", before.path);
            moved += usize::from(before.content != after.content);
        } else {
            assert!(before.content == after.content, "{}", before.path);
        }
    }
    assert!(moved > 0, "nothing is clustered");
}

#[test]
fn clustering_changes_only_the_order() {
    let ledgers = dir_with_ledger();
    let out = temp_dir();
    let clustered_out = temp_dir();
    let fixtures = ["ledger-at-26", "ledger-at-40", "ledger-at-40-hard-links", "ledger-at-3575"].map(ledger);
    let paths = fixtures.iter().map(|dir| dir.path().to_path_buf()).chain([ledgers.path().join("ledger")]);
    for path in paths {
        for frame_size in ["64KiB", "1MiB", "8MiB"] {
            let size = ["--frame-size", frame_size];
            let verbatim = archive_with(&path, &out, &[&size]);
            let clustered = archive_with(&path, &clustered_out, &[&size, &CLUSTERED]);
            assert_same_accounts(&verbatim, &clustered);
        }
    }
}

#[test]
fn threads_and_recompressing_do_not_change_the_bytes() {
    let ledgers = dir_with_ledger();
    let out = temp_dir();
    let plain_out = temp_dir();
    let path = ledgers.path().join("ledger");
    let plain = archive_with(&path, &plain_out, &[&["--frame-size", "1MiB"]]);
    for (frame_size, layout) in [
        ("64KiB", "clustered"),
        ("700000", "clustered"),
        ("700000", "verbatim"),
        ("8MiB", "clustered"),
        ("8MiB", "verbatim"),
    ] {
        let settings = ["--frame-size", frame_size, "--layout", layout];
        let expected = fs::read(archive_with(&path, &out, &[&settings, &["--threads", "1"]])).expect("read");
        for threads in ["2", "3", "8"] {
            let again = archive_with(&path, &out, &[&settings, &["--threads", threads]]);
            assert!(fs::read(again).expect("read") == expected, "{threads} threads, frames of {frame_size}");
            slotpress()
                .args(["recompress", "--force", "--threads", threads])
                .args(settings)
                .arg(&plain)
                .arg("-o")
                .arg(out.path())
                .assert()
                .success();
            let recompressed = fs::read(out.path().join(name(&plain))).expect("read");
            assert!(recompressed == expected, "recompressed, {threads} threads, frames of {frame_size}");
        }
    }
}

/// A storage that contains an invalid record is archived unchanged, and the program says so.
#[test]
fn a_storage_with_an_invalid_record_is_not_clustered() {
    let ledgers = dir_with_ledger();
    let out = temp_dir();
    let path = ledgers.path().join("ledger");
    let before = contents(&archive_with(&path, &out, &[]));
    let (largest, content) = before
        .iter()
        .filter(|(path, _)| path.starts_with("accounts/"))
        .max_by_key(|(_, content)| content.len())
        .expect("a storage");
    let file = path.join("accounts/run").join(largest.trim_start_matches("accounts/"));
    let mut bytes = fs::read(&file).expect("read");
    bytes[96] = 7;
    fs::write(&file, bytes).expect("written");
    let output = slotpress()
        .arg("archive")
        .arg(&path)
        .arg("-o")
        .arg(out.path())
        .args(["--force", "--json"])
        .args(CLUSTERED)
        .output()
        .expect("runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    assert!(messages.contains("1 storage piece stored unchanged, not clustered"), "{messages}");
    let archive = fs::read_dir(out.path()).expect("a directory").next().expect("an archive").expect("an entry").path();
    let after = contents(&archive);
    assert!(after[largest][1000..] == content[1000..], "{largest} is clustered");
    assert!(before.iter().any(|(path, content)| path != largest && after[path] != *content), "nothing is clustered");
}

#[test]
fn a_level_without_zstd_is_a_usage_error() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let mut command = slotpress();
    command.arg("archive").arg(ledger.path()).arg("-o").arg(out.path());
    let output = command.args(["--zstd-level", "3", "--format", "none"]).output().expect("runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("applies only to zstd"), "{messages}");
}
