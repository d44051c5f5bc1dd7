//! Reads archives from any source, written by any program.
//!
//! [`OpenArchive::open`] reads the first bytes and, if there is one, the index. Then one of two loops
//! reads the archive: `by_index`, in which every worker reads frames independently, or
//! [`in_order`], which reads a stream. Both report to a [`Visitor`], which decides what is an
//! error.
//!
//! A [`Source`](source::Source) supplies the bytes. The decoders of all compressions and the
//! streaming parsers of documents are here too. The rules for what an archive may contain are in
//! [`rules`](crate::rules).

pub mod arriving;
mod batches;
mod by_index;
pub mod compression;
pub mod decode;
pub mod documents;
pub mod front;
pub mod in_order;
pub mod local;
pub mod opened;
mod peeker;
pub mod range;
pub mod shape;
pub mod source;
mod streams;
pub mod tail;
pub mod truncation;
pub mod visit;
pub mod walk;

pub use opened::{ArchiveContents, ArchiveInput, ArchivePass, OpenArchive};
use slotpress_base::{AHEAD_BYTES_MAX, Result};

use crate::archive::by_index::read_by_index;
use crate::{Visitor, read_in_order};

impl OpenArchive {
    /// Reads the archive by its index if it has a valid one, otherwise in order.
    pub fn read(&self, pass: &ArchivePass<'_>, visitor: &dyn Visitor) -> Result<ArchiveContents> {
        match &self.tail {
            Some(tail) => read_by_index(self, tail, pass, visitor),
            None => self.with_stream(AHEAD_BYTES_MAX, pass.progress, |stream| {
                read_in_order(stream, self.compression, pass, visitor, None)
            }),
        }
    }
}
