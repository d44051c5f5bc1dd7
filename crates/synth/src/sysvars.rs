//! The sysvars: accounts with the state of the chain at the end of a block.
//!
//! Agave needs `Rent` and `SlotHistory`, and compares `SlotHistory` with the status cache. Firedancer needs
//! `SlotHistory` too. The layouts are those of the Solana crates with the same names.

use std::io::Result;

use slotpress_format::ledger::programs::address;
pub use slotpress_format::ledger::programs::{SLOT_HISTORY, SYSVAR as SYSVAR_OWNER};
use slotpress_format::{CLOCK, STAKE_HISTORY};

use super::accounts::OtherAccount;
use super::chain;
use super::fields::FieldWriter;
use super::stakes::SynthStakes;
use super::universe::Universe;

const EPOCH_SCHEDULE: [u8; 32] = address("SysvarEpochSchedu1e111111111111111111111111");
const RENT: [u8; 32] = address("SysvarRent111111111111111111111111111111111");
const SLOT_HASHES: [u8; 32] = address("SysvarS1otHashes111111111111111111111111111");
const RECENT_BLOCKHASHES: [u8; 32] = address("SysvarRecentB1ockHashes11111111111111111111");
const EPOCH_REWARDS: [u8; 32] = address("SysvarEpochRewards1111111111111111111111111");
const LAST_RESTART_SLOT: [u8; 32] = address("SysvarLastRestartS1ot1111111111111111111111");

/// Number of slots in the slot history.
pub const SLOT_HISTORY_SLOTS: u64 = 1024 * 1024;
const SLOT_HASHES_COUNT: u64 = 512;
const RECENT_BLOCKHASHES_COUNT: u64 = 150;
const STAKE_HISTORY_BYTES: usize = 8 + 512 * 32;

/// Number of delegations whose rewards Agave pays out in one block (`MAX_PARTITIONED_REWARDS_PER_BLOCK`).
const DELEGATIONS_PER_BLOCK: u64 = 4_096;

/// Lamports of stake for each lamport of rewards in an epoch.
const STAKE_PER_REWARD: u64 = 4_000;

/// Approximate size of all sysvars, with record headers.
pub const SYSVARS_BYTES: u64 = 180_000;

/// Makes the sysvars after the block at `height`, in alphabetical order of their names.
pub fn sysvars(universe: &Universe, height: u64, stakes: &SynthStakes) -> Result<Vec<OtherAccount>> {
    let slot = chain::slot_at(height);
    let epoch = chain::epoch_of(slot);
    let epoch_start = epoch * chain::SLOTS_PER_EPOCH;
    let sysvar = |pubkey, write: &dyn Fn(&mut FieldWriter<Vec<u8>>) -> Result<()>| -> Result<OtherAccount> {
        let mut out = FieldWriter(Vec::new());
        write(&mut out)?;
        let lamports = chain::rent_exempt_lamports(out.0.len() as u64);
        Ok(OtherAccount::new(pubkey, SYSVAR_OWNER, lamports, out.0))
    };
    Ok(vec![
        sysvar(CLOCK, &|out| {
            let start = chain::unix_time_of(epoch_start);
            let now = chain::unix_time_of(slot);
            out.u64s(&[slot, start, epoch, epoch + 1, now])
        })?,
        sysvar(EPOCH_REWARDS, &|out| {
            // Rewards were distributed when the epoch began.
            let first_height = chain::height_of(epoch_start);
            let partitions = stakes.counts.delegations / DELEGATIONS_PER_BLOCK + 1;
            out.u64s(&[first_height + 1, partitions])?;
            out.bytes(&chain::blockhash(universe, first_height - 1))?;
            let rewards: u64 = stakes.voters().iter().map(|voter| voter.stake / STAKE_PER_REWARD).sum();
            out.u64s(&[rewards, 4_000, rewards, rewards])?; // points (a u128), rewards, paid rewards
            out.bytes(&[0])
        })?,
        sysvar(EPOCH_SCHEDULE, &|out| chain::write_epoch_schedule(out))?,
        sysvar(LAST_RESTART_SLOT, &|out| {
            out.u64s(&[chain::HARD_FORKS.iter().map(|fork| fork.slot).max().unwrap_or(0)])
        })?,
        sysvar(RECENT_BLOCKHASHES, &|out| {
            out.u64s(&[RECENT_BLOCKHASHES_COUNT])?;
            (0..RECENT_BLOCKHASHES_COUNT).try_for_each(|back| {
                out.bytes(&chain::blockhash(universe, height - back))?;
                out.u64s(&[chain::LAMPORTS_PER_SIGNATURE])
            })
        })?,
        sysvar(RENT, &|out| chain::write_rent(out))?,
        sysvar(SLOT_HASHES, &|out| {
            out.u64s(&[SLOT_HASHES_COUNT])?;
            (1..=SLOT_HASHES_COUNT).try_for_each(|back| {
                out.u64s(&[chain::slot_at(height - back)])?;
                out.bytes(&chain::bank_hash(universe, height - back))
            })
        })?,
        sysvar(SLOT_HISTORY, &|out| write_slot_history(slot, out))?,
        sysvar(STAKE_HISTORY, &|out| {
            let history = stakes.history(epoch);
            out.u64s(&[history.len() as u64])?;
            history.iter().try_for_each(|entry| out.u64s(entry))?;
            out.0.resize(STAKE_HISTORY_BYTES, 0);
            Ok(())
        })?,
    ])
}

