//! Makes one storage: its bytes, its obsolete records in each state, and what its accounts contribute to the
//! sums of each state.

use std::io::Result;

use slotpress_format::ledger::record::{align8, record_bytes};
use slotpress_format::{LatticeHash, RECORD_HEADER_BYTES, RecordHeader};

use super::accounts::{OtherAccount, Shape};
use super::keys;
use super::layout::{Successor, SynthLayout};
use super::rng::Rng;
use super::sysvars::sysvars;
use super::universe::{Origin, Purpose};

#[derive(Clone, Default)]
pub struct Sums {
    pub lattice: LatticeHash,
    pub capitalization: u64,
    pub accounts: u64,
    pub data_bytes: u64,
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        self.lattice.add(&other.lattice);
        self.capitalization += other.capitalization;
        self.accounts += other.accounts;
        self.data_bytes += other.data_bytes;
    }

    fn add_account(&mut self, header: &RecordHeader, data: &[u8]) {
        self.lattice.add_account(&header.account(data));
        self.capitalization += header.lamports;
        self.accounts += 1;
        self.data_bytes += header.data_len;
    }
}

/// Sums over the accounts that both states have, and over the accounts that only one state has.
#[derive(Clone, Default)]
pub struct StateSums {
    pub both: Sums,
    pub full: Sums,
    pub incremental: Sums,
}

