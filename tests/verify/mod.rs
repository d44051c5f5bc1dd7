//! Whether `verify` finds what is wrong, where it is, and agrees with the clients.

mod agreement;
mod altered;
pub mod fields;
mod fixtures;
mod flips;
mod good;
mod ledgers;
mod places;
mod reports;
mod strictness;
mod versions;

mod without_index;
