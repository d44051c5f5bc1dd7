//! Ledgers of Agave 4.4 (no storage map in the bank file) and 4.5 (append vecs, split files, both).
//! Archives equal Agave's own, every command reads the ledgers, and missing or damaged files are
//! named.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use slotpress_base::NoProgress;
use slotpress_format::{FrameSpan, LedgerPaths, find_bank_snapshot};
use slotpress_read::{Plan, PlanOptions};
use tempfile::TempDir;

use crate::common::ledger_lists::{COMPACT_ITEM_BYTES, COUNT_BYTES, ObsoleteList, list_field, obsolete_lists};
use crate::common::records::{RECORD_HEADER_BYTES, field, record_ranges, u64_at};
use crate::common::*;

const CHAINS: [&str; 3] = [AGAVE_4_4, AGAVE_4_5, AGAVE_4_5_SPLIT];

/// Returns a storage without the padding in the header of each record. Agave 4.4 writes stray memory there.
fn clear_padding(mut storage: Vec<u8>) -> Vec<u8> {
    for range in record_ranges(&storage) {
        storage[range][field::PADDING].fill(0);
    }
    storage
}

/// Returns the content of an archive; for Agave 4.4, without the bytes that vary.
fn read_comparable(chain: &str, archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = contents(archive);
    if chain == AGAVE_4_4 {
        for (_, content) in contents.iter_mut().filter(|(path, _)| path.starts_with("accounts/")) {
            *content = clear_padding(std::mem::take(content));
        }
    }
    contents
}

fn assert_same_as_agave(chain: &str, ours: &Path, agave: &Path) {
    assert_eq!(name(ours), name(agave));
    let ours = read_comparable(chain, ours);
    let theirs = read_comparable(chain, agave);
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (path, content) in &ours {
        assert!(*content == theirs[path], "{chain}: {path} differs");
    }
}

