//! Which level boots nodes soonest over a link: time from a ledger here to a ledger there, for each level.
//!
//! [`network`] tells how fast a link carries bytes, [`model`] adds up what a node waits for, [`question`] holds what is
//! asked and what it comes to for one level, [`report`] sets levels side by side, [`break_even`] finds the bandwidths at
//! which one level overtakes another, [`recommend`] says it in words, [`view`] shows it, [`curves`] draws it. All of it is
//! pure: rows of measured levels go in, numbers come out. `docs/levels.md` tells the model and how it was checked.

pub mod break_even;
pub mod curves;
pub mod model;
pub mod network;
pub mod question;
pub mod recommend;
pub mod report;
pub mod units;
pub mod view;
