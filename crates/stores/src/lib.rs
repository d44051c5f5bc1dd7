//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Stores for archives: a directory, or a bucket of S3 or a compatible service. A [`Store`] has
//! blocking calls that can be interrupted; a [`Target`] names one, and [`S3Options`] tells how to
//! reach buckets. Answers of stores are untrusted: heads, lists and errors have limits. Requests
//! use the connections of [`slotpress_net::Client`], are retried by [`slotpress_net::patience`],
//! and signed by `object_store`. Archives are read through `slotpress_net` as from any server; this
//! crate only signs ([`S3Options`] implements [`slotpress_net::stores::Stores`]).

// These lints apply because stores send much of what is handled here.
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

pub use object_store::{Attribute, Attributes};
pub use options::{S3Options, StoreOptions};
pub use parts::{PART_BYTES_MIN, PARTS_MAX, UploadState};
pub use store::{Condition, Object, Put, Small, Store, headers_of};
pub use target::Target;
pub use upload::Upload;