/// Writes the slot history at the newest slot: a tag, the number of 64-bit words, a bit for each slot, the
/// number of bits, and the next slot. `bits[slot % SLOT_HISTORY_SLOTS]` is 1 if a slot has a block.
fn write_slot_history(newest_slot: u64, out: &mut FieldWriter<Vec<u8>>) -> Result<()> {
    let mut blocks = vec![0u64; SLOT_HISTORY_SLOTS as usize / 64];
    for slot in newest_slot + 1 - SLOT_HISTORY_SLOTS..=newest_slot {
        if chain::has_block(slot) {
            let bit = slot % SLOT_HISTORY_SLOTS;
            blocks[bit as usize / 64] |= 1 << (bit % 64);
        }
    }
    out.bytes(&[1])?;
    out.u64s(&[blocks.len() as u64])?;
    out.u64s(&blocks)?;
    out.u64s(&[SLOT_HISTORY_SLOTS, newest_slot + 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stakes::StakeCounts;

    const EPOCH: u64 = chain::epoch_of(chain::FIRST_SLOT);

    #[test]
    fn sysvars_have_the_sizes_of_mainnet() {
        let universe = Universe::new(1, crate::AccountMix::Mainnet);
        let counts = StakeCounts { voters: 3, delegations: 5_000 };
        let stakes = SynthStakes::for_bank(universe, counts, EPOCH, chain::FIRST_SLOT);
        let sysvars = sysvars(&universe, chain::FIRST_HEIGHT + 7, &stakes).expect("sysvars");
        let size = |address| sysvars.iter().find(|sysvar| sysvar.pubkey == address).expect("a sysvar").data.len();
        assert_eq!(size(CLOCK), 40);
        assert_eq!(size(EPOCH_REWARDS), 81);
        assert_eq!(size(EPOCH_SCHEDULE), 33);
        assert_eq!(size(LAST_RESTART_SLOT), 8);
        assert_eq!(size(RECENT_BLOCKHASHES), 6_008);
        assert_eq!(size(RENT), 17);
        assert_eq!(size(SLOT_HASHES), 20_488);
        assert_eq!(size(SLOT_HISTORY), 131_097);
        assert_eq!(size(STAKE_HISTORY), 16_392);
        let total_bytes: usize = sysvars.iter().map(|sysvar| sysvar.data.len() + 144).sum();
        assert!((total_bytes as u64).abs_diff(SYSVARS_BYTES) < 10_000, "{total_bytes}");
    }
}
