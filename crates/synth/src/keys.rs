//! Well-known addresses, and ids of pools of made-up addresses and hashes. The seed determines the contents of
//! each pool.

pub use slotpress_format::ledger::programs::*;

pub const MINTS: u64 = 1;
pub const WALLETS: u64 = 2;
/// Pool of markets and other accounts to which program state refers.
pub const MARKETS: u64 = 3;
pub const VOTERS: u64 = 4;
pub const COLLECTIONS: u64 = 5;
pub const BLOCKHASHES: u64 = 6;
pub const BANK_HASHES: u64 = 7;
