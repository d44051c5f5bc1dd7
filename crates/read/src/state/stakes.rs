//! Collects vote accounts and delegations of a state while its records pass, and compares them with the bank file's.
//! Agave looks up each of them when it loads a snapshot.
//!
//! For each address, the newest version is kept that is a vote account or delegated stake account (about 150 bytes).
//! Whether an even newer version exists is known when superseded records are ([`StakeAccounts::drop_superseded`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, MutexGuard};
use slotpress_base::{Result, to_usize};
use slotpress_format::ledger::rebuilt_bank::cannot;
use slotpress_format::{
    CLOCK, DELEGATIONS_MAX, Delegation, EPOCH_REWARDS, EpochRewards, Hash, REDUCED_STAKE_CHANGES, Record, SLOT_HISTORY,
    STAKE, STAKE_HISTORY, STATUS_CACHE_SLOTS_MAX, StakedAccounts, Stakes, StoredAccount, VOTE, VOTE_ACCOUNTS_MAX,
    VoteAccount, parse_clock, parse_feature, parse_newest_slots, parse_stake_history,
};

use super::fingerprint::Fingerprint;
use super::superseded::{ByStorage, is_listed};
use super::well_known::WellKnownAccounts;
use crate::{Check, Findings, Place, Rule, StorageRef};

/// Enough that workers seldom wait for each other: about one of a hundred accounts is a stake account.
const SHARDS: usize = 64;

const ACCOUNTS_MAX: usize = DELEGATIONS_MAX + VOTE_ACCOUNTS_MAX;

/// An account from which the bank file's stakes follow.
#[derive(Debug)]
pub enum Staked {
    /// A delegation, and the credits of its vote account for which it has had its rewards.
    Delegation(Delegation, u64),
    /// A vote account; with its data and the offset of its record, if these are kept.
    Vote(Box<VoteAccount>, Option<(StoredAccount, u64)>),
}

impl Staked {
    fn kept_bytes(&self) -> usize {
        match self {
            Self::Vote(_, Some((kept, _))) => kept.data.len(),
            Self::Vote(_, None) | Self::Delegation(..) => 0,
        }
    }
}

/// Limit on the bytes of accounts that are kept whole: ten times mainnet's vote accounts (25 MB).
const KEPT_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug)]
struct Found {
    staked: Staked,
    slot: u64,
    storage: u32,
    fingerprint: Fingerprint,
}

type Shard = HashMap<[u8; 32], Found>;

/// Facts from the accounts that Agave requires in or beside a bank file.
#[derive(Debug)]
pub struct FoundAccounts {
    pub staked: StakedAccounts,
    pub vote_records: BTreeMap<[u8; 32], (u32, u64)>,
    /// The storages that Firedancer wrote: their rent epochs are lost.
    pub of_firedancer: Vec<Range<u32>>,
    /// The newest slots that have a block, as many as a status cache holds, newest first.
    pub newest_slots: Vec<u64>,
    /// True while the rewards of the last epoch are being paid out.
    pub are_rewards_active: bool,
}

fn is_usable(account: &VoteAccount) -> bool {
    account.node.is_some() && account.is_initialized
}

#[derive(Debug)]
pub struct StakeAccounts {
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicUsize,
    /// Bytes of accounts that are kept whole; `None` if none are to be kept.
    kept_bytes: Option<AtomicUsize>,
    /// The storages that Firedancer wrote: their rent epochs are not what Agave has.
    of_firedancer: Mutex<Vec<Range<u32>>>,
}

impl Default for StakeAccounts {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, count: AtomicUsize::default(), kept_bytes: None, of_firedancer: Mutex::default() }
    }
}

impl StakeAccounts {
    /// Also keeps the accounts from which a bank file's stakes can be rebuilt.
    pub fn keeping_accounts() -> Self {
        Self { kept_bytes: Some(AtomicUsize::default()), ..Self::default() }
    }

    /// Firedancer wrote these storages: their rent epochs tell nothing.
    pub fn are_of_firedancer(&self, storages: Range<u32>) {
        self.of_firedancer.lock().push(storages);
    }

