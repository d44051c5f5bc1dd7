//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Stores for archives: a directory, or a bucket of S3 or a compatible service. A [`Store`] has
//! blocking calls that can be interrupted, and a [`Target`] names a store. [`S3Options`] says how to
//! reach buckets. [`slotpress_net::s3`] makes requests to them, and [`slotpress_net::retries`] retries
//! them.

#![warn(missing_docs)]
// These lints apply because this crate handles what stores send.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod directory;
mod options;
mod parts;
mod store;
mod target;
mod upload;

pub use object_store::{Attribute, Attributes};
pub use options::StoreOptions;
pub use parts::{PART_BYTES_MIN, PARTS_MAX, UploadState};
pub use slotpress_net::s3::{Condition, Object, PutOutcome, S3Options, SmallFile};
pub use store::{Store, headers_of};
pub use target::Target;
pub use upload::Upload;
