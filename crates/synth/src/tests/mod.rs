//! Reads ledgers from disk, and compares them with their bank files.

mod clients;
mod versions;

use std::collections::{BTreeMap, HashMap, HashSet};

use slotpress_base::NoProgress;
use slotpress_format::ledger::record::align8;
use slotpress_format::{
    BankFile, FieldReader, LatticeHash, ObsoleteFormat, ObsoleteLists, RECORD_HEADER_BYTES, RecordHeader, StorageFile,
    StorageKind, StorageMapItem, parse_storages_list, read_bank_file, scan_obsolete_accounts,
};

use super::*;

type Key = [u8; 32];

fn options(out_dir: &Path, size_bytes: u64) -> SynthOptions {
    SynthOptions::new(out_dir, size_bytes).seed(7u64).threads(2usize)
}

fn make(options: &SynthOptions) -> SynthReport {
    synth(options, &NoProgress).expect("a ledger")
}

/// Returns all files below a directory, with the hashes of their contents.
fn hash_files(directory: &Path) -> BTreeMap<PathBuf, blake3::Hash> {
    let mut files = BTreeMap::new();
    let mut unread_dirs = vec![directory.to_path_buf()];
    while let Some(dir) = unread_dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                unread_dirs.push(path);
            } else {
                let content = fs::read(&path).expect("a file");
                files.insert(path.strip_prefix(directory).expect("below").to_path_buf(), blake3::hash(&content));
            }
        }
    }
    files
}

/// A state as its lists describe it. Its storages are without obsolete records, and have the lengths in the
/// storage map.
struct ReadState {
    bank: BankFile,
    storages: Vec<(u64, Vec<u8>)>,
    file_bytes: u64,
    obsolete_count: u64,
}

fn read_state(state: &SynthState) -> ReadState {
    let bank_snapshot = state.path.join(format!("snapshots/{}", state.slot));
    let fastboot_version = fs::read(bank_snapshot.join("fastboot_version")).expect("the fastboot version");
    assert!([b"3.0.0", b"3.1.0"].contains(&&fastboot_version[..].try_into().expect("5 bytes")));
    assert_eq!(fs::read(bank_snapshot.join("version")).expect("the version"), b"1.2.0");
    let mut storage_map: HashMap<(u64, u64), u64> = HashMap::new();
    let bank = read_bank_file(&bank_snapshot.join(state.slot.to_string()), &mut |item: StorageMapItem| {
        assert_eq!(storage_map.insert((item.slot, item.id), item.length_bytes), None, "once in the map");
        Ok(())
    })
    .expect("the bank file reads to its end");

    let list = FieldReader::open(&bank_snapshot.join("storages_list"), "the list").expect("opened");
    let list = parse_storages_list(list).expect("the list");
    let obsolete_path = bank_snapshot.join("obsolete_accounts");
    let path = |slot, id| state.path.join(format!("accounts/run/{slot}.{id}"));
    let mut summaries = HashMap::new();
    scan_obsolete_accounts(
        FieldReader::open(&obsolete_path, "the list").expect("the list"),
        ObsoleteFormat::Wide,
        &|slot, id| {
            let file_bytes = fs::metadata(path(slot, id)).ok()?.len();
            let id = id as u32;
            let kind = StorageKind::AppendVec;
            Some(StorageFile { slot, id, dir_index: 0, file_bytes, modified_ns: 0, kind })
        },
        &mut |summary| {
            summaries.insert((summary.slot, summary.id), summary);
            Ok(())
        },
    )
    .expect("the obsolete records");
    let has_map = fastboot_version == b"3.0.0";
    assert_eq!((list.len(), storage_map.len()), (summaries.len(), if has_map { list.len() } else { 0 }));
    assert_eq!(list.iter().map(|(slot, _)| slot).collect::<HashSet<_>>().len(), list.len(), "one storage per slot");
    assert_eq!(list.iter().map(|(_, id)| id).collect::<HashSet<_>>().len(), list.len(), "ids are unique");

    let lists = ObsoleteLists::open(obsolete_path, ObsoleteFormat::Wide).expect("the list");
    let mut storages = Vec::new();
    let mut file_bytes = 0;
    let mut obsolete_count = 0;
    for (slot, id) in list {
        let content = fs::read(path(slot, u64::from(id))).expect("a storage of the list");
        file_bytes += content.len() as u64;
        let summary = &summaries[&(slot, u64::from(id))];
        obsolete_count += summary.count;
        let kept_ranges = lists.read_kept_ranges(summary.list_offset, summary.count, content.len() as u64);
        let kept_ranges = kept_ranges.expect("the kept ranges").into_iter();
        let mut bytes: Vec<u8> =
            kept_ranges.flat_map(|range| &content[range.start as usize..range.end as usize]).copied().collect();
        if has_map {
            let length = storage_map[&(slot, u64::from(id))];
            assert_eq!(bytes.len() as u64, align8(length), "storage {slot}.{id}");
            bytes.truncate(length as usize);
        }
        storages.push((slot, bytes));
    }
    ReadState { bank, storages, file_bytes, obsolete_count }
}

