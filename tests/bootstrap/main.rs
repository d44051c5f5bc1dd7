//! `fetch` and `bootstrap` against servers that are good, bad, slow, dead, or lie: real sockets, on this machine only.

#![cfg(feature = "net")]
#![allow(clippy::expect_used)] // a test that cannot go on has failed

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, unused_imports)]
#[path = "../net/server.rs"]
mod server;

mod fetching;
mod ledgers;
mod serving;
mod site;
