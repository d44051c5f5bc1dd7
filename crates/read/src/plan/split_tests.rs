use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proptest::prelude::*;
use slotpress_base::ErrorKind;
use slotpress_format::ledger::record::align8;
use slotpress_format::{ObsoleteItem, modified_ns};

use super::*;

/// Length of the longest data that is stored in the `.meta` file.
const INLINE_BYTES_MAX: usize = 4008;

#[derive(Clone, Debug)]
struct Account {
    data_len: usize,
    is_obsolete: bool,
}

/// A split storage as docs/snapshot-format.md#split-storages describes it, and the append vec that
/// it becomes in an archive.
#[derive(Debug)]
struct SplitFixture {
    meta: Vec<u8>,
    data: Vec<u8>,
    obsolete: Vec<ObsoleteItem>,
    entry: Vec<u8>,
}

fn file_header(magic: &[u8; 16]) -> Vec<u8> {
    let mut header = magic.to_vec();
    for field in [0, 1, 0, 0xfeed_u64, 0, 0] {
        header.extend_from_slice(&field.to_le_bytes());
    }
    header
}

fn split_fixture(accounts: &[Account]) -> SplitFixture {
    let meta = file_header(b"agave meta file\0");
    let data = file_header(b"agave data file\0");
    let mut fixture = SplitFixture { meta, data, obsolete: Vec::new(), entry: Vec::new() };
    for (number, Account { data_len, is_obsolete }) in accounts.iter().enumerate() {
        let SplitFixture { meta, data, obsolete, entry } = &mut fixture;
        let content: Vec<u8> = (0..*data_len).map(|index| (index * 7 + number) as u8 | 1).collect();
        let pubkey = [number as u8 + 1; 32];
        meta.resize(meta.len().next_multiple_of(32), 0);
        let offset = meta.len() as u64;
        meta.extend_from_slice(&pubkey);
        meta.extend_from_slice(&[0xaa; 32]); // owner
        meta.extend_from_slice(&[3; 8]); // lamports
        meta.extend_from_slice(&[0xff; 8]); // rent epoch
        meta.extend_from_slice(&[(number % 2) as u8, 9, 9, 9]); // executable flag, padding
        meta.extend_from_slice(&(*data_len as u32).to_le_bytes());
        if *data_len <= INLINE_BYTES_MAX {
            meta.extend_from_slice(&content);
        } else {
            data.resize(data.len().next_multiple_of(4096), 0);
            meta.extend_from_slice(&(data.len() as u64).to_le_bytes());
            data.extend_from_slice(&pubkey);
            data.extend_from_slice(&(*data_len as u32).to_le_bytes());
            data.extend_from_slice(&content);
        }
        if *is_obsolete {
            obsolete.push(ObsoleteItem { offset, data_len: *data_len as u64 });
            continue;
        }
        entry.extend_from_slice(&[0; 8]);
        entry.extend_from_slice(&(*data_len as u64).to_le_bytes());
        entry.extend_from_slice(&pubkey);
        entry.extend_from_slice(&[3; 8]);
        entry.extend_from_slice(&[0xff; 8]);
        entry.extend_from_slice(&[0xaa; 32]);
        entry.extend_from_slice(&[(number % 2) as u8]);
        entry.extend_from_slice(&[0; 39]);
        entry.extend_from_slice(&content);
        entry.resize(align8(entry.len() as u64) as usize, 0);
    }
    fixture
}

fn any_accounts() -> impl Strategy<Value = Vec<Account>> {
    let length = prop_oneof![
        4 => Just(0usize),
        8 => 0usize..400,
        4 => 3990usize..4030,
        2 => 4009usize..20_000,
        1 => 200_000usize..900_000,
    ];
    let account = (length, prop::bool::weighted(0.3));
    let account = account.prop_map(|(data_len, is_obsolete)| Account { data_len, is_obsolete });
    proptest::collection::vec(account, 0..30)
}

fn write_storage(dir: &Path, fixture: &SplitFixture, has_data: bool) -> StorageFile {
    let stat = |extension: &str, bytes: &[u8]| {
        let path = dir.join(format!("7.9.{extension}"));
        fs::write(&path, bytes).expect("written");
        let metadata = fs::metadata(&path).expect("metadata");
        (metadata.len(), modified_ns(metadata.mtime(), metadata.mtime_nsec()))
    };
    let (file_bytes, meta_modified_ns) = stat("meta", &fixture.meta);
    let data = has_data.then(|| {
        let (file_bytes, modified_ns) = stat("data", &fixture.data);
        StorageFileStat { file_bytes, modified_ns }
    });
    let kind = StorageKind::Split { data };
    StorageFile { slot: 7, id: 9, dir_index: 0, file_bytes, modified_ns: meta_modified_ns, kind }
}

