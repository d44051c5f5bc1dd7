//! Addresses that are known, and names for the pools of those that a seed makes up.

pub use slotpress_format::ledger::programs::*;

/// The pool of mints.
pub const MINTS: u64 = 1;
/// The pool of wallets that own many accounts.
pub const WALLETS: u64 = 2;
/// The pool of markets and other accounts that program state points to.
pub const MARKETS: u64 = 3;
/// The pool of vote accounts.
pub const VOTERS: u64 = 4;
/// The pool of NFT collections: their authorities and creators.
pub const COLLECTIONS: u64 = 5;
/// The pool of blockhashes.
pub const BLOCKHASHES: u64 = 6;
/// The pool of bank hashes.
pub const BANK_HASHES: u64 = 7;
