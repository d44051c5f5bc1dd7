//! The status cache, `snapshots/status_cache`: recent transactions' results, read as a stream to its last byte (format
//! page, section "The bank file").

use {
    crate::{error::Result, ledger::fields::FieldReader},
    std::{collections::HashSet, io::BufRead},
};

/// The most slots that a validator keeps results of.
pub const STATUS_CACHE_SLOTS_MAX: u64 = 300;

/// What a status cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCache {
    /// The slots, in the order of the file.
    pub slots: Vec<u64>,
    /// Transactions, over all slots.
    pub transaction_count: u64,
}

/// The kinds of transaction errors that carry something: an instruction's number and error, or one byte.
const INSTRUCTION_ERROR: u32 = 8;
const WITH_A_BYTE: [u32; 3] = [30, 31, 35];
const TRANSACTION_ERROR_MAX: u32 = 38;

/// The same for instruction errors: a number of the program's own, or a text.
const CUSTOM: u32 = 25;
const WITH_A_TEXT: u32 = 44;
const INSTRUCTION_ERROR_MAX: u32 = 53;

/// Reads a status cache to its end, and checks what Agave checks: all slots roots, each once, none above `bank_slot`.
pub fn parse_status_cache<R: BufRead>(mut r: FieldReader<R>, bank_slot: u64) -> Result<StatusCache> {
    let mut cache = StatusCache::default();
    let mut seen = HashSet::new();
    let count = r.count("the slots", 8 + 1 + 8)?;
    if count > STATUS_CACHE_SLOTS_MAX {
        return Err(r.damaged(format!("{count} slots, more than the {STATUS_CACHE_SLOTS_MAX} that a validator keeps")));
    }
    for _ in 0..count {
        let slot = r.u64()?;
        if !r.flag("the mark of a root")? {
            return Err(r.damaged(format!("slot {slot} is not a root")));
        }
        if slot > bank_slot {
            return Err(r.damaged(format!("slot {slot} is above the bank's slot {bank_slot}")));
        }
        if !seen.insert(slot) {
            return Err(r.damaged(format!("slot {slot} is there twice")));
        }
        cache.slots.push(slot);
        for _ in 0..r.count("the blockhashes of a slot", 32 + 8 + 8)? {
            r.skip(32 + 8)?;
            for _ in 0..r.count("the transactions of a blockhash", 20 + 4)? {
                r.skip(20)?;
                skip_result(&mut r)?;
                cache.transaction_count += 1;
            }
        }
    }
    r.end()?;
    Ok(cache)
}

fn skip_result<R: BufRead>(r: &mut FieldReader<R>) -> Result<()> {
    match r.u32()? {
        0 => return Ok(()),
        1 => {}
        other => return Err(r.damaged(format!("a transaction's result of the unknown kind {other}"))),
    }
    match r.u32()? {
        INSTRUCTION_ERROR => {
            r.skip(1)?;
            match r.u32()? {
                CUSTOM => r.skip(4),
                WITH_A_TEXT => r.skip_items("an error's text", 1).map(|_| ()),
                other if other <= INSTRUCTION_ERROR_MAX => Ok(()),
                other => Err(r.damaged(format!("an instruction error of the unknown kind {other}"))),
            }
        }
        error if WITH_A_BYTE.contains(&error) => r.skip(1),
        error if error <= TRANSACTION_ERROR_MAX => Ok(()),
        other => Err(r.damaged(format!("a transaction error of the unknown kind {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    fn parse(bytes: &[u8]) -> Result<StatusCache> {
        parse_status_cache(FieldReader::new(bytes, bytes.len() as u64, "the status cache"), 100)
    }

    fn cache(slots: &[(u64, u8)], errors: &[&[u8]]) -> Vec<u8> {
        let mut bytes = (slots.len() as u64).to_le_bytes().to_vec();
        for (slot, is_root) in slots {
            bytes.extend_from_slice(&slot.to_le_bytes());
            bytes.push(*is_root);
            bytes.extend_from_slice(&1u64.to_le_bytes());
            bytes.extend_from_slice(&[7; 40]);
            bytes.extend_from_slice(&(errors.len() as u64).to_le_bytes());
            for error in errors {
                bytes.extend_from_slice(&[3; 20]);
                bytes.extend_from_slice(error);
            }
        }
        bytes
    }

    #[test]
    fn every_kind_of_result() {
        let errors: [&[u8]; 6] = [
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 4, 0, 0, 0],
            &[1, 0, 0, 0, 31, 0, 0, 0, 9],
            &[1, 0, 0, 0, 8, 0, 0, 0, 2, 3, 0, 0, 0],
            &[1, 0, 0, 0, 8, 0, 0, 0, 2, 25, 0, 0, 0, 1, 2, 3, 4],
            &[1, 0, 0, 0, 8, 0, 0, 0, 2, 44, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'n', b'o'],
        ];
        let found = parse(&cache(&[(5, 1), (6, 1)], &errors)).expect("good");
        assert_eq!((found.slots, found.transaction_count), (vec![5, 6], 12));
        for (slots, why) in [
            (vec![(5, 0)], "not a root"),
            (vec![(101, 1)], "above"),
            (vec![(5, 1), (5, 1)], "twice"),
            (vec![(5, 2)], "0 or 1"),
        ] {
            let error = parse(&cache(&slots, &[])).expect_err("refused").to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(parse(&cache(&[(5, 1)], &[&[1, 0, 0, 0, 39, 0, 0, 0]])).is_err(), "an unknown error");
        assert!(parse(&[cache(&[(5, 1)], &[]), vec![0]].concat()).is_err(), "a byte left over");
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
