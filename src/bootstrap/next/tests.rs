//! A table of failures and of the steps that follow them.

use std::path::PathBuf;

use slotpress_format::{ArchiveCompression, Hash};
use slotpress_net::{OfferPlace, Remote, parse_url};

use super::*;

pub const FULL_BYTES: u64 = 100_000;
const INCREMENTAL_BYTES: u64 = 1_000;

fn archive_name(base_slot: Option<u64>, slot: u64) -> ArchiveName {
    ArchiveName { base_slot, slot, hash: Hash([slot as u8; 32]), compression: ArchiveCompression::Zstd }
}

/// Creates an offer of a server, or of this node (`None`).
pub fn offer(server: Option<usize>, base_slot: Option<u64>, slot: u64) -> Offer {
    let name = archive_name(base_slot, slot);
    let (source, place) = match server {
        Some(number) => {
            let source = format!("http://s{number}.example");
            let url = parse_url(&format!("{source}/{name}")).expect("a URL");
            (source, OfferPlace::Remote(Remote::from_url(&url)))
        }
        None => ("/node".to_string(), OfferPlace::Local(PathBuf::from(format!("/node/{name}")))),
    };
    let file_bytes = Some(if base_slot.is_none() { FULL_BYTES } else { INCREMENTAL_BYTES });
    let mut offer = Offer::new(name, place);
    offer.file_bytes = file_bytes;
    offer.source = source;
    offer
}

pub fn selection(offers: Vec<Offer>) -> Selection {
    let restore_bytes_per_second = 200_000_000;
    let ranking = Ranking { offers, wants_incremental: true, restore_bytes_per_second, ..Ranking::default() };
    Selection { ranking, ..Selection::default() }
}

/// Returns the archives of the best candidate.
fn best_pair(selection: &Selection) -> Attempt {
    selection.choose_archives(&selection.best().expect("a candidate"))
}

/// Returns the full archive of the best candidate.
fn best_full(selection: &Selection) -> Attempt {
    Attempt { incremental: None, ..best_pair(selection) }
}

/// Describes what the run does next.
fn describe_next_step(selection: &Selection, attempt: &Attempt, reason: Option<&FaultReason>) -> &'static str {
    let failed = attempt.newest();
    if selection.is_outdated {
        return "slotpress asks the sources again";
    }
    // The state of two archives is checked at the end, when neither can be replaced.
    let planned = if reason == Some(&FaultReason::Refused) { None } else { attempt.incremental.as_ref() };
    let next = planned.map(|planned| selection.choose_next(&attempt.full, Some(planned.name.slot), reason.is_some()));
    match (next, selection.require_best()) {
        (Some(NextStep::FullAlone), _) => "the state of the full archive alone",
        (_, Err(error)) if error.hint() == Some(hint::USE_RESTORE) => "the run ends, and names local archives",
        (_, Err(_)) => "the run ends with all reasons",
        (_, Ok(best)) => match best.offers().find(|offer| offer.name == failed.name) {
            Some(offer) if offer.location() == failed.first_location() && reason.is_some() => "it is fetched again",
            Some(_) if reason.is_some() => "the next source of the same archive",
            _ if attempt.full.is_local() => "the best of the others",
            _ => "the next best archive",
        },
    }
}

#[derive(Clone, Copy)]
enum Offers {
    /// Two servers have a pair of archives.
    TwoServers,
    /// One server has a pair of archives.
    OneServer,
    /// The node has a full archive. A server has an incremental archive on it, and a newer full archive.
    NodeAndServer,
    /// The node has the only full archive. A server has an incremental archive on it.
    OnlyNodeHasFull,
}

impl Offers {
    fn selection(self) -> Selection {
        selection(match self {
            Self::TwoServers => [1, 2]
                .into_iter()
                .flat_map(|server| [offer(Some(server), None, 20), offer(Some(server), Some(20), 40)])
                .collect(),
            Self::OneServer => vec![offer(Some(1), None, 20), offer(Some(1), Some(20), 40)],
            Self::NodeAndServer => vec![offer(None, None, 20), offer(Some(1), Some(20), 40), offer(Some(1), None, 30)],
            Self::OnlyNodeHasFull => vec![offer(None, None, 20), offer(Some(1), Some(20), 40)],
        })
    }

    fn label(self) -> &'static str {
        match self {
            Self::TwoServers => "two sources",
            Self::OneServer => "one source",
            Self::NodeAndServer => "the node and a source",
            Self::OnlyNodeHasFull => "only the node has the full archive",
        }
    }
}

struct Row {
    offers: Offers,
    incremental_failed: bool,
    /// `None` if no source offers the archive any more.
    reason: Option<FaultReason>,
    /// Number of repetitions so far.
    repetitions: usize,
    failure: &'static str,
    /// Beginning of the description of the next step.
    expected: &'static str,
}

fn full_row(offers: Offers, reason: FaultReason, failure: &'static str, expected: &'static str) -> Row {
    Row { offers, incremental_failed: false, reason: Some(reason), repetitions: 0, failure, expected }
}

fn pair_row(offers: Offers, reason: Option<FaultReason>, failure: &'static str, expected: &'static str) -> Row {
    Row { offers, incremental_failed: true, reason, repetitions: 0, failure, expected }
}

fn for_the_ninth_time(row: Row) -> Row {
    Row { repetitions: REPETITIONS_MAX, ..row }
}

