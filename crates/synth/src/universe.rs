//! The accounts of a seed: their addresses, and the random numbers that determine their contents.

use super::keys::KNOWN_MINTS;
use super::mix::AccountMix;
use super::rng::{Rng, derive_number};

/// Purpose of a derived number. Each purpose has its own numbers. The values determine the bytes of all ledgers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Accounts = 0,
    Mints = 1,
    Wallets = 2,
    /// Markets and other accounts to which program state refers.
    Markets = 3,
    Voters = 4,
    Collections = 5,
    Blockhashes = 6,
    BankHashes = 7,
    StorageSizes = 101,
    ChangeClasses = 102,
    ChangesWithinState = 103,
    ChangesBetweenStates = 104,
    StorageIds = 105,
    WriteVersions = 201,
    Padding = 202,
    Bank = 301,
    VoteAccounts = 302,
    Delegations = 303,
    StakeHistory = 304,
    StakeAccounts = 305,
    RandomOwner = 311,
    TransactionResults = 401,
    HashOffsets = 402,
    Genesis = 501,
}

/// Identity of an account: the storage in which it first appears, and its index among the accounts that first
/// appear there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub storage: u64,
    pub index: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Universe {
    seed: u64,
    pub account_mix: AccountMix,
}

pub struct AccountRngs<'a> {
    pub universe: &'a Universe,
    /// Storage in which the account first appears. Accounts of neighboring storages resemble each other.
    pub storage: u64,
    /// Stream for properties that all versions share, such as the mint and the owner.
    pub account: Rng,
    /// Stream for properties of this version, such as balances and counters.
    pub version: Rng,
}

impl Universe {
    pub fn new(seed: u64, account_mix: AccountMix) -> Self {
        Self { seed: derive_number(0x736c_6f74_7072_6573, seed), account_mix }
    }

    /// Derives a number from the seed.
    pub fn number(&self, purpose: Purpose, index: u64) -> u64 {
        derive_number(derive_number(self.seed, purpose as u64), index)
    }

    /// Returns an address to which many accounts refer, such as a mint, a market or a validator. The most
    /// common mints are those of mainnet.
    pub fn shared_key(&self, purpose: Purpose, rank: u64) -> [u8; 32] {
        let known = if purpose == Purpose::Mints { KNOWN_MINTS.get(rank as usize) } else { None };
        known.copied().unwrap_or_else(|| Rng::new(self.number(purpose, rank)).key())
    }

    /// Returns the number that determines all properties of an account.
    pub fn account_seed(&self, origin: Origin) -> u64 {
        derive_number(self.number(Purpose::Accounts, origin.storage), origin.index)
    }

    pub fn pubkey(&self, origin: Origin) -> [u8; 32] {
        Rng::new(derive_number(self.account_seed(origin), 1)).key()
    }

    pub fn account_rngs(&self, origin: Origin, version: u64) -> AccountRngs<'_> {
        let seed = self.account_seed(origin);
        AccountRngs {
            universe: self,
            storage: origin.storage,
            account: Rng::new(derive_number(seed, 2)),
            version: Rng::new(derive_number(seed, 3 + version)),
        }
    }
}
