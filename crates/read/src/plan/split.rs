//! Reads split storages as the append vecs that they become in an archive.
//!
//! The length of the entry follows only from the `.meta` file. Planning reads and checks the whole
//! file, and adds a [`Checkpoint`] at regular intervals. A worker starts at a checkpoint to read its
//! part of the entry. `ledger::split` parses the bytes of the files.

use slotpress_base::quantity::count_of;
use slotpress_base::{Error, IoHint, Result, copy_at_most, range_bytes, saturating_add_to, split_at_most, to_usize};
use slotpress_format::{
    AccountData, DATA_HEADER_BYTES, FILE_HEADER_BYTES, MetaEntry, MetaWalk, ObsoleteItem, RECORD_HEADER_BYTES, ReadAt,
    STORAGE_BYTES_MAX, SplitFile, StorageDir, StorageFile, StorageFileStat, StorageKind, WalkBounds, check_data_header,
    check_uids,
};

use crate::plan::file::{OpenStorage, WINDOW_BYTES, changed_storage_error};
use crate::plan::storage_length::{Checkpoint, ObsoleteEntries, StorageLength};

/// Distance between checkpoints in an entry, unless an account is longer. Reading for a frame starts
/// at most this far before the frame's part. The checkpoints of 450 GB of storages take 7 MB.
const CHECKPOINT_BYTES: u64 = 1024 * 1024;

/// Bytes read at a time when a whole file is scanned: enough for the full rate of a disk, and not too many
/// for the caches.
const SCAN_WINDOW_BYTES: usize = 1024 * 1024;

const START: Checkpoint = Checkpoint { entry_offset: 0, meta_offset: FILE_HEADER_BYTES as u64 };

pub(super) struct SplitStorage {
    meta: OpenStorage,
    data: Option<OpenStorage>,
}

impl SplitStorage {
    pub fn open(dir: &StorageDir, storage: &StorageFile, io_hint: IoHint) -> Result<Self> {
        let meta = OpenStorage::open(dir, storage, io_hint)?;
        let StorageKind::Split { data: Some(data) } = storage.kind else { return Ok(Self { meta, data: None }) };
        let StorageFileStat { file_bytes, modified_ns } = data;
        let name = storage.data_file_name();
        let file = dir.open_storage(&name)?;
        let data = OpenStorage { file, path: dir.path.join(name), file_bytes, modified_ns, io_hint };
        Ok(Self { meta, data: Some(data) })
    }

    /// Runs `work`, which reads the files. A changing file may look damaged, so a change is reported
    /// instead of the error of `work`.
    fn read_unchanged<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = work();
        self.meta.check_unchanged()?;
        if let Some(data) = &self.data {
            data.check_unchanged()?;
        }
        result
    }

    fn bounds(&self, start: u64, read_ahead_end: u64, window_bytes: usize) -> WalkBounds {
        let data_bytes = self.data.as_ref().map(|data| data.file_bytes);
        WalkBounds { meta_bytes: self.meta.file_bytes, data_bytes, start, read_ahead_end, window_bytes }
    }

    /// Reads and checks the whole `.meta` file through `window`, which the caller should reuse, and the
    /// header of the `.data` file. Before each window is read, calls `on_read` with its number of bytes.
    pub fn scan(
        &self,
        obsolete: &[ObsoleteItem],
        window: &mut Vec<u8>,
        on_read: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<StorageLength> {
        let Self { meta, data } = self;
        self.read_unchanged(|| {
            // Each window's pages are dropped before the next is read. The file's header is in the first window.
            let mut window_pages = None;
            let mut read = |buf: &mut [u8], offset: u64| {
                let wanted = offset..offset.saturating_add(buf.len() as u64);
                if window_pages.as_ref().is_none_or(|(end, _)| wanted.end > *end) {
                    let window_end = offset.saturating_add(SCAN_WINDOW_BYTES as u64);
                    let window = offset..meta.file_bytes.min(window_end).max(wanted.end);
                    on_read(range_bytes(&window))?;
                    drop(window_pages.take());
                    window_pages = Some((window.end, meta.prefetch(&window)));
                }
                meta.read_at(buf, offset)
            };
            let meta_uid = read_uid(SplitFile::Meta, meta, &mut read)?;
            if let Some(data) = data {
                let data_uid = read_uid(SplitFile::Data, data, &mut |buf, offset| data.read_piece(buf, offset))?;
                check_uids(meta_uid, data_uid).map_err(|error| data.add_path(error))?;
            }
            let bounds = self.bounds(START.meta_offset, meta.file_bytes, SCAN_WINDOW_BYTES);
            scan_entries(bounds, obsolete, window, &mut read).map_err(|error| meta.add_path(error))
        })
    }

    pub fn read(
        &self,
        checkpoints: &[Checkpoint],
        obsolete: &[ObsoleteItem],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(buf.len() as u64);
        let passed_count = checkpoints.partition_point(|checkpoint| checkpoint.entry_offset <= offset);
        let start = passed_count.checked_sub(1).and_then(|last| checkpoints.get(last)).copied().unwrap_or(START);
        let after_end = checkpoints.partition_point(|checkpoint| checkpoint.entry_offset < end);
        let Self { meta, data } = self;
        let limit = checkpoints.get(after_end).map_or(meta.file_bytes, |checkpoint| checkpoint.meta_offset);
        self.read_unchanged(|| {
            let bounds = self.bounds(start.meta_offset, limit, WINDOW_BYTES);
            let _page_dropper = meta.prefetch(&(start.meta_offset..limit));
            let add_meta_path = |error: Error| meta.add_path(error);
            let mut read = |buf: &mut [u8], offset| meta.read_at(buf, offset);
            let first_obsolete = obsolete.partition_point(|item| item.offset < start.meta_offset);
            let mut obsolete = ObsoleteEntries(obsolete.get(first_obsolete..).unwrap_or_default());
            let mut piece = SplitPiece { offset, buf };
            let mut window = Vec::new();
            let mut walk = MetaWalk::new(bounds, &mut window, &mut read);
            let mut record_offset = start.entry_offset;
            while record_offset < end {
                let entry =
                    walk.next_entry().map_err(add_meta_path)?.ok_or_else(|| changed_storage_error(&meta.path))?;
                if obsolete.is_next(entry.offset, entry.data_len).map_err(add_meta_path)? {
                    continue;
                }
                let next = record_offset.saturating_add(entry.record_bytes());
                if next > offset {
                    piece.put_record(record_offset, &entry, data.as_ref())?;
                }
                record_offset = next;
            }
            Ok(())
        })
    }
}

