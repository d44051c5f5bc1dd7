//! Tests of the planner's decisions, each in a state that the test makes up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use slotpress_format::ledger::names::*;
use slotpress_format::{FrameHashesLocation, SlotTime};
use slotpress_read::ListedArchive;
use slotpress_read::catalog::FrameHashes;

use super::choose::*;
use super::*;
use crate::publish::act::pins::PinResult;

fn full(slot: u64) -> ArchiveName {
    ArchiveName { base_slot: None, slot, hash: Hash([7; 32]), compression: ArchiveCompression::Zstd }
}

fn incremental(base: u64, slot: u64) -> ArchiveName {
    ArchiveName { base_slot: Some(base), ..full(slot) }
}

fn archives(names: &[ArchiveName]) -> Vec<ListedArchive> {
    names.iter().map(|name| ListedArchive::new(name.clone(), "/snapshots", 10)).collect()
}

fn ready_archives(names: &[ArchiveName]) -> Vec<PreparedArchive> {
    let ready = |archive| PreparedArchive { archive, slot_time: SlotTime::default(), epoch_schedule: None };
    archives(names).into_iter().map(ready).collect()
}

pub(super) fn ready_rebase(name: ArchiveName) -> PreparedArchive {
    let mut rebased = ready_archives(&[name]).remove(0);
    let root = "1".repeat(64).parse().expect("a root");
    let location = FrameHashesLocation { offset_bytes: 0, frames: 1 };
    rebased.archive.hashes = Some(FrameHashes { root, location, rebased_on: Some(Hash([7; 32])) });
    rebased
}

fn target_with(names: &[ArchiveName]) -> TargetState {
    let contents =
        TargetContents { published: ArchiveSet::from_archives(&archives(names)), ..TargetContents::default() };
    TargetState { contents, is_read: true, ..TargetState::default() }
}

/// Leaks the options, so that a planner that borrows them is `'static`. They are small.
fn leak(options: PublishOptions) -> &'static PublishOptions {
    Box::leak(Box::new(options))
}

fn options() -> PublishOptions {
    PublishOptions::new("/snapshots", []).every(Duration::from_secs(300))
}

fn planner_with(seen: &[ArchiveName], targets: Vec<TargetState>) -> Planner<'static> {
    let mut planner = Planner::new(leak(options()), [], Instant::now());
    (planner.scan.validator_archives, planner.targets) = (archives(seen), targets);
    planner
}

fn next_prepared(planner: &Planner<'_>) -> Option<ArchiveName> {
    planner.next_to_prepare().map(|archive| archive.name.clone())
}

fn failed_preparation(pinned: &ListedArchive) -> EndedTask {
    let name = pinned.name.clone();
    let source = Some(PinnedSource { file: FileIdentity::from(pinned), is_quiet: true });
    EndedTask { name, result: Err(Error::failed("a full disk")), elapsed: Duration::ZERO, source }
}

/// Returns the retry of an archive that has failed so often that other archives are prepared first.
fn retry_after_three_failures() -> Retry {
    let mut retry = Retry::default();
    for _ in 0..3 {
        retry.record_failure(Instant::now());
    }
    retry
}

#[test]
fn the_newest_full_archive_comes_before_its_newest_incremental_one() {
    let seen = [full(100), full(200), incremental(200, 210), incremental(200, 220), incremental(100, 190)];
    let mut planner = planner_with(&seen, vec![target_with(&[])]);
    assert_eq!(next_prepared(&planner), Some(full(200)));
    assert_eq!(planner.choose_pins().to_pin, [full(200)]);
    planner.scan.ready = ready_archives(&[full(200)]);
    assert_eq!(next_prepared(&planner), Some(incremental(200, 220)), "its base is ready, and will be published first");
    planner.scan.ready.extend(ready_archives(&[incremental(200, 220)]));
    assert_eq!(next_prepared(&planner), None, "older archives are not prepared");
    assert_eq!(planner.next_ordinary(&planner.targets[0]), Some(&full(200)));
    planner.targets = vec![target_with(&[full(200)])];
    assert_eq!(planner.next_ordinary(&planner.targets[0]), Some(&incremental(200, 220)));
    assert_eq!(planner.find_unneeded(), [&full(200)]);
    planner.targets = vec![target_with(&[full(200), incremental(200, 220)])];
    assert_eq!((planner.next_ordinary(&planner.targets[0]), planner.find_unneeded().len()), (None, 2));
}

