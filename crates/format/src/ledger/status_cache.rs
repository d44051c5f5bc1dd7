//! Parses the status cache, `snapshots/status_cache`, as a stream to its last byte
//! (docs/snapshot-format.md#status-cache). It holds the results of recent transactions.

use std::collections::HashSet;
use std::io::BufRead;

use slotpress_base::Result;

use crate::ledger::demands::firedancer;
use crate::{Breach, FieldReader};

/// Maximum number of slots in a status cache.
pub const STATUS_CACHE_SLOTS_MAX: u64 = 300;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCache {
    pub slots: Vec<u64>,
    pub transaction_count: u64,
    pub blockhash_count: u64,
    pub breaches: Vec<Breach>,
    /// Largest error numbers in the file. They show which version of Agave is needed.
    pub transaction_error_max: u32,
    pub instruction_error_max: u32,
}

impl StatusCache {
    /// True if the file contains an error that only Agave 4.4 and later versions know.
    pub fn needs_agave_4_4(&self) -> bool {
        self.transaction_error_max > TRANSACTION_ERROR_MAX_4_3 || self.instruction_error_max > INSTRUCTION_ERROR_MAX_4_3
    }
}

/// Transaction errors with a payload: instruction number and error, or one byte.
const INSTRUCTION_ERROR: u32 = 8;
const ERRORS_WITH_BYTE: [u32; 3] = [30, 31, 35];
/// Last transaction error of Agave 4.4 and 4.5 (`BailOut`), and of 4.3.
const TRANSACTION_ERROR_MAX: u32 = 39;
const TRANSACTION_ERROR_MAX_4_3: u32 = 38;

/// Instruction errors with a payload: a program's own code, or a string.
const CUSTOM_ERROR: u32 = 25;
const BORSH_IO_ERROR: u32 = 44;
/// Last instruction error of Agave 4.4 and 4.5 (`BailOut`), and of 4.3.
const INSTRUCTION_ERROR_MAX: u32 = 54;
const INSTRUCTION_ERROR_MAX_4_3: u32 = 53;

/// Parses a status cache to its end. Like Agave, checks that all slots are rooted, distinct, and at most
/// `bank_slot`.
pub fn parse_status_cache<R: BufRead>(mut reader: FieldReader<R>, bank_slot: u64) -> Result<StatusCache> {
    let mut cache = StatusCache::default();
    let mut distinct_slots = HashSet::new();
    let count = reader.count("the slots", 8 + 1 + 8)?;
    if count > STATUS_CACHE_SLOTS_MAX {
        return Err(reader
            .damage_error(format!("{count} slots, more than the {STATUS_CACHE_SLOTS_MAX} that a validator keeps")));
    }
    for _ in 0..count {
        let slot = reader.u64()?;
        if !reader.flag("a rooted slot")? {
            return Err(reader.damage_error(format!("slot {slot} is not a root")));
        }
        if slot > bank_slot {
            return Err(reader.damage_error(format!("slot {slot} is above the bank's slot {bank_slot}")));
        }
        if !distinct_slots.insert(slot) {
            return Err(reader.damage_error(format!("slot {slot} occurs twice")));
        }
        cache.slots.push(slot);
        read_results_of_slot(&mut reader, &mut cache)?;
    }
    reader.check_limit(firedancer::CACHED_BLOCKHASHES, cache.blockhash_count);
    reader.expect_end()?;
    cache.breaches = reader.breaches;
    Ok(cache)
}

fn read_results_of_slot<R: BufRead>(reader: &mut FieldReader<R>, cache: &mut StatusCache) -> Result<()> {
    let mut slot_transactions = 0u64;
    for _ in 0..reader.count("the blockhashes of a slot", 32 + 8 + 8)? {
        reader.skip(32)?; // the blockhash
        let offset = reader.u64()?;
        reader.check_limit(firedancer::TRANSACTION_OFFSET, offset);
        let transaction_count = reader.count("the transactions of a blockhash", 20 + 4)?;
        for _ in 0..transaction_count {
            reader.skip(20)?;
            skip_result(reader, cache)?;
        }
        slot_transactions = slot_transactions.saturating_add(transaction_count);
        cache.transaction_count = cache.transaction_count.saturating_add(transaction_count);
        cache.blockhash_count = cache.blockhash_count.saturating_add(1);
    }
    reader.check_limit(firedancer::SLOT_TRANSACTIONS, slot_transactions);
    Ok(())
}

