//! The chain of a synthetic ledger: constants, slots with a block, heights, times and hashes. They depend
//! only on slots, heights and the seed, not on the rest of the ledger.

use std::io::{Result, Write};

use slotpress_format::HardFork;

use super::fields::FieldWriter;
use super::rng::Rng;
use super::universe::{Purpose, Universe};

pub const SLOTS_PER_EPOCH: u64 = 432_000;
/// Slot of the first storage. It is the first slot of a group of [`GROUP_SLOTS`].
pub const FIRST_SLOT: u64 = 350_006_400;
pub const FIRST_SLOT_UNIX_TIME: u64 = 1_751_000_000;
/// Time of the genesis in seconds since 1970. Agave compares the time in the bank file with `genesis.bin`.
pub const GENESIS_UNIX_TIME: u64 = 1_584_368_940;
pub const TICKS_PER_SLOT: u64 = 64;
pub const HASHES_PER_TICK: u64 = 62_500;
pub const SLOT_NS: u64 = 400_000_000;
pub const SLOTS_PER_YEAR: f64 = 78_892_314.984;
pub const LAMPORTS_PER_SIGNATURE: u64 = 5_000;
/// Inflation: initial, terminal, taper, foundation, foundation's term, unused.
pub const INFLATION: [f64; 6] = [0.08, 0.015, 0.15, 0.05, 7.0, 0.0];
/// Hard forks: only one, long before the first slot, as on mainnet.
pub const HARD_FORKS: [HardFork; 1] = [HardFork { slot: 246_464_040, count: 1 }];

/// Number of slots in a group. The last slot of each group has no block, as if its leader had been late.
const GROUP_SLOTS: u64 = 20;
const GROUP_BLOCKS: u64 = GROUP_SLOTS - 1;

pub const FIRST_HEIGHT: u64 = FIRST_SLOT / GROUP_SLOTS * GROUP_BLOCKS;

pub const fn slot_at(height: u64) -> u64 {
    height + height / GROUP_BLOCKS
}

pub const fn has_block(slot: u64) -> bool {
    slot % GROUP_SLOTS < GROUP_BLOCKS
}

/// Returns the height of a slot's block, or of the next block if the slot has none.
pub const fn height_of(slot: u64) -> u64 {
    slot / GROUP_SLOTS * GROUP_BLOCKS + slot % GROUP_SLOTS
}

pub const fn epoch_of(slot: u64) -> u64 {
    slot / SLOTS_PER_EPOCH
}

pub const fn unix_time_of(slot: u64) -> u64 {
    (FIRST_SLOT_UNIX_TIME + slot * 2 / 5) - FIRST_SLOT * 2 / 5
}

pub fn blockhash(universe: &Universe, height: u64) -> [u8; 32] {
    Rng::new(universe.number(Purpose::Blockhashes, height)).key()
}

/// Makes up the bank hash of an older block. Only the newest bank hash is computed, because the accounts of
/// older blocks do not exist.
pub fn bank_hash(universe: &Universe, height: u64) -> [u8; 32] {
    Rng::new(universe.number(Purpose::BankHashes, height)).key()
}

/// Writes the epoch schedule: slots, leader schedule offset, no warm-up, first normal epoch and slot.
pub fn write_epoch_schedule<W: Write>(out: &mut FieldWriter<W>) -> Result<()> {
    out.u64s(&[SLOTS_PER_EPOCH, SLOTS_PER_EPOCH])?;
    out.bytes(&[0])?;
    out.u64s(&[0, 0])
}

/// Writes the fee rate governor: target lamports per signature and signatures per slot, minimum and
/// maximum lamports, percentage burned.
pub fn write_fee_rate_governor<W: Write>(out: &mut FieldWriter<W>) -> Result<()> {
    out.u64s(&[10_000, 20_000, 5_000, 100_000])?;
    out.bytes(&[50])
}

/// Writes the rent: lamports per byte and year, years for exemption, percentage burned.
pub fn write_rent<W: Write>(out: &mut FieldWriter<W>) -> Result<()> {
    out.u64s(&[3_480])?;
    out.f64s(&[2.0])?;
    out.bytes(&[50])
}

/// Returns the smallest balance of an account of this size, which is the balance of most accounts.
pub const fn rent_exempt_lamports(data_len: u64) -> u64 {
    (128 + data_len) * 6960
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_heights_agree() {
        assert_eq!(slot_at(FIRST_HEIGHT), FIRST_SLOT);
        for height in FIRST_HEIGHT - 60..FIRST_HEIGHT + 60 {
            let slot = slot_at(height);
            assert!(has_block(slot));
            assert_eq!(height_of(slot), height);
            for skipped in slot + 1..slot_at(height + 1) {
                assert!(!has_block(skipped));
            }
        }
        assert_eq!(unix_time_of(FIRST_SLOT), FIRST_SLOT_UNIX_TIME);
        assert_eq!(unix_time_of(FIRST_SLOT + 5), FIRST_SLOT_UNIX_TIME + 2);
    }
}
