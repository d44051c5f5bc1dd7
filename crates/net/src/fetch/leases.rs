//! Which parts of a file are leased: as many as there are requests under way.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// The leases of a file.
#[derive(Debug, Default)]
pub struct Leases(Mutex<Vec<Held>>);

/// What a lease is for, until it is taken over. Writing or marking by a lease holds this lock meanwhile.
pub type Held = Arc<Mutex<Option<Range<u64>>>>;

/// Locks, also after a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Leases {
    /// Leases a range. A lease of a part of it is lost: when this returns, nothing more is written by it.
    pub fn take(&self, range: Range<u64>) -> Held {
        let held: Held = Arc::new(Mutex::new(Some(range.clone())));
        let mut leases = lock(&self.0);
        leases.retain(|other| {
            let mut other = lock(other);
            let is_taken_over = other.as_ref().is_none_or(|other| other.start < range.end && range.start < other.end);
            if is_taken_over {
                *other = None;
            }
            !is_taken_over
        });
        leases.push(held.clone());
        held
    }

    /// It is not needed any more.
    pub fn give_back(&self, held: &Held) {
        lock(&self.0).retain(|other| !Arc::ptr_eq(other, held));
    }
}
