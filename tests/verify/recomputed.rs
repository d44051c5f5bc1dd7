//! States in which an account or a field of the bank file is altered, and everything that depends on
//! it is recomputed: lattice hash, capitalization, bank hash, storage map, names. Only a client that
//! uses the account or the field can find the change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use slotpress_format::{BankFile, BankStakes, FieldReader, LatticeAccumulator, RecordHeader, parse_bank_file_lenient};

use crate::verify::altered::{Altered, ArchiveFile};
use crate::verify::fixtures::*;
use crate::verify::refused::fields::{BANK_FILE, FieldPlace, ListItems, field_places};

/// The content of an account, without its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub lamports: u64,
    pub owner: [u8; 32],
    pub data: Vec<u8>,
}

impl Account {
    /// Returns an account like one that a payment creates.
    pub fn owned_by_system(data: Vec<u8>) -> Self {
        Self { lamports: 1_000_000, owner: [0; 32], data }
    }
}

/// Archives that make up a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    Full,
    Pair,
}

/// A state: a full archive, or a pair of archives.
#[derive(Clone)]
pub struct State {
    /// Directory of the chain, which has its genesis.
    pub chain: PathBuf,
    full_name: String,
    full: Tar,
    incremental: Option<IncrementalTar>,
}

#[derive(Clone)]
struct IncrementalTar {
    base_slot: u64,
    tar: Tar,
}

/// A record of an account.
struct Version {
    slot: u64,
    header: [u8; RECORD_HEADER_BYTES],
    data: Vec<u8>,
}

/// Returns the name of the file with this prefix.
fn find_name(dir: &Path, prefix: &str) -> String {
    let mut files = std::fs::read_dir(dir).expect("archives").map(|entry| entry.expect("an entry").file_name());
    let name = files.find(|name| name.to_string_lossy().starts_with(prefix)).expect("an archive");
    name.into_string().expect("UTF-8")
}

fn record_bytes(address: &[u8; 32], account: &Account) -> Vec<u8> {
    let mut bytes = vec![0; RECORD_HEADER_BYTES];
    bytes[field::DATA_LEN].copy_from_slice(&(account.data.len() as u64).to_le_bytes());
    bytes[field::PUBKEY].copy_from_slice(address);
    bytes[field::LAMPORTS].copy_from_slice(&account.lamports.to_le_bytes());
    bytes[field::RENT_EPOCH].fill(0xFF);
    bytes[field::OWNER].copy_from_slice(&account.owner);
    bytes.extend_from_slice(&account.data);
    bytes
}

fn slot_of(path: &str) -> u64 {
    path.split(['/', '.']).nth(1).and_then(|slot| slot.parse().ok()).expect("a slot")
}

impl State {
    /// Reads the full archive of a chain, or its pair.
    pub fn read(chain: &str, kind: StateKind) -> Self {
        let chain = agave_dir().with_file_name(chain);
        let full_name = find_name(&chain, "snapshot-");
        let incremental = (kind == StateKind::Pair).then(|| {
            let name = find_name(&chain, "incremental-snapshot-");
            let base_slot = name.split('-').nth(2).and_then(|slot| slot.parse().ok()).expect("a base slot");
            IncrementalTar { base_slot, tar: Tar::read_from(&chain.join(&name)) }
        });
        let full = Tar::read_from(&chain.join(&full_name));
        Self { chain, full_name, full, incremental }
    }

    fn newest_tar(&mut self) -> &mut Tar {
        self.incremental.as_mut().map_or(&mut self.full, |incremental| &mut incremental.tar)
    }

    /// Returns the archives, the full one first.
    fn tars(&self) -> impl Iterator<Item = &Tar> {
        [&self.full].into_iter().chain(self.incremental.as_ref().map(|incremental| &incremental.tar))
    }

    /// Returns the newest version of every account.
    fn versions(&self) -> BTreeMap<[u8; 32], Version> {
        let mut versions: BTreeMap<[u8; 32], Version> = BTreeMap::new();
        for tar in self.tars() {
            for index in tar.storages() {
                let slot = slot_of(&tar.members[index].path());
                let content = &tar.members[index].content;
                for range in record_ranges(content) {
                    let (header, data) = content[range].split_at(RECORD_HEADER_BYTES);
                    let header: [u8; RECORD_HEADER_BYTES] = header.try_into().expect("a header");
                    let address = header[field::PUBKEY].try_into().expect("32 bytes");
                    if versions.get(&address).is_none_or(|known| known.slot <= slot) {
                        versions.insert(address, Version { slot, header, data: data.to_vec() });
                    }
                }
            }
        }
        versions
    }

    /// Returns all open accounts of the state.
    pub fn accounts(&self) -> BTreeMap<[u8; 32], Account> {
        let account = |Version { header, data, .. }| Account {
            lamports: u64_at(&header, field::LAMPORTS.start),
            owner: header[field::OWNER].try_into().expect("32 bytes"),
            data,
        };
        let accounts = self.versions().into_iter().map(|(address, version)| (address, account(version)));
        accounts.filter(|(_, account)| account.lamports > 0).collect()
    }