fn parse_records(storage: &[u8]) -> Vec<(RecordHeader, &[u8])> {
    let mut records = Vec::new();
    let mut offset = 0;
    while offset < storage.len() {
        let header = storage[offset..].first_chunk::<RECORD_HEADER_BYTES>().expect("a whole header");
        let header = RecordHeader::parse(header);
        let data_offset = offset + RECORD_HEADER_BYTES;
        records.push((header, &storage[data_offset..data_offset + header.data_len as usize]));
        offset += header.stored_bytes() as usize;
    }
    records
}

/// Returns the newest record of each account in the state.
fn newest_accounts(read: &ReadState) -> HashMap<Key, (RecordHeader, &[u8])> {
    let mut newest: HashMap<Key, (u64, RecordHeader, &[u8])> = HashMap::new();
    for (slot, storage) in &read.storages {
        for (header, data) in parse_records(storage) {
            let known = newest.entry(header.pubkey).or_insert((*slot, header, data));
            if known.0 < *slot {
                *known = (*slot, header, data);
            }
        }
    }
    newest.into_iter().map(|(key, (_, header, data))| (key, (header, data))).collect()
}

/// Computes the sums of a state from the newest record of each account, and compares them with the bank file
/// and the report.
fn assert_state_adds_up(state: &SynthState) -> ReadState {
    let read = read_state(state);
    for (_, storage) in &read.storages {
        let mut seen = HashSet::new();
        for (header, _) in parse_records(storage) {
            assert!(seen.insert(header.pubkey), "an address occurs once in a storage");
            assert!(header.executable <= 1);
            assert!(header.lamports > 0 || header.pubkey != [0; 32]);
        }
    }
    let mut lattice = LatticeHash::default();
    let mut capitalization = 0;
    let mut accounts = 0;
    let mut data_bytes = 0;
    for (header, data) in newest_accounts(&read).values().filter(|(header, _)| header.lamports > 0) {
        lattice.add_account(&header.account(data));
        capitalization += header.lamports;
        accounts += 1;
        data_bytes += header.data_len;
    }
    assert_eq!(read.bank.lattice_hash, lattice);
    assert_eq!(read.bank.capitalization, capitalization);
    assert_eq!(read.bank.accounts_data_bytes, data_bytes);
    assert_eq!(read.bank.slot, state.slot);
    assert_eq!((state.hash, state.capitalization_lamports), (lattice.snapshot_hash(), capitalization));
    assert_eq!((state.accounts, state.storages), (accounts, read.storages.len() as u64));
    assert_eq!(read.bank.epoch(), read.bank.stakes_epoch);
    assert!(align8(state.storage_bytes) <= read.file_bytes);
    assert!(read.obsolete_count > 0);
    assert_eq!(read.storages.last().expect("storages").0, state.slot);
    read
}

