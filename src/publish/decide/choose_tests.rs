//! What the planner decides in made-up situations.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use slotpress_format::ledger::names::*;
use slotpress_format::{FrameHashesLocation, SlotTime};
use slotpress_read::catalog::{Archive, FrameHashes};

use super::choose::*;
use super::*;
use crate::publish::act::pins::PinResult;

fn full(slot: u64) -> ArchiveName {
    ArchiveName { base_slot: None, slot, hash: Hash([7; 32]), compression: ArchiveCompression::Zstd }
}

fn on(base: u64, slot: u64) -> ArchiveName {
    ArchiveName { base_slot: Some(base), ..full(slot) }
}

fn archives(names: &[ArchiveName]) -> Vec<Archive> {
    names.iter().map(|name| Archive::new(name.clone(), "/snapshots", 10)).collect()
}

fn ready(names: &[ArchiveName]) -> Vec<PreparedArchive> {
    let ready = |archive| PreparedArchive { archive, slot_time: SlotTime::ASSUMED, epoch_schedule: None };
    archives(names).into_iter().map(ready).collect()
}

fn rebased(name: ArchiveName) -> PreparedArchive {
    let mut rebased = ready(&[name]).remove(0);
    let root = "1".repeat(64).parse().expect("a root");
    let at = FrameHashesLocation { offset_bytes: 0, frames: 1 };
    rebased.archive.hashes = Some(FrameHashes { root, location: at, rebased_on: Some(Hash([7; 32])) });
    rebased
}

fn published(names: &[ArchiveName]) -> TargetState {
    let contents =
        TargetContents { published: ArchiveSet::from_archives(&archives(names)), ..TargetContents::default() };
    TargetState { contents, is_known: true, ..TargetState::default() }
}

/// Leaks the options, which are small, so that they are `'static`.
fn leak(options: PublishOptions) -> &'static PublishOptions {
    Box::leak(Box::new(options))
}

fn options() -> PublishOptions {
    PublishOptions::new("/snapshots", []).every(Duration::from_secs(300))
}

fn situation(seen: &[ArchiveName], targets: Vec<TargetState>) -> Planner<'static> {
    let mut now = Planner::new(leak(options()), [], Instant::now());
    (now.facts.seen, now.targets) = (archives(seen), targets);
    now
}

fn prepared(state: &Planner<'_>) -> Option<ArchiveName> {
    state.next_to_prepare().map(|archive| archive.name.clone())
}

/// A preparation that failed.
fn preparation_failed(pinned: &Archive) -> EndedWork {
    let name = pinned.name.clone();
    let source = Some(PinnedSource { was: FileIdentity::from(pinned), is_quiet: true });
    EndedWork { name, result: Err(Error::failed("a full disk")), elapsed: Duration::ZERO, source }
}

/// State of an archive that has failed so often that others are prepared first.
fn waiting() -> Retry {
    let mut retry = Retry::default();
    for _ in 0..3 {
        retry.fail(false, Instant::now());
    }
    retry
}

#[test]
fn the_newest_full_then_the_newest_incremental_on_it() {
    let seen = [full(100), full(200), on(200, 210), on(200, 220), on(100, 190)];
    let mut now = situation(&seen, vec![published(&[])]);
    assert_eq!(prepared(&now), Some(full(200)));
    assert_eq!(now.choose_pins().add, [full(200)]);
    now.facts.ready = ready(&[full(200)]);
    assert_eq!(prepared(&now), Some(on(200, 220)), "it is not published yet, but it will be");
    now.facts.ready.extend(ready(&[on(200, 220)]));
    assert_eq!(prepared(&now), None, "nothing older is made");
    assert_eq!(now.next_to_publish(&now.targets[0]), Some(&full(200)));
    now.targets = vec![published(&[full(200)])];
    assert_eq!(now.next_to_publish(&now.targets[0]), Some(&on(200, 220)));
    assert_eq!(now.find_unneeded(), [&full(200)]);
    now.targets = vec![published(&[full(200), on(200, 220)])];
    assert_eq!((now.next_to_publish(&now.targets[0]), now.find_unneeded().len()), (None, 2));
}