/// Scans and reads a whole storage; returns the bytes of its archive entry.
fn read_whole(dir: &Path, fixture: &SplitFixture, has_data: bool) -> Result<(Vec<u8>, StorageLength)> {
    let storage = write_storage(dir, fixture, has_data);
    let storage_dir = StorageDir::open(dir.to_path_buf()).expect("opened");
    let opened = SplitStorage::open(&storage_dir, &storage, IoHint::Gentle)?;
    let scanned = opened.scan(&fixture.obsolete, &mut Vec::new(), &mut |_| Ok(()))?;
    // Damaged files must not exhaust memory: an entry is at most twice as long as both files.
    assert!(scanned.content_bytes <= (fixture.meta.len() + fixture.data.len()) as u64 * 2, "bounded by the files");
    let mut whole = vec![0xee; scanned.content_bytes as usize];
    opened.read(&scanned.checkpoints, &fixture.obsolete, 0, &mut whole)?;
    Ok((whole, scanned))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole or in pieces from any offset, a split storage reads as its append vec.
    #[test]
    fn any_part_is_read_as_part_of_the_append_vec(
        accounts in any_accounts(),
        pieces in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 12),
    ) {
        let fixture = split_fixture(&accounts);
        let dir = tempfile::tempdir().expect("a directory");
        let has_data = accounts.iter().any(|account| account.data_len > INLINE_BYTES_MAX);
        let (whole, scanned) = read_whole(dir.path(), &fixture, has_data).expect("valid");
        prop_assert!(whole == fixture.entry);
        prop_assert!(scanned.checkpoints.len() as u64 <= scanned.content_bytes / CHECKPOINT_BYTES);

        let storage = write_storage(dir.path(), &fixture, has_data);
        let storage_dir = StorageDir::open(dir.path().to_path_buf()).expect("opened");
        let opened = SplitStorage::open(&storage_dir, &storage, IoHint::None).expect("opened");
        for (from, length) in pieces {
            let from = from.index(whole.len() + 1);
            let length = length.index(whole.len() - from + 1);
            let mut buf = vec![0xee; length];
            opened.read(&scanned.checkpoints, &fixture.obsolete, from as u64, &mut buf).expect("read");
            prop_assert!(buf == whole[from..from + length], "{length} bytes from {from}");
        }
        let mut too_long = vec![0; whole.len() + 1];
        let error = opened.read(&scanned.checkpoints, &fixture.obsolete, 0, &mut too_long).expect_err("past the end");
        prop_assert!(error.to_string().contains("changed while it was read"));
    }

    /// Damaged files and wrong lists of obsolete records lead to other accounts, or to an error that
    /// names the file, but never to a panic.
    #[test]
    fn damage_never_panics(
        accounts in any_accounts(),
        changes in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of((any::<bool>(), any::<prop::sample::Index>())),
        has_data in any::<bool>(),
        obsolete in proptest::collection::vec((0u64..4000, 0u64..5000), 0..3),
    ) {
        let mut fixture = split_fixture(&accounts);
        for (is_meta, index, value) in changes {
            let file = if is_meta { &mut fixture.meta } else { &mut fixture.data };
            let offset = index.index(file.len());
            file[offset] = value;
        }
        if let Some((is_meta, index)) = cut {
            let file = if is_meta { &mut fixture.meta } else { &mut fixture.data };
            file.truncate(index.index(file.len() + 1));
        }
        fixture.obsolete.extend(obsolete.into_iter().map(|(units, data_len)| ObsoleteItem { offset: units * 32, data_len }));
        fixture.obsolete.sort_unstable_by_key(|item| item.offset);
        let dir = tempfile::tempdir().expect("a directory");
        if let Err(error) = read_whole(dir.path(), &fixture, has_data) {
            prop_assert_eq!(error.kind(), ErrorKind::Damaged, "{}", error);
            prop_assert!(error.to_string().contains("7.9."), "{}", error);
        }
    }
}

