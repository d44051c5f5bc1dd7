//! The fields of bank file and status cache, in their order: a table of the fields and of the
//! effect of altering each. The reader here follows the table alone, while the clients have parsers
//! of their own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use slotpress_read::{Rule, SnapshotClient, VerifyReport, names_of};

use crate::verify::altered::Altered;
use crate::verify::fixtures::*;

/// A kind of field, or several fields.
pub enum Field {
    /// So many bytes of a number, an address or a hash.
    Number(&'static str, usize),
    /// A byte, 0 or 1.
    Flag(&'static str),
    /// A byte, 0 or 1; after 1, the value.
    Option(&'static str, &'static [Field]),
    /// A count, and so many items.
    List(&'static str, &'static [Field]),
    /// The kind of an item: four bytes, which are 0.
    Kind(&'static str),
    /// Fields that belong together.
    Group(&'static str, &'static [Field]),
}

use Field::{Flag, Group, Kind, List, Number};

const SCHEDULE: [Field; 5] = [
    Number("slots per epoch", 8),
    Number("leader schedule offset", 8),
    Flag("warmup"),
    Number("first normal epoch", 8),
    Number("first normal slot", 8),
];

const VOTE_ACCOUNT: &[Field] = &[
    Number("address", 32),
    Number("stake", 8),
    Number("lamports", 8),
    List("data", &[Number("byte", 1)]),
    Number("owner", 32),
    Flag("executable"),
    Number("rent epoch", 8),
];

/// A delegation in the stakes of an epoch; those of the bank lack the last field.
const DELEGATION: &[Field] = &[
    Number("address", 32),
    Number("voter", 32),
    Number("stake", 8),
    Number("activation epoch", 8),
    Number("deactivation epoch", 8),
    Number("rate", 8),
    Number("credits observed", 8),
];

const HISTORY: Field = List(
    "stake history",
    &[Number("epoch", 8), Number("effective", 8), Number("activating", 8), Number("deactivating", 8)],
);

/// The bank file: bank fields, accounts-db fields, extra fields.
pub const BANK_FILE: &[Field] = &[
    Number("blockhash queue: last index", 8),
    Field::Option("blockhash queue: last hash", &[Number("hash", 32)]),
    List(
        "blockhash queue: hashes",
        &[Number("hash", 32), Number("lamports per signature", 8), Number("index", 8), Number("timestamp", 8)],
    ),
    Number("blockhash queue: max age", 8),
    List("ancestors", &[Number("slot", 8), Number("count", 8)]),
    Number("hash", 32),
    Number("parent hash", 32),
    Number("parent slot", 8),
    List("hard forks", &[Number("slot", 8), Number("count", 8)]),
    Number("transaction count", 8),
    Number("tick height", 8),
    Number("signature count", 8),
    Number("capitalization", 8),
    Number("max tick height", 8),
    Field::Option("hashes per tick", &[Number("number", 8)]),
    Number("ticks per slot", 8),
    Number("ns per slot", 16),
    Number("genesis creation time", 8),
    Number("slots per year", 8),
    Number("accounts data length", 8),
    Number("slot", 8),
    Number("epoch (unused)", 8),
    Number("block height", 8),
    Number("leader", 32),
    Number("collector fees (unused)", 8),
    Number("fee calculator (unused)", 8),
    Number("fee rate governor: target lamports", 8),
    Number("fee rate governor: target signatures", 8),
    Number("fee rate governor: min lamports", 8),
    Number("fee rate governor: max lamports", 8),
    Number("fee rate governor: burn percent", 1),
    Number("collected rent (unused)", 8),
    Number("rent collector (unused): epoch", 8),
    Number("rent collector (unused): slots per epoch", 8),
    Number("rent collector (unused): leader schedule offset", 8),
    Flag("rent collector (unused): warmup"),
    Number("rent collector (unused): first normal epoch", 8),
    Number("rent collector (unused): first normal slot", 8),
    Number("rent collector (unused): slots per year", 8),
    Number("rent collector (unused): lamports per byte", 8),
    Number("rent collector (unused): exemption threshold", 8),
    Number("rent collector (unused): burn percent", 1),
    Group("epoch schedule", &SCHEDULE),
    Number("inflation", 48),
    Group(
        "stakes",
        &[
            List("vote accounts", VOTE_ACCOUNT),
            List("delegations", DELEGATION.split_at(6).0),
            Number("unused", 8),
            Number("epoch", 8),
            HISTORY,
        ],
    ),
    List("unused accounts", &[Number("address", 32)]),
    List("unused credits", &[Number("address", 32)]),
    List("unused votes", &[Number("address", 32), Number("number", 8)]),
    List("unused epoch stakes", &[Number("epoch", 8)]),
    Flag("is delta"),
    List("storage map", &[Number("slot", 8), List("storages", &[Number("id", 8), Number("length", 8)])]),
    Number("write version (unused)", 8),
    Number("slot of the accounts", 8),
    Number("hashes (unused)", 64),
    Number("statistics", 40),
    List("historical roots", &[Number("slot", 8)]),
    List("historical roots with hashes", &[Number("slot", 8), Number("hash", 32)]),
    Number("lamports per signature", 8),
    Field::Option("incremental persistence (unused)", &[Number("fields", 88)]),
    Field::Option("epoch accounts hash (unused)", &[Number("hash", 32)]),
    List(
        "epoch stakes",
        &[
            Number("epoch", 8),
            Kind("kind"),
            List("vote accounts", VOTE_ACCOUNT),
            List("delegations", DELEGATION),
            Number("unused", 8),
            Number("epoch of the stakes", 8),
            HISTORY,
            Number("total stake", 8),
            List(
                "nodes",
                &[
                    Number("address", 32),
                    List("vote accounts of the node", &[Number("address", 32)]),
                    Number("stake", 8),
                ],
            ),
            List("authorized voters", &[Number("vote account", 32), Number("voter", 32)]),
        ],
    ),
    Field::Option("lattice hash", &[Number("hash", 2048)]),
    Field::Option("block id", &[Number("hash", 32)]),
];

/// The status cache.
pub const STATUS_CACHE: &[Field] = &[List(
    "slots",
    &[
        Number("slot", 8),
        Flag("root"),
        List(
            "blockhashes",
            &[
                Number("blockhash", 32),
                Number("offset", 8),
                List("transactions", &[Number("part of the hash", 20), Kind("result")]),
            ],
        ),
    ],
)];

/// The content of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Number,
    Flag,
    Option,
    /// So many items, and the end of the first.
    List(u64),
    Kind,
}

/// The place of a field.
#[derive(Clone, Debug)]
pub struct FieldPlace {
    /// Name after the names of the lists around it: "stakes / vote accounts / stake".
    pub name: String,
    /// Place of the number, the flag, or a list's count.
    pub range: Range<usize>,
    pub holds: Holds,
    /// Place of all items of a list or an option.
    pub items: Range<usize>,
    /// End of a list's first item.
    pub first_end: usize,
}

/// Returns all places, with only the first item of each list, except `whole` lists with all items.
pub fn places(content: &[u8], fields: &[Field], is_whole: bool) -> Vec<FieldPlace> {
    let mut found = Vec::new();
    let end = walk(content, fields, "", 0, is_whole, &mut Some(&mut found));
    assert_eq!(end, content.len(), "the table is that of the file");
    found
}

fn walk(
    content: &[u8],
    fields: &[Field],
    prefix: &str,
    mut at: usize,
    is_whole: bool,
    found: &mut Option<&mut Vec<FieldPlace>>,
) -> usize {
    for field in fields {
        let start = at;
        let (name, holds, length) = match field {
            Number(name, length) => (name, Holds::Number, *length),
            Flag(name) => (name, Holds::Flag, 1),
            Kind(name) => (name, Holds::Kind, 4),
            Field::Option(name, _) => (name, Holds::Option, 1),
            List(name, _) => (name, Holds::List(u64_at(content, at)), 8),
            Group(name, fields) => {
                at = walk(content, fields, &format!("{prefix}{name} / "), at, is_whole, found);
                continue;
            }
        };
        at += length;
        let name = format!("{prefix}{name}");
        let items_start = at;
        let number = found.as_ref().map(|found| found.len());
        if let Some(found) = found {
            let range = start..at;
            let items = at..at;
            found.push(FieldPlace { name: name.clone(), range, holds, items, first_end: at });
        }
        let below = format!("{name} / ");
        let mut first_end = at;
        match field {
            Field::Option(_, fields) if content[start] == 1 => {
                at = walk(content, fields, &below, at, is_whole, found);
            }
            // Plain bytes have no fields.
            List(_, [Number(_, 1)]) => at += u64_at(content, start) as usize,
            List(_, fields) => {
                for item in 0..u64_at(content, start) {
                    let told = if item == 0 || is_whole { &mut *found } else { &mut None };
                    at = walk(content, fields, &below, at, is_whole, told);
                    first_end = if item == 0 { at } else { first_end };
                }
            }
            _ => {}
        }
        if let (Some(found), Some(number)) = (found.as_mut(), number) {
            (found[number].items, found[number].first_end) = (items_start..at, first_end);
        }
    }
    at
}

/// A change of a field.
#[derive(Clone, Debug)]
pub enum Change {
    /// Flips the lowest bit.
    Flipped,
    /// Sets all bits.
    Highest,
    /// Clears all bits.
    Zero,
    /// Sets another number.
    Set(u64),
    /// Sets the list's length, with copies of its first item, or of these bytes if it was empty.
    Length(u64),
    /// Removes the list's first item, or the value of the option.
    LeftOut,
}

impl Change {
    /// Returns the changes for a kind of field.
    pub fn of(place: &FieldPlace) -> Vec<Self> {
        match place.holds {
            Holds::Number => vec![Self::Flipped, Self::Highest, Self::Zero],
            Holds::Flag | Holds::Kind => vec![Self::Flipped, Self::Set(2)],
            Holds::Option if !place.items.is_empty() => vec![Self::Set(2), Self::LeftOut],
            Holds::Option => vec![Self::Set(2)],
            Holds::List(0) => vec![Self::Highest, Self::Length(1)],
            Holds::List(count) => vec![Self::Highest, Self::LeftOut, Self::Length(count + 1)],
        }
    }

    /// Makes the change.
    pub fn make(&self, content: &mut Vec<u8>, place: &FieldPlace, item_bytes: usize) {
        let range = place.range.clone();
        match self {
            Self::Flipped => content[range.start] ^= 1,
            Self::Highest => content[range].fill(0xFF),
            Self::Zero => content[range].fill(0),
            Self::Set(number) => {
                let length = range.len().min(8);
                content[range.start..range.start + length].copy_from_slice(&number.to_le_bytes()[..length]);
            }
            Self::LeftOut if place.holds == Holds::Option => {
                content.drain(place.items.clone());
                content[range.start] = 0;
            }
            Self::LeftOut => {
                content.drain(place.items.start..place.first_end);
                let count = u64_at(content, range.start) - 1;
                content[range].copy_from_slice(&count.to_le_bytes());
            }
            Self::Length(count) => {
                let old = u64_at(content, range.start);
                content[range].copy_from_slice(&count.to_le_bytes());
                let item = match old {
                    0 => vec![0; item_bytes],
                    _ => content[place.items.start..place.first_end].to_vec(),
                };
                let more = item.repeat((count - old) as usize);
                content.splice(place.items.start..place.items.start, more);
            }
        }
    }
}

/// Returns the bytes of an item of fixed length.
fn item_bytes(fields: &[Field]) -> usize {
    let length = |field: &Field| match field {
        Number(_, length) => *length,
        Flag(_) | Field::Option(..) => 1,
        Kind(_) => 4,
        List(..) => 8,
        Group(_, fields) => item_bytes(fields),
    };
    fields.iter().map(length).sum()
}

/// Returns the bytes of an item of this list.
pub fn item_bytes_of(name: &str, fields: &[Field]) -> usize {
    let (first, rest) = name.split_once(" / ").map_or((name, None), |(first, rest)| (first, Some(rest)));
    let found = fields.iter().find_map(|field| match field {
        List(name, fields) | Group(name, fields) | Field::Option(name, fields) if *name == first => Some(*fields),
        _ => None,
    });
    match (found, rest) {
        (Some(fields), Some(rest)) => item_bytes_of(rest, fields),
        (Some(fields), None) => item_bytes(fields),
        (None, _) => 0,
    }
}

/// Returns a file with one field changed.
pub fn changed(content: &[u8], fields: &'static [Field], name: &str, nth: usize, change: &Change) -> Vec<u8> {
    let places = places(content, fields, true);
    let place = places.iter().filter(|place| place.name == name).nth(nth).unwrap_or_else(|| panic!("no {name}"));
    let mut content = content.to_vec();
    change.make(&mut content, place, item_bytes_of(name, fields));
    content
}

/// Demands of clients beyond the kind of a field: field, number of earlier occurrences, change,
/// rule.
const DEMANDS: &[(&str, usize, Change, Rule)] = &[
    ("ancestors", 0, Change::Length(8193), Rule::FiredancerLimit),
    ("hard forks", 0, Change::Length(65), Rule::FiredancerLimit),
    ("blockhash queue: last hash", 0, Change::LeftOut, Rule::BankHash),
    ("stakes / delegations / rate", 0, Change::Set(0x4000_0000_0000_0000), Rule::FiredancerLimit),
    ("unused votes", 0, Change::Length((1 << 20) + 1), Rule::FiredancerLimit),
    ("historical roots", 0, Change::Length((1 << 20) + 1), Rule::FiredancerLimit),
    ("epoch stakes", 0, Change::Length(7), Rule::FiredancerLimit),
    ("epoch stakes / vote accounts", 0, Change::Length(2001), Rule::VoteAccountLimit),
];

const DEMANDS_OF_THE_CACHE: &[(&str, usize, Change, Rule)] = &[
    ("slots / blockhashes / offset", 0, Change::Set(12), Rule::FiredancerLimit),
    ("slots", 0, Change::LeftOut, Rule::CachedSlots),
];

/// Archives with random fields altered.
pub struct RandomFields(u64);

/// Fields that Agave compares with the genesis, which an archive does not hold, or with features.
pub const OF_GENESIS: [&str; 5] =
    ["ticks per slot", "genesis creation time", "ns per slot", "slots per year", "epoch schedule / "];

/// Fields of which Agave demands something that no writer breaks and no hash covers: `verify` does
/// not judge them.
pub const NOT_JUDGED: [&str; 3] = ["rent collector (unused): warmup", "unused epoch stakes", "epoch stakes / epoch"];

impl RandomFields {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of splitmix64.
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.number() % count as u64) as usize
    }

