//! The state check of `restore` and `recompress`. `verify` accepts what they accept. Damaged or
//! incomplete archives are found even without checksums and without a storage map.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use slotpress::archive::{Codec, DirSink, EncodingOptions, RecordLayout, ZSTD_LEVEL_DEFAULT};
use slotpress::recompress::{RecompressOptions, RecompressReport, recompress};
use slotpress::restore::{RestoreOptions, RestoreReport, TargetOptions, restore};
use slotpress::{Error, ErrorKind};
use slotpress_base::NoProgress;
use slotpress_format::{Hash, LedgerPaths};
use slotpress_read::{CheckMode, CheckOptions, Completeness, LocalArchive, Snapshot, VerifyOptions, verify};

use crate::common::records::{field, record_ranges};
use crate::common::seeded_rng::SeededRng;
use crate::common::*;

/// Lets one of these tests run at a time, because a child that one test has forked holds the locks of another
/// test until it executes its program.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const CHAINS: [&str; 3] = [AGAVE_4_2, AGAVE_4_4, AGAVE_4_5];

fn check(mode: CheckMode) -> CheckOptions {
    CheckOptions::default().mode(mode)
}

fn try_restore(archives: &[&Path], to: &Path, mode: CheckMode) -> Result<RestoreReport, Error> {
    let mut options = RestoreOptions::new(archives[0], TargetOptions::new(to).threads(2).check(check(mode)));
    options.incremental = archives.get(1).copied().map(LocalArchive::from);
    restore(&options, &NoProgress)
}

fn try_recompress(archive: &Path, to: &Path, layout: RecordLayout, mode: CheckMode) -> Result<RecompressReport, Error> {
    let options = RecompressOptions::new(archive)
        .encoding(
            EncodingOptions::default()
                .codec(Codec::zstd(ZSTD_LEVEL_DEFAULT).layout(layout))
                .frame_size_bytes(64 * 1024)
                .threads(2),
        )
        .check(check(mode));
    recompress(&options, &mut DirSink::open(to).expect("opened").replace(true), &NoProgress)
}

fn verify_options() -> VerifyOptions {
    VerifyOptions::default().threads(2).check(CheckOptions::default().memory_bytes(64 << 20))
}

fn is_good_ledger(ledger: &Path) -> bool {
    let paths = LedgerPaths { ledger: ledger.to_path_buf(), ..LedgerPaths::default() };
    verify(&Snapshot::ledger(paths), &verify_options(), &NoProgress).is_ok_and(|report| report.ok)
}

fn is_good_archive(archive: &Path) -> bool {
    verify(&Snapshot::archive(archive), &verify_options(), &NoProgress).is_ok_and(|report| report.ok)
}

fn full_of(chain: &str) -> PathBuf {
    fixture_of(chain, "snapshot-26-")
}

/// Flips bits in Agave's archives, which have no checksums. If `restore` or `recompress` accepts an
/// altered archive, `verify` accepts the result. `SLOTPRESS_FLIPS` sets the number of flips in each
/// archive; 200 are worth trying by hand.
#[test]
fn accepted_archives_have_the_right_state() {
    let _turn = take_turn();
    let flips: usize = std::env::var("SLOTPRESS_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for chain in CHAINS {
        let source = full_of(chain);
        let bytes = fs::read(&source).expect("read");
        let mut rng = SeededRng::new(26);
        let mut accepted = 0;
        let mut refused = 0;
        for number in 0..flips {
            let dir = temp_dir();
            let at = rng.below(bytes.len());
            let bit = rng.below(8);
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let archive = dir.path().join(name(&source));
            fs::write(&archive, flipped).expect("written");
            let what = format!("{chain}: flip {number}, bit {bit} of byte {at}");
            let ledger = dir.path().join("ledger");
            match try_restore(&[&archive], &ledger, CheckMode::State) {
                Ok(report) => {
                    assert!(report.assurance.accounts_checked.is_some(), "{what}");
                    assert!(is_good_ledger(&ledger), "{what}: the restored ledger is not good");
                    accepted += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
                    refused += 1;
                }
            }
            let out = dir.path().join("out");
            fs::create_dir(&out).expect("made");
            match try_recompress(&archive, &out, RecordLayout::Verbatim, CheckMode::State) {
                Ok(report) => {
                    assert!(
                        is_good_archive(&report.archive.path.expect("a file")),
                        "{what}: the new archive is not good"
                    )
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
                    assert!(relative_paths(&out).is_empty(), "{what}: something is left");
                }
            }
        }
        assert!(refused > flips / 2, "{chain}: {accepted} accepted, {refused} refused");
    }
}

