//! A part of slotpress, without promises of its own: use the crate `slotpress`.
//!
//! What every other part needs, and nothing of archives or ledgers: [`error`], [`progress`], [`threads`] and [`pipeline`],
//! [`memory`] limits, [`io`] beside other programs, and small helpers for text, quantities and bytes.

pub mod bytes;
pub mod error;
pub mod files;
pub mod hint;
pub mod io;
pub mod kept_dir;
pub mod memory;
pub mod other_load;
pub mod owner;
pub mod pipeline;
pub mod pool;
pub mod progress;
pub mod quantity;
pub mod random;
pub mod stopwatch;
pub mod text;
pub mod threads;