    /// Returns the next archive, and the directory of its chain with the genesis.
    pub fn next_archive(&mut self) -> (Altered, PathBuf) {
        const CHAINS: [&str; 4] = ["agave-4.2.2", "agave-4.4.0", "agave-4.5.0-alpha.4", "agave-validator-4.2.2"];
        // A loader takes ten times as long for the last chain, with its thousands of storages.
        let chain = match self.below(16) {
            0 => CHAINS[3],
            number => CHAINS[number % 3],
        };
        let chain = dir().with_file_name(chain);
        let mut files = std::fs::read_dir(&chain).expect("a chain").map(|entry| entry.expect("an entry").file_name());
        let name = files.find(|name| name.to_string_lossy().starts_with("snapshot-")).expect("a full archive");
        let name = name.into_string().expect("UTF-8");
        let mut tar = Tar::read_from(&chain.join(&name));
        let mut what = name.clone();
        for _ in 0..=self.below(3) {
            // Four of five changes are in the bank file, which has more fields.
            let (document, is_it, fields) = DOCUMENTS[usize::from(self.below(5) == 0)];
            let member = tar.member(is_it);
            let mut content = member.content.clone();
            let mut all = places(&content, fields, true);
            all.retain(|place| !OF_GENESIS.iter().any(|name| place.name.starts_with(name)));
            // Each name is equally likely, for any number of items.
            let names: BTreeSet<&str> = all.iter().map(|place| place.name.as_str()).collect();
            let name = names.iter().nth(self.below(names.len())).expect("a name").to_string();
            all.retain(|place| place.name == name);
            let place = all.swap_remove(self.below(all.len()));
            let mut changes = Change::of(&place);
            if place.holds == Holds::Number {
                changes.push(Change::Set(self.number() >> self.below(64)));
            }
            let change = changes.swap_remove(self.below(changes.len()));
            change.make(&mut content, &place, item_bytes_of(&name, fields));
            what += &format!(", {document}: {name} at {}: {change:?}", place.range.start);
            member.set_content(content);
            // After the change, the table may no longer match.
            if place.holds != Holds::Number {
                break;
            }
        }
        (Altered { what, full: (name, zstd(&tar.write())), incremental: None }, chain)
    }
}

