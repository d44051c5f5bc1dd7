//! Tests of order, choice and pruning, on made-up archives and on real directories.

use std::fs;
use std::io::Read;

use proptest::prelude::*;
use rustix::fs::FileType;
use slotpress_format::{ArchiveCompression, EpochSchedule, FrameHashesLocation, Hash, skippable_frame};

use super::keep::{Keep, KeepReason};
use super::prune::plan_prune;
use super::*;

/// A time after all modification times of these tests.
fn far_future() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 32)
}

fn archive(base_slot: Option<u64>, slot: u64, seed: u8, compression: ArchiveCompression) -> ListedArchive {
    let name = ArchiveName { base_slot, slot, hash: Hash([seed; 32]), compression };
    ListedArchive { modified_ns: slot * 1_000_000_000, ..ListedArchive::new(name, "/archives", 1) }
}

const COMPRESSIONS: [ArchiveCompression; 4] =
    [ArchiveCompression::Zstd, ArchiveCompression::Lz4, ArchiveCompression::None, ArchiveCompression::Gzip];

/// Uses few slots, so that archives relate to each other.
fn any_archive() -> impl Strategy<Value = ListedArchive> {
    (proptest::option::of(1u64..6), 1u64..12, 0u8..2, 0usize..4, 0u64..20, any::<bool>()).prop_map(
        |(base, slot, seed, compression, modified, is_rebased)| {
            let base = base.filter(|base| *base < slot);
            let made = archive(base, slot, seed, COMPRESSIONS[compression]);
            let made = if is_rebased && base.is_some() { as_rebased(made) } else { made };
            ListedArchive { modified_ns: modified * 1_000_000_000, ..made }
        },
    )
}

/// Returns no schedule, or a possible or impossible one.
fn any_schedule() -> impl Strategy<Value = Option<EpochSchedule>> {
    let schedule = (0u64..6, 0u64..3, prop_oneof![0u64..6, any::<u64>()]).prop_map(
        |(slots_per_epoch, first_normal_epoch, first_normal_slot)| EpochSchedule {
            slots_per_epoch,
            first_normal_epoch,
            first_normal_slot,
        },
    );
    proptest::option::of(schedule)
}

fn as_rebased(archive: ListedArchive) -> ListedArchive {
    let root = ArchiveRoot::new(1, [b"x".as_slice()]);
    let location = FrameHashesLocation { offset_bytes: 0, frames: 1 };
    let hashes = FrameHashes { root, location, rebased_on: Some(Hash([9; 32])) };
    ListedArchive { hashes: Some(hashes), ..archive }
}

