//! Decides the sizes, slots and ids of storages, and which of their accounts are replaced or closed later.
//! Everything is computed from indexes, so the writer of a newer storage can compute which accounts it
//! replaces.

use std::ops::Range;

use slotpress_format::ledger::record::record_bytes;
use slotpress_format::{RECORD_HEADER_BYTES, STORAGE_BYTES_MAX};

use super::accounts::Shape;
use super::mix::AccountKind;
use super::rng::{Rng, derive_number};
use super::stakes::{StakeCounts, SynthStakes};
use super::staking::{STAKE_BYTES, VOTE_BYTES};
use super::sysvars::SYSVARS_BYTES;
use super::universe::{Origin, Purpose, Universe};
use super::{SynthOptions, chain};

/// Average size of a storage in a ledger that has more than [`STORAGES_MIN`] and fewer than
/// [`STORAGES_MAINNET`] storages, most of which are tiny.
const STORAGE_BYTES_MEAN: u64 = 512 * 1024;
/// Limit on the size of a storage, unless twice the average is larger.
const STORAGE_BYTES_MAX_USUAL: u64 = 48 * 1024 * 1024;
/// Number of mainnet's storages. By default, a ledger has more storages only if their average size would
/// otherwise exceed 1 MiB.
const STORAGES_MAINNET: u64 = 430_000;
const STORAGES_MIN: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordChange {
    pub is_obsolete: bool,
    pub successor: Successor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    Version,
    Tombstone,
    /// The account was closed, and its tombstone was removed. Only for an obsolete record.
    Nothing,
}

/// Share of a storage's accounts that are replaced or closed within the state in which they first
/// appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeClass {
    Quiet,
    /// Obsolete records, per 1,000 records.
    Churned(u64),
    /// Some accounts have newer versions, but no list marks their older records yet.
    Stale,
    /// All records are obsolete.
    Emptied,
}

pub struct SynthLayout {
    pub universe: Universe,
    /// Approximate bytes of the accounts that first appear in each storage. Storages of the full state come
    /// first.
    new_account_bytes: Vec<u64>,
    /// Number of storages of the full state.
    pub full_count: u64,
    /// For each storage of the incremental state: end of the range of full-state storages whose
    /// accounts it replaces.
    replaced_until: Vec<u64>,
    emptied_storages: Vec<u64>,
    /// Share of the full state's accounts that change in the incremental one, in units of 2^-32.
    change_share: u64,
    counts: StakeCounts,
}

impl SynthLayout {
    pub fn new(options: &SynthOptions) -> Self {
        let SynthOptions { size_bytes, storage_count, incremental_bytes, .. } = *options;
        let universe = Universe::new(options.seed, options.mix);
        let full_count = storage_count.unwrap_or_else(|| {
            let large = STORAGES_MAINNET.max(size_bytes / (2 * STORAGE_BYTES_MEAN));
            (size_bytes / STORAGE_BYTES_MEAN).clamp(STORAGES_MIN, large)
        });
        // Accounts that are not part of the mix are added: delegated stake accounts, and in the last storage of
        // each state the sysvars and vote accounts.
        let counts = StakeCounts::new(size_bytes, full_count);
        let end_bytes = SYSVARS_BYTES + counts.voters * record_bytes(VOTE_BYTES);
        let other_bytes = end_bytes + counts.delegations * record_bytes(STAKE_BYTES);
        // Newer versions of replaced accounts are added too: about 2% of the full state, and half of the
        // incremental state.
        let mut new_account_bytes =
            draw_sizes(&universe, 0..full_count, (size_bytes - size_bytes / 50).saturating_sub(other_bytes));
        let mut replaced_until = Vec::new();
        let mut change_share = 0;
        if let Some(bytes) = incremental_bytes {
            let count = (bytes / (STORAGE_BYTES_MEAN / 2)).clamp(8, STORAGES_MAINNET);
            let bytes = bytes.saturating_sub(end_bytes);
            let incremental_sizes = draw_sizes(&universe, full_count..full_count + count, bytes / 2);
            // The larger a storage, the more accounts it replaces.
            let incremental_total: u64 = incremental_sizes.iter().sum::<u64>().max(1);
            let full_total: u64 = new_account_bytes.iter().sum();
            let mut summed_bytes = 0u64;
            let mut replaced_bytes = 0u64;
            let mut replaced_end = 0;
            for size in &incremental_sizes {
                summed_bytes += size;
                let replaced_bytes_max =
                    (u128::from(full_total) * u128::from(summed_bytes) / u128::from(incremental_total)) as u64;
                while replaced_end < full_count && replaced_bytes < replaced_bytes_max {
                    replaced_bytes += new_account_bytes[replaced_end as usize];
                    replaced_end += 1;
                }
                replaced_until.push(replaced_end);
            }
            if let Some(last) = replaced_until.last_mut() {
                *last = full_count;
            }
            let share = (u128::from(bytes / 2) << 32) / u128::from(size_bytes.max(1));
            change_share = (share as u64).min((1 << 32) * 3 / 10);
            new_account_bytes.extend(incremental_sizes);
        }
        // All records of up to two small storages are obsolete.
        let is_small = |storage: &u64| new_account_bytes[*storage as usize] <= 16 * 1024;
        let emptied_storages = [full_count / 3, full_count * 2 / 3]
            .into_iter()
            .filter_map(|start| (start..full_count.saturating_sub(64)).find(is_small))
            .collect();
        Self { universe, new_account_bytes, full_count, replaced_until, emptied_storages, change_share, counts }
    }

