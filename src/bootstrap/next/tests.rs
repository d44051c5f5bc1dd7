//! Tests the decision after each failure, as a table.

use std::fmt::Write as _;
use std::path::PathBuf;

use slotpress_format::Hash;
use slotpress_format::ledger::names::Extension;
use slotpress_net::{OfferPlace, Remote, parse_url};

use super::*;

pub const FULL_BYTES: u64 = 100_000;
const INCREMENTAL_BYTES: u64 = 1_000;

fn name(base_slot: Option<u64>, slot: u64) -> ArchiveName {
    ArchiveName { base_slot, slot, hash: Hash([slot as u8; 32]), extension: Extension::TarZstd }
}

/// Creates an offer of a server, or of this node (`None`).
pub fn offer(server: Option<usize>, base_slot: Option<u64>, slot: u64) -> Offered {
    let name = name(base_slot, slot);
    let (source, place) = match server {
        Some(number) => {
            let source = format!("http://s{number}.example");
            let url = parse_url(&format!("{source}/{name}")).expect("a URL");
            (source, OfferPlace::Remote(Remote::of_url(&url)))
        }
        None => ("/node".to_string(), OfferPlace::Local(PathBuf::from(format!("/node/{name}")))),
    };
    let length_bytes = Some(if base_slot.is_none() { FULL_BYTES } else { INCREMENTAL_BYTES });
    let mut offer = Offer::new(name, place);
    offer.length_bytes = length_bytes;
    (offer, source, true)
}

pub fn left(offers: Vec<Offered>) -> Left {
    let restore_bytes_per_second = 200_000_000;
    let found = Ranking { offers, wants_incremental: true, restore_bytes_per_second, ..Ranking::default() };
    Left { found, ..Left::default() }
}

/// The archives of the best candidate, with or without the incremental one.
fn asked(left: &Left, has_incremental: bool) -> Asked {
    let (full, incremental) = left.choices(&left.best().expect("a candidate"));
    Asked { full: Taken::of(&full), incremental: incremental.filter(|_| has_incremental).as_ref().map(Taken::of) }
}

fn told(step: &Step) -> &'static str {
    match step {
        Step::Again => "it is fetched again",
        Step::OtherSource => "the next source of the same archive",
        Step::NextArchive => "the next best archive",
        Step::WithoutBase => "the best of the others",
        Step::FullAlone => "the state of the full archive alone",
        Step::AskAgain => "slotpress asks the sources again",
        Step::End(error) if error.hint() == Some(hint::USE_RESTORE) => "the run ends, and names local archives",
        Step::End(_) => "the run ends with all reasons",
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
    fn left(self) -> Left {
        left(match self {
            Self::Two => {
                [1, 2].iter().flat_map(|at| [offer(Some(*at), None, 20), offer(Some(*at), Some(20), 40)]).collect()
            }
            Self::One => vec![offer(Some(1), None, 20), offer(Some(1), Some(20), 40)],
            Self::Base => vec![offer(None, None, 20), offer(Some(1), Some(20), 40), offer(Some(1), None, 30)],
            Self::BaseOnly => vec![offer(None, None, 20), offer(Some(1), Some(20), 40)],
        })
    }

    fn told(self) -> &'static str {
        match self {
            Self::Two => "two sources",
            Self::One => "one source",
            Self::Base => "the node and a source",
            Self::BaseOnly => "the node alone",
        }
    }
}

/// A failure: what is on offer, whether the incremental archive failed, how, the number of earlier
/// steps that removed nothing, its description, and the expected step.
type Row = (Offers, bool, fn(&Asked) -> Happened, usize, &'static str, &'static str);

