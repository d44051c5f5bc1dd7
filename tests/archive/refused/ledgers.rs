//! Bad input is refused with a clear error: what failed, on which path, why, and what to do. No file is
//! written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use slotpress_base::NoProgress;
use slotpress_format::{FrameSpan, LedgerPaths, find_bank_snapshot};
use slotpress_read::{Plan, PlanOptions};
use tempfile::TempDir;

use crate::common::ledger_lists::{WIDE_ITEM_BYTES, list_field, obsolete_lists};
use crate::common::records::u64_at;
use crate::common::*;

/// A ledger that must not be archived, and an output directory.
struct Case {
    ledger: TempDir,
    out: TempDir,
}

impl Case {
    fn new(name: &str) -> Self {
        Self { ledger: ledger(name), out: temp_dir() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.ledger.path().join(path)
    }

    /// Asserts that `archive` fails with this exit code and these texts, and writes nothing.
    fn assert_fails(&self, flags: &[&str], code: i32, texts: &[&str]) {
        let before = relative_paths(self.out.path());
        let output =
            slotpress().arg("archive").arg(self.ledger.path()).arg("-o").arg(self.out.path()).args(flags).output();
        assert_error(output.expect("runs"), code, texts);
        assert_eq!(relative_paths(self.out.path()), before, "nothing is written");
    }
}

fn assert_error(output: std::process::Output, code: i32, texts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "nothing on stdout");
    assert!(stderr.starts_with("error: "), "{stderr}");
    for text in texts {
        assert!(stderr.contains(text), "{text:?} is not in: {stderr}");
    }
}

#[test]
fn missing_directories_are_refused() {
    let dir = temp_dir();
    let missing = dir.path().join("missing");
    let archive = |ledger: &Path, out: &Path| slotpress().arg("archive").arg(ledger).arg("-o").arg(out).output();
    assert_error(
        archive(&missing, dir.path()).expect("runs"),
        1,
        &["missing is not a directory", "hint: pass the validator's ledger directory"],
    );
    let ledger = ledger("ledger-at-26");
    assert_error(
        archive(ledger.path(), &missing).expect("runs"),
        1,
        &["the output directory ", "missing does not exist", "hint: create it: mkdir -p "],
    );
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    assert_error(archive(ledger.path(), &file).expect("runs"), 1, &["the output directory "]);
    assert_error(archive(dir.path(), dir.path()).expect("runs"), 1, &["holds no bank snapshot", "--snapshots"]);
    let mut restore = slotpress();
    restore.arg("restore").arg(&missing).arg("--ledger").arg(dir.path().join("x"));
    assert_error(restore.output().expect("runs"), 6, &["cannot open ", "missing: no such file or directory"]);
    assert!(!dir.path().join("x").exists());
}

#[test]
fn incomplete_bank_snapshots_are_refused() {
    let case = Case::new("ledger-at-3575");
    let hint = "hint: stop the validator with `agave-validator --ledger LEDGER exit`";
    case.assert_fails(
        &["--slot", "3550"],
        1,
        &["the file that a validator writes last, fastboot_version, is missing in 3550", hint],
    );
    case.assert_fails(&["--slot", "1"], 1, &["there is no bank snapshot", "hint: bank snapshots there: 3575, 3550"]);
    fs::remove_file(case.path("snapshots/3575/fastboot_version")).expect("removed");
    case.assert_fails(&[], 1, &["no complete bank snapshot in ", "fastboot_version, is missing in 3575, 3550", hint]);
    for missing in ["storages_list", "obsolete_accounts", "status_cache", "26"] {
        let case = Case::new("ledger-at-26");
        fs::remove_file(case.path("snapshots/26").join(missing)).expect("removed");
        case.assert_fails(&[], 3, &[missing, "is missing: the bank snapshot is not complete", hint]);
    }
}

