//! Makes what Agave needs to load an archive of Firedancer, from the archive's accounts.
//!
//! Firedancer of August 2026 writes all storages under the snapshot's slot, a bank file without
//! stakes, and a status cache of one slot. Agave loads only one storage per slot, takes the stakes
//! from the bank file, and requires the newest 300 slots of the slot history in the status cache.
//! All of this can be made from the accounts. The state does not change, and so its hash and the
//! archive's name stay the same.

pub mod place;

use std::io::Cursor;
use std::ops::Range;
use std::path::Path;

use slotpress_base::{Progress, Result};
use slotpress_format::ledger::rebuilt_bank::cannot;
use slotpress_format::{
    BankFile, FieldReader, Genesis, RebuiltBank, RentEpochs, STATUS_CACHE_SLOTS_MAX, parse_bank_file_and_end,
};

use crate::FoundAccounts;
use crate::archive::{Archive, front};

/// Setting in the index of an archive that was converted from one of Firedancer.
pub const CONVERTED: &str = "converted-from=firedancer";

/// True if the archive's bank file has no stakes. Firedancer wrote such files until August 2026,
/// and Agave does not load them. False if the bank file is found neither by the index nor in the
/// first bytes.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn lacks_stakes(archive: &Archive) -> Result<bool> {
    Ok(front::bank(archive)?.is_some_and(|bank| bank.lacks_stakes()))
}

/// Returns why only Firedancer loads the archive, as far as the beginning of the archive shows.
/// `is_below` is true for the full archive of a pair: clients do not use its bank file.
///
/// # Errors
/// The disk fails, or there is not enough memory.
pub fn for_firedancer_only(archive: &Archive, is_below: bool) -> Result<Option<&'static str>> {
    let Some(bank) = front::bank(archive)?.filter(BankFile::is_for_firedancer_only) else { return Ok(None) };
    Ok(match bank.lacks_stakes() {
        true if is_below => front::shares_slots(archive)?.then_some("all its storages are of one slot"),
        _ if is_below => None,
        true => Some("its bank file holds no stakes, which Agave takes from there"),
        false if front::is_of_firedancer(archive, Some(&bank))? => Some("its bank file says 0 hashes per tick"),
        false => None,
    })
}

/// True if Firedancer wrote the archive, so that it has to be converted for Agave.
///
/// # Errors
/// The bank file shows that the archive cannot be converted.
pub fn is_to_convert(archive: &Archive, genesis: Option<&Path>) -> Result<bool> {
    if !front::is_of_firedancer(archive, front::bank(archive)?.as_ref())? {
        return Ok(false);
    }
    let Some(source) = front::bank_file_of_firedancer(archive)? else { return Ok(true) };
    let fields = FieldReader::new(Cursor::new(&source), source.len() as u64, "the bank file");
    // Damage is ignored here: it is reported when the whole archive is read.
    if let Ok((bank, None)) = parse_bank_file_and_end(fields, &mut |_| Ok(()), true) {
        RebuiltBank::check(&source, &bank, genesis.map(Genesis::read).transpose()?.as_ref())?;
    }
    Ok(true)
}

/// An archive of Firedancer that was read completely, and whose state was checked.
pub struct ReadOfFiredancer<'a> {
    pub bank_file: Vec<u8>,
    pub bank: &'a BankFile,
    pub accounts: FoundAccounts,
    pub storages: Range<u32>,
    pub rent_epochs: RentEpochs,
    pub genesis: Option<&'a Genesis>,
    pub is_base: bool,
    /// True if this is an incremental archive whose full archive is converted too.
    pub is_base_to_convert: bool,
}

/// Parts of the converted archive.
#[derive(Debug)]
pub struct ForAgave {
    pub bank: RebuiltBank,
    /// Replacement for the first 8 bytes of the status cache, which count its slots.
    pub status_cache_front: Vec<u8>,
    /// Rent epochs of vote accounts in the archive's own storages, sorted by storage and offset.
    pub rent_epochs: Vec<RentEpochPlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RentEpochPlace {
    pub storage: u32,
    pub offset_bytes: u64,
    pub epoch: u64,
}

/// Length of the count of slots at the beginning of a status cache, in bytes.
pub const STATUS_CACHE_COUNT_BYTES: usize = 8;

/// Offset of the rent epoch in a record.
const RENT_EPOCH_AT: u64 = 56;

impl ReadOfFiredancer<'_> {
    /// Makes the parts that Agave needs.
    ///
    /// # Errors
    /// The archive lacks something that these parts need.
    pub fn convert(mut self, progress: &dyn Progress) -> Result<ForAgave> {
        let (bank, accounts) = (self.bank, &mut self.accounts);
        if accounts.are_rewards_active && self.is_base {
            progress.warn(
                "rewards were being paid out, and the archive does not tell to whom: use it with its incremental archive only",
            );
        } else if accounts.are_rewards_active {
            return Err(cannot(
                "the rewards of the last epoch: they were being paid out, and the archive does not tell to whom",
            )
            .with_hint("take an archive of a later slot: the payment takes the first minutes of an epoch"));
        }
        let cached = bank.cached_slots.as_deref().unwrap_or_default();
        let status_cache_front = status_cache_front(cached, &accounts.newest_slots, bank.slot)?;
        let rent_epochs = set_rent_epochs(accounts, &self.storages, &self.rent_epochs, self.is_base_to_convert);
        let bank = RebuiltBank::new(self.bank_file, bank, self.accounts.staked, self.genesis)?;
        Ok(ForAgave { bank, status_cache_front, rent_epochs })
    }
}

