//! `slotpress serve`, `list` and `prune`, as clients and operators meet them: the program itself, on 127.0.0.1, with real
//! clients and hostile ones.

mod catalog;
mod clients;
mod hostile;
mod limits;
mod lives;
mod page;
mod proxied;
pub mod server;
mod tls;
