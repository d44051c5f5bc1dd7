//! Collects vote accounts and delegations of a state while its records are read, and compares them
//! with the bank file's. Agave looks up each account of the stakes when it loads a snapshot.
//!
//! For each address, the newest version that is a vote account or a delegated stake account is kept
//! (about 150 bytes). If a newer version is of another kind, that shows only when superseded
//! records were found ([`StakeAccounts::drop_superseded`]).

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use slotpress_base::{Result, to_usize};
use slotpress_format::ledger::rebuilt_bank::cannot;
use slotpress_format::{
    CLOCK, DELEGATIONS_MAX, Delegation, EPOCH_REWARDS, EpochRewards, Hash, REDUCED_STAKE_CHANGES, Record, SLOT_HISTORY,
    STAKE, STAKE_HISTORY, STATUS_CACHE_SLOTS_MAX, StakedAccounts, Stakes, StoredAccount, VOTE, VOTE_ACCOUNTS_MAX,
    VoteAccount, parse_clock, parse_feature, parse_newest_slots, parse_stake_history,
};

use super::fingerprint::Fingerprint;
use super::newest::Newest;
use super::superseded::Superseded;
use super::well_known::WellKnownAccounts;
use crate::{Check, FindingPlace, Findings, Rule, StorageRef};

const ACCOUNTS_MAX: usize = DELEGATIONS_MAX + VOTE_ACCOUNTS_MAX;

