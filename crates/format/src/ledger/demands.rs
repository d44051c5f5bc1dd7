//! What clients ask of the fields of bank file and status cache, beyond that they can be read; docs/snapshot-format.md lists
//! all of it.

use crate::Address;

/// Something that a client asks of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The unused epoch stakes of the bank are empty.
    UnusedEpochStakes,
    /// The flag in the unused rent collector is 0 or 1.
    RentCollectorFlag,
    /// The first epoch and slot of full length follow from the rest of the epoch schedule.
    EpochSchedule,
    /// The epoch stakes are those of the epochs whose leaders are known, and of none beyond.
    EpochStakesEpochs,
    /// A vote account in the stakes of the epoch that comes next has stake.
    NoStake,
    /// There are no more vote accounts in the stakes of an epoch than Firedancer takes.
    VoteAccountLimit,
    /// Firedancer can read a vote account's state.
    FiredancerVoteState,
    /// A number is one that Firedancer takes.
    FiredancerLimit,
    /// The block's id is not all zeros.
    BlockId,
}

/// A field that does not meet a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The demand.
    pub demand: Demand,
    /// What would meet it.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The byte behind the field.
    pub offset_bytes: u64,
    /// The account that the field is about.
    pub account: Option<Address>,
}

/// Breaches of one demand that are kept: a damaged file may hold one in each of its items.
pub const BREACHES_PER_DEMAND_MAX: usize = 8;

/// What Firedancer takes (`fd_ssmanifest_parser.c`, `fd_slot_delta_parser.c`, `fd_ssload.c` and `fd_runtime_const.h`).
pub mod firedancer {
    /// Ancestors.
    pub const ANCESTORS_MAX: u64 = 8192;
    /// Hard forks since genesis.
    pub const HARD_FORKS_MAX: u64 = 64;
    /// Lamports in existence.
    pub const CAPITALIZATION_MAX: u64 = i64::MAX as u64;
    /// Vote accounts in the stakes of the bank.
    pub const VOTE_ACCOUNTS_MAX: u64 = 40_200;
    /// Vote accounts in the stakes of an epoch.
    pub const EPOCH_VOTE_ACCOUNTS_MAX: u64 = 2000;
    /// Delegations in the stakes of the bank.
    pub const DELEGATIONS_MAX: u64 = 2_150_000;
    /// Delegations in the stakes of an epoch.
    pub const EPOCH_DELEGATIONS_MAX: u64 = 1 << 22;
    /// Items of lists that it passes over.
    pub const ITEMS_MAX: u64 = 1 << 20;
    /// Storages of one slot, and nodes of an epoch.
    pub const SMALL_ITEMS_MAX: u64 = 1 << 16;
    /// Epochs in the epoch stakes.
    pub const EPOCHS_MAX: u64 = 6;
    /// Epochs from the one before the bank's to the last whose leaders are known.
    pub const KNOWN_EPOCHS_MAX: u64 = 3;
    /// Votes, authorized voters and epochs of credits of a vote account.
    pub const VOTE_STATE_ITEMS_MAX: [usize; 3] = [31, 1024, 64];
    /// The last epoch that it has credits of.
    pub const CREDITS_EPOCH_MAX: u64 = u16::MAX as u64;
    /// Where the kept part of a transaction's hash begins.
    pub const TRANSACTION_OFFSET_MAX: u64 = 11;
    /// Blockhashes in the status cache, over all slots.
    pub const CACHED_BLOCKHASHES_MAX: u64 = 300 * 151;
    /// Transactions of one slot in the status cache, where Agave has each twice.
    pub const SLOT_TRANSACTIONS_MAX: u64 = 2 * 98_039;
}
