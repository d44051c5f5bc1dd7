//! A part of slotpress, without promises of its own: use the crate `slotpress`.
//!
//! Where archives are published: a directory, or a bucket of S3 or of what speaks like it, behind one [`Store`] whose calls
//! block and can be told to stop. A [`Target`] says which; [`S3Options`] how a bucket is reached. What a store answers is
//! untrusted: heads, lists and errors have limits. Requests are made by the connections of [`slotpress_net::Client`], are
//! tried again by its one rule ([`slotpress_net::patience`]), and are signed by `object_store`. Reading goes through
//! `slotpress_net` as from any server: this crate only signs ([`S3Options`] is a [`slotpress_net::stores::Stores`]).

// Much here is what others wrote.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod answers;
mod bucket;
mod credentials;
mod directory;
mod failure;
mod options;
mod parts;
mod profile;
mod store;
mod target;
mod upload;

pub use options::{S3Options, StoreOptions};
pub use parts::{PART_BYTES_MIN, PARTS_MAX, UploadState};
pub use store::{Condition, Metadata, Object, Put, Small, Store};
pub use target::Target;
pub use upload::Upload;
