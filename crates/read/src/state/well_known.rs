//! Keeps the accounts at the addresses that clients read when they load a snapshot: the newest version of each.
//!
//! Whether a newer version exists than the one that is kept, such as one that closes the account, is known when superseded
//! records are ([`WellKnown::drop_superseded`]).

use std::collections::BTreeMap;

use parking_lot::Mutex;
use slotpress_format::{
    CERTIFICATE, CLOCK, EPOCH_REWARDS, OLD_CERTIFICATE, OLD_REWARD_STAKES, REDUCED_STAKE_CHANGES, RENT, REWARD_STAKES,
    Record, SHORTER_SLOTS, SLOT_HASHES, SLOT_HISTORY, STAKE_HISTORY,
};

use super::fingerprint::Fingerprint;
use super::superseded::{ByStorage, is_listed};
use crate::StorageRef;

/// What is read beside vote and stake accounts.
const ADDRESSES: [[u8; 32]; 15] = [
    RENT,
    EPOCH_REWARDS,
    SLOT_HASHES,
    SLOT_HISTORY,
    CLOCK,
    STAKE_HISTORY,
    OLD_CERTIFICATE,
    OLD_REWARD_STAKES,
    CERTIFICATE,
    REWARD_STAKES,
    REDUCED_STAKE_CHANGES,
    SHORTER_SLOTS[0].feature,
    SHORTER_SLOTS[1].feature,
    SHORTER_SLOTS[2].feature,
    SHORTER_SLOTS[3].feature,
];

/// First bytes of these addresses: a look at one byte passes over nearly all accounts.
const FIRST_BYTES: [bool; 256] = {
    let mut first = [false; 256];
    let mut at = 0;
    while at < ADDRESSES.len() {
        first[ADDRESSES[at][0] as usize] = true;
        at += 1;
    }
    first
};

/// Bytes that are kept of an account. SlotHistory, the longest that is read whole, has 131,097; of the others, their lengths tell the rest.
const KEPT_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WellKnownAccount {
    pub owner: [u8; 32],
    /// The first bytes of its data.
    pub data: Box<[u8]>,
    /// Length of its data.
    pub data_bytes: u64,
}

pub type WellKnownAccounts = BTreeMap<[u8; 32], WellKnownAccount>;

#[derive(Debug)]
struct Found {
    account: WellKnownAccount,
    slot: u64,
    storage: u32,
    fingerprint: Fingerprint,
}

#[derive(Debug, Default)]
pub struct WellKnown {
    found: Mutex<BTreeMap<[u8; 32], Found>>,
}

impl WellKnown {
    /// Keeps a record with lamports, if it is of one of the addresses and newer than the one that is kept.
    pub fn look_at(&self, storage: StorageRef, fingerprint: Fingerprint, record: &Record<'_>) {
        let address = record.header.pubkey;
        if !FIRST_BYTES[usize::from(address[0])] || !ADDRESSES.contains(&address) {
            return;
        }
        let mut found = self.found.lock();
        // Of storages of one slot, the later in the archive.
        if found.get(&address).is_some_and(|known| (known.slot, known.storage) >= (storage.slot, storage.number)) {
            return;
        }
        let data = &record.data[..record.data.len().min(KEPT_BYTES_MAX)];
        let account =
            WellKnownAccount { owner: record.header.owner, data: data.into(), data_bytes: record.data.len() as u64 };
        found.insert(address, Found { account, slot: storage.slot, storage: storage.number, fingerprint });
    }

    pub fn drop_superseded(&self, superseded: &ByStorage) {
        let is_newest = |found: &Found| !is_listed(superseded.of_storage(found.storage), &found.fingerprint);
        self.found.lock().retain(|_, found| is_newest(found));
    }

    /// The kept accounts. Call after superseded versions were dropped.
    pub fn accounts(&self) -> WellKnownAccounts {
        self.found.lock().iter().map(|(address, found)| (*address, found.account.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::RecordHeader;

    use super::*;
    use crate::Version;
    use crate::state::superseded::superseded_among;

    fn look_at(known: &WellKnown, address: [u8; 32], (slot, number): (u64, u32), data: &[u8]) {
        let mut header = RecordHeader::parse(&[0; 136]);
        (header.owner, header.pubkey, header.lamports) = ([8; 32], address, 1);
        let storage = StorageRef { number, slot, id: 1 };
        known.look_at(storage, Fingerprint([1, 2, 3]), &Record { offset_bytes: 0, header: &header, data });
    }

    /// The newest version is kept in whatever order workers see them, unless a tombstone closes the account.
    #[test]
    fn the_newest_of_the_addresses() {
        let versions = [(5, 0), (7, 1), (6, 2), (7, 3)];
        for first in 0..4 {
            for step in [1, 3] {
                let known = WellKnown::default();
                for at in (0..4).map(|turn| (first + step * turn) % 4) {
                    look_at(&known, RENT, versions[at], &[at as u8]);
                }
                assert_eq!(*known.accounts()[&RENT].data, [3], "of the slot's storages, the later");
            }
        }
        let known = WellKnown::default();
        let mut near = RENT;
        near[31] ^= 1;
        look_at(&known, near, (5, 0), &[1]);
        assert!(known.accounts().is_empty(), "of another address");
        look_at(&known, CERTIFICATE, (5, 0), &vec![1; KEPT_BYTES_MAX + 7]);
        let account = known.accounts()[&CERTIFICATE].clone();
        assert_eq!((account.data.len(), account.data_bytes), (KEPT_BYTES_MAX, KEPT_BYTES_MAX as u64 + 7));
        let version = |storage, is_tombstone| Version::new(Fingerprint([1, 2, 3]), storage, is_tombstone, 0);
        let superseded = superseded_among(&[version(0, false), version(1, true)], &u64::from);
        known.drop_superseded(&superseded.to_subtract);
        assert!(known.accounts().is_empty());
    }
}
