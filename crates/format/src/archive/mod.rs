//! Parts of an archive file: tar entries, frames, index, seek table, and the limits that clients
//! put on them.
//!
//! Functions here turn bytes into values and back, for writers and readers. They open no files and
//! start no threads. `docs/format.md` describes the format.

pub mod assemble;
pub mod entry;
pub mod entry_parser;
pub mod frame_hashes;
pub mod frames;
pub mod genesis_archive;
pub mod index;
pub mod limits;
pub mod listing;
pub mod seek_table;
pub mod zstd_frame;