/// Each damaged field is reported with what is wrong and its position.
#[test]
fn errors_name_the_damaged_field_and_its_offset() {
    let lengths = [0, 165, 5000, 4008, 9000];
    let accounts = lengths.map(|data_len| Account { data_len, is_obsolete: false });
    let intact = split_fixture(&accounts);
    // Entries begin at 64. Their lengths are 96 (88, padded), 256 (88 + 165, padded), 96 (88 + 8) and
    // 4096 (88 + 4008).
    let [third, fifth] = [64 + 96 + 256, 64 + 96 + 256 + 96 + 4096];
    assert_eq!(intact.meta.len(), fifth + 96);
    type Change = Box<dyn Fn(&mut SplitFixture)>;
    let overwrite = |file_of: fn(&mut SplitFixture) -> &mut Vec<u8>, offset: usize, bytes: &[u8]| -> Change {
        let bytes = bytes.to_vec();
        Box::new(move |fixture| file_of(fixture)[offset..offset + bytes.len()].copy_from_slice(&bytes))
    };
    let meta = |offset, bytes: &[u8]| overwrite(|fixture| &mut fixture.meta, offset, bytes);
    let data = |offset, bytes: &[u8]| overwrite(|fixture| &mut fixture.data, offset, bytes);
    let cases: Vec<(Change, &str)> = vec![
        (meta(0, b"agave data file"), "7.9.meta: not the magic of a .meta file, at offset 0"),
        (data(0, b"x"), "7.9.data: not the magic of a .data file, at offset 0"),
        (meta(24, &[2]), "7.9.meta: version 0.2.0 of split files, but slotpress knows only 0.1.0, at offset 16"),
        (data(32, &[1]), "7.9.data: version 0.1.1 of split files, but slotpress knows only 0.1.0, at offset 16"),
        (data(40, &[1]), "7.9.data: uid 000000000000fe01, but the .meta file has 000000000000feed, at offset 40"),
        (
            meta(third + 84, &[0xff; 4]),
            "7.9.meta: an account of 4294967295 bytes of data; the maximum is 10485760, at offset 416",
        ),
        (
            meta(third + 88, &[1]),
            "its data is at byte 4097 of the .data file, which is not a multiple of 4096, at offset 416",
        ),
        (
            meta(third + 88, &[0; 2]),
            "its data is at byte 0 of the .data file, but must be at byte 4096 or later, at offset 416",
        ),
        (
            meta(fifth + 88, &[0, 0x10]),
            "its data is at byte 4096 of the .data file, but must be at byte 12288 or later",
        ),
        (meta(third + 88, &[0, 0, 0, 1]), "past the end of that file at 21324, at offset 416"),
        (meta(third + 88, &[0xff; 8]), "which is not a multiple of 4096"),
        (meta(third, &[0]), "7.9.data: data of a different account than in the .meta file, at offset 4096"),
        (data(4096 + 32, &[0]), "7.9.data: 4864 bytes of data, but the .meta file says 5000, at offset 4096"),
        (
            Box::new(|fixture| fixture.meta.truncate(fixture.meta.len() - 1)),
            "an entry that runs past the end of the file, at offset 4608",
        ),
        (
            Box::new(|fixture| fixture.meta.extend_from_slice(&[0; 33])),
            "an entry that runs past the end of the file, at offset 4704",
        ),
        (Box::new(|fixture| fixture.meta.truncate(63)), "7.9.meta: 63 bytes, shorter than the file's header"),
        (Box::new(|fixture| fixture.data.truncate(1)), "7.9.data: 1 byte, shorter than the file's header"),
        (
            Box::new(|fixture| fixture.obsolete.push(ObsoleteItem { offset: 96, data_len: 0 })),
            "7.9.meta: an obsolete record at offset 96 with 0 bytes of data, which is not an entry of the file, or is listed twice",
        ),
        (
            Box::new(|fixture| fixture.obsolete.push(ObsoleteItem { offset: 160, data_len: 9 })),
            "an obsolete record at offset 160",
        ),
        (
            Box::new(|fixture| fixture.obsolete.push(ObsoleteItem { offset: 1 << 30, data_len: 9 })),
            "an obsolete record at offset",
        ),
        (
            Box::new(|fixture| fixture.obsolete = vec![ObsoleteItem { offset: 64, data_len: 0 }; 2]),
            "an obsolete record at offset 64",
        ),
    ];
    for (change, expected) in cases {
        let mut fixture = split_fixture(&accounts);
        change(&mut fixture);
        let dir = tempfile::tempdir().expect("a directory");
        let error = read_whole(dir.path(), &fixture, true).expect_err(expected);
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains(expected), "{error}\n{expected}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let error = read_whole(dir.path(), &intact, false).expect_err("no .data file").to_string();
    assert!(error.contains("5000 bytes of data, but the storage has no .data file, at offset 416"), "{error}");
    assert!(read_whole(dir.path(), &intact, true).expect("valid").0 == intact.entry);
}

#[test]
fn a_file_that_changed_after_planning_is_not_called_damaged() {
    let accounts = [165, 5000].map(|data_len| Account { data_len, is_obsolete: false });
    let fixture = split_fixture(&accounts);
    for extension in ["meta", "data"] {
        let dir = tempfile::tempdir().expect("a directory");
        let storage = write_storage(dir.path(), &fixture, true);
        let storage_dir = StorageDir::open(dir.path().to_path_buf()).expect("opened");
        let opened = SplitStorage::open(&storage_dir, &storage, IoHint::Gentle).expect("opened");
        let mut buf = vec![0; fixture.entry.len()];
        opened.read(&[], &[], 0, &mut buf).expect("unchanged");
        assert!(buf == fixture.entry);
        let file = fs::File::options().write(true).open(dir.path().join(format!("7.9.{extension}"))).expect("opened");
        file.set_len(100).expect("truncated");
        let error = opened.read(&[], &[], 0, &mut buf).expect_err("changed").to_string();
        assert!(error.contains(&format!("7.9.{extension} changed while it was read")), "{error}");
    }
}