#[test]
fn an_incremental_one_waits_for_its_turn() {
    let mut now = situation(&[full(1), on(1, 5)], vec![published(&[full(1), on(1, 3)])]);
    now.facts.since_incremental = Some(Duration::from_secs(299));
    assert_eq!((prepared(&now), now.choose_pins()), (None, PinChanges::default()));
    now.facts.since_incremental = Some(Duration::from_secs(300));
    assert_eq!((prepared(&now), now.choose_pins().add), (Some(on(1, 5)), vec![on(1, 5)]));
    now.preparing = Some(on(1, 5));
    now.facts.pinned = archives(&[on(1, 5)]);
    now.facts.seen.push(archives(&[on(1, 9)]).remove(0));
    assert_eq!((prepared(&now), now.choose_pins()), (None, PinChanges::default()), "one at a time");
}

#[test]
fn older_baseless_and_refused_archives_are_left_out() {
    let now = situation(&[full(1), on(1, 5), on(7, 9)], vec![published(&[full(5)])]);
    assert_eq!(prepared(&now), None);
    let mut now = situation(&[full(8), full(9)], vec![published(&[full(5)])]);
    now.retries.insert(key(&full(9)), Retry { failures: 0, next: NextAttempt::Never });
    assert_eq!(prepared(&now), Some(full(8)));
}

#[test]
fn an_archive_that_fails_repeatedly_blocks_no_other_and_stays_pinned() {
    let mut now = situation(&[full(8), full(9), on(5, 7)], vec![published(&[full(5)])]);
    now.retries.insert(key(&full(9)), waiting());
    assert_eq!((prepared(&now), now.choose_pins().add), (Some(full(8)), vec![full(9), full(8)]));
    now.retries.insert(key(&full(8)), waiting());
    assert_eq!((prepared(&now), now.choose_pins().add), (Some(on(5, 7)), vec![full(9), on(5, 7)]));
    now.retries.clear();
    assert_eq!((prepared(&now), now.choose_pins().add), (Some(full(9)), vec![full(9)]));
}

#[test]
fn a_run_that_ends_by_itself_tries_once() {
    let options = leak(options().once(true));
    let mut now = Planner::new(options, [], Instant::now());
    now.targets = vec![published(&[full(5)])];
    let facts = Observed { seen: archives(&[full(9)]), pinned: archives(&[full(9)]), ..Observed::default() };
    now.record_scan(facts.clone(), 0);
    assert!(!now.is_over());
    now.add_ended(preparation_failed(&facts.pinned[0]));
    now.record_scan(facts.clone(), 1);
    assert!(prepared(&now).is_none() && now.is_over(), "it is given up");

    let mut now = Planner::new(options, [], Instant::now());
    now.targets = vec![published(&[full(5)])];
    now.record_scan(Observed { seen: archives(&[full(9)]), ..Observed::default() }, 0);
    assert!(!now.is_over());
    now.record_pin(facts.seen[0].clone(), PinResult::NotNow);
    assert!(matches!(now.events[..], [PublishEvent::Skipped { .. }]) && now.is_over());
    now.check_left_out().expect("a file that is being written is no failure");
}

