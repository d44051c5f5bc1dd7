//! The state that the accounts of an archive or a ledger make up: capitalization and lattice hash over the newest version
//! of every account, in bounded memory.
//!
//! [`accounts`] hashes and logs records as they pass, [`versions`] finds out which of them a newer one supersedes, and
//! [`settle`] has those subtracted and compares what remains. [`check`] is that
//! as a part of restoring and recompressing.

pub mod accounts;
pub mod again;
pub mod check;
pub mod fingerprint;
mod known;
pub mod settle;
pub mod spill;
pub mod superseded;
pub mod suspects;
pub mod version;
pub mod versions;