proptest! {
    #[test]
    fn sorting_keeps_all_archives_and_groups_pairs(archives in proptest::collection::vec(any_archive(), 0..30)) {
        let names: BTreeSet<String> = archives.iter().map(|archive| archive.name.to_string()).collect();
        let catalog = Catalog::new(archives);
        let sorted: BTreeSet<String> = catalog.archives().iter().map(|archive| archive.name.to_string()).collect();
        prop_assert_eq!(&names, &sorted);
        prop_assert_eq!(catalog.archives().len(), names.len());
        let groups: Vec<u64> = catalog.archives().iter().filter(|a| a.is_full() || catalog.base_of(a).is_some())
            .map(|archive| archive.name.base_slot.unwrap_or(archive.name.slot)).collect();
        prop_assert!(groups.is_sorted_by(|a, b| a >= b), "{groups:?}");
        let orphans: Vec<bool> = catalog.archives().iter()
            .map(|archive| !archive.is_full() && catalog.base_of(archive).is_none()).collect();
        prop_assert!(orphans.is_sorted(), "archives without their full archive are not last");
        if let Some(choice) = catalog.choice() {
            prop_assert!(choice.full.is_full());
            if let Some(incremental) = choice.incremental {
                prop_assert_eq!(incremental.name.base_slot, Some(choice.full.name.slot));
            }
        }
    }

    #[test]
    fn needed_archives_are_kept(
        archives in proptest::collection::vec(any_archive(), 0..30),
        full in 0usize..4,
        incremental in 0usize..4,
        rebased in 0usize..4,
        within in 0u64..8,
        (daily, weekly, epoch_ends) in (0usize..3, 0usize..3, 0usize..3),
        hours_per_slot in proptest::option::of(1u64..40),
        epoch_schedule in any_schedule(),
        bytes_max in proptest::option::of(0u64..40),
    ) {
        let with_bank_time = |archive: ListedArchive| {
            let bank_unix_seconds = hours_per_slot.map(|hours| (20_000 + archive.name.slot * hours) * 3600);
            ListedArchive { bank_unix_seconds, ..archive }
        };
        let catalog_of = |archives: Vec<ListedArchive>| Catalog { epoch_schedule, ..Catalog::new(archives) };
        let catalog = catalog_of(archives.into_iter().map(with_bank_time).collect());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(20);
        let within = Duration::from_secs(within);
        let keep = Keep { full, incremental, rebased, within, daily, weekly, epoch_ends, bytes_max };
        let reasons = keep_reasons(&catalog, &keep, now);
        // Results of rebase change nothing for other archives.
        let others = || catalog.archives().iter().zip(&reasons).filter(|(archive, _)| !archive.is_rebased());
        let without = catalog_of(others().map(|(archive, _)| archive.clone()).collect());
        if bytes_max.is_none() {
            prop_assert_eq!(keep_reasons(&without, &keep, now), others().map(|(_, reason)| *reason).collect::<Vec<_>>());
        } else {
            let are_kept = others().map(|(_, reason)| reason.is_some());
            let bytes_max = Some(others().filter(|(_, reason)| reason.is_some()).count() as u64);
            let again = keep_reasons(&without, &Keep { bytes_max, ..keep }, now);
            prop_assert!(again.iter().map(Option::is_some).eq(are_kept), "{again:?}");
        }
        prop_assert_eq!(reasons.len(), catalog.archives().len());
        let is_kept = |wanted: &ListedArchive| {
            catalog.archives().iter().zip(&reasons).any(|(archive, reason)| archive == wanted && reason.is_some())
        };
        for (archive, reason) in catalog.archives().iter().zip(&reasons) {
            if reason.is_some() && !archive.is_rebased() {
                for base in catalog.archives().iter().filter(|a| a.is_full() && Some(a.name.slot) == archive.name.base_slot) {
                    prop_assert!(is_kept(base), "a kept archive loses its full archive");
                }
            }
            let is_full_archive_deleted = |base: u64| {
                let mut fulls = catalog.archives().iter().filter(|a| a.is_full() && a.name.slot == base).peekable();
                fulls.peek().is_some() && !fulls.any(&is_kept)
            };
            let loses_base = archive.is_rebased() && archive.name.base_slot.is_some_and(is_full_archive_deleted);
            if loses_base {
                prop_assert!(reason.is_none(), "a result of rebase is kept without its full archive");
            }
            if !within.is_zero() && bytes_max.is_none() && archive.age(now) <= keep.within && !loses_base {
                prop_assert!(reason.is_some());
            }
        }
        if bytes_max.is_none() {
            for (is_full, count) in [(true, full), (false, incremental)] {
                let of_kind = || others().filter(|(archive, _)| archive.is_full() == is_full);
                let kept_count = of_kind().filter(|(_, reason)| reason.is_some()).count();
                prop_assert!(kept_count >= count.min(of_kind().count()), "too few archives of a kind are kept");
            }
        }
        if let Some(choice) = catalog.choice() {
            prop_assert!(is_kept(choice.full), "a node's choice is deleted");
            prop_assert!(choice.incremental.is_none_or(is_kept), "a node's choice is deleted");
        }
        let last = others().map(|(archive, _)| archive).filter(|archive| catalog.base_of(archive).is_some())
            .map(|archive| archive.name.slot).max();
        if let Some(slot) = last {
            prop_assert!(catalog.archives().iter().any(|a| a.name.slot == slot && is_kept(a) && catalog.base_of(a).is_some_and(is_kept)));
        }
        // Pruning again deletes nothing more.
        let remaining: Vec<ListedArchive> = catalog.archives().iter().filter(|archive| is_kept(archive)).cloned().collect();
        let again = catalog_of(remaining);
        prop_assert!(keep_reasons(&again, &keep, now).iter().all(Option::is_some));
    }

    #[test]
    fn only_the_newest_full_archives_are_kept(count in 1u64..30, full in 1usize..5) {
        let catalog = Catalog::new((1..=count).map(|slot| archive(None, slot, 0, ArchiveCompression::Zstd)));
        let keep = Keep::default().full(full).incremental(0);
        let kept = keep_reasons(&catalog, &keep, far_future()).iter().filter(|reason| reason.is_some()).count();
        prop_assert_eq!(kept, full.min(count as usize));
    }
}

