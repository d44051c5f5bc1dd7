//! Well-known addresses, and purposes of made-up addresses and hashes (see
//! [`Universe::number`](super::universe::Universe::number)).

pub use slotpress_format::ledger::programs::*;

pub const MINTS: u64 = 1;
pub const WALLETS: u64 = 2;
/// Markets and other accounts to which program state refers.
pub const MARKETS: u64 = 3;
pub const VOTERS: u64 = 4;
pub const COLLECTIONS: u64 = 5;
pub const BLOCKHASHES: u64 = 6;
pub const BANK_HASHES: u64 = 7;