fn is_status_cache(path: &str) -> bool {
    path == "snapshots/status_cache"
}

/// Returns the full archive with another bank file or status cache.
fn with_document(is_it: fn(&str) -> bool, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut tar = Tar::read(FULL);
    let member = tar.member(is_it);
    let content = change(&member.content);
    member.set_content(content);
    zstd(&tar.write())
}

/// A document: its name, the test for its entry, and its fields.
type Document = (&'static str, fn(&str) -> bool, &'static [Field]);

const DOCUMENTS: [Document; 2] =
    [("bank file", is_bank_file, BANK_FILE), ("status cache", is_status_cache, STATUS_CACHE)];

/// Returns every field of both documents, altered in every way of its kind.
pub fn altered_fields() -> Vec<Altered> {
    let mut all = Vec::new();
    for (document, is_it, fields) in DOCUMENTS {
        let mut tar = Tar::read(FULL);
        let content = tar.member(is_it).content.clone();
        for place in places(&content, fields, false) {
            for change in Change::of(&place) {
                let mut changed = content.clone();
                change.make(&mut changed, &place, item_bytes_of(&place.name, fields));
                let mut tar = tar.clone();
                tar.member(is_it).set_content(changed);
                let what = format!("{document}: {}: {change:?}", place.name);
                all.push(Altered { what, full: (FULL.to_string(), zstd(&tar.write())), incremental: None });
            }
        }
    }
    for ((document, is_it, fields), demands) in DOCUMENTS.into_iter().zip([DEMANDS, DEMANDS_OF_THE_CACHE]) {
        for (name, nth, change, rule) in demands {
            let bytes = with_document(is_it, |content| changed(content, fields, name, *nth, change));
            let what = format!("{document}: {name} {nth}: {change:?}: {rule:?}");
            all.push(Altered { what, full: (FULL.to_string(), bytes), incremental: None });
        }
    }
    for (what, _, bytes) in vote_accounts_of_epochs() {
        all.push(Altered { what: what.to_string(), full: (FULL.to_string(), bytes), incremental: None });
    }
    all
}

