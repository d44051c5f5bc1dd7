//! The bank file of a synthetic ledger (docs/snapshot-format.md#bank-file). `stakes` makes the
//! stakes in it.
//!
//! The bank file is a small sample of mainnet's bank file of 1.1 GB, which belongs to 450 GB of storages. It
//! consists mostly of stakes: the bank's own stakes, and the stakes of each of six epochs. Its parts, and their
//! shares of its bytes:
//!
//! - Delegations, 80%: stake account (random), voter (one of up to 2,000, of which few are popular), stake,
//!   epochs, rate, credits.
//! - Vote accounts, 16%: 3,762 bytes, with votes, credits of up to 64 epochs, and a buffer of
//!   former voters (zeros).
//! - Nodes and voters, 1%: addresses.
//! - Storage map, 1%: slot, id and length of each storage.
//! - Blockhashes, the rest: 301 of 56 bytes, whatever the ledger's size.

use std::io::{Error, Result, Write};

use slotpress_format::ledger::leaders::compute_leader;
use slotpress_format::ledger::stakes::StakesKind;
use slotpress_format::{BankHashParts, Hash, LatticeHash, StorageMapItem, Voter, count_hard_forks};

use super::chain;
use super::fields::FieldWriter;
use super::rng::{Rng, derive_number};
use super::stakes::{EPOCHS, SynthStakes};
use super::staking::WARMUP_RATE;
use super::universe::{Purpose, Universe};

/// Contents in which the bank files of a ledger's two states differ, and the seed.
pub struct Bank<'a> {
    pub universe: &'a Universe,
    pub height: u64,
    pub capitalization: u64,
    pub data_bytes: u64,
    pub lattice: &'a LatticeHash,
    pub stakes: SynthStakes,
}

/// Number of blockhashes in the queue: the newest blockhash, and the 300 before it.
pub const BLOCKHASHES: u64 = 301;
/// Approximate length of the bank file without stakes and storage map.
pub const OTHER_BYTES: u64 = BLOCKHASHES * 56 + 4096;
const SIGNATURES: u64 = 2_500;

