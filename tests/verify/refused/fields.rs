//! The fields of the bank file and the status cache, in their order: a table of the fields, and the
//! effect of altering each. The reader here follows only this table; the clients have their own
//! parsers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use slotpress_base::SplitMix64;
use slotpress_read::{Rule, SnapshotClient, VerifyReport, client_names};

use crate::common::temp_dir;
use crate::verify::altered::{Altered, ArchiveFile};
use crate::verify::fixtures::*;

/// A field of a document, or several fields.
pub enum Field {
    /// A number, an address or a hash of this many bytes.
    Number(&'static str, usize),
    /// A byte, 0 or 1.
    Flag(&'static str),
    /// A byte, 0 or 1. A 1 is followed by the value.
    Option(&'static str, &'static [Field]),
    /// A count, which is followed by the items.
    List(&'static str, &'static [Field]),
    /// The kind of an item: four bytes, which are 0.
    Kind(&'static str),
    /// Several fields with a common name.
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

/// The bank file: fields of the bank, fields of accounts-db, extra fields.
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

/// The kind of a field at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    Number,
    Flag,
    Option,
    /// A list with this many items.
    List(u64),
    Kind,
}

/// The place of a field.
#[derive(Clone, Debug)]
pub struct FieldPlace {
    /// Name with the names of the lists around it, such as "stakes / vote accounts / stake".
    pub name: String,
    /// Place of the number, of the flag, or of a list's count.
    pub range: Range<usize>,
    pub kind: PlaceKind,
    /// Place of all items of a list, or of an option's value.
    pub items: Range<usize>,
    /// End of a list's first item.
    pub first_end: usize,
}

/// Which items of each list have their places returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ListItems {
    All,
    First,
}

/// Returns the places of all fields, in the order of the file.
pub fn field_places(content: &[u8], fields: &[Field], items: ListItems) -> Vec<FieldPlace> {
    let mut places = Vec::new();
    let end = add_places(content, fields, "", 0, items, &mut Some(&mut places));
    assert_eq!(end, content.len(), "the table does not end with the file");
    places
}

fn add_places(
    content: &[u8],
    fields: &[Field],
    prefix: &str,
    mut offset: usize,
    list_items: ListItems,
    places: &mut Option<&mut Vec<FieldPlace>>,
) -> usize {
    for field in fields {
        let start = offset;
        let (name, kind, length) = match field {
            Number(name, length) => (name, PlaceKind::Number, *length),
            Flag(name) => (name, PlaceKind::Flag, 1),
            Kind(name) => (name, PlaceKind::Kind, 4),
            Field::Option(name, _) => (name, PlaceKind::Option, 1),
            List(name, _) => (name, PlaceKind::List(u64_at(content, offset)), 8),
            Group(name, fields) => {
                offset = add_places(content, fields, &format!("{prefix}{name} / "), offset, list_items, places);
                continue;
            }
        };
        offset += length;
        let name = format!("{prefix}{name}");
        let items_start = offset;
        let place_index = places.as_ref().map(|places| places.len());
        if let Some(places) = places {
            let range = start..offset;
            let items = offset..offset;
            places.push(FieldPlace { name: name.clone(), range, kind, items, first_end: offset });
        }
        let inner_prefix = format!("{name} / ");
        let mut first_end = offset;
        match field {
            Field::Option(_, fields) if content[start] == 1 => {
                offset = add_places(content, fields, &inner_prefix, offset, list_items, places);
            }
            // Plain bytes have no fields.
            List(_, [Number(_, 1)]) => offset += u64_at(content, start) as usize,
            List(_, fields) => {
                for item in 0..u64_at(content, start) {
                    let is_wanted = item == 0 || list_items == ListItems::All;
                    let places = if is_wanted { &mut *places } else { &mut None };
                    offset = add_places(content, fields, &inner_prefix, offset, list_items, places);
                    first_end = if item == 0 { offset } else { first_end };
                }
            }
            _ => {}
        }
        if let (Some(places), Some(index)) = (places.as_mut(), place_index) {
            places[index].items = items_start..offset;
            places[index].first_end = first_end;
        }
    }
    offset
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
    /// Sets a different number.
    Set(u64),
    /// Extends the list to this length with copies of its first item, or with zeros if it was empty.
    Length(u64),
    /// Removes the list's first item, or the value of the option.
    LeftOut,
}

impl Change {
    /// Returns the changes for the kind of a field.
    pub fn all_for(place: &FieldPlace) -> Vec<Self> {
        match place.kind {
            PlaceKind::Number => vec![Self::Flipped, Self::Highest, Self::Zero],
            PlaceKind::Flag | PlaceKind::Kind => vec![Self::Flipped, Self::Set(2)],
            PlaceKind::Option if !place.items.is_empty() => vec![Self::Set(2), Self::LeftOut],
            PlaceKind::Option => vec![Self::Set(2)],
            PlaceKind::List(0) => vec![Self::Highest, Self::Length(1)],
            PlaceKind::List(count) => vec![Self::Highest, Self::LeftOut, Self::Length(count + 1)],
        }
    }

    pub fn apply(&self, content: &mut Vec<u8>, place: &FieldPlace, item_bytes: usize) {
        let range = place.range.clone();
        match self {
            Self::Flipped => content[range.start] ^= 1,
            Self::Highest => content[range].fill(0xFF),
            Self::Zero => content[range].fill(0),
            Self::Set(number) => {
                let length = range.len().min(8);
                content[range.start..range.start + length].copy_from_slice(&number.to_le_bytes()[..length]);
            }
            Self::LeftOut if place.kind == PlaceKind::Option => {
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
                let copies = item.repeat((count - old) as usize);
                content.splice(place.items.start..place.items.start, copies);
            }
        }
    }
}

/// Returns the number of bytes of an item without the contents of its lists.
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

/// Returns the number of bytes of an item of the named list.
fn list_item_bytes(name: &str, fields: &[Field]) -> usize {
    let (first, rest) = name.split_once(" / ").map_or((name, None), |(first, rest)| (first, Some(rest)));
    let fields_of_list = fields.iter().find_map(|field| match field {
        List(name, fields) | Group(name, fields) | Field::Option(name, fields) if *name == first => Some(*fields),
        _ => None,
    });
    match (fields_of_list, rest) {
        (Some(fields), Some(rest)) => list_item_bytes(rest, fields),
        (Some(fields), None) => item_bytes(fields),
        (None, _) => 0,
    }
}

/// Returns a file in which the first field of this name is changed.
pub fn change_field(content: &[u8], fields: &'static [Field], name: &str, change: &Change) -> Vec<u8> {
    let places = field_places(content, fields, ListItems::All);
    let place = places.iter().find(|place| place.name == name).unwrap_or_else(|| panic!("no {name}"));
    let mut content = content.to_vec();
    change.apply(&mut content, place, list_item_bytes(name, fields));
    content
}

/// A change of a field that a client does not accept.
struct BrokenDemand {
    field: &'static str,
    change: Change,
    rule: Rule,
}

const fn broken_demand(field: &'static str, change: Change, rule: Rule) -> BrokenDemand {
    BrokenDemand { field, change, rule }
}

const BANK_FILE_DEMANDS: &[BrokenDemand] = &[
    broken_demand("ancestors", Change::Length(8193), Rule::FiredancerLimit),
    broken_demand("hard forks", Change::Length(65), Rule::FiredancerLimit),
    broken_demand("blockhash queue: last hash", Change::LeftOut, Rule::BankHash),
    broken_demand("stakes / delegations / rate", Change::Set(0x4000_0000_0000_0000), Rule::FiredancerLimit),
    broken_demand("unused votes", Change::Length((1 << 20) + 1), Rule::FiredancerLimit),
    broken_demand("historical roots", Change::Length((1 << 20) + 1), Rule::FiredancerLimit),
    broken_demand("epoch stakes", Change::Length(7), Rule::FiredancerLimit),
    broken_demand("epoch stakes / vote accounts", Change::Length(2001), Rule::VoteAccountLimit),
];

const STATUS_CACHE_DEMANDS: &[BrokenDemand] = &[
    broken_demand("slots / blockhashes / offset", Change::Set(12), Rule::FiredancerLimit),
    broken_demand("slots", Change::LeftOut, Rule::CachedSlots),
];

/// Makes archives in which random fields are altered.
pub struct RandomFields(SplitMix64);

/// Fields that Agave compares with the genesis, which an archive does not contain, or with features.
pub const OF_GENESIS: [&str; 5] =
    ["ticks per slot", "genesis creation time", "ns per slot", "slots per year", "epoch schedule / "];

/// Fields that `verify` does not check although Agave does: every writer sets them right, and no hash
/// covers them.
pub const UNCHECKED: [&str; 3] = ["rent collector (unused): warmup", "unused epoch stakes", "epoch stakes / epoch"];

impl RandomFields {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn random_below(&mut self, count: usize) -> usize {
        (self.0.next() % count as u64) as usize
    }

    /// Returns the next archive, and the directory of its chain with the genesis.
    pub fn next_archive(&mut self) -> (Altered, PathBuf) {
        const CHAINS: [&str; 4] = ["agave-4.2.2", "agave-4.4.0", "agave-4.5.0-alpha.4", "agave-validator-4.2.2"];
        // A loader takes ten times as long for the last chain, with its thousands of storages.
        let chain = match self.random_below(16) {
            0 => CHAINS[3],
            number => CHAINS[number % 3],
        };
        let chain = agave_dir().with_file_name(chain);
        let mut files = std::fs::read_dir(&chain).expect("a chain").map(|entry| entry.expect("an entry").file_name());
        let name = files.find(|name| name.to_string_lossy().starts_with("snapshot-")).expect("a full archive");
        let name = name.into_string().expect("UTF-8");
        let mut tar = Tar::read_from(&chain.join(&name));
        let mut label = name.clone();
        for _ in 0..=self.random_below(3) {
            // Four of five changes are in the bank file, which has more fields.
            let Document { name: document, is_entry, fields, .. } = DOCUMENTS[usize::from(self.random_below(5) == 0)];
            let member = tar.member(is_entry);
            let mut content = member.content.clone();
            let mut candidates = field_places(&content, fields, ListItems::All);
            candidates.retain(|place| !OF_GENESIS.iter().any(|name| place.name.starts_with(name)));
            // Each name is equally likely, for any number of items.
            let names: BTreeSet<&str> = candidates.iter().map(|place| place.name.as_str()).collect();
            let name = names.iter().nth(self.random_below(names.len())).expect("a name").to_string();
            candidates.retain(|place| place.name == name);
            let place = candidates.swap_remove(self.random_below(candidates.len()));
            let mut changes = Change::all_for(&place);
            if place.kind == PlaceKind::Number {
                changes.push(Change::Set(self.0.next() >> self.random_below(64)));
            }
            let change = changes.swap_remove(self.random_below(changes.len()));
            change.apply(&mut content, &place, list_item_bytes(&name, fields));
            label += &format!(", {document}: {name} at {}: {change:?}", place.range.start);
            member.set_content(content);
            // The table may not fit the changed file.
            if place.kind != PlaceKind::Number {
                break;
            }
        }
        let full = ArchiveFile { name, bytes: compress(&tar.write()) };
        (Altered { label, full, incremental: None }, chain)
    }
}

/// Returns the full archive with a different bank file or status cache.
fn with_document(is_entry: fn(&str) -> bool, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut tar = Tar::read(FULL_26);
    let member = tar.member(is_entry);
    let content = change(&member.content);
    member.set_content(content);
    compress(&tar.write())
}

#[derive(Clone, Copy)]
struct Document {
    name: &'static str,
    /// True for the path of its entry.
    is_entry: fn(&str) -> bool,
    fields: &'static [Field],
    demands: &'static [BrokenDemand],
}

const DOCUMENTS: [Document; 2] = [
    Document { name: "bank file", is_entry: is_bank_file, fields: BANK_FILE, demands: BANK_FILE_DEMANDS },
    Document { name: "status cache", is_entry: is_status_cache, fields: STATUS_CACHE, demands: STATUS_CACHE_DEMANDS },
];

impl Document {
    /// Names the archive in which a demand is broken.
    fn label_of(&self, BrokenDemand { field, change, rule }: &BrokenDemand) -> String {
        format!("{}: {field} 0: {change:?}: {rule:?}", self.name)
    }
}

/// Returns archives with one alteration each: every field of both documents is altered in every way of its kind, every
/// demand is broken, and epoch stakes are altered.
pub fn altered_fields() -> Vec<Altered> {
    let mut altered = Vec::new();
    for Document { name: document, is_entry, fields, .. } in DOCUMENTS {
        let mut tar = Tar::read(FULL_26);
        let content = tar.member(is_entry).content.clone();
        for place in field_places(&content, fields, ListItems::First) {
            for change in Change::all_for(&place) {
                let mut changed = content.clone();
                change.apply(&mut changed, &place, list_item_bytes(&place.name, fields));
                let mut tar = tar.clone();
                tar.member(is_entry).set_content(changed);
                altered.push(Altered::full(format!("{document}: {}: {change:?}", place.name), compress(&tar.write())));
            }
        }
    }
    for document in DOCUMENTS {
        for demand in document.demands {
            let change = |content: &[u8]| change_field(content, document.fields, demand.field, &demand.change);
            altered.push(Altered::full(document.label_of(demand), with_document(document.is_entry, change)));
        }
    }
    altered.extend(altered_epoch_stakes().into_iter().map(|stakes| Altered::full(stakes.label, stakes.archive)));
    altered
}

/// An archive with altered epoch stakes, which break a rule.
struct AlteredEpochStakes {
    label: &'static str,
    rule: Rule,
    archive: Vec<u8>,
}

/// Alters vote accounts in the stakes of the next epoch.
fn altered_epoch_stakes() -> [AlteredEpochStakes; 3] {
    let change_next = |name: &str, change: &dyn Fn(&mut Vec<u8>, &FieldPlace)| {
        with_document(is_bank_file, |content| {
            let places = field_places(content, BANK_FILE, ListItems::All);
            let epochs: Vec<&FieldPlace> = places.iter().filter(|place| place.name == "epoch stakes / epoch").collect();
            let newest = epochs.iter().max_by_key(|place| u64_at(content, place.range.start)).expect("epochs");
            let mut later = places.iter().filter(|place| place.range.start > newest.range.start);
            let place = later.find(|place| place.name == name).expect("a field");
            let mut content = content.to_vec();
            change(&mut content, place);
            content
        })
    };
    const DATA: &str = "epoch stakes / vote accounts / data";
    [
        AlteredEpochStakes {
            label: "epoch stakes: no stake",
            rule: Rule::NoStake,
            archive: change_next("epoch stakes / vote accounts / stake", &|content, place| {
                content[place.range.clone()].fill(0);
            }),
        },
        AlteredEpochStakes {
            label: "epoch stakes: a vote state of an unknown version",
            rule: Rule::InvalidVoteAccount,
            archive: change_next(DATA, &|content, place| content[place.items.start] = 9),
        },
        AlteredEpochStakes {
            label: "epoch stakes: a vote state that ends early",
            rule: Rule::InvalidVoteAccount,
            archive: change_next(DATA, &|content, place| {
                content.drain(place.items.start + 40..place.items.end);
                content[place.range.clone()].copy_from_slice(&40u64.to_le_bytes());
            }),
        },
    ]
}

fn verify_full(altered: &Altered, clients: &[SnapshotClient]) -> VerifyReport {
    let dir = temp_dir();
    verify(&altered.write_to(dir.path()).full, None, clients)
}

/// The snapshot lists the clients that refuse each archive, and the broken rules.
#[test]
fn each_altered_field_has_its_report() {
    let mut text = String::new();
    for altered in altered_fields() {
        let report = verify_full(&altered, &[]);
        let mut rules: Vec<String> = report.failures.iter().map(|failure| format!("{:?}", failure.rule)).collect();
        rules.dedup();
        let refusing = refusing_clients(&report);
        let verdict = if refusing.is_empty() {
            "loaded by all".to_string()
        } else {
            format!("refused by {}", client_names(&refusing).join(", "))
        };
        text += &format!("{}: {verdict}; {}\n", altered.label, rules.join(", "));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn each_broken_demand_is_reported_by_its_rule() {
    let archives = altered_fields();
    let find =
        |label: &str| archives.iter().find(|altered| altered.label == label).unwrap_or_else(|| panic!("no {label}"));
    let assert_breaks = |label: &str, rule: Rule| {
        let report = verify_full(find(label), &SnapshotClient::JUDGED_BY_DEFAULT);
        assert!(!failures_of(&report, rule).is_empty(), "{label}: {}", describe(&report));
    };
    for document in DOCUMENTS {
        for demand in document.demands {
            assert_breaks(&document.label_of(demand), demand.rule);
        }
    }
    for AlteredEpochStakes { label, rule, .. } in altered_epoch_stakes() {
        assert_breaks(label, rule);
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

/// `docs/snapshot-format.md` has a row for each field, or names the field in the row of its list or
/// group.
#[test]
fn the_format_page_names_every_field() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/snapshot-format.md"));
    for Document { name: document, is_entry, fields, .. } in DOCUMENTS {
        let content = Tar::read(FULL_26).member(is_entry).content.clone();
        for place in field_places(&content, fields, ListItems::First) {
            assert!(has_row(page, &place.name.replace(" / ", "/")), "{document}: {}", place.name);
        }
    }
}