    /// Puts the newest version of an account into the newest storage. A version without lamports
    /// closes the account.
    pub fn put(&mut self, address: &[u8; 32], account: &Account) {
        let tar = self.newest_tar();
        remove_records(tar, address);
        let newest =
            tar.storages().into_iter().max_by_key(|index| slot_of(&tar.members[*index].path())).expect("a storage");
        let mut content = tar.members[newest].content.clone();
        content.resize(content.len().next_multiple_of(8), 0);
        content.extend(record_bytes(address, account));
        tar.members[newest].set_content(content);
    }

    /// Removes all versions of an account.
    pub fn delete(&mut self, address: &[u8; 32]) {
        remove_records(&mut self.full, address);
        remove_records(self.newest_tar(), address);
    }

    /// Changes the newest bank file at the named field.
    pub fn change_bank(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>, &FieldPlace)) {
        let member = self.newest_tar().member(is_bank_file);
        let mut content = member.content.clone();
        let place = find_place(&content, name);
        change(&mut content, &place);
        member.set_content(content);
    }

    /// Sets a field of the newest bank file to these bytes.
    pub fn set_bank(&mut self, name: &str, bytes: &[u8]) {
        self.change_bank(name, |content, place| content[place.range.clone()].copy_from_slice(bytes));
    }

    pub fn bank_content(&mut self) -> Vec<u8> {
        self.newest_tar().member(is_bank_file).content.clone()
    }

    /// Recomputes everything that depends on the changes, and writes the archives.
    pub fn into_altered(mut self, label: impl ToString) -> Altered {
        let mut lattice = LatticeAccumulator::default();
        let mut lamports = 0u64;
        for Version { header, data, .. } in self.versions().values() {
            let header = RecordHeader::parse(header);
            if header.lamports > 0 {
                lattice.add(&header.account(data));
                lamports = lamports.wrapping_add(header.lamports);
            }
        }
        let lattice = lattice.take();
        let lengths = self.storage_lengths();
        let member = self.newest_tar().member(is_bank_file);
        let mut content = member.content.clone();
        let mut set = |name: &str, bytes: &[u8]| {
            let range = find_place(&content, name).range;
            content[range].copy_from_slice(bytes);
        };
        set("capitalization", &lamports.to_le_bytes());
        set("lattice hash / hash", &lattice.to_bytes());
        let slot = parse_bank(&content).slot;
        if let Some(hash) = parse_bank(&content).compute_hash() {
            let range = find_place(&content, "hash").range;
            content[range].copy_from_slice(&hash.0);
        }
        set_storage_map(&mut content, &lengths);
        member.set_content(content);
        let hash = lattice.snapshot_hash();
        let file = |name: String, tar: &Tar| ArchiveFile { name, bytes: compress(&tar.write()) };
        let label = label.to_string();
        match &self.incremental {
            None => {
                let full = file(format!("snapshot-{slot}-{hash}.tar.zst"), &self.full);
                Altered { label, full, incremental: None }
            }
            Some(IncrementalTar { base_slot, tar }) => {
                let full = file(self.full_name.clone(), &self.full);
                let incremental = file(format!("incremental-snapshot-{base_slot}-{slot}-{hash}.tar.zst"), tar);
                Altered { label, full, incremental: Some(incremental) }
            }
        }
    }

    /// Returns the lengths of all storages, by slot.
    fn storage_lengths(&self) -> BTreeMap<u64, u64> {
        let members = self.tars().flat_map(|tar| tar.storages().into_iter().map(|index| &tar.members[index]));
        members.map(|member| (slot_of(&member.path()), member.content.len() as u64)).collect()
    }
}

pub fn parse_bank(content: &[u8]) -> BankFile {
    let fields = FieldReader::new(content, content.len() as u64, "the bank file");
    parse_bank_file_lenient(fields, &mut |_| Ok(()), BankStakes::Keep).expect("a bank file").0
}

fn find_place(content: &[u8], name: &str) -> FieldPlace {
    field_places(content, BANK_FILE, ListItems::First)
        .into_iter()
        .find(|place| place.name == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

/// Removes the records of an account, and the storages that are then empty.
fn remove_records(tar: &mut Tar, address: &[u8; 32]) {
    for index in tar.storages().into_iter().rev() {
        let old = &tar.members[index].content;
        let is_of_account = |record: &[u8]| record[field::PUBKEY] == *address;
        let mut content = Vec::new();
        let mut has_account = false;
        for range in record_ranges(old) {
            if is_of_account(&old[range.clone()]) {
                has_account = true;
                continue;
            }
            content.resize(content.len().next_multiple_of(8), 0);
            content.extend_from_slice(&old[range]);
        }
        if !has_account {
            continue;
        }
        if content.is_empty() {
            tar.members.remove(index);
        } else {
            tar.members[index].set_content(content);
        }
    }
}

/// Writes the lengths of storages into the storage map, if there is a map.
fn set_storage_map(content: &mut [u8], lengths: &BTreeMap<u64, u64>) {
    let all = field_places(content, BANK_FILE, ListItems::All);
    let ranges = |name: &str| all.iter().filter(|place| place.name == name).map(|place| place.range.clone()).collect();
    let slots: Vec<_> = ranges("storage map / slot");
    let items: Vec<_> = ranges("storage map / storages / length");
    for (slot, length) in slots.into_iter().zip(items) {
        let bytes = lengths.get(&u64_at(content, slot.start)).copied().unwrap_or_default();
        content[length].copy_from_slice(&bytes.to_le_bytes());
    }
}