    fn shard(&self, address: &[u8; 32]) -> MutexGuard<'_, Shard> {
        // Made-up addresses may all fall into one shard; then workers wait for each other.
        let number = usize::from(address[4]) % SHARDS;
        self.shards[number].lock()
    }

    /// Keeps a record with lamports, if it is of a kept kind.
    pub fn look_at(&self, storage: StorageRef, fingerprint: Fingerprint, record: &Record<'_>) {
        let header = &record.header;
        let is_executable = header.executable != 0;
        let stored = || StoredAccount {
            lamports: header.lamports,
            is_executable,
            rent_epoch: header.rent_epoch,
            data: record.data.into(),
        };
        let staked = match header.owner {
            STAKE => Delegation::of_account(record.data)
                .map(|delegation| Staked::Delegation(delegation, Delegation::credits_of_account(record.data))),
            VOTE => {
                let account = VoteAccount::new(header.lamports, &VOTE, is_executable, header.rent_epoch, record.data);
                let is_kept = self.kept_bytes.is_some() && is_usable(&account);
                Some(Staked::Vote(Box::new(account), is_kept.then(|| (stored(), record.offset_bytes))))
            }
            _ => return,
        };
        let Some(staked) = staked else { return };
        let mut found = Found { staked, slot: storage.slot, storage: storage.number, fingerprint };
        let mut shard = self.shard(&header.pubkey);
        match shard.get_mut(&header.pubkey) {
            // Of storages of one slot, the later in the archive.
            Some(known) if (known.slot, known.storage) < (found.slot, found.storage) => {
                self.release(&known.staked);
                self.count_kept(&mut found.staked);
                *known = found;
            }
            Some(_) => {}
            None if self.count.fetch_add(1, Relaxed) < ACCOUNTS_MAX => {
                self.count_kept(&mut found.staked);
                shard.insert(header.pubkey, found);
            }
            None => {}
        }
    }

    /// Counts what is kept whole; of a vote account that is too much, only what is compared stays.
    fn count_kept(&self, staked: &mut Staked) {
        let Some(kept_bytes) = &self.kept_bytes else { return };
        let bytes = staked.kept_bytes();
        if kept_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) > KEPT_BYTES_MAX
            && let Staked::Vote(_, kept) = staked
        {
            // It stays counted: no bank file is made of these.
            *kept = None;
        }
    }

    fn release(&self, staked: &Staked) {
        if let Some(kept_bytes) = &self.kept_bytes {
            kept_bytes.fetch_sub(staked.kept_bytes(), Relaxed);
        }
    }

    pub fn drop_superseded(&self, superseded: &ByStorage) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|_, found| {
                let is_superseded = is_listed(superseded.of_storage(found.storage), &found.fingerprint);
                if is_superseded {
                    self.release(&found.staked);
                }
                !is_superseded
            });
        }
    }

    /// The kept accounts: vote accounts, delegations, and facts from sysvars. Call after superseded versions were
    /// dropped.
    ///
    /// # Errors
    /// There are more than are looked at, or one is missing.
    pub fn found(&self, others: &WellKnownAccounts) -> Result<FoundAccounts> {
        let is_over = self.kept_bytes.as_ref().is_none_or(|bytes| bytes.load(Relaxed) > KEPT_BYTES_MAX);
        if is_over || self.count.load(Relaxed) > ACCOUNTS_MAX {
            return Err(cannot("the stakes: there are too many vote accounts, or stake accounts"));
        }
        let (mut staked, mut vote_records) = (StakedAccounts::default(), BTreeMap::new());
        for shard in &self.shards {
            for (address, found) in &*shard.lock() {
                match &found.staked {
                    Staked::Delegation(delegation, _) => staked.delegations.push((*address, *delegation)),
                    Staked::Vote(_, Some((account, offset_bytes))) => {
                        staked.vote_accounts.insert(*address, account.clone());
                        vote_records.insert(*address, (found.storage, *offset_bytes));
                    }
                    Staked::Vote(_, None) => {}
                }
            }
        }
        let data = |address| others.get(&address).map(|account| &account.data);
        let clock = data(CLOCK).ok_or_else(|| cannot("the sysvar Clock"))?;
        staked.seconds_of_epoch = parse_clock(clock)?;
        staked.delegations.sort_unstable_by_key(|(address, _)| *address);
        let history = data(STAKE_HISTORY).ok_or_else(|| cannot("the sysvar StakeHistory"))?;
        staked.history = parse_stake_history(history)?;
        let feature = data(REDUCED_STAKE_CHANGES);
        staked.reduced_since = feature.map(|data| parse_feature(data)).transpose()?.flatten();
        let slots = data(SLOT_HISTORY).ok_or_else(|| cannot("the sysvar SlotHistory"))?;
        let newest_slots = parse_newest_slots(slots, to_usize(STATUS_CACHE_SLOTS_MAX))?;
        let rewards = data(EPOCH_REWARDS).map(|data| EpochRewards::parse(data)).transpose()?;
        let of_firedancer = self.of_firedancer.lock().clone();
        let are_rewards_active = rewards.is_some_and(|rewards| rewards.is_active);
        Ok(FoundAccounts { staked, vote_records, of_firedancer, newest_slots, are_rewards_active })
    }

    fn delegation(&self, address: &[u8; 32]) -> Option<Delegation> {
        match self.shard(address).get(address)?.staked {
            Staked::Delegation(delegation, _) => Some(delegation),
            Staked::Vote(..) => None,
        }
    }

    /// Passes each delegation to `look` until that finds something: address, delegation, and the credits of which it has had
    /// rewards.
    pub fn find_delegation<T>(&self, mut look: impl FnMut(&[u8; 32], &Delegation, u64) -> Option<T>) -> Option<T> {
        self.shards.iter().find_map(|shard| {
            shard.lock().iter().find_map(|(address, found)| match &found.staked {
                Staked::Delegation(delegation, credits) => look(address, delegation, *credits),
                Staked::Vote(..) => None,
            })
        })
    }

    /// A vote account, and the number of the storage that holds it.
    fn vote_account(&self, address: &[u8; 32]) -> Option<(VoteAccount, u32)> {
        let shard = self.shard(address);
        let found = shard.get(address)?;
        match &found.staked {
            Staked::Vote(account, _) => Some((**account, found.storage)),
            Staked::Delegation(..) => None,
        }
    }

    /// Compares the stakes of a bank file with the accounts. Call after superseded versions were dropped.
    pub fn judge(&self, stakes: &Stakes, findings: &Findings) -> Result<()> {
        if stakes.has_more || self.count.load(Relaxed) > ACCOUNTS_MAX {
            findings.skip(Check::State, format!("more than {DELEGATIONS_MAX} stake accounts"));
            return Ok(());
        }
        // Agave 4.2 ignores an unreadable vote account; later versions refuse it, under another rule.
        let voters = stakes.vote_accounts.iter().filter(|(_, account)| account.node.is_some());
        let known: HashSet<&[u8; 32]> = voters.clone().map(|(address, _)| address).collect();
        let of_firedancer = self.of_firedancer.lock().clone();
        for (address, account) in voters {
            let found = match self.vote_account(address) {
                Some((found, storage)) if found.digest == account.digest => {
                    let is_lost = of_firedancer.iter().any(|storages| storages.contains(&storage));
                    if found.rent_epoch != account.rent_epoch && !is_lost {
                        let place = Place::account(*address);
                        findings.add_at(Rule::StakesRentEpoch, &place, account.rent_epoch, found.rent_epoch)?;
                    }
                    continue;
                }
                Some(_) => "another vote account",
                None => "no vote account",
            };
            let expected = "the vote account that the bank file's stakes hold";
            findings.add_at(Rule::StakesVoteAccount, &Place::account(*address), expected, found)?;
        }
        for (address, delegation) in &stakes.delegations {
            let (rule, found) = match self.delegation(address) {
                Some(found) if found == *delegation => continue,
                Some(found) if found.is_same_stake(delegation) => (Rule::StakesRate, "another rate"),
                Some(_) => (Rule::StakesDelegation, "another delegation"),
                None => (Rule::StakesDelegation, "no delegated stake account"),
            };
            let expected = "the delegation that the bank file's stakes hold";
            findings.add_at(rule, &Place::account(*address), expected, found)?;
        }
        // Up to Agave 4.4 the bank file's delegations count; later, those of the accounts.
        let mut missing = self.delegations_to_others(&known);
        missing.retain(|(_, voter)| self.vote_account(voter).is_some_and(|(account, _)| is_usable(&account)));
        if missing.is_empty() {
            return Ok(());
        }
        let listed: HashSet<&[u8; 32]> = stakes.delegations.iter().map(|(address, _)| address).collect();
        for (address, voter) in missing {
            let rule = if listed.contains(&address) { Rule::StakesVoteAccount } else { Rule::StakesVoter };
            let expected = format!("its vote account {} in the bank file's stakes", Hash(voter));
            findings.add_at(rule, &Place::account(address), expected, "none there")?;
        }
        Ok(())
    }

    /// Stake accounts whose vote account is not in `known`, with the address of the vote account.
    fn delegations_to_others(&self, known: &HashSet<&[u8; 32]>) -> Vec<([u8; 32], [u8; 32])> {
        let mut others = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            others.extend(
                shard
                    .iter()
                    .filter_map(|(address, found)| match &found.staked {
                        Staked::Delegation(delegation, _) => Some((*address, delegation.voter())),
                        Staked::Vote(..) => None,
                    })
                    .filter(|(_, voter)| !known.contains(voter)),
            );
        }
        others.sort_unstable();
        others
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::RecordHeader;

    use super::*;
    use crate::state::superseded::superseded_among;
    use crate::{Superseded, Version};

    /// Data of a stake account delegated to a voter (`StakeStateV2::Stake`).
    fn delegated_to(voter: u8) -> Vec<u8> {
        let mut data = vec![0; 200];
        data[0] = 2;
        data[124..156].fill(voter);
        data
    }

    fn look_at(stakes: &StakeAccounts, owner: [u8; 32], address: [u8; 32], (slot, number): (u64, u32), data: &[u8]) {
        let mut header = RecordHeader::parse(&[0; 136]);
        (header.owner, header.pubkey, header.lamports) = (owner, address, 1);
        let storage = StorageRef { number, slot, id: 1 };
        stakes.look_at(storage, Fingerprint([1, 2, 3]), &Record { offset_bytes: 0, header: &header, data });
    }

    fn voter(stakes: &StakeAccounts, address: [u8; 32]) -> Option<u8> {
        stakes.delegation(&address).map(|delegation| delegation.voter()[0])
    }

    /// The newest version is kept in whatever order workers see them.
    #[test]
    fn the_newest_stays() {
        let versions = [(5, 0), (7, 1), (6, 2), (7, 3)];
        for first in 0..4 {
            for step in [1, 3] {
                let stakes = StakeAccounts::default();
                for at in (0..4).map(|turn| (first + step * turn) % 4) {
                    look_at(&stakes, STAKE, [9; 32], versions[at], &delegated_to(at as u8));
                }
                assert_eq!(voter(&stakes, [9; 32]), Some(3), "of the slot's storages, the later");
            }
        }
        let stakes = StakeAccounts::default();
        look_at(&stakes, STAKE, [9; 32], (5, 0), &delegated_to(1));
        stakes.drop_superseded(&Superseded::default().to_subtract);
        assert_eq!(voter(&stakes, [9; 32]), Some(1), "nothing supersedes it");
        // A tombstone in a newer storage closes the account.
        let version = |storage, is_tombstone| Version::new(Fingerprint([1, 2, 3]), storage, is_tombstone, 0);
        let superseded = superseded_among(&[version(0, false), version(1, true)], &u64::from);
        stakes.drop_superseded(&superseded.to_subtract);
        assert_eq!(voter(&stakes, [9; 32]), None);
    }

    /// Vote and delegated stake accounts are kept; whole, vote accounts that can be read, if a bank file is to be rebuilt.
    #[test]
    fn what_is_kept() {
        for stakes in [StakeAccounts::default(), StakeAccounts::keeping_accounts()] {
            let kept = || stakes.shards.iter().map(|shard| shard.lock().len()).sum::<usize>();
            look_at(&stakes, [8; 32], [9; 32], (5, 0), &[1; 40]);
            look_at(&stakes, [8; 32], CLOCK, (5, 0), &[1; 40]);
            assert_eq!(kept(), 0, "neither the stake program's nor the vote program's");
            // An unreadable vote account is compared, although Agave does not keep it.
            look_at(&stakes, VOTE, [7; 32], (5, 0), &[9; 40]);
            assert!(stakes.vote_account(&[7; 32]).is_some_and(|(account, _)| account.node.is_none()));
            let bytes = stakes.kept_bytes.as_ref().map(|bytes| bytes.load(Relaxed));
            assert_eq!(bytes.unwrap_or_default(), 0);
        }
    }

    #[test]
    fn usable_vote_accounts() {
        let account = VoteAccount { digest: [0; 32], rent_epoch: 0, node: Some([1; 32]), is_initialized: true };
        assert!(is_usable(&account));
        assert!(!is_usable(&VoteAccount { node: None, ..account }));
        assert!(!is_usable(&VoteAccount { is_initialized: false, ..account }));
    }

    #[test]
    fn as_many_as_are_looked_at() {
        let stakes = StakeAccounts::default();
        stakes.count.store(ACCOUNTS_MAX - 1, Relaxed);
        let judged = || {
            let findings = Findings::new();
            stakes.judge(&Stakes::default(), &findings).expect("collected");
            findings.skipped(Check::State).is_none()
        };
        look_at(&stakes, STAKE, [1; 32], (5, 0), &delegated_to(1));
        assert!(voter(&stakes, [1; 32]).is_some() && judged(), "the last that there is room for");
        look_at(&stakes, STAKE, [2; 32], (5, 0), &delegated_to(1));
        assert!(voter(&stakes, [2; 32]).is_none() && !judged(), "one more");
    }

    /// Data of a vote account that can be read: of version 4, without votes, voters and credits.
    fn vote_account() -> Vec<u8> {
        let mut data = vec![0; 3762];
        data[0] = 3;
        data
    }

    #[test]
    fn as_many_bytes_as_are_kept() {
        let none = WellKnownAccounts::default();
        let bytes = vote_account().len();
        for (before, is_kept) in [(KEPT_BYTES_MAX - bytes, true), (KEPT_BYTES_MAX - bytes + 1, false)] {
            let mut stakes = StakeAccounts::keeping_accounts();
            stakes.kept_bytes = Some(AtomicUsize::new(before));
            look_at(&stakes, VOTE, [9; 32], (5, 0), &vote_account());
            let error = stakes.found(&none).expect_err("neither is all that is asked for").to_string();
            assert_eq!(error.contains("too many"), !is_kept, "{error}");
        }
        // Of many versions, one is kept.
        let mut stakes = StakeAccounts::keeping_accounts();
        stakes.kept_bytes = Some(AtomicUsize::new(KEPT_BYTES_MAX - bytes));
        (5..9).for_each(|slot| look_at(&stakes, VOTE, [9; 32], (slot, slot as u32), &vote_account()));
        assert!(!stakes.found(&none).expect_err("not all that is asked for").to_string().contains("too many"));
        let stakes = StakeAccounts::keeping_accounts();
        stakes.count.store(ACCOUNTS_MAX + 1, Relaxed);
        assert!(stakes.found(&none).expect_err("too many").to_string().contains("too many"));
        let stakes = StakeAccounts::keeping_accounts();
        stakes.count.store(ACCOUNTS_MAX, Relaxed);
        assert!(stakes.found(&none).expect_err("no Clock").to_string().contains("Clock"));
    }
}
