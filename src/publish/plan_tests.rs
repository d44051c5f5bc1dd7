//! Decisions of the plan in made-up situations.

use std::time::Duration;

use slotpress_format::ledger::names::*;
use slotpress_read::catalog::Archive;

use super::plan::*;

fn full(slot: u64) -> ArchiveName {
    ArchiveName { base_slot: None, slot, hash: Hash([7; 32]), extension: Extension::TarZstd }
}

fn on(base: u64, slot: u64) -> ArchiveName {
    ArchiveName { base_slot: Some(base), ..full(slot) }
}

fn archives(names: &[ArchiveName]) -> Vec<Archive> {
    names.iter().map(|name| Archive::of_server(name.clone(), "/snapshots", 10)).collect()
}

fn published(names: &[ArchiveName]) -> ArchiveSet {
    ArchiveSet::of(names)
}

fn options() -> PlanOptions {
    PlanOptions { every: Duration::from_secs(300), ..PlanOptions::default() }
}

fn situation(seen: &[ArchiveName], targets: Vec<ArchiveSet>) -> Situation {
    let kept = vec![ArchiveSet::default(); targets.len()];
    Situation { seen: archives(seen), targets, kept, ..Situation::default() }
}

fn prepared(situation: &Situation, options: &PlanOptions) -> Option<ArchiveName> {
    situation.next_to_prepare(options).map(|archive| archive.name)
}

#[test]
fn the_newest_full_then_the_newest_incremental_on_it() {
    let seen = [full(100), full(200), on(200, 210), on(200, 220), on(100, 190)];
    let mut now = situation(&seen, vec![ArchiveSet::default()]);
    assert_eq!(prepared(&now, &options()), Some(full(200)));
    assert_eq!(now.pins(&options()).add, [full(200)]);
    now.ready.push(full(200));
    assert_eq!(prepared(&now, &options()), Some(on(200, 220)), "it is not published yet, but it will be");
    now.ready.push(on(200, 220));
    assert_eq!(prepared(&now, &options()), None, "nothing older is made");
    assert_eq!(now.next_to_publish(0), Some(&full(200)));
    now.targets = vec![published(&[full(200)])];
    assert_eq!(now.next_to_publish(0), Some(&on(200, 220)));
    assert_eq!(now.unneeded(&options()), [&full(200)]);
    now.targets = vec![published(&[full(200), on(200, 220)])];
    assert_eq!((now.next_to_publish(0), now.unneeded(&options()).len()), (None, 2));
}

#[test]
fn an_incremental_one_waits_for_its_turn() {
    let mut now = situation(&[full(1), on(1, 5)], vec![published(&[full(1), on(1, 3)])]);
    now.since_incremental = Some(Duration::from_secs(299));
    assert_eq!((prepared(&now, &options()), now.pins(&options())), (None, PinChanges::default()));
    now.since_incremental = Some(Duration::from_secs(300));
    assert_eq!((prepared(&now, &options()), now.pins(&options()).add), (Some(on(1, 5)), vec![on(1, 5)]));
    now.preparing = Some(key(&on(1, 5)));
    now.pinned = archives(&[on(1, 5)]);
    now.seen.push(archives(&[on(1, 9)]).remove(0));
    assert_eq!((prepared(&now, &options()), now.pins(&options())), (None, PinChanges::default()), "one at a time");
}

#[test]
fn what_is_older_or_has_no_base_or_failed_is_left_out() {
    let now = situation(&[full(1), on(1, 5), on(7, 9)], vec![published(&[full(5)])]);
    assert_eq!(prepared(&now, &options()), None);
    let mut now = situation(&[full(8), full(9)], vec![published(&[full(5)])]);
    now.refused.insert(key(&full(9)));
    assert_eq!(prepared(&now, &options()), Some(full(8)));
}

#[test]
fn what_fails_again_and_again_blocks_no_other_and_stays_pinned() {
    let mut now = situation(&[full(8), full(9), on(5, 7)], vec![published(&[full(5)])]);
    now.waiting.insert(key(&full(9)));
    assert_eq!((prepared(&now, &options()), now.pins(&options()).add), (Some(full(8)), vec![full(9), full(8)]));
    now.waiting.insert(key(&full(8)));
    assert_eq!((prepared(&now, &options()), now.pins(&options()).add), (Some(on(5, 7)), vec![full(9), on(5, 7)]));
    now.waiting.clear();
    assert_eq!((prepared(&now, &options()), now.pins(&options()).add), (Some(full(9)), vec![full(9)]));
}

#[test]
fn a_target_that_lags_gets_the_newest_alone() {
    let mut now = situation(&[full(9)], vec![published(&[full(9), on(9, 20)]), ArchiveSet::default()]);
    now.ready = vec![full(5), full(9), on(9, 12), on(9, 20)];
    assert_eq!((now.next_to_publish(0), now.next_to_publish(1)), (None, Some(&full(9))));
    assert_eq!(now.unneeded(&options()), [&full(5), &on(9, 12)], "the backlog is the newest pair");
}

#[test]
fn pins_go_when_nothing_needs_them_and_never_take_more_than_allowed() {
    let mut now = situation(&[], vec![published(&[full(9)])]);
    now.pinned = archives(&[full(9), full(12)]);
    assert_eq!(now.pins(&options()), PinChanges { drop: vec![full(9)], ..PinChanges::default() });
    now.preparing = Some(key(&full(12)));
    now.seen = archives(&[full(20)]);
    let tight = PlanOptions { pin_bytes: Some(15), ..options() };
    assert_eq!(now.pins(&tight), PinChanges { drop: vec![full(9)], no_room: vec![full(20)], ..PinChanges::default() });
    assert_eq!(now.pins(&options()).add, [full(20)]);
    let pairs = PlanOptions { checks_pairs: true, ..options() };
    assert_eq!(now.pins(&pairs).drop, [], "the base of what comes");
}

#[test]
fn what_brackets_a_slot_is_kept() {
    let options = PlanOptions { keep_slots: [150].into(), ..options() };
    let published = published(&[full(100), on(100, 140)]);
    let mut now = situation(&[full(100), on(100, 140), on(100, 148)], vec![published]);
    now.since_incremental = Some(Duration::ZERO);
    assert_eq!(now.pins(&options).add, [full(100), on(100, 148)], "it may be the last before the slot");
    assert_eq!(prepared(&now, &options), None, "a later one may come");
    now.pinned = archives(&[full(100), on(100, 148)]);
    now.ready = vec![on(100, 148)];
    assert_eq!(now.pins(&options).drop, [], "what is ready goes when it is published");
    now.ready.clear();
    now.seen = archives(&[full(100), on(100, 156), on(100, 164)]);
    assert_eq!(now.pins(&options), PinChanges { add: vec![on(100, 156)], ..PinChanges::default() });
    assert_eq!(prepared(&now, &options), Some(full(100)));
    now.ready = vec![full(100), on(100, 148), on(100, 156)];
    assert_eq!((now.next_to_keep(0, &options), now.unneeded(&options).len()), (Some(&full(100)), 0));
    now.kept = vec![ArchiveSet::of(&now.ready)];
    assert_eq!((now.next_to_keep(0, &options), now.pins(&options).drop.len()), (None, 2));
    assert_eq!(now.pins(&options).add, []);
}

#[test]
fn ends_of_epochs() {
    assert_eq!(epoch_ends(&(900..=999), 0), [899, 999].into());
    assert_eq!(epoch_ends(&(900..=999), 930), [999].into());
    assert_eq!(epoch_ends(&(0..=99), 0), [99].into());
}
