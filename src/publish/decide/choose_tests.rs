//! Decisions of the plan in made-up situations.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use slotpress_format::ledger::names::*;
use slotpress_read::catalog::Archive;

use super::choose::*;

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

const ONTO_TWO: usize = 2;

fn onto(rebase_onto: usize) -> PlanOptions {
    PlanOptions { rebase_onto, ..options() }
}

fn dir(names: &[ArchiveName]) -> ArchiveSet {
    ArchiveSet { is_dir: true, ..published(names) }
}

fn keys(names: &[ArchiveName]) -> BTreeSet<Key> {
    names.iter().map(key).collect()
}

#[test]
fn the_newest_full_archive_is_rebased_onto_older_ones() {
    let fulls = [full(100), full(200), full(300)];
    let mut now = situation(&fulls, vec![dir(&fulls)]);
    assert_eq!(now.to_rebase(&onto(0)), keys(&[]));
    assert_eq!(now.to_rebase(&onto(1)), keys(&[on(200, 300)]));
    assert_eq!(now.to_rebase(&onto(16)), keys(&[on(200, 300), on(100, 300)]));
    now.targets = vec![dir(&[&fulls[..], &[on(200, 300)]].concat())];
    assert_eq!(now.to_rebase(&onto(ONTO_TWO)), keys(&[on(100, 300)]), "what a validator made is as good");
    now.ready = vec![on(100, 300)];
    now.rebased = keys(&now.ready);
    assert_eq!(now.to_rebase(&onto(ONTO_TWO)), keys(&[]));
    assert_eq!(now.next_rebased(0, &onto(ONTO_TWO)), Some(&on(100, 300)));
    assert_eq!((now.next_to_publish(0), now.unneeded(&onto(ONTO_TWO)).len()), (None, 0));
    assert_eq!(now.next_rebased(0, &onto(1)), None, "only one is asked for");
    assert_eq!(now.unneeded(&onto(1)), [&on(100, 300)]);
    now.ready.clear();
    now.refused = keys(&[on(100, 300)]);
    assert_eq!(now.to_rebase(&onto(ONTO_TWO)), keys(&[]));
}

#[test]
fn the_next_full_archive_drops_what_is_rebased() {
    let mut now = situation(&[full(300)], vec![dir(&[full(100), full(200)])]);
    assert_eq!(now.to_rebase(&onto(1)), keys(&[]), "it is seen");
    now.ready = vec![full(300), on(100, 200)];
    now.rebased = keys(&[on(100, 200)]);
    assert_eq!(now.to_rebase(&onto(1)), keys(&[]), "the directory does not have it yet");
    assert_eq!(now.unneeded(&onto(1)), [&on(100, 200)]);
    now.targets = vec![dir(&[full(100), full(200), full(300)])];
    assert_eq!(now.to_rebase(&onto(1)), keys(&[on(200, 300)]));
}

#[test]
fn only_a_directory_with_both_full_archives_is_read() {
    let (fulls, lags) = ([full(100), full(200)], published(&[full(100)]));
    let mut now = situation(&fulls, vec![published(&fulls), dir(&[full(200)])]);
    assert_eq!(now.to_rebase(&onto(1)), keys(&[]));
    now.targets = vec![published(&fulls), dir(&fulls), lags];
    now.ready = vec![full(200)];
    assert_eq!(now.to_rebase(&onto(1)), keys(&[on(100, 200)]));
    now.ready.push(on(100, 200));
    now.rebased = keys(&[on(100, 200)]);
    let next = |at| now.next_to_publish(at).or_else(|| now.next_rebased(at, &onto(1)));
    assert_eq!([0, 1, 2].map(next), [Some(&on(100, 200)), Some(&on(100, 200)), Some(&full(200))]);
}

