//! Collects the vote accounts and delegations of a state while its records are read, and compares them
//! with those in the bank file. Agave looks up each of these accounts when it loads a snapshot.
//!
//! For each address, the newest version that is a vote account or a delegated stake account is kept, in
//! about 150 bytes. If a newer version is of a different kind, [`NewestVersions::drop_superseded`] drops the
//! kept version once superseded records are known.

use std::collections::{BTreeMap, HashSet};

use slotpress_base::Result;
use slotpress_format::{
    DELEGATIONS_MAX, Delegation, Hash, Record, STAKE, Stakes, VOTE, VOTE_ACCOUNTS_MAX, VoteAccount,
};

use super::newest::NewestVersions;
use crate::{Check, FailurePlace, Failures, Rule, StorageRef};

const ACCOUNTS_MAX: usize = DELEGATIONS_MAX + VOTE_ACCOUNTS_MAX;

#[derive(Debug)]
pub enum StakedAccount {
    Delegation(Delegation),
    Vote(Box<VoteAccount>),
}

fn is_usable(account: &VoteAccount) -> bool {
    account.node.is_some() && account.is_initialized
}

/// Returns the readable vote accounts of a bank file. Agave 4.2 ignores unreadable ones. Later versions refuse
/// them, which [`Rule::InvalidVoteAccount`] reports.
fn readable_accounts(stakes: &Stakes) -> impl Iterator<Item = &([u8; 32], VoteAccount)> {
    stakes.vote_accounts.iter().filter(|(_, account)| account.node.is_some())
}

#[derive(Debug)]
pub struct StakeAccounts {
    pub(super) newest: NewestVersions<StakedAccount>,
    /// True if Firedancer, which keeps no rent epochs, wrote one of the archives.
    pub lacks_rent_epochs: bool,
}

impl Default for StakeAccounts {
    fn default() -> Self {
        Self { newest: NewestVersions::new(ACCOUNTS_MAX), lacks_rent_epochs: false }
    }
}

impl StakeAccounts {
    pub fn keep_if_staked(&self, storage: StorageRef, record: &Record<'_>) {
        let header = &record.header;
        let staked = match header.owner {
            STAKE => Delegation::parse(record.data).map(StakedAccount::Delegation),
            VOTE => {
                let account = VoteAccount::new(&header.account(record.data), header.rent_epoch);
                Some(StakedAccount::Vote(Box::new(account)))
            }
            _ => return,
        };
        if let Some(staked) = staked {
            self.newest.keep(header.pubkey, storage, record.offset_bytes, staked);
        }
    }

    fn delegation(&self, address: &[u8; 32]) -> Option<Delegation> {
        self.newest.get(address, |staked| match staked {
            StakedAccount::Delegation(delegation) => Some(*delegation),
            StakedAccount::Vote(..) => None,
        })
    }

    fn vote_account(&self, address: &[u8; 32]) -> Option<VoteAccount> {
        self.newest.get(address, |staked| match staked {
            StakedAccount::Vote(account) => Some(**account),
            StakedAccount::Delegation(..) => None,
        })
    }

    /// Compares the stakes of a bank file with the accounts. Call this only after superseded versions have
    /// been dropped.
    pub fn judge(&self, stakes: &Stakes, failures: &Failures) -> Result<()> {
        if stakes.is_truncated || self.newest.has_overflowed() {
            failures.skip(Check::State, format!("more than {DELEGATIONS_MAX} stake accounts"));
            return Ok(());
        }
        self.judge_vote_accounts(stakes, failures)?;
        for (address, delegation) in &stakes.delegations {
            let (rule, found) = match self.delegation(address) {
                Some(found) if found == *delegation => continue,
                Some(found) if found.is_same_stake(delegation) => (Rule::StakesRate, "a different rate"),
                Some(_) => (Rule::StakesDelegation, "a different delegation"),
                None => (Rule::StakesDelegation, "no delegated stake account"),
            };
            let expected = "the delegation that the bank file's stakes hold";
            failures.at(FailurePlace::account(*address)).add(rule, expected, found)?;
        }
        self.judge_voters(stakes, failures)
    }

    fn judge_vote_accounts(&self, stakes: &Stakes, failures: &Failures) -> Result<()> {
        let rent_epoch_rule = if self.lacks_rent_epochs { Rule::NoRentEpoch } else { Rule::StakesRentEpoch };
        for (address, account) in readable_accounts(stakes) {
            let place = FailurePlace::account(*address);
            let found = match self.vote_account(address) {
                Some(found) if found == *account => continue,
                Some(found) if found.digest == account.digest => {
                    failures.at(place).add(rent_epoch_rule, account.rent_epoch, found.rent_epoch)?;
                    continue;
                }
                Some(_) => "a different vote account",
                None => "no vote account",
            };
            let expected = "the vote account that the bank file's stakes hold";
            failures.at(place).add(Rule::StakesVoteAccount, expected, found)?;
        }
        Ok(())
    }