#[test]
fn an_incremental_one_that_failed_is_tried_again_at_the_announced_time() {
    let begun = Duration::ZERO;
    let mut now = Planner::new(leak(options()), [], Instant::now());
    now.targets = vec![published(&[full(1)])];
    let there = archives(&[on(1, 5)]);
    let mut facts = Observed { seen: there.clone(), pinned: there.clone(), ..Observed::default() };
    for attempt in 1..=5 {
        now.record_scan(facts.clone(), 0);
        assert_eq!(now.begin_preparing(), Some(on(1, 5)), "attempt {attempt}");
        facts.since_incremental = Some(begun);
        now.add_ended(preparation_failed(&there[0]));
        now.record_scan(facts.clone(), 1);
        let told = mem::take(&mut now.events);
        let [PublishEvent::Failed { retry: Some(retry), .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(now.choose_pins().drop, [], "attempt {attempt}: it stays pinned");
        assert_eq!(now.begin_preparing(), None, "attempt {attempt}: not yet");
        let later = now.now + *retry;
        now.set_time(later);
    }
}

#[test]
fn a_target_that_lags_gets_the_newest_alone() {
    let mut now = situation(&[full(9)], vec![published(&[full(9), on(9, 20)]), published(&[])]);
    now.facts.ready = ready(&[full(5), full(9), on(9, 12), on(9, 20)]);
    assert_eq!((now.next_to_publish(&now.targets[0]), now.next_to_publish(&now.targets[1])), (None, Some(&full(9))));
    assert_eq!(now.find_unneeded(), [&full(5), &on(9, 12)], "the backlog is the newest pair");
}

#[test]
fn pins_go_when_nothing_needs_them_and_never_take_more_than_allowed() {
    let mut now = situation(&[], vec![published(&[full(9)])]);
    now.facts.pinned = archives(&[full(9), full(12)]);
    assert_eq!(now.choose_pins(), PinChanges { drop: vec![full(9)], ..PinChanges::default() });
    now.preparing = Some(full(12));
    now.facts.seen = archives(&[full(20)]);
    assert_eq!(now.choose_pins().add, [full(20)]);
    now.options = leak(options().pin_bytes(15));
    assert_eq!(now.choose_pins(), PinChanges { drop: vec![full(9)], no_room: vec![full(20)], ..PinChanges::default() });
}

/// Sets the number of full archives to rebase onto.
fn at<'n>(now: &'n mut Planner<'static>, rebase_onto: usize) -> &'n Planner<'static> {
    now.options = leak(options().rebase_onto(rebase_onto));
    now
}

fn dir(names: &[ArchiveName]) -> TargetState {
    TargetState { is_dir: true, ..published(names) }
}

fn keys(names: &[ArchiveName]) -> BTreeSet<StateKey> {
    names.iter().map(key).collect()
}

#[test]
fn the_newest_full_archive_is_rebased_onto_older_ones() {
    let fulls = [full(100), full(200), full(300)];
    let mut now = situation(&fulls, vec![dir(&fulls)]);
    assert_eq!(at(&mut now, 0).needed_rebases(), keys(&[]));
    assert_eq!(at(&mut now, 1).needed_rebases(), keys(&[on(200, 300)]));
    assert_eq!(at(&mut now, 16).needed_rebases(), keys(&[on(200, 300), on(100, 300)]));
    now.targets = vec![dir(&[&fulls[..], &[on(200, 300)]].concat())];
    assert_eq!(at(&mut now, 2).needed_rebases(), keys(&[on(100, 300)]), "a validator's own archive serves as well");
    now.facts.ready = vec![rebased(on(100, 300))];
    assert_eq!(now.needed_rebases(), keys(&[]));
    assert_eq!(now.next_rebased(&now.targets[0]), Some(&on(100, 300)));
    assert_eq!((now.next_to_publish(&now.targets[0]), now.find_unneeded().len()), (None, 0));
    at(&mut now, 1);
    assert_eq!(now.next_rebased(&now.targets[0]), None, "only one is asked for");
    assert_eq!(now.find_unneeded(), [&on(100, 300)]);
    now.facts.ready.clear();
    now.retries.insert(key(&on(100, 300)), Retry { failures: 0, next: NextAttempt::Never });
    assert_eq!(now.needed_rebases(), keys(&[]));
    now.record_scan(now.facts.clone(), 0);
    assert_eq!(now.needed_rebases(), keys(&[]), "still given up after a look");
}

#[test]
fn the_next_full_archive_drops_rebased_ones() {
    let mut now = situation(&[full(300)], vec![dir(&[full(100), full(200)])]);
    assert_eq!(at(&mut now, 1).needed_rebases(), keys(&[]), "a newer one is to be prepared");
    now.facts.ready = [ready(&[full(300)]), vec![rebased(on(100, 200))]].concat();
    assert_eq!(now.needed_rebases(), keys(&[]), "the directory does not have it yet");
    assert_eq!(now.find_unneeded(), [&on(100, 200)]);
    now.targets = vec![dir(&[full(100), full(200), full(300)])];
    assert_eq!(now.needed_rebases(), keys(&[on(200, 300)]));
}

#[test]
fn only_a_directory_with_both_full_archives_is_read() {
    let fulls = [full(100), full(200)];
    let lags = published(&[full(100)]);
    let mut now = situation(&fulls, vec![published(&fulls), dir(&[full(200)])]);
    assert_eq!(at(&mut now, 1).needed_rebases(), keys(&[]));
    now.targets = vec![published(&fulls), dir(&fulls), lags];
    now.facts.ready = ready(&[full(200)]);
    assert_eq!(now.needed_rebases(), keys(&[on(100, 200)]));
    now.facts.ready.push(rebased(on(100, 200)));
    let nexts: Vec<_> = now.targets.iter().map(|target| now.next_for(target).cloned()).collect();
    assert_eq!(nexts, [Some(on(100, 200)), Some(on(100, 200)), Some(full(200))]);
}

#[test]
fn an_ordinary_archive_on_an_old_one_is_not_wanted() {
    let mut now = situation(&[on(100, 200)], vec![dir(&[full(100), full(200)])]);
    assert_eq!(prepared(at(&mut now, 1)), None);
    now.facts.ready = ready(&[on(100, 200)]);
    assert_eq!((now.next_to_publish(&now.targets[0]), now.next_rebased(&now.targets[0])), (None, None));
    assert_eq!(now.find_unneeded(), [&on(100, 200)]);
}

/// A rebased archive is not the newest even if its full archive is, because a newer one was
/// removed.
#[test]
fn a_rebased_archive_is_never_the_newest() {
    let has = |names: &[ArchiveName]| {
        let mut has = dir(names);
        has.contents.published.rebased = keys(&[on(100, 200)]);
        has
    };
    let mut now = situation(&[on(100, 150)], vec![has(&[full(100), on(100, 200)])]);
    assert_eq!(prepared(&now), Some(on(100, 150)));
    assert!(!now.targets[0].contents.published.wants(&on(100, 200)), "it is there");
    now = situation(&[on(200, 210)], vec![has(&[full(100), full(200), on(100, 200)])]);
    assert_eq!(prepared(&now), Some(on(200, 210)));
}

/// Full archives of slots 10, 20, …: one for each bit that is set.
fn fulls_of(bits: u8) -> Vec<ArchiveName> {
    (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| full(10 * (bit + 1))).collect()
}

/// Generates few archives, so that many of them belong together.
fn some_archives() -> impl Strategy<Value = Vec<ArchiveName>> {
    let incremental = (1u64..9, 1u64..9).prop_map(|(base, more)| on(10 * base, 10 * base + more));
    (any::<u8>(), prop::collection::vec(incremental, 0..6))
        .prop_map(|(bits, incrementals)| [fulls_of(bits), incrementals].concat())
}

proptest! {
    /// Each rebased archive reaches the targets, none is made twice, and all else happens as
    /// without rebasing.
    #[test]
    fn rebased_archives_change_nothing_else(
        seen in some_archives(),
        ready in some_archives(),
        targets in prop::collection::vec((some_archives(), any::<bool>()), 1..4),
        count in 0usize..4,
    ) {
        let target = |(has, is_dir): &(Vec<ArchiveName>, bool)| TargetState { is_dir: *is_dir, ..published(has) };
        let situation = || {
            let mut now = situation(&seen, targets.iter().map(target).collect());
            now.facts.ready = super::choose_tests::ready(&ready);
            now.options = leak(options().rebase_onto(count));
            now
        };
        let plain = situation();
        let mut now = situation();
        while let Some(next) = now.needed_rebases().last().copied() {
            let (base, slot, _) = next;
            prop_assert!(now.targets.iter().any(|target| target.can_rebase(&next)));
            prop_assert!(base < Some(slot) && !now.rebased_ready().contains(&next), "made twice: {next:?}");
            now.facts.ready.push(rebased(on(base.unwrap_or_default(), slot)));
        }
        let publish = |now: &mut Planner<'_>, at: usize| {
            let next = now.next_rebased(&now.targets[at]).map(key)?;
            let has = &mut now.targets[at].contents.published;
            Some((has.keys.insert(next), has.rebased.insert(next)))
        };
        for is_published in [false, true] {
            prop_assert_eq!((prepared(&now), now.choose_pins()), (prepared(&plain), plain.choose_pins()));
            let unneeded = |of: &Planner<'_>| keys(&of.find_unneeded().into_iter().cloned().collect::<Vec<_>>());
            let ordinary: BTreeSet<StateKey> = unneeded(&now).difference(&now.rebased_ready()).copied().collect();
            prop_assert_eq!(ordinary, unneeded(&plain));
            for at in 0..now.targets.len() {
                let target = &now.targets[at];
                let of_plain = &plain.targets[at];
                prop_assert_eq!(now.next_to_publish(target), plain.next_to_publish(of_plain));
                let mut left = count;
                while !is_published && publish(&mut now, at).is_some() {
                    prop_assert!(left > 0, "more than {count}");
                    left -= 1;
                }
            }
        }
        prop_assert!(now.needed_rebases().is_empty());
    }
}