fn verify(path: &Path) -> (Option<i32>, serde_json::Value) {
    let output = slotpress().arg("verify").arg(path).arg("--json").output().expect("runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("one line of JSON")).collect();
    (output.status.code(), serde_json::Value::Array(lines))
}

/// Small frames end in the middle of storages.
#[test]
fn archives_equal_those_of_agave() {
    for chain in CHAINS {
        let at_26 = ledger_of(chain, 26);
        let at_40 = ledger_of(chain, 40);
        let agave_full = fixture_of(chain, "snapshot-26-");
        let agave_incremental = fixture_of(chain, "incremental-snapshot-26-40-");
        for frame_size in ["64KiB", "8MiB"] {
            let out = temp_dir();
            let full = archive(at_26.path(), out.path(), &["--frame-size", frame_size]);
            assert_same_as_agave(chain, &full, &agave_full);
            assert_eq!(name(&full), expected_facts(chain, 26)["archive"]);
            assert_eq!(
                entries(&full).len() as u64,
                5 + expected_facts(chain, 26)["storages"].as_u64().expect("a number")
            );
            let incremental = archive(at_40.path(), out.path(), &["--base-slot", "26", "--frame-size", frame_size]);
            assert_same_as_agave(chain, &incremental, &agave_incremental);
        }
    }
}

/// Agave made no full archive of slot 40. The state check proves that the archive has the right
/// records.
#[test]
fn full_archives_of_slot_40_are_valid() {
    for chain in CHAINS {
        let ledger = ledger_of(chain, 40);
        let out = temp_dir();
        let hash = expected_facts(chain, 40)["snapshot_hash"].as_str().expect("a hash").to_string();
        for layout in ["verbatim", "clustered"] {
            let flags = ["--layout", layout, "--frame-size", "64KiB", "--force"];
            let full = archive(ledger.path(), out.path(), &flags);
            assert_eq!(name(&full), format!("snapshot-40-{hash}.tar.zst"));
            let (code, report) = verify(&full);
            assert_eq!(code, Some(0), "{chain}, {layout}: {report}");
            let contents = contents(&full);
            assert!(!contents.contains_key("accounts/26.26"), "stale");
            assert_eq!(contents.len() as u64, 5 + expected_facts(chain, 40)["storages"].as_u64().expect("a number"));
        }
    }
}

/// `verify` and `inspect` find the same in a ledger as in its archive, for every layout.
#[test]
fn ledgers_are_verified_and_inspected_like_their_archives() {
    for (chain, slot) in CHAINS.into_iter().flat_map(|chain| [(chain, 26), (chain, 40)]) {
        let ledger = ledger_of(chain, slot);
        let out = temp_dir();
        let expected = expected_facts(chain, slot);
        let (code, report) = verify(ledger.path());
        assert_eq!(code, Some(0), "{chain} at {slot}: {report}");
        let archive = archive(ledger.path(), out.path(), &[]);

        let inspect = |path: &Path, flags: &[&str]| -> Vec<serde_json::Value> {
            let output = slotpress().arg("inspect").arg(path).args(flags).arg("--json").output().expect("runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).expect("text");
            text.lines().map(|line| serde_json::from_str(line).expect("one line of JSON")).collect()
        };
        let inspection = &inspect(ledger.path(), &[])[0];
        let is_tagged = expected["fastboot_version"].as_str().expect("a version").starts_with('5');
        let layout = if is_tagged { "fastboot 4 or 5, tagged storages list" } else { "fastboot 3, storages list" };
        assert_eq!(inspection["layout"], layout);
        assert_eq!(inspection["split_storages"], expected["split_storages"].as_u64().unwrap_or(0));
        assert_eq!(inspection["storages"], expected["storages"]);
        assert_eq!(inspection["snapshot_hash"], expected["snapshot_hash"]);

        let mut ledger_lines = inspect(ledger.path(), &["--by-owner"]);
        let archive_lines = inspect(&archive, &["--by-owner"]);
        assert_eq!(ledger_lines[0]["accounts"], expected["accounts"]);
        let summary = ledger_lines[0].as_object_mut().expect("an object");
        assert_eq!(summary.remove("obsolete_records").expect("a count"), expected["obsolete_records"]);
        let obsolete_bytes = summary.remove("obsolete_bytes").expect("bytes").as_u64().expect("a number");
        let obsolete_records = expected["obsolete_records"].as_u64().expect("a number");
        assert!(obsolete_bytes >= obsolete_records * RECORD_HEADER_BYTES as u64, "{obsolete_bytes}");
        for (ledger_line, archive_line) in ledger_lines.iter_mut().zip(&archive_lines) {
            for field in archive_line.as_object().expect("an object").keys().filter(|key| *key != "path") {
                assert_eq!(ledger_line[field], archive_line[field], "{chain} at {slot}: {field}");
            }
        }
        let records = records::newest(&records::records(&archive));
        let largest = records.values().max_by_key(|record| record.data.len()).expect("records");
        let account = &inspect(ledger.path(), &["--account", &largest.pubkey])[0];
        assert_eq!(account["lamports"], largest.lamports);
        assert_eq!(account["data_bytes"].as_u64(), Some(largest.data.len() as u64));
    }
}

/// Frames may begin and end at any byte.
#[test]
fn any_part_of_a_split_ledger_can_be_filled() {
    let ledger = ledger_of(AGAVE_4_5_SPLIT, 40);
    let paths = LedgerPaths { ledger: ledger.path().to_path_buf(), ..LedgerPaths::default() };
    let snapshot = find_bank_snapshot(&paths, None, 2).expect("complete");
    let plan = Plan::new(snapshot, &PlanOptions::new(None, 2), &NoProgress).expect("planned");
    let mut tar = vec![0; plan.tar_bytes() as usize];
    let span = FrameSpan { first_entry: 0, offset_bytes: 0, length_bytes: plan.tar_bytes() };
    plan.fill(&span, &mut tar).expect("filled");
    for step_bytes in [1009, 4096, 70_001] {
        let mut at = 0;
        let mut first_entry = 0;
        let mut offset_bytes = 0;
        let lengths: Vec<u64> = plan.entry_lengths().collect();
        while at < tar.len() {
            let length_bytes = step_bytes.min(tar.len() - at) as u64;
            let mut part = vec![0xee; length_bytes as usize];
            plan.fill(&FrameSpan { first_entry, offset_bytes, length_bytes }, &mut part).expect("filled");
            assert!(part == tar[at..at + part.len()], "{length_bytes} bytes at {at}");
            at += part.len();
            offset_bytes += length_bytes;
            while first_entry < lengths.len() as u64 && offset_bytes >= lengths[first_entry as usize] {
                offset_bytes -= lengths[first_entry as usize];
                first_entry += 1;
            }
        }
    }
}

#[derive(PartialEq, Eq)]
struct Storage {
    slot: u64,
    id: u32,
}

/// Length of a split storage in `storages_list`: u32 1, u8 has_data_file, u32 id, u64 slot.
const LISTED_SPLIT_BYTES: usize = 17;
const LISTED_SPLIT_ID: Range<usize> = 5..9;
const LISTED_SPLIT_SLOT: Range<usize> = 9..17;

fn parse_split_item(item: &[u8]) -> Storage {
    let id = u32::from_le_bytes(item[LISTED_SPLIT_ID].try_into().expect("4 bytes"));
    Storage { slot: u64_at(item, LISTED_SPLIT_SLOT.start), id }
}

fn parse_split_list(list: &[u8]) -> Vec<Storage> {
    list[COUNT_BYTES..].chunks_exact(LISTED_SPLIT_BYTES).map(parse_split_item).collect()
}

/// Returns a list of split storages in which some are append vecs: u32 0, u32 id, u64 slot.
fn list_as_append_vecs(list: &[u8], append_vecs: &[Storage]) -> Vec<u8> {
    let mut changed = list[..COUNT_BYTES].to_vec();
    for item in list[COUNT_BYTES..].chunks_exact(LISTED_SPLIT_BYTES) {
        if append_vecs.contains(&parse_split_item(item)) {
            changed.extend_from_slice(&[0; 4]);
            changed.extend_from_slice(&item[LISTED_SPLIT_ID.start..]);
        } else {
            changed.extend_from_slice(item);
        }
    }
    changed
}

/// Returns the lists of obsolete records, in which those of some storages are empty.
fn empty_obsolete_lists(bytes: &[u8], emptied: &[Storage]) -> Vec<u8> {
    let mut changed = bytes[..COUNT_BYTES].to_vec();
    for ObsoleteList { slot, id, range, .. } in obsolete_lists(bytes, COMPACT_ITEM_BYTES) {
        if emptied.contains(&Storage { slot, id: id as u32 }) {
            let mut header = bytes[range][..list_field::END].to_vec();
            header[list_field::ID.end..].fill(0);
            changed.extend(header);
        } else {
            changed.extend_from_slice(&bytes[range]);
        }
    }
    changed
}

/// A copy of the split ledger at slot 26, half of whose storages are append vecs, over two accounts
/// paths.
struct MixedLedger {
    ledger: TempDir,
    second: TempDir,
}

impl MixedLedger {
    fn new() -> Self {
        let mixed = Self { ledger: ledger_of(AGAVE_4_5_SPLIT, 26), second: temp_dir() };
        fs::create_dir(mixed.second_run()).expect("made");
        let dir = mixed.ledger.path().join("snapshots/26");
        let storages_list = fs::read(dir.join("storages_list")).expect("read");
        let storages = parse_split_list(&storages_list);
        for storage in storages.iter().step_by(4) {
            mixed.move_to_second_path(storage);
        }
        let append_vecs: Vec<Storage> = storages.into_iter().skip(1).step_by(2).collect();
        let archived = contents(&fixture_of(AGAVE_4_5_SPLIT, "snapshot-26-"));
        for Storage { slot, id } in &append_vecs {
            let content = &archived[&format!("accounts/{slot}.{id}")];
            fs::write(mixed.first_run().join(format!("{slot}.{id}")), content).expect("written");
        }
        fs::write(dir.join("storages_list"), list_as_append_vecs(&storages_list, &append_vecs)).expect("written");
        // The append vecs come from an archive, so none of their records is obsolete.
        let obsolete = fs::read(dir.join("obsolete_accounts")).expect("read");
        fs::write(dir.join("obsolete_accounts"), empty_obsolete_lists(&obsolete, &append_vecs)).expect("written");
        mixed
    }

    fn first_run(&self) -> PathBuf {
        self.ledger.path().join("accounts/run")
    }

    fn second_run(&self) -> PathBuf {
        self.second.path().join("run")
    }

    /// Moves the files of a split storage; not every one has a `.data` file.
    fn move_to_second_path(&self, Storage { slot, id }: &Storage) {
        for ending in ["meta", "data"] {
            let path = self.first_run().join(format!("{slot}.{id}.{ending}"));
            if path.exists() {
                fs::copy(&path, self.second_run().join(name(&path))).expect("copied");
                fs::remove_file(path).expect("removed");
            }
        }
    }

    fn flags(&self, flag: &str) -> [String; 4] {
        let first = self.ledger.path().join("accounts");
        [flag.into(), first.display().to_string(), flag.into(), self.second.path().display().to_string()]
    }
}

#[test]
fn a_ledger_of_append_vecs_and_split_storages_is_archived() {
    let mixed = MixedLedger::new();
    let out = temp_dir();
    let flags = mixed.flags("--accounts");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let full = archive(mixed.ledger.path(), out.path(), &flags);
    assert_same_as_agave(AGAVE_4_5_SPLIT, &full, &fixture_of(AGAVE_4_5_SPLIT, "snapshot-26-"));
    slotpress().arg("verify").arg(mixed.ledger.path()).args(&flags).assert().success();
    slotpress()
        .args(["levels", "--levels", "1", "--repeat", "1"])
        .arg(mixed.ledger.path())
        .args(&flags)
        .assert()
        .success();
}

/// Asserts that `archive` fails with this exit code and these texts, and writes nothing.
fn assert_refused(ledger: &Path, code: i32, texts: &[&str]) {
    let out = temp_dir();
    let output = slotpress().arg("archive").arg(ledger).arg("-o").arg(out.path()).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for text in texts {
        assert!(stderr.contains(text), "{text:?} is not in: {stderr}");
    }
    assert!(relative_paths(out.path()).is_empty(), "nothing is written");
}

fn failures(report: &serde_json::Value) -> Vec<(String, String)> {
    let text = |line: &serde_json::Value, field: &str| line[field].as_str().unwrap_or_default().to_string();
    let failures = report[0]["failures"].as_array().expect("failures").iter();
    failures.map(|failure| (text(failure, "rule"), text(failure, "entry"))).collect()
}

/// In each layout, the error of `archive` and the report of `verify` name the missing storage.
#[test]
fn missing_storages_are_named() {
    for (chain, file) in [
        (AGAVE_4_4, "11.11"),
        (AGAVE_4_5, "11.11"),
        (AGAVE_4_5_SPLIT, "11.11.meta"),
        (AGAVE_4_5_SPLIT, "0.0.data"),
        (AGAVE_4_5_SPLIT, "0.0.meta"),
    ] {
        let ledger = ledger_of(chain, 26);
        fs::remove_file(ledger.path().join("accounts/run").join(file)).expect("removed");
        assert_refused(ledger.path(), 3, &[&format!("storage {file} of the storages list is not in "), "--accounts"]);
        let (code, report) = verify(ledger.path());
        assert_eq!(code, Some(3));
        let storage = file.trim_end_matches(".meta").trim_end_matches(".data");
        assert_eq!(failures(&report), [("missing-storage".to_string(), format!("accounts/{storage}"))], "{report}");
    }
}

/// Places in the files of a split storage (docs/snapshot-format.md#split-storages).
mod split {
    use std::ops::Range;

    pub const MINOR_VERSION: usize = 24;
    pub const UID: usize = 40;
    pub const FIRST_META_ENTRY: usize = 64;
    /// Place in a `.meta` entry.
    pub const DATA_LEN: Range<usize> = 84..88;
    /// Place in a `.meta` entry of the data, or of its offset in the `.data` file.
    pub const DATA_OR_OFFSET: usize = 88;
    pub const META_ALIGNMENT: usize = 32;
    /// Maximum length of data in a `.meta` file.
    pub const INLINE_DATA_BYTES_MAX: usize = 4008;
    pub const FIRST_DATA_ITEM: usize = 4096;
}

/// Returns the offset of the first entry in a `.meta` file whose data is in the `.data` file.
fn first_entry_with_long_data(meta: &[u8]) -> usize {
    let mut entry = split::FIRST_META_ENTRY;
    loop {
        let data_len = meta[entry..][split::DATA_LEN].try_into().expect("4 bytes");
        let data_len = u32::from_le_bytes(data_len) as usize;
        if data_len > split::INLINE_DATA_BYTES_MAX {
            return entry;
        }
        entry = (entry + split::DATA_OR_OFFSET + data_len).next_multiple_of(split::META_ALIGNMENT);
    }
}

/// Errors name a damaged split file and the offset in it. `verify` finds nothing else.
#[test]
fn damaged_split_files_are_named() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 6] = [
        ("11.11.meta", |bytes| bytes[0] = b'A', "11.11.meta: not the magic of a .meta file, at offset 0"),
        ("11.11.meta", |bytes| bytes[split::MINOR_VERSION] = 2, "11.11.meta: version 0.2.0"),
        ("0.0.data", |bytes| bytes[split::UID] ^= 1, "0.0.data: uid "),
        (
            "0.0.data",
            |bytes| bytes[split::FIRST_DATA_ITEM] ^= 1,
            "0.0.data: data of a different account than in the .meta file, at offset 4096",
        ),
        (
            "11.11.meta",
            |bytes| bytes.truncate(bytes.len() - 1),
            "11.11.meta: an entry that runs past the end of the file",
        ),
        ("0.0.data", |bytes| bytes.truncate(split::FIRST_DATA_ITEM), "past the end of that file at 4096"),
    ];
    for (file, change, text) in cases {
        let ledger = ledger_of(AGAVE_4_5_SPLIT, 26);
        let path = ledger.path().join("accounts/run").join(file);
        let mut bytes = fs::read(&path).expect("read");
        change(&mut bytes);
        fs::write(&path, bytes).expect("written");
        assert_refused(ledger.path(), 3, &[text]);
        let (code, report) = verify(ledger.path());
        assert_eq!(code, Some(3), "{report}");
        let storage = format!("accounts/{}", file.trim_end_matches(".meta").trim_end_matches(".data"));
        assert_eq!(failures(&report), [("ledger".to_string(), storage)], "{report}");
        assert!(report.to_string().contains(text), "{report}");
    }
}

