//! What follows on each failure, as a table, and ten thousand random worlds without a network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use slotpress_format::Hash;
use slotpress_format::ledger::names::Extension;
use slotpress_net::{Place, Remote, parse_url};

use super::*;
use crate::bootstrap::choose::Places;

const FULL_BYTES: u64 = 100_000;
const INCREMENTAL_BYTES: u64 = 1_000;

fn name(base_slot: Option<u64>, slot: u64) -> ArchiveName {
    ArchiveName { base_slot, slot, hash: Hash([slot as u8; 32]), extension: Extension::TarZstd }
}

/// An offer of a server, or of this node (`None`).
fn offer(server: Option<usize>, base_slot: Option<u64>, slot: u64) -> Offered {
    let name = name(base_slot, slot);
    let (source, place) = match server {
        Some(number) => {
            let source = format!("http://s{number}.example");
            let url = parse_url(&format!("{source}/{name}")).expect("a URL");
            (source, Place::Remote(Remote::of_url(&url)))
        }
        None => ("/node".to_string(), Place::Local(PathBuf::from(format!("/node/{name}")))),
    };
    let length_bytes = Some(if base_slot.is_none() { FULL_BYTES } else { INCREMENTAL_BYTES });
    let mut offer = Offer::new(name, place);
    offer.length_bytes = length_bytes;
    (offer, source, true)
}

fn left(offers: Vec<Offered>) -> Left {
    let restore_bytes_per_second = 200_000_000;
    let found = Ranking { offers, wants_incremental: true, restore_bytes_per_second, ..Ranking::default() };
    Left { found, ..Left::default() }
}

fn taken(choice: &Choice) -> Taken {
    let servers = match &choice.place {
        Places::Local(_) => Vec::new(),
        Places::Servers(remotes) => remotes.iter().map(Remote::origin).collect(),
    };
    let (name, place) = (choice.name.clone(), choice.first_place());
    Taken { name, place, is_in_place: false, root: choice.root, servers }
}

/// The archives of the best candidate, with the incremental one or before it is asked for.
fn asked(left: &Left, has_incremental: bool) -> Asked {
    let (full, incremental) = left.choices(&left.best().expect("a candidate"));
    Asked { full: taken(&full), incremental: incremental.filter(|_| has_incremental).map(|choice| taken(&choice)) }
}

fn told(step: &Step) -> &'static str {
    match step {
        Step::Again => "the same is fetched again",
        Step::OtherSource => "the next source of the same archive",
        Step::NextArchive => "the next best archive",
        Step::WithoutBase => "the best without the node's own archive",
        Step::FullAlone => "the state of the full archive alone; the last line says what was given up",
        Step::AskAgain => "the sources are asked again, and all is ranked again",
        Step::End(error) if error.hint() == Some(&Hint::UseRestore) => "ends, and says what is here",
        Step::End(_) => "ends, and names the reason of each",
    }
}

/// Which archives are on offer: of two servers, of one, of the node and a server.
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
            Self::Base => "the node's own full archive, and a source with another",
            Self::BaseOnly => "the node's own full archive, and a source with none",
        }
    }
}

/// A failure: what is on offer, whether it is of the incremental archive, what happened, how often before, and its words.
type Row = (Offers, bool, fn(&Asked) -> Happened, usize, &'static str, &'static str);

const ROWS: &[Row] = &[
    (Offers::One, false, |_| Happened::NoRanges, 0, "the server announces ranges, but does not send them", "Again"),
    (
        Offers::One,
        false,
        |_| Happened::KeptIsWrong,
        0,
        "a frame is wrong, and a part of it is of an earlier run",
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
    (Offers::Two, false, |_| Happened::Refused, 0, "what was read of the full archive is wrong", "OtherSource"),
    (Offers::One, false, |_| Happened::Refused, 0, "what was read of the full archive is wrong", "AskAgain"),
    (
        Offers::Base,
        false,
        |_| Happened::Unusable(Vec::new()),
        0,
        "the node's archive is a pipe, a directory, a link or shorter",
        "WithoutBase",
    ),
    (Offers::Base, true, |_| Happened::Refused, 0, "the two do not make up the state", "WithoutBase"),
    (Offers::Two, true, |_| Happened::Refused, 0, "the two do not make up the state", "OtherSource"),
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
    (Offers::One, true, |_| Happened::Vanished, 0, "no source has an incremental archive any more", "FullAlone"),
    (Offers::Base, true, |_| Happened::Vanished, 0, "no source has an incremental archive any more", "WithoutBase"),
    (Offers::BaseOnly, true, |_| Happened::Vanished, 0, "no source has an incremental archive any more", "End"),
    (Offers::Two, false, |_| Happened::Final, 0, "the disk is full; Ctrl-C; a trusted server has another hash", "End"),
];

/// The table of docs/bootstrap.md is what the function does.
#[test]
fn what_follows_on_each_failure() {
    let mut table = String::from("| failure | with | what follows |\n|---|---|---|\n");
    for (offers, has_incremental, happened, again, what, expected) in ROWS {
        let mut left = Left { again: *again, ..offers.left() };
        let asked = asked(&left, *has_incremental);
        if happened(&asked) == Happened::Vanished {
            left.found.offers.retain(|(offer, ..)| offer.is_full());
        }
        let step = left.after(&asked, &happened(&asked), &Error::new(ErrorKind::Network, "why"));
        assert!(format!("{step:?}").starts_with(expected), "{what}, {}: {step:?}", offers.told());
        let _ = writeln!(table, "| {what} | {} | {} |", offers.told(), told(&step));
    }
    println!("{table}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bootstrap.md");
    let page = std::fs::read_to_string(page).expect("read");
    assert!(page.contains(&table), "docs/bootstrap.md has another table than this:\n{table}");
}

/// What becomes of an archive that is asked for at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Comes,
    /// The bytes are whole, and what they hold is wrong.
    Lies,
    Fails,
    NoRanges,
    /// So often.
    PublishedAgain(usize),
    Unconfirmed,
    /// Gone when the sources are asked again.
    Vanishes,
}

struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        // Steele and others, SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn fate(&mut self) -> Fate {
        match self.below(9) {
            0 | 1 => Fate::Lies,
            2 | 3 => Fate::Fails,
            4 => Fate::NoRanges,
            5 => Fate::PublishedAgain(self.below(12) as usize),
            6 => Fate::Unconfirmed,
            7 => Fate::Vanishes,
            _ => Fate::Comes,
        }
    }
}

/// Sources of which one may be honest, and what the node has.
struct World {
    offers: Vec<Offered>,
    fates: BTreeMap<String, Fate>,
    /// The newest state of the honest source.
    honest: Option<u64>,
    /// The archives that trusted servers confirm: names tell the state.
    confirmed: BTreeSet<String>,
    /// Places and names that were shown to be of no use.
    bad: BTreeSet<String>,
}

impl World {
    fn random(draws: &mut Draws) -> Self {
        let mut world = Self {
            offers: Vec::new(),
            fates: BTreeMap::new(),
            honest: None,
            confirmed: BTreeSet::new(),
            bad: BTreeSet::new(),
        };
        let servers = 1 + draws.below(5) as usize;
        let honest = (draws.below(4) > 0).then(|| draws.below(servers as u64) as usize);
        for server in 0..servers {
            for _ in 0..=draws.below(2) {
                let full = 10 * (1 + draws.below(3));
                world.add(offer(Some(server), None, full), honest == Some(server), draws);
                for _ in 0..draws.below(3) {
                    let more = full + 1 + draws.below(30);
                    world.add(offer(Some(server), Some(full), more), honest == Some(server), draws);
                }
            }
        }
        for _ in 0..draws.below(3) {
            world.add(offer(None, None, 10 * (1 + draws.below(3))), false, draws);
        }
        world
    }

    fn add(&mut self, offered: Offered, is_honest: bool, draws: &mut Draws) {
        let (place, slot) = (offered.0.shown(), offered.0.name.slot);
        if self.fates.contains_key(&place) {
            return;
        }
        self.honest = self.honest.max(Some(slot).filter(|_| is_honest));
        self.confirmed.extend(is_honest.then(|| offered.0.name.to_string()));
        self.fates.insert(place, if is_honest { Fate::Comes } else { draws.fate() });
        self.offers.push(offered);
    }

    /// Asks for an archive. What comes may lie.
    fn fetch(&mut self, left: &Left, taken: &Taken) -> Result<(), Happened> {
        assert!(!self.bad.contains(&taken.place), "{} is asked for again", taken.place);
        let fate = self.fates.get_mut(&taken.place).expect("a place");
        match fate {
            Fate::Comes | Fate::Lies | Fate::Vanishes => return Ok(()),
            Fate::NoRanges if taken.servers.iter().all(|server| left.unranged.contains(server)) => return Ok(()),
            Fate::NoRanges if !taken.servers.is_empty() => return Err(Happened::NoRanges),
            Fate::PublishedAgain(0) => return Ok(()),
            Fate::PublishedAgain(often) if !taken.servers.is_empty() => {
                *often -= 1;
                return Err(Happened::PublishedAgain);
            }
            Fate::Unconfirmed if self.confirmed.contains(&taken.name.to_string()) => return Ok(()),
            Fate::Unconfirmed if taken.name.base_slot.is_some() => return Err(Happened::Unconfirmed),
            _ => {}
        }
        self.bad.insert(taken.place.clone());
        Err(Happened::Unusable(Vec::new()))
    }

    /// Asks the sources again for incremental archives.
    fn ask(&mut self, left: &mut Left) {
        left.found.offers.retain(|(offer, ..)| offer.is_full());
        let fates = &self.fates;
        self.offers.retain(|(offer, ..)| fates[&offer.shown()] != Fate::Vanishes || offer.is_local());
        left.add(self.offers.iter().filter(|(offer, ..)| !offer.is_full()).cloned());
    }

