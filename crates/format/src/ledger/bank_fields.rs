//! Fields of a bank file in reports. Omits its lists and the lattice hash, for which the snapshot hash stands.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::bank_file::BankFile;

impl Serialize for BankFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("BankFile", 10)?;
        fields.serialize_field("slot", &self.slot)?;
        fields.serialize_field("epoch", &self.epoch())?;
        fields.serialize_field("block_height", &self.block_height)?;
        fields.serialize_field("snapshot_hash", &self.snapshot_hash())?;
        fields.serialize_field("bank_hash", &self.hash)?;
        fields.serialize_field("parent_slot", &self.parent_slot)?;
        fields.serialize_field("parent_hash", &self.parent_hash)?;
        fields.serialize_field("capitalization_lamports", &self.capitalization)?;
        // The same as text: many JSON parsers keep only 53 bits of a number.
        fields.serialize_field("capitalization_lamports_text", &self.capitalization.to_string())?;
        fields.serialize_field("transaction_count", &self.transaction_count)?;
        fields.end()
    }
}
