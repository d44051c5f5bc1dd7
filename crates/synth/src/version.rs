//! Differences between the files of Agave versions (docs/snapshot-format.md#bank-snapshot). All versions have
//! the same storages.

use std::io::{Result, Write};

use super::fields::FieldWriter;
use super::storage::ObsoleteRecord;

/// An Agave version, which determines the files that are in a ledger after a graceful stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[warn(missing_docs)]
pub enum AgaveVersion {
    /// Agave 4.2 and 4.3.
    #[default]
    V4_2,
    /// Agave 4.4: startup hints, and no storage map in the bank file.
    V4_4,
    /// Agave 4.5: tagged storages list, smaller obsolete records, no `accounts/snapshot`.
    V4_5,
}

/// Unit of offsets in 4.5's obsolete records.
const OFFSET_UNIT_BYTES: u64 = 8;
/// Tag of an append vec in 4.5's storages list.
const STORAGE_APPEND_VEC: u32 = 0;
/// Tag of the number of accounts in the startup hints.
const HINT_ACCOUNTS: u32 = 0;

impl AgaveVersion {
    pub fn fastboot_version(self) -> &'static str {
        match self {
            Self::V4_2 => "3.0.0",
            Self::V4_4 => "3.1.0",
            Self::V4_5 => "5.0.0",
        }
    }

    pub fn write_obsolete_record<W: Write>(self, out: &mut FieldWriter<W>, record: &ObsoleteRecord) -> Result<()> {
        match self {
            // A storage has fewer than 2^32 of these units.
            Self::V4_5 => out.u32((record.offset / OFFSET_UNIT_BYTES) as u32)?,
            _ => out.u64s(&[record.offset])?,
        }
        out.u64s(&[record.data_len, record.slot])
    }

    pub fn write_storages_list(
        self,
        to: &mut impl Write,
        storages: impl ExactSizeIterator<Item = (u64, u32)>,
    ) -> Result<()> {
        if self != Self::V4_5 {
            return slotpress_format::write_storages_list(to, storages);
        }
        let mut out = FieldWriter(to);
        out.u64s(&[storages.len() as u64])?;
        for (slot, id) in storages {
            out.u32(STORAGE_APPEND_VEC)?;
            out.u32(id)?;
            out.u64s(&[slot])?;
        }
        Ok(())
    }
}

pub fn write_startup_hints(to: &mut impl Write, accounts: u64) -> Result<()> {
    let mut out = FieldWriter(to);
    out.u64s(&[1])?;
    out.u32(HINT_ACCOUNTS)?;
    out.u64s(&[accounts])
}
