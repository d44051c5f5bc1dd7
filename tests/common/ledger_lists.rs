//! Reads the lists of obsolete records that a validator leaves when it stops, without slotpress: as
//! docs/snapshot-format.md describes them.

use std::ops::Range;

use super::records::u64_at;

/// Length of the number of storages, with which both `storages_list` and `obsolete_accounts` begin.
pub const COUNT_BYTES: usize = 8;

/// Length of an item in `obsolete_accounts` of Agave before 4.5: u64 offset, u64 data length, u64 slot.
pub const WIDE_ITEM_BYTES: usize = 24;

/// Length of an item in `obsolete_accounts` since Agave 4.5: u32 offset in units, u64 data length, u64 slot.
pub const COMPACT_ITEM_BYTES: usize = 20;

/// Places of fields before the items of a storage in `obsolete_accounts`.
pub mod list_field {
    use std::ops::Range;

    pub const SLOT: Range<usize> = 0..8;
    pub const ID: Range<usize> = 8..16;
    pub const ITEM_COUNT: Range<usize> = 24..32;
    pub const END: usize = ITEM_COUNT.end;
}

/// Where `obsolete_accounts` lists the obsolete records of one storage.
pub struct ObsoleteList {
    pub slot: u64,
    pub id: u64,
    /// The list, which begins with slot and id.
    pub range: Range<usize>,
    pub items: Vec<Range<usize>>,
}

pub fn obsolete_lists(bytes: &[u8], item_bytes: usize) -> Vec<ObsoleteList> {
    let mut lists = Vec::new();
    let mut start = COUNT_BYTES;
    while start < bytes.len() {
        let header = &bytes[start..start + list_field::END];
        let count = u64_at(header, list_field::ITEM_COUNT.start) as usize;
        let first = start + list_field::END;
        let item = |number: usize| first + number * item_bytes..first + (number + 1) * item_bytes;
        let list = ObsoleteList {
            slot: u64_at(header, list_field::SLOT.start),
            id: u64_at(header, list_field::ID.start),
            range: start..first + count * item_bytes,
            items: (0..count).map(item).collect(),
        };
        start = list.range.end;
        lists.push(list);
    }
    lists
}