#[test]
fn both_states_are_valid() {
    let temporary = tempfile::tempdir().expect("a directory");
    let out = temporary.path().join("ledger");
    let report = make(&SynthOptions { incremental_bytes: Some(1 << 20), ..options(&out, 4 << 20) });
    let [full, newer] = &report.states[..] else { panic!("two states") };
    assert_eq!((&full.path, &newer.path), (&out.join("at-full"), &out));
    let full = assert_state_adds_up(full);
    let newer = assert_state_adds_up(newer);

    // A lifelike ledger has emptied storages, newer versions, closed accounts, and stale files.
    assert!(full.storages.iter().any(|(_, storage)| storage.is_empty()));
    let full_slots: HashSet<u64> = full.storages.iter().map(|(slot, _)| *slot).collect();
    let full_addresses: HashSet<Key> =
        full.storages.iter().flat_map(|(_, storage)| parse_records(storage)).map(|(header, _)| header.pubkey).collect();
    let mut replaced = 0;
    let mut closed = 0;
    for (_, storage) in newer.storages.iter().filter(|(slot, _)| !full_slots.contains(slot)) {
        for (header, _) in parse_records(storage).iter().filter(|(header, _)| full_addresses.contains(&header.pubkey)) {
            if header.lamports == 0 { closed += 1 } else { replaced += 1 }
        }
    }
    assert!(replaced > 500, "{replaced} replaced");
    assert!(closed > 100, "{closed} closed");
    assert!(newer.obsolete_count > full.obsolete_count + 500);
    let file_count = fs::read_dir(out.join("accounts/run")).expect("run").count();
    assert_eq!(file_count, newer.storages.len() + 3, "with three stale files");
    let new_storages = newer.storages.iter().filter(|(slot, _)| !full_slots.contains(slot));
    let size: usize = new_storages.map(|(_, storage)| storage.len()).sum();
    assert!((800_000..1_300_000).contains(&size), "the incremental state has {size} bytes");
}

#[test]
fn one_state_is_valid_and_has_about_the_requested_size() {
    for (size, storage_count) in [(2 << 20, None), (SIZE_BYTES_MIN, Some(3)), (4 << 20, Some(3000)), (8 << 20, None)] {
        let temporary = tempfile::tempdir().expect("a directory");
        let report = make(&SynthOptions { storage_count, ..options(temporary.path(), size) });
        let state = &report.states[0];
        if storage_count != Some(3) {
            assert_state_adds_up(state);
            assert_eq!(state.storages, storage_count.unwrap_or(512));
        }
        let ratio = state.storage_bytes as f64 / size as f64;
        // A storage ends with a whole record, so tiny storages are larger than requested.
        assert!(
            (0.9..1.5).contains(&ratio),
            "{size} bytes requested, {} made in {storage_count:?}",
            state.storage_bytes
        );
    }
}

#[test]
fn bytes_depend_only_on_seed_and_options() {
    let make_with = |seed, threads| {
        let temporary = tempfile::tempdir().expect("a directory");
        let incremental_bytes = Some(1 << 18);
        let options = SynthOptions { seed, incremental_bytes, threads, ..options(temporary.path(), 1 << 20) };
        make(&options);
        hash_files(temporary.path())
    };
    let with_seed_7 = make_with(7, 1);
    assert_eq!(with_seed_7, make_with(7, 3));
    let with_seed_8 = make_with(8, 3);
    let same = with_seed_7.iter().filter(|(path, hash)| with_seed_8.get(*path) == Some(hash)).count();
    assert!(same <= 4, "{same} files do not depend on the seed");
}

#[test]
fn impossible_options_are_usage_errors() {
    let temporary = tempfile::tempdir().expect("a directory");
    let out = temporary.path().join("ledger");
    for options in [
        options(&out, SIZE_BYTES_MIN - 1),
        SynthOptions { incremental_bytes: Some(1), ..options(&out, 1 << 20) },
        SynthOptions { storage_count: Some(0), ..options(&out, 1 << 20) },
        SynthOptions { storage_count: Some(STORAGES_MAX + 1), ..options(&out, 1 << 20) },
    ] {
        assert_eq!(synth(&options, &NoProgress).expect_err("refused").kind(), slotpress_base::error::ErrorKind::Usage);
    }
    assert!(!out.exists());
}

#[test]
fn a_directory_with_files_is_refused() {
    let temporary = tempfile::tempdir().expect("a directory");
    let existing = temporary.path().join("existing");
    fs::create_dir(&existing).expect("a directory");
    fs::write(existing.join("file"), "kept").expect("a file");
    assert!(synth(&options(&existing, 1 << 20), &NoProgress).is_err());
    assert_eq!(hash_files(&existing).len(), 1);
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    struct Stop;
    impl Progress for Stop {
        fn is_interrupted(&self) -> bool {
            true
        }
    }
    let temporary = tempfile::tempdir().expect("a directory");
    let out = temporary.path().join("ledger");
    let error = synth(&options(&out, 1 << 20), &Stop).expect_err("interrupted");
    assert_eq!(error.kind(), slotpress_base::error::ErrorKind::Interrupted);
    assert!(!out.exists());
}