#[test]
fn a_node_chooses_the_newest_pair() {
    let zst = |base, slot| archive(base, slot, 1, ArchiveCompression::Zstd);
    let catalog = Catalog::new([
        zst(None, 100),
        zst(Some(100), 190),
        zst(Some(100), 250),
        archive(None, 200, 1, ArchiveCompression::Lz4),
        zst(None, 200),
        archive(None, 300, 1, ArchiveCompression::Gzip),
        zst(Some(200), 210),
        zst(Some(200), 220),
    ]);
    let choice = catalog.choice().expect("a choice");
    assert_eq!((choice.full.name.slot, choice.full.name.compression), (200, ArchiveCompression::Zstd));
    assert_eq!(choice.incremental.map(|archive| archive.name.slot), Some(220));
    assert!(Catalog::default().choice().is_none());
}

#[test]
fn rebased_archives_are_counted_separately_and_deleted_with_their_full_archive() {
    let full = |slot| archive(None, slot, 1, ArchiveCompression::Zstd);
    let on = |base, slot| archive(Some(base), slot, 1, ArchiveCompression::Zstd);
    let catalog = Catalog::new([
        full(100),
        full(200),
        full(300),
        on(300, 310),
        on(300, 320),
        on(200, 250),
        as_rebased(on(100, 300)),
        as_rebased(on(200, 300)),
        as_rebased(on(50, 300)),
        as_rebased(on(200, 220)),
    ]);
    let kept = |keep: &Keep| -> Vec<(Option<u64>, u64)> {
        let kept = catalog
            .archives()
            .iter()
            .zip(keep_reasons(&catalog, keep, far_future()))
            .filter(|(_, reason)| reason.is_some());
        kept.map(|(archive, _)| (archive.name.base_slot, archive.name.slot)).collect()
    };
    let newest = [(None, 300), (Some(300), 320), (Some(300), 310)];
    let on_200 = [(None, 200), (Some(200), 300), (Some(200), 220)];
    assert_eq!(
        kept(&Keep::default().full(1).incremental(2)),
        [&newest[..], &[(Some(50), 300)]].concat(),
        "there is no full archive at slot 50 to delete it with"
    );
    assert_eq!(kept(&Keep::default().full(2).incremental(2)), [&newest[..], &on_200[..], &[(Some(50), 300)]].concat());
    assert_eq!(kept(&Keep::default().full(2).incremental(2).rebased(0)), [&newest[..], &on_200[..1]].concat());
    // Rebased archives are deleted before all others.
    assert_eq!(kept(&Keep::default().full(2).incremental(2).bytes_max(4)), [&newest[..], &on_200[..1]].concat());
    assert_eq!(kept(&Keep::default().full(2).incremental(2).bytes_max(5)).len(), 5);
}

/// Makes archives from five days spread over three weeks. The cluster is in its warm-up epochs, the
/// first four of which end with the slots 31, 95, 223 and 479.
fn catalog_of_three_weeks() -> Catalog {
    // Day 4 was a Monday.
    let dated = |base_slot, slot, day: u64, hour: u64| ListedArchive {
        bank_unix_seconds: Some((day * 24 + hour) * 3600),
        ..archive(base_slot, slot, 1, ArchiveCompression::Zstd)
    };
    let schedule = EpochSchedule { slots_per_epoch: 8192, first_normal_epoch: 8, first_normal_slot: 8160 };
    let archives = [
        dated(None, 20, 3, 1),
        dated(None, 30, 3, 23),
        dated(None, 90, 4, 0),
        dated(Some(90), 94, 10, 23),
        dated(None, 200, 11, 0),
        dated(None, 210, 11, 5),
        dated(None, 300, 12, 0),
        dated(Some(300), 310, 12, 9),
        // Neither of these is the state of a day: a result of rebase, and an archive without its full archive.
        as_rebased(dated(Some(30), 95, 11, 1)),
        dated(Some(40), 222, 11, 23),
    ];
    Catalog { epoch_schedule: Some(schedule), ..Catalog::new(archives) }
}

fn keep_reasons(catalog: &Catalog, keep: &Keep, now: SystemTime) -> Vec<Option<KeepReason>> {
    plan_prune(catalog, keep, now).iter().map(|decision| decision.keep_reason).collect()
}

fn kept_slots(catalog: &Catalog, keep: &Keep) -> Vec<(u64, KeepReason)> {
    let reasons = keep_reasons(catalog, &keep.rebased(0), far_future());
    let kept =
        catalog.archives().iter().zip(reasons).filter_map(|(archive, reason)| Some((archive.name.slot, reason?)));
    kept.collect()
}