/// An account that determines the bank file's stakes.
#[derive(Debug)]
pub enum Staked {
    /// A delegation, and the credits of its vote account up to which it was rewarded.
    Delegation(Delegation, u64),
    /// A vote account, with its data and the offset of its record if these are kept.
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

/// Facts from the accounts, from which a bank file and a status cache for Agave are made.
#[derive(Debug)]
pub struct FoundAccounts {
    pub staked: StakedAccounts,
    pub vote_records: BTreeMap<[u8; 32], (u32, u64)>,
    /// The newest slots that have a block, as many as a status cache can hold, newest first.
    pub newest_slots: Vec<u64>,
    /// True while the rewards of the last epoch are being paid out.
    pub are_rewards_active: bool,
}

fn is_usable(account: &VoteAccount) -> bool {
    account.node.is_some() && account.is_initialized
}

#[derive(Debug)]
pub struct StakeAccounts {
    newest: Newest<Staked>,
    /// True to keep the accounts from which a bank file's stakes can be rebuilt.
    pub keeps_accounts: bool,
    /// Bytes of accounts that are kept whole.
    kept_bytes: AtomicUsize,
    /// True once `kept_bytes` exceeded the limit. From then on, no account is kept whole.
    has_too_many_bytes: AtomicBool,
    /// True if Firedancer, which keeps no rent epochs, wrote one of the archives.
    pub lacks_rent_epochs: bool,
}

impl Default for StakeAccounts {
    fn default() -> Self {
        Self {
            newest: Newest::new(ACCOUNTS_MAX),
            keeps_accounts: false,
            kept_bytes: AtomicUsize::default(),
            has_too_many_bytes: AtomicBool::default(),
            lacks_rent_epochs: false,
        }
    }
}

impl StakeAccounts {
    /// Keeps a record with lamports if it is a vote account or a delegated stake account.
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
                let is_kept = self.keeps_accounts && !self.has_too_many_bytes.load(Relaxed) && is_usable(&account);
                Some(Staked::Vote(Box::new(account), is_kept.then(|| (stored(), record.offset_bytes))))
            }
            _ => return,
        };
        let Some(staked) = staked else { return };
        // Adds the bytes before another worker can replace the account and subtract them.
        self.kept_bytes.fetch_add(staked.kept_bytes(), Relaxed);
        if let Some(unkept) = self.newest.keep(header.pubkey, storage, fingerprint, staked) {
            self.kept_bytes.fetch_sub(unkept.kept_bytes(), Relaxed);
        }
        if self.kept_bytes.load(Relaxed) > KEPT_BYTES_MAX {
            self.has_too_many_bytes.store(true, Relaxed);
        }
    }

    pub fn drop_superseded(&self, superseded: &Superseded) {
        self.newest.drop_superseded(superseded, |staked| {
            self.kept_bytes.fetch_sub(staked.kept_bytes(), Relaxed);
        });
    }

    /// Returns the kept vote accounts and delegations, and facts from sysvars. Call after
    /// superseded versions were dropped.
    ///
    /// # Errors
    /// There are too many accounts, or a required one is missing.
    pub fn found(&self, others: &WellKnownAccounts) -> Result<FoundAccounts> {
        if !self.keeps_accounts || self.has_too_many_bytes.load(Relaxed) || self.newest.is_over() {
            return Err(cannot("the stakes: there are too many vote accounts, or stake accounts"));
        }
        let (mut staked, mut vote_records) = (StakedAccounts::default(), BTreeMap::new());
        self.newest.each(|address, found, storage| match found {
            Staked::Delegation(delegation, _) => staked.delegations.push((*address, *delegation)),
            Staked::Vote(_, Some((account, offset_bytes))) => {
                staked.vote_accounts.insert(*address, account.clone());
                vote_records.insert(*address, (storage, *offset_bytes));
            }
            Staked::Vote(_, None) => {}
        });
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
        let are_rewards_active = rewards.is_some_and(|rewards| rewards.is_active);
        Ok(FoundAccounts { staked, vote_records, newest_slots, are_rewards_active })
    }

    fn delegation(&self, address: &[u8; 32]) -> Option<Delegation> {
        self.newest.get(address, |staked| match staked {
            Staked::Delegation(delegation, _) => Some(*delegation),
            Staked::Vote(..) => None,
        })
    }

    /// Passes each delegation to `look` until that returns something. Arguments are address,
    /// delegation, and the credits up to which it was rewarded.
    pub fn find_delegation<T>(&self, mut look: impl FnMut(&[u8; 32], &Delegation, u64) -> Option<T>) -> Option<T> {
        self.newest.find(|address, staked, _| match staked {
            Staked::Delegation(delegation, credits) => look(address, delegation, *credits),
            Staked::Vote(..) => None,
        })
    }

    fn vote_account(&self, address: &[u8; 32]) -> Option<VoteAccount> {
        self.newest.get(address, |staked| match staked {
            Staked::Vote(account, _) => Some(**account),
            Staked::Delegation(..) => None,
        })
    }

    /// Compares the stakes of a bank file with the accounts. Call after superseded versions were
    /// dropped.
    pub fn judge(&self, stakes: &Stakes, findings: &Findings) -> Result<()> {
        if stakes.has_more || self.newest.is_over() {
            findings.skip(Check::State, format!("more than {DELEGATIONS_MAX} stake accounts"));
            return Ok(());
        }
        // Agave 4.2 ignores an unreadable vote account. Later versions refuse it, which another
        // rule reports.
        let voters = stakes.vote_accounts.iter().filter(|(_, account)| account.node.is_some());
        let known: HashSet<&[u8; 32]> = voters.clone().map(|(address, _)| address).collect();
        let rent_epoch = if self.lacks_rent_epochs { Rule::NoRentEpoch } else { Rule::StakesRentEpoch };
        for (address, account) in voters {
            let found = match self.vote_account(address) {
                Some(found) if found == *account => continue,
                Some(found) if found.digest == account.digest => {
                    findings.add_at(
                        rent_epoch,
                        &FindingPlace::account(*address),
                        account.rent_epoch,
                        found.rent_epoch,
                    )?;
                    continue;
                }
                Some(_) => "another vote account",
                None => "no vote account",
            };
            let expected = "the vote account that the bank file's stakes hold";
            findings.add_at(Rule::StakesVoteAccount, &FindingPlace::account(*address), expected, found)?;
        }
        for (address, delegation) in &stakes.delegations {
            let (rule, found) = match self.delegation(address) {
                Some(found) if found == *delegation => continue,
                Some(found) if found.is_same_stake(delegation) => (Rule::StakesRate, "another rate"),
                Some(_) => (Rule::StakesDelegation, "another delegation"),
                None => (Rule::StakesDelegation, "no delegated stake account"),
            };
            let expected = "the delegation that the bank file's stakes hold";
            findings.add_at(rule, &FindingPlace::account(*address), expected, found)?;
        }
        // Up to Agave 4.4, the delegations in the bank file count; later, those in the stake
        // accounts.
        let mut missing = self.delegations_to_others(&known);
        missing.retain(|(_, voter)| self.vote_account(voter).is_some_and(|account| is_usable(&account)));
        if missing.is_empty() {
            return Ok(());
        }
        let listed: HashSet<&[u8; 32]> = stakes.delegations.iter().map(|(address, _)| address).collect();
        for (address, voter) in missing {
            let rule = if listed.contains(&address) { Rule::StakesVoteAccount } else { Rule::StakesVoter };
            let expected = format!("its vote account {} in the bank file's stakes", Hash(voter));
            findings.add_at(rule, &FindingPlace::account(address), expected, "none there")?;
        }
        Ok(())
    }

    /// Returns the stake accounts whose vote account is not in `known`, each with the address of
    /// that vote account.
    fn delegations_to_others(&self, known: &HashSet<&[u8; 32]>) -> Vec<([u8; 32], [u8; 32])> {
        let mut others = Vec::new();
        self.newest.each(|address, staked, _| match staked {
            Staked::Delegation(delegation, _) if !known.contains(&delegation.voter()) => {
                others.push((*address, delegation.voter()));
            }
            Staked::Delegation(..) | Staked::Vote(..) => {}
        });
        others.sort_unstable();
        others
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::RecordHeader;

    use super::*;

    fn keeping_accounts() -> StakeAccounts {
        StakeAccounts { keeps_accounts: true, ..StakeAccounts::default() }
    }

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
        let fingerprint = Fingerprint([1, 2, 3]);
        stakes.look_at(storage, fingerprint, &Record { offset_bytes: 0, header: &header, data });
    }

    fn voter(stakes: &StakeAccounts, address: [u8; 32]) -> Option<u8> {
        stakes.delegation(&address).map(|delegation| delegation.voter()[0])
    }

    /// Accounts of other owners are not kept. An unreadable vote account is kept, but not whole.
    #[test]
    fn what_is_kept() {
        for stakes in [StakeAccounts::default(), keeping_accounts()] {
            let kept = || {
                let mut count = 0;
                stakes.newest.each(|_, _, _| count += 1);
                count
            };
            look_at(&stakes, [8; 32], [9; 32], (5, 0), &[1; 40]);
            look_at(&stakes, [8; 32], CLOCK, (5, 0), &[1; 40]);
            assert_eq!(kept(), 0, "accounts of other owners are not kept");
            // The unreadable account is compared with the bank file, although Agave does not keep
            // it.
            look_at(&stakes, VOTE, [7; 32], (5, 0), &[9; 40]);
            assert!(stakes.vote_account(&[7; 32]).is_some_and(|account| account.node.is_none()));
            assert_eq!(stakes.kept_bytes.into_inner(), 0);
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
    fn the_number_of_accounts_is_limited() {
        let stakes = StakeAccounts { newest: Newest::new(1), ..keeping_accounts() };
        let judged = || {
            let findings = Findings::new();
            stakes.judge(&Stakes::default(), &findings).expect("collected");
            findings.skipped(Check::State).is_none()
        };
        let error = || stakes.found(&WellKnownAccounts::default()).expect_err("no sysvars").to_string();
        look_at(&stakes, STAKE, [1; 32], (5, 0), &delegated_to(1));
        assert!(voter(&stakes, [1; 32]).is_some() && judged(), "the last account that fits");
        assert!(error().contains("Clock"), "{}", error());
        look_at(&stakes, STAKE, [2; 32], (5, 0), &delegated_to(1));
        assert!(voter(&stakes, [2; 32]).is_none() && !judged(), "one account too many");
        assert!(error().contains("too many"), "{}", error());
    }

    /// Data of a readable vote account: version 4, without votes, voters and credits.
    fn vote_account() -> Vec<u8> {
        let mut data = vec![0; 3762];
        data[0] = 3;
        data
    }

    #[test]
    fn the_bytes_of_accounts_are_limited() {
        let none = WellKnownAccounts::default();
        let bytes = vote_account().len();
        for (before, is_kept) in [(KEPT_BYTES_MAX - bytes, true), (KEPT_BYTES_MAX - bytes + 1, false)] {
            let mut stakes = keeping_accounts();
            stakes.kept_bytes = AtomicUsize::new(before);
            look_at(&stakes, VOTE, [9; 32], (5, 0), &vote_account());
            let error = stakes.found(&none).expect_err("no sysvars either").to_string();
            assert_eq!(error.contains("too many"), !is_kept, "{error}");
        }
        // Only one of many versions is kept.
        let mut stakes = keeping_accounts();
        stakes.kept_bytes = AtomicUsize::new(KEPT_BYTES_MAX - bytes);
        (5..9).for_each(|slot| look_at(&stakes, VOTE, [9; 32], (slot, slot as u32), &vote_account()));
        assert!(!stakes.found(&none).expect_err("no sysvars").to_string().contains("too many"));
    }
}