#[test]
fn an_incremental_archive_waits_for_its_turn() {
    let mut planner = planner_with(&[full(1), incremental(1, 5)], vec![target_with(&[full(1), incremental(1, 3)])]);
    planner.scan.since_incremental = Some(Duration::from_secs(299));
    assert_eq!((next_prepared(&planner), planner.choose_pins()), (None, PinChanges::default()));
    planner.scan.since_incremental = Some(Duration::from_secs(300));
    assert_eq!(
        (next_prepared(&planner), planner.choose_pins().to_pin),
        (Some(incremental(1, 5)), vec![incremental(1, 5)])
    );
    planner.preparing = Some(incremental(1, 5));
    planner.scan.pinned = archives(&[incremental(1, 5)]);
    planner.scan.validator_archives.push(archives(&[incremental(1, 9)]).remove(0));
    assert_eq!((next_prepared(&planner), planner.choose_pins()), (None, PinChanges::default()), "one at a time");
}

#[test]
fn older_baseless_and_refused_archives_are_left_out() {
    let planner = planner_with(&[full(1), incremental(1, 5), incremental(7, 9)], vec![target_with(&[full(5)])]);
    assert_eq!(next_prepared(&planner), None);
    let mut planner = planner_with(&[full(8), full(9)], vec![target_with(&[full(5)])]);
    planner.retries.insert(key_of(&full(9)), Retry { failures: 0, next: NextAttempt::Never });
    assert_eq!(next_prepared(&planner), Some(full(8)));
}

#[test]
fn an_archive_that_fails_repeatedly_stays_pinned_and_does_not_block_others() {
    let mut planner = planner_with(&[full(8), full(9), incremental(5, 7)], vec![target_with(&[full(5)])]);
    planner.retries.insert(key_of(&full(9)), retry_after_three_failures());
    assert_eq!((next_prepared(&planner), planner.choose_pins().to_pin), (Some(full(8)), vec![full(9), full(8)]));
    planner.retries.insert(key_of(&full(8)), retry_after_three_failures());
    assert_eq!(
        (next_prepared(&planner), planner.choose_pins().to_pin),
        (Some(incremental(5, 7)), vec![full(9), incremental(5, 7)])
    );
    planner.retries.clear();
    assert_eq!((next_prepared(&planner), planner.choose_pins().to_pin), (Some(full(9)), vec![full(9)]));
}

#[test]
fn a_run_with_once_makes_one_attempt() {
    let options = leak(options().once(true));
    let mut planner = Planner::new(options, [], Instant::now());
    planner.targets = vec![target_with(&[full(5)])];
    let scan =
        ScanResult { validator_archives: archives(&[full(9)]), pinned: archives(&[full(9)]), ..ScanResult::default() };
    planner.record_scan(scan.clone(), 0);
    assert!(!planner.is_over());
    planner.queue_ended_task(failed_preparation(&scan.pinned[0]));
    planner.record_scan(scan.clone(), 1);
    assert_eq!(next_prepared(&planner), None, "it is given up");
    assert!(planner.is_over());

    let mut planner = Planner::new(options, [], Instant::now());
    planner.targets = vec![target_with(&[full(5)])];
    planner.record_scan(ScanResult { validator_archives: archives(&[full(9)]), ..ScanResult::default() }, 0);
    assert!(!planner.is_over());
    planner.record_pin(scan.validator_archives[0].clone(), PinResult::NotYet);
    assert!(matches!(planner.events[..], [PublishEvent::Skipped { .. }]));
    assert!(planner.is_over());
    planner.check_left_out().expect("a file that is being written is not a failure");
}

