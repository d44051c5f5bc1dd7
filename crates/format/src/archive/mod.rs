//! What an archive file is made of: tar entries, frames, the index, the seek table.
//!
//! Shared by what writes archives (`archive`) and what reads them (`restore`). Pure: bytes in, bytes out; no files, no
//! threads. `docs/format.md` describes the same for people.

pub mod assemble;
pub mod entry;
pub mod entry_parser;
pub(crate) mod extension;
pub mod frame_hashes;
pub mod frames;
pub mod genesis_archive;
pub mod header_search;
pub mod index;
pub mod limits;
pub mod listing;
pub mod seek_table;
pub mod zstd_frame;