/// Returns the vote accounts in the stakes of the next epoch.
fn vote_accounts_of_epochs() -> Vec<(&'static str, Rule, Vec<u8>)> {
    let next = |name: &str, change: &dyn Fn(&mut Vec<u8>, &FieldPlace)| {
        with_document(is_bank_file, |content| {
            let places = places(content, BANK_FILE, true);
            let epochs: Vec<&FieldPlace> = places.iter().filter(|place| place.name == "epoch stakes / epoch").collect();
            let newest = epochs.iter().max_by_key(|place| u64_at(content, place.range.start)).expect("epochs");
            let is_it = |place: &&FieldPlace| place.range.start > newest.range.start && place.name == name;
            let mut content = content.to_vec();
            change(&mut content, places.iter().find(is_it).expect("a field"));
            content
        })
    };
    const DATA: &str = "epoch stakes / vote accounts / data";
    vec![
        ("epoch stakes: no stake", Rule::NoStake, {
            next("epoch stakes / vote accounts / stake", &|content, place| content[place.range.clone()].fill(0))
        }),
        ("epoch stakes: a vote state of an unknown version", Rule::InvalidVoteAccount, {
            next(DATA, &|content, place| content[place.items.start] = 9)
        }),
        ("epoch stakes: a vote state that ends early", Rule::InvalidVoteAccount, {
            next(DATA, &|content, place| {
                content.drain(place.items.start + 40..place.items.end);
                content[place.range.clone()].copy_from_slice(&40u64.to_le_bytes());
            })
        }),
    ]
}