/// No validator loads a damaged status cache, so `archive` reads it to its last byte before it writes.
#[test]
fn damaged_status_caches_are_refused() {
    let path = |case: &Case| case.path("snapshots/26/status_cache");
    let good = fs::read(path(&Case::new("ledger-at-26"))).expect("read");
    let future = [&1u64.to_le_bytes()[..], &27u64.to_le_bytes(), &[1], &0u64.to_le_bytes()].concat();
    for (content, text) in [
        (Vec::new(), "ends"),
        (b"<html>not found</html>".to_vec(), "offset"),
        (good[..good.len() - 1].to_vec(), "offset"),
        ([&good[..], &[0]].concat(), "offset"),
        (future, "slots up to 26"),
    ] {
        let case = Case::new("ledger-at-26");
        fs::write(path(&case), content).expect("written");
        case.assert_fails(&[], 3, &["status", text]);
    }
    // A hole of this length would take hours to read.
    let case = Case::new("ledger-at-26");
    let file = fs::File::options().write(true).open(path(&case)).expect("opened");
    file.set_len(1 << 40).expect("a sparse file");
    case.assert_fails(&[], 3, &["the status cache", "1 TiB", "16 GiB"]);
}

/// No client loads a bank file whose hash is not that of its parts.
#[test]
fn a_wrong_bank_hash_is_refused() {
    let case = Case::new("ledger-at-26");
    let path = case.path("snapshots/26/26");
    let mut bank = fs::read(&path).expect("read");
    let hash =
        expected_facts(AGAVE_4_2, 26)["bank_hash"].as_str().map(|hash| bs58::decode(hash).into_vec().expect("base58"));
    let hash = hash.expect("a hash");
    let offset = bank.windows(32).position(|bytes| bytes == hash).expect("the bank hash");
    bank[offset] ^= 1;
    fs::write(&path, bank).expect("written");
    case.assert_fails(&[], 3, &["the bank hash is not the hash of its parts", "let the validator write another one"]);
    case.assert_fails(&["--dry-run"], 3, &["the bank hash"]);
}