/// Asserts that both commands refuse an archive with an error that contains `text`, and leave no files.
fn assert_both_refuse(entries: &[TarEntry], chain: &str, text: &str) {
    let dir = temp_dir();
    let archive = dir.path().join(name(&full_of(chain)));
    write_archive(&archive, entries);
    let ledger = dir.path().join("ledger");
    let restored = try_restore(&[&archive], &ledger, CheckMode::State).expect_err("refused").to_string();
    assert!(restored.contains(text), "{chain}: {text} in {restored}");
    assert!(!ledger.exists(), "{chain}: something is left");
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let recompressed = try_recompress(&archive, &out, RecordLayout::Verbatim, CheckMode::State).expect_err("refused");
    assert!(recompressed.to_string().contains(text), "{chain}: {text} in {recompressed}");
    assert!(relative_paths(&out).is_empty(), "{chain}: something is left");
}

fn nth_storage(entries: &mut [TarEntry], number: usize) -> &mut TarEntry {
    entries
        .iter_mut()
        .filter(|entry| entry.path.starts_with("accounts/") && entry.kind == b'0')
        .nth(number)
        .expect("a storage")
}

/// Archives of Agave 4.4 and later have no storage map. Only the state check finds a storage that is missing, short or
/// foreign.
#[test]
fn missing_doubled_short_and_foreign_storages_are_refused() {
    let _turn = take_turn();
    for chain in [AGAVE_4_4, AGAVE_4_5] {
        let original = entries(&full_of(chain));
        let storages: Vec<String> = original
            .iter()
            .map(|entry| entry.path.clone())
            .filter(|path| path.starts_with("accounts/") && path.len() > 9)
            .collect();
        let last = storages.last().expect("a storage");

        let without: Vec<TarEntry> = original.iter().filter(|entry| entry.path != *last).cloned().collect();
        assert_both_refuse(&without, chain, "do not add up");

        let mut doubled = original.clone();
        let mut copy = original.iter().find(|entry| entry.path == *last).expect("a storage").clone();
        copy.path = format!("{}9", copy.path);
        doubled.push(copy);
        assert_both_refuse(&doubled, chain, "two storages of one slot");

        // A cut between two records: the rest is a sequence of records.
        let mut short = original.clone();
        let storage = nth_storage(&mut short, storages.len() - 1);
        let second = record_ranges(&storage.content)[1].start;
        storage.content.truncate(second);
        assert_both_refuse(&short, chain, "do not add up");

        let mut foreign = original.clone();
        let other = entries(&full_of(AGAVE_4_2)).into_iter().find(|entry| entry.path == *last);
        nth_storage(&mut foreign, storages.len() - 1).content = other.expect("a storage of the same name").content;
        assert_both_refuse(&foreign, chain, "bank file");
    }
}

