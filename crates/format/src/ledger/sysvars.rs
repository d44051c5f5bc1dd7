//! Parses and checks sysvars, accounts of features, and accounts of Alpenglow.

use slotpress_base::Result;

use crate::FieldReader;
use crate::ledger::activation::{ClusterStake, StakeHistory};

/// Maximum number of epochs in the stake history (`MAX_ENTRIES` in the `solana-stake-history`
/// crate).
const STAKE_HISTORY_EPOCHS_MAX: u64 = 512;

/// Slots in the slot history (`MAX_ENTRIES` in the `solana-slot-history` crate).
const SLOT_HISTORY_SLOTS: u64 = 1024 * 1024;

/// Parses the sysvar `StakeHistory`. Bytes after its entries are spare room.
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

/// The sysvar `EpochRewards`, which tells how the last epoch's rewards are paid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRewards {
    /// Number of blocks in which the rewards are paid out.
    pub partitions: u64,
    /// Sum of stake times credits over all stake accounts.
    pub points: u128,
    pub lamports: u64,
    pub distributed_lamports: u64,
    pub is_active: bool,
}

impl EpochRewards {
    pub fn parse(data: &[u8]) -> Result<Self> {
        let mut r = FieldReader::new(data, data.len() as u64, "the sysvar EpochRewards");
        r.skip(8)?; // height of the first block
        let partitions = r.u64()?;
        r.skip(32)?; // blockhash
        let points = u128::from_le_bytes(r.array()?);
        let (lamports, distributed_lamports) = (r.u64()?, r.u64()?);
        let is_active = r.flag("whether rewards are paid out")?;
        Ok(Self { partitions, points, lamports, distributed_lamports, is_active })
    }
}

/// Checks the sysvar `Rent`. Its price of a byte must not be so high that Agave overflows when it
/// computes the minimum balances of sysvars in its first block after loading. The limits are those
/// of the `solana-rent` crate.
pub fn check_rent(data: &[u8]) -> Result<()> {
    let mut r = FieldReader::new(data, data.len() as u64, "the sysvar Rent");
    let lamports_per_byte = r.u64()?;
    let years = f64::from_bits(r.u64()?);
    r.skip(1)?; // percentage to burn
    let limits = [(1.0f64, 1_759_197_129_867), (2.0, 879_598_564_933)];
    match limits.iter().find(|(for_years, _)| for_years.to_bits() == years.to_bits()) {
        Some((_, max)) if lamports_per_byte > *max => {
            Err(r.damaged(format!("{lamports_per_byte} lamports for a byte, more than {max}")))
        }
        _ => Ok(()),
    }
}

/// Limit on the length of a list in bytes. Agave's decoder refuses a longer list.
const LIST_BYTES_MAX: u64 = 4 * 1024 * 1024;

fn list_count<R: std::io::BufRead>(r: &mut FieldReader<R>, name: &str, item_bytes: u64) -> Result<u64> {
    let count = r.count(name, item_bytes)?;
    match count.saturating_mul(item_bytes) > LIST_BYTES_MAX {
        true => Err(r.damaged(format!("{count} items, more than Agave reads"))),
        false => Ok(count),
    }
}

/// Checks the sysvar `SlotHashes`. `data` is the beginning of its `data_bytes` bytes.
pub fn check_slot_hashes(data: &[u8], data_bytes: u64) -> Result<()> {
    let mut r = FieldReader::new(data, data_bytes, "the sysvar SlotHashes");
    list_count(&mut r, "the slots", 8 + 32).map(drop)
}

/// Parses the slot of the change to Alpenglow from its certificate. `data` is the beginning of the
/// account's `data_bytes` bytes.
pub fn parse_certificate(data: &[u8], data_bytes: u64) -> Result<u64> {
    let mut r = FieldReader::new(data, data_bytes, "the certificate of the change to Alpenglow");
    let slot = r.u64()?;
    r.skip(32 + 192)?; // block, signature
    list_count(&mut r, "the signers", 1)?;
    Ok(slot)
}

/// Limit on the number of vote accounts by whose stakes Alpenglow pays rewards.
const REWARD_STAKES_MAX: u64 = 2000;

