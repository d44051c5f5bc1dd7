//! What an archive file is made of: tar entries, frames, the index, the seek table.
//!
//! Shared by what writes archives (`archive`) and what reads them (`restore`). Pure: bytes in, bytes out; no files, no
//! threads. `docs/format.md` describes the same for people.

// Everything here reads what others wrote.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod assemble;
pub mod entry;
pub mod entry_parser;
pub mod extension;
pub mod frame_hashes;
pub mod frames;
pub mod genesis_archive;
pub mod header_search;
pub mod index;
pub mod limits;
pub mod listing;
pub mod seek_table;
pub mod zstd_frame;
