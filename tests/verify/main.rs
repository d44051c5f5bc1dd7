//! Whether `verify` finds what is wrong, where it is, and agrees with the clients.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod agreement;
mod altered;
mod fixtures;
mod flips;
mod good;
mod ledgers;
#[path = "../common/oracle.rs"]
mod oracle;
mod places;
mod versions;

mod without_index;
