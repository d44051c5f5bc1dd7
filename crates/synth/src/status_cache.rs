//! Writes the status cache of a synthetic ledger (docs/snapshot-format.md#status-cache).
//!
//! Both clients accept this status cache. It has the newest 300 slots with a block, each once and as a root.
//! Transactions use only blockhashes of the queue, but never the newest one. All transaction hashes of a
//! blockhash are cut at the same offset.

use std::io::{Result, Write};

use slotpress_format::STATUS_CACHE_SLOTS_MAX;

use super::bank::BLOCKHASHES;
use super::chain;
use super::fields::FieldWriter;
use super::rng::Rng;
use super::universe::{Purpose, Universe};

/// Number of bytes of a transaction's 32-byte hash that are kept.
const KEY_BYTES: usize = 20;
/// Number of offsets in use: 0 to 11. Firedancer refuses larger ones.
const OFFSET_COUNT: u64 = 32 - KEY_BYTES as u64;
/// Limit on transactions per slot. Mainnet has about this many with 450 GB of storages; smaller ledgers have
/// fewer.
const TRANSACTIONS_PER_SLOT_MAX: u64 = 2_000;
const STORAGE_BYTES_PER_TRANSACTION: u64 = 450_000_000_000 / TRANSACTIONS_PER_SLOT_MAX;
const BLOCKHASHES_PER_SLOT_MAX: u64 = 40;

/// Writes the status cache of the bank at `height`: the results of transactions in the last
/// 300 blocks.
pub fn write_status_cache(universe: &Universe, height: u64, storage_bytes: u64, to: impl Write) -> Result<()> {
    let mut out = FieldWriter(to);
    let transactions_per_slot = (storage_bytes / STORAGE_BYTES_PER_TRANSACTION).clamp(1, TRANSACTIONS_PER_SLOT_MAX);
    let oldest_blockhash = height + 1 - BLOCKHASHES;
    out.u64s(&[STATUS_CACHE_SLOTS_MAX])?;
    for block_height in (0..STATUS_CACHE_SLOTS_MAX).map(|back| height - back) {
        let mut rng = Rng::new(universe.number(Purpose::TransactionResults, block_height));
        out.u64s(&[chain::slot_at(block_height)])?;
        out.bytes(&[1])?; // the slot is a root
        // Transactions use the blockhashes of the blocks just before their own.
        let count = 1 + rng.pick(transactions_per_slot.min(BLOCKHASHES_PER_SLOT_MAX));
        let count = count.min(block_height - oldest_blockhash);
        out.u64s(&[count])?;
        for index in 0..count {
            let results = transactions_per_slot / count + u64::from(index < transactions_per_slot % count);
            let blockhash_height = block_height - 1 - index;
            out.bytes(&chain::blockhash(universe, blockhash_height))?;
            out.u64s(&[universe.number(Purpose::HashOffsets, blockhash_height) % OFFSET_COUNT, results])?;
            write_results(&mut out, &mut rng, results)?;
        }
    }
    out.0.flush()
}

fn write_results<W: Write>(out: &mut FieldWriter<W>, rng: &mut Rng, count: u64) -> Result<()> {
    for _ in 0..count {
        let mut key = [0; KEY_BYTES];
        rng.fill(&mut key);
        out.bytes(&key)?;
        if rng.chance_permille(900) {
            out.bytes(&[0; 4])?;
        } else {
            // This is `Err(InstructionError(index, Custom(code)))`.
            out.bytes(&[1, 0, 0, 0, 8, 0, 0, 0])?;
            out.bytes(&[2 + rng.pick(4) as u8, 25, 0, 0, 0])?;
            out.bytes(&(6_000 + rng.pick(64) as u32).to_le_bytes())?;
        }
    }
    Ok(())
}
