//! The one book of rules: what a snapshot archive may hold, in which order and lengths, and which client minds
//! ([`rule`], with the limits of [`format::limits`](slotpress_format::archive::limits)).
//!
//! [`archive::ArchiveRules`] applies it to an archive while that is read. Findings are collected, or end the work at the
//! first that must not be ([`findings`]); either way the rules are these. A new rule is a row in [`rule`], and a line
//! where it is looked at: `entries`, `frames`, [`documents`], `bank`.

pub mod archive;
pub(crate) mod bank;
pub mod clients;
pub mod documents;
pub(crate) mod entries;
pub mod findings;
pub(crate) mod frames;
pub mod rule;
