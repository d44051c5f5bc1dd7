//! Reads the records of an archive without slotpress: with the `tar` crate, as docs/snapshot-format.md describes
//! them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::entries;

/// Length of a record's header. The account's data follows it.
pub const RECORD_HEADER_BYTES: usize = 136;

/// Places of fields in the header of a record.
pub mod field {
    use std::ops::Range;

    pub const DATA_LEN: Range<usize> = 8..16;
    pub const PUBKEY: Range<usize> = 16..48;
    pub const LAMPORTS: Range<usize> = 48..56;
    pub const RENT_EPOCH: Range<usize> = 56..64;
    pub const OWNER: Range<usize> = 64..96;
    pub const EXECUTABLE: usize = 96;
    /// The fields from the length of the data on, without the write version, the padding and the stored hash.
    pub const COMPARED: Range<usize> = DATA_LEN.start..EXECUTABLE + 1;
    pub const PADDING: Range<usize> = 97..104;
    pub const STORED_HASH: Range<usize> = 104..136;
}

/// Places of fields in the data of a delegated stake account.
pub mod stake_field {
    use std::ops::Range;

    pub const KIND: Range<usize> = 0..4;
    pub const ACTIVATION_EPOCH: Range<usize> = 164..172;
    pub const DEACTIVATION_EPOCH: Range<usize> = 172..180;
    pub const CREDITS_OBSERVED: Range<usize> = 188..196;
}

pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"))
}

/// Returns the range of each record of a storage, without padding.
pub fn record_ranges(storage: &[u8]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    while start + RECORD_HEADER_BYTES <= storage.len() {
        let end = start + RECORD_HEADER_BYTES + u64_at(storage, start + field::DATA_LEN.start) as usize;
        ranges.push(start..end);
        start = end.next_multiple_of(8);
    }
    ranges
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRecord {
    pub slot: u64,
    pub id: u64,
    pub offset: usize,
    pub pubkey: String,
    pub owner: String,
    pub lamports: u64,
    pub rent_epoch: u64,
    pub executable: bool,
    pub data: Vec<u8>,
}

impl PlainRecord {
    pub fn stored_bytes(&self) -> u64 {
        (RECORD_HEADER_BYTES as u64 + self.data.len() as u64).next_multiple_of(8)
    }
}

/// Returns every record of an archive.
pub fn records(archive: &Path) -> Vec<PlainRecord> {
    let mut records = Vec::new();
    for entry in entries(archive) {
        let Some((slot, id)) = entry.path.strip_prefix("accounts/").and_then(|name| name.split_once('.')) else {
            continue;
        };
        let (slot, id) = (slot.parse().expect("a slot"), id.parse().expect("an id"));
        for range in record_ranges(&entry.content) {
            let offset = range.start;
            let (header, data) = entry.content[range].split_at(RECORD_HEADER_BYTES);
            records.push(PlainRecord {
                slot,
                id,
                offset,
                pubkey: bs58::encode(&header[field::PUBKEY]).into_string(),
                owner: bs58::encode(&header[field::OWNER]).into_string(),
                lamports: u64_at(header, field::LAMPORTS.start),
                rent_epoch: u64_at(header, field::RENT_EPOCH.start),
                executable: header[field::EXECUTABLE] == 1,
                data: data.to_vec(),
            });
        }
    }
    assert!(!records.is_empty());
    records
}

/// Returns the newest record of every account.
pub fn newest(records: &[PlainRecord]) -> BTreeMap<String, PlainRecord> {
    let mut newest: BTreeMap<String, PlainRecord> = BTreeMap::new();
    for record in records {
        if newest.get(&record.pubkey).is_none_or(|known| known.slot < record.slot) {
            newest.insert(record.pubkey.clone(), record.clone());
        }
    }
    newest
}

/// Decodes base64.
pub fn decode_base64(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut bit_count) = (0u32, 0);
    for digit in text.chars().filter(|digit| *digit != '=') {
        bits = (bits << 6 | digits.find(digit).expect("a digit") as u32) & 0xffff;
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count) as u8);
        }
    }
    bytes
}
