//! Reads the records of an archive without slotpress: with the `tar` crate, by
//! docs/snapshot-format.md.

use std::collections::BTreeMap;
use std::path::Path;

use super::entries;

/// A record, read without slotpress.
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
    let mut found = Vec::new();
    for entry in entries(archive) {
        let Some((slot, id)) = entry.path.strip_prefix("accounts/").and_then(|name| name.split_once('.')) else {
            continue;
        };
        let (slot, id) = (slot.parse().expect("a slot"), id.parse().expect("an id"));
        let bytes = &entry.content;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        let key = |at: usize| bs58::encode(&bytes[at..at + 32]).into_string();
        let mut at = 0;
        while at + 136 <= bytes.len() {
            let length = number(at + 8) as usize;
            found.push(PlainRecord {
                slot,
                id,
                offset: at,
                pubkey: key(at + 16),
                owner: key(at + 64),
                lamports: number(at + 48),
                rent_epoch: number(at + 56),
                executable: bytes[at + 96] == 1,
                data: bytes[at + 136..at + 136 + length].to_vec(),
            });
            at = (at + 136 + length).next_multiple_of(8);
        }
    }
    assert!(!found.is_empty());
    found
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
    let (mut bits, mut count) = (0u32, 0);
    for digit in text.chars().filter(|digit| *digit != '=') {
        bits = (bits << 6 | digits.find(digit).expect("a digit") as u32) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