#[test]
fn unknown_layouts_are_refused() {
    for (version, code, text) in [
        (
            "6.0.0",
            1,
            "6.0.0, but slotpress knows only the layouts of Agave up to 4.5 (2.x, 3.x, 4.0, 5.0)\nhint: look for a newer",
        ),
        (
            "5.1.0",
            1,
            "5.1.0, but slotpress knows only the layouts of Agave up to 4.5 (2.x, 3.x, 4.0, 5.0)\nhint: look for a newer",
        ),
        // A list of version 3 is not valid as one of version 5.
        ("5.0.0", 3, "the storages list "),
        ("1.0.0", 1, "not a layout that slotpress knows"),
        ("", 1, "not a layout that slotpress knows"),
        ("three", 1, "not a layout that slotpress knows"),
    ] {
        let case = Case::new("ledger-at-26");
        fs::write(case.path("snapshots/26/fastboot_version"), version).expect("written");
        case.assert_fails(&[], code, &[text]);
    }
    let case = Case::new("ledger-at-26");
    for version in ["2.0.0", "", "rubbish", "1.2.0 and more"] {
        fs::write(case.path("snapshots/26/version"), version).expect("written");
        case.assert_fails(&[], 3, &["says snapshot version "]);
    }
    fs::File::create(case.path("snapshots/26/version")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    case.assert_fails(&[], 3, &["says snapshot version "]);
    for version in ["3.0.0", "3.1.0", "3.1.0\n"] {
        fs::write(case.path("snapshots/26/version"), "1.2.0").expect("written");
        fs::write(case.path("snapshots/26/fastboot_version"), version).expect("written");
        archive(case.ledger.path(), case.out.path(), &["--force"]);
    }
}

#[test]
fn the_ledger_of_a_running_validator_is_refused() {
    let case = Case::new("ledger-at-26");
    let lock = fs::File::create(case.path("ledger.lock")).expect("made");
    lock.lock().expect("locked");
    case.assert_fails(
        &[],
        1,
        &[
            "is in use: its lock ",
            " is held by ",
            &format!("(process {})", std::process::id()),
            "hint: stop the validator",
        ],
    );
    unlock(lock);
    archive(case.ledger.path(), case.out.path(), &[]);
}

#[test]
fn missing_storages_are_refused() {
    let case = Case::new("ledger-at-26");
    let storage = case.path("accounts/run/11.11");
    fs::remove_file(&storage).expect("removed");
    case.assert_fails(&[], 3, &["storage 11.11 of the storages list is not in ", "hint: name every accounts path"]);
    fs::create_dir(&storage).expect("made");
    case.assert_fails(&[], 3, &["11.11 is not a storage, because it is not a regular file"]);
    fs::remove_dir(&storage).expect("removed");
    std::os::unix::fs::symlink(case.path("accounts/run/12.12"), &storage).expect("linked");
    case.assert_fails(&[], 3, &["11.11 is not a storage, because it is not a regular file"]);
}

#[test]
fn truncated_storages_are_refused() {
    let case = Case::new("ledger-at-26");
    let storage = case.path("accounts/run/11.11");
    let content = fs::read(&storage).expect("read");
    fs::write(&storage, &content[..content.len() - 8]).expect("written");
    case.assert_fails(&[], 3, &["accounts/run/11.11: it is too short: ", "hint: the file was truncated or replaced"]);
}

#[test]
fn missing_accounts_paths_are_refused() {
    let case = Case::new("ledger-at-26");
    fs::remove_dir_all(case.path("accounts/run")).expect("removed");
    case.assert_fails(&[], 1, &["accounts/run is not a directory", "hint: name every accounts path"]);
}

#[test]
fn a_storage_in_two_accounts_paths_is_refused() {
    let case = Case::new("ledger-at-26");
    let other = temp_dir();
    copy_tree(&case.path("accounts"), &other.path().join("accounts"));
    let first = case.path("accounts");
    let second = other.path().join("accounts");
    case.assert_fails(
        &["--accounts", first.to_str().expect("text"), "--accounts", second.to_str().expect("text")],
        1,
        &["is in two accounts paths", "hint: pass only the accounts paths"],
    );
}

#[test]
fn a_storage_that_only_the_storage_map_lists_is_refused() {
    let case = Case::new("ledger-at-40-hard-links");
    let links = case.path("accounts/snapshot/40");
    let newest = relative_paths(&links).into_iter().find(|name| name.starts_with("40.")).expect("a storage");
    fs::remove_file(links.join(&newest)).expect("removed");
    case.assert_fails(&[], 1, &[&format!("storage {newest} of the bank file's storage map is missing")]);
}

/// Only root may read some files, and another user runs the program.
#[test]
fn unreadable_files_are_errors() {
    needs!("root");
    let case = Case::new("ledger-at-26");
    let program = UnprivilegedProgram::new();
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    let out = case.out.path().join("out");
    fs::create_dir(&out).expect("made");
    fs::write(case.path("ledger.lock"), "").expect("written");
    for dir in [case.out.path(), case.ledger.path()] {
        mode(dir, 0o755);
    }
    let run = || program.command().arg("archive").arg(case.ledger.path()).arg("-o").arg(&out).output().expect("runs");
    assert_error(run(), 1, &["cannot create ", "permission denied", "hint: run as the user that owns"]);
    mode(&out, 0o777);
    assert!(run().status.success(), "reading is enough");
    fs::remove_file(out.join(FULL_26)).expect("removed");
    mode(&case.path("accounts/run/11.11"), 0o600);
    assert_error(
        run(),
        1,
        &["cannot open ", "accounts/run/11.11: permission denied", "hint: run as the user that owns"],
    );
    assert_eq!(relative_paths(&out), Vec::<String>::new());
}

/// A file changes between planning and reading.
#[test]
fn a_storage_that_changes_while_it_is_read_is_refused() {
    let ledger = ledger("ledger-at-26");
    let paths = LedgerPaths { ledger: ledger.path().to_path_buf(), ..LedgerPaths::default() };
    let snapshot = || find_bank_snapshot(&paths, None, 1).expect("complete");
    let plan = || Plan::new(snapshot(), &PlanOptions::new(None, 2), &NoProgress).expect("planned");
    let fill = |plan: &Plan| {
        let length_bytes = plan.tar_bytes();
        let mut tar = vec![0; length_bytes as usize];
        plan.fill(&FrameSpan { first_entry: 0, offset_bytes: 0, length_bytes }, &mut tar)
    };
    fill(&plan()).expect("nothing changes");
    let storage = ledger.path().join("accounts/run/11.11");
    let content = fs::read(&storage).expect("read");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
    type Change<'a> = Box<dyn Fn() + 'a>;
    let changes: [(&str, Change<'_>); 4] = [
        ("touched", Box::new(|| fs::File::open(&storage).expect("open").set_modified(later).expect("touched"))),
        ("longer", Box::new(|| fs::write(&storage, [&content[..], &[0; 8]].concat()).expect("written"))),
        ("shorter", Box::new(|| fs::write(&storage, &content[..content.len() - 1000]).expect("written"))),
        ("gone", Box::new(|| fs::remove_file(&storage).expect("removed"))),
    ];
    for (label, change) in changes {
        let plan = plan();
        change();
        let error = fill(&plan).expect_err(label).to_string();
        assert!(error.contains("11.11"), "{error}");
        assert!(error.contains("changed while it was read") || label == "gone", "{error}");
        fs::write(&storage, &content).expect("written");
    }
    for file in ["snapshots/26/26", "snapshots/26/status_cache"] {
        let plan = plan();
        fs::File::open(ledger.path().join(file)).expect("open").set_modified(later).expect("touched");
        assert!(fill(&plan).expect_err(file).to_string().contains("changed while it was read"));
    }
}

/// One field of `obsolete_accounts` is changed: a record is outside the file, listed twice, or of a
/// storage that is not there.
#[test]
fn invalid_obsolete_records_are_refused() {
    let original = fs::read(Case::new("ledger-at-26").path("snapshots/26/obsolete_accounts")).expect("read");
    let lists = obsolete_lists(&original, WIDE_ITEM_BYTES);
    let list = lists.iter().find(|list| list.items.len() >= 2).expect("a storage with two obsolete records");
    let first_offset = list.items[0].start;
    let first_data_len = first_offset + 8;
    let second_offset = list.items[1].start;
    let list_slot = list.range.start + list_field::SLOT.start;
    let item_count = list.range.start + list_field::ITEM_COUNT.start;
    let storage_count = 0;
    let value = u64_at(&original, first_offset);
    for (label, field, changed_value, text) in [
        ("outside", first_offset, 1 << 40, "is outside the file of "),
        ("far outside", first_offset, u64::MAX - 7, "is outside the file of "),
        ("long", first_data_len, 1 << 40, "is outside the file of "),
        ("unaligned", first_offset, value + 4, "which is not a multiple of 8"),
        ("twice", second_offset, value, "overlap"),
        ("another storage", list_slot, 9_999, "but is missing"),
        ("too many", item_count, u64::MAX / 24, "obsolete records"),
        ("too many storages", storage_count, u64::MAX, "obsolete records"),
    ] {
        eprintln!("{label}");
        let case = Case::new("ledger-at-26");
        let mut changed = original.clone();
        changed[field..field + 8].copy_from_slice(&changed_value.to_le_bytes());
        fs::write(case.path("snapshots/26/obsolete_accounts"), changed).expect("written");
        case.assert_fails(&[], 3, &[text]);
    }
}

#[test]
fn truncated_files_of_a_bank_snapshot_are_refused() {
    for (file, text) in [("obsolete_accounts", "obsolete records"), ("26", "the bank file")] {
        let case = Case::new("ledger-at-26");
        let path = case.path("snapshots/26").join(file);
        let content = fs::read(&path).expect("read");
        fs::write(&path, &content[..content.len() - 1]).expect("written");
        case.assert_fails(&[], 3, &[text]);
    }
}

#[test]
fn invalid_base_slots_are_refused() {
    let case = Case::new("ledger-at-40");
    case.assert_fails(
        &["--base-slot", "40"],
        2,
        &["the base slot 40 is not below the bank snapshot's slot 40", "hint: "],
    );
    case.assert_fails(&["--base-slot", "41"], 2, &["the base slot 41 is not below"]);
    case.assert_fails(
        &["--base-slot", "26"],
        1,
        &["there is no full archive of slot 26 in ", "hint: put the full archive"],
    );
    fs::copy(fixture(FULL_26), case.out.path().join(FULL_26)).expect("copied");
    case.assert_fails(
        &["--base-slot", "25"],
        1,
        &[
            "the newest full archive below slot 40 in ",
            "is of slot 26, not of the base slot 25",
            "hint: use --base-slot 26",
        ],
    );
    // A newer full archive is in the ledger, or was downloaded.
    for dir in ["", "remote"] {
        let newer = case.path(dir).join(FULL_26.replace("-26-", "-30-"));
        fs::create_dir_all(newer.parent().expect("a parent")).expect("made");
        fs::copy(fixture(FULL_26), &newer).expect("copied");
        case.assert_fails(&["--base-slot", "26"], 1, &["is of slot 30, not of the base slot 26", "--force-base"]);
        fs::remove_file(newer).expect("removed");
    }
    archive(case.ledger.path(), case.out.path(), &["--base-slot", "25", "--force-base"]);
    // A full archive of the same slot, or of a later one, is not a newer base.
    archive(case.ledger.path(), case.out.path(), &[]);
    fs::copy(fixture(FULL_26), case.out.path().join(FULL_26.replace("-26-", "-41-"))).expect("copied");
    archive(case.ledger.path(), case.out.path(), &["--base-slot", "26"]);
}

#[test]
fn an_existing_archive_is_not_replaced() {
    let case = Case::new("ledger-at-26");
    let path = case.out.path().join(FULL_26);
    fs::write(&path, "precious").expect("written");
    case.assert_fails(&[], 5, &["already exists", "hint: --force replaces it, --skip-existing leaves it"]);
    assert_eq!(fs::read(&path).expect("read"), b"precious");
    archive(case.ledger.path(), case.out.path(), &["--force"]);
    assert_eq!(entries(&path).len(), 32);
    assert_eq!(relative_paths(case.out.path()), [FULL_26]);
}

#[test]
fn values_out_of_range_are_usage_errors() {
    let case = Case::new("ledger-at-26");
    for (flags, text) in [
        (["--zstd-level", "0"], "levels are 1 to 22"),
        (["--zstd-level", "23"], "levels are 1 to 22"),
        (["--zstd-level", "-1001"], "levels are 1 to 22"),
        (["--zstd-level", "fast"], "levels are 1 to 22"),
        (["--frame-size", "63KiB"], "a frame has 64KiB to 32MiB"),
        (["--frame-size", "33MiB"], "a frame has 64KiB to 32MiB"),
        (["--frame-size", "big"], "sizes look like 8MiB"),
        (["--memory", "1MiB"], "is too low for one worker"),
        (["--threads", "0"], "must be 1 to 1024"),
        (["--slot", "x"], "--slot"),
        (["--format", "rar"], "zstd, lz4, none"),
    ] {
        case.assert_fails(&flags, 2, &[text]);
    }
}

/// On a file system with little space, no file is left behind, and the error says what to do.
#[test]
fn a_full_disk_leaves_no_files() {
    needs!("sys_admin", "mount", "umount");
    let case = Case::new("ledger-at-26");
    let disk = Disk::mount("size=64k");
    let archived = slotpress().arg("archive").arg(case.ledger.path()).arg("-o").arg(disk.path()).output();
    let left = relative_paths(disk.path());
    let recompressed = slotpress().arg("recompress").arg(fixture(FULL_26)).arg("-o").arg(disk.path()).output();
    let mut restore = slotpress();
    restore.arg("restore").arg(fixture(FULL_26)).arg("--ledger").arg(disk.path().join("ledger"));
    let restored = restore.output();
    let left_by_restore = relative_paths(disk.path());
    assert_error(archived.expect("runs"), 1, &["not enough space under ", "hint: free some space"]);
    assert_error(recompressed.expect("runs"), 1, &["not enough space under ", "hint: free some space"]);
    assert_eq!(left, Vec::<String>::new());
    assert_error(restored.expect("runs"), 1, &["not enough space under ", "hint: free some space"]);
    assert_eq!(left_by_restore, Vec::<String>::new());
}