/// Adds older versions of the newest storage's accounts to every older storage, so that at least 30% of all records are
/// superseded. Both commands accept the state, verbatim and clustered.
#[test]
fn superseded_records_are_subtracted() {
    let _turn = take_turn();
    let mut entries = entries(&full_of(AGAVE_4_4));
    let count = entries.iter().filter(|entry| entry.path.starts_with("accounts/") && entry.kind == b'0').count();
    let slot_of = |path: &str| path[9..].split('.').next().and_then(|slot| slot.parse::<u64>().ok()).expect("a slot");
    let storages = entries.iter().filter(|entry| entry.path.starts_with("accounts/") && entry.kind == b'0');
    let newest = storages.max_by_key(|entry| slot_of(&entry.path)).expect("a storage").clone();
    let newest_path = newest.path;
    let newest = newest.content;
    for number in 0..count {
        let storage = nth_storage(&mut entries, number);
        if storage.path == newest_path {
            continue;
        }
        let known = pubkeys(&storage.content);
        for range in record_ranges(&newest) {
            let mut record = newest[range].to_vec();
            if known.iter().any(|key| record[field::PUBKEY] == *key) {
                continue;
            }
            // An older balance, sometimes 0.
            record[field::LAMPORTS].copy_from_slice(&(number as u64 % 3 * 1000).to_le_bytes());
            storage.content.resize(storage.content.len().next_multiple_of(8), 0);
            storage.content.extend_from_slice(&record);
        }
    }
    let dir = temp_dir();
    let archive = dir.path().join(name(&full_of(AGAVE_4_4)));
    write_archive(&archive, &entries);
    let verified = verify(&Snapshot::archive(&archive), &verify_options(), &NoProgress).expect("verified");
    assert!(verified.ok, "{:?}", verified.failures);
    assert!(verified.counts.superseded * 10 >= verified.counts.records * 3, "{:?}", verified.counts);
    let report = try_restore(&[&archive], &dir.path().join("ledger"), CheckMode::State).expect("restored");
    assert!(report.assurance.accounts_checked > Some(0));
    assert_eq!(report.assurance.complete, Completeness::ByState);
    for layout in [RecordLayout::Verbatim, RecordLayout::Clustered] {
        let report = try_recompress(&archive, dir.path(), layout, CheckMode::State).expect("recompressed");
        assert!(report.assurance.accounts_checked.is_some(), "{layout:?}");
    }
}

fn pubkeys(storage: &[u8]) -> Vec<[u8; 32]> {
    let pubkey = |range: Range<usize>| storage[range][field::PUBKEY].try_into().expect("32 bytes");
    record_ranges(storage).into_iter().map(pubkey).collect()
}

#[test]
fn a_pair_is_checked_as_one_state() {
    let _turn = take_turn();
    for chain in CHAINS {
        let dir = temp_dir();
        let archives = [full_of(chain), fixture_of(chain, "incremental-snapshot-26-40-")];
        let report =
            try_restore(&[&archives[0], &archives[1]], &dir.path().join("both"), CheckMode::State).expect("restored");
        let expected = expected_facts(chain, 40);
        assert!(report.assurance.accounts_checked.is_some(), "{chain}: checked");
        assert_eq!(report.assurance.accounts_checked, expected["accounts"].as_u64(), "{chain}");
        // The incremental archive of a different chain yields no valid state with it.
        if chain != AGAVE_4_2 {
            let other = fixture_of(AGAVE_4_2, "incremental-snapshot-26-40-");
            let error = try_restore(&[&archives[0], &other], &dir.path().join("mixed"), CheckMode::State);
            assert_eq!(error.expect_err("refused").kind(), ErrorKind::Damaged, "{chain}");
        }
    }
}

/// Checksums and an index do not prove that the accounts are right, so archives of slotpress are checked like others,
/// unless an option disables the check.
#[test]
fn checksums_and_an_index_do_not_replace_the_state_check() {
    let _turn = take_turn();
    let ledger = ledger_of(AGAVE_4_4, 26);
    let out = temp_dir();
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "64KiB"]);
    let options = RestoreOptions::new(&ours, TargetOptions::new(out.path().join("default")).threads(2));
    let checked = restore(&options, &NoProgress).expect("restored");
    assert!(checked.assurance.accounts_checked.is_some(), "{:?}", checked.assurance);
    assert_eq!(checked.assurance.complete, Completeness::ByState);
    let frames = try_restore(&[&ours], &out.path().join("frames"), CheckMode::Frames).expect("restored");
    assert_eq!(frames.assurance.state_reason, Some("not asked for"));
    assert_eq!(frames.assurance.complete, Completeness::ByIndex, "4.4 writes no storage map");
}

