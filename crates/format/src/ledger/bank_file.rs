//! Parses the bank file, `snapshots/<slot>/<slot>`, as a stream of fields, to its last
//! byte (docs/snapshot-format.md#bank-file).
//!
//! On mainnet, the file is about 1 GB long, so only small fields are kept. The stakes are kept on demand.
//! A callback receives the items of the storage map, which is large. The crate `slotpress-synth` writes
//! bank files.

use std::io::BufRead;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, Result, clock};

use crate::ledger::blockhash_queue::BlockhashQueue;
use crate::ledger::demands::firedancer;
use crate::ledger::lattice::LATTICE_HASH_BYTES;
use crate::ledger::leaders::compute_leader;
use crate::ledger::stakes::{StakesDestination, StakesKind, Voters, read_stakes, skip_nodes_and_voters};
use crate::{
    Address, ArchiveCompression, ArchiveName, BankHashParts, Breach, Demand, FieldReader, HardFork, Hash, LatticeHash,
    SlotTime, SlotTimeSource, Stakes, VOTE_ACCOUNTS_MAX, count_hard_forks,
};

#[derive(Clone, Debug, Default)]
pub struct BankFile {
    /// The newest blockhash, which is that of the bank's own block, and its time.
    pub blockhashes: BlockhashQueue,
    /// Bank hash. It covers the parent, the number of signatures, the blockhash, accounts and hard forks.
    pub hash: Hash,
    pub parent_hash: Hash,
    pub parent_slot: u64,
    pub hard_forks: Vec<HardFork>,
    pub transaction_count: u64,
    pub tick_height: u64,
    pub signature_count: u64,
    pub capitalization: u64,
    /// Tick at which this slot ends.
    pub max_tick_height: u64,
    pub ticks_per_slot: u64,
    pub genesis_creation_time: i64,
    pub accounts_data_bytes: u64,
    pub slot: u64,
    pub block_height: u64,
    /// Identity of the validator that produced the block.
    pub leader: Address,
    /// Stakes of the bank; empty unless the caller asked to keep them.
    pub stakes: Arc<Stakes>,
    pub scheduled_leader: ScheduledLeader,
    /// A vote account that Agave cannot parse, in the stakes of the bank or of an epoch.
    pub invalid_vote_account: Option<Address>,
    pub hashes_per_tick: Option<u64>,
    pub ns_per_slot: u128,
    pub slots_per_year: f64,
    pub epoch_schedule: EpochSchedule,
    /// Leaders of an epoch are known this many slots before the epoch starts.
    pub leader_schedule_slot_offset: u64,
    /// True if epochs start short and grow.
    pub warmup: bool,
    pub vote_account_count: u64,
    pub delegation_count: u64,
    /// Epoch of the bank's own stakes. It is the bank's epoch.
    pub stakes_epoch: u64,
    pub storage_count: u64,
    /// Slot of the accounts database. It equals the bank's slot, but no client checks this.
    pub accounts_slot: u64,
    /// Lattice hash over all accounts. Agave has written it since 3.0.
    pub lattice_hash: LatticeHash,
    pub block_id: Option<Hash>,
    pub breaches: Vec<Breach>,
    /// Slots of the status cache, if the status cache was read.
    pub cached_slots: Option<Arc<[u64]>>,
    /// Bytes of the file that hold the storage map, with its number of slots.
    pub storage_map_range: Range<u64>,
}

/// Leader of the bank's slot, computed from the stakes of its epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScheduledLeader {
    /// The leader was not computed, because slot 0 has no leader, or the epoch has too many voters or slots.
    #[default]
    Unknown,
    /// The file has no positive stake for this epoch, or the sum of the stakes overflows a `u64`.
    NoStake,
    Node(Address),
}

impl BankFile {
    /// Returns the hash that the name of this bank's archive contains.
    pub fn snapshot_hash(&self) -> Hash {
        self.lattice_hash.snapshot_hash()
    }

    /// Returns the name of an archive of this bank's state.
    pub fn archive_name(&self, base_slot: Option<u64>, compression: ArchiveCompression) -> ArchiveName {
        ArchiveName { base_slot, slot: self.slot, hash: self.snapshot_hash(), compression }
    }

