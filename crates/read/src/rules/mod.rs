//! The rules for snapshot archives: what they may contain, in which order and sizes, and which
//! clients refuse an archive that breaks a rule ([`rule`], with the limits of
//! [`format::limits`](slotpress_format::archive::limits)).
//!
//! [`archive::ArchiveRules`] applies them while an archive is read. [`failures`] collects
//! broken rules, or ends the work at the first serious one. To add a rule, add a row to [`rule`] and
//! its check to [`archive`], `entries`, [`documents`], [`pair`] or `state`.

pub mod archive;
pub mod clients;
pub mod documents;
pub(crate) mod entries;
pub mod failures;
pub mod pair;
pub mod rule;
pub(crate) mod state;