    fn lies(&self, taken: &Taken) -> bool {
        self.fates[&taken.place] == Fate::Lies
    }

    /// One attempt, as the loop makes it; the slot of the state, or the step that follows.
    fn attempt(&mut self, left: &mut Left, best: &Candidate) -> Result<u64, Step> {
        let error = Error::new(ErrorKind::Network, "why");
        let (full, planned) = left.choices(best);
        let full = taken(&full);
        let alone = Asked { full: full.clone(), incremental: None };
        if let Err(happened) = self.fetch(left, &full) {
            return Err(left.after(&alone, &happened, &error));
        }
        left.node.keeps(&full.name, FULL_BYTES);
        let mut asked = Asked { full: full.clone(), incremental: planned.as_ref().map(taken) };
        let (mut asks_again, mut has_failed) = (true, false);
        let mut obtained = None;
        while left.wants_incremental(&full.name) {
            if asks_again {
                self.ask(left);
            }
            if left.newest_on(&full).is_some_and(|choice| left.is_beaten(&choice, &asked, has_failed)) {
                return Err(Step::NextArchive);
            }
            let happened = match left.newest_on(&full).map(|choice| taken(&choice)) {
                Some(incremental) => {
                    asked.incremental = Some(incremental.clone());
                    match self.fetch(left, &incremental) {
                        Ok(()) => {
                            obtained = Some(incremental);
                            break;
                        }
                        Err(happened) => happened,
                    }
                }
                None if asked.incremental.is_none() => break,
                None => Happened::Vanished,
            };
            has_failed = true;
            let step = left.after(&asked, &happened, &error);
            let is_vanished = happened == Happened::Vanished;
            asks_again = matches!(step, Step::AskAgain);
            match step {
                Step::FullAlone => break,
                Step::End(_) => return Err(step),
                Step::WithoutBase | Step::NextArchive if is_vanished || !left.is_best_on(&full.name) => {
                    return Err(step);
                }
                _ => {}
            }
        }
        if self.lies(&full) || obtained.as_ref().is_some_and(|incremental| self.lies(incremental)) {
            if obtained.is_none() {
                self.bad.insert(full.place.clone());
            }
            return Err(left.after(&Asked { full, incremental: obtained }, &Happened::Refused, &error));
        }
        Ok(obtained.map_or(full.name.slot, |incremental| incremental.name.slot))
    }

    fn run(&mut self, seed: u64) -> Option<(u64, Left)> {
        let mut left = left(self.offers.clone());
        // Each archive is at fault alone and with each other one at most, and the sources are asked again a few times.
        for _ in 0..1_000 {
            let best = left.best()?;
            match self.attempt(&mut left, &best) {
                Ok(slot) => return Some((slot, left)),
                Err(Step::End(_)) => return None,
                Err(Step::AskAgain) => {
                    left.found.offers = self.offers.clone();
                }
                Err(_) => {}
            }
        }
        panic!("seed {seed}: no end");
    }
}

/// Always ends; asks for nothing twice that was of no use; with an honest source, ends with its state or a newer one; and ends with an older state than the
/// best that is left only if it says so.
#[test]
fn ten_thousand_worlds() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (first, worlds) = (number("WORLDS_FIRST", 0), number("WORLDS", 10_000));
    println!("worlds {first} to {}", first + worlds);
    let (mut done, mut ended, mut told) = (0, 0, 0);
    for seed in first..first + worlds {
        let mut world = World::random(&mut Draws(seed));
        let honest = world.honest;
        let Some((slot, left)) = world.run(seed) else {
            assert!(honest.is_none(), "seed {seed}: an honest source has slot {honest:?}");
            ended += 1;
            continue;
        };
        done += 1;
        let says = left.given_up.as_ref().is_some_and(|better| better.slot > slot);
        told += u64::from(says);
        assert!(
            honest.is_none_or(|honest| slot >= honest),
            "seed {seed}: {slot}, not {honest:?}: {:?}, {:?}",
            world.fates,
            left.node.bad
        );
        // A server is taken at its word on what goes on its full archive, so a pair of two servers may appear when one loses its own.
        let is_of_one = |candidate: &&Candidate| {
            let servers: BTreeSet<String> = candidate.remotes().map(|(_, remote)| remote.origin()).collect();
            servers.len() < 2
        };
        let best = left.candidates().iter().filter(is_of_one).map(Candidate::slot).max().unwrap_or_default();
        assert!(
            says || best <= slot,
            "seed {seed}: {slot}, and {best} is left: {:?}, {:?}, {}",
            world.fates,
            left.node.bad,
            left.again
        );
    }
    println!("{done} states, of which {told} with a word on a better one; {ended} errors");
}