    /// True if the file has no stakes and no storage map, as Firedancer wrote it before September 2026.
    /// Firedancer's loader reads vote accounts and delegations from the accounts; Agave reads them from this
    /// file. Every chain that Agave runs has had a vote account since genesis.
    pub fn lacks_stakes(&self) -> bool {
        self.slot > 0 && (self.vote_account_count, self.delegation_count, self.storage_count) == (0, 0, 0)
    }

    /// Computes the bank hash from its parts. Returns `None` if the file has no blockhash.
    pub fn compute_hash(&self) -> Option<Hash> {
        let parts = BankHashParts {
            parent_hash: self.parent_hash,
            signature_count: self.signature_count,
            last_blockhash: self.blockhashes.last?,
            lattice_hash: &self.lattice_hash,
            hard_fork_count: count_hard_forks(&self.hard_forks, self.parent_slot, self.slot),
        };
        Some(parts.hash())
    }

    pub fn epoch(&self) -> u64 {
        self.epoch_at(self.slot)
    }

    pub fn epoch_at(&self, slot: u64) -> u64 {
        self.epoch_schedule.position_of(slot).epoch
    }

    /// Returns the newest epoch whose leaders are known.
    fn leader_schedule_epoch(&self) -> u64 {
        if self.slot < self.epoch_schedule.first_normal_slot {
            return self.epoch().saturating_add(1);
        }
        self.epoch_at(self.slot.saturating_add(self.leader_schedule_slot_offset))
    }

    /// Returns the duration of slots, or `None` if the file states an implausible duration.
    pub fn slot_time(&self) -> Option<SlotTime> {
        let per_slot = Duration::from_nanos(u64::try_from(self.ns_per_slot).ok()?);
        SlotTime::new(per_slot, SlotTimeSource::BankFile)
    }

