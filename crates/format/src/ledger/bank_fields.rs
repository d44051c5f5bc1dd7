//! A bank file as reports have it: what an operator asks about. Its lists and its lattice hash are left out; the snapshot
//! hash stands for the latter.

use serde::{Serialize, Serializer};

use super::bank_file::BankFile;
use super::names::Hash;

#[derive(Serialize)]
struct BankFields {
    slot: u64,
    epoch: u64,
    block_height: u64,
    snapshot_hash: Hash,
    bank_hash: Hash,
    parent_slot: u64,
    parent_hash: Hash,
    capitalization_lamports: u64,
    /// The same as text: many readers of JSON keep 53 bits of a number.
    capitalization_lamports_text: String,
    transaction_count: u64,
}

impl Serialize for BankFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BankFields {
            slot: self.slot,
            epoch: self.epoch(),
            block_height: self.block_height,
            snapshot_hash: self.snapshot_hash(),
            bank_hash: self.hash,
            parent_slot: self.parent_slot,
            parent_hash: self.parent_hash,
            capitalization_lamports: self.capitalization,
            capitalization_lamports_text: self.capitalization.to_string(),
            transaction_count: self.transaction_count,
        }
        .serialize(serializer)
    }
}
