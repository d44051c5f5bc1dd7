//! Keeps the newest versions of some accounts at fixed addresses, which the checks and exports need.

use std::collections::BTreeMap;

use slotpress_format::{
    CLOCK, REDUCED_STAKE_CHANGES, Record, RecordHeader, SHORTER_SLOTS, SLOT_HISTORY, STAKE_HISTORY,
};

use super::newest::NewestVersions;
use crate::StorageRef;

/// Addresses of these accounts, which are sysvars and features.
const ADDRESSES: [[u8; 32]; 8] = [
    SLOT_HISTORY,
    CLOCK,
    STAKE_HISTORY,
    REDUCED_STAKE_CHANGES,
    SHORTER_SLOTS[0].feature,
    SHORTER_SLOTS[1].feature,
    SHORTER_SLOTS[2].feature,
    SHORTER_SLOTS[3].feature,
];

/// True for the first bytes of these addresses. They rule out nearly all other accounts.
const FIRST_BYTES: [bool; 256] = {
    let mut first = [false; 256];
    let mut index = 0;
    while index < ADDRESSES.len() {
        first[ADDRESSES[index][0] as usize] = true;
        index += 1;
    }
    first
};

/// Limit on the bytes that are kept of an account's data. The longest of these accounts, SlotHistory, has
/// 131,097 bytes.
const KEPT_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WellKnownAccount {
    pub lamports: u64,
    pub owner: [u8; 32],
    /// The data, or its first bytes if it is long.
    pub data: Box<[u8]>,
}

pub type WellKnownAccounts = BTreeMap<[u8; 32], WellKnownAccount>;

impl NewestVersions<WellKnownAccount> {
    pub fn well_known_accounts() -> Self {
        Self::new(ADDRESSES.len())
    }

    /// Keeps a record, even a tombstone, if its account has one of the addresses.
    pub fn keep_if_well_known(&self, storage: StorageRef, record: &Record<'_>) {
        let address = record.header.pubkey;
        if !FIRST_BYTES[usize::from(address[0])] || !ADDRESSES.contains(&address) {
            return;
        }
        let data = &record.data[..record.data.len().min(KEPT_BYTES_MAX)];
        let RecordHeader { lamports, owner, .. } = *record.header;
        let account = WellKnownAccount { lamports, owner, data: data.into() };
        self.keep(address, storage, record.offset_bytes, account);
    }

    pub fn accounts(&self) -> WellKnownAccounts {
        let mut accounts = WellKnownAccounts::new();
        self.for_each(|address, account| accounts.extend([(*address, account.clone())]));
        accounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_beyond_the_limit_and_other_accounts_are_not_kept() {
        let known = NewestVersions::well_known_accounts();
        let keep = |address: [u8; 32], data: &[u8]| {
            let mut header = RecordHeader::parse(&[0; 136]);
            (header.owner, header.pubkey, header.lamports) = ([8; 32], address, 1);
            let storage = StorageRef { number: 0, slot: 5, id: 1 };
            let record = Record { offset_bytes: 0, header: &header, data };
            known.keep_if_well_known(storage, &record);
        };
        let mut similar = CLOCK;
        similar[31] ^= 1;
        keep(similar, &[1]);
        assert!(known.accounts().is_empty(), "the account has a different address");
        keep(CLOCK, &vec![1; KEPT_BYTES_MAX + 7]);
        assert_eq!(known.accounts()[&CLOCK].data.len(), KEPT_BYTES_MAX);
    }
}