#[test]
fn an_ordinary_archive_on_an_old_one_is_not_wanted() {
    let mut now = situation(&[on(100, 200)], vec![dir(&[full(100), full(200)])]);
    assert_eq!(prepared(&now, &onto(1)), None);
    now.ready = vec![on(100, 200)];
    assert_eq!((now.next_to_publish(0), now.next_rebased(0, &onto(1))), (None, None));
    assert_eq!(now.unneeded(&onto(1)), [&on(100, 200)]);
}

/// Also where its full archive is the newest again, because a newer one was removed.
#[test]
fn a_rebased_archive_is_never_the_newest() {
    let has = |names: &[ArchiveName]| ArchiveSet { rebased: keys(&[on(100, 200)]), ..dir(names) };
    let mut now = situation(&[on(100, 150)], vec![has(&[full(100), on(100, 200)])]);
    assert_eq!(prepared(&now, &options()), Some(on(100, 150)));
    assert!(!now.targets[0].wants(&on(100, 200)), "it is there");
    now = situation(&[on(200, 210)], vec![has(&[full(100), full(200), on(100, 200)])]);
    assert_eq!(prepared(&now, &options()), Some(on(200, 210)));
}

/// Full archives of slots 10, 20, … by the bits of a number.
fn fulls_of(bits: u8) -> Vec<ArchiveName> {
    (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| full(10 * (bit + 1))).collect()
}

/// Few archives, so that they relate to each other.
fn some_archives() -> impl Strategy<Value = Vec<ArchiveName>> {
    let incremental = (1u64..9, 1u64..9).prop_map(|(base, more)| on(10 * base, 10 * base + more));
    (any::<u8>(), prop::collection::vec(incremental, 0..6))
        .prop_map(|(bits, incrementals)| [fulls_of(bits), incrementals].concat())
}

proptest! {
    /// Each rebase that is made gets to the targets, none is made twice, and what else is done stays as it is.
    #[test]
    fn rebased_archives_change_nothing_else(
        seen in some_archives(),
        ready in some_archives(),
        targets in prop::collection::vec((some_archives(), any::<bool>()), 1..4),
        keep_slot in 0u64..90,
        count in 0usize..4,
    ) {
        let targets = targets.iter().map(|(has, is_dir)| ArchiveSet { is_dir: *is_dir, ..published(has) }).collect();
        let plain = Situation { ready, ..situation(&seen, targets) };
        let options = PlanOptions { keep_slots: [keep_slot].into(), ..onto(count) };
        let mut now = plain.clone();
        while let Some(next) = now.to_rebase(&options).last().copied() {
            let (base, slot, _) = next;
            prop_assert!(now.targets.iter().any(|target| target.can_rebase(&next)));
            prop_assert!(base < Some(slot) && now.rebased.insert(next), "made twice: {next:?}");
            now.ready.push(on(base.unwrap_or_default(), slot));
        }
        let publish = |now: &mut Situation, at: usize| {
            let next = now.next_rebased(at, &options).map(key);
            next.map(|next| (now.targets[at].keys.insert(next), now.targets[at].rebased.insert(next)))
        };
        for is_published in [false, true] {
            let (made, plainly) = (now.next_to_prepare(&options), plain.next_to_prepare(&options));
            prop_assert_eq!((made, now.pins(&options)), (plainly, plain.pins(&options)));
            let unneeded = |of: &Situation| keys(&of.unneeded(&options).into_iter().cloned().collect::<Vec<_>>());
            let ordinary: BTreeSet<Key> = unneeded(&now).difference(&now.rebased).copied().collect();
            prop_assert_eq!(ordinary, unneeded(&plain));
            for at in 0..now.targets.len() {
                prop_assert_eq!(now.next_to_publish(at), plain.next_to_publish(at));
                prop_assert_eq!(now.next_to_keep(at, &options), plain.next_to_keep(at, &options));
                let mut left = count;
                while !is_published && publish(&mut now, at).is_some() {
                    prop_assert!(left > 0, "more than {count}");
                    left -= 1;
                }
            }
        }
        prop_assert!(now.to_rebase(&options).is_empty());
    }
}