    /// Checks that the bank file's stakes hold the vote account of each stake account. Agave up to 4.4
    /// uses the delegations in the bank file; later versions use those in the stake accounts.
    fn judge_voters(&self, stakes: &Stakes, failures: &Failures) -> Result<()> {
        let vote_accounts: HashSet<&[u8; 32]> = readable_accounts(stakes).map(|(address, _)| address).collect();
        let mut missing = self.find_unlisted_voters(&vote_accounts);
        missing.retain(|_, voter| self.vote_account(voter).is_some_and(|account| is_usable(&account)));
        if missing.is_empty() {
            return Ok(());
        }
        let delegations = stakes.delegations.iter();
        let listed: HashSet<&[u8; 32]> = delegations.map(|(address, _)| address).collect();
        for (address, voter) in missing {
            let rule = if listed.contains(&address) { Rule::StakesVoteAccount } else { Rule::StakesVoter };
            let expected = format!("its vote account {} in the bank file's stakes", Hash(voter));
            failures.at(FailurePlace::account(address)).add(rule, expected, "none there")?;
        }
        Ok(())
    }

    /// Returns the addresses of stake accounts whose vote accounts are not in `vote_accounts`, with the
    /// addresses of these vote accounts.
    fn find_unlisted_voters(&self, vote_accounts: &HashSet<&[u8; 32]>) -> BTreeMap<[u8; 32], [u8; 32]> {
        let mut voters = BTreeMap::new();
        self.newest.for_each(|address, staked| {
            if let StakedAccount::Delegation(delegation) = staked
                && !vote_accounts.contains(&delegation.voter())
            {
                voters.insert(*address, delegation.voter());
            }
        });
        voters
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::RecordHeader;

    use super::*;

    fn delegated_to(voter: u8) -> Vec<u8> {
        let mut data = vec![0; 200];
        data[0] = 2;
        data[124..156].fill(voter);
        data
    }

    fn keep_account(
        stakes: &StakeAccounts,
        owner: [u8; 32],
        address: [u8; 32],
        (slot, number): (u64, u32),
        data: &[u8],
    ) {
        let mut header = RecordHeader::parse(&[0; 136]);
        (header.owner, header.pubkey, header.lamports) = (owner, address, 1);
        let storage = StorageRef { number, slot, id: 1 };
        stakes.keep_if_staked(storage, &Record { offset_bytes: 0, header: &header, data });
    }

    fn voter(stakes: &StakeAccounts, address: [u8; 32]) -> Option<u8> {
        stakes.delegation(&address).map(|delegation| delegation.voter()[0])
    }

    #[test]
    fn only_vote_and_stake_accounts_are_kept() {
        let stakes = StakeAccounts::default();
        keep_account(&stakes, [8; 32], [9; 32], (5, 0), &[1; 40]);
        stakes.newest.for_each(|_, _| panic!("accounts of other owners are not kept"));
        // The unreadable account is compared with the bank file, although Agave does not keep it.
        keep_account(&stakes, VOTE, [7; 32], (5, 0), &[9; 40]);
        assert!(stakes.vote_account(&[7; 32]).is_some_and(|account| account.node.is_none()));
    }

    #[test]
    fn a_usable_vote_account_has_a_node_and_is_initialized() {
        let account = VoteAccount { digest: [0; 32], rent_epoch: 0, node: Some([1; 32]), is_initialized: true };
        assert!(is_usable(&account));
        assert!(!is_usable(&VoteAccount { node: None, ..account }));
        assert!(!is_usable(&VoteAccount { is_initialized: false, ..account }));
    }

    #[test]
    fn the_number_of_accounts_is_limited() {
        let stakes = StakeAccounts { newest: NewestVersions::new(1), ..StakeAccounts::default() };
        let is_judged = || {
            let failures = Failures::new();
            stakes.judge(&Stakes::default(), &failures).expect("collected");
            failures.skip_reason(Check::State).is_none()
        };
        keep_account(&stakes, STAKE, [1; 32], (5, 0), &delegated_to(1));
        assert!(voter(&stakes, [1; 32]).is_some(), "the last account that fits");
        assert!(is_judged());
        keep_account(&stakes, STAKE, [2; 32], (5, 0), &delegated_to(1));
        assert!(voter(&stakes, [2; 32]).is_none(), "one account too many");
        assert!(!is_judged());
    }
}