#[test]
fn the_newest_states_of_days_weeks_and_epochs_are_kept() {
    use KeepReason::*;
    let catalog = catalog_of_three_weeks();
    let none = Keep::default().full(0).incremental(0);
    let pair = |reason| vec![(300, LastPair), (310, reason)];
    let older = [(210, Daily), (90, Base), (94, Daily)];
    let kept = |keep: Keep| kept_slots(&catalog, &keep);
    assert_eq!(kept(none), pair(LastPair));
    assert_eq!(kept(none.daily(1)), pair(Daily));
    assert_eq!(kept(none.daily(2)), [&pair(Daily)[..], &older[..1]].concat());
    assert_eq!(kept(none.daily(3)), [&pair(Daily)[..], &older].concat());
    let weekly = [(90, Base), (94, Weekly), (30, Weekly)];
    assert_eq!(kept(none.weekly(1)), pair(Weekly));
    assert_eq!(kept(none.weekly(2)), [&pair(Weekly)[..], &weekly[..2]].concat());
    assert_eq!(kept(none.weekly(9)), [&pair(Weekly)[..], &weekly].concat());
    let epoch_ends = [(210, EpochEnd), (90, Base), (94, EpochEnd), (30, EpochEnd)];
    assert_eq!(kept(none.epoch_ends(1)), [&pair(LastPair)[..], &epoch_ends[..1]].concat(), "the newest is not over");
    assert_eq!(kept(none.epoch_ends(2)), [&pair(LastPair)[..], &epoch_ends[..3]].concat());
    assert_eq!(kept(none.epoch_ends(9)), [&pair(LastPair)[..], &epoch_ends].concat());

    // Archives kept only by count are deleted first, then days, weeks and epochs; the oldest first.
    let keep = Keep::default().full(3).incremental(1).daily(3).weekly(1).epoch_ends(1);
    let unlimited = vec![(300, Newest), (310, Weekly), (210, EpochEnd), (200, Newest), (90, Base), (94, Daily)];
    assert_eq!(kept(keep.bytes_max(6)), unlimited);
    let without = |deleted: &[u64]| -> Vec<(u64, KeepReason)> {
        unlimited.iter().filter(|(slot, _)| !deleted.contains(slot)).copied().collect()
    };
    assert_eq!(kept(keep.bytes_max(5)), without(&[200]));
    assert_eq!(kept(keep.bytes_max(4)), without(&[200, 94, 90]));
    assert_eq!(kept(keep.bytes_max(0)), without(&[200, 94, 90, 210]));
}

#[test]
fn archives_of_unknown_time_or_epoch_are_kept() {
    use KeepReason::*;
    let dated = catalog_of_three_weeks();
    let newest = archive(None, 400, 1, ArchiveCompression::Zstd);
    let undated = archive(None, 25, 1, ArchiveCompression::Zstd);
    let catalog_with_both = |mut archives: Vec<ListedArchive>| {
        archives.extend([newest.clone(), undated.clone()]);
        Catalog { epoch_schedule: dated.epoch_schedule, ..Catalog::new(archives) }
    };
    // The time at slot 25 follows from slot 30. The time at slot 400 is unknown.
    let catalog = catalog_with_both(dated.archives().to_vec());
    let keep = Keep::default().full(0).incremental(0).daily(9);
    let kept = kept_slots(&catalog, &keep);
    assert!(kept.contains(&(400, Undated)), "{kept:?}");
    assert!(!kept.iter().any(|(slot, _)| *slot == 25), "{kept:?}");
    assert_eq!(kept_slots(&catalog, &keep.bytes_max(0))[0], (400, Undated));
    let catalog = catalog_with_both(Vec::new());
    assert_eq!(
        kept_slots(&catalog, &Keep::default().full(0).incremental(0).weekly(1)),
        [(400, Undated), (25, Undated)]
    );
    let unknown = Catalog { epoch_schedule: None, ..dated };
    let reasons =
        keep_reasons(&unknown, &Keep::default().full(0).incremental(0).epoch_ends(1).bytes_max(0), far_future());
    assert!(reasons.iter().all(|reason| *reason == Some(Undated)), "{reasons:?}");
}

const HASH: &str = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";