impl StateSums {
    pub fn add(&mut self, other: &Self) {
        self.both.add(&other.both);
        self.full.add(&other.full);
        self.incremental.add(&other.incremental);
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ObsoleteRecord {
    pub offset: u64,
    pub data_len: u64,
    pub slot: u64,
    /// False if the record is obsolete only in the incremental state.
    pub is_obsolete_in_full_state: bool,
}

impl ObsoleteRecord {
    /// Returns the number of bytes by which a storage shrinks when this record is cut out.
    pub fn cut_bytes(&self, storage_bytes: u64) -> u64 {
        record_bytes(self.data_len).min(storage_bytes - self.offset)
    }
}

pub struct StorageRecords {
    /// Length of the storage without the padding of its last record.
    pub length_bytes: u64,
    pub obsolete: Vec<ObsoleteRecord>,
}

pub struct Storage {
    pub bytes: Vec<u8>,
    pub records: StorageRecords,
    pub sums: StateSums,
}

pub fn build_storage(layout: &SynthLayout, storage: u64, mut bytes: Vec<u8>) -> Result<Storage> {
    let universe = &layout.universe;
    bytes.clear();
    let mut sums = StateSums::default();
    let mut obsolete = Vec::new();
    let is_incremental = layout.is_incremental(storage);

    // Accounts that first appear here come first.
    let replacing_storage = layout.replacing_storage(storage);
    for (origin, shape) in layout.new_accounts(storage) {
        let offset = start_record(&mut bytes);
        let header = universe.write_record(origin, 0, shape, &mut bytes);
        let data = &bytes[offset + RECORD_HEADER_BYTES..];
        let mut mark_obsolete = |replacing_storage, is_obsolete_in_full_state| {
            let offset = offset as u64;
            let slot = SynthLayout::slot(replacing_storage);
            obsolete.push(ObsoleteRecord { offset, data_len: shape.data_len, slot, is_obsolete_in_full_state });
        };
        if let Some(change) = layout.change_within_state(origin, shape) {
            if change.is_obsolete
                && let Some(newer_storage) = layout.newer_storage_in_state(storage)
            {
                mark_obsolete(newer_storage, !is_incremental);
            }
        } else if is_incremental {
            sums.incremental.add_account(&header, data);
        } else if let Some(replacing_storage) = replacing_storage
            && let Some(change) = layout.change_between_states(origin, shape)
        {
            if change.is_obsolete {
                mark_obsolete(replacing_storage, false);
            }
            sums.full.add_account(&header, data);
        } else {
            sums.both.add_account(&header, data);
        }
    }

    // The accounts of older storages that are replaced or closed here follow.
    let mut replace = |origin: Origin, shape: Shape, successor| match successor {
        Successor::Version => {
            let offset = start_record(&mut bytes);
            let header = universe.write_record(origin, 1 + u64::from(is_incremental), shape, &mut bytes);
            let sums = if is_incremental { &mut sums.incremental } else { &mut sums.both };
            sums.add_account(&header, &bytes[offset + RECORD_HEADER_BYTES..]);
        }
        Successor::Tombstone => {
            start_record(&mut bytes);
            let tombstone = OtherAccount::new(universe.pubkey(origin), keys::SYSTEM, 0, Vec::new());
            tombstone.write_record(&mut bytes);
        }
        Successor::Nothing => {}
    };
    if let Some(older) = layout.older_storage_in_state(storage) {
        for (origin, shape) in layout.new_accounts(older) {
            if let Some(change) = layout.change_within_state(origin, shape) {
                replace(origin, shape, change.successor);
            }
        }
    }
    for older in layout.replaced_storages(storage) {
        for (origin, shape) in layout.new_accounts(older) {
            if let (None, Some(change)) =
                (layout.change_within_state(origin, shape), layout.change_between_states(origin, shape))
            {
                replace(origin, shape, change.successor);
            }
        }
    }

    write_other_accounts(layout, storage, &mut bytes, &mut sums, &mut obsolete)?;

    // Agave marks records when they are replaced, so the list does not have the order of the storage.
    obsolete.sort_by_key(|record| (record.slot, record.offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let length_bytes = bytes.len() as u64;
    bytes.resize(align8(length_bytes) as usize, 0);
    write_meaningless_bytes(layout, storage, &mut bytes);
    Ok(Storage { bytes, records: StorageRecords { length_bytes, obsolete }, sums })
}

/// Writes the accounts that must agree with the bank file: delegated stake accounts in the storages of the full
/// state, sysvars and vote accounts in the last storage of each state. In the incremental state, the sysvars and
/// vote accounts of the full state are obsolete.
fn write_other_accounts(
    layout: &SynthLayout,
    storage: u64,
    bytes: &mut Vec<u8>,
    sums: &mut StateSums,
    obsolete: &mut Vec<ObsoleteRecord>,
) -> Result<()> {
    let stakes = layout.stakes(storage);
    for number in layout.delegations(storage) {
        let account = stakes.stake_account(number);
        start_record(bytes);
        let header = account.write_record(bytes);
        sums.both.add_account(&header, &account.data);
    }
    if !layout.is_last(storage) {
        return Ok(());
    }
    let newest_storage = layout.storage_count() - 1;
    let sysvars = sysvars(&layout.universe, SynthLayout::height(storage), &stakes)?;
    let vote_accounts = (0..stakes.counts.voters).map(|voter| stakes.vote_account(voter));
    for account in sysvars.into_iter().chain(vote_accounts) {
        let offset = start_record(bytes) as u64;
        let header = account.write_record(bytes);
        let sums = if layout.is_incremental(storage) { &mut sums.incremental } else { &mut sums.full };
        sums.add_account(&header, &account.data);
        if storage < newest_storage {
            let slot = SynthLayout::slot(newest_storage);
            obsolete.push(ObsoleteRecord { offset, data_len: header.data_len, slot, is_obsolete_in_full_state: false });
        }
    }
    Ok(())
}

/// Pads the last record, and returns the offset of the next one.
fn start_record(bytes: &mut Vec<u8>) -> usize {
    bytes.resize(align8(bytes.len() as u64) as usize, 0);
    bytes.len()
}

/// Fills in bytes that have no meaning. Older Agave versions numbered their writes, and in some storages the
/// padding after the executable flag is uninitialized memory.
fn write_meaningless_bytes(layout: &SynthLayout, storage: u64, bytes: &mut [u8]) {
    let number = |purpose| layout.universe.number(purpose, storage);
    let has_write_versions = number(Purpose::WriteVersions) % 10 == 0;
    let has_garbage = number(Purpose::Padding) % 16 == 0;
    if !has_write_versions && !has_garbage {
        return;
    }
    let mut write_version = 1_000_000_000_000 + storage * 5_000;
    let mut rng = Rng::new(number(Purpose::Padding));
    let mut garbage = [0; 7];
    let mut offset = 0;
    while let Some(header) = bytes[offset..].first_chunk_mut::<RECORD_HEADER_BYTES>() {
        offset += RecordHeader::parse(header).stored_bytes() as usize;
        if has_write_versions {
            header[..8].copy_from_slice(&write_version.to_le_bytes());
            write_version += 1 + rng.zipf(3);
        }
        if has_garbage {
            if rng.chance_permille(60) {
                rng.fill(&mut garbage[..5]);
                garbage[5..].copy_from_slice(&[0x7f, 0]);
            }
            header[97..104].copy_from_slice(&garbage);
        }
    }
}
