//! Compares the ledgers of all Agave versions. They have the same state, and differ only as
//! docs/snapshot-format.md#bank-snapshot says.

use super::*;

/// One ledger for each version of Agave.
struct Ledgers {
    files: Vec<BTreeMap<PathBuf, Vec<u8>>>,
    states: Vec<SynthState>,
}

fn make_ledgers() -> Ledgers {
    let mut ledgers = Ledgers { files: Vec::new(), states: Vec::new() };
    for agave in [AgaveVersion::V4_2, AgaveVersion::V4_4, AgaveVersion::V4_5] {
        let temporary = tempfile::tempdir().expect("a directory");
        let incremental_bytes = Some(INCREMENTAL_BYTES_MIN);
        let report = make(&SynthOptions { agave, incremental_bytes, ..options(temporary.path(), 2 << 20) });
        if agave == AgaveVersion::V4_4 {
            for state in &report.states {
                assert_state_adds_up(state);
            }
        }
        let contents = hash_files(temporary.path()).into_keys().map(|path| {
            let content = fs::read(temporary.path().join(&path)).expect("a file");
            (path, content)
        });
        ledgers.files.push(contents.collect());
        ledgers.states.extend(report.states.into_iter().last());
        assert_eq!(temporary.path().join("accounts/snapshot").is_dir(), agave != AgaveVersion::V4_5);
        assert!(temporary.path().join("accounts/run").is_dir());
    }
    ledgers
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

#[test]
fn only_the_lists_differ() {
    let Ledgers { files, states } = make_ledgers();
    let [v4_2, v4_4, v4_5] = &files[..] else { panic!("not three ledgers") };
    assert!(states.windows(2).all(|pair| (pair[0].slot, pair[0].hash) == (pair[1].slot, pair[1].hash)));
    let bank_snapshot = PathBuf::from(format!("snapshots/{}", states[0].slot));
    let path = |name: &str| bank_snapshot.join(name);
    for newer in [v4_4, v4_5] {
        let differing: Vec<&PathBuf> =
            newer.iter().filter(|(path, content)| v4_2.get(*path) != Some(content)).map(|(path, _)| path).collect();
        assert!(differing.iter().all(|path| path.to_string_lossy().contains("snapshots/")), "{differing:?}");
        assert_eq!(newer.len(), v4_2.len() + 2, "startup hints in both states");
        let hints = &newer[&path("startup_hints")];
        assert_eq!((hints.len(), u64_at(hints, 0), u32_at(hints, 8)), (20, 1, 0));
        assert_eq!(u64_at(hints, 12), states[0].accounts);
    }
    assert_eq!(v4_4[&path("storages_list")], v4_2[&path("storages_list")]);
    assert_eq!(v4_4[&path("obsolete_accounts")], v4_2[&path("obsolete_accounts")]);
    let bank = path(&states[0].slot.to_string());
    assert_eq!(v4_4[&bank], v4_5[&bank]);
    assert_eq!(v4_2[&bank].len() - v4_4[&bank].len(), 32 * states[0].storages as usize, "the storage map is empty");
    let versions = files.iter().map(|files| &files[&path("fastboot_version")][..]);
    assert_eq!(versions.collect::<Vec<_>>(), [&b"3.0.0"[..], b"3.1.0", b"5.0.0"]);
}

#[test]
fn the_lists_of_4_5_have_the_same_content() {
    let Ledgers { files, states } = make_ledgers();
    let file =
        |version: usize, name: &str| &files[version][&PathBuf::from(format!("snapshots/{}/{name}", states[0].slot))];

    let old = file(0, "storages_list");
    let tagged = file(2, "storages_list");
    assert_eq!(old[..8], tagged[..8]);
    let items = old[8..].chunks(12).map(|item| (0, u32_at(item, 8), u64_at(item, 0)));
    let tagged_items = tagged[8..].chunks(16).map(|item| (u32_at(item, 0), u32_at(item, 4), u64_at(item, 8)));
    assert_eq!(items.collect::<Vec<_>>(), tagged_items.collect::<Vec<_>>());

    let old = file(0, "obsolete_accounts");
    let new = file(2, "obsolete_accounts");
    assert_eq!(old[..8], new[..8]);
    let mut old_offset = 8;
    let mut new_offset = 8;
    let mut records = 0;
    for _ in 0..u64_at(old, 0) {
        assert_eq!(old[old_offset..old_offset + 32], new[new_offset..new_offset + 32], "slot, id, bytes, count");
        let count = u64_at(old, old_offset + 24);
        (old_offset, new_offset, records) = (old_offset + 32, new_offset + 32, records + count);
        for _ in 0..count {
            assert_eq!(u64_at(old, old_offset), 8 * u64::from(u32_at(new, new_offset)));
            assert_eq!(old[old_offset + 8..old_offset + 24], new[new_offset + 4..new_offset + 20]);
            (old_offset, new_offset) = (old_offset + 24, new_offset + 20);
        }
    }
    assert_eq!((old_offset, new_offset), (old.len(), new.len()));
    assert!(records > 100);
}