/// Sets the rent epochs of vote accounts that Firedancer wrote. Returns the places in the archive's
/// `own` storages where they must be written. With `is_base_to_convert`, also sets those of vote
/// accounts in the full archive; the conversion of the full archive writes them into its storages.
fn set_rent_epochs(
    accounts: &mut FoundAccounts,
    own: &Range<u32>,
    epochs: &RentEpochs,
    is_base_to_convert: bool,
) -> Vec<RentEpochPlace> {
    let mut places = Vec::new();
    for (address, account) in &mut accounts.staked.vote_accounts {
        let Some((storage, offset_bytes)) = accounts.vote_records.get(address).copied() else { continue };
        let is_own = own.contains(&storage);
        if !is_own && !is_base_to_convert {
            continue;
        }
        account.rent_epoch = epochs.of(address);
        if is_own {
            let offset_bytes = offset_bytes.saturating_add(RENT_EPOCH_AT);
            places.push(RentEpochPlace { storage, offset_bytes, epoch: account.rent_epoch });
        }
    }
    places.sort_unstable();
    places
}

/// Makes the replacement for the count at the beginning of a status cache with `cached` slots: a
/// larger count, and an empty item for each of the newest slots that the cache lacks. Agave
/// requires all of these slots (`verify_slot_deltas` in the `solana-runtime` crate), and so does
/// Firedancer since September 2026. Neither accepts a slot that the slot history does not have.
pub fn status_cache_front(cached: &[u64], newest: &[u64], bank_slot: u64) -> Result<Vec<u8>> {
    if newest.first() != Some(&bank_slot) {
        return Err(cannot("the status cache: the slot history does not end at the bank's slot"));
    }
    if let Some(slot) = cached.iter().find(|slot| !newest.contains(slot)) {
        return Err(cannot(&format!("the status cache: its slot {slot} is not in the slot history")));
    }
    let lacking: Vec<u64> = newest.iter().copied().filter(|slot| !cached.contains(slot)).collect();
    debug_assert!(newest.len() as u64 <= STATUS_CACHE_SLOTS_MAX);
    let mut front = (cached.len().saturating_add(lacking.len()) as u64).to_le_bytes().to_vec();
    for slot in lacking {
        front.extend_from_slice(&slot.to_le_bytes());
        front.push(1); // a root
        front.extend_from_slice(&0u64.to_le_bytes());
    }
    Ok(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vote accounts of the archive itself, and of a full archive of Firedancer below it, get rent
    /// epochs; those of a full archive of Agave do not.
    #[test]
    fn vote_accounts_get_rent_epochs() {
        use slotpress_format::{StakedAccounts, Stakes, StoredAccount, VoteAccount};
        let account =
            |rent_epoch| StoredAccount { lamports: 1, is_executable: false, rent_epoch, data: Box::default() };
        // The archive has storages 0 and 1, its full archive has storage 2.
        let records = [([1; 32], (1, 800)), ([2; 32], (1, 8)), ([3; 32], (0, 16)), ([4; 32], (2, 0))];
        let stakes = Stakes {
            vote_accounts: vec![([1; 32], VoteAccount::new(1, &[0; 32], false, 7, &[]))],
            ..Stakes::default()
        };
        for (is_base_to_convert, of_base) in [(false, 5), (true, u64::MAX)] {
            let vote_accounts = records.iter().map(|(address, _)| (*address, account(5))).collect();
            let mut accounts = FoundAccounts {
                staked: StakedAccounts { vote_accounts, ..StakedAccounts::default() },
                vote_records: records.into_iter().collect(),
                newest_slots: Vec::new(),
                are_rewards_active: false,
            };
            let epochs = RentEpochs::of_stakes(&stakes);
            let places = set_rent_epochs(&mut accounts, &(0..2), &epochs, is_base_to_convert);
            let found: Vec<u64> = accounts.staked.vote_accounts.values().map(|it| it.rent_epoch).collect();
            assert_eq!(found, [7, u64::MAX, u64::MAX, of_base]);
            let expected = [(0, 72, u64::MAX), (1, 64, u64::MAX), (1, 856, 7)];
            assert_eq!(
                places,
                expected.map(|(storage, offset_bytes, epoch)| RentEpochPlace { storage, offset_bytes, epoch })
            );
        }
    }

    #[test]
    fn the_status_cache_gets_the_slots_that_it_lacks() {
        let front = status_cache_front(&[9], &[9, 7, 3], 9).expect("made");
        let item = |slot: u64| [&slot.to_le_bytes()[..], &[1], &[0; 8]].concat();
        assert_eq!(front, [&3u64.to_le_bytes()[..], &item(7), &item(3)].concat());
        assert!(status_cache_front(&[9], &[8, 7], 9).is_err(), "a history of another slot");
        assert!(status_cache_front(&[9, 5], &[9, 7], 9).is_err(), "a slot without a block");
    }
}