    /// Makes the stakes of the bank in the state that ends with storage `last`.
    pub fn stakes(&self, last: u64) -> SynthStakes {
        // No delegation is newer than the full state.
        let epoch = chain::epoch_of(Self::slot(self.full_count - 1));
        SynthStakes::for_bank(self.universe, self.counts, epoch, Self::slot(last))
    }

    /// True for the last storage of a state, which has the sysvars and vote accounts, because every block
    /// rewrites them.
    pub fn is_last(&self, storage: u64) -> bool {
        storage + 1 == self.full_count || storage + 1 == self.storage_count()
    }

    /// Returns the delegations whose stake accounts are in a storage. Storages of the full state have about
    /// equally many, but an emptied storage has none, and the next storage has twice as many.
    pub fn delegations(&self, storage: u64) -> Range<u64> {
        if self.is_incremental(storage) || self.emptied_storages.contains(&storage) {
            return 0..0;
        }
        let total = u128::from(self.counts.delegations);
        let count_before = |storage: u64| (total * u128::from(storage) / u128::from(self.full_count)) as u64;
        let first = if storage > 0 && self.emptied_storages.contains(&(storage - 1)) { storage - 1 } else { storage };
        count_before(first)..count_before(storage + 1)
    }

    pub fn storage_count(&self) -> u64 {
        self.new_account_bytes.len() as u64
    }

    pub fn is_incremental(&self, storage: u64) -> bool {
        storage >= self.full_count
    }

    pub fn new_account_bytes(&self, storage: u64) -> u64 {
        self.new_account_bytes[storage as usize]
    }

    pub fn height(storage: u64) -> u64 {
        chain::FIRST_HEIGHT + storage
    }

    pub fn slot(storage: u64) -> u64 {
        chain::slot_at(Self::height(storage))
    }

    pub fn id(&self, storage: u64) -> u32 {
        (storage * 3 + 1 + self.universe.number(Purpose::StorageIds, storage) % 3) as u32
    }

