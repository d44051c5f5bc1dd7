//! The fields of a bank file that reports show. They include neither the long lists nor the lattice hash,
//! which the snapshot hash represents.

use serde::Serialize;
use slotpress_base::text;

use super::bank_file::BankFile;
use crate::{HardFork, Hash};

/// A bank, as its bank file describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct BankFields {
    /// Slot of the bank.
    pub slot: u64,
    /// Epoch of that slot.
    pub epoch: u64,
    /// Number of blocks since genesis.
    pub block_height: u64,
    /// Hash in the names of archives. It covers the lattice hash of all accounts.
    pub snapshot_hash: Hash,
    /// Bank hash, on which validators vote.
    pub bank_hash: Hash,
    /// Slot of the parent.
    pub parent_slot: u64,
    /// Bank hash of the parent.
    pub parent_hash: Hash,
    /// Sum of the balances of all accounts, in lamports.
    #[serde(serialize_with = "text::display")]
    pub capitalization_lamports: u64,
    /// Number of transactions since genesis.
    pub transaction_count: u64,
    /// All hard forks that the bank file lists.
    pub hard_forks: Vec<HardFork>,
}

impl BankFields {
    #[doc(hidden)]
    pub fn from_bank(bank: &BankFile) -> Self {
        Self {
            slot: bank.slot,
            epoch: bank.epoch(),
            block_height: bank.block_height,
            snapshot_hash: bank.snapshot_hash(),
            bank_hash: bank.hash,
            parent_slot: bank.parent_slot,
            parent_hash: bank.parent_hash,
            capitalization_lamports: bank.capitalization,
            transaction_count: bank.transaction_count,
            hard_forks: bank.hard_forks.clone(),
        }
    }
}
