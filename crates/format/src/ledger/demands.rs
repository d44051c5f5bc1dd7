//! Demands of clients on the values of fields in the bank file and the status cache.
//! docs/snapshot-format.md lists all demands.

use crate::Address;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Every vote account in the stakes of the newest epoch whose leaders are known has stake.
    VoteAccountStake,
    /// An epoch's stakes have no more vote accounts than Firedancer allows.
    VoteAccountLimit,
    FiredancerLimit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub demand: Demand,
    /// Value that meets the demand.
    pub expected: String,
    pub found: String,
    /// Offset of the byte after the field.
    pub offset_bytes: u64,
    pub account: Option<Address>,
}

/// Limit on the recorded breaches of one demand. A damaged file may have a breach in each item.
pub const BREACHES_PER_DEMAND_MAX: usize = 8;

/// Firedancer's limits (`fd_ssmanifest_parser.c`, `fd_slot_delta_parser.c`, `fd_ssload.c`
/// and `fd_runtime_const.h`).
pub mod firedancer {
    /// Name of what is counted, and the largest number that Firedancer accepts.
    pub type CountLimit<'a> = (&'a str, u64);

    pub const ANCESTORS: CountLimit<'_> = ("ancestors", 8192);
    pub const HARD_FORKS: CountLimit<'_> = ("hard forks", 64);
    pub const CAPITALIZATION: CountLimit<'_> = ("lamports", i64::MAX as u64);
    pub const VOTE_ACCOUNTS: CountLimit<'_> = ("vote accounts in the stakes", 40_200);
    pub const DELEGATIONS: CountLimit<'_> = ("delegations in the stakes", 2_150_000);
    pub const EPOCH_DELEGATIONS: CountLimit<'_> = ("delegations of an epoch", 1 << 22);
    pub const EPOCH_VOTE_ACCOUNTS_MAX: u64 = 2000;
    /// Limit on the items of a list that Firedancer skips.
    pub const ITEMS_MAX: u64 = 1 << 20;
    /// Limit on the storages of one slot, and on the nodes of an epoch.
    pub const GROUPS_MAX: u64 = 1 << 16;
    pub const EPOCHS: CountLimit<'_> = ("epochs in the epoch stakes", 6);
    /// Largest offset at which transaction hashes are cut.
    pub const TRANSACTION_OFFSET: CountLimit<'_> = ("the offset in transaction hashes", 11);
    /// Limit on the blockhashes in the status cache, over all slots.
    pub const CACHED_BLOCKHASHES: CountLimit<'_> = ("blockhashes", 300 * 151);
    /// Limit on the transactions of one slot in the status cache. Agave writes each transaction twice.
    pub const SLOT_TRANSACTIONS: CountLimit<'_> = ("transactions of a slot", 2 * 98_039);
}
