//! Differences between versions of Agave. `verify` reports each change at its place, and for the clients
//! that refuse it. If `AGAVE_ORACLE` names programs built on Agave's own loader, they must agree.

use std::path::Path;

use slotpress_base::NoProgress;
use slotpress_format::FieldReader;
use slotpress_read::{Rule, Snapshot, SnapshotClient, VerifyReport};

use crate::common::oracle::Oracle;
use crate::common::screen::{assert_fails, run_to_text};
use crate::common::{fixture_of, temp_dir, text};
use crate::verify::fixtures::*;

/// Offsets in a bank file.
pub struct BankOffsets {
    /// Items of the blockhash queue: hash, 8 bytes, index, 8 bytes.
    pub items: Vec<usize>,
    /// The bank hash.
    pub hash: usize,
}

impl BankOffsets {
    fn find(bank: &[u8]) -> Self {
        let count = u64_at(bank, 41) as usize;
        let ancestors_offset = 49 + 56 * count + 8;
        let ancestors = u64_at(bank, ancestors_offset) as usize;
        Self { items: (0..count).map(|index| 49 + 56 * index).collect(), hash: ancestors_offset + 8 + 16 * ancestors }
    }

    /// Returns the offset of the newest item, which has the highest index.
    pub fn newest(&self, bank: &[u8]) -> usize {
        *self.items.iter().max_by_key(|offset| u64_at(bank, **offset + 40)).expect("blockhashes")
    }
}

/// Offsets in a status cache.
struct CacheOffsets {
    /// The blockhashes that have transactions.
    blockhashes: Vec<usize>,
    /// The results of the transactions.
    results: Vec<usize>,
}

impl CacheOffsets {
    fn find(cache: &[u8]) -> Self {
        let u32_at = |offset: usize| u32::from_le_bytes(cache[offset..offset + 4].try_into().expect("4 bytes"));
        let mut blockhashes = Vec::new();
        let mut results = Vec::new();
        let mut offset = 8;
        for _ in 0..u64_at(cache, 0) {
            let count = u64_at(cache, offset + 9);
            offset += 17;
            for _ in 0..count {
                let transactions = u64_at(cache, offset + 40);
                if transactions > 0 {
                    blockhashes.push(offset);
                }
                offset += 48;
                for _ in 0..transactions {
                    assert_eq!(u32_at(offset + 20), 0, "all transactions of the fixture succeeded");
                    results.push(offset + 20);
                    offset += 24;
                }
            }
        }
        assert_eq!(offset, cache.len());
        Self { blockhashes, results }
    }
}

pub fn tar_with_changed_bank(change: impl Fn(&mut Vec<u8>, &BankOffsets)) -> Tar {
    let mut tar = Tar::read(FULL_26);
    let member = tar.member(is_bank_file);
    let mut bank = member.content.clone();
    let offsets = BankOffsets::find(&bank);
    change(&mut bank, &offsets);
    member.set_content(bank);
    tar
}

fn tar_with_changed_status_cache(change: impl Fn(&mut Vec<u8>, &CacheOffsets)) -> Tar {
    let mut tar = Tar::read(FULL_26);
    let member = tar.member(is_status_cache);
    let mut cache = member.content.clone();
    let offsets = CacheOffsets::find(&cache);
    change(&mut cache, &offsets);
    member.set_content(cache);
    tar
}

/// Returns a tar in which the result of a transaction, or of one of its instructions, is an error.
pub fn tar_with_transaction_error(error: &'static [u8]) -> Tar {
    tar_with_changed_status_cache(move |cache, offsets| {
        let offset = offsets.results[0];
        cache.splice(offset..offset + 4, error.iter().copied());
    })
}

/// Results of transactions that Agave 4.3 does not know.
pub const NEWER_ERRORS: [&[u8]; 2] = [&[1, 0, 0, 0, 39, 0, 0, 0], &[1, 0, 0, 0, 8, 0, 0, 0, 2, 54, 0, 0, 0]];

/// Checks that Agave's own loaders agree with the report, if `AGAVE_ORACLE` names any.
fn assert_agave_agrees(path: &Path, report: &VerifyReport, genesis: &Path) {
    for oracle in Oracle::all() {
        let answer = oracle.try_load(path, None, genesis);
        assert_eq!(answer.is_ok(), !refusing_clients(report).contains(&oracle.client), "{}: {answer:?}", oracle.client);
    }
}

/// Agave 4.4 and later write no storage map.
#[test]
fn archives_without_a_storage_map_are_valid() {
    for chain in ["agave-4.4.0", "agave-4.5.0-alpha.4", "agave-4.5.0-alpha.4-split"] {
        let full = fixture_of(chain, "snapshot-");
        for clients in [&[][..], &SnapshotClient::JUDGED_BY_DEFAULT] {
            let report = verify(&full, None, clients);
            assert!(report.ok, "{}", describe(&report));
            assert!(report.warnings.is_empty(), "{:?}", report.warnings);
            assert_eq!(report.unlisted_count, 0);
            assert_eq!(refusing_clients(&report), []);
        }
        assert_agave_agrees(&full, &verify(&full, None, &[]), full.parent().expect("a chain"));
    }
}