/// Parses the account with the stakes by which Alpenglow pays rewards. Returns the epoch of these
/// stakes. `data` is the beginning of the account's `data_bytes` bytes.
pub fn parse_reward_stakes(data: &[u8], data_bytes: u64) -> Result<u64> {
    let mut r = FieldReader::new(data, data_bytes, "the stakes of Alpenglow's rewards");
    let epoch = r.u64()?;
    let count = list_count(&mut r, "the vote accounts", 32 + 8)?;
    match count > REWARD_STAKES_MAX {
        true => Err(r.damaged(format!("{count} vote accounts, more than {REWARD_STAKES_MAX}"))),
        false => Ok(epoch),
    }
}

/// Parses the time of the slot from the sysvar `Clock`, in seconds since 1970.
pub fn parse_block_time(data: &[u8]) -> Result<i64> {
    let mut r = FieldReader::new(data, data.len() as u64, "the sysvar Clock");
    r.skip(8 + 8 + 8 + 8)?; // slot, start of the epoch, epochs
    Ok(i64::from_le_bytes(r.array()?))
}

/// Parses the account of a feature. Returns the slot in which the feature was activated, or `None`
/// while it is pending.
pub fn parse_feature(data: &[u8]) -> Result<Option<u64>> {
    let mut r = FieldReader::new(data, data.len() as u64, "the account of a feature");
    Ok(if r.flag("the slot of its activation")? { Some(r.u64()?) } else { None })
}

/// Parses the sysvar `SlotHistory`. Returns the newest `max` slots that have a block, newest first.
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
        let active = [0, 1].map(|it| EpochRewards::parse(&rewards(it)).expect("read"));
        assert_eq!(active.map(|it| it.is_active), [false, true]);
        let nines = u64::from_le_bytes([9; 8]);
        assert_eq!((active[0].partitions, active[0].lamports, active[0].points >> 64), (nines, nines, nines.into()));
        assert!(EpochRewards::parse(&rewards(2)).is_err() && EpochRewards::parse(&[0; 80]).is_err());
        assert_eq!(parse_feature(&[0; 9]).expect("read"), None);
        assert_eq!(parse_feature(&[&[1][..], &5u64.to_le_bytes()].concat()).expect("read"), Some(5));
        assert!(parse_feature(&[1, 2]).is_err());
    }

    /// Prices up to the largest that `solana-rent` computes with, for one and for two years. Other
    /// numbers of years have no limit.
    #[test]
    fn rent() {
        let rent = |lamports: u64, years: f64| [&lamports.to_le_bytes()[..], &years.to_le_bytes(), &[50]].concat();
        let is_good = |lamports, years| check_rent(&rent(lamports, years)).is_ok();
        assert!(is_good(3480, 2.0) && is_good(879_598_564_933, 2.0) && !is_good(879_598_564_934, 2.0));
        assert!(is_good(1_759_197_129_867, 1.0) && !is_good(1_759_197_129_868, 1.0) && is_good(u64::MAX, 3.0));
        assert!(check_rent(&rent(0, 0.0)[..16]).is_err() && check_rent(&[]).is_err());
    }

    #[test]
    fn lists_that_agave_reads() {
        let hashes = |count: u64, bytes: usize| {
            check_slot_hashes(&[&count.to_le_bytes()[..], &vec![0; bytes]].concat(), 8 + bytes as u64)
        };
        assert!(hashes(0, 0).is_ok() && hashes(2, 80).is_ok() && hashes(2, 90).is_ok());
        assert!(hashes(3, 80).is_err() && check_slot_hashes(&[], 0).is_err());
        // The beginning of long data is enough.
        assert!(check_slot_hashes(&104_857u64.to_le_bytes(), 1 << 23).is_ok());
        assert!(check_slot_hashes(&104_858u64.to_le_bytes(), 1 << 23).is_err(), "more than 4 MiB");
        let certificate = |signers: u64| [&7u64.to_le_bytes()[..], &[0; 224], &signers.to_le_bytes(), &[1; 3]].concat();
        let slot = |data: &[u8]| parse_certificate(data, data.len() as u64).ok();
        assert_eq!([3, 4].map(|signers| slot(&certificate(signers))), [Some(7), None]);
        assert_eq!(slot(&[1, 2]), None);
        let stakes = |count: u64| [&6u64.to_le_bytes()[..], &count.to_le_bytes()].concat();
        let epoch = |count: u64| parse_reward_stakes(&stakes(count), 1 << 20).ok();
        assert_eq!([0, 2000, 2001].map(epoch), [Some(6), Some(6), None]);
        assert!(parse_reward_stakes(&stakes(2), 17).is_err());
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
