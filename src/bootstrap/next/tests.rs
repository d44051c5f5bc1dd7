//! Tests the decision after each failure, as a table.

use std::path::PathBuf;

use slotpress_format::Hash;
use slotpress_format::ledger::names::ArchiveCompression;
use slotpress_net::{OfferPlace, Remote, parse_url};

use super::*;

pub const FULL_BYTES: u64 = 100_000;
const INCREMENTAL_BYTES: u64 = 1_000;

fn name(base_slot: Option<u64>, slot: u64) -> ArchiveName {
    ArchiveName { base_slot, slot, hash: Hash([slot as u8; 32]), compression: ArchiveCompression::Zstd }
}

/// Creates an offer of a server, or of this node (`None`).
pub fn offer(server: Option<usize>, base_slot: Option<u64>, slot: u64) -> Offer {
    let name = name(base_slot, slot);
    let (source, place) = match server {
        Some(number) => {
            let source = format!("http://s{number}.example");
            let url = parse_url(&format!("{source}/{name}")).expect("a URL");
            (source, OfferPlace::Remote(Remote::from_url(&url)))
        }
        None => ("/node".to_string(), OfferPlace::Local(PathBuf::from(format!("/node/{name}")))),
    };
    let length_bytes = Some(if base_slot.is_none() { FULL_BYTES } else { INCREMENTAL_BYTES });
    let mut offer = Offer::new(name, place);
    offer.length_bytes = length_bytes;
    offer.source = source;
    offer
}

pub fn selection(offers: Vec<Offer>) -> Selection {
    let restore_bytes_per_second = 200_000_000;
    let ranking = Ranking { offers, wants_incremental: true, restore_bytes_per_second, ..Ranking::default() };
    Selection { ranking, ..Selection::default() }
}

/// The archives of the best candidate, with or without the incremental one.
fn tried(selection: &Selection, has_incremental: bool) -> Attempt {
    let Attempt { full, incremental } = selection.choose_archives(&selection.best().expect("a candidate"));
    Attempt { full, incremental: if has_incremental { incremental } else { None } }
}

/// Describes what the run does next.
fn next_step(selection: &Selection, tried: &Attempt, reason: Option<&Reason>) -> &'static str {
    let failed = tried.newest();
    if selection.is_outdated {
        return "slotpress asks the sources again";
    }
    // The state of two archives is checked at the end, when neither can be replaced.
    let planned = if reason == Some(&Reason::Refused) { None } else { tried.incremental.as_ref() };
    let on = planned.map(|planned| selection.next_on(&tried.full, Some(planned.name.slot), reason.is_some()));
    match (on, selection.require_best()) {
        (Some(Next::Alone), _) => "the state of the full archive alone",
        (_, Err(error)) if error.hint() == Some(hint::USE_RESTORE) => "the run ends, and names local archives",
        (_, Err(_)) => "the run ends with all reasons",
        (_, Ok(best)) => match best.offers().find(|offer| offer.name == failed.name) {
            Some(offer) if offer.location() == failed.first_place() && reason.is_some() => "it is fetched again",
            Some(_) if reason.is_some() => "the next source of the same archive",
            _ if tried.full.is_local() => "the best of the others",
            _ => "the next best archive",
        },
    }
}

/// Archives on offer: of two servers, of one, or of the node and a server.
#[derive(Clone, Copy)]
enum Offers {
    Two,
    One,
    Base,
    BaseOnly,
}

impl Offers {
    fn selection(self) -> Selection {
        selection(match self {
            Self::Two => [1, 2]
                .into_iter()
                .flat_map(|server| [offer(Some(server), None, 20), offer(Some(server), Some(20), 40)])
                .collect(),
            Self::One => vec![offer(Some(1), None, 20), offer(Some(1), Some(20), 40)],
            Self::Base => vec![offer(None, None, 20), offer(Some(1), Some(20), 40), offer(Some(1), None, 30)],
            Self::BaseOnly => vec![offer(None, None, 20), offer(Some(1), Some(20), 40)],
        })
    }

    fn label(self) -> &'static str {
        match self {
            Self::Two => "two sources",
            Self::One => "one source",
            Self::Base => "the node and a source",
            Self::BaseOnly => "the node alone",
        }
    }
}

struct Row {
    offers: Offers,
    /// True if the incremental archive failed.
    has_incremental: bool,
    /// `None` if the archive is not on offer any more.
    reason: Option<Reason>,
    /// Number of repetitions so far.
    again: usize,
    failure: &'static str,
    /// Beginning of the description of the next step.
    expected: &'static str,
}

fn full(offers: Offers, reason: Reason, failure: &'static str, expected: &'static str) -> Row {
    Row { offers, has_incremental: false, reason: Some(reason), again: 0, failure, expected }
}

fn pair(offers: Offers, reason: Option<Reason>, failure: &'static str, expected: &'static str) -> Row {
    Row { offers, has_incremental: true, reason, again: 0, failure, expected }
}

fn ninth_time(row: Row) -> Row {
    Row { again: AGAIN_MAX, ..row }
}

