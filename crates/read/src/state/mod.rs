//! Computes the state of an archive or a ledger: capitalization and lattice hash over the newest
//! version of every account, in bounded memory.
//!
//! [`pass`] hashes and logs records as they are read, and [`version_log`] finds the superseded ones. For a
//! check, [`accounts`] subtracts the superseded records from the sums. For a visit, it passes every record to
//! the visitor, and says whether the record is superseded. In the end, it compares the sums with the bank
//! file.

// This code handles its own log, and records whose bytes the parsers have already checked. Because every
// record passes through it, checked operations would take noticeable time.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

pub mod accounts;
pub mod check;
pub mod fingerprint;
pub mod kept_records;
mod known;
pub mod log_item;
pub mod marks;
pub mod newest;
pub mod pass;
pub mod spill;
pub mod stakes;
pub mod storages;
pub mod sums;
pub mod superseded;
pub mod version_log;
pub mod visitor;
pub mod well_known;
