//! Writes `genesis.bin`, which Agave reads in every ledger. It is in bincode, with the layout of the
//! `solana-genesis-config` crate.
//!
//! Agave refuses a bank file that differs from `genesis.bin` in creation time, ticks per slot or epoch
//! schedule. The cluster type is "development", so nobody can mistake the chain for a public one.

use std::io::{Result, Write};

use super::chain::{self, rent_exempt_lamports};
use super::fields::FieldWriter;
use super::keys;
use super::rng::Rng;
use super::universe::{Purpose, Universe};

const FAUCET_LAMPORTS: u64 = 500_000_000_000_000_000;
const CLUSTER_DEVELOPMENT: u32 = 3;
const TICK_NS: u32 = (chain::SLOT_NS / chain::TICKS_PER_SLOT) as u32;

pub fn write_genesis(universe: &Universe, to: impl Write) -> Result<()> {
    let mut out = FieldWriter(to);
    let mut accounts = [0, 1].map(|index| Rng::new(universe.number(Purpose::Genesis, index)).key());
    accounts.sort_unstable();
    out.u64s(&[chain::GENESIS_UNIX_TIME, accounts.len() as u64])?;
    for (address, lamports) in accounts.iter().zip([FAUCET_LAMPORTS, rent_exempt_lamports(0)]) {
        out.bytes(address)?;
        out.u64s(&[lamports])?;
        out.byte_vec(&[])?;
        out.bytes(&keys::SYSTEM)?;
        out.bytes(&[0])?;
        out.u64s(&[u64::MAX])?;
    }
    out.u64s(&[0, 0])?; // no native programs besides those that are built in, no rewards pools
    out.u64s(&[chain::TICKS_PER_SLOT, 1024])?; // ticks per slot, and an unused field
    // Proof of history: a tick's length (seconds, nanoseconds), no end, hashes in a tick.
    out.u64s(&[0])?;
    out.u32(TICK_NS)?;
    out.bytes(&[0, 1])?;
    out.u64s(&[chain::HASHES_PER_TICK, 0])?; // hashes per tick, and an unused field
    chain::write_fee_rate_governor(&mut out)?;
    chain::write_rent(&mut out)?;
    out.f64s(&chain::INFLATION)?;
    chain::write_epoch_schedule(&mut out)?;
    out.u32(CLUSTER_DEVELOPMENT)?;
    out.0.flush()
}
