//! Limits the size to which archives may unpack: by their indexes before anything is written, and
//! by their tar headers before each entry.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress_base::quantity::bytes;
use slotpress_base::{Error, Hint, Result};
use slotpress_format::{END_OF_ARCHIVE_BYTES, Entry};

use super::Archive;

/// Counts the tar bytes of all archives of a command, and refuses more than the limit. Reading the
/// archives again from the start needs a new limit.
#[derive(Debug)]
pub struct SizeLimit {
    max_bytes: u64,
    seen_bytes: AtomicU64,
}

impl SizeLimit {
    /// Limit in bytes of tar entries, with headers and padding; `None` for no limit.
    pub fn new(max_bytes: Option<u64>) -> Self {
        Self { max_bytes: max_bytes.unwrap_or(u64::MAX), seen_bytes: AtomicU64::new(0) }
    }

    /// Checks the sum of the tar lengths in the indexes. An index may be wrong, so
    /// [`entry`](Self::entry) counts entries too.
    ///
    /// # Errors
    /// The sum exceeds the limit.
    pub fn check_indexes<'a>(&self, archives: impl Iterator<Item = &'a Archive>) -> Result<()> {
        let told = archives.filter_map(|archive| Some(archive.tail.as_ref()?.index.tar_bytes()));
        let told = told.map(|tar_bytes| tar_bytes.saturating_sub(END_OF_ARCHIVE_BYTES));
        let told_bytes = told.fold(0, u64::saturating_add);
        if told_bytes <= self.max_bytes {
            return Ok(());
        }
        Err(self.error(&format!("unpacks to {}, as the index says", bytes(told_bytes))))
    }

    /// Counts the whole size of an entry before anything of it is written.
    ///
    /// # Errors
    /// The entry exceeds the limit.
    pub fn entry(&self, entry: &Entry) -> Result<()> {
        let entry_bytes = entry.tar_bytes();
        let before = self.seen_bytes.fetch_add(entry_bytes, Relaxed);
        let seen_bytes = before.saturating_add(entry_bytes);
        if seen_bytes <= self.max_bytes {
            return Ok(());
        }
        Err(self.error(&format!("unpacks to {} with {}, and may go on", bytes(seen_bytes), entry.kind)))
    }

    fn error(&self, found: &str) -> Error {
        Error::failed(format!("the archive {found}, more than the limit of {}", bytes(self.max_bytes)))
            .with_hint(Hint::RaiseMaxBytes)
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::EntryKind;

    use super::*;

    #[test]
    fn the_last_byte_counts() {
        let entry = Entry { kind: EntryKind::Storage { slot: 5, id: 6 }, content_bytes: 1000 };
        let entry_bytes = entry.tar_bytes();
        let limit = SizeLimit::new(Some(2 * entry_bytes));
        assert!(limit.entry(&entry).is_ok() && limit.entry(&entry).is_ok());
        let said = limit.entry(&entry).expect_err("too much").to_string();
        assert!(said.contains("accounts/5.6") && said.contains("the limit of") && said.contains("4.50 KiB"), "{said}");
        let limit = SizeLimit::new(Some(2 * entry_bytes - 1));
        assert!(limit.entry(&entry).is_ok() && limit.entry(&entry).is_err());
        let huge = Entry { content_bytes: u64::MAX - 1024, ..entry };
        let limit = SizeLimit::new(None);
        assert!(limit.entry(&entry).is_ok() && limit.entry(&huge).is_ok(), "no limit");
    }
}
