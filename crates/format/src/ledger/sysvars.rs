//! Parses sysvar accounts, as far as a bank file follows from them.

use slotpress_base::Result;

use crate::FieldReader;
use crate::ledger::activation::{ClusterStake, StakeHistory};

/// Most epochs in the stake history (`MAX_ENTRIES` in the `solana-stake-history` crate).
const STAKE_HISTORY_EPOCHS_MAX: u64 = 512;

/// Slots in the slot history (`MAX_ENTRIES` in the `solana-slot-history` crate).
const SLOT_HISTORY_SLOTS: u64 = 1024 * 1024;

/// Parses the sysvar `StakeHistory`; bytes after its entries are spare room.
pub fn parse_stake_history(data: &[u8]) -> Result<StakeHistory> {
    let mut r = FieldReader::new(data, data.len() as u64, "the sysvar StakeHistory");
    let count = r.count("the stake history", 4 * 8)?;
    if count > STAKE_HISTORY_EPOCHS_MAX {
        return Err(r.damaged(format!("{count} epochs, more than the stake history holds")));
    }
    let mut history = StakeHistory::new();
    for _ in 0..count {
        let epoch = r.u64()?;
        history.insert(epoch, ClusterStake { effective: r.u64()?, activating: r.u64()?, deactivating: r.u64()? });
    }
    Ok(history)
}

/// Parses from the sysvar `EpochRewards` whether rewards of the last epoch are being paid out.
pub fn parse_rewards_active(data: &[u8]) -> Result<bool> {
    let mut r = FieldReader::new(data, data.len() as u64, "the sysvar EpochRewards");
    r.skip(8 + 8 + 32 + 16 + 8 + 8)?; // start, partitions, blockhash, points, rewards, of those paid out
    r.flag("whether rewards are paid out")
}

/// Parses from the sysvar `Clock` the seconds since the start of the epoch; `None` if the clock was never set.
pub fn parse_clock(data: &[u8]) -> Result<Option<u64>> {
    let mut r = FieldReader::new(data, data.len() as u64, "the sysvar Clock");
    r.skip(8)?; // slot
    let epoch_start = i64::from_le_bytes(r.array()?);
    r.skip(8 + 8)?; // epochs
    let now = i64::from_le_bytes(r.array()?);
    Ok(u64::try_from(now.saturating_sub(epoch_start)).ok().filter(|seconds| *seconds > 0))
}

/// Parses the slot in which a feature was activated from its account; `None` while it is pending.
pub fn parse_feature(data: &[u8]) -> Result<Option<u64>> {
    let mut r = FieldReader::new(data, data.len() as u64, "the account of a feature");
    Ok(if r.flag("the slot of its activation")? { Some(r.u64()?) } else { None })
}

/// Parses the newest `max` slots with a block from the sysvar `SlotHistory`, newest first.
pub fn parse_newest_slots(data: &[u8], max: usize) -> Result<Vec<u64>> {
    let mut r = FieldReader::new(data, data.len() as u64, "the sysvar SlotHistory");
    let has_bits = r.flag("the slots")?;
    let words = if has_bits { r.count("the slots", 8)? } else { 0 };
    if words != SLOT_HISTORY_SLOTS / 64 {
        return Err(r.damaged(format!("{words} words of slots, not {}", SLOT_HISTORY_SLOTS / 64)));
    }
    let words = (0..words).map(|_| r.u64()).collect::<Result<Vec<u64>>>()?;
    let bits = r.u64()?;
    if bits != SLOT_HISTORY_SLOTS {
        return Err(r.damaged(format!("{bits} slots, not {SLOT_HISTORY_SLOTS}")));
    }
    let next_slot = r.u64()?;
    let is_there = |slot: &u64| {
        let bit = slot % SLOT_HISTORY_SLOTS;
        words.get(usize::try_from(bit / 64).unwrap_or(usize::MAX)).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    };
    let oldest = next_slot.saturating_sub(SLOT_HISTORY_SLOTS);
    Ok((oldest..next_slot).rev().filter(is_there).take(max).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stake_history() {
        let mut data: Vec<u8> = [2u64, 7, 100, 20, 3, 6, 90, 30, 4].iter().flat_map(|it| it.to_le_bytes()).collect();
        data.resize(16_392, 0);
        let history = parse_stake_history(&data).expect("a history");
        assert_eq!(history.get(&7), Some(&ClusterStake { effective: 100, activating: 20, deactivating: 3 }));
        assert_eq!(history.len(), 2);
        assert!(parse_stake_history(&data[..60]).is_err() && parse_stake_history(&[]).is_err());
        assert!(parse_stake_history(&600u64.to_le_bytes().repeat(3000)).is_err());
    }

    #[test]
    fn rewards_and_features() {
        let rewards = |active: u8| [&[9; 80][..], &[active]].concat();
        assert_eq!([0, 1].map(|it| parse_rewards_active(&rewards(it)).expect("read")), [false, true]);
        assert!(parse_rewards_active(&rewards(2)).is_err() && parse_rewards_active(&[0; 80]).is_err());
        assert_eq!(parse_feature(&[0; 9]).expect("read"), None);
        assert_eq!(parse_feature(&[&[1][..], &5u64.to_le_bytes()].concat()).expect("read"), Some(5));
        assert!(parse_feature(&[1, 2]).is_err());
    }

    #[test]
    fn slots_with_a_block() {
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
        assert!(parse_newest_slots(&data[..131_096], 9).is_err() && parse_newest_slots(&[0; 20], 9).is_err());
    }
}