#[test]
fn an_unaligned_offset_in_a_data_file_is_named() {
    let ledger = ledger_of(AGAVE_4_5_SPLIT, 26);
    let path = ledger.path().join("accounts/run/0.0.meta");
    let mut bytes = fs::read(&path).expect("read");
    let entry = first_entry_with_long_data(&bytes);
    bytes[entry + split::DATA_OR_OFFSET] = 8;
    fs::write(&path, bytes).expect("written");
    assert_refused(
        ledger.path(),
        3,
        &["0.0.meta: its data is at ", "not a multiple of 4096", &format!("at offset {entry}")],
    );
}

#[test]
fn obsolete_records_that_no_split_storage_holds_are_refused() {
    let ledger = ledger_of(AGAVE_4_5_SPLIT, 26);
    let path = ledger.path().join("snapshots/26/obsolete_accounts");
    let original = fs::read(&path).expect("read");
    let lists = obsolete_lists(&original, COMPACT_ITEM_BYTES);
    let first_offset = lists.iter().flat_map(|list| &list.items).next().expect("an obsolete record").start;
    let first_data_len = first_offset + 4;
    for (field, bytes, text) in [
        (first_offset, &[0xff; 4][..], "is outside the .meta file of"),
        (first_offset, &[3, 0, 0, 0], "which is not an entry of the file, or is listed twice"),
        (first_data_len, &[0xff; 8], "is outside the .meta file of"),
        (first_data_len, &[7], "which is not an entry of the file, or is listed twice"),
    ] {
        let mut changed = original.clone();
        changed[field..field + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, changed).expect("written");
        assert_refused(ledger.path(), 3, &[text]);
    }
}

/// In an unpacked archive without a storage map, only the state check finds a missing storage.
/// `archive` says so, or checks the state.
#[test]
fn an_unpacked_archive_without_a_map_is_archived_with_a_warning() {
    let unpacked = temp_dir();
    let out = temp_dir();
    unpack_into(&fixture_of(AGAVE_4_4, "snapshot-26-"), unpacked.path());
    let run = |flags: &[&str]| {
        let output = slotpress().arg("archive").arg(unpacked.path()).arg("-o").arg(out.path()).args(flags).output();
        let output = output.expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let warning = "missing storages were not detected";
    let (code, stderr) = run(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains(warning), "{stderr}");
    let again: PathBuf = out.path().join(&relative_paths(out.path())[0]);
    assert!(contents(&again) == contents(&fixture_of(AGAVE_4_4, "snapshot-26-")), "byte for byte");
    let (code, stderr) = run(&["--verify", "--force"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains(warning), "{stderr}");
    fs::remove_file(&again).expect("removed");
    fs::remove_file(unpacked.path().join("accounts/11.11")).expect("removed");
    let (code, stderr) = run(&["--verify"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("capitalization"), "{stderr}");
    assert!(relative_paths(out.path()).is_empty(), "nothing is written");
}
