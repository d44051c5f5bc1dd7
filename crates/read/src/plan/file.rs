//! Reads pieces of a storage file, and leaves out obsolete records. A file whose length or
//! modification time differs from the plan is an error: a storage that changes while it is read
//! cannot be archived.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use slotpress_base::{
    Error, EscapePath, IoHint, Result, copy_at_most, prefix_mut, range_bytes, split_at_most, to_usize,
};
use slotpress_format::{StorageFile, modified_ns};

/// Bytes read at once, with the obsolete records among them: they stay in a core's second-level cache.
const WINDOW_BYTES: u64 = 256 * 1024;

#[derive(Clone, Copy)]
pub(super) struct OpenStorage<'a> {
    pub file: &'a File,
    pub path: &'a dyn Fn() -> PathBuf,
    pub file_bytes: u64,
    pub modified_ns: i64,
    pub io_hint: IoHint,
}

impl<'a> OpenStorage<'a> {
    pub fn from_storage(file: &'a File, path: &'a dyn Fn() -> PathBuf, storage: &StorageFile, io_hint: IoHint) -> Self {
        let StorageFile { file_bytes, modified_ns, .. } = *storage;
        Self { file, path, file_bytes, modified_ns, io_hint }
    }

    /// Reads a piece that no other worker reads, so its pages can be dropped afterwards.
    pub fn read_piece(&self, to: &mut [u8], offset: u64) -> Result<()> {
        let range = offset..offset.saturating_add(to.len() as u64);
        let mut piece = self.io_hint.open_range(self.file, &range, self.file_bytes);
        piece.read_exact_at(to, offset).map_err(|error| self.error(&error))
    }

    pub fn read_at(&self, to: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(to, offset).map_err(|error| self.error(&error))
    }

    fn error(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => changed_error(&(self.path)()),
            _ => Error::io("read", &(self.path)(), error),
        }
    }

    pub fn check_unchanged(&self) -> Result<()> {
        let path = self.path;
        let metadata = self.file.metadata().map_err(|error| Error::io("read", &path(), &error))?;
        let is_same = metadata.len() == self.file_bytes
            && modified_ns(metadata.mtime(), metadata.mtime_nsec()) == self.modified_ns;
        if is_same { Ok(()) } else { Err(changed_error(&path())) }
    }

    /// Reads from `offset` of the kept ranges as if they were one contiguous file.
    pub fn read_kept(&self, kept: &[Range<u64>], mut offset: u64, mut to: &mut [u8]) -> Result<()> {
        let mut wanted = Vec::new();
        let mut left = to.len() as u64;
        for range in kept {
            let start = range.start.saturating_add(offset).min(range.end);
            let end = range.end.min(start.saturating_add(left));
            offset = offset.saturating_sub(range_bytes(range));
            left = left.saturating_sub(range_bytes(&(start..end)));
            if start < end {
                wanted.push(start..end);
            }
        }
        if left > 0 {
            return Err(Error::damaged(format!(
                "{}: without its obsolete records, the file is at least {left} bytes shorter than planned",
                (self.path)().escaped()
            )));
        }
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let mut piece = self.io_hint.open_range(self.file, &(first.start..last.end), self.file_bytes);
        let mut bytes = vec![0; to_usize(range_bytes(&(first.start..last.end)).min(WINDOW_BYTES))];
        let mut window = 0..0u64;
        for range in &wanted {
            let mut position = range.start;
            while position < range.end {
                if position >= window.end {
                    window = position..last.end.min(position.saturating_add(WINDOW_BYTES));
                    let read = piece.read_exact_at(prefix_mut(&mut bytes, to_usize(range_bytes(&window))), position);
                    read.map_err(|error| self.error(&error))?;
                }
                let end = range.end.min(window.end);
                let (part, rest) = to.split_at_mut(to_usize(range_bytes(&(position..end))));
                copy_at_most(split_at_most(&bytes, to_usize(range_bytes(&(window.start..position)))).1, part);
                (to, position) = (rest, end);
            }
        }
        Ok(())
    }
}

pub(super) fn changed_error(path: &Path) -> Error {
    Error::failed(format!("{} changed while it was read", path.escaped()))
        .with_hint("something writes to the ledger; stop it and archive again")
}

pub(super) fn not_planned_error(file: &StorageFile) -> Error {
    Error::failed(format!("{}: its directory is not in the plan", file.file_name()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reading kept ranges equals cutting the whole file in memory, from any offset, at any
        /// length.
        #[test]
        fn kept_ranges_are_read_as_one_file(
            pieces in proptest::collection::vec((1usize..40_000, any::<bool>()), 1..20),
            from in any::<prop::sample::Index>(),
            length in any::<prop::sample::Index>(),
        ) {
            let total: usize = pieces.iter().map(|(length, _)| length).sum();
            let bytes: Vec<u8> = (0..total).map(|number| (number * 31 % 251) as u8).collect();
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(&bytes).expect("written");
            let mut kept: Vec<Range<u64>> = Vec::new();
            let mut expected = Vec::new();
            let mut at = 0;
            for (length, is_kept) in pieces {
                if is_kept {
                    expected.extend_from_slice(&bytes[at..at + length]);
                    match kept.last_mut() {
                        Some(last) if last.end == at as u64 => last.end += length as u64,
                        _ => kept.push(at as u64..(at + length) as u64),
                    }
                }
                at += length;
            }
            let from = from.index(expected.len() + 1);
            let length = length.index(expected.len() - from + 1);
            let mut to = vec![0; length];
            let source = OpenStorage { file: &file, path: &PathBuf::new, file_bytes: total as u64, modified_ns: 0, io_hint: IoHint::Gentle };
            source.read_kept(&kept, from as u64, &mut to).expect("read");
            prop_assert_eq!(&to, &expected[from..from + length]);
            let mut more = vec![0; expected.len() - from + 1];
            prop_assert!(source.read_kept(&kept, from as u64, &mut more).is_err());
        }
    }
}