#[test]
fn older_versions_refuse_results_that_they_do_not_know() {
    for error in NEWER_ERRORS {
        let dir = temp_dir();
        let path = write_file(dir.path(), FULL_26, &compress(&tar_with_transaction_error(error).write()));
        let report = verify(&path, None, &[]);
        assert!(report.ok, "{}", describe(&report));
        assert!(report.warnings.is_empty(), "{:?}", report.warnings);
        assert_eq!(refusing_clients(&report), [SnapshotClient::Agave42, SnapshotClient::Agave43]);
        assert_agave_agrees(&path, &report, &agave_dir());
        let newer = [SnapshotClient::Agave44, SnapshotClient::Agave45, SnapshotClient::Firedancer];
        assert!(verify(&path, None, &newer).ok);
        let report = verify(&path, None, &SnapshotClient::AGAVE);
        let failure = &failures_of(&report, Rule::NewerErrors)[0];
        assert_eq!(failure.place.entry.as_deref(), Some("snapshots/status_cache"));
        let code = if error.len() == 8 { "39" } else { "54" };
        let found = failure.found.as_deref().expect("a found value");
        assert!(found.ends_with(code), "{found}");
    }
}

/// Agave refuses the bank file, and Firedancer refuses the status cache. Each accepts what the other refuses, so only
/// together do they make the archive useless.
#[test]
fn an_archive_that_no_client_loads_is_refused() {
    let mut tar = tar_with_changed_bank(|bank, offsets| {
        let offset = offsets.hash + 80 + 16 * u64_at(bank, offsets.hash + 72) as usize + 40;
        let length = if bank[offset] == 0 { 1 } else { 9 };
        bank.splice(offset..offset + length, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
    let dir = temp_dir();
    let out = temp_dir();
    let report = verify(&write_file(dir.path(), FULL_26, &compress(&tar.write())), None, &[]);
    assert!(report.ok, "{}", describe(&report));
    assert_eq!(refusing_clients(&report), SnapshotClient::AGAVE);
    let member = tar.member(is_status_cache);
    let cache = slotpress_format::parse_status_cache(
        FieldReader::new(&member.content[..], member.content.len() as u64, "the status cache"),
        u64::MAX,
    );
    let slots = cache.expect("a status cache").slots;
    let empty_slots = slots.iter().flat_map(|slot| [&slot.to_le_bytes()[..], &[1], &[0; 8]].concat());
    member.set_content((slots.len() as u64).to_le_bytes().into_iter().chain(empty_slots).collect());
    let path = write_file(dir.path(), FULL_26, &compress(&tar.write()));
    let report = verify(&path, None, &[]);
    assert_eq!(broken_rules(&report), [Rule::NoClient], "{}", describe(&report));
    let (code, stdout, _) = run_to_text(&["verify", text(&path)]);
    let stdout = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains("found Agave 4.2 to 4.5: the bank file says 0 hashes per tick"), "{stdout}");
    assert!(stdout.contains("; Firedancer: the status cache holds no"), "{stdout}");
    assert_fails(&["recompress", text(&path), "-o", text(out.path())], 3, &["no client loads it"]);
    assert_eq!(std::fs::read_dir(out.path()).expect("read").count(), 0);
}

/// Returns archives on which Firedancer fails or aborts, and which Agave loads. No writer makes such
/// archives, so `verify` does not look for the changes.
pub fn refused_only_by_firedancer() -> [(&'static str, Tar); 5] {
    [
        (
            "a gap in the blockhash queue",
            tar_with_changed_bank(|bank, offsets| {
                let mut items = offsets.items.clone();
                items.sort_unstable_by_key(|offset| u64_at(bank, *offset + 40));
                let middle = items[items.len() / 2];
                bank.drain(middle..middle + 56);
                bank[41..49].copy_from_slice(&(items.len() as u64 - 1).to_le_bytes());
            }),
        ),
        (
            "a blockhash index twice",
            tar_with_changed_bank(|bank, offsets| {
                bank.copy_within(offsets.items[0] + 40..offsets.items[0] + 48, offsets.items[1] + 40)
            }),
        ),
        (
            "a blockhash twice",
            tar_with_changed_bank(|bank, offsets| {
                let newest = offsets.newest(bank);
                let other = *offsets.items.iter().find(|offset| **offset != newest).expect("another");
                bank.copy_within(newest..newest + 32, other);
            }),
        ),
        ("a cached transaction of the newest blockhash", {
            let mut tar = Tar::read(FULL_26);
            let newest = tar.member(is_bank_file).content[9..41].to_vec();
            let member = tar.member(is_status_cache);
            let mut cache = member.content.clone();
            let offset = CacheOffsets::find(&cache).blockhashes[0];
            cache[offset..offset + 32].copy_from_slice(&newest);
            member.set_content(cache);
            tar
        }),
        (
            "two offsets for a cached blockhash",
            tar_with_changed_status_cache(|cache, offsets| {
                let [first, second, ..] = offsets.blockhashes[..] else { panic!("two blockhashes") };
                cache.copy_within(first..first + 32, second);
                let offset = (u64_at(cache, first + 32) + 1) % 12;
                cache[second + 32..second + 40].copy_from_slice(&offset.to_le_bytes());
            }),
        ),
    ]
}

#[test]
fn all_clients_refuse_a_wrong_bank_hash() {
    for part in [0, 32] {
        let tar = tar_with_changed_bank(|bank, offsets| bank[offsets.hash + part] ^= 1);
        let dir = temp_dir();
        let path = write_file(dir.path(), FULL_26, &compress(&tar.write()));
        let report = verify(&path, None, &[]);
        assert_eq!(broken_rules(&report), [Rule::BankHash], "{}", describe(&report));
        assert_eq!(refusing_clients(&report), SnapshotClient::JUDGED_BY_DEFAULT);
        assert_agave_agrees(&path, &report, &agave_dir());
    }
}

#[test]
fn firedancer_refuses_an_archive_without_slot_history() {
    let mut tar = Tar::read(FULL_26);
    let address = bs58::decode("SysvarS1otHistory11111111111111111111111111").into_vec().expect("base58");
    let mut changed = 0;
    for index in tar.storages() {
        let mut content = tar.members[index].content.clone();
        for record in record_ranges(&content) {
            if content[record.start + 16..record.start + 48] == address[..] {
                content[record.start + 16] ^= 1;
                changed += 1;
            }
        }
        tar.members[index].set_content(content);
    }
    assert!(changed > 0);
    let dir = temp_dir();
    let path = write_file(dir.path(), FULL_26, &compress(&tar.write()));
    let report = verify(&path, None, &[SnapshotClient::Firedancer]);
    assert_eq!(failures_of(&report, Rule::SlotHistory).len(), 1, "{}", describe(&report));
}

/// Agave 4.4 loads a storage that is padded to a page, but cannot archive it.
#[test]
fn a_padded_storage_has_a_note_for_agave_4_4() {
    let mut tar = Tar::read(FULL_26);
    let index = tar.storages()[3];
    let mut content = tar.members[index].content.clone();
    content.resize(content.len().next_multiple_of(4096), 0);
    tar.members[index].set_content(content);
    let dir = temp_dir();
    let path = write_file(dir.path(), FULL_26, &compress(&tar.write()));
    let report = verify(&path, None, &SnapshotClient::AGAVE);
    assert!(report.ok, "{}", describe(&report));
    let with_note = report.clients.iter().filter(|verdict| verdict.note.is_some()).map(|verdict| verdict.client);
    assert_eq!(with_note.collect::<Vec<_>>(), [SnapshotClient::Agave44]);
    assert!(refusing_clients(&report).contains(&SnapshotClient::Firedancer));
    assert_agave_agrees(&path, &report, &agave_dir());
}

#[test]
fn versions_refuse_the_ledger_layouts_of_other_versions() {
    use SnapshotClient::*;
    for (chain, ledger, refused) in [
        ("agave-4.2.2", "ledger-at-40-hard-links", &[Agave45][..]),
        ("agave-4.2.2", "ledger-at-40", &[]),
        ("agave-4.4.0", "ledger-at-40", &[]),
        ("agave-4.5.0-alpha.4", "ledger-at-40", &[Agave42, Agave43, Agave44]),
    ] {
        let dir = temp_dir();
        let bytes =
            std::fs::read(agave_dir().with_file_name(chain).join(format!("{ledger}.tar.zst"))).expect("the fixture");
        let tar = zstd::stream::decode_all(bytes.as_slice()).expect("zstd");
        tar::Archive::new(tar.as_slice()).unpack(dir.path()).expect("unpacked");
        let snapshot = Snapshot::ledger(dir.path());
        for clients in [&[][..], &[Agave44], &[Agave45], &SnapshotClient::AGAVE] {
            let report = slotpress_read::verify(&snapshot, &verify_options(clients), &NoProgress).expect("verified");
            assert_eq!(refusing_clients(&report), refused, "{chain}");
            assert!(report.warnings.is_empty(), "{}", describe(&report));
            let is_refused = clients.iter().any(|client| refused.contains(client));
            assert_eq!(report.ok, !is_refused, "{chain}: {clients:?}");
        }
    }
}