const ROWS: &[Row] = &[
    (
        Offers::One,
        false,
        |_| Happened::KeptIsWrong,
        0,
        "a frame is wrong, and an earlier run fetched a part of it",
        "Again",
    ),
    (
        Offers::Two,
        false,
        |_| Happened::PublishedAgain,
        0,
        "the source has another archive under the name",
        "OtherSource",
    ),
    (Offers::One, false, |_| Happened::PublishedAgain, 0, "the source has another archive under the name", "AskAgain"),
    (Offers::One, false, |_| Happened::PublishedAgain, AGAIN_MAX, "the same, for the ninth time", "End"),
    (Offers::Two, false, |_| Happened::Unusable(Vec::new()), 0, "gone, given up, or wrong", "OtherSource"),
    (Offers::One, false, |_| Happened::Unusable(Vec::new()), 0, "gone, given up, or wrong", "End"),
    (Offers::Two, false, |_| Happened::Refused, 0, "the full archive turns out wrong while it is read", "OtherSource"),
    (Offers::One, false, |_| Happened::Refused, 0, "the full archive turns out wrong while it is read", "AskAgain"),
    (
        Offers::Base,
        false,
        |_| Happened::Unusable(Vec::new()),
        0,
        "the node's archive is a pipe, directory or link, or too short",
        "WithoutBase",
    ),
    (
        Offers::Base,
        true,
        |_| Happened::Refused,
        0,
        "the full and the incremental archive do not give the state",
        "WithoutBase",
    ),
    (
        Offers::Two,
        true,
        |_| Happened::Refused,
        0,
        "the full and the incremental archive do not give the state",
        "OtherSource",
    ),
    (
        Offers::Two,
        true,
        |_| Happened::Unusable(Vec::new()),
        0,
        "the incremental archive is gone, given up or wrong",
        "AskAgain",
    ),
    (Offers::Two, true, |_| Happened::Unusable(Vec::new()), AGAIN_MAX, "the same, for the ninth time", "OtherSource"),
    (
        Offers::One,
        true,
        |_| Happened::Unconfirmed,
        0,
        "too few trusted servers confirm the incremental archive",
        "AskAgain",
    ),
    (
        Offers::Base,
        false,
        |_| Happened::Unconfirmed,
        0,
        "too few trusted servers confirm the full archive alone",
        "WithoutBase",
    ),
    (Offers::One, true, |_| Happened::Vanished, 0, "no source has an incremental archive any more", "FullAlone"),
    (Offers::Base, true, |_| Happened::Vanished, 0, "no source has an incremental archive any more", "WithoutBase"),
    (Offers::BaseOnly, true, |_| Happened::Vanished, 0, "no source has an incremental archive any more", "End"),
    (Offers::Two, false, |_| Happened::Final, 0, "the disk is full; Ctrl-C; a trusted server has another hash", "End"),
];

/// Prints what follows on each failure (`--nocapture`).
#[test]
fn what_follows_on_each_failure() {
    let mut table = String::from("| failure | archives of | what follows |\n|---|---|---|\n");
    for (offers, has_incremental, happened, again, what, expected) in ROWS {
        let mut left = offers.left();
        let asked = asked(&left, *has_incremental);
        left.again.insert(asked.newest().counted_for().to_string(), *again);
        if happened(&asked) == Happened::Vanished {
            left.found.offers.retain(|(offer, ..)| offer.is_full());
        }
        let step = left.after(&asked, &happened(&asked), &Error::new(ErrorKind::Network, "why"));
        assert!(format!("{step:?}").starts_with(expected), "{what}, {}: {step:?}", offers.told());
        let _ = writeln!(table, "| {what} | {} | {} |", offers.told(), told(&step));
    }
    println!("{table}");
}

/// A server that has another file at each request uses up its own repetitions only.
#[test]
fn one_liar_does_not_use_up_what_others_have() {
    let mut left = Offers::Two.left();
    let error = Error::new(ErrorKind::Network, "why");
    let mut liar = asked(&left, false);
    for _ in 0..2 * AGAIN_MAX {
        left.after(&liar, &Happened::KeptIsWrong, &error);
    }
    liar.full.place = "http://s2.example/another".to_string();
    liar.full.servers = vec!["http://s2.example".to_string()];
    assert!(matches!(left.after(&liar, &Happened::KeptIsWrong, &error), Step::Again));
}

/// A source that names a slot which the cluster has not reached is not asked for its archive.
#[test]
fn slots_that_are_not_reached() {
    let mut left = Offers::One.left();
    left.found.slot = Some(100);
    left.add([offer(Some(1), Some(20), 60), offer(Some(1), Some(20), 1_000_000_000_000_000)]);
    let (full, _) = left.choices(&left.best().expect("a candidate"));
    assert_eq!(left.newest_on(&Taken::of(&full)).map(|newest| newest.name.slot), Some(60));
}