const UNUSABLE: Reason = Reason::Unusable(Vec::new());

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        full(Offers::One, Reason::KeptIsWrong, "a frame is wrong, and an earlier run fetched a part of it", "it is fetched"),
        full(Offers::Two, Reason::PublishedAgain, "the source has another archive under the name", "the next source"),
        full(Offers::One, Reason::PublishedAgain, "the source has another archive under the name", "slotpress asks"),
        ninth_time(full(Offers::One, Reason::PublishedAgain, "the same, for the ninth time", "the run ends with")),
        full(Offers::Two, UNUSABLE, "gone, given up, or wrong", "the next source"),
        full(Offers::One, UNUSABLE, "gone, given up, or wrong", "the run ends with"),
        full(Offers::One, Reason::Refused, "the full archive turns out wrong while it is read", "slotpress asks"),
        full(Offers::Base, UNUSABLE, "the node's archive is a pipe, directory or link, or too short", "the best of"),
        pair(Offers::Base, Some(Reason::Refused), "the full and the incremental archive do not give the state", "the best of"),
        pair(Offers::Two, Some(Reason::Refused), "the full and the incremental archive do not give the state", "the next source"),
        pair(Offers::Two, Some(UNUSABLE), "the incremental archive is gone, given up or wrong", "slotpress asks"),
        ninth_time(pair(Offers::Two, Some(UNUSABLE), "the same, for the ninth time", "the next source")),
        pair(Offers::One, Some(Reason::Unconfirmed), "too few trusted servers confirm the incremental archive", "slotpress asks"),
        pair(Offers::One, None, "no source has an incremental archive any more", "the state of the full archive alone"),
        pair(Offers::Base, None, "no source has an incremental archive any more", "the best of"),
        pair(Offers::BaseOnly, None, "no source has an incremental archive any more", "the run ends, and names local archives"),
    ]
}

#[test]
fn each_failure_has_its_next_step() {
    for Row { offers, has_incremental, reason, again, failure, expected } in rows() {
        let mut selection = offers.selection();
        let tried = tried(&selection, has_incremental);
        selection.repetitions.insert(tried.newest().source_at_fault(), again);
        match &reason {
            Some(reason) => selection.record(&tried, reason, &Error::new(ErrorKind::Network, "why")),
            None => {
                selection.ranking.offers.retain(Offer::is_full);
                selection.record_lost(&tried);
            }
        }
        let next_step = next_step(&selection, &tried, reason.as_ref());
        assert!(next_step.starts_with(expected), "{failure}, {}: {next_step}", offers.label());
    }
}

/// The decision depends on what has failed, what was planned, and whether another candidate is
/// better.
#[test]
fn the_newest_incremental_archive_is_used_unless_another_candidate_is_better() {
    let with = |offers: &[Offer]| selection([&[offer(Some(1), None, 20)], offers].concat());
    let incremental = |slot| offer(Some(1), Some(20), slot);
    let better = offer(Some(2), None, 50);
    for (offers, planned, has_failed, expected) in [
        (vec![incremental(40)], None, false, "Take"),
        (vec![incremental(40), better.clone()], Some(40), false, "Take"),
        (vec![incremental(30)], Some(40), false, "Take"),
        (vec![incremental(30), better.clone()], Some(40), false, "Leave"),
        (vec![incremental(40)], Some(40), true, "Take"),
        (vec![incremental(40), better.clone()], Some(40), true, "Leave"),
        (vec![], None, false, "Alone"),
        (vec![better.clone()], None, false, "Alone"),
        (vec![], Some(40), false, "Alone"),
        (vec![better], Some(40), true, "Leave"),
    ] {
        let selection = with(&offers);
        let full = ChosenArchive::from_offer(&selection.ranking.offers[0], &[]);
        let on = format!("{:?}", selection.next_on(&full, planned, has_failed));
        assert!(on.starts_with(expected), "{} offers, {planned:?}, {has_failed}: {on}", offers.len());
    }
}

/// A server that has another file at each request uses up its own repetitions only.
#[test]
fn a_failing_server_uses_up_only_its_own_repetitions() {
    let mut selection = Offers::Two.selection();
    let error = Error::new(ErrorKind::Network, "why");
    let liar = tried(&selection, false);
    for _ in 0..2 * AGAIN_MAX {
        selection.record(&liar, &Reason::KeptIsWrong, &error);
    }
    let other = tried(&selection, false);
    assert_ne!(other.full.source_at_fault(), liar.full.source_at_fault(), "the liar is excluded");
    let failures = selection.node.failed.len();
    selection.record(&other, &Reason::KeptIsWrong, &error);
    assert_eq!(selection.node.failed.len(), failures, "the other is asked again");
    let is_added = |selection: &mut Selection, server| {
        let before = selection.ranking.offers.len();
        selection.add([offer(Some(server), Some(20), 60)]);
        selection.ranking.offers.len() > before
    };
    assert!(!is_added(&mut selection, 1), "the liar adds nothing");
    assert!(is_added(&mut selection, 2), "the other server adds its archive");
}

/// A source that names a slot which the cluster has not reached is not asked for its archive.
#[test]
fn slots_that_the_cluster_has_not_reached_are_ignored() {
    let mut selection = Offers::One.selection();
    selection.ranking.slot = Some(100);
    selection.add([offer(Some(1), Some(20), 60), offer(Some(1), Some(20), 1_000_000_000_000_000)]);
    let full = selection.choose_archives(&selection.best().expect("a candidate")).full;
    assert_eq!(selection.newest_on(&full).map(|newest| newest.name.slot), Some(60));
}