#[test]
fn an_unexpected_hash_is_refused() {
    let _turn = take_turn();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    let (code, stderr) = crate::restore::restore(&full_of(AGAVE_4_4), &ledger, &["--expect-hash", hash]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("the state is not the expected one"), "{stderr}");
    assert!(!ledger.exists());
}

/// `restore -` keeps the archive under its name, and makes the same ledger as from a file.
#[test]
fn standard_input_makes_the_same_ledger() {
    let _turn = take_turn();
    let dir = temp_dir();
    let source = full_of(AGAVE_4_4);
    let piped = dir.path().join("piped");
    let plain = dir.path().join("plain");
    let mut child = std::process::Command::new(slotpress_path())
        .args(["restore".as_ref(), "-".as_ref(), "--ledger".as_ref(), piped.as_os_str()])
        .stdin(Stdio::from(fs::File::open(&source).expect("opened")))
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    assert!(child.wait().expect("ends").success());
    try_restore(&[&source], &plain, CheckMode::State).expect("restored");
    assert_eq!(tree(&piped), tree(&plain));
    assert!(piped.join(name(&source)).is_file());
}

#[test]
fn a_truncated_archive_from_standard_input_leaves_nothing() {
    let _turn = take_turn();
    let dir = temp_dir();
    let bytes = fs::read(full_of(AGAVE_4_4)).expect("read");
    let cut = dir.path().join("cut");
    fs::write(&cut, &bytes[..bytes.len() / 2]).expect("written");
    let ledger = dir.path().join("none");
    let output = std::process::Command::new(slotpress_path())
        .args(["restore".as_ref(), "-".as_ref(), "--ledger".as_ref(), ledger.as_os_str()])
        .stdin(Stdio::from(fs::File::open(&cut).expect("opened")))
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!ledger.exists());
}

/// Without a name, the expected slot and hash are compared with those of the bank file.
#[test]
fn expectations_apply_to_archives_without_a_name() {
    let dir = temp_dir();
    let archive = dir.path().join("archive.tar.zst");
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    let hash: Hash = FULL_26.split(['-', '.']).nth(2).expect("a hash").parse().expect("a hash");
    for (number, (check, is_expected)) in [
        (CheckOptions::default().expect_slot(26).expect_hash(hash), true),
        (CheckOptions::default().expect_slot(27), false),
        (CheckOptions::default().expect_hash(Hash([7; 32])), false),
    ]
    .into_iter()
    .enumerate()
    {
        let ledger = dir.path().join(number.to_string());
        let restored =
            restore(&RestoreOptions::new(&archive, TargetOptions::new(&ledger).threads(2).check(check)), &NoProgress);
        assert_eq!(
            restored.as_ref().map_err(Error::kind).err(),
            (!is_expected).then_some(ErrorKind::Damaged),
            "{number}"
        );
        assert_eq!(ledger.join("snapshots/26/fastboot_version").exists(), is_expected);
    }
}

/// A name with a different slot or hash is refused before the archive is read: the archive is truncated,
/// and the error does not say so.
#[test]
fn expectations_are_compared_with_the_name_first() {
    let dir = temp_dir();
    let archive = dir.path().join(FULL_26);
    let whole = fs::read(fixture(FULL_26)).expect("read");
    fs::write(&archive, &whole[..whole.len() / 2]).expect("written");
    let restored = |check| {
        let target = TargetOptions::new(dir.path().join("ledger")).threads(2).check(check);
        restore(&RestoreOptions::new(&archive, target), &NoProgress).expect_err("refused").to_string()
    };
    for check in [CheckOptions::default().expect_slot(27), CheckOptions::default().expect_hash(Hash([7; 32]))] {
        let error = restored(check);
        assert!(error.contains("the state is not the expected one"), "{error}");
    }
    let error = restored(CheckOptions::default().expect_slot(26));
    assert!(error.contains("truncated"), "{error}");
}
