//! Parses the data of sysvars and of feature accounts.

use slotpress_base::Result;

use crate::FieldReader;
use crate::ledger::activation::{StakeActivation, StakeHistory};

/// Maximum number of epochs in the stake history (`MAX_ENTRIES` in the `solana-stake-history`
/// crate).
const STAKE_HISTORY_EPOCHS_MAX: u64 = 512;

/// Slots in the slot history (`MAX_ENTRIES` in the `solana-slot-history` crate).
const SLOT_HISTORY_SLOTS: u64 = 1024 * 1024;

/// Parses the sysvar `StakeHistory`. Bytes after its entries are reserved for more.
pub fn parse_stake_history(data: &[u8]) -> Result<StakeHistory> {
    let mut reader = FieldReader::new(data, data.len() as u64, "the sysvar StakeHistory");
    let count = reader.count("the stake history", 4 * 8)?;
    if count > STAKE_HISTORY_EPOCHS_MAX {
        return Err(reader.damage_error(format!("{count} epochs, more than the stake history can hold")));
    }
    let mut history = StakeHistory::new();
    for _ in 0..count {
        let epoch = reader.u64()?;
        history.insert(
            epoch,
            StakeActivation { effective: reader.u64()?, activating: reader.u64()?, deactivating: reader.u64()? },
        );
    }
    Ok(history)
}

/// Parses the time of the slot from the sysvar `Clock`, in seconds since 1970.
pub fn parse_block_time(data: &[u8]) -> Result<i64> {
    let mut reader = FieldReader::new(data, data.len() as u64, "the sysvar Clock");
    reader.skip(8 + 8 + 8 + 8)?; // slot, start of the epoch, epochs
    Ok(i64::from_le_bytes(reader.array()?))
}

/// Parses the account of a feature. Returns the slot in which the feature was activated, or `None`
/// while it is pending.
pub fn parse_feature(data: &[u8]) -> Result<Option<u64>> {
    let mut reader = FieldReader::new(data, data.len() as u64, "the account of a feature");
    Ok(if reader.flag("the slot of its activation")? { Some(reader.u64()?) } else { None })
}

/// Parses the sysvar `SlotHistory`. Returns the newest `max` slots that have a block, newest first.
pub fn parse_newest_slots(data: &[u8], max: usize) -> Result<Vec<u64>> {
    let mut reader = FieldReader::new(data, data.len() as u64, "the sysvar SlotHistory");
    let has_bits = reader.flag("the slots")?;
    let word_count = if has_bits { reader.count("the slots", 8)? } else { 0 };
    if word_count != SLOT_HISTORY_SLOTS / 64 {
        return Err(reader.damage_error(format!("{word_count} words of slots, not {}", SLOT_HISTORY_SLOTS / 64)));
    }
    let words = (0..word_count).map(|_| reader.u64()).collect::<Result<Vec<u64>>>()?;
    let bits = reader.u64()?;
    if bits != SLOT_HISTORY_SLOTS {
        return Err(reader.damage_error(format!("{bits} slots, not {SLOT_HISTORY_SLOTS}")));
    }
    let next_slot = reader.u64()?;
    let has_block = |slot: &u64| {
        let bit = slot % SLOT_HISTORY_SLOTS;
        words.get(usize::try_from(bit / 64).unwrap_or(usize::MAX)).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    };
    let oldest = next_slot.saturating_sub(SLOT_HISTORY_SLOTS);
    Ok((oldest..next_slot).rev().filter(has_block).take(max).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stake_history_is_parsed() {
        let mut data: Vec<u8> =
            [2u64, 7, 100, 20, 3, 6, 90, 30, 4].iter().flat_map(|number| number.to_le_bytes()).collect();
        data.resize(16_392, 0);
        let history = parse_stake_history(&data).expect("a history");
        assert_eq!(history.get(&7), Some(&StakeActivation { effective: 100, activating: 20, deactivating: 3 }));
        assert_eq!(history.len(), 2);
        assert!(parse_stake_history(&data[..60]).is_err());
        assert!(parse_stake_history(&[]).is_err());
        assert!(parse_stake_history(&600u64.to_le_bytes().repeat(3000)).is_err());
    }

    #[test]
    fn features_are_parsed() {
        assert_eq!(parse_feature(&[0; 9]).expect("read"), None);
        assert_eq!(parse_feature(&[&[1][..], &5u64.to_le_bytes()].concat()).expect("read"), Some(5));
        assert!(parse_feature(&[1, 2]).is_err());
    }

    #[test]
    fn the_newest_slots_with_a_block_are_found() {
        let sysvar = |slots: &[u64], next: u64| {
            let mut words = vec![0u64; 16_384];
            slots.iter().for_each(|slot| words[(slot / 64 % 16_384) as usize] |= 1 << (slot % 64));
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let numbers = [1_048_576, next].map(u64::to_le_bytes).concat();
            [&[1][..], &16_384u64.to_le_bytes(), &words, &numbers].concat()
        };
        let data = sysvar(&[3, 64, 70], 71);
        assert_eq!(data.len(), 131_097);
        assert_eq!(parse_newest_slots(&data, 300).expect("read"), [70, 64, 3]);
        assert_eq!(parse_newest_slots(&data, 2).expect("read"), [70, 64]);
        let late = 5 * 1_048_576 + 2;
        assert_eq!(parse_newest_slots(&sysvar(&[late - 1, late - 1_048_576], late), 9).expect("read")[0], late - 1);
        assert!(parse_newest_slots(&data[..131_096], 9).is_err());
        assert!(parse_newest_slots(&[0; 20], 9).is_err());
    }
}
