//! Leases: the right to write a range of a partial file, which only one request has at a time.
//!
//! A second request for the same bytes takes the lease over. Late bytes of the first request are
//! dropped, because the range may have been rewritten, checked and read since.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use slotpress_base::Result;

use super::partial::PartialFile;

/// All leases of a file.
#[derive(Debug, Default)]
pub struct Leases(Mutex<Vec<Held>>);

/// The range of a lease; `None` once it is taken over. Its holder keeps this locked while it writes
/// or marks bytes.
type Held = Arc<Mutex<Option<Range<u64>>>>;

impl Leases {
    /// Leases a range, and takes over all leases that overlap it. Their holders write nothing after
    /// this returns.
    fn take(&self, range: Range<u64>) -> Held {
        let held: Held = Arc::new(Mutex::new(Some(range.clone())));
        let mut leases = self.0.lock();
        leases.retain(|other| {
            let mut other = other.lock();
            let is_taken_over = other.as_ref().is_none_or(|other| other.start < range.end && range.start < other.end);
            if is_taken_over {
                *other = None;
            }
            !is_taken_over
        });
        leases.push(held.clone());
        held
    }

    fn give_back(&self, held: &Held) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, held));
    }
}

/// A lease of a range of a file.
#[derive(Debug)]
pub struct Lease<'a> {
    file: &'a PartialFile,
    held: Held,
}

impl PartialFile {
    /// Leases a range, and takes over all leases that overlap it. Their holders write nothing after
    /// this returns.
    pub fn lease(&self, range: Range<u64>) -> Lease<'_> {
        Lease { file: self, held: self.leases.take(range) }
    }
}

impl Lease<'_> {
    pub fn is_lost(&self) -> bool {
        self.held.lock().is_none()
    }

    /// Writes bytes, except where the file is marked. Returns how many were written; `None` if the
    /// lease was taken over, or does not cover them.
    pub fn put(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Option<u64>> {
        let end = offset_bytes.saturating_add(bytes.len() as u64);
        let held = self.held.lock();
        match held.as_ref().is_some_and(|held| held.start <= offset_bytes && end <= held.end) {
            true => self.file.write(offset_bytes, bytes).map(Some),
            false => Ok(None),
        }
    }

    /// Marks a range if `is_right` returns true. Nothing writes to the range while `is_right` runs.
    /// Returns `None` if the lease was taken over: its new holder marks the range.
    pub fn mark(&self, range: Range<u64>, is_right: impl FnOnce() -> Result<bool>) -> Result<Option<bool>> {
        let held = self.held.lock();
        if held.is_none() {
            return Ok(None);
        }
        let is_right = is_right()?;
        if is_right {
            self.file.mark(range);
        }
        Ok(Some(is_right))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.file.leases.give_back(&self.held);
    }
}