impl Bank<'_> {
    /// Writes the bank file. `storage_map` is empty since Agave 4.4.
    pub fn write(&self, to: impl Write, storage_map: &[StorageMapItem]) -> Result<()> {
        let mut out = FieldWriter(to);
        let Self { universe, height, .. } = *self;
        let rng = &mut Rng::new(universe.number(Purpose::Bank, height));
        let slot = chain::slot_at(height);
        let parent_slot = chain::slot_at(height - 1);
        let epoch = chain::epoch_of(slot);
        let transactions = 400_000_000_000 + rng.pick(1 << 32);
        let (hash, parent_hash) = self.compute_hashes(slot, parent_slot);
        self.write_blockhashes(&mut out)?;
        out.u64s(&[0])?; // ancestors
        out.bytes(&hash.0)?;
        out.bytes(&parent_hash.0)?;
        out.u64s(&[parent_slot, chain::HARD_FORKS.len() as u64])?;
        chain::HARD_FORKS.iter().try_for_each(|fork| out.u64s(&[fork.slot, fork.count]))?;
        let ticks = (slot + 1) * chain::TICKS_PER_SLOT;
        out.u64s(&[transactions, ticks, SIGNATURES, self.capitalization, ticks])?;
        out.bytes(&[1])?; // hashes per tick follow
        out.u64s(&[chain::HASHES_PER_TICK, chain::TICKS_PER_SLOT, chain::SLOT_NS, 0])?; // the last two are a u128
        out.u64s(&[chain::GENESIS_UNIX_TIME])?;
        out.f64s(&[chain::SLOTS_PER_YEAR])?;
        out.u64s(&[self.data_bytes, slot, epoch, height])?;
        out.bytes(&self.compute_leader(slot)?)?;
        out.u64s(&[0, 0])?; // collector fees, fee calculator
        chain::write_fee_rate_governor(&mut out)?;
        out.u64s(&[0, epoch])?; // collected rent; the rent collector begins with the epoch
        chain::write_epoch_schedule(&mut out)?;
        out.f64s(&[chain::SLOTS_PER_YEAR])?;
        chain::write_rent(&mut out)?;
        chain::write_epoch_schedule(&mut out)?;
        out.f64s(&chain::INFLATION)?;
        write_stakes(&mut out, &self.stakes, &self.stakes.voters(), epoch, StakesKind::Bank)?;
        out.u64s(&[0, 0, 0, 0])?; // empty lists: unused accounts, credits, votes, epoch stakes
        out.bytes(&[1])?; // is_delta

        out.u64s(&[storage_map.len() as u64])?;
        for item in storage_map {
            out.u64s(&[item.slot, 1, item.id, item.length_bytes])?;
        }
        out.u64s(&[0, slot])?; // write version, slot of the accounts database
        out.bytes(&[0; 64])?; // unused hashes
        out.u64s(&[0; 7])?; // statistics, and two empty lists of historical roots
        out.u64s(&[chain::LAMPORTS_PER_SIGNATURE])?;
        out.bytes(&[0, 0])?; // no incremental persistence, no epoch accounts hash
        out.u64s(&[EPOCHS])?;
        // The newest epoch is the epoch after the bank's, whose leaders are already known.
        for epoch in epoch + 2 - EPOCHS..epoch + 2 {
            self.write_epoch_stakes(&mut out, epoch)?;
        }
        out.bytes(&[1])?; // the lattice hash follows
        out.bytes(&self.lattice.to_bytes())?;
        out.bytes(&[1])?; // the block id follows
        out.bytes(&rng.key())?;
        out.0.flush()
    }

    fn compute_hashes(&self, slot: u64, parent_slot: u64) -> (Hash, Hash) {
        let parts = BankHashParts {
            parent_hash: Hash(chain::bank_hash(self.universe, self.height - 1)),
            signature_count: SIGNATURES,
            last_blockhash: Hash(chain::blockhash(self.universe, self.height)),
            lattice_hash: self.lattice,
            hard_fork_count: count_hard_forks(&chain::HARD_FORKS, parent_slot, slot),
        };
        (parts.hash(), parts.parent_hash)
    }

    fn compute_leader(&self, slot: u64) -> Result<[u8; 32]> {
        let epoch = chain::epoch_of(slot);
        let leader = compute_leader(epoch, slot % chain::SLOTS_PER_EPOCH, self.epoch_stakes(epoch).voters());
        leader.map(|leader| leader.node).ok_or_else(|| Error::other("no node has stake"))
    }

    fn write_blockhashes<W: Write>(&self, out: &mut FieldWriter<W>) -> Result<()> {
        let hash = |height| chain::blockhash(self.universe, height);
        out.u64s(&[self.height])?;
        out.bytes(&[1])?;
        out.bytes(&hash(self.height))?;
        out.u64s(&[BLOCKHASHES])?;
        for back in 0..BLOCKHASHES {
            // Imitates the order of a hash map.
            let height = self.height - (back * 97) % BLOCKHASHES;
            out.bytes(&hash(height))?;
            let milliseconds = chain::unix_time_of(chain::slot_at(height)) * 1000 + derive_number(height, 1) % 400;
            out.u64s(&[chain::LAMPORTS_PER_SIGNATURE, height, milliseconds])?;
        }
        out.u64s(&[BLOCKHASHES - 1])
    }

    fn epoch_stakes(&self, epoch: u64) -> SynthStakes {
        SynthStakes::for_epoch(*self.universe, self.stakes.counts, epoch)
    }

    fn write_epoch_stakes<W: Write>(&self, out: &mut FieldWriter<W>, epoch: u64) -> Result<()> {
        let stakes = self.epoch_stakes(epoch);
        let voters = stakes.voters();
        out.u64s(&[epoch])?;
        out.u32(0)?;
        write_stakes(out, &stakes, &voters, epoch - 1, StakesKind::Epoch)?;
        out.u64s(&[voters.iter().map(|voter| voter.stake).sum(), voters.len() as u64])?;
        for voter in &voters {
            out.bytes(&voter.node)?;
            out.u64s(&[1])?;
            out.bytes(&voter.address)?;
            out.u64s(&[voter.stake])?;
        }
        out.u64s(&[voters.len() as u64])?;
        for voter in &voters {
            out.bytes(&voter.address)?;
            out.bytes(&voter.node)?;
        }
        Ok(())
    }
}

/// Writes a stakes cache: vote accounts, delegations, stake history.
fn write_stakes<W: Write>(
    out: &mut FieldWriter<W>,
    stakes: &SynthStakes,
    voters: &[Voter],
    epoch: u64,
    kind: StakesKind,
) -> Result<()> {
    out.u64s(&[voters.len() as u64])?;
    for (number, voter) in (0..).zip(voters) {
        let account = stakes.vote_account(number);
        out.bytes(&voter.address)?;
        out.u64s(&[voter.stake, account.lamports])?;
        out.byte_vec(&account.data)?;
        out.bytes(&account.owner)?;
        out.bytes(&[0])?;
        out.u64s(&[u64::MAX])?;
    }
    let delegations = stakes.delegations();
    out.u64s(&[delegations.len() as u64])?;
    for delegation in delegations {
        out.bytes(&delegation.stake_account)?;
        out.bytes(&stakes.vote_address(delegation.voter))?;
        out.u64s(&[delegation.lamports, delegation.activation_epoch, delegation.deactivation_epoch])?;
        out.f64s(&[WARMUP_RATE])?;
        if kind == StakesKind::Epoch {
            out.u64s(&[delegation.credits_observed])?;
        }
    }
    out.u64s(&[0, epoch])?;
    let history = stakes.history(epoch);
    out.u64s(&[history.len() as u64])?;
    history.iter().try_for_each(|entry| out.u64s(entry))
}
