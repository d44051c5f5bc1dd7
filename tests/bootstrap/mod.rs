//! `fetch` and `bootstrap` against servers that are good, bad, slow, dead, or lie: real sockets, on this machine only.

mod fetching;
mod ledgers;
mod panics;
mod servers;
mod serving;
pub mod site;
mod sources;