fn read_uid(kind: SplitFile, source: &OpenStorage, read: &mut ReadAt<'_>) -> Result<u64> {
    let mut header = [0; FILE_HEADER_BYTES];
    if source.file_bytes < header.len() as u64 {
        let length = count_of(source.file_bytes, "byte");
        return Err(source.add_path(Error::damaged(format!("{length}, shorter than the file's header"))));
    }
    read(&mut header, 0)?;
    kind.parse_uid(&header).map_err(|error| source.add_path(error))
}

fn scan_entries(
    bounds: WalkBounds,
    obsolete: &[ObsoleteItem],
    window: &mut Vec<u8>,
    read: &mut ReadAt<'_>,
) -> Result<StorageLength> {
    let mut scanned = StorageLength::default();
    let mut obsolete = ObsoleteEntries(obsolete);
    let mut walk = MetaWalk::new(bounds, window, read);
    let mut next_checkpoint = CHECKPOINT_BYTES;
    while let Some(entry) = walk.next_entry()? {
        if obsolete.is_next(entry.offset, entry.data_len)? {
            continue;
        }
        if scanned.content_bytes >= next_checkpoint {
            scanned.checkpoints.push(Checkpoint { entry_offset: scanned.content_bytes, meta_offset: entry.offset });
            next_checkpoint = scanned.content_bytes.saturating_add(CHECKPOINT_BYTES);
        }
        saturating_add_to(&mut scanned.content_bytes, entry.record_bytes());
    }
    obsolete.finish()?;
    if scanned.content_bytes > STORAGE_BYTES_MAX {
        return Err(Error::failed(format!(
            "in an archive, the storage would have {} bytes, more than the 16 GiB that an entry may have",
            scanned.content_bytes
        ))
        .with_hint("only Agave 4.5 reads larger ones; archive with Agave itself"));
    }
    Ok(scanned)
}

/// A piece of the entry: `buf` receives its bytes from `offset` onwards.
struct SplitPiece<'a> {
    offset: u64,
    buf: &'a mut [u8],
}

impl SplitPiece<'_> {
    fn part_of(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        let clip = |offset: u64| to_usize(offset.saturating_sub(self.offset)).min(self.buf.len());
        clip(offset)..clip(offset.saturating_add(length))
    }

    /// Writes bytes at an offset of the content, and leaves out those outside the piece.
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let part = self.part_of(offset, bytes.len() as u64);
        // Bytes before the start of the piece are skipped.
        let (_, wanted) = split_at_most(bytes, to_usize(self.offset.saturating_sub(offset)));
        copy_at_most(wanted, self.buf.get_mut(part).unwrap_or_default());
    }

    fn put_record(&mut self, offset: u64, entry: &MetaEntry<'_>, data: Option<&OpenStorage>) -> Result<()> {
        let data_start = offset.saturating_add(RECORD_HEADER_BYTES as u64);
        let data_end = data_start.saturating_add(u64::from(entry.data_len));
        let end = offset.saturating_add(entry.record_bytes());
        self.put(offset, &entry.record_header());
        let padding_bytes = to_usize(end.saturating_sub(data_end));
        self.put(data_end, split_at_most(&[0; 8], padding_bytes).0);
        match (&entry.data, data) {
            (AccountData::Inline(bytes), _) => self.put(data_start, bytes),
            (AccountData::InDataFile(file_offset), Some(data)) => {
                self.read_large(data_start, entry, *file_offset, data)?
            }
            (AccountData::InDataFile(_), None) => {}
        }
        Ok(())
    }

    fn read_large(&mut self, start: u64, entry: &MetaEntry<'_>, file_offset: u64, data: &OpenStorage) -> Result<()> {
        let part = self.part_of(start, u64::from(entry.data_len));
        if part.is_empty() {
            return Ok(());
        }
        let skipped = self.offset.saturating_sub(start);
        let read_offset = file_offset.saturating_add(DATA_HEADER_BYTES as u64).saturating_add(skipped);
        let end = read_offset.saturating_add(part.len() as u64);
        let _page_dropper = data.prefetch(&(file_offset..end));
        let mut header = [0; DATA_HEADER_BYTES];
        data.read_at(&mut header, file_offset)?;
        check_data_header(&header, file_offset, &entry.pubkey(), entry.data_len)
            .map_err(|error| data.add_path(error))?;
        data.read_at(self.buf.get_mut(part).unwrap_or_default(), read_offset)
    }
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
