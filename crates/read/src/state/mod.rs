//! The state that the accounts of an archive or a ledger make up: capitalization and lattice hash over the newest version
//! of every account, in bounded memory.
//!
//! [`accounts`] hashes and logs records as they pass, [`versions`] finds out which of them a newer one supersedes, and
//! [`finish`] has those subtracted and compares what remains. [`check`] is that
//! as a part of restoring and recompressing. [`first_pass`] is the visitor of all commands that read archives whole.

// It works on parsed records and on its own log, in arrays of fixed sizes, and every record passes here: the lints of this
// crate would cost time, and find nothing that another wrote.
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
pub mod second_pass;
pub mod spill;
pub mod stakes;
pub mod superseded;
pub mod version;
pub mod versions;
