//! slotpress: Solana snapshot archives on all cores.
//!
//! The library behind the `slotpress` program. [`ledger`] knows what a validator keeps on disk; the features stand on
//! it. Nothing in the library prints, reads flags or exits: long work reports through [`progress::Progress`].

pub mod archive;
#[cfg(feature = "net")]
pub mod bootstrap;
pub mod catalog;
pub mod cli;
pub mod doctor;
pub mod error;
#[cfg(feature = "net")]
pub mod fetch;
pub mod files;
#[cfg(feature = "net")]
pub mod find;
pub mod format;
pub mod inspect;
pub mod io;
pub mod ledger;
pub mod levels;
pub mod memory;
#[cfg(feature = "net")]
pub mod net;
pub mod pipeline;
pub mod pool;
pub mod progress;
pub mod quantity;
pub mod read;
pub mod read_back;
pub mod recompress;
pub mod restore;
pub mod rules;
#[cfg(feature = "serve")]
pub mod serve;
pub mod state;
pub mod stopwatch;
pub mod store;
pub mod synth;
pub mod text;
pub mod threads;
pub mod verify;

pub use error::{Error, ErrorKind, Result};