#[test]
fn a_failed_incremental_archive_is_tried_again_at_the_announced_time() {
    let mut planner = Planner::new(leak(options()), [], Instant::now());
    planner.targets = vec![target_with(&[full(1)])];
    let seen = archives(&[incremental(1, 5)]);
    let mut scan = ScanResult { validator_archives: seen.clone(), pinned: seen.clone(), ..ScanResult::default() };
    for attempt in 1..=5 {
        planner.record_scan(scan.clone(), 0);
        assert_eq!(planner.begin_preparing(), Some(incremental(1, 5)), "attempt {attempt}");
        scan.since_incremental = Some(Duration::ZERO);
        planner.queue_ended_task(failed_preparation(&seen[0]));
        planner.record_scan(scan.clone(), 1);
        let events = mem::take(&mut planner.events);
        let [PublishEvent::Failed { retry: Some(retry), .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(planner.choose_pins().to_unpin, [], "attempt {attempt}: it stays pinned");
        assert_eq!(planner.begin_preparing(), None, "attempt {attempt}: not yet");
        let later = planner.now + *retry;
        planner.set_time(later);
    }
}

#[test]
fn a_target_that_lags_gets_only_the_newest_pair() {
    let mut planner = planner_with(&[full(9)], vec![target_with(&[full(9), incremental(9, 20)]), target_with(&[])]);
    planner.scan.ready = ready_archives(&[full(5), full(9), incremental(9, 12), incremental(9, 20)]);
    assert_eq!(
        (planner.next_ordinary(&planner.targets[0]), planner.next_ordinary(&planner.targets[1])),
        (None, Some(&full(9)))
    );
    assert_eq!(planner.find_unneeded(), [&full(5), &incremental(9, 12)], "the backlog is the newest pair");
}

#[test]
fn unneeded_pins_are_dropped_and_pins_stay_within_their_limit() {
    let mut planner = planner_with(&[], vec![target_with(&[full(9)])]);
    planner.scan.pinned = archives(&[full(9), full(12)]);
    assert_eq!(planner.choose_pins(), PinChanges { to_unpin: vec![full(9)], ..PinChanges::default() });
    planner.preparing = Some(full(12));
    planner.scan.validator_archives = archives(&[full(20)]);
    assert_eq!(planner.choose_pins().to_pin, [full(20)]);
    planner.options = leak(options().pin_bytes(15));
    assert_eq!(
        planner.choose_pins(),
        PinChanges { to_unpin: vec![full(9)], no_room: vec![full(20)], ..PinChanges::default() }
    );
}

fn set_rebase_onto<'n>(planner: &'n mut Planner<'static>, rebase_onto: usize) -> &'n Planner<'static> {
    planner.options = leak(options().rebase_onto(rebase_onto));
    planner
}

fn directory_with(names: &[ArchiveName]) -> TargetState {
    TargetState { is_dir: true, ..target_with(names) }
}

fn keys(names: &[ArchiveName]) -> BTreeSet<ArchiveKey> {
    names.iter().map(key_of).collect()
}

#[test]
fn the_newest_full_archive_is_rebased_onto_older_ones() {
    let fulls = [full(100), full(200), full(300)];
    let mut planner = planner_with(&fulls, vec![directory_with(&fulls)]);
    assert_eq!(set_rebase_onto(&mut planner, 0).needed_rebases(), keys(&[]));
    assert_eq!(set_rebase_onto(&mut planner, 1).needed_rebases(), keys(&[incremental(200, 300)]));
    assert_eq!(
        set_rebase_onto(&mut planner, 16).needed_rebases(),
        keys(&[incremental(200, 300), incremental(100, 300)])
    );
    planner.targets = vec![directory_with(&[&fulls[..], &[incremental(200, 300)]].concat())];
    assert_eq!(
        set_rebase_onto(&mut planner, 2).needed_rebases(),
        keys(&[incremental(100, 300)]),
        "a validator's own archive needs no rebase"
    );
    planner.scan.ready = vec![ready_rebase(incremental(100, 300))];
    assert_eq!(planner.needed_rebases(), keys(&[]));
    assert_eq!(planner.next_ready_rebase(&planner.targets[0]), Some(&incremental(100, 300)));
    assert_eq!((planner.next_ordinary(&planner.targets[0]), planner.find_unneeded().len()), (None, 0));
    set_rebase_onto(&mut planner, 1);
    assert_eq!(planner.next_ready_rebase(&planner.targets[0]), None, "only one rebase is requested");
    assert_eq!(planner.find_unneeded(), [&incremental(100, 300)]);
    planner.scan.ready.clear();
    planner.retries.insert(key_of(&incremental(100, 300)), Retry { failures: 0, next: NextAttempt::Never });
    assert_eq!(planner.needed_rebases(), keys(&[]));
    planner.record_scan(planner.scan.clone(), 0);
    assert_eq!(planner.needed_rebases(), keys(&[]), "still given up after a scan");
}

#[test]
fn the_next_full_archive_drops_rebased_ones() {
    let mut planner = planner_with(&[full(300)], vec![directory_with(&[full(100), full(200)])]);
    assert_eq!(set_rebase_onto(&mut planner, 1).needed_rebases(), keys(&[]), "full(300) is to be prepared first");
    planner.scan.ready = [ready_archives(&[full(300)]), vec![ready_rebase(incremental(100, 200))]].concat();
    assert_eq!(planner.needed_rebases(), keys(&[]), "the directory does not have full(300) yet");
    assert_eq!(planner.find_unneeded(), [&incremental(100, 200)]);
    planner.targets = vec![directory_with(&[full(100), full(200), full(300)])];
    assert_eq!(planner.needed_rebases(), keys(&[incremental(200, 300)]));
}

#[test]
fn a_rebase_needs_a_directory_with_both_full_archives() {
    let fulls = [full(100), full(200)];
    let lagging = target_with(&[full(100)]);
    let mut planner = planner_with(&fulls, vec![target_with(&fulls), directory_with(&[full(200)])]);
    assert_eq!(set_rebase_onto(&mut planner, 1).needed_rebases(), keys(&[]));
    planner.targets = vec![target_with(&fulls), directory_with(&fulls), lagging];
    planner.scan.ready = ready_archives(&[full(200)]);
    assert_eq!(planner.needed_rebases(), keys(&[incremental(100, 200)]));
    planner.scan.ready.push(ready_rebase(incremental(100, 200)));
    let next_names: Vec<_> = planner.targets.iter().map(|target| planner.next_for_target(target).cloned()).collect();
    assert_eq!(next_names, [Some(incremental(100, 200)), Some(incremental(100, 200)), Some(full(200))]);
}

#[test]
fn an_ordinary_archive_on_an_older_full_archive_is_not_wanted() {
    let mut planner = planner_with(&[incremental(100, 200)], vec![directory_with(&[full(100), full(200)])]);
    assert_eq!(next_prepared(set_rebase_onto(&mut planner, 1)), None);
    planner.scan.ready = ready_archives(&[incremental(100, 200)]);
    assert_eq!(
        (planner.next_ordinary(&planner.targets[0]), planner.next_ready_rebase(&planner.targets[0])),
        (None, None)
    );
    assert_eq!(planner.find_unneeded(), [&incremental(100, 200)]);
}

/// A rebased archive never counts as the newest, even if its base is the target's newest full archive
/// because a newer one was removed.
#[test]
fn a_rebased_archive_is_never_the_newest() {
    let target = |names: &[ArchiveName]| {
        let mut target = directory_with(names);
        target.contents.published.rebased = keys(&[incremental(100, 200)]);
        target
    };
    let mut planner = planner_with(&[incremental(100, 150)], vec![target(&[full(100), incremental(100, 200)])]);
    assert_eq!(next_prepared(&planner), Some(incremental(100, 150)));
    assert!(!planner.targets[0].contents.published.wants(&incremental(100, 200)), "it is there");
    planner = planner_with(&[incremental(200, 210)], vec![target(&[full(100), full(200), incremental(100, 200)])]);
    assert_eq!(next_prepared(&planner), Some(incremental(200, 210)));
}

/// Returns a full archive for each bit that is set, at slots 10, 20, ….
fn full_archives_of(bits: u8) -> Vec<ArchiveName> {
    (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| full(10 * (bit + 1))).collect()
}

/// Generates archives at few slots, so that many incremental archives have a base among them.
fn some_archives() -> impl Strategy<Value = Vec<ArchiveName>> {
    let any_incremental = (1u64..9, 1u64..9).prop_map(|(base, more)| incremental(10 * base, 10 * base + more));
    (any::<u8>(), prop::collection::vec(any_incremental, 0..6))
        .prop_map(|(bits, incrementals)| [full_archives_of(bits), incrementals].concat())
}

proptest! {
    /// Every needed rebase is made once and published. All other decisions are the same as without rebasing.
    #[test]
    fn rebased_archives_change_nothing_else(
        seen in some_archives(),
        ready in some_archives(),
        targets in prop::collection::vec((some_archives(), any::<bool>()), 1..4),
        count in 0usize..4,
    ) {
        let target =
            |(names, is_dir): &(Vec<ArchiveName>, bool)| TargetState { is_dir: *is_dir, ..target_with(names) };
        let new_planner = || {
            let mut planner = planner_with(&seen, targets.iter().map(target).collect());
            planner.scan.ready = ready_archives(&ready);
            planner.options = leak(options().rebase_onto(count));
            planner
        };
        let plain = new_planner();
        let mut planner = new_planner();
        while let Some(next) = planner.needed_rebases().last().copied() {
            let ArchiveKey { base_slot, slot, .. } = next;
            prop_assert!(planner.targets.iter().any(|target| target.can_rebase(&next)));
            prop_assert!(base_slot < Some(slot));
            prop_assert!(!planner.ready_rebases().contains(&next), "made twice: {next:?}");
            planner.scan.ready.push(ready_rebase(incremental(base_slot.unwrap_or_default(), slot)));
        }
        let publish_next_rebase = |planner: &mut Planner<'_>, number: usize| {
            let next = planner.next_ready_rebase(&planner.targets[number]).map(key_of)?;
            let published = &mut planner.targets[number].contents.published;
            Some((published.keys.insert(next), published.rebased.insert(next)))
        };
        for is_published in [false, true] {
            prop_assert_eq!((next_prepared(&planner), planner.choose_pins()), (next_prepared(&plain), plain.choose_pins()));
            let unneeded = |planner: &Planner<'_>| keys(&planner.find_unneeded().into_iter().cloned().collect::<Vec<_>>());
            let ordinary: BTreeSet<ArchiveKey> = unneeded(&planner).difference(&planner.ready_rebases()).copied().collect();
            prop_assert_eq!(ordinary, unneeded(&plain));
            for number in 0..planner.targets.len() {
                let next = planner.next_ordinary(&planner.targets[number]);
                prop_assert_eq!(next, plain.next_ordinary(&plain.targets[number]));
                let mut published_count = 0;
                while !is_published && publish_next_rebase(&mut planner, number).is_some() {
                    published_count += 1;
                    prop_assert!(published_count <= count);
                }
            }
        }
        prop_assert!(planner.needed_rebases().is_empty());
    }
}
