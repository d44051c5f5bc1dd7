//! Vote accounts and delegations of a state, collected while its records pass, and compared with those that the bank file
//! keeps: Agave looks up each of them when it loads a snapshot.
//!
//! Of each account the newest version is kept that is a vote account or a delegated stake account, about 150 bytes. Whether
//! it is the newest of all is known when superseded records are ([`StakeAccounts::drop_superseded`]).

use {
    super::{
        fingerprint::Fingerprint,
        superseded::{ByStorage, is_listed},
    },
    crate::{
        archive::visit::StorageRef,
        rules::{
            clients::Rule,
            findings::{Check, Findings, Place},
        },
    },
    slotpress_base::error::Result,
    slotpress_format::ledger::{
        names::{Address, Hash},
        programs::{STAKE, VOTE},
        records::Record,
        stakes::{DELEGATIONS_MAX, Delegation, Stakes, VOTE_ACCOUNTS_MAX, VoteAccount},
    },
    std::{
        collections::{HashMap, HashSet},
        sync::{
            Mutex, MutexGuard, PoisonError,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    },
};

/// Workers seldom wait for each other: stake accounts are one of some hundred.
const SHARDS: usize = 64;

/// Accounts that are kept, at most.
const ACCOUNTS_MAX: usize = DELEGATIONS_MAX + VOTE_ACCOUNTS_MAX;

/// What stands behind the stakes of a bank.
#[derive(Debug)]
pub enum Staked {
    /// A stake account that is delegated.
    Delegation(Delegation),
    /// A vote account.
    Vote(Box<VoteAccount>),
}

#[derive(Debug)]
struct Found {
    staked: Staked,
    slot: u64,
    storage: u32,
    fingerprint: Fingerprint,
}

type Shard = HashMap<[u8; 32], Found>;

/// The vote accounts and delegated stake accounts of a state in the making, by address.
#[derive(Debug)]
pub struct StakeAccounts {
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicUsize,
}

impl Default for StakeAccounts {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), count: AtomicUsize::default() }
    }
}

impl StakeAccounts {
    fn shard(&self, address: &[u8; 32]) -> MutexGuard<'_, Shard> {
        // Made-up addresses may all be of one shard: then workers wait for each other.
        let number = usize::from(address[4]) % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record that is no tombstone.
    pub fn look_at(&self, storage: StorageRef, fingerprint: Fingerprint, record: &Record<'_>) {
        let header = &record.header;
        let staked = match header.owner {
            STAKE => Delegation::of_account(record.data).map(Staked::Delegation),
            VOTE => {
                let is_executable = header.executable != 0;
                let account = VoteAccount::new(header.lamports, &VOTE, is_executable, header.rent_epoch, record.data);
                Some(Staked::Vote(Box::new(account)))
            }
            _ => return,
        };
        let Some(staked) = staked else { return };
        let found = Found { staked, slot: storage.slot, storage: storage.number, fingerprint };
        let mut shard = self.shard(&header.pubkey);
        match shard.get_mut(&header.pubkey) {
            // Of storages of one slot, the later in the archive.
            Some(known) if (known.slot, known.storage) < (found.slot, found.storage) => *known = found,
            Some(_) => {}
            None if self.count.fetch_add(1, Relaxed) < ACCOUNTS_MAX => {
                shard.insert(header.pubkey, found);
            }
            None => {}
        }
    }

    /// Forgets versions that a newer one supersedes.
    pub fn drop_superseded(&self, superseded: &ByStorage) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, found| !is_listed(superseded.of_storage(found.storage), &found.fingerprint));
        }
    }

    /// The delegation of a stake account.
    pub fn delegation(&self, address: &[u8; 32]) -> Option<Delegation> {
        match self.shard(address).get(address)?.staked {
            Staked::Delegation(delegation) => Some(delegation),
            Staked::Vote(_) => None,
        }
    }

    /// A vote account.
    pub fn vote_account(&self, address: &[u8; 32]) -> Option<VoteAccount> {
        match &self.shard(address).get(address)?.staked {
            Staked::Vote(account) => Some(**account),
            Staked::Delegation(_) => None,
        }
    }

    /// Compares the stakes of a bank file with the accounts, once superseded versions are dropped.
    pub fn judge(&self, stakes: &Stakes, findings: &Findings) -> Result<()> {
        if stakes.has_more || self.count.load(Relaxed) > ACCOUNTS_MAX {
            findings.skip(Check::State, format!("more than {DELEGATIONS_MAX} stake accounts"));
            return Ok(());
        }
        let add = |rule, address: &[u8; 32], expected: String, found: &str| {
            let place = Place { account: Some(Address(*address)), ..Place::default() };
            findings.add(Check::State, rule, place, expected, found)
        };
        // What cannot be read is no entry for Agave 4.2, and ends the load of later versions.
        let voters = stakes.vote_accounts.iter().filter(|(_, account)| account.node.is_some());
        let known: HashSet<&[u8; 32]> = voters.clone().map(|(address, _)| address).collect();
        for (address, account) in voters {
            let found = match self.vote_account(address) {
                Some(found) if found.digest == account.digest => continue,
                Some(_) => "another vote account",
                None => "no vote account",
            };
            add(
                Rule::StakesVoteAccount,
                address,
                "the vote account that the bank file's stakes hold".to_string(),
                found,
            )?;
        }
        for (address, delegation) in &stakes.delegations {
            let (rule, found) = match self.delegation(address) {
                Some(found) if found == *delegation => continue,
                Some(found) if found.is_same_stake(delegation) => (Rule::StakesRate, "another rate"),
                Some(_) => (Rule::StakesDelegation, "another delegation"),
                None => (Rule::StakesDelegation, "no delegated stake account"),
            };
            add(rule, address, "the delegation that the bank file's stakes hold".to_string(), found)?;
        }
        // Up to 4.4, Agave looks at the delegations of the bank file here, later at those of the accounts.
        let is_usable = |account: VoteAccount| account.node.is_some() && account.is_initialized;
        let mut missing = self.delegations_to_others(&known);
        missing.retain(|(_, voter)| self.vote_account(voter).is_some_and(is_usable));
        if missing.is_empty() {
            return Ok(());
        }
        let listed: HashSet<&[u8; 32]> = stakes.delegations.iter().map(|(address, _)| address).collect();
        for (address, voter) in missing {
            let rule = if listed.contains(&address) { Rule::StakesVoteAccount } else { Rule::StakesVoter };
            add(rule, &address, format!("its vote account {} in the bank file's stakes", Hash(voter)), "none there")?;
        }
        Ok(())
    }

    /// Stake accounts whose vote account is not among these, by address, with it.
    fn delegations_to_others(&self, known: &HashSet<&[u8; 32]>) -> Vec<([u8; 32], [u8; 32])> {
        let mut others = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            others.extend(
                shard
                    .iter()
                    .filter_map(|(address, found)| match &found.staked {
                        Staked::Delegation(delegation) => Some((*address, delegation.voter())),
                        Staked::Vote(_) => None,
                    })
                    .filter(|(_, voter)| !known.contains(voter)),
            );
        }
        others.sort_unstable();
        others
    }
}
