//! Which level starts nodes soonest over a link: the time from a ledger here to a ledger there, for each level.
//!
//! [`network`] computes the rate of a link, [`model`] the time of the stages, [`question`] holds the question and the
//! answer for one level, [`report`] sets levels side by side, [`break_even`] finds the bandwidths at
//! which one level overtakes another, [`recommend`] says it in words, [`view`] shows it. All of it is pure: rows of
//! measured levels go in, numbers come out. `docs/levels.md` describes the model and its check.

pub mod break_even;
pub mod model;
pub mod network;
pub mod question;
pub mod recommend;
pub mod report;
pub mod units;
pub mod view;
