//! The right to write a part of a partial file: one request has it at a time.
//!
//! A second request for the same bytes takes the lease over. What comes late from the first is dropped here: the
//! bytes may have been replaced, checked and read since.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use slotpress_base::Result;

use super::partial::PartialFile;

#[derive(Debug, Default)]
pub struct Leases(Mutex<Vec<Held>>);

/// What a lease is for, until it is taken over. Writing or marking by a lease holds this lock meanwhile.
type Held = Arc<Mutex<Option<Range<u64>>>>;

impl Leases {
    /// Leases a range. A lease of a part of it is lost: when this returns, nothing more is written by it.
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

/// A lease of a part of a file, for the bytes of one source.
#[derive(Debug)]
pub struct Lease<'a> {
    file: &'a PartialFile,
    held: Held,
    source: usize,
}

impl PartialFile {
    /// Leases a range for the bytes of a source, which is named without secrets. The holder of a lease of a part of it
    /// loses it: when this returns, nothing more is written by it.
    pub fn lease(&self, range: Range<u64>, source: &str) -> Lease<'_> {
        let source = self.source(source);
        let held = self.leases.take(range);
        Lease { file: self, held, source }
    }
}

impl Lease<'_> {
    pub fn file(&self) -> &PartialFile {
        self.file
    }

    pub fn is_lost(&self) -> bool {
        self.held.lock().is_none()
    }

    /// Puts bytes at their place, but where others are marked, and returns how many were put; `None` when the lease has
    /// been taken over, or is not of these bytes: nothing is put then.
    pub fn put(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Option<u64>> {
        let end = offset_bytes.saturating_add(bytes.len() as u64);
        let held = self.held.lock();
        match held.as_ref().is_some_and(|held| held.start <= offset_bytes && end <= held.end) {
            true => self.file.write(offset_bytes, bytes, self.source).map(Some),
            false => Ok(None),
        }
    }

    /// Marks a range if `is_right` says so; the range does not change meanwhile. `None` when the lease has been taken
    /// over: its new holder marks the range.
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
