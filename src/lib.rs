//! slotpress: Solana snapshot archives on all cores.
//!
//! The library behind the `slotpress` program. [`ledger`] knows what a validator keeps on disk; the features stand on
//! it. Nothing in the library prints, reads flags or exits: long work reports through [`progress::Progress`].

pub mod error;
pub mod ledger;
pub mod progress;
pub mod synth;

pub use error::{Error, ErrorKind, Result};