fn skip_result<R: BufRead>(reader: &mut FieldReader<R>, cache: &mut StatusCache) -> Result<()> {
    match reader.u32()? {
        0 => return Ok(()),
        1 => {}
        other => return Err(reader.damage_error(format!("a transaction result of unknown kind {other}"))),
    }
    let error = reader.u32()?;
    cache.transaction_error_max = cache.transaction_error_max.max(error);
    if error == INSTRUCTION_ERROR {
        reader.skip(1)?;
        return skip_instruction_error(reader, cache);
    }
    if ERRORS_WITH_BYTE.contains(&error) {
        return reader.skip(1);
    }
    if error > TRANSACTION_ERROR_MAX {
        return Err(reader.damage_error(format!("a transaction error of unknown kind {error}")));
    }
    Ok(())
}

fn skip_instruction_error<R: BufRead>(reader: &mut FieldReader<R>, cache: &mut StatusCache) -> Result<()> {
    let error = reader.u32()?;
    cache.instruction_error_max = cache.instruction_error_max.max(error);
    match error {
        CUSTOM_ERROR => reader.skip(4),
        BORSH_IO_ERROR => reader.skip_items("an error's text", 1).map(drop),
        0..=INSTRUCTION_ERROR_MAX => Ok(()),
        _ => Err(reader.damage_error(format!("an instruction error of unknown kind {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<StatusCache> {
        parse_status_cache(FieldReader::new(bytes, bytes.len() as u64, "the status cache"), 100)
    }

    /// Makes a status cache. Each slot has a root flag, and the same results of transactions.
    fn status_cache(slots: &[(u64, u8)], results: &[&[u8]]) -> Vec<u8> {
        let mut bytes = (slots.len() as u64).to_le_bytes().to_vec();
        for (slot, root_flag) in slots {
            bytes.extend_from_slice(&slot.to_le_bytes());
            bytes.push(*root_flag);
            bytes.extend_from_slice(&1u64.to_le_bytes());
            bytes.extend_from_slice(&[7; 40]);
            bytes.extend_from_slice(&(results.len() as u64).to_le_bytes());
            for result in results {
                bytes.extend_from_slice(&[3; 20]);
                bytes.extend_from_slice(result);
            }
        }
        bytes
    }

    #[test]
    fn every_kind_of_result_is_parsed() {
        let results: [&[u8]; 6] = [
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 4, 0, 0, 0],
            &[1, 0, 0, 0, 31, 0, 0, 0, 9],
            &[1, 0, 0, 0, 8, 0, 0, 0, 2, 3, 0, 0, 0],
            &[1, 0, 0, 0, 8, 0, 0, 0, 2, 25, 0, 0, 0, 1, 2, 3, 4],
            &[1, 0, 0, 0, 8, 0, 0, 0, 2, 44, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'n', b'o'],
        ];
        let parsed = parse(&status_cache(&[(5, 1), (6, 1)], &results)).expect("good");
        assert_eq!((parsed.slots, parsed.transaction_count), (vec![5, 6], 12));
    }

    #[test]
    fn invalid_caches_are_refused() {
        for (slots, why) in [
            (vec![(5, 0)], "not a root"),
            (vec![(101, 1)], "above"),
            (vec![(5, 1), (5, 1)], "twice"),
            (vec![(5, 2)], "0 or 1"),
        ] {
            let error = parse(&status_cache(&slots, &[])).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(parse(&status_cache(&[(5, 1)], &[&[1, 0, 0, 0, 40, 0, 0, 0]])).is_err(), "an unknown error");
        let unknown = [1, 0, 0, 0, 8, 0, 0, 0, 2, 55, 0, 0, 0];
        assert!(parse(&status_cache(&[(5, 1)], &[&unknown])).is_err(), "an unknown instruction error");
        assert!(parse(&[status_cache(&[(5, 1)], &[]), vec![0]].concat()).is_err(), "a byte left over");
    }

    /// Agave 4.4 added `BailOut`, as a transaction and as an instruction error.
    #[test]
    fn errors_of_agave_4_4_are_found() {
        for (error, needs_4_4) in [
            (&[1, 0, 0, 0, 38, 0, 0, 0][..], false),
            (&[1, 0, 0, 0, 39, 0, 0, 0], true),
            (&[1, 0, 0, 0, 8, 0, 0, 0, 2, 53, 0, 0, 0], false),
            (&[1, 0, 0, 0, 8, 0, 0, 0, 2, 54, 0, 0, 0], true),
        ] {
            let parsed = parse(&status_cache(&[(5, 1)], &[&[0; 4], error])).expect("good");
            assert_eq!(parsed.needs_agave_4_4(), needs_4_4, "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