#[test]
fn only_ordinary_files_of_the_directory_are_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let outside = tempfile::tempdir().expect("a directory");
    let name = |slot: u64| format!("snapshot-{slot}-{HASH}.tar.zst");
    let usable = |text: &str| skippable_frame(3, text.as_bytes()).expect("small");
    fs::create_dir(dir.path().join("remote")).expect("created");
    fs::write(dir.path().join(name(1)), usable("one")).expect("written");
    fs::write(dir.path().join("remote").join(name(2)), usable("two")).expect("written");
    fs::write(dir.path().join("remote").join(name(1)), usable("a copy")).expect("written");
    fs::write(dir.path().join(format!("tmp-{}", name(3))), "three").expect("written");
    fs::write(dir.path().join("tmp-snapshot-archive-x.tar.zst"), "four").expect("written");
    fs::create_dir(dir.path().join(name(5))).expect("created");
    fs::write(outside.path().join(name(6)), "secret").expect("written");
    std::os::unix::fs::symlink(outside.path().join(name(6)), dir.path().join(name(6))).expect("linked");
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join(name(7)), FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    let catalog = scan::scan(&[dir.path()]).expect("read");
    let slots: Vec<(u64, bool)> = catalog.archives().iter().map(|a| (a.name.slot, a.is_remote)).collect();
    assert_eq!(slots, [(2, true), (1, false)]);
    assert_eq!(scan::scan_with_copies(&[dir.path().to_path_buf()]).expect("read").archives().len(), 3);
    let (mut file, stat) = catalog.archives()[0].open().expect("opened");
    let mut read = Vec::new();
    file.read_to_end(&mut read).expect("read");
    assert_eq!((&read, stat.st_size), (&usable("two"), read.len() as i64));

    // A file that was replaced by a link is not opened.
    fs::remove_file(dir.path().join(name(1))).expect("removed");
    std::os::unix::fs::symlink(outside.path().join(name(6)), dir.path().join(name(1))).expect("linked");
    assert!(catalog.archives()[1].open().is_err());
    assert!(prune::remove_archive(&catalog.archives()[1]).is_err(), "another file now");
    fs::rename(dir.path().join("remote"), outside.path().join("moved")).expect("moved");
    std::os::unix::fs::symlink(outside.path().join("moved"), dir.path().join("remote")).expect("linked");
    assert!(catalog.archives()[0].open().is_err());
    let catalog = scan::scan(&[dir.path()]).expect("read");
    assert!(catalog.archives().is_empty());
    assert!(scan::scan(&[dir.path().join("none")]).is_err());
}

/// Usable files stay usable when scanned again. Unusable ones have a reason, and do not hide a usable
/// copy.
#[test]
fn unusable_files_are_listed_separately() {
    let dir = tempfile::tempdir().expect("a directory");
    let name = |slot: u64, extension: &str| format!("snapshot-{slot}-{HASH}.{extension}");
    let lz4 = [&[4, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82], [0; 4].as_slice()].concat();
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, "version", b"1.2.0".as_slice()).expect("appended");
    let tar = tar.into_inner().expect("ended");
    let cases: [(&str, Vec<u8>, Option<FileFault>); 10] = [
        ("tar.zst", Vec::new(), Some(FileFault::Empty)),
        ("tar.zst", vec![0; 5000], Some(FileFault::NotAnArchive)),
        ("tar.lz4", vec![0; 5000], Some(FileFault::NotAnArchive)),
        ("tar", vec![0; 5120], Some(FileFault::NotAnArchive)),
        ("tar.zst", b"<html>busy</html>".to_vec(), Some(FileFault::NotAnArchive)),
        ("tar.lz4", lz4.clone(), None),
        ("tar.lz4", [&lz4[..7], &[9; 20]].concat(), Some(FileFault::Truncated)),
        ("tar.lz4", lz4[..5].to_vec(), Some(FileFault::Truncated)),
        ("tar", tar.clone(), None),
        ("tar", tar[..tar.len() - 1].to_vec(), Some(FileFault::Truncated)),
    ];
    fs::create_dir(dir.path().join("remote")).expect("created");
    for (slot, (extension, content, fault)) in (1..).zip(&cases) {
        fs::write(dir.path().join(name(slot, extension)), content).expect("written");
        if fault.is_some() {
            fs::write(dir.path().join("remote").join(name(slot, extension)), &lz4).expect("written");
        }
    }
    let dirs = [dir.path().to_path_buf()];
    let catalog = scan::scan(&dirs).expect("read");
    assert_eq!(scan::scan_again(&dirs, &catalog).expect("read"), catalog);
    for (slot, (extension, _, fault)) in (1..).zip(&cases) {
        let name = name(slot, extension);
        let found = catalog.unusable().iter().find(|unusable| unusable.archive.name.to_string() == name);
        assert_eq!(found.map(|unusable| &unusable.fault), fault.as_ref(), "{name}");
        assert_eq!(catalog.find(&name).map(|archive| archive.is_remote), Some(fault.is_some()), "{name}");
    }
    let names = scan::scan_names(&dirs).expect("read").archives().len();
    assert_eq!(names, catalog.archives().len() + catalog.unusable().len());
}