const UNUSABLE: FaultReason = FaultReason::Unusable(Vec::new());

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        full_row(Offers::OneServer, FaultReason::OldBytes, "a frame is wrong, and an earlier run fetched a part of it", "it is fetched"),
        full_row(Offers::TwoServers, FaultReason::Replaced, "the source has a different archive under the name", "the next source"),
        full_row(Offers::OneServer, FaultReason::Replaced, "the source has a different archive under the name", "slotpress asks"),
        for_the_ninth_time(full_row(Offers::OneServer, FaultReason::Replaced, "the same, for the ninth time", "the run ends with")),
        full_row(Offers::TwoServers, UNUSABLE, "gone, given up, or wrong", "the next source"),
        full_row(Offers::OneServer, UNUSABLE, "gone, given up, or wrong", "the run ends with"),
        full_row(Offers::OneServer, FaultReason::Refused, "the full archive turns out wrong while it is read", "slotpress asks"),
        full_row(Offers::NodeAndServer, UNUSABLE, "the node's archive is a pipe, directory or link, or too short", "the best of"),
        pair_row(Offers::NodeAndServer, Some(FaultReason::Refused), "the full and the incremental archive do not give the state", "the best of"),
        pair_row(Offers::TwoServers, Some(FaultReason::Refused), "the full and the incremental archive do not give the state", "the next source"),
        pair_row(Offers::TwoServers, Some(UNUSABLE), "the incremental archive is gone, given up or wrong", "slotpress asks"),
        for_the_ninth_time(pair_row(Offers::TwoServers, Some(UNUSABLE), "the same, for the ninth time", "the next source")),
        pair_row(Offers::OneServer, Some(FaultReason::Unconfirmed), "too few trusted servers confirm the incremental archive", "slotpress asks"),
        pair_row(Offers::OneServer, None, "no source has an incremental archive any more", "the state of the full archive alone"),
        pair_row(Offers::NodeAndServer, None, "no source has an incremental archive any more", "the best of"),
        pair_row(Offers::OnlyNodeHasFull, None, "no source has an incremental archive any more", "the run ends, and names local archives"),
    ]
}

#[test]
fn each_failure_has_its_next_step() {
    for Row { offers, incremental_failed, reason, repetitions, failure, expected } in rows() {
        let mut selection = offers.selection();
        let attempt = if incremental_failed { best_pair(&selection) } else { best_full(&selection) };
        selection.repetitions.insert(attempt.newest().source_at_fault(), repetitions);
        match &reason {
            Some(reason) => selection.record_failure(&attempt, reason, &Error::new(ErrorKind::Network, "why")),
            None => {
                selection.ranking.offers.retain(Offer::is_full);
                selection.record_vanished(&attempt);
            }
        }
        let next_step = describe_next_step(&selection, &attempt, reason.as_ref());
        assert!(next_step.starts_with(expected), "{failure}, {}: {next_step}", offers.label());
    }
}

#[test]
fn the_newest_incremental_archive_is_used_unless_another_candidate_is_better() {
    let selection_with = |offers: &[Offer]| selection([&[offer(Some(1), None, 20)], offers].concat());
    let incremental = |slot| offer(Some(1), Some(20), slot);
    let better = offer(Some(2), None, 50);
    for (offers, planned_slot, has_failed, expected) in [
        (vec![incremental(40)], None, false, "Incremental"),
        (vec![incremental(40), better.clone()], Some(40), false, "Incremental"),
        (vec![incremental(30)], Some(40), false, "Incremental"),
        (vec![incremental(30), better.clone()], Some(40), false, "OtherFull"),
        (vec![incremental(40)], Some(40), true, "Incremental"),
        (vec![incremental(40), better.clone()], Some(40), true, "OtherFull"),
        (vec![], None, false, "FullAlone"),
        (vec![better.clone()], None, false, "FullAlone"),
        (vec![], Some(40), false, "FullAlone"),
        (vec![better], Some(40), true, "OtherFull"),
    ] {
        let selection = selection_with(&offers);
        let full = ChosenArchive::from_offer(&selection.ranking.offers[0], &[]);
        let next = format!("{:?}", selection.choose_next(&full, planned_slot, has_failed));
        assert!(next.starts_with(expected), "{} offers, {planned_slot:?}, {has_failed}: {next}", offers.len());
    }
}

/// The liar has a different file at each request.
#[test]
fn a_failing_server_uses_up_only_its_own_repetitions() {
    let mut selection = Offers::TwoServers.selection();
    let error = Error::new(ErrorKind::Network, "why");
    let liar = best_full(&selection);
    for _ in 0..2 * REPETITIONS_MAX {
        selection.record_failure(&liar, &FaultReason::OldBytes, &error);
    }
    let other = best_full(&selection);
    assert_ne!(other.full.source_at_fault(), liar.full.source_at_fault(), "the liar is excluded");
    let failures = selection.node.failed.len();
    selection.record_failure(&other, &FaultReason::OldBytes, &error);
    assert_eq!(selection.node.failed.len(), failures, "the other is asked again");
    let adds_offer = |selection: &mut Selection, server| {
        let before = selection.ranking.offers.len();
        selection.add_offers([offer(Some(server), Some(20), 60)]);
        selection.ranking.offers.len() > before
    };
    assert!(!adds_offer(&mut selection, 1), "the liar adds no offer");
    assert!(adds_offer(&mut selection, 2), "the other server adds an offer");
}

#[test]
fn slots_that_the_cluster_has_not_reached_are_ignored() {
    let mut selection = Offers::OneServer.selection();
    selection.ranking.cluster_slot = Some(100);
    selection.add_offers([offer(Some(1), Some(20), 60), offer(Some(1), Some(20), 1_000_000_000_000_000)]);
    let full = selection.choose_archives(&selection.best().expect("a candidate")).full;
    assert_eq!(selection.newest_incremental_on(&full).map(|newest| newest.name.slot), Some(60));
}
