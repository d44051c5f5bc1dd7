//! Keeps records that are probably superseded, so that they need not be read again.
//!
//! If the newest storages are read first, a record of an account that was seen before is usually an older
//! version. The fingerprint of each account that is seen sets a bit in a table. Accounts may share a bit, so
//! some records are kept by mistake. A superseded record that was not kept, because memory was full or it
//! was read before the newer version, is read again. So the table affects only the amount of work, not the
//! result.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use slotpress_format::{RECORD_HEADER_BYTES, Record, RecordHeader};

use super::fingerprint::Fingerprint;
use super::marks::Mark;
use crate::RecordVersion;

/// Memory that the table may always take. 6.7 million accounts set a tenth of its 67 million bits.
const TABLE_LIMIT_BYTES_MIN: u64 = 8 << 20;

/// Bits of the table for each record, before rounding down to a power of two. If memory suffices,
/// accounts with one version set at most a fifth of the bits.
const TABLE_BITS_PER_RECORD: u64 = 10;

const TABLE_BYTES_MIN: u64 = 8 << 10;

/// Upper estimate of the memory for a kept record's key and map entry, in addition to its bytes.
const KEPT_ITEM_BYTES: u64 = 128;

pub struct KeptRecords {
    bits: Vec<AtomicU64>,
    kept_bytes_max: u64,
    kept: Mutex<RecordCopies>,
}

#[derive(Default)]
struct RecordCopies {
    bytes: u64,
    records: HashMap<Mark, Box<[u8]>>,
}

impl KeptRecords {
    /// Uses at most half of `memory_bytes`, or 8 MiB if that is more, for the table, and half for
    /// records. `records` is an estimate of the number of all records.
    pub fn new(memory_bytes: u64, records: u64) -> Self {
        let bits = (0..table_words(memory_bytes / 2, records)).map(|_| AtomicU64::new(0)).collect();
        Self { bits, kept_bytes_max: memory_bytes / 2, kept: Mutex::default() }
    }

    /// Marks the account of a record as seen, and keeps the record if the account was seen before.
    /// Never keeps a tombstone, since it adds nothing to the state.
    pub fn keep_if_seen(&self, storage: u32, fingerprint: &Fingerprint, record: &Record<'_>) {
        let Fingerprint([_, second, third]) = *fingerprint;
        let number = u64::from(second) << 32 | u64::from(third);
        let word = (number >> 6) as usize & (self.bits.len() - 1);
        let bit = 1 << (number & 63);
        let was_seen = self.bits[word].fetch_or(bit, Relaxed) & bit != 0;
        if !was_seen || record.header.lamports == 0 {
            return;
        }
        let record_bytes = RECORD_HEADER_BYTES + record.data.len();
        let mut kept = self.kept.lock();
        let bytes = kept.bytes + record_bytes as u64 + KEPT_ITEM_BYTES;
        if bytes <= self.kept_bytes_max {
            let copy = [&record.header.to_bytes()[..], record.data].concat();
            kept.bytes = bytes;
            kept.records.insert(Mark::new(storage, record.offset_bytes), copy.into_boxed_slice());
        }
    }

    /// Removes the kept records from `superseded`, and passes them to `on_record`.
    pub fn take_from(&self, superseded: &mut Vec<RecordVersion>, on_record: &mut dyn FnMut(&RecordHeader, &[u8])) {
        let kept = self.kept.lock();
        superseded.retain(|version| {
            match kept.records.get(&version.mark()).and_then(|bytes| bytes.split_first_chunk()) {
                Some((header, data)) => {
                    on_record(&RecordHeader::parse(header), data);
                    false
                }
                None => true,
            }
        });
    }
}

/// Returns the length of the table in words, a power of two. The table is not larger than needed, because
/// even a nearly empty table occupies all of its memory.
fn table_words(memory_bytes: u64, records: u64) -> u64 {
    let bytes_max = memory_bytes.max(TABLE_LIMIT_BYTES_MIN);
    let bytes = (records / 8).saturating_mul(TABLE_BITS_PER_RECORD).clamp(TABLE_BYTES_MIN, bytes_max);
    (bytes / 8 + 1).next_power_of_two() / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::fingerprint::Fingerprinter;

    proptest! {
        #[test]
        fn the_table_is_as_large_as_needed(memory_bytes in 0u64..1 << 40, records: u64) {
            let bytes = table_words(memory_bytes, records) * 8;
            let needed = (records / 8).saturating_mul(10);
            prop_assert!(bytes <= memory_bytes.max(8 << 20) && bytes <= needed.max(8 << 10));
            prop_assert!(bytes * 2 > needed.min(memory_bytes), "at least half of what is needed, since the length is a power of two");
        }
    }

    fn header(lamports: u64) -> RecordHeader {
        let mut bytes = [7; RECORD_HEADER_BYTES];
        bytes[48..56].copy_from_slice(&lamports.to_le_bytes());
        RecordHeader::parse(&bytes)
    }

    #[test]
    fn the_second_record_of_an_account_is_kept_if_it_fits() {
        let fingerprinter = Fingerprinter::new().expect("random bytes");
        let kept_records = KeptRecords::new(1 << 20, 4000);
        let data = vec![3; 1000];
        let mut kept = 0;
        for number in 0..2000u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_le_bytes());
            let fingerprint = fingerprinter.fingerprint(&key);
            let header = header(u64::from(number));
            let offset_bytes = 8 * u64::from(number);
            for storage in [9, 5] {
                kept_records.keep_if_seen(
                    storage,
                    &fingerprint,
                    &Record { offset_bytes, header: &header, data: &data },
                );
            }
            // The first record is kept only if another account set the same bit.
            let mut superseded = vec![RecordVersion::new(fingerprint, 5, false, offset_bytes)];
            kept_records.take_from(&mut superseded, &mut |found, found_data| {
                assert_eq!((found, found_data), (&header, data.as_slice()));
                assert!(number > 0, "a tombstone is never kept");
                kept += 1;
            });
            let is_kept = kept_records.kept.lock().records.contains_key(&Mark::new(5, offset_bytes));
            assert_eq!(superseded.is_empty(), is_kept);
        }
        assert!((300..600).contains(&kept), "as many as fit: {kept}");
        assert!(kept_records.kept.lock().bytes <= 1 << 19);
    }
}
