//! Reads the records of an archive without slotpress: with the `tar` crate, as docs/snapshot-format.md describes
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use super::entries;

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
        (136 + self.data.len() as u64).next_multiple_of(8)
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
        let bytes = &entry.content;
        let number = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("8"));
        let key = |offset: usize| bs58::encode(&bytes[offset..offset + 32]).into_string();
        let mut offset = 0;
        while offset + 136 <= bytes.len() {
            let data_len = number(offset + 8) as usize;
            records.push(PlainRecord {
                slot,
                id,
                offset,
                pubkey: key(offset + 16),
                owner: key(offset + 64),
                lamports: number(offset + 48),
                rent_epoch: number(offset + 56),
                executable: bytes[offset + 96] == 1,
                data: bytes[offset + 136..offset + 136 + data_len].to_vec(),
            });
            offset = (offset + 136 + data_len).next_multiple_of(8);
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
