//! Differences between versions of Agave. Each change is found at its place, and counts for the
//! clients that refuse it. If `AGAVE_ORACLE` names loaders of Agave's
//! own, they must agree.

use std::path::Path;

use slotpress_base::NoProgress;
use slotpress_format::{FieldReader, LedgerPaths};
use slotpress_read::{Rule, Snapshot, SnapshotClient, VerifyReport};

use crate::common::oracle::Oracle;
use crate::common::screen::{fails, run};
use crate::common::text;
use crate::verify::fixtures::*;

/// Places in a bank file: the queue's blockhashes (hash, 8 bytes, index, 8 bytes), and the bank
/// hash.
pub struct BankPlaces {
    pub items: Vec<usize>,
    pub hash: usize,
}

impl BankPlaces {
    fn of(bank: &[u8]) -> Self {
        let count = u64_at(bank, 41) as usize;
        let after = 49 + 56 * count + 8;
        let ancestors = u64_at(bank, after) as usize;
        Self { items: (0..count).map(|at| 49 + 56 * at).collect(), hash: after + 8 + 16 * ancestors }
    }

    /// Returns the item with the highest index, the newest.
    pub fn newest(&self, bank: &[u8]) -> usize {
        *self.items.iter().max_by_key(|at| u64_at(bank, **at + 40)).expect("blockhashes")
    }
}

/// Places of a status cache: blockhashes with transactions, and results.
struct CachePlaces {
    blockhashes: Vec<usize>,
    results: Vec<usize>,
}

impl CachePlaces {
    fn of(cache: &[u8]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes(cache[at..at + 4].try_into().expect("4"));
        let mut blockhashes = Vec::new();
        let mut results = Vec::new();
        let mut at = 8;
        for _ in 0..u64_at(cache, 0) {
            let count = u64_at(cache, at + 9);
            at += 17;
            for _ in 0..count {
                let transactions = u64_at(cache, at + 40);
                if transactions > 0 {
                    blockhashes.push(at);
                }
                at += 48;
                for _ in 0..transactions {
                    assert_eq!(u32_at(at + 20), 0, "all of the fixture's transactions went well");
                    results.push(at + 20);
                    at += 24;
                }
            }
        }
        assert_eq!(at, cache.len());
        Self { blockhashes, results }
    }
}

pub fn with_bank(change: impl Fn(&mut Vec<u8>, &BankPlaces)) -> Tar {
    let mut tar = Tar::read(FULL);
    let member = tar.member(is_bank_file);
    let mut bank = member.content.clone();
    let places = BankPlaces::of(&bank);
    change(&mut bank, &places);
    member.set_content(bank);
    tar
}

fn with_cache(change: impl Fn(&mut Vec<u8>, &CachePlaces)) -> Tar {
    let mut tar = Tar::read(FULL);
    let member = tar.member(|path| path == "snapshots/status_cache");
    let mut cache = member.content.clone();
    let places = CachePlaces::of(&cache);
    change(&mut cache, &places);
    member.set_content(cache);
    tar
}

/// Sets the result of a transaction, or of an instruction of it, to an error that Agave 4.3 does
/// not know.
pub fn with_error(error: &'static [u8]) -> Tar {
    with_cache(move |cache, places| {
        let at = places.results[0];
        cache.splice(at..at + 4, error.iter().copied());
    })
}

pub const BAIL_OUT: [&[u8]; 2] = [&[1, 0, 0, 0, 39, 0, 0, 0], &[1, 0, 0, 0, 8, 0, 0, 0, 2, 54, 0, 0, 0]];

fn refusing(report: &VerifyReport) -> Vec<SnapshotClient> {
    let refusing = report.clients.iter().filter(|verdict| !verdict.loads).map(|verdict| verdict.client);
    refusing.collect()
}

/// Checks that Agave's own loaders agree with the report.
fn assert_agave_agrees(path: &Path, report: &VerifyReport, genesis: &Path) {
    for oracle in Oracle::all() {
        let answer = oracle.accepts(path, None, genesis);
        assert_eq!(answer.is_ok(), !refusing(report).contains(&oracle.client), "{}: {answer:?}", oracle.client);
    }
}

/// An archive without a storage map, as 4.4 writes it, is valid.
#[test]
fn no_storage_map() {
    for chain in ["agave-4.4.0", "agave-4.5.0-alpha.4", "agave-4.5.0-alpha.4-split"] {
        let dir = dir().with_file_name(chain);
        let mut files = std::fs::read_dir(&dir).expect("a chain").map(|entry| entry.expect("an entry").path());
        let is_full = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snapshot-"))
        };
        let full = files.find(is_full).expect("a full archive");
        for asked in [&[][..], &SnapshotClient::ALL] {
            let report = verify(&full, None, asked);
            assert!(report.ok && report.warnings.is_empty() && report.unlisted_count == 0, "{}", shown(&report));
            assert_eq!(refusing(&report), []);
        }
        assert_agave_agrees(&full, &verify(&full, None, &[]), &dir);
    }
}

