//! `slotpress serve`, `list` and `prune`, as clients and operators meet them: the program itself, on 127.0.0.1, with real
//! clients and hostile ones.

#![allow(clippy::expect_used)] // a test that cannot go on has failed

#[path = "../common/mod.rs"]
mod common;

mod catalog;
mod clients;
mod hostile;
mod limits;
mod lives;
mod page;
mod server;
mod tls;