/// Returns the compression ratio in frames of an archive's default size.
fn compression_ratio(content: &[u8], level: i32) -> f64 {
    const FRAME_BYTES: usize = 8 << 20;
    let compressed: usize = content
        .par_chunks(FRAME_BYTES)
        .map(|frame| zstd::bulk::compress(frame, level).expect("it compresses").len())
        .sum();
    content.len() as f64 / compressed as f64
}

fn assert_is_near(measured: f64, published: f64, label: &str) {
    assert!((measured / published - 1.0).abs() < 0.05, "{label}: {measured:.3}, not {published}");
}

/// Makes the bank file of a ledger of this size, without its storages.
fn bank_file(size_bytes: u64, seed: u64, agave: AgaveVersion) -> Vec<u8> {
    let layout = SynthLayout::new(&SynthOptions::new("", size_bytes).seed(seed));
    let last = layout.full_count - 1;
    let bank = bank::Bank {
        universe: &layout.universe,
        height: SynthLayout::height(last),
        capitalization: 500_000_000_000_000_000,
        data_bytes: size_bytes / 2,
        lattice: &LatticeHash::default(),
        stakes: layout.stakes(last),
    };
    let mapped_count = if agave == AgaveVersion::V4_2 { layout.full_count as usize } else { 0 };
    let storage_map = (0..mapped_count).map(|index| {
        let storage = index as u64;
        let id = u64::from(layout.id(storage));
        StorageMapItem { slot: SynthLayout::slot(storage), id, length_bytes: layout.new_account_bytes(storage) }
    });
    let mut bytes = Vec::new();
    bank.write(&mut bytes, &storage_map.collect::<Vec<_>>()).expect("a bank file");
    bytes
}

/// Published compression ratios of mainnet's bank file, by level: `zstd -b1 -e4`.
const BANK_RATIOS: [(i32, f64); 4] = [(1, 2.337), (2, 2.486), (3, 2.500), (4, 2.513)];

/// The ledgers have different sizes, and their bank files are with and without a storage map.
#[test]
fn the_bank_file_compresses_like_that_of_mainnet() {
    for (mib, seed) in [(64, 1), (128, 2), (192, 3), (256, 4), (512, 5), (768, 6), (1024, 7), (4096, 8)] {
        for agave in [AgaveVersion::V4_2, AgaveVersion::V4_4] {
            let bytes = bank_file(mib << 20, seed, agave);
            for (level, published) in BANK_RATIOS {
                assert_is_near(
                    compression_ratio(&bytes, level),
                    published,
                    &format!("{mib} MiB, {agave:?}, level {level}"),
                );
            }
        }
    }
}

/// Agave pull request 2729 published mainnet's ratios for the archive; the bank file's ratios are
/// from `zstd -b1 -e4`.
#[test]
fn an_archive_compresses_like_that_of_mainnet() {
    const FRAME_BYTES: usize = 8 << 20;
    let temporary = tempfile::tempdir().expect("a directory");
    let report = make(&options(temporary.path(), 64 << 20));
    let state = &report.states[0];
    let slot = state.slot;
    let bank = fs::read(temporary.path().join(format!("snapshots/{slot}/{slot}"))).expect("the bank file");
    for (level, published) in BANK_RATIOS {
        assert_is_near(compression_ratio(&bank, level), published, "the bank file");
    }
    // As in a tar, each storage follows a header, and both are padded to 512 bytes.
    let mut archive = bank;
    for (slot, storage) in read_state(state).storages {
        archive.resize(archive.len().next_multiple_of(512), 0);
        let header = format!("accounts/{slot}.{slot:<80}0000644 {:011o}", storage.len());
        archive.extend_from_slice(header.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
        archive.extend_from_slice(&storage);
    }
    for (level, published) in [(1, 3.47), (3, 3.64)] {
        assert_is_near(compression_ratio(&archive, level), published, "the archive");
    }
    // Level 10 is slow, so it is compared with level 1 on one frame.
    assert_is_near(
        compression_ratio(&archive[..FRAME_BYTES], 10) / compression_ratio(&archive[..FRAME_BYTES], 1),
        3.78 / 3.47,
        "level 10 to 1",
    );
}