#[test]
fn errors_that_older_versions_do_not_know() {
    for error in BAIL_OUT {
        let dir = tempfile::tempdir().expect("a directory");
        let path = put(dir.path(), FULL, &zstd(&with_error(error).write()));
        let report = verify(&path, None, &[]);
        assert!(report.ok && report.warnings.is_empty(), "{}", shown(&report));
        assert_eq!(refusing(&report), [SnapshotClient::Agave42, SnapshotClient::Agave43]);
        assert_agave_agrees(&path, &report, &crate::verify::fixtures::dir());
        assert!(
            verify(&path, None, &[SnapshotClient::Agave44, SnapshotClient::Agave45, SnapshotClient::Firedancer]).ok
        );
        let report = verify(&path, None, &SnapshotClient::AGAVE);
        let failure = &of_rule(&report, Rule::NewerErrors)[0];
        assert_eq!(failure.place.entry.as_deref(), Some("snapshots/status_cache"));
        assert!(failure.found.as_ref().is_some_and(|found| found.ends_with(if error.len() == 8 {
            "39"
        } else {
            "54"
        })));
    }
}

/// Agave refuses the bank file, Firedancer the status cache, and each is normal for the other: no
/// client loads the archive, `verify` says so without being asked, and nothing is made from it.
#[test]
fn no_client_loads_it() {
    let mut tar = with_bank(|bank, places| {
        let at = places.hash + 80 + 16 * u64_at(bank, places.hash + 72) as usize + 40;
        let length = if bank[at] == 0 { 1 } else { 9 };
        bank.splice(at..at + length, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
    let dir = tempfile::tempdir().expect("a directory");
    let out = tempfile::tempdir().expect("a directory");
    let report = verify(&put(dir.path(), FULL, &zstd(&tar.write())), None, &[]);
    assert!(report.ok && refusing(&report) == SnapshotClient::AGAVE, "{}", shown(&report));
    let member = tar.member(|path| path == "snapshots/status_cache");
    let cache = slotpress_format::parse_status_cache(
        FieldReader::new(&member.content[..], member.content.len() as u64, "it"),
        u64::MAX,
    );
    let slots = cache.expect("a status cache").slots;
    let bare = slots.iter().flat_map(|slot| [&slot.to_le_bytes()[..], &[1], &[0; 8]].concat());
    member.set_content((slots.len() as u64).to_le_bytes().into_iter().chain(bare).collect());
    let path = put(dir.path(), FULL, &zstd(&tar.write()));
    let report = verify(&path, None, &[]);
    assert_eq!(report.failures.iter().map(|it| it.rule).collect::<Vec<_>>(), [Rule::NoClient], "{}", shown(&report));
    let (code, said, _) = run(&["verify", path.to_str().expect("text")]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = "found Agave 4.2 to 4.5: the bank file says 0 hashes per tick";
    assert!(code == 3 && said.contains(found) && said.contains("; Firedancer: the status cache holds no"), "{said}");
    fails(&["recompress", path.to_str().expect("text"), "-o", text(out.path())], 3, &["no client loads it"]);
    assert_eq!(std::fs::read_dir(out.path()).expect("read").count(), 0);
}

/// Changes on which Firedancer fails or aborts, and which Agave loads. No writer makes them, so they
/// are not judged.
pub fn only_for_firedancer() -> [(&'static str, Tar); 5] {
    [
        (
            "a gap",
            with_bank(|bank, places| {
                let mut items = places.items.clone();
                items.sort_unstable_by_key(|at| u64_at(bank, *at + 40));
                let middle = items[items.len() / 2];
                bank.drain(middle..middle + 56);
                bank[41..49].copy_from_slice(&(items.len() as u64 - 1).to_le_bytes());
            }),
        ),
        (
            "an index twice",
            with_bank(|bank, places| {
                bank.copy_within(places.items[0] + 40..places.items[0] + 48, places.items[1] + 40)
            }),
        ),
        (
            "a blockhash twice",
            with_bank(|bank, places| {
                let newest = places.newest(bank);
                let other = *places.items.iter().find(|at| **at != newest).expect("another");
                bank.copy_within(newest..newest + 32, other);
            }),
        ),
        ("the newest blockhash", {
            let mut tar = Tar::read(FULL);
            let newest = tar.member(is_bank_file).content[9..41].to_vec();
            let member = tar.member(|path| path == "snapshots/status_cache");
            let mut cache = member.content.clone();
            let at = CachePlaces::of(&cache).blockhashes[0];
            cache[at..at + 32].copy_from_slice(&newest);
            member.set_content(cache);
            tar
        }),
        (
            "two offsets",
            with_cache(|cache, places| {
                let one = places.blockhashes[0];
                let other = places.blockhashes[1];
                cache.copy_within(one..one + 32, other);
                let offset = (u64_at(cache, one + 32) + 1) % 12;
                cache[other + 32..other + 40].copy_from_slice(&offset.to_le_bytes());
            }),
        ),
    ]
}

/// The bank hash covers its parts, and every client recomputes it.
#[test]
fn bank_hash() {
    for part in [0, 32] {
        let tar = with_bank(|bank, places| bank[places.hash + part] ^= 1);
        let dir = tempfile::tempdir().expect("a directory");
        let path = put(dir.path(), FULL, &zstd(&tar.write()));
        let report = verify(&path, None, &[]);
        assert_eq!(report.failures.iter().map(|it| it.rule).collect::<Vec<_>>(), [Rule::BankHash]);
        assert_eq!(refusing(&report), SnapshotClient::ALL);
        assert_agave_agrees(&path, &report, &crate::verify::fixtures::dir());
    }
}

/// Firedancer reads the SlotHistory sysvar.
#[test]
fn slot_history() {
    let mut tar = Tar::read(FULL);
    let address = bs58::decode("SysvarS1otHistory11111111111111111111111111").into_vec().expect("base58");
    let mut changed = 0;
    for at in tar.storages() {
        let mut content = tar.members[at].content.clone();
        for (record, _) in records(&content) {
            if content[record + 16..record + 48] == address[..] {
                content[record + 16] ^= 1;
                changed += 1;
            }
        }
        tar.members[at].set_content(content);
    }
    assert!(changed > 0);
    let dir = tempfile::tempdir().expect("a directory");
    let path = put(dir.path(), FULL, &zstd(&tar.write()));
    let report = verify(&path, None, &[SnapshotClient::Firedancer]);
    assert_eq!(of_rule(&report, Rule::SlotHistory).len(), 1, "{}", shown(&report));
}

/// 4.4 loads a storage that is padded to a page, but cannot archive it.
#[test]
fn padded_storages() {
    let mut tar = Tar::read(FULL);
    let at = tar.storages()[3];
    let mut content = tar.members[at].content.clone();
    content.resize(content.len().next_multiple_of(4096), 0);
    tar.members[at].set_content(content);
    let dir = tempfile::tempdir().expect("a directory");
    let path = put(dir.path(), FULL, &zstd(&tar.write()));
    let report = verify(&path, None, &SnapshotClient::AGAVE);
    assert!(report.ok, "{}", shown(&report));
    let noted: Vec<SnapshotClient> = report.clients.iter().filter(|it| it.note.is_some()).map(|it| it.client).collect();
    assert_eq!(noted, [SnapshotClient::Agave44]);
    assert!(refusing(&report).contains(&SnapshotClient::Firedancer));
    assert_agave_agrees(&path, &report, &crate::verify::fixtures::dir());
}

/// Which versions boot from which layout of a ledger.
#[test]
fn layouts_of_ledgers() {
    use SnapshotClient::*;
    for (chain, ledger, refused) in [
        ("agave-4.2.2", "ledger-at-40-hard-links", &[Agave45][..]),
        ("agave-4.2.2", "ledger-at-40", &[]),
        ("agave-4.4.0", "ledger-at-40", &[]),
        ("agave-4.5.0-alpha.4", "ledger-at-40", &[Agave42, Agave43, Agave44]),
    ] {
        let to = tempfile::tempdir().expect("a directory");
        let bytes = std::fs::read(dir().with_file_name(chain).join(format!("{ledger}.tar.zst"))).expect("the fixture");
        let tar = zstd::stream::decode_all(bytes.as_slice()).expect("zstd");
        tar::Archive::new(tar.as_slice()).unpack(to.path()).expect("unpacked");
        let paths = LedgerPaths { ledger: to.path().to_path_buf(), ..LedgerPaths::default() };
        for asked in [&[][..], &[Agave44], &[Agave45], &SnapshotClient::AGAVE] {
            let report =
                slotpress_read::verify(Snapshot::ledger(&paths), &options(asked), &NoProgress).expect("verified");
            assert_eq!(refusing(&report), refused, "{chain}");
            assert!(report.warnings.is_empty(), "{}", shown(&report));
            assert_eq!(report.ok, !asked.iter().any(|client| refused.contains(client)), "{chain}: {asked:?}");
        }
    }
}
