//! Files of a ledger and their contents: names, bank snapshot directories, the bank file, storages
//! and their records, the lattice hash, the bank hash.
//!
//! Nothing here compresses, uses the network or prints. All other crates but `slotpress-base` build
//! on this one.

pub mod activation;
pub mod bank_fields;
pub mod bank_file;
pub mod bank_hash;
pub mod blockhash_queue;
pub mod demands;
pub mod directory;
pub mod fields;
pub mod genesis;
pub mod held_lock;
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "it parses nothing: it hashes parsed accounts in arrays of fixed sizes, and is the hottest code of the crate"
)]
pub mod lattice;
pub mod leaders;
pub mod lists;
pub mod loaders;
pub mod lock;
pub mod mints;
pub mod names;
pub mod programs;
pub mod record;
pub mod records;
pub mod slot_params;
pub mod slot_time;
pub mod split;
pub mod stake_accounts;
pub mod stakes;
pub mod status_cache;
pub mod storages;
pub mod sysvars;
pub mod tokens;
pub mod votes;
