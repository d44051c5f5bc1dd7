//! The right to write a part of a partial file: one request has it at a time.
//!
//! A second request for the same bytes takes the lease over. What comes late from the first is dropped here, whoever
//! brings it: the bytes may have been replaced, checked and read since.

use {
    super::partial::PartialFile,
    slotpress_base::error::Result,
    std::{
        ops::Range,
        sync::{Arc, Mutex, MutexGuard, PoisonError},
    },
};

/// The leases of a file: as many as there are requests under way.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<Vec<Held>>);

/// What a lease is for, until it is taken over. Whoever writes or marks by a lease holds this lock meanwhile.
type Held = Arc<Mutex<Option<Range<u64>>>>;

/// A lease of a part of a file, for the bytes of one source.
#[derive(Debug)]
pub struct Lease<'a> {
    file: &'a PartialFile,
    held: Held,
    source: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PartialFile {
    /// Leases a range for the bytes of a source, which is named without secrets. Whoever has a lease of a part of it
    /// loses it: when this returns, nothing more is written by it.
    pub fn lease(&self, range: Range<u64>, source: &str) -> Lease<'_> {
        let source = self.source(source);
        let held: Held = Arc::new(Mutex::new(Some(range.clone())));
        let mut leases = lock(&self.leases.0);
        leases.retain(|other| {
            let mut other = lock(other);
            let is_taken_over = other.as_ref().is_none_or(|other| other.start < range.end && range.start < other.end);
            if is_taken_over {
                *other = None;
            }
            !is_taken_over
        });
        leases.push(held.clone());
        Lease { file: self, held, source }
    }
}

impl Lease<'_> {
    /// The file that it is of.
    pub fn file(&self) -> &PartialFile {
        self.file
    }

    /// Whether it has been taken over.
    pub fn is_lost(&self) -> bool {
        lock(&self.held).is_none()
    }

    /// Puts bytes at their place, but where others are marked, and returns how many were put; `None` when the lease has
    /// been taken over, or is not of these bytes: nothing is put then.
    pub fn put(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Option<u64>> {
        let end = offset_bytes.saturating_add(bytes.len() as u64);
        let held = lock(&self.held);
        match held.as_ref().is_some_and(|held| held.start <= offset_bytes && end <= held.end) {
            true => self.file.write(offset_bytes, bytes, self.source).map(Some),
            false => Ok(None),
        }
    }

    /// Marks a range if `is_right` says so, to whom nobody changes it meanwhile; `None` when the lease has been taken
    /// over, whose new holder sees to it.
    pub fn mark(&self, range: Range<u64>, is_right: impl FnOnce() -> Result<bool>) -> Result<Option<bool>> {
        let held = lock(&self.held);
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
        lock(&self.file.leases.0).retain(|held| !Arc::ptr_eq(held, &self.held));
    }
}