fn report_of(altered: &Altered, clients: &[SnapshotClient]) -> VerifyReport {
    let dir = tempfile::tempdir().expect("a directory");
    verify(&put(dir.path(), &altered.full.0, &altered.full.1), None, clients)
}

/// Checks the report on each: broken rules, and clients that refuse it.
#[test]
fn each_field_is_looked_at() {
    let mut text = String::new();
    for altered in altered_fields() {
        let report = report_of(&altered, &[]);
        let mut rules: Vec<String> = report.failures.iter().map(|it| format!("{:?}", it.rule)).collect();
        rules.dedup();
        let refusing: Vec<SnapshotClient> = report.clients.iter().filter(|it| !it.loads).map(|it| it.client).collect();
        let by = if refusing.is_empty() {
            "loaded by all".to_string()
        } else {
            format!("refused by {}", names_of(&refusing).join(", "))
        };
        text += &format!("{}: {by}; {}\n", altered.what, rules.join(", "));
    }
    insta::assert_snapshot!(text);
}

/// Each demand is reported by its rule, and demands of Firedancer alone are not faults for Agave.
#[test]
fn each_demand_is_told() {
    let all = altered_fields();
    let find = |what: &str| all.iter().find(|altered| altered.what == what).unwrap_or_else(|| panic!("no {what}"));
    let demands = [("bank file", DEMANDS), ("status cache", DEMANDS_OF_THE_CACHE)];
    let demands = demands.into_iter().flat_map(|(document, demands)| {
        demands
            .iter()
            .map(move |(name, nth, change, rule)| (format!("{document}: {name} {nth}: {change:?}: {rule:?}"), *rule))
    });
    let others = vote_accounts_of_epochs().into_iter().map(|(what, rule, _)| (what.to_string(), rule));
    for (what, rule) in demands.chain(others) {
        let report = report_of(find(&what), &SnapshotClient::ALL);
        assert!(!of_rule(&report, rule).is_empty(), "{what}: {}", shown(&report));
    }
}

fn has_row(page: &str, name: &str) -> bool {
    let field = name.rsplit(['/', ':']).next().unwrap_or(name).trim();
    let mut group = name;
    while let Some((above, _)) = group.rsplit_once(['/', ':']) {
        group = above.trim_end();
        if page.lines().any(|line| line.starts_with(&format!("| {group}")) && line.contains(field)) {
            return true;
        }
    }
    page.contains(&format!("| {name} |"))
}

/// The page has a row for each field, or names it in the row of the list or group that it is in.
#[test]
fn the_page_names_every_field() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/snapshot-format.md"));
    for (document, is_it, fields) in DOCUMENTS {
        let content = Tar::read(FULL).member(is_it).content.clone();
        for place in places(&content, fields, false) {
            assert!(has_row(page, &place.name.replace(" / ", "/")), "{document}: {}", place.name);
        }
    }
}