    pub fn new_accounts(&self, storage: u64) -> impl Iterator<Item = (Origin, Shape)> + '_ {
        let bytes_max = self.new_account_bytes(storage);
        let mut index = 0;
        let mut bytes = 0;
        std::iter::from_fn(move || {
            if bytes >= bytes_max {
                return None;
            }
            let origin = Origin { storage, index };
            let shape = self.universe.shape(origin, bytes_max);
            bytes += record_bytes(shape.data_len);
            index += 1;
            Some((origin, shape))
        })
    }

    fn storages_of_state(&self, storage: u64) -> Range<u64> {
        if self.is_incremental(storage) { self.full_count..self.storage_count() } else { 0..self.full_count }
    }

    /// Returns the storage that replaces accounts of this storage within the same state.
    pub fn newer_storage_in_state(&self, storage: u64) -> Option<u64> {
        let state = self.storages_of_state(storage);
        let newer = storage + stride(state.end - state.start);
        (newer < state.end).then_some(newer)
    }

    /// Returns the storage whose accounts this storage replaces within the same state. Returns `None` if none of
    /// those accounts change.
    pub fn older_storage_in_state(&self, storage: u64) -> Option<u64> {
        let state = self.storages_of_state(storage);
        let older = storage.checked_sub(stride(state.end - state.start))?;
        (older >= state.start && self.change_class(older) != ChangeClass::Quiet).then_some(older)
    }

    /// Returns the storages of the full state whose accounts are replaced by this storage of the
    /// incremental state.
    pub fn replaced_storages(&self, storage: u64) -> Range<u64> {
        match storage.checked_sub(self.full_count) {
            None => 0..0,
            Some(0) => 0..self.replaced_until[0],
            Some(index) => self.replaced_until[index as usize - 1]..self.replaced_until[index as usize],
        }
    }

    /// Returns the storage of the incremental state that replaces accounts of this storage of the
    /// full state.
    pub fn replacing_storage(&self, storage: u64) -> Option<u64> {
        let index = self.replaced_until.partition_point(|until| *until <= storage);
        let is_replaced = !self.is_incremental(storage) && index < self.replaced_until.len();
        is_replaced.then_some(self.full_count + index as u64)
    }

    fn change_class(&self, storage: u64) -> ChangeClass {
        if self.emptied_storages.contains(&storage) {
            return ChangeClass::Emptied;
        }
        let mut rng = Rng::new(self.universe.number(Purpose::ChangeClasses, storage));
        match rng.pick(100) {
            _ if self.newer_storage_in_state(storage).is_none() => ChangeClass::Quiet,
            0..7 => ChangeClass::Churned(20 + rng.pick(380)),
            7..12 => ChangeClass::Stale,
            _ => ChangeClass::Quiet,
        }
    }

    /// Returns how a newer storage of the same state changes an account.
    pub fn change_within_state(&self, origin: Origin, shape: Shape) -> Option<RecordChange> {
        let class = self.change_class(origin.storage);
        let share = match class {
            ChangeClass::Quiet => return None,
            ChangeClass::Churned(share) => share,
            ChangeClass::Stale => 30,
            ChangeClass::Emptied => 1000,
        };
        let mut rng =
            Rng::new(derive_number(self.universe.number(Purpose::ChangesWithinState, origin.storage), origin.index));
        let is_obsolete = class != ChangeClass::Stale;
        let is_changed = rng.chance_permille(share);
        is_changed.then(|| RecordChange { is_obsolete, successor: draw_successor(&mut rng, shape, is_obsolete) })
    }

    /// Returns how the incremental state changes an account of the full state. Only for accounts that do not
    /// change within the full state.
    pub fn change_between_states(&self, origin: Origin, shape: Shape) -> Option<RecordChange> {
        if self.change_share == 0 || !is_often_written(shape) {
            return None;
        }
        let mut rng =
            Rng::new(derive_number(self.universe.number(Purpose::ChangesBetweenStates, origin.storage), origin.index));
        if rng.next() >> 32 >= self.change_share {
            return None;
        }
        let is_obsolete = rng.chance_permille(800);
        let successor = if rng.chance_permille(800) { Successor::Version } else { Successor::Tombstone };
        Some(RecordChange { is_obsolete, successor })
    }
}

/// Returns the distance between a storage and the storage that replaces its accounts within the same state. For
/// many storages it is a prime, so that it does not match a pattern of sizes.
fn stride(count: u64) -> u64 {
    if count > 128 { 37 } else { 1 + count / 8 }
}

fn is_often_written(shape: Shape) -> bool {
    shape.data_len <= 16 * 1024
        && !matches!(shape.kind, AccountKind::Metadata | AccountKind::Program | AccountKind::Code | AccountKind::Buffer)
}

fn draw_successor(rng: &mut Rng, shape: Shape, is_obsolete: bool) -> Successor {
    match rng.pick(100) {
        0..60 if is_often_written(shape) => Successor::Version,
        60..80 if is_obsolete => Successor::Nothing,
        _ => Successor::Tombstone,
    }
}

/// Draws sizes in bytes for a range of storages, which add up to about `total_bytes`. Most storages are tiny.
/// The medium ones have about half of the bytes, and the few large ones the other half.
fn draw_sizes(universe: &Universe, storages: Range<u64>, total_bytes: u64) -> Vec<u64> {
    const UNIT: u64 = 1 << 20; // about the mean, before scaling
    let mut sizes: Vec<u64> = storages
        .map(|storage| {
            let mut rng = Rng::new(universe.number(Purpose::StorageSizes, storage));
            match rng.pick(100) {
                0..60 => rng.log_uniform(19),
                60..97 => UNIT / 4 + rng.pick(5 * UNIT / 2),
                _ => 4 * UNIT + rng.pick(28 * UNIT),
            }
        })
        .collect();
    let sum: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    let size_max = STORAGE_BYTES_MAX_USUAL.max(2 * total_bytes / sizes.len().max(1) as u64).min(STORAGE_BYTES_MAX / 2);
    for size in &mut sizes {
        let scaled = u128::from(*size) * u128::from(total_bytes) / sum.max(1);
        *size = (scaled as u64).clamp(RECORD_HEADER_BYTES as u64, size_max);
    }
    sizes
}
