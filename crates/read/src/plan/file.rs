//! Reads pieces of a storage file, and leaves out obsolete records. A file whose length or
//! modification time differs from the plan is an error: a storage that changes while it is read
//! cannot be archived.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use slotpress_base::io::RangeReader;
use slotpress_base::{
    Error, EscapePath, IoContext, IoHint, Result, copy_at_most, prefix_mut, range_bytes, split_at_most, to_usize,
};
use slotpress_format::{StorageDir, StorageFile, modified_ns};

/// Bytes read at a time, including obsolete records. They stay in a core's second-level cache.
pub(super) const WINDOW_BYTES: usize = 256 * 1024;

/// An open file, with the length and the modification time that it had during planning.
pub(super) struct OpenStorage {
    pub file: File,
    pub path: PathBuf,
    pub file_bytes: u64,
    pub modified_ns: i64,
    pub io_hint: IoHint,
}

impl OpenStorage {
    pub fn open(dir: &StorageDir, storage: &StorageFile, io_hint: IoHint) -> Result<Self> {
        let name = storage.file_name();
        let StorageFile { file_bytes, modified_ns, .. } = *storage;
        Ok(Self { file: dir.open_storage(&name)?, path: dir.path.join(name), file_bytes, modified_ns, io_hint })
    }

    /// Prepares for reading a range with [`read_at`](Self::read_at). When the result is dropped, pages of the
    /// range that were not in the page cache before leave it again.
    pub fn prefetch(&self, range: &Range<u64>) -> RangeReader<'_> {
        self.io_hint.prefetch_range(&self.file, range, self.file_bytes)
    }

    pub fn add_path(&self, error: Error) -> Error {
        error.with_place(self.path.escaped())
    }

    /// Reads a piece that no other worker reads, so its pages may leave the page cache afterwards.
    pub fn read_piece(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let mut piece = self.io_hint.open_range(&self.file, &range, self.file_bytes);
        piece.read_exact_at(buf, offset).map_err(|error| self.read_error(&error))
    }

    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| self.read_error(&error))
    }

    fn read_error(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => changed_storage_error(&self.path),
            _ => Error::io("read", &self.path, error),
        }
    }

    pub fn check_unchanged(&self) -> Result<()> {
        let metadata = self.file.metadata().or_path("read", &self.path)?;
        let modified_ns = modified_ns(metadata.mtime(), metadata.mtime_nsec());
        let is_same = metadata.len() == self.file_bytes && modified_ns == self.modified_ns;
        if is_same { Ok(()) } else { Err(changed_storage_error(&self.path)) }
    }

    /// Fills `buf` from the kept ranges, as if they were one contiguous file that is read at `offset`.
    pub fn read_kept(&self, kept: &[Range<u64>], mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        let mut wanted = Vec::new();
        let mut missing_bytes = buf.len() as u64;
        for range in kept {
            let start = range.start.saturating_add(offset).min(range.end);
            let end = range.end.min(start.saturating_add(missing_bytes));
            offset = offset.saturating_sub(range_bytes(range));
            missing_bytes = missing_bytes.saturating_sub(range_bytes(&(start..end)));
            if start < end {
                wanted.push(start..end);
            }
        }
        if missing_bytes > 0 {
            let path = self.path.escaped();
            let why = format!("the file is at least {missing_bytes} bytes shorter than planned");
            return Err(Error::damaged(format!("{path}: without its obsolete records, {why}")));
        }
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let range = first.start..last.end;
        let mut piece = self.io_hint.open_range(&self.file, &range, self.file_bytes);
        let mut bytes = vec![0; to_usize(range_bytes(&range)).min(WINDOW_BYTES)];
        let mut window = 0..0u64;
        for range in &wanted {
            let mut position = range.start;
            while position < range.end {
                if position >= window.end {
                    window = position..last.end.min(position.saturating_add(WINDOW_BYTES as u64));
                    let bytes = prefix_mut(&mut bytes, to_usize(range_bytes(&window)));
                    piece.read_exact_at(bytes, position).map_err(|error| self.read_error(&error))?;
                }
                let end = range.end.min(window.end);
                let (part, rest) = buf.split_at_mut(to_usize(range_bytes(&(position..end))));
                let skipped_bytes = to_usize(range_bytes(&(window.start..position)));
                copy_at_most(split_at_most(&bytes, skipped_bytes).1, part);
                (buf, position) = (rest, end);
            }
        }
        Ok(())
    }
}

pub(super) fn changed_storage_error(path: &Path) -> Error {
    Error::failed(format!("{} changed while it was read", path.escaped()))
        .with_hint("something is writing to the ledger: stop it, and archive again")
}

pub(super) fn dir_of<'a>(file: &StorageFile, dirs: &'a [StorageDir]) -> Result<&'a StorageDir> {
    let dir = dirs.get(usize::from(file.dir_index));
    dir.ok_or_else(|| Error::failed(format!("{}: its directory is not in the plan", file.file_name())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// From any offset and at any length, the bytes are those of the kept ranges, joined in memory.
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
            let mut offset = 0;
            for (length, is_kept) in pieces {
                if is_kept {
                    expected.extend_from_slice(&bytes[offset..offset + length]);
                    match kept.last_mut() {
                        Some(last) if last.end == offset as u64 => last.end += length as u64,
                        _ => kept.push(offset as u64..(offset + length) as u64),
                    }
                }
                offset += length;
            }
            let from = from.index(expected.len() + 1);
            let length = length.index(expected.len() - from + 1);
            let mut buf = vec![0; length];
            let source = OpenStorage { file, path: PathBuf::new(), file_bytes: total as u64, modified_ns: 0, io_hint: IoHint::Gentle };
            source.read_kept(&kept, from as u64, &mut buf).expect("read");
            prop_assert_eq!(&buf, &expected[from..from + length]);
            let mut too_long = vec![0; expected.len() - from + 1];
            prop_assert!(source.read_kept(&kept, from as u64, &mut too_long).is_err());
        }
    }
}
