//! Exports of wrong inputs, and with invalid flags, are refused and leave no files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::records::field;
use crate::common::*;
use crate::export::{assert_exported, assert_refused, export_rows, fixture_pair, read_manifest, run_export, stderr_of};

/// Snapshot hash of the fixtures' full archive, which differs from that of the pair.
const OTHER_HASH: &str = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";

/// Writes a copy of an archive whose first record is altered.
fn write_with_altered_record(archive: &Path, dir: &Path, alter: impl Fn(&mut [u8])) -> PathBuf {
    let mut entries = entries(archive);
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/")).expect("a storage");
    alter(&mut storage.content);
    let forged = dir.join(name(archive));
    write_archive(&forged, &entries);
    forged
}

#[test]
fn an_incremental_archive_alone_is_refused() {
    let [_, incremental] = fixture_pair("agave-4.2.2");
    assert_refused(&[&incremental], &[], 2, "full archive");
}

#[test]
fn archives_of_two_chains_are_refused() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let [_, other_incremental] = fixture_pair(AGAVE_4_5);
    assert_refused(&[&full, &other_incremental], &[], 3, "does not build on this full one");
}

#[test]
fn unexpected_states_are_refused() {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    assert_refused(&[&full, &incremental], &["--expect-hash", OTHER_HASH], 3, OTHER_HASH);
    assert_refused(&[&full], &["--expect-slot", "27"], 3, "27");
}

#[test]
fn flipped_bits_are_refused_or_change_no_row() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let damaged = dir.path().join(name(&full));
    let content = fs::read(&full).expect("read");
    let intact = export_rows(&[&full], &["--data", "full"]);
    let mut refused = 0;
    for offset in (500..content.len()).step_by(content.len() / 40) {
        let mut bytes = content.clone();
        bytes[offset] ^= 0x40;
        fs::write(&damaged, &bytes).expect("written");
        let out = temp_dir();
        let output = run_export(&[&damaged], out.path(), &[]);
        match output.status.code() {
            // Some bytes have no meaning, such as the padding of records.
            Some(0) => assert!(export_rows(&[&damaged], &["--data", "full"]) == intact, "{offset}"),
            code => {
                assert_eq!((code, relative_paths(out.path())), (Some(3), Vec::new()), "{offset}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn half_an_archive_is_refused() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let damaged = dir.path().join(name(&full));
    let content = fs::read(&full).expect("read");
    fs::write(&damaged, &content[..content.len() / 2]).expect("written");
    assert_refused(&[&damaged], &[], 3, "not all of its records can be read");
}

/// A record with wrong lamports is valid by itself, but then the state's sums are wrong.
#[test]
fn a_forged_record_is_refused_unless_the_state_is_not_checked() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let forged = write_with_altered_record(&full, dir.path(), |record| record[field::LAMPORTS.start] ^= 1);
    assert_refused(&[&forged], &[], 3, "do not add up to the bank file's capitalization");
    let out = temp_dir();
    assert_exported(&[&forged], out.path(), &["--check", "frames"]);
    assert_eq!(read_manifest(out.path())["state"], "not checked");
}

#[test]
fn invalid_flags_are_usage_errors() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let full = [full.as_path()];
    assert_refused(&full, &["--format", "csv"], 2, "CSV is written to standard output only");
    assert_refused(&full, &["--memcmp", "0"], 2, "--memcmp");
    assert_refused(&full, &["--memcmp", "0:0xzz"], 2, "--memcmp");
    assert_refused(&full, &["--data", "1:"], 2, "OFFSET:LENGTH");
    assert_refused(&full, &["--address", "x"], 2, "--address x");
    assert_refused(&full, &["--mint", "1"], 2, "--mint");
}

#[test]
fn an_empty_list_of_addresses_is_a_usage_error() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let list = dir.path().join("list");
    fs::write(&list, "# none\n").expect("written");
    assert_refused(&[&full], &["--address", &format!("@{}", text(&list))], 2, "lists no address");
}

#[test]
fn a_stream_of_two_tables_is_a_usage_error() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let output = run_export(&[&full], Path::new("-"), &["--table", "accounts,token-accounts"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}

/// The account is valid, but its lamports do not fit into the column. So this is not damage, which has exit
/// code 3.
#[test]
fn an_account_beyond_int64_is_refused() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let large = write_with_altered_record(&full, dir.path(), |record| {
        record[field::LAMPORTS].copy_from_slice(&(1u64 << 63).to_le_bytes());
    });
    let message = "is 9223372036854775808: a column of int64 ends at 9223372036854775807";
    assert_refused(&[&large], &["--check", "frames"], 1, message);
}

#[test]
fn too_little_memory_is_a_usage_error() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let message = "--memory 64 MiB is too little: one worker and the files that it writes need 152 MiB";
    assert_refused(&[&full], &["--memory", "64MiB"], 2, message);
    let two_tables = ["--table", "accounts,token-accounts", "--memory", "152MiB"];
    assert_refused(&[&full], &two_tables, 2, "need 163 MiB");
    let out = temp_dir();
    assert_exported(&[&full], out.path(), &["--memory", "152MiB"]);
}

/// An example in docs/export.md ends with `| head`.
#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let (read_end, write_end) = std::io::pipe().expect("a pipe");
    drop(read_end);
    let mut command = std::process::Command::new(slotpress_path());
    let output = command.arg("export").arg(&full).args(["-o", "-"]).stdout(write_end).output().expect("runs");
    let stderr = stderr_of(&output);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("the state was not checked"), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
}

/// If the output's disk is not mounted, the parent directory is missing. The export must not make it on
/// another disk.
#[test]
fn an_output_on_a_disk_that_is_not_mounted_is_refused() {
    let [full, _] = fixture_pair("agave-4.2.2");
    let dir = temp_dir();
    let output = run_export(&[&full], &dir.path().join("not-mounted/tables"), &[]);
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("not-mounted does not exist"), "{stderr}");
    assert!(stderr.contains("hint: mount its disk"), "{stderr}");
    assert_eq!(relative_paths(dir.path()), Vec::<String>::new(), "{stderr}");
}
