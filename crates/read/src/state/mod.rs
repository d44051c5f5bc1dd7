//! Computes the state of an archive or a ledger: capitalization and lattice hash over the newest
//! version of every account, in bounded memory.
//!
//! [`accounts`] hashes and logs records as they pass, [`versions`] finds superseded ones, and
//! [`finish`] subtracts those and compares the rest with the bank file. [`check`] does this for
//! restoring and recompressing. [`first_pass`] is the visitor of all commands that read whole
//! archives.

// This code handles parsed records and its own log in arrays of fixed sizes, and every record
// passes through it: bounds checks would cost time, and find nothing that another program wrote.
#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

pub mod accounts;
pub mod again;
pub mod check;
pub mod fingerprint;
pub mod finish;
pub mod first_pass;
pub mod kept_records;
mod known;
pub mod layers;
mod newest;
pub mod rewards;
pub mod second_pass;
pub mod spill;
pub mod stakes;
pub mod sums;
pub mod superseded;
pub mod version;
pub mod versions;
pub mod well_known;