    /// Returns the time of the newest blockhash, by the clock of the node that wrote the file. Returns `None`
    /// if the time is 0 or in the future.
    pub fn time(&self) -> Option<SystemTime> {
        let since_1970 = Duration::from_millis(self.blockhashes.newest_ms);
        let time = SystemTime::UNIX_EPOCH.checked_add(since_1970)?;
        (!since_1970.is_zero() && time <= clock::now()).then_some(time)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochSchedule {
    /// Slots in an epoch after the warm-up.
    pub slots_per_epoch: u64,
    /// First epoch of full length, after the warm-up.
    pub first_normal_epoch: u64,
    pub first_normal_slot: u64,
}

impl EpochSchedule {
    /// Returns the slots of the epoch that contains `slot`.
    pub fn epoch_slots_at(&self, slot: u64) -> RangeInclusive<u64> {
        let position = self.position_of(slot);
        let first = slot.saturating_sub(position.slot_index);
        let slots = if slot < self.first_normal_slot {
            u32::try_from(position.epoch).ok().and_then(|epoch| WARMUP_SLOTS.checked_mul(1u64.checked_shl(epoch)?))
        } else {
            Some(self.slots_per_epoch)
        };
        // A bank file may claim epochs beyond the largest slot.
        first..=first.saturating_add(slots.unwrap_or(u64::MAX).saturating_sub(1)).max(slot)
    }

    fn position_of(&self, slot: u64) -> EpochPosition {
        if let Some(slots) = slot.checked_sub(self.first_normal_slot) {
            let epochs = slots.checked_div(self.slots_per_epoch).unwrap_or(0);
            let epoch = self.first_normal_epoch.saturating_add(epochs);
            let slot_index = slots.checked_rem(self.slots_per_epoch).unwrap_or(0);
            return EpochPosition { epoch, slot_index };
        }
        // Epoch N of the warm-up has `WARMUP_SLOTS << N` slots. If all slots are shifted by `WARMUP_SLOTS`,
        // it also begins at `WARMUP_SLOTS << N`.
        let shifted_slot = slot.saturating_add(WARMUP_SLOTS);
        let start_log = shifted_slot.checked_ilog2().unwrap_or_default();
        let shifted_start = 1u64.checked_shl(start_log).unwrap_or_default();
        let epoch = u64::from(start_log.saturating_sub(WARMUP_SLOTS.trailing_zeros()));
        let slot_index = slot.saturating_sub(shifted_start.saturating_sub(WARMUP_SLOTS));
        EpochPosition { epoch, slot_index }
    }
}

/// The epoch of a slot, and the slot's index in the epoch.
struct EpochPosition {
    epoch: u64,
    slot_index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageMapItem {
    pub slot: u64,
    /// Id of the storage on the node that wrote the bank file. Archives may use a different id.
    pub id: u64,
    /// Length of the storage in bytes, without obsolete records (`accounts_current_len`).
    pub length_bytes: u64,
}

pub type OnStorage<'a> = dyn FnMut(StorageMapItem) -> Result<()> + 'a;

pub fn read_bank_file(path: &Path, on_storage: &mut OnStorage<'_>) -> Result<BankFile> {
    parse_bank_file(FieldReader::open(path, "the bank file")?, on_storage)
}

pub fn parse_bank_file<R: BufRead>(reader: FieldReader<R>, on_storage: &mut OnStorage<'_>) -> Result<BankFile> {
    match parse_bank_file_lenient(reader, on_storage, BankStakes::Skip)? {
        (bank, None) => Ok(bank),
        (_, Some(error)) => Err(error),
    }
}

/// Treatment of a bank's stakes. They take about 100 bytes of memory for each delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BankStakes {
    Keep,
    Skip,
}

/// Like [`parse_bank_file`], but if the block id is truncated or bytes follow it, returns both the bank and
/// the error, because Agave ignores these faults.
pub fn parse_bank_file_lenient<R: BufRead>(
    mut reader: FieldReader<R>,
    on_storage: &mut OnStorage<'_>,
    bank_stakes: BankStakes,
) -> Result<(BankFile, Option<Error>)> {
    let mut bank = BankFile::default();
    read_block_fields(&mut reader, &mut bank)?;
    let mut stakes = Stakes::default();
    let destination = match bank_stakes {
        BankStakes::Keep => StakesDestination::All(&mut stakes),
        BankStakes::Skip => StakesDestination::Nothing,
    };
    read_bank_fields(&mut reader, &mut bank, destination)?;
    read_accounts_fields(&mut reader, &mut bank, on_storage)?;
    let end_error = read_extra_fields(&mut reader, &mut bank)?;
    bank.stakes = Arc::new(stakes);
    bank.breaches = reader.breaches;
    Ok((bank, end_error))
}

/// Parses the first fields of a bank file: up to the number of vote accounts and, if this is 0, up to the
/// number of delegations. The other fields of the result are empty.
///
/// # Errors
/// The bytes are invalid, or `reader` ends too early.
pub fn read_bank_start<R: BufRead>(mut reader: FieldReader<R>) -> Result<BankFile> {
    let mut bank = BankFile::default();
    read_block_fields(&mut reader, &mut bank)?;
    read_chain_fields(&mut reader, &mut bank)?;
    bank.vote_account_count = reader.u64()?;
    if bank.vote_account_count == 0 {
        bank.delegation_count = reader.u64()?;
    }
    Ok(bank)
}

fn read_block_fields<R: BufRead>(reader: &mut FieldReader<R>, bank: &mut BankFile) -> Result<()> {
    bank.blockhashes = BlockhashQueue::parse(reader)?;
    let ancestors = reader.skip_items("the ancestors", 16)?;
    reader.check_limit(firedancer::ANCESTORS, ancestors);
    bank.hash = Hash(reader.array()?);
    bank.parent_hash = Hash(reader.array()?);
    bank.parent_slot = reader.u64()?;
    bank.hard_forks = read_hard_forks(reader)?;
    bank.transaction_count = reader.u64()?;
    bank.tick_height = reader.u64()?;
    bank.signature_count = reader.u64()?;
    bank.capitalization = reader.u64()?;
    reader.check_limit(firedancer::CAPITALIZATION, bank.capitalization);
    bank.max_tick_height = reader.u64()?;
    bank.hashes_per_tick = if reader.flag("hashes per tick")? { Some(reader.u64()?) } else { None };
    bank.ticks_per_slot = reader.u64()?;
    bank.ns_per_slot = u128::from_le_bytes(reader.array()?);
    Ok(())
}

fn read_bank_fields<R: BufRead>(
    reader: &mut FieldReader<R>,
    bank: &mut BankFile,
    destination: StakesDestination<'_>,
) -> Result<()> {
    read_chain_fields(reader, bank)?;
    let stakes = read_stakes(reader, StakesKind::Bank, destination)?;
    reader.check_limit(firedancer::VOTE_ACCOUNTS, stakes.vote_account_count);
    reader.check_limit(firedancer::DELEGATIONS, stakes.delegation_count);
    bank.invalid_vote_account = stakes.invalid_vote_account;
    bank.vote_account_count = stakes.vote_account_count;
    bank.delegation_count = stakes.delegation_count;
    bank.stakes_epoch = stakes.epoch;
    for (name, item_bytes) in [("unused accounts", 32), ("unused credits", 32), ("unused votes", 32 + 8)] {
        let count = reader.skip_items(name, item_bytes)?;
        reader.check_limit((name, firedancer::ITEMS_MAX), count);
    }
    reader.skip_items("the unused epoch stakes", 8)?;
    reader.flag("is_delta")?;
    Ok(())
}

fn read_chain_fields<R: BufRead>(reader: &mut FieldReader<R>, bank: &mut BankFile) -> Result<()> {
    bank.genesis_creation_time = i64::from_le_bytes(reader.array()?);
    bank.slots_per_year = f64::from_bits(reader.u64()?);
    bank.accounts_data_bytes = reader.u64()?;
    bank.slot = reader.u64()?;
    reader.skip(8)?; // epoch, unused
    bank.block_height = reader.u64()?;
    bank.leader = Address(reader.array()?);
    reader.skip(16)?; // collector fees, fee calculator: always 0
    reader.skip(4 * 8 + 1)?; // fee rate governor
    reader.skip(8)?; // collected rent
    reader.skip(8 + 8 + 8 + 1 + 8 + 8 + 8 + 8 + 8 + 1)?; // rent collector, with its epoch schedule: unused
    bank.epoch_schedule.slots_per_epoch = reader.u64()?;
    bank.leader_schedule_slot_offset = reader.u64()?;
    bank.warmup = reader.flag("the warm-up")?;
    bank.epoch_schedule.first_normal_epoch = reader.u64()?;
    bank.epoch_schedule.first_normal_slot = reader.u64()?;
    reader.skip(6 * 8) // inflation
}

/// Limit on hard forks. Clusters have had a handful since genesis.
const HARD_FORKS_MAX: u64 = 1024;

fn read_hard_forks<R: BufRead>(reader: &mut FieldReader<R>) -> Result<Vec<HardFork>> {
    let fork_count = reader.count("the hard forks", 16)?;
    reader.check_limit(firedancer::HARD_FORKS, fork_count);
    if fork_count > HARD_FORKS_MAX {
        return Err(reader.damage_error(format!("more than {HARD_FORKS_MAX} hard forks")));
    }
    let mut hard_forks = Vec::new();
    for _ in 0..fork_count {
        let slot = reader.u64()?;
        let count = reader.u64()?;
        hard_forks.push(HardFork { slot, count });
    }
    Ok(hard_forks)
}

fn read_accounts_fields<R: BufRead>(
    reader: &mut FieldReader<R>,
    bank: &mut BankFile,
    on_storage: &mut OnStorage<'_>,
) -> Result<()> {
    let map_start = reader.position();
    let slots = reader.count("the storage map", 16)?;
    reader.check_limit(("slots in the storage map", firedancer::ITEMS_MAX), slots);
    for _ in 0..slots {
        let slot = reader.u64()?;
        let storages = reader.count("the storages of a slot", 16)?;
        reader.check_limit(("storages of a slot", firedancer::GROUPS_MAX), storages);
        for _ in 0..storages {
            let item = StorageMapItem { slot, id: reader.u64()?, length_bytes: reader.u64()? };
            bank.storage_count = bank.storage_count.saturating_add(1);
            on_storage(item)?;
        }
    }
    bank.storage_map_range = map_start..reader.position();
    reader.skip(8)?; // write version
    bank.accounts_slot = reader.u64()?;
    reader.skip(64 + 5 * 8)?; // unused hashes, statistics
    for (name, item_bytes) in [("historical roots", 8), ("historical roots with hashes", 8 + 32)] {
        let count = reader.skip_items(name, item_bytes)?;
        reader.check_limit((name, firedancer::ITEMS_MAX), count);
    }
    Ok(())
}

/// Parses the fields after the accounts database. If the block id is truncated or bytes follow it, returns
/// the error inside `Ok`, because Agave ignores these faults.
fn read_extra_fields<R: BufRead>(reader: &mut FieldReader<R>, bank: &mut BankFile) -> Result<Option<Error>> {
    reader.skip(8)?; // lamports per signature
    if reader.flag("the incremental persistence")? {
        reader.skip(8 + 32 + 8 + 32 + 8)?;
    }
    reader.optional_hash("the epoch accounts hash")?;
    let epoch_stakes_count = reader.count("the epoch stakes", 8 + 4)?;
    let position = bank.epoch_schedule.position_of(bank.slot);
    reader.check_limit(firedancer::EPOCHS, epoch_stakes_count);
    let epochs_with_leaders = position.epoch..=bank.leader_schedule_epoch();
    let mut voters = Voters::new();
    for _ in 0..epoch_stakes_count {
        if let Some(invalid) = read_epoch_stakes(reader, &epochs_with_leaders, &mut voters)? {
            bank.invalid_vote_account.get_or_insert(invalid);
        }
    }
    if bank.slot > 0 && position.slot_index < SLOTS_PER_EPOCH_MAX && voters.len() <= VOTE_ACCOUNTS_MAX {
        bank.scheduled_leader = compute_leader(position.epoch, position.slot_index, voters.into_values().collect())
            .map_or(ScheduledLeader::NoStake, |leader| ScheduledLeader::Node(Address(leader.node)));
    }
    bank.lattice_hash = if reader.remaining() > 0 && reader.flag("the lattice hash")? {
        LatticeHash::from_bytes(&reader.array::<LATTICE_HASH_BYTES>()?)
    } else {
        return Err(Error::damaged("the bank file has no accounts lattice hash")
            .with_hint("it was written by a validator older than Agave 3.0; archive it with that version"));
    };
    // Files of Agave up to 4.0 end here.
    if reader.remaining() > 0 && reader.flag("the block id")? {
        match reader.array() {
            Ok(hash) => bank.block_id = Some(Hash(hash)),
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(reader.expect_end().err())
}

/// Number of slots in the first epoch of the warm-up; each later epoch has twice as many as the one
/// before (`MINIMUM_SLOTS_PER_EPOCH` in the `solana-epoch-schedule` crate).
const WARMUP_SLOTS: u64 = 32;

/// Limit on the slots of an epoch for which leaders are computed. Clusters have 432,000 in an epoch.
const SLOTS_PER_EPOCH_MAX: u64 = 16 * 1024 * 1024;

/// Parses the stakes of an epoch, and returns a vote account that Agave cannot parse.
/// `epochs_with_leaders` begins with the epoch of the bank, whose voters are added to `voters`, and ends
/// with the newest epoch whose leaders are known.
fn read_epoch_stakes<R: BufRead>(
    reader: &mut FieldReader<R>,
    epochs_with_leaders: &RangeInclusive<u64>,
    voters: &mut Voters,
) -> Result<Option<Address>> {
    let epoch = reader.u64()?;
    let kind = reader.u32()?;
    if kind != 0 {
        return Err(reader.damage_error(format!("epoch stakes of unknown kind {kind}")));
    }
    let destination = if epoch == *epochs_with_leaders.start() {
        // If an epoch occurs twice, its later voters are used.
        voters.clear();
        StakesDestination::Voters(voters)
    } else {
        StakesDestination::Nothing
    };
    let stakes = read_stakes(reader, StakesKind::Epoch, destination)?;
    let count = stakes.vote_account_count;
    let max = firedancer::EPOCH_VOTE_ACCOUNTS_MAX;
    if count > max {
        reader.record_breach(None, Demand::VoteAccountLimit, format_args!("at most {max} of epoch {epoch}"), count);
    }
    reader.check_limit(firedancer::EPOCH_DELEGATIONS, stakes.delegation_count);
    // Firedancer computes rewards from the last epoch that it keeps.
    if let Some(account) = stakes.account_without_stake
        && epoch == *epochs_with_leaders.end()
    {
        reader.record_breach(Some(account), Demand::VoteAccountStake, format_args!("stake in epoch {epoch}"), 0);
    }
    skip_nodes_and_voters(reader)?;
    Ok(stakes.invalid_vote_account)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch_of(slot: u64, first_normal_slot: u64) -> u64 {
        let slots_per_epoch = 432_000;
        let first_normal_epoch = 14;
        let epoch_schedule = EpochSchedule { slots_per_epoch, first_normal_epoch, first_normal_slot };
        BankFile { slot, epoch_schedule, ..BankFile::default() }.epoch()
    }

    #[test]
    fn hard_forks_are_limited() {
        let read = |count: u64| {
            let mut bytes = count.to_le_bytes().to_vec();
            (0..count).for_each(|slot| bytes.extend([slot.to_le_bytes(), 1u64.to_le_bytes()].concat()));
            read_hard_forks(&mut FieldReader::new(bytes.as_slice(), bytes.len() as u64, "a bank file"))
        };
        assert_eq!(read(2).expect("read"), [0, 1].map(|slot| HardFork { slot, count: 1 }));
        assert!(read(HARD_FORKS_MAX).is_ok());
        assert!(read(HARD_FORKS_MAX + 1).is_err());
    }

    #[test]
    fn epochs_are_computed_from_slots() {
        assert_eq!([31, 32, 95, 96].map(|slot| epoch_of(slot, 524_256)), [0, 1, 1, 2], "while warming up");
        assert_eq!([524_256, 956_255, 956_256].map(|slot| epoch_of(slot, 524_256)), [14, 14, 15]);
    }

    #[test]
    fn slots_of_epochs_are_computed() {
        let with_warmup =
            EpochSchedule { slots_per_epoch: 432_000, first_normal_slot: 524_256, first_normal_epoch: 14 };
        assert_eq!([0, 31, 32, 95].map(|slot| with_warmup.epoch_slots_at(slot)), [0..=31, 0..=31, 32..=95, 32..=95]);
        assert_eq!(with_warmup.epoch_slots_at(524_255), 262_112..=524_255);
        assert_eq!(with_warmup.epoch_slots_at(956_256), 956_256..=1_388_255);
        let without_warmup = EpochSchedule { slots_per_epoch: 100, ..EpochSchedule::default() };
        assert_eq!([0, 250].map(|slot| without_warmup.epoch_slots_at(slot)), [0..=99, 200..=299]);
        assert_eq!(EpochSchedule::default().epoch_slots_at(7), 7..=7, "epochs without slots");
        let never_normal = EpochSchedule { first_normal_slot: u64::MAX, ..EpochSchedule::default() };
        assert!(never_normal.epoch_slots_at(u64::MAX - 1).contains(&(u64::MAX - 1)));
    }

    /// A bank file may claim any slot, and any first slot of full epochs.
    #[test]
    fn any_slot_has_an_epoch() {
        assert_eq!(epoch_of(u64::MAX - 1, u64::MAX), 58, "beyond the last power of two");
        assert_eq!(epoch_of(1 << 63, u64::MAX), 58);
        let epoch_schedule = EpochSchedule { first_normal_epoch: u64::MAX, ..EpochSchedule::default() };
        assert_eq!(BankFile { slot: u64::MAX, epoch_schedule, ..BankFile::default() }.epoch(), u64::MAX);
    }
}
